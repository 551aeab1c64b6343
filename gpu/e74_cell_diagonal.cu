/* e74_cell, kernel `diagonal`: a diagonal state's elements meet only in the
 * norm of k.  With u = z k^ (or k^) and w = z u (or u), a step of an element is
 *
 *     S <- f(a S + b),   a = 1 - w k^,   b = v k^
 *
 * so that what must wait for the step before is one fma and one f, and all
 * else is done for many steps at once.  A block has 64 columns: of several
 * (sequence, head)s where n is small, a part of one's where it is large.
 *
 * Forward, 64 carriers, a column each, walk over (a, b) pairs in shared memory
 * and leave their states there.  256 helpers, eight columns of a step each,
 * prepare the pairs a chunk of steps ahead, with the loads for the chunk after
 * that on their way, and turn states into outputs a chunk behind.  Bound by
 * the chain where there are few blocks (tanh: some 22 cycles a step), by memory
 * where there are many.
 *
 * Backward, the gradient G of the state is a linear recurrence,
 *
 *     G <- m G + e,   m = a f',   e = m dy q
 *
 * whose chain is one fma a step.  Time is cut into pieces of 32 steps which are
 * done side by side by the blocks of a cluster, each of which keeps its piece on
 * chip: it replays it from a checkpoint, forms (m, e), waits for G from the
 * block of the piece after its own, walks back, hands G on, and makes of it
 * the gradients of the keys.  Clusters take several turns where there are more
 * pieces.  G goes from step to step, so that no result depends on how time is
 * cut.  Bound by latency (replay: 32 steps of forward's chain; handing over: a
 * barrier of the cluster a piece) or, where there are many blocks, by memory.
 *
 * Two small launches more, where needed.  Before: a piece that does not begin
 * at a checkpoint needs its first state, noted by forward's kernel in a walk
 * over all segments at once.  After: where the columns of a key are in several
 * blocks, the gradient of its norm. */
#include "gpu/columns.cuh"
#include "gpu/e74_cell.cuh"
#include "gpu/ptx.cuh"
#include "gpu/tanh.cuh"

#ifdef __CUDACC__
#include <cooperative_groups.h>
#endif

enum {
    STEPS = 32,               /* of a chunk, and of a piece */
    WIDTH = 64,               /* columns of a block */
    OCTETS = WIDTH / COLUMNS, /* runs of eight columns, a thread's */
    ITEMS = STEPS * OCTETS,
    AHEAD = 4,     /* chunks whose keys are sent for */
    BATCH = 4,     /* steps whose pairs a carrier has in registers, */
    BACK = 8,      /* and on the way back */
    CLUSTER = 8,   /* blocks, at most */
    ENOUGH = 528,  /* blocks that fill a large chip */
    FINISHERS = 8, /* warps of a block */
};

/* ---- how a call is laid out over blocks ---- */

struct layout {
    call c;
    int lanes, groups; /* octets of a (sequence, head) within a block; how many of those */
    int parts;         /* blocks of a (sequence, head) */
    bool whole;        /* octets are neither cut nor unaligned */
    int cluster;       /* backward: blocks that share the pieces */
    int64_t pieces;
    bool noting;    /* forward's kernel, over all segments at once, notes states only */
    float *begins;  /* [pieces][BH*N]: a piece's first state where it is no checkpoint */
    float *dkhat;   /* [T*BH*N] where the norm's gradient has to wait for all parts */
    float *further; /* and with it dk's share of dq and dv, where they are tied */
};

/* Eight columns of a (sequence, head); where they are `columns` fewer. */
struct item {
    int step, octet;
    int columns;
    int column;
    int64_t bh, element; /* bh * N + column */
};

static __device__ item item_of(const layout &l, int64_t set, int part, int self)
{
    item it;
    it.step = self / OCTETS;
    it.octet = self % OCTETS;
    it.bh = set * l.groups + it.octet / l.lanes;
    it.column = part * WIDTH + it.octet % l.lanes * COLUMNS;
    it.element = it.bh * l.c.N + it.column;
    it.columns = it.bh < l.c.BH ? max(0, min((int)COLUMNS, l.c.N - it.column)) : 0;
    return it;
}

/* A carrier's column.  Within a step of shared memory, the i-th pair of
 * columns of octet o has place 8 i + o, so that neither those who have octets
 * nor carriers, who have a place each, meet in a bank. */
struct column {
    bool any;
    int e; /* which of N */
    int64_t bh;
};

static __device__ column column_of(const layout &l, int64_t set, int part, int place)
{
    const int octet = place / 2 % OCTETS, within = place / (2 * OCTETS) * 2 + place % 2;
    column c;
    c.bh = set * l.groups + octet / l.lanes;
    c.e = part * WIDTH + octet % l.lanes * COLUMNS + within;
    c.any = c.bh < l.c.BH && c.e < l.c.N;
    return c;
}

/* ---- eight columns in memory ---- */

/* As they are stored; nobody looks at them before they are needed, so that
 * they can be on their way for as long as it takes. */
template <typename T>
struct alignas(16) octet {
    unsigned w[2 * sizeof(T)];
};

template <typename T>
static __device__ __forceinline__ octet<T> load_octet(const T *from, int columns, bool whole)
{
    octet<T> o = {};
    if (!whole) {
        T x[COLUMNS];
        for (int j = 0; j < COLUMNS; j++) {
            store(x + j, 0.0f);
            if (j < columns)
                x[j] = from[j];
        }
        memcpy(&o, x, sizeof o);
    } else if (columns) {
        o = *(const octet<T> *)from;
    }
    return o;
}

template <typename T>
static __device__ __forceinline__ void store_octet(T *to, int columns, bool whole, const eight &e)
{
    octet<T> o;
    T x[COLUMNS];
    for (int j = 0; j < COLUMNS; j++)
        store(x + j, e.x[j]);
    if (whole && columns) {
        memcpy(&o, x, sizeof o);
        *(octet<T> *)to = o;
    } else {
        for (int j = 0; j < COLUMNS; j++)
            if (j < columns)
                to[j] = x[j];
    }
}

static __device__ __forceinline__ eight widened(const octet<float> &o)
{
    eight e;
    for (int j = 0; j < COLUMNS; j++)
        e.x[j] = __uint_as_float(o.w[j]);
    return e;
}

/* A bf16 is the upper half of a float. */
static __device__ __forceinline__ eight widened(const octet<__nv_bfloat16> &o)
{
    eight e;
    for (int j = 0; j < COLUMNS; j += 2) {
        e.x[j] = __uint_as_float(o.w[j / 2] << 16);
        e.x[j + 1] = __uint_as_float(o.w[j / 2] & 0xffff0000);
    }
    return e;
}

/* Of a step's states in shared memory. */
static __device__ __forceinline__ eight take_octet(const float *step, int octet)
{
    eight e;
    for (int i = 0; i < COLUMNS / 2; i++) {
        const float2 x = ((const float2 *)step)[i * OCTETS + octet];
        e.x[2 * i] = x.x;
        e.x[2 * i + 1] = x.y;
    }
    return e;
}

/* Of a step's pairs. */
static __device__ __forceinline__ void leave_pairs(float2 *step, int octet, const eight &a,
                                                   const eight &b)
{
    for (int i = 0; i < COLUMNS / 2; i++)
        ((float4 *)step)[i * OCTETS + octet] =
            make_float4(a.x[2 * i], b.x[2 * i], a.x[2 * i + 1], b.x[2 * i + 1]);
}

static __device__ __forceinline__ eight take_firsts(const float2 *step, int octet)
{
    eight a;
    for (int i = 0; i < COLUMNS / 2; i++) {
        const float4 x = ((const float4 *)step)[i * OCTETS + octet];
        a.x[2 * i] = x.x;
        a.x[2 * i + 1] = x.z;
    }
    return a;
}

/* ---- what a step's keys make ---- */

template <typename T>
struct keys {
    octet<T> k, v, z;
};

/* Element at + column of a tensor; columns: 0 for a step that is not there. */
template <typename T>
static __device__ __forceinline__ keys<T> load_keys(const layout &l, int64_t at, int columns)
{
    keys<T> in;
    in.k = load_octet((const T *)l.c.k + at, columns, l.whole);
    in.v = load_octet((const T *)l.c.v + at, columns, l.whole);
    in.z = {};
    if (l.c.z)
        in.z = load_octet((const T *)l.c.z + at, columns, l.whole);
    return in;
}

/* Send for a step's keys to where they are near. */
template <typename T>
static __device__ __forceinline__ void prefetch_keys(const layout &l, const item &it, int64_t at)
{
    if (it.columns == 0)
        return;
    prefetch((const T *)l.c.k + at);
    prefetch((const T *)l.c.v + at);
    if (l.c.z)
        prefetch((const T *)l.c.z + at);
    if (!l.noting)
        prefetch((const T *)l.c.q + at);
}

/* The sum over the lanes that have a (sequence, head)'s octets, in all of
 * them.  Called by whole warps. */
static __device__ __forceinline__ float octets_sum(const layout &l, float x)
{
    for (int d = OCTETS / 2; d; d /= 2)
        if (d < l.lanes)
            x += __shfl_xor_sync(0xffffffff, x, d);
    return x;
}

/* |k|^2, for which every part of it goes over all of the key. */
template <typename T>
static __device__ __forceinline__ float squares_of(const layout &l, const item &it, int64_t at,
                                                   bool any, const eight &key)
{
    float sum = 0;
    if (l.parts == 1)
        return octets_sum(l, dot(key, key));
    const T *row = (const T *)l.c.k + at - it.column;
    UNROLL(4)
    for (int from = it.octet * COLUMNS; any && from < l.c.N; from += WIDTH) {
        const int columns = min((int)COLUMNS, l.c.N - from);
        const eight some = widened(load_octet(row + from, columns, l.whole));
        sum += dot(some, some);
    }
    return octets_sum(l, sum);
}

/* k^, u and w of column j. */
struct key {
    float khat, u, w;
};

static __device__ __forceinline__ key key_of(const layout &l, float k, float scale, float z)
{
    key x;
    x.khat = k * scale;
    x.u = l.c.z_inside ? z * x.khat : x.khat;
    x.w = l.c.z_outside ? z * x.u : x.u;
    return x;
}

static __device__ __forceinline__ float scale_of(float length)
{
    return reciprocal(length + (float)E74_EPSILON);
}

/* The pairs of one step. */
template <typename T>
static __device__ __forceinline__ void prepare(const layout &l, const item &it, float2 *step,
                                               const keys<T> &in, float length)
{
    const eight k = widened(in.k), v = widened(in.v), z = widened(in.z);
    const float scale = scale_of(length);
    eight a, b;
    for (int j = 0; j < COLUMNS; j++) {
        const key x = key_of(l, k.x[j], scale, z.x[j]);
        a.x[j] = fmaf(-x.w, x.khat, 1.0f);
        b.x[j] = v.x[j] * x.khat;
    }
    leave_pairs(step, it.octet, a, b);
}

template <typename T, int NONLIN>
static __device__ __forceinline__ float step(float2 pair, float S)
{
    const float P = fmaf(pair.x, S, pair.y);
    return NONLIN == E74_TANH ? bent<T>(P) : P;
}

/* A carrier's steps from ... to - 1, its states into `states`; both pointers
 * are to its place of step 0.  The pairs are taken a batch ahead: neither the
 * load's time nor the store's is then on the chain. */
template <typename T, int NONLIN>
static __device__ __forceinline__ float walk(const float2 *pairs, float *states, int from, int to,
                                             float S)
{
    float2 now[BATCH], then[BATCH];
    for (int i = 0; i < BATCH; i++)
        now[i] = pairs[(min(from, STEPS - BATCH) + i) * WIDTH];
    for (; from + BATCH <= to; from += BATCH) {
        const int next = min(from + BATCH, STEPS - BATCH);
        for (int i = 0; i < BATCH; i++)
            then[i] = pairs[(next + i) * WIDTH];
        for (int i = 0; i < BATCH; i++)
            states[(from + i) * WIDTH] = S = step<T, NONLIN>(now[i], S);
        for (int i = 0; i < BATCH; i++)
            now[i] = then[i];
    }
    for (; from < to; from++)
        states[from * WIDTH] = S = step<T, NONLIN>(pairs[from * WIDTH], S);
    return S;
}

static __device__ __forceinline__ float gate_of(float y)
{
    return reciprocal(1 + exp2_approx(-1.442695041f * y));
}

/* ---- forward ---- */

/* After a step: y and out; and the state, where the next step begins a
 * segment, or where a piece's first state is being noted. */
template <typename T>
static __device__ __forceinline__ void put_step(const layout &l, const item &it, int64_t t,
                                                bool due, const float *step, const octet<T> &query)
{
    const call &c = l.c;
    const eight S = take_octet(step, it.octet);
    if (due && l.noting) {
        float *to = l.begins + (t + 1) / STEPS * c.BH * c.N + it.element;
        store_octet(to, it.columns, l.whole, S);
    }
    if (l.noting)
        return;
    for (int j = 0; due && j < COLUMNS; j++)
        if (j < it.columns)
            put_kept(c, (t + 1) / c.K * c.BH + it.bh, it.column + j, S.x[j]);
    const eight q = widened(query);
    eight y, out;
    for (int j = 0; j < COLUMNS; j++) {
        y.x[j] = S.x[j] * q.x[j];
        out.x[j] = y.x[j] * y.x[j] * gate_of(y.x[j]);
    }
    const int64_t at = t * c.BH * c.N + it.element;
    store_octet((T *)c.y + at, it.columns, l.whole, y);
    store_octet((T *)c.out + at, it.columns, l.whole, out);
}

/* The steps that a block of forward's kernel walks. */
struct stretch {
    int64_t begin, end;
};

/* To note states: from a segment's checkpoint to the last piece that begins
 * within the segment. */
static __device__ stretch stretch_of(const layout &l, int64_t segment)
{
    const int64_t begin = segment * l.c.K, last = min(begin + l.c.K, l.c.T) - 1;
    return l.noting ? stretch{begin, last / STEPS * STEPS} : stretch{0, l.c.T};
}

/* What a helper has on its way from one chunk to the next, and where it is. */
template <typename T>
struct helper {
    item it;
    int64_t t, at; /* its step of the chunk to prepare, and the element there */
    int64_t left;  /* from its step of the chunk before last, to the next state due */
    keys<T> in;
    octet<T> query;
};

/* Between the barriers in which carriers walk chunk n: chunk n - 1 is put, and
 * chunk n + 1 prepared. */
template <typename T>
static __device__ __forceinline__ void help(const layout &l, helper<T> *h, int64_t end, bool behind,
                                            const float *states, bool ahead, float2 *pairs)
{
    const int64_t chunk = STEPS * l.c.BH * l.c.N, each = l.noting ? (int64_t)STEPS : l.c.K;
    const int offset = h->it.step * WIDTH;

    if (behind) {
        const int64_t t = h->t - 2 * STEPS;
        for (h->left -= STEPS; h->left < 0;)
            h->left += each;
        if (t < end)
            put_step(l, h->it, t, h->left == 0 && t + 1 < l.c.T, states + offset, h->query);
    }
    if (!l.noting && h->t >= STEPS)
        h->query = load_octet((const T *)l.c.q + h->at - chunk,
                              h->t - STEPS < end ? h->it.columns : 0, l.whole);
    if (ahead) {
        const float length = sqrtf(squares_of<T>(l, h->it, h->at, h->t < end, widened(h->in.k)));
        prepare(l, h->it, pairs + offset, h->in, length);
        h->in = load_keys<T>(l, h->at + chunk, h->t + STEPS < end ? h->it.columns : 0);
        if (h->t + AHEAD * STEPS < end)
            prefetch_keys<T>(l, h->it, h->at + AHEAD * chunk);
    }
    h->t += STEPS;
    h->at += chunk;
}

/* What a carrier begins with, which is the first checkpoint. */
static __device__ float first_of(const layout &l, const column &mine, int64_t segment)
{
    const call &c = l.c;
    if (!mine.any)
        return 0;
    if (l.noting)
        return get_kept(c, segment * c.BH + mine.bh, mine.e);
    const float S = c.first[mine.bh * c.N + mine.e];
    put_kept(c, mine.bh, mine.e, S);
    return S;
}

template <typename T>
static __device__ helper<T> helper_of(const layout &l, int64_t set, int part, stretch s)
{
    const int64_t each = l.noting ? (int64_t)STEPS : l.c.K;
    helper<T> h;
    h.it = item_of(l, set, part, (int)threadIdx.x - WIDTH);
    h.t = s.begin + h.it.step;
    h.at = h.t * l.c.BH * l.c.N + h.it.element;
    h.left = each - 1 - h.t % each + STEPS;
    h.in = load_keys<T>(l, h.at, h.t < s.end ? h.it.columns : 0);
    for (int n = 1; n < AHEAD && h.t + n * STEPS < s.end; n++)
        prefetch_keys<T>(l, h.it, h.at + n * STEPS * l.c.BH * l.c.N);
    h.query = {};
    return h;
}

template <typename T, int NONLIN>
__global__ void __launch_bounds__(WIDTH + ITEMS, sizeof(T) == 2 ? 3 : 2) forward_diagonal(layout l)
{
    __shared__ __align__(16) float2 pairs[2][STEPS * WIDTH];
    __shared__ __align__(16) float states[2][STEPS * WIDTH];
    const call &c = l.c;
    const int64_t sets = ceil_div(c.BH, l.groups), block = blockIdx.x / l.parts;
    const int64_t set = block % sets, segment = block / sets;
    const int part = (int)(blockIdx.x % l.parts), place = (int)threadIdx.x;
    const stretch s = stretch_of(l, segment);
    const int chunks = (int)ceil_div(s.end - s.begin, STEPS);

    if (s.end <= s.begin)
        return;
    /* Chunk n is walked between two barriers, and so are chunks n - 1 and n + 1 helped. */
    if (place < WIDTH) {
        const column mine = column_of(l, set, part, place);
        float S = first_of(l, mine, segment);
        for (int n = 0; n < chunks; n++) {
            const int64_t steps = s.end - s.begin - (int64_t)n * STEPS;
            block_barrier();
            S = walk<T, NONLIN>(pairs[n % 2] + place, states[n % 2] + place, 0,
                                (int)min((int64_t)STEPS, steps), S);
        }
        block_barrier();
        if (mine.any && !l.noting)
            c.last[mine.bh * c.N + mine.e] = S;
    } else {
        helper<T> h = helper_of<T>(l, set, part, s);
        for (int n = -1; n <= chunks; n++) {
            help<T>(l, &h, s.end, n > 0, states[(n + 1) % 2], n + 1 < chunks, pairs[(n + 1) % 2]);
            if (n < chunks)
                block_barrier();
        }
    }
}

/* ---- backward ---- */

/* A carrier's state before step t of its piece: a checkpoint, or noted. */
static __device__ float begin_of(const layout &l, const column &mine, int64_t piece, int64_t t)
{
    const call &c = l.c;
    if (!mine.any)
        return 0;
    return t % c.K ? l.begins[piece * c.BH * c.N + mine.bh * c.N + mine.e]
                   : get_kept(c, t / c.K * c.BH + mine.bh, mine.e);
}

/* A carrier's states of a piece, from that before its first step on; a
 * checkpoint stored in fewer bits than the state begins anew. */
template <typename T, int NONLIN>
static __device__ __forceinline__ void replay(const layout &l, const column &mine, int64_t piece,
                                              int steps, const float2 *pairs, float *states)
{
    const call &c = l.c;
    const int64_t begin = piece * STEPS;
    float S = begin_of(l, mine, piece, begin);
    states[0] = S;
    for (int from = 0, to; from < steps; from = to) {
        to = steps;
        if (c.kept != KEPT_F32) {
            if (from > 0 && mine.any)
                S = get_kept(c, (begin + from) / c.K * c.BH + mine.bh, mine.e);
            to = (int)min((int64_t)steps, from + c.K - (begin + from) % c.K);
        }
        S = walk<T, NONLIN>(pairs, states + WIDTH, from, to, S);
    }
}

/* The states before a step, as backward's formulas mean them. */
static __device__ __forceinline__ eight before(const layout &l, const item &it, int64_t t,
                                               const float *step)
{
    eight S = take_octet(step, it.octet);
    if (l.c.kept != KEPT_F32 && t % l.c.K == 0)
        for (int j = 0; j < COLUMNS; j++)
            if (j < it.columns)
                S.x[j] = get_kept(l.c, t / l.c.K * l.c.BH + it.bh, it.column + j);
    return S;
}

template <int NONLIN>
static __device__ __forceinline__ float slope(float after)
{
    return NONLIN == E74_TANH ? fmaf(-after, after, 1.0f) : 1;
}

/* A step's (a, b) to its (m, e). */
template <int NONLIN>
static __device__ __forceinline__ void to_gradients(float2 *pairs, const float *states, int octet,
                                                    const eight &dy, const eight &q)
{
    const eight a = take_firsts(pairs, octet), after = take_octet(states, octet);
    eight m, e;
    for (int j = 0; j < COLUMNS; j++) {
        m.x[j] = a.x[j] * slope<NONLIN>(after.x[j]);
        e.x[j] = m.x[j] * (dy.x[j] * q.x[j]);
    }
    leave_pairs(pairs, octet, m, e);
}

/* A carrier back through a piece; what reaches each step from those after it
 * is left, and what reaches the step before the piece returned. */
static __device__ __forceinline__ float retreat(const float2 *pairs, float *left, int steps,
                                                float G)
{
    float2 now[BACK], then[BACK];
    int from = (steps - 1) / BACK * BACK;
    for (int i = 0; i < BACK; i++)
        now[i] = pairs[(from + i) * WIDTH];
    for (; from >= 0; from -= BACK) {
        for (int i = 0; i < BACK; i++)
            then[i] = pairs[(max(from - BACK, 0) + i) * WIDTH];
        for (int i = BACK - 1; i >= 0; i--)
            if (from + i < steps) {
                left[(from + i) * WIDTH] = G;
                G = fmaf(now[i].x, G, now[i].y);
            }
        for (int i = 0; i < BACK; i++)
            now[i] = then[i];
    }
    return G;
}

/* dL/dy from y and the gradient of out. */
template <typename T>
static __device__ __forceinline__ eight through_gate(const octet<T> &y, const octet<T> &dout)
{
    const eight x = widened(y);
    eight d = widened(dout);
    for (int j = 0; j < COLUMNS; j++) {
        const float gate = gate_of(x.x[j]);
        d.x[j] *= x.x[j] * gate * (2 + x.x[j] * (1 - gate));
    }
    return d;
}

/* The gradients of one step's k, v, q, z, given the states from the one before
 * it on, and G as the steps after it leave it. */
template <typename T, int NONLIN>
static __device__ __forceinline__ void
put_gradients(const layout &l, const item &it, int64_t t, bool any, const keys<T> &in,
              const octet<T> &query, const eight &dy, float length, const float *states,
              const float *left)
{
    const call &c = l.c;
    const int columns = any ? it.columns : 0;
    const int64_t at = t * c.BH * c.N + it.element;
    const eight k = widened(in.k), v = widened(in.v), z = widened(in.z), q = widened(query);
    eight S = {}, after = {}, G = {};
    if (any) {
        S = before(l, it, t, states);
        after = take_octet(states + WIDTH, it.octet);
        G = take_octet(left, it.octet);
    }
    const float scale = scale_of(length);
    eight dk, dv, dq, dz, further;
    for (int j = 0; j < COLUMNS; j++) {
        const key x = key_of(l, k.x[j], scale, z.x[j]);
        const float dP = slope<NONLIN>(after.x[j]) * fmaf(dy.x[j], q.x[j], G.x[j]);
        const float reads = S.x[j] * x.u, delta = fmaf(-x.w, S.x[j], v.x[j]);
        dv.x[j] = dP * x.khat;
        dq.x[j] = after.x[j] * dy.x[j];
        const float du = -dv.x[j] * (c.z_outside ? z.x[j] : 1) * S.x[j];
        dz.x[j] = c.z_outside ? -dv.x[j] * reads : 0;
        if (c.z_inside)
            dz.x[j] = fmaf(du, x.khat, dz.x[j]);
        dk.x[j] = fmaf(delta, dP, c.z_inside ? du * z.x[j] : du);
        further.x[j] = (c.dq ? 0 : dq.x[j]) + (c.dv ? 0 : dv.x[j]);
    }
    if (c.dv)
        store_octet((T *)c.dv + at, columns, l.whole, dv);
    if (c.dq)
        store_octet((T *)c.dq + at, columns, l.whole, dq);
    if (c.dz)
        store_octet((T *)c.dz + at, columns, l.whole, dz);
    if (l.dkhat) {
        store_octet(l.dkhat + at, columns, l.whole, dk);
        if (l.further)
            store_octet(l.further + at, columns, l.whole, further);
        return;
    }
    float along = octets_sum(l, dot(k, dk));
    along = length > 0 ? along * scale * scale / length : 0;
    for (int j = 0; j < COLUMNS; j++)
        dk.x[j] = fmaf(-along, k.x[j], dk.x[j] * scale) + further.x[j];
    store_octet((T *)c.dk + at, columns, l.whole, dk);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
/* Before capability 9.0 there are no clusters: layout_of() makes them of one block. */
struct lone_block {
    __device__ void sync(void) const {}
    __device__ float *map_shared_rank(float *p, int) const { return p; }
};
static __device__ lone_block my_cluster(void)
{
    return {};
}
#else
static __device__ cooperative_groups::cluster_group my_cluster(void)
{
    return cooperative_groups::this_cluster();
}
#endif

/* All turns of a block; its cluster's blocks have the last piece, the one
 * before, and so on. */
template <typename T, int NONLIN>
__global__ void __launch_bounds__(ITEMS, sizeof(T) == 2 ? 3 : 2) backward_diagonal(layout l)
{
    __shared__ __align__(16) float2 pairs[STEPS * WIDTH];
    __shared__ __align__(16) float states[(1 + STEPS) * WIDTH];
    __shared__ __align__(16) float left[STEPS * WIDTH];
    __shared__ float reached[WIDTH];
    const auto cluster = my_cluster();
    const call &c = l.c;
    const int rank = (int)(blockIdx.x % l.cluster), part = (int)(blockIdx.x / l.cluster % l.parts);
    const int64_t set = blockIdx.x / l.cluster / l.parts, row = c.BH * c.N;
    const item it = item_of(l, set, part, threadIdx.x);
    const int place = (int)threadIdx.x;
    const bool carries = place < WIDTH;
    const column mine = column_of(l, set, part, place % WIDTH);
    float G = carries && mine.any ? c.dlast[mine.bh * c.N + mine.e] : 0;

    for (int64_t last = l.pieces - 1; last >= 0; last -= l.cluster) {
        const int64_t piece = last - rank, t = piece * STEPS + it.step;
        const int steps = piece < 0 ? 0 : (int)min((int64_t)STEPS, c.T - piece * STEPS);
        const bool any = it.step < steps;
        const int columns = any ? it.columns : 0;
        const int64_t at = t * row + it.element;
        float2 *const own = pairs + it.step * WIDTH;

        const keys<T> in = load_keys<T>(l, at, columns);
        const octet<T> query = load_octet((const T *)c.q + at, columns, l.whole);
        const octet<T> y = load_octet((const T *)c.y + at, columns, l.whole);
        const octet<T> dout = load_octet((const T *)c.dout + at, columns, l.whole);
        const float length = sqrtf(squares_of<T>(l, it, at, any, widened(in.k)));
        prepare(l, it, own, in, length);
        __syncthreads();

        if (carries && steps > 0)
            replay<T, NONLIN>(l, mine, piece, steps, pairs + place, states + place);
        const eight dy = through_gate(y, dout);
        __syncthreads();

        if (any)
            to_gradients<NONLIN>(own, states + (it.step + 1) * WIDTH, it.octet, dy, widened(query));
        __syncthreads();

        for (int r = 0; r < l.cluster && r <= last; r++) {
            if (carries && r == rank)
                reached[place] = G = retreat(pairs + place, left + place, steps, G);
            if (l.cluster == 1)
                continue;
            cluster.sync();
            if (carries)
                G = *cluster.map_shared_rank(&reached[place], r);
        }
        __syncthreads();

        put_gradients<T, NONLIN>(l, it, t, any, in, query, dy, length, states + it.step * WIDTH,
                                 left + it.step * WIDTH);
    }
    if (carries && mine.any && rank == 0)
        c.dfirst[mine.bh * c.N + mine.e] = G;
    if (l.cluster > 1)
        cluster.sync(); /* nobody leaves while others read what it has */
}

/* The gradient of k from that of k^, where its columns are in several blocks:
 * a warp for each (step, sequence, head). */
template <typename T>
__global__ void __launch_bounds__(32 * FINISHERS) finish_keys(layout l)
{
    const call &c = l.c;
    const int64_t item = (int64_t)blockIdx.x * FINISHERS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int64_t at = item * c.N;
    float squares = 0, along = 0;

    if (item >= c.T * c.BH)
        return;
    for (int i = lane; i < c.N; i += 32) {
        const float k = load((const T *)c.k + at + i);
        squares = fmaf(k, k, squares);
        along = fmaf(k, l.dkhat[at + i], along);
    }
    for (int d = 16; d; d /= 2) {
        squares += __shfl_xor_sync(0xffffffff, squares, d);
        along += __shfl_xor_sync(0xffffffff, along, d);
    }
    const float length = sqrtf(squares), scale = scale_of(length);
    along = length > 0 ? along * scale * scale / length : 0;
    for (int i = lane; i < c.N; i += 32) {
        const float k = load((const T *)c.k + at + i);
        const float further = l.further ? l.further[at + i] : 0;
        store((T *)c.dk + at + i, fmaf(-along, k, l.dkhat[at + i] * scale) + further);
    }
}

/* ---- launches ---- */

static int64_t blocks_of(const layout &l)
{
    return ceil_div(l.c.BH, l.groups) * l.parts;
}

/* Blocks of a cluster, as far as the device in use has clusters. */
static int cluster_most(void)
{
    static int most = 0;
    int number = 0;
    cudaDeviceProp p;

    if (most == 0 && cudaGetDevice(&number) == cudaSuccess &&
        cudaGetDeviceProperties(&p, number) == cudaSuccess)
        most = p.clusterLaunch ? CLUSTER : 1;
    return most ? most : 1;
}

static layout layout_of(const struct frame *f)
{
    layout l = {};
    const call &c = l.c = call_of(f);

    for (l.lanes = 1; l.lanes < OCTETS && COLUMNS * l.lanes < c.N; l.lanes *= 2)
        ;
    l.groups = OCTETS / l.lanes;
    l.parts = (int)ceil_div(c.N, WIDTH);
    l.whole = c.N % COLUMNS == 0;
    l.pieces = ceil_div(c.T, STEPS);
    for (l.cluster = 1; l.cluster < cluster_most() && 2 * l.cluster <= l.pieces &&
                        2 * l.cluster * blocks_of(l) <= ENOUGH;)
        l.cluster *= 2;
    return l;
}

/* The parts of backward's workspace; returns its floats. */
static int64_t divide(layout *l, const struct frame *f, float *work)
{
    const call &c = l->c;
    const int64_t all = c.T * c.BH * c.N;
    const int proj = f->choice[E74_PROJ];
    int64_t n = 0;

    if (l->parts > 1) {
        l->dkhat = work + n;
        n += all;
        if (proj == E74_TIED_KQ || proj == E74_TIED_KVQ) {
            l->further = work + n;
            n += all;
        }
    }
    if (STEPS % c.K && l->pieces > 1) {
        l->begins = work + n;
        n += l->pieces * c.BH * c.N;
    }
    return n;
}

template <typename T>
static cudaError_t walk_forward(const layout &l, int64_t blocks)
{
    const int threads = WIDTH + ITEMS;
    void (*const kernel)(layout) =
        l.c.nonlin == E74_TANH ? forward_diagonal<T, E74_TANH> : forward_diagonal<T, E74_LINEAR>;
    kernel<<<blocks, threads, 0, gpu_stream()>>>(l);
    return cudaGetLastError();
}

template <typename T>
static cudaError_t walk_backward(const layout &l)
{
    cudaLaunchAttribute size;
    cudaLaunchConfig_t config = {};
    size.id = cudaLaunchAttributeClusterDimension;
    size.val.clusterDim.x = l.cluster;
    size.val.clusterDim.y = size.val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)(blocks_of(l) * l.cluster));
    config.blockDim = dim3(ITEMS);
    config.stream = gpu_stream();
    config.attrs = &size;
    config.numAttrs = l.cluster > 1;
    return cudaLaunchKernelEx(&config,
                              l.c.nonlin == E74_TANH ? backward_diagonal<T, E74_TANH>
                                                     : backward_diagonal<T, E74_LINEAR>,
                              l);
}

template <typename T>
static int forward(const struct frame *f)
{
    const layout l = layout_of(f);
    return walk_forward<T>(l, blocks_of(l));
}

template <typename T>
static int backward(const struct frame *f)
{
    layout l = layout_of(f);
    const call &c = l.c;

    divide(&l, f, (float *)f->work);
    if (l.begins) {
        layout notes = l;
        notes.noting = true;
        CUDA(walk_forward<T>(notes, blocks_of(l) * ceil_div(c.T, c.K)));
    }
    CUDA(walk_backward<T>(l));
    if (l.parts > 1) {
        const int64_t blocks = ceil_div(c.T * c.BH, FINISHERS);
        finish_keys<T><<<blocks, 32 * FINISHERS, 0, gpu_stream()>>>(l);
        CUDA(cudaGetLastError());
    }
    return 0;
}

static size_t work(const struct frame *f, enum pass p)
{
    layout l = layout_of(f);
    return p == FORWARD ? 0 : sizeof(float) * divide(&l, f, NULL);
}

static const char *declines(const struct frame *f)
{
    const char *no = e74_plain32.declines(f);
    if (no)
        return no;
    if (f->choice[E74_STATE] != E74_DIAGONAL)
        return "only for state = diagonal";
    if (f->choice[E74_NONLIN] != E74_TANH && f->choice[E74_NONLIN] != E74_LINEAR)
        return "rmsnorm and frobnorm tie the columns of a state to each other";
    return NULL;
}

static const char name[] = "diagonal",
                  idea[] = "a column of the state a thread; backward, pieces of time side by side";

GPU_IMPL(extern "C", 32, float, e74_diagonal, name, idea, work, declines, "ex2.approx, rcp.approx",
         3e-7);
GPU_IMPL(extern "C", 16, __nv_bfloat16, e74_diagonal, name, idea, work, declines, "tanh.approx",
         5e-4);
