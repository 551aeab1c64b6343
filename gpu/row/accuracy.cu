/* hits[r] = is the largest of the V logits of row r the target's?  count = the sum of hits.
 *
 * rows reads the target's logit and compares all others with it: no index has to be found.  A row
 * is a hit unless an element beats its target: one that is larger, or NaN, or before it and equal.
 * A group of 2^k threads, or for long rows a block, has a row. */
#include "common/ops/accuracy.h"
#include "gpu/device/vector.cuh"

enum {
    BLOCK = 256,
    AHEAD = 4,        /* accesses of a thread that are in flight at once */
    SHORT_LANES = 16, /* the largest group that has all of a row in flight */
    WARP_ROUNDS = 4,  /* a warp has a row of no more rounds of accesses; longer ones a block */
    RESIDENT = 8      /* blocks per SM */
};

struct job {
    const void *logits;
    const int64_t *target;
    int64_t *hits;
    unsigned long long *count;
    int64_t R, ignored;
    int V;
};

/* A row's target and its logit. */
struct rival {
    int target; /* -1: no hit is possible */
    float x;

    /* Does x' in this column beat it? */
    __device__ __forceinline__ bool beaten(float other, int column) const
    {
        const bool before = column < target;
        if (x != x)
            return before && other != other;
        return before ? !(other < x) : !(other <= x);
    }
};

template <typename T>
static __device__ __forceinline__ rival rival_of(const job &j, const T *row, int64_t r)
{
    const int64_t target = j.target[r];
    if (target == j.ignored || target < 0 || target >= j.V)
        return {-1, 0};
    return {(int)target, load(row + target)};
}

/* Adds the hits of each thread of a block to the total, which is exact in any order. */
static __device__ __forceinline__ void add_hits(const job &j, int mine)
{
    __shared__ int hits[BLOCK / 32];
    mine = (int)__reduce_add_sync(~0u, (unsigned)mine);
    if (threadIdx.x % 32 == 0)
        hits[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x)
        return;
    int all = 0;
    for (int w = 0; w < BLOCK / 32; w++)
        all += hits[w];
    if (all)
        atomicAdd(j.count, (unsigned long long)all);
}

/* ---- short rows: 2^k threads have all of a row in flight ---- */

/* Is the row's target beaten by an element that this thread has? */
template <typename T, bool WIDE>
static __device__ __forceinline__ bool beaten_short(const job &j, const T *row, int64_t r, int lane,
                                                    int lanes)
{
    enum { N = WIDTH<T, WIDE> };
    vec<T, N> v[AHEAD] = {};

    #pragma unroll AHEAD
    for (int k = 0; k < AHEAD; k++)
        if ((lane + k * lanes) * N < j.V)
            v[k] = load_vec<N>(row + (lane + k * lanes) * N);
    const rival target = rival_of(j, row, r);
    bool beaten = target.target < 0;
    #pragma unroll AHEAD
    for (int k = 0; k < AHEAD; k++)
        #pragma unroll N
        for (int i = 0; i < N; i++) {
            const int column = (lane + k * lanes) * N + i;
            beaten |= column < j.V && target.beaten(v[k][i], column);
        }
    return beaten;
}

/* WIDE: rows are whole vectors. */
template <typename T, bool WIDE>
__global__ void __launch_bounds__(BLOCK) short_kernel(job j, int log_lanes)
{
    const int lanes = 1 << log_lanes, lane = threadIdx.x & (lanes - 1), rows = BLOCK >> log_lanes;
    const unsigned group = ((1u << lanes) - 1) << (threadIdx.x % 32 - lane);
    int mine = 0;

    for (int64_t first = (int64_t)blockIdx.x * rows; first < j.R;
         first += (int64_t)gridDim.x * rows) {
        const int64_t r = first + (threadIdx.x >> log_lanes);
        const bool there = r < j.R;
        const bool beaten =
            there && beaten_short<T, WIDE>(j, (const T *)j.logits + r * j.V, r, lane, lanes);
        const bool hit = !(__ballot_sync(~0u, beaten) & group);
        if (there && lane == 0) {
            j.hits[r] = hit;
            mine += hit;
        }
    }
    add_hits(j, mine);
}

/* ---- long rows: a warp or a block reads a row in 16-byte accesses, whatever its alignment ---- */

/* The elements before a row's first 16-byte boundary, and in whole vectors behind it. */
template <typename T>
struct extent {
    int head, body;

    __device__ __forceinline__ extent(const T *row, int V)
    {
        head = min((int)(-(uintptr_t)row / sizeof(T) % WIDTH<T>), V);
        body = (V - head) / WIDTH<T> * WIDTH<T>;
    }
    /* The column of the i-th element that is in no vector; of V or more there is none. */
    __device__ __forceinline__ int edge(int i) const { return i < head ? i : i + body; }
};

template <typename T>
static __device__ __forceinline__ bool beaten_long(const job &j, const T *row, int64_t r, int lane,
                                                   int lanes)
{
    enum { N = WIDTH<T> };
    const extent<T> e(row, j.V);
    const rival target = rival_of(j, row, r);
    const int edge = e.edge(lane);
    bool beaten = target.target < 0;

    if (edge < j.V)
        beaten |= target.beaten(load(row + edge), edge);
    for (int first = 0; first < e.body; first += AHEAD * lanes * N) {
        vec<T> v[AHEAD] = {};
        #pragma unroll AHEAD
        for (int k = 0; k < AHEAD; k++)
            if (first + (lane + k * lanes) * N < e.body)
                v[k] = load_vec<N>(row + e.head + first + (lane + k * lanes) * N);
        #pragma unroll AHEAD
        for (int k = 0; k < AHEAD; k++) {
            const int at = first + (lane + k * lanes) * N;
            #pragma unroll N
            for (int i = 0; i < N; i++)
                beaten |= at < e.body && target.beaten(v[k][i], e.head + at + i);
        }
    }
    return beaten;
}

/* LANES: 32, or all threads of the block. */
template <typename T, int LANES>
__global__ void __launch_bounds__(BLOCK) long_kernel(job j)
{
    const int lane = threadIdx.x % LANES, rows = BLOCK / LANES;
    int mine = 0;

    for (int64_t first = (int64_t)blockIdx.x * rows; first < j.R;
         first += (int64_t)gridDim.x * rows) {
        const int64_t r = first + threadIdx.x / LANES;
        const bool there = r < j.R;
        const bool beaten =
            there && beaten_long<T>(j, (const T *)j.logits + r * j.V, r, lane, LANES);
        const bool hit = LANES == 32 ? !__any_sync(~0u, beaten) : !__syncthreads_or(beaten);
        if (there && lane == 0) {
            j.hits[r] = hit;
            mine += hit;
        }
    }
    add_hits(j, mine);
}

/* ---- plain: a thread has a row ---- */

template <typename T>
__global__ void __launch_bounds__(BLOCK) plain_kernel(job j)
{
    const int64_t r = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    int hit = 0;

    if (r < j.R) {
        const T *x = (const T *)j.logits + r * j.V;
        int at = 0;
        float top = load(x);
        for (int k = 1; k < j.V; k++) {
            const float next = load(x + k);
            if (top == top && !(next <= top)) {
                top = next;
                at = k;
            }
        }
        hit = j.target[r] != j.ignored && j.target[r] == at;
        j.hits[r] = hit;
    }
    add_hits(j, hit);
}

/* ---- launches ---- */

static job job_of(const struct call *f)
{
    const struct accuracy *a = ARGS(f, accuracy);
    return {a->logits,          (const int64_t *)a->target,
            (int64_t *)a->hits, (unsigned long long *)a->count,
            DIM(f, 'R'),        DIM(f, 'I'),
            (int)DIM(f, 'V')};
}

static cudaError_t clear_count(const struct call *f, const job &j)
{
    return cudaMemsetAsync(j.count, 0, sizeof *j.count, gpu_stream(f));
}

/* The blocks that are resident at once, or fewer if that many rows a block are all. */
static unsigned blocks_for(const struct call *f, int rows)
{
    return (unsigned)min((int64_t)RESIDENT * gpu_limits(f)->sms, ceil_div(DIM(f, 'R'), rows));
}

template <typename T>
static int rows(const struct call *f)
{
    const job j = job_of(f);
    const bool wide = in_vectors<T>(j.V) && (uintptr_t)j.logits % 16 == 0;
    const int64_t all = wide ? j.V / WIDTH<T> : j.V;
    const int64_t vectors = ceil_div(j.V, WIDTH<T>);
    int log_lanes = 0;

    while (all > AHEAD << log_lanes && 1 << log_lanes < SHORT_LANES)
        log_lanes++;
    CUDA(clear_count(f, j));
    if (all <= AHEAD << log_lanes) {
        const auto kernel = wide ? short_kernel<T, true> : short_kernel<T, false>;
        kernel<<<blocks_for(f, BLOCK >> log_lanes), BLOCK, 0, gpu_stream(f)>>>(j, log_lanes);
    } else if (vectors <= 32 * AHEAD * WARP_ROUNDS) {
        long_kernel<T, 32><<<blocks_for(f, BLOCK / 32), BLOCK, 0, gpu_stream(f)>>>(j);
    } else {
        long_kernel<T, BLOCK><<<blocks_for(f, 1), BLOCK, 0, gpu_stream(f)>>>(j);
    }
    return cudaGetLastError();
}

template <typename T>
static int plain(const struct call *f)
{
    const job j = job_of(f);
    CUDA(clear_count(f, j));
    plain_kernel<T><<<ceil_div(j.R, BLOCK), BLOCK, 0, gpu_stream(f)>>>(j);
    return cudaGetLastError();
}

GPU_KERNEL(rows, .idea = "2^k threads a row, or a block, which compare it with the target's logit",
           .pass = {rows<T>, NULL});
GPU_KERNEL(plain, .idea = "a thread per row, which finds its largest logit",
           .pass = {plain<T>, NULL});

GPU_KERNELS(accuracy, IN_TYPES(rows) IN_TYPES(plain));
