/* gemv: one pass over a matrix A [R,C] as it lies in memory, z = alpha A v + beta z0,
 *
 *     z[r] = alpha sum over c of A[r][c] v[c] + beta z0[r],
 *
 * or, transposed, z = alpha A^T v + beta z0,
 *
 *     z[c] = alpha sum over r of A[r][c] v[r] + beta z0[c].
 *
 * Forward is one of them, and dx the other one, with v = dy.  The same pass writes the gradient of
 * A, the outer product alpha x dy^T (or its transpose): the element at the place of A that is
 * read.
 *
 * naive: a thread per sum.  wide: 16 bytes per load; a group of warps per two rows, or,
 * transposed, a block per strip of columns. */
#include "common/ops/gemv.h"
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
static sweep<T> forward_sweep(const struct frame *f)
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

/* dx, the other way with dy, and dA. */
template <typename T>
static sweep<T> backward_sweep(const struct frame *f)
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

/* Both passes by an engine that has multiply(sweep), multiply_and_outer(sweep), which also makes
 * dA, and workspace(sweep). */
template <typename T, typename ENGINE>
static int gemv_forward(const struct frame *f)
{
    return ENGINE::multiply(forward_sweep<T>(f));
}

template <typename T, typename ENGINE>
static int gemv_backward(const struct frame *f)
{
    const struct gemv *g = GRADS(f, gemv);
    int e = ENGINE::multiply_and_outer(backward_sweep<T>(f));
    if (!e && g->y0)
        e = gemm_scale((T *)g->y0, (const T *)g->y, (float)f->real[GEMV_BETA], DIM(f, 'M'));
    return e;
}

template <typename T, typename ENGINE>
static size_t gemv_work(const struct frame *f, enum pass p)
{
    return ENGINE::workspace(p == FORWARD ? forward_sweep<T>(f) : backward_sweep<T>(f));
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
    for (int64_t first = 0; first < n; first += RUN) {
        const int64_t end = min(first + RUN, n);
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
    static size_t workspace(const sweep<T> &)
    {
        return 0;
    }
    template <typename T>
    static int multiply(const sweep<T> &s)
    {
        const int64_t n = s.trans ? s.C : s.R;
        dot_naive<<<ceil_div(n, THREADS), THREADS, 0, gpu_stream()>>>(s);
        return cudaGetLastError();
    }
    template <typename T>
    static int multiply_and_outer(const sweep<T> &s)
    {
        CUDA((cudaError_t)multiply(s));
        outer_naive<<<ceil_div(s.R * s.C, THREADS), THREADS, 0, gpu_stream()>>>(s);
        return cudaGetLastError();
    }
};

/* A grid has 2147483647 blocks. */
static const char *naive_declines(const struct frame *f)
{
    return ceil_div(DIM(f, 'M') * DIM(f, 'K'), THREADS) > 0x7fffffff
               ? "more elements of A than a grid has threads (549755813632)"
               : NULL;
}

/* ---- wide ---- */

enum {
    RESIDENT = 4,          /* blocks per SM */
    IN_FLIGHT = 4,         /* vectors of a row that a thread has in flight */
    ROWS_IN_FLIGHT = 8,    /* transposed: rows of which it has one vector in flight */
    ROWS_IN_FLIGHT_DA = 4, /* and where it writes dA */
    MAX_GROUP = 8          /* warps per pair of rows */
};

/* What a thread loads at once: WIDE, 16 bytes, where rows are a multiple of that; else one
 * element. */
template <typename T, bool WIDE>
struct gemv_vector {
    enum { N = 16 / sizeof(T) };
    uint4 bits;
};
template <typename T>
struct gemv_vector<T, false> {
    enum { N = 1 };
    T bits;
};

static __device__ __forceinline__ void unpack(float x[4], const gemv_vector<float, true> &p)
{
    x[0] = __uint_as_float(p.bits.x), x[1] = __uint_as_float(p.bits.y);
    x[2] = __uint_as_float(p.bits.z), x[3] = __uint_as_float(p.bits.w);
}

/* A bf16 is the upper half of a float. */
static __device__ __forceinline__ void unpack(float x[8], const gemv_vector<__nv_bfloat16, true> &p)
{
    const unsigned pair[4] = {p.bits.x, p.bits.y, p.bits.z, p.bits.w};
    #pragma unroll 4
    for (int i = 0; i < 4; i++) {
        x[2 * i] = __uint_as_float(pair[i] << 16);
        x[2 * i + 1] = __uint_as_float(pair[i] & 0xffff0000);
    }
}

template <typename T>
static __device__ __forceinline__ void unpack(float x[1], const gemv_vector<T, false> &p)
{
    x[0] = load(&p.bits);
}

template <typename T, bool WIDE>
static __device__ __forceinline__ gemv_vector<T, WIDE> load_vector(const T *from)
{
    return *(const gemv_vector<T, WIDE> *)from;
}

template <typename T, bool WIDE>
static __device__ __forceinline__ float dot(const gemv_vector<T, WIDE> &a, const float *y,
                                            float sum)
{
    float x[gemv_vector<T, WIDE>::N];
    unpack(x, a);
    #pragma unroll 8
    for (int i = 0; i < gemv_vector<T, WIDE>::N; i++)
        sum = fmaf(x[i], y[i], sum);
    return sum;
}

/* The epilogue of a sum over one part: z, or, with several parts, the workspace for
 * gemm_add_parts(). */
template <typename T>
static __device__ __forceinline__ void store_sum(const sweep<T> &s, int64_t parts, int64_t part,
                                                 int64_t n, int64_t i, float sum)
{
    if (parts == 1)
        finish(s, i, sum);
    else
        s.workspace[part * n + i] = sum;
}

static __device__ __forceinline__ void store_vector(float *to, const float x[4])
{
    *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
}

static __device__ __forceinline__ void store_vector(__nv_bfloat16 *to, const float x[8])
{
    __nv_bfloat162 pair[4];
    uint4 bits;
    #pragma unroll 4
    for (int i = 0; i < 4; i++)
        pair[i] = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
    memcpy(&bits, pair, sizeof bits);
    *(uint4 *)to = bits;
}

/* A vector of dA: a factor times the elements x. */
template <typename T, bool WIDE>
static __device__ __forceinline__ void outer(T *to, float factor, const float *x)
{
    float y[gemv_vector<T, WIDE>::N];
    #pragma unroll 8
    for (int i = 0; i < gemv_vector<T, WIDE>::N; i++)
        y[i] = factor * x[i];
    if constexpr (WIDE)
        store_vector(to, y);
    else
        store(to, y[0]);
}

/* z = A v.  A group of warps computes two rows, or a part of each.  Every thread has IN_FLIGHT
 * vectors of both in flight before it uses the first: 128 KiB per SM. */
template <typename T, bool WIDE, bool OUTER>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    gemv_rows(sweep<T> s, int64_t parts, int64_t length, int group)
{
    typedef gemv_vector<T, WIDE> P;
    __shared__ float sums[WARPS][2];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, step = group * LANES * P::N;
    const int64_t item = (int64_t)blockIdx.x * (WARPS / group) + warp / group;
    const int64_t pairs = ceil_div(s.R, 2), part = item / pairs, r = item % pairs * 2;
    const bool active = part < parts, second = r + 1 < s.R;
    const int64_t c = part * length + (warp % group * LANES + lane) * P::N;
    const T *a = s.A + r * s.C + c, *b = second ? a + s.C : a, *v = s.v + c;
    T *da = OUTER ? s.dA + r * s.C + c : NULL;
    int left = active ? (int)(min((part + 1) * length, s.C) - c) : 0;
    float sum[2] = {}, w[2] = {};

    if (OUTER && active) {
        w[0] = s.alpha * load(s.w + r);
        w[1] = s.alpha * load(s.w + r + second);
    }
    #pragma unroll 1
    for (; left > (IN_FLIGHT - 1) * step; left -= IN_FLIGHT * step) {
        P x[IN_FLIGHT], y[IN_FLIGHT];
        #pragma unroll 4
        for (int i = 0; i < IN_FLIGHT; i++) {
            x[i] = load_vector<T, WIDE>(a + i * step);
            y[i] = load_vector<T, WIDE>(b + i * step);
        }
        #pragma unroll 4
        for (int i = 0; i < IN_FLIGHT; i++) {
            float z[P::N];
            unpack(z, load_vector<T, WIDE>(v + i * step));
            sum[0] = dot(x[i], z, sum[0]);
            sum[1] = dot(y[i], z, sum[1]);
            if (OUTER)
                outer<T, WIDE>(da + i * step, w[0], z);
            if (OUTER && second)
                outer<T, WIDE>(da + s.C + i * step, w[1], z);
        }
        a += IN_FLIGHT * step, b += IN_FLIGHT * step, v += IN_FLIGHT * step,
            da += OUTER ? IN_FLIGHT * step : 0;
    }
    #pragma unroll 1
    for (; left > 0; left -= step, a += step, b += step, v += step, da += OUTER ? step : 0) {
        float z[P::N];
        unpack(z, load_vector<T, WIDE>(v));
        sum[0] = dot(load_vector<T, WIDE>(a), z, sum[0]);
        sum[1] = dot(load_vector<T, WIDE>(b), z, sum[1]);
        if (OUTER)
            outer<T, WIDE>(da, w[0], z);
        if (OUTER && second)
            outer<T, WIDE>(da + s.C, w[1], z);
    }
    for (int d = LANES / 2; d; d /= 2) {
        sum[0] += __shfl_xor_sync(~0u, sum[0], d);
        sum[1] += __shfl_xor_sync(~0u, sum[1], d);
    }
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

/* z = A^T v.  A block computes a strip of columns over `length` rows: a thread has a vector of the
 * strip's columns, a warp every eighth row, ROWS of them in flight.  Then the warps' sums are added
 * in order. */
template <typename T, bool WIDE, bool OUTER>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    gemv_columns(sweep<T> s, int64_t parts, int64_t length)
{
    typedef gemv_vector<T, WIDE> P;
    const int ROWS = OUTER ? ROWS_IN_FLIGHT_DA : ROWS_IN_FLIGHT;
    __shared__ float sums[WARPS][LANES * P::N];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int64_t strips = ceil_div(s.C, LANES * P::N), part = blockIdx.x / strips;
    const int64_t first = blockIdx.x % strips * LANES * P::N, c = first + lane * P::N;
    const int64_t end = min((part + 1) * length, s.R);
    const T *a = s.A + min(c, s.C - P::N);
    int64_t r = part * length + warp;
    float sum[P::N] = {}, w[P::N], y[P::N];

    if (OUTER) {
        unpack(w, load_vector<T, WIDE>(s.w + min(c, s.C - P::N)));
        #pragma unroll 8
        for (int j = 0; j < P::N; j++)
            w[j] *= s.alpha;
    }
    #pragma unroll 1
    for (; r + (ROWS - 1) * WARPS < end; r += ROWS * WARPS) {
        P x[ROWS];
        float v[ROWS];
        #pragma unroll 8
        for (int i = 0; i < ROWS; i++) {
            x[i] = load_vector<T, WIDE>(a + (r + i * WARPS) * s.C);
            v[i] = load(s.v + r + i * WARPS);
        }
        #pragma unroll 8
        for (int i = 0; i < ROWS; i++) {
            unpack(y, x[i]);
            #pragma unroll 8
            for (int j = 0; j < P::N; j++)
                sum[j] = fmaf(y[j], v[i], sum[j]);
            if (OUTER && c < s.C)
                outer<T, WIDE>(s.dA + (r + i * WARPS) * s.C + c, v[i], w);
        }
    }
    #pragma unroll 1
    for (; r < end; r += WARPS) {
        const float v = load(s.v + r);
        unpack(y, load_vector<T, WIDE>(a + r * s.C));
        #pragma unroll 8
        for (int j = 0; j < P::N; j++)
            sum[j] = fmaf(y[j], v, sum[j]);
        if (OUTER && c < s.C)
            outer<T, WIDE>(s.dA + r * s.C + c, v, w);
    }
    #pragma unroll 8
    for (int j = 0; j < P::N; j++)
        sums[warp][lane * P::N + j] = sum[j];
    __syncthreads();
    const int64_t i = first + threadIdx.x;
    if (threadIdx.x >= LANES * P::N || i >= s.C)
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

/* The partition of n into about wanted / others parts of at least `min_length`, multiples of
 * `unit`. */
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

template <typename T>
static bool wide_rows(int64_t C)
{
    return C * sizeof(T) % 16 == 0;
}

/* Transposed: as many blocks as are resident.  Else blocks are short, as many warps per row as its
 * length allows, so that the SMs end at the same time. */
template <typename T>
static partition partition_of(const sweep<T> &s)
{
    const int64_t blocks = RESIDENT * (int64_t)gpu_limits()->sms;
    const int64_t elements = wide_rows<T>(s.C) ? 16 / sizeof(T) : 1;
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
static void start(const sweep<T> &s, const partition &d)
{
    auto *const columns = gemv_columns<T, WIDE, OUTER>;
    auto *const rows = gemv_rows<T, WIDE, OUTER>;
    if (s.trans)
        columns<<<d.blocks, THREADS, 0, gpu_stream()>>>(s, d.parts, d.length);
    else
        rows<<<d.blocks, THREADS, 0, gpu_stream()>>>(s, d.parts, d.length, d.group);
}

template <typename T, bool OUTER>
static int pass_over(const sweep<T> &s)
{
    const partition d = partition_of(s);
    if (wide_rows<T>(s.C))
        start<T, true, OUTER>(s, d);
    else
        start<T, false, OUTER>(s, d);
    CUDA(cudaGetLastError());
    return d.parts == 1 ? 0
                        : gemm_add_parts(s.workspace, d.parts, s.trans ? s.C : s.R, s.alpha, s.beta,
                                         s.z0, s.z);
}

/* One pass over A in vectors of 16 bytes, many of them in flight. */
struct gemv_wide {
    template <typename T>
    static size_t workspace(const sweep<T> &s)
    {
        const int64_t parts = partition_of(s).parts;
        return parts > 1 ? sizeof(float) * parts * (s.trans ? s.C : s.R) : 0;
    }
    template <typename T>
    static int multiply(const sweep<T> &s)
    {
        return pass_over<T, false>(s);
    }
    template <typename T>
    static int multiply_and_outer(const sweep<T> &s)
    {
        return pass_over<T, true>(s);
    }
};

static const char *wide_declines(const struct frame *f)
{
    const int64_t M = DIM(f, 'M'), K = DIM(f, 'K');
    return ceil_div(M, LANES) * ceil_div(K, LANES) > 0x7fffffff
               ? "more than 2147483647 tiles of A of 32 x 32"
               : NULL;
}

#define GEMV_IMPL(bits, T, kernel, idea, declines)                                                 \
    static const struct impl gemv_##kernel##bits = {                                               \
        #kernel,                                                                                   \
        idea,                                                                                      \
        {gemv_forward<T, gemv_##kernel>, gemv_backward<T, gemv_##kernel>},                         \
        gemv_work<T, gemv_##kernel>,                                                               \
        declines,                                                                                  \
        NULL,                                                                                      \
        0,                                                                                         \
        0}
#define GEMV_IMPLS(kernel, idea, declines)                                                         \
    GEMV_IMPL(32, float, kernel, idea, declines);                                                  \
    GEMV_IMPL(16, __nv_bfloat16, kernel, idea, declines)

GEMV_IMPLS(wide, "16 bytes a load, parts of rows or columns added up in order", wide_declines);
GEMV_IMPLS(naive, "one thread a sum", naive_declines);

/* ---- cuBLAS, to compare with ---- */

#ifdef CUDA_EMULATE
#define AND_CUBLAS(bits)
#else

struct gemv_cublas {
    template <typename T>
    static size_t workspace(const sweep<T> &)
    {
        return 0;
    }
    template <typename T>
    static int multiply(const sweep<T> &s)
    {
        const int64_t n = s.trans ? s.C : s.R, K = s.trans ? s.R : s.C;
        const matrix<T> a = {s.A, n, K, s.trans}, v = {s.v, K, 1, false};
        if (s.z0)
            CUDA(cudaMemcpyAsync(s.z, s.z0, sizeof(T) * n, cudaMemcpyDeviceToDevice, gpu_stream()));
        return product_batch(1, s.alpha, a, v, s.z0 ? s.beta : 0, s.z);
    }
    template <typename T>
    static int multiply_and_outer(const sweep<T> &s)
    {
        const matrix<T> left = {s.trans ? s.v : s.w, s.R, 1, false};
        const matrix<T> right = {s.trans ? s.w : s.v, 1, s.C, false};
        const int e = multiply(s);
        return e ? e : product_batch(1, s.alpha, left, right, 0, s.dA);
    }
};

GEMV_IMPLS(cublas, "NVIDIA's library as a product of one column, to compare with", NULL);
#define AND_CUBLAS(bits) , &gemv_cublas##bits
#endif

GPU_KERNEL_LIST(gemv, 32, &gemv_wide32, &gemv_naive32 AND_CUBLAS(32));
GPU_KERNEL_LIST(gemv, 16, &gemv_wide16, &gemv_naive16 AND_CUBLAS(16));
