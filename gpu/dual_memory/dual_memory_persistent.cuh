/* dual_memory_persistent.cuh - a cluster of blocks that carries some sequences of
 * dual_memory through all steps: who has what, products, and the exchange.
 *
 * A warp has 8 columns of every vector and of the tape, for four sequences: lane l
 * column l / 4 of sequence l % 4 (and of the fourth after it, where QUADS is 2), with
 * all its slots, in registers.  A block has up to 8 such warps, a cluster all columns.
 *
 * A product is of one of two [D,D] matrices, or of both at once.  The four lanes of a column
 * share its two rows: 16 bytes of each from every `slab` of 64 bytes, in registers first,
 * then in shared memory.  Its sums come out in the lane that has the column and the sequence:
 *
 *     bf16   two neighbouring warps have both's rows, each half of every row, and tell
 *            each other the halves of the sums: so a vector is fetched half as often.
 *            mma has 8 rows of the one above 8 of the other; its 8 columns are four
 *            vectors, each as two bf16 halves, high and low, side by side: a lane gets
 *            both halves of both sums
 *     f32    a lane's own 16 bytes with all four vectors, then summed over the lanes
 *
 * A vector goes to all blocks as chunks of 128 bytes, a warp's 8 columns of four
 * sequences: 8 pieces of 16 bytes, turned by two more from chunk to chunk, so that what
 * lanes fetch together lies in different banks.  A block's go together, copied to each
 * other block by one of its warps.
 *
 * Sums over columns, of every slot, are of a warp's 8 first (fold), then of the block's
 * warps and of the cluster's blocks, always in that order.  What a block has to tell of
 * them is a `letter`.
 *
 * Behind the warps that have columns come four that pay attention, each to one sequence of
 * four.  They have few registers, so that the others have many.  Within a block the two kinds
 * meet at numbered barriers, where the ones wait for the others' numbers and the others go on. */
#ifndef DUAL_MEMORY_PERSISTENT_CUH
#define DUAL_MEMORY_PERSISTENT_CUH

#include <stdio.h>

#include "gpu/device/cluster.cuh"
#include "gpu/device/mbarrier.cuh"
#include "gpu/device/mma.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/device/fragment.cuh"
#include "gpu/dual_memory/attend.cuh"
#include "gpu/dual_memory/dual_memory.cuh"

enum {
    CLUSTER_MOST = 16,
    WARPS_MOST = 8, /* that have columns */
    CREW = 4,       /* warps that are given registers together; as many pay attention */
    THREADS_MOST = 32 * (WARPS_MOST + CREW),
    ALL_REGISTERS = 504, /* three threads', of two crews with columns and of one without */
    COLUMNS = 8,         /* of a warp */
    TOGETHER = 4,        /* slabs; a product's are a multiple */
    CHUNK = 128,
    WORD = sizeof(float),
    INBOXES = 4
};

/* The barriers: the columns' own; those where they and the payers meet; and of each pair. */
enum { COLUMNS_MET = 1, SIDE_PARTS, MAIN_PARTS, PAID_FIRST, PAID_LAST, PAIR_MET };

template <typename T>
struct slab {
    enum { EACH = 16 / sizeof(T), DEPTH = 4 * EACH }; /* numbers of a lane's, of a row's */
};

/* What is told of sequences: KINDS sums for each slot. */
template <int SLOTS_, int QUADS_, int KINDS_>
struct letter {
    enum {
        SLOTS = SLOTS_,
        QUADS = QUADS_,
        KINDS = KINDS_,
        OWN = SLOTS / 8, /* slots of a lane that has a column */
        APART = SLOTS + (SLOTS == 8    ? 0
                         : SLOTS == 64 ? 4
                                       : 8), /* from a sequence to the next; banks differ */
        ROWS = 4 * QUADS,
        FLOATS = KINDS * ROWS * APART
    };
    /* Where sequence q of a quad begins. */
    static constexpr __host__ __device__ int row(int quad, int kind, int q)
    {
        return ((quad * KINDS + kind) * 4 + q) * APART;
    }
};

/* ---- who has what ---- */

/* Sizes of a launch; offsets into shared memory in bytes. */
struct shape {
    int cluster, warps;         /* blocks; warps of one */
    int own;                    /* columns of a block */
    int slabs;                  /* of a product */
    int room;                   /* bytes of a vector that all blocks have */
    int vector, halves, slots;  /* such vectors; what paired warps tell each other; `attentions` */
    int side_parts, main_parts; /* the letters, warp by warp */
    int side, main;             /* and block by block: the one SIDES times over */
    int scalar_parts, scalars;  /* of one number for a sequence: every column's; block by block */
    int tape, weights, bytes;   /* the threads' slots that are not in registers; weights likewise */
};

static constexpr __host__ __device__ int ceil_of(int x, int y)
{
    return (x + y - 1) / y;
}

/* Numbers of every slot, of each of a block's sequences. */
template <typename LETTER>
struct alignas(16) paid {
    float of[LETTER::ROWS][LETTER::APART];
};

/* PASS tells what a pass has: this; VECTORS that all blocks have; SCALARS or none; its letters,
 * main_letter, and side_letter with SIDES places for it; TURNS of a product whose weights are in
 * registers; EARLY, if what they are multiplied by is fetched a turn before, which takes some;
 * TAPES, its slots that are not in registers; FEW registers of a thread that pays attention;
 * attentions, what was worked out of the sequences. */
template <typename T, int SLOTS_, int QUADS_, int WIDTH_>
struct pass_of {
    typedef T type; /* of storage */
    enum {
        SLOTS = SLOTS_,
        QUADS = QUADS_,
        WIDTH = WIDTH_,         /* or 0: known when it runs */
        PAIRED = sizeof(T) == 2 /* are warps? */
    };
};

/* FEW, for so many slots: what is left of ALL_REGISTERS is for two crews, by eights. */
static constexpr int few_of(int slots)
{
    return slots <= 16 ? 56 : slots == 32 ? 72 : 88;
}

/* For so many blocks' numbers there is room: they are added up eight at a time, some of them
 * zeros that nobody writes to.  (Likewise for eight warps' parts.) */
static constexpr __host__ __device__ int eights(int blocks)
{
    return (blocks + 7) / 8 * 8;
}

template <typename LETTER>
static constexpr __host__ __device__ int letters_room(int cluster)
{
    return eights(cluster) * LETTER::FLOATS * WORD;
}

/* From a warp's parts of scalars to the next one's: banks differ. */
static constexpr __host__ __device__ int parts_apart(int quads)
{
    return COLUMNS * 4 * quads + 4;
}

/* Bytes of a vector from one block. */
static constexpr __host__ __device__ int block_bytes(const shape &s, int quads)
{
    return s.warps * quads * CHUNK;
}

/* How often a lane has 16 bytes of weights in registers. */
template <typename PASS>
static constexpr __host__ __device__ int held_of(void)
{
    return 2 * TOGETHER * PASS::TURNS;
}

template <typename PASS>
static constexpr __host__ __device__ shape shape_of(int D, int cluster)
{
    typedef typename PASS::type T;
    enum { DEPTH = slab<T>::DEPTH, QUADS = PASS::QUADS };
    shape s = {};
    s.cluster = cluster;
    s.warps = ceil_of(ceil_of(D, COLUMNS), cluster);
    s.warps += PASS::PAIRED && s.warps % 2;
    s.own = s.warps * COLUMNS;
    s.slabs = ceil_of(cluster * s.own, DEPTH * TOGETHER) * TOGETHER;
    s.room = s.slabs * DEPTH / COLUMNS * QUADS * CHUNK;
    s.vector = INBOXES * (int)sizeof(uint64_t); /* behind the mbars */
    s.halves = s.vector + PASS::VECTORS * s.room;
    s.slots = s.halves + PASS::PAIRED * s.warps * 32 * (int)sizeof(float4);
    s.side_parts = s.slots + (int)sizeof(typename PASS::attentions);
    s.main_parts = s.side_parts + WARPS_MOST * PASS::side_letter::FLOATS * WORD;
    s.side = s.main_parts + WARPS_MOST * PASS::main_letter::FLOATS * WORD;
    s.main = s.side + PASS::SIDES * letters_room<typename PASS::side_letter>(cluster);
    s.scalar_parts = s.main + letters_room<typename PASS::main_letter>(cluster);
    s.scalars = s.scalar_parts + PASS::SCALARS * WARPS_MOST * parts_apart(QUADS) * WORD;
    s.tape = s.scalars + PASS::SCALARS * eights(cluster) * 4 * QUADS * WORD;
    s.weights = s.tape + PASS::TAPES * s.warps * 32 * WORD;
    const int more = 2 * s.slabs - held_of<PASS>();
    s.bytes = s.weights + (more > 0 ? more : 0) * s.warps * 32 * 16;
    return s;
}

/* A block's warps: those with columns, by fours, then those that pay attention. */
static constexpr __host__ __device__ int first_payer(const shape &s)
{
    return ceil_of(s.warps, CREW) * CREW;
}

static constexpr __host__ __device__ int threads_of(const shape &s)
{
    return 32 * (first_payer(s) + CREW);
}

/* Threads that are counted where columns and payers meet. */
static constexpr __host__ __device__ int all_of(const shape &s)
{
    return 32 * (s.warps + CREW);
}

/* A thread's place: its block in the cluster, its warp in the block and, of all columns
 * and of the batch, its own; and the block's shared memory. */
struct seat {
    int rank, warp, lane, i, q; /* i: of the warp's columns; q: of four sequences */
    int column, row;
    unsigned char *memory;

    template <typename N>
    __device__ __forceinline__ N *at(int offset) const
    {
        return (N *)(memory + offset);
    }
};

static __device__ __forceinline__ seat seat_of(const shape &s, int quads, unsigned char *memory)
{
    const int thread = opaque_thread_index(), warp = thread / 32;
    const int rank = (int)blockIdx.x & (s.cluster - 1), lane = thread % 32, i = lane / 4,
              q = lane % 4;
    return {rank,
            warp,
            lane,
            i,
            q,
            rank * s.own + warp * COLUMNS + i,
            (int)blockIdx.x / s.cluster * 4 * quads + q,
            memory};
}

/* The same place, of which the compiler cannot tell in one turn that it is the same in the next:
 * what follows from it is worked out again, and not kept in registers. */
static __device__ __forceinline__ seat afresh(const seat &here, int turn)
{
    const int none = turn >> 30, lane = here.lane ^ none;
    return {here.rank ^ none, here.warp ^ none, lane,     lane / 4,
            lane % 4,         here.column,      here.row, here.memory + none};
}

/* Shared memory before it is used: nothing in it, and no turn of an mbar over. */
static __device__ __forceinline__ void clear_and_open(const shape &s, unsigned char *memory)
{
    for (int k = s.vector + 16 * (int)threadIdx.x; k < s.weights; k += 16 * (int)blockDim.x)
        *(uint4 *)(memory + k) = {};
    if (threadIdx.x < INBOXES)
        mbarrier_init((uint64_t *)memory + threadIdx.x);
    __syncthreads();
    cluster_arrive();
    cluster_wait();
}

/* ---- neighbours ---- */

/* OWN neighbouring floats, aligned as far as they go. */
template <int OWN>
static __device__ __forceinline__ void put_own(float *at, const float x[OWN])
{
    #pragma unroll 2
    for (int k = 0; k < OWN / 4 * 4; k += 4)
        *(float4 *)(at + k) = make_float4(x[k], x[k + 1], x[k + 2], x[k + 3]);
    if (OWN == 2)
        *(float2 *)at = make_float2(x[0], x[OWN - 1]);
    if (OWN == 1)
        *at = x[0];
}

template <int OWN>
static __device__ __forceinline__ void get_own(float x[OWN], const float *at)
{
    #pragma unroll 2
    for (int k = 0; k < OWN / 4 * 4; k += 4) {
        const float4 y = *(const float4 *)(at + k);
        x[k] = y.x, x[k + 1] = y.y, x[k + 2] = y.z, x[k + 3] = y.w;
    }
    if (OWN == 2) {
        const float2 y = *(const float2 *)at;
        x[0] = y.x, x[OWN - 1] = y.y;
    }
    if (OWN == 1)
        x[0] = *at;
}

/* Bytes that the block has written, to the same place of all others, by one warp after the other.
 * They are read when it suits; once all blocks have waited for them they may change. */
static __device__ __forceinline__ void post_others(const shape &s, const seat &here, uint64_t *mbar,
                                                   void *place, int bytes)
{
    if (here.lane == 0)
        for (int block = here.warp; block < s.cluster - 1; block += s.warps)
            cp_async_bulk_cluster(place, bytes, mbar, (here.rank + 1 + block) & (s.cluster - 1));
}

/* What of x would be left in storage.  (A pair is packed at once, one number by a slow unit.) */
static __device__ __forceinline__ float as_stored(float x, float)
{
    return x;
}
static __device__ __forceinline__ float as_stored(float x, __nv_bfloat16)
{
    return high_of_pair(pack_bf16x2(x, x));
}

/* A stored number as bits; and the number. */
static __device__ __forceinline__ unsigned bits_of(const float *at)
{
    return *(const unsigned *)at;
}
static __device__ __forceinline__ unsigned bits_of(const __nv_bfloat16 *at)
{
    return *(const unsigned short *)at;
}
static __device__ __forceinline__ float from_bits(unsigned bits, float)
{
    return __uint_as_float(bits);
}
static __device__ __forceinline__ float from_bits(unsigned bits, __nv_bfloat16)
{
    return __uint_as_float(bits << 16);
}

/* ---- a vector that all blocks have ---- */

/* Where piece e of a chunk is, in bytes; chunks are counted through the cluster. */
static __device__ __forceinline__ int piece_at(int chunk, int e)
{
    return (e + 2 * chunk) % 8 * 16;
}

/* A warp's numbers of a vector, x of each lane, as a chunk.  bf16: the pieces are columns
 * of mma's second operand, high and low halves of a sequence side by side. */
static __device__ __forceinline__ void put(const seat &here, unsigned char *chunk, int number,
                                           float x, __nv_bfloat16)
{
    const float low = x - as_stored(x, __nv_bfloat16{});
    *(unsigned *)(chunk + piece_at(number, here.i) + here.q * WORD) =
        movmatrix_trans(pack_bf16x2(x, low));
}

/* f32: the pieces are four columns of a sequence. */
static __device__ __forceinline__ void put(const seat &here, unsigned char *chunk, int number,
                                           float x, float)
{
    *(float *)(chunk + piece_at(number, here.i / 4 * 4 + here.q) + here.i % 4 * WORD) = x;
}

/* The block's numbers of a vector, one of each lane and quad, to all blocks. */
template <typename T, int QUADS>
static __device__ __forceinline__ void post_vector(const shape &s, const seat &here, uint64_t *mbar,
                                                   int number, const float x[QUADS])
{
    const int bytes = block_bytes(s, QUADS), chunk = here.rank * s.warps + here.warp;
    unsigned char *own = here.memory + s.vector + number * s.room + here.rank * bytes;

    #pragma unroll QUADS
    for (int p = 0; p < QUADS; p++)
        put(here, own + (here.warp * QUADS + p) * CHUNK, chunk, x[p], T{});
    fence_proxy_async();
    named_barrier_sync(COLUMNS_MET, 32 * s.warps);
    post_others(s, here, mbar, own, bytes);
}

/* Bytes that come of it to a block, from the others. */
static __device__ __forceinline__ int vector_bytes(const shape &s, int quads)
{
    return (s.cluster - 1) * block_bytes(s, quads);
}

/* ---- products ---- */

/* From a row of the weights to the next, where the kernels fetch 16 bytes at a time. */
static __host__ __device__ __forceinline__ int row_apart(int D)
{
    return ceil_of(D, COLUMNS) * COLUMNS;
}

template <typename T>
static size_t rows_bytes(const recurrence &r)
{
    return 2 * sizeof(T) * r.D * row_apart(r.D);
}

/* The recurrence with W_write and W_h, or what they are transposed, in such rows, which come
 * to the start of the workspace. */
template <typename T>
int lay_rows(recurrence *r, bool transposed);

/* A lane's 16 bytes of each of two matrices' rows, slab by slab: 4 of the one and of the other by
 * turns, as mma takes them.  Paired: of half of the slabs, 4 of the first warp's row and of the
 * second's by turns, of the one matrix and then of the other.  Zeros beyond the last row and
 * column. */
template <typename PASS, typename T>
static __device__ void fetch_weights(const shape &s, const seat &here, const T *one, const T *other,
                                     int D, uint4 held[held_of<PASS>()])
{
    enum { DEPTH = slab<T>::DEPTH, PAIRED = PASS::PAIRED };
    uint4 *more = here.at<uint4>(s.weights) + threadIdx.x;
    const int half = PAIRED ? here.warp % 2 : 0;
    const int first = half * s.slabs / 2 * DEPTH + here.q * slab<T>::EACH;
    const int upper = here.column - half * COLUMNS, lower = upper + PAIRED * COLUMNS;

    const auto piece = [&](const T *matrix, int row, int along) {
        const bool there = along < (row < D ? D - first : 0);
        return there ? *(const uint4 *)(matrix + (int64_t)row * row_apart(D) + first + along)
                     : uint4{};
    };
    const auto fetch = [&](int m, uint4 x[2]) {
        const int along = (PAIRED ? m / 2 : m) * DEPTH;
        const uint4 a = piece(PAIRED && m % 2 ? other : one, upper, along);
        const uint4 b = piece(PAIRED && m % 2 == 0 ? one : other, lower, along);
        x[0] = {a.x, b.x, a.y, b.y};
        x[1] = {a.z, b.z, a.w, b.w};
    };

    #pragma unroll 64
    for (int m = 0; m < held_of<PASS>() / 2; m++)
        fetch(m, held + 2 * m);
    for (int m = held_of<PASS>() / 2; m < s.slabs; m++, more += 2 * s.warps * 32) {
        uint4 x[2];
        fetch(m, x);
        more[0] = x[0], more[s.warps * 32] = x[1];
    }
}

/* The sums that a lane has of a product: of its row of the one matrix and of the other; and
 * which of them are wanted. */
struct two {
    float one, other;
};

enum { ONE_SUM = 1, OTHER_SUM = 2, BOTH_SUMS = 3 };

template <typename PASS, int WANTED, typename T = typename PASS::type, bool PAIRED = PASS::PAIRED>
struct sums;

/* mma's operands of a quad and two products: the lane's share of a slab's numbers. */
static __device__ __forceinline__ uint4 vector_part(const seat &here, const unsigned char *vector,
                                                    int slab, int quads, int quad)
{
    const int chunk = 4 * slab + here.q;
    return *(const uint4 *)(vector + (chunk * quads + quad) * CHUNK + piece_at(here.q, here.i));
}

static __device__ __forceinline__ void multiply_add(float sum[4], const uint4 &rows, unsigned x,
                                                    unsigned y)
{
    const unsigned a[4] = {rows.x, rows.y, rows.z, rows.w}, b[2] = {x, y};
    mma_bf16(sum, a, b);
}

/* A sum of each warp's rows is one instruction's. */
template <typename PASS, int WANTED>
struct sums<PASS, WANTED, __nv_bfloat16, true> {
    enum {
        QUADS = PASS::QUADS,
        EACH = 2,          /* m's of a slab */
        AHEAD = 4 / QUADS, /* and of a turn */
        EARLY = PASS::EARLY,
        MATRICES = WANTED == BOTH_SUMS ? 2 : 1,
        FIRST = WANTED == OTHER_SUM, /* of the matrices */
        OWN = MATRICES * QUADS,
        CHAINS = 4 / OWN
    };
    float sum[CHAINS][OWN][4];

    __device__ __forceinline__ sums() : sum{} {}
    static constexpr __device__ bool takes(int e)
    {
        return e / 2 >= FIRST && e / 2 < FIRST + MATRICES;
    }
    struct operands {
        uint4 of[QUADS];
    };
    static __device__ __forceinline__ operands fetch(const shape &s, const seat &here,
                                                     const unsigned char *vector, int m)
    {
        const int slab = here.warp % 2 * s.slabs / 2 + m / 2;
        operands x;
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++)
            x.of[p] = vector_part(here, vector, slab, QUADS, p);
        return x;
    }
    __device__ __forceinline__ void add(const seat &, const unsigned char *, int, int turn,
                                        const operands &x, const uint4 w[4])
    {
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++) {
            #pragma unroll MATRICES
            for (int k = 0; k < MATRICES; k++)
                multiply_add(sum[turn % CHAINS][k * QUADS + p], w[2 * (FIRST + k)], x.of[p].x,
                             x.of[p].y);
            #pragma unroll MATRICES
            for (int k = 0; k < MATRICES; k++)
                multiply_add(sum[(turn + 1) % CHAINS][k * QUADS + p], w[2 * (FIRST + k) + 1],
                             x.of[p].z, x.of[p].w);
        }
    }
    __device__ __forceinline__ void end(const shape &s, const seat &here, two *x)
    {
        const bool second = here.warp % 2;
        float *told = here.at<float>(s.halves) + (FIRST * s.warps * 32 + here.lane) * OWN;
        float own[OWN], others[OWN], half[OWN];
        #pragma unroll OWN
        for (int k = 0; k < OWN; k++) {
            float upper = 0, lower = 0;
            #pragma unroll CHAINS
            for (int chain = 0; chain < CHAINS; chain++) {
                upper += sum[chain][k][0] + sum[chain][k][1];
                lower += sum[chain][k][2] + sum[chain][k][3];
            }
            own[k] = second ? lower : upper;
            others[k] = second ? upper : lower;
        }
        put_own<OWN>(told + here.warp * 32 * OWN, others);
        named_barrier_sync(PAIR_MET + here.warp / 2, 64);
        get_own<OWN>(half, told + (here.warp ^ 1) * 32 * OWN);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++) {
            x[p].one = WANTED & ONE_SUM ? own[p] + half[p] : 0;
            x[p].other = WANTED & OTHER_SUM ? own[OWN - QUADS + p] + half[OWN - QUADS + p] : 0;
        }
    }
};

template <typename PASS, int WANTED>
struct sums<PASS, WANTED, float, false> {
    enum { QUADS = PASS::QUADS, EACH = 1, AHEAD = 1, EARLY = 0 };
    float one[QUADS][4], other[QUADS][4];

    __device__ __forceinline__ sums() : one{}, other{} {}
    static constexpr __device__ bool takes(int) { return true; }
    struct operands {
    };
    static __device__ __forceinline__ operands fetch(const shape &, const seat &,
                                                     const unsigned char *, int)
    {
        return {};
    }
    __device__ __forceinline__ void add(const seat &here, const unsigned char *vector, int m, int,
                                        const operands &, const uint4 w[2])
    {
        const int chunk = 2 * m + here.q / 2;
        const unsigned a[4] = {w[0].x, w[0].z, w[1].x, w[1].z};
        const unsigned b[4] = {w[0].y, w[0].w, w[1].y, w[1].w};
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++)
            #pragma unroll 4
            for (int r = 0; r < 4; r++) {
                float x[4];
                get_own<4>(x, (const float *)(vector + (chunk * QUADS + p) * CHUNK +
                                              piece_at(chunk, here.q % 2 * 4 + r)));
                #pragma unroll 4
                for (int k = 0; k < 4; k++) {
                    if (WANTED & ONE_SUM)
                        one[p][r] = fmaf(__uint_as_float(a[k]), x[k], one[p][r]);
                    if (WANTED & OTHER_SUM)
                        other[p][r] = fmaf(__uint_as_float(b[k]), x[k], other[p][r]);
                }
            }
    }
    /* Lane q of a column keeps sequence q: half of the four, then half of the two. */
    static __device__ __forceinline__ float over_lanes(const seat &here, const float x[4])
    {
        const bool second = here.q & 2, odd = here.q & 1;
        const float a = second ? x[2] : x[0], b = second ? x[3] : x[1];
        const float c = a + __shfl_xor_sync(~0u, second ? x[0] : x[2], 2);
        const float d = b + __shfl_xor_sync(~0u, second ? x[1] : x[3], 2);
        return (odd ? d : c) + __shfl_xor_sync(~0u, odd ? c : d, 1);
    }
    __device__ __forceinline__ void end(const shape &, const seat &here, two *x)
    {
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++)
            x[p] = {over_lanes(here, one[p]), over_lanes(here, other[p])};
    }
};

/* The lane's rows times a vector that all blocks have.  (Slabs beyond the last are zero.) */
template <typename PASS, int WANTED>
static __device__ __forceinline__ void multiply(const shape &s, const seat &here,
                                                const uint4 held[held_of<PASS>()], int vector,
                                                two x[PASS::QUADS])
{
    typedef sums<PASS, WANTED> sums_of;
    enum {
        REGISTERS = held_of<PASS>() / 2,
        EACH = sums_of::EACH,
        AHEAD = sums_of::AHEAD,
        EARLY = sums_of::EARLY
    };
    const unsigned char *at = here.memory + vector;
    const uint4 *more = here.at<uint4>(s.weights) + threadIdx.x;
    const int apart = s.warps * 32;
    typename sums_of::operands of[2][AHEAD]; /* a turn's, and the next one's */
    sums_of all;

    #pragma unroll 4
    for (int k = 0; k < AHEAD && EARLY; k += EACH)
        of[0][k] = all.fetch(s, here, at, k);
    #pragma unroll 64
    for (int m = 0; m < REGISTERS; m += AHEAD)
        if (m < s.slabs) {
            const int turn = m / AHEAD % 2, next = m + AHEAD;
            const int fetched = !EARLY ? m : next < s.slabs ? next : 0;
            #pragma unroll 4
            for (int k = 0; k < AHEAD && (!EARLY || next < REGISTERS); k += EACH)
                of[turn ^ EARLY][k] = all.fetch(s, here, at, fetched + k);
            #pragma unroll 4
            for (int k = 0; k < AHEAD; k += EACH)
                all.add(here, at, m + k, m + k, of[turn][k], held + 2 * (m + k));
        }
    #pragma unroll 1
    for (int m = REGISTERS; m < s.slabs; m += EACH, more += 2 * EACH * apart) {
        uint4 w[2 * EACH];
        #pragma unroll 4
        for (int e = 0; e < 2 * EACH; e++)
            if (sums_of::takes(e))
                w[e] = more[e * apart];
        all.add(here, at, m, 0, all.fetch(s, here, at, m), w);
    }
    all.end(s, here, x);
}

/* ---- sums over columns ---- */

/* Eight numbers of a lane, over the warp's columns: lane i gets the sum of the i-th. */
static __device__ __forceinline__ float fold(const seat &here, float x[8])
{
    #pragma unroll 3
    for (int half = 4; half > 0; half /= 2) {
        const bool upper = here.i & half;
        #pragma unroll 4
        for (int k = 0; k < half; k++) {
            const float kept = upper ? x[k + half] : x[k], given = upper ? x[k] : x[k + half];
            x[k] = kept + __shfl_xor_sync(~0u, given, 4 * half);
        }
    }
    return x[0];
}

/* term(n), of a lane for every slot n, over the warp's columns, to a sequence's place in the
 * warp's part of a letter. */
template <typename LETTER, typename TERM>
static __device__ __forceinline__ void fold_slots(const seat &here, float *to, const TERM &term)
{
    enum { OWN = LETTER::OWN };
    float own[OWN];
    #pragma unroll OWN
    for (int k = 0; k < OWN; k++) {
        if (OWN > 2)
            __syncwarp(); /* not all are in flight at once, for want of registers */
        float x[8];
        #pragma unroll 8
        for (int i = 0; i < 8; i++)
            x[i] = term(i * OWN + k);
        own[k] = fold(here, x);
    }
    put_own<OWN>(to + here.i * OWN, own);
}

/* A number of each of a warp's columns, likewise: their part of a scalar, which is one number of a
 * sequence. */
static __device__ __forceinline__ void put_scalar(const shape &s, const seat &here, int quads,
                                                  int quad, float x)
{
    here.at<float>(
        s.scalar_parts)[here.warp * parts_apart(quads) + (4 * quad + here.q) * COLUMNS + here.i] =
        x;
}

/* ---- who pays attention ---- */

/* A lane of the crew: its warp has the q-th sequence of each quad, and it OWN slots of one of them.
 * Where there are more lanes than that takes, they have SHARES of what is to be added up. */
template <typename PASS>
struct payer {
    enum {
        SLOTS = PASS::SLOTS,
        QUADS = PASS::QUADS,
        OWN = attention<SLOTS>::OWN,
        LANES = attention<SLOTS>::GROUP, /* that have a sequence's slots */
        ALL = 32 / QUADS,                /* that have the sequence */
        SHARES = ALL / LANES,
        FOURS = SLOTS / 4
    };
    typedef attention<SLOTS> of;
    int rank, q, quad, lane, row; /* lane: of ALL; row: the sequence, of the batch */
    unsigned char *memory;

    __device__ __forceinline__ payer(const shape &s, int warp, unsigned char *memory_)
        : rank((int)blockIdx.x & (s.cluster - 1)), q(warp), quad(opaque_thread_index() % 32 / ALL),
          lane(opaque_thread_index() % ALL),
          row((int)blockIdx.x / s.cluster * 4 * QUADS + 4 * quad + warp), memory(memory_)
    {
    }
    /* As of a column's seat. */
    __device__ __forceinline__ payer afresh(int turn) const
    {
        payer same = *this;
        const int none = turn >> 30;
        same.rank ^= none, same.q ^= none, same.quad ^= none, same.lane ^= none;
        same.memory += none;
        return same;
    }
    __device__ __forceinline__ int slot(void) const { return lane % LANES * OWN; }
    __device__ __forceinline__ bool first(void) const { return q + quad + lane == 0; }
    __device__ __forceinline__ uint64_t *mbar(int k) const { return (uint64_t *)memory + k; }
    template <typename N>
    __device__ __forceinline__ N *at(int offset) const
    {
        return (N *)(memory + offset);
    }

    /* `terms` numbers of each slot, `apart` from each other, added up: always in the same order. */
    template <int TERMS>
    __device__ __forceinline__ void add_up(const float *from, int apart, float x[OWN]) const
    {
        float term[TERMS / SHARES][OWN];
        from += lane / LANES * (TERMS / SHARES) * apart;
        #pragma unroll 8
        for (int k = 0; k < TERMS / SHARES; k++)
            get_own<OWN>(term[k], from + k * apart);
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++) {
            #pragma unroll 3
            for (int half = TERMS / SHARES / 2; half > 0; half /= 2)
                #pragma unroll 4
                for (int k = 0; k < half; k++)
                    term[k][i] += term[k + half][i];
            x[i] = term[0][i];
            #pragma unroll 2
            for (int far = LANES; far < ALL; far *= 2)
                x[i] += __shfl_xor_sync(~0u, x[i], far);
        }
    }

    /* One number of each eight lanes. */
    static __device__ __forceinline__ float over_eight(float x)
    {
        #pragma unroll 3
        for (int far = 1; far < 8; far *= 2)
            x += __shfl_xor_sync(~0u, x, far);
        return x;
    }

    /* From the warps' parts of a letter, which all have written, the block's, to all blocks. */
    template <typename LETTER>
    __device__ __forceinline__ void post_letter(const shape &s, uint64_t *mbar, int parts,
                                                int letters) const
    {
        float *own = at<float>(letters) + rank * LETTER::FLOATS;
        #pragma unroll (LETTER::KINDS)
        for (int kind = 0; kind < LETTER::KINDS; kind++) {
            const int row = LETTER::row(quad, kind, q);
            float x[OWN];
            add_up<WARPS_MOST>(at<float>(parts) + row + slot(), LETTER::FLOATS, x);
            if (lane < LANES)
                put_own<OWN>(own + row + slot(), x);
        }
        __syncwarp();
        #pragma unroll (LETTER::KINDS)
        for (int kind = 0; kind < LETTER::KINDS; kind++) {
            float4 *place =
                (float4 *)(own + LETTER::row(quad, kind, q)) + lane % FOURS; /* 16 bytes a lane */
            const float4 x = *place;
            #pragma unroll 1
            for (int block = 1 + lane / FOURS; block < s.cluster; block += ALL / FOURS)
                st_async(place, mbar, (rank + block) & (s.cluster - 1), x);
        }
    }

    /* All blocks' sums, of the lane's slots. */
    template <typename LETTER>
    __device__ __forceinline__ void slot_sums(const shape &s, int letters, int kind,
                                              float x[OWN]) const
    {
        const float *from = at<float>(letters) + LETTER::row(quad, kind, q) + slot();
        add_up<8>(from, LETTER::FLOATS, x);
        if (s.cluster > 8) {
            float y[OWN];
            add_up<8>(from + 8 * LETTER::FLOATS, LETTER::FLOATS, y);
            #pragma unroll OWN
            for (int i = 0; i < OWN; i++)
                x[i] += y[i];
        }
    }

    /* From all of the block's parts of a scalar the block's sum, to all blocks. */
    __device__ __forceinline__ void post_scalar(const shape &s, uint64_t *mbar) const
    {
        float x[COLUMNS];
        get_own<COLUMNS>(x, at<float>(s.scalar_parts) + lane % WARPS_MOST * parts_apart(QUADS) +
                                (4 * quad + q) * COLUMNS);
        const float sum = over_eight(x[0] + x[1] + (x[2] + x[3]) + (x[4] + x[5] + (x[6] + x[7])));
        if (lane < s.cluster)
            st_async(at<float>(s.scalars) + rank * 4 * QUADS + 4 * quad + q, mbar, lane, sum);
    }

    /* And all blocks' sum. */
    __device__ __forceinline__ float scalar_sum(const shape &s) const
    {
        const float *from = at<float>(s.scalars) + 4 * quad + q;
        float x = from[lane % 8 * 4 * QUADS];
        if (s.cluster > 8)
            x += from[(lane % 8 + 8) * 4 * QUADS];
        return over_eight(x);
    }

    /* A number of each slot for all that have a column of the sequence. */
    template <typename LETTER>
    __device__ __forceinline__ void tell(paid<LETTER> *all, const float x[OWN]) const
    {
        if (lane < LANES)
            put_own<OWN>(all->of[4 * quad + q] + slot(), x);
    }
};

template <typename LETTER>
static __device__ __forceinline__ int letter_bytes(const shape &s)
{
    return (s.cluster - 1) * LETTER::KINDS * LETTER::ROWS * LETTER::SLOTS * WORD;
}

static __device__ __forceinline__ int scalars_bytes(const shape &s, int quads)
{
    return s.cluster * 4 * quads * WORD;
}

/* Four of a sequence's slots. */
template <typename LETTER>
static __device__ __forceinline__ void four_of(const paid<LETTER> &all, const seat &here, int quad,
                                               int n, float x[4])
{
    get_own<4>(x, all.of[4 * quad + here.q] + n);
}

/* ---- a kernel ---- */

/* carry() by the warps that have columns, pay() by the crew behind them. */
template <typename PASS, typename CARRY, typename PAY>
static __device__ __forceinline__ void run_crews(recurrence &r, const shape &given,
                                                 unsigned char *memory, const CARRY &carry,
                                                 const PAY &pay)
{
    const shape s = PASS::WIDTH != 0 ? shape_of<PASS>(PASS::WIDTH, given.cluster) : given;
    if (PASS::WIDTH != 0)
        r.D = PASS::WIDTH, r.N = PASS::SLOTS;
    const int warp = (int)threadIdx.x / 32, of_crew = warp - first_payer(s);

    clear_and_open(s, memory);
    if (of_crew < 0) {
        setmaxnreg_inc<(ALL_REGISTERS - PASS::FEW) / 2>();
        if (warp < s.warps)
            carry(r, s, seat_of(s, PASS::QUADS, memory));
    } else {
        setmaxnreg_dec<PASS::FEW>();
        pay(r, s, payer<PASS>(s, of_crew, memory));
    }
    handover_finish(s.cluster);
}

/* ---- launches ---- */

typedef void clusters_kernel(recurrence, shape);

static void prepare_shape(cluster_launch *to, const shape &s, int64_t clusters)
{
    cluster_launch_init(to, clusters, s.cluster, threads_of(s), s.bytes);
}

/* Have the kernel take so much shared memory and such clusters; how many can run at once. */
static cudaError_t prepare(clusters_kernel *kernel, const shape &s, int *clusters)
{
    cluster_launch l;

    *clusters = 0;
    prepare_shape(&l, s, 1);
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, s.bytes));
    if (s.cluster > 8)
        CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    if (s.cluster > 1)
        return cudaOccupancyMaxActiveClusters(clusters, kernel, &l.config);
    *clusters = gpu_properties().multiProcessorCount;
    return cudaSuccess;
}

static int largest_cluster(void)
{
    return cluster_max() > 1 ? CLUSTER_MOST : 1;
}

/* The smallest cluster whose registers hold the weights, else the smallest that holds them
 * at all.  (Two blocks at least: one alone cannot post, where there are clusters.)  No
 * blocks: there is none. */
template <typename PASS>
static shape smallest_shape(int D)
{
    const int most = largest_cluster();
    shape found = {};

    for (int cluster = most > 1 ? 2 : 1; cluster <= most; cluster *= 2) {
        const shape s = shape_of<PASS>(D, cluster);
        if (s.warps > WARPS_MOST || s.bytes > (int)gpu_properties().sharedMemPerBlockOptin)
            continue;
        if (2 * s.slabs <= held_of<PASS>())
            return s;
        if (!found.cluster)
            found = s;
    }
    return found;
}

/* Four sequences to a cluster (ONE) where all can run at the same time; else eight (TWO), if
 * they fit. */
template <typename ONE, typename TWO>
static int launch_clusters(const recurrence &r)
{
    shape s = smallest_shape<ONE>(r.D);
    const shape twice = smallest_shape<TWO>(r.D);
    clusters_kernel *kernel = ONE::kernel;
    int64_t clusters = ceil_div(r.batch, 4);
    cluster_launch l;
    int at_once;

    CUDA(prepare(kernel, s, &at_once));
    if (clusters > at_once && twice.cluster && TWO::QUADS == 2) {
        s = twice, kernel = TWO::kernel, clusters = ceil_div(r.batch, 8);
        CUDA(prepare(kernel, s, &at_once));
    }
    prepare_shape(&l, s, clusters);
    return cudaLaunchKernelEx(&l.config, kernel, r, s);
}

/* Of so many sequences at most a lane has a column, each with its slots in registers: in fours. */
static constexpr int most_quads(int slots)
{
    return slots <= 16 ? 2 : 1;
}

/* The kernels of a pass. */
template <template <typename, int, int, int> class PASS, typename T>
static int launch_pass(const recurrence &r)
{
    return with_slots(r.N, [&](auto n) {
        return launch_clusters<PASS<T, n.value, 1, 0>, PASS<T, n.value, most_quads(n.value), 0>>(r);
    });
}

/* And those of kernel `template_d`. */
#define FIXED_WIDTH 512
#define FIXED_SLOTS 16

template <template <typename, int, int, int> class PASS>
static int launch_fixed(const recurrence &r)
{
    return launch_clusters<PASS<__nv_bfloat16, FIXED_SLOTS, 1, FIXED_WIDTH>,
                           PASS<__nv_bfloat16, FIXED_SLOTS, most_quads(FIXED_SLOTS), FIXED_WIDTH>>(
        r);
}

template <template <typename, int, int, int> class PASS, typename T>
static const char *pass_declines(const recurrence &r)
{
    static char why[160];
    const auto smallest = [&](auto n) { return smallest_shape<PASS<T, n.value, 1, 0>>(r.D); };
    const shape s = r.D > 4096 ? shape{} : with_slots(r.N, smallest);
    if (s.cluster)
        return NULL;
    snprintf(why, sizeof why,
             "dim %d with %d slots: weights and tape are more than a cluster of %d blocks can hold",
             r.D, r.N, largest_cluster());
    return why;
}

/* The backward pass (dual_memory_persistent_back.cu); and with sizes known beforehand. */
template <typename T>
int launch_backward(const recurrence &r);
int launch_backward_fixed(const recurrence &r);
template <typename T>
size_t backward_work(const recurrence &r);
template <typename T>
const char *backward_declines(const recurrence &r);

#endif
