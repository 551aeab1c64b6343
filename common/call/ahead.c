/* Tensors put there ahead of a run (ahead.h). */
#include "config.h"

#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/call/ahead.h"
#include "common/call/transfer.h"

enum { MAX_AHEAD = 3 * MAX_ARGS, ALIGNED = 256 };

/* Values here, and where in the memory there they go. */
struct item {
    const void *values;
    int64_t n, at;
    enum dtype type;
};

struct ahead {
    struct call call;
    struct item item[MAX_AHEAD];
    int n;
    int64_t bytes;
    char *there; /* NULL: it was given back */
    pthread_t thread;
    int running;
    atomic_int ending; /* nobody wants the rest */
    int done;          /* items that are there */
    struct ahead_times times;
};

static const struct memory *memory_of(const struct ahead *a)
{
    return &a->call.backend->machine->memory;
}

/* ---- what is put there ---- */

static void add(struct ahead *a, const void *values, int type, int64_t n)
{
    if (!values)
        return;
    a->item[a->n++] = (struct item){values, n, a->bytes, (enum dtype)type};
    a->bytes += (n * (int64_t)types[type].bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static void list(struct ahead *a, const struct tensors *t)
{
    const struct call *f = &a->call;

    for (int i = 0; i < f->op->n_args; i++) {
        const int64_t n = op_count(f, i);
        const unsigned flags = f->op->arg[i].flags;
        if (!n)
            continue;
        if (flags & IN)
            add(a, tensors_values(t, i, 0), f->type[i], n);
        if (flags & OUT && flags & DIFF)
            add(a, t->g[i], f->grad_type[i], n);
        if (call_accumulates(f, i))
            add(a, t->g0[i], f->grad_type[i], n);
    }
}

/* Is there room beside the run, whose memory the machine may have already? */
static int fits_beside(const struct ahead *a)
{
    const int64_t left = memory_of(a)->left(a->call.context), needs = op_memory(&a->call);

    return left >= needs && left - needs - needs / 16 >= a->bytes + a->bytes / 16;
}

/* ---- the thread ---- */

/* Its own, whatever others do on the same cores. */
static double thread_seconds(void)
{
    struct timespec t = {0, 0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A failure ends it: the run puts that tensor there itself, and says why it cannot. */
static void *put(void *data)
{
    struct ahead *a = data;
    const struct machine *m = a->call.backend->machine;
    int e = 0;

    omp_set_num_threads(1); /* of this thread: the others are the references' */
    if (m->device.enter)
        m->device.enter(a->call.context);
    while (!e && a->done < a->n && !atomic_load(&a->ending)) {
        const struct item *o = &a->item[a->done];
        e = transfer_put(&a->call, o->type, a->there + o->at, o->values, o->n);
        a->done += !e;
    }
    a->times.worked = thread_seconds();
    return NULL;
}

/* Signals are the other threads'. */
static int start(struct ahead *a)
{
    sigset_t all, was;

    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &was))
        return -1;
    a->running = pthread_create(&a->thread, NULL, put, a) == 0;
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    return a->running ? 0 : -1;
}

struct ahead *ahead_begin(const struct call *f, const struct tensors *t)
{
    const struct memory *m = &f->backend->machine->memory;
    struct ahead *a = m->copy ? calloc(1, sizeof *a) : NULL;

    if (!a)
        return NULL;
    a->call = *f;
    list(a, t);
    if (a->bytes >= AHEAD_LEAST && fits_beside(a) && (a->there = m->aside(f->context, a->bytes)) &&
        !start(a))
        return a;
    ahead_drop(a);
    free(a);
    return NULL;
}

void ahead_wait(struct ahead *a)
{
    const double began = seconds_now();

    if (!a || !a->running)
        return;
    pthread_join(a->thread, NULL);
    a->running = 0;
    const double waited = seconds_now() - began;
    a->times.hidden = a->times.worked > waited ? a->times.worked - waited : 0;
}

const void *ahead_find(struct ahead *a, const void *values, enum dtype type, int64_t n)
{
    ahead_wait(a);
    for (int i = 0; a && a->there && i < a->done; i++)
        if (a->item[i].values == values && a->item[i].type == type && a->item[i].n == n)
            return a->there + a->item[i].at;
    return NULL;
}

void ahead_drop(struct ahead *a)
{
    ahead_wait(a);
    if (a && a->there)
        memory_of(a)->free(a->call.context, a->there);
    if (a)
        a->there = NULL;
}

struct ahead_times ahead_end(struct ahead *a)
{
    struct ahead_times times = {0, 0};

    if (!a)
        return times;
    atomic_store(&a->ending, 1);
    ahead_drop(a);
    times = a->times;
    free(a);
    return times;
}
