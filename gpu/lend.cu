/* Passes on the caller's memory and stream (lend.cuh). */
#include "gpu/lend.cuh"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "gpu/gemm/gemm_wgmma.cuh"
#include "gpu/gemm/product.cuh"

/* The calling thread's device, which becomes another one for a while. */
class device_of_thread
{
    int was, now;

  public:
    explicit device_of_thread(int device) : was(device), now(device)
    {
        cudaGetDevice(&was);
        if (was != now)
            cudaSetDevice(now);
    }
    ~device_of_thread()
    {
        if (was != now)
            cudaSetDevice(was);
    }
};

struct context *lend(struct context *x, int products)
{
    const device_of_thread here(x->device);
    const int e = products ? product_prepare(x) : 0;
    if (e) {
        err_set("%s", product_error(e));
        return NULL;
    }
    struct context *lent = (struct context *)calloc(1, sizeof *lent);

    if (!lent) {
        err_set("no memory for a context");
        return NULL;
    }
    wgmma_prepare(x); /* asked once, not in each pass */
    lent->lent = 1;
    lent->device = x->device;
    lent->properties = x->properties;
    lent->limits = x->limits;
    for (int i = 0; i < 2; i++)
        lent->wgmma_clusters[i] = x->wgmma_clusters[i];
    return lent;
}

const char *foreign(const struct context *lent, const void *p)
{
    static thread_local char why[64];
    cudaPointerAttributes of;

    if (cudaPointerGetAttributes(&of, p) != cudaSuccess) {
        cudaGetLastError();
        return "memory that CUDA does not know";
    }
    if (of.type != cudaMemoryTypeDevice && of.type != cudaMemoryTypeManaged)
        return "memory of the host";
    if (of.type == cudaMemoryTypeManaged || of.device == lent->device)
        return NULL;
    snprintf(why, sizeof why, "memory of device %d, the call is for device %d", of.device,
             lent->device);
    return why;
}

const char *foreign_stream(const struct context *lent, void *stream)
{
#if !defined CUDA_EMULATE && CUDART_VERSION >= 12080
    static thread_local char why[64];
    const device_of_thread here(lent->device);
    cudaStreamCaptureStatus capturing;
    int device = lent->device;

    /* a stream that captures, or waits for one that does, may not be asked: a launch on it fails */
    if (cudaStreamIsCapturing((cudaStream_t)stream, &capturing) != cudaSuccess || capturing) {
        cudaGetLastError();
        return NULL;
    }
    if (cudaStreamGetDevice((cudaStream_t)stream, &device) != cudaSuccess) {
        cudaGetLastError();
        return "no stream";
    }
    if (device == lent->device)
        return NULL;
    snprintf(why, sizeof why, "a stream of device %d, the call is for device %d", device,
             lent->device);
    return why;
#else
    (void)lent;
    (void)stream;
    return NULL; /* a launch on it fails */
#endif
}

int pass_on(const struct call *f, enum pass p, void *stream, void *products)
{
    const device_of_thread here(f->context->device);
    struct context own = *f->context;
    struct call c = *f;

    own.stream = (cudaStream_t)stream;
    own.products_workspace = products;
    c.context = &own;
    const int e = call_pass(&c, p);
    product_end(&own);
    return e;
}

void *keep(const struct context *lent, const void *here, size_t bytes)
{
    const device_of_thread on(lent->device);
    void *p = NULL;

    if (cudaMalloc(&p, bytes) == cudaSuccess &&
        cudaMemcpy(p, here, bytes, cudaMemcpyHostToDevice) == cudaSuccess)
        return p;
    cudaGetLastError();
    cudaFree(p);
    return NULL;
}

int wait_on(const struct context *lent, void *stream)
{
    const device_of_thread here(lent->device);
    return cudaStreamSynchronize((cudaStream_t)stream);
}
