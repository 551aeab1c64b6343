/* reduce.cuh - common to the files of reduce: sums and maxima, what a call reduces, kernel `staged`. */
#ifndef PATTERN_REDUCE_CUH
#define PATTERN_REDUCE_CUH

#include "common/ops/reduce.h"
#include "gpu/device/math.cuh"

/* ---- the monoids: sum, and maximum with its index ---- */

struct total {
    float sum;

    static __device__ __forceinline__ total none(void) { return {0}; }
    static __device__ __forceinline__ float padding(void) { return 0; }
    /* Adds N neighbouring elements, which are zero if they are not valid. */
    template <int N>
    __device__ __forceinline__ void accumulate(const float (&x)[N], int64_t, bool, bool squared)
    {
        float run = squared ? x[0] * x[0] : x[0];
        #pragma unroll N
        for (int i = 1; i < N; i++)
            run += squared ? x[i] * x[i] : x[i];
        sum += run;
    }
    __device__ __forceinline__ void merge(const total &other) { sum += other.sum; }
    __device__ __forceinline__ total shfl_xor(int distance) const
    {
        return {__shfl_xor_sync(~0u, sum, distance)};
    }
};

/* The maximum and its first index; if there are NaNs, the first NaN.  There is no index while all
 * elements are -inf. */
struct argmax {
    float x;
    int64_t at;

    static __device__ __forceinline__ argmax none(void) { return {-INFINITY, INT64_MAX}; }
    /* Of the columns beyond the end: never above the maximum. */
    static __device__ __forceinline__ float padding(void) { return -INFINITY; }
    /* Is `other` above the maximum so far? */
    __device__ __forceinline__ bool below(float other) const { return x == x && !(other <= x); }
    __device__ __forceinline__ void merge(const argmax &other)
    {
        const bool tie = other.x == x || (other.x != other.x && x != x);
        if (below(other.x) || (tie && other.at < at))
            *this = other;
    }
    /* Adds N elements whose indices are after all so far.  New maxima are rare: the index is
     * searched only if the largest of these elements is one. */
    template <int N>
    __device__ __forceinline__ void accumulate(const float (&next)[N], int64_t first, bool valid,
                                               bool)
    {
        float largest = next[0];
        #pragma unroll N
        for (int i = 1; i < N; i++)
            largest = max_nan(largest, next[i]);
        if (!valid || !below(largest))
            return;
        #pragma unroll N
        for (int i = N - 1; i >= 0; i--)
            if (next[i] == largest || next[i] != next[i])
                *this = {next[i], first + i};
    }
    __device__ __forceinline__ argmax shfl_xor(int distance) const
    {
        return {__shfl_xor_sync(~0u, x, distance), __shfl_xor_sync(~0u, at, distance)};
    }
};

/* Over LANES neighbouring lanes, a power of two: each gets the result. */
template <int LANES = 32, typename F>
static __device__ __forceinline__ F fold_lanes(F found)
{
    #pragma unroll 5
    for (int distance = LANES / 2; distance; distance /= 2)
        found.merge(found.shfl_xor(distance));
    return found;
}

/* ---- what a call reduces ---- */

OF_CALL(int64_t, rows_of, f->choice[REDUCE_OVER] == REDUCE_ALL ? 1 : DIM(f, 'R'))
OF_CALL(int64_t, elements_of,
        DIM(f, 'N') * (f->choice[REDUCE_OVER] == REDUCE_ALL ? DIM(f, 'R') : 1))

OF_CALL(float, divisor_of, f->choice[REDUCE_KIND] == REDUCE_MEAN ? (float)elements_of(f) : 1)

/* ---- kernel staged (reduce_staged.cu) ---- */

template <typename T>
int staged_reduce(const struct call *f);
template <typename T>
int staged_reduce_back(const struct call *f);
template <typename T>
const char *staged_reduce_declines(const struct call *f);
template <typename T>
int staged_reduce_yields(const struct call *f);

#endif
