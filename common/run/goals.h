/* goals.h - the verdicts on the times of a trial of measure = time, for each GPU backend and pass.
 *
 * "goal": the trial's goal for the pass.  It is the goal of the kernel that `kernel` names or, where
 * none is named, of the default, which runs first.
 *
 *     error    the median of its times
 *     bound    the longest time that reaches the goal: the minimum time under the ceiling, or the
 *              median of the other kernel, over the fraction; or the time itself
 *
 * A goal that cannot be judged is skipped, with the reason.
 *
 * "default": where all kernels are timed, and at least two were, the default must be the fastest,
 * about:
 *
 *     error    the default's median
 *     bound    max(1.05 best, best + noise), of the smallest median and the noise of both (noise.h)
 *
 * Kernels that failed parity have no time, and do not count. */
#ifndef GOALS_H
#define GOALS_H

#include "common/run/result.h"

/* Add them to the verdicts of r, whose kernels have run; with x->goals_reported what is over its
 * bound is missed and did not fail.  Nonzero after err_set(). */
int goals_judge(const struct experiment *x, struct result *r);

/* The kernel of the same backend that the kernel of a verdict on a time was compared with; NULL: with
 * none, but with a ceiling or a time. */
const struct ran *goals_other(const struct result *r, const struct verdict *v);
/* The verdict's pass. */
enum pass goals_pass(const struct verdict *v);

#endif
