/* p = [u - tau]_+^2, u = (x - max(x)) / 2, for each row of x [R,N]; tau is such that sum(p) = 1.
 * Backward dx = g (dp - <g,dp> / sum(g)), g = sqrt(p).
 *
 * newton has 1, 2 or 4 lanes per row, warp a group of lanes, sort one thread per row. */
#include "common/ops/entmax15.h"
#include "gpu/device/math.cuh"
#include "gpu/device/staged.cuh"
#include "gpu/dual_memory/attend.cuh"
#include "gpu/row/softmax.cuh"

enum {
    BLOCK = 256,
    SORT_THREADS = 64, /* threads of a block of kernel `sort` */
    OWN = 16,          /* elements of a row that a lane holds */
};

/* ---- newton ---- */

/* One, two or four lanes per row hold OWN elements each, loaded as 16-byte vectors if a row is a
 * whole number of them; other rows are copied by way of shared memory, those of a block at once.  Nothing is sorted: f(tau) = sum [u - tau]_+^2 - 1 decreases and is convex,
 * so Newton's method never overshoots if the first tau is too low.  It converges quadratically:
 * after a step below TOLERANCE the next one would be less than a rounding error.  If the maximum is
 * NaN or infinite, some u is NaN, and so are the first step, tau and all p. */
#define TOLERANCE 0x1p-13f

/* The rows of a block: BLOCK / lanes of them, which is a multiple of 8. */
template <typename T, bool WHOLE_ROWS>
struct newton_rows {
    enum { SIZE = WIDTH<T> };
    int64_t first; /* the block's first row */
    int there;     /* rows */
    int row;       /* this lane's, of the block's */
    int lane, lanes, N, n;

    __device__ __forceinline__ newton_rows(int64_t R, int N, int lanes)
        : first(blockIdx.x * (int64_t)(BLOCK / lanes)),
          there((int)min((int64_t)(BLOCK / lanes), R - first)), row((int)threadIdx.x / lanes),
          lane((int)threadIdx.x & (lanes - 1)), lanes(lanes), N(N), n(row < there ? N : 0)
    {
    }
    __device__ __forceinline__ int column(int i) const
    {
        return (lane + i / SIZE * lanes) * SIZE + i % SIZE;
    }
    /* Begins to copy the block's rows to shared memory, unless rows are whole vectors. */
    __device__ __forceinline__ void begin(T *smem, const T *x) const
    {
        if (!WHOLE_ROWS)
            stage_in(smem, x + first * N, there * N);
    }
    __device__ __forceinline__ void ready(void) const
    {
        if (!WHOLE_ROWS)
            stage_ready();
    }
    /* A lane's elements of its row, as floats. */
    __device__ __forceinline__ void load_own(float (&own)[OWN], const T *smem, const T *x,
                                             float fill) const
    {
        vec<T> v[OWN / SIZE];
        if (WHOLE_ROWS)
            load_vectors<true>(v, x + (first + row) * N, n, 0, lane, lanes, fill);
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++)
            if (WHOLE_ROWS)
                own[i] = v[i / SIZE][i % SIZE];
            else
                own[i] = column(i) < n ? load(smem + row * N + column(i)) : fill;
    }
    /* Stores them, and by way of shared memory the block's rows. */
    __device__ __forceinline__ void store_own(T *y, T *smem, const float (&own)[OWN]) const
    {
        if (WHOLE_ROWS) {
            store_vectors<true, OWN / SIZE>(y + (first + row) * N, n, 0, lane, lanes,
                                            [&](int k, int i) { return own[k * SIZE + i]; });
            return;
        }
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++)
            if (column(i) < n)
                store(smem + row * N + column(i), own[i]);
        __syncthreads();
        stage_out(y + first * N, smem, there * N);
    }
};

template <typename T, bool WHOLE_ROWS>
__global__ void __launch_bounds__(BLOCK)
    newton_forward_kernel(const T *x, T *p, int64_t R, int N, int lanes)
{
    extern __shared__ uint4 newton_smem[];
    T *rows = (T *)newton_smem;
    const newton_rows<T, WHOLE_ROWS> own(R, N, lanes);
    float u[OWN], top = -INFINITY, tau = -1;
    bool active = true;

    own.begin(rows, x);
    own.ready();
    own.load_own(u, rows, x, -INFINITY);
    #pragma unroll OWN
    for (int i = 0; i < OWN; i++)
        top = max_nan(top, u[i]);
    top = warp_max(top, lanes);
    #pragma unroll OWN
    for (int i = 0; i < OWN; i++)
        u[i] = 0.5f * (u[i] - top);
    do {
        float sum = 0, squares = 0;
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++) {
            const float over = max_nan(u[i] - tau, 0);
            sum += over;
            squares = fmaf(over, over, squares);
        }
        const float all = warp_sum(sum, lanes), over_one = warp_sum(squares, lanes) - 1;
        const float step = 0.5f * over_one * rcp_approx(all);
        tau = active ? tau + step : tau; /* other rows of the warp may need more steps */
        active = active && step > TOLERANCE;
    } while (__any_sync(~0u, active));
    #pragma unroll OWN
    for (int i = 0; i < OWN; i++) {
        const float over = max_nan(u[i] - tau, 0);
        u[i] = over * over;
    }
    own.store_own(p, rows, u);
}

template <typename T, bool WHOLE_ROWS>
__global__ void __launch_bounds__(BLOCK)
    newton_backward_kernel(const T *p, const T *dp, T *dx, int64_t R, int N, int lanes)
{
    extern __shared__ uint4 newton_smem[];
    T *rows = (T *)newton_smem, *back = rows + BLOCK / lanes * N;
    const newton_rows<T, WHOLE_ROWS> own(R, N, lanes);
    float g[OWN], d[OWN], sum = 0, dot = 0;

    own.begin(rows, p);
    own.begin(back, dp);
    own.ready();
    own.load_own(g, rows, p, 0);
    own.load_own(d, back, dp, 0);
    #pragma unroll OWN
    for (int i = 0; i < OWN; i++) {
        g[i] = sqrt_approx(g[i]);
        sum += g[i];
        dot = fmaf(g[i], d[i], dot);
    }
    dot = warp_sum(dot, lanes) / warp_sum(sum, lanes);
    #pragma unroll OWN
    for (int i = 0; i < OWN; i++)
        d[i] = g[i] * (d[i] - dot);
    own.store_own(dx, back, d);
}

OF_CALL(int, lanes_of, DIM(f, 'N') > 2 * OWN ? 4 : DIM(f, 'N') > OWN ? 2 : 1)

/* The bytes of shared memory for a block's rows of `tensors` tensors: at most 32 KB. */
template <typename T>
static size_t newton_bytes(const struct call *f, int tensors)
{
    const int64_t N = DIM(f, 'N');
    return in_vectors<T>(N) ? 0 : tensors * (BLOCK / lanes_of(f)) * N * sizeof(T);
}

template <typename T>
static int newton_forward(const struct call *f)
{
    const struct entmax15 *a = ARGS(f, entmax15);
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    const int lanes = lanes_of(f);
    const auto kernel =
        in_vectors<T>(N) ? newton_forward_kernel<T, true> : newton_forward_kernel<T, false>;
    kernel<<<ceil_div(R * lanes, BLOCK), BLOCK, newton_bytes<T>(f, 1), gpu_stream(f)>>>(
        (const T *)a->x, (T *)a->p, R, (int)N, lanes);
    return cudaGetLastError();
}

template <typename T>
static int newton_backward(const struct call *f)
{
    const struct entmax15 *a = ARGS(f, entmax15), *g = GRADS(f, entmax15);
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    const int lanes = lanes_of(f);
    const auto kernel =
        in_vectors<T>(N) ? newton_backward_kernel<T, true> : newton_backward_kernel<T, false>;
    kernel<<<ceil_div(R * lanes, BLOCK), BLOCK, newton_bytes<T>(f, 2), gpu_stream(f)>>>(
        (const T *)a->p, (const T *)g->p, (T *)g->x, R, (int)N, lanes);
    return cudaGetLastError();
}

/* ---- warp ---- */

/* The method of the dual memory's attention: neighbouring lanes of one warp hold a row.  For each
 * element they compute the tau that is right if this element is the smallest of the support. */
template <typename T, int SLOTS>
struct slots {
    enum { OWN = attention<SLOTS>::OWN, GROUP = attention<SLOTS>::GROUP };

    static __device__ __forceinline__ int64_t row(void)
    {
        return ((int64_t)blockIdx.x * BLOCK + threadIdx.x) / GROUP;
    }
    static __device__ __forceinline__ int slot(int i)
    {
        return (int)threadIdx.x % GROUP + i * GROUP;
    }
};

template <typename T, int SLOTS>
__global__ void __launch_bounds__(BLOCK) warp_forward_kernel(const T *x, T *p, int64_t R, int N)
{
    typedef slots<T, SLOTS> own;
    const int64_t r = own::row();
    const int n = r < R ? N : 0;
    float a[own::OWN], weight[own::OWN];

    #pragma unroll (own::OWN)
    for (int i = 0; i < own::OWN; i++)
        a[i] = own::slot(i) < n ? load(x + r * N + own::slot(i)) : -INFINITY;
    attention<SLOTS>::entmax15(weight, a);
    #pragma unroll (own::OWN)
    for (int i = 0; i < own::OWN; i++)
        if (own::slot(i) < n)
            store(p + r * N + own::slot(i), weight[i]);
}

template <typename T, int SLOTS>
__global__ void __launch_bounds__(BLOCK)
    warp_backward_kernel(const T *p, const T *dp, T *dx, int64_t R, int N)
{
    typedef slots<T, SLOTS> own;
    const int64_t r = own::row();
    const int n = r < R ? N : 0;
    float weight[own::OWN], d[own::OWN];

    #pragma unroll (own::OWN)
    for (int i = 0; i < own::OWN; i++) {
        const bool valid = own::slot(i) < n;
        weight[i] = valid ? load(p + r * N + own::slot(i)) : 0;
        d[i] = valid ? load(dp + r * N + own::slot(i)) : 0;
    }
    attention<SLOTS>::back(DUAL_ENTMAX15, weight, d);
    #pragma unroll (own::OWN)
    for (int i = 0; i < own::OWN; i++)
        if (own::slot(i) < n)
            store(dx + r * N + own::slot(i), d[i]);
}

/* Launches forward, from x to p; or, if dp is given, backward, from p to dx. */
template <typename T, int SLOTS>
static int warp_start(const void *x, const void *dp, void *to, const struct call *f)
{
    const int64_t R = DIM(f, 'R'), blocks = ceil_div(R * slots<T, SLOTS>::GROUP, BLOCK);
    const auto forward = warp_forward_kernel<T, SLOTS>;
    const auto backward = warp_backward_kernel<T, SLOTS>;
    const int N = (int)DIM(f, 'N');

    if (dp)
        backward<<<blocks, BLOCK, 0, gpu_stream(f)>>>((const T *)x, (const T *)dp, (T *)to, R, N);
    else
        forward<<<blocks, BLOCK, 0, gpu_stream(f)>>>((const T *)x, (T *)to, R, N);
    return cudaGetLastError();
}

template <typename T>
static int warp(const void *x, const void *dp, void *to, const struct call *f)
{
    const int64_t N = DIM(f, 'N');
    const auto start = N <= 8    ? warp_start<T, 8>
                       : N <= 16 ? warp_start<T, 16>
                       : N <= 32 ? warp_start<T, 32>
                                 : warp_start<T, 64>;
    return start(x, dp, to, f);
}

template <typename T>
static int warp_forward(const struct call *f)
{
    return warp<T>(ARGS(f, entmax15)->x, NULL, ARGS(f, entmax15)->p, f);
}

template <typename T>
static int warp_backward(const struct call *f)
{
    return warp<T>(ARGS(f, entmax15)->p, GRADS(f, entmax15)->p, GRADS(f, entmax15)->x, f);
}

/* ---- sort ---- */

/* One thread per row.  An insertion sort in shared memory, one column per thread; then a loop from
 * the maximum down that computes tau with each further element, until one cannot be in the
 * support: u <= -1, which is not above the tau of the maximum alone, or NaN. */
template <typename T>
__global__ void sort_forward_kernel(const T *x, T *p, int64_t R, int N)
{
    __shared__ float sorted[ENTMAX15_MAX_COLUMNS][SORT_THREADS];
    const int64_t r = (int64_t)blockIdx.x * SORT_THREADS + threadIdx.x;
    const int thread = threadIdx.x;
    float sum = 0, squares = 0, threshold = NAN, top = -INFINITY;

    if (r >= R)
        return;
    x += r * N;
    p += r * N;
    for (int j = 0; j < N; j++) {
        const float value = load(x + j);
        int at = j;
        top = max_nan(top, value);
        for (; at > 0 && sorted[at - 1][thread] < value; at--)
            sorted[at][thread] = sorted[at - 1][thread];
        sorted[at][thread] = value;
    }
    for (int k = 1; k <= N; k++) {
        const float u = 0.5f * (sorted[k - 1][thread] - top);
        if (!(u > -1))
            break;
        sum += u;
        squares += u * u;
        const float mean = sum / k, spread = squares - sum * mean;
        const float tau = mean - sqrtf(fmaxf((1 - spread) / k, 0));
        if (tau <= u)
            threshold = tau;
    }
    for (int j = 0; j < N; j++) {
        const float over = max_nan(0.5f * (load(x + j) - top) - threshold, 0);
        store(p + j, over * over);
    }
}

template <typename T>
__global__ void sort_backward_kernel(const T *p, const T *dp, T *dx, int64_t R, int N)
{
    const int64_t r = (int64_t)blockIdx.x * SORT_THREADS + threadIdx.x;
    float sum = 0, dot = 0;

    if (r >= R)
        return;
    p += r * N;
    dp += r * N;
    dx += r * N;
    for (int j = 0; j < N; j++) {
        const float slope = sqrtf(load(p + j));
        sum += slope;
        dot += slope * load(dp + j);
    }
    for (int j = 0; j < N; j++)
        store(dx + j, sqrtf(load(p + j)) * (load(dp + j) - dot / sum));
}

template <typename T>
static int sort_forward(const struct call *f)
{
    const struct entmax15 *a = ARGS(f, entmax15);
    const int64_t R = DIM(f, 'R');
    sort_forward_kernel<<<ceil_div(R, SORT_THREADS), SORT_THREADS, 0, gpu_stream(f)>>>(
        (const T *)a->x, (T *)a->p, R, (int)DIM(f, 'N'));
    return cudaGetLastError();
}

template <typename T>
static int sort_backward(const struct call *f)
{
    const struct entmax15 *a = ARGS(f, entmax15), *g = GRADS(f, entmax15);
    const int64_t R = DIM(f, 'R');
    sort_backward_kernel<<<ceil_div(R, SORT_THREADS), SORT_THREADS, 0, gpu_stream(f)>>>(
        (const T *)a->p, (const T *)g->p, (T *)g->x, R, (int)DIM(f, 'N'));
    return cudaGetLastError();
}

/* ---- the kernels ---- */

/* Measured on an H100: the shortest rows are sorted faster than they are iterated. */
OF_CALL(int, newton_yields, DIM(f, 'N') <= 3)

GPU_KERNEL(newton, .idea = "tau by Newton's method, four lanes per row",
           .pass = {newton_forward<T>, newton_backward<T>},
           APPROXIMATELY("rcp.approx, sqrt.approx"), .yields = newton_yields);
GPU_KERNEL(warp, .idea = "a tau for each element, half a warp per row or more",
           .pass = {warp_forward<T>, warp_backward<T>}, APPROXIMATELY("rcp.approx, sqrt.approx"));
GPU_KERNEL(sort, .idea = "a thread sorts a row", .pass = {sort_forward<T>, sort_backward<T>},
           APPROXIMATELY("rcp.approx, sqrt.approx"));

GPU_KERNELS(entmax15, IN_TYPES(newton) IN_TYPES(sort) IN_TYPES(warp));
