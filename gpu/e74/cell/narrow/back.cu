/* back.cu - `backward_narrow`: last chunk first, a chunk is replayed from its
 * checkpoint, which depends on no other block, and its states stay in shared memory.  The gradient
 * G of the state is sent on.  As the scan goes back, the contribution of a state element to a key's
 * gradient overwrites the element; sums over rows follow, then the gradients of k, q and z. */
#include "gpu/e74/cell/narrow/narrow.cuh"

namespace e74_narrow
{

/* A thread's eight columns of a state.  Neither the threads of a warp nor the same columns
 * and row of successive steps have bank conflicts. */
static __device__ __forceinline__ void store_state(const layout &l, float *state, const float8 &e)
{
    for (int i = 0; i < 2; i++) {
        four<float> f;
        for (int j = 0; j < 4; j++)
            f.x[j] = e.x[4 * i + j];
        *(four<float> *)(state + (i * l.scan_threads + threadIdx.x) * 4) = f;
    }
}

static __device__ __forceinline__ float8 load_state(const layout &l, const float *state)
{
    float8 e;
    for (int i = 0; i < 2; i++) {
        const four<float> f =
            *(const four<float> *)(state + (i * l.scan_threads + threadIdx.x) * 4);
        for (int j = 0; j < 4; j++)
            e.x[4 * i + j] = f.x[j];
    }
    return e;
}

/* Replays steps from ... to - 1 of the chunk; stores S after each step; delta overwrites v. */
template <typename T, int LANES, int NONLIN>
static __device__ __forceinline__ void replay(const layout &l, const coord &p, const chunk_smem &s,
                                              int from, int to, float8 &S)
{
    const bool writes = p.any && p.lane == 0;
    int row_offset = from * l.stride + p.row_offset;
    float *state = s.states + (from + 1) * l.state_stride;
    operand_ptrs at = operand_ptrs_at(l, p, s, from);
    operands current = load_operands<LANES, false>(&at, l, p, from + 1 < to);
    float reads = warp_sum<LANES>(dot(S, current.read));

    #pragma unroll 2
    for (int i = from; i < to; i++) {
        const operands ahead = load_operands<LANES, false>(&at, l, p, i + 2 < to);
        const float delta = advance<T, NONLIN>(S, current, reads);
        const float next = warp_sum<LANES>(dot(S, ahead.read));
        store_state(l, state, S);
        sync_row<LANES>();
        if (writes) {
            s.v[row_offset] = delta;
            if (l.c.z_outside)
                s.reads[row_offset] = reads;
        }
        state += l.state_stride;
        row_offset += l.stride;
        reads = next;
        current = ahead;
    }
}

/* Replays the chunk; restarts at rounded checkpoints. */
template <typename T, int LANES, int NONLIN>
static __device__ __forceinline__ void replay_chunk(const layout &l, const coord &p,
                                                    const chunk_smem &s)
{
    const cell_call &c = l.c;
    checkpoint next = first_checkpoint(c, p);
    float8 S = {};
    for (int from = 0, to; from < p.steps; from = to) {
        if (from == next.step) {
            S = load_checkpoint<LANES>(c, p, next.segment);
            next_checkpoint(&next, c, p);
        } else {
            S = receive_value(l, l.initial_states, p, p.chunk);
        }
        to = c.kept == KEPT_F32 ? p.steps : next.step;
        store_state(l, s.states + from * l.state_stride, S);
        replay<T, LANES, NONLIN>(l, p, s, from, to, S);
    }
}

/* Scans backward over the chunk; G is dL/dS after it, then before it.  The contribution of a state
 * element to write's gradient (and to read's, if not separate) overwrites the state after the step,
 * which is not needed any more; dv overwrites delta. */
template <int LANES, int NONLIN>
static __device__ __forceinline__ void scan_back(const layout &l, const coord &p,
                                                 const chunk_smem &s, float8 &G)
{
    const bool writes = p.any && p.lane == 0;
    const int last = p.steps - 1;
    int row_offset = last * l.stride + p.row_offset;
    float *state = s.states + p.steps * l.state_stride, *dread_at = s.dread + last * l.state_stride;
    operand_ptrs at = operand_ptrs_at(l, p, s, last);
    operands current = load_operands<LANES, true>(&at, l, p, last > 0);
    float8 state_after = load_state(l, state), state_before = load_state(l, state - l.state_stride);

    #pragma unroll 2
    for (int i = last; i >= 0; i--) {
        for (int j = 0; j < OCTET; j++) {
            G.x[j] = fmaf(current.dy, current.query.x[j], G.x[j]);
            if (NONLIN == E74_TANH)
                G.x[j] *= fmaf(-state_after.x[j], state_after.x[j], 1.0f);
        }
        const float dv = warp_sum<LANES>(dot(G, current.write)), dreads = -dv * current.z;
        const float with_write = l.separate_dread ? 0 : dreads;
        const operands ahead = load_operands<LANES, true>(&at, l, p, i > 1);
        const float8 next =
            load_state(l, i > 0 ? state - 2 * l.state_stride : state - l.state_stride);
        float8 dwrite;
        for (int j = 0; j < OCTET; j++) {
            dwrite.x[j] = fmaf(with_write, state_before.x[j], current.v * G.x[j]);
            G.x[j] = fmaf(dreads, current.read.x[j], G.x[j]);
        }
        store_state(l, state, dwrite);
        if (l.separate_dread) {
            float8 dread;
            for (int j = 0; j < OCTET; j++)
                dread.x[j] = dreads * state_before.x[j];
            store_state(l, dread_at, dread);
        }
        sync_row<LANES>();
        if (writes)
            s.v[row_offset] = dv;
        state -= l.state_stride;
        dread_at -= l.state_stride;
        row_offset -= l.stride;
        state_after = state_before;
        state_before = next;
        current = ahead;
    }
}

/* Sums over the rows of a group.  A thread sums four columns and, where there are many rows, one
 * part of the rows; the threads of a warp process the same columns of different steps.  Rows are
 * weighted by `weight`, if it is not NULL. */
template <int LANES>
static __device__ void sum_parts_of_rows(const layout &l, const coord &p, const float *states,
                                         const float *weight, float *to)
{
    const int quads = 2 * LANES, rows = l.c.rows;
    for (int i = threadIdx.x; i < l.steps * quads * l.parts * p.groups; i += blockDim.x) {
        const int step = i % l.steps, rest = i / l.steps, quad = rest % quads;
        const int part = rest / quads % l.parts, group = rest / quads / l.parts;
        const int first = group * rows + part * PART_ROWS;
        const int end = min(first + PART_ROWS, (group + 1) * rows);
        if (step >= p.steps)
            continue;
        const float *from =
            states + step * l.state_stride + (quad / LANES * l.scan_threads + quad % LANES) * 4;
        const float *weights = weight ? weight + step * l.stride + smem_index(l, first) : NULL;
        four<float> sum = {};
        #pragma unroll 4
        for (int row = first; row < end; row++) {
            const four<float> x = *(const four<float> *)(from + row * LANES * 4);
            const float w = weight ? weights[row - first] : 1;
            for (int j = 0; j < 4; j++)
                sum.x[j] = fmaf(w, x.x[j], sum.x[j]);
        }
        *(four<float> *)(to + (part * l.steps + step) * l.key_stride + group * l.width + 4 * quad) =
            sum;
    }
}

/* Sums over the rows of a group, including their parts; ends with a barrier. */
template <int LANES>
static __device__ void sum_rows(const layout &l, const coord &p, const chunk_smem &s,
                                const float *states, const float *weight, float *to)
{
    sum_parts_of_rows<LANES>(l, p, states, weight, l.parts > 1 ? s.sums : to);
    __syncthreads();
    if (l.parts == 1)
        return;
    #pragma unroll 1
    for (int i = threadIdx.x; i < p.steps * l.key_stride; i += blockDim.x) {
        const int column = i % l.key_stride;
        float sum = 0;
        for (int part = 0; part < l.parts && column < l.width; part++)
            sum += s.sums[part * l.steps * l.key_stride + i];
        if (column < l.width)
            to[i] = sum;
    }
    __syncthreads();
}

/* ---- from the gradients of the keys to those of k, q, z ---- */

/* The gradients of k^ (with the term of u), of q, and the term of du in that of z:
 * [steps][stride]. */
struct gradients {
    float *dkhat, *dq, *dz;
};

template <int LANES>
static __device__ __forceinline__ float dot_with_row(const float *row, const float *x)
{
    float sum = 0;
    for (int j = 0; j < OCTET * LANES; j += 4) {
        const four<float> a = *(const four<float> *)(row + j), b = *(const four<float> *)(x + j);
        for (int n = 0; n < 4; n++)
            sum = fmaf(a.x[n], b.x[n], sum);
    }
    return sum;
}

/* Computes them for a factor, from the gradients of the three keys; dz only with an inner z. */
template <int LANES>
static __device__ void through_factors(const layout &l, const coord &p, const chunk_smem &s,
                                       const float *dwrite, const float *dread, const gradients &g)
{
    for (int i = threadIdx.x; i < p.steps * l.c.N; i += blockDim.x) {
        const int step = i / l.c.N, n = i % l.c.N, at = step * l.stride + n;
        const float *W_r = s.W_r + n * l.width, *V = s.V + n * l.width;
        const float du = dot_with_row<LANES>(V, dread + step * l.key_stride);
        const float dkhat = dot_with_row<LANES>(W_r, dwrite + step * l.key_stride);
        g.dkhat[at] = l.c.z_inside ? fmaf(s.z[at], du, dkhat) : dkhat + du;
        g.dq[at] = dot_with_row<LANES>(V, s.dquery + step * l.key_stride);
        if (l.c.z_inside)
            g.dz[at] = du * s.khat[at];
    }
}

/* Computes the chunk's partial sums of dV and dW_r, four columns of a row per thread. */
static __device__ void factor_gradients(const layout &l, const coord &p, const chunk_smem &s,
                                        const float *dwrite, const float *dread)
{
    const cell_call &c = l.c;
    const int quads = l.width / 4;
    const int64_t chunk_offset = (p.bh * l.chunks + p.chunk) * c.M;
    for (int i = threadIdx.x; i < 2 * quads * c.N; i += blockDim.x) {
        const int n = i % c.N, column = i / c.N % quads * 4;
        const bool of_V = i / c.N / quads == 0;
        four<float> sum = {};
        for (int step = 0; step < p.steps; step++) {
            const int at = step * l.stride + n, key = step * l.key_stride + column;
            const four<float> a = *(const four<float> *)((of_V ? dread : dwrite) + key);
            const four<float> b = *(const four<float> *)(s.dquery + key);
            const float x = of_V ? s.u[at] : s.khat[at], q = of_V ? s.q[at] : 0;
            for (int j = 0; j < 4; j++)
                sum.x[j] = fmaf(q, b.x[j], fmaf(x, a.x[j], sum.x[j]));
        }
        for (int j = 0; j < 4 && column + j < c.columns; j++)
            (of_V ? l.dV : l.dW_r)[chunk_offset + (of_V ? n * c.columns + column + j
                                                        : (column + j) * c.N + n)] = sum.x[j];
    }
}

/* Adds du's terms for state blocks with an inner z, where the keys are k^, u and q themselves. */
static __device__ void through_gate(const layout &l, const coord &p, const chunk_smem &s,
                                    const gradients &g)
{
    for (int i = threadIdx.x; i < p.steps * p.rows; i += blockDim.x) {
        const int at = i / p.rows * l.stride + smem_index(l, i % p.rows);
        const float du = g.dz[at];
        g.dkhat[at] = fmaf(s.z[at], du, g.dkhat[at]);
        g.dz[at] = du * s.khat[at];
    }
}

/* Replaces dk^ by dk, without the terms of tied dq and dv. */
static __device__ void through_norm(const layout &l, const coord &p, const chunk_smem &s,
                                    float *dkhat)
{
    for (int i = threadIdx.x; i < group_items(l, p); i += blockDim.x) {
        const group_item a = group_item_of(l, p, i);
        const int at = a.step * l.stride + a.group * l.width, end = a.any ? l.c.group : 0;
        float khat_dot = 0;
        for (int j = a.sub; j < end; j += l.group_threads)
            khat_dot = fmaf(s.khat[at + j], dkhat[at + j], khat_dot);
        khat_dot = warp_sum(khat_dot, l.group_threads);
        const float length = a.any ? s.length[a.step * p.groups + a.group] : 0;
        const float scale = key_scale_full(length);
        khat_dot = length > 0 ? khat_dot / length : 0;
        for (int j = a.sub; j < end; j += l.group_threads)
            dkhat[at + j] = fmaf(-khat_dot, s.khat[at + j], scale * dkhat[at + j]);
    }
}

template <typename T, int ELEMENTS>
static __device__ __forceinline__ void store_gradients(const layout &l, const coord &p,
                                                       const chunk_smem &s, const gradients &g)
{
    const cell_call &c = l.c;
    #pragma unroll 1
    for (int i = threadIdx.x; i < items<ELEMENTS>(p); i += blockDim.x) {
        const item it = item_of<ELEMENTS>(l, p, i);
        const int step = it.step * l.stride;
        const array<float, ELEMENTS> dq = load_smem<ELEMENTS>(l, g.dq + step, it.element);
        const array<float, ELEMENTS> dv = load_smem<ELEMENTS>(l, s.v + step, it.element);
        array<float, ELEMENTS> dk = load_smem<ELEMENTS>(l, g.dkhat + step, it.element), dz = {};
        for (int j = 0; j < ELEMENTS; j++)
            dk.x[j] += (c.dq ? 0 : dq.x[j]) + (l.tied_v ? dv.x[j] : 0);
        store_global<T, ELEMENTS>(c.dk, it.at, dk);
        if (!l.tied_v)
            store_global<T, ELEMENTS>(c.dv, it.at, dv);
        if (c.dq)
            store_global<T, ELEMENTS>(c.dq, it.at, dq);
        if (!c.dz)
            continue;
        if (c.z_inside)
            dz = load_smem<ELEMENTS>(l, g.dz + step, it.element);
        if (c.z_outside) {
            const array<float, ELEMENTS> reads = load_smem<ELEMENTS>(l, s.reads + step, it.element);
            for (int j = 0; j < ELEMENTS; j++)
                dz.x[j] = fmaf(-dv.x[j], reads.x[j], dz.x[j]);
        }
        store_global<T, ELEMENTS>(c.dz, it.at, dz);
    }
}

/* Computes and stores the chunk's gradients after the scan.  The keys' gradients overwrite query
 * and read; a factor's gradients of k^, q, z overwrite the states. */
template <typename T, int LANES>
static __device__ void finish_chunk(const layout &l, const coord &p, const chunk_smem &s)
{
    float *const dwrite = s.query, *const dread = s.read;
    gradients g = {dwrite, s.dquery, dread};

    sum_rows<LANES>(l, p, s, s.states + l.state_stride, NULL, dwrite);
    if (l.separate_dread)
        sum_rows<LANES>(l, p, s, s.dread, NULL, dread);
    if (l.c.lowrank) {
        const int element_floats = l.steps * l.stride;
        g = {s.states, s.states + element_floats, s.states + 2 * element_floats};
        through_factors<LANES>(l, p, s, dwrite, dread, g);
        factor_gradients(l, p, s, dwrite, dread);
        __syncthreads();
    } else if (l.c.z_inside) {
        through_gate(l, p, s, g);
        __syncthreads();
    }
    through_norm(l, p, s, g.dkhat);
    __syncthreads();
    if (l.vectorised)
        store_gradients<T, 8>(l, p, s, g);
    else
        store_gradients<T, 1>(l, p, s, g);
}

template <typename T, int LANES, int NONLIN>
__global__ void __launch_bounds__(THREADS_MAX) backward_narrow(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const cell_call &c = l.c;
    const chunk_smem s = chunk_smem_of(l, true, buffer);
    const coord p = take_ticket<LANES>(l, s.ticket, true);
    const int columns = p.any ? c.columns : 0;

    load_chunk<T, true>(l, p, s);
    __syncthreads();
    if (p.scans)
        replay_chunk<T, LANES, NONLIN>(l, p, s);
    __syncthreads();
    sum_rows<LANES>(l, p, s, s.states + l.state_stride, s.dy, s.dquery);
    if (p.scans) {
        float8 G = p.chunk + 1 == l.chunks
                       ? load_floats<LANES>(c.dlast + p.element, columns, p.lane)
                       : receive_value(l, l.handover, p, p.chunk);
        scan_back<LANES, NONLIN>(l, p, s, G);
        if (p.chunk > 0)
            send_value(l, l.handover, p, p.chunk - 1, G);
        else
            store_columns<float, LANES>(c.dfirst + p.element, columns, p.lane, G);
    }
    __syncthreads();
    finish_chunk<T, LANES>(l, p, s);
}

template <typename T>
kernel backward_kernel(const layout &l)
{
    const bool tanh = l.c.nonlin == E74_TANH;
    if (l.lanes == 1)
        return tanh ? backward_narrow<T, 1, E74_TANH> : backward_narrow<T, 1, E74_LINEAR>;
    return tanh ? backward_narrow<T, 2, E74_TANH> : backward_narrow<T, 2, E74_LINEAR>;
}

#define EACH(T) template kernel backward_kernel<T>(const layout &);
GPU_TYPES(EACH)

}    // namespace e74_narrow
