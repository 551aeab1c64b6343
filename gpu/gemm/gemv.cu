/* gemv: everything is a pass over a matrix A [R,C] as it lies in memory: sums along its rows,
 *
 *     z[r] = alpha sum over c of A[r][c] v[c] + beta z0[r],
 *
 * or across them, z[c] = alpha sum over r of A[r][c] v[r] + beta z0[c].  Forward is along, or across
 * where A is transposed, and dx the other one, with dy for v.  The gradient of A is then, where v[j]
 * is what sum i has A's number multiplied by, alpha x[i] dy[j]: it can be written where that number
 * is read. */
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
    bool across;
    float alpha, beta;
    float *room;
};

template <typename T>
static sweep<T> forward_sweep(const struct frame *f)
{
    const struct gemv *a = ARGS(f, gemv);
    const bool flip = f->choice[GEMV_TRANSPOSE_A];
    const int64_t M = DIM(f, 'M'), K = DIM(f, 'K');
    sweep<T> s = {};
    s.A = (const T *)a->A;
    s.v = (const T *)a->x;
    s.z0 = (const T *)a->y0;
    s.z = (T *)a->y;
    s.R = flip ? K : M;
    s.C = flip ? M : K;
    s.across = flip;
    s.alpha = (float)f->real[GEMV_ALPHA];
    s.beta = (float)f->real[GEMV_BETA];
    s.room = (float *)f->work;
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
    s.across = !s.across;
    return s;
}

/* Both passes by an engine that has add_up(sweep), add_up_and_spread(sweep), which also makes dA,
 * and room(sweep). */
template <typename T, typename ENGINE>
static int gemv_forward(const struct frame *f)
{
    return ENGINE::add_up(forward_sweep<T>(f));
}

template <typename T, typename ENGINE>
static int gemv_backward(const struct frame *f)
{
    const struct gemv *g = GRADS(f, gemv);
    int e = ENGINE::add_up_and_spread(backward_sweep<T>(f));
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

/* One thread a sum.  Across, neighbours read side by side; along, each its own row. */
template <typename T>
__global__ void add_up_naive(sweep<T> s)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (s.across ? s.C : s.R))
        return;
    const T *a = s.A + (s.across ? i : i * s.C);
    const int64_t n = s.across ? s.R : s.C, apart = s.across ? s.C : 1;
    float sum = 0;
    for (int64_t first = 0; first < n; first += RUN) {
        const int64_t end = min(first + RUN, n);
        float run = 0;
        for (int64_t j = first; j < end; j++)
            run = fmaf(load(a + j * apart), load(s.v + j), run);
        sum += run;
    }
    finish(s, i, sum);
}

template <typename T>
__global__ void spread_naive(sweep<T> s)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t r = i / s.C, c = i % s.C;
    if (r < s.R)
        store(s.dA + i, s.alpha * load(s.w + (s.across ? c : r)) * load(s.v + (s.across ? r : c)));
}

struct gemv_naive {
    template <typename T>
    static size_t workspace(const sweep<T> &)
    {
        return 0;
    }
    template <typename T>
    static int add_up(const sweep<T> &s)
    {
        const int64_t n = s.across ? s.C : s.R;
        add_up_naive<<<ceil_div(n, THREADS), THREADS, 0, gpu_stream()>>>(s);
        return cudaGetLastError();
    }
    template <typename T>
    static int add_up_and_spread(const sweep<T> &s)
    {
        CUDA((cudaError_t)add_up(s));
        spread_naive<<<ceil_div(s.R * s.C, THREADS), THREADS, 0, gpu_stream()>>>(s);
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
    RESIDENT = 4,    /* blocks on an SM */
    AHEAD = 4,       /* pieces of a row that a thread has in flight */
    DEEP = 8,        /* rows of which it has one in flight, across */
    DEEP_SPREAD = 4, /* and where it writes dA */
    TEAM = 8         /* warps on a pair of rows, at most */
};

/* What a thread loads at once: WIDE, 16 bytes, where rows are of so many; else one number. */
template <typename T, bool WIDE>
struct piece {
    enum { N = 16 / sizeof(T) };
    uint4 bits;
};
template <typename T>
struct piece<T, false> {
    enum { N = 1 };
    T bits;
};

static __device__ __forceinline__ void numbers(float x[4], const piece<float, true> &p)
{
    x[0] = __uint_as_float(p.bits.x), x[1] = __uint_as_float(p.bits.y);
    x[2] = __uint_as_float(p.bits.z), x[3] = __uint_as_float(p.bits.w);
}

/* A bf16 is the upper half of a float. */
static __device__ __forceinline__ void numbers(float x[8], const piece<__nv_bfloat16, true> &p)
{
    const unsigned pair[4] = {p.bits.x, p.bits.y, p.bits.z, p.bits.w};
    #pragma unroll 4
    for (int i = 0; i < 4; i++) {
        x[2 * i] = __uint_as_float(pair[i] << 16);
        x[2 * i + 1] = __uint_as_float(pair[i] & 0xffff0000);
    }
}

template <typename T>
static __device__ __forceinline__ void numbers(float x[1], const piece<T, false> &p)
{
    x[0] = load(&p.bits);
}

template <typename T, bool WIDE>
static __device__ __forceinline__ piece<T, WIDE> look(const T *from)
{
    return *(const piece<T, WIDE> *)from;
}

template <typename T, bool WIDE>
static __device__ __forceinline__ float dot(const piece<T, WIDE> &a, const float *y, float sum)
{
    float x[piece<T, WIDE>::N];
    numbers(x, a);
    #pragma unroll 8
    for (int i = 0; i < piece<T, WIDE>::N; i++)
        sum = fmaf(x[i], y[i], sum);
    return sum;
}

/* The sums of a part are finished where it is the only one, else kept for gemm_add_parts(). */
template <typename T>
static __device__ __forceinline__ void keep(const sweep<T> &s, int64_t parts, int64_t part,
                                            int64_t n, int64_t i, float sum)
{
    if (parts == 1)
        finish(s, i, sum);
    else
        s.room[part * n + i] = sum;
}

static __device__ __forceinline__ void write(float *to, const float x[4])
{
    *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
}

static __device__ __forceinline__ void write(__nv_bfloat16 *to, const float x[8])
{
    __nv_bfloat162 pair[4];
    uint4 bits;
    #pragma unroll 4
    for (int i = 0; i < 4; i++)
        pair[i] = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
    memcpy(&bits, pair, sizeof bits);
    *(uint4 *)to = bits;
}

/* A piece of dA: a factor times the numbers x. */
template <typename T, bool WIDE>
static __device__ __forceinline__ void spread(T *to, float factor, const float *x)
{
    float y[piece<T, WIDE>::N];
    #pragma unroll 8
    for (int i = 0; i < piece<T, WIDE>::N; i++)
        y[i] = factor * x[i];
    if constexpr (WIDE)
        write(to, y);
    else
        store(to, y[0]);
}

/* A team of warps adds up two rows, or a part of each, and has AHEAD pieces of both in flight in
 * every thread before it uses the first: 128 KiB on an SM. */
template <typename T, bool WIDE, bool SPREAD>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    sum_along(sweep<T> s, int64_t parts, int64_t length, int team)
{
    typedef piece<T, WIDE> P;
    __shared__ float sums[WARPS][2];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, step = team * LANES * P::N;
    const int64_t number = (int64_t)blockIdx.x * (WARPS / team) + warp / team;
    const int64_t pairs = ceil_div(s.R, 2), part = number / pairs, r = number % pairs * 2;
    const bool there = part < parts, second = r + 1 < s.R;
    const int64_t c = part * length + (warp % team * LANES + lane) * P::N;
    const T *a = s.A + r * s.C + c, *b = second ? a + s.C : a, *v = s.v + c;
    T *da = SPREAD ? s.dA + r * s.C + c : NULL;
    int left = there ? (int)(min((part + 1) * length, s.C) - c) : 0;
    float sum[2] = {}, w[2] = {};

    if (SPREAD && there) {
        w[0] = s.alpha * load(s.w + r);
        w[1] = s.alpha * load(s.w + r + second);
    }
    #pragma unroll 1
    for (; left > (AHEAD - 1) * step; left -= AHEAD * step) {
        P x[AHEAD], y[AHEAD];
        #pragma unroll 4
        for (int i = 0; i < AHEAD; i++) {
            x[i] = look<T, WIDE>(a + i * step);
            y[i] = look<T, WIDE>(b + i * step);
        }
        #pragma unroll 4
        for (int i = 0; i < AHEAD; i++) {
            float z[P::N];
            numbers(z, look<T, WIDE>(v + i * step));
            sum[0] = dot(x[i], z, sum[0]);
            sum[1] = dot(y[i], z, sum[1]);
            if (SPREAD)
                spread<T, WIDE>(da + i * step, w[0], z);
            if (SPREAD && second)
                spread<T, WIDE>(da + s.C + i * step, w[1], z);
        }
        a += AHEAD * step, b += AHEAD * step, v += AHEAD * step, da += SPREAD ? AHEAD * step : 0;
    }
    #pragma unroll 1
    for (; left > 0; left -= step, a += step, b += step, v += step, da += SPREAD ? step : 0) {
        float z[P::N];
        numbers(z, look<T, WIDE>(v));
        sum[0] = dot(look<T, WIDE>(a), z, sum[0]);
        sum[1] = dot(look<T, WIDE>(b), z, sum[1]);
        if (SPREAD)
            spread<T, WIDE>(da, w[0], z);
        if (SPREAD && second)
            spread<T, WIDE>(da + s.C, w[1], z);
    }
    for (int d = LANES / 2; d; d /= 2) {
        sum[0] += __shfl_xor_sync(~0u, sum[0], d);
        sum[1] += __shfl_xor_sync(~0u, sum[1], d);
    }
    if (lane == 0)
        sums[warp][0] = sum[0], sums[warp][1] = sum[1];
    __syncthreads();
    if (warp % team || lane > 1 || !there || (lane && !second))
        return;
    float all = 0;
    for (int i = 0; i < team; i++)
        all += sums[warp + i][lane];
    keep(s, parts, part, s.R, r + lane, all);
}

/* A block adds up a strip of columns over `length` rows.  A thread has a piece of the strip, a
 * warp every eighth row, and some rows in flight; then the warps' sums are added in order. */
template <typename T, bool WIDE, bool SPREAD>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    sum_across(sweep<T> s, int64_t parts, int64_t length)
{
    typedef piece<T, WIDE> P;
    const int ROWS = SPREAD ? DEEP_SPREAD : DEEP;
    __shared__ float sums[WARPS][LANES * P::N];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int64_t strips = ceil_div(s.C, LANES * P::N), part = blockIdx.x / strips;
    const int64_t first = blockIdx.x % strips * LANES * P::N, c = first + lane * P::N;
    const int64_t end = min((part + 1) * length, s.R);
    const T *a = s.A + min(c, s.C - P::N);
    int64_t r = part * length + warp;
    float sum[P::N] = {}, w[P::N], y[P::N];

    if (SPREAD) {
        numbers(w, look<T, WIDE>(s.w + min(c, s.C - P::N)));
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
            x[i] = look<T, WIDE>(a + (r + i * WARPS) * s.C);
            v[i] = load(s.v + r + i * WARPS);
        }
        #pragma unroll 8
        for (int i = 0; i < ROWS; i++) {
            numbers(y, x[i]);
            #pragma unroll 8
            for (int j = 0; j < P::N; j++)
                sum[j] = fmaf(y[j], v[i], sum[j]);
            if (SPREAD && c < s.C)
                spread<T, WIDE>(s.dA + (r + i * WARPS) * s.C + c, v[i], w);
        }
    }
    #pragma unroll 1
    for (; r < end; r += WARPS) {
        const float v = load(s.v + r);
        numbers(y, look<T, WIDE>(a + r * s.C));
        #pragma unroll 8
        for (int j = 0; j < P::N; j++)
            sum[j] = fmaf(y[j], v, sum[j]);
        if (SPREAD && c < s.C)
            spread<T, WIDE>(s.dA + r * s.C + c, v, w);
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
    keep(s, parts, part, s.C, i, all);
}

/* How a sweep is divided: parts of so many columns, or rows where it goes across, so that there
 * are so many teams of warps, or blocks, and none has less than `least` to do. */
struct division {
    int64_t parts, length, blocks;
    int team; /* warps on a pair of rows */
};

static division divided(int64_t n, int64_t others, int64_t wanted, int64_t least, int64_t unit)
{
    division d = {};
    const int64_t fill = wanted / others, most = n / least;
    const int64_t parts = fill < most ? fill : most;
    d.length = parts < 2 ? n : ceil_div(ceil_div(n, parts), unit) * unit;
    d.parts = ceil_div(n, d.length);
    return d;
}

template <typename T>
static bool wide_rows(int64_t C)
{
    return C * sizeof(T) % 16 == 0;
}

/* A block a place for one, across; along, a block's work is short, as far as rows are long enough
 * for all of its warps, so that SMs end at the same time. */
template <typename T>
static division division_of(const sweep<T> &s)
{
    const int64_t blocks = RESIDENT * (int64_t)gpu_properties().multiProcessorCount;
    const int64_t piece = wide_rows<T>(s.C) ? 16 / sizeof(T) : 1;
    if (s.across) {
        const int64_t strips = ceil_div(s.C, LANES * piece);
        division d = divided(s.R, strips, blocks, DEEP * WARPS, 1);
        d.blocks = strips * d.parts;
        return d;
    }
    const int64_t pairs = ceil_div(s.R, 2), step = AHEAD * LANES * piece;
    int team = 1;
    while (team < TEAM && s.C >= 2 * team * step)
        team *= 2;
    division d = divided(s.C, pairs, blocks * WARPS / team, team * step, team * step);
    d.team = team;
    d.blocks = ceil_div(pairs * d.parts, WARPS / team);
    return d;
}

template <typename T, bool WIDE, bool SPREAD>
static void start(const sweep<T> &s, const division &d)
{
    auto *const across = sum_across<T, WIDE, SPREAD>;
    auto *const along = sum_along<T, WIDE, SPREAD>;
    if (s.across)
        across<<<d.blocks, THREADS, 0, gpu_stream()>>>(s, d.parts, d.length);
    else
        along<<<d.blocks, THREADS, 0, gpu_stream()>>>(s, d.parts, d.length, d.team);
}

template <typename T, bool SPREAD>
static int pass_over(const sweep<T> &s)
{
    const division d = division_of(s);
    if (wide_rows<T>(s.C))
        start<T, true, SPREAD>(s, d);
    else
        start<T, false, SPREAD>(s, d);
    CUDA(cudaGetLastError());
    return d.parts == 1
               ? 0
               : gemm_add_parts(s.room, d.parts, s.across ? s.C : s.R, s.alpha, s.beta, s.z0, s.z);
}

/* One pass over A in pieces of 16 bytes, many of them in flight. */
struct gemv_wide {
    template <typename T>
    static size_t workspace(const sweep<T> &s)
    {
        const int64_t parts = division_of(s).parts;
        return parts > 1 ? sizeof(float) * parts * (s.across ? s.C : s.R) : 0;
    }
    template <typename T>
    static int add_up(const sweep<T> &s)
    {
        return pass_over<T, false>(s);
    }
    template <typename T>
    static int add_up_and_spread(const sweep<T> &s)
    {
        return pass_over<T, true>(s);
    }
};

static const char *wide_declines(const struct frame *f)
{
    const int64_t M = DIM(f, 'M'), K = DIM(f, 'K');
    return ceil_div(M, LANES) * ceil_div(K, LANES) > 0x7fffffff
               ? "more than 2147483647 pieces of A of 32 x 32"
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
    static int add_up(const sweep<T> &s)
    {
        const int64_t n = s.across ? s.C : s.R, K = s.across ? s.R : s.C;
        const matrix<T> a = {s.A, n, K, s.across}, v = {s.v, K, 1, false};
        if (s.z0)
            CUDA(cudaMemcpyAsync(s.z, s.z0, sizeof(T) * n, cudaMemcpyDeviceToDevice, gpu_stream()));
        return product_batch(1, s.alpha, a, v, s.z0 ? s.beta : 0, s.z);
    }
    template <typename T>
    static int add_up_and_spread(const sweep<T> &s)
    {
        const matrix<T> left = {s.across ? s.v : s.w, s.R, 1, false};
        const matrix<T> right = {s.across ? s.w : s.v, 1, s.C, false};
        const int e = add_up(s);
        return e ? e : product_batch(1, s.alpha, left, right, 0, s.dA);
    }
};

GEMV_IMPLS(cublas, "NVIDIA's library as a product of one column, to compare with", NULL);
#define AND_CUBLAS(bits) , &gemv_cublas##bits
#endif

GPU_KERNEL_LIST(gemv, 32, &gemv_wide32, &gemv_naive32 AND_CUBLAS(32));
GPU_KERNEL_LIST(gemv, 16, &gemv_wide16, &gemv_naive16 AND_CUBLAS(16));
