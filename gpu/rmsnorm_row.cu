/* rmsnorm, layernorm and qk_norm, kernel `row`: a team of threads reads its row once, 16 bytes a
 * load and all loads under way before the first is used, keeps it in registers, and finds the sums
 * by shuffles.  dw and db are left to a second launch, which reads x and dy again. */
#include "gpu/norm.cuh"

/* The rows that begin at x, from `first` on. */
template <typename T, bool ALIGNED, int UNITS>
static __device__ __forceinline__ held<T, UNITS> rows_of(const void *x, const norm_call &p,
                                                         const member &me, int64_t first)
{
    held<T, UNITS> h;
    UNROLL(4)
    for (int i = 0; i < HELD; i++) {
        const int64_t row = first + i / UNITS;
        const int n = column_of(me, i % UNITS, 16 / sizeof(T));
        h.v[i / UNITS][i % UNITS] = load_vector<T, ALIGNED>(
            (const T *)x + row * p.N + n, row < p.of[me.matrix].R ? me.end - n : 0);
    }
    return h;
}

template <typename T, bool CENTRED, bool ALIGNED, int UNITS>
__global__ void __launch_bounds__(threads_most(ALIGNED), ALIGNED ? 2 : 1)
    row_forward_kernel(const norm_call p, const norm_layout l, const norm_grid grid)
{
    __shared__ meeting met;
    const member me = member_of(p.N, 16 / sizeof(T), l, grid);
    const norm_rows &m = p.of[me.matrix];
    const int64_t first = me.team * (HELD / UNITS);
    const held<T, UNITS> x = rows_of<T, ALIGNED, UNITS>(m.x, p, me, first);
    uint4 w[UNITS], b[UNITS];

    load_columns<T, ALIGNED, UNITS>(w, m.w, me);
    if (CENTRED)
        load_columns<T, ALIGNED, UNITS>(b, m.b, me);
    cluster_meets(me);
    put_rows<T, CENTRED, ALIGNED, UNITS>(p, me, &met, 0, first, x, w, b);
}

/* dw and db are not this kernel's. */
struct no_columns {
    __device__ __forceinline__ void add(int, int, float, float) {}
};

template <typename T, bool CENTRED, bool ALIGNED, int UNITS>
__global__ void __launch_bounds__(threads_most(ALIGNED), ALIGNED ? 2 : 1)
    row_backward_kernel(const norm_call p, const norm_layout l, const norm_grid grid)
{
    enum { ROWS = HELD / UNITS };
    __shared__ meeting met;
    const member me = member_of(p.N, 16 / sizeof(T), l, grid);
    const norm_rows &m = p.of[me.matrix];
    const int64_t first = me.team * ROWS;
    const held<T, UNITS> x = rows_of<T, ALIGNED, UNITS>(m.x, p, me, first);
    const held<T, UNITS> dy = rows_of<T, ALIGNED, UNITS>(m.dy, p, me, first);
    uint4 w[UNITS];
    row_stats of[ROWS];
    no_columns none;

    load_columns<T, ALIGNED, UNITS>(w, m.w, me);
    UNROLL(4)
    for (int r = 0; r < ROWS; r++)
        of[r] = get_stats<CENTRED>(m, first + r);
    cluster_meets(me);
    put_slopes<T, CENTRED, ALIGNED, UNITS>(p, me, &met, 0, first, x, dy, w, of, &none);
}

/* A team for every row, or HELD of them. */
static norm_grid row_grid(const norm_call &p, const norm_layout &l)
{
    norm_grid grid = {};
    for (int i = 0; i < p.n; i++)
        grid.clusters[i] = ceil_div(p.of[i].R, (int64_t)teams_of(l) * l.rows);
    return grid;
}

template <typename T, bool CENTRED>
int row_norm(const norm_call &p)
{
    const norm_layout l = layout_of(p.N, sizeof(T));
    const norm_grid grid = row_grid(p, l);
    auto kernel = KERNEL_FOR(row_forward_kernel, p.N, l);
    return launch_teams(kernel, l, 0, p, grid);
}

template <typename T, bool CENTRED>
int row_norm_back(const norm_call &p)
{
    const norm_layout l = layout_of(p.N, sizeof(T));
    const norm_grid grid = row_grid(p, l);
    auto kernel = KERNEL_FOR(row_backward_kernel, p.N, l);
    const int e = launch_teams(kernel, l, 0, p, grid);
    return e ? e : norm_columns<T, CENTRED>(p);
}

const char *row_norm_declines(const norm_call &p, size_t size)
{
    const norm_layout l = layout_of(p.N, size);
    if (!l.cluster)
        return TOO_LONG;
    const norm_grid grid = row_grid(p, l);
    return (grid.clusters[0] + grid.clusters[1]) * l.cluster > INT32_MAX
               ? "more rows than a grid has blocks for (2147483647)"
               : NULL;
}

#define EACH(T, CENTRED)                                                                           \
    template int row_norm<T, CENTRED>(const norm_call &);                                          \
    template int row_norm_back<T, CENTRED>(const norm_call &)

EACH(float, false);
EACH(float, true);
EACH(__nv_bfloat16, false);
EACH(__nv_bfloat16, true);
