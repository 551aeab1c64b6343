/* trial.h - carry out one trial of a plan: draw its inputs, run it on every
 * backend of its storage type, judge what came out. */
#ifndef TRIAL_H
#define TRIAL_H

#include "common/store.h"

/* Told what is being done: "ref64", "differences", ... */
typedef void trial_step(const char *what, void *data);

/* Which backends a trial of x is meant to run on: the oracle, the yardstick of
 * its storage type, and the GPU backends of that type which were asked for by
 * name, or all of them; returns how many. */
int trial_backends(const struct experiment *x, const struct trial *t,
                   const struct backend *list[16]);

/* Note a check that cannot be made, and why. */
void result_skip(struct result *r, const char *what, const char *why);

enum { TRIAL_BAD_INPUT = 2 };

/* Run it.  Nonzero after err_set() where something could not be done at all
 * (no memory, a backend's error, *stop became nonzero, or TRIAL_BAD_INPUT:
 * the trial's file does not hold what it should); r then holds what was done
 * until there.  Free it with result_free() in any case. */
int trial_run(const struct experiment *x, const struct trial *t, const volatile int *stop,
              trial_step *step, void *data, struct result *r);
void result_free(struct result *r);

#endif
