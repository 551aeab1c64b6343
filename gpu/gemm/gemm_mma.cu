/* gemm, mma: tensor cores, a warp at a time.  A block of eight warps makes a tile of 128 x 128, a
 * warp 64 x 32 of it, so that six reads of four 8 x 8 matrices serve sixteen products; k goes by
 * in stages of 32, of which the next three are on their way from global memory, past the
 * registers, while one is multiplied.
 *
 * Each operand lies in shared memory as it is stored, and is turned, where it must be, on its way
 * into registers.  An operand whose rows are no multiple of 16 bytes is gathered number by number
 * into the same places. */
#include "gpu/device/async.cuh"
#include "gpu/device/mma.cuh"
#include "gpu/gemm/gemm.cuh"
#include "gpu/gemm/gemm_pairs.cuh"

enum {
    THREADS = 256,
    SIDE = 128, /* of a tile */
    WARP_M = 64,
    WARP_N = 32,
    STAGES = 4,
    BK = 32,      /* k of a stage */
    ROOM = 5120,  /* numbers of an operand's stage: 128 rows of 32, padded, or 32 of 128 */
    BAND = 8,     /* rows of tiles that are walked together, column by column */
    RESIDENT = 2, /* blocks on an SM */
    LEAST = 16    /* stages of a slice, at least */
};

/* How the blocks share the work: tiles of slices of k of products. */
struct share {
    int64_t down, across;      /* tiles of a product */
    int64_t slices, steps;     /* of k, and the stages of each but the last */
    bool aligned_a, aligned_b; /* rows begin at multiples of 16 bytes */
};

/* Up to eight numbers, and zeros. */
static __device__ __forceinline__ uint4 gathered(const bf16 *from, int64_t there)
{
    const unsigned short *bits = (const unsigned short *)from;
    unsigned x[4];
    #pragma unroll 4
    for (int i = 0; i < 4; i++)
        x[i] = (2 * i < there ? bits[2 * i] : 0) | (2 * i + 1 < there ? bits[2 * i + 1] : 0) << 16;
    return make_uint4(x[0], x[1], x[2], x[3]);
}

/* HIGH rows of WIDE numbers, from (row, column) of `from` [rows,columns] on, zero beyond it. */
template <int HIGH, int WIDE>
static __device__ __forceinline__ void bring(bf16 *to, const bf16 *from, int64_t row,
                                             int64_t column, int64_t rows, int64_t columns,
                                             bool aligned)
{
    #pragma unroll 2
    for (int i = 0; i < HIGH * WIDE / 8 / THREADS; i++) {
        const int chunk = i * THREADS + (int)threadIdx.x, r = chunk / (WIDE / 8);
        const int c = chunk % (WIDE / 8) * 8;
        const int64_t left = row + r < rows ? columns - column - c : 0;
        const bf16 *at = left > 0 ? from + (row + r) * columns + column + c : from;
        bf16 *place = to + r * padded(WIDE) + c;
        if (aligned)
            cp_async16(place, at, left > 0 ? 16 : 0);
        else
            *(uint4 *)place = gathered(at, left);
    }
}

/* A stage of both operands, for the tile at (m, n). */
template <bool TRANS_A, bool TRANS_B, typename C>
static __device__ __forceinline__ void bring_both(bf16 *stage, const gemm_problem<bf16, C> &p,
                                                  const share &s, int64_t g, int64_t m, int64_t n,
                                                  int64_t k)
{
    const bf16 *a = p.a + g * p.M * p.K, *b = p.b + g * p.K * p.N;
    if (TRANS_A)
        bring<BK, SIDE>(stage, a, k, m, p.K, p.M, s.aligned_a);
    else
        bring<SIDE, BK>(stage, a, m, k, p.M, p.K, s.aligned_a);
    if (TRANS_B)
        bring<SIDE, BK>(stage + ROOM, b, n, k, p.N, p.K, s.aligned_b);
    else
        bring<BK, SIDE>(stage + ROOM, b, k, n, p.K, p.N, s.aligned_b);
}

/* sum += a warp's part of the tile's product over a stage. */
template <bool TRANS_A, bool TRANS_B>
static __device__ __forceinline__ void multiply_stage(float (*sum)[WARP_N / 8][4],
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
            load_fragment_b<TRANS_B>(b[j], stage + ROOM, padded(TRANS_B ? BK : SIDE), k,
                                     n + 16 * j);
        #pragma unroll 4
        for (int i = 0; i < WARP_M / 16; i++)
            #pragma unroll 4
            for (int j = 0; j < WARP_N / 8; j++)
                mma_bf16(sum[i][j], a[i], b[j / 2] + j % 2 * 2);
    }
}

/* Numbers n and n + 1 of row m of layer `layer`, where they are. */
template <typename C>
static __device__ __forceinline__ void put(const gemm_problem<bf16, C> &p, int64_t layer, int64_t m,
                                           int64_t n, const float *sum)
{
    const int64_t at = (layer * p.M + m) * p.N + n;
    float x[2];
    if (m >= p.M || n >= p.N)
        return;
    #pragma unroll 2
    for (int i = 0; i < 2; i++) {
        x[i] = p.alpha * sum[i];
        if (p.c0 && n + i < p.N)
            x[i] = fmaf(p.beta, load(p.c0 + at + i), x[i]);
    }
    if (p.N % 2 == 0) {
        put_pair(p.c + at, x[0], x[1]);
    } else {
        store(p.c + at, x[0]);
        if (n + 1 < p.N)
            store(p.c + at + 1, x[1]);
    }
}

/* Blocks: bands of tiles, so that those at work share rows of a and columns of b in the cache;
 * then products, then slices of k, whose sums are layers of c. */
template <bool TRANS_A, bool TRANS_B, typename C>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    multiply_mma(const gemm_problem<bf16, C> p, const share s)
{
    extern __shared__ __align__(16) unsigned char memory[];
    bf16 *ring = (bf16 *)memory;
    const int64_t layer = blockIdx.x / (s.down * s.across);
    const unsigned in = (unsigned)(blockIdx.x % (s.down * s.across));
    const unsigned band = in / (BAND * (unsigned)s.across) * BAND;
    const unsigned high = min((unsigned)BAND, (unsigned)s.down - band);
    const unsigned place = in - band * (unsigned)s.across;
    const int64_t m = (int64_t)(band + place % high) * SIDE, n = (int64_t)(place / high) * SIDE;
    const int64_t g = layer % p.batch, begin = layer / p.batch * s.steps;
    const int steps = (int)(min(begin + s.steps, ceil_div(p.K, BK)) - begin);
    const int warp = threadIdx.x / 32, warp_m = warp % 2 * WARP_M, warp_n = warp / 2 * WARP_N;
    float sum[WARP_M / 16][WARP_N / 8][4] = {};

    for (int i = 0; i < STAGES - 1; i++) {
        if (i < steps)
            bring_both<TRANS_A, TRANS_B>(ring + i * 2 * ROOM, p, s, g, m, n, (begin + i) * BK);
        cp_async_commit();
    }
    for (int i = 0; i < steps; i++) {
        const int next = i + STAGES - 1;
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        if (next < steps)
            bring_both<TRANS_A, TRANS_B>(ring + next % STAGES * 2 * ROOM, p, s, g, m, n,
                                         (begin + next) * BK);
        cp_async_commit();
        multiply_stage<TRANS_A, TRANS_B>(sum, ring + i % STAGES * 2 * ROOM, warp_m, warp_n);
    }
    #pragma unroll 4
    for (int i = 0; i < WARP_M / 16; i++)
        #pragma unroll 4
        for (int j = 0; j < WARP_N / 8; j++)
            #pragma unroll 2
            for (int half = 0; half < 2; half++)
                put(p, layer, m + warp_m + 16 * i + 8 * half + fragment_row(),
                    n + warp_n + 8 * j + fragment_column(), sum[i][j] + 2 * half);
}

/* Slices of k where the tiles are too few for the chip and k is long. */
template <typename C>
static share share_of(const gemm_problem<bf16, C> &p)
{
    share s;
    const int64_t steps = ceil_div(p.K, BK);
    s.down = ceil_div(p.M, SIDE);
    s.across = ceil_div(p.N, SIDE);
    const int64_t fill =
        RESIDENT * gpu_properties().multiProcessorCount / (s.down * s.across * p.batch);
    const int64_t wanted = max((int64_t)1, min(fill, steps / LEAST));
    s.steps = ceil_div(steps, wanted);
    s.slices = ceil_div(steps, s.steps);
    s.aligned_a = (p.trans_a ? p.M : p.K) % 8 == 0;
    s.aligned_b = (p.trans_b ? p.K : p.N) % 8 == 0;
    return s;
}

template <bool TRANS_A, bool TRANS_B, typename C>
static int start(const gemm_problem<bf16, C> &p, const share &s)
{
    const auto kernel = multiply_mma<TRANS_A, TRANS_B, C>;
    const size_t bytes = STAGES * 2 * ROOM * sizeof(bf16);
    const int64_t blocks = s.down * s.across * p.batch * s.slices;
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<blocks, THREADS, bytes, gpu_stream()>>>(p, s);
    return cudaGetLastError();
}

template <typename C>
static int start(const gemm_problem<bf16, C> &p, const share &s)
{
    return p.trans_a   ? p.trans_b ? start<true, true>(p, s) : start<true, false>(p, s)
             : p.trans_b ? start<false, true>(p, s)
                       : start<false, false>(p, s);
}

struct gemm_mma : gemm_thin_engine<gemm_mma> {
    template <typename T, typename C>
    static size_t workspace(const gemm_problem<T, C> &p)
    {
        const int64_t slices = share_of(p).slices;
        return slices > 1 ? sizeof(float) * slices * p.batch * p.M * p.N : 0;
    }

    template <typename T, typename C>
    static const char *declines(const gemm_problem<T, C> &p)
    {
        const share s = share_of(p);
        if ((double)s.down * s.across * p.batch * s.slices > 0x7fffffff)
            return "more than 2147483647 tiles of 128 x 128";
        return gpu_properties().major < 8 ? "needs a GPU of compute capability 8.0 or more" : NULL;
    }

    template <typename T, typename C>
    static int multiply(const gemm_problem<T, C> &p)
    {
        const share s = share_of(p);
        if (s.slices == 1)
            return start(p, s);
        const gemm_problem<T, float> sums = {
            p.a, p.b, NULL, p.workspace, p.M, p.N, p.K, p.batch, p.trans_a, p.trans_b, 1, 0, NULL};
        CUDA((cudaError_t)start(sums, s));
        return gemm_add_parts(p.workspace, s.slices, p.batch * p.M * p.N, p.alpha, p.beta, p.c0,
                              p.c);
    }
};

GEMM_IMPL(extern "C", 16, __nv_bfloat16, mma,
          "tensor cores, 64 x 32 a warp, a ring of four stages of shared memory");
