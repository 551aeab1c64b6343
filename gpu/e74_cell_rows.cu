/* e74_cell, kernel `rows`: a state's rows meet the same keys but never each
 * other, so each row is carried through all steps by LANES neighbouring
 * threads, which hold eight of its columns each in registers.
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
#include "gpu/e74_cell_rows.cuh"

template <typename T>
static __device__ void put_outputs(const layout &l, const place &p, int64_t t, int steps, int each,
                                   const float *y)
{
    int64_t at = ((t + p.step) * l.c.BH + p.bh) * l.c.N + p.first + p.number;
    for (int step = p.step; step < steps && p.number < p.rows; step += each) {
        const float x = y[step * l.rows + p.number];
        store((T *)l.c.y + at, x);
        store((T *)l.c.out + at, x * x / (1 + expf(-x)));
        at += each * l.c.BH * l.c.N;
    }
}

template <int LANES>
static __device__ void keep_state(const call &c, const place &p, int64_t segment, const eight &S)
{
    if (c.kept == KEPT_F32) {
        float *to = (float *)c.checkpoints + segment * c.BH * c.M + p.element;
        store_columns<float, LANES>(to, p.any ? c.columns : 0, p.lane, S);
        return;
    }
    for (int j = 0; j < COLUMNS && p.any; j++) {
        const int column = run<LANES>(j / 4, p.lane) + j % 4;
        if (column < c.columns)
            put_kept(c, segment * c.BH, p.element + column, S.x[j]);
    }
}

/* Steps from ... to - 1 of a chunk.  What the next step reads is added up over
 * the lanes together with this one's y. */
template <typename T, int LANES, int NONLIN>
static __device__ __forceinline__ void walk(const layout &l, const place &p, const staged &s,
                                            int from, int to, eight &S)
{
    table at = table_of(l, p, s, from);
    float *y_at = s.y + from * l.rows + p.row;
    meal now = serve<LANES, true>(&at, l, p);
    float reads = lanes_sum<LANES>(dot(S, now.read)), y = 0;

    UNROLL(2)
    for (int i = from + 1; i < to; i++) {
        const meal then = serve<LANES, true>(&at, l, p);
        advance<T>(S, now, reads, NONLIN == E74_TANH);
        y = dot(S, now.query);
        reads = dot(S, then.read);
        lanes_sums<LANES>(&reads, &y);
        if (p.lane == 0)
            *y_at = y;
        y_at += l.rows;
        now = then;
    }
    advance<T>(S, now, reads, NONLIN == E74_TANH);
    y = lanes_sum<LANES>(dot(S, now.query));
    if (p.lane == 0)
        *y_at = y;
}

template <typename T, int LANES, int NONLIN>
__global__ void __launch_bounds__(2 * CREW, 2) forward_rows(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const call &c = l.c;
    const place p = place_of<LANES>(l, blockIdx.x);
    const bool carries = p.crew == 0;
    const int columns = carries && p.any ? c.columns : 0;
    staged now, other;
    int64_t until_kept = 0, segment = 0;
    const int size = carve(l, 0, buffer, &now);

    eight S = load_floats<LANES>(c.first + p.element, columns, p.lane);
    if (!carries)
        bring<T, LANES, false>(l, p, 0, 0, (int)min((int64_t)l.steps, c.T), now);
    __syncthreads();
    for (int64_t t = 0, chunk = 0; t < c.T; t += l.steps, chunk++) {
        const int steps = (int)min((int64_t)l.steps, c.T - t);

        carve(l, 0, buffer + chunk % 2 * size, &now);
        carve(l, 0, buffer + (1 - chunk % 2) * size, &other);
        if (!carries) {
            if (t > 0)
                put_outputs<T>(l, p, t - l.steps, l.steps, LANES, other.y);
            if (t + steps < c.T)
                bring<T, LANES, false>(l, p, t + steps, 0,
                                       (int)min((int64_t)l.steps, c.T - t - steps), other);
        }
        for (int from = 0, to; carries && from < steps; from = to) {
            if (until_kept == 0) {
                keep_state<LANES>(c, p, segment++, S);
                until_kept = c.K;
            }
            to = (int)min((int64_t)steps, from + until_kept);
            until_kept -= to - from;
            walk<T, LANES, NONLIN>(l, p, now, from, to, S);
        }
        __syncthreads();
        if (!carries && t + steps >= c.T)
            put_outputs<T>(l, p, t, steps, LANES, now.y);
    }
    store_columns<float, LANES>(c.last + p.element, columns, p.lane, S);
}

/* ---- launches ---- */

static size_t shared_bytes(const layout &l)
{
    staged s;
    return 2 * carve(l, 0, NULL, &s) * sizeof(float);
}

template <typename T, int LANES>
static int launch(const layout &l)
{
    void (*const kernel)(layout) = l.c.nonlin == E74_TANH ? forward_rows<T, LANES, E74_TANH>
                                                          : forward_rows<T, LANES, E74_LINEAR>;
    const int threads = 2 * l.rows * l.lanes;
    const size_t shared = shared_bytes(l);

    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    kernel<<<blocks_of(l), threads, shared, gpu_stream()>>>(l);
    return cudaGetLastError();
}

/* Chunks are as long as lets two blocks share a multiprocessor. */
template <typename T>
static int forward(const struct frame *f)
{
    layout l = layout_of(f, FORWARD);
    for (l.steps = CHUNK; l.steps > 1 && shared_bytes(l) > SHARED_MAX / 2; l.steps /= 2)
        ;
    switch (l.lanes) {
    case 1: return launch<T, 1>(l);
    case 2: return launch<T, 2>(l);
    case 4: return launch<T, 4>(l);
    case 8: return launch<T, 8>(l);
    case 16: return launch<T, 16>(l);
    default: return launch<T, 32>(l);
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

static const char name[] = "rows", idea[] = "a row of the state in registers, 8 columns a thread";

GPU_IMPL(extern "C", 32, float, e74_rows, name, idea, work, declines, "ex2.approx, rcp.approx",
         3e-7);
GPU_IMPL(extern "C", 16, __nv_bfloat16, e74_rows, name, idea, work, declines, "tanh.approx", 5e-4);
