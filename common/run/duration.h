/* duration.h - how long an experiment will take. */
#ifndef DURATION_H
#define DURATION_H

#include "common/plan/plan.h"

/* Seconds that the references will take for all trials of x on this machine,
 * about; 0 where that is clearly under a minute.  From what the contracts say
 * that each pass costs, how often the checks run it, and the time of one small
 * case for each operation, which this measures (a tenth of a second each). */
double estimate_seconds(const struct experiment *x);

#endif
