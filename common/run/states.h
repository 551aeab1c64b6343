/* states.h - where the unfinished runs of an experiment have their checkpoints (checkpoint.h): beside its output, NAME.h5,
 * the folder NAME.state with a file for each, 0007 of trial 7.  It is made with the first checkpoint.  What is there of a
 * run goes when its trial is in the output, and the folder when it is empty. */
#ifndef STATES_H
#define STATES_H

#include "common/plan/plan.h"
#include "common/train/checkpoint.h"

struct states {
    char folder[sizeof((struct experiment *)0)->output + 8];
    enum checkpoint_use use;
    void (*say)(const char *line, void *data); /* see checkpoint.h */
    void *data;
};

/* Where x, of measure = train, has them: x->states becomes s, whose `use`, `say` and `data` are set.  Nonzero after err_set(),
 * with advice: an experiment that begins anew would lose what is there, and `force` is 0, or it is another plan's. */
int states_begin(struct states *s, struct experiment *x, int force);
/* Of an experiment that begins anew, when its output has begun. */
void states_clear(const struct experiment *x);
/* Nonzero after err_set(): trial i, from 0, cannot go on from the checkpoint that is there (checkpoint_refused()). */
int states_refused(const struct experiment *x, int i);
/* Trial i is in the output. */
void states_done(const struct experiment *x, int i);
/* The checkpoint of trial i. */
void states_file(const struct states *s, int i, char file[sizeof((struct checkpoints *)0)->file]);

#endif
