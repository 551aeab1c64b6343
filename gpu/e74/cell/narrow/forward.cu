/* forward.cu - `forward_narrow`: one block per chunk, which receives the state from
 * the block of the previous chunk, scans, and sends the state on. */
#include "gpu/e74/cell/narrow/narrow.cuh"

namespace e74_narrow
{

/* Scans steps from ... to - 1 of the chunk; y overwrites v.  The dot product of the next step is
 * summed over the lanes together with this step's y. */
template <typename T, int LANES, int NONLIN>
static __device__ __forceinline__ void scan_steps(const layout &l, const coord &p,
                                                  const chunk_smem &s, int from, int to, float8 &S)
{
    const bool writes = p.any && p.lane == 0;
    operand_ptrs at = operand_ptrs_at(l, p, s, from);
    float *y_at = s.v + from * l.stride + p.row_offset;
    operands current = load_operands<LANES, false>(&at, l, p, from + 1 < to);
    float reads = warp_sum<LANES>(dot(S, current.read));

    #pragma unroll 2
    for (int i = from + 1; i < to; i++) {
        const operands ahead = load_operands<LANES, false>(&at, l, p, i + 1 < to);
        advance<T, NONLIN>(S, current, reads);
        float sums[] = {dot(S, current.query), dot(S, ahead.read)};
        warp_sums<LANES>(sums);
        reads = sums[1];
        sync_row<LANES>();
        if (writes)
            *y_at = sums[0];
        y_at += l.stride;
        current = ahead;
    }
    advance<T, NONLIN>(S, current, reads);
    const float y = warp_sum<LANES>(dot(S, current.query));
    sync_row<LANES>();
    if (writes)
        *y_at = y;
}

/* The last checkpoint of a chunk, if there is one. */
static __device__ checkpoint last_checkpoint(const cell_call &c, const coord &p)
{
    checkpoint k = first_checkpoint(c, p);
    const int64_t later = (p.steps - 1 - k.step) / c.K;
    if (k.step < p.steps)
        k = {k.segment + later, (int)(k.step + later * c.K)};
    return k;
}

/* The state before the chunk; or, if only initial states are stored, the state at the
 * chunk's last checkpoint, before step *from, if it has one. */
template <int LANES>
static __device__ __forceinline__ float8 first_state(const layout &l, const coord &p, int *from)
{
    const cell_call &c = l.c;
    const checkpoint last = l.only_initial ? last_checkpoint(c, p) : checkpoint{0, p.steps};
    if (last.step < p.steps) {
        *from = last.step;
        return load_checkpoint<LANES>(c, p, last.segment);
    }
    if (p.chunk == 0)
        return load_floats<LANES>(c.first + p.element, p.any ? c.columns : 0, p.lane);
    return receive_value(l, l.handover, p, p.chunk);
}

template <typename T, int ELEMENTS>
static __device__ __forceinline__ void store_outputs(const layout &l, const coord &p,
                                                     const chunk_smem &s)
{
    #pragma unroll 1
    for (int i = threadIdx.x; i < items<ELEMENTS>(p); i += blockDim.x) {
        const item it = item_of<ELEMENTS>(l, p, i);
        const array<float, ELEMENTS> y =
            load_smem<ELEMENTS>(l, s.v + it.step * l.stride, it.element);
        array<float, ELEMENTS> out;
        for (int j = 0; j < ELEMENTS; j++)
            out.x[j] = y.x[j] * y.x[j] / (1 + expf(-y.x[j]));
        store_global<T, ELEMENTS>(l.c.y, it.at, y);
        store_global<T, ELEMENTS>(l.c.out, it.at, out);
    }
}

template <typename T, int LANES, int NONLIN>
__global__ void __launch_bounds__(THREADS_MAX) forward_narrow(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const cell_call &c = l.c;
    const chunk_smem s = chunk_smem_of(l, false, buffer);
    const coord p = take_ticket<LANES>(l, s.ticket, false);
    const int64_t end = p.t + p.steps;

    if (l.only_initial && (end == c.T || end % c.K == 0))
        return;
    load_chunk<T, false>(l, p, s);
    __syncthreads();
    if (p.scans) {
        checkpoint next = l.only_initial ? checkpoint{0, p.steps} : first_checkpoint(c, p);
        int from = 0;
        float8 S = first_state<LANES>(l, p, &from);
        for (int to; from < p.steps; from = to) {
            if (from == next.step) {
                store_checkpoint<LANES>(c, p, next.segment, S);
                next_checkpoint(&next, c, p);
            }
            to = next.step;
            scan_steps<T, LANES, NONLIN>(l, p, s, from, to, S);
        }
        if (end < c.T)
            send_value(l, l.handover, p, p.chunk + 1, S);
        else
            store_columns<float, LANES>(c.last + p.element, p.any ? c.columns : 0, p.lane, S);
    }
    if (l.only_initial)
        return;
    __syncthreads();
    if (l.vectorised)
        store_outputs<T, 8>(l, p, s);
    else
        store_outputs<T, 1>(l, p, s);
}

template <typename T>
kernel forward_kernel(const layout &l)
{
    const bool tanh = l.c.nonlin == E74_TANH;
    if (l.lanes == 1)
        return tanh ? forward_narrow<T, 1, E74_TANH> : forward_narrow<T, 1, E74_LINEAR>;
    return tanh ? forward_narrow<T, 2, E74_TANH> : forward_narrow<T, 2, E74_LINEAR>;
}

#define EACH(T) template kernel forward_kernel<T>(const layout &);
GPU_TYPES(EACH)

}    // namespace e74_narrow
