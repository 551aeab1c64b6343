#include "gpu/gpu.cuh"
#include "common/ops/linear.h"

enum { TILE = 16 };

/* c[m][n] = sum over k of a[m][k] b[k][n], strides given so that one kernel
 * serves the three products of the two passes; C is float for dW. */
template <typename T, typename C>
__global__ void product(const T *a, int64_t am, int64_t ak, const T *b, int64_t bk, int64_t bn,
                        C *c, int64_t M, int64_t N, int64_t K)
{
    int64_t m = (int64_t)blockIdx.y * TILE + threadIdx.y;
    int64_t n = (int64_t)blockIdx.x * TILE + threadIdx.x;
    if (m >= M || n >= N)
        return;
    float sum = 0;
    for (int64_t k = 0; k < K; k++)
        sum += load(a + m * am + k * ak) * load(b + k * bk + n * bn);
    store(c + m * N + n, sum);
}

template <typename T, typename C>
static int run(const void *a, int64_t am, int64_t ak, const void *b, int64_t bk, int64_t bn,
               void *c, int64_t M, int64_t N, int64_t K)
{
    dim3 grid(ceil_div(N, TILE), ceil_div(M, TILE)), block(TILE, TILE);
    product<<<grid, block, 0, gpu_stream()>>>((const T *)a, am, ak, (const T *)b, bk, bn, (C *)c, M,
                                              N, K);
    return cudaGetLastError();
}

template <typename T>
static int forward(const struct frame *f)
{
    const struct linear *a = ARGS(f, linear);
    int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D');
    return run<T, T>(a->x, C, 1, a->W, 1, C, a->y, M, D, C);
}

template <typename T>
static int backward(const struct frame *f)
{
    const struct linear *a = ARGS(f, linear), *g = GRADS(f, linear);
    int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D');
    int e = run<T, T>(g->y, D, 1, a->W, C, 1, g->x, M, C, D);
    return e ? e : run<T, float>(g->y, 1, D, a->x, C, 1, g->W, D, C, M);
}

/* The grid's second axis ends at 65535 tiles. */
static const char *declines(const struct frame *f)
{
    return ceil_div(DIM(f, 'M'), TILE) > 65535 || ceil_div(DIM(f, 'D'), TILE) > 65535
               ? "more than 1048560 rows of a matrix"
               : NULL;
}

GPU_KERNEL(linear, naive, "one thread an element of the result", NULL, declines);
