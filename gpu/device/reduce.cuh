/* reduce.cuh - sums and maxima over the lanes of a warp and over the threads of a block, in a fixed
 * order: every lane gets the same bits.  Called by whole warps. */
#ifndef REDUCE_CUH
#define REDUCE_CUH

#include "gpu/device/math.cuh"

/* Over the LANES lanes whose indices differ by multiples of STRIDE below LANES * STRIDE; both are
 * powers of two. */
template <int LANES = 32, int STRIDE = 1>
static __device__ __forceinline__ float warp_sum(float x)
{
    #pragma unroll 5
    for (int d = LANES / 2; d; d /= 2)
        x += __shfl_xor_sync(0xffffffff, x, d * STRIDE);
    return x;
}

/* Several sums at once: their shuffles overlap, so that they take little longer than one. */
template <int LANES = 32, int COUNT>
static __device__ __forceinline__ void warp_sums(float (&x)[COUNT])
{
    #pragma unroll 5
    for (int d = LANES / 2; d; d /= 2)
        #pragma unroll COUNT
        for (int i = 0; i < COUNT; i++)
            x[i] += __shfl_xor_sync(0xffffffff, x[i], d);
}

/* NaN if one of them is. */
template <int LANES = 32, int STRIDE = 1>
static __device__ __forceinline__ float warp_max(float x)
{
    #pragma unroll 5
    for (int d = LANES / 2; d; d /= 2)
        x = max_nan(x, __shfl_xor_sync(0xffffffff, x, d * STRIDE));
    return x;
}

/* The number of lanes, a power of two, is known at run time. */
static __device__ __forceinline__ float warp_sum(float x, int lanes)
{
    for (int d = lanes >> 1; d > 0; d >>= 1)
        x += __shfl_xor_sync(0xffffffff, x, d);
    return x;
}

/* The same for up to MAX lanes, without a loop. */
template <int MAX>
static __device__ __forceinline__ float warp_sum(float x, int lanes)
{
    #pragma unroll 5
    for (int d = MAX / 2; d; d /= 2)
        if (d < lanes)
            x += __shfl_xor_sync(0xffffffff, x, d);
    return x;
}

static __device__ __forceinline__ float warp_max(float x, int lanes)
{
    for (int d = lanes >> 1; d > 0; d >>= 1)
        x = max_nan(x, __shfl_xor_sync(0xffffffff, x, d));
    return x;
}

/* Sums each of COUNT values over the lanes that differ in bits HIGH to LOW; the lanes share the
 * sums: half as many values after each exchange.  Returns the index of the first sum of this
 * lane. */
template <int COUNT, int HIGH, int LOW>
static __device__ __forceinline__ int warp_reduce_scatter(float *x, int lane = threadIdx.x)
{
    if constexpr (HIGH < LOW) {
        return 0;
    } else if constexpr (COUNT == 1) {
        x[0] += __shfl_xor_sync(0xffffffff, x[0], HIGH);
        return warp_reduce_scatter<1, HIGH / 2, LOW>(x, lane);
    } else {
        const int half = COUNT / 2;
        const bool upper = lane & HIGH;
        for (int j = 0; j < half; j++) {
            const float sent = upper ? x[j] : x[half + j];
            const float kept = upper ? x[half + j] : x[j];
            x[j] = kept + __shfl_xor_sync(0xffffffff, sent, HIGH);
        }
        return (upper ? half : 0) + warp_reduce_scatter<half, HIGH / 2, LOW>(x, lane);
    }
}

/* Over a block of whole warps; `smem` is 32 floats that no other call uses until the next
 * barrier.  Trees over lanes and then over warps. */
static __device__ __forceinline__ float block_sum(float x, float *smem)
{
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0)
        smem[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? smem[threadIdx.x % 32] : 0);
}

static __device__ __forceinline__ float block_max(float x, float *smem)
{
    x = warp_max(x);
    if (threadIdx.x % 32 == 0)
        smem[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_max(smem[threadIdx.x % 32 < blockDim.x / 32 ? threadIdx.x % 32 : 0]);
}

#endif
