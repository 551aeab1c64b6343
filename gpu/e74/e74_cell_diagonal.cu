/* e74_cell, kernel `diagonal`: a diagonal state's elements meet only in the
 * norm of k.  With u = z k^ (or k^) and w = z u (or u), a step of an element is
 *
 *     S <- f(a S + b),   a = 1 - w k^,   b = v k^
 *
 * so that what must wait for the step before is one fma and one f, and all
 * else is done for many steps at once.  A block has 64 columns: of several
 * (sequence, head)s where n is small, a part of one's where it is large.
 *
 * Time is cut into pieces of 32 steps, which the blocks of a cluster have in
 * turn.  256 threads, eight columns of a step each, make of the keys the piece's
 * pairs (a, b) in shared memory; 64 of them, the carriers, a column each, wait
 * for their state from the block of the piece before, walk over the pairs, leave
 * the states behind and hand the last one on; then all turn states into outputs.
 * So nothing but the walk (tanh: some 22 cycles a step) and the handing on (a
 * store to the next block's shared memory, which waits for nobody) follow each
 * other.  The keys of a block's next turn are on their way while it walks.
 * Where there are many blocks, each has all pieces of its columns, and others
 * work while it waits: bound by memory.
 *
 * Backward, the gradient G of the state is a linear recurrence,
 *
 *     G <- m G + e,   m = a f',   e = m dy q
 *
 * whose chain is one fma a step.  The pieces are taken from the last to the
 * first, by turns as before: a block replays its piece from a checkpoint, which
 * waits for nobody, forms (m, e), waits for G, walks back, hands G on, and makes
 * of it the gradients of the keys.  State and G go from step to step, so that no
 * result depends on how time is cut.
 *
 * Two small launches more, where needed.  Before: a piece that does not begin
 * at a checkpoint needs its first state, noted by forward's kernel in a walk
 * over all segments at once.  After: where the columns of a key are in several
 * blocks, the gradient of its norm. */
#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/columns.cuh"
#include "gpu/device/flags.cuh"
#include "gpu/device/math.cuh"
#include "gpu/e74/e74_cell.cuh"

enum {
    STEPS = 32,               /* of a piece */
    WIDTH = 64,               /* columns of a block */
    OCTETS = WIDTH / COLUMNS, /* runs of eight columns, a thread's */
    ITEMS = STEPS * OCTETS,
    AHEAD = 4,     /* turns whose keys are sent for */
    BATCH = 4,     /* steps whose pairs a carrier has in registers, */
    BACK = 8,      /* and on the way back */
    ENOUGH = 528,  /* blocks that fill a large chip */
    FINISHERS = 8, /* warps of a block */
};

/* ---- how a call is laid out over blocks ---- */

struct layout {
    call c;
    int lanes, groups; /* octets of a (sequence, head) within a block; how many of those */
    int sets, parts;   /* such blocks; those of one (sequence, head) */
    int K;             /* as c.K, for quick divisions */
    bool whole;        /* octets are neither cut nor unaligned */
    int cluster;       /* blocks that have the pieces in turn, a power of two */
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
    int64_t element; /* among those of a step's or of a state */
};

static __device__ item item_of(const layout &l, int set, int part, int self)
{
    item it;
    it.step = self / OCTETS;
    it.octet = self % OCTETS;
    const int64_t bh = (int64_t)set * l.groups + div_pow2(it.octet, l.lanes);
    it.column = part * WIDTH + (it.octet & (l.lanes - 1)) * COLUMNS;
    it.element = bh * l.c.N + it.column;
    it.columns = bh < l.c.BH ? max(0, min((int)COLUMNS, l.c.N - it.column)) : 0;
    return it;
}

/* A carrier's column.  Within a step of shared memory, the i-th pair of
 * columns of octet o has place 8 i + o, so that neither those who have octets
 * nor carriers, who have a place each, meet in a bank. */
struct column {
    bool any;
    int64_t element;
};

static __device__ column column_of(const layout &l, int set, int part, int place)
{
    const int octet = place / 2 % OCTETS, within = place / (2 * OCTETS) * 2 + place % 2;
    const int64_t bh = (int64_t)set * l.groups + div_pow2(octet, l.lanes);
    const int e = part * WIDTH + (octet & (l.lanes - 1)) * COLUMNS + within;
    return {bh < l.c.BH && e < l.c.N, bh * l.c.N + e};
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
    prefetch_l2((const T *)l.c.k + at);
    prefetch_l2((const T *)l.c.v + at);
    if (l.c.z)
        prefetch_l2((const T *)l.c.z + at);
    if (!l.noting)
        prefetch_l2((const T *)l.c.q + at);
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
    #pragma unroll 4
    for (int from = it.octet * COLUMNS; any && from < l.c.N; from += WIDTH) {
        const T *some = (const T *)l.c.k + (at + (from - it.column));
        const eight x = widened(load_octet(some, min((int)COLUMNS, l.c.N - from), l.whole));
        sum += dot(x, x);
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
    return rcp_approx(length + (float)E74_EPSILON);
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
    return NONLIN == E74_TANH ? tanh_for<T>(P) : P;
}

/* Some successive steps' pairs of a carrier; pointers are to its place of step 0.
 * They are taken a batch ahead, the first before the carrier has what it begins
 * with, so that the load's time is never on the chain. */
template <int N>
struct batch {
    float2 of[N];
};

template <int N>
static __device__ __forceinline__ batch<N> take_batch(const float2 *pairs, int from)
{
    batch<N> b;
    for (int i = 0; i < N; i++)
        b.of[i] = pairs[(from + i) * WIDTH];
    return b;
}

/* A carrier's steps from ... to - 1, its states into `states`. */
template <typename T, int NONLIN>
static __device__ __forceinline__ float walk(const float2 *pairs, float *states, int from, int to,
                                             float S)
{
    #pragma unroll 1
    for (; from < to; from++)
        states[from * WIDTH] = S = step<T, NONLIN>(pairs[from * WIDTH], S);
    return S;
}

/* All of a piece, of whose pairs the first are there already. */
template <typename T, int NONLIN>
static __device__ __forceinline__ float walk_piece(batch<BATCH> now, const float2 *pairs,
                                                   float *states, int steps, float S)
{
    if (steps < STEPS)
        return walk<T, NONLIN>(pairs, states, 0, steps, S);
    for (int from = 0; from < STEPS; from += BATCH) {
        const batch<BATCH> then = take_batch<BATCH>(pairs, min(from + BATCH, STEPS - BATCH));
        for (int i = 0; i < BATCH; i++)
            states[(from + i) * WIDTH] = S = step<T, NONLIN>(now.of[i], S);
        now = then;
    }
    return S;
}

static __device__ __forceinline__ float gate_of(float y)
{
    return rcp_approx(1 + exp2_approx(-1.442695041f * y));
}

/* ---- the blocks of a cluster ---- */

/* Which columns and steps a block has. */
struct seat {
    int rank, part, set, segment;
};

static __device__ seat seat_of(const layout &l)
{
    const int rest = cluster_number(l.cluster), set = rest / l.parts;
    seat s;
    s.rank = cluster_rank(l.cluster);
    s.part = rest % l.parts;
    s.set = l.noting ? set % l.sets : set;
    s.segment = l.noting ? set / l.sets : 0;
    return s;
}

/* A carrier's number before a turn: from the block that had the turn before, or its own. */
static __device__ __forceinline__ float take_over(const layout &l, const tagged *arrived, int turn,
                                                  float own)
{
    if (l.cluster == 1 || turn == 0)
        return own;
    for (;;) {
        const tagged p = load_relaxed_cluster(arrived);
        if (p.tag == turn)
            return p.x;
        spin_yield();
    }
}

static __device__ __forceinline__ void hand_on(const layout &l, tagged *next, int turn, float x)
{
    if (l.cluster > 1)
        store_relaxed_cluster(next, {x, turn});
}

/* ---- forward ---- */

/* After a step: y and out; and the state, if it is the last, or where the next
 * step begins a segment or a piece whose first state is being noted. */
template <typename T>
static __device__ __forceinline__ void put_step(const layout &l, const item &it, int t,
                                                const float *step, const octet<T> &query)
{
    const call &c = l.c;
    const eight S = take_octet(step, it.octet);
    const int next = t + 1;
    if (l.noting) {
        if (next % STEPS == 0)
            store_octet(l.begins + next / STEPS * c.BH * c.N + it.element, it.columns, l.whole, S);
        return;
    }
    if (next == c.T)
        store_octet(c.last + it.element, it.columns, l.whole, S);
    else if (next % l.K == 0)
        for (int j = 0; j < it.columns; j++)
            put_kept(c, next / l.K * c.BH, it.element + j, S.x[j]);
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

/* The steps that a cluster of forward's kernel walks. */
struct stretch {
    int begin, end;
};

/* To note states: from a segment's checkpoint to the last piece that begins
 * within the segment. */
static __device__ stretch stretch_of(const layout &l, int segment)
{
    const int T = (int)l.c.T, begin = segment * l.K, last = min(l.K, T - begin) + begin - 1;
    return l.noting ? stretch{begin, last / STEPS * STEPS} : stretch{0, T};
}

/* What a carrier begins with, which is the first checkpoint. */
static __device__ float first_of(const layout &l, const column &mine, int segment)
{
    const call &c = l.c;
    if (!mine.any)
        return 0;
    if (l.noting)
        return get_kept(c, segment * c.BH, mine.element);
    const float S = c.first[mine.element];
    put_kept(c, 0, mine.element, S);
    return S;
}

/* The turns of a block; the n-th piece of a stretch is that of rank n % cluster. */
template <typename T, int NONLIN>
__global__ void __launch_bounds__(ITEMS, sizeof(T) == 2 ? 4 : 2) forward_diagonal(layout l)
{
    __shared__ __align__(16) float2 pairs[STEPS * WIDTH];
    __shared__ __align__(16) float states[STEPS * WIDTH];
    __shared__ tagged arrived[WIDTH];
    const call &c = l.c;
    const seat own = seat_of(l);
    const stretch s = stretch_of(l, own.segment);
    const int turns = (s.end - s.begin + STEPS - 1) / STEPS, place = (int)threadIdx.x;

    if (turns <= 0)
        return;
    handover_init(l.cluster, arrived, WIDTH);
    const item it = item_of(l, own.set, own.part, place);
    const bool carries = place < WIDTH;
    const int stride = STEPS * l.cluster;
    const int64_t row = c.BH * c.N;
    const int first = s.begin + own.rank * STEPS + it.step;
    keys<T> in = load_keys<T>(l, first * row + it.element, first < s.end ? it.columns : 0);
    for (int n = 1; n < AHEAD && first + n * stride < s.end; n++)
        prefetch_keys<T>(l, it, (first + n * stride) * row + it.element);
    float S = carries && own.rank == 0
                  ? first_of(l, column_of(l, own.set, own.part, place), own.segment)
                  : 0;
    handover_ready(l.cluster);

    for (int turn = own.rank; turn < turns; turn += l.cluster) {
        const int t = s.begin + turn * STEPS + it.step, next = t + stride,
                  later = t + AHEAD * stride;
        const int64_t at = t * row + it.element;
        octet<T> query = {};
        if (!l.noting)
            query = load_octet((const T *)c.q + at, t < s.end ? it.columns : 0, l.whole);
        const float length = sqrtf(squares_of<T>(l, it, at, t < s.end, widened(in.k)));
        prepare(l, it, pairs + it.step * WIDTH, in, length);
        in = load_keys<T>(l, next * row + it.element, next < s.end ? it.columns : 0);
        if (later < s.end)
            prefetch_keys<T>(l, it, later * row + it.element);
        __syncthreads();

        if (carries) {
            const int steps = min((int)STEPS, s.end - s.begin - turn * STEPS);
            const batch<BATCH> first = take_batch<BATCH>(pairs + place, 0);
            tagged *const next_block = handover_next(l.cluster, turn, arrived + place);
            S = take_over(l, arrived + place, turn, S);
            S = walk_piece<T, NONLIN>(first, pairs + place, states + place, steps, S);
            if (turn + 1 < turns)
                hand_on(l, next_block, turn + 1, S);
        }
        __syncthreads();

        if (t < s.end)
            put_step(l, it, t, states + it.step * WIDTH, query);
    }
    handover_finish(l.cluster);
}

/* ---- backward ---- */

/* A carrier's state before step t, where a piece begins: a checkpoint, or noted. */
static __device__ float begin_of(const layout &l, const column &mine, int t)
{
    const call &c = l.c;
    if (!mine.any)
        return 0;
    return t % l.K ? l.begins[t / STEPS * c.BH * c.N + mine.element]
                   : get_kept(c, t / l.K * c.BH, mine.element);
}

/* A carrier's states of a piece, from S, that before its first step, on; a
 * checkpoint stored in fewer bits than the state begins anew. */
template <typename T, int NONLIN>
static __device__ __forceinline__ void replay(const layout &l, const column &mine, int begin,
                                              int steps, const float2 *pairs, float *states,
                                              float S)
{
    const call &c = l.c;
    states[0] = S;
    states += WIDTH;
    if (c.kept == KEPT_F32 || l.K % STEPS == 0) {
        walk_piece<T, NONLIN>(take_batch<BATCH>(pairs, 0), pairs, states, steps, S);
        return;
    }
    for (int from = 0, to; from < steps; from = to) {
        if (from > 0 && mine.any)
            S = get_kept(c, (begin + from) / l.K * c.BH, mine.element);
        to = min(steps, from + l.K - (begin + from) % l.K);
        S = walk<T, NONLIN>(pairs, states, from, to, S);
    }
}

/* The states before a step, as backward's formulas mean them. */
static __device__ __forceinline__ eight before(const layout &l, const item &it, int t,
                                               const float *step)
{
    eight S = take_octet(step, it.octet);
    if (l.c.kept != KEPT_F32 && t % l.K == 0)
        for (int j = 0; j < COLUMNS; j++)
            if (j < it.columns)
                S.x[j] = get_kept(l.c, t / l.K * l.c.BH, it.element + j);
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

/* One step back; what reaches it from those after it is left. */
static __device__ __forceinline__ float step_back(float2 pair, float *left, float G)
{
    *left = G;
    return fmaf(pair.x, G, pair.y);
}

/* A carrier back through a piece, of whose pairs the last are there already,
 * if it is whole; returns what reaches the step before the piece. */
static __device__ __forceinline__ float retreat(batch<BACK> now, const float2 *pairs, float *left,
                                                int steps, float G)
{
    if (steps < STEPS) {
        #pragma unroll 1
        for (int i = steps - 1; i >= 0; i--)
            G = step_back(pairs[i * WIDTH], left + i * WIDTH, G);
        return G;
    }
    for (int from = STEPS - BACK; from >= 0; from -= BACK) {
        const batch<BACK> then = take_batch<BACK>(pairs, max(from - BACK, 0));
        for (int i = BACK - 1; i >= 0; i--)
            G = step_back(now.of[i], left + (from + i) * WIDTH, G);
        now = then;
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
put_gradients(const layout &l, const item &it, int t, bool any, const keys<T> &in,
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

/* Send for what the turn at `at` needs. */
template <typename T>
static __device__ __forceinline__ void prefetch_turn(const layout &l, const item &it, int64_t at)
{
    prefetch_keys<T>(l, it, at);
    if (it.columns == 0)
        return;
    prefetch_l2((const T *)l.c.y + at);
    prefetch_l2((const T *)l.c.dout + at);
}

/* The turns of a block; the first is that of the last piece. */
template <typename T, int NONLIN>
__global__ void __launch_bounds__(ITEMS, sizeof(T) == 2 ? 3 : 2) backward_diagonal(layout l)
{
    __shared__ __align__(16) float2 pairs[STEPS * WIDTH];
    __shared__ __align__(16) float states[(1 + STEPS) * WIDTH];
    __shared__ __align__(16) float left[STEPS * WIDTH];
    __shared__ tagged arrived[WIDTH];
    const call &c = l.c;
    const seat own = seat_of(l);
    const int64_t row = c.BH * c.N;
    const int turns = (int)l.pieces, place = (int)threadIdx.x;
    const item it = item_of(l, own.set, own.part, place);
    handover_init(l.cluster, arrived, WIDTH);
    const bool carries = place < WIDTH;
    const column mine = column_of(l, own.set, own.part, place % WIDTH);
    float G = carries && own.rank == 0 && mine.any ? c.dlast[mine.element] : 0;
    handover_ready(l.cluster);

    for (int turn = own.rank; turn < turns; turn += l.cluster) {
        const int begin = (turns - 1 - turn) * STEPS, steps = min((int)STEPS, (int)c.T - begin);
        const int t = begin + it.step;
        const bool any = it.step < steps;
        const int columns = any ? it.columns : 0;
        const int64_t at = t * row + it.element;

        const keys<T> in = load_keys<T>(l, at, columns);
        const octet<T> query = load_octet((const T *)c.q + at, columns, l.whole);
        const octet<T> y = load_octet((const T *)c.y + at, columns, l.whole);
        const octet<T> dout = load_octet((const T *)c.dout + at, columns, l.whole);
        const float S = carries ? begin_of(l, mine, begin) : 0;
        if (turn + l.cluster < turns)
            prefetch_turn<T>(l, it, at - l.cluster * STEPS * row);
        const float length = sqrtf(squares_of<T>(l, it, at, any, widened(in.k)));
        prepare(l, it, pairs + it.step * WIDTH, in, length);
        __syncthreads();

        if (carries)
            replay<T, NONLIN>(l, mine, begin, steps, pairs + place, states + place, S);
        const eight dy = through_gate(y, dout);
        __syncthreads();

        if (any)
            to_gradients<NONLIN>(pairs + it.step * WIDTH, states + (it.step + 1) * WIDTH, it.octet,
                                 dy, widened(query));
        __syncthreads();

        if (carries) {
            const batch<BACK> last = take_batch<BACK>(pairs + place, STEPS - BACK);
            tagged *const next_block = handover_next(l.cluster, turn, arrived + place);
            G = take_over(l, arrived + place, turn, G);
            G = retreat(last, pairs + place, left + place, steps, G);
            if (turn + 1 < turns)
                hand_on(l, next_block, turn + 1, G);
            if (begin == 0 && mine.any)
                c.dfirst[mine.element] = G;
        }
        __syncthreads();

        put_gradients<T, NONLIN>(l, it, t, any, in, query, dy, length, states + it.step * WIDTH,
                                 left + it.step * WIDTH);
    }
    handover_finish(l.cluster);
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
    return (int64_t)l.sets * l.parts;
}

/* More blocks of a cluster as long as each has a piece, and the chip room. */
static int cluster_for(int64_t blocks, int64_t pieces)
{
    int n = 1;
    while (n < cluster_max() && 2 * n <= pieces && 2 * n * blocks <= ENOUGH)
        n *= 2;
    return n;
}

static layout layout_of(const struct frame *f)
{
    layout l = {};
    const call &c = l.c = call_of(f);

    for (l.lanes = 1; l.lanes < OCTETS && COLUMNS * l.lanes < c.N; l.lanes *= 2)
        ;
    l.groups = OCTETS / l.lanes;
    l.sets = (int)ceil_div(c.BH, l.groups);
    l.K = (int)c.K;
    l.parts = (int)ceil_div(c.N, WIDTH);
    l.whole = c.N % COLUMNS == 0;
    l.pieces = ceil_div(c.T, STEPS);
    l.cluster = cluster_for(blocks_of(l), l.pieces);
    return l;
}

/* To note states, before backward. */
static layout notes_of(const layout &l)
{
    layout notes = l;
    notes.noting = true;
    notes.cluster = cluster_for(blocks_of(l) * ceil_div(l.c.T, l.c.K), ceil_div(l.c.K, STEPS));
    return notes;
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

/* `walks`: of stretches of time, beside each other. */
static cudaError_t start(void (*kernel)(layout), const layout &l, int64_t walks)
{
    cluster_launch x;
    cluster_launch_init(&x, walks * blocks_of(l), l.cluster, ITEMS, 0);
    return cudaLaunchKernelEx(&x.config, kernel, l);
}

template <typename T>
static cudaError_t start_forward(const layout &l, int64_t walks)
{
    return start(l.c.nonlin == E74_TANH ? forward_diagonal<T, E74_TANH>
                                        : forward_diagonal<T, E74_LINEAR>,
                 l, walks);
}

template <typename T>
static cudaError_t start_backward(const layout &l)
{
    return start(l.c.nonlin == E74_TANH ? backward_diagonal<T, E74_TANH>
                                        : backward_diagonal<T, E74_LINEAR>,
                 l, 1);
}

template <typename T>
static int forward(const struct frame *f)
{
    return start_forward<T>(layout_of(f), 1);
}

template <typename T>
static int backward(const struct frame *f)
{
    layout l = layout_of(f);
    const call &c = l.c;

    divide(&l, f, (float *)f->work);
    if (l.begins)
        CUDA(start_forward<T>(notes_of(l), ceil_div(c.T, c.K)));
    CUDA(start_backward<T>(l));
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
                  idea[] = "a column of the state a thread; pieces of time side by side";

GPU_IMPL(extern "C", 32, float, e74_diagonal, name, idea, work, declines, "ex2.approx, rcp.approx",
         3e-7);
GPU_IMPL(extern "C", 16, __nv_bfloat16, e74_diagonal, name, idea, work, declines, "tanh.approx",
         5e-4);
