#include "common/ops/softmax.h"
#include "gpu/device/cluster.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/mbarrier.cuh"
#include "gpu/row/softmax.cuh"

/* Backward is linear in dy and has y, so its rungs are forward's with one sum, and two rows to
 * hold.  Where all of a row is -inf, the sum is NaN, or where LOWEST stands for the largest, 0; its
 * y is NaN either way. */

enum {
    BLOCK = 256,
    LONG_BLOCK = 512,            /* of a row that no block holds */
    UNDER_WAY = 4,               /* vectors of a thread at a time where none are kept */
    WARP_VECTORS = 4 * 32,       /* that a warp holds */
    HELD = 8,                    /* that a thread keeps of x, ... */
    HELD_BACK = 4,               /* ... or of y and of dy each */
    MOST = 256,                  /* threads of a block that holds ... */
    MOST_BACK = 512,             /* ... so many vectors, both ways: */
    BLOCK_VECTORS = HELD * MOST, /* 32 KiB */
};

/* Numbers that come one by one want more registers than vectors.  The bounds of a block that has
 * the one or the other leave so many, and for vectors no more than let several blocks in. */
#define FEW_REGISTERS(threads) __launch_bounds__(threads, WHOLE_ROWS ? 3 : 2)
#define FEW_REGISTERS_BACK __launch_bounds__(WHOLE_ROWS ? 768 : MOST_BACK)

static float scale_of(const struct frame *f)
{
    return (float)f->real[SOFTMAX_SCALE];
}

/* ---- warp ---- */

/* Where a warp's rows are: `lanes` neighbouring lanes to each, which have ROWS of them. */
template <int ROWS>
struct warp_place {
    int64_t first;   /* this lane's first row; ... */
    int apart, lane; /* ... from one to the next; which of a row's lanes it is */

    __device__ __forceinline__ warp_place(int lanes)
    {
        const int64_t warp = (int64_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
        apart = div_pow2(32, lanes);
        lane = (int)threadIdx.x & (lanes - 1);
        first = warp * apart * ROWS + div_pow2((int)threadIdx.x % 32, lanes);
    }
};

/* A row belongs to neighbouring lanes of one warp, K vectors to each, in registers: each byte
 * is read once, and shuffles alone lead from lane to lane.  Lanes of short rows have several
 * rows in flight. */
template <typename T, bool WHOLE_ROWS, int K, int ROWS>
__global__ void FEW_REGISTERS(BLOCK)
    warp_forward_kernel(const T *x, T *y, int64_t R, int N, int lanes, float scale)
{
    const warp_place<ROWS> at(lanes);
    uint4 v[ROWS][K];

    #pragma unroll ROWS
    for (int i = 0; i < ROWS; i++) {
        const int64_t r = at.first + i * at.apart;
        take<WHOLE_ROWS>(v[i], x + r * N, r < R ? N : 0, 0, at.lane, lanes, -INFINITY);
    }
    #pragma unroll ROWS
    for (int i = 0; i < ROWS; i++) {
        const int64_t r = at.first + i * at.apart;
        const float top = lanes_max(largest<T>(v[i]), lanes);
        const float share = 1 / lanes_sum(powers<T>(v[i], top, scale, 0), lanes);
        put<WHOLE_ROWS, K>(y + r * N, r < R ? N : 0, 0, at.lane, lanes, [&](int k, int j) {
            return share * power(number<T>(v[i][k], j), top, scale);
        });
    }
}

template <typename T, bool WHOLE_ROWS, int K, int ROWS>
__global__ void __launch_bounds__(BLOCK)
    warp_backward_kernel(const T *y, const T *dy, T *dx, int64_t R, int N, int lanes, float scale)
{
    const warp_place<ROWS> at(lanes);
    uint4 v[ROWS][K], w[ROWS][K];

    #pragma unroll ROWS
    for (int i = 0; i < ROWS; i++) {
        const int64_t r = at.first + i * at.apart;
        take<WHOLE_ROWS>(v[i], y + r * N, r < R ? N : 0, 0, at.lane, lanes, 0);
        take<WHOLE_ROWS>(w[i], dy + r * N, r < R ? N : 0, 0, at.lane, lanes, 0);
    }
    #pragma unroll ROWS
    for (int i = 0; i < ROWS; i++) {
        const int64_t r = at.first + i * at.apart;
        const float along = lanes_sum(product<T>(v[i], w[i], 0), lanes);
        put<WHOLE_ROWS, K>(dx + r * N, r < R ? N : 0, 0, at.lane, lanes, [&](int k, int j) {
            return scale * number<T>(v[i][k], j) * (number<T>(w[i][k], j) - along);
        });
    }
}

/* The lanes that a row is for. */
template <typename T>
static int lanes_of(int64_t N)
{
    int lanes = 1;
    while (lanes < 32 && lanes < vectors_of<T>(N))
        lanes *= 2;
    return lanes;
}

/* Forward from x to y, or with dy from y to dx. */
template <typename T, bool WHOLE_ROWS, int K>
static int warp_start(const T *x, const T *dy, T *to, const struct frame *f)
{
    enum { ROWS = UNDER_WAY / K };
    const auto forward = warp_forward_kernel<T, WHOLE_ROWS, K, ROWS>;
    const auto backward = warp_backward_kernel<T, WHOLE_ROWS, K, ROWS>;
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    const int lanes = lanes_of<T>(N);
    const unsigned blocks = (unsigned)ceil_div(R, BLOCK / lanes * ROWS);
    const float scale = scale_of(f);

    if (dy)
        backward<<<blocks, BLOCK, 0, gpu_stream()>>>(x, dy, to, R, (int)N, lanes, scale);
    else
        forward<<<blocks, BLOCK, 0, gpu_stream()>>>(x, to, R, (int)N, lanes, scale * LOG2E);
    return cudaGetLastError();
}

template <typename T, bool WHOLE_ROWS>
static int warp(const T *x, const T *dy, T *to, const struct frame *f)
{
    const int64_t N = DIM(f, 'N'), K = ceil_div(vectors_of<T>(N), lanes_of<T>(N));
    const auto start = K <= 1   ? warp_start<T, WHOLE_ROWS, 1>
                       : K <= 2 ? warp_start<T, WHOLE_ROWS, 2>
                                : warp_start<T, WHOLE_ROWS, 4>;
    return start(x, dy, to, f);
}

template <typename T>
static int warp_forward(const struct frame *f)
{
    const struct softmax *a = ARGS(f, softmax);
    const auto start = whole<T>(DIM(f, 'N')) ? warp<T, true> : warp<T, false>;
    return start((const T *)a->x, NULL, (T *)a->y, f);
}

template <typename T>
static int warp_backward(const struct frame *f)
{
    const struct softmax *a = ARGS(f, softmax), *g = GRADS(f, softmax);
    const auto start = whole<T>(DIM(f, 'N')) ? warp<T, true> : warp<T, false>;
    return start((const T *)a->y, (const T *)g->y, (T *)g->x, f);
}

template <typename T>
static const char *warp_declines(const struct frame *f)
{
    return vectors_of<T>(DIM(f, 'N')) > WARP_VECTORS
               ? "rows beyond 2 KiB, more than a warp keeps in registers"
               : NULL;
}

/* ---- block ---- */

/* A block a row, all of it in the block's registers: each byte is read once. */
template <typename T, bool WHOLE_ROWS>
__global__ void FEW_REGISTERS(MOST) block_forward_kernel(const T *x, T *y, int N, float scale)
{
    __shared__ float room[64];
    const int64_t row = (int64_t)blockIdx.x * N;
    const int i = threadIdx.x, threads = blockDim.x;
    uint4 v[HELD];

    take<WHOLE_ROWS>(v, x + row, N, 0, i, threads, -INFINITY);
    const float top = block_max(largest<T>(v), room);
    const float share = 1 / block_sum(powers<T>(v, top, scale, 0), room + 32);
    put<WHOLE_ROWS, HELD>(y + row, N, 0, i, threads, [&](int k, int j) {
        return share * power(number<T>(v[k], j), top, scale);
    });
}

template <typename T, bool WHOLE_ROWS>
__global__ void FEW_REGISTERS_BACK block_backward_kernel(const T *y, const T *dy, T *dx, int N,
                                                         float scale)
{
    __shared__ float room[32];
    const int64_t row = (int64_t)blockIdx.x * N;
    const int i = threadIdx.x, threads = blockDim.x;
    uint4 v[HELD_BACK], w[HELD_BACK];

    take<WHOLE_ROWS>(v, y + row, N, 0, i, threads, 0);
    take<WHOLE_ROWS>(w, dy + row, N, 0, i, threads, 0);
    const float along = block_sum(product<T>(v, w, 0), room);
    put<WHOLE_ROWS, HELD_BACK>(dx + row, N, 0, i, threads, [&](int k, int j) {
        return scale * number<T>(v[k], j) * (number<T>(w[k], j) - along);
    });
}

template <typename T>
static int block_forward(const struct frame *f)
{
    const struct softmax *a = ARGS(f, softmax);
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    const auto kernel =
        whole<T>(N) ? block_forward_kernel<T, true> : block_forward_kernel<T, false>;
    const unsigned threads = threads_for(vectors_of<T>(N), HELD);
    kernel<<<R, threads, 0, gpu_stream()>>>((const T *)a->x, (T *)a->y, (int)N,
                                            scale_of(f) * LOG2E);
    return cudaGetLastError();
}

template <typename T>
static int block_backward(const struct frame *f)
{
    const struct softmax *a = ARGS(f, softmax), *g = GRADS(f, softmax);
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    const auto kernel =
        whole<T>(N) ? block_backward_kernel<T, true> : block_backward_kernel<T, false>;
    const unsigned threads = threads_for(vectors_of<T>(N), HELD_BACK);
    kernel<<<R, threads, 0, gpu_stream()>>>((const T *)a->y, (const T *)g->y, (T *)g->x, (int)N,
                                            scale_of(f));
    return cudaGetLastError();
}

template <typename T>
static const char *block_declines(const struct frame *f)
{
    return vectors_of<T>(DIM(f, 'N')) > BLOCK_VECTORS
               ? "rows beyond 32 KiB, more than a block keeps in registers"
               : NULL;
}

/* ---- cluster ---- */

/* A row over the blocks of a cluster, in their registers: long rows, too, are read once, and
 * several blocks share an SM, one loading while another writes.  Each block posts what
 * it has found to all, and each sums that up in the same order. */
struct shared_row {
    float4 found[CLUSTER_MAX];
    uint64_t mbar;
};

/* First of all. */
static __device__ __forceinline__ void open_row(shared_row *s, int cluster)
{
    if (threadIdx.x == 0) {
        mbarrier_init(&s->mbar);
        mbarrier_arrive_expect_tx(&s->mbar, cluster * (int)sizeof(float4));
    }
    cluster_arrive();
}

/* What this block has found to all blocks; when it returns, what all have is in s->found. */
static __device__ __forceinline__ void share_row(shared_row *s, int cluster, float x, float y)
{
    cluster_wait(); /* all mbars are open */
    if ((int)threadIdx.x < cluster)
        st_async(&s->found[cluster_rank(cluster)], &s->mbar, threadIdx.x, make_float4(x, y, 0, 0));
    mbarrier_wait(&s->mbar, 0);
}

template <typename T, bool WHOLE_ROWS>
__global__ void FEW_REGISTERS(MOST)
    cluster_forward_kernel(const T *x, T *y, int N, int cluster, float scale)
{
    __shared__ float room[64];
    __shared__ shared_row s;
    const int64_t row = (int64_t)cluster_number(cluster) * N;
    const int i = threadIdx.x, threads = blockDim.x;
    const int first = cluster_rank(cluster) * threads * HELD;
    uint4 v[HELD];
    running all;

    open_row(&s, cluster);
    take<WHOLE_ROWS>(v, x + row, N, first, i, threads, -INFINITY);
    const float mine =
        max_nan(block_max(largest<T>(v), room), LOWEST); /* a block may have nothing */
    share_row(&s, cluster, mine, block_sum(powers<T>(v, mine, scale, 0), room + 32));

    for (int b = 0; b < cluster; b++)
        all.top = max_nan(all.top, s.found[b].x);
    for (int b = 0; b < cluster; b++)
        all.sum += s.found[b].y * power(s.found[b].x, all.top, scale);
    const float share = 1 / all.sum;
    put<WHOLE_ROWS, HELD>(y + row, N, first, i, threads, [&](int k, int j) {
        return share * power(number<T>(v[k], j), all.top, scale);
    });
}

template <typename T, bool WHOLE_ROWS>
__global__ void FEW_REGISTERS_BACK cluster_backward_kernel(const T *y, const T *dy, T *dx, int N,
                                                           int cluster, float scale)
{
    __shared__ float room[32];
    __shared__ shared_row s;
    const int64_t row = (int64_t)cluster_number(cluster) * N;
    const int i = threadIdx.x, threads = blockDim.x;
    const int first = cluster_rank(cluster) * threads * HELD_BACK;
    uint4 v[HELD_BACK], w[HELD_BACK];
    float along = 0;

    open_row(&s, cluster);
    take<WHOLE_ROWS>(v, y + row, N, first, i, threads, 0);
    take<WHOLE_ROWS>(w, dy + row, N, first, i, threads, 0);
    share_row(&s, cluster, block_sum(product<T>(v, w, 0), room), 0);

    for (int b = 0; b < cluster; b++)
        along += s.found[b].x;
    put<WHOLE_ROWS, HELD_BACK>(dx + row, N, first, i, threads, [&](int k, int j) {
        return scale * number<T>(v[k], j) * (number<T>(w[k], j) - along);
    });
}

/* Blocks of 256 threads, more of them for longer rows, and only then larger ones. */
static int cluster_for(int64_t vectors, int held)
{
    int cluster = 2;
    while (cluster < CLUSTER_MAX && cluster * BLOCK * held < vectors)
        cluster *= 2;
    return cluster;
}

template <typename T>
static int cluster_forward(const struct frame *f)
{
    const struct softmax *a = ARGS(f, softmax);
    const int64_t N = DIM(f, 'N'), vectors = vectors_of<T>(N);
    const int cluster = cluster_for(vectors, HELD);
    cluster_launch l;

    cluster_launch_init(&l, DIM(f, 'R'), cluster, threads_for(vectors, cluster * HELD), 0);
    return cudaLaunchKernelEx(
        &l.config, whole<T>(N) ? cluster_forward_kernel<T, true> : cluster_forward_kernel<T, false>,
        (const T *)a->x, (T *)a->y, (int)N, cluster, scale_of(f) * LOG2E);
}

template <typename T>
static int cluster_backward(const struct frame *f)
{
    const struct softmax *a = ARGS(f, softmax), *g = GRADS(f, softmax);
    const int64_t N = DIM(f, 'N'), vectors = vectors_of<T>(N);
    const int cluster = cluster_for(vectors, HELD_BACK);
    cluster_launch l;

    cluster_launch_init(&l, DIM(f, 'R'), cluster, threads_for(vectors, cluster * HELD_BACK), 0);
    return cudaLaunchKernelEx(
        &l.config,
        whole<T>(N) ? cluster_backward_kernel<T, true> : cluster_backward_kernel<T, false>,
        (const T *)a->y, (const T *)g->y, (T *)g->x, (int)N, cluster, scale_of(f));
}

template <typename T>
static const char *cluster_declines(const struct frame *f)
{
    if (cluster_max() < CLUSTER_MAX)
        return "a device without clusters of blocks";
    if (DIM(f, 'R') > 0x7fffffff / CLUSTER_MAX)
        return "more rows than a grid has clusters (268435455)";
    return vectors_of<T>(DIM(f, 'N')) > CLUSTER_MAX * BLOCK_VECTORS
               ? "rows beyond 256 KiB, more than a cluster keeps in registers"
               : NULL;
}

/* ---- online ---- */

/* A block a row, of any length: the largest and the sum relative to it run along, sixteen bytes
 * at a time, so that a row is read once for them and once to be written. */
template <typename T, bool WHOLE_ROWS>
__global__ void __launch_bounds__(LONG_BLOCK, WHOLE_ROWS ? 2 : 1)
    online_forward_kernel(const T *x, T *y, int N, float scale)
{
    __shared__ float room[64];
    const int64_t row = (int64_t)blockIdx.x * N;
    const int i = threadIdx.x, threads = blockDim.x;
    running all;

    for (int first = 0; first * vector_of<T>::SIZE < N; first += UNDER_WAY * threads) {
        uint4 v[UNDER_WAY];
        take<WHOLE_ROWS>(v, x + row, N, first, i, threads, -INFINITY);
        include<T>(all, v, scale);
    }
    block_running(all, scale, room);
    const float share = 1 / all.sum;
    for (int first = 0; first * vector_of<T>::SIZE < N; first += UNDER_WAY * threads) {
        uint4 v[UNDER_WAY];
        take<WHOLE_ROWS>(v, x + row, N, first, i, threads, 0);
        put<WHOLE_ROWS, UNDER_WAY>(y + row, N, first, i, threads, [&](int k, int j) {
            return share * power(number<T>(v[k], j), all.top, scale);
        });
    }
}

template <typename T, bool WHOLE_ROWS>
__global__ void __launch_bounds__(LONG_BLOCK, WHOLE_ROWS ? 2 : 1)
    online_backward_kernel(const T *y, const T *dy, T *dx, int N, float scale)
{
    enum { PAIRS = UNDER_WAY / 2 };
    __shared__ float room[32];
    const int64_t row = (int64_t)blockIdx.x * N;
    const int i = threadIdx.x, threads = blockDim.x;
    float sum = 0;

    for (int first = 0; first * vector_of<T>::SIZE < N; first += PAIRS * threads) {
        uint4 v[PAIRS], w[PAIRS];
        take<WHOLE_ROWS>(v, y + row, N, first, i, threads, 0);
        take<WHOLE_ROWS>(w, dy + row, N, first, i, threads, 0);
        sum = product<T>(v, w, sum);
    }
    const float along = block_sum(sum, room);
    for (int first = 0; first * vector_of<T>::SIZE < N; first += PAIRS * threads) {
        uint4 v[PAIRS], w[PAIRS];
        take<WHOLE_ROWS>(v, y + row, N, first, i, threads, 0);
        take<WHOLE_ROWS>(w, dy + row, N, first, i, threads, 0);
        put<WHOLE_ROWS, PAIRS>(dx + row, N, first, i, threads, [&](int k, int j) {
            return scale * number<T>(v[k], j) * (number<T>(w[k], j) - along);
        });
    }
}

static unsigned online_threads(int64_t vectors)
{
    return min(threads_for(vectors, UNDER_WAY), (unsigned)LONG_BLOCK);
}

template <typename T>
static int online_forward(const struct frame *f)
{
    const struct softmax *a = ARGS(f, softmax);
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    const auto kernel =
        whole<T>(N) ? online_forward_kernel<T, true> : online_forward_kernel<T, false>;
    kernel<<<R, online_threads(vectors_of<T>(N)), 0, gpu_stream()>>>((const T *)a->x, (T *)a->y,
                                                                     (int)N, scale_of(f) * LOG2E);
    return cudaGetLastError();
}

template <typename T>
static int online_backward(const struct frame *f)
{
    const struct softmax *a = ARGS(f, softmax), *g = GRADS(f, softmax);
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    const auto kernel =
        whole<T>(N) ? online_backward_kernel<T, true> : online_backward_kernel<T, false>;
    kernel<<<R, online_threads(vectors_of<T>(N)), 0, gpu_stream()>>>(
        (const T *)a->y, (const T *)g->y, (T *)g->x, (int)N, scale_of(f));
    return cudaGetLastError();
}

/* ---- two_pass ---- */

/* A block a row, plainly: the row is read for its largest number, again for the sum, and once
 * more to be written. */
template <typename T>
__global__ void two_pass_forward_kernel(const T *x, T *y, int N, float scale)
{
    __shared__ float room[64];
    float most = -INFINITY, sum = 0;

    x += (int64_t)blockIdx.x * N;
    y += (int64_t)blockIdx.x * N;
    for (int j = threadIdx.x; j < N; j += BLOCK)
        most = max_nan(most, load(x + j));
    most = block_max(most, room);
    for (int j = threadIdx.x; j < N; j += BLOCK)
        sum += power(load(x + j), most, scale);
    sum = block_sum(sum, room + 32);
    for (int j = threadIdx.x; j < N; j += BLOCK)
        store(y + j, power(load(x + j), most, scale) / sum);
}

template <typename T>
__global__ void two_pass_backward_kernel(const T *y, const T *dy, T *dx, int N, float scale)
{
    __shared__ float room[32];
    float along = 0;

    y += (int64_t)blockIdx.x * N;
    dy += (int64_t)blockIdx.x * N;
    dx += (int64_t)blockIdx.x * N;
    for (int j = threadIdx.x; j < N; j += BLOCK)
        along += load(y + j) * load(dy + j);
    along = block_sum(along, room);
    for (int j = threadIdx.x; j < N; j += BLOCK)
        store(dx + j, scale * load(y + j) * (load(dy + j) - along));
}

template <typename T>
static int two_pass_forward(const struct frame *f)
{
    const struct softmax *a = ARGS(f, softmax);
    two_pass_forward_kernel<<<DIM(f, 'R'), BLOCK, 0, gpu_stream()>>>(
        (const T *)a->x, (T *)a->y, (int)DIM(f, 'N'), scale_of(f) * LOG2E);
    return cudaGetLastError();
}

template <typename T>
static int two_pass_backward(const struct frame *f)
{
    const struct softmax *a = ARGS(f, softmax), *g = GRADS(f, softmax);
    two_pass_backward_kernel<<<DIM(f, 'R'), BLOCK, 0, gpu_stream()>>>(
        (const T *)a->y, (const T *)g->y, (T *)g->x, (int)DIM(f, 'N'), scale_of(f));
    return cudaGetLastError();
}

/* ---- the ladder ---- */

#define APPROXIMATES "ex2.approx"
#define EACH(bits, T)                                                                              \
    RUNG(bits, T, warp, "a row in the registers of one warp or less", warp_declines<T>,            \
         APPROXIMATES);                                                                            \
    RUNG(bits, T, block, "a row in the registers of a block", block_declines<T>, APPROXIMATES);    \
    RUNG(bits, T, cluster, "a row in the registers of a cluster of blocks", cluster_declines<T>,   \
         APPROXIMATES);                                                                            \
    RUNG(bits, T, online, "largest and sum in one pass, rows of any length", NULL, APPROXIMATES);  \
    RUNG(bits, T, two_pass, "a block a row, which is read for each step", NULL, APPROXIMATES);     \
    GPU_KERNEL_LIST(softmax, bits, &warp##bits, &block##bits, &cluster##bits, &online##bits,       \
                    &two_pass##bits)

EACH(32, float);
EACH(16, __nv_bfloat16);
