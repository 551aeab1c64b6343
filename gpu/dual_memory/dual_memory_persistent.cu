/* dual_memory, kernel `persistent`, forward: one launch, a cluster of up to 16 blocks for four or
 * eight sequences, weights and tapes on chip.
 *
 * A step has two exchanges, which wait on mbarriers that count the bytes received; there is no
 * cluster barrier.  The two warp roles run in parallel:
 *
 *     column warps                                attention warps
 *
 *     read; h                  -> to all blocks
 *     <M_n, h> over own columns  -> the block     sums -> to all blocks
 *     v = W_write h, W_h h of the next step
 *     <v, h> over own columns    -> the block     sum -> to all blocks
 *     (if v is the query: <M_n, v> -> the block   sums -> to all blocks)
 *     write                                       omega; rho of the next reading
 *
 * The scores of the next reading are <M'_n, h> = (1 - omega_n) <M_n, h> + omega_n <v, h>, so there
 * is no third exchange.  A block overwrites the buffers of an exchange only after it has received
 * the next exchange.  The column warps do not wait for the messages of <M_n, h>, so these have two
 * buffers and two mbarriers.
 *
 * The kernel is bound by the latency of one chain: rho, read, h, its exchange, the product, <v,
 * h>, its exchange, rho. */
#include "gpu/device/math.cuh"
#include "gpu/device/mbarrier.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/dual_memory/dual_memory_persistent.cuh"

namespace dual
{

template <typename PASS>
__global__ void forward_persistent(recurrence r, shape given);

/* The maximum without register spills (tests/spills.sh), by slots per lane. */
static constexpr int held_iterations(int bytes, int slots)
{
    const int f32_iterations = slots == 8 ? 4 : slots == 16 ? 3 : slots == 32 ? 2 : 1;
    return bytes == 4 ? f32_iterations : slots <= 32 ? 4 : 2;
}

template <typename T, int SLOTS, int QUADS, int WIDTH>
struct forward_pass : pass_base<T, SLOTS, QUADS, WIDTH> {
    enum {
        VECTORS = 1,
        SCALARS = 1,
        SIDES = 2,
        TAPES = 0,
        HELD_ITERATIONS = held_iterations(sizeof(T), SLOTS *QUADS),
        PREFETCH = SLOTS * QUADS <= 16,
        ATTENTION_REGISTERS = attention_registers(SLOTS)
    };
    typedef message<SLOTS, QUADS, 1> side_message, main_message;
    struct attention_values {
        slot_values<main_message> omega, rho;
    };
    static constexpr clusters_kernel *kernel = forward_persistent<forward_pass>;
};

/* A thread's column, for each of its sequences. */
template <typename PASS>
struct column {
    enum { SLOTS = PASS::SLOTS, QUADS = PASS::QUADS };
    float M[QUADS][SLOTS], h[QUADS];
    bool live[QUADS];
    product_sums sum[QUADS]; /* v, and W_h h for the next step */
    unsigned next_xp[QUADS]; /* as stored, loaded a step ahead */
};

/* Initialises the state before the first step. */
template <typename PASS>
static __device__ __forceinline__ void init_column(const recurrence &r, const coord &here,
                                                   column<PASS> &c)
{
    #pragma unroll (PASS::QUADS)
    for (int p = 0; p < PASS::QUADS; p++) {
        const int row = here.row + 4 * p;
        c.live[p] = row < r.batch && here.column < r.D;
        c.h[p] = c.live[p] ? r.h0[(int64_t)row * r.D + here.column] : 0;
        c.sum[p] = {};
        c.next_xp[p] = 0;
        #pragma unroll (PASS::SLOTS)
        for (int n = 0; n < PASS::SLOTS; n++)
            c.M[p][n] = c.live[p] && n < r.N
                            ? r.M0[(r.each ? row * r.M : 0) + (int64_t)n * r.D + here.column]
                            : 0;
    }
}

/* Saves h_T and M_T. */
template <typename PASS>
static __device__ __forceinline__ void save_column(const recurrence &r, const coord &here,
                                                   const column<PASS> &c)
{
    #pragma unroll (PASS::QUADS)
    for (int p = 0; p < PASS::QUADS; p++) {
        const int row = here.row + 4 * p;
        if (!c.live[p])
            continue;
        r.h_T[(int64_t)row * r.D + here.column] = c.h[p];
        #pragma unroll (PASS::SLOTS)
        for (int n = 0; n < PASS::SLOTS; n++)
            if (n < r.N)
                r.M_T[row * r.M + (int64_t)n * r.D + here.column] = c.M[p][n];
    }
}

/* Limits the loads of weights in flight, to save registers. */
template <typename PASS>
static __device__ __forceinline__ void limit_loads(int n)
{
    if (PASS::SLOTS > 32 || (PASS::QUADS > 1 && n == 0))
        __syncwarp();
}

/* read = sum over n of rho_n M_n */
template <typename PASS>
static __device__ __forceinline__ float read_tape(const typename PASS::attention_values &values,
                                                  const coord &here, const column<PASS> &c, int p)
{
    float part[4] = {}, rho[4];
    #pragma unroll 16
    for (int n = 0; n < PASS::SLOTS; n += 4) {
        limit_loads<PASS>(n);
        load_slots(values.rho, here, p, n, rho);
        #pragma unroll 4
        for (int k = 0; k < 4; k++)
            part[k] = fmaf(rho[k], c.M[p][n + k], part[k]);
    }
    return part[0] + part[1] + (part[2] + part[3]);
}

/* M'_n = (1 - omega_n) M_n + omega_n v */
template <typename PASS>
static __device__ __forceinline__ void write_tape(const typename PASS::attention_values &values,
                                                  const coord &here, column<PASS> &c, int p)
{
    #pragma unroll 16
    for (int n = 0; n < PASS::SLOTS; n += 4) {
        float omega[4];
        limit_loads<PASS>(n);
        load_slots(values.omega, here, p, n, omega);
        #pragma unroll 4
        for (int k = 0; k < 4; k++)
            c.M[p][n + k] = written(c.M[p][n + k], omega[k], c.sum[p].one);
    }
}

/* Saves the tapes before step t to a checkpoint. */
template <typename PASS>
static __device__ __forceinline__ void save_tapes(const recurrence &r, const coord &here,
                                                  const column<PASS> &c, int t)
{
    const auto save = [&](auto *to, int p) {
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
            save((float *)r.checkpoints, p);
        else if (r.kept == KEPT_BF16)
            save((__nv_bfloat16 *)r.checkpoints, p);
        else
            save((__half *)r.checkpoints, p);
}

/* Scales the scores; padding gets -infinity, hence weight 0. */
template <typename PASS>
static __device__ __forceinline__ void scale_scores(const recurrence &r,
                                                    const attention_lane<PASS> &here,
                                                    float scores[attention_lane<PASS>::OWN])
{
    #pragma unroll 2
    for (int k = 0; k < here.OWN; k++)
        scores[k] = here.slot() + k < r.N ? r.scale * scores[k] : -INFINITY;
}

/* Saves omega or rho of step t, [T,B,N]; one block of the cluster writes it. */
template <typename PASS>
static __device__ __forceinline__ void save_weights(const recurrence &r, const shape &s,
                                                    const attention_lane<PASS> &here, float *kept,
                                                    int t, const float x[attention_lane<PASS>::OWN])
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

enum { VECTOR, MAIN, SIDE }; /* the mbarriers; SIDE has two */

/* Loads xp of step t + 1; saves h and read of step t.  e: index in [T,B,D], for quad 0. */
template <typename PASS>
static __device__ __forceinline__ void load_xp_save_h(const recurrence &r, column<PASS> &c, int t,
                                                      int64_t e, const float read[PASS::QUADS])
{
    typedef typename PASS::type T;
    #pragma unroll (PASS::QUADS)
    for (int p = 0; p < PASS::QUADS; p++) {
        const int64_t at = e + (int64_t)4 * p * r.D;
        if (c.live[p] && t + 1 < r.steps)
            c.next_xp[p] = stored_bits((const T *)r.xp + at + r.batch * r.D);
        if (c.live[p] && t >= 0) {
            r.h[at] = c.h[p];
            if (r.read)
                store((T *)r.read + at, read[p]);
        }
    }
}

/* Computes v = W_write h, W_h h, and the warp's parts of <v, h> and, if v is the query, of <M_n,
 * v>. */
template <typename PASS>
static __device__ __forceinline__ void multiply_h(const recurrence &r, const shape &s,
                                                  const coord &here, const uint4 *held,
                                                  column<PASS> &c)
{
    typedef typename PASS::main_message message;
    float *part = here.at<float>(s.main_parts) + here.warp * message::FLOATS;

    multiply<PASS, BOTH_SUMS>(s, here, held, s.vector, c.sum);
    #pragma unroll (PASS::QUADS)
    for (int p = 0; p < PASS::QUADS; p++) {
        c.sum[p].one = as_stored(c.sum[p].one, typename PASS::type{});
        store_scalar_part(s, here, PASS::QUADS, p, c.sum[p].one * c.h[p]);
    }
    #pragma unroll (PASS::QUADS)
    for (int p = 0; p < PASS::QUADS && r.query == DUAL_QUERY_V; p++)
        reduce_slots<message>(here, part + message::row(p, 0, here.q),
                              [&](int n) { return c.M[p][n] * c.sum[p].one; });
}

/* The role of the column warps, from the first step's reading to the last step's write. */
template <typename PASS>
static __device__ __forceinline__ void columns_forward(const recurrence &r, const shape &s,
                                                       const coord &here)
{
    typedef typename PASS::type T;
    typedef typename PASS::side_message side_message;
    enum { QUADS = PASS::QUADS };
    const int threads = joint_threads(s);
    uint64_t *mbar = here.at<uint64_t>(0);
    uint4 held[held_count<PASS>()];
    column<PASS> c;
    int64_t e = (here.row - r.batch) * r.D + here.column; /* index in [T,B,D], for quad 0 */
    const float bias = here.column < r.D ? load((const T *)r.b_h + here.column) : 0;
    int next_checkpoint = 0;

    load_weights<PASS>(s, here, (const T *)r.W_write, (const T *)r.W_h, r.D, held);
    init_column(r, here, c);
    for (int t = -1; t < r.steps; t++, e += r.batch * r.D) {
        const int phase = t + 1;
        const coord now = opaque_copy(here, phase);
        const typename PASS::attention_values *values =
            now.at<typename PASS::attention_values>(s.attention);
        float *side_part = now.at<float>(s.side_parts) + now.warp * side_message::FLOATS;
        float read[QUADS] = {};
        if (t == next_checkpoint) {
            save_tapes(r, now, c, t);
            next_checkpoint += (int)r.K;
        }
        if (t >= 0)
            named_barrier_sync(LAST_WEIGHTS_READY, threads);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS && t >= 0; p++) {
            read[p] = read_tape(*values, now, c, p);
            c.h[p] = tanh_full(c.sum[p].other + (from_bits(c.next_xp[p], T{}) + bias) + read[p]);
        }
        broadcast_vector<T, QUADS>(s, now, mbar + VECTOR, 0, c.h);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++)
            reduce_slots<side_message>(now, side_part + side_message::row(p, 0, now.q),
                                       [&](int n) { return c.M[p][n] * c.h[p]; });
        named_barrier_arrive(SIDE_PARTS_READY, threads);
        load_xp_save_h(r, c, t, e, read);
        mbarrier_wait(mbar + VECTOR, phase);

        multiply_h(r, s, now, held, c);
        named_barrier_arrive(MAIN_PARTS_READY, threads);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++)
            if (c.live[p] && t >= 0)
                store((T *)r.v + e + (int64_t)4 * p * r.D, c.sum[p].one);
        if (t >= 0)
            named_barrier_sync(FIRST_WEIGHTS_READY, threads);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS && t >= 0; p++)
            write_tape(*values, now, c, p);
    }
    save_column(r, here, c);
}

/* An exchange of the warps' parts of scores: their sums arrive in `messages`. */
struct score_exchange {
    uint64_t *mbar;
    int parts, messages, phase;
};

template <typename MESSAGE, typename PASS>
static __device__ __forceinline__ void
exchange_scores(const recurrence &r, const shape &s, const attention_lane<PASS> &here,
                const score_exchange &x, float scores[attention_lane<PASS>::OWN])
{
    here.template broadcast_message<MESSAGE>(s, x.mbar, x.parts, x.messages);
    mbarrier_wait(x.mbar, x.phase);
    here.template slot_sums<MESSAGE>(s, x.messages, 0, scores);
    scale_scores(r, here, scores);
}

/* Sets the bytes that the block's mbarriers expect in a step. */
template <typename PASS>
static __device__ __forceinline__ void expect_step(const shape &s, const attention_lane<PASS> &here,
                                                   uint64_t *side_mbar, bool query_v)
{
    typedef typename PASS::main_message main_message;
    mbarrier_arrive_expect_tx(here.mbar(VECTOR), vector_bytes(s, PASS::QUADS));
    mbarrier_arrive_expect_tx(side_mbar, message_bytes<typename PASS::side_message>(s));
    mbarrier_arrive_expect_tx(here.mbar(MAIN), scalar_bytes(s, PASS::QUADS) +
                                                   query_v * message_bytes<main_message>(s));
}

/* The role of the attention warps: omega and rho of all steps. */
template <typename PASS>
static __device__ __forceinline__ void attention_forward(const recurrence &r, const shape &s,
                                                         const attention_lane<PASS> &lane0)
{
    typedef typename PASS::side_message side_message;
    typedef typename PASS::main_message main_message;
    typedef attention_lane<PASS> P;
    enum { OWN = P::OWN };
    const bool query_v = r.query == DUAL_QUERY_V;
    const int threads = joint_threads(s);

    for (int t = -1; t < r.steps; t++) {
        const int phase = t + 1, buffer = phase & 1;
        const P here = lane0.opaque_copy(phase);
        typename PASS::attention_values *values =
            here.template at<typename PASS::attention_values>(s.attention);
        const int messages = s.side + buffer * message_buffer_bytes<side_message>(s.cluster);
        uint64_t *main_mbar = here.mbar(MAIN), *side_mbar = here.mbar(SIDE + buffer);
        float h_scores[OWN], scores[OWN], omega[OWN] = {}, rho[OWN];

        if (here.leader())
            expect_step(s, here, side_mbar, query_v);
        named_barrier_sync(SIDE_PARTS_READY, threads);
        exchange_scores<side_message>(r, s, here, {side_mbar, s.side_parts, messages, phase / 2},
                                      h_scores);
        const float max_h = P::ops::row_max(h_scores);
        float bound = max_h;
        #pragma unroll OWN
        for (int k = 0; k < OWN; k++)
            scores[k] = h_scores[k];
        named_barrier_sync(MAIN_PARTS_READY, threads);
        here.broadcast_scalar(s, main_mbar);
        if (query_v) {
            exchange_scores<main_message>(r, s, here, {main_mbar, s.main_parts, s.main, phase},
                                          scores);
            bound = P::ops::row_max(scores);
        }
        if (t >= 0) {
            P::ops::attend(r.attention, omega, scores, bound);
            here.store_slots(&values->omega, omega);
            named_barrier_arrive(FIRST_WEIGHTS_READY, threads);
        }
        if (!query_v)
            mbarrier_wait(main_mbar, phase);
        if (t + 1 == r.steps) {
            save_weights(r, s, here, r.omega, t, omega);
            break;
        }
        const float vh_score = r.scale * here.scalar_sum(s);
        #pragma unroll OWN
        for (int k = 0; k < OWN; k++)
            h_scores[k] = written(h_scores[k], omega[k], vh_score);
        P::ops::attend(r.attention, rho, h_scores, fmaxf(max_h, vh_score));
        here.store_slots(&values->rho, rho);
        named_barrier_arrive(LAST_WEIGHTS_READY, threads);
        save_weights(r, s, here, r.omega, t, omega);
        save_weights(r, s, here, r.rho, t + 1, rho);
    }
}

template <typename PASS>
__global__ void __launch_bounds__(MAX_THREADS, 1) forward_persistent(recurrence r, shape given)
{
    extern __shared__ __align__(16) unsigned char smem[];
    run_roles<PASS>(r, given, smem, columns_forward<PASS>, attention_forward<PASS>);
}

/* ---- launches ---- */

/* Copies W_write and W_h, or their transposes, with leading dimension padded_ld(D). */
template <typename T>
__global__ void copy_rows(T *to, const T *one, const T *other, int D, bool transposed)
{
    enum { SIDE = 32 };
    __shared__ T tile[SIDE][SIDE + 1];
    const T *from = blockIdx.z ? other : one;
    const int row = blockIdx.y * SIDE, column = blockIdx.x * SIDE, ld = padded_ld(D);
    const int above = transposed ? column : row, left = transposed ? row : column;

    for (int i = threadIdx.y; i < SIDE; i += blockDim.y)
        if (above + i < D && left + (int)threadIdx.x < D)
            tile[i][threadIdx.x] = from[(int64_t)(above + i) * D + left + threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.y; i < SIDE; i += blockDim.y) {
        const int k = column + threadIdx.x;
        if (row + i < D && k < ld)
            to[((int64_t)blockIdx.z * D + row + i) * ld + k] = k >= D       ? T{}
                                                               : transposed ? tile[threadIdx.x][i]
                                                                            : tile[i][threadIdx.x];
    }
}

template <typename T>
int pack_weights(struct context *on, recurrence *r, bool transposed)
{
    const unsigned side = (unsigned)ceil_of(padded_ld(r->D), 32);
    const dim3 grid(side, side, 2), block(32, 8);
    T *to = (T *)r->work;

    copy_rows<T><<<grid, block, 0, on->stream>>>(to, (const T *)r->W_write, (const T *)r->W_h, r->D,
                                                 transposed);
    r->W_write = to;
    r->W_h = to + (int64_t)r->D * padded_ld(r->D);
    return cudaGetLastError();
}

#define EACH(T) template int pack_weights<T>(struct context *, recurrence * r, bool transposed);
GPU_TYPES(EACH)

/* Can rows of weights be loaded 16 bytes at a time?  If not, they are copied. */
template <typename T>
static bool rows_aligned(const recurrence &r)
{
    return r.D % COLUMNS == 0 && !((uintptr_t)r.W_write % 16 || (uintptr_t)r.W_h % 16);
}

template <typename T>
static int forward_by(struct context *on, recurrence r, launching *launch)
{
    const int e = rows_aligned<T>(r) ? 0 : pack_weights<T>(on, &r, false);
    return e ? e : launch(on, r);
}

template <typename T>
static int forward(const struct call *f)
{
    return forward_by<T>(f->context, recurrence_in<T>(f, FORWARD), launch_pass<forward_pass, T>);
}

template <typename T>
static int backward(const struct call *f)
{
    return launch_backward<T>(f->context, recurrence_in<T>(f, BACKWARD));
}

template <typename T>
static size_t work(const struct call *f, enum pass p)
{
    const recurrence r = recurrence_of(f);
    return p == FORWARD ? packed_bytes<T>(r) : backward_work<T>(f->context, r);
}

template <typename T>
static const char *declines(const struct call *f)
{
    const recurrence r = recurrence_of(f);
    if (r.N > MAX_SLOTS)
        return "slots beyond 64";
    const char *why = pass_declines<forward_pass, T>(f->context, r);
    return why ? why : backward_declines<T>(f->context, r);
}

GPU_KERNEL_OF(persistent, persistent, .idea = PERSISTENT_IDEA, .pass = {forward<T>, backward<T>},
              .work = work<T>, .declines = dual::declines<T>,
              .approximates = "ex2.approx, rcp.approx", .unit = 3e-7, .stores = "d h",
              .cut = CUT_OFF);

/* ---- template_d: compile-time slots and width, to measure what run-time sizes cost ---- */

typedef __nv_bfloat16 bf16;

static int forward_fixed(const struct call *f)
{
    return forward_by<bf16>(f->context, recurrence_in<bf16>(f, FORWARD),
                            launch_fixed<forward_pass>);
}

static int backward_fixed(const struct call *f)
{
    return launch_backward_fixed(f->context, recurrence_in<bf16>(f, BACKWARD));
}

static const char *fixed_declines(const struct call *f)
{
    const char *why = declines<bf16>(f);
    if (!why && (DIM(f, 'D') != FIXED_WIDTH || DIM(f, 'N') != FIXED_SLOTS))
        why = "only for dim = " NUMBER(FIXED_WIDTH) " and slots = " NUMBER(
            FIXED_SLOTS) ", to measure what run-time sizes cost";
    return why;
}

GPU_KERNEL_FOR(bf16, template_d, template_d, .idea = TEMPLATE_D_IDEA,
               .pass = {forward_fixed, backward_fixed}, .work = work<bf16>,
               .declines = fixed_declines, .approximates = "ex2.approx, rcp.approx", .unit = 3e-7,
               .stores = "d h", .cut = CUT_OFF);

}    // namespace dual
