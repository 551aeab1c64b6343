/* duration.h - how long an experiment will take. */
#ifndef DURATION_H
#define DURATION_H

#include "common/plan/plan.h"

/* Seconds that the references will take for all trials of x on this machine,
 * about; 0 where that is clearly under a minute.  From what the contracts say
 * that each pass costs, how often the checks run it, and the time of one small
 * case for each operation, which this measures (a tenth of a second each). */
double estimate_seconds(const struct experiment *x);

/* In one unit, about a FLOP: what the references will have to do for a trial, and what one pass of a call on
 * any of them is of it. */
double expected_work(const struct experiment *x, const struct trial *t);
double reference_work(const struct call *f, enum pass p);

#endif
