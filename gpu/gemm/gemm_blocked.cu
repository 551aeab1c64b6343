/* gemm, kernels `blocked` and `splitk`: c = alpha op(a) op(b) + beta c0 by FMA.  A block of 256
 * threads computes a 128 x 128 tile of c, a warp 32 x 64 of it, a thread 8 x 8.  A thread reads 16
 * elements from shared memory per 64 FMA.  Where 128 x 128 tiles would leave many SMs idle, a tile
 * is 64 x 64: four groups of two warps each take a quarter of every stage's k, and their sums are
 * added at the end.
 *
 * The mainloop is double-buffered.  While one stage is multiplied, the next is in flight from
 * global memory to registers; within a stage, the fragments of the next k are in flight from shared
 * memory.  Shared memory holds both operands as [k][row], whichever way they are stored: an operand
 * that is contiguous along k is transposed when it is written there.  Rows are padded by four
 * floats to avoid bank conflicts.
 *
 * `splitk` splits k into slices: a tile has one block per slice, and the slices' sums are added in
 * order.  `blocked` does so only where k is so long that a single sum would lose too much
 * precision. */
#include "gpu/device/vector.cuh"
#include "gpu/gemm/gemm.cuh"

enum {
    THREADS = 256,
    WARP_M = 32,
    WARP_N = 64,
    DEPTH = 8, /* k per group and stage */
    PADDING = 4,
    MAX_RUNS = 16, /* maximum runs of k in one sum of a thread */
    RESIDENT = 2   /* blocks per SM */
};

/* The shape of a tile and of a stage of both operands. */
template <int SIDE>
struct tile_shape {
    enum {
        WARPS_M = SIDE / WARP_M,
        WARPS_N = SIDE / WARP_N,
        GROUP = 32 * WARPS_M * WARPS_N, /* threads that compute a tile */
        GROUPS = THREADS / GROUP,
        STAGE = DEPTH * GROUPS,
        VECTORS = SIDE * STAGE / 4 / THREADS, /* 4 elements each, per operand, thread, stage */
        STRIDE_K = 4 * THREADS / SIDE,        /* in k, between a thread's vectors */
        LD = SIDE + PADDING,
        B = STAGE * LD, /* offset of b's stage */
        BUFFER = 2 * B
    };
};

/* ---- operands, from global to shared memory ---- */

/* A thread's part of an operand's stage.  A "row" is a row of op(a) or a column of op(b).  ALONG_K:
 * four neighbours in memory belong to one row, else to one k.  WIDE: they are loaded as one vector
 * (the leading dimension is a multiple of four).  In place of a row beyond the last a thread loads
 * another one, and its result is not stored. */
template <typename T, int SIDE, bool ALONG_K, bool WIDE>
struct gemm_operand {
    typedef tile_shape<SIDE> t;
    const T *next; /* the next stage's first vector */
    int64_t ld;
    int rows_left; /* from the vector's first row on */
    vec<T, 4> x[t::VECTORS];

    /* The first vector's k and row in the stage. */
    static __device__ __forceinline__ int depth(void)
    {
        const int i = threadIdx.x;
        return ALONG_K ? i % 2 * 4 + i / (2 * SIDE) * 8 : i / (SIDE / 4);
    }
    static __device__ __forceinline__ int row(void)
    {
        const int i = threadIdx.x;
        return ALONG_K ? i / 2 % SIDE : i % (SIDE / 4) * 4;
    }

    /* The tile's rows begin at `first` of `rows`, its k at `begin` of K. */
    __device__ __forceinline__ void init(const T *from, int64_t first, int64_t rows, int64_t begin,
                                         int64_t K)
    {
        const int64_t r = min(first + row(), ALONG_K ? rows - 1 : WIDE ? rows - 4 : rows - 1);
        const int64_t k = begin + depth();
        ld = ALONG_K ? K : rows;
        rows_left = (int)min(rows - r, (int64_t)4);
        next = from + (ALONG_K ? r * ld + k : k * ld + r);
    }

    /* Loads the next stage; `k_left` is the length of k that is left. */
    __device__ __forceinline__ void load_stage(int k_left)
    {
        #pragma unroll 2
        for (int i = 0; i < t::VECTORS; i++) {
            const T *from = next + i * t::STRIDE_K * (ALONG_K ? 1 : ld);
            const int left = k_left - i * t::STRIDE_K - depth();
            x[i] = {};
            if (!WIDE)
                x[i] = gather_vec<4>(from, ALONG_K ? left : left > 0 ? rows_left : 0);
            else if (left > 0)
                x[i] = load_vec<4>(from);
        }
        next += t::STAGE * (ALONG_K ? 1 : ld);
    }

    __device__ __forceinline__ void store_stage(float *stage) const
    {
        float *to = stage + depth() * t::LD + row();
        #pragma unroll 2
        for (int i = 0; i < t::VECTORS; i++, to += t::STRIDE_K * t::LD) {
            float y[4];
            unpack(x[i], y);
            if (!ALONG_K) {
                store_vec(to, pack<float>(y));
                continue;
            }
            to[0] = y[0];
            to[t::LD] = y[1];
            to[2 * t::LD] = y[2];
            to[3 * t::LD] = y[3];
        }
    }
};

/* ---- a thread's 8 x 8 ---- */

/* Loads a fragment: eight elements of an operand at one k, as two vectors, at `from` and at from +
 * stride. */
static __device__ __forceinline__ void load_fragment(float x[8], const float *from, int stride)
{
    unpack(load_vec<4>(from), x);
    unpack(load_vec<4>(from + stride), x + 4);
}

static __device__ __forceinline__ void multiply_add(float sum[8][8], const float a[8],
                                                    const float b[8])
{
    #pragma unroll 8
    for (int i = 0; i < 8; i++) {
        #pragma unroll 8
        for (int j = 0; j < 8; j++)
            sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
    }
}

/* Adds the sums of all groups in the threads of the first group.  It is a tree reduction: the upper
 * half of the groups is added to the lower half until one group is left. */
template <int SIDE>
static __device__ __forceinline__ void add_groups(float sum[8][8], float *smem)
{
    const int group = threadIdx.x / tile_shape<SIDE>::GROUP,
              thread = threadIdx.x % tile_shape<SIDE>::GROUP;

    for (int half = tile_shape<SIDE>::GROUPS / 2; half; half /= 2) {
        float *mine = smem + group % half * 64 * tile_shape<SIDE>::GROUP + thread;
        __syncthreads();
        #pragma unroll 64
        for (int e = 0; e < 64; e++)
            if (group >= half && group < 2 * half)
                mine[e * tile_shape<SIDE>::GROUP] = sum[e / 8][e % 8];
        __syncthreads();
        #pragma unroll 64
        for (int e = 0; e < 64; e++)
            if (group < half)
                sum[e / 8][e % 8] += mine[e * tile_shape<SIDE>::GROUP];
    }
}

/* The epilogue of four columns of a row of c, of which `left` exist. */
template <typename C, bool WIDE>
static __device__ __forceinline__ void finish(C *c, const C *c0, float alpha, float beta,
                                              const float sum[4], int left)
{
    if (WIDE) {
        float old[4] = {};
        if (c0)
            unpack(load_vec<4>(c0), old);
        store_vec(c, make_vec<C, 4>([&](int e) { return fmaf(alpha, sum[e], beta * old[e]); }));
    } else {
        #pragma unroll 4
        for (int e = 0; e < 4; e++)
            if (e < left)
                store(c + e, c0 ? fmaf(alpha, sum[e], beta * load(c0 + e)) : alpha * sum[e]);
    }
}

/* A matrix c [M,N] = alpha sum + beta c0. */
template <typename C>
struct gemm_output {
    C *c;
    const C *c0;
    float alpha, beta;
    int64_t M, N;
};

/* The output of product g of the batch. */
template <typename T, typename C>
static __device__ __forceinline__ gemm_output<C> product_of(const gemm_problem<T, C> &p, int64_t g)
{
    const int64_t at = g * p.M * p.N;
    return {p.c + at, p.c0 ? p.c0 + at : NULL, p.alpha, p.beta, p.M, p.N};
}

/* The sum of product g over one slice of k, in the workspace. */
template <typename T, typename C>
static __device__ __forceinline__ gemm_output<float> partial_product_of(const gemm_problem<T, C> &p,
                                                                        int64_t slice, int64_t g)
{
    return {p.workspace + (slice * p.batch + g) * p.M * p.N, NULL, 1, 0, p.M, p.N};
}

template <typename C, bool WIDE>
static __device__ __forceinline__ void write_tile(const gemm_output<C> &to, const float sum[8][8],
                                                  int64_t m, int64_t n)
{
    #pragma unroll 8
    for (int i = 0; i < 8; i++) {
        const int64_t row = m + i % 4 + i / 4 * (WARP_M / 2);
        #pragma unroll 2
        for (int j = 0; j < 2; j++) {
            const int64_t column = n + j * (WARP_N / 2), at = row * to.N + column;
            if (row < to.M && column < to.N)
                finish<C, WIDE>(to.c + at, to.c0 ? to.c0 + at : NULL, to.alpha, to.beta,
                                sum[i] + 4 * j, (int)min(to.N - column, (int64_t)4));
        }
    }
}

/* blockIdx.x counts tiles along n, then along m, then slices of k, then products.  With more than
 * one slice the sums are stored in p.workspace [slices,batch,M,N], without alpha and c0.
 *
 * The lanes of a warp form a 4 x 8 grid over its part of c; lanes 2i and 2i + 1 are one below
 * the other.  A quarter of the warp then reads two vectors of a and four of b, without bank
 * conflicts. */
template <typename T, typename C, int SIDE, bool TRANS_A, bool TRANS_B, bool WIDE>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    multiply_blocked(gemm_problem<T, C> p, int slices)
{
    typedef tile_shape<SIDE> t;
    __shared__ __align__(16) float smem[2 * t::BUFFER]; /* two stages, each of a and b */
    const unsigned tiles_n = (unsigned)ceil_div(p.N, SIDE), tiles_m = (unsigned)ceil_div(p.M, SIDE);
    const unsigned row = blockIdx.x / tiles_n, output = row / tiles_m;
    const int64_t n0 = (int64_t)(blockIdx.x % tiles_n) * SIDE, m0 = (int64_t)(row % tiles_m) * SIDE;
    const int64_t slice = output % slices, g = output / slices, stages = ceil_div(p.K, t::STAGE);
    const int begin = (int)(slice * stages / slices), end = (int)((slice + 1) * stages / slices);
    const int k = (int)(min((int64_t)end * t::STAGE, p.K) - (int64_t)begin * t::STAGE);

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = threadIdx.x / t::GROUP;
    const int m = warp % t::WARPS_M * WARP_M + (lane / 16 * 2 + lane % 2) * 4;
    const int n = warp / t::WARPS_M % t::WARPS_N * WARP_N + lane / 2 % 8 * 4;
    gemm_operand<T, SIDE, !TRANS_A, WIDE> operand_a;
    gemm_operand<T, SIDE, TRANS_B, WIDE> operand_b;
    float sum[8][8] = {}, a[2][8], b[2][8];

    operand_a.init(p.a + g * p.M * p.K, m0, p.M, (int64_t)begin * t::STAGE, p.K);
    operand_b.init(p.b + g * p.K * p.N, n0, p.N, (int64_t)begin * t::STAGE, p.K);
    operand_a.load_stage(k);
    operand_b.load_stage(k);
    operand_a.store_stage(smem);
    operand_b.store_stage(smem + t::B);
    __syncthreads();
    const float *const smem_a = smem + group * DEPTH * t::LD + m;
    const float *const smem_b = smem + t::B + group * DEPTH * t::LD + n;
    load_fragment(a[0], smem_a, WARP_M / 2);
    load_fragment(b[0], smem_b, WARP_N / 2);
    int buffer = 0;
    for (int left = k; left > 0; left -= t::STAGE) {
        #pragma unroll 8
        for (int j = 0; j < DEPTH; j++) {
            if (j == DEPTH - 1) {
                buffer ^= t::BUFFER;
                operand_a.store_stage(smem + buffer);
                operand_b.store_stage(smem + buffer + t::B);
                __syncthreads();
            }
            const int next = buffer + (j + 1) % DEPTH * t::LD;
            load_fragment(a[(j + 1) % 2], smem_a + next, WARP_M / 2);
            load_fragment(b[(j + 1) % 2], smem_b + next, WARP_N / 2);
            if (j == 0) {
                operand_a.load_stage(left - t::STAGE);
                operand_b.load_stage(left - t::STAGE);
            }
            multiply_add(sum, a[j % 2], b[j % 2]);
        }
    }
    add_groups<SIDE>(sum, smem);
    if (group)
        return;
    if (slices == 1)
        write_tile<C, WIDE>(product_of(p, g), sum, m0 + m, n0 + n);
    else
        write_tile<float, WIDE>(partial_product_of(p, slice, g), sum, m0 + m, n0 + n);
}

/* ---- the tile shape, and the slices of k ---- */

struct gemm_plan {
    int side, slices;
    int64_t blocks;
    bool wide;
};

template <typename T, typename C>
static int64_t tiles_of(const gemm_problem<T, C> &p, int side)
{
    return p.batch * ceil_div(p.M, side) * ceil_div(p.N, side);
}

/* The estimated time of all tiles, in units of the time per element of c: waves of resident blocks
 * times elements of a tile.  Small tiles read more operand elements per FMA. */
template <typename T, typename C>
static double time_of(struct context *on, const gemm_problem<T, C> &p, int side, bool split)
{
    const double waves = (double)tiles_of(p, side) / (RESIDENT * (double)on->limits.sms);
    return (split ? waves : ceil(waves)) * side * side * (side == 64 ? 1.15 : 1);
}

/* With `split` the slices fill the SMs once, but each has at least four stages.  A sum of a thread
 * never exceeds MAX_RUNS runs.  Tensors are aligned to 16 bytes, so that rows of a multiple of four
 * elements are aligned to vectors of four. */
template <typename T, typename C>
static gemm_plan plan_of(struct context *on, const gemm_problem<T, C> &p, bool split)
{
    gemm_plan plan;
    plan.wide = !((p.trans_a ? p.M : p.K) % 4 || (p.trans_b ? p.K : p.N) % 4 || p.N % 4);
    plan.side = plan.wide && time_of(on, p, 128, split) <= time_of(on, p, 64, split) ? 128 : 64;
    const int64_t tiles = tiles_of(p, plan.side);
    const int64_t stages =
        ceil_div(p.K, plan.side == 128 ? +tile_shape<128>::STAGE : +tile_shape<64>::STAGE);
    const int64_t fill = RESIDENT * (int64_t)on->limits.sms / tiles;
    const int64_t max_slices = fill < stages / 4 ? fill : stages / 4;
    const int64_t min_slices = ceil_div(stages, MAX_RUNS * GEMM_RUN / DEPTH);
    plan.slices = (int)max(split ? max_slices : 0, max(min_slices, (int64_t)1));
    plan.blocks = tiles * plan.slices;
    return plan;
}

template <typename T, typename C, int SIDE, bool WIDE>
static void start(struct context *on, const gemm_problem<T, C> &p, const gemm_plan &plan)
{
    void (*const kernel[2][2])(gemm_problem<T, C>,
                               int) = {{multiply_blocked<T, C, SIDE, false, false, WIDE>,
                                        multiply_blocked<T, C, SIDE, false, true, WIDE>},
                                       {multiply_blocked<T, C, SIDE, true, false, WIDE>,
                                        multiply_blocked<T, C, SIDE, true, true, WIDE>}};
    auto *const multiply = kernel[p.trans_a][p.trans_b];
    multiply<<<plan.blocks, THREADS, 0, on->stream>>>(p, plan.slices);
}

template <typename T, typename C>
static int multiply_by(struct context *on, const gemm_problem<T, C> &p, const gemm_plan &plan)
{
    if (!plan.wide)
        start<T, C, 64, false>(on, p, plan);
    else if (plan.side == 64)
        start<T, C, 64, true>(on, p, plan);
    else
        start<T, C, 128, true>(on, p, plan);
    CUDA(cudaGetLastError());
    if (plan.slices == 1)
        return 0;
    return gemm_add_parts(on, p.workspace, plan.slices, p.batch * p.M * p.N, p.alpha, p.beta, p.c0,
                          p.c);
}

/* SPLIT: k is split into slices that fill the SMs. */
template <bool SPLIT, typename BASE>
struct blocked_engine : BASE {
    template <typename T, typename C>
    static const char *declines(struct context *on, const gemm_problem<T, C> &p)
    {
        return plan_of(on, p, SPLIT).blocks > 0x7fffffff ? "more than 2147483647 tiles of 64 x 64"
                                                         : NULL;
    }

    template <typename T, typename C>
    static size_t workspace(struct context *on, const gemm_problem<T, C> &p)
    {
        const int64_t slices = plan_of(on, p, SPLIT).slices;
        return slices > 1 ? sizeof(float) * slices * p.batch * p.M * p.N : 0;
    }

    template <typename T, typename C>
    static int multiply(struct context *on, const gemm_problem<T, C> &p)
    {
        return multiply_by(on, p, plan_of(on, p, SPLIT));
    }
};

struct gemm_blocked : blocked_engine<false, gemm_engine<gemm_blocked>> {
};
struct gemm_splitk : blocked_engine<true, gemm_thin_engine<gemm_splitk>> {
};

template <typename T>
const struct impl gemm_blocks<T>::kernel = gemm_kernel<T, gemm_blocked>(
    "blocked", "8 x 8 per thread, 128 x 128 per block, two stages of shared memory");
template <typename T>
const struct impl gemm_slices<T>::kernel = gemm_kernel<T, gemm_splitk>(
    "splitk", "the same on slices of K that fill the chip, summed in order");
GPU_INSTANCES(gemm_blocks)
GPU_INSTANCES(gemm_slices)
