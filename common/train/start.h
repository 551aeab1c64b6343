/* start.h - the weights that a model starts from.
 *
 * An element is a function of (seed, name, index), so that weights of equal name and shape start equal in all variants:
 * the embedding N(0, 1); matrices and learned states N(0, 1 / length of the last axis), those that write into the
 * residual stream also by 1 / sqrt(2 blocks); weights of norms and of a gate 1, biases 0, and the b_z of an e74 so
 * that z is 1 (z_act = sigmoid: 0.9).  Every value is one of float, in double too, so that all backends start alike. */
#ifndef TRAIN_START_H
#define TRAIN_START_H

#include "common/call/contract.h"

/* Parameter `arg` of a model's call, which op_complete() has made, into x. */
void start_draw(const struct call *model, int arg, int64_t blocks, uint64_t seed, double *x);

#endif
