/* lend.cuh - passes on the caller's memory and stream (common/api/call.c).
 *
 * A lent context has no stream, no memory and no handle of its own, and is not changed by a pass.
 * The pass has a copy of it, with the caller's stream and workspace, and takes a handle of cuBLAS
 * where it needs one.  So any number of passes may begin at once. */
#ifndef LEND_CUH
#define LEND_CUH

#include "gpu/gpu.cuh"

struct context *lend(struct context *x, int products);
const char *foreign(const struct context *lent, const void *p);
const char *foreign_stream(const struct context *lent, void *stream);
int pass_on(const struct call *f, enum pass p, void *stream, void *products);
void *keep(const struct context *lent, const void *here, size_t bytes);
int wait_on(const struct context *lent, void *stream);

#endif
