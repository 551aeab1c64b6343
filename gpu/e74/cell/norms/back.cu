/* back.cu - `chain_back`: one block per sequence and head scans backward, without
 * states.  With c = 1 / (R + epsilon), g = <G, S>, a = g / (m R), w = S k^, G = Gamma + beta S,
 *
 *     dv = c Gamma k^ + (c beta - a) w,   dreads = -z dv,   beta <- c (c beta - a)
 *     Gamma <- c Gamma + beta delta k^T + dreads u^T,       Gamma += dy q^T
 *     g <- epsilon c g + sum over rows of (dy y - dv v)
 *
 * The first line uses beta before the step, the second beta after it; y and dy are those of the
 * step before.  Gamma is a scalar E times the registers.  beta is folded in where a run begins,
 * because the state there is stored.  (Where E grows before that, beta grows with its square and
 * digits would be lost: there the state is recomputed from the run's first state, and beta is
 * folded in at once.) */
#include "gpu/e74/cell/norms/norms.cuh"

namespace e74_norms
{

/* cp.async of the thread's own part of a tile, which no other thread reads. */
template <int LANES>
static __device__ __forceinline__ void copy_tile_async(const layout &l, const coord &p, float *to,
                                                       const float *from)
{
    for (int r = 0; r < rows_per_thread(LANES); r++)
        for (int i = 0; i < 2; i++) {
            const int at = tile_offset(l, p, r) + quad_offset<LANES>(i, p.lane);
            cp_async16(to + at, from + at);
        }
}

/* Operands of a step backward; z stays 1 where there is none. */
template <int LANES>
struct operands_back {
    float8 write, read;
    float v[rows_per_thread(LANES)], z[rows_per_thread(LANES)];
    float delta[rows_per_thread(LANES)], written[rows_per_thread(LANES)];
    float inverse, inverse_mR;
};

/* Operands of the step before it, whose y and dy are used first: the loads are in flight for a
 * whole step. */
template <int LANES>
struct output_operands {
    float y[rows_per_thread(LANES)], dy[rows_per_thread(LANES)];
    float8 query;
};

/* A thread's variables of the chain, from step to step, and of the run. */
template <int LANES, bool INSIDE>
struct thread_state {
    coord p;
    record_offset at, at_result;   /* of its elements */
    const float *inputs, *results; /* the run's records, in shared memory */
    float *state;                  /* the state before the run, in shared memory */
    const float *zeros;            /* chain_back_smem's, from the thread's rows on */
    float *sums;                   /* chain_back_smem's */
    int sums_offset;               /* the offset of the step's sums */
    float *out;                    /* the step's result record in memory */
    const input_record<LANES, INSIDE, true> *columns, *rows; /* of the step that is loaded next, */
    const result_record<LANES> *result, *group;              /* from the thread's elements on */
    float down, down_min, beta;                              /* E and its minimum; beta */
    float epsilon_c_g;                     /* g of the next step without its sum over rows */
    float8 G[rows_per_thread(LANES)];      /* Gamma / E */
    float Gamma_k[rows_per_thread(LANES)]; /* not yet summed over the lanes, on the scale of G */
    operands_back<LANES> m;
    output_operands<LANES> o;
};

template <int LANES, bool INSIDE>
static __device__ __forceinline__ void load_operands_back(const layout &l,
                                                          thread_state<LANES, INSIDE> *w)
{
    const int ROWS = rows_per_thread(LANES);
    w->m.write = load_columns<LANES>(w->columns->khat, 0);
    w->m.read = INSIDE ? load_columns<LANES>(w->columns->u, 0) : w->m.write;
    load_rows<ROWS>(w->m.v, w->rows->v);
    load_rows<ROWS>(w->m.delta, w->result->delta);
    load_rows<ROWS>(w->m.written, w->result->written);
    if (l.c.z_outside)
        load_rows<ROWS>(w->m.z, w->rows->z);
    w->m.inverse = w->group->inverse;
    w->m.inverse_mR = w->group->inverse_mR;
}

/* dy counts as zero before a run's first step. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void load_output_operands(thread_state<LANES, INSIDE> *w,
                                                            bool any)
{
    load_rows<rows_per_thread(LANES)>(w->o.y, w->result->y);
    load_rows<rows_per_thread(LANES)>(w->o.dy, any ? w->rows->dy : w->zeros);
    w->o.query = load_columns<LANES>(w->columns->q, 0);
}

/* Goes to the step before, if there is any, and loads its output operands. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void step_back(const layout &l, thread_state<LANES, INSIDE> *w,
                                                 bool any)
{
    const int inputs = any ? l.input_floats : 0, results = any ? l.result_floats : 0;
    w->columns = record_at<input_record<LANES, INSIDE, true>>(w->columns->khat, -inputs);
    w->rows = record_at<input_record<LANES, INSIDE, true>>(w->rows->khat, -inputs);
    w->result = record_at<result_record<LANES>>(w->result->y, -results);
    w->group = record_at<result_record<LANES>>(w->group->y, -results);
    load_output_operands(w, any);
}

/* cp.async of a run's records to shared memory. */
static __device__ __forceinline__ void copy_run_async(const layout &l, float *inputs,
                                                      float *results, run_coord at, int64_t b)
{
    const int64_t t = run_begin(l, at);
    const int steps = run_steps(l, at);
    copy_async(inputs, input_of(l, t, b), steps * l.input_floats);
    copy_async(results, result_of(l, t, b), steps * l.result_floats);
}

/* G = Gamma + beta S, where S is the state after some steps of the run; returns the thread's
 * part of <G, S>. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ float fold(const layout &l, thread_state<LANES, INSIDE> *w,
                                             int steps)
{
    using input = input_record<LANES, INSIDE, true>;
    using result = result_record<LANES>;
    float G_dot_S = 0;
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        float8 S = load_columns<LANES>(w->state + tile_offset(l, w->p, r), w->p.lane);
        #pragma unroll 1
        for (int step = 0; step < steps; step++) {
            const float *const results = w->results + step * l.result_floats;
            const input *const columns =
                record_at<input>(w->inputs + step * l.input_floats, w->at.column);
            add(&S, record_at<result>(results, w->at_result.row)->delta[r],
                load_columns<LANES>(columns->khat, 0));
            multiply(&S, record_at<result>(results, w->at_result.group)->inverse);
        }
        for (int j = 0; j < OCTET; j++)
            w->G[r].x[j] = fmaf(w->beta, S.x[j], w->down * w->G[r].x[j]);
        G_dot_S += dot(w->G[r], S);
    }
    return G_dot_S;
}

/* The thread's part of <G, S>; the registers G do not yet contain dy q^T, whose part is dy y. */
template <int LANES>
static __device__ __forceinline__ float dot_with_state(const layout &l, const coord &p,
                                                       const float *state, const float8 *G,
                                                       const output_operands<LANES> &a)
{
    float G_dot_S = 0;
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        G_dot_S += dot(G[r], load_columns<LANES>(state + tile_offset(l, p, r), p.lane));
        G_dot_S = p.lane ? G_dot_S : fmaf(a.dy[r], a.y[r], G_dot_S);
    }
    return G_dot_S;
}

/* Computes the thread's part of Gamma k^. */
template <int LANES>
static __device__ __forceinline__ void dot_products_back(const float8 *G, const float8 &write,
                                                         float *Gamma_k)
{
    for (int r = 0; r < rows_per_thread(LANES); r++)
        Gamma_k[r] = dot(G[r], write);
}

/* Stores dv and f for sum_rows, beta, and the flag whether beta is folded in. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void store_step(const thread_state<LANES, INSIDE> &w,
                                                  const float *dv, const float *f, bool folds)
{
    const int ROWS = rows_per_thread(LANES);
    result_record<LANES> *const rows = (result_record<LANES> *)(w.out + w.at_result.row);
    result_record<LANES> *const group = (result_record<LANES> *)(w.out + w.at_result.group);
    if (w.p.lane == 0) {
        store_rows<ROWS>(rows->y, dv);
        store_rows<ROWS>(rows->written, f);
    }
    if (w.p.lane == 0 && w.p.row == 0) {
        group->beta = w.beta;
        group->folds = folds ? 1.0f : 0.0f;
    }
}

/* Multiplies E into the registers, and folds beta in after `steps` steps of the run, if `folds`. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void rescale(const layout &l, thread_state<LANES, INSIDE> *w,
                                               int steps, bool folds)
{
    if (folds) {
        cp_async_wait<0>();
        store_thread_sums<LANES>(w->sums + w->sums_offset, w->p, fold(l, w, steps));
        w->epsilon_c_g = w->beta = 0;
    } else {
        for (int r = 0; r < rows_per_thread(LANES); r++)
            multiply(&w->G[r], w->down);
    }
    dot_products_back<LANES>(w->G, w->m.write, w->Gamma_k);
    w->down = w->down_min = 1;
}

template <int LANES, bool INSIDE>
static __device__ __forceinline__ void chain_step(const layout &l, thread_state<LANES, INSIDE> *w,
                                                  int step)
{
    const int ROWS = rows_per_thread(LANES);
    const operands_back<LANES> &m = w->m;
    float dv[ROWS], f[ROWS], sum[2] = {};

    for (int r = 0; r < ROWS; r++)
        w->Gamma_k[r] = warp_sum<LANES>(w->Gamma_k[r]);
    const float g =
        w->epsilon_c_g + sum_of_warps<LANES>(w->sums + w->sums_offset, l.groups * l.warps);
    w->sums_offset ^= WARP_SUMS;
    w->down *= m.inverse;
    w->down_min = fminf(w->down_min, w->down);
    const float up = rcp_approx(w->down);
    for (int r = 0; r < ROWS; r++) {
        sum[r % 2] = fmaf(w->o.dy[r], w->o.y[r], sum[r % 2]);
        add(&w->G[r], up * w->o.dy[r], w->o.query);
    }
    const float coefficient = fmaf(m.inverse, w->beta, -m.inverse_mR * g);
    w->epsilon_c_g = (float)E74_EPSILON * m.inverse * g;
    w->beta = coefficient * m.inverse;
    for (int r = 0; r < ROWS; r++) {
        dv[r] = fmaf(w->down, w->Gamma_k[r], coefficient * m.written[r]);
        f[r] = -m.z[r] * dv[r];
        f[r] = INSIDE ? f[r] : fmaf(w->beta, m.delta[r], f[r]);
        sum[r % 2] = fmaf(-dv[r], m.v[r], sum[r % 2]);
    }
    store_warp_sums<LANES>(w->sums + w->sums_offset, w->p, sum[0] + sum[1]);
    for (int r = 0; r < ROWS; r++) {
        add(&w->G[r], up * f[r], m.read);
        if (INSIDE)
            add(&w->G[r], up * (w->beta * m.delta[r]), m.write);
    }
    load_operands_back(l, w); /* after the first step: unused */
    dot_products_back<LANES>(w->G, m.write, w->Gamma_k);
    step_back(l, w, step > 1);
    const bool folds = step && w->down > GROWTH_MAX * w->down_min;
    store_step(*w, dv, f, folds);
    w->out -= l.result_floats;
    if (__builtin_expect(folds || w->down < 1 / SCALE_MAX, 0))
        rescale(l, w, step, folds);
}

/* Loads the operands of a run's last step, adds its dy q^T to G and sums <G, S>; `before` and
 * `after` are the states before and after the run.  A barrier must follow. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void begin_run(const layout &l, thread_state<LANES, INSIDE> *w,
                                                 const float *before, const float *after, int steps)
{
    using input = input_record<LANES, INSIDE, true>;
    const float *const inputs = w->inputs + (steps - 1) * l.input_floats;
    const float *const results = w->results + (steps - 1) * l.result_floats;
    w->columns = record_at<input>(inputs, w->at.column);
    w->rows = record_at<input>(inputs, w->at.row);
    w->result = record_at<result_record<LANES>>(results, w->at_result.row);
    w->group = record_at<result_record<LANES>>(results, w->at_result.group);
    load_output_operands(w, true);
    load_operands_back(l, w);
    store_thread_sums<LANES>(w->sums + w->sums_offset, w->p,
                             dot_with_state<LANES>(l, w->p, after, w->G, w->o));
    copy_tile_async<LANES>(l, w->p, w->state, before);
    cp_async_commit();
    w->epsilon_c_g = w->beta = 0;
    w->down = w->down_min = 1;
    for (int r = 0; r < rows_per_thread(LANES); r++)
        add(&w->G[r], w->o.dy[r], w->o.query);
    dot_products_back<LANES>(w->G, w->m.write, w->Gamma_k);
    step_back(l, w, steps > 1);
}

template <int LANES, bool INSIDE>
static __device__ __forceinline__ void begin_chain(const layout &l, const chain_back_smem &smem,
                                                   thread_state<LANES, INSIDE> *w)
{
    w->p = coord_of<LANES>(l);
    w->at = record_offset_of(w->p, l.group_inputs);
    w->at_result = record_offset_of(w->p, l.group_results);
    w->state = smem.state;
    w->zeros = smem.zeros + w->p.row;
    w->sums = smem.sums;
    w->sums_offset = 0;
    for (int r = 0; r < rows_per_thread(LANES); r++)
        w->m.z[r] = 1;
}

template <int LANES, bool INSIDE>
__global__ void __launch_bounds__(32 * max_warps(LANES), 1) chain_back(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const chain_back_smem smem = chain_back_smem_of(l, buffer);
    const int run_inputs = l.run * l.input_floats, run_results = l.run * l.result_floats;
    const int64_t b = blockIdx.x, bh = l.first + b;
    run_coord run = last_run(l);
    const float *after = state_of(l, run, 1, b);
    int64_t signalled = l.segment_end * l.K;
    thread_state<LANES, INSIDE> w;

    begin_chain(l, smem, &w);
    zero_sums(smem.sums, 2 * WARP_SUMS);
    zero_sums(smem.zeros, l.padded_rows);
    pdl_wait();
    pdl_launch_dependents();
    copy_run_async(l, smem.inputs, smem.results, run, b);
    cp_async_commit();
    load_state<LANES>(l, w.p, l.from + bh * l.c.M, w.G);

    for (int i = 0; run.segment >= l.segment; i ^= 1) {
        const run_coord next = run_before(l, run);
        const int steps = run_steps(l, run);

        cp_async_wait<0>();
        __syncthreads();
        if (signalled - run_begin(l, run) - steps >= SIGNAL_STEPS) {
            signalled = run_begin(l, run) + steps;
            signal_progress(l, b, signalled);
        }
        store_tile<LANES>(l, w.p, gradient_of(l, run, b), w.G);
        if (next.segment >= l.segment)
            copy_run_async(l, smem.inputs + (1 - i) * run_inputs,
                           smem.results + (1 - i) * run_results, next, b);
        w.inputs = smem.inputs + i * run_inputs;
        w.results = smem.results + i * run_results;
        w.out = result_of(l, run_begin(l, run) + steps - 1, b);
        begin_run(l, &w, state_of(l, run, 0, b), after, steps);
        __syncthreads();
        for (int step = steps - 1; step >= 0; step--) {
            chain_step(l, &w, step);
            __syncthreads();
        }
        cp_async_wait<0>();
        fold(l, &w, 0);
        /* A rounded checkpoint differs from the last state of the segment before it. */
        after = run.run || l.c.kept == KEPT_F32 ? smem.state : state_of(l, next, 1, b);
        run = next;
    }
    __syncthreads();
    signal_progress(l, b, l.segment * l.K);
    store_state<LANES>(l, w.p, l.c.dfirst + bh * l.c.M, w.G);
}

kernel chain_back_kernel(const layout &l)
{
    return with_lanes(l.lanes, [&](auto lanes) -> kernel {
        return l.c.z_inside ? chain_back<lanes, true> : chain_back<lanes, false>;
    });
}

}    // namespace e74_norms
