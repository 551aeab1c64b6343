/* baseline.h - are the times of a run worse than those of an earlier one?
 *
 * Compared are times of the same trial, word for word but for its goals, and the same backend,
 * kernel and pass, taken on the same device in the same way.  From each run come
 * the median of its times and their noise: three standard deviations, estimated
 * from the spread (1.4826 times the median distance from the median).  With
 *
 *     limit = max(threshold * median then, sqrt(noise then^2 + noise now^2))
 *
 * a time is slower if now - then > limit, faster if then - now > limit, and
 * else as it was.
 *
 * If a GPU takes part, only its times are compared: the references are there to
 * be right. */
#ifndef BASELINE_H
#define BASELINE_H

#include "common/store/read_times.h"

enum pace { AS_BEFORE, SLOWER, FASTER, NOT_COMPARED };

struct comparison {
    enum pace pace;
    const char *why; /* it is NOT_COMPARED; else NULL */
    struct timing was, is;
    double noise, limit; /* seconds */
};

/* One time with its counterpart. */
struct comparison compare_times(const struct timing *was, const struct timing *is,
                                double threshold);
/* Are these one device, as the backends' device() says?  The driver may be
 * another, and clocks, which are measured, may differ by 1 %. */
int same_device(const char *was, const char *is);

struct baseline;

/* Take the times of `file` to compare with those of a run on `device` (as
 * header_device() says it), slower ones failing over `threshold` (0.05: 5 %).
 * NULL after err_set(): no dump, no times in it, another device. */
struct baseline *baseline_open(const char *file, double threshold, const char *device);
void baseline_free(struct baseline *b);
/* Nonzero after err_set() where trials that an earlier part of the run left are
 * another device's than the baseline. */
int baseline_resume(const struct baseline *b, const char *device);
/* The difference between the drivers, in words; "" if there is none. */
const char *baseline_driver(const struct baseline *b);
const char *baseline_file(const struct baseline *b);
double baseline_threshold(const struct baseline *b);
/* Compare all times of a trial: returns how many comparisons are in *list,
 * which is to be freed, or -1 after err_set(). */
int baseline_compare(const struct baseline *b, const struct timings *now, struct comparison **list);

#endif
