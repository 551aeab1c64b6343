/* write_trial.h - a trial in the HDF5 file (store.h): its group before it has run, and all that it holds
 * afterwards.  store.c decides where the file is, and reserves its space. */
#ifndef WRITE_TRIAL_H
#define WRITE_TRIAL_H

#include <hdf5.h>

#include "common/run/result.h"

/* The group of trial i, with all that is known before it has run; `contents` are those of its
 * file, "" where it reads none.  Nonzero after err_set(). */
int dump_trial_new(hid_t trials, const struct trial *t, const char *contents, int i);
/* Do its attributes that repeat what its line says agree with the trial of that line?  Nonzero after
 * err_set(): one does not. */
int dump_trial_agrees(hid_t trial, const struct trial *t);
/* The attributes of a trial: the hash of what every program is given (given.h), and whose these values
 * are where they do not follow from its line. */
#define GIVEN_BY_CALLER "the caller"
/* Remove what an interrupted run left in an unfinished one: members and attributes. */
int dump_trial_empty(hid_t trial);
/* Bytes of the file that a result takes, at most, with so many to spare; -1 after err_set(). */
enum { DUMP_SPARE = 1 << 20 };
int64_t dump_bytes(const struct experiment *x, const struct result *r);
/* The bytes of each tensor that is stored of it; returns how many there are, or -1 after err_set().
 * Values are not looked at, only whether there are some. */
enum { MAX_DUMPED = 2 * MAX_ARGS * (MAX_RAN + 1) };
int dump_tensors(const struct experiment *x, const struct result *r, int64_t bytes[MAX_DUMPED]);
/* Write it into the trial's group, so that it is there whole or not at all. */
int dump_write(hid_t trial, const struct experiment *x, const struct result *r);

#endif
