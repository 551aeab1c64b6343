/* e74_cell, kernel `rows`, the way back.
 *
 * Segments are cut into pieces, whose states fit into shared memory.
 * Where a segment is several, a first launch notes the states between them,
 * each segment for itself.  Then a block has three crews, each at its own
 * place: one replays a piece from its first state and leaves the states in
 * shared memory; one walks back over the piece after that; the helpers bring
 * the keys of the piece that is replayed next, and write the gradients, a
 * stride behind.  What is added up over the rows is so within each warp first.
 * So the chain is the longer of replaying and walking back, not their sum.  The
 * crews meet at a barrier each stride.
 *
 * Where rows are long, the chain does not bind but instructions and what shared
 * memory gives: a carrier has two rows, and a block as many states as fit.
 *
 * A last launch puts the sums of several blocks of one (sequence, head)
 * together, in their order, and turns gradients of normalised keys into those
 * of keys. */
#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/e74/e74_cell_rows.cuh"

enum { REPLAYS, WALKS_BACK, HELPS, CREWS };

/* Of long rows, those of so many lanes, a carrier has several: fewer keys to fetch
 * and fewer sums over rows for the same work, and fewer parts of a state. */
enum { LONG = 16, LONG_ROWS = 2, LONG_CREW = 256, LONG_HELPERS = 128 };

/* ---- pieces ---- */

/* Some steps of a segment; none, before the first and after the last. */
struct piece {
    int segment, sub, steps;
};

/* Where a piece begins within its segment. */
static __host__ __device__ __forceinline__ int begin_of(const layout &l, int sub)
{
    return sub * l.steps - (sub > l.longer ? sub - l.longer : 0);
}

/* Its first step. */
static __device__ __forceinline__ int time_of(const layout &l, const piece &w)
{
    return w.segment * (int)l.c.K + begin_of(l, w.sub);
}

static __device__ piece piece_of(const layout &l, int segment, int sub)
{
    const int begin = begin_of(l, sub);
    const int end = min(begin_of(l, sub + 1), (int)l.c.T - segment * (int)l.c.K);
    return {segment, sub, segment < 0 ? 0 : end - begin};
}

/* Where a block is: the piece that is walked back over, the one before it,
 * which is replayed, and the next, whose keys are brought. */
struct tour {
    piece back, now, next;
    int strides;
    int third, half; /* now's place in shared memory */
};

static __device__ tour go(const layout &l, const piece &back, const piece &now, int third, int half)
{
    const bool first = now.sub == 0;
    const piece next =
        piece_of(l, first ? now.segment - 1 : now.segment, first ? l.subs - 1 : now.sub - 1);
    return {back, now, next, (max(back.steps, now.steps) + l.stride - 1) / l.stride, third, half};
}

static __device__ tour begin(const layout &l)
{
    const int last = (int)l.segments - 1;
    return go(l, {}, piece_of(l, last, (int)l.pieces - last * l.subs - 1), 0, 0);
}

static __device__ int third_after(int third)
{
    return third == 2 ? 0 : third + 1;
}

static __device__ tour go_on(const layout &l, const tour &at)
{
    return go(l, at.now, at.next, third_after(at.third), 1 - at.half);
}

/* Where the states before sub-piece 1, 2, ... of a segment are noted. */
static __device__ float *noted(const layout &l, int64_t segment, int sub)
{
    return l.within + (segment * (l.subs - 1) + sub - 1) * l.c.BH * l.c.M;
}

/* The row's state before a piece. */
template <int LANES>
static __device__ strip<1> first_state(const layout &l, const place &p, const piece &w)
{
    return w.sub ? load_strip<LANES, 1>(noted(l, w.segment, w.sub) + p.element,
                                        p.any ? l.c.columns : 0, p.lane)
                 : kept_state<LANES, 1>(l.c, p, w.segment);
}

static __device__ void prefetch_lines(const void *from, int64_t bytes, int first, int each)
{
    #pragma unroll 1
    for (int64_t at = first * 128; at < bytes; at += each * 128)
        prefetch_l2((const char *)from + at);
}

/* What the crews will load of a piece, to where it is near. */
template <typename T>
static __device__ __forceinline__ void prefetch_piece(const layout &l, const place &p,
                                                      const piece &w)
{
    const call &c = l.c;
    const int size = w.sub || c.kept == KEPT_F32 ? 4 : 2;
    const int64_t state = p.bh * c.M + (int64_t)p.first * c.columns;
    const char *const kept = (const char *)c.checkpoints + w.segment * c.BH * c.M * size;
    const int key = p.group * c.columns, keys = c.columns * sizeof(T), rows = p.rows * sizeof(T);

    if (!w.steps)
        return;
    prefetch_lines((w.sub ? (const char *)noted(l, w.segment, w.sub) : kept) + state * size,
                   (int64_t)p.rows * c.columns * size, p.self, l.helpers);
    for (int step = p.self; step < w.steps; step += l.helpers) {
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

/* ---- forward again ---- */

/* A row in flight: its state, the next step's numbers, and what the state
 * reads with that step's key. */
template <int EACH>
struct under_way {
    strip<EACH> S;
    table at;
    meal<EACH> now;
    float reads;
};

template <int LANES, int EACH, bool INSIDE>
static __device__ __forceinline__ void set_out(under_way<EACH> *w, const layout &l, const place &p,
                                               const staged &s)
{
    w->at = table_of(l, p, s, 0);
    w->now = serve<LANES, EACH, INSIDE>(&w->at, l, p);
    w->reads = lanes_sum<LANES>(dot(w->S, w->now.read));
}

/* (The number after a piece's last is fetched and not used.)  Loads and stores
 * queue up before shuffles: none between a dot product's two halves. */
template <typename T, int LANES, int EACH, bool INSIDE>
static __device__ __forceinline__ void step_on(under_way<EACH> *w, const layout &l, const place &p)
{
    const meal<EACH> then = serve<LANES, EACH, INSIDE>(&w->at, l, p);
    advance<T>(w->S, w->now, w->reads, l.c.nonlin == E74_TANH);
    w->reads = lanes_sum<LANES>(dot(w->S, then.read));
    w->now = then;
}

/* The states between the pieces of each segment: one crew, since many blocks
 * share an SM. */
template <typename T, int LANES, int EACH, bool INSIDE, bool ALIGNED>
__global__ void __launch_bounds__(CREW, LANES > 2 ? 4 : 3) note_rows(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const int64_t blocks = gridDim.x / l.segments, segment = blockIdx.x / blocks;
    const place p = map_shared_rank<LANES, EACH, 1>(l, blockIdx.x % blocks);
    const int64_t begin = segment * l.c.K, steps = min(l.c.K, l.c.T - begin);
    staged s;
    under_way<EACH> w;

    carve(l, 0, buffer, &s);
    w.S = kept_state<LANES, EACH>(l.c, p, segment);
    for (int sub = 0; begin_of(l, sub + 1) < steps; sub++) {
        const int from = begin_of(l, sub), to = begin_of(l, sub + 1);
        bring<T, LANES * EACH, false, ALIGNED>(l, p, begin + from, 0, to - from, s);
        __syncthreads();
        set_out<LANES, EACH, INSIDE>(&w, l, p, s);
        #pragma unroll 2
        for (int i = from; i < to; i++)
            step_on<T, LANES, EACH, INSIDE>(&w, l, p);
        store_strip<LANES, EACH>(noted(l, segment, sub + 1) + p.element, p.any ? l.c.columns : 0,
                                 p.lane, w.S);
        __syncthreads();
    }
}

/* ---- several rows a carrier ---- */

/* Numbers of as many rows, which are neighbours. */
template <int ROWS>
struct alignas(4 * ROWS) few {
    float x[ROWS];
};

template <int ROWS>
static __device__ __forceinline__ few<ROWS> take_few(const float *from)
{
    return *(const few<ROWS> *)from;
}

template <int ROWS>
static __device__ __forceinline__ void leave_few(float *to, const few<ROWS> &f)
{
    *(few<ROWS> *)to = f;
}

/* Side by side the sums of several take little longer than one. */
template <int LANES, int ROWS>
static __device__ __forceinline__ void sum_lanes(few<ROWS> *f)
{
    for (int d = LANES / 2; d; d /= 2)
        for (int r = 0; r < ROWS; r++)
            f->x[r] += __shfl_xor_sync(0xffffffff, f->x[r], d);
}

/* The shares of a carrier's rows in a vector, added up and never contracted. */
template <int ROWS>
static __device__ __forceinline__ eight together(const eight share[ROWS])
{
    eight sum = share[0];
    for (int r = 1; r < ROWS; r++)
        for (int j = 0; j < COLUMNS; j++)
            sum.x[j] = __fadd_rn(sum.x[j], share[r].x[j]);
    return sum;
}

/* ---- a block's shared memory on the way back ---- */

enum { DKEY, DQ, DU };

/* What the crews leave for each other.  Pieces take turns in the first two,
 * strides in the others. */
struct desk {
    float *staged;  /* [3] pieces' keys and numbers of rows */
    float *slots;   /* [slots][rows][width] states before and after each step */
    float *sums;    /* [vectors][2][stride][warps][width]: gradients of keys, over a warp's rows */
    float *dv, *dz; /* [2][stride][rows] */
};

/* One piece has its states from the first slot on, the next from the last slot
 * back: replay follows into the slots that the way back leaves.  In a stride it
 * writes one state for each step, at first one more, and none that is still to be
 * read. */
static __host__ __device__ int slots_of(const layout &l)
{
    return l.steps + 1 + l.stride + 1;
}

static __host__ __device__ int carve_desk(const layout &l, float *at, desk *d)
{
    staged s;

    d->staged = at;
    d->slots = at + 3 * carve(l, 1, NULL, &s);
    d->sums = d->slots + slots_of(l) * l.rows * l.width;
    d->dv = d->sums + l.vectors * 2 * l.stride * l.warps * l.width;
    d->dz = d->dv + 2 * l.stride * l.rows;
    return (int)(d->dz - at) + 2 * l.stride * l.rows;
}

/* Where the thread leaves its part of a vector's sums of the i-th step of a stride. */
template <int LANES>
static __device__ float *sums_of(const layout &l, const place &p, const desk &d, int vector,
                                 int half, int i)
{
    const int at = row_part_at<LANES>(p.self), column = run<LANES>(at / 4, p.lane) + at % 4;
    const int row = ((vector * 2 + half) * l.stride + i) * l.warps + p.self / 32;
    return d.sums + row * l.width + column;
}

template <int LANES>
static __device__ __forceinline__ void leave_sums(float *to, const eight &e, int place)
{
    const row_part<LANES> part = over_rows<LANES>(e, place);
    const int columns = part.columns, once = columns < 4 ? columns : 4;
    if (place & 31 & -(8 * LANES))
        return; /* one of several with this column */
    for (int i = 0; i < columns; i += once) {
        few<once> f;
        for (int j = 0; j < once; j++)
            f.x[j] = part.x[i + j];
        leave_few(to + i * LANES, f);
    }
}

static __device__ staged staged_of(const layout &l, const desk &d, int third)
{
    staged s;
    const int size = carve(l, 1, NULL, &s);
    carve(l, 1, d.staged + third * size, &s);
    return s;
}

/* A carrier's first row in the slots of a piece. */
struct shelf {
    float *first; /* before all steps */
    int next;     /* from there to the state after a step */
};

static __device__ shelf shelf_of(const layout &l, const place &p, const desk &d, int half)
{
    const int state = l.rows * l.width;
    return {d.slots + (half ? (slots_of(l) - 1) * state : 0) + p.row * l.width,
            half ? -state : state};
}

/* ---- the first crew: replay ---- */

/* A step's key, and its numbers of the carrier's rows. */
template <int ROWS>
struct meal_again {
    eight write, read;
    few<ROWS> v, z;
};

template <int LANES, int ROWS, bool INSIDE>
static __device__ __forceinline__ meal_again<ROWS> serve_again(table *at, const layout &l,
                                                               const place &p)
{
    meal_again<ROWS> m;
    m.write = take<LANES>(at->write, p.lane);
    m.read = INSIDE ? take<LANES>(at->read, p.lane) : m.write;
    m.v = take_few<ROWS>(at->v);
    if (l.c.z_outside)
        m.z = take_few<ROWS>(at->z);
    else
        for (int r = 0; r < ROWS; r++)
            m.z.x[r] = 1;
    at->read += l.width;
    at->write += l.width;
    at->v += l.rows;
    at->z += l.rows;
    return m;
}

/* Rows in flight: what they read is with the next step's key. */
template <int ROWS>
struct again {
    strip<1> S[ROWS];
    table at;
    meal_again<ROWS> now;
    few<ROWS> reads;
};

template <int LANES, int ROWS>
static __device__ __forceinline__ few<ROWS> read_with(const again<ROWS> &w, const eight &key)
{
    few<ROWS> reads;
    for (int r = 0; r < ROWS; r++)
        reads.x[r] = dot(w.S[r].of[0], key);
    sum_lanes<LANES, ROWS>(&reads);
    return reads;
}

/* Returns delta.  (The number after a piece's last is fetched and not used.) */
template <typename T, int LANES, int ROWS, bool INSIDE>
static __device__ __forceinline__ few<ROWS> step_again(again<ROWS> *w, const layout &l,
                                                       const place &p)
{
    const meal_again<ROWS> then = serve_again<LANES, ROWS, INSIDE>(&w->at, l, p);
    few<ROWS> delta;
    for (int r = 0; r < ROWS; r++) {
        const meal<1> m = {{{w->now.write}}, {{w->now.read}}, w->now.v.x[r], w->now.z.x[r]};
        delta.x[r] = advance<T>(w->S[r], m, w->reads.x[r], l.c.nonlin == E74_TANH);
    }
    w->reads = read_with<LANES, ROWS>(*w, then.read);
    w->now = then;
    return delta;
}

template <int LANES, int ROWS>
static __device__ __forceinline__ void leave_states(float *to, const layout &l, const place &p,
                                                    const again<ROWS> &w)
{
    for (int r = 0; r < ROWS; r++)
        leave<LANES>(to + r * l.width, p.lane, w.S[r].of[0]);
}

/* A single row's first state is on its way for as long as the piece before takes.
 * (With a place of its own it keeps registers free.) */
template <typename T, int LANES, int ROWS, bool INSIDE>
static __device__ __forceinline__ void replay(const layout &l, const desk &d)
{
    const place p = map_shared_rank<LANES, 1, ROWS>(l, blockIdx.x);
    tour at = begin(l);
    strip<1> first = {};
    int half = 0;

    if (ROWS == 1)
        first = first_state<LANES>(l, p, at.now);
    block_barrier();
    for (; at.strides; at = go_on(l, at)) {
        const staged s = staged_of(l, d, at.third);
        const int steps = at.now.steps;
        const shelf states = shelf_of(l, p, d, at.half);
        float *slot = states.first;
        float *delta_at = s.delta + p.row, *reads_at = s.reads + p.row;
        again<ROWS> w;

        w.S[0] = first;
        if (ROWS == 1 && at.next.steps)
            first = first_state<LANES>(l, p, at.next);
        if (steps) {
            for (int r = 0; ROWS > 1 && r < ROWS; r++)
                w.S[r] = first_state<LANES>(l, at_row(l, p, r), at.now);
            leave_states<LANES>(slot, l, p, w);
            w.at = table_of(l, p, s, 0);
            w.now = serve_again<LANES, ROWS, INSIDE>(&w.at, l, p);
            w.reads = read_with<LANES, ROWS>(w, w.now.read);
        }
        const float *dy_at = s.dy + p.row;
        for (int n = 0, i = 0; n < at.strides; n++, half = 1 - half) {
            float *dq_at = sums_of<LANES>(l, p, d, DQ, half, 0);
            #pragma unroll 2
            for (const int to = min(i + l.stride, steps); i < to; i++) {
                const few<ROWS> reads = w.reads, dy = take_few<ROWS>(dy_at);
                const few<ROWS> delta = step_again<T, LANES, ROWS, INSIDE>(&w, l, p);
                eight dq[ROWS];
                slot += states.next;
                leave_states<LANES>(slot, l, p, w);
                if (p.lane == 0) {
                    leave_few(delta_at, delta);
                    if (l.c.z_outside)
                        leave_few(reads_at, reads);
                }
                for (int r = 0; r < ROWS; r++)
                    for (int j = 0; j < COLUMNS; j++)
                        dq[r].x[j] = dy.x[r] * w.S[r].of[0].x[j];
                leave_sums<LANES>(dq_at, together<ROWS>(dq), p.self);
                dq_at += l.warps * l.width;
                delta_at += l.rows;
                reads_at += l.rows;
                dy_at += l.rows;
            }
            block_barrier();
        }
    }
}

/* ---- the second crew: walk back ---- */

/* What a step back needs, and where the one before it is. */
template <int ROWS>
struct meal_back {
    eight write, read, query;
    few<ROWS> dy, z, delta, reads;
};

struct table_back {
    const float *write, *read, *query, *dy, *z, *delta, *reads;
};

static __device__ __forceinline__ table_back table_back_of(const layout &l, const place &p,
                                                           const staged &s, int step)
{
    const int key = step * l.width, number = step * l.rows + p.row;
    return {s.khat + key, s.u + key,        s.q + key,       s.dy + number,
            s.z + number, s.delta + number, s.reads + number};
}

template <int LANES, int ROWS, bool INSIDE>
static __device__ __forceinline__ meal_back<ROWS> serve_back(table_back *at, const layout &l,
                                                             const place &p, bool more)
{
    const int key = more ? l.width : 0, number = more ? l.rows : 0;
    meal_back<ROWS> m;
    m.query = take<LANES>(at->query, p.lane);
    m.write = take<LANES>(at->write, p.lane);
    m.read = INSIDE ? take<LANES>(at->read, p.lane) : m.write;
    m.dy = take_few<ROWS>(at->dy);
    m.delta = take_few<ROWS>(at->delta);
    for (int r = 0; r < ROWS; r++) {
        m.z.x[r] = 1;
        m.reads.x[r] = 0;
    }
    if (l.c.z_outside) {
        m.z = take_few<ROWS>(at->z);
        m.reads = take_few<ROWS>(at->reads);
    }
    at->query -= key;
    at->write -= key;
    at->read -= key;
    at->dy -= number;
    at->delta -= number;
    at->z -= number;
    at->reads -= number;
    return m;
}

/* The states of a carrier's rows. */
template <int ROWS>
struct states {
    eight of[ROWS];
};

template <int LANES, int ROWS>
static __device__ __forceinline__ states<ROWS> take_states(const layout &l, const place &p,
                                                           const float *from)
{
    states<ROWS> S;
    for (int r = 0; r < ROWS; r++)
        S.of[r] = take<LANES>(from + r * l.width, p.lane);
    return S;
}

/* G is dL/dS, after a step, then before it. */
template <int LANES, int ROWS, bool INSIDE>
static __device__ __forceinline__ void walk_back(const layout &l, const place &p, const desk &d)
{
    const bool tanh = l.c.nonlin == E74_TANH, AHEAD = ROWS == 1;
    const int to_du = (DU - DKEY) * 2 * l.stride * l.warps * l.width;
    states<ROWS> G, after, before;
    meal_back<ROWS> now;
    table_back from_here;
    int half = 0, third = 0;

    for (int r = 0; r < ROWS; r++) {
        const place row = at_row(l, p, r);
        G.of[r] = load_floats<LANES>(l.c.dlast + row.element, row.any ? l.c.columns : 0, p.lane);
    }
    block_barrier();
    for (tour at = begin(l); at.strides; third = at.third, at = go_on(l, at)) {
        const int steps = at.back.steps;
        const shelf slots = shelf_of(l, p, d, 1 - at.half);
        const float *slot = slots.first + steps * slots.next;

        if (steps) {
            from_here = table_back_of(l, p, staged_of(l, d, third), steps - 1);
            after = take_states<LANES, ROWS>(l, p, slot);
            if (AHEAD) {
                now = serve_back<LANES, ROWS, INSIDE>(&from_here, l, p, steps > 1);
                before = take_states<LANES, ROWS>(l, p, slot - slots.next);
            }
        }
        for (int n = 0, step = steps - 1; n < at.strides; n++, half = 1 - half) {
            const int from = max(step + 1 - l.stride, 0);
            const int row = (half * l.stride + step - from) * l.rows + p.row;
            float *dkey_at = sums_of<LANES>(l, p, d, DKEY, half, step - from);
            float *dv_at = d.dv + row;
            #pragma unroll (ROWS > 1 ? 1 : 2)
            for (; step >= from; step--) {
                few<ROWS> dv, dz, dreads;
                if (!AHEAD)
                    now = serve_back<LANES, ROWS, INSIDE>(&from_here, l, p, true);
                for (int r = 0; r < ROWS; r++) {
                    for (int j = 0; j < COLUMNS; j++)
                        G.of[r].x[j] = fmaf(now.dy.x[r], now.query.x[j], G.of[r].x[j]);
                    if (tanh)
                        for (int j = 0; j < COLUMNS; j++)
                            G.of[r].x[j] *= fmaf(-after.of[r].x[j], after.of[r].x[j], 1.0f);
                    dv.x[r] = dot(G.of[r], now.write);
                }
                sum_lanes<LANES, ROWS>(&dv);
                meal_back<ROWS> then;
                states<ROWS> next;
                if (AHEAD) {
                    then = serve_back<LANES, ROWS, INSIDE>(&from_here, l, p, step > 1);
                    next = take_states<LANES, ROWS>(
                        l, p, step > 0 ? slot - 2 * slots.next : slot - slots.next);
                } else
                    before = take_states<LANES, ROWS>(l, p, slot - slots.next);
                eight share[ROWS], read = now.read;
                for (int r = 0; r < ROWS; r++) {
                    dreads.x[r] = -dv.x[r] * now.z.x[r];
                    dz.x[r] = -dv.x[r] * now.reads.x[r];
                }
                if (INSIDE) {
                    for (int r = 0; r < ROWS; r++)
                        for (int j = 0; j < COLUMNS; j++)
                            share[r].x[j] = dreads.x[r] * before.of[r].x[j];
                    leave_sums<LANES>(dkey_at + to_du, together<ROWS>(share), p.self);
                    if (!AHEAD)
                        read = take<LANES>(from_here.read + l.width, p.lane);
                }
                for (int r = 0; r < ROWS; r++) {
                    const float with_key = INSIDE ? 0 : dreads.x[r], delta = now.delta.x[r];
                    for (int j = 0; j < COLUMNS; j++) {
                        share[r].x[j] = fmaf(with_key, before.of[r].x[j], delta * G.of[r].x[j]);
                        G.of[r].x[j] = fmaf(dreads.x[r], read.x[j], G.of[r].x[j]);
                    }
                }
                leave_sums<LANES>(dkey_at, together<ROWS>(share), p.self);
                if (p.lane == 0) {
                    leave_few(dv_at, dv);
                    leave_few(dv_at + (d.dz - d.dv), dz);
                }
                slot -= slots.next;
                dkey_at -= l.warps * l.width;
                dv_at -= l.rows;
                after = before;
                if (AHEAD) {
                    before = next;
                    now = then;
                }
            }
            block_barrier();
        }
    }
    const place last = map_shared_rank<LANES, 1, ROWS>(l, blockIdx.x);
    for (int r = 0; r < ROWS; r++) {
        const place row = at_row(l, last, r);
        store_columns<float, LANES>(l.c.dfirst + row.element, row.any ? l.c.columns : 0, row.lane,
                                    G.of[r]);
    }
}

/* ---- the helpers ---- */

/* What the carriers did in the n-th stride of a tour. */
struct done {
    int t, steps, back_t, back_steps;
};

static __device__ __forceinline__ done done_in(const layout &l, const tour &at, int n)
{
    const int i = n * l.stride, left = max(at.back.steps - i, 0);
    const int steps = min(l.stride, at.now.steps - i), back_steps = min(l.stride, left);
    return {time_of(l, at.now) + i, steps, time_of(l, at.back) + left - back_steps, back_steps};
}

/* The sums of a stride's vectors over the warps: to [T,BH,N]. */
template <int LANES>
static __device__ __forceinline__ void put_sums(const layout &l, const place &p, const desk &d,
                                                const done &w, int half)
{
    const call &c = l.c;

    for (int item = p.self; item < l.vectors * l.stride * 2 * LANES; item += l.helpers) {
        const int row = item / (2 * LANES), column = item % (2 * LANES) * 4;
        const int vector = row / l.stride, step = row % l.stride;
        if (step >= (vector == DQ ? w.steps : w.back_steps))
            continue;
        const int at = (row + (vector + half) * l.stride) * l.warps;
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

/* dv and dz as far as they are the rows' own. */
template <typename T, int LANES>
static __device__ void put_rows(const layout &l, const place &p, int64_t t, int steps,
                                const float *dv, const float *dz)
{
    const call &c = l.c;
    for (int step = p.step; step < steps && p.number < p.rows; step += p.span) {
        const four<float> v = *(const four<float> *)(dv + step * l.rows + p.number);
        const four<float> z = *(const four<float> *)(dz + step * l.rows + p.number);
        if (l.dv)
            put_numbers<float>(l, p, l.dv, t + step, v);
        else
            put_numbers<T>(l, p, c.dv, t + step, v);
        if (c.z_outside && l.dz)
            put_numbers<float>(l, p, l.dz, t + step, z);
        else if (c.z_outside)
            put_numbers<T>(l, p, c.dz, t + step, z);
    }
}

/* Steps of the n-th batch of a piece. */
static __device__ __forceinline__ int steps_of(const layout &l, const piece &w, int n)
{
    return n < 0 ? 0 : min(l.batch, w.steps - n * l.batch);
}

/* The keys of a piece, a batch a stride, and in the last stride what is left. */
template <typename T, int LANES, bool ALIGNED>
static __device__ __forceinline__ void fetch(const layout &l, const place &p, const piece &w, int n,
                                             bool last, const staged &to)
{
    const int from = min(n * l.batch, w.steps);
    bring<T, LANES, true, ALIGNED>(l, p, time_of(l, w), from,
                                   last ? w.steps : min(from + l.batch, w.steps), to);
}

/* The same, but what is sent for in a stride arrives in the next. */
template <typename T, int LANES, bool INSIDE, bool ALIGNED>
static __device__ __forceinline__ void fetch_ahead(incoming<T> *in, const layout &l, const place &p,
                                                   const piece &w, int n, bool last,
                                                   const staged &to)
{
    do {
        const int have = steps_of(l, w, n - 1);
        if (have > 0)
            settle<T, LANES, true>(*in, l, p, (n - 1) * l.batch, have, to);
        if (n * l.batch < w.steps)
            *in = send_for<T, LANES, INSIDE, true, ALIGNED>(l, p, time_of(l, w), n * l.batch,
                                                            w.steps);
    } while (last && steps_of(l, w, n++) > 0);
}

/* The third crew: a stride behind, and a piece ahead.  (Where registers are few,
 * nothing that is large can be on its way over a barrier, nor be asked for.) */
template <typename T, int LANES, int ROWS, bool INSIDE, bool ALIGNED>
static __device__ __forceinline__ void help(const layout &l, const place &p, const desk &d)
{
    const bool AHEAD = ROWS == 1 || (sizeof(T) == 2 && !INSIDE);
    int half = 0;

    fetch<T, LANES, ALIGNED>(l, p, begin(l).now, 0, true, staged_of(l, d, 0));
    block_barrier();
    for (tour at = begin(l); at.strides; at = go_on(l, at)) {
        incoming<T> in = {};

        if (ALIGNED || AHEAD || sizeof(T) == 4)
            prefetch_piece<T>(l, p, go_on(l, at).next);
        for (int n = 0; n < at.strides; n++, half = 1 - half) {
            const staged to = staged_of(l, d, third_after(at.third));
            const bool last = n + 1 == at.strides;
            if (AHEAD)
                fetch_ahead<T, LANES, INSIDE, ALIGNED>(&in, l, p, at.next, n, last, to);
            else
                fetch<T, LANES, ALIGNED>(l, p, at.next, n, last, to);
            block_barrier();
            const done w = done_in(l, at, n);
            put_sums<LANES>(l, p, d, w, half);
            put_rows<T, LANES>(l, p, w.back_t, w.back_steps, d.dv + half * l.stride * l.rows,
                               d.dz + half * l.stride * l.rows);
        }
    }
}

template <typename T, int LANES, int ROWS, bool INSIDE, bool ALIGNED>
__global__ void __launch_bounds__(ROWS > 1 ? 2 * LONG_CREW + LONG_HELPERS : CREWS * CREW, 1)
    backward_rows(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const place p = map_shared_rank<LANES, 1, ROWS>(l, blockIdx.x);
    desk d;

    carve_desk(l, buffer, &d);
    switch (of_warp(p.crew)) {
    case REPLAYS: replay<T, LANES, ROWS, INSIDE>(l, d); break;
    case WALKS_BACK: walk_back<LANES, ROWS, INSIDE>(l, p, d); break;
    default: help<T, LANES, ROWS, INSIDE, ALIGNED>(l, p, d);
    }
}

/* ---- the keys' gradients ---- */

static __device__ __forceinline__ void add(eight *to, const eight &e)
{
    for (int j = 0; j < COLUMNS; j++)
        to->x[j] += e.x[j];
}

/* The sum over the parts, first part first. */
template <int LANES, bool ALIGNED>
static __device__ __forceinline__ eight sum_of_parts(const layout &l, int vector, int64_t at,
                                                     int columns, int lane)
{
    const int64_t all = l.c.T * l.c.BH * l.c.N;
    const float *from = l.sums + vector * l.parts * all + at;
    eight sum = {};
    #pragma unroll 4
    for (int part = 0; part < l.parts; part++)
        add(&sum, widened(load_columns<float, LANES, ALIGNED>(from + part * all, columns, lane)));
    return sum;
}

/* From the sums to dk, dq, dz, and dv where it is tied: LANES threads for one
 * (step, sequence, head, group). */
template <typename T, int LANES, bool ALIGNED>
__global__ void __launch_bounds__(128) finish_keys(layout l)
{
    const call &c = l.c;
    const int lane = threadIdx.x % LANES, groups = c.N / c.rows;
    const int64_t item = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const bool any = item < c.T * c.BH * groups;
    const int64_t at = any ? item / groups * c.N + item % groups * c.columns : 0;
    const int columns = any ? c.columns : 0;

    eight k = widened(load_columns<T, LANES, ALIGNED>((const T *)c.k + at, columns, lane));
    eight dkey = sum_of_parts<LANES, ALIGNED>(l, DKEY, at, columns, lane);
    eight dq = sum_of_parts<LANES, ALIGNED>(l, DQ, at, columns, lane);
    float length = sqrtf(lanes_sum<LANES>(dot(k, k))), scale = length + (float)E74_EPSILON;
    if (c.z_inside) {
        eight z = widened(load_columns<T, LANES, ALIGNED>((const T *)c.z + at, columns, lane));
        eight du = sum_of_parts<LANES, ALIGNED>(l, DU, at, columns, lane), dz;
        for (int j = 0; j < COLUMNS; j++) {
            dkey.x[j] = fmaf(z.x[j], du.x[j], dkey.x[j]);
            dz.x[j] = du.x[j] * (k.x[j] / scale);
        }
        if (l.dz)
            add(&dz, load_floats<LANES>(l.dz + at, columns, lane));
        store_columns<T, LANES>((T *)c.dz + at, columns, lane, dz);
    }
    float along = lanes_sum<LANES>(dot(k, dkey));
    along = length > 0 ? along / (length * scale * scale) : 0;
    for (int j = 0; j < COLUMNS; j++)
        dkey.x[j] = fmaf(-along, k.x[j], dkey.x[j] / scale);
    if (c.dq)
        store_columns<T, LANES>((T *)c.dq + at, columns, lane, dq);
    else
        add(&dkey, dq);
    if (l.dv)
        add(&dkey, load_floats<LANES>(l.dv + at, columns, lane));
    store_columns<T, LANES>((T *)c.dk + at, columns, lane, dkey);
}

/* ---- launches ---- */

static size_t desk_bytes(const layout &l)
{
    desk d;
    return carve_desk(l, NULL, &d) * sizeof(float);
}

static bool fits(layout *l, int steps, int stride)
{
    l->steps = steps;
    l->stride = stride;
    return desk_bytes(*l) <= SHARED_MAX;
}

/* Pieces as long as fits, of like length, and as long a stride. */
static layout back_layout(const struct frame *f)
{
    layout l = layout_of(f, {CREWS, CREW, 0, 1, 1});
    const call &c = l.c;
    int steps = least(PIECE, (int)c.K), stride = STRIDE;

    if (l.lanes >= LONG)
        l = layout_of(f, {CREWS, LONG_CREW, LONG_HELPERS, 1, LONG_ROWS});
    l.warps = l.crew / 32;
    while (!fits(&l, steps, 1))
        steps--;
    l.subs = (int)ceil_div(c.K, steps);
    steps = (int)ceil_div(c.K, l.subs);
    while (!fits(&l, steps, stride))
        stride /= 2;
    l.longer = (int)c.K - l.subs * (steps - 1);
    l.segments = ceil_div(c.T, c.K);
    const int left = (int)(c.T - (l.segments - 1) * c.K);
    l.pieces = (l.segments - 1) * l.subs + 1;
    while (begin_of(l, l.pieces - (l.segments - 1) * l.subs) < left)
        l.pieces++;
    return l;
}

/* The parts of the workspace; returns its floats. */
static int64_t divide(layout *l, float *work)
{
    const call &c = l->c;
    int64_t all = c.T * c.BH * c.N, n = 0;

    l->sums = work;
    n += l->vectors * l->parts * all;
    if (l->tied_v) {
        l->dv = work + n;
        n += all;
    }
    if (c.z_inside && c.z_outside) {
        l->dz = work + n;
        n += all;
    }
    l->within = work + n;
    return n + l->segments * (l->subs - 1) * c.BH * c.M;
}

template <typename T, int LANES, bool ALIGNED>
static int note(const layout &l)
{
    staged s;
    const size_t bytes = carve(l, 0, NULL, &s) * sizeof(float);
    void (*const kernel)(layout) = l.c.z_inside ? note_rows<T, LANES, 2, true, ALIGNED>
                                                : note_rows<T, LANES, 2, false, ALIGNED>;

    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    kernel<<<blocks_of(l) * l.segments, l.crew, bytes, gpu_stream()>>>(l);
    return cudaGetLastError();
}

/* Segments side by side are rows enough for sixteen columns a thread. */
template <typename T, bool ALIGNED>
static int note_between(const struct frame *f, const layout &back)
{
    layout l = layout_of(f, {1, CREW, 0, 2, 1});

    l.steps = back.steps;
    l.longer = back.longer;
    l.within = back.within;
    l.subs = back.subs;
    l.segments = back.segments;
    switch (l.lanes) {
    case 1: return note<T, 1, ALIGNED>(l);
    case 2: return note<T, 2, ALIGNED>(l);
    case 4: return note<T, 4, ALIGNED>(l);
    case 8: return note<T, 8, ALIGNED>(l);
    default: return note<T, 16, ALIGNED>(l);
    }
}

template <typename T, int LANES, int ROWS, bool ALIGNED>
static int launch(const layout &l)
{
    const call &c = l.c;
    const int64_t blocks = blocks_of(l), items = c.T * c.BH * (c.N / c.rows);
    const size_t shared = desk_bytes(l);
    void (*const kernel)(layout) = c.z_inside ? backward_rows<T, LANES, ROWS, true, ALIGNED>
                                              : backward_rows<T, LANES, ROWS, false, ALIGNED>;
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    kernel<<<blocks, 2 * l.crew + l.helpers, shared, gpu_stream()>>>(l);
    CUDA(cudaGetLastError());
    void (*const finish)(layout) = finish_keys<T, LANES, ALIGNED>;
    finish<<<ceil_div(items * LANES, 128), 128, 0, gpu_stream()>>>(l);
    return cudaGetLastError();
}

template <typename T, bool ALIGNED>
static int backward_of(const struct frame *f)
{
    layout l = back_layout(f);

    divide(&l, (float *)f->work);
    if (l.subs > 1) {
        const int e = note_between<T, ALIGNED>(f, l);
        if (e)
            return e;
    }
    switch (l.lanes) {
    case 1: return launch<T, 1, 1, ALIGNED>(l);
    case 2: return launch<T, 2, 1, ALIGNED>(l);
    case 4: return launch<T, 4, 1, ALIGNED>(l);
    case 8: return launch<T, 8, 1, ALIGNED>(l);
    case 16: return launch<T, 16, LONG_ROWS, ALIGNED>(l);
    default: return launch<T, 32, LONG_ROWS, ALIGNED>(l);
    }
}

/* ALIGNED: runs of four columns are never cut short. */
template <typename T>
int rows_backward(const struct frame *f)
{
    return call_of(f).columns % 4 ? backward_of<T, false>(f) : backward_of<T, true>(f);
}
template int rows_backward<float>(const struct frame *f);
template int rows_backward<__nv_bfloat16>(const struct frame *f);

size_t rows_back_work(const struct frame *f)
{
    layout l = back_layout(f);
    return sizeof(float) * divide(&l, NULL);
}
