/* y[r,:] = E[token[r],:], token [R], E [V,D], y [R,D]; NaN where a token is outside 0 ... V - 1.  Backward
 * dE[v,:] = the sum of dy[r,:] over the rows r whose token is v: groups of K of them in order, then the
 * groups' sums in order (common/ops/embedding.h).
 *
 * sorted sorts the rows by their tokens: a stable radix sort of (token, row), 8 bits a pass.  The rows of a
 * token, its run, then follow each other in ascending order, and a team of lanes sums a group, 16 bytes of
 * columns each.  The only atomics count integers. */
#include "common/ops/embedding.h"
#include "gpu/device/vector.cuh"

enum {
    K = EMBEDDING_GROUP,
    THREADS = 256,
    WARPS = THREADS / 32,
    BLOCKS_PER_SM =
        32, /* of loops over rows: a few more than are resident, as rows differ in work */
    MAX_ACROSS = 65535, /* blocks of a grid's second axis */
    AHEAD = 4,          /* vectors of a row that a lane loads together */
    ROWS_AHEAD = 8,     /* rows of a group from which it does */
    SUMS_AHEAD = 8      /* groups' sums that it does */
};

static __device__ __forceinline__ bool is_token(int64_t v, int64_t V)
{
    return v >= 0 && v < V;
}

/* ---- teams: lanes that share the columns of rows ---- */

/* R rows, of n vectors of E's and y's columns each; a power of two up to a warp is the team of a row. */
struct table {
    int64_t R, V, D, n;
    int lanes;
};

template <typename T>
static table table_of(const struct call *f)
{
    table t = {DIM(f, 'R'), DIM(f, 'V'), DIM(f, 'D'), accesses<T>(DIM(f, 'D')), 1};
    while (t.lanes < 32 && t.lanes < t.n)
        t.lanes *= 2;
    return t;
}

/* The grid for so many rows: along y are the parts of a row, of lanes * `ahead` vectors each. */
static dim3 grid_of(const struct call *f, const table &t, int64_t rows, int ahead)
{
    const int64_t across = min(ceil_div(t.n, t.lanes * ahead), (int64_t)MAX_ACROSS);
    const int64_t at_once = (int64_t)gpu_limits(f)->sms * BLOCKS_PER_SM;
    return dim3((unsigned)min(ceil_div(rows, THREADS / t.lanes), at_once), (unsigned)across);
}

/* The rows of a thread's team, first, first + step, ...; and the lane's vectors of a row, begin, and those
 * of the parts behind it. */
struct team {
    int64_t first, step, begin, stride;

    __device__ __forceinline__ team(const table &t, int ahead)
    {
        const int teams = THREADS / t.lanes, lane = threadIdx.x % t.lanes;
        first = (int64_t)blockIdx.x * teams + threadIdx.x / t.lanes;
        step = (int64_t)gridDim.x * teams;
        begin = (int64_t)blockIdx.y * t.lanes * ahead + lane;
        stride = (int64_t)gridDim.y * t.lanes * ahead;
    }
};

/* ---- forward ---- */

template <typename T, bool WIDE>
__global__ void __launch_bounds__(THREADS)
    vector_kernel(const int64_t *token, const T *E, T *y, table t)
{
    enum { N = WIDTH<T, WIDE> };
    const vec<T, N> nothing = make_vec<T, N>([](int) { return NAN; });
    const team own(t, AHEAD);

    for (int64_t r = own.first; r < t.R; r += own.step) {
        const int64_t v = token[r];
        const bool known = is_token(v, t.V);
        const T *from = E + (known ? v : 0) * t.D;
        for (int64_t c = own.begin; c < t.n; c += own.stride) {
            vec<T, N> x[AHEAD];
            #pragma unroll AHEAD
            for (int k = 0; k < AHEAD; k++) {
                x[k] = nothing;
                if (known && c + k * t.lanes < t.n)
                    x[k] = load_vec<N>(from + (c + k * t.lanes) * N);
            }
            #pragma unroll AHEAD
            for (int k = 0; k < AHEAD; k++)
                if (c + k * t.lanes < t.n)
                    store_vec(y + r * t.D + (c + k * t.lanes) * N, x[k]);
        }
    }
}

template <typename T>
static int vector_forward(const struct call *f)
{
    const struct embedding *a = ARGS(f, embedding);
    const table t = table_of<T>(f);
    const auto kernel = in_vectors<T>(t.D) ? vector_kernel<T, true> : vector_kernel<T, false>;
    kernel<<<grid_of(f, t, t.R, AHEAD), THREADS, 0, gpu_stream(f)>>>((const int64_t *)a->token,
                                                                     (const T *)a->E, (T *)a->y, t);
    return cudaGetLastError();
}

/* ---- the sort ---- */

enum {
    BITS = 8, /* of a token, by which a pass sorts */
    DIGITS = 1 << BITS,
    ITEMS = 8, /* rows of a thread */
    TILE = THREADS * ITEMS
};
static_assert((int)DIGITS == THREADS, "a thread for each digit");

/* Rows and their tokens; a token outside is V, and so behind all others. */
struct pairs {
    unsigned *key, *row;
};

/* One pass: stable, from the digits at `shift` of `from`'s keys, or of the tokens in the first pass, into
 * `to`.  counts[d,b] is of digit d in block b's tile, then of that digit in the tiles before it; totals[d]
 * is of all tiles. */
struct sort_pass {
    const int64_t *token; /* [R] */
    pairs from, to;
    unsigned *counts, *totals;
    int64_t R, V;
    int shift;

    template <bool FIRST>
    __device__ __forceinline__ unsigned key(int64_t i) const
    {
        if constexpr (FIRST)
            return (unsigned)(is_token(token[i], V) ? token[i] : V);
        else
            return from.key[i];
    }
    __device__ __forceinline__ int digit(unsigned key) const
    {
        return (int)(key >> shift & (DIGITS - 1));
    }
};

template <bool FIRST>
__global__ void __launch_bounds__(THREADS) count_kernel(sort_pass s)
{
    __shared__ unsigned count[DIGITS];
    const int64_t first = (int64_t)blockIdx.x * TILE + threadIdx.x;

    count[threadIdx.x] = 0;
    __syncthreads();
    #pragma unroll ITEMS
    for (int k = 0; k < ITEMS; k++)
        if (first + k * THREADS < s.R)
            atomicAdd(&count[s.digit(s.key<FIRST>(first + k * THREADS))], 1u);
    __syncthreads();
    s.counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = count[threadIdx.x];
}

/* The sum of x over the threads up to this one, itself among them; `total` becomes that of all.  Its
 * shared memory may be used again at once. */
static __device__ __forceinline__ unsigned block_scan(unsigned x, unsigned *smem, unsigned *total)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned before = 0, all = 0;

    #pragma unroll 5
    for (int d = 1; d < 32; d *= 2) {
        const unsigned other = __shfl_up_sync(~0u, x, d);
        x += lane >= d ? other : 0;
    }
    if (lane == 31)
        smem[warp] = x;
    __syncthreads();
    #pragma unroll WARPS
    for (int w = 0; w < WARPS; w++) {
        before += w < warp ? smem[w] : 0;
        all += smem[w];
    }
    __syncthreads();
    *total = all;
    return before + x;
}

/* A block for each digit: its counts become sums over the tiles before. */
__global__ void __launch_bounds__(THREADS)
    scan_kernel(unsigned *counts, unsigned *totals, int tiles)
{
    __shared__ unsigned smem[WARPS];
    unsigned *own = counts + (int64_t)blockIdx.x * tiles, before = 0, all;

    for (int first = 0; first < tiles; first += THREADS) {
        const int i = first + (int)threadIdx.x;
        const unsigned x = i < tiles ? own[i] : 0, sum = block_scan(x, smem, &all);
        if (i < tiles)
            own[i] = before + sum - x;
        before += all;
    }
    if (threadIdx.x == 0)
        totals[blockIdx.x] = before;
}

/* The lanes, of those that are `there`, whose digit is this one's. */
static __device__ __forceinline__ unsigned lanes_alike(int digit, bool there)
{
    unsigned alike = __ballot_sync(~0u, there);

    #pragma unroll BITS
    for (int b = 0; b < BITS; b++) {
        const unsigned set = __ballot_sync(~0u, digit >> b & 1);
        alike &= digit >> b & 1 ? set : ~set;
    }
    return alike;
}

/* A warp has 32 ITEMS neighbours of the block's tile.  A pair's place is that of its digit in the tile's
 * first warp, and how many pairs before it, in the earlier warps and its own, have the same digit. */
template <bool FIRST>
__global__ void __launch_bounds__(THREADS) scatter_kernel(sort_pass s)
{
    __shared__ unsigned count[WARPS][DIGITS];
    __shared__ unsigned smem[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, d = threadIdx.x;
    const int64_t first = (int64_t)blockIdx.x * TILE + warp * 32 * ITEMS + lane;
    unsigned key[ITEMS], rank[ITEMS], all;

    #pragma unroll WARPS
    for (int w = 0; w < WARPS; w++)
        count[w][d] = 0;
    __syncthreads();
    #pragma unroll ITEMS
    for (int k = 0; k < ITEMS; k++) {
        const bool there = first + k * 32 < s.R;
        key[k] = there ? s.key<FIRST>(first + k * 32) : 0;
        const unsigned alike = lanes_alike(s.digit(key[k]), there);
        unsigned *at = &count[warp][s.digit(key[k])];
        const int earlier = __popc(alike & ((1u << lane) - 1));
        rank[k] = there ? *at + earlier : 0;
        __syncwarp();
        if (there && earlier == 0)
            *at += __popc(alike);
        __syncwarp();
    }
    const unsigned total = s.totals[d];
    unsigned place = block_scan(total, smem, &all) - total + /* it waits for all warps' counts */
                     s.counts[(int64_t)d * gridDim.x + blockIdx.x];
    #pragma unroll WARPS
    for (int w = 0; w < WARPS; w++) {
        const unsigned n = count[w][d];
        count[w][d] = place;
        place += n;
    }
    __syncthreads();
    #pragma unroll ITEMS
    for (int k = 0; k < ITEMS; k++) {
        const int64_t i = first + k * 32;
        if (i >= s.R)
            continue;
        const unsigned to = count[warp][s.digit(key[k])] + rank[k];
        s.to.key[to] = key[k];
        s.to.row[to] = FIRST ? (unsigned)i : s.from.row[i];
    }
}

template <bool FIRST>
static int sort_once(const struct call *f, const sort_pass &s)
{
    const unsigned tiles = (unsigned)ceil_div(s.R, TILE);

    count_kernel<FIRST><<<tiles, THREADS, 0, gpu_stream(f)>>>(s);
    CUDA(cudaGetLastError());
    scan_kernel<<<DIGITS, THREADS, 0, gpu_stream(f)>>>(s.counts, s.totals, (int)tiles);
    CUDA(cudaGetLastError());
    scatter_kernel<FIRST><<<tiles, THREADS, 0, gpu_stream(f)>>>(s);
    return cudaGetLastError();
}

/* ---- runs and groups ---- */

/* The sorted rows.  The run of token v is begin[v] ... begin[v + 1] - 1; begin[V] is where the tokens
 * outside begin.  Of a run of several groups each has a row of `sums`, of D floats. */
struct runs {
    const unsigned *key, *row;
    unsigned *begin; /* [V + 1] */
    float *sums;

    /* That of the group that begins at i, its run's first or a later one.  Of two groups of such runs that
     * begin within K rows, one is a run's last and the other the next run's first. */
    __device__ __forceinline__ float *sum_at(unsigned i, bool first, int64_t D) const
    {
        return sums + (2 * (int64_t)(i / K) + first) * D;
    }
};

/* By bisection: the first place whose key is v or more. */
__global__ void __launch_bounds__(THREADS) begin_kernel(runs s, int64_t R, int64_t V)
{
    const int64_t v = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t low = 0, high = R;

    if (v > V)
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

/* The sum over n rows of N columns, those at dy. */
template <int N, typename T>
static __device__ __forceinline__ void sum_group(float (&sum)[N], const T *dy, int64_t D,
                                                 const unsigned *row, int n)
{
    #pragma unroll N
    for (int j = 0; j < N; j++)
        sum[j] = 0;
    for (int i = 0; i < n; i += ROWS_AHEAD) {
        vec<T, N> x[ROWS_AHEAD];
        #pragma unroll ROWS_AHEAD
        for (int k = 0; k < ROWS_AHEAD; k++)
            if (i + k < n)
                x[k] = load_vec<N>(dy + row[i + k] * D);
        #pragma unroll ROWS_AHEAD
        for (int k = 0; k < ROWS_AHEAD; k++)
            if (i + k < n) {
                #pragma unroll N
                for (int j = 0; j < N; j++)
                    sum[j] += x[k][j];
            }
    }
}

/* A team for each place of the sorted rows, which has work where a group begins. */
template <typename T, bool WIDE>
__global__ void __launch_bounds__(THREADS) group_kernel(runs s, const T *dy, T *dE, table t)
{
    enum { N = WIDTH<T, WIDE> };
    const team own(t, 1);

    for (int64_t i = own.first; i < t.R; i += own.step) {
        const unsigned v = s.key[i];
        if (v >= t.V)
            break;
        const unsigned begin = s.begin[v], n = s.begin[v + 1] - begin, at = (unsigned)i - begin;
        if (at % K)
            continue;
        for (int64_t c = own.begin; c < t.n; c += own.stride) {
            float sum[N];
            sum_group(sum, dy + c * N, t.D, s.row + i, (int)min(n - at, (unsigned)K));
            if (n <= K)
                store_vec(dE + v * t.D + c * N, pack<T, N>(sum));
            else
                #pragma unroll N
                for (int j = 0; j < N; j++)
                    s.sum_at((unsigned)i, at == 0, t.D)[c * N + j] = sum[j];
        }
    }
}

/* A team for each multiple of K among the sorted rows: each run of several groups has one, and the team of
 * its first adds the groups' sums. */
template <typename T, bool WIDE>
__global__ void __launch_bounds__(THREADS) join_kernel(runs s, T *dE, table t)
{
    enum { N = WIDTH<T, WIDE> };
    const team own(t, 1);

    for (int64_t i = own.first * K; i < t.R; i += own.step * K) {
        const unsigned v = s.key[i];
        if (v >= t.V)
            break;
        const unsigned begin = s.begin[v], end = s.begin[v + 1];
        if (end - begin <= K || i - begin >= K)
            continue;
        for (int64_t c = own.begin; c < t.n; c += own.stride) {
            auto sum = load_array<N>(s.sum_at(begin, true, t.D) + c * N);
            #pragma unroll SUMS_AHEAD
            for (unsigned g = begin + K; g < end; g += K) {
                const auto x = load_array<N>(s.sum_at(g, false, t.D) + c * N);
                #pragma unroll N
                for (int j = 0; j < N; j++)
                    sum.x[j] += x.x[j];
            }
            store_vec(dE + v * t.D + c * N, pack<T, N>(sum.x));
        }
    }
}

/* Zeros for the tokens that no row has. */
template <typename T, bool WIDE>
__global__ void __launch_bounds__(THREADS) zero_kernel(runs s, T *dE, table t)
{
    enum { N = WIDTH<T, WIDE> };
    const vec<T, N> zeros = make_vec<T, N>([](int) { return 0.0f; });
    const team own(t, 1);

    for (int64_t v = own.first; v < t.V; v += own.step)
        if (s.begin[v] == s.begin[v + 1])
            for (int64_t c = own.begin; c < t.n; c += own.stride)
                store_vec(dE + v * t.D + c * N, zeros);
}

/* ---- launches ---- */

struct workspace {
    pairs by[2];
    unsigned *counts, *totals, *begin;
    float *sums;
};

static workspace workspace_of(const struct call *f, work_arena *a)
{
    const int64_t R = DIM(f, 'R'), tiles = ceil_div(R, TILE);
    workspace w;

    for (int i = 0; i < 2; i++)
        w.by[i] = {take<unsigned>(a, R), take<unsigned>(a, R)};
    w.counts = take<unsigned>(a, DIGITS * tiles);
    w.totals = take<unsigned>(a, DIGITS);
    w.begin = take<unsigned>(a, DIM(f, 'V') + 1);
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

/* Sorts the rows by all digits that V has. */
static int sort_rows(const struct call *f, const workspace &w, runs *to)
{
    const int64_t V = DIM(f, 'V'), R = DIM(f, 'R');
    sort_pass s = {
        (const int64_t *)ARGS(f, embedding)->token, w.by[1], w.by[0], w.counts, w.totals, R, V, 0};

    CUDA(sort_once<true>(f, s));
    for (s.shift = BITS; V >> s.shift; s.shift += BITS) {
        const pairs sorted = s.to;
        s.to = s.from;
        s.from = sorted;
        CUDA(sort_once<false>(f, s));
    }
    *to = {s.to.key, s.to.row, w.begin, w.sums};
    begin_kernel<<<(unsigned)ceil_div(V + 1, THREADS), THREADS, 0, gpu_stream(f)>>>(*to, R, V);
    return cudaGetLastError();
}

template <typename T, bool WIDE>
static int sum_runs(const struct call *f, const runs &s)
{
    const table t = table_of<T>(f);
    const T *dy = (const T *)GRADS(f, embedding)->y;
    T *dE = (T *)GRADS(f, embedding)->E;

    zero_kernel<T, WIDE><<<grid_of(f, t, t.V, 1), THREADS, 0, gpu_stream(f)>>>(s, dE, t);
    CUDA(cudaGetLastError());
    group_kernel<T, WIDE><<<grid_of(f, t, t.R, 1), THREADS, 0, gpu_stream(f)>>>(s, dy, dE, t);
    CUDA(cudaGetLastError());
    if (t.R <= K)
        return 0;
    const dim3 grid = grid_of(f, t, ceil_div(t.R, K), 1);
    join_kernel<T, WIDE><<<grid, THREADS, 0, gpu_stream(f)>>>(s, dE, t);
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
__global__ void plain_backward_kernel(const int64_t *token, const T *dy, T *dE, table t)
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
        store(dE + i, total + group);
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
        (const int64_t *)a->token, (const T *)g->y, (T *)g->E, t);
    return cudaGetLastError();
}

GPU_KERNEL(sorted, .idea = "16 bytes of a row per lane; backward sorts rows by token, sums groups",
           .pass = {vector_forward<T>, sorted_backward<T>}, .work = sorted_work);
GPU_KERNEL(plain, .idea = "a thread per element; backward each looks at all tokens",
           .pass = {plain_forward<T>, plain_backward<T>});

GPU_KERNELS(embedding, IN_TYPES(sorted) IN_TYPES(plain));
