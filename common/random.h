/* random.h - cases drawn from the contracts, to see whether the judgement is
 * right: no case may fail that is right. */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdio.h>

#include "common/plan.h"

struct random {
    uint64_t seed;
    int64_t from, below;   /* the cases: from 0 */
    const struct op *only; /* NULL: of all operations */
    int checks;            /* CHECK_ flags */
};

/* Case i depends on nothing but the seed, its number and `only`: an operation, its sizes around
 * 1, primes, powers of two and those next to them, every choice, real numbers in their range and
 * now and then at its ends, both storage types, initial states that are 0 or not.  Nonzero after
 * err_set() where the contract refuses whatever is drawn. */
int random_trial(const struct random *r, int64_t i, struct trial *t);

/* Make t smaller, one parameter after the other nearer to its least or its default, as long as
 * fails() says that it still fails. */
void random_shrink(struct trial *t, int (*fails)(const struct trial *t, void *data), void *data);

struct random_count {
    int64_t cases, failed,
        unjudged; /* cases, and those in which a check failed or cannot be judged */
    int64_t checks, skipped;
    int64_t next; /* the case to go on with, where it was stopped */
};

/* Run them all on every backend that is there, with every kernel that accepts the case.  Of each
 * that fails `to` gets the line that runs it again, and that of a smaller one which still fails.
 * Where it cannot go on it returns why, after err_set(). */
enum {
    RANDOM_REFUSED = 1, /* a contract refuses whatever is drawn */
    RANDOM_LOST         /* a device was lost */
};
int random_run(const struct random *r, const volatile int *stop, FILE *to,
               struct random_count *count);

#endif
