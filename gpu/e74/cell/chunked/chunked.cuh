/* chunked.cuh - the plan of a call, the tiles of a state in registers, and the
 * shared-memory stages of e74_cell's kernels `chunked` and `split`.  The formulas and the
 * mapping to threads are in chunked.cu, those of `split` in split/split.cu. */
#ifndef E74_CELL_CHUNKED_CUH
#define E74_CELL_CHUNKED_CUH

#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/fragment.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/mma.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/device/reduce.cuh"
#include "gpu/device/smem.cuh"
#include "gpu/e74/cell_math.cuh"
#include "gpu/e74/e74_cell.cuh"

namespace e74_chunked
{

enum {
    CHUNK = 64,
    THREADS = 128,       /* one warp per strip of 16 steps */
    STAGES_MAX = 3,      /* chunks in a block's shared memory: this one and those in flight */
    LD_CHUNK = CHUNK + 8 /* leading dimension: padded(CHUNK) */
};

struct plan {
    cell_call c;
    int chunks;
    int chunks_per_split;      /* all chunks, unless T is split */
    int splits;                /* per sequence */
    int target_blocks;         /* slices get fewer rows until the grid has this many */
    int slices;                /* blocks that share a state */
    int stages;                /* of the pipeline: as many as fit into shared memory, 2 or 3 */
    int checkpoints_per_chunk; /* where chunks begin at checkpoints */
    bf16 *factors;             /* [chunks][BH][M P][CHUNK][CHUNK] */
    float2 *scales;            /* [chunks][BH][CHUNK]: r, and r / |k| */
    bf16 *x;                   /* [T][BH][N]: k, or z k */
    bf16 *states;              /* [chunks][BH][N][N] before each chunk; NULL: not stored */
    bf16 *dstates;             /* [chunks][BH][N][N]: G after each chunk */
    bf16 *dy;                  /* [T][BH][N]: dY */
    float *dv;                 /* [T][BH][N]: where v is k */

    /* The initial states of the splits, [splits][BH][N][N]: S, or G in the backward pass;
     * NULL: the scan computes A and b of each split. */
    const float *starts;
    float *end; /* [BH][N][N] after the last split, or G before the first; NULL: not stored */
    /* Where T is split, for each split: b, later its initial state; and A, split into high and low
     * bf16. */
    float *split_states; /* [splits][BH][N][N] */
    bf16 *A;             /* [splits][BH][high low][N][N] */
};

/* Does the scan compute b and A of each split (from the state 0, and from the unit matrix with
 * v = 0), and no outputs? */
static __host__ __device__ __forceinline__ bool summarises(const plan &p)
{
    return !p.starts;
}

/* A chunk of one (sequence, head). */
struct chunk_coord {
    int64_t t, bh, item; /* the first step; the item among chunks x BH */
    int steps;
};

static __device__ __forceinline__ chunk_coord coord_of(const plan &p, int64_t chunk, int64_t bh)
{
    const int64_t t = chunk * CHUNK;
    return {t, bh, chunk * p.c.BH + bh, (int)min((int64_t)CHUNK, p.c.T - t)};
}

/* This block's chunk, in a grid of one block per chunk of each (sequence, head). */
static __device__ __forceinline__ chunk_coord block_coord(const plan &p)
{
    const unsigned BH = (unsigned)p.c.BH;
    return coord_of(p, blockIdx.x / BH, blockIdx.x % BH);
}

/* The offset of the chunk's first vector in a tensor [T][BH][N] of leading dimension BH * N. */
static __device__ __forceinline__ int64_t start(const plan &p, const chunk_coord &at)
{
    return (at.t * p.c.BH + at.bh) * p.c.N;
}

static __host__ __device__ __forceinline__ bool tied_q(const plan &p)
{
    return p.c.q == p.c.k;
}

static __device__ __forceinline__ int warp(void)
{
    return threadIdx.x / 32;
}

/* ---- from global memory ---- */

/* Row and column of 16-byte vector i of a row-major matrix. */
template <int COLUMNS>
static __device__ __forceinline__ void vector_coord(int i, int *row, int *column)
{
    *row = i / (COLUMNS / 8);
    *column = i % (COLUMNS / 8) * 8;
}

/* cp.async of a matrix to ALL_ROWS rows of shared memory, zeros beyond `rows` and `columns`.
 * Thread i copies vectors i, i + THREADS, ... of vector_coord(). */
template <int COLUMNS, int THREADS, int ALL_ROWS = CHUNK>
static __device__ __forceinline__ void load_tile(bf16 *to, const bf16 *from, int64_t ld, int rows,
                                                 int columns)
{
    constexpr int VECTORS = COLUMNS / 8, ROWS = THREADS / VECTORS;
    const int thread = opaque_thread_index() % THREADS, first = thread / VECTORS,
              column = thread % VECTORS * 8;

    to += first * padded(COLUMNS) + column;
    from += first * ld + column;
    #pragma unroll 8
    for (int i = 0; i < ALL_ROWS / ROWS; i++, from += ROWS * ld) {
        const bool any = first + i * ROWS < rows && column < columns;
        cp_async16(to + i * ROWS * padded(COLUMNS), from, any ? 16 : 0);
    }
}

template <int COLUMNS, int BLOCK_THREADS>
static __device__ __forceinline__ void load_steps(const plan &p, const chunk_coord &at, bf16 *to,
                                                  const void *from, int first, int columns)
{
    load_tile<COLUMNS, BLOCK_THREADS>(to, (const bf16 *)from + start(p, at) + first, p.c.BH * p.c.N,
                                      at.steps, columns);
}

template <int COLUMNS, int BLOCK_THREADS>
static __device__ __forceinline__ void load_steps(const plan &p, const chunk_coord &at, bf16 *to,
                                                  const void *from)
{
    load_steps<COLUMNS, BLOCK_THREADS>(p, at, to, from, 0, p.c.N);
}

enum which_factor { M_OF, P_OF };

/* M or P of a chunk.  Both are zero above the 16 x 16 blocks on the diagonal. */
template <int THREADS>
static __device__ __forceinline__ void load_factor(const plan &p, const chunk_coord &at,
                                                   which_factor which, bf16 *to)
{
    constexpr int ROWS = THREADS / (CHUNK / 8);
    const bf16 *from = p.factors + (2 * at.item + which) * CHUNK * CHUNK;
    const int thread = opaque_thread_index() % THREADS, first = thread / 8, column = thread % 8 * 8;

    #pragma unroll 4
    for (int i = 0; i < CHUNK; i += ROWS) {
        const int row = first + i;
        cp_async16(to + row * LD_CHUNK + column, from + row * CHUNK + column,
                   column / 16 <= row / 16 ? 16 : 0);
    }
}

template <int THREADS>
static __device__ __forceinline__ void load_scales(const plan &p, const chunk_coord &at, float2 *to)
{
    const int t = threadIdx.x % THREADS * 2;
    if (t < CHUNK)
        cp_async16(to + t, p.scales + at.item * CHUNK + t);
}

/* ---- a block's state and operands ---- */

/* A block has two warp roles of WARPS warps each: consumers hold the state, WARP_COLUMNS of its
 * columns per warp; producers load operands and store results.  Each warp of either role computes
 * TILES 16 x 8 tiles of a matrix of CHUNK rows. */
template <int N, int SLICE>
struct shape {
    static constexpr int WARPS = N * SLICE > 64 * 64 ? 8 : 4, GROUP_THREADS = 32 * WARPS;
    static constexpr int WARP_COLUMNS = N / WARPS, TILES = SLICE / 8 / (WARPS / 4);
};

/* For __launch_bounds__: the minimum number of resident blocks of a scan per SM. */
static constexpr int min_blocks(int N, int SLICE)
{
    return N * SLICE < 64 * 64 ? 2 : 1;
}

/* A thread's accumulator fragments of SLICE rows of a state. */
template <int N, int SLICE>
struct slice {
    float x[SLICE / 16][shape<N, SLICE>::WARP_COLUMNS / 8][4];
};

/* A warp's tile of a matrix [CHUNK][SLICE]: 16 steps from m on, columns from n on. */
struct warp_tile {
    int m, n;
};

static __device__ __forceinline__ warp_tile warp_tile_of(int tiles, int warp)
{
    return {warp % 4 * 16, warp / 4 * 8 * tiles};
}

/* A block's work: SLICE rows of a state, through the chunks of a split. */
struct work_tile {
    int64_t bh, item; /* which state; the index among splits x BH */
    int first;        /* row */
    int begin, end;   /* chunks */
    bool unit;        /* begins with the unit matrix, and v or dout are 0 */
};

static __device__ __forceinline__ work_tile work_tile_of(const plan &p, int count)
{
    const unsigned BH = (unsigned)p.c.BH, pairs = summarises(p);
    const unsigned nth = blockIdx.x / p.slices, item = nth >> pairs;
    const int begin = (int)(item / BH) * p.chunks_per_split;
    return {item % BH,
            item,
            (int)(blockIdx.x % p.slices) * count,
            begin,
            min(begin + p.chunks_per_split, p.chunks),
            (nth & pairs) > 0};
}

/* The number of columns of v, y or dout from r.first on; 0 where r.unit replaces them by zeros. */
static __device__ __forceinline__ int columns_of(const plan &p, const work_tile &r)
{
    return r.unit ? 0 : p.c.N - r.first;
}

/* The number of pairs of neighbouring elements in a thread's fragments. */
template <int N, int SLICE>
static constexpr __host__ __device__ int pairs(void)
{
    return SLICE / 16 * (shape<N, SLICE>::WARP_COLUMNS / 8) * 2;
}

template <int N, int SLICE>
static __device__ __forceinline__ float *nth_pair(slice<N, SLICE> &S, int i)
{
    constexpr int TILES = shape<N, SLICE>::WARP_COLUMNS / 8;
    return S.x[i / 2 / TILES][i / 2 % TILES] + i % 2 * 2;
}

/* Row and column of pair i in the slice. */
template <int N, int SLICE>
static __device__ __forceinline__ int pair_row(int i)
{
    return i / 2 / (shape<N, SLICE>::WARP_COLUMNS / 8) * 16 + i % 2 * 8 + fragment_row();
}

template <int N, int SLICE>
static __device__ __forceinline__ int pair_column(int i)
{
    constexpr int WARP_COLUMNS = shape<N, SLICE>::WARP_COLUMNS;
    return warp() * WARP_COLUMNS + i / 2 % (WARP_COLUMNS / 8) * 8 + fragment_column();
}

/* The offset of a thread's first pair in its state. */
template <int N, int SLICE>
static __device__ __forceinline__ int first_element(const plan &p, const work_tile &r)
{
    const int lane = opaque_thread_index() % 32;
    return (r.first + lane / 4) * p.c.N + warp() * shape<N, SLICE>::WARP_COLUMNS + lane % 4 * 2;
}

/* The offset of pair i, given that of the first pair; -1 where the state has no such row or
 * column. */
template <int N, int SLICE>
static __device__ __forceinline__ int pair_element(const plan &p, const work_tile &r, int first,
                                                   int i)
{
    constexpr int WARP_COLUMNS = shape<N, SLICE>::WARP_COLUMNS;
    const int row = i / 2 / (WARP_COLUMNS / 8) * 16, column = i / 2 % (WARP_COLUMNS / 8) * 8;
    return r.first + row < p.c.N && warp() * WARP_COLUMNS + column < p.c.N
               ? first + (row + i % 2 * 8) * p.c.N + column
               : -1;
}

/* `state` is an index into states [BH], [checkpoints][BH] or [chunks][BH]. */
template <int N, int SLICE>
static __device__ slice<N, SLICE> load_slice(const plan &p, const work_tile &r, const float *states,
                                             int64_t state)
{
    const int first = first_element<N, SLICE>(p, r);
    slice<N, SLICE> S;
    #pragma unroll 32
    for (int i = 0; i < pairs<N, SLICE>(); i++) {
        const int e = pair_element<N, SLICE>(p, r, first, i);
        const float2 both = e < 0 ? float2{0, 0} : *(const float2 *)(states + state * p.c.M + e);
        nth_pair(S, i)[0] = both.x;
        nth_pair(S, i)[1] = both.y;
    }
    return S;
}

template <int N, int SLICE>
static __device__ __forceinline__ void store_slice(const plan &p, const work_tile &r, float *states,
                                                   int64_t state, slice<N, SLICE> &S)
{
    const int first = first_element<N, SLICE>(p, r);
    #pragma unroll 32
    for (int i = 0; i < pairs<N, SLICE>(); i++) {
        const int e = pair_element<N, SLICE>(p, r, first, i);
        if (e >= 0)
            *(float2 *)(states + state * p.c.M + e) = {nth_pair(S, i)[0], nth_pair(S, i)[1]};
    }
}

/* The block's initial state. */
template <int N, int SLICE>
static __device__ __forceinline__ slice<N, SLICE> first_slice(const plan &p, const work_tile &r)
{
    slice<N, SLICE> S;
    if (!summarises(p))
        return load_slice<N, SLICE>(p, r, p.starts, r.item);
    #pragma unroll 32
    for (int i = 0; i < pairs<N, SLICE>(); i++) {
        const int row = r.first + pair_row<N, SLICE>(i), column = pair_column<N, SLICE>(i);
        nth_pair(S, i)[0] = r.unit && row == column ? 1 : 0;
        nth_pair(S, i)[1] = r.unit && row == column + 1 ? 1 : 0;
    }
    return S;
}

/* Rows of a split's transition matrix A, each element split into high and low bf16. */
template <int N, int SLICE>
static __device__ __forceinline__ void store_transition(const plan &p, const work_tile &r,
                                                        slice<N, SLICE> &S)
{
    const int first = first_element<N, SLICE>(p, r);
    bf16 *const A = p.A + 2 * r.item * p.c.M;
    #pragma unroll 32
    for (int i = 0; i < pairs<N, SLICE>(); i++) {
        const int e = pair_element<N, SLICE>(p, r, first, i);
        unsigned high, low;
        split_bf16(nth_pair(S, i)[0], nth_pair(S, i)[1], &high, &low);
        if (e >= 0) {
            *(unsigned *)(A + e) = high;
            *(unsigned *)(A + p.c.M + e) = low;
        }
    }
}

/* The block's final state. */
template <int N, int SLICE>
static __device__ __forceinline__ void store_last(const plan &p, const work_tile &r,
                                                  slice<N, SLICE> &S)
{
    if (r.unit)
        store_transition(p, r, S);
    else if (summarises(p))
        store_slice(p, r, p.split_states, r.item, S);
    else if (p.end)
        store_slice(p, r, p.end, r.bh, S);
}

/* Where T is split, the kernel before this one computes the initial states. */
static __device__ __forceinline__ void wait_for_starts(const plan &p)
{
    if (p.split_states)
        pdl_wait();
}

/* Stores a slice to shared memory in bf16, as an operand of mma. */
template <int N, int SLICE>
static __device__ __forceinline__ void store_slice_bf16(bf16 *to, slice<N, SLICE> &S)
{
    #pragma unroll 32
    for (int i = 0; i < pairs<N, SLICE>(); i++)
        *(unsigned *)(to + pair_row<N, SLICE>(i) * padded(N) + pair_column<N, SLICE>(i)) =
            pack_bf16x2(nth_pair(S, i)[0], nth_pair(S, i)[1]);
}

/* The producer warps copy that operand to a state in global memory. */
template <int N, int SLICE>
static __device__ __forceinline__ void store_factor(const plan &p, const work_tile &r, bf16 *state,
                                                    const bf16 *from)
{
    constexpr int GROUP_THREADS = shape<N, SLICE>::GROUP_THREADS, VECTORS = N / 8,
                  ROWS = GROUP_THREADS / VECTORS;
    const int first = threadIdx.x % GROUP_THREADS / VECTORS, column = threadIdx.x % VECTORS * 8;
    #pragma unroll 8
    for (int i = 0; i < SLICE; i += ROWS) {
        const int row = first + i;
        if ((ROWS <= SLICE || row < SLICE) && r.first + row < p.c.N && column < p.c.N)
            *(uint4 *)(state + (r.first + row) * p.c.N + column) =
                *(const uint4 *)(from + row * padded(N) + column);
    }
}

/* S += the sum of left_t right_t^T over the 16 steps from k on. */
template <int N, int SLICE>
static __device__ __forceinline__ void add_steps(slice<N, SLICE> &S, const bf16 *left,
                                                 const bf16 *right, int k)
{
    constexpr int WARP_COLUMNS = shape<N, SLICE>::WARP_COLUMNS;
    unsigned b[WARP_COLUMNS / 16][4];
    #pragma unroll 2
    for (int n = 0; n < WARP_COLUMNS / 16; n++)
        load_fragment_b<false>(b[n], right, padded(N), k, warp() * WARP_COLUMNS + 16 * n);
    #pragma unroll 4
    for (int m = 0; m < SLICE / 16; m++) {
        unsigned a[4];
        load_fragment_a<true>(a, left, padded(SLICE), 16 * m, k);
        #pragma unroll 2
        for (int n = 0; n < WARP_COLUMNS / 16; n++) {
            mma_bf16(S.x[m][2 * n], a, b[n]);
            mma_bf16(S.x[m][2 * n + 1], a, b[n] + 2);
        }
    }
}

/* S += the sum over a chunk. */
template <int N, int SLICE>
static __device__ __forceinline__ void add_chunk(slice<N, SLICE> &S, const bf16 *left,
                                                 const bf16 *right)
{
    #pragma unroll 4
    for (int k = 0; k < CHUNK; k += 16)
        add_steps(S, left, right, k);
}

/* The operands of a chunk: one stage of the pipeline in shared memory. */
struct operands {
    bf16 *K, *X, *Q; /* [CHUNK][N] */
    bf16 *M, *P;     /* [CHUNK][CHUNK] */
    bf16 *v, *y;     /* [CHUNK][SLICE]: v forward, y backward */
    bf16 *dy;        /* [CHUNK][SLICE]: dout, then dY; one stage more */
    float2 *scales;  /* [CHUNK] */
};

/* A block's shared memory: the buffers that the warp roles exchange, two of each, and the
 * stages. */
template <int N, int SLICE>
struct smem_layout {
    static constexpr int KEYS = CHUNK * padded(N), SQUARE = CHUNK * LD_CHUNK,
                         VALUES = CHUNK * padded(SLICE), STATE = SLICE * padded(N);
    bf16 *state;        /* two of [SLICE][N]: S before, or G after a chunk, in bf16 */
    bf16 *delta;        /* two of [CHUNK][SLICE]: D, or E */
    bf16 *intermediate; /* [CHUNK][SLICE]: between two products of the recurrence */
    bf16 *staging;      /* [CHUNK][SLICE]: staging of results; backward: a second intermediate */
    unsigned char *stages;
    bf16 *dy_stages;
};

template <int N, int SLICE>
static __host__ __device__ __forceinline__ operands alloc_stage(smem_arena *smem, const plan &p,
                                                                enum pass pass)
{
    typedef smem_layout<N, SLICE> h;
    operands o;

    o.K = smem->alloc<bf16>(h::KEYS);
    o.M = smem->alloc<bf16>(h::SQUARE);
    o.v = o.y = smem->alloc<bf16>(h::VALUES);
    o.scales = smem->alloc<float2>(CHUNK);
    o.P = pass == BACKWARD && tied_q(p) ? NULL : smem->alloc<bf16>(h::SQUARE);
    o.Q = tied_q(p) ? o.K : smem->alloc<bf16>(h::KEYS);
    o.X = with_z(p.c) ? smem->alloc<bf16>(h::KEYS) : o.K;
    return o;
}

template <int N, int SLICE>
static __host__ __device__ __forceinline__ smem_layout<N, SLICE>
alloc_scan(smem_arena *smem, const plan &p, enum pass pass)
{
    typedef smem_layout<N, SLICE> h;
    const int stage = arena_bytes<alloc_stage<N, SLICE>>(p, pass);
    h w;

    w.state = smem->alloc<bf16>(2 * h::STATE);
    w.delta = smem->alloc<bf16>(2 * h::VALUES);
    w.intermediate = smem->alloc<bf16>(h::VALUES);
    w.staging = smem->alloc<bf16>(h::VALUES);
    w.stages = smem->alloc<unsigned char>(p.stages * stage);
    w.dy_stages = pass == BACKWARD ? smem->alloc<bf16>((p.stages + 1) * h::VALUES) : NULL;
    return w;
}

template <int N, int SLICE>
static __device__ __forceinline__ operands operands_of(const plan &p, enum pass pass,
                                                       const smem_layout<N, SLICE> &w, int chunk)
{
    const unsigned nth = (unsigned)chunk % (unsigned)p.stages;
    smem_arena stage = {w.stages + nth * arena_bytes<alloc_stage<N, SLICE>>(p, pass), 0};
    operands o = alloc_stage<N, SLICE>(&stage, p, pass);
    o.dy = w.dy_stages + (unsigned)chunk % (unsigned)(p.stages + 1) * smem_layout<N, SLICE>::VALUES;
    return o;
}

/* Does the scan compute y and out?  Else only states. */
static __device__ __forceinline__ bool has_outputs(const plan &p)
{
    return !p.states && !summarises(p);
}

/* cp.async of a chunk's operands into its stage. */
template <int N, int SLICE>
static __device__ __forceinline__ void prefetch_chunk(const plan &p, enum pass pass,
                                                      const work_tile &r,
                                                      const smem_layout<N, SLICE> &w, int chunk)
{
    constexpr int GROUP_THREADS = shape<N, SLICE>::GROUP_THREADS;
    if (chunk < r.begin || chunk >= r.end)
        return;
    const operands o = operands_of(p, pass, w, chunk);
    const chunk_coord at = coord_of(p, chunk, r.bh);
    load_steps<N, GROUP_THREADS>(p, at, o.K, p.c.k);
    if (!tied_q(p) && (pass == BACKWARD || has_outputs(p)))
        load_steps<N, GROUP_THREADS>(p, at, o.Q, p.c.q);
    if (p.c.z)
        load_steps<N, GROUP_THREADS>(p, at, o.X, p.x);
    load_factor<GROUP_THREADS>(p, at, M_OF, o.M);
    if (pass == BACKWARD && !tied_q(p))
        load_factor<GROUP_THREADS>(p, at, P_OF, o.P);
    if (pass == FORWARD)
        load_steps<SLICE, GROUP_THREADS>(p, at, o.v, p.c.v, r.first, columns_of(p, r));
    load_scales<GROUP_THREADS>(p, at, o.scales);
}

/* Wait for all groups of cp.async but the newest STAGES_MAX - 2. */
static __device__ __forceinline__ void wait_for_stage(const plan &p)
{
    if (p.stages == STAGES_MAX)
        cp_async_wait<STAGES_MAX - 2>();
    else
        cp_async_wait<0>();
}

/* Multiplies the thread's two rows of each tile by `one` and `other`. */
template <int TILES>
static __device__ __forceinline__ void scale_rows(float (*sum)[4], float one, float other)
{
    #pragma unroll 8
    for (int tile = 0; tile < TILES; tile++) {
        sum[tile][0] *= one, sum[tile][1] *= one;
        sum[tile][2] *= other, sum[tile][3] *= other;
    }
}

/* Multiplies the rows of a strip, from row m of a chunk on, by their r. */
template <int TILES>
static __device__ __forceinline__ void scale_rows(float (*sum)[4], const float2 *scales, int m)
{
    scale_rows<TILES>(sum, scales[m + fragment_row()].x, scales[m + fragment_row() + 8].x);
}

/* Pair i of a thread's fragments of a strip; and the pair at the same row and column
 * of a matrix of CHUNK rows in shared memory. */
static __device__ __forceinline__ float *strip_pair(float (*sum)[4], int i)
{
    return sum[i / 2] + i % 2 * 2;
}

static __device__ __forceinline__ unsigned shared_pair(const bf16 *A, int ld, const warp_tile &s,
                                                       int i)
{
    const int row = s.m + fragment_row() + i % 2 * 8, column = s.n + i / 2 * 8 + fragment_column();
    return *(const unsigned *)(A + row * ld + column);
}

/* The warp's tile s of a matrix in shared memory.  In a tensor [T][BH][N] it is tile `global_tile`
 * of a chunk. */
struct staged_tile {
    warp_tile s, global_tile;
    bf16 *matrix;
    int ld;
};

template <int TILES>
static __device__ __forceinline__ void store_strip(const plan &p, const chunk_coord &at,
                                                   const staged_tile &from, void *tensor)
{
    constexpr int ROWS = 32 / TILES; /* per iteration */
    const int lane = opaque_thread_index() % 32, row = from.s.m + lane / TILES,
              column = lane % TILES * 8;
    const int64_t ld_out = p.c.BH * p.c.N;
    const bf16 *const matrix = from.matrix + row * from.ld + from.s.n + column;
    bf16 *const to = (bf16 *)tensor + start(p, at) + row * ld_out + from.global_tile.n + column;

    #pragma unroll 4
    for (int i = 0; i < 16; i += ROWS)
        if (row + i < at.steps && from.global_tile.n + column < p.c.N)
            *(uint4 *)(to + i * ld_out) = *(const uint4 *)(matrix + i * from.ld);
}

/* Stores a strip's accumulators to a tensor through the warp's own tile in shared memory. */
template <int TILES>
static __device__ __forceinline__ void store_strip_staged(const plan &p, const chunk_coord &at,
                                                          const staged_tile &by, void *tensor,
                                                          const float (*sum)[4])
{
    __syncwarp();
    store_strip<TILES>(by.matrix, by.ld, by.s.m, by.s.n, sum);
    __syncwarp();
    store_strip<TILES>(p, at, by, tensor);
}

/* sum = A - sum, on the warp's tile. */
template <int TILES>
static __device__ __forceinline__ void subtract_from(float (*sum)[4], const bf16 *A, int ld,
                                                     const warp_tile &s)
{
    #pragma unroll 16
    for (int i = 0; i < 2 * TILES; i++) {
        const unsigned v = shared_pair(A, ld, s, i);
        float *x = strip_pair(sum, i);
        x[0] = low_of_pair(v) - x[0];
        x[1] = high_of_pair(v) - x[1];
    }
}

/* Zeroes the elements above a square's diagonal in the strip from row m and column `first` on;
 * STRICTLY: those on it as well. */
template <bool STRICTLY, int TILES>
static __device__ __forceinline__ void mask_triangle(float (*sum)[4], int m, int first)
{
    #pragma unroll 32
    for (int i = 0; i < 4 * TILES; i++) {
        const int t = m + fragment_row() + i / 2 % 2 * 8,
                  s = first + i / 4 * 8 + fragment_column() + i % 2;
        if (STRICTLY ? s >= t : s > t)
            sum[i / 4][i % 4] = 0;
    }
}

/* ---- launches ---- */

/* All kernels of a pass but the first, factor(), use programmatic dependent launch. */
static inline cudaError_t launch(struct context *on, void (*kernel)(plan), const plan &p,
                                 int64_t blocks, int threads, int shared)
{
    CUDA(allow_smem(kernel, shared));
    return launch_pdl(on, kernel, (unsigned)blocks, threads, shared, p);
}

/* Does a block of SLICE rows fit into shared memory? */
template <int N, int SLICE>
static bool fits(struct context *on, plan p, enum pass pass)
{
    p.stages = 2;
    return (size_t)arena_bytes<alloc_scan<N, SLICE>>(p, pass) <= on->limits.smem;
}

/* States that the grid scans in parallel. */
static inline int64_t parallel_states(const plan &p)
{
    return p.c.BH * p.splits * (summarises(p) ? 2 : 1);
}

/* SCAN has the members `pass` and kernel<N, SLICE>(). */
template <typename SCAN, int N, int SLICE>
static cudaError_t scan(struct context *on, plan p)
{
    const enum pass pass = SCAN::pass; /* a copy: a reference would odr-use the member */
    p.slices = (int)ceil_div(p.c.N, SLICE);
    const int64_t blocks = parallel_states(p) * p.slices;
    const size_t max_smem = blocks > on->limits.scan_blocks && min_blocks(N, SLICE) > 1
                                ? on->limits.smem_two
                                : on->limits.smem;
    p.stages = STAGES_MAX;
    if ((size_t)arena_bytes<alloc_scan<N, SLICE>>(p, pass) > max_smem)
        p.stages = 2;
    return launch(on, SCAN::template kernel<N, SLICE>(), p, blocks,
                  2 * shape<N, SLICE>::GROUP_THREADS, arena_bytes<alloc_scan<N, SLICE>>(p, pass));
}

template <typename SCAN, int N>
static cudaError_t scan(struct context *on, const plan &p)
{
    if (parallel_states(p) * ceil_div(p.c.N, 64) >= p.target_blocks &&
        fits<N, 64>(on, p, SCAN::pass))
        return scan<SCAN, N, 64>(on, p);
    if (parallel_states(p) * ceil_div(p.c.N, 32) >= p.target_blocks)
        return scan<SCAN, N, 32>(on, p);
    return scan<SCAN, N, 16>(on, p);
}

template <typename SCAN>
static cudaError_t scan(struct context *on, const plan &p)
{
    return p.c.N <= 64 ? scan<SCAN, 64>(on, p) : scan<SCAN, 128>(on, p);
}

/* In chunked.cu: the plan of a call as one split, initial states not set, and
 * the bytes of its workspace; why it declines, or NULL; and the kernels. */
plan chunked_plan(const struct call *f, enum pass pass, work_arena *a);
const char *chunked_declines(const struct call *f);
cudaError_t chunked_factor(struct context *on, const plan &p);
cudaError_t chunked_scan_forward(struct context *on, const plan &p);

/* In back.cu. */
cudaError_t chunked_scan_backward(struct context *on, const plan &p);
cudaError_t chunked_finish(struct context *on, const plan &p);

} /* namespace e74_chunked */

#endif
