/* tables.h - an ablation as tables: in the dump, as CSV, and on the page. */
#ifndef ABLATION_TABLES_H
#define ABLATION_TABLES_H

#include <stdio.h>

#include "common/ablation/ablation.h"
#include "common/base/column.h"

/* runs (not in the dump, whose trials they are), cells, tests of each cell by length, rates of each cell's search, pairs, sizes. */
enum {
    TABLE_RUNS,
    TABLE_CELLS,
    TABLE_TESTS,
    TABLE_RATES,
    TABLE_PAIRS,
    TABLE_SIZES,
    ABLATION_TABLES
};
extern const char *const ablation_table_names[ABLATION_TABLES + 1]; /* "runs" ..., NULL */

struct ablation_table {
    const char *name;
    const struct column *column; /* ends with a NULL name */
    size_t size;                 /* of a row */
    int n;
    void *row; /* texts are the ablation's */
};

/* Nonzero after err_set(); free(to->row) in any case. */
int ablation_table(const struct ablation *a, int which, struct ablation_table *to);
/* A head, and a line for each row; texts in quotes where they need them, and nothing where a value is not known.
 * Nonzero after err_set(): no memory. */
int ablation_csv(const struct ablation_table *t, FILE *to);

#endif
