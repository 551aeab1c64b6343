/* gpu.cuh - common to the files in gpu/: loads and stores that convert between the storage type T
 * and float, in which all arithmetic is done; the stream; the tables of kernels. */
#ifndef GPU_CUH
#define GPU_CUH

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include "gpu/emulate/emulate.h"
#endif

#include "gpu/context.cuh"

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
static inline __device__ void store(__half *p, float x)
{
    *p = __float2half(x);
}
static inline __device__ void store(__nv_bfloat16 *p, float x)
{
    *p = __float2bfloat16(x);
}

/* Stores and loads an element of a tensor whose storage type is a run-time parameter, like
 * checkpoint_dtype. */
enum { KEPT_F32, KEPT_BF16, KEPT_F16 };

static inline __device__ void put_kept(int kept, void *at, int64_t i, float x)
{
    if (kept == KEPT_F32)
        ((float *)at)[i] = x;
    else if (kept == KEPT_BF16)
        ((__nv_bfloat16 *)at)[i] = __float2bfloat16(x);
    else
        ((__half *)at)[i] = __float2half(x);
}

static inline __device__ float get_kept(int kept, const void *at, int64_t i)
{
    if (kept == KEPT_F32)
        return ((const float *)at)[i];
    if (kept == KEPT_BF16)
        return __bfloat162float(((const __nv_bfloat16 *)at)[i]);
    return __half2float(((const __half *)at)[i]);
}

/* Measures the ceilings of the device (probe.cu). */
int gpu_probe(struct context *x, struct ceilings *to);

/* The value of a macro, as text. */
#define TEXT(number) #number
#define NUMBER(macro) TEXT(macro)

/* Returns from the enclosing function with the code of a call that fails. */
#define CUDA(call)                                                                                 \
    do {                                                                                           \
        cudaError_t cuda_code = (call);                                                            \
        if (cuda_code != cudaSuccess)                                                              \
            return cuda_code;                                                                      \
    } while (0)

/* Defines the struct impl for one storage type, kernel32 or kernel16; `linkage` is static or extern
 * "C". */
#define GPU_IMPL(linkage, bits, T, kernel, name, idea, work, declines, approximates, unit)         \
    linkage const struct impl kernel##bits = {                                                     \
        name, idea, {forward<T>, backward<T>}, work, declines, approximates, unit, 0, NULL}

/* Exports the list of an operation's kernels, best first, for table.c. */
#define GPU_KERNEL_LIST(op, type, ...)                                                             \
    extern "C" const struct impl *const gpu##type##_##op[];                                        \
    const struct impl *const gpu##type##_##op[] = {__VA_ARGS__, NULL}

/* Defines and exports an operation's only kernel. */
#define GPU_KERNEL(op, kernel, idea, work, declines)                                               \
    GPU_IMPL(static, 32, float, kernel, #kernel, idea, work, declines, NULL, 0);                   \
    GPU_IMPL(static, 16, __nv_bfloat16, kernel, #kernel, idea, work, declines, NULL, 0);           \
    GPU_KERNEL_LIST(op, 32, &kernel##32);                                                          \
    GPU_KERNEL_LIST(op, 16, &kernel##16)

#endif
