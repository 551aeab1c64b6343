/* timing.h - trials that measure: every kernel of the GPU's backend that
 * takes the case is run, judged by parity in the same process and on the same
 * tensors, and timed.  One that is wrong has no time. */
#ifndef TIMING_H
#define TIMING_H

#include "common/result.h"

/* For measure = time: the result has its inputs.  Without a GPU the yardstick is timed in its
 * place.  Each backend's first kernel that is right keeps its tensors in the result.  Nonzero
 * after err_set(). */
int timing_run(const struct task *task);
/* For measure = regime: batches of 1, 2, 4 ... up to the trial's, as far as
 * the oracle keeps up. */
int regime_run(const struct task *task);

#endif
