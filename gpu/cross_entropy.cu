#include "gpu/softmax.cuh"
#include "common/ops/cross_entropy.h"

/* Forward, blocks find rows' lse and row_loss; then one block, which comes while the last rows
 * are still under way, adds up the rows' losses in a fixed order. */

#ifndef CROSS_ENTROPY_THREADS
#define CROSS_ENTROPY_THREADS 512
#endif
#ifndef CROSS_ENTROPY_STAGES
#define CROSS_ENTROPY_STAGES 3
#endif
#ifndef CROSS_ENTROPY_WAVES /* blocks to one that there is room for; a row is a block's at most */
#define CROSS_ENTROPY_WAVES 1
#endif

enum {
    BLOCK = 256,
    MOST_THREADS = CROSS_ENTROPY_THREADS, /* of a long row */
    RESIDENT = 1024 / MOST_THREADS,       /* blocks of a multiprocessor */
    MEAN = 512,                           /* of the block that takes the mean */
    UNDER_WAY = 4,                        /* vectors of a thread, a piece of a row */
    STAGES = CROSS_ENTROPY_STAGES,        /* pieces in shared memory, all but one on their way */
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

/* A block's rows, gridDim.x apart, as they come in: piece after piece, at least one of a row, the
 * next row's right behind the last of this one; each vector to where only its thread goes. */
template <typename T>
struct stream {
    enum { SIZE = vector_of<T>::SIZE };
    const T *logits;
    uint4 *room; /* [STAGES][UNDER_WAY][threads], from the thread's own on */
    int64_t r;   /* of the next piece to send for */
    int64_t R;
    int V, first; /* its first vector */
    int sent, taken;

    __device__ __forceinline__ stream(uint4 *room, const T *logits, int64_t R, int V)
        : logits(logits), room(room + threadIdx.x), r(blockIdx.x), R(R), V(V), first(0), sent(0),
          taken(0)
    {
        for (int stage = 0; stage < STAGES - 1; stage++)
            send();
    }
    __device__ __forceinline__ uint4 *place(int stage, int k) const
    {
        return room + (stage * UNDER_WAY + k) * (int)blockDim.x;
    }
    __device__ __forceinline__ void send(void)
    {
        if (r < R) {
            const extent<T> e(r, V);
            const T *body = logits + r * V + e.head;
            UNROLL(UNDER_WAY)
            for (int k = 0; k < UNDER_WAY; k++) {
                const int vector = first + (int)threadIdx.x + k * (int)blockDim.x;
                if (vector * SIZE < e.body)
                    cp_async16(place(sent, k), body + vector * SIZE);
            }
            first += UNDER_WAY * blockDim.x;
            if (first * SIZE >= e.body) {
                r += gridDim.x;
                first = 0;
            }
        }
        cp_async_commit();
        sent = sent + 1 < STAGES ? sent + 1 : 0;
    }
    /* The next piece, which begins at vector `from` of a body of so many numbers; `fill` beyond
     * them. */
    __device__ __forceinline__ void take(uint4 (&v)[UNDER_WAY], int from, int body, float fill)
    {
        cp_async_wait<STAGES - 2>();
        UNROLL(UNDER_WAY)
        for (int k = 0; k < UNDER_WAY; k++) {
            const int vector = from + (int)threadIdx.x + k * (int)blockDim.x;
            v[k] = vector * SIZE < body ? *place(taken, k) : vector_full<T>(fill);
        }
        send();
        taken = taken + 1 < STAGES ? taken + 1 : 0;
    }
};

/* The sum of a vector, on top of what there is. */
template <typename T>
static __device__ __forceinline__ float total(const uint4 &v, float so_far)
{
    UNROLL(8)
    for (int i = 0; i < vector_of<T>::SIZE; i++)
        so_far += number<T>(v, i);
    return so_far;
}

/* What a row's target says. */
struct aim {
    int64_t ignored;
    float smoothing;
};

static struct aim aim_of(const struct frame *f)
{
    return {DIM(f, 'I'), (float)f->real[CROSS_SMOOTHING]};
}

/* The target's logit, if it has one. */
template <typename T>
static __device__ __forceinline__ float logit_of(const T *x, int V, int64_t target)
{
    return target >= 0 && target < V ? load(x + target) : 0;
}

/* By one thread, when lse and, if there is smoothing, the sum of the row's logits are known. */
static __device__ __forceinline__ float loss_of(float logit, int V, int64_t target, const aim &a,
                                                float lse, float sum)
{
    if (target == a.ignored)
        return 0;
    if (target < 0 || target >= V)
        return NAN;
    const float likely = lse - (1 - a.smoothing) * logit;
    return a.smoothing > 0 ? likely - a.smoothing * (sum / V) : likely;
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
    wait_for_kernel_before();
    UNROLL(8)
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
    return launch_early(mean_kernel, 1, MEAN, 0, (const float *)a->row_loss,
                        (const int64_t *)a->target, (float *)a->loss, (int64_t *)a->count,
                        DIM(f, 'R'), DIM(f, 'I'));
}

/* What a row's gradient is made of, as it is read; and what backward multiplies the row's
 * probabilities by, and what its target takes away. */
struct row_slopes {
    int64_t target = 0;
    float lse = 0, d_row_loss = 0, d_lse = 0;

    __device__ __forceinline__ row_slopes(const cross_entropy &a, const cross_entropy &g, int64_t r,
                                          int64_t R)
    {
        if (r >= R)
            return;
        target = ((const int64_t *)a.target)[r];
        lse = ((const float *)a.lse)[r];
        d_row_loss = ((const float *)g.row_loss)[r];
        d_lse = ((const float *)g.lse)[r];
    }
};

struct slope {
    float likely, target, each; /* dx = likely e^(x - lse) - each, and - target at the target */
};

/* What a row has of the gradient of the mean. */
static __device__ __forceinline__ float share_of(const cross_entropy &a, const cross_entropy &g)
{
    return *(const float *)g.loss / (float)*(const int64_t *)a.count;
}

static __device__ __forceinline__ slope slope_of(const row_slopes &s, float share, int V,
                                                 const aim &to)
{
    const float d = s.target == to.ignored ? 0 : share + s.d_row_loss;
    return {d + s.d_lse, d * (1 - to.smoothing), d * (to.smoothing / V)};
}

/* ---- online ---- */

/* Rows are read once, sixteen bytes at a time wherever they begin: the largest logit and the sum
 * relative to it run along, and beside them the sum of the logits if there is smoothing.  Warps
 * meet once a row, and all but the first go on to the next; what that needs besides is there
 * before. */
template <typename T>
__global__ void __launch_bounds__(MOST_THREADS, RESIDENT)
    online_forward_kernel(const T *logits, const int64_t *targets, float *row_loss, float *lse,
                          int64_t R, int V, aim to)
{
    extern __shared__ uint4 room[];
    __shared__ float tops[2][32]; /* that warps have found, of this row and of the next */
    __shared__ float powers[2][32];
    __shared__ float sums[2][32];
    const int i = threadIdx.x, threads = blockDim.x, lane = i % 32, warp = i / 32;
    const auto edge_of = [&](int64_t r) {
        const extent<T> e(min(r, R - 1), V);
        return r < R && i < e.edges ? load(logits + r * V + e.edge(i)) : 0;
    };
    const auto target_of = [&](int64_t r) { return i == 0 && r < R ? targets[r] : -1; };

    let_next_kernel_start();
    stream<T> rows(room, logits, R, V);
    int64_t next_target = target_of(blockIdx.x);
    float next_edge = edge_of(blockIdx.x);
    int met = 0;
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x, met = 1 - met) {
        const extent<T> e(r, V);
        const int64_t target = next_target;
        const float logit = logit_of(logits + r * V, V, target);
        running so_far;
        float sum = 0;

        if (i < e.edges) {
            sum = next_edge;
            so_far = {fmaxf(sum, LOWEST), 0};
            so_far.sum = power(sum, so_far.top, LOG2E);
        }
        next_target = target_of(r + gridDim.x);
        next_edge = edge_of(r + gridDim.x);
        for (int first = 0; first == 0 || first * e.SIZE < e.body; first += UNDER_WAY * threads) {
            uint4 v[UNDER_WAY];
            rows.take(v, first, e.body, -INFINITY);
            include<T>(so_far, v, LOG2E);
            if (to.smoothing > 0) {
                UNROLL(UNDER_WAY)
                for (int k = 0; k < UNDER_WAY; k++)
                    if ((first + i + k * threads) * e.SIZE < e.body)
                        sum = total<T>(v[k], sum);
            }
        }
        raise(so_far, lanes_max(so_far.top), LOG2E);
        so_far.sum = lanes_sum(so_far.sum);
        if (to.smoothing > 0)
            sum = lanes_sum(sum);
        if (lane == 0) {
            tops[met][warp] = so_far.top;
            powers[met][warp] = so_far.sum;
            sums[met][warp] = sum;
        }
        __syncthreads();
        if (warp > 0)
            continue;
        if (lane < threads / 32)
            so_far = {tops[met][lane], powers[met][lane]};
        else
            so_far = {LOWEST, 0};
        sum = lane < threads / 32 ? sums[met][lane] : 0;
        raise(so_far, lanes_max(so_far.top), LOG2E);
        so_far.sum = lanes_sum(so_far.sum);
        if (to.smoothing > 0)
            sum = lanes_sum(sum);
        if (lane == 0) {
            lse[r] = so_far.top + logf(so_far.sum);
            row_loss[r] = loss_of(logit, V, target, to, lse[r], sum);
        }
    }
}

/* The probabilities are made of logits and lse, and go no further than registers: logits are
 * read once and dlogits written once.  Whoever has written the target's writes it again.  Warps
 * never wait for each other. */
template <typename T>
__global__ void __launch_bounds__(MOST_THREADS, RESIDENT)
    online_backward_kernel(cross_entropy a, cross_entropy g, int64_t R, int V, aim to)
{
    extern __shared__ uint4 room[];
    const T *logits = (const T *)a.logits;
    const int i = threadIdx.x, threads = blockDim.x;
    stream<T> rows(room, logits, R, V);
    row_slopes next(a, g, blockIdx.x, R);
    const float share = share_of(a, g);

    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        const row_slopes now = next;
        const slope d = slope_of(now, share, V, to);
        const int64_t target = now.target;
        const T *x = logits + r * V;
        T *dx = (T *)g.logits + r * V;
        const extent<T> e(r, V);
        const auto gradient = [&](float logit) {
            return fmaf(d.likely, power(logit, now.lse, LOG2E), -d.each);
        };

        next = row_slopes(a, g, r + gridDim.x, R);
        for (int first = 0; first == 0 || first * e.SIZE < e.body; first += UNDER_WAY * threads) {
            uint4 v[UNDER_WAY];
            rows.take(v, first, e.body, 0);
            put<true, UNDER_WAY>(dx + e.head, e.body, first, i, threads,
                                 [&](int k, int j) { return gradient(number<T>(v[k], j)); });
        }
        if (i < e.edges)
            store(dx + e.edge(i), gradient(load(x + e.edge(i))));
        if (target >= 0 && target < V && e.thread_of((int)target, threads) == i)
            store(dx + target, gradient(load(x + target)) - d.target);
    }
}

template <typename T>
static unsigned threads_of(const struct frame *f)
{
    return min(threads_for(vectors_of<T>(DIM(f, 'V')), UNDER_WAY), (unsigned)MOST_THREADS);
}

/* As many blocks as run at the same time, and so many bytes of shared memory each. */
template <typename F>
static cudaError_t blocks_of(F *kernel, int64_t rows, int threads, int64_t *blocks, int *bytes)
{
    int on_one;

    *bytes = STAGES * UNDER_WAY * threads * (int)sizeof(uint4);
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, *bytes));
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&on_one, kernel, threads, *bytes));
    const int64_t together = (int64_t)on_one * gpu_properties().multiProcessorCount;
    *blocks = min(rows, CROSS_ENTROPY_WAVES * together);
    return cudaSuccess;
}

template <typename T>
static int online_forward(const struct frame *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    const auto kernel = online_forward_kernel<T>;
    const unsigned threads = threads_of<T>(f);
    int64_t blocks;
    int bytes;

    CUDA(blocks_of(kernel, DIM(f, 'R'), threads, &blocks, &bytes));
    kernel<<<blocks, threads, bytes, gpu_stream()>>>(
        (const T *)a->logits, (const int64_t *)a->target, (float *)a->row_loss, (float *)a->lse,
        DIM(f, 'R'), (int)DIM(f, 'V'), aim_of(f));
    CUDA(cudaGetLastError());
    return mean(f);
}

template <typename T>
static int online_backward(const struct frame *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy), *g = GRADS(f, cross_entropy);
    const auto kernel = online_backward_kernel<T>;
    const unsigned threads = threads_of<T>(f);
    int64_t blocks;
    int bytes;

    CUDA(blocks_of(kernel, DIM(f, 'R'), threads, &blocks, &bytes));
    kernel<<<blocks, threads, bytes, gpu_stream()>>>(*a, *g, DIM(f, 'R'), (int)DIM(f, 'V'),
                                                     aim_of(f));
    return cudaGetLastError();
}

/* ---- two_pass ---- */

/* Plainly: a row is read for its largest logit, and again for the sum of the exponentials. */
template <typename T>
__global__ void two_pass_forward_kernel(const T *logits, const int64_t *target, float *row_loss,
                                        float *lse, int V, aim to)
{
    __shared__ float room[96];
    const int64_t r = blockIdx.x;
    const T *x = logits + r * V;
    float most = -INFINITY, powers = 0, sum = 0;

    for (int j = threadIdx.x; j < V; j += BLOCK)
        most = fmaxf(most, load(x + j));
    most = block_max(most, room);
    for (int j = threadIdx.x; j < V; j += BLOCK) {
        powers += power(load(x + j), most, LOG2E);
        sum += load(x + j);
    }
    powers = block_sum(powers, room + 32);
    sum = block_sum(sum, room + 64);
    if (threadIdx.x)
        return;
    lse[r] = most + logf(powers);
    row_loss[r] = loss_of(logit_of(x, V, target[r]), V, target[r], to, lse[r], sum);
}

template <typename T>
__global__ void two_pass_backward_kernel(cross_entropy a, cross_entropy g, int V, aim to)
{
    const int64_t r = blockIdx.x, target = ((const int64_t *)a.target)[r];
    const T *x = (const T *)a.logits + r * V;
    T *dx = (T *)g.logits + r * V;
    const slope d = slope_of(row_slopes(a, g, r, r + 1), share_of(a, g), V, to);
    const float lse = ((const float *)a.lse)[r];

    for (int j = threadIdx.x; j < V; j += BLOCK) {
        const float wanted = j == target ? d.target + d.each : d.each;
        store(dx + j, d.likely * power(load(x + j), lse, LOG2E) - wanted);
    }
}

template <typename T>
static int two_pass_forward(const struct frame *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    two_pass_forward_kernel<<<DIM(f, 'R'), BLOCK, 0, gpu_stream()>>>(
        (const T *)a->logits, (const int64_t *)a->target, (float *)a->row_loss, (float *)a->lse,
        (int)DIM(f, 'V'), aim_of(f));
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
