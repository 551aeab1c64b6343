/* ahead.h - what a run is given, put there by a thread of its own, while the caller does something else: the references,
 * on the host.
 *
 * Until ahead_wait() the thread uses the call's context, and nobody else may.  A run that has `ahead` (run.h) waits, and
 * then copies from there what it finds; it puts the rest itself.  Nothing is on its way while a run is timed. */
#ifndef AHEAD_H
#define AHEAD_H

#include "common/call/run.h"

/* Begins to put there the inputs, gradients of outputs and initial gradients of t, which stay as they are until
 * ahead_end().  NULL where nothing is gained (less than AHEAD_LEAST bytes, no such memory) or the call would not have
 * the room for its run. */
enum { AHEAD_LEAST = 1 << 20 };
struct ahead *ahead_begin(const struct call *f, const struct tensors *t);

/* Waits until all is there.  `a` may be NULL, here and below. */
void ahead_wait(struct ahead *a);
/* Where values of n elements of that type are; NULL: they are not. */
const void *ahead_find(struct ahead *a, const void *values, enum dtype type, int64_t n);
/* Gives its memory back: nothing is found any more. */
void ahead_drop(struct ahead *a);

/* Seconds of the thread's work, and those of them for which nobody has waited. */
struct ahead_times {
    double worked, hidden;
};
/* Ends it, at once if it is not done, and frees it. */
struct ahead_times ahead_end(struct ahead *a);

#endif
