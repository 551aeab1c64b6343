/* dual_memory_persistent.cuh - a cluster of blocks runs all steps of dual_memory for four or
 * eight sequences: work distribution, products y = W x, and the exchange between blocks.
 *
 * A block has two warp roles.  Each of up to 8 column warps has 8 columns of every vector and
 * of the tape, for four sequences: lane l has column l / 4 of sequence l % 4 (and of sequence
 * l % 4 + 4 where QUADS is 2), with all slots of the tape.  The column warps of a cluster cover
 * all D columns.  The four attention warps behind them compute the softmax or entmax, one
 * sequence of each four per warp.  They need few registers: setmaxnreg gives the rest to the
 * column warps.  The roles synchronise by named barriers: the producer arrives, the consumer
 * waits.
 *
 * A product is with one of two [D,D] matrices, or with both at once.  The four lanes of a column
 * share its row of each matrix: a lane holds 16 bytes of each `slab` of 64 bytes, in registers
 * first, then in shared memory.  Each sum ends in the lane of its column and sequence:
 *
 *     bf16   two neighbouring warps share their rows: each has one half of K for both, and they
 *            exchange partial sums, so each loads half of the vector.  The A operand of mma is
 *            8 rows of one warp above 8 rows of the other; the 8 columns of B are four
 *            vectors, each split into high and low bf16, side by side: a lane gets the high and
 *            the low part of both sums
 *     f32    a lane multiplies its own 16 bytes by all four vectors; then a sum over the lanes
 *
 * A vector goes to all blocks in chunks of 128 bytes, a warp's 8 columns of four sequences.  A
 * chunk is 8 units of 16 bytes, swizzled: rotated by two more units from chunk to chunk, so
 * that the lanes of one load hit different banks.  The chunks of a block are contiguous; one of
 * its warps copies them to one other block.
 *
 * Sums over columns, per slot, are over a warp's 8 columns first (reduce_scatter), then over the
 * block's warps, then over the cluster's blocks, always in that order.  The sums that a block
 * sends are its `message`. */
#ifndef DUAL_MEMORY_PERSISTENT_CUH
#define DUAL_MEMORY_PERSISTENT_CUH

#include <stdio.h>

#include "gpu/device/cluster.cuh"
#include "gpu/device/mbarrier.cuh"
#include "gpu/device/mma.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/device/fragment.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/dual_memory/attend.cuh"
#include "gpu/dual_memory/dual_memory.cuh"

enum {
    MAX_CLUSTER_BLOCKS = 16,
    MAX_COLUMN_WARPS = 8, /* column warps of a block */
    WARPGROUP = 4,        /* warps; setmaxnreg is per warpgroup; one does the attention */
    MAX_THREADS = 32 * (MAX_COLUMN_WARPS + WARPGROUP),
    REGISTER_BUDGET = 504, /* of three threads: two in column warpgroups, one in attention's */
    COLUMNS = 8,           /* per warp */
    SLAB_MULTIPLE = 4,     /* the slabs of a product are a multiple of it */
    CHUNK = 128,
    WORD = sizeof(float),
    MBARRIERS = 4
};

/* Named barriers: of the column warps; between column and attention warps; of each warp pair. */
enum {
    COLUMNS_BARRIER = 1,
    SIDE_PARTS_READY,
    MAIN_PARTS_READY,
    FIRST_WEIGHTS_READY,
    LAST_WEIGHTS_READY,
    PAIR_BARRIER
};

template <typename T>
struct slab {
    enum { PER_LANE = 16 / sizeof(T), DEPTH = 4 * PER_LANE }; /* elements per lane, per row */
};

/* What a block sends of its sequences: KINDS partial sums per slot. */
template <int SLOTS_, int QUADS_, int KINDS_>
struct message {
    enum {
        SLOTS = SLOTS_,
        QUADS = QUADS_,
        KINDS = KINDS_,
        OWN = SLOTS / 8, /* slots per lane of a column warp */
        STRIDE =
            SLOTS + (SLOTS == 8    ? 0
                     : SLOTS == 64 ? 4
                                   : 8), /* from sequence to sequence, without bank conflicts */
        ROWS = 4 * QUADS,
        FLOATS = KINDS * ROWS * STRIDE
    };
    /* Offset of sequence q of a quad. */
    static constexpr __host__ __device__ int row(int quad, int kind, int q)
    {
        return ((quad * KINDS + kind) * 4 + q) * STRIDE;
    }
};

/* ---- work distribution and shared memory ---- */

/* Sizes of a launch; offsets into shared memory in bytes. */
struct shape {
    int cluster, warps;               /* blocks; column warps per block */
    int block_columns;                /* columns per block */
    int slabs;                        /* per product */
    int vector_size;                  /* bytes of a vector, which every block has */
    int vector, pair_sums, attention; /* vectors; sums of paired warps; attention_values */
    int side_parts, main_parts;       /* messages, per warp */
    int side, main;                   /* and per block: `side` has SIDES buffers */
    int scalar_parts, scalars;        /* a value per sequence: per column; per block */
    int tape, weights, bytes;         /* tape and weights that are not in registers */
};

static constexpr __host__ __device__ int ceil_of(int x, int y)
{
    return (x + y - 1) / y;
}

/* A value per slot, for each of a block's sequences. */
template <typename MESSAGE>
struct alignas(16) slot_values {
    float row[MESSAGE::ROWS][MESSAGE::STRIDE];
};

/* PASS describes a pass: this; VECTORS, the vectors that every block has; SCALARS, 0 or 1;
 * main_message, and side_message with SIDES buffers; HELD_ITERATIONS of a product whose weights
 * are in registers; PREFETCH, whether these load their vectors an iteration ahead, which takes
 * registers; TAPES, the tape's slots in shared memory; ATTENTION_REGISTERS per thread of an
 * attention warp; attention_values, the results of the attention warps. */
template <typename T, int SLOTS_, int QUADS_, int WIDTH_>
struct pass_base {
    typedef T type; /* of storage */
    enum {
        SLOTS = SLOTS_,
        QUADS = QUADS_,
        WIDTH = WIDTH_,         /* or 0: known at run time */
        PAIRED = sizeof(T) == 2 /* warps share rows */
    };
};

/* ATTENTION_REGISTERS for `slots`: the rest of REGISTER_BUDGET, a multiple of 16, is for two
 * warpgroups of column warps. */
static constexpr int attention_registers(int slots)
{
    return slots <= 16 ? 56 : slots == 32 ? 72 : 88;
}

/* Blocks that the message buffers have space for: sums take eight at a time, and those that
 * do not exist stay zero.  (The same holds for the parts of eight warps.) */
static constexpr __host__ __device__ int round_up_8(int blocks)
{
    return (blocks + 7) / 8 * 8;
}

template <typename MESSAGE>
static constexpr __host__ __device__ int message_buffer_bytes(int cluster)
{
    return round_up_8(cluster) * MESSAGE::FLOATS * WORD;
}

/* Stride between the warps' parts of scalars, without bank conflicts. */
static constexpr __host__ __device__ int part_stride(int quads)
{
    return COLUMNS * 4 * quads + 4;
}

/* Bytes of one block's share of a vector. */
static constexpr __host__ __device__ int block_bytes(const shape &s, int quads)
{
    return s.warps * quads * CHUNK;
}

/* 16-byte vectors of weights that a lane holds in registers. */
template <typename PASS>
static constexpr __host__ __device__ int held_count(void)
{
    return 2 * SLAB_MULTIPLE * PASS::HELD_ITERATIONS;
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
    s.block_columns = s.warps * COLUMNS;
    s.slabs = ceil_of(cluster * s.block_columns, DEPTH * SLAB_MULTIPLE) * SLAB_MULTIPLE;
    s.vector_size = s.slabs * DEPTH / COLUMNS * QUADS * CHUNK;
    s.vector = MBARRIERS * (int)sizeof(uint64_t); /* behind the mbarriers */
    s.pair_sums = s.vector + PASS::VECTORS * s.vector_size;
    s.attention = s.pair_sums + PASS::PAIRED * s.warps * 32 * (int)sizeof(float4);
    s.side_parts = s.attention + (int)sizeof(typename PASS::attention_values);
    s.main_parts = s.side_parts + MAX_COLUMN_WARPS * PASS::side_message::FLOATS * WORD;
    s.side = s.main_parts + MAX_COLUMN_WARPS * PASS::main_message::FLOATS * WORD;
    s.main = s.side + PASS::SIDES * message_buffer_bytes<typename PASS::side_message>(cluster);
    s.scalar_parts = s.main + message_buffer_bytes<typename PASS::main_message>(cluster);
    s.scalars = s.scalar_parts + PASS::SCALARS * MAX_COLUMN_WARPS * part_stride(QUADS) * WORD;
    s.tape = s.scalars + PASS::SCALARS * round_up_8(cluster) * 4 * QUADS * WORD;
    s.weights = s.tape + PASS::TAPES * s.warps * 32 * WORD;
    const int overflow = 2 * s.slabs - held_count<PASS>();
    s.bytes = s.weights + (overflow > 0 ? overflow : 0) * s.warps * 32 * 16;
    return s;
}

/* A block's warps: warpgroups of column warps, then the attention warps. */
static constexpr __host__ __device__ int first_attention_warp(const shape &s)
{
    return ceil_of(s.warps, WARPGROUP) * WARPGROUP;
}

static constexpr __host__ __device__ int threads_of(const shape &s)
{
    return 32 * (first_attention_warp(s) + WARPGROUP);
}

/* Threads of the barriers between column and attention warps. */
static constexpr __host__ __device__ int joint_threads(const shape &s)
{
    return 32 * (s.warps + WARPGROUP);
}

/* Work coordinates of a thread of a column warp: block in the cluster, warp in the block, column
 * of D and sequence of the batch; and the block's shared memory. */
struct coord {
    int rank, warp, lane, i, q; /* i: column of the warp; q: sequence of the quad */
    int column, row;
    unsigned char *smem;

    template <typename N>
    __device__ __forceinline__ N *at(int offset) const
    {
        return (N *)(smem + offset);
    }
};

static __device__ __forceinline__ coord coord_of(const shape &s, int quads, unsigned char *smem)
{
    const int thread = opaque_thread_index(), warp = thread / 32;
    const int rank = (int)blockIdx.x & (s.cluster - 1), lane = thread % 32, i = lane / 4,
              q = lane % 4;
    return {rank,
            warp,
            lane,
            i,
            q,
            rank * s.block_columns + warp * COLUMNS + i,
            (int)blockIdx.x / s.cluster * 4 * quads + q,
            smem};
}

/* The same coordinates, opaque to the optimiser from iteration to iteration: addresses are
 * recomputed from them, and not kept in registers.  (iteration >> 30 is always 0.) */
static __device__ __forceinline__ coord opaque_copy(const coord &here, int iteration)
{
    const int zero = iteration >> 30, lane = here.lane ^ zero;
    return {here.rank ^ zero, here.warp ^ zero, lane,     lane / 4,
            lane % 4,         here.column,      here.row, here.smem + zero};
}

/* Zero the shared memory and initialise the mbarriers, before the first use by any block. */
static __device__ __forceinline__ void init_smem(const shape &s, unsigned char *smem)
{
    for (int k = s.vector + 16 * (int)threadIdx.x; k < s.weights; k += 16 * (int)blockDim.x)
        *(uint4 *)(smem + k) = {};
    if (threadIdx.x < MBARRIERS)
        mbarrier_init((uint64_t *)smem + threadIdx.x);
    __syncthreads();
    cluster_arrive();
    cluster_wait();
}

/* ---- exchange between blocks ---- */

/* OWN contiguous floats, as float4, float2 or float, aligned to that. */
template <int OWN>
static __device__ __forceinline__ void store_floats(float *at, const float x[OWN])
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
static __device__ __forceinline__ void load_floats(float x[OWN], const float *at)
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

/* Bulk copies of what the block has written to the same place of all other blocks, distributed
 * over its warps.  The source may change once all blocks have waited for the copies. */
static __device__ __forceinline__ void copy_to_peers(const shape &s, const coord &here,
                                                     uint64_t *mbar, void *place, int bytes)
{
    if (here.lane == 0)
        for (int block = here.warp; block < s.cluster - 1; block += s.warps)
            cp_async_bulk_cluster(place, bytes, mbar, (here.rank + 1 + block) & (s.cluster - 1));
}

/* x rounded to the storage type.  (Packing a pair is faster than converting one element.) */
static __device__ __forceinline__ float as_stored(float x, float)
{
    return x;
}
static __device__ __forceinline__ float as_stored(float x, __nv_bfloat16)
{
    return high_of_pair(pack_bf16x2(x, x));
}

/* The bits of a stored element; and its value. */
static __device__ __forceinline__ unsigned stored_bits(const float *at)
{
    return *(const unsigned *)at;
}
static __device__ __forceinline__ unsigned stored_bits(const __nv_bfloat16 *at)
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

/* ---- a vector in every block ---- */

/* Byte offset of unit e in a chunk; `chunk` counts through the cluster. */
static __device__ __forceinline__ int swizzled_offset(int chunk, int e)
{
    return (e + 2 * chunk) % 8 * 16;
}

/* A warp's elements of a vector, x of each lane, as a chunk.  bf16: the units are columns of
 * mma's B operand, with high and low bf16 of a sequence side by side. */
static __device__ __forceinline__ void store_chunk(const coord &here, unsigned char *chunk,
                                                   int number, float x, __nv_bfloat16)
{
    const float low = x - as_stored(x, __nv_bfloat16{});
    *(unsigned *)(chunk + swizzled_offset(number, here.i) + here.q * WORD) =
        movmatrix_trans(pack_bf16x2(x, low));
}

/* f32: the units are four columns of a sequence. */
static __device__ __forceinline__ void store_chunk(const coord &here, unsigned char *chunk,
                                                   int number, float x, float)
{
    *(float *)(chunk + swizzled_offset(number, here.i / 4 * 4 + here.q) + here.i % 4 * WORD) = x;
}

/* The block's elements of a vector, one per lane and quad, to all blocks. */
template <typename T, int QUADS>
static __device__ __forceinline__ void broadcast_vector(const shape &s, const coord &here,
                                                        uint64_t *mbar, int number,
                                                        const float x[QUADS])
{
    const int bytes = block_bytes(s, QUADS), chunk = here.rank * s.warps + here.warp;
    unsigned char *own = here.smem + s.vector + number * s.vector_size + here.rank * bytes;

    #pragma unroll QUADS
    for (int p = 0; p < QUADS; p++)
        store_chunk(here, own + (here.warp * QUADS + p) * CHUNK, chunk, x[p], T{});
    fence_proxy_async();
    named_barrier_sync(COLUMNS_BARRIER, 32 * s.warps);
    copy_to_peers(s, here, mbar, own, bytes);
}

/* Bytes of it that a block receives from the others. */
static __device__ __forceinline__ int vector_bytes(const shape &s, int quads)
{
    return (s.cluster - 1) * block_bytes(s, quads);
}

/* ---- products ---- */

/* Leading dimension of the weights, padded for loads of 16 bytes. */
static __host__ __device__ __forceinline__ int padded_ld(int D)
{
    return ceil_of(D, COLUMNS) * COLUMNS;
}

template <typename T>
static size_t packed_bytes(const recurrence &r)
{
    return 2 * sizeof(T) * r.D * padded_ld(r.D);
}

/* Copies W_write and W_h, or their transposes, with this leading dimension to the start of the
 * workspace; the recurrence then refers to the copies. */
template <typename T>
int pack_weights(recurrence *r, bool transposed);

/* A lane's 16 bytes of its row of two matrices, per slab, in the order of mma's A fragments: 4
 * bytes of one matrix and 4 of the other alternate.  Paired: for half of the slabs, 4 bytes of
 * the first warp's row and 4 of the second's alternate, one matrix after the other.  Zeros
 * beyond the last row and column. */
template <typename PASS, typename T>
static __device__ void load_weights(const shape &s, const coord &here, const T *one, const T *other,
                                    int D, uint4 held[held_count<PASS>()])
{
    enum { DEPTH = slab<T>::DEPTH, PAIRED = PASS::PAIRED };
    uint4 *overflow = here.at<uint4>(s.weights) + threadIdx.x;
    const int half = PAIRED ? here.warp % 2 : 0;
    const int first = half * s.slabs / 2 * DEPTH + here.q * slab<T>::PER_LANE;
    const int upper = here.column - half * COLUMNS, lower = upper + PAIRED * COLUMNS;

    const auto load_16_bytes = [&](const T *matrix, int row, int k) {
        const bool there = k < (row < D ? D - first : 0);
        return there ? *(const uint4 *)(matrix + (int64_t)row * padded_ld(D) + first + k) : uint4{};
    };
    const auto fetch = [&](int m, uint4 x[2]) {
        const int k = (PAIRED ? m / 2 : m) * DEPTH;
        const uint4 a = load_16_bytes(PAIRED && m % 2 ? other : one, upper, k);
        const uint4 b = load_16_bytes(PAIRED && m % 2 == 0 ? one : other, lower, k);
        x[0] = {a.x, b.x, a.y, b.y};
        x[1] = {a.z, b.z, a.w, b.w};
    };

    #pragma unroll 64
    for (int m = 0; m < held_count<PASS>() / 2; m++)
        fetch(m, held + 2 * m);
    for (int m = held_count<PASS>() / 2; m < s.slabs; m++, overflow += 2 * s.warps * 32) {
        uint4 x[2];
        fetch(m, x);
        overflow[0] = x[0], overflow[s.warps * 32] = x[1];
    }
}

/* A lane's results of a product: row of the first matrix times x, row of the other times x; and
 * which of them are wanted. */
struct product_sums {
    float one, other;
};

enum { ONE_SUM = 1, OTHER_SUM = 2, BOTH_SUMS = 3 };

template <typename PASS, int WANTED, typename T = typename PASS::type, bool PAIRED = PASS::PAIRED>
struct accumulators;

/* The lane's share of a slab of a vector: B fragments of a quad, for two mma. */
static __device__ __forceinline__ uint4 load_vector_fragment(const coord &here,
                                                             const unsigned char *vector, int slab,
                                                             int quads, int quad)
{
    const int chunk = 4 * slab + here.q;
    return *(const uint4 *)(vector + (chunk * quads + quad) * CHUNK +
                            swizzled_offset(here.q, here.i));
}

static __device__ __forceinline__ void mma_rows(float sum[4], const uint4 &rows, unsigned x,
                                                unsigned y)
{
    const unsigned a[4] = {rows.x, rows.y, rows.z, rows.w}, b[2] = {x, y};
    mma_bf16(sum, a, b);
}

/* bf16: mma; the upper and lower half of an accumulator are rows of the two paired warps. */
template <typename PASS, int WANTED>
struct accumulators<PASS, WANTED, __nv_bfloat16, true> {
    enum {
        QUADS = PASS::QUADS,
        PER_SLAB = 2,              /* steps m per slab */
        PER_ITERATION = 4 / QUADS, /* and per iteration */
        PREFETCH = PASS::PREFETCH,
        MATRICES = WANTED == BOTH_SUMS ? 2 : 1,
        FIRST = WANTED == OTHER_SUM, /* matrix */
        OWN = MATRICES * QUADS,
        CHAINS = 4 / OWN
    };
    float sum[CHAINS][OWN][4];

    __device__ __forceinline__ accumulators() : sum{} {}
    static constexpr __device__ bool uses(int e)
    {
        return e / 2 >= FIRST && e / 2 < FIRST + MATRICES;
    }
    struct operands {
        uint4 of[QUADS];
    };
    static __device__ __forceinline__ operands fetch(const shape &s, const coord &here,
                                                     const unsigned char *vector, int m)
    {
        const int slab = here.warp % 2 * s.slabs / 2 + m / 2;
        operands x;
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++)
            x.of[p] = load_vector_fragment(here, vector, slab, QUADS, p);
        return x;
    }
    __device__ __forceinline__ void add(const coord &, const unsigned char *, int, int first_chain,
                                        const operands &x, const uint4 w[4])
    {
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++) {
            #pragma unroll MATRICES
            for (int k = 0; k < MATRICES; k++)
                mma_rows(sum[first_chain % CHAINS][k * QUADS + p], w[2 * (FIRST + k)], x.of[p].x,
                         x.of[p].y);
            #pragma unroll MATRICES
            for (int k = 0; k < MATRICES; k++)
                mma_rows(sum[(first_chain + 1) % CHAINS][k * QUADS + p], w[2 * (FIRST + k) + 1],
                         x.of[p].z, x.of[p].w);
        }
    }
    __device__ __forceinline__ void end(const shape &s, const coord &here, product_sums *x)
    {
        const bool second = here.warp % 2;
        float *partials = here.at<float>(s.pair_sums) + (FIRST * s.warps * 32 + here.lane) * OWN;
        float own[OWN], theirs[OWN], half[OWN];
        #pragma unroll OWN
        for (int k = 0; k < OWN; k++) {
            float upper = 0, lower = 0;
            #pragma unroll CHAINS
            for (int chain = 0; chain < CHAINS; chain++) {
                upper += sum[chain][k][0] + sum[chain][k][1];
                lower += sum[chain][k][2] + sum[chain][k][3];
            }
            own[k] = second ? lower : upper;
            theirs[k] = second ? upper : lower;
        }
        store_floats<OWN>(partials + here.warp * 32 * OWN, theirs);
        named_barrier_sync(PAIR_BARRIER + here.warp / 2, 64);
        load_floats<OWN>(half, partials + (here.warp ^ 1) * 32 * OWN);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++) {
            x[p].one = WANTED & ONE_SUM ? own[p] + half[p] : 0;
            x[p].other = WANTED & OTHER_SUM ? own[OWN - QUADS + p] + half[OWN - QUADS + p] : 0;
        }
    }
};

template <typename PASS, int WANTED>
struct accumulators<PASS, WANTED, float, false> {
    enum { QUADS = PASS::QUADS, PER_SLAB = 1, PER_ITERATION = 1, PREFETCH = 0 };
    float one[QUADS][4], other[QUADS][4];

    __device__ __forceinline__ accumulators() : one{}, other{} {}
    static constexpr __device__ bool uses(int) { return true; }
    struct operands {
    };
    static __device__ __forceinline__ operands fetch(const shape &, const coord &,
                                                     const unsigned char *, int)
    {
        return {};
    }
    __device__ __forceinline__ void add(const coord &here, const unsigned char *vector, int m, int,
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
                load_floats<4>(x, (const float *)(vector + (chunk * QUADS + p) * CHUNK +
                                                  swizzled_offset(chunk, here.q % 2 * 4 + r)));
                #pragma unroll 4
                for (int k = 0; k < 4; k++) {
                    if (WANTED & ONE_SUM)
                        one[p][r] = fmaf(__uint_as_float(a[k]), x[k], one[p][r]);
                    if (WANTED & OTHER_SUM)
                        other[p][r] = fmaf(__uint_as_float(b[k]), x[k], other[p][r]);
                }
            }
    }
    /* Reduce-scatter over a column's four lanes: lane q gets the sum of sequence q. */
    static __device__ __forceinline__ float reduce_lanes(const coord &here, const float x[4])
    {
        const bool second = here.q & 2, odd = here.q & 1;
        const float a = second ? x[2] : x[0], b = second ? x[3] : x[1];
        const float c = a + __shfl_xor_sync(~0u, second ? x[0] : x[2], 2);
        const float d = b + __shfl_xor_sync(~0u, second ? x[1] : x[3], 2);
        return (odd ? d : c) + __shfl_xor_sync(~0u, odd ? c : d, 1);
    }
    __device__ __forceinline__ void end(const shape &, const coord &here, product_sums *x)
    {
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++)
            x[p] = {reduce_lanes(here, one[p]), reduce_lanes(here, other[p])};
    }
};

/* The lane's rows times a vector in shared memory.  (Slabs beyond the last are zero.) */
template <typename PASS, int WANTED>
static __device__ __forceinline__ void multiply(const shape &s, const coord &here,
                                                const uint4 held[held_count<PASS>()], int vector,
                                                product_sums x[PASS::QUADS])
{
    typedef accumulators<PASS, WANTED> accumulators_of;
    enum {
        REGISTERS = held_count<PASS>() / 2,
        PER_SLAB = accumulators_of::PER_SLAB,
        PER_ITERATION = accumulators_of::PER_ITERATION,
        PREFETCH = accumulators_of::PREFETCH
    };
    const unsigned char *at = here.smem + vector;
    const uint4 *overflow = here.at<uint4>(s.weights) + threadIdx.x;
    const int stride = s.warps * 32;
    typename accumulators_of::operands
        fetched_operands[2][PER_ITERATION]; /* double buffered with PREFETCH */
    accumulators_of all;

    #pragma unroll 4
    for (int k = 0; k < PER_ITERATION && PREFETCH; k += PER_SLAB)
        fetched_operands[0][k] = all.fetch(s, here, at, k);
    #pragma unroll 64
    for (int m = 0; m < REGISTERS; m += PER_ITERATION)
        if (m < s.slabs) {
            const int buffer = m / PER_ITERATION % 2, next = m + PER_ITERATION;
            const int fetched = !PREFETCH ? m : next < s.slabs ? next : 0;
            #pragma unroll 4
            for (int k = 0; k < PER_ITERATION && (!PREFETCH || next < REGISTERS); k += PER_SLAB)
                fetched_operands[buffer ^ PREFETCH][k] = all.fetch(s, here, at, fetched + k);
            #pragma unroll 4
            for (int k = 0; k < PER_ITERATION; k += PER_SLAB)
                all.add(here, at, m + k, m + k, fetched_operands[buffer][k], held + 2 * (m + k));
        }
    #pragma unroll 1
    for (int m = REGISTERS; m < s.slabs; m += PER_SLAB, overflow += 2 * PER_SLAB * stride) {
        uint4 w[2 * PER_SLAB];
        #pragma unroll 4
        for (int e = 0; e < 2 * PER_SLAB; e++)
            if (accumulators_of::uses(e))
                w[e] = overflow[e * stride];
        all.add(here, at, m, 0, all.fetch(s, here, at, m), w);
    }
    all.end(s, here, x);
}

/* ---- sums over columns ---- */

/* Reduce-scatter of 8 values per lane over the warp's columns: lane i gets the sum of x[i]. */
static __device__ __forceinline__ float reduce_scatter(const coord &here, float x[8])
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

/* The sum of term(n) over the warp's columns, for every slot n, to a sequence's row in the
 * warp's part of a message. */
template <typename MESSAGE, typename TERM>
static __device__ __forceinline__ void reduce_slots(const coord &here, float *to, const TERM &term)
{
    enum { OWN = MESSAGE::OWN };
    float own[OWN];
    #pragma unroll OWN
    for (int k = 0; k < OWN; k++) {
        if (OWN > 2)
            __syncwarp(); /* limits the terms in flight, to save registers */
        float x[8];
        #pragma unroll 8
        for (int i = 0; i < 8; i++)
            x[i] = term(i * OWN + k);
        own[k] = reduce_scatter(here, x);
    }
    store_floats<OWN>(to + here.i * OWN, own);
}

/* Each column's term of a scalar, which is one value per sequence. */
static __device__ __forceinline__ void store_scalar_part(const shape &s, const coord &here,
                                                         int quads, int quad, float x)
{
    here.at<float>(
        s.scalar_parts)[here.warp * part_stride(quads) + (4 * quad + here.q) * COLUMNS + here.i] =
        x;
}

/* ---- attention warps ---- */

/* A lane of an attention warp: the warp has sequence q of each quad, the lane OWN slots of one of
 * them.  Where a sequence has more lanes than that takes, they split its sums SPLITS ways. */
template <typename PASS>
struct attention_lane {
    enum {
        SLOTS = PASS::SLOTS,
        QUADS = PASS::QUADS,
        OWN = attention<SLOTS>::OWN,
        LANES = attention<SLOTS>::GROUP, /* that have a sequence's slots */
        SEQUENCE_LANES = 32 / QUADS,     /* per sequence */
        SPLITS = SEQUENCE_LANES / LANES,
        FLOAT4S = SLOTS / 4
    };
    typedef attention<SLOTS> ops;
    int rank, q, quad, lane, row; /* lane: of SEQUENCE_LANES; row: sequence of the batch */
    unsigned char *smem;

    __device__ __forceinline__ attention_lane(const shape &s, int warp, unsigned char *smem_)
        : rank((int)blockIdx.x & (s.cluster - 1)), q(warp),
          quad(opaque_thread_index() % 32 / SEQUENCE_LANES),
          lane(opaque_thread_index() % SEQUENCE_LANES),
          row((int)blockIdx.x / s.cluster * 4 * QUADS + 4 * quad + warp), smem(smem_)
    {
    }
    /* Like opaque_copy() of a coord. */
    __device__ __forceinline__ attention_lane opaque_copy(int iteration) const
    {
        attention_lane same = *this;
        const int zero = iteration >> 30;
        same.rank ^= zero, same.q ^= zero, same.quad ^= zero, same.lane ^= zero;
        same.smem += zero;
        return same;
    }
    __device__ __forceinline__ int slot(void) const { return lane % LANES * OWN; }
    __device__ __forceinline__ bool leader(void) const { return q + quad + lane == 0; }
    __device__ __forceinline__ uint64_t *mbar(int k) const { return (uint64_t *)smem + k; }
    template <typename N>
    __device__ __forceinline__ N *at(int offset) const
    {
        return (N *)(smem + offset);
    }

    /* The sum of TERMS values per slot, `stride` from each other, always in the same order. */
    template <int TERMS>
    __device__ __forceinline__ void sum_terms(const float *from, int stride, float x[OWN]) const
    {
        float term[TERMS / SPLITS][OWN];
        from += lane / LANES * (TERMS / SPLITS) * stride;
        #pragma unroll 8
        for (int k = 0; k < TERMS / SPLITS; k++)
            load_floats<OWN>(term[k], from + k * stride);
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++) {
            #pragma unroll 3
            for (int half = TERMS / SPLITS / 2; half > 0; half /= 2)
                #pragma unroll 4
                for (int k = 0; k < half; k++)
                    term[k][i] += term[k + half][i];
            x[i] = term[0][i];
            #pragma unroll 2
            for (int offset = LANES; offset < SEQUENCE_LANES; offset *= 2)
                x[i] += __shfl_xor_sync(~0u, x[i], offset);
        }
    }

    /* The sum over each eight lanes. */
    static __device__ __forceinline__ float sum_8_lanes(float x)
    {
        #pragma unroll 3
        for (int offset = 1; offset < 8; offset *= 2)
            x += __shfl_xor_sync(~0u, x, offset);
        return x;
    }

    /* Sums the warps' parts of a message, all written before, and sends it to all blocks. */
    template <typename MESSAGE>
    __device__ __forceinline__ void broadcast_message(const shape &s, uint64_t *mbar, int parts,
                                                      int messages) const
    {
        float *own = at<float>(messages) + rank * MESSAGE::FLOATS;
        #pragma unroll (MESSAGE::KINDS)
        for (int kind = 0; kind < MESSAGE::KINDS; kind++) {
            const int row = MESSAGE::row(quad, kind, q);
            float x[OWN];
            sum_terms<MAX_COLUMN_WARPS>(at<float>(parts) + row + slot(), MESSAGE::FLOATS, x);
            if (lane < LANES)
                store_floats<OWN>(own + row + slot(), x);
        }
        __syncwarp();
        #pragma unroll (MESSAGE::KINDS)
        for (int kind = 0; kind < MESSAGE::KINDS; kind++) {
            float4 *place = (float4 *)(own + MESSAGE::row(quad, kind, q)) +
                            lane % FLOAT4S; /* 16 bytes per lane */
            const float4 x = *place;
            #pragma unroll 1
            for (int block = 1 + lane / FLOAT4S; block < s.cluster;
                 block += SEQUENCE_LANES / FLOAT4S)
                st_async(place, mbar, (rank + block) & (s.cluster - 1), x);
        }
    }

    /* The sums over all blocks, for the lane's slots. */
    template <typename MESSAGE>
    __device__ __forceinline__ void slot_sums(const shape &s, int messages, int kind,
                                              float x[OWN]) const
    {
        const float *from = at<float>(messages) + MESSAGE::row(quad, kind, q) + slot();
        sum_terms<8>(from, MESSAGE::FLOATS, x);
        if (s.cluster > 8) {
            float y[OWN];
            sum_terms<8>(from + 8 * MESSAGE::FLOATS, MESSAGE::FLOATS, y);
            #pragma unroll OWN
            for (int i = 0; i < OWN; i++)
                x[i] += y[i];
        }
    }

    /* Sums the block's parts of a scalar and sends the sum to all blocks. */
    __device__ __forceinline__ void broadcast_scalar(const shape &s, uint64_t *mbar) const
    {
        float x[COLUMNS];
        load_floats<COLUMNS>(x, at<float>(s.scalar_parts) +
                                    lane % MAX_COLUMN_WARPS * part_stride(QUADS) +
                                    (4 * quad + q) * COLUMNS);
        const float sum = sum_8_lanes(x[0] + x[1] + (x[2] + x[3]) + (x[4] + x[5] + (x[6] + x[7])));
        if (lane < s.cluster)
            st_async(at<float>(s.scalars) + rank * 4 * QUADS + 4 * quad + q, mbar, lane, sum);
    }

    /* The sum over all blocks. */
    __device__ __forceinline__ float scalar_sum(const shape &s) const
    {
        const float *from = at<float>(s.scalars) + 4 * quad + q;
        float x = from[lane % 8 * 4 * QUADS];
        if (s.cluster > 8)
            x += from[(lane % 8 + 8) * 4 * QUADS];
        return sum_8_lanes(x);
    }

    /* A value per slot, for the column warps. */
    template <typename MESSAGE>
    __device__ __forceinline__ void store_slots(slot_values<MESSAGE> *all, const float x[OWN]) const
    {
        if (lane < LANES)
            store_floats<OWN>(all->row[4 * quad + q] + slot(), x);
    }
};

template <typename MESSAGE>
static __device__ __forceinline__ int message_bytes(const shape &s)
{
    return (s.cluster - 1) * MESSAGE::KINDS * MESSAGE::ROWS * MESSAGE::SLOTS * WORD;
}

static __device__ __forceinline__ int scalar_bytes(const shape &s, int quads)
{
    return s.cluster * 4 * quads * WORD;
}

/* Values of slots n to n + 3 of a sequence. */
template <typename MESSAGE>
static __device__ __forceinline__ void load_slots(const slot_values<MESSAGE> &all,
                                                  const coord &here, int quad, int n, float x[4])
{
    load_floats<4>(x, all.row[4 * quad + here.q] + n);
}

/* ---- a kernel ---- */

/* Warp roles: column_role() by the column warps, attention_role() by the warpgroup behind them. */
template <typename PASS, typename COLUMN_ROLE, typename ATTENTION_ROLE>
static __device__ __forceinline__ void
run_roles(recurrence &r, const shape &given, unsigned char *smem, const COLUMN_ROLE &column_role,
          const ATTENTION_ROLE &attention_role)
{
    const shape s = PASS::WIDTH != 0 ? shape_of<PASS>(PASS::WIDTH, given.cluster) : given;
    if (PASS::WIDTH != 0)
        r.D = PASS::WIDTH, r.N = PASS::SLOTS;
    const int warp = (int)threadIdx.x / 32, attention_warp = warp - first_attention_warp(s);

    init_smem(s, smem);
    if (attention_warp < 0) {
        setmaxnreg_inc<(REGISTER_BUDGET - PASS::ATTENTION_REGISTERS) / 2>();
        if (warp < s.warps)
            column_role(r, s, coord_of(s, PASS::QUADS, smem));
    } else {
        setmaxnreg_dec<PASS::ATTENTION_REGISTERS>();
        attention_role(r, s, attention_lane<PASS>(s, attention_warp, smem));
    }
    handover_finish(s.cluster);
}

/* ---- launches ---- */

typedef void clusters_kernel(recurrence, shape);

static void prepare_shape(cluster_launch *to, const shape &s, int64_t clusters)
{
    cluster_launch_init(to, clusters, s.cluster, threads_of(s), s.bytes);
}

/* Sets the kernel's limits of shared memory and cluster size; *clusters: how many can be active. */
static cudaError_t prepare(clusters_kernel *kernel, const shape &s, int *clusters)
{
    cluster_launch l;

    *clusters = 0;
    prepare_shape(&l, s, 1);
    CUDA(allow_smem(kernel, s.bytes));
    if (s.cluster > 8)
        CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    if (s.cluster > 1)
        return cudaOccupancyMaxActiveClusters(clusters, kernel, &l.config);
    *clusters = gpu_limits()->sms;
    return cudaSuccess;
}

static int max_cluster_blocks(void)
{
    return cluster_max() > 1 ? MAX_CLUSTER_BLOCKS : 1;
}

/* The smallest cluster whose registers hold the weights, else the smallest that holds them
 * at all; cluster 0 if there is none.  (At least two blocks where there are clusters: one block
 * alone cannot broadcast.) */
template <typename PASS>
static shape smallest_shape(int D)
{
    const int max_cluster = max_cluster_blocks();
    shape found = {};

    for (int cluster = max_cluster > 1 ? 2 : 1; cluster <= max_cluster; cluster *= 2) {
        const shape s = shape_of<PASS>(D, cluster);
        if (s.warps > MAX_COLUMN_WARPS || s.bytes > (int)gpu_limits()->smem)
            continue;
        if (2 * s.slabs <= held_count<PASS>())
            return s;
        if (!found.cluster)
            found = s;
    }
    return found;
}

/* Four sequences per cluster (ONE) if all clusters can be active at once; else eight (TWO), if
 * they fit. */
template <typename ONE, typename TWO>
static int launch_clusters(const recurrence &r)
{
    shape s = smallest_shape<ONE>(r.D);
    const shape eight = smallest_shape<TWO>(r.D);
    clusters_kernel *kernel = ONE::kernel;
    int64_t clusters = ceil_div(r.batch, 4);
    cluster_launch l;
    int max_active;

    CUDA(prepare(kernel, s, &max_active));
    if (clusters > max_active && eight.cluster && TWO::QUADS == 2) {
        s = eight, kernel = TWO::kernel, clusters = ceil_div(r.batch, 8);
        CUDA(prepare(kernel, s, &max_active));
    }
    prepare_shape(&l, s, clusters);
    return cudaLaunchKernelEx(&l.config, kernel, r, s);
}

/* The most quads (sequences per lane) whose slots fit into a lane's registers. */
static constexpr int max_quads(int slots)
{
    return slots <= 16 ? 2 : 1;
}

/* The kernels of a pass. */
template <template <typename, int, int, int> class PASS, typename T>
static int launch_pass(const recurrence &r)
{
    return with_slots(r.N, [&](auto n) {
        return launch_clusters<PASS<T, n.value, 1, 0>, PASS<T, n.value, max_quads(n.value), 0>>(r);
    });
}

/* The kernels of `template_d`. */
#define FIXED_WIDTH 512
#define FIXED_SLOTS 16

template <template <typename, int, int, int> class PASS>
static int launch_fixed(const recurrence &r)
{
    return launch_clusters<PASS<__nv_bfloat16, FIXED_SLOTS, 1, FIXED_WIDTH>,
                           PASS<__nv_bfloat16, FIXED_SLOTS, max_quads(FIXED_SLOTS), FIXED_WIDTH>>(
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
             r.D, r.N, max_cluster_blocks());
    return why;
}

/* The backward pass (dual_memory_persistent_back.cu); and with compile-time sizes. */
template <typename T>
int launch_backward(const recurrence &r);
int launch_backward_fixed(const recurrence &r);
template <typename T>
size_t backward_work(const recurrence &r);
template <typename T>
const char *backward_declines(const recurrence &r);

#endif
