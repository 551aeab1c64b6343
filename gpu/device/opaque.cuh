/* opaque.cuh - values that are opaque to the optimiser.  Where registers are few, this makes it
 * compute an expression again instead of keeping it in a register. */
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

/* Makes the words of a vector in registers, or a number, opaque. */
static __device__ __forceinline__ void make_opaque(unsigned (&word)[4])
{
    asm volatile("" : "+r"(word[0]), "+r"(word[1]), "+r"(word[2]), "+r"(word[3]));
}
static __device__ __forceinline__ void make_opaque(int &x)
{
    asm volatile("" : "+r"(x));
}
#else
static inline int opaque_thread_index(void)
{
    return threadIdx.x;
}
static inline void make_opaque(unsigned (&)[4]) {}
static inline void make_opaque(int &) {}
#endif

#endif
