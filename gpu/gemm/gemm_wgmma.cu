/* gemm, wgmma: c = alpha op(a) op(b) + beta c0 with Hopper's warpgroup MMA, warp specialized and
 * persistent.  One thread of the producer warpgroup loads boxes of both operands by TMA into a
 * pipeline of stages in shared memory.  Two consumer warpgroups multiply the stages, each for 64
 * rows of a tile of 128 x BN; wgmma reads both operands from swizzled shared memory, transposed or
 * not.  The epilogue stores a tile by TMA while the mainloop of the next tile starts.  The grid
 * fills the SMs once; each block (cluster) loops over the tiles with the stride of the grid.
 *
 * Clusters of two blocks compute large tiles, one tile below the other: each block loads half of
 * the columns of b and multicasts them to both.
 *
 * The two products of a backward pass share one launch, so that the tiles of the second fill the
 * SMs that the first leaves idle at its end.  A layer's bias and activation are part of the
 * epilogue. */
#include "gpu/device/cluster.cuh"
#include "gpu/device/fragment.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/mbarrier.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/device/tma.cuh"
#include "gpu/device/wgmma.cuh"
#include "gpu/gemm/gemm_wgmma.cuh"
#include "gpu/gemm/linear.cuh"

enum {
    BM = 128,          /* rows of a tile */
    BK = 64,           /* k per stage: 128 bytes */
    WARPGROUP = 128,   /* threads of a warpgroup */
    CONSUMERS = 2,     /* consumer warpgroups; one more is the producer */
    BOX_BYTES = 8192,  /* a TMA box: 64 rows of 128 bytes */
    ATOM_BYTES = 1024, /* a swizzle atom: eight rows of a box */
    BAND = 8,          /* rows of tiles per band of the rasterization */
    MIN_K_TILES = 8    /* minimum stages per slice of k */
};

/* The time of small tiles relative to large ones for the same work. */
static const double SMALL_TILE_COST = 1.1;

/* The layout of shared memory for tiles of BN columns: the pipeline's stages, each with two boxes
 * of a and B_BOXES boxes of b; two epilogue buffers per consumer; a full and an empty mbarrier per
 * stage. */
template <int BN>
struct smem_layout {
    enum {
        STAGES = BN == 256 ? 4 : 6,
        B_BOXES = BN / 64,
        STAGE_BYTES = (2 + B_BOXES) * BOX_BYTES,
        EPILOGUE = STAGES * STAGE_BYTES,
        MBARRIERS = EPILOGUE + 2 * CONSUMERS * BOX_BYTES,
        BYTES = MBARRIERS + 2 * STAGES * sizeof(uint64_t)
    };
};

/* The tile schedule of one gemm: tiles of [slices,batch] outputs. */
struct tile_schedule {
    int tiles_m, tiles_n;       /* per output; the tiles of a cluster count as one */
    int tiles;                  /* of all outputs */
    int batch, slices;          /* products, and slices of k per product */
    int slice_k_tiles, k_tiles; /* stages per slice (the last may have fewer), per product */
    int64_t M, N;
};

/* Work coordinates: a tile's first row and column, its product, its stages of k, and its output
 * (slice * batch + product). */
struct tile_coord {
    int m, n, product, k_begin, k_end, output;
};

/* Rasterization in bands, so that concurrent blocks share rows of a and columns of b in L2. */
template <int BN, int CLUSTER>
static __device__ __forceinline__ tile_coord tile_coord_of(const tile_schedule &s, int tile,
                                                           int rank)
{
    tile_coord t;
    const int in_output = tile % (s.tiles_m * s.tiles_n);
    const int band = in_output / (BAND * s.tiles_n) * BAND;
    const int band_rows = min((int)BAND, s.tiles_m - band), in_band = in_output - band * s.tiles_n;
    t.output = tile / (s.tiles_m * s.tiles_n);
    t.m = ((band + in_band % band_rows) * CLUSTER + rank) * BM;
    t.n = in_band / band_rows * BN;
    t.product = t.output % s.batch;
    t.k_begin = t.output / s.batch * s.slice_k_tiles;
    t.k_end = min(t.k_begin + s.slice_k_tiles, s.k_tiles);
    return t;
}

/* A pipeline state: the stage's index, and the number of its mbarriers' phase. */
template <int STAGES>
struct gemm_pipeline_state {
    int stage, phase;
    __device__ __forceinline__ void advance(void)
    {
        stage = stage + 1 < STAGES ? stage + 1 : 0;
        phase += stage == 0;
    }
};

/* ---- epilogues ---- */

/* alpha acc, plus beta c0 if ADDS. */
template <typename C>
struct linear_combination {
    enum { OUTPUTS = 1 };
    typedef C type;
    const C *c0;
    float alpha, beta;

    __device__ __forceinline__ bool adds(void) const { return c0; }
    template <bool ADDS>
    __device__ __forceinline__ float2 apply(int, float2 acc, const tile_schedule &s,
                                            const tile_coord &t, int m, int n) const
    {
        float2 x = make_float2(alpha * acc.x, alpha * acc.y);
        if (ADDS && m < s.M && n < s.N) {
            const float2 y = load_pair(c0 + ((int64_t)t.output * s.M + m) * s.N + n);
            x = make_float2(fmaf(beta, y.x, x.x), fmaf(beta, y.y, x.y));
        }
        return x;
    }
};

/* A layer: act(acc + bias), where bias may be NULL.  silu has a second output, acc, from which the
 * backward pass computes the slope. */
template <int ACT>
struct bias_activation {
    enum { OUTPUTS = ACT == ACT_SILU ? 2 : 1 };
    typedef bf16 type;
    const bf16 *bias;

    __device__ __forceinline__ bool adds(void) const { return bias; }
    template <bool ADDS>
    __device__ __forceinline__ float2 apply(int output, float2 acc, const tile_schedule &s,
                                            const tile_coord &, int, int n) const
    {
        if (output)
            return acc;
        const int column = min(n, (int)s.N - 2); /* N is even */
        const float2 b = ADDS ? load_pair(bias + column) : make_float2(0, 0);
        return make_float2(activated<ACT>(acc.x + b.x), activated<ACT>(acc.y + b.y));
    }
};

/* The traits of a gemm: which operands are stored transposed, and the epilogue. */
template <bool A, bool B, typename EPILOGUE>
struct gemm_traits {
    static const bool TRANS_A = A, TRANS_B = B;
    typedef EPILOGUE epilogue_op;
};
struct no_gemm {
};

/* The kernel's parameters for one gemm. */
template <typename TRAITS>
struct gemm_params {
    typedef typename TRAITS::epilogue_op epilogue_op;
    tensor_map a, b, c[epilogue_op::OUTPUTS];
    epilogue_op epilogue;
    tile_schedule schedule;
};
template <>
struct gemm_params<no_gemm> {
    tile_schedule schedule;
};

/* ---- the kernel ---- */

/* The producer thread: loads the stages of one gemm from tile `tile` on.  Returns the index of its
 * next tile within a second gemm that follows this one. */
template <int BN, int CLUSTER, typename TRAITS>
static __device__ __forceinline__ int produce(unsigned char *shared,
                                              gemm_pipeline_state<smem_layout<BN>::STAGES> &state,
                                              const gemm_params<TRAITS> &p, int tile, int rank)
{
    typedef smem_layout<BN> L;
    const bool TRANS_A = TRAITS::TRANS_A, TRANS_B = TRAITS::TRANS_B;
    const tensor_map *const a = &p.a, *const b = &p.b;
    const tile_schedule &s = p.schedule;
    uint64_t *full = (uint64_t *)(shared + L::MBARRIERS), *empty = full + L::STAGES;

    tma_prefetch_map(a);
    tma_prefetch_map(b);
    for (; tile < s.tiles; tile += gridDim.x / CLUSTER) {
        const tile_coord t = tile_coord_of<BN, CLUSTER>(s, tile, rank);
        for (int k_tile = t.k_begin; k_tile < t.k_end; k_tile++, state.advance()) {
            unsigned char *stage = shared + state.stage * L::STAGE_BYTES;
            uint64_t *mbar = full + state.stage;
            const int k = k_tile * BK;
            mbarrier_wait(empty + state.stage, state.phase - 1);
            mbarrier_arrive_expect_tx(mbar, L::STAGE_BYTES);
            #pragma unroll 2
            for (int i = 0; i < 2; i++) {
                const int m = t.m + 64 * i;
                tma_load(stage + i * BOX_BYTES, mbar, a,
                         {TRANS_A ? m : k, TRANS_A ? k : m, t.product});
            }
            #pragma unroll 4
            for (int i = 0; i < L::B_BOXES / CLUSTER; i++) {
                const int box = rank * (L::B_BOXES / CLUSTER) + i, n = t.n + 64 * box;
                unsigned char *to = stage + (2 + box) * BOX_BYTES;
                const int3 at = {TRANS_B ? k : n, TRANS_B ? n : k, t.product};
                if (CLUSTER == 1)
                    tma_load(to, mbar, b, at);
                else
                    tma_load_multicast(CLUSTER, to, mbar, b, at);
            }
        }
    }
    return tile - s.tiles;
}

/* A consumer's epilogue buffers, with a stride in bytes.  There are two: TMA reads one while the
 * other is written.  For a block's last tile there are four, because no more loads are in flight:
 * the consumer's boxes of a in four stages of the pipeline. */
struct epilogue_buffers {
    unsigned char *first;
    int stride;
    bool four;
};

template <int BN>
static __device__ __forceinline__ epilogue_buffers epilogue_buffers_of(unsigned char *shared,
                                                                       int consumer, bool last)
{
    typedef smem_layout<BN> L;
    static_assert(L::STAGES >= 4, "a buffer in each");
    if (last)
        return {shared + consumer * BOX_BYTES, L::STAGE_BYTES, true};
    return {shared + L::EPILOGUE + 2 * consumer * BOX_BYTES, BOX_BYTES, false};
}

/* The epilogue of a warpgroup's 64 rows of a tile, from m on: a TMA store per box. */
template <int BN, bool ADDS, typename TRAITS>
static __device__ __forceinline__ void store_tile(const float *acc, const epilogue_buffers &buffers,
                                                  const gemm_params<TRAITS> &p, const tile_coord &t,
                                                  int m)
{
    typedef typename TRAITS::epilogue_op epilogue_op;
    typedef typename epilogue_op::type C;
    constexpr int COLUMNS = tma_box_columns<C>(), TILES = COLUMNS / 8,
                  OUTPUTS = epilogue_op::OUTPUTS;
    const epilogue_op epilogue = p.epilogue;
    const tile_schedule s = p.schedule;
    const int row = threadIdx.x / 32 % 4 * 16 + fragment_row(), warpgroup = threadIdx.x / WARPGROUP;
    const bool elected = threadIdx.x % WARPGROUP == 0;

    if (buffers.four) /* wait until the other warps have multiplied these operands */
        named_barrier_sync(warpgroup, WARPGROUP);
    #pragma unroll 8
    for (int i = 0; i < BN / COLUMNS * OUTPUTS; i++) {
        unsigned char *buffer = buffers.first + i % (buffers.four ? 4 : 2) * buffers.stride;
        const int box = i / OUTPUTS, output = i % OUTPUTS, n = t.n + box * COLUMNS;
        float2 x[TILES][2];
        #pragma unroll 8
        for (int tile = 0; tile < TILES; tile++)
            #pragma unroll 2
            for (int half = 0; half < 2; half++) {
                const float *pair = acc + (box * TILES + tile) * 4 + 2 * half;
                x[tile][half] = epilogue.template apply<ADDS>(output, make_float2(pair[0], pair[1]),
                                                              s, t, m + row + 8 * half,
                                                              n + 8 * tile + fragment_column());
            }
        #pragma unroll 8
        for (int tile = 0; tile < TILES; tile++)
            #pragma unroll 2
            for (int half = 0; half < 2; half++) {
                const int column = (8 * tile + fragment_column()) * (int)sizeof(C);
                store_pair((C *)(buffer + 128 * (row + 8 * half) + (column ^ fragment_row() * 16)),
                           x[tile][half].x, x[tile][half].y);
            }
        fence_proxy_async();
        if (elected && buffers.four) /* wait until TMA has read the next buffer */
            tma_store_wait_read<2>();
        else if (elected)
            tma_store_wait_read<0>();
        named_barrier_sync(warpgroup, WARPGROUP);
        if (elected)
            tma_store(&p.c[output], {n, m, t.output}, buffer);
    }
}

/* acc += op(a) op(b) over a stage: the warpgroup's 64 rows of a, all columns of b. */
template <int BN, bool TRANS_A, bool TRANS_B>
static __device__ __forceinline__ void
multiply_stage(float (&acc)[BN / 2], const unsigned char *stage, int consumer, bool first)
{
    const int K_ADVANCE_A = TRANS_A ? 2 * ATOM_BYTES : 32,
              K_ADVANCE_B = TRANS_B ? 32 : 2 * ATOM_BYTES;
    const wgmma_desc a = make_wgmma_desc(stage + consumer * BOX_BYTES, BOX_BYTES, ATOM_BYTES);
    const wgmma_desc b = make_wgmma_desc(stage + 2 * BOX_BYTES, BOX_BYTES, ATOM_BYTES);

    wgmma_fence();
    #pragma unroll 4
    for (int i = 0; i < BK / 16; i++)
        wgmma<TRANS_A, !TRANS_B>(acc, wgmma_desc_advance(a, i * K_ADVANCE_A),
                                 wgmma_desc_advance(b, i * K_ADVANCE_B), i > 0 || !first);
    wgmma_commit();
}

/* A consumer warpgroup's part of one gemm, which `later_tiles` tiles of a second gemm follow.  The
 * wgmma of a stage are in flight while those of the next are issued.  When they are complete, the
 * warpgroup arrives at the stage's empty mbarriers in all blocks that fill the stage. */
template <int BN, int CLUSTER, typename TRAITS>
static __device__ __forceinline__ int
consume(unsigned char *shared, gemm_pipeline_state<smem_layout<BN>::STAGES> &state,
        const gemm_params<TRAITS> &p, int later_tiles, int tile, int rank, int consumer)
{
    typedef smem_layout<BN> L;
    const tile_schedule &s = p.schedule;
    uint64_t *full = (uint64_t *)(shared + L::MBARRIERS), *empty = full + L::STAGES;
    float acc[BN / 2];

    for (; tile < s.tiles; tile += gridDim.x / CLUSTER) {
        const tile_coord t = tile_coord_of<BN, CLUSTER>(s, tile, rank);
        int previous = 0;
        for (int k_tile = t.k_begin; k_tile < t.k_end; k_tile++) {
            mbarrier_wait(full + state.stage, state.phase);
            multiply_stage<BN, TRAITS::TRANS_A, TRAITS::TRANS_B>(
                acc, shared + state.stage * L::STAGE_BYTES, consumer, k_tile == t.k_begin);
            wgmma_wait<1>();
            if (k_tile > t.k_begin && threadIdx.x % 32 < CLUSTER)
                mbarrier_arrive_cluster(empty + previous, threadIdx.x % 32);
            previous = state.stage;
            state.advance();
        }
        wgmma_wait<0>();
        wgmma_fence_operand(acc);
        if (threadIdx.x % 32 < CLUSTER)
            mbarrier_arrive_cluster(empty + previous, threadIdx.x % 32);
        const bool last = tile + (int)gridDim.x / CLUSTER >= s.tiles + later_tiles;
        const epilogue_buffers buffers = epilogue_buffers_of<BN>(shared, consumer, last);
        const int m = t.m + 64 * consumer;
        if (m < s.M && p.epilogue.adds())
            store_tile<BN, true>(acc, buffers, p, t, m);
        else if (m < s.M)
            store_tile<BN, false>(acc, buffers, p, t, m);
    }
    return tile - s.tiles;
}

/* One gemm, or two: the tiles of the second follow those of the first. */
template <int BN, int CLUSTER, typename FIRST, typename SECOND>
__global__ void __launch_bounds__((CONSUMERS + 1) * WARPGROUP, 1)
    multiply_wgmma(const __grid_constant__ gemm_params<FIRST> first,
                   const __grid_constant__ gemm_params<SECOND> second)
{
#if defined __CUDA_ARCH_FEAT_SM90_ALL || defined CUDA_EMULATE
    extern __shared__ __align__(1024) unsigned char shared[];
    typedef smem_layout<BN> L;
    constexpr bool both = sizeof second > sizeof(gemm_params<no_gemm>);
    uint64_t *full = (uint64_t *)(shared + L::MBARRIERS), *empty = full + L::STAGES;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / WARPGROUP, 0), rank = blockIdx.x % CLUSTER;
    int tile = blockIdx.x / CLUSTER;
    gemm_pipeline_state<L::STAGES> state = {0, 0};

    if (threadIdx.x < L::STAGES) {
        mbarrier_init(full + threadIdx.x);
        mbarrier_init(empty + threadIdx.x, CLUSTER * CONSUMERS * WARPGROUP / 32);
    }
    __syncthreads();
    if (CLUSTER > 1) {
        cluster_arrive();
        cluster_wait();
    }
    if (warpgroup == 0) {
        setmaxnreg_dec<40>();
        if (threadIdx.x == 0) {
            tile = produce<BN, CLUSTER>(shared, state, first, tile, rank);
            if constexpr (both)
                produce<BN, CLUSTER>(shared, state, second, tile, rank);
        }
        __syncwarp();
    } else {
        setmaxnreg_inc<232>();
        tile = consume<BN, CLUSTER>(shared, state, first, second.schedule.tiles, tile, rank,
                                    warpgroup - 1);
        if constexpr (both)
            consume<BN, CLUSTER>(shared, state, second, 0, tile, rank, warpgroup - 1);
        if (threadIdx.x % WARPGROUP == 0)
            tma_store_wait_read<0>();
    }
    if (CLUSTER > 1) { /* the other block still arrives at this block's mbarriers */
        cluster_arrive();
        cluster_wait();
    }
#endif
}

/* ---- the tile shape, and the slices of k ---- */

/* Clusters of two blocks compute large tiles, single blocks small ones. */
template <int BN>
struct tile_shape {
    enum { CLUSTER = BN == 256 ? 2 : 1 };
};

/* A cluster of one block has the attribute too, for cudaOccupancyMaxActiveClusters(). */
template <int BN, typename K>
static cudaError_t configure(struct context *on, cluster_launch *l, K kernel, int clusters)
{
    cluster_launch_init(on, l, clusters, tile_shape<BN>::CLUSTER, (CONSUMERS + 1) * WARPGROUP,
                        smem_layout<BN>::BYTES);
    l->config.numAttrs = 1;
    return allow_smem(kernel, smem_layout<BN>::BYTES);
}

/* A kernel compiled for 9.0 instead of 9.0a is empty and needs few registers. */
template <typename K>
static bool is_compiled(K kernel)
{
#ifndef CUDA_EMULATE
    cudaFuncAttributes of;
    return cudaFuncGetAttributes(&of, kernel) == cudaSuccess && of.numRegs > 64;
#else
    return kernel;
#endif
}

/* The maximum number of clusters that are active at the same time; 0 if none can be. */
template <int BN>
static int max_active_clusters(struct context *on)
{
    int &n = on->wgmma_clusters[BN == 128];
    const auto kernel =
        multiply_wgmma<BN, tile_shape<BN>::CLUSTER,
                       gemm_traits<false, false, linear_combination<bf16>>, no_gemm>;
    cluster_launch l;
    if (!n && (!is_compiled(kernel) || configure<BN>(on, &l, kernel, 1) != cudaSuccess ||
               cudaOccupancyMaxActiveClusters(&n, kernel, &l.config) != cudaSuccess)) {
        cudaGetLastError();
        n = 0;
    }
    return n;
}

void wgmma_prepare(struct context *on)
{
    max_active_clusters<256>(on);
    max_active_clusters<128>(on);
}

template <int BN, typename C>
static tile_schedule schedule_of(const gemm_problem<bf16, C> &p)
{
    tile_schedule s = {};
    s.M = p.M;
    s.N = p.N;
    s.tiles_m = (int)ceil_div(p.M, BM * tile_shape<BN>::CLUSTER);
    s.tiles_n = (int)ceil_div(p.N, BN);
    s.batch = (int)p.batch;
    s.k_tiles = s.slice_k_tiles = (int)ceil_div(p.K, BK);
    s.slices = 1;
    return s;
}

template <int BN, typename C>
static double tiles_of(const gemm_problem<bf16, C> &p)
{
    const tile_schedule s = schedule_of<BN>(p);
    return (double)s.tiles_m * s.tiles_n * p.batch;
}

/* Do small tiles take less time, because they leave fewer SMs idle in the last wave? */
template <typename C>
static bool prefers_small_tiles(struct context *on, const gemm_problem<bf16, C> &p)
{
    const double large = ceil(tiles_of<256>(p) / max(max_active_clusters<256>(on), 1)) * 256;
    const double small = ceil(tiles_of<128>(p) / max(max_active_clusters<128>(on), 1)) * 128;
    return SMALL_TILE_COST * small < large;
}

/* Small tiles, split along k where there are fewer tiles than SMs and k is long. */
template <typename C>
static tile_schedule split_k_schedule(struct context *on, const gemm_problem<bf16, C> &p)
{
    tile_schedule s = schedule_of<128>(p);
    const int64_t wanted = max_active_clusters<128>(on) / (int64_t)tiles_of<128>(p);
    const int64_t slices = min(wanted, (int64_t)s.k_tiles / MIN_K_TILES);
    if (slices > 1) {
        s.slice_k_tiles = (int)ceil_div(s.k_tiles, slices);
        s.slices = (int)ceil_div(s.k_tiles, s.slice_k_tiles);
    }
    return s;
}

/* The parameters of one gemm, whose outputs are the [slices,batch] matrices at c; `c2` is the
 * epilogue's second output. */
template <int BN, typename TRAITS, typename C, typename P>
static int make_params(gemm_params<TRAITS> *g, const gemm_problem<bf16, C> &p,
                       const tile_schedule &s, const typename TRAITS::epilogue_op &epilogue, P *c,
                       P *c2 = NULL)
{
    const int64_t outputs = (int64_t)s.batch * s.slices;
    P *const to[] = {c, c2};
    g->epilogue = epilogue;
    g->schedule = s;
    g->schedule.tiles = (int)(outputs * s.tiles_m * s.tiles_n);
    CUDA(make_tensor_map(&g->a, p.a, p.trans_a ? p.M : p.K, p.trans_a ? p.K : p.M, p.batch, 64));
    CUDA(make_tensor_map(&g->b, p.b, p.trans_b ? p.K : p.N, p.trans_b ? p.N : p.K, p.batch, 64));
    for (int i = 0; i < TRAITS::epilogue_op::OUTPUTS; i++)
        CUDA(make_tensor_map(&g->c[i], to[i], p.N, p.M, outputs, 64));
    return 0;
}

template <int BN, typename FIRST, typename SECOND = no_gemm>
static int launch(struct context *on, const gemm_params<FIRST> &first,
                  const gemm_params<SECOND> &second = {})
{
    const auto kernel = multiply_wgmma<BN, tile_shape<BN>::CLUSTER, FIRST, SECOND>;
    const int64_t tiles = (int64_t)first.schedule.tiles + second.schedule.tiles;
    cluster_launch l;
    CUDA(configure<BN>(on, &l, kernel, (int)min(tiles, (int64_t)max_active_clusters<BN>(on))));
    return cudaLaunchKernelEx(&l.config, kernel, first, second);
}

template <int BN, bool TRANS_A, bool TRANS_B, typename C, typename P>
static int start_transposed(struct context *on, const gemm_problem<bf16, C> &p,
                            const tile_schedule &s, P *c, const linear_combination<P> &epilogue)
{
    gemm_params<gemm_traits<TRANS_A, TRANS_B, linear_combination<P>>> g;
    const int e = make_params<BN>(&g, p, s, epilogue, c);
    return e ? e : launch<BN>(on, g);
}

template <int BN, typename C, typename P>
static int start(struct context *on, const gemm_problem<bf16, C> &p, const tile_schedule &s, P *c,
                 const linear_combination<P> &epilogue)
{
    return p.trans_a   ? p.trans_b ? start_transposed<BN, true, true>(on, p, s, c, epilogue)
                                   : start_transposed<BN, true, false>(on, p, s, c, epilogue)
             : p.trans_b ? start_transposed<BN, false, true>(on, p, s, c, epilogue)
                       : start_transposed<BN, false, false>(on, p, s, c, epilogue);
}

/* Two gemms in one launch. */
template <int BN, typename ONE, typename OTHER, typename C, typename D>
static int start_both(struct context *on, const gemm_problem<bf16, C> &one,
                      const gemm_problem<bf16, D> &other)
{
    gemm_params<ONE> first;
    gemm_params<OTHER> second;
    int e =
        make_params<BN>(&first, one, schedule_of<BN>(one), {one.c0, one.alpha, one.beta}, one.c);
    e = e ? e
          : make_params<BN>(&second, other, schedule_of<BN>(other),
                            {other.c0, other.alpha, other.beta}, other.c);
    return e ? e : launch<BN>(on, first, second);
}

template <typename C>
static int slices_of(struct context *on, const gemm_problem<bf16, C> &p)
{
    return prefers_small_tiles(on, p) ? split_k_schedule(on, p).slices : 1;
}

/* May two gemms share a launch?  Both must prefer the same tile shape, without slices of k. */
template <typename C, typename D>
static bool fits_one_launch(struct context *on, const gemm_problem<bf16, C> &one,
                            const gemm_problem<bf16, D> &other)
{
    return slices_of(on, one) == 1 && slices_of(on, other) == 1 &&
           prefers_small_tiles(on, one) == prefers_small_tiles(on, other) &&
           tiles_of<128>(one) + tiles_of<128>(other) <= 0x3fffffff;
}

template <typename C>
static int multiply_one(struct context *on, const gemm_problem<bf16, C> &p)
{
    const linear_combination<C> epilogue = {p.c0, p.alpha, p.beta};
    if (!prefers_small_tiles(on, p))
        return start<256>(on, p, schedule_of<256>(p), p.c, epilogue);
    const tile_schedule s = split_k_schedule(on, p);
    if (s.slices == 1)
        return start<128>(on, p, s, p.c, epilogue);
    const linear_combination<float> sums = {NULL, 1, 0};
    CUDA((cudaError_t)start<128>(on, p, s, p.workspace, sums));
    return gemm_add_parts(on, p.workspace, s.slices, p.batch * p.M * p.N, p.alpha, p.beta, p.c0,
                          p.c);
}

template <typename C>
size_t gemm_wgmma_workspace(struct context *on, const gemm_problem<bf16, C> &p)
{
    const int slices = slices_of(on, p);
    return slices > 1 ? (size_t)(slices * p.batch * p.M * p.N) * sizeof(float) : 0;
}

template <typename C>
const char *gemm_wgmma_declines(struct context *on, const gemm_problem<bf16, C> &p)
{
    const int64_t a = p.trans_a ? p.M : p.K, b = p.trans_b ? p.K : p.N;
    if (on->properties.major != 9 || on->properties.minor != 0)
        return "needs a GPU of compute capability 9.0";
    if (!tma_fits<bf16>(a, p.M, p.K) || !tma_fits<bf16>(b, p.N, p.batch) ||
        !tma_fits<C>(p.N, p.M, p.K))
        return "a row of a matrix is not a multiple of 16 bytes, or a dimension is 2^31 or more";
    if (tiles_of<128>(p) > 0x3fffffff)
        return "more than 2^30 tiles";
    return max_active_clusters<256>(on) && max_active_clusters<128>(on)
               ? NULL
               : "not compiled for 9.0a, or its blocks do not fit on the SMs";
}

/* ---- gemm ---- */

/* Computes da and db.  A and B: are the operands of the forward pass stored transposed? */
template <bool A, bool B>
static int start_back(struct context *on, const gemm_problem<bf16> &to_a,
                      const gemm_problem<bf16> &to_b)
{
    typedef gemm_traits<A && B, A || !B, linear_combination<bf16>> ONE;
    typedef gemm_traits<B || !A, A && B, linear_combination<bf16>> OTHER;
    return prefers_small_tiles(on, to_a) ? start_both<128, ONE, OTHER>(on, to_a, to_b)
                                         : start_both<256, ONE, OTHER>(on, to_a, to_b);
}

struct gemm_wgmma : gemm_thin_engine<gemm_wgmma> {
    template <typename T, typename C>
    static size_t workspace(struct context *on, const gemm_problem<T, C> &p)
    {
        return gemm_wgmma_workspace(on, p);
    }

    template <typename T, typename C>
    static const char *declines(struct context *on, const gemm_problem<T, C> &p)
    {
        return gemm_wgmma_declines(on, p);
    }

    template <typename T, typename C>
    static int multiply(struct context *on, const gemm_problem<T, C> &p)
    {
        return multiply_one(on, p);
    }

    template <typename T>
    static int multiply_back(struct context *on, const gemm_problem<T> &p, const T *dc, T *da,
                             T *db)
    {
        const gemm_problem<T> to_a = gemm_to_a(p, dc, da), to_b = gemm_to_b(p, dc, db);
        if (gemm_thin_fits(p) || !fits_one_launch(on, to_a, to_b))
            return gemm_thin_engine<gemm_wgmma>::multiply_back(on, p, dc, da, db);
        return p.trans_a   ? p.trans_b ? start_back<true, true>(on, to_a, to_b)
                                       : start_back<true, false>(on, to_a, to_b)
                 : p.trans_b ? start_back<false, true>(on, to_a, to_b)
                           : start_back<false, false>(on, to_a, to_b);
    }
};

const struct impl gemm_by_wgmma = gemm_kernel<__nv_bfloat16, gemm_wgmma>(
    "wgmma", "warp specialized: TMA loads swizzled boxes, two warpgroups multiply them by wgmma");

/* ---- layers ---- */

template <int BN, int ACT>
static int start_layer(struct context *on, const gemm_problem<bf16> &p, const bf16 *bias, bf16 *z)
{
    gemm_params<gemm_traits<false, true, bias_activation<ACT>>> g;
    const int e = make_params<BN>(&g, p, schedule_of<BN>(p), {bias}, p.c, z);
    return e ? e : launch<BN>(on, g);
}

template <int ACT>
static int layer(struct context *on, const gemm_problem<bf16> &p, const bf16 *bias, bf16 *z)
{
    return prefers_small_tiles(on, p) ? start_layer<128, ACT>(on, p, bias, z)
                                      : start_layer<256, ACT>(on, p, bias, z);
}

int gemm_wgmma_layer(struct context *on, const gemm_problem<bf16> &p, int act, const bf16 *bias,
                     bf16 *z)
{
    return act == ACT_NONE   ? layer<ACT_NONE>(on, p, bias, z)
           : act == ACT_SILU ? layer<ACT_SILU>(on, p, bias, z)
                             : layer<ACT_RELU>(on, p, bias, z);
}

/* The gemm with the larger K, whose tiles take longer, comes first, so that the last tiles are
 * short. */
int gemm_wgmma_layer_back(struct context *on, const gemm_problem<bf16> &to_x,
                          const gemm_problem<bf16, float> &to_W)
{
    typedef gemm_traits<false, false, linear_combination<bf16>> X;
    typedef gemm_traits<true, false, linear_combination<float>> W;
    if (!fits_one_launch(on, to_x, to_W)) {
        const int e = multiply_one(on, to_x);
        return e ? e : multiply_one(on, to_W);
    }
    const bool small = prefers_small_tiles(on, to_x);
    if (to_x.K > to_W.K)
        return small ? start_both<128, X, W>(on, to_x, to_W)
                     : start_both<256, X, W>(on, to_x, to_W);
    return small ? start_both<128, W, X>(on, to_W, to_x) : start_both<256, W, X>(on, to_W, to_x);
}

template size_t gemm_wgmma_workspace(struct context *on, const gemm_problem<bf16, bf16> &);
template size_t gemm_wgmma_workspace(struct context *on, const gemm_problem<bf16, float> &);
template const char *gemm_wgmma_declines(struct context *on, const gemm_problem<bf16, bf16> &);
template const char *gemm_wgmma_declines(struct context *on, const gemm_problem<bf16, float> &);
