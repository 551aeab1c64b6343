/* noise.h - how far two medians of times may be apart by chance. */
#ifndef NOISE_H
#define NOISE_H

enum { ENOUGH_RUNS = 3 }; /* of fewer, the spread says little */

/* Three standard deviations of the difference of two medians, if times were normally distributed:
 * a spread is the median of the times' distances from their median, 1 / 1.4826 standard
 * deviations. */
double times_noise(double one_spread, double other_spread);

#endif
