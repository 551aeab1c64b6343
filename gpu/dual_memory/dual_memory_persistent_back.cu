/* dual_memory, kernel `persistent`, backward: clusters, weights and exchange as forward.
 *
 * A step t has two exchanges that it waits for.  D is dL/dM' of the write, before the
 * step's own shares are in it; M, v and omega are those of the step before, e = v - M:
 *
 *     columns                                     attention
 *
 *     D takes what reading at t + 1 gave;
 *     dv; D back through the write -> to all blocks
 *     (meanwhile M from the workspace)
 *     W_write^T dv; dp; dread
 *     <dread, e_n> over own columns -> the block  sums -> to all blocks
 *     <D_n, e_n>, <h, e_n>          -> the block  sums -> to all blocks
 *     dp                           -> to all blocks
 *     W_h^T dp                                    dalpha of the reading; domega and
 *                                                 dgamma of the step before
 *
 * for the tape that was read is v - (1 - omega_n) e_n, where attention's way back does not
 * feel the v that all slots share, and domega of the step before is
 * <D_n + rho_n dread + s dalpha_n h, e_n>, whose three sums are there before dalpha is: no
 * third exchange.  What one brings is overwritten only by those who have got one that
 * follows it.
 *
 * The tapes of a segment are replayed into the workspace by those who pay attention, step by
 * step while the columns go through the segment after it, and come back 16 bytes at a time,
 * past the registers, while dv is in flight; the weights are fetched from transposed copies. */
#include <algorithm>

#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/mbarrier.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/dual_memory/dual_memory_persistent.cuh"
#include "gpu/gemm/layer.cuh"

template <typename PASS>
__global__ void backward_persistent(recurrence r, shape given);

/* As many as spill none (tests/spills.sh), where a lane has so many slots. */
static constexpr int turns_held(int bytes, int slots, int quads, int width)
{
    const int most = slots == 8 ? 5 - quads : slots * quads <= 16 ? 4 : slots * quads == 32 ? 3 : 2;
    return most - (bytes == 4 || width);
}

template <typename T, int SLOTS, int QUADS, int WIDTH>
struct back : pass_of<T, SLOTS, QUADS, WIDTH> {
    enum {
        VECTORS = 2,
        SCALARS = 0,
        SIDES = 1,
        TAPES = SLOTS * QUADS, /* M is in shared memory */
        TURNS = turns_held(sizeof(T), SLOTS, QUADS, WIDTH),
        EARLY = WIDTH && QUADS == 1,
        FEW = few_of(QUADS == 2 ? 32 : SLOTS)
    };
    typedef letter<SLOTS, QUADS, 1> main_letter;
    typedef letter<SLOTS, QUADS, 2> side_letter;
    struct attentions {
        paid<main_letter> rho, dalpha, omega, dgamma; /* of t + 1, and of t */
        paid<main_letter> replayed[CREW];             /* omega of a step replayed, each warp's */
    };
    static constexpr clusters_kernel *kernel = backward_persistent<back>;
};

/* What a thread has of its column: of each of its sequences. */
template <typename PASS>
struct column {
    enum { SLOTS = PASS::SLOTS, QUADS = PASS::QUADS };
    float dM[QUADS][SLOTS];
    float *tape; /* in shared memory; slot n of the p-th is M(p, n) */
    float h[QUADS], v[QUADS], dread[QUADS], carry[QUADS];
    bool live[QUADS];
    __device__ __forceinline__ float &M(int p, int n) { return tape[(p * SLOTS + n) * 32]; }
};

/* Some slots of a sequence's weights at step t, [T,B,N]; 0 where there is no such step. */
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

/* Where the tapes before a step are in the workspace: there is one place more than a segment has
 * steps, and every other segment is in descending order, each step where one of the segment
 * after it has just been.  So who goes from step to step goes up to place K and down to 0. */
static __device__ __forceinline__ int map_shared_rank(const recurrence &r, int step)
{
    const int K = (int)r.K, segment = step / K, of_segment = step - segment * K;
    return segment % 2 ? K - of_segment : of_segment;
}

/* A warp's of a sequence there: as in shared memory, slot by slot the lanes' columns. */
template <typename PASS>
static __device__ __forceinline__ float *tapes_at(const recurrence &r, const shape &s,
                                                  const seat &here, int place, int quad)
{
    const int64_t warp = ((int64_t)place * gridDim.x + blockIdx.x) * s.warps + here.warp;
    return (float *)r.work + (warp * PASS::QUADS + quad) * PASS::SLOTS * 32;
}

/* The write before a step that is to be replayed, as a lane needs it: fetched early. */
template <typename PASS>
struct replayed {
    typedef typename PASS::type T;
    enum {
        QUADS = PASS::QUADS,
        OWN = PASS::main_letter::OWN,
        PARTS = WARPS_MOST / CREW * QUADS /* each a quad of a warp of columns */
    };
    int step;
    float omega[QUADS][OWN];
    unsigned v[PARTS]; /* as stored */

    __device__ __forceinline__ replayed(const recurrence &r, const shape &s, const payer<PASS> &by,
                                        int step_)
        : step(step_)
    {
        const seat here = seat_of(s, QUADS, by.memory);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++)
            fetch_attention<OWN>(r, r.omega, step - 1, here.row + 4 * p, here.i * OWN, omega[p]);
        #pragma unroll PARTS
        for (int k = 0; k < PARTS; k++) {
            const int row = here.row + k % QUADS * 4;
            const int column = column_of(s, here, by.q + k / QUADS * CREW);
            v[k] = step > 0 && step < r.steps && row < r.batch && column < r.D
                       ? bits_of((const T *)r.v + ((step - 1) * r.batch + row) * r.D + column)
                       : 0;
        }
    }
    static __device__ __forceinline__ int column_of(const shape &s, const seat &here, int warp)
    {
        return here.rank * s.own + warp * COLUMNS + here.i;
    }
};

/* The tapes before a step, of every fourth warp of columns, from a checkpoint or from those before
 * the step before. */
template <typename PASS>
static __device__ __forceinline__ void replay(const recurrence &r, const shape &s,
                                              const payer<PASS> &by, replayed<PASS> &of)
{
    typedef typename PASS::type T;
    enum {
        SLOTS = PASS::SLOTS,
        QUADS = PASS::QUADS,
        OWN = of.OWN,
        AT_ONCE = SLOTS < 16 ? SLOTS : 16 /* in flight */
    };
    if (of.step < 0 || of.step >= r.steps)
        return;
    auto &told = by.template at<typename PASS::attentions>(s.slots)->replayed[by.q];
    seat here = seat_of(s, QUADS, by.memory);
    const int segment = of.step / (int)r.K, place = map_shared_rank(r, of.step);
    const int before = place + (segment % 2 ? 1 : -1);
    const bool kept = of.step == segment * r.K;

    #pragma unroll QUADS
    for (int p = 0; p < QUADS; p++)
        put_own<OWN>(told.of[4 * p + here.q] + here.i * OWN, of.omega[p]);
    __syncwarp();
    #pragma unroll 1
    for (int part = 0; part < of.PARTS; part++) {
        const int p = part % QUADS, row = here.row + 4 * p;
        here.warp = by.q + part / QUADS * CREW;
        if (here.warp >= s.warps)
            break;
        const int column = of.column_of(s, here, here.warp);
        const bool live = row < r.batch && column < r.D;
        float *to = tapes_at<PASS>(r, s, here, place, p) + here.lane;
        const float *from = tapes_at<PASS>(r, s, here, before, p) + here.lane;
        const float v = from_bits(of.v[0], T{});
        #pragma unroll 1
        for (int first = 0; first < SLOTS; first += AT_ONCE) {
            float M[AT_ONCE], x[4];
            #pragma unroll 16
            for (int n = 0; n < AT_ONCE; n++)
                if (kept)
                    M[n] = live && first + n < r.N ? get_kept(r, (int64_t)segment * r.batch + row,
                                                              (int64_t)(first + n) * r.D + column)
                                                   : 0;
                else
                    M[n] = from[(first + n) * 32];
            #pragma unroll 16
            for (int n = 0; n < AT_ONCE; n++) {
                if (n % 4 == 0)
                    four_of(told, here, p, first + n, x);
                to[(first + n) * 32] = kept ? M[n] : written(M[n], x[n % 4], v);
            }
        }
        #pragma unroll (of.PARTS) /* the next part's is the first */
        for (int k = 1; k < of.PARTS; k++)
            of.v[k - 1] = of.v[k];
    }
    __syncwarp();
}

/* What is replayed in the turn of step t, when the columns go on to t - 1: in K turns the K steps
 * of the segment before theirs; none, if it is not there. */
static __device__ __forceinline__ int replayed_in(const recurrence &r, int t)
{
    const int K = (int)r.K, before = t - 2 + K; /* so that it is not below 0 */
    return before / K * K - K - 1 - before % K;
}

/* The first turn of those in which there is nothing to do but to replay. */
static __device__ __forceinline__ int first_turn(const recurrence &r)
{
    return (((int)r.steps - 1) / (int)r.K + 2) * (int)r.K + 1;
}

/* The tapes at a place: in flight to shared memory, where nobody of the warp reads any more;
 * fetched_tapes() waits for them. */
template <typename PASS>
static __device__ __forceinline__ void fetch_tapes(const recurrence &r, const shape &s,
                                                   const seat &here, int place, column<PASS> *c)
{
    __syncwarp();
    #pragma unroll (PASS::QUADS)
    for (int p = 0; p < PASS::QUADS; p++) {
        const float *from = tapes_at<PASS>(r, s, here, place, p);
        float *to = &c->M(p, 0) - here.lane;
        #pragma unroll 16
        for (int k = 4 * here.lane; k < PASS::SLOTS * 32; k += 128)
            cp_async16(to + k, from + k);
    }
    cp_async_commit();
}

static __device__ __forceinline__ void fetched_tapes(void)
{
    cp_async_wait<0>();
    __syncwarp();
}

/* ---- attention ---- */

enum { DV, DP, MAIN, SIDE }; /* the mbars */

/* dalpha of step t and dgamma of the one before.  Step `steps` is none: nothing was read there, and
 * there are only D and e to be summed. */
template <typename PASS>
static __device__ __forceinline__ void pay_step(const recurrence &r, const shape &s,
                                                const payer<PASS> &here, int t)
{
    typedef typename PASS::main_letter main_letter;
    typedef typename PASS::side_letter side_letter;
    typedef payer<PASS> P;
    enum { QUADS = PASS::QUADS, OWN = P::OWN };
    const int all = all_of(s);
    typename PASS::attentions *told = here.template at<typename PASS::attentions>(s.slots);
    uint64_t *main_box = here.mbar(MAIN), *side_box = here.mbar(SIDE);
    const int turn = (int)r.steps - t;
    const bool a_step = t < r.steps;
    float rho[OWN], omega[OWN], by_read[OWN], dalpha[OWN], by_h[OWN], domega[OWN];

    fetch_attention<OWN>(r, r.rho, t, here.row, here.slot(), rho);
    fetch_attention<OWN>(r, r.omega, t - 1, here.row, here.slot(), omega);
    named_barrier_sync(MAIN_PARTS, all);
    if (here.first() && a_step) /* the last dp has come */
        mbarrier_arrive_expect_tx(here.mbar(DP), vector_bytes(s, QUADS));
    here.template post_letter<main_letter>(s, main_box, s.main_parts, s.main);
    named_barrier_sync(SIDE_PARTS, all);
    here.template post_letter<side_letter>(s, side_box, s.side_parts, s.side);

    mbarrier_wait(main_box, turn);
    here.template slot_sums<main_letter>(s, s.main, 0, by_read);
    #pragma unroll OWN
    for (int k = 0; k < OWN; k++)
        dalpha[k] = (omega[k] - 1) * by_read[k];
    P::of::back(r.attention, rho, dalpha);
    #pragma unroll OWN
    for (int k = 0; k < OWN; k++)
        dalpha[k] *= r.scale;
    here.tell(&told->rho, rho);
    here.tell(&told->dalpha, dalpha);
    here.tell(&told->omega, omega);

    mbarrier_wait(side_box, turn);
    here.template slot_sums<side_letter>(s, s.side, 0, domega);
    here.template slot_sums<side_letter>(s, s.side, 1, by_h);
    #pragma unroll OWN
    for (int k = 0; k < OWN; k++)
        domega[k] = fmaf(dalpha[k], by_h[k], fmaf(rho[k], by_read[k], domega[k]));
    P::of::back(r.attention, omega, domega);
    #pragma unroll OWN
    for (int k = 0; k < OWN; k++)
        domega[k] *= r.scale;
    here.tell(&told->dgamma, domega);
}

/* What will come in the turn of step t, all of the turn before having come; of dp later. */
template <typename PASS>
static __device__ __forceinline__ void expect_step(const recurrence &r, const shape &s,
                                                   const payer<PASS> &here, int t)
{
    if (t < r.steps)
        mbarrier_arrive_expect_tx(here.mbar(DV), vector_bytes(s, PASS::QUADS));
    mbarrier_arrive_expect_tx(here.mbar(MAIN), letter_bytes<typename PASS::main_letter>(s));
    mbarrier_arrive_expect_tx(here.mbar(SIDE), letter_bytes<typename PASS::side_letter>(s));
}

/* Attention and tapes of all steps. */
template <typename PASS>
static __device__ __forceinline__ void pay_back(const recurrence &r, const shape &s,
                                                const payer<PASS> &seated)
{
    for (int t = first_turn(r); t >= 0; t--) {
        const payer<PASS> here = seated.afresh(t);
        replayed<PASS> next(r, s, here, replayed_in(r, t));
        if (t <= r.steps)
            pay_step(r, s, here, t);
        if (t <= r.steps + 1) {
            if (here.first() && t > 0)
                expect_step(r, s, here, t - 1);
            named_barrier_arrive(PAID_LAST, all_of(s));
        }
        replay(r, s, here, next);
    }
}

/* ---- columns ---- */

/* Back through the reading of step t + 1 and the writing of t, whose tape is M; gives dv. */
template <typename PASS>
static __device__ __forceinline__ float unwrite(const recurrence &r, const shape &s,
                                                const seat &here, int quad, column<PASS> *c)
{
    const typename PASS::attentions *told = here.at<typename PASS::attentions>(s.slots);
    const float h = c->h[quad], v = c->v[quad], dread = c->dread[quad];
    const bool by_v = r.query == DUAL_QUERY_V;
    const float query = by_v ? v : h;
    float *dM = c->dM[quad], dv[2] = {}, from_slots[2] = {}, from_query[2] = {};

    #pragma unroll 16
    for (int n = 0; n < PASS::SLOTS; n += 4) {
        float rho[4], dalpha[4], omega[4], dgamma[4];
        if (PASS::TAPES >= 64)
            __syncwarp(); /* the next ones' are not fetched yet, for want of registers */
        four_of(told->rho, here, quad, n, rho);
        four_of(told->dalpha, here, quad, n, dalpha);
        four_of(told->omega, here, quad, n, omega);
        four_of(told->dgamma, here, quad, n, dgamma);
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

/* The columns, from the last step's write to the first one's reading. */
template <typename PASS>
static __device__ __forceinline__ void carry_back(const recurrence &r, const shape &s,
                                                  const seat &here)
{
    typedef typename PASS::type T;
    typedef typename PASS::main_letter main_letter;
    typedef typename PASS::side_letter side_letter;
    enum { SLOTS = PASS::SLOTS, QUADS = PASS::QUADS };
    constexpr bool near = SLOTS * QUADS <= 16; /* e stays in registers, from sum to sum */
    const int64_t step = r.batch * r.D;
    const int all = all_of(s);
    uint64_t *mbar = here.at<uint64_t>(0);
    uint4 held[held_of<PASS>()];
    column<PASS> c;
    two sum[QUADS] = {};

    fetch_weights<PASS>(s, here, (const T *)r.W_write, (const T *)r.W_h, r.D, held);
    c.tape = here.at<float>(s.tape) + here.warp * QUADS * SLOTS * 32 + here.lane;
    #pragma unroll QUADS
    for (int p = 0; p < QUADS; p++) {
        const int row = here.row + 4 * p;
        c.live[p] = row < r.batch && here.column < r.D;
        c.h[p] = c.v[p] = c.dread[p] = 0;
        c.carry[p] = c.live[p] ? r.dh_T[(int64_t)row * r.D + here.column] : 0;
        #pragma unroll SLOTS
        for (int n = 0; n < SLOTS; n++)
            c.dM[p][n] =
                c.live[p] && n < r.N ? r.dM_T[row * r.M + (int64_t)n * r.D + here.column] : 0;
    }
    int place =
        map_shared_rank(r, (int)r.steps - 1); /* of the step before; and where to the next is */
    int way = place == 0 ? 1 : place == r.K ? -1 : ((int)r.steps - 1) / (int)r.K % 2 ? 1 : -1;
    for (int t = (int)r.steps; t >= 0; t--) {
        const int turn = (int)r.steps - t;
        const bool a_step = t < r.steps;
        const int64_t at =
            t * step + (int64_t)here.row * r.D + here.column; /* the first sequence's */
        float before[QUADS] = {}, dp[QUADS] = {};
        T v[QUADS], dh[QUADS], dread[QUADS];
        float away[QUADS][near ? SLOTS : 1] = {};
        const auto e_of = [&](int p, int n) {
            if constexpr (near)
                return away[p][n];
            else
                return c.v[p] - c.M(p, n);
        };
        named_barrier_sync(PAID_LAST, all);
        if (a_step) {
            float dv[QUADS];
            #pragma unroll QUADS
            for (int p = 0; p < QUADS; p++)
                dv[p] = unwrite(r, s, afresh(here, turn), p, &c);
            post_vector<T, QUADS>(s, afresh(here, turn), mbar + DV, 0, dv);
            #pragma unroll QUADS
            for (int p = 0; p < QUADS; p++)
                if (c.live[p])
                    store((T *)r.dv + at + (int64_t)4 * p * r.D, dv[p]);
        }
        if (t > 0)
            fetch_tapes(r, s, here, place, &c);
        place += way;
        way = place == 0 ? 1 : place == r.K ? -1 : way;
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++) {
            const int64_t e = at + (int64_t)4 * p * r.D;
            v[p] = dh[p] = dread[p] = T{};
            if (c.live[p] && t > 0)
                v[p] = ((const T *)r.v)[e - step];
            if (c.live[p])
                before[p] = t > 0 ? r.h[e - step] : r.h0[e];
            if (c.live[p] && a_step)
                dh[p] = ((const T *)r.dh)[e];
            if (c.live[p] && a_step && r.dread)
                dread[p] = ((const T *)r.dread)[e];
        }
        if (a_step) {
            mbarrier_wait(mbar + DV, turn - 1);
            multiply<PASS, ONE_SUM>(s, afresh(here, turn), held, s.vector, sum);
        }
        fetched_tapes();
        const seat now = afresh(here, turn);
        float *main_part = now.at<float>(s.main_parts) + now.warp * main_letter::FLOATS;
        float *side_part = now.at<float>(s.side_parts) + now.warp * side_letter::FLOATS;
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++) {
            if (a_step) {
                dp[p] = (c.carry[p] + load(dh + p) + sum[p].one) * fmaf(-c.h[p], c.h[p], 1.0f);
                c.dread[p] = dp[p] + load(dread + p);
                c.carry[p] = 0;
            }
            c.h[p] = before[p];
            c.v[p] = load(v + p);
            if constexpr (near)
                #pragma unroll SLOTS
                for (int n = 0; n < SLOTS; n++)
                    away[p][n] = c.v[p] - c.M(p, n);
            fold_slots<main_letter>(now, main_part + main_letter::row(p, 0, now.q),
                                    [&](int n) { return c.dread[p] * e_of(p, n); });
        }
        named_barrier_arrive(MAIN_PARTS, all);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++) {
            fold_slots<side_letter>(now, side_part + side_letter::row(p, 0, now.q),
                                    [&](int n) { return c.dM[p][n] * e_of(p, n); });
            fold_slots<side_letter>(now, side_part + side_letter::row(p, 1, now.q),
                                    [&](int n) { return c.h[p] * e_of(p, n); });
        }
        named_barrier_arrive(SIDE_PARTS, all);
        if (a_step) {
            post_vector<T, QUADS>(s, afresh(here, turn), mbar + DP, 1, dp);
            #pragma unroll QUADS
            for (int p = 0; p < QUADS; p++)
                if (c.live[p])
                    store((T *)r.dp + at + (int64_t)4 * p * r.D, dp[p]);
            mbarrier_wait(mbar + DP, turn - 1);
            multiply<PASS, OTHER_SUM>(s, afresh(here, turn), held, s.vector + s.room, sum);
            #pragma unroll QUADS
            for (int p = 0; p < QUADS; p++)
                c.carry[p] += sum[p].other;
        }
    }
    /* Back through the reading of the first step. */
    const seat end = afresh(here, (int)r.steps);
    const typename PASS::attentions *told = end.at<typename PASS::attentions>(s.slots);
    named_barrier_sync(PAID_LAST, all);
    #pragma unroll QUADS
    for (int p = 0; p < QUADS; p++) {
        const int row = end.row + 4 * p;
        float from_slots = 0;
        #pragma unroll 16
        for (int n = 0; n < SLOTS; n += 4) {
            float rho[4], dalpha[4];
            four_of(told->rho, end, p, n, rho);
            four_of(told->dalpha, end, p, n, dalpha);
            #pragma unroll 4
            for (int k = 0; k < 4; k++) {
                const float d = fmaf(rho[k], c.dread[p], c.dM[p][n + k]);
                from_slots = fmaf(dalpha[k], c.M(p, n + k), from_slots);
                if (c.live[p] && n + k < r.N)
                    r.dM[row * r.M + (int64_t)(n + k) * r.D + end.column] =
                        fmaf(dalpha[k], c.h[p], d);
            }
        }
        if (c.live[p])
            r.dh0[(int64_t)row * r.D + end.column] = c.carry[p] + from_slots;
    }
}

template <typename PASS>
__global__ void __launch_bounds__(THREADS_MOST, 1) backward_persistent(recurrence r, shape given)
{
    extern __shared__ __align__(16) unsigned char memory[];
    run_crews<PASS>(r, given, memory, carry_back<PASS>, pay_back<PASS>);
}

/* ---- launches ---- */

/* The workspace: transposed weights, then the tapes of a segment and one more, of as many
 * clusters and columns as any launch has. */
template <typename T>
size_t backward_work(const recurrence &r)
{
    const auto columns = [&](auto n) {
        const shape one = smallest_shape<back<T, n.value, 1, 0>>(r.D);
        const shape two = smallest_shape<back<T, n.value, most_quads(n.value), 0>>(r.D);
        return (int64_t)n.value * std::max(one.cluster * one.own, two.cluster * two.own);
    };
    return aligned(rows_bytes<T>(r)) +
           sizeof(float) * (r.K + 1) * ceil_div(r.batch, 8) * 8 * with_slots(r.N, columns);
}

template <typename T>
static int with_transposed(const recurrence &given, int launch(const recurrence &))
{
    recurrence r = given;
    const int e = lay_rows<T>(&r, true);
    r.work = (char *)r.work + aligned(rows_bytes<T>(r));
    return e ? e : launch(r);
}

template <typename T>
int launch_backward(const recurrence &r)
{
    return with_transposed<T>(r, launch_pass<back, T>);
}

int launch_backward_fixed(const recurrence &r)
{
    return with_transposed<__nv_bfloat16>(r, launch_fixed<back>);
}

template <typename T>
const char *backward_declines(const recurrence &r)
{
    return pass_declines<back, T>(r);
}

#define BACKWARD_OF(T)                                                                             \
    template size_t backward_work<T>(const recurrence &r);                                         \
    template int launch_backward<T>(const recurrence &r);                                          \
    template const char *backward_declines<T>(const recurrence &r)

BACKWARD_OF(float);
BACKWARD_OF(__nv_bfloat16);
