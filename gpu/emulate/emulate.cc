/* emulate.cc - fibers, barriers, memory and launches for emulate.h. */
#include "config.h"

#include "gpu/emulate/emulate.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#ifdef EMU_UCONTEXT
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK_KIB = 512 };
#else
enum { STACK_KIB = 64 };
#endif

/* ---- switching stacks ---- */

/* emu_swap(&from, to): push the callee-saved registers, store the stack pointer in
 * from, continue on the stack to. */
#ifndef EMU_UCONTEXT
extern "C" void emu_swap(void **from, void *to);
#if defined __x86_64__
asm(".text\n.globl emu_swap\n.type emu_swap,@function\nemu_swap:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size emu_swap,.-emu_swap\n");
enum { SAVED = 6 };            /* words below the return address */
#elif defined __aarch64__
asm(".text\n.globl emu_swap\n.type emu_swap,%function\nemu_swap:\n"
    "sub sp,sp,#160\n"
    "stp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
    "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\n"
    "stp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
    "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\n"
    "ldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\n"
    "add sp,sp,#160\nret\n"
    ".size emu_swap,.-emu_swap\n");
#else
#error "no context switch for this machine: compile with -DEMU_UCONTEXT"
#endif
#endif

struct stack {
    char *base;                /* its lowest address, which holds a canary */
    void *sp;                  /* saved, while it does not run */
#ifdef EMU_UCONTEXT
    ucontext_t uc;
#endif
    void *fake;                /* ASan's */
};

struct copy {
    void *to;
    const void *from;
    size_t bytes, given;
};

/* Groups of deferred operations; the last one is not committed yet. */
struct deferred_op {
    void (*what)(const void *);
    alignas(16) char data[96];
};
typedef std::vector<std::vector<deferred_op>> deferred;

struct block;
struct warp;

enum { WARPS = 32, BARRIERS = 16 }; /* maxima per block */

struct thread : emu_thread {
    warp *w;
    struct stack *stack;       /* NULL: not started */
    const char *what;          /* the function in which it waits */
    emu_place here;
    unsigned mask;
    void *arg;
    emu_resolve *resolve;
    unsigned phase;            /* of the warp, at the last __syncwarp */
    std::vector<std::vector<copy>> *copies;    /* cp.async: groups not yet waited for */
    deferred *later[EMU_LATER];
};

struct warp {
    block *b;
    thread *lane;
    unsigned ready, at_warp, at_barrier, at_block, at_gang, alive;
    unsigned after;            /* the lane to schedule next, after a yield */
    unsigned phase;            /* number of __syncwarp so far */
    int barrier;               /* the named barrier at which it waits; 0: none */
    unsigned vclock[WARPS];     /* vector clock over the block's warps, of the named barriers */
};

struct shared {
    const void *key;
    char *p;
    size_t bytes;
};

/* One of a block's named barriers (bar.sync n). */
struct barrier {
    int threads, arrived;
    unsigned vclock[WARPS];     /* maximum of the clocks of the warps that have arrived */
};

struct block : emu_block {
    int alive, arrived, sum, result;
    unsigned phase;            /* number of barriers so far */
    thread *first_arrived;
    warp *warps;
    int n_warps;
    barrier barriers[BARRIERS];
    std::vector<shared> *statics;
};

/* The blocks that are resident at the same time, on one host thread. */
struct gang {
    int n_blocks, n_warps, n_threads, alive, arrived;
    unsigned phase;
    thread *first_arrived;
    block *blocks;
    warp *warps;
    thread *threads;
    int at;                    /* the warp that runs */
    size_t dynamic;
    void (*body)(void *);
    void *arg;
    const char *name;
    uint64_t random;           /* 0: ascending order */
    struct stack host;
    bool broken;
    bool resolving;            /* one lane is writing the results of the others */
};

__thread struct emu_thread *emu_self;
__thread uint3 threadIdx, blockIdx;
__thread dim3 blockDim, gridDim;
static __thread gang *G;
static __thread std::vector<stack *> *pool;

static const uint64_t CANARY = 0x5afe57ac6ca4a121;
static int env(const char *name, int otherwise)
{
    const char *v = getenv(name);
    return v && *v ? atoi(v) : otherwise;
}
static const size_t stack_bytes = 1024 * (size_t)env("EMU_STACK", STACK_KIB);
static const int seed = env("EMU_SEED", 0), abort_at_fault = env("EMU_ABORT", 0);

static std::mutex lock;
static std::atomic<cudaError_t> last;
static char detail[1000];      /* of the last fault */
static std::atomic<bool> lost; /* after a trap */

static uint64_t xorshift(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    return *x ^= *x << 17;
}

/* Make t the running thread. */
static void become(thread *t)
{
    emu_self = t;
    threadIdx = t->idx;
    blockIdx = t->block->idx;
}

static void run_thread(void);
#ifndef EMU_UCONTEXT
extern "C" void emu_stack_start(void)
{
    run_thread();
}
#endif

static void stack_prepare(stack *s)
{
#ifdef __SANITIZE_ADDRESS__
    ASAN_UNPOISON_MEMORY_REGION(s->base, stack_bytes);
    s->fake = NULL;
#endif
    *(uint64_t *)s->base = CANARY;
#ifdef EMU_UCONTEXT
    getcontext(&s->uc);
    s->uc.uc_stack.ss_sp = s->base;
    s->uc.uc_stack.ss_size = stack_bytes;
    s->uc.uc_link = NULL;
    makecontext(&s->uc, run_thread, 0);
#else
    void **top = (void **)(s->base + stack_bytes) - 4;
#if defined __x86_64__
    *++top = NULL;                                 /* as if called: 8 past a multiple of 16 */
    *--top = (void *)emu_stack_start;              /* where ret goes */
    for (int i = 0; i < SAVED; i++)
        *--top = NULL;
#else
    top -= 20;
    memset(top, 0, 160);
    top[11] = (void *)emu_stack_start;             /* x30 */
#endif
    s->sp = top;
#endif
}

static stack *stack_new(void)
{
    stack *s;
    if (!pool)
        pool = new std::vector<stack *>;
    if (!pool->empty()) {
        s = pool->back();
        pool->pop_back();
    } else {
        static std::atomic<int> guards;
        s = (stack *)calloc(1, sizeof *s);
        s->base = (char *)mmap(NULL, stack_bytes + 4096, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (s->base == MAP_FAILED) {
            perror("emulate: a thread's stack");
            abort();
        }
        if (guards++ < 16000)      /* the kernel allows 65530 mappings */
            mprotect(s->base, 4096, PROT_NONE);
        s->base += 4096;
    }
    stack_prepare(s);
    return s;
}

/* ASan must be given the next stack's bounds; it returns those of the host's stack when
 * a thread is entered for the first time. */
#ifdef __SANITIZE_ADDRESS__
static __thread const void *host_base;
static __thread size_t host_size;
#endif

static void stack_switch(stack *from, stack *to, bool for_ever)
{
    (void)for_ever;
#ifdef __SANITIZE_ADDRESS__
    bool home = to == &G->host;
    __sanitizer_start_switch_fiber(for_ever ? NULL : &from->fake, home ? host_base : to->base,
                                   home ? host_size : stack_bytes);
#endif
#ifdef EMU_UCONTEXT
    swapcontext(&from->uc, &to->uc);
#else
    emu_swap(&from->sp, to->sp);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(from->fake, NULL, NULL);
#endif
}

/* ---- faults ---- */

static int thread_number(const thread *t)
{
    const block *b = (const block *)t->block;
    return t->idx.x + b->dim.x * (t->idx.y + b->dim.y * t->idx.z);
}

/* Reports only the first fault of a launch; returns whether it was this one. */
static bool report_fault(const thread *t, emu_place here, const char *fmt, ...)
{
    char text[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    std::lock_guard<std::mutex> hold(lock);
    bool first = last == cudaSuccess;
    if (first) {
        snprintf(detail, sizeof detail, "%s:%d: %s: block (%u,%u,%u) thread (%u,%u,%u): %s",
                 here.file ? here.file : "?", here.line, G->name, t->block->idx.x,
                 t->block->idx.y, t->block->idx.z, t->idx.x, t->idx.y, t->idx.z, text);
        last = cudaErrorLaunchFailure;
        fprintf(stderr, "emulate: %s\n", detail);
    }
    if (abort_at_fault)
        abort();
    return first;
}

[[noreturn]] static void abort_launch(void)
{
    G->broken = true;
    stack_switch(((thread *)emu_self)->stack, &G->host, true);
    abort();
}

[[noreturn]] void emu_fault(emu_place here, const char *fmt, ...)
{
    char text[500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    report_fault((thread *)emu_self, here, "%s", text);
    abort_launch();
}

/* The only fault that is sticky, as all are on a real device. */
[[noreturn]] void emu_trap(emu_place here)
{
    lost = true;
    emu_fault(here, "trap");
}

#ifdef __SANITIZE_ADDRESS__
/* Weak, so that a test can define its own. */
extern "C" __attribute__((weak)) void __asan_on_error(void)
{
    if (emu_self)
        fprintf(stderr, "emulate: %s: block (%u,%u,%u) thread (%u,%u,%u):\n", G->name, blockIdx.x,
                blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
}
#endif

/* No thread is ready: report which threads wait where. */
static void report_deadlock(void)
{
    char text[600];
    size_t n = 0;
    thread *first = NULL;
    std::map<std::pair<const char *, int>, std::pair<int, thread *>> places;
    for (int i = 0; i < G->n_threads; i++) {
        thread *t = &G->threads[i];
        if (!(t->w->alive >> t->lane & 1))
            continue;
        auto &p = places[{t->here.file, t->here.line}];
        if (!p.first++)
            p.second = t;
        if (!first)
            first = t;
    }
    for (auto &p : places)
        if (n < sizeof text - 100)
            n += snprintf(text + n, sizeof text - n, "%s%d thread(s), the first of them %d of block %u, in %s at line %d",
                          n ? "; " : "", p.second.first, thread_number(p.second.second),
                          p.second.second->block->idx.x, p.second.second->what, p.first.second);
    report_fault(first, first->here, "deadlock: %s", text);
}

/* ---- scheduling ---- */

static thread *next_thread(void)
{
    int start = G->at, n = G->n_warps;
    if (G->random && xorshift(&G->random) % 4 == 0)
        start = xorshift(&G->random) % n;
    for (int i = 0; i < n; i++) {
        int at = start + i < n ? start + i : start + i - n;
        warp *w = &G->warps[at];
        if (!w->ready)
            continue;
        unsigned later = w->ready & ~0u << w->after;
        int lane = __builtin_ctz(later ? later : w->ready);
        w->after = later ? w->after : 0;
        if (G->random) {
            int rotation = xorshift(&G->random) & 31;
            unsigned r = w->ready >> rotation | (rotation ? w->ready << (32 - rotation) : 0);
            lane = (__builtin_ctz(r) + rotation) & 31;
        }
        G->at = at;
        w->ready &= ~(1u << lane);
        return &w->lane[lane];
    }
    return NULL;
}

/* The running thread waits: run another; return when it is scheduled again. */
static void switch_thread(void)
{
    thread *me = (thread *)emu_self, *t = next_thread();
    if (t == me)
        return;
    if (*(uint64_t *)me->stack->base != CANARY)
        emu_fault(me->here, "stack overflow: more than %zu KiB (EMU_STACK)", stack_bytes / 1024);
    if (!t) {
        report_deadlock();
        abort_launch();
    }
    if (!t->stack)
        t->stack = stack_new();
    become(t);
    stack_switch(me->stack, t->stack, false);
}

void emu_resolve_nothing(void *const *, unsigned) {}

static void release_warp(warp *w, thread *t)
{
    void *arg[32] = {NULL};
    unsigned present = t->mask & w->at_warp;
    for (unsigned left = present; left; left &= left - 1) {
        thread *o = &w->lane[__builtin_ctz(left)];
        if (o->mask != t->mask || o->resolve != t->resolve)
            emu_fault(o->here, "%s with mask %08x, but lane %d of the mask is in %s with mask %08x at line %d",
                      o->what, o->mask, t->lane, t->what, t->mask, t->here.line);
        arg[o->lane] = o->arg;
    }
    G->resolving = true;
    t->resolve(arg, present);
    G->resolving = false;
    if (t->resolve == emu_resolve_nothing) {
        w->phase++;
        for (unsigned left = present; left; left &= left - 1)
            w->lane[__builtin_ctz(left)].phase = w->phase;
    }
    w->at_warp &= ~present;
    w->ready |= present;
}

static void release_block(block *b)
{
    b->phase++;
    b->result = b->sum;
    b->sum = b->arrived = 0;
    for (int i = 0; i < b->n_warps; i++) {
        b->warps[i].ready |= b->warps[i].at_block;
        b->warps[i].at_block = 0;
    }
}

static void merge_vclock(unsigned vclock[WARPS], const unsigned from[WARPS])
{
    for (int i = 0; i < WARPS; i++)
        vclock[i] = std::max(vclock[i], from[i]);
}

static void release_barrier(block *b, int number)
{
    barrier *at = &b->barriers[number];
    for (warp *w = b->warps; w < b->warps + b->n_warps; w++)
        if (w->barrier == number) {
            merge_vclock(w->vclock, at->vclock);
            w->barrier = 0;
            w->ready |= w->at_barrier;
            w->at_barrier = 0;
        }
    *at = {};
}

static void release_gang(void)
{
    G->arrived = 0;
    G->phase++;
    for (int i = 0; i < G->n_warps; i++) {
        G->warps[i].ready |= G->warps[i].at_gang;
        G->warps[i].at_gang = 0;
    }
}

static thread *wait_at(const char *what, emu_place here)
{
    thread *t = (thread *)emu_self;
    t->what = what;
    t->here = here;
    return t;
}

void emu_collective(unsigned mask, void *arg, emu_resolve *resolve, const char *what, emu_place here)
{
    thread *t = wait_at(what, here);
    warp *w = t->w;
    t->mask = mask;
    t->arg = arg;
    t->resolve = resolve;
    if (!(mask >> t->lane & 1))
        emu_fault(here, "%s: lane %d is not in its own mask %08x", what, t->lane, mask);
    w->at_warp |= 1u << t->lane;
    if (!(mask & w->alive & ~w->at_warp))
        release_warp(w, t);
    switch_thread();
}

int emu_block_barrier(int value, const char *what, emu_place here)
{
    thread *t = wait_at(what, here);
    block *b = (block *)t->block;
    if (b->arrived && (b->first_arrived->here.line != here.line ||
                       strcmp(b->first_arrived->here.file, here.file)))
        emu_fault(here, "divergent barrier: %s, while thread %d waits in %s at %s:%d", what,
                  thread_number(b->first_arrived), b->first_arrived->what,
                  b->first_arrived->here.file, b->first_arrived->here.line);
    if (!b->arrived++)
        b->first_arrived = t;
    if (b->alive < (int)(b->dim.x * b->dim.y * b->dim.z))
        emu_fault(here, "divergent barrier: %s, but %d of %d threads have returned", what,
                  b->dim.x * b->dim.y * b->dim.z - b->alive, b->dim.x * b->dim.y * b->dim.z);
    b->sum += value;
    t->w->at_block |= 1u << t->lane;
    if (b->arrived == b->alive)
        release_block(b);
    switch_thread();
    return b->result;
}

struct arrival {
    int number, threads;
    bool waits;
    emu_place here;
};

/* All lanes of a warp have arrived. */
static void resolve_arrival(void *const *arg, unsigned present)
{
    const arrival *a = (const arrival *)arg[0];
    warp *w = ((thread *)emu_self)->w;
    barrier *at = &w->b->barriers[a->number];
    for (int l = 0; l < 32; l++) {
        const arrival *o = (const arrival *)arg[l];
        if (!(present >> l & 1) || o->number != a->number || o->threads != a->threads || o->waits != a->waits)
            emu_fault(a->here, "barrier %d: a warp's threads are not all there, or not of one mind", a->number);
    }
    if (at->arrived && at->threads != a->threads)
        emu_fault(a->here, "barrier %d is for %d threads, and was for %d", a->number, a->threads, at->threads);
    at->threads = a->threads;
    at->arrived += 32;
    w->vclock[w - w->b->warps]++;
    merge_vclock(at->vclock, w->vclock);
    w->barrier = a->waits ? a->number : 0;
    w->phase += a->waits;
    for (int l = 0; l < 32 && a->waits; l++) /* bar.arrive does not synchronise the lanes */
        w->lane[l].phase = w->phase;
    if (at->arrived == at->threads)
        release_barrier(w->b, a->number);
}

void emu_barrier(int number, int threads, bool waits, const char *what, emu_place here)
{
    warp *w = ((thread *)emu_self)->w;
    arrival a = {number, threads, waits, here};
    if (number < 1 || number >= BARRIERS || threads < 32 || threads % 32 || threads > 32 * w->b->n_warps)
        emu_fault(here, "%s: there is no barrier %d for %d threads", what, number, threads);
    emu_collective(~0u, &a, resolve_arrival, what, here);
    if (w->barrier) {
        w->at_barrier |= 1u << ((thread *)emu_self)->lane;
        switch_thread();
    }
}

void emu_gang_barrier(const char *what, emu_place here)
{
    thread *t = wait_at(what, here);
    if (!G->arrived++)
        G->first_arrived = t;
    if (G->alive < G->n_threads)
        emu_fault(here, "divergent barrier: %s, but %d of %d threads have returned", what,
                  G->n_threads - G->alive, G->n_threads);
    t->w->at_gang |= 1u << t->lane;
    if (G->arrived == G->alive)
        release_gang();
    switch_thread();
}

void emu_yield(void)
{
    thread *t = (thread *)emu_self;
    if (last != cudaSuccess)
        abort_launch();    /* after a fault, what it waits for may never happen */
    G->at = (G->at + 1) % G->n_warps;
    t->w->ready |= 1u << t->lane;
    t->w->after = (t->lane + 1) % 32; /* else it would be scheduled first every time */
    switch_thread();
}

/* The main loop of a stack: it runs thread after thread, as long as the next one has
 * no stack yet. */
static void run_thread(void)
{
#ifdef __SANITIZE_ADDRESS__
    const void *base;
    size_t size;
    __sanitizer_finish_switch_fiber(NULL, &base, &size);
    if (!host_base)            /* the first one, which the host started */
        host_base = base, host_size = size;
#endif
    for (;;) {
        thread *me = (thread *)emu_self;
        warp *w = me->w;
        block *b = w->b;
        stack *s = me->stack;
        G->body(G->arg);
        if (*(uint64_t *)s->base != CANARY)
            emu_fault(me->here, "stack overflow: more than %zu KiB (EMU_STACK)", stack_bytes / 1024);
        if (me->copies)
            emu_copy_wait(0);
        for (deferred *d : me->later)
            if (d && (d->size() > 1 || !d->back().empty()))
                emu_fault(me->here, "returns without having waited for what it put or multiplied");
        w->alive &= ~(1u << me->lane);
        b->alive--;
        G->alive--;
        if (b->arrived)
            emu_fault(b->first_arrived->here, "divergent barrier: this thread returned while thread %d waits in %s",
                      thread_number(b->first_arrived), b->first_arrived->what);
        if (G->arrived)
            emu_fault(G->first_arrived->here, "divergent barrier: this thread returned while thread %d of block %u waits in %s",
                      thread_number(G->first_arrived), G->first_arrived->block->idx.x,
                      G->first_arrived->what);
        for (unsigned left = w->at_warp; left; left &= left - 1) {
            thread *o = &w->lane[__builtin_ctz(left)];
            if (w->at_warp >> o->lane & 1 && !(o->mask & w->alive & ~w->at_warp))
                release_warp(w, o);
        }
        thread *t = next_thread();
        if (t && !t->stack) {
            me->stack = NULL;
            t->stack = s;
            become(t);
            continue;
        }
        if (!t && G->alive) {
            report_deadlock();
            G->broken = true;
        }
        pool->push_back(s);    /* not reused before the switch */
        if (t)
            become(t);
        stack_switch(s, t ? t->stack : &G->host, true);
        abort();
    }
}

/* ---- races ---- */

/* With EMU_RACE the kernels are compiled with -fsanitize=thread, and the functions
 * that the compiler then calls are these.  A race: two threads of a
 * gang, one byte, at least one of them writing, no barrier in between. */
#ifdef EMU_RACE
struct seen {
    unsigned thread, gang, block, arrivals, warp;    /* thread 0: none */
    const char *pc;
};
struct cell {
    uintptr_t at;
    seen write, read[2];     /* reads by two threads: one of them is not the writer */
};
static __thread std::vector<cell> *cells;    /* a hash table with open addresses */
static __thread size_t cells_used;
extern char __executable_start;

static cell *cell_of(uintptr_t at)
{
    for (size_t n = cells->size(), i = at * 0x9e3779b97f4a7c15 >> 20;; i++) {
        cell *c = &(*cells)[i & (n - 1)];
        if (!c->at)
            c->at = at, cells_used++;
        if (c->at == at)
            return c;
    }
}

static void races_forget(void)
{
    if (!cells)
        cells = new std::vector<cell>(1 << 14);
    else if (cells_used < cells->size() / 32)
        std::vector<cell>(1 << 14).swap(*cells);
    else
        memset((void *)cells->data(), 0, cells->size() * sizeof(cell));
    cells_used = 0;
}

static bool clash(const seen *old, const seen *now)
{
    if (!old->thread || old->thread == now->thread || old->gang != now->gang)
        return false;
    const thread *a = &G->threads[old->thread - 1], *b = &G->threads[now->thread - 1];
    if (a->block != b->block)
        return true;
    if (old->block != now->block)
        return false;
    if (a->w != b->w)
        return b->w->vclock[a->w - b->w->b->warps] <= old->arrivals;
    return now->warp <= old->warp;
}

/* The lines of two program counters, as the compiler's debug information has them. */
static void print_lines(const char *pc, const char *other)
{
    char command[600];
    snprintf(command, sizeof command, "addr2line -se /proc/%d/exe %#zx %#zx >&2", getpid(),
             (size_t)(pc - 1 - &__executable_start), (size_t)(other - 1 - &__executable_start));
    if (system(command))
        fprintf(stderr, "%s\n", command);
}

/* Global memory is one range of addresses, so that whether a byte has been written stands
 * at its offset in another. */
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
            print_lines(pc, pc);
        abort_launch();
    }
}

static void race_access(const void *p, size_t bytes, bool write, const char *pc)
{
    thread *t = (thread *)emu_self;
    if (!t || G->broken || G->resolving || ((char *)p >= t->stack->base && (char *)p < t->stack->base + stack_bytes))
        return;
    init_access(t, p, bytes, write, pc);
    if (cells_used > cells->size() / 2) {      /* grow: rehash into a new table */
        std::vector<cell> old(cells->size() * 4);
        old.swap(*cells);
        for (cell &c : old)
            if (c.at)
                *cell_of(c.at) = c;
    }
    seen now = {(unsigned)(t - G->threads) + 1, G->phase, ((block *)t->block)->phase,
                t->w->vclock[t->w - t->w->b->warps], t->phase, pc};
    for (uintptr_t at = (uintptr_t)p; at < (uintptr_t)p + bytes; at++) {
        cell *c = cell_of(at);
        const seen *other = clash(&c->write, &now) ? &c->write : NULL;
        for (int i = 0; i < 2 && write; i++)
            if (clash(&c->read[i], &now))
                other = &c->read[i];
        if (other) {
            thread *o = &G->threads[other->thread - 1];
            if (report_fault(t, {"race", 0}, "%s what thread %d of block %u %s, with no barrier in between",
                             write ? "writes" : "reads", thread_number(o), o->block->idx.x,
                             other == &c->write ? "wrote" : "read"))
                print_lines(pc, other->pc);
            abort_launch();
        }
        if (write)
            c->write = now;
        else
            c->read[c->read[0].thread && c->read[0].thread != now.thread && clash(&c->read[0], &now)] = now;
    }
}

/* Atomics do not race; a compare-and-exchange follows a load, so that it initialises nothing. */
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

/* Each allocation has pages of its own, and one more behind it. */
static size_t range_bytes(size_t n)
{
    return (n + 8191) / 4096 * 4096;
}

static char *global_alloc(size_t n)
{
    std::lock_guard<std::mutex> hold(lock);
    if (!range)
        range = map_range(), written = map_range();
    if (!range || !written || range_bytes(n) > RANGE - range_used)
        return NULL;
    char *p = range + range_used;
    range_used += range_bytes(n);
    return (char *)memset(p, 0xff, n);
}

/* (The caller holds the lock.) */
static void global_free(char *p, size_t n, bool last)
{
    madvise(p, range_bytes(n), MADV_DONTNEED);
    madvise(written + (p - range), range_bytes(n), MADV_DONTNEED);
    if (last)
        range_used = 0;
}

/* The host writes to global memory, or copies from it what may be written or not. */
static void host_write(const void *to, size_t n, const void *from)
{
    const size_t at = (const char *)to - range, was = (const char *)from - range;
    if (!range || at >= RANGE)
        return;
    if (was < RANGE)
        memmove(written + at, written + was, n);
    else
        memset(written + at, 1, n);
}
#else
static inline void races_forget(void) {}
static inline void host_write(const void *, size_t, const void *) {}
static char *poisoned(size_t, size_t);
static char *global_alloc(size_t n) { return poisoned(n, 256); }
static void global_free(char *p, size_t, bool) { free(p); }
static inline void race_access(const void *, size_t, bool, const char *) {}
#endif

/* ---- shared memory ---- */

/* All ones: NaN as a float and as a bf16, -1 as an int. */
static char *poisoned(size_t bytes, size_t aligned = 256)
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

/* cp.async copies as late as allowed, at the wait: data that is not waited for is
 * not there. */
void emu_copy_later(void *to, const void *from, size_t bytes, size_t given)
{
    thread *t = (thread *)emu_self;
    if (((uintptr_t)to | (uintptr_t)from) % bytes)
        emu_fault({"cp.async", 0}, "address not a multiple of %zu", bytes);
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
        emu_fault({"emu_later", 0}, "%zu bytes, and there is room for %zu", bytes, sizeof d.data);
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

/* ---- launches ---- */

static cudaError_t fail(cudaError_t e)
{
    std::lock_guard<std::mutex> hold(lock);
    if (last == cudaSuccess)
        last = e, *detail = 0;
    return e;
}

static int max_dynamic = 48 << 10;

/* Run one gang of the grid, by its number. */
static void run_gang(const cudaLaunchConfig_t *c, dim3 cluster, bool whole, const char *name,
                     uint64_t number, void (*body)(void *), void *arg)
{
    dim3 g = c->gridDim, d = c->blockDim, u = whole ? g : cluster;
    int per_block = d.x * d.y * d.z, warps = (per_block + 31) / 32;
    gang it = {};
    it.n_blocks = u.x * u.y * u.z;
    it.n_warps = it.n_blocks * warps;
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
        b->dynamic = (unsigned char *)poisoned(it.dynamic, 1024);
        b->statics = &statics[i];
        b->alive = per_block;
        b->warps = it.warps + i * warps;
        b->n_warps = warps;
        for (int w = 0; w < warps; w++) {
            warp *p = &b->warps[w];
            int lanes = std::min(32, per_block - 32 * w);
            p->b = b;
            p->lane = it.threads + i * per_block + 32 * w;
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
            pool->push_back(t.stack);
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
    if (c->dynamicSmemBytes > (size_t)max_dynamic)
        return fail(cudaErrorInvalidValue);
    if (g.x % cluster.x || g.y % cluster.y || g.z % cluster.z || cluster.x * cluster.y * cluster.z > 16)
        return fail(cudaErrorInvalidConfiguration);
    if (whole && (uint64_t)g.x * g.y * g.z > 132 * 2)
        return fail(cudaErrorCooperativeLaunchTooLarge);
    int64_t gangs = whole ? 1 : (int64_t)g.x * g.y * g.z / (cluster.x * cluster.y * cluster.z);
    uint64_t step = 1, from = 0, r = seed * 0x9e3779b97f4a7c15 | 1;
    if (seed && gangs > 1) {           /* all of them, in some order */
        from = xorshift(&r) % gangs;
        do
            step = xorshift(&r) % gangs;
        while (std::__gcd<uint64_t>(step, gangs) != 1);
    }
    #pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < gangs; i++)
        if (last == cudaSuccess)
            run_gang(c, cluster, whole, name, (from + i * step) % gangs, body, arg);
    return last;
}

/* ---- the runtime ---- */

struct emu_stream { int unused; };
struct emu_event { struct timespec at; };

static std::map<char *, size_t> memory;

/* Is [p, p + n) within one allocation? */
static bool ours(const void *p, size_t n)
{
    std::lock_guard<std::mutex> hold(lock);
    auto a = memory.upper_bound((char *)p);
    return a != memory.begin() && (--a, (char *)p + n <= a->first + a->second);
}

static const size_t device_memory = (size_t)16 << 30;

cudaError_t emu_malloc(void **p, size_t n)
{
    *p = n > device_memory ? NULL : global_alloc(n);
    if (!*p)
        return fail(cudaErrorMemoryAllocation);
    std::lock_guard<std::mutex> hold(lock);
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

cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    bool to_us = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_us = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (n && ((to_us && !ours(to, n)) || (from_us && !ours(from, n))))
        return fail(cudaErrorInvalidValue);
    memmove(to, from, n);
    host_write(to, n, from);
    return last;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t)
{
    return cudaMemcpy(to, from, n, kind);
}

cudaError_t cudaMemset(void *p, int v, size_t n)
{
    if (n && !ours(p, n))
        return fail(cudaErrorInvalidValue);
    memset(p, v, n);
    host_write(p, n, NULL);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t) { return cudaMemset(p, v, n); }
cudaError_t cudaDeviceSynchronize(void) { return last; }

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    std::lock_guard<std::mutex> hold(lock);
    *free = *total = device_memory;
    for (auto &a : memory)
        *free -= a.second;
    return cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void) { return last; }

/* Unlike on a device a fault is not sticky, unless it is a trap, so that the next test
 * can run. */
cudaError_t cudaGetLastError(void)
{
    std::lock_guard<std::mutex> hold(lock);
    cudaError_t e = last;
    if (!lost)
        last = cudaSuccess;
    return e;
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorCooperativeLaunchTooLarge: return "too many blocks in cooperative launch";
    case cudaErrorLaunchFailure: return *detail ? detail : "unspecified launch failure";
    default: return "unrecognized error code";
    }
}

const char *cudaGetErrorName(cudaError_t e) { return cudaGetErrorString(e); }

cudaError_t cudaGetDeviceCount(int *n)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    *n = !visible || *visible;
    return *n ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *n) { return *n = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int n) { return n ? fail(cudaErrorInvalidDevice) : cudaSuccess; }

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
        max_dynamic = std::max(max_dynamic, value);
    }
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *s) { return *s = new emu_stream(), cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) { return cudaStreamCreate(s); }
cudaError_t cudaStreamDestroy(cudaStream_t s) { return delete s, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return last; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t *e) { return *e = new emu_event(), cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return last; }
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
