/* runs.h - the runs of an experiment of measure = train (store/read_runs.h reads them). */
#ifndef ABLATION_RUNS_H
#define ABLATION_RUNS_H

#include <stdint.h>

#include "common/train/run.h"

enum { RUN_NAME = 64, MAX_TESTS = MAX_LENGTHS + 1 };

/* A test of the last weights. */
struct run_test {
    int64_t length; /* tokens of a sequence */
    double accuracy, loss;
};

struct stored_run {
    int trial;                              /* from 0 */
    char variant[RUN_NAME], task[RUN_NAME]; /* as the file has them: to be made printable */
    int unnamed; /* it is of words, and called by its mixer and its task */
    double rate;
    uint64_t seed;
    int confirms; /* it was made at the best rate of a search */
    enum run_end end;
    double chance; /* accuracy of a guess: one by the number of classes */
    int in_bits;   /* the task is judged by bits a token, the fewer the better; else by accuracy */
    int64_t updates,
        learned;      /* that were made; the one at which it reached its target, 0: it did not */
    int64_t tokens;   /* of an update */
    double validated; /* accuracy of the last validation; in_bits: its bits */
    double to_target; /* seconds of training until then; INFINITY */
    double seconds, tokens_per_s; /* of training */
    double parameters, inner, state_bytes,
        flops;   /* inner: without embedding and head; flops: a token's; NAN: not known */
    int n_tests; /* the first is at the training length, the others at those of `eval`, rising */
    struct run_test test[MAX_TESTS];
};

struct runs {
    int n;
    struct stored_run *run;
    int unfinished; /* trials that are not in the file as yet */
    int unnamed; /* of words, which name no variants: several are not compared, and not among the n */
};

/* What a test says: accuracy, or bits.  A run that diverged is at chance. */
double run_value(const struct stored_run *r, const struct run_test *t);

#endif
