/* trials.h - the trials of a plan, one after the other, or runs of training side by side. */
#ifndef EXPERIMENTS_TRIALS_H
#define EXPERIMENTS_TRIALS_H

#include "common/report/report.h"
#include "common/store/store.h"

struct trials {
    struct experiment *x; /* of trials that confirm the rates become known */
    struct store *store;
    const struct baseline *b; /* that times are compared with; or NULL */
    struct report *report;
    const volatile int *stop; /* nonzero: end early */
    int errors;               /* trials that could not be run, */
    int bad;                  /* and those of them whose input was not right */
};

/* Run all that are not in the store yet.  Nonzero after err_set() where the file cannot be written, or read for the
 * baseline. */
int trials_run(struct trials *r);

#endif
