/* sums.cu - `sum_rows`: the sums over rows that remain after chain_back, for all
 * runs in parallel, four columns per thread:
 *
 *     dk^ = dP^T delta + S_{t-1}^T dreads,   dq = S^T dy
 *     dP^T delta = c Gamma^T delta + beta (S_{t-1} + delta k^T)^T delta
 *
 * and from these the gradients of k, q, v and z. */
#include "gpu/e74/cell/norms/norms.cuh"

namespace e74_norms
{

/* Four columns of a thread's rows: groups of up to four contiguous rows, interleaved over
 * the lanes that share the columns. */
template <int LANES>
struct strip {
    four<float> row[column_rows(LANES)];
};

template <int LANES>
static __device__ __forceinline__ int row_of(int r)
{
    const int contiguous = column_rows(LANES) < 4 ? column_rows(LANES) : 4;
    const int lane = (int)threadIdx.x % column_lanes(LANES);
    return (r / contiguous * column_lanes(LANES) + lane) * contiguous + r % contiguous;
}

template <int LANES>
static __device__ __forceinline__ int column_of(void)
{
    return (int)threadIdx.x / column_lanes(LANES) * 4;
}

/* A thread's rows of a vector in a record. */
template <int LANES>
struct row_values {
    float x[column_rows(LANES)];
};

template <int LANES>
static __device__ __forceinline__ row_values<LANES> load_row_values(const float *from)
{
    const int ROWS = column_rows(LANES), contiguous = ROWS < 4 ? ROWS : 4;
    row_values<LANES> s;
    for (int r = 0; r < ROWS; r += contiguous)
        load_rows<contiguous>(s.x + r, from + row_of<LANES>(r));
    return s;
}

template <int LANES>
static __device__ __forceinline__ void load_strip(const layout &l, int group, const float *from,
                                                  strip<LANES> *S)
{
    for (int r = 0; r < column_rows(LANES); r++) {
        const int row = row_of<LANES>(r);
        if (row < l.c.rows)
            S->row[r] = *(const four<float> *)(from + (group * l.padded_rows + row) * l.width +
                                               column_of<LANES>());
        else
            S->row[r] = {};
    }
}

/* sum += S^T x, over this thread's rows. */
template <int LANES>
static __device__ __forceinline__ void add_transposed(four<float> *sum, const strip<LANES> &S,
                                                      const row_values<LANES> &x)
{
    for (int r = 0; r < column_rows(LANES); r++)
        for (int j = 0; j < 4; j++)
            sum->x[j] = fmaf(x.x[r], S.row[r].x[j], sum->x[j]);
}

/* S += weight x key^T */
template <int LANES>
static __device__ __forceinline__ void add_outer(strip<LANES> *S, float weight,
                                                 const row_values<LANES> &x, const four<float> &key)
{
    for (int r = 0; r < column_rows(LANES); r++)
        for (int j = 0; j < 4; j++)
            S->row[r].x[j] = fmaf(weight * x.x[r], key.x[j], S->row[r].x[j]);
}

/* S is a scale times the registers here too; the scale is multiplied into them before it is too far
 * from 1. */
template <int LANES>
static __device__ __forceinline__ float rescaled(strip<LANES> *S, float scale)
{
    if (scale >= 1 / SCALE_MAX && scale < SCALE_MAX)
        return scale;
    for (int r = 0; r < column_rows(LANES); r++)
        for (int j = 0; j < 4; j++)
            S->row[r].x[j] *= scale;
    return 1;
}

/* Stores factor times the sum over the lanes that share the columns; ACCUMULATES: adds it to the
 * value that the same thread has stored there. */
template <int LANES, bool ACCUMULATES>
static __device__ __forceinline__ void store_column_sums(float *to, float factor, four<float> sum)
{
    const int own = warp_reduce_scatter<4, column_lanes(LANES) / 2, 1>(sum.x);
    float *const at = to + column_of<LANES>() + own;
    if ((int)threadIdx.x % (column_lanes(LANES) / 4) == 0)
        *at = fmaf(factor, sum.x[0], ACCUMULATES ? *at : 0);
}

/* A block's run: the steps that it sums over, and their records. */
struct sum_run {
    int group, steps;
    float *records;     /* [steps][group_inputs + group_results], in shared memory */
    const float *state; /* before the run */
};

/* A step's records in shared memory. */
template <int LANES, bool INSIDE>
struct step_record {
    input_record<LANES, INSIDE, true> *input;
    result_record<LANES> *result;
};

template <int LANES, bool INSIDE>
static __device__ __forceinline__ step_record<LANES, INSIDE>
step_record_of(const layout &l, const sum_run &run, int step)
{
    float *const at = run.records + step * (l.group_inputs + l.group_results);
    return {(input_record<LANES, INSIDE, true> *)at, (result_record<LANES> *)(at + l.group_inputs)};
}

/* The thread's columns of a vector in a record. */
template <int LANES>
static __device__ __forceinline__ four<float> load_column_values(const float *from)
{
    return *(const four<float> *)(from + column_of<LANES>());
}

/* G = Gamma + beta S, where S is the state after some steps of the run. */
template <int LANES, bool INSIDE>
static __device__ void fold_strip(const layout &l, const sum_run &run, int steps, float down,
                                  float beta, strip<LANES> *G)
{
    for (int r = 0; r < column_rows(LANES); r++) {
        const int row = row_of<LANES>(r);
        if (row >= l.c.rows)
            continue;
        four<float> S =
            load_column_values<LANES>(run.state + (run.group * l.padded_rows + row) * l.width);
        #pragma unroll 1
        for (int step = 0; step < steps; step++) {
            const step_record<LANES, INSIDE> at = step_record_of<LANES, INSIDE>(l, run, step);
            const float *const key = at.input->khat + column_of<LANES>();
            for (int j = 0; j < 4; j++)
                S.x[j] = at.result->inverse * fmaf(at.result->delta[row], key[j], S.x[j]);
        }
        for (int j = 0; j < 4; j++)
            G->row[r].x[j] = fmaf(beta, S.x[j], down * G->row[r].x[j]);
    }
}

/* Scans backward over the Gammas of a run, and stores their terms of dk^.  The Gammas are bitwise
 * equal to those of chain_back, so that terms that cancel there cancel here. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void sum_gradients(const layout &l, const sum_run &run,
                                                     strip<LANES> *G)
{
    step_record<LANES, INSIDE> at = step_record_of<LANES, INSIDE>(l, run, run.steps - 1);
    float down = 1;

    add_outer(G, 1, load_row_values<LANES>(at.input->dy), load_column_values<LANES>(at.input->q));
    for (int step = run.steps - 1; step >= 0; step--) {
        const float beta = at.result->beta;
        const bool folds = at.result->folds != 0;
        row_values<LANES> delta = load_row_values<LANES>(at.result->delta);
        four<float> dkhat = {};

        add_transposed(&dkhat, *G, delta);
        down *= at.result->inverse;
        store_column_sums<LANES, false>(at.input->v, down, dkhat);
        const float up = rcp_approx(down);
        const step_record<LANES, INSIDE> later =
            step_record_of<LANES, INSIDE>(l, run, step ? step - 1 : 0);
        if (step)
            add_outer(G, up, load_row_values<LANES>(later.input->dy),
                      load_column_values<LANES>(later.input->q));
        add_outer(G, up, load_row_values<LANES>(at.result->written),
                  load_column_values<LANES>(INSIDE ? at.input->u : at.input->khat));
        if (INSIDE) {
            for (int r = 0; r < column_rows(LANES); r++)
                delta.x[r] *= beta;
            add_outer(G, up, delta, load_column_values<LANES>(at.input->khat));
        }
        if (folds)
            fold_strip<LANES, INSIDE>(l, run, step, down, beta, G);
        down = folds ? 1 : rescaled(G, down);
        at = later;
    }
}

/* Scans over the states of a run: stores dq, the term of S_{t-1} in dk^, and du. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void sum_states(const layout &l, const sum_run &run,
                                                  strip<LANES> *S)
{
    float scale = 1;
    for (int step = 0; step < run.steps; step++) {
        const step_record<LANES, INSIDE> at = step_record_of<LANES, INSIDE>(l, run, step);
        const float c = at.result->inverse, beta = at.result->beta;
        const four<float> key = load_column_values<LANES>(at.input->khat);
        const row_values<LANES> delta = load_row_values<LANES>(at.result->delta);
        four<float> dkhat = {}, du = {}, dq = {};
        float length = 0;

        add_transposed(INSIDE ? &du : &dkhat, *S, load_row_values<LANES>(at.result->written));
        if (INSIDE) {
            add_transposed(&dkhat, *S, delta);
            for (int j = 0; j < 4; j++)
                dkhat.x[j] *= beta;
        }
        for (int j = 0; j < 4; j++)
            dkhat.x[j] *= scale;
        for (int r = 0; r < column_rows(LANES); r++)
            length = fmaf(delta.x[r], delta.x[r], length);
        for (int j = 0; j < 4; j++)
            dkhat.x[j] = fmaf(beta * length, key.x[j], dkhat.x[j]);
        if (INSIDE)
            store_column_sums<LANES, false>(at.input->u, scale, du);
        add_outer(S, rcp_approx(scale), delta, key);
        scale = rescaled(S, scale * c);
        add_transposed(&dq, *S, load_row_values<LANES>(at.input->dy));
        store_column_sums<LANES, true>(at.input->v, 1, dkhat);
        store_column_sums<LANES, false>(at.input->q, scale, dq);
    }
}

template <typename T, int ELEMENTS>
static __device__ __forceinline__ void store_part(const layout &l, const item &m, void *to,
                                                  const array<float, ELEMENTS> &s)
{
    for (int i = 0; i < ELEMENTS; i++)
        if (m.lane + 32 * i < l.c.columns)
            store((T *)to + m.at + m.lane + 32 * i, s.x[i]);
}

/* One warp computes the gradients of k, q, v and z from a step's sums. */
template <typename T, int LANES, bool INSIDE>
static __device__ __forceinline__ void store_gradients(const layout &l, const item &m,
                                                       const step_record<LANES, INSIDE> &at)
{
    constexpr int ELEMENTS = elements_per_lane(LANES);
    const cell_call &c = l.c;
    const array<float, ELEMENTS> none = {}, k = load_part<T, ELEMENTS>(l, m, c.k);
    const array<float, ELEMENTS> z = c.z ? load_part<T, ELEMENTS>(l, m, c.z) : none;
    const array<float, ELEMENTS> dv = load_float_part<ELEMENTS>(l, m, at.result->y);
    const array<float, ELEMENTS> reads =
        c.z_outside ? load_float_part<ELEMENTS>(l, m, at.result->reads) : none;
    const array<float, ELEMENTS> dq = load_float_part<ELEMENTS>(l, m, at.input->q);
    const array<float, ELEMENTS> du = INSIDE ? load_float_part<ELEMENTS>(l, m, at.input->u) : none;
    array<float, ELEMENTS> dkhat = load_float_part<ELEMENTS>(l, m, at.input->v), dk, dz;

    for (int i = 0; i < ELEMENTS; i++)
        if (INSIDE)
            dkhat.x[i] = fmaf(z.x[i], du.x[i], dkhat.x[i]);
    const float length = sqrtf(dot_parts(k, k)), scale = length + (float)E74_EPSILON;
    const float slope = dot_parts(k, dkhat);
    const float back = length > 0 ? slope / (length * scale * scale) : 0;
    for (int i = 0; i < ELEMENTS; i++) {
        dk.x[i] = fmaf(-back, k.x[i], dkhat.x[i] / scale);
        if (!c.dq)
            dk.x[i] += dq.x[i];
        if (!c.dv)
            dk.x[i] += dv.x[i];
        dz.x[i] = fmaf(-dv.x[i], reads.x[i], du.x[i] * (k.x[i] / scale));
    }
    store_part<T>(l, m, c.dk, dk);
    if (c.dq)
        store_part<T>(l, m, c.dq, dq);
    if (c.dv)
        store_part<T>(l, m, c.dv, dv);
    if (c.dz)
        store_part<T>(l, m, c.dz, dz);
}

/* One block per group and run, after chain_back has completed the run; the last runs first. */
template <typename T, int LANES, bool INSIDE>
__global__ void __launch_bounds__(sum_threads(LANES), min_sum_blocks(LANES, INSIDE))
    sum_rows(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const int64_t item = gridDim.x - 1 - blockIdx.x;
    const int group = (int)(item % l.groups), run_index = (int)(item / l.groups / l.count);
    const int64_t b = item / l.groups % l.count;
    const run_coord at = {l.segment + run_index / l.runs, run_index % l.runs};
    const sum_run run = {group, run_steps(l, at), buffer, state_of(l, at, 0, b)};
    const int64_t t = run_begin(l, at);
    strip<LANES> S;

    wait_for_chain<true>(l, b, t);
    for (int step = 0; step < run.steps; step++) {
        float *const to = buffer + step * (l.group_inputs + l.group_results);
        copy_async(to, input_of(l, t + step, b) + group * l.group_inputs, l.group_inputs);
        copy_async(to + l.group_inputs, result_of(l, t + step, b) + group * l.group_results,
                   l.group_results);
    }
    cp_async_commit();
    load_strip(l, group, gradient_of(l, at, b), &S);
    cp_async_wait<0>();
    __syncthreads();
    sum_gradients<LANES, INSIDE>(l, run, &S);
    load_strip(l, group, run.state, &S);
    __syncthreads(); /* dq overwrites q */
    sum_states<LANES, INSIDE>(l, run, &S);
    __syncthreads();
    for (int step = (int)threadIdx.x / 32; step < run.steps; step += sum_threads(LANES) / 32)
        store_gradients<T, LANES, INSIDE>(l, item_of(l, t + step, b, group),
                                          step_record_of<LANES, INSIDE>(l, run, step));
    if (run_index == 0)
        pdl_wait();
}

template <typename T>
kernel sum_rows_kernel(const layout &l)
{
    return with_lanes(l.lanes, [&](auto lanes) -> kernel {
        return l.c.z_inside ? sum_rows<T, lanes, true> : sum_rows<T, lanes, false>;
    });
}

#define EACH(T) template kernel sum_rows_kernel<T>(const layout &);
GPU_TYPES(EACH)

}    // namespace e74_norms
