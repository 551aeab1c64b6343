/* y[r,i] = sum of x[r,k] over k <= i, or k < i if exclusive; x, y [R,N].  Backward is the same scan
 * from the end of each row to its begin; BACK is then true.
 *
 * sweep and shuffle have one block per row, three_pass and lookback one block per tile of a row, and
 * staged one block for many short rows. */
#include "common/ops/scan.h"
#include "gpu/device/async.cuh"
#include "gpu/device/flags.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/reduce.cuh"
#include "gpu/device/staged.cuh"
#include "gpu/device/vector.cuh"

enum {
    BLOCK = 128,            /* maximum threads of a block */
    RESIDENT = 6,           /* blocks per SM: 6 x 32 KB in flight */
    AHEAD = 16,             /* accesses of a thread, all in flight at once */
    SWEEP_THREADS = 512,    /* threads of kernel `sweep`, each with two elements */
    LEVELS = 4,             /* levels of sums over 1, 32, 32^2 ... tiles, for 2^30 elements */
    MAX_BLOCKS = 0x7fffffff /* blocks of a grid */
};

/* ---- sweep ---- */

/* One block per row, which it scans chunk by chunk.  The up-sweep computes a tree of sums of a
 * chunk in shared memory.  The down-sweep starts at the root: the left child of a node gets the
 * node's prefix, and the right child gets this prefix plus the left child's sum (Blelloch). */
template <typename T, bool BACK>
__global__ void __launch_bounds__(SWEEP_THREADS)
    sweep_kernel(T *y, const T *x, int64_t n, bool exclusive)
{
    enum { CHUNK = 2 * SWEEP_THREADS };
    __shared__ float sum[CHUNK];
    const int thread = threadIdx.x;
    float carry = 0;

    x += blockIdx.x * n;
    y += blockIdx.x * n;
    for (int64_t begin = 0; begin < n; begin += CHUNK) {
        float own[2];
        for (int i = 0; i < 2; i++) {
            const int64_t k = begin + thread + i * SWEEP_THREADS;
            own[i] = k < n ? load(x + (BACK ? n - 1 - k : k)) : 0;
            sum[thread + i * SWEEP_THREADS] = own[i];
        }
        for (int half = 1; half < CHUNK; half *= 2) {
            const int node = (thread + 1) * 2 * half - 1;
            __syncthreads();
            if (node < CHUNK)
                sum[node] += sum[node - half];
        }
        __syncthreads();
        const float all = sum[CHUNK - 1];
        __syncthreads();
        if (thread == 0)
            sum[CHUNK - 1] = 0;
        for (int half = CHUNK / 2; half; half /= 2) {
            const int node = (thread + 1) * 2 * half - 1;
            __syncthreads();
            if (node < CHUNK) {
                const float left = sum[node - half];
                sum[node - half] = sum[node];
                sum[node] += left;
            }
        }
        __syncthreads();
        for (int i = 0; i < 2; i++) {
            const int64_t k = begin + thread + i * SWEEP_THREADS;
            const float before = sum[thread + i * SWEEP_THREADS];
            if (k < n)
                store(y + (BACK ? n - 1 - k : k), carry + (exclusive ? before : before + own[i]));
        }
        carry += all;
    }
}

/* ---- tiles ---- */

/* Rows of n elements, divided into tiles of AHEAD accesses per thread. */
struct job {
    const void *x;
    void *y;
    int64_t rows, n;
    int tiles; /* of a row */
    bool exclusive;
};

/* A warp's part of a tile: AHEAD accesses per lane; access i of lane l is number 32 i + l in
 * scan order.  They are copied (if WIDE, by cp.async) into slots of the lane in shared memory,
 * so they need no registers while they are in flight or while the block waits. */
template <typename T, bool WIDE, bool BACK>
struct warp_tile {
    enum { ELEMENTS = WIDTH<T, WIDE> };
    typedef vec<T, ELEMENTS> raw;

    raw *staged;
    float before[AHEAD]; /* exclusive prefix of each access within the warp */
    int64_t start;       /* index of the lane's first access */
    int left;            /* accesses from it to the row's end */

    static __device__ __forceinline__ int step(int i) { return BACK ? -32 * i : 32 * i; }
    __device__ __forceinline__ bool valid(int i) const { return 32 * i < left; }
    /* Converts from memory order to scan order, or back. */
    static __device__ __forceinline__ void reverse(float (&x)[ELEMENTS])
    {
        #pragma unroll 4
        for (int i = 0; BACK && i < ELEMENTS / 2; i++) {
            const float other = x[i];
            x[i] = x[ELEMENTS - 1 - i];
            x[ELEMENTS - 1 - i] = other;
        }
    }

    __device__ __forceinline__ void fetch(const job &j, int64_t row, int64_t tile, uint4 *smem)
    {
        const raw *x = (const raw *)j.x;
        const int64_t all = j.n / ELEMENTS;
        const int64_t first =
            (tile * blockDim.x + threadIdx.x / 32 * 32) * AHEAD + threadIdx.x % 32;
        start = row * all + (BACK ? all - 1 - first : first);
        left = (int)min(all - first, (int64_t)(32 * AHEAD));
        staged = (raw *)smem + threadIdx.x;
        #pragma unroll AHEAD
        for (int i = 0; i < AHEAD; i++) {
            raw *to = staged + i * blockDim.x;
            if (WIDE)
                cp_async16(to, valid(i) ? x + start + step(i) : x, valid(i) ? 16 : 0);
            else
                *to = valid(i) ? x[start + step(i)] : raw{};
        }
        cp_async_commit();
        cp_async_wait<0>();
    }
    __device__ __forceinline__ void elements_of(int i, float (&x)[ELEMENTS]) const
    {
        unpack(staged[i * blockDim.x], x);
        reverse(x);
    }
    __device__ __forceinline__ float sum_of(int i) const
    {
        float x[ELEMENTS], sum = 0;
        elements_of(i, x);
        #pragma unroll ELEMENTS
        for (int n = 0; n < ELEMENTS; n++)
            sum += x[n];
        return sum;
    }
    /* Scans within the warp (shfl.up): sets `before` and returns the warp's sum. */
    __device__ __forceinline__ float scan(void)
    {
        const int lane = threadIdx.x % 32;
        float all_before = 0;
        #pragma unroll AHEAD
        for (int i = 0; i < AHEAD; i++) {
            float sum = sum_of(i);
            #pragma unroll 5
            for (int distance = 1; distance < 32; distance *= 2) {
                const float other = __shfl_up_sync(~0u, sum, distance);
                sum += lane >= distance ? other : 0;
            }
            const float earlier = __shfl_up_sync(~0u, sum, 1);
            before[i] = all_before + (lane ? earlier : 0);
            all_before += __shfl_sync(~0u, sum, 31);
        }
        return all_before;
    }
    /* Writes y; `base` is the sum of all elements before the warp's. */
    __device__ __forceinline__ void store_scan(const job &j, float base) const
    {
        raw *y = (raw *)j.y + start;
        #pragma unroll AHEAD
        for (int i = 0; i < AHEAD; i++) {
            float x[ELEMENTS], sum = 0;
            elements_of(i, x);
            #pragma unroll ELEMENTS
            for (int n = 0; n < ELEMENTS; n++) {
                const float now = sum + x[n];
                x[n] = base + before[i] + (j.exclusive ? sum : now);
                sum = now;
            }
            reverse(x);
            if (valid(i))
                y[step(i)] = pack<T, ELEMENTS>(x);
        }
    }
};

/* The sum of a tile's elements before a warp's, and the tile's sum. */
struct within {
    float before, all;
};

/* Each warp adds the sums of all warps in the same order.  `warp_sums` may be reused after one more
 * barrier. */
static __device__ __forceinline__ within add_warp_sums(float warp_sums[BLOCK / 32], float mine)
{
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    within w = {0, 0};

    if (threadIdx.x % 32 == 0)
        warp_sums[warp] = mine;
    __syncthreads();
    #pragma unroll (BLOCK / 32)
    for (int i = 0; i < BLOCK / 32; i++)
        if (i < warps) {
            w.before = i == warp ? w.all : w.before;
            w.all += warp_sums[i];
        }
    return w;
}

/* ---- shuffle ---- */

/* One block per row, which it scans tile by tile.  A warp scans its part of a tile by shuffles; the
 * warps exchange their sums in shared memory once per tile. */
template <typename T, bool WIDE, bool BACK>
__global__ void __launch_bounds__(BLOCK, RESIDENT) shuffle_kernel(job j)
{
    extern __shared__ uint4 smem[];
    __shared__ float sums[2][BLOCK / 32];
    float carry = 0;

    for (int tile = 0; tile < j.tiles; tile++) {
        warp_tile<T, WIDE, BACK> mine;
        mine.fetch(j, blockIdx.x, tile, smem);
        const within w = add_warp_sums(sums[tile % 2], mine.scan());
        mine.store_scan(j, carry + w.before);
        carry += w.all;
    }
}

/* ---- three passes ---- */

/* One block per tile: computes the tile's sum and stores it to sums [rows,tiles]. */
template <typename T, bool WIDE, bool BACK>
__global__ void __launch_bounds__(BLOCK, RESIDENT) sum_kernel(job j, float *sums)
{
    extern __shared__ uint4 smem[];
    __shared__ float warp_sums[BLOCK / 32];
    const int64_t row = blockIdx.x / j.tiles;
    warp_tile<T, WIDE, BACK> mine;
    float sum = 0;

    mine.fetch(j, row, blockIdx.x % j.tiles, smem);
    #pragma unroll AHEAD
    for (int i = 0; i < AHEAD; i++)
        sum += mine.sum_of(i);
    const within w = add_warp_sums(warp_sums, warp_sum(sum));
    if (threadIdx.x == 0)
        sums[blockIdx.x] = w.all;
}

/* One block per tile: scans it, starting from before[tile], the sum of all tiles before it in
 * its row.  Each tile is read twice.  (before is NULL if a row is one tile, which is then read
 * once.) */
template <typename T, bool WIDE, bool BACK>
__global__ void __launch_bounds__(BLOCK, RESIDENT) tile_kernel(job j, const float *before)
{
    extern __shared__ uint4 smem[];
    __shared__ float warp_sums[BLOCK / 32];
    const int64_t row = blockIdx.x / j.tiles;
    warp_tile<T, WIDE, BACK> mine;

    mine.fetch(j, row, blockIdx.x % j.tiles, smem);
    const within w = add_warp_sums(warp_sums, mine.scan());
    mine.store_scan(j, (before ? before[blockIdx.x] : 0) + w.before);
}

/* ---- look-back ---- */

/* State of the look-back in global memory: the counter from which blocks take their tiles; and for
 * each row tagged sums over 1, 32, 32^2 ... tiles, one level after the other. */
struct lookback_state {
    int *next_tile;
    tagged *sums;
    int64_t of_a_row; /* tagged sums per row */
};

enum { READY = 1 }; /* tag of a value that has been stored; 0: not yet */

/* Returns the sum of all tiles before `tile`; called by one warp.  Example: tile 2 5 7 in base
 * 32 adds two sums over 32^2 tiles, five over 32 and seven over one.  The sums do not depend on
 * the order in which blocks finish, so the bits are always the same; and tiles do not wait in a
 * chain.  The last tile of 32 also stores the sum over these 32, and so on for each level. */
static __device__ float look_back(tagged *sums, int tiles, int tile, float mine)
{
    const int lane = threadIdx.x % 32;
    tagged *level[LEVELS], found[LEVELS];
    float before[LEVELS];
    bool last = true;

    level[0] = sums;
    #pragma unroll LEVELS
    for (int l = 1; l < LEVELS; l++)
        level[l] = level[l - 1] + ((tiles - 1) >> (5 * l - 5)) + 1;
    if (lane == 0)
        store_relaxed(level[0] + tile, {mine, READY});
    #pragma unroll LEVELS
    for (int l = 0; l < LEVELS; l++) {
        const int at = tile >> 5 * l, digit = at % 32;
        level[l] += at - digit;
        found[l] = {0, READY};
        if (lane < digit)
            found[l] = load_relaxed(level[l] + lane);
    }
    #pragma unroll LEVELS
    for (int l = 0; l < LEVELS; l++) {
        const int digit = (tile >> 5 * l) % 32;
        while (found[l].tag != READY) {
            spin_yield();
            found[l] = load_relaxed(level[l] + lane);
        }
        before[l] = warp_sum(found[l].x);
        mine += before[l];
        last = last && digit == 31;
        if (l + 1 < LEVELS && last && lane == 0)
            store_relaxed(level[l + 1] + (tile >> (5 * l + 5)) % 32, {mine, READY});
    }
    float all = 0;
    #pragma unroll LEVELS
    for (int l = LEVELS - 1; l >= 0; l--)
        all += before[l];
    return all;
}

/* One block per tile, which it reads once.  It computes its prefix from the sums of the tiles
 * before, whose blocks may still run.  A block takes its tile from an atomic counter, so the
 * tiles that it waits for have started.  Consecutive tiles are in different rows, so the tiles
 * before it in its row are probably done. */
template <typename T, bool WIDE, bool BACK>
__global__ void __launch_bounds__(BLOCK, RESIDENT) lookback_kernel(job j, lookback_state b)
{
    extern __shared__ uint4 smem[];
    __shared__ float warp_sums[BLOCK / 32];
    __shared__ unsigned next;
    __shared__ float before;
    warp_tile<T, WIDE, BACK> mine;

    if (threadIdx.x == 0)
        next = j.tiles > 1 ? atomicAdd(b.next_tile, 1) : blockIdx.x;
    __syncthreads();
    const unsigned number = next, tile = number / (unsigned)j.rows;
    const int64_t row = number - tile * (unsigned)j.rows;
    mine.fetch(j, row, tile, smem);
    const within w = add_warp_sums(warp_sums, mine.scan());
    if (threadIdx.x < 32) {
        const float found =
            j.tiles > 1 ? look_back(b.sums + row * b.of_a_row, j.tiles, tile, w.all) : 0;
        if (threadIdx.x == 0)
            before = found;
    }
    __syncthreads();
    mine.store_scan(j, before + w.before);
}

/* ---- staged ---- */

/* Bytes of a block's rows, if one step of its teams has no more; and the bytes of a row from which on a
 * block per row is as fast, if the row is whole vectors. */
enum { STAGED_BYTES = 16 << 10, STAGED_ENOUGH = 2 << 10 };

/* The sum of the lanes before this one in scan order, of LANES neighbouring ones. */
template <int LANES, bool BACK>
static __device__ __forceinline__ float sum_of_lanes_before(float sum)
{
    const int lane = (int)threadIdx.x % LANES, before = BACK ? LANES - 1 - lane : lane;
    const auto earlier = [&](int distance) {
        const float other = BACK ? __shfl_down_sync(~0u, sum, distance, LANES)
                                 : __shfl_up_sync(~0u, sum, distance, LANES);
        return before >= distance ? other : 0;
    };

    if (LANES == 1)
        return 0;
    #pragma unroll 5
    for (int distance = 1; distance < LANES; distance *= 2)
        sum += earlier(distance);
    return earlier(1);
}

/* A lane's run of neighbouring columns, in accesses of UNIT elements: WIDE if a row is whole vectors.  In
 * a team of several lanes a run is an odd number of accesses, so that the lanes are at different banks of
 * shared memory; at the end of a row runs are shorter, or empty. */
template <typename T, typename S, bool WIDE>
struct staged_run {
    enum { UNIT = WIDTH<T, WIDE>, ODD = S::LANES > 1, ACCESSES = (S::K + UNIT - 1) / UNIT | ODD };
    int first, count; /* column; accesses */
    float x[ACCESSES * UNIT];

    __device__ __forceinline__ explicit staged_run(int N)
    {
        const int all = N / UNIT, run = (all + S::LANES - 1) / S::LANES | ODD;
        const int begin = (int)threadIdx.x % S::LANES * run;
        count = max(min(run, all - begin), 0);
        first = begin * UNIT;
    }
    __device__ __forceinline__ void load_run(const T *row)
    {
        #pragma unroll
        for (int i = 0; i < ACCESSES; i++)
            unpack(i < count ? load_vec<UNIT>(row + first + i * UNIT) : vec<T, UNIT>{},
                   x + i * UNIT);
    }
    __device__ __forceinline__ void store_run(T *row) const
    {
        #pragma unroll
        for (int i = 0; i < ACCESSES; i++)
            if (i < count)
                store_vec(row + first + i * UNIT, pack<T, UNIT>(x + i * UNIT));
    }
    /* Scans it, after the sums of the lanes before. */
    template <bool BACK>
    __device__ __forceinline__ void scan(bool exclusive)
    {
        enum { COUNT = ACCESSES * UNIT };
        float sum = 0, last = 0;
        #pragma unroll
        for (int i = 0; i < COUNT; i++)
            x[BACK ? COUNT - 1 - i : i] = sum += x[BACK ? COUNT - 1 - i : i];
        const float base = sum_of_lanes_before<S::LANES, BACK>(sum);
        #pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float &now = x[BACK ? COUNT - 1 - i : i];
            const float before = last;
            last = now;
            now = base + (exclusive ? before : now);
        }
    }
};

/* Each block copies its rows to shared memory, its teams scan them there, and it copies them back. */
template <typename T, typename S, bool WIDE, bool BACK>
__global__ void STAGED_BOUNDS(T) staged_kernel(const job j, const staged s)
{
    extern __shared__ uint4 staged_smem[];
    const staged_chunk own(j.rows, s, blockIdx.x);
    const int team = (int)threadIdx.x / S::LANES;
    T *rows = (T *)staged_smem;

    stage_in(rows, (const T *)j.x + own.first * s.N, own.there * s.N);
    stage_ready();
    #pragma unroll 1
    for (int r = team; r < s.rows; r += s.teams) {
        staged_run<T, S, WIDE> run(r < own.there ? s.N : 0);
        run.load_run(rows + r * s.N);
        run.template scan<BACK>(j.exclusive);
        run.store_run(rows + r * s.N);
    }
    __syncthreads();
    stage_out((T *)j.y + own.first * s.N, rows, own.there * s.N);
}

/* ---- launches ---- */

/* The threads of a block: at most BLOCK, and no more warps than a row has accesses for. */
template <typename T>
static int threads_of(int64_t n)
{
    return 32 * (int)min((int64_t)BLOCK / 32, ceil_div(accesses<T>(n), 32 * AHEAD));
}

/* The bytes of shared memory for the accesses of a block's threads. */
template <typename T>
static size_t smem_of(int64_t n)
{
    return threads_of<T>(n) * AHEAD * (in_vectors<T>(n) ? sizeof(uint4) : sizeof(T));
}

template <typename T>
static int tiles_of(int64_t n)
{
    return (int)ceil_div(accesses<T>(n), threads_of<T>(n) * AHEAD);
}

template <typename T>
static job job_of(void *y, const void *x, int64_t rows, int64_t n, bool exclusive)
{
    return {x, y, rows, n, tiles_of<T>(n), exclusive};
}

template <typename T, bool BACK>
static int sweep_scan(struct context *on, const job &j, void *)
{
    T *y = (T *)j.y;
    const T *x = (const T *)j.x;
    sweep_kernel<T, BACK><<<j.rows, SWEEP_THREADS, 0, on->stream>>>(y, x, j.n, j.exclusive);
    return cudaGetLastError();
}

template <typename T, bool BACK>
static int shuffle_scan(struct context *on, const job &j, void *)
{
    const int threads = threads_of<T>(j.n);
    if (in_vectors<T>(j.n))
        shuffle_kernel<T, true, BACK><<<j.rows, threads, smem_of<T>(j.n), on->stream>>>(j);
    else
        shuffle_kernel<T, false, BACK><<<j.rows, threads, smem_of<T>(j.n), on->stream>>>(j);
    return cudaGetLastError();
}

template <typename T, bool WIDE, bool BACK>
static int three_passes(struct context *on, const job &j, float *sums)
{
    const int threads = threads_of<T>(j.n);
    const int64_t tiles = j.rows * j.tiles;
    float *before = j.tiles > 1 ? sums + tiles : NULL;

    if (before) {
        sum_kernel<T, WIDE, BACK><<<tiles, threads, smem_of<T>(j.n), on->stream>>>(j, sums);
        CUDA(cudaGetLastError());
        const job of_sums = job_of<float>(before, sums, j.rows, j.tiles, true);
        int e = shuffle_scan<float, false>(on, of_sums, NULL);
        if (e)
            return e;
    }
    tile_kernel<T, WIDE, BACK><<<tiles, threads, smem_of<T>(j.n), on->stream>>>(j, before);
    return cudaGetLastError();
}

template <typename T, bool BACK>
static int three_pass_scan(struct context *on, const job &j, void *work)
{
    return in_vectors<T>(j.n) ? three_passes<T, true, BACK>(on, j, (float *)work)
                              : three_passes<T, false, BACK>(on, j, (float *)work);
}

template <typename T>
static size_t three_pass_work(const struct call *f, enum pass)
{
    const int64_t tiles = tiles_of<T>(DIM(f, 'N'));
    return tiles > 1 ? 2 * DIM(f, 'R') * tiles * sizeof(float) : 0;
}

/* The number of tagged values of a row: one per tile, one per 32 tiles, and so on. */
static int64_t tagged_values(int64_t tiles)
{
    int64_t all = 0;
    for (int l = 0; l < LEVELS; l++, tiles = ceil_div(tiles, 32))
        all += tiles;
    return all;
}

template <typename T>
static size_t lookback_work(const struct call *f, enum pass)
{
    const int64_t tiles = tiles_of<T>(DIM(f, 'N'));
    return tiles > 1 ? (DIM(f, 'R') * tagged_values(tiles) + 1) * sizeof(tagged) : 0;
}

template <typename T, bool BACK>
static int lookback_scan(struct context *on, const job &j, void *work)
{
    const lookback_state b = {(int *)work, (tagged *)work + 1, tagged_values(j.tiles)};
    const int threads = threads_of<T>(j.n);
    const int64_t tiles = j.rows * j.tiles;

    if (j.tiles > 1)
        CUDA(cudaMemsetAsync(work, 0, (j.rows * b.of_a_row + 1) * sizeof(tagged), on->stream));
    if (in_vectors<T>(j.n))
        lookback_kernel<T, true, BACK><<<tiles, threads, smem_of<T>(j.n), on->stream>>>(j, b);
    else
        lookback_kernel<T, false, BACK><<<tiles, threads, smem_of<T>(j.n), on->stream>>>(j, b);
    return cudaGetLastError();
}

template <typename T>
static staged staged_of(struct context *on, int64_t rows, int64_t n)
{
    return staged_rows<T>(rows, n, STAGED_BYTES, on->limits.sms);
}

template <typename T, bool BACK>
static int staged_scan(struct context *on, const job &j, void *)
{
    const staged s = staged_of<T>(on, j.rows, j.n);
    const size_t bytes = s.elements() * sizeof(T);

    return staged_start(j.n, [&](auto shape) -> int {
        typedef decltype(shape) S;
        const auto kernel =
            in_vectors<T>(j.n) ? staged_kernel<T, S, true, BACK> : staged_kernel<T, S, false, BACK>;
        CUDA(allow_smem(kernel, bytes));
        kernel<<<ceil_div(j.rows, s.rows), s.threads, bytes, on->stream>>>(j, s);
        return cudaGetLastError();
    });
}

template <typename T>
static const char *staged_declines(const struct call *f)
{
    const int64_t n = DIM(f, 'N');
    if (n > STAGED_COLUMNS)
        return STAGED_TOO_LONG;
    return staged_of<T>(f->context, DIM(f, 'R'), n).elements() * sizeof(T) > gpu_limits(f)->smem
               ? STAGED_NO_SMEM
               : NULL;
}

template <typename T>
static int staged_yields(const struct call *f)
{
    const int64_t n = DIM(f, 'N');
    return in_vectors<T>(n) && n * (int64_t)sizeof(T) >= STAGED_ENOUGH;
}

/* With enough rows a block per row is faster: 95 to 99 % of a copy at 2000 to 30000 floats, against 71
 * to 85 %.  With fewer rows it is not: 90 % at 280 rows of 179221, against 71 %. */
static int lookback_yields(const struct call *f)
{
    return DIM(f, 'R') >= (int64_t)2 * RESIDENT * gpu_limits(f)->sms;
}

typedef int scanning(struct context *on, const job &j, void *work);

template <typename T, scanning *SCAN>
static int forward(const struct call *f)
{
    const struct scan *a = ARGS(f, scan);
    const bool exclusive = f->choice[SCAN_KIND] == SCAN_EXCLUSIVE;
    return SCAN(f->context, job_of<T>(a->y, a->x, DIM(f, 'R'), DIM(f, 'N'), exclusive), f->work);
}

template <typename T, scanning *SCAN>
static int backward(const struct call *f)
{
    const struct scan *g = GRADS(f, scan);
    const bool exclusive = f->choice[SCAN_KIND] == SCAN_EXCLUSIVE;
    return SCAN(f->context, job_of<T>(g->x, g->y, DIM(f, 'R'), DIM(f, 'N'), exclusive), f->work);
}

template <typename T>
static const char *declines(const struct call *f)
{
    return DIM(f, 'R') * tiles_of<T>(DIM(f, 'N')) > MAX_BLOCKS
               ? "more tiles than a grid has blocks (2147483647)"
               : NULL;
}

GPU_KERNEL(sweep, .idea = "a block per row, up-sweep and down-sweep of a tree in shared memory",
           .pass = {forward<T, sweep_scan<T, false>>, backward<T, sweep_scan<T, true>>});
GPU_KERNEL(three_pass, .idea = "a block per tile: their sums, a scan of these, the tiles again",
           .pass = {forward<T, three_pass_scan<T, false>>, backward<T, three_pass_scan<T, true>>},
           .work = three_pass_work<T>, .declines = declines<T>);
GPU_KERNEL(shuffle, .idea = "a block per row, scanned by warp shuffles",
           .pass = {forward<T, shuffle_scan<T, false>>, backward<T, shuffle_scan<T, true>>});
GPU_KERNEL(lookback, .idea = "one pass: decoupled look-back, in groups of 32 tiles",
           .pass = {forward<T, lookback_scan<T, false>>, backward<T, lookback_scan<T, true>>},
           .work = lookback_work<T>, .declines = declines<T>, .yields = lookback_yields);
GPU_KERNEL(staged, .idea = "many short rows at once in shared memory",
           .pass = {forward<T, staged_scan<T, false>>, backward<T, staged_scan<T, true>>},
           .declines = staged_declines<T>, .yields = staged_yields<T>);

GPU_KERNELS(scan, IN_TYPES(staged) IN_TYPES(lookback) IN_TYPES(shuffle) IN_TYPES(three_pass)
                      IN_TYPES(sweep));
