/* W = the bytes of w [N,K], which have one right value (common/ops/quantised.h). */
#include <float.h>

#include "gpu/device/reduce.cuh"
#include "gpu/quantised/decode.cuh"
#include "gpu/quantised/super_block.cuh"

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    MAX_BLOCKS = 0x7fffffff /* of a grid */,
    ZERO_CODE = 7,
    ZERO_SCALE = 127
};

/* ---- codes ---- */

/* How many midpoints of neighbours in an ascending table of 2^STEPS values x exceeds; of NaN, none. */
template <int STEPS>
static __device__ __forceinline__ int code_of(const float *table, float x)
{
    int code = 0;
    #pragma unroll 8
    for (int step = 1 << (STEPS - 1); step; step /= 2) {
        const int i = code + step;
        if (x > __fmul_rn(__fadd_rn(table[i - 1], table[i]), 0.5f))
            code = i;
    }
    return code;
}

static __device__ __forceinline__ int nf4_code(const float *table, float x, float absmax)
{
    return absmax == 0 ? ZERO_CODE : code_of<4>(table, __fmul_rn(x, 1 / absmax));
}

static __device__ __forceinline__ unsigned q8_code(float x, float inverse)
{
    return (unsigned)(int)roundf(__fmul_rn(x, inverse)) & 255;
}

/* What a block of q8_0 is scaled by; 0 where 1/d is no finite float, far below fp16. */
struct q8_scale {
    float d, inverse;

    __device__ __forceinline__ explicit q8_scale(float maximum)
        : d(maximum / 127), inverse(1 / d <= FLT_MAX ? 1 / d : 0)
    {
    }
};

/* ---- one thread per block ---- */

template <typename T>
static __device__ __forceinline__ float largest(const T *w, int n)
{
    float maximum = 0;
    for (int i = 0; i < n; i++)
        maximum = fmaxf(maximum, fabsf(load(w + i)));
    return maximum;
}

template <typename T>
__global__ void block_q8_0(uint8_t *W, const T *w, int64_t blocks)
{
    const int64_t b = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (b >= blocks)
        return;
    const q8_scale s(largest(w + 32 * b, 32));
    uint8_t *block = W + 34 * b;
    put_f16(block, s.d);
    for (int i = 0; i < 32; i++)
        block[2 + i] = (uint8_t)q8_code(load(w + 32 * b + i), s.inverse);
}

/* A code behind the last weight of an odd number is a zero's. */
template <typename T>
__global__ void block_nf4(uint8_t *W, float *absmax, const T *w, int block, int64_t n)
{
    const int64_t b = (int64_t)blockIdx.x * THREADS + threadIdx.x, first = b * block;
    if (first >= n)
        return;
    const int some = n - first < block ? (int)(n - first) : block;
    const float maximum = absmax[b] = largest(w + first, some);
    for (int i = 0; i < some; i += 2) {
        const int high = nf4_code(nf4_table, load(w + first + i), maximum);
        const int low =
            i + 1 < some ? nf4_code(nf4_table, load(w + first + i + 1), maximum) : ZERO_CODE;
        W[(first + i) / 2] = (uint8_t)(high << 4 | low);
    }
}

/* ---- several threads per block ---- */

/* Four weights per thread, eight threads per block. */
template <typename T>
__global__ void __launch_bounds__(THREADS) fours_q8_0(uint8_t *W, const T *w, int64_t n)
{
    const int64_t t = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float x[4] = {};

    if (4 * t < n)
        unpack(load_vec<4>(w + 4 * t), x);
    const float maximum = fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3])));
    const q8_scale s(warp_max<8>(maximum));
    if (4 * t >= n)
        return;
    uint8_t *block = W + t / 8 * 34;
    uint16_t *to = (uint16_t *)(block + 2 + 4 * (t % 8));
    if (t % 8 == 0)
        put_f16(block, s.d);
    to[0] = (uint16_t)(q8_code(x[0], s.inverse) | q8_code(x[1], s.inverse) << 8);
    to[1] = (uint16_t)(q8_code(x[2], s.inverse) | q8_code(x[3], s.inverse) << 8);
}

/* The weights from i on, up to eight; zeros behind the last. */
template <typename T>
static __device__ __forceinline__ void load_eight(const T *w, int64_t i, int64_t n, float x[8])
{
    if (i + 8 <= n) {
        unpack(load_vec<4>(w + i), x);
        unpack(load_vec<4>(w + i + 4), x + 4);
        return;
    }
    #pragma unroll 8
    for (int k = 0; k < 8; k++)
        x[k] = i + k < n ? load(w + i + k) : 0;
}

/* Eight weights per thread, 4 to 32 threads per block. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    eights_nf4(uint8_t *W, float *absmax, const T *w, int block, int64_t n)
{
    __shared__ float table[16];
    const int64_t i = 8 * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    float x[8], maximum = 0;
    unsigned codes = 0;

    load_nf4_table(table);
    load_eight(w, i, n, x);
    #pragma unroll 8
    for (int k = 0; k < 8; k++)
        maximum = fmaxf(maximum, fabsf(x[k]));
    maximum = warp_max(maximum, block / 8);
    if (i >= n)
        return;
    if (i % block == 0)
        absmax[i / block] = maximum;
    #pragma unroll 8
    for (int k = 0; k < 8; k++) {
        const int code = i + k < n ? nf4_code(table, x[k], maximum) : ZERO_CODE;
        codes |= (unsigned)code << nf4_shift(k);
    }
    if (i + 8 <= n)
        *(unsigned *)(W + i / 2) = codes;
    else
        for (int k = 0; k < (int)(n - i + 1) / 2; k++)
            W[i / 2 + k] = (uint8_t)(codes >> 8 * k);
}

/* ---- super-blocks ---- */

/* E weights per thread: 16, or all that share a scale. */
template <typename T, int FORMAT, int E>
__global__ void __launch_bounds__(THREADS)
    super_blocks(uint8_t *W, const T *w, const T *importance, fit f, int64_t n, int64_t K)
{
    typedef super_block<FORMAT, E> block;
    __shared__ super_codes codes[THREADS / block::ALL];
    const int64_t t = (int64_t)blockIdx.x * THREADS + threadIdx.x, mine = t / block::ALL;
    /* Behind the last one, lanes go with their warp and write nothing. */
    const int64_t at = mine < n ? mine : n - 1;
    super_codes *to = codes + threadIdx.x / block::ALL;
    block b = {};

    b.f = f;
    b.lane = (int)(t % block::ALL);
    b.read(w + at * SUPER_BLOCK, importance ? importance + at * SUPER_BLOCK % K : NULL);
    b.search();
    b.put_codes(to);
    __syncwarp();
    if (mine < n)
        b.put(to, W + at * block::BYTES);
}

/* ---- scales that are quantised themselves ---- */

/* The sums of each NF4_GROUP values, by halves. */
template <typename T>
__global__ void __launch_bounds__(NF4_GROUP) group_sums(double *sums, const T *x, int64_t n)
{
    __shared__ double s[NF4_GROUP];
    const int64_t i = (int64_t)blockIdx.x * NF4_GROUP + threadIdx.x;

    s[threadIdx.x] = i < n ? (double)x[i] : 0;
    for (int half = NF4_GROUP / 2; half; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            s[threadIdx.x] += s[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = s[0];
}

/* One group per block of threads. */
__global__ void __launch_bounds__(NF4_GROUP)
    scale_group(uint8_t *absmax8, float *absmax2, float *offset, const float *absmax,
                const double *sum, int64_t n)
{
    __shared__ float s[NF4_GROUP];
    const int64_t b = (int64_t)blockIdx.x * NF4_GROUP + threadIdx.x;
    const float mean = (float)(*sum / (double)n);
    const float x = b < n ? __fadd_rn(absmax[b], -mean) : 0;

    s[threadIdx.x] = fabsf(x);
    for (int half = NF4_GROUP / 2; half; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            s[threadIdx.x] = fmaxf(s[threadIdx.x], s[threadIdx.x + half]);
    }
    __syncthreads();
    const float maximum = s[0];
    if (threadIdx.x == 0)
        absmax2[blockIdx.x] = maximum;
    if (b == 0)
        *offset = mean;
    if (b < n)
        absmax8[b] =
            (uint8_t)(maximum == 0 ? ZERO_SCALE : code_of<8>(nf4_map, __fmul_rn(x, 1 / maximum)));
}

/* ---- launches ---- */

enum { simple, vector };

struct workspace {
    float *absmax;
    double *sums[2];
    size_t bytes;
};

static workspace lay_out(const struct call *f, void *at)
{
    work_arena arena = {(char *)at, 0};
    workspace w = {};

    if (f->choice[QUANTISED_FORMAT] == NF4 && f->choice[QUANTISED_DOUBLE]) {
        w.absmax = take<float>(&arena, DIM(f, 'B'));
        w.sums[0] = take<double>(&arena, DIM(f, 'C'));
        w.sums[1] = take<double>(&arena, ceil_div(DIM(f, 'C'), (int64_t)NF4_GROUP));
    }
    w.bytes = arena.bytes;
    return w;
}

static size_t work(const struct call *f, enum pass)
{
    return lay_out(f, NULL).bytes;
}

static int quantise_scales(const struct call *f, const struct quantise *a, const workspace &w)
{
    const int64_t n = DIM(f, 'B');
    const cudaStream_t stream = gpu_stream(f);
    int64_t left = DIM(f, 'C');
    int now = 0;

    group_sums<<<(unsigned)left, NF4_GROUP, 0, stream>>>(w.sums[0], w.absmax, n);
    CUDA(cudaGetLastError());
    for (; left > 1; now = !now) {
        const int64_t groups = ceil_div(left, (int64_t)NF4_GROUP);
        group_sums<<<(unsigned)groups, NF4_GROUP, 0, stream>>>(w.sums[!now], w.sums[now], left);
        CUDA(cudaGetLastError());
        left = groups;
    }
    scale_group<<<(unsigned)DIM(f, 'C'), NF4_GROUP, 0, stream>>>(
        (uint8_t *)a->absmax8, (float *)a->absmax2, (float *)a->offset, w.absmax, w.sums[now], n);
    return cudaGetLastError();
}

template <typename T, int FORMAT, int KERNEL>
static int quantise_super_blocks(const struct call *f, const struct quantise *a)
{
    constexpr int E = KERNEL == vector || FORMAT == Q6_K ? 16 : 32;
    const auto kernel = super_blocks<T, FORMAT, E>;
    const quantise_search search = (quantise_search)f->choice[QUANTISE_SEARCH];
    const fit how = {search, quantise_steps((quantised)FORMAT, search, a->importance != NULL),
                     a->importance != NULL};
    const int64_t K = DIM(f, 'K'), n = DIM(f, 'N') * (K / SUPER_BLOCK);
    const int64_t threads = n * (SUPER_BLOCK / E);

    kernel<<<(unsigned)ceil_div(threads, THREADS), THREADS, 0, gpu_stream(f)>>>(
        (uint8_t *)a->W, (const T *)a->w, (const T *)a->importance, how, n, K);
    return cudaGetLastError();
}

template <typename T, int KERNEL>
static int forward(const struct call *f)
{
    const struct quantise *a = ARGS(f, quantise);
    const int64_t n = DIM(f, 'N') * DIM(f, 'K'), block = DIM(f, 'G');
    const cudaStream_t stream = gpu_stream(f);
    const workspace own = lay_out(f, f->work);
    float *absmax = a->absmax ? (float *)a->absmax : own.absmax;
    uint8_t *W = (uint8_t *)a->W;
    const T *w = (const T *)a->w;

    switch (f->choice[QUANTISED_FORMAT]) {
    case Q4_K: return quantise_super_blocks<T, Q4_K, KERNEL>(f, a);
    case Q5_K: return quantise_super_blocks<T, Q5_K, KERNEL>(f, a);
    case Q6_K: return quantise_super_blocks<T, Q6_K, KERNEL>(f, a);
    }
    if (f->choice[QUANTISED_FORMAT] == Q8_0 && KERNEL == vector)
        fours_q8_0<<<(unsigned)ceil_div(n, 4 * THREADS), THREADS, 0, stream>>>(W, w, n);
    else if (f->choice[QUANTISED_FORMAT] == Q8_0)
        block_q8_0<<<(unsigned)ceil_div(n / 32, THREADS), THREADS, 0, stream>>>(W, w, n / 32);
    else if (KERNEL == vector)
        eights_nf4<<<(unsigned)ceil_div(n, 8 * THREADS), THREADS, 0, stream>>>(W, absmax, w,
                                                                               (int)block, n);
    else
        block_nf4<<<(unsigned)ceil_div(n, block * THREADS), THREADS, 0, stream>>>(W, absmax, w,
                                                                                  (int)block, n);
    CUDA(cudaGetLastError());
    return a->absmax8 ? quantise_scales(f, a, own) : 0;
}

static const char *declines(const struct call *f)
{
    return ceil_div(DIM(f, 'N') * DIM(f, 'K'), 4 * THREADS) > MAX_BLOCKS
               ? "more weights than a grid of blocks has threads for"
               : NULL;
}

GPU_KERNEL(simple, .idea = "one thread per block of weights", .pass = {forward<T, simple>, NULL},
           .work = work, .declines = declines);
GPU_KERNEL(vector, .idea = "four to 16 weights per thread, sums and maxima by shuffles",
           .pass = {forward<T, vector>, NULL}, .work = work, .declines = declines);

GPU_KERNELS(quantise, IN_TYPES(vector) IN_TYPES(simple));
