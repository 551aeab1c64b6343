/* unfinished.h - what an interrupted run left, and how --resume goes on with it. */
#ifndef UNFINISHED_H
#define UNFINISHED_H

#include "common/run/states.h"
#include "common/store/store.h"

/* --resume, or --resume=anyway, whose word `how` is, or NULL.  Nonzero after err_set(). */
int unfinished_option(const char *how, enum checkpoint_use *to);
/* Flags of store.h. */
int unfinished_store(enum checkpoint_use use);
/* Where x keeps its runs of training, if it has some: x->states becomes s; nonzero after err_set() (states_begin()). */
int unfinished_begin(struct experiment *x, struct states *s, enum checkpoint_use use, int force);
/* All trials that are not in the store must be able to go on from what is there of them; or where x begins anew, that is
 * removed.  Nonzero after err_set(). */
int unfinished_refused(const struct experiment *x, struct store *store);

#endif
