/* gpu.cuh - common to the files in gpu/: loads and stores that convert between the storage type T
 * and float, in which all arithmetic is done; the stream; the tables of kernels. */
#ifndef GPU_CUH
#define GPU_CUH

#ifdef __CUDACC__
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include "gpu/emulate/emulate.h"
#endif

#include "gpu/context.cuh"
#include "gpu/storage.cuh"

static inline __host__ __device__ int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* (Float has functions of its own: through storage<float> a kernel of 64 slots has other registers.) */
static inline __device__ float load(const float *p)
{
    return *p;
}
static inline __device__ void store(float *p, float x)
{
    *p = x;
}
template <typename T>
static inline __device__ float load(const T *p)
{
    return storage<T>::widen(*p);
}
template <typename T>
static inline __device__ void store(T *p, float x)
{
    *p = storage<T>::narrow(x);
}
static inline __device__ void store(__half *p, float x)
{
    *p = __float2half(x);
}

/* Stores and loads an element of a tensor whose storage type is a run-time parameter, like
 * checkpoint_dtype. */
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

/* n elements of a workspace (common/call/call.h). */
template <typename T>
static inline T *take(work_arena *a, int64_t n)
{
    return (T *)work_take(a, n * sizeof(T));
}

/* Measures the ceilings of the device (probe.cu). */
int gpu_probe(struct context *x, struct ceilings *to);

/* Copies to the host, as doubles, the elements of a tensor that the call cut along these axes has
 * (gather.cu). */
struct sample;
int gpu_gather(const struct call *whole, const struct sample *s, const char *axes, int arg,
               int grad, double *few);

/* The value of a macro, as text. */
#define TEXT(number) #number
#define NUMBER(macro) TEXT(macro)

/* Returns from the enclosing function with the code of a call that fails. */
#define CUDA(call)                                                                                 \
    do {                                                                                           \
        const auto cuda_code = (call); /* cudaError_t, or an int that gpu/machine.cu knows */      \
        if (cuda_code)                                                                             \
            return cuda_code;                                                                      \
    } while (0)

/* Sums of bf16 products on tensor cores lose so much of themselves at each term that they add, of 2048 terms some 64 to 85
 * units of float: as measured by cuBLAS 31 in large products of random numbers (H100), 60 to 130 in a gradient of 16 x 32 (H200:
 * a step of 8 terms at a time is cut by half a unit), by wgmma in chunks 7. */
#define CUT_OFF 0x1p-28

/* Exports the list of an operation's kernels, of all types, for table.c; those of a type best first.
 * All but those of IN_TYPES() have a comma behind them: GPU_KERNELS(gemm, &fast, IN_TYPES(plain)). */
#define GPU_KERNELS(op, ...)                                                                       \
    extern "C" const struct impl *const gpu_##op[];                                                \
    const struct impl *const gpu_##op[] = {__VA_ARGS__ NULL}

/* Those that GPU_KERNEL() defined. */
#define IN_TYPES(kernel) GPU_TYPES(LISTED, kernel)
#define LISTED(T, kernel) &kernel##_impl<T>,

/* Defines KERNEL_impl<T>, a kernel for each type; the members of struct impl from `idea` on follow, by
 * name. */
#define GPU_KERNEL(kernel_, ...)                                                                   \
    template <typename T>                                                                          \
    static const struct impl kernel_##_impl = {                                                    \
        .name = #kernel_, .type = storage<T>::TYPE, __VA_ARGS__}
/* The same of one for T alone, with a name of its own for a list in another file. */
#define GPU_KERNEL_FOR(T, variable, kernel_, ...)                                                  \
    const struct impl variable = {.name = #kernel_, .type = storage<T>::TYPE, __VA_ARGS__}
/* The same of one for each type, for such a list: OWNER<T>::kernel, which GPU_KERNEL_IN() declares. */
#define GPU_KERNEL_IN(owner)                                                                       \
    template <typename T>                                                                          \
    struct owner {                                                                                 \
        static const struct impl kernel;                                                           \
    }
#define GPU_KERNEL_OF(owner, kernel_, ...)                                                         \
    template <typename T>                                                                          \
    const struct impl owner<T>::kernel = {                                                         \
        .name = #kernel_, .type = storage<T>::TYPE, __VA_ARGS__                                    \
    };                                                                                             \
    GPU_INSTANCES(owner)
#define GPU_INSTANCES(owner) GPU_TYPES(GPU_INSTANCE, owner)
#define GPU_INSTANCE(T, owner) template struct owner<T>;

#endif
