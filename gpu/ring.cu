/* Copies through pinned memory (ring.cuh): on the stream of everything else, so that they are in order with passes; the
 * event behind a copy says when its buffer is free again. */
#include "gpu/ring.cuh"

#include <stdlib.h>

struct ring {
    char *memory; /* NULL: there is none, and none is asked for again */
    cudaEvent_t done[RING];
};

static void drop(struct ring *r)
{
    for (int i = 0; i < RING; i++)
        if (r->done[i])
            cudaEventDestroy(r->done[i]);
    if (r->memory)
        cudaFreeHost(r->memory);
    *r = {};
}

void ring_end(struct context *x)
{
    if (x->ring)
        drop(x->ring);
    free(x->ring);
}

static cudaError_t make(struct ring *r)
{
    cudaError_t e = cudaMallocHost(&r->memory, (size_t)RING * RING_BYTES);

    if (e != cudaSuccess)
        r->memory = NULL;
    for (int i = 0; e == cudaSuccess && i < RING; i++)
        e = cudaEventCreateWithFlags(&r->done[i], cudaEventDisableTiming);
    return e;
}

/* Made when first asked for. */
static int is_there(struct context *x)
{
    if (x->ring || x->lent)
        return x->ring && x->ring->memory;
    x->ring = (struct ring *)calloc(1, sizeof *x->ring);
    if (!x->ring)
        return 0;
    if (make(x->ring) == cudaSuccess)
        return 1;
    cudaGetLastError();
    drop(x->ring);
    return 0;
}

int ring_pinned(struct context *x, int i, void **at)
{
    *at = NULL;
    CUDA(cudaSetDevice(x->device));
    if (!is_there(x))
        return 0;
    CUDA(cudaEventSynchronize(x->ring->done[i]));
    *at = x->ring->memory + (size_t)i * RING_BYTES;
    return 0;
}

static int copy(struct context *x, int i, void *to, const void *from, size_t bytes)
{
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, x->stream));
    return cudaEventRecord(x->ring->done[i], x->stream);
}

int ring_send(struct context *x, void *there, int i, size_t bytes)
{
    return copy(x, i, there, x->ring->memory + (size_t)i * RING_BYTES, bytes);
}

int ring_fetch(struct context *x, int i, const void *there, size_t bytes)
{
    return copy(x, i, x->ring->memory + (size_t)i * RING_BYTES, there, bytes);
}

/* The caller reports an allocation that fails.  The error is cleared, so that the next launch does not return it. */
void *memory_aside(struct context *x, size_t bytes)
{
    void *p = NULL;

    cudaSetDevice(x->device);
    if (cudaMalloc(&p, bytes) == cudaSuccess)
        return p;
    cudaGetLastError();
    return NULL;
}

int memory_copy(struct context *x, void *to, const void *from, size_t bytes)
{
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, x->stream));
    return cudaStreamSynchronize(x->stream);
}
