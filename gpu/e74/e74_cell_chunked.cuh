/* e74_cell_chunked.cuh - what the files of e74_cell's kernels `chunked` and `split`
 * share; the idea is in e74_cell_chunked.cu, that of `split` in e74_cell_split.cu. */
#ifndef E74_CELL_CHUNKED_CUH
#define E74_CELL_CHUNKED_CUH

#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/mma.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/device/fragment.cuh"
#include "gpu/e74/e74_cell.cuh"

enum {
    CHUNK = 64,
    THREADS = 128,  /* a warp for each strip of 16 steps */
    STAGES_MAX = 3, /* chunks in a walker's shared memory: this one, and those on their way */
    SHARED_MAX = 227 * 1024,
    SHARED_OF_TWO = 113 * 1024, /* the most for two blocks on an SM */
    WIDTH = CHUNK + 8           /* padded(CHUNK) */
};

struct plan {
    call c;
    int chunks;
    int length;     /* chunks of a piece of time; all of them, unless T is split */
    int pieces;     /* of a sequence */
    int fill;       /* slices become shorter until there are as many walkers */
    int slices;     /* blocks that share a state */
    int stages;     /* as many as there is room for, 2 or 3 */
    int kept;       /* checkpoints in a chunk, where they begin with it */
    bf16 *factors;  /* [chunks][BH][M P][CHUNK][CHUNK] */
    float2 *scales; /* [chunks][BH][CHUNK]: r, and r / |k| */
    bf16 *x;        /* [T][BH][N]: k, or z k */
    bf16 *states;   /* [chunks][BH][N][N] before each chunk; NULL: none are wanted */
    bf16 *dstates;  /* the same of G, after each */
    bf16 *dy;       /* [T][BH][N]: dY */
    float *dv;      /* [T][BH][N]: where v is k */

    /* What pieces begin with, [pieces][BH][N][N]: S, or G on the way back; NULL: they are
     * summed up. */
    const float *starts;
    float *end;     /* [BH][N][N] after the last piece, or G before the first; NULL: not wanted */
    float *borders; /* where T is split: [pieces][BH][N][N], sums of pieces, then their starts */
    bf16 *maps;     /* [pieces][BH][high low][N][N] */
};

/* Is the walk to find what pieces make of no state, and of a unit matrix without v, and no
 * outputs? */
static __host__ __device__ __forceinline__ bool sums_up(const plan &p)
{
    return !p.starts;
}

/* Steps of one (sequence, head). */
struct place {
    int64_t t, bh, item; /* the first step; the item among chunks x BH */
    int steps;
};

static __device__ __forceinline__ place map_shared_rank(const plan &p, int64_t chunk, int64_t bh)
{
    const int64_t t = chunk * CHUNK;
    return {t, bh, chunk * p.c.BH + bh, (int)min((int64_t)CHUNK, p.c.T - t)};
}

/* A block's, where there is a block for each. */
static __device__ __forceinline__ place own_place(const plan &p)
{
    const unsigned BH = (unsigned)p.c.BH;
    return map_shared_rank(p, blockIdx.x / BH, blockIdx.x % BH);
}

/* Where its vectors begin in a tensor [T][BH][N]; those of the next step are
 * BH * N further. */
static __device__ __forceinline__ int64_t start(const plan &p, const place &at)
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

/* Eight numbers of a matrix of CHUNK rows that thread threadIdx.x + i takes. */
template <int COLUMNS>
static __device__ __forceinline__ void eight_of(int i, int *row, int *column)
{
    *row = i / (COLUMNS / 8);
    *column = i % (COLUMNS / 8) * 8;
}

/* ALL rows of a matrix to shared memory, zeros where there are no more rows or
 * columns; the same eight numbers to each of the THREADS as by eight_of(). */
template <int COLUMNS, int THREADS, int ALL = CHUNK>
static __device__ __forceinline__ void bring(bf16 *to, const bf16 *from, int64_t apart, int rows,
                                             int columns)
{
    constexpr int EACH = COLUMNS / 8, ROWS = THREADS / EACH;
    const int thread = opaque_thread_index() % THREADS, first = thread / EACH,
              column = thread % EACH * 8;

    to += first * padded(COLUMNS) + column;
    from += first * apart + column;
    #pragma unroll 8
    for (int i = 0; i < ALL / ROWS; i++, from += ROWS * apart) {
        const bool any = first + i * ROWS < rows && column < columns;
        cp_async16(to + i * ROWS * padded(COLUMNS), from, any ? 16 : 0);
    }
}

template <int COLUMNS, int ALL>
static __device__ __forceinline__ void bring_steps(const plan &p, const place &at, bf16 *to,
                                                   const void *from, int first, int columns)
{
    bring<COLUMNS, ALL>(to, (const bf16 *)from + start(p, at) + first, p.c.BH * p.c.N, at.steps,
                        columns);
}

template <int COLUMNS, int ALL>
static __device__ __forceinline__ void bring_steps(const plan &p, const place &at, bf16 *to,
                                                   const void *from)
{
    bring_steps<COLUMNS, ALL>(p, at, to, from, 0, p.c.N);
}

enum which_factor { M_OF, P_OF };

/* M or P of a chunk: which is zero beyond the block on the diagonal. */
template <int THREADS>
static __device__ __forceinline__ void bring_factor(const plan &p, const place &at,
                                                    which_factor which, bf16 *to)
{
    constexpr int ROWS = THREADS / (CHUNK / 8);
    const bf16 *from = p.factors + (2 * at.item + which) * CHUNK * CHUNK;
    const int thread = opaque_thread_index() % THREADS, first = thread / 8, column = thread % 8 * 8;

    #pragma unroll 4
    for (int i = 0; i < CHUNK; i += ROWS) {
        const int row = first + i;
        cp_async16(to + row * WIDTH + column, from + row * CHUNK + column,
                   column / 16 <= row / 16 ? 16 : 0);
    }
}

template <int THREADS>
static __device__ __forceinline__ void bring_scales(const plan &p, const place &at, float2 *to)
{
    const int t = threadIdx.x % THREADS * 2;
    if (t < CHUNK)
        cp_async16(to + t, p.scales + at.item * CHUNK + t);
}

/* ---- a walker's state and operands ---- */

/* A walker's block is two crews of as many warps.  Of the chain's crew each warp
 * has a RUN of the state's columns; of a chunk's steps each warp of either makes
 * TILES tiles of a strip. */
template <int N, int SLICE>
struct shape {
    static constexpr int WARPS = N * SLICE > 64 * 64 ? 8 : 4, CREW = 32 * WARPS;
    static constexpr int RUN = N / WARPS, TILES = SLICE / 8 / (WARPS / 4);
};

/* So many walkers' blocks at least have registers on an SM. */
static constexpr int walkers(int N, int SLICE)
{
    return N * SLICE < 64 * 64 ? 2 : 1;
}

/* SLICE rows of a state, as a thread has them. */
template <int N, int SLICE>
struct slice {
    float x[SLICE / 16][shape<N, SLICE>::RUN / 8][4];
};

/* A warp's share of a chunk's rows: its steps from m, and its columns. */
struct share {
    int m, first;
};

static __device__ __forceinline__ share share_of(int tiles, int warp)
{
    return {warp % 4 * 16, warp / 4 * 8 * tiles};
}

/* What a walker has: rows of a state, through a piece of time. */
struct rows {
    int64_t bh, item; /* which state; its piece's place among pieces x BH */
    int first;        /* of the rows */
    int begin, end;   /* chunks */
    bool unit;        /* rows of the unit matrix, without v or dout */
};

static __device__ __forceinline__ rows rows_of(const plan &p, int count)
{
    const unsigned BH = (unsigned)p.c.BH, pairs = sums_up(p);
    const unsigned nth = blockIdx.x / p.slices, item = nth >> pairs;
    const int begin = (int)(item / BH) * p.length;
    return {item % BH,
            item,
            (int)(blockIdx.x % p.slices) * count,
            begin,
            min(begin + p.length, p.chunks),
            (nth & pairs) > 0};
}

/* The columns of v, y or dout from its first row on: none where it goes without. */
static __device__ __forceinline__ int columns_of(const plan &p, const rows &r)
{
    return r.unit ? 0 : p.c.N - r.first;
}

/* A thread has so many pairs of neighbouring numbers of it. */
template <int N, int SLICE>
static constexpr __host__ __device__ int pairs(void)
{
    return SLICE / 16 * (shape<N, SLICE>::RUN / 8) * 2;
}

template <int N, int SLICE>
static __device__ __forceinline__ float *nth_pair(slice<N, SLICE> &S, int i)
{
    constexpr int TILES = shape<N, SLICE>::RUN / 8;
    return S.x[i / 2 / TILES][i / 2 % TILES] + i % 2 * 2;
}

/* Pair i's place in the slice. */
template <int N, int SLICE>
static __device__ __forceinline__ int pair_row(int i)
{
    return i / 2 / (shape<N, SLICE>::RUN / 8) * 16 + i % 2 * 8 + fragment_row();
}

template <int N, int SLICE>
static __device__ __forceinline__ int pair_column(int i)
{
    constexpr int RUN = shape<N, SLICE>::RUN;
    return warp() * RUN + i / 2 % (RUN / 8) * 8 + fragment_column();
}

/* The place of a thread's first pair in its state. */
template <int N, int SLICE>
static __device__ __forceinline__ int first_element(const plan &p, const rows &r)
{
    const int lane = opaque_thread_index() % 32;
    return (r.first + lane / 4) * p.c.N + warp() * shape<N, SLICE>::RUN + lane % 4 * 2;
}

/* Pair i's, from there; -1 where the state has no such row or column. */
template <int N, int SLICE>
static __device__ __forceinline__ int pair_element(const plan &p, const rows &r, int first, int i)
{
    constexpr int RUN = shape<N, SLICE>::RUN;
    const int row = i / 2 / (RUN / 8) * 16, column = i / 2 % (RUN / 8) * 8;
    return r.first + row < p.c.N && warp() * RUN + column < p.c.N
               ? first + (row + i % 2 * 8) * p.c.N + column
               : -1;
}

/* `state` is a state's place among those of its kind: one for each (sequence,
 * head), for each of a checkpoint's, for each of a chunk's. */
template <int N, int SLICE>
static __device__ slice<N, SLICE> load_slice(const plan &p, const rows &r, const float *states,
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
static __device__ __forceinline__ void store_slice(const plan &p, const rows &r, float *states,
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

/* What the walker begins with. */
template <int N, int SLICE>
static __device__ __forceinline__ slice<N, SLICE> first_slice(const plan &p, const rows &r)
{
    slice<N, SLICE> S;
    if (!sums_up(p))
        return load_slice<N, SLICE>(p, r, p.starts, r.item);
    #pragma unroll 32
    for (int i = 0; i < pairs<N, SLICE>(); i++) {
        const int row = r.first + pair_row<N, SLICE>(i), column = pair_column<N, SLICE>(i);
        nth_pair(S, i)[0] = r.unit && row == column ? 1 : 0;
        nth_pair(S, i)[1] = r.unit && row == column + 1 ? 1 : 0;
    }
    return S;
}

/* Rows of a piece's map, as the sum of two bf16 each. */
template <int N, int SLICE>
static __device__ __forceinline__ void store_map(const plan &p, const rows &r, slice<N, SLICE> &S)
{
    const int first = first_element<N, SLICE>(p, r);
    bf16 *const map = p.maps + 2 * r.item * p.c.M;
    #pragma unroll 32
    for (int i = 0; i < pairs<N, SLICE>(); i++) {
        const int e = pair_element<N, SLICE>(p, r, first, i);
        unsigned high, low;
        split_bf16(nth_pair(S, i)[0], nth_pair(S, i)[1], &high, &low);
        if (e >= 0) {
            *(unsigned *)(map + e) = high;
            *(unsigned *)(map + p.c.M + e) = low;
        }
    }
}

/* What the walker ends with. */
template <int N, int SLICE>
static __device__ __forceinline__ void store_last(const plan &p, const rows &r, slice<N, SLICE> &S)
{
    if (r.unit)
        store_map(p, r, S);
    else if (sums_up(p))
        store_slice(p, r, p.borders, r.item, S);
    else if (p.end)
        store_slice(p, r, p.end, r.bh, S);
}

/* Where T is split, what a walker begins with is the kernel's before it. */
static __device__ __forceinline__ void wait_for_starts(const plan &p)
{
    if (p.borders)
        pdl_wait();
}

/* To shared memory as a factor. */
template <int N, int SLICE>
static __device__ __forceinline__ void put_slice(bf16 *to, slice<N, SLICE> &S)
{
    #pragma unroll 32
    for (int i = 0; i < pairs<N, SLICE>(); i++)
        *(unsigned *)(to + pair_row<N, SLICE>(i) * padded(N) + pair_column<N, SLICE>(i)) =
            pack_bf16x2(nth_pair(S, i)[0], nth_pair(S, i)[1]);
}

/* From there to its place in a state in global memory, by the other crew. */
template <int N, int SLICE>
static __device__ __forceinline__ void store_factor(const plan &p, const rows &r, bf16 *state,
                                                    const bf16 *from)
{
    constexpr int CREW = shape<N, SLICE>::CREW, EACH = N / 8, ROWS = CREW / EACH;
    const int first = threadIdx.x % CREW / EACH, column = threadIdx.x % EACH * 8;
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
    constexpr int RUN = shape<N, SLICE>::RUN;
    unsigned b[RUN / 16][4];
    #pragma unroll 2
    for (int n = 0; n < RUN / 16; n++)
        load_fragment_b<false>(b[n], right, padded(N), k, warp() * RUN + 16 * n);
    #pragma unroll 4
    for (int m = 0; m < SLICE / 16; m++) {
        unsigned a[4];
        load_fragment_a<true>(a, left, padded(SLICE), 16 * m, k);
        #pragma unroll 2
        for (int n = 0; n < RUN / 16; n++) {
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

/* What a walker needs of a chunk, in shared memory for a few chunks each. */
struct operands {
    bf16 *K, *X, *Q; /* [CHUNK][N] */
    bf16 *M, *P;     /* [CHUNK][CHUNK] */
    bf16 *v, *y;     /* [CHUNK][SLICE]: v forward, y backward */
    bf16 *dy;        /* the same: dout, then dY; for one chunk more */
    float2 *scales;  /* [CHUNK] */
};

/* What the crews hand over, and how. */
template <int N, int SLICE>
struct hand_over {
    static constexpr int KEYS = CHUNK * padded(N), SQUARE = CHUNK * WIDTH,
                         VALUES = CHUNK * padded(SLICE), STATE = SLICE * padded(N);
    bf16 *state;   /* two of [SLICE][N]: S before, or G after a chunk, as a factor */
    bf16 *change;  /* two of [CHUNK][SLICE]: D, or E */
    bf16 *middle;  /* [CHUNK][SLICE], two backward: between two products of the chain */
    bf16 *leaving; /* the same, forward: results on their way */
    bf16 *stages, *dys;
};

/* Returns the numbers that one chunk takes. */
template <int N, int SLICE>
static __host__ __device__ __forceinline__ int carve(const plan &p, enum pass pass, bf16 *at,
                                                     operands *o)
{
    typedef hand_over<N, SLICE> h;
    bf16 *const from = at;

    o->K = at, at += h::KEYS;
    o->M = at, at += h::SQUARE;
    o->v = o->y = at, at += h::VALUES;
    o->scales = (float2 *)at, at += CHUNK * (sizeof(float2) / sizeof(bf16));
    o->P = at, at += pass == BACKWARD && tied_q(p) ? 0 : h::SQUARE;
    o->Q = tied_q(p) ? o->K : at, at += tied_q(p) ? 0 : h::KEYS;
    o->X = p.c.z ? at : o->K, at += p.c.z ? h::KEYS : 0;
    return (int)(at - from);
}

/* Returns the bytes of the block's memory. */
template <int N, int SLICE>
static __host__ __device__ __forceinline__ int carve(const plan &p, enum pass pass,
                                                     unsigned char *from, hand_over<N, SLICE> *w)
{
    typedef hand_over<N, SLICE> h;
    bf16 *at = (bf16 *)from;
    operands o;

    w->state = at, at += 2 * h::STATE;
    w->change = at, at += 2 * h::VALUES;
    w->middle = at, at += h::VALUES;
    w->leaving = at, at += h::VALUES;
    w->stages = at, at += p.stages * carve<N, SLICE>(p, pass, at, &o);
    w->dys = at, at += pass == BACKWARD ? (p.stages + 1) * h::VALUES : 0;
    return (int)((unsigned char *)at - from);
}

template <int N, int SLICE>
static __device__ __forceinline__ operands operands_of(const plan &p, enum pass pass,
                                                       const hand_over<N, SLICE> &w, int chunk)
{
    const unsigned nth = (unsigned)chunk % (unsigned)p.stages;
    operands o;
    const int size = carve<N, SLICE>(p, pass, w.stages, &o);
    carve<N, SLICE>(p, pass, w.stages + nth * size, &o);
    o.dy = w.dys + (unsigned)chunk % (unsigned)(p.stages + 1) * hand_over<N, SLICE>::VALUES;
    return o;
}

/* Does the walk make y and out?  Else states alone are wanted. */
static __device__ __forceinline__ bool has_outputs(const plan &p)
{
    return !p.states && !sums_up(p);
}

/* What a chunk begins with. */
template <int N, int SLICE>
static __device__ __forceinline__ void send_for(const plan &p, enum pass pass, const rows &r,
                                                const hand_over<N, SLICE> &w, int chunk)
{
    constexpr int CREW = shape<N, SLICE>::CREW;
    if (chunk < r.begin || chunk >= r.end)
        return;
    const operands o = operands_of(p, pass, w, chunk);
    const place at = map_shared_rank(p, chunk, r.bh);
    bring_steps<N, CREW>(p, at, o.K, p.c.k);
    if (!tied_q(p) && (pass == BACKWARD || has_outputs(p)))
        bring_steps<N, CREW>(p, at, o.Q, p.c.q);
    if (p.c.z)
        bring_steps<N, CREW>(p, at, o.X, p.x);
    bring_factor<CREW>(p, at, M_OF, o.M);
    if (pass == BACKWARD && !tied_q(p))
        bring_factor<CREW>(p, at, P_OF, o.P);
    if (pass == FORWARD)
        bring_steps<SLICE, CREW>(p, at, o.v, p.c.v, r.first, columns_of(p, r));
    bring_scales<CREW>(p, at, o.scales);
}

/* What was sent for last may still be in flight, but nothing before. */
static __device__ __forceinline__ void wait_for_one(const plan &p)
{
    if (p.stages == STAGES_MAX)
        cp_async_wait<STAGES_MAX - 2>();
    else
        cp_async_wait<0>();
}

/* A strip's rows, each times its own number. */
template <int TILES>
static __device__ __forceinline__ void scale_rows(float (*sum)[4], float one, float other)
{
    #pragma unroll 8
    for (int tile = 0; tile < TILES; tile++) {
        sum[tile][0] *= one, sum[tile][1] *= one;
        sum[tile][2] *= other, sum[tile][3] *= other;
    }
}

/* The same from row m of a chunk, times r. */
template <int TILES>
static __device__ __forceinline__ void scale_rows(float (*sum)[4], const float2 *scales, int m)
{
    scale_rows<TILES>(sum, scales[m + fragment_row()].x, scales[m + fragment_row() + 8].x);
}

/* Pair i of a thread's part of a strip: its numbers, its place in a matrix of
 * CHUNK rows in shared memory, and that in a tensor [T][BH][N], -1 if there is
 * no such step or column. */
static __device__ __forceinline__ float *strip_pair(float (*sum)[4], int i)
{
    return sum[i / 2] + i % 2 * 2;
}

static __device__ __forceinline__ unsigned shared_pair(const bf16 *A, int apart, const share &s,
                                                       int i)
{
    const int row = s.m + fragment_row() + i % 2 * 8,
              column = s.first + i / 2 * 8 + fragment_column();
    return *(const unsigned *)(A + row * apart + column);
}

/* The warp's strip, from shared memory to where it is of a tensor. */
template <int TILES>
static __device__ __forceinline__ void store_strip(const plan &p, const place &at, const share &s,
                                                   const share &of_all, void *tensor,
                                                   const bf16 *from, int apart)
{
    constexpr int ROWS = 32 / TILES; /* at once */
    const int lane = opaque_thread_index() % 32, row = s.m + lane / TILES,
              column = lane % TILES * 8;
    const int64_t further = p.c.BH * p.c.N;
    bf16 *to = (bf16 *)tensor + start(p, at) + row * further + of_all.first + column;

    from += row * apart + s.first + column;
    #pragma unroll 4
    for (int i = 0; i < 16; i += ROWS)
        if (row + i < at.steps && of_all.first + column < p.c.N)
            *(uint4 *)(to + i * further) = *(const uint4 *)(from + i * apart);
}

/* A strip's sums to a tensor, through the warp's own part of a matrix. */
template <int TILES>
static __device__ __forceinline__ void send_strip(const plan &p, const place &at, const share &s,
                                                  const share &of_all, void *tensor, bf16 *by,
                                                  int apart, const float (*sum)[4])
{
    __syncwarp();
    store_strip<TILES>(by, apart, s.m, s.first, sum);
    __syncwarp();
    store_strip<TILES>(p, at, s, of_all, tensor, by, apart);
}

/* A strip becomes another, of bf16, less it. */
template <int TILES>
static __device__ __forceinline__ void subtract_from(float (*sum)[4], const bf16 *A, int apart,
                                                     const share &s)
{
    #pragma unroll 16
    for (int i = 0; i < 2 * TILES; i++) {
        const unsigned v = shared_pair(A, apart, s, i);
        float *x = strip_pair(sum, i);
        x[0] = low_of_pair(v) - x[0];
        x[1] = high_of_pair(v) - x[1];
    }
}

/* The strip from row m, column `first` of a square, all zero above its
 * diagonal; STRICTLY: on it as well. */
template <bool STRICTLY, int TILES>
static __device__ __forceinline__ void cut_triangle(float (*sum)[4], int m, int first)
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

/* All of a pass's kernels but its first, factor(), start early. */
static inline cudaError_t launch(void (*kernel)(plan), const plan &p, int64_t blocks, int threads,
                                 int shared)
{
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    return launch_pdl(kernel, (unsigned)blocks, threads, shared, p);
}

/* Does a walker of so many rows have room for all that it needs? */
template <int N, int SLICE>
static bool fits(plan p, enum pass pass)
{
    hand_over<N, SLICE> w;
    p.stages = 2;
    return carve(p, pass, NULL, &w) <= SHARED_MAX;
}

/* States that are walked side by side. */
static inline int64_t walked(const plan &p)
{
    return p.c.BH * p.pieces * (sums_up(p) ? 2 : 1);
}

/* Of WALK: its pass, and kernel<N, SLICE>(), the walkers of so many rows. */
template <typename WALK, int N, int SLICE>
static cudaError_t walk(plan p)
{
    hand_over<N, SLICE> w;
    p.slices = (int)ceil_div(p.c.N, SLICE);
    const int64_t blocks = walked(p) * p.slices;
    const int most =
        blocks > gpu_limits()->walkers && walkers(N, SLICE) > 1 ? SHARED_OF_TWO : SHARED_MAX;
    p.stages = STAGES_MAX;
    if (carve(p, WALK::pass, NULL, &w) > most)
        p.stages = 2;
    return launch(WALK::template kernel<N, SLICE>(), p, blocks, 2 * shape<N, SLICE>::CREW,
                  carve(p, WALK::pass, NULL, &w));
}

template <typename WALK, int N>
static cudaError_t walk(const plan &p)
{
    if (walked(p) * ceil_div(p.c.N, 64) >= p.fill && fits<N, 64>(p, WALK::pass))
        return walk<WALK, N, 64>(p);
    if (walked(p) * ceil_div(p.c.N, 32) >= p.fill)
        return walk<WALK, N, 32>(p);
    return walk<WALK, N, 16>(p);
}

template <typename WALK>
static cudaError_t walk(const plan &p)
{
    return p.c.N <= 64 ? walk<WALK, 64>(p) : walk<WALK, 128>(p);
}

/* In e74_cell_chunked.cu: a call as one piece, without what pieces begin with, and
 * the bytes of its workspace; why not, if not; and the kernels. */
plan chunked_plan(const struct frame *f, enum pass pass, size_t *bytes);
const char *chunked_declines(const struct frame *f);
cudaError_t chunked_factor(const plan &p);
cudaError_t chunked_walk_forward(const plan &p);

/* In e74_cell_chunked_back.cu. */
cudaError_t chunked_walk_backward(const plan &p);
cudaError_t chunked_finish(const plan &p);

#endif
