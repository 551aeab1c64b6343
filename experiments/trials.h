/* trials.h - the trials of a plan: one after the other, runs of training side by side, or dealt out to processes. */
#ifndef EXPERIMENTS_TRIALS_H
#define EXPERIMENTS_TRIALS_H

#include "experiments/processes.h"
#include "experiments/until.h"
#include "common/report/report.h"
#include "common/store/store.h"

struct trials {
    struct experiment *x; /* of trials that confirm the rates become known */
    struct store *store;
    const struct baseline *b; /* that times are compared with; or NULL */
    struct report *report;
    const volatile int *stop;    /* nonzero: end early */
    struct processes *processes; /* that runs them; NULL: this process does */
    struct until until;
    int report_how; /* REPORT_ flags */
    int errors;     /* trials that could not be run, */
    int bad;        /* and those of them whose input was not right */
};

/* Run all that are not in the store yet.  Nonzero after err_set() where the file cannot be written, or read for the
 * baseline. */
int trials_run(struct trials *r);

/* ---- dealing, in this process or to others ---- */

struct dealing {
    struct trials *r;
    char *begun;   /* of each trial */
    double *began; /* when */
    double *work;  /* expected_work() */
    int lost;      /* the file cannot be written: end */
};
/* Nonzero after err_set().  Of what is in the store the report says so. */
int dealing_begin(struct dealing *d, struct trials *r);
/* Trial i can begin: it has not, its rate is known, and there is time for it. */
int dealing_ready(struct dealing *d, int i);
/* It does. */
void dealing_start(struct dealing *d, int i);
/* One that has ended: e is what trial_run() returned, and err_text() says why. */
int dealing_keep(struct dealing *d, int i, int e, const struct result *r);
/* One that a worker has run, in a file of its own, and what its report has. */
int dealing_take(struct dealing *d, int i, const char *file, const char *lines,
                 const struct report_sums *sums);
/* All that can be have ended; and it is freed.  Or that alone. */
void dealing_end(struct dealing *d);
void dealing_free(struct dealing *d);

#endif
