/* gemm, wgmma: Hopper's way, where nobody waits for what another can do meanwhile.  One thread
 * asks the copy engine for boxes of both factors, stage after stage of a ring in shared memory;
 * two warpgroups multiply from there, each 64 rows of a tile, with both factors read by the tensor
 * cores themselves as they lie, transposed or not; and of a tile that is done the copy engine puts
 * the result into memory while the next is begun.  Blocks stay, and walk from tile to tile.
 *
 * With large tiles the blocks are in pairs, one tile below the other: of the columns of b that
 * both want each fetches half for both.
 *
 * The two products of a backward pass are one walk, so that the tiles of the second fill the places
 * that the first leaves free at its end.  What a layer does to a product is done before it goes to
 * memory. */
#include "gpu/device/cluster.cuh"
#include "gpu/device/mbarrier.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/device/tma.cuh"
#include "gpu/device/wgmma.cuh"
#include "gpu/gemm/gemm_pairs.cuh"
#include "gpu/gemm/gemm_wgmma.cuh"
#include "gpu/gemm/linear.cuh"

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

/* How much longer small tiles take for the same. */
static const double SMALL = 1.1;

/* Shared memory, for tiles of BN columns: the ring's stages, of each two pieces of a and the rest
 * of b; two pieces for each warpgroup's results; a stage's mbars, of what has come and of who has
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

/* All there is to do of a kind: tiles of all products, each in slices of so many stages. */
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

/* ---- what is made of the sums ---- */

/* alpha times them, plus beta c0 if it ADDS that. */
template <typename C>
struct scaled {
    enum { OUTPUTS = 1 };
    typedef C type;
    const C *c0;
    float alpha, beta;

    __device__ __forceinline__ bool adds(void) const { return c0; }
    template <bool ADDS>
    __device__ __forceinline__ float2 pair_of(int, float2 sum, const walk &w, const tile &t, int m,
                                              int n) const
    {
        float2 x = make_float2(alpha * sum.x, alpha * sum.y);
        if (ADDS && m < w.M && n < w.N) {
            const float2 y = get_pair(c0 + ((int64_t)t.layer * w.M + m) * w.N + n);
            x = make_float2(fmaf(beta, y.x, x.x), fmaf(beta, y.y, x.y));
        }
        return x;
    }
};

/* A layer's: act(sum + bias), if there is one, and for silu, whose slope is found by them, the sums
 * themselves. */
template <int ACT>
struct layer_of {
    enum { OUTPUTS = ACT == ACT_SILU ? 2 : 1 };
    typedef bf16 type;
    const bf16 *bias;

    __device__ __forceinline__ bool adds(void) const { return bias; }
    template <bool ADDS>
    __device__ __forceinline__ float2 pair_of(int output, float2 sum, const walk &w, const tile &,
                                              int, int n) const
    {
        if (output)
            return sum;
        const int there = min(n, (int)w.N - 2); /* N is even */
        const float2 b = ADDS ? get_pair(bias + there) : make_float2(0, 0);
        return make_float2(activated<ACT>(sum.x + b.x), activated<ACT>(sum.y + b.y));
    }
};

/* A kind of product: which factors are flipped, and what is made of the sums. */
template <bool A, bool B, typename F>
struct kind {
    static const bool FLIP_A = A, FLIP_B = B;
    typedef F finish;
};
struct nothing {
};

/* And all of that kind. */
template <typename KIND>
struct job {
    typedef typename KIND::finish finish;
    tensor_map a, b, c[finish::OUTPUTS];
    finish made;
    walk w;
};
template <>
struct job<nothing> {
    walk w;
};

/* ---- the walk ---- */

/* The fetching thread, for a job: from tile `number` on.  Returns which tile would be its next of
 * another job behind this one. */
template <int BN, int PAIR, typename KIND>
static __device__ __forceinline__ int fetch(unsigned char *shared, turn<room<BN>::STAGES> &at,
                                            const job<KIND> &j, int number, int rank)
{
    typedef room<BN> R;
    const bool FLIP_A = KIND::FLIP_A, FLIP_B = KIND::FLIP_B;
    const tensor_map *const a = &j.a, *const b = &j.b;
    const walk &w = j.w;
    uint64_t *full = (uint64_t *)(shared + R::INBOXES), *empty = full + R::STAGES;

    tma_prefetch_map(a);
    tma_prefetch_map(b);
    for (; number < w.tiles; number += gridDim.x / PAIR) {
        const tile t = find_tile<BN, PAIR>(w, number, rank);
        for (int step = t.begin; step < t.end; step++, at.next()) {
            unsigned char *stage = shared + at.stage * R::STAGE;
            uint64_t *mbar = full + at.stage;
            const int k = step * BK;
            mbarrier_wait(empty + at.stage, at.round - 1);
            mbarrier_arrive_expect_tx(mbar, R::STAGE);
            #pragma unroll 2
            for (int i = 0; i < 2; i++) {
                const int m = t.m + 64 * i;
                tma_load(stage + i * PIECE, mbar, a, FLIP_A ? m : k, FLIP_A ? k : m, t.product);
            }
            #pragma unroll 4
            for (int i = 0; i < R::PIECES / PAIR; i++) {
                const int piece = rank * (R::PIECES / PAIR) + i, n = t.n + 64 * piece;
                unsigned char *to = stage + (2 + piece) * PIECE;
                if (PAIR == 1)
                    tma_load(to, mbar, b, FLIP_B ? k : n, FLIP_B ? n : k, t.product);
                else
                    tma_load_multicast(PAIR, to, mbar, b, FLIP_B ? k : n, FLIP_B ? n : k,
                                       t.product);
            }
        }
    }
    return number - w.tiles;
}

/* The pieces of shared memory through which a warpgroup's results go to memory, so far apart: two,
 * of which the copy engine reads one while the other is written; or, when nothing more is fetched,
 * four, those of a that have been the warpgroup's in the ring. */
struct outbox {
    unsigned char *pieces;
    int apart;
    bool four;
};

template <int BN>
static __device__ __forceinline__ outbox outbox_of(unsigned char *shared, int worker, bool last)
{
    typedef room<BN> R;
    static_assert(R::STAGES >= 4, "a piece in each");
    if (last)
        return {shared + worker * PIECE, R::STAGE, true};
    return {shared + R::RESULTS + 2 * worker * PIECE, PIECE, false};
}

/* A warpgroup's 64 rows of a tile, from m on, to memory, box by box. */
template <int BN, bool ADDS, typename KIND>
static __device__ __forceinline__ void put_result(const float *d, const outbox &by,
                                                  const job<KIND> &j, const tile &t, int m)
{
    typedef typename KIND::finish finish;
    typedef typename finish::type C;
    constexpr int COLUMNS = tma_box_columns<C>(), TILES = COLUMNS / 8, OUTPUTS = finish::OUTPUTS;
    const finish made = j.made;
    const walk w = j.w;
    const int row = threadIdx.x / 32 % 4 * 16 + fragment_row(), group = threadIdx.x / GROUP;
    const bool leads = threadIdx.x % GROUP == 0;

    if (by.four) /* until the group's other warps have multiplied by what is there */
        named_barrier_sync(group, GROUP);
    #pragma unroll 8
    for (int put = 0; put < BN / COLUMNS * OUTPUTS; put++) {
        unsigned char *piece = by.pieces + put % (by.four ? 4 : 2) * by.apart;
        const int box = put / OUTPUTS, output = put % OUTPUTS, n = t.n + box * COLUMNS;
        float2 x[TILES][2];
        #pragma unroll 8
        for (int tile = 0; tile < TILES; tile++)
            #pragma unroll 2
            for (int half = 0; half < 2; half++) {
                const float *sum = d + (box * TILES + tile) * 4 + 2 * half;
                x[tile][half] = made.template pair_of<ADDS>(output, make_float2(sum[0], sum[1]), w,
                                                            t, m + row + 8 * half,
                                                            n + 8 * tile + fragment_column());
            }
        #pragma unroll 8
        for (int tile = 0; tile < TILES; tile++)
            #pragma unroll 2
            for (int half = 0; half < 2; half++) {
                const int column = (8 * tile + fragment_column()) * (int)sizeof(C);
                put_pair((C *)(piece + 128 * (row + 8 * half) + (column ^ fragment_row() * 16)),
                         x[tile][half].x, x[tile][half].y);
            }
        fence_proxy_async();
        if (leads && by.four) /* until the piece that is the next to be written has been read */
            tma_store_wait_read<2>();
        else if (leads)
            tma_store_wait_read<0>();
        named_barrier_sync(group, GROUP);
        if (leads)
            tma_store(&j.c[output], n, m, t.layer, piece);
    }
}

/* Sum up a stage: of the warpgroup's 64 rows of a, all of b. */
template <int BN, bool FLIP_A, bool FLIP_B>
static __device__ __forceinline__ void
multiply_stage(float (&d)[BN / 2], const unsigned char *stage, int worker, bool first)
{
    const int NEXT_A = FLIP_A ? 2 * EIGHT : 32, NEXT_B = FLIP_B ? 32 : 2 * EIGHT;
    const wgmma_desc a = make_wgmma_desc(stage + worker * PIECE, PIECE, EIGHT);
    const wgmma_desc b = make_wgmma_desc(stage + 2 * PIECE, PIECE, EIGHT);

    wgmma_fence();
    #pragma unroll 4
    for (int i = 0; i < BK / 16; i++)
        wgmma<FLIP_A, !FLIP_B>(d, wgmma_desc_advance(a, i * NEXT_A),
                               wgmma_desc_advance(b, i * NEXT_B), i > 0 || !first);
    wgmma_commit();
}

/* A warpgroup that multiplies; `behind` tiles of another job follow this one's.  The products of a
 * stage go on while those of the next are begun; then all fetching threads that fill the stage are
 * told that it is free. */
template <int BN, int PAIR, typename KIND>
static __device__ __forceinline__ int work(unsigned char *shared, turn<room<BN>::STAGES> &at,
                                           const job<KIND> &j, int behind, int number, int rank,
                                           int worker)
{
    typedef room<BN> R;
    const walk &w = j.w;
    uint64_t *full = (uint64_t *)(shared + R::INBOXES), *empty = full + R::STAGES;
    float d[BN / 2];

    for (; number < w.tiles; number += gridDim.x / PAIR) {
        const tile t = find_tile<BN, PAIR>(w, number, rank);
        int before = 0;
        for (int step = t.begin; step < t.end; step++) {
            mbarrier_wait(full + at.stage, at.round);
            multiply_stage<BN, KIND::FLIP_A, KIND::FLIP_B>(d, shared + at.stage * R::STAGE, worker,
                                                           step == t.begin);
            wgmma_wait<1>();
            if (step > t.begin && threadIdx.x % 32 < PAIR)
                mbarrier_arrive_cluster(empty + before, threadIdx.x % 32);
            before = at.stage;
            at.next();
        }
        wgmma_wait<0>();
        wgmma_fence_operand(d);
        if (threadIdx.x % 32 < PAIR)
            mbarrier_arrive_cluster(empty + before, threadIdx.x % 32);
        const bool last = number + (int)gridDim.x / PAIR >= w.tiles + behind;
        const outbox by = outbox_of<BN>(shared, worker, last);
        const int m = t.m + 64 * worker;
        if (m < w.M && j.made.adds())
            put_result<BN, true>(d, by, j, t, m);
        else if (m < w.M)
            put_result<BN, false>(d, by, j, t, m);
    }
    return number - w.tiles;
}

/* One job, or two, the second where the first has ended. */
template <int BN, int PAIR, typename FIRST, typename SECOND>
__global__ void __launch_bounds__((WORKERS + 1) * GROUP, 1)
    multiply_wgmma(const __grid_constant__ job<FIRST> first,
                   const __grid_constant__ job<SECOND> second)
{
#if defined __CUDA_ARCH_FEAT_SM90_ALL || defined CUDA_EMULATE
    extern __shared__ __align__(1024) unsigned char shared[];
    typedef room<BN> R;
    constexpr bool both = sizeof second > sizeof(job<nothing>);
    uint64_t *full = (uint64_t *)(shared + R::INBOXES), *empty = full + R::STAGES;
    const int group = __shfl_sync(~0u, threadIdx.x / GROUP, 0), rank = blockIdx.x % PAIR;
    int number = blockIdx.x / PAIR;
    turn<R::STAGES> at = {0, 0};

    if (threadIdx.x < R::STAGES) {
        mbarrier_init(full + threadIdx.x);
        mbarrier_init(empty + threadIdx.x, PAIR * WORKERS * GROUP / 32);
    }
    __syncthreads();
    if (PAIR > 1) {
        cluster_arrive();
        cluster_wait();
    }
    if (group == 0) {
        setmaxnreg_dec<40>();
        if (threadIdx.x == 0) {
            number = fetch<BN, PAIR>(shared, at, first, number, rank);
            if constexpr (both)
                fetch<BN, PAIR>(shared, at, second, number, rank);
        }
        __syncwarp();
    } else {
        setmaxnreg_inc<232>();
        number = work<BN, PAIR>(shared, at, first, second.w.tiles, number, rank, group - 1);
        if constexpr (both)
            work<BN, PAIR>(shared, at, second, 0, number, rank, group - 1);
        if (threadIdx.x % GROUP == 0)
            tma_store_wait_read<0>();
    }
    if (PAIR > 1) { /* the other one still tells this one's mbars that stages are free */
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
    const auto kernel =
        multiply_wgmma<BN, shape<BN>::PAIR, kind<false, false, scaled<bf16>>, nothing>;
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

/* Do small tiles leave fewer blocks idle?  They take a little longer for the same. */
template <typename C>
static bool prefers_small(const gemm_problem<bf16, C> &p)
{
    const double large = ceil(tiles_of<256>(p) / max(at_once<256>(), 1)) * 256;
    const double small = ceil(tiles_of<128>(p) / max(at_once<128>(), 1)) * 128;
    return SMALL * small < large;
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

/* A job of the walk's: into c, or slice after slice into `parts`; `more` is a second result. */
template <int BN, typename KIND, typename C, typename P>
static int prepare_job(job<KIND> *j, const gemm_problem<bf16, C> &p, const walk &w,
                       const typename KIND::finish &made, P *c, P *more = NULL)
{
    const int64_t layers = (int64_t)w.batch * w.slices;
    P *const to[] = {c, more};
    j->made = made;
    j->w = w;
    j->w.tiles = (int)(layers * w.rows * w.columns);
    CUDA(make_tensor_map(&j->a, p.a, p.flip_a ? p.M : p.K, p.flip_a ? p.K : p.M, p.batch, 64));
    CUDA(make_tensor_map(&j->b, p.b, p.flip_b ? p.K : p.N, p.flip_b ? p.N : p.K, p.batch, 64));
    for (int i = 0; i < KIND::finish::OUTPUTS; i++)
        CUDA(make_tensor_map(&j->c[i], to[i], p.N, p.M, layers, 64));
    return 0;
}

template <int BN, typename FIRST, typename SECOND = nothing>
static int launch_jobs(const job<FIRST> &first, const job<SECOND> &second = {})
{
    const auto kernel = multiply_wgmma<BN, shape<BN>::PAIR, FIRST, SECOND>;
    const int64_t tiles = (int64_t)first.w.tiles + second.w.tiles;
    launch l;
    CUDA(prepare<BN>(&l, kernel, (int)min(tiles, (int64_t)at_once<BN>()) * shape<BN>::PAIR));
    return cudaLaunchKernelEx(&l.config, kernel, first, second);
}

template <int BN, bool FLIP_A, bool FLIP_B, typename C, typename P>
static int start_flipped(const gemm_problem<bf16, C> &p, const walk &w, P *c, const scaled<P> &made)
{
    job<kind<FLIP_A, FLIP_B, scaled<P>>> j;
    const int e = prepare_job<BN>(&j, p, w, made, c);
    return e ? e : launch_jobs<BN>(j);
}

template <int BN, typename C, typename P>
static int start(const gemm_problem<bf16, C> &p, const walk &w, P *c, const scaled<P> &made)
{
    return p.flip_a   ? p.flip_b ? start_flipped<BN, true, true>(p, w, c, made)
                                 : start_flipped<BN, true, false>(p, w, c, made)
             : p.flip_b ? start_flipped<BN, false, true>(p, w, c, made)
                      : start_flipped<BN, false, false>(p, w, c, made);
}

/* Two products as one walk. */
template <int BN, typename ONE, typename OTHER, typename C, typename D>
static int start_both(const gemm_problem<bf16, C> &one, const gemm_problem<bf16, D> &other)
{
    job<ONE> first;
    job<OTHER> second;
    int e = prepare_job<BN>(&first, one, walk_of<BN>(one), {one.c0, one.alpha, one.beta}, one.c);
    e = e ? e
          : prepare_job<BN>(&second, other, walk_of<BN>(other), {other.c0, other.alpha, other.beta},
                            other.c);
    return e ? e : launch_jobs<BN>(first, second);
}

template <typename C>
static int slices_of(const gemm_problem<bf16, C> &p)
{
    return prefers_small(p) ? small_walk(p).slices : 1;
}

/* May they be one walk?  Each counts its tiles by itself, and takes those that it prefers. */
template <typename C, typename D>
static bool as_one(const gemm_problem<bf16, C> &one, const gemm_problem<bf16, D> &other)
{
    return slices_of(one) == 1 && slices_of(other) == 1 &&
           prefers_small(one) == prefers_small(other) &&
           tiles_of<128>(one) + tiles_of<128>(other) <= 0x3fffffff;
}

template <typename C>
static int multiply_one(const gemm_problem<bf16, C> &p)
{
    const scaled<C> made = {p.c0, p.alpha, p.beta};
    if (!prefers_small(p))
        return start<256>(p, walk_of<256>(p), p.c, made);
    const walk w = small_walk(p);
    if (w.slices == 1)
        return start<128>(p, w, p.c, made);
    const scaled<float> sums = {NULL, 1, 0};
    CUDA((cudaError_t)start<128>(p, w, p.room, sums));
    return gemm_add_parts(p.room, w.slices, p.batch * p.M * p.N, p.alpha, p.beta, p.c0, p.c);
}

template <typename C>
size_t gemm_wgmma_room(const gemm_problem<bf16, C> &p)
{
    const int slices = slices_of(p);
    return slices > 1 ? (size_t)(slices * p.batch * p.M * p.N) * sizeof(float) : 0;
}

template <typename C>
const char *gemm_wgmma_declines(const gemm_problem<bf16, C> &p)
{
    const int64_t a = p.flip_a ? p.M : p.K, b = p.flip_b ? p.K : p.N;
    if (gpu_properties().major != 9 || gpu_properties().minor != 0)
        return "needs a GPU of compute capability 9.0";
    if (!tma_fits<bf16>(a, p.M, p.K) || !tma_fits<bf16>(b, p.N, p.batch) ||
        !tma_fits<C>(p.N, p.M, p.K))
        return "a row of some matrix is not a multiple of 16 bytes, or 2^31 of something";
    if (tiles_of<128>(p) > 0x3fffffff)
        return "more than 2^30 tiles";
    return at_once<256>() && at_once<128>()
               ? NULL
               : "not compiled for 9.0a, or its blocks do not fit on the SMs";
}

/* ---- gemm ---- */

/* da and db, where A and B are stored so. */
template <bool A, bool B>
static int start_back(const gemm_problem<bf16> &to_a, const gemm_problem<bf16> &to_b)
{
    typedef kind<A && B, A || !B, scaled<bf16>> ONE;
    typedef kind<B || !A, A && B, scaled<bf16>> OTHER;
    return prefers_small(to_a) ? start_both<128, ONE, OTHER>(to_a, to_b)
                               : start_both<256, ONE, OTHER>(to_a, to_b);
}

struct gemm_wgmma : gemm_thin_engine<gemm_wgmma> {
    template <typename T, typename C>
    static size_t room(const gemm_problem<T, C> &p)
    {
        return gemm_wgmma_room(p);
    }

    template <typename T, typename C>
    static const char *declines(const gemm_problem<T, C> &p)
    {
        return gemm_wgmma_declines(p);
    }

    template <typename T, typename C>
    static int multiply(const gemm_problem<T, C> &p)
    {
        return multiply_one(p);
    }

    template <typename T>
    static int multiply_back(const gemm_problem<T> &p, const T *dc, T *da, T *db)
    {
        const gemm_problem<T> to_a = gemm_to_a(p, dc, da), to_b = gemm_to_b(p, dc, db);
        if (gemm_thin_fits(p) || !as_one(to_a, to_b))
            return gemm_thin_engine<gemm_wgmma>::multiply_back(p, dc, da, db);
        return p.flip_a   ? p.flip_b ? start_back<true, true>(to_a, to_b)
                                     : start_back<true, false>(to_a, to_b)
                 : p.flip_b ? start_back<false, true>(to_a, to_b)
                          : start_back<false, false>(to_a, to_b);
    }
};

GEMM_IMPL(extern "C", 16, __nv_bfloat16, wgmma,
          "warpgroup products from swizzled boxes that the copy engine fetches");

/* ---- layers ---- */

template <int BN, int ACT>
static int start_layer(const gemm_problem<bf16> &p, const bf16 *bias, bf16 *z)
{
    job<kind<false, true, layer_of<ACT>>> j;
    const int e = prepare_job<BN>(&j, p, walk_of<BN>(p), {bias}, p.c, z);
    return e ? e : launch_jobs<BN>(j);
}

template <int ACT>
static int layer(const gemm_problem<bf16> &p, const bf16 *bias, bf16 *z)
{
    return prefers_small(p) ? start_layer<128, ACT>(p, bias, z) : start_layer<256, ACT>(p, bias, z);
}

int gemm_wgmma_layer(const gemm_problem<bf16> &p, int act, const bf16 *bias, bf16 *z)
{
    return act == ACT_NONE   ? layer<ACT_NONE>(p, bias, z)
           : act == ACT_SILU ? layer<ACT_SILU>(p, bias, z)
                             : layer<ACT_RELU>(p, bias, z);
}

/* Whose tiles take longer begins, so that the last ones to end are short. */
int gemm_wgmma_layer_back(const gemm_problem<bf16> &to_x, const gemm_problem<bf16, float> &to_W)
{
    typedef kind<false, false, scaled<bf16>> X;
    typedef kind<true, false, scaled<float>> W;
    if (!as_one(to_x, to_W)) {
        const int e = multiply_one(to_x);
        return e ? e : multiply_one(to_W);
    }
    const bool small = prefers_small(to_x);
    if (to_x.K > to_W.K)
        return small ? start_both<128, X, W>(to_x, to_W) : start_both<256, X, W>(to_x, to_W);
    return small ? start_both<128, W, X>(to_W, to_x) : start_both<256, W, X>(to_W, to_x);
}

template size_t gemm_wgmma_room(const gemm_problem<bf16, bf16> &);
template size_t gemm_wgmma_room(const gemm_problem<bf16, float> &);
template const char *gemm_wgmma_declines(const gemm_problem<bf16, bf16> &);
template const char *gemm_wgmma_declines(const gemm_problem<bf16, float> &);
