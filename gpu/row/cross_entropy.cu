#include "common/ops/cross_entropy.h"
#include "gpu/device/math.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/row/softmax.cuh"

/* Forward, a block finds what there is to know of a row; then one block, which comes while the last
 * rows are still in flight, adds up the rows' losses in a fixed order. */

enum {
    BLOCK = 256,
    MOST = 128,   /* threads of a long row, forward: small blocks, so that few wait at its end */
    RESIDENT = 8, /* and how many of them an SM has */
    MOST_BACK = 512,
    RESIDENT_BACK = 3,
    MEAN = 512, /* threads of the block that takes the mean */
    AHEAD = 4   /* vectors of a thread at a time */
};

/* How row r of n logits lies in memory, where it begins anywhere: the `head` before the first
 * 16-byte boundary and the tail after the last are its edges, fewer than two vectors' numbers;
 * a thread has its vectors in turn, and one edge number at most. */
template <typename T>
struct extent {
    enum { SIZE = vector_of<T>::SIZE };
    int head, body, edges; /* body: all vectors' numbers */

    __device__ __forceinline__ extent(int64_t r, int n)
    {
        const unsigned first = (unsigned)r * (unsigned)n; /* its last bits are enough */
        head = min((int)(-first & (SIZE - 1)), n);
        body = (n - head) / SIZE * SIZE;
        edges = n - body;
    }
    /* Where in the row the i-th edge number is. */
    __device__ __forceinline__ int edge(int i) const { return i < head ? i : i + body; }
    /* Which of so many threads has number j of the row. */
    __device__ __forceinline__ int thread_of(int j, int threads) const
    {
        return j < head ? j : j < head + body ? (j - head) / SIZE % threads : j - body;
    }
};

/* How far so many numbers are below the largest of them, added up. */
struct depth {
    float sum = 0;
    int numbers = 0;

    /* The largest has become another. */
    __device__ __forceinline__ void raise(float from, float to)
    {
        sum += numbers ? numbers * (to - from) : 0;
    }
    __device__ __forceinline__ void add(float x, float top)
    {
        sum += top - x;
        numbers++;
    }
    template <typename T>
    __device__ __forceinline__ void add_vector(const uint4 &v, float top)
    {
        #pragma unroll 8
        for (int i = 0; i < vector_of<T>::SIZE; i++)
            add(number<T>(v, i), top);
    }
};

/* What a row's target says. */
struct aim {
    int64_t ignored;
    float smoothing;
};

static struct aim aim_of(const struct frame *f)
{
    return {DIM(f, 'I'), (float)f->real[CROSS_SMOOTHING]};
}

/* The target of a row x, and the logit that it is; 0 where there is none. */
struct mark {
    int64_t target = 0;
    float logit = 0;
};

template <typename T>
static __device__ __forceinline__ mark mark_of(const cross_entropy &a, const T *x, int64_t r, int V)
{
    const int64_t target = ((const int64_t *)a.target)[r];
    return {target, target >= 0 && target < V ? load(x + target) : 0};
}

/* row_loss, when all is known of a row; depth is so if there is smoothing. */
static __device__ __forceinline__ float loss_of(const mark &wanted, int V, const aim &to, float top,
                                                float log_sum, float depth)
{
    if (wanted.target == to.ignored)
        return 0;
    if (wanted.target < 0 || wanted.target >= V)
        return NAN;
    const float unlikely = log_sum + (1 - to.smoothing) * (top - wanted.logit);
    return to.smoothing > 0 ? unlikely + to.smoothing * (depth / V) : unlikely;
}

/* By one thread: the results of row r.  (A sum of 0 is of nothing but -inf.) */
static __device__ __forceinline__ void conclude(const cross_entropy &a, int64_t r, int V,
                                                const aim &to, const mark &wanted,
                                                const running &all, float depth)
{
    const float top = all.sum == 0 ? -INFINITY : all.top, sum = all.sum == 0 ? NAN : all.sum;
    const float log_sum = logf(sum);

    ((float *)a.top)[r] = top;
    ((float *)a.sum)[r] = sum;
    ((float *)a.lse)[r] = isinf(top) ? top : top + log_sum;
    ((float *)a.row_loss)[r] = loss_of(wanted, V, to, top, log_sum, depth);
}

__global__ void __launch_bounds__(MEAN)
    mean_kernel(const float *row_loss, const int64_t *target, float *loss, int64_t *count,
                int64_t R, int64_t ignored)
{
    __shared__ float room[32];
    __shared__ int counts[32];
    int mine = 0;
    float sum = 0;

    for (int64_t r = threadIdx.x; r < R; r += MEAN)
        mine += target[r] != ignored;
    mine = (int)__reduce_add_sync(~0u, (unsigned)mine);
    if (threadIdx.x % 32 == 0)
        counts[threadIdx.x / 32] = mine;
    pdl_wait();
    #pragma unroll 8
    for (int64_t r = threadIdx.x; r < R; r += MEAN)
        sum += row_loss[r];
    sum = block_sum(sum, room);
    if (threadIdx.x)
        return;
    int all = 0;
    for (int w = 0; w < MEAN / 32; w++)
        all += counts[w];
    *count = all;
    *loss = all ? sum / all : 0;
}

static int mean(const struct frame *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    return launch_pdl(mean_kernel, 1, MEAN, 0, (const float *)a->row_loss,
                      (const int64_t *)a->target, (float *)a->loss, (int64_t *)a->count,
                      DIM(f, 'R'), DIM(f, 'I'));
}

/* What backward multiplies a row's probabilities by, and what its target takes away. */
struct slope {
    float likely, target, each; /* dx = likely e^(x - top) - each, and - target at the target */
};

static __device__ __forceinline__ slope slope_of(const cross_entropy &a, const cross_entropy &g,
                                                 int64_t r, int V, const aim &to)
{
    const bool ignored = ((const int64_t *)a.target)[r] == to.ignored;
    const float count = (float)*(const int64_t *)a.count;
    const float d = ignored ? 0 : *(const float *)g.loss / count + ((const float *)g.row_loss)[r];
    const float all = d + ((const float *)g.lse)[r];
    return {all / ((const float *)a.sum)[r], d * (1 - to.smoothing), d * (to.smoothing / V)};
}

/* ---- online ---- */

/* A row is read once, sixteen bytes at a time wherever it begins: the largest logit and the sum
 * relative to it run along, and beside them how far the logits are below it if there is smoothing.
 * While some vectors are looked at, the next are in flight. */
template <typename T, bool SMOOTH>
__global__ void __launch_bounds__(MOST, SMOOTH ? RESIDENT - 1 : RESIDENT)
    online_forward_kernel(cross_entropy a, int V, aim to)
{
    __shared__ float room[96];
    const int64_t r = blockIdx.x;
    const T *x = (const T *)a.logits + r * V;
    const extent<T> e(r, V);
    const int i = threadIdx.x, threads = blockDim.x;
    uint4 next[AHEAD];
    running so_far;
    depth below;
    mark wanted;
    float edge = -INFINITY, top;

    pdl_launch_dependents();
    take<true>(next, x + e.head, e.body, 0, i, threads, -INFINITY);
    if (i < e.edges)
        edge = load(x + e.edge(i));
    if (i == 0)
        wanted = mark_of(a, x, r, V);
    for (int first = 0; first * e.SIZE < e.body;) {
        uint4 v[AHEAD];
        const int now = first;
        #pragma unroll AHEAD
        for (int k = 0; k < AHEAD; k++)
            v[k] = next[k];
        first += AHEAD * threads;
        take<true>(next, x + e.head, e.body, first, i, threads, -INFINITY);
        top = so_far.top;
        include<T>(so_far, v, LOG2E);
        if (SMOOTH) {
            below.raise(top, so_far.top);
            #pragma unroll AHEAD
            for (int k = 0; k < AHEAD; k++)
                if ((now + i + k * threads) * e.SIZE < e.body)
                    below.add_vector<T>(v[k], so_far.top);
        }
    }
    top = so_far.top;
    raise(so_far, max_nan(so_far.top, edge), LOG2E);
    so_far.sum += power(edge, so_far.top, LOG2E);
    block_running(so_far, LOG2E, room);
    if (SMOOTH) {
        below.raise(top, so_far.top);
        if (i < e.edges)
            below.add(edge, so_far.top);
        below.sum = block_sum(below.sum, room + 64);
    }
    if (i == 0)
        conclude(a, r, V, to, wanted, so_far, below.sum);
}

/* The probabilities are made of logits, top and sum, and go no further than registers: logits are
 * read once and dlogits written once.  Whoever has written the target's writes it again. */
template <typename T>
__global__ void __launch_bounds__(MOST_BACK, RESIDENT_BACK)
    online_backward_kernel(cross_entropy a, cross_entropy g, int V, aim to)
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
        return fmaf(d.likely, power(logit, top, LOG2E), -d.each);
    };
    for (int first = 0; first == 0 || first * e.SIZE < e.body; first += AHEAD * threads) {
        uint4 v[AHEAD];
        take<true>(v, x + e.head, e.body, first, i, threads, 0);
        if (first == 0) { /* while the first are in flight */
            d = slope_of(a, g, r, V, to);
            top = ((const float *)a.top)[r];
        }
        put<true, AHEAD>(dx + e.head, e.body, first, i, threads,
                         [&](int k, int j) { return gradient(number<T>(v[k], j)); });
    }
    if (i < e.edges)
        store(dx + e.edge(i), gradient(edge));
    if (target >= 0 && target < V && e.thread_of((int)target, threads) == i)
        store(dx + target, gradient(load(x + target)) - d.target);
}

template <typename T>
static unsigned threads_of(const struct frame *f, unsigned most)
{
    return min(threads_for(vectors_of<T>(DIM(f, 'V')), AHEAD), most);
}

template <typename T>
static int online_forward(const struct frame *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    const aim to = aim_of(f);
    const auto kernel =
        to.smoothing > 0 ? online_forward_kernel<T, true> : online_forward_kernel<T, false>;
    kernel<<<DIM(f, 'R'), threads_of<T>(f, MOST), 0, gpu_stream()>>>(*a, (int)DIM(f, 'V'), to);
    CUDA(cudaGetLastError());
    return mean(f);
}

template <typename T>
static int online_backward(const struct frame *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy), *g = GRADS(f, cross_entropy);
    const auto kernel = online_backward_kernel<T>;
    kernel<<<DIM(f, 'R'), threads_of<T>(f, MOST_BACK), 0, gpu_stream()>>>(*a, *g, (int)DIM(f, 'V'),
                                                                          aim_of(f));
    return cudaGetLastError();
}

/* ---- two_pass ---- */

/* Plainly: a row is read for its largest logit, and again for the sum of the exponentials. */
template <typename T>
__global__ void two_pass_forward_kernel(cross_entropy a, int V, aim to)
{
    __shared__ float room[96];
    const int64_t r = blockIdx.x;
    const T *x = (const T *)a.logits + r * V;
    running all;
    float below = 0;

    all.top = -INFINITY;
    for (int j = threadIdx.x; j < V; j += BLOCK)
        all.top = max_nan(all.top, load(x + j));
    all.top = block_max(all.top, room);
    for (int j = threadIdx.x; j < V; j += BLOCK) {
        all.sum += power(load(x + j), all.top, LOG2E);
        below += all.top - load(x + j);
    }
    all.sum = block_sum(all.sum, room + 32);
    below = block_sum(below, room + 64);
    if (threadIdx.x == 0)
        conclude(a, r, V, to, mark_of(a, x, r, V), all, below);
}

template <typename T>
__global__ void two_pass_backward_kernel(cross_entropy a, cross_entropy g, int V, aim to)
{
    const int64_t r = blockIdx.x, target = ((const int64_t *)a.target)[r];
    const T *x = (const T *)a.logits + r * V;
    T *dx = (T *)g.logits + r * V;
    const slope d = slope_of(a, g, r, V, to);
    const float top = ((const float *)a.top)[r];

    for (int j = threadIdx.x; j < V; j += BLOCK) {
        const float wanted = j == target ? d.target + d.each : d.each;
        store(dx + j, d.likely * power(load(x + j), top, LOG2E) - wanted);
    }
}

template <typename T>
static int two_pass_forward(const struct frame *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    const auto kernel = two_pass_forward_kernel<T>;
    kernel<<<DIM(f, 'R'), BLOCK, 0, gpu_stream()>>>(*a, (int)DIM(f, 'V'), aim_of(f));
    CUDA(cudaGetLastError());
    return mean(f);
}

template <typename T>
static int two_pass_backward(const struct frame *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy), *g = GRADS(f, cross_entropy);
    const auto kernel = two_pass_backward_kernel<T>;
    kernel<<<DIM(f, 'R'), BLOCK, 0, gpu_stream()>>>(*a, *g, (int)DIM(f, 'V'), aim_of(f));
    return cudaGetLastError();
}

#define EACH(bits, T)                                                                              \
    RUNG(bits, T, online, "logits read once, whatever their alignment", NULL, "ex2.approx");       \
    RUNG(bits, T, two_pass, "a block a row, which is read for each step", NULL, "ex2.approx");     \
    GPU_KERNEL_LIST(cross_entropy, bits, &online##bits, &two_pass##bits)

EACH(32, float);
EACH(16, __nv_bfloat16);
