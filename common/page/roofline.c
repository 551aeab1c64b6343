/* The roofline on a page: FLOP/s over FLOP per byte, both logarithmic, under the measured
 * ceilings; a point for every kernel and pass (page.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/page/html.h"
#include "common/page/page.h"

enum { WIDTH = 860, HEIGHT = 520, LEFT = 92, RIGHT = 20, TOP = 18, BOTTOM = 54 };
enum { MAX_SHOWN = 1000, MAX_NUMBERED = 99, MAX_OPEN = 40, COLOURS = 8 };

struct point {
    const struct page_group *group;
    const struct page_trial *trial;
    const struct time_row *row;
    double x, y; /* FLOP per byte, FLOP/s */
    int colour;
};

struct picture {
    const struct ceilings *c;
    struct point *point;
    int n, all;         /* that are shown, and that there are */
    int x0, x1, y0, y1; /* decades of the axes */
    struct spot *label;
    int n_labels;
};

/* In the picture, in its units. */
struct spot {
    double x, y;
};

/* A time of a backend that has ceilings, of work that is known. */
static int is_point(const struct time_row *r, double *x, double *y)
{
    *x = r->flops / r->bytes;
    *y = r->flops / r->median;
    return *r->bound_by && r->flops > 0 && r->bytes > 0 && r->median > 0 && *x > 1e-6 &&
           *x < 1e12 && *y > 1 && *y < 1e21;
}

static int count(const struct page_dump *d)
{
    double x, y;
    int n = 0;

    for (int i = 0; i < d->n; i++)
        for (int k = 0; k < d->trial[i].n_times; k++)
            n += is_point(&d->trial[i].time[k], &x, &y);
    return n;
}

static int within(double x)
{
    return x > 1 && x < 1e21;
}

static int has(const struct page_dump *d)
{
    const struct ceilings *c = &d->ceilings;
    return d->has_ceilings && within(c->memory) && within(c->fp32) && within(c->tensor) &&
           count(d) > 0;
}

static void find_points(struct picture *r, const struct page_dump *d)
{
    struct point p = {0};

    for (int i = 0; i < d->n_groups; i++)
        for (int k = 0; k < d->group[i].n; k++) {
            p.group = &d->group[i];
            p.trial = &d->trial[p.group->trial[k]];
            p.colour = i % COLOURS;
            for (int j = 0; j < p.trial->n_times && r->n < MAX_SHOWN; j++) {
                p.row = &p.trial->time[j];
                if (is_point(p.row, &p.x, &p.y))
                    r->point[r->n++] = p;
            }
        }
}

/* The axes hold all points and both ridges. */
static void find_axes(struct picture *r)
{
    const double top = fmax(r->c->fp32, r->c->tensor);
    double x0 = r->c->fp32 / r->c->memory, x1 = top / r->c->memory, y0 = r->c->fp32, y1 = top;

    x0 = fmin(x0, x1);
    for (int i = 0; i < r->n; i++) {
        x0 = fmin(x0, r->point[i].x);
        x1 = fmax(x1, r->point[i].x);
        y0 = fmin(y0, r->point[i].y);
        y1 = fmax(y1, r->point[i].y);
    }
    r->x0 = (int)floor(log10(x0) - 0.1);
    r->x1 = (int)ceil(log10(x1) + 0.3);
    r->y0 = (int)floor(log10(y0) - 0.1);
    r->y1 = (int)ceil(log10(y1) + 0.1);
}

static double x_of(const struct picture *r, double x)
{
    return LEFT + (log10(x) - r->x0) / (r->x1 - r->x0) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct picture *r, double y)
{
    return HEIGHT - BOTTOM - (log10(y) - r->y0) / (r->y1 - r->y0) * (HEIGHT - TOP - BOTTOM);
}

/* ---- the picture ---- */

/* 10 to the power of `decade`, with the prefix of its unit: "100 G", "0.01". */
static const char *decade_text(int decade, int prefixes, char text[NUMBER_TEXT])
{
    static const char *const prefix[] = {"", "k", "M", "G", "T", "P", "E"};
    const int k = decade < 0 ? 0 : decade / 3;

    if (prefixes && k < (int)COUNT(prefix))
        snprintf(text, NUMBER_TEXT, "%.0f %s", pow(10, decade - 3 * k), prefix[k]);
    else
        snprintf(text, NUMBER_TEXT, "%g", pow(10, decade));
    return text;
}

static void axes(FILE *to, const struct picture *r)
{
    char text[NUMBER_TEXT];
    const int bottom = HEIGHT - BOTTOM, right = WIDTH - RIGHT;

    fputs("<path class=\"grid\" d=\"", to);
    for (int i = r->x0; i <= r->x1; i++)
        fprintf(to, "M%.1f %dV%d", x_of(r, pow(10, i)), TOP, bottom);
    for (int i = r->y0; i <= r->y1; i++)
        fprintf(to, "M%d %.1fH%d", LEFT, y_of(r, pow(10, i)), right);
    fputs("\"/>\n", to);
    for (int i = r->x0; i <= r->x1; i++)
        fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>",
                x_of(r, pow(10, i)), bottom + 18, decade_text(i, 0, text));
    for (int i = r->y0; i <= r->y1; i++)
        fprintf(to, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>", LEFT - 8,
                y_of(r, pow(10, i)) + 4, decade_text(i, 1, text));
    fprintf(
        to,
        "\n<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">FLOP per byte of memory</text>"
        "<text transform=\"translate(20 %d) rotate(-90)\" text-anchor=\"middle\">FLOP/s</text>\n",
        (LEFT + right) / 2, HEIGHT - 12, (TOP + bottom) / 2);
}

/* A horizontal roof, from its ridge to the right. */
static void roof(FILE *to, const struct picture *r, double flops, const char *name)
{
    char text[NUMBER_TEXT];
    const double y = y_of(r, flops), x = x_of(r, flops / r->c->memory);

    fprintf(to, "<path class=\"roof\" d=\"M%.1f %.1fH%d\"/>", x, y, WIDTH - RIGHT);
    fprintf(to,
            "<text class=\"name\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s %s TFLOP/s</text>\n",
            WIDTH - RIGHT - 4, y - 6, name, html_number(flops * 1e-12, text));
}

static void roofs(FILE *to, const struct picture *r)
{
    const double top = fmax(r->c->fp32, r->c->tensor), ridge = top / r->c->memory;
    /* the slope begins where it enters the picture, at the left or at the bottom */
    const double from = fmax(pow(10, r->x0), pow(10, r->y0) / r->c->memory);
    const double ax = x_of(r, from), ay = y_of(r, from * r->c->memory), bx = x_of(r, ridge),
                 by = y_of(r, top);
    const double angle = atan2(by - ay, bx - ax) * 180 / 3.14159265358979;
    char text[NUMBER_TEXT];

    roof(to, r, r->c->fp32, "FP32");
    roof(to, r, r->c->tensor, "tensor cores");
    fprintf(to, "<path class=\"roof\" d=\"M%.1f %.1fL%.1f %.1f\"/>", ax, ay, bx, by);
    fprintf(to,
            "<text class=\"name\" transform=\"translate(%.1f %.1f) rotate(%.1f)\" x=\"14\" "
            "y=\"-7\">memory %s TB/s</text>\n",
            ax, ay, angle, html_number(r->c->memory * 1e-12, text));
}

/* Is a label there free of other labels and of points? */
static int is_free(const struct picture *r, struct spot at)
{
    for (int i = 0; i < r->n_labels; i++)
        if (fabs(r->label[i].x - at.x) < 15 && fabs(r->label[i].y - at.y) < 11)
            return 0;
    for (int i = 0; i < r->n; i++)
        if (fabs(x_of(r, r->point[i].x) - at.x) < 11 && fabs(y_of(r, r->point[i].y) - at.y) < 9)
            return 0;
    return 1;
}

/* The point's number beside it, where there is space; the table has it in any case. */
static void label(FILE *to, struct picture *r, int i)
{
    static const struct spot around[] = {{13, 0},   {-13, 0},   {0, -13}, {0, 13},
                                         {12, -11}, {-12, -11}, {12, 11}, {-12, 11}};
    const double x = x_of(r, r->point[i].x), y = y_of(r, r->point[i].y);

    for (size_t k = 0; k < COUNT(around); k++) {
        const struct spot at = {x + around[k].x, y + around[k].y};
        if (!is_free(r, at))
            continue;
        r->label[r->n_labels++] = at;
        fprintf(to, "<text class=\"number\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>",
                at.x, at.y + 4, i + 1);
        return;
    }
}

static void point(FILE *to, const struct picture *r, int i)
{
    const struct point *p = &r->point[i];
    const double x = x_of(r, p->x), y = y_of(r, p->y);

    if (strcmp(p->row->pass, "forward") == 0)
        fprintf(to, "<circle class=\"c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\">", p->colour, x, y);
    else
        fprintf(to, "<rect class=\"c%d\" x=\"%.1f\" y=\"%.1f\" width=\"9\" height=\"9\">",
                p->colour, x - 4.5, y - 4.5);
    fprintf(to, "<title>%d: ", i + 1);
    html_text(to, p->group->op);
    fprintf(to, ", trial %d, ", p->trial->number);
    html_text(to, p->row->kernel);
    fputc(' ', to);
    html_text(to, p->row->pass);
    fprintf(to, "</title></%s>\n", strcmp(p->row->pass, "forward") == 0 ? "circle" : "rect");
}

static void picture(FILE *to, struct picture *r)
{
    fprintf(to,
            "<div class=\"wide\" tabindex=\"0\"><svg class=\"roofline\" viewBox=\"0 0 %d %d\" "
            "role=\"img\" aria-label=\"Roofline of %d kernels and passes, on logarithmic axes; the "
            "table below has the values\">\n",
            WIDTH, HEIGHT, r->n);
    axes(to, r);
    roofs(to, r);
    for (int i = 0; i < r->n; i++)
        point(to, r, i);
    for (int i = 0; i < r->n && r->n <= MAX_NUMBERED; i++)
        label(to, r, i);
    fputs("</svg></div>\n", to);
}

/* ---- beside it ---- */

static void legend(FILE *to, const struct picture *r)
{
    const struct page_group *last = NULL;

    fputs("<p class=\"legend\">", to);
    for (int i = 0; i < r->n; i++) {
        if (r->point[i].group == last)
            continue;
        last = r->point[i].group;
        fprintf(to,
                "<span><svg class=\"key\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><circle "
                "class=\"c%d\" cx=\"5\" cy=\"5\" r=\"5\"/></svg> ",
                r->point[i].colour);
        html_text(to, last->op);
        fputs("</span> ", to);
    }
    fputs("</p>\n<p class=\"note\">Disc: forward; square: backward. FLOPs and bytes are those that "
          "the operation's contract counts: a point above the slope found tensors in a cache",
          to);
    fputs(r->n <= MAX_NUMBERED ? ". A point without a number has too little space around it; the "
                                 "table has all.</p>\n"
                               : ".</p>\n",
          to);
}

/* What its launches take of an SM; dumps of before have it not. */
static void launches(FILE *to, const struct time_row *t)
{
    const int known = t->launches > 0 && t->registers > 0;
    char text[NUMBER_TEXT];

    html_value(to, known ? html_number((double)t->launches, text) : "–");
    html_value(to, known ? html_number((double)t->registers, text) : "–");
    html_percent(to, t->occupancy, known);
    html_value(to, known ? html_number(t->waves, text) : "–");
}

static void row(FILE *to, const struct picture *r, int i)
{
    const struct point *p = &r->point[i];
    char text[NUMBER_TEXT];

    fputs("<tr>", to);
    html_count(to, i + 1);
    html_cell(to, p->group->op);
    html_count(to, p->trial->number);
    html_cell(to, p->row->backend);
    html_cell(to, p->row->kernel);
    html_cell(to, p->row->pass);
    html_value(to, html_number(p->x, text));
    html_value(to, html_number(p->y * 1e-9, text));
    html_percent(to, page_reached(p->row), 1);
    html_cell(to, p->row->bound_by);
    launches(to, p->row);
    fputs("</tr>\n", to);
}

static int write(FILE *to, const struct page_dump *d)
{
    struct picture r = {.c = &d->ceilings, .all = count(d)};

    r.point = calloc((size_t)r.all + 1, sizeof *r.point);
    r.label = calloc((size_t)r.all + 1, sizeof *r.label);
    if (r.point && r.label) {
        find_points(&r, d);
        find_axes(&r);
        picture(to, &r);
        legend(to, &r);
        fprintf(to, "<details%s><summary>Values of the points</summary>\n",
                r.n <= MAX_OPEN ? " open" : "");
        html_table(to, "Point|<Operation|Trial|<Backend|<Kernel|<Pass|FLOP/byte|GFLOP/s|"
                       "Reached|<Bound by|Launches|Registers|Occupancy|Waves");
        for (int i = 0; i < r.n; i++)
            row(to, &r, i);
        html_table_end(to);
        fputs("</details>\n", to);
        page_more(to, r.all - r.n, "points");
    }
    const int e = !r.point || !r.label ? err_set("no memory for %d points", r.all) : 0;
    free(r.point);
    free(r.label);
    return e;
}

const struct page_section page_roofline = {"roofline", "Roofline", has, write};
