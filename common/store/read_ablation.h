/* read_ablation.h - what the runs in a file say of each other. */
#ifndef READ_ABLATION_H
#define READ_ABLATION_H

#include <hdf5.h>

#include "common/ablation/ablation.h"
#include "common/plan/plan.h"

struct stored_ablation {
    struct runs runs;
    struct ablation ablation;
    char *baseline, *compare; /* as the experiment has them; compare is cut at its names */
    struct pair_of_names *pair;
    double margin;
};

/* Of all runs that are complete, by the experiment's keys baseline, compare, margin and seed, which the file has.  Nonzero after
 * err_set(); stored_ablation_free() in any case. */
int stored_ablation_read(hid_t file, struct stored_ablation *to);
void stored_ablation_free(struct stored_ablation *s);

/* The rate of a trial that confirms: the best of the runs of its cell that search, all of which must be complete.  Nonzero after
 * err_set(). */
int stored_best_rate(hid_t file, const struct experiment *x, int trial, double *rate);
/* Are these runs complete? */
int stored_search_is_over(hid_t file, const struct experiment *x, int trial);

#endif
