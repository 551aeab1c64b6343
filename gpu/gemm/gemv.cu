/* gemv: one pass over a matrix A [R,C] in its stored layout computes z = alpha A v + beta z0,
 *
 *     z[r] = alpha sum over c of A[r][c] v[c] + beta z0[r],
 *
 * or, transposed, z = alpha A^T v + beta z0,
 *
 *     z[c] = alpha sum over r of A[r][c] v[r] + beta z0[c].
 *
 * The forward pass is one of them; dx is the other one, with v = dy.  The same pass also writes the
 * gradient of A, the outer product alpha x dy^T (or its transpose), element by element as it reads
 * A.
 *
 * naive: one thread per sum.  wide: 16 bytes per load; one group of warps per two rows, or,
 * transposed, one block per strip of columns. */
#include <type_traits>

#include "common/ops/gemv.h"
#include "gpu/device/reduce.cuh"
#include "gpu/device/vector.cuh"
#include "gpu/gemm/gemm.cuh"
#include "gpu/gemm/product.cuh"

/* One pass over A. */
template <typename T>
struct sweep {
    const T *A, *v, *z0; /* z0: NULL, nothing is added */
    T *z;
    const T *w; /* of backward: x */
    T *dA;
    int64_t R, C;
    bool trans;
    float alpha, beta;
    float *workspace;
};

template <typename T>
static sweep<T> forward_sweep(const struct call *f)
{
    const struct gemv *a = ARGS(f, gemv);
    const bool trans = f->choice[GEMV_TRANSPOSE_A];
    const int64_t M = DIM(f, 'M'), K = DIM(f, 'K');
    sweep<T> s = {};
    s.A = (const T *)a->A;
    s.v = (const T *)a->x;
    s.z0 = (const T *)a->y0;
    s.z = (T *)a->y;
    s.R = trans ? K : M;
    s.C = trans ? M : K;
    s.trans = trans;
    s.alpha = (float)f->real[GEMV_ALPHA];
    s.beta = (float)f->real[GEMV_BETA];
    s.workspace = (float *)f->work;
    return s;
}

/* dx, which is the other product with v = dy; and dA. */
template <typename T>
static sweep<T> backward_sweep(const struct call *f)
{
    const struct gemv *a = ARGS(f, gemv), *g = GRADS(f, gemv);
    sweep<T> s = forward_sweep<T>(f);
    s.v = (const T *)g->y;
    s.z0 = NULL;
    s.z = (T *)g->x;
    s.w = (const T *)a->x;
    s.dA = (T *)g->A;
    s.trans = !s.trans;
    return s;
}

/* Both passes.  ENGINE has multiply(sweep), multiply_and_outer(sweep), which also computes dA, and
 * workspace(sweep). */
template <typename T, typename ENGINE>
static int gemv_forward(const struct call *f)
{
    return ENGINE::multiply(f->context, forward_sweep<T>(f));
}

template <typename T, typename ENGINE>
static int gemv_backward(const struct call *f)
{
    const struct gemv *g = GRADS(f, gemv);
    CUDA(ENGINE::multiply_and_outer(f->context, backward_sweep<T>(f)));
    return g->y0 ? gemm_scale(f->context, (T *)g->y0, (const T *)g->y, (float)f->real[GEMV_BETA],
                              DIM(f, 'M'))
                 : 0;
}

template <typename T, typename ENGINE>
static size_t gemv_work(const struct call *f, enum pass p)
{
    return ENGINE::workspace(f->context, p == FORWARD ? forward_sweep<T>(f) : backward_sweep<T>(f));
}

template <typename T>
static __device__ void finish(const sweep<T> &s, int64_t i, float sum)
{
    store(s.z + i, s.z0 ? fmaf(s.alpha, sum, s.beta * load(s.z0 + i)) : s.alpha * sum);
}

enum { THREADS = 256, LANES = 32, WARPS = THREADS / LANES };

/* ---- naive ---- */

/* One thread per sum: a column of A per thread where A is transposed, so that loads coalesce, else
 * a row of A per thread. */
template <typename T>
__global__ void dot_naive(sweep<T> s)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (s.trans ? s.C : s.R))
        return;
    const T *a = s.A + (s.trans ? i : i * s.C);
    const int64_t n = s.trans ? s.R : s.C, stride = s.trans ? s.C : 1;
    float sum = 0;
    for (int64_t first = 0; first < n; first += GEMM_RUN) {
        const int64_t end = min(first + GEMM_RUN, n);
        float run = 0;
        for (int64_t j = first; j < end; j++)
            run = fmaf(load(a + j * stride), load(s.v + j), run);
        sum += run;
    }
    finish(s, i, sum);
}

template <typename T>
__global__ void outer_naive(sweep<T> s)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t r = i / s.C, c = i % s.C;
    if (r < s.R)
        store(s.dA + i, s.alpha * load(s.w + (s.trans ? c : r)) * load(s.v + (s.trans ? r : c)));
}

struct gemv_naive {
    template <typename T>
    static size_t workspace(struct context *, const sweep<T> &)
    {
        return 0;
    }
    template <typename T>
    static int multiply(struct context *on, const sweep<T> &s)
    {
        const int64_t n = s.trans ? s.C : s.R;
        dot_naive<<<ceil_div(n, THREADS), THREADS, 0, on->stream>>>(s);
        return cudaGetLastError();
    }
    template <typename T>
    static int multiply_and_outer(struct context *on, const sweep<T> &s)
    {
        CUDA((cudaError_t)multiply(on, s));
        outer_naive<<<ceil_div(s.R * s.C, THREADS), THREADS, 0, on->stream>>>(s);
        return cudaGetLastError();
    }
};

/* A grid has 2147483647 blocks. */
OF_CALL(const char *, naive_declines,
        ceil_div(DIM(f, 'M') * DIM(f, 'K'), THREADS) > 0x7fffffff
            ? "more elements of A than a grid has threads (549755813632)"
            : NULL)

/* ---- wide ---- */

enum {
    RESIDENT = 4,          /* blocks per SM */
    IN_FLIGHT = 4,         /* vectors of a row that a thread has in flight */
    ROWS_IN_FLIGHT = 8,    /* transposed: rows with one vector in flight */
    ROWS_IN_FLIGHT_DA = 4, /* the same where it writes dA */
    MAX_GROUP = 8          /* warps per pair of rows */
};

template <typename T, int N>
static __device__ __forceinline__ float dot(const vec<T, N> &a, const float *y, float sum)
{
    #pragma unroll 8
    for (int i = 0; i < N; i++)
        sum = fmaf(a[i], y[i], sum);
    return sum;
}

/* The epilogue of a sum over one part: stores z, or, if there are several parts, stores the sum to
 * the workspace for gemm_add_parts(). */
template <typename T>
static __device__ __forceinline__ void store_sum(const sweep<T> &s, int64_t parts, int64_t part,
                                                 int64_t n, int64_t i, float sum)
{
    if (parts == 1)
        finish(s, i, sum);
    else
        s.workspace[part * n + i] = sum;
}

/* Stores a vector of dA: a factor times the elements x. */
template <int N, typename T>
static __device__ __forceinline__ void outer(T *to, float factor, const float *x)
{
    store_vec(to, make_vec<T, N>([&](int i) { return factor * x[i]; }));
}

/* z = A v.  A group of warps computes two rows, or a part of each.  Every thread has IN_FLIGHT
 * vectors of each row in flight before it uses the first: 128 KiB per SM. */
template <typename T, bool WIDE, bool OUTER>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    gemv_rows(sweep<T> s, int64_t parts, int64_t length, int group)
{
    constexpr int N = WIDTH<T, WIDE>; /* the elements of one load */
    __shared__ float sums[WARPS][2];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, step = group * LANES * N;
    const int64_t item = (int64_t)blockIdx.x * (WARPS / group) + warp / group;
    const int64_t pairs = ceil_div(s.R, 2), part = item / pairs, r = item % pairs * 2;
    const bool active = part < parts, second = r + 1 < s.R;
    const int64_t c = part * length + (warp % group * LANES + lane) * N;
    const T *a = s.A + r * s.C + c, *b = second ? a + s.C : a, *v = s.v + c;
    T *da = OUTER ? s.dA + r * s.C + c : NULL;
    int left = active ? (int)(min((part + 1) * length, s.C) - c) : 0;
    float sum[2] = {}, w[2] = {};

    if (OUTER && active) {
        w[0] = s.alpha * load(s.w + r);
        w[1] = s.alpha * load(s.w + r + second);
    }
    const auto batch = [&](auto count) { /* COUNT vectors of both rows */
                                         constexpr int COUNT = decltype(count)::value;
                                         vec<T, N> x[COUNT], y[COUNT];
                                         #pragma unroll COUNT
                                         for (int i = 0; i < COUNT; i++) {
                                             x[i] = load_vec<N>(a + i * step);
                                             y[i] = load_vec<N>(b + i * step);
                                         }
                                         #pragma unroll COUNT
                                         for (int i = 0; i < COUNT; i++) {
                                             float z[N];
                                             unpack(load_vec<N>(v + i * step), z);
                                             sum[0] = dot(x[i], z, sum[0]);
                                             sum[1] = dot(y[i], z, sum[1]);
                                             if (OUTER)
                                                 outer<N>(da + i * step, w[0], z);
                                             if (OUTER && second)
                                                 outer<N>(da + s.C + i * step, w[1], z);
                                         }
                                         a += COUNT * step, b += COUNT * step, v += COUNT * step,
                                             da += OUTER ? COUNT * step : 0;
    };
    #pragma unroll 1
    for (; left > (IN_FLIGHT - 1) * step; left -= IN_FLIGHT * step)
        batch(std::integral_constant<int, IN_FLIGHT>());
    #pragma unroll 1
    for (; left > 0; left -= step)
        batch(std::integral_constant<int, 1>());
    warp_sums(sum);
    if (lane == 0)
        sums[warp][0] = sum[0], sums[warp][1] = sum[1];
    __syncthreads();
    if (warp % group || lane > 1 || !active || (lane && !second))
        return;
    float all = 0;
    for (int i = 0; i < group; i++)
        all += sums[warp + i][lane];
    store_sum(s, parts, part, s.R, r + lane, all);
}

/* z = A^T v.  A block computes a strip of columns over `length` rows.  A thread has one vector of
 * the strip's columns; a warp takes every eighth row, with ROWS rows in flight.  Then the warps'
 * sums are added in order. */
template <typename T, bool WIDE, bool OUTER>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    gemv_columns(sweep<T> s, int64_t parts, int64_t length)
{
    constexpr int N = WIDTH<T, WIDE>; /* the elements of one load */
    constexpr int ROWS = OUTER ? ROWS_IN_FLIGHT_DA : ROWS_IN_FLIGHT;
    __shared__ float sums[WARPS][LANES * N];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int64_t strips = ceil_div(s.C, LANES * N), part = blockIdx.x / strips;
    const int64_t first = blockIdx.x % strips * LANES * N, c = first + lane * N;
    const int64_t end = min((part + 1) * length, s.R);
    const T *a = s.A + min(c, s.C - N);
    int64_t r = part * length + warp;
    float sum[N] = {}, w[N];

    if (OUTER) {
        unpack(load_vec<N>(s.w + min(c, s.C - N)), w);
        #pragma unroll 8
        for (int j = 0; j < N; j++)
            w[j] *= s.alpha;
    }
    const auto batch = [&](auto count) { /* COUNT rows */
                                         constexpr int COUNT = decltype(count)::value;
                                         vec<T, N> x[COUNT];
                                         float v[COUNT];
                                         #pragma unroll COUNT
                                         for (int i = 0; i < COUNT; i++) {
                                             x[i] = load_vec<N>(a + (r + i * WARPS) * s.C);
                                             v[i] = load(s.v + r + i * WARPS);
                                         }
                                         #pragma unroll COUNT
                                         for (int i = 0; i < COUNT; i++) {
                                             #pragma unroll 8
                                             for (int j = 0; j < N; j++)
                                                 sum[j] = fmaf(x[i][j], v[i], sum[j]);
                                             if (OUTER && c < s.C)
                                                 outer<N>(s.dA + (r + i * WARPS) * s.C + c, v[i],
                                                          w);
                                         }
    };
    #pragma unroll 1
    for (; r + (ROWS - 1) * WARPS < end; r += ROWS * WARPS)
        batch(std::integral_constant<int, ROWS>());
    #pragma unroll 1
    for (; r < end; r += WARPS)
        batch(std::integral_constant<int, 1>());
    #pragma unroll 8
    for (int j = 0; j < N; j++)
        sums[warp][lane * N + j] = sum[j];
    __syncthreads();
    const int64_t i = first + threadIdx.x;
    if (threadIdx.x >= LANES * N || i >= s.C)
        return;
    float all = 0;
    for (int k = 0; k < WARPS; k++)
        all += sums[k][threadIdx.x];
    store_sum(s, parts, part, s.C, i, all);
}

/* The partition of a sweep: parts of `length` columns, or rows where A is transposed. */
struct partition {
    int64_t parts, length, blocks;
    int group; /* warps per pair of rows */
};

/* Partitions n into about wanted / others parts.  A part is a multiple of `unit`, and at least
 * `min_length`. */
static partition make_partition(int64_t n, int64_t others, int64_t wanted, int64_t min_length,
                                int64_t unit)
{
    partition d = {};
    const int64_t fill = wanted / others, max_parts = n / min_length;
    const int64_t parts = fill < max_parts ? fill : max_parts;
    d.length = parts < 2 ? n : ceil_div(ceil_div(n, parts), unit) * unit;
    d.parts = ceil_div(n, d.length);
    return d;
}

/* Transposed: as many blocks as are resident.  Otherwise blocks are short, with as many warps per
 * row as its length allows, so that all SMs finish at the same time. */
template <typename T>
static partition partition_of(struct context *on, const sweep<T> &s)
{
    const int64_t blocks = RESIDENT * (int64_t)on->limits.sms;
    const int64_t elements = in_vectors<T>(s.C) ? WIDTH<T> : 1;
    if (s.trans) {
        const int64_t strips = ceil_div(s.C, LANES * elements);
        partition d = make_partition(s.R, strips, blocks, ROWS_IN_FLIGHT * WARPS, 1);
        d.blocks = strips * d.parts;
        return d;
    }
    const int64_t pairs = ceil_div(s.R, 2), step = IN_FLIGHT * LANES * elements;
    int group = 1;
    while (group < MAX_GROUP && s.C >= 2 * group * step)
        group *= 2;
    partition d = make_partition(s.C, pairs, blocks * WARPS / group, group * step, group * step);
    d.group = group;
    d.blocks = ceil_div(pairs * d.parts, WARPS / group);
    return d;
}

template <typename T, bool WIDE, bool OUTER>
static void start(struct context *on, const sweep<T> &s, const partition &d)
{
    auto *const columns = gemv_columns<T, WIDE, OUTER>;
    auto *const rows = gemv_rows<T, WIDE, OUTER>;
    if (s.trans)
        columns<<<d.blocks, THREADS, 0, on->stream>>>(s, d.parts, d.length);
    else
        rows<<<d.blocks, THREADS, 0, on->stream>>>(s, d.parts, d.length, d.group);
}

template <typename T, bool OUTER>
static int pass_over(struct context *on, const sweep<T> &s)
{
    const partition d = partition_of(on, s);
    if (in_vectors<T>(s.C))
        start<T, true, OUTER>(on, s, d);
    else
        start<T, false, OUTER>(on, s, d);
    CUDA(cudaGetLastError());
    return d.parts == 1 ? 0
                        : gemm_add_parts(on, s.workspace, d.parts, s.trans ? s.C : s.R, s.alpha,
                                         s.beta, s.z0, s.z);
}

/* One pass over A in vectors of 16 bytes, many of them in flight. */
struct gemv_wide {
    template <typename T>
    static size_t workspace(struct context *on, const sweep<T> &s)
    {
        const int64_t parts = partition_of(on, s).parts;
        return parts > 1 ? sizeof(float) * parts * (s.trans ? s.C : s.R) : 0;
    }
    template <typename T>
    static int multiply(struct context *on, const sweep<T> &s)
    {
        return pass_over<T, false>(on, s);
    }
    template <typename T>
    static int multiply_and_outer(struct context *on, const sweep<T> &s)
    {
        return pass_over<T, true>(on, s);
    }
};

static const char *wide_declines(const struct call *f)
{
    const int64_t M = DIM(f, 'M'), K = DIM(f, 'K');
    return ceil_div(M, LANES) * ceil_div(K, LANES) > 0x7fffffff
               ? "more than 2147483647 tiles of A of 32 x 32"
               : NULL;
}

GPU_KERNEL(wide, .idea = "16 bytes a load, parts of rows or columns added up in order",
           .pass = {gemv_forward<T, gemv_wide>, gemv_backward<T, gemv_wide>},
           .work = gemv_work<T, gemv_wide>, .declines = wide_declines);
GPU_KERNEL(naive, .idea = "one thread per sum",
           .pass = {gemv_forward<T, gemv_naive>, gemv_backward<T, gemv_naive>},
           .work = gemv_work<T, gemv_naive>, .declines = naive_declines);

/* ---- cuBLAS, to compare with ---- */

#ifdef CUDA_EMULATE
#define CUBLAS(T)
#else

struct gemv_cublas {
    template <typename T>
    static size_t workspace(struct context *, const sweep<T> &)
    {
        return 0;
    }
    template <typename T>
    static int multiply(struct context *on, const sweep<T> &s)
    {
        const int64_t n = s.trans ? s.C : s.R, K = s.trans ? s.R : s.C;
        const matrix<T> a = {s.A, n, K, s.trans}, v = {s.v, K, 1, false};
        if (s.z0 && s.z0 != s.z)
            CUDA(cudaMemcpyAsync(s.z, s.z0, sizeof(T) * n, cudaMemcpyDeviceToDevice, on->stream));
        return product_batch(on, 1, s.alpha, a, v, s.z0 ? s.beta : 0, s.z);
    }
    template <typename T>
    static int multiply_and_outer(struct context *on, const sweep<T> &s)
    {
        const matrix<T> left = {s.trans ? s.v : s.w, s.R, 1, false};
        const matrix<T> right = {s.trans ? s.w : s.v, 1, s.C, false};
        const int e = multiply(on, s);
        return e ? e : product_batch(on, 1, s.alpha, left, right, 0, s.dA);
    }
};

GPU_KERNEL(cublas, .idea = "NVIDIA's library as a product of one column, to compare with",
           .pass = {gemv_forward<T, gemv_cublas>, gemv_backward<T, gemv_cublas>},
           .work = gemv_work<T, gemv_cublas>, .products = 1);
#define CUBLAS(T) &cublas_impl<T>,
#endif

#define EACH(T) &wide_impl<T>, &naive_impl<T>, CUBLAS(T)
GPU_KERNELS(gemv, GPU_TYPES(EACH));
