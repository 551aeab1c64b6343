/* rmsnorm, layernorm and qk_norm, kernel `row`: a team of threads per row.  The team reads the
 * row once with 16-byte loads, all in flight before the first is used, and keeps it in
 * registers.  It reduces by shuffles and one exchange between its warps; in layernorm each
 * warp's squares are about its own mean.  A second launch computes dw and db; it reads x and dy
 * again. */
#include "gpu/device/cluster.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/row/norm.cuh"

/* For __launch_bounds__: at least two blocks of NORM_THREADS per SM, so 64 registers per thread. */
enum { ROW_BLOCKS = 2 };

/* Loads the thread's vectors of the rows of x from `first` on. */
template <typename T, bool ALIGNED, int ROWS, int VECTORS>
static __device__ __forceinline__ in_registers<T, ROWS, VECTORS>
rows_of(const void *x, const norm_call &p, const member &me, int64_t first)
{
    in_registers<T, ROWS, VECTORS> h;
    #pragma unroll 8
    for (int r = 0; r < ROWS; r++)
        load_part<ALIGNED>(h.v[r], (const T *)x + (first + r) * p.N, me,
                           first + r < p.matrix[me.matrix].R);
    return h;
}

/* The sum of the elements of x. */
template <typename T>
static __device__ __forceinline__ float sum_vector(const vec<T> &x)
{
    float sum = 0;
    #pragma unroll 8
    for (int j = 0; j < WIDTH<T>; j++)
        sum += x[j];
    return sum;
}

/* The sum of the squares of x - mean, without the columns beyond the end of the row. */
template <typename T, bool CENTRED, bool ALIGNED>
static __device__ __forceinline__ float sum_squares(const vec<T> &x, const row_stats &row, int left)
{
    float sum = 0;
    #pragma unroll 8
    for (int j = 0; j < WIDTH<T>; j++) {
        const float d = deviation<CENTRED>(x[j], row);
        sum = fmaf(d, !CENTRED || ALIGNED || j < left ? d : 0, sum);
    }
    return !CENTRED || left > 0 ? sum : 0;
}

/* y of a vector.  `half` is 16, but the compiler does not know it: so it converts x to float again
 * here, and does not keep the floats of an earlier conversion in registers. */
template <typename T, bool CENTRED>
static __device__ __forceinline__ vec<T> normalised(const vec<T> &x, const vec<T> &w,
                                                    const vec<T> &b, const row_stats &row, int half)
{
    return make_vec<T>([&](int j) {
        const unsigned pair = x.word[j / 2];
        const float xj = storage<T>::PER_WORD == 2 ? storage<T>::element(pair, j % 2, half) : x[j];
        const float xhat = row.rstd * deviation<CENTRED>(xj, row);
        return CENTRED ? fmaf(w[j], xhat, b[j]) : w[j] * xhat;
    });
}

/* Shared memory for the moments of a team's warps and blocks. */
struct moments_exchange {
    moments warp[32], block[NORM_TEAM_BLOCKS];
};

/* Computes the mean of each of a team's rows, and the sum of squares about this mean. */
template <typename T, bool ALIGNED, int VECTORS>
static __device__ __forceinline__ void
find_moments(const norm_call &p, const member &me, moments_exchange *exchange,
             in_registers<T, NORM_HELD / VECTORS, VECTORS> &x, row_stats *stats,
             float (&squares)[NORM_HELD / VECTORS])
{
    enum { V = WIDTH<T>, ROWS = NORM_HELD / VECTORS };
    const int count = warp_count<V, VECTORS>(me), thread = (int)threadIdx.x;
    const float inv_count = rcp_approx((float)max(count, 1));
    float sum[ROWS] = {};

    #pragma unroll 8
    for (int i = 0; i < NORM_HELD; i++)
        sum[i / VECTORS] += sum_vector(x.at(i));
    add_lanes<ROWS != 1>(sum, me);
    #pragma unroll 8
    for (int r = 0; r < ROWS; r++)
        stats[r].mean = __fmul_rn(sum[r], inv_count);
    #pragma unroll 8
    for (int i = 0; i < NORM_HELD; i++)
        squares[i / VECTORS] += sum_squares<T, true, ALIGNED>(
            x.at(i), stats[i / VECTORS], me.end - column_of(me, i % VECTORS, V));
    add_lanes<ROWS != 1>(squares, me);
    if (ROWS != 1 || me.lanes <= 32)
        return;
    if (thread % 32 == 0)
        exchange->warp[thread / 32] = {(float)count, sum[0], stats[0].mean, squares[0]};
    team_sync(me);
    const int count_of_block = me.end - me.first;
    moments all = merge_moments(exchange->warp, me.lanes / 32, count_of_block,
                                me.cluster > 1 ? rcp_approx((float)count_of_block) : p.inv_N);
    if (me.cluster > 1) {
        if (thread < me.cluster)
            *map_shared_rank(&exchange->block[me.rank], thread) = all;
        cluster_sync();
        all = merge_moments(exchange->block, me.cluster, p.N, p.inv_N);
    }
    stats[0].mean = all.mean;
    squares[0] = all.squares;
}

template <typename T, bool CENTRED, bool ALIGNED, int VECTORS>
__global__ void __launch_bounds__(max_threads_forward(ALIGNED), ALIGNED ? ROW_BLOCKS : 1)
    row_forward_kernel(const norm_call p, const norm_layout l, const norm_grid grid)
{
    enum { V = WIDTH<T>, ROWS = NORM_HELD / VECTORS };
    __shared__ team_exchange exchange;
    __shared__ moments_exchange centred_exchange;
    member me = member_of<ALIGNED, VECTORS>(p.N, V, l, grid);
    const norm_rows &m = p.matrix[me.matrix];
    const int64_t first = me.team * ROWS;
    if (ROWS == 1 && first >= m.R)
        return;
    auto x = rows_of<T, ALIGNED, ROWS, VECTORS>(m.x, p, me, first);
    row_stats stats[ROWS] = {};
    float squares[ROWS] = {};
    vec<T> w[VECTORS], b[VECTORS];

    #pragma unroll 8
    for (int u = 0; u < VECTORS && !CENTRED; u++)
        w[u] = shared_vector<T, ALIGNED>(m.w, me, u);
    wait_for_cluster(me);
    if (CENTRED) {
        find_moments<T, ALIGNED, VECTORS>(p, me, &centred_exchange, x, stats, squares);
    } else {
        #pragma unroll 8
        for (int i = 0; i < NORM_HELD; i++)
            squares[i / VECTORS] += sum_squares<T, false, ALIGNED>(x.at(i), stats[i / VECTORS], V);
        add_up<ROWS != 1>(squares, me, &exchange, 0);
    }
    const int half = 16 + opaque_thread_index() / 1024; /* 16: a thread index is below 1024 */
    const int thread = opaque_thread_index();           /* so that addresses of x are not kept */
    set_lane<ALIGNED, VECTORS>(&me, thread - me.team_in_block * me.lanes);
    if (CENTRED) {
        w[0] = shared_vector<T, ALIGNED>(m.w, me, 0);
        b[0] = shared_vector<T, ALIGNED>(m.b, me, 0);
    }
    #pragma unroll 8
    for (int r = 0; r < ROWS; r++) {
        stats[r].rstd = rsqrtf(fmaf(squares[r], p.inv_N, p.eps));
        if (first + r < m.R && me.lane == 0 && me.rank == 0)
            put_stats<CENTRED>(m, first + r, stats[r]);
    }
    #pragma unroll 8
    for (int r = 0; r < ROWS; r++)
        store_part<ALIGNED, VECTORS>(
            (T *)m.y + (first + r) * p.N, me, ROWS == 1 || first + r < m.R, [&](int u) {
                if (CENTRED && u + 1 < VECTORS) {
                    w[u + 1] = shared_vector<T, ALIGNED>(m.w, me, u + 1);
                    b[u + 1] = shared_vector<T, ALIGNED>(m.b, me, u + 1);
                }
                return normalised<T, CENTRED>(x.v[r][u], w[u], b[u], stats[r], half);
            });
}

/* Column sums that are not computed: this kernel leaves dw and db to norm_columns(). */
struct no_columns {
    __device__ __forceinline__ void add(int, int, float, float) {}
};

template <typename T, bool CENTRED, bool ALIGNED, int VECTORS>
__global__ void __launch_bounds__(NORM_THREADS_BACK, 1)
    row_backward_kernel(const norm_call p, const norm_layout l, const norm_grid grid)
{
    enum { COUNT = held_back<T>(), ROWS = COUNT / VECTORS };
    __shared__ team_exchange exchange;
    const member me = member_of<ALIGNED, VECTORS>(p.N, WIDTH<T>, l, grid);
    const norm_rows &m = p.matrix[me.matrix];
    const int64_t first = me.team * ROWS;
    const auto x = rows_of<T, ALIGNED, ROWS, VECTORS>(m.x, p, me, first);
    const auto dy = rows_of<T, ALIGNED, ROWS, VECTORS>(m.dy, p, me, first);
    vec<T> w[VECTORS];
    row_stats stats[ROWS];
    no_columns none;

    #pragma unroll 8
    for (int u = 0; u < VECTORS; u++)
        w[u] = shared_vector<T, ALIGNED>(m.w, me, u);
    #pragma unroll 8
    for (int r = 0; r < ROWS; r++)
        stats[r] = get_stats<CENTRED>(m, first + r);
    wait_for_cluster(me);
    const team_rows<T, in_registers<T, ROWS, VECTORS>> rows = {x, dy, w, stats};
    backward_rows<T, CENTRED, ALIGNED, VECTORS>(p, me, {&exchange, 0, first}, rows, &none);
}

template <typename T, bool CENTRED>
int row_norm(struct context *on, const norm_call &p)
{
    const norm_layout l = layout_forward(on, p.N, sizeof(T));
    auto kernel = NORM_KERNEL(row_forward_kernel, p.N, l, NORM_HELD);
    return launch_teams(on, kernel, l, 0, p, row_grid(p, (int64_t)l.teams * l.rows));
}

template <typename T, bool CENTRED>
int row_norm_back(struct context *on, const norm_call &p)
{
    const norm_layout l = layout_backward(on, p.N, sizeof(T));
    auto kernel = NORM_KERNEL(row_backward_kernel, p.N, l, held_back<T>());
    const int e = launch_teams(on, kernel, l, 0, p, row_grid(p, (int64_t)l.teams * l.rows));
    return e ? e : norm_columns<T, CENTRED>(on, p);
}

const char *row_norm_declines(struct context *on, const norm_call &p, size_t size)
{
    const norm_layout layouts[] = {layout_forward(on, p.N, size), layout_backward(on, p.N, size)};
    for (const norm_layout &l : layouts) {
        if (!l.cluster)
            return NORM_TOO_LONG;
        if (all_clusters(row_grid(p, (int64_t)l.teams * l.rows)) * l.cluster > INT32_MAX)
            return "more rows than a grid has blocks for (2147483647)";
    }
    return NULL;
}

#define EACH(T, CENTRED)                                                                           \
    template int row_norm<T, CENTRED>(struct context *, const norm_call &);                        \
    template int row_norm_back<T, CENTRED>(struct context *, const norm_call &);

NORM_INSTANCES(EACH)
