/* e74_cell, kernel `plain`, and the list of all its kernels.  A step, with z where it modulates
 * rows, u = k^ or z k^:
 *
 *     delta = v - z S u,  S <- f(S + delta k^T),  y = S q,  out = y silu(y)
 *
 * One block computes all steps of one (sequence, head), in one launch per pass, with a grid-stride
 * loop where there are more of these than blocks.
 *
 * As in ref/e74_cell.c a state is n rows of `columns` elements, where row i uses the columns of a
 * key from start(i) on.  A row belongs to `lanes` neighbouring threads, which divide its columns
 * and reduce by shuffles; column sums (the gradients of the keys) are computed by one thread per
 * column, in a loop over the rows.  Both orders are fixed, so that equal inputs give equal bits.
 * The state is in shared memory where it fits, else in global memory; backward stores the states of
 * a segment in global memory.  Bound by latency: three barriers per step.
 *
 * A step uses fmaf and never a * b + c, so that the compiler cannot contract forward and replay
 * differently: gradients are bitwise equal for every checkpoint interval. */
#include "gpu/device/launch.cuh"
#include "gpu/device/reduce.cuh"
#include "gpu/device/smem.cuh"
#include "gpu/e74/cell_math.cuh"
#include "gpu/e74/e74_cell.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

/* ---- a block's vectors in shared memory ---- */

struct vectors {
    float *k, *v, *q, *z, *khat, *u;      /* [N] of this step */
    float *write, *read, *query;          /* [L] k^, u, q, or their projections */
    float *dy, *delta, *dreads, *dv, *dz; /* [N] backward */
    float *dkhat, *dq;                    /* [N] */
    float *dwrite, *dread, *dquery;       /* [L] */
    float *sums;                          /* [WARPS] */
};

static __host__ __device__ vectors alloc_vectors(smem_arena *smem, const cell_call &c,
                                                 bool backward)
{
    vectors w = {};
    const auto floats = [smem](int64_t n) { return smem->alloc<float>((int)n, sizeof(float)); };

    w.k = floats(c.N);
    w.v = floats(c.N);
    w.q = floats(c.N);
    w.z = floats(c.N);
    w.khat = floats(c.N);
    w.u = floats(c.N);
    if (backward) {
        w.dy = floats(c.N);
        w.delta = floats(c.N);
        w.dreads = floats(c.N);
        w.dv = floats(c.N);
        w.dz = floats(c.N);
        w.dkhat = floats(c.N);
        w.dq = floats(c.N);
    }
    w.write = c.lowrank ? floats(c.L) : w.khat;
    w.read = c.lowrank ? floats(c.L) : w.u;
    w.query = c.lowrank ? floats(c.L) : w.q;
    if (backward) {
        w.dwrite = floats(c.L);
        w.dread = floats(c.L);
        w.dquery = floats(c.L);
    }
    w.sums = floats(WARPS);
    return w;
}

static __device__ int start(const cell_call &c, int row)
{
    return row / c.rows * c.columns;
}

/* ---- one step ---- */

/* Loads k, v, q, z of step t, and computes k^, u and, where lowrank, the projections; ends with a
 * barrier. */
template <typename T>
static __device__ void keys(const cell_call &c, const vectors &w, int64_t t, int64_t bh)
{
    int64_t at = (t * c.BH + bh) * c.N;

    __syncthreads(); /* the last step's vectors have been read */
    for (int i = threadIdx.x; i < c.N; i += THREADS) {
        w.k[i] = load((const T *)c.k + at + i);
        w.v[i] = load((const T *)c.v + at + i);
        w.q[i] = load((const T *)c.q + at + i);
        if (c.z)
            w.z[i] = load((const T *)c.z + at + i);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < c.N; i += THREADS) {
        const float *k = w.k + i / c.group * c.group;
        float squares = 0;
        for (int j = 0; j < c.group; j++)
            squares = fmaf(k[j], k[j], squares);
        w.khat[i] = w.k[i] * key_scale_full(sqrtf(squares));
        w.u[i] = c.z_inside ? w.z[i] * w.khat[i] : w.khat[i];
    }
    __syncthreads();
    if (!c.lowrank)
        return;
    const float *V = V_of(c, bh);
    const T *W_r = (const T *)c.W_r + bh % c.H * c.M;
    for (int j = threadIdx.x; j < c.L; j += THREADS) {
        float write = 0, read = 0, query = 0;
        for (int i = 0; i < c.N; i++) {
            write = fmaf(load(W_r + j * c.N + i), w.khat[i], write);
            read = fmaf(V[i * c.L + j], w.u[i], read);
            query = fmaf(V[i * c.L + j], w.q[i], query);
        }
        w.write[j] = write;
        w.read[j] = read;
        w.query[j] = query;
    }
    __syncthreads();
}

/* The dot product of a row with its columns of a key, in all lanes of the row. */
static __device__ float row_dot(const cell_call &c, const float *S, int row, const float *key)
{
    float sum = 0;
    if (row < c.N)
        for (int j = threadIdx.x % c.lanes; j < c.columns; j += c.lanes)
            sum = fmaf(S[(int64_t)row * c.columns + j], key[start(c, row) + j], sum);
    return warp_sum(sum, c.lanes);
}

/* next = f(S + delta k^T), where next may be S; reads = S u, *scale the norm by which f
 * divides.  A thread processes the same elements in both loops. */
static __device__ void advance(const cell_call &c, const vectors &w, const float *S, float *next,
                               float *reads, float *scale)
{
    int lane = threadIdx.x % c.lanes, groups = THREADS / c.lanes;
    float squares = 0;

    for (int base = 0; base < c.N; base += groups) {
        int row = base + threadIdx.x / c.lanes, at = start(c, row);
        float sum = row_dot(c, S, row, w.read);
        if (row >= c.N)
            continue;
        if (lane == 0 && reads)
            reads[row] = sum;
        float delta = c.z_outside ? fmaf(-w.z[row], sum, w.v[row]) : w.v[row] - sum;
        for (int j = lane; j < c.columns; j += c.lanes) {
            int64_t e = (int64_t)row * c.columns + j;
            float p = fmaf(delta, w.write[at + j], S[e]);
            squares = fmaf(p, p, squares);
            next[e] = c.nonlin == E74_TANH ? tanhf(p) : p;
        }
    }
    if (c.nonlin == E74_TANH || c.nonlin == E74_LINEAR)
        return;
    squares = block_sum(squares, w.sums);
    *scale = sqrtf(c.nonlin == E74_RMSNORM ? squares / c.M : squares);
    for (int base = 0; base < c.N; base += groups) {
        int row = base + threadIdx.x / c.lanes;
        for (int j = lane; row < c.N && j < c.columns; j += c.lanes)
            next[(int64_t)row * c.columns + j] /= *scale + (float)E74_EPSILON;
    }
}

/* The thread's elements of a state, in the order of advance(). */
#define FOR_MY_ELEMENTS(c, row, j)                                                                 \
    for (int row = threadIdx.x / (c).lanes; row < (c).N; row += THREADS / (c).lanes)               \
        for (int j = threadIdx.x % (c).lanes; j < (c).columns; j += (c).lanes)

/* ---- forward ---- */

template <typename T>
__global__ void __launch_bounds__(THREADS) forward_kernel(cell_call c)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    smem_arena smem = {buffer, 0};
    const vectors w = alloc_vectors(&smem, c, false);
    float *const S =
        c.state_shared ? smem.alloc<float>(c.M, sizeof(float)) : c.work + blockIdx.x * c.work_each;
    const int lane = threadIdx.x % c.lanes;
    float scale;

    for (int64_t bh = blockIdx.x; bh < c.BH; bh += gridDim.x) {
        FOR_MY_ELEMENTS (c, row, j)
            S[(int64_t)row * c.columns + j] = c.first[bh * c.M + (int64_t)row * c.columns + j];
        for (int64_t t = 0; t < c.T; t++) {
            if (t % c.K == 0)
                FOR_MY_ELEMENTS (c, row, j) {
                    int64_t e = (int64_t)row * c.columns + j;
                    put_kept(c, t / c.K * c.BH + bh, e, S[e]);
                }
            keys<T>(c, w, t, bh);
            advance(c, w, S, S, NULL, &scale);
            for (int base = 0; base < c.N; base += THREADS / c.lanes) {
                int row = base + threadIdx.x / c.lanes;
                float y = row_dot(c, S, row, w.query);
                if (row < c.N && lane == 0) {
                    int64_t i = (t * c.BH + bh) * c.N + row;
                    store((T *)c.y + i, y);
                    store((T *)c.out + i, gate_output(y, sigmoid_full(y)));
                }
            }
        }
        FOR_MY_ELEMENTS (c, row, j)
            c.last[bh * c.M + (int64_t)row * c.columns + j] = S[(int64_t)row * c.columns + j];
    }
}

/* ---- backward ---- */

/* Computes dP from G = dL/dS_t, in place, and stores the gradients per row in w. */
static __device__ void retreat_rows(const cell_call &c, const vectors &w, float *G, const float *S,
                                    const float *reads, float scale)
{
    int lane = threadIdx.x % c.lanes;
    float dot = 0;

    FOR_MY_ELEMENTS (c, row, j) {
        int64_t e = (int64_t)row * c.columns + j;
        G[e] = fmaf(w.dy[row], w.query[start(c, row) + j], G[e]);
        if (c.nonlin == E74_TANH)
            G[e] *= fmaf(-S[e], S[e], 1.0f);
        dot = fmaf(G[e], S[e], dot);
    }
    if (c.nonlin == E74_RMSNORM || c.nonlin == E74_FROBNORM) {
        dot = block_sum(dot, w.sums);
        dot = scale > 0 ? dot / (c.nonlin == E74_RMSNORM ? c.M * scale : scale) : 0;
        FOR_MY_ELEMENTS (c, row, j) {
            int64_t e = (int64_t)row * c.columns + j;
            G[e] = fmaf(-dot, S[e], G[e] / (scale + (float)E74_EPSILON));
        }
    }
    for (int base = 0; base < c.N; base += THREADS / c.lanes) {
        int row = base + threadIdx.x / c.lanes;
        float ddelta = row_dot(c, G, row, w.write);
        if (row >= c.N || lane)
            continue;
        float z = c.z_outside ? w.z[row] : 1;
        w.delta[row] = fmaf(-z, reads[row], w.v[row]);
        w.dv[row] = ddelta;
        w.dz[row] = c.z_outside ? -ddelta * reads[row] : 0;
        w.dreads[row] = -ddelta * z;
    }
    __syncthreads();
}

/* One thread per column, looping over the rows that use it; begins after a barrier and
 * ends with one. */
static __device__ void retreat_columns(const cell_call &c, const vectors &w, const float *G,
                                       const float *before, const float *S)
{
    for (int l = threadIdx.x; l < c.L; l += THREADS) {
        int from = l / c.columns * c.rows, j = l % c.columns;
        float dwrite = 0, dread = 0, dquery = 0;
        for (int row = from; row < from + c.rows; row++) {
            int64_t e = (int64_t)row * c.columns + j;
            dwrite = fmaf(w.delta[row], G[e], dwrite);
            dread = fmaf(w.dreads[row], before[e], dread);
            dquery = fmaf(w.dy[row], S[e], dquery);
        }
        w.dwrite[l] = dwrite;
        w.dread[l] = dread;
        w.dquery[l] = dquery;
    }
    __syncthreads();
}

/* Computes the gradients of k^ (with u's share), q and z from dwrite, dread and dquery; ends with a
 * barrier. */
template <typename T>
static __device__ void retreat_keys(const cell_call &c, const vectors &w, int64_t bh)
{
    const float *V = V_of(c, bh);
    const T *W_r = (const T *)c.W_r + bh % c.H * c.M;

    for (int i = threadIdx.x; i < c.N; i += THREADS) {
        float dkhat = 0, du = 0, dq = 0;
        if (c.lowrank) {
            for (int j = 0; j < c.L; j++) {
                dkhat = fmaf(load(W_r + j * c.N + i), w.dwrite[j], dkhat);
                du = fmaf(V[i * c.L + j], w.dread[j], du);
                dq = fmaf(V[i * c.L + j], w.dquery[j], dq);
            }
        } else {
            dkhat = w.dwrite[i], du = w.dread[i], dq = w.dquery[i];
        }
        w.dkhat[i] = dkhat + (c.z_inside ? du * w.z[i] : du);
        w.dz[i] += c.z_inside ? du * w.khat[i] : 0;
        w.dq[i] = dq;
    }
    if (c.lowrank)
        for (int64_t e = threadIdx.x; e < c.M; e += THREADS) {
            int i = (int)(e / c.L), j = (int)(e % c.L), row = (int)(e / c.N), n = (int)(e % c.N);
            c.dV_parts[bh * c.M + e] += w.u[i] * w.dread[j] + w.q[i] * w.dquery[j];
            c.dW_r_parts[bh * c.M + e] += w.dwrite[row] * w.khat[n];
        }
    __syncthreads();
}

template <typename T>
static __device__ void put_gradients(const cell_call &c, const vectors &w, int64_t at)
{
    for (int i = threadIdx.x; i < c.N; i += THREADS) {
        const float *k = w.k + i / c.group * c.group, *dkhat = w.dkhat + i / c.group * c.group;
        float squares = 0, dot = 0;
        for (int j = 0; j < c.group; j++) {
            squares = fmaf(k[j], k[j], squares);
            dot = fmaf(k[j], dkhat[j], dot);
        }
        const float length = sqrtf(squares), r = key_scale_full(length);
        float dk = key_backward(w.dkhat[i], w.k[i], r, key_slope(dot, length, r));
        if (!c.dq)
            dk += w.dq[i];
        if (!c.dv)
            dk += w.dv[i];
        store((T *)c.dk + at + i, dk);
        if (c.dv)
            store((T *)c.dv + at + i, w.dv[i]);
        if (c.dq)
            store((T *)c.dq + at + i, w.dq[i]);
        if (c.dz)
            store((T *)c.dz + at + i, w.dz[i]);
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 3) backward_kernel(cell_call c)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    smem_arena smem = {buffer, 0};
    const vectors w = alloc_vectors(&smem, c, true);
    /* [K + 1] states of a segment: before each step, and after the last; G; [K][N] reads; [K]
     * scales */
    float *const states = c.work + blockIdx.x * c.work_each, *const G = states + (c.K + 1) * c.M;

    for (int64_t bh = blockIdx.x; bh < c.BH; bh += gridDim.x) {
        FOR_MY_ELEMENTS (c, row, j)
            G[(int64_t)row * c.columns + j] = c.dlast[bh * c.M + (int64_t)row * c.columns + j];
        for (int64_t e = threadIdx.x; c.lowrank && e < c.M; e += THREADS)
            c.dV_parts[bh * c.M + e] = c.dW_r_parts[bh * c.M + e] = 0;
        for (int64_t end = c.T, begin; end > 0; end = begin) {
            begin = (end - 1) / c.K * c.K;
            FOR_MY_ELEMENTS (c, row, j) {
                int64_t e = (int64_t)row * c.columns + j;
                states[e] = get_kept(c, begin / c.K * c.BH + bh, e);
            }
            for (int64_t t = begin; t < end; t++) {
                int64_t s = t - begin;
                float scale = 0;
                keys<T>(c, w, t, bh);
                advance(c, w, states + s * c.M, states + (s + 1) * c.M, G + c.M + s * c.N, &scale);
                if (threadIdx.x == 0)
                    G[c.M + c.K * c.N + s] = scale;
            }
            for (int64_t t = end - 1; t >= begin; t--) {
                int64_t s = t - begin, at = (t * c.BH + bh) * c.N;
                const float *before = states + s * c.M, *S = before + c.M;
                keys<T>(c, w, t, bh);
                for (int i = threadIdx.x; i < c.N; i += THREADS) {
                    const float y = load((const T *)c.y + at + i);
                    w.dy[i] = gate_backward(load((const T *)c.dout + at + i), y, sigmoid_full(y));
                }
                __syncthreads();
                retreat_rows(c, w, G, S, G + c.M + s * c.N, G[c.M + c.K * c.N + s]);
                retreat_columns(c, w, G, before, S);
                FOR_MY_ELEMENTS (c, row, j) {
                    int64_t e = (int64_t)row * c.columns + j;
                    G[e] = fmaf(w.dreads[row], w.read[start(c, row) + j], G[e]);
                }
                retreat_keys<T>(c, w, bh);
                put_gradients<T>(c, w, at);
            }
        }
        FOR_MY_ELEMENTS (c, row, j)
            c.dfirst[bh * c.M + (int64_t)row * c.columns + j] = G[(int64_t)row * c.columns + j];
        __syncthreads();
    }
}

/* sums[h], dW_r or a shared dV0: the sum over the batch of its parts, in order. */
__global__ void sum_parts(const float *parts, float *sums, int64_t heads_m, int64_t batch)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= heads_m)
        return;
    float sum = 0;
    for (int64_t b = 0; b < batch; b++)
        sum += parts[b * heads_m + i];
    sums[i] = sum;
}

/* ---- launches ---- */

/* One block per (sequence, head), but at most 1024, which fill a large device: the workspace is
 * bounded. */
static int64_t blocks(const cell_call &c)
{
    return c.BH < 1024 ? c.BH : 1024;
}

/* Bytes of forward's shared memory, with the state in it. */
static size_t state_bytes(const cell_call &c)
{
    return arena_bytes<alloc_vectors>(c, false) + c.M * sizeof(float);
}

static bool state_fits(struct context *on, const cell_call &c)
{
    return state_bytes(c) <= on->limits.smem;
}

static int64_t block_work(struct context *on, const cell_call &c, enum pass p)
{
    if (p == FORWARD)
        return state_fits(on, c) ? 0 : c.M;
    return (c.K + 2) * c.M + c.K * c.N + c.K;
}

/* Sets the pointers into the workspace; returns its bytes. */
static size_t divide_workspace(cell_call *c, const struct call *f, enum pass p)
{
    work_arena a = {(char *)f->work, 0};

    c->dW_r_parts = take<float>(&a, p == BACKWARD && c->lowrank ? c->BH * c->M : 0);
    c->dV_parts = p == BACKWARD && c->V_shared ? take<float>(&a, c->BH * c->M) : c->dV0;
    c->work_each = block_work(f->context, *c, p);
    c->work = take<float>(&a, blocks(*c) * c->work_each);
    return a.bytes;
}

static size_t work(const struct call *f, enum pass p)
{
    cell_call c = cell_call_of(f);
    return divide_workspace(&c, f, p);
}

template <typename T>
static int forward(const struct call *f)
{
    cell_call c = cell_call_of(f);

    c.state_shared = state_fits(f->context, c);
    divide_workspace(&c, f, FORWARD);
    const size_t shared = c.state_shared ? state_bytes(c) : arena_bytes<alloc_vectors>(c, false);
    CUDA(allow_smem(forward_kernel<T>, shared));
    forward_kernel<T><<<blocks(c), THREADS, shared, gpu_stream(f)>>>(c);
    return cudaGetLastError();
}

static cudaError_t sum_sequences(const struct call *f, const cell_call &c, const float *parts,
                                 float *sums)
{
    const int64_t heads_m = c.H * c.M;

    sum_parts<<<ceil_div(heads_m, THREADS), THREADS, 0, gpu_stream(f)>>>(parts, sums, heads_m,
                                                                         c.BH / c.H);
    return cudaGetLastError();
}

template <typename T>
static int backward(const struct call *f)
{
    cell_call c = cell_call_of(f);
    const size_t shared = arena_bytes<alloc_vectors>(c, true);

    divide_workspace(&c, f, BACKWARD);
    CUDA(allow_smem(backward_kernel<T>, shared));
    backward_kernel<T><<<blocks(c), THREADS, shared, gpu_stream(f)>>>(c);
    CUDA(cudaGetLastError());
    if (c.lowrank)
        CUDA(sum_sequences(f, c, c.dW_r_parts, c.dW_r));
    return c.V_shared ? sum_sequences(f, c, c.dV_parts, c.dV0) : 0;
}

static const char *declines(const struct call *f)
{
    if (DIM(f, 'N') > 1024)
        return "n_state beyond 1024";
    if (f->choice[E74_STATE] == E74_LOWRANK && DIM(f, 'R') > 1024)
        return "rank beyond 1024";
    return NULL;
}

GPU_KERNEL_OF(plain_cell, plain, .idea = "one block per sequence and head, three barriers per step",
              .pass = {forward<T>, backward<T>}, .work = work, .declines = declines);

#define EACH(T)                                                                                    \
    &narrow_cell<T>::kernel, &norms_cell<T>::kernel, &rows_cell<T>::kernel,                        \
        &diagonal_cell<T>::kernel, &plain_cell<T>::kernel,
GPU_KERNELS(e74_cell, &split_cell, &chunked_cell, GPU_TYPES(EACH));
