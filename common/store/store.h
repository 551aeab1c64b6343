/* store.h - the HDF5 file of an experiment.
 *
 *     /                          attributes: see header.h
 *     /ceilings                  attributes: the limits of the GPU, if they were measured
 *     /trial/0003                attributes: op, every size and choice by name, line
 *     /trial/0003/in/x           inputs, the same for all backends; attribute origin
 *     /trial/0003/dout/out       gradients of outputs and final states
 *     /trial/0003/dinit/x        gradients of inputs before backward, to which it adds
 *     /trial/0003/ref64/out      outputs, per backend
 *     /trial/0003/ref64/d/x      gradients, per backend
 *     /trial/0003/sample/ref64/out    where a sample was judged, in place of those of references:
 *                                their outputs, and gradients in d, of the sampled rows of the
 *                                axes that the attribute `axes` names
 *     /trial/0003/sample_rows    table of these rows
 *     /trial/0003/check          table of verdicts
 *     /trial/0003/time           table of times, and their fractions of the ceilings
 *     /trial/0003/crossover_time    table of times as the batch grows, and
 *     /trial/0003/crossover      where each kernel and pass becomes bound by throughput
 *
 * Trials count from 1 in the file and in messages, from 0 in these functions.
 * `steps`, `batch` ... beside the groups of a trial are the dimension scales
 * of its tensors, without values, as netCDF has dimensions.
 *
 * It is written as NAME.h5.part, with a group for every trial of the plan
 * from the beginning, and renamed by store_close().  The attribute
 * `complete` of a trial is 0 until all of it is on disk.  If the process is
 * killed at any moment, every complete trial can still be read.  (This does
 * not hold for a power failure: nothing is synced before the end.)
 *
 * A trial that another process ran comes in a file of its own (alone.h), which store_take() copies from and then
 * removes.  It is copied in the order in which a trial is written, so that a kill or a full disk meanwhile costs no
 * finished trial, and the file of its own is still there.
 *
 * Only the process that has the lock of the part may write, replace or rename
 * it: a flock on HDF5's own descriptor.  A new part is made in memory and put
 * into a file without a name (O_TMPFILE), which then gets the first of the
 * names NAME.h5.part.1 to .99 that nothing has, is opened and locked, and
 * renamed.  Where the file system has no files without a name, it has that
 * name from the beginning.  No file of such a name is ever removed, since it
 * could be anybody's: a process that is killed before it renames its own
 * leaves that one, and where all 99 are there, the message says so.
 * Meanwhile the part that will be replaced is locked; if there was none, an
 * empty one is made for this. */
#ifndef STORE_H
#define STORE_H

#include <hdf5.h>

#include "common/run/result.h"
#include "common/store/read_times.h"

struct store;

enum {
    STORE_RESUME = 1,  /* go on with a part, or a finished file, of the same plan and inputs */
    STORE_REPLACE = 2, /* do not keep a finished file of another plan */
    STORE_DISCARD = 4, /* discard a part although it has finished trials */
    STORE_WHOLE = 8,   /* leave no part where the file does not become complete */
    STORE_ANYWAY = 16  /* with STORE_RESUME: begin again in the place of a part of another plan
                          that has no finished trials */
};
/* May the file of x be written?  Tests all that needs no lock.  Nonzero after
 * err_set(): it may not. */
int store_may_write(const struct experiment *x, int how);
/* Begins the file of x, which must outlive the store.  With STORE_RESUME it
 * continues an existing file, and finished trials stay.  A finished file of
 * that name is replaced at the end; one of another plan is kept under the name
 * store_keeps().  NULL after err_set(): not writable, not
 * readable, in use by another program, of another plan, or refused by
 * output.h. */
struct store *store_open(const struct experiment *x, int how);
/* The date of the finished file that will be replaced; "" if there is none. */
const char *store_replaces(const struct store *s);
/* The name that this file then gets, since it holds another plan; "" if it is not kept. */
const char *store_keeps(const struct store *s);
/* Of a trial's checks: all that were made, of these, and those that could not be made; and of those
 * that were made, goals that were missed and did not fail. */
struct store_counts {
    int checks, failed, unjudged, skipped, missed;
};

/* Is trial i (from 0) complete?  If so, its counts, as passed to store_write(). */
int store_has(struct store *s, int i, struct store_counts *c);
/* Writes trial i.  Nonzero after err_set(), e.g. "e74.h5.part: needs 12.3 MiB
 * more: No space left on device"; the finished trials stay readable.  Where
 * there are none, store_close() removes the part. */
int store_write(struct store *s, int i, const struct result *r);
/* Takes trial i out of FILE, which store_write_alone() wrote, as if store_write() had written it, and removes FILE
 * (which stays only where its folder does not let it go).  FILE must have been closed by who wrote it.  Nonzero after
 * err_set(): the trial is not there then, what was there stays valid, and FILE stays. */
int store_take(struct store *s, int i, const char *file);
/* Closes the store in any case.  With `complete` all trials must be complete;
 * the file is synced and gets its final name.  Nonzero after err_set(); the
 * part then stays, unless nothing could be written to it, or with STORE_WHOLE. */
int store_close(struct store *s, int complete);
/* Closes a store to which nothing was written, after an error; a part without finished trials is
 * removed. */
void store_abandon(struct store *s);
/* The tables of what runs of training say of each other (ablation/tables.h), in place of earlier ones.  Nonzero after
 * err_set(). */
struct ablation;
int store_write_ablation(struct store *s, const struct ablation *a);
/* The file, to be read. */
hid_t store_file(const struct store *s);
/* The present name of the file. */
const char *store_name(const struct store *s);

/* The times of trial i, which must be complete; n is 0 if it was not timed.
 * Nonzero after err_set(); free to->timing in any case. */
int store_timings(struct store *s, int i, struct timings *to);
/* The device of each backend when the file was begun, one line per backend; NULL after
 * err_set(); to be freed. */
char *store_device(struct store *s);

#endif
