/* e74_cell, kernel `rows`, the way back.
 *
 * Segments are cut into pieces, whose states fit into shared memory twice.
 * Where a segment is several, a first launch notes the states between them,
 * each segment for itself.  Then a block has three crews, each at its own
 * place: one replays a piece from its first state and leaves the states in
 * shared memory; one walks back over the piece after that; the helpers bring
 * the keys of the piece that is replayed next, and write the gradients, a
 * stride behind.  What is added up over the rows is so within each warp first.
 * So the chain is the longer of replaying and walking back, not their sum.  The
 * crews meet at a barrier each stride.
 *
 * A last launch puts the sums of several blocks of one (sequence, head)
 * together, in their order, and turns gradients of normalised keys into those
 * of keys. */
#include "gpu/e74_cell_rows.cuh"

enum { REPLAYS, WALKS_BACK, HELPS, CREWS };

/* ---- pieces ---- */

/* Some steps of a segment; none, before the first and after the last. */
struct piece {
    int64_t segment, t;
    int sub, steps;
};

static __device__ piece piece_of(const layout &l, int64_t segment, int sub)
{
    const int64_t t = segment * l.c.K + sub * l.steps;
    const int64_t most = min(l.c.K - sub * l.steps, l.c.T - t);
    return {segment, t, sub, segment < 0 ? 0 : (int)min((int64_t)l.steps, most)};
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
    const int subs = (int)(l.pieces - (l.segments - 1) * l.subs);
    return go(l, {}, piece_of(l, l.segments - 1, subs - 1), 0, 0);
}

static __device__ tour go_on(const layout &l, const tour &at)
{
    return go(l, at.now, at.next, at.third == 2 ? 0 : at.third + 1, 1 - at.half);
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
    for (int64_t at = first * 128; at < bytes; at += each * 128)
        prefetch((const char *)from + at);
}

/* What the crews will load of a piece, to where it is near. */
template <typename T>
static __device__ void prefetch_piece(const layout &l, const place &p, const piece &w)
{
    const call &c = l.c;
    const int crew = l.rows * l.lanes, size = w.sub || c.kept == KEPT_F32 ? 4 : 2;
    const int64_t state = p.bh * c.M + (int64_t)p.first * c.columns;
    const char *const kept = (const char *)c.checkpoints + w.segment * c.BH * c.M * size;
    const void *const keys[] = {c.k, c.q, c.z}, *const rows[] = {c.v, c.y, c.dout, c.z};

    if (!w.steps)
        return;
    prefetch_lines((w.sub ? (const char *)noted(l, w.segment, w.sub) : kept) + state * size,
                   (int64_t)p.rows * c.columns * size, p.self, crew);
    for (int step = p.self; step < w.steps; step += crew) {
        const int64_t at = ((w.t + step) * c.BH + p.bh) * c.N;
        for (int i = 0; i < (c.z_inside ? 3 : 2); i++)
            prefetch_lines((const T *)keys[i] + at + p.group * c.columns, c.columns * sizeof(T), 0,
                           1);
        for (int i = 0; i < (c.z_outside ? 4 : 3); i++)
            prefetch_lines((const T *)rows[i] + at + p.first, p.rows * sizeof(T), 0, 1);
    }
}

/* ---- forward again ---- */

/* A row under way: its state, the next step's numbers, and what the state
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

/* Returns delta.  (The number after a piece's last is fetched and not used.)
 * Loads and stores queue up before shuffles: none between a dot product's two
 * halves. */
template <typename T, int LANES, int EACH, bool INSIDE>
static __device__ __forceinline__ float step_on(under_way<EACH> *w, const layout &l, const place &p)
{
    const meal<EACH> then = serve<LANES, EACH, INSIDE>(&w->at, l, p);
    const float delta = advance<T>(w->S, w->now, w->reads, l.c.nonlin == E74_TANH);
    w->reads = lanes_sum<LANES>(dot(w->S, then.read));
    w->now = then;
    return delta;
}

/* The states between the pieces of each segment: one crew, since many blocks
 * share a multiprocessor. */
template <typename T, int LANES, int EACH, bool INSIDE>
__global__ void __launch_bounds__(CREW, LANES > 2 ? 4 : 3) note_rows(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const int64_t blocks = gridDim.x / l.segments, segment = blockIdx.x / blocks;
    const place p = place_of<LANES, EACH>(l, blockIdx.x % blocks);
    const int64_t begin = segment * l.c.K, end = min(begin + l.c.K, l.c.T);
    const int notes = (int)ceil_div(end - begin, l.steps) - 1;
    staged s;
    under_way<EACH> w;

    carve(l, 0, buffer, &s);
    w.S = kept_state<LANES, EACH>(l.c, p, segment);
    for (int sub = 0; sub < notes; sub++) {
        bring<T, LANES * EACH, false>(l, p, begin + sub * l.steps, 0, l.steps, s);
        __syncthreads();
        set_out<LANES, EACH, INSIDE>(&w, l, p, s);
        UNROLL(2)
        for (int i = 0; i < l.steps; i++)
            step_on<T, LANES, EACH, INSIDE>(&w, l, p);
        store_strip<LANES, EACH>(noted(l, segment, sub + 1) + p.element, p.any ? l.c.columns : 0,
                                 p.lane, w.S);
        __syncthreads();
    }
}

/* ---- a block's shared memory on the way back ---- */

enum { DKEY, DQ, DU };

/* What the crews leave for each other.  Pieces take turns in the first two,
 * strides in the others. */
struct desk {
    float *staged;  /* [3] pieces' keys and numbers of rows */
    float *slots;   /* [2][steps + 1][rows][width] states before and after each step */
    float *sums;    /* [vectors][2][stride][warps][width]: gradients of keys, over a warp's rows */
    float *dv, *dz; /* [2][stride][rows] */
    int warps;      /* of a crew */
};

static __host__ __device__ int carve_desk(const layout &l, float *at, desk *d)
{
    staged s;

    d->warps = l.rows * l.lanes / 32;
    d->staged = at;
    d->slots = at + 3 * carve(l, 1, NULL, &s);
    d->sums = d->slots + 2 * (l.steps + 1) * l.rows * l.width;
    d->dv = d->sums + l.vectors * 2 * l.stride * d->warps * l.width;
    d->dz = d->dv + 2 * l.stride * l.rows;
    return (int)(d->dz - at) + 2 * l.stride * l.rows;
}

/* Where the thread leaves its part of a vector's sums of the i-th step of a stride. */
template <int LANES>
static __device__ float *sums_of(const layout &l, const place &p, const desk &d, int vector,
                                 int half, int i)
{
    const int at = row_part_at<LANES>(p.self % 32), column = run<LANES>(at / 4, p.lane) + at % 4;
    const int row = ((vector * 2 + half) * l.stride + i) * d.warps + p.self / 32;
    return d.sums + row * l.width + column;
}

template <int LANES>
static __device__ __forceinline__ void leave_sums(float *to, const eight &e, int place)
{
    const row_part<LANES> part = over_rows<LANES>(e, place);
    if (place & 31 & -(8 * LANES))
        return; /* one of several with this column */
    for (int j = 0; j < part.columns; j++)
        to[j / 4 * 4 * LANES + j % 4] = part.x[j];
}

static __device__ staged staged_of(const layout &l, const desk &d, int third)
{
    staged s;
    const int size = carve(l, 1, NULL, &s);
    carve(l, 1, d.staged + third * size, &s);
    return s;
}

static __device__ float *slots_of(const layout &l, const desk &d, int half)
{
    return d.slots + half * (l.steps + 1) * l.rows * l.width;
}

/* ---- the first crew: replay ---- */

template <typename T, int LANES, bool INSIDE>
static __device__ __forceinline__ void replay(const layout &l, const place &p, const desk &d)
{
    const int piece = l.rows * l.width;
    tour at = begin(l);
    strip<1> first = first_state<LANES>(l, p, at.now);
    int half = 0;

    for (; at.strides; at = go_on(l, at)) {
        const staged s = staged_of(l, d, at.third);
        const int steps = at.now.steps;
        float *slot = slots_of(l, d, at.half) + p.row * l.width;
        float *delta_at = s.delta + p.row, *reads_at = s.reads + p.row;
        under_way<1> w;

        w.S = first;
        if (at.next.steps)
            first = first_state<LANES>(l, p, at.next);
        if (steps) {
            leave<LANES>(slot, p.lane, w.S.of[0]);
            set_out<LANES, 1, INSIDE>(&w, l, p, s);
        }
        const float *dy_at = s.dy + p.row;
        for (int n = 0, i = 0; n < at.strides; n++, half = 1 - half) {
            float *dq_at = sums_of<LANES>(l, p, d, DQ, half, 0);
            UNROLL(2)
            for (const int to = min(i + l.stride, steps); i < to; i++) {
                const float reads = w.reads, dy = *dy_at;
                const float delta = step_on<T, LANES, 1, INSIDE>(&w, l, p);
                eight dq;
                slot += piece;
                leave<LANES>(slot, p.lane, w.S.of[0]);
                if (p.lane == 0) {
                    *delta_at = delta;
                    *reads_at = reads;
                }
                for (int j = 0; j < COLUMNS; j++)
                    dq.x[j] = dy * w.S.of[0].x[j];
                leave_sums<LANES>(dq_at, dq, p.self % 32);
                dq_at += d.warps * l.width;
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
struct meal_back {
    eight write, read, query;
    float dy, z, delta, reads;
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

template <int LANES, bool INSIDE>
static __device__ __forceinline__ meal_back serve_back(table_back *at, const layout &l,
                                                       const place &p, bool more)
{
    const int key = more ? l.width : 0, number = more ? l.rows : 0;
    meal_back m;
    m.query = take<LANES>(at->query, p.lane);
    m.write = take<LANES>(at->write, p.lane);
    m.read = INSIDE ? take<LANES>(at->read, p.lane) : m.write;
    m.dy = *at->dy;
    m.delta = *at->delta;
    m.z = l.c.z_outside ? *at->z : 1;
    m.reads = l.c.z_outside ? *at->reads : 0;
    at->query -= key;
    at->write -= key;
    at->read -= key;
    at->dy -= number;
    at->delta -= number;
    at->z -= number;
    at->reads -= number;
    return m;
}

/* G is dL/dS, after a step, then before it. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void walk_back(const layout &l, const place &p, const desk &d)
{
    const bool tanh = l.c.nonlin == E74_TANH;
    const int piece = l.rows * l.width, columns = p.any ? l.c.columns : 0;
    eight G = load_floats<LANES>(l.c.dlast + p.element, columns, p.lane), after, before;
    meal_back now;
    table_back from_here;
    int half = 0, third = 0;

    for (tour at = begin(l); at.strides; third = at.third, at = go_on(l, at)) {
        const int steps = at.back.steps;
        const float *slot = slots_of(l, d, 1 - at.half) + (steps * l.rows + p.row) * l.width;

        if (steps) {
            from_here = table_back_of(l, p, staged_of(l, d, third), steps - 1);
            now = serve_back<LANES, INSIDE>(&from_here, l, p, steps > 1);
            after = take<LANES>(slot, p.lane);
            before = take<LANES>(slot - piece, p.lane);
        }
        for (int n = 0, step = steps - 1; n < at.strides; n++, half = 1 - half) {
            const int from = max(step + 1 - l.stride, 0);
            const int row = (half * l.stride + step - from) * l.rows + p.row;
            float *dkey_at = sums_of<LANES>(l, p, d, DKEY, half, step - from);
            float *du_at = sums_of<LANES>(l, p, d, DU, half, step - from);
            float *dv_at = d.dv + row, *dz_at = d.dz + row;
            UNROLL(2)
            for (; step >= from; step--) {
                for (int j = 0; j < COLUMNS; j++)
                    G.x[j] = fmaf(now.dy, now.query.x[j], G.x[j]);
                if (tanh)
                    for (int j = 0; j < COLUMNS; j++)
                        G.x[j] *= fmaf(-after.x[j], after.x[j], 1.0f);
                const float dv = lanes_sum<LANES>(dot(G, now.write)), dreads = -dv * now.z;
                const float with_key = INSIDE ? 0 : dreads;
                const meal_back then = serve_back<LANES, INSIDE>(&from_here, l, p, step > 1);
                const eight next = take<LANES>(step > 0 ? slot - 2 * piece : slot - piece, p.lane);
                eight dkey;
                for (int j = 0; j < COLUMNS; j++) {
                    dkey.x[j] = fmaf(with_key, before.x[j], now.delta * G.x[j]);
                    G.x[j] = fmaf(dreads, now.read.x[j], G.x[j]);
                }
                leave_sums<LANES>(dkey_at, dkey, p.self % 32);
                if (INSIDE) {
                    eight du;
                    for (int j = 0; j < COLUMNS; j++)
                        du.x[j] = dreads * before.x[j];
                    leave_sums<LANES>(du_at, du, p.self % 32);
                }
                if (p.lane == 0) {
                    *dv_at = dv;
                    *dz_at = -dv * now.reads;
                }
                slot -= piece;
                dkey_at -= d.warps * l.width;
                du_at -= d.warps * l.width;
                dv_at -= l.rows;
                dz_at -= l.rows;
                after = before;
                before = next;
                now = then;
            }
            block_barrier();
        }
    }
    store_columns<float, LANES>(l.c.dfirst + p.element, columns, p.lane, G);
}

/* ---- the helpers ---- */

/* Some steps' sums of one vector, from step t on, over the warps: to [T,BH,N]. */
template <int LANES>
static __device__ __forceinline__ void put_sums(const layout &l, const place &p, const desk &d,
                                                int vector, int64_t t, int steps, int half)
{
    const call &c = l.c;
    float *const to = l.sums + (vector * l.parts + p.part) * c.T * c.BH * c.N;

    for (int item = p.self; item < steps * 2 * LANES; item += l.rows * LANES) {
        const int step = item / (2 * LANES), column = item % (2 * LANES) * 4;
        const int row = ((vector * 2 + half) * l.stride + step) * d.warps;
        const float *from = d.sums + row * l.width + column;
        four<float> sum = *(const four<float> *)from;

        UNROLL(4)
        for (int warp = 1; warp < d.warps; warp++) {
            const four<float> add = *(const four<float> *)(from + warp * l.width);
            for (int j = 0; j < 4; j++)
                sum.x[j] += add.x[j];
        }
        store_four(to + ((t + step) * c.BH + p.bh) * c.N + p.group * c.columns, c.columns, column,
                   sum);
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

/* What the carriers did in a stride. */
struct stride {
    int64_t t, back_t;
    int steps, back_steps;
};

template <typename T, int LANES, bool INSIDE>
static __device__ __forceinline__ void follow(const layout &l, const place &p, const desk &d,
                                              const stride &done, int half)
{
    put_sums<LANES>(l, p, d, DQ, done.t, done.steps, half);
    put_sums<LANES>(l, p, d, DKEY, done.back_t, done.back_steps, half);
    if (INSIDE)
        put_sums<LANES>(l, p, d, DU, done.back_t, done.back_steps, half);
    put_rows<T, LANES>(l, p, done.back_t, done.back_steps, d.dv + half * l.stride * l.rows,
                       d.dz + half * l.stride * l.rows);
}

/* The third crew: a stride behind, and a piece ahead. */
template <typename T, int LANES, bool INSIDE>
static __device__ __forceinline__ void help(const layout &l, const place &p, const desk &d)
{
    stride done = {};
    int half = 0;

    for (tour at = begin(l); at.strides; at = go_on(l, at)) {
        const staged next = staged_of(l, d, at.third == 2 ? 0 : at.third + 1);
        const int each = (at.next.steps + at.strides - 1) / at.strides;

        prefetch_piece<T>(l, p, go_on(l, at).next);
        for (int n = 0; n < at.strides; n++, half = 1 - half) {
            const int i = n * l.stride, left = max(at.back.steps - i, 0);
            const int from = n * each, to = min(from + each, at.next.steps);
            const incoming<T> first = send_for<T, LANES, true>(l, p, at.next.t, from, to);
            follow<T, LANES, INSIDE>(l, p, d, done, 1 - half);
            receive<T, LANES, true>(first, l, p, at.next.t, from, to, next);
            done.t = at.now.t + i;
            done.steps = max(min(l.stride, at.now.steps - i), 0);
            done.back_steps = min(l.stride, left);
            done.back_t = at.back.t + left - done.back_steps;
            block_barrier();
        }
    }
    follow<T, LANES, INSIDE>(l, p, d, done, 1 - half);
}

template <typename T, int LANES, bool INSIDE>
__global__ void __launch_bounds__(CREWS *CREW, 1) backward_rows(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const place p = place_of<LANES, 1>(l, blockIdx.x);
    desk d;

    carve_desk(l, buffer, &d);
    if (p.crew == HELPS) {
        const piece last = begin(l).now;
        bring<T, LANES, true>(l, p, last.t, 0, last.steps, staged_of(l, d, 0));
    }
    __syncthreads();
    switch (p.crew) {
    case REPLAYS: replay<T, LANES, INSIDE>(l, p, d); break;
    case WALKS_BACK: walk_back<LANES, INSIDE>(l, p, d); break;
    default: help<T, LANES, INSIDE>(l, p, d);
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
    UNROLL(4)
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

/* Pieces as long as fits, and as long a stride. */
static layout back_layout(const struct frame *f)
{
    layout l = layout_of(f, CREWS, 1, 0);
    const call &c = l.c;

    for (l.steps = least(PIECE, (int)c.K);; l.steps--) {
        for (l.stride = STRIDE; l.stride > 1 && desk_bytes(l) > SHARED_MAX; l.stride /= 2)
            ;
        if (desk_bytes(l) <= SHARED_MAX)
            break;
    }
    l.subs = (int)ceil_div(c.K, l.steps);
    l.segments = ceil_div(c.T, c.K);
    l.pieces = (l.segments - 1) * l.subs + ceil_div(c.T - (l.segments - 1) * c.K, l.steps);
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

template <typename T, int LANES>
static int note(const layout &l)
{
    staged s;
    const size_t bytes = carve(l, 0, NULL, &s) * sizeof(float);
    void (*const kernel)(layout) =
        l.c.z_inside ? note_rows<T, LANES, 2, true> : note_rows<T, LANES, 2, false>;

    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    kernel<<<blocks_of(l) * l.segments, l.helpers, bytes, gpu_stream()>>>(l);
    return cudaGetLastError();
}

/* Segments side by side are rows enough for sixteen columns a thread. */
template <typename T>
static int note_between(const struct frame *f, const layout &back)
{
    layout l = layout_of(f, 1, 2, 0);

    l.steps = back.steps;
    l.within = back.within;
    l.subs = back.subs;
    l.segments = back.segments;
    switch (l.lanes) {
    case 1: return note<T, 1>(l);
    case 2: return note<T, 2>(l);
    case 4: return note<T, 4>(l);
    case 8: return note<T, 8>(l);
    default: return note<T, 16>(l);
    }
}

template <typename T, int LANES>
static int launch(const layout &l)
{
    const call &c = l.c;
    const int crew = l.rows * l.lanes;
    const int64_t blocks = blocks_of(l), items = c.T * c.BH * (c.N / c.rows);
    const size_t shared = desk_bytes(l);
    void (*const kernel)(layout) =
        c.z_inside ? backward_rows<T, LANES, true> : backward_rows<T, LANES, false>;
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    kernel<<<blocks, CREWS * crew, shared, gpu_stream()>>>(l);
    CUDA(cudaGetLastError());
    void (*const finish)(layout) =
        c.columns % 4 ? finish_keys<T, LANES, false> : finish_keys<T, LANES, true>;
    finish<<<ceil_div(items * LANES, 128), 128, 0, gpu_stream()>>>(l);
    return cudaGetLastError();
}

template <typename T>
int rows_backward(const struct frame *f)
{
    layout l = back_layout(f);

    divide(&l, (float *)f->work);
    if (l.subs > 1) {
        const int e = note_between<T>(f, l);
        if (e)
            return e;
    }
    switch (l.lanes) {
    case 1: return launch<T, 1>(l);
    case 2: return launch<T, 2>(l);
    case 4: return launch<T, 4>(l);
    case 8: return launch<T, 8>(l);
    case 16: return launch<T, 16>(l);
    default: return launch<T, 32>(l);
    }
}
template int rows_backward<float>(const struct frame *f);
template int rows_backward<__nv_bfloat16>(const struct frame *f);

size_t rows_back_work(const struct frame *f)
{
    layout l = back_layout(f);
    return sizeof(float) * divide(&l, NULL);
}
