/* smem.cuh - shared memory: its addresses for PTX, and an arena that lays out arrays in it. */
#ifndef SMEM_CUH
#define SMEM_CUH

#include "gpu/gpu.cuh"

#ifdef __CUDACC__
static __device__ __forceinline__ unsigned smem_address(const void *at)
{
    return (unsigned)__cvta_generic_to_shared(at);
}
#endif

/* Allocates arrays one after the other.  In a kernel they are at `base`; on the host base is
 * NULL, and only the bytes are counted.  One function serves both, so that they agree. */
struct smem_arena {
    unsigned char *base;
    int bytes;

    /* An alignment of 1: the array begins where the last one ends.  Use it if the sizes before are
     * multiples of 16 bytes but known only at run time: nvcc would round up at each use of the
     * address. */
    enum { PACKED = 1 };

    /* n elements at a multiple of `alignment` bytes, a power of two. */
    template <typename T>
    __host__ __device__ __forceinline__ T *alloc(int n, int alignment = 16)
    {
        bytes = (bytes + alignment - 1) & -alignment;
        const int at = append<T>(n);
#ifdef __CUDA_ARCH__
        return (T *)(base + at); /* nvcc does not know that base is not NULL */
#else
        return base ? (T *)(base + at) : NULL;
#endif
    }

    /* n elements right after the last array; returns their offset in bytes. */
    template <typename T>
    constexpr __host__ __device__ __forceinline__ int append(int n)
    {
        const int at = bytes;
        bytes += n * (int)sizeof(T);
        return at;
    }
};

/* The bytes that ALLOC(arena, arguments) allocates.  (ALLOC is a template argument, because g++ -O1
 * refuses to inline a call of a __forceinline__ function through a pointer.) */
template <auto ALLOC, typename... A>
static inline __host__ __device__ int arena_bytes(const A &...arguments)
{
    smem_arena smem = {NULL, 0};
    ALLOC(&smem, arguments...);
    return smem.bytes;
}

#endif
