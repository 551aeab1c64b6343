/* dropout: y = Z x / (1 - p), and dx of dy by the same kernels (common/ops/dropout.h).
 *
 * plain has a thread per element, which computes four words for the one that it uses.  vector computes
 * them once for four neighbours.  Each thread has four vectors of 16 bytes, with a stride of THREADS
 * vectors, and loads all before it computes: what bounds it is memory. */
#include "common/ops/dropout.h"
#include "gpu/device/vector.cuh"

enum { THREADS = 256, VECTORS = 4 };

struct dropping {
    struct dropout_mask mask;
    float keep; /* 1 / (1 - p) */
    const void *counter;
};

static __device__ __forceinline__ float dropped(const dropping &d, uint32_t word, float x)
{
    return dropout_keeps(&d.mask, word) ? d.keep * x : 0;
}

template <typename T>
static __device__ __forceinline__ void drop_one(const dropping &d, uint32_t u, const T *x, T *y,
                                                int64_t i)
{
    const struct philox words = dropout_four(&d.mask, u, i / 4);
    store(y + i, dropped(d, words.word[i % 4], load(x + i)));
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    plain_kernel(dropping d, const T *x, T *y, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        drop_one(d, dropout_step(d.counter), x, y, i);
}

/* Elements from first on, as many as a vector has: WIDTH<T> is a multiple of four. */
template <typename T>
static __device__ __forceinline__ vec<T> drop_vector(const dropping &d, uint32_t u, const vec<T> &v,
                                                     int64_t first)
{
    const int N = WIDTH<T>;
    float x[N];

    unpack(v, x);
    #pragma unroll 2
    for (int k = 0; k < N; k += 4) {
        const struct philox words = dropout_four(&d.mask, u, (first + k) / 4);
        #pragma unroll 4
        for (int i = 0; i < 4; i++)
            x[k + i] = dropped(d, words.word[i], x[k + i]);
    }
    return pack<T>(x);
}

/* The first threads process the elements after the last whole vector, one each. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    vector_kernel(dropping d, const T *x, T *y, int64_t n)
{
    const int N = WIDTH<T>;
    const int64_t whole = n / N;
    const int64_t first = (int64_t)blockIdx.x * (THREADS * VECTORS) + threadIdx.x;
    const uint32_t u = dropout_step(d.counter);
    vec<T> loaded[VECTORS] = {};

    #pragma unroll 4
    for (int j = 0; j < VECTORS; j++)
        if (first + j * THREADS < whole)
            loaded[j] = ((const vec<T> *)x)[first + j * THREADS];
    #pragma unroll 4
    for (int j = 0; j < VECTORS; j++) {
        const int64_t at = first + j * THREADS;
        if (at < whole)
            ((vec<T> *)y)[at] = drop_vector(d, u, loaded[j], at * N);
    }
    if (blockIdx.x == 0 && whole * N + threadIdx.x < n)
        drop_one(d, u, x, y, whole * N + threadIdx.x);
}

template <typename T, bool VECTOR>
static int drop(const struct call *f, const void *x, void *y)
{
    const dropping d = {dropout_mask_of(f), (float)(1 / (1 - f->real[DROPOUT_P])),
                        ARGS(f, dropout)->counter};
    const int64_t n = DIM(f, 'M') * DIM(f, 'D'), each = VECTOR ? VECTORS * WIDTH<T> : 1;
    const auto kernel = VECTOR ? vector_kernel<T> : plain_kernel<T>;

    kernel<<<ceil_div(n, THREADS * each), THREADS, 0, gpu_stream(f)>>>(d, (const T *)x, (T *)y, n);
    return cudaGetLastError();
}

template <typename T, bool VECTOR>
static int forward(const struct call *f)
{
    const struct dropout *a = ARGS(f, dropout);
    return drop<T, VECTOR>(f, a->x, a->y);
}

template <typename T, bool VECTOR>
static int backward(const struct call *f)
{
    const struct dropout *g = GRADS(f, dropout);
    return drop<T, VECTOR>(f, g->y, g->x);
}

/* A grid has at most 2^31 - 1 blocks. */
static const char *too_many_elements(const struct call *f)
{
    return ceil_div(DIM(f, 'M') * DIM(f, 'D'), THREADS) > 0x7fffffff
               ? "more than 549755813632 elements"
               : NULL;
}

GPU_KERNEL(plain, .idea = "one thread per element", .pass = {forward<T, false>, backward<T, false>},
           .declines = too_many_elements);
GPU_KERNEL(vector, .idea = "16 bytes per load, several in flight, four words at once",
           .pass = {forward<T, true>, backward<T, true>}, .declines = too_many_elements);
GPU_KERNELS(dropout, IN_TYPES(vector) IN_TYPES(plain));
