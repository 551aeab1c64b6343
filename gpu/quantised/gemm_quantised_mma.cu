/* gemm_quantised, mma: y = x W^T for up to 64 rows of bf16 x, on tensor cores.  W is the left operand:
 * quants are exact in bf16, and a scale multiplies the sum over its weights, in float:
 *
 *     y[m][n] = sum over blocks j of  s[n][j] (sum of q x[m]) - m[n][j] (sum of x[m])
 *
 * The four warps of a block share the units of 256 weights (mma_unit.cuh) of 16 rows of W, a tile, which
 * cp.async brings to shared memory; a block goes on to its next tile while that one's bytes are on their
 * way.  All sums are added in one order, whatever the number of rows of x: a row's bits are the same in
 * each. */
#include "gpu/device/async.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/quantised/gemm_quantised.cuh"
#include "gpu/quantised/mma_unit.cuh"

enum { WARPS = 4, THREADS = 32 * WARPS, STAGES = 4, ROWS = 16 };

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

/* The tiles of all matrices, in the order in which blocks take them. */
struct tiles {
    int64_t of_matrix, all;
};

/* What a warp copies: unit after unit of its rows, then those of its block's next tile. */
template <typename F>
struct copier {
    static constexpr int COPIES = (ROWS * CHUNKS<F> + 31) / 32;
    static constexpr bool INSIDE = unit<F>::ALIGNED == 16 && unit<F>::WHOLE_UNITS;

    const packed_rows &w;
    const tiles &t;
    int64_t N, units, tile, u;
    const uint8_t *end;         /* of the matrix */
    const uint8_t *row[COPIES]; /* those of which this lane copies 16 bytes */
    unsigned char *stages;

    __device__ __forceinline__ copier(const packed_rows &w, const tiles &t, int64_t N,
                                      unsigned char *shared)
        : w(w), t(t), N(N), units(ceil_div(w.K, MMA_UNIT)), tile(blockIdx.x), u(threadIdx.x / 32),
          stages(shared + threadIdx.x / 32 * (STAGES * STAGE_BYTES<F>))
    {
        if (u >= units)
            tile = t.all;
        open();
    }
    __device__ __forceinline__ void open()
    {
        const int lane = (int)threadIdx.x % 32;
        const uint8_t *W = w.W + tile / t.of_matrix * w.bytes;
        const int64_t n0 = tile % t.of_matrix * ROWS;
        end = W + w.bytes;
        #pragma unroll
        for (int i = 0; i < COPIES; i++)
            row[i] = W + min(n0 + (lane + 32 * i) / CHUNKS<F>, N - 1) * w.row_bytes;
    }

    /* Begin to copy a unit into a stage: whole 16 bytes, from the multiple of 16 before it. */
    __device__ __forceinline__ void copy(int stage) const
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

    /* The next unit, if there is one. */
    __device__ __forceinline__ void next(int stage)
    {
        if (tile < t.all) {
            copy(stage);
            u += WARPS;
            if (u >= units) {
                u = threadIdx.x / 32;
                tile += gridDim.x;
                if (tile < t.all)
                    open();
            }
        }
        cp_async_commit();
    }
};

/* Rows g and g + 8 of a tile. */
template <typename F>
struct rows_of_lane {
    const uint8_t *row[2];
    const unsigned char *stages;

    /* Where unit u of one of them is in its stage. */
    __device__ __forceinline__ const uint8_t *staged(int64_t u, int r, int stage) const
    {
        const uint8_t *at = row[r] + u * unit<F>::BYTES;
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

/* The rows of x that go with a lane; columns that there are not come to nothing. */
template <int MT>
struct x_of_lane {
    const bf16 *x;
    unsigned row[MT]; /* where it begins, in eights */

    __device__ __forceinline__ explicit x_of_lane(const products_of<bf16> &s) : x(s.a)
    {
        #pragma unroll
        for (int m = 0; m < MT; m++)
            row[m] = (unsigned)(min((int64_t)(8 * m + fragment_row()), s.M - 1) * (s.D / 8));
    }
    __device__ __forceinline__ const bf16 *at(int m, int64_t k) const
    {
        return x + 8 * (int64_t)row[m] + k;
    }
};

/* sum += unit u of the rows times x: its first `parts` of 32 weights, or, if FULL, all. */
template <typename F, int MT, bool FULL>
static __device__ __forceinline__ void
add_unit(float (*sum)[4], const x_of_lane<MT> &x_row, const rows_of_lane<F> &w, int64_t u,
         int stage, int parts, const unit_scales &scales, const unsigned *table)
{
    constexpr bool ELSEWHERE = std::is_same<F, nf4>::value; /* are scales in other tensors? */
    constexpr int UNROLLED = FULL ? PARTS / MT : 1;
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
        #pragma unroll
        for (int m = 0; m < MT; m++)
            x[m] = x_of<F>(x_row.at(m, k));
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

/* All units of a warp: every WARPS-th; `stage` is that of the first. */
template <typename F, int MT>
static __device__ __forceinline__ void add_units(float (*sum)[4], const products_of<bf16> &s,
                                                 const packed_rows &rows, int64_t n0, copier<F> &c,
                                                 int &stage, const unsigned *table)
{
    constexpr bool ELSEWHERE = std::is_same<F, nf4>::value;
    const int64_t n[2] = {min(n0 + fragment_row(), s.C - 1), min(n0 + fragment_row() + 8, s.C - 1)};
    const rows_of_lane<F> w = {{rows.W + n[0] * rows.row_bytes, rows.W + n[1] * rows.row_bytes},
                               c.stages};
    const int64_t first[2] = {n[0] * s.D, n[1] * s.D};
    const int warp = (int)threadIdx.x / 32;
    unit_scales scales = {}, next = {};
    const x_of_lane<MT> x_row(s);

    if (ELSEWHERE)
        next = scales_of_unit(rows, first, warp * MMA_UNIT);
    for (int64_t u = warp; u < c.units; u += WARPS) {
        cp_async_wait<STAGES - 2>();
        __syncwarp();
        c.next((stage + STAGES - 1) % STAGES);
        scales = next;
        if (ELSEWHERE)
            next = scales_of_unit(rows, first, (u + WARPS) * MMA_UNIT);
        const int parts = (int)min((s.D - u * MMA_UNIT) / 32, (int64_t)PARTS);
        if (unit<F>::WHOLE_UNITS || parts == PARTS)
            add_unit<F, MT, true>(sum, x_row, w, u, stage, parts, scales, table);
        else
            add_unit<F, MT, false>(sum, x_row, w, u, stage, parts, scales, table);
        stage = (stage + 1) % STAGES;
    }
}

/* The sums of the warps, one after the other, to y; all threads have left what of_warp held before. */
template <int MT>
static __device__ __forceinline__ void finish(const float (*sum)[4], const products_of<bf16> &s,
                                              int64_t n0, float *of_warp)
{
    constexpr int EACH = 8 * MT * ROWS;
    const int warp = (int)threadIdx.x / 32, g = fragment_row(), column = fragment_column();

    #pragma unroll
    for (int m = 0; m < MT; m++)
        #pragma unroll
        for (int i = 0; i < 4; i++)
            of_warp[warp * EACH + (8 * m + column + i % 2) * ROWS + g + i / 2 * 8] = sum[m][i];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < EACH; i += THREADS) {
        const int64_t m = i / ROWS, n = n0 + i % ROWS;
        float all = of_warp[i];
        #pragma unroll
        for (int k = 1; k < WARPS; k++)
            all += of_warp[k * EACH + i];
        if (m < s.M && n < s.C)
            store(s.c + m * s.C + n, all);
    }
}

/* Bytes of shared memory: the stages, and two times the sums of all warps. */
template <typename F>
static constexpr int STAGES_OF_BLOCK = WARPS *STAGES *STAGE_BYTES<F>;
template <int MT>
static constexpr int SUMS_OF_BLOCK = WARPS * 8 * MT *ROWS;
template <typename F, int MT>
static constexpr size_t SMEM = STAGES_OF_BLOCK<F> + 2 * sizeof(float) * SUMS_OF_BLOCK<MT>;

template <typename F, int MT>
__global__ void __launch_bounds__(THREADS, MT <= 2 ? 3 : 2)
    mma_rows(products_of<bf16> s, packed_rows rows, tiles t)
{
    extern __shared__ __align__(16) unsigned char shared[];
    constexpr int BYTE_VALUES = std::is_same<F, nf4>::value ? 256 : 1;
    __shared__ unsigned table[BYTE_VALUES];
    float *sums = (float *)(shared + STAGES_OF_BLOCK<F>);
    copier<F> c(rows, t, s.C, shared);
    int stage = 0, odd = 0;

    if (std::is_same<F, nf4>::value)
        fill_pairs(table);
    #pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        c.next(i);
    if (std::is_same<F, nf4>::value)
        __syncthreads();
    for (int64_t tile = blockIdx.x; tile < t.all; tile += gridDim.x, odd = !odd) {
        const int64_t l = tile / t.of_matrix, n0 = tile % t.of_matrix * ROWS;
        products_of<bf16> of_l = s;
        packed_rows rows_of_l = rows;
        float sum[MT][4] = {};
        of_l.move_to(l);
        rows_of_l.move_to(l);
        add_units<F, MT>(sum, of_l, rows_of_l, n0, c, stage, table);
        finish<MT>(sum, of_l, n0, sums + odd * SUMS_OF_BLOCK<MT>);
    }
    cp_async_wait<0>();
}

/* ---- launches ---- */

template <typename F, int MT>
static int launch(const struct call *f, const products_of<bf16> &s, const packed_rows &w)
{
    const auto kernel = mma_rows<F, MT>;
    const int64_t of_matrix = ceil_div(s.C, (int64_t)ROWS);
    const tiles t = {of_matrix, of_matrix * DIM(f, 'L')};
    int blocks_per_sm;

    CUDA(allow_smem(kernel, SMEM<F, MT>));
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, kernel, THREADS,
                                                       SMEM<F, MT>));
    const int64_t resident = (int64_t)max(blocks_per_sm, 1) * f->context->limits.sms;
    kernel<<<(unsigned)min(t.all, resident), THREADS, SMEM<F, MT>, gpu_stream(f)>>>(s, w, t);
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

    return with_format(f, [&](auto format) { return launch_rows<decltype(format)>(f, s, w); });
}

/* The shared memory for 64 rows of q8_0, more than which no call takes. */
static const char *declines(const struct call *f)
{
    const char *why = gemm_quantised_no_spans(f);
    if (why)
        return why;
    if (DIM(f, 'K') > 1 << 28)
        return "rows of more than 268435456 weights";
    return f->context && f->context->limits.smem < SMEM<q8_0, 8>
               ? "blocks of this device have too little shared memory"
               : NULL;
}

const struct impl gemm_quantised_mma = {
    "mma",
    "quants as they are on tensor cores, scales on the sums of 32",
    {forward, gemm_quantised_tiled_backward<bf16>},
    NULL,
    declines,
    "nf4's table rounded to bf16",
    0x1p-8,
    0,
    NULL,
    NULL,
    0,
    0,
    1};
