/* AdamW: g~ = factor g, m' = beta1 m + (1 - beta1) g~, v' = beta2 v + (1 - beta2) g~^2, p' = p - rate
 * (m' unbias1 / (sqrt(v' unbias2) + eps) + decay p), where the first `decayed` decay.
 *
 * plain has one thread per parameter, vector one block per chunk.  Both read the rates where they run. */
#include <type_traits>

#include "common/ops/adamw.h"
#include "gpu/element/elementwise.cuh"

/* A block updates CHUNK parameters: a whole number of vectors of ELEMENTS parameters. */
enum { THREADS = 256, ELEMENTS = 4, VECTORS = 2, CHUNK = 8192 };

struct constants {
    float beta1, rest1, beta2, rest2, eps, decay;
    int64_t decayed;
};

struct buffers {
    const void *p, *g, *m, *v; /* p: the master copy, if there is one */
    void *p_next, *m_next, *v_next, *rounded;
    const float *rate, *unbias1, *unbias2, *factor;
    const int64_t *skip;
};

/* What all elements have in common. */
struct rates {
    float rate, unbias1, unbias2, factor;
    bool skip;
};

/* The types: T of p_next, G of g, P of p: float if that is a master copy; then a rounded copy is written
 * as well. */
template <typename T_, typename G_, bool MASTER_>
struct types_of {
    typedef T_ T;
    typedef G_ G;
    enum { MASTER = MASTER_ };
    typedef std::conditional_t<MASTER_, float, T> P;
};

/* They are computed in double, because 1 - beta2 would have few correct digits in float. */
static constants constants_of(const struct call *f)
{
    const double b1 = f->real[ADAMW_BETA1], b2 = f->real[ADAMW_BETA2];
    return {(float)b1,
            (float)(1 - b1),
            (float)b2,
            (float)(1 - b2),
            (float)f->real[ADAMW_EPS],
            (float)f->real[ADAMW_WEIGHT_DECAY],
            adamw_decayed(DIM(f, 'Y'), DIM(f, 'N'))};
}

static buffers buffers_of(const struct call *f)
{
    const struct adamw *a = ARGS(f, adamw);
    const bool master = a->master;
    return {master ? a->master : a->p,
            a->g,
            a->m,
            a->v,
            master ? a->master_next : a->p_next,
            a->m_next,
            a->v_next,
            master ? a->p_next : NULL,
            (const float *)a->rate,
            (const float *)a->unbias1,
            (const float *)a->unbias2,
            (const float *)a->factor,
            (const int64_t *)a->skip};
}

static __device__ __forceinline__ rates rates_of(const buffers &b)
{
    return {*b.rate, *b.unbias1, *b.unbias2, *b.factor, *b.skip != 0};
}

/* The formula.  It uses fmaf explicitly, so that all kernels, and all calls within them, give the
 * same bits. */
static __device__ __forceinline__ void advance(float *p, float g, float *m, float *v,
                                               const constants &c, const rates &r, bool decays)
{
    if (r.skip)
        return;
    g *= r.factor;
    *m = fmaf(c.beta1, *m, c.rest1 * g);
    *v = fmaf(c.beta2, *v, c.rest2 * g * g);
    const float step = *m * r.unbias1 / (sqrtf(*v * r.unbias2) + c.eps);
    *p = fmaf(-r.rate, fmaf(decays ? c.decay : 0, *p, step), *p);
}

template <typename S>
static __device__ __forceinline__ void one_parameter(const buffers &b, const constants &c,
                                                     const rates &r, int64_t i)
{
    typedef typename S::P P;
    float p = load((const P *)b.p + i), m = ((const float *)b.m)[i], v = ((const float *)b.v)[i];
    advance(&p, load((const typename S::G *)b.g + i), &m, &v, c, r, i < c.decayed);
    store((P *)b.p_next + i, p);
    ((float *)b.m_next)[i] = m;
    ((float *)b.v_next)[i] = v;
    if (S::MASTER)
        store((typename S::T *)b.rounded + i, p);
}

/* One thread per parameter. */
template <typename S>
__global__ void adamw_plain(buffers b, constants c, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        one_parameter<S>(b, c, rates_of(b), i);
}

/* Four parameters: one load each of p, g, m and v. */
template <typename S>
struct four_parameters {
    vec<typename S::P, ELEMENTS> p;
    vec<typename S::G, ELEMENTS> g;
    vec<float, ELEMENTS> m, v;
};

/* Loads vector number `at` of each buffer. */
template <typename S>
static __device__ __forceinline__ four_parameters<S> load_four(const buffers &b, int64_t at)
{
    return {((const vec<typename S::P, ELEMENTS> *)b.p)[at],
            ((const vec<typename S::G, ELEMENTS> *)b.g)[at], ((const vec<float> *)b.m)[at],
            ((const vec<float> *)b.v)[at]};
}

template <typename S>
static __device__ __forceinline__ void advance_four(const buffers &b, const constants &c,
                                                    const rates &r, int64_t at,
                                                    const four_parameters<S> &four)
{
    typedef typename S::P P;
    typedef typename S::T T;
    float p[ELEMENTS], g[ELEMENTS], m[ELEMENTS], v[ELEMENTS];
    unpack(four.p, p);
    unpack(four.g, g);
    unpack(four.m, m);
    unpack(four.v, v);
    const int64_t decayed = c.decayed - at * ELEMENTS;
    #pragma unroll 4
    for (int i = 0; i < ELEMENTS; i++)
        advance(&p[i], g[i], &m[i], &v[i], c, r, i < decayed);
    ((vec<P, ELEMENTS> *)b.p_next)[at] = pack<P, ELEMENTS>(p);
    ((vec<float> *)b.m_next)[at] = pack<float>(m);
    ((vec<float> *)b.v_next)[at] = pack<float>(v);
    if (S::MASTER)
        ((vec<T, ELEMENTS> *)b.rounded)[at] = pack<T, ELEMENTS>(p);
}

/* One block per chunk, a thread of which has two vectors of each buffer in flight.  The parameters after the
 * last whole vector are updated one by one. */
template <typename S>
__global__ void __launch_bounds__(THREADS) adamw_vector(buffers b, constants c, int64_t n)
{
    const int64_t begin = (int64_t)blockIdx.x * CHUNK, end = min(n, begin + CHUNK);
    const int64_t last = end / ELEMENTS;
    const rates r = rates_of(b);

    for (int64_t at = begin / ELEMENTS + threadIdx.x; at < last; at += VECTORS * THREADS) {
        four_parameters<S> four[VECTORS] = {};
        #pragma unroll VECTORS
        for (int j = 0; j < VECTORS; j++)
            if (at + j * THREADS < last)
                four[j] = load_four<S>(b, at + j * THREADS);
        #pragma unroll VECTORS
        for (int j = 0; j < VECTORS; j++)
            if (at + j * THREADS < last)
                advance_four<S>(b, c, r, at + j * THREADS, four[j]);
    }
    if (last * ELEMENTS + threadIdx.x < end)
        one_parameter<S>(b, c, r, last * ELEMENTS + threadIdx.x);
}

/* Blocks of `each` parameters. */
static int launch(const struct call *f, void (*kernel)(buffers, constants, int64_t), int64_t each)
{
    const int64_t N = DIM(f, 'N');
    kernel<<<ceil_div(N, each), THREADS, 0, gpu_stream(f)>>>(buffers_of(f), constants_of(f), N);
    return cudaGetLastError();
}

/* The kernel of the call's types. */
#define OF_TYPES(kernel)                                                                           \
    (f->choice[ADAMW_GRAD] == GRAD_FP32                                                            \
         ? (f->choice[ADAMW_MASTER] ? kernel<types_of<T, float, true>>                             \
                                    : kernel<types_of<T, float, false>>)                           \
         : (f->choice[ADAMW_MASTER] ? kernel<types_of<T, T, true>>                                 \
                                    : kernel<types_of<T, T, false>>))

template <typename T>
static int plain(const struct call *f)
{
    return launch(f, OF_TYPES(adamw_plain), THREADS);
}

template <typename T>
static int vector(const struct call *f)
{
    return launch(f, OF_TYPES(adamw_vector), CHUNK);
}

GPU_KERNEL(vector, .idea = "16 bytes per load, several in flight", .pass = {vector<T>, NULL});
GPU_KERNEL(plain, .idea = "one thread per parameter", .pass = {plain<T>, NULL});
GPU_KERNELS(adamw, IN_TYPES(vector) IN_TYPES(plain));
