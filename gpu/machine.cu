/* The CUDA machine: a device, its memory, its timer. */
#include "common/call/machine.h"
#include "gpu/gpu.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "gpu/device/clock.cuh"
#include "gpu/gemm/product.cuh"
#include "gpu/launches.cuh"
#include "gpu/lend.cuh"
#include "gpu/ring.cuh"

static void enter(struct context *x)
{
    cudaSetDevice(x->device);
}

/* ---- which device ---- */

/* The largest power of two up to n. */
static int power_of_two(int n)
{
    int power = 1;
    while (power <= n / 2)
        power *= 2;
    return power;
}

static struct limits limits_of(const cudaDeviceProp &p)
{
    struct limits own;

    own.sms = p.multiProcessorCount > 1 ? p.multiProcessorCount : 1;
    own.smem = p.sharedMemPerBlockOptin;
    own.smem_two = p.sharedMemPerMultiprocessor / 2 - p.reservedSharedMemPerBlock;
    own.scan_blocks = power_of_two(own.sms);
    own.split_steps = SPLIT_STEPS;
    own.wide_lane_elements = 327680;
    own.records = 1 << 24;
    own.states = 20 << 20;
    own.norm_threads = 512;
    return own;
}

struct limits *gpu_limits_of(struct context *x)
{
    return &x->limits;
}

/* The process that used the device first has its context.  In a child by fork() CUDA's calls fail,
 * or do not return: none may be made there.  NULL, or that this is such a child.  The emulation has
 * no context, so a child may use it. */
static const char *forked(void)
{
#ifndef CUDA_EMULATE
    static pid_t first;

    if (!first)
        first = getpid();
    if (first != getpid())
        return "this process was forked after its parent used CUDA; start one by exec for it";
#endif
    return NULL;
}

static const char *unavailable(void)
{
    int count = 0;

    if (forked())
        return forked();
    const cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess) {
        cudaGetLastError();
        return cudaGetErrorString(e);
    }
    return count ? NULL : "no CUDA device";
}

static int count(void)
{
    int n = 0;

    if (forked() || cudaGetDeviceCount(&n) != cudaSuccess)
        n = 0;
    cudaGetLastError();
    return n;
}

static int prepare(struct context *x)
{
    CUDA(cudaSetDevice(x->device));
    CUDA(cudaGetDeviceProperties(&x->properties, x->device));
    CUDA(cudaStreamCreateWithFlags(&x->stream, cudaStreamNonBlocking));
    x->limits = limits_of(x->properties);
    return 0;
}

static void close_context(struct context *x)
{
    if (x->lent) {
        free(x);
        return;
    }
    cudaSetDevice(x->device);
    product_end(x);
    ring_end(x);
    cudaFree(x->arena.base);
    cudaFree(x->timer.evict_buffer);
    if (x->timer.before)
        cudaEventDestroy(x->timer.before);
    if (x->timer.after)
        cudaEventDestroy(x->timer.after);
    if (x->stream)
        cudaStreamDestroy(x->stream);
    cudaGetLastError();
    free(x);
}

static struct context *open_context(int number)
{
    int count = 0, current = 0;

    if (cudaGetDeviceCount(&count) != cudaSuccess || number < 0 || number >= count) {
        err_set("there are %d, the first is 0", count);
        return NULL;
    }
    struct context *x = (struct context *)calloc(1, sizeof *x);
    if (!x) {
        err_set("no memory for a context");
        return NULL;
    }
    cudaGetDevice(&current);
    x->device = number;
    const int e = prepare(x);
    cudaSetDevice(current); /* it stays the caller's */
    if (e) {
        close_context(x);
        err_set("%s", cudaGetErrorString((cudaError_t)e));
        return NULL;
    }
    return x;
}

/* After an illegal access, a trap or a similar fault every call fails until the process ends: the
 * device is lost. */
static const char *lost(struct context *x)
{
    cudaSetDevice(x->device);
    const cudaError_t e = cudaStreamSynchronize(x->stream);
    snprintf(x->lost, sizeof x->lost, "lost: %s", cudaGetErrorString(e));
    return e == cudaSuccess ? NULL : x->lost;
}

#ifdef CUDA_EMULATE

static const char *device(struct context *)
{
    return "emulated on the CPU: a test of the kernels, its times mean nothing";
}

#else

/* Cycles and nanoseconds of a busy loop, after a first one that raises the clock. */
static __global__ void busy_loop(int64_t *cycles, int64_t *ns)
{
    const int64_t enough = 20000000;
    for (int round = 0; round < 2; round++) {
        int64_t began = clock64(), at = globaltimer_ns();
        while (clock64() - began < enough)
            ;
        *cycles = clock64() - began;
        *ns = globaltimer_ns() - at;
    }
}

/* The clock of the SMs while they work, in MHz; 0: unknown. */
static int measured_clock(struct context *x)
{
    int64_t *there = NULL, got[2] = {0, 1};
    if (cudaMalloc(&there, sizeof got) == cudaSuccess) {
        busy_loop<<<1, 1, 0, x->stream>>>(there, there + 1);
        cudaMemcpyAsync(got, there, sizeof got, cudaMemcpyDeviceToHost, x->stream);
        cudaStreamSynchronize(x->stream);
        cudaFree(there);
    }
    return (int)((got[0] * 1000 + got[1] / 2) / got[1]);
}

/* The version of the driver: the first word of /proc/driver/nvidia/version that is a number. */
static void driver_version(char *text, size_t size)
{
    char line[300] = "";
    FILE *in = fopen("/proc/driver/nvidia/version", "r");
    int cuda = 0;

    if (in && !fgets(line, sizeof line, in))
        *line = 0;
    if (in)
        fclose(in);
    const char *word = strtok(line, " ");
    while (word && !(strchr("123456789", *word) && strchr(word, '.')))
        word = strtok(NULL, " ");
    cudaDriverGetVersion(&cuda);
    snprintf(text, size, "driver %s, CUDA %d.%d", word ? word : "unknown", cuda / 1000,
             cuda % 1000 / 10);
}

static const char *device(struct context *x)
{
    const cudaDeviceProp &p = x->properties;
    char driver[64];
    int memory_khz = 0;

    if (*x->name || forked())
        return *x->name ? x->name : "unknown CUDA device";
    cudaSetDevice(x->device);
    cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, x->device);
    driver_version(driver, sizeof driver);
    snprintf(x->name, sizeof x->name,
             "%s, capability %d.%d, %d multiprocessors at %d MHz (measured), memory at %d MHz, %s",
             p.name, p.major, p.minor, p.multiProcessorCount, measured_clock(x), memory_khz / 1000,
             driver);
    return x->name;
}

#endif

/* ---- memory ---- */

enum { ALIGNED = 256 };

static int64_t memory(struct context *x)
{
    size_t free = 0, total = 0;
    cudaSetDevice(x->device);
    if (cudaMemGetInfo(&free, &total) != cudaSuccess)
        return 0;
    return (int64_t)free + x->arena.size - x->arena.used;
}

static int reserve(struct context *x, int64_t bytes)
{
    struct arena *a = &x->arena;

    if (bytes <= a->size || a->live)
        return 0;
    CUDA(cudaSetDevice(x->device));
    CUDA(cudaFree(a->base));
    a->base = (char *)memory_aside(x, bytes);
    a->size = a->base ? bytes : 0;
    return a->base ? 0 : cudaErrorMemoryAllocation;
}

static void *alloc(struct context *x, size_t bytes)
{
    const int64_t all = ceil_div(bytes, ALIGNED) * ALIGNED;
    struct arena *a = &x->arena;

    cudaSetDevice(x->device);
    if (all > a->size - a->used)
        return memory_aside(x, bytes);
    char *p = a->base + a->used;
    a->used += all;
    a->live++;
    return p;
}

static void release(struct context *x, void *p)
{
    struct arena *a = &x->arena;
    char *at = (char *)p;

    if (at < a->base || at >= a->base + a->size)
        cudaFree(p);
    else if (--a->live == 0)
        a->used = 0;
}

static int put(struct context *x, void *there, const void *here, size_t bytes)
{
    CUDA(cudaMemcpyAsync(there, here, bytes, cudaMemcpyHostToDevice, x->stream));
    return cudaStreamSynchronize(x->stream);
}

static int get(struct context *x, void *here, const void *there, size_t bytes)
{
    CUDA(cudaMemcpyAsync(here, there, bytes, cudaMemcpyDeviceToHost, x->stream));
    return cudaStreamSynchronize(x->stream);
}

static int fill(struct context *x, void *there, int byte, size_t bytes)
{
    CUDA(cudaSetDevice(x->device));
    CUDA(cudaMemsetAsync(there, byte, bytes, x->stream));
    return cudaStreamSynchronize(x->stream);
}

static int zero(const struct call *f, void *to, size_t bytes)
{
    return cudaMemsetAsync(to, 0, bytes, gpu_stream(f));
}

/* ---- sums ---- */

enum { ADD_THREADS = 256 };

/* One thread per element. */
template <typename T>
__global__ void add_kernel(T *to, const T *a, const T *b, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * ADD_THREADS + threadIdx.x;
    if (i < n)
        store(to + i, load(a + i) + load(b + i));
}

template <typename T>
static int add_all(const struct call *f, void *to, const void *a, const void *b, int64_t n)
{
    add_kernel<<<ceil_div(n, ADD_THREADS), ADD_THREADS, 0, gpu_stream(f)>>>((T *)to, (const T *)a,
                                                                            (const T *)b, n);
    return cudaGetLastError();
}

static int add(const struct call *f, int wide, void *to, const void *a, const void *b, int64_t n)
{
    switch (wide ? f->backend->wide : f->backend->type) {
#define CASE(T)                                                                                    \
    case storage<T>::TYPE: return add_all<T>(f, to, a, b, n);
        GPU_TYPES(CASE)
    default: return cudaErrorInvalidValue;
    }
}

/* ---- timing by events, with a cold L2 ---- */

enum { EVICT_THREADS = 256, VECTORS = 8 }; /* threads per block; vectors per thread */

/* Fills L2 with clean lines: it reads a buffer of zeros and writes nothing.  Dirty lines would have
 * to be written back during the kernel that is measured. */
static __global__ void __launch_bounds__(EVICT_THREADS) evict(uint4 *x, int64_t n)
{
    const int64_t first = (int64_t)blockIdx.x * EVICT_THREADS * VECTORS + threadIdx.x;
    uint4 all = make_uint4(0, 0, 0, 0);

    #pragma unroll 8
    for (int i = 0; i < VECTORS; i++) {
        const int64_t at = first + i * EVICT_THREADS;
        const uint4 one = x[at < n ? at : 0];
        all = make_uint4(all.x | one.x, all.y | one.y, all.z | one.z, all.w | one.w);
    }
    if (all.x | all.y | all.z | all.w)
        x[0] = all;
}

static int timer_new(struct context *x)
{
    const size_t bytes = 2 * (size_t)x->properties.l2CacheSize;
    struct timer *t = &x->timer;

    CUDA(cudaEventCreate(&t->before));
    CUDA(cudaEventCreate(&t->after));
    if (!bytes)
        return 0;
    CUDA(cudaMalloc(&t->evict_buffer, bytes));
    CUDA(cudaMemsetAsync(t->evict_buffer, 0, bytes, x->stream));
    t->evict_vectors = bytes / sizeof *t->evict_buffer;
    return 0;
}

static int start(struct context *x)
{
    struct timer *t = &x->timer;
    enter(x);
    int e = t->before ? 0 : timer_new(x);

    if (e)
        return e;
    if (t->evict_vectors)
        evict<<<ceil_div(t->evict_vectors, VECTORS * EVICT_THREADS), EVICT_THREADS, 0, x->stream>>>(
            t->evict_buffer, t->evict_vectors);
    return cudaEventRecord(t->before, x->stream);
}

static int stop(struct context *x, double *seconds)
{
    float ms = 0;
    CUDA(cudaEventRecord(x->timer.after, x->stream));
    CUDA(cudaEventSynchronize(x->timer.after));
    CUDA(cudaEventElapsedTime(&ms, x->timer.before, x->timer.after));
    *seconds = ms * 1e-3;
    return cudaGetLastError();
}

/* ---- a pass as a graph ---- */

/* An error code of this file, for a pass that puts nothing on the stream: it would seem fast. */
enum { EMPTY_GRAPH = -1 };

#ifdef CUDA_EMULATE

static int (*const record)(const struct pass_of *, int, void **) = NULL;
static int (*const replay)(struct context *, void *) = NULL;
static void (*const forget)(void *) = NULL;
static struct launches (*const launches)(const void *) = NULL;
static const char METHOD[] = "L2 flushed by reading";
static const double WARM_UP = 0;

#else

/* Captures all kernels, GEMMs and copies of passes.  A call that cannot be captured (an allocation,
 * a synchronisation) fails. */
static int capture(const struct pass_of *list, int n, cudaGraph_t *graph)
{
    const cudaStream_t stream = gpu_stream(list->call);
    int e = 0;

    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; !e && i < n; i++)
        e = call_pass(list[i].call, list[i].pass);
    int ended = cudaStreamEndCapture(stream, graph);
    return e ? e : ended;
}

struct recorded {
    cudaGraphExec_t ready;
    struct launches launches;
};

static int instantiate(const struct call *f, cudaGraph_t graph, cudaGraphExec_t *ready)
{
    size_t nodes = 0;
    CUDA(cudaGraphGetNodes(graph, NULL, &nodes));
    if (!nodes)
        return EMPTY_GRAPH;
    CUDA(cudaGraphInstantiateWithFlags(ready, graph, 0));
    return cudaGraphUpload(*ready, gpu_stream(f));
}

static void forget(void *recorded)
{
    struct recorded *r = (struct recorded *)recorded;
    if (r->ready)
        cudaGraphExecDestroy(r->ready);
    free(r);
}

static int record(const struct pass_of *list, int n, void **recorded)
{
    const struct call *f = list->call;
    cudaGraph_t graph = NULL;
    struct recorded *r = (struct recorded *)calloc(1, sizeof *r);
    int e = r ? capture(list, n, &graph) : cudaErrorMemoryAllocation;

    if (!e)
        e = instantiate(f, graph, &r->ready);
    if (!e)
        r->launches = graph_launches(graph, &f->context->properties);
    if (graph)
        cudaGraphDestroy(graph);
    if (e && r)
        forget(r);
    cudaGetLastError(); /* the error of a broken capture is in e */
    *recorded = e ? NULL : r;
    return e;
}

static int replay(struct context *x, void *recorded)
{
    return cudaGraphLaunch(((struct recorded *)recorded)->ready, x->stream);
}

static struct launches launches(const void *recorded)
{
    return ((const struct recorded *)recorded)->launches;
}

static const char METHOD[] = "L2 flushed by reading, graph replay";
static const double WARM_UP = 0.05;

#endif

static const char *error(int code)
{
    return code == EMPTY_GRAPH      ? "it starts nothing on the stream"
           : code >= PRODUCT_FAILED ? product_error(code)
                                    : cudaGetErrorString((cudaError_t)code);
}

extern "C" const struct kernels gpu_kernels[]; /* table.c */

// clang-format off
const struct machine cuda = {
    .name = "cuda",
    .judged = 1,
    .strerror = error,
    .kernels = gpu_kernels,
    .disturb = NULL,
    .device = {.unavailable = unavailable, .count = count, .open = open_context, .close = close_context, .enter = enter,
               .lost = lost, .name = device, .probe = gpu_probe},
    .memory = {.left = memory, .reserve = reserve, .alloc = alloc, .free = release, .put = put,
               .get = get, .fill = fill, .zero = zero, .add = add, .pinned = ring_pinned, .send = ring_send,
               .fetch = ring_fetch, .aside = memory_aside, .copy = memory_copy},
    .timing = {.start = start, .stop = stop, .record = record, .replay = replay, .forget = forget,
               .launches = launches, .method = METHOD, .warm_up = WARM_UP},
    .lending = {.lend = lend, .foreign = foreign, .foreign_stream = foreign_stream, .pass_on = pass_on,
                .products = PRODUCTS_WORKSPACE, .keep = keep, .wait_on = wait_on},
};
// clang-format on
