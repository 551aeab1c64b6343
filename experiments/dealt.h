/* dealt.h - the trials of a plan, dealt out to processes one at a time, the longest first. */
#ifndef EXPERIMENTS_DEALT_H
#define EXPERIMENTS_DEALT_H

#include "experiments/trials.h"

/* How many workers each device has: x->per_device of checks, which are not timed, else 1. */
int dealt_each(const struct experiment *x);
/* How many workers this machine has for x: so many for each device that it names, or for the first; 0 or 1: none is needed;
 * -1 after err_set(). */
enum { MAX_WORKERS = 1024 };
int dealt_workers(const struct experiment *x);
/* The same for -n, where devices may be missing. */
int dealt_planned(const struct experiment *x);

/* Until all are done, or *r->stop, or no worker is left.  A trial whose worker is lost goes to another one, once.  Nonzero
 * after err_set(), as trials_run(). */
int dealt_run(struct trials *r);

#endif
