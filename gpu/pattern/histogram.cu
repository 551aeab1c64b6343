/* counts[k] = the number of x with floor(x M) = k, 0 <= x < 1.  Other x are counted in `outside`,
 * by kind.
 *
 * global has one thread per element; shared has one set of counters per block, private several. */
#include "common/ops/histogram.h"
#include "gpu/device/cluster.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/device/vector.cuh"

/* A place is the index of a bin, or M + kind for the elements outside all bins. */
typedef unsigned long long whole;

/* The place of x.  The fma rounds x M + 2^23 once, down to a float.  As x M < M <= 2^23, the
 * result is between 2^23 and 2^24, where floats are integers; so its last 23 bits are the floor
 * of the exact x M.  A product rounded to nearest could be an integer above x M. */
static __device__ __forceinline__ int counter_of(float x, int bins)
{
    if (x >= 0 && x < 1)
        return __float_as_int(__fmaf_rd(x, (float)bins, 0x1p23f)) - __float_as_int(0x1p23f);
    return bins + (x < 0 ? HISTOGRAM_BELOW : x >= 1 ? HISTOGRAM_ABOVE : HISTOGRAM_NAN);
}

static __device__ __forceinline__ whole *total_of(whole *counts, whole *outside, int bins,
                                                  int place)
{
    return place < bins ? counts + place : outside + (place - bins);
}

enum { THREADS = 256 };

__global__ void clear(whole *counts, whole *outside, int bins)
{
    const int place = blockIdx.x * THREADS + threadIdx.x;
    pdl_wait();
    pdl_launch_dependents();
    if (place < bins + HISTOGRAM_KINDS)
        *total_of(counts, outside, bins, place) = 0;
}

static cudaError_t clear_all(const struct call *f)
{
    const struct histogram *a = ARGS(f, histogram);
    const int bins = (int)DIM(f, 'M');
    clear<<<ceil_div(bins + HISTOGRAM_KINDS, THREADS), THREADS, 0, gpu_stream(f)>>>(
        (whole *)a->counts, (whole *)a->outside, bins);
    return cudaGetLastError();
}

/* ---- global: one thread per element, an atomic in global memory ---- */

template <typename T>
__global__ void global_kernel(const T *x, int64_t n, int bins, whole *counts, whole *outside)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        atomicAdd(total_of(counts, outside, bins, counter_of(load(x + i), bins)), 1);
}

template <typename T>
static int global(const struct call *f)
{
    const struct histogram *a = ARGS(f, histogram);
    const int64_t n = DIM(f, 'N');

    CUDA(clear_all(f));
    global_kernel<<<ceil_div(n, THREADS), THREADS, 0, gpu_stream(f)>>>(
        (const T *)a->x, n, (int)DIM(f, 'M'), (whole *)a->counts, (whole *)a->outside);
    return cudaGetLastError();
}

/* ---- shared: a block counts in shared memory, and adds its counts to the totals once ---- */

enum { MAX_THREADS = 1024 };

static size_t bytes_of(const struct call *f, int copies)
{
    return sizeof(unsigned) * (DIM(f, 'M') + HISTOGRAM_KINDS) * copies;
}

OF_CALL(const char *, too_many_bins,
        bytes_of(f, 1) > gpu_limits(f)->smem
            ? "more bins than fit into the shared memory of a block"
            : NULL)

/* 32 bits are enough for a block's counts: there are 2^30 elements at most. */
template <typename T>
__global__ void shared_kernel(const T *x, int64_t n, int bins, whole *counts, whole *outside)
{
    extern __shared__ __align__(16) unsigned counter[];
    const int places = bins + HISTOGRAM_KINDS;

    for (int place = threadIdx.x; place < places; place += blockDim.x)
        counter[place] = 0;
    __syncthreads();
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        atomicAdd(&counter[counter_of(load(x + i), bins)], 1);
    __syncthreads();
    for (int place = threadIdx.x; place < places; place += blockDim.x)
        if (counter[place])
            atomicAdd(total_of(counts, outside, bins, place), counter[place]);
}

/* The number of blocks: as many as are resident at once, but at most one per MAX_THREADS items. */
static unsigned blocks_for(struct context *on, int64_t items, int blocks_per_sm)
{
    const int64_t resident = (int64_t)blocks_per_sm * on->limits.sms;
    return (unsigned)max((int64_t)1, min(resident, ceil_div(items, MAX_THREADS)));
}

template <typename T>
static int shared(const struct call *f)
{
    const struct histogram *a = ARGS(f, histogram);
    const int64_t n = DIM(f, 'N');
    const int bytes = (int)bytes_of(f, 1);
    int blocks_per_sm;

    CUDA(clear_all(f));
    CUDA(allow_smem(shared_kernel<T>, bytes));
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, shared_kernel<T>,
                                                       MAX_THREADS, bytes));
    const unsigned blocks = blocks_for(f->context, n, blocks_per_sm);
    shared_kernel<T><<<blocks, MAX_THREADS, bytes, gpu_stream(f)>>>(
        (const T *)a->x, n, (int)DIM(f, 'M'), (whole *)a->counts, (whole *)a->outside);
    return cudaGetLastError();
}

/* ---- private: up to 32 copies of each counter in shared memory; vectors of x ---- */

enum { LOADS = 4 };

struct counting {
    const void *x;
    int64_t n;
    int bins, copies;
    whole *counts, *outside;
};

/* Loads LOADS vectors of a thread, with a stride of MAX_THREADS vectors, up to the end of the
 * block's part. */
template <typename T>
static __device__ __forceinline__ void fetch(vec<T> to[LOADS], const vec<T> *x, int64_t first,
                                             int64_t end)
{
    #pragma unroll LOADS
    for (int i = 0; i < LOADS; i++)
        if (first + i * MAX_THREADS < end)
            to[i] = x[first + i * MAX_THREADS];
}

/* Counts the elements of one vector, with a single atomic if all have the same place. */
template <typename T>
static __device__ __forceinline__ void count_vector(unsigned *own, const vec<T> &v, int bins,
                                                    int copies)
{
    int place[WIDTH<T>];
    bool same = true;

    #pragma unroll 8
    for (int i = 0; i < WIDTH<T>; i++) {
        place[i] = counter_of(v[i], bins);
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

/* Counter `place` of copy c is at index place * copies + c.  A thread uses copy lane % copies.
 * With 32 copies the lanes of a warp access 32 different banks for any x: no bank conflicts and
 * no contention.  Each block has an equal part of x, and its next LOADS vectors per thread are
 * always in flight: 64 KB per SM. */
template <typename T>
__global__ void __launch_bounds__(MAX_THREADS) private_kernel(counting c)
{
    extern __shared__ __align__(16) unsigned counter[];
    const int places = c.bins + HISTOGRAM_KINDS, tid = threadIdx.x;
    const vec<T> *x = (const vec<T> *)c.x;
    const int64_t vectors = c.n / WIDTH<T>, end = vectors * (blockIdx.x + 1) / gridDim.x;
    const int64_t begin = vectors * blockIdx.x / gridDim.x + tid;
    unsigned *own = counter + (tid & (c.copies - 1));
    vec<T> now[LOADS], next[LOADS];

    fetch(next, x, begin, end);
    for (int i = tid; i < places * c.copies; i += MAX_THREADS)
        counter[i] = 0;
    __syncthreads();
    for (int64_t first = begin; first < end; first += LOADS * MAX_THREADS) {
        #pragma unroll LOADS
        for (int i = 0; i < LOADS; i++)
            now[i] = next[i];
        fetch(next, x, first + LOADS * MAX_THREADS, end);
        #pragma unroll LOADS
        for (int i = 0; i < LOADS; i++)
            if (first + i * MAX_THREADS < end)
                count_vector<T>(own, now[i], c.bins, c.copies);
    }
    if (blockIdx.x == 0 && vectors * WIDTH<T> + tid < c.n)
        atomicAdd(
            &own[counter_of(load((const T *)c.x + vectors * WIDTH<T> + tid), c.bins) * c.copies],
            1);
    __syncthreads();
    pdl_wait(); /* until clear() has zeroed the totals */
    for (int place = tid; place < places; place += MAX_THREADS) {
        unsigned sum = 0;
        #pragma unroll 8
        for (int i = 0; i < c.copies; i++)
            sum += counter[place * c.copies + ((i + tid) & (c.copies - 1))];
        if (sum)
            atomicAdd(total_of(c.counts, c.outside, c.bins, place), sum);
    }
}

template <typename T>
static int privately(const struct call *f)
{
    const struct histogram *a = ARGS(f, histogram);
    const size_t smem = gpu_limits(f)->smem;
    struct counting c = {a->x, DIM(f, 'N'),        (int)DIM(f, 'M'),
                         32,   (whole *)a->counts, (whole *)a->outside};

    while (bytes_of(f, c.copies) > smem)
        c.copies /= 2;
    const int bytes = (int)bytes_of(f, c.copies);
    CUDA(clear_all(f));
    CUDA(allow_smem(private_kernel<T>, bytes));
    return launch_pdl(f->context, private_kernel<T>, blocks_for(f->context, c.n / WIDTH<T>, 1),
                      (unsigned)MAX_THREADS, (size_t)bytes, c);
}

GPU_KERNEL(global, .idea = "one thread per element, atomics in global memory",
           .pass = {global<T>, NULL});
GPU_KERNEL(shared, .idea = "a block's counts in shared memory, added to the totals at its end",
           .pass = {shared<T>, NULL}, .declines = too_many_bins);
GPU_KERNEL(private, .idea = "up to 32 copies of the counts, by lane; vectors of x, prefetched",
           .pass = {privately<T>, NULL}, .declines = too_many_bins);

GPU_KERNELS(histogram, IN_TYPES(private) IN_TYPES(shared) IN_TYPES(global));
