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
     * cannot tell that they are multiples of 16 bytes: it would round up wherever it computes an
     * address. */
    enum { PACKED = 1 };

    /* n elements at a multiple of `alignment` bytes, a power of two. */
    template <typename T>
    __host__ __device__ __forceinline__ T *alloc(int64_t n, int alignment = 16)
    {
        bytes = (bytes + alignment - 1) & -alignment;
#ifdef __CUDA_ARCH__
        T *const at = (T *)(base + bytes); /* nvcc does not know that base is not NULL */
#else
        T *const at = base ? (T *)(base + bytes) : NULL;
#endif
        bytes += (int)(n * (int64_t)sizeof(T));
        return at;
    }
};

#endif
