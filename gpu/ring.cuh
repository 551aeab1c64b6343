/* ring.cuh - pinned memory of a context, through which copies go that the host need not wait for. */
#ifndef RING_CUH
#define RING_CUH

#include "common/call/machine.h"
#include "gpu/gpu.cuh"

/* What struct memory in machine.h promises of these. */
int ring_pinned(struct context *x, int i, void **at);
int ring_send(struct context *x, void *there, int i, size_t bytes);
int ring_fetch(struct context *x, int i, const void *there, size_t bytes);
void *memory_aside(struct context *x, size_t bytes);
int memory_copy(struct context *x, void *to, const void *from, size_t bytes);

/* Of a context that is closed. */
void ring_end(struct context *x);

#endif
