/* histogram: how many of the N elements of x fall into each of M equal bins of 0 ... 1,
 *
 *     counts[k] = how many x with 0 <= x < 1 and floor(x M) = k
 *
 * where the product is exact, not rounded: an element just below a bin's edge is in the bin below.
 * (So floor(x M) is at most M - 1.)  Elements outside 0 ... 1 are counted by their kind, in `outside`.
 * All counts are whole numbers, the same in each precision; there is no backward pass. */
struct histogram {
    void *x;       /* [N] */
    void *counts;  /* [M] */
    void *outside; /* [3]: NaN, below 0, at or above 1 */
};

enum { HISTOGRAM_NAN, HISTOGRAM_BELOW, HISTOGRAM_ABOVE, HISTOGRAM_KINDS };

/* Up to here one fused multiply-add of floats finds the floor. */
enum { HISTOGRAM_BINS_MAX = 1 << 23 };
