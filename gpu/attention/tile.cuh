/* tile.cuh - tiles of rows x columns, of queries and keys, in the registers of a warp: the building
 * blocks of attention's kernel `tiled`.
 *
 * A warp has 4 x 8 lanes; a lane has rows lane / 8 + 4 r and columns lane % 8 + 8 c of the warp's
 * tile.  Its operands are rows of q, k, v or do in shared memory, as floats: the padding makes the
 * 16-byte accesses of a warp free of bank conflicts, and what a row or a width lacks is 0. */
#ifndef TILE_CUH
#define TILE_CUH

#include "gpu/attention/attention.cuh"
#include "gpu/device/smem.cuh"
#include "gpu/device/vector.cuh"

/* The sizes of a tile whose operands have rows of at most `max_width` elements; a lane has
 * ROWS x COLS of its elements. */
template <int max_width, int rows, int cols>
struct tile_shape {
    enum {
        MAX_WIDTH = max_width,
        ROWS = rows,
        COLS = cols,
        LD = max_width + 4, /* of an operand */
        WARP_ROWS = 4 * rows,
        COLUMNS = 8 * cols,
        LD_TILE = COLUMNS + 8,  /* of a tile in shared memory */
        GROUPS = max_width / 32 /* of four elements of a row of results, per lane */
    };
};

enum { MAX_WARPS = 8 };

static __device__ __forceinline__ int lane_row(void)
{
    return threadIdx.x % 32 / 8;
}

static __device__ __forceinline__ int lane_column(void)
{
    return threadIdx.x % 8;
}

/* How a tile of queries [i, i + ni) and keys [j, j + nj) lies to the mask: no query of it sees a key of
 * it, some do, or all see all. */
enum cover { HIDDEN, EDGE, SEEN };

static __device__ __forceinline__ enum cover cover_of(const attention_shape &n, int64_t i, int ni,
                                                      int64_t j, int nj)
{
    const int64_t last_i = min(i + ni, n.T) - 1;

    if (i >= n.T || j >= attention_last(&n.window, last_i) ||
        j + nj <= attention_first(&n.window, i))
        return HIDDEN;
    return i + ni <= n.T && attention_first(&n.window, last_i) <= j &&
                   j + nj <= attention_last(&n.window, i)
               ? SEEN
               : EDGE;
}

/* ---- operands ---- */

/* Rows of `width` elements in a tensor, with a stride of `stride`; those from `rows` on do not exist. */
template <typename T>
struct row_range {
    const T *first;
    int64_t stride, rows;
    int width;
};

/* Queries from i on of head h, and keys from j on of its kv head: rows of `x`. */
template <typename T>
static __device__ __forceinline__ row_range<T>
queries_from(const attention_shape &n, const T *x, int64_t b, int64_t i, int64_t h, int width)
{
    return {x + n.query(b, i, h) * width, n.H * width, n.T - i, width};
}

template <typename T>
static __device__ __forceinline__ row_range<T> keys_from(const attention_shape &n, const T *x,
                                                         int64_t b, int64_t j, int64_t h, int width)
{
    return {x + n.key(b, j, h) * width, n.G * width, n.S - j, width};
}

/* Loads `rows` rows into shared memory: eight lanes per row.  Returns whether a value is not finite. */
template <typename TILE, typename T>
static __device__ __forceinline__ bool load_rows(float *to, const row_range<T> &from, int rows)
{
    constexpr int GROUPS = TILE::GROUPS, IN_FLIGHT = GROUPS > 4 ? 1 : 4 / GROUPS;
    const int each = blockDim.x / 8;
    const bool in_fours = from.width % 4 == 0;
    float odd = 0; /* NaN where a value is not finite */

    for (int first = threadIdx.x / 8; first < rows; first += each * IN_FLIGHT) {
        vec<T, 4> v[IN_FLIGHT][GROUPS];
        #pragma unroll 4
        for (int k = 0; k < IN_FLIGHT; k++) {
            const int row = first + k * each;
            const bool exists = row < rows && row < from.rows;
            #pragma unroll 8
            for (int g = 0; g < GROUPS; g++) {
                const int at = 32 * g + 4 * lane_column(), left = exists ? from.width - at : 0;
                const T *x = from.first + row * from.stride + at;
                if (in_fours)
                    v[k][g] = load_vec<T, 4>((const vec<T, 4> *)x, left > 0);
                else
                    v[k][g] = gather_vec<4>(x, left);
            }
        }
        #pragma unroll 4
        for (int k = 0; k < IN_FLIGHT; k++)
            #pragma unroll 8
            for (int g = 0; g < GROUPS; g++) {
                four<float> f;
                unpack(v[k][g], f.x);
                #pragma unroll 4
                for (int e = 0; e < 4; e++)
                    odd = fmaf(0, f.x[e], odd);
                if (first + k * each < rows)
                    store_array(to + (first + k * each) * TILE::LD + 32 * g + 4 * lane_column(), f);
            }
    }
    return odd != 0;
}

/* ---- products ---- */

/* s = x y^T over `depth` elements, of the warp's rows x and the block's columns y. */
template <typename TILE>
static __device__ __forceinline__ void dots(float (&s)[TILE::ROWS][TILE::COLS], const float *x,
                                            const float *y, int depth)
{
    constexpr int ROWS = TILE::ROWS, COLS = TILE::COLS;
    const float *own_x = x + lane_row() * TILE::LD, *own_y = y + lane_column() * TILE::LD;

    #pragma unroll ROWS
    for (int r = 0; r < ROWS; r++)
        #pragma unroll COLS
        for (int c = 0; c < COLS; c++)
            s[r][c] = 0;
    #pragma unroll 1
    for (int d = 0; d < depth; d += 4) {
        four<float> fy[COLS];
        #pragma unroll COLS
        for (int c = 0; c < COLS; c++)
            fy[c] = load_array<4>(own_y + 8 * c * TILE::LD + d);
        #pragma unroll ROWS
        for (int r = 0; r < ROWS; r++) {
            const four<float> fx = load_array<4>(own_x + 4 * r * TILE::LD + d);
            #pragma unroll 4
            for (int e = 0; e < 4; e++)
                #pragma unroll COLS
                for (int c = 0; c < COLS; c++)
                    s[r][c] = fmaf(fx.x[e], fy[c].x[e], s[r][c]);
        }
    }
}

/* Stores the lane's elements to the warp's tile in shared memory, which the warp has read before. */
template <typename TILE>
static __device__ __forceinline__ void put_tile(float *to, const float (&p)[TILE::ROWS][TILE::COLS])
{
    float *own = to + lane_row() * TILE::LD_TILE + lane_column();

    #pragma unroll 8
    for (int r = 0; r < TILE::ROWS; r++)
        #pragma unroll 8
        for (int c = 0; c < TILE::COLS; c++)
            own[4 * r * TILE::LD_TILE + 8 * c] = p[r][c];
}

/* A lane's elements of its rows of results: those of group g are from 32 g + 4 (lane % 8) on. */
template <typename TILE>
using row_results = float[TILE::ROWS][TILE::GROUPS][4];

/* sums += p y, of the warp's tile p and the block's columns y.  CHECKED: where p is 0, y is left out,
 * whatever it holds. */
template <bool CHECKED, typename TILE>
static __device__ __forceinline__ void add_products(row_results<TILE> &sums, const float *p,
                                                    const float *y, int width)
{
    constexpr int ROWS = TILE::ROWS, GROUPS = TILE::GROUPS;
    const float *own_p = p + lane_row() * TILE::LD_TILE, *own_y = y + 4 * lane_column();

    #pragma unroll 1
    for (int j = 0; j < TILE::COLUMNS; j += 4) {
        four<float> fp[ROWS];
        #pragma unroll ROWS
        for (int r = 0; r < ROWS; r++)
            fp[r] = load_array<4>(own_p + 4 * r * TILE::LD_TILE + j);
        #pragma unroll GROUPS
        for (int g = 0; g < GROUPS; g++) {
            if (32 * g >= width)
                break;
            #pragma unroll 4
            for (int e = 0; e < 4; e++) {
                const four<float> fy = load_array<4>(own_y + (j + e) * TILE::LD + 32 * g);
                #pragma unroll ROWS
                for (int r = 0; r < ROWS; r++)
                    #pragma unroll 4
                    for (int k = 0; k < 4; k++)
                        if (!CHECKED || fp[r].x[e] != 0)
                            sums[r][g][k] = fmaf(fp[r].x[e], fy.x[k], sums[r][g][k]);
            }
        }
    }
}

template <typename TILE>
static __device__ __forceinline__ void add_products(row_results<TILE> &sums, const float *p,
                                                    const float *y, int width, bool checked)
{
    if (checked)
        add_products<true, TILE>(sums, p, y, width);
    else
        add_products<false, TILE>(sums, p, y, width);
}

/* Stores factor(r) times the results of row r of the warp to row_at(r), NULL if there is none. */
template <typename TILE, typename T, typename F, typename G>
static __device__ __forceinline__ void store_rows(const row_results<TILE> &sums, int width,
                                                  const F &row_at, const G &factor)
{
    #pragma unroll 8
    for (int r = 0; r < TILE::ROWS; r++) {
        T *to = row_at(lane_row() + 4 * r);
        if (!to)
            continue;
        #pragma unroll 8
        for (int g = 0; g < TILE::GROUPS; g++) {
            four<T> f;
            #pragma unroll 4
            for (int k = 0; k < 4; k++)
                store(f.x + k, factor(r) * sums[r][g][k]);
            store_four(to, width, 32 * g + 4 * lane_column(), f);
        }
    }
}

/* ---- a lane's rows one after the other ---- */

/* Row 1 becomes row 0, row 0 the last: a loop over the rows uses row 0 and rotates, so that its body
 * is there once and the registers have constant indices. */
template <int ROWS, int COLS>
static __device__ __forceinline__ void rotate_rows(float (&x)[ROWS][COLS])
{
    #pragma unroll COLS
    for (int c = 0; c < COLS; c++) {
        const float first = x[0][c];
        #pragma unroll ROWS
        for (int r = 0; r + 1 < ROWS; r++)
            x[r][c] = x[r + 1][c];
        x[ROWS - 1][c] = first;
    }
}

/* ---- launches ---- */

/* of(tile), of the first of these shapes whose rows are long enough for the case's. */
template <typename TILE, typename... LONGER, typename F>
static inline auto by_width(const struct call *f, const F &of)
{
    if constexpr (sizeof...(LONGER) > 0)
        if (DIM(f, 'D') > TILE::MAX_WIDTH || DIM(f, 'E') > TILE::MAX_WIDTH)
            return by_width<LONGER...>(f, of);
    return of(TILE());
}

/* The warps per block: a power of two, such that as many as possible, up to MAX_WARPS, are resident
 * on an SM, then as many blocks as keep all SMs busy.  0 if not even a block of one warp fits into
 * shared memory (it has bytes(warps)), or if the grid would be too large.  Each of `heads` has `rows`
 * rows, a warp has warp_rows of them. */
template <typename F>
static inline int warps_per_block(const struct limits *limits, const F &bytes, int64_t heads,
                                  int64_t rows, int warp_rows)
{
    const auto blocks = [&](int warps) { return heads * ceil_div(rows, warps * warp_rows); };
    int best = 0, best_all = 0, resident = 1;

    for (int warps = 1; warps <= MAX_WARPS; warps *= 2) {
        const size_t need = bytes(warps);
        const int fit = need <= limits->smem_two ? 2 : need <= limits->smem ? 1 : 0;
        const int all = min(fit * warps, (int)MAX_WARPS);
        if (all > best_all) {
            best_all = all;
            best = warps;
            resident = fit;
        }
    }
    while (best > 1 && blocks(best) < (int64_t)limits->sms * resident)
        best /= 2;
    return best && blocks(best) <= INT32_MAX ? best : 0;
}

#endif
