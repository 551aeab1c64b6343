/* campaign.h - the cases by which somebody's function is judged, from the words of one: where they leave
 * sizes open those of the contract that agree with them, and drawn ones; else that size with
 * several fills. */
#ifndef CAMPAIGN_H
#define CAMPAIGN_H

#include "common/plan/plan.h"

/* A size is open where the words do not name it, it is the length of an axis of an input, and 0 does not stand for
 * "as another".  Every other parameter is as in the words, or its default: a function that is given
 * tensors alone knows no other.  But for how inputs are drawn (param.draw), which follows the
 * cases where the words do not name it. */
struct campaign {
    struct trial asked;   /* the words' own; its call is not complete */
    uint64_t open, drawn; /* bits of parameters: open sizes; those that say how inputs are drawn */
    struct trial *listed; /* the cases that are not drawn, in their order */
    int64_t n;
};

/* From the words of a trial and the trial of them.  Nonzero after err_set(); to be freed in any case. */
int campaign_new(struct campaign *c, const char *words, const struct trial *asked);
void campaign_free(struct campaign *c);
/* Case i, from 0; those after the listed ones are drawn, without an end.  It has the seed of the words,
 * plus i.  Nonzero after err_set(): the contract refuses all that are drawn. */
int campaign_trial(const struct campaign *c, int64_t i, struct trial *t);
/* t made smaller in the k-th way, from 0, in what the words leave open: 1, or 0 after the last. */
int campaign_smaller(const struct campaign *c, const struct trial *t, int k, struct trial *to);

#endif
