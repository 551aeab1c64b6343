/* smem.cuh - shared memory: its addresses as PTX takes them, and its layout. */
#ifndef SMEM_CUH
#define SMEM_CUH

#include "gpu/gpu.cuh"

#ifdef __CUDACC__
static __device__ __forceinline__ unsigned smem_address(const void *at)
{
    return (unsigned)__cvta_generic_to_shared(at);
}
#endif

/* Allocates arrays one after the other: in a kernel at `base`, on the host, where base is NULL, only
 * to count their bytes.  One function for both, so that they agree. */
struct smem_arena {
    unsigned char *base;
    int bytes;

    /* As an alignment: right after the array before.  Of sizes that are known only at run time nvcc
     * does not know that they are multiples of 16 bytes: it would round up wherever it computes an
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

/* The bytes of what ALLOC(arena, arguments) allocates.  (ALLOC is no pointer argument: a call of a
 * __forceinline__ function through a pointer is one that g++ -O1 refuses to inline.) */
template <auto ALLOC, typename... A>
static inline __host__ __device__ int arena_bytes(const A &...arguments)
{
    smem_arena smem = {NULL, 0};
    ALLOC(&smem, arguments...);
    return smem.bytes;
}

#endif
