/* recorded.h - times of passes that are recorded, of a program's calls one by one too. */
#ifndef RECORDED_H
#define RECORDED_H

#include <stdint.h>
#include <stdlib.h>

#include "common/call/machine.h"
#include "common/program/program.h"

enum { TIMES = 21 };

static inline int times_by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median seconds of these passes as one recording; negative: they cannot be recorded, or run. */
static inline double time_of(const struct pass_of *list, int n)
{
    const struct timekeeping *t = &list->call->backend->machine->timing;
    struct context *x = list->call->context;
    double seconds[TIMES];
    void *recorded = NULL;
    int e = t->record(list, n, &recorded);

    for (int i = 0; !e && i < 5; i++)
        e = t->replay(x, recorded);
    for (int i = 0; !e && i < TIMES; i++)
        e = t->start(x) || t->replay(x, recorded) || t->stop(x, &seconds[i]);
    if (recorded)
        t->forget(recorded);
    qsort(seconds, TIMES, sizeof *seconds, times_by_size);
    return e ? -1 : seconds[TIMES / 2];
}

/* The sum of a program's calls' own times. */
struct sum_of_times {
    struct program_watch watch; /* the first member */
    double seconds[N_PASSES];
    int n, failed;
};

static inline int add_time(const struct program_watch *w, int i, enum pass p, int after,
                           const struct call *f)
{
    struct sum_of_times *s = (struct sum_of_times *)(void *)(uintptr_t)w;
    const struct pass_of one = {f, p};

    (void)i;
    if (!after)
        return 0;
    const double seconds = time_of(&one, 1);
    s->failed |= seconds < 0;
    s->seconds[p] += seconds;
    s->n++;
    return 0;
}

/* Of both passes of a placed call of a program, which have run. */
static inline struct sum_of_times sum_of_calls(const struct call *f)
{
    struct sum_of_times sum = {.watch = {add_time}};
    struct impl watched = *f->kernel;
    struct call looked = *f;

    watched.data = &sum.watch;
    looked.kernel = &watched;
    sum.failed |= call_pass(&looked, FORWARD) || call_pass(&looked, BACKWARD);
    return sum;
}

#endif
