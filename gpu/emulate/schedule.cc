/* schedule.cc - which thread runs next; barriers and warp collectives. */
#include "gpu/emulate/internal.h"

#include <map>

using namespace emu;

__thread struct emu_thread *emu_self;
__thread uint3 threadIdx, blockIdx;
__thread dim3 blockDim, gridDim;
__thread gang *emu::G;

/* ---- scheduling ---- */

void emu::become(thread *t)
{
    emu_self = t;
    threadIdx = t->idx;
    blockIdx = t->block->idx;
}

thread *emu::next_thread(void)
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

/* No thread is ready: reports which threads wait where. */
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

/* The running thread waits: runs another one, and returns when this one is scheduled again. */
static void switch_thread(void)
{
    thread *me = (thread *)emu_self, *t = next_thread();
    if (t == me)
        return;
    stack_check(me);
    if (!t) {
        report_deadlock();
        abort_launch();
    }
    if (!t->stack)
        t->stack = stack_new();
    become(t);
    stack_switch(me->stack, t->stack, false);
}

void emu_yield(void)
{
    thread *t = (thread *)emu_self;
    if (cudaPeekAtLastError() != cudaSuccess)
        abort_launch();    /* after a fault, what it waits for may never happen */
    G->at = (G->at + 1) % G->n_warps;
    t->w->ready |= 1u << t->lane;
    t->w->after = (t->lane + 1) % 32; /* else it would be scheduled first every time */
    switch_thread();
}

/* ---- warp collectives and barriers ---- */

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
                       (b->first_arrived->here.file != here.file &&
                        strcmp(b->first_arrived->here.file, here.file))))
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

/* Called when all lanes of a warp have arrived at a named barrier. */
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

/* ---- threads ---- */

/* Runs one thread after another on this stack, while the next one has no stack yet. */
void emu::run_thread(void)
{
    stack_entered();
    for (;;) {
        thread *me = (thread *)emu_self;
        warp *w = me->w;
        block *b = w->b;
        stack *s = me->stack;
        G->body(G->arg);
        stack_check(me);
        if (me->copies)
            emu_copy_wait(0);
        for (deferred *d : me->later)
            if (d && (d->size() > 1 || !d->back().empty()))
                emu_fault(me->here, "returns without having waited for its copies or products");
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
        stack_free(s, false);
        if (t)
            become(t);
        stack_switch(s, t ? t->stack : &G->host, true);
        abort();
    }
}
