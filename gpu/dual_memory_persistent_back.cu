/* dual_memory, kernel `persistent`, backward: clusters, weights and exchange as forward.
 *
 * A step t has two exchanges that it waits for.  D is dL/dM' of the write, before the
 * step's own shares are in it; M, v and omega are those of the step before, e = v - M:
 *
 *     every column     D takes what reading at t + 1 gave; dv; D back through the write
 *                                                               -> dv to all blocks
 *     (meanwhile       W_h^T dp of the step after; M from the workspace)
 *     every column     W_write^T dv; dp; dread
 *     every column     <dread, M_n> and <dread, v> over own columns
 *                                                               -> to all blocks
 *     (meanwhile       <D_n, e_n>, <h, M_n> and <h, v>          -> to all blocks, aside)
 *     every sequence   dalpha of the reading; domega and dgamma of the step before
 *                                                               -> dp to all blocks
 *
 * for the tape that was read is (1 - omega_n) M_n + omega_n v, and domega of the step
 * before is <D_n + rho_n dread + s dalpha_n h, e_n>, whose three sums are there before
 * dalpha is: no third exchange.  What one brings is overwritten only by those who have got
 * one that follows it.
 *
 * The tapes of a segment are replayed into the workspace, each thread its own columns',
 * so that nobody waits for anybody; the weights are fetched from transposed copies. */
#include "gpu/dual_memory_persistent.cuh"
#include "gpu/layer.cuh"

template <typename PASS>
__global__ void backward_persistent(recurrence r, shape given);

template <typename T, int SLOTS_, int QUADS_, int WIDTH_>
struct back {
    typedef T type;
    enum {
        SLOTS = SLOTS_,
        QUADS = QUADS_,
        WIDTH = WIDTH_, /* or 0: known when it runs */
        VECTORS = 2,
        SIDES = 1,
        SHARED = SLOTS * QUADS >= 64, /* M is in shared memory */
        TAPES = SHARED ? SLOTS * QUADS : 0,
        ROOM = sizeof(T) == 4           ? 88 /* registers, as many as spill none */
               : WIDTH_ && SLOTS_ == 64 ? 96
               : WIDTH_ || QUADS_ == 2  ? 152
                                        : 160,
        HELD = held_beside(ROOM, (SHARED ? 1 : 2) * SLOTS * QUADS)
    };
    typedef letter<SLOTS, QUADS, 1> main_letter;
    typedef letter<SLOTS, QUADS, 2> side_letter;
    struct attentions {
        paid<main_letter> rho, dalpha, omega, dgamma; /* of t + 1, and of t */
    };
    static constexpr clusters_kernel *kernel = backward_persistent<back>;
};

/* A column of a tape: in registers, or in shared memory, side by side with the other threads'. */
template <int SLOTS, bool SHARED>
struct tape {
    float x[SLOTS];
    __device__ __forceinline__ void place(float *) {}
    __device__ __forceinline__ float &operator[](int n) { return x[n]; }
};

template <int SLOTS>
struct tape<SLOTS, true> {
    float *at;
    __device__ __forceinline__ void place(float *from) { at = from + threadIdx.x; }
    __device__ __forceinline__ float &operator[](int n) { return at[n * THREADS_MOST]; }
};

/* What a thread has of its column: of each of its sequences. */
template <typename PASS>
struct column {
    enum { SLOTS = PASS::SLOTS, QUADS = PASS::QUADS };
    float dM[QUADS][SLOTS];
    tape<SLOTS, PASS::SHARED> M[QUADS];
    float h[QUADS], v[QUADS], dread[QUADS], carry[QUADS];
    bool live[QUADS];
};

/* ---- tapes ---- */

/* Each slot that there is; in eights, so that no more than that are under way at once and take
 * registers: a branch keeps them apart, or a loop, where no register's number depends on it. */
template <typename PASS, typename TAKE>
static __device__ __forceinline__ void each_slot(const recurrence &r, const TAKE &take)
{
    enum { EIGHTS = PASS::SHARED ? 1 : PASS::SLOTS / 8 };
    UNROLL(EIGHTS)
    for (int eight = 0; eight < PASS::SLOTS; eight += 8)
        if (eight < r.N)
            UNROLL(8)
    for (int n = eight; n < eight + 8; n++)
        if (n < r.N)
            take(n);
}

/* The tapes before the steps of segment `segment`, of which there are `place` before its
 * last, to the workspace; the last's stays. */
template <typename PASS>
static __device__ __forceinline__ void replay(const recurrence &r, const seat &here, int row,
                                              int segment, int place,
                                              tape<PASS::SLOTS, PASS::SHARED> &M)
{
    typedef typename PASS::type T;
    const int64_t begin = (int64_t)segment * r.K * r.batch + row;
    const float *omega = r.omega + begin * r.N;
    const T *v = (const T *)r.v + begin * r.D + here.column;
    float *to = (float *)r.work + row * r.M + here.column;

    each_slot<PASS>(r, [&](int n) {
        M[n] = get_kept(r, segment * r.batch + row, (int64_t)n * r.D + here.column);
    });
    UNROLL(1)
    for (int i = 0; i < place; i++) {
        const float v_of = load(v);
        each_slot<PASS>(r, [&](int n) {
            to[(int64_t)n * r.D] = M[n];
            M[n] = written(M[n], omega[n], v_of);
        });
        omega += r.batch * r.N;
        v += r.batch * r.D;
        to += r.batch * r.M;
    }
}

/* The tapes before step t, which is at `place` of its segment. */
template <typename PASS>
static __device__ __forceinline__ void fetch_tapes(const recurrence &r, const seat &here, int t,
                                                   int place, column<PASS> *c)
{
    const bool last = t == r.steps - 1 || place == r.K - 1;
    UNROLL(PASS::QUADS)
    for (int p = 0; p < PASS::QUADS; p++) {
        const int row = here.row + 4 * p;
        auto &M = c->M[p];
        if (c->live[p] && last)
            replay<PASS>(r, here, row, t / (int)r.K, place, M);
        const float *from = (const float *)r.work + (place * r.batch + row) * r.M + here.column;
        if (c->live[p] && !last)
            each_slot<PASS>(r, [&](int n) { M[n] = from[(int64_t)n * r.D]; });
    }
}

/* ---- attention ---- */

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

/* dalpha of step t and dgamma of the one before, from what all blocks have found. */
template <typename PASS>
static __device__ __forceinline__ void
pay_back(const recurrence &r, const shape &s, const seat &here, uint64_t *side_inbox, int turn,
         const float rho[PASS::QUADS][PASS::main_letter::OWN],
         const float omega[PASS::QUADS][PASS::main_letter::OWN])
{
    typedef typename PASS::main_letter main_letter;
    typedef typename PASS::side_letter side_letter;
    enum { OWN = main_letter::OWN, QUADS = PASS::QUADS };
    typedef attention<PASS::SLOTS, OWN, 4> A;
    typename PASS::attentions *told = here.at<typename PASS::attentions>(s.slots) + here.warp;
    float by_read[QUADS][OWN], dalpha[QUADS][OWN];

    UNROLL(QUADS)
    for (int p = 0; p < QUADS; p++) {
        const float to_v = scalar_sum<main_letter>(s, here, s.main, p);
        slot_sums<main_letter>(s, here, s.main, 0, p, by_read[p]);
        UNROLL(OWN)
        for (int k = 0; k < OWN; k++) {
            dalpha[p][k] = written(by_read[p][k], omega[p][k], to_v);
            by_read[p][k] = to_v - by_read[p][k];
        }
        A::back(r.attention, rho[p], dalpha[p]);
        UNROLL(OWN)
        for (int k = 0; k < OWN; k++)
            dalpha[p][k] *= r.scale;
    }
    inbox_wait(side_inbox, turn);
    UNROLL(QUADS)
    for (int p = 0; p < QUADS; p++) {
        const float to_v = scalar_sum<side_letter>(s, here, s.side, p);
        float domega[OWN], by_h[OWN];
        slot_sums<side_letter>(s, here, s.side, 0, p, domega);
        UNROLL(OWN)
        for (int k = 0; k < OWN; k++)
            domega[k] = fmaf(rho[p][k], by_read[p][k], domega[k]);
        if (PASS::SHARED)
            __syncwarp();
        slot_sums<side_letter>(s, here, s.side, 1, p, by_h);
        UNROLL(OWN)
        for (int k = 0; k < OWN; k++)
            domega[k] = fmaf(dalpha[p][k], to_v - by_h[k], domega[k]);
        A::back(r.attention, omega[p], domega);
        UNROLL(OWN)
        for (int k = 0; k < OWN; k++)
            domega[k] *= r.scale;
        tell_warp(here, &told->rho, p, rho[p]);
        tell_warp(here, &told->dalpha, p, dalpha[p]);
        tell_warp(here, &told->omega, p, omega[p]);
        tell_warp(here, &told->dgamma, p, domega);
    }
    __syncwarp();
}

/* ---- columns ---- */

/* Back through the reading of step t + 1 and the writing of t, whose tape is M; gives dv. */
template <typename PASS>
static __device__ __forceinline__ float unwrite(const recurrence &r, const shape &s,
                                                const seat &here, int quad, column<PASS> *c)
{
    typedef typename PASS::main_letter letters;
    const typename PASS::attentions *told = here.at<typename PASS::attentions>(s.slots) + here.warp;
    const float h = c->h[quad], v = c->v[quad], dread = c->dread[quad];
    const bool by_v = r.query == DUAL_QUERY_V;
    const float query = by_v ? v : h;
    float *dM = c->dM[quad], dv[2] = {}, from_slots[2] = {}, from_query[2] = {};

    UNROLL(16)
    for (int n = 0; n < PASS::SLOTS; n += 4) {
        float rho[4], dalpha[4], omega[4], dgamma[4];
        if (PASS::SHARED) /* so that the next ones' are not fetched yet, for want of registers */
            __syncwarp();
        four_of(told->rho, here, quad, n, rho);
        four_of(told->dalpha, here, quad, n, dalpha);
        four_of(told->omega, here, quad, n, omega);
        four_of(told->dgamma, here, quad, n, dgamma);
        UNROLL(4)
        for (int k = 0; k < 4; k++) {
            const float M = c->M[quad][n + k], after = written(M, omega[k], v);
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
__global__ void __launch_bounds__(THREADS_MOST, 1) backward_persistent(recurrence r, shape given)
{
    extern __shared__ __align__(16) unsigned char memory[];
    typedef typename PASS::type T;
    typedef typename PASS::main_letter main_letter;
    typedef typename PASS::side_letter side_letter;
    enum { SLOTS = PASS::SLOTS, QUADS = PASS::QUADS, OWN = main_letter::OWN };
    enum { DV, DP, MAIN, SIDE }; /* the inboxes */
    const shape s = PASS::WIDTH != 0 ? shape_of<PASS>(PASS::WIDTH, given.cluster) : given;
    if (PASS::WIDTH != 0)
        r.D = PASS::WIDTH, r.N = SLOTS;
    const seat here = seat_of(s, QUADS, memory);
    const int dv_at = s.vector, dp_at = s.vector + s.room;
    const int64_t step = r.batch * r.D;
    uint64_t *inbox = here.at<uint64_t>(0);
    float *main_part = here.at<float>(s.main_parts) + here.warp * main_letter::FLOATS;
    float *side_part = here.at<float>(s.side_parts) + here.warp * side_letter::FLOATS;
    uint4 held[PASS::HELD];
    column<PASS> c;
    two sum[QUADS];
    T dh[QUADS] = {}, dread[QUADS] = {};

    fetch_weights<PASS>(s, here, (const T *)r.W_write, (const T *)r.W_h, r.D, held);
    for (int k = threadIdx.x; k < (s.weights - s.vector) / 16; k += s.warps * 32)
        here.at<uint4>(s.vector)[k] = {};
    __syncthreads();
    UNROLL(QUADS)
    for (int p = 0; p < QUADS; p++) {
        const int row = here.row + 4 * p;
        c.live[p] = row < r.batch && here.column < r.D;
        c.h[p] = c.v[p] = c.dread[p] = 0;
        c.M[p].place(here.at<float>(s.tape) + p * SLOTS * THREADS_MOST);
        c.carry[p] = c.live[p] ? r.dh_T[(int64_t)row * r.D + here.column] : 0;
        UNROLL(SLOTS)
        for (int n = 0; n < SLOTS; n++) {
            c.M[p][n] = 0;
            c.dM[p][n] =
                c.live[p] && n < r.N ? r.dM_T[row * r.M + (int64_t)n * r.D + here.column] : 0;
        }
    }
    if (threadIdx.x < INBOXES)
        inbox_open(inbox + threadIdx.x);
    __syncthreads();
    cluster_arrive();
    cluster_wait();

    /* Step `steps` is none: nothing was read there, and there are only D and e to be summed. */
    int place = (int)(r.steps - 1) % (int)r.K; /* of the step before in its segment */
    for (int t = (int)r.steps; t >= 0; t--) {
        const int turn = (int)r.steps - t;
        const bool a_step = t < r.steps;
        const int64_t at =
            t * step + (int64_t)here.row * r.D + here.column; /* the first sequence's */
        float rho[QUADS][OWN], omega[QUADS][OWN], before[QUADS] = {}, dp[QUADS] = {};
        if (threadIdx.x == 0) {
            if (a_step)
                inbox_expect(inbox + DV, vector_bytes(s, QUADS));
            inbox_expect(inbox + MAIN, letter_bytes<main_letter>(s, true, true));
            inbox_expect(inbox + SIDE, letter_bytes<side_letter>(s, true, true));
        }
        if (a_step) {
            float dv[QUADS];
            UNROLL(QUADS)
            for (int p = 0; p < QUADS; p++) {
                dv[p] = unwrite(r, s, here, p, &c);
                c.carry[p] += load(dh + p);
                if (c.live[p])
                    store((T *)r.dv + at + (int64_t)4 * p * r.D, dv[p]);
            }
            post_vector<T, QUADS>(s, here, inbox + DV, dv_at, dv);
        }
        if (t > 0)
            fetch_tapes(r, here, t - 1, place, &c);
        place = place ? place - 1 : (int)r.K - 1;
        UNROLL(QUADS)
        for (int p = 0; p < QUADS; p++) {
            const int64_t e = at + (int64_t)4 * p * r.D;
            c.v[p] = c.live[p] && t > 0 ? load((const T *)r.v + e - step) : 0;
            if (c.live[p])
                before[p] = t > 0 ? r.h[e - step] : r.h0[e];
            if (c.live[p] && t > 0)
                dh[p] = ((const T *)r.dh)[e - step];
        }
        if (turn > 1) {
            inbox_wait(inbox + DP, turn - 2);
            multiply<PASS, OTHER_SUM>(s, here, held, dp_at, sum);
            UNROLL(QUADS)
            for (int p = 0; p < QUADS; p++)
                c.carry[p] += sum[p].other;
        }
        if (a_step) {
            if (threadIdx.x == 0) /* the last dp has come */
                inbox_expect(inbox + DP, vector_bytes(s, QUADS));
            inbox_wait(inbox + DV, turn - 1);
            multiply<PASS, ONE_SUM>(s, here, held, dv_at, sum);
        }
        UNROLL(QUADS)
        for (int p = 0; p < QUADS; p++) {
            const int64_t e = at + (int64_t)4 * p * r.D;
            if (a_step) {
                dp[p] = (c.carry[p] + sum[p].one) * fmaf(-c.h[p], c.h[p], 1.0f);
                c.dread[p] = dp[p] + load(dread + p);
                c.carry[p] = 0;
                if (c.live[p])
                    store((T *)r.dp + e, dp[p]);
            }
            c.h[p] = before[p];
            if (c.live[p] && t > 0 && r.dread)
                dread[p] = ((const T *)r.dread)[e - step];
            const float to_v = over_columns(c.dread[p] * c.v[p]);
            if (here.i == 0)
                main_part[main_letter::SCALARS + 4 * p + here.q] = to_v;
            fold_slots<main_letter>(here, main_part + (4 * p + here.q) * main_letter::APART,
                                    [&](int n) { return c.dread[p] * c.M[p][n]; });
        }
        __syncthreads();
        post_letter<main_letter>(s, here, inbox + MAIN, s.main_parts, s.main, true, true);
        UNROLL(QUADS)
        for (int p = 0; p < QUADS; p++) {
            fetch_attention<PASS>(r, here, r.rho, t, p, rho[p]);
            fetch_attention<PASS>(r, here, r.omega, t - 1, p, omega[p]);
            float *to = side_part + (4 * p + here.q) * side_letter::APART;
            const float to_v = over_columns(c.h[p] * c.v[p]);
            if (here.i == 0)
                side_part[side_letter::SCALARS + 4 * p + here.q] = to_v;
            fold_slots<side_letter>(here, to,
                                    [&](int n) { return c.dM[p][n] * (c.v[p] - c.M[p][n]); });
            fold_slots<side_letter>(here, to + side_letter::ROWS * side_letter::APART,
                                    [&](int n) { return c.h[p] * c.M[p][n]; });
        }
        __syncthreads();
        post_letter<side_letter>(s, here, inbox + SIDE, s.side_parts, s.side, true, true);
        inbox_wait(inbox + MAIN, turn);
        pay_back<PASS>(r, s, here, inbox + SIDE, turn, rho, omega);
        if (a_step)
            post_vector<T, QUADS>(s, here, inbox + DP, dp_at, dp);
    }
    inbox_wait(inbox + DP, (int)(r.steps - 1));
    multiply<PASS, OTHER_SUM>(s, here, held, dp_at, sum);
    /* Back through the reading of the first step. */
    const typename PASS::attentions *told = here.at<typename PASS::attentions>(s.slots) + here.warp;
    UNROLL(QUADS)
    for (int p = 0; p < QUADS; p++) {
        const int row = here.row + 4 * p;
        float from_slots = 0;
        UNROLL(16)
        for (int n = 0; n < SLOTS; n += 4) {
            float rho[4], dalpha[4];
            four_of(told->rho, here, p, n, rho);
            four_of(told->dalpha, here, p, n, dalpha);
            UNROLL(4)
            for (int k = 0; k < 4; k++) {
                const float d = fmaf(rho[k], c.dread[p], c.dM[p][n + k]);
                from_slots = fmaf(dalpha[k], c.M[p][n + k], from_slots);
                if (c.live[p] && n + k < r.N)
                    r.dM[row * r.M + (int64_t)(n + k) * r.D + here.column] =
                        fmaf(dalpha[k], c.h[p], d);
            }
        }
        if (c.live[p])
            r.dh0[(int64_t)row * r.D + here.column] = sum[p].other + from_slots;
    }
    cluster_arrive();
    cluster_wait();
}

/* ---- launches ---- */

/* The workspace: transposed weights, then the tapes of a segment. */
template <typename T>
size_t backward_work(const recurrence &r)
{
    return aligned(rows_bytes<T>(r)) + sizeof(float) * r.K * r.batch * r.M;
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

static int launch_fixed(const recurrence &r)
{
    typedef __nv_bfloat16 T;
    return r.N == 16 ? launch_clusters<back<T, 16, 1, 512>, back<T, 16, 2, 512>>(r)
                     : launch_clusters<back<T, 64, 1, 512>, back<T, 64, 1, 512>>(r);
}

int launch_backward_fixed(const recurrence &r)
{
    return with_transposed<__nv_bfloat16>(r, launch_fixed);
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
