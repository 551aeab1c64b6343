/* free.h - free running: the oracle makes the first updates of a run by itself, from the same start and batches, and the
 * run's loss must stay near its own.
 *
 * Runs that differ in one rounding part for good after some updates.  So the distance allowed at an update is 8 times the
 * largest until then of the yardstick's run from the oracle's, of the oracle's own from one that starts a rounding off, and
 * of one rounding of the loss; it ends where that passes 1 % of the loss, or after 50 updates, or where the oracle has had its time. */
#ifndef TRAIN_FREE_H
#define TRAIN_FREE_H

#include "common/base/record.h"
#include "common/train/run.h"

struct free_run;

/* It ends at the latest after so many updates, and when the oracle has had so many seconds. */
enum { FREE_UPDATES = 50, FREE_SECONDS = 5 };

/* Beside a run whose weights are drawn, and that has made no update; NULL after err_set(). */
struct free_run *free_run_begin(const struct training *t, const struct update *of);
/* Behind an update of the run.  Nonzero after err_set(). */
int free_run_step(struct free_run *f, const struct update_values *now);
/* The verdict, "free", named by the update that was furthest over, or nearest to, what is allowed. */
int free_run_verdict(struct free_run *f, struct verdicts *list, struct trained *to);
/* All that it goes on from, written into a checkpoint or read from it; `state` passes an update's. */
void free_run_pass(struct free_run *f, struct record *k,
                   void (*state)(struct record *k, struct update *u));
void free_run_end(struct free_run *f); /* or NULL */

#endif
