/* launch.cuh - attributes of a launch that <<<>>> cannot set. */
#ifndef LAUNCH_CUH
#define LAUNCH_CUH

#include "gpu/gpu.cuh"

/* Lets a kernel have so many bytes of dynamic shared memory; up to gpu_limits()->smem. */
template <typename... P>
static inline cudaError_t allow_smem(void (*kernel)(P...), size_t bytes)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

#endif
