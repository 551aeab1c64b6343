/* memory.cc - shared and global memory; operations that are done later. */
#include "gpu/emulate/internal.h"

#include <map>
#include <mutex>

using namespace emu;

/* ---- shared memory ---- */

char *emu::poisoned(size_t bytes, size_t aligned)
{
    void *p = NULL;
    if (posix_memalign(&p, aligned, bytes ? bytes : 1))
        return NULL;
    return (char *)memset(p, 0xff, bytes);
}

void *emu_shared(const void *key, size_t bytes)
{
    block *b = (block *)emu_self->block;
    for (shared &s : *b->statics)
        if (s.key == key)
            return s.p;
    b->statics->push_back({key, poisoned(bytes), bytes});
    return b->statics->back().p;
}

unsigned emu_gang_size(void)
{
    return G->n_blocks;
}

void *emu_map_shared(const void *p, unsigned rank)
{
    block *b = (block *)emu_self->block, *o = &G->blocks[rank];
    emu_place here = {"map_shared_rank", 0};
    const char *c = (const char *)p;
    if ((int)rank >= G->n_blocks)
        emu_fault(here, "rank %u of a cluster of %d", rank, G->n_blocks);
    if (c >= (char *)b->dynamic && c < (char *)b->dynamic + G->dynamic)
        return o->dynamic + (c - (char *)b->dynamic);
    for (shared &s : *b->statics)
        if (c >= s.p && c < s.p + s.bytes) {
            emu_self->block = o;
            char *q = (char *)emu_shared(s.key, s.bytes);
            emu_self->block = b;
            return q + (c - s.p);
        }
    emu_fault(here, "not a shared address");
}
/* ---- operations that are done later ---- */

/* The copies of cp.async are executed as late as allowed, at the wait, so that a kernel that does
 * not wait does not find the data. */
void emu_copy_later(void *to, const void *from, size_t bytes, size_t given)
{
    thread *t = (thread *)emu_self;
    if (((uintptr_t)to | (uintptr_t)from) % bytes)
        emu_fault({"cp.async", 0}, "address not a multiple of %zu", bytes);
    if (given && given != bytes)
        emu_fault({"cp.async", 0}, "%zu of %zu bytes, which memcheck takes for all", given, bytes);
    if (!t->copies)
        t->copies = new std::vector<std::vector<copy>>(1);
    t->copies->back().push_back({to, from, bytes, given});
}

void emu_copy_commit(void)
{
    thread *t = (thread *)emu_self;
    if (!t->copies)
        t->copies = new std::vector<std::vector<copy>>(1);
    t->copies->push_back({});
}

void emu_copy_wait(unsigned left)
{
    thread *t = (thread *)emu_self;
    while (t->copies && t->copies->size() > left + 1) {
        for (copy &c : t->copies->front()) {
            race_access(c.from, c.given, false, NULL);
            race_access(c.to, c.bytes, true, NULL);
            memcpy(c.to, c.from, c.given);
            memset((char *)c.to + c.given, 0, c.bytes - c.given);
        }
        t->copies->erase(t->copies->begin());
    }
}

static deferred *later_of(int kind)
{
    thread *t = (thread *)emu_self;
    if (!t->later[kind])
        t->later[kind] = new deferred(1);
    return t->later[kind];
}

void emu_later(int kind, void (*what)(const void *), const void *data, size_t bytes)
{
    deferred_op d = {what, {0}};
    if (bytes > sizeof d.data)
        emu_fault({"emu_later", 0}, "%zu bytes, but the buffer has %zu", bytes, sizeof d.data);
    memcpy(d.data, data, bytes);
    later_of(kind)->back().push_back(d);
}

void emu_later_commit(int kind)
{
    later_of(kind)->push_back({});
}

void emu_later_wait(int kind, unsigned left)
{
    deferred *d = later_of(kind);
    while (d->size() > left + 1) {
        const std::vector<deferred_op> group = d->front();
        d->erase(d->begin());
        for (const deferred_op &one : group) {
            const deferred_op own = one;      /* a copy on this thread's stack, where there are no races */
            own.what(own.data);
        }
    }
}

/* ---- global memory ---- */

static std::mutex lock;
static std::map<char *, size_t> memory;

/* Is [p, p + n) within one allocation? */
static bool ours(const void *p, size_t n)
{
    std::lock_guard<std::mutex> hold(lock);
    auto a = memory.upper_bound((char *)p);
    return a != memory.begin() && (--a, (char *)p + n <= a->first + a->second);
}

cudaError_t emu_malloc(void **p, size_t n)
{
    std::lock_guard<std::mutex> hold(lock);
    *p = n > device_memory ? NULL : global_alloc(n);
    if (!*p)
        return fail(cudaErrorMemoryAllocation);
    memory[(char *)*p] = n;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (p && !ours(p, 0))
        return fail(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> hold(lock);
    auto a = memory.find((char *)p);
    if (a == memory.end())
        return cudaSuccess;
    const size_t n = a->second;
    memory.erase(a);
    global_free((char *)p, n, memory.empty());
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *of, const void *p)
{
    of->type = ours(p, 1) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    of->device = 0;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    bool to_us = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_us = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (n == 0)
        return cudaPeekAtLastError();
    if ((to_us && !ours(to, n)) || (from_us && !ours(from, n)))
        return fail(cudaErrorInvalidValue);
    if (kind == cudaMemcpyDeviceToHost && cudaPeekAtLastError() == cudaSuccess &&
        reads_unwritten(from, n)) {
        fprintf(stderr,
                "emulate: initcheck: the host reads %zu bytes of global memory that were never written, "
                "or not all\n",
                n);
        return fail(cudaErrorInvalidValue);
    }
    memmove(to, from, n);
    host_write(to, n, from);
    return cudaPeekAtLastError();
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t)
{
    return cudaMemcpy(to, from, n, kind);
}

cudaError_t cudaMemset(void *p, int v, size_t n)
{
    if (n == 0)
        return cudaSuccess;
    if (!ours(p, n))
        return fail(cudaErrorInvalidValue);
    memset(p, v, n);
    host_write(p, n, NULL);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t) { return cudaMemset(p, v, n); }

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    std::lock_guard<std::mutex> hold(lock);
    *free = *total = device_memory;
    for (auto &a : memory)
        *free -= a.second;
    return cudaSuccess;
}
