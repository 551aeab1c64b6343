/* race.cc - races between threads, and reads of global memory that nothing has written. */
#include "gpu/emulate/internal.h"

#ifdef EMU_RACE

#include <sys/mman.h>
#include <unistd.h>

using namespace emu;

/* ---- races ---- */

/* With EMU_RACE the kernels are compiled with -fsanitize=thread, and the compiler inserts calls of
 * the __tsan functions below.  A race: two threads of a gang access one byte, at least one of them
 * writes, and there is no barrier in between. */
namespace emu {
struct seen {
    unsigned thread, gang, block, arrivals, warp;    /* thread 0: none */
    const char *pc;
};
struct cell {
    seen write, read[2];     /* reads by two threads: one of them is not the writer */
};
enum { GROUP = 16 };
/* What was seen of 16 bytes.  All accesses were of whole units of so many bytes, a power of two: the cell
 * of a unit's first byte is for all of it. */
struct group {
    uintptr_t at;            /* address / GROUP; 0: free */
    unsigned unit;
    cell byte[GROUP];
};
}
static __thread std::vector<group> *groups;    /* a hash table with open addressing */
static __thread std::vector<size_t> *used;     /* the places in it */
extern char __executable_start;

static group *group_of(uintptr_t at)
{
    for (size_t n = groups->size(), i = at * 0x9e3779b97f4a7c15 >> 20;; i++) {
        group *g = &(*groups)[i & (n - 1)];
        if (!g->at) {
            g->at = at;
            g->unit = GROUP;
            used->push_back(i & (n - 1));
        }
        if (g->at == at)
            return g;
    }
}

void emu::races_forget(void)
{
    if (!groups) {
        groups = new std::vector<group>(1 << 10);
        used = new std::vector<size_t>;
    }
    for (size_t i : *used)
        (*groups)[i] = {};
    used->clear();
}

/* Four times as many places. */
static void grow_groups(void)
{
    std::vector<group> old(groups->size() * 4);
    old.swap(*groups);
    used->clear();
    for (group &g : old)
        if (g.at)
            *group_of(g.at) = g;
}

/* Units of which an access of the bytes [from, to) has whole ones. */
static void split_units(group *g, unsigned from, unsigned to)
{
    while ((from | to) & (g->unit - 1)) {
        const unsigned half = g->unit / 2;
        for (unsigned i = 0; i < GROUP; i += g->unit)
            g->byte[i + half] = g->byte[i];
        g->unit = half;
    }
}

/* Has the thread of `now` no barrier since `old`, of another thread of this gang? */
static bool unordered(const seen *old, const seen *now)
{
    const thread *a = &G->threads[old->thread - 1], *b = &G->threads[now->thread - 1];
    if (a->block != b->block)
        return true;
    if (old->block != now->block)
        return false;
    if (a->w != b->w)
        return b->w->vclock[a->w - b->w->b->warps] <= old->arrivals;
    return now->warp <= old->warp;
}

static inline bool clash(const seen *old, const seen *now)
{
    if (!old->thread || old->thread == now->thread || old->gang != now->gang)
        return false;
    return (G->n_blocks > 1 || old->block == now->block) && unordered(old, now);
}

/* Prints the source line of a program counter, and that of another one if given, by the compiler's
 * debug information. */
static void print_lines(const char *pc, const char *other = NULL)
{
    char command[600];
    int n = snprintf(command, sizeof command, "addr2line -se /proc/%d/exe", getpid());
    for (const char *at : {pc, other})
        if (at)
            n += snprintf(command + n, sizeof command - n, " %#zx", (size_t)(at - 1 - &__executable_start));
    snprintf(command + n, sizeof command - n, " >&2");
    if ((pc || other) && system(command))
        fprintf(stderr, "%s\n", command);
}

/* Global memory is one range of addresses.  The same offset of a second range, `written`, says
 * whether a byte has been written. */
static const size_t RANGE = (size_t)1 << 40;
static char *range, *written;
static size_t range_used;

static void init_access(thread *t, const void *p, size_t bytes, bool write, const char *pc)
{
    const size_t at = (const char *)p - range;
    if (!range || at >= RANGE)
        return;
    if (write)
        memset(written + at, 1, bytes);
    else if (memchr(written + at, 0, bytes)) {
        if (report_fault(t, {"initcheck", 0}, "reads %zu bytes of global memory that were never written%s",
                         bytes, memchr(written + at, 1, bytes) ? ", or not all" : ""))
            print_lines(pc);
        abort_launch();
    }
}

/* The running thread accesses the bytes of this cell. */
static void see(cell *c, const seen *now, bool write)
{
    const seen *other = clash(&c->write, now) ? &c->write : NULL;
    for (int i = 0; i < 2 && write; i++)
        if (clash(&c->read[i], now))
            other = &c->read[i];
    if (other) {
        const thread *t = &G->threads[now->thread - 1], *o = &G->threads[other->thread - 1];
        if (report_fault(t, {"race", 0}, "%s what thread %d of block %u %s, with no barrier in between",
                         write ? "writes" : "reads", thread_number(o), o->block->idx.x,
                         other == &c->write ? "wrote" : "read"))
            print_lines(now->pc, other->pc);
        abort_launch();
    }
    if (write)
        c->write = *now;
    else
        c->read[c->read[0].thread && c->read[0].thread != now->thread && clash(&c->read[0], now)] = *now;
}

void emu::race_access(const void *p, size_t bytes, bool write, const char *pc)
{
    thread *t = (thread *)emu_self;
    if (!t || G->broken || G->resolving || stack_contains(t->stack, p))
        return;
    init_access(t, p, bytes, write, pc);
    if (used->size() > groups->size() / 2)
        grow_groups();
    seen now = {(unsigned)(t - G->threads) + 1, G->phase, ((block *)t->block)->phase,
                t->w->vclock[t->w - t->w->b->warps], t->phase, pc};
    const uintptr_t end = (uintptr_t)p + bytes;
    for (uintptr_t at = (uintptr_t)p; at < end;) {
        group *g = group_of(at / GROUP);
        const unsigned from = at % GROUP, to = std::min(end - at + from, (uintptr_t)GROUP);
        split_units(g, from, to);
        for (unsigned i = from; i < to; i += g->unit)
            see(&g->byte[i], &now, write);
        at += to - from;
    }
}

/* Atomics do not race.  A compare-and-exchange follows a load, which has checked that the memory
 * was written, so it needs no call of this. */
static void atomic_access(const void *p, size_t bytes, bool write, const char *pc)
{
    thread *t = (thread *)emu_self;
    if (t && !G->broken)
        init_access(t, p, bytes, write, pc);
}

#define PC (const char *)__builtin_return_address(0)
#define TSAN(n)                                                                   \
    extern "C" void __tsan_read##n(void *p) { race_access(p, n, false, PC); }     \
    extern "C" void __tsan_write##n(void *p) { race_access(p, n, true, PC); }     \
    extern "C" void __tsan_unaligned_read##n(void *p) { race_access(p, n, false, PC); } \
    extern "C" void __tsan_unaligned_write##n(void *p) { race_access(p, n, true, PC); }
TSAN(1) TSAN(2) TSAN(4) TSAN(8) TSAN(16)
extern "C" void __tsan_read_range(void *p, size_t n) { race_access(p, n, false, PC); }
extern "C" void __tsan_write_range(void *p, size_t n) { race_access(p, n, true, PC); }
extern "C" void __tsan_init(void) {}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit(void) {}
extern "C" void __tsan_vptr_update(void **, void *) {}
extern "C" void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#define TSAN_ATOMIC(bits)                                                         \
    extern "C" uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *p, int) \
    {                                                                             \
        atomic_access((const void *)p, bits / 8, false, PC);                      \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                              \
    }                                                                             \
    extern "C" void __tsan_atomic##bits##_store(volatile uint##bits##_t *p, uint##bits##_t x, int) \
    {                                                                             \
        atomic_access((const void *)p, bits / 8, true, PC);                       \
        __atomic_store_n(p, x, __ATOMIC_SEQ_CST);                                 \
    }                                                                             \
    extern "C" int __tsan_atomic##bits##_compare_exchange_weak(                   \
        volatile uint##bits##_t *p, uint##bits##_t *was, uint##bits##_t to, int, int) \
    {                                                                             \
        return __atomic_compare_exchange_n(p, was, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    }
TSAN_ATOMIC(8) TSAN_ATOMIC(16) TSAN_ATOMIC(32) TSAN_ATOMIC(64)

static char *map_range(void)
{
    void *p = mmap(NULL, RANGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : (char *)p;
}

/* Each allocation has its own pages, and one more page after them. */
static size_t range_bytes(size_t n)
{
    return (n + 8191) / 4096 * 4096;
}

char *emu::global_alloc(size_t n)
{
    if (!range)
        range = map_range(), written = map_range();
    if (!range || !written || range_bytes(n) > RANGE - range_used)
        return NULL;
    char *p = range + range_used;
    range_used += range_bytes(n);
    return (char *)memset(p, 0xff, n);
}

void emu::global_free(char *p, size_t n, bool last)
{
    madvise(p, range_bytes(n), MADV_DONTNEED);
    madvise(written + (p - range), range_bytes(n), MADV_DONTNEED);
    if (last)
        range_used = 0;
}

/* Does the host copy a byte of global memory that was never written? */
bool emu::reads_unwritten(const void *from, size_t n)
{
    const size_t at = (const char *)from - range;
    return range && at < RANGE && memchr(written + at, 0, n);
}

/* The host writes to global memory.  If it copies from global memory, bytes that were never written
 * stay so in the copy. */
void emu::host_write(const void *to, size_t n, const void *from)
{
    const size_t at = (const char *)to - range, was = (const char *)from - range;
    if (!range || at >= RANGE)
        return;
    if (was < RANGE)
        memmove(written + at, written + was, n);
    else
        memset(written + at, 1, n);
}

#endif
