/* nearest.h - for which whole number does a quantity come nearest to a target?
 *
 * The quantity is taken to rise with the number, or to stay, from 1 on: the search doubles or halves the number that
 * there is, and then bisects.  Not every number need have one, as where it must be a multiple or a divisor: what is refused is
 * passed over, up to 1024 numbers, or as many as the one that there is.  Numbers below 1 stand for something else
 * ("0: as heads") and are each tried.  If of those that were tried the quantity falls anywhere, all numbers up to 4096
 * are. */
#ifndef PLAN_NEAREST_H
#define PLAN_NEAREST_H

#include <stdint.h>

struct nearest {
    /* Nonzero: that number is refused; else *quantity becomes its. */
    int (*at)(void *data, int64_t number, double *quantity);
    void *data;
    double target;
    int64_t min, max, now; /* now: one that is not refused */
};

/* The nearest of those not above the target, and of those above it; there: is there one? */
struct nearest_two {
    struct nearest_one {
        int there;
        int64_t number;
        double quantity;
    } below, above;
};

/* Nonzero after err_set(): no memory. */
int nearest_find(const struct nearest *n, struct nearest_two *to);
/* The nearer one within that part of the target; NULL: none. */
const struct nearest_one *nearest_within(const struct nearest_two *of, double target, double part);
/* Is a quantity within that part of the target? */
int nearest_is_within(double quantity, double target, double part);

#endif
