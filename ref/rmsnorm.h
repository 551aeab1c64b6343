/* rmsnorm.h - rmsnorm of the rows of a matrix, which qk_norm is as well. */
#ifndef RMSNORM_H
#define RMSNORM_H

#include "ref/ref.h"

#define rmsnorm_forward REF(rmsnorm_forward)
#define rmsnorm_backward REF(rmsnorm_backward)

/* y [R,N] and rstd [R] of x [R,N], w [N]. */
void rmsnorm_forward(const num *x, const num *w, real eps, num *y, real *rstd, int64_t R,
                     int64_t N);
/* dx [R,N] and dw [N]. */
void rmsnorm_backward(const num *x, const num *w, const real *rstd, const num *dy, num *dx,
                      real *dw, int64_t R, int64_t N);

#endif
