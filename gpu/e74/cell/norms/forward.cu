/* forward.cu - `carry`: the scan forward, and its replay for backward;
 * `put_outputs`.
 *
 * The division by the norm is deferred: S = Shat / C, and it updates only the scalar C.  With r =
 * Shat u, p = Shat k^, all on the scale of Shat,
 *
 *     delta = C v - z r,   Shat <- Shat + delta k^T
 *     |Shat|^2 <- |Shat|^2 + sum over rows of delta (2 p + |k^|^2 delta)
 *     C <- epsilon C + R,  R = |Shat| (or the root of its mean square)
 *
 * so that a step has one block-wide sum over values of the rows, one barrier and one root.  Only
 * the next step's C v waits for the root, in parallel with the dot products.  Where the sum loses
 * digits, because P is much smaller than S has been, or comes near overflow or underflow, the
 * squares of P are summed directly. */
#include "gpu/e74/cell/norms/norms.cuh"

namespace e74_norms
{

/* Stores scale * S in the type of the checkpoints. */
template <int LANES>
static __device__ void store_checkpoint(const layout &l, const coord &p, int64_t slot,
                                        const float8 *S, float scale)
{
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        float8 row = S[r];
        multiply(&row, scale);
        if (l.c.kept == KEPT_F32) {
            store_columns<float, LANES>((float *)l.c.checkpoints + slot * l.c.M +
                                            element_of(l, p, r),
                                        valid_columns(l, p, r), p.lane, row);
            continue;
        }
        for (int j = 0; j < OCTET; j++) {
            const int column = quad_offset<LANES>(j / 4, p.lane) + j % 4;
            if (column < valid_columns(l, p, r))
                put_kept(l.c, slot, element_of(l, p, r) + column, row.x[j]);
        }
    }
}

template <int LANES>
static __device__ void load_checkpoint(const layout &l, const coord &p, int64_t slot, float8 *S)
{
    if (l.c.kept == KEPT_F32)
        return load_state<LANES>(l, p, (const float *)l.c.checkpoints + slot * l.c.M, S);
    for (int r = 0; r < rows_per_thread(LANES); r++)
        for (int j = 0; j < OCTET; j++) {
            const int column = quad_offset<LANES>(j / 4, p.lane) + j % 4;
            S[r].x[j] = column < valid_columns(l, p, r)
                            ? get_kept(l.c, slot, element_of(l, p, r) + column)
                            : 0;
        }
}

/* Operands of a step that are loaded before the barrier; z stays 1 where there is none. */
template <int LANES>
struct operands {
    float8 write, read;
    float v[rows_per_thread(LANES)], z[rows_per_thread(LANES)], squares;
};

template <int LANES, bool INSIDE, bool BACK>
static __device__ __forceinline__ void load_operands(const layout &l, const record_offset &at,
                                                     const float *input, operands<LANES> *m)
{
    using record = input_record<LANES, INSIDE, BACK>;
    const record *const columns = record_at<record>(input, at.column);
    const record *const rows = record_at<record>(input, at.row);
    m->write = load_columns<LANES>(columns->khat, 0);
    m->read = INSIDE ? load_columns<LANES>(columns->u, 0) : m->write;
    load_rows<rows_per_thread(LANES)>(m->v, rows->v);
    if (l.c.z_outside)
        load_rows<rows_per_thread(LANES)>(m->z, rows->z);
    m->squares = record_at<record>(input, at.group)->squares[0];
}

/* The reduce-scatter leaves a thread with one row of y; several threads may have the same row. */
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
static __device__ __forceinline__ dots<LANES> dot_products(const float8 *S,
                                                           const operands<LANES> &m)
{
    const int ROWS = rows_per_thread(LANES);
    dots<LANES> d;
    for (int r = 0; r < ROWS; r++) {
        d.read[r] = dot(S[r], m.read);
        d.write[r] = INSIDE ? dot(S[r], m.write) : 0;
    }
    for (int r = 0; r < ROWS; r++) {
        d.read[r] = warp_sum<LANES>(d.read[r]);
        d.write[r] = INSIDE ? warp_sum<LANES>(d.write[r]) : d.read[r];
    }
    return d;
}

/* A step's results in a thread's rows, on the scale of Shat: delta, and P k^. */
template <int LANES>
struct row_update {
    float delta[rows_per_thread(LANES)], written[rows_per_thread(LANES)];
};

/* The state of a thread of a chain, from step to step. */
template <int LANES>
struct chain {
    coord p;
    record_offset at, at_result; /* of its elements */
    float *sums;                 /* carry_smem's */
    int sums_offset;             /* the offset of the step's sums */
    const float *input;          /* in shared memory: the record of the next step */
    float *result;               /* the step's record in memory */
    int y_offset;                /* from there to the thread's y of the step before */
    scale s;
    float8 S[rows_per_thread(LANES)];
    operands<LANES> m; /* of the next step */
    dots<LANES> d;
    float y[rows_per_thread(LANES)]; /* of the step before, not yet summed over the lanes */
};

template <int LANES>
static __device__ __forceinline__ void begin_chain(const layout &l, float *sums, float *result,
                                                   chain<LANES> *a)
{
    a->p = coord_of<LANES>(l);
    a->at = record_offset_of(a->p, l.group_inputs);
    a->at_result = record_offset_of(a->p, l.group_results);
    a->sums = sums;
    a->sums_offset = 0;
    a->result = result;
    a->y_offset = a->at_result.row + own_row<LANES>(a->p) - l.result_floats;
    a->s = {1, 1, 0, 0};
    for (int r = 0; r < rows_per_thread(LANES); r++)
        a->m.z[r] = 1;
}

/* The part of a step before the barrier: computes the update, and stores the warp's part of the sum
 * of squares. */
template <int LANES>
static __device__ __forceinline__ row_update<LANES> compute_update(const chain<LANES> &a)
{
    row_update<LANES> f;
    float change[2] = {};
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        f.delta[r] = fmaf(-a.m.z[r], a.d.read[r], a.s.up * a.m.v[r]);
        f.written[r] = fmaf(a.m.squares, f.delta[r], a.d.write[r]);
        change[r % 2] = fmaf(f.delta[r], a.d.write[r] + f.written[r], change[r % 2]);
    }
    store_warp_sums<LANES>(a.sums + a.sums_offset, a.p, change[0] + change[1]);
    return f;
}

template <int LANES>
static __device__ __forceinline__ float squares_of(const float8 *S)
{
    float squares = 0;
    for (int r = 0; r < rows_per_thread(LANES); r++)
        squares += dot(S[r], S[r]);
    return squares;
}

/* Repeats the division of a step that lost too many digits, or came near overflow or underflow,
 * with Phat = P, whose squares are summed directly.  a->s is as before the step, a->S as after
 * it. */
template <int LANES>
static __device__ norm_divisor divide_exactly(const layout &l, chain<LANES> *a)
{
    float *const sums = a->sums + 3 * WARP_SUMS;
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        multiply(&a->S[r], a->s.down);
        a->d.read[r] *= a->s.down;
        a->d.write[r] *= a->s.down;
        a->y[r] *= a->s.down;
    }
    a->s.up = a->s.down = 1;
    store_thread_sums<LANES>(sums, a->p, squares_of<LANES>(a->S));
    __syncthreads();
    const float all = sum_of_warps<LANES>(sums, l.groups * l.warps);
    return divide_by_norm(&a->s, all, all, l.mean);
}

/* Stores y of the step before, by the threads that have a row's sum after the reduce-scatter. */
template <int LANES>
static __device__ __forceinline__ void store_y(chain<LANES> *a, bool any)
{
    const int ROWS = rows_per_thread(LANES);
    warp_reduce_scatter<ROWS, LANES / 2, 1>(a->y);
    if (a->p.lane % (LANES / ROWS) == 0 && any)
        a->result[a->y_offset] = a->s.down * a->y[0];
}

/* Stores the result record for backward, by one lane of a row; P = down Phat. */
template <int LANES>
static __device__ __forceinline__ void store_result(const layout &l, const chain<LANES> &a,
                                                    const row_update<LANES> &f, const float *read,
                                                    float down, const norm_divisor &n)
{
    const int ROWS = rows_per_thread(LANES);
    result_record<LANES> *const rows = (result_record<LANES> *)(a.result + a.at_result.row);
    result_record<LANES> *const group = (result_record<LANES> *)(a.result + a.at_result.group);
    float delta[ROWS], written[ROWS], reads[ROWS];
    for (int r = 0; r < ROWS; r++) {
        delta[r] = down * f.delta[r];
        written[r] = down * n.inverse * f.written[r];
        reads[r] = down * read[r];
    }
    if (a.p.lane == 0) {
        store_rows<ROWS>(rows->delta, delta);
        store_rows<ROWS>(rows->written, written);
        if (l.c.z_outside)
            store_rows<ROWS>(rows->reads, reads);
    }
    if (a.p.lane == 0 && a.p.row == 0) {
        const float inverse_mR = n.R > 0 ? l.mean * rcp_approx(n.R) : 0;
        *(four<float> *)&group->inverse = {{n.inverse, inverse_mR}};
    }
}

/* One step; `remaining` of the `steps` of the run are left. */
template <int LANES, bool INSIDE, bool REPLAYS>
static __device__ __forceinline__ void carry_step(const layout &l, chain<LANES> *a, int steps,
                                                  int remaining)
{
    store_y(a, remaining < steps);
    const row_update<LANES> update = compute_update(*a);
    for (int r = 0; r < rows_per_thread(LANES); r++)
        add(&a->S[r], update.delta[r], a->m.write);
    const float *const query =
        record_at<input_record<LANES, INSIDE, REPLAYS>>(a->input, a->at.column)->q;
    a->input += remaining > 1 ? l.input_floats : 0; /* after the last: unused */
    load_operands<LANES, INSIDE, REPLAYS>(l, a->at, a->input, &a->m);
    __syncthreads();
    const float after =
        a->s.squares + sum_of_warps<LANES>(a->sums + a->sums_offset, l.groups * l.warps);
    const float peak = fmaxf(a->s.peak, after);
    a->sums_offset ^= WARP_SUMS;
    const dots<LANES> dots_before = a->d;
    const scale scale_before = a->s;
    a->d = dot_products<LANES, INSIDE>(a->S, a->m);
    const float8 q = load_columns<LANES>(query, 0); /* (here, to hide the latency of the sum) */
    for (int r = 0; r < rows_per_thread(LANES); r++)
        a->y[r] = dot(a->S[r], q);
    norm_divisor divisor = divide_by_norm(&a->s, after, peak, l.mean);
    if (__builtin_expect(!(after >= fmaxf(0.5f * peak, SQUARES_MIN) && after < SQUARES_MAX), 0)) {
        a->s = scale_before;
        divisor = divide_exactly(l, a);
    }
    if (REPLAYS)
        store_result(l, *a, update, dots_before.read, scale_before.down, divisor);
    a->result += l.result_floats;
}

/* Replaces Shat by S; ends with a barrier, after all cp.async have completed. */
template <int LANES>
static __device__ __forceinline__ void begin_run(const layout &l, chain<LANES> *a)
{
    float *const sums = a->sums + 2 * WARP_SUMS;
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        multiply(&a->S[r], a->s.down);
        a->y[r] = 0;
    }
    store_thread_sums<LANES>(sums, a->p, squares_of<LANES>(a->S));
    cp_async_wait<0>();
    __syncthreads();
    const float squares = sum_of_warps<LANES>(sums, l.groups * l.warps);
    a->s = {1, 1, squares, squares};
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

/* cp.async of the input records of the first run of these steps to shared memory. */
static __device__ __forceinline__ void copy_inputs_async(const layout &l, float *to,
                                                         const step_range &of, int64_t b)
{
    const int steps = (int)min((int64_t)l.run, of.end - of.begin);
    copy_async(to, input_of(l, of.begin, b), steps * l.input_floats);
    cp_async_commit();
}

template <int LANES, bool INSIDE, bool REPLAYS>
__global__ void __launch_bounds__(32 * max_warps(LANES), 1) carry(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const carry_smem smem = carry_smem_of(l, buffer);
    const cell_call &c = l.c;
    const int run_floats = l.run * l.input_floats;
    const step_range range = step_range_of(l, REPLAYS);
    const int64_t b = blockIdx.x % l.count, bh = l.first + b;
    int steps_to_checkpoint = (int)(range.begin % c.K ? c.K - range.begin % c.K : 0);
    int64_t signalled = range.begin, slot = ceil_div(range.begin, c.K) * c.BH + bh;
    run_coord at_run = {(int)(l.segment + blockIdx.x / l.count), 0};
    chain<LANES> a;

    begin_chain(l, smem.sums, result_of(l, range.begin, b), &a);
    zero_sums(smem.sums, 4 * WARP_SUMS);
    pdl_wait();
    pdl_launch_dependents();
    copy_inputs_async(l, smem.inputs, range, b);
    if (REPLAYS)
        load_checkpoint<LANES>(l, a.p, slot, a.S);
    else
        load_state<LANES>(l, a.p, l.from + bh * c.M, a.S);

    for (int64_t t = range.begin, i = 0; t < range.end; t += l.run, i ^= 1, at_run.run++) {
        const int steps = (int)min((int64_t)l.run, range.end - t);

        begin_run(l, &a);
        if (!REPLAYS && t - signalled >= SIGNAL_STEPS) {
            signal_progress(l, b, t);
            signalled = t;
        }
        copy_inputs_async(l, smem.inputs + (1 - i) * run_floats, {t + steps, range.end}, b);
        if (REPLAYS)
            store_tile<LANES>(l, a.p, state_of(l, at_run, 0, b), a.S);
        a.input = smem.inputs + i * run_floats;
        load_operands<LANES, INSIDE, REPLAYS>(l, a.at, a.input, &a.m);
        a.d = dot_products<LANES, INSIDE>(a.S, a.m);
        for (int remaining = steps; remaining > 0; remaining--) {
            if (!REPLAYS && __builtin_expect(steps_to_checkpoint-- == 0, 0)) {
                store_checkpoint<LANES>(l, a.p, slot, a.S, a.s.down);
                slot += c.BH;
                steps_to_checkpoint = (int)c.K - 1;
            }
            carry_step<LANES, INSIDE, REPLAYS>(l, &a, steps, remaining);
        }
        store_y(&a, true);
    }
    for (int r = 0; r < rows_per_thread(LANES); r++)
        multiply(&a.S[r], a.s.down);
    if (REPLAYS) {
        store_tile<LANES>(l, a.p, state_of(l, at_run, 0, b), a.S);
    } else {
        __syncthreads();
        signal_progress(l, b, range.end);
        store_state<LANES>(l, a.p, c.last + bh * c.M, a.S);
    }
}

/* One block per run of steps, after the chain has completed the run. */
template <typename T>
__global__ void __launch_bounds__(THREADS) put_outputs(layout l)
{
    const cell_call &c = l.c;
    const int64_t b = blockIdx.x % l.count, t = l.begin + blockIdx.x / l.count * l.run;
    const int64_t end = min(t + l.run, l.end);

    wait_for_chain<false>(l, b, end);
    for (int i = threadIdx.x; i < (end - t) * c.N; i += THREADS) {
        const int step = i / c.N, row = i % c.N;
        const int64_t to = ((t + step) * c.BH + l.first + b) * c.N + row;
        const float y = /* the first array of the record */
            result_of(l, t + step, b)[row / c.rows * l.group_results + row % c.rows];
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

#define EACH(T) template kernel put_outputs_kernel<T>(void);
GPU_TYPES(EACH)

}    // namespace e74_norms
