/* e74_cell_norms_back.cu - `walk_back`: one block per sequence and head scans backward, without
 * states.  With c = 1 / (R + epsilon), g = <G, S>, a = g / (m R), w = S k^, G = Gamma + beta S,
 *
 *     dv = c Gamma k^ + (c beta - a) w,   dreads = -z dv,   beta <- c (c beta - a)
 *     Gamma <- c Gamma + beta delta k^T + dreads u^T,       Gamma += dy q^T
 *     g <- epsilon c g + sum over rows of (dy y - dv v)
 *
 * (the first line with beta before, the second with beta after; y and dy are those of the step
 * before), Gamma again a scalar E times the registers, and beta is folded in where a run begins, as
 * its state is stored.  (Where E grows before that, beta grows with its square and digits would be
 * lost: there the state is recomputed from the run's first, and beta folded in at once.) */
#include "gpu/e74/e74_cell_norms.cuh"

namespace e74_norms
{

/* The thread's own part, which no other thread reads. */
template <int LANES>
static __device__ __forceinline__ void copy_tile_async(const layout &l, const coord &p, float *to,
                                                       const float *from)
{
    for (int r = 0; r < rows_per_thread(LANES); r++)
        for (int i = 0; i < 2; i++) {
            const int at = tile_offset(l, p, r) + run<LANES>(i, p.lane);
            cp_async16(to + at, from + at);
        }
}

/* Operands of a step backward; z stays 1 where there is none. */
template <int LANES>
struct operands_back {
    eight write, read;
    float v[rows_per_thread(LANES)], z[rows_per_thread(LANES)];
    float delta[rows_per_thread(LANES)], written[rows_per_thread(LANES)];
    float inverse, inverse_mR;
};

/* And of the step before it, whose y and dy are used first: the loads are in flight for a
 * whole step. */
template <int LANES>
struct output_operands {
    float y[rows_per_thread(LANES)], dy[rows_per_thread(LANES)];
    eight query;
};

/* Offsets of the thread's elements in the input and in the result record. */
struct record_offsets {
    record_offset input, result;
};

/* A step's records in shared memory, at the thread's columns, its rows, and its group. */
struct step_ptrs {
    const float *columns, *rows, *result, *group;
};

static __device__ __forceinline__ step_ptrs step_ptrs_at(const record_offsets &at,
                                                         const float *input, const float *result)
{
    return {input + at.input.column, input + at.input.row, result + at.result.row,
            result + at.result.group};
}

/* Goes to the step before, if there is any. */
static __device__ __forceinline__ void step_back(const layout &l, step_ptrs *s, bool any)
{
    const int input_floats = any ? l.input_floats : 0, result_floats = any ? l.result_floats : 0;
    s->columns -= input_floats;
    s->rows -= input_floats;
    s->result -= result_floats;
    s->group -= result_floats;
}

template <int LANES, bool INSIDE>
static __device__ __forceinline__ void load_operands_back(const layout &l, const step_ptrs &from,
                                                          operands_back<LANES> *o)
{
    constexpr fields f = known_fields<LANES, INSIDE>();
    const int ROWS = rows_per_thread(LANES);
    o->write = take<LANES>(from.columns + f.khat, 0);
    o->read = INSIDE ? take<LANES>(from.columns + f.u, 0) : o->write;
    load_rows<ROWS>(o->v, from.rows + f.v);
    load_rows<ROWS>(o->delta, from.result + f.delta);
    load_rows<ROWS>(o->written, from.result + f.written);
    if (l.c.z_outside)
        load_rows<ROWS>(o->z, from.rows + f.z);
    o->inverse = from.group[f.scalars];
    o->inverse_mR = from.group[f.scalars + 1];
}

template <int LANES, bool INSIDE>
static __device__ __forceinline__ output_operands<LANES> load_output_operands(const step_ptrs &from,
                                                                              const float *dy)
{
    constexpr fields f = known_fields<LANES, INSIDE>();
    output_operands<LANES> a;
    load_rows<rows_per_thread(LANES)>(a.y, from.result + f.y);
    load_rows<rows_per_thread(LANES)>(a.dy, dy);
    a.query = take<LANES>(from.columns + f.q, 0);
    return a;
}

/* Copies a run's records to shared memory, asynchronously. */
static __device__ __forceinline__ void copy_run_async(const layout &l, float *inputs,
                                                      float *results, run_coord at, int64_t b)
{
    const int64_t t = run_begin(l, at);
    const int steps = run_steps(l, at);
    copy_async(inputs, input_of(l, t, b), steps * l.input_floats);
    copy_async(results, result_of(l, t, b), steps * l.result_floats);
}

/* G = Gamma + beta S, where S is the state after some steps of a run that begins with
 * `state`; returns the thread's part of <G, S>. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ float
fold(const layout &l, const coord &p, const record_offsets &at, const float *state,
     const float *input, const float *result, int steps, float down, float beta, eight *G)
{
    constexpr fields f = known_fields<LANES, INSIDE>();
    float G_dot_S = 0;
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        eight S = take<LANES>(state + tile_offset(l, p, r), p.lane);
        #pragma unroll 1
        for (int step = 0; step < steps; step++) {
            const float *const here = result + step * l.result_floats;
            add(&S, here[at.result.row + f.delta + r],
                take<LANES>(input + step * l.input_floats + at.input.column + f.khat, 0));
            multiply(&S, here[at.result.group + f.scalars]);
        }
        for (int j = 0; j < COLUMNS; j++)
            G[r].x[j] = fmaf(beta, S.x[j], down * G[r].x[j]);
        G_dot_S += dot(G[r], S);
    }
    return G_dot_S;
}

/* The thread's part of <G, S>, with G before its dy q^T is added. */
template <int LANES>
static __device__ __forceinline__ float dot_with_state(const layout &l, const coord &p,
                                                       const float *state, const eight *G,
                                                       const output_operands<LANES> &a)
{
    float G_dot_S = 0;
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        G_dot_S += dot(G[r], take<LANES>(state + tile_offset(l, p, r), p.lane));
        G_dot_S = p.lane ? G_dot_S : fmaf(a.dy[r], a.y[r], G_dot_S);
    }
    return G_dot_S;
}

/* The thread's part of Gamma k^. */
template <int LANES>
static __device__ __forceinline__ void dot_products_back(const eight *G, const eight &write,
                                                         float *Gamma_k)
{
    for (int r = 0; r < rows_per_thread(LANES); r++)
        Gamma_k[r] = dot(G[r], write);
}

template <int LANES, bool INSIDE>
__global__ void __launch_bounds__(32 * max_warps(LANES), 1) walk_back(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const int ROWS = rows_per_thread(LANES), n = l.groups * l.warps;
    const int run_inputs = l.run * l.input_floats, run_results = l.run * l.result_floats;
    const call &c = l.c;
    const coord p = coord_of<LANES>(l);
    const int64_t b = blockIdx.x, bh = l.first + b;
    float *const results = buffer + 2 * run_inputs, *const state = results + 2 * run_results;
    float *const sums = state + l.tile, *const zeros = sums + WALK_SUMS;
    const record_offsets at = {record_offset_of(p, l.f.input_floats),
                               record_offset_of(p, l.f.result_floats)};
    constexpr fields of = known_fields<LANES, INSIDE>();
    const float *const no_dy = zeros + p.row; /* of the step before a run's first step: zeros */
    run_coord run = last_run(l);
    const float *after = state_of(l, run, 1, b);
    int64_t signalled = l.segment_end * l.K;
    float down = 1, beta = 0;
    int sums_offset = 0;
    eight G[ROWS];
    operands_back<LANES> m;

    for (int r = 0; r < ROWS; r++)
        m.z[r] = 1;
    zero_sums(sums, WALK_SUMS + l.padded_rows);
    pdl_wait();
    pdl_launch_dependents();
    copy_run_async(l, buffer, results, run, b);
    cp_async_commit();
    load_state<LANES>(l, p, l.from + bh * c.M, G);

    for (int i = 0; run.segment >= l.segment; i ^= 1) {
        const run_coord next = run_before(l, run);
        const int steps = run_steps(l, run);
        const float *const input = buffer + i * run_inputs, *const result =
                                                                results + i * run_results;
        step_ptrs here = step_ptrs_at(at, input + (steps - 1) * l.input_floats,
                                      result + (steps - 1) * l.result_floats);
        float *out = result_of(l, run_begin(l, run) + steps - 1, b);

        cp_async_wait<0>();
        __syncthreads();
        if (signalled - run_begin(l, run) - steps >= SIGNAL_STEPS) {
            signalled = run_begin(l, run) + steps;
            signal_progress(l, b, signalled);
        }
        store_tile<LANES>(l, p, gradient_of(l, run, b), G);
        if (next.segment >= l.segment)
            copy_run_async(l, buffer + (1 - i) * run_inputs, results + (1 - i) * run_results, next,
                           b);
        output_operands<LANES> a = load_output_operands<LANES, INSIDE>(here, here.rows + of.dy);
        load_operands_back<LANES, INSIDE>(l, here, &m);
        store_thread_sums<LANES>(sums + sums_offset, p, dot_with_state<LANES>(l, p, after, G, a));
        copy_tile_async<LANES>(l, p, state, state_of(l, run, 0, b));
        cp_async_commit();
        float epsilon_c_g = 0, down_min = 1, Gamma_k[ROWS];
        down = 1, beta = 0;
        for (int r = 0; r < ROWS; r++)
            add(&G[r], a.dy[r], a.query);
        dot_products_back<LANES>(G, m.write, Gamma_k);
        step_back(l, &here, steps > 1);
        a = load_output_operands<LANES, INSIDE>(here, steps > 1 ? here.rows + of.dy : no_dy);
        __syncthreads();

        for (int step = steps - 1; step >= 0; step--, out -= l.result_floats) {
            float dv[ROWS], f[ROWS], sum[2] = {};

            for (int r = 0; r < ROWS; r++)
                Gamma_k[r] = lanes_sum<LANES>(Gamma_k[r]);
            const float g = epsilon_c_g + sum_of_warps<LANES>(sums + sums_offset, n);
            sums_offset ^= WARP_SUMS;
            down *= m.inverse;
            down_min = fminf(down_min, down);
            const float up = rcp_approx(down);
            for (int r = 0; r < ROWS; r++) {
                sum[r % 2] = fmaf(a.dy[r], a.y[r], sum[r % 2]);
                add(&G[r], up * a.dy[r], a.query);
            }
            const float coefficient = fmaf(m.inverse, beta, -m.inverse_mR * g);
            epsilon_c_g = (float)E74_EPSILON * m.inverse * g;
            beta = coefficient * m.inverse;
            for (int r = 0; r < ROWS; r++) {
                dv[r] = fmaf(down, Gamma_k[r], coefficient * m.written[r]);
                f[r] = -m.z[r] * dv[r];
                f[r] = INSIDE ? f[r] : fmaf(beta, m.delta[r], f[r]);
                sum[r % 2] = fmaf(-dv[r], m.v[r], sum[r % 2]);
            }
            store_warp_sums<LANES>(sums + sums_offset, p, sum[0] + sum[1]);
            for (int r = 0; r < ROWS; r++) {
                add(&G[r], up * f[r], m.read);
                if (INSIDE)
                    add(&G[r], up * (beta * m.delta[r]), m.write);
            }
            load_operands_back<LANES, INSIDE>(l, here, &m); /* after the first: unused */
            dot_products_back<LANES>(G, m.write, Gamma_k);
            step_back(l, &here, step > 1);
            a = load_output_operands<LANES, INSIDE>(here, step > 1 ? here.rows + of.dy : no_dy);
            const bool folds = step && down > GROWTH_MAX * down_min;
            const float beta_and_fold[] = {beta, folds ? 1.0f : 0.0f};
            if (p.lane == 0) {
                store_rows<ROWS>(out + at.result.row + of.y, dv);
                store_rows<ROWS>(out + at.result.row + of.written, f);
            }
            if (p.lane == 0 && p.row == 0)
                store_rows<2>(out + at.result.group + of.scalars + 2, beta_and_fold);
            if (__builtin_expect(folds || down < 1 / SCALE_MAX, 0)) {
                if (folds) {
                    cp_async_wait<0>();
                    store_thread_sums<LANES>(
                        sums + sums_offset, p,
                        fold<LANES, INSIDE>(l, p, at, state, input, result, step, down, beta, G));
                    epsilon_c_g = beta = 0;
                } else {
                    for (int r = 0; r < ROWS; r++)
                        multiply(&G[r], down);
                }
                dot_products_back<LANES>(G, m.write, Gamma_k);
                down = down_min = 1;
            }
            __syncthreads();
        }
        cp_async_wait<0>();
        fold<LANES, INSIDE>(l, p, at, state, NULL, NULL, 0, down, beta, G);
        /* A rounded checkpoint differs from the last state of the segment before it. */
        after = run.run || c.kept == KEPT_F32 ? state : state_of(l, next, 1, b);
        run = next;
    }
    __syncthreads();
    signal_progress(l, b, l.segment * l.K);
    store_state<LANES>(l, p, c.dfirst + bh * c.M, G);
}

kernel walk_back_kernel(const layout &l)
{
    return with_lanes(l.lanes, [&](auto lanes) -> kernel {
        return l.c.z_inside ? walk_back<lanes, true> : walk_back<lanes, false>;
    });
}

}    // namespace e74_norms
