/* ranges.h - ranges in the lists of a section [trial], as the numbers that they stand for.
 *
 *     11 .. 26                every whole number from 11 to 26
 *     64:4096 x2              64, 128, 256, ... 4096: each the one before, times 2; 4096 at most
 *     1000:60000 random 20    20 different numbers from 1000 to 60000, uniform in the logarithm,
 *                             ascending
 *
 * What is random depends on the seed, the key and the range alone: number i of the sequence is
 *
 *     floor(A ((B + 1) / A)^u),   u = draw_uniform(draw_key(seed, key), i),   of A:B,
 *
 * and `random N` takes its first N different numbers, so that a larger N keeps those of a smaller.
 *
 * Errors: no range, a first number that is larger than the last (or, but for `..`, below 1), fewer
 * numbers than are to be drawn, more than MAX_TRIALS values in the ranges of a list. */
#ifndef RANGES_H
#define RANGES_H

#include <stdint.h>

/* The list `values` of that key, "1, 64:256 x2", with its ranges written as numbers, "1, 64, 128,
 * 256", to be freed; all other text is as it was.  NULL after err_set(). */
char *ranges_expand(const char *key, const char *values, uint64_t seed);

#endif
