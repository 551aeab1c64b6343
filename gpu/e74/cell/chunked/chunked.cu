/* e74_cell, kernel `chunked`: f = linear on tensor cores, CHUNK steps at once.
 *
 * Within a chunk that begins with state S, with r = 1 / (|k| + eps), x = k, or z k where there is a
 * z, and u = r x, the steps are a triangular system:
 *
 *     delta_t = v_t - r_t S x_t - sum over s < t of A_ts delta_s
 *     A = strictly lower part of (r X) (r K)^T
 *     M = (1 + A)^-1,  P = lower part of Q K^T
 *     Delta = M (V - r X S^T),  D = r Delta
 *     Y = Q S^T + P D,  S <- S + D^T K
 *
 * k, q, v are never scaled, so that they are exact as bf16; S, M, P and the values computed from
 * them are rounded to bf16 where they are operands of mma; accumulators are float.  With G = dL/dS
 * after the chunk and dY = dout (y silu(y))':
 *
 *     E = M^T (r (P^T dY + K G^T)) = dV,  F = r E
 *     G <- G + dY^T Q - F^T X
 *     p = lower part of dY D^T,  a = strictly lower part of -F D^T
 *     dQ = dY S + p K,  r dU = -F S + a K,  r dK^ = D G + p^T Q + a^T X
 *
 * Where q is k, r P r equals 1 + A except for eps on the diagonal, so that dY^T Q and dY's share of
 * F^T X are equal.  Neither is computed, since the error of their difference would be larger than
 * G, which then contains only the share of dS_T:
 *
 *     E = dY / r + M^T (r K G^T - ((1 - r^2 |k|^2) / r) dY)
 *
 * factor() computes M, P, r and X, one block per chunk.  Then one block scans SLICE rows of the
 * state of one (sequence, head), which do not depend on other rows, through the chunks (in `split`
 * through those of a split of T).  Half of its warps are consumers: they compute the recurrence,
 * three short products per chunk, with the state in their accumulators.  The others are producers,
 * which load operands one or two chunks ahead, and also run the epilogue: they compute the outputs
 * from the values that the consumers store in shared memory.  Backward scans G from the end, and
 * finish() computes the keys' gradients, one block per chunk.  That needs the state before each
 * chunk, which is a checkpoint where CHUNK is a multiple of the interval; else the forward scan is
 * repeated, with the same bits.  Each of these kernels starts while the one before it ends
 * (programmatic dependent launch).
 *
 * Bound by memory where there are many rows, else by the latency of the recurrence. */
#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/mma.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/e74/cell/chunked/chunked.cuh"

/* ---- M, P and r of a chunk ---- */

using namespace e74_chunked;

enum { LD_INVERSE = 16 + 8 /* padded(16) */ };

/* Inverts one 16 x 16 block on the diagonal of 1 + A, with one thread per column. */
static __device__ void invert_block(const float *A, float *inverse)
{
    const int column = threadIdx.x % 32;
    float x[16];
    if (column >= 16)
        return;
    #pragma unroll 16
    for (int i = 0; i < 16; i++) {
        float row[16];
        #pragma unroll 4
        for (int k = 0; k < i; k += 4)
            memcpy(row + k, __builtin_assume_aligned(A + i * LD_CHUNK + k, 16), 4 * sizeof *row);
        x[i] = i == column ? 1 : 0;
        #pragma unroll 16
        for (int k = 0; k < i; k++)
            x[i] = fmaf(-row[k], x[k], x[i]);
        inverse[i * LD_INVERSE + column] = x[i];
    }
}

/* Loads a 16 x 16 block of floats from shared memory, transposed, as fragment A of mma, split into
 * high and low bf16. */
static __device__ split load_transposed(const float *block, int ld)
{
    split s;
    for (int i = 0; i < 4; i++) {
        const float *at = block + (fragment_column() + i / 2 * 8) * ld + fragment_row() + i % 2 * 8;
        split_bf16(at[0], at[ld], &s.high[i], &s.low[i]);
    }
    return s;
}

/* Warp j computes column j of the 16 x 16 blocks of M, from the diagonal down: M_ij = -M_ii sum
 * over k of A_ik M_kj.  The blocks are kept transposed in registers, because the accumulator layout
 * of mma is also that of the next product's fragment A. */
static __device__ void invert_column(const float *A, const float *inverses, bf16 *M)
{
    const int j = warp();
    split N[4];

    const float *diagonal = inverses + j * 16 * LD_INVERSE;
    for (int i = threadIdx.x % 32; i < 256; i += 32)
        store(M + (16 * j + i / 16) * LD_CHUNK + 16 * j + i % 16,
              diagonal[i / 16 * LD_INVERSE + i % 16]);
    N[0] = load_transposed(diagonal, LD_INVERSE);
    #pragma unroll 4
    for (int e = 1; e < 4; e++) {
        const int i = j + e;
        if (i >= 4)
            break;
        float sum[2][4] = {}, block[2][4] = {};
        #pragma unroll 4
        for (int d = 0; d < e; d++)
            multiply_split_bf16(sum, N[d], A + 16 * i * LD_CHUNK + 16 * (j + d), LD_CHUNK);
        multiply_split_bf16(block, as_fragment_a(sum), inverses + i * 16 * LD_INVERSE, LD_INVERSE);
        for (int n = 0; n < 8; n++)
            block[n / 4][n % 4] = -block[n / 4][n % 4];
        N[e] = as_fragment_a(block);
        for (int n = 0; n < 8; n++) {
            const int row = 8 * (n / 4) + fragment_column() + n % 2,
                      column = fragment_row() + n % 4 / 2 * 8;
            store(M + (16 * i + row) * LD_CHUNK + 16 * j + column, block[n / 4][n % 4]);
        }
    }
}

/* Computes r and r / |k| of all steps, with two threads per step. */
template <int N>
static __device__ void compute_scales(const bf16 *K, float2 *scales)
{
    const bf16 *k = K + threadIdx.x / 2 * padded(N) + threadIdx.x % 2 * (N / 2);
    float squares = 0;
    #pragma unroll 8
    for (int i = 0; i < N / 2; i += 8) {
        const uint4 float8 = *(const uint4 *)(k + i);
        const unsigned pairs[] = {float8.x, float8.y, float8.z, float8.w};
        #pragma unroll 4
        for (int j = 0; j < 4; j++) {
            squares = fmaf(low_of_pair(pairs[j]), low_of_pair(pairs[j]), squares);
            squares = fmaf(high_of_pair(pairs[j]), high_of_pair(pairs[j]), squares);
        }
    }
    const float length = sqrtf(warp_sum<2>(squares)), r = key_scale_full(length);
    if (threadIdx.x % 2 == 0)
        scales[threadIdx.x / 2] = {r, length > 0 ? r / length : 0};
}

/* Stores 16 columns, from `first` on, of the warp's strip of A: (r X) (r K)^T strictly below the
 * diagonal, else 0. */
static __device__ void store_A(float *A, const float (*sum)[4], const float2 *scales, int first)
{
    #pragma unroll 4
    for (int i = 0; i < 4; i++) {
        const int t = 16 * warp() + fragment_row() + i % 2 * 8,
                  s = first + i / 2 * 8 + fragment_column();
        const float *x = sum[i / 2] + i % 2 * 2;
        const float one = x[0] * scales[t].x * scales[s].x;
        const float other = x[1] * scales[t].x * scales[s + 1].x;
        *(float2 *)(A + t * LD_CHUNK + s) = {s < t ? one : 0, s + 1 < t ? other : 0};
    }
}

/* Copies 16 rows of M or P, from row m on, to global memory, up to the block on the diagonal;
 * elements beyond it are never read. */
static __device__ __forceinline__ void store_lower(bf16 *to, const bf16 *from, int m)
{
    const int lane = threadIdx.x % 32, row = m + lane / 8, column = lane % 8 * 8;
    #pragma unroll 4
    for (int i = 0; i < 16; i += 4)
        if (column < m + 16)
            *(uint4 *)(to + (row + i) * CHUNK + column) =
                *(const uint4 *)(from + (row + i) * LD_CHUNK + column);
}

/* The shared memory of factor(). */
struct factor_smem {
    bf16 *K, *X, *Q;     /* [CHUNK][N] */
    bf16 *M, *P;         /* [CHUNK][CHUNK], overlaid on K and Q */
    float *A, *inverses; /* [CHUNK][CHUNK], [4][16][16] */
    float2 *scales;      /* [CHUNK] */
};

template <int N>
static __host__ __device__ __forceinline__ factor_smem alloc_factor(smem_arena *smem, const plan &p)
{
    const int keys = CHUNK * padded(N);
    factor_smem w;

    w.K = w.M = smem->alloc<bf16>(keys);
    w.Q = w.P = smem->alloc<bf16>(keys);
    w.A = smem->alloc<float>(CHUNK * LD_CHUNK);
    w.inverses = smem->alloc<float>(4 * 16 * LD_INVERSE);
    w.scales = smem->alloc<float2>(CHUNK);
    w.X = with_z(p.c) ? smem->alloc<bf16>(keys) : w.K;
    return w;
}

/* Computes X = z k in place of z in shared memory, and stores it to global memory for the later
 * kernels. */
template <int N>
static __device__ __forceinline__ void compute_X(const plan &p, const chunk_coord &at,
                                                 const bf16 *K, bf16 *X)
{
    #pragma unroll 1
    for (int i = threadIdx.x; i < CHUNK * N / 8; i += THREADS) {
        int row, column;
        vector_coord<N>(i, &row, &column);
        const bf16 *k = K + row * padded(N) + column;
        bf16 *x = X + row * padded(N) + column;
        for (int j = 0; j < 8; j += 2)
            *(unsigned *)(x + j) =
                pack_bf16x2(load(k + j) * load(x + j), load(k + j + 1) * load(x + j + 1));
        if (row < at.steps && column < p.c.N)
            *(uint4 *)(p.x + start(p, at) + row * p.c.BH * p.c.N + column) = *(const uint4 *)x;
    }
}

/* For __launch_bounds__: the minimum number of resident blocks of factor() per SM. */
static constexpr int factor_min_blocks(int N)
{
    return N > 64 ? 3 : 4;
}

template <int N>
__global__ void __launch_bounds__(THREADS, factor_min_blocks(N)) factor(plan p)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    const chunk_coord at = block_coord(p);
    bf16 *const to = p.factors + 2 * at.item * CHUNK * CHUNK;
    const int m = 16 * warp();
    smem_arena smem = {buffer, 0};
    const factor_smem w = alloc_factor<N>(&smem, p);

    pdl_launch_dependents();
    load_steps<N, THREADS>(p, at, w.K, p.c.k);
    load_steps<N, THREADS>(p, at, w.Q, p.c.q);
    if (p.c.z)
        load_steps<N, THREADS>(p, at, w.X, p.c.z);
    cp_async_commit();
    cp_async_wait<0>();
    if (p.c.z)
        compute_X<N>(p, at, w.K, w.X);
    __syncthreads();

    compute_scales<N>(w.K, w.scales);
    float a[CHUNK / 8][4] = {}, q[CHUNK / 8][4] = {};
    #pragma unroll 4
    for (int i = 0; i < CHUNK; i += 16)
        if (i <= m)
            multiply_both<RIGHT, 2, N>(a + i / 8, {w.X, padded(N), m}, q + i / 8,
                                       {w.Q, padded(N), m}, {w.K, padded(N), i});
    __syncthreads();
    #pragma unroll 4
    for (int i = 0; i < CHUNK; i += 16)
        if (i <= m)
            store_A(w.A, a + i / 8, w.scales, i);
    mask_triangle<false, CHUNK / 8>(q, m, 0);
    store_strip<CHUNK / 8>(w.P, LD_CHUNK, m, 0, q);
    if (threadIdx.x < CHUNK)
        p.scales[at.item * CHUNK + threadIdx.x] = w.scales[threadIdx.x];
    __syncwarp(); /* a warp reads its own strip of P and block on A's diagonal */
    store_lower(to + CHUNK * CHUNK, w.P, m);
    invert_block(w.A + m * (LD_CHUNK + 1), w.inverses + warp() * 16 * LD_INVERSE);
    __syncthreads();
    invert_column(w.A, w.inverses, w.M);
    __syncthreads();
    store_lower(to, w.M, m);
}

/* ---- forward ---- */

/* Stores two elements of a checkpoint; none where e < 0. */
static __device__ __forceinline__ void store_checkpoint_pair(const plan &p, int64_t state, int e,
                                                             const float *x)
{
    if (e < 0)
        return;
    if (p.c.kept == KEPT_F32) {
        *(float2 *)((float *)p.c.checkpoints + state * p.c.M + e) = {x[0], x[1]};
    } else {
        put_kept(p.c, state, e, x[0]);
        put_kept(p.c, state, e + 1, x[1]);
    }
}

template <int N, int SLICE>
static __device__ __forceinline__ void store_checkpoint(const plan &p, const work_tile &r,
                                                        int64_t state, slice<N, SLICE> &S)
{
    const int first = first_element<N, SLICE>(p, r);
    #pragma unroll 32
    for (int i = 0; i < pairs<N, SLICE>(); i++)
        store_checkpoint_pair(p, state, pair_element<N, SLICE>(p, r, first, i), nth_pair(S, i));
}

/* Stores a checkpoint after the first `some` of these 16 steps; S is unchanged.  This is rare, so
 * it processes one tile at a time, in few registers. */
template <int N, int SLICE>
static __device__ __forceinline__ void
store_checkpoint_between(const plan &p, const work_tile &r, int64_t state, const slice<N, SLICE> &S,
                         const bf16 *left, const bf16 *right, int some)
{
    constexpr int WARP_COLUMNS = shape<N, SLICE>::WARP_COLUMNS;
    const int first = first_element<N, SLICE>(p, r);
    #pragma unroll 32
    for (int i = 0; i < pairs<N, SLICE>(); i += 2) {
        const int m = i / 2 / (WARP_COLUMNS / 8), n = i / 2 % (WARP_COLUMNS / 8);
        unsigned a[4], b[4];
        float sum[4];
        load_fragment_a<true>(a, left, padded(SLICE), 16 * m, 0);
        load_fragment_b<false>(b, right, padded(N), 0, warp() * WARP_COLUMNS + n / 2 * 16);
        #pragma unroll 4
        for (int j = 0; j < 4; j++) {
            const int step = fragment_column() + j / 2 * 8;
            a[j] &= (step < some ? 0xffff : 0) | (step + 1 < some ? 0xffff0000 : 0);
            sum[j] = S.x[m][n][j];
        }
        mma_bf16(sum, a, b + n % 2 * 2);
        store_checkpoint_pair(p, state, pair_element<N, SLICE>(p, r, first, i), sum);
        store_checkpoint_pair(p, state, pair_element<N, SLICE>(p, r, first, i + 1), sum + 2);
    }
}

/* A checkpoint: its index, and the number of steps before it. */
struct checkpoint {
    int slot, t;
};

/* S += the sum over a chunk that contains checkpoints. */
template <int N, int SLICE>
static __device__ __forceinline__ void
add_chunk_with_checkpoints(const plan &p, const work_tile &r, slice<N, SLICE> &S, const bf16 *left,
                           const bf16 *right, int t, checkpoint *next)
{
    #pragma unroll 1
    for (int k = 0; k < CHUNK; k += 16) {
        for (; next->t < min(t + k + 16, (int)p.c.T); next->t += (int)p.c.K, next->slot++)
            store_checkpoint_between(p, r, next->slot * p.c.BH + r.bh, S, left + k * padded(SLICE),
                                     right + k * padded(N), next->t - t - k);
        add_steps(S, left, right, k);
    }
}

/* The epilogue needs P one chunk after the consumers need the other operands. */
template <int N, int SLICE>
static __device__ __forceinline__ void prefetch_P(const plan &p, const work_tile &r,
                                                  const smem_layout<N, SLICE> &w, int chunk)
{
    if (chunk >= r.begin && chunk < r.end && has_outputs(p))
        load_factor<shape<N, SLICE>::GROUP_THREADS>(p, coord_of(p, chunk, r.bh), P_OF,
                                                    operands_of(p, FORWARD, w, chunk).P);
}

/* Stores y and out = y silu(y). */
template <int TILES>
static __device__ __forceinline__ void store_outputs(const plan &p, const chunk_coord &at,
                                                     const staged_tile &by, float (*y)[4])
{
    store_strip_staged<TILES>(p, at, by, p.c.y, y);
    #pragma unroll 32
    for (int i = 0; i < 4 * TILES; i++)
        y[i / 4][i % 4] = gate_output(y[i / 4][i % 4], sigmoid(y[i / 4][i % 4]));
    store_strip_staged<TILES>(p, at, by, p.c.out, y);
}

/* The consumer warps compute Delta and S of all chunks. */
template <int N, int SLICE>
static __device__ __forceinline__ void consume_forward(const plan &p, const work_tile &r,
                                                       const smem_layout<N, SLICE> &w)
{
    typedef smem_layout<N, SLICE> h;
    constexpr int TILES = shape<N, SLICE>::TILES, WARPS = shape<N, SLICE>::WARPS;
    constexpr int LD = padded(SLICE);
    const warp_tile s = warp_tile_of(TILES, warp());
    const int m = s.m, n = s.n;
    const int K = (int)p.c.K, from = r.begin * CHUNK;
    const int slot = from / K + (from % K > 0);
    checkpoint next = {slot, has_outputs(p) ? slot * K : (int)p.c.T};

    wait_for_starts(p);
    slice<N, SLICE> S = first_slice<N, SLICE>(p, r);
    for (int chunk = r.begin; chunk < r.end; chunk++) {
        const int t = chunk * CHUNK;
        const operands o = operands_of(p, FORWARD, w, chunk);
        bf16 *const state = w.state + chunk % 2 * h::STATE;
        bf16 *const D = w.delta + chunk % 2 * h::VALUES;
        float reads[TILES][4] = {}, d[TILES][4] = {};

        store_slice_bf16(state, S);
        block_barrier();
        multiply<RIGHT, TILES, N>(reads, {o.X, padded(N), m}, {state, padded(N), n});
        scale_rows<TILES>(reads, o.scales, m);
        subtract_from<TILES>(reads, o.v, LD, s);
        store_strip<TILES>(w.intermediate, LD, m, n, reads);
        warps_sync<WARPS>();
        multiply<NEITHER, TILES, CHUNK>(d, {o.M, LD_CHUNK, m}, {w.intermediate, LD, n}, 0, m + 16);
        scale_rows<TILES>(d, o.scales, m);
        store_strip<TILES>(D, LD, m, n, d);
        warps_sync<WARPS>();
        if (next.t == t) {
            store_checkpoint(p, r, next.slot++ * p.c.BH + r.bh, S);
            next.t += K;
        }
        if (next.t < min(t + CHUNK, (int)p.c.T))
            add_chunk_with_checkpoints(p, r, S, D, o.K, t, &next);
        else
            add_chunk(S, D, o.K);
    }
    block_barrier();
    store_last(p, r, S);
}

/* The producer warps load operands one or two chunks ahead, and compute the outputs of a chunk: Q
 * S^T while the consumers process the same chunk, and + P D while they process the next one. */
template <int N, int SLICE>
static __device__ __forceinline__ void produce_forward(const plan &p, const work_tile &r,
                                                       const smem_layout<N, SLICE> &w)
{
    typedef smem_layout<N, SLICE> h;
    constexpr int TILES = shape<N, SLICE>::TILES, WARPS = shape<N, SLICE>::WARPS;
    constexpr int LD = padded(SLICE);
    const warp_tile s = warp_tile_of(TILES, warp() % WARPS);
    const staged_tile staged = {s, {s.m, r.first + s.n}, w.staging, LD};
    const int m = s.m, n = s.n;
    float y[TILES][4];

    pdl_wait();
    pdl_launch_dependents();
    for (int i = 0; i < p.stages - 1; i++) {
        prefetch_chunk(p, FORWARD, r, w, r.begin + i);
        prefetch_P(p, r, w, r.begin + i - 1);
        cp_async_commit();
    }
    for (int chunk = r.begin;; chunk++) {
        wait_for_stage(p);
        block_barrier();
        prefetch_chunk(p, FORWARD, r, w, chunk + p.stages - 1);
        prefetch_P(p, r, w, chunk + p.stages - 2);
        cp_async_commit();
        if (chunk > r.begin && has_outputs(p)) {
            multiply<NEITHER, TILES, CHUNK>(
                y, {operands_of(p, FORWARD, w, chunk - 1).P, LD_CHUNK, m},
                {w.delta + (chunk - 1) % 2 * h::VALUES, LD, n}, 0, m + 16);
            store_outputs<TILES>(p, coord_of(p, chunk - 1, r.bh), staged, y);
        }
        if (chunk == r.end)
            return;
        if (summarises(p))
            continue;
        const bf16 *const state = w.state + chunk % 2 * h::STATE;
        if (p.states) {
            store_factor<N, SLICE>(p, r, p.states + coord_of(p, chunk, r.bh).item * p.c.M, state);
            continue;
        }
        for (int i = 0; i < 4 * TILES; i++)
            y[i / 4][i % 4] = 0;
        multiply<RIGHT, TILES, N>(y, {operands_of(p, FORWARD, w, chunk).Q, padded(N), m},
                                  {state, padded(N), n});
    }
}

/* Stores y, out, the checkpoints and the final state.  With p.states it stores only the states
 * before the chunks, with the same bits as forward; where summarises(), only A and b of the
 * splits. */
template <int N, int SLICE>
__global__ void __launch_bounds__((2 * shape<N, SLICE>::GROUP_THREADS), min_blocks(N, SLICE))
    scan_forward(plan p)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    const work_tile r = work_tile_of(p, SLICE);
    smem_arena smem = {buffer, 0};
    const smem_layout<N, SLICE> w = alloc_scan<N, SLICE>(&smem, p, FORWARD);

    if (threadIdx.x < shape<N, SLICE>::GROUP_THREADS)
        consume_forward(p, r, w);
    else
        produce_forward(p, r, w);
}

/* ---- launches ---- */

/* Sets the pointers into the workspace. */
static void divide(plan *p, enum pass pass, bool tied_v, work_arena *a)
{
    const cell_call &c = p->c;
    const size_t items = p->chunks * c.BH, all = c.T * c.BH * c.N;

    p->factors = take<bf16>(a, items * 2 * CHUNK * CHUNK);
    p->scales = take<float2>(a, items * CHUNK);
    p->x = take<bf16>(a, c.z_inside ? all : 0);
    if (pass == FORWARD)
        return;
    p->dstates = take<bf16>(a, items * c.M);
    p->dy = take<bf16>(a, all);
    p->dv = take<float>(a, tied_v ? all : 0);
    p->states = take<bf16>(a, CHUNK % c.K && p->chunks > 1 ? items * c.M : 0);
}

plan e74_chunked::chunked_plan(const struct call *f, enum pass pass, work_arena *a)
{
    plan p = {};
    p.c = cell_call_of(f);
    p.chunks = p.chunks_per_split = (int)ceil_div(p.c.T, CHUNK);
    p.splits = 1;
    p.target_blocks = gpu_limits(f)->scan_blocks;
    p.checkpoints_per_chunk = (int)(CHUNK / p.c.K);
    *a = {(char *)f->work, 0};
    divide(&p, pass, f->choice[E74_PROJ] == E74_TIED_KVQ, a);
    return p;
}

template <int N>
static cudaError_t launch_factor(struct context *on, const plan &p)
{
    const int shared = arena_bytes<alloc_factor<N>>(p);
    CUDA(allow_smem(factor<N>, shared));
    factor<N><<<p.chunks * p.c.BH, THREADS, shared, on->stream>>>(p);
    return cudaGetLastError();
}

cudaError_t e74_chunked::chunked_factor(struct context *on, const plan &p)
{
    return p.c.N <= 64 ? launch_factor<64>(on, p) : launch_factor<128>(on, p);
}

struct forward_scan {
    static constexpr enum pass pass = FORWARD;
    template <int N, int SLICE>
    static void (*kernel(void))(plan)
    {
        return scan_forward<N, SLICE>;
    }
};

cudaError_t e74_chunked::chunked_scan_forward(struct context *on, const plan &p)
{
    return scan<forward_scan>(on, p);
}

static int forward(const struct call *f)
{
    work_arena a;
    plan p = chunked_plan(f, FORWARD, &a);
    p.starts = p.c.first;
    p.end = p.c.last;
    CUDA(chunked_factor(f->context, p));
    return chunked_scan_forward(f->context, p);
}

static int backward(const struct call *f)
{
    work_arena a;
    plan p = chunked_plan(f, BACKWARD, &a);
    CUDA(chunked_factor(f->context, p));
    p.starts = p.c.first;
    if (p.states)
        CUDA(chunked_scan_forward(f->context, p));
    p.starts = p.c.dlast;
    p.end = p.c.dfirst;
    CUDA(chunked_scan_backward(f->context, p));
    return chunked_finish(f->context, p);
}

static size_t work(const struct call *f, enum pass pass)
{
    work_arena a;
    chunked_plan(f, pass, &a);
    return a.bytes;
}

const char *e74_chunked::chunked_declines(const struct call *f)
{
    const cell_call c = cell_call_of(f);
    const char *no = plain_cell<bf16>::kernel.declines(f);
    if (no)
        return no;
    if (f->choice[E74_STATE] != E74_FULL)
        return "only for state = full";
    if (c.nonlin != E74_LINEAR)
        return "only for nonlin = linear: otherwise steps cannot be merged into one product";
    if (c.z_outside)
        return "z on the row side has no chunked form: each row of a state would have its own "
               "triangular system";
    if (c.N % 16 || c.N > 128)
        return "only for n_state a multiple of 16, up to 128";
    return NULL;
}

GPU_KERNEL_FOR(bf16, chunked_cell, chunked, .idea = "64 steps at once, products on tensor cores",
               .pass = {forward, backward}, .work = work, .declines = chunked_declines,
               .approximates = "bf16 factors", .unit = 0x1p-8, .chunk = CHUNK, .stores = "delta");
