/* store.h - the HDF5 file of an experiment.
 *
 *     /                          attributes schema, version, ini, seed, host, device, compiler, date
 *     /trial/0003                attributes: op, every size and choice by name, line
 *     /trial/0003/in/x           inputs, the same for all backends
 *     /trial/0003/dout/out       gradients of outputs and final states
 *     /trial/0003/ref64/out      outputs, per backend
 *     /trial/0003/ref64/d/x      gradients, per backend
 *     /trial/0003/check          table of verdicts
 *     /trial/0003/time           table of times
 *
 * It is written as NAME.h5.part and renamed by store_finish().  A trial is
 * there whole or not at all: the room it needs is reserved on disk before
 * anything is written, metadata goes to disk only in one flush at its end,
 * and its attribute `complete` is set last. */
#ifndef STORE_H
#define STORE_H

#include "common/check.h"
#include "common/plan.h"

struct store;

/* What one backend did in a trial. */
struct ran {
    const struct backend *backend;
    const struct impl *kernel;
    struct tensors *t;           /* its outputs and gradients */
    struct outcome outcome;
};

struct result {
    const struct trial *trial;
    const struct tensors *inputs;     /* inputs, and gradients of outputs */
    struct ran ran[16];
    int n_ran;
    struct verdicts verdicts;
    int skipped;                      /* checks that could not be made */
    int failed;                       /* verdicts failed, and errors */
    char skips[1024];                 /* what was skipped and why, one line each */
};

/* Begin x's file.  With `resume` go on with an existing NAME.h5.part, or with
 * a finished NAME.h5, of the same plan (another plan is an error), whose
 * finished trials stay.  Without it a finished file of that name is replaced
 * at the end, a part thrown away now.  NULL after err_set(): not writable,
 * not readable, another plan. */
struct store *store_open(const struct experiment *x, int resume);
/* Is trial i (from 0) there already?  Then its counts, as store_write() was given them. */
int store_has(struct store *s, int i, int *n_checks, int *failed, int *skipped);
/* Write trial i; nonzero after err_set(), e.g. "e74.h5.part: needs 12.3 MiB
 * more: No space left on device"; the finished trials stay readable. */
int store_write(struct store *s, int i, const struct result *r);
/* Close it, and give it its name if all trials are there (`complete`). */
int store_close(struct store *s, int complete);
/* The name of the file as it is now. */
const char *store_name(const struct store *s);

#endif
