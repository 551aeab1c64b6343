/* softmax.cuh - rows in registers as 16-byte vectors, and their reductions over lanes or over a
 * block: maximum, sum, dot product, and the online sum of exp(x - max) (gpu/device/softmax.cuh).
 *
 * The thread of an element depends on the element's column alone, not on the address of the row, so
 * that a row gives the same bits at any address. */
#ifndef ROW_SOFTMAX_CUH
#define ROW_SOFTMAX_CUH

#include "gpu/device/segment.cuh"
#include "gpu/device/softmax.cuh"

/* ---- vectors ---- */

/* A vector whose elements are all `fill`, which T must represent exactly. */
template <typename T>
static __device__ __forceinline__ vec<T> vector_full(float fill)
{
    const unsigned bits = __float_as_uint(fill);
    const unsigned all = is_bf16<T>() ? bits | bits >> 16 : bits;
    return {{all, all, all, all}};
}

/* ---- rows ---- */

template <typename T>
static inline int64_t vectors_of(int64_t n)
{
    return ceil_div(n, WIDTH<T>);
}

/* The first vector of a thread's segment: the row's vectors from `first` on, K per thread.  The lanes
 * of a warp have a segment of their own. */
template <int K>
static __device__ __forceinline__ int segment_of(int first, int lane)
{
    return first + lane / 32 * 32 * K;
}

/* Loads K vectors of a row of n elements: those of thread `lane` of `lanes`, from the row's vector
 * `first` on.  WHOLE_ROWS: with a stride of `lanes` vectors; otherwise those of its lane in its warp's
 * segment.  All loads are in flight at once; elements beyond the end are `fill`. */
template <bool WHOLE_ROWS, typename T, int K>
static __device__ __forceinline__ void load_vectors(vec<T> (&v)[K], const T *row, int n, int first,
                                                    int lane, int lanes, float fill)
{
    if constexpr (!WHOLE_ROWS) {
        const int at = segment_of<K>(first, lane) * WIDTH<T>;
        load_segment(v, row + at, n - at, lane % 32, min(lanes, 32), fill);
    } else {
        #pragma unroll K
        for (int k = 0; k < K; k++) {
            const int vector = first + lane + k * lanes;
            v[k] = vector * WIDTH<T> < n ? ((const vec<T> *)row)[vector] : vector_full<T>(fill);
        }
    }
}

/* Stores to the addresses that load_vectors() reads; element i of the k-th vector is x(k, i). */
template <bool WHOLE_ROWS, int K, typename T, typename F>
static __device__ __forceinline__ void store_vectors(T *row, int n, int first, int lane, int lanes,
                                                     const F &x)
{
    const auto made = [&](int k) { return make_vec<T>([&](int i) { return x(k, i); }); };
    if constexpr (!WHOLE_ROWS) {
        const int at = segment_of<K>(first, lane) * WIDTH<T>;
        vec<T> v[K];
        #pragma unroll K
        for (int k = 0; k < K; k++)
            v[k] = made(k);
        store_segment(row + at, v, n - at, lane % 32, min(lanes, 32));
    } else {
        #pragma unroll K
        for (int k = 0; k < K; k++) {
            const int vector = first + lane + k * lanes;
            if (vector * WIDTH<T> < n)
                ((vec<T> *)row)[vector] = made(k);
        }
    }
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

/* A kernel for one storage type, and its approximate instructions, each with an error of at most
 * two units in the last place. */
#define RUNG(bits, T, rung, idea, declines, approximates)                                          \
    GPU_RUNG(bits, rung, idea, {rung##_forward<T>, rung##_backward<T>}, NULL, declines,            \
             approximates, 0x1p-22)

#endif
