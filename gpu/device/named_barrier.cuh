/* named_barrier.cuh - barriers of some warps of a block, and setmaxnreg, which moves registers
 * between warpgroups. */
#ifndef NAMED_BARRIER_CUH
#define NAMED_BARRIER_CUH

#include "gpu/gpu.cuh"

#ifdef __CUDACC__
/* A barrier of all threads of the block; the warps may be at different places in the code. */
static __device__ __forceinline__ void block_barrier(void)
{
    asm volatile("barrier.sync 0;" ::: "memory");
}

/* bar.sync and bar.arrive: a barrier, 1 to 15, of `threads` threads of the block in whole
 * warps.  Some warps wait, and others only arrive.  A thread that has waited reads the values
 * that all of them wrote before. */
static __device__ __forceinline__ void named_barrier_sync(int barrier, int threads)
{
    asm volatile("barrier.sync.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
static __device__ __forceinline__ void named_barrier_arrive(int barrier, int threads)
{
    asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* setmaxnreg, called by all warps of a warpgroup: they have REGISTERS registers per thread from
 * here on.  First some warpgroups release registers, then others can take them. */
template <int REGISTERS>
static __device__ __forceinline__ void setmaxnreg_dec(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#endif
}
template <int REGISTERS>
static __device__ __forceinline__ void setmaxnreg_inc(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#endif
}
#else
static inline void block_barrier(void)
{
    __syncthreads();
}

static inline void named_barrier_sync(int barrier, int threads, EMU_HERE)
{
    emu_barrier(barrier, threads, true, "named_barrier_sync", here);
}
static inline void named_barrier_arrive(int barrier, int threads, EMU_HERE)
{
    emu_barrier(barrier, threads, false, "named_barrier_arrive", here);
}
template <int>
static inline void setmaxnreg_dec(void)
{
}
template <int>
static inline void setmaxnreg_inc(void)
{
}
#endif

/* A barrier of WARPS neighbouring warps: the warps of the block are divided into groups of
 * WARPS. */
template <int WARPS>
static __device__ __forceinline__ void warps_sync(void)
{
    named_barrier_sync((int)threadIdx.x / (32 * WARPS) + 1, 32 * WARPS);
}

#endif
