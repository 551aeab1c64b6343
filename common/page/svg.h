/* svg.h - small figures that fill a cell of a table: a strip of margins, dots and a bar.  Their
 * texts stand in the cells beside them. */
#ifndef PAGE_SVG_H
#define PAGE_SVG_H

#include <stdio.h>

/* Margins, error over bound, on a logarithmic axis from 10^-4 to 10; the bound is at 1.  Marks
 * that fall on the same place are drawn once. */
enum { STRIP_MARKS = 200 };
enum strip_kind { STRIP_GOOD, STRIP_UNSURE, STRIP_BAD, N_STRIP_KINDS };
struct strip {
    unsigned char mark[N_STRIP_KINDS][STRIP_MARKS + 1];
};
void strip_add(struct strip *s, double margin, enum strip_kind kind);
/* `label` is the figure's text for whoever cannot see it. */
void strip_write(FILE *to, const struct strip *s, const char *label);
/* The axis of strips, for a table's caption. */
void strip_axis(FILE *to);

/* Values on a logarithmic axis of whole decades: a mark for each, and a longer one for their mean.
 * All figures of a section have one axis. */
struct dots_axis {
    double first; /* a power of ten */
    int decades;
};
/* The axis of values from `least` to `greatest`, both > 0. */
struct dots_axis dots_axis(double least, double greatest);
void dots_write(FILE *to, struct dots_axis axis, const double *x, int n, double mean,
                const char *label);

/* A bar from 0 to `value`, in units of `full`, its width; a thin line from `from` to `to`,
 * unless both are the same; and a mark at `at`, unless that is not > 0.  A longer bar is cut at
 * its end. */
struct bar {
    double full, value, from, to, at;
    int second; /* is it of the second colour? */
};
void bar_write(FILE *to, const struct bar *b, const char *label);

#endif
