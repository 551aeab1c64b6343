/* Rows that begin and end anywhere (gpu/device/segment.cuh): tensors [R,N] of whole rows, at each
 * misalignment and of each length from 1 to 64 and about that of a segment.  A tensor ends where its
 * allocation ends, so that a sanitizer sees what is read or written beyond it. */
#include "gpu/device/segment.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

extern "C" {
#include "common/call/run.h"
#include "tests/here.h"
#include "tests/tap.h"
}

enum { OUTSIDE = 0xee };

/* The bits of an element: of the input, and of what is stored. */
template <typename T>
struct bits_of {
    typedef uint32_t type;
};
template <>
struct bits_of<__nv_bfloat16> {
    typedef uint16_t type;
};

static __host__ __device__ uint32_t mixed(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352d;
    x = (x ^ x >> 15) * 0x846ca68b;
    return x ^ x >> 16;
}

/* A vector whose element j has the bits of row r and column n + j. */
template <typename T>
static __device__ vec<T> drawn(int r, int n)
{
    typename bits_of<T>::type x[WIDTH<T>];
    vec<T> v;
    for (int j = 0; j < WIDTH<T>; j++)
        x[j] = (typename bits_of<T>::type)mixed(r * 1009 + n + j);
    memcpy(&v, x, sizeof v);
    return v;
}

/* Every group of `lanes` lanes has a row: it loads the row's segments into `seen`, and stores others
 * to y.  There are more groups than rows. */
template <typename T, int K>
__global__ void pass_rows(const T *x, T *y, vec<T> *seen, int R, int N, int lanes, float fill)
{
    enum { V = WIDTH<T> };
    const int r = blockIdx.x * (32 / lanes) + threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const int n = r < R ? N : 0, columns = K * lanes * V, segments = (N + columns - 1) / columns;

    for (int s = 0; s < segments; s++) {
        const int64_t at = (int64_t)r * N + s * columns;
        vec<T> v[K];
        load_segment(v, x + at, n - s * columns, lane, lanes, fill);
        for (int k = 0; k < K && r < R; k++)
            seen[((r * segments + s) * K + k) * lanes + lane] = v[k];
        for (int k = 0; k < K; k++)
            v[k] = drawn<T>(r, s * columns + (lane + k * lanes) * V);
        store_segment(y + at, v, n - s * columns, lane, lanes);
    }
}

template <typename T>
struct rows {
    typedef typename bits_of<T>::type bits;
    int R, N, shift;
    std::vector<bits> x, y, seen;
};

/* Runs one case; returns whether it ran. */
template <typename T, int K>
static bool run(rows<T> *c, int lanes, float fill)
{
    typedef typename rows<T>::bits bits;
    enum { V = WIDTH<T> };
    const int columns = K * lanes * V, segments = (c->N + columns - 1) / columns;
    const size_t all = c->shift + (size_t)c->R * c->N, padded = (size_t)c->R * segments * columns;
    const size_t bytes = all * sizeof(bits);
    char *x = NULL, *y = NULL, *seen = NULL;

    c->x.resize(all);
    c->y.resize(all);
    c->seen.assign(padded, 0);
    for (size_t i = 0; i < all; i++)
        c->x[i] = (bits)mixed((uint32_t)i + 77);
    cudaMalloc(&x, bytes);
    cudaMalloc(&y, bytes);
    cudaMalloc(&seen, padded * sizeof(bits));
    cudaMemcpy(x, c->x.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemset(y, OUTSIDE, bytes);
    pass_rows<T, K><<<(c->R * lanes + 31) / 32 + 1, 32>>>((const T *)x + c->shift, (T *)y + c->shift,
                                                        (vec<T> *)seen, c->R, c->N, lanes, fill);
    cudaMemcpy(c->y.data(), y, bytes, cudaMemcpyDeviceToHost);
    cudaMemcpy(c->seen.data(), seen, padded * sizeof(bits), cudaMemcpyDeviceToHost);
    cudaFree(x);
    cudaFree(y);
    cudaFree(seen);
    return cudaGetLastError() == cudaSuccess;
}

/* The first row and column that load_segment() or store_segment() has wrong; false if none. */
template <typename T, int K>
static bool wrong_load(const rows<T> &c, int lanes, float fill, int *row, int *column)
{
    typedef typename rows<T>::bits bits;
    const int columns = K * lanes * (int)WIDTH<T>, width = (c.N + columns - 1) / columns * columns;
    uint32_t word;

    memcpy(&word, &fill, sizeof word);
    const bits beyond = (bits)(sizeof(bits) == 2 ? word >> 16 : word);
    for (*row = 0; *row < c.R; ++*row)
        for (*column = 0; *column < width; ++*column)
            if (c.seen[(size_t)*row * width + *column] !=
                (*column < c.N ? c.x[c.shift + (size_t)*row * c.N + *column] : beyond))
                return true;
    return false;
}

template <typename T>
static bool wrong_store(const rows<T> &c, int *row, int *column)
{
    typedef typename rows<T>::bits bits;

    for (*row = 0, *column = -c.shift; *column < 0; ++*column)
        if (c.y[c.shift + *column] != (bits)(OUTSIDE * 0x1010101u))
            return true;
    for (*row = 0; *row < c.R; ++*row)
        for (*column = 0; *column < c.N; ++*column)
            if (c.y[c.shift + (size_t)*row * c.N + *column] !=
                (bits)mixed(*row * 1009 + *column))
                return true;
    return false;
}

/* All lengths and misalignments, for segments of K vectors per lane. */
template <typename T, int K>
static void try_segments(const char *type, int lanes)
{
    enum { V = WIDTH<T>, SHORT = 64 };
    const int columns = K * lanes * V;
    int loads = 0, stores = 0, cases = 0, row, column;
    char first[200] = "";

    for (int i = 1; i <= SHORT + 2 * V + 2; i++) {
        const int N = i <= SHORT ? i
                      : i < SHORT + 2 * V + 2 ? columns - V + i - SHORT - 1 : 2 * columns + 3;
        for (int shift = 0; shift < V && N > 0; shift++) {
            rows<T> c = {32 / lanes + 2, N, shift, {}, {}, {}};
            const float fill = N % 3 ? -INFINITY : 0;
            const bool ran = run<T, K>(&c, lanes, fill);
            const bool load = !ran || wrong_load<T, K>(c, lanes, fill, &row, &column);
            if (load && !*first)
                snprintf(first, sizeof first, "load: N %d shift %d row %d column %d", N, shift, row,
                         column);
            const bool store = !ran || wrong_store(c, &row, &column);
            if (store && !*first)
                snprintf(first, sizeof first, "store: N %d shift %d row %d column %d", N, shift,
                         row, column);
            loads += load, stores += store, cases++;
        }
    }
    if (!ok(cases && !loads && !stores, "%s: segments of %d vectors in each of %d lanes", type, K,
            lanes))
        printf("# of %d cases %d loads and %d stores are wrong; %s\n", cases, loads, stores, first);
}

int main(void)
{
    const char *why = backend_unavailable(here(), backend_find("gpu32"));

    if (why) {
        printf("1..0 # SKIP %s\n", why);
        return 0;
    }
    for (int lanes = 1; lanes <= 32; lanes *= 2) {
        try_segments<float, 1>("float", lanes);
        try_segments<float, 3>("float", lanes);
        try_segments<__nv_bfloat16, 1>("bf16", lanes);
        try_segments<__nv_bfloat16, 4>("bf16", lanes);
    }
    return done();
}
