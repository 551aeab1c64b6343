/* gemm_quantised, mma: y = x W^T for up to 64 rows of bf16 x, on tensor cores.  W is the left operand:
 * quants are exact in bf16, and a scale multiplies the sum over its weights, in float:
 *
 *     y[m][n] = sum over blocks j of  s[n][j] (sum of q x[m]) - m[n][j] (sum of x[m])
 *
 * Four warps share the units of 256 weights (mma_unit.cuh) of 16 rows of W, a tile, which cp.async brings
 * to shared memory.  A block has one tile, or, for many rows of x, two, which find the same x in the L1
 * cache.  All sums are added in one order, whatever the number of rows of x: a row's bits are the same in
 * each. */
#include "gpu/device/async.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/quantised/gemm_quantised.cuh"
#include "gpu/quantised/mma_unit.cuh"

enum { WARPS = 4 /* that share a tile */, STAGES = 4, ROWS = 16 };

/* Tiles of a block, for 8 MT rows of x. */
template <int MT>
static constexpr int TILES = MT < 4 ? 1 : 2;

/* Shared memory for a unit of a row: it may begin anywhere in 16 bytes, and the quads of 8 rows are in
 * different banks. */
template <typename F>
static constexpr int CHUNKS = (unit<F>::BYTES + 16 - unit<F>::ALIGNED + 15) / 16;
template <typename F>
static constexpr int STRIDE = CHUNKS<F> * 16 + (160 - CHUNKS<F> * 16 % 128) % 128 % 64;

template <typename F>
static constexpr int STAGE_BYTES = ROWS *STRIDE<F>;

static __device__ __forceinline__ const uint8_t *aligned_down(const uint8_t *at)
{
    return (const uint8_t *)((uintptr_t)at & ~(uintptr_t)15);
}

/* The rows of W that a warp multiplies, and what each lane copies of a unit. */
template <typename F>
struct rows_of_warp {
    static constexpr int COPIES = (ROWS * CHUNKS<F> + 31) / 32;
    static constexpr bool INSIDE = unit<F>::ALIGNED == 16 && unit<F>::WHOLE_UNITS;

    const uint8_t *end;         /* of W */
    const uint8_t *row[COPIES]; /* those of which this lane copies 16 bytes */
    const uint8_t *mine[2];     /* rows g and g + 8 */
    unsigned char *stages;

    __device__ __forceinline__ rows_of_warp(const packed_rows &w, int64_t n0, int64_t N,
                                            unsigned char *shared)
        : end(w.W + w.bytes), stages(shared + threadIdx.x / 32 * (STAGES * STAGE_BYTES<F>))
    {
        const int lane = (int)threadIdx.x % 32;
        #pragma unroll
        for (int i = 0; i < COPIES; i++)
            row[i] = w.W + min(n0 + (lane + 32 * i) / CHUNKS<F>, N - 1) * w.row_bytes;
        for (int r = 0; r < 2; r++)
            mine[r] = w.W + min(n0 + fragment_row() + 8 * r, N - 1) * w.row_bytes;
    }

    /* Begin to copy unit u into a stage: whole 16 bytes, from the multiple of 16 before it. */
    __device__ __forceinline__ void copy(int64_t u, int stage) const
    {
        const int lane = (int)threadIdx.x % 32;
        unsigned char *to = stages + stage * STAGE_BYTES<F>;
        #pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const int c = lane + 32 * i, part = c % CHUNKS<F>;
            const uint8_t *from = aligned_down(row[i] + u * unit<F>::BYTES) + 16 * part;
            const int64_t left = INSIDE ? 16 : end - from;
            if (ROWS * CHUNKS<F> % 32 == 0 || c < ROWS * CHUNKS<F>)
                cp_async16(to + c / CHUNKS<F> * STRIDE<F> + 16 * part,
                           left > 0 ? from : aligned_down(row[i]),
                           left >= 16 ? 16
                           : left > 0 ? (int)left
                                      : 0);
        }
    }

    /* Where unit u of row g, or of g + 8, is in its stage. */
    __device__ __forceinline__ const uint8_t *staged(int64_t u, int r, int stage) const
    {
        const uint8_t *at = mine[r] + u * unit<F>::BYTES;
        return stages + stage * STAGE_BYTES<F> + (fragment_row() + 8 * r) * STRIDE<F> +
               ((uintptr_t)at & 15);
    }
};

/* nf4's scales of a unit for this lane: of parts 2 t and 2 t + 1, rows g and g + 8. */
struct unit_scales {
    float of[2][2];
};

static __device__ __forceinline__ unit_scales scales_of_unit(const packed_rows &w,
                                                             const int64_t *first, int64_t k)
{
    const int t = (int)threadIdx.x % 4;
    unit_scales s;
    #pragma unroll
    for (int r = 0; r < 2; r++)
        #pragma unroll
        for (int i = 0; i < 2; i++) /* behind the last one nothing uses them */
            s.of[r][i] =
                w.scales.at(min((first[r] + k + 32 * (2 * t + i)) >> w.log2_block, w.blocks - 1));
    return s;
}

/* The eight elements of a row of x, from `at` on, that go with a lane's pairs. */
template <typename F>
static __device__ __forceinline__ uint4 x_of(const bf16 *at)
{
    const int t = (int)threadIdx.x % 4;

    if (!unit<F>::HALVES)
        return *(const uint4 *)(at + 8 * t);
    const uint2 first = *(const uint2 *)(at + 4 * t), second = *(const uint2 *)(at + 16 + 4 * t);
    return {first.x, first.y, second.x, second.y};
}

/* sum += scale d, of rows g and g + 8; both scales have one element for each row. */
static __device__ __forceinline__ void add_scaled(float *sum, const float *d, float low, float high)
{
    sum[0] = fmaf(low, d[0], sum[0]);
    sum[1] = fmaf(low, d[1], sum[1]);
    sum[2] = fmaf(high, d[2], sum[2]);
    sum[3] = fmaf(high, d[3], sum[3]);
}

/* sum += 32 weights of both rows times x. */
template <typename F, int MT>
static __device__ __forceinline__ void add_part(float (*sum)[4], const unsigned (*p)[4],
                                                const float2 (*line)[2], const uint4 *x)
{
    const unsigned first[4] = {p[0][0], p[1][0], p[0][1], p[1][1]};
    const unsigned second[4] = {p[0][2], p[1][2], p[0][3], p[1][3]};
    const unsigned ones[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};

    #pragma unroll
    for (int m = 0; m < MT; m++) {
        const unsigned low[2] = {x[m].x, x[m].y}, high[2] = {x[m].z, x[m].w};
        float d[4], of_second[4];
        mma_bf16_first(d, first, low);
        if (unit<F>::HALVES)
            mma_bf16_first(of_second, second, high);
        else
            mma_bf16(d, second, high);
        add_scaled(sum[m], d, line[0][0].x, line[1][0].x);
        if (unit<F>::HALVES)
            add_scaled(sum[m], of_second, line[0][1].x, line[1][1].x);
        if (unit<F>::OFFSET) {
            float of_x[4];
            mma_bf16_first(of_x, ones, low);
            mma_bf16(of_x, ones, high);
            add_scaled(sum[m], of_x, -line[0][0].y, -line[1][0].y);
        }
    }
}

/* The rows of x that go with a lane, and a part of them that is on its way. */
template <typename F, int MT>
struct x_of_lane {
    const bf16 *row[MT];
    uint4 next[MT];

    /* Columns that there are not come to nothing. */
    __device__ __forceinline__ explicit x_of_lane(const products_of<bf16> &s)
    {
        #pragma unroll
        for (int m = 0; m < MT; m++)
            row[m] = s.a + min((int64_t)(8 * m + fragment_row()), s.M - 1) * s.D;
    }
    __device__ __forceinline__ void load(int64_t k, uint4 *to) const
    {
        #pragma unroll
        for (int m = 0; m < MT; m++)
            to[m] = x_of<F>(row[m] + k);
    }
    /* x from k on, which was ordered before; orders that from `then` on. */
    __device__ __forceinline__ void take(int64_t k, int64_t then, uint4 *x)
    {
        if constexpr (TILES<MT> == 1) {
            load(k, x);
        } else {
            #pragma unroll
            for (int m = 0; m < MT; m++)
                x[m] = next[m];
            load(then, next);
        }
    }
};

/* sum += unit u of the rows times x: its first `parts` of 32 weights, or, if FULL, all. */
template <typename F, int MT, bool FULL>
static __device__ __forceinline__ void
add_unit(float (*sum)[4], x_of_lane<F, MT> &x_row, const rows_of_warp<F> &w, int64_t u, int stage,
         int parts, int64_t then, const unit_scales &scales, const unsigned *table)
{
    constexpr bool ELSEWHERE = std::is_same<F, nf4>::value; /* are scales in other tensors? */
    constexpr int UNROLLED = FULL && TILES<MT> == 1 ? PARTS / MT : 1;
    const int g = fragment_row(), t = (int)threadIdx.x % 4;
    const uint8_t *const at[2] = {w.staged(u, 0, stage), w.staged(u, 1, stage)};
    const typename unit<F>::lines lines[2] = {typename unit<F>::lines(at[0]),
                                              typename unit<F>::lines(at[1])};

    #pragma unroll UNROLLED
    for (int j = 0; j < (FULL ? (int)PARTS : parts); j++) {
        const int64_t k = u * MMA_UNIT + 32 * j;
        unsigned p[2][4];
        float2 line[2][2] = {};
        uint4 x[MT];
        x_row.take(k, j < (FULL ? (int)PARTS : parts) - 1 ? k + 32 : then, x);
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            unit<F>::pairs(at[r], j, t, table, p[r]);
            if (ELSEWHERE)
                line[r][0].x = __shfl_sync(0xffffffff, j % 2 ? scales.of[r][1] : scales.of[r][0],
                                           4 * g + j / 2);
            else
                line[r][0] = lines[r].of(at[r], j, 0);
            if (unit<F>::HALVES)
                line[r][1] = lines[r].of(at[r], j, 1);
        }
        add_part<F, MT>(sum, p, line, x);
    }
}

/* All units of a warp: every WARPS-th. */
template <typename F, int MT>
static __device__ __forceinline__ void add_units(float (*sum)[4], const products_of<bf16> &s,
                                                 const packed_rows &rows, const rows_of_warp<F> &w,
                                                 int64_t n0, const unsigned *table)
{
    constexpr bool ELSEWHERE = std::is_same<F, nf4>::value;
    const int64_t units = ceil_div(s.D, MMA_UNIT), n = n0 + fragment_row();
    const int64_t first[2] = {min(n, s.C - 1) * s.D, min(n + 8, s.C - 1) * s.D};
    const int warp = (int)threadIdx.x / 32 % WARPS;
    unit_scales scales = {}, next = {};
    x_of_lane<F, MT> x_row(s);

    if (ELSEWHERE)
        next = scales_of_unit(rows, first, warp * MMA_UNIT);
    if (TILES < MT >> 1)
        x_row.load(warp < units ? warp * MMA_UNIT : 0, x_row.next);
    #pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (warp + i * WARPS < units)
            w.copy(warp + i * WARPS, i);
        cp_async_commit();
    }
    int stage = 0;
    for (int64_t u = warp; u < units; u += WARPS) {
        cp_async_wait<STAGES - 2>();
        __syncwarp();
        const int64_t ahead = u + (STAGES - 1) * WARPS;
        if (ahead < units)
            w.copy(ahead, (stage + STAGES - 1) % STAGES);
        cp_async_commit();
        scales = next;
        if (ELSEWHERE)
            next = scales_of_unit(rows, first, (u + WARPS) * MMA_UNIT);
        const int parts = (int)min((s.D - u * MMA_UNIT) / 32, (int64_t)PARTS);
        const int64_t then = u + WARPS < units ? (u + WARPS) * MMA_UNIT : 0;
        if (unit<F>::WHOLE_UNITS || parts == PARTS)
            add_unit<F, MT, true>(sum, x_row, w, u, stage, parts, then, scales, table);
        else
            add_unit<F, MT, false>(sum, x_row, w, u, stage, parts, then, scales, table);
        stage = (stage + 1) % STAGES;
    }
    cp_async_wait<0>();
}

/* The sums of the warps of each tile, one after the other, to y. */
template <int MT>
static __device__ __forceinline__ void finish(const float (*sum)[4], const products_of<bf16> &s,
                                              float *of_warp)
{
    constexpr int EACH = 8 * MT * ROWS;
    const int warp = (int)threadIdx.x / 32, g = fragment_row(), column = fragment_column();

    __syncthreads();
    #pragma unroll
    for (int m = 0; m < MT; m++)
        #pragma unroll
        for (int i = 0; i < 4; i++)
            of_warp[warp * EACH + (8 * m + column + i % 2) * ROWS + g + i / 2 * 8] = sum[m][i];
    __syncthreads();
    for (int e = (int)threadIdx.x; e < TILES<MT> * EACH; e += (int)blockDim.x) {
        const int tile = e / EACH, i = e % EACH;
        const int64_t m = i / ROWS, n = ((int64_t)blockIdx.x * TILES<MT> + tile) * ROWS + i % ROWS;
        const float *from = of_warp + tile * WARPS * EACH + i;
        float all = from[0];
        #pragma unroll
        for (int k = 1; k < WARPS; k++)
            all += from[k * EACH];
        if (m < s.M && n < s.C)
            store(s.c + m * s.C + n, all);
    }
}

template <typename F, int MT>
__global__ void __launch_bounds__(32 * WARPS * TILES<MT>, TILES<MT> == 1 ? 3 : 1)
    mma_rows(products_of<bf16> s, packed_rows rows)
{
    extern __shared__ __align__(16) unsigned char shared[];
    constexpr int BYTE_VALUES = std::is_same<F, nf4>::value ? 256 : 1;
    __shared__ unsigned table[BYTE_VALUES];
    const int64_t tile = (int64_t)blockIdx.x * TILES<MT> + threadIdx.x / (32 * WARPS);
    float sum[MT][4] = {};

    s.move_to(blockIdx.y);
    rows.move_to(blockIdx.y);
    if (std::is_same<F, nf4>::value) {
        fill_pairs(table);
        __syncthreads();
    }
    const rows_of_warp<F> w(rows, tile * ROWS, s.C, shared);
    add_units<F, MT>(sum, s, rows, w, tile * ROWS, table);
    finish<MT>(sum, s, (float *)shared);
}

/* ---- launches ---- */

template <typename F, int MT>
static int launch(const struct call *f, const products_of<bf16> &s, const packed_rows &w)
{
    constexpr int ALL = WARPS * TILES<MT>;
    const size_t stages = (size_t)ALL * STAGES * STAGE_BYTES<F>;
    const size_t sums = sizeof(float) * ALL * 8 * MT * ROWS;
    const dim3 grid((unsigned)ceil_div(s.C, ROWS * TILES<MT>), (unsigned)DIM(f, 'L'));
    const auto kernel = mma_rows<F, MT>;

    CUDA(allow_smem(kernel, max(stages, sums)));
    kernel<<<grid, 32 * ALL, max(stages, sums), gpu_stream(f)>>>(s, w);
    return cudaGetLastError();
}

template <typename F>
static int launch_rows(const struct call *f, const products_of<bf16> &s, const packed_rows &w)
{
    return s.M <= 8    ? launch<F, 1>(f, s, w)
           : s.M <= 16 ? launch<F, 2>(f, s, w)
           : s.M <= 32 ? launch<F, 4>(f, s, w)
                       : launch<F, 8>(f, s, w);
}

static int forward(const struct call *f)
{
    const products_of<bf16> s = products_of_pass<bf16, FORWARD>(f, 0);
    const packed_rows w(f, gemm_quantised_W(f, 0, sizeof(float)));

    switch (f->choice[QUANTISED_FORMAT]) {
    case Q4_K: return launch_rows<q4_k>(f, s, w);
    case Q5_K: return launch_rows<q5_k>(f, s, w);
    case Q6_K: return launch_rows<q6_k>(f, s, w);
    case Q8_0: return launch_rows<q8_0>(f, s, w);
    default: return launch_rows<nf4>(f, s, w);
    }
}

const struct impl gemm_quantised_mma = {
    "mma",
    "quants as they are on tensor cores, scales on the sums of 32",
    {forward, gemm_quantised_tiled_backward<bf16>},
    NULL,
    gemm_quantised_no_spans,
    "nf4's table rounded to bf16",
    0x1p-8,
    0,
    NULL,
    NULL,
    0,
    0,
    1};
