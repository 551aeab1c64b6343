/* ceilings.h - the fraction of the machine's ceilings that a measured time reaches,
 * and the crossover from which on a kernel is bound by throughput. */
#ifndef CEILINGS_H
#define CEILINGS_H

#include "common/call/ceiling.h"
#include "common/call/run.h"

/* The fraction of a ceiling that a pass reaches is the minimum time under this ceiling, divided by
 * the measured time. */

/* The minimum time, in seconds, of a pass of o on b under each ceiling. */
void min_times(const struct ceilings *c, const struct call *f, enum pass p,
               double min_time[N_CEILINGS]);
/* The ceiling with the longest minimum time. */
enum ceiling binding(const double min_time[N_CEILINGS]);

/* Steps times sequences, or the one of them that a case has: rows of a batch. */
double case_tokens(const struct call *f);
/* Independent recurrences: sequences times heads. */
double case_rows(const struct call *f);

/* One kernel at batches of 1, 2, 4 ...; only those that were judged. */
enum { MAX_POINTS = 32 };
struct crossover {
    const struct backend *backend;
    const struct impl *kernel;
    int n;
    int64_t batch[MAX_POINTS];
    double rows[MAX_POINTS];
    struct outcome outcome[MAX_POINTS];
    char stopped[200]; /* why larger batches were not run, or "" */
};

/* The number of rows at which p's time begins to grow with them: below it a pass takes as long as
 * one row does (its latency), above it each further row adds its time (throughput).  It is the time
 * of the smallest batch over the time that each of the last rows added; 0 where that is still less
 * than half the average time per row: the time does not grow with the rows yet. */
double crossover_rows(const struct crossover *g, enum pass p);

/* c, where it says what b can do; else NULL. */
const struct ceilings *ceilings_of(const struct ceilings *c, const struct backend *b);
/* Measure the ceilings of the first judged backend that can; NULL, or why none. */
const char *ceilings_measure(struct contexts *all, struct ceilings *to);

#endif
