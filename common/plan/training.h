/* training.h - sections of measure = train: a run of training for each combination (cell.h).
 *
 * A section has no `op`, but a `mixer`; all its other keys are the run's parameters, dtype, seed and file. */
#ifndef PLAN_TRAINING_H
#define PLAN_TRAINING_H

#include "common/plan/section.h"
#include "common/train/cell.h"

/* In place of an operation's name: "train". */
extern const char TRAIN_OP[];

/* The operation of a section, which is of training or not, whose entry `op` there may be; NULL, and *known 0, after a
 * fault; NULL and *known 1 where it is not of training. */
const struct op *training_op(struct plan *p, const struct ini_section *s,
                             const struct ini_entry *op, int *known);
/* Faults for the keys that such a section cannot have. */
void training_refuse(struct plan *p, const struct ini_section *s);
/* A trial's corpus, `file` as the section has it, seen from the working directory, and what it holds now, read once for all
 * trials of the plan; or no file, where the task has none.  Nonzero after err_set(). */
int training_file(struct plan *p, struct trial *t, const char *file);
/* The lengths of a trial's key `eval`, rising, each once; how many, or -1 after err_set(). */
int training_lengths(const struct trial *t, int64_t to[MAX_LENGTHS]);
/* Does one backend that the experiment names, or none is named, store the trial's type?  Nonzero after err_set(). */
int training_backends(const struct experiment *x, const struct trial *t);
/* That one; NULL: none is named. */
const struct backend *training_backend(const struct experiment *x, const struct trial *t);
/* Have two trials the same task, with all that it says? */
int training_same_task(const struct trial *a, const struct trial *b);
/* And the same model, of the same section and type: runs that differ in how they are trained alone. */
int training_alike(const struct trial *a, const struct trial *b);
/* What differs between two trials besides rate and seed; NULL: nothing. */
const char *training_difference(const struct trial *a, const struct trial *b);
/* Bytes that a run takes on this machine. */
double training_memory(const struct trial *t);

/* The words that make this update of a trial again, and judge it: the run until there.  Nonzero after err_set(). */
int training_again(const struct trial *t, int64_t update, char text[MAX_LINE]);
/* Its words as it is, which differ from t->text where its rate is that of a search.  Nonzero after err_set(). */
int training_line(const struct trial *t, char text[MAX_LINE]);
/* What its updates are of work, in the unit of duration.h. */
double training_work(const struct trial *t);

#endif
