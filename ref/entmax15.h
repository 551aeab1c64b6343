/* entmax15.h - the 1.5-entmax of one row of n elements, for every reference of an attention. */
#ifndef REF_ENTMAX15_H
#define REF_ENTMAX15_H

#include "ref/ref.h"

/* p from a. */
void REF(entmax15_row)(real *p, const real *a, int64_t n);
/* From dL/dp to dL/da, in place. */
void REF(entmax15_row_back)(const real *p, real *d, int64_t n);

#endif
