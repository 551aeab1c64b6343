/* size.h - how large the model of a run is: what models are made equal by, and what each is reported with.
 *
 *     parameters  all of them; and those without the embedding and the head, which depend on the task
 *     state       bytes that a block's mixer carries from one token of a sequence to the next, times the blocks: the
 *                 final states that a contract hands over (arg.continues), in the type in which they are kept.  Attention
 *                 has none; it needs the keys and values of the tokens before, as many as a query sees at most: with
 *                 mask = causal or full that grows with `length`, of which it is here.  Mixer none: 0
 *     flops       of forward, for a token: by the contracts of the program's calls, divided by length and batch */
#ifndef TRAIN_SIZE_H
#define TRAIN_SIZE_H

#include "common/train/cell.h"

struct cell_size {
    double parameters, inner; /* inner: without embedding and head */
    double state;             /* bytes for a sequence */
    double flops;             /* for a token */
};

/* Of a case that op_complete() has made, stored in that type.  Nonzero after err_set(). */
int cell_size(const struct call *f, enum dtype type, struct cell_size *to);

#endif
