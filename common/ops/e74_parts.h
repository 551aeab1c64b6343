/* e74_parts.h - the calls that e74 is made of. */
#ifndef E74_PARTS_H
#define E74_PARTS_H

#include "common/call/contract.h"

/* Part i of a call of e74 (contract.h, struct op): the cell; the product of each projection; and one of all of them
 * side by side, whose gradient of x is the layer's.  Where z has a gate its gradient is no tensor of the layer's: those of
 * W_z, b_z and x are then no part's. */
int e74_part(const struct call *f, int i, struct layer_part *to);

#endif
