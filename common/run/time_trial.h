/* time_trial.h - trials that measure times.  Every kernel of the GPU's backend that
 * accepts the case is run and timed, and judged by parity in the same process
 * and on the same tensors.  A kernel that fails has no time. */
#ifndef TIME_TRIAL_H
#define TIME_TRIAL_H

#include "common/run/result.h"

/* For measure = time: the result has its inputs.  Without a GPU the yardstick is timed in its
 * place.  Each backend's first kernel that is right keeps its tensors in the result.  Goals and the choice of
 * the default kernel are judged (goals.h).  Nonzero
 * after err_set(). */
int timing_run(const struct task *task);
/* For measure = crossover: batches of 1, 2, 4 ... up to the trial's, as long as
 * the oracle takes at most a second. */
int crossover_run(const struct task *task);

#endif
