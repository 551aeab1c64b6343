/* gemm, wgmma: Hopper's way, where nobody waits for what another can do meanwhile.  One thread
 * asks the copy engine for boxes of both factors, stage after stage of a ring in shared memory;
 * two warpgroups multiply from there, each 64 rows of a tile, with both factors read by the tensor
 * cores themselves as they lie, transposed or not; and of a tile that is done the copy engine puts
 * the result into memory while the next is begun.  Blocks stay, and walk from tile to tile.
 *
 * With large tiles the blocks are in pairs, one tile below the other: of the columns of b that
 * both want each fetches half for both. */
#include "gpu/gemm.cuh"
#include "gpu/gemm_pairs.cuh"
#include "gpu/tensors.cuh"

enum {
    BM = 128,     /* rows of a tile */
    BK = 64,      /* k of a stage: 128 bytes */
    GROUP = 128,  /* threads of a warpgroup */
    WORKERS = 2,  /* warpgroups that multiply; one more fetches */
    PIECE = 8192, /* bytes of a box: 64 rows of 128 */
    EIGHT = 1024, /* from eight rows of a box to the next eight */
    BAND = 8,     /* rows of tiles that are walked together, column by column */
    LEAST = 8     /* stages of a slice, at least */
};

/* Shared memory, for tiles of BN columns: the ring's stages, of each two pieces of a and the rest
 * of b; two pieces for each warpgroup's results; a stage's inboxes, of what has come and of who has
 * done with it. */
template <int BN>
struct room {
    enum {
        STAGES = BN == 256 ? 4 : 6,
        PIECES = BN / 64,
        STAGE = (2 + PIECES) * PIECE,
        RESULTS = STAGES * STAGE,
        INBOXES = RESULTS + 2 * WORKERS * PIECE,
        BYTES = INBOXES + 2 * STAGES * sizeof(uint64_t)
    };
};

/* All there is to do: tiles of all products, each in slices of so many stages. */
struct walk {
    int rows, columns;    /* tiles, a pair being one row */
    int tiles;            /* of all layers: slices of products, slice after slice */
    int batch, slices;    /* products, and into how many each is cut */
    int steps, all_steps; /* stages of a slice, but for the last; of a product */
    int64_t M, N;
};

/* Where a tile begins, in which product, which stages of k it is of, and where its result goes. */
struct tile {
    int m, n, product, begin, end, layer;
};

/* Band after band, so that the blocks at work share rows of a and columns of b in the cache. */
template <int BN, int PAIR>
static __device__ __forceinline__ tile find_tile(const walk &w, int number, int rank)
{
    tile t;
    const int in = number % (w.rows * w.columns), band = in / (BAND * w.columns) * BAND;
    const int high = min((int)BAND, w.rows - band), place = in - band * w.columns;
    t.layer = number / (w.rows * w.columns);
    t.m = ((band + place % high) * PAIR + rank) * BM;
    t.n = place / high * BN;
    t.product = t.layer % w.batch;
    t.begin = t.layer / w.batch * w.steps;
    t.end = min(t.begin + w.steps, w.all_steps);
    return t;
}

/* A stage of a ring, and how often it has been used before. */
template <int STAGES>
struct turn {
    int stage, round;
    __device__ __forceinline__ void next(void)
    {
        stage = stage + 1 < STAGES ? stage + 1 : 0;
        round += stage == 0;
    }
};

/* The fetching thread. */
template <int BN, int PAIR, bool FLIP_A, bool FLIP_B>
static __device__ __forceinline__ void fetch(unsigned char *shared, const tensor_map *a,
                                             const tensor_map *b, const walk &w, int rank)
{
    typedef room<BN> R;
    uint64_t *full = (uint64_t *)(shared + R::INBOXES), *empty = full + R::STAGES;
    turn<R::STAGES> at = {0, 0};

    tensor_soon(a);
    tensor_soon(b);
    for (int number = blockIdx.x / PAIR; number < w.tiles; number += gridDim.x / PAIR) {
        const tile t = find_tile<BN, PAIR>(w, number, rank);
        for (int step = t.begin; step < t.end; step++, at.next()) {
            unsigned char *stage = shared + at.stage * R::STAGE;
            uint64_t *inbox = full + at.stage;
            const int k = step * BK;
            inbox_wait(empty + at.stage, at.round - 1);
            inbox_expect(inbox, R::STAGE);
            UNROLL(2)
            for (int i = 0; i < 2; i++) {
                const int m = t.m + 64 * i;
                tensor_fetch(stage + i * PIECE, inbox, a, FLIP_A ? m : k, FLIP_A ? k : m,
                             t.product);
            }
            UNROLL(4)
            for (int i = 0; i < R::PIECES / PAIR; i++) {
                const int piece = rank * (R::PIECES / PAIR) + i, n = t.n + 64 * piece;
                unsigned char *to = stage + (2 + piece) * PIECE;
                if (PAIR == 1)
                    tensor_fetch(to, inbox, b, FLIP_B ? k : n, FLIP_B ? n : k, t.product);
                else
                    tensor_fetch_for(PAIR, to, inbox, b, FLIP_B ? k : n, FLIP_B ? n : k, t.product);
            }
        }
    }
}

/* A warpgroup's 64 rows of a tile, from (m, n) on, to memory, box by box: through two pieces of
 * shared memory by turns, of which the copy engine reads one while the other is written. */
template <int BN, typename C>
static __device__ __forceinline__ void put_result(const float *d, unsigned char *pieces,
                                                  const tensor_map *c, const C *c0, float alpha,
                                                  float beta, const walk &w, const tile &t, int m)
{
    constexpr int COLUMNS = box_columns<C>(), TILES = COLUMNS / 8;
    const int row = threadIdx.x / 32 % 4 * 16 + line(), group = threadIdx.x / GROUP;
    const bool leads = threadIdx.x % GROUP == 0;

    UNROLL(4)
    for (int box = 0; box < BN / COLUMNS; box++) {
        unsigned char *piece = pieces + box % 2 * PIECE;
        const int n = t.n + box * COLUMNS;
        UNROLL(8)
        for (int tile = 0; tile < TILES; tile++)
            UNROLL(2)
        for (int half = 0; half < 2; half++) {
            const float *sum = d + (box * TILES + tile) * 4 + 2 * half;
            const int r = row + 8 * half, column = 8 * tile + pair();
            float2 x = make_float2(alpha * sum[0], alpha * sum[1]);
            if (c0 && m + r < w.M && n + column < w.N) {
                const float2 y = get_pair(c0 + ((int64_t)t.layer * w.M + m + r) * w.N + n + column);
                x = make_float2(fmaf(beta, y.x, x.x), fmaf(beta, y.y, x.y));
            }
            put_pair((C *)(piece + 128 * r + (column * (int)sizeof(C) ^ line() * 16)), x.x, x.y);
        }
        before_post_many();
        if (leads)
            tensor_put_wait(); /* the box before: its piece is the next to be written */
        barrier_sync(group, GROUP);
        if (leads)
            tensor_put(c, n, m, t.layer, piece);
    }
}

/* Sum up a stage: of the warpgroup's 64 rows of a, all of b. */
template <int BN, bool FLIP_A, bool FLIP_B>
static __device__ __forceinline__ void
multiply_stage(float (&d)[BN / 2], const unsigned char *stage, int worker, bool first)
{
    const int NEXT_A = FLIP_A ? 2 * EIGHT : 32, NEXT_B = FLIP_B ? 32 : 2 * EIGHT;
    const operand a = operand_at(stage + worker * PIECE, PIECE, EIGHT);
    const operand b = operand_at(stage + 2 * PIECE, PIECE, EIGHT);

    wgmma_begin();
    UNROLL(4)
    for (int i = 0; i < BK / 16; i++)
        wgmma<FLIP_A, !FLIP_B>(d, operand_further(a, i * NEXT_A), operand_further(b, i * NEXT_B),
                               i > 0 || !first);
    wgmma_commit();
}

/* A warpgroup that multiplies.  The products of a stage go on while those of the next are begun;
 * then all fetching threads that fill the stage are told that it is free. */
template <int BN, int PAIR, bool FLIP_A, bool FLIP_B, typename C>
static __device__ __forceinline__ void work(unsigned char *shared, const tensor_map *c, const C *c0,
                                            float alpha, float beta, const walk &w, int rank,
                                            int worker)
{
    typedef room<BN> R;
    uint64_t *full = (uint64_t *)(shared + R::INBOXES), *empty = full + R::STAGES;
    turn<R::STAGES> at = {0, 0};
    float d[BN / 2];

    for (int number = blockIdx.x / PAIR; number < w.tiles; number += gridDim.x / PAIR) {
        const tile t = find_tile<BN, PAIR>(w, number, rank);
        int before = 0;
        for (int step = t.begin; step < t.end; step++) {
            inbox_wait(full + at.stage, at.round);
            multiply_stage<BN, FLIP_A, FLIP_B>(d, shared + at.stage * R::STAGE, worker,
                                               step == t.begin);
            wgmma_wait<1>();
            if (step > t.begin && threadIdx.x % 32 < PAIR)
                inbox_arrive(empty + before, threadIdx.x % 32);
            before = at.stage;
            at.next();
        }
        wgmma_wait<0>();
        wgmma_settle(d);
        if (threadIdx.x % 32 < PAIR)
            inbox_arrive(empty + before, threadIdx.x % 32);
        if (t.m + 64 * worker < w.M)
            put_result<BN>(d, shared + R::RESULTS + 2 * worker * PIECE, c, c0, alpha, beta, w, t,
                           t.m + 64 * worker);
    }
    if (threadIdx.x % GROUP == 0)
        tensor_put_wait();
}

template <int BN, int PAIR, bool FLIP_A, bool FLIP_B, typename C>
__global__ void __launch_bounds__((WORKERS + 1) * GROUP, 1)
    multiply_wgmma(const __grid_constant__ tensor_map a, const __grid_constant__ tensor_map b,
                   const __grid_constant__ tensor_map c, const C *c0, float alpha, float beta,
                   const walk w)
{
#if defined __CUDA_ARCH_FEAT_SM90_ALL || defined CUDA_EMULATE
    extern __shared__ __align__(1024) unsigned char shared[];
    typedef room<BN> R;
    uint64_t *full = (uint64_t *)(shared + R::INBOXES), *empty = full + R::STAGES;
    const int group = __shfl_sync(~0u, threadIdx.x / GROUP, 0), rank = blockIdx.x % PAIR;

    if (threadIdx.x < R::STAGES) {
        inbox_open(full + threadIdx.x);
        inbox_open(empty + threadIdx.x, PAIR * WORKERS * GROUP / 32);
    }
    __syncthreads();
    if (PAIR > 1) {
        cluster_arrive();
        cluster_wait();
    }
    if (group == 0) {
        give_registers<40>();
        if (threadIdx.x == 0)
            fetch<BN, PAIR, FLIP_A, FLIP_B>(shared, &a, &b, w, rank);
        __syncwarp();
    } else {
        take_registers<232>();
        work<BN, PAIR, FLIP_A, FLIP_B>(shared, &c, c0, alpha, beta, w, rank, group - 1);
    }
    if (PAIR > 1) { /* the other one still tells this one's inboxes that stages are free */
        cluster_arrive();
        cluster_wait();
    }
#endif
}

/* ---- which tiles, and how many slices ---- */

/* Large tiles in pairs of blocks, or small ones. */
template <int BN>
struct shape {
    enum { PAIR = BN == 256 ? 2 : 1 };
};

template <int BN, typename C>
static auto kernel_of(bool flip_a, bool flip_b)
{
    enum { PAIR = shape<BN>::PAIR };
    return flip_a   ? flip_b ? multiply_wgmma<BN, PAIR, true, true, C>
                             : multiply_wgmma<BN, PAIR, true, false, C>
             : flip_b ? multiply_wgmma<BN, PAIR, false, true, C>
                    : multiply_wgmma<BN, PAIR, false, false, C>;
}

struct launch {
    cudaLaunchConfig_t config;
    cudaLaunchAttribute pair;
};

template <int BN, typename K>
static cudaError_t prepare(launch *l, K kernel, int blocks)
{
    *l = {};
    l->pair.id = cudaLaunchAttributeClusterDimension;
    l->pair.val.clusterDim.x = shape<BN>::PAIR;
    l->pair.val.clusterDim.y = l->pair.val.clusterDim.z = 1;
    l->config.gridDim = dim3(blocks);
    l->config.blockDim = dim3((WORKERS + 1) * GROUP);
    l->config.dynamicSmemBytes = room<BN>::BYTES;
    l->config.stream = gpu_stream();
    l->config.attrs = &l->pair;
    l->config.numAttrs = 1;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                room<BN>::BYTES);
}

/* Compiled for 9.0 rather than 9.0a, the kernel is empty and needs hardly a register. */
template <typename K>
static bool is_there(K kernel)
{
#ifndef CUDA_EMULATE
    cudaFuncAttributes of;
    return cudaFuncGetAttributes(&of, kernel) == cudaSuccess && of.numRegs > 64;
#else
    return kernel;
#endif
}

/* How many tiles, or pairs of them, are worked on at the same time; 0 if it cannot be. */
template <int BN>
static int at_once(void)
{
    static int n;
    const auto kernel = kernel_of<BN, bf16>(false, false);
    launch l;
    if (!n && (!is_there(kernel) || prepare<BN>(&l, kernel, shape<BN>::PAIR) != cudaSuccess ||
               cudaOccupancyMaxActiveClusters(&n, kernel, &l.config) != cudaSuccess)) {
        cudaGetLastError();
        n = 0;
    }
    return n;
}

template <int BN, typename C>
static walk walk_of(const gemm_problem<bf16, C> &p)
{
    walk w = {};
    w.M = p.M;
    w.N = p.N;
    w.rows = (int)ceil_div(p.M, BM * shape<BN>::PAIR);
    w.columns = (int)ceil_div(p.N, BN);
    w.batch = (int)p.batch;
    w.all_steps = w.steps = (int)ceil_div(p.K, BK);
    w.slices = 1;
    return w;
}

template <int BN, typename C>
static double tiles_of(const gemm_problem<bf16, C> &p)
{
    const walk w = walk_of<BN>(p);
    return (double)w.rows * w.columns * p.batch;
}

/* Do small tiles leave fewer blocks idle?  They take some tenth longer for the same. */
template <typename C>
static bool prefers_small(const gemm_problem<bf16, C> &p)
{
    const double large = ceil(tiles_of<256>(p) / max(at_once<256>(), 1)) * 256;
    const double small = ceil(tiles_of<128>(p) / max(at_once<128>(), 1)) * 128;
    return 1.1 * small < large;
}

/* Slices of k, where there are not tiles for all blocks and k is long. */
template <typename C>
static walk small_walk(const gemm_problem<bf16, C> &p)
{
    walk w = walk_of<128>(p);
    const int64_t wanted = at_once<128>() / (int64_t)tiles_of<128>(p);
    const int64_t slices = min(wanted, (int64_t)w.all_steps / LEAST);
    if (slices > 1) {
        w.steps = (int)ceil_div(w.all_steps, slices);
        w.slices = (int)ceil_div(w.all_steps, w.steps);
    }
    return w;
}

/* All of the walk, into c, or slice after slice into `parts`. */
template <int BN, typename C, typename P>
static int start(const gemm_problem<bf16, C> &p, walk w, P *c, const P *c0, float alpha, float beta)
{
    tensor_map a_map, b_map, c_map;
    const auto kernel = kernel_of<BN, P>(p.flip_a, p.flip_b);
    const int64_t layers = (int64_t)w.batch * w.slices, tiles = layers * w.rows * w.columns;
    const int PAIR = shape<BN>::PAIR, blocks = (int)min(tiles, (int64_t)at_once<BN>()) * PAIR;
    launch l;

    w.tiles = (int)tiles;
    CUDA(tensor_map_of(&a_map, p.a, p.flip_a ? p.M : p.K, p.flip_a ? p.K : p.M, p.batch, 64));
    CUDA(tensor_map_of(&b_map, p.b, p.flip_b ? p.K : p.N, p.flip_b ? p.N : p.K, p.batch, 64));
    CUDA(tensor_map_of(&c_map, c, p.N, p.M, layers, 64));
    CUDA(prepare<BN>(&l, kernel, blocks));
    return cudaLaunchKernelEx(&l.config, kernel, a_map, b_map, c_map, c0, alpha, beta, w);
}

struct gemm_wgmma : gemm_thin_engine<gemm_wgmma> {
    template <typename T, typename C>
    static size_t room(const gemm_problem<T, C> &p)
    {
        const int slices = prefers_small(p) ? small_walk(p).slices : 1;
        return slices > 1 ? (size_t)(slices * p.batch * p.M * p.N) * sizeof(float) : 0;
    }

    template <typename T, typename C>
    static const char *declines(const gemm_problem<T, C> &p)
    {
        const int64_t a = p.flip_a ? p.M : p.K, b = p.flip_b ? p.K : p.N;
        if (gpu_properties().major != 9 || gpu_properties().minor != 0)
            return "needs a GPU of compute capability 9.0";
        if (!tensor_fits<T>(a, p.M, p.K) || !tensor_fits<T>(b, p.N, p.batch) ||
            !tensor_fits<C>(p.N, p.M, p.K))
            return "a row of some matrix is not a multiple of 16 bytes, or 2^31 of something";
        if (tiles_of<128>(p) > 0x3fffffff)
            return "more than 2^30 tiles";
        return at_once<256>() && at_once<128>()
                   ? NULL
                   : "not compiled for 9.0a, or its blocks do not fit on the multiprocessors";
    }

    template <typename T, typename C>
    static int multiply(const gemm_problem<T, C> &p)
    {
        if (!prefers_small(p))
            return start<256>(p, walk_of<256>(p), p.c, p.c0, p.alpha, p.beta);
        const walk w = small_walk(p);
        if (w.slices == 1)
            return start<128>(p, w, p.c, p.c0, p.alpha, p.beta);
        const float *none = NULL;
        CUDA((cudaError_t)start<128>(p, w, p.room, none, 1, 0));
        return gemm_add_parts(p.room, w.slices, p.batch * p.M * p.N, p.alpha, p.beta, p.c0, p.c);
    }
};

GEMM_IMPL(extern "C", 16, __nv_bfloat16, wgmma,
          "warpgroup products from swizzled boxes that the copy engine fetches");
