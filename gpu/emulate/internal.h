/* internal.h - the common parts of the emulator: threads, warps, blocks and gangs.
 *
 *     stack.cc     the fibers' stacks, and switching between them
 *     fault.cc     faults of a kernel, and the runtime's error codes
 *     schedule.cc  which thread runs next; barriers and warp collectives
 *     race.cc      EMU_RACE: races, and reads of memory that nothing has written
 *     memory.cc    shared and global memory; operations that are done later
 *     launch.cc    launches; the device, streams and events
 */
#ifndef EMULATE_INTERNAL_H
#define EMULATE_INTERNAL_H

#include "config.h"

#include "gpu/emulate/emulate.h"

#include <stdlib.h>
#include <vector>

#ifdef EMU_UCONTEXT
#include <ucontext.h>
#endif

namespace emu {

struct stack {
    char *base;                /* its lowest address, which holds a canary */
    void *sp;                  /* the stack pointer while it does not run */
#ifdef EMU_UCONTEXT
    ucontext_t uc;
#endif
    void *fake;                /* ASan's fake stack; TSan's fiber */
    bool abandoned;            /* its last thread has not returned */
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
    unsigned phase;            /* the warp's phase at the last __syncwarp */
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


extern __thread gang *G;       /* of this host thread */

static inline int env(const char *name, int otherwise)
{
    const char *v = getenv(name);
    return v && *v ? atoi(v) : otherwise;
}

static inline uint64_t xorshift(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    return *x ^= *x << 17;
}

/* ---- stack.cc ---- */

stack *stack_new(void);
void stack_free(stack *s, bool abandoned); /* not reused before this host thread's next stack_new() */
void stack_switch(stack *from, stack *to, bool for_ever);
void stack_entered(void);      /* called first on a new stack */
void stack_check(const thread *t);    /* a fault if t has used more than its stack */
bool stack_contains(const stack *s, const void *p);

/* ---- fault.cc ---- */

int thread_number(const thread *t);
/* Reports only the first fault of a launch; returns whether it was this one. */
bool report_fault(const thread *t, emu_place here, const char *fmt, ...);
[[noreturn]] void abort_launch(void);
cudaError_t fail(cudaError_t e);

/* ---- schedule.cc ---- */

thread *next_thread(void);
void become(thread *t);        /* make t the running thread */
void run_thread(void);         /* the main loop of a stack */

/* ---- memory.cc ---- */

/* Memory of all ones: NaN as a float and as a bf16, -1 as an int. */
char *poisoned(size_t bytes, size_t aligned = 256);
static const size_t device_memory = (size_t)16 << 30;

/* ---- race.cc ---- */

#ifdef EMU_RACE
void races_forget(void);
void race_access(const void *p, size_t bytes, bool write, const char *pc);
/* Global memory; one call at a time. */
char *global_alloc(size_t n);
void global_free(char *p, size_t n, bool last);
void host_write(const void *to, size_t n, const void *from);
bool reads_unwritten(const void *from, size_t n);
#else
static inline void races_forget(void) {}
static inline void race_access(const void *, size_t, bool, const char *) {}
static inline char *global_alloc(size_t n) { return poisoned(n); }
static inline void global_free(char *p, size_t, bool) { free(p); }
static inline void host_write(const void *, size_t, const void *) {}
static inline bool reads_unwritten(const void *, size_t) { return false; }
#endif

}

#endif
