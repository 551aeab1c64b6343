/* AdamW: m' = beta1 m + (1 - beta1) g, v' = beta2 v + (1 - beta2) g^2, p' = p - lr (m' / (1 -
 * beta1^S) / (sqrt(v' / (1 - beta2^S)) + eps) + decay p).
 *
 * plain has one thread per parameter, vector and multi one block per chunk of a tensor; multi
 * has one launch for all tensors. */
#include <math.h>

#include "common/ops/adamw.h"
#include "gpu/element/elementwise.cuh"

/* A block updates CHUNK parameters: a whole number of vectors of ELEMENTS parameters. */
enum { THREADS = 256, ELEMENTS = 4, VECTORS = 2, CHUNK = 8192, MAX_TENSORS = 320 };

struct rates {
    float beta1, rest1, unbias1, beta2, rest2, unbias2, lr, eps, decay;
};

struct buffers {
    const void *p, *g, *m, *v; /* p: the master copy, if there is one */
    void *p_next, *m_next, *v_next, *rounded;
};

/* The type of p: float if p is a master copy; then a rounded copy is written as well. */
template <typename T, bool MASTER>
struct stored {
    typedef T type;
};
template <typename T>
struct stored<T, true> {
    typedef float type;
};

/* The factors that are the same for all elements.  They are computed in double, because 1 - beta2
 * would have few correct digits in float. */
static rates rates_of(const struct call *f)
{
    const double b1 = f->real[ADAMW_BETA1], b2 = f->real[ADAMW_BETA2];
    const double step = (double)DIM(f, 'S');
    return {(float)b1,
            (float)(1 - b1),
            (float)(1 / (1 - pow(b1, step))),
            (float)b2,
            (float)(1 - b2),
            (float)(1 / (1 - pow(b2, step))),
            (float)f->real[ADAMW_LR],
            (float)f->real[ADAMW_EPS],
            (float)f->real[ADAMW_WEIGHT_DECAY]};
}

static bool decays(const struct call *f, int64_t tensor)
{
    return f->choice[ADAMW_DECAY] == DECAY_ALL || tensor % 2 == 0;
}

static buffers buffers_of(const struct call *f)
{
    const struct adamw *a = ARGS(f, adamw);
    if (a->master)
        return {a->master, a->g, a->m, a->v, a->master_next, a->m_next, a->v_next, a->p_next};
    return {a->p, a->g, a->m, a->v, a->p_next, a->m_next, a->v_next, NULL};
}

/* The formula.  It uses fmaf explicitly, so that all kernels, and all calls within them, give the
 * same bits. */
static __device__ __forceinline__ void advance(float *p, float g, float *m, float *v,
                                               const rates &r)
{
    *m = fmaf(r.beta1, *m, r.rest1 * g);
    *v = fmaf(r.beta2, *v, r.rest2 * g * g);
    const float step = *m * r.unbias1 / (sqrtf(*v * r.unbias2) + r.eps);
    *p = fmaf(-r.lr, fmaf(r.decay, *p, step), *p);
}

template <typename T, bool MASTER>
static __device__ __forceinline__ void one_parameter(const buffers &b, const rates &r, int64_t i)
{
    typedef typename stored<T, MASTER>::type P;
    float p = load((const P *)b.p + i), m = ((const float *)b.m)[i], v = ((const float *)b.v)[i];
    advance(&p, load((const T *)b.g + i), &m, &v, r);
    store((P *)b.p_next + i, p);
    ((float *)b.m_next)[i] = m;
    ((float *)b.v_next)[i] = v;
    if (MASTER)
        store((T *)b.rounded + i, p);
}

/* One thread per parameter, one launch per tensor. */
template <typename T, bool MASTER>
__global__ void adamw_plain(buffers b, rates r, int64_t begin, int64_t end)
{
    const int64_t i = begin + (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < end)
        one_parameter<T, MASTER>(b, r, i);
}

/* Four parameters: one load each of p, g, m and v. */
template <typename T, bool MASTER>
struct four_parameters {
    vec<typename stored<T, MASTER>::type, ELEMENTS> p;
    vec<T, ELEMENTS> g;
    vec<float, ELEMENTS> m, v;
};

/* Loads vector number `at` of each buffer. */
template <typename T, bool MASTER>
static __device__ __forceinline__ four_parameters<T, MASTER> load_four(const buffers &b, int64_t at)
{
    typedef typename stored<T, MASTER>::type P;
    return {((const vec<P, ELEMENTS> *)b.p)[at], ((const vec<T, ELEMENTS> *)b.g)[at],
            ((const vec<float> *)b.m)[at], ((const vec<float> *)b.v)[at]};
}

template <typename T, bool MASTER>
static __device__ __forceinline__ void advance_four(const buffers &b, const rates &r, int64_t at,
                                                    const four_parameters<T, MASTER> &four)
{
    typedef typename stored<T, MASTER>::type P;
    float p[ELEMENTS], g[ELEMENTS], m[ELEMENTS], v[ELEMENTS];
    unpack(four.p, p);
    unpack(four.g, g);
    unpack(four.m, m);
    unpack(four.v, v);
    #pragma unroll 4
    for (int i = 0; i < ELEMENTS; i++)
        advance(&p[i], g[i], &m[i], &v[i], r);
    ((vec<P, ELEMENTS> *)b.p_next)[at] = pack<P, ELEMENTS>(p);
    ((vec<float> *)b.m_next)[at] = pack<float>(m);
    ((vec<float> *)b.v_next)[at] = pack<float>(v);
    if (MASTER)
        ((vec<T, ELEMENTS> *)b.rounded)[at] = pack<T, ELEMENTS>(p);
}

/* One block updates parameters begin to end.  The parameters at both ends that are not in a
 * whole vector are updated one by one.  The others are loaded as vectors; a thread has two
 * vectors of each buffer in flight. */
template <typename T, bool MASTER>
static __device__ __forceinline__ void advance_range(const buffers &b, const rates &r,
                                                     int64_t begin, int64_t end)
{
    const int64_t first = min(ceil_div(begin, ELEMENTS) * ELEMENTS, end);
    const int64_t last = max(first, end / ELEMENTS * ELEMENTS);
    if (begin + threadIdx.x < first)
        one_parameter<T, MASTER>(b, r, begin + threadIdx.x);
    if (last + threadIdx.x < end)
        one_parameter<T, MASTER>(b, r, last + threadIdx.x);
    for (int64_t at = first / ELEMENTS + threadIdx.x; at < last / ELEMENTS;
         at += VECTORS * THREADS) {
        four_parameters<T, MASTER> four[VECTORS] = {};
        #pragma unroll VECTORS
        for (int j = 0; j < VECTORS; j++)
            if (at + j * THREADS < last / ELEMENTS)
                four[j] = load_four<T, MASTER>(b, at + j * THREADS);
        #pragma unroll VECTORS
        for (int j = 0; j < VECTORS; j++)
            if (at + j * THREADS < last / ELEMENTS)
                advance_four<T, MASTER>(b, r, at + j * THREADS, four[j]);
    }
}

/* The number of chunks.  They begin and end at vector boundaries, except at the ends of a
 * tensor. */
static inline __host__ __device__ int64_t chunks_of(int64_t begin, int64_t end)
{
    return begin < end ? ceil_div(end - begin / ELEMENTS * ELEMENTS, CHUNK) : 0;
}

template <typename T, bool MASTER>
static __device__ __forceinline__ void advance_chunk(const buffers &b, const rates &r,
                                                     int64_t begin, int64_t end, int64_t chunk)
{
    const int64_t from = begin / ELEMENTS * ELEMENTS + chunk * CHUNK;
    advance_range<T, MASTER>(b, r, max(begin, from), min(end, from + CHUNK));
}

/* One block per chunk, one launch per tensor. */
template <typename T, bool MASTER>
__global__ void __launch_bounds__(THREADS)
    adamw_vector(buffers b, rates r, int64_t begin, int64_t end)
{
    advance_chunk<T, MASTER>(b, r, begin, end, blockIdx.x);
}

/* The first parameter of each tensor, and the block that has its first chunk. */
struct tensor_table {
    int64_t begin[MAX_TENSORS + 1];
    int first_block[MAX_TENSORS + 1];
    int tensors;
    bool alternate;
};

/* One block per chunk, one launch for all tensors: a block finds its tensor by binary search in
 * a table that is a kernel parameter, so that a CUDA graph keeps it.  Tensors without parameters
 * are skipped: the next one has the same first block. */
template <typename T, bool MASTER>
__global__ void __launch_bounds__(THREADS)
    adamw_multi(buffers b, rates r, const __grid_constant__ tensor_table t)
{
    int k = 0, beyond = t.tensors; /* first_block[k] <= this block */
    while (beyond - k > 1) {
        const int middle = (k + beyond) / 2;
        if (t.first_block[middle] <= (int)blockIdx.x)
            k = middle;
        else
            beyond = middle;
    }
    if (t.alternate && k % 2)
        r.decay = 0;
    advance_chunk<T, MASTER>(b, r, t.begin[k], t.begin[k + 1], blockIdx.x - t.first_block[k]);
}
static_assert(sizeof(tensor_table) + sizeof(buffers) + sizeof(rates) <= 4096,
              "a kernel's parameters");

/* One launch per tensor. */
template <typename T, bool VECTOR, bool MASTER>
static int each_tensor(const struct call *f)
{
    const int64_t N = DIM(f, 'N'), K = DIM(f, 'K');
    const buffers b = buffers_of(f);
    for (int64_t k = 0; k < K; k++) {
        const int64_t begin = adamw_begin(N, K, k), end = adamw_begin(N, K, k + 1);
        const unsigned blocks = VECTOR ? chunks_of(begin, end) : ceil_div(end - begin, THREADS);
        rates r = rates_of(f);
        if (!decays(f, k))
            r.decay = 0;
        if (blocks && VECTOR)
            adamw_vector<T, MASTER><<<blocks, THREADS, 0, gpu_stream(f)>>>(b, r, begin, end);
        else if (blocks)
            adamw_plain<T, MASTER><<<blocks, THREADS, 0, gpu_stream(f)>>>(b, r, begin, end);
        CUDA(cudaGetLastError());
    }
    return 0;
}

template <typename T>
static int plain(const struct call *f)
{
    return f->choice[ADAMW_MASTER] ? each_tensor<T, false, true>(f)
                                   : each_tensor<T, false, false>(f);
}

template <typename T>
static int vector(const struct call *f)
{
    return f->choice[ADAMW_MASTER] ? each_tensor<T, true, true>(f) : each_tensor<T, true, false>(f);
}

template <typename T>
static int multi(const struct call *f)
{
    const int64_t N = DIM(f, 'N'), K = DIM(f, 'K');
    tensor_table t = {};
    unsigned blocks = 0;
    for (int64_t k = 0; k < K; k++) {
        t.begin[k] = adamw_begin(N, K, k);
        t.first_block[k] = (int)blocks;
        blocks += (unsigned)chunks_of(t.begin[k], adamw_begin(N, K, k + 1));
    }
    t.begin[K] = N;
    t.tensors = (int)K;
    t.alternate = f->choice[ADAMW_DECAY] == DECAY_ALTERNATE;
    if (f->choice[ADAMW_MASTER])
        adamw_multi<T, true><<<blocks, THREADS, 0, gpu_stream(f)>>>(buffers_of(f), rates_of(f), t);
    else
        adamw_multi<T, false><<<blocks, THREADS, 0, gpu_stream(f)>>>(buffers_of(f), rates_of(f), t);
    return cudaGetLastError();
}

OF_CALL(const char *, multi_declines,
        DIM(f, 'K') > MAX_TENSORS
            ? "more than 320 tensors: their table does not fit a kernel's parameters"
            : NULL)

GPU_KERNEL(plain, .idea = "one thread per parameter, one launch per tensor",
           .pass = {plain<T>, NULL});
GPU_KERNEL(vector, .idea = "16 bytes per load, several in flight", .pass = {vector<T>, NULL});
GPU_KERNEL(multi, .idea = "and one launch for all tensors", .pass = {multi<T>, NULL},
           .declines = multi_declines);
GPU_KERNELS(adamw, IN_TYPES(multi) IN_TYPES(vector) IN_TYPES(plain));
