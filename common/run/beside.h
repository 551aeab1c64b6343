/* beside.h - runs of training side by side, each on a thread of its own, with contexts of its own: on a CPU as many as
 * there are processors, with one of them each, since a small model's loops are too short to be shared; on a GPU several
 * streams, each with its graph.  A run has the bits that it has alone. */
#ifndef RUN_BESIDE_H
#define RUN_BESIDE_H

#include "common/run/result.h"

/* How many of these trials are to go side by side, by processors, or by x->per_device on a GPU (0: 4), and by the memory of
 * both, of which x->workers_here workers have a share each; 1 unless they are runs of training. */
int beside_count(const struct experiment *x);

/* What the caller's thread does, one call at a time. */
struct beside {
    const struct experiment *x;
    int n;                    /* side by side, 1 or more */
    const volatile int *stop; /* nonzero: those that run end early, and none begins */
    /* The next trial that can begin now, whose rate is known, into *t; -1: none. */
    int (*next)(struct trial *t, void *data);
    /* A trial ended: e is what trial_run() returned, and err_text() says why.  Nonzero: as *stop. */
    int (*ended)(int trial, int e, const struct result *r, void *data);
    /* Some times a second: those that run, and how far each is, 0 ... 1; or NULL. */
    void (*running)(const int *trial, const double *part, int n, void *data);
    void *data;
};

/* Until next() has none and all have ended.  Nonzero where ended() was, or after err_set(): no thread could be started. */
int beside_run(const struct beside *b);

#endif
