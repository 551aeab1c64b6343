/* smem.cuh - addresses of shared memory as PTX takes them. */
#ifndef SMEM_CUH
#define SMEM_CUH

#include "gpu/gpu.cuh"

#ifdef __CUDACC__
static __device__ __forceinline__ unsigned smem_address(const void *at)
{
    return (unsigned)__cvta_generic_to_shared(at);
}
#endif

#endif
