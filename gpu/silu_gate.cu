#include "gpu/gpu.cuh"
#include "common/ops/silu_gate.h"

template <typename T>
__global__ void forward_kernel(const T *x, const T *z, T *y, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        store(y + i, load(x + i) * load(z + i) / (1 + expf(-load(z + i))));
}

template <typename T>
__global__ void backward_kernel(const T *x, const T *z, const T *dy, T *dx, T *dz, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float zi = load(z + i), gate = 1 / (1 + expf(-zi));
    store(dx + i, load(dy + i) * zi * gate);
    store(dz + i, load(dy + i) * load(x + i) * gate * (1 + zi * (1 - gate)));
}

template <typename T>
static int forward(const struct frame *f)
{
    const struct silu_gate *a = ARGS(f, silu_gate);
    int64_t n = DIM(f, 'M') * DIM(f, 'D');
    forward_kernel<<<ceil_div(n, 256), 256, 0, gpu_stream()>>>((const T *)a->x, (const T *)a->z,
                                                               (T *)a->y, n);
    return cudaGetLastError();
}

template <typename T>
static int backward(const struct frame *f)
{
    const struct silu_gate *a = ARGS(f, silu_gate), *g = GRADS(f, silu_gate);
    int64_t n = DIM(f, 'M') * DIM(f, 'D');
    backward_kernel<<<ceil_div(n, 256), 256, 0, gpu_stream()>>>(
        (const T *)a->x, (const T *)a->z, (const T *)g->y, (T *)g->x, (T *)g->z, n);
    return cudaGetLastError();
}

GPU_KERNEL(silu_gate, plain, "one thread an element", NULL, NULL);
