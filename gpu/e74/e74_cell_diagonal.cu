/* e74_cell, kernel `diagonal`: the elements of a diagonal state are coupled only
 * by the norm of k.  With u = z k^ (or k^) and w = z u (or u), a step of an element is
 *
 *     S <- f(a S + b),   a = 1 - w k^,   b = v k^
 *
 * The chain from step to step is one fma and one f; everything else is computed for
 * many steps in parallel.  A block has 64 columns: those of several (sequence, head)
 * pairs where n is small, a part of one where n is large.
 *
 * Time is cut into chunks of 32 steps, which the blocks of a cluster process round
 * robin.  256 threads, each with eight columns of one step, compute the chunk's pairs
 * (a, b) in shared memory.  The 64 scan threads, one per column, receive their state
 * from the block of the previous chunk, scan over the pairs, store the states and send
 * the last state on.  Then all threads compute the outputs from the states.  So only
 * the scan (tanh: some 22 cycles per step) and the hand-over (one store to the next
 * block's shared memory, without acknowledgement) are serial.  The keys of a block's
 * next chunk are in flight during the scan.  Where there are many blocks, each one
 * processes all chunks of its columns, and other blocks fill its latencies: the kernel
 * is then bound by memory.
 *
 * Backward, the gradient G of the state is a linear recurrence,
 *
 *     G <- m G + e,   m = a f',   e = m dy q
 *
 * whose chain is one fma per step.  The chunks are processed from the last to the
 * first, round robin as before.  A block replays its chunk from a checkpoint (which
 * depends on no other block), computes (m, e), receives G, scans backward, sends G on,
 * and computes the gradients of the keys from G.  State and G pass from step to step,
 * so that no result depends on the chunking.
 *
 * Two small kernels are launched where needed.  Before: a chunk that does not begin at
 * a checkpoint needs its initial state, which the forward kernel stores in a scan over
 * all segments in parallel.  After: where the columns of a key are in several blocks,
 * the gradient of its norm. */
#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/e74/columns.cuh"
#include "gpu/device/flags.cuh"
#include "gpu/device/math.cuh"
#include "gpu/e74/e74_cell.cuh"

enum {
    STEPS = 32,                     /* of a chunk */
    BLOCK_COLUMNS = 64,             /* columns of a block */
    OCTETS = BLOCK_COLUMNS / OCTET, /* groups of eight columns; a thread has one */
    THREADS = STEPS * OCTETS,
    AHEAD = 4,            /* prefetch distance, in chunks of a block */
    BATCH_STEPS = 4,      /* steps whose pairs a scan thread has in registers */
    BATCH_BACK_STEPS = 8, /* the same, backward */
    BLOCKS_ENOUGH = 528,  /* blocks that fill a large GPU */
    FINISH_WARPS = 8,     /* of a block of finish_keys */
};

/* ---- work distribution ---- */

struct layout {
    call c;
    int lanes, groups; /* octets of a (sequence, head) within a block; how many of those */
    int sets, parts;   /* such blocks; those of one (sequence, head) */
    int K;             /* c.K as an int, for fast division */
    bool aligned;      /* all octets are full and aligned */
    int cluster;       /* blocks of a cluster, a power of two */
    int64_t chunks;
    bool only_initial;     /* the launch over all segments that stores initial states */
    float *initial_states; /* [chunks][BH*N]: of chunks that begin at no checkpoint */
    float *dkhat;          /* [T*BH*N] if the gradient of the norm needs all parts */
    float *dk_tied;        /* likewise: what tied dq and dv add to dk */
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

/* As stored.  They are converted only where they are used, so that the loads stay in
 * flight until then. */
template <typename T>
struct alignas(16) octet {
    unsigned w[2 * sizeof(T)];
};

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
static __device__ __forceinline__ void store_octet(T *to, int columns, bool aligned, const eight &e)
{
    octet<T> o;
    T x[OCTET];
    for (int j = 0; j < OCTET; j++)
        store(x + j, e.x[j]);
    if (aligned && columns) {
        memcpy(&o, x, sizeof o);
        *(octet<T> *)to = o;
    } else {
        for (int j = 0; j < OCTET; j++)
            if (j < columns)
                to[j] = x[j];
    }
}

static __device__ __forceinline__ eight widened(const octet<float> &o)
{
    eight e;
    for (int j = 0; j < OCTET; j++)
        e.x[j] = __uint_as_float(o.w[j]);
    return e;
}

/* A bf16 is the upper half of a float. */
static __device__ __forceinline__ eight widened(const octet<__nv_bfloat16> &o)
{
    eight e;
    for (int j = 0; j < OCTET; j += 2) {
        e.x[j] = __uint_as_float(o.w[j / 2] << 16);
        e.x[j + 1] = __uint_as_float(o.w[j / 2] & 0xffff0000);
    }
    return e;
}

/* From the states of a step in shared memory. */
static __device__ __forceinline__ eight load_states(const float *step, int octet)
{
    eight e;
    for (int i = 0; i < OCTET / 2; i++) {
        const float2 x = ((const float2 *)step)[i * OCTETS + octet];
        e.x[2 * i] = x.x;
        e.x[2 * i + 1] = x.y;
    }
    return e;
}

/* To the pairs of a step. */
static __device__ __forceinline__ void store_pairs(float2 *step, int octet, const eight &a,
                                                   const eight &b)
{
    for (int i = 0; i < OCTET / 2; i++)
        ((float4 *)step)[i * OCTETS + octet] =
            make_float4(a.x[2 * i], b.x[2 * i], a.x[2 * i + 1], b.x[2 * i + 1]);
}

static __device__ __forceinline__ eight load_a(const float2 *step, int octet)
{
    eight a;
    for (int i = 0; i < OCTET / 2; i++) {
        const float4 x = ((const float4 *)step)[i * OCTETS + octet];
        a.x[2 * i] = x.x;
        a.x[2 * i + 1] = x.z;
    }
    return a;
}

/* ---- pairs of a step ---- */

template <typename T>
struct keys {
    octet<T> k, v, z;
};

/* At offset `at` of a tensor; columns: 0 for a step that does not exist. */
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

/* Prefetch a step's keys into L2. */
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

/* The sum over the lanes that have the octets of a (sequence, head), in each of these
 * lanes.  Called by whole warps. */
static __device__ __forceinline__ float octets_sum(const layout &l, float x)
{
    for (int d = OCTETS / 2; d; d /= 2)
        if (d < l.lanes)
            x += __shfl_xor_sync(0xffffffff, x, d);
    return x;
}

/* |k|^2; each part of a key that several blocks share reads the whole key. */
template <typename T>
static __device__ __forceinline__ float squares_of(const layout &l, const item &it, int64_t at,
                                                   bool any, const eight &key)
{
    float sum = 0;
    if (l.parts == 1)
        return octets_sum(l, dot(key, key));
    #pragma unroll 4
    for (int from = it.octet * OCTET; any && from < l.c.N; from += BLOCK_COLUMNS) {
        const T *part = (const T *)l.c.k + (at + (from - it.column));
        const eight x = widened(load_octet(part, min((int)OCTET, l.c.N - from), l.aligned));
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
    for (int j = 0; j < OCTET; j++) {
        const key x = key_of(l, k.x[j], scale, z.x[j]);
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

/* Steps from ... to - 1 of one column; stores the states to `states`. */
template <typename T, int NONLIN>
static __device__ __forceinline__ float scan_steps(const float2 *pairs, float *states, int from,
                                                   int to, float S)
{
    #pragma unroll 1
    for (; from < to; from++)
        states[from * BLOCK_COLUMNS] = S = step<T, NONLIN>(pairs[from * BLOCK_COLUMNS], S);
    return S;
}

/* A whole chunk, given its first batch of pairs. */
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

static __device__ __forceinline__ float gate_of(float y)
{
    return rcp_approx(1 + exp2_approx(-1.442695041f * y));
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

/* A scan thread's value before a chunk: from the block of the previous chunk, or its own. */
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

/* ---- forward ---- */

/* After a step: y and out; and the state after the last step, at a checkpoint, or where
 * a chunk begins whose initial state is stored. */
template <typename T>
static __device__ __forceinline__ void put_step(const layout &l, const item &it, int t,
                                                const float *step, const octet<T> &query)
{
    const call &c = l.c;
    const eight S = load_states(step, it.octet);
    const int next = t + 1;
    if (l.only_initial) {
        if (next % STEPS == 0)
            store_octet(l.initial_states + next / STEPS * c.BH * c.N + it.element, it.columns,
                        l.aligned, S);
        return;
    }
    if (next == c.T)
        store_octet(c.last + it.element, it.columns, l.aligned, S);
    else if (next % l.K == 0)
        for (int j = 0; j < it.columns; j++)
            put_kept(c, next / l.K * c.BH, it.element + j, S.x[j]);
    const eight q = widened(query);
    eight y, out;
    for (int j = 0; j < OCTET; j++) {
        y.x[j] = S.x[j] * q.x[j];
        out.x[j] = y.x[j] * y.x[j] * gate_of(y.x[j]);
    }
    const int64_t at = t * c.BH * c.N + it.element;
    store_octet((T *)c.y + at, it.columns, l.aligned, y);
    store_octet((T *)c.out + at, it.columns, l.aligned, out);
}

/* The steps that a cluster of the forward kernel scans. */
struct step_range {
    int begin, end;
};

/* For initial states: from the checkpoint of a segment to the last chunk that begins
 * within the segment. */
static __device__ step_range step_range_of(const layout &l, int segment)
{
    const int T = (int)l.c.T, begin = segment * l.K, last = min(l.K, T - begin) + begin - 1;
    return l.only_initial ? step_range{begin, last / STEPS * STEPS} : step_range{0, T};
}

/* The state before the first step of a range; it is also the first checkpoint. */
static __device__ float first_state(const layout &l, const column &own_column, int segment)
{
    const call &c = l.c;
    if (!own_column.any)
        return 0;
    if (l.only_initial)
        return get_kept(c, segment * c.BH, own_column.element);
    const float S = c.first[own_column.element];
    put_kept(c, 0, own_column.element, S);
    return S;
}

/* Rank r of a cluster processes chunks r, r + cluster, ... of a range. */
template <typename T, int NONLIN>
__global__ void __launch_bounds__(THREADS, sizeof(T) == 2 ? 4 : 2) forward_diagonal(layout l)
{
    __shared__ __align__(16) float2 pairs[STEPS * BLOCK_COLUMNS];
    __shared__ __align__(16) float states[STEPS * BLOCK_COLUMNS];
    __shared__ tagged received[BLOCK_COLUMNS];
    const call &c = l.c;
    const block_coord own = block_coord_of(l);
    const step_range s = step_range_of(l, own.segment);
    const int chunks = (s.end - s.begin + STEPS - 1) / STEPS, tid = (int)threadIdx.x;

    if (chunks <= 0)
        return;
    handover_init(l.cluster, received, BLOCK_COLUMNS);
    const item it = item_of(l, own.set, own.part, tid);
    const bool scans = tid < BLOCK_COLUMNS;
    const int stride = STEPS * l.cluster;
    const int64_t step_stride = c.BH * c.N;
    const int first = s.begin + own.rank * STEPS + it.step;
    keys<T> in = load_keys<T>(l, first * step_stride + it.element, first < s.end ? it.columns : 0);
    for (int n = 1; n < AHEAD && first + n * stride < s.end; n++)
        prefetch_keys<T>(l, it, (first + n * stride) * step_stride + it.element);
    float S = scans && own.rank == 0
                  ? first_state(l, column_of(l, own.set, own.part, tid), own.segment)
                  : 0;
    handover_ready(l.cluster);

    for (int chunk = own.rank; chunk < chunks; chunk += l.cluster) {
        const int t = s.begin + chunk * STEPS + it.step, next = t + stride,
                  later = t + AHEAD * stride;
        const int64_t at = t * step_stride + it.element;
        octet<T> query = {};
        if (!l.only_initial)
            query = load_octet((const T *)c.q + at, t < s.end ? it.columns : 0, l.aligned);
        const float length = sqrtf(squares_of<T>(l, it, at, t < s.end, widened(in.k)));
        prepare(l, it, pairs + it.step * BLOCK_COLUMNS, in, length);
        in = load_keys<T>(l, next * step_stride + it.element, next < s.end ? it.columns : 0);
        if (later < s.end)
            prefetch_keys<T>(l, it, later * step_stride + it.element);
        __syncthreads();

        if (scans) {
            const int steps = min((int)STEPS, s.end - s.begin - chunk * STEPS);
            const batch<BATCH_STEPS> first = load_batch<BATCH_STEPS>(pairs + tid, 0);
            tagged *const next_block = handover_next(l.cluster, chunk, received + tid);
            S = receive_value(l, received + tid, chunk, S);
            S = scan_chunk<T, NONLIN>(first, pairs + tid, states + tid, steps, S);
            if (chunk + 1 < chunks)
                send_value(l, next_block, chunk + 1, S);
        }
        __syncthreads();

        if (t < s.end)
            put_step(l, it, t, states + it.step * BLOCK_COLUMNS, query);
    }
    handover_finish(l.cluster);
}

/* ---- backward ---- */

/* The state of a column before step t, at which a chunk begins: a checkpoint, or stored. */
static __device__ float initial_state(const layout &l, const column &own_column, int t)
{
    const call &c = l.c;
    if (!own_column.any)
        return 0;
    return t % l.K ? l.initial_states[t / STEPS * c.BH * c.N + own_column.element]
                   : get_kept(c, t / l.K * c.BH, own_column.element);
}

/* The states of one column in a chunk, from S, the state before its first step.  At
 * checkpoints that are narrower than fp32 the replay restarts from the checkpoint. */
template <typename T, int NONLIN>
static __device__ __forceinline__ void replay(const layout &l, const column &own_column, int begin,
                                              int steps, const float2 *pairs, float *states,
                                              float S)
{
    const call &c = l.c;
    states[0] = S;
    states += BLOCK_COLUMNS;
    if (c.kept == KEPT_F32 || l.K % STEPS == 0) {
        scan_chunk<T, NONLIN>(load_batch<BATCH_STEPS>(pairs, 0), pairs, states, steps, S);
        return;
    }
    for (int from = 0, to; from < steps; from = to) {
        if (from > 0 && own_column.any)
            S = get_kept(c, (begin + from) / l.K * c.BH, own_column.element);
        to = min(steps, from + l.K - (begin + from) % l.K);
        S = scan_steps<T, NONLIN>(pairs, states, from, to, S);
    }
}

/* The states before a step, as in backward's formulas. */
static __device__ __forceinline__ eight state_before(const layout &l, const item &it, int t,
                                                     const float *step)
{
    eight S = load_states(step, it.octet);
    if (l.c.kept != KEPT_F32 && t % l.K == 0)
        for (int j = 0; j < OCTET; j++)
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
    const eight a = load_a(pairs, octet), after = load_states(states, octet);
    eight m, e;
    for (int j = 0; j < OCTET; j++) {
        m.x[j] = a.x[j] * slope<NONLIN>(after.x[j]);
        e.x[j] = m.x[j] * (dy.x[j] * q.x[j]);
    }
    store_pairs(pairs, octet, m, e);
}

/* One step back; stores dL/dS of the state after the step. */
static __device__ __forceinline__ float step_back(float2 pair, float *gradients, float G)
{
    *gradients = G;
    return fmaf(pair.x, G, pair.y);
}

/* One column of a chunk backward, given its last batch of pairs if the chunk is full;
 * returns G before the chunk. */
static __device__ __forceinline__ float scan_back(batch<BATCH_BACK_STEPS> current,
                                                  const float2 *pairs, float *gradients, int steps,
                                                  float G)
{
    if (steps < STEPS) {
        #pragma unroll 1
        for (int i = steps - 1; i >= 0; i--)
            G = step_back(pairs[i * BLOCK_COLUMNS], gradients + i * BLOCK_COLUMNS, G);
        return G;
    }
    for (int from = STEPS - BATCH_BACK_STEPS; from >= 0; from -= BATCH_BACK_STEPS) {
        const batch<BATCH_BACK_STEPS> next =
            load_batch<BATCH_BACK_STEPS>(pairs, max(from - BATCH_BACK_STEPS, 0));
        for (int i = BATCH_BACK_STEPS - 1; i >= 0; i--)
            G = step_back(current.of[i], gradients + (from + i) * BLOCK_COLUMNS, G);
        current = next;
    }
    return G;
}

/* dL/dy from y and the gradient of out. */
template <typename T>
static __device__ __forceinline__ eight through_gate(const octet<T> &y, const octet<T> &dout)
{
    const eight x = widened(y);
    eight d = widened(dout);
    for (int j = 0; j < OCTET; j++) {
        const float gate = gate_of(x.x[j]);
        d.x[j] *= x.x[j] * gate * (2 + x.x[j] * (1 - gate));
    }
    return d;
}

/* The gradients of k, v, q, z of one step, given the states from the one before the step
 * on, and dL/dS after the step. */
template <typename T, int NONLIN>
static __device__ __forceinline__ void
put_gradients(const layout &l, const item &it, int t, bool any, const keys<T> &in,
              const octet<T> &query, const eight &dy, float length, const float *states,
              const float *gradients)
{
    const call &c = l.c;
    const int columns = any ? it.columns : 0;
    const int64_t at = t * c.BH * c.N + it.element;
    const eight k = widened(in.k), v = widened(in.v), z = widened(in.z), q = widened(query);
    eight S = {}, after = {}, G = {};
    if (any) {
        S = state_before(l, it, t, states);
        after = load_states(states + BLOCK_COLUMNS, it.octet);
        G = load_states(gradients, it.octet);
    }
    const float scale = scale_of(length);
    eight dk, dv, dq, dz, dk_tied;
    for (int j = 0; j < OCTET; j++) {
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
        dk_tied.x[j] = (c.dq ? 0 : dq.x[j]) + (c.dv ? 0 : dv.x[j]);
    }
    if (c.dv)
        store_octet((T *)c.dv + at, columns, l.aligned, dv);
    if (c.dq)
        store_octet((T *)c.dq + at, columns, l.aligned, dq);
    if (c.dz)
        store_octet((T *)c.dz + at, columns, l.aligned, dz);
    if (l.dkhat) {
        store_octet(l.dkhat + at, columns, l.aligned, dk);
        if (l.dk_tied)
            store_octet(l.dk_tied + at, columns, l.aligned, dk_tied);
        return;
    }
    float k_dot_dk = octets_sum(l, dot(k, dk));
    k_dot_dk = length > 0 ? k_dot_dk * scale * scale / length : 0;
    for (int j = 0; j < OCTET; j++)
        dk.x[j] = fmaf(-k_dot_dk, k.x[j], dk.x[j] * scale) + dk_tied.x[j];
    store_octet((T *)c.dk + at, columns, l.aligned, dk);
}

/* Prefetch what the chunk at offset `at` needs. */
template <typename T>
static __device__ __forceinline__ void prefetch_chunk(const layout &l, const item &it, int64_t at)
{
    prefetch_keys<T>(l, it, at);
    if (it.columns == 0)
        return;
    prefetch_l2((const T *)l.c.y + at);
    prefetch_l2((const T *)l.c.dout + at);
}

/* Chunks are counted from the last one; rank r processes chunks r, r + cluster, ... */
template <typename T, int NONLIN>
__global__ void __launch_bounds__(THREADS, sizeof(T) == 2 ? 3 : 2) backward_diagonal(layout l)
{
    __shared__ __align__(16) float2 pairs[STEPS * BLOCK_COLUMNS];
    __shared__ __align__(16) float states[(1 + STEPS) * BLOCK_COLUMNS];
    __shared__ __align__(16) float gradients[STEPS * BLOCK_COLUMNS];
    __shared__ tagged received[BLOCK_COLUMNS];
    const call &c = l.c;
    const block_coord own = block_coord_of(l);
    const int64_t step_stride = c.BH * c.N;
    const int chunks = (int)l.chunks, tid = (int)threadIdx.x;
    const item it = item_of(l, own.set, own.part, tid);
    handover_init(l.cluster, received, BLOCK_COLUMNS);
    const bool scans = tid < BLOCK_COLUMNS;
    const column own_column = column_of(l, own.set, own.part, tid % BLOCK_COLUMNS);
    float G = scans && own.rank == 0 && own_column.any ? c.dlast[own_column.element] : 0;
    handover_ready(l.cluster);

    for (int chunk = own.rank; chunk < chunks; chunk += l.cluster) {
        const int begin = (chunks - 1 - chunk) * STEPS, steps = min((int)STEPS, (int)c.T - begin);
        const int t = begin + it.step;
        const bool any = it.step < steps;
        const int columns = any ? it.columns : 0;
        const int64_t at = t * step_stride + it.element;

        const keys<T> in = load_keys<T>(l, at, columns);
        const octet<T> query = load_octet((const T *)c.q + at, columns, l.aligned);
        const octet<T> y = load_octet((const T *)c.y + at, columns, l.aligned);
        const octet<T> dout = load_octet((const T *)c.dout + at, columns, l.aligned);
        const float S = scans ? initial_state(l, own_column, begin) : 0;
        if (chunk + l.cluster < chunks)
            prefetch_chunk<T>(l, it, at - l.cluster * STEPS * step_stride);
        const float length = sqrtf(squares_of<T>(l, it, at, any, widened(in.k)));
        prepare(l, it, pairs + it.step * BLOCK_COLUMNS, in, length);
        __syncthreads();

        if (scans)
            replay<T, NONLIN>(l, own_column, begin, steps, pairs + tid, states + tid, S);
        const eight dy = through_gate(y, dout);
        __syncthreads();

        if (any)
            to_gradients<NONLIN>(pairs + it.step * BLOCK_COLUMNS,
                                 states + (it.step + 1) * BLOCK_COLUMNS, it.octet, dy,
                                 widened(query));
        __syncthreads();

        if (scans) {
            const batch<BATCH_BACK_STEPS> last =
                load_batch<BATCH_BACK_STEPS>(pairs + tid, STEPS - BATCH_BACK_STEPS);
            tagged *const next_block = handover_next(l.cluster, chunk, received + tid);
            G = receive_value(l, received + tid, chunk, G);
            G = scan_back(last, pairs + tid, gradients + tid, steps, G);
            if (chunk + 1 < chunks)
                send_value(l, next_block, chunk + 1, G);
            if (begin == 0 && own_column.any)
                c.dfirst[own_column.element] = G;
        }
        __syncthreads();

        put_gradients<T, NONLIN>(l, it, t, any, in, query, dy, length,
                                 states + it.step * BLOCK_COLUMNS,
                                 gradients + it.step * BLOCK_COLUMNS);
    }
    handover_finish(l.cluster);
}

/* The gradient of k from that of k^, where its columns are in several blocks: one warp
 * per (step, sequence, head). */
template <typename T>
__global__ void __launch_bounds__(32 * FINISH_WARPS) finish_keys(layout l)
{
    const call &c = l.c;
    const int64_t item = (int64_t)blockIdx.x * FINISH_WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int64_t at = item * c.N;
    float squares = 0, k_dot_dk = 0;

    if (item >= c.T * c.BH)
        return;
    for (int i = lane; i < c.N; i += 32) {
        const float k = load((const T *)c.k + at + i);
        squares = fmaf(k, k, squares);
        k_dot_dk = fmaf(k, l.dkhat[at + i], k_dot_dk);
    }
    for (int d = 16; d; d /= 2) {
        squares += __shfl_xor_sync(0xffffffff, squares, d);
        k_dot_dk += __shfl_xor_sync(0xffffffff, k_dot_dk, d);
    }
    const float length = sqrtf(squares), scale = scale_of(length);
    k_dot_dk = length > 0 ? k_dot_dk * scale * scale / length : 0;
    for (int i = lane; i < c.N; i += 32) {
        const float k = load((const T *)c.k + at + i);
        const float dk_tied = l.dk_tied ? l.dk_tied[at + i] : 0;
        store((T *)c.dk + at + i, fmaf(-k_dot_dk, k, l.dkhat[at + i] * scale) + dk_tied);
    }
}

/* ---- launches ---- */

static int64_t blocks_of(const layout &l)
{
    return (int64_t)l.sets * l.parts;
}

/* Cluster size: doubled while each block has a chunk and the grid fits the GPU. */
static int cluster_size_for(int64_t blocks, int64_t chunks)
{
    int n = 1;
    while (n < cluster_max() && 2 * n <= chunks && 2 * n * blocks <= BLOCKS_ENOUGH)
        n *= 2;
    return n;
}

static layout layout_of(const struct frame *f)
{
    layout l = {};
    const call &c = l.c = call_of(f);

    for (l.lanes = 1; l.lanes < OCTETS && OCTET * l.lanes < c.N; l.lanes *= 2)
        ;
    l.groups = OCTETS / l.lanes;
    l.sets = (int)ceil_div(c.BH, l.groups);
    l.K = (int)c.K;
    l.parts = (int)ceil_div(c.N, BLOCK_COLUMNS);
    l.aligned = c.N % OCTET == 0;
    l.chunks = ceil_div(c.T, STEPS);
    l.cluster = cluster_size_for(blocks_of(l), l.chunks);
    return l;
}

/* The launch that stores initial states, before backward. */
static layout initial_layout_of(const layout &l)
{
    layout initial = l;
    initial.only_initial = true;
    initial.cluster =
        cluster_size_for(blocks_of(l) * ceil_div(l.c.T, l.c.K), ceil_div(l.c.K, STEPS));
    return initial;
}

/* Divide backward's workspace; returns its size in floats. */
static int64_t divide_workspace(layout *l, const struct frame *f, float *work)
{
    const call &c = l->c;
    const int64_t all = c.T * c.BH * c.N;
    const int proj = f->choice[E74_PROJ];
    int64_t n = 0;

    if (l->parts > 1) {
        l->dkhat = work + n;
        n += all;
        if (proj == E74_TIED_KQ || proj == E74_TIED_KVQ) {
            l->dk_tied = work + n;
            n += all;
        }
    }
    if (STEPS % c.K && l->chunks > 1) {
        l->initial_states = work + n;
        n += l->chunks * c.BH * c.N;
    }
    return n;
}

/* `ranges`: ranges of steps that are scanned in parallel. */
static cudaError_t launch(void (*kernel)(layout), const layout &l, int64_t ranges)
{
    cluster_launch x;
    cluster_launch_init(&x, ranges * blocks_of(l), l.cluster, THREADS, 0);
    return cudaLaunchKernelEx(&x.config, kernel, l);
}

template <typename T>
static cudaError_t launch_forward(const layout &l, int64_t ranges)
{
    return launch(l.c.nonlin == E74_TANH ? forward_diagonal<T, E74_TANH>
                                         : forward_diagonal<T, E74_LINEAR>,
                  l, ranges);
}

template <typename T>
static cudaError_t launch_backward(const layout &l)
{
    return launch(l.c.nonlin == E74_TANH ? backward_diagonal<T, E74_TANH>
                                         : backward_diagonal<T, E74_LINEAR>,
                  l, 1);
}

template <typename T>
static int forward(const struct frame *f)
{
    return launch_forward<T>(layout_of(f), 1);
}

template <typename T>
static int backward(const struct frame *f)
{
    layout l = layout_of(f);
    const call &c = l.c;

    divide_workspace(&l, f, (float *)f->work);
    if (l.initial_states)
        CUDA(launch_forward<T>(initial_layout_of(l), ceil_div(c.T, c.K)));
    CUDA(launch_backward<T>(l));
    if (l.parts > 1) {
        const int64_t blocks = ceil_div(c.T * c.BH, FINISH_WARPS);
        finish_keys<T><<<blocks, 32 * FINISH_WARPS, 0, gpu_stream()>>>(l);
        CUDA(cudaGetLastError());
    }
    return 0;
}

static size_t work(const struct frame *f, enum pass p)
{
    layout l = layout_of(f);
    return p == FORWARD ? 0 : sizeof(float) * divide_workspace(&l, f, NULL);
}

static const char *declines(const struct frame *f)
{
    const char *no = e74_plain32.declines(f);
    if (no)
        return no;
    if (f->choice[E74_STATE] != E74_DIAGONAL)
        return "only for state = diagonal";
    if (f->choice[E74_NONLIN] != E74_TANH && f->choice[E74_NONLIN] != E74_LINEAR)
        return "rmsnorm and frobnorm couple the columns of a state";
    return NULL;
}

static const char name[] = "diagonal",
                  idea[] = "one thread per column of the state; chunks of time in parallel";

GPU_IMPL(extern "C", 32, float, e74_diagonal, name, idea, work, declines, "ex2.approx, rcp.approx",
         3e-7);
GPU_IMPL(extern "C", 16, __nv_bfloat16, e74_diagonal, name, idea, work, declines, "tanh.approx",
         5e-4);
