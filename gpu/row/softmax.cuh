/* softmax.cuh - rows in registers as 16-byte vectors, and their reductions over lanes or over a
 * block: maximum, sum, dot product, and the online sum of exp(x - max) (gpu/device/softmax.cuh).
 *
 * The thread of an element depends on the element's column alone, not on the address of the row, so
 * that a row gives the same bits at any address. */
#ifndef ROW_SOFTMAX_CUH
#define ROW_SOFTMAX_CUH

#include "gpu/device/segment.cuh"
#include "gpu/device/softmax.cuh"

template <typename T>
static inline int64_t vectors_of(int64_t n)
{
    return ceil_div(n, WIDTH<T>);
}

/* ---- reductions of a row, over `lanes` neighbouring lanes or over a block ---- */

/* The maximum is NaN if an element is NaN.  Powers relative to a maximum that is NaN or infinite
 * are NaN, so a row that has no softmax gives NaN, and no test is needed.
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
static __device__ __forceinline__ float max_element(const vec<T> (&v)[K])
{
    vec<T> max_vector = v[0];
    float all = -INFINITY;
    #pragma unroll K
    for (int k = 1; k < K; k++) {
        #pragma unroll 4
        for (int i = 0; i < 4; i++)
            max_vector.word[i] = max_word<T>(max_vector.word[i], v[k].word[i]);
    }
    #pragma unroll 8
    for (int i = 0; i < WIDTH<T>; i++)
        all = max_nan(all, max_vector[i]);
    return all;
}

/* The same; the words of the last vector are compared packed too. */
template <typename T, int W, int K>
static __device__ __forceinline__ float max_of(const vec<T, W> (&v)[K])
{
    vec<T, W> all = v[0];
    #pragma unroll
    for (int k = 1; k < K; k++)
        #pragma unroll
        for (int i = 0; i < 4; i++)
            all.word[i] = max_word<T>(all.word[i], v[k].word[i]);
    #pragma unroll
    for (int d = 2; d; d /= 2)
        #pragma unroll
        for (int i = 0; i < d; i++)
            all.word[i] = max_word<T>(all.word[i], all.word[i + d]);
    return storage<T>::PER_WORD == 2 ? max_nan(all[0], all[1]) : all[0];
}

template <int K>
static __device__ __forceinline__ float max_of(const float (&x)[K])
{
    float all = -INFINITY;
    #pragma unroll
    for (int k = 0; k < K; k++)
        all = max_nan(all, x[k]);
    return all;
}

/* so_far + the sum of the powers of the elements of v. */
template <typename T, int K>
static __device__ __forceinline__ float sum_powers(const vec<T> (&v)[K], float top, float scale,
                                                   float so_far)
{
    #pragma unroll K
    for (int k = 0; k < K; k++) {
        #pragma unroll 8
        for (int i = 0; i < WIDTH<T>; i++)
            so_far += power(v[k][i], top, scale);
    }
    return so_far;
}

/* so_far + <v,w>. */
template <typename T, int K>
static __device__ __forceinline__ float dot_product(const vec<T> (&v)[K], const vec<T> (&w)[K],
                                                    float so_far)
{
    #pragma unroll K
    for (int k = 0; k < K; k++) {
        #pragma unroll 8
        for (int i = 0; i < WIDTH<T>; i++)
            so_far = fmaf(v[k][i], w[k][i], so_far);
    }
    return so_far;
}

/* ---- the online sum ---- */

template <typename T, int K>
static __device__ __forceinline__ void accumulate(running &so_far, const vec<T> (&v)[K],
                                                  float scale)
{
    rescale(so_far, max_nan(so_far.top, max_element(v)), scale);
    so_far.sum = sum_powers(v, so_far.top, scale, so_far.sum);
}

/* Combines the results of a block's threads; `smem` is 64 floats. */
static __device__ __forceinline__ void block_running(running &so_far, float scale, float *smem)
{
    rescale(so_far, block_max(so_far.top, smem), scale);
    so_far.sum = block_sum(so_far.sum, smem + 32);
}

/* ---- launches ---- */

/* The number of threads, in whole warps, for `vectors` vectors with K per thread. */
static inline unsigned threads_for(int64_t vectors, int K)
{
    return (unsigned)(32 * max(ceil_div(vectors, 32 * K), (int64_t)1));
}

/* Of an approximate instruction, with an error of at most two units in the last place. */
#define APPROXIMATELY(how) .approximates = how, .unit = 0x1p-22

#endif
