/* What a kernel folds is a row, or a piece of one: all of x is one row of R N numbers. */
#include "common/ops/reduce.h"
#include "gpu/device/pdl.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/unit.cuh"
#include "gpu/gpu.cuh"

enum {
    BLOCK = 256,      /* threads, where they are not one row's crew */
    MOST = 256,       /* of a crew */
    AHEAD = 8,        /* accesses that a thread has in flight at once */
    AHEAD_BACK = 4,   /* where it also writes */
    CHAIN = 64,       /* times so many: what is summed by itself, so that sums stay exact */
    GRID = 0x7fffffff /* blocks at most */
};

/* ---- what is found of many numbers ---- */

struct total {
    float sum;

    static __device__ __forceinline__ total none(void) { return {0}; }
    /* Neighbours, or zeros in place of them where they are not `there`. */
    template <int N>
    __device__ __forceinline__ void take(const float (&x)[N], int64_t, bool, bool squared)
    {
        float some = squared ? x[0] * x[0] : x[0];
        #pragma unroll N
        for (int i = 1; i < N; i++)
            some += squared ? x[i] * x[i] : x[i];
        sum += some;
    }
    __device__ __forceinline__ void merge(const total &other) { sum += other.sum; }
    __device__ __forceinline__ total of_lane(int distance) const
    {
        return {__shfl_xor_sync(~0u, sum, distance)};
    }
};

/* The largest, and the first place where it is; of NaN, the first.  Until there is something above
 * -inf, no place. */
struct top {
    float x;
    int64_t at;

    static __device__ __forceinline__ top none(void) { return {-INFINITY, INT64_MAX}; }
    /* Is it above all so far? */
    __device__ __forceinline__ bool below(float other) const { return x == x && !(other <= x); }
    __device__ __forceinline__ void merge(const top &other)
    {
        const bool tie = other.x == x || (other.x != other.x && x != x);
        if (below(other.x) || (tie && other.at < at))
            *this = other;
    }
    /* What comes after all so far.  Few of many are above all before them: the largest decides
     * whether the others are looked at. */
    template <int N>
    __device__ __forceinline__ void take(const float (&next)[N], int64_t first, bool there, bool)
    {
        float most = next[0];
        #pragma unroll N
        for (int i = 1; i < N; i++)
            most = max_nan(most, next[i]);
        if (!there || !below(most))
            return;
        #pragma unroll N
        for (int i = N - 1; i >= 0; i--)
            if (next[i] == most || next[i] != next[i])
                *this = {next[i], first + i};
    }
    __device__ __forceinline__ top of_lane(int distance) const
    {
        return {__shfl_xor_sync(~0u, x, distance), __shfl_xor_sync(~0u, at, distance)};
    }
};

/* ---- who has what ---- */

/* Rows of n numbers, each cut into so many pieces of so many, the last shorter; a crew of
 * threads has one of them: a warp, or a block. */
struct cut {
    int64_t rows, n, piece, pieces;
    int crew;
};

/* A crew of as many threads as have all of a piece in flight at once, with so many accesses each;
 * there are not more than MOST. */
template <typename T>
static cut cut_of(int64_t rows, int64_t n, int64_t piece, int each)
{
    cut c = {rows, n, min(n, piece), ceil_div(n, piece), 32};
    while (c.crew < MOST && accesses<T>(c.piece) > c.crew * each)
        c.crew *= 2;
    return c;
}

static int threads_of(const cut &c)
{
    return c.crew > 32 ? c.crew : BLOCK;
}

static int64_t blocks_of(const cut &c)
{
    return ceil_div(c.rows * c.pieces, threads_of(c) / c.crew);
}

/* A thread's piece of a row, and its place in the crew. */
struct seat {
    int64_t number, row, begin;
    int64_t n;
    int first;
};

static __device__ __forceinline__ seat seat_of(const cut &c)
{
    const bool alone = c.crew == 32;
    seat s;
    s.number = alone ? (int64_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32 : blockIdx.x;
    s.first = alone ? threadIdx.x % 32 : threadIdx.x;
    s.row = c.pieces == 1 ? s.number : s.number / c.pieces;
    s.begin = (s.number - s.row * c.pieces) * c.piece;
    s.n = min(c.n - s.begin, c.piece);
    return s;
}

/* What is folded into what, and how. */
struct job {
    cut by;
    const void *x;
    const int64_t *from; /* NULL, or where the numbers of x have been found */
    void *y;
    int64_t *at;        /* of a max */
    int kept;           /* the type of y */
    bool squared, root; /* of a norm */
    float divisor;      /* of a mean */
};

static __device__ void put(const job &j, const seat &s, const total &found)
{
    put_kept(j.kept, j.y, s.number, j.root ? sqrtf(found.sum) : found.sum / j.divisor);
}

static __device__ void put(const job &j, const seat &s, const top &found)
{
    put_kept(j.kept, j.y, s.number, found.x);
    const int64_t at = found.at == INT64_MAX ? s.begin : found.at; /* all are -inf */
    j.at[s.number] = j.from ? j.from[s.row * j.by.n + at] : at;
}

/* ---- tree ---- */

/* A block a row: its threads' shares are folded by halves in shared memory. */
template <typename F, typename T>
__global__ void __launch_bounds__(BLOCK) tree_kernel(job j)
{
    enum { RUN = AHEAD * CHAIN };
    __shared__ F of[BLOCK];
    const seat s = seat_of(j.by);
    const T *x = (const T *)j.x + s.row * s.n;
    F found = F::none();

    for (int64_t i = threadIdx.x; i < s.n;) {
        F some = F::none();
        for (int k = 0; k < RUN && i < s.n; k++, i += BLOCK) {
            const float one[1] = {load(x + i)};
            some.take(one, i, true, j.squared);
        }
        found.merge(some);
    }
    of[threadIdx.x] = found;
    for (int half = BLOCK / 2; half; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            of[threadIdx.x].merge(of[threadIdx.x + half]);
    }
    if (threadIdx.x == 0)
        put(j, s, of[0]);
}

/* ---- shuffle, and two levels of it ---- */

/* A thread's share of a piece: every threads-th access from its first on, AHEAD of them in flight
 * before the first is used. */
template <typename F, typename T, bool WIDE>
static __device__ __forceinline__ F fold_share(const T *x, const seat &s, int threads, bool squared)
{
    typedef access<T, WIDE> by;
    const typename by::raw *p = (const typename by::raw *)x;
    const int64_t all = s.n / by::NUMBERS;
    F found = F::none();

    for (int64_t k = 0; k < all;) {
        F some = F::none();
        for (int round = 0; round < CHAIN && k < all; round++, k += AHEAD * threads) {
            const int left = (int)min(all - k, (int64_t)(AHEAD * threads)) - s.first;
            typename by::raw got[AHEAD];
            #pragma unroll AHEAD
            for (int i = 0; i < AHEAD; i++)
                got[i] = i * threads < left ? p[k + s.first + i * threads] : by::none();
            #pragma unroll AHEAD
            for (int i = 0; i < AHEAD; i++) {
                float numbers[by::NUMBERS];
                by::unpack(got[i], numbers);
                some.take(numbers, s.begin + (k + s.first + i * threads) * by::NUMBERS,
                          i * threads < left, squared);
            }
        }
        found.merge(some);
    }
    return found;
}

template <typename F>
static __device__ __forceinline__ F fold_lanes(F found)
{
    #pragma unroll 5
    for (int distance = 16; distance; distance /= 2)
        found.merge(found.of_lane(distance));
    return found;
}

/* A warp folds its lanes by shuffles; a block's warps meet once, and not at all where each has a
 * row of its own. */
template <typename F, typename T, bool WIDE>
__global__ void __launch_bounds__(MOST) shuffle_kernel(job j)
{
    __shared__ F of[MOST / 32];
    const seat s = seat_of(j.by);
    const int lane = threadIdx.x % 32;

    pdl_wait();
    pdl_launch_dependents();
    if (s.row >= j.by.rows)
        return;
    const T *x = (const T *)j.x + s.row * j.by.n + s.begin;
    F found = fold_lanes(fold_share<F, T, WIDE>(x, s, j.by.crew, j.squared));
    if (j.by.crew > 32) {
        if (lane == 0)
            of[threadIdx.x / 32] = found;
        __syncthreads();
        if (threadIdx.x >= 32)
            return;
        found = fold_lanes(lane < j.by.crew / 32 ? of[lane] : F::none());
    }
    if (s.first == 0)
        put(j, s, found);
}

/* ---- backward ---- */

struct job_back {
    cut by;
    const void *dy;
    const void *x, *y; /* of a norm, or NULL */
    void *dx;
    const int64_t *at; /* of a max, or NULL */
    float divisor;     /* of a mean, else 1 */
};

/* A thread a number. */
template <typename T>
__global__ void __launch_bounds__(BLOCK) each_kernel(job_back j)
{
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x, row = i / j.by.n;
    if (row >= j.by.rows)
        return;
    float d = load((const T *)j.dy + row) / j.divisor;
    if (j.at && i - row * j.by.n != j.at[row])
        d = 0;
    if (j.x) {
        const float y = load((const T *)j.y + row);
        d = y == 0 ? 0 : d * load((const T *)j.x + i) / y;
    }
    store((T *)j.dx + i, d);
}

/* A crew a piece. */
template <typename T, bool WIDE, bool NORM>
__global__ void __launch_bounds__(MOST) spread_kernel(job_back j)
{
    typedef access<T, WIDE> by;
    typedef typename by::raw raw;
    const seat s = seat_of(j.by);
    if (s.row >= j.by.rows)
        return;
    const int64_t start = s.row * j.by.n + s.begin, top = j.at ? j.at[s.row] - s.begin : -1;
    const raw *x = (const raw *)((const T *)j.x + start);
    raw *dx = (raw *)((T *)j.dx + start);
    const float dy = load((const T *)j.dy + s.row), y = NORM ? load((const T *)j.y + s.row) : 1;
    const float level = j.at || y == 0 ? 0 : dy / (NORM ? y : j.divisor);
    const int all = (int)(s.n / by::NUMBERS);

    for (int k = s.first; k < all; k += AHEAD_BACK * j.by.crew) {
        raw got[AHEAD_BACK];
        #pragma unroll AHEAD_BACK
        for (int i = 0; NORM && i < AHEAD_BACK; i++)
            got[i] = k + i * j.by.crew < all ? x[k + i * j.by.crew] : by::none();
        #pragma unroll AHEAD_BACK
        for (int i = 0; i < AHEAD_BACK; i++) {
            const int place = k + i * j.by.crew;
            const int64_t away = top - (int64_t)place * by::NUMBERS;
            const int here = away >= 0 && away < by::NUMBERS ? (int)away : -1;
            float numbers[by::NUMBERS];
            if (NORM)
                by::unpack(got[i], numbers);
            #pragma unroll 8
            for (int n = 0; n < by::NUMBERS; n++)
                numbers[n] = NORM ? level * numbers[n] : n == here ? dy : level;
            if (place < all)
                dx[place] = by::pack(numbers);
        }
    }
}

/* ---- launches ---- */

/* Numbers that a crew of a long row has. */
template <typename T>
constexpr int64_t PIECE = MOST *AHEAD * 16 / sizeof(T);

static int64_t rows_of(const struct frame *f)
{
    return f->choice[REDUCE_OVER] == REDUCE_ALL ? 1 : DIM(f, 'R');
}

static int64_t numbers_of(const struct frame *f)
{
    return DIM(f, 'N') * (f->choice[REDUCE_OVER] == REDUCE_ALL ? DIM(f, 'R') : 1);
}

template <typename T>
static cut rows_whole(const struct frame *f)
{
    return cut_of<T>(rows_of(f), numbers_of(f), numbers_of(f), AHEAD);
}

template <typename T>
static cut rows_cut(const struct frame *f, int each)
{
    return cut_of<T>(rows_of(f), numbers_of(f), PIECE<T>, each);
}

static float divisor_of(const struct frame *f)
{
    return f->choice[REDUCE_KIND] == REDUCE_MEAN ? (float)numbers_of(f) : 1;
}

template <typename T>
static job job_of(const struct frame *f, const cut &by)
{
    const struct reduce *a = ARGS(f, reduce);
    const bool norm = f->choice[REDUCE_KIND] == REDUCE_NORM2;
    return {by,
            a->x,
            NULL,
            a->y,
            (int64_t *)a->at,
            sizeof(T) == sizeof(float) ? KEPT_F32 : KEPT_BF16,
            norm,
            norm,
            divisor_of(f)};
}

template <typename F, typename T>
static int tree_fold(const struct frame *f)
{
    const cut by = {rows_of(f), numbers_of(f), numbers_of(f), 1, BLOCK};
    tree_kernel<F, T><<<blocks_of(by), BLOCK, 0, gpu_stream()>>>(job_of<T>(f, by));
    return cudaGetLastError();
}

template <typename F, typename T>
static int fold(const job &j)
{
    if (whole_units<T>(j.by.n))
        shuffle_kernel<F, T, true><<<blocks_of(j.by), threads_of(j.by), 0, gpu_stream()>>>(j);
    else
        shuffle_kernel<F, T, false><<<blocks_of(j.by), threads_of(j.by), 0, gpu_stream()>>>(j);
    return cudaGetLastError();
}

template <typename F, typename T>
static int shuffle_fold(const struct frame *f)
{
    return fold<F, T>(job_of<T>(f, rows_whole<T>(f)));
}

/* Where a row is a piece, the first level is the last. */
template <typename F, typename T>
static int two_level_fold(const struct frame *f)
{
    job whole = job_of<T>(f, rows_cut<T>(f, AHEAD)), first = whole;
    const int64_t parts = whole.by.rows * whole.by.pieces;
    const bool max = std::is_same<F, top>::value;

    if (whole.by.pieces == 1)
        return fold<F, T>(whole);
    first.at = (int64_t *)f->work;
    first.y = first.at + (max ? parts : 0);
    first.kept = KEPT_F32;
    first.root = false;
    first.divisor = 1;
    int e = fold<F, T>(first);
    whole.by = cut_of<float>(whole.by.rows, whole.by.pieces, whole.by.pieces, AHEAD_BACK);
    whole.x = first.y;
    whole.from = max ? first.at : NULL;
    whole.squared = false;
    return e ? e
             : launch_pdl(whole_units<float>(whole.by.n) ? shuffle_kernel<F, float, true>
                                                         : shuffle_kernel<F, float, false>,
                          blocks_of(whole.by), threads_of(whole.by), 0, whole);
}

template <typename T>
static size_t two_level_work(const struct frame *f, enum pass p)
{
    const cut by = rows_cut<T>(f, AHEAD);
    const size_t part =
        sizeof(float) + (f->choice[REDUCE_KIND] == REDUCE_MAX ? sizeof(int64_t) : 0);
    return p == FORWARD && by.pieces > 1 ? by.rows * by.pieces * part : 0;
}

/* The folds of sums and of a max. */
typedef int folding(const struct frame *f);

template <folding *SUM, folding *MAX>
static int forward(const struct frame *f)
{
    return f->choice[REDUCE_KIND] == REDUCE_MAX ? MAX(f) : SUM(f);
}

static job_back job_back_of(const struct frame *f, const cut &by)
{
    const struct reduce *a = ARGS(f, reduce), *g = GRADS(f, reduce);
    const bool norm = f->choice[REDUCE_KIND] == REDUCE_NORM2;
    return {
        by,           g->y, norm ? a->x : NULL, norm ? a->y : NULL, g->x, (const int64_t *)a->at,
        divisor_of(f)};
}

template <typename T>
static int each_back(const struct frame *f)
{
    const job_back j = job_back_of(f, rows_whole<T>(f));
    each_kernel<T><<<ceil_div(j.by.rows * j.by.n, BLOCK), BLOCK, 0, gpu_stream()>>>(j);
    return cudaGetLastError();
}

template <typename T, bool NORM>
static int spread(const job_back &j)
{
    if (whole_units<T>(j.by.n))
        spread_kernel<T, true, NORM><<<blocks_of(j.by), threads_of(j.by), 0, gpu_stream()>>>(j);
    else
        spread_kernel<T, false, NORM><<<blocks_of(j.by), threads_of(j.by), 0, gpu_stream()>>>(j);
    return cudaGetLastError();
}

template <typename T>
static int spread_back(const struct frame *f)
{
    const job_back j = job_back_of(f, rows_cut<T>(f, AHEAD_BACK));
    return j.x ? spread<T, true>(j) : spread<T, false>(j);
}

static const char *too_many(int64_t blocks)
{
    return blocks > GRID ? "more blocks of threads than a grid has (2147483647)" : NULL;
}

static const char *tree_declines(const struct frame *f)
{
    return too_many(ceil_div(rows_of(f) * numbers_of(f), BLOCK));
}

template <typename T>
static const char *declines(const struct frame *f)
{
    return too_many(blocks_of(rows_cut<T>(f, AHEAD_BACK)));
}

#define RUNG(bits, T, rung, idea, back, work, declines)                                            \
    static const struct impl rung##bits = {                                                        \
        #rung, idea,     {forward<rung##_fold<total, T>, rung##_fold<top, T>>, back<T>},           \
        work,  declines, NULL,                                                                     \
        0,     0}

#define LADDER(bits, T)                                                                            \
    RUNG(bits, T, tree, "a block a row, halved in shared memory; backward a thread a number",      \
         each_back, NULL, tree_declines);                                                          \
    RUNG(bits, T, shuffle, "a warp a short row, a block a long one, folded by shuffles",           \
         spread_back, NULL, declines<T>);                                                          \
    RUNG(bits, T, two_level, "long rows in pieces, what is found of them folded in turn",          \
         spread_back, two_level_work<T>, declines<T>);                                             \
    GPU_KERNEL_LIST(reduce, bits, &two_level##bits, &shuffle##bits, &tree##bits)

LADDER(32, float);
LADDER(16, __nv_bfloat16);
