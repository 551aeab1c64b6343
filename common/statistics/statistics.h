/* statistics.h - what numbers of several seeds say: a mean that a stray seed does not move, its interval, and a test of
 * two variants whose runs are paired by seed.  All is computed in double; n values, n > 0, none of them a NaN. */
#ifndef STATISTICS_H
#define STATISTICS_H

#include <stdint.h>

struct interval {
    double low, high;
};

/* The interquartile mean: of the values in order without the first and the last floor(n/4). */
double interquartile_mean(const double *x, int n);
/* All three add in order of size, so that the order of the values changes no bit. */
double plain_mean(const double *x, int n);
double median_of(const double *x, int n);

/* 95 % intervals of a statistic of n values, by `resamples` draws of n of them with replacement, keyed by the seed.
 * BCa (Efron 1987): z0 from the share of resamples below the value, those that equal it counting half; the acceleration
 * from the n values that one leaves out (0 where these are all equal).  Quantiles of the resamples are interpolated
 * linearly.  Nonzero after err_set(): no memory. */
enum { RESAMPLES = 10000 };
struct bootstrap {
    struct interval bca, percentile;
};
int bootstrap(const double *x, int n, double (*statistic)(const double *x, int n), uint64_t seed,
              struct bootstrap *to);

/* The 95 % interval of a share of which k of n were seen (Wilson 1927). */
struct interval wilson(int k, int n);

/* The two-sided p of the mean of n differences, if each had either sign as likely: the share of the 2^n ways to give
 * signs whose mean is as far from 0 or farther.  Exact up to 24 differences; beyond, from `SIGN_DRAWS` ways drawn by the
 * seed, the one seen among them. */
enum { SIGNS_EXACT = 24, SIGN_DRAWS = 1 << 20 };
double sign_flip(const double *difference, int n, uint64_t seed);
/* The least p that n differences can have. */
double sign_flip_least(int n);

/* p of n tests, each adjusted so that a decision by it holds for all of them together (Holm 1979). */
void holm(const double *p, double *adjusted, int n);

#endif
