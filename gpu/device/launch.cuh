/* launch.cuh - attributes of a launch that <<<>>> cannot set. */
#ifndef LAUNCH_CUH
#define LAUNCH_CUH

#include "gpu/gpu.cuh"

/* Sets the maximum dynamic shared memory of a kernel, in bytes; at most limits.smem of the context. */
template <typename... P>
static inline cudaError_t allow_smem(void (*kernel)(P...), size_t bytes)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

#endif
