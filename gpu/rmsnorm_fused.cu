/* rmsnorm, layernorm and qk_norm, kernel `fused`: as many blocks as the device holds at once, whose
 * teams take row after row.  Each thread fetches its own vectors of the rows to come into shared
 * memory, where they wait for nobody but itself, so that loads are on their way while sums are
 * awaited; it keeps its part of w, and in backward its columns' sums of dw and db, in registers.
 * So x and dy are read once.  A block leaves its sums in the workspace, and a second launch adds
 * the blocks' in their order: which rows they are of follows from the device, not from the run. */
#include "gpu/norm.cuh"

/* Sets of vectors in the ring, of x or of x and dy: with THREADS_MOST threads on a multiprocessor
 * 192 KB. */
enum { RING = 8, ADDING = 32, DOWN = 32 };

/* Steps in the ring at once: one is worked on, the others are on their way. */
static constexpr __host__ __device__ int stages(int tensors)
{
    return RING / tensors;
}

static int multiprocessors(void)
{
#ifdef CUDA_EMULATE
    return 2; /* so few that small cases are several steps */
#else
    return max(gpu_properties().multiProcessorCount, 1);
#endif
}

/* A thread's vectors of its team's rows from `first` on, to its places in the ring. */
template <typename T, bool ALIGNED, int UNITS>
static __device__ __forceinline__ void fetch(uint4 *ring, const void *x, const norm_call &p,
                                             const member &me, int64_t first)
{
    UNROLL((ALIGNED ? HELD : 1))
    for (int i = 0; i < HELD; i++) {
        const int64_t row = first + i / UNITS;
        const int n = column_of(me, i % UNITS, 16 / sizeof(T));
        const int left = row < p.of[me.matrix].R ? me.end - n : 0;
        const T *from = (const T *)x + (left > 0 ? row * p.N + n : 0);
        uint4 *to = ring + i * blockDim.x + threadIdx.x;
        if (ALIGNED)
            cp_async16(to, from, left > 0 ? 16 : 0);
        else
            *to = load_vector<T, false>(from, left);
    }
}

/* Steps that every team takes, the last of them perhaps without a row. */
template <int ROWS>
static __device__ __forceinline__ int steps_of(const norm_rows &m, const member &me)
{
    return (int)((m.R + me.teams * ROWS - 1) / (me.teams * ROWS));
}

template <typename T, bool CENTRED, bool ALIGNED, int UNITS>
__global__ void __launch_bounds__(threads_most(ALIGNED), 1)
    fused_forward_kernel(const norm_call p, const norm_layout l, const norm_grid grid)
{
    enum { ROWS = HELD / UNITS, STAGES = stages(1) };
    extern __shared__ uint4 ring[];
    __shared__ meeting met;
    const member me = member_of(p.N, 16 / sizeof(T), l, grid);
    const norm_rows &m = p.of[me.matrix];
    const int64_t stride = me.teams * ROWS;
    const int steps = steps_of<ROWS>(m, me);
    const int stage = HELD * blockDim.x;
    int64_t first = me.team * ROWS;
    uint4 w[UNITS], b[UNITS];

    UNROLL(1)
    for (int s = 0; s < STAGES - 1; s++) {
        fetch<T, ALIGNED, UNITS>(ring + s * stage, m.x, p, me, first + s * stride);
        cp_async_commit();
    }
    load_columns<T, ALIGNED, UNITS>(w, m.w, me);
    if (CENTRED)
        load_columns<T, ALIGNED, UNITS>(b, m.b, me);
    cluster_meets(me);
    int at = 0; /* the stage that is worked on; the one before it is free */
    for (int step = 0; step < steps; step++, first += stride) {
        fetch<T, ALIGNED, UNITS>(ring + (at ? at - 1 : STAGES - 1) * stage, m.x, p, me,
                                 first + (STAGES - 1) * stride);
        cp_async_commit();
        cp_async_wait<STAGES - 1>();
        const laid<UNITS> x = {ring + at * stage};
        put_rows<T, CENTRED, ALIGNED, UNITS>(p, me, &met, step, first, x, w, b);
        at = at + 1 < STAGES ? at + 1 : 0;
    }
}

/* A thread's columns' sums. */
template <typename T, bool CENTRED, int UNITS>
struct column_sums {
    enum { V = 16 / sizeof(T) };
    float dw[UNITS][V], db[UNITS][V]; /* db only if CENTRED */

    __device__ __forceinline__ void add(int u, int j, float dy, float xhat)
    {
        dw[u][j] = fmaf(dy, xhat, dw[u][j]);
        if (CENTRED)
            db[u][j] += dy;
    }
};

/* The sums x of all the block's teams, in their order, to the block's part of `parts`. */
template <int UNITS, int V>
static __device__ __forceinline__ void leave_sums(float *parts, const float (&x)[UNITS][V], int N,
                                                  const member &me, float *room)
{
    const int width = me.lanes * UNITS * V, team = (int)threadIdx.x / me.lanes;
    const int teams = (int)blockDim.x / me.lanes;

    __syncthreads();
    UNROLL(4)
    for (int u = 0; u < UNITS; u++) {
        UNROLL(8)
        for (int j = 0; j < V; j++)
            room[team * width + (u * me.lanes + me.lane) * V + j] = x[u][j];
    }
    __syncthreads();
    for (int n = threadIdx.x; n < me.end - me.first; n += blockDim.x) {
        float sum = 0;
        for (int i = 0; i < teams; i++)
            sum += room[i * width + n];
        parts[me.unit * N + me.first + n] = sum;
    }
}

/* Where in the workspace the parts of a matrix's dw begin; those of db follow. */
static __device__ __forceinline__ float *parts_of(const norm_call &p, const norm_grid &grid,
                                                  int matrix, int sums)
{
    return p.work + (matrix ? grid.clusters[0] * p.N * sums : 0);
}

template <typename T, bool CENTRED, bool ALIGNED, int UNITS>
__global__ void __launch_bounds__(threads_most(ALIGNED), 1)
    fused_backward_kernel(const norm_call p, const norm_layout l, const norm_grid grid)
{
    enum { ROWS = HELD / UNITS, STAGES = stages(2) };
    extern __shared__ uint4 ring[];
    __shared__ meeting met;
    const member me = member_of(p.N, 16 / sizeof(T), l, grid);
    const norm_rows &m = p.of[me.matrix];
    const int64_t stride = me.teams * ROWS;
    const int steps = steps_of<ROWS>(m, me);
    const int stage = 2 * HELD * blockDim.x, half = HELD * blockDim.x;
    int64_t first = me.team * ROWS;
    uint4 w[UNITS];
    row_stats of[ROWS], then[ROWS];
    column_sums<T, CENTRED, UNITS> sums = {};

    UNROLL(1)
    for (int s = 0; s < STAGES - 1; s++) {
        fetch<T, ALIGNED, UNITS>(ring + s * stage, m.x, p, me, first + s * stride);
        fetch<T, ALIGNED, UNITS>(ring + s * stage + half, m.dy, p, me, first + s * stride);
        cp_async_commit();
    }
    load_columns<T, ALIGNED, UNITS>(w, m.w, me);
    UNROLL(4)
    for (int r = 0; r < ROWS; r++)
        then[r] = get_stats<CENTRED>(m, first + r);
    cluster_meets(me);
    int at = 0; /* the stage that is worked on; the one before it is free */
    for (int step = 0; step < steps; step++, first += stride) {
        const int64_t ahead = first + (STAGES - 1) * stride;
        fetch<T, ALIGNED, UNITS>(ring + (at ? at - 1 : STAGES - 1) * stage, m.x, p, me, ahead);
        fetch<T, ALIGNED, UNITS>(ring + (at ? at - 1 : STAGES - 1) * stage + half, m.dy, p, me,
                                 ahead);
        cp_async_commit();
        UNROLL(4)
        for (int r = 0; r < ROWS; r++) {
            of[r] = then[r];
            then[r] = get_stats<CENTRED>(m, first + stride + r);
        }
        cp_async_wait<STAGES - 1>();
        const laid<UNITS> x = {ring + at * stage}, dy = {ring + at * stage + half};
        put_slopes<T, CENTRED, ALIGNED, UNITS>(p, me, &met, step, first, x, dy, w, of, &sums);
        at = at + 1 < STAGES ? at + 1 : 0;
    }
    let_next_kernel_start();
    cp_async_wait<0>();
    float *parts = parts_of(p, grid, me.matrix, CENTRED ? 2 : 1);
    leave_sums(parts, sums.dw, p.N, me, (float *)ring);
    if (CENTRED)
        leave_sums(parts + me.units * p.N, sums.db, p.N, me, (float *)ring);
}

/* dw or db of ADDING columns: DOWN threads share a column, each of which adds every DOWN-th
 * part. */
template <bool CENTRED>
__global__ void __launch_bounds__(ADDING *DOWN)
    add_parts_kernel(const norm_call p, const norm_grid grid, int blocks)
{
    enum { SUMS = CENTRED ? 2 : 1 };
    __shared__ float of[DOWN][ADDING];
    const int which = (int)blockIdx.x / blocks, matrix = which / SUMS;
    const int i = (int)threadIdx.x % ADDING, down = (int)threadIdx.x / ADDING;
    const int n = (int)blockIdx.x % blocks * ADDING + i;
    const int64_t units = clusters_of(grid, matrix);
    const float *parts = parts_of(p, grid, matrix, SUMS) + which % SUMS * units * p.N + n;
    float sum = 0;

    wait_for_kernel_before();
    UNROLL(8)
    for (int64_t unit = down; n < p.N && unit < units; unit += DOWN)
        sum += parts[unit * p.N];
    of[down][i] = sum;
    __syncthreads();
    if (down || n >= p.N)
        return;
    for (int d = 1; d < DOWN; d++)
        sum += of[d][i];
    (which % SUMS ? p.of[matrix].db : p.of[matrix].dw)[n] = sum;
}

static size_t ring_bytes(const norm_layout &l)
{
    return (size_t)RING * HELD * sizeof(uint4) * l.threads;
}

/* `most` clusters, shared among the matrices as their rows are, but no more than have rows: one
 * beyond `most` would begin when the others are done. */
static norm_grid fused_grid(const norm_call &p, const norm_layout &l, int64_t most)
{
    norm_grid grid = {};
    int64_t left = most;
    for (int i = 0; i < p.n; i++) {
        const int64_t others = p.n - 1 - i;
        int64_t share = left;
        if (others)
            share = min((int64_t)((double)most * p.of[i].R / all_rows(p) + 0.5), most - others);
        share = max(share, (int64_t)1);
        left -= share;
        grid.clusters[i] = min(share, ceil_div(p.of[i].R, (int64_t)teams_of(l) * l.rows));
    }
    return grid;
}

/* So many clusters the device holds at once, as far as shared memory goes. */
static int64_t clusters_most(const norm_layout &l)
{
    return max((int64_t)multiprocessors() * (THREADS_MOST / l.threads) / l.cluster, (int64_t)1);
}

/* Makes room for the ring, and asks how many of its clusters there are at once: where a cluster
 * is of several blocks, these must be neighbours. */
template <typename K>
static cudaError_t prepare(K *kernel, const norm_layout &l, int64_t *clusters)
{
    *clusters = clusters_most(l);
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              (int)ring_bytes(l)));
    if (l.cluster > 1) {
        teams_launch launch;
        int at_once = 0;
        prepare_teams(&launch, *clusters, l, ring_bytes(l));
        CUDA(cudaOccupancyMaxActiveClusters(&at_once, kernel, &launch.config));
        *clusters = max((int64_t)1, min(*clusters, (int64_t)at_once));
    }
    return cudaSuccess;
}

template <typename T, bool CENTRED>
int fused_norm(const norm_call &p)
{
    const norm_layout l = layout_of(p.N, sizeof(T));
    auto kernel = KERNEL_FOR(fused_forward_kernel, p.N, l);
    int64_t clusters;
    CUDA(prepare(kernel, l, &clusters));
    return launch_teams(kernel, l, ring_bytes(l), p, fused_grid(p, l, clusters));
}

template <typename T, bool CENTRED>
int fused_norm_back(const norm_call &p)
{
    const norm_layout l = layout_of(p.N, sizeof(T));
    auto kernel = KERNEL_FOR(fused_backward_kernel, p.N, l);
    const int blocks = (int)ceil_div(p.N, ADDING), sums = CENTRED ? 2 : 1;
    int64_t clusters;
    CUDA(prepare(kernel, l, &clusters));
    const norm_grid grid = fused_grid(p, l, clusters);
    CUDA(launch_teams(kernel, l, ring_bytes(l), p, grid));
    return launch_early(add_parts_kernel<CENTRED>, blocks * sums * p.n, ADDING * DOWN, 0, p, grid,
                        blocks);
}

const char *fused_norm_declines(const norm_call &p, size_t size)
{
    return layout_of(p.N, size).cluster ? NULL : TOO_LONG;
}

size_t fused_norm_work(const norm_call &p, size_t size, bool centred)
{
    const norm_layout l = layout_of(p.N, size);
    if (!l.cluster)
        return 0;
    const norm_grid grid = fused_grid(p, l, clusters_most(l));
    return (grid.clusters[0] + grid.clusters[1]) * p.N * (centred ? 2 : 1) * sizeof(float);
}

#define EACH(T, CENTRED)                                                                           \
    template int fused_norm<T, CENTRED>(const norm_call &);                                        \
    template int fused_norm_back<T, CENTRED>(const norm_call &)

EACH(float, false);
EACH(float, true);
EACH(__nv_bfloat16, false);
EACH(__nv_bfloat16, true);
