/* rmsnorm, layernorm and qk_norm, kernel `staged`: a block copies many short rows to shared memory as
 * one copy, wherever they begin (gpu/device/staged.cuh).
 *
 * Forward: a block has its rows once.  Backward: persistent blocks, whose next rows are in flight while
 * the sums of the current ones are computed; dx replaces dy.  dw and db of short rows are added up by the
 * lane that has the column, over its rows; those of rows of a warp by a thread for each column, over all
 * rows of the block.  A block stores its sums in the workspace, and a second launch adds them in the order
 * of the blocks. */
#include "gpu/device/launch.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/device/reduce.cuh"
#include "gpu/device/staged.cuh"
#include "gpu/row/norm.cuh"

/* The bytes of x of a block's rows, if one step of its teams has no more: in forward, and in each of
 * the STAGES of backward. */
enum { BLOCK_BYTES = 16 << 10, STAGE_BYTES = 8 << 10, STAGES = 2 };
/* At most, per SM: blocks of backward.  More than fit are not started. */
enum { MAX_BLOCKS = 8 };

template <typename T>
static staged rows_at_once(struct context *on, const norm_call &p, int bytes)
{
    return staged_rows<T>(all_rows(p), p.N, bytes, on->limits.sms);
}

/* ---- forward ---- */

/* Subtracts the row's mean from the lane's columns, of which n are there. */
template <typename S>
static __device__ __forceinline__ float subtract_mean(float (&x)[S::K], int n, float inv_N,
                                                      const staged_lane<S> &at)
{
    float sum = 0;
    #pragma unroll
    for (int k = 0; k < S::K; k++)
        sum += x[k];
    const float mean = __fmul_rn(warp_sum<S::LANES>(sum), inv_N);
    make_opaque(n);
    #pragma unroll
    for (int k = 0; k < S::K; k++)
        x[k] = at.column(k) < n ? x[k] - mean : 0;
    return mean;
}

template <typename T, bool CENTRED, typename S>
__global__ void STAGED_BOUNDS(T)
    staged_forward_kernel(const norm_call p, const staged s, const norm_grid grid)
{
    extern __shared__ uint4 staged_smem[];
    const bool second = blockIdx.x >= grid.clusters[0];
    const norm_rows &m = p.matrix[second];
    const staged_chunk own(m.R, s, blockIdx.x - (second ? grid.clusters[0] : 0));
    const staged_lane<S> at;
    T *rows = (T *)staged_smem;

    stage_in(rows, (const T *)m.x + own.first * p.N, own.there * p.N);
    stage_ready();
    #pragma unroll 1
    for (int r = at.team; r < s.rows; r += s.teams) {
        const int n = r < own.there ? p.N : 0;
        float x[S::K], squares = 0;
        row_stats stats = {0, 0};
        at.load_row(x, rows + r * p.N, n, 0);
        if (CENTRED)
            stats.mean = subtract_mean(x, n, p.inv_N, at);
        #pragma unroll
        for (int k = 0; k < S::K; k++)
            squares = fmaf(x[k], x[k], squares);
        stats.rstd = rsqrtf(fmaf(warp_sum<S::LANES>(squares), p.inv_N, p.eps));
        at.store_row(rows + r * p.N, n, [&](int k) {
            const float w = load((const T *)m.w + at.column(k)), xhat = stats.rstd * x[k];
            return CENTRED ? fmaf(w, xhat, load((const T *)m.b + at.column(k))) : w * xhat;
        });
        if (n && at.lane == 0)
            put_stats<CENTRED>(m, own.first + r, stats);
    }
    __syncthreads();
    stage_out((T *)m.y + own.first * p.N, rows, own.there * p.N);
}

template <typename T, bool CENTRED>
int staged_norm(struct context *on, const norm_call &p)
{
    const staged s = rows_at_once<T>(on, p, BLOCK_BYTES);
    const size_t bytes = s.elements() * sizeof(T);
    const norm_grid grid = row_grid(p, s.rows);

    return staged_start(s.N, [&](auto shape) -> int {
        const auto kernel = staged_forward_kernel<T, CENTRED, decltype(shape)>;
        CUDA(allow_smem(kernel, bytes));
        kernel<<<all_clusters(grid), s.threads, bytes, on->stream>>>(p, s, grid);
        return cudaGetLastError();
    });
}

/* ---- backward ---- */

/* A stage: the rows of x and of dy, and their statistics. */
template <typename T>
struct stage_of {
    T *x, *dy;
    float *rstd, *mean;

    __device__ __forceinline__ stage_of(unsigned char *smem, const staged &s, bool centred)
    {
        x = (T *)smem;
        dy = x + s.elements();
        rstd = (float *)(dy + s.elements());
        mean = rstd + (centred ? s.rows : 0);
    }
};

template <typename T>
static __host__ __device__ int stage_bytes(const staged &s, bool centred)
{
    return 2 * s.elements() * (int)sizeof(T) + (centred ? 2 : 1) * s.rows * (int)sizeof(float);
}

template <typename T, bool CENTRED>
static __device__ __forceinline__ void fetch(const stage_of<T> &to, const norm_rows &m,
                                             const staged &s, const staged_chunk &own)
{
    const int n = own.there * s.N;

    stage_in(to.x, (const T *)m.x + own.first * s.N, n);
    stage_in(to.dy, (const T *)m.dy + own.first * s.N, n);
    stage_in(to.rstd, m.rstd + own.first, own.there);
    if (CENTRED)
        stage_in(to.mean, m.mean + own.first, own.there);
    cp_async_commit();
}

/* A thread's sums: of the columns of its lane over the rows of its team; or, where a team is a warp, of
 * the columns with a stride of the threads of the block, over the block's rows. */
template <typename T, typename S>
struct sums_of {
    static constexpr bool BY_COLUMN = S::LANES == 32;
    static constexpr int COUNT = BY_COLUMN ? STAGED_COLUMNS / (32 * WIDTH<T>) : S::K;
};
template <bool CENTRED, int COUNT>
struct thread_sums {
    float dw[COUNT] = {}, db[CENTRED ? COUNT : 1] = {};

    __device__ __forceinline__ void add(int i, float dy, float xhat)
    {
        dw[i] = fmaf(dy, xhat, dw[i]);
        if constexpr (CENTRED)
            db[i] += dy;
    }
};

/* Adds the rows of a stage, of which `there` are there, column by column. */
template <typename T, bool CENTRED, int COUNT>
static __device__ __forceinline__ void add_columns(const stage_of<T> &rows, int N, int there,
                                                   thread_sums<CENTRED, COUNT> *sums)
{
    #pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const int column = (int)(threadIdx.x + i * blockDim.x);
        #pragma unroll 4
        for (int r = 0; column < N && r < there; r++) {
            const row_stats stats = {CENTRED ? rows.mean[r] : 0, rows.rstd[r]};
            const float x = load(rows.x + r * N + column);
            sums->add(i, load(rows.dy + r * N + column), stats.rstd * deviation<CENTRED>(x, stats));
        }
    }
}

/* A row of which n columns are there. */
template <typename T>
struct staged_row {
    const T *x, *w;
    T *dy;
    int n;
    row_stats stats;
};

/* A row's dx in place of dy, and its terms of dw and db unless they are added by column. */
template <typename T, bool CENTRED, typename S, typename SUMS>
static __device__ __forceinline__ void backward_row(const staged_row<T> &row, float inv_N,
                                                    const staged_lane<S> &at, SUMS *sums)
{
    const staged_columns<S, T> x(at, row.x, row.n), dy(at, row.dy, row.n);
    int n = row.n;
    const auto xhat = [&](int k) {
        return at.column(k) < n ? row.stats.rstd * deviation<CENTRED>(x[k], row.stats) : 0;
    };
    const auto g = [&](int k) {
        return at.column(k) < n ? __fmul_rn(load(row.w + at.column(k)), dy[k]) : 0;
    };
    float dot = 0, sum = 0;

    #pragma unroll
    for (int k = 0; k < S::K; k++) {
        const float xk = xhat(k), gk = g(k);
        dot = fmaf(gk, xk, dot);
        if (CENTRED)
            sum += gk;
        if constexpr (!sums_of<T, S>::BY_COLUMN)
            sums->add(k, dy[k], xk);
    }
    dot = __fmul_rn(warp_sum<S::LANES>(dot), inv_N);
    const float mean_g = CENTRED ? __fmul_rn(warp_sum<S::LANES>(sum), inv_N) : 0;
    make_opaque(n);
    at.store_row(row.dy, row.n, [&](int k) {
        return row.stats.rstd * fmaf(-xhat(k), dot, CENTRED ? g(k) - mean_g : g(k));
    });
}

/* Stores a thread's sums of columns to the block's part. */
template <int COUNT>
static __device__ __forceinline__ void store_columns(float *part, const float (&x)[COUNT], int N)
{
    #pragma unroll
    for (int i = 0; i < COUNT; i++)
        if ((int)(threadIdx.x + i * blockDim.x) < N)
            part[threadIdx.x + i * blockDim.x] = x[i];
}

/* Adds the sums x of a block's teams, those of a warp first, and stores them to the block's part. */
template <typename S>
static __device__ __forceinline__ void store_teams(float *part, float (&x)[S::K],
                                                   const staged_lane<S> &at, int N, float *smem)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;

    #pragma unroll
    for (int d = S::LANES; d < 32; d *= 2)
        #pragma unroll
        for (int k = 0; k < S::K; k++)
            x[k] += __shfl_xor_sync(~0u, x[k], d);
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < S::K; k++)
        if (lane < S::LANES && at.column(k) < N)
            smem[warp * N + at.column(k)] = x[k];
    __syncthreads();
    for (int n = threadIdx.x; n < N; n += blockDim.x) {
        float sum = 0;
        for (int i = 0; i < (int)blockDim.x / 32; i++)
            sum += smem[i * N + n];
        part[n] = sum;
    }
}

/* For __launch_bounds__: the registers of as many columns as a lane has sums of. */
template <typename T, typename S>
static constexpr int BLOCKS_BACK = (sums_of<T, S>::BY_COLUMN ? 24 : 16) / WIDTH<T>;

template <typename T, bool CENTRED, typename S>
__global__ void __launch_bounds__(32 * WIDTH<T>, BLOCKS_BACK<T, S>)
    staged_backward_kernel(const norm_call p, const staged s, const norm_grid grid)
{
    extern __shared__ uint4 staged_smem[];
    unsigned char *const smem = (unsigned char *)staged_smem;
    const int second = blockIdx.x >= grid.clusters[0], bytes = stage_bytes<T>(s, CENTRED);
    const norm_rows &m = p.matrix[second];
    const int64_t block = blockIdx.x - (second ? grid.clusters[0] : 0);
    const int64_t blocks = clusters_of(grid, second);
    const staged_lane<S> at;
    thread_sums<CENTRED, sums_of<T, S>::COUNT> sums;
    int stage = 0;

    fetch<T, CENTRED>(stage_of<T>(smem, s, CENTRED), m, s, staged_chunk(m.R, s, block));
    #pragma unroll 1
    for (int64_t i = block; i * s.rows < m.R; i += blocks, stage ^= 1) {
        const stage_of<T> now(smem + stage * bytes, s, CENTRED);
        const staged_chunk own(m.R, s, i);
        __syncthreads(); /* the other stage is free */
        fetch<T, CENTRED>(stage_of<T>(smem + (stage ^ 1) * bytes, s, CENTRED), m, s,
                          staged_chunk(m.R, s, i + blocks));
        cp_async_wait<1>();
        __syncthreads();
        if constexpr (sums_of<T, S>::BY_COLUMN) {
            add_columns<T, CENTRED>(now, s.N, own.there, &sums);
            __syncthreads(); /* dx replaces dy */
        }
        #pragma unroll 1
        for (int r = at.team; r < s.rows; r += s.teams) {
            const bool valid = r < own.there;
            const row_stats stats = {valid && CENTRED ? now.mean[r] : 0, valid ? now.rstd[r] : 0};
            const staged_row<T> row = {now.x + r * s.N, (const T *)m.w, now.dy + r * s.N,
                                       valid ? s.N : 0, stats};
            backward_row<T, CENTRED>(row, p.inv_N, at, &sums);
        }
        __syncthreads();
        stage_out((T *)m.dx + own.first * s.N, now.dy, own.there * s.N);
    }
    pdl_launch_dependents();
    cp_async_wait<0>();
    float *part = parts_of(p, grid, second, CENTRED ? 2 : 1) + block * s.N;
    const auto store_sums = [&](float *to, auto &x) {
        if constexpr (sums_of<T, S>::BY_COLUMN)
            store_columns(to, x, s.N);
        else
            store_teams(to, x, at, s.N, (float *)smem);
    };
    store_sums(part, sums.dw);
    if constexpr (CENTRED)
        store_sums(part + blocks * s.N, sums.db);
}

/* Blocks for all rows, or as many as the SMs have with `per_sm` of them each. */
static norm_grid staged_grid(struct context *on, const norm_call &p, const staged &s, int per_sm)
{
    const int64_t blocks = (int64_t)on->limits.sms * min(max(per_sm, 1), (int)MAX_BLOCKS);
    norm_layout l = {};
    l.teams = s.rows;
    l.rows = 1;
    return shared_grid(p, l, max(blocks, (int64_t)p.n));
}

template <typename T, bool CENTRED>
int staged_norm_back(struct context *on, const norm_call &p)
{
    const staged s = rows_at_once<T>(on, p, STAGE_BYTES);
    const size_t bytes = STAGES * stage_bytes<T>(s, CENTRED);
    norm_grid grid;

    CUDA(staged_start(s.N, [&](auto shape) -> int {
        const auto kernel = staged_backward_kernel<T, CENTRED, decltype(shape)>;
        int per_sm;
        CUDA(allow_smem(kernel, bytes));
        CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, s.threads, bytes));
        grid = staged_grid(on, p, s, per_sm);
        kernel<<<all_clusters(grid), s.threads, bytes, on->stream>>>(p, s, grid);
        return cudaGetLastError();
    }));
    return norm_add_parts<CENTRED>(on, p, grid);
}

/* ---- what it takes ---- */

template <typename T>
static size_t parts_at_most(struct context *on, const norm_call &p, bool centred)
{
    const staged s = rows_at_once<T>(on, p, STAGE_BYTES);
    return parts_bytes(p, staged_grid(on, p, s, MAX_BLOCKS), centred);
}

size_t staged_norm_work(struct context *on, const norm_call &p, size_t size, bool centred)
{
    return size == sizeof(float) ? parts_at_most<float>(on, p, centred)
                                 : parts_at_most<__nv_bfloat16>(on, p, centred);
}

template <typename T>
static size_t most_smem(struct context *on, const norm_call &p)
{
    return STAGES * stage_bytes<T>(rows_at_once<T>(on, p, STAGE_BYTES), true);
}

const char *staged_norm_declines(struct context *on, const norm_call &p, size_t size)
{
    if (p.N > STAGED_COLUMNS)
        return STAGED_TOO_LONG;
    const size_t bytes =
        size == sizeof(float) ? most_smem<float>(on, p) : most_smem<__nv_bfloat16>(on, p);
    return bytes > on->limits.smem ? STAGED_NO_SMEM : NULL;
}

#define EACH(T, CENTRED)                                                                           \
    template int staged_norm<T, CENTRED>(struct context *, const norm_call &);                     \
    template int staged_norm_back<T, CENTRED>(struct context *, const norm_call &);

NORM_INSTANCES(EACH)
