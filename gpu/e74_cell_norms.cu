/* e74_cell, kernel `norms`: rmsnorm and frobnorm, which tie all numbers of a
 * state to each other, so that one block carries a whole state in registers:
 * eight columns of `rows_each` rows a thread, LANES threads for a row.
 *
 * The norm of P = S + delta k^T is a sum over the block, one barrier a step.
 * With p = S k^ it is
 *
 *     |P|^2 = |S|^2 + sum over rows of delta (2 p + |k^|^2 delta)
 *
 * so |S|^2 is added up beside the dot products, not after the update, and
 * only the rows' numbers are on the chain.  Where that loses digits, because P
 * is much smaller than S, the squares of P are added up themselves; that
 * depends on S and the step alone, so that it is the same in every replay.
 * Bound by latency: dot product, shuffles, barrier, square root, reciprocal.
 *
 * Whatever needs no state is done for all steps at once, in launches of their
 * own: before, the keys are normalised into records, one for each step of a
 * sequence and head; after, outputs and gradients are made of what the
 * carriers have left in them.  Beside the carriers a block has helpers, which
 * bring the records to shared memory a few steps ahead.
 *
 * Backward, segments are replayed side by side, by the kernel of the forward
 * pass, and leave their states in the workspace in the order of the threads;
 * then one block for each sequence and head walks back over them, and each
 * thread brings its own share of the states ahead.  G goes back through the
 * norm by <G, S>, the block's sum, one barrier a step.  What rows add to the
 * keys' gradients is summed over a warp by its carriers, over warps by the
 * helpers, in a fixed order. */
#include "gpu/columns.cuh"
#include "gpu/e74_cell.cuh"
#include "gpu/ptx.cuh"

enum {
    WARPS = 16, /* of carriers that a sum is over, with zeros */
    HELPERS = 64,
    RING = 8,   /* records in shared memory */
    FLAT = 128, /* threads of a block where no state is carried */
    SHARED_MAX = 227 * 1024
};

/* Floats wanted at once, and the blocks that keep a large chip busy, which may
 * take more.  Emulated, so few that tests meet several portions. */
#ifdef CUDA_EMULATE
static const int64_t RECORDS_MAX = 1 << 13, STATES_MAX = 1 << 12, BUSY = 2;
#else
static const int64_t RECORDS_MAX = 1 << 24, STATES_MAX = 20 << 20, BUSY = 132;
#endif

static constexpr __host__ __device__ int rows_each(int lanes)
{
    return lanes == 16 ? 8 : lanes == 8 ? 2 : 1;
}

/* Of a block, at most, so that there are registers enough for the rows. */
static constexpr __host__ __device__ int warps_most(int lanes)
{
    return lanes == 16 ? 8 : lanes == 8 ? 12 : 16;
}

/* States that a thread has on their way. */
static constexpr __host__ __device__ int states_ahead(int lanes)
{
    return lanes == 16 ? 2 : 4;
}

/* ---- how a call is laid out ---- */

/* Where a group's numbers are in its part of a record; -1: not there.  The
 * gradients take the place of what they are gradients of, dv that of delta. */
struct fields {
    int khat, q, u;                         /* [width] */
    int v, z, y, dy, delta, written, reads; /* [slots]; written is S k^ */
    int squares, inverse, along;            /* |k^|^2, 1 / (R + epsilon), 1 / (R m) */
};

/* A group is a run of rows that meet the same columns of the keys: all n, or
 * those of one block of the state.  It takes whole warps. */
struct layout {
    call c;
    fields f;
    int lanes, groups, warps;   /* warps of a group */
    int width, slots;           /* columns and rows of a group, with padding */
    int each, record, tile;     /* floats of a group's part, a record, a stored state */
    float mean;                 /* what the sum of squares is multiplied with */
    int64_t count, span, round; /* at once: sequences and heads, steps, segments of states */
    float *records, *states;    /* [span][count][record], [round][K + 1][count][tile] */

    /* of a launch */
    int64_t first;      /* sequence and head */
    int64_t begin, end; /* steps that there are records of */
    int segment, until; /* segments that are replayed or walked back */
    int query, answer;  /* the dot product that a step leaves: with what, and where */
    const float *from;  /* the state, or its gradient, to begin with */
};

/* A thread's share: its first row within its group. */
struct place {
    bool carries;
    int lane, warp, group, row;
};

template <int LANES>
static __device__ place place_of(const layout &l)
{
    place p;
    p.carries = (int)threadIdx.x < 32 * l.groups * l.warps;
    p.lane = threadIdx.x % LANES;
    p.warp = threadIdx.x / 32;
    p.group = p.warp / l.warps;
    p.row = (p.warp % l.warps * (32 / LANES) + (int)threadIdx.x % 32 / LANES) * rows_each(LANES);
    return p;
}

/* The columns that row r of a thread has in memory: none if it is padding. */
static __device__ int columns_of(const layout &l, const place &p, int r)
{
    return p.carries && p.row + r < l.c.rows ? l.c.columns : 0;
}

/* Where that row begins within a state. */
static __device__ int element_of(const layout &l, const place &p, int r)
{
    return (p.group * l.c.rows + p.row + r) * l.c.columns;
}

static __device__ float *record_of(const layout &l, int64_t t, int64_t b)
{
    return l.records + ((t - l.begin) * l.count + b) * l.record;
}

static __device__ float *state_of(const layout &l, int64_t segment, int64_t s, int64_t b)
{
    return l.states + (((segment - l.segment) * (l.c.K + 1) + s) * l.count + b) * l.tile;
}

/* ---- sums ---- */

/* Each of COUNT numbers is added up over the lanes that differ in bits HIGH to
 * LOW, which share the numbers out among them: half as many after each
 * exchange.  Returns the first that is left to this thread. */
template <int COUNT, int HIGH, int LOW>
static __device__ __forceinline__ int share_out(float *x)
{
    if constexpr (HIGH < LOW) {
        return 0;
    } else if constexpr (COUNT == 1) {
        x[0] += __shfl_xor_sync(0xffffffff, x[0], HIGH);
        return share_out<1, HIGH / 2, LOW>(x);
    } else {
        const int half = COUNT / 2;
        const bool upper = threadIdx.x & HIGH;
        for (int j = 0; j < half; j++) {
            const float given = upper ? x[j] : x[half + j];
            const float kept = upper ? x[half + j] : x[j];
            x[j] = kept + __shfl_xor_sync(0xffffffff, given, HIGH);
        }
        return (upper ? half : 0) + share_out<half, HIGH / 2, LOW>(x);
    }
}

static __device__ __forceinline__ float sum_of_eight(const float *x)
{
    const four<float> a = *(const four<float> *)x, b = *(const four<float> *)(x + 4);
    return ((a.x[0] + a.x[1]) + (a.x[2] + a.x[3])) + ((b.x[0] + b.x[1]) + (b.x[2] + b.x[3]));
}

/* Over the warps, whose sums are followed by zeros. */
static __device__ __forceinline__ float over_warps(const float *sums, int warps)
{
    const float first = sum_of_eight(sums);
    return warps > WARPS / 2 ? first + sum_of_eight(sums + WARPS / 2) : first;
}

/* From rows to the warp. */
template <int LANES>
static __device__ __forceinline__ float over_rows(float x)
{
    for (int d = LANES; d < 32; d *= 2)
        x += __shfl_xor_sync(0xffffffff, x, d);
    return x;
}

/* ---- records on their way to shared memory ---- */

static __device__ __forceinline__ void send_for(float *to, const float *from, int floats)
{
    const int self = (int)threadIdx.x % HELPERS;
    for (int i = 4 * self; from && i < floats; i += 4 * HELPERS)
        cp_async16(to + i, from + i);
    cp_async_commit();
}

/* ---- states ---- */

template <int LANES>
static __device__ void load_state(const layout &l, const place &p, const float *from, eight *S)
{
    for (int r = 0; r < rows_each(LANES); r++)
        S[r] = load_floats<LANES>(from + element_of(l, p, r), columns_of(l, p, r), p.lane);
}

template <int LANES>
static __device__ void store_state(const layout &l, const place &p, float *to, const eight *S)
{
    for (int r = 0; r < rows_each(LANES); r++)
        store_columns<float, LANES>(to + element_of(l, p, r), columns_of(l, p, r), p.lane, S[r]);
}

template <int LANES>
static __device__ void keep_state(const layout &l, const place &p, int64_t slot, const eight *S)
{
    if (l.c.kept == KEPT_F32)
        return store_state<LANES>(l, p, (float *)l.c.checkpoints + slot * l.c.M, S);
    for (int r = 0; r < rows_each(LANES); r++)
        for (int j = 0; j < COLUMNS; j++) {
            const int column = run<LANES>(j / 4, p.lane) + j % 4;
            if (column < columns_of(l, p, r))
                put_kept(l.c, slot, element_of(l, p, r) + column, S[r].x[j]);
        }
}

template <int LANES>
static __device__ void kept_state(const layout &l, const place &p, int64_t slot, eight *S)
{
    if (l.c.kept == KEPT_F32)
        return load_state<LANES>(l, p, (const float *)l.c.checkpoints + slot * l.c.M, S);
    for (int r = 0; r < rows_each(LANES); r++)
        for (int j = 0; j < COLUMNS; j++) {
            const int column = run<LANES>(j / 4, p.lane) + j % 4;
            S[r].x[j] = column < columns_of(l, p, r)
                            ? get_kept(l.c, slot, element_of(l, p, r) + column)
                            : 0;
        }
}

/* In the workspace a state is in the order of the warps, four columns of each
 * thread at a time: quarter i of this thread's. */
template <int LANES>
static __device__ __forceinline__ int quarter(int i)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    return 4 * ((warp * 2 * rows_each(LANES) + i) * 32 + lane);
}

template <int LANES>
static __device__ __forceinline__ void note_state(float *to, const eight *S)
{
    for (int i = 0; i < 2 * rows_each(LANES); i++) {
        four<float> f;
        for (int j = 0; j < 4; j++)
            f.x[j] = S[i / 2].x[i % 2 * 4 + j];
        *(four<float> *)(to + quarter<LANES>(i)) = f;
    }
}

template <int LANES>
static __device__ __forceinline__ eight noted_row(const float *from, int r)
{
    eight row;
    for (int i = 0; i < 2; i++) {
        const four<float> f = *(const four<float> *)(from + quarter<LANES>(2 * r + i));
        for (int j = 0; j < 4; j++)
            row.x[4 * i + j] = f.x[j];
    }
    return row;
}

/* ---- forward, and replay ---- */

/* The sums of the warps, each [WARPS] with zeros behind: those of two
 * neighbouring steps are apart. */
struct sums {
    float *squares, *change, *exact;
};

static __device__ __forceinline__ sums sums_of(float *at, int64_t step)
{
    float *const mine = at + step % 2 * 2 * WARPS;
    return {mine, mine + WARPS, at + 4 * WARPS};
}

enum { SUMS = 5 * WARPS };

/* What a thread takes from a record ahead of the barrier. */
template <int LANES>
struct meal {
    eight write, read;
    float v[rows_each(LANES)], z[rows_each(LANES)], squares;
};

template <int LANES, bool INSIDE>
static __device__ __forceinline__ meal<LANES> serve(const layout &l, const place &p,
                                                    const float *record)
{
    const float *const at = record + p.group * l.each;
    meal<LANES> m;
    m.write = take<LANES>(at + l.f.khat, p.lane);
    m.read = INSIDE ? take<LANES>(at + l.f.u, p.lane) : m.write;
    for (int r = 0; r < rows_each(LANES); r++) {
        m.v[r] = at[l.f.v + p.row + r];
        m.z[r] = l.c.z_outside ? at[l.f.z + p.row + r] : 1;
    }
    m.squares = at[l.f.squares];
    return m;
}

/* Up to the barrier: the residuals, and what the warp adds to |S|^2 and |P|^2. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void approach(const place &p, const meal<LANES> &m,
                                                const eight *S, float *delta, float *reads,
                                                const sums &to)
{
    const int ROWS = rows_each(LANES);
    float along[ROWS], squares = 0, change = 0;

    for (int r = 0; r < ROWS; r++) {
        reads[r] = dot(S[r], m.read);
        along[r] = INSIDE ? dot(S[r], m.write) : 0;
        squares += dot(S[r], S[r]);
    }
    for (int r = 0; r < ROWS; r++) {
        reads[r] = lanes_sum<LANES>(reads[r]);
        along[r] = INSIDE ? lanes_sum<LANES>(along[r]) : reads[r];
        delta[r] = fmaf(-m.z[r], reads[r], m.v[r]);
        change = fmaf(delta[r], fmaf(m.squares, delta[r], 2 * along[r]), change);
    }
    squares = over_rows<LANES>(lanes_sum<LANES>(squares));
    change = over_rows<LANES>(change);
    if (threadIdx.x % 32 == 0) {
        to.squares[p.warp] = squares;
        to.change[p.warp] = change;
    }
}

/* The sum of squares of P, for all threads; S + delta k^T, where the carriers
 * are called, is P. */
template <int LANES>
static __device__ __forceinline__ float squares_of_P(const layout &l, const place &p,
                                                     const meal<LANES> &m, const eight *S,
                                                     const float *delta, const sums &s)
{
    const int warps = l.groups * l.warps;
    const float before = over_warps(s.squares, warps);
    const float after = before + over_warps(s.change, warps);
    if (after >= 0.5f * before)
        return after;

    float squares = 0;
    for (int r = 0; p.carries && r < rows_each(LANES); r++)
        for (int j = 0; j < COLUMNS; j++) {
            const float P = fmaf(delta[r], m.write.x[j], S[r].x[j]);
            squares = fmaf(P, P, squares);
        }
    squares = lanes_sum<32>(squares);
    if (p.carries && threadIdx.x % 32 == 0)
        s.exact[p.warp] = squares;
    __syncthreads();
    return over_warps(s.exact, warps);
}

/* What backward needs to know of a step, into its record. */
template <int LANES>
static __device__ __forceinline__ void note_step(const layout &l, const place &p, float *record,
                                                 const float *delta, const float *reads, float R,
                                                 float inverse)
{
    float *const at = record + p.group * l.each;
    for (int r = 0; p.lane == 0 && r < rows_each(LANES); r++) {
        at[l.f.delta + p.row + r] = delta[r];
        if (l.c.z_outside)
            at[l.f.reads + p.row + r] = reads[r];
    }
    if (p.lane == 0 && p.row == 0) {
        at[l.f.inverse] = inverse;
        at[l.f.along] = R > 0 ? l.mean / R : 0;
    }
}

/* A block carries a state through steps begin ... end - 1, or, in a replay,
 * through one segment of them. */
template <int LANES, bool INSIDE>
__global__ void __launch_bounds__(32 * warps_most(LANES) + HELPERS, 1) carry(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const int ROWS = rows_each(LANES);
    const call &c = l.c;
    const place p = place_of<LANES>(l);
    const bool replays = l.states;
    const int64_t b = blockIdx.x % l.count, segment = l.segment + blockIdx.x / l.count;
    const int64_t bh = l.first + b;
    const int64_t begin = replays ? segment * c.K : l.begin;
    const int steps = (int)((replays ? min(begin + c.K, l.end) : l.end) - begin);
    float *const rest = buffer + RING * l.record;
    float *record = record_of(l, begin, b);
    int64_t keep = begin % c.K ? c.K - begin % c.K : 0, slot = ceil_div(begin, c.K) * c.BH + bh;
    eight S[ROWS];
    meal<LANES> now = {}, then;
    float delta[ROWS] = {}, reads[ROWS] = {};

    for (int i = threadIdx.x; i < SUMS; i += blockDim.x)
        rest[i] = 0;
    if (!p.carries) {
        for (int i = 0; i < RING - 2; i++)
            send_for(buffer + i * l.record, i < steps ? record + i * l.count * l.record : NULL,
                     l.record);
        cp_async_wait<RING - 4>();
    } else if (replays) {
        kept_state<LANES>(l, p, segment * c.BH + bh, S);
    } else {
        load_state<LANES>(l, p, l.from + bh * c.M, S);
    }
    __syncthreads();
    if (p.carries) {
        now = serve<LANES, INSIDE>(l, p, buffer);
        approach<LANES, INSIDE>(p, now, S, delta, reads, sums_of(rest, 0));
    }
    for (int i = 0; i < steps; i++, record += l.count * l.record) {
        const float *const here = buffer + i % RING * l.record;
        eight query;
        if (p.carries) {
            if (replays)
                note_state<LANES>(state_of(l, segment, i, b), S);
            else if (keep-- == 0) {
                keep_state<LANES>(l, p, slot, S);
                slot += c.BH;
                keep = c.K - 1;
            }
            query = take<LANES>(here + p.group * l.each + l.query, p.lane);
            /* (After the last step, the same once more: never used.) */
            then = serve<LANES, INSIDE>(l, p,
                                        i + 1 < steps ? buffer + (i + 1) % RING * l.record : here);
        } else {
            const int ahead = i + RING - 2;
            send_for(buffer + ahead % RING * l.record,
                     ahead < steps ? record + (RING - 2) * l.count * l.record : NULL, l.record);
            cp_async_wait<RING - 4>();
        }
        __syncthreads();
        const float squares = squares_of_P<LANES>(l, p, now, S, delta, sums_of(rest, i));
        if (!p.carries)
            continue;
        const float R = sqrtf(squares * l.mean), inverse = 1 / (R + (float)E74_EPSILON);
        float y[ROWS];
        if (replays)
            note_step<LANES>(l, p, record, delta, reads, R, inverse);
        for (int r = 0; r < ROWS; r++)
            for (int j = 0; j < COLUMNS; j++)
                S[r].x[j] = inverse * fmaf(delta[r], now.write.x[j], S[r].x[j]);
        now = then;
        approach<LANES, INSIDE>(p, now, S, delta, reads, sums_of(rest, i + 1));
        for (int r = 0; r < ROWS; r++)
            y[r] = dot(S[r], query);
        const int mine = share_out<ROWS, LANES / 2, 1>(y);
        if (p.lane % (LANES / ROWS) == 0)
            record[p.group * l.each + l.answer + p.row + mine] = y[0];
    }
    if (!p.carries)
        return;
    if (replays)
        note_state<LANES>(state_of(l, segment, steps, b), S);
    else
        store_state<LANES>(l, p, c.last + bh * c.M, S);
}

/* ---- back ---- */

/* Backward goes through the states of each segment, last first; state 0 is the
 * one before the segment, state s the one after its step s - 1. */
struct cursor {
    int segment, s;
};

static __device__ __forceinline__ cursor next(const layout &l, cursor at)
{
    return at.s ? cursor{at.segment, at.s - 1} : cursor{at.segment - 1, (int)l.c.K};
}

/* The steps of the segment that is the first to be walked back. */
static __device__ __forceinline__ int last_steps(const layout &l)
{
    return (int)(min(l.until * l.c.K, l.end) - (l.until - 1) * l.c.K);
}

/* The one before it on the way. */
static __device__ __forceinline__ cursor previous(const layout &l, cursor at)
{
    const int steps = at.segment == l.until - 1 ? last_steps(l) : (int)l.c.K;
    return at.s < steps ? cursor{at.segment, at.s + 1} : cursor{at.segment + 1, 0};
}

/* The step that leads to a state, and its record; none to a segment's first. */
static __device__ __forceinline__ int64_t step_of(const layout &l, cursor at)
{
    return (int64_t)at.segment * l.c.K + at.s - 1;
}

static __device__ __forceinline__ float *record_at(const layout &l, cursor at, int64_t b)
{
    return at.segment >= l.segment && at.s ? record_of(l, step_of(l, at), b) : NULL;
}

/* This thread's own share of a state on its way to it alone. */
template <int LANES>
static __device__ __forceinline__ void send_for_state(const layout &l, float *to, cursor at,
                                                      int64_t b)
{
    if (at.segment >= l.segment) {
        const float *const from = state_of(l, at.segment, at.s, b);
        for (int i = 0; i < 2 * rows_each(LANES); i++)
            cp_async16(to + quarter<LANES>(i), from + quarter<LANES>(i));
    }
    cp_async_commit();
}

/* The warps' sums of a vector, [warps][width] each: dq, dk^, du. */
static __device__ __forceinline__ float *part_of(const layout &l, float *parts, int vector)
{
    return parts + vector * l.groups * l.warps * l.width;
}

/* Over the rows of a warp, and left for the helpers: [warp][width]. */
template <int LANES>
static __device__ __forceinline__ void leave_columns(const layout &l, const place &p, eight e,
                                                     float *parts)
{
    const int left = LANES > 4 ? LANES / 4 : 1;
    const int first = share_out<COLUMNS, 16, LANES>(e.x);
    float *const to = parts + p.warp * l.width + run<LANES>(first / 4, p.lane) + first % 4;
    if (LANES < 4 && (int)threadIdx.x % 4 / LANES)
        return;
    for (int j = 0; j < left; j++)
        to[j] = e.x[j];
}

static __device__ __forceinline__ void add(eight *e, float weight, const eight &row)
{
    for (int j = 0; j < COLUMNS; j++)
        e->x[j] = fmaf(weight, row.x[j], e->x[j]);
}

/* What the warps left on the way to a state, over the warps of each group: of
 * dq in the step that leads to it, of the keys' gradients in the one after. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void add_up(const layout &l, const float *parts, cursor at,
                                              int64_t b)
{
    const cursor before = previous(l, at);
    const int quads = 2 * LANES;
    float *const of_query = at.s ? record_of(l, step_of(l, at), b) : NULL;
    float *const of_keys =
        before.segment == at.segment ? record_of(l, step_of(l, before), b) : NULL;

    for (int i = (int)threadIdx.x % HELPERS; i < (INSIDE ? 3 : 2) * l.groups * quads;
         i += HELPERS) {
        const int column = i % quads * 4, set = i / quads;
        const int vector = (set >= l.groups) + (set >= 2 * l.groups);
        float *const record = vector ? of_keys : of_query;
        const float *from = parts + set * l.warps * l.width + column;
        four<float> sum = {};
        if (!record)
            continue;
        UNROLL(8)
        for (int w = 0; w < l.warps; w++, from += l.width) {
            const four<float> x = *(const four<float> *)from;
            for (int j = 0; j < 4; j++)
                sum.x[j] += x.x[j];
        }
        float *const part = record + (set - vector * l.groups) * l.each;
        *(four<float> *)(part +
                         (vector == 0   ? l.f.q
                          : vector == 1 ? l.f.khat
                                        : l.f.u) +
                         column) = sum;
    }
}

/* A step back leaves two things for the next, which has the state before it:
 * `left` is dk^ as far as it goes, or, where u is not k^ and dk^ is complete,
 * du, still 0; dreads, of each row, takes the place of dy in the record. */

/* A segment's first state is only for the step after it. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void end_segment(const layout &l, const place &p, float *at,
                                                   const float *after, const float *state,
                                                   eight *left, float *parts)
{
    UNROLL(1)
    for (int r = 0; r < rows_each(LANES); r++) {
        add(left, after[l.f.dy + p.row + r], noted_row<LANES>(state, r));
        if (p.lane == 0)
            at[l.f.dy + p.row + r] = 0;
    }
    leave_columns<LANES>(l, p, *left, part_of(l, parts, INSIDE ? 2 : 1));
    *left = {};
}

/* Up to the barrier: G takes dy q^T in; G k^ over each row, and what the warp
 * adds to <G, S>. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void
approach_back(const layout &l, const place &p, const float *at, const float *after,
              const float *state, eight *S, eight *G, float *ddelta, eight *left, float *sums,
              float *parts)
{
    const int ROWS = rows_each(LANES);
    float dy[ROWS], along = 0;
    eight dq = {}, key = take<LANES>(at + l.f.q, p.lane);

    for (int r = 0; r < ROWS; r++) {
        dy[r] = at[l.f.dy + p.row + r];
        add(&G[r], dy[r], key);
    }
    key = take<LANES>(at + l.f.khat, p.lane);
    for (int r = 0; r < ROWS; r++) {
        S[r] = noted_row<LANES>(state, r);
        ddelta[r] = dot(G[r], key);
        along += dot(G[r], S[r]);
        add(&dq, dy[r], S[r]);
        add(left, after[l.f.dy + p.row + r], S[r]);
    }
    for (int r = 0; r < rows_each(LANES); r++)
        ddelta[r] = lanes_sum<LANES>(ddelta[r]);
    along = lanes_sum<32>(along);
    if (threadIdx.x % 32 == 0)
        sums[p.warp] = along;
    leave_columns<LANES>(l, p, dq, part_of(l, parts, 0));
    leave_columns<LANES>(l, p, *left, part_of(l, parts, INSIDE ? 2 : 1));
}

/* And from there: G through the norm and the update.  (The parts are the next
 * state's.) */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void
retreat(const layout &l, const place &p, float *at, float *record, const float *state, eight *S,
        eight *G, const float *ddelta, const float *sums, eight *left, float *parts)
{
    const int ROWS = rows_each(LANES);
    const float inverse = at[l.f.inverse];
    const float along = at[l.f.along] * over_warps(sums, l.groups * l.warps);
    const eight read = take<LANES>(at + (INSIDE ? l.f.u : l.f.khat), p.lane);

    *left = {};
    for (int r = 0; r < ROWS; r++) {
        const int row = p.row + r;
        const float delta = at[l.f.delta + row], z = l.c.z_outside ? at[l.f.z + row] : 1;
        const float dv = fmaf(-along, at[l.f.written + row], inverse * ddelta[r]);
        const float dreads = -dv * z;
        if (ROWS > 2) /* too many to be kept beside G */
            S[r] = noted_row<LANES>(state, r);
        for (int j = 0; j < COLUMNS; j++)
            G[r].x[j] = fmaf(-along, S[r].x[j], inverse * G[r].x[j]);
        add(left, delta, G[r]);
        add(&G[r], dreads, read);
        if (p.lane == 0) {
            record[p.group * l.each + l.f.delta + row] = dv;
            at[l.f.dy + row] = dreads;
        }
    }
    if (INSIDE) {
        leave_columns<LANES>(l, p, *left, part_of(l, parts, 1));
        *left = {};
    }
}

static __host__ __device__ int parts_floats(const layout &l)
{
    return (l.c.z_inside ? 3 : 2) * l.groups * l.warps * l.width;
}

template <int LANES, bool INSIDE>
__global__ void __launch_bounds__(32 * warps_most(LANES) + HELPERS, 1) walk_back(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const int ROWS = rows_each(LANES), AHEAD = states_ahead(LANES), each = parts_floats(l);
    const call &c = l.c;
    const place p = place_of<LANES>(l);
    const int64_t b = blockIdx.x, bh = l.first + b;
    float *const sums = buffer + RING * l.record, *const parts = sums + 2 * WARPS;
    float *const states = parts + 2 * each;
    cursor at = {l.until - 1, last_steps(l)}, ahead = at;
    eight G[ROWS], S[ROWS], left = {};
    float ddelta[ROWS] = {};

    for (int i = threadIdx.x; i < 2 * WARPS; i += blockDim.x)
        sums[i] = 0;
    for (int i = threadIdx.x; i < l.record; i += blockDim.x)
        buffer[(RING - 1) * l.record + i] = 0; /* no step comes after the last */
    if (p.carries) {
        for (int i = 0; i < AHEAD; i++, ahead = next(l, ahead))
            send_for_state<LANES>(l, states + i * l.tile, ahead, b);
        load_state<LANES>(l, p, l.from + bh * c.M, G);
    } else {
        for (int i = 0; i < RING - 2; i++, ahead = next(l, ahead))
            send_for(buffer + i * l.record, record_at(l, ahead, b), l.record);
        cp_async_wait<RING - 3>();
    }
    __syncthreads();
    int i = 0;
    for (; at.segment >= l.segment; i++) {
        float *const here = buffer + i % RING * l.record + p.group * l.each;
        const float *const after = buffer + (i + RING - 1) % RING * l.record + p.group * l.each;
        float *const mine = parts + i % 2 * each, *const state = states + i % AHEAD * l.tile;
        if (p.carries) {
            cp_async_wait<AHEAD - 1>();
            if (at.s)
                approach_back<LANES, INSIDE>(l, p, here, after, state, S, G, ddelta, &left,
                                             sums + i % 2 * WARPS, mine);
            else
                end_segment<LANES, INSIDE>(l, p, here, after, state, &left, mine);
        } else {
            send_for(buffer + (i + RING - 2) % RING * l.record, record_at(l, ahead, b), l.record);
            cp_async_wait<RING - 3>();
            if (i > 0)
                add_up<LANES, INSIDE>(l, parts + (i + 1) % 2 * each, previous(l, at), b);
        }
        __syncthreads();
        if (p.carries && at.s)
            retreat<LANES, INSIDE>(l, p, here, record_of(l, step_of(l, at), b), state, S, G, ddelta,
                                   sums + i % 2 * WARPS, &left, parts + (i + 1) % 2 * each);
        if (p.carries) {
            send_for_state<LANES>(l, state, ahead, b);
            __syncwarp(); /* dreads */
        }
        at = next(l, at);
        ahead = next(l, ahead);
    }
    if (p.carries)
        store_state<LANES>(l, p, c.dfirst + bh * c.M, G);
    else
        add_up<LANES, INSIDE>(l, parts + (i + 1) % 2 * each, {l.segment, 0}, b);
}

/* ---- what needs no state: a warp for each record's part ---- */

struct item {
    bool any;
    int lane;
    float *part;
    int64_t at; /* where its numbers begin in [T,BH,N] */
};

static __device__ item item_of(const layout &l)
{
    const int64_t i = ((int64_t)blockIdx.x * FLAT + threadIdx.x) / 32;
    const int64_t group = i % l.groups, b = i / l.groups % l.count;
    const int64_t t = l.begin + i / l.groups / l.count;
    return {t < l.end, (int)threadIdx.x % 32, record_of(l, t, b) + group * l.each,
            (t * l.c.BH + l.first + b) * l.c.N + group * l.c.rows};
}

template <typename T>
static __device__ float number(const void *from, int64_t at, bool any)
{
    return any ? load((const T *)from + at) : 0;
}

/* The keys, normalised; v, z, and on the way back dy; zeros behind them. */
template <typename T, bool BACK>
__global__ void __launch_bounds__(FLAT) prepare(layout l)
{
    const call &c = l.c;
    const item m = item_of(l);
    float squares = 0;

    if (!m.any)
        return;
    for (int j = m.lane; j < c.columns; j += 32) {
        const float k = number<T>(c.k, m.at + j, true);
        squares = fmaf(k, k, squares);
    }
    const float scale = sqrtf(lanes_sum<32>(squares)) + (float)E74_EPSILON;
    squares = 0;
    for (int j = m.lane; j < l.width; j += 32) {
        const bool any = j < c.columns;
        const float khat = number<T>(c.k, m.at + j, any) / scale;
        squares = fmaf(khat, khat, squares);
        m.part[l.f.khat + j] = khat;
        m.part[l.f.q + j] = number<T>(c.q, m.at + j, any);
        if (c.z_inside)
            m.part[l.f.u + j] = number<T>(c.z, m.at + j, any) * khat;
    }
    squares = lanes_sum<32>(squares);
    if (m.lane == 0)
        m.part[l.f.squares] = squares;
    for (int j = m.lane; j < l.slots; j += 32) {
        const bool any = j < c.rows;
        m.part[l.f.v + j] = number<T>(c.v, m.at + j, any);
        if (c.z_outside)
            m.part[l.f.z + j] = number<T>(c.z, m.at + j, any);
        if (BACK) {
            const float y = number<T>(c.y, m.at + j, any), gate = 1 / (1 + expf(-y));
            m.part[l.f.dy + j] = number<T>(c.dout, m.at + j, any) * y * gate * (2 + y * (1 - gate));
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(FLAT) put_outputs(layout l)
{
    const item m = item_of(l);
    for (int j = m.lane; m.any && j < l.c.rows; j += 32) {
        const float y = m.part[l.f.y + j];
        store((T *)l.c.y + m.at + j, y);
        store((T *)l.c.out + m.at + j, y * y / (1 + expf(-y)));
    }
}

/* From the sums over rows to the gradients of k, q, v and z. */
template <typename T>
__global__ void __launch_bounds__(FLAT) put_gradients(layout l)
{
    const call &c = l.c;
    const item m = item_of(l);
    float squares = 0, along = 0;

    if (!m.any)
        return;
    for (int j = m.lane; j < c.columns; j += 32) {
        const float k = number<T>(c.k, m.at + j, true);
        float *const dkhat = m.part + l.f.khat + j;
        if (c.z_inside)
            *dkhat = fmaf(number<T>(c.z, m.at + j, true), m.part[l.f.u + j], *dkhat);
        squares = fmaf(k, k, squares);
        along = fmaf(k, *dkhat, along);
    }
    const float length = sqrtf(lanes_sum<32>(squares)), scale = length + (float)E74_EPSILON;
    along = lanes_sum<32>(along);
    along = length > 0 ? along / (length * scale * scale) : 0;
    for (int j = m.lane; j < c.columns; j += 32) {
        const float k = number<T>(c.k, m.at + j, true), dq = m.part[l.f.q + j];
        const float dv = m.part[l.f.delta + j];
        float dk = fmaf(-along, k, m.part[l.f.khat + j] / scale), dz = 0;
        if (!c.dq)
            dk += dq;
        if (!c.dv)
            dk += dv;
        store((T *)c.dk + m.at + j, dk);
        if (c.dq)
            store((T *)c.dq + m.at + j, dq);
        if (c.dv)
            store((T *)c.dv + m.at + j, dv);
        if (c.z_inside)
            dz = m.part[l.f.u + j] * (k / scale);
        if (c.z_outside)
            dz = fmaf(-dv, m.part[l.f.reads + j], dz);
        if (c.dz)
            store((T *)c.dz + m.at + j, dz);
    }
}

/* ---- launches ---- */

static int64_t within(int64_t x, int64_t least, int64_t most)
{
    return x > most ? most : x < least ? least : x;
}

static fields fields_of(const layout &l, enum pass pass, int *each)
{
    const call &c = l.c;
    const bool back = pass == BACKWARD;
    fields f;
    int n = 0;
    struct {
        int *at;
        bool any;
        int floats;
    } all[] = {
        {&f.khat, true, l.width},
        {&f.q, true, l.width},
        {&f.u, c.z_inside != 0, l.width},
        {&f.v, true, l.slots},
        {&f.z, c.z_outside != 0, l.slots},
        {&f.y, !back, l.slots},
        {&f.dy, back, l.slots},
        {&f.delta, back, l.slots},
        {&f.written, back, l.slots},
        {&f.reads, back && c.z_outside, l.slots},
        {&f.squares, true, 1},
        {&f.inverse, true, 1},
        {&f.along, true, 1},
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        *all[i].at = all[i].any ? n : -1;
        n += all[i].any ? all[i].floats : 0;
    }
    *each = (n + 3) / 4 * 4;
    return f;
}

static layout layout_of(const struct frame *f, enum pass pass)
{
    layout l = {};
    call &c = l.c = call_of(f);

    for (l.lanes = 1; COLUMNS * l.lanes < c.columns; l.lanes *= 2)
        ;
    const int warp = 32 / l.lanes * rows_each(l.lanes);
    l.groups = c.N / c.rows;
    l.warps = (int)ceil_div(c.rows, warp);
    l.width = COLUMNS * l.lanes;
    l.slots = l.warps * warp;
    l.tile = l.groups * l.slots * l.width;
    l.f = fields_of(l, pass, &l.each);
    l.record = l.groups * l.each;
    l.mean = c.nonlin == E74_RMSNORM ? 1 / (float)c.M : 1;

    const int64_t segments = ceil_div(c.T, c.K), least = BUSY < c.BH ? BUSY : c.BH;
    if (pass == FORWARD) {
        l.count = within(RECORDS_MAX / l.record, least, c.BH);
        l.span = within(RECORDS_MAX / (l.count * l.record), 1, c.T);
        return l;
    }
    l.count = within(STATES_MAX / ((c.K + 1) * l.tile), least, c.BH);
    l.span = within(RECORDS_MAX / (c.K * l.count * l.record), 1, segments) * c.K;
    l.round = within(STATES_MAX / ((c.K + 1) * l.count * l.tile), 1, l.span / c.K);
    return l;
}

/* The parts of the workspace; returns its floats. */
static int64_t divide(layout *l, enum pass pass, float *work)
{
    const int64_t records = l->span * l->count * l->record;
    l->records = work;
    l->states = pass == FORWARD ? NULL : work + records;
    return records + (pass == FORWARD ? 0 : l->round * (l->c.K + 1) * l->count * l->tile);
}

struct kernels {
    void (*carry)(layout), (*walk_back)(layout);
};

template <int LANES>
static kernels kernels_of(const layout &l)
{
    return l.c.z_inside ? kernels{carry<LANES, true>, walk_back<LANES, true>}
                        : kernels{carry<LANES, false>, walk_back<LANES, false>};
}

static kernels kernels_of(const layout &l)
{
    switch (l.lanes) {
    case 1: return kernels_of<1>(l);
    case 2: return kernels_of<2>(l);
    case 4: return kernels_of<4>(l);
    case 8: return kernels_of<8>(l);
    default: return kernels_of<16>(l);
    }
}

static size_t shared_bytes(const layout &l, bool back)
{
    const int walk = 2 * WARPS + 2 * parts_floats(l) + states_ahead(l.lanes) * l.tile;
    return sizeof(float) * (RING * l.record + (back ? walk : SUMS));
}

static int launch_carriers(const layout &l, void (*kernel)(layout), int64_t blocks, bool back)
{
    const int threads = 32 * l.groups * l.warps + HELPERS;
    const size_t shared = shared_bytes(l, back);

    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    kernel<<<blocks, threads, shared, gpu_stream()>>>(l);
    return cudaGetLastError();
}

static int launch_flat(const layout &l, void (*kernel)(layout))
{
    const int64_t items = (l.end - l.begin) * l.count * l.groups;
    kernel<<<ceil_div(32 * items, FLAT), FLAT, 0, gpu_stream()>>>(l);
    return cudaGetLastError();
}

template <typename T>
static int forward(const struct frame *f)
{
    layout l = layout_of(f, FORWARD);
    const int64_t most = l.count;

    divide(&l, FORWARD, (float *)f->work);
    l.query = l.f.q;
    l.answer = l.f.y;
    for (l.first = 0; l.first < l.c.BH; l.first += most) {
        l.count = within(l.c.BH - l.first, 1, most);
        for (l.begin = 0; l.begin < l.c.T; l.begin = l.end) {
            l.end = within(l.begin + l.span, 1, l.c.T);
            l.from = l.begin ? l.c.last : l.c.first;
            CUDA((cudaError_t)launch_flat(l, prepare<T, false>));
            CUDA((cudaError_t)launch_carriers(l, kernels_of(l).carry, l.count, false));
            CUDA((cudaError_t)launch_flat(l, put_outputs<T>));
        }
    }
    return 0;
}

/* Replay and walk back all segments that there are records of, some at a time. */
static int go_back(layout l)
{
    const kernels k = kernels_of(l);
    const int begin = (int)(l.begin / l.c.K);

    l.query = l.f.khat;
    l.answer = l.f.written;
    for (l.until = (int)ceil_div(l.end, l.c.K); l.until > begin; l.until = l.segment) {
        l.segment = (int)within(l.until - l.round, begin, l.until);
        l.from = l.until * l.c.K < l.c.T ? l.c.dfirst : l.c.dlast;
        CUDA((cudaError_t)launch_carriers(l, k.carry, (l.until - l.segment) * l.count, false));
        CUDA((cudaError_t)launch_carriers(l, k.walk_back, l.count, true));
    }
    return 0;
}

template <typename T>
static int backward(const struct frame *f)
{
    layout l = layout_of(f, BACKWARD);
    const int64_t most = l.count, rows = l.span;

    divide(&l, BACKWARD, (float *)f->work);
    for (l.first = 0; l.first < l.c.BH; l.first += most) {
        l.count = within(l.c.BH - l.first, 1, most);
        for (l.end = l.c.T; l.end > 0; l.end = l.begin) {
            l.begin = within(ceil_div(l.end, l.c.K) * l.c.K - rows, 0, l.end);
            CUDA((cudaError_t)launch_flat(l, prepare<T, true>));
            CUDA((cudaError_t)go_back(l));
            CUDA((cudaError_t)launch_flat(l, put_gradients<T>));
        }
    }
    return 0;
}

static size_t work(const struct frame *f, enum pass p)
{
    layout l = layout_of(f, p);
    return sizeof(float) * divide(&l, p, NULL);
}

static const char *declines(const struct frame *f)
{
    int state = f->choice[E74_STATE], nonlin = f->choice[E74_NONLIN];
    const char *no = e74_plain32.declines(f);
    if (no)
        return no;
    if (state != E74_FULL && state != E74_BLOCKDIAG)
        return "only for state = full and blockdiag";
    if (nonlin != E74_RMSNORM && nonlin != E74_FROBNORM)
        return "only for nonlin = rmsnorm and frobnorm";
    if (DIM(f, state == E74_FULL ? 'N' : 'L') == 1)
        return "rows of one number: their gradients are what a cancellation leaves";
    if (DIM(f, state == E74_FULL ? 'N' : 'L') > COLUMNS * 16)
        return state == E74_FULL ? "n_state beyond 128: the state does not fit a block's registers"
                                 : "block_size beyond 128: not enough threads for a row";
    const layout l = layout_of(f, BACKWARD);
    if (l.groups * l.warps > warps_most(l.lanes))
        return "the blocks of the state need more warps than a block has";
    if (shared_bytes(l, true) > SHARED_MAX)
        return "a few steps do not fit shared memory";
    return NULL;
}

static const char name[] = "norms", idea[] = "a state in a block's registers, one barrier a step";

GPU_IMPL(extern "C", 32, float, e74_norms, name, idea, work, declines, NULL, 0);
GPU_IMPL(extern "C", 16, __nv_bfloat16, e74_norms, name, idea, work, declines, NULL, 0);
