/* ablation.h - what many runs say of each other: the best rate of each cell, means with their intervals, and variants compared.
 *
 * A cell is a variant on a task.  Its best rate has the highest interquartile mean over seeds of the accuracy of the last
 * validation (the fewest bits, where a task is judged by them); of equal ones that with fewer updates to the target, then
 * the smaller.  Results are tests of the last weights, of the runs that confirm; where there are none, of the search's own at
 * that rate, and then `searched` says so if there was more than one.
 *
 * Variants are compared on each task by the test at its longest length, paired by seed: the mean difference with its
 * bootstrap interval, and the sign-flip test, exact up to SIGNS_EXACT seeds, Holm-adjusted over the task's pairs.  *better* and *worse* need both an
 * adjusted p < 0.05 and a BCa interval off 0; *equal* an interval within the margin, of five seeds or more; all else is *no difference shown*, or,
 * where no result of so many pairs and seeds could pass, *too few seeds*.  At shorter lengths differences and intervals are given and
 * nothing is claimed. */
#ifndef ABLATION_H
#define ABLATION_H

#include <stdint.h>

#include "common/ablation/runs.h"
#include "common/statistics/statistics.h"

/* Solved: accuracy of at least SOLVED at the training length; holds: a mean of at least HOLDS over longer ones. */
#define SOLVED 0.99
#define HOLDS 0.9
enum { EQUAL_SEEDS = 5 };

/* The runs of a cell at one rate. */
struct searched_rate {
    double rate;
    int n;
    double validated; /* the interquartile mean */
    double updates;   /* median of those to the target, INFINITY where it is not reached */
};

/* Of n runs at one length: the interquartile mean. */
struct test_of {
    int64_t length;
    double value;
    struct bootstrap interval; /* of one run NaN, as a pair's of one seed */
};

struct ablated_cell {
    char variant[RUN_NAME], task[RUN_NAME];
    int in_bits;
    double chance;
    int n_rates, best; /* in ascending order; best: its place; -1: no run of the search is there */
    struct searched_rate *rate;
    int at_end; /* the best is the first (-1) or the last (1) of several rates: a better one may lie beyond */
    int searched; /* results are of the seeds that chose the rate, out of several */
    int n;        /* results, */
    int *run;     /* in ascending order of seeds: their places among the runs */
    int n_tests;
    struct test_of test[MAX_TESTS];
    int solved, holds; /* of n; -1: the task, or the lengths, leave no such thing */
    struct interval solved_in, holds_in; /* Wilson's, of the shares */
    double updates, tokens, seconds;     /* medians to the target, INFINITY */
    int diverged, stopped;               /* of n */
    double parameters, inner, state_bytes, flops;
};

enum comparison_word { NOT_CLAIMED, NO_DIFFERENCE, BETTER, WORSE, EQUAL, TOO_FEW_SEEDS };
extern const char *const comparison_words[]; /* "", "no difference shown", "better", ... */

/* Cell a less cell b. */
struct compared_pair {
    int a, b;
    int64_t length;
    int n;             /* seeds that both have */
    double difference; /* the mean, of accuracy or bits */
    struct bootstrap interval;
    double p, adjusted; /* NAN: nothing is claimed at this length, or too few seeds */
    enum comparison_word word;
};

struct ablation {
    const struct runs *runs;
    int n_cells, n_pairs, n_tasks;
    struct ablated_cell *cell; /* tasks in their order, and of each the variants in theirs */
    struct compared_pair *pair;
};

/* How it is made. */
struct pair_of_names {
    const char *a, *b;
};
struct ablation_how {
    const char *baseline;             /* a variant, with which all others are compared; or "" */
    const struct pair_of_names *pair; /* or declared pairs of variants */
    int n_pairs;
    double margin;
    uint64_t seed; /* of the resamples */
    int intervals; /* of the cells; those of pairs are made in any case */
};

/* A verdict as it is shown: "worse, p 0.010". */
enum { COMPARISON_TEXT = 80 };
void comparison_text(const struct compared_pair *p, char text[COMPARISON_TEXT]);

/* Of the verdicts on pairs of these cells, from..to - 1: how many differences the one has, at most, whose p is not exact, since
 * it is from ways to give signs that were drawn (sign_flip()).  0: all are exact. */
int ablation_drawn(const struct ablation *a, int from, int to);

/* The test of a cell at a length; NULL: there is none. */
const struct test_of *ablated_test_at(const struct ablated_cell *c, int64_t length);

/* The cells of one task, from..to - 1; the training length, and that of the longest test. */
struct ablated_task {
    int from, to;
    int64_t length, longest;
};
/* The one whose first cell is `from`. */
struct ablated_task ablated_task_of(const struct ablation *a, int from);

/* Nonzero after err_set(); ablation_free() in any case.  The runs must outlive it. */
int ablation_of(const struct runs *r, const struct ablation_how *how, struct ablation *to);
void ablation_free(struct ablation *a);

/* The best rate of a cell among the runs that search, as above; nonzero after err_set(): there is none. */
int ablation_best_rate(const struct runs *r, const char *variant, const char *task, double *rate);

#endif
