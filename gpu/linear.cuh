/* linear.cuh - what the kernels of linear share: its activations. */
#ifndef LINEAR_CUH
#define LINEAR_CUH

#include "gpu/elementwise.cuh"
#include "common/ops/linear.h"

/* linear_product.cu */
extern "C" const struct impl linear_by_product32, linear_by_product16;

/* act(z) */
template <int ACT>
static __device__ __forceinline__ float activated(float z)
{
    return ACT == ACT_SILU ? z * sigmoid(z) : ACT == ACT_RELU && z <= 0 ? 0 : z;
}

/* dz of dy: silu's slope is at z + b, that of relu follows from `kept`, which is y; for silu `kept`
 * is z. */
template <int ACT>
static __device__ __forceinline__ float through_slope(float dy, float kept, float b)
{
    if (ACT == ACT_RELU)
        return kept <= 0 ? 0 : dy;
    const float z = kept + b, gate = sigmoid(z);
    return dy * gate * (1 + z * (1 - gate));
}

#endif
