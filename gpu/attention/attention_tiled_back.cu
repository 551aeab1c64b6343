/* attention, kernel `tiled`, backward (common/ops/attention.h).
 *
 * P_ij again from lse, tile by tile, and with dp = do v^T the weights du and P Z / (1 - p).  One kernel
 * does it twice: for dq the rows of a block are queries and the keys pass by; for dk and dv its rows are
 * keys, and the queries of all heads of the group pass by.  So each result is summed by one warp, in a
 * fixed order.  The gradient of the bias has a kernel of its own: a block has a tile of it, and all
 * batch rows pass by. */
#include "gpu/attention/tile.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/softmax.cuh"

template <typename T>
struct gradients {
    T *dq, *dk, *dv;
};

/* Which side of a tile the rows are; the columns are the other.  BIAS: rows are queries, and the result
 * is ds itself. */
enum role { OF_QUERIES, OF_KEYS, OF_BIAS };

/* The rows [rows] and columns: q and do, or k and v; lse and delta of the queries. */
template <typename TILE, enum role ROLE>
struct backward_smem {
    float *row[2], *column[2], *tile, *lse, *delta;

    static __host__ __device__ backward_smem alloc(smem_arena * a, int warps){
        const int rows = warps * TILE::WARP_ROWS, columns = TILE::COLUMNS; backward_smem m;
        for (int k = 0; k < 2; k++){m.row[k] = a->alloc<float>(rows * TILE::LD);
                                    m.column[k] = a->alloc<float>(columns * TILE::LD);}
m.tile = a->alloc<float>(ROLE == OF_BIAS ? 0 : rows * TILE::LD_TILE);
m.lse = a->alloc<float>(ROLE == OF_KEYS ? columns : rows);
m.delta = a->alloc<float>(ROLE == OF_KEYS ? columns : rows);
return m;
}
}
;

/* A warp's tile: rows from `row` on, columns from `column` on; lse and delta of its queries. */
struct backward_tile {
    int64_t b, h, row, column;
    const float *lse, *delta;
};

/* The weights of the element in row r and column c of the tile, of u / scale and dp.  PLAIN: the query
 * sees the key, and no option changes its score. */
template <enum role ROLE, bool PLAIN, typename T>
static __device__ __forceinline__ weights weights_at(const attention_shape &n, const T *bias,
                                                     const backward_tile &t, int r, int c, float u,
                                                     float dp)
{
    const int query = ROLE == OF_KEYS ? c : r;
    const int64_t i = ROLE == OF_KEYS ? t.column + c : t.row + r;
    const int64_t j = ROLE == OF_KEYS ? t.row + r : t.column + c;
    score s = {n.scale * u, 1};
    float z = 1;

    if (!PLAIN) {
        const bool seen = i < n.T && n.visible(i, j);
        s = seen ? score_of(n, s.s, bias, t.h, i, j) : score{-INFINITY, 0};
        z = seen ? kept_share(n, dropout_step(n.counter), t.b * n.H + t.h, i, j) : 0;
    }
    return weights_of(s, power(s.s, t.lse[query], LOG2E), z, dp, t.delta[query]);
}

/* u becomes du, or ds for the bias, and dp becomes P Z / (1 - p), in row 0 of a lane, which is row r of
 * the tile. */
template <enum role ROLE, bool PLAIN, typename T, int COLS>
static __device__ __forceinline__ void weigh_row(float (&u)[COLS], float (&dp)[COLS],
                                                 const attention_shape &n, const T *bias,
                                                 const backward_tile &t, int r)
{
    #pragma unroll COLS
    for (int c = 0; c < COLS; c++) {
        const weights w =
            weights_at<ROLE, PLAIN>(n, bias, t, r, lane_column() + 8 * c, u[c], dp[c]);
        u[c] = ROLE == OF_BIAS ? w.ds : w.du;
        dp[c] = w.P;
    }
}

template <typename TILE, enum role ROLE>
static __device__ __forceinline__ enum cover cover_of(const attention_shape &n,
                                                      const backward_tile &t)
{
    if (ROLE == OF_KEYS)
        return cover_of(n, t.column, TILE::COLUMNS, t.row, TILE::WARP_ROWS);
    return cover_of(n, t.row, TILE::WARP_ROWS, t.column, TILE::COLUMNS);
}

template <typename TILE, enum role ROLE, typename T>
static __device__ __forceinline__ void
weigh(float (&u)[TILE::ROWS][TILE::COLS], float (&dp)[TILE::ROWS][TILE::COLS],
      const attention_shape &n, const T *bias, const backward_tile &t, enum cover cover)
{
    if (cover == SEEN && n.plain) {
        #pragma unroll 8
        for (int r = 0; r < TILE::ROWS; r++)
            weigh_row<ROLE, true>(u[r], dp[r], n, bias, t, lane_row() + 4 * r);
        return;
    }
    #pragma unroll 1
    for (int r = 0; r < TILE::ROWS; r++) {
        weigh_row<ROLE, false>(u[0], dp[0], n, bias, t, lane_row() + 4 * r);
        rotate_rows(u);
        rotate_rows(dp);
    }
}

/* ---- operands ---- */

/* Loads k and v of keys from j on, or q and do of queries from i on; returns whether a value is not
 * finite. */
template <typename TILE, typename T>
static __device__ __forceinline__ bool load_keys(float *const (&to)[2], const attention_shape &n,
                                                 const given<T> &x, const backward_tile &t,
                                                 int64_t j, int rows)
{
    const bool odd = load_rows<TILE>(to[0], keys_from(n, x.k, t.b, j, t.h, n.D), rows);
    return load_rows<TILE>(to[1], keys_from(n, x.v, t.b, j, t.h, n.E), rows) || odd;
}

template <typename TILE, typename T>
static __device__ __forceinline__ bool load_queries(float *const (&to)[2], const attention_shape &n,
                                                    const given<T> &x, const backward_tile &t,
                                                    int64_t i, int rows)
{
    const bool odd = load_rows<TILE>(to[0], queries_from(n, x.q, t.b, i, t.h, n.D), rows);
    return load_rows<TILE>(to[1], queries_from(n, x.d_o, t.b, i, t.h, n.E), rows) || odd;
}

/* Loads `rows` elements of a tensor [B,H,T] from i on; 0 beyond the end. */
static __device__ __forceinline__ void load_numbers(float *to, const float *from,
                                                    const attention_shape &n,
                                                    const backward_tile &t, int64_t i, int rows)
{
    for (int k = threadIdx.x; k < rows; k += blockDim.x)
        to[k] = i + k < n.T ? from[n.row(t.b, t.h, i + k)] : 0;
}

/* ---- dq, and dk and dv ---- */

/* What a block computes: rows from `row` on; its columns are those from `begin` to `end` of the query
 * heads h to last_h. */
struct part {
    int64_t b, h, last_h, row, begin, end;
};

template <enum role ROLE>
static __device__ __forceinline__ part part_of(const attention_shape &n, int rows, int columns)
{
    const struct attention_window &w = n.window;

    if (ROLE == OF_KEYS) {
        const int64_t heads = n.B * n.G, head = blockIdx.x % heads, group = n.H / n.G;
        const int64_t j = blockIdx.x / heads * rows, h = head % n.G * group;
        const int64_t first = w.right < 0 ? 0 : max(j - w.offset - w.right, (int64_t)0);
        const int64_t end = w.left < 0 ? n.T : min(j + rows + w.left - w.offset, n.T);
        return {head / n.G, h, h + group - 1, j, first / columns * columns, end};
    }
    const int64_t heads = n.B * n.H, head = blockIdx.x % heads, h = head % n.H;
    const int64_t i = (ceil_div(n.T, rows) - 1 - blockIdx.x / heads) * rows; /* the longest first */
    return {head / n.H,
            h,
            h,
            i,
            attention_first(&w, i) / columns * columns,
            attention_last(&w, min(i + rows, n.T) - 1)};
}

/* sums += weights y: the weights go through the warp's tile in shared memory. */
template <typename TILE>
static __device__ __forceinline__ void multiply(row_results<TILE> &sums, float *tile,
                                                const float (&w)[TILE::ROWS][TILE::COLS],
                                                const float *y, int width, bool checked)
{
    __syncwarp(); /* the weights before have been read */
    put_tile<TILE>(tile, w);
    __syncwarp();
    add_products<TILE>(sums, tile, y, width, checked);
}

template <typename TILE, enum role ROLE, typename T>
static __device__ __forceinline__ void store_result(const row_results<TILE> &sums, T *all,
                                                    const attention_shape &n,
                                                    const backward_tile &t, int width, float factor)
{
    const auto row_at = [&](int r) -> T * {
        const int64_t row = t.row + r;
        if (ROLE == OF_KEYS)
            return row < n.S ? all + n.key(t.b, row, t.h) * width : NULL;
        return row < n.T ? all + n.query(t.b, row, t.h) * width : NULL;
    };
    store_rows<TILE, T>(sums, width, row_at, [factor](int) { return factor; });
}

/* Loads the tile of columns, and of which queries there are lse and delta; returns whether a value is not
 * finite. */
template <typename TILE, enum role ROLE, typename T>
static __device__ __forceinline__ bool load_columns(const backward_smem<TILE, ROLE> &m,
                                                    const attention_shape &n, const given<T> &x,
                                                    const float *delta, const backward_tile &t)
{
    if (ROLE != OF_KEYS)
        return load_keys<TILE>(m.column, n, x, t, t.column, TILE::COLUMNS);
    load_numbers(m.lse, x.lse, n, t, t.column, TILE::COLUMNS);
    load_numbers(m.delta, delta, n, t, t.column, TILE::COLUMNS);
    return load_queries<TILE>(m.column, n, x, t, t.column, TILE::COLUMNS);
}

template <typename TILE, enum role ROLE, typename T>
static __device__ __forceinline__ void
load_block_rows(const backward_smem<TILE, ROLE> &m, const attention_shape &n, const given<T> &x,
                const float *delta, const backward_tile &t, int64_t row)
{
    const int rows = blockDim.x / 32 * TILE::WARP_ROWS;

    if (ROLE == OF_KEYS) {
        load_keys<TILE>(m.row, n, x, t, row, rows);
        return;
    }
    load_queries<TILE>(m.row, n, x, t, row, rows);
    load_numbers(m.lse, x.lse, n, t, row, rows);
    load_numbers(m.delta, delta, n, t, row, rows);
}

/* u and dp of a tile, then its weights in their places (weigh_row). */
template <typename TILE, enum role ROLE, typename T>
static __device__ __forceinline__ void
find_weights(float (&u)[TILE::ROWS][TILE::COLS], float (&dp)[TILE::ROWS][TILE::COLS],
             const backward_smem<TILE, ROLE> &m, const attention_shape &n, const given<T> &x,
             const backward_tile &t, enum cover cover)
{
    const int own = threadIdx.x / 32 * TILE::WARP_ROWS * TILE::LD;

    dots<TILE>(u, m.row[0] + own, m.column[0], n.D);
    dots<TILE>(dp, m.row[1] + own, m.column[1], n.E);
    weigh<TILE, ROLE>(u, dp, n, x.bias, t, cover);
}

template <typename T, typename TILE, enum role ROLE>
__global__ void __launch_bounds__(32 * MAX_WARPS)
    tiled_backward_kernel(attention_shape n, given<T> x, const float *delta, gradients<T> y)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    smem_arena arena = {buffer, 0};
    const int warps = blockDim.x / 32, own = threadIdx.x / 32 * TILE::WARP_ROWS;
    const backward_smem<TILE, ROLE> m = backward_smem<TILE, ROLE>::alloc(&arena, warps);
    const part p = part_of<ROLE>(n, warps * TILE::WARP_ROWS, TILE::COLUMNS);
    const int own_query = ROLE == OF_KEYS ? 0 : own;
    backward_tile t = {p.b, p.h, p.row + own, 0, m.lse + own_query, m.delta + own_query};
    float *const tile = m.tile + own * TILE::LD_TILE;
    row_results<TILE> first = {}, second = {}; /* dq; or dk and dv */

    load_block_rows<TILE, ROLE>(m, n, x, delta, t, p.row);
    for (; t.h <= p.last_h; t.h++)
        for (t.column = p.begin; t.column < p.end; t.column += TILE::COLUMNS) {
            __syncthreads(); /* the tile before has been read */
            const bool odd = load_columns<TILE, ROLE>(m, n, x, delta, t);
            const bool checked = __syncthreads_or(odd);
            const enum cover cover = cover_of<TILE, ROLE>(n, t);
            if (cover == HIDDEN)
                continue;
            float u[TILE::ROWS][TILE::COLS], dp[TILE::ROWS][TILE::COLS];
            find_weights<TILE, ROLE>(u, dp, m, n, x, t, cover);
            multiply<TILE>(first, tile, u, m.column[0], n.D, checked);
            if (ROLE == OF_KEYS)
                multiply<TILE>(second, tile, dp, m.column[1], n.E, checked);
        }
    t.h = p.h;
    store_result<TILE, ROLE>(first, ROLE == OF_KEYS ? y.dk : y.dq, n, t, n.D, n.scale);
    if (ROLE == OF_KEYS)
        store_result<TILE, ROLE>(second, y.dv, n, t, n.E, 1);
}

/* ---- the gradient of the bias ---- */

/* A block has a tile of dbias[h], and all batch rows pass by. */
template <typename T, typename TILE>
__global__ void __launch_bounds__(32 * MAX_WARPS)
    tiled_dbias_kernel(attention_shape n, given<T> x, const float *delta, float *dbias)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    smem_arena arena = {buffer, 0};
    const int warps = blockDim.x / 32, rows = warps * TILE::WARP_ROWS;
    const int own = threadIdx.x / 32 * TILE::WARP_ROWS;
    const backward_smem<TILE, OF_BIAS> m = backward_smem<TILE, OF_BIAS>::alloc(&arena, warps);
    const int64_t columns = ceil_div(n.S, TILE::COLUMNS), tile = blockIdx.x / n.H;
    const int64_t row = tile / columns * rows;
    backward_tile t = {0,           blockIdx.x % n.H, row + own, tile % columns * TILE::COLUMNS,
                       m.lse + own, m.delta + own};
    const enum cover cover = cover_of<TILE, OF_BIAS>(n, t);
    float sums[TILE::ROWS][TILE::COLS] = {};

    for (; t.b < n.B; t.b++) {
        __syncthreads(); /* the tiles before have been read */
        load_block_rows<TILE, OF_BIAS>(m, n, x, delta, t, row);
        load_columns<TILE, OF_BIAS>(m, n, x, delta, t);
        __syncthreads();
        if (cover == HIDDEN)
            continue;
        float ds[TILE::ROWS][TILE::COLS], dp[TILE::ROWS][TILE::COLS];
        find_weights<TILE, OF_BIAS>(ds, dp, m, n, x, t, cover);
        #pragma unroll 8
        for (int r = 0; r < TILE::ROWS; r++)
            #pragma unroll 8
            for (int c = 0; c < TILE::COLS; c++)
                sums[r][c] += ds[r][c];
    }
    #pragma unroll 8
    for (int r = 0; r < TILE::ROWS; r++) {
        const int64_t i = t.row + lane_row() + 4 * r;
        #pragma unroll 8
        for (int c = 0; c < TILE::COLS; c++) {
            const int64_t j = t.column + lane_column() + 8 * c;
            if (i < n.T && j < n.S)
                dbias[(t.h * n.T + i) * n.S + j] = sums[r][c];
        }
    }
}

/* ---- launches ---- */

template <typename F>
static int of_tile(const struct call *f, const F &of)
{
    return by_width<tile_shape<32, 8, 4>, tile_shape<64, 8, 4>, tile_shape<128, 4, 4>,
                    tile_shape<256, 2, 4>>(f, of);
}

/* The rows of a role, and the number of their matrices. */
struct extent {
    int64_t heads, rows;
};

template <typename TILE, enum role ROLE>
static extent extent_of(const struct call *f)
{
    const int64_t tiles = ceil_div(DIM(f, 'S'), TILE::COLUMNS);
    if (ROLE == OF_KEYS)
        return {DIM(f, 'B') * DIM(f, 'G'), DIM(f, 'S')};
    return {ROLE == OF_BIAS ? DIM(f, 'H') * tiles : DIM(f, 'B') * DIM(f, 'H'), DIM(f, 'T')};
}

template <typename TILE, enum role ROLE>
static int warps_for(const struct call *f)
{
    const extent e = extent_of<TILE, ROLE>(f);
    return warps_per_block(
        gpu_limits(f),
        [](int warps) { return arena_bytes<backward_smem<TILE, ROLE>::alloc>(warps); }, e.heads,
        e.rows, TILE::WARP_ROWS);
}

/* Launches kernel(n, x, delta, to), the kernel of a role. */
template <typename TILE, enum role ROLE, typename T, typename TO>
static int launch(const struct call *f,
                  void (*kernel)(attention_shape, given<T>, const float *, TO), const float *delta,
                  const TO &to)
{
    const attention_shape n = attention_shape_of(f);
    const extent e = extent_of<TILE, ROLE>(f);
    const int warps = warps_for<TILE, ROLE>(f);
    const int bytes = arena_bytes<backward_smem<TILE, ROLE>::alloc>(warps);
    const int64_t blocks = e.heads * ceil_div(e.rows, warps * TILE::WARP_ROWS);
    const given<T> x = given_of<T>(f, BACKWARD);

    CUDA(allow_smem(kernel, bytes));
    kernel<<<blocks, 32 * warps, bytes, gpu_stream(f)>>>(n, x, delta, to);
    return cudaGetLastError();
}

template <typename T, typename TILE>
static int launch_all(const struct call *f, const float *delta)
{
    const struct attention *g = GRADS(f, attention);
    const gradients<T> to = {(T *)g->q, (T *)g->k, (T *)g->v};

    CUDA((launch<TILE, OF_QUERIES, T>(f, tiled_backward_kernel<T, TILE, OF_QUERIES>, delta, to)));
    CUDA((launch<TILE, OF_KEYS, T>(f, tiled_backward_kernel<T, TILE, OF_KEYS>, delta, to)));
    if (!g->bias)
        return 0;
    return launch<TILE, OF_BIAS, T>(f, tiled_dbias_kernel<T, TILE>, delta, (float *)g->bias);
}

static float *workspace(const struct call *f, work_arena *a)
{
    return take<float>(a, DIM(f, 'B') * DIM(f, 'H') * DIM(f, 'T'));
}

size_t tiled_work(const struct call *f, enum pass p)
{
    work_arena a = {NULL, 0};
    if (p == BACKWARD)
        workspace(f, &a);
    return a.bytes;
}

template <typename T>
int tiled_backward(const struct call *f)
{
    work_arena arena = {(char *)f->work, 0};
    float *const delta = workspace(f, &arena);

    CUDA(attention_delta<T>(f, delta));
    CUDA(of_tile(f, [&](auto tile) { return launch_all<T, decltype(tile)>(f, delta); }));
    return ARGS(f, attention)->sinks ? attention_dsinks(f, delta) : 0;
}

const char *tiled_declines(const struct call *f)
{
    const bool backward_fits = of_tile(f, [f](auto tile) {
        return warps_for<decltype(tile), OF_QUERIES>(f) && warps_for<decltype(tile), OF_KEYS>(f) &&
               (f->choice[ATTENTION_BIAS] != BIAS_FULL || warps_for<decltype(tile), OF_BIAS>(f));
    });
    return tiled_forward_fits(f) && backward_fits
               ? NULL
               : "a tile beyond the shared memory of a block, or a grid beyond 2^31 - 1 blocks";
}

#define EACH(T) template int tiled_backward<T>(const struct call *f);
GPU_TYPES(EACH)
