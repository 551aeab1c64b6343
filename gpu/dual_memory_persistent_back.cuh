/* dual_memory_persistent.cuh - a cluster of blocks that carries some sequences of
 * dual_memory through all steps, with the weights on chip: who has what, the
 * product of a [D,D] matrix with the cluster's vectors, and the exchange of these.
 *
 * The inner width is padded to cluster x own: each block has `own` columns of every
 * vector and of the tape, and the rows of the weights that make them.  The weights
 * lie in tiles of 16 rows, in the order in which the lanes of a warp need them, 16
 * bytes to a lane.  A row of tiles belongs to `split` warps, `each` tiles of every
 * product that a step has to a warp, the first of them in registers, the others in
 * shared memory.
 *
 *             bytes of a lane          a tile's depth   product
 *     bf16    a fragment of mma        16               tensor cores; the vector goes in as two
 *                                                       halves, high and low, of 16 bits together
 *     f32     4 neighbours of a row    8                multiply-adds; a row is two lanes' work
 *
 * What the warps have found of a row is added up in a fixed order, that of tiles. */
#ifndef DUAL_MEMORY_PERSISTENT_BACK_CUH
#define DUAL_MEMORY_PERSISTENT_BACK_CUH

#include <stdio.h>

#include "gpu/attend.cuh"
#include "gpu/dual_memory.cuh"
#include "gpu/tanh.cuh"

enum { CLUSTER_MOST = 16, THREADS_MOST = 256, ROWS_MOST = 8, TILE = 16, FOUR = 4 };

template <typename T>
struct depth_of;
template <>
struct depth_of<__nv_bfloat16> {
    enum { DEPTH = 16 };
};
template <>
struct depth_of<float> {
    enum { DEPTH = 8 };
};

/* What one pass is made of: products of a step (one of both matrices at once, or one of
 * each); sums over columns that blocks exchange for each slot; tapes in shared memory;
 * tiles that a thread has registers for. */
template <int PRODUCTS, int KINDS_, int TAPES_, int HELD_>
struct walk {
    enum { SETS = PRODUCTS, KINDS = KINDS_, TAPES = TAPES_, HELD = HELD_ };
};

/* ---- who has what ---- */

/* Sizes of a launch; offsets into shared memory in bytes. */
struct shape {
    int cluster, own;    /* blocks; columns of one */
    int rows, quads;     /* sequences of a cluster; in fours, for bf16's products */
    int threads, passes; /* times that the threads go over the block's columns */
    int deep;            /* tiles of a row of them */
    int pair, split;     /* rows of tiles that a warp has, and warps that share them */
    int each;            /* a warp's tiles of a product */
    int room;            /* bytes of a vector, zeros behind it for tiles beyond the last */
    int parts;           /* threads that share a column's slots */
    int lanes;           /* threads that share the columns of four slots */
    int inbox, vector, partial, tape, mine, scores, small, weights, bytes;
};

/* Tiles of a warp come in eights, in four chains of sums. */
enum { PASSES_MOST = 2, TOGETHER = 8, CHAINS = 4 };

static constexpr __host__ __device__ int power_below(int x)
{
    int power = 1;
    while (2 * power <= x)
        power *= 2;
    return power;
}

static constexpr __host__ __device__ int at_most(int x, int most)
{
    return x < most ? x : most;
}

/* From a column of a tape in shared memory to the next, in floats: no bank meets itself. */
template <int SLOTS>
struct tape_of {
    enum { APART = SLOTS + FOUR };
};

template <typename T, typename WALK>
static constexpr __host__ __device__ shape shape_of(int D, int slots, int rows, int cluster)
{
    enum { SETS = WALK::SETS };
    shape s = {};
    s.cluster = cluster;
    s.own = ((D + TILE - 1) / TILE + cluster - 1) / cluster * TILE;
    s.rows = rows;
    s.quads = (rows + 3) / 4;
    s.deep = cluster * s.own / depth_of<T>::DEPTH;
    const int part_rows = sizeof(T) == 2 ? 4 * s.quads : rows;
    const int tiles = 2 / SETS * s.own / TILE; /* rows of them */
    s.threads = tiles * SETS * s.deep >= 32 || s.own * rows > 128 ? THREADS_MOST : 128;
    s.passes = (s.own * rows + s.threads - 1) / s.threads;
    s.pair = tiles % 2 ? 1 : 2;
    s.split = s.threads / 32 * s.pair / tiles;
    s.each = 0;
    if (s.split) {
        const int deep = (s.deep + s.split - 1) / s.split, units = deep * s.pair;
        s.each = (units + TOGETHER - 1) / TOGETHER * TOGETHER;
    }
    s.room = s.split * s.each / s.pair * depth_of<T>::DEPTH * part_rows * 4;
    s.parts = s.passes > 1 ? 1 : at_most(power_below(s.threads / (s.own * rows)), slots / FOUR);
    const int fours = slots / FOUR * rows;
    s.lanes = fours < s.threads ? at_most(power_below(s.threads / fours), 16) : 1;
    const int numbers = (WALK::KINDS * slots + 4) * rows;
    s.inbox = 0;
    s.vector = 16;
    s.partial = s.vector + SETS * s.room;
    s.tape = s.partial + s.threads / 32 * s.pair * part_rows * 32 * 4;
    s.mine = s.tape + WALK::TAPES * rows * s.own * (slots + FOUR) * 4;
    s.scores = s.mine + numbers * 4;
    s.small = s.scores + cluster * numbers * 4;
    s.weights = s.small + rows * 4 * (slots + s.own) * 4;
    const int units = SETS * s.each;
    s.bytes = s.weights + s.threads * 16 * (units > WALK::HELD ? units - WALK::HELD : 0);
    return s;
}

/* Of one block: where it is, and its shared memory; and of one warp, whose tiles. */
struct seat {
    int rank, row, rows; /* in its cluster; its first sequence, and how many there are */
    int tiles, from;     /* the warp's first row of tiles, and its first tile of that */
    unsigned char *memory;

    template <typename N>
    __device__ __forceinline__ N *at(int offset) const
    {
        return (N *)(memory + offset);
    }
};

static __device__ __forceinline__ seat seat_of(const recurrence &r, const shape &s,
                                               unsigned char *memory)
{
    const int row = (int)blockIdx.x / s.cluster * s.rows, warp = (int)threadIdx.x / 32;
    return {(int)blockIdx.x & (s.cluster - 1),        row,
            (int)min((int64_t)s.rows, r.batch - row), warp / s.split * s.pair,
            warp % s.split * (s.each / s.pair),       memory};
}

/* A thread's column of a sequence, and which of that column's slots are its own. */
struct column {
    int part, j, r, at; /* slots part, part + parts, ..; of the block's; of all */
    int64_t row;        /* of the batch */
    bool there;         /* has the block such a column? */
    bool live;          /* and are there such a column and such a sequence at all? */
};

static __device__ __forceinline__ column column_of(const recurrence &r, const shape &s,
                                                   const seat &here, int pass)
{
    const int item = ((int)threadIdx.x + pass * s.threads) / s.parts;
    const int row = item / s.own, j = item % s.own, at = here.rank * s.own + j;
    return {
        (int)threadIdx.x & (s.parts - 1), j, min(row, s.rows - 1), at, here.row + row, row < s.rows,
        row < here.rows && at < r.D};
}

/* Sums over the threads that share a column's slots. */
static __device__ __forceinline__ float over_parts(const shape &s, float x)
{
    for (int far = s.parts / 2; far > 0; far /= 2)
        x += __shfl_xor_sync(~0u, x, far);
    return x;
}

/* ---- weights ---- */

/* What a tile's row i is, at depth k: of forward, 8 columns of W_write and the same of
 * W_h; of backward, 16 columns of one of them, transposed. */
template <typename T>
struct stacked {
    const T *write, *h;
    int D, column;
    __device__ T operator()(int i, int k) const
    {
        const int j = column + i % 8;
        return j < D && k < D ? (i < 8 ? write : h)[(int64_t)j * D + k] : T{};
    }
};

template <typename T>
struct transposed {
    const T *W;
    int D, column;
    __device__ T operator()(int i, int k) const
    {
        const int j = column + i;
        return j < D && k < D ? W[(int64_t)k * D + j] : T{};
    }
};

static __device__ __forceinline__ unsigned pair_of(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return (unsigned)__bfloat16_as_ushort(y) << 16 | __bfloat16_as_ushort(x);
}

template <typename SOURCE>
static __device__ uint4 tile_of(const SOURCE &w, int k, __nv_bfloat16)
{
    const int lane = threadIdx.x % 32, i = lane / 4, at = k + lane % 4 * 2;
    uint4 x;
    x.x = pair_of(w(i, at), w(i, at + 1));
    x.y = pair_of(w(i + 8, at), w(i + 8, at + 1));
    x.z = pair_of(w(i, at + 8), w(i, at + 9));
    x.w = pair_of(w(i + 8, at + 8), w(i + 8, at + 9));
    return x;
}

template <typename SOURCE>
static __device__ uint4 tile_of(const SOURCE &w, int k, float)
{
    const int lane = threadIdx.x % 32, i = lane % TILE, at = k + lane / TILE * 4;
    uint4 x;
    x.x = __float_as_uint(w(i, at));
    x.y = __float_as_uint(w(i, at + 1));
    x.z = __float_as_uint(w(i, at + 2));
    x.w = __float_as_uint(w(i, at + 3));
    return x;
}

/* A warp's tiles, into registers and then into shared memory.  source(set, row of tiles)
 * gives what a row of tiles is made of. */
template <typename T, typename WALK, typename SOURCES>
static __device__ void fetch_weights(const shape &s, const seat &here, const SOURCES &source,
                                     uint4 held[WALK::HELD])
{
    uint4 *more = here.at<uint4>(s.weights) + threadIdx.x;
    const auto fetch = [&](int i) -> uint4 {
        const int set = i / s.each, unit = i % s.each;
        const int tiles = here.tiles + unit % s.pair, tile = here.from + unit / s.pair;
        if (set >= WALK::SETS || tiles >= 2 / WALK::SETS * s.own / TILE || tile >= s.deep)
            return {};
        return tile_of(source(set, tiles), tile * depth_of<T>::DEPTH, T{});
    };

    UNROLL(64)
    for (int i = 0; i < WALK::HELD; i++)
        held[i] = fetch(i);
    for (int i = WALK::HELD; i < WALK::SETS * s.each; i++)
        more[(i - WALK::HELD) * s.threads] = fetch(i);
}

/* ---- a vector that all blocks of the cluster have ---- */

/* Column j of the block's own, of sequence r. */
static __device__ __forceinline__ void put(const shape &s, const seat &here, int vector, int j,
                                           int r, float x, __nv_bfloat16)
{
    const int column = here.rank * s.own + j, k = column % 16;
    const int lane = r % 4 * 4 + k % 8 / 2;
    __nv_bfloat16 *to = here.at<__nv_bfloat16>(vector) +
                        ((((column / 16 * s.quads + r / 4) * 32 + lane) * 2 + k / 8) * 2 + k % 2);
    const __nv_bfloat16 high = __float2bfloat16(x);
    to[0] = high;
    to[16 * 4] = __float2bfloat16(x - __bfloat162float(high)); /* 16 lanes further */
}

static __device__ __forceinline__ void put(const shape &s, const seat &here, int vector, int j,
                                           int r, float x, float)
{
    const int column = here.rank * s.own + j;
    here.at<float>(vector)[(column / 4 * s.rows + r) * 4 + column % 4] = x;
}

/* Bytes of a block's own columns. */
template <typename T>
static __device__ __forceinline__ int own_bytes(const shape &s)
{
    return s.own * (sizeof(T) == 2 ? 16 * s.quads : s.rows * 4);
}

/* Where a product's vector is. */
static __device__ __forceinline__ int vector_of(const shape &s, int set)
{
    return s.vector + set * s.room;
}

/* `bytes` at `from` of the block's shared memory to the place `to` of so many blocks', from
 * the next of the cluster on to itself. */
static __device__ __forceinline__ void spread(const shape &s, const seat &here, uint64_t *inbox,
                                              int from, int to, int bytes, int blocks)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int k = warp; k < blocks; k += s.threads / 32)
        for (int e = lane; e < bytes / 16; e += 32)
            post(here.at<uint4>(to) + e, inbox, (here.rank + 1 + k) & (s.cluster - 1),
                 here.at<uint4>(from)[e]);
}

/* ---- products ---- */

/* The parts of a product: of each warp and row of tiles of it, for each sequence, 2 x 16
 * numbers, whose sums are the 16 rows'. */
template <typename T>
static __device__ __forceinline__ int part_rows(const shape &s)
{
    return sizeof(T) == 2 ? 4 * s.quads : s.rows;
}

/* A warp's product: PAIR rows of tiles, all sequences. */
template <int PAIR, int QUADS>
struct product_bf16 {
    float sum[CHAINS][QUADS][4]; /* PAIR rows of tiles take turns with the chains */

    __device__ __forceinline__ void begin()
    {
        UNROLL(CHAINS)
        for (int a = 0; a < CHAINS; a++)
            UNROLL(QUADS)
        for (int q = 0; q < QUADS; q++)
            UNROLL(4)
        for (int e = 0; e < 4; e++)
            sum[a][q][e] = 0;
    }
    /* TOGETHER tiles from `tile` on, of which w is one's own part. */
    __device__ __forceinline__ void add(const shape &, const unsigned char *vector, int tile,
                                        const uint4 *w)
    {
        const uint2 *at = (const uint2 *)vector + tile * QUADS * 32 + threadIdx.x % 32;
        uint2 x[TOGETHER / PAIR][QUADS];
        UNROLL(TOGETHER)
        for (int k = 0; k < TOGETHER / PAIR; k++)
            UNROLL(QUADS)
        for (int q = 0; q < QUADS; q++)
            x[k][q] = at[(k * QUADS + q) * 32];
        UNROLL(TOGETHER)
        for (int k = 0; k < TOGETHER; k++) {
            const unsigned a[4] = {w[k].x, w[k].y, w[k].z, w[k].w};
            UNROLL(QUADS)
            for (int q = 0; q < QUADS; q++) {
                const unsigned b[2] = {x[k / PAIR][q].x, x[k / PAIR][q].y};
                mma_bf16(sum[k % CHAINS][q], a, b);
            }
        }
    }
    __device__ __forceinline__ void end(const shape &, float *part)
    {
        const int lane = threadIdx.x % 32, i = lane / 4, n = lane % 4 * 2;
        UNROLL(PAIR)
        for (int p = 0; p < PAIR; p++)
            UNROLL(QUADS)
        for (int q = 0; q < QUADS; q++)
            UNROLL(4)
        for (int e = 0; e < 4; e++) {
            const int column = n + e % 2, r = q * 4 + column % 4;
            float all = sum[p][q][e];
            UNROLL(CHAINS)
            for (int k = p + PAIR; k < CHAINS; k += PAIR)
                all += sum[k][q][e];
            part[(p * 4 * QUADS + r) * 32 + column / 4 * TILE + i + e / 2 * 8] = all;
        }
    }
};

template <int PAIR, int ROWS>
struct product_f32 {
    float sum[PAIR][ROWS];

    __device__ __forceinline__ void begin()
    {
        UNROLL(PAIR)
        for (int p = 0; p < PAIR; p++)
            UNROLL(ROWS)
        for (int r = 0; r < ROWS; r++)
            sum[p][r] = 0;
    }
    __device__ __forceinline__ void add(const shape &s, const unsigned char *vector, int tile,
                                        const uint4 *w)
    {
        const float4 *x = (const float4 *)vector + (tile * 2 + threadIdx.x % 32 / TILE) * s.rows;
        UNROLL(TOGETHER)
        for (int k = 0; k < TOGETHER; k += PAIR)
            UNROLL(ROWS)
        for (int r = 0; r < ROWS; r++) {
            const float4 y = x[2 * k / PAIR * s.rows + min(r, s.rows - 1)];
            UNROLL(PAIR)
            for (int p = 0; p < PAIR; p++) {
                float all = sum[p][r];
                all = fmaf(__uint_as_float(w[k + p].x), y.x, all);
                all = fmaf(__uint_as_float(w[k + p].y), y.y, all);
                all = fmaf(__uint_as_float(w[k + p].z), y.z, all);
                sum[p][r] = fmaf(__uint_as_float(w[k + p].w), y.w, all);
            }
        }
    }
    __device__ __forceinline__ void end(const shape &s, float *part)
    {
        UNROLL(PAIR)
        for (int p = 0; p < PAIR; p++)
            UNROLL(ROWS)
        for (int r = 0; r < ROWS; r++)
            if (r < s.rows)
                part[(p * s.rows + r) * 32 + threadIdx.x % 32] = sum[p][r];
    }
};

/* Product `set` of a step: the warp's tiles times its vector; the parts are for total().
 * (Tiles beyond the last are zero.) */
template <typename T, typename PRODUCT, int HELD>
static __device__ __forceinline__ void multiply_by(const shape &s, const seat &here,
                                                   const uint4 (&held)[HELD], int set)
{
    const int begin = set * s.each, deep = TOGETHER / s.pair;
    const unsigned char *vector = here.memory + vector_of(s, set);
    const uint4 *more = here.at<uint4>(s.weights) + threadIdx.x;
    int tile = here.from;
    PRODUCT product;

    product.begin();
    UNROLL(64)
    for (int i = 0; i < HELD; i += TOGETHER)
        if (i >= begin && i < begin + s.each) {
            product.add(s, vector, tile, held + i);
            tile += deep;
        }
    for (int i = max(begin, HELD); i < begin + s.each; i += TOGETHER, tile += deep) {
        uint4 w[TOGETHER];
        UNROLL(TOGETHER)
        for (int k = 0; k < TOGETHER; k++)
            w[k] = more[(i + k - HELD) * s.threads];
        product.add(s, vector, tile, w);
    }
    product.end(s, here.at<float>(s.partial) + threadIdx.x / 32 * s.pair * part_rows<T>(s) * 32);
}

template <int HELD>
static __device__ __forceinline__ void multiply(const shape &s, const seat &here,
                                                const uint4 (&held)[HELD], int set, __nv_bfloat16)
{
    if (s.pair == 1 && s.quads == 1)
        multiply_by<__nv_bfloat16, product_bf16<1, 1>>(s, here, held, set);
    else if (s.pair == 1)
        multiply_by<__nv_bfloat16, product_bf16<1, 2>>(s, here, held, set);
    else if (s.quads == 1)
        multiply_by<__nv_bfloat16, product_bf16<2, 1>>(s, here, held, set);
    else
        multiply_by<__nv_bfloat16, product_bf16<2, 2>>(s, here, held, set);
}

template <int HELD>
static __device__ __forceinline__ void multiply(const shape &s, const seat &here,
                                                const uint4 (&held)[HELD], int set, float)
{
    if (s.pair == 1)
        multiply_by<float, product_f32<1, ROWS_MOST>>(s, here, held, set);
    else if (s.rows <= 4)
        multiply_by<float, product_f32<2, 4>>(s, here, held, set);
    else
        multiply_by<float, product_f32<2, ROWS_MOST>>(s, here, held, set);
}

/* Row i of a row of tiles, for sequence r: all its warps' parts, in their order. */
template <typename T>
static __device__ __forceinline__ float total(const shape &s, const seat &here, int tiles, int i,
                                              int r)
{
    const int apart = part_rows<T>(s) * 32, second = s.pair > 1 ? tiles & 1 : 0;
    const int warp = (s.pair > 1 ? tiles >> 1 : tiles) * s.split;
    const float *x = here.at<float>(s.partial) + (warp * s.pair + second) * apart + r * 32 + i;
    float sum = 0;

    UNROLL(2)
    for (int k = 0; k < s.split; k++)
        sum += x[k * s.pair * apart] + x[k * s.pair * apart + TILE];
    return sum;
}

/* ---- sums over columns ---- */

/* A number of each of four slots. */
struct four {
    float x[FOUR];
};

static __device__ __forceinline__ four four_at(const float *at)
{
    const float4 x = *(const float4 *)at;
    return {{x.x, x.y, x.z, x.w}};
}

static __device__ __forceinline__ void put_four(float *at, const four &f)
{
    *(float4 *)at = make_float4(f.x[0], f.x[1], f.x[2], f.x[3]);
}

/* Four slots of a sequence, whose sums over columns `lanes` threads share. */
struct slots {
    int r, n, lane;
    bool live;
};

template <int SLOTS>
static __device__ __forceinline__ slots slots_at(const shape &s, int base)
{
    enum { FOURS = SLOTS / FOUR };
    const int item = base + (int)threadIdx.x / s.lanes, live = item < FOURS * s.rows;
    return {live ? item / FOURS : 0, item % FOURS * FOUR, (int)threadIdx.x & (s.lanes - 1),
            live != 0};
}

static __device__ __forceinline__ void over_lanes(const shape &s, four *f)
{
    for (int far = s.lanes / 2; far > 0; far /= 2)
        UNROLL(FOUR)
    for (int k = 0; k < FOUR; k++)
        f->x[k] += __shfl_xor_sync(~0u, f->x[k], far);
}

/* <slot n of the tape, x> over the block's own columns, for every slot of every sequence,
 * to [rows][SLOTS]. */
template <int SLOTS>
static __device__ __forceinline__ void dots(const shape &s, const float *tape, const float *x,
                                            float *to)
{
    enum { APART = tape_of<SLOTS>::APART };

    for (int base = 0; base < SLOTS / FOUR * s.rows; base += s.threads / s.lanes) {
        const slots of = slots_at<SLOTS>(s, base);
        const float *M = tape + (of.r * s.own + of.lane) * APART + of.n;
        const float *with = x + of.r * s.own + of.lane;
        four sum = {};
        UNROLL(4)
        for (int j = of.lane; j < s.own; j += s.lanes) {
            const four m = four_at(M);
            const float y = *with;
            UNROLL(FOUR)
            for (int k = 0; k < FOUR; k++)
                sum.x[k] = fmaf(m.x[k], y, sum.x[k]);
            M += s.lanes * APART;
            with += s.lanes;
        }
        over_lanes(s, &sum);
        if (of.live && of.lane == 0)
            put_four(to + of.r * SLOTS + of.n, sum);
    }
}

/* A warp has attention to pay to one sequence: each lane four slots, `group` lanes all of
 * them; as many groups as there are share the blocks whose numbers are to be summed. */
template <int SLOTS>
struct attentive {
    enum { GROUP = SLOTS / FOUR, GROUPS = 32 / GROUP };

    static __device__ __forceinline__ four over_blocks(const shape &s, const float *share,
                                                       int apart)
    {
        const int lane = threadIdx.x % 32;
        four sum = {};
        for (int block = lane / GROUP; block < s.cluster; block += GROUPS) {
            const four f = four_at(share + block * apart + lane % GROUP * FOUR);
            UNROLL(FOUR)
            for (int k = 0; k < FOUR; k++)
                sum.x[k] += f.x[k];
        }
        UNROLL(5)
        for (int far = 16; far >= GROUP; far /= 2)
            UNROLL(FOUR)
        for (int k = 0; k < FOUR; k++)
            sum.x[k] += __shfl_xor_sync(~0u, sum.x[k], far);
        return sum;
    }
};

/* ---- launches ---- */

/* What the device in use has, asked once. */
static const cudaDeviceProp &device_in_use(void)
{
    static cudaDeviceProp p;
    int number = 0;
    if (!p.multiProcessorCount && cudaGetDevice(&number) == cudaSuccess)
        cudaGetDeviceProperties(&p, number);
    return p;
}

static int slots_of(const recurrence &r)
{
    return r.N <= 8 ? 8 : r.N <= 16 ? 16 : r.N <= 32 ? 32 : MAX_SLOTS;
}

typedef void clusters_kernel(recurrence, shape);

/* Blocks of a launch, and how they go together. */
static void arrange(const shape &s, int64_t clusters, cudaLaunchAttribute *size,
                    cudaLaunchConfig_t *config)
{
    *size = {};
    *config = {};
    size->id = cudaLaunchAttributeClusterDimension;
    size->val.clusterDim.x = s.cluster;
    size->val.clusterDim.y = size->val.clusterDim.z = 1;
    config->gridDim = dim3((unsigned)(clusters * s.cluster));
    config->blockDim = dim3(s.threads);
    config->dynamicSmemBytes = s.bytes;
    config->stream = gpu_stream();
    config->attrs = size;
    config->numAttrs = s.cluster > 1;
}

/* Have the kernel take so much shared memory and such clusters; how many can run at once. */
static cudaError_t prepare(clusters_kernel *kernel, const shape &s, int *clusters)
{
    cudaLaunchAttribute size;
    cudaLaunchConfig_t config;

    *clusters = 0;
    arrange(s, 1, &size, &config);
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, s.bytes));
    if (s.cluster > 8)
        CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    if (s.cluster > 1)
        return cudaOccupancyMaxActiveClusters(clusters, kernel, &config);
    *clusters = device_in_use().multiProcessorCount;
    return cudaSuccess;
}

/* Do the threads have the warps for it, and a block the memory? */
static bool fits(const shape &s)
{
    return s.split > 0 && s.split * s.each >= s.deep * s.pair && s.passes <= PASSES_MOST &&
           s.bytes <= (int)device_in_use().sharedMemPerBlockOptin;
}

/* The smallest cluster whose registers hold the weights, else the smallest that holds them
 * at all; for one sequence.  (Two blocks at least: one alone cannot post, where there are
 * clusters.)  No blocks: there is none. */
template <typename T, typename WALK>
static shape smallest_shape(const recurrence &r)
{
    const int most = device_in_use().clusterLaunch ? CLUSTER_MOST : 1;
    shape found = {};

    for (int cluster = most > 1 ? 2 : 1; cluster <= most; cluster *= 2) {
        const shape s = shape_of<T, WALK>(r.D, slots_of(r), 1, cluster);
        if (!fits(s))
            continue;
        if (WALK::SETS * s.each <= WALK::HELD)
            return s;
        if (!found.cluster)
            found = s;
    }
    return found;
}

template <typename T, typename WALK>
static const char *clusters_decline(const recurrence &r)
{
    static char why[160];
    if (r.D <= 4096 && smallest_shape<T, WALK>(r).cluster)
        return NULL;
    snprintf(why, sizeof why,
             "dim %d with %d slots: weights and tape are more than a cluster of %d blocks can hold",
             r.D, r.N, device_in_use().clusterLaunch ? CLUSTER_MOST : 1);
    return why;
}

/* As many sequences to a cluster as there must be for all to run at the same time, so far
 * as they fit. */
template <typename T, typename WALK>
static int launch_clusters(clusters_kernel *kernel, const recurrence &r)
{
    const shape least = smallest_shape<T, WALK>(r);
    cudaLaunchAttribute size;
    cudaLaunchConfig_t config;
    shape s = least;
    int at_once;

    CUDA(prepare(kernel, least, &at_once));
    for (int rows = (int)min((int64_t)ROWS_MOST, ceil_div(r.batch, max(at_once, 1))); rows > 1;
         rows--) {
        s = shape_of<T, WALK>(r.D, slots_of(r), rows, least.cluster);
        if (fits(s))
            break;
        s = least;
    }
    CUDA(prepare(kernel, s, &at_once));
    arrange(s, ceil_div(r.batch, s.rows), &size, &config);
    return cudaLaunchKernelEx(&config, kernel, r, s);
}

/* The backward pass (dual_memory_persistent_back.cu); and with sizes known beforehand. */
template <typename T>
int launch_backward(const recurrence &r);
int launch_backward_fixed(const recurrence &r);
template <typename T>
const char *backward_declines(const recurrence &r);

#endif
