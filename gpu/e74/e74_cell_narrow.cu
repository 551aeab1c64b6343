/* e74_cell, kernel `narrow`: states with short rows, blocks and factors of at most
 * 16 columns.
 *
 * A row belongs to one thread, which has eight of its columns in registers, or to two
 * threads where there are more columns.  A step is a dependency chain (dot product,
 * residual, update, f) of some 100 cycles; the eight f's of a thread take most of it.
 *
 * Time is cut into chunks.  A block processes one chunk of one (sequence, head), or of
 * some of its state blocks where these are many.  It loads the chunk's keys into shared
 * memory, normalises them and, where the state is a factor, multiplies them by W_r and
 * V; receives the state from the block of the previous chunk; scans; sends the state on;
 * and only then writes its results.  So many SMs do everything but the scan in parallel,
 * off the chain.
 *
 * Backward likewise, last chunk first: the chunk is replayed from its checkpoint, which
 * depends on no other block, and its states stay in shared memory.  The gradient G of
 * the state is sent on.  As the scan goes back, the contribution of a state element to
 * a key's gradient overwrites the element; sums over rows follow, then the gradients of
 * k, q and z.  Chunks that begin between checkpoints need their initial state: a launch
 * of the forward kernel over all segments stores it before.
 *
 * A hand-over consists of the values themselves: the slots of a message initially hold
 * a NaN that no arithmetic produces, and the next block polls them until every value
 * differs from it.  Blocks take a ticket from an atomic counter as they start, and
 * tickets follow the order of the scan, so that a block only waits for blocks that are
 * running or done.
 *
 * The step uses fmaf and never a bare a * b + c, so that forward and replay
 * cannot be contracted differently; chunks, and sums within and over them, are
 * the same for every checkpoint interval. */
#include "gpu/e74/columns.cuh"
#include "gpu/device/flags.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/math.cuh"
#include "gpu/e74/e74_cell.cuh"

enum {
    STEPS_BACKWARD = 64, /* of a chunk, backward, at most */
    STEPS_FORWARD = 128, /* the same, forward */
    SCAN_THREADS = 64,   /* of a block, where a state's rows can be divided */
    KEY_WIDTH = 128,     /* padded columns of a block's keys, likewise */
    THREADS = 256,       /* of a block, where there is enough work */
    MANY_BLOCKS = 1024,  /* from so many on, forward has THREADS / 2 */
    THREADS_MAX = 512,   /* where a state has many rows */
    LANES_MAX = 2,
    PART_ROWS = 16,              /* rows that one thread adds up */
    SHARED_MAX = 227 * 1024 - 16 /* less the ticket */
};

/* The bits of a value that has not been sent. */
#define UNSENT 0xffffffffu

/* ---- work distribution ---- */

struct layout {
    call c;
    int lanes, width;        /* threads of a row; padded columns of a row */
    int groups, sets;        /* groups of rows of a block; blocks per (sequence, head) */
    int rows, scan_threads;  /* of a block; the first threads of a block, in whole warps */
    int threads;             /* of a block, scan threads and others */
    int stride, key_stride;  /* floats per step in shared memory: of vectors of N; of keys */
    int state_stride;        /* floats per step in shared memory: of states */
    int steps;               /* of a chunk */
    int parts;               /* of a group's rows, summed by different threads */
    int group_threads;       /* that sum the squares of a group of k */
    bool vectorised;         /* are vectors of N loaded eight elements at a time? */
    bool reads_padding;      /* is padding within a step's vectors read? */
    int padding, reciprocal; /* after each group of columns in them; 2^16 / columns */
    bool separate_dread;     /* are the gradients of write and read different sums? */
    bool tied_v;             /* v is k: dv is added to dk */
    bool only_initial;       /* the forward kernel stores only the initial states of chunks */
    int64_t chunks;
    unsigned *ticket;
    float *handover;       /* [chunks][blocks][2][scan_threads][4]: states, or their gradients */
    float *initial_states; /* likewise: the states before chunks that begin between checkpoints */
    float *dV, *dW_r;      /* [BH][chunks][M]: partial sums of the chunks */
    float *sequence_dW_r;  /* [BH][M] */
};

struct coord {
    int64_t chunk, bh, block; /* block: within its chunk */
    int64_t t;
    int steps;
    int first, rows, groups; /* first of N, and the number of the block's rows and groups */
    bool scans, any;         /* is it a scan thread; does its row exist? */
    int lane;
    int row_offset, key_offset; /* of the row within the vectors and keys of a step */
    int64_t element;            /* of the row within the states */
};

/* Index in shared memory of element i of a block: keys of blocks are padded.
 * (The division by the columns, at most 16, is exact for i up to 4096.) */
static __device__ __forceinline__ int smem_index(const layout &l, int i)
{
    return i + (i * l.reciprocal >> 16) * l.padding;
}

/* Takes the block's ticket; ends with a barrier. */
template <int LANES>
static __device__ coord take_ticket(const layout &l, bool back)
{
    __shared__ unsigned ticket;
    if (threadIdx.x == 0)
        ticket = atomicAdd(l.ticket, 1u) + 1; /* the counter begins at -1 */
    __syncthreads();

    const call &c = l.c;
    const int64_t blocks = c.BH * l.sets;
    const int set = (int)(ticket % l.sets), row = (int)threadIdx.x / LANES;
    coord p;
    p.chunk = back ? l.chunks - 1 - ticket / blocks : ticket / blocks;
    p.block = ticket % blocks;
    p.bh = p.block / l.sets;
    p.t = p.chunk * l.steps;
    p.steps = (int)min((int64_t)l.steps, c.T - p.t);
    p.groups = min(l.groups, c.N / c.rows - set * l.groups);
    p.first = set * l.groups * c.rows;
    p.rows = p.groups * c.rows;
    p.scans = (int)threadIdx.x < l.scan_threads;
    p.any = row < p.rows;
    p.lane = threadIdx.x % LANES;
    p.row_offset = p.any ? smem_index(l, row) : 0;
    p.key_offset = p.any ? row / c.rows * l.width : 0;
    p.element = p.bh * c.M + (int64_t)(p.first + row) * c.columns;
    return p;
}

/* ---- hand-over between blocks ---- */

static __device__ float *handover_slot(const layout &l, float *at, const coord &p, int64_t chunk,
                                       int i)
{
    return at + (((chunk * l.c.BH * l.sets + p.block) * 2 + i) * l.scan_threads + threadIdx.x) * 4;
}

static __device__ __forceinline__ void send_value(const layout &l, float *at, const coord &p,
                                                  int64_t chunk, const eight &e)
{
    for (int i = 0; i < 2; i++) {
        float x[4];
        for (int j = 0; j < 4; j++)
            x[j] = __float_as_uint(e.x[4 * i + j]) == UNSENT ? __uint_as_float(0x7fffffff)
                                                             : e.x[4 * i + j];
        store_relaxed(handover_slot(l, at, p, chunk, i), x);
    }
}

/* Called by whole warps. */
static __device__ __forceinline__ eight receive_value(const layout &l, float *at, const coord &p,
                                                      int64_t chunk)
{
    const float *const from[] = {handover_slot(l, at, p, chunk, 0),
                                 handover_slot(l, at, p, chunk, 1)};
    for (;;) {
        eight e;
        bool there = true;
        for (int i = 0; i < 2; i++)
            load_relaxed(from[i], e.x + 4 * i);
        for (int j = 0; j < OCTET; j++)
            there = there && __float_as_uint(e.x[j]) != UNSENT;
        if (__all_sync(0xffffffff, there))
            return e;
        spin_yield();
    }
}

/* ---- the operands of a chunk in shared memory ---- */

struct chunk_smem {
    float *khat, *u, *q, *z, *v; /* [steps][stride]; u is khat without an inner z */
    float *dy, *reads;           /* [steps][stride] backward; reads only with an outer z */
    float *write, *read, *query; /* [steps][key_stride]; of blocks they are khat, u and q */
    float *dquery;               /* [steps][key_stride] backward */
    float *length;               /* [steps][groups] backward: of k */
    float *W_r, *V;              /* [N][width], padded with zeros */
    float *sums;                 /* [parts][steps][key_stride] where parts > 1 */
    float *states;               /* [steps + 1][state_stride] backward */
    float *dread; /* [steps][state_stride] backward: addends of read's gradient, if separate */
};

static __host__ __device__ int padded(int n, int to)
{
    return (n + to - 1) / to * to;
}

/* Returns its size in floats. */
static __host__ __device__ int divide_smem(const layout &l, bool back, float *at, chunk_smem *s)
{
    const int element_floats = l.steps * l.stride, keys = l.steps * l.key_stride,
              rows = padded(l.c.N, 4);
    int n = 0;
    struct {
        float **to;
        int floats;
        bool needed;
    } const parts[] = {
        {&s->khat, element_floats, true},
        {&s->q, element_floats, true},
        {&s->v, element_floats, true},
        {&s->u, element_floats, l.c.z_inside != 0},
        {&s->z, element_floats, l.c.z != NULL},
        {&s->dy, element_floats, back},
        {&s->reads, element_floats, back && l.c.z_outside},
        {&s->write, keys, l.c.lowrank != 0},
        {&s->read, keys, l.c.lowrank != 0},
        {&s->query, keys, l.c.lowrank != 0},
        {&s->dquery, keys, back},
        {&s->length, padded(l.steps * l.groups, 4), back},
        {&s->W_r, rows * l.width, l.c.lowrank != 0},
        {&s->V, rows * l.width, l.c.lowrank != 0},
        {&s->sums, l.parts * keys, back && l.parts > 1},
        {&s->states, (l.steps + 1) * l.state_stride, back},
        {&s->dread, l.steps * l.state_stride, back && l.separate_dread},
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

/* The elements of a step that a thread accesses at once: eight, or one where eight are
 * not contiguous and aligned in global memory, and in fours in shared memory. */
template <int ELEMENTS>
struct alignas(ELEMENTS == 1 ? 4 : 16) vec {
    float x[ELEMENTS];
};

template <int ELEMENTS>
static __device__ __forceinline__ void store_smem(const layout &l, float *step, int i,
                                                  const vec<ELEMENTS> &e)
{
    if (ELEMENTS == 1)
        step[smem_index(l, i)] = e.x[0];
    else
        for (int h = 0; h < ELEMENTS; h += 4)
            *(four<float> *)(step + smem_index(l, i + h)) = *(const four<float> *)(e.x + h);
}

template <int ELEMENTS>
static __device__ __forceinline__ vec<ELEMENTS> load_smem(const layout &l, const float *step, int i)
{
    vec<ELEMENTS> e;
    if (ELEMENTS == 1)
        e.x[0] = step[smem_index(l, i)];
    else
        for (int h = 0; h < ELEMENTS; h += 4)
            *(four<float> *)(e.x + h) = *(const four<float> *)(step + smem_index(l, i + h));
    return e;
}

/* From and to global memory. */
template <typename T, int ELEMENTS>
static __device__ __forceinline__ vec<ELEMENTS> load_global(const void *from, int64_t at)
{
    vec<ELEMENTS> e;
    if (ELEMENTS == 1) {
        e.x[0] = load((const T *)from + at);
    } else {
        const eight w = widened(load_columns<T, 1, true>((const T *)from + at, OCTET, 0));
        for (int j = 0; j < ELEMENTS; j++)
            e.x[j] = w.x[j];
    }
    return e;
}

template <typename T, int ELEMENTS>
static __device__ __forceinline__ void store_global(void *to, int64_t at, const vec<ELEMENTS> &e)
{
    if (ELEMENTS == 1) {
        store((T *)to + at, e.x[0]);
    } else {
        eight w;
        for (int j = 0; j < ELEMENTS; j++)
            w.x[j] = e.x[j];
        store_columns<T, 1>((T *)to + at, OCTET, 0, w);
    }
}

/* Coordinates of the i-th such vector of a chunk. */
struct item {
    int step, element;
    int64_t at;
};

template <int ELEMENTS>
static __device__ __forceinline__ int items(const coord &p)
{
    return p.steps * p.rows / ELEMENTS;
}

template <int ELEMENTS>
static __device__ __forceinline__ item item_of(const layout &l, const coord &p, int i)
{
    item it;
    it.step = i / (p.rows / ELEMENTS);
    it.element = i % (p.rows / ELEMENTS) * ELEMENTS;
    it.at = ((p.t + it.step) * l.c.BH + p.bh) * l.c.N + p.first + it.element;
    return it;
}

/* Loads k, q, v, z; backward also computes dy. */
template <typename T, bool BACK, int ELEMENTS>
static __device__ __forceinline__ void load_keys(const layout &l, const coord &p,
                                                 const chunk_smem &s)
{
    const call &c = l.c;
    #pragma unroll 1
    for (int i = threadIdx.x; i < items<ELEMENTS>(p); i += blockDim.x) {
        const item it = item_of<ELEMENTS>(l, p, i);
        const int step = it.step * l.stride;
        const vec<ELEMENTS> k = load_global<T, ELEMENTS>(c.k, it.at),
                            q = load_global<T, ELEMENTS>(c.q, it.at);
        const vec<ELEMENTS> v = load_global<T, ELEMENTS>(c.v, it.at);
        vec<ELEMENTS> z = {}, y = {}, dy = {};
        if (c.z)
            z = load_global<T, ELEMENTS>(c.z, it.at);
        if (BACK) {
            y = load_global<T, ELEMENTS>(c.y, it.at);
            dy = load_global<T, ELEMENTS>(c.dout, it.at);
        }
        store_smem(l, s.khat + step, it.element, k);
        store_smem(l, s.q + step, it.element, q);
        store_smem(l, s.v + step, it.element, v);
        if (c.z)
            store_smem(l, s.z + step, it.element, z);
        for (int j = 0; j < ELEMENTS && BACK; j++) {
            const float gate = 1 / (1 + expf(-y.x[j]));
            dy.x[j] *= y.x[j] * gate * (2 + y.x[j] * (1 - gate));
        }
        if (BACK)
            store_smem(l, s.dy + step, it.element, dy);
    }
}

/* The two matrices of a factor, one row per element of N. */
template <typename T>
static __device__ void load_factors(const layout &l, const coord &p, const chunk_smem &s)
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

/* A group of k, or of its gradient, belongs to l.group_threads neighbouring threads. */
struct group_item {
    int step, group, sub;
    bool any;
};

static __device__ __forceinline__ group_item group_item_of(const layout &l, const coord &p, int i)
{
    group_item a;
    const int which = i / l.group_threads;
    a.sub = i % l.group_threads;
    a.step = which / p.groups;
    a.group = which % p.groups;
    a.any = a.step < p.steps;
    return a;
}

static __device__ __forceinline__ int group_items(const layout &l, const coord &p)
{
    return padded(p.steps * p.groups * l.group_threads, 32);
}

static __device__ __forceinline__ float group_sum(const layout &l, float x)
{
    #pragma unroll 1
    for (int d = l.group_threads / 2; d; d /= 2)
        x += __shfl_xor_sync(0xffffffff, x, d);
    return x;
}

/* k <- k^; computes u. */
template <bool BACK>
static __device__ void normalise(const layout &l, const coord &p, const chunk_smem &s)
{
    for (int i = threadIdx.x; i < group_items(l, p); i += blockDim.x) {
        const group_item a = group_item_of(l, p, i);
        const int at = a.step * l.stride + a.group * l.width, end = a.any ? l.c.group : 0;
        float squares = 0;
        for (int j = a.sub; j < end; j += l.group_threads)
            squares = fmaf(s.khat[at + j], s.khat[at + j], squares);
        const float length = sqrtf(group_sum(l, squares));
        const float scale = 1 / (length + (float)E74_EPSILON);
        for (int j = a.sub; j < end; j += l.group_threads) {
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

/* The keys of a factor's rows: W_r k^, V^T u, V^T q. */
static __device__ void factor_keys(const layout &l, const coord &p, const chunk_smem &s)
{
    const int quads = l.width / 4;
    for (int i = threadIdx.x; i < l.steps * quads * 3; i += blockDim.x) {
        const int step = i % l.steps, quad = i / l.steps % quads, which = i / l.steps / quads;
        if (step >= p.steps)
            continue;
        const float *A = which == 0 ? s.W_r : s.V;
        const float *x = which == 0 ? s.khat : which == 1 ? s.u : s.q;
        float *to = which == 0 ? s.write : which == 1 ? s.read : s.query;
        *(four<float> *)(to + step * l.key_stride + 4 * quad) =
            times_factor(l, A + 4 * quad, x + step * l.stride);
    }
}

/* Loads all operands of the scan; ends with a barrier. */
template <typename T, bool BACK>
static __device__ __forceinline__ void load_chunk(const layout &l, const coord &p,
                                                  const chunk_smem &s)
{
    if (l.c.lowrank)
        load_factors<T>(l, p, s);
    if (l.reads_padding) {
        for (int i = threadIdx.x; i < p.steps * l.stride; i += blockDim.x)
            s.khat[i] = s.u[i] = s.q[i] = 0;
        __syncthreads();
    }
    if (l.vectorised)
        load_keys<T, BACK, 8>(l, p, s);
    else
        load_keys<T, BACK, 1>(l, p, s);
    __syncthreads();
    normalise<BACK>(l, p, s);
    __syncthreads();
    if (l.c.lowrank) {
        factor_keys(l, p, s);
        __syncthreads();
    }
}

/* ---- one step ---- */

/* The operands of a row in a step, loaded from shared memory one step ahead, so that the
 * latency of the loads is not on the chain. */
struct operands {
    eight write, read, query;
    float v, z;
};

/* Addresses of the next operands. */
struct operand_ptrs {
    const float *write, *read, *query, *v, *z;
};

/* v.  Rows that do not exist must not read v, because y overwrites the element of another
 * row there: for them any other vector will do. */
static __device__ __forceinline__ const float *v_elements(const coord &p, const chunk_smem &s)
{
    return p.any ? s.v : s.khat;
}

static __device__ __forceinline__ operand_ptrs operand_ptrs_at(const layout &l, const coord &p,
                                                               const chunk_smem &s, int step)
{
    const int key_offset = step * l.key_stride + p.key_offset,
              row_offset = step * l.stride + p.row_offset;
    return {s.write + key_offset, s.read + key_offset, s.query + key_offset,
            v_elements(p, s) + row_offset, s.z + row_offset};
}

template <int LANES>
static __device__ __forceinline__ operands load_operands(operand_ptrs *at, const layout &l,
                                                         const coord &p, bool more)
{
    const int key_step = more ? l.key_stride : 0, row_step = more ? l.stride : 0;
    operands m;
    m.read = load_columns<LANES>(at->read, p.lane);
    m.write = load_columns<LANES>(at->write, p.lane);
    m.query = load_columns<LANES>(at->query, p.lane);
    m.v = *at->v;
    m.z = l.c.z_outside ? *at->z : 1;
    at->read += key_step;
    at->write += key_step;
    at->query += key_step;
    at->v += row_step;
    at->z += row_step;
    return m;
}

/* Before one of a row's threads overwrites an element that all of them read. */
template <int LANES>
static __device__ __forceinline__ void sync_row(void)
{
    if (LANES > 1)
        __syncwarp();
}

/* S <- f(S + delta k^T), given reads = S u; returns delta. */
template <typename T, int NONLIN>
static __device__ __forceinline__ float advance(eight &S, const operands &m, float reads)
{
    const float delta = fmaf(-m.z, reads, m.v);
    for (int j = 0; j < OCTET; j++) {
        const float P = fmaf(delta, m.write.x[j], S.x[j]);
        S.x[j] = NONLIN == E74_TANH ? tanh_for<T>(P) : P;
    }
    return delta;
}

/* ---- checkpoints ---- */

template <int LANES>
static __device__ __forceinline__ void store_checkpoint(const call &c, const coord &p,
                                                        int64_t segment, const eight &S)
{
    const int columns = p.any ? c.columns : 0;
    if (c.kept == KEPT_F32) {
        float *to = (float *)c.checkpoints + segment * c.BH * c.M + p.element;
        store_columns<float, LANES>(to, columns, p.lane, S);
        return;
    }
    for (int j = 0; j < OCTET; j++) {
        const int column = quad_offset<LANES>(j / 4, p.lane) + j % 4;
        if (column < columns)
            put_kept(c, segment * c.BH, p.element + column, S.x[j]);
    }
}

template <int LANES>
static __device__ __forceinline__ eight load_checkpoint(const call &c, const coord &p,
                                                        int64_t segment)
{
    const int columns = p.any ? c.columns : 0;
    if (c.kept == KEPT_F32)
        return load_floats<LANES>((const float *)c.checkpoints + segment * c.BH * c.M + p.element,
                                  columns, p.lane);
    eight S = {};
    for (int j = 0; j < OCTET; j++) {
        const int column = quad_offset<LANES>(j / 4, p.lane) + j % 4;
        if (column < columns)
            S.x[j] = get_kept(c, segment * c.BH, p.element + column);
    }
    return S;
}

/* The checkpoints of a chunk: that of segment `segment` is before step `step`;
 * step = p.steps: there are no more. */
struct checkpoint {
    int64_t segment;
    int step;
};

static __device__ __forceinline__ checkpoint first_checkpoint(const call &c, const coord &p)
{
    const int64_t segment = ceil_div(p.t, c.K);
    return {segment, (int)min(segment * c.K - p.t, (int64_t)p.steps)};
}

static __device__ __forceinline__ void next_checkpoint(checkpoint *k, const call &c, const coord &p)
{
    k->segment++;
    k->step = (int)min(k->step + c.K, (int64_t)p.steps);
}

/* ---- forward ---- */

/* Steps from ... to - 1 of the chunk; y overwrites v.  The dot product of the next step
 * is summed over the lanes together with this step's y. */
template <typename T, int LANES, int NONLIN>
static __device__ __forceinline__ void scan_steps(const layout &l, const coord &p,
                                                  const chunk_smem &s, int from, int to, eight &S)
{
    const bool writes = p.any && p.lane == 0;
    operand_ptrs at = operand_ptrs_at(l, p, s, from);
    float *y_at = s.v + from * l.stride + p.row_offset;
    operands current = load_operands<LANES>(&at, l, p, from + 1 < to);
    float reads = warp_sum<LANES>(dot(S, current.read));

    #pragma unroll 2
    for (int i = from + 1; i < to; i++) {
        const operands ahead = load_operands<LANES>(&at, l, p, i + 1 < to);
        advance<T, NONLIN>(S, current, reads);
        const float y = dot(S, current.query);
        float sums[] = {dot(S, ahead.read), y};
        warp_sums<LANES>(sums);
        reads = sums[0];
        sync_row<LANES>();
        if (writes)
            *y_at = sums[1];
        y_at += l.stride;
        current = ahead;
    }
    advance<T, NONLIN>(S, current, reads);
    const float y = warp_sum<LANES>(dot(S, current.query));
    sync_row<LANES>();
    if (writes)
        *y_at = y;
}

/* The last checkpoint of a chunk, if there is one. */
static __device__ checkpoint last_checkpoint(const call &c, const coord &p)
{
    checkpoint k = first_checkpoint(c, p);
    const int64_t later = (p.steps - 1 - k.step) / c.K;
    if (k.step < p.steps)
        k = {k.segment + later, (int)(k.step + later * c.K)};
    return k;
}

/* The state before the chunk; or, if only initial states are stored, the state at the
 * chunk's last checkpoint, before step *from, if it has one. */
template <int LANES>
static __device__ __forceinline__ eight first_state(const layout &l, const coord &p, int *from)
{
    const call &c = l.c;
    const checkpoint last = l.only_initial ? last_checkpoint(c, p) : checkpoint{0, p.steps};
    if (last.step < p.steps) {
        *from = last.step;
        return load_checkpoint<LANES>(c, p, last.segment);
    }
    if (p.chunk == 0)
        return load_floats<LANES>(c.first + p.element, p.any ? c.columns : 0, p.lane);
    return receive_value(l, l.handover, p, p.chunk);
}

template <typename T, int ELEMENTS>
static __device__ __forceinline__ void store_outputs(const layout &l, const coord &p,
                                                     const chunk_smem &s)
{
    #pragma unroll 1
    for (int i = threadIdx.x; i < items<ELEMENTS>(p); i += blockDim.x) {
        const item it = item_of<ELEMENTS>(l, p, i);
        const vec<ELEMENTS> y = load_smem<ELEMENTS>(l, s.v + it.step * l.stride, it.element);
        vec<ELEMENTS> out;
        for (int j = 0; j < ELEMENTS; j++)
            out.x[j] = y.x[j] * y.x[j] / (1 + expf(-y.x[j]));
        store_global<T, ELEMENTS>(l.c.y, it.at, y);
        store_global<T, ELEMENTS>(l.c.out, it.at, out);
    }
}

template <typename T, int LANES, int NONLIN>
__global__ void __launch_bounds__(THREADS_MAX) forward_narrow(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const call &c = l.c;
    const coord p = take_ticket<LANES>(l, false);
    const int64_t end = p.t + p.steps;
    chunk_smem s;
    divide_smem(l, false, buffer, &s);

    if (l.only_initial && (end == c.T || end % c.K == 0))
        return;
    load_chunk<T, false>(l, p, s);
    if (p.scans) {
        checkpoint next = l.only_initial ? checkpoint{0, p.steps} : first_checkpoint(c, p);
        int from = 0;
        eight S = first_state<LANES>(l, p, &from);
        for (int to; from < p.steps; from = to) {
            if (from == next.step) {
                store_checkpoint<LANES>(c, p, next.segment, S);
                next_checkpoint(&next, c, p);
            }
            to = next.step;
            scan_steps<T, LANES, NONLIN>(l, p, s, from, to, S);
        }
        if (end < c.T)
            send_value(l, l.handover, p, p.chunk + 1, S);
        else
            store_columns<float, LANES>(c.last + p.element, p.any ? c.columns : 0, p.lane, S);
    }
    if (l.only_initial)
        return;
    __syncthreads();
    if (l.vectorised)
        store_outputs<T, 8>(l, p, s);
    else
        store_outputs<T, 1>(l, p, s);
}

/* ---- backward ---- */

/* A thread's eight columns of a state.  Neither the threads of a warp nor the same columns
 * and row of successive steps have bank conflicts. */
static __device__ __forceinline__ void store_state(const layout &l, float *state, const eight &e)
{
    for (int i = 0; i < 2; i++) {
        four<float> f;
        for (int j = 0; j < 4; j++)
            f.x[j] = e.x[4 * i + j];
        *(four<float> *)(state + (i * l.scan_threads + threadIdx.x) * 4) = f;
    }
}

static __device__ __forceinline__ eight load_state(const layout &l, const float *state)
{
    eight e;
    for (int i = 0; i < 2; i++) {
        const four<float> f =
            *(const four<float> *)(state + (i * l.scan_threads + threadIdx.x) * 4);
        for (int j = 0; j < 4; j++)
            e.x[4 * i + j] = f.x[j];
    }
    return e;
}

/* Steps from ... to - 1 of the chunk; stores S after each step; delta overwrites v. */
template <typename T, int LANES, int NONLIN>
static __device__ __forceinline__ void replay(const layout &l, const coord &p, const chunk_smem &s,
                                              int from, int to, eight &S)
{
    const bool writes = p.any && p.lane == 0;
    int row_offset = from * l.stride + p.row_offset;
    float *state = s.states + (from + 1) * l.state_stride;
    operand_ptrs at = operand_ptrs_at(l, p, s, from);
    operands current = load_operands<LANES>(&at, l, p, from + 1 < to);
    float reads = warp_sum<LANES>(dot(S, current.read));

    #pragma unroll 2
    for (int i = from; i < to; i++) {
        const operands ahead = load_operands<LANES>(&at, l, p, i + 2 < to);
        const float delta = advance<T, NONLIN>(S, current, reads);
        const float next = warp_sum<LANES>(dot(S, ahead.read));
        store_state(l, state, S);
        sync_row<LANES>();
        if (writes) {
            s.v[row_offset] = delta;
            if (l.c.z_outside)
                s.reads[row_offset] = reads;
        }
        state += l.state_stride;
        row_offset += l.stride;
        reads = next;
        current = ahead;
    }
}

/* The replay restarts at rounded checkpoints. */
template <typename T, int LANES, int NONLIN>
static __device__ __forceinline__ void replay_chunk(const layout &l, const coord &p,
                                                    const chunk_smem &s)
{
    const call &c = l.c;
    checkpoint next = first_checkpoint(c, p);
    eight S = {};
    for (int from = 0, to; from < p.steps; from = to) {
        if (from == next.step) {
            S = load_checkpoint<LANES>(c, p, next.segment);
            next_checkpoint(&next, c, p);
        } else {
            S = receive_value(l, l.initial_states, p, p.chunk);
        }
        to = c.kept == KEPT_F32 ? p.steps : next.step;
        store_state(l, s.states + from * l.state_stride, S);
        replay<T, LANES, NONLIN>(l, p, s, from, to, S);
    }
}

/* The operands of a step back, and the addresses of the next ones. */
struct operands_back {
    eight write, read, query;
    float dy, z, delta;
};

struct operand_ptrs_back {
    const float *write, *read, *query, *dy, *z, *delta;
};

template <int LANES>
static __device__ __forceinline__ operands_back load_operands_back(operand_ptrs_back *at,
                                                                   const layout &l, const coord &p,
                                                                   bool more)
{
    const int key_step = more ? l.key_stride : 0, row_step = more ? l.stride : 0;
    operands_back m;
    m.query = load_columns<LANES>(at->query, p.lane);
    m.write = load_columns<LANES>(at->write, p.lane);
    m.read = load_columns<LANES>(at->read, p.lane);
    m.dy = *at->dy;
    m.delta = *at->delta;
    m.z = l.c.z_outside ? *at->z : 1;
    at->query -= key_step;
    at->write -= key_step;
    at->read -= key_step;
    at->dy -= row_step;
    at->delta -= row_step;
    at->z -= row_step;
    return m;
}

/* Back over the chunk; G is dL/dS after, then before it.  The contribution of a state
 * element to write's gradient (and to read's, if not separate) overwrites the state after
 * the step, which is not needed any more; dv overwrites delta. */
template <int LANES, int NONLIN>
static __device__ __forceinline__ void scan_back(const layout &l, const coord &p,
                                                 const chunk_smem &s, eight &G)
{
    const bool writes = p.any && p.lane == 0;
    const int last = p.steps - 1, key_offset = last * l.key_stride + p.key_offset;
    int row_offset = last * l.stride + p.row_offset;
    float *state = s.states + p.steps * l.state_stride, *dread_at = s.dread + last * l.state_stride;
    operand_ptrs_back at = {s.write + key_offset, s.read + key_offset,
                            s.query + key_offset, s.dy + row_offset,
                            s.z + row_offset,     v_elements(p, s) + row_offset};
    operands_back current = load_operands_back<LANES>(&at, l, p, last > 0);
    eight state_after = load_state(l, state), state_before = load_state(l, state - l.state_stride);

    #pragma unroll 2
    for (int i = last; i >= 0; i--) {
        for (int j = 0; j < OCTET; j++) {
            G.x[j] = fmaf(current.dy, current.query.x[j], G.x[j]);
            if (NONLIN == E74_TANH)
                G.x[j] *= fmaf(-state_after.x[j], state_after.x[j], 1.0f);
        }
        const float dv = warp_sum<LANES>(dot(G, current.write)), dreads = -dv * current.z;
        const float with_write = l.separate_dread ? 0 : dreads;
        const operands_back ahead = load_operands_back<LANES>(&at, l, p, i > 1);
        const eight next =
            load_state(l, i > 0 ? state - 2 * l.state_stride : state - l.state_stride);
        eight dwrite;
        for (int j = 0; j < OCTET; j++) {
            dwrite.x[j] = fmaf(with_write, state_before.x[j], current.delta * G.x[j]);
            G.x[j] = fmaf(dreads, current.read.x[j], G.x[j]);
        }
        store_state(l, state, dwrite);
        if (l.separate_dread) {
            eight dread;
            for (int j = 0; j < OCTET; j++)
                dread.x[j] = dreads * state_before.x[j];
            store_state(l, dread_at, dread);
        }
        sync_row<LANES>();
        if (writes)
            s.v[row_offset] = dv;
        state -= l.state_stride;
        dread_at -= l.state_stride;
        row_offset -= l.stride;
        state_after = state_before;
        state_before = next;
        current = ahead;
    }
}

/* The sums over the rows of a group, four columns per thread and, where there are many
 * rows, one part of them; the threads of a warp process the same columns of different
 * steps.  Weighted by `weight`, if not NULL. */
template <int LANES>
static __device__ void sum_parts_of_rows(const layout &l, const coord &p, const float *states,
                                         const float *weight, float *to)
{
    const int quads = 2 * LANES, rows = l.c.rows;
    for (int i = threadIdx.x; i < l.steps * quads * l.parts * p.groups; i += blockDim.x) {
        const int step = i % l.steps, rest = i / l.steps, quad = rest % quads;
        const int part = rest / quads % l.parts, group = rest / quads / l.parts;
        const int first = group * rows + part * PART_ROWS;
        const int end = min(first + PART_ROWS, (group + 1) * rows);
        if (step >= p.steps)
            continue;
        const float *from =
            states + step * l.state_stride + (quad / LANES * l.scan_threads + quad % LANES) * 4;
        const float *weights = weight ? weight + step * l.stride + smem_index(l, first) : NULL;
        four<float> sum = {};
        #pragma unroll 4
        for (int row = first; row < end; row++) {
            const four<float> x = *(const four<float> *)(from + row * LANES * 4);
            const float w = weight ? weights[row - first] : 1;
            for (int j = 0; j < 4; j++)
                sum.x[j] = fmaf(w, x.x[j], sum.x[j]);
        }
        *(four<float> *)(to + (part * l.steps + step) * l.key_stride + group * l.width + 4 * quad) =
            sum;
    }
}

/* Ends with a barrier. */
template <int LANES>
static __device__ void sum_rows(const layout &l, const coord &p, const chunk_smem &s,
                                const float *states, const float *weight, float *to)
{
    sum_parts_of_rows<LANES>(l, p, states, weight, l.parts > 1 ? s.sums : to);
    __syncthreads();
    if (l.parts == 1)
        return;
    #pragma unroll 1
    for (int i = threadIdx.x; i < p.steps * l.key_stride; i += blockDim.x) {
        const int column = i % l.key_stride;
        float sum = 0;
        for (int part = 0; part < l.parts && column < l.width; part++)
            sum += s.sums[part * l.steps * l.key_stride + i];
        if (column < l.width)
            to[i] = sum;
    }
    __syncthreads();
}

/* ---- from the gradients of the keys to those of k, q, z ---- */

/* The gradients of k^ (with the term of u), of q, and the term of du in that of z:
 * [steps][stride]. */
struct gradients {
    float *dkhat, *dq, *dz;
};

template <int LANES>
static __device__ __forceinline__ float dot_with_row(const float *row, const float *x)
{
    float sum = 0;
    for (int j = 0; j < OCTET * LANES; j += 4) {
        const four<float> a = *(const four<float> *)(row + j), b = *(const four<float> *)(x + j);
        for (int n = 0; n < 4; n++)
            sum = fmaf(a.x[n], b.x[n], sum);
    }
    return sum;
}

/* For a factor, given the gradients of the three keys; dz only with an inner z. */
template <int LANES>
static __device__ void through_factors(const layout &l, const coord &p, const chunk_smem &s,
                                       const float *dwrite, const float *dread, const gradients &g)
{
    for (int i = threadIdx.x; i < p.steps * l.c.N; i += blockDim.x) {
        const int step = i / l.c.N, n = i % l.c.N, at = step * l.stride + n;
        const float *W_r = s.W_r + n * l.width, *V = s.V + n * l.width;
        const float du = dot_with_row<LANES>(V, dread + step * l.key_stride);
        const float dkhat = dot_with_row<LANES>(W_r, dwrite + step * l.key_stride);
        g.dkhat[at] = l.c.z_inside ? fmaf(s.z[at], du, dkhat) : dkhat + du;
        g.dq[at] = dot_with_row<LANES>(V, s.dquery + step * l.key_stride);
        if (l.c.z_inside)
            g.dz[at] = du * s.khat[at];
    }
}

/* The chunk's partial sums of dV and dW_r: four columns of a row per thread. */
static __device__ void factor_gradients(const layout &l, const coord &p, const chunk_smem &s,
                                        const float *dwrite, const float *dread)
{
    const call &c = l.c;
    const int quads = l.width / 4;
    const int64_t chunk_offset = (p.bh * l.chunks + p.chunk) * c.M;
    for (int i = threadIdx.x; i < 2 * quads * c.N; i += blockDim.x) {
        const int n = i % c.N, column = i / c.N % quads * 4;
        const bool of_V = i / c.N / quads == 0;
        four<float> sum = {};
        for (int step = 0; step < p.steps; step++) {
            const int at = step * l.stride + n, key = step * l.key_stride + column;
            const four<float> a = *(const four<float> *)((of_V ? dread : dwrite) + key);
            const four<float> b = *(const four<float> *)(s.dquery + key);
            const float x = of_V ? s.u[at] : s.khat[at], q = of_V ? s.q[at] : 0;
            for (int j = 0; j < 4; j++)
                sum.x[j] = fmaf(q, b.x[j], fmaf(x, a.x[j], sum.x[j]));
        }
        for (int j = 0; j < 4 && column + j < c.columns; j++)
            (of_V ? l.dV : l.dW_r)[chunk_offset + (of_V ? n * c.columns + column + j
                                                        : (column + j) * c.N + n)] = sum.x[j];
    }
}

/* For blocks, where the keys are k^, u and q themselves. */
static __device__ void through_gate(const layout &l, const coord &p, const chunk_smem &s,
                                    const gradients &g)
{
    for (int i = threadIdx.x; i < p.steps * p.rows; i += blockDim.x) {
        const int at = i / p.rows * l.stride + smem_index(l, i % p.rows);
        const float du = g.dz[at];
        g.dkhat[at] = fmaf(s.z[at], du, g.dkhat[at]);
        g.dz[at] = du * s.khat[at];
    }
}

/* From dk^ to dk, without the other terms of dk. */
static __device__ void through_norm(const layout &l, const coord &p, const chunk_smem &s,
                                    float *dkhat)
{
    for (int i = threadIdx.x; i < group_items(l, p); i += blockDim.x) {
        const group_item a = group_item_of(l, p, i);
        const int at = a.step * l.stride + a.group * l.width, end = a.any ? l.c.group : 0;
        float khat_dot = 0;
        for (int j = a.sub; j < end; j += l.group_threads)
            khat_dot = fmaf(s.khat[at + j], dkhat[at + j], khat_dot);
        khat_dot = group_sum(l, khat_dot);
        const float length = a.any ? s.length[a.step * p.groups + a.group] : 0;
        const float scale = 1 / (length + (float)E74_EPSILON);
        khat_dot = length > 0 ? khat_dot / length : 0;
        for (int j = a.sub; j < end; j += l.group_threads)
            dkhat[at + j] = fmaf(-khat_dot, s.khat[at + j], scale * dkhat[at + j]);
    }
}

template <typename T, int ELEMENTS>
static __device__ __forceinline__ void store_gradients(const layout &l, const coord &p,
                                                       const chunk_smem &s, const gradients &g)
{
    const call &c = l.c;
    #pragma unroll 1
    for (int i = threadIdx.x; i < items<ELEMENTS>(p); i += blockDim.x) {
        const item it = item_of<ELEMENTS>(l, p, i);
        const int step = it.step * l.stride;
        const vec<ELEMENTS> dq = load_smem<ELEMENTS>(l, g.dq + step, it.element);
        const vec<ELEMENTS> dv = load_smem<ELEMENTS>(l, s.v + step, it.element);
        vec<ELEMENTS> dk = load_smem<ELEMENTS>(l, g.dkhat + step, it.element), dz = {};
        for (int j = 0; j < ELEMENTS; j++)
            dk.x[j] += (c.dq ? 0 : dq.x[j]) + (l.tied_v ? dv.x[j] : 0);
        store_global<T, ELEMENTS>(c.dk, it.at, dk);
        if (!l.tied_v)
            store_global<T, ELEMENTS>(c.dv, it.at, dv);
        if (c.dq)
            store_global<T, ELEMENTS>(c.dq, it.at, dq);
        if (!c.dz)
            continue;
        if (c.z_inside)
            dz = load_smem<ELEMENTS>(l, g.dz + step, it.element);
        if (c.z_outside) {
            const vec<ELEMENTS> reads = load_smem<ELEMENTS>(l, s.reads + step, it.element);
            for (int j = 0; j < ELEMENTS; j++)
                dz.x[j] = fmaf(-dv.x[j], reads.x[j], dz.x[j]);
        }
        store_global<T, ELEMENTS>(c.dz, it.at, dz);
    }
}

/* Everything of the chunk after the scan.  The keys' gradients overwrite query and read;
 * a factor's gradients of k^, q, z overwrite the states. */
template <typename T, int LANES>
static __device__ void finish_chunk(const layout &l, const coord &p, const chunk_smem &s)
{
    float *const dwrite = s.query, *const dread = s.read;
    gradients g = {dwrite, s.dquery, dread};

    sum_rows<LANES>(l, p, s, s.states + l.state_stride, NULL, dwrite);
    if (l.separate_dread)
        sum_rows<LANES>(l, p, s, s.dread, NULL, dread);
    if (l.c.lowrank) {
        const int element_floats = l.steps * l.stride;
        g = {s.states, s.states + element_floats, s.states + 2 * element_floats};
        through_factors<LANES>(l, p, s, dwrite, dread, g);
        factor_gradients(l, p, s, dwrite, dread);
        __syncthreads();
    } else if (l.c.z_inside) {
        through_gate(l, p, s, g);
        __syncthreads();
    }
    through_norm(l, p, s, g.dkhat);
    __syncthreads();
    if (l.vectorised)
        store_gradients<T, 8>(l, p, s, g);
    else
        store_gradients<T, 1>(l, p, s, g);
}

template <typename T, int LANES, int NONLIN>
__global__ void __launch_bounds__(THREADS_MAX) backward_narrow(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const call &c = l.c;
    const coord p = take_ticket<LANES>(l, true);
    const int columns = p.any ? c.columns : 0;
    chunk_smem s;
    divide_smem(l, true, buffer, &s);

    load_chunk<T, true>(l, p, s);
    if (p.scans)
        replay_chunk<T, LANES, NONLIN>(l, p, s);
    __syncthreads();
    sum_rows<LANES>(l, p, s, s.states + l.state_stride, s.dy, s.dquery);
    if (p.scans) {
        eight G = p.chunk + 1 == l.chunks ? load_floats<LANES>(c.dlast + p.element, columns, p.lane)
                                          : receive_value(l, l.handover, p, p.chunk);
        scan_back<LANES, NONLIN>(l, p, s, G);
        if (p.chunk > 0)
            send_value(l, l.handover, p, p.chunk - 1, G);
        else
            store_columns<float, LANES>(c.dfirst + p.element, columns, p.lane, G);
    }
    __syncthreads();
    finish_chunk<T, LANES>(l, p, s);
}

/* dV0, and dW_r of each sequence: sums over its chunks, first chunk first. */
__global__ void __launch_bounds__(THREADS) sum_chunks(layout l, float *dV0)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, M = l.c.M;
    if (i >= 2 * l.c.BH * M)
        return;
    const bool of_V = i < l.c.BH * M;
    const int64_t e = of_V ? i : i - l.c.BH * M;
    const float *from = (of_V ? l.dV : l.dW_r) + e / M * l.chunks * M + e % M;
    float sum = 0;
    #pragma unroll 8
    for (int64_t chunk = 0; chunk < l.chunks; chunk++)
        sum += from[chunk * M];
    (of_V ? dV0 : l.sequence_dW_r)[e] = sum;
}

enum { SUM_WARPS = 8 }; /* of a block; each sums every SUM_WARPS-th sequence */

/* dW_r[h]: the sum over the sequences, then over the warps. */
__global__ void __launch_bounds__(32 * SUM_WARPS) sum_sequences(layout l, float *dW_r)
{
    __shared__ float sums[SUM_WARPS][32];
    const int64_t heads_m = l.c.H * l.c.M, e = (int64_t)blockIdx.x * 32 + threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    float sum = 0;
    #pragma unroll 8
    for (int64_t b = warp; b < l.c.BH / l.c.H && e < heads_m; b += SUM_WARPS)
        sum += l.sequence_dW_r[b * heads_m + e];
    sums[warp][threadIdx.x % 32] = sum;
    __syncthreads();
    if (warp > 0 || e >= heads_m)
        return;
    for (int i = 1; i < SUM_WARPS; i++)
        sum += sums[i][threadIdx.x];
    dW_r[e] = sum;
}

/* ---- launches ---- */

static int min_of(int a, int b)
{
    return a < b ? a : b;
}

static size_t shared_bytes(const layout &l, bool back)
{
    chunk_smem s;
    return sizeof(float) * divide_smem(l, back, NULL, &s);
}

/* `back`: with backward's chunks, be it for the forward kernel. */
static layout layout_of(const struct frame *f, bool back)
{
    layout l = {};
    call &c = l.c = call_of(f);

    l.lanes = c.columns > OCTET ? 2 : 1;
    l.width = OCTET * l.lanes;
    l.groups = min_of(min_of(SCAN_THREADS / l.lanes / c.rows, KEY_WIDTH / l.width), c.N / c.rows);
    l.groups = c.lowrank ? 1 : l.groups;
    l.sets = (int)ceil_div(c.N / c.rows, l.groups);
    l.rows = l.groups * c.rows;
    l.scan_threads = padded(l.rows * l.lanes, 32);
    l.stride = (c.lowrank ? padded(c.N, OCTET) : l.groups * l.width) + 4;
    l.key_stride = c.lowrank ? l.width + 4 : l.stride;
    l.state_stride = OCTET * l.scan_threads + 4;
    l.parts = (int)ceil_div(c.rows, PART_ROWS);
    l.group_threads = c.lowrank ? 8 : 1;
    l.vectorised = c.N % 8 == 0 && l.rows % 8 == 0 && (c.lowrank || c.columns % 4 == 0);
    l.padding = c.lowrank ? 0 : l.width - c.columns;
    l.reciprocal = (int)ceil_div(1 << 16, c.columns);
    l.reads_padding = c.lowrank ? c.N % 4 != 0 : l.padding != 0;
    l.separate_dread = c.lowrank || c.z_inside;
    l.tied_v = f->choice[E74_PROJ] == E74_TIED_KVQ;
    l.steps = back ? STEPS_BACKWARD : STEPS_FORWARD;
    while (l.steps > 1 && shared_bytes(l, back) > (size_t)(back ? SHARED_MAX : SHARED_MAX / 2))
        l.steps /= 2;
    l.steps = (int)(l.steps < c.T ? l.steps : c.T);
    l.chunks = ceil_div(c.T, l.steps);
    const int threads_max =
        !back && l.chunks * c.BH * l.sets >= MANY_BLOCKS ? THREADS / 2 : THREADS;
    l.threads = min_of(padded(l.steps * l.rows / (l.vectorised ? 8 : 1), 32), threads_max);
    l.threads = l.threads < l.scan_threads ? l.scan_threads : l.threads;
    return l;
}

/* Are there chunks that begin between checkpoints? */
static bool needs_initial_states(const layout &l)
{
    return l.steps % l.c.K != 0 && l.chunks > 1;
}

static int64_t handover_floats(const layout &l)
{
    return l.chunks * l.c.BH * l.sets * l.scan_threads * OCTET;
}

enum { TICKET_FLOATS = 32 }; /* so that the hand-over is aligned */

/* The first parts of the workspace are initialised to UNSENT; a ticket counter begins
 * at -1, which has the same bits.  Returns the size in floats. */
static int64_t divide_workspace(layout *l, layout *initial, enum pass p, float *work,
                                int64_t *unsent)
{
    const call &c = l->c;
    int64_t n = TICKET_FLOATS;

    l->ticket = (unsigned *)work;
    l->handover = work + n;
    n += handover_floats(*l);
    if (p == BACKWARD && needs_initial_states(*l)) {
        *initial = *l;
        initial->only_initial = true;
        initial->ticket = (unsigned *)(work + n);
        l->initial_states = initial->handover = work + n + TICKET_FLOATS;
        n += TICKET_FLOATS + handover_floats(*l);
    }
    *unsent = n;
    if (p == FORWARD || !c.lowrank)
        return n;
    l->dV = work + n;
    l->dW_r = l->dV + c.BH * l->chunks * c.M;
    l->sequence_dW_r = l->dW_r + c.BH * l->chunks * c.M;
    return n + (2 * l->chunks + 1) * c.BH * c.M;
}

template <typename T, int LANES, int NONLIN>
static int launch(const layout &l, bool back)
{
    const size_t shared = shared_bytes(l, back);
    void (*const kernel)(layout) =
        back ? backward_narrow<T, LANES, NONLIN> : forward_narrow<T, LANES, NONLIN>;

    CUDA(allow_smem(kernel, shared));
    kernel<<<l.chunks * l.c.BH * l.sets, l.threads, shared, gpu_stream()>>>(l);
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

    divide_workspace(&l, &none, FORWARD, (float *)f->work, &unsent);
    CUDA(cudaMemsetAsync(f->work, 0xff, unsent * sizeof(float), gpu_stream()));
    return launch<T>(l, false);
}

template <typename T>
static int backward(const struct frame *f)
{
    layout l = layout_of(f, true), initial = {};
    const call &c = l.c;
    int64_t unsent;

    divide_workspace(&l, &initial, BACKWARD, (float *)f->work, &unsent);
    CUDA(cudaMemsetAsync(f->work, 0xff, unsent * sizeof(float), gpu_stream()));
    int e = initial.only_initial ? launch<T>(initial, false) : 0;
    if (!e)
        e = launch<T>(l, true);
    if (e || !c.lowrank)
        return e;
    sum_chunks<<<ceil_div(2 * c.BH * c.M, THREADS), THREADS, 0, gpu_stream()>>>(l, c.dV0);
    CUDA(cudaGetLastError());
    sum_sequences<<<ceil_div(c.H * c.M, 32), 32 * SUM_WARPS, 0, gpu_stream()>>>(l, c.dW_r);
    return cudaGetLastError();
}

static size_t work(const struct frame *f, enum pass p)
{
    layout l = layout_of(f, p == BACKWARD), initial;
    int64_t unsent;
    return sizeof(float) * divide_workspace(&l, &initial, p, NULL, &unsent);
}

static const char *declines(const struct frame *f)
{
    const int state = f->choice[E74_STATE], nonlin = f->choice[E74_NONLIN];
    const char *no = e74_plain32.declines(f);

    if (no)
        return no;
    if (state != E74_BLOCKDIAG && state != E74_LOWRANK)
        return "only for state = blockdiag and lowrank";
    if (DIM(f, state == E74_LOWRANK ? 'R' : 'L') > OCTET * LANES_MAX)
        return state == E74_LOWRANK ? "rank beyond 16" : "block_size beyond 16";
    if (nonlin != E74_TANH && nonlin != E74_LINEAR)
        return "rmsnorm and frobnorm couple the rows of a state";
    const layout l = layout_of(f, true);
    if (l.scan_threads > THREADS_MAX)
        return l.lanes == 1 ? "n_state beyond 512" : "n_state beyond 256 where rank is beyond 8";
    if (shared_bytes(l, true) > SHARED_MAX)
        return "a state and the operands of a step do not fit shared memory";
    if (l.chunks * l.c.BH * l.sets > 0x7fffffff)
        return "more chunks of sequences than a grid has blocks";
    return NULL;
}

static const char name[] = "narrow";
static const char idea[] = "one thread per short row; blocks hand the state from chunk to chunk";

GPU_IMPL(extern "C", 32, float, e74_narrow, name, idea, work, declines, "ex2.approx, rcp.approx",
         3e-7);
GPU_IMPL(extern "C", 16, __nv_bfloat16, e74_narrow, name, idea, work, declines, "tanh.approx",
         5e-4);
