/* stencil.cuh - y[j] = sum of x[j ... j + window - 1]: sums over the windows of a row in shared
 * memory. */
#ifndef STENCIL_CUH
#define STENCIL_CUH

#include "gpu/device/vector.cuh"

/* The index in shared memory of element p of a row.  One float of padding follows each 32, so that
 * threads whose elements have a stride of 4, 8 or 16 have no bank conflicts. */
static __host__ __device__ __forceinline__ int padded(int p)
{
    return p + p / 32;
}

/* The radius R limited to N - 1, which covers the whole axis. */
static inline int64_t reach(int64_t R, int64_t N)
{
    return min(R, N - 1);
}

/* The number of elements (neighbours or zeros) to the left of the first output in a row of shared
 * memory.  It is rounded up to whole vectors if rows consist of vectors. */
template <typename T>
static inline int margin_of(int64_t R, int64_t N)
{
    return (int)(in_vectors<T>(N) ? ceil_div(R, WIDTH<T>) * WIDTH<T> : R);
}

/* A thread of a group that processes a row: its index, and the size of the group. */
struct group_thread {
    int index, size;
};

/* s[padded(p)] = row[first + p] for p < length; zero if first + p is outside the row of N elements.
 * `by` is this thread of the group.  If `wide`, it loads vectors; then `first` and `length` must be
 * multiples of a vector. */
template <typename T>
static __device__ __forceinline__ void fill(float *s, const T *row, int64_t first, int length,
                                            int64_t N, bool wide, const group_thread &by)
{
    const int thread = by.index, threads = by.size;
    enum { AHEAD = 4 }; /* loads in flight together */

    if (wide) {
        for (int p = thread * WIDTH<T>; p < length; p += AHEAD * threads * WIDTH<T>) {
            vec<T> v[AHEAD];
            #pragma unroll AHEAD
            for (int n = 0; n < AHEAD; n++) {
                const int64_t i = first + p + n * threads * WIDTH<T>;
                v[n] = {};
                if (i >= 0 && i < N && p + n * threads * WIDTH<T> < length)
                    v[n] = load_vec<WIDTH<T>>(row + i);
            }
            #pragma unroll AHEAD
            for (int n = 0; n < AHEAD; n++) {
                const int to = p + n * threads * WIDTH<T>;
                if (to < length)
                    unpack(v[n], s + padded(to));
            }
        }
        return;
    }
    #pragma unroll 4
    for (int p = thread; p < length; p += threads)
        s[padded(p)] = first + p >= 0 && first + p < N ? load(row + first + p) : 0;
}

/* sums[c] = sum of the chunk of K elements from p + c K on, for c < chunks. */
template <int K>
static __device__ __forceinline__ void sum_chunks(float *sums, const float *s, int p, int chunks,
                                                  const group_thread &by)
{
    for (int c = by.index; c < chunks; c += by.size) {
        float sum = 0;
        #pragma unroll 16
        for (int k = 0; k < K; k++)
            sum += s[padded(p + c * K + k)];
        sums[c] = sum;
    }
}

/* The number of whole chunks after the first one that all K windows which begin in the first chunk
 * contain. */
template <int K>
static __host__ __device__ __forceinline__ int chunks_within(int window)
{
    return (window - K) / K;
}

/* y[j] = sum of the `window` >= K elements from p + j on, j < K; `sums` has the sums of the chunks
 * from p on.  All K windows contain the elements p + K ... p + window - 1.  To their sum, window j
 * adds a suffix of the first chunk (left) and a prefix of the elements from p + window on (right).
 * Nothing is subtracted, so there is no cancellation. */
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
