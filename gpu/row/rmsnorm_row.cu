/* rmsnorm, layernorm and qk_norm, kernel `row`: a team of threads reads its row once, 16 bytes a
 * load and all loads in flight before the first is used, keeps it in registers, and finds the sums
 * by shuffles and one meeting of its warps: in layernorm each warp takes the squares about a mean of
 * its own.  dw and db are left to a second launch, which reads x and dy again. */
#include "gpu/device/cluster.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/row/norm.cuh"

/* Blocks of THREADS_MOST on an SM at least: 64 registers a thread. */
enum { ROW_BLOCKS = 2 };

/* The rows that begin at x, from `first` on. */
template <typename T, bool ALIGNED, int UNITS, int COUNT>
static __device__ __forceinline__ held<COUNT> rows_of(const void *x, const norm_call &p,
                                                      const member &me, int64_t first)
{
    held<COUNT> h;
    #pragma unroll 8
    for (int i = 0; i < COUNT; i++) {
        const int64_t row = first + i / UNITS;
        const int n = column_of(me, i % UNITS, 16 / sizeof(T));
        h.v[i] = load_vector<T, ALIGNED>((const T *)x + row * p.N + n,
                                         row < p.of[me.matrix].R ? me.end - n : 0);
    }
    return h;
}

/* The sum of x. */
template <typename T>
static __device__ __forceinline__ float sum_vector(const uint4 &x)
{
    const numbers<T> xs = widened<T>(x);
    float sum = 0;
    #pragma unroll 8
    for (int j = 0; j < per_vector<T>(); j++)
        sum += xs.x[j];
    return sum;
}

/* The sum of the squares of x - mean; columns beyond the row's end have no part in it. */
template <typename T, bool CENTRED, bool ALIGNED>
static __device__ __forceinline__ float sum_squares(const uint4 &x, const row_stats &row, int left)
{
    const numbers<T> xs = widened<T>(x);
    float sum = 0;
    #pragma unroll 8
    for (int j = 0; j < per_vector<T>(); j++) {
        const float d = deviation<CENTRED>(xs.x[j], row);
        sum = fmaf(d, !CENTRED || ALIGNED || j < left ? d : 0, sum);
    }
    return !CENTRED || left > 0 ? sum : 0;
}

template <typename T, bool CENTRED>
static __device__ __forceinline__ numbers<T>
normalised(const uint4 &x, const uint4 &w, const uint4 &b, const row_stats &row, int half)
{
    const numbers<T> xs = widened<T>(x, half), ws = widened<T>(w), bs = widened<T>(b);
    numbers<T> y;
    #pragma unroll 8
    for (int j = 0; j < per_vector<T>(); j++) {
        const float xhat = row.rstd * deviation<CENTRED>(xs.x[j], row);
        y.x[j] = CENTRED ? fmaf(ws.x[j], xhat, bs.x[j]) : ws.x[j] * xhat;
    }
    return y;
}

/* Where a team's warps and blocks leave theirs. */
struct spreads {
    spread warp[32], block[CLUSTER_MOST];
};

/* Mean, and squares about it, of a team's rows. */
template <typename T, bool ALIGNED, int UNITS>
static __device__ __forceinline__ void find_spread(const norm_call &p, const member &me,
                                                   spreads *met, held<HELD> &x, row_stats *of,
                                                   float (&squares)[HELD / UNITS])
{
    enum { V = 16 / sizeof(T), ROWS = HELD / UNITS };
    const int count = warp_count<V, UNITS>(me), thread = (int)threadIdx.x;
    const float share = rcp_approx((float)max(count, 1));
    float sum[ROWS] = {};

    #pragma unroll 8
    for (int i = 0; i < HELD; i++)
        sum[i / UNITS] += sum_vector<T>(x.at(i));
    add_lanes<ROWS != 1>(sum, me);
    #pragma unroll 8
    for (int r = 0; r < ROWS; r++)
        of[r].mean = __fmul_rn(sum[r], share);
    #pragma unroll 8
    for (int i = 0; i < HELD; i++)
        squares[i / UNITS] += sum_squares<T, true, ALIGNED>(x.at(i), of[i / UNITS],
                                                            me.end - column_of(me, i % UNITS, V));
    add_lanes<ROWS != 1>(squares, me);
    if (ROWS != 1 || me.lanes <= 32)
        return;
    if (thread % 32 == 0)
        met->warp[thread / 32] = {(float)count, sum[0], of[0].mean, squares[0]};
    team_sync(me);
    const int here = me.end - me.first;
    spread all =
        as_one(met->warp, me.lanes / 32, here, me.cluster > 1 ? rcp_approx((float)here) : p.share);
    if (me.cluster > 1) {
        if (thread < me.cluster)
            *map_shared_rank(&met->block[me.rank], thread) = all;
        cluster_sync();
        all = as_one(met->block, me.cluster, p.N, p.share);
    }
    of[0].mean = all.mean;
    squares[0] = all.squares;
}

template <typename T, bool CENTRED, bool ALIGNED, int UNITS>
__global__ void __launch_bounds__(most_forward(ALIGNED), ALIGNED ? ROW_BLOCKS : 1)
    row_forward_kernel(const norm_call p, const norm_layout l, const norm_grid grid)
{
    enum { V = 16 / sizeof(T), ROWS = HELD / UNITS };
    __shared__ meeting met;
    __shared__ spreads centred_met;
    member me = member_of(p.N, V, l, grid);
    const norm_rows &m = p.of[me.matrix];
    const int64_t first = me.team * ROWS;
    if (ROWS == 1 && first >= m.R)
        return;
    held<HELD> x = rows_of<T, ALIGNED, UNITS, HELD>(m.x, p, me, first);
    row_stats of[ROWS] = {};
    float squares[ROWS] = {};
    uint4 w[UNITS], b[UNITS];

    #pragma unroll 8
    for (int u = 0; u < UNITS && !CENTRED; u++)
        w[u] = shared_vector<T, ALIGNED>(m.w, me, u);
    cluster_meets(me);
    if (CENTRED) {
        find_spread<T, ALIGNED, UNITS>(p, me, &centred_met, x, of, squares);
    } else {
        #pragma unroll 8
        for (int i = 0; i < HELD; i++)
            squares[i / UNITS] += sum_squares<T, false, ALIGNED>(x.at(i), of[i / UNITS], V);
        add_up<ROWS != 1>(squares, me, &met, 0);
    }
    const int half = 16 + opaque_thread_index() / 1024;   /* 16, as no block has so many threads */
    me.lane = opaque_thread_index() - me.here * me.lanes; /* nothing is kept of where x was */
    if (CENTRED) {
        w[0] = shared_vector<T, ALIGNED>(m.w, me, 0);
        b[0] = shared_vector<T, ALIGNED>(m.b, me, 0);
    }
    #pragma unroll 8
    for (int r = 0; r < ROWS; r++) {
        of[r].rstd = rsqrtf(fmaf(squares[r], p.share, p.eps));
        if (first + r < m.R && me.lane == 0 && me.rank == 0)
            put_stats<CENTRED>(m, first + r, of[r]);
    }
    #pragma unroll 8
    for (int i = 0; i < HELD; i++) {
        const int r = i / UNITS, u = i % UNITS, n = column_of(me, u, V);
        if (CENTRED && u + 1 < UNITS) {
            w[u + 1] = shared_vector<T, ALIGNED>(m.w, me, u + 1);
            b[u + 1] = shared_vector<T, ALIGNED>(m.b, me, u + 1);
        }
        store_vector<T, ALIGNED>((T *)m.y + (first + r) * p.N + n,
                                 ROWS == 1 || first + r < m.R ? me.end - n : 0,
                                 normalised<T, CENTRED>(x.at(i), w[u], b[u], of[r], half));
    }
}

/* dw and db are not this kernel's. */
struct no_columns {
    __device__ __forceinline__ void add(int, int, float, float) {}
};

template <typename T, bool CENTRED, bool ALIGNED, int UNITS>
__global__ void __launch_bounds__(BACK_MOST, 1)
    row_backward_kernel(const norm_call p, const norm_layout l, const norm_grid grid)
{
    enum { COUNT = held_back<T>(), ROWS = COUNT / UNITS };
    __shared__ meeting met;
    const member me = member_of(p.N, 16 / sizeof(T), l, grid);
    const norm_rows &m = p.of[me.matrix];
    const int64_t first = me.team * ROWS;
    const auto x = rows_of<T, ALIGNED, UNITS, COUNT>(m.x, p, me, first);
    const auto dy = rows_of<T, ALIGNED, UNITS, COUNT>(m.dy, p, me, first);
    uint4 w[UNITS];
    row_stats of[ROWS];
    no_columns none;

    #pragma unroll 8
    for (int u = 0; u < UNITS; u++)
        w[u] = shared_vector<T, ALIGNED>(m.w, me, u);
    #pragma unroll 8
    for (int r = 0; r < ROWS; r++)
        of[r] = get_stats<CENTRED>(m, first + r);
    cluster_meets(me);
    put_slopes<T, CENTRED, ALIGNED, UNITS>(p, me, &met, 0, first, x, dy, w, of, &none);
}

/* A team for every row, or for as many as it takes at once. */
static norm_grid row_grid(const norm_call &p, const norm_layout &l)
{
    norm_grid grid = {};
    for (int i = 0; i < p.n; i++)
        grid.clusters[i] = ceil_div(p.of[i].R, (int64_t)l.teams * l.rows);
    return grid;
}

template <typename T, bool CENTRED>
int row_norm(const norm_call &p)
{
    const norm_layout l = layout_forward(p.N, sizeof(T));
    auto kernel = KERNEL_FOR(row_forward_kernel, p.N, l, HELD);
    return launch_teams(kernel, l, 0, p, row_grid(p, l));
}

template <typename T, bool CENTRED>
int row_norm_back(const norm_call &p)
{
    const norm_layout l = layout_backward(p.N, sizeof(T));
    auto kernel = KERNEL_FOR(row_backward_kernel, p.N, l, held_back<T>());
    const int e = launch_teams(kernel, l, 0, p, row_grid(p, l));
    return e ? e : norm_columns<T, CENTRED>(p);
}

const char *row_norm_declines(const norm_call &p, size_t size)
{
    const norm_layout layouts[] = {layout_forward(p.N, size), layout_backward(p.N, size)};
    for (const norm_layout &l : layouts) {
        if (!l.cluster)
            return TOO_LONG;
        if (all_clusters(row_grid(p, l)) * l.cluster > INT32_MAX)
            return "more rows than a grid has blocks for (2147483647)";
    }
    return NULL;
}

#define EACH(T, CENTRED)                                                                           \
    template int row_norm<T, CENTRED>(const norm_call &);                                          \
    template int row_norm_back<T, CENTRED>(const norm_call &)

EACH(float, false);
EACH(float, true);
EACH(__nv_bfloat16, false);
EACH(__nv_bfloat16, true);
