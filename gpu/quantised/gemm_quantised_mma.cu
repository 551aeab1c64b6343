/* gemm_quantised, mma: y = x W^T for up to 64 rows of bf16 x, on tensor cores.  W is the left operand:
 * quants are exact in bf16, and a scale multiplies the sum over its weights, in float:
 *
 *     y[m][n] = sum over blocks of  d[n] (sum over j of s[n][j] (sum of q x[m])) - dmin[n] (sum of m[n][j] X[m][j])
 *
 * where X[m][j] is the sum of x[m] over the 32 weights j: three bf16, whose sum it is, for another product.
 *
 * A warp takes units of 256 weights (mma_unit.cuh) of 16 rows of W, or of 32 for more than 16 rows of x.
 * Those rows are a tile, which a block computes: warp i of n takes units i, i + n ....  cp.async brings the
 * bytes, and up to 8 rows of x, to shared memory; a block goes on to its next tile while that one's are on
 * their way.
 *
 * All sums are added in one order, whatever the number of rows of x: units u, u + 8 ... by a warp, then u and
 * u + 4, then the four.  So a row's bits are the same in each. */
#include <limits.h>

#include "gpu/device/async.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/segment.cuh"
#include "gpu/quantised/gemm_quantised.cuh"
#include "gpu/quantised/mma_unit.cuh"

enum { SPLITS = 8, ROWS = 16, MOST_STAGES = 4, X_STRIDE = 2 * MMA_UNIT + 64 };

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

/* A kernel for 8 MT rows of x, or, where x is staged, for up to X_ROWS: warps of a block, sixteens of rows of
 * a tile of W, and blocks of an SM, between which shared memory is divided. */
template <typename F, int MT_, int X_ROWS_>
struct shape {
    enum { MT = MT_, X_ROWS = X_ROWS_, R = MT > 2 ? 2 : 1, WARPS = MT == 1 ? 4 : 8 };
    enum { THREADS = 32 * WARPS, ROUNDS = SPLITS / WARPS, TILE = R * ROWS };
    enum { X_FIRST = MT == 2 }; /* is x read before copies begin, behind which it would come? */
    enum { BLOCKS = X_ROWS == 8 ? 2 : 16 / (WARPS * R) };
    enum { COLUMNS = MT == 1 ? 1 : 2, STEP = TILE + 4 }; /* see finish() */
    enum { SUMS = WARPS * 8 * COLUMNS * STEP, W_BYTES = TILE * STRIDE<F> };
    enum { STAGE_BYTES = W_BYTES + X_ROWS * X_STRIDE };
    enum { OTHER_BYTES = unit<F>::TABLE_BYTES + 2 * (int)sizeof(float) * SUMS };
    enum {
        STAGES =
            in_range(((220 << 10) / BLOCKS - OTHER_BYTES) / (WARPS * STAGE_BYTES), 2, MOST_STAGES)
    };
    enum { STAGES_OF_WARP = STAGES * STAGE_BYTES, STAGES_OF_BLOCK = WARPS * STAGES_OF_WARP };
    enum { SMEM = OTHER_BYTES + STAGES_OF_BLOCK };
    typedef F format;
};

/* The tiles of all matrices, in the order in which blocks take them: those of the same rows of W, which
 * have different rows of x, one after the other. */
struct tiles {
    unsigned of_x, of_matrix, all;
    const uint8_t *end; /* of the last matrix */

    __device__ __forceinline__ unsigned matrix(unsigned tile) const
    {
        return tile < of_matrix ? 0 : tile / of_matrix;
    }
    /* A tile's place among those of its matrix l in W, and in x. */
    __device__ __forceinline__ unsigned in_W(unsigned tile, unsigned l) const
    {
        const unsigned i = tile - l * of_matrix;
        return of_x == 1 ? i : i / of_x;
    }
    __device__ __forceinline__ unsigned in_x(unsigned tile) const
    {
        return of_x == 1 ? 0 : tile % of_x;
    }
};

/* The first row of W, and of x, of a tile. */
struct first_rows {
    int64_t n;
    unsigned m;
};

/* What a warp copies: unit after unit of its rows, and of x, then those of its block's next tile. */
template <typename S>
struct copier {
    typedef typename S::format F;
    static constexpr int ALL = S::TILE * CHUNKS<F>, COPIES = (ALL + 31) / 32;
    static constexpr bool INSIDE = unit<F>::ALIGNED == 16 && unit<F>::WHOLE_UNITS;

    const packed_rows &w;
    const products_of<bf16> &s;
    const tiles &t;
    unsigned units, tile, u;
    const uint8_t *from[COPIES]; /* of the 16 bytes that this lane copies, of unit 0 */
    const bf16 *x;
    unsigned char *stages;
    int to[COPIES]; /* where they go in a stage */

    /* The i-th ones: of which row of the tile, and of which 16 bytes of that. */
    static __device__ __forceinline__ int part(int i)
    {
        const int p = (int)threadIdx.x % 32 % CHUNKS<F> + 32 * i % CHUNKS<F>;
        return p < CHUNKS<F> ? p : p - CHUNKS<F>;
    }
    static __device__ __forceinline__ int row(int i)
    {
        const int lane = (int)threadIdx.x % 32;
        return lane / CHUNKS<F> + 32 * i / CHUNKS<F> +
               (lane % CHUNKS<F> + 32 * i % CHUNKS<F> >= CHUNKS<F>);
    }

    __device__ __forceinline__ copier(const packed_rows &w, const products_of<bf16> &s,
                                      const tiles &t, unsigned char *of_block)
        : w(w), s(s), t(t), units((unsigned)ceil_div(w.K, MMA_UNIT)), tile(blockIdx.x),
          u(threadIdx.x / 32), stages(of_block + threadIdx.x / 32 * S::STAGES_OF_WARP)
    {
        #pragma unroll
        for (int i = 0; i < COPIES; i++)
            to[i] = row(i) * STRIDE<F> + 16 * part(i);
        if (u >= units)
            tile = t.all;
        open();
    }
    __device__ __forceinline__ void open()
    {
        const unsigned l = t.matrix(tile);
        const int64_t n0 = (int64_t)t.in_W(tile, l) * S::TILE;
        const uint8_t *first = w.W + l * w.bytes + n0 * w.row_bytes;
        const int last = (int)min(s.C - 1 - n0, (int64_t)(S::TILE - 1));
        #pragma unroll
        for (int i = 0; i < COPIES; i++)
            from[i] = first + (int64_t)min(row(i), last) * (unsigned)w.row_bytes +
                      (unit<F>::ALIGNED == 16 ? 16 * part(i) : 0);
        x = s.a + l * s.M * s.D;
    }

    /* Begin to copy a unit into a stage: whole 16 bytes, from the multiple of 16 before it. */
    __device__ __forceinline__ void copy(int stage) const
    {
        const int lane = (int)threadIdx.x % 32;
        unsigned char *there = stages + stage * S::STAGE_BYTES;
        if (S::X_ROWS)
            copy_x(there + S::W_BYTES);
        #pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const uint8_t *at = from[i] + (uint64_t)u * unit<F>::BYTES;
            if (unit<F>::ALIGNED < 16)
                at = aligned_down(at) + 16 * part(i);
            const int64_t left = INSIDE ? 16 : t.end - at;
            if (ALL % 32 != 0 && lane + 32 * i >= ALL)
                continue;
            if (!INSIDE && left > 0 && left < 16) /* the end of W */
                *(vec<bf16> *)(there + to[i]) = load_beginning((const bf16 *)at, (int)left / 2);
            else
                cp_async16(there + to[i], left > 0 ? at : aligned_down(from[i]), left > 0 ? 16 : 0);
        }
    }
    /* Eight columns of each row of x for a lane; behind the last column, zeros. */
    __device__ __forceinline__ void copy_x(unsigned char *there) const
    {
        const int lane = (int)threadIdx.x % 32, k = (int)u * MMA_UNIT + 8 * lane, K = (int)s.D;
        const bool inside = unit<F>::WHOLE_UNITS || k < K;
        const bf16 *at = x + (inside ? k : 0);
        #pragma unroll 1
        for (int m = 0; m < (int)s.M; m++, at += K)
            cp_async16(there + m * X_STRIDE + 16 * lane, at, inside ? 16 : 0);
    }

    /* All stages but one. */
    __device__ __forceinline__ void begin()
    {
        #pragma unroll 1
        for (int i = 0; i < S::STAGES - 1; i++)
            next(i);
    }

    /* The next unit, if there is one. */
    __device__ __forceinline__ void next(int stage)
    {
        if (tile < t.all) {
            copy(stage);
            u += S::WARPS;
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
template <typename S>
struct rows_of_lane {
    typedef typename S::format F;
    const unsigned char *stages;
    unsigned begin[2 * S::R]; /* of a row in memory, its lower bits */

    /* Where unit u of one of them is in its stage. */
    __device__ __forceinline__ const uint8_t *staged(unsigned u, int r, int stage) const
    {
        const unsigned before = unit<F>::ALIGNED == 16 ? 0 : (begin[r] + u * unit<F>::BYTES) % 16;
        return stages + stage * S::STAGE_BYTES + (fragment_row() + 8 * r) * STRIDE<F> + before;
    }
};

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

/* sum -= what the minima and the OFFSET come to in a unit of rows g and g + 8, which are at `at`. */
template <typename F, int MT>
static __device__ __forceinline__ void subtract_sums(float (*sum)[4], const uint8_t *const *at,
                                                     const float (*X)[4])
{
    const typename unit<F>::lines low(at[0]), high(at[1]);
    const int t = (int)threadIdx.x % 4;
    const unsigned s[2] = {low.scales(t), high.scales(t)};
    const unsigned minima[2] = {low.minima(t), high.minima(t)};

    #pragma unroll
    for (int m = 0; m < MT; m++) {
        unsigned b[3];
        float of_s[4], of_m[4];
        in_three(X[m], b);
        multiply_sums(of_s, s[0], s[1], b);
        multiply_sums(of_m, minima[0], minima[1], b);
        add_scaled(sum[m], of_s, low.d.minus, high.d.minus);
        add_scaled(sum[m], of_m, -low.dmin, -high.dmin);
    }
}

/* ---- units ---- */

/* The rows of x that go with a lane; columns that there are not come to nothing.  Of those that are staged,
 * those of a unit. */
template <typename S>
struct x_of_lane {
    typedef typename S::format F;
    const bf16 *x;
    int K;
    unsigned row[S::MT]; /* where it begins, in eights */

    __device__ __forceinline__ x_of_lane(const products_of<bf16> &s, unsigned m0)
        : x(s.a), K((int)s.D)
    {
        #pragma unroll
        for (int m = 0; m < S::MT; m++) {
            const int64_t i = min((int64_t)(m0 + 8 * m + fragment_row()), s.M - 1);
            row[m] = (unsigned)(i * (S::X_ROWS ? X_STRIDE / 16 : s.D / 8));
        }
    }
    /* Of N parts from column k on; of the last 32 columns, where a row has no more. */
    template <int N>
    __device__ __forceinline__ void load(uint4 (*to)[S::MT], int k) const
    {
        #pragma unroll
        for (int i = 0; i < N; i++)
            #pragma unroll
            for (int m = 0; m < S::MT; m++) {
                const int from = k + 32 * i;
                const bool whole = unit<F>::WHOLE_UNITS || S::X_ROWS;
                to[i][m] = x_of<F>(x + (8 * (int64_t)row[m] + (whole ? from : min(from, K - 32))));
            }
    }
};

/* What a warp adds up: R times 16 rows of W, 8 MT of x. */
template <typename S>
struct warp_sums {
    float of[S::R][S::MT][4];
};

/* Parts of a unit that a warp takes at once, and x of those that are next, read before where x is not
 * staged: two times N. */
template <typename S>
struct x_ahead {
    static constexpr int N = S::MT > 1 ? 1 : 2;
    uint4 of[2][N][S::MT];
};

/* A unit of a warp's rows in shared memory. */
template <typename S>
struct staged_unit {
    typedef typename S::format F;
    const uint8_t *at[2 * S::R];
    typename unit<F>::lines line[2 * S::R];
    const unit_scales<S::R> &scales;
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

/* sum += N parts of a unit from part j on, times x. */
template <typename S, int N>
static __device__ __forceinline__ void add_some(warp_sums<S> &sum, const staged_unit<S> &w, int j,
                                                const uint4 (*x)[S::MT], float (*X)[4])
{
    typedef typename S::format F;
    constexpr int MT = S::MT;
    constexpr int M = MT < 4 ? MT : unit<F>::HALVES ? 1 : 2; /* as many as registers hold */

    #pragma unroll
    for (int tile = 0; tile < S::R; tile++) {
        part_of_rows part[N];
        #pragma unroll
        for (int i = 0; i < N; i++)
            part[i] = w.part(tile, j + i);
        #pragma unroll
        for (int m0 = 0; m0 < MT; m0 += M)
            add_parts<F, M, N, MT>(sum.of[tile], part, x, m0);
    }
    if constexpr (unit<F>::OFFSET != 0)
        #pragma unroll
        for (int i = 0; i < N; i++)
            add_sums<MT>(X, j + i, x[i]);
}

/* sum += a unit, from column k of x on; the next one is from `then` on. */
template <typename S>
static __device__ __forceinline__ void add_unit(warp_sums<S> &sum, const staged_unit<S> &w,
                                                x_ahead<S> &x, const x_of_lane<S> &row, int k,
                                                int then)
{
    typedef typename S::format F;
    constexpr int N = x_ahead<S>::N, STEPS = PARTS / N;
    constexpr int UNROLLED = S::MT == 1 ? unit<F>::UNROLLED : 2;
    float X[unit<F>::OFFSET ? S::MT : 1][4] = {};

    #pragma unroll UNROLLED / N
    for (int i = 0; i < STEPS; i++) {
        if (S::X_ROWS)
            row.template load<N>(x.of[i % 2], k + 32 * N * i);
        add_some<S, N>(sum, w, N * i, x.of[i % 2], X);
        if (!S::X_ROWS)
            row.template load<N>(x.of[i % 2], i + 2 < STEPS ? k + 32 * N * (i + 2)
                                                            : then + 32 * N * (i + 2 - STEPS));
    }
    if constexpr (unit<F>::OFFSET != 0)
        #pragma unroll
        for (int tile = 0; tile < S::R; tile++) {
            __syncwarp(); /* so that the minima are read now, and not kept in registers before */
            subtract_sums<F, S::MT>(sum.of[tile], w.at + 2 * tile, X);
        }
}

/* The same for the last unit of a row, of fewer parts; its format has no OFFSET. */
template <typename S>
static __device__ __forceinline__ void add_last(warp_sums<S> &sum, const staged_unit<S> &w,
                                                const x_of_lane<S> &row, int k, int parts)
{
    float X[1][4];

    #pragma unroll 1
    for (int j = 0; j < parts; j++) {
        uint4 x[1][S::MT];
        row.template load<1>(x, k + 32 * j);
        add_some<S, 1>(sum, w, j, x, X);
    }
}

/* Rows of a tile, of matrix l. */
template <typename S>
struct tile_of_warp {
    rows_of_lane<S> w;
    scales_of_rows<S::R> scales;
    x_of_lane<S> x;

    __device__ __forceinline__ tile_of_warp(const products_of<bf16> &s, const packed_rows &rows,
                                            const unsigned char *stages, const first_rows &at)
        : w{stages, {}}, scales{rows, {}, 0, false}, x(s, at.m)
    {
        #pragma unroll
        for (int r = 0; r < 2 * S::R; r++) {
            const int64_t n = min(at.n + fragment_row() + 8 * r, s.C - 1);
            w.begin[r] = (unsigned)(uintptr_t)(rows.W + n * rows.row_bytes);
            scales.first[r] = n * s.D;
        }
        if (unit<typename S::format>::ELSEWHERE) {
            scales.offset = rows.scales.absmax ? 0 : *rows.scales.offset;
            scales.same = rows.log2_block > 5 && s.D % 64 == 0;
        }
    }
};

/* All units of a warp, to one sum after the other; `stage` is that of the first.  Is this the block's
 * first tile? */
template <typename S>
static __device__ __forceinline__ void add_units(warp_sums<S> *sum, tile_of_warp<S> &t,
                                                 copier<S> &c, bool first, int &stage,
                                                 const unsigned *table)
{
    typedef typename S::format F;
    constexpr int N = x_ahead<S>::N;
    const unsigned warp = threadIdx.x / 32;
    unit_scales<S::R> scales = {}, next = {};
    x_ahead<S> x;

    if (unit<F>::ELSEWHERE)
        next = t.scales.at((int)warp * MMA_UNIT);
    #pragma unroll
    for (int i = 0; i < 2 && !S::X_ROWS; i++)
        t.x.template load<N>(x.of[i], (warp < c.units ? (int)warp * MMA_UNIT : 0) + 32 * N * i);
    if (S::X_FIRST && first)
        c.begin();
    for (unsigned u = warp; u < c.units; u += S::WARPS) {
        const int k = (int)u * MMA_UNIT,
                  then = u + S::WARPS < c.units ? k + S::WARPS * MMA_UNIT : k;
        staged_unit<S> there = {{}, {}, scales, table};
        cp_async_wait<S::STAGES - 2>();
        __syncwarp();
        c.next(stage ? stage - 1 : S::STAGES - 1);
        scales = next;
        if (unit<F>::ELSEWHERE)
            next = t.scales.at(k + S::WARPS * MMA_UNIT);
        #pragma unroll
        for (int r = 0; r < 2 * S::R; r++) {
            there.at[r] = t.w.staged(u, r, stage);
            there.line[r] = typename unit<F>::lines(there.at[r]);
        }
        if (S::X_ROWS)
            t.x.x = (const bf16 *)(c.stages + stage * S::STAGE_BYTES + S::W_BYTES);
        const int parts = min((t.x.K - k) / 32, (int)PARTS), from = S::X_ROWS ? 0 : k;
        if (unit<F>::WHOLE_UNITS || parts == PARTS)
            add_unit<S>(*sum, there, x, t.x, from, then);
        else
            add_last<S>(*sum, there, t.x, from, parts);
        stage = stage + 1 < S::STAGES ? stage + 1 : 0;
        if (S::ROUNDS > 1) {
            const warp_sums<S> other = sum[1];
            sum[1] = sum[0];
            sum[0] = other;
        }
    }
}

/* The sums of the warps to y, COLUMNS tiles of rows of x at a time.  `part` says which of two buffers is
 * next: the other one may still be read. */
template <typename S>
static __device__ __forceinline__ void finish(const warp_sums<S> &sum, const products_of<bf16> &s,
                                              const first_rows &at, float *sums, int &part)
{
    constexpr int EACH = 8 * S::COLUMNS * S::STEP;
    const int warp = (int)threadIdx.x / 32, g = fragment_row(), column = fragment_column();

    #pragma unroll
    for (int m0 = 0; m0 < S::MT; m0 += S::COLUMNS, part ^= 1) {
        float *of_warp = sums + part * S::SUMS;
        #pragma unroll
        for (int m = 0; m < S::COLUMNS; m++)
            #pragma unroll
            for (int i = 0; i < 4 * S::R; i++)
                of_warp[warp * EACH + (8 * m + column + i % 2) * S::STEP + g + i / 2 * 8] =
                    sum.of[i / 4][m0 + m][i % 4];
        __syncthreads();
        #pragma unroll 1
        for (int i = (int)threadIdx.x; i < 8 * S::COLUMNS * S::TILE; i += S::THREADS) {
            const float *of = of_warp + i / S::TILE * S::STEP + i % S::TILE;
            const int64_t m = at.m + 8 * m0 + i / S::TILE, n = at.n + i % S::TILE;
            float all = 0;
            #pragma unroll
            for (int k = 0; k < 4; k++)
                all += S::WARPS == 8 ? of[k * EACH] + of[(k + 4) * EACH] : of[k * EACH];
            if (m < s.M && n < s.C)
                store(s.c + m * s.C + n, all);
        }
    }
}

/* The sum of units i, i + 8 ... and of i + 4 ...: sum[0] is the next one's. */
template <typename S>
static __device__ __forceinline__ void add_rounds(warp_sums<S> *sum)
{
    #pragma unroll
    for (int i = 0; i < 4 * S::R * S::MT; i++)
        (&sum[0].of[0][0][0])[i] += (&sum[1].of[0][0][0])[i];
}

template <typename S>
__global__ void __launch_bounds__(S::THREADS, 16 / (S::WARPS * S::R))
    mma_rows(products_of<bf16> s, packed_rows rows, tiles t)
{
    extern __shared__ __align__(16) unsigned char shared[];
    unsigned *table = (unsigned *)shared;
    unsigned char *stages = shared + unit<typename S::format>::TABLE_BYTES;
    float *sums = (float *)(stages + S::STAGES_OF_BLOCK);
    copier<S> c(rows, s, t, stages);
    int stage = 0, part = 0;

    if (!S::X_FIRST)
        c.begin();
    if (unit<typename S::format>::TABLE_BYTES) {
        fill_pairs(table);
        __syncthreads();
    }
    for (unsigned tile = blockIdx.x; tile < t.all; tile += gridDim.x) {
        const unsigned l = t.matrix(tile);
        const first_rows at = {(int64_t)t.in_W(tile, l) * S::TILE, t.in_x(tile) * (8 * S::MT)};
        products_of<bf16> of_l = s;
        packed_rows rows_of_l = rows;
        warp_sums<S> sum[S::ROUNDS] = {};
        of_l.move_to(l);
        rows_of_l.move_to(l);
        tile_of_warp<S> of_warp(of_l, rows_of_l, c.stages, at);
        add_units<S>(sum, of_warp, c, tile == blockIdx.x, stage, table);
        if constexpr (S::ROUNDS > 1)
            add_rounds<S>(sum);
        finish<S>(sum[0], of_l, at, sums, part);
    }
    cp_async_wait<0>();
}

/* ---- launches ---- */

template <typename S>
static int launch(const struct call *f, const products_of<bf16> &s, const packed_rows &w)
{
    const auto kernel = mma_rows<S>;
    const unsigned of_x = (unsigned)ceil_div(s.M, 8 * S::MT);
    const unsigned of_matrix = (unsigned)ceil_div(s.C, S::TILE) * of_x;
    const tiles t = {of_x, of_matrix, of_matrix * (unsigned)DIM(f, 'L'),
                     w.W + DIM(f, 'L') * w.bytes};
    int blocks_per_sm;

    CUDA(allow_smem(kernel, S::SMEM));
    CUDA(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, kernel, S::THREADS, S::SMEM));
    const int64_t resident = (int64_t)max(blocks_per_sm, 1) * f->context->limits.sms;
    kernel<<<(unsigned)min((int64_t)t.all, resident), S::THREADS, S::SMEM, gpu_stream(f)>>>(s, w,
                                                                                            t);
    return cudaGetLastError();
}

/* Calls `go` with a value of the shape for a call. */
template <typename Go>
static int with_shape(const struct call *f, const Go &go)
{
    const int64_t M = DIM(f, 'M');

    return with_format(f, [&](auto format) {
        typedef decltype(format) F;
        return M <= 2    ? go(shape<F, 1, 2>())
               : M <= 8  ? go(shape<F, 1, 8>())
               : M <= 16 ? go(shape<F, 2, 0>())
                         : go(shape<F, 4, 0>());
    });
}

static int forward(const struct call *f)
{
    const products_of<bf16> s = products_of_pass<bf16, FORWARD>(f, 0);
    const packed_rows w(f, gemm_quantised_W(f, 0, sizeof(float)));

    return with_shape(f, [&](auto shape) { return launch<decltype(shape)>(f, s, w); });
}

static const char *declines(const struct call *f)
{
    const char *why = gemm_quantised_no_spans(f);
    if (why)
        return why;
    if (DIM(f, 'K') > 1 << 28)
        return "rows of more than 268435456 weights";
    if (ceil_div(DIM(f, 'N'), ROWS) * DIM(f, 'L') > INT_MAX)
        return "more than 2147483647 tiles of 16 rows";
    const int smem = with_shape(f, [](auto shape) { return (int)decltype(shape)::SMEM; });
    return f->context && f->context->limits.smem < (size_t)smem
               ? "blocks of this device have too little shared memory"
               : NULL;
}

GPU_KERNEL_FOR(bf16, gemm_quantised_mma, mma,
               .idea = "quants as they are on tensor cores, scales on the sums of 32",
               .pass = {forward, gemm_quantised_mma_backward}, .work = gemm_quantised_mma_work,
               .declines = declines,
               .approximates = "nf4's table rounded to bf16, in dx all weights", .unit = 0x1p-8,
               .rows_alone = 1);
