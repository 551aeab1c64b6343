/* rates.h - the learning rates of a run, in double.
 *
 * Update u = 1 ... U, of W updates of warm-up: u <= W: lr u / W; then
 *     cosine    lr (f + (1 - f) (1 + cos(pi (u - W) / (U - W))) / 2)
 *     linear    lr (1 - (1 - f) (u - W) / (U - W))
 *     wsd       lr until U - D, then in a straight line to f lr
 *     constant  lr
 * f = final.  The last is f lr, the first never 0. */
#ifndef TRAIN_RATES_H
#define TRAIN_RATES_H

#include "common/train/cell.h"

double rate_at(const struct cell *c, int64_t u);
/* 1 / (1 - beta^t), t = 1 ... */
double unbias_at(double beta, int64_t t);

#endif
