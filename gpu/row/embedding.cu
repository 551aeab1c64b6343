/* y[r,:] = E[token[r],:], token [R], E [V,D], y [R,D]; NaN where a token is outside 0 ... V - 1.  Backward
 * dE[v,:] = the sum of dy[r,:] over the rows r whose token is v: groups of K of them in order, then the
 * groups' sums in order (common/ops/embedding.h).
 *
 * sorted sorts the rows by their tokens (embedding_sort.cuh).  The rows of a
 * token, its run, then follow each other in ascending order; a team of lanes has K places, and sums the
 * groups that begin there, 16 bytes of columns a lane. */
#include "common/ops/embedding.h"
#include "gpu/device/divisor.cuh"
#include "gpu/device/vector.cuh"
#include "gpu/row/embedding_sort.cuh"

enum {
    K = EMBEDDING_GROUP,
    THREADS = 256,
    WARPS = THREADS / 32,
    BLOCKS_PER_SM = 32, /* of loops over rows, which differ in work: more than are resident */
    MAX_ACROSS = 65535, /* blocks of a grid's second axis */
    AHEAD = 4,          /* vectors that a thread loads together */
    SPAN = THREADS * AHEAD,
    ROWS_AHEAD = 8, /* rows of dy that it does */
    SUMS_AHEAD = 8, /* groups' sums that it does */
    SHORT = 32,     /* groups of a run that one team adds */
    COLUMNS = 16,   /* of a longer one, which a block adds, and how many sums at a time */
    STAGE = 256,
    LONG_AHEAD = 16, /* of them that a thread loads ahead */
    PER_THREAD = STAGE * COLUMNS / THREADS
};

/* ---- forward ---- */

/* R rows, of n vectors of E's and y's columns each. */
struct table {
    int64_t R, V, D, n;
};

template <typename T>
static table table_of(const struct call *f)
{
    return {DIM(f, 'R'), DIM(f, 'V'), DIM(f, 'D'), accesses<T>(DIM(f, 'D'))};
}

/* A block writes neighbours of y, whose rows follow each other: AHEAD vectors a thread, which it loads
 * together. */
template <typename T, bool WIDE>
__global__ void __launch_bounds__(THREADS)
    vector_kernel(const int64_t *token, const T *E, T *y, table t, divisor by_n)
{
    enum { N = WIDTH<T, WIDE> };
    const int64_t first = (int64_t)blockIdx.x * SPAN, row = first / t.n, behind = t.R * t.n - first;
    const unsigned column = (unsigned)(first - row * t.n) + threadIdx.x;
    const vec<T, N> nothing = make_vec<T, N>([](int) { return NAN; });
    unsigned r[AHEAD];
    int64_t v[AHEAD];
    vec<T, N> x[AHEAD];

    #pragma unroll AHEAD
    for (int k = 0; k < AHEAD; k++) {
        r[k] = by_n.quotient(column + k * THREADS);
        v[k] = threadIdx.x + k * THREADS < behind ? token[row + r[k]] : -1;
    }
    #pragma unroll AHEAD
    for (int k = 0; k < AHEAD; k++) {
        x[k] = nothing;
        if (is_token(v[k], t.V))
            x[k] = load_vec<N>(E + v[k] * t.D + (column + k * THREADS - r[k] * (unsigned)t.n) * N);
    }
    #pragma unroll AHEAD
    for (int k = 0; k < AHEAD; k++)
        if (threadIdx.x + k * THREADS < behind)
            store_stream(y + (first + threadIdx.x + k * THREADS) * N, x[k]);
}

template <typename T>
static int vector_forward(const struct call *f)
{
    const struct embedding *a = ARGS(f, embedding);
    const table t = table_of<T>(f);
    const auto kernel = in_vectors<T>(t.D) ? vector_kernel<T, true> : vector_kernel<T, false>;
    kernel<<<(unsigned)ceil_div(t.R * t.n, SPAN), THREADS, 0, gpu_stream(f)>>>(
        (const int64_t *)a->token, (const T *)a->E, (T *)a->y, t, divisor_of(t.n));
    return cudaGetLastError();
}

/* ---- teams: lanes that share the columns of a row ---- */

/* The lanes of a team for rows of n vectors: a power of two.  From a warp on the one that leaves the
 * fewest idle; of several the largest, whose loads of a row are together. */
static int lanes_of(int64_t n)
{
    int lanes = 1, best;

    while (lanes < 32 && lanes < n)
        lanes *= 2;
    for (best = lanes; lanes <= THREADS && lanes < 2 * n; lanes *= 2)
        if (ceil_div(n, lanes) * lanes <= ceil_div(n, best) * best)
            best = lanes;
    return best;
}

/* The teams of a launch: along x for so many chunks of work, along y for the parts of a row. */
struct teams {
    int64_t n;
    int lanes;

    dim3 grid(const struct call *f, int64_t chunks) const
    {
        const int64_t across = min(ceil_div(n, lanes), (int64_t)MAX_ACROSS);
        const int64_t at_once = (int64_t)gpu_limits(f)->sms * BLOCKS_PER_SM;
        return dim3((unsigned)min(ceil_div(chunks, THREADS / lanes), at_once), (unsigned)across);
    }
};

/* The chunks of a thread's team, first, first + step, ...; and the lane's vectors of a row, begin, begin +
 * stride, .... */
struct team {
    int64_t first, step, begin, stride;

    __device__ __forceinline__ team(const teams &t)
    {
        const int in_block = THREADS / t.lanes;
        first = (int64_t)blockIdx.x * in_block + threadIdx.x / t.lanes;
        step = (int64_t)gridDim.x * in_block;
        begin = (int64_t)blockIdx.y * t.lanes + threadIdx.x % t.lanes;
        stride = (int64_t)gridDim.y * t.lanes;
    }
};

/* ---- runs and groups ---- */

/* A place of the sorted rows: its row of dy, and where the sum of the group that begins there goes: to dE's
 * row `to`, or from V on to row to - V of the groups' sums. */
struct place {
    unsigned row, to;
};
static const unsigned NO_GROUP = ~0u; /* none begins there */

/* The sorted rows.  The run of token v is begin[v] ... begin[v + 1] - 1; begin[V] is where the tokens
 * outside begin.  Of a run of several groups each has a row of `sums`, of D floats. */
struct runs {
    const unsigned *key, *row;
    unsigned *begin; /* [V + 1] */
    place *places;   /* [R] */
    float *sums;
    int64_t R, V, D;

    /* The row of the sum of the group that begins at i, its run's first or a later one.  Of two groups of
     * such runs that begin within K rows, one is a run's last and the other the next run's first. */
    static __device__ __forceinline__ int64_t sum_row(unsigned i, bool first)
    {
        return 2 * (int64_t)(i / K) + first;
    }

    /* The first place from i on where a group begins, or where the tokens outside do. */
    __device__ __forceinline__ int64_t next_group(int64_t i) const
    {
        const unsigned v = i < R ? key[i] : (unsigned)V;
        if (v >= V)
            return begin[V];
        const int64_t first = begin[v], end = begin[v + 1];
        return min(first + (i - first + K - 1) / K * K, end);
    }
};

/* By bisection: the first place whose key is v or more. */
__global__ void __launch_bounds__(THREADS) begin_kernel(runs s)
{
    const int64_t v = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t low = 0, high = s.R;

    if (v > s.V)
        return;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (s.key[middle] < v)
            low = middle + 1;
        else
            high = middle;
    }
    s.begin[v] = (unsigned)low;
}

__global__ void __launch_bounds__(THREADS) place_kernel(runs s)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const unsigned v = i < s.R ? s.key[i] : (unsigned)s.V;

    if (v >= s.V)
        return;
    const unsigned begin = s.begin[v], n = s.begin[v + 1] - begin, at = (unsigned)i - begin;
    unsigned to = n <= K ? v : (unsigned)(s.V + runs::sum_row((unsigned)i, at == 0));
    if (at % K)
        to = NO_GROUP;
    s.places[i] = {s.row[i], to};
}

/* In accesses of 16 bytes where N is a multiple of 4. */
template <int N>
static __device__ __forceinline__ void store_floats(float *to, const float (&x)[N])
{
    enum { EACH = N % 4 ? 1 : 4 };
    #pragma unroll N
    for (int j = 0; j < N; j += EACH)
        store_vec(to + j, pack<float, EACH>(x + j));
}

/* The sum of a group, to where it goes. */
template <int N>
static __device__ __forceinline__ void store_sum(const runs &s, float *dE, unsigned to,
                                                 int64_t column, const float (&sum)[N])
{
    float *row = to < s.V ? dE + to * s.D : s.sums + (to - s.V) * s.D;

    store_floats(row + column, sum);
}

/* The N columns at `column` of the groups that begin at the places i ... end - 1. */
template <typename T, int N>
static __device__ __forceinline__ void sum_groups(const runs &s, const T *dy, float *dE,
                                                  int64_t column, int64_t i, int64_t end)
{
    float sum[N] = {};
    unsigned to = NO_GROUP;
    place next[ROWS_AHEAD];

    const auto look = [&](int64_t from) {
        #pragma unroll ROWS_AHEAD
        for (int k = 0; k < ROWS_AHEAD; k++)
            if (from + k < end)
                next[k] = s.places[from + k];
    };
    look(i);
    for (; i < end; i += ROWS_AHEAD) {
        vec<T, N> x[ROWS_AHEAD];
        unsigned begins[ROWS_AHEAD];
        #pragma unroll ROWS_AHEAD
        for (int k = 0; k < ROWS_AHEAD; k++)
            if (i + k < end) {
                x[k] = load_vec<N>(dy + next[k].row * s.D + column);
                begins[k] = next[k].to;
            }
        look(i + ROWS_AHEAD);
        #pragma unroll ROWS_AHEAD
        for (int k = 0; k < ROWS_AHEAD; k++) {
            if (i + k >= end)
                break;
            if (begins[k] != NO_GROUP) {
                if (to != NO_GROUP)
                    store_sum(s, dE, to, column, sum);
                to = begins[k];
                #pragma unroll N
                for (int j = 0; j < N; j++)
                    sum[j] = 0;
            }
            #pragma unroll N
            for (int j = 0; j < N; j++)
                sum[j] += x[k][j];
        }
    }
    if (to != NO_GROUP)
        store_sum(s, dE, to, column, sum);
}

/* A team has the groups that begin at K neighbouring places, of which there is one at least: about K rows,
 * whatever the runs' lengths. */
template <typename T, bool WIDE>
__global__ void __launch_bounds__(THREADS) group_kernel(runs s, const T *dy, float *dE, teams t)
{
    enum { N = WIDTH<T, WIDE> };
    const team own(t);

    for (int64_t i = own.first * K; i < s.R; i += own.step * K) {
        const int64_t begin = s.next_group(i), end = s.next_group(i + K);
        for (int64_t c = own.begin; c < t.n; c += own.stride)
            sum_groups<T, N>(s, dy, dE, c * N, begin, end);
    }
}

/* The run at place i, if i is the first of its places that is a multiple of K * `groups`, and if it has more
 * than `groups` groups; else one of no rows. */
struct run {
    unsigned v, begin, end;

    __device__ __forceinline__ run(const runs &s, int64_t i, int64_t groups)
    {
        v = s.key[i];
        begin = end = 0;
        if (v >= s.V)
            return;
        const unsigned first = s.begin[v], last = s.begin[v + 1];
        if (last - first > K * groups && i - first < K * groups) {
            begin = first;
            end = last;
        }
    }
};

/* A team for each multiple of K among the sorted rows adds the sums of a run of 2 ... SHORT groups. */
template <typename T, bool WIDE>
__global__ void __launch_bounds__(THREADS) join_kernel(runs s, float *dE, teams t)
{
    enum { N = WIDTH<T, WIDE> };
    const team own(t);

    for (int64_t i = own.first * K; i < s.R; i += own.step * K) {
        const run r(s, i, 1);
        if (r.end == r.begin || r.end - r.begin > K * SHORT)
            continue;
        for (int64_t c = own.begin; c < t.n; c += own.stride) {
            const float *sums = s.sums + c * N;
            auto sum = load_array<N>(sums + runs::sum_row(r.begin, true) * s.D);
            #pragma unroll SUMS_AHEAD
            for (unsigned g = r.begin + K; g < r.end; g += K) {
                const auto x = load_array<N>(sums + runs::sum_row(g, false) * s.D);
                #pragma unroll N
                for (int j = 0; j < N; j++)
                    sum.x[j] += x.x[j];
            }
            store_floats(dE + r.v * s.D + c * N, sum.x);
        }
    }
}

/* STAGE sums of COLUMNS columns, from the group at g on; the threads load them, one row after the other.
 * Zeros where no group is. */
static __device__ __forceinline__ void load_stage(float (&x)[PER_THREAD], const runs &s,
                                                  const run &r, int64_t g, int64_t column)
{
    #pragma unroll PER_THREAD
    for (int k = 0; k < PER_THREAD; k++) {
        const int64_t at = g + (int64_t)(threadIdx.x / COLUMNS + k * (THREADS / COLUMNS)) * K;
        x[k] = 0;
        if (at < r.end && column < s.D)
            x[k] = s.sums[runs::sum_row((unsigned)at, at == r.begin) * s.D + column];
    }
}

/* The sum of a column of a stage and what is before it, in order: a step loads what the next one adds. */
static __device__ __forceinline__ float sum_stage(float sum, const float *column)
{
    float next[LONG_AHEAD];

    #pragma unroll LONG_AHEAD
    for (int k = 0; k < LONG_AHEAD; k++)
        next[k] = column[k * COLUMNS];
    #pragma unroll 1
    for (int j = 0; j < STAGE; j += LONG_AHEAD) {
        const float *then = column + (j + LONG_AHEAD) % STAGE * COLUMNS;
        #pragma unroll LONG_AHEAD
        for (int k = 0; k < LONG_AHEAD; k++) {
            sum += next[k];
            next[k] = then[k * COLUMNS];
        }
    }
    return sum;
}

/* A block for each multiple of K * SHORT adds the sums of a run of more groups: all threads load, and a
 * thread for each column adds, in order. */
__global__ void __launch_bounds__(THREADS) long_kernel(runs s, float *dE)
{
    __shared__ float smem[STAGE * COLUMNS];
    const int64_t step = (int64_t)gridDim.x * K * SHORT;

    for (int64_t i = (int64_t)blockIdx.x * K * SHORT; i < s.R; i += step) {
        const run r(s, i, SHORT);
        if (r.end == r.begin)
            continue;
        for (int64_t c = (int64_t)blockIdx.y * COLUMNS; c < s.D; c += gridDim.y * COLUMNS) {
            const int64_t column = c + threadIdx.x % COLUMNS;
            float x[PER_THREAD], sum = 0;
            load_stage(x, s, r, r.begin, column);
            for (int64_t g = r.begin; g < r.end; g += STAGE * K) {
                __syncthreads();
                #pragma unroll PER_THREAD
                for (int k = 0; k < PER_THREAD; k++)
                    smem[k * THREADS + threadIdx.x] = x[k];
                __syncthreads();
                load_stage(x, s, r, g + STAGE * K, column);
                if (threadIdx.x < COLUMNS)
                    sum = sum_stage(sum, smem + threadIdx.x);
            }
            if (threadIdx.x < COLUMNS && column < s.D)
                dE[r.v * s.D + column] = sum;
        }
    }
}

/* Zeros for the tokens that no row has.  A warp looks at 32 tokens at once, and writes rows together. */
template <bool WIDE>
__global__ void __launch_bounds__(THREADS) zero_kernel(runs s, float *dE, int64_t n)
{
    enum { N = WIDTH<float, WIDE> };
    const vec<float, N> zeros = {};
    const int lane = threadIdx.x % 32;
    const int64_t first = ((int64_t)blockIdx.x * WARPS + threadIdx.x / 32) * 32, own = first + lane;
    unsigned none = __ballot_sync(~0u, own < s.V && s.begin[own] == s.begin[own + 1]);

    for (; none; none &= none - 1) {
        float *row = dE + (first + __ffs((int)none) - 1) * s.D;
        for (int64_t c = lane; c < n; c += 32)
            store_stream(row + c * N, zeros);
    }
}

/* ---- launches ---- */

struct workspace {
    sort_work sort;
    unsigned *begin;
    place *places;
    float *sums;
};

static workspace workspace_of(const struct call *f, work_arena *a)
{
    const int64_t R = DIM(f, 'R');
    workspace w;

    w.sort = sort_work_of(a, R);
    w.begin = take<unsigned>(a, DIM(f, 'V') + 1);
    w.places = take<place>(a, R);
    w.sums = take<float>(a, R > K ? 2 * ceil_div(R, K) * DIM(f, 'D') : 0);
    return w;
}

static size_t sorted_work(const struct call *f, enum pass p)
{
    work_arena a = {NULL, 0};

    if (p == BACKWARD)
        workspace_of(f, &a);
    return a.bytes;
}

static int sort_rows(const struct call *f, const workspace &w, runs *to)
{
    const int64_t R = DIM(f, 'R'), V = DIM(f, 'V');
    const int64_t *token = (const int64_t *)ARGS(f, embedding)->token;
    pairs sorted;

    CUDA(sort_by_token(gpu_stream(f), token, R, V, w.sort, &sorted));
    *to = {sorted.key, sorted.row, w.begin, w.places, w.sums, R, V, DIM(f, 'D')};
    begin_kernel<<<(unsigned)ceil_div(V + 1, THREADS), THREADS, 0, gpu_stream(f)>>>(*to);
    CUDA(cudaGetLastError());
    place_kernel<<<(unsigned)ceil_div(R, THREADS), THREADS, 0, gpu_stream(f)>>>(*to);
    return cudaGetLastError();
}

template <typename T, bool WIDE>
static int sum_runs(const struct call *f, const runs &s)
{
    const int64_t n = accesses<T>(s.D), chunks = ceil_div(s.R, K),
                  longest = ceil_div(s.R, K * SHORT);
    const teams t = {n, lanes_of(n)};
    float *dE = (float *)GRADS(f, embedding)->E;

    zero_kernel<WIDE><<<(unsigned)ceil_div(s.V, THREADS), THREADS, 0, gpu_stream(f)>>>(
        s, dE, s.D / WIDTH<float, WIDE>);
    CUDA(cudaGetLastError());
    group_kernel<T, WIDE><<<t.grid(f, chunks), THREADS, 0, gpu_stream(f)>>>(
        s, (const T *)GRADS(f, embedding)->y, dE, t);
    CUDA(cudaGetLastError());
    if (s.R > K) {
        join_kernel<T, WIDE><<<t.grid(f, chunks), THREADS, 0, gpu_stream(f)>>>(s, dE, t);
        CUDA(cudaGetLastError());
    }
    if (s.R <= K * SHORT)
        return 0;
    const dim3 grid((unsigned)min(longest, (int64_t)MAX_ACROSS),
                    (unsigned)min(ceil_div(s.D, COLUMNS), (int64_t)MAX_ACROSS));
    long_kernel<<<grid, THREADS, 0, gpu_stream(f)>>>(s, dE);
    return cudaGetLastError();
}

template <typename T>
static int sorted_backward(const struct call *f)
{
    work_arena a = {(char *)f->work, 0};
    const workspace w = workspace_of(f, &a);
    runs s;

    CUDA(sort_rows(f, w, &s));
    return in_vectors<T>(DIM(f, 'D')) ? sum_runs<T, true>(f, s) : sum_runs<T, false>(f, s);
}

/* ---- plain: one thread per element ---- */

template <typename T>
__global__ void plain_forward_kernel(const int64_t *token, const T *E, T *y, table t)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < t.R * t.D; i += step) {
        const int64_t r = i / t.D, v = token[r];
        store(y + i, is_token(v, t.V) ? load(E + v * t.D + (i - r * t.D)) : NAN);
    }
}

/* An element of dE looks at all tokens. */
template <typename T>
__global__ void plain_backward_kernel(const int64_t *token, const T *dy, float *dE, table t)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < t.V * t.D; i += step) {
        const int64_t v = i / t.D, d = i - v * t.D;
        float total = 0, group = 0;
        int n = 0;
        for (int64_t r = 0; r < t.R; r++) {
            if (token[r] != v)
                continue;
            if (n == K) {
                total += group;
                group = 0;
                n = 0;
            }
            group += load(dy + r * t.D + d);
            n++;
        }
        dE[i] = total + group;
    }
}

static unsigned plain_blocks(const struct call *f, int64_t elements)
{
    return (unsigned)min(ceil_div(elements, THREADS), (int64_t)gpu_limits(f)->sms * BLOCKS_PER_SM);
}

template <typename T>
static int plain_forward(const struct call *f)
{
    const struct embedding *a = ARGS(f, embedding);
    const table t = table_of<T>(f);
    plain_forward_kernel<T><<<plain_blocks(f, t.R * t.D), THREADS, 0, gpu_stream(f)>>>(
        (const int64_t *)a->token, (const T *)a->E, (T *)a->y, t);
    return cudaGetLastError();
}

template <typename T>
static int plain_backward(const struct call *f)
{
    const struct embedding *a = ARGS(f, embedding), *g = GRADS(f, embedding);
    const table t = table_of<T>(f);
    plain_backward_kernel<T><<<plain_blocks(f, t.V * t.D), THREADS, 0, gpu_stream(f)>>>(
        (const int64_t *)a->token, (const T *)g->y, (float *)g->E, t);
    return cudaGetLastError();
}

/* It counts places in 32 bits. */
static const char *sorted_declines(const struct call *f)
{
    return DIM(f, 'R') > INT32_MAX || DIM(f, 'V') >= INT32_MAX || DIM(f, 'D') > INT32_MAX - SPAN ||
                   ceil_div(DIM(f, 'R') * DIM(f, 'D'), SPAN) > INT32_MAX
               ? "more rows, tokens or columns than it counts (2147483647)"
               : NULL;
}

GPU_KERNEL(sorted, .idea = "16 bytes of a row per lane; backward sorts rows by token, sums groups",
           .pass = {vector_forward<T>, sorted_backward<T>}, .work = sorted_work,
           .declines = sorted_declines);
GPU_KERNEL(plain, .idea = "a thread per element; backward each looks at all tokens",
           .pass = {plain_forward<T>, plain_backward<T>});

GPU_KERNELS(embedding, IN_TYPES(sorted) IN_TYPES(plain));
