/* gemm_wgmma.cuh - the products of bf16 by gemm's kernel wgmma, for layers. */
#ifndef GEMM_WGMMA_CUH
#define GEMM_WGMMA_CUH

#include "gpu/gemm/gemm.cuh"

/* Asks what a context keeps of its device, which is the thread's, before a pass does. */
void wgmma_prepare(struct context *on);

/* One product's bytes of workspace; and NULL, or the reason why the kernel declines it. */
template <typename C>
size_t gemm_wgmma_workspace(struct context *on, const gemm_problem<__nv_bfloat16, C> &p);
template <typename C>
const char *gemm_wgmma_declines(struct context *on, const gemm_problem<__nv_bfloat16, C> &p);

/* p.c = act(a b + bias), where b is stored transposed and bias may be NULL; for silu also z = a b.
 * k is not split into slices, so no workspace is needed. */
int gemm_wgmma_layer(struct context *on, const gemm_problem<__nv_bfloat16> &p, int act,
                     const __nv_bfloat16 *bias, __nv_bfloat16 *z);

/* Computes both products: to_x, with no operand transposed, and to_W, with a transposed. */
int gemm_wgmma_layer_back(struct context *on, const gemm_problem<__nv_bfloat16> &to_x,
                          const gemm_problem<__nv_bfloat16, float> &to_W);

#endif
