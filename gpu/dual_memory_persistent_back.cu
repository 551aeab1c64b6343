/* dual_memory, kernel `persistent`, backward: clusters, weights and exchange as forward.
 *
 * A step t has two exchanges and two products.  D is dL/dM' of the write, before the
 * step's own shares are in it; e_n = v - M_n of the step before:
 *
 *     every slot     dalpha of step t + 1 from drho; domega of step t; dgamma
 *     every column   D takes what reading at t + 1 gave; dv; D back through the write
 *                    -> dv to all blocks
 *     every row      W_write^T dv; dp; dread
 *     every slot     drho_n = <dread, M_n>, <D_n, e_n>, <dread, e_n> and <h_before, e_n>
 *                    over own columns -> dp and these to all blocks
 *     every row      W_h^T dp
 *
 * for domega of the step before is <D_n + rho_n dread + s dalpha_n h_before, e_n>, whose
 * three sums are there before dalpha is: no third exchange.
 *
 * The tapes of a segment are replayed into the workspace, each thread its own columns'
 * slots, so that nobody waits for anybody. */
#include "gpu/dual_memory_persistent_back.cuh"

enum { KINDS = 4 };
template <typename T>
using back = walk<2, KINDS, 3, sizeof(T) == 2 ? 24 : 8>;

/* What is in shape's `small`: of the step t + 1 rho and dalpha, of t omega and dgamma;
 * dread of t, and v and h of the step before. */
struct vectors {
    float *rho, *dalpha, *omega, *dgamma, *dread, *v, *h;
};

template <int SLOTS>
static __device__ __forceinline__ vectors vectors_of(const shape &s, const seat &here)
{
    const int slots = s.rows * SLOTS, columns = s.rows * s.own;
    float *at = here.at<float>(s.small), *more = at + 4 * slots;
    return {at,   at + slots,     at + 2 * slots,    at + 3 * slots,
            more, more + columns, more + 2 * columns};
}

/* The tapes in shared memory: dM, and M of this step and of the one before, which change
 * places. */
template <int SLOTS>
static __device__ __forceinline__ float *tape(const shape &s, const seat &here, int which)
{
    return here.at<float>(s.tape) + which * s.rows * s.own * tape_of<SLOTS>::APART;
}

/* Where the workspace has the tape before step t of a sequence. */
static __device__ __forceinline__ float *replayed(const recurrence &r, int64_t t, int64_t row)
{
    return (float *)r.work + (t % r.K * r.batch + row) * r.M;
}

/* The tapes of the segment whose last step is t, at the thread's own places. */
template <typename T>
static __device__ __forceinline__ void replay(const recurrence &r, const shape &s, const column &c,
                                              int64_t t)
{
    const int64_t begin = t / r.K * r.K;

    for (int n = c.part; n < r.N; n += s.parts) {
        const int64_t e = (int64_t)n * r.D + c.at;
        const float *omega = r.omega + (begin * r.batch + c.row) * r.N + n;
        const T *v = (const T *)r.v + (begin * r.batch + c.row) * r.D + c.at;
        float *to = replayed(r, begin, c.row) + e;
        float M = get_kept(r, begin / r.K * r.batch + c.row, e);
        UNROLL(4)
        for (int64_t i = begin; i <= t; i++) {
            *to = M;
            M = written(M, *omega, load(v));
            to += r.batch * r.M;
            omega += r.batch * r.N;
            v += r.batch * r.D;
        }
    }
}

/* The tape before step t, at the thread's own places, to `to`. */
template <typename T>
static __device__ __forceinline__ void fetch_tape(const recurrence &r, const shape &s,
                                                  const column &c, int64_t t, float *to)
{
    if (t == r.steps - 1 || (t + 1) % r.K == 0)
        replay<T>(r, s, c, t);
    const float *from = replayed(r, t, c.row) + c.at;
    UNROLL(8)
    for (int n = c.part; n < r.N; n += s.parts)
        to[n] = from[(int64_t)n * r.D];
}

/* The four sums of every slot over own columns, to [kind][rows][SLOTS]. */
template <int SLOTS>
static __device__ __forceinline__ void sums(const shape &s, const float *dM, const float *M,
                                            const float *before, const vectors &w, float *to)
{
    enum { APART = tape_of<SLOTS>::APART };
    const int kind = s.rows * SLOTS;

    for (int base = 0; base < SLOTS / FOUR * s.rows; base += s.threads / s.lanes) {
        const slots of = slots_at<SLOTS>(s, base);
        four drho = {}, kept = {}, read = {}, h = {};
        UNROLL(2)
        for (int j = of.lane; j < s.own; j += s.lanes) {
            const int small = of.r * s.own + j, e = small * APART + of.n;
            const four m = four_at(M + e), b = four_at(before + e), d = four_at(dM + e);
            const float dread = w.dread[small], v = w.v[small], y = w.h[small];
            UNROLL(FOUR)
            for (int k = 0; k < FOUR; k++) {
                const float error = v - b.x[k];
                drho.x[k] = fmaf(dread, m.x[k], drho.x[k]);
                kept.x[k] = fmaf(d.x[k], error, kept.x[k]);
                read.x[k] = fmaf(dread, error, read.x[k]);
                h.x[k] = fmaf(y, error, h.x[k]);
            }
        }
        over_lanes(s, &drho);
        over_lanes(s, &kept);
        over_lanes(s, &read);
        over_lanes(s, &h);
        if (of.live && of.lane == 0) {
            float *sum = to + of.r * SLOTS + of.n;
            put_four(sum, drho);
            put_four(sum + kind, kept);
            put_four(sum + 2 * kind, read);
            put_four(sum + 3 * kind, h);
        }
    }
}

/* dalpha of the step after, and dgamma of this one, from what all blocks have found. */
template <int SLOTS>
static __device__ __forceinline__ void pay_back(const recurrence &r, const shape &s,
                                                const seat &here, const vectors &w)
{
    typedef attention<SLOTS, FOUR> A;
    typedef attentive<SLOTS> over;
    const int lane = threadIdx.x % 32, n = lane % over::GROUP * FOUR;
    const int kind = s.rows * SLOTS, all = KINDS * kind;

    for (int base = 0; base < here.rows; base += s.threads / 32) {
        const int mine = base + threadIdx.x / 32, row = min(mine, here.rows - 1);
        const float *scores = here.at<float>(s.scores) + row * SLOTS;
        four dalpha = over::over_blocks(s, scores, all);
        four domega = over::over_blocks(s, scores + kind, all);
        const four by_read = over::over_blocks(s, scores + 2 * kind, all);
        const four by_h = over::over_blocks(s, scores + 3 * kind, all);
        const four rho = four_at(w.rho + row * SLOTS + n);
        const four omega = four_at(w.omega + row * SLOTS + n);

        A::back(r.attention, rho.x, dalpha.x);
        UNROLL(FOUR)
        for (int k = 0; k < FOUR; k++) {
            dalpha.x[k] *= r.scale;
            domega.x[k] = fmaf(rho.x[k], by_read.x[k], domega.x[k]);
            domega.x[k] = fmaf(dalpha.x[k], by_h.x[k], domega.x[k]);
        }
        A::back(r.attention, omega.x, domega.x);
        UNROLL(FOUR)
        for (int k = 0; k < FOUR; k++)
            domega.x[k] *= r.scale;
        if (lane >= over::GROUP || mine != row)
            continue;
        put_four(w.dalpha + row * SLOTS + n, dalpha);
        put_four(w.dgamma + row * SLOTS + n, domega);
    }
}

/* rho of step t and omega of the one before, for all sequences of the cluster; 0 where there
 * is no step, slot or sequence. */
template <int SLOTS>
static __device__ __forceinline__ void
fetch_attention(const recurrence &r, const shape &s, const seat &here, const vectors &w, int64_t t)
{
    for (int e = threadIdx.x; e < s.rows * SLOTS; e += s.threads) {
        const int row = e / SLOTS, n = e % SLOTS;
        const bool there = row < here.rows && n < r.N;
        const int64_t at = (t * r.batch + here.row + row) * r.N + n;
        w.rho[e] = there && t < r.steps ? r.rho[at] : 0;
        w.omega[e] = there && t > 0 ? r.omega[at - r.batch * r.N] : 0;
    }
}

/* What a column's thread has of its slots, over a step. */
struct shares {
    float from_slots, from_query, dv;
};

/* Back through the reading of step t + 1 and the writing of t: M_after and M are their
 * tapes, unwritten. */
template <int SLOTS>
static __device__ __forceinline__ shares unwrite(const shape &s, const column &c, const vectors &w,
                                                 float *dM, const float *M, const float *M_after,
                                                 float dread, float h, float query)
{
    const int place = (c.r * s.own + c.j) * tape_of<SLOTS>::APART, small = c.r * SLOTS;
    shares of = {};

    UNROLL(2)
    for (int n = c.there ? c.part * FOUR : SLOTS; n < SLOTS; n += s.parts * FOUR) {
        const four rho = four_at(w.rho + small + n), dalpha = four_at(w.dalpha + small + n);
        const four omega = four_at(w.omega + small + n), dgamma = four_at(w.dgamma + small + n);
        const four m = four_at(M + place + n), after = four_at(M_after + place + n);
        four d = four_at(dM + place + n);
        UNROLL(FOUR)
        for (int k = 0; k < FOUR; k++) {
            float x = fmaf(rho.x[k], dread, d.x[k]);
            x = fmaf(dalpha.x[k], h, x);
            of.from_slots = fmaf(dalpha.x[k], after.x[k], of.from_slots);
            of.dv = fmaf(omega.x[k], x, of.dv);
            of.from_query = fmaf(dgamma.x[k], m.x[k], of.from_query);
            d.x[k] = fmaf(dgamma.x[k], query, __fmul_rn(1 - omega.x[k], x));
        }
        put_four(dM + place + n, d);
    }
    of.from_slots = over_parts(s, of.from_slots);
    of.from_query = over_parts(s, of.from_query);
    of.dv = over_parts(s, of.dv);
    return of;
}

template <typename T, int SLOTS, int WIDTH>
__global__ void __launch_bounds__(THREADS_MOST, 1) backward_persistent(recurrence r, shape given)
{
    extern __shared__ __align__(16) unsigned char memory[];
    enum { ONE = 0, OTHER = 1, APART = tape_of<SLOTS>::APART };
    const shape s = WIDTH ? shape_of<T, back<T>>(WIDTH, SLOTS, given.rows, given.cluster) : given;
    if (WIDTH)
        r.D = WIDTH, r.N = SLOTS;
    const seat here = seat_of(r, s, memory);
    const vectors w = vectors_of<SLOTS>(s, here);
    const int sum_bytes = KINDS * s.rows * SLOTS * (int)sizeof(float);
    const int chunk = own_bytes<T>(s), own_dv = vector_of(s, 0) + here.rank * chunk;
    const int own_dp = vector_of(s, 1) + here.rank * chunk;
    const int own_scores = s.scores + here.rank * sum_bytes;
    const int64_t step = r.batch * r.D;
    uint64_t *inbox = here.at<uint64_t>(s.inbox);
    float *dM = tape<SLOTS>(s, here, 0), *own_sums = here.at<float>(s.mine);
    float carry[PASSES_MOST] = {};
    T dh[PASSES_MOST] = {}, dread[PASSES_MOST] = {};
    column c[PASSES_MOST];
    uint4 held[back<T>::HELD];

    fetch_weights<T, back<T>>(
        s, here,
        [&](int set, int tiles) {
            return transposed<T>{(const T *)(set ? r.W_h : r.W_write), r.D,
                                 here.rank * s.own + tiles * TILE};
        },
        held);
    for (int e = threadIdx.x; e < (s.weights - s.vector) / 16; e += s.threads)
        here.at<uint4>(s.vector)[e] = {};
    __syncthreads();
    UNROLL(PASSES_MOST)
    for (int q = 0; q < PASSES_MOST; q++) {
        c[q] = column_of(r, s, here, q);
        if (q >= s.passes || !c[q].live)
            continue;
        const int64_t at = c[q].row * r.D + c[q].at, last = (r.steps - 1) * step + at;
        const int small = c[q].r * s.own + c[q].j;
        for (int n = c[q].part; n < r.N; n += s.parts)
            dM[small * APART + n] = r.dM_T[c[q].row * r.M + (int64_t)n * r.D + c[q].at];
        fetch_tape<T>(r, s, c[q], r.steps - 1,
                      tape<SLOTS>(s, here, 2 - r.steps % 2) + small * APART);
        if (c[q].part)
            continue;
        carry[q] = r.dh_T[at];
        w.v[small] = load((const T *)r.v + last);
        w.h[small] = r.h[last];
        dh[q] = ((const T *)r.dh)[last];
        if (r.dread)
            dread[q] = ((const T *)r.dread)[last];
    }
    fetch_attention<SLOTS>(r, s, here, w, r.steps);
    if (threadIdx.x < 2)
        inbox_open(inbox + threadIdx.x);
    __syncthreads();
    cluster_arrive();
    cluster_wait();

    /* Step `steps` is none: nothing was read there, and there are only D and e to be summed. */
    for (int64_t t = r.steps; t >= 0; t--) {
        const int turn = (int)(r.steps - t);
        const bool a_step = t < r.steps;
        float *M = tape<SLOTS>(s, here, 1 + t % 2), *before = tape<SLOTS>(s, here, 2 - t % 2);
        if (threadIdx.x == 0) {
            inbox_expect(inbox + ONE, a_step ? (s.cluster - 1) * chunk : 0);
            inbox_expect(inbox + OTHER,
                         (a_step ? (s.cluster - 1) * chunk : 0) + s.cluster * sum_bytes);
        }
        if (a_step) {
            UNROLL(PASSES_MOST)
            for (int q = 0; q < PASSES_MOST; q++) {
                if (q >= s.passes)
                    continue;
                const int small = c[q].r * s.own + c[q].j;
                const float h = w.h[small], v = w.v[small];
                const shares of = unwrite<SLOTS>(s, c[q], w, dM, M, before, w.dread[small], h,
                                                 r.query == DUAL_QUERY_V ? v : h);
                const float dv = of.dv + (r.query == DUAL_QUERY_V ? of.from_query : 0);
                carry[q] += of.from_slots + load(dh + q);
                carry[q] += r.query == DUAL_QUERY_V ? 0 : of.from_query;
                if (c[q].live && c[q].part == 0) {
                    put(s, here, vector_of(s, 0), c[q].j, c[q].r, dv, T{});
                    store((T *)r.dv + t * step + c[q].row * r.D + c[q].at, dv);
                }
            }
            __syncthreads();
            spread(s, here, inbox + ONE, own_dv, own_dv, chunk, s.cluster - 1);
            fetch_attention<SLOTS>(r, s, here, w, t);
            UNROLL(PASSES_MOST)
            for (int q = 0; q < PASSES_MOST; q++)
                if (q < s.passes && c[q].live && t > 0)
                    fetch_tape<T>(r, s, c[q], t - 1, before + (c[q].r * s.own + c[q].j) * APART);
        }
        inbox_wait(inbox + ONE, turn);
        if (a_step) {
            multiply(s, here, held, 0, T{});
            __syncthreads();
            UNROLL(PASSES_MOST)
            for (int q = 0; q < PASSES_MOST; q++) {
                if (q >= s.passes || !c[q].live || c[q].part)
                    continue;
                const int64_t at = c[q].row * r.D + c[q].at;
                const int small = c[q].r * s.own + c[q].j;
                const float h = w.h[small];
                carry[q] += total<T>(s, here, c[q].j / TILE, c[q].j % TILE, c[q].r);
                const float dp = carry[q] * fmaf(-h, h, 1.0f);
                w.dread[small] = dp + load(dread + q);
                put(s, here, vector_of(s, 1), c[q].j, c[q].r, dp, T{});
                store((T *)r.dp + t * step + at, dp);
                w.v[small] = t > 0 ? load((const T *)r.v + (t - 1) * step + at) : 0;
                w.h[small] = t > 0 ? r.h[(t - 1) * step + at] : r.h0[at];
                if (t > 0)
                    dh[q] = ((const T *)r.dh)[(t - 1) * step + at];
                if (t > 0 && r.dread)
                    dread[q] = ((const T *)r.dread)[(t - 1) * step + at];
            }
            __syncthreads();
            spread(s, here, inbox + OTHER, own_dp, own_dp, chunk, s.cluster - 1);
        }
        sums<SLOTS>(s, dM, M, before, w, own_sums);
        __syncthreads();
        spread(s, here, inbox + OTHER, s.mine, own_scores, sum_bytes, s.cluster);
        inbox_wait(inbox + OTHER, turn);

        pay_back<SLOTS>(r, s, here, w);
        if (a_step)
            multiply(s, here, held, 1, T{});
        __syncthreads();
        UNROLL(PASSES_MOST)
        for (int q = 0; q < PASSES_MOST; q++)
            if (a_step && q < s.passes && c[q].live && c[q].part == 0)
                carry[q] = total<T>(s, here, c[q].j / TILE, c[q].j % TILE, c[q].r);
    }
    /* Back through the reading of the first step. */
    const float *M = tape<SLOTS>(s, here, 1);
    UNROLL(PASSES_MOST)
    for (int q = 0; q < PASSES_MOST; q++) {
        const int small = c[q].r * s.own + c[q].j;
        float from_slots = 0;
        for (int n = c[q].part; q < s.passes && c[q].live && n < r.N; n += s.parts) {
            const int e = small * APART + n, i = c[q].r * SLOTS + n;
            float d = fmaf(w.rho[i], w.dread[small], dM[e]);
            d = fmaf(w.dalpha[i], w.h[small], d);
            from_slots = fmaf(w.dalpha[i], M[e], from_slots);
            r.dM[c[q].row * r.M + (int64_t)n * r.D + c[q].at] = d;
        }
        from_slots = over_parts(s, from_slots);
        if (q < s.passes && c[q].live && c[q].part == 0)
            r.dh0[c[q].row * r.D + c[q].at] = carry[q] + from_slots;
    }
    cluster_arrive();
    cluster_wait();
}

/* ---- launches ---- */

template <typename T>
int launch_backward(const recurrence &r)
{
    return launch_clusters<T, back<T>>(r.N <= 8    ? backward_persistent<T, 8, 0>
                                       : r.N <= 16 ? backward_persistent<T, 16, 0>
                                       : r.N <= 32 ? backward_persistent<T, 32, 0>
                                                   : backward_persistent<T, 64, 0>,
                                       r);
}

int launch_backward_fixed(const recurrence &r)
{
    typedef __nv_bfloat16 T;
    return launch_clusters<T, back<T>>(
        r.N == 16 ? backward_persistent<T, 16, 512> : backward_persistent<T, 64, 512>, r);
}

template <typename T>
const char *backward_declines(const recurrence &r)
{
    return clusters_decline<T, back<T>>(r);
}

template int launch_backward<float>(const recurrence &r);
template int launch_backward<__nv_bfloat16>(const recurrence &r);
template const char *backward_declines<float>(const recurrence &r);
template const char *backward_declines<__nv_bfloat16>(const recurrence &r);
