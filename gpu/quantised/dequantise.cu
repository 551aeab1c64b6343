/* w = the weights that W stands for, w [N,K]: bytes to floats (common/ops/quantised.h).
 *
 * All of W is a sequence of blocks, since rows are whole blocks or, in nf4, nothing at all. */
#include "gpu/quantised/decode.cuh"
#include "gpu/quantised/dequantise.cuh"

enum { THREADS = 256, PER_THREAD_NF4 = 16, MAX_BLOCKS = 0x7fffffff /* of a grid */ };

/* ---- one thread per weight ---- */

template <typename T, typename F>
__global__ void each_weight(T *w, const uint8_t *W, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        store(w + i, F::weight(W + i / F::WEIGHTS * F::BYTES, (int)(i % F::WEIGHTS)));
}

template <typename T>
__global__ void each_nf4(T *w, const uint8_t *W, nf4_scales s, int log2_block, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        store(w + i, nf4_table[nf4_code_at(W, i)] * s.at(i >> log2_block));
}

/* ---- one thread per eight weights, from four bytes or eight ---- */

template <typename T>
static __device__ __forceinline__ void store_four(T *at, const float *w)
{
    *(vec<T, 4> *)at = pack<T, 4>(w);
}

template <typename T, typename F>
__global__ void __launch_bounds__(THREADS) each_eight(T *w, const uint8_t *W, int64_t n)
{
    const int64_t t = (int64_t)blockIdx.x * THREADS + threadIdx.x, block = t / F::LANES;
    if (8 * t >= n)
        return;
    const eight e = F::eights(W + block * F::BYTES, (int)(t % F::LANES));
    store_four(w + block * F::WEIGHTS + e.first, e.w);
    store_four(w + block * F::WEIGHTS + e.second, e.w + 4);
}

/* The codes of eight weights, or four, from i on. */
template <int V>
static __device__ __forceinline__ unsigned nf4_codes(const uint8_t *W, int64_t i)
{
    return V == 8 ? word_at(W + i / 2) : half_word(W + i / 2);
}

/* ROUNDS stores of 16 bytes per thread; those of a warp are neighbours. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    each_store_nf4(T *w, const uint8_t *W, nf4_scales s, int log2_block, int64_t n)
{
    constexpr int V = 16 / sizeof(T), ROUNDS = PER_THREAD_NF4 / V;
    __shared__ float table[16];
    const int64_t first = (int64_t)blockIdx.x * (THREADS * PER_THREAD_NF4) + threadIdx.x * V;
    unsigned codes[ROUNDS];
    float absmax[ROUNDS], x[V];

    #pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const int64_t i = first + r * THREADS * V;
        codes[r] = i + V <= n ? nf4_codes<V>(W, i) : 0;
        absmax[r] = i < n ? s.at(i >> log2_block) : 0;
    }
    load_nf4_table(table);
    #pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const int64_t i = first + r * THREADS * V;
        #pragma unroll
        for (int k = 0; k < V; k++)
            x[k] = table[codes[r] >> nf4_shift(k) & 15] * absmax[r];
        if (i + V <= n)
            *(vec<T, V> *)(w + i) = pack<T, V>(x);
        else
            for (int64_t k = i; k < n; k++)
                store(w + k, table[nf4_code_at(W, k)] * absmax[r]);
    }
}

/* ---- launches ---- */

enum { simple, vector };

static unsigned blocks_for(int64_t n, int kernel)
{
    return (unsigned)ceil_div(n, kernel == vector ? 8 * THREADS : THREADS);
}

template <typename T, typename F, int KERNEL>
static int launch(struct context *on, const struct dequantise *a, T *w, int64_t n)
{
    const auto kernel = KERNEL == vector ? each_eight<T, F> : each_weight<T, F>;
    kernel<<<blocks_for(n, KERNEL), THREADS, 0, on->stream>>>(w, (const uint8_t *)a->W, n);
    return cudaGetLastError();
}

template <typename T, int KERNEL>
static int launch_nf4(const struct call *f, const struct dequantise *a, T *w, int64_t n)
{
    const uint8_t *W = (const uint8_t *)a->W;
    /* W of a further matrix of a call may begin anywhere. */
    const bool wide = KERNEL == vector && (uintptr_t)W % 4 == 0;
    const int each = wide ? PER_THREAD_NF4 : 1;
    const auto kernel = wide ? each_store_nf4<T> : each_nf4<T>;

    kernel<<<(unsigned)ceil_div(n, each * THREADS), THREADS, 0, gpu_stream(f)>>>(
        w, W, nf4_scales_of(*a), nf4_log2_block(f), n);
    return cudaGetLastError();
}

template <typename T, int KERNEL>
static int launch_any(const struct call *f, const struct dequantise *a, T *w)
{
    const int64_t n = DIM(f, 'N') * DIM(f, 'K');

    return with_format(f, [&](auto format) {
        typedef decltype(format) F;
        if constexpr (std::is_same<F, nf4>::value)
            return launch_nf4<T, KERNEL>(f, a, w, n);
        else
            return launch<T, F, KERNEL>(f->context, a, w, n);
    });
}

template <typename T, int KERNEL>
static int forward(const struct call *f)
{
    const struct dequantise *a = ARGS(f, dequantise);
    return launch_any<T, KERNEL>(f, a, (T *)a->w);
}

template <int KERNEL>
static const char *declines(const struct call *f)
{
    const int64_t n = DIM(f, 'N') * DIM(f, 'K');
    return ceil_div(n, KERNEL == vector ? 8 * THREADS : THREADS) > MAX_BLOCKS
               ? "more weights than a grid of blocks has threads for"
               : NULL;
}

template <typename T>
int unpack(const struct call *f, const struct dequantise &a, T *w)
{
    return launch_any<T, vector>(f, &a, w);
}
#define UNPACK(T) template int unpack(const struct call *f, const struct dequantise &a, T *w);
GPU_TYPES(UNPACK)

const char *unpack_declines(const struct call *f)
{
    return declines<vector>(f);
}

GPU_KERNEL(simple, .idea = "one thread per weight", .pass = {forward<T, simple>, NULL},
           .declines = declines<simple>);
GPU_KERNEL(vector, .idea = "eight weights per thread, from words of codes",
           .pass = {forward<T, vector>, NULL}, .declines = declines<vector>);

GPU_KERNELS(dequantise, IN_TYPES(vector) IN_TYPES(simple));
