/* inputs.h - the inputs that an experiment reads from files, looked at before any trial runs. */
#ifndef EXPERIMENTS_INPUTS_H
#define EXPERIMENTS_INPUTS_H

#include "common/plan/plan.h"
#include "common/store/store.h"

/* Reads all inputs from HDF5 files once, so that a wrong one is reported, like another error of the
 * ini file, before any trial runs; those of trials that are in the store (NULL: none) are not
 * needed.  Faults of several trials with the same message are printed once; returns how many. */
int wrong_inputs(const struct experiment *x, struct store *store);

#endif
