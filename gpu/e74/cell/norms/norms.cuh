/* norms.cuh - the common parts of e74_cell's kernels `norms`.
 *
 * rmsnorm and frobnorm couple all elements of a state, so that one block holds a whole state in
 * registers: eight columns of `rows_per_thread` rows per thread, LANES threads per row.
 *
 * Steps are grouped into runs, which begin at multiples of 16 (or less, where shared memory is
 * short).  At a run's begin S replaces Shat and its squares are summed directly, so that a run's
 * bits depend on its first state alone; with fp32 checkpoints backward replays from those at which
 * a run begins.
 *
 * A chain is the block that scans the steps of one sequence and head; `carry` and `chain_back` are
 * the kernels of chains.  It is bound by latency, and few chains leave most of the GPU idle.  So
 * the kernel that follows, for outputs or sums, is launched (PDL) as soon as all chains have begun,
 * and each of its blocks polls the progress flag of its chain until the run is complete.  (Chains
 * never wait for the blocks that follow, so that any number of these may be resident.)  Where
 * chains are few, each allocates the shared memory of a whole SM, so that no other block shares
 * that SM. */
#ifndef E74_CELL_NORMS_CUH
#define E74_CELL_NORMS_CUH

#include <type_traits>

#include "gpu/device/async.cuh"
#include "gpu/device/flags.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/device/reduce.cuh"
#include "gpu/device/smem.cuh"
#include "gpu/e74/cell_math.cuh"
#include "gpu/e74/columns.cuh"
#include "gpu/e74/e74_cell.cuh"

namespace e74_norms
{

enum {
    WARP_SUMS = 16, /* partial sums of the warps of a block, padded with zeros */
    RUN_MAX = 16,
    RUN_MIN = 2,
    ELEMENTS_PER_STEP = 16, /* minimum elements of a state per step of a run, unless RUN_MIN */
    SIGNAL_STEPS = 128,     /* minimum steps between two progress signals of a chain */
    THREADS = 128           /* of a block that holds no state */
};

/* A scale beyond SCALE_MAX is multiplied into the registers.  Forward, where the sum of squares of
 * Phat leaves the bounds SQUARES, it is computed directly.  GROWTH_MAX bounds the growth of E while
 * beta != 0: beta grows with the square of E, G does not. */
static const float SCALE_MAX = 0x1p60f, SQUARES_MAX = 0x1p120f, SQUARES_MIN = 0x1p-80f;
static const float GROWTH_MAX = 2;

static constexpr __host__ __device__ int rows_per_thread(int lanes)
{
    return lanes == 16 ? 8 : lanes == 8 ? 4 : 1;
}

/* The maximum warps of a block, so that there are enough registers for the rows. */
static constexpr __host__ __device__ int max_warps(int lanes)
{
    return lanes >= 8 ? 8 : 16;
}

/* For sum_rows, with four columns per thread: rows per thread; threads that share columns. */
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
static constexpr __host__ __device__ int padded_columns(int lanes)
{
    return OCTET * lanes;
}
static constexpr __host__ __device__ int padded_rows(int lanes)
{
    return column_rows(lanes) * column_lanes(lanes);
}

/* The records of a step and group: the input record, which prepare() writes, and the result record
 * of the replay, in which chain_back() overwrites y with dv and `written` with f.  sum_rows()
 * overwrites v with dk^, q with dq and u with du.  The last array of either record is in memory
 * only with an outer z.  Of forward's result record, only y is in memory. */
template <int LANES, bool INSIDE, bool BACK>
struct input_record {
    float khat[padded_columns(LANES)], q[padded_columns(LANES)];
    float v[padded_rows(LANES)];
    float squares[4]; /* |k^|^2, and padding */
    float u[INSIDE ? padded_columns(LANES) : 0];
    float dy[BACK ? padded_rows(LANES) : 0];
    float z[padded_rows(LANES)];
};

template <int LANES>
struct result_record {
    float y[padded_rows(LANES)], delta[padded_rows(LANES)];
    float inverse, inverse_mR, beta, folds; /* c, 1 / (m R), beta; is beta folded in here? */
    float written[padded_rows(LANES)], reads[padded_rows(LANES)]; /* S k^, S u */
};

/* A group is a set of rows with the same key columns: all n, or those of one block of
 * the state.  It has whole warps. */
struct layout {
    cell_call c;
    int lanes, groups, warps;            /* warps of a group */
    int width, padded_rows;              /* columns and rows of a group, padded */
    int group_inputs, group_results;     /* floats of the records of a step and group */
    int input_floats, result_floats;     /* of all groups */
    int tile;                            /* floats of a state in the workspace */
    int run, runs;                       /* steps of a run; maximum runs of a segment */
    int64_t K;                           /* steps of a segment that is replayed */
    float mean;                          /* factor of the sum of squares */
    int64_t count, span, round_segments; /* chains; steps; segments with states: at a time */
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

/* The kernels, each compiled in one file. */
using kernel = void (*)(layout);

kernel carry_kernel(const layout &l, bool replays);
kernel chain_back_kernel(const layout &l);
template <typename T>
kernel put_outputs_kernel(void);
template <typename T>
kernel sum_rows_kernel(const layout &l);

/* Calls f with the lanes as a compile-time constant. */
template <typename F>
static auto with_lanes(int lanes, F f)
{
    switch (lanes) {
    case 1: return f(std::integral_constant<int, 1>());
    case 2: return f(std::integral_constant<int, 2>());
    case 4: return f(std::integral_constant<int, 4>());
    case 8: return f(std::integral_constant<int, 8>());
    default: return f(std::integral_constant<int, 16>());
    }
}

struct carry_smem {
    float *inputs; /* [2][run][input_floats] */
    float *sums;   /* [4][WARP_SUMS]: of two steps, of a run's begin, of divide_exactly */
    int bytes;
};

static inline __host__ __device__ carry_smem carry_smem_of(const layout &l, void *base)
{
    smem_arena a = {(unsigned char *)base, 0};
    carry_smem s;
    s.inputs = a.alloc<float>(2 * l.run * l.input_floats, a.PACKED);
    s.sums = a.alloc<float>(4 * WARP_SUMS, a.PACKED);
    s.bytes = a.bytes;
    return s;
}

struct chain_back_smem {
    float *inputs, *results; /* [2][run][input_floats or result_floats] */
    float *state;            /* [tile]: before the run */
    float *sums;             /* [2][WARP_SUMS]: of two steps */
    float *zeros;            /* [padded_rows] */
    int bytes;
};

static inline __host__ __device__ chain_back_smem chain_back_smem_of(const layout &l, void *base)
{
    smem_arena a = {(unsigned char *)base, 0};
    chain_back_smem s;
    s.inputs = a.alloc<float>(2 * l.run * l.input_floats, a.PACKED);
    s.results = a.alloc<float>(2 * l.run * l.result_floats, a.PACKED);
    s.state = a.alloc<float>(l.tile, a.PACKED);
    s.sums = a.alloc<float>(2 * WARP_SUMS, a.PACKED);
    s.zeros = a.alloc<float>(l.padded_rows, a.PACKED);
    s.bytes = a.bytes;
    return s;
}

/* ---- coordinates ---- */

/* A thread's coordinates: its first row within its group, and within a tile. */
struct coord {
    int lane, warp, group, row, padded_row;
};

template <int LANES>
static inline __device__ coord coord_of(const layout &l)
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

/* The number of columns in memory of a thread's row r: 0 if it is padding. */
static inline __device__ int valid_columns(const layout &l, const coord &p, int r)
{
    return p.row + r < l.c.rows ? l.c.columns : 0;
}

/* Offset of that row within a state. */
static inline __device__ int element_of(const layout &l, const coord &p, int r)
{
    return (p.group * l.c.rows + p.row + r) * l.c.columns;
}

static inline __device__ float *input_of(const layout &l, int64_t t, int64_t b)
{
    return l.inputs + (b * l.span + t - l.begin) * l.input_floats;
}

static inline __device__ float *result_of(const layout &l, int64_t t, int64_t b)
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

static inline __host__ __device__ run_coord last_run(const layout &l)
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
static inline __device__ float *state_of(const layout &l, run_coord at, int after, int64_t b)
{
    const int64_t index = (at.segment - l.segment) * (l.runs + 1) + at.run + after;
    return l.states + (index * l.count + b) * l.tile;
}

static inline __device__ float *gradient_of(const layout &l, run_coord at, int64_t b)
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

/* Called by the blocks of the kernel that follows the chains, after all chains have begun. */
template <bool BACK>
static __device__ __forceinline__ void wait_for_chain(const layout &l, int64_t b, int64_t t)
{
    if (threadIdx.x == 0)
        while (BACK ? load_acquire(l.progress + b) > t : load_acquire(l.progress + b) < t)
            __nanosleep(200);
    __syncthreads();
}

/* ---- sums ---- */

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

/* Stores the sum over the rows of a warp; x is the same in all lanes of a row. */
template <int LANES>
static __device__ __forceinline__ void store_warp_sums(float *to, const coord &p, float x)
{
    x = warp_sum<32 / LANES, LANES>(x);
    if (threadIdx.x % 32 == 0)
        to[p.warp] = x;
}

/* Stores the sum over the threads of a warp. */
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

/* cp.async by all threads of a block; floats is a multiple of four. */
static __device__ __forceinline__ void copy_async(float *to, const float *from, int floats)
{
    #pragma unroll 4
    for (int i = 4 * (int)threadIdx.x; i < floats; i += 4 * (int)blockDim.x)
        cp_async16(to + i, from + i);
}

/* Loads a thread's rows of a vector in a record. */
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
static __device__ __forceinline__ void add(float8 *row, float weight, const float8 &e)
{
    for (int j = 0; j < OCTET; j++)
        row->x[j] = fmaf(weight, e.x[j], row->x[j]);
}

static __device__ __forceinline__ void multiply(float8 *row, float factor)
{
    for (int j = 0; j < OCTET; j++)
        row->x[j] *= factor;
}

/* ---- states ---- */

template <int LANES>
static inline __device__ void load_state(const layout &l, const coord &p, const float *from,
                                         float8 *S)
{
    for (int r = 0; r < rows_per_thread(LANES); r++)
        S[r] = load_floats<LANES>(from + element_of(l, p, r), valid_columns(l, p, r), p.lane);
}

template <int LANES>
static inline __device__ void store_state(const layout &l, const coord &p, float *to,
                                          const float8 *S)
{
    for (int r = 0; r < rows_per_thread(LANES); r++)
        store_columns<float, LANES>(to + element_of(l, p, r), valid_columns(l, p, r), p.lane, S[r]);
}

/* The offset of a thread's row r in a state of the workspace, [groups][padded_rows][width]. */
static __device__ __forceinline__ int tile_offset(const layout &l, const coord &p, int r)
{
    return (p.padded_row + r) * l.width;
}

template <int LANES>
static __device__ __forceinline__ void store_tile(const layout &l, const coord &p, float *to,
                                                  const float8 *S)
{
    for (int r = 0; r < rows_per_thread(LANES); r++)
        store_columns<LANES>(to + tile_offset(l, p, r), p.lane, S[r]);
}

/* Offsets of the thread's columns, its rows, and its group within a record. */
struct record_offset {
    int column, row, group;
};

static __device__ __forceinline__ record_offset record_offset_of(const coord &p, int floats)
{
    const int group = p.group * floats;
    return {group + 4 * p.lane, group + p.row, group};
}

/* The record that begins `floats` floats after `from`.  With an offset of record_offset, element 0
 * of each of its arrays is the thread's. */
template <typename R>
static __device__ __forceinline__ const R *record_at(const float *from, int floats)
{
    return (const R *)(from + floats);
}

/* ---- kernels without states: one warp per group of a step ---- */

struct item {
    int lane;
    float *input, *result;
    int64_t at; /* offset in [T,BH,N] */
};

static inline __device__ item item_of(const layout &l, int64_t t, int64_t b, int group)
{
    return {(int)threadIdx.x % 32, input_of(l, t, b) + group * l.group_inputs,
            result_of(l, t, b) + group * l.group_results,
            (t * l.c.BH + l.first + b) * l.c.N + group * l.c.rows};
}

/* A lane's elements of a group's vector; all loads are in flight at once. */
template <typename T, int ELEMENTS>
static __device__ __forceinline__ array<float, ELEMENTS> load_part(const layout &l, const item &m,
                                                                   const void *from)
{
    array<float, ELEMENTS> s;
    for (int i = 0; i < ELEMENTS; i++)
        s.x[i] = m.lane + 32 * i < l.c.columns ? load((const T *)from + m.at + m.lane + 32 * i) : 0;
    return s;
}

template <int ELEMENTS>
static __device__ __forceinline__ array<float, ELEMENTS>
load_float_part(const layout &l, const item &m, const float *from)
{
    array<float, ELEMENTS> s;
    for (int i = 0; i < ELEMENTS; i++)
        s.x[i] = m.lane + 32 * i < l.c.columns ? from[m.lane + 32 * i] : 0;
    return s;
}

template <int ELEMENTS>
static __device__ __forceinline__ float dot_parts(const array<float, ELEMENTS> &a,
                                                  const array<float, ELEMENTS> &b)
{
    float sum = 0;
    for (int i = 0; i < ELEMENTS; i++)
        sum = fmaf(a.x[i], b.x[i], sum);
    return warp_sum(sum);
}

}    // namespace e74_norms

#endif
