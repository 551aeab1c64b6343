#include "gpu/gpu.cuh"

#include <stdio.h>

static const char *unavailable(void)
{
    int count = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess) {
        cudaGetLastError();
        return cudaGetErrorString(e);
    }
    return count ? NULL : "no CUDA device";
}

static const char *device(void)
{
#ifdef CUDA_EMULATE
    return "emulated on the CPU: a test of the kernels, its times mean nothing";
#else
    static char name[400];
    cudaDeviceProp p;
    int driver = 0;
    if (cudaGetDeviceProperties(&p, 0) != cudaSuccess || cudaDriverGetVersion(&driver))
        return "unknown CUDA device";
    snprintf(name, sizeof name, "%s, capability %d.%d, %d SMs, driver for CUDA %d.%d", p.name,
             p.major, p.minor, p.multiProcessorCount, driver / 1000, driver % 1000 / 10);
    return name;
#endif
}

static int64_t memory(void)
{
    size_t free = 0, total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? (int64_t)free : 0;
}

static void *alloc(size_t bytes)
{
    void *p = NULL;
    return cudaMalloc(&p, bytes) == cudaSuccess ? p : NULL;
}

static void release(void *p)
{
    cudaFree(p);
}

static int put(void *there, const void *here, size_t bytes)
{
    return cudaMemcpy(there, here, bytes, cudaMemcpyHostToDevice);
}

static int get(void *here, const void *there, size_t bytes)
{
    return cudaMemcpy(here, there, bytes, cudaMemcpyDeviceToHost);
}

/* ---- timing by events, with a cold second-level cache ---- */

static cudaEvent_t before, after;
static void *flush;
static size_t flush_bytes;

static int start(void)
{
    if (!before) {
        cudaDeviceProp p;
        CUDA(cudaGetDeviceProperties(&p, 0));
        flush_bytes = 2 * (size_t)p.l2CacheSize;
        CUDA(cudaEventCreate(&before));
        CUDA(cudaEventCreate(&after));
        if (flush_bytes)
            CUDA(cudaMalloc(&flush, flush_bytes));
    }
    if (flush_bytes)
        CUDA(cudaMemset(flush, 0, flush_bytes));
    CUDA(cudaEventRecord(before));
    return 0;
}

static int stop(double *seconds)
{
    float ms = 0;
    CUDA(cudaEventRecord(after));
    CUDA(cudaEventSynchronize(after));
    CUDA(cudaEventElapsedTime(&ms, before, after));
    *seconds = ms * 1e-3;
    return cudaGetLastError();
}

static const char *error(int code)
{
    return cudaGetErrorString((cudaError_t)code);
}

extern "C" const struct impl *const *const gpu32_kernels[N_OPS];
extern "C" const struct impl *const *const gpu16_kernels[N_OPS];

static const struct backend gpu32 = {
    "gpu32", F32, F32,   unavailable, device,       memory, alloc,         release,
    put,     get, start, stop,        "L2 flushed", error,  gpu32_kernels,
};
static const struct backend gpu16 = {
    "gpu16", BF16, F32,   unavailable, device,       memory, alloc,         release,
    put,     get,  start, stop,        "L2 flushed", error,  gpu16_kernels,
};
extern "C" const struct backend *const gpu_backends[] = {&gpu32, &gpu16, NULL};
