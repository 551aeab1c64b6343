/* learned.h - run-ablation --summary of a dump of measure = train. */
#ifndef EXPERIMENTS_LEARNED_H
#define EXPERIMENTS_LEARNED_H

#include "experiments/summary.h"

/* Prints what the runs say of each other, or one of the tables (ablation/tables.h) as CSV: that which w->by names, or the
 * runs.  An exit status of run-ablation, 2 after err_set(); -1: the file is not one of training. */
int learned_command(const struct summary_words *w);

#endif
