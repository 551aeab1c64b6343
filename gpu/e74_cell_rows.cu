/* e74_cell, kernel `rows`: a state's rows meet the same keys but never each
 * other, so each row is carried through all steps by LANES neighbouring
 * threads, which hold eight of its columns each in registers.
 *
 * A step is a chain: dot product with the key (eight products a thread, then
 * shuffles over the lanes), residual, update, f.  The dot product with the
 * query goes along with the next step's, off the chain.  A block has as many
 * threads again that keep everything else away from the chain: a chunk of
 * steps ahead they bring keys into shared memory, normalised; a chunk behind
 * they write the outputs.
 *
 * Backward, a segment is replayed once, its states are left in shared memory,
 * and the carriers walk back over them; what a state's element adds to a
 * key's gradient takes the element's place.  The helpers follow a few steps
 * behind and add up over the rows.  A second launch puts the sums of several
 * blocks of one (sequence, head) together, in their order, and turns
 * gradients of normalised keys into those of keys.
 *
 * The step uses fmaf and never a bare a * b + c, so that forward and replay
 * cannot be contracted differently. */
#include "gpu/columns.cuh"
#include "gpu/e74_cell.cuh"
#include "gpu/tanh.cuh"

enum {
    CHUNK = 32, /* steps whose keys are in shared memory at once, at most */
    ROUNDS = 1, /* keys that a helper brings at once */
    CARRIERS = 128,
    BEHIND = 8, /* steps of the column sums' stride, at most */
    SHARED_MAX = 227 * 1024
};

/* Numbers of rows that a helper brings at once. */
static constexpr __host__ __device__ int values(int lanes)
{
    return lanes >= 8 ? 2 : lanes > 1 ? 4 : 8;
}

/* ---- how a call is laid out over blocks ---- */

/* A group is a run of rows that meet the same columns of the keys: all n
 * rows, or those of one block of the state.  A block of threads takes some
 * groups, or, where these are long, one of several parts of one. */
struct layout {
    call c;
    int lanes, width;  /* threads of a row; columns of it with its padding */
    int rows;          /* of a block, with padding */
    int groups, parts; /* of a block; of a group */
    int batch, steps;  /* that helpers bring at once; of a chunk, or kept at once */
    int behind;        /* steps of the column sums' stride */
    int vectors;       /* sums over rows for each key: 2, or 3 with dz among them */
    float *sums;       /* [vectors][parts][T*BH*N] */
    bool tied_v;       /* v is k: dv is a share of dk */
    float *dv, *dz;    /* [T*BH*N] where the rows' share is not all */
    float *within;     /* [BH][subs][M]: states inside of long segments */
    int subs;
};

/* A block's share, and a thread's of that: the first half of the threads are
 * carriers, the second half helpers. */
struct place {
    int64_t bh;
    int part, group, groups; /* the first group, and how many */
    int first, rows;         /* the first row, and how many */
    bool carries, any;       /* a carrier's row may be one too many */
    int lane, row;           /* of a carrier; a helper brings that lane's columns */
    int key;                 /* where the row's columns begin within a step's keys */
    int64_t element;         /* and the row within the states */
    int step, number;        /* of the numbers [steps][rows], the first that a helper brings */
    int share, each;         /* of the column sums: threads for an item, items of a warp */
};

template <int LANES>
static __device__ place place_of(const layout &l)
{
    const int all = l.c.N / l.c.rows, sets = (all + l.groups - 1) / l.groups;
    const int i = (int)(blockIdx.x % (sets * l.parts)), half = l.rows * LANES;
    const int self = (int)threadIdx.x % half;
    place p;

    p.bh = blockIdx.x / (sets * l.parts);
    p.part = i % l.parts;
    p.group = i / l.parts * l.groups;
    p.groups = min(l.groups, all - p.group);
    p.first = p.group * l.c.rows + p.part * l.rows;
    p.rows = l.parts == 1 ? p.groups * l.c.rows : min(l.rows, l.c.rows - p.part * l.rows);
    p.carries = (int)threadIdx.x < half;
    p.lane = self % LANES;
    p.row = self / LANES;
    p.any = p.carries && p.row < p.rows;
    p.key = p.any && l.parts == 1 ? p.row / l.c.rows * l.width : 0;
    p.element = p.bh * l.c.M + (int64_t)(p.first + p.row) * l.c.columns;
    p.step = self / l.rows;
    p.number = self % l.rows;
    p.share = 1;
    while (2 * p.share * BEHIND * l.groups * 2 <= l.rows && p.share * 4 * LANES <= 64)
        p.share *= 2;
    p.each = 32 / p.share;
    return p;
}

/* ---- what a chunk of steps needs, in shared memory ---- */

struct staged {
    float *khat, *u, *q;       /* [steps][groups][width]; u is khat without an inner z */
    float *v, *z;              /* [steps][rows]; z only where it modulates rows */
    float *y;                  /* forward */
    float *dy, *delta, *reads; /* backward */
    float *dv;
};

/* Returns the floats it takes, a multiple of four. */
static __host__ __device__ int carve(const layout &l, int backward, float *at, staged *s)
{
    const int keys = l.steps * l.groups * l.width, rows = l.steps * l.rows;
    const int vectors = l.c.z_inside ? 3 : 2;
    float *numbers = at + vectors * keys;

    s->khat = at;
    s->q = at + keys;
    s->u = l.c.z_inside ? at + 2 * keys : at;
    s->v = numbers;
    s->z = numbers + rows;
    s->y = s->dy = numbers + 2 * rows;
    s->delta = numbers + 3 * rows;
    s->reads = numbers + 4 * rows;
    s->dv = numbers + 5 * rows;
    return (vectors * keys + (backward ? 6 : 3) * rows + 3) / 4 * 4;
}

/* One key of each kind, normalised, from registers to shared memory.  Called
 * by whole warps; those threads that have no key bring zeros nowhere. */
template <typename T, int LANES>
static __device__ void put_key(const staged &to, int lane, int at, bool any, const raw<T> &k,
                               const raw<T> &q, const raw<T> &z)
{
    eight key = widened(k);
    float scale = 1 / (sqrtf(lanes_sum<LANES>(dot(key, key))) + (float)E74_EPSILON);

    if (!any)
        return;
    for (int j = 0; j < COLUMNS; j++)
        key.x[j] *= scale;
    leave<LANES>(to.khat + at, lane, key);
    leave<LANES>(to.q + at, lane, widened(q));
    if (to.u == to.khat)
        return;
    eight gate = widened(z);
    for (int j = 0; j < COLUMNS; j++)
        key.x[j] *= gate.x[j];
    leave<LANES>(to.u + at, lane, key);
}

/* Steps on their way: the keys that a helper brings, and its numbers of rows;
 * y and dout only on the way back. */
template <typename T, int LANES>
struct incoming {
    raw<T> k[ROUNDS], q[ROUNDS], z[ROUNDS];
    T v[values(LANES)], gate[values(LANES)], y[values(LANES)], dout[values(LANES)];
};

/* Key i of some steps is that of a step and a group. */
static __device__ int step_of(const place &p, int i)
{
    return p.groups == 1 ? i : i / p.groups;
}

template <typename T, int LANES, bool ALIGNED>
static __device__ __forceinline__ void send_for_keys(incoming<T, LANES> *in, const layout &l,
                                                     const place &p, int64_t t, int steps)
{
    const call &c = l.c;
    for (int n = 0; n < ROUNDS; n++) {
        const int i = p.row + n * l.rows, step = step_of(p, i);
        const int columns = i < steps * p.groups ? c.columns : 0;
        const int64_t at =
            ((t + step) * c.BH + p.bh) * c.N + (int64_t)(p.group + i - step * p.groups) * c.columns;
        in->k[n] = load_columns<T, LANES, ALIGNED>((const T *)c.k + at, columns, p.lane);
        in->q[n] = load_columns<T, LANES, ALIGNED>((const T *)c.q + at, columns, p.lane);
        if (c.z_inside)
            in->z[n] = load_columns<T, LANES, ALIGNED>((const T *)c.z + at, columns, p.lane);
    }
}

/* Up to l.batch steps from step t on. */
template <typename T, int LANES, bool BACK>
static __device__ __forceinline__ void send_for(incoming<T, LANES> *in, const layout &l,
                                                const place &p, int64_t t, int steps)
{
    const call &c = l.c;
    const int64_t at = (t * c.BH + p.bh) * c.N + p.first + p.number, each = c.BH * c.N;

    if (c.columns % 4 == 0)
        send_for_keys<T, LANES, true>(in, l, p, t, steps);
    else
        send_for_keys<T, LANES, false>(in, l, p, t, steps);
    for (int n = 0; n < values(LANES); n++) {
        const int step = p.step + n * LANES;
        const bool any = step < steps && p.number < p.rows;
        store(&in->v[n], 0.0f);
        store(&in->gate[n], 0.0f);
        store(&in->y[n], 0.0f);
        store(&in->dout[n], 0.0f);
        if (any)
            in->v[n] = ((const T *)c.v)[at + step * each];
        if (any && c.z_outside)
            in->gate[n] = ((const T *)c.z)[at + step * each];
        if (any && BACK)
            in->y[n] = ((const T *)c.y)[at + step * each];
        if (any && BACK)
            in->dout[n] = ((const T *)c.dout)[at + step * each];
    }
}

/* They are there: into shared memory, as steps from ... */
template <typename T, int LANES, bool BACK>
static __device__ __forceinline__ void settle(const incoming<T, LANES> &in, const layout &l,
                                              const place &p, int from, int steps, const staged &to)
{
    for (int n = 0; n < ROUNDS; n++) {
        const int i = p.row + n * l.rows, step = step_of(p, i);
        const bool any = i < steps * p.groups;
        const int at = ((from + step) * l.groups + i - step * p.groups) * l.width;
        put_key<T, LANES>(to, p.lane, at, any, in.k[n], in.q[n], in.z[n]);
    }
    for (int n = 0; n < values(LANES); n++) {
        const int step = p.step + n * LANES, at = (from + step) * l.rows + p.number;
        if (step >= steps)
            continue;
        to.v[at] = load(&in.v[n]);
        if (l.c.z_outside)
            to.z[at] = load(&in.gate[n]);
        if (BACK) {
            const float y = load(&in.y[n]), gate = 1 / (1 + expf(-y));
            to.dy[at] = load(&in.dout[n]) * y * gate * (2 + y * (1 - gate));
        }
    }
}

/* Both, for steps from ... to - 1 of those that begin with t. */
template <typename T, int LANES, bool BACK>
static __device__ __forceinline__ void bring(const layout &l, const place &p, int64_t t, int from,
                                             int to, const staged &s)
{
    incoming<T, LANES> in;
    for (; from < to; from += l.batch) {
        const int some = min(l.batch, to - from);
        send_for<T, LANES, BACK>(&in, l, p, t + from, some);
        settle<T, LANES, BACK>(in, l, p, from, some, s);
    }
}

/* ---- one step ---- */

/* What a step of a row needs from shared memory, taken a step ahead so that the
 * chain never waits for it. */
struct meal {
    eight write, read, query;
    float v, z;
};

/* Where the next one is. */
struct table {
    const float *write, *read, *query, *v, *z;
};

static __device__ __forceinline__ table table_of(const layout &l, const place &p, const staged &s,
                                                 int step)
{
    const int key = step * l.groups * l.width + p.key, number = step * l.rows + p.row;
    return {s.khat + key, s.u + key, s.q + key, s.v + number, s.z + number};
}

template <int LANES>
static __device__ __forceinline__ meal serve(table *at, const layout &l, const place &p)
{
    meal m;
    m.read = take<LANES>(at->read, p.lane);
    m.write = take<LANES>(at->write, p.lane);
    m.query = take<LANES>(at->query, p.lane);
    m.v = *at->v;
    m.z = l.c.z_outside ? *at->z : 1;
    at->read += l.groups * l.width;
    at->write += l.groups * l.width;
    at->query += l.groups * l.width;
    at->v += l.rows;
    at->z += l.rows;
    return m;
}

/* S <- f(S + delta k^T) given what S reads; returns delta. */
template <typename T, int NONLIN>
static __device__ __forceinline__ float advance(eight &S, const meal &m, float reads)
{
    const float delta = fmaf(-m.z, reads, m.v);
    for (int j = 0; j < COLUMNS; j++) {
        float P = fmaf(delta, m.write.x[j], S.x[j]);
        S.x[j] = NONLIN == E74_TANH ? bent<T>(P) : P;
    }
    return delta;
}

/* ---- forward ---- */

template <typename T>
static __device__ void put_outputs(const layout &l, const place &p, int64_t t, int steps, int each,
                                   const float *y)
{
    int64_t at = ((t + p.step) * l.c.BH + p.bh) * l.c.N + p.first + p.number;
    for (int step = p.step; step < steps && p.number < p.rows; step += each) {
        const float x = y[step * l.rows + p.number];
        store((T *)l.c.y + at, x);
        store((T *)l.c.out + at, x * x / (1 + expf(-x)));
        at += each * l.c.BH * l.c.N;
    }
}

template <int LANES>
static __device__ void keep_state(const call &c, const place &p, int64_t segment, const eight &S)
{
    if (c.kept == KEPT_F32) {
        float *to = (float *)c.checkpoints + segment * c.BH * c.M + p.element;
        store_columns<float, LANES>(to, p.any ? c.columns : 0, p.lane, S);
        return;
    }
    for (int j = 0; j < COLUMNS && p.any; j++) {
        const int column = run<LANES>(j / 4, p.lane) + j % 4;
        if (column < c.columns)
            put_kept(c, segment * c.BH, p.element + column, S.x[j]);
    }
}

template <int LANES>
static __device__ eight kept_state(const call &c, const place &p, int64_t segment)
{
    const int columns = p.any ? c.columns : 0;
    if (c.kept == KEPT_F32)
        return load_floats<LANES>((const float *)c.checkpoints + segment * c.BH * c.M + p.element,
                                  columns, p.lane);
    eight S = {};
    for (int j = 0; j < COLUMNS; j++) {
        const int column = run<LANES>(j / 4, p.lane) + j % 4;
        if (column < columns)
            S.x[j] = get_kept(c, segment * c.BH, p.element + column);
    }
    return S;
}

/* Steps from ... to - 1 of a chunk.  What the next step reads is added up over
 * the lanes together with this one's y. */
template <typename T, int LANES, int NONLIN>
static __device__ __forceinline__ void walk(const layout &l, const place &p, const staged &s,
                                            int from, int to, eight &S)
{
    table at = table_of(l, p, s, from);
    float *y_at = s.y + from * l.rows + p.row;
    meal now = serve<LANES>(&at, l, p);
    float reads = lanes_sum<LANES>(dot(S, now.read)), y = 0;

    UNROLL(2)
    for (int i = from + 1; i < to; i++) {
        const meal then = serve<LANES>(&at, l, p);
        advance<T, NONLIN>(S, now, reads);
        y = dot(S, now.query);
        reads = dot(S, then.read);
        lanes_sums<LANES>(&reads, &y);
        if (p.lane == 0)
            *y_at = y;
        y_at += l.rows;
        now = then;
    }
    advance<T, NONLIN>(S, now, reads);
    y = lanes_sum<LANES>(dot(S, now.query));
    if (p.lane == 0)
        *y_at = y;
}

template <typename T, int LANES, int NONLIN>
__global__ void __launch_bounds__(2 * CARRIERS, 2) forward_rows(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const call &c = l.c;
    const place p = place_of<LANES>(l);
    const int columns = p.any ? c.columns : 0;
    staged now, other;
    int64_t until_kept = 0, segment = 0;
    const int size = carve(l, 0, buffer, &now);

    eight S = load_floats<LANES>(c.first + p.element, columns, p.lane);
    if (!p.carries)
        bring<T, LANES, false>(l, p, 0, 0, (int)min((int64_t)l.steps, c.T), now);
    __syncthreads();
    for (int64_t t = 0, chunk = 0; t < c.T; t += l.steps, chunk++) {
        const int steps = (int)min((int64_t)l.steps, c.T - t);

        carve(l, 0, buffer + chunk % 2 * size, &now);
        carve(l, 0, buffer + (1 - chunk % 2) * size, &other);
        if (!p.carries) {
            if (t > 0)
                put_outputs<T>(l, p, t - l.steps, l.steps, LANES, other.y);
            if (t + steps < c.T)
                bring<T, LANES, false>(l, p, t + steps, 0,
                                       (int)min((int64_t)l.steps, c.T - t - steps), other);
        }
        for (int from = 0, to; p.carries && from < steps; from = to) {
            if (until_kept == 0) {
                keep_state<LANES>(c, p, segment++, S);
                until_kept = c.K;
            }
            to = (int)min((int64_t)steps, from + until_kept);
            until_kept -= to - from;
            walk<T, LANES, NONLIN>(l, p, now, from, to, S);
        }
        __syncthreads();
        if (!p.carries && t + steps >= c.T)
            put_outputs<T>(l, p, t, steps, LANES, now.y);
    }
    store_columns<float, LANES>(c.last + p.element, columns, p.lane, S);
}

/* ---- backward ---- */

/* S through some staged steps.  With slots, the states are left in them after
 * each step. */
template <typename T, int LANES, int NONLIN>
static __device__ __forceinline__ void replay(const layout &l, const place &p, const staged &s,
                                              int from, int to, eight &S, float *slots)
{
    const int number = from * l.rows + p.row;
    float *slot = slots + (number + l.rows) * l.width;
    float *delta_at = s.delta + number, *reads_at = s.reads + number;
    table at = table_of(l, p, s, from);
    meal now = serve<LANES>(&at, l, p);
    float reads = lanes_sum<LANES>(dot(S, now.read));

    UNROLL(2)
    for (int i = from; i < to; i++) {
        /* (After the last step, of the number that follows: never used.)  Loads
         * and stores queue up before shuffles: none between a dot product's
         * two halves. */
        const meal then = serve<LANES>(&at, l, p);
        const float delta = advance<T, NONLIN>(S, now, reads);
        const float next = lanes_sum<LANES>(dot(S, then.read));
        if (slots) {
            leave<LANES>(slot, p.lane, S);
            if (p.lane == 0) {
                *delta_at = delta;
                *reads_at = reads;
            }
        }
        slot += l.rows * l.width;
        delta_at += l.rows;
        reads_at += l.rows;
        reads = next;
        now = then;
    }
}

/* What a step back needs, and where the next one is. */
struct meal_back {
    eight write, read, query;
    float dy, z, delta;
};

struct table_back {
    const float *write, *read, *query, *dy, *z, *delta;
};

static __device__ __forceinline__ table_back table_back_of(const layout &l, const place &p,
                                                           const staged &s, int step)
{
    const int key = step * l.groups * l.width + p.key, number = step * l.rows + p.row;
    return {s.khat + key, s.u + key, s.q + key, s.dy + number, s.z + number, s.delta + number};
}

template <int LANES>
static __device__ __forceinline__ meal_back serve_back(table_back *at, const layout &l,
                                                       const place &p, bool more)
{
    const int key = more ? l.groups * l.width : 0, number = more ? l.rows : 0;
    meal_back m;
    m.query = take<LANES>(at->query, p.lane);
    m.write = take<LANES>(at->write, p.lane);
    m.read = take<LANES>(at->read, p.lane);
    m.dy = *at->dy;
    m.delta = *at->delta;
    m.z = l.c.z_outside ? *at->z : 1;
    at->query -= key;
    at->write -= key;
    at->read -= key;
    at->dy -= number;
    at->delta -= number;
    at->z -= number;
    return m;
}

/* Back over the steps to - 1 ... from; G is dL/dS after, then before them.
 * What an element of the state adds to dk^ is left in the slot of the state
 * after the step, which nobody needs any more; where z modulates the inner
 * side, what it adds to du, in the ring. */
template <int LANES, int NONLIN>
static __device__ __forceinline__ void retreat(const layout &l, const place &p, const staged &s,
                                               int from, int to, eight &G, float *slots,
                                               float *ring)
{
    const bool inside = l.vectors == 3;
    const int piece = l.rows * l.width;
    float *slot = slots + (to * l.rows + p.row) * l.width;
    float *du_at = ring + ((to - 1 - from) * l.rows + p.row) * l.width;
    float *dv_at = s.dv + (to - 1) * l.rows + p.row;
    table_back at = table_back_of(l, p, s, to - 1);
    meal_back now = serve_back<LANES>(&at, l, p, to - 1 > from);
    eight after = take<LANES>(slot, p.lane), before = take<LANES>(slot - piece, p.lane);

    UNROLL(2)
    for (int i = to - 1; i >= from; i--) {
        for (int j = 0; j < COLUMNS; j++) {
            G.x[j] = fmaf(now.dy, now.query.x[j], G.x[j]);
            if (NONLIN == E74_TANH)
                G.x[j] *= fmaf(-after.x[j], after.x[j], 1.0f);
        }
        const float dv = lanes_sum<LANES>(dot(G, now.write)), dreads = -dv * now.z;
        const float with_key = inside ? 0 : dreads;
        const meal_back then = serve_back<LANES>(&at, l, p, i - 1 > from);
        const eight next = take<LANES>(i > from ? slot - 2 * piece : slot - piece, p.lane);
        eight dkey;
        for (int j = 0; j < COLUMNS; j++) {
            dkey.x[j] = fmaf(with_key, before.x[j], now.delta * G.x[j]);
            G.x[j] = fmaf(dreads, now.read.x[j], G.x[j]);
        }
        leave<LANES>(slot, p.lane, dkey);
        if (inside) {
            eight du;
            for (int j = 0; j < COLUMNS; j++)
                du.x[j] = dreads * before.x[j];
            leave<LANES>(du_at, p.lane, du);
        }
        if (p.lane == 0)
            *dv_at = dv;
        slot -= piece;
        du_at -= piece;
        dv_at -= l.rows;
        after = before;
        before = next;
        now = then;
    }
}

/* The sum over `rows` rows from `first` on, every `each`-th, of four columns,
 * each row weighted where there are weights. */
template <bool WEIGHTED>
static __device__ __forceinline__ four<float>
over_rows(const float *columns, int width, const float *weight, int first, int rows, int each)
{
    four<float> sum = {};
    UNROLL(4)
    for (int row = first; row < rows; row += each) {
        const four<float> x = *(const four<float> *)(columns + row * width);
        const float w = WEIGHTED ? weight[row] : 1;
        for (int j = 0; j < 4; j++)
            sum.x[j] = WEIGHTED ? fmaf(w, x.x[j], sum.x[j]) : sum.x[j] + x.x[j];
    }
    return sum;
}

/* Over the lanes that share an item, and from the first of them to [T,BH,N]. */
static __device__ __forceinline__ void put_sum(float *row, int columns, int column, bool mine,
                                               int each, four<float> sum)
{
    for (int d = each; d < 32; d *= 2)
        for (int j = 0; j < 4; j++)
            sum.x[j] += __shfl_xor_sync(0xffffffff, sum.x[j], d);
    if (mine)
        store_four(row, columns, column, sum);
}

/* The column sums of steps from ... to - 1, by the helpers: an item is (step,
 * group, four columns); where there are threads to spare, a warp's lanes
 * share the rows of an item.  BACK: those of the keys, else of the queries. */
template <int LANES, bool BACK>
static __device__ __forceinline__ void sum_columns(const layout &l, const place &p, int64_t t,
                                                   const staged &s, int from, int to,
                                                   const float *slots, const float *ring)
{
    const call &c = l.c;
    const int quads = 2 * LANES, half = l.rows * LANES, self = (int)threadIdx.x - half;
    const int items = (to - from) * p.groups * quads, sub = self % 32 / p.each;
    const int rows = l.parts == 1 ? c.rows : p.rows, width = l.width;
    const int64_t all = c.T * c.BH * c.N;

    for (int first = self / 32 * p.each; first < items; first += half / p.share) {
        const int item = first + self % p.each, rest = item / quads, column = item % quads * 4;
        const int step = step_of(p, rest), group = rest - step * p.groups;
        const int row = l.parts == 1 ? group * c.rows : 0, at = (from + step) * l.rows + row;
        const int last = item < items ? rows : 0;
        const bool mine = item < items && sub == 0;
        const float *slot = slots + (at + l.rows) * width + column;
        float *sums = l.sums + p.part * all + ((t + from + step) * c.BH + p.bh) * c.N +
                      (p.group + group) * c.columns;

        if (!BACK) {
            put_sum(sums + l.parts * all, c.columns, column, mine, p.each,
                    over_rows<true>(slot, width, s.dy + at, sub, last, p.share));
            continue;
        }
        put_sum(sums, c.columns, column, mine, p.each,
                over_rows<false>(slot, width, NULL, sub, last, p.share));
        if (l.vectors == 3)
            put_sum(sums + 2 * l.parts * all, c.columns, column, mine, p.each,
                    over_rows<false>(ring + (step * l.rows + row) * width + column, width, NULL,
                                     sub, last, p.share));
    }
}

/* dv and dz as far as they are the rows' own. */
template <typename T>
static __device__ void put_rows(const layout &l, const place &p, int64_t t, int steps, int each,
                                const staged &s)
{
    const call &c = l.c;
    int64_t at = ((t + p.step) * c.BH + p.bh) * c.N + p.first + p.number;
    for (int step = p.step; step < steps && p.number < p.rows; step += each) {
        const int i = step * l.rows + p.number;
        if (l.dv)
            l.dv[at] = s.dv[i];
        else
            store((T *)c.dv + at, s.dv[i]);
        if (c.z_outside && l.dz)
            l.dz[at] = -s.dv[i] * s.reads[i];
        else if (c.z_outside)
            store((T *)c.dz + at, -s.dv[i] * s.reads[i]);
        at += each * c.BH * c.N;
    }
}

/* The states inside of a segment longer than what is kept at once, noted every
 * l.steps steps. */
template <typename T, int LANES, int NONLIN>
static __device__ __forceinline__ void note_states(const layout &l, const place &p, const staged &s,
                                                   int64_t begin, int notes, eight S, float *within)
{
    for (int sub = 0; sub < notes; sub++) {
        if (!p.carries)
            bring<T, LANES, true>(l, p, begin + sub * l.steps, 0, l.steps, s);
        __syncthreads();
        if (p.carries)
            replay<T, LANES, NONLIN>(l, p, s, 0, l.steps, S, NULL);
        store_columns<float, LANES>(within + (sub + 1) * l.c.M, p.any ? l.c.columns : 0, p.lane, S);
        __syncthreads();
    }
}

/* `pieces` are what is kept at once: segments, or parts of them. */
template <typename T, int LANES, int NONLIN>
__global__ void __launch_bounds__(2 * CARRIERS, 1) backward_rows(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const call &c = l.c;
    const place p = place_of<LANES>(l);
    const int columns = p.any ? c.columns : 0, piece = l.rows * l.width;
    float *const within = l.within + p.bh * (l.subs - 1) * c.M + p.element;
    /* Is the next segment brought while this one is walked, in two parts? */
    const bool ahead = l.subs == 1;
    const int first = min((int)c.K, (int)ceil_div(c.K, 2 * l.batch) * l.batch);
    staged s, other;
    const int size = carve(l, 1, buffer, &s);
    float *const slots = buffer + 2 * size, *const ring = slots + (l.steps + 1) * piece;
    int64_t done_at = 0;
    int done = 0, count = 0; /* steps of the last piece; pieces */

    eight G = load_floats<LANES>(c.dlast + p.element, columns, p.lane), S;
    int64_t segment = (c.T - 1) / c.K;
    if (ahead) {
        S = kept_state<LANES>(c, p, segment);
        if (!p.carries)
            bring<T, LANES, true>(l, p, segment * c.K, 0, (int)(c.T - segment * c.K), s);
    }
    for (; segment >= 0; segment--) {
        const int64_t begin = segment * c.K, end = min(begin + c.K, c.T);
        const int subs = (int)ceil_div(end - begin, l.steps);

        carve(l, 1, buffer + count % 2 * size, &s);
        if (subs > 1)
            note_states<T, LANES, NONLIN>(l, p, s, begin, subs - 1,
                                          kept_state<LANES>(c, p, segment), within);
        for (int sub = subs - 1; sub >= 0; sub--, count++) {
            const int64_t t = begin + sub * l.steps;
            const int steps = (int)min((int64_t)l.steps, end - t);
            const int chunks = (steps + l.behind - 1) / l.behind;

            carve(l, 1, buffer + count % 2 * size, &s);
            carve(l, 1, buffer + (1 - count % 2) * size, &other);
            if (!ahead) {
                S = sub ? load_floats<LANES>(within + sub * c.M, columns, p.lane)
                        : kept_state<LANES>(c, p, segment);
                if (!p.carries)
                    bring<T, LANES, true>(l, p, t, 0, steps, s);
            }
            if (p.carries)
                leave<LANES>(slots + p.row * l.width, p.lane, S);
            __syncthreads();

            /* Forward through the piece; dq follows. */
            if (!p.carries) {
                put_rows<T>(l, p, done_at, done, LANES, other);
                if (ahead && segment > 0)
                    bring<T, LANES, true>(l, p, begin - c.K, 0, first, other);
            }
            for (int n = 0; n <= chunks; n++) {
                const int from = n * l.behind, to = min(from + l.behind, steps);
                if (p.carries && n < chunks)
                    replay<T, LANES, NONLIN>(l, p, s, from, to, S, slots);
                if (!p.carries && n > 0)
                    sum_columns<LANES, false>(l, p, t, s, from - l.behind, min(from, steps), slots,
                                              NULL);
                __syncthreads();
            }

            /* And back; the keys' gradients follow. */
            if (ahead && segment > 0) {
                S = kept_state<LANES>(c, p, segment - 1);
                if (!p.carries)
                    bring<T, LANES, true>(l, p, begin - c.K, first, (int)c.K, other);
            }
            for (int n = chunks; n >= 0; n--) {
                const int from = n * l.behind, to = min(from + l.behind, steps);
                float *const now = ring + n % 2 * l.behind * piece;
                float *const next = ring + (n + 1) % 2 * l.behind * piece;
                if (p.carries && n > 0)
                    retreat<LANES, NONLIN>(l, p, s, from - l.behind, min(from, steps), G, slots,
                                           next);
                if (!p.carries && n < chunks)
                    sum_columns<LANES, true>(l, p, t, s, from, to, slots, now);
                __syncthreads();
            }
            done_at = t;
            done = steps;
        }
    }
    carve(l, 1, buffer + (1 - count % 2) * size, &other);
    if (!p.carries)
        put_rows<T>(l, p, done_at, done, LANES, other);
    store_columns<float, LANES>(c.dfirst + p.element, columns, p.lane, G);
}

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
    eight dkey = sum_of_parts<LANES, ALIGNED>(l, 0, at, columns, lane);
    eight dq = sum_of_parts<LANES, ALIGNED>(l, 1, at, columns, lane);
    float length = sqrtf(lanes_sum<LANES>(dot(k, k))), scale = length + (float)E74_EPSILON;
    if (c.z_inside) {
        eight z = widened(load_columns<T, LANES, ALIGNED>((const T *)c.z + at, columns, lane));
        eight du = sum_of_parts<LANES, ALIGNED>(l, 2, at, columns, lane), dz;
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

static size_t shared_bytes(const layout &l, int backward)
{
    staged s;
    int n = 2 * carve(l, backward, NULL, &s);
    if (backward)
        n += (l.steps + 1 + (l.vectors == 3 ? 2 * l.behind : 0)) * l.rows * l.width;
    return n * sizeof(float);
}

/* As many steps as fit; and as long a stride of the column sums. */
static void fit_backward(layout *l)
{
    l->steps = CHUNK < l->c.K ? CHUNK : (int)l->c.K;
    for (;; l->steps--)
        for (l->behind = BEHIND; l->behind > 1; l->behind /= 2)
            if (shared_bytes(*l, 1) <= SHARED_MAX)
                return;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static layout layout_of(const struct frame *f, enum pass pass)
{
    layout l = {};
    call &c = l.c = call_of(f);

    for (l.lanes = 1; COLUMNS * l.lanes < c.columns; l.lanes *= 2)
        ;
    l.width = COLUMNS * l.lanes;
    const int most = CARRIERS / l.lanes, warp = (int)ceil_div(32, l.lanes);
    l.groups = c.rows < most ? least(most / c.rows, c.N / c.rows) : 1;
    l.parts = (int)ceil_div(c.rows, most);
    l.rows = l.parts > 1 ? most : (int)ceil_div(l.groups * c.rows, warp) * warp;
    l.vectors = c.z_inside ? 3 : 2;
    l.tied_v = f->choice[E74_PROJ] == E74_TIED_KVQ;
    l.batch = least(ROUNDS * l.rows / l.groups, values(l.lanes) * l.lanes);
    l.batch = least(l.batch, CHUNK);
    l.steps = CHUNK;
    while (pass == FORWARD && l.steps > 1 && shared_bytes(l, 0) > SHARED_MAX / 2)
        l.steps /= 2; /* two blocks a multiprocessor */
    if (pass == BACKWARD)
        fit_backward(&l);
    l.subs = pass == FORWARD ? 1 : (int)ceil_div(c.K, l.steps);
    return l;
}

/* The parts of backward's workspace; returns its floats. */
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
    return n + (l->subs > 1 ? c.BH * l->subs * c.M : 0);
}

template <typename T, int LANES>
static int launch(const layout &l, enum pass pass)
{
    const call &c = l.c;
    const int sets = (int)ceil_div(c.N / c.rows, l.groups);
    const int64_t blocks = c.BH * sets * l.parts;
    const int threads = 2 * l.rows * l.lanes;
    const size_t shared = shared_bytes(l, pass == BACKWARD);
    const bool tanh = c.nonlin == E74_TANH;
    void (*const kernel)(layout) = pass == FORWARD ? tanh ? forward_rows<T, LANES, E74_TANH>
                                                          : forward_rows<T, LANES, E74_LINEAR>
                                   : tanh ? backward_rows<T, LANES, E74_TANH>
                                                   : backward_rows<T, LANES, E74_LINEAR>;

    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    kernel<<<blocks, threads, shared, gpu_stream()>>>(l);
    CUDA(cudaGetLastError());
    if (pass == FORWARD)
        return 0;
    const int64_t items = c.T * c.BH * (c.N / c.rows);
    void (*const finish)(layout) =
        c.columns % 4 ? finish_keys<T, LANES, false> : finish_keys<T, LANES, true>;
    finish<<<ceil_div(items * LANES, 128), 128, 0, gpu_stream()>>>(l);
    return cudaGetLastError();
}

template <typename T>
static int launch(const layout &l, enum pass pass)
{
    switch (l.lanes) {
    case 1: return launch<T, 1>(l, pass);
    case 2: return launch<T, 2>(l, pass);
    case 4: return launch<T, 4>(l, pass);
    case 8: return launch<T, 8>(l, pass);
    case 16: return launch<T, 16>(l, pass);
    default: return launch<T, 32>(l, pass);
    }
}

template <typename T>
static int forward(const struct frame *f)
{
    return launch<T>(layout_of(f, FORWARD), FORWARD);
}

template <typename T>
static int backward(const struct frame *f)
{
    layout l = layout_of(f, BACKWARD);
    divide(&l, (float *)f->work);
    return launch<T>(l, BACKWARD);
}

static size_t work(const struct frame *f, enum pass p)
{
    layout l = layout_of(f, p);
    return p == FORWARD ? 0 : sizeof(float) * divide(&l, NULL);
}

static const char *declines(const struct frame *f)
{
    int state = f->choice[E74_STATE], nonlin = f->choice[E74_NONLIN];
    const char *no = e74_plain32.declines(f);
    if (no)
        return no;
    if (state != E74_FULL && state != E74_BLOCKDIAG)
        return "only for state = full and blockdiag";
    if (nonlin != E74_TANH && nonlin != E74_LINEAR)
        return "rmsnorm and frobnorm tie the rows of a state to each other";
    if (DIM(f, state == E74_FULL ? 'N' : 'L') > COLUMNS * 32)
        return state == E74_FULL ? "n_state beyond 256" : "block_size beyond 256";
    return NULL;
}

static const char name[] = "rows", idea[] = "a row of the state in registers, 8 columns a thread";

GPU_IMPL(extern "C", 32, float, e74_rows, name, idea, work, declines, "ex2.approx, rcp.approx",
         3e-7);
GPU_IMPL(extern "C", 16, __nv_bfloat16, e74_rows, name, idea, work, declines, "tanh.approx", 5e-4);
