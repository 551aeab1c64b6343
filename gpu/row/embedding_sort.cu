/* The rows of a call in the order of their tokens (embedding_sort.cuh): each pass counts the digits of each tile,
 * adds up what is before each tile, and moves the rows. */
#include "gpu/row/embedding_sort.cuh"

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    BITS = 8, /* of a token, by which a pass sorts */
    DIGITS = 1 << BITS,
    ITEMS = 8, /* rows of a thread */
    TILE = THREADS * ITEMS
};
static_assert((int)DIGITS == THREADS, "a thread for each digit");

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

/* ---- launches ---- */

sort_work sort_work_of(work_arena *a, int64_t R)
{
    sort_work w;

    for (int i = 0; i < 2; i++)
        w.by[i] = {take<unsigned>(a, R), take<unsigned>(a, R)};
    w.counts = take<unsigned>(a, DIGITS * ceil_div(R, TILE));
    w.totals = take<unsigned>(a, DIGITS);
    return w;
}

template <bool FIRST>
static int sort_once(cudaStream_t stream, const sort_pass &s)
{
    const unsigned tiles = (unsigned)ceil_div(s.R, TILE);

    count_kernel<FIRST><<<tiles, THREADS, 0, stream>>>(s);
    CUDA(cudaGetLastError());
    scan_kernel<<<DIGITS, THREADS, 0, stream>>>(s.counts, s.totals, (int)tiles);
    CUDA(cudaGetLastError());
    scatter_kernel<FIRST><<<tiles, THREADS, 0, stream>>>(s);
    return cudaGetLastError();
}

int sort_by_token(cudaStream_t stream, const int64_t *token, int64_t R, int64_t V,
                  const sort_work &w, pairs *to)
{
    sort_pass s = {token, w.by[1], w.by[0], w.counts, w.totals, R, V, 0};

    CUDA(sort_once<true>(stream, s));
    for (s.shift = BITS; V >> s.shift; s.shift += BITS) {
        const pairs sorted = s.to;
        s.to = s.from;
        s.from = sorted;
        CUDA(sort_once<false>(stream, s));
    }
    *to = s.to;
    return 0;
}
