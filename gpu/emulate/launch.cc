/* launch.cc - launches; the device, streams and events. */
#include "gpu/emulate/internal.h"

#include <time.h>
#include <atomic>

using namespace emu;

static const int seed = env("EMU_SEED", 0);

/* ---- launches ---- */

static std::atomic<int> max_dynamic(48 << 10);

/* Initialises a block's shared memory, warps and threads. */
static void init_block(gang *it, block *b)
{
    const dim3 d = b->dim;
    const int threads = d.x * d.y * d.z;
    b->dynamic = (unsigned char *)poisoned(it->dynamic, 1024);
    b->alive = threads;
    b->n_warps = (threads + 31) / 32;
    b->warps = it->warps + b->rank * b->n_warps;
    for (int w = 0; w < b->n_warps; w++) {
        warp *p = &b->warps[w];
        int lanes = std::min(32, threads - 32 * w);
        p->b = b;
        p->lane = it->threads + b->rank * threads + 32 * w;
        p->ready = p->alive = lanes == 32 ? ~0u : (1u << lanes) - 1;
        for (int l = 0; l < lanes; l++) {
            thread *t = &p->lane[l];
            unsigned n = 32 * w + l;
            t->idx = {n % d.x, n / d.x % d.y, n / d.x / d.y};
            t->emu_thread::lane = l;
            t->block = b;
            t->w = p;
        }
    }
}

/* Runs gang `number` of the grid. */
static void run_gang(const cudaLaunchConfig_t *c, dim3 cluster, bool whole, const char *name,
                     uint64_t number, void (*body)(void *), void *arg)
{
    dim3 g = c->gridDim, d = c->blockDim, u = whole ? g : cluster;
    int per_block = d.x * d.y * d.z;
    gang it = {};
    it.n_blocks = u.x * u.y * u.z;
    it.n_warps = it.n_blocks * ((per_block + 31) / 32);
    it.n_threads = it.alive = it.n_blocks * per_block;
    std::vector<block> blocks(it.n_blocks);
    std::vector<warp> ws(it.n_warps);
    std::vector<thread> ts(it.n_threads);
    std::vector<std::vector<shared>> statics(it.n_blocks);
    it.blocks = blocks.data();
    it.warps = ws.data();
    it.threads = ts.data();
    it.body = body;
    it.arg = arg;
    it.name = name;
    it.dynamic = c->dynamicSmemBytes;
    it.random = seed ? (seed * 0x9e3779b97f4a7c15 ^ (number + 1) * 0xbf58476d1ce4e5b9) | 1 : 0;
    uint3 origin = {(unsigned)(number % (g.x / u.x)) * u.x,
                    (unsigned)(number / (g.x / u.x) % (g.y / u.y)) * u.y,
                    (unsigned)(number / (g.x / u.x) / (g.y / u.y)) * u.z};
    for (int i = 0; i < it.n_blocks; i++) {
        block *b = &it.blocks[i];
        b->idx = {origin.x + i % u.x, origin.y + i / u.x % u.y, origin.z + i / u.x / u.y};
        b->dim = d;
        b->grid = g;
        b->rank = i;
        b->statics = &statics[i];
        init_block(&it, b);
    }
    G = &it;
    races_forget();
    thread *first = next_thread();
    first->stack = stack_new();
    become(first);
    blockDim = d;
    gridDim = g;
    stack_switch(&it.host, first->stack, false);
    for (thread &t : ts) {
        delete t.copies;
        for (deferred *d : t.later)
            delete d;
        if (it.broken && t.stack && t.w->alive >> t.lane & 1)
            stack_free(t.stack, true);
    }
    for (block &b : blocks) {
        free(b.dynamic);
        for (shared &s : *b.statics)
            free(s.p);
    }
    emu_self = NULL;
    G = NULL;
}

cudaError_t emu_launch(const cudaLaunchConfig_t *c, const char *name, void (*body)(void *), void *arg)
{
    dim3 g = c->gridDim, d = c->blockDim, cluster(1, 1, 1);
    bool whole = false;
    for (unsigned i = 0; i < c->numAttrs; i++) {
        const cudaLaunchAttribute *a = &c->attrs[i];
        if (a->id == cudaLaunchAttributeClusterDimension)
            cluster = dim3(a->val.clusterDim.x, a->val.clusterDim.y, a->val.clusterDim.z);
        else if (a->id == cudaLaunchAttributeCooperative)
            whole = a->val.cooperative;
    }
    if (!g.x || !g.y || !g.z || g.y > 65535 || g.z > 65535 || g.x > 0x7fffffff || !d.x || !d.y ||
        !d.z || d.x > 1024 || d.y > 1024 || d.z > 64 || d.x * d.y * d.z > 1024)
        return fail(cudaErrorInvalidConfiguration);
    if (c->dynamicSmemBytes > (size_t)max_dynamic.load())
        return fail(cudaErrorInvalidValue);
    if (g.x % cluster.x || g.y % cluster.y || g.z % cluster.z || cluster.x * cluster.y * cluster.z > 16)
        return fail(cudaErrorInvalidConfiguration);
    if (whole && (uint64_t)g.x * g.y * g.z > 132 * 2)
        return fail(cudaErrorCooperativeLaunchTooLarge);
    int64_t gangs = whole ? 1 : (int64_t)g.x * g.y * g.z / (cluster.x * cluster.y * cluster.z);
    uint64_t step = 1, from = 0, r = seed * 0x9e3779b97f4a7c15 | 1;
    if (seed && gangs > 1) {           /* all gangs, in a random order */
        from = xorshift(&r) % gangs;
        do
            step = xorshift(&r) % gangs;
        while (std::__gcd<uint64_t>(step, gangs) != 1);
    }
    #pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < gangs; i++)
        if (cudaPeekAtLastError() == cudaSuccess)
            run_gang(c, cluster, whole, name, (from + i * step) % gangs, body, arg);
    return cudaPeekAtLastError();
}

/* ---- the device, streams and events ---- */

struct emu_stream { int unused; };
struct emu_event { struct timespec at; };

cudaError_t cudaDeviceSynchronize(void) { return cudaPeekAtLastError(); }

cudaError_t cudaGetDeviceCount(int *n)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *devices = getenv("EMU_DEVICES");
    *n = visible && !*visible ? 0 : devices ? atoi(devices) : 1;
    return *n ? cudaSuccess : fail(cudaErrorNoDevice);
}

/* All devices are alike, and share the host's memory. */
static thread_local int current;

cudaError_t cudaGetDevice(int *n) { return *n = current, cudaSuccess; }
cudaError_t cudaSetDevice(int n)
{
    int there;

    if (cudaGetDeviceCount(&there) != cudaSuccess || n < 0 || n >= there)
        return fail(cudaErrorInvalidDevice);
    return current = n, cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    *p = {};
    strcpy(p->name, "emulated on the CPU");
    p->totalGlobalMem = device_memory;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = 227 << 10;
    p->sharedMemPerMultiprocessor = 228 << 10;
    p->reservedSharedMemPerBlock = 1 << 10;
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->multiProcessorCount = 132;
    p->major = 9;
    p->l2CacheSize = 0;    /* nothing to flush */
    p->cooperativeLaunch = p->clusterLaunch = 1;
    return cudaSuccess;
}

cudaError_t emu_func_attribute(cudaFuncAttribute a, int value)
{
    if (a == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value > 227 << 10)
            return fail(cudaErrorInvalidValue);
        for (int was = max_dynamic; was < value && !max_dynamic.compare_exchange_weak(was, value);)
            ;
    }
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *s) { return *s = new emu_stream(), cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) { return cudaStreamCreate(s); }
cudaError_t cudaStreamDestroy(cudaStream_t s) { return delete s, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaPeekAtLastError(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t *e) { return *e = new emu_event(), cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaPeekAtLastError(); }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t)
{
    clock_gettime(CLOCK_MONOTONIC, &e->at);
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    *ms = (b->at.tv_sec - a->at.tv_sec) * 1e3f + (b->at.tv_nsec - a->at.tv_nsec) * 1e-6f;
    return cudaSuccess;
}
