/* gemm_wgmma.cuh - what layers take of gemm's kernel wgmma: its products of bf16. */
#ifndef GEMM_WGMMA_CUH
#define GEMM_WGMMA_CUH

#include "gpu/gemm/gemm.cuh"

/* Of one product: bytes of room, and NULL or why it cannot be. */
template <typename C>
size_t gemm_wgmma_workspace(const gemm_problem<__nv_bfloat16, C> &p);
template <typename C>
const char *gemm_wgmma_declines(const gemm_problem<__nv_bfloat16, C> &p);

/* p.c = act(a b + bias), b being flipped; bias may be NULL; for silu a b goes to z.  Without slices
 * of k, and so without room. */
int gemm_wgmma_layer(const gemm_problem<__nv_bfloat16> &p, int act, const __nv_bfloat16 *bias,
                     __nv_bfloat16 *z);

/* Both: to_x of nothing flipped, to_W of a flipped. */
int gemm_wgmma_layer_back(const gemm_problem<__nv_bfloat16> &to_x,
                          const gemm_problem<__nv_bfloat16, float> &to_W);

#endif
