/* narrow.cuh - the common parts of e74_cell's kernels `narrow`: tickets, hand-over, the
 * operands of a chunk, one step, checkpoints.
 *
 * A row belongs to one thread, which has eight of its columns in registers, or to two threads where
 * there are more columns.  A step is a dependency chain (dot product, residual, update, f) of some
 * 100 cycles; the eight f's of a thread take most of it.
 *
 * A hand-over consists of the values themselves: the slots of a message initially hold a NaN that
 * no arithmetic produces, and the next block polls them until every value differs from it.  Blocks
 * take a ticket from an atomic counter as they start, and tickets follow the order of the scan, so
 * that a block only waits for blocks that are running or done.
 *
 * A step uses fmaf and never a * b + c, so that the compiler cannot contract forward and replay
 * differently; chunks, and sums within and over them, are the same for every checkpoint
 * interval. */
#ifndef E74_CELL_NARROW_CUH
#define E74_CELL_NARROW_CUH

#include "gpu/device/flags.cuh"
#include "gpu/device/reduce.cuh"
#include "gpu/device/smem.cuh"
#include "gpu/e74/cell_math.cuh"
#include "gpu/e74/columns.cuh"
#include "gpu/e74/e74_cell.cuh"

namespace e74_narrow
{

enum {
    STEPS_BACKWARD = 64, /* maximum steps of a chunk, backward */
    STEPS_FORWARD = 128, /* maximum steps of a chunk, forward */
    SCAN_THREADS = 64,   /* of a block, where a state's rows can be divided */
    KEY_WIDTH = 128,     /* padded columns of a block's keys, in the same case */
    THREADS = 256,       /* of a block, where there is enough work */
    MANY_BLOCKS = 1024,  /* with at least this many blocks, forward has THREADS / 2 */
    THREADS_MAX = 512,   /* where a state has many rows */
    LANES_MAX = 2,
    PART_ROWS = 16 /* rows that one thread adds up */
};

/* The bits of a value that has not been sent. */
#define UNSENT 0xffffffffu

/* ---- work distribution ---- */

struct layout {
    cell_call c;
    int lanes, width;        /* threads of a row; padded columns of a row */
    int groups, sets;        /* groups of rows of a block; blocks per (sequence, head) */
    int rows, scan_threads;  /* of a block; the first threads of a block, in whole warps */
    int threads;             /* of a block, scan threads and others */
    int stride, key_stride;  /* floats per step in shared memory: of vectors of N; of keys */
    int state_stride;        /* floats per step in shared memory: of states */
    int steps;               /* of a chunk */
    int parts;               /* parts of a group's rows, summed by different threads */
    int group_threads;       /* threads that sum the squares of a group of k */
    bool vectorised;         /* are vectors of N loaded eight elements at a time? */
    bool reads_padding;      /* is padding within a step's vectors read? */
    int padding, reciprocal; /* floats after each group of columns in them; 2^16 / columns */
    bool separate_dread;     /* are the gradients of write and read different sums? */
    bool tied_v;             /* v is k: dv is added to dk */
    bool only_initial;       /* the forward kernel stores only the initial states of chunks */
    int64_t chunks;
    unsigned *ticket;
    float *handover;       /* [chunks][blocks][2][scan_threads][4]: states, or their gradients */
    float *initial_states; /* same shape: the states before chunks that begin between checkpoints */
    float *dV, *dW_r;      /* [BH][chunks][M]: partial sums of the chunks */
    float *sequence_dV, *sequence_dW_r; /* [BH][M]; sequence_dV is dV0, unless V is shared */
};

struct coord {
    int64_t chunk, bh, block; /* block: its index within its chunk */
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
static inline __device__ coord take_ticket(const layout &l, unsigned *shared, bool back)
{
    if (threadIdx.x == 0)
        *shared = atomicAdd(l.ticket, 1u) + 1; /* the counter begins at -1 */
    __syncthreads();

    const unsigned ticket = *shared;
    const cell_call &c = l.c;
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

static inline __device__ float *handover_slot(const layout &l, float *at, const coord &p,
                                              int64_t chunk, int i)
{
    return at + (((chunk * l.c.BH * l.sets + p.block) * 2 + i) * l.scan_threads + threadIdx.x) * 4;
}

static __device__ __forceinline__ void send_value(const layout &l, float *at, const coord &p,
                                                  int64_t chunk, const float8 &e)
{
    for (int i = 0; i < 2; i++) {
        float x[4];
        for (int j = 0; j < 4; j++)
            x[j] = __float_as_uint(e.x[4 * i + j]) == UNSENT ? __uint_as_float(0x7fffffff)
                                                             : e.x[4 * i + j];
        store_relaxed(handover_slot(l, at, p, chunk, i), x);
    }
}

/* Polls the slots until all values have arrived; called by whole warps. */
static __device__ __forceinline__ float8 receive_value(const layout &l, float *at, const coord &p,
                                                       int64_t chunk)
{
    const float *const from[] = {handover_slot(l, at, p, chunk, 0),
                                 handover_slot(l, at, p, chunk, 1)};
    for (;;) {
        float8 e;
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
    unsigned *ticket;
    float *khat, *u, *q, *z, *v; /* [steps][stride]; u is khat without an inner z */
    float *dy, *reads;           /* [steps][stride] backward; reads only with an outer z */
    float *write, *read, *query; /* [steps][key_stride]; for state blocks they are khat, u, q */
    float *dquery;               /* [steps][key_stride] backward */
    float *length;               /* [steps][groups] backward: of k */
    float *W_r, *V;              /* [N][width], padded with zeros */
    float *sums;                 /* [parts][steps][key_stride] where parts > 1 */
    float *states;               /* [steps + 1][state_stride] backward */
    float *dread; /* [steps][state_stride] backward: addends of read's gradient, if separate */
    int bytes;
};

static inline __host__ __device__ int padded(int n, int to)
{
    return (n + to - 1) / to * to;
}

static inline __host__ __device__ chunk_smem chunk_smem_of(const layout &l, bool back, void *base)
{
    const cell_call &c = l.c;
    const int elements = l.steps * l.stride, keys = l.steps * l.key_stride;
    const int factor = c.lowrank ? padded(c.N, 4) * l.width : 0;
    smem_arena a = {(unsigned char *)base, 0};
    chunk_smem s;
    s.ticket = a.alloc<unsigned>(4);
    s.khat = a.alloc<float>(elements, a.PACKED);
    s.q = a.alloc<float>(elements, a.PACKED);
    s.v = a.alloc<float>(elements, a.PACKED);
    s.u = c.z_inside ? a.alloc<float>(elements, a.PACKED) : s.khat;
    s.z = a.alloc<float>(with_z(c) ? elements : 0, a.PACKED);
    s.dy = a.alloc<float>(back ? elements : 0, a.PACKED);
    s.reads = a.alloc<float>(back && c.z_outside ? elements : 0, a.PACKED);
    s.write = c.lowrank ? a.alloc<float>(keys, a.PACKED) : s.khat;
    s.read = c.lowrank ? a.alloc<float>(keys, a.PACKED) : s.u;
    s.query = c.lowrank ? a.alloc<float>(keys, a.PACKED) : s.q;
    s.dquery = a.alloc<float>(back ? keys : 0, a.PACKED);
    s.length = a.alloc<float>(back ? padded(l.steps * l.groups, 4) : 0, a.PACKED);
    s.W_r = a.alloc<float>(factor, a.PACKED);
    s.V = a.alloc<float>(factor, a.PACKED);
    s.sums = a.alloc<float>(back && l.parts > 1 ? l.parts * keys : 0, a.PACKED);
    s.states = a.alloc<float>(back ? (l.steps + 1) * l.state_stride : 0, a.PACKED);
    s.dread = a.alloc<float>(back && l.separate_dread ? l.steps * l.state_stride : 0, a.PACKED);
    s.bytes = a.bytes;
    return s;
}

/* A thread accesses ELEMENTS elements of a step at once: eight if these are contiguous and aligned
 * in global memory, and each half of them in shared memory; else one. */
template <int ELEMENTS>
static __device__ __forceinline__ void store_smem(const layout &l, float *step, int i,
                                                  const array<float, ELEMENTS> &e)
{
    if (ELEMENTS == 1)
        step[smem_index(l, i)] = e.x[0];
    else
        for (int h = 0; h < ELEMENTS; h += 4)
            *(four<float> *)(step + smem_index(l, i + h)) = *(const four<float> *)(e.x + h);
}

template <int ELEMENTS>
static __device__ __forceinline__ array<float, ELEMENTS> load_smem(const layout &l,
                                                                   const float *step, int i)
{
    array<float, ELEMENTS> e;
    if (ELEMENTS == 1)
        e.x[0] = step[smem_index(l, i)];
    else
        for (int h = 0; h < ELEMENTS; h += 4)
            *(four<float> *)(e.x + h) = *(const four<float> *)(step + smem_index(l, i + h));
    return e;
}

/* Loads from and stores to global memory. */
template <typename T, int ELEMENTS>
static __device__ __forceinline__ array<float, ELEMENTS> load_global(const void *from, int64_t at)
{
    array<float, ELEMENTS> e;
    if (ELEMENTS == 1) {
        e.x[0] = load((const T *)from + at);
    } else {
        const float8 w = widened(load_columns<T, 1, true>((const T *)from + at, OCTET, 0));
        for (int j = 0; j < ELEMENTS; j++)
            e.x[j] = w.x[j];
    }
    return e;
}

template <typename T, int ELEMENTS>
static __device__ __forceinline__ void store_global(void *to, int64_t at,
                                                    const array<float, ELEMENTS> &e)
{
    if (ELEMENTS == 1) {
        store((T *)to + at, e.x[0]);
    } else {
        float8 w;
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
    const cell_call &c = l.c;
    #pragma unroll 1
    for (int i = threadIdx.x; i < items<ELEMENTS>(p); i += blockDim.x) {
        const item it = item_of<ELEMENTS>(l, p, i);
        const int step = it.step * l.stride;
        const array<float, ELEMENTS> k = load_global<T, ELEMENTS>(c.k, it.at),
                                     q = load_global<T, ELEMENTS>(c.q, it.at);
        const array<float, ELEMENTS> v = load_global<T, ELEMENTS>(c.v, it.at);
        array<float, ELEMENTS> z = {}, y = {}, dy = {};
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

/* Loads the two matrices of a factor, with one row per element of N. */
template <typename T>
static inline __device__ void load_factors(const layout &l, const coord &p, const chunk_smem &s)
{
    const cell_call &c = l.c;
    const T *W_r = (const T *)c.W_r + p.bh % c.H * c.M;
    const float *V = V_of(c, p.bh);
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

/* Replaces k by k^, and computes u. */
template <bool BACK>
static inline __device__ void normalise(const layout &l, const coord &p, const chunk_smem &s)
{
    for (int i = threadIdx.x; i < group_items(l, p); i += blockDim.x) {
        const group_item a = group_item_of(l, p, i);
        const int at = a.step * l.stride + a.group * l.width, end = a.any ? l.c.group : 0;
        float squares = 0;
        for (int j = a.sub; j < end; j += l.group_threads)
            squares = fmaf(s.khat[at + j], s.khat[at + j], squares);
        const float length = sqrtf(warp_sum(squares, l.group_threads));
        const float scale = key_scale_full(length);
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

/* Computes the keys of a factor's rows: W_r k^, V^T u, V^T q. */
static inline __device__ void factor_keys(const layout &l, const coord &p, const chunk_smem &s)
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

/* Loads all operands of the scan; a barrier must follow. */
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
    if (l.c.lowrank) {
        __syncthreads();
        factor_keys(l, p, s);
    }
}

/* ---- one step ---- */

/* The operands of a row in a step, loaded from shared memory one step ahead, so that the
 * latency of the loads is not on the chain.  Backward v is delta. */
struct operands {
    float8 write, read, query;
    float v, z, dy;
};

/* Addresses of the next operands. */
struct operand_ptrs {
    const float *write, *read, *query, *v, *z, *dy;
};

/* A thread whose row does not exist reads khat instead of v, because the thread of another row
 * overwrites that element of v with y. */
static __device__ __forceinline__ operand_ptrs operand_ptrs_at(const layout &l, const coord &p,
                                                               const chunk_smem &s, int step)
{
    const int key_offset = step * l.key_stride + p.key_offset,
              row_offset = step * l.stride + p.row_offset;
    return {s.write + key_offset, s.read + key_offset,
            s.query + key_offset, (p.any ? s.v : s.khat) + row_offset,
            s.z + row_offset,     s.dy + row_offset};
}

/* Loads a step's operands; if there are more steps, advances the addresses to the next one (BACK:
 * to the previous one). */
template <int LANES, bool BACK>
static __device__ __forceinline__ operands load_operands(operand_ptrs *at, const layout &l,
                                                         const coord &p, bool more)
{
    const int sign = BACK ? -1 : 1, key_step = more ? sign * l.key_stride : 0,
              row_step = more ? sign * l.stride : 0;
    operands m;
    m.read = load_columns<LANES>(at->read, p.lane);
    m.write = load_columns<LANES>(at->write, p.lane);
    m.query = load_columns<LANES>(at->query, p.lane);
    m.v = *at->v;
    m.z = l.c.z_outside ? *at->z : 1;
    m.dy = BACK ? *at->dy : 0;
    at->read += key_step;
    at->write += key_step;
    at->query += key_step;
    at->v += row_step;
    at->z += row_step;
    at->dy += row_step;
    return m;
}

/* Called before one of a row's threads overwrites an element that all of them read. */
template <int LANES>
static __device__ __forceinline__ void sync_row(void)
{
    if (LANES > 1)
        __syncwarp();
}

/* S <- f(S + delta k^T), given reads = S u; returns delta. */
template <typename T, int NONLIN>
static __device__ __forceinline__ float advance(float8 &S, const operands &m, float reads)
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
static __device__ __forceinline__ void store_checkpoint(const cell_call &c, const coord &p,
                                                        int64_t segment, const float8 &S)
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
static __device__ __forceinline__ float8 load_checkpoint(const cell_call &c, const coord &p,
                                                         int64_t segment)
{
    const int columns = p.any ? c.columns : 0;
    if (c.kept == KEPT_F32)
        return load_floats<LANES>((const float *)c.checkpoints + segment * c.BH * c.M + p.element,
                                  columns, p.lane);
    float8 S = {};
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

static __device__ __forceinline__ checkpoint first_checkpoint(const cell_call &c, const coord &p)
{
    const int64_t segment = ceil_div(p.t, c.K);
    return {segment, (int)min(segment * c.K - p.t, (int64_t)p.steps)};
}

static __device__ __forceinline__ void next_checkpoint(checkpoint *k, const cell_call &c,
                                                       const coord &p)
{
    k->segment++;
    k->step = (int)min(k->step + c.K, (int64_t)p.steps);
}

/* The kernels, each compiled in one file. */
using kernel = void (*)(layout);

template <typename T>
kernel forward_kernel(const layout &l);
template <typename T>
kernel backward_kernel(const layout &l);

}    // namespace e74_narrow

#endif
