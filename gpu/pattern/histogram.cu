#include "common/ops/histogram.h"
#include "gpu/device/cluster.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/device/vector.cuh"

/* A place is a bin, or beyond the last bin a kind of what is counted apart. */
typedef unsigned long long whole;

/* Where x is counted.  fma rounds once: x M + 2^23 is rounded down to a float, and as it is within
 * 2^23 ... 2^24 (x M < M <= 2^23) these are just the whole numbers.  So its last 23 bits are the
 * floor of the exact x M.  Had the product been rounded on its own, to nearest, it could have
 * come out as a whole number that x M is below. */
static __device__ __forceinline__ int map_shared_rank(float x, int bins)
{
    if (x >= 0 && x < 1)
        return __float_as_int(__fmaf_rd(x, (float)bins, 0x1p23f)) - __float_as_int(0x1p23f);
    return bins + (x < 0 ? HISTOGRAM_BELOW : x >= 1 ? HISTOGRAM_ABOVE : HISTOGRAM_NAN);
}

static __device__ __forceinline__ whole *total_of(whole *counts, whole *apart, int bins, int place)
{
    return place < bins ? counts + place : apart + (place - bins);
}

enum { THREADS = 256 };

__global__ void clear(whole *counts, whole *apart, int bins)
{
    const int place = blockIdx.x * THREADS + threadIdx.x;
    pdl_wait();
    pdl_launch_dependents();
    if (place < bins + HISTOGRAM_KINDS)
        *total_of(counts, apart, bins, place) = 0;
}

static cudaError_t clear_all(const struct frame *f)
{
    const struct histogram *a = ARGS(f, histogram);
    const int bins = (int)DIM(f, 'M');
    clear<<<ceil_div(bins + HISTOGRAM_KINDS, THREADS), THREADS, 0, gpu_stream()>>>(
        (whole *)a->counts, (whole *)a->apart, bins);
    return cudaGetLastError();
}

/* ---- global: a number, a thread, an atomic in global memory ---- */

template <typename T>
__global__ void global_kernel(const T *x, int64_t n, int bins, whole *counts, whole *apart)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        atomicAdd(total_of(counts, apart, bins, map_shared_rank(load(x + i), bins)), 1);
}

template <typename T>
static int global(const struct frame *f)
{
    const struct histogram *a = ARGS(f, histogram);
    const int64_t n = DIM(f, 'N');

    CUDA(clear_all(f));
    global_kernel<<<ceil_div(n, THREADS), THREADS, 0, gpu_stream()>>>(
        (const T *)a->x, n, (int)DIM(f, 'M'), (whole *)a->counts, (whole *)a->apart);
    return cudaGetLastError();
}

/* ---- shared: a block counts in shared memory, and adds that to the totals once ---- */

enum { MOST_THREADS = 1024 };

static size_t bytes_of(const struct frame *f, int copies)
{
    return sizeof(unsigned) * (DIM(f, 'M') + HISTOGRAM_KINDS) * copies;
}

static const char *too_many_bins(const struct frame *f)
{
    return bytes_of(f, 1) > gpu_properties().sharedMemPerBlockOptin
               ? "more bins than fit into the shared memory of a block"
               : NULL;
}

/* 32 bits are enough for a block's counts: there are 2^30 numbers at most. */
template <typename T>
__global__ void shared_kernel(const T *x, int64_t n, int bins, whole *counts, whole *apart)
{
    extern __shared__ __align__(16) unsigned counter[];
    const int places = bins + HISTOGRAM_KINDS;

    for (int place = threadIdx.x; place < places; place += blockDim.x)
        counter[place] = 0;
    __syncthreads();
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        atomicAdd(&counter[map_shared_rank(load(x + i), bins)], 1);
    __syncthreads();
    for (int place = threadIdx.x; place < places; place += blockDim.x)
        if (counter[place])
            atomicAdd(total_of(counts, apart, bins, place), counter[place]);
}

/* Blocks that count: what runs at the same time, but no more than have something to do. */
static unsigned blocks_for(int64_t pieces, int on_one)
{
    const int64_t most = (int64_t)on_one * gpu_properties().multiProcessorCount;
    return (unsigned)max((int64_t)1, min(most, ceil_div(pieces, MOST_THREADS)));
}

template <typename T>
static int shared(const struct frame *f)
{
    const struct histogram *a = ARGS(f, histogram);
    const int64_t n = DIM(f, 'N');
    const int bytes = (int)bytes_of(f, 1);
    int on_one;

    CUDA(clear_all(f));
    CUDA(
        cudaFuncSetAttribute(shared_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&on_one, shared_kernel<T>, MOST_THREADS,
                                                       bytes));
    shared_kernel<T><<<blocks_for(n, on_one), MOST_THREADS, bytes, gpu_stream()>>>(
        (const T *)a->x, n, (int)DIM(f, 'M'), (whole *)a->counts, (whole *)a->apart);
    return cudaGetLastError();
}

/* ---- private: of each counter as many copies as there is room for, and vectors of x ---- */

enum { LOADS = 4 };

struct counting {
    const void *x;
    int64_t n;
    int bins, copies;
    whole *counts, *apart;
};

/* Vectors that a thread reads together, the block's threads side by side; beyond the block's share
 * there is nothing. */
static __device__ __forceinline__ void fetch(uint4 to[LOADS], const uint4 *x, int64_t first,
                                             int64_t end)
{
    #pragma unroll LOADS
    for (int i = 0; i < LOADS; i++)
        if (first + i * MOST_THREADS < end)
            to[i] = x[first + i * MOST_THREADS];
}

/* One vector.  Where all its numbers meet in one place they are counted at once. */
template <typename T>
static __device__ __forceinline__ void count_vector(unsigned *own, const uint4 &v, int bins,
                                                    int copies)
{
    float x[WIDTH<T>];
    int place[WIDTH<T>];
    bool same = true;

    vector<T>::unpack(v, x);
    #pragma unroll 8
    for (int i = 0; i < WIDTH<T>; i++) {
        place[i] = map_shared_rank(x[i], bins);
        same &= place[i] == place[0];
    }
    if (same) {
        atomicAdd(&own[place[0] * copies], WIDTH<T>);
        return;
    }
    #pragma unroll 8
    for (int i = 0; i < WIDTH<T>; i++)
        atomicAdd(&own[place[i] * copies], 1);
}

/* Counter `place` of copy c is place * copies + c, and a thread's copy that of its lane.  With 32
 * copies the lanes of a warp are in 32 banks whatever x is: none ever waits for another, be all
 * numbers in one bin or in any.  Each block has an equal share of x and always a next batch of it
 * in flight: 64 KB on an SM. */
template <typename T>
__global__ void __launch_bounds__(MOST_THREADS) private_kernel(counting c)
{
    extern __shared__ __align__(16) unsigned counter[];
    const int places = c.bins + HISTOGRAM_KINDS, tid = threadIdx.x;
    const uint4 *x = (const uint4 *)c.x;
    const int64_t vectors = c.n / WIDTH<T>, end = vectors * (blockIdx.x + 1) / gridDim.x;
    const int64_t begin = vectors * blockIdx.x / gridDim.x + tid;
    unsigned *own = counter + (tid & (c.copies - 1));
    uint4 now[LOADS], next[LOADS];

    fetch(next, x, begin, end);
    for (int i = tid; i < places * c.copies; i += MOST_THREADS)
        counter[i] = 0;
    __syncthreads();
    for (int64_t first = begin; first < end; first += LOADS * MOST_THREADS) {
        #pragma unroll LOADS
        for (int i = 0; i < LOADS; i++)
            now[i] = next[i];
        fetch(next, x, first + LOADS * MOST_THREADS, end);
        #pragma unroll LOADS
        for (int i = 0; i < LOADS; i++)
            if (first + i * MOST_THREADS < end)
                count_vector<T>(own, now[i], c.bins, c.copies);
    }
    if (blockIdx.x == 0 && vectors * WIDTH<T> + tid < c.n)
        atomicAdd(&own[map_shared_rank(load((const T *)c.x + vectors * WIDTH<T> + tid), c.bins) *
                       c.copies],
                  1);
    __syncthreads();
    pdl_wait(); /* that of the zeros */
    for (int place = tid; place < places; place += MOST_THREADS) {
        unsigned sum = 0;
        #pragma unroll 8
        for (int i = 0; i < c.copies; i++)
            sum += counter[place * c.copies + ((i + tid) & (c.copies - 1))];
        if (sum)
            atomicAdd(total_of(c.counts, c.apart, c.bins, place), sum);
    }
}

template <typename T>
static int privately(const struct frame *f)
{
    const struct histogram *a = ARGS(f, histogram);
    const size_t room = gpu_properties().sharedMemPerBlockOptin;
    struct counting c = {a->x, DIM(f, 'N'),        (int)DIM(f, 'M'),
                         32,   (whole *)a->counts, (whole *)a->apart};

    while (bytes_of(f, c.copies) > room)
        c.copies /= 2;
    const int bytes = (int)bytes_of(f, c.copies);
    CUDA(clear_all(f));
    CUDA(cudaFuncSetAttribute(private_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              bytes));
    return launch_pdl(private_kernel<T>, blocks_for(c.n / WIDTH<T>, 1), (unsigned)MOST_THREADS,
                      (size_t)bytes, c);
}

#define KERNELS(bits, T)                                                                           \
    static const struct impl global##bits = {"global",                                             \
                                             "one thread a number, atomics in global memory",      \
                                             {global<T>, NULL},                                    \
                                             NULL,                                                 \
                                             NULL,                                                 \
                                             NULL,                                                 \
                                             0,                                                    \
                                             0};                                                   \
    static const struct impl shared##bits = {                                                      \
        "shared",                                                                                  \
        "a block's counts in shared memory, added to the totals at its end",                       \
        {shared<T>, NULL},                                                                         \
        NULL,                                                                                      \
        too_many_bins,                                                                             \
        NULL,                                                                                      \
        0,                                                                                         \
        0};                                                                                        \
    static const struct impl private##bits = {                                                     \
        "private",                                                                                 \
        "up to 32 copies of the counts, a lane's own; vectors of x, prefetched",                   \
        {privately<T>, NULL},                                                                      \
        NULL,                                                                                      \
        too_many_bins,                                                                             \
        NULL,                                                                                      \
        0,                                                                                         \
        0};                                                                                        \
    GPU_KERNEL_LIST(histogram, bits, &private##bits, &shared##bits, &global##bits)

KERNELS(32, float);
KERNELS(16, __nv_bfloat16);
