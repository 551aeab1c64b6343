/* attention, kernel `tiled`, forward (common/ops/attention.h).
 *
 * A block has a tile of queries of one head, a warp some of their rows, and the keys pass by in
 * tiles: s = scale q k^T in registers; the online softmax (gpu/device/softmax.cuh) rescales l and o
 * where the maximum grows; P goes through shared memory to o += P v.  No more of s and P exists at a
 * time than a tile per warp.  A warp leaves out the tiles of which it sees nothing, and looks at
 * single keys only where the mask's edge or an option asks for it. */
#include "gpu/attention/tile.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/softmax.cuh"

template <typename TILE>
struct forward_smem {
    float *q, *k, *v, *P;

    static __host__ __device__ forward_smem alloc(smem_arena *a, int warps)
    {
        const int rows = warps * TILE::WARP_ROWS;
        forward_smem m;
        m.q = a->alloc<float>(rows * TILE::LD);
        m.k = a->alloc<float>(TILE::COLUMNS * TILE::LD);
        m.v = a->alloc<float>(TILE::COLUMNS * TILE::LD);
        m.P = a->alloc<float>(rows * TILE::LD_TILE);
        return m;
    }
};

template <typename T>
struct forward_results {
    T *o;
    float *o32, *lse; /* o32: or NULL */
};

/* A warp's tile: rows of queries from i on, keys from j on. */
struct forward_tile {
    int64_t b, h, i, j;
};

/* u becomes s: scaled, with the options, -inf where i does not see j. */
template <typename TILE, typename T>
static __device__ __forceinline__ void find_scores(float (&s)[TILE::ROWS][TILE::COLS],
                                                   const attention_shape &n, const T *bias,
                                                   const forward_tile &t, enum cover cover)
{
    if (cover == SEEN && n.plain) {
        #pragma unroll 8
        for (int r = 0; r < TILE::ROWS; r++)
            #pragma unroll 8
            for (int c = 0; c < TILE::COLS; c++)
                s[r][c] *= n.scale;
        return;
    }
    #pragma unroll 1
    for (int r = 0; r < TILE::ROWS; r++) {
        const int64_t i = t.i + lane_row() + 4 * r;
        #pragma unroll 8
        for (int c = 0; c < TILE::COLS; c++) {
            const int64_t j = t.j + lane_column() + 8 * c;
            const bool seen = i < n.T && n.visible(i, j);
            s[0][c] = seen ? score_of(n, n.scale * s[0][c], bias, t.h, i, j).s : -INFINITY;
        }
        rotate_rows(s);
    }
}

/* s becomes P relative to the new maximum; the sums of a row are of the lane's columns alone. */
template <typename TILE>
static __device__ __forceinline__ void soften(float (&s)[TILE::ROWS][TILE::COLS],
                                              running (&l)[TILE::ROWS], row_results<TILE> &o)
{
    #pragma unroll 8
    for (int r = 0; r < TILE::ROWS; r++) {
        float top = s[r][0];
        #pragma unroll 8
        for (int c = 1; c < TILE::COLS; c++)
            top = max_nan(top, s[r][c]);
        top = max_nan(l[r].top, warp_max<8>(top));
        const float factor = rescale(l[r], top, LOG2E);
        #pragma unroll 8
        for (int g = 0; g < TILE::GROUPS; g++)
            #pragma unroll 4
            for (int k = 0; k < 4; k++)
                o[r][g][k] = factor == 0 ? 0 : factor * o[r][g][k];
        #pragma unroll 8
        for (int c = 0; c < TILE::COLS; c++) {
            s[r][c] = power(s[r][c], top, LOG2E);
            l[r].sum += s[r][c];
        }
    }
}

/* P becomes P Z / (1 - p): each lane its own elements. */
template <typename TILE>
static __device__ void drop(float *P, const attention_shape &n, const forward_tile &t)
{
    const uint32_t u = dropout_step(n.counter);
    float *own = P + lane_row() * TILE::LD_TILE + lane_column();

    for (int r = 0; r < TILE::ROWS; r++)
        for (int c = 0; c < TILE::COLS; c++)
            own[4 * r * TILE::LD_TILE + 8 * c] *= kept_share(
                n, u, t.b * n.H + t.h, t.i + lane_row() + 4 * r, t.j + lane_column() + 8 * c);
}

/* The end of the warp's rows: o / l and lse = m + log l; a row that sees nothing has o = 0. */
template <typename TILE, typename T>
static __device__ __forceinline__ void finish(const attention_shape &n, const forward_results<T> &y,
                                              const forward_tile &t, const running (&l)[TILE::ROWS],
                                              const row_results<TILE> &o)
{
    float sum[TILE::ROWS], share[TILE::ROWS];

    #pragma unroll 8
    for (int r = 0; r < TILE::ROWS; r++) {
        const int64_t i = t.i + lane_row() + 4 * r;
        sum[r] = warp_sum<8>(l[r].sum);
        share[r] = sum[r] == 0 ? 0 : 1 / sum[r];
        if (i < n.T && lane_column() == 0)
            y.lse[n.row(t.b, t.h, i)] = sum[r] == 0 ? -INFINITY : l[r].top + logf(sum[r]);
    }
    const auto row_of = [&](auto *all) {
        return [&n, &t, all](int row) {
            const int64_t i = t.i + row;
            return i < n.T ? all + n.query(t.b, i, t.h) * n.E : NULL;
        };
    };
    const auto factor = [&](int r) { return share[r]; };
    store_rows<TILE, T>(o, n.E, row_of(y.o), factor);
    if (y.o32)
        store_rows<TILE, float>(o, n.E, row_of(y.o32), factor);
}

template <typename T, typename TILE>
__global__ void __launch_bounds__(32 * MAX_WARPS)
    tiled_forward_kernel(attention_shape n, given<T> x, forward_results<T> y)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    smem_arena arena = {buffer, 0};
    const int warps = blockDim.x / 32, rows = warps * TILE::WARP_ROWS;
    const int own = threadIdx.x / 32 * TILE::WARP_ROWS;
    const forward_smem<TILE> m = forward_smem<TILE>::alloc(&arena, warps);
    const int64_t head = blockIdx.x % (n.B * n.H), tiles = ceil_div(n.T, rows);
    const int64_t i0 = (tiles - 1 - blockIdx.x / (n.B * n.H)) * rows; /* the longest rows first */
    const int64_t last = min(i0 + rows, n.T) - 1, end = attention_last(&n.window, last);
    forward_tile t = {head / n.H, head % n.H, i0 + own, 0};
    float *const P = m.P + own * TILE::LD_TILE;
    row_results<TILE> o = {};
    running l[TILE::ROWS];

    if (n.sinks) {
        #pragma unroll 8
        for (int r = 0; r < TILE::ROWS; r++) {
            l[r].top = max_nan(LOWEST, n.sinks[t.h]);
            l[r].sum = lane_column() == 0 ? power(n.sinks[t.h], l[r].top, LOG2E) : 0;
        }
    }
    load_rows<TILE>(m.q, queries_from(n, x.q, t.b, i0, t.h, n.D), rows);
    t.j = attention_first(&n.window, i0) / TILE::COLUMNS * TILE::COLUMNS;
    for (; t.j < end; t.j += TILE::COLUMNS) {
        __syncthreads(); /* the tile before has been read */
        load_rows<TILE>(m.k, keys_from(n, x.k, t.b, t.j, t.h, n.D), TILE::COLUMNS);
        const bool odd = load_rows<TILE>(m.v, keys_from(n, x.v, t.b, t.j, t.h, n.E), TILE::COLUMNS);
        const bool checked = __syncthreads_or(odd);
        const enum cover cover = cover_of(n, t.i, TILE::WARP_ROWS, t.j, TILE::COLUMNS);
        if (cover == HIDDEN)
            continue;
        float s[TILE::ROWS][TILE::COLS];
        dots<TILE>(s, m.q + own * TILE::LD, m.k, n.D);
        find_scores<TILE>(s, n, x.bias, t, cover);
        soften<TILE>(s, l, o);
        __syncwarp(); /* P of the tile before has been read */
        put_tile<TILE>(P, s);
        if (n.dropout.threshold)
            drop<TILE>(P, n, t);
        __syncwarp();
        add_products<TILE>(o, P, m.v, n.E, checked);
    }
    finish<TILE>(n, y, t, l, o);
}

/* ---- launches ---- */

template <typename F>
static int of_tile(const struct call *f, const F &of)
{
    return by_width<tile_shape<32, 8, 8>, tile_shape<64, 8, 8>, tile_shape<128, 4, 8>,
                    tile_shape<256, 4, 4>>(f, of);
}

template <typename TILE>
static int warps_for(const struct call *f)
{
    return warps_per_block(
        gpu_limits(f), [](int warps) { return arena_bytes<forward_smem<TILE>::alloc>(warps); },
        DIM(f, 'B') * DIM(f, 'H'), DIM(f, 'T'), TILE::WARP_ROWS);
}

template <typename T, typename TILE>
static int launch(const struct call *f)
{
    const struct attention *a = ARGS(f, attention);
    const attention_shape n = attention_shape_of(f);
    const int warps = warps_for<TILE>(f), bytes = arena_bytes<forward_smem<TILE>::alloc>(warps);
    const int64_t blocks = n.B * n.H * ceil_div(n.T, warps * TILE::WARP_ROWS);
    const forward_results<T> y = {(T *)a->o, (float *)a->o32, (float *)a->lse};
    const given<T> x = given_of<T>(f, FORWARD);
    const auto kernel = tiled_forward_kernel<T, TILE>;

    CUDA(allow_smem(kernel, bytes));
    kernel<<<blocks, 32 * warps, bytes, gpu_stream(f)>>>(n, x, y);
    return cudaGetLastError();
}

template <typename T>
int tiled_forward(const struct call *f)
{
    return of_tile(f, [f](auto tile) { return launch<T, decltype(tile)>(f); });
}

bool tiled_forward_fits(const struct call *f)
{
    return of_tile(f, [f](auto tile) { return warps_for<decltype(tile)>(f); });
}

#define EACH(T) template int tiled_forward<T>(const struct call *f);
GPU_TYPES(EACH)
