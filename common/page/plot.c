/* Draws figures with two axes (plot.h). */
#include "config.h"

#include <math.h>
#include <string.h>

#include "common/page/plot.h"

enum { COLOURS = 8, DASHES = 4, SHAPES = 5, TICKS = 5, MAX_DECADES = 30 };

/* ---- axes ---- */

void plot_see(struct plot_span *s, double value)
{
    if (!isfinite(value))
        return;
    s->least = fmin(s->least, value);
    s->greatest = fmax(s->greatest, value);
}

void plot_see_curve(struct plot_span *x, struct plot_span *y, const struct page_curve *c)
{
    for (int i = 0; i < c->n; i++)
        if (isfinite(c->y[i])) {
            plot_see(x, c->x[i]);
            plot_see(y, c->y[i]);
        }
}

struct plot_axis plot_axis(const struct plot_span *s, int log, const char *name)
{
    struct plot_axis a = {.from = s->least, .to = s->greatest, .name = name};

    if (!(a.from <= a.to))
        return (struct plot_axis){.to = 1, .name = name};
    a.log = log && a.from > 1e-99 && a.to < 1e99 && (log == 1 || a.to >= 8 * a.from);
    if (a.log) {
        const double space = fmax(pow(a.to / a.from, 0.06), 1.1);
        a.from /= space;
        a.to *= space;
    } else {
        a.from = fmin(a.from, 0);
        a.to = a.to > a.from ? a.to : a.from + 1;
    }
    return a;
}

static double part_of(const struct plot_axis *a, double value)
{
    const double part = a->log ? log(value / a->from) / log(a->to / a->from)
                               : (value - a->from) / (a->to - a->from);
    return isnan(part) ? 0 : fmin(fmax(part, 0), 1);
}

double plot_x(const struct plot *p, double x)
{
    return p->shift + PLOT_LEFT + part_of(&p->x, x) * (PLOT_WIDTH - PLOT_LEFT - PLOT_RIGHT);
}

double plot_y(const struct plot *p, double y)
{
    return p->height - PLOT_BOTTOM - part_of(&p->y, y) * (p->height - PLOT_TOP - PLOT_BOTTOM);
}

/* ---- ticks ---- */

/* 1, 2 or 5 times a power of ten, at most `TICKS` of which are x. */
static double step_of(double x)
{
    const double least = x / TICKS, power = pow(10, floor(log10(least)));
    const double m = least / power;
    return power * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

/* The labels of an axis in ascending order, at most MAX_TICKS. */
enum { MAX_TICKS = 64 };

static int ticks_of(const struct plot_axis *a, double tick[MAX_TICKS])
{
    static const double within[] = {1, 2, 5};
    const double end = a->to * (1 + 1e-9);
    int n = 0;

    if (a->n_ticks < 0)
        return 0;
    for (int i = 0; i < a->n_ticks && n < MAX_TICKS; i++)
        tick[n++] = a->tick[i];
    if (a->n_ticks)
        return n;
    if (!a->log) {
        const double step = step_of(a->to - a->from);
        for (double v = ceil(a->from / step) * step; v <= end && n < MAX_TICKS; v += step)
            tick[n++] = fabs(v) < step / 2 ? 0 : v;
        return n;
    }
    const int few = a->to / a->from < 1000;
    for (double power = pow(10, floor(log10(a->from))); power <= end && n < MAX_TICKS - 3;
         power *= 10)
        for (int k = 0; k < (few ? 3 : 1); k++)
            if (within[k] * power >= a->from * (1 - 1e-9) && within[k] * power <= end)
                tick[n++] = within[k] * power;
    return n;
}

static void ticks_up(const struct plot *p)
{
    double tick[MAX_TICKS];
    const int n = ticks_of(&p->y, tick);
    double last = INFINITY;

    for (int i = 0; i < n; i++) {
        const double y = plot_y(p, tick[i]);
        fprintf(p->to, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", PLOT_LEFT, y,
                PLOT_WIDTH - PLOT_RIGHT);
        if (last - y < 15)
            continue;
        fprintf(p->to, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>", PLOT_LEFT - 6,
                y + 4, tick[i]);
        last = y;
    }
}

static void ticks_across(const struct plot *p)
{
    double tick[MAX_TICKS], free = 0; /* free: the first place that no label takes */
    const int n = ticks_of(&p->x, tick), floor = p->height - PLOT_BOTTOM;
    char text[32];

    fprintf(p->to, "<path class=\"axis\" d=\"M%d %dH%d", PLOT_LEFT, floor, PLOT_WIDTH - PLOT_RIGHT);
    for (int i = 0; i < n; i++)
        fprintf(p->to, "M%.1f %dv4", plot_x(p, tick[i]), floor);
    fputs("\"/>", p->to);
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%.6g", tick[i]);
        const double x = plot_x(p, tick[i]), half = 4.0 * (double)strlen(text);
        if (x - half < free)
            continue;
        const int end = x + half > PLOT_WIDTH;
        fprintf(p->to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%s</text>",
                end ? (double)PLOT_WIDTH : x, floor + 18, end ? "end" : "middle", text);
        free = x + half + 6;
    }
    if (p->x.name)
        fprintf(p->to, "<text class=\"of\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>",
                PLOT_WIDTH - PLOT_RIGHT, p->height - 5, p->x.name);
}

/* ---- a figure ---- */

void plot_begin(const struct plot *p, const char *label)
{
    fprintf(p->to,
            "<figure><svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">",
            PLOT_WIDTH, p->height, label);
    ticks_up(p);
    ticks_across(p);
}

void plot_caption(const struct plot *p, const char *html)
{
    fprintf(p->to, "</svg><figcaption>%s</figcaption>\n", html);
}

void plot_end(const struct plot *p)
{
    fputs("</figure>\n", p->to);
}

/* ---- what is drawn ---- */

static void begin_path(FILE *to, const char *class, int look)
{
    const int dash = look / COLOURS % DASHES;

    fprintf(to, "<path class=\"%s s%d", class, look % COLOURS);
    if (dash)
        fprintf(to, " d%d", dash);
    fputs("\" d=\"", to);
}

void plot_curve(const struct plot *p, const struct page_curve *c, int look, enum plot_line line,
                int points)
{
    static const char *const class[] = {"curve thin faint", "curve thin", "curve", "curve thick"};
    double x[PLOT_POINTS], y[PLOT_POINTS];
    struct page_curve some = {x, y, c->n < PLOT_POINTS ? c->n : PLOT_POINTS};
    int pen = 0;

    if (!c->n)
        return;
    memcpy(x, c->x, some.n * sizeof *x);
    memcpy(y, c->y, some.n * sizeof *y);
    page_curve_thin(&some, points);
    begin_path(p->to, class[line], look);
    for (int i = 0; i < some.n; i++) {
        if (!isfinite(y[i])) {
            pen = 0;
            continue;
        }
        fprintf(p->to, "%c%.1f %.1f", pen ? 'L' : 'M', plot_x(p, x[i]), plot_y(p, y[i]));
        pen = 1;
    }
    fputs("\"/>", p->to);
}

/* Of points first..last - 1. */
static void band(const struct plot *p, const struct page_curve *low, const struct page_curve *high,
                 int first, int last, int look)
{
    fprintf(p->to, "<path class=\"band c%d\" d=\"", look % COLOURS);
    for (int i = first; i < last; i++)
        fprintf(p->to, "%c%.1f %.1f", i > first ? 'L' : 'M', plot_x(p, low->x[i]),
                plot_y(p, low->y[i]));
    for (int i = last - 1; i >= first; i--)
        fprintf(p->to, "L%.1f %.1f", plot_x(p, high->x[i]), plot_y(p, high->y[i]));
    fputs("z\"/>", p->to);
}

void plot_band(const struct plot *p, const struct page_curve *low, const struct page_curve *high,
               int look)
{
    for (int first = 0, last; first < low->n; first = last + 1) {
        for (last = first; last < low->n && isfinite(low->y[last]);)
            last++;
        if (last > first + 1)
            band(p, low, high, first, last, look);
    }
}

void plot_level(const struct plot *p, double y, const char *name)
{
    if (!(y >= p->y.from && y <= p->y.to))
        return;
    fprintf(p->to,
            "<path class=\"level\" d=\"M%d %.1fH%d\"/><text class=\"of\" x=\"%d\" y=\"%.1f\">%s"
            "</text>",
            PLOT_LEFT, plot_y(p, y), PLOT_WIDTH - PLOT_RIGHT, PLOT_LEFT + 3, plot_y(p, y) + 14,
            name);
}

/* Circle, square, triangle, diamond, and a triangle upside down, as paths from their centre. */
static const char *const shape[SHAPES] = {"m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
                                          "m-4 -4h8v8h-8z", "m0 -5l5 9h-10z",
                                          "m0 -5.5l5 5.5l-5 5.5l-5 -5.5z", "m0 5l5 -9h-10z"};

void plot_mark(const struct plot *p, double at_x, double at_y, int look, int hollow)
{
    fprintf(p->to, "<path class=\"%s %c%d\" d=\"M%.1f %.1f%s\"/>", hollow ? "hollow" : "mark",
            hollow ? 's' : 'c', look % COLOURS, at_x, at_y, shape[look % SHAPES]);
}

void plot_dot(const struct plot *p, double at_x, double at_y, int look)
{
    fprintf(p->to, "<circle class=\"c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>", look % COLOURS,
            at_x, at_y);
}

void plot_cross(const struct plot *p, double at_x, double at_y, int look)
{
    fprintf(p->to, "<path class=\"cross s%d\" d=\"M%.1f %.1fm-4 -4l8 8m0 -8l-8 8\"/>",
            look % COLOURS, at_x, at_y);
}

void plot_diverged(const struct plot *p, const struct page_curve *c, int look)
{
    int last = c->n - 1;

    while (last >= 0 && !isfinite(c->y[last]))
        last--;
    if (last >= 0)
        plot_cross(p, plot_x(p, c->x[last]), plot_y(p, c->y[last]), look);
}

void plot_whisker(const struct plot *p, double at_x, const double from_to[2], int look)
{
    const double from = plot_y(p, from_to[0]), to = plot_y(p, from_to[1]);

    if (isfinite(from_to[0]) && isfinite(from_to[1]))
        fprintf(p->to,
                "<path class=\"whisker s%d\" d=\"M%.1f %.1fV%.1fM%.1f %.1fh6M%.1f %.1fh6\"/>",
                look % COLOURS, at_x, from, to, at_x - 3, from, at_x - 3, to);
}

void plot_key(FILE *to, int look)
{
    fputs("<svg class=\"key line\" viewBox=\"0 0 24 12\" aria-hidden=\"true\">", to);
    begin_path(to, "curve thick", look);
    fprintf(to, "M0 6H24\"/><path class=\"mark c%d\" d=\"M12 6%s\"/></svg> ", look % COLOURS,
            shape[look % SHAPES]);
}
