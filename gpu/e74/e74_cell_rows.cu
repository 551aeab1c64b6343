/* e74_cell, kernel `rows`: a state's rows meet the same keys but never each
 * other, so each row is carried through all steps by LANES neighbouring
 * threads, which hold eight of its columns each in registers, or, where rows
 * enough keep the chip busy, twice eight: fewer sums over lanes and fewer keys
 * to fetch for the same work, and so at last bound by tanh.
 *
 * A step is a chain: dot product with the key (eight products a thread, then
 * shuffles over the lanes), residual, update, f.  The dot product with the
 * query goes along with the next step's, off the chain.  A block has as many
 * threads again that keep everything else away from the chain: a chunk of
 * steps ahead they bring keys into shared memory, normalised; a chunk behind
 * they write the outputs.
 *
 * The way back is in e74_cell_rows_back.cu.
 *
 * The step uses fmaf and never a bare a * b + c, so that forward and replay
 * cannot be contracted differently. */
#include "gpu/device/cluster.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/e74/e74_cell_rows.cuh"

enum { DEPTH = 2 }; /* batches of keys on their way at once */

/* Of a block; and where a carrier has twice eight columns. */
enum { HELPERS = 128, CROWD_CREW = 256, CROWD_HELPERS = 256 };

template <typename T>
static __device__ __forceinline__ void put_outputs(const layout &l, const place &p, int64_t t,
                                                   int steps, const float *y)
{
    for (int step = p.step; step < steps && p.number < p.rows; step += p.span) {
        const four<float> x = *(const four<float> *)(y + step * l.rows + p.number);
        four<float> out;
        for (int j = 0; j < 4; j++)
            out.x[j] = x.x[j] * x.x[j] * rcp_approx(1 + expf(-x.x[j]));
        put_numbers<T>(l, p, l.c.y, t + step, x);
        put_numbers<T>(l, p, l.c.out, t + step, out);
    }
}

template <int LANES, int EACH>
static __device__ void keep_state(const call &c, const place &p, int64_t segment,
                                  const strip<EACH> &S)
{
    if (c.kept == KEPT_F32) {
        float *to = (float *)c.checkpoints + segment * c.BH * c.M + p.element;
        store_strip<LANES, EACH>(to, p.any ? c.columns : 0, p.lane, S);
        return;
    }
    for (int j = 0; j < EACH * COLUMNS && p.any; j++) {
        const int column = column_of<LANES, EACH>(p.lane, j);
        if (column < c.columns)
            put_kept(c, segment * c.BH, p.element + column, S.of[j / COLUMNS].x[j % COLUMNS]);
    }
}

/* Steps from ... to - 1 of a chunk.  What the next step reads is added up over
 * the lanes together with this one's y. */
template <typename T, int LANES, int EACH, int NONLIN, bool INSIDE>
static __device__ __forceinline__ void walk(const layout &l, const place &p, const staged &s,
                                            int from, int to, strip<EACH> &S)
{
    table at = table_of(l, p, s, from);
    const float *query_at = s.q + from * l.width;
    float *y_at = s.y + from * l.rows + p.row;
    meal<EACH> now = serve<LANES, EACH, INSIDE>(&at, l, p);
    float reads = lanes_sum<LANES>(dot(S, now.read)), y = 0;

    #pragma unroll 2
    for (int i = from + 1; i < to; i++) {
        const strip<EACH> query = take_strip<LANES, EACH>(query_at, p.lane);
        const meal<EACH> then = serve<LANES, EACH, INSIDE>(&at, l, p);
        advance<T>(S, now, reads, NONLIN == E74_TANH);
        y = dot(S, query);
        reads = dot(S, then.read);
        lanes_sums<LANES>(&reads, &y);
        if (p.lane == 0)
            *y_at = y;
        query_at += l.width;
        y_at += l.rows;
        now = then;
    }
    advance<T>(S, now, reads, NONLIN == E74_TANH);
    y = lanes_sum<LANES>(dot(S, take_strip<LANES, EACH>(query_at, p.lane)));
    if (p.lane == 0)
        *y_at = y;
}

/* The chunks' places in shared memory take turns. */
static __device__ staged staged_of(const layout &l, float *buffer, int64_t chunk)
{
    staged s;
    const int size = carve(l, 0, buffer, &s);
    carve(l, 0, buffer + chunk % 2 * size, &s);
    return s;
}

/* The carriers: from the state before all steps to that after them. */
template <typename T, int LANES, int EACH, int NONLIN, bool INSIDE>
static __device__ __forceinline__ void carry(const layout &l, const place &p, float *buffer)
{
    const call &c = l.c;
    const int columns = p.any ? c.columns : 0;
    int64_t until_kept = 0, segment = 0;
    strip<EACH> S = load_strip<LANES, EACH>(c.first + p.element, columns, p.lane);

    block_barrier();
    for (int64_t t = 0, chunk = 0; t < c.T; t += l.steps, chunk++) {
        const int steps = (int)min((int64_t)l.steps, c.T - t);
        for (int from = 0, to; from < steps; from = to) {
            if (until_kept == 0) {
                keep_state<LANES, EACH>(c, p, segment++, S);
                until_kept = c.K;
            }
            to = (int)min((int64_t)steps, from + until_kept);
            until_kept -= to - from;
            walk<T, LANES, EACH, NONLIN, INSIDE>(l, p, staged_of(l, buffer, chunk), from, to, S);
        }
        block_barrier();
    }
    store_strip<LANES, EACH>(c.last + p.element, columns, p.lane, S);
}

/* The helpers: a chunk ahead, and a chunk behind. */
template <typename T, int OCTETS, bool INSIDE, bool ALIGNED>
static __device__ __forceinline__ void help(const layout &l, const place &p, float *buffer)
{
    const int64_t all = l.c.T;
    int64_t chunk = 0;

    bring<T, OCTETS, false, ALIGNED>(l, p, 0, 0, (int)min((int64_t)l.steps, all),
                                     staged_of(l, buffer, 0));
    block_barrier();
    for (int64_t t = 0; t < all; t += l.steps, chunk++) {
        const staged other = staged_of(l, buffer, chunk + 1);
        const int64_t next = t + l.steps;
        const int steps = (int)min((int64_t)l.steps, all - next);
        incoming<T> in[DEPTH];

        #pragma unroll 2
        for (int i = 0; i < DEPTH; i++)
            in[i] = send_for<T, OCTETS, INSIDE, false, ALIGNED>(l, p, next, i * l.batch, steps);
        if (chunk > 0)
            put_outputs<T>(l, p, t - l.steps, l.steps, other.y);
        for (int first = 0; first < steps; first += DEPTH * l.batch)
            #pragma unroll 2
            for (int i = 0; i < DEPTH; i++) {
                const int from = first + i * l.batch;
                if (from >= steps)
                    break;
                settle<T, OCTETS, false>(in[i], l, p, from, min(l.batch, steps - from), other);
                in[i] = send_for<T, OCTETS, INSIDE, false, ALIGNED>(l, p, next,
                                                                    from + DEPTH * l.batch, steps);
            }
        block_barrier();
    }
    const int64_t last = (chunk - 1) * l.steps;
    put_outputs<T>(l, p, last, (int)(all - last), staged_of(l, buffer, chunk - 1).y);
}

template <typename T, int LANES, int EACH, int NONLIN, bool INSIDE>
__global__ void __launch_bounds__(EACH > 1 ? CROWD_CREW + CROWD_HELPERS : CREW + HELPERS,
                                  EACH > 1 ? 1 : 2) forward_rows(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const place p = map_shared_rank<LANES, EACH, 1>(l, blockIdx.x);

    if (of_warp(p.crew) == 0)
        carry<T, LANES, EACH, NONLIN, INSIDE>(l, p, buffer);
    else if (l.c.columns % 4)
        help<T, LANES * EACH, INSIDE, false>(l, p, buffer);
    else
        help<T, LANES * EACH, INSIDE, true>(l, p, buffer);
}

/* ---- launches ---- */

static size_t shared_bytes(const layout &l)
{
    staged s;
    return 2 * carve(l, 0, NULL, &s) * sizeof(float);
}

template <typename T, int LANES, int EACH, int NONLIN>
static int launch(const layout &l)
{
    void (*const kernel)(layout) = l.c.z_inside ? forward_rows<T, LANES, EACH, NONLIN, true>
                                                : forward_rows<T, LANES, EACH, NONLIN, false>;
    const int threads = l.crew + l.helpers;
    const size_t shared = shared_bytes(l);

    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    kernel<<<blocks_of(l), threads, shared, gpu_stream()>>>(l);
    return cudaGetLastError();
}

template <typename T, int LANES, int EACH>
static int launch_nonlin(const layout &l)
{
    return l.c.nonlin == E74_TANH ? launch<T, LANES, EACH, E74_TANH>(l)
                                  : launch<T, LANES, EACH, E74_LINEAR>(l);
}

/* (In fp32, and where rows are short, the helpers leave no registers for that.) */
static bool crowded(const layout &l, size_t size)
{
    return size == sizeof(__nv_bfloat16) && l.lanes > 4 &&
           l.c.BH * l.c.N * l.width >= gpu_limits()->crowd;
}

static int launch_crowd(const layout &l)
{
    switch (l.lanes) {
    case 4: return launch_nonlin<__nv_bfloat16, 4, 2>(l);
    case 8: return launch_nonlin<__nv_bfloat16, 8, 2>(l);
    default: return launch_nonlin<__nv_bfloat16, 16, 2>(l);
    }
}

/* Chunks are as long as lets two blocks share an SM, but for the large
 * ones of a crowd. */
template <typename T>
static int forward(const struct frame *f)
{
    layout l = layout_of(f, {2, CREW, HELPERS, 1, 1});
    const bool crowd = crowded(l, sizeof(T));
    const size_t most = crowd ? SHARED_MAX : SHARED_MAX / 2;

    if (crowd)
        l = layout_of(f, {2, CROWD_CREW, CROWD_HELPERS, 2, 1});
    for (l.steps = CHUNK; l.steps > 1 && shared_bytes(l) > most; l.steps /= 2)
        ;
    if (crowd)
        return launch_crowd(l);
    switch (l.lanes) {
    case 1: return launch_nonlin<T, 1, 1>(l);
    case 2: return launch_nonlin<T, 2, 1>(l);
    case 4: return launch_nonlin<T, 4, 1>(l);
    case 8: return launch_nonlin<T, 8, 1>(l);
    case 16: return launch_nonlin<T, 16, 1>(l);
    default: return launch_nonlin<T, 32, 1>(l);
    }
}

template <typename T>
static int backward(const struct frame *f)
{
    return rows_backward<T>(f);
}

static size_t work(const struct frame *f, enum pass p)
{
    return p == FORWARD ? 0 : rows_back_work(f);
}

static const char *declines(const struct frame *f)
{
    int state = f->choice[E74_STATE], nonlin = f->choice[E74_NONLIN];
    const char *no = e74_plain32.declines(f);
    if (no)
        return no;
    if (state != E74_FULL && state != E74_BLOCKDIAG)
        return "only for state = full and blockdiag";
    if (nonlin != E74_TANH && nonlin != E74_LINEAR)
        return "rmsnorm and frobnorm tie the rows of a state to each other";
    if (state == E74_BLOCKDIAG && DIM(f, 'L') <= COLUMNS * 2)
        return "block_size up to 16: rows too short to share out";
    if (DIM(f, state == E74_FULL ? 'N' : 'L') > COLUMNS * 32)
        return state == E74_FULL ? "n_state beyond 256" : "block_size beyond 256";
    return NULL;
}

static const char name[] = "rows",
                  idea[] = "a row in registers, 8 columns a thread; bf16, 16 where rows are many";

GPU_IMPL(extern "C", 32, float, e74_rows, name, idea, work, declines, "ex2.approx, rcp.approx",
         3e-7);
GPU_IMPL(extern "C", 16, __nv_bfloat16, e74_rows, name, idea, work, declines, "tanh.approx", 5e-4);
