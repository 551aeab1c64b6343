/* rows.cuh - both passes of e74_cell's kernel `rows`: the mapping of rows to
 * threads, the stages in shared memory, one step S <- f(S + delta k^T).  The formulas and
 * the warp roles are in rows.cu. */
#ifndef E74_CELL_ROWS_CUH
#define E74_CELL_ROWS_CUH

#include "gpu/device/cluster.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/device/smem.cuh"
#include "gpu/e74/cell_math.cuh"
#include "gpu/e74/columns.cuh"
#include "gpu/e74/e74_cell.cuh"

namespace e74_rows
{

enum {
    CHUNK = 32, /* maximum steps per stage in shared memory, forward */
    MAX_SUB_STEPS =
        16, /* maximum steps per subsegment, whose states are in shared memory, backward */
    MAX_INTERVAL = 8,  /* maximum steps between two barriers, backward */
    ROLE_THREADS = 128 /* maximum threads per warp role */
};

/* ---- how a call is laid out over blocks ---- */

/* A group is a range of rows that use the same columns of the keys: all n
 * rows, or those of one block of the state.  A thread block processes one
 * group, or, where that is long, one of its parts. */
struct layout {
    cell_call c;
    int lanes, per_lane; /* threads per row; octets (8 columns) per thread and row */
    int width;           /* columns of a row with padding */
    int rows;            /* of a block, with padding */
    int parts;           /* of a group */
    /* warp roles per block, the last being the producer; threads of each other role; its own */
    int roles, role_threads, producer_threads;
    int warps;         /* per role, backward */
    int batch, steps;  /* steps that producers load at once; steps per chunk or subsegment */
    int interval;      /* steps between two barriers, backward */
    int vectors;       /* sums over rows for each key: 2, or 3 with dz among them */
    float *sums;       /* [vectors][parts][T*BH*N] */
    bool tied_v;       /* v is k: dv is added to dk */
    float *dv, *dz;    /* [T*BH*N] where finish_keys() adds to them */
    float *sub_states; /* [segments][subs - 1][BH][M]: states between subsegments */
    int subs;          /* subsegments per segment */
    int long_subs;     /* the first `long_subs` have `steps` steps, the others one less */
    int64_t segments, total_subs; /* total_subs < segments * subs where the last is short */
};

/* The work of a block and of a thread.  A block's threads have one warp role each:
 * consumers, which hold rows of the state, or, in the last role, producers. */
struct work_coord {
    int64_t bh;
    int group, part;
    int first, rows; /* the first row, and the number of rows */
    int role, tid;   /* the warp role, and the thread's index in it */

    /* of a consumer */
    bool any;        /* does it have a row? */
    int lane, row;   /* the first row, if it has several */
    int64_t element; /* offset of the row in the states */

    /* of a producer */
    int octet, key; /* which columns of which key of a batch it loads */
    /* the first of its four elements of [steps][rows], and the steps to its next four */
    int step, quad_row, step_stride;
};

/* The work of block `block`.  PER_LANE: octets per lane; ROWS: neighbouring rows per consumer. */
template <int LANES, int PER_LANE, int ROWS>
static __device__ work_coord work_coord_of(const layout &l, int64_t block)
{
    const int groups = l.c.N / l.c.rows, thread = opaque_thread_index();
    const int i = (int)(block % (groups * l.parts));
    work_coord p;

    p.bh = block / (groups * l.parts);
    p.part = i % l.parts;
    p.group = i / l.parts;
    p.first = p.group * l.c.rows + p.part * l.rows;
    p.rows = min(l.rows, l.c.rows - p.part * l.rows);
    p.role = min(thread / l.role_threads, l.roles - 1);
    p.tid = thread - p.role * l.role_threads;
    p.lane = p.tid % LANES;
    p.row = p.tid / LANES * ROWS;
    p.any = p.row < p.rows;
    p.element = p.bh * l.c.M + (int64_t)(p.first + p.row) * l.c.columns;
    p.octet = p.tid % (LANES * PER_LANE);
    p.key = p.tid / (LANES * PER_LANE);
    p.step_stride = l.producer_threads / (l.rows / 4);
    p.step = p.tid / (l.rows / 4);
    p.quad_row = p.step < p.step_stride ? p.tid % (l.rows / 4) * 4
                                        : l.rows; /* the threads left over have none */
    return p;
}

/* A consumer's coordinates as if the r-th of its rows were its only one. */
static __device__ __forceinline__ work_coord at_row(const layout &l, work_coord p, int r)
{
    p.row += r;
    p.any = p.row < p.rows;
    p.element += r * l.c.columns;
    return p;
}

/* ---- a stage in shared memory: the operands of a chunk of steps ---- */

struct stage_ptrs {
    float *khat, *u, *q;       /* [steps][width]; u is khat without an inner z */
    float *v, *z;              /* [steps][rows]; z only where it modulates rows */
    float *y;                  /* forward */
    float *dy, *delta, *reads; /* backward; delta and reads are computed by the replay,
                                  reads for dz */
};

static __host__ __device__ __forceinline__ stage_ptrs alloc_stage(smem_arena *smem, const layout &l,
                                                                  bool backward)
{
    const int keys = l.steps * l.width, rows = l.steps * l.rows;
    const int gates = l.c.z_outside ? rows : 0;
    stage_ptrs s = {};

    s.khat = smem->alloc<float>(keys);
    s.q = smem->alloc<float>(keys);
    s.u = l.c.z_inside ? smem->alloc<float>(keys) : s.khat;
    s.v = smem->alloc<float>(rows);
    s.z = smem->alloc<float>(gates); /* not last: the element after a subsegment's last is loaded */
    s.y = s.dy = smem->alloc<float>(rows);
    if (backward) {
        s.delta = smem->alloc<float>(rows);
        s.reads = smem->alloc<float>(gates);
    }
    return s;
}

/* Producers' functions have OCTETS = LANES x PER_LANE: one octet per thread. */

/* Normalises k, and stores one key of each kind from registers to shared memory.  Called by whole
 * warps; threads without a key store nothing. */
template <typename T, int OCTETS>
static __device__ void store_key(const stage_ptrs &to, int octet, int at, bool any, const raw<T> &k,
                                 const raw<T> &q, const raw<T> &z)
{
    float8 key = widened(k);
    const float r = key_scale(sqrtf(warp_sum<OCTETS>(dot(key, key))));

    if (!any)
        return;
    for (int j = 0; j < OCTET; j++)
        key.x[j] *= r;
    store_columns<OCTETS>(to.khat + at, octet, key);
    store_columns<OCTETS>(to.q + at, octet, widened(q));
    if (to.u == to.khat)
        return;
    float8 gate = widened(z);
    for (int j = 0; j < OCTET; j++)
        key.x[j] *= gate.x[j];
    store_columns<OCTETS>(to.u + at, octet, key);
}

/* A batch in flight, in registers: a producer's octet of the keys and its elements of the
 * rows; y and dout only backward. */
template <typename T>
struct incoming {
    raw<T> k, q, z;
    vec<T, 4> v, gate, y, dout;
};

/* Loads up to l.batch steps, from step t on. */
template <typename T, int OCTETS, bool BACK, bool ALIGNED>
static __device__ __forceinline__ incoming<T> load_batch(const layout &l, const work_coord &p,
                                                         int64_t t, int steps)
{
    const cell_call &c = l.c;
    const int columns = p.key < steps ? c.columns : 0, rows = p.step < steps ? p.rows : 0;
    const int64_t key = ((t + p.key) * c.BH + p.bh) * c.N + (int64_t)p.group * c.columns;
    const int64_t row = ((t + p.step) * c.BH + p.bh) * c.N + p.first + p.quad_row;
    incoming<T> in = {};

    in.k = load_columns<T, OCTETS, ALIGNED>((const T *)c.k + key, columns, p.octet);
    in.q = load_columns<T, OCTETS, ALIGNED>((const T *)c.q + key, columns, p.octet);
    if (c.z_inside)
        in.z = load_columns<T, OCTETS, ALIGNED>((const T *)c.z + key, columns, p.octet);
    in.v = load_quad<T, ALIGNED>((const T *)c.v + row, rows - p.quad_row);
    if (c.z_outside)
        in.gate = load_quad<T, ALIGNED>((const T *)c.z + row, rows - p.quad_row);
    if (BACK) {
        in.y = load_quad<T, ALIGNED>((const T *)c.y + row, rows - p.quad_row);
        in.dout = load_quad<T, ALIGNED>((const T *)c.dout + row, rows - p.quad_row);
    }
    return in;
}

template <typename T>
static __device__ __forceinline__ four<float> widened(const vec<T, 4> &v)
{
    T x[4];
    four<float> f;
    memcpy(x, &v, sizeof x);
    for (int j = 0; j < 4; j++)
        f.x[j] = load(x + j);
    return f;
}

/* Stores a loaded batch to shared memory, as steps `from` and following. */
template <typename T, int OCTETS, bool BACK>
static __device__ __forceinline__ void store_batch(const incoming<T> &in, const layout &l,
                                                   const work_coord &p, int from, int steps,
                                                   const stage_ptrs &to)
{
    const int at = (from + p.step) * l.rows + p.quad_row;

    store_key<T, OCTETS>(to, p.octet, (from + p.key) * l.width, p.key < steps, in.k, in.q, in.z);
    if (p.step >= steps || p.quad_row >= l.rows)
        return;
    *(four<float> *)(to.v + at) = widened(in.v);
    if (l.c.z_outside)
        *(four<float> *)(to.z + at) = widened(in.gate);
    if (BACK) {
        const four<float> y = widened(in.y);
        four<float> dy = widened(in.dout);
        for (int j = 0; j < 4; j++)
            dy.x[j] = gate_backward(dy.x[j], y.x[j], sigmoid(y.x[j]));
        *(four<float> *)(to.dy + at) = dy;
    }
}

/* Loads a batch of the steps from ... to - 1, which are counted from step t. */
template <typename T, int OCTETS, bool BACK, bool ALIGNED>
static __device__ __forceinline__ incoming<T> load_batch(const layout &l, const work_coord &p,
                                                         int64_t t, int from, int to)
{
    return load_batch<T, OCTETS, BACK, ALIGNED>(l, p, t + from, min(l.batch, to - from));
}

/* Loads steps from ... to - 1, which are counted from step t, into a stage. */
template <typename T, int OCTETS, bool BACK, bool ALIGNED>
static __device__ __forceinline__ void fill_stage(const layout &l, const work_coord &p, int64_t t,
                                                  int from, int to, const stage_ptrs &s)
{
    for (; from < to; from += l.batch) {
        const int steps = min(l.batch, to - from);
        store_batch<T, OCTETS, BACK>(load_batch<T, OCTETS, BACK, ALIGNED>(l, p, t + from, steps), l,
                                     p, from, steps, s);
    }
}

/* Stores a producer's four elements of step t to a tensor [T,BH,N]. */
template <typename T>
static __device__ __forceinline__ void store_elements(const layout &l, const work_coord &p,
                                                      void *to, int64_t t,
                                                      const four<float> &elements)
{
    T *const at = (T *)to + (t * l.c.BH + p.bh) * l.c.N + p.first + p.quad_row;
    four<T> f;
    for (int j = 0; j < 4; j++)
        store(&f.x[j], elements.x[j]);
    if (l.c.columns % 4 == 0)
        *(four<T> *)at = f;
    else
        for (int j = 0; j < 4 && p.quad_row + j < p.rows; j++)
            at[j] = f.x[j];
}

/* ---- one step ---- */

/* A thread's columns of a row: octets lane, lane + LANES, ..., so that sums over a row have
 * the same bits for every PER_LANE. */
template <int PER_LANE>
struct strip {
    float8 of[PER_LANE];
};

template <int LANES, int PER_LANE>
static __device__ __forceinline__ strip<PER_LANE> load_strip_shared(const float *row, int lane)
{
    strip<PER_LANE> s;
    for (int i = 0; i < PER_LANE; i++)
        s.of[i] = load_columns<LANES * PER_LANE>(row, lane + i * LANES);
    return s;
}

template <int PER_LANE>
static __device__ __forceinline__ float dot(const strip<PER_LANE> &a, const strip<PER_LANE> &b)
{
    float sum = dot(a.of[0], b.of[0]);
    for (int i = 1; i < PER_LANE; i++)
        sum += dot(a.of[i], b.of[i]);
    return sum;
}

/* The operands of a step of a row, loaded from shared memory one step ahead, off the
 * critical path. */
template <int PER_LANE>
struct operands {
    strip<PER_LANE> write, read;
    float v, z;
};

/* The addresses of the next step's operands. */
struct operand_ptrs {
    const float *write, *read, *v, *z;
};

static __device__ __forceinline__ operand_ptrs operand_ptrs_of(const layout &l, const work_coord &p,
                                                               const stage_ptrs &s, int step)
{
    const int key = step * l.width, row = step * l.rows + p.row;
    return {s.khat + key, s.u + key, s.v + row, s.z + row};
}

/* INSIDE: z modulates the inner side, so that u is not k^. */
template <int LANES, int PER_LANE, bool INSIDE>
static __device__ __forceinline__ operands<PER_LANE>
load_operands(operand_ptrs *at, const layout &l, const work_coord &p)
{
    operands<PER_LANE> m;
    m.write = load_strip_shared<LANES, PER_LANE>(at->write, p.lane);
    m.read = INSIDE ? load_strip_shared<LANES, PER_LANE>(at->read, p.lane) : m.write;
    m.v = *at->v;
    m.z = l.c.z_outside ? *at->z : 1;
    at->read += l.width;
    at->write += l.width;
    at->v += l.rows;
    at->z += l.rows;
    return m;
}

/* S <- f(S + delta k^T) given reads = S u; returns delta = v - z reads. */
template <typename T, int PER_LANE>
static __device__ __forceinline__ float advance(strip<PER_LANE> &S, const operands<PER_LANE> &m,
                                                float reads, bool tanh)
{
    const float delta = fmaf(-m.z, reads, m.v);
    for (int i = 0; i < PER_LANE; i++)
        for (int j = 0; j < OCTET; j++)
            S.of[i].x[j] = fmaf(delta, m.write.of[i].x[j], S.of[i].x[j]);
    if (tanh)
        for (int i = 0; i < PER_LANE; i++)
            for (int j = 0; j < OCTET; j++)
                S.of[i].x[j] = tanh_for<T>(S.of[i].x[j]);
    return delta;
}

/* ---- states in global memory ---- */

template <int LANES, int PER_LANE>
static __device__ strip<PER_LANE> load_strip(const float *row, int columns, int lane)
{
    strip<PER_LANE> s;
    for (int i = 0; i < PER_LANE; i++)
        s.of[i] = load_floats<LANES * PER_LANE>(row, columns, lane + i * LANES);
    return s;
}

template <int LANES, int PER_LANE>
static __device__ void store_strip(float *row, int columns, int lane, const strip<PER_LANE> &s)
{
    for (int i = 0; i < PER_LANE; i++)
        store_columns<float, LANES * PER_LANE>(row, columns, lane + i * LANES, s.of[i]);
}

/* The thread's j-th column. */
template <int LANES, int PER_LANE>
static __device__ int column_of(int lane, int j)
{
    return quad_offset<LANES * PER_LANE>(j % OCTET / 4, lane + j / OCTET * LANES) + j % 4;
}

template <int LANES, int PER_LANE>
static __device__ strip<PER_LANE> load_checkpoint(const cell_call &c, const work_coord &p,
                                                  int64_t segment)
{
    const int columns = p.any ? c.columns : 0;
    if (c.kept == KEPT_F32)
        return load_strip<LANES, PER_LANE>(
            (const float *)c.checkpoints + segment * c.BH * c.M + p.element, columns, p.lane);
    strip<PER_LANE> S = {};
    for (int j = 0; j < PER_LANE * OCTET; j++) {
        const int column = column_of<LANES, PER_LANE>(p.lane, j);
        if (column < columns)
            S.of[j / OCTET].x[j % OCTET] = get_kept(c, segment * c.BH, p.element + column);
    }
    return S;
}

/* ---- subsegments, backward ---- */

/* The first step of a subsegment, relative to its segment. */
static __host__ __device__ __forceinline__ int begin_of(const layout &l, int sub)
{
    return sub * l.steps - (sub > l.long_subs ? sub - l.long_subs : 0);
}

/* The stored state before subsegment `sub` of a segment, from 1 on. */
static inline __device__ float *sub_state(const layout &l, int64_t segment, int sub)
{
    return l.sub_states + (segment * (l.subs - 1) + sub - 1) * l.c.BH * l.c.M;
}

/* ---- launches ---- */

static inline int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* The shape of a block. */
struct shape {
    int roles, role_threads, producer_threads; /* maxima; 0 producer_threads: as role_threads */
    int per_lane, rows;                        /* octets per row, and rows, per consumer */
};

/* The layout, without `steps`.  A group's parts have about equal size. */
static inline layout layout_of(const struct call *f, const shape &s)
{
    layout l = {};
    cell_call &c = l.c = cell_call_of(f);

    l.roles = s.roles;
    l.per_lane = s.per_lane;
    for (l.lanes = 1; OCTET * s.per_lane * l.lanes < c.columns; l.lanes *= 2)
        ;
    l.width = OCTET * s.per_lane * l.lanes;
    const int max_rows = s.role_threads / l.lanes * s.rows,
              warp = (int)ceil_div(32, l.lanes) * s.rows;
    const int unit = warp > 4 ? warp : 4;
    l.parts = (int)ceil_div(c.rows, max_rows);
    l.rows = (int)ceil_div(ceil_div(c.rows, l.parts), unit) * unit;
    l.role_threads = l.rows / s.rows * l.lanes;
    l.producer_threads = s.producer_threads ? s.producer_threads : l.role_threads;
    l.batch = min_int(
        min_int(l.producer_threads / (l.lanes * s.per_lane), l.producer_threads / (l.rows / 4)),
        CHUNK);
    l.vectors = c.z_inside ? 3 : 2;
    l.tied_v = f->choice[E74_PROJ] == E74_TIED_KVQ;
    return l;
}

static inline int64_t blocks_of(const layout &l)
{
    return l.c.BH * (l.c.N / l.c.rows) * l.parts;
}

/* The vectors of sums. */
enum { DKEY, DQ, DU };

/* Computes the gradients of the keys from their sums; in finish.cu. */
template <typename T>
int finish_keys(struct context *on, const layout &l);

/* Stores the states between the subsegments of each segment; `back` is the layout of the backward
 * pass.  In states.cu. */
template <typename T>
int store_sub_states(const struct call *f, const layout &back);

/* Launches the kernel of the backward pass for rows of LONG lanes and more; in back_long.cu. */
template <typename T>
int launch_back_long(struct context *on, const layout &l);

/* The backward pass, its workspace, and does it fit into shared memory?  In
 * back.cu. */
template <typename T>
int backward_pass(const struct call *f);
size_t backward_work(const struct call *f);
bool backward_fits(const struct call *f);

} /* namespace e74_rows */

#endif
