/* The kernels of rmsnorm, and the code of kernel `plain` for rmsnorm, layernorm and qk_norm: one
 * block per row.  dw and db are sums over rows: each block sums some rows, and a second launch adds
 * the partial sums of the blocks. */
#include "gpu/device/pdl.cuh"
#include "gpu/device/reduce.cuh"
#include "gpu/row/norm_ladder.cuh"

enum { PLAIN_THREADS = 256, ADDING = 32, DOWN = 32 };

/* Returns the matrix of this block's row, and sets the row.  The first blocks have the rows of
 * matrix 0, the next ones those of matrix 1. */
static __device__ const norm_rows &row_of(const norm_call &p, int64_t *row)
{
    const bool second = blockIdx.x >= p.matrix[0].R;
    *row = blockIdx.x - (second ? p.matrix[0].R : 0);
    return p.matrix[second];
}

/* It computes the mean first and then the squares of x - mean: mean(x^2) - mean^2 would lose all
 * digits if a row is far from 0. */
template <typename T, bool CENTRED>
__global__ void plain_forward_kernel(const norm_call p)
{
    __shared__ float smem[64];
    int64_t row;
    const norm_rows &m = row_of(p, &row);
    const T *x = (const T *)m.x + row * p.N, *w = (const T *)m.w, *b = (const T *)m.b;
    T *y = (T *)m.y + row * p.N;
    float sum = 0, squares = 0;
    row_stats r = {0, 0};

    if (CENTRED) {
        for (int n = threadIdx.x; n < p.N; n += PLAIN_THREADS)
            sum += load(x + n);
        r.mean = block_sum(sum, smem) / p.N;
    }
    for (int n = threadIdx.x; n < p.N; n += PLAIN_THREADS) {
        const float d = deviation<CENTRED>(load(x + n), r);
        squares = fmaf(d, d, squares);
    }
    r.rstd = 1 / sqrtf(block_sum(squares, smem + 32) / p.N + p.eps);
    for (int n = threadIdx.x; n < p.N; n += PLAIN_THREADS)
        store(y + n, load(w + n) * (r.rstd * deviation<CENTRED>(load(x + n), r)) +
                         (CENTRED ? load(b + n) : 0));
    if (threadIdx.x == 0) {
        m.rstd[row] = r.rstd;
        if (CENTRED)
            m.mean[row] = r.mean;
    }
}

template <typename T, bool CENTRED>
__global__ void plain_backward_kernel(const norm_call p)
{
    __shared__ float smem[64];
    int64_t row;
    const norm_rows &m = row_of(p, &row);
    const T *x = (const T *)m.x + row * p.N, *w = (const T *)m.w;
    const T *dy = (const T *)m.dy + row * p.N;
    T *dx = (T *)m.dx + row * p.N;
    const row_stats r = {CENTRED ? m.mean[row] : 0, m.rstd[row]};
    float dot = 0, mean_g = 0;

    for (int n = threadIdx.x; n < p.N; n += PLAIN_THREADS) {
        const float g = load(w + n) * load(dy + n);
        dot = fmaf(g, r.rstd * deviation<CENTRED>(load(x + n), r), dot);
        mean_g += g;
    }
    dot = block_sum(dot, smem) / p.N;
    mean_g = CENTRED ? block_sum(mean_g, smem + 32) / p.N : 0;
    for (int n = threadIdx.x; n < p.N; n += PLAIN_THREADS) {
        const float xhat = r.rstd * deviation<CENTRED>(load(x + n), r);
        /* w dy is rounded before mean_g is subtracted, so that dx is 0 in a row of one element */
        store(dx + n, r.rstd * (__fmul_rn(load(w + n), load(dy + n)) - mean_g - xhat * dot));
    }
}

/* ---- sums of columns ---- */

enum { COLUMNS_THREADS = 256, COLUMNS_BLOCKS = 4 /* per SM */ };

/* A block has a strip of columns, one vector per thread, and its teams loop over the rows.  A strip
 * has the columns that a block of a cluster would have, but no clusters are launched. */
static norm_layout layout_columns(struct context *on, int64_t N, size_t size)
{
    norm_layout l = layout_of(on, min(N, (int64_t)(512 / size)), size, 1, 32);
    l.threads = COLUMNS_THREADS;
    l.teams = l.threads / l.lanes;
    l.span = l.lanes;
    l.cluster = (int)ceil_div(N, l.span * (16 / size));
    return l;
}

static norm_grid columns_grid(struct context *on, const norm_call &p, const norm_layout &l)
{
    const int64_t blocks = (int64_t)on->limits.sms * COLUMNS_BLOCKS;
    return shared_grid(p, l, max(blocks / l.cluster, (int64_t)p.n));
}

template <typename T, bool CENTRED, bool ALIGNED>
__global__ void __launch_bounds__(COLUMNS_THREADS)
    columns_kernel(const norm_call p, const norm_layout l, const norm_grid grid)
{
    enum { V = WIDTH<T> };
    __shared__ float smem[COLUMNS_THREADS * V];
    const member me = member_of<ALIGNED, 1>(p.N, V, l, grid);
    const norm_rows &m = p.matrix[me.matrix];
    const int ahead = ALIGNED ? 0 : me.team_in_block; /* the lanes of a warp have as many steps */
    column_sums<T, CENTRED, 1> sums = {};

    #pragma unroll 2
    for (int64_t row = me.team; row - ahead < m.R; row += me.teams) {
        vec<T> x[1], dy[1];
        load_part<ALIGNED>(x, (const T *)m.x + row * p.N, me, row < m.R);
        load_part<ALIGNED>(dy, (const T *)m.dy + row * p.N, me, row < m.R);
        const row_stats stats = get_stats<CENTRED>(m, row);
        #pragma unroll 8
        for (int j = 0; j < V; j++)
            sums.add(0, j, dy[0][j], stats.rstd * deviation<CENTRED>(x[0][j], stats));
    }
    pdl_launch_dependents();
    store_parts(p, grid, sums, me, smem);
}

/* Adds dw or db of ADDING columns: DOWN threads per column, each of which adds every DOWN-th
 * part. */
template <bool CENTRED>
__global__ void __launch_bounds__(ADDING *DOWN)
    add_parts_kernel(const norm_call p, const norm_grid grid, int blocks)
{
    enum { SUMS = CENTRED ? 2 : 1 };
    __shared__ float partial[DOWN][ADDING];
    const int which = (int)blockIdx.x / blocks, matrix = which / SUMS;
    const int i = (int)threadIdx.x % ADDING, down = (int)threadIdx.x / ADDING;
    const int n = (int)blockIdx.x % blocks * ADDING + i;
    const int64_t num_clusters = clusters_of(grid, matrix);
    const float *parts = parts_of(p, grid, matrix, SUMS) + which % SUMS * num_clusters * p.N + n;
    float sum = 0;

    pdl_wait();
    #pragma unroll 8
    for (int64_t cluster_index = down; n < p.N && cluster_index < num_clusters;
         cluster_index += DOWN)
        sum += parts[cluster_index * p.N];
    partial[down][i] = sum;
    __syncthreads();
    if (down || n >= p.N)
        return;
    for (int d = 1; d < DOWN; d++)
        sum += partial[d][i];
    (which % SUMS ? p.matrix[matrix].db : p.matrix[matrix].dw)[n] = sum;
}

template <bool CENTRED>
int norm_add_parts(struct context *on, const norm_call &p, const norm_grid &grid)
{
    const int blocks = (int)ceil_div(p.N, ADDING);
    return launch_pdl(on, add_parts_kernel<CENTRED>, blocks * (CENTRED ? 2 : 1) * p.n,
                      ADDING * DOWN, 0, p, grid, blocks);
}

template <typename T, bool CENTRED>
int norm_columns(struct context *on, const norm_call &p)
{
    const norm_layout l = layout_columns(on, p.N, sizeof(T));
    const norm_grid grid = columns_grid(on, p, l);
    auto kernel =
        p.N % WIDTH<T> ? columns_kernel<T, CENTRED, false> : columns_kernel<T, CENTRED, true>;
    kernel<<<all_clusters(grid) * l.cluster, l.threads, 0, on->stream>>>(p, l, grid);
    CUDA(cudaGetLastError());
    return norm_add_parts<CENTRED>(on, p, grid);
}

size_t norm_columns_work(struct context *on, const norm_call &p, size_t size, bool centred)
{
    return parts_bytes(p, columns_grid(on, p, layout_columns(on, p.N, size)), centred);
}

template int norm_add_parts<false>(struct context *, const norm_call &, const norm_grid &);
template int norm_add_parts<true>(struct context *, const norm_call &, const norm_grid &);

/* ---- launches ---- */

template <typename T, bool CENTRED>
int plain_norm(struct context *on, const norm_call &p)
{
    plain_forward_kernel<T, CENTRED><<<all_rows(p), PLAIN_THREADS, 0, on->stream>>>(p);
    return cudaGetLastError();
}

template <typename T, bool CENTRED>
int plain_norm_back(struct context *on, const norm_call &p)
{
    plain_backward_kernel<T, CENTRED><<<all_rows(p), PLAIN_THREADS, 0, on->stream>>>(p);
    CUDA(cudaGetLastError());
    return norm_columns<T, CENTRED>(on, p);
}

const char *plain_norm_declines(struct context *, const norm_call &p, size_t)
{
    return all_rows(p) > INT32_MAX ? "more rows than a grid has blocks (2147483647)" : NULL;
}

#define EACH(T, CENTRED)                                                                           \
    template int plain_norm<T, CENTRED>(struct context *, const norm_call &);                      \
    template int plain_norm_back<T, CENTRED>(struct context *, const norm_call &);                 \
    template int norm_columns<T, CENTRED>(struct context *, const norm_call &);

NORM_INSTANCES(EACH)

/* ---- rmsnorm ---- */

static const bool CENTRED = false;

static norm_call call_of(const struct call *f)
{
    return one_matrix(f, ARGS(f, rmsnorm), GRADS(f, rmsnorm));
}

NORM_OPERATION(rmsnorm);
