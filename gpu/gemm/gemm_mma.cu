/* gemm, mma: c = alpha op(a) op(b) + beta c0 on tensor cores by mma.m16n8k16.  A block of eight
 * warps computes a 128 x 128 tile, a warp 64 x 32 of it: six ldmatrix.x4 load the operands of
 * sixteen mma.  The mainloop is a pipeline of four stages with 32 elements along k each: while one
 * stage is multiplied, the next three are in flight by cp.async.
 *
 * Shared memory holds each operand in its stored layout; ldmatrix transposes it where needed.  An
 * operand whose rows are not a multiple of 16 bytes is loaded element by element into the same
 * layout. */
#include "gpu/device/async.cuh"
#include "gpu/device/fragment.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/gemm/gemm.cuh"

enum {
    THREADS = 256,
    SIDE = 128, /* of a tile */
    WARP_M = 64,
    WARP_N = 32,
    STAGES = 4,
    BK = 32,         /* k per stage */
    OPERAND = 5120,  /* elements of an operand's stage: 128 rows of 32, padded, or 32 of 128 */
    BAND = 8,        /* rows of tiles per band of the rasterization */
    RESIDENT = 2,    /* blocks per SM */
    MIN_K_TILES = 16 /* minimum stages per slice of k */
};

/* The tile schedule: a block per tile of [slices,batch] outputs. */
struct mma_schedule {
    int64_t tiles_m, tiles_n;  /* per output */
    int64_t slices, k_tiles;   /* slices of k, and stages per slice (the last may have fewer) */
    bool aligned_a, aligned_b; /* rows begin at multiples of 16 bytes */
};

/* Loads a stage of one operand: HEIGHT rows of WIDTH elements, from (row, column) of `from`
 * [rows,columns] on.  Elements outside of `from` are zero. */
template <int HEIGHT, int WIDTH>
static __device__ __forceinline__ void load_operand(bf16 *to, const bf16 *from, int64_t row,
                                                    int64_t column, int64_t rows, int64_t columns,
                                                    bool aligned)
{
    #pragma unroll 2
    for (int i = 0; i < HEIGHT * WIDTH / 8 / THREADS; i++) {
        const int vector = i * THREADS + (int)threadIdx.x, r = vector / (WIDTH / 8);
        const int c = vector % (WIDTH / 8) * 8;
        const int64_t left = row + r < rows ? columns - column - c : 0;
        const bf16 *at = left > 0 ? from + (row + r) * columns + column + c : from;
        bf16 *smem = to + r * padded(WIDTH) + c;
        if (aligned)
            cp_async16(smem, at, left > 0 ? 16 : 0);
        else
            store_vec(smem, gather_vec<8>(at, (int)min(left, (int64_t)8)));
    }
}

/* Loads a stage of both operands, for the tile at (m, n). */
template <bool TRANS_A, bool TRANS_B, typename C>
static __device__ __forceinline__ void load_stage(bf16 *stage, const gemm_problem<bf16, C> &p,
                                                  const mma_schedule &s, int64_t g, int64_t m,
                                                  int64_t n, int64_t k)
{
    const bf16 *a = p.a + g * p.M * p.K, *b = p.b + g * p.K * p.N;
    if (TRANS_A)
        load_operand<BK, SIDE>(stage, a, k, m, p.K, p.M, s.aligned_a);
    else
        load_operand<SIDE, BK>(stage, a, m, k, p.M, p.K, s.aligned_a);
    if (TRANS_B)
        load_operand<SIDE, BK>(stage + OPERAND, b, n, k, p.N, p.K, s.aligned_b);
    else
        load_operand<BK, SIDE>(stage + OPERAND, b, k, n, p.K, p.N, s.aligned_b);
}

/* acc += a warp's part of the tile's product over a stage. */
template <bool TRANS_A, bool TRANS_B>
static __device__ __forceinline__ void multiply_stage(float (*acc)[WARP_N / 8][4],
                                                      const bf16 *stage, int m, int n)
{
    #pragma unroll 2
    for (int k = 0; k < BK; k += 16) {
        unsigned a[WARP_M / 16][4], b[WARP_N / 16][4];
        #pragma unroll 4
        for (int i = 0; i < WARP_M / 16; i++)
            load_fragment_a<TRANS_A>(a[i], stage, padded(TRANS_A ? SIDE : BK), m + 16 * i, k);
        #pragma unroll 2
        for (int j = 0; j < WARP_N / 16; j++)
            load_fragment_b<TRANS_B>(b[j], stage + OPERAND, padded(TRANS_B ? BK : SIDE), k,
                                     n + 16 * j);
        #pragma unroll 4
        for (int i = 0; i < WARP_M / 16; i++)
            #pragma unroll 4
            for (int j = 0; j < WARP_N / 8; j++)
                mma_bf16(acc[i][j], a[i], b[j / 2] + j % 2 * 2);
    }
}

/* The epilogue of columns n and n + 1 of row m of output `output`, where they exist. */
template <typename C>
static __device__ __forceinline__ void store_columns(const gemm_problem<bf16, C> &p, int64_t output,
                                                     int64_t m, int64_t n, const float *acc)
{
    const int64_t at = (output * p.M + m) * p.N + n;
    float x[2];
    if (m >= p.M || n >= p.N)
        return;
    #pragma unroll 2
    for (int i = 0; i < 2; i++) {
        x[i] = p.alpha * acc[i];
        if (p.c0 && n + i < p.N)
            x[i] = fmaf(p.beta, load(p.c0 + at + i), x[i]);
    }
    if (p.N % 2 == 0) {
        store_pair(p.c + at, x[0], x[1]);
    } else {
        store(p.c + at, x[0]);
        if (n + 1 < p.N)
            store(p.c + at + 1, x[1]);
    }
}

/* blockIdx.x counts tiles, rasterized in bands so that concurrent blocks share rows of a and
 * columns of b in L2; then products, then slices of k.  Each slice has its own output. */
template <bool TRANS_A, bool TRANS_B, typename C>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    multiply_mma(const gemm_problem<bf16, C> p, const mma_schedule s)
{
    extern __shared__ __align__(16) unsigned char shared[];
    bf16 *stages = (bf16 *)shared;
    const int64_t output = blockIdx.x / (s.tiles_m * s.tiles_n);
    const unsigned in_output = (unsigned)(blockIdx.x % (s.tiles_m * s.tiles_n));
    const unsigned band = in_output / (BAND * (unsigned)s.tiles_n) * BAND;
    const unsigned band_rows = min((unsigned)BAND, (unsigned)s.tiles_m - band);
    const unsigned in_band = in_output - band * (unsigned)s.tiles_n;
    const int64_t m = (int64_t)(band + in_band % band_rows) * SIDE,
                  n = (int64_t)(in_band / band_rows) * SIDE;
    const int64_t g = output % p.batch, begin = output / p.batch * s.k_tiles;
    const int k_tiles = (int)(min(begin + s.k_tiles, ceil_div(p.K, BK)) - begin);
    const int warp = threadIdx.x / 32, warp_m = warp % 2 * WARP_M, warp_n = warp / 2 * WARP_N;
    float acc[WARP_M / 16][WARP_N / 8][4] = {};

    for (int i = 0; i < STAGES - 1; i++) {
        if (i < k_tiles)
            load_stage<TRANS_A, TRANS_B>(stages + i * 2 * OPERAND, p, s, g, m, n, (begin + i) * BK);
        cp_async_commit();
    }
    for (int i = 0; i < k_tiles; i++) {
        const int next = i + STAGES - 1;
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        if (next < k_tiles)
            load_stage<TRANS_A, TRANS_B>(stages + next % STAGES * 2 * OPERAND, p, s, g, m, n,
                                         (begin + next) * BK);
        cp_async_commit();
        multiply_stage<TRANS_A, TRANS_B>(acc, stages + i % STAGES * 2 * OPERAND, warp_m, warp_n);
    }
    #pragma unroll 4
    for (int i = 0; i < WARP_M / 16; i++)
        #pragma unroll 4
        for (int j = 0; j < WARP_N / 8; j++)
            #pragma unroll 2
            for (int half = 0; half < 2; half++)
                store_columns(p, output, m + warp_m + 16 * i + 8 * half + fragment_row(),
                              n + warp_n + 8 * j + fragment_column(), acc[i][j] + 2 * half);
}

/* Splits k into slices where there are too few tiles to fill the SMs and k is long. */
template <typename C>
static mma_schedule schedule_of(struct context *on, const gemm_problem<bf16, C> &p)
{
    mma_schedule s;
    const int64_t k_tiles = ceil_div(p.K, BK);
    s.tiles_m = ceil_div(p.M, SIDE);
    s.tiles_n = ceil_div(p.N, SIDE);
    const int64_t fill = RESIDENT * on->limits.sms / (s.tiles_m * s.tiles_n * p.batch);
    const int64_t wanted = max((int64_t)1, min(fill, k_tiles / MIN_K_TILES));
    s.k_tiles = ceil_div(k_tiles, wanted);
    s.slices = ceil_div(k_tiles, s.k_tiles);
    s.aligned_a = (p.trans_a ? p.M : p.K) % 8 == 0;
    s.aligned_b = (p.trans_b ? p.K : p.N) % 8 == 0;
    return s;
}

template <bool TRANS_A, bool TRANS_B, typename C>
static int start(struct context *on, const gemm_problem<bf16, C> &p, const mma_schedule &s)
{
    const auto kernel = multiply_mma<TRANS_A, TRANS_B, C>;
    const size_t bytes = STAGES * 2 * OPERAND * sizeof(bf16);
    const int64_t blocks = s.tiles_m * s.tiles_n * p.batch * s.slices;
    CUDA(allow_smem(kernel, bytes));
    kernel<<<blocks, THREADS, bytes, on->stream>>>(p, s);
    return cudaGetLastError();
}

template <typename C>
static int start(struct context *on, const gemm_problem<bf16, C> &p, const mma_schedule &s)
{
    return p.trans_a   ? p.trans_b ? start<true, true>(on, p, s) : start<true, false>(on, p, s)
             : p.trans_b ? start<false, true>(on, p, s)
                       : start<false, false>(on, p, s);
}

struct gemm_mma : gemm_thin_engine<gemm_mma> {
    template <typename T, typename C>
    static size_t workspace(struct context *on, const gemm_problem<T, C> &p)
    {
        const int64_t slices = schedule_of(on, p).slices;
        return slices > 1 ? sizeof(float) * slices * p.batch * p.M * p.N : 0;
    }

    template <typename T, typename C>
    static const char *declines(struct context *on, const gemm_problem<T, C> &p)
    {
        const mma_schedule s = schedule_of(on, p);
        if ((double)s.tiles_m * s.tiles_n * p.batch * s.slices > 0x7fffffff)
            return "more than 2147483647 tiles of 128 x 128";
        return on->properties.major < 8 ? "needs a GPU of compute capability 8.0 or more" : NULL;
    }

    template <typename T, typename C>
    static int multiply(struct context *on, const gemm_problem<T, C> &p)
    {
        const mma_schedule s = schedule_of(on, p);
        if (s.slices == 1)
            return start(on, p, s);
        const gemm_problem<T, float> sums = {
            p.a, p.b, NULL, p.workspace, p.M, p.N, p.K, p.batch, p.trans_a, p.trans_b, 1, 0, NULL};
        CUDA((cudaError_t)start(on, sums, s));
        return gemm_add_parts(on, p.workspace, s.slices, p.batch * p.M * p.N, p.alpha, p.beta, p.c0,
                              p.c);
    }
};

const struct impl gemm_by_mma = gemm_kernel<__nv_bfloat16, gemm_mma>(
    "mma", "tensor cores, 64 x 32 per warp, a ring of four stages of shared memory");
