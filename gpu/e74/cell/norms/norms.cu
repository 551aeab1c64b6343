/* e74_cell, kernel `norms`: rmsnorm and frobnorm, one block per state (norms.cuh).
 *
 * Forward, `prepare` normalises the keys, `carry` scans and `put_outputs` follows it.  Backward,
 * after prepare, carry first replays all segments in parallel, and stores the vectors of each step
 * and one state per run.  Then chain_back scans backward, and sum_rows follows it. */
#include <numeric>

#include "gpu/device/launch.cuh"
#include "gpu/e74/cell/norms/norms.cuh"

namespace e74_norms
{

template <int PADDED, int ELEMENTS>
static __device__ __forceinline__ void store_padded(const item &m, float (&to)[PADDED],
                                                    const array<float, ELEMENTS> &s)
{
    for (int i = 0; i < ELEMENTS; i++)
        if (m.lane + 32 * i < PADDED)
            to[m.lane + 32 * i] = s.x[i];
}

/* Stores the input records: normalised keys, v, z and, backward, dy, with zeros in the padding. */
template <typename T, int LANES, bool INSIDE, bool BACK>
__global__ void __launch_bounds__(THREADS) prepare(layout l)
{
    constexpr int ELEMENTS = elements_per_lane(LANES);
    const cell_call &c = l.c;
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    const int64_t b = i / l.groups % l.count, t = l.begin + i / l.groups / l.count;

    pdl_launch_dependents();
    if (t >= l.end)
        return;
    const int group = (int)(i % l.groups);
    const item m = item_of(l, t, b, group);
    const array<float, ELEMENTS> k = load_part<T, ELEMENTS>(l, m, c.k),
                                 q = load_part<T, ELEMENTS>(l, m, c.q);
    const array<float, ELEMENTS> v = load_part<T, ELEMENTS>(l, m, c.v);
    const array<float, ELEMENTS> z =
        c.z ? load_part<T, ELEMENTS>(l, m, c.z) : array<float, ELEMENTS>{};
    const array<float, ELEMENTS> y =
        BACK ? load_part<T, ELEMENTS>(l, m, c.y) : array<float, ELEMENTS>{};
    const array<float, ELEMENTS> dout =
        BACK ? load_part<T, ELEMENTS>(l, m, c.dout) : array<float, ELEMENTS>{};
    const float scale = sqrtf(dot_parts(k, k)) + (float)E74_EPSILON;
    array<float, ELEMENTS> khat, u, dy;
    for (int j = 0; j < ELEMENTS; j++) {
        const float gate = 1 / (1 + expf(-y.x[j]));
        khat.x[j] = k.x[j] / scale;
        u.x[j] = z.x[j] * khat.x[j];
        dy.x[j] = dout.x[j] * y.x[j] * gate * (2 + y.x[j] * (1 - gate));
    }
    const float squares = dot_parts(khat, khat);
    input_record<LANES, INSIDE, BACK> *const input = (input_record<LANES, INSIDE, BACK> *)m.input;
    store_padded(m, input->khat, khat);
    store_padded(m, input->q, q);
    store_padded(m, input->v, v);
    if constexpr (INSIDE)
        store_padded(m, input->u, u);
    if (c.z_outside)
        store_padded(m, input->z, z);
    if constexpr (BACK) {
        result_record<LANES> *const result = (result_record<LANES> *)m.result;
        store_padded(m, input->dy, dy);
        for (int j = c.rows + m.lane; j < padded_rows(LANES); j += 32) { /* carry may skip these */
            result->y[j] = result->delta[j] = result->written[j] = 0;
            if (c.z_outside)
                result->reads[j] = 0;
        }
    }
    if (m.lane == 0)
        *(four<float> *)input->squares = {{squares}};
    if (m.lane == 0 && group == 0 && t == l.begin)
        l.progress[b] = (int)(BACK ? l.end : l.begin);
}

/* ---- launches ---- */

static int64_t clamp_to(int64_t x, int64_t low, int64_t high)
{
    return x > high ? high : x < low ? low : x;
}

template <int LANES, bool BACK>
static void set_record_sizes(layout *l)
{
    const int rows = padded_rows(LANES), without_z = l->c.z_outside ? 0 : rows;
    const size_t input = l->c.z_inside ? sizeof(input_record<LANES, true, BACK>)
                                       : sizeof(input_record<LANES, false, BACK>);
    l->group_inputs = (int)(input / sizeof(float)) - without_z;
    l->group_results =
        BACK ? (int)(sizeof(result_record<LANES>) / sizeof(float)) - without_z : rows;
    l->input_floats = l->groups * l->group_inputs;
    l->result_floats = l->groups * l->group_results;
}

static void set_record_sizes(layout *l, enum pass pass)
{
    with_lanes(l->lanes, [=](auto lanes) {
        return pass == BACKWARD ? set_record_sizes<lanes, true>(l)
                                : set_record_sizes<lanes, false>(l);
    });
}

static size_t sum_bytes(const layout &l)
{
    return sizeof(float) * l.run * (l.group_inputs + l.group_results);
}

static layout layout_of(const struct call *f, enum pass pass)
{
    layout l = {};
    cell_call &c = l.c = cell_call_of(f);

    for (l.lanes = 1; OCTET * l.lanes < c.columns; l.lanes *= 2)
        ;
    l.groups = c.N / c.rows;
    l.warps = (int)ceil_div(c.rows, 32 / l.lanes * rows_per_thread(l.lanes));
    l.width = padded_columns(l.lanes);
    l.padded_rows = padded_rows(l.lanes);
    l.tile = l.groups * l.padded_rows * l.width;
    l.mean = c.nonlin == E74_RMSNORM ? 1 / (float)c.M : 1;

    /* A run has the same length in both passes.  The rounding error of g in a run stays in Gamma
     * until g is next summed directly: in a small state, where the keys leave G few free
     * directions, it would dominate. */
    set_record_sizes(&l, BACKWARD);
    for (l.run = RUN_MAX; l.run > RUN_MIN; l.run /= 2)
        if (l.run * ELEMENTS_PER_STEP <= c.M &&
            (size_t)chain_back_smem_of(l, NULL).bytes <= gpu_limits(f)->smem)
            break;
    set_record_sizes(&l, pass);

    /* The minimum number of chains, one per SM, may exceed the limits of the workspace. */
    const struct limits &device = *gpu_limits(f);
    const int64_t count_min = clamp_to(device.sms, 1, c.BH),
                  step_floats = l.input_floats + l.result_floats;
    l.K = c.kept == KEPT_F32 ? std::lcm(c.K, (int64_t)l.run) : c.K;
    l.K = l.K < c.T ? l.K : c.T;
    l.runs = (int)ceil_div(l.K, l.run);
    if (pass == FORWARD) {
        l.count = clamp_to(device.records / step_floats, count_min, c.BH);
        l.span = clamp_to(device.records / (l.count * step_floats) / l.run * l.run, l.run, c.T);
        return l;
    }
    const int64_t states = (2 * l.runs + 1) * (int64_t)l.tile, segments = ceil_div(c.T, l.K);
    l.count = clamp_to(device.states / states, count_min, c.BH);
    l.span = clamp_to(device.records / (l.K * l.count * step_floats), 1, segments) * l.K;
    l.round_segments = clamp_to(device.states / (l.count * states), 1, l.span / l.K);
    return l;
}

/* Divides the workspace; returns its bytes. */
static size_t divide_workspace(layout *l, void *work)
{
    const int64_t steps = l->count * l->span, states = l->round_segments * l->count * l->tile;
    work_arena a = {(char *)work, 0};

    l->inputs = take<float>(&a, steps * l->input_floats);
    l->results = take<float>(&a, steps * l->result_floats);
    l->states = take<float>(&a, states * (l->runs + 1));
    l->gradients = take<float>(&a, states * l->runs);
    l->progress = take<int>(&a, l->count);
    return a.bytes;
}

/* Programmatic dependent launch, for all but the first kernel of a sequence of launches. */
static cudaError_t launch(struct context *on, const layout &l, kernel k, int64_t blocks,
                          int threads, size_t shared)
{
    CUDA(allow_smem(k, shared));
    return launch_pdl(on, k, (unsigned)blocks, threads, shared, l);
}

static cudaError_t launch_scans(struct context *on, const layout &l, kernel k, int64_t blocks,
                                size_t shared)
{
    return launch(on, l, k, blocks, 32 * l.groups * l.warps, shared);
}

/* One chain per sequence and head; if the chains are few, each takes the maximum shared memory
 * of a block, so that it is alone on its SM and the kernel that follows runs on the others. */
static cudaError_t launch_chains(struct context *on, const layout &l, kernel k, size_t shared)
{
    const size_t all = on->limits.smem;
    const bool few = l.count <= on->limits.sms / 2;
    return launch_scans(on, l, k, l.count, few && all > shared ? all : shared);
}

template <typename T, bool BACK>
static cudaError_t launch_prepare(struct context *on, const layout &l)
{
    const kernel k = with_lanes(l.lanes, [&](auto lanes) -> kernel {
        return l.c.z_inside ? prepare<T, lanes, true, BACK> : prepare<T, lanes, false, BACK>;
    });
    const int64_t items = (l.end - l.begin) * l.count * l.groups;
    k<<<ceil_div(32 * items, THREADS), THREADS, 0, on->stream>>>(l);
    return cudaGetLastError();
}

template <typename T>
static int forward(const struct call *f)
{
    layout l = layout_of(f, FORWARD);
    const int64_t count_max = l.count;

    divide_workspace(&l, f->work);
    for (l.first = 0; l.first < l.c.BH; l.first += count_max) {
        l.count = clamp_to(l.c.BH - l.first, 1, count_max);
        for (l.begin = 0; l.begin < l.c.T; l.begin = l.end) {
            l.end = clamp_to(l.begin + l.span, 1, l.c.T);
            l.from = l.begin ? l.c.last : l.c.first;
            const int64_t runs = ceil_div(l.end - l.begin, l.run);
            CUDA((launch_prepare<T, false>(f->context, l)));
            CUDA(
                launch_chains(f->context, l, carry_kernel(l, false), carry_smem_of(l, NULL).bytes));
            CUDA(launch(f->context, l, put_outputs_kernel<T>(), runs * l.count, THREADS, 0));
        }
    }
    return 0;
}

/* Replays, scans backward and sums all segments that have records, `round_segments` at a time. */
template <typename T>
static cudaError_t launch_backward(struct context *on, layout l)
{
    const int begin = (int)(l.begin / l.K);

    for (l.segment_end = (int)ceil_div(l.end, l.K); l.segment_end > begin;
         l.segment_end = l.segment) {
        l.segment = (int)clamp_to(l.segment_end - l.round_segments, begin, l.segment_end);
        l.from = l.segment_end * l.K < l.c.T ? l.c.dfirst : l.c.dlast;
        const run_coord last = last_run(l);
        const int64_t segments = l.segment_end - l.segment;
        const int64_t runs = (segments - 1) * l.runs + last.run + 1;
        CUDA(launch_scans(on, l, carry_kernel(l, true), segments * l.count,
                          carry_smem_of(l, NULL).bytes));
        CUDA(launch_chains(on, l, chain_back_kernel(l), chain_back_smem_of(l, NULL).bytes));
        CUDA(launch(on, l, sum_rows_kernel<T>(l), runs * l.count * l.groups, sum_threads(l.lanes),
                    sum_bytes(l)));
    }
    return cudaSuccess;
}

template <typename T>
static int backward(const struct call *f)
{
    layout l = layout_of(f, BACKWARD);
    const int64_t count_max = l.count, steps = l.span;

    divide_workspace(&l, f->work);
    for (l.first = 0; l.first < l.c.BH; l.first += count_max) {
        l.count = clamp_to(l.c.BH - l.first, 1, count_max);
        for (l.end = l.c.T; l.end > 0; l.end = l.begin) {
            l.begin = clamp_to(ceil_div(l.end, l.K) * l.K - steps, 0, l.end);
            CUDA((launch_prepare<T, true>(f->context, l)));
            CUDA(launch_backward<T>(f->context, l));
        }
    }
    return 0;
}

static size_t work(const struct call *f, enum pass p)
{
    layout l = layout_of(f, p);
    return divide_workspace(&l, NULL);
}

static const char *declines(const struct call *f)
{
    int state = f->choice[E74_STATE], nonlin = f->choice[E74_NONLIN];
    const char *no = plain_cell<float>::kernel.declines(f);
    if (no)
        return no;
    if (state != E74_FULL && state != E74_BLOCKDIAG)
        return "only for state = full and blockdiag";
    if (nonlin != E74_RMSNORM && nonlin != E74_FROBNORM)
        return "only for nonlin = rmsnorm and frobnorm";
    if (DIM(f, state == E74_FULL ? 'N' : 'L') == 1)
        return "rows of one element: their gradients are left by cancellation";
    if (DIM(f, state == E74_FULL ? 'N' : 'L') > OCTET * 16)
        return state == E74_FULL ? "n_state beyond 128: the state does not fit a block's registers"
                                 : "block_size beyond 128: not enough threads for a row";
    const layout l = layout_of(f, BACKWARD);
    if (l.groups * l.warps > max_warps(l.lanes))
        return "the blocks of the state need more warps than a block has";
    if ((size_t)chain_back_smem_of(l, NULL).bytes > gpu_limits(f)->smem)
        return "the records of a run do not fit shared memory";
    return NULL;
}

}    // namespace e74_norms

GPU_KERNEL_OF(norms_cell, norms,
              .idea = "one block per state, held in registers; its norm a scalar",
              .pass = {e74_norms::forward<T>, e74_norms::backward<T>}, .work = e74_norms::work,
              .declines = e74_norms::declines, .approximates = "rcp.approx", .unit = 0x1p-23,
              .chunk = e74_norms::RUN_MAX, .stores = "GS", .cut = CUT_OFF);
