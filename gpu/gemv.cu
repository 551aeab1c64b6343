/* gemv: everything is a pass over a matrix A [R,C] as it lies in memory: sums along its rows,
 *
 *     z[r] = alpha sum over c of A[r][c] v[c] + beta z0[r],
 *
 * or across them, z[c] = alpha sum over r of A[r][c] v[r] + beta z0[c], and the gradient
 * dA[r][c] = alpha v[r] w[c].  Forward is along, or across where A is transposed, and dx the
 * other one. */
#include "gpu/gemm.cuh"
#include "gpu/product.cuh"
#include "common/ops/gemv.h"

/* One pass over A. */
template <typename T>
struct sweep {
    const T *A, *v, *z0; /* z0: NULL, nothing is added */
    T *z;
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

/* dx: the other way, with dy. */
template <typename T>
static sweep<T> backward_sweep(const struct frame *f)
{
    const struct gemv *g = GRADS(f, gemv);
    sweep<T> s = forward_sweep<T>(f);
    s.v = (const T *)g->y;
    s.z0 = NULL;
    s.z = (T *)g->x;
    s.across = !s.across;
    return s;
}

/* The gradient of A: left [R] times right [C]. */
template <typename T>
struct outer {
    const T *left, *right;
    T *dA;
    int64_t R, C;
    float alpha;
};

template <typename T>
static outer<T> outer_of(const struct frame *f)
{
    const struct gemv *a = ARGS(f, gemv), *g = GRADS(f, gemv);
    const sweep<T> s = forward_sweep<T>(f);
    const bool flip = f->choice[GEMV_TRANSPOSE_A];
    return {(const T *)(flip ? a->x : g->y),
            (const T *)(flip ? g->y : a->x),
            (T *)g->A,
            s.R,
            s.C,
            s.alpha};
}

/* Both passes by an engine that has add_up(sweep), spread(outer) and room(sweep). */
template <typename T, typename ENGINE>
static int gemv_forward(const struct frame *f)
{
    return ENGINE::add_up(forward_sweep<T>(f));
}

template <typename T, typename ENGINE>
static int gemv_backward(const struct frame *f)
{
    const struct gemv *g = GRADS(f, gemv);
    int e = ENGINE::add_up(backward_sweep<T>(f));
    if (!e)
        e = ENGINE::spread(outer_of<T>(f));
    if (!e && g->y0)
        e = gemm_scale((T *)g->y0, (const T *)g->y, (float)f->real[GEMV_BETA], DIM(f, 'M'));
    return e;
}

template <typename T, typename ENGINE>
static size_t gemv_work(const struct frame *f, enum pass p)
{
    return ENGINE::room(p == FORWARD ? forward_sweep<T>(f) : backward_sweep<T>(f));
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
    for (int64_t j = 0; j < n; j++)
        sum = fmaf(load(a + j * apart), load(s.v + j), sum);
    finish(s, i, sum);
}

template <typename T>
__global__ void spread_naive(outer<T> o)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < o.R * o.C)
        store(o.dA + i, o.alpha * load(o.left + i / o.C) * load(o.right + i % o.C));
}

struct gemv_naive {
    template <typename T>
    static size_t room(const sweep<T> &)
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
    static int spread(const outer<T> &o)
    {
        spread_naive<<<ceil_div(o.R * o.C, THREADS), THREADS, 0, gpu_stream()>>>(o);
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
    UNROLL(4)
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
static __device__ __forceinline__ float dot(const piece<T, WIDE> &a, const piece<T, WIDE> &b,
                                            float sum)
{
    float x[piece<T, WIDE>::N], y[piece<T, WIDE>::N];
    numbers(x, a);
    numbers(y, b);
    UNROLL(8)
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

/* A warp adds up two rows, or a part of each, and has AHEAD pieces of both under way before it
 * uses the first: 4 KiB, or 128 KiB on a multiprocessor. */
enum { AHEAD = 4 };

template <typename T, bool WIDE>
__global__ void __launch_bounds__(THREADS, 4) sum_along(sweep<T> s, int64_t parts, int64_t length)
{
    typedef piece<T, WIDE> P;
    const int lane = threadIdx.x % LANES, step = LANES * P::N;
    const int64_t warp = (int64_t)blockIdx.x * WARPS + threadIdx.x / LANES;
    const int64_t pairs = ceil_div(s.R, 2);
    const int part = (int)(warp / pairs), r = (int)(warp % pairs * 2);
    if (part >= parts)
        return;
    const bool second = r + 1 < s.R;
    const int64_t c = part * length + lane * P::N;
    const T *a = s.A + r * s.C + c, *b = second ? a + s.C : a, *v = s.v + c;
    int left = (int)(min((part + 1) * length, s.C) - c);
    float sum[2] = {};

    UNROLL(1)
    for (; left > (AHEAD - 1) * step; left -= AHEAD * step) {
        P x[AHEAD], y[AHEAD];
        UNROLL(4)
        for (int i = 0; i < AHEAD; i++) {
            x[i] = look<T, WIDE>(a + i * step);
            y[i] = look<T, WIDE>(b + i * step);
        }
        UNROLL(4)
        for (int i = 0; i < AHEAD; i++) {
            const P w = look<T, WIDE>(v + i * step);
            sum[0] = dot(x[i], w, sum[0]);
            sum[1] = dot(y[i], w, sum[1]);
        }
        a += AHEAD * step, b += AHEAD * step, v += AHEAD * step;
    }
    UNROLL(1)
    for (; left > 0; left -= step, a += step, b += step, v += step) {
        const P w = look<T, WIDE>(v);
        sum[0] = dot(look<T, WIDE>(a), w, sum[0]);
        sum[1] = dot(look<T, WIDE>(b), w, sum[1]);
    }
    for (int d = LANES / 2; d; d /= 2) {
        sum[0] += __shfl_xor_sync(~0u, sum[0], d);
        sum[1] += __shfl_xor_sync(~0u, sum[1], d);
    }
    if (lane == 0)
        keep(s, parts, part, s.R, r, sum[0]);
    if (lane == 0 && second)
        keep(s, parts, part, s.R, r + 1, sum[1]);
}

/* A block adds up a strip of columns over `length` rows.  A thread has a piece of the strip, a
 * warp every eighth row, and DEEP rows under way; then the warps' sums are added in order. */
enum { DEEP = 8 };

template <typename T, bool WIDE>
__global__ void __launch_bounds__(THREADS, 4) sum_across(sweep<T> s, int64_t parts, int64_t length)
{
    typedef piece<T, WIDE> P;
    __shared__ float sums[WARPS][LANES * P::N];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int64_t strips = ceil_div(s.C, LANES * P::N), part = blockIdx.x / strips;
    const int64_t first = blockIdx.x % strips * LANES * P::N, c = first + lane * P::N;
    const int64_t end = min((part + 1) * length, s.R);
    const T *a = s.A + min(c, s.C - P::N);
    int64_t r = part * length + warp;
    float sum[P::N] = {}, y[P::N];

    UNROLL(1)
    for (; r + (DEEP - 1) * WARPS < end; r += DEEP * WARPS) {
        P x[DEEP];
        float v[DEEP];
        UNROLL(8)
        for (int i = 0; i < DEEP; i++) {
            x[i] = look<T, WIDE>(a + (r + i * WARPS) * s.C);
            v[i] = load(s.v + r + i * WARPS);
        }
        UNROLL(8)
        for (int i = 0; i < DEEP; i++) {
            numbers(y, x[i]);
            UNROLL(8)
            for (int j = 0; j < P::N; j++)
                sum[j] = fmaf(y[j], v[i], sum[j]);
        }
    }
    UNROLL(1)
    for (; r < end; r += WARPS) {
        const float v = load(s.v + r);
        numbers(y, look<T, WIDE>(a + r * s.C));
        UNROLL(8)
        for (int j = 0; j < P::N; j++)
            sum[j] = fmaf(y[j], v, sum[j]);
    }
    UNROLL(8)
    for (int j = 0; j < P::N; j++)
        sums[warp][lane * P::N + j] = sum[j];
    __syncthreads();
    const int64_t i = first + threadIdx.x;
    if (threadIdx.x >= LANES * P::N || i >= s.C)
        return;
    float all = 0;
    for (int w = 0; w < WARPS; w++)
        all += sums[w][threadIdx.x];
    keep(s, parts, part, s.C, i, all);
}

/* A thread keeps its piece of `right` and goes down TALL rows, eight apart. */
enum { TALL = 16 };

static __device__ __forceinline__ void write(float *to, const float x[4])
{
    *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
}

static __device__ __forceinline__ void write(__nv_bfloat16 *to, const float x[8])
{
    __nv_bfloat162 pair[4];
    uint4 bits;
    UNROLL(4)
    for (int i = 0; i < 4; i++)
        pair[i] = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
    memcpy(&bits, pair, sizeof bits);
    *(uint4 *)to = bits;
}

template <typename T, bool WIDE>
__global__ void __launch_bounds__(THREADS) spread_wide(outer<T> o)
{
    typedef piece<T, WIDE> P;
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int64_t strips = ceil_div(o.C, LANES * P::N);
    const int64_t c = blockIdx.x % strips * LANES * P::N + lane * P::N;
    const int64_t first = blockIdx.x / strips * WARPS * TALL + warp;
    if (c >= o.C)
        return;
    float right[P::N], x[P::N];
    numbers(right, look<T, WIDE>(o.right + c));
    UNROLL(4)
    for (int i = 0; i < TALL; i++) {
        const int64_t r = first + i * WARPS;
        if (r >= o.R)
            break;
        const float left = o.alpha * load(o.left + r);
        UNROLL(8)
        for (int j = 0; j < P::N; j++)
            x[j] = left * right[j];
        if constexpr (WIDE)
            write(o.dA + r * o.C + c, x);
        else
            store(o.dA + r * o.C + c, x[0]);
    }
}

/* How a sweep is divided: parts of so many columns, or rows where it goes across, so that there
 * are as many warps, or blocks, as the chip holds, and none has less than `least` to do. */
struct division {
    int64_t parts, length, blocks;
};

static division divided(int64_t n, int64_t others, int64_t there, int64_t least, int64_t unit)
{
    division d;
    const int64_t fill = there / others, most = n / least;
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

template <typename T>
static division division_of(const sweep<T> &s)
{
    const int64_t blocks = 4 * (int64_t)gpu_properties().multiProcessorCount;
    const int64_t piece = wide_rows<T>(s.C) ? 16 / sizeof(T) : 1;
    if (s.across) {
        const int64_t strips = ceil_div(s.C, LANES * piece);
        division d = divided(s.R, strips, blocks, DEEP * WARPS, 1);
        d.blocks = strips * d.parts;
        return d;
    }
    const int64_t pairs = ceil_div(s.R, 2), step = AHEAD * LANES * piece;
    division d = divided(s.C, pairs, blocks * WARPS, step, step);
    d.blocks = ceil_div(pairs * d.parts, WARPS);
    return d;
}

template <typename T, bool WIDE>
static void start(const sweep<T> &s, const division &d)
{
    void (*const kernel)(sweep<T>, int64_t, int64_t) =
        s.across ? sum_across<T, WIDE> : sum_along<T, WIDE>;
    kernel<<<d.blocks, THREADS, 0, gpu_stream()>>>(s, d.parts, d.length);
}

/* The matrix passes in pieces of 16 bytes, many of them under way. */
struct gemv_wide {
    template <typename T>
    static size_t room(const sweep<T> &s)
    {
        const int64_t parts = division_of(s).parts;
        return parts > 1 ? sizeof(float) * parts * (s.across ? s.C : s.R) : 0;
    }
    template <typename T>
    static int add_up(const sweep<T> &s)
    {
        const division d = division_of(s);
        if (wide_rows<T>(s.C))
            start<T, true>(s, d);
        else
            start<T, false>(s, d);
        CUDA(cudaGetLastError());
        return d.parts == 1 ? 0
                            : gemm_add_parts(s.room, d.parts, s.across ? s.C : s.R, s.alpha, s.beta,
                                             s.z0, s.z);
    }
    template <typename T>
    static int spread(const outer<T> &o)
    {
        const bool wide = wide_rows<T>(o.C);
        const int64_t strips = ceil_div(o.C, LANES * (wide ? 16 / (int64_t)sizeof(T) : 1));
        void (*const kernel)(outer<T>) = wide ? spread_wide<T, true> : spread_wide<T, false>;
        kernel<<<strips * ceil_div(o.R, WARPS * TALL), THREADS, 0, gpu_stream()>>>(o);
        return cudaGetLastError();
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
    static size_t room(const sweep<T> &)
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
    static int spread(const outer<T> &o)
    {
        const matrix<T> left = {o.left, o.R, 1, false}, right = {o.right, 1, o.C, false};
        return product_batch(1, o.alpha, left, right, 0, o.dA);
    }
};

GEMV_IMPLS(cublas, "NVIDIA's library as a product of one column, to compare with", NULL);
#define AND_CUBLAS(bits) , &gemv_cublas##bits
#endif

GPU_KERNEL_LIST(gemv, 32, &gemv_wide32, &gemv_naive32 AND_CUBLAS(32));
GPU_KERNEL_LIST(gemv, 16, &gemv_wide16, &gemv_naive16 AND_CUBLAS(16));
