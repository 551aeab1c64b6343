/* given.h - the tensors that every program is given in a trial of a dump, inputs, gradients of outputs and
 * initial gradients: their hash, and how they differ from others. */
#ifndef GIVEN_H
#define GIVEN_H

#include "common/call/run.h"

/* "fnv1a64 85944171f73967e8" of the names and values of all of them, as the call stores them: they are
 * rounded.  Less the inputs that have a bit in `absent`. */
enum { GIVEN_TEXT = 32 };
void given_hash(const struct call *f, const struct tensors *t, uint64_t absent,
                char text[GIVEN_TEXT]);
/* Nonzero after err_set(), "in/x is not ...: it has 0.5 at [2,3], not 0.25": the bits of one of them
 * are not those of `drawn`, which are `what` in words.  With `nearly`, real numbers may be off by two
 * roundings, as they are where another mathematical library drew them. */
int given_differ(const struct call *f, const struct tensors *t, const struct tensors *drawn,
                 const char *what, int nearly);

/* The groups in which a dump has them, and which of an argument's is in one; NULL: none. */
enum given { GIVEN_INPUT, GIVEN_UPSTREAM, GIVEN_INITIAL, N_GIVEN };
extern const char *const given_groups[N_GIVEN];
const void *given_values(const struct call *f, const struct tensors *t, int arg, enum given which);

#endif
