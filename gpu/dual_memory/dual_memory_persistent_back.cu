/* dual_memory, kernel `persistent`, backward, with the clusters, weights and exchange of the
 * forward pass.
 *
 * The critical path of step t has two exchanges.  D is dL/dM' of the write, without the
 * terms of step t itself; M, v and omega are those of the step before, e = v - M:
 *
 *     column warps                                attention warps
 *
 *     D += the terms of the reading at t + 1;
 *     dv; D back through the write -> to all blocks
 *     (meanwhile M from the workspace)
 *     W_write^T dv; dp; dread
 *     <dread, e_n> over own columns -> the block  sums -> to all blocks
 *     <D_n, e_n>, <h, e_n>          -> the block  sums -> to all blocks
 *     dp                           -> to all blocks
 *     W_h^T dp                                    dalpha of the reading; domega and
 *                                                 dgamma of the step before
 *
 * The tape that was read is v - (1 - omega_n) e_n, and the gradient of the attention is
 * invariant to the v that all slots share.  domega of the step before is
 * <D_n + rho_n dread + s dalpha_n h, e_n>: its three sums are known before dalpha, so there is
 * no third exchange.  A block overwrites a buffer only after it has received a later exchange
 * from all others.
 *
 * While the column warps process a segment, the attention warps replay the tapes of the segment
 * before it into the workspace, one step per step of the column warps.  cp.async loads the tapes
 * into shared memory, 16 bytes at a time, while dv is in flight.  The weights are transposed
 * copies. */
#include <algorithm>

#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/mbarrier.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/dual_memory/dual_memory_persistent.cuh"
#include "gpu/gemm/layer.cuh"

namespace dual
{

template <typename PASS>
__global__ void backward_persistent(recurrence r, shape given);

/* The maximum without register spills (tests/spills.sh), by slots and quads per lane. */
static constexpr int held_iterations(int bytes, int slots, int quads, int width)
{
    const int per_quad = slots == 8            ? 5 - quads
                         : slots * quads <= 16 ? 4
                         : slots * quads == 32 ? 3
                                               : 2;
    return per_quad - (bytes == 4 || width);
}

template <typename T, int SLOTS, int QUADS, int WIDTH>
struct backward_pass : pass_base<T, SLOTS, QUADS, WIDTH> {
    enum {
        VECTORS = 2,
        SCALARS = 0,
        SIDES = 1,
        TAPES = SLOTS * QUADS, /* M is in shared memory */
        HELD_ITERATIONS = held_iterations(sizeof(T), SLOTS, QUADS, WIDTH),
        PREFETCH = WIDTH && QUADS == 1,
        ATTENTION_REGISTERS = attention_registers(QUADS == 2 ? 32 : SLOTS)
    };
    typedef message<SLOTS, QUADS, 1> main_message;
    typedef message<SLOTS, QUADS, 2> side_message;
    struct attention_values {
        slot_values<main_message> rho, dalpha, omega, dgamma; /* of t + 1, and of t */
        slot_values<main_message> replay_omega[WARPGROUP]; /* omega of a replayed step, per warp */
    };
    static constexpr clusters_kernel *kernel = backward_persistent<backward_pass>;
};

/* A thread's column, for each of its sequences. */
template <typename PASS>
struct column {
    enum { SLOTS = PASS::SLOTS, QUADS = PASS::QUADS };
    float dM[QUADS][SLOTS];
    float *tape; /* in shared memory; M(p, n): slot n of quad p */
    float h[QUADS], v[QUADS], dread[QUADS], carry[QUADS];
    bool live[QUADS];
    __device__ __forceinline__ float &M(int p, int n) { return tape[(p * SLOTS + n) * 32]; }
};

/* Loads OWN slots of a sequence's weights at step t from [T,B,N]; 0 if there is no such step. */
template <int OWN>
static __device__ __forceinline__ void fetch_attention(const recurrence &r, const float *weights,
                                                       int t, int row, int slot, float x[OWN])
{
    const bool there = t >= 0 && t < r.steps && row < r.batch;
    #pragma unroll OWN
    for (int k = 0; k < OWN; k++)
        x[k] = there && slot + k < r.N ? weights[(t * r.batch + row) * r.N + slot + k] : 0;
}

/* ---- tapes ---- */

/* Index in the workspace of the tapes before a step.  There are K + 1 indices for the K steps of
 * a segment; every other segment is in descending order, so that each step overwrites a step of
 * the segment after it that is no longer needed.  From step to step the index goes up to K, then
 * down to 0. */
static __device__ __forceinline__ int tape_index(const recurrence &r, int step)
{
    const int K = (int)r.K, segment = step / K, of_segment = step - segment * K;
    return segment % 2 ? K - of_segment : of_segment;
}

/* The address of a warp's tapes at an index, for one quad: [slots][lanes], as in shared memory. */
template <typename PASS>
static __device__ __forceinline__ float *tapes_at(const recurrence &r, const shape &s,
                                                  const coord &here, int index, int quad)
{
    const int64_t warp = ((int64_t)index * gridDim.x + blockIdx.x) * s.warps + here.warp;
    return (float *)r.work + (warp * PASS::QUADS + quad) * PASS::SLOTS * 32;
}

/* A lane's inputs of the write before a replayed step, loaded early. */
template <typename PASS>
struct replay_inputs {
    typedef typename PASS::type T;
    enum {
        QUADS = PASS::QUADS,
        OWN = PASS::main_message::OWN,
        PARTS = MAX_COLUMN_WARPS / WARPGROUP * QUADS /* each is a quad of a column warp */
    };
    int step;
    float omega[QUADS][OWN];
    unsigned v[PARTS]; /* as stored */

    __device__ __forceinline__ replay_inputs(const recurrence &r, const shape &s,
                                             const attention_lane<PASS> &lane, int step_)
        : step(step_)
    {
        const coord here = coord_of(s, QUADS, lane.smem);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++)
            fetch_attention<OWN>(r, r.omega, step - 1, here.row + 4 * p, here.i * OWN, omega[p]);
        #pragma unroll PARTS
        for (int k = 0; k < PARTS; k++) {
            const int row = here.row + k % QUADS * 4;
            const int column = column_of(s, here, lane.q + k / QUADS * WARPGROUP);
            v[k] = step > 0 && step < r.steps && row < r.batch && column < r.D
                       ? stored_bits((const T *)r.v + ((step - 1) * r.batch + row) * r.D + column)
                       : 0;
        }
    }
    static __device__ __forceinline__ int column_of(const shape &s, const coord &here, int warp)
    {
        return here.rank * s.block_columns + warp * COLUMNS + here.i;
    }
};

/* Computes the tapes before a step, for every fourth column warp, from a checkpoint or from the
 * tapes before the previous step. */
template <typename PASS>
static __device__ __forceinline__ void replay(const recurrence &r, const shape &s,
                                              const attention_lane<PASS> &lane,
                                              replay_inputs<PASS> &inputs)
{
    typedef typename PASS::type T;
    enum {
        SLOTS = PASS::SLOTS,
        QUADS = PASS::QUADS,
        OWN = inputs.OWN,
        IN_FLIGHT = SLOTS < 16 ? SLOTS : 16 /* slots */
    };
    if (inputs.step < 0 || inputs.step >= r.steps)
        return;
    auto &omega =
        lane.template at<typename PASS::attention_values>(s.attention)->replay_omega[lane.q];
    coord here = coord_of(s, QUADS, lane.smem);
    const int segment = inputs.step / (int)r.K, index = tape_index(r, inputs.step);
    const int before = index + (segment % 2 ? 1 : -1);
    const bool from_checkpoint = inputs.step == segment * r.K;

    #pragma unroll QUADS
    for (int p = 0; p < QUADS; p++)
        store_floats<OWN>(omega.row[4 * p + here.q] + here.i * OWN, inputs.omega[p]);
    __syncwarp();
    #pragma unroll 1
    for (int part = 0; part < inputs.PARTS; part++) {
        const int p = part % QUADS, row = here.row + 4 * p;
        here.warp = lane.q + part / QUADS * WARPGROUP;
        if (here.warp >= s.warps)
            break;
        const int column = inputs.column_of(s, here, here.warp);
        const bool live = row < r.batch && column < r.D;
        float *to = tapes_at<PASS>(r, s, here, index, p) + here.lane;
        const float *from = tapes_at<PASS>(r, s, here, before, p) + here.lane;
        const float v = from_bits(inputs.v[0], T{});
        #pragma unroll 1
        for (int first = 0; first < SLOTS; first += IN_FLIGHT) {
            float M[IN_FLIGHT], x[4];
            #pragma unroll 16
            for (int n = 0; n < IN_FLIGHT; n++)
                if (from_checkpoint)
                    M[n] = live && first + n < r.N ? get_kept(r, (int64_t)segment * r.batch + row,
                                                              (int64_t)(first + n) * r.D + column)
                                                   : 0;
                else
                    M[n] = from[(first + n) * 32];
            #pragma unroll 16
            for (int n = 0; n < IN_FLIGHT; n++) {
                if (n % 4 == 0)
                    load_slots(omega, here, p, first + n, x);
                to[(first + n) * 32] = from_checkpoint ? M[n] : written(M[n], x[n % 4], v);
            }
        }
        #pragma unroll (inputs.PARTS) /* v[0] is that of the next part */
        for (int k = 1; k < inputs.PARTS; k++)
            inputs.v[k - 1] = inputs.v[k];
    }
    __syncwarp();
}

/* The step to replay in iteration t, in which the column warps go on to t - 1.  K iterations replay
 * the K steps of the segment before that of the column warps.  Out of range if there is none. */
static __device__ __forceinline__ int replayed_step(const recurrence &r, int t)
{
    const int K = (int)r.K, before = t - 2 + K; /* + K: not below 0 */
    return before / K * K - K - 1 - before % K;
}

/* The first iteration; those with t > steps only replay. */
static __device__ __forceinline__ int first_iteration(const recurrence &r)
{
    return (((int)r.steps - 1) / (int)r.K + 2) * (int)r.K + 1;
}

/* Copies the tapes at an index to shared memory by cp.async, once no lane of the warp reads the
 * tapes there any more; wait_tapes() waits for the copies. */
template <typename PASS>
static __device__ __forceinline__ void prefetch_tapes(const recurrence &r, const shape &s,
                                                      const coord &here, int index, column<PASS> *c)
{
    __syncwarp();
    #pragma unroll (PASS::QUADS)
    for (int p = 0; p < PASS::QUADS; p++) {
        const float *from = tapes_at<PASS>(r, s, here, index, p);
        float *to = &c->M(p, 0) - here.lane;
        #pragma unroll 16
        for (int k = 4 * here.lane; k < PASS::SLOTS * 32; k += 128)
            cp_async16(to + k, from + k);
    }
    cp_async_commit();
}

static __device__ __forceinline__ void wait_tapes(void)
{
    cp_async_wait<0>();
    __syncwarp();
}

/* ---- attention ---- */

enum { DV, DP, MAIN, SIDE }; /* the mbarriers */

/* Computes dalpha of step t and dgamma of step t - 1.  At t = steps nothing was read, and only <D,
 * e> is summed. */
template <typename PASS>
static __device__ __forceinline__ void attention_step(const recurrence &r, const shape &s,
                                                      const attention_lane<PASS> &here, int t)
{
    typedef typename PASS::main_message main_message;
    typedef typename PASS::side_message side_message;
    typedef attention_lane<PASS> P;
    enum { QUADS = PASS::QUADS, OWN = P::OWN };
    const int threads = joint_threads(s);
    typename PASS::attention_values *values =
        here.template at<typename PASS::attention_values>(s.attention);
    uint64_t *main_mbar = here.mbar(MAIN), *side_mbar = here.mbar(SIDE);
    const int phase = (int)r.steps - t;
    const bool is_step = t < r.steps;
    float rho[OWN], omega[OWN], dread_e[OWN], dalpha[OWN], h_e[OWN], domega[OWN];

    fetch_attention<OWN>(r, r.rho, t, here.row, here.slot(), rho);
    fetch_attention<OWN>(r, r.omega, t - 1, here.row, here.slot(), omega);
    named_barrier_sync(MAIN_PARTS_READY, threads);
    if (here.leader() && is_step) /* the previous dp has arrived */
        mbarrier_arrive_expect_tx(here.mbar(DP), vector_bytes(s, QUADS));
    here.template broadcast_message<main_message>(s, main_mbar, s.main_parts, s.main);
    named_barrier_sync(SIDE_PARTS_READY, threads);
    here.template broadcast_message<side_message>(s, side_mbar, s.side_parts, s.side);

    mbarrier_wait(main_mbar, phase);
    here.template slot_sums<main_message>(s, s.main, 0, dread_e);
    #pragma unroll OWN
    for (int k = 0; k < OWN; k++)
        dalpha[k] = (omega[k] - 1) * dread_e[k];
    P::ops::back(r.attention, rho, dalpha);
    #pragma unroll OWN
    for (int k = 0; k < OWN; k++)
        dalpha[k] *= r.scale;
    here.store_slots(&values->rho, rho);
    here.store_slots(&values->dalpha, dalpha);
    here.store_slots(&values->omega, omega);

    mbarrier_wait(side_mbar, phase);
    here.template slot_sums<side_message>(s, s.side, 0, domega);
    here.template slot_sums<side_message>(s, s.side, 1, h_e);
    #pragma unroll OWN
    for (int k = 0; k < OWN; k++)
        domega[k] = fmaf(dalpha[k], h_e[k], fmaf(rho[k], dread_e[k], domega[k]));
    P::ops::back(r.attention, omega, domega);
    #pragma unroll OWN
    for (int k = 0; k < OWN; k++)
        domega[k] *= r.scale;
    here.store_slots(&values->dgamma, domega);
}

/* Sets the bytes that the mbarriers expect at step t, after all bytes of step t + 1 have arrived;
 * attention_step() does so for DP. */
template <typename PASS>
static __device__ __forceinline__ void expect_step(const recurrence &r, const shape &s,
                                                   const attention_lane<PASS> &here, int t)
{
    if (t < r.steps)
        mbarrier_arrive_expect_tx(here.mbar(DV), vector_bytes(s, PASS::QUADS));
    mbarrier_arrive_expect_tx(here.mbar(MAIN), message_bytes<typename PASS::main_message>(s));
    mbarrier_arrive_expect_tx(here.mbar(SIDE), message_bytes<typename PASS::side_message>(s));
}

/* The role of the attention warps: attention and replay of all steps. */
template <typename PASS>
static __device__ __forceinline__ void attention_backward(const recurrence &r, const shape &s,
                                                          const attention_lane<PASS> &lane0)
{
    for (int t = first_iteration(r); t >= 0; t--) {
        const attention_lane<PASS> here = lane0.opaque_copy(t);
        replay_inputs<PASS> next(r, s, here, replayed_step(r, t));
        if (t <= r.steps)
            attention_step(r, s, here, t);
        if (t <= r.steps + 1) {
            if (here.leader() && t > 0)
                expect_step(r, s, here, t - 1);
            named_barrier_arrive(LAST_WEIGHTS_READY, joint_threads(s));
        }
        replay(r, s, here, next);
    }
}

/* ---- column warps ---- */

/* Backward through the reading of step t + 1 and the write of step t, before which the tape was M;
 * returns dv. */
template <typename PASS>
static __device__ __forceinline__ float write_back(const recurrence &r, const shape &s,
                                                   const coord &here, int quad, column<PASS> *c)
{
    const typename PASS::attention_values *values =
        here.at<typename PASS::attention_values>(s.attention);
    const float h = c->h[quad], v = c->v[quad], dread = c->dread[quad];
    const bool by_v = r.query == DUAL_QUERY_V;
    const float query = by_v ? v : h;
    float *dM = c->dM[quad], dv[2] = {}, from_slots[2] = {}, from_query[2] = {};

    #pragma unroll 16
    for (int n = 0; n < PASS::SLOTS; n += 4) {
        float rho[4], dalpha[4], omega[4], dgamma[4];
        if (PASS::TAPES >= 64)
            __syncwarp(); /* limits the loads in flight, to save registers */
        load_slots(values->rho, here, quad, n, rho);
        load_slots(values->dalpha, here, quad, n, dalpha);
        load_slots(values->omega, here, quad, n, omega);
        load_slots(values->dgamma, here, quad, n, dgamma);
        #pragma unroll 4
        for (int k = 0; k < 4; k++) {
            const float M = c->M(quad, n + k), after = written(M, omega[k], v);
            float x = fmaf(rho[k], dread, dM[n + k]);
            x = fmaf(dalpha[k], h, x);
            from_slots[k % 2] = fmaf(dalpha[k], after, from_slots[k % 2]);
            dv[k % 2] = fmaf(omega[k], x, dv[k % 2]);
            from_query[k % 2] = fmaf(dgamma[k], M, from_query[k % 2]);
            dM[n + k] = fmaf(dgamma[k], query, __fmul_rn(1 - omega[k], x));
        }
    }
    c->carry[quad] += from_slots[0] + from_slots[1];
    if (!by_v)
        c->carry[quad] += from_query[0] + from_query[1];
    return dv[0] + dv[1] + (by_v ? from_query[0] + from_query[1] : 0);
}

template <typename PASS>
static __device__ __forceinline__ void init_column(const recurrence &r, const shape &s,
                                                   const coord &here, column<PASS> *c)
{
    enum { SLOTS = PASS::SLOTS, QUADS = PASS::QUADS };
    c->tape = here.at<float>(s.tape) + here.warp * QUADS * SLOTS * 32 + here.lane;
    #pragma unroll QUADS
    for (int p = 0; p < QUADS; p++) {
        const int row = here.row + 4 * p;
        c->live[p] = row < r.batch && here.column < r.D;
        c->h[p] = c->v[p] = c->dread[p] = 0;
        c->carry[p] = c->live[p] ? r.dh_T[(int64_t)row * r.D + here.column] : 0;
        #pragma unroll SLOTS
        for (int n = 0; n < SLOTS; n++)
            c->dM[p][n] =
                c->live[p] && n < r.N ? r.dM_T[row * r.M + (int64_t)n * r.D + here.column] : 0;
    }
}

/* dh and dread of step t, and v and h of step t - 1; `at` is the column's index in [T,B,D]. */
template <typename PASS>
struct step_inputs {
    typedef typename PASS::type T;
    T v[PASS::QUADS], dh[PASS::QUADS], dread[PASS::QUADS];
    float before[PASS::QUADS];

    __device__ __forceinline__ step_inputs(const recurrence &r, const column<PASS> &c, int t,
                                           int64_t at)
    {
        const int64_t step = r.batch * r.D;
        const bool is_step = t < r.steps;
        #pragma unroll (PASS::QUADS)
        for (int p = 0; p < PASS::QUADS; p++) {
            const int64_t e = at + (int64_t)4 * p * r.D;
            v[p] = dh[p] = dread[p] = T{};
            before[p] = 0;
            if (c.live[p] && t > 0)
                v[p] = ((const T *)r.v)[e - step];
            if (c.live[p])
                before[p] = t > 0 ? r.h[e - step] : r.h0[e];
            if (c.live[p] && is_step)
                dh[p] = ((const T *)r.dh)[e];
            if (c.live[p] && is_step && r.dread)
                dread[p] = ((const T *)r.dread)[e];
        }
    }
};

/* Computes dp of a step from sum.one = W_write^T dv; then, with h, v and M of the step before, the
 * warp's parts of <dread, e>, <D, e> and <h, e>. */
template <typename PASS>
static __device__ __forceinline__ void
hidden_back(const shape &s, const coord &here, bool is_step, const step_inputs<PASS> &in,
            const product_sums sum[PASS::QUADS], column<PASS> *c, float dp[PASS::QUADS])
{
    typedef typename PASS::main_message main_message;
    typedef typename PASS::side_message side_message;
    enum { SLOTS = PASS::SLOTS, QUADS = PASS::QUADS };
    constexpr bool e_in_registers = SLOTS * QUADS <= 16; /* for all three sums */
    float *main_part = here.at<float>(s.main_parts) + here.warp * main_message::FLOATS;
    float *side_part = here.at<float>(s.side_parts) + here.warp * side_message::FLOATS;
    float e_held[QUADS][e_in_registers ? SLOTS : 1] = {};
    const auto e_of = [&](int p, int n) {
        if constexpr (e_in_registers)
            return e_held[p][n];
        else
            return c->v[p] - c->M(p, n);
    };
    #pragma unroll QUADS
    for (int p = 0; p < QUADS; p++) {
        if (is_step) {
            dp[p] = (c->carry[p] + load(in.dh + p) + sum[p].one) * fmaf(-c->h[p], c->h[p], 1.0f);
            c->dread[p] = dp[p] + load(in.dread + p);
            c->carry[p] = 0;
        }
        c->h[p] = in.before[p];
        c->v[p] = load(in.v + p);
        if constexpr (e_in_registers)
            #pragma unroll SLOTS
            for (int n = 0; n < SLOTS; n++)
                e_held[p][n] = c->v[p] - c->M(p, n);
        reduce_slots<main_message>(here, main_part + main_message::row(p, 0, here.q),
                                   [&](int n) { return c->dread[p] * e_of(p, n); });
    }
    named_barrier_arrive(MAIN_PARTS_READY, joint_threads(s));
    #pragma unroll QUADS
    for (int p = 0; p < QUADS; p++) {
        reduce_slots<side_message>(here, side_part + side_message::row(p, 0, here.q),
                                   [&](int n) { return c->dM[p][n] * e_of(p, n); });
        reduce_slots<side_message>(here, side_part + side_message::row(p, 1, here.q),
                                   [&](int n) { return c->h[p] * e_of(p, n); });
    }
    named_barrier_arrive(SIDE_PARTS_READY, joint_threads(s));
}

/* Saves a column's dv or dp of a step to [T,B,D]. */
template <typename PASS>
static __device__ __forceinline__ void save_gradient(const recurrence &r, const column<PASS> &c,
                                                     void *to, int64_t at,
                                                     const float x[PASS::QUADS])
{
    #pragma unroll (PASS::QUADS)
    for (int p = 0; p < PASS::QUADS; p++)
        if (c.live[p])
            store((typename PASS::type *)to + at + (int64_t)4 * p * r.D, x[p]);
}

/* Backward through the reading of the first step. */
template <typename PASS>
static __device__ __forceinline__ void first_reading_back(const recurrence &r, const shape &s,
                                                          const coord &here, column<PASS> *c)
{
    const typename PASS::attention_values *values =
        here.at<typename PASS::attention_values>(s.attention);
    #pragma unroll (PASS::QUADS)
    for (int p = 0; p < PASS::QUADS; p++) {
        const int row = here.row + 4 * p;
        float from_slots = 0;
        #pragma unroll 16
        for (int n = 0; n < PASS::SLOTS; n += 4) {
            float rho[4], dalpha[4];
            load_slots(values->rho, here, p, n, rho);
            load_slots(values->dalpha, here, p, n, dalpha);
            #pragma unroll 4
            for (int k = 0; k < 4; k++) {
                const float d = fmaf(rho[k], c->dread[p], c->dM[p][n + k]);
                from_slots = fmaf(dalpha[k], c->M(p, n + k), from_slots);
                if (c->live[p] && n + k < r.N)
                    r.dM[row * r.M + (int64_t)(n + k) * r.D + here.column] =
                        fmaf(dalpha[k], c->h[p], d);
            }
        }
        if (c->live[p])
            r.dh0[(int64_t)row * r.D + here.column] = c->carry[p] + from_slots;
    }
}

/* The role of the column warps, from the last step's write to the first step's reading. */
template <typename PASS>
static __device__ __forceinline__ void columns_backward(const recurrence &r, const shape &s,
                                                        const coord &here)
{
    typedef typename PASS::type T;
    enum { QUADS = PASS::QUADS };
    const int threads = joint_threads(s), last = (int)r.steps - 1;
    uint64_t *mbar = here.at<uint64_t>(0);
    uint4 held[held_count<PASS>()];
    column<PASS> c;
    product_sums sum[QUADS] = {};

    load_weights<PASS>(s, here, (const T *)r.W_write, (const T *)r.W_h, r.D, held);
    init_column(r, s, here, &c);
    int index = tape_index(r, last); /* of the step before; and the direction to the next */
    int direction = index == 0 ? 1 : index == r.K ? -1 : last / (int)r.K % 2 ? 1 : -1;
    for (int t = (int)r.steps; t >= 0; t--) {
        const int phase = (int)r.steps - t;
        const bool is_step = t < r.steps;
        const int64_t at = t * (r.batch * r.D) + (int64_t)here.row * r.D + here.column;
        float dp[QUADS] = {};
        named_barrier_sync(LAST_WEIGHTS_READY, threads);
        if (is_step) {
            float dv[QUADS];
            #pragma unroll QUADS
            for (int p = 0; p < QUADS; p++)
                dv[p] = write_back(r, s, opaque_copy(here, phase), p, &c);
            broadcast_vector<T, QUADS>(s, opaque_copy(here, phase), mbar + DV, 0, dv);
            save_gradient(r, c, r.dv, at, dv);
        }
        if (t > 0)
            prefetch_tapes(r, s, here, index, &c);
        index += direction;
        direction = index == 0 ? 1 : index == r.K ? -1 : direction;
        const step_inputs<PASS> in(r, c, t, at);
        if (is_step) {
            mbarrier_wait(mbar + DV, phase - 1);
            multiply<PASS, ONE_SUM>(s, opaque_copy(here, phase), held, s.vector, sum);
        }
        wait_tapes();
        hidden_back(s, opaque_copy(here, phase), is_step, in, sum, &c, dp);
        if (is_step) {
            const coord now = opaque_copy(here, phase);
            broadcast_vector<T, QUADS>(s, now, mbar + DP, 1, dp);
            save_gradient(r, c, r.dp, at, dp);
            mbarrier_wait(mbar + DP, phase - 1);
            multiply<PASS, OTHER_SUM>(s, opaque_copy(here, phase), held, s.vector + s.vector_size,
                                      sum);
            #pragma unroll QUADS
            for (int p = 0; p < QUADS; p++)
                c.carry[p] += sum[p].other;
        }
    }
    named_barrier_sync(LAST_WEIGHTS_READY, threads);
    first_reading_back(r, s, opaque_copy(here, (int)r.steps), &c);
}

template <typename PASS>
__global__ void __launch_bounds__(MAX_THREADS, 1) backward_persistent(recurrence r, shape given)
{
    extern __shared__ __align__(16) unsigned char smem[];
    run_roles<PASS>(r, given, smem, columns_backward<PASS>, attention_backward<PASS>);
}

/* ---- launches ---- */

/* The workspace: transposed weights, then K + 1 tapes, for the maximum clusters and columns of any
 * launch. */
template <typename T>
static work_arena behind_weights(const recurrence &r)
{
    work_arena a = {(char *)r.work, 0};
    work_take(&a, packed_bytes<T>(r));
    return a;
}

template <typename T>
size_t backward_work(struct context *on, const recurrence &r)
{
    const auto columns = [&](auto n) {
        const shape four = smallest_shape<backward_pass<T, n.value, 1, 0>>(on, r.D);
        const shape eight =
            smallest_shape<backward_pass<T, n.value, max_quads(n.value), 0>>(on, r.D);
        return (int64_t)n.value *
               std::max(four.cluster * four.block_columns, eight.cluster * eight.block_columns);
    };
    work_arena a = behind_weights<T>(r);
    take<float>(&a, (r.K + 1) * ceil_div(r.batch, 8) * 8 * with_slots(r.N, columns));
    return a.bytes;
}

template <typename T>
static int with_transposed(struct context *on, const recurrence &given, launching *launch)
{
    recurrence r = given;
    const work_arena behind = behind_weights<T>(r);
    const int e = pack_weights<T>(on, &r, true);
    r.work = work_rest(&behind);
    return e ? e : launch(on, r);
}

template <typename T>
int launch_backward(struct context *on, const recurrence &r)
{
    return with_transposed<T>(on, r, launch_pass<backward_pass, T>);
}

int launch_backward_fixed(struct context *on, const recurrence &r)
{
    return with_transposed<__nv_bfloat16>(on, r, launch_fixed<backward_pass>);
}

template <typename T>
const char *backward_declines(struct context *on, const recurrence &r)
{
    return pass_declines<backward_pass, T>(on, r);
}

#define BACKWARD_OF(T)                                                                             \
    template size_t backward_work<T>(struct context *, const recurrence &r);                       \
    template int launch_backward<T>(struct context *, const recurrence &r);                        \
    template const char *backward_declines<T>(struct context *, const recurrence &r)

BACKWARD_OF(float);
BACKWARD_OF(__nv_bfloat16);

}    // namespace dual
