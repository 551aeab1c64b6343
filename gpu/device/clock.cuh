/* clock.cuh - the time in a kernel, in nanoseconds: %globaltimer. */
#ifndef CLOCK_CUH
#define CLOCK_CUH

#include "gpu/gpu.cuh"

#ifdef __CUDACC__
static __device__ __forceinline__ int64_t globaltimer_ns(void)
{
    int64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}
#else
static inline int64_t globaltimer_ns(void)
{
    return clock64();
}
#endif

#endif
