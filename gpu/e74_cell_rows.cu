/* e74_cell, kernel `rows`: a state's rows meet the same keys but never each
 * other, so each row is carried through all steps by LANES neighbouring
 * threads, which hold eight of its columns each in registers.  A block takes
 * some rows of one (sequence, head); a chunk of steps at a time, it brings the
 * keys into shared memory, normalised; the next chunk's are on their way
 * meanwhile.
 *
 * A step is a chain: dot product with the key (eight products a thread, then
 * shuffles over the lanes), residual, update, f.  The dot product with the
 * query goes along with the next step's, off the chain.
 *
 * Backward, a block has as many threads again.  The first half replays a
 * segment once, leaves its states in shared memory and walks back over them;
 * the second half follows a few steps behind and adds up over the rows what
 * belongs to the keys.  A second launch puts the sums of several blocks of
 * one (sequence, head) together, in their order, and turns gradients of
 * normalised keys into those of keys.
 *
 * The step uses fmaf and never a bare a * b + c, so that forward and replay
 * cannot be contracted differently. */
#include "gpu/e74_cell.cuh"
#include "gpu/ptx.cuh"

enum {
    COLUMNS = 8, /* of a thread: two runs of four, half a row apart */
    CHUNK = 32,  /* steps whose keys are in shared memory, at most */
    ROUNDS = 2,  /* keys of a chunk that a thread brings, at most */
    BEHIND = 4,  /* steps of the column sums' stride */
    SHARED_MAX = 227 * 1024
};

/* Threads that carry rows, at most, in a block of either pass. */
static constexpr __host__ __device__ int carriers(int lanes, int backward)
{
    return backward && lanes >= 16 ? 192 : 128;
}

/* Values of rows in a chunk that a thread brings, at most. */
static constexpr __host__ __device__ int values(int lanes)
{
    return lanes >= 8 ? 4 : 8;
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
    int steps;         /* a chunk's forward, and kept at once backward */
    int vectors;       /* sums over rows for each key: 2, or 3 with dz among them */
    float *sums;       /* [vectors][parts][T*BH*N] */
    float *dv, *dz;    /* [T*BH*N] where the rows' share is not all */
    float *within;     /* [BH][subs][M]: states inside of long segments */
    int subs;
};

/* A block's share, and a thread's of that.  In a block that goes backward the
 * second half of the threads carries no rows. */
struct place {
    int64_t bh;
    int part, group, groups; /* the first group, and how many */
    int first, rows;         /* the first row, and how many */
    int lane, row;           /* which lane of which row of the block; */
    bool carries, any;       /* if it carries one, and if there is that row at all */
    int key;                 /* where the row's columns begin within a step's keys */
    int64_t element;         /* and the row within the state */
    int step, number;        /* of the numbers [steps][rows]: the first it brings, */
    int share, each;         /* of the column sums: threads for an item, items of a warp */
};

template <int LANES>
static __device__ place place_of(const layout &l)
{
    const int all = l.c.N / l.c.rows, sets = (all + l.groups - 1) / l.groups;
    const int i = (int)(blockIdx.x % (sets * l.parts)), self = (int)threadIdx.x;
    place p;

    p.bh = blockIdx.x / (sets * l.parts);
    p.part = i % l.parts;
    p.group = i / l.parts * l.groups;
    p.groups = min(l.groups, all - p.group);
    p.first = p.group * l.c.rows + p.part * l.rows;
    p.rows = l.parts == 1 ? p.groups * l.c.rows : min(l.rows, l.c.rows - p.part * l.rows);
    p.lane = self % LANES;
    p.row = self / LANES;
    p.carries = p.row < l.rows;
    p.any = p.row < p.rows;
    p.key = p.any && l.parts == 1 ? p.row / l.c.rows * l.width : 0;
    p.element = p.bh * l.c.M + (int64_t)(p.first + p.row) * l.c.columns;
    p.step = self / l.rows;
    p.number = self % l.rows;
    p.share = 1;
    while (p.share * BEHIND * l.groups * 4 <= l.rows && p.share * 4 * LANES <= 64)
        p.share *= 2;
    p.each = 32 / p.share;
    return p;
}

/* ---- a thread's eight columns ---- */

template <typename T>
struct alignas(4 * sizeof(T)) four {
    T x[4];
};

struct eight {
    float x[COLUMNS];
};

/* Where the thread's i-th run begins within a row. */
template <int LANES>
static __device__ int run(int i, int lane)
{
    return 4 * (i * LANES + lane);
}

template <int LANES>
static __device__ eight take(const float *row, int lane)
{
    eight e;
    for (int i = 0; i < 2; i++) {
        four<float> f = *(const four<float> *)(row + run<LANES>(i, lane));
        for (int j = 0; j < 4; j++)
            e.x[4 * i + j] = f.x[j];
    }
    return e;
}

template <int LANES>
static __device__ void leave(float *row, int lane, const eight &e)
{
    for (int i = 0; i < 2; i++) {
        four<float> f;
        for (int j = 0; j < 4; j++)
            f.x[j] = e.x[4 * i + j];
        *(four<float> *)(row + run<LANES>(i, lane)) = f;
    }
}

/* The same in global memory, where a row has no padding. */
template <typename T, int LANES>
static __device__ void store_columns(T *row, int columns, int lane, const eight &e)
{
    for (int i = 0; i < 2; i++) {
        int at = run<LANES>(i, lane);
        four<T> f;
        for (int j = 0; j < 4; j++)
            store(&f.x[j], e.x[4 * i + j]);
        if (columns % 4 == 0 && at < columns)
            *(four<T> *)(row + at) = f;
        else
            for (int j = 0; j < 4 && at + j < columns; j++)
                row[at + j] = f.x[j];
    }
}

/* Eight columns as they are stored, in words that nobody looks at before they
 * are needed, so that they can be on their way for as long as it takes. */
template <typename T>
struct alignas(4 * sizeof(T)) words {
    unsigned w[sizeof(T)];
};
template <typename T>
struct raw {
    words<T> run[2];
};

/* ALIGNED: columns, and where rows begin, are multiples of four. */
template <typename T, int LANES, bool ALIGNED>
static __device__ __forceinline__ raw<T> load_columns(const T *row, int columns, int lane)
{
    raw<T> got = {};
    for (int i = 0; i < 2; i++) {
        const int at = run<LANES>(i, lane);
        if (ALIGNED) {
            if (at < columns)
                got.run[i] = *(const words<T> *)(row + at);
            continue;
        }
        T x[4];
        for (int j = 0; j < 4; j++) {
            store(x + j, 0.0f);
            if (at + j < columns)
                x[j] = row[at + j];
        }
        memcpy(&got.run[i], x, sizeof x);
    }
    return got;
}

static __device__ __forceinline__ eight widened(const raw<float> &r)
{
    eight e;
    for (int j = 0; j < COLUMNS; j++)
        e.x[j] = __uint_as_float(r.run[j / 4].w[j % 4]);
    return e;
}

/* A bf16 is the upper half of a float. */
static __device__ __forceinline__ eight widened(const raw<__nv_bfloat16> &r)
{
    eight e;
    for (int j = 0; j < COLUMNS; j += 2) {
        const unsigned pair = r.run[j / 4].w[j % 4 / 2];
        e.x[j] = __uint_as_float(pair << 16);
        e.x[j + 1] = __uint_as_float(pair & 0xffff0000);
    }
    return e;
}

template <int LANES>
static __device__ __forceinline__ eight load_floats(const float *row, int columns, int lane)
{
    return widened(columns % 4 ? load_columns<float, LANES, false>(row, columns, lane)
                               : load_columns<float, LANES, true>(row, columns, lane));
}

/* Two sums side by side: half as long a chain. */
static __device__ __forceinline__ float dot(const eight &a, const eight &b)
{
    float even = a.x[0] * b.x[0], odd = a.x[1] * b.x[1];
    for (int j = 2; j < COLUMNS; j += 2) {
        even = fmaf(a.x[j], b.x[j], even);
        odd = fmaf(a.x[j + 1], b.x[j + 1], odd);
    }
    return even + odd;
}

/* The sum over a row's lanes, in every one of them. */
template <int LANES>
static __device__ __forceinline__ float lanes_sum(float x)
{
    for (int d = LANES / 2; d; d /= 2)
        x += __shfl_xor_sync(0xffffffff, x, d);
    return x;
}

/* ---- what a chunk of steps needs, in shared memory ---- */

struct staged {
    float *khat, *u, *q;       /* [steps][groups][width]; u is khat without an inner z */
    float *v, *z;              /* [steps][rows]; z only where it modulates rows */
    float *y;                  /* [steps][rows] forward */
    float *dy, *delta, *reads; /* [steps][rows] backward; reads becomes the rows' dz */
    float *dreads, *dv;
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
    s->dreads = numbers + 5 * rows;
    s->dv = numbers + 6 * rows;
    return (vectors * keys + (backward ? 7 : 3) * rows + 3) / 4 * 4;
}

/* One key of each kind, normalised, from registers to shared memory.  Called
 * by whole warps; those threads that have no key bring zeros nowhere. */
template <typename T, int LANES>
static __device__ void put_key(const staged &to, int at, bool any, const raw<T> &k, const raw<T> &q,
                               const raw<T> &z)
{
    int lane = threadIdx.x % LANES;
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

/* A chunk of steps on its way: the keys that this thread brings, and its
 * numbers of rows; y and dout only on the way back. */
template <typename T, int LANES>
struct incoming {
    raw<T> k[ROUNDS], q[ROUNDS], z[ROUNDS];
    T v[values(LANES)], gate[values(LANES)], y[values(LANES)], dout[values(LANES)];
};

/* Key i of a chunk is that of a step and a group. */
static __device__ int step_of(const place &p, int i)
{
    return p.groups == 1 ? i : i / p.groups;
}

/* BACK is how many times as many threads as carry rows bring them, less one. */
template <typename T, int LANES, int BACK, bool ALIGNED>
static __device__ __forceinline__ void send_for_keys(incoming<T, LANES> *in, const layout &l,
                                                     const place &p, int64_t t, int steps)
{
    const call &c = l.c;
    for (int n = 0; n < ROUNDS; n++) {
        const int i = p.row + n * l.rows * (1 + BACK), step = step_of(p, i);
        const int columns = i < steps * p.groups ? c.columns : 0;
        const int64_t at =
            ((t + step) * c.BH + p.bh) * c.N + (int64_t)(p.group + i - step * p.groups) * c.columns;
        in->k[n] = load_columns<T, LANES, ALIGNED>((const T *)c.k + at, columns, p.lane);
        in->q[n] = load_columns<T, LANES, ALIGNED>((const T *)c.q + at, columns, p.lane);
        if (c.z_inside)
            in->z[n] = load_columns<T, LANES, ALIGNED>((const T *)c.z + at, columns, p.lane);
    }
}

template <typename T, int LANES, int BACK>
static __device__ __forceinline__ void send_for(incoming<T, LANES> *in, const layout &l,
                                                const place &p, int64_t t, int steps)
{
    const call &c = l.c;
    const int64_t at = (t * c.BH + p.bh) * c.N + p.first + p.number, each = c.BH * c.N;

    if (c.columns % 4 == 0)
        send_for_keys<T, LANES, BACK, true>(in, l, p, t, steps);
    else
        send_for_keys<T, LANES, BACK, false>(in, l, p, t, steps);
    for (int n = 0; n < values(LANES); n++) {
        const int step = p.step + n * LANES * (1 + BACK);
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

/* It is there: into shared memory. */
template <typename T, int LANES, int BACK>
static __device__ __forceinline__ void settle(const incoming<T, LANES> &in, const layout &l,
                                              const place &p, int steps, const staged &to)
{
    for (int n = 0; n < ROUNDS; n++) {
        const int i = p.row + n * l.rows * (1 + BACK), step = step_of(p, i);
        const bool any = i < steps * p.groups;
        const int at = (step * l.groups + i - step * p.groups) * l.width;
        put_key<T, LANES>(to, at, any, in.k[n], in.q[n], in.z[n]);
    }
    for (int n = 0; n < values(LANES); n++) {
        const int step = p.step + n * LANES * (1 + BACK), at = step * l.rows + p.number;
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

/* ---- one step ---- */

/* tanh to some four units in the last place: a polynomial where |x| is small,
 * else from e^(-2|x|).  Both are computed, so that no threads part. */
static __device__ float tanh_full(float x)
{
    const float square = x * x, size = fabsf(x);
    float p = fmaf(1.643788442e-2f, square, -5.267196894e-2f);
    p = fmaf(p, square, 1.332072765e-1f);
    p = fmaf(p, square, -3.333294690e-1f);
    p = fmaf(x, p * square, x);
    float e = exp2_approx(-2.885390082f * size);
    float far = (1 - e) * reciprocal(1 + e);
    return size < 0.55f ? p : copysignf(far, x);
}

template <typename T>
static __device__ float bent(float x);
template <>
__device__ float bent<float>(float x)
{
    return tanh_full(x);
}
template <>
__device__ float bent<__nv_bfloat16>(float x)
{
    return tanh_approx(x);
}

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

/* Steps from ... to - 1 of a chunk.  A dot product is begun as soon as S is
 * there, and added up over the lanes when the next step begins. */
template <typename T, int LANES, int NONLIN>
static __device__ __forceinline__ void walk(const layout &l, const place &p, const staged &s,
                                            int from, int to, eight &S)
{
    table at = table_of(l, p, s, from);
    float *y_at = s.y + from * l.rows + p.row;
    meal now = serve<LANES>(&at, l, p);
    float reads = dot(S, now.read), y = 0;

    UNROLL(2)
    for (int i = from + 1; i < to; i++) {
        const meal then = serve<LANES>(&at, l, p);
        advance<T, NONLIN>(S, now, lanes_sum<LANES>(reads));
        y = dot(S, now.query);
        reads = dot(S, then.read);
        y = lanes_sum<LANES>(y);
        if (p.lane == 0)
            *y_at = y;
        y_at += l.rows;
        now = then;
    }
    advance<T, NONLIN>(S, now, lanes_sum<LANES>(reads));
    y = lanes_sum<LANES>(dot(S, now.query));
    if (p.lane == 0)
        *y_at = y;
}

template <typename T, int LANES, int NONLIN>
__global__ void __launch_bounds__(carriers(LANES, 0), 1) forward_rows(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const call &c = l.c;
    const place p = place_of<LANES>(l);
    incoming<T, LANES> in;
    staged s;
    int64_t until_kept = 0, segment = 0;

    carve(l, 0, buffer, &s);
    eight S = load_floats<LANES>(c.first + p.element, p.any ? c.columns : 0, p.lane);
    send_for<T, LANES, 0>(&in, l, p, 0, (int)min((int64_t)l.steps, c.T));
    for (int64_t t = 0; t < c.T; t += l.steps) {
        const int steps = (int)min((int64_t)l.steps, c.T - t);

        __syncthreads(); /* the last chunk is done */
        if (t > 0)
            put_outputs<T>(l, p, t - l.steps, l.steps, LANES, s.y);
        settle<T, LANES, 0>(in, l, p, steps, s);
        __syncthreads();
        if (t + steps < c.T)
            send_for<T, LANES, 0>(&in, l, p, t + steps,
                                  (int)min((int64_t)l.steps, c.T - t - steps));
        for (int from = 0, to; from < steps; from = to) {
            if (until_kept == 0) {
                keep_state<LANES>(c, p, segment++, S);
                until_kept = c.K;
            }
            to = (int)min((int64_t)steps, from + until_kept);
            until_kept -= to - from;
            walk<T, LANES, NONLIN>(l, p, s, from, to, S);
        }
        if (t + steps >= c.T) {
            __syncthreads();
            put_outputs<T>(l, p, t, steps, LANES, s.y);
        }
    }
    store_columns<float, LANES>(c.last + p.element, p.any ? c.columns : 0, p.lane, S);
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
    float reads = dot(S, now.read);

    UNROLL(2)
    for (int i = from; i < to; i++) {
        meal then = now;
        if (i + 1 < to)
            then = serve<LANES>(&at, l, p);
        const float sum = lanes_sum<LANES>(reads), delta = advance<T, NONLIN>(S, now, sum);
        reads = dot(S, then.read);
        now = then;
        if (!slots)
            continue;
        leave<LANES>(slot, p.lane, S);
        slot += l.rows * l.width;
        if (p.lane == 0) {
            *delta_at = delta;
            *reads_at = sum;
        }
        delta_at += l.rows;
        reads_at += l.rows;
    }
}

/* What a step back needs. */
struct meal_back {
    eight write, read, query, S;
    float dy, z;
};

template <int LANES>
static __device__ __forceinline__ meal_back serve_back(const layout &l, const place &p,
                                                       const staged &s, const float *slots,
                                                       int step)
{
    const int key = step * l.groups * l.width + p.key, number = step * l.rows + p.row;
    meal_back m;
    m.query = take<LANES>(s.q + key, p.lane);
    m.S = take<LANES>(slots + (number + l.rows) * l.width, p.lane);
    m.write = take<LANES>(s.khat + key, p.lane);
    m.read = take<LANES>(s.u + key, p.lane);
    m.dy = s.dy[number];
    m.z = l.c.z_outside ? s.z[number] : 1;
    return m;
}

/* Back over the steps to - 1 ... from; G is dL/dS after, then before them. */
template <int LANES, int NONLIN>
static __device__ __forceinline__ void retreat(const layout &l, const place &p, const staged &s,
                                               int from, int to, eight &G, const float *slots,
                                               float *dP)
{
    meal_back now = serve_back<LANES>(l, p, s, slots, to - 1);
    UNROLL(2)
    for (int i = to - 1; i >= from; i--) {
        const int at = i * l.rows + p.row;
        meal_back then = now;
        if (i > from)
            then = serve_back<LANES>(l, p, s, slots, i - 1);
        for (int j = 0; j < COLUMNS; j++) {
            G.x[j] = fmaf(now.dy, now.query.x[j], G.x[j]);
            if (NONLIN == E74_TANH)
                G.x[j] *= fmaf(-now.S.x[j], now.S.x[j], 1.0f);
        }
        const float dv = lanes_sum<LANES>(dot(G, now.write)), dreads = -dv * now.z;
        leave<LANES>(dP + ((i - from) * l.rows + p.row) * l.width, p.lane, G);
        for (int j = 0; j < COLUMNS; j++)
            G.x[j] = fmaf(dreads, now.read.x[j], G.x[j]);
        if (p.lane == 0) {
            s.dv[at] = dv;
            s.dreads[at] = dreads;
            s.reads[at] *= -dv; /* now the row's share of dz */
        }
        now = then;
    }
}

static __device__ void put_four(float *row, int columns, int column, const four<float> &f)
{
    if (columns % 4 == 0 && column < columns)
        *(four<float> *)(row + column) = f;
    else
        for (int j = 0; j < 4 && column + j < columns; j++)
            row[column + j] = f.x[j];
}

/* The column sums of steps from ... to - 1 by the second half of the block: an
 * item is (step, group, four columns); where there are threads to spare, a
 * warp's lanes share the rows of an item.  With dP those of the keys, else
 * those of the queries. */
template <int LANES>
static __device__ __forceinline__ void sum_columns(const layout &l, const place &p, int64_t t,
                                                   const staged &s, int from, int to,
                                                   const float *slots, const float *dP)
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
        const bool any = item < items;
        const float *before = slots + at * width + column, *after = before + l.rows * width;
        four<float> a = {}, b = {};

        if (dP) {
            const float *change = dP + (step * l.rows + row) * width + column;
            UNROLL(4)
            for (int r = sub; any && r < rows; r += p.share) {
                const four<float> x = *(const four<float> *)(change + r * width);
                const four<float> y = *(const four<float> *)(before + r * width);
                const float delta = s.delta[at + r], dreads = s.dreads[at + r];
                for (int j = 0; j < 4; j++) {
                    a.x[j] = fmaf(delta, x.x[j], a.x[j]);
                    b.x[j] = fmaf(dreads, y.x[j], b.x[j]);
                }
            }
        } else {
            UNROLL(4)
            for (int r = sub; any && r < rows; r += p.share) {
                const four<float> x = *(const four<float> *)(after + r * width);
                const float dy = s.dy[at + r];
                for (int j = 0; j < 4; j++)
                    a.x[j] = fmaf(dy, x.x[j], a.x[j]);
            }
        }
        if (l.vectors == 2)
            for (int j = 0; j < 4; j++)
                a.x[j] += b.x[j];
        for (int d = p.each; d < 32; d *= 2)
            for (int j = 0; j < 4; j++) {
                a.x[j] += __shfl_xor_sync(0xffffffff, a.x[j], d);
                if (l.vectors == 3)
                    b.x[j] += __shfl_xor_sync(0xffffffff, b.x[j], d);
            }
        if (!any || sub)
            continue;
        float *sums = l.sums + p.part * all + ((t + from + step) * c.BH + p.bh) * c.N +
                      (p.group + group) * c.columns;
        put_four(sums + (dP ? 0 : l.parts * all), c.columns, column, a);
        if (dP && l.vectors == 3)
            put_four(sums + 2 * l.parts * all, c.columns, column, b);
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
            l.dz[at] = s.reads[i];
        else if (c.z_outside)
            store((T *)c.dz + at, s.reads[i]);
        at += each * c.BH * c.N;
    }
}

template <typename T, int LANES, int NONLIN>
__global__ void __launch_bounds__(2 * carriers(LANES, 1), 1) backward_rows(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const call &c = l.c;
    const place p = place_of<LANES>(l);
    const int columns = p.any ? c.columns : 0;
    float *const within = l.within + p.bh * (l.subs - 1) * c.M + p.element;
    staged s;
    float *const slots = buffer + carve(l, 1, buffer, &s);
    float *const ring = slots + (l.steps + 1) * l.rows * l.width;
    const int ring_part = BEHIND * l.rows * l.width;
    const bool at_once = LANES <= 8 && l.subs == 1; /* beyond that registers are short */
    incoming<T, LANES> in;

    eight G = load_floats<LANES>(c.dlast + p.element, columns, p.lane), S;
    int64_t segment = (c.T - 1) / c.K;
    if (at_once) {
        send_for<T, LANES, 1>(&in, l, p, segment * c.K, (int)(c.T - segment * c.K));
        S = kept_state<LANES>(c, p, segment);
    }
    for (; segment >= 0; segment--) {
        const int64_t begin = segment * c.K, end = min(begin + c.K, c.T);
        const int subs = (int)ceil_div(end - begin, l.steps);

        /* A segment longer than what is kept at once: note states inside. */
        if (!at_once)
            S = kept_state<LANES>(c, p, segment);
        for (int sub = 0; sub < subs - 1; sub++) {
            send_for<T, LANES, 1>(&in, l, p, begin + sub * l.steps, l.steps);
            settle<T, LANES, 1>(in, l, p, l.steps, s);
            __syncthreads();
            if (p.carries)
                replay<T, LANES, NONLIN>(l, p, s, 0, l.steps, S, NULL);
            store_columns<float, LANES>(within + (sub + 1) * c.M, columns, p.lane, S);
            __syncthreads();
        }
        for (int sub = subs - 1; sub >= 0; sub--) {
            const int64_t t = begin + sub * l.steps;
            const int steps = (int)min((int64_t)l.steps, end - t);
            const int chunks = (steps + BEHIND - 1) / BEHIND;

            if (!at_once) {
                send_for<T, LANES, 1>(&in, l, p, t, steps);
                S = sub ? load_floats<LANES>(within + sub * c.M, columns, p.lane)
                        : kept_state<LANES>(c, p, segment);
            }
            settle<T, LANES, 1>(in, l, p, steps, s);
            if (p.carries)
                leave<LANES>(slots + p.row * l.width, p.lane, S);
            __syncthreads();
            for (int n = 0; n <= chunks; n++) {
                const int from = n * BEHIND;
                if (p.carries && n < chunks)
                    replay<T, LANES, NONLIN>(l, p, s, from, min(from + BEHIND, steps), S, slots);
                if (!p.carries && n > 0)
                    sum_columns<LANES>(l, p, t, s, from - BEHIND, min(from, steps), slots, NULL);
                __syncthreads();
            }
            if (at_once && segment > 0) {
                send_for<T, LANES, 1>(&in, l, p, begin - c.K, (int)c.K);
                S = kept_state<LANES>(c, p, segment - 1);
            }
            for (int n = chunks; n >= 0; n--) {
                const int from = n * BEHIND;
                if (p.carries && n > 0)
                    retreat<LANES, NONLIN>(l, p, s, from - BEHIND, min(from, steps), G, slots,
                                           ring + (n - 1) % 2 * ring_part);
                if (!p.carries && n < chunks)
                    sum_columns<LANES>(l, p, t, s, from, min(from + BEHIND, steps), slots,
                                       ring + n % 2 * ring_part);
                __syncthreads();
            }
            put_rows<T>(l, p, t, steps, 2 * LANES, s);
        }
    }
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
    int n = carve(l, backward, NULL, &s);
    if (backward)
        n += (l.steps + 1 + 2 * BEHIND) * l.rows * l.width;
    return n * sizeof(float);
}

static layout layout_of(const struct frame *f, enum pass pass)
{
    layout l = {};
    call &c = l.c = call_of(f);

    for (l.lanes = 1; COLUMNS * l.lanes < c.columns; l.lanes *= 2)
        ;
    l.width = COLUMNS * l.lanes;
    int most = carriers(l.lanes, pass == BACKWARD) / l.lanes, warp = ceil_div(32, l.lanes);
    l.groups = c.rows < most ? most / c.rows : 1;
    l.groups = l.groups < c.N / c.rows ? l.groups : c.N / c.rows;
    l.parts = (int)ceil_div(c.rows, most);
    l.rows = l.parts > 1 ? most : (int)ceil_div(l.groups * c.rows, warp) * warp;
    l.vectors = c.z_inside ? 3 : 2;
    const int half = pass == BACKWARD ? 2 : 1; /* how many times the rows' threads bring */
    const int keys = half * ROUNDS * l.rows / l.groups;
    const int numbers = half * values(l.lanes) * l.lanes;
    l.steps = CHUNK;
    l.steps = l.steps < keys ? l.steps : keys;
    l.steps = l.steps < numbers ? l.steps : numbers;
    if (pass == BACKWARD) {
        l.steps = l.steps < c.K ? l.steps : (int)c.K;
        while (l.steps > 1 && shared_bytes(l, 1) > SHARED_MAX)
            l.steps--;
        l.subs = (int)ceil_div(c.K, l.steps);
    }
    return l;
}

/* The parts of backward's workspace; returns its floats. */
static int64_t divide(layout *l, float *work)
{
    const call &c = l->c;
    int64_t all = c.T * c.BH * c.N, n = 0;

    l->sums = work;
    n += l->vectors * l->parts * all;
    if (!c.dv) {
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
    const int threads = l.rows * l.lanes * (pass == BACKWARD ? 2 : 1);
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
