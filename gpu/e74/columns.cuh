/* columns.cuh - a row of a matrix, distributed over LANES neighbouring threads.  Each thread holds
 * an octet of its columns in registers: two quads of four neighbouring columns, at a distance of
 * half a row. */
#ifndef COLUMNS_CUH
#define COLUMNS_CUH

#include "gpu/device/reduce.cuh"
#include "gpu/device/vector.cuh"

enum { OCTET = 8 };

/* Each quad is loaded and stored by itself. */
typedef array<float, OCTET, sizeof(float)> float8;

/* The column at which the thread's i-th quad begins. */
template <int LANES>
static __device__ int quad_offset(int i, int lane)
{
    return 4 * (i * LANES + lane);
}

/* ---- rows with padding, in shared memory or a workspace ---- */

template <int LANES>
static __device__ float8 load_columns(const float *row, int lane)
{
    float8 e;
    for (int i = 0; i < 2; i++) {
        four<float> f = *(const four<float> *)(row + quad_offset<LANES>(i, lane));
        for (int j = 0; j < 4; j++)
            e.x[4 * i + j] = f.x[j];
    }
    return e;
}

template <int LANES>
static __device__ void store_columns(float *row, int lane, const float8 &e)
{
    for (int i = 0; i < 2; i++) {
        four<float> f;
        for (int j = 0; j < 4; j++)
            f.x[j] = e.x[4 * i + j];
        *(four<float> *)(row + quad_offset<LANES>(i, lane)) = f;
    }
}

/* ---- rows of `columns` elements without padding, in global memory ---- */

template <typename T, int LANES>
static __device__ void store_columns(T *row, int columns, int lane, const float8 &e)
{
    for (int i = 0; i < 2; i++) {
        four<T> f;
        for (int j = 0; j < 4; j++)
            store(&f.x[j], e.x[4 * i + j]);
        store_four(row, columns, quad_offset<LANES>(i, lane), f);
    }
}

/* A thread's columns as loaded. */
template <typename T>
struct raw {
    vec<T, 4> quad[2];
};

/* Loads min(4, left) elements; the others are zero.  ALIGNED: the number of columns and the offsets
 * of rows are multiples of four. */
template <typename T, bool ALIGNED>
static __device__ __forceinline__ vec<T, 4> load_quad(const T *from, int left)
{
    vec<T, 4> got = {};
    if (ALIGNED) {
        if (left > 0)
            got = *(const vec<T, 4> *)from;
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
        const int at = quad_offset<LANES>(i, lane);
        got.quad[i] = load_quad<T, ALIGNED>(row + at, columns - at);
    }
    return got;
}

template <typename T>
static __device__ __forceinline__ float8 widened(const raw<T> &r)
{
    float8 e;
    for (int j = 0; j < OCTET; j++)
        e.x[j] = r.quad[j / 4][j % 4];
    return e;
}

template <int LANES>
static __device__ __forceinline__ float8 load_floats(const float *row, int columns, int lane)
{
    return widened(columns % 4 ? load_columns<float, LANES, false>(row, columns, lane)
                               : load_columns<float, LANES, true>(row, columns, lane));
}

/* ---- arithmetic ---- */

/* Two independent sums: the chain of dependent FMAs is half as long. */
static __device__ __forceinline__ float dot(const float8 &a, const float8 &b)
{
    float even = a.x[0] * b.x[0], odd = a.x[1] * b.x[1];
    for (int j = 2; j < OCTET; j += 2) {
        even = fmaf(a.x[j], b.x[j], even);
        odd = fmaf(a.x[j + 1], b.x[j + 1], odd);
    }
    return even + odd;
}

/* x is the same in all lanes of a warp; the shuffle makes that known to the compiler. */
static __device__ __forceinline__ int warp_uniform(int x)
{
    return __shfl_sync(0xffffffff, x, 0);
}

#endif
