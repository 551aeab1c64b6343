/* Draws the strips, dots and bars (svg.h). */
#include "config.h"

#include <math.h>

#include "common/page/html.h"
#include "common/page/svg.h"

enum { WIDTH = 1000, HEIGHT = 16 };
enum { DECADES = 5 }; /* of a strip's axis, from FIRST */
static const double first = 1e-4;

static int mark_of(double margin)
{
    const double x = margin > first ? log10(margin / first) / DECADES : 0;
    return isnan(margin) || x >= 1 ? STRIP_MARKS : (int)(x * STRIP_MARKS);
}

void strip_add(struct strip *s, double margin, enum strip_kind kind)
{
    s->mark[kind][mark_of(margin)] = 1;
}

static void begin(FILE *to, const char *class, const char *label)
{
    fprintf(to,
            "<svg class=\"%s\" viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" role=\"img\" "
            "aria-label=\"",
            class, WIDTH, HEIGHT);
    html_text(to, label);
    fputs("\">", to);
}

/* Where a mark is on the strip; half a mark is free at either end. */
static int mark_x(int mark)
{
    return 6 + mark * (WIDTH - 12) / STRIP_MARKS;
}

void strip_write(FILE *to, const struct strip *s, const char *label)
{
    static const char *const class[N_STRIP_KINDS] = {"good", "unsure", "bad"};
    /* marks of what failed are as high as the strip, others leave the edge free */
    static const char *const line[N_STRIP_KINDS] = {"M%d 3v10", "M%d 3v10", "M%d 0v16"};
    const int bound = mark_x(mark_of(1));

    begin(to, "strip", label);
    fprintf(to, "<path class=\"over\" d=\"M%d 0H%dV16H%dz\"/>", bound, WIDTH, bound);
    fputs("<path class=\"axis\" d=\"M0 15.5H1000", to);
    for (int i = 1; i < DECADES; i++)
        fprintf(to, "M%d 11v5", mark_x(i * STRIP_MARKS / DECADES));
    fprintf(to, "\"/><path class=\"bound\" d=\"M%d 0v16\"/>", bound);
    for (int k = 0; k < N_STRIP_KINDS; k++) {
        int any = 0;
        for (int i = 0; i <= STRIP_MARKS; i++)
            if (s->mark[k][i]) {
                if (!any++)
                    fprintf(to, "<path class=\"%s\" d=\"", class[k]);
                fprintf(to, line[k], mark_x(i));
            }
        if (any)
            fputs("\"/>", to);
    }
    fputs("</svg>", to);
}

void strip_axis(FILE *to)
{
    fputs("<p class=\"note\">Strip: error / bound of each verdict, on a logarithmic axis from "
          "10<sup>−4</sup> or less (left end) to 10 or more (right end), a tick per decade. The "
          "line is the bound, 1; marks in the shaded part right of it are over the bound. Each row "
          "stands for as many verdicts as its last column says, and names the worst of them.</p>\n",
          to);
}

struct dots_axis dots_axis(double least, double greatest)
{
    const double from = floor(log10(least)), to = ceil(log10(greatest));
    return (struct dots_axis){pow(10, from), to > from ? (int)(to - from) : 1};
}

/* Where a value is; a value beyond the axis is at its end. */
static int dot_x(struct dots_axis axis, double x)
{
    const double place = x > axis.first ? log10(x / axis.first) / axis.decades : 0;
    return mark_x(place < 1 ? (int)(place * STRIP_MARKS) : STRIP_MARKS);
}

void dots_write(FILE *to, struct dots_axis axis, const double *x, int n, double mean,
                const char *label)
{
    unsigned char drawn[WIDTH + 1] = {0};

    begin(to, "strip", label);
    fputs("<path class=\"axis\" d=\"M0 15.5H1000", to);
    for (int i = 1; i < axis.decades; i++)
        fprintf(to, "M%d 11v5", mark_x(i * STRIP_MARKS / axis.decades));
    fputs("\"/><path class=\"good\" d=\"", to);
    for (int i = 0; i < n; i++) {
        const int at = isnan(x[i]) ? -1 : dot_x(axis, x[i]);
        if (at >= 0 && !drawn[at]++)
            fprintf(to, "M%d 4v8", at);
    }
    fprintf(to, "\"/><path class=\"mean\" d=\"M%d 0v15\"/></svg>", dot_x(axis, mean));
}

static double x_of(const struct bar *b, double value)
{
    const double x = value / b->full;
    return isnan(x) || x < 0 ? 0 : x > 1 ? WIDTH : WIDTH * x;
}

void bar_write(FILE *to, const struct bar *b, const char *label)
{
    const double end = x_of(b, b->value), from = x_of(b, b->from), until = x_of(b, b->to);

    begin(to, "bar", label);
    fprintf(to, "<path class=\"%s\" d=\"M0 3H%.1fV13H0z\"/>", b->second ? "bar2" : "bar1", end);
    if (until > from)
        fprintf(to, "<path class=\"whisker\" d=\"M%.1f 8H%.1fM%.1f 5v6M%.1f 5v6\"/>", from, until,
                from, until);
    if (b->at > 0)
        fprintf(to,
                "<path class=\"least\" d=\"M%.1f 0v16\"/><path class=\"mark\" d=\"M%.1f 0v16\"/>",
                x_of(b, b->at), x_of(b, b->at));
    if (b->value > b->full)
        fputs("<path class=\"cut\" d=\"M960 0l-16 16h14l16-16z\"/>", to);
    fputs("</svg>", to);
}
