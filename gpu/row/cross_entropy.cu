/* row_loss = lse(x) - (1 - s) x[target] - s mean(x), s the label smoothing, x a row of logits
 * [R,V]; loss = the mean of row_loss over the rows that are not ignored.  Backward dx = (p - q) d +
 * p dlse, p = softmax(x), q the smoothed target, d the gradient of row_loss.
 *
 * staged has many short rows per block, in shared memory; online and two_pass have one block per
 * row.  A second kernel of one block adds the losses in a fixed order: those of the rows or, where
 * rows are many, sums of parts of them.  PDL launches it before the last rows are done. */
#include "common/ops/cross_entropy.h"
#include "gpu/device/launch.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/device/staged.cuh"
#include "gpu/row/softmax.cuh"

enum {
    BLOCK = 256,
    MAX_THREADS = 128, /* of a block, forward: small, so that few threads wait at a row's end */
    RESIDENT = 8,      /* blocks per SM, forward */
    MAX_THREADS_BACK = 512,
    RESIDENT_BACK = 3,
    MEAN_THREADS = 512,  /* threads of a block that adds up losses */
    MEAN_ALONE = 8192,   /* rows whose losses one block adds; more are added part by part, */
    MEAN_ROWS = 2048,    /* and these are the rows of a part */
    LAST_THREADS = 1024, /* threads of the block that adds the parts' sums */
    AHEAD = 4            /* vectors per thread that are loaded together */
};

/* Alignment of row r of n logits.  Its edges are the `head` elements before the first 16-byte
 * boundary and the elements after the last one; together they are fewer than the elements of two
 * vectors, at most one per thread.  Thread i has vectors i, i + threads, ... between the edges. */
template <typename T>
struct extent {
    enum { SIZE = WIDTH<T> };
    int head, body, edges; /* body: elements of the whole vectors */

    __device__ __forceinline__ extent(int64_t r, int n)
    {
        const unsigned first = (unsigned)r * (unsigned)n; /* only its lowest bits are used */
        head = min((int)(-first & (SIZE - 1)), n);
        body = (n - head) / SIZE * SIZE;
        edges = n - body;
    }
    /* The column of the i-th edge element. */
    __device__ __forceinline__ int edge(int i) const { return i < head ? i : i + body; }
    /* The index of the thread that has column j. */
    __device__ __forceinline__ int thread_of(int j, int threads) const
    {
        return j < head ? j : j < head + body ? (j - head) / SIZE % threads : j - body;
    }
};

/* sum of (max - x) over `count` elements x. */
struct depth {
    float sum = 0;
    int count = 0;

    /* Adapts the sum when the maximum changes from `from` to `next`. */
    __device__ __forceinline__ void rescale(float from, float next)
    {
        sum += count ? count * (next - from) : 0;
    }
    __device__ __forceinline__ void add(float x, float top)
    {
        sum += top - x;
        count++;
    }
    template <typename T>
    __device__ __forceinline__ void add_vector(const vec<T> &v, float top)
    {
        #pragma unroll 8
        for (int i = 0; i < WIDTH<T>; i++)
            add(v[i], top);
    }
};

/* The parameters of the loss. */
struct loss_options {
    int64_t ignored;
    float smoothing;
};

static struct loss_options loss_options_of(const struct call *f)
{
    return {DIM(f, 'I'), (float)f->real[CROSS_SMOOTHING]};
}

/* The target of a row x, and its logit; the logit is 0 if the target is not a column. */
struct row_label {
    int64_t target = 0;
    float logit = 0;
};

template <typename T>
static __device__ __forceinline__ row_label row_label_in(int64_t target, const T *x, int V)
{
    return {target, target >= 0 && target < V ? load(x + target) : 0};
}

template <typename T>
static __device__ __forceinline__ row_label row_label_of(const cross_entropy &a, const T *x,
                                                         int64_t r, int V)
{
    return row_label_in(((const int64_t *)a.target)[r], x, V);
}

/* row_loss, computed from a row's sums; depth is used only with smoothing. */
static __device__ __forceinline__ float loss_of(const row_label &label, int V,
                                                const loss_options &opt, float top, float log_sum,
                                                float depth)
{
    if (label.target == opt.ignored)
        return 0;
    if (label.target < 0 || label.target >= V)
        return NAN;
    const float nll = log_sum + (1 - opt.smoothing) * (top - label.logit);
    return opt.smoothing > 0 ? nll + opt.smoothing * (depth / V) : nll;
}

/* Writes the results of row r, and returns row_loss; called by one thread.  (The sum is 0 if all
 * logits are -inf.) */
static __device__ __forceinline__ float store_results(const cross_entropy &a, int64_t r, int V,
                                                      const loss_options &opt,
                                                      const row_label &label, const running &all,
                                                      float depth)
{
    const float top = all.sum == 0 ? -INFINITY : all.top, sum = all.sum == 0 ? NAN : all.sum;
    const float log_sum = logf(sum);

    ((float *)a.top)[r] = top;
    ((float *)a.sum)[r] = sum;
    ((float *)a.lse)[r] = isinf(top) ? top : top + log_sum;
    return ((float *)a.row_loss)[r] = loss_of(label, V, opt, top, log_sum, depth);
}

/* ---- the mean ---- */

__global__ void __launch_bounds__(MEAN_THREADS)
    mean_kernel(const float *row_loss, const int64_t *target, float *loss, int64_t *count,
                int64_t R, int64_t ignored)
{
    __shared__ float smem[32];
    __shared__ int counts[32];
    int mine = 0;
    float sum = 0;

    for (int64_t r = threadIdx.x; r < R; r += MEAN_THREADS)
        mine += target[r] != ignored;
    mine = (int)__reduce_add_sync(~0u, (unsigned)mine);
    if (threadIdx.x % 32 == 0)
        counts[threadIdx.x / 32] = mine;
    pdl_wait();
    #pragma unroll 8
    for (int64_t r = threadIdx.x; r < R; r += MEAN_THREADS)
        sum += row_loss[r];
    sum = block_sum(sum, smem);
    if (threadIdx.x)
        return;
    int all = 0;
    for (int w = 0; w < MEAN_THREADS / 32; w++)
        all += counts[w];
    *count = all;
    *loss = all ? sum / all : 0;
}

/* Of part of the rows: the sum of row_loss, and how many are not ignored, which is exact. */
struct part {
    float sum, count;
};

/* Of the values of a block's threads.  Thread 0 writes them. */
static __device__ __forceinline__ void store_part(part *parts, float sum, int count)
{
    __shared__ float smem[64];
    sum = block_sum(sum, smem);
    const float all = block_sum((float)count, smem + 32);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = {sum, all};
}

/* A block has MEAN_ROWS rows. */
__global__ void __launch_bounds__(MEAN_THREADS)
    part_kernel(const float *row_loss, const int64_t *target, part *parts, int64_t R,
                int64_t ignored)
{
    const int64_t first = (int64_t)blockIdx.x * MEAN_ROWS;
    const int n = (int)min((int64_t)MEAN_ROWS, R - first);
    float sum = 0;
    int count = 0;

    for (int r = threadIdx.x; r < n; r += MEAN_THREADS)
        count += target[first + r] != ignored;
    pdl_wait();
    pdl_launch_dependents();
    #pragma unroll 4
    for (int r = threadIdx.x; r < n; r += MEAN_THREADS)
        sum += row_loss[first + r];
    store_part(parts, sum, count);
}

/* One block. */
__global__ void __launch_bounds__(LAST_THREADS)
    last_kernel(const part *parts, int n, float *loss, int64_t *count)
{
    __shared__ float smem[32];
    __shared__ int counts[32];
    int mine = 0, all = 0;
    float sum = 0;

    pdl_wait();
    #pragma unroll 8
    for (int i = threadIdx.x; i < n; i += LAST_THREADS) {
        sum += parts[i].sum;
        mine += (int)parts[i].count;
    }
    mine = (int)__reduce_add_sync(~0u, (unsigned)mine);
    if (threadIdx.x % 32 == 0)
        counts[threadIdx.x / 32] = mine;
    sum = block_sum(sum, smem);
    if (threadIdx.x)
        return;
    for (int w = 0; w < LAST_THREADS / 32; w++)
        all += counts[w];
    *count = all;
    *loss = all ? sum / all : 0;
}

static int mean_of_parts(const struct call *f, int64_t n)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    return launch_pdl(f->context, last_kernel, 1, LAST_THREADS, 0, (const part *)f->work, (int)n,
                      (float *)a->loss, (int64_t *)a->count);
}

/* Of the losses that the kernel before has written. */
static int mean(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    const float *row_loss = (const float *)a->row_loss;
    const int64_t *target = (const int64_t *)a->target;
    const int64_t R = DIM(f, 'R'), parts = ceil_div(R, MEAN_ROWS);

    if (R <= MEAN_ALONE)
        return launch_pdl(f->context, mean_kernel, 1, MEAN_THREADS, 0, row_loss, target,
                          (float *)a->loss, (int64_t *)a->count, R, DIM(f, 'I'));
    CUDA(launch_pdl(f->context, part_kernel, (unsigned)parts, MEAN_THREADS, 0, row_loss, target,
                    (part *)f->work, R, DIM(f, 'I')));
    return mean_of_parts(f, parts);
}

static size_t mean_work(const struct call *f, enum pass p)
{
    const int64_t R = DIM(f, 'R');
    return p == FORWARD && R > MEAN_ALONE ? ceil_div(R, MEAN_ROWS) * sizeof(part) : 0;
}

/* The coefficients of a row's gradient. */
struct slope {
    float likely, target, uniform; /* dx = likely e^(x - top) - uniform - [target] target */
};

static __device__ __forceinline__ slope slope_of(const cross_entropy &a, const cross_entropy &g,
                                                 int64_t r, int V, const loss_options &opt)
{
    const bool ignored = ((const int64_t *)a.target)[r] == opt.ignored;
    const float count = (float)*(const int64_t *)a.count;
    const float d = ignored ? 0 : *(const float *)g.loss / count + ((const float *)g.row_loss)[r];
    const float all = d + ((const float *)g.lse)[r];
    return {all / ((const float *)a.sum)[r], d * (1 - opt.smoothing), d * (opt.smoothing / V)};
}

/* ---- staged ---- */

enum {
    STAGED_BYTES = 16 << 10, /* that a block has in shared memory, if its teams' rows fit */
    ROW_BYTES = 24           /* of these for each row besides its logits */
};

/* The rows of a block in shared memory. */
template <typename T>
struct staged_tile {
    T *x;
    int64_t *target;
    float *top, *sum;
    float *depth;              /* forward: the sum of (top - x) */
    float *d_row_loss, *d_lse; /* backward */
};

template <typename T>
static __host__ __device__ __forceinline__ staged_tile<T> alloc_tile(smem_arena *smem,
                                                                     const staged &s, enum pass p)
{
    staged_tile<T> t = {};
    t.x = smem->alloc<T>(s.elements());
    t.target = smem->alloc<int64_t>(s.rows);
    t.top = smem->alloc<float>(s.rows);
    t.sum = smem->alloc<float>(s.rows);
    if (p == FORWARD) {
        t.depth = smem->alloc<float>(s.rows);
    } else {
        t.d_row_loss = smem->alloc<float>(s.rows);
        t.d_lse = smem->alloc<float>(s.rows);
    }
    return t;
}

/* STAGED_BOUNDS, but 1280 threads per SM where a lane holds up to 16 words of packed logits: forward
 * needs no more than 48 registers then. */
#define FORWARD_BOUNDS(T, S)                                                                       \
    __launch_bounds__(32 * WIDTH<T>, (S::W > 1 && S::K * sizeof(T) <= 64 ? 40 : 24) / WIDTH<T>)

/* A team computes the sums of a row, and a thread its results: later, if a team has several. */
template <typename T, typename S>
__global__ void FORWARD_BOUNDS(T, S)
    staged_forward_kernel(cross_entropy a, int64_t R, const staged s, loss_options opt, part *parts)
{
    extern __shared__ uint4 staged_smem[];
    smem_arena smem = {(unsigned char *)staged_smem, 0};
    const staged_tile<T> t = alloc_tile<T>(&smem, s, FORWARD);
    const staged_chunk own(R, s, blockIdx.x);
    const staged_lane<S> at;
    float loss = 0;
    int count = 0;

    const auto finish = [&](int r, const running &all, float depth) {
        const row_label label = row_label_in(t.target[r], t.x + r * s.N, s.N);
        loss += store_results(a, own.first + r, s.N, opt, label, all, depth);
        count += label.target != opt.ignored;
    };
    pdl_launch_dependents();
    stage_in(t.x, (const T *)a.logits + own.first * s.N, own.there * s.N);
    stage_in(t.target, (const int64_t *)a.target + own.first, own.there);
    stage_ready();
    #pragma unroll 1
    for (int r = at.team; r < s.rows; r += s.teams) {
        const T *const row = t.x + min(r, own.there - 1) * s.N;
        const staged_vectors<S, T> x(at, row, s.N, -INFINITY);
        const float top = warp_max<S::LANES>(max_of(x.v));
        float sum = 0, depth = 0;
        #pragma unroll
        for (int k = 0; k < S::K; k++)
            sum += power(x[k], top, LOG2E);
        sum = warp_sum<S::LANES>(sum);
        if (opt.smoothing > 0) {
            #pragma unroll
            for (int k = 0; k < S::K; k++)
                depth += at.has(k, s.N) ? top - x[k] : 0;
            depth = warp_sum<S::LANES>(depth);
        }
        if (S::LANES == 1 && r < own.there) {
            finish(r, {top, sum}, depth);
        } else if (S::LANES > 1 && at.lane == 0) {
            t.top[r] = top;
            t.sum[r] = sum;
            t.depth[r] = depth;
        }
    }
    if constexpr (S::LANES > 1) {
        __syncthreads();
        for (int r = threadIdx.x; r < own.there; r += s.threads)
            finish(r, {t.top[r], t.sum[r]}, t.depth[r]);
    }
    store_part(parts, loss, count);
}

/* d: the gradient of row_loss with the mean's.  likely: the factor of e^(x - top) in dx. */
struct row_slope {
    float d, likely;
};

template <typename T>
static __device__ __forceinline__ row_slope row_slope_of(const staged_tile<T> &t, int r,
                                                         float d_loss, int64_t ignored)
{
    const float d = t.target[r] == ignored ? 0 : d_loss + t.d_row_loss[r];
    return {d, (d + t.d_lse[r]) / t.sum[r]};
}

/* A thread computes the coefficients of a row, and then a team its gradient.  The target's is written
 * twice, by the same lane. */
template <typename T, typename S>
__global__ void STAGED_BOUNDS(T) staged_backward_kernel(cross_entropy a, cross_entropy g, int64_t R,
                                                        const staged s, loss_options opt)
{
    extern __shared__ uint4 staged_smem[];
    smem_arena smem = {(unsigned char *)staged_smem, 0};
    const staged_tile<T> t = alloc_tile<T>(&smem, s, BACKWARD);
    const staged_chunk own(R, s, blockIdx.x);
    const staged_lane<S> at;

    stage_in(t.x, (const T *)a.logits + own.first * s.N, own.there * s.N);
    stage_in(t.target, (const int64_t *)a.target + own.first, own.there);
    stage_in(t.top, (const float *)a.top + own.first, own.there);
    stage_in(t.sum, (const float *)a.sum + own.first, own.there);
    stage_in(t.d_row_loss, (const float *)g.row_loss + own.first, own.there);
    stage_in(t.d_lse, (const float *)g.lse + own.first, own.there);
    const float d_loss = *(const float *)g.loss / (float)*(const int64_t *)a.count;
    stage_ready();
    if constexpr (S::LANES > 1) {
        for (int r = threadIdx.x; r < own.there; r += s.threads) {
            const row_slope c = row_slope_of(t, r, d_loss, opt.ignored);
            t.d_row_loss[r] = c.d;
            t.sum[r] = c.likely;
        }
        __syncthreads();
    }
    #pragma unroll 1
    for (int r = at.team; r < own.there; r += s.teams) {
        T *const row = t.x + r * s.N;
        const int64_t target = t.target[r];
        const row_slope c = S::LANES > 1 ? row_slope{t.d_row_loss[r], t.sum[r]}
                                         : row_slope_of(t, r, d_loss, opt.ignored);
        const float top = t.top[r];
        const float of_target = c.d * (1 - opt.smoothing), uniform = c.d * (opt.smoothing / s.N);
        const bool owner = target >= 0 && target < s.N && at.owns((int)target);
        const float logit = owner ? load(row + target) : 0;
        const auto gradient = [&](float x) {
            return fmaf(c.likely, power(x, top, LOG2E), -uniform);
        };
        const staged_vectors<S, T> x(at, row, s.N, 0);
        at.store_row(row, s.N, [&](int k) { return gradient(x[k]); });
        if (owner)
            store(row + target, gradient(logit) - of_target);
    }
    __syncthreads();
    stage_out((T *)g.logits + own.first * s.N, t.x, own.there * s.N);
}

/* The more bytes a row has besides its logits, the fewer rows. */
template <typename T>
static staged staged_of(const struct call *f)
{
    const int64_t row = DIM(f, 'V') * (int64_t)sizeof(T);
    return staged_rows_wide<T>(DIM(f, 'R'), DIM(f, 'V'), STAGED_BYTES * row / (row + ROW_BYTES),
                               gpu_limits(f)->sms);
}

template <typename T>
static size_t staged_smem_bytes(const struct call *f, enum pass p)
{
    return (size_t)arena_bytes<alloc_tile<T>>(staged_of<T>(f), p);
}

template <typename T>
static int staged_forward(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    const staged s = staged_of<T>(f);
    const size_t bytes = staged_smem_bytes<T>(f, FORWARD);
    const int64_t R = DIM(f, 'R'), blocks = ceil_div(R, s.rows);

    CUDA(staged_start_wide<T>(s.N, [&](auto shape) -> int {
        const auto kernel = staged_forward_kernel<T, decltype(shape)>;
        CUDA(allow_smem(kernel, bytes));
        kernel<<<blocks, s.threads, bytes, gpu_stream(f)>>>(*a, R, s, loss_options_of(f),
                                                            (part *)f->work);
        return cudaGetLastError();
    }));
    return mean_of_parts(f, blocks);
}

template <typename T>
static int staged_backward(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy), *g = GRADS(f, cross_entropy);
    const staged s = staged_of<T>(f);
    const size_t bytes = staged_smem_bytes<T>(f, BACKWARD);
    const int64_t R = DIM(f, 'R');

    return staged_start_wide<T>(s.N, [&](auto shape) -> int {
        const auto kernel = staged_backward_kernel<T, decltype(shape)>;
        CUDA(allow_smem(kernel, bytes));
        kernel<<<ceil_div(R, s.rows), s.threads, bytes, gpu_stream(f)>>>(*a, *g, R, s,
                                                                         loss_options_of(f));
        return cudaGetLastError();
    });
}

template <typename T>
static const char *staged_declines(const struct call *f)
{
    if (DIM(f, 'V') > STAGED_COLUMNS)
        return STAGED_TOO_LONG;
    return staged_smem_bytes<T>(f, BACKWARD) > gpu_limits(f)->smem ? STAGED_NO_SMEM : NULL;
}

template <typename T>
static size_t staged_work(const struct call *f, enum pass p)
{
    return p == FORWARD ? ceil_div(DIM(f, 'R'), staged_of<T>(f).rows) * sizeof(part) : 0;
}

/* ---- online ---- */

/* One block per row.  It reads the row once, with 16-byte loads for any alignment, and computes the
 * online maximum and sum; with smoothing also the sum of (maximum - x).  The loads of the next
 * AHEAD vectors are in flight while the current ones are processed. */
template <typename T, bool SMOOTH>
__global__ void __launch_bounds__(MAX_THREADS, SMOOTH ? RESIDENT - 1 : RESIDENT)
    online_forward_kernel(cross_entropy a, int V, loss_options opt)
{
    __shared__ float smem[96];
    const int64_t r = blockIdx.x;
    const T *x = (const T *)a.logits + r * V;
    const extent<T> e(r, V);
    const int i = threadIdx.x, threads = blockDim.x;
    vec<T> next[AHEAD];
    running so_far;
    depth below;
    row_label label;
    float edge = -INFINITY, top;

    pdl_launch_dependents();
    load_vectors<true>(next, x + e.head, e.body, 0, i, threads, -INFINITY);
    if (i < e.edges)
        edge = load(x + e.edge(i));
    if (i == 0)
        label = row_label_of(a, x, r, V);
    for (int first = 0; first * e.SIZE < e.body;) {
        vec<T> v[AHEAD];
        const int now = first;
        #pragma unroll AHEAD
        for (int k = 0; k < AHEAD; k++)
            v[k] = next[k];
        first += AHEAD * threads;
        load_vectors<true>(next, x + e.head, e.body, first, i, threads, -INFINITY);
        top = so_far.top;
        accumulate(so_far, v, LOG2E);
        if (SMOOTH) {
            below.rescale(top, so_far.top);
            #pragma unroll AHEAD
            for (int k = 0; k < AHEAD; k++)
                if ((now + i + k * threads) * e.SIZE < e.body)
                    below.add_vector(v[k], so_far.top);
        }
    }
    top = so_far.top;
    rescale(so_far, max_nan(so_far.top, edge), LOG2E);
    so_far.sum += power(edge, so_far.top, LOG2E);
    block_running(so_far, LOG2E, smem);
    if (SMOOTH) {
        below.rescale(top, so_far.top);
        if (i < e.edges)
            below.add(edge, so_far.top);
        below.sum = block_sum(below.sum, smem + 64);
    }
    if (i == 0)
        store_results(a, r, V, opt, label, so_far, below.sum);
}

/* Computes the probabilities again from logits, top and sum, in registers: logits are read once and
 * dlogits are written once.  Only the target's dlogit is written twice, by the same thread. */
template <typename T>
__global__ void __launch_bounds__(MAX_THREADS_BACK, RESIDENT_BACK)
    online_backward_kernel(cross_entropy a, cross_entropy g, int V, loss_options opt)
{
    const int64_t r = blockIdx.x, target = ((const int64_t *)a.target)[r];
    const T *x = (const T *)a.logits + r * V;
    T *dx = (T *)g.logits + r * V;
    const extent<T> e(r, V);
    const int i = threadIdx.x, threads = blockDim.x;
    const float edge = i < e.edges ? load(x + e.edge(i)) : 0;
    slope d = {};
    float top = 0;

    const auto gradient = [&](float logit) {
        return fmaf(d.likely, power(logit, top, LOG2E), -d.uniform);
    };
    for (int first = 0; first == 0 || first * e.SIZE < e.body; first += AHEAD * threads) {
        vec<T> v[AHEAD];
        load_vectors<true>(v, x + e.head, e.body, first, i, threads, 0);
        if (first == 0) { /* overlaps with the first loads */
            d = slope_of(a, g, r, V, opt);
            top = ((const float *)a.top)[r];
        }
        store_vectors<true, AHEAD>(dx + e.head, e.body, first, i, threads,
                                   [&](int k, int j) { return gradient(v[k][j]); });
    }
    if (i < e.edges)
        store(dx + e.edge(i), gradient(edge));
    if (target >= 0 && target < V && e.thread_of((int)target, threads) == i)
        store(dx + target, gradient(load(x + target)) - d.target);
}

template <typename T>
static unsigned threads_of(const struct call *f, unsigned max_threads)
{
    return min(threads_for(vectors_of<T>(DIM(f, 'V')), AHEAD), max_threads);
}

template <typename T>
static int online_forward(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    const loss_options opt = loss_options_of(f);
    const auto kernel =
        opt.smoothing > 0 ? online_forward_kernel<T, true> : online_forward_kernel<T, false>;
    kernel<<<DIM(f, 'R'), threads_of<T>(f, MAX_THREADS), 0, gpu_stream(f)>>>(*a, (int)DIM(f, 'V'),
                                                                             opt);
    CUDA(cudaGetLastError());
    return mean(f);
}

template <typename T>
static int online_backward(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy), *g = GRADS(f, cross_entropy);
    const auto kernel = online_backward_kernel<T>;
    kernel<<<DIM(f, 'R'), threads_of<T>(f, MAX_THREADS_BACK), 0, gpu_stream(f)>>>(
        *a, *g, (int)DIM(f, 'V'), loss_options_of(f));
    return cudaGetLastError();
}

/* ---- two_pass ---- */

/* One block per row: it reads the row for the maximum, and again for the sum of the
 * exponentials. */
template <typename T>
__global__ void two_pass_forward_kernel(cross_entropy a, int V, loss_options opt)
{
    __shared__ float smem[96];
    const int64_t r = blockIdx.x;
    const T *x = (const T *)a.logits + r * V;
    running all;
    float below = 0;

    all.top = -INFINITY;
    for (int j = threadIdx.x; j < V; j += blockDim.x)
        all.top = max_nan(all.top, load(x + j));
    all.top = block_max(all.top, smem);
    for (int j = threadIdx.x; j < V; j += blockDim.x) {
        all.sum += power(load(x + j), all.top, LOG2E);
        below += all.top - load(x + j);
    }
    all.sum = block_sum(all.sum, smem + 32);
    below = block_sum(below, smem + 64);
    if (threadIdx.x == 0)
        store_results(a, r, V, opt, row_label_of(a, x, r, V), all, below);
}

template <typename T>
__global__ void two_pass_backward_kernel(cross_entropy a, cross_entropy g, int V, loss_options opt)
{
    const int64_t r = blockIdx.x, target = ((const int64_t *)a.target)[r];
    const T *x = (const T *)a.logits + r * V;
    T *dx = (T *)g.logits + r * V;
    const slope d = slope_of(a, g, r, V, opt);
    const float top = ((const float *)a.top)[r];

    for (int j = threadIdx.x; j < V; j += blockDim.x) {
        const float minus = j == target ? d.target + d.uniform : d.uniform;
        store(dx + j, d.likely * power(load(x + j), top, LOG2E) - minus);
    }
}

static unsigned two_pass_threads(const struct call *f)
{
    return min(threads_for(DIM(f, 'V'), 1), (unsigned)BLOCK);
}

template <typename T>
static int two_pass_forward(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    const auto kernel = two_pass_forward_kernel<T>;
    kernel<<<DIM(f, 'R'), two_pass_threads(f), 0, gpu_stream(f)>>>(*a, (int)DIM(f, 'V'),
                                                                   loss_options_of(f));
    CUDA(cudaGetLastError());
    return mean(f);
}

template <typename T>
static int two_pass_backward(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy), *g = GRADS(f, cross_entropy);
    const auto kernel = two_pass_backward_kernel<T>;
    kernel<<<DIM(f, 'R'), two_pass_threads(f), 0, gpu_stream(f)>>>(*a, *g, (int)DIM(f, 'V'),
                                                                   loss_options_of(f));
    return cudaGetLastError();
}

GPU_KERNEL(staged, .idea = "many short rows at once in shared memory",
           .pass = {staged_forward<T>, staged_backward<T>}, .work = staged_work<T>,
           .declines = staged_declines<T>, APPROXIMATELY("ex2.approx"));
GPU_KERNEL(online, .idea = "logits read once, whatever their alignment",
           .pass = {online_forward<T>, online_backward<T>}, .work = mean_work,
           APPROXIMATELY("ex2.approx"));
GPU_KERNEL(two_pass, .idea = "a block per row, which is read for each step",
           .pass = {two_pass_forward<T>, two_pass_backward<T>}, .work = mean_work,
           APPROXIMATELY("ex2.approx"));

GPU_KERNELS(cross_entropy, IN_TYPES(staged) IN_TYPES(online) IN_TYPES(two_pass));
