/* e74_cell_rows.cuh - what both passes of e74_cell's kernel `rows` share; its
 * idea is in e74_cell_rows.cu. */
#ifndef E74_CELL_ROWS_CUH
#define E74_CELL_ROWS_CUH

#include "gpu/device/cluster.cuh"
#include "gpu/device/columns.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/e74/e74_cell.cuh"

enum {
    CHUNK = 32, /* steps whose keys are in shared memory at once, at most */
    PIECE = 16, /* steps whose states are, at most */
    STRIDE = 8, /* steps between two barriers on the way back, at most */
    CREW = 128, /* threads, at most */
    SHARED_MAX = 227 * 1024
};

/* ---- how a call is laid out over blocks ---- */

/* A group is a run of rows that meet the same columns of the keys: all n
 * rows, or those of one block of the state.  A block of threads takes one
 * group, or, where that is long, one of its parts. */
struct layout {
    call c;
    int lanes, each;          /* threads of a row; runs of eight columns that one has of it */
    int width;                /* columns of a row with its padding */
    int rows;                 /* of a block, with padding */
    int parts;                /* of a group */
    int crews, crew, helpers; /* crews of a block; threads of one, and of the last */
    int warps;                /* of a crew, on the way back */
    int batch, steps;         /* that helpers bring at once; of a chunk, or of a piece */
    int stride;               /* steps between two barriers on the way back */
    int vectors;              /* sums over rows for each key: 2, or 3 with dz among them */
    float *sums;              /* [vectors][parts][T*BH*N] */
    bool tied_v;              /* v is k: dv is a share of dk */
    float *dv, *dz;           /* [T*BH*N] where the rows' share is not all */
    float *within;            /* [segments][subs - 1][BH][M]: states between a segment's pieces */
    int subs;                 /* pieces of a segment; as many of them have all those steps as */
    int longer;               /* this says, the rest one less */
    int64_t segments, pieces; /* and of all, less than segments * subs where the last is short */
};

/* A block's share, and a thread's of that.  A block's threads are crews, of
 * carriers each but for the last, who are helpers. */
struct place {
    int64_t bh;
    int group, part;
    int first, rows; /* the first row, and how many */
    int crew, self;  /* and the thread's number in it */

    /* a carrier's */
    bool any;        /* is there a row for it? */
    int lane, row;   /* the first, if it has several */
    int64_t element; /* and the row within the states */

    /* a helper's */
    int octet, key;         /* whose columns it brings, and of which of the keys at once */
    int step, number, span; /* the first of its four numbers of [steps][rows], and the steps
                               to its next four */
};

/* The share of block number `block`.  EACH: see layout; ROWS: of a carrier, neighbours. */
template <int LANES, int EACH, int ROWS>
static __device__ place map_shared_rank(const layout &l, int64_t block)
{
    const int groups = l.c.N / l.c.rows, thread = opaque_thread_index();
    const int i = (int)(block % (groups * l.parts));
    place p;

    p.bh = block / (groups * l.parts);
    p.part = i % l.parts;
    p.group = i / l.parts;
    p.first = p.group * l.c.rows + p.part * l.rows;
    p.rows = min(l.rows, l.c.rows - p.part * l.rows);
    p.crew = min(thread / l.crew, l.crews - 1);
    p.self = thread - p.crew * l.crew;
    p.lane = p.self % LANES;
    p.row = p.self / LANES * ROWS;
    p.any = p.row < p.rows;
    p.element = p.bh * l.c.M + (int64_t)(p.first + p.row) * l.c.columns;
    p.octet = p.self % (LANES * EACH);
    p.key = p.self / (LANES * EACH);
    p.span = l.helpers / (l.rows / 4);
    p.step = p.self / (l.rows / 4);
    p.number = p.step < p.span ? p.self % (l.rows / 4) * 4 : l.rows; /* for those left over, none */
    return p;
}

/* A carrier's place as if the r-th of its rows were its only one. */
static __device__ __forceinline__ place at_row(const layout &l, place p, int r)
{
    p.row += r;
    p.any = p.row < p.rows;
    p.element += r * l.c.columns;
    return p;
}

/* ---- what a chunk of steps needs, in shared memory ---- */

struct staged {
    float *khat, *u, *q;       /* [steps][width]; u is khat without an inner z */
    float *v, *z;              /* [steps][rows]; z only where it modulates rows */
    float *y;                  /* forward */
    float *dy, *delta, *reads; /* backward; what replay finds is for the way back, reads
                                  for that of z */
};

/* Returns the floats it takes, a multiple of four. */
static inline __host__ __device__ int carve(const layout &l, int backward, float *at, staged *s)
{
    const int keys = l.steps * l.width, rows = l.steps * l.rows;
    const int vectors = l.c.z_inside ? 3 : 2, gates = l.c.z_outside ? rows : 0;
    float *numbers = at + vectors * keys;

    s->khat = at;
    s->q = at + keys;
    s->u = l.c.z_inside ? at + 2 * keys : at;
    s->v = numbers;
    s->z = numbers + rows; /* never last: the one after a piece's last is fetched */
    s->y = s->dy = numbers + rows + gates;
    s->delta = numbers + 2 * rows + gates;
    s->reads = numbers + 3 * rows + gates;
    const int all = backward ? 3 * rows + 2 * gates : 2 * rows + gates;
    return (vectors * keys + all + 3) / 4 * 4;
}

/* Helpers' functions have OCTETS = LANES x EACH: eight columns a thread. */

/* One key of each kind, normalised, from registers to shared memory.  Called
 * by whole warps; those threads that have no key bring zeros nowhere. */
template <typename T, int OCTETS>
static __device__ void put_key(const staged &to, int octet, int at, bool any, const raw<T> &k,
                               const raw<T> &q, const raw<T> &z)
{
    eight key = widened(k);
    float scale = 1 / (sqrtf(lanes_sum<OCTETS>(dot(key, key))) + (float)E74_EPSILON);

    if (!any)
        return;
    for (int j = 0; j < COLUMNS; j++)
        key.x[j] *= scale;
    leave<OCTETS>(to.khat + at, octet, key);
    leave<OCTETS>(to.q + at, octet, widened(q));
    if (to.u == to.khat)
        return;
    eight gate = widened(z);
    for (int j = 0; j < COLUMNS; j++)
        key.x[j] *= gate.x[j];
    leave<OCTETS>(to.u + at, octet, key);
}

/* Steps on their way: the keys that a helper brings, and its numbers of rows;
 * y and dout only on the way back. */
template <typename T>
struct incoming {
    raw<T> k, q, z;
    words<T> v, gate, y, dout;
};

/* Up to l.batch steps from step t on. */
template <typename T, int OCTETS, bool BACK, bool ALIGNED>
static __device__ __forceinline__ incoming<T> send_for(const layout &l, const place &p, int64_t t,
                                                       int steps)
{
    const call &c = l.c;
    const int columns = p.key < steps ? c.columns : 0, rows = p.step < steps ? p.rows : 0;
    const int64_t key = ((t + p.key) * c.BH + p.bh) * c.N + (int64_t)p.group * c.columns;
    const int64_t row = ((t + p.step) * c.BH + p.bh) * c.N + p.first + p.number;
    incoming<T> in = {};

    in.k = load_columns<T, OCTETS, ALIGNED>((const T *)c.k + key, columns, p.octet);
    in.q = load_columns<T, OCTETS, ALIGNED>((const T *)c.q + key, columns, p.octet);
    if (c.z_inside)
        in.z = load_columns<T, OCTETS, ALIGNED>((const T *)c.z + key, columns, p.octet);
    in.v = load_run<T, ALIGNED>((const T *)c.v + row, rows - p.number);
    if (c.z_outside)
        in.gate = load_run<T, ALIGNED>((const T *)c.z + row, rows - p.number);
    if (BACK) {
        in.y = load_run<T, ALIGNED>((const T *)c.y + row, rows - p.number);
        in.dout = load_run<T, ALIGNED>((const T *)c.dout + row, rows - p.number);
    }
    return in;
}

template <typename T>
static __device__ __forceinline__ four<float> widened(const words<T> &w)
{
    T x[4];
    four<float> f;
    memcpy(x, &w, sizeof x);
    for (int j = 0; j < 4; j++)
        f.x[j] = load(x + j);
    return f;
}

/* dL/dy, by way of y silu(y). */
static __device__ __forceinline__ float through_gate(float dout, float y)
{
    const float gate = rcp_approx(1 + expf(-y));
    return dout * y * gate * (2 + y * (1 - gate));
}

/* They are there: into shared memory, as steps from ... */
template <typename T, int OCTETS, bool BACK>
static __device__ __forceinline__ void settle(const incoming<T> &in, const layout &l,
                                              const place &p, int from, int steps, const staged &to)
{
    const int at = (from + p.step) * l.rows + p.number;

    put_key<T, OCTETS>(to, p.octet, (from + p.key) * l.width, p.key < steps, in.k, in.q, in.z);
    if (p.step >= steps || p.number >= l.rows)
        return;
    *(four<float> *)(to.v + at) = widened(in.v);
    if (l.c.z_outside)
        *(four<float> *)(to.z + at) = widened(in.gate);
    if (BACK) {
        const four<float> y = widened(in.y);
        four<float> dy = widened(in.dout);
        for (int j = 0; j < 4; j++)
            dy.x[j] = through_gate(dy.x[j], y.x[j]);
        *(four<float> *)(to.dy + at) = dy;
    }
}

/* A batch of steps, those from `from` on, of the steps before `to` that begin with t. */
template <typename T, int OCTETS, bool INSIDE, bool BACK, bool ALIGNED>
static __device__ __forceinline__ incoming<T> send_for(const layout &l, const place &p, int64_t t,
                                                       int from, int to)
{
    incoming<T> in = send_for<T, OCTETS, BACK, ALIGNED>(l, p, t + from, min(l.batch, to - from));
    if (!INSIDE)
        in.z = {};
    return in;
}

/* Steps from ... to - 1, of those that begin with t. */
template <typename T, int OCTETS, bool BACK, bool ALIGNED>
static __device__ __forceinline__ void bring(const layout &l, const place &p, int64_t t, int from,
                                             int to, const staged &s)
{
    for (; from < to; from += l.batch) {
        const int steps = min(l.batch, to - from);
        settle<T, OCTETS, BACK>(send_for<T, OCTETS, BACK, ALIGNED>(l, p, t + from, steps), l, p,
                                from, steps, s);
    }
}

/* A helper's four numbers of step t, to [T,BH,N]. */
template <typename T>
static __device__ __forceinline__ void put_numbers(const layout &l, const place &p, void *to,
                                                   int64_t t, const four<float> &numbers)
{
    T *const at = (T *)to + (t * l.c.BH + p.bh) * l.c.N + p.first + p.number;
    four<T> f;
    for (int j = 0; j < 4; j++)
        store(&f.x[j], numbers.x[j]);
    if (l.c.columns % 4 == 0)
        *(four<T> *)at = f;
    else
        for (int j = 0; j < 4 && p.number + j < p.rows; j++)
            at[j] = f.x[j];
}

/* ---- one step ---- */

/* A thread's columns of a row: those that EACH threads would have, LANES apart,
 * if there were as many, so that sums over a row have the same bits. */
template <int EACH>
struct strip {
    eight of[EACH];
};

template <int LANES, int EACH>
static __device__ __forceinline__ strip<EACH> take_strip(const float *row, int lane)
{
    strip<EACH> s;
    for (int i = 0; i < EACH; i++)
        s.of[i] = take<LANES * EACH>(row, lane + i * LANES);
    return s;
}

template <int EACH>
static __device__ __forceinline__ float dot(const strip<EACH> &a, const strip<EACH> &b)
{
    float sum = dot(a.of[0], b.of[0]);
    for (int i = 1; i < EACH; i++)
        sum += dot(a.of[i], b.of[i]);
    return sum;
}

/* What a step of a row needs from shared memory, taken a step ahead so that the
 * chain never waits for it. */
template <int EACH>
struct meal {
    strip<EACH> write, read;
    float v, z;
};

/* Where the next one is. */
struct table {
    const float *write, *read, *v, *z;
};

static __device__ __forceinline__ table table_of(const layout &l, const place &p, const staged &s,
                                                 int step)
{
    const int key = step * l.width, number = step * l.rows + p.row;
    return {s.khat + key, s.u + key, s.v + number, s.z + number};
}

/* INSIDE: z modulates the inner side, so that what is read is not the key. */
template <int LANES, int EACH, bool INSIDE>
static __device__ __forceinline__ meal<EACH> serve(table *at, const layout &l, const place &p)
{
    meal<EACH> m;
    m.write = take_strip<LANES, EACH>(at->write, p.lane);
    m.read = INSIDE ? take_strip<LANES, EACH>(at->read, p.lane) : m.write;
    m.v = *at->v;
    m.z = l.c.z_outside ? *at->z : 1;
    at->read += l.width;
    at->write += l.width;
    at->v += l.rows;
    at->z += l.rows;
    return m;
}

/* S <- f(S + delta k^T) given what S reads; returns delta. */
template <typename T, int EACH>
static __device__ __forceinline__ float advance(strip<EACH> &S, const meal<EACH> &m, float reads,
                                                bool tanh)
{
    const float delta = fmaf(-m.z, reads, m.v);
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < COLUMNS; j++)
            S.of[i].x[j] = fmaf(delta, m.write.of[i].x[j], S.of[i].x[j]);
    if (tanh)
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < COLUMNS; j++)
                S.of[i].x[j] = tanh_for<T>(S.of[i].x[j]);
    return delta;
}

/* ---- states in global memory ---- */

template <int LANES, int EACH>
static __device__ strip<EACH> load_strip(const float *row, int columns, int lane)
{
    strip<EACH> s;
    for (int i = 0; i < EACH; i++)
        s.of[i] = load_floats<LANES * EACH>(row, columns, lane + i * LANES);
    return s;
}

template <int LANES, int EACH>
static __device__ void store_strip(float *row, int columns, int lane, const strip<EACH> &s)
{
    for (int i = 0; i < EACH; i++)
        store_columns<float, LANES * EACH>(row, columns, lane + i * LANES, s.of[i]);
}

/* Where the thread's j-th column is. */
template <int LANES, int EACH>
static __device__ int column_of(int lane, int j)
{
    return run<LANES * EACH>(j % COLUMNS / 4, lane + j / COLUMNS * LANES) + j % 4;
}

template <int LANES, int EACH>
static __device__ strip<EACH> kept_state(const call &c, const place &p, int64_t segment)
{
    const int columns = p.any ? c.columns : 0;
    if (c.kept == KEPT_F32)
        return load_strip<LANES, EACH>(
            (const float *)c.checkpoints + segment * c.BH * c.M + p.element, columns, p.lane);
    strip<EACH> S = {};
    for (int j = 0; j < EACH * COLUMNS; j++) {
        const int column = column_of<LANES, EACH>(p.lane, j);
        if (column < columns)
            S.of[j / COLUMNS].x[j % COLUMNS] = get_kept(c, segment * c.BH, p.element + column);
    }
    return S;
}

/* ---- launches ---- */

static inline int least(int a, int b)
{
    return a < b ? a : b;
}

/* How a block is made up. */
struct shape {
    int crews, crew, helpers; /* carriers of a crew, at most; 0 helpers: as many */
    int each, rows;           /* runs of eight columns, and rows, of a carrier */
};

/* All of a layout but how many steps fit.  A group's parts are of like size. */
static inline layout layout_of(const struct frame *f, const shape &s)
{
    layout l = {};
    call &c = l.c = call_of(f);

    l.crews = s.crews;
    l.each = s.each;
    for (l.lanes = 1; COLUMNS * s.each * l.lanes < c.columns; l.lanes *= 2)
        ;
    l.width = COLUMNS * s.each * l.lanes;
    const int most = s.crew / l.lanes * s.rows, warp = (int)ceil_div(32, l.lanes) * s.rows;
    const int unit = warp > 4 ? warp : 4;
    l.parts = (int)ceil_div(c.rows, most);
    l.rows = (int)ceil_div(ceil_div(c.rows, l.parts), unit) * unit;
    l.crew = l.rows / s.rows * l.lanes;
    l.helpers = s.helpers ? s.helpers : l.crew;
    l.batch = least(least(l.helpers / (l.lanes * s.each), l.helpers / (l.rows / 4)), CHUNK);
    l.vectors = c.z_inside ? 3 : 2;
    l.tied_v = f->choice[E74_PROJ] == E74_TIED_KVQ;
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
