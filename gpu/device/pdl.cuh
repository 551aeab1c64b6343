/* pdl.cuh - programmatic dependent launch: a kernel starts while the one before it still runs. */
#ifndef PDL_CUH
#define PDL_CUH

#include "gpu/gpu.cuh"

#ifdef __CUDACC__
/* Until the kernel before this one has written all that it writes; needed where launch_pdl() has
 * started this one. */
static __device__ __forceinline__ void pdl_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* When all blocks have called it, the next kernel's blocks may start beside them. */
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

/* Start a kernel while the one before it still runs, if that has called
 * pdl_launch_dependents(): it must call pdl_wait(), in every block, before it
 * touches what that one reads or writes.  The one before it must itself have
 * waited for those before it. */
template <typename... P>
static inline cudaError_t launch_pdl(void (*kernel)(P...), unsigned blocks, unsigned threads,
                                     size_t shared, P... arguments)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = gpu_stream();
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

#endif
