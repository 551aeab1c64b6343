/* train_trial.h - a trial of measure = train: its run on every backend that is to train. */
#ifndef TRAIN_TRIAL_H
#define TRAIN_TRIAL_H

#include "common/run/result.h"
#include "common/train/checkpoint.h"

/* Nonzero after err_set(), or TRIAL_BAD_INPUT: the corpus cannot be read, or is no longer the plan's. */
int training_run(const struct task *task);
void training_free(struct result *r);
/* *to becomes the bytes of a trial's corpus, to be freed, which are those that the plan has read; NULL: it has none.  Nonzero
 * after err_set(): it has changed since, or cannot be read. */
int training_corpus(const struct trial *t, unsigned char **to);
/* Where a trial trains: on the backend that is named; else the first that is judged and there; else the reference of its
 * type. */
const struct backend *training_place(const struct experiment *x, const struct trial *t);

/* Where a trial of x, which has states, keeps its checkpoint, and whose it is, on that backend; NULL: the one that it trains
 * on.  Nonzero after err_set(): that is not there. */
int training_checkpoints(const struct experiment *x, const struct trial *t, const struct backend *b,
                         struct checkpoints *to);

/* "update 400 of 5000, loss 0.41, accuracy 0.83, 120 k tokens/s" */
enum { TRAINING_TEXT = 160 };
const char *training_text(const struct trained *r, char text[TRAINING_TEXT]);

#endif
