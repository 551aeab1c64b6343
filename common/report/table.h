/* table.h - a table for a person: its columns fit the width of where it is printed.
 *
 * Columns that are too many are left out, in the order that they state.  Words are cut in the middle,
 * numbers never.  Where the settings, the first columns, would take over half of the width, or where
 * nothing else makes room, they stand on a line of their own above the rows of their trial. */
#ifndef TABLE_H
#define TABLE_H

#include "common/report/screen.h"

enum { MAX_COLUMNS = 96, MAX_CELL = 400 };

enum alignment { WORDS, NUMBER };
struct table_column {
    char head[64];
    int width;
    enum alignment alignment;
    int drop;  /* 0: it stays; columns with 1 are left out first, then those with 2 ... */
    int shown; /* by table_fit() */
};
struct table {
    struct table_column column[MAX_COLUMNS];
    int n, n_settings; /* the first, behind the trial's number */
    int stacked;       /* do the settings stand on a line of their own? */
};
/* A row: the text of each column. */
struct row {
    char cell[MAX_COLUMNS][MAX_CELL];
    int n;
};

void table_add(struct table *t, const char *head, int width, enum alignment a, int drop);
/* Choose what is shown in `width` columns. */
void table_fit(struct table *t, int width);
void table_head(const struct table *t, const struct screen *s);

/* The text is made printable (quote.h). */
void row_add(struct row *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Text that is printable already, and may have colours. */
void row_add_printable(struct row *r, const char *text);
/* The first n_settings + 1 cells are the trial's; they are printed if `first`. */
void table_row(const struct table *t, const struct screen *s, const struct row *r, int first);

#endif
