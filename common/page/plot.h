/* plot.h - figures with two axes, each linear or logarithmic: curves, bands, points, whiskers.
 *
 * What is drawn of a variant has its look, in all figures the same: a colour, from 8 variants on a dash of its
 * lines, and the shape of its marks.  The colours differ in lightness as well as in hue (style.c). */
#ifndef PAGE_PLOT_H
#define PAGE_PLOT_H

#include <stdio.h>

#include "common/page/run.h"

enum { PLOT_WIDTH = 430, PLOT_HEIGHT = 300, PLOT_LEFT = 56, PLOT_RIGHT = 14, PLOT_TOP = 14 };
enum { PLOT_BOTTOM = 40, PLOT_POINTS = 500 };

/* The values from..to; what lies beyond is drawn at the end.  On a logarithmic axis from > 0. */
struct plot_axis {
    double from, to;
    int log;
    const double *tick; /* values that get a label, in ascending order; NULL: round ones */
    int n_ticks;        /* -1: no labels at all */
    const char *name;   /* below the axis x; of the axis y the caption speaks */
};
struct plot {
    FILE *to;
    struct plot_axis x, y;
    int height;
    double shift; /* to the right, of all that is drawn: what else would lie on the same place */
};

/* The axis of finite values that were seen: least to greatest, with some space; logarithmic, where `log` is 1 and
 * the values are > 0 (1e-99 to 1e99), and where it is 2 only if they also span a factor of 8.  Without a value: 0 to 1. */
struct plot_span {
    double least, greatest;
};
#define PLOT_NONE                                                                                  \
    (struct plot_span)                                                                             \
    {                                                                                              \
        INFINITY, -INFINITY                                                                        \
    }
void plot_see(struct plot_span *s, double value);
void plot_see_curve(struct plot_span *x, struct plot_span *y, const struct page_curve *c);
struct plot_axis plot_axis(const struct plot_span *s, int log, const char *name);

/* Begins a figure: its frame, ticks and labels.  `label` is its text for whoever cannot see it, without & and <. */
void plot_begin(const struct plot *p, const char *label);
/* Ends the drawing, and writes the caption, which is HTML.  plot_end() ends the figure: what stands between belongs
 * to it. */
void plot_caption(const struct plot *p, const char *html);
void plot_end(const struct plot *p);

/* Places in the drawing. */
double plot_x(const struct plot *p, double x);
double plot_y(const struct plot *p, double y);

enum plot_line { PLOT_FAINT, PLOT_THIN, PLOT_CURVE, PLOT_THICK };
/* A curve by at most `points` of its points, in which its first, its last and its extremes are; it has a gap where
 * a value is no number. */
void plot_curve(const struct plot *p, const struct page_curve *c, int look, enum plot_line line,
                int points);
/* The area between two curves of the same x, where the lower one is finite. */
void plot_band(const struct plot *p, const struct page_curve *low, const struct page_curve *high,
               int look);
/* A dashed level across the figure, with its name, where the axis has it. */
void plot_level(const struct plot *p, double y, const char *name);
/* At places: the mark of a look; a small point; the cross of a run that diverged; a whisker. */
void plot_mark(const struct plot *p, double at_x, double at_y, int look, int hollow);
void plot_dot(const struct plot *p, double at_x, double at_y, int look);
void plot_cross(const struct plot *p, double at_x, double at_y, int look);
void plot_whisker(const struct plot *p, double at_x, const double from_to[2], int look);

/* The cross at the last finite point of a curve, if there is one. */
void plot_diverged(const struct plot *p, const struct page_curve *c, int look);

/* A key of a legend: the line and the mark of a look, 22 wide and 10 high. */
void plot_key(FILE *to, int look);

#endif
