/* async.cuh - cp.async: asynchronous copies from global to shared memory, and prefetches into
 * L2. */
#ifndef ASYNC_CUH
#define ASYNC_CUH

#include "gpu/device/smem.cuh"

#ifdef __CUDACC__
/* cp.async of 16 bytes from global to shared memory, both aligned to 16.  `given` is 16, or 0:
 * nothing is read, and zeros written.  Part of 16 bytes is for load_beginning() (segment.cuh):
 * memcheck takes a cp.async that is given 8 bytes for a read of 16. */
static __device__ __forceinline__ void cp_async16(void *to, const void *from, int given = 16)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_address(to)), "l"(from),
                 "r"(given)
                 : "memory");
}
static __device__ __forceinline__ void cp_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int left>
static __device__ __forceinline__ void cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

/* Prefetches the cache line at `at` into L2. */
static __device__ __forceinline__ void prefetch_l2(const void *at)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}
#else
static inline void cp_async16(void *to, const void *from, int given = 16)
{
    emu_copy_later(to, from, 16, given);
}
static inline void cp_async_commit(void)
{
    emu_copy_commit();
}
template <int left>
static inline void cp_async_wait(void)
{
    emu_copy_wait(left);
}

static inline void prefetch_l2(const void *) {}
#endif

#endif
