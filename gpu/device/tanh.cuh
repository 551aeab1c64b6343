/* tanh.cuh - tanh as accurate as the storage type deserves. */
#ifndef TANH_CUH
#define TANH_CUH

#include "gpu/device/ptx.cuh"

/* tanh to some four units in the last place: a polynomial where |x| is small,
 * else from e^(-2|x|).  Both are computed, so that no threads part. */
static inline __device__ float tanh_full(float x)
{
    const float square = x * x, size = fabsf(x);
    float p = fmaf(1.643788442e-2f, square, -5.267196894e-2f);
    p = fmaf(p, square, 1.332072765e-1f);
    p = fmaf(p, square, -3.333294690e-1f);
    p = fmaf(x, p * square, x);
    float e = exp2_approx(-2.885390082f * size);
    float far = (1 - e) * reciprocal(1 + e);
    return size < 0.55f ? p : copysignf(far, x);
}

template <typename T>
static __device__ float bent(float x);
template <>
inline __device__ float bent<float>(float x)
{
    return tanh_full(x);
}
template <>
inline __device__ float bent<__nv_bfloat16>(float x)
{
    return tanh_approx(x);
}

#endif
