/* diagonal.cuh - both passes of e74_cell's kernel `diagonal`: the mapping of columns to
 * threads, the pairs of a step, the scan over them, and the hand-over between blocks.  The formulas
 * are in diagonal.cu. */
#ifndef E74_CELL_DIAGONAL_CUH
#define E74_CELL_DIAGONAL_CUH

#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/flags.cuh"
#include "gpu/device/math.cuh"
#include "gpu/e74/cell_math.cuh"
#include "gpu/e74/columns.cuh"
#include "gpu/e74/e74_cell.cuh"

namespace e74_diagonal
{

enum {
    STEPS = 32,                     /* of a chunk */
    BLOCK_COLUMNS = 64,             /* columns of a block */
    OCTETS = BLOCK_COLUMNS / OCTET, /* groups of eight columns; a thread has one */
    THREADS = STEPS * OCTETS,
    BATCH_STEPS = 4, /* steps whose pairs a scan thread has in registers */
};

/* ---- work distribution ---- */

struct layout {
    cell_call c;
    int lanes, groups; /* octets of a (sequence, head) in a block; such pairs per block */
    int sets, parts;   /* sets of `groups` pairs; blocks that share one set */
    int K;             /* c.K as an int, for fast division */
    bool aligned;      /* all octets are full and aligned */
    int cluster;       /* blocks of a cluster, a power of two */
    int64_t chunks;
    bool only_initial;     /* the launch over all segments that stores initial states */
    float *initial_states; /* [chunks][BH*N]: before chunks that begin at no checkpoint */
    float *dkhat;          /* [T*BH*N] if the gradient of the norm needs all parts */
    float *dk_tied;        /* [T*BH*N] with dkhat: the terms of tied dq and dv in dk */
};

/* An octet of a (sequence, head) at a step; `columns` of its eight columns exist. */
struct item {
    int step, octet;
    int columns;
    int column;
    int64_t element; /* index within a step or within a state */
};

static __device__ item item_of(const layout &l, int set, int part, int tid)
{
    item it;
    it.step = tid / OCTETS;
    it.octet = tid % OCTETS;
    const int64_t bh = (int64_t)set * l.groups + div_pow2(it.octet, l.lanes);
    it.column = part * BLOCK_COLUMNS + (it.octet & (l.lanes - 1)) * OCTET;
    it.element = bh * l.c.N + it.column;
    it.columns = bh < l.c.BH ? max(0, min((int)OCTET, l.c.N - it.column)) : 0;
    return it;
}

/* The column of a scan thread.  Within a step in shared memory, the i-th pair of
 * columns of octet o has index 8 i + o, so that neither threads that access octets nor
 * scan threads, which access one column each, have bank conflicts. */
struct column {
    bool any;
    int64_t element;
};

static __device__ column column_of(const layout &l, int set, int part, int tid)
{
    const int octet = tid / 2 % OCTETS, within = tid / (2 * OCTETS) * 2 + tid % 2;
    const int64_t bh = (int64_t)set * l.groups + div_pow2(octet, l.lanes);
    const int e = part * BLOCK_COLUMNS + (octet & (l.lanes - 1)) * OCTET + within;
    return {bh < l.c.BH && e < l.c.N, bh * l.c.N + e};
}

/* ---- eight columns in memory ---- */

template <typename T>
using octet = vec<T, OCTET>;

template <typename T>
static __device__ __forceinline__ octet<T> load_octet(const T *from, int columns, bool aligned)
{
    octet<T> o = {};
    if (!aligned) {
        T x[OCTET];
        for (int j = 0; j < OCTET; j++) {
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
static __device__ __forceinline__ void store_octet(T *to, int columns, bool aligned,
                                                   const float8 &e)
{
    octet<T> o;
    T x[OCTET];
    for (int j = 0; j < OCTET; j++)
        store(x + j, e.x[j]);
    if (aligned && columns) {
        memcpy(&o, x, sizeof o);
        store_vec(to, o);
    } else {
        for (int j = 0; j < OCTET; j++)
            if (j < columns)
                to[j] = x[j];
    }
}

template <typename T>
static __device__ __forceinline__ float8 widened(const octet<T> &o)
{
    float8 e;
    unpack(o, e.x);
    return e;
}

/* Loads an octet of the states of a step from shared memory. */
static __device__ __forceinline__ float8 load_states(const float *step, int octet)
{
    float8 e;
    for (int i = 0; i < OCTET / 2; i++) {
        const float2 x = ((const float2 *)step)[i * OCTETS + octet];
        e.x[2 * i] = x.x;
        e.x[2 * i + 1] = x.y;
    }
    return e;
}

/* Stores an octet of the pairs of a step to shared memory. */
static __device__ __forceinline__ void store_pairs(float2 *step, int octet, const float8 &a,
                                                   const float8 &b)
{
    for (int i = 0; i < OCTET / 2; i++)
        ((float4 *)step)[i * OCTETS + octet] =
            make_float4(a.x[2 * i], b.x[2 * i], a.x[2 * i + 1], b.x[2 * i + 1]);
}

/* ---- pairs of a step ---- */

template <typename T>
struct keys {
    octet<T> k, v, z;
};

/* Loads from offset `at` of each tensor; columns: 0 for a step that does not exist. */
template <typename T>
static __device__ __forceinline__ keys<T> load_keys(const layout &l, int64_t at, int columns)
{
    keys<T> in;
    in.k = load_octet((const T *)l.c.k + at, columns, l.aligned);
    in.v = load_octet((const T *)l.c.v + at, columns, l.aligned);
    in.z = {};
    if (l.c.z)
        in.z = load_octet((const T *)l.c.z + at, columns, l.aligned);
    return in;
}

/* Prefetches a step's keys into L2. */
template <typename T>
static __device__ __forceinline__ void prefetch_keys(const layout &l, const item &it, int64_t at)
{
    if (it.columns == 0)
        return;
    prefetch_l2((const T *)l.c.k + at);
    prefetch_l2((const T *)l.c.v + at);
    if (l.c.z)
        prefetch_l2((const T *)l.c.z + at);
    if (!l.only_initial)
        prefetch_l2((const T *)l.c.q + at);
}

/* Returns |k|^2 in all lanes that have octets of k; called by whole warps.  Where several blocks
 * share a key, each of them loads the whole key. */
template <typename T>
static __device__ __forceinline__ float squares_of(const layout &l, const item &it, int64_t at,
                                                   bool any, const float8 &key)
{
    float sum = 0;
    if (l.parts == 1)
        return warp_sum<OCTETS>(dot(key, key), l.lanes);
    #pragma unroll 4
    for (int from = it.octet * OCTET; any && from < l.c.N; from += BLOCK_COLUMNS) {
        const T *part = (const T *)l.c.k + (at + (from - it.column));
        const float8 x = widened(load_octet(part, min((int)OCTET, l.c.N - from), l.aligned));
        sum += dot(x, x);
    }
    return warp_sum<OCTETS>(sum, l.lanes);
}

/* k^, u and w of column j. */
struct key {
    float khat, u, w;
};

static __device__ __forceinline__ key key_of(const layout &l, float k, float r, float z)
{
    key x;
    x.khat = k * r;
    x.u = l.c.z_inside ? z * x.khat : x.khat;
    x.w = l.c.z_outside ? z * x.u : x.u;
    return x;
}

/* Computes the pairs of one step. */
template <typename T>
static __device__ __forceinline__ void prepare(const layout &l, const item &it, float2 *step,
                                               const keys<T> &in, float length)
{
    const float8 k = widened(in.k), v = widened(in.v), z = widened(in.z);
    const float r = key_scale(length);
    float8 a, b;
    for (int j = 0; j < OCTET; j++) {
        const key x = key_of(l, k.x[j], r, z.x[j]);
        a.x[j] = fmaf(-x.w, x.khat, 1.0f);
        b.x[j] = v.x[j] * x.khat;
    }
    store_pairs(step, it.octet, a, b);
}

template <typename T, int NONLIN>
static __device__ __forceinline__ float step(float2 pair, float S)
{
    const float P = fmaf(pair.x, S, pair.y);
    return NONLIN == E74_TANH ? tanh_for<T>(P) : P;
}

/* The pairs of N successive steps of a scan thread; pointers are to its pair of step 0.
 * Batches are loaded one batch ahead, the first one before the initial state arrives, so
 * that the latency of the load is never on the chain. */
template <int N>
struct batch {
    float2 of[N];
};

template <int N>
static __device__ __forceinline__ batch<N> load_batch(const float2 *pairs, int from)
{
    batch<N> b;
    for (int i = 0; i < N; i++)
        b.of[i] = pairs[(from + i) * BLOCK_COLUMNS];
    return b;
}

/* Scans steps from ... to - 1 of one column; stores the states to `states`. */
template <typename T, int NONLIN>
static __device__ __forceinline__ float scan_steps(const float2 *pairs, float *states, int from,
                                                   int to, float S)
{
    #pragma unroll 1
    for (; from < to; from++)
        states[from * BLOCK_COLUMNS] = S = step<T, NONLIN>(pairs[from * BLOCK_COLUMNS], S);
    return S;
}

/* Scans a whole chunk, given its first batch of pairs. */
template <typename T, int NONLIN>
static __device__ __forceinline__ float scan_chunk(batch<BATCH_STEPS> current, const float2 *pairs,
                                                   float *states, int steps, float S)
{
    if (steps < STEPS)
        return scan_steps<T, NONLIN>(pairs, states, 0, steps, S);
    for (int from = 0; from < STEPS; from += BATCH_STEPS) {
        const batch<BATCH_STEPS> next =
            load_batch<BATCH_STEPS>(pairs, min(from + BATCH_STEPS, STEPS - BATCH_STEPS));
        for (int i = 0; i < BATCH_STEPS; i++)
            states[(from + i) * BLOCK_COLUMNS] = S = step<T, NONLIN>(current.of[i], S);
        current = next;
    }
    return S;
}

/* ---- blocks of a cluster ---- */

/* Columns and segment of a block. */
struct block_coord {
    int rank, part, set, segment;
};

static __device__ block_coord block_coord_of(const layout &l)
{
    const int rest = cluster_number(l.cluster), set = rest / l.parts;
    block_coord s;
    s.rank = cluster_rank(l.cluster);
    s.part = rest % l.parts;
    s.set = l.only_initial ? set % l.sets : set;
    s.segment = l.only_initial ? set / l.sets : 0;
    return s;
}

/* A scan thread's value before a chunk: received from the block of the previous chunk, or its
 * own. */
static __device__ __forceinline__ float receive_value(const layout &l, const tagged *received,
                                                      int chunk, float own)
{
    if (l.cluster == 1 || chunk == 0)
        return own;
    for (;;) {
        const tagged p = load_relaxed_cluster(received);
        if (p.tag == chunk)
            return p.x;
        spin_yield();
    }
}

static __device__ __forceinline__ void send_value(const layout &l, tagged *next, int chunk, float x)
{
    if (l.cluster > 1)
        store_relaxed_cluster(next, {x, chunk});
}

/* ---- launches ---- */

static inline int64_t blocks_of(const layout &l)
{
    return (int64_t)l.sets * l.parts;
}

/* `ranges`: ranges of steps that are scanned in parallel. */
static inline cudaError_t launch(struct context *on, void (*kernel)(layout), const layout &l,
                                 int64_t ranges)
{
    cluster_launch x;
    cluster_launch_init(on, &x, ranges * blocks_of(l), l.cluster, THREADS, 0);
    return cudaLaunchKernelEx(&x.config, kernel, l);
}

/* The backward pass from its first states; in back.cu. */
template <typename T>
cudaError_t launch_backward(struct context *on, const layout &l);

} /* namespace e74_diagonal */

#endif
