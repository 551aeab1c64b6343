/* gemm_wgmma.cuh - the products of bf16 by gemm's kernel wgmma, for layers. */
#ifndef GEMM_WGMMA_CUH
#define GEMM_WGMMA_CUH

#include "gpu/gemm/gemm.cuh"

/* Of one product: bytes of workspace; and NULL, or why the kernel declines it. */
template <typename C>
size_t gemm_wgmma_workspace(const gemm_problem<__nv_bfloat16, C> &p);
template <typename C>
const char *gemm_wgmma_declines(const gemm_problem<__nv_bfloat16, C> &p);

/* p.c = act(a b + bias), b stored transposed; bias may be NULL; for silu z = a b.  Without slices
 * of k, and so without workspace. */
int gemm_wgmma_layer(const gemm_problem<__nv_bfloat16> &p, int act, const __nv_bfloat16 *bias,
                     __nv_bfloat16 *z);

/* Both products: to_x with nothing transposed, to_W with a transposed. */
int gemm_wgmma_layer_back(const gemm_problem<__nv_bfloat16> &to_x,
                          const gemm_problem<__nv_bfloat16, float> &to_W);

#endif
