/* The ladder of rmsnorm, and of all three operations the first rung: the formulas, a block a row. */
#include "gpu/norm.cuh"
#include "common/ops/norm.h"

enum { PLAIN_THREADS = 256, COLUMNS = 32, DOWN = 16 };

/* The sum of x over the block, for every thread. */
static __device__ float block_sum(float x)
{
    __shared__ float of[PLAIN_THREADS / 32];
    float sum = 0;

    for (int d = 16; d; d /= 2)
        x += __shfl_xor_sync(~0u, x, d);
    __syncthreads(); /* nobody reads the sums before these any more */
    if (threadIdx.x % 32 == 0)
        of[threadIdx.x / 32] = x;
    __syncthreads();
    for (int i = 0; i < PLAIN_THREADS / 32; i++)
        sum += of[i];
    return sum;
}

/* Of the call's matrices one after the other: which one this block's row is of, and which row. */
static __device__ const norm_rows &row_of(const norm_call &p, int64_t *row)
{
    const bool second = blockIdx.x >= p.of[0].R;
    *row = blockIdx.x - (second ? p.of[0].R : 0);
    return p.of[second];
}

/* The squares are those of x - mean, once the mean is known: mean(x^2) - mean^2 would lose all
 * digits where rows are far from 0. */
template <typename T, bool CENTRED>
__global__ void plain_forward_kernel(const norm_call p)
{
    int64_t row;
    const norm_rows &m = row_of(p, &row);
    const T *x = (const T *)m.x + row * p.N, *w = (const T *)m.w, *b = (const T *)m.b;
    T *y = (T *)m.y + row * p.N;
    float sum = 0, squares = 0;
    row_stats r = {0, 0};

    if (CENTRED) {
        for (int n = threadIdx.x; n < p.N; n += PLAIN_THREADS)
            sum += load(x + n);
        r.mean = block_sum(sum) / p.N;
    }
    for (int n = threadIdx.x; n < p.N; n += PLAIN_THREADS) {
        const float d = deviation<CENTRED>(load(x + n), r);
        squares = fmaf(d, d, squares);
    }
    r.rstd = 1 / sqrtf(block_sum(squares) / p.N + p.eps);
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
    int64_t row;
    const norm_rows &m = row_of(p, &row);
    const T *x = (const T *)m.x + row * p.N, *w = (const T *)m.w;
    const T *dy = (const T *)m.dy + row * p.N;
    T *dx = (T *)m.dx + row * p.N;
    const row_stats r = {CENTRED ? m.mean[row] : 0, m.rstd[row]};
    float along = 0, level = 0;

    for (int n = threadIdx.x; n < p.N; n += PLAIN_THREADS) {
        const float g = load(w + n) * load(dy + n);
        along = fmaf(g, r.rstd * deviation<CENTRED>(load(x + n), r), along);
        level += g;
    }
    along = block_sum(along) / p.N;
    level = CENTRED ? block_sum(level) / p.N : 0;
    for (int n = threadIdx.x; n < p.N; n += PLAIN_THREADS) {
        const float xhat = r.rstd * deviation<CENTRED>(load(x + n), r);
        store(dx + n, r.rstd * (load(w + n) * load(dy + n) - level - xhat * along));
    }
}

/* DOWN threads share a column, each of which takes every DOWN-th row; then their sums are added
 * in order. */
template <typename T, bool CENTRED>
__global__ void columns_kernel(const norm_call p)
{
    __shared__ float2 of[DOWN][COLUMNS];
    const norm_rows &m = p.of[blockIdx.y];
    const T *x = (const T *)m.x, *dy = (const T *)m.dy;
    const int n = blockIdx.x * COLUMNS + threadIdx.x;
    float2 sum = make_float2(0, 0);

    for (int64_t row = threadIdx.y; n < p.N && row < m.R; row += DOWN) {
        const row_stats r = {CENTRED ? m.mean[row] : 0, m.rstd[row]};
        const float slope = load(dy + row * p.N + n);
        sum.x = fmaf(slope, r.rstd * deviation<CENTRED>(load(x + row * p.N + n), r), sum.x);
        sum.y += slope;
    }
    of[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || n >= p.N)
        return;
    for (int i = 1; i < DOWN; i++) {
        sum.x += of[i][threadIdx.x].x;
        sum.y += of[i][threadIdx.x].y;
    }
    m.dw[n] = sum.x;
    if (CENTRED)
        m.db[n] = sum.y;
}

template <typename T, bool CENTRED>
int plain_norm(const norm_call &p)
{
    plain_forward_kernel<T, CENTRED><<<all_rows(p), PLAIN_THREADS, 0, gpu_stream()>>>(p);
    return cudaGetLastError();
}

/* dw, and db if CENTRED. */
template <typename T, bool CENTRED>
int norm_columns(const norm_call &p)
{
    const dim3 grid((unsigned)ceil_div(p.N, COLUMNS), p.n), block(COLUMNS, DOWN);
    columns_kernel<T, CENTRED><<<grid, block, 0, gpu_stream()>>>(p);
    return cudaGetLastError();
}

template <typename T, bool CENTRED>
int plain_norm_back(const norm_call &p)
{
    plain_backward_kernel<T, CENTRED><<<all_rows(p), PLAIN_THREADS, 0, gpu_stream()>>>(p);
    CUDA(cudaGetLastError());
    return norm_columns<T, CENTRED>(p);
}

const char *plain_norm_declines(const norm_call &p, size_t)
{
    return all_rows(p) > INT32_MAX ? "more rows than a grid has blocks (2147483647)" : NULL;
}

#define EACH(T, CENTRED)                                                                           \
    template int plain_norm<T, CENTRED>(const norm_call &);                                        \
    template int plain_norm_back<T, CENTRED>(const norm_call &);                                   \
    template int norm_columns<T, CENTRED>(const norm_call &)

EACH(float, false);
EACH(float, true);
EACH(__nv_bfloat16, false);
EACH(__nv_bfloat16, true);

/* ---- rmsnorm ---- */

static const bool CENTRED = false;

static norm_call call_of(const struct frame *f)
{
    const struct rmsnorm *a = ARGS(f, rmsnorm), *d = GRADS(f, rmsnorm);
    norm_call p = {};

    p.n = 1;
    p.N = (int)DIM(f, 'N');
    p.eps = (float)f->real[NORM_EPS];
    p.work = (float *)f->work;
    norm_rows &m = p.of[0];
    m.R = DIM(f, 'R');
    m.x = a->x, m.w = a->w, m.y = a->y, m.rstd = (float *)a->rstd;
    m.dy = d->y, m.dx = d->x, m.dw = (float *)d->w;
    return p;
}

NORM_OPERATION(rmsnorm);
