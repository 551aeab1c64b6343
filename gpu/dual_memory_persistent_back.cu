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
 * The tapes of a segment are replayed into the workspace, each warp its own columns' in
 * its own order, so that nobody waits for anybody and 16 bytes at a time come back, past
 * the registers, while dv is under way; the weights are fetched from transposed copies. */
#include <algorithm>

#include "gpu/dual_memory_persistent.cuh"
#include "gpu/layer.cuh"

template <typename PASS>
__global__ void backward_persistent(recurrence r, shape given);

/* As many as spill none (tests/spills.sh), where a lane has so many slots. */
static constexpr int turns_held(int bytes, int slots, int width)
{
    const int most = slots <= 16 ? 4 : slots == 32 ? 3 : 2;
    return most - (bytes == 4 || width);
}

template <typename T, int SLOTS, int QUADS, int WIDTH>
struct back : pass_of<T, SLOTS, QUADS, WIDTH> {
    enum {
        VECTORS = 2,
        SCALARS = 0,
        SIDES = 1,
        TAPES = SLOTS * QUADS, /* M is in shared memory */
        TURNS = turns_held(sizeof(T), SLOTS *QUADS, WIDTH),
        FEW = SLOTS == 8    ? 40
              : SLOTS == 16 ? 56
              : SLOTS == 32 ? 72
                            : 88
    };
    typedef letter<SLOTS, QUADS, 1> main_letter;
    typedef letter<SLOTS, QUADS, 2> side_letter;
    struct attentions {
        paid<main_letter> rho, dalpha, omega, dgamma; /* of t + 1, and of t */
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

/* A lane's slots of a sequence's weights at step t, [T,B,N]; 0 where there is no such step. */
template <typename PASS>
static __device__ __forceinline__ void fetch_attention(const recurrence &r, const seat &here,
                                                       const float *weights, int t, int quad,
                                                       float x[PASS::main_letter::OWN])
{
    enum { OWN = PASS::main_letter::OWN };
    const int row = here.row + 4 * quad;
    const bool there = t >= 0 && t < r.steps && row < r.batch;
    UNROLL(OWN)
    for (int k = 0; k < OWN; k++) {
        const int n = here.i * OWN + k;
        x[k] = there && n < r.N ? weights[(t * r.batch + row) * r.N + n] : 0;
    }
}

/* ---- tapes ---- */

/* Where a warp's tapes of a sequence before the step at `place` are in the workspace: as in shared
 * memory, slot by slot the lanes' columns. */
template <typename PASS>
static __device__ __forceinline__ float *tapes_at(const recurrence &r, const shape &s,
                                                  const seat &here, int place, int quad)
{
    const int64_t warp = ((int64_t)place * gridDim.x + blockIdx.x) * s.warps + here.warp;
    return (float *)r.work + (warp * PASS::QUADS + quad) * PASS::SLOTS * 32;
}

/* The tapes before the steps of segment `segment`, of which there are `place` before its
 * last, to the workspace; the last's stays. */
template <typename PASS>
static __device__ __forceinline__ void replay(const recurrence &r, const shape &s, const seat &here,
                                              int segment, int place, int quad, column<PASS> *c)
{
    typedef typename PASS::type T;
    typedef typename PASS::main_letter letters;
    enum { OWN = letters::OWN };
    const int row = here.row + 4 * quad, first = segment * (int)r.K;
    const bool live = c->live[quad];
    float *place_of_parts = here.at<float>(s.side_parts) + here.warp * PASS::side_letter::FLOATS;
    paid<letters> *told =
        (paid<letters> *)place_of_parts; /* nobody asks for the last ones any more */
    const T *v = (const T *)r.v + (first * r.batch + row) * r.D + here.column;
    float omega[OWN];
    T next = {};

    UNROLL(8)
    for (int n = 0; n < PASS::SLOTS; n++)
        c->M(quad, n) = live && n < r.N
                            ? get_kept(r, segment * r.batch + row, (int64_t)n * r.D + here.column)
                            : 0;
    if (live)
        next = *v;
    fetch_attention<PASS>(r, here, r.omega, first, quad, omega);
    UNROLL(1)
    for (int i = 0; i < place; i++) {
        const float v_of = load(&next);
        float *to = tapes_at<PASS>(r, s, here, i, quad) + here.lane;
        tell(here, told, quad, omega);
        __syncwarp();
        v += r.batch * r.D; /* what the next turn needs is under way in this one */
        if (live)
            next = *v;
        fetch_attention<PASS>(r, here, r.omega, first + i + 1, quad, omega);
        UNROLL(2)
        for (int n = 0; n < PASS::SLOTS; n += 4) {
            float x[4];
            four_of(*told, here, quad, n, x);
            UNROLL(4)
            for (int k = 0; k < 4; k++) {
                float &M = c->M(quad, n + k);
                to[(n + k) * 32] = M;
                M = written(M, x[k], v_of);
            }
        }
        __syncwarp();
    }
}

/* The tapes before step t, which is at `place` of its segment: under way to shared memory, where
 * nobody of the warp reads any more; fetched_tapes() waits for them. */
template <typename PASS>
static __device__ __forceinline__ void fetch_tapes(const recurrence &r, const shape &s,
                                                   const seat &here, int t, int place,
                                                   column<PASS> *c)
{
    __syncwarp();
    UNROLL(PASS::QUADS)
    for (int p = 0; p < PASS::QUADS; p++) {
        if (t == r.steps - 1 || place == r.K - 1) {
            replay(r, s, here, t / (int)r.K, place, p, c);
            continue;
        }
        const float *from = tapes_at<PASS>(r, s, here, place, p);
        float *to = &c->M(p, 0) - here.lane;
        UNROLL(16)
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

enum { DV, DP, MAIN, SIDE }; /* the inboxes */

/* One warp, a quad's attention of all steps: dalpha of step t and dgamma of the one before. */
template <typename PASS>
static __device__ __forceinline__ void pay_back(const recurrence &r, const shape &s,
                                                const seat &here, int quad)
{
    typedef typename PASS::main_letter main_letter;
    typedef typename PASS::side_letter side_letter;
    enum { QUADS = PASS::QUADS, OWN = main_letter::OWN };
    typedef attention<PASS::SLOTS, OWN, 4> A;
    const int all = all_of(s, QUADS);
    typename PASS::attentions *told = here.at<typename PASS::attentions>(s.slots);
    uint64_t *inbox = here.at<uint64_t>(0);

    /* Step `steps` is none: nothing was read there, and there are only D and e to be summed. */
    for (int t = (int)r.steps; t >= 0; t--) {
        const int turn = (int)r.steps - t;
        const bool first = here.lane == 0 && quad == 0, a_step = t < r.steps;
        float rho[OWN], omega[OWN], by_read[OWN], dalpha[OWN], by_h[OWN], domega[OWN];

        if (first) {
            if (a_step)
                inbox_expect(inbox + DV, vector_bytes(s, QUADS));
            inbox_expect(inbox + MAIN, letter_bytes<main_letter>(s));
            inbox_expect(inbox + SIDE, letter_bytes<side_letter>(s));
        }
        fetch_attention<PASS>(r, here, r.rho, t, quad, rho);
        fetch_attention<PASS>(r, here, r.omega, t - 1, quad, omega);
        barrier_sync(MAIN_PARTS, all);
        if (first && a_step) /* the last dp has come */
            inbox_expect(inbox + DP, vector_bytes(s, QUADS));
        post_letter<main_letter>(s, here, inbox + MAIN, s.main_parts, s.main, quad);
        barrier_sync(SIDE_PARTS, all);
        post_letter<side_letter>(s, here, inbox + SIDE, s.side_parts, s.side, quad);

        inbox_wait(inbox + MAIN, turn);
        slot_sums<main_letter>(s, here, s.main, 0, quad, by_read);
        UNROLL(OWN)
        for (int k = 0; k < OWN; k++)
            dalpha[k] = (omega[k] - 1) * by_read[k];
        A::back(r.attention, rho, dalpha);
        UNROLL(OWN)
        for (int k = 0; k < OWN; k++)
            dalpha[k] *= r.scale;
        tell(here, &told->rho, quad, rho);
        tell(here, &told->dalpha, quad, dalpha);
        tell(here, &told->omega, quad, omega);

        inbox_wait(inbox + SIDE, turn);
        slot_sums<side_letter>(s, here, s.side, 0, quad, domega);
        slot_sums<side_letter>(s, here, s.side, 1, quad, by_h);
        UNROLL(OWN)
        for (int k = 0; k < OWN; k++)
            domega[k] = fmaf(dalpha[k], by_h[k], fmaf(rho[k], by_read[k], domega[k]));
        A::back(r.attention, omega, domega);
        UNROLL(OWN)
        for (int k = 0; k < OWN; k++)
            domega[k] *= r.scale;
        tell(here, &told->dgamma, quad, domega);
        barrier_arrive(PAID_LAST, all);
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

    UNROLL(16)
    for (int n = 0; n < PASS::SLOTS; n += 4) {
        float rho[4], dalpha[4], omega[4], dgamma[4];
        if (PASS::TAPES >= 64)
            __syncwarp(); /* the next ones' are not fetched yet, for want of registers */
        four_of(told->rho, here, quad, n, rho);
        four_of(told->dalpha, here, quad, n, dalpha);
        four_of(told->omega, here, quad, n, omega);
        four_of(told->dgamma, here, quad, n, dgamma);
        UNROLL(4)
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
    const int all = all_of(s, QUADS);
    uint64_t *inbox = here.at<uint64_t>(0);
    uint4 held[held_of<PASS>()];
    column<PASS> c;
    two sum[QUADS] = {};

    fetch_weights<PASS>(s, here, (const T *)r.W_write, (const T *)r.W_h, r.D, held);
    c.tape = here.at<float>(s.tape) + here.warp * QUADS * SLOTS * 32 + here.lane;
    UNROLL(QUADS)
    for (int p = 0; p < QUADS; p++) {
        const int row = here.row + 4 * p;
        c.live[p] = row < r.batch && here.column < r.D;
        c.h[p] = c.v[p] = c.dread[p] = 0;
        c.carry[p] = c.live[p] ? r.dh_T[(int64_t)row * r.D + here.column] : 0;
        UNROLL(SLOTS)
        for (int n = 0; n < SLOTS; n++)
            c.dM[p][n] =
                c.live[p] && n < r.N ? r.dM_T[row * r.M + (int64_t)n * r.D + here.column] : 0;
    }
    int place = (int)(r.steps - 1) % (int)r.K; /* of the step before in its segment */
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
        if (a_step) {
            float dv[QUADS];
            barrier_sync(PAID_LAST, all);
            UNROLL(QUADS)
            for (int p = 0; p < QUADS; p++)
                dv[p] = unwrite(r, s, afresh(here, turn), p, &c);
            post_vector<T, QUADS>(s, afresh(here, turn), inbox + DV, 0, dv);
            UNROLL(QUADS)
            for (int p = 0; p < QUADS; p++)
                if (c.live[p])
                    store((T *)r.dv + at + (int64_t)4 * p * r.D, dv[p]);
        }
        if (t > 0)
            fetch_tapes(r, s, here, t - 1, place, &c);
        place = place ? place - 1 : (int)r.K - 1;
        UNROLL(QUADS)
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
            inbox_wait(inbox + DV, turn - 1);
            multiply<PASS, ONE_SUM>(s, afresh(here, turn), held, s.vector, sum);
        }
        fetched_tapes();
        const seat now = afresh(here, turn);
        float *main_part = now.at<float>(s.main_parts) + now.warp * main_letter::FLOATS;
        float *side_part = now.at<float>(s.side_parts) + now.warp * side_letter::FLOATS;
        UNROLL(QUADS)
        for (int p = 0; p < QUADS; p++) {
            if (a_step) {
                dp[p] = (c.carry[p] + load(dh + p) + sum[p].one) * fmaf(-c.h[p], c.h[p], 1.0f);
                c.dread[p] = dp[p] + load(dread + p);
                c.carry[p] = 0;
            }
            c.h[p] = before[p];
            c.v[p] = load(v + p);
            if constexpr (near)
                UNROLL(SLOTS)
            for (int n = 0; n < SLOTS; n++)
                away[p][n] = c.v[p] - c.M(p, n);
            fold_slots<main_letter>(now, main_part + main_letter::row(p, 0, now.q),
                                    [&](int n) { return c.dread[p] * e_of(p, n); });
        }
        barrier_arrive(MAIN_PARTS, all);
        UNROLL(QUADS)
        for (int p = 0; p < QUADS; p++) {
            fold_slots<side_letter>(now, side_part + side_letter::row(p, 0, now.q),
                                    [&](int n) { return c.dM[p][n] * e_of(p, n); });
            fold_slots<side_letter>(now, side_part + side_letter::row(p, 1, now.q),
                                    [&](int n) { return c.h[p] * e_of(p, n); });
        }
        barrier_arrive(SIDE_PARTS, all);
        if (a_step) {
            post_vector<T, QUADS>(s, afresh(here, turn), inbox + DP, 1, dp);
            UNROLL(QUADS)
            for (int p = 0; p < QUADS; p++)
                if (c.live[p])
                    store((T *)r.dp + at + (int64_t)4 * p * r.D, dp[p]);
            inbox_wait(inbox + DP, turn - 1);
            multiply<PASS, OTHER_SUM>(s, afresh(here, turn), held, s.vector + s.room, sum);
            UNROLL(QUADS)
            for (int p = 0; p < QUADS; p++)
                c.carry[p] += sum[p].other;
        }
    }
    /* Back through the reading of the first step. */
    const seat end = afresh(here, (int)r.steps);
    const typename PASS::attentions *told = end.at<typename PASS::attentions>(s.slots);
    barrier_sync(PAID_LAST, all);
    UNROLL(QUADS)
    for (int p = 0; p < QUADS; p++) {
        const int row = end.row + 4 * p;
        float from_slots = 0;
        UNROLL(16)
        for (int n = 0; n < SLOTS; n += 4) {
            float rho[4], dalpha[4];
            four_of(told->rho, end, p, n, rho);
            four_of(told->dalpha, end, p, n, dalpha);
            UNROLL(4)
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

/* The workspace: transposed weights, then the tapes of a segment, of as many clusters and
 * columns as any launch has. */
template <typename T>
size_t backward_work(const recurrence &r)
{
    const auto columns = [&](auto n) {
        const shape one = smallest_shape<back<T, n.value, 1, 0>>(r.D);
        const shape two = smallest_shape<back<T, n.value, most_quads(n.value), 0>>(r.D);
        return (int64_t)n.value * std::max(one.cluster * one.own, two.cluster * two.own);
    };
    return aligned(rows_bytes<T>(r)) +
           sizeof(float) * r.K * ceil_div(r.batch, 8) * 8 * with_slots(r.N, columns);
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
