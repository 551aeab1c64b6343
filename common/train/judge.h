/* judge.h - an update of a run, judged by the oracle on the run's own tensors.
 *
 *     call   each call of the update, of the model's program too, by itself on the tensors that it had before it; what an
 *            update leaves that runs call by call has the bits that the run's own left
 *     step   the whole model from the run's weights: loss and all gradients; where the oracle would take too long on all
 *            rows, on the first ones, which the run's backend then computes as a batch of their own
 *
 * The optimiser is judged on the run's own gradients, since a division by the root of v would make a rounding of a tiny
 * gradient into a step of its own. */
#ifndef TRAIN_JUDGE_H
#define TRAIN_JUDGE_H

#include "common/judge/calls.h"
#include "common/train/update.h"

/* How an update was judged. */
struct judged_update {
    int64_t rows; /* of the batch that step parity took; 0: none, one takes too long */
    double seconds;
};

/* Makes the next update, and judges it: it is the same update as update_run() makes.  Verdicts go to `list`, with its
 * number.  Nonzero after err_set(). */
int update_judged(struct update *u, uint64_t seed, struct verdicts *list,
                  struct judged_update *how);

/* How many verdicts there are on one update, unless calls fail that leave none where they pass; at most. */
double update_verdicts(const struct cell *c);

#endif
