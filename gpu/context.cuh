/* context.cuh - the context of a GPU backend: all that it keeps between calls on one device.  Host
 * code of kernels reads the call's: its stream, the limits and properties of its device. */
#ifndef CONTEXT_CUH
#define CONTEXT_CUH

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "gpu/emulate/emulate.h"
#endif

#include "common/call/call.h"
#include "gpu/device_limits.h"

/* Memory for all tensors of a trial, kept for the next trial: a bump allocator, which is reset when
 * the last tensor is freed.  Tensors that do not fit are allocated one by one, and so are all
 * tensors without a reserve().  Tests do this, so that tools see the true bounds of tensors. */
struct arena {
    char *base;
    int64_t size, used;
    int live;
};

/* Events around what is timed, and a buffer twice as large as L2, which is read to evict it; all
 * made when a run is first timed. */
struct timer {
    cudaEvent_t before, after;
    uint4 *evict_buffer;
    int64_t evict_vectors;
};

struct context {
    int device;
    cudaStream_t stream; /* of all kernels, copies and events */
    cudaDeviceProp properties;
    struct limits limits;
    int lent;       /* 1: for calls on the caller's memory, with no memory of its own (lend.cuh) */
    void *products; /* cuBLAS's handle, created at the first product (gemm/product.cu) */
    void *products_workspace;
    int wgmma_clusters[2]; /* that fit at once, by tile (gemm/gemm_wgmma.cu); 0 until asked */
    struct arena arena;
    struct timer timer;
    struct ring *ring;         /* pinned memory for copies (ring.cu); NULL until it is asked for */
    char lost[200], name[500]; /* why it is lost; of the device: texts, "" until asked */
};

static inline cudaStream_t gpu_stream(const struct call *f)
{
    return f->context->stream;
}

static inline const struct limits *gpu_limits(const struct call *f)
{
    return &f->context->limits;
}

static inline const cudaDeviceProp &gpu_properties(const struct call *f)
{
    return f->context->properties;
}

#endif
