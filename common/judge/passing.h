/* passing.h - what would pass: changes of a case that none of its results shows by the bounds that they
 * are judged by. */
#ifndef PASSING_H
#define PASSING_H

#include "common/judge/check.h"

/* The changes that would pass, each in words:
 *
 *     eps = 0                      a real parameter that is 0, or twice, or 1 % more, of these the first;
 *     mask = none                  a choice that is its neighbour;
 *     S0 drawn anew                an input, or the gradient of an output, that has other values;
 *     x = 0 at the last of steps   an input whose last part on an axis is 0, and was not;
 *     the variance is E x^2 - (E x)^2
 *                                  a wrong kernel of the reference.
 *
 * Nothing is asked of a wrong kernel whose mistake is in other results alone, and of a parameter or a choice
 * that asks for other tensors, or that no result depends on (param.aside). */
struct lines {
    char **line;
    int n;
};
struct passing {
    struct lines pass, refused;
    struct lines
        hidden; /* those that pass and change no bit of these results: such as dropout = 0 */
};

/* The work of a pass, in FLOP, above which a run does not ask: it would be some 100 of them. */
#define PASSING_WORK 1e9

/* The outputs and gradients of a call. */
struct results results_of(const struct call *f);

/* By these results, and all samples that the bounds of the case may take, which its truth has then.  Ends early, without an
 * error, when *stop becomes nonzero, where it is given.  Nonzero after err_set(); to be freed in any case. */
int passing_find(struct bounds *b, const struct results *by, uint64_t seed,
                 const volatile int *stop, struct passing *to);
void passing_free(struct passing *p);
/* The lines with a newline after each; NULL after err_set().  The caller frees it. */
char *lines_text(const struct lines *l);

#endif
