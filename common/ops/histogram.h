/* histogram: how many of the N numbers x fall into each of M equal bins of 0 ... 1,
 *
 *     counts[k] = how many x with 0 <= x < 1 and floor(x M) = k
 *
 * the product exact, not rounded: a number below a bin's edge is counted below it, however near.
 * (So no floor is beyond M - 1.)  Every x that is in no bin is counted in outside, by its kind.
 * All counts are whole numbers, the same in each precision; there is no backward pass. */
struct histogram {
    void *x;       /* [N] */
    void *counts;  /* [M] */
    void *outside; /* [3]: NaN, below 0, at or above 1 */
};

enum { HISTOGRAM_NAN, HISTOGRAM_BELOW, HISTOGRAM_ABOVE, HISTOGRAM_KINDS };

/* Up to here one fused multiply-add of float numbers finds the floor. */
enum { HISTOGRAM_BINS_MAX = 1 << 23 };
