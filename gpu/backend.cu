/* The CUDA backends: a device, its memory, its timer. */
#include "gpu/gpu.cuh"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/device/clock.cuh"
#include "gpu/gemm/product.cuh"

static cudaStream_t stream;

/* The stream is created at the first use of the device; if that fails, the calls that use
 * it return the error. */
cudaStream_t gpu_stream(void)
{
    if (!stream && cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        stream = NULL;
    return stream;
}

/* ---- which device ---- */

const cudaDeviceProp &gpu_properties(void)
{
    static cudaDeviceProp p;
    static int known = -1;
    int number = 0;
    if (cudaGetDevice(&number) != cudaSuccess)
        return p = {};
    if (number != known)
        known = cudaGetDeviceProperties(&p, number) == cudaSuccess ? number : -1;
    if (known < 0)
        p = {};
    return p;
}

/* The largest power of two up to n. */
static int power_of_two(int n)
{
    int power = 1;
    while (power <= n / 2)
        power *= 2;
    return power;
}

static const struct limits *limits_set;

const struct limits *gpu_limits(void)
{
    static struct limits own;
    const cudaDeviceProp &p = gpu_properties();

    if (limits_set)
        return limits_set;
    own.sms = p.multiProcessorCount > 1 ? p.multiProcessorCount : 1;
    own.smem = p.sharedMemPerBlockOptin;
    own.smem_two = p.sharedMemPerMultiprocessor / 2 - p.reservedSharedMemPerBlock;
    own.scan_blocks = power_of_two(own.sms);
    own.split_steps = SPLIT_STEPS;
    own.wide_lane_elements = 327680;
    own.records = 1 << 24;
    own.states = 20 << 20;
    own.norm_threads = 512;
    return &own;
}

void gpu_set_limits(const struct limits *l)
{
    static struct limits kept;
    if (l)
        kept = *l;
    limits_set = l ? &kept : NULL;
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

/* After an illegal access, a trap or a similar fault every call fails until the process ends: the
 * device is lost. */
static const char *unavailable(void)
{
    static char lost[200];
    int count = 0;

    if (forked())
        return forked();
    cudaError_t e = cudaGetDeviceCount(&count);

    if (e == cudaSuccess && stream) {
        e = cudaStreamSynchronize(stream);
        snprintf(lost, sizeof lost, "lost: %s", cudaGetErrorString(e));
        return e == cudaSuccess ? NULL : lost;
    }
    if (e != cudaSuccess) {
        cudaGetLastError();
        return cudaGetErrorString(e);
    }
    return count ? NULL : "no CUDA device";
}

static const char *use(int number)
{
    static char text[100];
    int count = 0;

    if (unavailable())
        return unavailable();
    if (stream)
        return "another one is in use already";
    if (cudaGetDeviceCount(&count) != cudaSuccess || number >= count) {
        snprintf(text, sizeof text, "there are %d, the first is 0", count);
        return text;
    }
    cudaError_t e = cudaSetDevice(number);
    return e == cudaSuccess ? NULL : cudaGetErrorString(e);
}

#ifdef CUDA_EMULATE

static const char *device(void)
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
static int measured_clock(void)
{
    int64_t *x = NULL, got[2] = {0, 1};
    if (cudaMalloc(&x, sizeof got) == cudaSuccess) {
        busy_loop<<<1, 1, 0, gpu_stream()>>>(x, x + 1);
        cudaMemcpyAsync(got, x, sizeof got, cudaMemcpyDeviceToHost, gpu_stream());
        cudaStreamSynchronize(gpu_stream());
        cudaFree(x);
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

static const char *device(void)
{
    static char name[500];
    char driver[64];
    int number = 0, memory_khz = 0;

    if (*name)
        return name;
    if (forked())
        return "unknown CUDA device";
    const cudaDeviceProp &p = gpu_properties();
    if (cudaGetDevice(&number) != cudaSuccess || !p.multiProcessorCount)
        return "unknown CUDA device";
    cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, number);
    driver_version(driver, sizeof driver);
    snprintf(name, sizeof name,
             "%s, capability %d.%d, %d multiprocessors at %d MHz (measured), memory at %d MHz, %s",
             p.name, p.major, p.minor, p.multiProcessorCount, measured_clock(), memory_khz / 1000,
             driver);
    return name;
}

#endif

/* ---- memory ---- */

/* An arena for all tensors of a trial, kept for the next trial: a bump allocator, which is reset
 * when the last tensor is freed.  Tensors that do not fit are allocated one by one, and so are all
 * tensors without a reserve().  Tests do this, so that tools see the true bounds of tensors. */
static struct {
    char *base;
    int64_t size, used;
    int live;
} arena;

enum { ALIGNED = 256 };

static int64_t memory(void)
{
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess)
        return 0;
    return (int64_t)free + arena.size - arena.used;
}

/* The caller reports an allocation that fails.  The error is cleared, so that the next launch does
 * not return it. */
static void *allocate(size_t bytes)
{
    char *p = NULL;
    gpu_stream();
    if (cudaMalloc(&p, bytes) == cudaSuccess)
        return p;
    cudaGetLastError();
    return NULL;
}

static int reserve(int64_t bytes)
{
    if (bytes <= arena.size || arena.live)
        return 0;
    CUDA(cudaFree(arena.base));
    arena.base = (char *)allocate(bytes);
    arena.size = arena.base ? bytes : 0;
    return arena.base ? 0 : cudaErrorMemoryAllocation;
}

static void *alloc(size_t bytes)
{
    int64_t all = ceil_div(bytes, ALIGNED) * ALIGNED;
    if (all > arena.size - arena.used)
        return allocate(bytes);
    char *p = arena.base + arena.used;
    arena.used += all;
    arena.live++;
    return p;
}

static void release(void *p)
{
    char *at = (char *)p;
    if (at < arena.base || at >= arena.base + arena.size)
        cudaFree(p);
    else if (--arena.live == 0)
        arena.used = 0;
}

static int put(void *there, const void *here, size_t bytes)
{
    CUDA(cudaMemcpyAsync(there, here, bytes, cudaMemcpyHostToDevice, gpu_stream()));
    return cudaStreamSynchronize(gpu_stream());
}

static int get(void *here, const void *there, size_t bytes)
{
    CUDA(cudaMemcpyAsync(here, there, bytes, cudaMemcpyDeviceToHost, gpu_stream()));
    return cudaStreamSynchronize(gpu_stream());
}

static int fill(void *there, int byte, size_t bytes)
{
    CUDA(cudaMemsetAsync(there, byte, bytes, gpu_stream()));
    return cudaStreamSynchronize(gpu_stream());
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
static int add_all(void *to, const void *a, const void *b, int64_t n)
{
    add_kernel<<<ceil_div(n, ADD_THREADS), ADD_THREADS, 0, gpu_stream()>>>((T *)to, (const T *)a,
                                                                           (const T *)b, n);
    return cudaGetLastError();
}

static int add(enum dtype type, void *to, const void *a, const void *b, int64_t n)
{
    return type == F32 ? add_all<float>(to, a, b, n) : add_all<__nv_bfloat16>(to, a, b, n);
}

/* ---- timing by events, with a cold L2 ---- */

enum { EVICT_THREADS = 256, VECTORS = 8 }; /* threads per block; vectors per thread */

static cudaEvent_t before, after;
static uint4 *evict_buffer;
static int64_t evict_vectors;

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

/* The buffer is twice as large as L2. */
static int prepare_timing(void)
{
    const size_t bytes = 2 * (size_t)gpu_properties().l2CacheSize;

    CUDA(cudaEventCreate(&before));
    CUDA(cudaEventCreate(&after));
    if (!bytes)
        return 0;
    CUDA(cudaMalloc(&evict_buffer, bytes));
    CUDA(cudaMemsetAsync(evict_buffer, 0, bytes, gpu_stream()));
    evict_vectors = bytes / sizeof *evict_buffer;
    return 0;
}

static int start(void)
{
    int e = before ? 0 : prepare_timing();

    if (e)
        return e;
    if (evict_vectors)
        evict<<<ceil_div(evict_vectors, VECTORS * EVICT_THREADS), EVICT_THREADS, 0, gpu_stream()>>>(
            evict_buffer, evict_vectors);
    return cudaEventRecord(before, gpu_stream());
}

static int stop(double *seconds)
{
    float ms = 0;
    CUDA(cudaEventRecord(after, gpu_stream()));
    CUDA(cudaEventSynchronize(after));
    CUDA(cudaEventElapsedTime(&ms, before, after));
    *seconds = ms * 1e-3;
    return cudaGetLastError();
}

/* ---- a pass as a graph ---- */

/* An error code of this file, for a pass that puts nothing on the stream: it would seem fast. */
enum { EMPTY_GRAPH = -1 };

#ifdef CUDA_EMULATE

static int (*const record)(int (*)(const struct call *), const struct call *, void **) = NULL;
static int (*const replay)(void *) = NULL;
static void (*const forget)(void *) = NULL;
static const char METHOD[] = "L2 flushed by reading";
static const double WARM_UP = 0;

#else

/* Captures all kernels, GEMMs and copies of a pass.  A call that cannot be captured (an allocation,
 * a synchronisation) fails. */
static int capture(int (*pass)(const struct call *), const struct call *f, cudaGraph_t *graph)
{
    CUDA(cudaStreamBeginCapture(gpu_stream(), cudaStreamCaptureModeGlobal));
    int e = pass(f);
    int ended = cudaStreamEndCapture(gpu_stream(), graph);
    return e ? e : ended;
}

static int prepare(cudaGraph_t graph, cudaGraphExec_t *ready)
{
    size_t nodes = 0;
    CUDA(cudaGraphGetNodes(graph, NULL, &nodes));
    if (!nodes)
        return EMPTY_GRAPH;
    CUDA(cudaGraphInstantiateWithFlags(ready, graph, 0));
    return cudaGraphUpload(*ready, gpu_stream());
}

static void forget(void *recorded)
{
    cudaGraphExecDestroy((cudaGraphExec_t)recorded);
}

static int record(int (*pass)(const struct call *), const struct call *f, void **recorded)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    int e = capture(pass, f, &graph);

    if (!e)
        e = prepare(graph, &ready);
    if (graph)
        cudaGraphDestroy(graph);
    if (e && ready)
        forget(ready);
    cudaGetLastError(); /* the error of a broken capture is in e */
    *recorded = e ? NULL : ready;
    return e;
}

static int replay(void *recorded)
{
    return cudaGraphLaunch((cudaGraphExec_t)recorded, gpu_stream());
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

extern "C" const struct impl *const *const gpu32_kernels[N_OPS];
extern "C" const struct impl *const *const gpu16_kernels[N_OPS];

#define GPU_BACKEND(name, type)                                                                    \
    static const struct backend name = {                                                           \
        #name,   type,           F32,       unavailable, use,    device, memory,                   \
        reserve, alloc,          release,   put,         get,    fill,   add,                      \
        start,   stop,           record,    replay,      forget, METHOD, WARM_UP,                  \
        error,   name##_kernels, gpu_probe, NULL}

GPU_BACKEND(gpu32, F32);
GPU_BACKEND(gpu16, BF16);
extern "C" const struct backend *const gpu_backends[] = {&gpu32, &gpu16, NULL};
