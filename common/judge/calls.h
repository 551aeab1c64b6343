/* calls.h - a program judged call by call.
 *
 * A model's gradients pass through many roundings, so that the bounds of the whole are wide: in bf16 some percent.
 * Here each call, both passes, is held against the oracle by itself, on the tensors that it had before it; and a layer
 * by the calls that it makes within (contract.h, struct layer_part): a weight's gradient that is off by 1e-3 is seen.  What
 * backward reads must be what forward wrote, and what it makes again have the same bits; and a run whose calls are
 * looked at must end in the bits of one that nobody looked at. */
#ifndef CALLS_H
#define CALLS_H

#include "common/judge/sampled.h"
#include "common/program/program.h"

/* Of each call, its tensors as they were. */
struct calls {
    struct program_watch watch; /* the first member */
    const struct call *f;       /* the program's, on a backend, of its kernel */
    uint64_t seed;              /* of samples */
    double much; /* the work (sample_work()) from which on a call is judged by a sample */
    /* A call that is given larger values, inputs or gradients of outputs, or no numbers, is not judged, but counted; 0: each
     * is judged. */
    double most;
    int beyond;
    struct verdicts *list;
    struct seen *seen;
    int failed; /* after err_set(), whose text is kept */
    char why[400];
};

/* Nonzero after err_set(); to be ended in any case. */
int calls_begin(struct calls *c, const struct call *f, uint64_t seed, struct verdicts *list);
void calls_end(struct calls *c);

/* A verdict for each result of each call, named by its line: "1.m.d_W_k"; and one for each result of `got`, of a run of
 * f on its inputs, that has other bits where the calls are looked at.  Nonzero after err_set(). */
int check_calls(const struct call *f, const struct tensors *got, uint64_t seed,
                struct verdicts *list);
/* One call by itself, as check_calls() judges each of a program's: on its tensors t, these of its results, NULL: all.
 * Verdicts have the name before the tensor's.  c is of calls_begin(), or has seed, much and list alone. */
int check_one_call(struct calls *c, const char *name, const struct call *f, const struct tensors *t,
                   const struct results *only);
/* check_case(), or of a program that is too large for that (j->sampled) check_calls(). */
int check_ran(const struct judge *j, const struct call *f, const struct tensors *got,
              struct verdicts *list);
/* The same run, looked at by `watch`, which is c's, or calls it. */
int calls_run(struct calls *c, const struct program_watch *watch, const struct tensors *got);

#endif
