/* gemm_pairs.cuh - for gemm's kernels of tensor cores: two neighbours of a row of c at once, of
 * either type. */
#ifndef GEMM_PAIRS_CUH
#define GEMM_PAIRS_CUH

#include "gpu/device/fragment.cuh"

static __device__ __forceinline__ void put_pair(bf16 *to, float first, float second)
{
    *(unsigned *)to = pack_bf16x2(first, second);
}
static __device__ __forceinline__ void put_pair(float *to, float first, float second)
{
    *(float2 *)to = make_float2(first, second);
}

static __device__ __forceinline__ float2 get_pair(const bf16 *from)
{
    const unsigned both = *(const unsigned *)from;
    return make_float2(low_of_pair(both), high_of_pair(both));
}
static __device__ __forceinline__ float2 get_pair(const float *from)
{
    return *(const float2 *)from;
}

#endif
