/* rounded.cuh - float in which each operation is rounded, as it is written: no product and sum become
 * one FMA.  For results that must have the same bits everywhere. */
#ifndef ROUNDED_CUH
#define ROUNDED_CUH

#include "gpu/gpu.cuh"

struct rounded {
    float x;

    rounded() = default;
    __device__ __forceinline__ rounded(float x_) : x(x_) {}
};

static __device__ __forceinline__ rounded operator+(rounded a, rounded b)
{
    return __fadd_rn(a.x, b.x);
}
static __device__ __forceinline__ rounded operator-(rounded a, rounded b)
{
    return __fadd_rn(a.x, -b.x);
}
static __device__ __forceinline__ rounded operator*(rounded a, rounded b)
{
    return __fmul_rn(a.x, b.x);
}
static __device__ __forceinline__ rounded operator/(rounded a, rounded b)
{
    return a.x / b.x;
}

/* The sum of N = 2^k values, pairwise: neighbours, then pairs of neighbours. */
template <int N>
static __device__ __forceinline__ rounded pairwise(rounded (&t)[N])
{
    #pragma unroll
    for (int at = 1; at < N; at *= 2)
        #pragma unroll
        for (int i = 0; i < N; i += 2 * at)
            t[i] = t[i] + t[i + at];
    return t[0];
}

/* The same over lanes that differ in the bits FROM ... TO/2 of their indices. */
template <int FROM, int TO>
static __device__ __forceinline__ rounded pairwise_lanes(rounded t)
{
    #pragma unroll
    for (int at = FROM; at < TO; at *= 2)
        t = t + rounded(__shfl_xor_sync(0xffffffff, t.x, at));
    return t;
}

/* Of lanes that differ in the bits FROM ... TO/2, the first x of largest magnitude. */
template <int FROM, int TO>
static __device__ __forceinline__ float first_largest(float x, int lane)
{
    #pragma unroll
    for (int at = FROM; at < TO; at *= 2) {
        const float other = __shfl_xor_sync(0xffffffff, x, at);
        const float low = lane & at ? other : x, high = lane & at ? x : other;
        x = fabsf(high) > fabsf(low) ? high : low;
    }
    return x;
}

#endif
