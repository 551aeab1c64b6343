/* summary.h - settings compared: the trials of an operation that agree in some keys are a group, and
 * each backend and kernel of a group is a row with the statistics of its trials.
 *
 * A trial gives a row five values, where it has them:
 *
 *     forward, backward   the median times, in seconds
 *     total               their sum; of the passes that any trial of the operation was timed in
 *     ratio               the largest error / bound of its checks; of bits that differ, infinite
 *     error               the largest error of parity, of the oracle's differences, or of the yardstick
 *                         against the oracle
 *
 * Verdicts on times (goals, defaults) have neither error nor ratio, and what cannot be judged has
 * none.  Of n values x the mean is m = sum x / n, and the standard deviation
 * (sum (x - m)^2 / (n - 1))^(1/2), of two values at least.
 *
 * The best group comes first: that with the shortest mean total of a kernel of which no check but
 * of times failed, or where no trial was timed that with the smallest mean ratio of its worst
 * kernel.  Groups without it are last, and equal ones in the plan's order. */
#ifndef PAGE_SUMMARY_H
#define PAGE_SUMMARY_H

#include "common/page/dump.h"

enum summary_value {
    SUMMARY_FORWARD,
    SUMMARY_BACKWARD,
    SUMMARY_TOTAL,
    SUMMARY_RATIO,
    SUMMARY_ERROR,
    N_SUMMARY_VALUES
};

/* The mean and the standard deviation of n values, and the largest of them; NaN where not known. */
struct summary_stat {
    int n;
    double mean, deviation, max;
};

/* A backend and kernel in one trial; a value that it does not have is NaN. */
struct summary_cell {
    const struct page_trial *trial;
    const char *backend, *kernel;
    const char *tensor, *distance; /* of the largest ratio; "" */
    double value[N_SUMMARY_VALUES];
    int64_t checks, failed, unjudged;
    int64_t wrong; /* the failed ones that are not of times */
    int group, place;
};

/* The same in all trials of a group. */
struct summary_row {
    const struct summary_cell *cell; /* of its n trials */
    int n;
    const char *backend, *kernel;
    struct summary_stat stat[N_SUMMARY_VALUES];
    const struct summary_cell *worst; /* with the largest ratio; else the first */
    int64_t checks, failed, unjudged, wrong;
};

struct summary_group {
    const struct page_trial *first; /* has its settings */
    int trials;
    const struct summary_row *row; /* the best first */
    int n;
    double key; /* by which groups are ordered */
};

/* Of an operation. */
struct summary {
    const char *op;
    const char *key[MAX_WORDS]; /* whose values a group has in common */
    int n_keys;
    const char *over[MAX_WORDS]; /* the others that vary */
    int n_over;
    int trials, unfinished, empty; /* those that are finished; empty: no checks and no times */
    int by_time;                   /* is the order that of times?  Else of ratios */
    struct summary_group *group;
    int n;
    struct summary_row *row;
    int n_rows;
    struct summary_cell *cell;
    int n_cells;
};

/* The keys of "state,nonlin" in *by, which keeps them as long as `text`, which is cut.  Nonzero after
 * err_set(): it names none, or one that no trial has. */
struct summary_by {
    const char *key[MAX_WORDS];
    int n;
};
int summary_keys(const struct page_dump *d, char *text, struct summary_by *by);

/* *s becomes the summary of group g of the dump, by these keys; NULL: by all that vary but the seed.
 * Nonzero after err_set(); to be freed in any case. */
int summary_of(const struct page_dump *d, const struct page_group *g, const struct summary_by *by,
               struct summary *s);
void summary_free(struct summary *s);

/* The value of a trial's setting, or its section; "" where it has none. */
const char *summary_setting(const struct page_trial *t, const char *key);
/* "ref32 plain" */
const char *summary_name(const struct summary_row *r, char *text, size_t size);
/* A value as a person reads it: "12.3 ± 0.41 us", "1.2e-07 ± 3e-08"; of one trial without what
 * follows ±.  "" where it is not known. */
enum { SUMMARY_TEXT = 80 };
const char *summary_text(const struct summary_row *r, enum summary_value v,
                         char text[SUMMARY_TEXT]);

#endif
