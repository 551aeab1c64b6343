/* e74_cell, kernel `norms`: rmsnorm and frobnorm, which couple all elements of a
 * state, so that one block holds a whole state in registers: eight columns of
 * `rows_per_thread` rows per thread, LANES threads per row.
 *
 * The division by the norm is deferred: S = Shat / C, and only the scalar C is
 * updated by it.  With r = Shat u, p = Shat k^, all on the scale of Shat,
 *
 *     delta = C v - z r,   Shat <- Shat + delta k^T
 *     |Shat|^2 <- |Shat|^2 + sum over rows of delta (2 p + |k^|^2 delta)
 *     C <- epsilon C + R,  R = |Shat| (or the root of its mean square)
 *
 * so that a step has one block-wide sum, over values of the rows, one barrier, and a
 * root whose latency only the next step's C v waits for, in parallel to the dot
 * products.  Where the sum loses digits, because P is much smaller than S has been,
 * or comes near overflow or underflow, the squares of P are summed directly.
 *
 * Steps are grouped into runs, which begin at multiples of 16 (or less, where
 * shared memory is short).  At a run's begin S replaces Shat and its squares are
 * summed directly, so that a run's bits depend on its first state alone; with fp32
 * checkpoints backward replays from those at which a run begins.
 *
 * Backward, first all segments are replayed in parallel, by the kernel of the
 * forward pass, which stores the vectors of each step, and one state per run.  Then
 * one block per sequence and head scans backward, without states: with
 * c = 1 / (R + epsilon), g = <G, S>, a = g / (m R), w = S k^, G = Gamma + beta S,
 *
 *     dv = c Gamma k^ + (c beta - a) w,   dreads = -z dv,   beta <- c (c beta - a)
 *     Gamma <- c Gamma + beta delta k^T + dreads u^T,       Gamma += dy q^T
 *     g <- epsilon c g + sum over rows of (dy y - dv v)
 *
 * (the first line with beta before, the second with beta after; y and dy are
 * those of the step before), Gamma again a scalar E times the registers, and beta
 * is folded in where a run begins, as its state is stored.  (Where E grows before
 * that, beta grows with its square and digits would be lost: there the state is
 * recomputed from the run's first, and beta folded in at once.)  What remains are
 * sums over rows, for all runs in parallel, four columns per thread:
 *
 *     dk^ = dP^T delta + S_{t-1}^T dreads,   dq = S^T dy
 *     dP^T delta = c Gamma^T delta + beta (S_{t-1} + delta k^T)^T delta
 *
 * and from these the gradients of k, q, v and z.  Keys are normalised before all
 * that.
 *
 * A chain is the block that scans the steps of one sequence and head; `carry` and
 * `walk_back` are the kernels of chains.  It is bound by latency, and few chains
 * leave most of the GPU idle.  So the kernel that follows, for outputs or sums, is
 * launched (PDL) as soon as all chains have begun, and each of its blocks polls the
 * progress flag of its chain until the run is complete.  (Chains never wait for the
 * blocks that follow, so that any number of these may be resident.)  Few chains
 * allocate a whole SM's shared memory each, so that no other block shares their SM. */
#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/e74/columns.cuh"
#include "gpu/device/flags.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/e74/e74_cell.cuh"

enum {
    WARP_SUMS = 16, /* partial sums of the warps of a block, padded with zeros */
    RUN_MAX = 16,
    RUN_MIN = 2,
    ELEMENTS_PER_STEP = 16, /* least size of a state, per step of a run, except for RUN_MIN */
    SIGNAL_STEPS = 128,     /* minimum steps between two progress signals of a chain */
    THREADS = 128,          /* of a block that holds no state */
    SHARED_MAX = 227 * 1024
};

/* Beyond these bounds a scale is multiplied in; forward, the sum of squares of Phat is
 * computed directly; and, while beta != 0, GROWTH_MAX is that of E: beta grows with its
 * square, G does not. */
static const float SCALE_MAX = 0x1p60f, SQUARES_MAX = 0x1p120f, SQUARES_MIN = 0x1p-80f;
static const float GROWTH_MAX = 2;

static constexpr __host__ __device__ int rows_per_thread(int lanes)
{
    return lanes == 16 ? 8 : lanes == 8 ? 4 : 1;
}

/* Warps of a block, at most, so that there are enough registers for the rows. */
static constexpr __host__ __device__ int max_warps(int lanes)
{
    return lanes >= 8 ? 8 : 16;
}

/* In sum_rows, with four columns per thread: rows of a thread; threads that share columns. */
static constexpr __host__ __device__ int column_rows(int lanes)
{
    return lanes >= 8 ? 16 : lanes == 4 ? 8 : 2;
}
static constexpr __host__ __device__ int column_lanes(int lanes)
{
    return lanes == 16 || lanes == 2 ? 8 : lanes == 1 ? 16 : 4;
}

/* Threads of a block of sum_rows, which sums a group's rows. */
static constexpr __host__ __device__ int sum_threads(int lanes)
{
    return 2 * lanes * column_lanes(lanes);
}

/* Minimum blocks of sum_rows per SM, as registers allow. */
static constexpr __host__ __device__ int min_sum_blocks(int lanes, bool inside)
{
    return lanes == 16 ? (inside ? 1 : 2) : 6;
}

/* Elements of a warp's vector in each lane. */
static constexpr __host__ __device__ int elements_per_lane(int lanes)
{
    return lanes > 4 ? lanes / 4 : 1;
}

/* ---- work distribution and workspace ---- */

/* Columns and rows of a group, padded. */
static constexpr __host__ __device__ int padded_columns_of(int lanes)
{
    return OCTET * lanes;
}
static constexpr __host__ __device__ int padded_rows_of(int lanes)
{
    return column_rows(lanes) * column_lanes(lanes);
}

/* Offsets within the records of a step and group: the input record, which prepare()
 * writes, and the result record of the replay, in which walk_back() overwrites y with dv
 * and `written` with f.  sum_rows() overwrites v with dk^, q with dq and u with du.
 * The last fields of a record are optional. */
struct fields {
    int khat, q;        /* input, per column */
    int v;              /* input, per row */
    int squares;        /* input: |k^|^2 */
    int u, dy, z;       /* input, per column, row, row */
    int input_floats;   /* floats of the input record */
    int y, delta;       /* result, per row */
    int scalars;        /* result: c, 1 / (m R), beta, and whether beta is folded in then */
    int written, reads; /* result, per row; S k^, S u */
    int result_floats;  /* floats of the result record */
};

static constexpr __host__ __device__ fields fields_of(int lanes, bool inside, bool outside,
                                                      bool back)
{
    const int columns = padded_columns_of(lanes), rows = padded_rows_of(lanes);
    fields f = {};
    f.q = f.khat + columns;
    f.v = f.q + columns;
    f.squares = f.v + rows;
    f.u = f.squares + 4;
    f.dy = f.u + (inside ? columns : 0);
    f.z = f.dy + (back ? rows : 0);
    f.input_floats = f.z + (outside ? rows : 0);
    f.delta = f.y + rows;
    f.scalars = f.delta + rows;
    f.written = f.scalars + 4;
    f.reads = f.written + rows;
    f.result_floats = !back ? f.delta : f.reads + (outside ? rows : 0);
    return f;
}

/* The offsets as constants: valid for all but optional fields. */
template <int LANES, bool INSIDE, bool BACK = true>
static constexpr __host__ __device__ fields known_fields(void)
{
    return fields_of(LANES, INSIDE, true, BACK);
}

/* A group is a set of rows with the same key columns: all n, or those of one block of
 * the state.  It has whole warps. */
struct layout {
    call c;
    fields f;
    int lanes, groups, warps;            /* warps of a group */
    int width, padded_rows;              /* columns and rows of a group, padded */
    int input_floats, result_floats;     /* of a step */
    int tile;                            /* floats of a state in the workspace */
    int run, runs;                       /* steps of a run; maximum runs of a segment */
    int64_t K;                           /* steps of a segment that is replayed */
    float mean;                          /* factor of the sum of squares */
    int64_t count, span, round_segments; /* at once: chains; steps; segments with states */
    float *inputs, *results;             /* [count][span][input_floats or result_floats] */
    float *states;    /* [round_segments][runs + 1][count][tile]: before each run, and the last */
    float *gradients; /* [round_segments][runs][count][tile]: G after each run, without dy q^T */
    int *progress;    /* [count]: the flags: the step that a chain has reached */

    /* of a launch */
    int64_t first;            /* first sequence and head */
    int64_t begin, end;       /* steps that have records */
    int segment, segment_end; /* segments that are replayed or scanned backward */
    const float *from;        /* the initial state, or its gradient */
};

/* A thread's coordinates: its first row within its group, and within a tile. */
struct coord {
    int lane, warp, group, row, padded_row;
};

template <int LANES>
static __device__ coord coord_of(const layout &l)
{
    coord p;
    p.lane = threadIdx.x % LANES;
    p.warp = threadIdx.x / 32;
    p.group = p.warp / l.warps;
    p.row =
        (p.warp % l.warps * (32 / LANES) + (int)threadIdx.x % 32 / LANES) * rows_per_thread(LANES);
    p.padded_row = p.group * l.padded_rows + p.row;
    return p;
}

/* Columns in memory of row r of a thread: none if it is padding. */
static __device__ int valid_columns(const layout &l, const coord &p, int r)
{
    return p.row + r < l.c.rows ? l.c.columns : 0;
}

/* Offset of that row within a state. */
static __device__ int element_of(const layout &l, const coord &p, int r)
{
    return (p.group * l.c.rows + p.row + r) * l.c.columns;
}

static __device__ float *input_of(const layout &l, int64_t t, int64_t b)
{
    return l.inputs + (b * l.span + t - l.begin) * l.input_floats;
}

static __device__ float *result_of(const layout &l, int64_t t, int64_t b)
{
    return l.results + (b * l.span + t - l.begin) * l.result_floats;
}

/* A segment's runs are consecutive, and only the last segment may have fewer than all. */
struct run_coord {
    int segment, run;
};

static __device__ __forceinline__ run_coord run_before(const layout &l, run_coord at)
{
    return at.run ? run_coord{at.segment, at.run - 1} : run_coord{at.segment - 1, l.runs - 1};
}

static __host__ __device__ run_coord last_run(const layout &l)
{
    const int64_t begin = (l.segment_end - 1) * l.K,
                  end = l.segment_end * l.K < l.c.T ? l.segment_end * l.K : l.c.T;
    return {l.segment_end - 1, (int)ceil_div(end - begin, l.run) - 1};
}

static __device__ __forceinline__ int64_t run_begin(const layout &l, run_coord at)
{
    return at.segment * l.K + at.run * l.run;
}

static __device__ __forceinline__ int run_steps(const layout &l, run_coord at)
{
    const int64_t end = min((at.segment + 1) * l.K, l.c.T);
    return (int)min((int64_t)l.run, end - run_begin(l, at));
}

/* The state before a run, or, with `after` = 1, after it. */
static __device__ float *state_of(const layout &l, run_coord at, int after, int64_t b)
{
    const int64_t index = (at.segment - l.segment) * (l.runs + 1) + at.run + after;
    return l.states + (index * l.count + b) * l.tile;
}

static __device__ float *gradient_of(const layout &l, run_coord at, int64_t b)
{
    return l.gradients + (((at.segment - l.segment) * l.runs + at.run) * l.count + b) * l.tile;
}

/* ---- progress flags of the chains ---- */

/* Called after a barrier of the block: the results of all steps before t (backward: from
 * t on) are in memory. */
static __device__ __forceinline__ void signal_progress(const layout &l, int64_t b, int64_t t)
{
    if (threadIdx.x == 0)
        store_release(l.progress + b, (int)t);
}

/* Called by blocks of the kernel after the chains, all of which have begun. */
template <bool BACK>
static __device__ __forceinline__ void wait_for_chain(const layout &l, int64_t b, int64_t t)
{
    if (threadIdx.x == 0)
        while (BACK ? load_acquire(l.progress + b) > t : load_acquire(l.progress + b) < t)
            __nanosleep(200);
    __syncthreads();
}

/* ---- sums ---- */

/* Sums each of COUNT values over the lanes that differ in bits HIGH to LOW; the lanes
 * share the sums: half as many values after each exchange.  Returns the index of the
 * first sum of this thread. */
template <int COUNT, int HIGH, int LOW>
static __device__ __forceinline__ int reduce_scatter(float *x)
{
    if constexpr (HIGH < LOW) {
        return 0;
    } else if constexpr (COUNT == 1) {
        x[0] += __shfl_xor_sync(0xffffffff, x[0], HIGH);
        return reduce_scatter<1, HIGH / 2, LOW>(x);
    } else {
        const int half = COUNT / 2;
        const bool upper = threadIdx.x & HIGH;
        for (int j = 0; j < half; j++) {
            const float sent = upper ? x[j] : x[half + j];
            const float kept = upper ? x[half + j] : x[j];
            x[j] = kept + __shfl_xor_sync(0xffffffff, sent, HIGH);
        }
        return (upper ? half : 0) + reduce_scatter<half, HIGH / 2, LOW>(x);
    }
}

static __device__ __forceinline__ float sum_of_four(const float *x)
{
    const four<float> a = *(const four<float> *)x;
    return (a.x[0] + a.x[1]) + (a.x[2] + a.x[3]);
}

/* The sum of the n partial sums of a block, padded with zeros. */
template <int LANES>
static __device__ __forceinline__ float sum_of_warps(const float *sums, int n)
{
    const int warps_max = max_warps(LANES);
    float sum = sum_of_four(sums);
    for (int i = 4; i < warps_max; i += 4)
        if (n > i)
            sum += sum_of_four(sums + i);
    return sum;
}

/* The sum over the rows of a warp; x is the same in all lanes of a row. */
template <int LANES>
static __device__ __forceinline__ void store_warp_sums(float *to, const coord &p, float x)
{
    for (int d = LANES; d < 32; d *= 2)
        x += __shfl_xor_sync(0xffffffff, x, d);
    if (threadIdx.x % 32 == 0)
        to[p.warp] = x;
}

/* The sum over the threads of a warp. */
template <int LANES>
static __device__ __forceinline__ void store_thread_sums(float *to, const coord &p, float x)
{
    store_warp_sums<LANES>(to, p, warp_sum<LANES>(x));
}

static __device__ __forceinline__ void zero_sums(float *sums, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        sums[i] = 0;
    __syncthreads();
}

/* ---- copies ---- */

/* By all threads of a block; floats is a multiple of four. */
static __device__ __forceinline__ void copy_async(float *to, const float *from, int floats)
{
    #pragma unroll 4
    for (int i = 4 * (int)threadIdx.x; i < floats; i += 4 * (int)blockDim.x)
        cp_async16(to + i, from + i);
}

/* A thread's rows of a vector in a record. */
template <int ROWS>
static __device__ __forceinline__ void load_rows(float *x, const float *from)
{
    if constexpr (ROWS % 4 == 0) {
        for (int i = 0; i < ROWS; i += 4) {
            const four<float> f = *(const four<float> *)(from + i);
            for (int j = 0; j < 4; j++)
                x[i + j] = f.x[j];
        }
    } else {
        for (int i = 0; i < ROWS; i++)
            x[i] = from[i];
    }
}

template <int ROWS>
static __device__ __forceinline__ void store_rows(float *to, const float *x)
{
    if constexpr (ROWS % 4 == 0) {
        for (int i = 0; i < ROWS; i += 4) {
            four<float> f;
            for (int j = 0; j < 4; j++)
                f.x[j] = x[i + j];
            *(four<float> *)(to + i) = f;
        }
    } else {
        for (int i = 0; i < ROWS; i++)
            to[i] = x[i];
    }
}

/* row += weight * e */
static __device__ __forceinline__ void add(eight *row, float weight, const eight &e)
{
    for (int j = 0; j < OCTET; j++)
        row->x[j] = fmaf(weight, e.x[j], row->x[j]);
}

static __device__ __forceinline__ void multiply(eight *row, float factor)
{
    for (int j = 0; j < OCTET; j++)
        row->x[j] *= factor;
}

/* ---- states ---- */

template <int LANES>
static __device__ void load_state(const layout &l, const coord &p, const float *from, eight *S)
{
    for (int r = 0; r < rows_per_thread(LANES); r++)
        S[r] = load_floats<LANES>(from + element_of(l, p, r), valid_columns(l, p, r), p.lane);
}

template <int LANES>
static __device__ void store_state(const layout &l, const coord &p, float *to, const eight *S)
{
    for (int r = 0; r < rows_per_thread(LANES); r++)
        store_columns<float, LANES>(to + element_of(l, p, r), valid_columns(l, p, r), p.lane, S[r]);
}

/* (scale * S, in the type of the checkpoints.) */
template <int LANES>
static __device__ void store_checkpoint(const layout &l, const coord &p, int64_t slot,
                                        const eight *S, float scale)
{
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        eight row = S[r];
        multiply(&row, scale);
        if (l.c.kept == KEPT_F32) {
            store_columns<float, LANES>((float *)l.c.checkpoints + slot * l.c.M +
                                            element_of(l, p, r),
                                        valid_columns(l, p, r), p.lane, row);
            continue;
        }
        for (int j = 0; j < OCTET; j++) {
            const int column = quad_offset<LANES>(j / 4, p.lane) + j % 4;
            if (column < valid_columns(l, p, r))
                put_kept(l.c, slot, element_of(l, p, r) + column, row.x[j]);
        }
    }
}

template <int LANES>
static __device__ void load_checkpoint(const layout &l, const coord &p, int64_t slot, eight *S)
{
    if (l.c.kept == KEPT_F32)
        return load_state<LANES>(l, p, (const float *)l.c.checkpoints + slot * l.c.M, S);
    for (int r = 0; r < rows_per_thread(LANES); r++)
        for (int j = 0; j < OCTET; j++) {
            const int column = quad_offset<LANES>(j / 4, p.lane) + j % 4;
            S[r].x[j] = column < valid_columns(l, p, r)
                            ? get_kept(l.c, slot, element_of(l, p, r) + column)
                            : 0;
        }
}

/* In the workspace a state is [groups][padded_rows][width]: row r of a thread. */
static __device__ __forceinline__ int tile_offset(const layout &l, const coord &p, int r)
{
    return (p.padded_row + r) * l.width;
}

template <int LANES>
static __device__ __forceinline__ void store_tile(const layout &l, const coord &p, float *to,
                                                  const eight *S)
{
    for (int r = 0; r < rows_per_thread(LANES); r++)
        store_columns<LANES>(to + tile_offset(l, p, r), p.lane, S[r]);
}

/* The thread's own part, which no other thread reads. */
template <int LANES>
static __device__ __forceinline__ void copy_tile_async(const layout &l, const coord &p, float *to,
                                                       const float *from)
{
    for (int r = 0; r < rows_per_thread(LANES); r++)
        for (int i = 0; i < 2; i++) {
            const int at = tile_offset(l, p, r) + quad_offset<LANES>(i, p.lane);
            cp_async16(to + at, from + at);
        }
}

/* ---- forward, and replay ---- */

/* Operands of a step that are loaded before the barrier; z stays 1 where there is none. */
template <int LANES>
struct operands {
    eight write, read;
    float v[rows_per_thread(LANES)], z[rows_per_thread(LANES)], squares;
};

/* Offsets of the thread's columns, its rows, and its group within a record. */
struct record_offset {
    int column, row, group;
};

static __device__ __forceinline__ record_offset record_offset_of(const coord &p, int floats)
{
    const int group = p.group * floats;
    return {group + 4 * p.lane, group + p.row, group};
}

template <int LANES, bool INSIDE, bool BACK>
static __device__ __forceinline__ void load_operands(const layout &l, const record_offset &at,
                                                     const float *input, operands<LANES> *m)
{
    constexpr fields f = known_fields<LANES, INSIDE, BACK>();
    m->write = load_columns<LANES>(input + at.column + f.khat, 0);
    m->read = INSIDE ? load_columns<LANES>(input + at.column + f.u, 0) : m->write;
    load_rows<rows_per_thread(LANES)>(m->v, input + at.row + f.v);
    if (l.c.z_outside)
        load_rows<rows_per_thread(LANES)>(m->z, input + at.row + f.z);
    m->squares = input[at.group + f.squares];
}

/* The reduce-scatter leaves a thread with one row of y; several threads may have the same. */
template <int LANES>
static __device__ __forceinline__ int own_row(const coord &p)
{
    int row = 0;
    for (int half = rows_per_thread(LANES) / 2, bit = LANES / 2; half; half /= 2, bit /= 2)
        row += p.lane & bit ? half : 0;
    return row;
}

/* The scale of the state in registers: S = Shat / up = down Shat; the sum of squares of
 * Shat, and its maximum since it was last computed directly. */
struct scale {
    float up, down;
    float squares, peak;
};

/* The divisor of P in a step: R, and 1 / (R + epsilon); from the sum of squares of Phat. */
struct norm_divisor {
    float R, inverse;
};

static __device__ __forceinline__ norm_divisor divide_by_norm(scale *s, float squares, float peak,
                                                              float mean)
{
    const float length = sqrt_approx(squares * mean), up = s->up;
    norm_divisor n;
    n.R = s->down * length;
    s->up = fmaf((float)E74_EPSILON, up, length);
    s->down = rcp_approx(s->up);
    n.inverse = up * s->down;
    s->squares = squares;
    s->peak = peak;
    return n;
}

/* Shat u, and Shat k^ if u is not k^. */
template <int LANES>
struct dots {
    float read[rows_per_thread(LANES)], write[rows_per_thread(LANES)];
};

template <int LANES, bool INSIDE>
static __device__ __forceinline__ dots<LANES> dot_products(const eight *S, const operands<LANES> &m)
{
    const int ROWS = rows_per_thread(LANES);
    dots<LANES> d;
    for (int r = 0; r < ROWS; r++) {
        d.read[r] = dot(S[r], m.read);
        d.write[r] = INSIDE ? dot(S[r], m.write) : 0;
    }
    for (int r = 0; r < ROWS; r++) {
        d.read[r] = warp_sum<LANES>(d.read[r]);
        d.write[r] = INSIDE ? warp_sum<LANES>(d.write[r]) : d.read[r];
    }
    return d;
}

/* A step's results in a thread's rows, on the scale of Shat: delta, and P k^. */
template <int LANES>
struct row_update {
    float delta[rows_per_thread(LANES)], written[rows_per_thread(LANES)];
};

/* Everything before the barrier: the update, and the warp's part of the sum of squares. */
template <int LANES>
static __device__ __forceinline__ row_update<LANES>
compute_update(const coord &p, const operands<LANES> &m, const dots<LANES> &d, float up,
               float *sums)
{
    row_update<LANES> f;
    float change[2] = {};
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        f.delta[r] = fmaf(-m.z[r], d.read[r], up * m.v[r]);
        f.written[r] = fmaf(m.squares, f.delta[r], d.write[r]);
        change[r % 2] = fmaf(f.delta[r], d.write[r] + f.written[r], change[r % 2]);
    }
    store_warp_sums<LANES>(sums, p, change[0] + change[1]);
    return f;
}

template <int LANES>
static __device__ __forceinline__ float squares_of(const eight *S)
{
    float squares = 0;
    for (int r = 0; r < rows_per_thread(LANES); r++)
        squares += dot(S[r], S[r]);
    return squares;
}

/* Repeats the division of a step that lost too many digits, or came near overflow or
 * underflow, with Phat = P, whose squares are summed directly.  s is as before the step,
 * S as after it. */
template <int LANES>
static __device__ norm_divisor divide_exactly(const coord &p, eight *S, dots<LANES> *d, float *y,
                                              scale *s, float mean, int n, float *sums)
{
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        multiply(&S[r], s->down);
        d->read[r] *= s->down;
        d->write[r] *= s->down;
        y[r] *= s->down;
    }
    s->up = s->down = 1;
    store_thread_sums<LANES>(sums, p, squares_of<LANES>(S));
    __syncthreads();
    const float all = sum_of_warps<LANES>(sums, n);
    return divide_by_norm(s, all, all, mean);
}

/* Stores the result record for backward, by one lane of a row; P = down Phat. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void
store_result(const layout &l, const coord &p, const record_offset &at, float *result,
             const row_update<LANES> &f, const float *read, float down, const norm_divisor &n)
{
    const int ROWS = rows_per_thread(LANES);
    constexpr fields to = known_fields<LANES, INSIDE>();
    float delta[ROWS], written[ROWS], reads[ROWS];
    for (int r = 0; r < ROWS; r++) {
        delta[r] = down * f.delta[r];
        written[r] = down * n.inverse * f.written[r];
        reads[r] = down * read[r];
    }
    if (p.lane == 0) {
        store_rows<ROWS>(result + at.row + to.delta, delta);
        store_rows<ROWS>(result + at.row + to.written, written);
        if (l.c.z_outside)
            store_rows<ROWS>(result + at.row + to.reads, reads);
    }
    if (p.lane == 0 && p.row == 0) {
        const float inverse_mR = n.R > 0 ? l.mean * rcp_approx(n.R) : 0;
        *(four<float> *)(result + at.group + to.scalars) = {{n.inverse, inverse_mR}};
    }
}

/* The steps that a block scans. */
struct step_range {
    int64_t begin, end;
};

static __device__ __forceinline__ step_range step_range_of(const layout &l, bool replays)
{
    if (!replays)
        return {l.begin, l.end};
    const int64_t begin = (l.segment + blockIdx.x / l.count) * l.K;
    return {begin, min(begin + l.K, l.c.T)};
}

enum { CARRY_SUMS = 4 * WARP_SUMS }; /* of two steps, a run's begin, divide_exactly */

template <int LANES, bool INSIDE, bool REPLAYS>
__global__ void __launch_bounds__(32 * max_warps(LANES), 1) carry(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const int ROWS = rows_per_thread(LANES), buffer_floats = l.run * l.input_floats;
    const int n = l.groups * l.warps;
    const call &c = l.c;
    const coord p = coord_of<LANES>(l);
    const step_range range = step_range_of(l, REPLAYS);
    const int64_t b = blockIdx.x % l.count, bh = l.first + b;
    float *const sums = buffer + 2 * buffer_floats, *const run_sums = sums + 2 * WARP_SUMS;
    const record_offset at = record_offset_of(p, l.f.input_floats),
                        at_result = record_offset_of(p, l.f.result_floats);
    constexpr fields f = known_fields<LANES, INSIDE, REPLAYS>();
    const bool stores_y = p.lane % (LANES / ROWS) == 0;
    int steps_to_checkpoint = (int)(range.begin % c.K ? c.K - range.begin % c.K : 0),
        sums_offset = 0;
    int64_t signalled = range.begin;
    int64_t slot = ceil_div(range.begin, c.K) * c.BH + bh;
    run_coord at_run = {(int)(l.segment + blockIdx.x / l.count), 0};
    float *result = result_of(l, range.begin, b);
    float *out = result - l.result_floats + at_result.row + f.y + own_row<LANES>(p);
    scale s = {1, 1, 0, 0};
    eight S[ROWS];
    operands<LANES> m;

    for (int r = 0; r < ROWS; r++)
        m.z[r] = 1;
    zero_sums(sums, CARRY_SUMS);
    pdl_wait();
    pdl_launch_dependents();
    copy_async(buffer, input_of(l, range.begin, b),
               (int)min((int64_t)l.run, range.end - range.begin) * l.input_floats);
    cp_async_commit();
    if (REPLAYS)
        load_checkpoint<LANES>(l, p, slot, S);
    else
        load_state<LANES>(l, p, l.from + bh * c.M, S);

    for (int64_t t = range.begin, i = 0; t < range.end; t += l.run, i ^= 1, at_run.run++) {
        const int steps = (int)min((int64_t)l.run, range.end - t);
        const int64_t steps_after = range.end - t - steps;
        const float *here = buffer + i * buffer_floats;

        for (int r = 0; r < ROWS; r++)
            multiply(&S[r], s.down);
        store_thread_sums<LANES>(run_sums, p, squares_of<LANES>(S));
        cp_async_wait<0>();
        __syncthreads();
        if (!REPLAYS && t - signalled >= SIGNAL_STEPS) {
            signal_progress(l, b, t);
            signalled = t;
        }
        s.down = s.up = 1;
        s.squares = s.peak = sum_of_warps<LANES>(run_sums, n);
        copy_async(buffer + (1 - i) * buffer_floats, input_of(l, t + steps, b),
                   (int)min((int64_t)l.run, steps_after) * l.input_floats);
        cp_async_commit();
        if (REPLAYS)
            store_tile<LANES>(l, p, state_of(l, at_run, 0, b), S);

        load_operands<LANES, INSIDE, REPLAYS>(l, at, here, &m);
        dots<LANES> d = dot_products<LANES, INSIDE>(S, m);
        float y[ROWS] = {}; /* of the step before, not yet summed over the lanes */
        for (int remaining = steps; remaining > 0;
             remaining--, out += l.result_floats, result += l.result_floats) {
            if (!REPLAYS && __builtin_expect(steps_to_checkpoint-- == 0, 0)) {
                store_checkpoint<LANES>(l, p, slot, S, s.down);
                slot += c.BH;
                steps_to_checkpoint = (int)c.K - 1;
            }
            reduce_scatter<ROWS, LANES / 2, 1>(y);
            if (stores_y && remaining < steps)
                *out = s.down * y[0];
            const row_update<LANES> update =
                compute_update<LANES>(p, m, d, s.up, sums + sums_offset);
            for (int r = 0; r < ROWS; r++)
                add(&S[r], update.delta[r], m.write);
            const float *const query = here + at.column + f.q;
            here += remaining > 1 ? l.input_floats : 0; /* after the last: unused */
            load_operands<LANES, INSIDE, REPLAYS>(l, at, here, &m);
            __syncthreads();
            const float after = s.squares + sum_of_warps<LANES>(sums + sums_offset, n);
            const float peak = fmaxf(s.peak, after);
            sums_offset ^= WARP_SUMS;
            const dots<LANES> dots_before = d;
            const scale scale_before = s;
            d = dot_products<LANES, INSIDE>(S, m);
            const eight q =
                load_columns<LANES>(query, 0); /* (here, to fill the latency of the sum) */
            for (int r = 0; r < ROWS; r++)
                y[r] = dot(S[r], q);
            norm_divisor divisor = divide_by_norm(&s, after, peak, l.mean);
            if (__builtin_expect(!(after >= fmaxf(0.5f * peak, SQUARES_MIN) && after < SQUARES_MAX),
                                 0)) {
                s = scale_before;
                divisor = divide_exactly<LANES>(p, S, &d, y, &s, l.mean, n, run_sums + WARP_SUMS);
            }
            if (REPLAYS)
                store_result<LANES, INSIDE>(l, p, at_result, result, update, dots_before.read,
                                            scale_before.down, divisor);
        }
        reduce_scatter<ROWS, LANES / 2, 1>(y);
        if (stores_y)
            *out = s.down * y[0];
    }
    for (int r = 0; r < ROWS; r++)
        multiply(&S[r], s.down);
    if (REPLAYS) {
        store_tile<LANES>(l, p, state_of(l, at_run, 0, b), S);
    } else {
        __syncthreads();
        signal_progress(l, b, range.end);
        store_state<LANES>(l, p, c.last + bh * c.M, S);
    }
}

/* ---- backward ---- */

/* Operands of a step backward; z stays 1 where there is none. */
template <int LANES>
struct operands_back {
    eight write, read;
    float v[rows_per_thread(LANES)], z[rows_per_thread(LANES)];
    float delta[rows_per_thread(LANES)], written[rows_per_thread(LANES)];
    float inverse, inverse_mR;
};

/* And of the step before it, whose y and dy are used first: the loads are in flight for a
 * whole step. */
template <int LANES>
struct output_operands {
    float y[rows_per_thread(LANES)], dy[rows_per_thread(LANES)];
    eight query;
};

/* Offsets of the thread's elements in the input and in the result record. */
struct record_offsets {
    record_offset input, result;
};

/* A step's records in shared memory, at the thread's columns, its rows, and its group. */
struct step_ptrs {
    const float *columns, *rows, *result, *group;
};

static __device__ __forceinline__ step_ptrs step_ptrs_at(const record_offsets &at,
                                                         const float *input, const float *result)
{
    return {input + at.input.column, input + at.input.row, result + at.result.row,
            result + at.result.group};
}

/* Goes to the step before, if there is any. */
static __device__ __forceinline__ void step_back(const layout &l, step_ptrs *s, bool any)
{
    const int input_floats = any ? l.input_floats : 0, result_floats = any ? l.result_floats : 0;
    s->columns -= input_floats;
    s->rows -= input_floats;
    s->result -= result_floats;
    s->group -= result_floats;
}

template <int LANES, bool INSIDE>
static __device__ __forceinline__ void load_operands_back(const layout &l, const step_ptrs &from,
                                                          operands_back<LANES> *o)
{
    constexpr fields f = known_fields<LANES, INSIDE>();
    const int ROWS = rows_per_thread(LANES);
    o->write = load_columns<LANES>(from.columns + f.khat, 0);
    o->read = INSIDE ? load_columns<LANES>(from.columns + f.u, 0) : o->write;
    load_rows<ROWS>(o->v, from.rows + f.v);
    load_rows<ROWS>(o->delta, from.result + f.delta);
    load_rows<ROWS>(o->written, from.result + f.written);
    if (l.c.z_outside)
        load_rows<ROWS>(o->z, from.rows + f.z);
    o->inverse = from.group[f.scalars];
    o->inverse_mR = from.group[f.scalars + 1];
}

template <int LANES, bool INSIDE>
static __device__ __forceinline__ output_operands<LANES> load_output_operands(const step_ptrs &from,
                                                                              const float *dy)
{
    constexpr fields f = known_fields<LANES, INSIDE>();
    output_operands<LANES> a;
    load_rows<rows_per_thread(LANES)>(a.y, from.result + f.y);
    load_rows<rows_per_thread(LANES)>(a.dy, dy);
    a.query = load_columns<LANES>(from.columns + f.q, 0);
    return a;
}

/* Copies a run's records to shared memory, asynchronously. */
static __device__ __forceinline__ void copy_run_async(const layout &l, float *inputs,
                                                      float *results, run_coord at, int64_t b)
{
    const int64_t t = run_begin(l, at);
    const int steps = run_steps(l, at);
    copy_async(inputs, input_of(l, t, b), steps * l.input_floats);
    copy_async(results, result_of(l, t, b), steps * l.result_floats);
}

/* G = Gamma + beta S, where S is the state after some steps of a run that begins with
 * `state`; returns the thread's part of <G, S>. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ float
fold(const layout &l, const coord &p, const record_offsets &at, const float *state,
     const float *input, const float *result, int steps, float down, float beta, eight *G)
{
    constexpr fields f = known_fields<LANES, INSIDE>();
    float G_dot_S = 0;
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        eight S = load_columns<LANES>(state + tile_offset(l, p, r), p.lane);
        #pragma unroll 1
        for (int step = 0; step < steps; step++) {
            const float *const here = result + step * l.result_floats;
            add(&S, here[at.result.row + f.delta + r],
                load_columns<LANES>(input + step * l.input_floats + at.input.column + f.khat, 0));
            multiply(&S, here[at.result.group + f.scalars]);
        }
        for (int j = 0; j < OCTET; j++)
            G[r].x[j] = fmaf(beta, S.x[j], down * G[r].x[j]);
        G_dot_S += dot(G[r], S);
    }
    return G_dot_S;
}

/* The thread's part of <G, S>, with G before its dy q^T is added. */
template <int LANES>
static __device__ __forceinline__ float dot_with_state(const layout &l, const coord &p,
                                                       const float *state, const eight *G,
                                                       const output_operands<LANES> &a)
{
    float G_dot_S = 0;
    for (int r = 0; r < rows_per_thread(LANES); r++) {
        G_dot_S += dot(G[r], load_columns<LANES>(state + tile_offset(l, p, r), p.lane));
        G_dot_S = p.lane ? G_dot_S : fmaf(a.dy[r], a.y[r], G_dot_S);
    }
    return G_dot_S;
}

/* The thread's part of Gamma k^. */
template <int LANES>
static __device__ __forceinline__ void dot_products_back(const eight *G, const eight &write,
                                                         float *Gamma_k)
{
    for (int r = 0; r < rows_per_thread(LANES); r++)
        Gamma_k[r] = dot(G[r], write);
}

enum { WALK_SUMS = 2 * WARP_SUMS }; /* of two successive steps */

template <int LANES, bool INSIDE>
__global__ void __launch_bounds__(32 * max_warps(LANES), 1) walk_back(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const int ROWS = rows_per_thread(LANES), n = l.groups * l.warps;
    const int run_inputs = l.run * l.input_floats, run_results = l.run * l.result_floats;
    const call &c = l.c;
    const coord p = coord_of<LANES>(l);
    const int64_t b = blockIdx.x, bh = l.first + b;
    float *const results = buffer + 2 * run_inputs, *const state = results + 2 * run_results;
    float *const sums = state + l.tile, *const zeros = sums + WALK_SUMS;
    const record_offsets at = {record_offset_of(p, l.f.input_floats),
                               record_offset_of(p, l.f.result_floats)};
    constexpr fields of = known_fields<LANES, INSIDE>();
    const float *const no_dy = zeros + p.row; /* of the step before a run's first step: zeros */
    run_coord run = last_run(l);
    const float *after = state_of(l, run, 1, b);
    int64_t signalled = l.segment_end * l.K;
    float down = 1, beta = 0;
    int sums_offset = 0;
    eight G[ROWS];
    operands_back<LANES> m;

    for (int r = 0; r < ROWS; r++)
        m.z[r] = 1;
    zero_sums(sums, WALK_SUMS + l.padded_rows);
    pdl_wait();
    pdl_launch_dependents();
    copy_run_async(l, buffer, results, run, b);
    cp_async_commit();
    load_state<LANES>(l, p, l.from + bh * c.M, G);

    for (int i = 0; run.segment >= l.segment; i ^= 1) {
        const run_coord next = run_before(l, run);
        const int steps = run_steps(l, run);
        const float *const input = buffer + i * run_inputs, *const result =
                                                                results + i * run_results;
        step_ptrs here = step_ptrs_at(at, input + (steps - 1) * l.input_floats,
                                      result + (steps - 1) * l.result_floats);
        float *out = result_of(l, run_begin(l, run) + steps - 1, b);

        cp_async_wait<0>();
        __syncthreads();
        if (signalled - run_begin(l, run) - steps >= SIGNAL_STEPS) {
            signalled = run_begin(l, run) + steps;
            signal_progress(l, b, signalled);
        }
        store_tile<LANES>(l, p, gradient_of(l, run, b), G);
        if (next.segment >= l.segment)
            copy_run_async(l, buffer + (1 - i) * run_inputs, results + (1 - i) * run_results, next,
                           b);
        output_operands<LANES> a = load_output_operands<LANES, INSIDE>(here, here.rows + of.dy);
        load_operands_back<LANES, INSIDE>(l, here, &m);
        store_thread_sums<LANES>(sums + sums_offset, p, dot_with_state<LANES>(l, p, after, G, a));
        copy_tile_async<LANES>(l, p, state, state_of(l, run, 0, b));
        cp_async_commit();
        float epsilon_c_g = 0, down_min = 1, Gamma_k[ROWS];
        down = 1, beta = 0;
        for (int r = 0; r < ROWS; r++)
            add(&G[r], a.dy[r], a.query);
        dot_products_back<LANES>(G, m.write, Gamma_k);
        step_back(l, &here, steps > 1);
        a = load_output_operands<LANES, INSIDE>(here, steps > 1 ? here.rows + of.dy : no_dy);
        __syncthreads();

        for (int step = steps - 1; step >= 0; step--, out -= l.result_floats) {
            float dv[ROWS], f[ROWS], sum[2] = {};

            for (int r = 0; r < ROWS; r++)
                Gamma_k[r] = warp_sum<LANES>(Gamma_k[r]);
            const float g = epsilon_c_g + sum_of_warps<LANES>(sums + sums_offset, n);
            sums_offset ^= WARP_SUMS;
            down *= m.inverse;
            down_min = fminf(down_min, down);
            const float up = rcp_approx(down);
            for (int r = 0; r < ROWS; r++) {
                sum[r % 2] = fmaf(a.dy[r], a.y[r], sum[r % 2]);
                add(&G[r], up * a.dy[r], a.query);
            }
            const float coefficient = fmaf(m.inverse, beta, -m.inverse_mR * g);
            epsilon_c_g = (float)E74_EPSILON * m.inverse * g;
            beta = coefficient * m.inverse;
            for (int r = 0; r < ROWS; r++) {
                dv[r] = fmaf(down, Gamma_k[r], coefficient * m.written[r]);
                f[r] = -m.z[r] * dv[r];
                f[r] = INSIDE ? f[r] : fmaf(beta, m.delta[r], f[r]);
                sum[r % 2] = fmaf(-dv[r], m.v[r], sum[r % 2]);
            }
            store_warp_sums<LANES>(sums + sums_offset, p, sum[0] + sum[1]);
            for (int r = 0; r < ROWS; r++) {
                add(&G[r], up * f[r], m.read);
                if (INSIDE)
                    add(&G[r], up * (beta * m.delta[r]), m.write);
            }
            load_operands_back<LANES, INSIDE>(l, here, &m); /* after the first: unused */
            dot_products_back<LANES>(G, m.write, Gamma_k);
            step_back(l, &here, step > 1);
            a = load_output_operands<LANES, INSIDE>(here, step > 1 ? here.rows + of.dy : no_dy);
            const bool folds = step && down > GROWTH_MAX * down_min;
            const float beta_and_fold[] = {beta, folds ? 1.0f : 0.0f};
            if (p.lane == 0) {
                store_rows<ROWS>(out + at.result.row + of.y, dv);
                store_rows<ROWS>(out + at.result.row + of.written, f);
            }
            if (p.lane == 0 && p.row == 0)
                store_rows<2>(out + at.result.group + of.scalars + 2, beta_and_fold);
            if (__builtin_expect(folds || down < 1 / SCALE_MAX, 0)) {
                if (folds) {
                    cp_async_wait<0>();
                    store_thread_sums<LANES>(
                        sums + sums_offset, p,
                        fold<LANES, INSIDE>(l, p, at, state, input, result, step, down, beta, G));
                    epsilon_c_g = beta = 0;
                } else {
                    for (int r = 0; r < ROWS; r++)
                        multiply(&G[r], down);
                }
                dot_products_back<LANES>(G, m.write, Gamma_k);
                down = down_min = 1;
            }
            __syncthreads();
        }
        cp_async_wait<0>();
        fold<LANES, INSIDE>(l, p, at, state, NULL, NULL, 0, down, beta, G);
        /* A rounded checkpoint differs from the last state of the segment before it. */
        after = run.run || c.kept == KEPT_F32 ? state : state_of(l, next, 1, b);
        run = next;
    }
    __syncthreads();
    signal_progress(l, b, l.segment * l.K);
    store_state<LANES>(l, p, c.dfirst + bh * c.M, G);
}

/* ---- kernels without states: one warp per group of a step ---- */

struct item {
    int lane;
    float *input, *result;
    int64_t at; /* offset in [T,BH,N] */
};

static __device__ item item_of(const layout &l, int64_t t, int64_t b, int group)
{
    return {(int)threadIdx.x % 32, input_of(l, t, b) + group * l.f.input_floats,
            result_of(l, t, b) + group * l.f.result_floats,
            (t * l.c.BH + l.first + b) * l.c.N + group * l.c.rows};
}

template <typename T>
static __device__ float load_or_zero(const void *from, int64_t at, bool any)
{
    return any ? load((const T *)from + at) : 0;
}

/* A lane's elements of a group's vector; all loads are in flight at once. */
template <int ELEMENTS>
struct lane_part {
    float x[ELEMENTS];
};

template <typename T, int ELEMENTS>
static __device__ __forceinline__ lane_part<ELEMENTS> load_part(const layout &l, const item &m,
                                                                const void *from)
{
    lane_part<ELEMENTS> s;
    for (int i = 0; i < ELEMENTS; i++)
        s.x[i] = load_or_zero<T>(from, m.at + m.lane + 32 * i, m.lane + 32 * i < l.c.columns);
    return s;
}

template <int ELEMENTS>
static __device__ __forceinline__ lane_part<ELEMENTS>
load_float_part(const layout &l, const item &m, const float *from)
{
    lane_part<ELEMENTS> s;
    for (int i = 0; i < ELEMENTS; i++)
        s.x[i] = m.lane + 32 * i < l.c.columns ? from[m.lane + 32 * i] : 0;
    return s;
}

template <int ELEMENTS>
static __device__ __forceinline__ void store_padded(const item &m, float *to, int padded,
                                                    const lane_part<ELEMENTS> &s)
{
    for (int i = 0; i < ELEMENTS; i++)
        if (m.lane + 32 * i < padded)
            to[m.lane + 32 * i] = s.x[i];
}

template <int ELEMENTS>
static __device__ __forceinline__ float dot_parts(const lane_part<ELEMENTS> &a,
                                                  const lane_part<ELEMENTS> &b)
{
    float sum = 0;
    for (int i = 0; i < ELEMENTS; i++)
        sum = fmaf(a.x[i], b.x[i], sum);
    return warp_sum<32>(sum);
}

/* The keys, normalised; v, z, and backward dy; zeros in the padding. */
template <typename T, int ELEMENTS, bool BACK>
__global__ void __launch_bounds__(THREADS) prepare(layout l)
{
    const call &c = l.c;
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    const int64_t b = i / l.groups % l.count, t = l.begin + i / l.groups / l.count;

    pdl_launch_dependents();
    if (t >= l.end)
        return;
    const int group = (int)(i % l.groups);
    const item m = item_of(l, t, b, group);
    const lane_part<ELEMENTS> k = load_part<T, ELEMENTS>(l, m, c.k),
                              q = load_part<T, ELEMENTS>(l, m, c.q);
    const lane_part<ELEMENTS> v = load_part<T, ELEMENTS>(l, m, c.v);
    const lane_part<ELEMENTS> z = c.z ? load_part<T, ELEMENTS>(l, m, c.z) : lane_part<ELEMENTS>{};
    const lane_part<ELEMENTS> y = BACK ? load_part<T, ELEMENTS>(l, m, c.y) : lane_part<ELEMENTS>{};
    const lane_part<ELEMENTS> dout =
        BACK ? load_part<T, ELEMENTS>(l, m, c.dout) : lane_part<ELEMENTS>{};
    const float scale = sqrtf(dot_parts(k, k)) + (float)E74_EPSILON;
    lane_part<ELEMENTS> khat, u, dy;
    for (int j = 0; j < ELEMENTS; j++) {
        const float gate = 1 / (1 + expf(-y.x[j]));
        khat.x[j] = k.x[j] / scale;
        u.x[j] = z.x[j] * khat.x[j];
        dy.x[j] = dout.x[j] * y.x[j] * gate * (2 + y.x[j] * (1 - gate));
    }
    const float squares = dot_parts(khat, khat);
    store_padded(m, m.input + l.f.khat, l.width, khat);
    store_padded(m, m.input + l.f.q, l.width, q);
    store_padded(m, m.input + l.f.v, l.padded_rows, v);
    if (c.z_inside)
        store_padded(m, m.input + l.f.u, l.width, u);
    if (c.z_outside)
        store_padded(m, m.input + l.f.z, l.padded_rows, z);
    if (BACK) {
        store_padded(m, m.input + l.f.dy, l.padded_rows, dy);
        for (int j = c.rows + m.lane; j < l.padded_rows; j += 32) { /* perhaps not in carry */
            m.result[l.f.y + j] = m.result[l.f.delta + j] = m.result[l.f.written + j] = 0;
            if (c.z_outside)
                m.result[l.f.reads + j] = 0;
        }
    }
    if (m.lane == 0)
        *(four<float> *)(m.input + l.f.squares) = {{squares}};
    if (m.lane == 0 && group == 0 && t == l.begin)
        l.progress[b] = (int)(BACK ? l.end : l.begin);
}

/* One block per run of steps, after the chain has completed the run. */
template <typename T>
__global__ void __launch_bounds__(THREADS) put_outputs(layout l)
{
    const call &c = l.c;
    const int64_t b = blockIdx.x % l.count, t = l.begin + blockIdx.x / l.count * l.run;
    const int64_t end = min(t + l.run, l.end);

    wait_for_chain<false>(l, b, end);
    for (int i = threadIdx.x; i < (end - t) * c.N; i += THREADS) {
        const int step = i / c.N, row = i % c.N;
        const int64_t to = ((t + step) * c.BH + l.first + b) * c.N + row;
        const float y =
            result_of(l, t + step, b)[row / c.rows * l.f.result_floats + l.f.y + row % c.rows];
        store((T *)c.y + to, y);
        store((T *)c.out + to, y * y / (1 + expf(-y)));
    }
    if (end == l.end)
        pdl_wait();
}

/* ---- sums over rows, for all runs in parallel, and the gradients ---- */

/* Four columns of a thread's rows: groups of up to four contiguous rows, interleaved over
 * the lanes that share the columns. */
template <int LANES>
struct strip {
    four<float> row[column_rows(LANES)];
};

template <int LANES>
static __device__ __forceinline__ int row_of(int r)
{
    const int contiguous = column_rows(LANES) < 4 ? column_rows(LANES) : 4;
    const int lane = (int)threadIdx.x % column_lanes(LANES);
    return (r / contiguous * column_lanes(LANES) + lane) * contiguous + r % contiguous;
}

template <int LANES>
static __device__ __forceinline__ int column_of(void)
{
    return (int)threadIdx.x / column_lanes(LANES) * 4;
}

/* A thread's rows of a vector in a record. */
template <int LANES>
struct row_values {
    float x[column_rows(LANES)];
};

template <int LANES>
static __device__ __forceinline__ row_values<LANES> load_row_values(const float *from)
{
    const int ROWS = column_rows(LANES), contiguous = ROWS < 4 ? ROWS : 4;
    row_values<LANES> s;
    for (int r = 0; r < ROWS; r += contiguous)
        load_rows<contiguous>(s.x + r, from + row_of<LANES>(r));
    return s;
}

template <int LANES>
static __device__ __forceinline__ void load_strip(const layout &l, int group, const float *from,
                                                  strip<LANES> *S)
{
    for (int r = 0; r < column_rows(LANES); r++) {
        const int row = row_of<LANES>(r);
        if (row < l.c.rows)
            S->row[r] = *(const four<float> *)(from + (group * l.padded_rows + row) * l.width +
                                               column_of<LANES>());
        else
            S->row[r] = {};
    }
}

/* sum += S^T x, over this thread's rows. */
template <int LANES>
static __device__ __forceinline__ void add_transposed(four<float> *sum, const strip<LANES> &S,
                                                      const row_values<LANES> &x)
{
    for (int r = 0; r < column_rows(LANES); r++)
        for (int j = 0; j < 4; j++)
            sum->x[j] = fmaf(x.x[r], S.row[r].x[j], sum->x[j]);
}

/* S += weight x key^T */
template <int LANES>
static __device__ __forceinline__ void add_outer(strip<LANES> *S, float weight,
                                                 const row_values<LANES> &x, const four<float> &key)
{
    for (int r = 0; r < column_rows(LANES); r++)
        for (int j = 0; j < 4; j++)
            S->row[r].x[j] = fmaf(weight * x.x[r], key.x[j], S->row[r].x[j]);
}

/* Here too the scale is separate; it is multiplied in before it is too far from 1. */
template <int LANES>
static __device__ __forceinline__ float rescaled(strip<LANES> *S, float scale)
{
    if (scale >= 1 / SCALE_MAX && scale < SCALE_MAX)
        return scale;
    for (int r = 0; r < column_rows(LANES); r++)
        for (int j = 0; j < 4; j++)
            S->row[r].x[j] *= scale;
    return 1;
}

/* factor times the sum over the lanes that share the columns; ACCUMULATES: added to what
 * the same thread has stored there. */
template <int LANES, bool ACCUMULATES>
static __device__ __forceinline__ void store_column_sums(float *to, float factor, four<float> sum)
{
    const int own = reduce_scatter<4, column_lanes(LANES) / 2, 1>(sum.x);
    float *const at = to + column_of<LANES>() + own;
    if ((int)threadIdx.x % (column_lanes(LANES) / 4) == 0)
        *at = fmaf(factor, sum.x[0], ACCUMULATES ? *at : 0);
}

/* A step's records in shared memory. */
struct step_record {
    float *input, *result;
};

static __device__ __forceinline__ step_record step_record_of(const layout &l, float *buffer,
                                                             int step)
{
    float *const at = buffer + step * (l.f.input_floats + l.f.result_floats);
    return {at, at + l.f.input_floats};
}

/* G = Gamma + beta S, where S is the state after some steps of the run. */
template <int LANES, bool INSIDE>
static __device__ void fold_strip(const layout &l, int group, const float *state, float *buffer,
                                  int steps, float down, float beta, strip<LANES> *G)
{
    constexpr fields f = known_fields<LANES, INSIDE>();
    for (int r = 0; r < column_rows(LANES); r++) {
        const int row = row_of<LANES>(r);
        if (row >= l.c.rows)
            continue;
        four<float> S = *(const four<float> *)(state + (group * l.padded_rows + row) * l.width +
                                               column_of<LANES>());
        #pragma unroll 1
        for (int step = 0; step < steps; step++) {
            const step_record at = step_record_of(l, buffer, step);
            const float *const key = at.input + f.khat + column_of<LANES>();
            for (int j = 0; j < 4; j++)
                S.x[j] = at.result[f.scalars] * fmaf(at.result[f.delta + row], key[j], S.x[j]);
        }
        for (int j = 0; j < 4; j++)
            G->row[r].x[j] = fmaf(beta, S.x[j], down * G->row[r].x[j]);
    }
}

/* Back through the Gammas of a run: their terms of dk^.  They equal those of walk_back bit
 * by bit, so that what cancels there cancels here. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void sum_gradients(const layout &l, int group, int steps,
                                                     float *buffer, const float *state,
                                                     strip<LANES> *G)
{
    constexpr fields f = known_fields<LANES, INSIDE>();
    const int column = column_of<LANES>();
    step_record at = step_record_of(l, buffer, steps - 1);
    float down = 1;

    add_outer(G, 1, load_row_values<LANES>(at.input + f.dy),
              *(const four<float> *)(at.input + f.q + column));
    for (int step = steps - 1; step >= 0; step--) {
        const float beta = at.result[f.scalars + 2];
        const bool folds = at.result[f.scalars + 3] != 0;
        row_values<LANES> delta = load_row_values<LANES>(at.result + f.delta);
        four<float> dkhat = {};

        add_transposed(&dkhat, *G, delta);
        down *= at.result[f.scalars];
        store_column_sums<LANES, false>(at.input + f.v, down, dkhat);
        const float up = rcp_approx(down);
        const step_record later = step_record_of(l, buffer, step ? step - 1 : 0);
        if (step)
            add_outer(G, up, load_row_values<LANES>(later.input + f.dy),
                      *(const four<float> *)(later.input + f.q + column));
        add_outer(G, up, load_row_values<LANES>(at.result + f.written),
                  *(const four<float> *)(at.input + (INSIDE ? f.u : f.khat) + column));
        if (INSIDE) {
            for (int r = 0; r < column_rows(LANES); r++)
                delta.x[r] *= beta;
            add_outer(G, up, delta, *(const four<float> *)(at.input + f.khat + column));
        }
        if (folds)
            fold_strip<LANES, INSIDE>(l, group, state, buffer, step, down, beta, G);
        down = folds ? 1 : rescaled(G, down);
        at = later;
    }
}

/* Through the states of a run: dq, the term of S_{t-1} in dk^, and du. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void sum_states(const layout &l, int steps, float *buffer,
                                                  strip<LANES> *S)
{
    constexpr fields f = known_fields<LANES, INSIDE>();
    float scale = 1;
    for (int step = 0; step < steps; step++) {
        const step_record at = step_record_of(l, buffer, step);
        const float c = at.result[f.scalars], beta = at.result[f.scalars + 2];
        const four<float> key = *(const four<float> *)(at.input + f.khat + column_of<LANES>());
        const row_values<LANES> delta = load_row_values<LANES>(at.result + f.delta);
        four<float> dkhat = {}, du = {}, dq = {};
        float length = 0;

        add_transposed(INSIDE ? &du : &dkhat, *S, load_row_values<LANES>(at.result + f.written));
        if (INSIDE) {
            add_transposed(&dkhat, *S, delta);
            for (int j = 0; j < 4; j++)
                dkhat.x[j] *= beta;
        }
        for (int j = 0; j < 4; j++)
            dkhat.x[j] *= scale;
        for (int r = 0; r < column_rows(LANES); r++)
            length = fmaf(delta.x[r], delta.x[r], length);
        for (int j = 0; j < 4; j++)
            dkhat.x[j] = fmaf(beta * length, key.x[j], dkhat.x[j]);
        if (INSIDE)
            store_column_sums<LANES, false>(at.input + f.u, scale, du);
        add_outer(S, rcp_approx(scale), delta, key);
        scale = rescaled(S, scale * c);
        add_transposed(&dq, *S, load_row_values<LANES>(at.input + f.dy));
        store_column_sums<LANES, true>(at.input + f.v, 1, dkhat);
        store_column_sums<LANES, false>(at.input + f.q, scale, dq);
    }
}

template <typename T, int ELEMENTS>
static __device__ __forceinline__ void store_part(const layout &l, const item &m, void *to,
                                                  const lane_part<ELEMENTS> &s)
{
    for (int i = 0; i < ELEMENTS; i++)
        if (m.lane + 32 * i < l.c.columns)
            store((T *)to + m.at + m.lane + 32 * i, s.x[i]);
}

/* From a step's sums to the gradients of k, q, v and z: one warp. */
template <typename T, int LANES, bool INSIDE>
static __device__ __forceinline__ void store_gradients(const layout &l, const item &m,
                                                       const step_record &at)
{
    constexpr int ELEMENTS = elements_per_lane(LANES);
    constexpr fields f = known_fields<LANES, INSIDE>();
    const call &c = l.c;
    const lane_part<ELEMENTS> none = {}, k = load_part<T, ELEMENTS>(l, m, c.k);
    const lane_part<ELEMENTS> z = c.z ? load_part<T, ELEMENTS>(l, m, c.z) : none;
    const lane_part<ELEMENTS> dv = load_float_part<ELEMENTS>(l, m, at.result + f.y);
    const lane_part<ELEMENTS> reads =
        c.z_outside ? load_float_part<ELEMENTS>(l, m, at.result + f.reads) : none;
    const lane_part<ELEMENTS> dq = load_float_part<ELEMENTS>(l, m, at.input + f.q);
    const lane_part<ELEMENTS> du = INSIDE ? load_float_part<ELEMENTS>(l, m, at.input + f.u) : none;
    lane_part<ELEMENTS> dkhat = load_float_part<ELEMENTS>(l, m, at.input + f.v), dk, dz;

    for (int i = 0; i < ELEMENTS; i++)
        if (INSIDE)
            dkhat.x[i] = fmaf(z.x[i], du.x[i], dkhat.x[i]);
    const float length = sqrtf(dot_parts(k, k)), scale = length + (float)E74_EPSILON;
    const float slope = dot_parts(k, dkhat);
    const float back = length > 0 ? slope / (length * scale * scale) : 0;
    for (int i = 0; i < ELEMENTS; i++) {
        dk.x[i] = fmaf(-back, k.x[i], dkhat.x[i] / scale);
        if (!c.dq)
            dk.x[i] += dq.x[i];
        if (!c.dv)
            dk.x[i] += dv.x[i];
        dz.x[i] = fmaf(-dv.x[i], reads.x[i], du.x[i] * (k.x[i] / scale));
    }
    store_part<T>(l, m, c.dk, dk);
    if (c.dq)
        store_part<T>(l, m, c.dq, dq);
    if (c.dv)
        store_part<T>(l, m, c.dv, dv);
    if (c.dz)
        store_part<T>(l, m, c.dz, dz);
}

/* One block per group and run, after walk_back has completed the run; the last runs first. */
template <typename T, int LANES, bool INSIDE>
__global__ void __launch_bounds__(sum_threads(LANES), min_sum_blocks(LANES, INSIDE))
    sum_rows(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const int64_t item = gridDim.x - 1 - blockIdx.x;
    const int group = (int)(item % l.groups);
    const int64_t b = item / l.groups % l.count;
    const int run_index = (int)(item / l.groups / l.count);
    const run_coord run = {l.segment + run_index / l.runs, run_index % l.runs};
    const int64_t t = run_begin(l, run);
    const int steps = run_steps(l, run);
    const float *const state = state_of(l, run, 0, b);
    strip<LANES> S;

    wait_for_chain<true>(l, b, t);
    for (int step = 0; step < steps; step++) {
        const step_record to = step_record_of(l, buffer, step);
        copy_async(to.input, input_of(l, t + step, b) + group * l.f.input_floats, l.f.input_floats);
        copy_async(to.result, result_of(l, t + step, b) + group * l.f.result_floats,
                   l.f.result_floats);
    }
    cp_async_commit();
    load_strip(l, group, gradient_of(l, run, b), &S);
    cp_async_wait<0>();
    __syncthreads();
    sum_gradients<LANES, INSIDE>(l, group, steps, buffer, state, &S);
    load_strip(l, group, state, &S);
    __syncthreads(); /* dq overwrites q */
    sum_states<LANES, INSIDE>(l, steps, buffer, &S);
    __syncthreads();
    for (int step = (int)threadIdx.x / 32; step < steps; step += sum_threads(LANES) / 32)
        store_gradients<T, LANES, INSIDE>(l, item_of(l, t + step, b, group),
                                          step_record_of(l, buffer, step));
    if (run_index == 0)
        pdl_wait();
}

/* ---- launches ---- */

static int64_t clamp_to(int64_t x, int64_t low, int64_t high)
{
    return x > high ? high : x < low ? low : x;
}

static void set_record_sizes(layout *l, enum pass pass)
{
    l->f = fields_of(l->lanes, l->c.z_inside, l->c.z_outside, pass == BACKWARD);
    l->input_floats = l->groups * l->f.input_floats;
    l->result_floats = l->groups * l->f.result_floats;
}

static size_t carry_bytes(const layout &l)
{
    return sizeof(float) * (2 * l.run * l.input_floats + CARRY_SUMS);
}

static size_t walk_bytes(const layout &l)
{
    return sizeof(float) *
           (2 * l.run * (l.input_floats + l.result_floats) + l.tile + WALK_SUMS + l.padded_rows);
}

static size_t sum_bytes(const layout &l)
{
    return sizeof(float) * l.run * (l.f.input_floats + l.f.result_floats);
}

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        const int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

static layout layout_of(const struct frame *f, enum pass pass)
{
    layout l = {};
    call &c = l.c = call_of(f);

    for (l.lanes = 1; OCTET * l.lanes < c.columns; l.lanes *= 2)
        ;
    l.groups = c.N / c.rows;
    l.warps = (int)ceil_div(c.rows, 32 / l.lanes * rows_per_thread(l.lanes));
    l.width = padded_columns_of(l.lanes);
    l.padded_rows = padded_rows_of(l.lanes);
    l.tile = l.groups * l.padded_rows * l.width;
    l.mean = c.nonlin == E74_RMSNORM ? 1 / (float)c.M : 1;

    /* The same in both passes.  The rounding error of g in a run stays in Gamma until g is next
     * summed directly: in a small state, where the keys leave G few free directions, it would
     * dominate. */
    set_record_sizes(&l, BACKWARD);
    for (l.run = RUN_MAX; l.run > RUN_MIN; l.run /= 2)
        if (l.run * ELEMENTS_PER_STEP <= c.M && walk_bytes(l) <= SHARED_MAX)
            break;
    set_record_sizes(&l, pass);

    /* Enough chains to fill the GPU may exceed the limits of the workspace. */
    const struct limits &device = *gpu_limits();
    const int64_t count_min = clamp_to(device.sms, 1, c.BH),
                  step_floats = l.input_floats + l.result_floats;
    l.K = c.kept == KEPT_F32 ? common_multiple(c.K, l.run) : c.K;
    l.K = l.K < c.T ? l.K : c.T;
    l.runs = (int)ceil_div(l.K, l.run);
    if (pass == FORWARD) {
        l.count = clamp_to(device.records / step_floats, count_min, c.BH);
        l.span = clamp_to(device.records / (l.count * step_floats) / l.run * l.run, l.run, c.T);
        return l;
    }
    const int64_t states = (2 * l.runs + 1) * (int64_t)l.tile, segments = ceil_div(c.T, l.K);
    l.count = clamp_to(device.states / states, count_min, c.BH);
    l.span = clamp_to(device.records / (l.K * l.count * step_floats), 1, segments) * l.K;
    l.round_segments = clamp_to(device.states / (l.count * states), 1, l.span / l.K);
    return l;
}

/* Divides the workspace; returns its size in floats. */
static int64_t divide_workspace(layout *l, float *work)
{
    const int64_t steps = l->count * l->span, states = l->round_segments * l->count * l->tile;
    float *progress;
    const struct {
        float **at;
        int64_t floats;
    } parts[] = {
        {&l->inputs, steps * l->input_floats},
        {&l->results, steps * l->result_floats},
        {&l->states, states * (l->runs + 1)},
        {&l->gradients, states * l->runs},
        {&progress, l->count},
    };
    int64_t used = 0;
    for (size_t i = 0; i < COUNT(parts); i++) {
        if (work)
            *parts[i].at = work + used;
        used += parts[i].floats;
    }
    l->progress = work ? (int *)progress : NULL;
    return used;
}

struct kernels {
    void (*prepare)(layout), (*prepare_back)(layout), (*carry)(layout), (*replay)(layout);
    void (*walk_back)(layout), (*sum_rows)(layout);
    int sum_rows_threads; /* of a block of sum_rows */
};

template <typename T, int LANES, bool INSIDE>
static kernels kernels_of(void)
{
    return {prepare<T, elements_per_lane(LANES), false>,
            prepare<T, elements_per_lane(LANES), true>,
            carry<LANES, INSIDE, false>,
            carry<LANES, INSIDE, true>,
            walk_back<LANES, INSIDE>,
            sum_rows<T, LANES, INSIDE>,
            sum_threads(LANES)};
}

template <typename T, int LANES>
static kernels kernels_of(const layout &l)
{
    return l.c.z_inside ? kernels_of<T, LANES, true>() : kernels_of<T, LANES, false>();
}

template <typename T>
static kernels kernels_of(const layout &l)
{
    switch (l.lanes) {
    case 1: return kernels_of<T, 1>(l);
    case 2: return kernels_of<T, 2>(l);
    case 4: return kernels_of<T, 4>(l);
    case 8: return kernels_of<T, 8>(l);
    default: return kernels_of<T, 16>(l);
    }
}

/* With programmatic dependent launch: for all but the first kernel of a sequence of launches. */
static int launch(const layout &l, void (*kernel)(layout), int64_t blocks, int threads,
                  size_t shared)
{
    CUDA(allow_smem(kernel, shared));
    return launch_pdl(kernel, (unsigned)blocks, threads, shared, l);
}

static int launch_scans(const layout &l, void (*kernel)(layout), int64_t blocks, size_t shared)
{
    return launch(l, kernel, blocks, 32 * l.groups * l.warps, shared);
}

/* One chain per sequence and head; if the chains are few, each takes the maximum shared memory
 * of a block, so that it is alone on its SM and the kernel that follows runs on the others. */
static int launch_chains(const layout &l, void (*kernel)(layout), size_t shared)
{
    const size_t all = gpu_limits()->smem;
    const bool few = l.count <= gpu_limits()->sms / 2;
    return launch_scans(l, kernel, l.count, few && all > shared ? all : shared);
}

static int launch_prepare(const layout &l, void (*kernel)(layout))
{
    const int64_t items = (l.end - l.begin) * l.count * l.groups;
    kernel<<<ceil_div(32 * items, THREADS), THREADS, 0, gpu_stream()>>>(l);
    return cudaGetLastError();
}

template <typename T>
static int forward(const struct frame *f)
{
    layout l = layout_of(f, FORWARD);
    const kernels k = kernels_of<T>(l);
    const int64_t count_max = l.count;

    divide_workspace(&l, (float *)f->work);
    for (l.first = 0; l.first < l.c.BH; l.first += count_max) {
        l.count = clamp_to(l.c.BH - l.first, 1, count_max);
        for (l.begin = 0; l.begin < l.c.T; l.begin = l.end) {
            l.end = clamp_to(l.begin + l.span, 1, l.c.T);
            l.from = l.begin ? l.c.last : l.c.first;
            CUDA((cudaError_t)launch_prepare(l, k.prepare));
            CUDA((cudaError_t)launch_chains(l, k.carry, carry_bytes(l)));
            CUDA((cudaError_t)launch(l, put_outputs<T>, ceil_div(l.end - l.begin, l.run) * l.count,
                                     THREADS, 0));
        }
    }
    return 0;
}

/* Replays, scans backward and sums all segments that have records, some at a time. */
static int launch_backward(layout l, const kernels &k)
{
    const int begin = (int)(l.begin / l.K);

    for (l.segment_end = (int)ceil_div(l.end, l.K); l.segment_end > begin;
         l.segment_end = l.segment) {
        l.segment = (int)clamp_to(l.segment_end - l.round_segments, begin, l.segment_end);
        l.from = l.segment_end * l.K < l.c.T ? l.c.dfirst : l.c.dlast;
        const run_coord last = last_run(l);
        const int64_t runs = (int64_t)(last.segment - l.segment) * l.runs + last.run + 1;
        CUDA((cudaError_t)launch_scans(l, k.replay, (l.segment_end - l.segment) * l.count,
                                       carry_bytes(l)));
        CUDA((cudaError_t)launch_chains(l, k.walk_back, walk_bytes(l)));
        CUDA((cudaError_t)launch(l, k.sum_rows, runs * l.count * l.groups, k.sum_rows_threads,
                                 sum_bytes(l)));
    }
    return 0;
}

template <typename T>
static int backward(const struct frame *f)
{
    layout l = layout_of(f, BACKWARD);
    const kernels k = kernels_of<T>(l);
    const int64_t count_max = l.count, steps = l.span;

    divide_workspace(&l, (float *)f->work);
    for (l.first = 0; l.first < l.c.BH; l.first += count_max) {
        l.count = clamp_to(l.c.BH - l.first, 1, count_max);
        for (l.end = l.c.T; l.end > 0; l.end = l.begin) {
            l.begin = clamp_to(ceil_div(l.end, l.K) * l.K - steps, 0, l.end);
            CUDA((cudaError_t)launch_prepare(l, k.prepare_back));
            CUDA((cudaError_t)launch_backward(l, k));
        }
    }
    return 0;
}

static size_t work(const struct frame *f, enum pass p)
{
    layout l = layout_of(f, p);
    return sizeof(float) * divide_workspace(&l, NULL);
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
        return "rows of one element: their gradients are left by cancellation";
    if (DIM(f, state == E74_FULL ? 'N' : 'L') > OCTET * 16)
        return state == E74_FULL ? "n_state beyond 128: the state does not fit a block's registers"
                                 : "block_size beyond 128: not enough threads for a row";
    const layout l = layout_of(f, BACKWARD);
    if (l.groups * l.warps > max_warps(l.lanes))
        return "the blocks of the state need more warps than a block has";
    if (walk_bytes(l) > SHARED_MAX)
        return "the records of a run do not fit shared memory";
    return NULL;
}

static const char name[] = "norms",
                  idea[] = "one block per state, held in registers; its norm a scalar";

extern "C" const struct impl e74_norms32 = {
    name, idea, {forward<float>, backward<float>}, work, declines, NULL, 0, RUN_MAX};
extern "C" const struct impl e74_norms16 = {
    name, idea,   {forward<__nv_bfloat16>, backward<__nv_bfloat16>}, work, declines, NULL,
    0,    RUN_MAX};
