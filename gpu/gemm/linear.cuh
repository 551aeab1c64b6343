/* linear.cuh - the activations of linear, for all its kernels. */
#ifndef LINEAR_CUH
#define LINEAR_CUH

#include "common/ops/linear.h"
#include "gpu/device/math.cuh"

/* linear_product.cu, linear_fused.cu */
GPU_KERNEL_IN(linear_by_product);
extern const struct impl linear_fused; /* of bf16 */

/* The workspace of the backward pass, and its size: dz, unless dz is dy; the sums of dz's columns
 * over parts of the rows; and the sums of these sums over parts of them. */
template <typename T>
struct linear_workspace {
    T *dz;
    float *sums, *sums_of_sums;
    float *db;  /* before it is added to the gradient of b; or NULL */
    void *rest; /* behind all these */
    size_t bytes;
};
template <typename T>
linear_workspace<T> linear_workspace_of(const struct call *f);

/* Computes dz and db (linear_product.cu). */
template <typename T>
int linear_through(const struct call *f, const linear_workspace<T> &w);

/* act(z) */
template <int ACT>
static __device__ __forceinline__ float activated(float z)
{
    return ACT == ACT_SILU ? z * sigmoid(z) : ACT == ACT_RELU && z <= 0 ? 0 : z;
}

/* dz from dy.  The slope of silu is that at z + b, and `kept` is z; the slope of relu follows from
 * `kept`, which is y. */
template <int ACT>
static __device__ __forceinline__ float through_slope(float dy, float kept, float b)
{
    if (ACT == ACT_RELU)
        return kept <= 0 ? 0 : dy;
    const float z = kept + b, gate = sigmoid(z);
    return dy * gate * (1 + z * (1 - gate));
}

#endif
