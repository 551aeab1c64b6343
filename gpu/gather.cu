/* Gathers the elements that a sample takes of a tensor (common/call/sample.h):
 *
 *     few[i] = (double)x[map_index(i)]
 *
 * One thread per element of the cut tensor.  The places are scattered, so that each load is one
 * sector of memory; the tensor x may have any size. */
#include "gpu/gpu.cuh"

extern "C" {
#include "common/call/sample.h"
}

enum { THREADS = 256 };

/* Elements of the cut tensor. */
static int64_t count(const cut_map &at)
{
    int64_t n = 1;
    for (int k = 0; k < at.rank; k++)
        n *= at.length[k];
    return n;
}

static __device__ double value(const int64_t *x)
{
    return (double)*x;
}

template <typename T>
static __device__ double value(const T *x)
{
    return load(x);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    gather_kernel(double *few, const T *x, cut_map at, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        few[i] = value(x + map_index(&at, i));
}

template <typename T>
static int gather_all(const struct call *f, double *few, const void *x, const cut_map &at)
{
    const int64_t n = count(at);
    const unsigned blocks = ceil_div(n, THREADS);
    gather_kernel<<<blocks, THREADS, 0, gpu_stream(f)>>>(few, (const T *)x, at, n);
    return cudaGetLastError();
}

static int gather(const struct call *f, enum dtype type, double *few, const void *x,
                  const cut_map &at)
{
    switch (type) {
#define CASE(T)                                                                                    \
    case storage<T>::TYPE: return gather_all<T>(f, few, x, at);
        GPU_TYPES(CASE)
    case I64: return gather_all<int64_t>(f, few, x, at);
    default: return cudaErrorInvalidValue;
    }
}

/* What is on the device while elements are gathered: the rows, then n elements. */
struct gathered {
    int64_t row[MAX_AXES][SAMPLE_ROWS];
    double few[1];
};

/* The places, by rows that are on the device. */
static cut_map on_device(cut_map at, const struct sample *s, const struct gathered *there)
{
    for (int k = 0; k < at.rank; k++)
        if (at.row[k])
            at.row[k] = there->row[0] + (at.row[k] - s->row[0]);
    return at;
}

int gpu_gather(const struct call *whole, const struct sample *s, const char *axes, int arg,
               int grad, double *few)
{
    const cut_map at = sample_map(whole, s, axes, arg);
    const size_t bytes = count(at) * sizeof *few;
    const void *x = (grad ? whole->grad : whole->arg)[arg];
    const cudaStream_t stream = gpu_stream(whole);
    struct gathered *there = NULL;

    CUDA(cudaMalloc(&there, offsetof(struct gathered, few) + bytes));
    int e = cudaMemcpyAsync(there->row, s->row, sizeof s->row, cudaMemcpyHostToDevice, stream);
    if (!e)
        e = gather(whole, call_type(whole, arg, grad), there->few, x, on_device(at, s, there));
    if (!e)
        e = cudaMemcpyAsync(few, there->few, bytes, cudaMemcpyDeviceToHost, stream);
    if (!e)
        e = cudaStreamSynchronize(stream);
    cudaFree(there);
    return e;
}
