/* shown.h - the line on a terminal that says how far a run is, and how long it will still take. */
#ifndef EXPERIMENTS_SHOWN_H
#define EXPERIMENTS_SHOWN_H

#include "common/plan/plan.h"

/* A run of x begins.  Until shown_end() this thread is watched (watch.h): passes on the references move
 * the line, and *stop, once it is not 0, ends what runs. */
void shown_begin(const struct experiment *x, const volatile int *stop);
/* Trial i, from 0, begins; or it is there already. */
void shown_trial(int i);
void shown_ready(int i);
/* A step of it begins: a trial_step(). */
void shown_step(const char *what, void *ignored);
/* Of trials side by side: that one has ended; those that run, and how far each is, 0 ... 1. */
void shown_ended(int i);
void shown_several(const int *trial, const double *part, int n);
void shown_end(void);

#endif
