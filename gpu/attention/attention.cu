/* attention (common/ops/attention.h).
 *
 * naive writes all scores to memory: P_ij of each head is a matrix [T,S] in the workspace, and each
 * formula is a kernel of its own, with a thread for each element of its result.  A factor that is 0
 * is skipped: what a query does not see reaches no result, whatever it holds.
 *
 * tiled is in attention_tiled.cu and attention_tiled_back.cu. */
#include "gpu/attention/attention.cuh"
#include "gpu/device/reduce.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

/* Matrices [B,H,T,S] and delta [B,H,T] in the workspace. */
struct matrices {
    float *P;       /* forward: s, then P Z / (1 - p), which backward has, too */
    float *du, *ds; /* ds: bias = full */
    float *delta;
};

static matrices matrices_of(const struct call *f, enum pass p, work_arena *a)
{
    const int64_t rows = DIM(f, 'B') * DIM(f, 'H') * DIM(f, 'T'), n = rows * DIM(f, 'S');
    matrices m = {take<float>(a, n), NULL, NULL, NULL};

    if (p == BACKWARD) {
        m.du = take<float>(a, n);
        m.ds = take<float>(a, f->choice[ATTENTION_BIAS] == BIAS_FULL ? n : 0);
        m.delta = take<float>(a, rows);
    }
    return m;
}

static size_t work(const struct call *f, enum pass p)
{
    work_arena a = {NULL, 0};
    matrices_of(f, p, &a);
    return a.bytes;
}

/* An element of a matrix [B,H,T,S]. */
struct score_index {
    int64_t b, h, i, j;
    __device__ __forceinline__ score_index(const attention_shape &n, int64_t at)
    {
        j = at % n.S;
        i = at / n.S % n.T;
        h = at / (n.S * n.T) % n.H;
        b = at / (n.S * n.T * n.H);
    }
};

static __device__ __forceinline__ int64_t thread_index(void)
{
    return (int64_t)blockIdx.x * THREADS + threadIdx.x;
}

template <typename T>
static __device__ __forceinline__ float dot(const T *x, const T *y, int n)
{
    float sum = 0;
    for (int d = 0; d < n; d++)
        sum += load(x + d) * load(y + d);
    return sum;
}

/* ---- forward ---- */

/* s_ij, -inf where i does not see j */
template <typename T>
__global__ void scores_kernel(attention_shape n, const T *q, const T *k, const T *bias, float *s)
{
    const int64_t at = thread_index();
    if (at >= n.B * n.H * n.T * n.S)
        return;
    const score_index p(n, at);
    float x = -INFINITY;
    if (n.visible(p.i, p.j)) {
        const float qk = dot(q + n.query(p.b, p.i, p.h) * n.D, k + n.key(p.b, p.j, p.h) * n.D, n.D);
        x = score_of(n, n.scale * qk, bias, p.h, p.i, p.j).s;
    }
    s[at] = x;
}

/* A warp per row: lse, and the row of s becomes that of P Z / (1 - p). */
__global__ void softmax_kernel(attention_shape n, float *s, float *lse)
{
    const int64_t at = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (at >= n.B * n.H * n.T)
        return;
    const int64_t h = at / n.T % n.H, i = at % n.T;
    const uint32_t u = dropout_step(n.counter);
    float *row = s + at * n.S, top = n.sinks ? n.sinks[h] : -INFINITY, sum = 0;

    for (int64_t j = lane; j < n.S; j += 32)
        top = max_nan(top, row[j]);
    top = warp_max(top);
    const float from = top == -INFINITY ? 0 : top; /* of an empty row all P are 0 */
    for (int64_t j = lane; j < n.S; j += 32)
        sum += row[j] == -INFINITY ? 0 : expf(row[j] - from);
    sum = warp_sum(sum) + (n.sinks ? expf(n.sinks[h] - from) : 0);
    for (int64_t j = lane; j < n.S; j += 32)
        row[j] =
            row[j] == -INFINITY ? 0 : expf(row[j] - from) / sum * kept_share(n, u, at / n.T, i, j);
    if (lane == 0)
        lse[at] = top == -INFINITY ? top : top + logf(sum);
}

/* to_i = scale sum_j M_ij from_j, and to32 likewise unless it is NULL; rows of `width`: o of P and v, dq
 * of du and k. */
template <typename T>
__global__ void of_queries_kernel(attention_shape n, const float *M, const T *from, T *to,
                                  float *to32, int width, float scale)
{
    const int64_t at = thread_index();
    if (at >= n.B * n.T * n.H * width)
        return;
    const int64_t d = at % width, h = at / width % n.H, i = at / (width * n.H) % n.T;
    const int64_t b = at / (width * n.H * n.T);
    const float *row = M + n.row(b, h, i) * n.S;
    float sum = 0;

    for (int64_t j = 0; j < n.S; j++)
        if (row[j] != 0)
            sum += row[j] * load(from + n.key(b, j, h) * width + d);
    store(to + at, scale * sum);
    if (to32)
        to32[at] = scale * sum;
}

template <typename T>
static int forward(const struct call *f)
{
    const struct attention *a = ARGS(f, attention);
    const attention_shape n = attention_shape_of(f);
    const int64_t rows = n.B * n.H * n.T;
    work_arena arena = {(char *)f->work, 0};
    const matrices m = matrices_of(f, FORWARD, &arena);
    const auto of_queries = of_queries_kernel<T>;
    cudaStream_t s = gpu_stream(f);

    scores_kernel<T><<<ceil_div(rows * n.S, THREADS), THREADS, 0, s>>>(
        n, (const T *)a->q, (const T *)a->k, (const T *)a->bias, m.P);
    CUDA(cudaGetLastError());
    softmax_kernel<<<ceil_div(rows, WARPS), THREADS, 0, s>>>(n, m.P, (float *)a->lse);
    CUDA(cudaGetLastError());
    of_queries<<<ceil_div(rows * n.E, THREADS), THREADS, 0, s>>>(n, m.P, (const T *)a->v, (T *)a->o,
                                                                 (float *)a->o32, n.E, 1);
    return cudaGetLastError();
}

/* ---- backward ---- */

/* delta_i = do_i . o_i - dlse_i, a warp per row of o */
template <typename T>
__global__ void delta_kernel(attention_shape n, const T *d_o, const T *o, const float *o32,
                             const float *dlse, float *delta)
{
    const int64_t at = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (at >= n.B * n.H * n.T)
        return;
    const int64_t i = at % n.T, h = at / n.T % n.H, b = at / (n.T * n.H);
    const int64_t row = n.query(b, i, h) * n.E;
    float sum = 0;

    for (int e = threadIdx.x % 32; e < n.E; e += 32)
        sum += load(d_o + row + e) * (o32 ? o32[row + e] : load(o + row + e));
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        delta[at] = sum - dlse[at];
}

/* P_ij Z_ij / (1 - p), du_ij and ds_ij, 0 where i does not see j */
template <typename T>
__global__ void slopes_kernel(attention_shape n, given<T> x, matrices m)
{
    const int64_t at = thread_index();
    if (at >= n.B * n.H * n.T * n.S)
        return;
    const score_index p(n, at);
    weights w = {0, 0, 0};

    if (n.visible(p.i, p.j)) {
        const int64_t q = n.query(p.b, p.i, p.h), k = n.key(p.b, p.j, p.h), row = at / n.S;
        const score s =
            score_of(n, n.scale * dot(x.q + q * n.D, x.k + k * n.D, n.D), x.bias, p.h, p.i, p.j);
        w = weights_of(s, expf(s.s - x.lse[row]),
                       kept_share(n, dropout_step(n.counter), row / n.T, p.i, p.j),
                       dot(x.d_o + q * n.E, x.v + k * n.E, n.E), m.delta[row]);
    }
    m.P[at] = w.P;
    m.du[at] = w.du;
    if (m.ds)
        m.ds[at] = w.ds;
}

/* to_j = scale sum_{i,h} M_ij from_i, over the query heads of the group; rows of `width`: dk of du and
 * q, dv of P and do. */
template <typename T>
__global__ void of_keys_kernel(attention_shape n, const float *M, const T *from, T *to, int width,
                               float scale)
{
    const int64_t at = thread_index();
    if (at >= n.B * n.S * n.G * width)
        return;
    const int64_t d = at % width, g = at / width % n.G, j = at / (width * n.G) % n.S;
    const int64_t b = at / (width * n.G * n.S), group = n.H / n.G;
    float sum = 0;

    for (int64_t h = g * group; h < (g + 1) * group; h++)
        for (int64_t i = 0; i < n.T; i++) {
            const float m = M[n.row(b, h, i) * n.S + j];
            if (m != 0)
                sum += m * load(from + n.query(b, i, h) * width + d);
        }
    store(to + at, scale * sum);
}

/* dbias[h,i,j] = sum_b ds_ij */
__global__ void dbias_kernel(attention_shape n, const float *ds, float *dbias)
{
    const int64_t at = thread_index(), each = n.H * n.T * n.S;
    if (at >= each)
        return;
    float sum = 0;
    for (int64_t b = 0; b < n.B; b++)
        sum += ds[b * each + at];
    dbias[at] = sum;
}

/* dsinks[h] = -sum_{b,i} exp(sinks[h] - lse_i) delta_i, a block per head */
__global__ void dsinks_kernel(attention_shape n, const float *lse, const float *delta,
                              float *dsinks)
{
    __shared__ float parts[32];
    const int64_t h = blockIdx.x;
    float sum = 0;

    for (int64_t k = threadIdx.x; k < n.B * n.T; k += THREADS) {
        const int64_t at = n.row(k / n.T, h, k % n.T);
        sum += expf(n.sinks[h] - lse[at]) * delta[at];
    }
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0)
        dsinks[h] = -sum;
}

template <typename T>
int attention_delta(const struct call *f, float *delta)
{
    const struct attention *a = ARGS(f, attention), *g = GRADS(f, attention);
    const attention_shape n = attention_shape_of(f);
    const auto kernel = delta_kernel<T>;

    kernel<<<ceil_div(n.B * n.H * n.T, WARPS), THREADS, 0, gpu_stream(f)>>>(
        n, (const T *)g->o, (const T *)a->o, (const float *)a->o32, (const float *)g->lse, delta);
    return cudaGetLastError();
}

int attention_dsinks(const struct call *f, const float *delta)
{
    const attention_shape n = attention_shape_of(f);

    dsinks_kernel<<<n.H, THREADS, 0, gpu_stream(f)>>>(n, (const float *)ARGS(f, attention)->lse,
                                                      delta, (float *)GRADS(f, attention)->sinks);
    return cudaGetLastError();
}

template <typename T>
static int backward(const struct call *f)
{
    const struct attention *g = GRADS(f, attention);
    const attention_shape n = attention_shape_of(f);
    const int64_t rows = n.B * n.H * n.T, keys = n.B * n.S * n.G;
    const given<T> x = given_of<T>(f, BACKWARD);
    work_arena arena = {(char *)f->work, 0};
    const matrices m = matrices_of(f, BACKWARD, &arena);
    const auto of_queries = of_queries_kernel<T>;
    const auto of_keys = of_keys_kernel<T>;
    cudaStream_t s = gpu_stream(f);

    CUDA(attention_delta<T>(f, m.delta));
    slopes_kernel<T><<<ceil_div(rows * n.S, THREADS), THREADS, 0, s>>>(n, x, m);
    CUDA(cudaGetLastError());
    of_queries<<<ceil_div(rows * n.D, THREADS), THREADS, 0, s>>>(n, m.du, x.k, (T *)g->q,
                                                                 (float *)NULL, n.D, n.scale);
    CUDA(cudaGetLastError());
    of_keys<<<ceil_div(keys * n.D, THREADS), THREADS, 0, s>>>(n, m.du, x.q, (T *)g->k, n.D,
                                                              n.scale);
    CUDA(cudaGetLastError());
    of_keys<<<ceil_div(keys * n.E, THREADS), THREADS, 0, s>>>(n, m.P, x.d_o, (T *)g->v, n.E, 1);
    CUDA(cudaGetLastError());
    if (m.ds)
        dbias_kernel<<<ceil_div(rows / n.B * n.S, THREADS), THREADS, 0, s>>>(n, m.ds,
                                                                             (float *)g->bias);
    CUDA(cudaGetLastError());
    return n.sinks ? attention_dsinks(f, m.delta) : 0;
}

GPU_KERNEL(naive, .idea = "all scores in memory, a kernel for each formula",
           .pass = {forward<T>, backward<T>}, .work = work);
GPU_KERNEL(tiled, .idea = "tiles of scores in registers, online softmax, float FMA",
           .pass = {tiled_forward<T>, tiled_backward<T>}, .work = tiled_work,
           .declines = tiled_declines, .approximates = "ex2.approx", .unit = 0x1p-22);
GPU_KERNELS(attention, IN_TYPES(tiled) IN_TYPES(naive));
