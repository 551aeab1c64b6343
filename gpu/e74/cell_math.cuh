/* cell_math.cuh - the output gate of e74_cell, and the normalisation of its keys:
 *
 *     out = y silu(y) = y^2 g,  dy = dout y g (2 + y (1 - g)),  g = sigmoid(y)
 *     k^ = r k,  dk = r dk^ - <k, dk^> r^2 / |k| k,  r = 1 / (|k| + eps) */
#ifndef CELL_MATH_CUH
#define CELL_MATH_CUH

#include "common/ops/e74.h"
#include "gpu/device/math.cuh"

/* g is sigmoid(y) or sigmoid_full(y). */
static __device__ __forceinline__ float gate_output(float y, float g)
{
    return y * y * g;
}

static __device__ __forceinline__ float gate_backward(float dout, float y, float g)
{
    return dout * y * g * fmaf(y, 1 - g, 2.0f);
}

/* r, where `length` is |k|. */
static __device__ __forceinline__ float key_scale(float length)
{
    return rcp_approx(length + (float)E74_EPSILON);
}

static __device__ __forceinline__ float key_scale_full(float length)
{
    return 1 / (length + (float)E74_EPSILON);
}

/* <k, dk^> r^2 / |k|; 0 where k is 0. */
static __device__ __forceinline__ float key_slope(float k_dot_dkhat, float length, float r)
{
    return length > 0 ? k_dot_dkhat * r * r / length : 0;
}

static __device__ __forceinline__ float key_backward(float dkhat, float k, float r, float slope)
{
    return fmaf(-slope, k, dkhat * r);
}

#endif
