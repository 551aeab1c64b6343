/* storage.cuh - the types in which a GPU stores tensors.
 *
 * A further one is a specialisation of storage<T> and a line of GPU_TYPES().  There is no storage of
 * another type: the compiler stops at each place that would need one. */
#ifndef STORAGE_CUH
#define STORAGE_CUH

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#else
#include "gpu/emulate/emulate.h"
#endif

#include <stddef.h>
#include <string.h>

#include "common/base/types.h"

/* The types of a tensor whose storage type is a run-time parameter, like checkpoint_dtype. */
enum { KEPT_F32, KEPT_BF16, KEPT_F16 };

/* A bf16 is the upper half of a float; the first of two is the lower half of a word. */
static __device__ __forceinline__ float low_of_pair(unsigned both)
{
    return __uint_as_float(both << 16);
}

static __device__ __forceinline__ float high_of_pair(unsigned both)
{
    return __uint_as_float(both & 0xffff0000);
}

static __device__ __forceinline__ unsigned pack_bf16x2(float first, float second)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
    unsigned word;
    memcpy(&word, &both, sizeof word);
    return word;
}

/* Of T:
 *
 *     TYPE, KEPT      that of its backend; and as above
 *     PER_WORD        elements in a word of 32 bits, the first in its lower bits
 *     UNIT            relative error of narrow(); 0: it rounds nothing
 *     WEIGHTS_ROUNDED what a kernel declares that rounds weights to T; NULL: nothing
 *     widen, narrow   to float, and to T
 *     element(w, i)   element i of the word w, as a float; a third argument is 16, for callers who do
 *                     not want the compiler to know it
 *     word(i, x)      word i of the elements x(0), x(1), ...
 *     full(x)         a word whose elements are all x, which T must represent exactly */
template <typename T>
struct storage;

template <>
struct storage<float> {
    static constexpr enum dtype TYPE = F32;
    enum { KEPT = KEPT_F32, PER_WORD = 1 };
    static constexpr double UNIT = 0;
    static constexpr const char *WEIGHTS_ROUNDED = NULL;

    static __device__ __forceinline__ float widen(float x) { return x; }
    static __device__ __forceinline__ float narrow(float x) { return x; }
    static __device__ __forceinline__ float element(unsigned w, int, int = 16)
    {
        return __uint_as_float(w);
    }
    template <typename F>
    static __device__ __forceinline__ unsigned word(int i, const F &x)
    {
        return __float_as_uint(x(i));
    }
    static __device__ __forceinline__ unsigned full(float x) { return __float_as_uint(x); }
};

template <>
struct storage<__nv_bfloat16> {
    static constexpr enum dtype TYPE = BF16;
    enum { KEPT = KEPT_BF16, PER_WORD = 2 };
    static constexpr double UNIT = 0x1p-8;
    static constexpr const char *WEIGHTS_ROUNDED = "weights rounded to bf16";

    static __device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
    static __device__ __forceinline__ __nv_bfloat16 narrow(float x) { return __float2bfloat16(x); }
    static __device__ __forceinline__ float element(unsigned w, int i, int half = 16)
    {
        return __uint_as_float(i ? w & ~0u << half : w << half);
    }
    template <typename F>
    static __device__ __forceinline__ unsigned word(int i, const F &x)
    {
        return pack_bf16x2(x(2 * i), x(2 * i + 1));
    }
    static __device__ __forceinline__ unsigned full(float x)
    {
        return __float_as_uint(x) | __float_as_uint(x) >> 16;
    }
};

/* DO(float, ...) DO(__nv_bfloat16, ...): once for each; or for those that are narrower than float. */
#define GPU_TYPES(DO, ...) DO(float, ##__VA_ARGS__) GPU_NARROW_TYPES(DO, ##__VA_ARGS__)
#define GPU_NARROW_TYPES(DO, ...) DO(__nv_bfloat16, ##__VA_ARGS__)

#endif
