/* gemm, gemm_splitk, gemm_batched: the first rungs of the ladder, the one that cuBLAS is, and the
 * lists of all kernels. */
#include "gpu/gemm.cuh"

/* ---- dC0 ---- */

enum { SCALING = 256 };

template <typename T>
__global__ void scale(T *to, const T *from, float by, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * SCALING + threadIdx.x;
    if (i < n)
        store(to + i, by * load(from + i));
}

template <typename T>
int gemm_scale(T *to, const T *from, float by, int64_t n)
{
    scale<<<ceil_div(n, SCALING), SCALING, 0, gpu_stream()>>>(to, from, by, n);
    return cudaGetLastError();
}

template int gemm_scale(float *, const float *, float, int64_t);
template int gemm_scale(__nv_bfloat16 *, const __nv_bfloat16 *, float, int64_t);

/* ---- naive ---- */

enum { NAIVE = 256 };

/* One thread an element of c, neighbours along a row: one of the operands is read once for the
 * whole warp, and every number of both as often as there are warps that want it. */
template <typename T, typename C>
__global__ void multiply_naive(gemm_problem<T, C> p)
{
    const int64_t i = (int64_t)blockIdx.x * NAIVE + threadIdx.x;
    if (i >= p.batch * p.M * p.N)
        return;
    const int64_t g = i / (p.M * p.N), m = i / p.N % p.M, n = i % p.N;
    const T *a = p.a + g * p.M * p.K + (p.flip_a ? m : m * p.K);
    const T *b = p.b + g * p.K * p.N + (p.flip_b ? n * p.K : n);
    const int64_t next_a = p.flip_a ? p.M : 1, next_b = p.flip_b ? 1 : p.N;
    float sum = 0;
    for (int64_t k = 0; k < p.K; k++)
        sum = fmaf(load(a + k * next_a), load(b + k * next_b), sum);
    store(p.c + i, p.c0 ? fmaf(p.alpha, sum, p.beta * load(p.c0 + i)) : p.alpha * sum);
}

struct gemm_naive : gemm_engine {
    template <typename T, typename C>
    static const char *declines(const gemm_problem<T, C> &p)
    {
        return ceil_div(p.batch * p.M * p.N, NAIVE) > 0x7fffffff
                   ? "more elements of a result than a grid has threads (549755813632)"
                   : NULL;
    }

    template <typename T, typename C>
    static int multiply(const gemm_problem<T, C> &p)
    {
        const int64_t blocks = ceil_div(p.batch * p.M * p.N, NAIVE);
        multiply_naive<<<blocks, NAIVE, 0, gpu_stream()>>>(p);
        return cudaGetLastError();
    }
};

GEMM_IMPLS(static, naive, "one thread an element of the result");

/* Best first.  Kernels of other files are declared in gpu/gemm.cuh; those of tensor cores, for
 * bf16 alone, go in front of the lists gpu16_.... */
GPU_KERNEL_LIST(gemm, 32, &gemm_blocked32, &gemm_naive32);
GPU_KERNEL_LIST(gemm, 16, &gemm_wgmma16, &gemm_mma16, &gemm_blocked16, &gemm_naive16);
GPU_KERNEL_LIST(gemm_batched, 32, &gemm_blocked32, &gemm_naive32);
GPU_KERNEL_LIST(gemm_batched, 16, &gemm_wgmma16, &gemm_mma16, &gemm_blocked16, &gemm_naive16);
GPU_KERNEL_LIST(gemm_splitk, 32, &gemm_splitk32, &gemm_naive32);
GPU_KERNEL_LIST(gemm_splitk, 16, &gemm_wgmma16, &gemm_mma16, &gemm_splitk16, &gemm_naive16);
