/* e74_cell, kernel `split`: long sequences with few heads.  T is cut into splits, which the scans
 * of the kernel `chunked` process in parallel.
 *
 * With f = linear the steps of a split map each row s of the state to s A + b.  A is the final
 * state from the unit matrix with v = 0, b the final state from 0 with the given v.  So a pass is:
 *
 *     factor    all chunks in parallel, as in `chunked`
 *     scan      all splits in parallel, from 0 and from the unit matrix: b and A
 *     combine   splits in sequence: the initial state of each, S <- S A + b
 *     scan      all splits in parallel from those states, as in `chunked`
 *
 * Backward is the same with G, from the last split, with dout for v.  combine computes the last
 * state and dS0, so that two calls that hand a state over at a split's border give the same bits as
 * one call.
 *
 * combine() has one block per 16 rows of a state; rows are independent.  Each of its warps computes
 * 16 columns of S A on tensor cores.  Both factors are split into high and low bf16, and the
 * product of the two low ones is left out: an error of about 2^-16.
 *
 * Bound by the latency of the two scans, which grows with the steps of a split, and by that of
 * combine, which grows with the number of splits: it loads A from L2. */
#include <stdio.h>

#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/mma.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/e74/cell/chunked/chunked.cuh"

using namespace e74_chunked;

/* Steps of a split, a multiple of CHUNK: the same for all T, since otherwise a hand-over at a
 * split's border would not be exact. */
#define STEPS_PER_SPLIT 512
/* With more rows of states than this, B H n, whole sequences fill the device: splits need three
 * times the work.  (Measured: at T 4096, n 64, 1024 rows take 234 us in splits, 292 whole; 1536
 * take 360 and 320.) */
#define MAX_ROWS 1024

/* ---- combine: splits in sequence ---- */

enum {
    STRIP = 16, /* rows of a state per block */
    A_ROWS = 64 /* rows of A per stage */
};

/* A stage of the pipeline.  A split is loaded in PARTS: rows of its A, and of its b. */
template <int N>
struct part {
    static constexpr int THREADS = 2 * N; /* one warp per 16 columns */
    static constexpr int PARTS = N / A_ROWS, SUMS = STRIP / PARTS;
    static constexpr int STAGES = N > 64 ? 5 : 4; /* in shared memory, or in flight */
    bf16 *high, *low;                             /* [A_ROWS][N]: A */
    float *sums;                                  /* [SUMS][N]: b */
};

/* The shared memory of combine(). */
template <int N>
struct combine_smem {
    bf16 *high, *low; /* two of [STRIP][N] each: S as left operand, double-buffered */
    unsigned char *stages;
};

template <int N>
static __host__ __device__ __forceinline__ part<N> alloc_part(smem_arena *smem)
{
    part<N> w;
    w.high = smem->alloc<bf16>(A_ROWS * padded(N));
    w.low = smem->alloc<bf16>(A_ROWS * padded(N));
    w.sums = smem->alloc<float>(part<N>::SUMS * padded(N));
    return w;
}

template <int N>
static __host__ __device__ __forceinline__ combine_smem<N> alloc_combine(smem_arena *smem)
{
    combine_smem<N> w;
    w.high = smem->alloc<bf16>(2 * STRIP * padded(N));
    w.low = smem->alloc<bf16>(2 * STRIP * padded(N));
    w.stages = smem->alloc<unsigned char>(part<N>::STAGES * arena_bytes<alloc_part<N>>());
    return w;
}

/* The stage of part `number`, counted from the beginning of the pass. */
template <int N>
static __device__ __forceinline__ part<N> part_of(const combine_smem<N> &w, int number)
{
    smem_arena stage = {w.stages + number % part<N>::STAGES * arena_bytes<alloc_part<N>>(), 0};
    return alloc_part<N>(&stage);
}

/* The index of a state, and the first row of the block's strip. */
struct strip {
    int64_t bh;
    int first;
};

/* The index among splits x BH of the nth split of the pass. */
template <enum pass PASS>
static __device__ __forceinline__ int64_t nth_item(const plan &p, const strip &s, int nth)
{
    return (PASS == FORWARD ? nth : p.splits - 1 - nth) * p.c.BH + s.bh;
}

template <int N, enum pass PASS>
static __device__ __forceinline__ void prefetch_part(const plan &p, const strip &s,
                                                     const combine_smem<N> &w, int number)
{
    typedef part<N> part;
    const int nth = number / part::PARTS, which = number % part::PARTS;
    if (nth >= p.splits)
        return;
    const int64_t item = nth_item<PASS>(p, s, nth);
    const int first = which * A_ROWS, rows = p.c.N - first;
    const bf16 *const A = p.A + 2 * item * p.c.M + first * p.c.N;
    const part to = part_of(w, number);

    load_tile<N, part::THREADS, A_ROWS>(to.high, A, p.c.N, rows, p.c.N);
    load_tile<N, part::THREADS, A_ROWS>(to.low, A + p.c.M, p.c.N, rows, p.c.N);
    const float *const sums =
        p.split_states + item * p.c.M + (s.first + which * part::SUMS) * p.c.N;
    #pragma unroll 2
    for (int i = threadIdx.x; i < part::SUMS * N / 4; i += part::THREADS) {
        const int row = i / (N / 4), column = i % (N / 4) * 4;
        cp_async16(to.sums + row * padded(N) + column, sums + row * p.c.N + column,
                   column < p.c.N ? 16 : 0);
    }
}

/* The offset in a state of a thread's pair i of its warp's 16 x 16 block. */
static __device__ __forceinline__ int64_t pair_offset(const plan &p, const strip &s, int i)
{
    return (s.first + i % 2 * 8 + fragment_row()) * p.c.N + 16 * warp() + i / 2 * 8 +
           fragment_column();
}

static __device__ __forceinline__ void load_block(const plan &p, const strip &s, const float *state,
                                                  float (*x)[4])
{
    #pragma unroll 4
    for (int i = 0; i < 4; i++) {
        const float2 both =
            16 * warp() < p.c.N ? *(const float2 *)(state + pair_offset(p, s, i)) : float2{0, 0};
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
            *(float2 *)(state + pair_offset(p, s, i)) = {x[i / 2][i % 2 * 2],
                                                         x[i / 2][i % 2 * 2 + 1]};
}

/* Stores the warp's block of S to shared memory, split into high and low bf16. */
template <int N>
static __device__ __forceinline__ void store_split(bf16 *high, bf16 *low, const float (*x)[4])
{
    #pragma unroll 4
    for (int i = 0; i < 4; i++) {
        const int at =
            (i % 2 * 8 + fragment_row()) * padded(N) + 16 * warp() + i / 2 * 8 + fragment_column();
        split_bf16(x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1], (unsigned *)(high + at),
                   (unsigned *)(low + at));
    }
}

/* Accumulators of a block of S A: high x high, and the two mixed products; separate, so
 * that they do not depend on each other. */
struct products {
    float high[2][4], mixed[2][2][4];
};

/* sum += b and S A of this part's rows. */
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
    for (int k = 0; k < A_ROWS; k += 16) {
        unsigned a[4], a_low[4], b[4], b_low[4];
        load_fragment_b<false>(b, from.high, padded(N), k, 16 * warp());
        load_fragment_b<false>(b_low, from.low, padded(N), k, 16 * warp());
        load_fragment_a<false>(a, high, padded(N), 0, which * A_ROWS + k);
        load_fragment_a<false>(a_low, low, padded(N), 0, which * A_ROWS + k);
        #pragma unroll 2
        for (int tile = 0; tile < 2; tile++) {
            mma_bf16(sum->high[tile], a, b + 2 * tile);
            mma_bf16(sum->mixed[0][tile], a, b_low + 2 * tile);
            mma_bf16(sum->mixed[1][tile], a_low, b + 2 * tile);
        }
    }
}

/* Replaces b of each split by its initial state. */
template <int N, enum pass PASS>
__global__ void __launch_bounds__(2 * N) combine(plan p)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    constexpr int PARTS = part<N>::PARTS, STAGES = part<N>::STAGES;
    const unsigned strips = (unsigned)p.c.N / STRIP;
    const strip s = {blockIdx.x / strips, (int)(blockIdx.x % strips) * STRIP};
    smem_arena smem = {buffer, 0};
    const combine_smem<N> w = alloc_combine<N>(&smem);
    float x[2][4];

    load_block(p, s, (PASS == FORWARD ? p.c.first : p.c.dlast) + s.bh * p.c.M, x);
    pdl_wait();
    pdl_launch_dependents();
    for (int i = 0; i < STAGES - 1; i++) {
        prefetch_part<N, PASS>(p, s, w, i);
        cp_async_commit();
    }
    for (int nth = 0; nth < p.splits; nth++) {
        bf16 *const high = w.high + nth % 2 * STRIP * padded(N);
        bf16 *const low = w.low + nth % 2 * STRIP * padded(N);
        products sum = {};

        store_split<N>(high, low, x);
        #pragma unroll 2
        for (int which = 0; which < PARTS; which++) {
            const int number = nth * PARTS + which;
            cp_async_wait<STAGES - 2>();
            __syncthreads();
            prefetch_part<N, PASS>(p, s, w, number + STAGES - 1);
            cp_async_commit();
            add_part<N>(&sum, part_of(w, number), which, high, low);
        }
        store_block(p, s, p.split_states + nth_item<PASS>(p, s, nth) * p.c.M, x);
        for (int i = 0; i < 8; i++)
            x[i / 4][i % 4] =
                sum.high[i / 4][i % 4] + (sum.mixed[0][i / 4][i % 4] + sum.mixed[1][i / 4][i % 4]);
    }
    if (p.end)
        store_block(p, s, p.end + s.bh * p.c.M, x);
}

/* ---- launches ---- */

static plan plan_of(const struct call *f, enum pass pass, work_arena *a)
{
    plan p = chunked_plan(f, pass, a);
    p.chunks_per_split = STEPS_PER_SPLIT / CHUNK;
    p.splits = (int)ceil_div(p.chunks, p.chunks_per_split);

    const size_t items = p.splits * p.c.BH;
    p.split_states = take<float>(a, items * p.c.M);
    p.A = take<bf16>(a, items * 2 * p.c.M);
    return p;
}

template <int N, enum pass PASS>
static cudaError_t launch_combine(struct context *on, const plan &p)
{
    return launch(on, combine<N, PASS>, p, p.c.BH * p.c.N / STRIP, part<N>::THREADS,
                  arena_bytes<alloc_combine<N>>());
}

/* Scans all splits of a pass; `end` receives the final state of the last one, unless it is NULL. */
template <enum pass PASS>
static cudaError_t scan_splits(struct context *on, plan p, float *end)
{
    cudaError_t (*const scan)(struct context *, const plan &) =
        PASS == FORWARD ? chunked_scan_forward : chunked_scan_backward;
    CUDA(scan(on, p));
    p.end = end;
    CUDA((p.c.N <= 64 ? launch_combine<64, PASS> : launch_combine<128, PASS>)(on, p));
    p.starts = p.split_states;
    p.end = NULL;
    return scan(on, p);
}

static int forward(const struct call *f)
{
    work_arena a;
    const plan p = plan_of(f, FORWARD, &a);
    CUDA(chunked_factor(f->context, p));
    return scan_splits<FORWARD>(f->context, p, p.c.last);
}

static int backward(const struct call *f)
{
    work_arena a;
    const plan p = plan_of(f, BACKWARD, &a);
    CUDA(chunked_factor(f->context, p));
    if (p.states)
        CUDA(scan_splits<FORWARD>(f->context, p, NULL));
    CUDA(scan_splits<BACKWARD>(f->context, p, p.c.dfirst));
    return chunked_finish(f->context, p);
}

static size_t work(const struct call *f, enum pass pass)
{
    work_arena a;
    plan_of(f, pass, &a);
    return a.bytes;
}

static const char *declines(const struct call *f)
{
    const cell_call c = cell_call_of(f);
    const char *no = chunked_declines(f);
    static thread_local char few[64];
    if (no)
        return no;
    if (c.T <= gpu_limits(f)->split_steps) {
        snprintf(few, sizeof few, "only for more than %lld steps",
                 (long long)gpu_limits(f)->split_steps);
        return few;
    }
    if (c.BH * c.N > MAX_ROWS)
        return "only for up to " NUMBER(MAX_ROWS) " rows, batch heads n_state";
    return NULL;
}

GPU_KERNEL_FOR(bf16, split_cell, split,
               .idea = "as chunked, splits of T in parallel: over " NUMBER(
                   SPLIT_STEPS) " steps of up to " NUMBER(MAX_ROWS) " rows",
               .pass = {forward, backward}, .work = work, .declines = declines,
               .approximates = "bf16 factors", .unit = 0x1p-8, .chunk = STEPS_PER_SPLIT,
               .stores = "delta");
