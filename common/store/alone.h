/* alone.h - a trial in a file of its own: a process that runs trials for another writes them so, and the
 * other takes them into the file of the experiment (store_take()).
 *
 *     /             schema, version, trial: its number, from 1; what says whose plan it is (header.h)
 *     /trial/0003   as in the file of the experiment
 *
 * It is no dump, and nothing reads it as one.  The trial's `contents`, the hash of the file that it reads, are
 * those that the process found before it wrote: on another machine a file of that name may hold something else.
 * Its `complete` is 1 only when all of it is on disk.  Whoever writes it closes it, and only then says that it is
 * there; until then it is locked. */
#ifndef ALONE_H
#define ALONE_H

#include <hdf5.h>

#include "common/run/result.h"

/* Writes trial i of x's plan (from 0), alone, to FILE: the group that store_write() would make.  FILE is made anew,
 * in the place of an empty one or of one in HDF5; anything else of that name is refused, and stays.  Nonzero
 * after err_set(), and there is no FILE of its making then. */
int store_write_alone(const char *file, const struct experiment *x, int i, const struct result *r);

/* The group of trial i of x's plan in such a file, whole; `there` is the same trial's group in the file of the
 * experiment.  h5_drop() closes it, and the file.  -1 after err_set(): FILE is missing, cut off, open elsewhere, no
 * such file, of another plan or version, of another trial, not complete, or holds what is not its own. */
hid_t alone_open(const char *file, const struct experiment *x, int i, hid_t there);

#endif
