/* rmsnorm.h - rmsnorm of the rows of a matrix, for qk_norm as well. */
#ifndef RMSNORM_H
#define RMSNORM_H

#include "common/ops/norm.h"
#include "ref/ref.h"

#define rmsnorm_forward REF(rmsnorm_forward)
#define rmsnorm_backward REF(rmsnorm_backward)

/* a->y [R,N] and a->rstd [R] of a->x [R,N] and a->w [N]. */
void rmsnorm_forward(const struct rmsnorm *a, real eps, int64_t R, int64_t N);
/* d->x [R,N] and d->w [N] of d->y and of the tensors in a. */
void rmsnorm_backward(const struct rmsnorm *a, const struct rmsnorm *d, int64_t R, int64_t N);

#endif
