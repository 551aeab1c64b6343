/* watch.h - who waits for what a thread runs: it can ask for an early end, and is told of each pass. */
#ifndef WATCH_H
#define WATCH_H

#include "common/call/call.h"

struct watch {
    const volatile int
        *stop; /* nonzero, set by a signal handler or another thread: end early; or NULL */
    void (*ran)(const struct call *f, enum pass p,
                void *data); /* after each run of a pass; or NULL */
    void (*part)(double part,
                 void *data); /* of a trial that says how far it is, 0 ... 1; or NULL */
    void *data;
};

/* From now on this thread is watched so; NULL: it is not.  The watch must stay until then. */
void watch_begin(const struct watch *w);
/* Nonzero after err_set("interrupted"), where an early end was asked for. */
int watch_stopped(void);
void watch_ran(const struct call *f, enum pass p);
void watch_part(double part);

#endif
