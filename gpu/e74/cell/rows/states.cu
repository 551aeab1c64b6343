/* e74_cell, kernel `rows`, before its backward pass: stores the states between the subsegments of
 * each segment.  All segments run in parallel, which gives enough rows for sixteen columns per
 * thread. */
#include "gpu/device/launch.cuh"
#include "gpu/e74/cell/rows/rows.cuh"

using namespace e74_rows;

/* A row: its state, the next step's operands, and reads = S u of that step. */
template <int PER_LANE>
struct row_state {
    strip<PER_LANE> S;
    operand_ptrs at;
    operands<PER_LANE> now;
    float reads;
};

/* (The element after a subsegment's last is loaded and not used.)  Loads are issued before
 * shuffles, and none between the products and the shuffles of a dot product. */
template <typename T, int LANES, int PER_LANE, bool INSIDE>
static __device__ __forceinline__ void step_row(row_state<PER_LANE> *w, const layout &l,
                                                const work_coord &p)
{
    const operands<PER_LANE> then = load_operands<LANES, PER_LANE, INSIDE>(&w->at, l, p);
    advance<T>(w->S, w->now, w->reads, l.c.nonlin == E74_TANH);
    w->reads = warp_sum<LANES>(dot(w->S, then.read));
    w->now = then;
}

/* The steps of a subsegment, from ... to - 1. */
template <typename T, int LANES, int PER_LANE, bool INSIDE>
static __device__ __forceinline__ void scan(row_state<PER_LANE> *w, const layout &l,
                                            const work_coord &p, const stage_ptrs &s, int from,
                                            int to)
{
    w->at = operand_ptrs_of(l, p, s, 0);
    w->now = load_operands<LANES, PER_LANE, INSIDE>(&w->at, l, p);
    w->reads = warp_sum<LANES>(dot(w->S, w->now.read));
    #pragma unroll 2
    for (int i = from; i < to; i++)
        step_row<T, LANES, PER_LANE, INSIDE>(w, l, p);
}

/* A block has one warp role only, since many blocks share an SM. */
template <typename T, int LANES, int PER_LANE>
__global__ void __launch_bounds__(ROLE_THREADS, LANES > 2 ? 4 : 3) note_rows(layout l)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    const int64_t blocks = gridDim.x / l.segments, segment = blockIdx.x / blocks;
    const work_coord p = work_coord_of<LANES, PER_LANE, 1>(l, blockIdx.x % blocks);
    const int64_t begin = segment * l.c.K, steps = min(l.c.K, l.c.T - begin);
    smem_arena smem = {buffer, 0};
    const stage_ptrs s = alloc_stage(&smem, l, false);
    row_state<PER_LANE> w;

    w.S = load_checkpoint<LANES, PER_LANE>(l.c, p, segment);
    for (int sub = 0; begin_of(l, sub + 1) < steps; sub++) {
        const int from = begin_of(l, sub), to = begin_of(l, sub + 1);
        if (l.c.columns % 4)
            fill_stage<T, LANES * PER_LANE, false, false>(l, p, begin + from, 0, to - from, s);
        else
            fill_stage<T, LANES * PER_LANE, false, true>(l, p, begin + from, 0, to - from, s);
        __syncthreads();
        if (l.c.z_inside)
            scan<T, LANES, PER_LANE, true>(&w, l, p, s, from, to);
        else
            scan<T, LANES, PER_LANE, false>(&w, l, p, s, from, to);
        store_strip<LANES, PER_LANE>(sub_state(l, segment, sub + 1) + p.element,
                                     p.any ? l.c.columns : 0, p.lane, w.S);
        __syncthreads();
    }
}

/* ---- launches ---- */

template <typename T, int LANES>
static int launch_note_rows(struct context *on, const layout &l)
{
    const size_t bytes = arena_bytes<alloc_stage>(l, false);
    void (*const kernel)(layout) = note_rows<T, LANES, 2>;

    CUDA(allow_smem(kernel, bytes));
    kernel<<<blocks_of(l) * l.segments, l.role_threads, bytes, on->stream>>>(l);
    return cudaGetLastError();
}

template <typename T>
static int launch_for_lanes(struct context *on, const layout &l)
{
    switch (l.lanes) {
    case 1: return launch_note_rows<T, 1>(on, l);
    case 2: return launch_note_rows<T, 2>(on, l);
    case 4: return launch_note_rows<T, 4>(on, l);
    case 8: return launch_note_rows<T, 8>(on, l);
    default: return launch_note_rows<T, 16>(on, l);
    }
}

template <typename T>
int e74_rows::store_sub_states(const struct call *f, const layout &back)
{
    layout l = layout_of(f, {1, ROLE_THREADS, 0, 2, 1});

    l.steps = back.steps;
    l.long_subs = back.long_subs;
    l.sub_states = back.sub_states;
    l.subs = back.subs;
    l.segments = back.segments;
    return launch_for_lanes<T>(f->context, l);
}
#define EACH(T)                                                                                    \
    template int e74_rows::store_sub_states<T>(const struct call *f, const layout &back);
GPU_TYPES(EACH)
