/* combinations.h - the combinations of a section's lists, of which each is a trial.
 *
 *     state = full, lowrank
 *     rank = 4, 8
 *
 * are three: a list whose parameter does not apply (param->unless) to a combination of the others
 * is left out of it, and the parameter keeps its default.  The order is that of the whole product,
 * last key fastest, where such a combination stands at the list's first value. */
#ifndef COMBINATIONS_H
#define COMBINATIONS_H

#include "common/call/cases.h"

enum { LEFT_OUT = -1 }; /* list.at: the parameter does not apply to the combination */

struct combinations {
    int n;       /* combinations */
    int n_lists; /* of each */
    int *row;    /* for each combination n_lists, and then the place of each list's value */
};

/* How many combinations there are, and in applies[] of each list whether it applies to one, where
 * *base has the parameters that are not listed.  *least: there are more, too many to count; what
 * applies is then not known.  Nothing is allocated. */
double combinations_count(const struct lists *l, const struct call *base, char applies[],
                          int *least);
/* The combinations, of which there are `most` or fewer, in their order; nonzero after err_set().
 * combinations_free() in any case. */
int combinations_make(struct combinations *p, const struct lists *l, const struct call *base,
                      int most);
void combinations_free(struct combinations *p);
/* Set list.at of all lists to those of combination i. */
void combinations_choose(const struct combinations *p, int i, struct lists *l);
/* The parameters of the combination of all first values. */
void combinations_first(const struct lists *l, const struct call *base, struct call *f);

#endif
