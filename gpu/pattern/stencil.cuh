/* stencil.cuh - sums over windows of a row that lies in shared memory. */
#ifndef STENCIL_CUH
#define STENCIL_CUH

#include "gpu/device/vector.cuh"

/* Where number p of a row lies: with a gap after each 32, so that threads whose numbers are 4, 8 or
 * 16 apart are in different banks. */
static __host__ __device__ __forceinline__ int padded(int p)
{
    return p + p / 32;
}

/* A neighbourhood beyond the whole axis is no larger than one that just covers it. */
static inline int64_t reach(int64_t R, int64_t N)
{
    return min(R, N - 1);
}

/* How many zeros or neighbours a row in shared memory has before its first output: where rows are
 * in vectors, whole vectors. */
template <typename T>
static inline int margin_of(int64_t R, int64_t N)
{
    return (int)(in_vectors<T>(N) ? ceil_div(R, WIDTH<T>) * WIDTH<T> : R);
}

/* s[padded(p)] = row[first + p] for p < length, and zero outside 0 ... N.  By the threads from
 * `thread` on, each `threads`-th; in vectors, if rows are, `first` and `length` whole ones. */
template <typename T>
static __device__ __forceinline__ void fill(float *s, const T *row, int64_t first, int length,
                                            int64_t N, bool wide, int thread, int threads)
{
    enum { AHEAD = 4 }; /* loads in flight together */

    if (wide) {
        for (int p = thread * WIDTH<T>; p < length; p += AHEAD * threads * WIDTH<T>) {
            uint4 v[AHEAD];
            #pragma unroll AHEAD
            for (int n = 0; n < AHEAD; n++) {
                const int64_t i = first + p + n * threads * WIDTH<T>;
                v[n] = make_uint4(0, 0, 0, 0);
                if (i >= 0 && i < N && p + n * threads * WIDTH<T> < length)
                    v[n] = *(const uint4 *)(row + i);
            }
            #pragma unroll AHEAD
            for (int n = 0; n < AHEAD; n++) {
                float x[WIDTH<T>];
                const int to = p + n * threads * WIDTH<T>;
                vector<T>::unpack(v[n], x);
                if (to < length)
                    #pragma unroll 8
                    for (int k = 0; k < WIDTH<T>; k++)
                        s[padded(to) + k] = x[k];
            }
        }
        return;
    }
    #pragma unroll 4
    for (int p = thread; p < length; p += threads)
        s[padded(p)] = first + p >= 0 && first + p < N ? load(row + first + p) : 0;
}

/* sums[c] = that of the chunk of K numbers from p + c K on, for c < chunks. */
template <int K>
static __device__ __forceinline__ void sum_chunks(float *sums, const float *s, int p, int chunks,
                                                  int thread, int threads)
{
    for (int c = thread; c < chunks; c += threads) {
        float sum = 0;
        #pragma unroll 16
        for (int k = 0; k < K; k++)
            sum += s[padded(p + c * K + k)];
        sums[c] = sum;
    }
}

/* Chunks that lie whole within a window that begins right before them. */
template <int K>
static __host__ __device__ __forceinline__ int chunks_within(int window)
{
    return (window - K) / K;
}

/* y[j] = sum of the `window` >= K numbers from p + j on, j < K; `sums` are those of the chunks from
 * p on.  The windows share what lies between their first chunk and its end's like; each adds
 * its share of the two.  Nothing is ever subtracted, so nothing cancels. */
template <int K>
static __device__ __forceinline__ void slide(float *y, const float *s, const float *sums, int p,
                                             int window)
{
    const int whole = chunks_within<K>(window), rest = window - K - whole * K;
    float shared = 0, left = 0, right = 0;

    #pragma unroll 4
    for (int c = 1; c <= whole; c++)
        shared += K > 1 ? sums[c] : s[padded(p + c)];
    for (int k = 0; k < rest; k++)
        shared += s[padded(p + window - rest + k)];
    #pragma unroll 16
    for (int j = K - 1; j >= 0; j--) {
        left += s[padded(p + j)];
        y[j] = left + shared;
    }
    #pragma unroll 16
    for (int j = 1; j < K; j++) {
        right += s[padded(p + window + j - 1)];
        y[j] += right;
    }
}

#endif
