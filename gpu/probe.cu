/* The measured ceilings of the device, with which times are compared.
 *
 * Each throughput is measured by work that has no other bound: a copy far larger than L2, a GEMM of
 * random elements (zeros would let the clock rise), and CHAINS independent chains of fma or of tanh
 * in every thread of a full device.  Latency is measured by one dependent chain in one warp, with
 * the device's own clocks.  Each value is the median of a few runs of some milliseconds, after a
 * warm-up that raises the clock. */
#include "common/call/machine.h"
#include "gpu/device/clock.cuh"
#include "gpu/device/math.cuh"
#include "gpu/gemm/product.cuh"
#include "gpu/gpu.cuh"

#include <algorithm>
#include <chrono>

/* Under emulation the values mean nothing; the sizes are minimal. */
#ifdef CUDA_EMULATE
enum { RUNS = 3, THREADS = 32, BLOCKS = 1, ROUNDS = 1, LINKS = 64, SMALL = 16, LARGE = 16 };
enum { COPIED = 32768, LAUNCHES = 4 };
static const double WAKE = 0;
#else
enum { RUNS = 7, THREADS = 256, BLOCKS = 8, ROUNDS = 256, LINKS = 1 << 18 };
enum { SMALL = 4096, LARGE = 8192, COPIED = 512 << 20, LAUNCHES = 500 };
static const double WAKE = 0.1;
#endif

enum { CHAINS = 8, UNROLLED = 32 };

enum kind { MULTIPLY_ADD, TANH };

template <kind K>
static __device__ __forceinline__ float link(float x, float a, float b)
{
    return K == TANH ? tanh_approx(x) : fmaf(x, a, b);
}

/* Every thread of every SM runs CHAINS chains of rounds * UNROLLED links. */
template <kind K>
static __global__ void __launch_bounds__(THREADS) many(int rounds, float a, float b, float *out)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float x[CHAINS], sum = 0;

    #pragma unroll 8
    for (int c = 0; c < CHAINS; c++)
        x[c] = a * (float)(i % 16 + c);
    for (int r = 0; r < rounds; r++) {
        #pragma unroll 32
        for (int u = 0; u < UNROLLED; u++) {
            #pragma unroll 8
            for (int c = 0; c < CHAINS; c++)
                x[c] = link<K>(x[c], a, b);
        }
    }
    #pragma unroll 8
    for (int c = 0; c < CHAINS; c++)
        sum += x[c];
    out[i] = sum;
}

/* One warp runs one chain and stores its cycles and nanoseconds.  The volatile store orders the
 * reads of the clocks after the end of the chain. */
template <kind K>
static __global__ void one(int rounds, float a, float b, volatile float *out, int64_t *took)
{
    float x = a * (float)threadIdx.x;
    int64_t cycles = clock64(), ns = globaltimer_ns();

    for (int r = 0; r < rounds; r++) {
        #pragma unroll 32
        for (int u = 0; u < UNROLLED; u++)
            x = link<K>(x, a, b);
    }
    out[threadIdx.x] = x;
    if (threadIdx.x == 0) {
        took[0] = clock64() - cycles;
        took[1] = globaltimer_ns() - ns;
    }
}

static __global__ void nothing(void) {}

/* Pseudo-random elements in [-1, 1). */
static __global__ void scatter(__nv_bfloat16 *x, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned bits = (unsigned)i * 2654435761u;
    bits = (bits ^ bits >> 15) * 2246822519u;
    bits = (bits ^ bits >> 13) * 3266489917u;
    if (i < n)
        x[i] = __float2bfloat16((float)(bits >> 8) * 0x1p-23f - 1);
}

/* ---- the work that is timed ---- */

/* A workspace of 2 COPIED bytes for all measurements, and the grid that fills the device. */
struct bench {
    struct context *on;
    char *workspace;
    int blocks, size;
    cudaEvent_t before, after;
};

static int copy(const struct bench *b)
{
    return cudaMemcpyAsync(b->workspace + COPIED, b->workspace, COPIED, cudaMemcpyDeviceToDevice,
                           b->on->stream);
}

template <kind K>
static int fill(const struct bench *b)
{
    float *out = (float *)b->workspace;
    many<K><<<b->blocks, THREADS, 0, b->on->stream>>>(ROUNDS, 0.999f, 0.001f, out);
    return cudaGetLastError();
}

static int multiply(const struct bench *b)
{
    const int64_t n = b->size;
    __nv_bfloat16 *x = (__nv_bfloat16 *)b->workspace;
    matrix<__nv_bfloat16> left = {x, n, n, false}, right = {x + n * n, n, n, true};
    return product(b->on, left, right, 0, x + 2 * n * n);
}

static int median_time(const struct bench *b, int (*work)(const struct bench *), double *median)
{
    double seconds[RUNS];

    int e = work(b);
    for (int i = 0; i < RUNS; i++) {
        float ms = 0;
        CUDA(cudaEventRecord(b->before, b->on->stream));
        e = e ? e : work(b);
        if (e)
            return e;
        CUDA(cudaEventRecord(b->after, b->on->stream));
        CUDA(cudaEventSynchronize(b->after));
        CUDA(cudaEventElapsedTime(&ms, b->before, b->after));
        seconds[i] = ms * 1e-3;
    }
    std::sort(seconds, seconds + RUNS);
    *median = seconds[RUNS / 2];
    return 0;
}

/* ---- the ceilings ---- */

static int rates(struct bench *b, struct ceilings *to)
{
    const double links = (double)b->blocks * THREADS * CHAINS * ROUNDS * UNROLLED;
    const int sizes[] = {SMALL, LARGE};
    double seconds;
    int e = median_time(b, copy, &seconds);

    to->memory = 2.0 * COPIED / seconds;
    e = e ? e : median_time(b, fill<MULTIPLY_ADD>, &seconds);
    to->fp32 = 2 * links / seconds;
    e = e ? e : median_time(b, fill<TANH>, &seconds);
    to->special = links / seconds;
    const int64_t n = 2 * (int64_t)LARGE * LARGE;
    scatter<<<ceil_div(n, 256), 256, 0, b->on->stream>>>((__nv_bfloat16 *)b->workspace, n);
    to->tensor = 0;
    for (int i = 0; !e && i < 2; i++) {
        b->size = sizes[i];
        e = median_time(b, multiply, &seconds);
        to->tensor = std::max(to->tensor, 2.0 * b->size * b->size * b->size / seconds);
    }
    return e;
}

/* Measures the seconds per link, and the clock. */
template <kind K>
static int latency(const struct bench *b, double *seconds, double *clock)
{
    double all[RUNS];
    int64_t took[2];

    for (int i = 0; i < RUNS; i++) {
        int64_t *there = (int64_t *)b->workspace;
        float *out = (float *)(there + 2);
        one<K><<<1, 32, 0, b->on->stream>>>(LINKS / UNROLLED, 0.999f, 0.001f, out, there);
        CUDA(cudaMemcpyAsync(took, there, sizeof took, cudaMemcpyDeviceToHost, b->on->stream));
        CUDA(cudaStreamSynchronize(b->on->stream));
        *clock = took[0] / (took[1] * 1e-9);
        all[i] = took[1] * 1e-9 / LINKS;
    }
    std::sort(all, all + RUNS);
    *seconds = all[RUNS / 2];
    return cudaGetLastError();
}

static double now(void)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/* Seconds per launch of an empty kernel, in a sequence of launches. */
static int launches(const struct bench *b, double *seconds)
{
    double all[RUNS];

    for (int i = 0; i < RUNS; i++) {
        double began = now();
        for (int j = 0; j < LAUNCHES; j++)
            nothing<<<1, 32, 0, b->on->stream>>>();
        CUDA(cudaStreamSynchronize(b->on->stream));
        all[i] = (now() - began) / LAUNCHES;
    }
    std::sort(all, all + RUNS);
    *seconds = all[RUNS / 2];
    return cudaGetLastError();
}

static int wake(const struct bench *b)
{
    double began = now();
    int e = 0;
    while (!e && now() - began < WAKE) {
        e = fill<MULTIPLY_ADD>(b);
        e = e ? e : cudaStreamSynchronize(b->on->stream);
    }
    return e;
}

static int measure(struct bench *b, struct ceilings *to)
{
    int e = wake(b);

    e = e ? e : rates(b, to);
    e = e ? e : latency<MULTIPLY_ADD>(b, &to->flop_time, &to->clock);
    e = e ? e : latency<TANH>(b, &to->special_time, &to->clock);
    return e ? e : launches(b, &to->launch);
}

int gpu_probe(struct context *on, struct ceilings *to)
{
    struct bench b = {};

    b.on = on;
    b.blocks = BLOCKS * on->limits.sms;
    int e = cudaMalloc(&b.workspace, 2 * (size_t)COPIED);
    e = e ? e : cudaMemsetAsync(b.workspace, 0, 2 * (size_t)COPIED, on->stream);
    e = e ? e : cudaEventCreate(&b.before);
    e = e ? e : cudaEventCreate(&b.after);
    e = e ? e : measure(&b, to);
    if (b.before)
        cudaEventDestroy(b.before);
    if (b.after)
        cudaEventDestroy(b.after);
    cudaFree(b.workspace);
    cudaGetLastError(); /* the error is returned here; the next launch must not return it */
    return e;
}
