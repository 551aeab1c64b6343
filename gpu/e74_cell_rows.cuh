/* e74_cell_rows.cuh - what both passes of e74_cell's kernel `rows` share; its
 * idea is in e74_cell_rows.cu. */
#ifndef E74_CELL_ROWS_CUH
#define E74_CELL_ROWS_CUH

#include "gpu/columns.cuh"
#include "gpu/e74_cell.cuh"
#include "gpu/tanh.cuh"

enum {
    CHUNK = 32, /* steps whose keys are in shared memory at once, at most */
    PIECE = 16, /* steps whose states are, at most */
    STRIDE = 8, /* steps between two barriers on the way back, at most */
    CREW = 128, /* threads, at most */
    SHARED_MAX = 227 * 1024
};

/* Numbers of rows that a helper brings at once: backward there are more kinds. */
static constexpr __host__ __device__ int values(int lanes, bool back)
{
    return lanes >= 8 || (back && lanes > 1) ? 2 : 4;
}

/* ---- how a call is laid out over blocks ---- */

/* A group is a run of rows that meet the same columns of the keys: all n
 * rows, or those of one block of the state.  A block of threads takes one
 * group, or, where that is long, one of its parts. */
struct layout {
    call c;
    int lanes, width;         /* threads of a row; columns of it with its padding */
    int rows;                 /* of a block, with padding */
    int parts;                /* of a group */
    int batch, steps;         /* that helpers bring at once; of a chunk, or of a piece */
    int stride;               /* steps between two barriers on the way back */
    int vectors;              /* sums over rows for each key: 2, or 3 with dz among them */
    float *sums;              /* [vectors][parts][T*BH*N] */
    bool tied_v;              /* v is k: dv is a share of dk */
    float *dv, *dz;           /* [T*BH*N] where the rows' share is not all */
    float *within;            /* [segments][subs - 1][BH][M]: states between a segment's pieces */
    int subs;                 /* pieces of a segment */
    int64_t segments, pieces; /* and of all, less than segments * subs where the last is short */
};

/* A block's share, and a thread's of that.  A block's threads are crews of
 * rows x LANES; the last crew are helpers, the others carriers. */
struct place {
    int64_t bh;
    int group, part;
    int first, rows;  /* the first row, and how many */
    int crew, self;   /* and the thread's number in it */
    bool any;         /* is there a row for it? */
    int lane, row;    /* of a carrier; a helper brings that lane's columns */
    int64_t element;  /* and the row within the states */
    int step, number; /* of the numbers [steps][rows], the first that a helper brings */
};

/* The share of block number `block`. */
template <int LANES>
static __device__ place place_of(const layout &l, int64_t block)
{
    const int crew = l.rows * LANES, groups = l.c.N / l.c.rows;
    const int i = (int)(block % (groups * l.parts));
    place p;

    p.bh = block / (groups * l.parts);
    p.part = i % l.parts;
    p.group = i / l.parts;
    p.first = p.group * l.c.rows + p.part * l.rows;
    p.rows = min(l.rows, l.c.rows - p.part * l.rows);
    p.crew = (int)threadIdx.x / crew;
    p.self = (int)threadIdx.x % crew;
    p.lane = p.self % LANES;
    p.row = p.self / LANES;
    p.any = p.row < p.rows;
    p.element = p.bh * l.c.M + (int64_t)(p.first + p.row) * l.c.columns;
    p.step = p.self / l.rows;
    p.number = p.self % l.rows;
    return p;
}

/* ---- what a chunk of steps needs, in shared memory ---- */

struct staged {
    float *khat, *u, *q;       /* [steps][width]; u is khat without an inner z */
    float *v, *z;              /* [steps][rows]; z only where it modulates rows */
    float *y;                  /* forward */
    float *dy, *delta, *reads; /* backward; what replay finds is for the way back */
};

/* Returns the floats it takes, a multiple of four. */
static inline __host__ __device__ int carve(const layout &l, int backward, float *at, staged *s)
{
    const int keys = l.steps * l.width, rows = l.steps * l.rows;
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
    return (vectors * keys + (backward ? 5 : 3) * rows + 3) / 4 * 4;
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
template <typename T, int LANES, bool BACK>
struct incoming {
    raw<T> k, q, z;
    T v[values(LANES, BACK)], gate[values(LANES, BACK)], y[values(LANES, BACK)],
        dout[values(LANES, BACK)];
};

template <typename T, int LANES, bool BACK, bool ALIGNED>
static __device__ __forceinline__ void send_for_keys(incoming<T, LANES, BACK> *in, const layout &l,
                                                     const place &p, int64_t t, int steps)
{
    const call &c = l.c;
    const int columns = p.row < steps ? c.columns : 0;
    const int64_t at = ((t + p.row) * c.BH + p.bh) * c.N + (int64_t)p.group * c.columns;
    in->k = load_columns<T, LANES, ALIGNED>((const T *)c.k + at, columns, p.lane);
    in->q = load_columns<T, LANES, ALIGNED>((const T *)c.q + at, columns, p.lane);
    if (c.z_inside)
        in->z = load_columns<T, LANES, ALIGNED>((const T *)c.z + at, columns, p.lane);
}

/* Up to l.batch steps from step t on. */
template <typename T, int LANES, bool BACK>
static __device__ __forceinline__ void send_for(incoming<T, LANES, BACK> *in, const layout &l,
                                                const place &p, int64_t t, int steps)
{
    const call &c = l.c;
    const int64_t at = (t * c.BH + p.bh) * c.N + p.first + p.number, each = c.BH * c.N;

    if (c.columns % 4 == 0)
        send_for_keys<T, LANES, BACK, true>(in, l, p, t, steps);
    else
        send_for_keys<T, LANES, BACK, false>(in, l, p, t, steps);
    for (int n = 0; n < values(LANES, BACK); n++) {
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
static __device__ __forceinline__ void settle(const incoming<T, LANES, BACK> &in, const layout &l,
                                              const place &p, int from, int steps, const staged &to)
{
    put_key<T, LANES>(to, p.lane, (from + p.row) * l.width, p.row < steps, in.k, in.q, in.z);
    for (int n = 0; n < values(LANES, BACK); n++) {
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
    incoming<T, LANES, BACK> in;
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
    const int key = step * l.width, number = step * l.rows + p.row;
    return {s.khat + key, s.u + key, s.q + key, s.v + number, s.z + number};
}

/* INSIDE: z modulates the inner side, so that what is read is not the key. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ meal serve(table *at, const layout &l, const place &p)
{
    meal m;
    m.write = take<LANES>(at->write, p.lane);
    m.read = INSIDE ? take<LANES>(at->read, p.lane) : m.write;
    m.query = take<LANES>(at->query, p.lane);
    m.v = *at->v;
    m.z = l.c.z_outside ? *at->z : 1;
    at->read += l.width;
    at->write += l.width;
    at->query += l.width;
    at->v += l.rows;
    at->z += l.rows;
    return m;
}

/* S <- f(S + delta k^T) given what S reads; returns delta. */
template <typename T>
static __device__ __forceinline__ float advance(eight &S, const meal &m, float reads, bool tanh)
{
    const float delta = fmaf(-m.z, reads, m.v);
    for (int j = 0; j < COLUMNS; j++)
        S.x[j] = fmaf(delta, m.write.x[j], S.x[j]);
    if (tanh)
        for (int j = 0; j < COLUMNS; j++)
            S.x[j] = bent<T>(S.x[j]);
    return delta;
}

/* ---- states that are kept ---- */

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

/* ---- launches ---- */

static inline int least(int a, int b)
{
    return a < b ? a : b;
}

/* All of a layout but how many steps fit. */
static inline layout layout_of(const struct frame *f, enum pass pass)
{
    layout l = {};
    call &c = l.c = call_of(f);

    for (l.lanes = 1; COLUMNS * l.lanes < c.columns; l.lanes *= 2)
        ;
    l.width = COLUMNS * l.lanes;
    const int most = CREW / l.lanes, warp = (int)ceil_div(32, l.lanes);
    l.parts = (int)ceil_div(c.rows, most);
    l.rows = l.parts > 1 ? most : (int)ceil_div(c.rows, warp) * warp;
    l.vectors = c.z_inside ? 3 : 2;
    l.tied_v = f->choice[E74_PROJ] == E74_TIED_KVQ;
    l.batch = least(l.rows, values(l.lanes, pass == BACKWARD) * l.lanes);
    l.batch = least(l.batch, CHUNK);
    return l;
}

static inline int64_t blocks_of(const layout &l)
{
    return l.c.BH * (l.c.N / l.c.rows) * l.parts;
}

/* The backward pass and its workspace: in e74_cell_rows_back.cu. */
template <typename T>
int rows_backward(const struct frame *f);
size_t rows_back_work(const struct frame *f);

#endif
