/* math.cuh - the approximate functions of the hardware for float, and tanh and the sigmoid computed
 * with them. */
#ifndef MATH_CUH
#define MATH_CUH

#include "gpu/gpu.cuh"

#define LOG2E 1.4426950408889634f /* e^x = 2^(LOG2E x) */

#ifdef __CUDACC__
static __device__ __forceinline__ float tanh_approx(float x)
{
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 2^x, with an error of at most two units in the last place. */
static __device__ __forceinline__ float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1/x, with an error of at most one unit in the last place. */
static __device__ __forceinline__ float rcp_approx(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The square root of x, with an error of at most one unit in the last place. */
static __device__ __forceinline__ float sqrt_approx(float x)
{
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
/* Rounded to the 11 bits that the instruction guarantees. */
static inline float tanh_approx(float x)
{
    unsigned u = emu_bits<unsigned>(tanhf(x));
    return x != x ? x : emu_bits<float>((u + 0xfff + (u >> 13 & 1)) & ~0x1fffu);
}

static inline float exp2_approx(float x)
{
    return exp2f(x);
}
static inline float rcp_approx(float x)
{
    return 1 / x;
}
static inline float sqrt_approx(float x)
{
    return sqrtf(x);
}
#endif

/* The maximum; NaN if one of them is NaN.  (fmaxf() would return the other one.) */
static __device__ __forceinline__ float max_nan(float x, float y)
{
#if __CUDA_ARCH__ >= 800
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(y));
    return x;
#else
    return x > y || x != x ? x : y;
#endif
}

/* The same for each of two pairs of bf16. */
static __device__ __forceinline__ unsigned max_nan_bf16x2(unsigned x, unsigned y)
{
#if __CUDA_ARCH__ >= 800
    asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(x) : "r"(y));
    return x;
#else
    const float low = max_nan(__uint_as_float(x << 16), __uint_as_float(y << 16));
    const float high = max_nan(__uint_as_float(x & 0xffff0000u), __uint_as_float(y & 0xffff0000u));
    return __float_as_uint(high) | __float_as_uint(low) >> 16;
#endif
}

/* ---- tanh ---- */

/* tanh with an error of about four units in the last place: a polynomial where |x| is small,
 * else from e^(-2|x|).  Both are computed, so that threads do not diverge. */
static inline __device__ float tanh_full(float x)
{
    const float square = x * x, size = fabsf(x);
    float p = fmaf(1.643788442e-2f, square, -5.267196894e-2f);
    p = fmaf(p, square, 1.332072765e-1f);
    p = fmaf(p, square, -3.333294690e-1f);
    p = fmaf(x, p * square, x);
    float e = exp2_approx(-2 * LOG2E * size);
    float far = (1 - e) * rcp_approx(1 + e);
    return size < 0.55f ? p : copysignf(far, x);
}

template <typename T>
static __device__ float tanh_for(float x);
template <>
inline __device__ float tanh_for<float>(float x)
{
    return tanh_full(x);
}
template <>
inline __device__ float tanh_for<__nv_bfloat16>(float x)
{
    return tanh_approx(x);
}

/* ---- sigmoid: 1 / (1 + exp(-x)) ---- */

static inline __device__ float sigmoid_full(float x)
{
    return 1 / (1 + expf(-x));
}

/* Computed with ex2.approx and rcp.approx: the accurate functions have so many instructions that
 * bf16 kernels would be bound by them, not by memory. */
static __device__ __forceinline__ float sigmoid(float x)
{
    return rcp_approx(1 + exp2_approx(-LOG2E * x));
}
#define SIGMOID "ex2.approx, rcp.approx"
#define SIGMOID_UNIT 3e-7

#endif
