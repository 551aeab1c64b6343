/* softmax.cuh - rows in registers as 16-byte vectors, and reductions of them over lanes or over a
 * block: maximum, sum, dot product, and the online sum of exp(x - max).
 *
 * Which thread has an element depends on the element's column alone and not on where in memory the
 * row begins, so that a row gives the same bits wherever it stands. */
#ifndef SOFTMAX_CUH
#define SOFTMAX_CUH

#include "gpu/device/math.cuh"
#include "gpu/device/reduce.cuh"

#include <string.h>

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

/* ---- vectors ---- */

template <typename T>
struct vector_of {
    enum { SIZE = 16 / sizeof(T) };
};

static __device__ __forceinline__ unsigned word(const uint4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* Element i of a vector. */
template <typename T>
static __device__ __forceinline__ float element(const uint4 &v, int i);
template <>
__device__ __forceinline__ float element<float>(const uint4 &v, int i)
{
    return __uint_as_float(word(v, i));
}
template <>
__device__ __forceinline__ float element<__nv_bfloat16>(const uint4 &v, int i)
{
    const unsigned pair = word(v, i / 2);
    return __uint_as_float(i % 2 ? pair & 0xffff0000u : pair << 16);
}

static __device__ __forceinline__ unsigned bf16_pair(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    unsigned bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

/* The vector whose element i is x(i). */
template <typename T, typename F>
static __device__ __forceinline__ uint4 vector_from(const F &x)
{
    if (sizeof(T) == 4)
        return make_uint4(__float_as_uint(x(0)), __float_as_uint(x(1)), __float_as_uint(x(2)),
                          __float_as_uint(x(3)));
    return make_uint4(bf16_pair(x(0), x(1)), bf16_pair(x(2), x(3)), bf16_pair(x(4), x(5)),
                      bf16_pair(x(6), x(7)));
}

/* A vector of `fill` in all elements; T must represent `fill` exactly. */
template <typename T>
static __device__ __forceinline__ uint4 vector_full(float fill)
{
    const unsigned bits = __float_as_uint(fill);
    const unsigned all = sizeof(T) == 4 ? bits : bits | bits >> 16;
    return make_uint4(all, all, all, all);
}

/* ---- rows ---- */

/* Do rows of n elements consist of whole vectors? */
template <typename T>
static inline bool whole(int64_t n)
{
    return n % vector_of<T>::SIZE == 0;
}

template <typename T>
static inline int64_t vectors_of(int64_t n)
{
    return ceil_div(n, vector_of<T>::SIZE);
}

/* Loads the part of `lane` of a row of n elements, from the row's vector `first` on: K vectors
 * with a stride of `lanes`, or, unless WHOLE_ROWS, as many single elements with that stride.
 * All loads are in flight at once; elements beyond the end are `fill`. */
template <bool WHOLE_ROWS, typename T, int K>
static __device__ __forceinline__ void load_vectors(uint4 (&v)[K], const T *row, int n, int first,
                                                    int lane, int lanes, float fill)
{
    enum { SIZE = vector_of<T>::SIZE };

    #pragma unroll K
    for (int k = 0; k < K; k++) {
        const int vector = first + lane + k * lanes;
        if (WHOLE_ROWS)
            v[k] = vector * SIZE < n ? ((const uint4 *)row)[vector] : vector_full<T>(fill);
        else
            v[k] = vector_from<T>([&](int i) {
                const int j = first * SIZE + lane + (k * SIZE + i) * lanes;
                return j < n ? load(row + j) : fill;
            });
    }
}

/* Stores to the same places; element i of the k-th vector is x(k, i). */
template <bool WHOLE_ROWS, int K, typename T, typename F>
static __device__ __forceinline__ void store_vectors(T *row, int n, int first, int lane, int lanes,
                                                     const F &x)
{
    enum { SIZE = vector_of<T>::SIZE };

    #pragma unroll K
    for (int k = 0; k < K; k++) {
        const int vector = first + lane + k * lanes;
        if (WHOLE_ROWS && vector * SIZE < n)
            ((uint4 *)row)[vector] = vector_from<T>([&](int i) { return x(k, i); });
        #pragma unroll 8
        for (int i = 0; i < SIZE; i++) {
            const int j = first * SIZE + lane + (k * SIZE + i) * lanes;
            if (!WHOLE_ROWS && j < n)
                store(row + j, x(k, i));
        }
    }
}

/* ---- reductions of a row, over `lanes` neighbouring lanes or over a block ---- */

/* The maximum is NaN if an element is NaN.  Powers relative to a maximum that is NaN or infinite
 * are NaN, so a row without a softmax gives NaN without a test of its own.
 *
 * Pairs of bf16 are compared packed, before they are converted to float. */
template <typename T>
static __device__ __forceinline__ unsigned max_word(unsigned x, unsigned y);
template <>
__device__ __forceinline__ unsigned max_word<float>(unsigned x, unsigned y)
{
    return __float_as_uint(max_nan(__uint_as_float(x), __uint_as_float(y)));
}
template <>
__device__ __forceinline__ unsigned max_word<__nv_bfloat16>(unsigned x, unsigned y)
{
    return max_nan_bf16x2(x, y);
}

template <typename T, int K>
static __device__ __forceinline__ float max_element(const uint4 (&v)[K])
{
    uint4 max_vector = v[0];
    float all = -INFINITY;
    #pragma unroll K
    for (int k = 1; k < K; k++)
        max_vector =
            make_uint4(max_word<T>(max_vector.x, v[k].x), max_word<T>(max_vector.y, v[k].y),
                       max_word<T>(max_vector.z, v[k].z), max_word<T>(max_vector.w, v[k].w));
    #pragma unroll 8
    for (int i = 0; i < vector_of<T>::SIZE; i++)
        all = max_nan(all, element<T>(max_vector, i));
    return all;
}

/* e^(factor (x - top)), for scale = factor / ln 2; exactly 1 for x = top, the maximum. */
static __device__ __forceinline__ float power(float x, float top, float scale)
{
    return exp2_approx(scale * (x - top));
}

/* so_far + sum of the powers. */
template <typename T, int K>
static __device__ __forceinline__ float sum_powers(const uint4 (&v)[K], float top, float scale,
                                                   float so_far)
{
    #pragma unroll K
    for (int k = 0; k < K; k++) {
        #pragma unroll 8
        for (int i = 0; i < vector_of<T>::SIZE; i++)
            so_far += power(element<T>(v[k], i), top, scale);
    }
    return so_far;
}

/* so_far + <v,w>. */
template <typename T, int K>
static __device__ __forceinline__ float dot_product(const uint4 (&v)[K], const uint4 (&w)[K],
                                                    float so_far)
{
    #pragma unroll K
    for (int k = 0; k < K; k++) {
        #pragma unroll 8
        for (int i = 0; i < vector_of<T>::SIZE; i++)
            so_far = fmaf(element<T>(v[k], i), element<T>(w[k], i), so_far);
    }
    return so_far;
}

/* The number of lanes is a power of two; all lanes get the same bits. */
static __device__ __forceinline__ float lanes_max(float x, int lanes = 32)
{
    for (int distance = lanes >> 1; distance > 0; distance >>= 1)
        x = max_nan(x, __shfl_xor_sync(~0u, x, distance));
    return x;
}

static __device__ __forceinline__ float lanes_sum(float x, int lanes = 32)
{
    for (int distance = lanes >> 1; distance > 0; distance >>= 1)
        x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

/* ---- the online sum ---- */

/* The lowest finite float: relative to it the power of -inf is 0, and of itself 1. */
#define LOWEST (-3.402823466e38f)

/* The running maximum, and the sum of the powers so far, relative to it.  If all elements so far
 * are -inf, the sum is 0. */
struct running {
    float top = LOWEST, sum = 0;
};

/* Rescales the sum to the new maximum `top`. */
static __device__ __forceinline__ void rescale(running &so_far, float top, float scale)
{
    so_far.sum *= power(so_far.top, top, scale);
    so_far.top = top;
}

template <typename T, int K>
static __device__ __forceinline__ void accumulate(running &so_far, const uint4 (&v)[K], float scale)
{
    rescale(so_far, max_nan(so_far.top, max_element<T>(v)), scale);
    so_far.sum = sum_powers<T>(v, so_far.top, scale, so_far.sum);
}

/* Combines the threads of a block; `smem` is 64 floats. */
static __device__ __forceinline__ void block_running(running &so_far, float scale, float *smem)
{
    rescale(so_far, block_max(so_far.top, smem), scale);
    so_far.sum = block_sum(so_far.sum, smem + 32);
}

/* ---- launches ---- */

/* Threads, in whole warps, for so many vectors, K per thread. */
static inline unsigned threads_for(int64_t vectors, int K)
{
    return (unsigned)(32 * max(ceil_div(vectors, 32 * K), (int64_t)1));
}

/* A rung for one storage type, and its approximate instructions, each with an error of two units at
 * most. */
#define RUNG(bits, T, rung, idea, declines, approximates)                                          \
    static const struct impl rung##bits = {                                                        \
        #rung,   idea, {rung##_forward<T>, rung##_backward<T>}, NULL, declines, approximates,      \
        0x1p-22, 0}

#endif
