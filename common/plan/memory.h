/* memory.h - the memory of this machine, and what trials take of it. */
#ifndef PLAN_MEMORY_H
#define PLAN_MEMORY_H

#include "common/plan/plan.h"

/* Bytes for tensors on this machine, within the user's limits. */
double memory_available(void);

/* Bytes that a trial of x takes there while it runs; where tensors alone are more than `available`, these. */
double memory_of_trial(const struct experiment *x, const struct trial *t, double available);

/* Bytes that n trials of x take which run at once: its largest.  -1 after err_set(). */
double memory_of_largest(const struct experiment *x, int n);

#endif
