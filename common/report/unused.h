/* unused.h - the datasets of input files that no trial reads. */
#ifndef UNUSED_H
#define UNUSED_H

#include <stddef.h>

#include "common/plan/plan.h"

/* What stands beside the inputs that trial i reads from its HDF5 file, and is no input of any trial
 * of x that reads the same group: "model.h5:/layer3: not used: foo, bar", with the first names
 * and the number of the others.  "" where there is nothing; where an earlier trial reads the same
 * group, so that each group is listed once; and where the file cannot be read, which input_fill()
 * reports.
 *
 * Groups within the group are not searched, and dimension scales are not listed, since they
 * describe the tensors.  Of a dump of this program only groups of inputs are listed: those of
 * outputs and gradients have many tensors that no input is meant to take. */
void unused_datasets(const struct experiment *x, int i, char *text, size_t size);

#endif
