/* dual_memory, kernel `persistent`, forward: one launch, a cluster of up to 16 blocks
 * for every few sequences, weights and tapes on chip.
 *
 * A step has two exchanges, by words that count what has come: nobody meets at a barrier
 * of the cluster.
 *
 *     every column     M from the last write; read; h          -> h to all blocks
 *     (meanwhile       <M_n, h> over own columns)
 *     every row        v = W_write h and W_h h of the next step, in one product
 *     every slot       <M_n, v> and <v, h> over own columns    -> the three to all blocks
 *     every slot       omega; scores of the next reading; rho
 *
 * for what the next step reads by is <M'_n, h> = (1 - omega_n) <M_n, h> + omega_n <v, h>:
 * no third exchange.  Every block works attention out for itself, all alike.  What one
 * exchange brings is overwritten only by those who have got the other that follows it.
 *
 * Bound by latency: of two exchanges, two attentions and a product. */
#include "gpu/dual_memory_persistent.cuh"

template <typename T>
using onward = walk<1, 2, 1, sizeof(T) == 2 ? 32 : 16>;

/* What is in shape's `small`. */
struct vectors {
    float *rho, *omega, *v, *u, *h;
};

template <int SLOTS>
static __device__ __forceinline__ vectors vectors_of(const shape &s, const seat &here)
{
    const int slots = s.rows * SLOTS, columns = s.rows * s.own;
    float *at = here.at<float>(s.small), *more = at + 2 * slots;
    return {at, at + slots, more, more + columns, more + 2 * columns};
}

/* What blocks tell each other of their columns, for every sequence: <M_n, h>, <M_n, v>
 * and <v, h>, the last in a word of four. */
template <int SLOTS>
struct numbers {
    int by_v, both, all; /* from the first, in floats */
    __device__ numbers(const shape &s)
        : by_v(s.rows * SLOTS), both(2 * s.rows * SLOTS), all(s.rows * (2 * SLOTS + FOUR))
    {
    }
};

/* The tape takes what the step before wrote, and is read.  (Slots beyond N are 0, and so
 * is what is written to them and read of them.) */
template <int SLOTS>
static __device__ __forceinline__ float write_and_read(const shape &s, float *tape, const column &c,
                                                       const vectors &w, float v)
{
    const float *omega = w.omega + c.r * SLOTS, *rho = w.rho + c.r * SLOTS;
    float *M = tape + (c.r * s.own + c.j) * tape_of<SLOTS>::APART;
    float read = 0;

    UNROLL(4)
    for (int n = c.there ? c.part * FOUR : SLOTS; n < SLOTS; n += s.parts * FOUR) {
        const four m = four_at(M + n), o = four_at(omega + n), p = four_at(rho + n);
        four x;
        UNROLL(FOUR)
        for (int k = 0; k < FOUR; k++) {
            x.x[k] = written(m.x[k], o.x[k], v);
            read = fmaf(p.x[k], x.x[k], read);
        }
        put_four(M + n, x);
    }
    return over_parts(s, read);
}

/* The tape of the thread's column to a checkpoint. */
template <int SLOTS>
static __device__ __forceinline__ void keep_tape(const recurrence &r, const shape &s,
                                                 const float *tape, const column &c, int64_t t)
{
    const float *M = tape + (c.r * s.own + c.j) * tape_of<SLOTS>::APART;
    const int64_t slot = t / r.K * r.batch + c.row;
    for (int n = c.part * FOUR; c.live && n < r.N; n += s.parts * FOUR)
        for (int k = n; k < n + FOUR && k < r.N; k++) /* those that the thread wrote */
            put_kept(r, slot, (int64_t)k * r.D + c.at, M[k]);
}

/* omega of the step t and rho of the next, from what all blocks have found; at first
 * there is no omega. */
template <int SLOTS>
static __device__ __forceinline__ void pay_attention(const recurrence &r, const shape &s,
                                                     const seat &here, const vectors &w, int64_t t)
{
    typedef attention<SLOTS, FOUR> A;
    typedef attentive<SLOTS> over;
    const numbers<SLOTS> of(s);
    const int lane = threadIdx.x % 32, n = lane % over::GROUP * FOUR;

    for (int base = 0; base < here.rows; base += s.threads / 32) {
        const int mine = base + threadIdx.x / 32, row = min(mine, here.rows - 1);
        const float *scores = here.at<float>(s.scores) + row * SLOTS;
        four by_h = over::over_blocks(s, scores, of.all), query = by_h, omega = {}, rho;
        float both = 0;

        if (lane < s.cluster)
            both = here.at<float>(s.scores)[lane * of.all + of.both + row * FOUR];
        UNROLL(5)
        for (int far = CLUSTER_MOST / 2; far > 0; far /= 2)
            both += __shfl_xor_sync(~0u, both, far, CLUSTER_MOST);
        both = __shfl_sync(~0u, both, 0);
        if (r.query == DUAL_QUERY_V)
            query = over::over_blocks(s, scores + of.by_v, of.all);
        UNROLL(FOUR)
        for (int k = 0; k < FOUR; k++)
            query.x[k] = n + k < r.N ? r.scale * query.x[k] : -INFINITY;
        if (t >= 0)
            A::attend(r.attention, omega.x, query.x);
        UNROLL(FOUR)
        for (int k = 0; k < FOUR; k++)
            by_h.x[k] = n + k < r.N ? r.scale * written(by_h.x[k], omega.x[k], both) : -INFINITY;
        A::attend(r.attention, rho.x, by_h.x);
        if (lane >= over::GROUP || mine != row)
            continue;
        put_four(w.omega + row * SLOTS + n, omega);
        put_four(w.rho + row * SLOTS + n, rho);
        if (here.rank != (row & (s.cluster - 1)))
            continue;
        const int64_t at = (t * r.batch + here.row + row) * r.N + n;
        UNROLL(FOUR)
        for (int k = 0; k < FOUR; k++) {
            if (t >= 0 && n + k < r.N)
                r.omega[at + k] = omega.x[k];
            if (t + 1 < r.steps && n + k < r.N)
                r.rho[at + r.batch * r.N + k] = rho.x[k];
        }
    }
}

/* <v, h> of the block's columns, a warp a sequence, to all blocks. */
template <int SLOTS>
static __device__ __forceinline__ void tell_both(const shape &s, const seat &here, const vectors &w,
                                                 uint64_t *inbox, int to)
{
    const int lane = threadIdx.x % 32;

    for (int base = 0; base < s.rows; base += s.threads / 32) {
        const int mine = base + threadIdx.x / 32, row = min(mine, s.rows - 1);
        float sum = 0;
        for (int j = lane; j < s.own; j += 32)
            sum = fmaf(w.v[row * s.own + j], w.h[row * s.own + j], sum);
        UNROLL(5)
        for (int far = 16; far > 0; far /= 2)
            sum += __shfl_xor_sync(~0u, sum, far);
        if (mine == row && lane < s.cluster)
            post(here.at<uint4>(to) + row, inbox, lane, make_uint4(__float_as_uint(sum), 0, 0, 0));
    }
}

/* The tape to where it belongs; everything else is nothing yet. */
template <int SLOTS>
static __device__ void begin(const recurrence &r, const shape &s, const seat &here)
{
    enum { APART = tape_of<SLOTS>::APART };
    float *tape = here.at<float>(s.tape);

    for (int e = threadIdx.x; e < (s.weights - s.vector) / 16; e += s.threads)
        here.at<uint4>(s.vector)[e] = {};
    __syncthreads();
    for (int e = threadIdx.x; e < here.rows * r.N * s.own; e += s.threads) {
        const int j = e % s.own, n = e / s.own % r.N, row = e / s.own / r.N;
        const int column = here.rank * s.own + j;
        const int64_t from = r.each ? (int64_t)(here.row + row) * r.M : 0;
        if (column < r.D)
            tape[(row * s.own + j) * APART + n] = r.M0[from + (int64_t)n * r.D + column];
    }
}

template <typename T, int SLOTS, int WIDTH>
__global__ void __launch_bounds__(THREADS_MOST, 1) forward_persistent(recurrence r, shape given)
{
    extern __shared__ __align__(16) unsigned char memory[];
    enum { ONE = 0, OTHER = 1, WORD = sizeof(float) };
    const shape s = WIDTH ? shape_of<T, onward<T>>(WIDTH, SLOTS, given.rows, given.cluster) : given;
    if (WIDTH)
        r.D = WIDTH, r.N = SLOTS;
    const seat here = seat_of(r, s, memory);
    const vectors w = vectors_of<SLOTS>(s, here);
    const numbers<SLOTS> of(s);
    const int by_v = r.query == DUAL_QUERY_V;
    const int chunk = own_bytes<T>(s), own_vector = s.vector + here.rank * chunk;
    const int own_scores = s.scores + here.rank * of.all * WORD, each = s.rows * SLOTS * WORD;
    uint64_t *inbox = here.at<uint64_t>(s.inbox);
    float *tape = here.at<float>(s.tape), *own_sums = here.at<float>(s.mine);
    column c[PASSES_MOST];
    float bias[PASSES_MOST];
    T xp[PASSES_MOST] = {};
    int64_t e[PASSES_MOST]; /* of [T,B,D] */
    uint4 held[onward<T>::HELD];

    fetch_weights<T, onward<T>>(
        s, here,
        [&](int, int tiles) {
            return stacked<T>{(const T *)r.W_write, (const T *)r.W_h, r.D,
                              here.rank * s.own + tiles * 8};
        },
        held);
    UNROLL(PASSES_MOST)
    for (int q = 0; q < PASSES_MOST; q++) {
        c[q] = column_of(r, s, here, q);
        bias[q] = c[q].live ? load((const T *)r.b_h + c[q].at) : 0;
        e[q] = (c[q].row - r.batch) * r.D + c[q].at;
    }
    begin<SLOTS>(r, s, here);
    if (threadIdx.x < 2)
        inbox_open(inbox + threadIdx.x);
    __syncthreads();
    cluster_arrive();
    cluster_wait();

    int64_t next_kept = 0;
    for (int64_t t = -1; t < r.steps; t++) {
        if (threadIdx.x == 0) {
            inbox_expect(inbox + ONE, (s.cluster - 1) * chunk);
            inbox_expect(inbox + OTHER, s.cluster * ((1 + by_v) * each + s.rows * FOUR * WORD));
        }
        UNROLL(PASSES_MOST)
        for (int q = 0; q < PASSES_MOST; q++) {
            if (q >= s.passes)
                continue;
            const int small = c[q].r * s.own + c[q].j;
            const bool first = c[q].live && c[q].part == 0; /* of those that share it */
            float h = 0;
            if (t >= 0) {
                const float read = write_and_read<SLOTS>(s, tape, c[q], w, w.v[small]);
                if (t == next_kept)
                    keep_tape<SLOTS>(r, s, tape, c[q], t);
                h = tanh_full(w.u[small] + load(xp + q) + read + bias[q]);
                if (first) {
                    r.h[e[q]] = h;
                    if (r.read)
                        store((T *)r.read + e[q], read);
                }
            } else if (first) {
                h = r.h0[c[q].row * r.D + c[q].at];
            }
            if (first) {
                put(s, here, s.vector, c[q].j, c[q].r, h, T{});
                w.h[small] = h;
                if (t + 1 < r.steps)
                    xp[q] = ((const T *)r.xp)[e[q] + r.batch * r.D];
                else
                    r.h_T[c[q].row * r.D + c[q].at] = h;
            }
        }
        next_kept += t == next_kept ? r.K : 0;
        __syncthreads();
        spread(s, here, inbox + ONE, own_vector, own_vector, chunk, s.cluster - 1);
        dots<SLOTS>(s, tape, w.h, own_sums);
        inbox_wait(inbox + ONE, (int)(t + 1));

        multiply(s, here, held, 0, T{});
        __syncthreads();
        spread(s, here, inbox + OTHER, s.mine, own_scores, each, s.cluster);
        UNROLL(PASSES_MOST)
        for (int q = 0; q < PASSES_MOST; q++) {
            const int small = c[q].r * s.own + c[q].j, i = c[q].j % 8;
            if (q < s.passes && c[q].live && c[q].part == 0 && t >= 0) {
                T v;
                store(&v, total<T>(s, here, c[q].j / 8, i, c[q].r));
                w.v[small] = load(&v);
                ((T *)r.v)[e[q]] = v;
            }
            if (q < s.passes && c[q].live && c[q].part == s.parts - 1)
                w.u[small] = total<T>(s, here, c[q].j / 8, i + 8, c[q].r);
            e[q] += r.batch * r.D;
        }
        __syncthreads();
        if (by_v) {
            dots<SLOTS>(s, tape, w.v, own_sums + of.by_v);
            __syncthreads();
            spread(s, here, inbox + OTHER, s.mine + of.by_v * WORD, own_scores + of.by_v * WORD,
                   each, s.cluster);
        }
        tell_both<SLOTS>(s, here, w, inbox + OTHER, own_scores + of.both * WORD);
        inbox_wait(inbox + OTHER, (int)(t + 1));
        pay_attention<SLOTS>(r, s, here, w, t);
        __syncthreads();
    }
    UNROLL(PASSES_MOST)
    for (int q = 0; q < PASSES_MOST; q++) {
        const int small = c[q].r * s.own + c[q].j;
        for (int n = c[q].part; q < s.passes && c[q].live && n < r.N; n += s.parts)
            r.M_T[c[q].row * r.M + (int64_t)n * r.D + c[q].at] = written(
                tape[small * tape_of<SLOTS>::APART + n], w.omega[c[q].r * SLOTS + n], w.v[small]);
    }
    cluster_arrive();
    cluster_wait();
}

/* ---- launches ---- */

template <typename T>
static int forward(const recurrence &r)
{
    return launch_clusters<T, onward<T>>(r.N <= 8    ? forward_persistent<T, 8, 0>
                                         : r.N <= 16 ? forward_persistent<T, 16, 0>
                                         : r.N <= 32 ? forward_persistent<T, 32, 0>
                                                     : forward_persistent<T, 64, 0>,
                                         r);
}

/* Backward replays a segment's tapes for every sequence. */
static size_t work(const recurrence &r, enum pass p)
{
    return p == FORWARD ? 0 : sizeof(float) * r.K * r.batch * r.M;
}

template <typename T>
static const char *declines(const recurrence &r)
{
    if (r.N > MAX_SLOTS)
        return "slots beyond 64";
    const char *why = clusters_decline<T, onward<T>>(r);
    return why ? why : backward_declines<T>(r);
}

#define PERSISTENT(bits, T)                                                                        \
    const recurrence_kernel dual_persistent##bits = {                                              \
        "persistent",                                                                              \
        "a cluster of blocks for some sequences, weights on chip, one launch a pass",              \
        {forward<T>, launch_backward<T>},                                                          \
        work,                                                                                      \
        declines<T>,                                                                               \
        "ex2.approx, rcp.approx",                                                                  \
        3e-7}

PERSISTENT(32, float);
PERSISTENT(16, __nv_bfloat16);

/* ---- the same with slots and width known beforehand: what does it cost that they are not? ---- */

enum { FIXED_WIDTH = 512 };

static int forward_fixed(const recurrence &r)
{
    typedef __nv_bfloat16 T;
    return launch_clusters<T, onward<T>>(r.N == 16 ? forward_persistent<T, 16, FIXED_WIDTH>
                                                   : forward_persistent<T, 64, FIXED_WIDTH>,
                                         r);
}

static const char *fixed_declines(const recurrence &r)
{
    const char *why = declines<__nv_bfloat16>(r);
    if (!why && (r.D != FIXED_WIDTH || (r.N != 16 && r.N != 64)))
        why = "only for dim = 512 and slots = 16 or 64, to measure what run-time sizes cost";
    return why;
}

const recurrence_kernel dual_template_d16 = {
    "template_d",
    "persistent, with slots and width known to the compiler",
    {forward_fixed, launch_backward_fixed},
    work,
    fixed_declines,
    "ex2.approx, rcp.approx",
    3e-7};
