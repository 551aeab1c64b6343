/* named_barrier.cuh - barriers of some of a block's warps, and registers that warps hand to each
 * other. */
#ifndef NAMED_BARRIER_CUH
#define NAMED_BARRIER_CUH

#include "gpu/gpu.cuh"

#ifdef __CUDACC__
/* A barrier of the block's threads, each warp from wherever in the code it is. */
static __device__ __forceinline__ void block_barrier(void)
{
    asm volatile("barrier.sync 0;" ::: "memory");
}

/* One of a block's other barriers, 1 to 15, for so many of its threads: by whole warps, of which
 * some wait for all, and some only arrive.  A thread that waits then
 * reads the values that all have written before. */
static __device__ __forceinline__ void named_barrier_sync(int barrier, int threads)
{
    asm volatile("barrier.sync.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
static __device__ __forceinline__ void named_barrier_arrive(int barrier, int threads)
{
    asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* By a warpgroup: as many registers per thread from here on.  They are moved among a block's
 * warps: first some release registers, then others take them. */
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

/* A barrier of the WARPS neighbouring warps that the caller is of, where the block's are divided
 * into groups of so many. */
template <int WARPS>
static __device__ __forceinline__ void warps_sync(void)
{
    named_barrier_sync((int)threadIdx.x / (32 * WARPS) + 1, 32 * WARPS);
}

#endif
