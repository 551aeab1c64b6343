/* e74_cell, kernel `norms`: rmsnorm and frobnorm, which tie all numbers of a
 * state to each other, so that one block carries a whole state in registers:
 * eight columns of `rows_each` rows a thread, LANES threads for a row.
 *
 * The division by the norm is not done: S = Shat / C, and only the scalar C
 * knows of it.  With r = Shat u, p = Shat k^, all on the scale of Shat,
 *
 *     delta = C v - z r,   Shat <- Shat + delta k^T
 *     |Shat|^2 <- |Shat|^2 + sum over rows of delta (2 p + |k^|^2 delta)
 *     C <- epsilon C + R,  R = |Shat| (or the root of its mean square)
 *
 * so that a step has one sum over the block, of rows' numbers, one barrier,
 * and a root that is awaited by the next step's C v only, beside the dot
 * products.  Where the sum loses digits, because P is much smaller than S has
 * been, or leaves too little room to either side, the squares of P are added up
 * themselves.
 *
 * Steps are taken in runs, which begin at multiples of 16 (or less, where
 * shared memory is short).  There S takes the place of Shat and its squares are
 * summed anew, so that a run's bits depend on its first state alone; with
 * checkpoints in float backward replays from those that begin a run.
 *
 * Backward, first all segments side by side are replayed, by the kernel of the
 * forward pass, which leaves each step's vectors, and a state a run.  Then one
 * block for each sequence and head walks back, without states: with
 * c = 1 / (R + epsilon), g = <G, S>, a = g / (m R), w = S k^, G = Gamma + beta S,
 *
 *     dv = c Gamma k^ + (c beta - a) w,   dreads = -z dv,   beta <- c (c beta - a)
 *     Gamma <- c Gamma + beta delta k^T + dreads u^T,       Gamma += dy q^T
 *     g <- epsilon c g + sum over rows of (dy y - dv v)
 *
 * (the first line with beta before, the second with beta after; y and dy are
 * those of the step before), Gamma again a scalar E times what is in registers,
 * and beta folded in where a run begins, and its state is known.  (Where E
 * grows before that, beta grows with its square and digits would be lost: there
 * the state is made again from the run's first, and beta folded in at once.)
 * What remains are sums over rows, for all runs side by side, a thread for four
 * columns:
 *
 *     dk^ = dP^T delta + S_{t-1}^T dreads,   dq = S^T dy
 *     dP^T delta = c Gamma^T delta + beta (S_{t-1} + delta k^T)^T delta
 *
 * and of them the gradients of k, q, v and z.  Keys are normalised before all
 * that.
 *
 * A chain of steps is bound by latency, and leaves most of the chip idle where
 * there are few.  So what follows it, outputs or sums, is launched as soon as all
 * chains have begun, and each of its blocks waits until its chain has told that
 * the run is done with.  (Chains never wait for those who follow, so that it does
 * not matter how many of them there is room for.)  Few chains claim a whole
 * SM's shared memory each, to be alone there. */
#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/columns.cuh"
#include "gpu/device/flags.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/e74/e74_cell.cuh"

enum {
    SUMS = 16, /* that warps leave for a block, with zeros */
    RUN_MOST = 16,
    RUN_LEAST = 2,
    NUMBERS_EACH = 16, /* of a state, for each step of a run, but for RUN_LEAST */
    TOLD = 128,        /* steps, at least, between a chain's announcements */
    FLAT = 128,        /* threads of a block where no state is carried */
    SHARED_MAX = 227 * 1024
};

/* How far a scale may be from 1 before it is multiplied in; forward, where Phat's sum
 * of squares may be; and how far E may grow while there is a beta: that grows with its
 * square, G does not. */
static const float SCALE_MOST = 0x1p60f, SQUARES_MOST = 0x1p120f, SQUARES_LEAST = 0x1p-80f;
static const float GROWTH_MOST = 2;

static constexpr __host__ __device__ int rows_each(int lanes)
{
    return lanes == 16 ? 8 : lanes == 8 ? 4 : 1;
}

/* Of a block, at most, so that there are registers enough for the rows. */
static constexpr __host__ __device__ int warps_most(int lanes)
{
    return lanes >= 8 ? 8 : 16;
}

/* Where a thread has four columns: its rows, and the threads that share them. */
static constexpr __host__ __device__ int rows_down(int lanes)
{
    return lanes >= 8 ? 16 : lanes == 4 ? 8 : 2;
}
static constexpr __host__ __device__ int lanes_down(int lanes)
{
    return lanes == 16 || lanes == 2 ? 8 : lanes == 1 ? 16 : 4;
}

/* Threads that add up a group's rows. */
static constexpr __host__ __device__ int threads_down(int lanes)
{
    return 2 * lanes * lanes_down(lanes);
}

/* Blocks of these on an SM, at least: where there are registers enough. */
static constexpr __host__ __device__ int blocks_down(int lanes, bool inside)
{
    return lanes == 16 ? (inside ? 1 : 2) : 6;
}

/* A lane's numbers of a vector that a warp has. */
static constexpr __host__ __device__ int share_each(int lanes)
{
    return lanes > 4 ? lanes / 4 : 1;
}

/* ---- how a call is laid out ---- */

/* Columns and rows of a group, with padding. */
static constexpr __host__ __device__ int width_of(int lanes)
{
    return COLUMNS * lanes;
}
static constexpr __host__ __device__ int slots_of(int lanes)
{
    return rows_down(lanes) * lanes_down(lanes);
}

/* Where a group's numbers of a step are: what prepare() gives, and what the replay
 * finds, in which the walk puts dv in the place of y and f in that of `written`.
 * The sums over rows put dk^ in the place of v, dq in that of q and du in that of u.
 * What comes last is not always there. */
struct fields {
    int khat, q;        /* given, of columns */
    int v;              /* given, of rows */
    int squares;        /* given: |k^|^2 */
    int u, dy, z;       /* given, of columns, rows, rows */
    int given;          /* all of them */
    int y, delta;       /* found, of rows */
    int scalars;        /* found: c, 1 / (m R), beta, and whether it is folded in then */
    int written, reads; /* found, of rows; S k^, S u */
    int found;          /* all of them */
};

static constexpr __host__ __device__ fields fields_of(int lanes, bool inside, bool outside,
                                                      bool back)
{
    const int columns = width_of(lanes), rows = slots_of(lanes);
    fields f = {};
    f.q = f.khat + columns;
    f.v = f.q + columns;
    f.squares = f.v + rows;
    f.u = f.squares + 4;
    f.dy = f.u + (inside ? columns : 0);
    f.z = f.dy + (back ? rows : 0);
    f.given = f.z + (outside ? rows : 0);
    f.delta = f.y + rows;
    f.scalars = f.delta + rows;
    f.written = f.scalars + 4;
    f.reads = f.written + rows;
    f.found = !back ? f.delta : f.reads + (outside ? rows : 0);
    return f;
}

/* As a kernel knows them: all but those that may not be there. */
template <int LANES, bool INSIDE, bool BACK = true>
static constexpr __host__ __device__ fields known(void)
{
    return fields_of(LANES, INSIDE, true, BACK);
}

/* A group is a run of rows that meet the same columns of the keys: all n, or
 * those of one block of the state.  It takes whole warps. */
struct layout {
    call c;
    fields f;
    int lanes, groups, warps;   /* warps of a group */
    int width, slots;           /* columns and rows of a group, with padding */
    int given, found;           /* floats of a step */
    int tile;                   /* floats of a noted state */
    int run, runs;              /* steps of a run, runs of a segment, at most */
    int64_t K;                  /* steps of a segment that is replayed */
    float mean;                 /* what the sum of squares is multiplied with */
    int64_t count, span, round; /* at once: sequences and heads, steps, segments of states */
    float *givens, *founds;     /* [count][span][given or found] */
    float *states; /* [round][runs + 1][count][tile]: before each run, and at the segment's end */
    float *ends;   /* [round][runs][count][tile]: G after each run, without its dy q^T */
    int *reached;  /* [count]: the step that a chain has come to, as it tells who follow it */

    /* of a launch */
    int64_t first;      /* sequence and head */
    int64_t begin, end; /* steps that there are records of */
    int segment, until; /* segments that are replayed or walked back */
    const float *from;  /* the state, or its gradient, to begin with */
};

/* A thread's share: its first row within its group, and within the state. */
struct place {
    int lane, warp, group, row, slot;
};

template <int LANES>
static __device__ place map_shared_rank(const layout &l)
{
    place p;
    p.lane = threadIdx.x % LANES;
    p.warp = threadIdx.x / 32;
    p.group = p.warp / l.warps;
    p.row = (p.warp % l.warps * (32 / LANES) + (int)threadIdx.x % 32 / LANES) * rows_each(LANES);
    p.slot = p.group * l.slots + p.row;
    return p;
}

/* The columns that row r of a thread has in memory: none if it is padding. */
static __device__ int columns_of(const layout &l, const place &p, int r)
{
    return p.row + r < l.c.rows ? l.c.columns : 0;
}

/* Where that row begins within a state. */
static __device__ int element_of(const layout &l, const place &p, int r)
{
    return (p.group * l.c.rows + p.row + r) * l.c.columns;
}

static __device__ float *given_of(const layout &l, int64_t t, int64_t b)
{
    return l.givens + (b * l.span + t - l.begin) * l.given;
}

static __device__ float *found_of(const layout &l, int64_t t, int64_t b)
{
    return l.founds + (b * l.span + t - l.begin) * l.found;
}

/* A segment's runs follow each other, and only the last segment may have less
 * than all. */
struct leg {
    int segment, run;
};

static __device__ __forceinline__ leg before(const layout &l, leg at)
{
    return at.run ? leg{at.segment, at.run - 1} : leg{at.segment - 1, l.runs - 1};
}

static __host__ __device__ leg last_leg(const layout &l)
{
    const int64_t begin = (l.until - 1) * l.K, end = l.until * l.K < l.c.T ? l.until * l.K : l.c.T;
    return {l.until - 1, (int)ceil_div(end - begin, l.run) - 1};
}

static __device__ __forceinline__ int64_t begin_of(const layout &l, leg at)
{
    return at.segment * l.K + at.run * l.run;
}

static __device__ __forceinline__ int steps_of(const layout &l, leg at)
{
    const int64_t end = min((at.segment + 1) * l.K, l.c.T);
    return (int)min((int64_t)l.run, end - begin_of(l, at));
}

/* The state before a run, or, `after` = 1, the one after it. */
static __device__ float *state_of(const layout &l, leg at, int after, int64_t b)
{
    const int64_t slot = (at.segment - l.segment) * (l.runs + 1) + at.run + after;
    return l.states + (slot * l.count + b) * l.tile;
}

static __device__ float *end_of(const layout &l, leg at, int64_t b)
{
    return l.ends + (((at.segment - l.segment) * l.runs + at.run) * l.count + b) * l.tile;
}

/* ---- who goes ahead, and who follows ---- */

/* By a thread, when its block has met at a barrier: the numbers of all steps on the
 * way to t are in memory. */
static __device__ __forceinline__ void tell(const layout &l, int64_t b, int64_t t)
{
    if (threadIdx.x == 0)
        store_release(l.reached + b, (int)t);
}

/* By a block of the kernel after that of the chains, all of which have begun. */
template <bool BACK>
static __device__ __forceinline__ void wait_for_chain(const layout &l, int64_t b, int64_t t)
{
    if (threadIdx.x == 0)
        while (BACK ? load_acquire(l.reached + b) > t : load_acquire(l.reached + b) < t)
            __nanosleep(200);
    __syncthreads();
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

static __device__ __forceinline__ float sum_of_four(const float *x)
{
    const four<float> a = *(const four<float> *)x;
    return (a.x[0] + a.x[1]) + (a.x[2] + a.x[3]);
}

/* Of a block, n of them, followed by zeros. */
template <int LANES>
static __device__ __forceinline__ float sum_of(const float *sums, int n)
{
    const int most = warps_most(LANES);
    float sum = sum_of_four(sums);
    for (int i = 4; i < most; i += 4)
        if (n > i)
            sum += sum_of_four(sums + i);
    return sum;
}

/* Of what each row has, its lanes the same. */
template <int LANES>
static __device__ __forceinline__ void leave_sums(float *to, const place &p, float x)
{
    for (int d = LANES; d < 32; d *= 2)
        x += __shfl_xor_sync(0xffffffff, x, d);
    if (threadIdx.x % 32 == 0)
        to[p.warp] = x;
}

/* Of what each thread has. */
template <int LANES>
static __device__ __forceinline__ void leave_all_sums(float *to, const place &p, float x)
{
    leave_sums<LANES>(to, p, lanes_sum<LANES>(x));
}

static __device__ __forceinline__ void zero_sums(float *sums, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        sums[i] = 0;
    __syncthreads();
}

/* ---- from memory to memory ---- */

/* By all threads of a block; floats is a multiple of four. */
static __device__ __forceinline__ void send_for(float *to, const float *from, int floats)
{
    #pragma unroll 4
    for (int i = 4 * (int)threadIdx.x; i < floats; i += 4 * (int)blockDim.x)
        cp_async16(to + i, from + i);
}

/* A thread's rows of a step's numbers. */
template <int ROWS>
static __device__ __forceinline__ void take_rows(float *x, const float *from)
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
static __device__ __forceinline__ void leave_rows(float *to, const float *x)
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
    for (int j = 0; j < COLUMNS; j++)
        row->x[j] = fmaf(weight, e.x[j], row->x[j]);
}

static __device__ __forceinline__ void multiply(eight *row, float factor)
{
    for (int j = 0; j < COLUMNS; j++)
        row->x[j] *= factor;
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

/* (C Shat, as it is stored.) */
template <int LANES>
static __device__ void keep_state(const layout &l, const place &p, int64_t slot, const eight *S,
                                  float scale)
{
    for (int r = 0; r < rows_each(LANES); r++) {
        eight row = S[r];
        multiply(&row, scale);
        if (l.c.kept == KEPT_F32) {
            store_columns<float, LANES>((float *)l.c.checkpoints + slot * l.c.M +
                                            element_of(l, p, r),
                                        columns_of(l, p, r), p.lane, row);
            continue;
        }
        for (int j = 0; j < COLUMNS; j++) {
            const int column = run<LANES>(j / 4, p.lane) + j % 4;
            if (column < columns_of(l, p, r))
                put_kept(l.c, slot, element_of(l, p, r) + column, row.x[j]);
        }
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

/* In the workspace a state is [groups][slots][width]: row r of a thread. */
static __device__ __forceinline__ int noted_at(const layout &l, const place &p, int r)
{
    return (p.slot + r) * l.width;
}

template <int LANES>
static __device__ __forceinline__ void note_state(const layout &l, const place &p, float *to,
                                                  const eight *S)
{
    for (int r = 0; r < rows_each(LANES); r++)
        leave<LANES>(to + noted_at(l, p, r), p.lane, S[r]);
}

/* This thread's own share, on its way to it alone. */
template <int LANES>
static __device__ __forceinline__ void send_for_state(const layout &l, const place &p, float *to,
                                                      const float *from)
{
    for (int r = 0; r < rows_each(LANES); r++)
        for (int i = 0; i < 2; i++) {
            const int at = noted_at(l, p, r) + run<LANES>(i, p.lane);
            cp_async16(to + at, from + at);
        }
}

/* ---- forward, and replay ---- */

/* What a thread takes of a step ahead of the barrier; z stays 1 where there is none. */
template <int LANES>
struct meal {
    eight write, read;
    float v[rows_each(LANES)], z[rows_each(LANES)], squares;
};

/* Where the thread's columns, its rows, and its group begin within a step's numbers. */
struct seat {
    int column, row, group;
};

static __device__ __forceinline__ seat seat_of(const place &p, int floats)
{
    const int group = p.group * floats;
    return {group + 4 * p.lane, group + p.row, group};
}

template <int LANES, bool INSIDE, bool BACK>
static __device__ __forceinline__ void serve(const layout &l, const seat &at, const float *given,
                                             meal<LANES> *m)
{
    constexpr fields f = known<LANES, INSIDE, BACK>();
    m->write = take<LANES>(given + at.column + f.khat, 0);
    m->read = INSIDE ? take<LANES>(given + at.column + f.u, 0) : m->write;
    take_rows<rows_each(LANES)>(m->v, given + at.row + f.v);
    if (l.c.z_outside)
        take_rows<rows_each(LANES)>(m->z, given + at.row + f.z);
    m->squares = given[at.group + f.squares];
}

/* Of y, a thread is left with one row, some threads with the same. */
template <int LANES>
static __device__ __forceinline__ int own_row(const place &p)
{
    int row = 0;
    for (int half = rows_each(LANES) / 2, bit = LANES / 2; half; half /= 2, bit /= 2)
        row += p.lane & bit ? half : 0;
    return row;
}

/* What is known of the state in registers: S = Shat / up = down Shat; Shat's sum of
 * squares, and the largest that has been since all were last added up. */
struct scale {
    float up, down;
    float squares, peak;
};

/* What a step divides P by: R, and 1 / (R + epsilon); from Phat's sum of squares on. */
struct bend {
    float R, inverse;
};

static __device__ __forceinline__ bend bend_to(scale *s, float squares, float peak, float mean)
{
    const float length = sqrt_approx(squares * mean), up = s->up;
    bend n;
    n.R = s->down * length;
    s->up = fmaf((float)E74_EPSILON, up, length);
    s->down = rcp_approx(s->up);
    n.inverse = up * s->down;
    s->squares = squares;
    s->peak = peak;
    return n;
}

/* Shat u, and Shat k^ where that is not the same. */
template <int LANES>
struct dots {
    float read[rows_each(LANES)], write[rows_each(LANES)];
};

template <int LANES, bool INSIDE>
static __device__ __forceinline__ dots<LANES> meet(const eight *S, const meal<LANES> &m)
{
    const int ROWS = rows_each(LANES);
    dots<LANES> d;
    for (int r = 0; r < ROWS; r++) {
        d.read[r] = dot(S[r], m.read);
        d.write[r] = INSIDE ? dot(S[r], m.write) : 0;
    }
    for (int r = 0; r < ROWS; r++) {
        d.read[r] = lanes_sum<LANES>(d.read[r]);
        d.write[r] = INSIDE ? lanes_sum<LANES>(d.write[r]) : d.read[r];
    }
    return d;
}

/* What a step finds out about a thread's rows, all as Shat is scaled: delta, and
 * P k^. */
template <int LANES>
struct finding {
    float delta[rows_each(LANES)], written[rows_each(LANES)];
};

/* Up to the barrier: that, and what the warp adds to the sum of squares. */
template <int LANES>
static __device__ __forceinline__ finding<LANES>
approach(const place &p, const meal<LANES> &m, const dots<LANES> &d, float up, float *sums)
{
    finding<LANES> f;
    float change[2] = {};
    for (int r = 0; r < rows_each(LANES); r++) {
        f.delta[r] = fmaf(-m.z[r], d.read[r], up * m.v[r]);
        f.written[r] = fmaf(m.squares, f.delta[r], d.write[r]);
        change[r % 2] = fmaf(f.delta[r], d.write[r] + f.written[r], change[r % 2]);
    }
    leave_sums<LANES>(sums, p, change[0] + change[1]);
    return f;
}

template <int LANES>
static __device__ __forceinline__ float squares_of(const eight *S)
{
    float squares = 0;
    for (int r = 0; r < rows_each(LANES); r++)
        squares += dot(S[r], S[r]);
    return squares;
}

/* A step of which too many digits were lost, or that leaves too little room to either
 * side, once more: with Phat = P, whose squares are added up themselves.  s is as it was
 * before the step, S as it is after. */
template <int LANES>
static __device__ bend bend_again(const place &p, eight *S, dots<LANES> *d, float *y, scale *s,
                                  float mean, int n, float *sums)
{
    for (int r = 0; r < rows_each(LANES); r++) {
        multiply(&S[r], s->down);
        d->read[r] *= s->down;
        d->write[r] *= s->down;
        y[r] *= s->down;
    }
    s->up = s->down = 1;
    leave_all_sums<LANES>(sums, p, squares_of<LANES>(S));
    __syncthreads();
    const float all = sum_of<LANES>(sums, n);
    return bend_to(s, all, all, mean);
}

/* For the way back, by one lane of a row; P was down Phat. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void note_step(const layout &l, const place &p, const seat &at,
                                                 float *found, const finding<LANES> &f,
                                                 const float *read, float down, const bend &n)
{
    const int ROWS = rows_each(LANES);
    constexpr fields to = known<LANES, INSIDE>();
    float delta[ROWS], written[ROWS], reads[ROWS];
    for (int r = 0; r < ROWS; r++) {
        delta[r] = down * f.delta[r];
        written[r] = down * n.inverse * f.written[r];
        reads[r] = down * read[r];
    }
    if (p.lane == 0) {
        leave_rows<ROWS>(found + at.row + to.delta, delta);
        leave_rows<ROWS>(found + at.row + to.written, written);
        if (l.c.z_outside)
            leave_rows<ROWS>(found + at.row + to.reads, reads);
    }
    if (p.lane == 0 && p.row == 0) {
        found[at.group + to.scalars] = n.inverse;
        found[at.group + to.scalars + 1] = n.R > 0 ? l.mean * rcp_approx(n.R) : 0;
    }
}

/* The steps that a block carries its state through. */
struct stretch {
    int64_t begin, end;
};

static __device__ __forceinline__ stretch stretch_of(const layout &l, bool replays)
{
    if (!replays)
        return {l.begin, l.end};
    const int64_t begin = (l.segment + blockIdx.x / l.count) * l.K;
    return {begin, min(begin + l.K, l.c.T)};
}

enum { CARRY_SUMS = 4 * SUMS }; /* of two neighbouring steps, of a run's begin, exact ones */

template <int LANES, bool INSIDE, bool REPLAYS>
__global__ void __launch_bounds__(32 * warps_most(LANES), 1) carry(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const int ROWS = rows_each(LANES), half = l.run * l.given;
    const int n = l.groups * l.warps;
    const call &c = l.c;
    const place p = map_shared_rank<LANES>(l);
    const stretch way = stretch_of(l, REPLAYS);
    const int64_t b = blockIdx.x % l.count, bh = l.first + b;
    float *const sums = buffer + 2 * half, *const opening = sums + 2 * SUMS;
    const seat at = seat_of(p, l.f.given), at_found = seat_of(p, l.f.found);
    constexpr fields f = known<LANES, INSIDE, REPLAYS>();
    const bool leaves = p.lane % (LANES / ROWS) == 0;
    int keep = (int)(way.begin % c.K ? c.K - way.begin % c.K : 0), turn = 0;
    int64_t told = way.begin;
    int64_t slot = ceil_div(way.begin, c.K) * c.BH + bh;
    leg at_run = {(int)(l.segment + blockIdx.x / l.count), 0};
    float *found = found_of(l, way.begin, b);
    float *out = found - l.found + at_found.row + f.y + own_row<LANES>(p);
    scale s = {1, 1, 0, 0};
    eight S[ROWS];
    meal<LANES> m;

    for (int r = 0; r < ROWS; r++)
        m.z[r] = 1;
    zero_sums(sums, CARRY_SUMS);
    pdl_wait();
    pdl_launch_dependents();
    send_for(buffer, given_of(l, way.begin, b),
             (int)min((int64_t)l.run, way.end - way.begin) * l.given);
    cp_async_commit();
    if (REPLAYS)
        kept_state<LANES>(l, p, slot, S);
    else
        load_state<LANES>(l, p, l.from + bh * c.M, S);

    for (int64_t t = way.begin, i = 0; t < way.end; t += l.run, i ^= 1, at_run.run++) {
        const int steps = (int)min((int64_t)l.run, way.end - t);
        const int64_t beyond = way.end - t - steps;
        const float *here = buffer + i * half;

        for (int r = 0; r < ROWS; r++)
            multiply(&S[r], s.down);
        leave_all_sums<LANES>(opening, p, squares_of<LANES>(S));
        cp_async_wait<0>();
        __syncthreads();
        if (!REPLAYS && t - told >= TOLD) {
            tell(l, b, t);
            told = t;
        }
        s.down = s.up = 1;
        s.squares = s.peak = sum_of<LANES>(opening, n);
        send_for(buffer + (1 - i) * half, given_of(l, t + steps, b),
                 (int)min((int64_t)l.run, beyond) * l.given);
        cp_async_commit();
        if (REPLAYS)
            note_state<LANES>(l, p, state_of(l, at_run, 0, b), S);

        serve<LANES, INSIDE, REPLAYS>(l, at, here, &m);
        dots<LANES> d = meet<LANES, INSIDE>(S, m);
        float y[ROWS] = {}; /* of the step before, not yet added up */
        for (int left = steps; left > 0; left--, out += l.found, found += l.found) {
            if (!REPLAYS && __builtin_expect(keep-- == 0, 0)) {
                keep_state<LANES>(l, p, slot, S, s.down);
                slot += c.BH;
                keep = (int)c.K - 1;
            }
            share_out<ROWS, LANES / 2, 1>(y);
            if (leaves && left < steps)
                *out = s.down * y[0];
            const finding<LANES> row = approach<LANES>(p, m, d, s.up, sums + turn);
            for (int r = 0; r < ROWS; r++)
                add(&S[r], row.delta[r], m.write);
            const float *const query = here + at.column + f.q;
            here += left > 1 ? l.given : 0; /* after the last, that once more: not used */
            serve<LANES, INSIDE, REPLAYS>(l, at, here, &m);
            __syncthreads();
            const float after = s.squares + sum_of<LANES>(sums + turn, n);
            const float peak = fmaxf(s.peak, after);
            turn ^= SUMS;
            const dots<LANES> met = d;
            const scale before = s;
            d = meet<LANES, INSIDE>(S, m);
            const eight q = take<LANES>(query, 0); /* (here, to have work for where it waits) */
            for (int r = 0; r < ROWS; r++)
                y[r] = dot(S[r], q);
            bend by = bend_to(&s, after, peak, l.mean);
            if (__builtin_expect(
                    !(after >= fmaxf(0.5f * peak, SQUARES_LEAST) && after < SQUARES_MOST), 0)) {
                s = before;
                by = bend_again<LANES>(p, S, &d, y, &s, l.mean, n, opening + SUMS);
            }
            if (REPLAYS)
                note_step<LANES, INSIDE>(l, p, at_found, found, row, met.read, before.down, by);
        }
        share_out<ROWS, LANES / 2, 1>(y);
        if (leaves)
            *out = s.down * y[0];
    }
    for (int r = 0; r < ROWS; r++)
        multiply(&S[r], s.down);
    if (REPLAYS) {
        note_state<LANES>(l, p, state_of(l, at_run, 0, b), S);
    } else {
        __syncthreads();
        tell(l, b, way.end);
        store_state<LANES>(l, p, c.last + bh * c.M, S);
    }
}

/* ---- back ---- */

/* What a thread takes of a step on the way back; z stays 1 where there is none. */
template <int LANES>
struct course {
    eight write, read;
    float v[rows_each(LANES)], z[rows_each(LANES)];
    float delta[rows_each(LANES)], written[rows_each(LANES)];
    float inverse, along;
};

/* And of the step before that, whose y and dy it meets first: on their way for as
 * long as a step takes. */
template <int LANES>
struct answer {
    float y[rows_each(LANES)], dy[rows_each(LANES)];
    eight query;
};

/* Where the thread's numbers are in what is given and in what is found. */
struct seats {
    seat given, found;
};

/* A step in shared memory, from where the thread's columns, its rows, and its group
 * begin. */
struct stand {
    const float *columns, *rows, *found, *group;
};

static __device__ __forceinline__ stand stand_at(const seats &at, const float *given,
                                                 const float *found)
{
    return {given + at.given.column, given + at.given.row, found + at.found.row,
            found + at.found.group};
}

/* The step before; where there is none, the same. */
static __device__ __forceinline__ void step_back(const layout &l, stand *s, bool any)
{
    const int given = any ? l.given : 0, found = any ? l.found : 0;
    s->columns -= given;
    s->rows -= given;
    s->found -= found;
    s->group -= found;
}

template <int LANES, bool INSIDE>
static __device__ __forceinline__ void serve_back(const layout &l, const stand &from,
                                                  course<LANES> *o)
{
    constexpr fields f = known<LANES, INSIDE>();
    const int ROWS = rows_each(LANES);
    o->write = take<LANES>(from.columns + f.khat, 0);
    o->read = INSIDE ? take<LANES>(from.columns + f.u, 0) : o->write;
    take_rows<ROWS>(o->v, from.rows + f.v);
    take_rows<ROWS>(o->delta, from.found + f.delta);
    take_rows<ROWS>(o->written, from.found + f.written);
    if (l.c.z_outside)
        take_rows<ROWS>(o->z, from.rows + f.z);
    o->inverse = from.group[f.scalars];
    o->along = from.group[f.scalars + 1];
}

template <int LANES, bool INSIDE>
static __device__ __forceinline__ answer<LANES> answer_at(const stand &from, const float *dy)
{
    constexpr fields f = known<LANES, INSIDE>();
    answer<LANES> a;
    take_rows<rows_each(LANES)>(a.y, from.found + f.y);
    take_rows<rows_each(LANES)>(a.dy, dy);
    a.query = take<LANES>(from.columns + f.q, 0);
    return a;
}

/* A run's numbers, on their way to shared memory. */
static __device__ __forceinline__ void send_for_run(const layout &l, float *givens, float *founds,
                                                    leg at, int64_t b)
{
    const int64_t t = begin_of(l, at);
    const int steps = steps_of(l, at);
    send_for(givens, given_of(l, t, b), steps * l.given);
    send_for(founds, found_of(l, t, b), steps * l.found);
}

/* G = Gamma + beta S, where S is the state after some steps of a run that
 * begins with `state`. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ float
fold(const layout &l, const place &p, const seats &at, const float *state, const float *given,
     const float *found, int steps, float down, float beta, eight *G)
{
    constexpr fields f = known<LANES, INSIDE>();
    float along = 0;
    for (int r = 0; r < rows_each(LANES); r++) {
        eight S = take<LANES>(state + noted_at(l, p, r), p.lane);
        #pragma unroll 1
        for (int step = 0; step < steps; step++) {
            const float *const here = found + step * l.found;
            add(&S, here[at.found.row + f.delta + r],
                take<LANES>(given + step * l.given + at.given.column + f.khat, 0));
            multiply(&S, here[at.found.group + f.scalars]);
        }
        for (int j = 0; j < COLUMNS; j++)
            G[r].x[j] = fmaf(beta, S.x[j], down * G[r].x[j]);
        along += dot(G[r], S);
    }
    return along;
}

/* What a thread has of <G, S>, G without its dy q^T. */
template <int LANES>
static __device__ __forceinline__ float along_state(const layout &l, const place &p,
                                                    const float *state, const eight *G,
                                                    const answer<LANES> &a)
{
    float along = 0;
    for (int r = 0; r < rows_each(LANES); r++) {
        along += dot(G[r], take<LANES>(state + noted_at(l, p, r), p.lane));
        along = p.lane ? along : fmaf(a.dy[r], a.y[r], along);
    }
    return along;
}

/* A thread's part of Gamma k^. */
template <int LANES>
static __device__ __forceinline__ void meet_back(const eight *G, const eight &write, float *pull)
{
    for (int r = 0; r < rows_each(LANES); r++)
        pull[r] = dot(G[r], write);
}

enum { WALK_SUMS = 2 * SUMS }; /* of two neighbouring steps */

template <int LANES, bool INSIDE>
__global__ void __launch_bounds__(32 * warps_most(LANES), 1) walk_back(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const int ROWS = rows_each(LANES), n = l.groups * l.warps;
    const int givens = l.run * l.given, founds = l.run * l.found;
    const call &c = l.c;
    const place p = map_shared_rank<LANES>(l);
    const int64_t b = blockIdx.x, bh = l.first + b;
    float *const others = buffer + 2 * givens, *const state = others + 2 * founds;
    float *const sums = state + l.tile, *const none = sums + WALK_SUMS;
    const seats at = {seat_of(p, l.f.given), seat_of(p, l.f.found)};
    constexpr fields of = known<LANES, INSIDE>();
    const float *const no_dy = none + p.row; /* there is none before a run's first step */
    leg run = last_leg(l);
    const float *after = state_of(l, run, 1, b);
    int64_t told = l.until * l.K;
    float down = 1, beta = 0;
    int turn = 0;
    eight G[ROWS];
    course<LANES> m;

    for (int r = 0; r < ROWS; r++)
        m.z[r] = 1;
    zero_sums(sums, WALK_SUMS + l.slots);
    pdl_wait();
    pdl_launch_dependents();
    send_for_run(l, buffer, others, run, b);
    cp_async_commit();
    load_state<LANES>(l, p, l.from + bh * c.M, G);

    for (int i = 0; run.segment >= l.segment; i ^= 1) {
        const leg next = before(l, run);
        const int steps = steps_of(l, run);
        const float *const given = buffer + i * givens, *const found = others + i * founds;
        stand here = stand_at(at, given + (steps - 1) * l.given, found + (steps - 1) * l.found);
        float *out = found_of(l, begin_of(l, run) + steps - 1, b);

        cp_async_wait<0>();
        __syncthreads();
        if (told - begin_of(l, run) - steps >= TOLD) {
            told = begin_of(l, run) + steps;
            tell(l, b, told);
        }
        note_state<LANES>(l, p, end_of(l, run, b), G);
        if (next.segment >= l.segment)
            send_for_run(l, buffer + (1 - i) * givens, others + (1 - i) * founds, next, b);
        answer<LANES> a = answer_at<LANES, INSIDE>(here, here.rows + of.dy);
        serve_back<LANES, INSIDE>(l, here, &m);
        leave_all_sums<LANES>(sums + turn, p, along_state<LANES>(l, p, after, G, a));
        send_for_state<LANES>(l, p, state, state_of(l, run, 0, b));
        cp_async_commit();
        float left = 0, least = 1, pull[ROWS];
        down = 1, beta = 0;
        for (int r = 0; r < ROWS; r++)
            add(&G[r], a.dy[r], a.query);
        meet_back<LANES>(G, m.write, pull);
        step_back(l, &here, steps > 1);
        a = answer_at<LANES, INSIDE>(here, steps > 1 ? here.rows + of.dy : no_dy);
        __syncthreads();

        for (int step = steps - 1; step >= 0; step--, out -= l.found) {
            float dv[ROWS], f[ROWS], sum[2] = {};

            for (int r = 0; r < ROWS; r++)
                pull[r] = lanes_sum<LANES>(pull[r]);
            const float g = left + sum_of<LANES>(sums + turn, n);
            turn ^= SUMS;
            down *= m.inverse;
            least = fminf(least, down);
            const float up = rcp_approx(down);
            for (int r = 0; r < ROWS; r++) {
                sum[r % 2] = fmaf(a.dy[r], a.y[r], sum[r % 2]);
                add(&G[r], up * a.dy[r], a.query);
            }
            const float lever = fmaf(m.inverse, beta, -m.along * g);
            left = (float)E74_EPSILON * m.inverse * g;
            beta = lever * m.inverse;
            for (int r = 0; r < ROWS; r++) {
                dv[r] = fmaf(down, pull[r], lever * m.written[r]);
                f[r] = -m.z[r] * dv[r];
                f[r] = INSIDE ? f[r] : fmaf(beta, m.delta[r], f[r]);
                sum[r % 2] = fmaf(-dv[r], m.v[r], sum[r % 2]);
            }
            leave_sums<LANES>(sums + turn, p, sum[0] + sum[1]);
            for (int r = 0; r < ROWS; r++) {
                add(&G[r], up * f[r], m.read);
                if (INSIDE)
                    add(&G[r], up * (beta * m.delta[r]), m.write);
            }
            serve_back<LANES, INSIDE>(l, here, &m); /* after the first, that once more */
            meet_back<LANES>(G, m.write, pull);
            step_back(l, &here, step > 1);
            a = answer_at<LANES, INSIDE>(here, step > 1 ? here.rows + of.dy : no_dy);
            const bool folds = step && down > GROWTH_MOST * least;
            const float fate[] = {beta, folds ? 1.0f : 0.0f};
            if (p.lane == 0) {
                leave_rows<ROWS>(out + at.found.row + of.y, dv);
                leave_rows<ROWS>(out + at.found.row + of.written, f);
            }
            if (p.lane == 0 && p.row == 0)
                leave_rows<2>(out + at.found.group + of.scalars + 2, fate);
            if (__builtin_expect(folds || down < 1 / SCALE_MOST, 0)) {
                if (folds) {
                    cp_async_wait<0>();
                    leave_all_sums<LANES>(
                        sums + turn, p,
                        fold<LANES, INSIDE>(l, p, at, state, given, found, step, down, beta, G));
                    left = beta = 0;
                } else {
                    for (int r = 0; r < ROWS; r++)
                        multiply(&G[r], down);
                }
                meet_back<LANES>(G, m.write, pull);
                down = least = 1;
            }
            __syncthreads();
        }
        cp_async_wait<0>();
        fold<LANES, INSIDE>(l, p, at, state, NULL, NULL, 0, down, beta, G);
        /* Rounded checkpoints are not what the segment before them ended with. */
        after = run.run || c.kept == KEPT_F32 ? state : state_of(l, next, 1, b);
        run = next;
    }
    __syncthreads();
    tell(l, b, l.segment * l.K);
    store_state<LANES>(l, p, c.dfirst + bh * c.M, G);
}

/* ---- what needs no state: a warp for a group of a step ---- */

struct item {
    int lane;
    float *given, *found;
    int64_t at; /* where its numbers begin in [T,BH,N] */
};

static __device__ item item_of(const layout &l, int64_t t, int64_t b, int group)
{
    return {(int)threadIdx.x % 32, given_of(l, t, b) + group * l.f.given,
            found_of(l, t, b) + group * l.f.found,
            (t * l.c.BH + l.first + b) * l.c.N + group * l.c.rows};
}

template <typename T>
static __device__ float number(const void *from, int64_t at, bool any)
{
    return any ? load((const T *)from + at) : 0;
}

/* A lane's share of a group's vector, all on their way at once. */
template <int EACH>
struct share {
    float x[EACH];
};

template <typename T, int EACH>
static __device__ __forceinline__ share<EACH> share_of(const layout &l, const item &m,
                                                       const void *from)
{
    share<EACH> s;
    for (int i = 0; i < EACH; i++)
        s.x[i] = number<T>(from, m.at + m.lane + 32 * i, m.lane + 32 * i < l.c.columns);
    return s;
}

template <int EACH>
static __device__ __forceinline__ share<EACH> share_made(const layout &l, const item &m,
                                                         const float *from)
{
    share<EACH> s;
    for (int i = 0; i < EACH; i++)
        s.x[i] = m.lane + 32 * i < l.c.columns ? from[m.lane + 32 * i] : 0;
    return s;
}

template <int EACH>
static __device__ __forceinline__ void leave_share(const item &m, float *to, int most,
                                                   const share<EACH> &s)
{
    for (int i = 0; i < EACH; i++)
        if (m.lane + 32 * i < most)
            to[m.lane + 32 * i] = s.x[i];
}

template <int EACH>
static __device__ __forceinline__ float along(const share<EACH> &a, const share<EACH> &b)
{
    float sum = 0;
    for (int i = 0; i < EACH; i++)
        sum = fmaf(a.x[i], b.x[i], sum);
    return lanes_sum<32>(sum);
}

/* The keys, normalised; v, z, and on the way back dy; zeros behind them. */
template <typename T, int EACH, bool BACK>
__global__ void __launch_bounds__(FLAT) prepare(layout l)
{
    const call &c = l.c;
    const int64_t i = ((int64_t)blockIdx.x * FLAT + threadIdx.x) / 32;
    const int64_t b = i / l.groups % l.count, t = l.begin + i / l.groups / l.count;

    pdl_launch_dependents();
    if (t >= l.end)
        return;
    const int group = (int)(i % l.groups);
    const item m = item_of(l, t, b, group);
    const share<EACH> k = share_of<T, EACH>(l, m, c.k), q = share_of<T, EACH>(l, m, c.q);
    const share<EACH> v = share_of<T, EACH>(l, m, c.v);
    const share<EACH> z = c.z ? share_of<T, EACH>(l, m, c.z) : share<EACH>{};
    const share<EACH> y = BACK ? share_of<T, EACH>(l, m, c.y) : share<EACH>{};
    const share<EACH> dout = BACK ? share_of<T, EACH>(l, m, c.dout) : share<EACH>{};
    const float scale = sqrtf(along(k, k)) + (float)E74_EPSILON;
    share<EACH> khat, u, dy;
    for (int j = 0; j < EACH; j++) {
        const float gate = 1 / (1 + expf(-y.x[j]));
        khat.x[j] = k.x[j] / scale;
        u.x[j] = z.x[j] * khat.x[j];
        dy.x[j] = dout.x[j] * y.x[j] * gate * (2 + y.x[j] * (1 - gate));
    }
    const float squares = along(khat, khat);
    leave_share(m, m.given + l.f.khat, l.width, khat);
    leave_share(m, m.given + l.f.q, l.width, q);
    leave_share(m, m.given + l.f.v, l.slots, v);
    if (c.z_inside)
        leave_share(m, m.given + l.f.u, l.width, u);
    if (c.z_outside)
        leave_share(m, m.given + l.f.z, l.slots, z);
    if (BACK) {
        leave_share(m, m.given + l.f.dy, l.slots, dy);
        for (int j = c.rows + m.lane; j < l.slots; j += 32) /* nobody may carry these */
            m.found[l.f.delta + j] = m.found[l.f.written + j] = 0;
    }
    if (m.lane == 0)
        m.given[l.f.squares] = squares;
    if (m.lane == 0 && group == 0 && t == l.begin)
        l.reached[b] = (int)(BACK ? l.end : l.begin);
}

/* A block for each run of steps, when the chain has left it behind. */
template <typename T>
__global__ void __launch_bounds__(FLAT) put_outputs(layout l)
{
    const call &c = l.c;
    const int64_t b = blockIdx.x % l.count, t = l.begin + blockIdx.x / l.count * l.run;
    const int64_t end = min(t + l.run, l.end);

    wait_for_chain<false>(l, b, end);
    for (int i = threadIdx.x; i < (end - t) * c.N; i += FLAT) {
        const int step = i / c.N, row = i % c.N;
        const int64_t to = ((t + step) * c.BH + l.first + b) * c.N + row;
        const float y = found_of(l, t + step, b)[row / c.rows * l.f.found + l.f.y + row % c.rows];
        store((T *)c.y + to, y);
        store((T *)c.out + to, y * y / (1 + expf(-y)));
    }
    if (end == l.end)
        pdl_wait();
}

/* ---- sums over rows, for all runs side by side, and what is made of them ---- */

/* Four columns of a thread's rows, which are in stretches of up to four, those
 * of the lanes that share the columns in turn. */
template <int LANES>
struct strip {
    four<float> row[rows_down(LANES)];
};

template <int LANES>
static __device__ __forceinline__ int row_of(int r)
{
    const int some = rows_down(LANES) < 4 ? rows_down(LANES) : 4;
    const int lane = (int)threadIdx.x % lanes_down(LANES);
    return (r / some * lanes_down(LANES) + lane) * some + r % some;
}

template <int LANES>
static __device__ __forceinline__ int column_of(void)
{
    return (int)threadIdx.x / lanes_down(LANES) * 4;
}

/* A thread's rows of a step's numbers. */
template <int LANES>
struct stack {
    float x[rows_down(LANES)];
};

template <int LANES>
static __device__ __forceinline__ stack<LANES> stack_of(const float *from)
{
    const int ROWS = rows_down(LANES), some = ROWS < 4 ? ROWS : 4;
    stack<LANES> s;
    for (int r = 0; r < ROWS; r += some)
        take_rows<some>(s.x + r, from + row_of<LANES>(r));
    return s;
}

template <int LANES>
static __device__ __forceinline__ void load_strip(const layout &l, int group, const float *from,
                                                  strip<LANES> *S)
{
    for (int r = 0; r < rows_down(LANES); r++) {
        const int row = row_of<LANES>(r);
        if (row < l.c.rows)
            S->row[r] = *(const four<float> *)(from + (group * l.slots + row) * l.width +
                                               column_of<LANES>());
        else
            S->row[r] = {};
    }
}

/* sum += S^T x, of this thread's rows. */
template <int LANES>
static __device__ __forceinline__ void add_down(four<float> *sum, const strip<LANES> &S,
                                                const stack<LANES> &x)
{
    for (int r = 0; r < rows_down(LANES); r++)
        for (int j = 0; j < 4; j++)
            sum->x[j] = fmaf(x.x[r], S.row[r].x[j], sum->x[j]);
}

/* S += weight x key^T */
template <int LANES>
static __device__ __forceinline__ void add_outer(strip<LANES> *S, float weight,
                                                 const stack<LANES> &x, const four<float> &key)
{
    for (int r = 0; r < rows_down(LANES); r++)
        for (int j = 0; j < 4; j++)
            S->row[r].x[j] = fmaf(weight * x.x[r], key.x[j], S->row[r].x[j]);
}

/* Here too a scale is kept apart, and multiplied in before it is too far from 1. */
template <int LANES>
static __device__ __forceinline__ float settled(strip<LANES> *S, float scale)
{
    if (scale >= 1 / SCALE_MOST && scale < SCALE_MOST)
        return scale;
    for (int r = 0; r < rows_down(LANES); r++)
        for (int j = 0; j < 4; j++)
            S->row[r].x[j] *= scale;
    return 1;
}

/* times factor, over the lanes that share the columns; ADDED to what the same thread
 * has left there. */
template <int LANES, bool ADDED>
static __device__ __forceinline__ void leave_columns(float *to, float factor, four<float> sum)
{
    const int own = share_out<4, lanes_down(LANES) / 2, 1>(sum.x);
    float *const at = to + column_of<LANES>() + own;
    if ((int)threadIdx.x % (lanes_down(LANES) / 4) == 0)
        *at = fmaf(factor, sum.x[0], ADDED ? *at : 0);
}

/* A step's numbers in shared memory. */
struct tray {
    float *given, *found;
};

static __device__ __forceinline__ tray tray_of(const layout &l, float *buffer, int step)
{
    float *const at = buffer + step * (l.f.given + l.f.found);
    return {at, at + l.f.given};
}

/* G = Gamma + beta S, of the state after some steps of the run. */
template <int LANES, bool INSIDE>
static __device__ void fold_strip(const layout &l, int group, const float *state, float *buffer,
                                  int steps, float down, float beta, strip<LANES> *G)
{
    constexpr fields f = known<LANES, INSIDE>();
    for (int r = 0; r < rows_down(LANES); r++) {
        const int row = row_of<LANES>(r);
        if (row >= l.c.rows)
            continue;
        four<float> S =
            *(const four<float> *)(state + (group * l.slots + row) * l.width + column_of<LANES>());
        #pragma unroll 1
        for (int step = 0; step < steps; step++) {
            const tray at = tray_of(l, buffer, step);
            const float *const key = at.given + f.khat + column_of<LANES>();
            for (int j = 0; j < 4; j++)
                S.x[j] = at.found[f.scalars] * fmaf(at.found[f.delta + row], key[j], S.x[j]);
        }
        for (int j = 0; j < 4; j++)
            G->row[r].x[j] = fmaf(beta, S.x[j], down * G->row[r].x[j]);
    }
}

/* Back through the Gammas of a run: what they add to dk^.  They are those of
 * the walk, bit by bit, so that what cancels there cancels here. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void sum_gradients(const layout &l, int group, int steps,
                                                     float *buffer, const float *state,
                                                     strip<LANES> *G)
{
    constexpr fields f = known<LANES, INSIDE>();
    const int column = column_of<LANES>();
    tray at = tray_of(l, buffer, steps - 1);
    float down = 1;

    add_outer(G, 1, stack_of<LANES>(at.given + f.dy),
              *(const four<float> *)(at.given + f.q + column));
    for (int step = steps - 1; step >= 0; step--) {
        const float beta = at.found[f.scalars + 2];
        const bool folds = at.found[f.scalars + 3] != 0;
        stack<LANES> delta = stack_of<LANES>(at.found + f.delta);
        four<float> dkhat = {};

        add_down(&dkhat, *G, delta);
        down *= at.found[f.scalars];
        leave_columns<LANES, false>(at.given + f.v, down, dkhat);
        const float up = rcp_approx(down);
        const tray later = tray_of(l, buffer, step ? step - 1 : 0);
        if (step)
            add_outer(G, up, stack_of<LANES>(later.given + f.dy),
                      *(const four<float> *)(later.given + f.q + column));
        add_outer(G, up, stack_of<LANES>(at.found + f.written),
                  *(const four<float> *)(at.given + (INSIDE ? f.u : f.khat) + column));
        if (INSIDE) {
            for (int r = 0; r < rows_down(LANES); r++)
                delta.x[r] *= beta;
            add_outer(G, up, delta, *(const four<float> *)(at.given + f.khat + column));
        }
        if (folds)
            fold_strip<LANES, INSIDE>(l, group, state, buffer, step, down, beta, G);
        down = folds ? 1 : settled(G, down);
        at = later;
    }
}

/* Through the states of a run: dq, what S_{t-1} adds to dk^, and du. */
template <int LANES, bool INSIDE>
static __device__ __forceinline__ void sum_states(const layout &l, int steps, float *buffer,
                                                  strip<LANES> *S)
{
    constexpr fields f = known<LANES, INSIDE>();
    float scale = 1;
    for (int step = 0; step < steps; step++) {
        const tray at = tray_of(l, buffer, step);
        const float c = at.found[f.scalars], beta = at.found[f.scalars + 2];
        const four<float> key = *(const four<float> *)(at.given + f.khat + column_of<LANES>());
        const stack<LANES> delta = stack_of<LANES>(at.found + f.delta);
        four<float> dkhat = {}, du = {}, dq = {};
        float length = 0;

        add_down(INSIDE ? &du : &dkhat, *S, stack_of<LANES>(at.found + f.written));
        if (INSIDE) {
            add_down(&dkhat, *S, delta);
            for (int j = 0; j < 4; j++)
                dkhat.x[j] *= beta;
        }
        for (int j = 0; j < 4; j++)
            dkhat.x[j] *= scale;
        for (int r = 0; r < rows_down(LANES); r++)
            length = fmaf(delta.x[r], delta.x[r], length);
        for (int j = 0; j < 4; j++)
            dkhat.x[j] = fmaf(beta * length, key.x[j], dkhat.x[j]);
        if (INSIDE)
            leave_columns<LANES, false>(at.given + f.u, scale, du);
        add_outer(S, rcp_approx(scale), delta, key);
        scale = settled(S, scale * c);
        add_down(&dq, *S, stack_of<LANES>(at.given + f.dy));
        leave_columns<LANES, true>(at.given + f.v, 1, dkhat);
        leave_columns<LANES, false>(at.given + f.q, scale, dq);
    }
}

template <typename T, int EACH>
static __device__ __forceinline__ void put_share(const layout &l, const item &m, void *to,
                                                 const share<EACH> &s)
{
    for (int i = 0; i < EACH; i++)
        if (m.lane + 32 * i < l.c.columns)
            store((T *)to + m.at + m.lane + 32 * i, s.x[i]);
}

/* From a step's sums to the gradients of k, q, v and z: by a warp. */
template <typename T, int LANES, bool INSIDE>
static __device__ __forceinline__ void put_gradients(const layout &l, const item &m, const tray &at)
{
    constexpr int EACH = share_each(LANES);
    constexpr fields f = known<LANES, INSIDE>();
    const call &c = l.c;
    const share<EACH> none = {}, k = share_of<T, EACH>(l, m, c.k);
    const share<EACH> z = c.z ? share_of<T, EACH>(l, m, c.z) : none;
    const share<EACH> dv = share_made<EACH>(l, m, at.found + f.y);
    const share<EACH> reads = c.z_outside ? share_made<EACH>(l, m, at.found + f.reads) : none;
    const share<EACH> dq = share_made<EACH>(l, m, at.given + f.q);
    const share<EACH> du = INSIDE ? share_made<EACH>(l, m, at.given + f.u) : none;
    share<EACH> dkhat = share_made<EACH>(l, m, at.given + f.v), dk, dz;

    for (int i = 0; i < EACH; i++)
        if (INSIDE)
            dkhat.x[i] = fmaf(z.x[i], du.x[i], dkhat.x[i]);
    const float length = sqrtf(along(k, k)), scale = length + (float)E74_EPSILON;
    const float slope = along(k, dkhat);
    const float back = length > 0 ? slope / (length * scale * scale) : 0;
    for (int i = 0; i < EACH; i++) {
        dk.x[i] = fmaf(-back, k.x[i], dkhat.x[i] / scale);
        if (!c.dq)
            dk.x[i] += dq.x[i];
        if (!c.dv)
            dk.x[i] += dv.x[i];
        dz.x[i] = fmaf(-dv.x[i], reads.x[i], du.x[i] * (k.x[i] / scale));
    }
    put_share<T>(l, m, c.dk, dk);
    if (c.dq)
        put_share<T>(l, m, c.dq, dq);
    if (c.dv)
        put_share<T>(l, m, c.dv, dv);
    if (c.dz)
        put_share<T>(l, m, c.dz, dz);
}

/* A block for each group of each run, when the walk has left it behind, the last
 * runs first. */
template <typename T, int LANES, bool INSIDE>
__global__ void __launch_bounds__(threads_down(LANES), blocks_down(LANES, INSIDE))
    sum_rows(layout l)
{
    extern __shared__ __align__(16) float buffer[];
    const int64_t item = gridDim.x - 1 - blockIdx.x;
    const int group = (int)(item % l.groups);
    const int64_t b = item / l.groups % l.count;
    const int many = (int)(item / l.groups / l.count);
    const leg run = {l.segment + many / l.runs, many % l.runs};
    const int64_t t = begin_of(l, run);
    const int steps = steps_of(l, run);
    const float *const state = state_of(l, run, 0, b);
    strip<LANES> S;

    wait_for_chain<true>(l, b, t);
    for (int step = 0; step < steps; step++) {
        const tray to = tray_of(l, buffer, step);
        send_for(to.given, given_of(l, t + step, b) + group * l.f.given, l.f.given);
        send_for(to.found, found_of(l, t + step, b) + group * l.f.found, l.f.found);
    }
    cp_async_commit();
    load_strip(l, group, end_of(l, run, b), &S);
    cp_async_wait<0>();
    __syncthreads();
    sum_gradients<LANES, INSIDE>(l, group, steps, buffer, state, &S);
    load_strip(l, group, state, &S);
    __syncthreads(); /* dq takes the place of q */
    sum_states<LANES, INSIDE>(l, steps, buffer, &S);
    __syncthreads();
    for (int step = (int)threadIdx.x / 32; step < steps; step += threads_down(LANES) / 32)
        put_gradients<T, LANES, INSIDE>(l, item_of(l, t + step, b, group),
                                        tray_of(l, buffer, step));
    if (many == 0)
        pdl_wait();
}

/* ---- launches ---- */

static int64_t within(int64_t x, int64_t least, int64_t most)
{
    return x > most ? most : x < least ? least : x;
}

static void lay_out_steps(layout *l, enum pass pass)
{
    l->f = fields_of(l->lanes, l->c.z_inside, l->c.z_outside, pass == BACKWARD);
    l->given = l->groups * l->f.given;
    l->found = l->groups * l->f.found;
}

static size_t carry_bytes(const layout &l)
{
    return sizeof(float) * (2 * l.run * l.given + CARRY_SUMS);
}

static size_t walk_bytes(const layout &l)
{
    return sizeof(float) * (2 * l.run * (l.given + l.found) + l.tile + WALK_SUMS + l.slots);
}

static size_t sum_bytes(const layout &l)
{
    return sizeof(float) * l.run * (l.f.given + l.f.found);
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

    for (l.lanes = 1; COLUMNS * l.lanes < c.columns; l.lanes *= 2)
        ;
    l.groups = c.N / c.rows;
    l.warps = (int)ceil_div(c.rows, 32 / l.lanes * rows_each(l.lanes));
    l.width = width_of(l.lanes);
    l.slots = slots_of(l.lanes);
    l.tile = l.groups * l.slots * l.width;
    l.mean = c.nonlin == E74_RMSNORM ? 1 / (float)c.M : 1;

    /* The same in both passes.  A run's rounding of g stays in Gamma until g is summed anew: in a
     * small state, of whose directions the keys leave G few, it would soon be all that is left. */
    lay_out_steps(&l, BACKWARD);
    for (l.run = RUN_MOST; l.run > RUN_LEAST; l.run /= 2)
        if (l.run * NUMBERS_EACH <= c.M && walk_bytes(l) <= SHARED_MAX)
            break;
    lay_out_steps(&l, pass);

    /* As many chains as keep the device busy may take more than the limits say. */
    const struct limits &device = *gpu_limits();
    const int64_t least = within(device.sms, 1, c.BH), each = l.given + l.found;
    l.K = c.kept == KEPT_F32 ? common_multiple(c.K, l.run) : c.K;
    l.K = l.K < c.T ? l.K : c.T;
    l.runs = (int)ceil_div(l.K, l.run);
    if (pass == FORWARD) {
        l.count = within(device.records / each, least, c.BH);
        l.span = within(device.records / (l.count * each) / l.run * l.run, l.run, c.T);
        return l;
    }
    const int64_t states = (2 * l.runs + 1) * (int64_t)l.tile, segments = ceil_div(c.T, l.K);
    l.count = within(device.states / states, least, c.BH);
    l.span = within(device.records / (l.K * l.count * each), 1, segments) * l.K;
    l.round = within(device.states / (l.count * states), 1, l.span / l.K);
    return l;
}

/* The parts of the workspace; returns its floats. */
static int64_t divide(layout *l, float *work)
{
    const int64_t steps = l->count * l->span, states = l->round * l->count * l->tile;
    float *reached;
    const struct {
        float **at;
        int64_t floats;
    } parts[] = {
        {&l->givens, steps * l->given},
        {&l->founds, steps * l->found},
        {&l->states, states * (l->runs + 1)},
        {&l->ends, states * l->runs},
        {&reached, l->count},
    };
    int64_t used = 0;
    for (size_t i = 0; i < COUNT(parts); i++) {
        if (work)
            *parts[i].at = work + used;
        used += parts[i].floats;
    }
    l->reached = work ? (int *)reached : NULL;
    return used;
}

struct kernels {
    void (*prepare)(layout), (*prepare_back)(layout), (*carry)(layout), (*replay)(layout);
    void (*walk_back)(layout), (*sum_rows)(layout);
    int summers; /* threads of a block of sum_rows */
};

template <typename T, int LANES, bool INSIDE>
static kernels kernels_of(void)
{
    return {prepare<T, share_each(LANES), false>,
            prepare<T, share_each(LANES), true>,
            carry<LANES, INSIDE, false>,
            carry<LANES, INSIDE, true>,
            walk_back<LANES, INSIDE>,
            sum_rows<T, LANES, INSIDE>,
            threads_down(LANES)};
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

/* All but the first kernel of a portion start early. */
static int start(const layout &l, void (*kernel)(layout), int64_t blocks, int threads,
                 size_t shared)
{
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    return launch_pdl(kernel, (unsigned)blocks, threads, shared, l);
}

static int start_carriers(const layout &l, void (*kernel)(layout), int64_t blocks, size_t shared)
{
    return start(l, kernel, blocks, 32 * l.groups * l.warps, shared);
}

/* A chain for each sequence and head; with as much shared memory as a block may have, so that
 * it is alone on its SM, while they are so few that others are left for what follows
 * them. */
static int start_chains(const layout &l, void (*kernel)(layout), size_t shared)
{
    const size_t all = gpu_properties().sharedMemPerBlockOptin;
    const bool few = l.count <= gpu_limits()->sms / 2;
    return start_carriers(l, kernel, l.count, few && all > shared ? all : shared);
}

static int start_prepare(const layout &l, void (*kernel)(layout))
{
    const int64_t items = (l.end - l.begin) * l.count * l.groups;
    kernel<<<ceil_div(32 * items, FLAT), FLAT, 0, gpu_stream()>>>(l);
    return cudaGetLastError();
}

template <typename T>
static int forward(const struct frame *f)
{
    layout l = layout_of(f, FORWARD);
    const kernels k = kernels_of<T>(l);
    const int64_t most = l.count;

    divide(&l, (float *)f->work);
    for (l.first = 0; l.first < l.c.BH; l.first += most) {
        l.count = within(l.c.BH - l.first, 1, most);
        for (l.begin = 0; l.begin < l.c.T; l.begin = l.end) {
            l.end = within(l.begin + l.span, 1, l.c.T);
            l.from = l.begin ? l.c.last : l.c.first;
            CUDA((cudaError_t)start_prepare(l, k.prepare));
            CUDA((cudaError_t)start_chains(l, k.carry, carry_bytes(l)));
            CUDA((cudaError_t)start(l, put_outputs<T>, ceil_div(l.end - l.begin, l.run) * l.count,
                                    FLAT, 0));
        }
    }
    return 0;
}

/* Replay, walk back and add up all segments that there are numbers of, some at a time. */
static int go_back(layout l, const kernels &k)
{
    const int begin = (int)(l.begin / l.K);

    for (l.until = (int)ceil_div(l.end, l.K); l.until > begin; l.until = l.segment) {
        l.segment = (int)within(l.until - l.round, begin, l.until);
        l.from = l.until * l.K < l.c.T ? l.c.dfirst : l.c.dlast;
        const leg last = last_leg(l);
        const int64_t runs = (int64_t)(last.segment - l.segment) * l.runs + last.run + 1;
        CUDA((cudaError_t)start_carriers(l, k.replay, (l.until - l.segment) * l.count,
                                         carry_bytes(l)));
        CUDA((cudaError_t)start_chains(l, k.walk_back, walk_bytes(l)));
        CUDA((cudaError_t)start(l, k.sum_rows, runs * l.count * l.groups, k.summers, sum_bytes(l)));
    }
    return 0;
}

template <typename T>
static int backward(const struct frame *f)
{
    layout l = layout_of(f, BACKWARD);
    const kernels k = kernels_of<T>(l);
    const int64_t most = l.count, steps = l.span;

    divide(&l, (float *)f->work);
    for (l.first = 0; l.first < l.c.BH; l.first += most) {
        l.count = within(l.c.BH - l.first, 1, most);
        for (l.end = l.c.T; l.end > 0; l.end = l.begin) {
            l.begin = within(ceil_div(l.end, l.K) * l.K - steps, 0, l.end);
            CUDA((cudaError_t)start_prepare(l, k.prepare_back));
            CUDA((cudaError_t)go_back(l, k));
        }
    }
    return 0;
}

static size_t work(const struct frame *f, enum pass p)
{
    layout l = layout_of(f, p);
    return sizeof(float) * divide(&l, NULL);
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
    if (walk_bytes(l) > SHARED_MAX)
        return "a few steps do not fit shared memory";
    return NULL;
}

static const char name[] = "norms", idea[] = "a state in a block's registers, its norm a scalar";

extern "C" const struct impl e74_norms32 = {
    name, idea, {forward<float>, backward<float>}, work, declines, NULL, 0, RUN_MOST};
extern "C" const struct impl e74_norms16 = {
    name, idea,    {forward<__nv_bfloat16>, backward<__nv_bfloat16>}, work, declines, NULL,
    0,    RUN_MOST};
