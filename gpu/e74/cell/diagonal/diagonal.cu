/* e74_cell, kernel `diagonal`: the elements of a diagonal state are coupled only by the norm of k.
 * With u = z k^ (or k^) and w = z u (or u), a step of an element is
 *
 *     S <- f(a S + b),   a = 1 - w k^,   b = v k^
 *
 * The chain from step to step is one fma and one f; everything else is computed for many steps in
 * parallel.  A block has 64 columns: those of several (sequence, head) pairs where n is small, a
 * part of one where n is large.
 *
 * Time is cut into chunks of 32 steps, which the blocks of a cluster process round robin.  256
 * threads, each with eight columns of one step, compute the chunk's pairs (a, b) in shared memory.
 * The 64 scan threads, one per column, receive their state from the block of the previous chunk,
 * scan over the pairs, store the states and send the last state on.  Then all threads compute the
 * outputs from the states.  So only the scan (tanh: some 22 cycles per step) and the hand-over (one
 * store to the next block's shared memory, without acknowledgement) are serial.  The keys of a
 * block's next chunk are in flight during the scan.  Where there are many blocks, each one
 * processes all chunks of its columns, and other resident blocks hide its latencies: the kernel is
 * then bound by memory.
 *
 * Backward, the gradient G of the state is a linear recurrence,
 *
 *     G <- m G + e,   m = a f',   e = m dy q
 *
 * whose chain is one fma per step.  The chunks are processed from the last to the first, round
 * robin as before.  A block replays its chunk from a checkpoint (which depends on no other block),
 * computes (m, e), receives G, scans backward, sends G on, and computes the gradients of the keys
 * from G.  State and G pass from step to step, so that no result depends on the chunking.
 *
 * Two small kernels are launched where needed.  Before: a chunk that does not begin at a checkpoint
 * needs its initial state, which the forward kernel stores in a scan over all segments in
 * parallel.  After: where the columns of a key are in several blocks, finish_keys() computes the
 * gradient of its norm. */
#include "gpu/e74/cell/diagonal/diagonal.cuh"

using namespace e74_diagonal;

enum {
    AHEAD = 4,           /* prefetch distance, in chunks of a block */
    BLOCKS_ENOUGH = 528, /* blocks that fill a large GPU */
};

/* ---- forward ---- */

/* Stores y and out of a step; and the state after it, if it is the last step, or a checkpoint or a
 * stored initial state is due. */
template <typename T>
static __device__ __forceinline__ void put_step(const layout &l, const item &it, int t,
                                                const float *step, const octet<T> &query)
{
    const cell_call &c = l.c;
    const float8 S = load_states(step, it.octet);
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
    const float8 q = widened(query);
    float8 y, out;
    for (int j = 0; j < OCTET; j++) {
        y.x[j] = S.x[j] * q.x[j];
        out.x[j] = gate_output(y.x[j], sigmoid(y.x[j]));
    }
    const int64_t at = t * c.BH * c.N + it.element;
    store_octet((T *)c.y + at, it.columns, l.aligned, y);
    store_octet((T *)c.out + at, it.columns, l.aligned, out);
}

/* The steps that a cluster of the forward kernel scans. */
struct step_range {
    int begin, end;
};

/* Where only initial states are stored: from the checkpoint of a segment to the last chunk that
 * begins within the segment. */
static __device__ step_range step_range_of(const layout &l, int segment)
{
    const int T = (int)l.c.T, begin = segment * l.K, last = min(l.K, T - begin) + begin - 1;
    return l.only_initial ? step_range{begin, last / STEPS * STEPS} : step_range{0, T};
}

/* The state before the first step of a range; it is also the first checkpoint. */
static __device__ float first_state(const layout &l, const column &own_column, int segment)
{
    const cell_call &c = l.c;
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
__global__ void __launch_bounds__(THREADS, storage<T>::PER_WORD == 2 ? 4 : 2)
    forward_diagonal(layout l)
{
    __shared__ __align__(16) float2 pairs[STEPS * BLOCK_COLUMNS];
    __shared__ __align__(16) float states[STEPS * BLOCK_COLUMNS];
    __shared__ tagged received[BLOCK_COLUMNS];
    const cell_call &c = l.c;
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

/* ---- launches ---- */

/* Cluster size: doubled while each block has a chunk and the grid fits the GPU. */
static int cluster_size_for(struct context *on, int64_t blocks, int64_t chunks)
{
    int n = 1;
    while (n < cluster_max(on) && 2 * n <= chunks && 2 * n * blocks <= BLOCKS_ENOUGH)
        n *= 2;
    return n;
}

static layout layout_of(const struct call *f)
{
    layout l = {};
    const cell_call &c = l.c = cell_call_of(f);

    for (l.lanes = 1; l.lanes < OCTETS && OCTET * l.lanes < c.N; l.lanes *= 2)
        ;
    l.groups = OCTETS / l.lanes;
    l.sets = (int)ceil_div(c.BH, l.groups);
    l.K = (int)c.K;
    l.parts = (int)ceil_div(c.N, BLOCK_COLUMNS);
    l.aligned = c.N % OCTET == 0;
    l.chunks = ceil_div(c.T, STEPS);
    l.cluster = cluster_size_for(f->context, blocks_of(l), l.chunks);
    return l;
}

/* The launch that stores initial states, before backward. */
static layout initial_layout_of(struct context *on, const layout &l)
{
    layout initial = l;
    initial.only_initial = true;
    initial.cluster =
        cluster_size_for(on, blocks_of(l) * ceil_div(l.c.T, l.c.K), ceil_div(l.c.K, STEPS));
    return initial;
}

/* Divides backward's workspace; returns its bytes. */
static size_t divide_workspace(layout *l, const struct call *f)
{
    const cell_call &c = l->c;
    const int64_t all = c.T * c.BH * c.N;
    const int proj = f->choice[E74_PROJ];
    const bool tied = proj == E74_TIED_KQ || proj == E74_TIED_KVQ;
    work_arena a = {(char *)f->work, 0};

    l->dkhat = take<float>(&a, l->parts > 1 ? all : 0);
    l->dk_tied = take<float>(&a, l->parts > 1 && tied ? all : 0);
    l->initial_states = take<float>(&a, STEPS % c.K && l->chunks > 1 ? l->chunks * c.BH * c.N : 0);
    return a.bytes;
}

template <typename T>
static cudaError_t launch_forward(struct context *on, const layout &l, int64_t ranges)
{
    return launch(on,
                  l.c.nonlin == E74_TANH ? forward_diagonal<T, E74_TANH>
                                         : forward_diagonal<T, E74_LINEAR>,
                  l, ranges);
}

template <typename T>
static int forward(const struct call *f)
{
    return launch_forward<T>(f->context, layout_of(f), 1);
}

template <typename T>
static int backward(const struct call *f)
{
    layout l = layout_of(f);
    const cell_call &c = l.c;

    divide_workspace(&l, f);
    if (l.initial_states)
        CUDA(launch_forward<T>(f->context, initial_layout_of(f->context, l), ceil_div(c.T, c.K)));
    return launch_backward<T>(f->context, l);
}

static size_t work(const struct call *f, enum pass p)
{
    layout l = layout_of(f);
    return p == FORWARD ? 0 : divide_workspace(&l, f);
}

static const char *declines(const struct call *f)
{
    const char *no = plain_cell<float>::kernel.declines(f);
    if (no)
        return no;
    if (f->choice[E74_STATE] != E74_DIAGONAL)
        return "only for state = diagonal";
    if (f->choice[E74_NONLIN] != E74_TANH && f->choice[E74_NONLIN] != E74_LINEAR)
        return "rmsnorm and frobnorm couple the columns of a state";
    return NULL;
}

GPU_KERNEL_OF(diagonal_cell, diagonal,
              .idea = "one thread per column of the state; chunks of time in parallel",
              .pass = {forward<T>, backward<T>}, .work = work, .declines = declines,
              .approximates = tanh_of<T>::APPROXIMATES, .unit = tanh_of<T>::UNIT);
