/* elementwise.cuh - operations whose i-th output elements are a function of the i-th input
 * elements.  Each pass of an operation is a function of floats, for example
 *
 *     struct product {
 *         enum { IN = 2, OUT = 1 };
 *         static __device__ void at(const float *in, float *out) { out[0] = in[0] * in[1]; }
 *     };
 *
 * The kernels here apply it to tensors of any length, with one thread per element or one thread per
 * two or four vectors. */
#ifndef ELEMENTWISE_CUH
#define ELEMENTWISE_CUH

#include "common/ops/elementwise.h"
#include "gpu/device/vector.cuh"

template <typename F>
struct operands {
    const void *in[F::IN];
    void *out[F::OUT];
};

template <typename T, typename F>
static __device__ __forceinline__ void one_element(const operands<F> &o, int64_t i)
{
    float in[F::IN], out[F::OUT];
    #pragma unroll 4
    for (int k = 0; k < F::IN; k++)
        in[k] = load((const T *)o.in[k] + i);
    F::at(in, out);
    #pragma unroll 4
    for (int k = 0; k < F::OUT; k++)
        store((T *)o.out[k] + i, out[k]);
}

enum { ELEMENT_THREADS = 256 };

/* One thread per element. */
template <typename T, typename F>
__global__ void each_plain(operands<F> o, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * ELEMENT_THREADS + threadIdx.x;
    if (i < n)
        one_element<T>(o, i);
}

/* The vectors of a thread: at least four 16-byte loads are in flight before it uses the first,
 * which is enough to saturate the memory bandwidth. */
template <typename F>
struct vectors_per_thread {
    static const int count = F::IN == 1 ? 4 : 2;
};

/* The vectors of a thread have a stride of ELEMENT_THREADS vectors, so that accesses are coalesced.
 * The first threads process the elements after the last whole vector, one each. */
template <typename T, typename F>
__global__ void __launch_bounds__(ELEMENT_THREADS) each_vector(operands<F> o, int64_t n)
{
    const int N = WIDTH<T>, VECTORS = vectors_per_thread<F>::count;
    const int64_t whole = n / N;
    const int64_t first = (int64_t)blockIdx.x * (ELEMENT_THREADS * VECTORS) + threadIdx.x;
    vec<T> loaded[VECTORS][F::IN] = {};

    #pragma unroll 4
    for (int j = 0; j < VECTORS; j++)
        #pragma unroll 4
        for (int k = 0; k < F::IN; k++)
            if (first + j * ELEMENT_THREADS < whole)
                loaded[j][k] = ((const vec<T> *)o.in[k])[first + j * ELEMENT_THREADS];
    #pragma unroll 4
    for (int j = 0; j < VECTORS; j++) {
        float in[F::IN][N], out[F::OUT][N];
        #pragma unroll 4
        for (int k = 0; k < F::IN; k++)
            unpack(loaded[j][k], in[k]);
        #pragma unroll 8
        for (int i = 0; i < N; i++) {
            float x[F::IN], y[F::OUT];
            #pragma unroll 4
            for (int k = 0; k < F::IN; k++)
                x[k] = in[k][i];
            F::at(x, y);
            #pragma unroll 4
            for (int k = 0; k < F::OUT; k++)
                out[k][i] = y[k];
        }
        #pragma unroll 4
        for (int k = 0; k < F::OUT; k++)
            if (first + j * ELEMENT_THREADS < whole)
                ((vec<T> *)o.out[k])[first + j * ELEMENT_THREADS] = pack<T>(out[k]);
    }
    if (blockIdx.x == 0 && whole * N + threadIdx.x < n)
        one_element<T>(o, whole * N + threadIdx.x);
}

/* Launches F on all n elements of each tensor. */
template <typename T, bool VECTOR, typename F>
static int each_element(struct context *on, const operands<F> &o, int64_t n)
{
    const int64_t each = VECTOR ? vectors_per_thread<F>::count * WIDTH<T> : 1;
    void (*const kernel)(operands<F>, int64_t) = VECTOR ? each_vector<T, F> : each_plain<T, F>;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)ceil_div(n, ELEMENT_THREADS * each));
    config.blockDim = dim3(ELEMENT_THREADS);
    config.stream = on->stream;
    return cudaLaunchKernelEx(&config, kernel, o, n);
}

/* A grid has at most 2^31 - 1 blocks. */
static inline const char *too_many_elements(const struct call *f)
{
    return ceil_div(DIM(f, 'M') * DIM(f, 'D'), ELEMENT_THREADS) > 0x7fffffff
               ? "more than 549755813632 elements"
               : NULL;
}

/* The passes of a unary operation: y = VALUE(x), dx = SLOPE(x, dy). */
template <typename T, bool VECTOR, typename VALUE>
static int unary_forward(const struct call *f)
{
    const struct unary *a = ARGS(f, unary);
    return each_element<T, VECTOR, VALUE>(f->context, {{a->x}, {a->y}}, DIM(f, 'M') * DIM(f, 'D'));
}

template <typename T, bool VECTOR, typename SLOPE>
static int unary_backward(const struct call *f)
{
    const struct unary *a = ARGS(f, unary), *g = GRADS(f, unary);
    return each_element<T, VECTOR, SLOPE>(f->context, {{a->x, g->y}, {g->x}},
                                          DIM(f, 'M') * DIM(f, 'D'));
}

/* The kernels of an operation whose file defines forward<T, VECTOR> and backward<T, VECTOR>, and whose
 * approximate instructions have this relative error; NULL, 0: it has none. */
#define ELEMENTWISE_KERNELS(op, approximates_, unit_)                                              \
    GPU_KERNEL(plain, .idea = "one thread per element",                                            \
               .pass = {forward<T, false>, backward<T, false>}, .declines = too_many_elements,     \
               .approximates = approximates_, .unit = unit_);                                      \
    GPU_KERNEL(vector, .idea = "16 bytes per load, several in flight",                             \
               .pass = {forward<T, true>, backward<T, true>}, .declines = too_many_elements,       \
               .approximates = approximates_, .unit = unit_);                                      \
    GPU_KERNELS(op, GPU_TYPES(ELEMENTWISE_KERNEL))
#define ELEMENTWISE_KERNEL(T) &vector_impl<T>, &plain_impl<T>,

#endif
