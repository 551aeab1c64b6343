/* store.h - the HDF5 file of an experiment.
 *
 *     /                          attributes: see header.h
 *     /ceilings                  attributes: what the GPU can do, where that was measured
 *     /trial/0003                attributes: op, every size and choice by name, line
 *     /trial/0003/in/x           inputs, the same for all backends; attribute origin
 *     /trial/0003/dout/out       gradients of outputs and final states
 *     /trial/0003/ref64/out      outputs, per backend
 *     /trial/0003/ref64/d/x      gradients, per backend
 *     /trial/0003/check          table of verdicts
 *     /trial/0003/time           table of times, and how near they are to the ceilings
 *     /trial/0003/batch_sweep    table of times as the batch grows, and
 *     /trial/0003/crossover      where each kernel and pass becomes bound by throughput
 *
 * Trials count from 1 in the file and in messages, from 0 in these functions.
 * `steps`, `batch` ... beside the groups of a trial are the dimension scales
 * of its tensors, without values, as netCDF has dimensions.
 *
 * It is written as NAME.h5.part, with a group for every trial of the plan
 * from the beginning, and renamed by store_close().  A trial is there whole
 * or not at all: its attribute `complete` is 0 until all of it is on disk,
 * and a process killed at any moment leaves every trial readable that is
 * complete.  (A power failure is another matter: nothing is synced before
 * the end.)
 *
 * Only who has the lock of the part may write it, replace it or rename it: a
 * flock on HDF5's own descriptor.  A new part is filled under the name
 * NAME.h5.part.new while the part that it will replace, an empty one made for
 * that if there was none, is locked. */
#ifndef STORE_H
#define STORE_H

#include "common/dump_times.h"
#include "common/result.h"

struct store;

enum {
    STORE_RESUME = 1,  /* go on with a part, or a finished file, of the same plan and inputs */
    STORE_REPLACE = 2, /* replace a finished file of another plan, too */
    STORE_DISCARD = 4  /* throw a part away although it has finished trials */
};
/* May the file of x be written, as far as can be seen without a lock?
 * Nonzero after err_set(). */
int store_may_write(const struct experiment *x, int how);
/* Begin the file of x, which must outlive the store, or with STORE_RESUME go
 * on with it, if there is one; finished trials then stay.  A finished file of
 * that name is replaced at the end.  NULL after err_set(): not writable, not
 * readable, in use by another program, another plan; or what output.h says. */
struct store *store_open(const struct experiment *x, int how);
/* The date of the finished file that will be replaced; "": none will. */
const char *store_replaces(const struct store *s);
/* Of a trial's checks: all that were made, of these, and those that could not be made. */
struct store_counts {
    int checks, failed, unjudged, skipped;
};

/* Is trial i (from 0) there already?  Then its counts, as store_write() was given them. */
int store_has(struct store *s, int i, struct store_counts *c);
/* Write trial i; nonzero after err_set(), e.g. "e74.h5.part: needs 12.3 MiB
 * more: No space left on device"; the finished trials stay readable. */
int store_write(struct store *s, int i, const struct result *r);
/* Close it in any case.  With `complete` all trials must be there, and it is
 * synced and gets its final name.  Nonzero after err_set(); the part then stays. */
int store_close(struct store *s, int complete);
/* The name of the file as it is now. */
const char *store_name(const struct store *s);

/* The times of trial i, which must be there; n is 0 where it was not timed.
 * Nonzero after err_set(); free to->timing in any case. */
int store_timings(struct store *s, int i, struct timings *to);
/* The device of each backend when the file was begun, one line per backend; NULL after
 * err_set(); to be freed. */
char *store_device(struct store *s);

#endif
