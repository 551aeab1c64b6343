/* y = sum of x^2 over all N elements of x; dx = 2 x dy.
 *
 * Sums have a fixed order: how x is divided depends on N alone, not on the device.  blocks sums
 * chunks of x, one per block, and a second launch adds their sums; plain has one block.  Backward
 * writes dx element by element. */
#include "common/ops/sum_squares.h"
#include "gpu/device/pdl.cuh"
#include "gpu/device/reduce.cuh"
#include "gpu/device/vector.cuh"

enum {
    BLOCK = 256,
    AHEAD = 8,            /* vectors of a thread that are in flight at once */
    AHEAD_BACK = 4,       /* the same in backward, which also writes */
    CHAIN = 64,           /* rounds in one partial sum: this keeps rounding errors small */
    MAX_CHUNKS = 1 << 16, /* beyond them chunks are longer */
    LAST_THREADS = 1024   /* of the block that adds up the chunks' sums */
};

/* The elements that a block has in flight at once, and of a chunk: a multiple of them. */
template <typename T>
constexpr int64_t TILE = BLOCK *AHEAD *WIDTH<T>;

template <typename T>
static int64_t chunk_of(int64_t N)
{
    return TILE<T> * ceil_div(N, TILE<T> * MAX_CHUNKS);
}

template <typename T>
static int64_t chunks_of(int64_t N)
{
    return ceil_div(N, chunk_of<T>(N));
}

/* A thread's part of x[0 ... n): AHEAD vectors with a stride of BLOCK vectors are in flight before the
 * first is used.  The first threads have the elements after the last whole vector, one each. */
template <typename T>
static __device__ __forceinline__ float squares_of_thread(const T *x, int64_t n)
{
    enum { N = WIDTH<T>, TOGETHER = BLOCK * AHEAD };
    const int64_t whole = n / N, rest = whole * N + threadIdx.x;
    float sum = 0;

    for (int64_t first = 0; first < whole; first += TOGETHER) {
        const vec<T> *p = (const vec<T> *)x + first + threadIdx.x;
        const int left = (int)min(whole - first, (int64_t)TOGETHER) - (int)threadIdx.x;
        vec<T> v[AHEAD]; /* zeros, which add nothing, behind the last */
        float run = 0;
        #pragma unroll AHEAD
        for (int k = 0; k < AHEAD; k++)
            v[k] = load_vec(p + k * BLOCK, k * BLOCK < left);
        #pragma unroll AHEAD
        for (int k = 0; k < AHEAD; k++)
            #pragma unroll N
            for (int i = 0; i < N; i++)
                run = fmaf(v[k][i], v[k][i], run);
        sum += run;
    }
    if (rest < n)
        sum = fmaf(load(x + rest), load(x + rest), sum);
    return sum;
}

/* One chunk per block. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    chunk_kernel(const T *x, int64_t n, int64_t chunk, float *sums)
{
    __shared__ float smem[32];
    const int64_t begin = blockIdx.x * chunk;

    pdl_launch_dependents();
    const float sum = block_sum(squares_of_thread(x + begin, min(n - begin, chunk)), smem);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

/* One block adds the sums of all chunks. */
static __global__ void __launch_bounds__(LAST_THREADS)
    last_kernel(const float *sums, int chunks, float *y)
{
    __shared__ float smem[32];
    float sum = 0;

    pdl_wait();
    #pragma unroll 8
    for (int i = threadIdx.x; i < chunks; i += LAST_THREADS)
        sum += sums[i];
    sum = block_sum(sum, smem);
    if (threadIdx.x == 0)
        *y = sum;
}

template <typename T>
static int blocks(const struct call *f)
{
    const struct sum_squares *a = ARGS(f, sum_squares);
    const int64_t N = DIM(f, 'N');
    const int chunks = (int)chunks_of<T>(N);
    float *const sums = (float *)(chunks == 1 ? a->y : f->work);

    chunk_kernel<T><<<chunks, BLOCK, 0, gpu_stream(f)>>>((const T *)a->x, N, chunk_of<T>(N), sums);
    CUDA(cudaGetLastError());
    if (chunks == 1)
        return 0;
    return launch_pdl(f->context, last_kernel, 1, LAST_THREADS, 0, (const float *)sums, chunks,
                      (float *)a->y);
}

template <typename T>
static size_t blocks_work(const struct call *f, enum pass p)
{
    const int64_t chunks = chunks_of<T>(DIM(f, 'N'));
    return p == FORWARD && chunks > 1 ? chunks * sizeof(float) : 0;
}

/* AHEAD_BACK vectors per thread; the first threads write the elements after the last whole one. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    vector_back_kernel(const T *x, const float *dy, T *dx, int64_t n)
{
    const int64_t whole = n / WIDTH<T>, rest = whole * WIDTH<T> + threadIdx.x;
    const int64_t first = (int64_t)blockIdx.x * (BLOCK * AHEAD_BACK) + threadIdx.x;
    vec<T> v[AHEAD_BACK] = {};

    #pragma unroll AHEAD_BACK
    for (int k = 0; k < AHEAD_BACK; k++)
        if (first + k * BLOCK < whole)
            v[k] = ((const vec<T> *)x)[first + k * BLOCK];
    const float slope = 2 * *dy;
    #pragma unroll AHEAD_BACK
    for (int k = 0; k < AHEAD_BACK; k++)
        if (first + k * BLOCK < whole) {
            const vec<T> made = make_vec<T>([&](int i) { return slope * v[k][i]; });
            ((vec<T> *)dx)[first + k * BLOCK] = made;
        }
    if (blockIdx.x == 0 && rest < n)
        store(dx + rest, slope * load(x + rest));
}

template <typename T>
static int blocks_back(const struct call *f)
{
    const struct sum_squares *a = ARGS(f, sum_squares), *g = GRADS(f, sum_squares);
    const int64_t n = DIM(f, 'N');

    vector_back_kernel<T><<<ceil_div(n, BLOCK * AHEAD_BACK * WIDTH<T>), BLOCK, 0, gpu_stream(f)>>>(
        (const T *)a->x, (const float *)g->y, (T *)g->x, n);
    return cudaGetLastError();
}

/* ---- plain ---- */

/* One block, a thread of which has every BLOCK-th element. */
template <typename T>
__global__ void __launch_bounds__(BLOCK) plain_kernel(const T *x, int64_t n, float *y)
{
    __shared__ float smem[32];
    float sum = 0;

    for (int64_t i = threadIdx.x; i < n;) {
        float run = 0;
        for (int k = 0; k < CHAIN && i < n; k++, i += BLOCK)
            run = fmaf(load(x + i), load(x + i), run);
        sum += run;
    }
    sum = block_sum(sum, smem);
    if (threadIdx.x == 0)
        *y = sum;
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    plain_back_kernel(const T *x, const float *dy, T *dx, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n)
        store(dx + i, 2 * *dy * load(x + i));
}

template <typename T>
static int plain(const struct call *f)
{
    const struct sum_squares *a = ARGS(f, sum_squares);
    plain_kernel<T><<<1, BLOCK, 0, gpu_stream(f)>>>((const T *)a->x, DIM(f, 'N'), (float *)a->y);
    return cudaGetLastError();
}

template <typename T>
static int plain_back(const struct call *f)
{
    const struct sum_squares *a = ARGS(f, sum_squares), *g = GRADS(f, sum_squares);
    const int64_t n = DIM(f, 'N');

    plain_back_kernel<T><<<ceil_div(n, BLOCK), BLOCK, 0, gpu_stream(f)>>>(
        (const T *)a->x, (const float *)g->y, (T *)g->x, n);
    return cudaGetLastError();
}

GPU_KERNEL(blocks, .idea = "a block per chunk of x, whose sums a second launch adds",
           .pass = {blocks<T>, blocks_back<T>}, .work = blocks_work<T>);
GPU_KERNEL(plain, .idea = "one block; backward a thread per element",
           .pass = {plain<T>, plain_back<T>});

GPU_KERNELS(sum_squares, IN_TYPES(blocks) IN_TYPES(plain));
