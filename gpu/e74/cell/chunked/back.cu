/* e74_cell, kernel `chunked`, the backward pass: scan_backward() computes E = dV and G
 * chunk by chunk from the last, one block per SLICE rows of a state; finish() computes dk,
 * dq and dz, one block per chunk.  The formulas are in chunked.cu. */
#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/device/vector.cuh"
#include "gpu/e74/cell/chunked/chunked.cuh"

using namespace e74_chunked;

template <int N, int SLICE>
static __device__ __forceinline__ void prefetch_dout(const plan &p, const work_tile &r,
                                                     const smem_layout<N, SLICE> &w, int chunk)
{
    constexpr int GROUP_THREADS = shape<N, SLICE>::GROUP_THREADS;
    if (chunk < r.begin)
        return;
    const operands o = operands_of(p, BACKWARD, w, chunk);
    const chunk_coord at = coord_of(p, chunk, r.bh);
    load_steps<SLICE, GROUP_THREADS>(p, at, o.y, p.c.y, r.first, columns_of(p, r));
    load_steps<SLICE, GROUP_THREADS>(p, at, o.dy, p.c.dout, r.first, columns_of(p, r));
}

/* The offsets of a thread's pairs of a strip in a tensor [T][BH][N]. */
struct fragment_offsets {
    int64_t first, other_row; /* of the first pair; from there to the row 8 steps later */
    int tiles[2];             /* valid tiles of either row */
};

static __device__ __forceinline__ fragment_offsets fragment_offsets_of(const plan &p,
                                                                       const chunk_coord &at,
                                                                       const warp_tile &s)
{
    const int t = s.m + fragment_row(), tiles = (p.c.N - s.n) / 8;
    const int64_t ld = p.c.BH * p.c.N;
    return {start(p, at) + t * ld + s.n + fragment_column(),
            8 * ld,
            {t < at.steps ? tiles : 0, t + 8 < at.steps ? tiles : 0}};
}

static __device__ __forceinline__ bool has(const fragment_offsets &at, int i)
{
    return i / 2 < at.tiles[i % 2];
}

static __device__ __forceinline__ int64_t element(const fragment_offsets &at, int i)
{
    return at.first + i % 2 * at.other_row + i / 2 * 8;
}

static __device__ __forceinline__ unsigned load_pair(const void *tensor, int64_t e)
{
    return *(const unsigned *)((const bf16 *)tensor + e);
}

static __device__ __forceinline__ void store_pair(void *tensor, int64_t e, float one, float other)
{
    *(unsigned *)((bf16 *)tensor + e) = pack_bf16x2(one, other);
}

/* sum += the strip of A; the thread's two rows are multiplied by `one` and `other`. */
template <int TILES>
static __device__ __forceinline__ void add_rows(float (*sum)[4], const bf16 *A, int ld,
                                                const warp_tile &s, float one, float other)
{
    #pragma unroll 16
    for (int i = 0; i < 2 * TILES; i++) {
        const unsigned x = shared_pair(A, ld, s, i);
        const float times = i % 2 ? other : one;
        float *to = strip_pair(sum, i);
        to[0] = fmaf(times, low_of_pair(x), to[0]);
        to[1] = fmaf(times, high_of_pair(x), to[1]);
    }
}

/* -(1 - r^2 |k|^2) / r; the diagonal of r P r is r^2 |k|^2, not 1. */
static __device__ __forceinline__ float diagonal_deficit(float r)
{
    return (float)E74_EPSILON * fmaf((float)E74_EPSILON, r, -2.0f);
}

/* Stores E = dv in float: v is k, and finish() adds dv to dk. */
template <int TILES>
static __device__ __forceinline__ void store_dv(const plan &p, const chunk_coord &at,
                                                const warp_tile &s, float (*E)[4])
{
    const fragment_offsets own = fragment_offsets_of(p, at, s);
    #pragma unroll 16
    for (int i = 0; i < 2 * TILES; i++)
        if (has(own, i))
            *(float2 *)(p.dv + element(own, i)) = {strip_pair(E, i)[0], strip_pair(E, i)[1]};
}

/* Replaces eight elements of dout in shared memory by dY = dout (y silu(y))'. */
static __device__ __forceinline__ void gate_backward(bf16 *dout, const bf16 *y)
{
    #pragma unroll 4
    for (int i = 0; i < 8; i += 2) {
        float dy[2];
        for (int j = 0; j < 2; j++) {
            const float yi = load(y + i + j);
            dy[j] = gate_backward(load(dout + i + j), yi, sigmoid(yi));
        }
        *(unsigned *)(dout + i) = pack_bf16x2(dy[0], dy[1]);
    }
}

/* Replaces dout of a chunk by dY, and stores dY to global memory for finish().  Each thread
 * processes the elements that its own cp.async copied. */
template <int N, int SLICE>
static __device__ __forceinline__ void
gate_chunk_backward(const plan &p, const work_tile &r, const smem_layout<N, SLICE> &w, int chunk)
{
    constexpr int GROUP_THREADS = shape<N, SLICE>::GROUP_THREADS;
    const operands o = operands_of(p, BACKWARD, w, chunk);
    const chunk_coord at = coord_of(p, chunk, r.bh);
    #pragma unroll 4
    for (int i = 0; i < CHUNK * SLICE / 8; i += GROUP_THREADS) {
        int row, column;
        vector_coord<SLICE>(i + threadIdx.x % GROUP_THREADS, &row, &column);
        bf16 *const dy = o.dy + row * padded(SLICE) + column;
        gate_backward(dy, o.y + row * padded(SLICE) + column);
        if (row < at.steps && r.first + column < p.c.N && !summarises(p))
            *(uint4 *)(p.dy + start(p, at) + row * p.c.BH * p.c.N + r.first + column) =
                *(const uint4 *)dy;
    }
}

/* The consumer warps compute E and G of all chunks, from the last. */
template <int N, int SLICE>
static __device__ __forceinline__ void consume_backward(const plan &p, const work_tile &r,
                                                        const smem_layout<N, SLICE> &w)
{
    typedef smem_layout<N, SLICE> h;
    constexpr int TILES = shape<N, SLICE>::TILES, WARPS = shape<N, SLICE>::WARPS;
    constexpr int LD = padded(SLICE);
    const warp_tile s = warp_tile_of(TILES, warp()), global_tile = {s.m, r.first + s.n};
    const int m = s.m, n = s.n;
    bf16 *const ddelta = w.intermediate, *const minus_F = w.staging;

    wait_for_starts(p);
    slice<N, SLICE> G = first_slice<N, SLICE>(p, r);
    for (int chunk = r.end - 1; chunk >= r.begin; chunk--) {
        const operands o = operands_of(p, BACKWARD, w, chunk);
        bf16 *const state = w.state + chunk % 2 * h::STATE;
        float sum[TILES][4] = {}, E[TILES][4] = {}, F[TILES][4];

        store_slice_bf16(state, G);
        block_barrier();
        const float one = o.scales[m + fragment_row()].x,
                    other = o.scales[m + fragment_row() + 8].x;
        if (!tied_q(p))
            multiply<LEFT, TILES, CHUNK>(sum, {o.P, LD_CHUNK, m}, {o.dy, LD, n}, m);
        multiply<RIGHT, TILES, N>(sum, {o.K, padded(N), m}, {state, padded(N), n});
        scale_rows<TILES>(sum, one, other);
        if (tied_q(p))
            add_rows<TILES>(sum, o.dy, LD, s, diagonal_deficit(one), diagonal_deficit(other));
        store_strip<TILES>(ddelta, LD, m, n, sum);
        if (!tied_q(p))
            add_chunk(G, o.dy, o.Q);
        warps_sync<WARPS>();
        multiply<LEFT, TILES, CHUNK>(E, {o.M, LD_CHUNK, m}, {ddelta, LD, n}, m);
        #pragma unroll 32
        for (int i = 0; i < 4 * TILES; i++)
            F[i / 4][i % 4] = E[i / 4][i % 4];
        scale_rows<TILES>(F, -one, -other);
        store_strip<TILES>(minus_F, LD, m, n, F);
        warps_sync<WARPS>();
        add_chunk(G, minus_F, o.X);
        if (tied_q(p))
            add_rows<TILES>(E, o.dy, LD, s, 1 / one, 1 / other);
        if (summarises(p))
            continue;
        if (p.dv)
            store_dv<TILES>(p, coord_of(p, chunk, r.bh), global_tile, E);
        else
            store_strip<TILES>(w.delta + chunk % 2 * h::VALUES, LD, m, n, E);
    }
    block_barrier();
    store_last(p, r, G);
}

/* The producer warps load operands, compute dY, and store the consumers' results to global
 * memory. */
template <int N, int SLICE>
static __device__ __forceinline__ void produce_backward(const plan &p, const work_tile &r,
                                                        const smem_layout<N, SLICE> &w)
{
    typedef smem_layout<N, SLICE> h;
    constexpr int TILES = shape<N, SLICE>::TILES, WARPS = shape<N, SLICE>::WARPS;
    const warp_tile s = warp_tile_of(TILES, warp() % WARPS), global_tile = {s.m, r.first + s.n};

    pdl_wait();
    pdl_launch_dependents();
    prefetch_dout(p, r, w, r.end - 1);
    cp_async_commit();
    for (int i = 1; i < p.stages; i++) {
        prefetch_chunk(p, BACKWARD, r, w, r.end - i);
        prefetch_dout(p, r, w, r.end - i - 1);
        cp_async_commit();
    }
    wait_for_stage(p);
    gate_chunk_backward(p, r, w, r.end - 1);
    for (int chunk = r.end - 1;; chunk--) {
        wait_for_stage(p);
        block_barrier();
        prefetch_chunk(p, BACKWARD, r, w, chunk - p.stages + 1);
        prefetch_dout(p, r, w, chunk - p.stages);
        cp_async_commit();
        if (chunk + 1 < r.end && !p.dv && !summarises(p))
            store_strip<TILES>(
                p, coord_of(p, chunk + 1, r.bh),
                {s, global_tile, w.delta + (chunk + 1) % 2 * h::VALUES, padded(SLICE)}, p.c.dv);
        if (chunk < r.begin)
            return;
        if (chunk > r.begin)
            gate_chunk_backward(p, r, w, chunk - 1);
        if (!summarises(p))
            store_factor<N, SLICE>(p, r, p.dstates + coord_of(p, chunk, r.bh).item * p.c.M,
                                   w.state + chunk % 2 * h::STATE);
    }
}

template <int N, int SLICE>
__global__ void __launch_bounds__((2 * shape<N, SLICE>::GROUP_THREADS), min_blocks(N, SLICE))
    scan_backward(plan p)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    const work_tile r = work_tile_of(p, SLICE);
    smem_arena smem = {buffer, 0};
    const smem_layout<N, SLICE> w = alloc_scan<N, SLICE>(&smem, p, BACKWARD);

    if (threadIdx.x < shape<N, SLICE>::GROUP_THREADS)
        consume_backward(p, r, w);
    else
        produce_backward(p, r, w);
}

/* ---- the keys' gradients ---- */

enum { STRIP = 64, TILES = STRIP / 8 /* columns per warp of finish() */ };

/* Threads of a block of finish(): one warp per 64 columns and 16 steps. */
static constexpr __host__ __device__ int finish_threads(int N)
{
    return N / STRIP * THREADS;
}

/* The shared memory of finish().  Matrices that are declared together share memory and are used in
 * that order (K and X only where there is no z; where q is k, Q is K). */
struct finish_smem {
    bf16 *K, *X;     /* [CHUNK][N] */
    bf16 *D;         /* [CHUNK][N]: v, V - r X S^T, D, then staging of results */
    bf16 *dY, *Q;    /* [CHUNK][N] */
    bf16 *E, *a;     /* [CHUNK][N], [CHUNK][CHUNK] */
    bf16 *S, *G;     /* [N][N] */
    bf16 *M, *lower; /* [CHUNK][CHUNK]: M, p */
    float2 *scales;  /* [CHUNK] */
    float *dot;      /* [N / STRIP][CHUNK] */
};

/* Where there is no z, finish_min_blocks() blocks of this size fit into the shared memory of an
 * SM. */
template <int N>
static __host__ __device__ finish_smem alloc_finish(smem_arena *smem, const plan &p)
{
    const int keys = CHUNK * padded(N);
    finish_smem w;

    w.K = smem->alloc<bf16>(keys);
    w.D = smem->alloc<bf16>(keys);
    w.dY = smem->alloc<bf16>(keys);
    w.Q = tied_q(p) ? w.K : w.dY;
    w.E = w.a = smem->alloc<bf16>(keys);
    w.S = w.G = smem->alloc<bf16>(N * padded(N));
    w.M = w.lower = smem->alloc<bf16>(CHUNK * LD_CHUNK);
    w.scales = smem->alloc<float2>(CHUNK);
    w.dot = smem->alloc<float>(N / STRIP * CHUNK);
    w.X = with_z(p.c) ? smem->alloc<bf16>(keys) : w.K;
    return w;
}

/* Rounds four elements to bf16. */
static __device__ __forceinline__ uint2 rounded(const four<float> &f)
{
    return {pack_bf16x2(f.x[0], f.x[1]), pack_bf16x2(f.x[2], f.x[3])};
}

static __device__ __forceinline__ uint2 rounded(const four<__half> &f)
{
    return {pack_bf16x2(__half2float(f.x[0]), __half2float(f.x[1])),
            pack_bf16x2(__half2float(f.x[2]), __half2float(f.x[3]))};
}

/* Like load_tile(), but of a matrix of another type, which it rounds to bf16; each thread has eight
 * unconditional loads in flight. */
template <int COLUMNS, int THREADS, int ALL_ROWS, typename T>
static __device__ __forceinline__ void load_rounded(bf16 *to, const T *from, int64_t ld, int rows,
                                                    int columns)
{
    constexpr int VECTORS = COLUMNS / 4, ROWS = THREADS / VECTORS;
    const int thread = opaque_thread_index() % THREADS, first = thread / VECTORS,
              column = thread % VECTORS * 4;
    const bool some = column < columns;

    #pragma unroll 1
    for (int i = first; i < ALL_ROWS; i += 8 * ROWS) {
        four<T> x[8];
        #pragma unroll 8
        for (int j = 0; j < 8; j++) {
            const int row = i + j * ROWS;
            x[j] = *(const four<T> *)(from + (row < rows && some ? row * ld + column : 0));
        }
        __syncwarp(); /* else the compiler serialises the loads */
        #pragma unroll 8
        for (int j = 0; j < 8; j++) {
            const int row = i + j * ROWS;
            const uint2 quad = rounded(x[j]);
            *(uint2 *)(to + row * padded(COLUMNS) + column) =
                row < rows && some ? quad : uint2{0, 0};
        }
    }
}

/* Loads a state to shared memory, in bf16. */
template <int N>
static __device__ __forceinline__ void load_state(const plan &p, bf16 *to, const bf16 *from)
{
    load_tile<N, finish_threads(N), N>(to, from, p.c.N, p.c.N, p.c.N);
}

template <int N, typename T>
static __device__ __forceinline__ void load_state(const plan &p, bf16 *to, const T *from)
{
    load_rounded<N, finish_threads(N), N>(to, from, p.c.N, p.c.N, p.c.N);
}

/* Loads the state before the chunk. */
template <int N>
static __device__ __forceinline__ void load_initial_state(const plan &p, const chunk_coord &at,
                                                          bf16 *S)
{
    const int64_t checkpoint = (at.t / CHUNK * p.checkpoints_per_chunk * p.c.BH + at.bh) * p.c.M;

    if (p.states)
        load_state<N>(p, S, p.states + at.item * p.c.M);
    else if (p.c.kept == KEPT_F32)
        load_state<N>(p, S, (const float *)p.c.checkpoints + checkpoint);
    else if (p.c.kept == KEPT_BF16)
        load_state<N>(p, S, (const bf16 *)p.c.checkpoints + checkpoint);
    else
        load_state<N>(p, S, (const __half *)p.c.checkpoints + checkpoint);
}

/* Loads dv, where it is stored in float. */
template <int N>
static __device__ __forceinline__ void load_dv(const plan &p, const chunk_coord &at, bf16 *E)
{
    load_rounded<N, finish_threads(N), CHUNK>(E, p.dv + start(p, at), p.c.BH * p.c.N, at.steps,
                                              p.c.N);
}

/* Stores the warp's 16 x 16 blocks of p = lower part of dY D^T and a = strictly lower part of -r E
 * D^T, up to the diagonal; the blocks beyond it are never read.  a overlays E, so it is stored
 * after all reads of E. */
template <int N>
static __device__ __forceinline__ void store_triangles(const finish_smem &w, int m)
{
    constexpr int STEP = 16 * (N / STRIP), BLOCKS = CHUNK / STEP;
    const int first = warp() / 4 * 16;
    unsigned held[BLOCKS][4];

    #pragma unroll 4
    for (int i = 0; i < BLOCKS; i++) {
        const int column = first + i * STEP;
        float part[2][4] = {}, strict[2][4] = {};
        if (column > m)
            break;
        multiply_both<RIGHT, 2, N>(part, {w.dY, padded(N), m}, strict, {w.E, padded(N), m},
                                   {w.D, padded(N), column});
        mask_triangle<false, 2>(part, m, column);
        store_strip<2>(w.lower, LD_CHUNK, m, column, part);
        mask_triangle<true, 2>(strict, m, column);
        scale_rows<2>(strict, -w.scales[m + fragment_row()].x, -w.scales[m + fragment_row() + 8].x);
        for (int j = 0; j < 4; j++)
            held[i][j] = pack_bf16x2(strict[j / 2][j % 2 * 2], strict[j / 2][j % 2 * 2 + 1]);
    }
    if (N > STRIP)
        __syncthreads();
    else
        __syncwarp(); /* only this warp reads this strip of E */
    #pragma unroll 4
    for (int i = 0; i < BLOCKS; i++) {
        const int column = first + i * STEP;
        if (column > m)
            break;
        for (int j = 0; j < 4; j++) {
            const int row = m + fragment_row() + j % 2 * 8;
            *(unsigned *)(w.a + row * LD_CHUNK + column + j / 2 * 8 + fragment_column()) =
                held[i][j];
        }
    }
}

/* Replaces r du in dkey by z r du, its share of r dk^; stores dz. */
static __device__ __forceinline__ void z_backward(const plan &p, const chunk_coord &at,
                                                  const bf16 *K, int ld, const warp_tile &s,
                                                  float (*dkey)[4])
{
    const fragment_offsets own = fragment_offsets_of(p, at, s);
    #pragma unroll 16
    for (int i = 0; i < 2 * TILES; i++) {
        if (!has(own, i))
            continue;
        const int64_t e = element(own, i);
        const unsigned z = load_pair(p.c.z, e), k = shared_pair(K, ld, s, i);
        float *du = strip_pair(dkey, i);
        store_pair(p.c.dz, e, du[0] * low_of_pair(k), du[1] * high_of_pair(k));
        du[0] *= low_of_pair(z);
        du[1] *= high_of_pair(z);
    }
}

/* <k, r dk^> r / |k| of the thread's two steps.  Where two warps share a strip, the barrier also
 * ensures that all warps have finished their products. */
template <int N>
static __device__ __forceinline__ void dot_with_keys(const finish_smem &w, const warp_tile &s,
                                                     float (*dkey)[4], float (&dot)[2])
{
    dot[0] = dot[1] = 0;
    #pragma unroll 16
    for (int i = 0; i < 2 * TILES; i++) {
        const unsigned k = shared_pair(w.K, padded(N), s, i);
        dot[i % 2] = fmaf(low_of_pair(k), strip_pair(dkey, i)[0], dot[i % 2]);
        dot[i % 2] = fmaf(high_of_pair(k), strip_pair(dkey, i)[1], dot[i % 2]);
    }
    warp_sums<4>(dot);
    #pragma unroll 2
    for (int h = 0; h < 2; h++)
        if (N > STRIP && fragment_column() == 0)
            w.dot[s.n / STRIP * CHUNK + s.m + fragment_row() + 8 * h] = dot[h];
    if (N > STRIP)
        __syncthreads();
    #pragma unroll 2
    for (int h = 0; h < 2; h++) {
        const int t = s.m + fragment_row() + 8 * h;
        if (N > STRIP)
            dot[h] = w.dot[t] + w.dot[CHUNK + t];
        dot[h] *= w.scales[t].y;
    }
}

/* dk += dv, which is stored in float. */
static __device__ __forceinline__ void add_dv(const plan &p, const chunk_coord &at,
                                              const warp_tile &s, float (*dkey)[4])
{
    const fragment_offsets own = fragment_offsets_of(p, at, s);
    #pragma unroll 16
    for (int i = 0; i < 2 * TILES; i++) {
        if (!has(own, i))
            continue;
        const float2 dv = *(const float2 *)(p.dv + element(own, i));
        strip_pair(dkey, i)[0] += dv.x;
        strip_pair(dkey, i)[1] += dv.y;
    }
}

/* Computes dk from r dk^; adds dq where q is k. */
static __device__ __forceinline__ void complete_keys(const plan &p, const bf16 *K, int ld,
                                                     const warp_tile &s, const float dot[2],
                                                     float (*dkey)[4], float (*dq)[4])
{
    #pragma unroll 16
    for (int i = 0; i < 2 * TILES; i++) {
        const unsigned k = shared_pair(K, ld, s, i);
        float *x = strip_pair(dkey, i);
        x[0] = fmaf(-dot[i % 2], low_of_pair(k), x[0]);
        x[1] = fmaf(-dot[i % 2], high_of_pair(k), x[1]);
        if (!p.c.dq) {
            x[0] += strip_pair(dq, i)[0];
            x[1] += strip_pair(dq, i)[1];
        }
    }
}

/* For __launch_bounds__: the minimum number of resident blocks of finish() per SM. */
static constexpr int finish_min_blocks(int N)
{
    return N > STRIP ? 2 : 4;
}

/* Issues two groups of cp.async: the operands of D, then dY and E. */
template <int N>
static __device__ __forceinline__ void load_operands(const plan &p, const chunk_coord &at,
                                                     const finish_smem &w)
{
    constexpr int BLOCK_THREADS = finish_threads(N);

    load_steps<N, BLOCK_THREADS>(p, at, w.K, p.c.k);
    if (p.c.z)
        load_steps<N, BLOCK_THREADS>(p, at, w.X, p.x);
    load_steps<N, BLOCK_THREADS>(p, at, w.D, p.c.v);
    load_factor<BLOCK_THREADS>(p, at, M_OF, w.M);
    load_scales<BLOCK_THREADS>(p, at, w.scales);
    load_initial_state<N>(p, at, w.S);
    cp_async_commit();
    load_steps<N, BLOCK_THREADS>(p, at, w.dY, p.dy);
    if (p.dv)
        load_dv<N>(p, at, w.E);
    else
        load_steps<N, BLOCK_THREADS>(p, at, w.E, p.c.dv);
    cp_async_commit();
}

template <int N>
__global__ void __launch_bounds__(finish_threads(N), finish_min_blocks(N)) finish(plan p)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    constexpr int BLOCK_THREADS = finish_threads(N), LD = padded(N);
    const chunk_coord at = block_coord(p);
    const warp_tile s = warp_tile_of(TILES, warp());
    const int m = s.m, first = s.n;
    smem_arena smem = {buffer, 0};
    const finish_smem w = alloc_finish<N>(&smem, p);

    pdl_wait();
    load_operands<N>(p, at, w);
    cp_async_wait<1>();
    __syncthreads();

    float reads[TILES][4] = {}, d[TILES][4] = {};
    multiply<RIGHT, TILES, N>(reads, {w.X, LD, m}, {w.S, LD, first});
    scale_rows<TILES>(reads, w.scales, m);
    subtract_from<TILES>(reads, w.D, LD, s);
    store_strip<TILES>(w.D, LD, m, first, reads);
    __syncthreads();
    multiply<NEITHER, TILES, CHUNK>(d, {w.M, LD_CHUNK, m}, {w.D, LD, first}, 0, m + 16);
    scale_rows<TILES>(d, w.scales, m);
    cp_async_wait<0>();
    __syncthreads(); /* M and V - r X S^T have been read; D overlays the latter */
    store_strip<TILES>(w.D, LD, m, first, d);
    float dkey[TILES][4] = {}, dq[TILES][4] = {}, dot[2];
    multiply_both<NEITHER, TILES, N>(dkey, {w.E, LD, m}, dq, {w.dY, LD, m}, {w.S, LD, first});
    scale_rows<TILES>(dkey, -w.scales[m + fragment_row()].x, -w.scales[m + fragment_row() + 8].x);
    __syncthreads();
    load_state<N>(p, w.G, p.dstates + at.item * p.c.M);
    cp_async_commit();

    store_triangles<N>(w, m);
    __syncthreads();
    if (!tied_q(p))
        load_steps<N, BLOCK_THREADS>(p, at, w.Q, p.c.q);
    cp_async_commit();
    multiply_both<NEITHER, TILES, CHUNK>(dq, {w.lower, LD_CHUNK, m}, dkey, {w.a, LD_CHUNK, m},
                                         {w.K, LD, first}, m + 16);
    if (p.c.z)
        z_backward(p, at, w.K, LD, s, dkey);
    multiply<LEFT, TILES, CHUNK>(dkey, {w.a, LD_CHUNK, m}, {w.X, LD, first}, m);
    cp_async_wait<0>();
    __syncthreads();
    multiply<NEITHER, TILES, N>(dkey, {w.D, LD, m}, {w.G, LD, first});
    multiply<LEFT, TILES, CHUNK>(dkey, {w.lower, LD_CHUNK, m}, {w.Q, LD, first}, m);
    dot_with_keys<N>(w, s, dkey, dot);
    complete_keys(p, w.K, LD, s, dot, dkey, dq);
    if (p.dv)
        add_dv(p, at, s, dkey);
    const staged_tile staged = {s, s, w.D, LD};
    if (p.c.dq)
        store_strip_staged<TILES>(p, at, staged, p.c.dq, dq);
    store_strip_staged<TILES>(p, at, staged, p.c.dk, dkey);
}

/* ---- launches ---- */

struct backward_scan {
    static constexpr enum pass pass = BACKWARD;
    template <int N, int SLICE>
    static void (*kernel(void))(plan)
    {
        return scan_backward<N, SLICE>;
    }
};

cudaError_t e74_chunked::chunked_scan_backward(struct context *on, const plan &p)
{
    return scan<backward_scan>(on, p);
}

template <int N>
static cudaError_t launch_finish(struct context *on, const plan &p)
{
    return launch(on, finish<N>, p, p.chunks * p.c.BH, finish_threads(N),
                  arena_bytes<alloc_finish<N>>(p));
}

cudaError_t e74_chunked::chunked_finish(struct context *on, const plan &p)
{
    return p.c.N <= 64 ? launch_finish<64>(on, p) : launch_finish<128>(on, p);
}
