/* trial.h - carry out one trial of a plan: draw its inputs, run it on every
 * backend of its storage type, judge what came out. */
#ifndef TRIAL_H
#define TRIAL_H

#include "common/run/result.h"

/* Run it.  Nonzero after err_set() where something could not be done at all
 * (no memory, a backend's error, *stop became nonzero, or TRIAL_BAD_INPUT:
 * the trial's file does not hold what it should); r then holds what was done
 * until there.  Free it with result_free() in any case. */
int trial_run(const struct experiment *x, const struct trial *t, const volatile int *stop,
              trial_step *step, void *data, struct result *r);

#endif
