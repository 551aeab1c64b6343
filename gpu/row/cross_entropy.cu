/* row_loss = lse(x) - (1 - s) x[target] - s mean(x), s the label smoothing, x a row of logits
 * [R,V]; loss = the mean of row_loss over the rows that are not ignored.  Backward dx = (p - q) d +
 * p dlse, p = softmax(x), q the smoothed target, d the gradient of row_loss.
 *
 * Forward: one block per row computes the results of the row.  A second kernel of one block adds
 * the losses of the rows in a fixed order; PDL launches it before the last rows are done. */
#include "common/ops/cross_entropy.h"
#include "gpu/device/math.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/row/softmax.cuh"

enum {
    BLOCK = 256,
    MAX_THREADS = 128, /* of a block, forward: small, so that few threads wait at a row's end */
    RESIDENT = 8,      /* blocks per SM, forward */
    MAX_THREADS_BACK = 512,
    RESIDENT_BACK = 3,
    MEAN_THREADS = 512, /* threads of the block that computes the mean */
    AHEAD = 4           /* vectors per thread that are loaded together */
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
static __device__ __forceinline__ row_label row_label_of(const cross_entropy &a, const T *x,
                                                         int64_t r, int V)
{
    const int64_t target = ((const int64_t *)a.target)[r];
    return {target, target >= 0 && target < V ? load(x + target) : 0};
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

/* Writes the results of row r; called by one thread.  (The sum is 0 if all logits are -inf.) */
static __device__ __forceinline__ void store_results(const cross_entropy &a, int64_t r, int V,
                                                     const loss_options &opt,
                                                     const row_label &label, const running &all,
                                                     float depth)
{
    const float top = all.sum == 0 ? -INFINITY : all.top, sum = all.sum == 0 ? NAN : all.sum;
    const float log_sum = logf(sum);

    ((float *)a.top)[r] = top;
    ((float *)a.sum)[r] = sum;
    ((float *)a.lse)[r] = isinf(top) ? top : top + log_sum;
    ((float *)a.row_loss)[r] = loss_of(label, V, opt, top, log_sum, depth);
}

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

static int mean(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    return launch_pdl(f->context, mean_kernel, 1, MEAN_THREADS, 0, (const float *)a->row_loss,
                      (const int64_t *)a->target, (float *)a->loss, (int64_t *)a->count,
                      DIM(f, 'R'), DIM(f, 'I'));
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
    for (int j = threadIdx.x; j < V; j += BLOCK)
        all.top = max_nan(all.top, load(x + j));
    all.top = block_max(all.top, smem);
    for (int j = threadIdx.x; j < V; j += BLOCK) {
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

    for (int j = threadIdx.x; j < V; j += BLOCK) {
        const float minus = j == target ? d.target + d.uniform : d.uniform;
        store(dx + j, d.likely * power(load(x + j), top, LOG2E) - minus);
    }
}

template <typename T>
static int two_pass_forward(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    const auto kernel = two_pass_forward_kernel<T>;
    kernel<<<DIM(f, 'R'), BLOCK, 0, gpu_stream(f)>>>(*a, (int)DIM(f, 'V'), loss_options_of(f));
    CUDA(cudaGetLastError());
    return mean(f);
}

template <typename T>
static int two_pass_backward(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy), *g = GRADS(f, cross_entropy);
    const auto kernel = two_pass_backward_kernel<T>;
    kernel<<<DIM(f, 'R'), BLOCK, 0, gpu_stream(f)>>>(*a, *g, (int)DIM(f, 'V'), loss_options_of(f));
    return cudaGetLastError();
}

GPU_KERNEL(online, .idea = "logits read once, whatever their alignment",
           .pass = {online_forward<T>, online_backward<T>}, APPROXIMATELY("ex2.approx"));
GPU_KERNEL(two_pass, .idea = "a block per row, which is read for each step",
           .pass = {two_pass_forward<T>, two_pass_backward<T>}, APPROXIMATELY("ex2.approx"));

GPU_KERNELS(cross_entropy, IN_TYPES(online) IN_TYPES(two_pass));
