/* e74_cell, kernel `diagonal`, the backward pass: the gradients of k, v, q, z and of the first
 * state.  The formulas and the mapping to threads are in diagonal.cu. */
#include "gpu/e74/cell/diagonal/diagonal.cuh"

using namespace e74_diagonal;

enum {
    BATCH_BACK_STEPS = 8, /* BATCH_STEPS of the backward scan */
    FINISH_WARPS = 8,     /* of a block of finish_keys */
};

/* The state of a column before step t, at which a chunk begins: from a checkpoint or
 * initial_states. */
static __device__ float initial_state(const layout &l, const column &own_column, int t)
{
    const cell_call &c = l.c;
    if (!own_column.any)
        return 0;
    return t % l.K ? l.initial_states[t / STEPS * c.BH * c.N + own_column.element]
                   : get_kept(c, t / l.K * c.BH, own_column.element);
}

/* Replays one column of a chunk from S, the state before its first step.  At checkpoints that are
 * narrower than fp32 the replay restarts from the checkpoint. */
template <typename T, int NONLIN>
static __device__ __forceinline__ void replay(const layout &l, const column &own_column, int begin,
                                              int steps, const float2 *pairs, float *states,
                                              float S)
{
    const cell_call &c = l.c;
    states[0] = S;
    states += BLOCK_COLUMNS;
    if (c.kept == KEPT_F32 || l.K % STEPS == 0) {
        scan_chunk<T, NONLIN>(load_batch<BATCH_STEPS>(pairs, 0), pairs, states, steps, S);
        return;
    }
    for (int from = 0, to; from < steps; from = to) {
        if (from > 0 && own_column.any)
            S = get_kept(c, (begin + from) / l.K * c.BH, own_column.element);
        to = min(steps, from + l.K - (begin + from) % l.K);
        S = scan_steps<T, NONLIN>(pairs, states, from, to, S);
    }
}

/* The thread's states before step t: those of the checkpoint, if there is a rounded one. */
static __device__ __forceinline__ float8 state_before(const layout &l, const item &it, int t,
                                                      const float *step)
{
    float8 S = load_states(step, it.octet);
    if (l.c.kept != KEPT_F32 && t % l.K == 0)
        for (int j = 0; j < OCTET; j++)
            if (j < it.columns)
                S.x[j] = get_kept(l.c, t / l.K * l.c.BH, it.element + j);
    return S;
}

template <int NONLIN>
static __device__ __forceinline__ float slope(float after)
{
    return NONLIN == E74_TANH ? fmaf(-after, after, 1.0f) : 1;
}

static __device__ __forceinline__ float8 load_a(const float2 *step, int octet)
{
    float8 a;
    for (int i = 0; i < OCTET / 2; i++) {
        const float4 x = ((const float4 *)step)[i * OCTETS + octet];
        a.x[2 * i] = x.x;
        a.x[2 * i + 1] = x.z;
    }
    return a;
}

/* Replaces (a, b) of a step by (m, e). */
template <int NONLIN>
static __device__ __forceinline__ void to_gradients(float2 *pairs, const float *states, int octet,
                                                    const float8 &dy, const float8 &q)
{
    const float8 a = load_a(pairs, octet), after = load_states(states, octet);
    float8 m, e;
    for (int j = 0; j < OCTET; j++) {
        m.x[j] = a.x[j] * slope<NONLIN>(after.x[j]);
        e.x[j] = m.x[j] * (dy.x[j] * q.x[j]);
    }
    store_pairs(pairs, octet, m, e);
}

/* One step backward; stores dL/dS of the state after the step. */
static __device__ __forceinline__ float step_back(float2 pair, float *gradients, float G)
{
    *gradients = G;
    return fmaf(pair.x, G, pair.y);
}

/* Scans one column of a chunk backward, given its last batch of pairs if the chunk is full; returns
 * G before the chunk. */
static __device__ __forceinline__ float scan_back(batch<BATCH_BACK_STEPS> current,
                                                  const float2 *pairs, float *gradients, int steps,
                                                  float G)
{
    if (steps < STEPS) {
        #pragma unroll 1
        for (int i = steps - 1; i >= 0; i--)
            G = step_back(pairs[i * BLOCK_COLUMNS], gradients + i * BLOCK_COLUMNS, G);
        return G;
    }
    for (int from = STEPS - BATCH_BACK_STEPS; from >= 0; from -= BATCH_BACK_STEPS) {
        const batch<BATCH_BACK_STEPS> next =
            load_batch<BATCH_BACK_STEPS>(pairs, max(from - BATCH_BACK_STEPS, 0));
        for (int i = BATCH_BACK_STEPS - 1; i >= 0; i--)
            G = step_back(current.of[i], gradients + (from + i) * BLOCK_COLUMNS, G);
        current = next;
    }
    return G;
}

/* A thread's operands of a step of a chunk. */
template <typename T>
struct back_step {
    int t, columns; /* columns = 0: there is no such step */
    keys<T> in;
    octet<T> q, y, dout;
};

template <typename T>
static __device__ __forceinline__ back_step<T> load_step(const layout &l, const item &it, int t,
                                                         bool any)
{
    const int64_t at = t * l.c.BH * l.c.N + it.element;
    back_step<T> s;
    s.t = t;
    s.columns = any ? it.columns : 0;
    s.in = load_keys<T>(l, at, s.columns);
    s.q = load_octet((const T *)l.c.q + at, s.columns, l.aligned);
    s.y = load_octet((const T *)l.c.y + at, s.columns, l.aligned);
    s.dout = load_octet((const T *)l.c.dout + at, s.columns, l.aligned);
    return s;
}

template <typename T>
static __device__ __forceinline__ float8 through_gate(const back_step<T> &s)
{
    const float8 y = widened(s.y);
    float8 d = widened(s.dout);
    for (int j = 0; j < OCTET; j++)
        d.x[j] = gate_backward(d.x[j], y.x[j], sigmoid(y.x[j]));
    return d;
}

/* Computes and stores dk from dk^; with l.dkhat, only stores the operands of finish_keys(). */
template <typename T>
static __device__ __forceinline__ void put_dk(const layout &l, int64_t at, int columns,
                                              const float8 &k, float8 dk, const float8 &dk_tied,
                                              float length)
{
    if (l.dkhat) {
        store_octet(l.dkhat + at, columns, l.aligned, dk);
        if (l.dk_tied)
            store_octet(l.dk_tied + at, columns, l.aligned, dk_tied);
        return;
    }
    const float r = key_scale(length);
    const float slope = key_slope(warp_sum<OCTETS>(dot(k, dk), l.lanes), length, r);
    for (int j = 0; j < OCTET; j++)
        dk.x[j] = key_backward(dk.x[j], k.x[j], r, slope) + dk_tied.x[j];
    store_octet((T *)l.c.dk + at, columns, l.aligned, dk);
}

/* Stores the gradients of k, v, q, z of one step.  `states`: the states before the step, then those
 * after it; `gradients`: dL/dS after the step. */
template <typename T, int NONLIN>
static __device__ __forceinline__ void
put_gradients(const layout &l, const item &it, const back_step<T> &s, const float8 &dy,
              float length, const float *states, const float *gradients)
{
    const cell_call &c = l.c;
    const int64_t at = s.t * c.BH * c.N + it.element;
    const float8 k = widened(s.in.k), v = widened(s.in.v), z = widened(s.in.z), q = widened(s.q);
    float8 S = {}, after = {}, G = {};
    if (s.columns) {
        S = state_before(l, it, s.t, states);
        after = load_states(states + BLOCK_COLUMNS, it.octet);
        G = load_states(gradients, it.octet);
    }
    const float r = key_scale(length);
    float8 dk, dv, dq, dz, dk_tied;
    for (int j = 0; j < OCTET; j++) {
        const key x = key_of(l, k.x[j], r, z.x[j]);
        const float dP = slope<NONLIN>(after.x[j]) * fmaf(dy.x[j], q.x[j], G.x[j]);
        const float reads = S.x[j] * x.u, delta = fmaf(-x.w, S.x[j], v.x[j]);
        dv.x[j] = dP * x.khat;
        dq.x[j] = after.x[j] * dy.x[j];
        const float du = -dv.x[j] * (c.z_outside ? z.x[j] : 1) * S.x[j];
        dz.x[j] = c.z_outside ? -dv.x[j] * reads : 0;
        if (c.z_inside)
            dz.x[j] = fmaf(du, x.khat, dz.x[j]);
        dk.x[j] = fmaf(delta, dP, c.z_inside ? du * z.x[j] : du);
        dk_tied.x[j] = (c.dq ? 0 : dq.x[j]) + (c.dv ? 0 : dv.x[j]);
    }
    if (c.dv)
        store_octet((T *)c.dv + at, s.columns, l.aligned, dv);
    if (c.dq)
        store_octet((T *)c.dq + at, s.columns, l.aligned, dq);
    if (c.dz)
        store_octet((T *)c.dz + at, s.columns, l.aligned, dz);
    put_dk<T>(l, at, s.columns, k, dk, dk_tied, length);
}

/* Prefetches the operands of the chunk at offset `at`. */
template <typename T>
static __device__ __forceinline__ void prefetch_chunk(const layout &l, const item &it, int64_t at)
{
    prefetch_keys<T>(l, it, at);
    if (it.columns == 0)
        return;
    prefetch_l2((const T *)l.c.y + at);
    prefetch_l2((const T *)l.c.dout + at);
}

/* Chunks are counted from the last one; rank r processes chunks r, r + cluster, ... */
template <typename T, int NONLIN>
__global__ void __launch_bounds__(THREADS, storage<T>::PER_WORD == 2 ? 3 : 2)
    backward_diagonal(layout l)
{
    __shared__ __align__(16) float2 pairs[STEPS * BLOCK_COLUMNS];
    __shared__ __align__(16) float states[(1 + STEPS) * BLOCK_COLUMNS];
    __shared__ __align__(16) float gradients[STEPS * BLOCK_COLUMNS];
    __shared__ tagged received[BLOCK_COLUMNS];
    const cell_call &c = l.c;
    const block_coord own = block_coord_of(l);
    const int64_t step_stride = c.BH * c.N;
    const int chunks = (int)l.chunks, tid = (int)threadIdx.x;
    const item it = item_of(l, own.set, own.part, tid);
    handover_init(l.cluster, received, BLOCK_COLUMNS);
    const bool scans = tid < BLOCK_COLUMNS;
    const column own_column = column_of(l, own.set, own.part, tid % BLOCK_COLUMNS);
    float G = scans && own.rank == 0 && own_column.any ? c.dlast[own_column.element] : 0;
    handover_ready(l.cluster);

    for (int chunk = own.rank; chunk < chunks; chunk += l.cluster) {
        const int begin = (chunks - 1 - chunk) * STEPS, steps = min((int)STEPS, (int)c.T - begin);
        const int64_t at = (begin + it.step) * step_stride + it.element;
        const bool any = it.step < steps;

        const back_step<T> s = load_step<T>(l, it, begin + it.step, any);
        const float S = scans ? initial_state(l, own_column, begin) : 0;
        if (chunk + l.cluster < chunks)
            prefetch_chunk<T>(l, it, at - l.cluster * STEPS * step_stride);
        const float length = sqrtf(squares_of<T>(l, it, at, any, widened(s.in.k)));
        prepare(l, it, pairs + it.step * BLOCK_COLUMNS, s.in, length);
        __syncthreads();

        if (scans)
            replay<T, NONLIN>(l, own_column, begin, steps, pairs + tid, states + tid, S);
        const float8 dy = through_gate(s);
        __syncthreads();

        if (any)
            to_gradients<NONLIN>(pairs + it.step * BLOCK_COLUMNS,
                                 states + (it.step + 1) * BLOCK_COLUMNS, it.octet, dy,
                                 widened(s.q));
        __syncthreads();

        if (scans) {
            const batch<BATCH_BACK_STEPS> last =
                load_batch<BATCH_BACK_STEPS>(pairs + tid, STEPS - BATCH_BACK_STEPS);
            tagged *const next_block = handover_next(l.cluster, chunk, received + tid);
            G = receive_value(l, received + tid, chunk, G);
            G = scan_back(last, pairs + tid, gradients + tid, steps, G);
            if (chunk + 1 < chunks)
                send_value(l, next_block, chunk + 1, G);
            if (begin == 0 && own_column.any)
                c.dfirst[own_column.element] = G;
        }
        __syncthreads();

        put_gradients<T, NONLIN>(l, it, s, dy, length, states + it.step * BLOCK_COLUMNS,
                                 gradients + it.step * BLOCK_COLUMNS);
    }
    handover_finish(l.cluster);
}

/* Computes dk from dk^ where the columns of a key are in several blocks, with one warp per (step,
 * sequence, head). */
template <typename T>
__global__ void __launch_bounds__(32 * FINISH_WARPS) finish_keys(layout l)
{
    const cell_call &c = l.c;
    const int64_t item = (int64_t)blockIdx.x * FINISH_WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int64_t at = item * c.N;
    float sums[2] = {}; /* |k|^2, <k, dk^> */

    if (item >= c.T * c.BH)
        return;
    for (int i = lane; i < c.N; i += 32) {
        const float k = load((const T *)c.k + at + i);
        sums[0] = fmaf(k, k, sums[0]);
        sums[1] = fmaf(k, l.dkhat[at + i], sums[1]);
    }
    warp_sums(sums);
    const float length = sqrtf(sums[0]), r = key_scale(length);
    const float slope = key_slope(sums[1], length, r);
    for (int i = lane; i < c.N; i += 32) {
        const float k = load((const T *)c.k + at + i);
        const float dk_tied = l.dk_tied ? l.dk_tied[at + i] : 0;
        store((T *)c.dk + at + i, key_backward(l.dkhat[at + i], k, r, slope) + dk_tied);
    }
}

/* ---- launches ---- */

template <typename T>
cudaError_t e74_diagonal::launch_backward(struct context *on, const layout &l)
{
    CUDA(launch(on,
                l.c.nonlin == E74_TANH ? backward_diagonal<T, E74_TANH>
                                       : backward_diagonal<T, E74_LINEAR>,
                l, 1));
    if (l.parts == 1)
        return cudaSuccess;
    const int64_t blocks = ceil_div(l.c.T * l.c.BH, FINISH_WARPS);
    finish_keys<T><<<blocks, 32 * FINISH_WARPS, 0, on->stream>>>(l);
    return cudaGetLastError();
}
#define EACH(T)                                                                                    \
    template cudaError_t e74_diagonal::launch_backward<T>(struct context *, const layout &l);
GPU_TYPES(EACH)
