/* unchanged.h - is a dump what run-ablation wrote, but for the results that other programs added? */
#ifndef EXPERIMENTS_UNCHANGED_H
#define EXPERIMENTS_UNCHANGED_H

#include "common/plan/plan.h"

/* What is to be said of a trial's inputs, a line, or ""; of the first trial, of the plan, too. */
enum { MAX_NOTE = 400 };
struct note {
    char inputs[MAX_NOTE];
    int inputs_unchecked; /* nothing shows that they are what was written */
    char plan[MAX_NOTE];  /* nothing shows that its trials are those that were written */
};

/* Checks that a dump's trials are those of the plan that it keeps, that each holds what is in it
 * itself (links.h), that a trial's attributes agree with its line, and that inputs, gradients of outputs
 * and initial gradients have the bits that its line makes, or where these are from another file, or the
 * caller's, those that were written.  NULL after err_set(), "softmax.h5: trial 1: in/x is not what its
 * line draws: ..."; or else a note for each trial, *n of them, to be freed.  Ends early, with NULL and
 * no message, once *stop is not 0. */
struct note *unchanged(const char *file, int *n, const volatile int *stop);

/* The trial of a line in a dump, whose files need not be there: they, their groups, the kernel and the goals are
 * in t->text alone.  Nonzero after err_set(). */
int line_read(const char *line, struct trial *t);

#endif
