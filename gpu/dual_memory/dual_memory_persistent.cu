/* dual_memory, kernel `persistent`, forward: one launch, a cluster of up to 16 blocks
 * for four or eight sequences, weights and tapes on chip.
 *
 * A step has two exchanges, by words that count what has come: nobody meets at a barrier
 * of the cluster.  The warps that have columns and those that pay attention go side by side:
 *
 *     columns                                     attention
 *
 *     read; h                  -> to all blocks
 *     <M_n, h> over own columns  -> the block     sums -> to all blocks
 *     v = W_write h, W_h h of the next step
 *     <v, h> over own columns    -> the block     sum -> to all blocks
 *     (<M_n, v>, if it is the query, likewise     sums -> to all blocks)
 *     write                                       omega; rho of the next reading
 *
 * for what the next step reads by is <M'_n, h> = (1 - omega_n) <M_n, h> + omega_n <v, h>:
 * no third exchange.  What one exchange brings is overwritten only by those who have got
 * the other that follows it; the letters about <M_n, h>, which the columns do not wait for,
 * have two places and two mbars.
 *
 * Bound by the latency of instructions along one chain: rho, read, h, its way, the product,
 * <v, h>, its way, rho. */
#include "gpu/device/math.cuh"
#include "gpu/device/mbarrier.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/dual_memory/dual_memory_persistent.cuh"

template <typename PASS>
__global__ void forward_persistent(recurrence r, shape given);

/* As many as spill none (tests/spills.sh), where a lane has so many slots. */
static constexpr int turns_held(int bytes, int slots)
{
    const int of_floats = slots == 8 ? 4 : slots == 16 ? 3 : slots == 32 ? 2 : 1;
    return bytes == 4 ? of_floats : slots <= 32 ? 4 : 2;
}

template <typename T, int SLOTS, int QUADS, int WIDTH>
struct onward : pass_of<T, SLOTS, QUADS, WIDTH> {
    enum {
        VECTORS = 1,
        SCALARS = 1,
        SIDES = 2,
        TAPES = 0,
        TURNS = turns_held(sizeof(T), SLOTS *QUADS),
        EARLY = SLOTS * QUADS <= 16,
        FEW = few_of(SLOTS)
    };
    typedef letter<SLOTS, QUADS, 1> side_letter, main_letter;
    struct attentions {
        paid<main_letter> omega, rho;
    };
    static constexpr clusters_kernel *kernel = forward_persistent<onward>;
};

/* What a thread has of its column: of each of its sequences. */
template <typename PASS>
struct column {
    enum { SLOTS = PASS::SLOTS, QUADS = PASS::QUADS };
    float M[QUADS][SLOTS], h[QUADS];
    bool live[QUADS];
    two sum[QUADS]; /* v, and W_h h for the next step */
};

/* The tapes before step t to a checkpoint. */
template <typename PASS>
static __device__ __forceinline__ void keep_tapes(const recurrence &r, const seat &here,
                                                  const column<PASS> &c, int t)
{
    const auto keep = [&](auto *to, int p) {
        to += (t / r.K * r.batch + here.row + 4 * p) * r.M + here.column;
        #pragma unroll (PASS::SLOTS)
        for (int n = 0; n < PASS::SLOTS; n++, to += r.D)
            if (n < r.N)
                store(to, c.M[p][n]);
    };
    #pragma unroll (PASS::QUADS)
    for (int p = 0; p < PASS::QUADS; p++)
        if (!c.live[p])
            continue;
        else if (r.kept == KEPT_F32)
            keep((float *)r.checkpoints, p);
        else if (r.kept == KEPT_BF16)
            keep((__nv_bfloat16 *)r.checkpoints, p);
        else
            keep((__half *)r.checkpoints, p);
}

/* What attention is of; slots that are not there get none. */
template <typename PASS>
static __device__ __forceinline__ void scale_scores(const recurrence &r, const payer<PASS> &here,
                                                    float scores[payer<PASS>::OWN])
{
    #pragma unroll 2
    for (int k = 0; k < here.OWN; k++)
        scores[k] = here.slot() + k < r.N ? r.scale * scores[k] : -INFINITY;
}

/* omega of step t or rho of it, [T,B,N], once of a cluster. */
template <typename PASS>
static __device__ __forceinline__ void keep_attention(const recurrence &r, const shape &s,
                                                      const payer<PASS> &here, float *kept, int t,
                                                      const float x[payer<PASS>::OWN])
{
    if (t < 0 || here.row >= r.batch || here.lane >= here.LANES ||
        here.rank != (here.row & (s.cluster - 1)))
        return;
    float *to = kept + (t * r.batch + here.row) * r.N + here.slot();
    #pragma unroll 2
    for (int k = 0; k < here.OWN; k++)
        if (here.slot() + k < r.N)
            to[k] = x[k];
}

enum { VECTOR, MAIN, SIDE }; /* the mbars; of side letters two */

/* The columns, from the first step's reading to the last one's write. */
template <typename PASS>
static __device__ __forceinline__ void carry(const recurrence &r, const shape &s, const seat &here)
{
    typedef typename PASS::type T;
    typedef typename PASS::side_letter side_letter;
    typedef typename PASS::main_letter main_letter;
    enum { SLOTS = PASS::SLOTS, QUADS = PASS::QUADS };
    const bool by_v = r.query == DUAL_QUERY_V;
    const int all = all_of(s);
    uint64_t *mbar = here.at<uint64_t>(0);
    uint4 held[held_of<PASS>()];
    column<PASS> c;
    int64_t e = (here.row - r.batch) * r.D + here.column; /* of [T,B,D], the first sequence's */
    const float bias = here.column < r.D ? load((const T *)r.b_h + here.column) : 0;
    unsigned inward[QUADS] = {}; /* as stored, of the next step: nothing waits for it before */
    int next_kept = 0;

    fetch_weights<PASS>(s, here, (const T *)r.W_write, (const T *)r.W_h, r.D, held);
    #pragma unroll QUADS
    for (int p = 0; p < QUADS; p++) {
        const int row = here.row + 4 * p;
        c.live[p] = row < r.batch && here.column < r.D;
        c.h[p] = c.live[p] ? r.h0[(int64_t)row * r.D + here.column] : 0;
        c.sum[p] = {};
        #pragma unroll SLOTS
        for (int n = 0; n < SLOTS; n++)
            c.M[p][n] = c.live[p] && n < r.N
                            ? r.M0[(r.each ? row * r.M : 0) + (int64_t)n * r.D + here.column]
                            : 0;
    }
    for (int t = -1; t < r.steps; t++, e += r.batch * r.D) {
        const int turn = t + 1;
        const seat now = afresh(here, turn);
        const typename PASS::attentions *told = now.at<typename PASS::attentions>(s.slots);
        float *side_part = now.at<float>(s.side_parts) + now.warp * side_letter::FLOATS;
        float *main_part = now.at<float>(s.main_parts) + now.warp * main_letter::FLOATS;
        float read[QUADS] = {};
        if (t == next_kept) {
            keep_tapes(r, now, c, t);
            next_kept += (int)r.K;
        }
        if (t >= 0)
            named_barrier_sync(PAID_LAST, all);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS && t >= 0; p++) {
            float part[4] = {}, rho[4];
            #pragma unroll 16
            for (int n = 0; n < SLOTS; n += 4) {
                if (SLOTS > 32 || (QUADS > 1 && n == 0))
                    __syncwarp(); /* the next ones' are not fetched yet, for want of registers */
                four_of(told->rho, now, p, n, rho);
                #pragma unroll 4
                for (int k = 0; k < 4; k++)
                    part[k] = fmaf(rho[k], c.M[p][n + k], part[k]);
            }
            read[p] = part[0] + part[1] + (part[2] + part[3]);
            c.h[p] = tanh_full(c.sum[p].other + (from_bits(inward[p], T{}) + bias) + read[p]);
        }
        post_vector<T, QUADS>(s, now, mbar + VECTOR, 0, c.h);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++)
            fold_slots<side_letter>(now, side_part + side_letter::row(p, 0, now.q),
                                    [&](int n) { return c.M[p][n] * c.h[p]; });
        named_barrier_arrive(SIDE_PARTS, all);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++) {
            const int64_t at = e + (int64_t)4 * p * r.D;
            if (c.live[p] && t + 1 < r.steps)
                inward[p] = bits_of((const T *)r.xp + at + r.batch * r.D);
            if (c.live[p] && t >= 0) {
                r.h[at] = c.h[p];
                if (r.read)
                    store((T *)r.read + at, read[p]);
            }
        }
        mbarrier_wait(mbar + VECTOR, turn);

        multiply<PASS, BOTH_SUMS>(s, now, held, s.vector, c.sum);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++) {
            c.sum[p].one = as_stored(c.sum[p].one, T{});
            put_scalar(s, now, QUADS, p, c.sum[p].one * c.h[p]);
        }
        #pragma unroll QUADS
        for (int p = 0; p < QUADS && by_v; p++)
            fold_slots<main_letter>(now, main_part + main_letter::row(p, 0, now.q),
                                    [&](int n) { return c.M[p][n] * c.sum[p].one; });
        named_barrier_arrive(MAIN_PARTS, all);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++)
            if (c.live[p] && t >= 0)
                store((T *)r.v + e + (int64_t)4 * p * r.D, c.sum[p].one);
        if (t >= 0)
            named_barrier_sync(PAID_FIRST, all);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS && t >= 0; p++)
            #pragma unroll 16
            for (int n = 0; n < SLOTS; n += 4) {
                float omega[4];
                if (SLOTS > 32 || (QUADS > 1 && n == 0))
                    __syncwarp();
                four_of(told->omega, now, p, n, omega);
                #pragma unroll 4
                for (int k = 0; k < 4; k++)
                    c.M[p][n + k] = written(c.M[p][n + k], omega[k], c.sum[p].one);
            }
    }
    #pragma unroll QUADS
    for (int p = 0; p < QUADS; p++) {
        const int row = here.row + 4 * p;
        if (!c.live[p])
            continue;
        r.h_T[(int64_t)row * r.D + here.column] = c.h[p];
        #pragma unroll SLOTS
        for (int n = 0; n < SLOTS; n++)
            if (n < r.N)
                r.M_T[row * r.M + (int64_t)n * r.D + here.column] = c.M[p][n];
    }
}

/* Attention of all steps. */
template <typename PASS>
static __device__ __forceinline__ void pay(const recurrence &r, const shape &s,
                                           const payer<PASS> &seated)
{
    typedef typename PASS::side_letter side_letter;
    typedef typename PASS::main_letter main_letter;
    typedef payer<PASS> P;
    enum { QUADS = PASS::QUADS, OWN = P::OWN };
    const bool by_v = r.query == DUAL_QUERY_V;
    const int all = all_of(s);

    for (int t = -1; t < r.steps; t++) {
        const int turn = t + 1, odd = turn & 1;
        const P here = seated.afresh(turn);
        typename PASS::attentions *told = here.template at<typename PASS::attentions>(s.slots);
        const int letters = s.side + odd * letters_room<side_letter>(s.cluster);
        uint64_t *main_box = here.mbar(MAIN), *side_box = here.mbar(SIDE + odd);
        float by_h[OWN], scores[OWN], omega[OWN] = {}, rho[OWN];

        if (here.first()) {
            mbarrier_arrive_expect_tx(here.mbar(VECTOR), vector_bytes(s, QUADS));
            mbarrier_arrive_expect_tx(side_box, letter_bytes<side_letter>(s));
            mbarrier_arrive_expect_tx(main_box, scalars_bytes(s, QUADS) +
                                                    by_v * letter_bytes<main_letter>(s));
        }
        named_barrier_sync(SIDE_PARTS, all);
        here.template post_letter<side_letter>(s, side_box, s.side_parts, letters);
        mbarrier_wait(side_box, turn / 2);
        here.template slot_sums<side_letter>(s, letters, 0, by_h);
        scale_scores(r, here, by_h);
        const float most = P::of::most(by_h);
        float bound = most;
        #pragma unroll OWN
        for (int k = 0; k < OWN; k++)
            scores[k] = by_h[k];
        named_barrier_sync(MAIN_PARTS, all);
        here.post_scalar(s, main_box);
        if (by_v) {
            here.template post_letter<main_letter>(s, main_box, s.main_parts, s.main);
            mbarrier_wait(main_box, turn);
            here.template slot_sums<main_letter>(s, s.main, 0, scores);
            scale_scores(r, here, scores);
            bound = P::of::most(scores);
        }
        if (t >= 0) {
            P::of::attend(r.attention, omega, scores, bound);
            here.tell(&told->omega, omega);
            named_barrier_arrive(PAID_FIRST, all);
        }
        if (!by_v)
            mbarrier_wait(main_box, turn);
        if (t + 1 == r.steps) {
            keep_attention(r, s, here, r.omega, t, omega);
            break;
        }
        const float both = r.scale * here.scalar_sum(s);
        #pragma unroll OWN
        for (int k = 0; k < OWN; k++)
            by_h[k] = written(by_h[k], omega[k], both);
        P::of::attend(r.attention, rho, by_h, fmaxf(most, both));
        here.tell(&told->rho, rho);
        named_barrier_arrive(PAID_LAST, all);
        keep_attention(r, s, here, r.omega, t, omega);
        keep_attention(r, s, here, r.rho, t + 1, rho);
    }
}

template <typename PASS>
__global__ void __launch_bounds__(THREADS_MOST, 1) forward_persistent(recurrence r, shape given)
{
    extern __shared__ __align__(16) unsigned char memory[];
    run_crews<PASS>(r, given, memory, carry<PASS>, pay<PASS>);
}

/* ---- launches ---- */

/* W_write and W_h, or what they are transposed, in rows so far apart. */
template <typename T>
__global__ void copy_rows(T *to, const T *one, const T *other, int D, bool transposed)
{
    enum { SIDE = 32 };
    __shared__ T tile[SIDE][SIDE + 1];
    const T *from = blockIdx.z ? other : one;
    const int row = blockIdx.y * SIDE, column = blockIdx.x * SIDE, apart = row_apart(D);
    const int above = transposed ? column : row, left = transposed ? row : column;

    for (int i = threadIdx.y; i < SIDE; i += blockDim.y)
        if (above + i < D && left + (int)threadIdx.x < D)
            tile[i][threadIdx.x] = from[(int64_t)(above + i) * D + left + threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.y; i < SIDE; i += blockDim.y) {
        const int k = column + threadIdx.x;
        if (row + i < D && k < apart)
            to[((int64_t)blockIdx.z * D + row + i) * apart + k] = k >= D ? T{}
                                                                  : transposed
                                                                      ? tile[threadIdx.x][i]
                                                                      : tile[i][threadIdx.x];
    }
}

template <typename T>
int lay_rows(recurrence *r, bool transposed)
{
    const unsigned side = (unsigned)ceil_of(row_apart(r->D), 32);
    const dim3 grid(side, side, 2), block(32, 8);
    T *to = (T *)r->work;

    copy_rows<T><<<grid, block, 0, gpu_stream()>>>(to, (const T *)r->W_write, (const T *)r->W_h,
                                                   r->D, transposed);
    r->W_write = to;
    r->W_h = to + (int64_t)r->D * row_apart(r->D);
    return cudaGetLastError();
}

template int lay_rows<float>(recurrence *r, bool transposed);
template int lay_rows<__nv_bfloat16>(recurrence *r, bool transposed);

/* Rows of weights that cannot be fetched 16 bytes at a time are copied. */
template <typename T>
static bool whole(const recurrence &r)
{
    return r.D % COLUMNS == 0 && !((uintptr_t)r.W_write % 16 || (uintptr_t)r.W_h % 16);
}

template <typename T, int launch_it(const recurrence &)>
static int forward(const recurrence &given)
{
    recurrence r = given;
    const int e = whole<T>(r) ? 0 : lay_rows<T>(&r, false);
    return e ? e : launch_it(r);
}

template <typename T>
static size_t work(const recurrence &r, enum pass p)
{
    return p == FORWARD ? rows_bytes<T>(r) : backward_work<T>(r);
}

template <typename T>
static const char *declines(const recurrence &r)
{
    if (r.N > MAX_SLOTS)
        return "slots beyond 64";
    const char *why = pass_declines<onward, T>(r);
    return why ? why : backward_declines<T>(r);
}

#define PERSISTENT(bits, T)                                                                        \
    const recurrence_kernel dual_persistent##bits = {                                              \
        "persistent",                                                                              \
        "a cluster of blocks for some sequences, weights on chip, one launch a pass",              \
        {forward<T, launch_pass<onward, T>>, launch_backward<T>},                                  \
        work<T>,                                                                                   \
        declines<T>,                                                                               \
        "ex2.approx, rcp.approx",                                                                  \
        3e-7}

PERSISTENT(32, float);
PERSISTENT(16, __nv_bfloat16);

/* ---- the same with slots and width known beforehand: what does it cost that they are not? ---- */

static int forward_fixed(const recurrence &r)
{
    return launch_fixed<onward>(r);
}

static const char *fixed_declines(const recurrence &r)
{
    const char *why = declines<__nv_bfloat16>(r);
    if (!why && (r.D != FIXED_WIDTH || r.N != FIXED_SLOTS))
        why = "only for dim = " NUMBER(FIXED_WIDTH) " and slots = " NUMBER(
            FIXED_SLOTS) ", to measure what run-time sizes cost";
    return why;
}

const recurrence_kernel dual_template_d16 = {
    "template_d",
    "persistent, with slots and width known to the compiler",
    {forward<__nv_bfloat16, forward_fixed>, launch_backward_fixed},
    work<__nv_bfloat16>,
    fixed_declines,
    "ex2.approx, rcp.approx",
    3e-7};
