/* gemm_quantised, mma: y = x W^T for up to 64 rows of bf16 x, on tensor cores.  W is the left operand:
 * quants are exact in bf16, and a scale multiplies the sum over its weights, in float:
 *
 *     y[m][n] = sum over blocks of  d[n] (sum over j of s[n][j] (sum of q x[m])) - dmin[n] (sum of m[n][j] X[m][j])
 *
 * where X[m][j] is the sum of x[m] over the 32 weights j: three bf16, whose sum it is, for another product.
 *
 * The eight warps of a block share the units of 256 weights (mma_unit.cuh) of a tile of W, 16 rows or, for
 * more than 16 rows of x, 32, which cp.async brings to shared memory; a block goes on to its next tile
 * while that one's bytes are on their way.  All sums are added in one order, whatever the number of rows of
 * x: a row's bits are the same in each. */
#include <limits.h>

#include "gpu/device/async.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/quantised/gemm_quantised.cuh"
#include "gpu/quantised/mma_unit.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS, ROWS = 16, MOST_STAGES = 4 };

/* Shared memory for a unit of a row: it may begin anywhere in 16 bytes, and the quads of 8 rows are in
 * different banks. */
template <typename F>
static constexpr int CHUNKS = (unit<F>::BYTES + 16 - unit<F>::ALIGNED + 15) / 16;
template <typename F>
static constexpr int STRIDE = CHUNKS<F> * 16 + (160 - CHUNKS<F> * 16 % 128) % 128 % 64;

static constexpr int in_range(int i, int low, int high)
{
    return i < low ? low : i > high ? high : i;
}

/* A warp has R times 16 rows.  Stages are as many as leave a block 88 KB for each of the R. */
template <typename F, int R>
static constexpr int STAGE_BYTES = R *ROWS *STRIDE<F>;
template <typename F, int R>
static constexpr int STAGES = in_range(((88 << 10) - unit<F>::TABLE_BYTES) * R /
                                           (WARPS * STAGE_BYTES<F, R>),
                                       2, MOST_STAGES);

static __device__ __forceinline__ const uint8_t *aligned_down(const uint8_t *at)
{
    return (const uint8_t *)((uintptr_t)at & ~(uintptr_t)15);
}

/* The tiles of all matrices, in the order in which blocks take them: those of the same rows of W, which
 * have different rows of x, one after the other. */
struct tiles {
    unsigned of_x, of_matrix, all;
    const uint8_t *end; /* of the last matrix */

    __device__ __forceinline__ unsigned matrix(unsigned tile) const { return tile / of_matrix; }
    /* A tile's place among those of its matrix in W, and in x. */
    __device__ __forceinline__ unsigned in_W(unsigned tile) const
    {
        return tile % of_matrix / of_x;
    }
    __device__ __forceinline__ unsigned in_x(unsigned tile) const { return tile % of_x; }
};

/* The first row of W, and of x, of a tile. */
struct place {
    int64_t n;
    unsigned m;
};

/* What a warp copies: unit after unit of its rows, then those of its block's next tile. */
template <typename F, int R>
struct copier {
    static constexpr int ALL = R * ROWS * CHUNKS<F>, COPIES = (ALL + 31) / 32;
    static constexpr bool INSIDE = unit<F>::ALIGNED == 16 && unit<F>::WHOLE_UNITS;

    const packed_rows &w;
    const tiles &t;
    int64_t N;
    unsigned units, tile, u;
    const uint8_t *row[COPIES]; /* those of which this lane copies 16 bytes */
    unsigned char *stages;

    __device__ __forceinline__ copier(const packed_rows &w, const tiles &t, int64_t N,
                                      unsigned char *shared)
        : w(w), t(t), N(N), units((unsigned)ceil_div(w.K, MMA_UNIT)), tile(blockIdx.x),
          u(threadIdx.x / 32),
          stages(shared + threadIdx.x / 32 * (STAGES<F, R> * STAGE_BYTES<F, R>))
    {
        if (u >= units)
            tile = t.all;
        open();
    }
    __device__ __forceinline__ void open()
    {
        const int lane = (int)threadIdx.x % 32;
        const uint8_t *W = w.W + t.matrix(tile) * w.bytes;
        const int64_t n0 = (int64_t)t.in_W(tile) * (R * ROWS);
        #pragma unroll
        for (int i = 0; i < COPIES; i++)
            row[i] = W + min(n0 + (lane + 32 * i) / CHUNKS<F>, N - 1) * w.row_bytes;
    }

    /* Begin to copy a unit into a stage: whole 16 bytes, from the multiple of 16 before it. */
    __device__ __forceinline__ void copy(int stage) const
    {
        const unsigned lane = threadIdx.x % 32;
        unsigned char *to = stages + stage * STAGE_BYTES<F, R>;
        #pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const unsigned c = lane + 32 * i, part = c % CHUNKS<F>;
            const uint8_t *at = row[i] + (uint64_t)u * unit<F>::BYTES;
            if (unit<F>::ALIGNED < 16)
                at = aligned_down(at);
            const int64_t left = INSIDE ? 16 : t.end - (at + 16 * part);
            if (ALL % 32 == 0 || c < ALL)
                cp_async16(to + c / CHUNKS<F> * STRIDE<F> + 16 * part,
                           left > 0 ? at + 16 * part : aligned_down(row[i]),
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

/* Rows g, g + 8 ... of a tile in shared memory. */
template <typename F, int R>
struct rows_of_lane {
    const unsigned char *stages;
    unsigned begin[2 * R]; /* of a row in memory, its lower bits */

    /* Where unit u of one of them is in its stage. */
    __device__ __forceinline__ const uint8_t *staged(unsigned u, int r, int stage) const
    {
        const unsigned before = unit<F>::ALIGNED == 16 ? 0 : (begin[r] + u * unit<F>::BYTES) % 16;
        return stages + stage * STAGE_BYTES<F, R> + (fragment_row() + 8 * r) * STRIDE<F> + before;
    }
};

/* nf4's scales of a unit for this lane: of parts 2 t and 2 t + 1, rows g, g + 8 .... */
template <int R>
struct unit_scales {
    float of[2 * R][2];
};

template <int R>
static __device__ __forceinline__ unit_scales<R> scales_of_unit(const packed_rows &w,
                                                                const int64_t *first, int64_t k)
{
    const int t = (int)threadIdx.x % 4;
    unit_scales<R> s;
    #pragma unroll
    for (int r = 0; r < 2 * R; r++)
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

/* 32 weights of rows g and g + 8: fours of pairs, and what multiplies their sums. */
struct part_of_rows {
    unsigned p[2][4];
    float scale[2][2];
};

/* sum += N parts of the rows times x, for M tiles of rows of x. */
template <typename F, int M, int N, int MT>
static __device__ __forceinline__ void add_parts(float (*sum)[4], const part_of_rows *w,
                                                 const uint4 (*x)[MT], int m0)
{
    float d[N][M][4], of_second[N][M][4];

    #pragma unroll
    for (int i = 0; i < N * M; i++) {
        const part_of_rows &v = w[i / M];
        const unsigned first[4] = {v.p[0][0], v.p[1][0], v.p[0][1], v.p[1][1]};
        const unsigned low[2] = {x[i / M][m0 + i % M].x, x[i / M][m0 + i % M].y};
        mma_bf16_first(d[i / M][i % M], first, low);
    }
    #pragma unroll
    for (int i = 0; i < N * M; i++) {
        const part_of_rows &v = w[i / M];
        const unsigned second[4] = {v.p[0][2], v.p[1][2], v.p[0][3], v.p[1][3]};
        const unsigned high[2] = {x[i / M][m0 + i % M].z, x[i / M][m0 + i % M].w};
        if (unit<F>::HALVES)
            mma_bf16_first(of_second[i / M][i % M], second, high);
        else
            mma_bf16(d[i / M][i % M], second, high);
    }
    #pragma unroll
    for (int i = 0; i < N * M; i++) {
        const part_of_rows &v = w[i / M];
        add_scaled(sum[m0 + i % M], d[i / M][i % M], v.scale[0][0], v.scale[1][0]);
        if (unit<F>::HALVES)
            add_scaled(sum[m0 + i % M], of_second[i / M][i % M], v.scale[0][1], v.scale[1][1]);
    }
}

/* ---- sums of x, X[m][j] ---- */

/* X += the sums of part j of x.  Here x is a left operand: its row g has one half of row g of x and g + 8
 * the other, and column j of the right operand has ones. */
template <int MT>
static __device__ __forceinline__ void add_sums(float (*X)[4], int j, const uint4 *x)
{
    const unsigned ones = fragment_row() == j ? 0x3f803f80 : 0, b[2] = {ones, ones};

    #pragma unroll
    for (int m = 0; m < MT; m++) {
        const unsigned a[4] = {x[m].x, x[m].y, x[m].z, x[m].w};
        mma_bf16(X[m], a, b);
    }
}

/* X as a right operand: three bf16 whose sum is an element, the largest first. */
static __device__ __forceinline__ void in_three(const float *X, unsigned *b)
{
    float first = X[0] + X[2], second = X[1] + X[3];

    #pragma unroll
    for (int i = 0; i < 3; i++) {
        b[i] = pack_bf16x2(first, second);
        first -= low_of_pair(b[i]);
        second -= high_of_pair(b[i]);
    }
}

/* product = a X: a has a pair of a unit's scales or minima of row g, and of g + 8. */
static __device__ __forceinline__ void multiply_sums(float *product, unsigned g, unsigned g_8,
                                                     const unsigned *X)
{
    const unsigned a[4] = {g, g_8, g, g_8}, last[2] = {X[2], 0};

    mma_bf16_first(product, a, last);
    mma_bf16(product, a, X);
}

/* sum -= what the minima and the OFFSET come to in a unit of rows g and g + 8. */
template <typename F, int MT>
static __device__ __forceinline__ void
subtract_sums(float (*sum)[4], const typename unit<F>::lines *line, const float (*X)[4])
{
    const int t = (int)threadIdx.x % 4;
    const unsigned s[2] = {line[0].scales(t), line[1].scales(t)};
    const unsigned minima[2] = {line[0].minima(t), line[1].minima(t)};

    #pragma unroll
    for (int m = 0; m < MT; m++) {
        unsigned b[3];
        float of_s[4], of_m[4];
        in_three(X[m], b);
        multiply_sums(of_s, s[0], s[1], b);
        multiply_sums(of_m, minima[0], minima[1], b);
        add_scaled(sum[m], of_s, -unit<F>::OFFSET * line[0].d.scale,
                   -unit<F>::OFFSET * line[1].d.scale);
        add_scaled(sum[m], of_m, -line[0].dmin, -line[1].dmin);
    }
}

/* ---- units ---- */

/* The rows of x that go with a lane; columns that there are not come to nothing. */
template <int MT>
struct x_of_lane {
    const bf16 *x;
    unsigned row[MT]; /* where it begins, in eights */

    __device__ __forceinline__ x_of_lane(const products_of<bf16> &s, unsigned m0) : x(s.a)
    {
        #pragma unroll
        for (int m = 0; m < MT; m++)
            row[m] = (unsigned)(min((int64_t)(m0 + 8 * m + fragment_row()), s.M - 1) * (s.D / 8));
    }
    __device__ __forceinline__ const bf16 *at(int m, int64_t k) const
    {
        return x + 8 * (int64_t)row[m] + k;
    }
};

template <typename F, int MT>
static __device__ __forceinline__ void load_x(uint4 *x, const x_of_lane<MT> &row, int64_t k)
{
    #pragma unroll
    for (int m = 0; m < MT; m++)
        x[m] = x_of<F>(row.at(m, k));
}

/* What a warp adds up: R times 16 rows of W, 8 MT of x. */
template <int MT, int R>
struct warp_sums {
    float of[R][MT][4];
};

/* How many parts of a unit a warp has in registers at once. */
template <int MT>
static constexpr int AT_ONCE = MT > 1 ? 1 : 2;

/* A unit of a warp's rows in shared memory. */
template <typename F, int R>
struct staged_unit {
    const uint8_t *at[2 * R];
    typename unit<F>::lines line[2 * R];
    const unit_scales<R> &scales;
    const unsigned *table;

    __device__ __forceinline__ part_of_rows part(int tile, int j) const
    {
        const int g = fragment_row(), t = (int)threadIdx.x % 4;
        part_of_rows w;
        #pragma unroll
        for (int i = 0; i < 2; i++) {
            const int r = 2 * tile + i;
            unit<F>::pairs(at[r], j, t, table, w.p[i]);
            w.scale[i][0] = unit<F>::ELSEWHERE
                                ? __shfl_sync(0xffffffff, j % 2 ? scales.of[r][1] : scales.of[r][0],
                                              4 * g + j / 2)
                                : line[r].of(at[r], j, 0);
            w.scale[i][1] = unit<F>::HALVES ? line[r].of(at[r], j, 1) : 0;
        }
        return w;
    }
};

/* sum += `parts` of a unit from part j on, not more than AT_ONCE, times x. */
template <typename F, int MT, int R, int N>
static __device__ __forceinline__ void add_some(warp_sums<MT, R> &sum, const staged_unit<F, R> &w,
                                                int j, const uint4 (*x)[MT], float (*X)[4])
{
    constexpr int M = MT < 4 ? MT : unit<F>::HALVES ? 2 : 4; /* as many as registers hold */

    #pragma unroll
    for (int tile = 0; tile < R; tile++) {
        part_of_rows part[N];
        #pragma unroll
        for (int i = 0; i < N; i++)
            part[i] = w.part(tile, j + i);
        #pragma unroll
        for (int m0 = 0; m0 < MT; m0 += M)
            add_parts<F, M, N>(sum.of[tile], part, x, m0);
    }
    if constexpr (unit<F>::OFFSET != 0)
        #pragma unroll
        for (int i = 0; i < N; i++)
            add_sums<MT>(X, j + i, x[i]);
}

/* sum += a unit, from column k of x on. */
template <typename F, int MT, int R>
static __device__ __forceinline__ void add_unit(warp_sums<MT, R> &sum, const staged_unit<F, R> &w,
                                                const x_of_lane<MT> &row, int64_t k)
{
    constexpr int N = AT_ONCE<MT>, UNROLLED = MT == 1   ? unit<F>::UNROLLED
                                              : MT == 2 ? unit<F>::UNROLLED / 4
                                                        : 1;
    float X[unit<F>::OFFSET ? MT : 1][4] = {};

    #pragma unroll UNROLLED / N
    for (int j = 0; j < PARTS; j += N) {
        uint4 x[N][MT];
        #pragma unroll
        for (int i = 0; i < N; i++)
            load_x<F>(x[i], row, k + 32 * (j + i));
        add_some<F, MT, R, N>(sum, w, j, x, X);
    }
    if constexpr (unit<F>::OFFSET != 0)
        #pragma unroll
        for (int tile = 0; tile < R; tile++)
            subtract_sums<F, MT>(sum.of[tile], w.line + 2 * tile, X);
}

/* The same for the last unit of a row, of fewer parts; its format has no OFFSET. */
template <typename F, int MT, int R>
static __device__ __forceinline__ void add_last(warp_sums<MT, R> &sum, const staged_unit<F, R> &w,
                                                const x_of_lane<MT> &row, int64_t k, int parts)
{
    float X[1][4];

    #pragma unroll 1
    for (int j = 0; j < parts; j++) {
        uint4 x[1][MT];
        load_x<F>(x[0], row, k + 32 * j);
        add_some<F, MT, R, 1>(sum, w, j, x, X);
    }
}

/* All units of a warp: every WARPS-th; `stage` is that of the first. */
template <typename F, int MT, int R>
static __device__ __forceinline__ void add_units(warp_sums<MT, R> &sum, const products_of<bf16> &s,
                                                 const packed_rows &rows, copier<F, R> &c,
                                                 const place &at, int &stage, const unsigned *table)
{
    const unsigned warp = threadIdx.x / 32;
    rows_of_lane<F, R> w = {c.stages, {}};
    int64_t first[2 * R];
    unit_scales<R> scales = {}, next = {};
    const x_of_lane<MT> x_row(s, at.m);

    #pragma unroll
    for (int r = 0; r < 2 * R; r++) {
        const int64_t n = min(at.n + fragment_row() + 8 * r, s.C - 1);
        w.begin[r] = (unsigned)(uintptr_t)(rows.W + n * rows.row_bytes);
        first[r] = n * s.D;
    }
    if (unit<F>::ELSEWHERE)
        next = scales_of_unit<R>(rows, first, warp * MMA_UNIT);
    for (unsigned u = warp; u < c.units; u += WARPS) {
        const int64_t k = (int64_t)u * MMA_UNIT;
        staged_unit<F, R> there = {{}, {}, scales, table};
        cp_async_wait<STAGES<F, R> - 2>();
        __syncwarp();
        c.next(stage ? stage - 1 : STAGES<F, R> - 1);
        scales = next;
        if (unit<F>::ELSEWHERE)
            next = scales_of_unit<R>(rows, first, k + WARPS * MMA_UNIT);
        #pragma unroll
        for (int r = 0; r < 2 * R; r++) {
            there.at[r] = w.staged(u, r, stage);
            there.line[r] = typename unit<F>::lines(there.at[r]);
        }
        const int parts = (int)min((s.D - k) / 32, (int64_t)PARTS);
        if (unit<F>::WHOLE_UNITS || parts == PARTS)
            add_unit<F, MT, R>(sum, there, x_row, k);
        else
            add_last<F, MT, R>(sum, there, x_row, k, parts);
        stage = stage + 1 < STAGES<F, R> ? stage + 1 : 0;
    }
}

/* The sums of the warps, one after the other, to y: COLUMNS tiles of rows of x at a time. */
template <int MT>
static constexpr int COLUMNS = MT == 1 ? 1 : 2;

template <int MT, int R>
static __device__ __forceinline__ void
finish(const warp_sums<MT, R> &sum, const products_of<bf16> &s, const place &at, float *of_warp)
{
    constexpr int N = R * ROWS, EACH = 8 * COLUMNS<MT> * N;
    const int warp = (int)threadIdx.x / 32, g = fragment_row(), column = fragment_column();

    #pragma unroll
    for (int m0 = 0; m0 < MT; m0 += COLUMNS<MT>) {
        #pragma unroll
        for (int m = 0; m < COLUMNS<MT>; m++)
            #pragma unroll
            for (int i = 0; i < 4 * R; i++)
                of_warp[warp * EACH + (8 * m + column + i % 2) * N + g + i / 2 * 8] =
                    sum.of[i / 4][m0 + m][i % 4];
        __syncthreads();
        for (int i = (int)threadIdx.x; i < EACH; i += THREADS) {
            const int64_t m = at.m + 8 * m0 + i / N, n = at.n + i % N;
            float all = of_warp[i];
            #pragma unroll
            for (int k = 1; k < WARPS; k++)
                all += of_warp[k * EACH + i];
            if (m < s.M && n < s.C)
                store(s.c + m * s.C + n, all);
        }
        __syncthreads();
    }
}

/* Bytes of shared memory: the stages, and the sums of all warps. */
template <typename F, int R>
static constexpr int STAGES_OF_BLOCK = WARPS *STAGES<F, R> *STAGE_BYTES<F, R>;
template <typename F, int MT, int R>
static constexpr size_t SMEM = unit<F>::TABLE_BYTES + STAGES_OF_BLOCK<F, R> +
                               sizeof(float) * WARPS * 8 * COLUMNS<MT> *R *ROWS;

template <typename F, int MT, int R>
__global__ void __launch_bounds__(THREADS, 3 - R)
    mma_rows(products_of<bf16> s, packed_rows rows, tiles t)
{
    extern __shared__ __align__(16) unsigned char shared[];
    unsigned *table = (unsigned *)shared;
    unsigned char *stages = shared + unit<F>::TABLE_BYTES;
    float *sums = (float *)(stages + STAGES_OF_BLOCK<F, R>);
    copier<F, R> c(rows, t, s.C, stages);
    int stage = 0;

    #pragma unroll
    for (int i = 0; i < STAGES<F, R> - 1; i++)
        c.next(i);
    if (unit<F>::TABLE_BYTES) {
        fill_pairs(table);
        __syncthreads();
    }
    for (unsigned tile = blockIdx.x; tile < t.all; tile += gridDim.x) {
        const int64_t l = t.matrix(tile);
        const place at = {(int64_t)t.in_W(tile) * (R * ROWS), t.in_x(tile) * (8 * MT)};
        products_of<bf16> of_l = s;
        packed_rows rows_of_l = rows;
        warp_sums<MT, R> sum = {};
        of_l.move_to(l);
        rows_of_l.move_to(l);
        add_units<F, MT, R>(sum, of_l, rows_of_l, c, at, stage, table);
        finish<MT, R>(sum, of_l, at, sums);
    }
    cp_async_wait<0>();
}

/* ---- launches ---- */

template <typename F, int MT, int R>
static int launch(const struct call *f, const products_of<bf16> &s, const packed_rows &w)
{
    const auto kernel = mma_rows<F, MT, R>;
    const unsigned of_x = (unsigned)ceil_div(s.M, 8 * MT);
    const unsigned of_matrix = (unsigned)ceil_div(s.C, R * ROWS) * of_x;
    const tiles t = {of_x, of_matrix, of_matrix * (unsigned)DIM(f, 'L'),
                     w.W + DIM(f, 'L') * w.bytes};
    int blocks_per_sm;

    CUDA(allow_smem(kernel, SMEM<F, MT, R>));
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, kernel, THREADS,
                                                       SMEM<F, MT, R>));
    const int64_t resident = (int64_t)max(blocks_per_sm, 1) * f->context->limits.sms;
    kernel<<<(unsigned)min((int64_t)t.all, resident), THREADS, SMEM<F, MT, R>, gpu_stream(f)>>>(
        s, w, t);
    return cudaGetLastError();
}

template <typename F>
static int launch_rows(const struct call *f, const products_of<bf16> &s, const packed_rows &w)
{
    return s.M <= 8    ? launch<F, 1, 1>(f, s, w)
           : s.M <= 16 ? launch<F, 2, 1>(f, s, w)
                       : launch<F, 4, 2>(f, s, w);
}

static int forward(const struct call *f)
{
    const products_of<bf16> s = products_of_pass<bf16, FORWARD>(f, 0);
    const packed_rows w(f, gemm_quantised_W(f, 0, sizeof(float)));

    return with_format(f, [&](auto format) { return launch_rows<decltype(format)>(f, s, w); });
}

/* q8_0 takes the largest shared memory. */
static const char *declines(const struct call *f)
{
    const char *why = gemm_quantised_no_spans(f);
    if (why)
        return why;
    if (DIM(f, 'K') > 1 << 28)
        return "rows of more than 268435456 weights";
    if (ceil_div(DIM(f, 'N'), ROWS) * DIM(f, 'L') > INT_MAX)
        return "more than 2147483647 tiles of 16 rows";
    const size_t smem = DIM(f, 'M') > 16 ? SMEM<q8_0, 4, 2> : SMEM<q8_0, 2, 1>;
    return f->context && f->context->limits.smem < smem
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
