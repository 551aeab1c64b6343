/* layout.h - where a model's weights lie in one buffer, and so their gradients, their masters and an optimiser's
 * moments: one call of sum_squares and one of adamw step them all.
 *
 * Those that decay come first, matrices (FAN) but no embedding, norm, bias or learned state; each begins at a multiple of
 * LAYOUT_ALIGN elements, 256 bytes in any type of two bytes or more; what is between them is to be 0, and adamw leaves it
 * so.  Weights that are wide in themselves (a learned state, attention's sinks) are a second buffer of the same kind.
 * Weights without a gradient, as an adapter's W, are in none. */
#ifndef PROGRAM_LAYOUT_H
#define PROGRAM_LAYOUT_H

#include "common/call/contract.h"

enum { LAYOUT_ALIGN = 128 };

struct layout_part {
    int arg;       /* of the program's operation */
    int decays;    /* by weight_decay */
    int64_t at, n; /* its first element in the buffer, and how many it has */
};

struct layout {
    struct layout_buffer {
        struct layout_part part[MAX_ARGS];
        int n;
        int64_t elements, decayed; /* all of them, of which the first so many decay */
    } storage, wide;
};

/* Of a call of any operation that op_complete() has made. */
void layout_find(struct layout *to, const struct call *f);

#endif
