/* values.h - the values that a tensor, or its gradient, may have. */
#ifndef VALUES_H
#define VALUES_H

#include "common/call/call.h"

/* Checks all elements of x: tensor `arg`, or, with `grad`, its gradient, in the shape that the
 * contract names.  A finite one may not become infinite in the type in which b stores the tensor;
 * infinities and NaN are allowed.  In an input of whole numbers each must be one, up to 2^53; in
 * an input of indices also below the contract's index_range(), or the value of the parameter
 * `no_index`.
 *
 * Nonzero after err_set() for the first element that is not allowed, with `place`, which says in
 * words where x comes from: "model.h5:/target has 7 at [1]: 0 to 6", or "x has 1e+39 at [3,0]:
 * the largest fp32 is 3.40282e+38". */
int values_check(const struct call *f, int arg, int grad, const char *place, const double *x);

/* The same of a tensor of bytes, of which the contract alone refuses any (struct arg, bytes_check). */
int values_check_bytes(const struct call *f, int arg, const char *place, const unsigned char *b);

/* The text "[2,3]" for element i of tensor `arg`. */
void values_index(const struct call *f, int arg, int64_t i, char *text, size_t size);
/* The same of all elements that are on the same places as element i on the axes whose bit is set in
 * `fixed`: "[2,:]". */
void values_slice(const struct call *f, int arg, int64_t i, unsigned fixed, char *text,
                  size_t size);

#endif
