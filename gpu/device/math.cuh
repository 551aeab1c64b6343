/* math.cuh - the approximate functions of the hardware for float, and tanh and the sigmoid computed
 * with them. */
#ifndef MATH_CUH
#define MATH_CUH

#include "gpu/gpu.cuh"

#define LOG2E 1.4426950408889634f /* e^x = 2^(LOG2E x) */

/* A function of x by one instruction; and in the emulation. */
#ifdef __CUDACC__
#define APPROXIMATE(name, instruction, emulated)                                                   \
    static __device__ __forceinline__ float name(float x)                                          \
    {                                                                                              \
        float y;                                                                                   \
        asm(instruction " %0, %1;" : "=f"(y) : "f"(x));                                            \
        return y;                                                                                  \
    }
#else
#define APPROXIMATE(name, instruction, emulated)                                                   \
    static inline float name(float x)                                                              \
    {                                                                                              \
        return emulated;                                                                           \
    }
/* Rounded to the 11 bits that the instruction guarantees. */
static inline float emu_tanh(float x)
{
    unsigned u = emu_bits<unsigned>(tanhf(x));
    return x != x ? x : emu_bits<float>((u + 0xfff + (u >> 13 & 1)) & ~0x1fffu);
}
#endif
/* The errors: of 2^x at most two units in the last place, of 1/x and the root at most one. */
APPROXIMATE(tanh_approx, "tanh.approx.f32", emu_tanh(x))
APPROXIMATE(exp2_approx, "ex2.approx.ftz.f32", exp2f(x))
APPROXIMATE(rcp_approx, "rcp.approx.ftz.f32", 1 / x)
APPROXIMATE(sqrt_approx, "sqrt.approx.ftz.f32", sqrtf(x))

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

/* ---- softmax ---- */

/* e^(factor (x - top)), where scale = factor / ln 2; exactly 1 if x = top, the maximum. */
static __device__ __forceinline__ float power(float x, float top, float scale)
{
    return exp2_approx(scale * (x - top));
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

/* As exact as the storage type needs; of its approximate instructions the names, and the relative
 * error. */
template <typename T>
static __device__ float tanh_for(float x);
template <typename T>
struct tanh_of;

template <>
inline __device__ float tanh_for<float>(float x)
{
    return tanh_full(x);
}
template <>
struct tanh_of<float> {
    static constexpr const char *APPROXIMATES = "ex2.approx, rcp.approx";
    static constexpr double UNIT = 3e-7;
};

template <>
inline __device__ float tanh_for<__nv_bfloat16>(float x)
{
    return tanh_approx(x);
}
template <>
struct tanh_of<__nv_bfloat16> {
    static constexpr const char *APPROXIMATES = "tanh.approx";
    static constexpr double UNIT = 5e-4;
};

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
