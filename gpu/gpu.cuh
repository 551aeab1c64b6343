/* gpu.cuh - for the files in gpu/: C with kernels, and templates on the
 * storage type T alone.  Arithmetic is always in float. */
#ifndef GPU_CUH
#define GPU_CUH

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include "gpu/emulate.h"
#endif

#include "common/op.h"

static inline __host__ __device__ int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline __device__ float load(const float *p)
{
    return *p;
}
static inline __device__ float load(const __nv_bfloat16 *p)
{
    return __bfloat162float(*p);
}
static inline __device__ void store(float *p, float x)
{
    *p = x;
}
static inline __device__ void store(__nv_bfloat16 *p, float x)
{
    *p = __float2bfloat16(x);
}

/* Where all kernels, copies and events go. */
cudaStream_t gpu_stream(void);

/* Leave the enclosing function with the code of a call that fails. */
#define CUDA(call)                                                                                 \
    do {                                                                                           \
        cudaError_t cuda_code = (call);                                                            \
        if (cuda_code != cudaSuccess)                                                              \
            return cuda_code;                                                                      \
    } while (0)

/* Export both instances of an operation's only kernel, as the lists that
 * table.c puts into its tables. */
#define GPU_KERNEL(op, kernel, idea, work, declines)                                               \
    static const struct impl kernel##32 = {                                                        \
        #kernel, idea, {forward<float>, backward<float>}, work, declines, NULL, 0};                \
    static const struct impl kernel##16 = {#kernel,                                                \
                                           idea,                                                   \
                                           {forward<__nv_bfloat16>, backward<__nv_bfloat16>},      \
                                           work,                                                   \
                                           declines,                                               \
                                           NULL,                                                   \
                                           0};                                                     \
    extern "C" const struct impl *const gpu32_##op[], *const gpu16_##op[];                         \
    const struct impl *const gpu32_##op[] = {&kernel##32, NULL};                                   \
    const struct impl *const gpu16_##op[] = {&kernel##16, NULL}

#endif
