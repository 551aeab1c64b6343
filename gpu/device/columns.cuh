/* columns.cuh - a row of a matrix over LANES neighbouring threads, eight of its
 * columns each in registers. */
#ifndef COLUMNS_CUH
#define COLUMNS_CUH

#include "gpu/gpu.cuh"

enum { COLUMNS = 8 }; /* of a thread: two runs of four, half a row apart */

template <typename T>
struct alignas(4 * sizeof(T)) four {
    T x[4];
};

struct eight {
    float x[COLUMNS];
};

/* Where the thread's i-th run begins within a row. */
template <int LANES>
static __device__ int run(int i, int lane)
{
    return 4 * (i * LANES + lane);
}

template <int LANES>
static __device__ eight take(const float *row, int lane)
{
    eight e;
    for (int i = 0; i < 2; i++) {
        four<float> f = *(const four<float> *)(row + run<LANES>(i, lane));
        for (int j = 0; j < 4; j++)
            e.x[4 * i + j] = f.x[j];
    }
    return e;
}

template <int LANES>
static __device__ void leave(float *row, int lane, const eight &e)
{
    for (int i = 0; i < 2; i++) {
        four<float> f;
        for (int j = 0; j < 4; j++)
            f.x[j] = e.x[4 * i + j];
        *(four<float> *)(row + run<LANES>(i, lane)) = f;
    }
}

/* Into global memory, where a row has no padding: four columns, a thread's. */
template <typename T>
static __device__ void store_four(T *row, int columns, int column, const four<T> &f)
{
    if (columns % 4 == 0 && column < columns)
        *(four<T> *)(row + column) = f;
    else
        for (int j = 0; j < 4 && column + j < columns; j++)
            row[column + j] = f.x[j];
}

template <typename T, int LANES>
static __device__ void store_columns(T *row, int columns, int lane, const eight &e)
{
    for (int i = 0; i < 2; i++) {
        four<T> f;
        for (int j = 0; j < 4; j++)
            store(&f.x[j], e.x[4 * i + j]);
        store_four(row, columns, run<LANES>(i, lane), f);
    }
}

/* Eight columns as they are stored: words that are unpacked only when they are used, so that the
 * loads stay in flight until then. */
template <typename T>
struct alignas(4 * sizeof(T)) words {
    unsigned w[sizeof(T)];
};
template <typename T>
struct raw {
    words<T> run[2];
};

/* Four, or as many as are left, and zeros.  ALIGNED: columns, and where rows
 * begin, are multiples of four. */
template <typename T, bool ALIGNED>
static __device__ __forceinline__ words<T> load_run(const T *from, int left)
{
    words<T> got = {};
    if (ALIGNED) {
        if (left > 0)
            got = *(const words<T> *)from;
    } else {
        T x[4];
        for (int j = 0; j < 4; j++) {
            store(x + j, 0.0f);
            if (j < left)
                x[j] = from[j];
        }
        memcpy(&got, x, sizeof x);
    }
    return got;
}

template <typename T, int LANES, bool ALIGNED>
static __device__ __forceinline__ raw<T> load_columns(const T *row, int columns, int lane)
{
    raw<T> got;
    for (int i = 0; i < 2; i++) {
        const int at = run<LANES>(i, lane);
        got.run[i] = load_run<T, ALIGNED>(row + at, columns - at);
    }
    return got;
}

static __device__ __forceinline__ eight widened(const raw<float> &r)
{
    eight e;
    for (int j = 0; j < COLUMNS; j++)
        e.x[j] = __uint_as_float(r.run[j / 4].w[j % 4]);
    return e;
}

/* A bf16 is the upper half of a float. */
static __device__ __forceinline__ eight widened(const raw<__nv_bfloat16> &r)
{
    eight e;
    for (int j = 0; j < COLUMNS; j += 2) {
        const unsigned pair = r.run[j / 4].w[j % 4 / 2];
        e.x[j] = __uint_as_float(pair << 16);
        e.x[j + 1] = __uint_as_float(pair & 0xffff0000);
    }
    return e;
}

template <int LANES>
static __device__ __forceinline__ eight load_floats(const float *row, int columns, int lane)
{
    return widened(columns % 4 ? load_columns<float, LANES, false>(row, columns, lane)
                               : load_columns<float, LANES, true>(row, columns, lane));
}

/* Two sums side by side: half as long a chain. */
static __device__ __forceinline__ float dot(const eight &a, const eight &b)
{
    float even = a.x[0] * b.x[0], odd = a.x[1] * b.x[1];
    for (int j = 2; j < COLUMNS; j += 2) {
        even = fmaf(a.x[j], b.x[j], even);
        odd = fmaf(a.x[j + 1], b.x[j + 1], odd);
    }
    return even + odd;
}

/* A value that is uniform in a warp, made known to the compiler as such. */
static __device__ __forceinline__ int of_warp(int x)
{
    return __shfl_sync(0xffffffff, x, 0);
}

/* The sum over a row's lanes, in every one of them. */
template <int LANES>
static __device__ __forceinline__ float lanes_sum(float x)
{
    for (int d = LANES / 2; d; d /= 2)
        x += __shfl_xor_sync(0xffffffff, x, d);
    return x;
}

/* The sums over the rows of a warp.  Where it has several, at each exchange a
 * lane keeps half of its columns and gives the other half away, so that in the
 * end each has a few, from row_part() on; with less than four lanes several
 * have the same. */
template <int LANES>
struct row_part {
    static const int columns = LANES >= 32 ? 8 : LANES == 16 ? 4 : LANES == 8 ? 2 : 1;
    float x[columns];
};

/* Which of a thread's eight columns is its part's first, by its place in the warp. */
template <int LANES>
static __device__ __forceinline__ int row_part_at(int place)
{
    int at = 0;
    for (int d = LANES, n = COLUMNS / 2; d < 32 && n; d *= 2, n /= 2)
        at += place & d ? n : 0;
    return at;
}

template <int LANES>
static __device__ __forceinline__ row_part<LANES> over_rows(eight e, int place)
{
    row_part<LANES> part;
    for (int d = LANES, n = COLUMNS / 2; d < 32; d *= 2, n /= 2) {
        if (n == 0)
            e.x[0] += __shfl_xor_sync(0xffffffff, e.x[0], d);
        for (int j = 0; j < n; j++) {
            const float give = place & d ? e.x[j] : e.x[n + j];
            const float keep = place & d ? e.x[n + j] : e.x[j];
            e.x[j] = keep + __shfl_xor_sync(0xffffffff, give, d);
        }
    }
    for (int j = 0; j < part.columns; j++)
        part.x[j] = e.x[j];
    return part;
}

/* Two at once take no longer than one. */
template <int LANES>
static __device__ __forceinline__ void lanes_sums(float *x, float *y)
{
    for (int d = LANES / 2; d; d /= 2) {
        const float a = __shfl_xor_sync(0xffffffff, *x, d);
        const float b = __shfl_xor_sync(0xffffffff, *y, d);
        *x += a;
        *y += b;
    }
}

#endif
