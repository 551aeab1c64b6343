/* e74_cell, kernel `split`: long sequences with few heads, whose time is cut into
 * pieces that are walked side by side, by the walkers of the kernel `chunked`.
 *
 * With f = linear a piece of time makes of each row s of the state s A + b, whatever
 * s is.  A is what it makes of the rows of the unit matrix where v is 0, b what it
 * makes of 0 where v is there.  So a pass is:
 *
 *     factor    all chunks side by side, as in `chunked`
 *     walk      all pieces side by side, from 0 and from the unit matrix: b and A
 *     combine   piece after piece, S before it, and S <- S A + b
 *     walk      all pieces side by side from those states, as in `chunked`
 *
 * On the way back it is the same with G, from the last piece, with dout for v.  The
 * last state, and dS0, are combine's, so that two runs that hand a state over where
 * pieces meet are one run, bit for bit.
 *
 * combine() has 16 rows of a state in a block; rows never meet.  Each of its warps
 * makes 16 columns of S A on tensor cores.  Both factors are sums of two bf16, of
 * whose four products the least is left out: an error of 2^-16 or so.
 *
 * Bound by the two walks' chains, each as long as a piece, and by combine's, as
 * long as there are pieces; that of maps' way from L2. */
#include <stdio.h>

#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/mma.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/e74/e74_cell_chunked.cuh"

/* Steps of a piece, a multiple of CHUNK: the same for all T, or a hand-over where
 * pieces meet would not be exact. */
#define PIECE 512
/* With more rows of states, B H n, whole sequences fill the device: pieces are three
 * times their work.  (Measured: at T 4096, n 64, 1024 rows take 234 us in pieces, 292
 * whole; 1536 take 360 and 320.) */
#define ROWS_MOST 1024

/* ---- pieces one after the other ---- */

enum {
    STRIP = 16,   /* rows of a state that a block has */
    MAP_ROWS = 64 /* of a piece's map that are brought at once */
};

/* A piece comes in PARTS: rows of its map, and of what is added. */
template <int N>
struct part {
    static constexpr int THREADS = 2 * N; /* a warp for each 16 columns */
    static constexpr int PARTS = N / MAP_ROWS, SUMS = STRIP / PARTS;
    static constexpr int STAGES = N > 64 ? 5 : 4; /* in shared memory, or on their way */
    bf16 *high, *low;                             /* [MAP_ROWS][N] */
    float *sums;                                  /* [SUMS][N] */
};

/* What combine() has in shared memory. */
template <int N>
struct combine_memory {
    bf16 *high, *low; /* two of [STRIP][N] each: S as a left factor, in turn */
    bf16 *stages;
};

/* Returns the numbers that it takes. */
template <int N>
static __host__ __device__ __forceinline__ int carve(bf16 *from, part<N> *w)
{
    bf16 *at = from;
    w->high = at, at += MAP_ROWS * padded(N);
    w->low = at, at += MAP_ROWS * padded(N);
    w->sums = (float *)at, at += part<N>::SUMS * padded(N) * (sizeof(float) / sizeof(bf16));
    return (int)(at - from);
}

/* Returns the bytes that it takes. */
template <int N>
static __host__ __device__ __forceinline__ int carve(unsigned char *from, combine_memory<N> *w)
{
    bf16 *at = (bf16 *)from;
    part<N> one;
    w->high = at, at += 2 * STRIP * padded(N);
    w->low = at, at += 2 * STRIP * padded(N);
    w->stages = at, at += part<N>::STAGES * carve(at, &one);
    return (int)((unsigned char *)at - from);
}

/* The stage of a part, by its number from the pass's beginning. */
template <int N>
static __device__ __forceinline__ part<N> part_of(const combine_memory<N> &w, int number)
{
    part<N> one;
    const int size = carve(w.stages, &one);
    carve(w.stages + number % part<N>::STAGES * size, &one);
    return one;
}

/* Which state, and the first of its rows. */
struct strip {
    int64_t bh;
    int first;
};

/* The place among pieces x BH of the piece that is nth in its pass. */
template <enum pass PASS>
static __device__ __forceinline__ int64_t nth_item(const plan &p, const strip &s, int nth)
{
    return (PASS == FORWARD ? nth : p.pieces - 1 - nth) * p.c.BH + s.bh;
}

template <int N, enum pass PASS>
static __device__ __forceinline__ void send_for(const plan &p, const strip &s,
                                                const combine_memory<N> &w, int number)
{
    typedef part<N> part;
    const int nth = number / part::PARTS, which = number % part::PARTS;
    if (nth >= p.pieces)
        return;
    const int64_t item = nth_item<PASS>(p, s, nth);
    const int first = which * MAP_ROWS, rows = p.c.N - first;
    const bf16 *const map = p.maps + 2 * item * p.c.M + first * p.c.N;
    const part to = part_of(w, number);

    bring<N, part::THREADS, MAP_ROWS>(to.high, map, p.c.N, rows, p.c.N);
    bring<N, part::THREADS, MAP_ROWS>(to.low, map + p.c.M, p.c.N, rows, p.c.N);
    const float *const sums = p.borders + item * p.c.M + (s.first + which * part::SUMS) * p.c.N;
    #pragma unroll 2
    for (int i = threadIdx.x; i < part::SUMS * N / 4; i += part::THREADS) {
        const int row = i / (N / 4), column = i % (N / 4) * 4;
        cp_async16(to.sums + row * padded(N) + column, sums + row * p.c.N + column,
                   column < p.c.N ? 16 : 0);
    }
}

/* A thread's pair i of the 16 x 16 numbers that its warp has of a state: where in it. */
static __device__ __forceinline__ int64_t map_shared_rank(const plan &p, const strip &s, int i)
{
    return (s.first + i % 2 * 8 + fragment_row()) * p.c.N + 16 * warp() + i / 2 * 8 +
           fragment_column();
}

static __device__ __forceinline__ void load_block(const plan &p, const strip &s, const float *state,
                                                  float (*x)[4])
{
    #pragma unroll 4
    for (int i = 0; i < 4; i++) {
        const float2 both = 16 * warp() < p.c.N
                                ? *(const float2 *)(state + map_shared_rank(p, s, i))
                                : float2{0, 0};
        x[i / 2][i % 2 * 2] = both.x;
        x[i / 2][i % 2 * 2 + 1] = both.y;
    }
}

static __device__ __forceinline__ void store_block(const plan &p, const strip &s, float *state,
                                                   const float (*x)[4])
{
    #pragma unroll 4
    for (int i = 0; i < 4; i++)
        if (16 * warp() < p.c.N)
            *(float2 *)(state + map_shared_rank(p, s, i)) = {x[i / 2][i % 2 * 2],
                                                             x[i / 2][i % 2 * 2 + 1]};
}

/* The warp's block of S as two matrices in shared memory, high + low. */
template <int N>
static __device__ __forceinline__ void put_split(bf16 *high, bf16 *low, const float (*x)[4])
{
    #pragma unroll 4
    for (int i = 0; i < 4; i++) {
        const int at =
            (i % 2 * 8 + fragment_row()) * padded(N) + 16 * warp() + i / 2 * 8 + fragment_column();
        split_bf16(x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1], (unsigned *)(high + at),
                   (unsigned *)(low + at));
    }
}

/* Sums of a block of S A: what the greater factors make, and what each has with the
 * lesser of the other, apart so that none waits for the others. */
struct products {
    float high[2][4], mixed[2][2][4];
};

/* To them what is added in this part, and the part's rows of the map. */
template <int N>
static __device__ __forceinline__ void add_part(products *sum, const part<N> &from, int which,
                                                const bf16 *high, const bf16 *low)
{
    typedef part<N> part;
    #pragma unroll 4
    for (int i = 0; i < 4; i++) {
        const int row = i % 2 * 8 + fragment_row() - which * part::SUMS;
        if (i % 2 * part::PARTS / 2 != which)
            continue; /* the row is in another part */
        const float2 b = *(const float2 *)(from.sums + row * padded(N) + 16 * warp() + i / 2 * 8 +
                                           fragment_column());
        sum->high[i / 2][i % 2 * 2] += b.x;
        sum->high[i / 2][i % 2 * 2 + 1] += b.y;
    }
    #pragma unroll 4
    for (int k = 0; k < MAP_ROWS; k += 16) {
        unsigned a[4], a_low[4], b[4], b_low[4];
        load_fragment_b<false>(b, from.high, padded(N), k, 16 * warp());
        load_fragment_b<false>(b_low, from.low, padded(N), k, 16 * warp());
        load_fragment_a<false>(a, high, padded(N), 0, which * MAP_ROWS + k);
        load_fragment_a<false>(a_low, low, padded(N), 0, which * MAP_ROWS + k);
        #pragma unroll 2
        for (int tile = 0; tile < 2; tile++) {
            mma_bf16(sum->high[tile], a, b + 2 * tile);
            mma_bf16(sum->mixed[0][tile], a, b_low + 2 * tile);
            mma_bf16(sum->mixed[1][tile], a_low, b + 2 * tile);
        }
    }
}

/* From sums of pieces to what they begin with, in their place. */
template <int N, enum pass PASS>
__global__ void __launch_bounds__(2 * N) combine(plan p)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    constexpr int PARTS = part<N>::PARTS, STAGES = part<N>::STAGES;
    const unsigned strips = (unsigned)p.c.N / STRIP;
    const strip s = {blockIdx.x / strips, (int)(blockIdx.x % strips) * STRIP};
    combine_memory<N> w;
    float x[2][4];

    carve(buffer, &w);
    load_block(p, s, (PASS == FORWARD ? p.c.first : p.c.dlast) + s.bh * p.c.M, x);
    pdl_wait();
    pdl_launch_dependents();
    for (int i = 0; i < STAGES - 1; i++) {
        send_for<N, PASS>(p, s, w, i);
        cp_async_commit();
    }
    for (int nth = 0; nth < p.pieces; nth++) {
        bf16 *const high = w.high + nth % 2 * STRIP * padded(N);
        bf16 *const low = w.low + nth % 2 * STRIP * padded(N);
        products sum = {};

        put_split<N>(high, low, x);
        #pragma unroll 2
        for (int which = 0; which < PARTS; which++) {
            const int number = nth * PARTS + which;
            cp_async_wait<STAGES - 2>();
            __syncthreads();
            send_for<N, PASS>(p, s, w, number + STAGES - 1);
            cp_async_commit();
            add_part<N>(&sum, part_of(w, number), which, high, low);
        }
        store_block(p, s, p.borders + nth_item<PASS>(p, s, nth) * p.c.M, x);
        for (int i = 0; i < 8; i++)
            x[i / 4][i % 4] =
                sum.high[i / 4][i % 4] + (sum.mixed[0][i / 4][i % 4] + sum.mixed[1][i / 4][i % 4]);
    }
    if (p.end)
        store_block(p, s, p.end + s.bh * p.c.M, x);
}

/* ---- launches ---- */

static plan plan_of(const struct frame *f, enum pass pass, size_t *bytes)
{
    plan p = chunked_plan(f, pass, bytes);
    p.length = PIECE / CHUNK;
    p.pieces = (int)ceil_div(p.chunks, p.length);

    const size_t items = p.pieces * p.c.BH;
    p.borders = (float *)((char *)f->work + *bytes), *bytes += items * p.c.M * sizeof(float);
    p.maps = (bf16 *)((char *)f->work + *bytes), *bytes += items * 2 * p.c.M * sizeof(bf16);
    return p;
}

template <int N, enum pass PASS>
static cudaError_t launch_combine(const plan &p)
{
    combine_memory<N> w;
    return launch(combine<N, PASS>, p, p.c.BH * p.c.N / STRIP, part<N>::THREADS, carve(NULL, &w));
}

/* The walk of a pass, by pieces; `end` is for what the last one ends with, or NULL. */
template <enum pass PASS>
static cudaError_t walk_pieces(plan p, float *end)
{
    cudaError_t (*const walk)(const plan &) =
        PASS == FORWARD ? chunked_walk_forward : chunked_walk_backward;
    CUDA(walk(p));
    p.end = end;
    CUDA((p.c.N <= 64 ? launch_combine<64, PASS> : launch_combine<128, PASS>)(p));
    p.starts = p.borders;
    p.end = NULL;
    return walk(p);
}

static int forward(const struct frame *f)
{
    size_t bytes;
    const plan p = plan_of(f, FORWARD, &bytes);
    CUDA(chunked_factor(p));
    return walk_pieces<FORWARD>(p, p.c.last);
}

static int backward(const struct frame *f)
{
    size_t bytes;
    const plan p = plan_of(f, BACKWARD, &bytes);
    CUDA(chunked_factor(p));
    if (p.states)
        CUDA(walk_pieces<FORWARD>(p, NULL));
    CUDA(walk_pieces<BACKWARD>(p, p.c.dfirst));
    return chunked_finish(p);
}

static size_t work(const struct frame *f, enum pass pass)
{
    size_t bytes;
    plan_of(f, pass, &bytes);
    return bytes;
}

static const char *declines(const struct frame *f)
{
    const call c = call_of(f);
    const char *no = chunked_declines(f);
    static char few[64];
    if (no)
        return no;
    if (c.T <= gpu_limits()->split_steps) {
        snprintf(few, sizeof few, "only for more than %lld steps",
                 (long long)gpu_limits()->split_steps);
        return few;
    }
    if (c.BH * c.N > ROWS_MOST)
        return "only for up to " NUMBER(ROWS_MOST) " rows, batch heads n_state";
    return NULL;
}

extern "C" const struct impl e74_split16 = {
    "split",
    "as chunked, pieces of time side by side: over " NUMBER(SPLIT_STEPS) " steps of up to " NUMBER(
        ROWS_MOST) " rows",
    {forward, backward},
    work,
    declines,
    "bf16 factors",
    0x1p-8,
    PIECE};
