/* copy_trial.h - what a run has left in the group of its trial, copied into the group of the same trial in another
 * file. */
#ifndef COPY_TRIAL_H
#define COPY_TRIAL_H

#include <hdf5.h>

/* `to` is as dump_trial_new() makes it, `from` as dump_write() leaves it; then `to` is, too.  All objects are on
 * disk before one is linked, and linked before the trial is complete, as the head of store.c has it.  Values
 * go from file to file, without being decompressed.  Nonzero after err_set(): `to` is not complete. */
int trial_copy(hid_t from, hid_t to);

#endif
