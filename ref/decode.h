/* decode.h - the weights that bytes stand for, for references of other operations. */
#ifndef DECODE_H
#define DECODE_H

#include "common/ops/quantised.h"
#include "ref/ref.h"

/* w [N,K], of the sizes and choices of f, which are quantised.h's; a->w is not used.  They are floats,
 * not rounded to a storage type. */
void REF(decode)(const struct call *f, const struct dequantise *a, real *w);

#endif
