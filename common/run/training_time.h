/* training_time.h - how long the runs of an experiment will take, and how large their models are, before any has run.
 *
 * Of each model on each task some updates are made on the backend, with the threads and in the batch that its runs will
 * have, and timed, up to half a second; so are a validation's batch, the tests at other lengths, and where a GPU is judged an
 * update that is judged and one beside which the oracle runs freely.  A run's time is these, times how often it does each.
 * What would take long to time once (a test at a great length) is computed from the FLOPs of forward.
 *
 * Runs that go side by side slow each other down, on a GPU most of all: updates are timed once more in as many threads as
 * there will be runs side by side, at the same time. */
#ifndef TRAINING_TIME_H
#define TRAINING_TIME_H

#include "common/plan/plan.h"
#include "common/train/size.h"

/* The runs of one model on one task. */
struct cell_cost {
    int first, n; /* the first trial, from 0, and how many there are */
    struct cell_size size;
    double memory;     /* bytes on this machine, of one run */
    double seconds;    /* of all its runs, one after the other */
    double together;   /* of all its runs, as many side by side as beside_count() says */
    int at_most;       /* a run may end early: stop = yes */
    char unknown[300]; /* why there is no time; "": there is one */
};

/* The parts of a run, in seconds, each of one; 0: there is none of that. */
struct run_parts {
    double open;                  /* memory, weights, and what the first update takes longer */
    double update, judged;        /* an update; one that is judged */
    double free_begin, free_step; /* the oracle's own run, and an update of that */
    double batch;                 /* of a validation, and of the test at the training length */
    double lengths;               /* the tests at all other lengths, whole */
};
double training_run_seconds(const struct run_parts *s, const struct cell *c);

/* Of an experiment of measure = train, as many as *n says; NULL after err_set().  To be freed. */
struct cell_cost *training_costs(const struct experiment *x, int *n);
/* The time of all its runs, side by side. */
double training_seconds(const struct cell_cost *costs, int n);

#endif
