/* pdl.cuh - programmatic dependent launch: a kernel starts while the one before it still runs. */
#ifndef PDL_CUH
#define PDL_CUH

#include "gpu/gpu.cuh"

#ifdef __CUDACC__
/* griddepcontrol.wait: waits until the previous kernel has ended and its writes are visible.  A
 * kernel that launch_pdl() started must call it. */
static __device__ __forceinline__ void pdl_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* griddepcontrol.launch_dependents: when all blocks have called it, the next kernel may start. */
static __device__ __forceinline__ void pdl_launch_dependents(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
#else
static inline void pdl_wait(void) {}
static inline void pdl_launch_dependents(void) {}
#endif

/* Starts a kernel while the previous one still runs, if that calls pdl_launch_dependents().  Every
 * block of the new kernel must call pdl_wait() before it accesses memory that the previous kernel
 * reads or writes.  The previous kernel must itself have waited for the kernels before it. */
template <typename... P>
static inline cudaError_t launch_pdl(struct context *on, void (*kernel)(P...), unsigned blocks,
                                     unsigned threads, size_t shared, P... arguments)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = on->stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

#endif
