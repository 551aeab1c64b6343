/* opaque.cuh - values that the optimiser knows nothing about: where registers are few, so that it
 * keeps nothing that it has computed from them before. */
#ifndef OPAQUE_CUH
#define OPAQUE_CUH

#include "gpu/gpu.cuh"

#ifdef __CUDACC__
/* threadIdx.x. */
static __device__ __forceinline__ int opaque_thread_index(void)
{
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

/* A vector in registers, from here on. */
static __device__ __forceinline__ void make_opaque(uint4 *v)
{
    asm volatile("" : "+r"(v->x), "+r"(v->y), "+r"(v->z), "+r"(v->w));
}
#else
static inline int opaque_thread_index(void)
{
    return threadIdx.x;
}
static inline void make_opaque(uint4 *) {}
#endif

#endif
