/* ablation.h - what a page shows of a task on which variants are compared: the parts of the section Ablation. */
#ifndef PAGE_ABLATION_H
#define PAGE_ABLATION_H

#include <stdint.h>
#include <stdio.h>

#include "common/page/dump.h"
#include "common/page/plot.h"

/* Cells from..to - 1 are those of one task. */
struct ablation_task {
    const struct page_dump *d;
    const struct ablation *a;
    const char *name;
    int from, to;
    int64_t length, longest; /* of training; of the longest test */
    int in_bits;
    double chance; /* of the metric: accuracy, or bits */
    int figures;   /* the tasks that have figures, which share the page's space */
};

/* The task whose first cell is `from`. */
struct ablation_task ablation_task_of(const struct page_dump *d, int from);
/* A result of a cell as the page knows it; NULL where the trial has no curves. */
const struct page_run *ablation_run(const struct ablation_task *t, const struct ablated_cell *c,
                                    int k);
/* Its value of the metric at a length; NAN: it was not tested there. */
double ablation_value(const struct ablation_task *t, const struct ablated_cell *c, int k,
                      int64_t length);

/* The axis of the metric, for values that were seen: accuracy from below chance to 1; bits about the values. */
struct plot_axis ablation_metric(const struct ablation_task *t, const struct plot_span *seen);

/* What the numbers of a figure stand in, folded away: a table with these heads (html_table). */
void ablation_numbers(FILE *to, const char *heads);
void ablation_numbers_end(FILE *to);
/* A row's first cell, the variant; a cell of a number with that many decimals, or of one of any size. */
void ablation_row(FILE *to, const struct ablated_cell *c);
void ablation_cell(FILE *to, double x, int decimals);
void ablation_number(FILE *to, double x);

/* The figures of a task: over updates; of the results; and a heat map of all tasks.  Each writes as many rows of numbers as
 * are `left`.  Nonzero after err_set(): no memory. */
int ablation_curves(FILE *to, const struct ablation_task *t, int *left);
void ablation_results(FILE *to, const struct ablation_task *t, int *left);
void ablation_heat(FILE *to, const struct page_dump *d, int *left);

#endif
