/* e74_cell, kernel `rows`: the rows of a state share the keys but are independent of each other,
 * per row s of S:
 *
 *     delta = v - z s u,  s <- f(s + delta k^),  y = s q,  out = y silu(y)
 *
 * A row is held in registers through all steps by LANES neighbouring threads, 8 columns per thread,
 * or 16 where there are enough rows to fill the device.  The latter needs fewer shuffles and fewer
 * loads of keys for the same work, so that tanh is the bound.
 *
 * The critical path of a step: dot product with u (8 products per thread, then shuffles over the
 * lanes), residual, update, f.  The dot product with the query is computed together with the next
 * step's, off that path.  Half of a block's warps, the consumers, do only this.  The other half,
 * the producers, load and normalise the keys into shared memory one chunk of steps ahead, and store
 * the outputs one chunk behind.
 *
 * The backward pass is in back.cu.
 *
 * A step uses fmaf and never a * b + c, so that the compiler cannot contract forward and replay
 * differently. */
#include "gpu/device/cluster.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/e74/cell/rows/rows.cuh"

using namespace e74_rows;

enum { IN_FLIGHT = 2 }; /* batches of keys in flight */

/* Threads per block and role; MANY: where a consumer has 16 columns. */
enum { PRODUCER_THREADS = 128, MANY_ROLE_THREADS = 256, MANY_PRODUCER_THREADS = 256 };

template <typename T>
static __device__ __forceinline__ void store_outputs(const layout &l, const work_coord &p,
                                                     int64_t t, int steps, const float *y)
{
    for (int step = p.step; step < steps && p.quad_row < p.rows; step += p.step_stride) {
        const four<float> x = *(const four<float> *)(y + step * l.rows + p.quad_row);
        four<float> out;
        for (int j = 0; j < 4; j++)
            out.x[j] = gate_output(x.x[j], sigmoid(x.x[j]));
        store_elements<T>(l, p, l.c.y, t + step, x);
        store_elements<T>(l, p, l.c.out, t + step, out);
    }
}

template <int LANES, int PER_LANE>
static __device__ void store_checkpoint(const cell_call &c, const work_coord &p, int64_t segment,
                                        const strip<PER_LANE> &S)
{
    if (c.kept == KEPT_F32) {
        float *to = (float *)c.checkpoints + segment * c.BH * c.M + p.element;
        store_strip<LANES, PER_LANE>(to, p.any ? c.columns : 0, p.lane, S);
        return;
    }
    for (int j = 0; j < PER_LANE * OCTET && p.any; j++) {
        const int column = column_of<LANES, PER_LANE>(p.lane, j);
        if (column < c.columns)
            put_kept(c, segment * c.BH, p.element + column, S.of[j / OCTET].x[j % OCTET]);
    }
}

/* Scans steps from ... to - 1 of a chunk.  The next step's S u is summed over the lanes together
 * with this step's y. */
template <typename T, int LANES, int PER_LANE, int NONLIN, bool INSIDE>
static __device__ __forceinline__ void scan(const layout &l, const work_coord &p,
                                            const stage_ptrs &s, int from, int to,
                                            strip<PER_LANE> &S)
{
    operand_ptrs at = operand_ptrs_of(l, p, s, from);
    const float *query_at = s.q + from * l.width;
    float *y_at = s.y + from * l.rows + p.row;
    operands<PER_LANE> now = load_operands<LANES, PER_LANE, INSIDE>(&at, l, p);
    float reads = warp_sum<LANES>(dot(S, now.read));

    #pragma unroll 2
    for (int i = from + 1; i < to; i++) {
        const strip<PER_LANE> query = load_strip_shared<LANES, PER_LANE>(query_at, p.lane);
        const operands<PER_LANE> then = load_operands<LANES, PER_LANE, INSIDE>(&at, l, p);
        advance<T>(S, now, reads, NONLIN == E74_TANH);
        const float y = dot(S, query);
        float sums[] = {dot(S, then.read), y};
        warp_sums<LANES>(sums);
        reads = sums[0];
        if (p.lane == 0)
            *y_at = sums[1];
        query_at += l.width;
        y_at += l.rows;
        now = then;
    }
    advance<T>(S, now, reads, NONLIN == E74_TANH);
    const float y = warp_sum<LANES>(dot(S, load_strip_shared<LANES, PER_LANE>(query_at, p.lane)));
    if (p.lane == 0)
        *y_at = y;
}

/* The stage of a chunk, one of two. */
static __device__ stage_ptrs stage_of(const layout &l, unsigned char *buffer, int64_t chunk)
{
    smem_arena stage = {buffer + chunk % 2 * arena_bytes<alloc_stage>(l, false), 0};
    return alloc_stage(&stage, l, false);
}

/* The consumer warps scan all steps, from the initial state to the final state. */
template <typename T, int LANES, int PER_LANE, int NONLIN, bool INSIDE>
static __device__ __forceinline__ void consume(const layout &l, const work_coord &p,
                                               unsigned char *buffer)
{
    const cell_call &c = l.c;
    const int columns = p.any ? c.columns : 0;
    int64_t until_kept = 0, segment = 0;
    strip<PER_LANE> S = load_strip<LANES, PER_LANE>(c.first + p.element, columns, p.lane);

    block_barrier();
    for (int64_t t = 0, chunk = 0; t < c.T; t += l.steps, chunk++) {
        const int steps = (int)min((int64_t)l.steps, c.T - t);
        for (int from = 0, to; from < steps; from = to) {
            if (until_kept == 0) {
                store_checkpoint<LANES, PER_LANE>(c, p, segment++, S);
                until_kept = c.K;
            }
            to = (int)min((int64_t)steps, from + until_kept);
            until_kept -= to - from;
            scan<T, LANES, PER_LANE, NONLIN, INSIDE>(l, p, stage_of(l, buffer, chunk), from, to, S);
        }
        block_barrier();
    }
    store_strip<LANES, PER_LANE>(c.last + p.element, columns, p.lane, S);
}

/* The producer warps load one chunk ahead, and store outputs one chunk behind: before the first barrier
 * they load the first chunk. */
template <typename T, int OCTETS, bool ALIGNED>
static __device__ __forceinline__ void produce(const layout &l, const work_coord &p,
                                               unsigned char *buffer)
{
    const int64_t all = l.c.T;
    int64_t chunk = -1;

    for (int64_t t = -l.steps; t < all; t += l.steps, chunk++) {
        const stage_ptrs other = stage_of(l, buffer, chunk + 1);
        const int64_t next = t + l.steps;
        const int steps = (int)min((int64_t)l.steps, all - next);
        incoming<T> in[IN_FLIGHT];

        #pragma unroll 2
        for (int i = 0; i < IN_FLIGHT; i++)
            in[i] = load_batch<T, OCTETS, false, ALIGNED>(l, p, next, i * l.batch, steps);
        if (chunk > 0)
            store_outputs<T>(l, p, t - l.steps, l.steps, other.y);
        for (int first = 0; first < steps; first += IN_FLIGHT * l.batch)
            #pragma unroll 2
            for (int i = 0; i < IN_FLIGHT; i++) {
                const int from = first + i * l.batch;
                if (from >= steps)
                    break;
                store_batch<T, OCTETS, false>(in[i], l, p, from, min(l.batch, steps - from), other);
                in[i] = load_batch<T, OCTETS, false, ALIGNED>(l, p, next,
                                                              from + IN_FLIGHT * l.batch, steps);
            }
        block_barrier();
    }
    const int64_t last = (chunk - 1) * l.steps;
    store_outputs<T>(l, p, last, (int)(all - last), stage_of(l, buffer, chunk - 1).y);
}

/* f, and whether z is inside, are chosen here, so that all have the producers' code once. */
template <typename T, int LANES, int PER_LANE>
__global__ void __launch_bounds__(PER_LANE > 1 ? MANY_ROLE_THREADS + MANY_PRODUCER_THREADS
                                               : ROLE_THREADS + PRODUCER_THREADS,
                                  PER_LANE > 1 ? 1 : 2) forward_rows(layout l)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    const work_coord p = work_coord_of<LANES, PER_LANE, 1>(l, blockIdx.x);
    const bool has_tanh = l.c.nonlin == E74_TANH;

    if (warp_uniform(p.role) == 0) {
        if (has_tanh && l.c.z_inside)
            consume<T, LANES, PER_LANE, E74_TANH, true>(l, p, buffer);
        else if (has_tanh)
            consume<T, LANES, PER_LANE, E74_TANH, false>(l, p, buffer);
        else if (l.c.z_inside)
            consume<T, LANES, PER_LANE, E74_LINEAR, true>(l, p, buffer);
        else
            consume<T, LANES, PER_LANE, E74_LINEAR, false>(l, p, buffer);
    } else if (l.c.columns % 4) {
        produce<T, LANES * PER_LANE, false>(l, p, buffer);
    } else {
        produce<T, LANES * PER_LANE, true>(l, p, buffer);
    }
}

/* ---- launches ---- */

static size_t shared_bytes(const layout &l)
{
    return 2 * arena_bytes<alloc_stage>(l, false);
}

template <typename T, int LANES, int PER_LANE>
static int launch(struct context *on, const layout &l)
{
    void (*const kernel)(layout) = forward_rows<T, LANES, PER_LANE>;
    const int threads = l.role_threads + l.producer_threads;
    const size_t shared = shared_bytes(l);

    CUDA(allow_smem(kernel, shared));
    kernel<<<blocks_of(l), threads, shared, on->stream>>>(l);
    return cudaGetLastError();
}

/* Does a consumer have 16 columns?  (In fp32, and where rows are short, the producers' registers
 * leave too few for that.) */
static bool many_rows(struct context *on, const layout &l, size_t size)
{
    return size == sizeof(__nv_bfloat16) && l.lanes > 4 &&
           l.c.BH * l.c.N * l.width >= on->limits.wide_lane_elements;
}

static int launch_many_rows(struct context *on, const layout &l)
{
    switch (l.lanes) {
    case 4: return launch<__nv_bfloat16, 4, 2>(on, l);
    case 8: return launch<__nv_bfloat16, 8, 2>(on, l);
    default: return launch<__nv_bfloat16, 16, 2>(on, l);
    }
}

/* Chunks are as long as shared memory allows for two blocks per SM, or for one where rows are
 * many. */
template <typename T>
static int forward(const struct call *f)
{
    layout l = layout_of(f, {2, ROLE_THREADS, PRODUCER_THREADS, 1, 1});
    const bool many = many_rows(f->context, l, sizeof(T));
    const size_t max_shared = many ? gpu_limits(f)->smem : gpu_limits(f)->smem_two;

    if (many)
        l = layout_of(f, {2, MANY_ROLE_THREADS, MANY_PRODUCER_THREADS, 2, 1});
    for (l.steps = CHUNK; l.steps > 1 && shared_bytes(l) > max_shared; l.steps /= 2)
        ;
    if (many)
        return launch_many_rows(f->context, l);
    switch (l.lanes) {
    case 1: return launch<T, 1, 1>(f->context, l);
    case 2: return launch<T, 2, 1>(f->context, l);
    case 4: return launch<T, 4, 1>(f->context, l);
    case 8: return launch<T, 8, 1>(f->context, l);
    case 16: return launch<T, 16, 1>(f->context, l);
    default: return launch<T, 32, 1>(f->context, l);
    }
}

template <typename T>
static int backward(const struct call *f)
{
    return backward_pass<T>(f);
}

static size_t work(const struct call *f, enum pass p)
{
    return p == FORWARD ? 0 : backward_work(f);
}

static const char *declines(const struct call *f)
{
    int state = f->choice[E74_STATE], nonlin = f->choice[E74_NONLIN];
    const char *no = plain_cell<float>::kernel.declines(f);
    if (no)
        return no;
    if (state != E74_FULL && state != E74_BLOCKDIAG)
        return "only for state = full and blockdiag";
    if (nonlin != E74_TANH && nonlin != E74_LINEAR)
        return "rmsnorm and frobnorm make the rows of a state depend on each other";
    if (state == E74_BLOCKDIAG && DIM(f, 'L') <= OCTET * 2)
        return "block_size up to 16: rows too short to divide among threads";
    if (DIM(f, state == E74_FULL ? 'N' : 'L') > OCTET * 32)
        return state == E74_FULL ? "n_state beyond 256" : "block_size beyond 256";
    if (!backward_fits(f))
        return "the states of a step of backward are more than the shared memory of a block";
    return NULL;
}

GPU_KERNEL_OF(rows_cell, rows,
              .idea = "a row in registers, 8 columns per thread; bf16: 16 where rows are many",
              .pass = {forward<T>, backward<T>}, .work = work, .declines = declines,
              .approximates = tanh_of<T>::APPROXIMATES, .unit = tanh_of<T>::UNIT);
