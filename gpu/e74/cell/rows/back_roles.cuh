/* back_roles.cuh - e74_cell, kernel `rows`, the backward pass: its warp roles.  Per row, with G = dL/dS:
 *
 *     G <- (G + dy q^T) f',  dv = G k^,  dreads = -z dv,  dz = -dv reads
 *     dk^ += delta G,  du += dreads S_{t-1},  dq += dy S_t,  G <- G + dreads u^T
 *
 * A segment (the steps between two checkpoints) is cut into subsegments, whose states fit into
 * shared memory.  Where there are several, a first launch stores the states between them
 * (states.cu), one block per segment and part of a state.  Then a block has three
 * warp roles, pipelined: REPLAY recomputes a subsegment from its first state and stores the states
 * in shared memory; SCAN_BACK scans backward over the subsegment that was replayed before; the
 * producers load the keys of the one that is replayed next, and store the gradients one interval
 * behind.  Each warp first sums over its own rows.  So the time is the maximum of replaying and
 * scanning backward, not their sum.  The roles meet at a barrier after each interval.
 *
 * Where rows are long, the kernel is bound not by latency but by instruction issue and shared
 * memory bandwidth: a consumer has two rows, and a block as many states as fit.
 *
 * A last launch adds the sums of several blocks of one (sequence, head), in a fixed order, and
 * converts gradients of normalised keys to those of keys. */
#ifndef E74_CELL_ROWS_BACK_ROLES_CUH
#define E74_CELL_ROWS_BACK_ROLES_CUH

#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/e74/cell/rows/back.cuh"

namespace e74_rows
{

/* The sum over a consumer's rows; __fadd_rn is never contracted to fma. */
template <int ROWS>
static __device__ __forceinline__ float8 together(const float8 share[ROWS])
{
    float8 sum = share[0];
    for (int r = 1; r < ROWS; r++)
        for (int j = 0; j < OCTET; j++)
            sum.x[j] = __fadd_rn(sum.x[j], share[r].x[j]);
    return sum;
}

/* ---- warp role REPLAY ---- */

/* The row's state before a subsegment. */
template <int LANES>
static __device__ strip<1> first_state(const layout &l, const work_coord &p, const subsegment &w)
{
    return w.sub ? load_strip<LANES, 1>(sub_state(l, w.segment, w.sub) + p.element,
                                        p.any ? l.c.columns : 0, p.lane)
                 : load_checkpoint<LANES, 1>(l.c, p, w.segment);
}

/* A step's key, and its elements of the consumer's rows. */
template <int ROWS>
struct replay_operands {
    float8 write, read;
    array<float, ROWS> v, z;
};

template <int LANES, int ROWS, bool INSIDE>
static __device__ __forceinline__ replay_operands<ROWS>
load_replay_operands(operand_ptrs *at, const layout &l, const work_coord &p)
{
    replay_operands<ROWS> m;
    m.write = load_columns<LANES>(at->write, p.lane);
    m.read = INSIDE ? load_columns<LANES>(at->read, p.lane) : m.write;
    m.v = load_array<ROWS>(at->v);
    if (l.c.z_outside)
        m.z = load_array<ROWS>(at->z);
    else
        for (int r = 0; r < ROWS; r++)
            m.z.x[r] = 1;
    at->read += l.width;
    at->write += l.width;
    at->v += l.rows;
    at->z += l.rows;
    return m;
}

/* A consumer's rows; reads = S u of the next step. */
template <int ROWS>
struct replay_state {
    strip<1> S[ROWS];
    operand_ptrs at;
    replay_operands<ROWS> now;
    array<float, ROWS> reads;
};

template <int LANES, int ROWS>
static __device__ __forceinline__ array<float, ROWS> read_with(const replay_state<ROWS> &w,
                                                               const float8 &key)
{
    array<float, ROWS> reads;
    for (int r = 0; r < ROWS; r++)
        reads.x[r] = dot(w.S[r].of[0], key);
    warp_sums<LANES>(reads.x);
    return reads;
}

/* Returns delta.  (The element after a subsegment's last is loaded and not used.) */
template <typename T, int LANES, int ROWS, bool INSIDE>
static __device__ __forceinline__ array<float, ROWS>
replay_step(replay_state<ROWS> *w, const layout &l, const work_coord &p)
{
    const replay_operands<ROWS> then = load_replay_operands<LANES, ROWS, INSIDE>(&w->at, l, p);
    array<float, ROWS> delta;
    for (int r = 0; r < ROWS; r++) {
        const operands<1> m = {{{w->now.write}}, {{w->now.read}}, w->now.v.x[r], w->now.z.x[r]};
        delta.x[r] = advance<T>(w->S[r], m, w->reads.x[r], l.c.nonlin == E74_TANH);
    }
    w->reads = read_with<LANES, ROWS>(*w, then.read);
    w->now = then;
    return delta;
}

template <int LANES, int ROWS>
static __device__ __forceinline__ void store_states(float *to, const layout &l, const work_coord &p,
                                                    const replay_state<ROWS> &w)
{
    for (int r = 0; r < ROWS; r++)
        store_columns<LANES>(to + r * l.width, p.lane, w.S[r].of[0]);
}

/* A single row's first state is prefetched one subsegment ahead.  (Computing p here again
 * saves registers.) */
template <typename T, int LANES, int ROWS, bool INSIDE>
static __device__ __forceinline__ void replay(const layout &l, unsigned char *buffer)
{
    const smem_layout d = smem_of(l, buffer);
    const work_coord p = work_coord_of<LANES, 1, ROWS>(l, blockIdx.x);
    pipeline at = pipeline_begin(l);
    strip<1> first = {};
    int half = 0;

    if (ROWS == 1)
        first = first_state<LANES>(l, p, at.now);
    block_barrier();
    for (; at.intervals; at = pipeline_next(l, at)) {
        const stage_ptrs s = stage_of(l, d, at.stage);
        const int steps = at.now.steps;
        const slot_ptr states = slot_ptr_of(l, p, d, at.half);
        float *slot = states.first;
        float *delta_at = s.delta + p.row, *reads_at = s.reads + p.row;
        replay_state<ROWS> w;

        w.S[0] = first;
        if (ROWS == 1 && at.next.steps)
            first = first_state<LANES>(l, p, at.next);
        if (steps) {
            for (int r = 0; ROWS > 1 && r < ROWS; r++)
                w.S[r] = first_state<LANES>(l, at_row(l, p, r), at.now);
            store_states<LANES>(slot, l, p, w);
            w.at = operand_ptrs_of(l, p, s, 0);
            w.now = load_replay_operands<LANES, ROWS, INSIDE>(&w.at, l, p);
            w.reads = read_with<LANES, ROWS>(w, w.now.read);
        }
        const float *dy_at = s.dy + p.row;
        for (int n = 0, i = 0; n < at.intervals; n++, half = 1 - half) {
            float *dq_at = sums_of<LANES>(l, p, d, DQ, half, 0);
            #pragma unroll 2
            for (const int to = min(i + l.interval, steps); i < to; i++) {
                const array<float, ROWS> reads = w.reads, dy = load_array<ROWS>(dy_at);
                const array<float, ROWS> delta = replay_step<T, LANES, ROWS, INSIDE>(&w, l, p);
                float8 dq[ROWS];
                slot += states.next;
                store_states<LANES>(slot, l, p, w);
                if (p.lane == 0) {
                    store_array(delta_at, delta);
                    if (l.c.z_outside)
                        store_array(reads_at, reads);
                }
                for (int r = 0; r < ROWS; r++)
                    for (int j = 0; j < OCTET; j++)
                        dq[r].x[j] = dy.x[r] * w.S[r].of[0].x[j];
                store_warp_sums<LANES>(dq_at, together<ROWS>(dq), p.tid);
                dq_at += l.warps * l.width;
                delta_at += l.rows;
                reads_at += l.rows;
                dy_at += l.rows;
            }
            block_barrier();
        }
    }
}

/* ---- warp role SCAN_BACK ---- */

/* The operands of a step of the backward scan, and the addresses of the operands of the step before
 * it. */
template <int ROWS>
struct back_operands {
    float8 write, read, query;
    array<float, ROWS> dy, z, delta, reads;
};

struct back_ptrs {
    const float *write, *read, *query, *dy, *z, *delta, *reads;
};

static __device__ __forceinline__ back_ptrs back_ptrs_of(const layout &l, const work_coord &p,
                                                         const stage_ptrs &s, int step)
{
    const int key = step * l.width, row = step * l.rows + p.row;
    return {s.khat + key, s.u + key,     s.q + key,    s.dy + row,
            s.z + row,    s.delta + row, s.reads + row};
}

template <int LANES, int ROWS, bool INSIDE>
static __device__ __forceinline__ back_operands<ROWS>
load_back_operands(back_ptrs *at, const layout &l, const work_coord &p, bool more)
{
    const int key = more ? l.width : 0, row = more ? l.rows : 0;
    back_operands<ROWS> m;
    m.query = load_columns<LANES>(at->query, p.lane);
    m.write = load_columns<LANES>(at->write, p.lane);
    m.read = INSIDE ? load_columns<LANES>(at->read, p.lane) : m.write;
    m.dy = load_array<ROWS>(at->dy);
    m.delta = load_array<ROWS>(at->delta);
    for (int r = 0; r < ROWS; r++) {
        m.z.x[r] = 1;
        m.reads.x[r] = 0;
    }
    if (l.c.z_outside) {
        m.z = load_array<ROWS>(at->z);
        m.reads = load_array<ROWS>(at->reads);
    }
    at->query -= key;
    at->write -= key;
    at->read -= key;
    at->dy -= row;
    at->delta -= row;
    at->z -= row;
    at->reads -= row;
    return m;
}

/* The states of a consumer's rows. */
template <int ROWS>
struct states {
    float8 of[ROWS];
};

template <int LANES, int ROWS>
static __device__ __forceinline__ states<ROWS> load_states(const layout &l, const work_coord &p,
                                                           const float *from)
{
    states<ROWS> S;
    for (int r = 0; r < ROWS; r++)
        S.of[r] = load_columns<LANES>(from + r * l.width, p.lane);
    return S;
}

/* A consumer's rows; G is dL/dS, after a step, then before it.  Where it has one row, the operands
 * and the state of the next step are in flight during a step. */
template <int ROWS>
struct back_state {
    states<ROWS> G, after, before;
    back_operands<ROWS> now;
    back_ptrs from_here;
    const float *slot;      /* of `after` */
    float *dkey_at, *dv_at; /* this step's results */
};

/* Loads the operands of the last step of a subsegment. */
template <int LANES, int ROWS, bool INSIDE>
static __device__ __forceinline__ void begin_back(back_state<ROWS> *w, const layout &l,
                                                  const work_coord &p, const stage_ptrs &s,
                                                  const slot_ptr &slots, int steps)
{
    w->slot = slots.first + steps * slots.next;
    if (!steps)
        return;
    w->from_here = back_ptrs_of(l, p, s, steps - 1);
    w->after = load_states<LANES, ROWS>(l, p, w->slot);
    if (ROWS == 1) {
        w->now = load_back_operands<LANES, ROWS, INSIDE>(&w->from_here, l, p, steps > 1);
        w->before = load_states<LANES, ROWS>(l, p, w->slot - slots.next);
    }
}

/* G <- (G + dy q^T) f'; returns dv = G k^. */
template <int LANES, int ROWS>
static __device__ __forceinline__ array<float, ROWS> begin_step_back(back_state<ROWS> *w, bool tanh)
{
    array<float, ROWS> dv;
    for (int r = 0; r < ROWS; r++) {
        for (int j = 0; j < OCTET; j++)
            w->G.of[r].x[j] = fmaf(w->now.dy.x[r], w->now.query.x[j], w->G.of[r].x[j]);
        if (tanh)
            for (int j = 0; j < OCTET; j++)
                w->G.of[r].x[j] *= fmaf(-w->after.of[r].x[j], w->after.of[r].x[j], 1.0f);
        dv.x[r] = dot(w->G.of[r], w->now.write);
    }
    warp_sums<LANES>(dv.x);
    return dv;
}

/* One step; `next_slot`: the offset from a state's slot to that of the state after a step. */
template <int LANES, int ROWS, bool INSIDE>
static __device__ __forceinline__ void step_back(back_state<ROWS> *w, const layout &l,
                                                 const work_coord &p, int to_dz, int next_slot,
                                                 int step)
{
    const bool AHEAD = ROWS == 1;
    const int to_du = (DU - DKEY) * 2 * l.interval * l.warps * l.width;

    if (!AHEAD)
        w->now = load_back_operands<LANES, ROWS, INSIDE>(&w->from_here, l, p, true);
    const array<float, ROWS> dv = begin_step_back<LANES>(w, l.c.nonlin == E74_TANH);
    back_operands<ROWS> then;
    states<ROWS> next;
    if (AHEAD) {
        then = load_back_operands<LANES, ROWS, INSIDE>(&w->from_here, l, p, step > 1);
        next = load_states<LANES, ROWS>(l, p, w->slot - (step > 0 ? 2 : 1) * next_slot);
    } else
        w->before = load_states<LANES, ROWS>(l, p, w->slot - next_slot);
    float8 share[ROWS], read = w->now.read;
    array<float, ROWS> dz, dreads;
    for (int r = 0; r < ROWS; r++) {
        dreads.x[r] = -dv.x[r] * w->now.z.x[r];
        dz.x[r] = -dv.x[r] * w->now.reads.x[r];
    }
    if (INSIDE) {
        for (int r = 0; r < ROWS; r++)
            for (int j = 0; j < OCTET; j++)
                share[r].x[j] = dreads.x[r] * w->before.of[r].x[j];
        store_warp_sums<LANES>(w->dkey_at + to_du, together<ROWS>(share), p.tid);
        if (!AHEAD)
            read = load_columns<LANES>(w->from_here.read + l.width, p.lane);
    }
    for (int r = 0; r < ROWS; r++) {
        const float with_key = INSIDE ? 0 : dreads.x[r], delta = w->now.delta.x[r];
        for (int j = 0; j < OCTET; j++) {
            share[r].x[j] = fmaf(with_key, w->before.of[r].x[j], delta * w->G.of[r].x[j]);
            w->G.of[r].x[j] = fmaf(dreads.x[r], read.x[j], w->G.of[r].x[j]);
        }
    }
    store_warp_sums<LANES>(w->dkey_at, together<ROWS>(share), p.tid);
    if (p.lane == 0) {
        store_array(w->dv_at, dv);
        store_array(w->dv_at + to_dz, dz);
    }
    w->after = w->before;
    if (AHEAD) {
        w->before = next;
        w->now = then;
    }
}

template <int LANES, int ROWS, bool INSIDE>
static __device__ __forceinline__ void scan_back(const layout &l, const work_coord &p,
                                                 unsigned char *buffer)
{
    const smem_layout d = smem_of(l, buffer);
    back_state<ROWS> w;
    int half = 0, stage = 0;

    for (int r = 0; r < ROWS; r++) {
        const work_coord row = at_row(l, p, r);
        w.G.of[r] = load_floats<LANES>(l.c.dlast + row.element, row.any ? l.c.columns : 0, p.lane);
    }
    block_barrier();
    for (pipeline at = pipeline_begin(l); at.intervals;
         stage = at.stage, at = pipeline_next(l, at)) {
        const int steps = at.back.steps;
        const slot_ptr slots = slot_ptr_of(l, p, d, 1 - at.half);

        begin_back<LANES, ROWS, INSIDE>(&w, l, p, stage_of(l, d, stage), slots, steps);
        for (int n = 0, step = steps - 1; n < at.intervals; n++, half = 1 - half) {
            const int from = max(step + 1 - l.interval, 0);
            const int row = (half * l.interval + step - from) * l.rows + p.row;
            w.dkey_at = sums_of<LANES>(l, p, d, DKEY, half, step - from);
            w.dv_at = d.dv + row;
            #pragma unroll (ROWS > 1 ? 1 : 2)
            for (; step >= from; step--) {
                step_back<LANES, ROWS, INSIDE>(&w, l, p, (int)(d.dz - d.dv), slots.next, step);
                w.slot -= slots.next;
                w.dkey_at -= l.warps * l.width;
                w.dv_at -= l.rows;
            }
            block_barrier();
        }
    }
    const work_coord last = work_coord_of<LANES, 1, ROWS>(l, blockIdx.x);
    for (int r = 0; r < ROWS; r++) {
        const work_coord row = at_row(l, last, r);
        store_columns<float, LANES>(l.c.dfirst + row.element, row.any ? l.c.columns : 0, row.lane,
                                    w.G.of[r]);
    }
}

/* ---- the producers ---- */

static __device__ void prefetch_lines(const void *from, int64_t bytes, int first, int step)
{
    #pragma unroll 1
    for (int64_t at = first * 128; at < bytes; at += step * 128)
        prefetch_l2((const char *)from + at);
}

/* Prefetches the block's operands of a subsegment into L2. */
template <typename T>
static __device__ __forceinline__ void prefetch_subsegment(const layout &l, const work_coord &p,
                                                           const subsegment &w)
{
    const cell_call &c = l.c;
    const int size = w.sub || c.kept == KEPT_F32 ? 4 : 2;
    const int64_t state = p.bh * c.M + (int64_t)p.first * c.columns;
    const char *const kept = (const char *)c.checkpoints + w.segment * c.BH * c.M * size;
    const int key = p.group * c.columns, keys = c.columns * sizeof(T), rows = p.rows * sizeof(T);

    if (!w.steps)
        return;
    prefetch_lines((w.sub ? (const char *)sub_state(l, w.segment, w.sub) : kept) + state * size,
                   (int64_t)p.rows * c.columns * size, p.tid, l.producer_threads);
    for (int step = p.tid; step < w.steps; step += l.producer_threads) {
        const int64_t at = ((time_of(l, w) + step) * c.BH + p.bh) * c.N;
        prefetch_lines((const T *)c.k + at + key, keys, 0, 1);
        prefetch_lines((const T *)c.q + at + key, keys, 0, 1);
        prefetch_lines((const T *)c.v + at + p.first, rows, 0, 1);
        prefetch_lines((const T *)c.y + at + p.first, rows, 0, 1);
        prefetch_lines((const T *)c.dout + at + p.first, rows, 0, 1);
        if (c.z_inside)
            prefetch_lines((const T *)c.z + at + key, keys, 0, 1);
        if (c.z_outside)
            prefetch_lines((const T *)c.z + at + p.first, rows, 0, 1);
    }
}

/* The steps that were replayed, and scanned back over, in the n-th interval. */
struct interval_work {
    int t, steps, back_t, back_steps;
};

static __device__ __forceinline__ interval_work work_of_interval(const layout &l,
                                                                 const pipeline &at, int n)
{
    const int i = n * l.interval, left = max(at.back.steps - i, 0);
    const int steps = min(l.interval, at.now.steps - i), back_steps = min(l.interval, left);
    return {time_of(l, at.now) + i, steps, time_of(l, at.back) + left - back_steps, back_steps};
}

/* Sums an interval's vectors over the warps, and stores them to [T,BH,N]. */
template <int LANES>
static __device__ __forceinline__ void store_sums(const layout &l, const work_coord &p,
                                                  const smem_layout &d, const interval_work &w,
                                                  int half)
{
    const cell_call &c = l.c;

    for (int item = p.tid; item < l.vectors * l.interval * 2 * LANES; item += l.producer_threads) {
        const int row = item / (2 * LANES), column = item % (2 * LANES) * 4;
        const int vector = row / l.interval, step = row % l.interval;
        if (step >= (vector == DQ ? w.steps : w.back_steps))
            continue;
        const int at = (row + (vector + half) * l.interval) * l.warps;
        const float *from = d.sums + at * l.width + column;
        four<float> sum = *(const four<float> *)from;

        #pragma unroll 2
        for (int warp = 1; warp < l.warps; warp++) {
            from += l.width;
            const four<float> one = *(const four<float> *)from;
            for (int j = 0; j < 4; j++)
                sum.x[j] += one.x[j];
        }
        const int64_t t =
            (vector * l.parts + p.part) * c.T + (vector == DQ ? w.t : w.back_t) + step;
        store_four(l.sums + (t * c.BH + p.bh) * c.N + p.group * c.columns, c.columns, column, sum);
    }
}

/* Stores dv, and dz of the row side. */
template <typename T, int LANES>
static __device__ void store_rows(const layout &l, const work_coord &p, int64_t t, int steps,
                                  const float *dv, const float *dz)
{
    const cell_call &c = l.c;
    for (int step = p.step; step < steps && p.quad_row < p.rows; step += p.step_stride) {
        const four<float> v = *(const four<float> *)(dv + step * l.rows + p.quad_row);
        const four<float> z = *(const four<float> *)(dz + step * l.rows + p.quad_row);
        if (l.dv)
            store_elements<float>(l, p, l.dv, t + step, v);
        else
            store_elements<T>(l, p, c.dv, t + step, v);
        if (c.z_outside && l.dz)
            store_elements<float>(l, p, l.dz, t + step, z);
        else if (c.z_outside)
            store_elements<T>(l, p, c.dz, t + step, z);
    }
}

/* The number of steps in the n-th batch of a subsegment. */
static __device__ __forceinline__ int steps_of(const layout &l, const subsegment &w, int n)
{
    return n < 0 ? 0 : min(l.batch, w.steps - n * l.batch);
}

/* Loads the keys of a subsegment, one batch per interval, and the rest in the last interval. */
template <typename T, int LANES, bool ALIGNED>
static __device__ __forceinline__ void fetch(const layout &l, const work_coord &p,
                                             const subsegment &w, int n, bool last,
                                             const stage_ptrs &to)
{
    const int from = min(n * l.batch, w.steps);
    fill_stage<T, LANES, true, ALIGNED>(l, p, time_of(l, w), from,
                                        last ? w.steps : min(from + l.batch, w.steps), to);
}

/* Like fetch(), but the loads of one interval are stored to shared memory in the next. */
template <typename T, int LANES, bool INSIDE, bool ALIGNED>
static __device__ __forceinline__ void fetch_ahead(incoming<T> *in, const layout &l,
                                                   const work_coord &p, const subsegment &w, int n,
                                                   bool last, const stage_ptrs &to)
{
    do {
        const int have = steps_of(l, w, n - 1);
        if (have > 0)
            store_batch<T, LANES, true>(*in, l, p, (n - 1) * l.batch, have, to);
        if (n * l.batch < w.steps)
            *in = load_batch<T, LANES, true, ALIGNED>(l, p, time_of(l, w), n * l.batch, w.steps);
        if (!INSIDE)
            in->z = {};
    } while (last && steps_of(l, w, n++) > 0);
}

/* The producers store one interval behind, and load one subsegment ahead.  (Where registers are
 * few, no batch is kept in flight across a barrier, and nothing is prefetched.) */
template <typename T, int LANES, int ROWS, bool INSIDE, bool ALIGNED>
static __device__ __forceinline__ void produce(const layout &l, const work_coord &p,
                                               unsigned char *buffer)
{
    const smem_layout d = smem_of(l, buffer);
    const bool AHEAD = ROWS == 1 || (storage<T>::PER_WORD == 2 && !INSIDE);
    int half = 0;

    fetch<T, LANES, ALIGNED>(l, p, pipeline_begin(l).now, 0, true, stage_of(l, d, 0));
    block_barrier();
    for (pipeline at = pipeline_begin(l); at.intervals; at = pipeline_next(l, at)) {
        incoming<T> in = {};

        if (ALIGNED || AHEAD || storage<T>::PER_WORD == 1)
            prefetch_subsegment<T>(l, p, pipeline_next(l, at).next);
        for (int n = 0; n < at.intervals; n++, half = 1 - half) {
            const stage_ptrs to = stage_of(l, d, next_stage(at.stage));
            const bool last = n + 1 == at.intervals;
            if (AHEAD)
                fetch_ahead<T, LANES, INSIDE, ALIGNED>(&in, l, p, at.next, n, last, to);
            else
                fetch<T, LANES, ALIGNED>(l, p, at.next, n, last, to);
            block_barrier();
            const interval_work w = work_of_interval(l, at, n);
            store_sums<LANES>(l, p, d, w, half);
            store_rows<T, LANES>(l, p, w.back_t, w.back_steps, d.dv + half * l.interval * l.rows,
                                 d.dz + half * l.interval * l.rows);
        }
    }
}

} /* namespace e74_rows */

#endif
