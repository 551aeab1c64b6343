/* read_runs.h - the runs of training in a dump. */
#ifndef READ_RUNS_H
#define READ_RUNS_H

#include <hdf5.h>

#include "common/ablation/runs.h"

/* The runs that the file has, in the order of its trials; nonzero after err_set(); runs_free() in any case. */
int runs_read(hid_t file, struct runs *to);
/* One of them: 1, or 0 where the trial is not complete or is no run; -1 after err_set(). */
int run_read(hid_t file, int trial, struct stored_run *to);
void runs_free(struct runs *r);

#endif
