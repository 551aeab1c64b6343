/* run.h - a run of training: its updates, its validations, and what the oracle says of it all along. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "common/judge/check.h"
#include "common/train/update.h"

struct trained;
struct checkpoints;

/* What is to be run. */
struct training {
    const struct cell *cell;
    const struct backend *backend;
    struct context *context;
    uint64_t seed;      /* of the start and of the training data */
    uint64_t data_seed; /* of validation and test data */
    const unsigned char *corpus;
    int64_t length[MAX_LENGTHS]; /* of tests besides that at the training length, rising */
    int n_lengths;
    int judged;               /* the oracle goes along (judge.h) */
    int keep;                 /* the weights of the start and of the end, and the first batches */
    const volatile int *stop; /* nonzero: end early */
    /* Where the run is kept while it is not finished (checkpoint.h), and taken up; NULL: nowhere. */
    const struct checkpoints *checkpoints;
    /* Called after updates, some times a second at most; or NULL. */
    void (*report)(const struct training *t, const struct trained *r);
    void *data; /* report()'s */
};

/* How a run ended. */
enum run_end { RUN_DONE, RUN_STOPPED, RUN_DIVERGED, RUN_ENDS };
extern const char *const run_ends[]; /* "done", "stopped", "diverged" */

/* A validation: the mean loss, in nats, and the share of targets that were hit. */
struct validation {
    int64_t update;
    double loss, accuracy;
    double seconds; /* of training, without validations and judgement, until then */
};

/* An update that was judged, and how. */
struct judged_at {
    int64_t update, rows; /* rows of step parity; 0: none */
};

enum { KEPT_BATCHES = 5 };

/* What has come of it. */
struct trained {
    const struct training *of;
    int64_t done; /* updates that were made */
    enum run_end end;
    double *loss, *norm, *factor, *rate, *scale; /* of each update */
    unsigned char *skipped;
    int64_t n_skipped;
    struct validation *validation;
    int n_validations;
    int64_t
        learned; /* the update of the first of `patience` validations that reached the target; 0: it did not */
    struct evaluated test;     /* at the end, of the last weights */
    struct evaluated *test_at; /* the same at each of the lengths; NULL: none */
    double seconds;            /* of training alone */
    int64_t
        timed; /* updates whose time counts: not judged, and behind those that load and record kernels */
    double timed_seconds;
    int64_t bytes;    /* on the device */
    int64_t elements; /* of start, final: the layout's */
    struct layout layout;
    double *start, *final;                              /* weights, where they are kept */
    double *token[KEPT_BATCHES], *target[KEPT_BATCHES]; /* [T,B], where they are kept */
    struct judged_at *judged;
    int n_judged;
    /* Free running: the updates in which the loss was held against the oracle's own run, the largest distance, and what
     * was allowed then. */
    int64_t free_updates;
    double free_error, free_bound;
    char resumed_anyway
        [64];    /* what of a checkpoint that it went on from was another's, "build"; or "" */
    char **text; /* of verdicts that were read from a checkpoint */
    int n_texts;
};

/* Nonzero after err_set() where a run was not possible, or was asked to end early: its checkpoint is then written, unless that
 * is the error; trained_free() in any case, when the verdicts, which go to `list`, are no longer needed. */
int train(const struct training *t, struct verdicts *list, struct trained *to);
void trained_free(struct trained *r);

/* Of a run to its end: how many updates are judged, on a backend on which they are, and after how many it is
 * validated. */
int64_t cell_judged(const struct cell *c);
int64_t cell_validations(const struct cell *c);

/* Tokens per second of training until now. */
double trained_rate(const struct trained *r);

#endif
