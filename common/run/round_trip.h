/* round_trip.h - what is lost where tensors are packed: the inverse of an operation (struct op)
 * makes its first input again of a run's results. */
#ifndef ROUND_TRIP_H
#define ROUND_TRIP_H

#include "common/call/run.h"

struct round_trip {
    int64_t bytes; /* of all results, in the types of ref32; 0: not known */
    double bits;   /* per element of the input x */
    double rmse;   /* |x' - x| / |x|, of all elements: x' is made by the inverse, in float */
    double worst;  /* max |x' - x| / max |x|;  both are NaN where x is 0 */
};

/* The round trip of a run of f, which has an inverse; x is that of `given`.  Where some of the results
 * are not there nothing is known of it.  Nonzero after err_set(). */
int round_trip(const struct call *f, const struct tensors *given, const struct tensors *results,
               struct round_trip *to);

#endif
