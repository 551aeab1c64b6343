/* gemm_quantised.cuh - what the kernels of gemm_quantised share, and those that have files of their own. */
#ifndef GEMM_QUANTISED_CUH
#define GEMM_QUANTISED_CUH

#include "common/ops/gemm_quantised.h"
#include "gpu/gpu.cuh"

/* c [M,C] = a [M,D] B, of one matrix; B is W^T, or, in the backward pass, W. */
template <typename T>
struct products_of {
    const T *a;
    T *c;
    int64_t M, C, D;

    /* Go on to matrix l. */
    __device__ __forceinline__ void move_to(int64_t l)
    {
        a += l * M * D;
        c += l * M * C;
    }
};

template <typename T, pass P>
static products_of<T> products_of_pass(const struct call *f, int64_t l)
{
    const struct gemm_quantised *a = ARGS(f, gemm_quantised), *g = GRADS(f, gemm_quantised);
    const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');

    if (P == FORWARD)
        return {(const T *)a->x + l * M * K, (T *)a->y + l * M * N, M, N, K};
    return {(const T *)g->y + l * M * N, (T *)g->x + l * M * K, M, K, N};
}

/* go(products, W) of each matrix. */
template <typename T, pass P, typename Go>
static int each_matrix(const struct call *f, const Go &go)
{
    int e = 0;

    for (int64_t l = 0; !e && l < DIM(f, 'L'); l++)
        e = go(products_of_pass<T, P>(f, l), gemm_quantised_W(f, l, sizeof(float)));
    return e;
}

/* The backward pass of kernels for few rows, and its workspace (gemm_quantised_columns.cu). */
template <typename T>
int gemm_quantised_columns_backward(const struct call *f);
size_t gemm_quantised_columns_work(const struct call *f, enum pass p);

/* The same on tensor cores, with weights rounded to bf16. */
int gemm_quantised_mma_backward(const struct call *f);
size_t gemm_quantised_mma_work(const struct call *f, enum pass p);

/* Why kernels for few rows of x, whose threads take 32 weights of a row each, do not take the call;
 * NULL: they do. */
const char *gemm_quantised_no_spans(const struct call *f);

GPU_KERNEL_IN(gemm_quantised_warp);
GPU_KERNEL_IN(gemm_quantised_dp4a);
extern const struct impl gemm_quantised_mma; /* of bf16 */

#endif
