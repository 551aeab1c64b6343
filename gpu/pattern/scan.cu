/* Backward is forward from the end of each row: BACK. */
#include "common/ops/scan.h"
#include "gpu/device/async.cuh"
#include "gpu/device/flags.cuh"
#include "gpu/device/unit.cuh"
#include "gpu/gpu.cuh"

enum {
    BLOCK = 128,      /* threads at most */
    RESIDENT = 6,     /* blocks of an SM: 6 x 32 KB in flight */
    AHEAD = 16,       /* accesses of a thread, all in flight at once */
    SWEEPERS = 512,   /* threads of a sweep, each with two numbers */
    LEVELS = 4,       /* of sums over 1, 32, 32^2 ... tiles: enough for 2^30 numbers */
    MOST = 0x7fffffff /* blocks of a grid */
};

/* ---- sweep ---- */

/* A block a row, piece by piece.  A piece becomes a tree of sums in shared memory; from its root
 * down, each node hands to its left child what is before it, and to its right child that and the
 * left one's sum. */
template <typename T, bool BACK>
__global__ void __launch_bounds__(SWEEPERS)
    sweep_kernel(T *y, const T *x, int64_t n, bool exclusive)
{
    enum { PIECE = 2 * SWEEPERS };
    __shared__ float sum[PIECE];
    const int thread = threadIdx.x;
    float carry = 0;

    x += blockIdx.x * n;
    y += blockIdx.x * n;
    for (int64_t begin = 0; begin < n; begin += PIECE) {
        float own[2];
        for (int i = 0; i < 2; i++) {
            const int64_t k = begin + thread + i * SWEEPERS;
            own[i] = k < n ? load(x + (BACK ? n - 1 - k : k)) : 0;
            sum[thread + i * SWEEPERS] = own[i];
        }
        for (int half = 1; half < PIECE; half *= 2) {
            const int node = (thread + 1) * 2 * half - 1;
            __syncthreads();
            if (node < PIECE)
                sum[node] += sum[node - half];
        }
        __syncthreads();
        const float all = sum[PIECE - 1];
        __syncthreads();
        if (thread == 0)
            sum[PIECE - 1] = 0;
        for (int half = PIECE / 2; half; half /= 2) {
            const int node = (thread + 1) * 2 * half - 1;
            __syncthreads();
            if (node < PIECE) {
                const float left = sum[node - half];
                sum[node - half] = sum[node];
                sum[node] += left;
            }
        }
        __syncthreads();
        for (int i = 0; i < 2; i++) {
            const int64_t k = begin + thread + i * SWEEPERS;
            const float before = sum[thread + i * SWEEPERS];
            if (k < n)
                store(y + (BACK ? n - 1 - k : k), carry + (exclusive ? before : before + own[i]));
        }
        carry += all;
    }
}

/* ---- tiles ---- */

/* Rows of n numbers, in tiles of AHEAD accesses a thread. */
struct job {
    const void *x;
    void *y;
    int64_t rows, n;
    int tiles; /* of a row */
    bool exclusive;
};

/* A warp has AHEAD accesses of each lane, one beside the other: they come in the order of the
 * row.  They go to shared memory, each lane's to places of its own, so that no registers hold them
 * while they are in flight or the block waits. */
template <typename T, bool WIDE, bool BACK>
struct share {
    typedef access<T, WIDE> by;
    typedef typename by::raw raw;
    enum { NUMBERS = by::NUMBERS };

    raw *kept;
    float before[AHEAD]; /* the sum of what is the warp's and before it */
    int64_t place;       /* of the first */
    int left;            /* accesses from it to the row's end */

    static __device__ __forceinline__ int step(int i) { return BACK ? -32 * i : 32 * i; }
    __device__ __forceinline__ bool there(int i) const { return 32 * i < left; }
    /* The numbers of an access, in the order of the scan; or back. */
    static __device__ __forceinline__ void turn(float (&x)[NUMBERS])
    {
        #pragma unroll 4
        for (int i = 0; BACK && i < NUMBERS / 2; i++) {
            const float other = x[i];
            x[i] = x[NUMBERS - 1 - i];
            x[NUMBERS - 1 - i] = other;
        }
    }

    __device__ __forceinline__ void fetch(const job &j, int64_t row, int64_t tile, unit *room)
    {
        const raw *x = (const raw *)j.x;
        const int64_t all = j.n / NUMBERS;
        const int64_t first =
            (tile * blockDim.x + threadIdx.x / 32 * 32) * AHEAD + threadIdx.x % 32;
        place = row * all + (BACK ? all - 1 - first : first);
        left = (int)min(all - first, (int64_t)(32 * AHEAD));
        kept = (raw *)room + threadIdx.x;
        #pragma unroll AHEAD
        for (int i = 0; i < AHEAD; i++) {
            raw *to = kept + i * blockDim.x;
            if (WIDE)
                cp_async16(to, there(i) ? x + place + step(i) : x, there(i) ? 16 : 0);
            else
                *to = there(i) ? x[place + step(i)] : by::none();
        }
        cp_async_commit();
        cp_async_wait<0>();
    }
    __device__ __forceinline__ void numbers_of(int i, float (&x)[NUMBERS]) const
    {
        by::unpack(kept[i * blockDim.x], x);
        turn(x);
    }
    __device__ __forceinline__ float sum_of(int i) const
    {
        float x[NUMBERS], sum = 0;
        numbers_of(i, x);
        #pragma unroll NUMBERS
        for (int n = 0; n < NUMBERS; n++)
            sum += x[n];
        return sum;
    }
    /* Sums within the warp: what is before each access, and all. */
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
    /* y, where so much is before the warp's share. */
    __device__ __forceinline__ void leave(const job &j, float base) const
    {
        raw *y = (raw *)j.y + place;
        #pragma unroll AHEAD
        for (int i = 0; i < AHEAD; i++) {
            float x[NUMBERS], sum = 0;
            numbers_of(i, x);
            #pragma unroll NUMBERS
            for (int n = 0; n < NUMBERS; n++) {
                const float now = sum + x[n];
                x[n] = base + before[i] + (j.exclusive ? sum : now);
                sum = now;
            }
            turn(x);
            if (there(i))
                y[step(i)] = by::pack(x);
        }
    }
};

/* What is before a warp in its tile, and in the tile. */
struct within {
    float before, all;
};

/* Each warp adds what the others have, in the same order; `of` is free again at the barrier after
 * the next. */
static __device__ __forceinline__ within meet(float of[BLOCK / 32], float mine)
{
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    within w = {0, 0};

    if (threadIdx.x % 32 == 0)
        of[warp] = mine;
    __syncthreads();
    #pragma unroll (BLOCK / 32)
    for (int i = 0; i < BLOCK / 32; i++)
        if (i < warps) {
            w.before = i == warp ? w.all : w.before;
            w.all += of[i];
        }
    return w;
}

/* ---- shuffle ---- */

/* A block a row, tile by tile: the lanes of a warp scan by shuffles what is in registers, and the
 * warps' sums meet in shared memory once a tile. */
template <typename T, bool WIDE, bool BACK>
__global__ void __launch_bounds__(BLOCK, RESIDENT) shuffle_kernel(job j)
{
    extern __shared__ unit room[];
    __shared__ float sums[2][BLOCK / 32];
    float carry = 0;

    for (int tile = 0; tile < j.tiles; tile++) {
        share<T, WIDE, BACK> mine;
        mine.fetch(j, blockIdx.x, tile, room);
        const within w = meet(sums[tile % 2], mine.scan());
        mine.leave(j, carry + w.before);
        carry += w.all;
    }
}

/* ---- three passes ---- */

/* A block a tile: its sum, to sums [rows,tiles]. */
template <typename T, bool WIDE, bool BACK>
__global__ void __launch_bounds__(BLOCK, RESIDENT) sum_kernel(job j, float *sums)
{
    extern __shared__ unit room[];
    __shared__ float of[BLOCK / 32];
    const int64_t row = blockIdx.x / j.tiles;
    share<T, WIDE, BACK> mine;
    float sum = 0;

    mine.fetch(j, row, blockIdx.x % j.tiles, room);
    #pragma unroll AHEAD
    for (int i = 0; i < AHEAD; i++)
        sum += mine.sum_of(i);
    #pragma unroll 5
    for (int distance = 16; distance; distance /= 2)
        sum += __shfl_xor_sync(~0u, sum, distance);
    const within w = meet(of, sum);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = w.all;
}

/* And the tile itself, when it is known what is before it: all tiles at the same time, each read
 * twice.  (before NULL: nothing.) */
template <typename T, bool WIDE, bool BACK>
__global__ void __launch_bounds__(BLOCK, RESIDENT) tile_kernel(job j, const float *before)
{
    extern __shared__ unit room[];
    __shared__ float of[BLOCK / 32];
    const int64_t row = blockIdx.x / j.tiles;
    share<T, WIDE, BACK> mine;

    mine.fetch(j, row, blockIdx.x % j.tiles, room);
    const within w = meet(of, mine.scan());
    mine.leave(j, (before ? before[blockIdx.x] : 0) + w.before);
}

/* ---- look-back ---- */

/* What the blocks tell each other: sums over 1, 32, 32^2 ... tiles of a row, those that are whole,
 * level after level; and how many tiles have been begun. */
struct board {
    int *begun;
    tagged *sums;
    int64_t of_a_row;
};

enum { TOLD = 1 }; /* a tagged value's tag; 0: not yet */

/* What is before a tile, by one warp.  Written to the base 32, tile 2 5 7 has before it two sums
 * over 32^2 tiles, five over 32 and seven over one, whoever comes first: so its bits are always
 * the same, and nobody waits for a chain of tiles.  The last tile of 32 also tells their sum. */
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
        store_relaxed(level[0] + tile, {mine, TOLD});
    #pragma unroll LEVELS
    for (int l = 0; l < LEVELS; l++) {
        const int at = tile >> 5 * l, digit = at % 32;
        level[l] += at - digit;
        found[l] = {0, TOLD};
        if (lane < digit)
            found[l] = load_relaxed(level[l] + lane);
    }
    #pragma unroll LEVELS
    for (int l = 0; l < LEVELS; l++) {
        const int digit = (tile >> 5 * l) % 32;
        while (found[l].tag != TOLD) {
            spin_yield();
            found[l] = load_relaxed(level[l] + lane);
        }
        before[l] = found[l].x;
        #pragma unroll 5
        for (int distance = 16; distance; distance /= 2)
            before[l] += __shfl_xor_sync(~0u, before[l], distance);
        mine += before[l];
        last = last && digit == 31;
        if (l + 1 < LEVELS && last && lane == 0)
            store_relaxed(level[l + 1] + (tile >> (5 * l + 5)) % 32, {mine, TOLD});
    }
    float all = 0;
    #pragma unroll LEVELS
    for (int l = LEVELS - 1; l >= 0; l--)
        all += before[l];
    return all;
}

/* A block a tile, read once: what is before it comes from the tiles before it, while they run.  A
 * block takes the next tile that nobody has begun, so those it waits for have been; and tiles of
 * different rows follow each other, so they are likely to be done. */
template <typename T, bool WIDE, bool BACK>
__global__ void __launch_bounds__(BLOCK, RESIDENT) lookback_kernel(job j, board b)
{
    extern __shared__ unit room[];
    __shared__ float of[BLOCK / 32];
    __shared__ unsigned next;
    __shared__ float before;
    share<T, WIDE, BACK> mine;

    if (threadIdx.x == 0)
        next = j.tiles > 1 ? atomicAdd(b.begun, 1) : blockIdx.x;
    __syncthreads();
    const unsigned number = next, tile = number / (unsigned)j.rows;
    const int64_t row = number - tile * (unsigned)j.rows;
    mine.fetch(j, row, tile, room);
    const within w = meet(of, mine.scan());
    if (threadIdx.x < 32) {
        const float found =
            j.tiles > 1 ? look_back(b.sums + row * b.of_a_row, j.tiles, tile, w.all) : 0;
        if (threadIdx.x == 0)
            before = found;
    }
    __syncthreads();
    mine.leave(j, before + w.before);
}

/* ---- launches ---- */

/* Of a block: as many warps as a row gives work. */
template <typename T>
static int threads_of(int64_t n)
{
    return 32 * (int)min((int64_t)BLOCK / 32, ceil_div(accesses<T>(n), 32 * AHEAD));
}

/* Shared memory for what its threads have fetched. */
template <typename T>
static size_t room_of(int64_t n)
{
    return threads_of<T>(n) * AHEAD * (whole_units<T>(n) ? sizeof(unit) : sizeof(T));
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
static int sweep_scan(const job &j, void *)
{
    T *y = (T *)j.y;
    const T *x = (const T *)j.x;
    sweep_kernel<T, BACK><<<j.rows, SWEEPERS, 0, gpu_stream()>>>(y, x, j.n, j.exclusive);
    return cudaGetLastError();
}

template <typename T, bool BACK>
static int shuffle_scan(const job &j, void *)
{
    const int threads = threads_of<T>(j.n);
    if (whole_units<T>(j.n))
        shuffle_kernel<T, true, BACK><<<j.rows, threads, room_of<T>(j.n), gpu_stream()>>>(j);
    else
        shuffle_kernel<T, false, BACK><<<j.rows, threads, room_of<T>(j.n), gpu_stream()>>>(j);
    return cudaGetLastError();
}

template <typename T, bool WIDE, bool BACK>
static int three_passes(const job &j, float *sums)
{
    const int threads = threads_of<T>(j.n);
    const int64_t tiles = j.rows * j.tiles;
    float *before = j.tiles > 1 ? sums + tiles : NULL;

    if (before) {
        sum_kernel<T, WIDE, BACK><<<tiles, threads, room_of<T>(j.n), gpu_stream()>>>(j, sums);
        CUDA(cudaGetLastError());
        const job of_sums = job_of<float>(before, sums, j.rows, j.tiles, true);
        int e = shuffle_scan<float, false>(of_sums, NULL);
        if (e)
            return e;
    }
    tile_kernel<T, WIDE, BACK><<<tiles, threads, room_of<T>(j.n), gpu_stream()>>>(j, before);
    return cudaGetLastError();
}

template <typename T, bool BACK>
static int three_pass_scan(const job &j, void *work)
{
    return whole_units<T>(j.n) ? three_passes<T, true, BACK>(j, (float *)work)
                               : three_passes<T, false, BACK>(j, (float *)work);
}

template <typename T>
static size_t three_pass_work(const struct frame *f, enum pass)
{
    const int64_t tiles = tiles_of<T>(DIM(f, 'N'));
    return tiles > 1 ? 2 * DIM(f, 'R') * tiles * sizeof(float) : 0;
}

/* Tagged values of a row: one for each tile, for each 32 of them, and so on. */
static int64_t tagged_values(int64_t tiles)
{
    int64_t all = 0;
    for (int l = 0; l < LEVELS; l++, tiles = ceil_div(tiles, 32))
        all += tiles;
    return all;
}

template <typename T>
static size_t lookback_work(const struct frame *f, enum pass)
{
    const int64_t tiles = tiles_of<T>(DIM(f, 'N'));
    return tiles > 1 ? (DIM(f, 'R') * tagged_values(tiles) + 1) * sizeof(tagged) : 0;
}

template <typename T, bool BACK>
static int lookback_scan(const job &j, void *work)
{
    const board b = {(int *)work, (tagged *)work + 1, tagged_values(j.tiles)};
    const int threads = threads_of<T>(j.n);
    const int64_t tiles = j.rows * j.tiles;

    if (j.tiles > 1)
        CUDA(cudaMemsetAsync(work, 0, (j.rows * b.of_a_row + 1) * sizeof(tagged), gpu_stream()));
    if (whole_units<T>(j.n))
        lookback_kernel<T, true, BACK><<<tiles, threads, room_of<T>(j.n), gpu_stream()>>>(j, b);
    else
        lookback_kernel<T, false, BACK><<<tiles, threads, room_of<T>(j.n), gpu_stream()>>>(j, b);
    return cudaGetLastError();
}

typedef int scanning(const job &j, void *work);

template <typename T, scanning *SCAN>
static int forward(const struct frame *f)
{
    const struct scan *a = ARGS(f, scan);
    const bool exclusive = f->choice[SCAN_KIND] == SCAN_EXCLUSIVE;
    return SCAN(job_of<T>(a->y, a->x, DIM(f, 'R'), DIM(f, 'N'), exclusive), f->work);
}

template <typename T, scanning *SCAN>
static int backward(const struct frame *f)
{
    const struct scan *g = GRADS(f, scan);
    const bool exclusive = f->choice[SCAN_KIND] == SCAN_EXCLUSIVE;
    return SCAN(job_of<T>(g->x, g->y, DIM(f, 'R'), DIM(f, 'N'), exclusive), f->work);
}

template <typename T>
static const char *declines(const struct frame *f)
{
    return DIM(f, 'R') * tiles_of<T>(DIM(f, 'N')) > MOST
               ? "more tiles than a grid has blocks (2147483647)"
               : NULL;
}

#define RUNG(bits, T, rung, idea, work, declines)                                                  \
    static const struct impl rung##bits = {                                                        \
        #rung, idea,     {forward<T, rung##_scan<T, false>>, backward<T, rung##_scan<T, true>>},   \
        work,  declines, NULL,                                                                     \
        0,     0}

#define LADDER(bits, T)                                                                            \
    RUNG(bits, T, sweep, "a block a row, a tree of sums in shared memory, up and down", NULL,      \
         NULL);                                                                                    \
    RUNG(bits, T, shuffle, "a block a row, lanes scan registers by shuffles", NULL, NULL);         \
    RUNG(bits, T, three_pass, "a block a tile: their sums, a scan of these, the tiles again",      \
         three_pass_work<T>, declines<T>);                                                         \
    RUNG(bits, T, lookback, "one pass: a tile asks those before it, in groups of 32",              \
         lookback_work<T>, declines<T>);                                                           \
    GPU_KERNEL_LIST(scan, bits, &lookback##bits, &three_pass##bits, &shuffle##bits, &sweep##bits)

LADDER(32, float);
LADDER(16, __nv_bfloat16);
