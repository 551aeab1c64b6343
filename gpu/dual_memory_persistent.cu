/* dual_memory, kernel `persistent`, forward: one launch, a cluster of up to 16 blocks
 * for four or eight sequences, weights and tapes on chip.
 *
 * A step has two exchanges, by words that count what has come: nobody meets at a barrier
 * of the cluster.
 *
 *     every column     read; h                                  -> h to all blocks
 *     (meanwhile       <M_n, h> over own columns                -> to all blocks, aside)
 *     every column     v = W_write h and W_h h of the next step, in one product
 *     every column     <v, h> over own columns; <M_n, v> if the query is v
 *                                                               -> to all blocks
 *     (meanwhile       omega and the write, if the query is h)
 *     every sequence   omega and the write, if the query is v; rho of the next reading
 *
 * for what the next step reads by is <M'_n, h> = (1 - omega_n) <M_n, h> + omega_n <v, h>:
 * no third exchange.  Every warp works its sequences' attention out for itself, all alike.
 * What one exchange brings is overwritten only by those who have got the other that
 * follows it; the letters aside, which nobody waits for at once, have two places and two
 * inboxes, in turns.
 *
 * Bound by the latency of instructions, of which a warp has 830 a step: nobody waits for
 * what the exchanges bring. */
#include "gpu/dual_memory_persistent.cuh"

template <typename PASS>
__global__ void forward_persistent(recurrence r, shape given);

/* As many as spill none (tests/spills.sh), where a lane has so many slots. */
static constexpr int turns_held(int bytes, int slots, int width)
{
    return bytes == 4 ? (slots == 8 ? 3 : slots == 16 ? 2 : 1) : slots <= (width ? 16 : 32) ? 4 : 3;
}

template <typename T, int SLOTS, int QUADS, int WIDTH>
struct onward : pass_of<T, SLOTS, QUADS, WIDTH> {
    enum {
        VECTORS = 1,
        SCALARS = 1,
        SIDES = 2,
        TAPES = 0,
        TURNS = turns_held(sizeof(T), SLOTS *QUADS, WIDTH)
    };
    typedef letter<SLOTS, QUADS, 1> side_letter, main_letter;
    typedef paid<main_letter> attentions;
    static constexpr clusters_kernel *kernel = forward_persistent<onward>;
};

/* What a thread has of its column: of each of its sequences. */
template <typename PASS>
struct column {
    enum { SLOTS = PASS::SLOTS, QUADS = PASS::QUADS };
    float M[QUADS][SLOTS], h[QUADS];
    two sum[QUADS]; /* v, and W_h h for the next step */
    bool live[QUADS];
};

/* The tapes before step t to a checkpoint. */
template <typename PASS>
static __device__ __forceinline__ void keep_tapes(const recurrence &r, const seat &here,
                                                  const column<PASS> &c, int t)
{
    UNROLL(PASS::QUADS)
    for (int p = 0; p < PASS::QUADS; p++) {
        const int64_t slot = t / (int)r.K * r.batch + here.row + 4 * p;
        UNROLL(PASS::SLOTS)
        for (int n = 0; n < PASS::SLOTS; n++)
            if (c.live[p] && n < r.N)
                put_kept(r, slot, (int64_t)n * r.D + here.column, c.M[p][n]);
    }
}

/* Scores to attention; those of slots that are not there to nothing. */
template <typename PASS>
static __device__ __forceinline__ void attend(const recurrence &r, const seat &here, float p[],
                                              const float scores[])
{
    enum { OWN = PASS::main_letter::OWN };
    float a[OWN];
    UNROLL(OWN)
    for (int k = 0; k < OWN; k++)
        a[k] = here.i * OWN + k < r.N ? r.scale * scores[k] : -INFINITY;
    attention<PASS::SLOTS, OWN, 4>::attend(r.attention, p, a);
}

/* omega of step t or rho of it, [T,B,N], once of a cluster: by one of its warps. */
template <typename PASS>
static __device__ __forceinline__ void keep_attention(const recurrence &r, const shape &s,
                                                      const seat &here, int warp, float *kept,
                                                      int t, int quad, const float x[])
{
    enum { OWN = PASS::main_letter::OWN };
    const int row = here.row + 4 * quad;
    if (here.warp != warp || row >= r.batch || here.rank != (row & (s.cluster - 1)))
        return;
    float *to = kept + (t * r.batch + row) * r.N + here.i * OWN;
    UNROLL(OWN)
    for (int k = 0; k < OWN; k++)
        if (here.i * OWN + k < r.N)
            to[k] = x[k];
}

/* omega of a sequence from its scores, and the write. */
template <typename PASS>
static __device__ __forceinline__ void pay_and_write(const recurrence &r, const shape &s,
                                                     const seat &here, column<PASS> *c, int t,
                                                     int quad, const float scores[], float omega[])
{
    typedef typename PASS::main_letter letters;
    paid<letters> *told = here.at<typename PASS::attentions>(s.slots) + here.warp;

    attend<PASS>(r, here, omega, scores);
    keep_attention<PASS>(r, s, here, 0, r.omega, t, quad, omega);
    tell_warp(here, told, quad, omega);
    __syncwarp();
    float *M = c->M[quad];
    const float v = c->sum[quad].one;
    UNROLL(16)
    for (int n = 0; n < PASS::SLOTS; n += 4) {
        float x[4];
        four_of(*told, here, quad, n, x);
        UNROLL(4)
        for (int k = 0; k < 4; k++)
            M[n + k] = written(M[n + k], x[k], v);
    }
    __syncwarp();
}

template <typename PASS>
__global__ void __launch_bounds__(THREADS_MOST, 1) forward_persistent(recurrence r, shape given)
{
    extern __shared__ __align__(16) unsigned char memory[];
    typedef typename PASS::type T;
    typedef typename PASS::side_letter side_letter;
    typedef typename PASS::main_letter main_letter;
    enum { SLOTS = PASS::SLOTS, QUADS = PASS::QUADS, OWN = main_letter::OWN };
    enum { VECTOR, MAIN, SIDE }; /* the inboxes; of side letters two */
    const shape s = PASS::WIDTH != 0 ? shape_of<PASS>(PASS::WIDTH, given.cluster) : given;
    if (PASS::WIDTH != 0)
        r.D = PASS::WIDTH, r.N = SLOTS;
    const seat here = seat_of(s, QUADS, memory);
    const bool by_v = r.query == DUAL_QUERY_V;
    uint64_t *inbox = here.at<uint64_t>(0);
    paid<main_letter> *told = here.at<typename PASS::attentions>(s.slots) + here.warp;
    float *side_part = here.at<float>(s.side_parts) + here.warp * side_letter::FLOATS;
    float *main_part = here.at<float>(s.main_parts) + here.warp * main_letter::FLOATS;
    uint4 held[held_of<PASS>()];
    column<PASS> c;
    float bias;
    T xp[QUADS] = {};
    int64_t e = (here.row - r.batch) * r.D + here.column; /* of [T,B,D], the first sequence's */

    fetch_weights<PASS>(s, here, (const T *)r.W_write, (const T *)r.W_h, r.D, held);
    for (int k = threadIdx.x; k < (s.weights - s.vector) / 16; k += s.warps * 32)
        here.at<uint4>(s.vector)[k] = {};
    bias = here.column < r.D ? load((const T *)r.b_h + here.column) : 0;
    UNROLL(QUADS)
    for (int p = 0; p < QUADS; p++) {
        const int row = here.row + 4 * p;
        c.live[p] = row < r.batch && here.column < r.D;
        c.h[p] = c.live[p] ? r.h0[(int64_t)row * r.D + here.column] : 0;
        c.sum[p] = {};
        UNROLL(SLOTS)
        for (int n = 0; n < SLOTS; n++)
            c.M[p][n] = c.live[p] && n < r.N
                            ? r.M0[(r.each ? row * r.M : 0) + (int64_t)n * r.D + here.column]
                            : 0;
    }
    if (threadIdx.x < INBOXES)
        inbox_open(inbox + threadIdx.x);
    __syncthreads();
    cluster_arrive();
    cluster_wait();

    int next_kept = 0;
    for (int t = -1; t < r.steps; t++, e += r.batch * r.D) {
        const int turn = t + 1, odd = turn & 1;
        const int letters = s.side + odd * letters_room<side_letter>(s.cluster);
        if (here.lane == 0 && here.warp == s.warps / 2) {
            inbox_expect(inbox + VECTOR, vector_bytes(s, QUADS));
            inbox_expect(inbox + SIDE + odd, letter_bytes<side_letter>(s));
            inbox_expect(inbox + MAIN,
                         scalars_bytes(s, QUADS) + by_v * letter_bytes<main_letter>(s));
        }
        if (t == next_kept) {
            keep_tapes(r, here, c, t);
            next_kept += (int)r.K;
        }
        float read[QUADS] = {};
        UNROLL(QUADS)
        for (int p = 0; p < QUADS && t >= 0; p++) {
            float part[4] = {}, rho[4];
            UNROLL(16)
            for (int n = 0; n < SLOTS; n += 4) {
                four_of(*told, here, p, n, rho);
                UNROLL(4)
                for (int k = 0; k < 4; k++)
                    part[k] = fmaf(rho[k], c.M[p][n + k], part[k]);
            }
            read[p] = part[0] + part[1] + (part[2] + part[3]);
            c.h[p] = tanh_full(c.sum[p].other + load(xp + p) + read[p] + bias);
        }
        post_vector<T, QUADS>(s, here, inbox + VECTOR, 0, c.h);
        UNROLL(QUADS)
        for (int p = 0; p < QUADS; p++) {
            const int64_t at = e + (int64_t)4 * p * r.D;
            if (c.live[p] && t + 1 < r.steps)
                xp[p] = ((const T *)r.xp)[at + r.batch * r.D];
            if (c.live[p] && t >= 0) {
                r.h[at] = c.h[p];
                if (r.read)
                    store((T *)r.read + at, read[p]);
            }
            fold_slots<side_letter>(here, side_part + (4 * p + here.q) * side_letter::APART,
                                    [&](int n) { return c.M[p][n] * c.h[p]; });
        }
        post_letter<side_letter>(s, here, inbox + SIDE + odd, s.side_parts, letters);
        inbox_wait(inbox + VECTOR, turn);

        multiply<PASS, BOTH_SUMS>(s, here, held, s.vector, c.sum);
        float both[QUADS];
        T v[QUADS];
        UNROLL(QUADS)
        for (int p = 0; p < QUADS; p++) {
            store(v + p, c.sum[p].one);
            c.sum[p].one = load(v + p);
            both[p] = over_columns(c.sum[p].one * c.h[p]);
        }
        post_scalars<QUADS>(s, here, inbox + MAIN, both);
        UNROLL(QUADS)
        for (int p = 0; p < QUADS; p++) {
            if (c.live[p] && t >= 0)
                ((T *)r.v)[e + (int64_t)4 * p * r.D] = v[p];
            if (by_v)
                fold_slots<main_letter>(here, main_part + (4 * p + here.q) * main_letter::APART,
                                        [&](int n) { return c.M[p][n] * c.sum[p].one; });
        }
        if (by_v)
            post_letter<main_letter>(s, here, inbox + MAIN, s.main_parts, s.main);

        float by_h[QUADS][OWN], omega[QUADS][OWN] = {};
        inbox_wait(inbox + SIDE + odd, turn / 2);
        UNROLL(QUADS)
        for (int p = 0; p < QUADS; p++) {
            slot_sums<side_letter>(s, here, letters, 0, p, by_h[p]);
            if (!by_v && t >= 0)
                pay_and_write(r, s, here, &c, t, p, by_h[p], omega[p]);
        }
        inbox_wait(inbox + MAIN, turn);
        UNROLL(QUADS)
        for (int p = 0; p < QUADS; p++) {
            float rho[OWN];
            if (by_v && t >= 0) {
                slot_sums<main_letter>(s, here, s.main, 0, p, rho);
                pay_and_write(r, s, here, &c, t, p, rho, omega[p]);
            }
            const float sum = scalar_sum<QUADS>(s, here, p);
            UNROLL(OWN)
            for (int k = 0; k < OWN; k++)
                by_h[p][k] = written(by_h[p][k], omega[p][k], sum);
            attend<PASS>(r, here, rho, by_h[p]);
            tell_warp(here, told, p, rho);
            if (t + 1 < r.steps)
                keep_attention<PASS>(r, s, here, s.warps - 1, r.rho, t + 1, p, rho);
        }
        __syncthreads(); /* nobody reads this step's h any more */
    }
    UNROLL(QUADS)
    for (int p = 0; p < QUADS; p++) {
        const int row = here.row + 4 * p;
        if (!c.live[p])
            continue;
        r.h_T[(int64_t)row * r.D + here.column] = c.h[p];
        UNROLL(SLOTS)
        for (int n = 0; n < SLOTS; n++)
            if (n < r.N)
                r.M_T[row * r.M + (int64_t)n * r.D + here.column] = c.M[p][n];
    }
    cluster_arrive();
    cluster_wait();
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
