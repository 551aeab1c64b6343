/* y = e^(scale x) / sum of e^(scale x) over each row of x [R,N].  Backward dx = scale y (dy - dot),
 * dot = <y,dy>.
 *
 * staged copies many short rows to shared memory at once; warp, block and cluster keep a row in the
 * registers of a warp or part of it, of a block, or of a cluster of blocks; online and two_pass have
 * one block per row and read it more than once.
 *
 * Backward is linear in dy and reads y.  So each kernel has a backward of the same structure, with
 * one sum and two rows.  If a whole row is -inf, the sum is NaN, or 0 if the maximum is LOWEST
 * instead of -inf; y is NaN in both cases. */
#include "common/ops/softmax.h"
#include "gpu/device/cluster.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/mbarrier.cuh"
#include "gpu/device/staged.cuh"
#include "gpu/row/softmax.cuh"

enum {
    BLOCK = 256,
    LONG_BLOCK = 512,                   /* threads of kernel `online`, for rows of any length */
    IN_FLIGHT = 4,                      /* vectors that a thread has in flight */
    WARP_VECTORS = 4 * 32,              /* vectors of a row that a warp keeps */
    HELD = 8,                           /* forward: vectors of x that a thread keeps */
    HELD_BACK = 4,                      /* backward: vectors of y, and as many of dy */
    MAX_THREADS = 256,                  /* forward: threads of a block that keeps a row */
    MAX_THREADS_BACK = 512,             /* backward; BLOCK_VECTORS is the same */
    BLOCK_VECTORS = HELD * MAX_THREADS, /* vectors of a row that a block keeps: 32 KiB */
};

/* Rows that are not whole need more registers, and these __launch_bounds__ allow more of them.  With
 * whole rows the bounds are tighter, so that several blocks are resident per SM. */
#define FEW_REGISTERS(threads) __launch_bounds__(threads, WHOLE_ROWS ? 3 : 2)
#define FEW_REGISTERS_BACK __launch_bounds__(WHOLE_ROWS ? 768 : MAX_THREADS_BACK)

OF_CALL(float, scale_of, (float)f->real[SOFTMAX_SCALE])

/* ---- staged ---- */

/* The bytes of x, or of y and of dy, that a block has in shared memory. */
enum { STAGED_BYTES = 16 << 10 };

/* Each block copies its rows to shared memory, its teams replace them, and it copies them back. */
template <typename T, typename S>
__global__ void STAGED_BOUNDS(T)
    staged_forward_kernel(const T *x, T *y, int64_t R, const staged s, float scale)
{
    extern __shared__ uint4 staged_smem[];
    const staged_chunk own(R, s, blockIdx.x);
    const staged_lane<S> at;
    T *rows = (T *)staged_smem;

    stage_in(rows, x + own.first * s.N, own.there * s.N);
    stage_ready();
    #pragma unroll 1
    for (int r = at.team; r < s.rows; r += s.teams) {
        const int n = r < own.there ? s.N : 0;
        float e[S::K], top = -INFINITY, sum = 0;
        at.load_row(e, rows + r * s.N, n, -INFINITY);
        #pragma unroll
        for (int k = 0; k < S::K; k++)
            top = max_nan(top, e[k]);
        top = warp_max<S::LANES>(top);
        #pragma unroll
        for (int k = 0; k < S::K; k++) {
            e[k] = power(e[k], top, scale);
            sum += e[k];
        }
        const float inv_sum = 1 / warp_sum<S::LANES>(sum);
        at.store_row(rows + r * s.N, n, [&](int k) { return inv_sum * e[k]; });
    }
    __syncthreads();
    stage_out(y + own.first * s.N, rows, own.there * s.N);
}

template <typename T, typename S>
__global__ void STAGED_BOUNDS(T)
    staged_backward_kernel(const T *y, const T *dy, T *dx, int64_t R, const staged s, float scale)
{
    extern __shared__ uint4 staged_smem[];
    const staged_chunk own(R, s, blockIdx.x);
    const staged_lane<S> at;
    T *ys = (T *)staged_smem, *rows = ys + s.elements();

    stage_in(ys, y + own.first * s.N, own.there * s.N);
    stage_in(rows, dy + own.first * s.N, own.there * s.N);
    stage_ready();
    #pragma unroll 1
    for (int r = at.team; r < s.rows; r += s.teams) {
        const int n = r < own.there ? s.N : 0;
        T *const dy_row = rows + r * s.N;
        const staged_columns<S, T> v(at, ys + r * s.N, n), w(at, dy_row, n);
        float dot = 0;
        #pragma unroll
        for (int k = 0; k < S::K; k++)
            dot = fmaf(v[k], w[k], dot);
        dot = warp_sum<S::LANES>(dot);
        at.store_row(dy_row, n, [&](int k) { return scale * v[k] * (w[k] - dot); });
    }
    __syncthreads();
    stage_out(dx + own.first * s.N, rows, own.there * s.N);
}

template <typename T>
static staged staged_of(const struct call *f)
{
    return staged_rows<T>(DIM(f, 'R'), DIM(f, 'N'), STAGED_BYTES, gpu_limits(f)->sms);
}

template <typename T>
static size_t staged_smem_bytes(const struct call *f, enum pass p)
{
    return (p == BACKWARD ? 2 : 1) * staged_of<T>(f).elements() * sizeof(T);
}

template <typename T>
static int staged_forward(const struct call *f)
{
    const struct softmax *a = ARGS(f, softmax);
    const staged s = staged_of<T>(f);
    const size_t bytes = staged_smem_bytes<T>(f, FORWARD);
    const int64_t R = DIM(f, 'R');

    return staged_start(s.N, [&](auto shape) -> int {
        const auto kernel = staged_forward_kernel<T, decltype(shape)>;
        CUDA(allow_smem(kernel, bytes));
        kernel<<<ceil_div(R, s.rows), s.threads, bytes, gpu_stream(f)>>>((const T *)a->x, (T *)a->y,
                                                                         R, s, scale_of(f) * LOG2E);
        return cudaGetLastError();
    });
}

template <typename T>
static int staged_backward(const struct call *f)
{
    const struct softmax *a = ARGS(f, softmax), *g = GRADS(f, softmax);
    const staged s = staged_of<T>(f);
    const size_t bytes = staged_smem_bytes<T>(f, BACKWARD);
    const int64_t R = DIM(f, 'R');

    return staged_start(s.N, [&](auto shape) -> int {
        const auto kernel = staged_backward_kernel<T, decltype(shape)>;
        CUDA(allow_smem(kernel, bytes));
        kernel<<<ceil_div(R, s.rows), s.threads, bytes, gpu_stream(f)>>>(
            (const T *)a->y, (const T *)g->y, (T *)g->x, R, s, scale_of(f));
        return cudaGetLastError();
    });
}

template <typename T>
static const char *staged_declines(const struct call *f)
{
    if (DIM(f, 'N') > STAGED_COLUMNS)
        return STAGED_TOO_LONG;
    return staged_smem_bytes<T>(f, BACKWARD) > gpu_limits(f)->smem ? STAGED_NO_SMEM : NULL;
}

template <typename T>
static int staged_yields(const struct call *f)
{
    return staged_is_slower<T>(DIM(f, 'N'));
}

/* ---- warp ---- */

/* The rows of a warp: each group of `lanes` neighbouring lanes has ROWS of them. */
template <int ROWS>
struct warp_rows {
    int64_t first;    /* this lane's first row */
    int stride, lane; /* the stride between its rows; its index in its group */

    __device__ __forceinline__ warp_rows(int lanes)
    {
        const int64_t warp = (int64_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
        stride = div_pow2(32, lanes);
        lane = (int)threadIdx.x & (lanes - 1);
        first = warp * stride * ROWS + div_pow2((int)threadIdx.x % 32, lanes);
    }
};

/* Neighbouring lanes of one warp hold a row in registers, K vectors each.  Each byte is read once,
 * and lanes exchange data by shuffles only.  If rows are short, a lane has several in flight. */
template <typename T, bool WHOLE_ROWS, int K, int ROWS>
__global__ void FEW_REGISTERS(BLOCK)
    warp_forward_kernel(const T *x, T *y, int64_t R, int N, int lanes, float scale)
{
    const warp_rows<ROWS> at(lanes);
    vec<T> v[ROWS][K];

    #pragma unroll ROWS
    for (int i = 0; i < ROWS; i++) {
        const int64_t r = at.first + i * at.stride;
        load_vectors<WHOLE_ROWS>(v[i], x + r * N, r < R ? N : 0, 0, at.lane, lanes, -INFINITY);
    }
    #pragma unroll ROWS
    for (int i = 0; i < ROWS; i++) {
        const int64_t r = at.first + i * at.stride;
        const float top = warp_max(max_element(v[i]), lanes);
        const float inv_sum = 1 / warp_sum(sum_powers(v[i], top, scale, 0), lanes);
        store_vectors<WHOLE_ROWS, K>(
            y + r * N, r < R ? N : 0, 0, at.lane, lanes,
            [&](int k, int j) { return inv_sum * power(v[i][k][j], top, scale); });
    }
}

template <typename T, bool WHOLE_ROWS, int K, int ROWS>
__global__ void __launch_bounds__(BLOCK)
    warp_backward_kernel(const T *y, const T *dy, T *dx, int64_t R, int N, int lanes, float scale)
{
    const warp_rows<ROWS> at(lanes);
    vec<T> v[ROWS][K], w[ROWS][K];

    #pragma unroll ROWS
    for (int i = 0; i < ROWS; i++) {
        const int64_t r = at.first + i * at.stride;
        load_vectors<WHOLE_ROWS>(v[i], y + r * N, r < R ? N : 0, 0, at.lane, lanes, 0);
        load_vectors<WHOLE_ROWS>(w[i], dy + r * N, r < R ? N : 0, 0, at.lane, lanes, 0);
    }
    #pragma unroll ROWS
    for (int i = 0; i < ROWS; i++) {
        const int64_t r = at.first + i * at.stride;
        const float dot = warp_sum(dot_product(v[i], w[i], 0), lanes);
        store_vectors<WHOLE_ROWS, K>(
            dx + r * N, r < R ? N : 0, 0, at.lane, lanes,
            [&](int k, int j) { return scale * v[i][k][j] * (w[i][k][j] - dot); });
    }
}

/* The number of lanes per row. */
template <typename T>
static int lanes_of(int64_t N)
{
    int lanes = 1;
    while (lanes < 32 && lanes < vectors_of<T>(N))
        lanes *= 2;
    return lanes;
}

/* Launches forward, from x to y; or, if dy is given, backward, where x is y and `to` is dx. */
template <typename T, bool WHOLE_ROWS, int K>
static int warp_start(const T *x, const T *dy, T *to, const struct call *f)
{
    enum { ROWS = IN_FLIGHT / K };
    const auto forward = warp_forward_kernel<T, WHOLE_ROWS, K, ROWS>;
    const auto backward = warp_backward_kernel<T, WHOLE_ROWS, K, ROWS>;
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    const int lanes = lanes_of<T>(N);
    const unsigned blocks = (unsigned)ceil_div(R, BLOCK / lanes * ROWS);
    const float scale = scale_of(f);

    if (dy)
        backward<<<blocks, BLOCK, 0, gpu_stream(f)>>>(x, dy, to, R, (int)N, lanes, scale);
    else
        forward<<<blocks, BLOCK, 0, gpu_stream(f)>>>(x, to, R, (int)N, lanes, scale * LOG2E);
    return cudaGetLastError();
}

template <typename T, bool WHOLE_ROWS>
static int warp(const T *x, const T *dy, T *to, const struct call *f)
{
    const int64_t N = DIM(f, 'N'), K = ceil_div(vectors_of<T>(N), lanes_of<T>(N));
    const auto start = K <= 1   ? warp_start<T, WHOLE_ROWS, 1>
                       : K <= 2 ? warp_start<T, WHOLE_ROWS, 2>
                                : warp_start<T, WHOLE_ROWS, 4>;
    return start(x, dy, to, f);
}

template <typename T>
static int warp_forward(const struct call *f)
{
    const struct softmax *a = ARGS(f, softmax);
    const auto start = in_vectors<T>(DIM(f, 'N')) ? warp<T, true> : warp<T, false>;
    return start((const T *)a->x, NULL, (T *)a->y, f);
}

template <typename T>
static int warp_backward(const struct call *f)
{
    const struct softmax *a = ARGS(f, softmax), *g = GRADS(f, softmax);
    const auto start = in_vectors<T>(DIM(f, 'N')) ? warp<T, true> : warp<T, false>;
    return start((const T *)a->y, (const T *)g->y, (T *)g->x, f);
}

template <typename T>
static const char *warp_declines(const struct call *f)
{
    return vectors_of<T>(DIM(f, 'N')) > WARP_VECTORS
               ? "rows beyond 2 KiB, more than a warp keeps in registers"
               : NULL;
}

/* ---- block ---- */

/* One block per row, which keeps the row in registers: each byte is read once. */
template <typename T, bool WHOLE_ROWS>
__global__ void FEW_REGISTERS(MAX_THREADS)
    block_forward_kernel(const T *x, T *y, int N, float scale)
{
    __shared__ float smem[64];
    const int64_t row = (int64_t)blockIdx.x * N;
    const int i = threadIdx.x, threads = blockDim.x;
    vec<T> v[HELD];

    load_vectors<WHOLE_ROWS>(v, x + row, N, 0, i, threads, -INFINITY);
    const float top = block_max(max_element(v), smem);
    const float inv_sum = 1 / block_sum(sum_powers(v, top, scale, 0), smem + 32);
    store_vectors<WHOLE_ROWS, HELD>(y + row, N, 0, i, threads, [&](int k, int j) {
        return inv_sum * power(v[k][j], top, scale);
    });
}

template <typename T, bool WHOLE_ROWS>
__global__ void FEW_REGISTERS_BACK block_backward_kernel(const T *y, const T *dy, T *dx, int N,
                                                         float scale)
{
    __shared__ float smem[32];
    const int64_t row = (int64_t)blockIdx.x * N;
    const int i = threadIdx.x, threads = blockDim.x;
    vec<T> v[HELD_BACK], w[HELD_BACK];

    load_vectors<WHOLE_ROWS>(v, y + row, N, 0, i, threads, 0);
    load_vectors<WHOLE_ROWS>(w, dy + row, N, 0, i, threads, 0);
    const float dot = block_sum(dot_product(v, w, 0), smem);
    store_vectors<WHOLE_ROWS, HELD_BACK>(dx + row, N, 0, i, threads, [&](int k, int j) {
        return scale * v[k][j] * (w[k][j] - dot);
    });
}

template <typename T>
static int block_forward(const struct call *f)
{
    const struct softmax *a = ARGS(f, softmax);
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    const auto kernel =
        in_vectors<T>(N) ? block_forward_kernel<T, true> : block_forward_kernel<T, false>;
    const unsigned threads = threads_for(vectors_of<T>(N), HELD);
    kernel<<<R, threads, 0, gpu_stream(f)>>>((const T *)a->x, (T *)a->y, (int)N,
                                             scale_of(f) * LOG2E);
    return cudaGetLastError();
}

template <typename T>
static int block_backward(const struct call *f)
{
    const struct softmax *a = ARGS(f, softmax), *g = GRADS(f, softmax);
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    const auto kernel =
        in_vectors<T>(N) ? block_backward_kernel<T, true> : block_backward_kernel<T, false>;
    const unsigned threads = threads_for(vectors_of<T>(N), HELD_BACK);
    kernel<<<R, threads, 0, gpu_stream(f)>>>((const T *)a->y, (const T *)g->y, (T *)g->x, (int)N,
                                             scale_of(f));
    return cudaGetLastError();
}

template <typename T>
static const char *block_declines(const struct call *f)
{
    return vectors_of<T>(DIM(f, 'N')) > BLOCK_VECTORS
               ? "rows beyond 32 KiB, more than a block keeps in registers"
               : NULL;
}

/* ---- cluster ---- */

/* One cluster per row, whose blocks keep the row in registers.  So long rows are read once as well,
 * and an SM has several blocks: one loads while another writes.  Each block sends its partial
 * maximum and sum to all blocks with st.async, and each block adds them in the same order. */
struct cluster_exchange {
    float4 partial[CLUSTER_MAX];
    uint64_t mbar;
};

/* Initialises the mbarrier; called before the loads, which overlap with the cluster barrier. */
static __device__ __forceinline__ void init_exchange(cluster_exchange *s, int cluster)
{
    if (threadIdx.x == 0) {
        mbarrier_init(&s->mbar);
        mbarrier_arrive_expect_tx(&s->mbar, cluster * (int)sizeof(float4));
    }
    cluster_arrive();
}

/* Sends this block's x and y to all blocks.  On return, s->partial has the x and y of all
 * blocks. */
static __device__ __forceinline__ void exchange(cluster_exchange *s, int cluster, float x, float y)
{
    cluster_wait(); /* all mbarriers are initialised */
    if ((int)threadIdx.x < cluster)
        st_async(&s->partial[cluster_rank(cluster)], &s->mbar, threadIdx.x,
                 make_float4(x, y, 0, 0));
    mbarrier_wait(&s->mbar, 0);
}

template <typename T, bool WHOLE_ROWS>
__global__ void FEW_REGISTERS(MAX_THREADS)
    cluster_forward_kernel(const T *x, T *y, int N, int cluster, float scale)
{
    __shared__ float smem[64];
    __shared__ cluster_exchange s;
    const int64_t row = (int64_t)cluster_number(cluster) * N;
    const int i = threadIdx.x, threads = blockDim.x;
    const int first = cluster_rank(cluster) * threads * HELD;
    vec<T> v[HELD];
    running all;

    init_exchange(&s, cluster);
    load_vectors<WHOLE_ROWS>(v, x + row, N, first, i, threads, -INFINITY);
    const float mine =
        max_nan(block_max(max_element(v), smem), LOWEST); /* a block may have no elements */
    exchange(&s, cluster, mine, block_sum(sum_powers(v, mine, scale, 0), smem + 32));

    for (int b = 0; b < cluster; b++)
        all.top = max_nan(all.top, s.partial[b].x);
    for (int b = 0; b < cluster; b++)
        all.sum += s.partial[b].y * power(s.partial[b].x, all.top, scale);
    const float inv_sum = 1 / all.sum;
    store_vectors<WHOLE_ROWS, HELD>(y + row, N, first, i, threads, [&](int k, int j) {
        return inv_sum * power(v[k][j], all.top, scale);
    });
}

template <typename T, bool WHOLE_ROWS>
__global__ void FEW_REGISTERS_BACK cluster_backward_kernel(const T *y, const T *dy, T *dx, int N,
                                                           int cluster, float scale)
{
    __shared__ float smem[32];
    __shared__ cluster_exchange s;
    const int64_t row = (int64_t)cluster_number(cluster) * N;
    const int i = threadIdx.x, threads = blockDim.x;
    const int first = cluster_rank(cluster) * threads * HELD_BACK;
    vec<T> v[HELD_BACK], w[HELD_BACK];
    float dot = 0;

    init_exchange(&s, cluster);
    load_vectors<WHOLE_ROWS>(v, y + row, N, first, i, threads, 0);
    load_vectors<WHOLE_ROWS>(w, dy + row, N, first, i, threads, 0);
    exchange(&s, cluster, block_sum(dot_product(v, w, 0), smem), 0);

    for (int b = 0; b < cluster; b++)
        dot += s.partial[b].x;
    store_vectors<WHOLE_ROWS, HELD_BACK>(dx + row, N, first, i, threads, [&](int k, int j) {
        return scale * v[k][j] * (w[k][j] - dot);
    });
}

/* The blocks of a cluster: enough for blocks of up to 256 threads.  Blocks have more threads
 * only if the cluster already has CLUSTER_MAX blocks. */
static int cluster_for(int64_t vectors, int held)
{
    int cluster = 2;
    while (cluster < CLUSTER_MAX && cluster * BLOCK * held < vectors)
        cluster *= 2;
    return cluster;
}

template <typename T>
static int cluster_forward(const struct call *f)
{
    const struct softmax *a = ARGS(f, softmax);
    const int64_t N = DIM(f, 'N'), vectors = vectors_of<T>(N);
    const int cluster = cluster_for(vectors, HELD);
    cluster_launch l;

    cluster_launch_init(f->context, &l, DIM(f, 'R'), cluster, threads_for(vectors, cluster * HELD),
                        0);
    return cudaLaunchKernelEx(&l.config,
                              in_vectors<T>(N) ? cluster_forward_kernel<T, true>
                                               : cluster_forward_kernel<T, false>,
                              (const T *)a->x, (T *)a->y, (int)N, cluster, scale_of(f) * LOG2E);
}

template <typename T>
static int cluster_backward(const struct call *f)
{
    const struct softmax *a = ARGS(f, softmax), *g = GRADS(f, softmax);
    const int64_t N = DIM(f, 'N'), vectors = vectors_of<T>(N);
    const int cluster = cluster_for(vectors, HELD_BACK);
    cluster_launch l;

    cluster_launch_init(f->context, &l, DIM(f, 'R'), cluster,
                        threads_for(vectors, cluster * HELD_BACK), 0);
    return cudaLaunchKernelEx(
        &l.config,
        in_vectors<T>(N) ? cluster_backward_kernel<T, true> : cluster_backward_kernel<T, false>,
        (const T *)a->y, (const T *)g->y, (T *)g->x, (int)N, cluster, scale_of(f));
}

template <typename T>
static const char *cluster_declines(const struct call *f)
{
    if (cluster_max(f->context) < CLUSTER_MAX)
        return "a device without clusters of blocks";
    if (DIM(f, 'R') > 0x7fffffff / CLUSTER_MAX)
        return "more rows than a grid has clusters (268435455)";
    return vectors_of<T>(DIM(f, 'N')) > CLUSTER_MAX * BLOCK_VECTORS
               ? "rows beyond 256 KiB, more than a cluster keeps in registers"
               : NULL;
}

/* ---- online ---- */

/* One block per row of any length: an online softmax with 16-byte loads.  The block reads the row
 * once for the maximum and the sum, and once more to normalise it. */
template <typename T, bool WHOLE_ROWS>
__global__ void __launch_bounds__(LONG_BLOCK, WHOLE_ROWS ? 2 : 1)
    online_forward_kernel(const T *x, T *y, int N, float scale)
{
    __shared__ float smem[64];
    const int64_t row = (int64_t)blockIdx.x * N;
    const int i = threadIdx.x, threads = blockDim.x;
    running all;

    for (int first = 0; first * WIDTH<T> < N; first += IN_FLIGHT * threads) {
        vec<T> v[IN_FLIGHT];
        load_vectors<WHOLE_ROWS>(v, x + row, N, first, i, threads, -INFINITY);
        accumulate(all, v, scale);
    }
    block_running(all, scale, smem);
    const float inv_sum = 1 / all.sum;
    for (int first = 0; first * WIDTH<T> < N; first += IN_FLIGHT * threads) {
        vec<T> v[IN_FLIGHT];
        load_vectors<WHOLE_ROWS>(v, x + row, N, first, i, threads, 0);
        store_vectors<WHOLE_ROWS, IN_FLIGHT>(y + row, N, first, i, threads, [&](int k, int j) {
            return inv_sum * power(v[k][j], all.top, scale);
        });
    }
}

template <typename T, bool WHOLE_ROWS>
__global__ void __launch_bounds__(LONG_BLOCK, WHOLE_ROWS ? 2 : 1)
    online_backward_kernel(const T *y, const T *dy, T *dx, int N, float scale)
{
    enum { PAIRS = IN_FLIGHT / 2 };
    __shared__ float smem[32];
    const int64_t row = (int64_t)blockIdx.x * N;
    const int i = threadIdx.x, threads = blockDim.x;
    float sum = 0;

    for (int first = 0; first * WIDTH<T> < N; first += PAIRS * threads) {
        vec<T> v[PAIRS], w[PAIRS];
        load_vectors<WHOLE_ROWS>(v, y + row, N, first, i, threads, 0);
        load_vectors<WHOLE_ROWS>(w, dy + row, N, first, i, threads, 0);
        sum = dot_product(v, w, sum);
    }
    const float dot = block_sum(sum, smem);
    for (int first = 0; first * WIDTH<T> < N; first += PAIRS * threads) {
        vec<T> v[PAIRS], w[PAIRS];
        load_vectors<WHOLE_ROWS>(v, y + row, N, first, i, threads, 0);
        load_vectors<WHOLE_ROWS>(w, dy + row, N, first, i, threads, 0);
        store_vectors<WHOLE_ROWS, PAIRS>(dx + row, N, first, i, threads, [&](int k, int j) {
            return scale * v[k][j] * (w[k][j] - dot);
        });
    }
}

static unsigned online_threads(int64_t vectors)
{
    return min(threads_for(vectors, IN_FLIGHT), (unsigned)LONG_BLOCK);
}

template <typename T>
static int online_forward(const struct call *f)
{
    const struct softmax *a = ARGS(f, softmax);
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    const auto kernel =
        in_vectors<T>(N) ? online_forward_kernel<T, true> : online_forward_kernel<T, false>;
    kernel<<<R, online_threads(vectors_of<T>(N)), 0, gpu_stream(f)>>>((const T *)a->x, (T *)a->y,
                                                                      (int)N, scale_of(f) * LOG2E);
    return cudaGetLastError();
}

template <typename T>
static int online_backward(const struct call *f)
{
    const struct softmax *a = ARGS(f, softmax), *g = GRADS(f, softmax);
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    const auto kernel =
        in_vectors<T>(N) ? online_backward_kernel<T, true> : online_backward_kernel<T, false>;
    kernel<<<R, online_threads(vectors_of<T>(N)), 0, gpu_stream(f)>>>(
        (const T *)a->y, (const T *)g->y, (T *)g->x, (int)N, scale_of(f));
    return cudaGetLastError();
}

/* ---- two_pass ---- */

/* One block per row: it reads the row for the maximum, again for the sum, and once more to
 * normalise it. */
template <typename T>
__global__ void two_pass_forward_kernel(const T *x, T *y, int N, float scale)
{
    __shared__ float smem[64];
    float top = -INFINITY, sum = 0;

    x += (int64_t)blockIdx.x * N;
    y += (int64_t)blockIdx.x * N;
    for (int j = threadIdx.x; j < N; j += BLOCK)
        top = max_nan(top, load(x + j));
    top = block_max(top, smem);
    for (int j = threadIdx.x; j < N; j += BLOCK)
        sum += power(load(x + j), top, scale);
    sum = block_sum(sum, smem + 32);
    for (int j = threadIdx.x; j < N; j += BLOCK)
        store(y + j, power(load(x + j), top, scale) / sum);
}

template <typename T>
__global__ void two_pass_backward_kernel(const T *y, const T *dy, T *dx, int N, float scale)
{
    __shared__ float smem[32];
    float dot = 0;

    y += (int64_t)blockIdx.x * N;
    dy += (int64_t)blockIdx.x * N;
    dx += (int64_t)blockIdx.x * N;
    for (int j = threadIdx.x; j < N; j += BLOCK)
        dot += load(y + j) * load(dy + j);
    dot = block_sum(dot, smem);
    for (int j = threadIdx.x; j < N; j += BLOCK)
        store(dx + j, scale * load(y + j) * (load(dy + j) - dot));
}

template <typename T>
static int two_pass_forward(const struct call *f)
{
    const struct softmax *a = ARGS(f, softmax);
    two_pass_forward_kernel<<<DIM(f, 'R'), BLOCK, 0, gpu_stream(f)>>>(
        (const T *)a->x, (T *)a->y, (int)DIM(f, 'N'), scale_of(f) * LOG2E);
    return cudaGetLastError();
}

template <typename T>
static int two_pass_backward(const struct call *f)
{
    const struct softmax *a = ARGS(f, softmax), *g = GRADS(f, softmax);
    two_pass_backward_kernel<<<DIM(f, 'R'), BLOCK, 0, gpu_stream(f)>>>(
        (const T *)a->y, (const T *)g->y, (T *)g->x, (int)DIM(f, 'N'), scale_of(f));
    return cudaGetLastError();
}

/* ---- the kernels ---- */

/* Measured on an H100: in bf16 a cluster is faster from rows of 20 KB on. */
template <typename T>
static int block_yields(const struct call *f)
{
    return storage<T>::PER_WORD == 2 && DIM(f, 'N') > 10240 && !cluster_declines<T>(f);
}

GPU_KERNEL(staged, .idea = "many short rows at once in shared memory",
           .pass = {staged_forward<T>, staged_backward<T>}, .declines = staged_declines<T>,
           APPROXIMATELY("ex2.approx"), .yields = staged_yields<T>);
GPU_KERNEL(warp, .idea = "a row in the registers of one warp or less",
           .pass = {warp_forward<T>, warp_backward<T>}, .declines = warp_declines<T>,
           APPROXIMATELY("ex2.approx"));
GPU_KERNEL(block, .idea = "a row in the registers of a block",
           .pass = {block_forward<T>, block_backward<T>}, .declines = block_declines<T>,
           APPROXIMATELY("ex2.approx"), .yields = block_yields<T>);
GPU_KERNEL(cluster, .idea = "a row in the registers of a cluster of blocks",
           .pass = {cluster_forward<T>, cluster_backward<T>}, .declines = cluster_declines<T>,
           APPROXIMATELY("ex2.approx"));
GPU_KERNEL(online, .idea = "maximum and sum in one pass (online), rows of any length",
           .pass = {online_forward<T>, online_backward<T>}, APPROXIMATELY("ex2.approx"));
GPU_KERNEL(two_pass, .idea = "a block per row, which is read for each step",
           .pass = {two_pass_forward<T>, two_pass_backward<T>}, APPROXIMATELY("ex2.approx"));

GPU_KERNELS(softmax, IN_TYPES(staged) IN_TYPES(warp) IN_TYPES(block) IN_TYPES(cluster)
                         IN_TYPES(online) IN_TYPES(two_pass));
