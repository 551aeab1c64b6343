/* random_cases.h - cases drawn from the contracts, to test the judgement itself: a
 * correct kernel may not fail. */
#ifndef RANDOM_CASES_H
#define RANDOM_CASES_H

#include <stdio.h>

#include "common/plan/plan.h"

struct random {
    uint64_t seed;
    int64_t from, below;       /* the cases: from 0 */
    const struct op *only;     /* NULL: of all operations */
    int checks;                /* CHECK_ flags */
    int sampled;               /* large cases, judged by a sample */
    struct contexts *contexts; /* where judged backends run */
    /* NULL, or what all cases are but for the parameters whose bits are set in `drawn`. */
    const struct trial *of;
    uint64_t drawn;
};

/* Case i depends only on the seed, i and `only`.  It has an operation; sizes around 1, primes,
 * powers of two and their neighbours; any choice; real numbers in their range and sometimes at its
 * ends; one of the storage types; initial states that are 0 or not; and gradients that backward
 * overwrites or, in a quarter of the cases, adds to.  With `sampled` some sizes are up to 20 000, and
 * an axis of a result is longer than a sample.  Nonzero after err_set() if the contract refuses all
 * cases that are drawn. */
int random_trial(const struct random *r, int64_t i, struct trial *t);

/* The FLOP and bytes of a case, by which cases are small. */
double random_work(const struct call *f);

/* Parameter i of f a step nearer to its minimum or its default, the k-th way to do so, and f complete.
 * 0: there is no such way; 1; or -1: the operation refuses that. */
int random_reduce(struct call *f, int i, int k);

/* Makes t smaller: it overwrites gradients, and one parameter after the other comes nearer to its
 * minimum or its default, as long as fails() returns that the case still fails. */
void random_shrink(struct trial *t, int (*fails)(const struct trial *t, void *data), void *data);

struct random_count {
    int64_t cases, failed,
        unjudged; /* cases, and those in which a check failed or cannot be judged */
    int64_t checks, skipped;
    int64_t next; /* the next case, if the run was stopped */
};

/* Runs all cases on every available backend, with every kernel that accepts the case.  For each
 * case that fails it prints to `to` the command that runs it again, and the command of a smaller
 * case that still fails.  Returns one of these after err_set() if it cannot continue. */
enum {
    RANDOM_REFUSED = 1, /* a contract refuses all cases that are drawn */
    RANDOM_LOST         /* a device was lost */
};
int random_run(const struct random *r, const volatile int *stop, FILE *to,
               struct random_count *count);

#endif
