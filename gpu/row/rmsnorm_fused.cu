/* rmsnorm, layernorm and qk_norm, kernel `fused`: persistent teams of threads.  A team loops over
 * rows with a stride of the number of teams; the loads of the next rows are in flight while the
 * sums of the current row are computed.  Each thread keeps its part of w (and b) in registers.
 *
 * Forward: a team has a few rows and loads the next one into registers.  (Rows of up to 32
 * vectors, rows that are not aligned, and rows of a cluster use kernel `row`.)  Backward: one
 * block of several teams per SM.  Each thread copies its own vectors of the next rows into
 * shared memory with cp.async, so no barrier is needed, and adds up dw and db of its columns.
 * So x and dy are read once.  A block stores its sums in the workspace, and a second launch adds
 * them in the order of the blocks.  The rows of a block depend on the device, but are the same
 * in each run. */
#include "gpu/device/async.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/row/norm.cuh"

/* ---- forward ---- */

/* Rows per team, if there are more teams than are resident at once: enough rows that the next
 * one is in flight while the current row's sums are computed, and few enough that SMs that
 * finish early get more teams. */
enum { ROWS_PER_TEAM = 3 };

/* Subtracts the mean of the warp's elements from the thread's elements; returns the sum, mean and
 * squares of the warp. */
template <typename T>
static __device__ __forceinline__ moments centred(float (&x)[NORM_HELD][WIDTH<T>],
                                                  const bool (&valid)[NORM_HELD], int count,
                                                  float inv_count, const member &me)
{
    moments all = {(float)count, 0, 0, 0};
    float sum[1] = {0};

    #pragma unroll 8
    for (int u = 0; u < NORM_HELD; u++) {
        #pragma unroll 8
        for (int j = 0; j < WIDTH<T>; j++)
            sum[0] += x[u][j];
    }
    add_lanes<false>(sum, me);
    all.sum = sum[0];
    all.mean = __fmul_rn(all.sum, inv_count);
    sum[0] = 0;
    #pragma unroll 8
    for (int u = 0; u < NORM_HELD; u++) {
        float squares = 0;
        #pragma unroll 8
        for (int j = 0; j < WIDTH<T>; j++) {
            x[u][j] -= all.mean;
            squares = fmaf(x[u][j], x[u][j], squares);
        }
        sum[0] += valid[u] ? squares : 0;
    }
    add_lanes<false>(sum, me);
    all.squares = sum[0];
    return all;
}

/* Returns the warp's sum of squares of x; no mean is subtracted. */
template <typename T>
static __device__ __forceinline__ moments uncentred(const float (&x)[NORM_HELD][WIDTH<T>],
                                                    const member &me)
{
    float sum[1] = {0};
    #pragma unroll 8
    for (int u = 0; u < NORM_HELD; u++) {
        #pragma unroll 8
        for (int j = 0; j < WIDTH<T>; j++)
            sum[0] = fmaf(x[u][j], x[u][j], sum[0]);
    }
    add_lanes<false>(sum, me);
    return {0, 0, 0, sum[0]};
}

template <typename T, bool CENTRED>
__global__ void __launch_bounds__(NORM_THREADS, 1)
    fused_forward_kernel(const norm_call p, const norm_layout l, const norm_grid grid)
{
    enum { V = WIDTH<T> };
    __shared__ moments exchange[2][32];
    const member me = member_of<true, NORM_HELD>(p.N, V, l, grid);
    const norm_rows &m = p.matrix[me.matrix];
    const int count = warp_count<V, NORM_HELD>(me), warp = (int)threadIdx.x / 32;
    const float inv_count = rcp_approx((float)max(count, 1));
    vec<T> w[NORM_HELD], b[NORM_HELD], next[NORM_HELD];
    bool valid[NORM_HELD];
    int buffer = 0;

    if (me.team < m.R) /* the last teams of a block may have no row */
        load_part<true>(next, (const T *)m.x + me.team * p.N, me, true);
    load_part<true>(w, (const T *)m.w, me, true);
    if (CENTRED)
        load_part<true>(b, (const T *)m.b, me, true);
    #pragma unroll 8
    for (int u = 0; u < NORM_HELD; u++)
        valid[u] = column_of(me, u, V) < me.end;
    #pragma unroll 1
    for (int64_t row = me.team; row < m.R; row += me.teams, buffer ^= 1) {
        float x[NORM_HELD][V];
        #pragma unroll 8
        for (int u = 0; u < NORM_HELD; u++)
            unpack(next[u], x[u]);
        if (row + me.teams < m.R)
            load_part<true>(next, (const T *)m.x + (row + me.teams) * p.N, me, true);
        const moments own =
            CENTRED ? centred<T>(x, valid, count, inv_count, me) : uncentred<T>(x, me);
        moments all = own;
        if (me.lanes > 32) {
            if (threadIdx.x % 32 == 0)
                exchange[buffer][warp] = own;
            team_sync(me);
            all = merge_moments(exchange[buffer], me.lanes / 32, p.N, p.inv_N);
        }
        const row_stats stats = {all.mean, rsqrtf(fmaf(all.squares, p.inv_N, p.eps))};
        const float delta = __fmul_rn(own.mean - all.mean, stats.rstd);
        store_part<true, NORM_HELD>((T *)m.y + row * p.N, me, true, [&](int u) {
            make_opaque(
                w[u].word); /* else the compiler keeps w as floats, in twice the registers */
            make_opaque(b[u].word);
            return make_vec<T>([&](int j) {
                return CENTRED ? fmaf(w[u][j], fmaf(x[u][j], stats.rstd, delta), b[u][j])
                               : w[u][j] * (stats.rstd * x[u][j]);
            });
        });
        if (me.lane == 0)
            put_stats<CENTRED>(m, row, stats);
    }
}

template <typename T, bool CENTRED>
int fused_norm(struct context *on, const norm_call &p)
{
    const norm_layout l = layout_forward(on, p.N, sizeof(T));
    auto kernel = fused_forward_kernel<T, CENTRED>;
    int blocks_per_sm;

    if (p.N % WIDTH<T> || l.rows > 1 || l.cluster > 1)
        return row_norm<T, CENTRED>(on, p);
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, kernel, l.threads, 0));
    const int64_t resident = (int64_t)blocks_per_sm * on->limits.sms;
    const int64_t clusters = max(resident, ceil_div(all_rows(p), (int64_t)ROWS_PER_TEAM * l.teams));
    return launch_teams(on, kernel, l, 0, p, shared_grid(p, l, clusters));
}

/* ---- backward ---- */

/* The threads of a block, and the bytes of its stages in shared memory, which form a ring. */
enum { BLOCK_THREADS = NORM_THREADS_BACK, RING_BYTES = 128 << 10 };

static_assert(BLOCK_THREADS / 64 <= 15, "a barrier for every team of several warps");

/* The number of stages: one is processed, the others are in flight. */
static constexpr __host__ __device__ int stages(int count)
{
    return RING_BYTES / (BLOCK_THREADS * 2 * count * (int)sizeof(uint4));
}

/* Where a warp's segments of x and dy go in a stage (gpu/device/segment.cuh): the words after their
 * last.  (Narrow teams have a lane for every word of a row.) */
template <typename T>
struct edge {
    vec<T> x, dy;
};

/* Copies the thread's vectors of x and dy, of the team's rows from `first` on, to the thread's slots
 * in a stage; words in place of vectors if rows are not ALIGNED. */
template <typename T, bool ALIGNED, int VECTORS, int COUNT>
static __device__ __forceinline__ void fetch(vec<T> *x, edge<T> *after, const norm_rows &m, int N,
                                             const member &me, int64_t first)
{
    vec<T> *dy = x + COUNT * BLOCK_THREADS;
    if constexpr (ALIGNED) {
        #pragma unroll 8
        for (int i = 0; i < COUNT; i++) {
            const int64_t row = first + i / VECTORS;
            const int n = column_of(me, i % VECTORS, WIDTH<T>);
            const int given = row < m.R && n < me.end ? 16 : 0; /* 0: writes zeros, reads nothing */
            const int64_t at = row * N + n;
            cp_async16(x + i * BLOCK_THREADS, (const T *)m.x + at, given);
            cp_async16(dy + i * BLOCK_THREADS, (const T *)m.dy + at, given);
        }
    } else {
        const segment own = segment_of(me, WIDTH<T>);
        const bool wide = VECTORS > 1;
        #pragma unroll 8
        for (int i = 0; i < COUNT; i += VECTORS) {
            const int64_t row = first + i / VECTORS, at = row * N + own.first;
            const int n = row < m.R ? me.end - own.first : 0;
            copy_segment<VECTORS>(x + i * BLOCK_THREADS, BLOCK_THREADS, wide ? &after->x : NULL,
                                  (const T *)m.x + at, n, own.lane, me.stride);
            copy_segment<VECTORS>(dy + i * BLOCK_THREADS, BLOCK_THREADS, wide ? &after->dy : NULL,
                                  (const T *)m.dy + at, n, own.lane, me.stride);
        }
    }
    cp_async_commit();
}

/* The thread's vectors of the rows of x or dy from `first` on, whose words are in a stage.  (Only the
 * lowest bits of a row's place in the tensor matter.) */
template <typename T, int ROWS, int VECTORS>
static __device__ __forceinline__ in_registers<T, ROWS, VECTORS>
joined(const vec<T> *x, const vec<T> &after, int N, const member &me, int64_t first)
{
    const segment own = segment_of(me, WIDTH<T>);
    in_registers<T, ROWS, VECTORS> h;
    #pragma unroll 8
    for (int r = 0; r < ROWS; r++) {
        const unsigned place = ((unsigned)first + r) * (unsigned)N + own.first;
        #pragma unroll 8
        for (int u = 0; u < VECTORS; u++)
            h.v[r][u] = x[(r * VECTORS + u) * BLOCK_THREADS];
        join_words(h.v[r], after, (int)(place % WIDTH<T>), own.lane, me.stride);
    }
    return h;
}

/* The number of steps, the same for every team; a team may have no row in the last step. */
template <int ROWS>
static __device__ __forceinline__ int steps_of(const norm_rows &m, const member &me)
{
    return (int)((m.R + me.teams * ROWS - 1) / (me.teams * ROWS));
}

template <typename T, bool CENTRED, bool ALIGNED, int VECTORS>
__global__ void __launch_bounds__(BLOCK_THREADS, 1)
    fused_backward_kernel(const norm_call p, const norm_layout l, const norm_grid grid)
{
    enum { COUNT = held_back<T>(), ROWS = COUNT / VECTORS };
    enum { STAGES = stages(COUNT), STAGE = 2 * COUNT * BLOCK_THREADS };
    extern __shared__ uint4 ring[];
    __shared__ team_exchange exchange;
    enum { WARPS = BLOCK_THREADS / 32, EDGES = !ALIGNED && VECTORS > 1 };
    __shared__ edge<T> edges[EDGES ? STAGES * WARPS : 1];
    const member me = member_of<ALIGNED, VECTORS>(p.N, WIDTH<T>, l, grid);
    const norm_rows &m = p.matrix[me.matrix];
    const int64_t stride = me.teams * ROWS;
    const int steps = steps_of<ROWS>(m, me);
    vec<T> *own = (vec<T> *)ring + threadIdx.x;
    const auto after = [&](int stage) {
        return edges + (EDGES ? stage * WARPS + threadIdx.x / 32 : 0);
    };
    int64_t first = me.team * ROWS;
    vec<T> w[VECTORS];
    row_stats stats[ROWS], next_stats[ROWS];
    column_sums<T, CENTRED, VECTORS> sums = {};

    #pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++)
        fetch<T, ALIGNED, VECTORS, COUNT>(own + s * STAGE, after(s), m, p.N, me,
                                          first + s * stride);
    #pragma unroll 8
    for (int u = 0; u < VECTORS; u++)
        w[u] = shared_vector<T, ALIGNED>(m.w, me, u);
    #pragma unroll 8
    for (int r = 0; r < ROWS; r++)
        next_stats[r] = get_stats<CENTRED>(m, first + r);
    wait_for_cluster(me);
    int stage = 0; /* the stage that is processed; the one before it is free */
    #pragma unroll 1
    for (int step = 0; step < steps; step++, first += stride) {
        const int free = stage ? stage - 1 : STAGES - 1;
        fetch<T, ALIGNED, VECTORS, COUNT>(own + free * STAGE, after(free), m, p.N, me,
                                          first + (STAGES - 1) * stride);
        #pragma unroll 8
        for (int r = 0; r < ROWS; r++) {
            stats[r] = next_stats[r];
            next_stats[r] = get_stats<CENTRED>(m, first + stride + r);
        }
        cp_async_wait<STAGES - 1>();
        const vec<T> *const x = own + stage * STAGE, *const dy = x + COUNT * BLOCK_THREADS;
        const team_step at = {&exchange, step, first};
        if constexpr (ALIGNED) {
            const team_rows<T, in_smem<T, BLOCK_THREADS>> rows = {{x}, {dy}, w, stats};
            backward_rows<T, CENTRED, true, VECTORS>(p, me, at, rows, &sums);
        } else {
            edge<T> words = {};
            if (EDGES && threadIdx.x % 32 == 0)
                words = *after(stage);
            const team_rows<T, in_registers<T, ROWS, VECTORS>> rows = {
                joined<T, ROWS, VECTORS>(x, words.x, p.N, me, first),
                joined<T, ROWS, VECTORS>(dy, words.dy, p.N, me, first), w, stats};
            backward_rows<T, CENTRED, false, VECTORS>(p, me, at, rows, &sums);
        }
        stage = stage + 1 < STAGES ? stage + 1 : 0;
    }
    pdl_launch_dependents();
    cp_async_wait<0>();
    store_parts(p, grid, sums, me, (float *)ring);
}

/* The layout of backward: a block has as many teams as fit into BLOCK_THREADS threads; if a team is
 * a cluster, the block has one. */
static norm_layout fused_layout(struct context *on, int64_t N, size_t size)
{
    norm_layout l = layout_backward(on, N, size);
    if (l.cluster == 1) {
        l.teams = BLOCK_THREADS / l.lanes;
        l.threads = l.teams * l.lanes;
    }
    return l;
}

/* One block per SM. */
static int64_t max_clusters(struct context *on, const norm_layout &l)
{
    return max((int64_t)(on->limits.sms / l.cluster), (int64_t)1);
}

/* Sets the dynamic shared memory of the kernel, and computes how many clusters are resident at
 * once.  They may be fewer than SMs / blocks: the blocks of a cluster must be in one GPC. */
template <typename K>
static cudaError_t prepare(struct context *on, K *kernel, const norm_layout &l, int64_t *clusters)
{
    *clusters = max_clusters(on, l);
    CUDA(allow_smem(kernel, RING_BYTES));
    if (l.cluster > 1) {
        cluster_launch launch;
        int resident = 0;
        prepare_teams(on, &launch, *clusters, l, RING_BYTES);
        CUDA(cudaOccupancyMaxActiveClusters(&resident, kernel, &launch.config));
        *clusters = max((int64_t)1, min(*clusters, (int64_t)resident));
    }
    return cudaSuccess;
}

template <typename T, bool CENTRED>
int fused_norm_back(struct context *on, const norm_call &p)
{
    const norm_layout l = fused_layout(on, p.N, sizeof(T));
    auto kernel = NORM_KERNEL(fused_backward_kernel, p.N, l, held_back<T>());
    int64_t clusters;
    CUDA(prepare(on, kernel, l, &clusters));
    const norm_grid grid = shared_grid(p, l, clusters);
    CUDA(launch_teams(on, kernel, l, RING_BYTES, p, grid));
    return norm_add_parts<CENTRED>(on, p, grid);
}

const char *fused_norm_declines(struct context *on, const norm_call &p, size_t size)
{
    return on->limits.smem < RING_BYTES + sizeof(team_exchange)
               ? "less shared memory than the rows in flight take"
               : row_norm_declines(on, p, size);
}

size_t fused_norm_work(struct context *on, const norm_call &p, size_t size, bool centred)
{
    const norm_layout l = fused_layout(on, p.N, size);
    return l.cluster ? parts_bytes(p, shared_grid(p, l, max_clusters(on, l)), centred) : 0;
}

#define EACH(T, CENTRED)                                                                           \
    template int fused_norm<T, CENTRED>(struct context *, const norm_call &);                      \
    template int fused_norm_back<T, CENTRED>(struct context *, const norm_call &);

NORM_INSTANCES(EACH)
