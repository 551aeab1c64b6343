/* fits.h - what the workers of a node take of its memory and of the disk. */
#ifndef EXPERIMENTS_FITS_H
#define EXPERIMENTS_FITS_H

#include <stdio.h>

#include "common/plan/plan.h"
#include "experiments/ranks.h"

/* Sets x->workers and x->workers_here, where n processes of this machine run its trials, or one of each rank. */
void fits_count(struct experiment *x, int n, const struct ranks *ranks);

/* Nonzero after err_set(): the largest trials of as many as run here at once do not fit into this machine's memory. */
int fits_memory(const struct experiment *x);

/* A line for -n on what they take; nothing where this process runs all. */
void fits_print(const struct experiment *x, FILE *to);

#endif
