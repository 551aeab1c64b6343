/* softmax.cuh - rows of numbers as sixteen-byte vectors, and what of them lanes or a block find
 * together: the largest, sums, and sums of powers of two with the largest running along.
 *
 * What a thread has of a row depends on the number's column alone and not on where in memory the
 * row begins, so that a row gives the same bits wherever it stands. */
#ifndef SOFTMAX_CUH
#define SOFTMAX_CUH

#include "gpu/device/math.cuh"

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

/* Number i of a vector. */
template <typename T>
static __device__ __forceinline__ float number(const uint4 &v, int i);
template <>
__device__ __forceinline__ float number<float>(const uint4 &v, int i)
{
    return __uint_as_float(word(v, i));
}
template <>
__device__ __forceinline__ float number<__nv_bfloat16>(const uint4 &v, int i)
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

/* The vector whose number i is x(i). */
template <typename T, typename F>
static __device__ __forceinline__ uint4 vector_from(const F &x)
{
    if (sizeof(T) == 4)
        return make_uint4(__float_as_uint(x(0)), __float_as_uint(x(1)), __float_as_uint(x(2)),
                          __float_as_uint(x(3)));
    return make_uint4(bf16_pair(x(0), x(1)), bf16_pair(x(2), x(3)), bf16_pair(x(4), x(5)),
                      bf16_pair(x(6), x(7)));
}

/* One that is `fill` all over, which T must hold exactly. */
template <typename T>
static __device__ __forceinline__ uint4 vector_full(float fill)
{
    const unsigned bits = __float_as_uint(fill);
    const unsigned all = sizeof(T) == 4 ? bits : bits | bits >> 16;
    return make_uint4(all, all, all, all);
}

/* ---- rows ---- */

/* Are all rows of n numbers made of vectors? */
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

/* Of a row of n numbers, from its vector `first` on, what belongs to `lane` of so many lanes: K
 * vectors, so many apart, or else as many numbers, one by one, neighbouring lanes' next to each
 * other.  All are in flight at once; `fill` stands for those beyond the end. */
template <bool WHOLE_ROWS, typename T, int K>
static __device__ __forceinline__ void take(uint4 (&v)[K], const T *row, int n, int first, int lane,
                                            int lanes, float fill)
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

/* The same places, number i of the k-th vector being x(k, i). */
template <bool WHOLE_ROWS, int K, typename T, typename F>
static __device__ __forceinline__ void put(T *row, int n, int first, int lane, int lanes,
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

/* ---- what threads hold of a row, over `lanes` neighbouring ones or over a block ---- */

/* The largest of numbers is NaN if one of them is, and powers relative to it are NaN then, or where
 * it is infinite: what a row that is no distribution is to give needs no test of its own.
 *
 * Pairs of bf16 are compared as they are, before anything is made a float. */
template <typename T>
static __device__ __forceinline__ unsigned larger_word(unsigned x, unsigned y);
template <>
__device__ __forceinline__ unsigned larger_word<float>(unsigned x, unsigned y)
{
    return __float_as_uint(max_nan(__uint_as_float(x), __uint_as_float(y)));
}
template <>
__device__ __forceinline__ unsigned larger_word<__nv_bfloat16>(unsigned x, unsigned y)
{
    return max_nan_bf16x2(x, y);
}

template <typename T, int K>
static __device__ __forceinline__ float largest(const uint4 (&v)[K])
{
    uint4 most = v[0];
    float all = -INFINITY;
    #pragma unroll K
    for (int k = 1; k < K; k++)
        most = make_uint4(larger_word<T>(most.x, v[k].x), larger_word<T>(most.y, v[k].y),
                          larger_word<T>(most.z, v[k].z), larger_word<T>(most.w, v[k].w));
    #pragma unroll 8
    for (int i = 0; i < vector_of<T>::SIZE; i++)
        all = max_nan(all, number<T>(most, i));
    return all;
}

/* e^(factor (x - top)), for scale = factor / ln 2; exactly 1 at the top. */
static __device__ __forceinline__ float power(float x, float top, float scale)
{
    return exp2_approx(scale * (x - top));
}

/* The sum of the powers, on top of what there is. */
template <typename T, int K>
static __device__ __forceinline__ float powers(const uint4 (&v)[K], float top, float scale,
                                               float so_far)
{
    #pragma unroll K
    for (int k = 0; k < K; k++) {
        #pragma unroll 8
        for (int i = 0; i < vector_of<T>::SIZE; i++)
            so_far += power(number<T>(v[k], i), top, scale);
    }
    return so_far;
}

/* <v,w>, on top of what there is. */
template <typename T, int K>
static __device__ __forceinline__ float product(const uint4 (&v)[K], const uint4 (&w)[K],
                                                float so_far)
{
    #pragma unroll K
    for (int k = 0; k < K; k++) {
        #pragma unroll 8
        for (int i = 0; i < vector_of<T>::SIZE; i++)
            so_far = fmaf(number<T>(v[k], i), number<T>(w[k], i), so_far);
    }
    return so_far;
}

/* The lanes are a power of two, and all get the same bits. */
static __device__ __forceinline__ float lanes_max(float x, int lanes = 32)
{
    for (int far = lanes >> 1; far > 0; far >>= 1)
        x = max_nan(x, __shfl_xor_sync(~0u, x, far));
    return x;
}

static __device__ __forceinline__ float lanes_sum(float x, int lanes = 32)
{
    for (int far = lanes >> 1; far > 0; far >>= 1)
        x += __shfl_xor_sync(~0u, x, far);
    return x;
}

/* Of a block of whole warps; `room` is for 32 numbers, of this call alone.  Sums are trees
 * over lanes and then over warps. */
static __device__ __forceinline__ float block_max(float x, float *room)
{
    x = lanes_max(x);
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = x;
    __syncthreads();
    return lanes_max(room[threadIdx.x % 32 < blockDim.x / 32 ? threadIdx.x % 32 : 0]);
}

static __device__ __forceinline__ float block_sum(float x, float *room)
{
    x = lanes_sum(x);
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = x;
    __syncthreads();
    return lanes_sum(threadIdx.x % 32 < blockDim.x / 32 ? room[threadIdx.x % 32] : 0);
}

/* ---- the running sum ---- */

/* The least of all finite numbers: relative to it the power of -inf is 0, and of itself 1. */
#define LOWEST (-3.402823466e38f)

/* The largest number so far, and the sum of the powers so far, relative to it.  Where all have been
 * -inf, the sum is 0. */
struct running {
    float top = LOWEST, sum = 0;
};

/* From here on relative to `top`. */
static __device__ __forceinline__ void raise(running &so_far, float top, float scale)
{
    so_far.sum *= power(so_far.top, top, scale);
    so_far.top = top;
}

template <typename T, int K>
static __device__ __forceinline__ void include(running &so_far, const uint4 (&v)[K], float scale)
{
    raise(so_far, max_nan(so_far.top, largest<T>(v)), scale);
    so_far.sum = powers<T>(v, so_far.top, scale, so_far.sum);
}

/* What all threads of the block have; `room` is for 64 numbers. */
static __device__ __forceinline__ void block_running(running &so_far, float scale, float *room)
{
    raise(so_far, block_max(so_far.top, room), scale);
    so_far.sum = block_sum(so_far.sum, room + 32);
}

/* ---- launches ---- */

/* Whole warps for so many vectors, K to a thread. */
static inline unsigned threads_for(int64_t vectors, int K)
{
    return (unsigned)(32 * max(ceil_div(vectors, 32 * K), (int64_t)1));
}

/* A rung for one storage type, and what its approximate instructions are, each off by two units
 * at most. */
#define RUNG(bits, T, rung, idea, declines, approximates)                                          \
    static const struct impl rung##bits = {                                                        \
        #rung,   idea, {rung##_forward<T>, rung##_backward<T>}, NULL, declines, approximates,      \
        0x1p-22, 0}

#endif
