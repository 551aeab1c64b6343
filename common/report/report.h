/* report.h - the report that is printed while an experiment runs, and its summary. */
#ifndef REPORT_H
#define REPORT_H

#include <stdio.h>

#include "common/report/baseline.h"
#include "common/run/result.h"
#include "common/store/store.h"

struct report;

enum {
    REPORT_TSV = 1,    /* one tab-separated record per line, instead of the table */
    REPORT_VERBOSE = 2 /* in the table, how many checks of which name each kernel had */
};
/* `how` has these flags.  NULL after err_set(). */
struct report *report_new(const struct experiment *x, FILE *to, int how);
/* The head: the plan and the devices.  The store says which existing file of
 * that name it replaces; `resumed` trials are complete already; times are
 * compared with the baseline b, if it is not NULL. */
void report_head(struct report *p, const char *file, struct store *store, int resumed,
                 const struct baseline *b);
/* The head of the report on results that another program left in a dump: of that program, or of all
 * that did (`as` is NULL).  What it did not leave has a line below the rows of its trial. */
void report_head_judged(struct report *p, const char *file, const char *as);
/* A trial that has run; a trial that could not run (err_text() says why). */
void report_trial(struct report *p, int i, const struct result *r);

/* The largest value seen of something, and where; trial 0: nothing was. */
struct worst {
    double value;
    char tensor[32];
    int trial;
};
/* What the closing lines say, of all trials or of one. */
struct report_sums {
    int checks, failed, skipped, missing, unchecked, unjudged, missed;
    int trained, diverged; /* runs of training */
    double copies, hidden; /* seconds, as in struct result */
    struct worst difference, yard, margin;
    char why_skipped[1024]; /* each reason once */
};
/* The same of a trial that another process has run, in two halves: there, in that process's report of the same plan, the
 * lines that report_trial() would print below the head of its table, and its sums; NULL after err_set(), to be freed.  And
 * here. */
char *report_lines(struct report *p, int i, const struct result *r, struct report_sums *sums);
void report_elsewhere(struct report *p, int i, const char *lines, const struct report_sums *sums);

void report_error(struct report *p, int i, const char *reason);
/* A trial that an earlier run completed. */
void report_resumed(struct report *p, const struct store_counts *c);
/* The times of trial i beside those of an earlier run. */
void report_baseline(struct report *p, int i, const struct baseline *b,
                     const struct comparison *list, int n);
/* A line on the whole, before the summary. */
void report_note(struct report *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* What runs of training say of each other. */
struct stored_ablation;
void report_ablation(struct report *p, const struct stored_ablation *a);
/* Summary and closing line "N checks, F failed, S skipped"; returns F. */
int report_end(struct report *p, const char *file, int interrupted);
void report_free(struct report *p);

/* The plan alone, one line per trial, and aside how large its dump will be and, if that is a minute or more, how
 * long it will take; of training the table of sizes.h. */
void report_plan(const struct experiment *x, FILE *to, FILE *aside);

#endif
