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

    /* n elements at a multiple of `alignment` bytes, a power of two. */
    template <typename T>
    __host__ __device__ __forceinline__ T *alloc(int64_t n, int alignment = 16)
    {
        bytes = (bytes + alignment - 1) & -alignment;
#ifdef __CUDA_ARCH__
        T *const at = (T *)(base + bytes);
#else
        T *const at = base ? (T *)(base + bytes) : NULL;
#endif
        bytes += (int)(n * (int64_t)sizeof(T));
        return at;
    }
};

/* The bytes of what alloc(arena, arguments) allocates. */
template <typename F, typename... A>
static inline __host__ __device__ int arena_bytes(F *alloc, const A &...arguments)
{
    smem_arena smem = {NULL, 0};
    alloc(&smem, arguments...);
    return smem.bytes;
}

#endif
