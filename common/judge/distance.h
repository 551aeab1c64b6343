/* distance.h - how far a result is from the correct values.
 *
 * b the correct values, e = a - b where b is finite, and 0 where |e| is below the smallest normal
 * float (values below it may be lost):
 *
 *     measure       formula                            sees
 *     max           max |e| / max |b|                  one element that is far off
 *     rms           (sum e^2 / sum b^2)^1/2            everything a little off
 *     gain          |sum e b| / sum b^2                all too large or too small, by far less than
 *                                                      a rounding
 *     offset        |mean e| / (mean b^2)^1/2          all shifted one way
 *     slice         (mean e^2)^1/2 in a slice          one row, head, step or column; small rows
 *                                                      beside large ones
 *     slice gain    |sum e b| / (n sum b^2)^1/2        a scale, or lost columns, in one slice
 *                   in a slice of n >= 16 elements
 *
 * The first four are fractions, but where all of b is 0: then they have no divisor.  The slices of
 * a tensor are the rows of its last axis, and all elements of one index of an axis, where at least two axes
 * are longer than 1; their measures are in the tensor's own unit, so that small slices stand by
 * themselves.  Sums have a fixed order, whatever the number of threads. */
#ifndef DISTANCE_H
#define DISTANCE_H

#include "common/call/contract.h"
#include "common/call/machine.h"

enum distance_by { BY_MAX, BY_RMS, BY_GAIN, BY_OFFSET, OF_ALL, BY_SLICE = OF_ALL, BY_SLICE_GAIN };
extern const char *const distance_names[]; /* their names */

/* A fraction for each measure of all elements. */
struct whole {
    double of[OF_ALL];
};

/* The slices of a tensor: `rows` of `columns` elements each, dense, then, of each axis but the last, the slices of its
 * indices, unless these are the rows, then the columns.  None (n = 0): a tensor with fewer than two
 * axes longer than 1. */
struct slices {
    int64_t n, rows, columns;
    int n_axes; /* longer than 1 */
    int64_t length[MAX_RANK];
    int axis[MAX_RANK]; /* of the shape */
};
struct slices slices_of(const struct call *f, int arg);
/* Where slice i is: its first element, and a bit for each axis of the shape that is fixed in it. */
int64_t slice_at(const struct slices *s, int64_t i, unsigned *fixed);

/* The slices of one kind, the rows, or the indices of an axis, end before these; how many kinds. */
int slices_kinds(const struct slices *s, int64_t end[MAX_RANK + 1]);

/* What is known of a slice: root mean squares, and the gain. */
struct slice {
    double off, gain, size; /* of e; |sum e b| / (n sum b^2)^1/2; of b */
    int64_t n;              /* its elements, but those where b is not finite */
};

struct distances {
    struct whole whole;
    int64_t worst; /* flat index of the largest e, or of the first that is infinitely off */
    struct {
        double most, rms, mean; /* the largest |b|, their root mean square, and their mean */
        int64_t n;              /* of so many that are finite */
    } want;
    struct slices slices;
    struct slice *slice; /* slices.n of them, or NULL */
};
/* Of a from b, tensors of argument `arg` of the call.  Where b is NaN or infinite a must be NaN, or the
 * same infinity, and where b is finite a must be; otherwise all measures are infinite that have such an element.  Nonzero after
 * err_set(); to be freed in any case. */
int distances_find(struct distances *d, const struct call *f, int arg, const double *a,
                   const double *b);
void distances_free(struct distances *d);

/* The same without slices, of n elements: max, rms. */
struct distance {
    double max, norm;
    int64_t worst; /* flat index */
};
struct distance distance(const double *a, const double *b, int64_t n);
/* Of bytes: max and norm are the share of them that differ, worst is the first that does. */
struct distance bytes_distance(const unsigned char *a, const unsigned char *b, int64_t n);
/* Are both the same value, or both NaN? */
int same_value(double a, double b);

#endif
