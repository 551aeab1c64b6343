/* checkpoint.h - all that an unfinished run goes on from, in a file (record.h): its next update, and its dump, have then
 * the bits of a run that was not interrupted.
 *
 * In it are whose it is (struct checkpoint_of) and its sizes; the update's state (weights, masters, moments, counters, scale);
 * the curves and validations so far, and what is counted of them; what has been judged, and the state of free running,
 * the oracle's own runs included while they last; start weights and first batches, where these are kept; and the sums of times.
 *
 * One file for each run; runs of one process share nothing. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <stdint.h>

enum { CHECKPOINT_LINE = 4096, CHECKPOINT_TEXT = 256 };

/* Whose it is. */
struct checkpoint_of {
    char plan[CHECKPOINT_TEXT];   /* the experiment's name */
    char line[CHECKPOINT_LINE];   /* the words of the run */
    char corpus[CHECKPOINT_TEXT]; /* what the file that it learns from holds; "none" */
    char seed[CHECKPOINT_TEXT];   /* the experiment's, of validation and test data */
    char backend[CHECKPOINT_TEXT], device[CHECKPOINT_TEXT], build[CHECKPOINT_TEXT];
};

/* What a run does with the checkpoint that it finds: begins anew; goes on, if it is its own; goes on in any case. */
enum checkpoint_use { CHECKPOINT_IGNORED, CHECKPOINT_OWN, CHECKPOINT_ANY };

/* Where a run has its checkpoint; how often, its cell says. */
struct checkpoints {
    char file[600];
    struct checkpoint_of of;
    enum checkpoint_use use;
    /* One line for whoever runs it: a checkpoint that is damaged, or cannot be written; where the run goes on. */
    void (*say)(const char *line, void *data);
    void *data;
};

/* Whose is the checkpoint in that file, or the one before it?  1: there is none that is whole; -1 after err_set():
 * this version cannot read it. */
int checkpoint_read_of(const char *file, struct checkpoint_of *to);
/* Nonzero after err_set(), with advice: it is not this run's, and c->use does not allow that. */
int checkpoint_refused(const struct checkpoints *c);

struct running;

/* The run, which has been opened, goes on from its checkpoint, if there is one that is whole.  Nonzero after err_set():
 * it is another's, or cannot be this run's. */
int checkpoint_take(struct running *r);
/* Nonzero after err_set(): it cannot be written; the one before is still there. */
int checkpoint_write(struct running *r);

#endif
