/* persistent_shape.cuh - dual_memory, kernel `persistent`: how work and shared memory are
 * distributed over a cluster's blocks and their warps (dual_memory_persistent.cuh has the warp
 * roles). */
#ifndef PERSISTENT_SHAPE_CUH
#define PERSISTENT_SHAPE_CUH

#include "gpu/device/opaque.cuh"
#include "gpu/device/smem.cuh"
#include "gpu/dual_memory/dual_memory.cuh"

namespace dual
{

enum {
    MAX_CLUSTER_BLOCKS = 16,
    MAX_COLUMN_WARPS = 8, /* column warps of a block */
    WARPGROUP = 4,        /* warps; setmaxnreg is per warpgroup; one has the attention warps */
    MAX_THREADS = 32 * (MAX_COLUMN_WARPS + WARPGROUP),
    REGISTER_BUDGET = 504, /* of three threads: two of column warps, one of attention warps */
    COLUMNS = 8,           /* per warp */
    SLAB_MULTIPLE = 4,     /* the slabs of a product are a multiple of this */
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

/* A message from a block to the others: KINDS partial sums per slot of its sequences. */
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

/* PASS, which describes a pass, derives from this and defines: VECTORS, the number of vectors that
 * every block has; SCALARS, 0 or 1; main_message, and side_message with SIDES buffers;
 * HELD_ITERATIONS, the iterations of a product whose weights are in registers; PREFETCH: these
 * iterations load their vectors one iteration ahead, which needs registers; TAPES, the tape's slots
 * in shared memory; ATTENTION_REGISTERS per thread of an attention warp; attention_values, the
 * results of the attention warps. */
template <typename T, int SLOTS_, int QUADS_, int WIDTH_>
struct pass_base {
    typedef T type; /* of storage */
    enum {
        SLOTS = SLOTS_,
        QUADS = QUADS_,
        WIDTH = WIDTH_,                    /* or 0: known at run time */
        PAIRED = storage<T>::PER_WORD == 2 /* warps share rows */
    };
};

/* ATTENTION_REGISTERS for `slots`: the rest of REGISTER_BUDGET, a multiple of 16, is for two
 * warpgroups of column warps. */
static constexpr int attention_registers(int slots)
{
    return slots <= 16 ? 56 : slots == 32 ? 72 : 88;
}

/* The number of blocks for which message buffers have space.  Sums are over eight blocks at a time,
 * and messages of blocks that do not exist stay zero.  (The same holds for the parts of eight
 * warps.) */
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
    const int overflow = 2 * s.slabs - held_count<PASS>(), buffers = round_up_8(cluster);
    smem_arena smem = {}; /* all arrays consist of whole 16 bytes */
    smem.append<uint64_t>(MBARRIERS);
    s.vector = smem.append<unsigned char>(PASS::VECTORS * s.vector_size);
    s.pair_sums = smem.append<float4>(PASS::PAIRED * s.warps * 32);
    s.attention = smem.append<typename PASS::attention_values>(1);
    s.side_parts = smem.append<float>(MAX_COLUMN_WARPS * PASS::side_message::FLOATS);
    s.main_parts = smem.append<float>(MAX_COLUMN_WARPS * PASS::main_message::FLOATS);
    s.side = smem.append<float>(PASS::SIDES * buffers * PASS::side_message::FLOATS);
    s.main = smem.append<float>(buffers * PASS::main_message::FLOATS);
    s.scalar_parts = smem.append<float>(PASS::SCALARS * MAX_COLUMN_WARPS * part_stride(QUADS));
    s.scalars = smem.append<float>(PASS::SCALARS * buffers * 4 * QUADS);
    s.tape = smem.append<float>(PASS::TAPES * s.warps * 32);
    s.weights = smem.append<uint4>((overflow > 0 ? overflow : 0) * s.warps * 32);
    s.bytes = smem.bytes;
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

/* A copy of the coordinates that is opaque to the optimiser in every iteration, so that it
 * recomputes addresses from them and does not keep these in registers.  (iteration >> 30 is always
 * 0.) */
static __device__ __forceinline__ coord opaque_copy(const coord &here, int iteration)
{
    const int zero = iteration >> 30, lane = here.lane ^ zero;
    return {here.rank ^ zero, here.warp ^ zero, lane,     lane / 4,
            lane % 4,         here.column,      here.row, here.smem + zero};
}

}    // namespace dual

#endif
