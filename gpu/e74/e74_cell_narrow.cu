/* e74_cell, kernel `narrow`: states whose rows are short, blocks and factors of
 * at most 16 columns.
 *
 * A row belongs to one thread, eight of its columns in registers, or to two
 * where there are more.  A step is a chain (dot product, residual, update, f)
 * of some 100 cycles, in which the eight f's of a thread are the most.
 *
 * Time is cut into pieces, and a block carries a piece of one (sequence, head),
 * or of some of its blocks' rows where these are many.  It brings the piece's
 * keys into shared memory, normalised and, where the state is a factor, times
 * W_r and V; waits for the state that the block of the piece before hands over;
 * walks; hands the state on; and only then writes what it found.  So all but
 * the walk is done by many SMs at once, away from the chain.
 *
 * Backward likewise, last piece first: the piece is replayed from its
 * checkpoint, which waits for nobody, and its states stay in shared memory.
 * What is handed on is the gradient G of the state.  What a state's element
 * adds to a key's gradient takes the element's place as the walk goes back;
 * sums over rows, and the way from keys that rows meet to k, q and z, follow.
 * Pieces that begin between checkpoints need their first state: forward's
 * kernel notes it, in a launch before, over all segments at once.
 *
 * A hand-over is the numbers themselves: the place where they are put holds, at
 * first, a NaN that no arithmetic makes, and the next block looks there until
 * each number is another.  Blocks take their turns from a counter as they
 * start, pieces in the order of the walk, so that whom a block waits for is
 * always running or done.
 *
 * The step uses fmaf and never a bare a * b + c, so that forward and replay
 * cannot be contracted differently; pieces, and sums within and over them, are
 * the same for every checkpoint interval. */
#include "gpu/device/columns.cuh"
#include "gpu/device/flags.cuh"
#include "gpu/device/math.cuh"
#include "gpu/e74/e74_cell.cuh"

enum {
    STEPS = 64,          /* of a piece, backward, at most */
    FORWARD_STEPS = 128, /* and forward */
    CARRIERS = 64,       /* of a block, where a state's rows can be divided */
    KEY_WIDTH = 128,     /* padded columns of its keys, likewise */
    THREADS = 256,       /* of a block, where there is work for as many */
    CROWD = 1024,        /* forward, half as many where there are so many blocks */
    MOST = 512,          /* and where a state has many rows */
    LANES_MAX = 2,
    PART = 16,                   /* rows that one thread adds up */
    SHARED_MAX = 227 * 1024 - 16 /* the turn has its own */
};

/* What is not there yet. */
#define UNSENT 0xffffffffu

/* ---- how a call is laid out over blocks ---- */

struct layout {
    call c;
    int lanes, width;    /* threads of a row; columns of it with its padding */
    int groups, sets;    /* of a block: runs of rows that meet the same columns; such blocks */
    int rows, carriers;  /* of a block; its first threads, in whole warps */
    int threads;         /* carriers and others */
    int stride, wide;    /* of a step in shared memory: N's numbers; keys as rows meet them */
    int slot;            /* and the carriers' states */
    int steps;           /* of a piece */
    int parts;           /* of a group's rows, which different threads add up */
    int share;           /* threads that add up the squares of a group of k */
    bool eights;         /* are N's numbers brought eight at a time? */
    bool gaps;           /* is padding read among a step's numbers? */
    int gap, reciprocal; /* after each run of columns among them; 2^16 / columns */
    bool apart;          /* are the gradients of write and read different sums? */
    bool tied_v;         /* v is k: dv is a share of dk */
    bool noting;         /* forward's kernel notes the states before pieces, no more */
    int64_t pieces;
    unsigned *turn;
    float *handed;    /* [pieces][blocks][2][carriers][4]: the state before a piece, or the
                         gradient of that after it */
    float *noted;     /* likewise: the states before pieces that begin between checkpoints */
    float *dV, *dW_r; /* [BH][pieces][M]: shares of the pieces */
    float *each_dW_r; /* [BH][M] */
};

struct place {
    int64_t piece, bh, block; /* block: among those of a piece */
    int64_t t;
    int steps;
    int first, rows, groups; /* of N, the first number that is its own, and how many */
    bool carries, any;       /* a carrier's row may be one too many */
    int lane;
    int number, key; /* where the row's numbers and keys are within a step's */
    int64_t element; /* and the row within the states */
};

/* Where number i of a block's is in shared memory: keys of blocks are padded.
 * (The division by the columns, at most 16, is exact for i up to 4096.) */
static __device__ __forceinline__ int spot(const layout &l, int i)
{
    return i + (i * l.reciprocal >> 16) * l.gap;
}

/* Begins the block's turn; ends with a barrier. */
template <int LANES>
static __device__ place take_turn(const layout &l, bool back)
{
    __shared__ unsigned turn;
    if (threadIdx.x == 0)
        turn = atomicAdd(l.turn, 1u) + 1; /* it begins at -1 */
    __syncthreads();

    const call &c = l.c;
    const int64_t blocks = c.BH * l.sets;
    const int set = (int)(turn % l.sets), row = (int)threadIdx.x / LANES;
    place p;
    p.piece = back ? l.pieces - 1 - turn / blocks : turn / blocks;
    p.block = turn % blocks;
    p.bh = p.block / l.sets;
    p.t = p.piece * l.steps;
    p.steps = (int)min((int64_t)l.steps, c.T - p.t);
    p.groups = min(l.groups, c.N / c.rows - set * l.groups);
    p.first = set * l.groups * c.rows;
    p.rows = p.groups * c.rows;
    p.carries = (int)threadIdx.x < l.carriers;
    p.any = row < p.rows;
    p.lane = threadIdx.x % LANES;
    p.number = p.any ? spot(l, row) : 0;
    p.key = p.any ? row / c.rows * l.width : 0;
    p.element = p.bh * c.M + (int64_t)(p.first + row) * c.columns;
    return p;
}

/* ---- from block to block ---- */

static __device__ float *hand(const layout &l, float *at, const place &p, int64_t piece, int i)
{
    return at + (((piece * l.c.BH * l.sets + p.block) * 2 + i) * l.carriers + threadIdx.x) * 4;
}

static __device__ __forceinline__ void hand_over(const layout &l, float *at, const place &p,
                                                 int64_t piece, const eight &e)
{
    for (int i = 0; i < 2; i++) {
        float x[4];
        for (int j = 0; j < 4; j++)
            x[j] = __float_as_uint(e.x[4 * i + j]) == UNSENT ? __uint_as_float(0x7fffffff)
                                                             : e.x[4 * i + j];
        store_relaxed(hand(l, at, p, piece, i), x);
    }
}

/* By whole warps. */
static __device__ __forceinline__ eight take_over(const layout &l, float *at, const place &p,
                                                  int64_t piece)
{
    const float *const from[] = {hand(l, at, p, piece, 0), hand(l, at, p, piece, 1)};
    for (;;) {
        eight e;
        bool there = true;
        for (int i = 0; i < 2; i++)
            load_relaxed(from[i], e.x + 4 * i);
        for (int j = 0; j < COLUMNS; j++)
            there = there && __float_as_uint(e.x[j]) != UNSENT;
        if (__all_sync(0xffffffff, there))
            return e;
        spin_yield();
    }
}

/* ---- what a piece needs, in shared memory ---- */

struct staged {
    float *khat, *u, *q, *z, *v; /* [steps][stride]; u is khat without an inner z */
    float *dy, *reads;           /* [steps][stride] backward; reads only with an outer z */
    float *write, *read, *query; /* [steps][wide]; of blocks they are khat, u and q */
    float *dquery;               /* [steps][wide] backward */
    float *length;               /* [steps][groups] backward: of k */
    float *W_r, *V;              /* [N][width], padded with zeros */
    float *sums;                 /* [parts][steps][wide] where there are parts */
    float *slots;                /* [steps + 1][slot] backward: states */
    float *dread;                /* [steps][slot] backward: addends of read's gradient, if apart */
};

static __host__ __device__ int padded(int n, int to)
{
    return (n + to - 1) / to * to;
}

/* Returns the floats it takes. */
static __host__ __device__ int carve(const layout &l, bool back, float *at, staged *s)
{
    const int numbers = l.steps * l.stride, keys = l.steps * l.wide, rows = padded(l.c.N, 4);
    int n = 0;
    struct {
        float **to;
        int floats;
        bool needed;
    } const parts[] = {
        {&s->khat, numbers, true},
        {&s->q, numbers, true},
        {&s->v, numbers, true},
        {&s->u, numbers, l.c.z_inside != 0},
        {&s->z, numbers, l.c.z != NULL},
        {&s->dy, numbers, back},
        {&s->reads, numbers, back && l.c.z_outside},
        {&s->write, keys, l.c.lowrank != 0},
        {&s->read, keys, l.c.lowrank != 0},
        {&s->query, keys, l.c.lowrank != 0},
        {&s->dquery, keys, back},
        {&s->length, padded(l.steps * l.groups, 4), back},
        {&s->W_r, rows * l.width, l.c.lowrank != 0},
        {&s->V, rows * l.width, l.c.lowrank != 0},
        {&s->sums, l.parts * keys, back && l.parts > 1},
        {&s->slots, (l.steps + 1) * l.slot, back},
        {&s->dread, l.steps * l.slot, back && l.apart},
    };
    for (int i = 0; i < (int)(sizeof parts / sizeof *parts); i++) {
        *parts[i].to = at + n;
        n += parts[i].needed ? parts[i].floats : 0;
    }
    if (!l.c.z_inside)
        s->u = s->khat;
    if (!l.c.lowrank)
        s->write = s->khat, s->read = s->u, s->query = s->q;
    return n;
}

/* WIDE numbers of a step, a thread's: eight, or one where eight are not
 * neighbours, aligned, in global memory and in fours in shared memory. */
template <int WIDE>
struct alignas(WIDE == 1 ? 4 : 16) some {
    float x[WIDE];
};

template <int WIDE>
static __device__ __forceinline__ void put(const layout &l, float *step, int i, const some<WIDE> &e)
{
    if (WIDE == 1)
        step[spot(l, i)] = e.x[0];
    else
        for (int h = 0; h < WIDE; h += 4)
            *(four<float> *)(step + spot(l, i + h)) = *(const four<float> *)(e.x + h);
}

template <int WIDE>
static __device__ __forceinline__ some<WIDE> get(const layout &l, const float *step, int i)
{
    some<WIDE> e;
    if (WIDE == 1)
        e.x[0] = step[spot(l, i)];
    else
        for (int h = 0; h < WIDE; h += 4)
            *(four<float> *)(e.x + h) = *(const four<float> *)(step + spot(l, i + h));
    return e;
}

/* From and to global memory. */
template <typename T, int WIDE>
static __device__ __forceinline__ some<WIDE> fetch(const void *from, int64_t at)
{
    some<WIDE> e;
    if (WIDE == 1) {
        e.x[0] = load((const T *)from + at);
    } else {
        const eight w = widened(load_columns<T, 1, true>((const T *)from + at, COLUMNS, 0));
        for (int j = 0; j < WIDE; j++)
            e.x[j] = w.x[j];
    }
    return e;
}

template <typename T, int WIDE>
static __device__ __forceinline__ void put_out(void *to, int64_t at, const some<WIDE> &e)
{
    if (WIDE == 1) {
        store((T *)to + at, e.x[0]);
    } else {
        eight w;
        for (int j = 0; j < WIDE; j++)
            w.x[j] = e.x[j];
        store_columns<T, 1>((T *)to + at, COLUMNS, 0, w);
    }
}

/* Where the i-th such item of a piece is. */
struct item {
    int step, number;
    int64_t at;
};

template <int WIDE>
static __device__ __forceinline__ int items(const place &p)
{
    return p.steps * p.rows / WIDE;
}

template <int WIDE>
static __device__ __forceinline__ item item_of(const layout &l, const place &p, int i)
{
    item it;
    it.step = i / (p.rows / WIDE);
    it.number = i % (p.rows / WIDE) * WIDE;
    it.at = ((p.t + it.step) * l.c.BH + p.bh) * l.c.N + p.first + it.number;
    return it;
}

/* k, q, v, z as they are; backward also dy. */
template <typename T, bool BACK, int WIDE>
static __device__ __forceinline__ void bring(const layout &l, const place &p, const staged &s)
{
    const call &c = l.c;
    #pragma unroll 1
    for (int i = threadIdx.x; i < items<WIDE>(p); i += blockDim.x) {
        const item it = item_of<WIDE>(l, p, i);
        const int step = it.step * l.stride;
        const some<WIDE> k = fetch<T, WIDE>(c.k, it.at), q = fetch<T, WIDE>(c.q, it.at);
        const some<WIDE> v = fetch<T, WIDE>(c.v, it.at);
        some<WIDE> z = {}, y = {}, dy = {};
        if (c.z)
            z = fetch<T, WIDE>(c.z, it.at);
        if (BACK) {
            y = fetch<T, WIDE>(c.y, it.at);
            dy = fetch<T, WIDE>(c.dout, it.at);
        }
        put(l, s.khat + step, it.number, k);
        put(l, s.q + step, it.number, q);
        put(l, s.v + step, it.number, v);
        if (c.z)
            put(l, s.z + step, it.number, z);
        for (int j = 0; j < WIDE && BACK; j++) {
            const float gate = 1 / (1 + expf(-y.x[j]));
            dy.x[j] *= y.x[j] * gate * (2 + y.x[j] * (1 - gate));
        }
        if (BACK)
            put(l, s.dy + step, it.number, dy);
    }
}

/* A factor's two matrices, a row for each of N. */
template <typename T>
static __device__ void bring_factors(const layout &l, const place &p, const staged &s)
{
    const call &c = l.c;
    const T *W_r = (const T *)c.W_r + p.bh % c.H * c.M;
    const float *V = c.V0 + p.bh * c.M;
    for (int e = threadIdx.x; e < padded(c.N, 4) * l.width; e += blockDim.x) {
        const int i = e / l.width, j = e % l.width;
        const bool any = i < c.N && j < c.columns;
        s.W_r[e] = any ? load(W_r + j * c.N + i) : 0;
        s.V[e] = any ? V[i * c.columns + j] : 0;
    }
}

/* A group of k, or of its gradient, belongs to l.share neighbouring threads. */
struct share {
    int step, group, sub;
    bool any;
};

static __device__ __forceinline__ share share_of(const layout &l, const place &p, int i)
{
    share a;
    const int which = i / l.share;
    a.sub = i % l.share;
    a.step = which / p.groups;
    a.group = which % p.groups;
    a.any = a.step < p.steps;
    return a;
}

static __device__ __forceinline__ int shares(const layout &l, const place &p)
{
    return padded(p.steps * p.groups * l.share, 32);
}

static __device__ __forceinline__ float shared_sum(const layout &l, float x)
{
    #pragma unroll 1
    for (int d = l.share / 2; d; d /= 2)
        x += __shfl_xor_sync(0xffffffff, x, d);
    return x;
}

/* k^ for k, and u. */
template <bool BACK>
static __device__ void normalise(const layout &l, const place &p, const staged &s)
{
    for (int i = threadIdx.x; i < shares(l, p); i += blockDim.x) {
        const share a = share_of(l, p, i);
        const int at = a.step * l.stride + a.group * l.width, end = a.any ? l.c.group : 0;
        float squares = 0;
        for (int j = a.sub; j < end; j += l.share)
            squares = fmaf(s.khat[at + j], s.khat[at + j], squares);
        const float length = sqrtf(shared_sum(l, squares));
        const float scale = 1 / (length + (float)E74_EPSILON);
        for (int j = a.sub; j < end; j += l.share) {
            const float key = s.khat[at + j] * scale;
            s.khat[at + j] = key;
            if (l.c.z_inside)
                s.u[at + j] = s.z[at + j] * key;
        }
        if (BACK && a.any && a.sub == 0)
            s.length[a.step * p.groups + a.group] = length;
    }
}

/* Four columns of A^T x for A [N][width]. */
static __device__ __forceinline__ four<float> times_factor(const layout &l, const float *A,
                                                           const float *x)
{
    four<float> sum = {};
    #pragma unroll 2
    for (int i = 0; i < l.c.N; i += 4) {
        const four<float> xs = *(const four<float> *)(x + i);
        for (int n = 0; n < 4; n++) {
            const four<float> row = *(const four<float> *)(A + (i + n) * l.width);
            for (int j = 0; j < 4; j++)
                sum.x[j] = fmaf(row.x[j], xs.x[n], sum.x[j]);
        }
    }
    return sum;
}

/* What a factor's rows meet: W_r k^, V^T u, V^T q. */
static __device__ void factor_keys(const layout &l, const place &p, const staged &s)
{
    const int quads = l.width / 4;
    for (int i = threadIdx.x; i < l.steps * quads * 3; i += blockDim.x) {
        const int step = i % l.steps, quad = i / l.steps % quads, which = i / l.steps / quads;
        if (step >= p.steps)
            continue;
        const float *A = which == 0 ? s.W_r : s.V;
        const float *x = which == 0 ? s.khat : which == 1 ? s.u : s.q;
        float *to = which == 0 ? s.write : which == 1 ? s.read : s.query;
        *(four<float> *)(to + step * l.wide + 4 * quad) =
            times_factor(l, A + 4 * quad, x + step * l.stride);
    }
}

/* All that the walk needs; ends with a barrier. */
template <typename T, bool BACK>
static __device__ __forceinline__ void stage(const layout &l, const place &p, const staged &s)
{
    if (l.c.lowrank)
        bring_factors<T>(l, p, s);
    if (l.gaps) {
        for (int i = threadIdx.x; i < p.steps * l.stride; i += blockDim.x)
            s.khat[i] = s.u[i] = s.q[i] = 0;
        __syncthreads();
    }
    if (l.eights)
        bring<T, BACK, 8>(l, p, s);
    else
        bring<T, BACK, 1>(l, p, s);
    __syncthreads();
    normalise<BACK>(l, p, s);
    __syncthreads();
    if (l.c.lowrank) {
        factor_keys(l, p, s);
        __syncthreads();
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

/* v, of which a row too many must not read what another row's place is taken
 * by: any other numbers will do for it. */
static __device__ __forceinline__ const float *numbers_of(const place &p, const staged &s)
{
    return p.any ? s.v : s.khat;
}

static __device__ __forceinline__ table table_of(const layout &l, const place &p, const staged &s,
                                                 int step)
{
    const int key = step * l.wide + p.key, number = step * l.stride + p.number;
    return {s.write + key, s.read + key, s.query + key, numbers_of(p, s) + number, s.z + number};
}

template <int LANES>
static __device__ __forceinline__ meal serve(table *at, const layout &l, const place &p, bool more)
{
    const int key = more ? l.wide : 0, number = more ? l.stride : 0;
    meal m;
    m.read = take<LANES>(at->read, p.lane);
    m.write = take<LANES>(at->write, p.lane);
    m.query = take<LANES>(at->query, p.lane);
    m.v = *at->v;
    m.z = l.c.z_outside ? *at->z : 1;
    at->read += key;
    at->write += key;
    at->query += key;
    at->v += number;
    at->z += number;
    return m;
}

/* Before one of a row's threads overwrites what all of them read. */
template <int LANES>
static __device__ __forceinline__ void row_has_read(void)
{
    if (LANES > 1)
        __syncwarp();
}

/* S <- f(S + delta k^T) given what S reads; returns delta. */
template <typename T, int NONLIN>
static __device__ __forceinline__ float advance(eight &S, const meal &m, float reads)
{
    const float delta = fmaf(-m.z, reads, m.v);
    for (int j = 0; j < COLUMNS; j++) {
        const float P = fmaf(delta, m.write.x[j], S.x[j]);
        S.x[j] = NONLIN == E74_TANH ? tanh_for<T>(P) : P;
    }
    return delta;
}

/* ---- checkpoints ---- */

template <int LANES>
static __device__ __forceinline__ void keep_state(const call &c, const place &p, int64_t segment,
                                                  const eight &S)
{
    const int columns = p.any ? c.columns : 0;
    if (c.kept == KEPT_F32) {
        float *to = (float *)c.checkpoints + segment * c.BH * c.M + p.element;
        store_columns<float, LANES>(to, columns, p.lane, S);
        return;
    }
    for (int j = 0; j < COLUMNS; j++) {
        const int column = run<LANES>(j / 4, p.lane) + j % 4;
        if (column < columns)
            put_kept(c, segment * c.BH, p.element + column, S.x[j]);
    }
}

template <int LANES>
static __device__ __forceinline__ eight kept_state(const call &c, const place &p, int64_t segment)
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

/* The checkpoints of a piece: that of segment `segment` is before step `step`,
 * or the piece ends before it; the others follow. */
struct kept {
    int64_t segment;
    int step;
};

static __device__ __forceinline__ kept first_kept(const call &c, const place &p)
{
    const int64_t segment = ceil_div(p.t, c.K);
    return {segment, (int)min(segment * c.K - p.t, (int64_t)p.steps)};
}

static __device__ __forceinline__ void find_next(kept *k, const call &c, const place &p)
{
    k->segment++;
    k->step = (int)min(k->step + c.K, (int64_t)p.steps);
}

/* ---- forward ---- */

/* Steps from ... to - 1 of the piece; y takes v's place.  What the next step
 * reads is added up over the lanes together with this one's y. */
template <typename T, int LANES, int NONLIN>
static __device__ __forceinline__ void walk(const layout &l, const place &p, const staged &s,
                                            int from, int to, eight &S)
{
    const bool writes = p.any && p.lane == 0;
    table at = table_of(l, p, s, from);
    float *y_at = s.v + from * l.stride + p.number;
    meal now = serve<LANES>(&at, l, p, from + 1 < to);
    float reads = lanes_sum<LANES>(dot(S, now.read)), y = 0;

    #pragma unroll 2
    for (int i = from + 1; i < to; i++) {
        const meal then = serve<LANES>(&at, l, p, i + 1 < to);
        advance<T, NONLIN>(S, now, reads);
        y = dot(S, now.query);
        reads = dot(S, then.read);
        lanes_sums<LANES>(&reads, &y);
        row_has_read<LANES>();
        if (writes)
            *y_at = y;
        y_at += l.stride;
        now = then;
    }
    advance<T, NONLIN>(S, now, reads);
    y = lanes_sum<LANES>(dot(S, now.query));
    row_has_read<LANES>();
    if (writes)
        *y_at = y;
}

/* The last checkpoint of a piece, which may be none. */
static __device__ kept last_kept(const call &c, const place &p)
{
    kept k = first_kept(c, p);
    const int64_t further = (p.steps - 1 - k.step) / c.K;
    if (k.step < p.steps)
        k = {k.segment + further, (int)(k.step + further * c.K)};
    return k;
}

/* The state before the piece; or, when notes are taken, at its last checkpoint,
 * *from, if it has one. */
template <int LANES>
static __device__ __forceinline__ eight first_state(const layout &l, const place &p, int *from)
{
    const call &c = l.c;
    const kept last = l.noting ? last_kept(c, p) : kept{0, p.steps};
    if (last.step < p.steps) {
        *from = last.step;
        return kept_state<LANES>(c, p, last.segment);
    }
    if (p.piece == 0)
        return load_floats<LANES>(c.first + p.element, p.any ? c.columns : 0, p.lane);
    return take_over(l, l.handed, p, p.piece);
}

template <typename T, int WIDE>
static __device__ __forceinline__ void put_outputs(const layout &l, const place &p, const staged &s)
{
    #pragma unroll 1
    for (int i = threadIdx.x; i < items<WIDE>(p); i += blockDim.x) {
        const item it = item_of<WIDE>(l, p, i);
        const some<WIDE> y = get<WIDE>(l, s.v + it.step * l.stride, it.number);
        some<WIDE> out;
        for (int j = 0; j < WIDE; j++)
            out.x[j] = y.x[j] * y.x[j] / (1 + expf(-y.x[j]));
        put_out<T, WIDE>(l.c.y, it.at, y);
        put_out<T, WIDE>(l.c.out, it.at, out);
    }
}

template <typename T, int LANES, int NONLIN>
__global__ void __launch_bounds__(MOST) forward_narrow(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const call &c = l.c;
    const place p = take_turn<LANES>(l, false);
    const int64_t end = p.t + p.steps;
    staged s;
    carve(l, false, buffer, &s);

    if (l.noting && (end == c.T || end % c.K == 0))
        return;
    stage<T, false>(l, p, s);
    if (p.carries) {
        kept next = l.noting ? kept{0, p.steps} : first_kept(c, p);
        int from = 0;
        eight S = first_state<LANES>(l, p, &from);
        for (int to; from < p.steps; from = to) {
            if (from == next.step) {
                keep_state<LANES>(c, p, next.segment, S);
                find_next(&next, c, p);
            }
            to = next.step;
            walk<T, LANES, NONLIN>(l, p, s, from, to, S);
        }
        if (end < c.T)
            hand_over(l, l.handed, p, p.piece + 1, S);
        else
            store_columns<float, LANES>(c.last + p.element, p.any ? c.columns : 0, p.lane, S);
    }
    if (l.noting)
        return;
    __syncthreads();
    if (l.eights)
        put_outputs<T, 8>(l, p, s);
    else
        put_outputs<T, 1>(l, p, s);
}

/* ---- backward ---- */

/* A thread's eight of a slot: no two threads of a warp meet in a bank, nor do
 * the same columns and row of successive steps. */
static __device__ __forceinline__ void leave_slot(const layout &l, float *slot, const eight &e)
{
    for (int i = 0; i < 2; i++) {
        four<float> f;
        for (int j = 0; j < 4; j++)
            f.x[j] = e.x[4 * i + j];
        *(four<float> *)(slot + (i * l.carriers + threadIdx.x) * 4) = f;
    }
}

static __device__ __forceinline__ eight take_slot(const layout &l, const float *slot)
{
    eight e;
    for (int i = 0; i < 2; i++) {
        const four<float> f = *(const four<float> *)(slot + (i * l.carriers + threadIdx.x) * 4);
        for (int j = 0; j < 4; j++)
            e.x[4 * i + j] = f.x[j];
    }
    return e;
}

/* S through steps from ... to - 1 of the piece, left in a slot after each;
 * delta takes v's place. */
template <typename T, int LANES, int NONLIN>
static __device__ __forceinline__ void replay(const layout &l, const place &p, const staged &s,
                                              int from, int to, eight &S)
{
    const bool writes = p.any && p.lane == 0;
    int number = from * l.stride + p.number;
    float *slot = s.slots + (from + 1) * l.slot;
    table at = table_of(l, p, s, from);
    meal now = serve<LANES>(&at, l, p, from + 1 < to);
    float reads = lanes_sum<LANES>(dot(S, now.read));

    #pragma unroll 2
    for (int i = from; i < to; i++) {
        const meal then = serve<LANES>(&at, l, p, i + 2 < to);
        const float delta = advance<T, NONLIN>(S, now, reads);
        const float next = lanes_sum<LANES>(dot(S, then.read));
        leave_slot(l, slot, S);
        row_has_read<LANES>();
        if (writes) {
            s.v[number] = delta;
            if (l.c.z_outside)
                s.reads[number] = reads;
        }
        slot += l.slot;
        number += l.stride;
        reads = next;
        now = then;
    }
}

/* Rounded checkpoints are where the replay begins anew. */
template <typename T, int LANES, int NONLIN>
static __device__ __forceinline__ void replay_piece(const layout &l, const place &p,
                                                    const staged &s)
{
    const call &c = l.c;
    kept next = first_kept(c, p);
    eight S = {};
    for (int from = 0, to; from < p.steps; from = to) {
        if (from == next.step) {
            S = kept_state<LANES>(c, p, next.segment);
            find_next(&next, c, p);
        } else {
            S = take_over(l, l.noted, p, p.piece);
        }
        to = c.kept == KEPT_F32 ? p.steps : next.step;
        leave_slot(l, s.slots + from * l.slot, S);
        replay<T, LANES, NONLIN>(l, p, s, from, to, S);
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

template <int LANES>
static __device__ __forceinline__ meal_back serve_back(table_back *at, const layout &l,
                                                       const place &p, bool more)
{
    const int key = more ? l.wide : 0, number = more ? l.stride : 0;
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

/* Back over the piece; G is dL/dS after, then before it.  What an element of
 * the state adds to write's gradient (and read's, if they are one) is left in
 * the slot of the state after the step, which nobody needs any more; dv takes
 * delta's place. */
template <int LANES, int NONLIN>
static __device__ __forceinline__ void retreat(const layout &l, const place &p, const staged &s,
                                               eight &G)
{
    const bool writes = p.any && p.lane == 0;
    const int last = p.steps - 1, key = last * l.wide + p.key;
    int number = last * l.stride + p.number;
    float *slot = s.slots + p.steps * l.slot, *dread_at = s.dread + last * l.slot;
    table_back at = {s.write + key, s.read + key, s.query + key,
                     s.dy + number, s.z + number, numbers_of(p, s) + number};
    meal_back now = serve_back<LANES>(&at, l, p, last > 0);
    eight after = take_slot(l, slot), before = take_slot(l, slot - l.slot);

    #pragma unroll 2
    for (int i = last; i >= 0; i--) {
        for (int j = 0; j < COLUMNS; j++) {
            G.x[j] = fmaf(now.dy, now.query.x[j], G.x[j]);
            if (NONLIN == E74_TANH)
                G.x[j] *= fmaf(-after.x[j], after.x[j], 1.0f);
        }
        const float dv = lanes_sum<LANES>(dot(G, now.write)), dreads = -dv * now.z;
        const float with_write = l.apart ? 0 : dreads;
        const meal_back then = serve_back<LANES>(&at, l, p, i > 1);
        const eight next = take_slot(l, i > 0 ? slot - 2 * l.slot : slot - l.slot);
        eight dwrite;
        for (int j = 0; j < COLUMNS; j++) {
            dwrite.x[j] = fmaf(with_write, before.x[j], now.delta * G.x[j]);
            G.x[j] = fmaf(dreads, now.read.x[j], G.x[j]);
        }
        leave_slot(l, slot, dwrite);
        if (l.apart) {
            eight dread;
            for (int j = 0; j < COLUMNS; j++)
                dread.x[j] = dreads * before.x[j];
            leave_slot(l, dread_at, dread);
        }
        row_has_read<LANES>();
        if (writes)
            s.v[number] = dv;
        slot -= l.slot;
        dread_at -= l.slot;
        number -= l.stride;
        after = before;
        before = next;
        now = then;
    }
}

/* The sums over the rows of a group, of four columns at a time and, where rows
 * are many, a part of them; a warp's threads take the same of different steps.
 * Weighted by `weight`, if there is one. */
template <int LANES>
static __device__ void sum_parts_of_rows(const layout &l, const place &p, const float *slots,
                                         const float *weight, float *to)
{
    const int quads = 2 * LANES, rows = l.c.rows;
    for (int i = threadIdx.x; i < l.steps * quads * l.parts * p.groups; i += blockDim.x) {
        const int step = i % l.steps, rest = i / l.steps, quad = rest % quads;
        const int part = rest / quads % l.parts, group = rest / quads / l.parts;
        const int first = group * rows + part * PART;
        const int end = min(first + PART, (group + 1) * rows);
        if (step >= p.steps)
            continue;
        const float *from = slots + step * l.slot + (quad / LANES * l.carriers + quad % LANES) * 4;
        const float *weights = weight ? weight + step * l.stride + spot(l, first) : NULL;
        four<float> sum = {};
        #pragma unroll 4
        for (int row = first; row < end; row++) {
            const four<float> x = *(const four<float> *)(from + row * LANES * 4);
            const float w = weight ? weights[row - first] : 1;
            for (int j = 0; j < 4; j++)
                sum.x[j] = fmaf(w, x.x[j], sum.x[j]);
        }
        *(four<float> *)(to + (part * l.steps + step) * l.wide + group * l.width + 4 * quad) = sum;
    }
}

/* Ends with a barrier. */
template <int LANES>
static __device__ void sum_rows(const layout &l, const place &p, const staged &s,
                                const float *slots, const float *weight, float *to)
{
    sum_parts_of_rows<LANES>(l, p, slots, weight, l.parts > 1 ? s.sums : to);
    __syncthreads();
    if (l.parts == 1)
        return;
    #pragma unroll 1
    for (int i = threadIdx.x; i < p.steps * l.wide; i += blockDim.x) {
        const int column = i % l.wide;
        float sum = 0;
        for (int part = 0; part < l.parts && column < l.width; part++)
            sum += s.sums[part * l.steps * l.wide + i];
        if (column < l.width)
            to[i] = sum;
    }
    __syncthreads();
}

/* ---- from what rows meet back to k, q, z ---- */

/* The gradients of k^ (with u's share), of q, and what du adds to that of z:
 * [steps][stride]. */
struct gradients {
    float *dkhat, *dq, *dz;
};

template <int LANES>
static __device__ __forceinline__ float times_row(const float *row, const float *x)
{
    float sum = 0;
    for (int j = 0; j < COLUMNS * LANES; j += 4) {
        const four<float> a = *(const four<float> *)(row + j), b = *(const four<float> *)(x + j);
        for (int n = 0; n < 4; n++)
            sum = fmaf(a.x[n], b.x[n], sum);
    }
    return sum;
}

/* For a factor, given the gradients of the three keys; dz only with an inner z. */
template <int LANES>
static __device__ void through_factors(const layout &l, const place &p, const staged &s,
                                       const float *dwrite, const float *dread, const gradients &g)
{
    for (int i = threadIdx.x; i < p.steps * l.c.N; i += blockDim.x) {
        const int step = i / l.c.N, n = i % l.c.N, at = step * l.stride + n;
        const float *W_r = s.W_r + n * l.width, *V = s.V + n * l.width;
        const float du = times_row<LANES>(V, dread + step * l.wide);
        const float dkhat = times_row<LANES>(W_r, dwrite + step * l.wide);
        g.dkhat[at] = l.c.z_inside ? fmaf(s.z[at], du, dkhat) : dkhat + du;
        g.dq[at] = times_row<LANES>(V, s.dquery + step * l.wide);
        if (l.c.z_inside)
            g.dz[at] = du * s.khat[at];
    }
}

/* The piece's shares of dV and dW_r: four of a row's columns a thread. */
static __device__ void factor_gradients(const layout &l, const place &p, const staged &s,
                                        const float *dwrite, const float *dread)
{
    const call &c = l.c;
    const int quads = l.width / 4;
    const int64_t share = (p.bh * l.pieces + p.piece) * c.M;
    for (int i = threadIdx.x; i < 2 * quads * c.N; i += blockDim.x) {
        const int n = i % c.N, column = i / c.N % quads * 4;
        const bool of_V = i / c.N / quads == 0;
        four<float> sum = {};
        for (int step = 0; step < p.steps; step++) {
            const int at = step * l.stride + n, key = step * l.wide + column;
            const four<float> a = *(const four<float> *)((of_V ? dread : dwrite) + key);
            const four<float> b = *(const four<float> *)(s.dquery + key);
            const float x = of_V ? s.u[at] : s.khat[at], q = of_V ? s.q[at] : 0;
            for (int j = 0; j < 4; j++)
                sum.x[j] = fmaf(q, b.x[j], fmaf(x, a.x[j], sum.x[j]));
        }
        for (int j = 0; j < 4 && column + j < c.columns; j++)
            (of_V ? l.dV
                  : l.dW_r)[share + (of_V ? n * c.columns + column + j : (column + j) * c.N + n)] =
                sum.x[j];
    }
}

/* For blocks, where the keys are k^, u and q themselves. */
static __device__ void through_gate(const layout &l, const place &p, const staged &s,
                                    const gradients &g)
{
    for (int i = threadIdx.x; i < p.steps * p.rows; i += blockDim.x) {
        const int at = i / p.rows * l.stride + spot(l, i % p.rows);
        const float du = g.dz[at];
        g.dkhat[at] = fmaf(s.z[at], du, g.dkhat[at]);
        g.dz[at] = du * s.khat[at];
    }
}

/* From dk^ to dk, as far as it is k^'s. */
static __device__ void through_norm(const layout &l, const place &p, const staged &s, float *dkhat)
{
    for (int i = threadIdx.x; i < shares(l, p); i += blockDim.x) {
        const share a = share_of(l, p, i);
        const int at = a.step * l.stride + a.group * l.width, end = a.any ? l.c.group : 0;
        float along = 0;
        for (int j = a.sub; j < end; j += l.share)
            along = fmaf(s.khat[at + j], dkhat[at + j], along);
        along = shared_sum(l, along);
        const float length = a.any ? s.length[a.step * p.groups + a.group] : 0;
        const float scale = 1 / (length + (float)E74_EPSILON);
        along = length > 0 ? along / length : 0;
        for (int j = a.sub; j < end; j += l.share)
            dkhat[at + j] = fmaf(-along, s.khat[at + j], scale * dkhat[at + j]);
    }
}

template <typename T, int WIDE>
static __device__ __forceinline__ void put_gradients(const layout &l, const place &p,
                                                     const staged &s, const gradients &g)
{
    const call &c = l.c;
    #pragma unroll 1
    for (int i = threadIdx.x; i < items<WIDE>(p); i += blockDim.x) {
        const item it = item_of<WIDE>(l, p, i);
        const int step = it.step * l.stride;
        const some<WIDE> dq = get<WIDE>(l, g.dq + step, it.number);
        const some<WIDE> dv = get<WIDE>(l, s.v + step, it.number);
        some<WIDE> dk = get<WIDE>(l, g.dkhat + step, it.number), dz = {};
        for (int j = 0; j < WIDE; j++)
            dk.x[j] += (c.dq ? 0 : dq.x[j]) + (l.tied_v ? dv.x[j] : 0);
        put_out<T, WIDE>(c.dk, it.at, dk);
        if (!l.tied_v)
            put_out<T, WIDE>(c.dv, it.at, dv);
        if (c.dq)
            put_out<T, WIDE>(c.dq, it.at, dq);
        if (!c.dz)
            continue;
        if (c.z_inside)
            dz = get<WIDE>(l, g.dz + step, it.number);
        if (c.z_outside) {
            const some<WIDE> reads = get<WIDE>(l, s.reads + step, it.number);
            for (int j = 0; j < WIDE; j++)
                dz.x[j] = fmaf(-dv.x[j], reads.x[j], dz.x[j]);
        }
        put_out<T, WIDE>(c.dz, it.at, dz);
    }
}

/* The rows' walk is over: all else of the piece.  The keys' gradients take the
 * places of query and read; a factor's N gradients those of the slots. */
template <typename T, int LANES>
static __device__ void finish(const layout &l, const place &p, const staged &s)
{
    float *const dwrite = s.query, *const dread = s.read;
    gradients g = {dwrite, s.dquery, dread};

    sum_rows<LANES>(l, p, s, s.slots + l.slot, NULL, dwrite);
    if (l.apart)
        sum_rows<LANES>(l, p, s, s.dread, NULL, dread);
    if (l.c.lowrank) {
        const int numbers = l.steps * l.stride;
        g = {s.slots, s.slots + numbers, s.slots + 2 * numbers};
        through_factors<LANES>(l, p, s, dwrite, dread, g);
        factor_gradients(l, p, s, dwrite, dread);
        __syncthreads();
    } else if (l.c.z_inside) {
        through_gate(l, p, s, g);
        __syncthreads();
    }
    through_norm(l, p, s, g.dkhat);
    __syncthreads();
    if (l.eights)
        put_gradients<T, 8>(l, p, s, g);
    else
        put_gradients<T, 1>(l, p, s, g);
}

template <typename T, int LANES, int NONLIN>
__global__ void __launch_bounds__(MOST) backward_narrow(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const call &c = l.c;
    const place p = take_turn<LANES>(l, true);
    const int columns = p.any ? c.columns : 0;
    staged s;
    carve(l, true, buffer, &s);

    stage<T, true>(l, p, s);
    if (p.carries)
        replay_piece<T, LANES, NONLIN>(l, p, s);
    __syncthreads();
    sum_rows<LANES>(l, p, s, s.slots + l.slot, s.dy, s.dquery);
    if (p.carries) {
        eight G = p.piece + 1 == l.pieces ? load_floats<LANES>(c.dlast + p.element, columns, p.lane)
                                          : take_over(l, l.handed, p, p.piece);
        retreat<LANES, NONLIN>(l, p, s, G);
        if (p.piece > 0)
            hand_over(l, l.handed, p, p.piece - 1, G);
        else
            store_columns<float, LANES>(c.dfirst + p.element, columns, p.lane, G);
    }
    __syncthreads();
    finish<T, LANES>(l, p, s);
}

/* dV0, and each sequence's share of dW_r: over its pieces, first piece first. */
__global__ void __launch_bounds__(THREADS) sum_pieces(layout l, float *dV0)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, M = l.c.M;
    if (i >= 2 * l.c.BH * M)
        return;
    const bool of_V = i < l.c.BH * M;
    const int64_t e = of_V ? i : i - l.c.BH * M;
    const float *from = (of_V ? l.dV : l.dW_r) + e / M * l.pieces * M + e % M;
    float sum = 0;
    #pragma unroll 8
    for (int64_t piece = 0; piece < l.pieces; piece++)
        sum += from[piece * M];
    (of_V ? dV0 : l.each_dW_r)[e] = sum;
}

enum { ADDERS = 8 }; /* threads of an element of dW_r */

/* dW_r[h]: over the sequences, each adder every eighth, then over these. */
__global__ void __launch_bounds__(32 * ADDERS) sum_sequences(layout l, float *dW_r)
{
    __shared__ float sums[ADDERS][32];
    const int64_t heads_m = l.c.H * l.c.M, e = (int64_t)blockIdx.x * 32 + threadIdx.x % 32;
    const int adder = threadIdx.x / 32;
    float sum = 0;
    #pragma unroll 8
    for (int64_t b = adder; b < l.c.BH / l.c.H && e < heads_m; b += ADDERS)
        sum += l.each_dW_r[b * heads_m + e];
    sums[adder][threadIdx.x % 32] = sum;
    __syncthreads();
    if (adder > 0 || e >= heads_m)
        return;
    for (int i = 1; i < ADDERS; i++)
        sum += sums[i][threadIdx.x];
    dW_r[e] = sum;
}

/* ---- launches ---- */

static int least(int a, int b)
{
    return a < b ? a : b;
}

static size_t shared_bytes(const layout &l, bool back)
{
    staged s;
    return sizeof(float) * carve(l, back, NULL, &s);
}

/* `back`: as backward cuts time, be it for forward's kernel. */
static layout layout_of(const struct frame *f, bool back)
{
    layout l = {};
    call &c = l.c = call_of(f);

    l.lanes = c.columns > COLUMNS ? 2 : 1;
    l.width = COLUMNS * l.lanes;
    l.groups = least(least(CARRIERS / l.lanes / c.rows, KEY_WIDTH / l.width), c.N / c.rows);
    l.groups = c.lowrank ? 1 : l.groups;
    l.sets = (int)ceil_div(c.N / c.rows, l.groups);
    l.rows = l.groups * c.rows;
    l.carriers = padded(l.rows * l.lanes, 32);
    l.stride = (c.lowrank ? padded(c.N, COLUMNS) : l.groups * l.width) + 4;
    l.wide = c.lowrank ? l.width + 4 : l.stride;
    l.slot = COLUMNS * l.carriers + 4;
    l.parts = (int)ceil_div(c.rows, PART);
    l.share = c.lowrank ? 8 : 1;
    l.eights = c.N % 8 == 0 && l.rows % 8 == 0 && (c.lowrank || c.columns % 4 == 0);
    l.gap = c.lowrank ? 0 : l.width - c.columns;
    l.reciprocal = (int)ceil_div(1 << 16, c.columns);
    l.gaps = c.lowrank ? c.N % 4 != 0 : l.gap != 0;
    l.apart = c.lowrank || c.z_inside;
    l.tied_v = f->choice[E74_PROJ] == E74_TIED_KVQ;
    l.steps = back ? STEPS : FORWARD_STEPS;
    while (l.steps > 1 && shared_bytes(l, back) > (size_t)(back ? SHARED_MAX : SHARED_MAX / 2))
        l.steps /= 2;
    l.steps = (int)(l.steps < c.T ? l.steps : c.T);
    l.pieces = ceil_div(c.T, l.steps);
    const int most = !back && l.pieces * c.BH * l.sets >= CROWD ? THREADS / 2 : THREADS;
    l.threads = least(padded(l.steps * l.rows / (l.eights ? 8 : 1), 32), most);
    l.threads = l.threads < l.carriers ? l.carriers : l.threads;
    return l;
}

/* Do pieces begin between checkpoints? */
static bool notes(const layout &l)
{
    return l.steps % l.c.K != 0 && l.pieces > 1;
}

static int64_t hand_floats(const layout &l)
{
    return l.pieces * l.c.BH * l.sets * l.carriers * COLUMNS;
}

enum { TURN = 32 }; /* floats, so that what is handed over begins on a line */

/* The first parts of the workspace are those that begin as UNSENT; a turn begins
 * at -1, which is the same.  Returns its floats. */
static int64_t divide(layout *l, layout *before, enum pass p, float *work, int64_t *unsent)
{
    const call &c = l->c;
    int64_t n = TURN;

    l->turn = (unsigned *)work;
    l->handed = work + n;
    n += hand_floats(*l);
    if (p == BACKWARD && notes(*l)) {
        *before = *l;
        before->noting = true;
        before->turn = (unsigned *)(work + n);
        l->noted = before->handed = work + n + TURN;
        n += TURN + hand_floats(*l);
    }
    *unsent = n;
    if (p == FORWARD || !c.lowrank)
        return n;
    l->dV = work + n;
    l->dW_r = l->dV + c.BH * l->pieces * c.M;
    l->each_dW_r = l->dW_r + c.BH * l->pieces * c.M;
    return n + (2 * l->pieces + 1) * c.BH * c.M;
}

template <typename T, int LANES, int NONLIN>
static int launch(const layout &l, bool back)
{
    const size_t shared = shared_bytes(l, back);
    void (*const kernel)(layout) =
        back ? backward_narrow<T, LANES, NONLIN> : forward_narrow<T, LANES, NONLIN>;

    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    kernel<<<l.pieces * l.c.BH * l.sets, l.threads, shared, gpu_stream()>>>(l);
    return cudaGetLastError();
}

template <typename T>
static int launch(const layout &l, bool back)
{
    const bool tanh = l.c.nonlin == E74_TANH;
    if (l.lanes == 1)
        return tanh ? launch<T, 1, E74_TANH>(l, back) : launch<T, 1, E74_LINEAR>(l, back);
    return tanh ? launch<T, 2, E74_TANH>(l, back) : launch<T, 2, E74_LINEAR>(l, back);
}

template <typename T>
static int forward(const struct frame *f)
{
    layout l = layout_of(f, false), none;
    int64_t unsent;

    divide(&l, &none, FORWARD, (float *)f->work, &unsent);
    CUDA(cudaMemsetAsync(f->work, 0xff, unsent * sizeof(float), gpu_stream()));
    return launch<T>(l, false);
}

template <typename T>
static int backward(const struct frame *f)
{
    layout l = layout_of(f, true), before = {};
    const call &c = l.c;
    int64_t unsent;

    divide(&l, &before, BACKWARD, (float *)f->work, &unsent);
    CUDA(cudaMemsetAsync(f->work, 0xff, unsent * sizeof(float), gpu_stream()));
    int e = before.noting ? launch<T>(before, false) : 0;
    if (!e)
        e = launch<T>(l, true);
    if (e || !c.lowrank)
        return e;
    sum_pieces<<<ceil_div(2 * c.BH * c.M, THREADS), THREADS, 0, gpu_stream()>>>(l, c.dV0);
    CUDA(cudaGetLastError());
    sum_sequences<<<ceil_div(c.H * c.M, 32), 32 * ADDERS, 0, gpu_stream()>>>(l, c.dW_r);
    return cudaGetLastError();
}

static size_t work(const struct frame *f, enum pass p)
{
    layout l = layout_of(f, p == BACKWARD), before;
    int64_t unsent;
    return sizeof(float) * divide(&l, &before, p, NULL, &unsent);
}

static const char *declines(const struct frame *f)
{
    const int state = f->choice[E74_STATE], nonlin = f->choice[E74_NONLIN];
    const char *no = e74_plain32.declines(f);

    if (no)
        return no;
    if (state != E74_BLOCKDIAG && state != E74_LOWRANK)
        return "only for state = blockdiag and lowrank";
    if (DIM(f, state == E74_LOWRANK ? 'R' : 'L') > COLUMNS * LANES_MAX)
        return state == E74_LOWRANK ? "rank beyond 16" : "block_size beyond 16";
    if (nonlin != E74_TANH && nonlin != E74_LINEAR)
        return "rmsnorm and frobnorm tie the rows of a state to each other";
    const layout l = layout_of(f, true);
    if (l.carriers > MOST)
        return l.lanes == 1 ? "n_state beyond 512" : "n_state beyond 256 where rank is beyond 8";
    if (shared_bytes(l, true) > SHARED_MAX)
        return "a state and its step are more than shared memory holds";
    if (l.pieces * l.c.BH * l.sets > 0x7fffffff)
        return "more pieces of sequences than a grid has blocks";
    return NULL;
}

static const char name[] = "narrow";
static const char idea[] = "a short row a thread; blocks hand pieces of time on to each other";

GPU_IMPL(extern "C", 32, float, e74_narrow, name, idea, work, declines, "ex2.approx, rcp.approx",
         3e-7);
GPU_IMPL(extern "C", 16, __nv_bfloat16, e74_narrow, name, idea, work, declines, "tanh.approx",
         5e-4);
