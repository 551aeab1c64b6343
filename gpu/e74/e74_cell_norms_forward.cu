/* e74_cell_norms_forward.cu - `carry`: the scan forward, and its replay for backward; `put_outputs`.
 *
 * The division by the norm is deferred: S = Shat / C, and only the scalar C is updated by it.  With
 * r = Shat u, p = Shat k^, all on the scale of Shat,
 *
 *     delta = C v - z r,   Shat <- Shat + delta k^T
 *     |Shat|^2 <- |Shat|^2 + sum over rows of delta (2 p + |k^|^2 delta)
 *     C <- epsilon C + R,  R = |Shat| (or the root of its mean square)
 *
 * so that a step has one block-wide sum, over values of the rows, one barrier, and a root whose
 * latency only the next step's C v waits for, in parallel to the dot products.  Where the sum loses
 * digits, because P is much smaller than S has been, or comes near overflow or underflow, the
 * squares of P are summed directly. */
#include "gpu/e74/e74_cell_norms.cuh"

namespace e74_norms
{

/* (scale * S, in the type of the checkpoints.) */
template <int LANES>
static __device__ void store_checkpoint(const layout &l, const coord &p, int64_t slot,
                                        const eight *S, float scale)
{
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        eight row = S[r];
        multiply(&row, scale);
        if (l.c.kept == KEPT_F32) {
            store_columns<float, LANES>((float *)l.c.checkpoints + slot * l.c.M +
                                            element_of(l, p, r),
                                        valid_columns(l, p, r), p.lane, row);
            continue;
        }
        for (int j = 0; j < COLUMNS; j++) {
            const int column = run<LANES>(j / 4, p.lane) + j % 4;
            if (column < valid_columns(l, p, r))
                put_kept(l.c, slot, element_of(l, p, r) + column, row.x[j]);
        }
    }
}

template <int LANES>
static __device__ void load_checkpoint(const layout &l, const coord &p, int64_t slot, eight *S)
{
    if (l.c.kept == KEPT_F32)
        return load_state<LANES>(l, p, (const float *)l.c.checkpoints + slot * l.c.M, S);
    for (int r = 0; r < rows_per_thread(LANES); r++)
        for (int j = 0; j < COLUMNS; j++) {
            const int column = run<LANES>(j / 4, p.lane) + j % 4;
            S[r].x[j] = column < valid_columns(l, p, r)
                            ? get_kept(l.c, slot, element_of(l, p, r) + column)
                            : 0;
        }
}

/* Operands of a step that are loaded before the barrier; z stays 1 where there is none. */
template <int LANES>
struct operands {
    eight write, read;
    float v[rows_per_thread(LANES)], z[rows_per_thread(LANES)], squares;
};

template <int LANES, bool INSIDE, bool BACK>
static __device__ __forceinline__ void load_operands(const layout &l, const record_offset &at,
                                                     const float *input, operands<LANES> *m)
{
    constexpr fields f = known_fields<LANES, INSIDE, BACK>();
    m->write = take<LANES>(input + at.column + f.khat, 0);
    m->read = INSIDE ? take<LANES>(input + at.column + f.u, 0) : m->write;
    load_rows<rows_per_thread(LANES)>(m->v, input + at.row + f.v);
    if (l.c.z_outside)
        load_rows<rows_per_thread(LANES)>(m->z, input + at.row + f.z);
    m->squares = input[at.group + f.squares];
}

/* The reduce-scatter leaves a thread with one row of y; several threads may have the same. */
template <int LANES>
static __device__ __forceinline__ int own_row(const coord &p)
{
    int row = 0;
    for (int half = rows_per_thread(LANES) / 2, bit = LANES / 2; half; half /= 2, bit /= 2)
        row += p.lane & bit ? half : 0;
    return row;
}

/* The scale of the state in registers: S = Shat / up = down Shat; the sum of squares of
 * Shat, and its maximum since it was last computed directly. */
struct scale {
    float up, down;
    float squares, peak;
};

/* The divisor of P in a step: R, and 1 / (R + epsilon); from the sum of squares of Phat. */
struct norm_divisor {
    float R, inverse;
};

static __device__ __forceinline__ norm_divisor divide_by_norm(scale *s, float squares, float peak,
                                                              float mean)
{
    const float length = sqrt_approx(squares * mean), up = s->up;
    norm_divisor n;
    n.R = s->down * length;
    s->up = fmaf((float)E74_EPSILON, up, length);
    s->down = rcp_approx(s->up);
    n.inverse = up * s->down;
    s->squares = squares;
    s->peak = peak;
    return n;
}

/* Shat u, and Shat k^ if u is not k^. */
template <int LANES>
struct dots {
    float read[rows_per_thread(LANES)], write[rows_per_thread(LANES)];
};

template <int LANES, bool INSIDE>
static __device__ __forceinline__ dots<LANES> dot_products(const eight *S, const operands<LANES> &m)
{
    const int ROWS = rows_per_thread(LANES);
    dots<LANES> d;
    for (int r = 0; r < ROWS; r++) {
        d.read[r] = dot(S[r], m.read);
        d.write[r] = INSIDE ? dot(S[r], m.write) : 0;
    }
    for (int r = 0; r < ROWS; r++) {
        d.read[r] = lanes_sum<LANES>(d.read[r]);
        d.write[r] = INSIDE ? lanes_sum<LANES>(d.write[r]) : d.read[r];
    }
    return d;
}

/* A step's results in a thread's rows, on the scale of Shat: delta, and P k^. */
template <int LANES>
struct row_update {
    float delta[rows_per_thread(LANES)], written[rows_per_thread(LANES)];
};

/* Everything before the barrier: the update, and the warp's part of the sum of squares. */
template <int LANES>
static __device__ __forceinline__ row_update<LANES>
compute_update(const coord &p, const operands<LANES> &m, const dots<LANES> &d, float up,
               float *sums)
{
    row_update<LANES> f;
    float change[2] = {};
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        f.delta[r] = fmaf(-m.z[r], d.read[r], up * m.v[r]);
        f.written[r] = fmaf(m.squares, f.delta[r], d.write[r]);
        change[r % 2] = fmaf(f.delta[r], d.write[r] + f.written[r], change[r % 2]);
    }
    store_warp_sums<LANES>(sums, p, change[0] + change[1]);
    return f;
}

template <int LANES>
static __device__ __forceinline__ float squares_of(const eight *S)
{
    float squares = 0;
    for (int r = 0; r < rows_per_thread(LANES); r++)
        squares += dot(S[r], S[r]);
    return squares;
}

/* Repeats the division of a step that lost too many digits, or came near overflow or
 * underflow, with Phat = P, whose squares are summed directly.  s is as before the step,
 * S as after it. */
template <int LANES>
static __device__ norm_divisor divide_exactly(const coord &p, eight *S, dots<LANES> *d, float *y,
                                              scale *s, float mean, int n, float *sums)
{
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        multiply(&S[r], s->down);
        d->read[r] *= s->down;
        d->write[r] *= s->down;
        y[r] *= s->down;
    }
    s->up = s->down = 1;
    store_thread_sums<LANES>(sums, p, squares_of<LANES>(S));
    __syncthreads();
    const float all = sum_of_warps<LANES>(sums, n);
    return divide_by_norm(s, all, all, mean);
}

/* Stores the result record for backward, by one lane of a row; P = down Phat. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void
store_result(const layout &l, const coord &p, const record_offset &at, float *result,
             const row_update<LANES> &f, const float *read, float down, const norm_divisor &n)
{
    const int ROWS = rows_per_thread(LANES);
    constexpr fields to = known_fields<LANES, INSIDE>();
    float delta[ROWS], written[ROWS], reads[ROWS];
    for (int r = 0; r < ROWS; r++) {
        delta[r] = down * f.delta[r];
        written[r] = down * n.inverse * f.written[r];
        reads[r] = down * read[r];
    }
    if (p.lane == 0) {
        store_rows<ROWS>(result + at.row + to.delta, delta);
        store_rows<ROWS>(result + at.row + to.written, written);
        if (l.c.z_outside)
            store_rows<ROWS>(result + at.row + to.reads, reads);
    }
    if (p.lane == 0 && p.row == 0) {
        const float inverse_mR = n.R > 0 ? l.mean * rcp_approx(n.R) : 0;
        *(four<float> *)(result + at.group + to.scalars) = {{n.inverse, inverse_mR}};
    }
}

/* The steps that a block scans. */
struct step_range {
    int64_t begin, end;
};

static __device__ __forceinline__ step_range step_range_of(const layout &l, bool replays)
{
    if (!replays)
        return {l.begin, l.end};
    const int64_t begin = (l.segment + blockIdx.x / l.count) * l.K;
    return {begin, min(begin + l.K, l.c.T)};
}

template <int LANES, bool INSIDE, bool REPLAYS>
__global__ void __launch_bounds__(32 * max_warps(LANES), 1) carry(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const int ROWS = rows_per_thread(LANES), buffer_floats = l.run * l.input_floats;
    const int n = l.groups * l.warps;
    const call &c = l.c;
    const coord p = coord_of<LANES>(l);
    const step_range range = step_range_of(l, REPLAYS);
    const int64_t b = blockIdx.x % l.count, bh = l.first + b;
    float *const sums = buffer + 2 * buffer_floats, *const run_sums = sums + 2 * WARP_SUMS;
    const record_offset at = record_offset_of(p, l.f.input_floats),
                        at_result = record_offset_of(p, l.f.result_floats);
    constexpr fields f = known_fields<LANES, INSIDE, REPLAYS>();
    const bool stores_y = p.lane % (LANES / ROWS) == 0;
    int steps_to_checkpoint = (int)(range.begin % c.K ? c.K - range.begin % c.K : 0),
        sums_offset = 0;
    int64_t signalled = range.begin;
    int64_t slot = ceil_div(range.begin, c.K) * c.BH + bh;
    run_coord at_run = {(int)(l.segment + blockIdx.x / l.count), 0};
    float *result = result_of(l, range.begin, b);
    float *out = result - l.result_floats + at_result.row + f.y + own_row<LANES>(p);
    scale s = {1, 1, 0, 0};
    eight S[ROWS];
    operands<LANES> m;

    for (int r = 0; r < ROWS; r++)
        m.z[r] = 1;
    zero_sums(sums, CARRY_SUMS);
    pdl_wait();
    pdl_launch_dependents();
    copy_async(buffer, input_of(l, range.begin, b),
               (int)min((int64_t)l.run, range.end - range.begin) * l.input_floats);
    cp_async_commit();
    if (REPLAYS)
        load_checkpoint<LANES>(l, p, slot, S);
    else
        load_state<LANES>(l, p, l.from + bh * c.M, S);

    for (int64_t t = range.begin, i = 0; t < range.end; t += l.run, i ^= 1, at_run.run++) {
        const int steps = (int)min((int64_t)l.run, range.end - t);
        const int64_t steps_after = range.end - t - steps;
        const float *here = buffer + i * buffer_floats;

        for (int r = 0; r < ROWS; r++)
            multiply(&S[r], s.down);
        store_thread_sums<LANES>(run_sums, p, squares_of<LANES>(S));
        cp_async_wait<0>();
        __syncthreads();
        if (!REPLAYS && t - signalled >= SIGNAL_STEPS) {
            signal_progress(l, b, t);
            signalled = t;
        }
        s.down = s.up = 1;
        s.squares = s.peak = sum_of_warps<LANES>(run_sums, n);
        copy_async(buffer + (1 - i) * buffer_floats, input_of(l, t + steps, b),
                   (int)min((int64_t)l.run, steps_after) * l.input_floats);
        cp_async_commit();
        if (REPLAYS)
            store_tile<LANES>(l, p, state_of(l, at_run, 0, b), S);

        load_operands<LANES, INSIDE, REPLAYS>(l, at, here, &m);
        dots<LANES> d = dot_products<LANES, INSIDE>(S, m);
        float y[ROWS] = {}; /* of the step before, not yet summed over the lanes */
        for (int remaining = steps; remaining > 0;
             remaining--, out += l.result_floats, result += l.result_floats) {
            if (!REPLAYS && __builtin_expect(steps_to_checkpoint-- == 0, 0)) {
                store_checkpoint<LANES>(l, p, slot, S, s.down);
                slot += c.BH;
                steps_to_checkpoint = (int)c.K - 1;
            }
            reduce_scatter<ROWS, LANES / 2, 1>(y);
            if (stores_y && remaining < steps)
                *out = s.down * y[0];
            const row_update<LANES> update =
                compute_update<LANES>(p, m, d, s.up, sums + sums_offset);
            for (int r = 0; r < ROWS; r++)
                add(&S[r], update.delta[r], m.write);
            const float *const query = here + at.column + f.q;
            here += remaining > 1 ? l.input_floats : 0; /* after the last: unused */
            load_operands<LANES, INSIDE, REPLAYS>(l, at, here, &m);
            __syncthreads();
            const float after = s.squares + sum_of_warps<LANES>(sums + sums_offset, n);
            const float peak = fmaxf(s.peak, after);
            sums_offset ^= WARP_SUMS;
            const dots<LANES> dots_before = d;
            const scale scale_before = s;
            d = dot_products<LANES, INSIDE>(S, m);
            const eight q = take<LANES>(query, 0); /* (here, to fill the latency of the sum) */
            for (int r = 0; r < ROWS; r++)
                y[r] = dot(S[r], q);
            norm_divisor divisor = divide_by_norm(&s, after, peak, l.mean);
            if (__builtin_expect(!(after >= fmaxf(0.5f * peak, SQUARES_MIN) && after < SQUARES_MAX),
                                 0)) {
                s = scale_before;
                divisor = divide_exactly<LANES>(p, S, &d, y, &s, l.mean, n, run_sums + WARP_SUMS);
            }
            if (REPLAYS)
                store_result<LANES, INSIDE>(l, p, at_result, result, update, dots_before.read,
                                            scale_before.down, divisor);
        }
        reduce_scatter<ROWS, LANES / 2, 1>(y);
        if (stores_y)
            *out = s.down * y[0];
    }
    for (int r = 0; r < ROWS; r++)
        multiply(&S[r], s.down);
    if (REPLAYS) {
        store_tile<LANES>(l, p, state_of(l, at_run, 0, b), S);
    } else {
        __syncthreads();
        signal_progress(l, b, range.end);
        store_state<LANES>(l, p, c.last + bh * c.M, S);
    }
}

/* One block per run of steps, after the chain has completed the run. */
template <typename T>
__global__ void __launch_bounds__(THREADS) put_outputs(layout l)
{
    const call &c = l.c;
    const int64_t b = blockIdx.x % l.count, t = l.begin + blockIdx.x / l.count * l.run;
    const int64_t end = min(t + l.run, l.end);

    wait_for_chain<false>(l, b, end);
    for (int i = threadIdx.x; i < (end - t) * c.N; i += THREADS) {
        const int step = i / c.N, row = i % c.N;
        const int64_t to = ((t + step) * c.BH + l.first + b) * c.N + row;
        const float y =
            result_of(l, t + step, b)[row / c.rows * l.f.result_floats + l.f.y + row % c.rows];
        store((T *)c.y + to, y);
        store((T *)c.out + to, y * y / (1 + expf(-y)));
    }
    if (end == l.end)
        pdl_wait();
}

template <bool REPLAYS>
static kernel carry_kernel(const layout &l)
{
    return with_lanes(l.lanes, [&](auto lanes) -> kernel {
        return l.c.z_inside ? carry<lanes, true, REPLAYS> : carry<lanes, false, REPLAYS>;
    });
}

kernel carry_kernel(const layout &l, bool replays)
{
    return replays ? carry_kernel<true>(l) : carry_kernel<false>(l);
}

template <typename T>
kernel put_outputs_kernel(void)
{
    return put_outputs<T>;
}

template kernel put_outputs_kernel<float>(void);
template kernel put_outputs_kernel<__nv_bfloat16>(void);

}    // namespace e74_norms
