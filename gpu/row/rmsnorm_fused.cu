/* rmsnorm, layernorm and qk_norm, kernel `fused`: teams stay, and take row after row, each at its own
 * pace, and the rows to come are on their way while the sums of this one are awaited.  Each thread
 * keeps its part of w (and b) in registers.
 *
 * Forward a team takes a few rows, the next on its way to registers.  (Narrow rows, rows that are
 * not aligned, and those of a cluster are `row`'s.)  Backward a block an SM has several
 * teams; each thread fetches its own vectors of the rows to come into shared memory, where they wait
 * for nobody but itself, and keeps its columns' sums of dw and db.  So x and dy are read once.  A
 * block leaves its sums in the workspace, and a second launch adds the blocks' in their order: which
 * rows they are of follows from the device, not from the run. */
#include "gpu/device/async.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/row/norm.cuh"

/* ---- forward ---- */

/* Of a team, where more come than run at once: enough that the next row is on its way while this
 * one's sums are awaited, and so few that the SMs that are done sooner get more teams. */
enum { ROWS_EACH = 3 };

template <typename T>
static __device__ __forceinline__ void load_row(uint4 (&x)[HELD], const T *row, const member &me)
{
    #pragma unroll 8
    for (int u = 0; u < HELD; u++) {
        const int n = column_of(me, u, per_vector<T>());
        x[u] = load_vector<T, true>(row + n, me.end - n);
    }
}

/* The thread's numbers less their warp's mean, and of all the warp's together sum, mean and
 * squares. */
template <typename T>
static __device__ __forceinline__ spread centred(float (&x)[HELD][16 / sizeof(T)],
                                                 const bool (&there)[HELD], int count, float share,
                                                 const member &me)
{
    spread all = {(float)count, 0, 0, 0};
    float sum[1] = {0};

    #pragma unroll 8
    for (int u = 0; u < HELD; u++) {
        #pragma unroll 8
        for (int j = 0; j < per_vector<T>(); j++)
            sum[0] += x[u][j];
    }
    add_lanes<false>(sum, me);
    all.sum = sum[0];
    all.mean = __fmul_rn(all.sum, share);
    sum[0] = 0;
    #pragma unroll 8
    for (int u = 0; u < HELD; u++) {
        float squares = 0;
        #pragma unroll 8
        for (int j = 0; j < per_vector<T>(); j++) {
            x[u][j] -= all.mean;
            squares = fmaf(x[u][j], x[u][j], squares);
        }
        sum[0] += there[u] ? squares : 0;
    }
    add_lanes<false>(sum, me);
    all.squares = sum[0];
    return all;
}

/* The same of numbers about 0. */
template <typename T>
static __device__ __forceinline__ spread uncentred(const float (&x)[HELD][16 / sizeof(T)],
                                                   const member &me)
{
    float sum[1] = {0};
    #pragma unroll 8
    for (int u = 0; u < HELD; u++) {
        #pragma unroll 8
        for (int j = 0; j < per_vector<T>(); j++)
            sum[0] = fmaf(x[u][j], x[u][j], sum[0]);
    }
    add_lanes<false>(sum, me);
    return {0, 0, 0, sum[0]};
}

template <typename T, bool CENTRED>
__global__ void __launch_bounds__(THREADS_MOST, 1)
    fused_forward_kernel(const norm_call p, const norm_layout l, const norm_grid grid)
{
    enum { V = 16 / sizeof(T) };
    __shared__ spread met[2][32];
    const member me = member_of(p.N, V, l, grid);
    const norm_rows &m = p.of[me.matrix];
    const int count = warp_count<V, HELD>(me), warp = (int)threadIdx.x / 32;
    const float part = rcp_approx((float)max(count, 1));
    uint4 w[HELD], b[HELD], next[HELD];
    bool there[HELD];
    int turn = 0;

    if (me.team < m.R) /* a block's last teams may have none */
        load_row(next, (const T *)m.x + me.team * p.N, me);
    load_row(w, (const T *)m.w, me);
    if (CENTRED)
        load_row(b, (const T *)m.b, me);
    #pragma unroll 8
    for (int u = 0; u < HELD; u++)
        there[u] = column_of(me, u, V) < me.end;
    #pragma unroll 1
    for (int64_t row = me.team; row < m.R; row += me.teams, turn ^= 1) {
        float x[HELD][V];
        #pragma unroll 8
        for (int u = 0; u < HELD; u++) {
            const numbers<T> xs = widened<T>(next[u]);
            #pragma unroll 8
            for (int j = 0; j < V; j++)
                x[u][j] = xs.x[j];
        }
        if (row + me.teams < m.R)
            load_row(next, (const T *)m.x + (row + me.teams) * p.N, me);
        const spread mine = CENTRED ? centred<T>(x, there, count, part, me) : uncentred<T>(x, me);
        spread all = mine;
        if (me.lanes > 32) {
            if (threadIdx.x % 32 == 0)
                met[turn][warp] = mine;
            team_sync(me);
            all = as_one(met[turn], me.lanes / 32, p.N, p.share);
        }
        const row_stats of = {all.mean, rsqrtf(fmaf(all.squares, p.share, p.eps))};
        const float off = __fmul_rn(mine.mean - all.mean, of.rstd);
        #pragma unroll 8
        for (int u = 0; u < HELD; u++) {
            make_opaque(&w[u]); /* or it would be kept as it is widened, in twice the registers */
            make_opaque(&b[u]);
            const numbers<T> ws = widened<T>(w[u]), bs = widened<T>(b[u]);
            const int n = column_of(me, u, V);
            numbers<T> y;
            #pragma unroll 8
            for (int j = 0; j < V; j++)
                y.x[j] = CENTRED ? fmaf(ws.x[j], fmaf(x[u][j], of.rstd, off), bs.x[j])
                                 : ws.x[j] * (of.rstd * x[u][j]);
            store_vector<T, true>((T *)m.y + row * p.N + n, me.end - n, y);
        }
        if (me.lane == 0)
            put_stats<CENTRED>(m, row, of);
    }
}

template <typename T, bool CENTRED>
int fused_norm(const norm_call &p)
{
    const norm_layout l = layout_forward(p.N, sizeof(T));
    auto kernel = fused_forward_kernel<T, CENTRED>;
    int on_one;

    if (p.N % per_vector<T>() || l.rows > 1 || l.cluster > 1)
        return row_norm<T, CENTRED>(p);
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&on_one, kernel, l.threads, 0));
    const int64_t at_once = (int64_t)on_one * gpu_limits()->sms;
    const int64_t clusters = max(at_once, ceil_div(all_rows(p), (int64_t)ROWS_EACH * l.teams));
    return launch_teams(kernel, l, 0, p, shared_grid(p, l, clusters));
}

/* ---- backward ---- */

/* Of a block, and of the rows in its shared memory. */
enum { BLOCK_THREADS = BACK_MOST, RING_BYTES = 128 << 10 };

static_assert(BLOCK_THREADS / 64 <= 15, "a barrier for every team of several warps");

/* Steps in the ring at once: one is worked on, the others are on their way. */
static constexpr __host__ __device__ int stages(int count)
{
    return RING_BYTES / (BLOCK_THREADS * 2 * count * (int)sizeof(uint4));
}

/* A thread's vectors of its team's rows from `first` on, of x and of dy, to its places in a stage. */
template <typename T, bool ALIGNED, int UNITS, int COUNT>
static __device__ __forceinline__ void fetch(uint4 *x, const norm_rows &m, int N, const member &me,
                                             int64_t first)
{
    uint4 *dy = x + COUNT * BLOCK_THREADS;
    #pragma unroll (ALIGNED ? 8 : 1)
    for (int i = 0; i < COUNT; i++) {
        const int64_t row = first + i / UNITS;
        const int n = column_of(me, i % UNITS, 16 / sizeof(T));
        const int left = row < m.R ? me.end - n : 0;
        const int64_t at = row * N + n;
        if (ALIGNED) { /* where nothing is left, nothing is read */
            cp_async16(x + i * BLOCK_THREADS, (const T *)m.x + at, left > 0 ? 16 : 0);
            cp_async16(dy + i * BLOCK_THREADS, (const T *)m.dy + at, left > 0 ? 16 : 0);
        } else {
            x[i * BLOCK_THREADS] = load_vector<T, false>((const T *)m.x + at, left);
            dy[i * BLOCK_THREADS] = load_vector<T, false>((const T *)m.dy + at, left);
        }
    }
    cp_async_commit();
}

/* Steps that every team takes, the last of them perhaps without a row. */
template <int ROWS>
static __device__ __forceinline__ int steps_of(const norm_rows &m, const member &me)
{
    return (int)((m.R + me.teams * ROWS - 1) / (me.teams * ROWS));
}

template <typename T, bool CENTRED, bool ALIGNED, int UNITS>
__global__ void __launch_bounds__(BLOCK_THREADS, 1)
    fused_backward_kernel(const norm_call p, const norm_layout l, const norm_grid grid)
{
    enum { COUNT = held_back<T>(), ROWS = COUNT / UNITS };
    enum { STAGES = stages(COUNT), STAGE = 2 * COUNT * BLOCK_THREADS };
    extern __shared__ uint4 ring[];
    __shared__ meeting met;
    const member me = member_of(p.N, 16 / sizeof(T), l, grid);
    const norm_rows &m = p.of[me.matrix];
    const int64_t stride = me.teams * ROWS;
    const int steps = steps_of<ROWS>(m, me);
    uint4 *mine = ring + threadIdx.x;
    int64_t first = me.team * ROWS;
    uint4 w[UNITS];
    row_stats of[ROWS], then[ROWS];
    column_sums<T, CENTRED, UNITS> sums = {};

    #pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++)
        fetch<T, ALIGNED, UNITS, COUNT>(mine + s * STAGE, m, p.N, me, first + s * stride);
    #pragma unroll 8
    for (int u = 0; u < UNITS; u++)
        w[u] = shared_vector<T, ALIGNED>(m.w, me, u);
    #pragma unroll 8
    for (int r = 0; r < ROWS; r++)
        then[r] = get_stats<CENTRED>(m, first + r);
    cluster_meets(me);
    int at = 0; /* the stage that is worked on; the one before it is free */
    #pragma unroll 1
    for (int step = 0; step < steps; step++, first += stride) {
        fetch<T, ALIGNED, UNITS, COUNT>(mine + (at ? at - 1 : STAGES - 1) * STAGE, m, p.N, me,
                                        first + (STAGES - 1) * stride);
        #pragma unroll 8
        for (int r = 0; r < ROWS; r++) {
            of[r] = then[r];
            then[r] = get_stats<CENTRED>(m, first + stride + r);
        }
        cp_async_wait<STAGES - 1>();
        const laid<BLOCK_THREADS> x = {mine + at * STAGE}, dy = {x.v + COUNT * BLOCK_THREADS};
        put_slopes<T, CENTRED, ALIGNED, UNITS>(p, me, &met, step, first, x, dy, w, of, &sums);
        at = at + 1 < STAGES ? at + 1 : 0;
    }
    pdl_launch_dependents();
    cp_async_wait<0>();
    leave_parts(p, grid, sums, me, (float *)ring);
}

/* As many teams as a block has threads for; of a cluster's blocks, one together. */
static norm_layout fused_layout(int64_t N, size_t size)
{
    norm_layout l = layout_backward(N, size);
    if (l.cluster == 1) {
        l.teams = BLOCK_THREADS / l.lanes;
        l.threads = l.teams * l.lanes;
    }
    return l;
}

/* A block an SM. */
static int64_t clusters_most(const norm_layout &l)
{
    return max((int64_t)(gpu_limits()->sms / l.cluster), (int64_t)1);
}

/* Makes room for the ring, and asks how many of its clusters there are at once: where a cluster
 * is of several blocks, these must be neighbours. */
template <typename K>
static cudaError_t prepare(K *kernel, const norm_layout &l, int64_t *clusters)
{
    *clusters = clusters_most(l);
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, RING_BYTES));
    if (l.cluster > 1) {
        teams_launch launch;
        int at_once = 0;
        prepare_teams(&launch, *clusters, l, RING_BYTES);
        CUDA(cudaOccupancyMaxActiveClusters(&at_once, kernel, &launch.config));
        *clusters = max((int64_t)1, min(*clusters, (int64_t)at_once));
    }
    return cudaSuccess;
}

template <typename T, bool CENTRED>
int fused_norm_back(const norm_call &p)
{
    const norm_layout l = fused_layout(p.N, sizeof(T));
    auto kernel = KERNEL_FOR(fused_backward_kernel, p.N, l, held_back<T>());
    int64_t clusters;
    CUDA(prepare(kernel, l, &clusters));
    const norm_grid grid = shared_grid(p, l, clusters);
    CUDA(launch_teams(kernel, l, RING_BYTES, p, grid));
    return norm_add_parts<CENTRED>(p, grid);
}

const char *fused_norm_declines(const norm_call &p, size_t size)
{
    return gpu_properties().sharedMemPerBlockOptin < RING_BYTES + sizeof(meeting)
               ? "less shared memory than the rows on their way take"
               : row_norm_declines(p, size);
}

size_t fused_norm_work(const norm_call &p, size_t size, bool centred)
{
    const norm_layout l = fused_layout(p.N, size);
    return l.cluster ? parts_bytes(p, shared_grid(p, l, clusters_most(l)), centred) : 0;
}

#define EACH(T, CENTRED)                                                                           \
    template int fused_norm<T, CENTRED>(const norm_call &);                                        \
    template int fused_norm_back<T, CENTRED>(const norm_call &)

EACH(float, false);
EACH(float, true);
EACH(__nv_bfloat16, false);
EACH(__nv_bfloat16, true);
