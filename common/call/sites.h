/* sites.h - where the references can be disturbed: the errors that a right kernel may make, made in
 * the oracle, and sums in another order in the references that compute in float. */
#ifndef SITES_H
#define SITES_H

/* In which order a sum's terms are added. */
enum order { AS_BUILT, FORWARDS, BACKWARDS };

/* Errors that a pass of the oracle adds to its intermediate values, which show how far such errors reach,
 * each up or down by up to so much of the value:
 *
 *     stored     to each element that it stores in the storage type, by that type's unit; not to what
 *                that type holds within four of float's
 *     loaded     to each element that it loads, to each sum of products, and to each constant that it
 *                computes with (a scale, the reciprocal of a count): float's unit
 *     special    to each result of sqrt, exp, tanh and log
 *     at_sites   to what a composition of operators would store between them, at those of the
 *                contract's sites (struct op) whose bit is set in `sites`: the storage type's unit; or
 *                of a sum that a kernel has of other terms than the reference: float's of these terms
 *
 * Values below the smallest normal float are 0 at random.  Errors follow from the size of the value, the file and the line, and the key: equal values are rounded alike, as in
 * a kernel.  With `lean` 1 all special functions are too large by their error, with -1 too small.  With `loaded`, products
 * of matrices are summed in float, one product after the other. */
struct noise {
    float stored, loaded, special;
    unsigned key;
    float at_sites;
    unsigned sites;
    int lean;
    int exact;        /* at the sites values are not moved but rounded, as storing them does */
    enum order order; /* in every reference; AS_BUILT: as the compiler and the BLAS have it */
    float
        cut; /* sums of products of matrices lose so much of themselves at each term that is added */
};

static inline int noise_any(const struct noise *n)
{
    return n->stored > 0 || n->loaded > 0 || n->special > 0 || n->at_sites > 0 || n->cut > 0 ||
           n->order != AS_BUILT;
}

#endif
