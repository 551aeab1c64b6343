/* What models learn, on a page: loss and accuracy over updates, accuracy by the place in a sequence (page.h). */
#include "config.h"

#include <math.h>
#include <string.h>

#include "common/page/html.h"
#include "common/page/page.h"
#include "common/page/run.h"

enum { WIDTH = 430, HEIGHT = 300, LEFT = 56, RIGHT = 14, TOP = 14, BOTTOM = 40 };
enum { COLOURS = 8, MAX_CURVES = 64, MAX_ROWS = 1000, TICKS = 4 };

static int has(const struct page_dump *d)
{
    for (int i = 0; i < d->n; i++)
        if (d->trial[i].run)
            return 1;
    return 0;
}

/* ---- a figure ---- */

/* The curve of a run that a figure shows. */
typedef const struct page_curve *curve_of(const struct page_run *r);

static const struct page_curve *loss_of(const struct page_run *r)
{
    return &r->loss;
}
static const struct page_curve *validation_loss_of(const struct page_run *r)
{
    return &r->validation_loss;
}
static const struct page_curve *accuracy_of(const struct page_run *r)
{
    return &r->accuracy;
}
static const struct page_curve *place_of(const struct page_run *r)
{
    return &r->accuracy_at;
}

static const struct page_curve *lengths_of(const struct page_run *r)
{
    return &r->lengths;
}

struct figure {
    const char *title, *across;
    curve_of *of, *dots; /* a line, and dots; or NULL */
    double y0, y1;       /* y1 0: as the values are */
};

static const struct figure figures[] = {
    {"Loss (nats): line, training; dots, validation", "update", loss_of, validation_loss_of, 0, 0},
    {"Accuracy of validations", "update", accuracy_of, accuracy_of, 0, 1},
    {"Accuracy of the test, by the place in the sequence", "tenth of the sequence", place_of,
     place_of, 0, 1},
    {"Accuracy of the test, by its length", "tokens of the sequence", lengths_of, lengths_of, 0,
     1}};

struct axes {
    double x0, x1, y0, y1;
};

static void widen_by(struct axes *a, const struct page_curve *c, int fixed)
{
    for (int i = 0; i < c->n; i++) {
        if (!isfinite(c->y[i]) || !isfinite(c->x[i]))
            continue;
        a->x1 = fmax(a->x1, c->x[i]);
        if (!fixed)
            a->y1 = fmax(a->y1, c->y[i]);
    }
}

/* 1, 2 or 5 times a power of ten, `TICKS` of which are at least x. */
static double tick_of(double x)
{
    const double least = x / TICKS, power = pow(10, floor(log10(least)));
    const double m = least / power;
    return power * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

static double across(const struct axes *a, double x)
{
    return LEFT + (x - a->x0) / (a->x1 - a->x0) * (WIDTH - LEFT - RIGHT);
}

static double up(const struct axes *a, double y)
{
    const double part = (y - a->y0) / (a->y1 - a->y0);
    return HEIGHT - BOTTOM - fmin(fmax(part, 0), 1) * (HEIGHT - TOP - BOTTOM);
}

static void draw_axes(FILE *to, const struct axes *a, const char *name)
{
    const double tx = tick_of(a->x1 - a->x0), ty = tick_of(a->y1 - a->y0);

    for (double y = a->y0; y <= a->y1 * (1 + 1e-9); y += ty)
        fprintf(to,
                "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%.3g</text>",
                LEFT, up(a, y), WIDTH - RIGHT, LEFT - 6, up(a, y) + 4, y);
    for (double x = a->x0; x <= a->x1 * (1 + 1e-9); x += tx)
        fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g</text>", across(a, x),
                HEIGHT - BOTTOM + 16, x);
    fprintf(to, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", WIDTH - RIGHT, HEIGHT - 6,
            name);
}

static void draw_line(FILE *to, const struct axes *a, const struct page_curve *c, int colour)
{
    int pen = 0;

    fprintf(to, "<path class=\"curve s%d\" d=\"", colour);
    for (int i = 0; i < c->n; i++) {
        if (!isfinite(c->y[i])) {
            pen = 0;
            continue;
        }
        fprintf(to, "%c%.1f %.1f", pen ? 'L' : 'M', across(a, c->x[i]), up(a, c->y[i]));
        pen = 1;
    }
    fputs("\"/>", to);
}

static void draw_dots(FILE *to, const struct axes *a, const struct page_curve *c, int colour)
{
    for (int i = 0; i < c->n; i++)
        if (isfinite(c->y[i]))
            fprintf(to, "<circle class=\"c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>", colour,
                    across(a, c->x[i]), up(a, c->y[i]));
}

static void draw(FILE *to, const struct page_dump *d, const struct page_group *g,
                 const struct figure *f)
{
    struct axes a = {0, 1, f->y0, f->y1 > 0 ? f->y1 : 1e-30};
    int shown = 0, points = 0;

    for (int k = 0; k < g->n; k++)
        if (d->trial[g->trial[k]].run) {
            points += f->of(d->trial[g->trial[k]].run)->n;
            widen_by(&a, f->of(d->trial[g->trial[k]].run), f->y1 > 0);
            widen_by(&a, f->dots(d->trial[g->trial[k]].run), f->y1 > 0);
        }
    if (!points)
        return;
    fprintf(to, "<figure><svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">",
            WIDTH, HEIGHT, f->title);
    draw_axes(to, &a, f->across);
    for (int k = 0; k < g->n && shown < MAX_CURVES; k++) {
        const struct page_run *r = d->trial[g->trial[k]].run;
        if (!r)
            continue;
        draw_line(to, &a, f->of(r), shown % COLOURS);
        draw_dots(to, &a, f->dots(r), shown % COLOURS);
        shown++;
    }
    fprintf(to, "</svg><figcaption>%s</figcaption></figure>\n", f->title);
}

/* ---- the table ---- */

static void legend(FILE *to, const struct page_dump *d, const struct page_group *g)
{
    int shown = 0;

    fputs("<p class=\"legend\">", to);
    for (int k = 0; k < g->n && shown < MAX_CURVES; k++) {
        const struct page_trial *t = &d->trial[g->trial[k]];
        if (!t->run)
            continue;
        fprintf(to,
                "<span><svg class=\"key\" viewBox=\"0 0 10 10\"><rect class=\"c%d\" width=\"10\" "
                "height=\"10\"/></svg> ",
                shown++ % COLOURS);
        fprintf(to, "%d", t->number);
        for (int v = 0; v < g->n_varying; v++) {
            const char *value = page_setting(t, g->varying[v]);
            if (*value) {
                fputs(" ", to);
                html_text(to, value);
            }
        }
        fputs("</span>", to);
    }
    fputs("</p>\n", to);
}

static void value(FILE *to, const char *format, double x)
{
    char text[40];

    if (isnan(x))
        snprintf(text, sizeof text, "–");
    else
        snprintf(text, sizeof text, format, x);
    html_value(to, text);
}

static void row(FILE *to, const struct page_group *g, const struct page_trial *t)
{
    const struct page_run *r = t->run;

    fputs("<tr>", to);
    html_count(to, t->number);
    for (int v = 0; v < g->n_varying; v++)
        html_cell(to, page_setting(t, g->varying[v]));
    html_cell(to, r->backend);
    html_count(to, r->updates);
    value(to, "%.4f", r->test_loss);
    value(to, "%.4f", r->test_loss / log(2));
    value(to, "%.4f", r->test_accuracy);
    value(to, "%.4f", r->test_sequence);
    if (r->learned_at)
        html_count(to, r->learned_at);
    else
        html_value(to, "–");
    value(to, "%.3g", r->tokens_per_s > 0 ? r->tokens_per_s : NAN);
    value(to, "%.1f", r->seconds);
    html_cell(to, r->ended);
    fputs("</tr>\n", to);
}

static void table(FILE *to, const struct page_dump *d, const struct page_group *g, int *left)
{
    int64_t more = 0;

    fputs("<div class=\"wide\"><table><thead><tr><th class=\"n\">trial</th>", to);
    for (int v = 0; v < g->n_varying; v++) {
        fputs("<th>", to);
        html_text(to, g->varying[v]);
        fputs("</th>", to);
    }
    fputs("<th>backend</th><th class=\"n\">updates</th><th class=\"n\">test loss</th><th "
          "class=\"n\">bits</th>"
          "<th class=\"n\">accuracy</th><th class=\"n\">sequences right</th><th "
          "class=\"n\">learned at</th>"
          "<th class=\"n\">tokens/s</th><th "
          "class=\"n\">seconds</th><th>ended</th></tr></thead><tbody>\n",
          to);
    for (int k = 0; k < g->n; k++) {
        const struct page_trial *t = &d->trial[g->trial[k]];
        if (t->run && page_take(to, left))
            row(to, g, t);
        else
            more += t->run != NULL;
    }
    fputs("</tbody></table></div>\n", to);
    page_more(to, more, "runs");
}

/* The numbers of the curves of validations, folded away. */
static void numbers(FILE *to, const struct page_dump *d, const struct page_group *g, int *left)
{
    int64_t more = 0;

    fputs("<details><summary>The validations in numbers</summary>\n", to);
    fputs("<div class=\"wide\"><table><thead><tr><th class=\"n\">trial</th><th "
          "class=\"n\">update</th>"
          "<th class=\"n\">loss</th><th class=\"n\">accuracy</th></tr></thead><tbody>\n",
          to);
    for (int k = 0; k < g->n; k++) {
        const struct page_run *r = d->trial[g->trial[k]].run;
        for (int i = 0; r && i < r->accuracy.n && i < r->validation_loss.n; i++) {
            if (!page_take(to, left)) {
                more++;
                continue;
            }
            fputs("<tr>", to);
            html_count(to, d->trial[g->trial[k]].number);
            html_count(to, (int64_t)r->accuracy.x[i]);
            value(to, "%.5f", r->validation_loss.y[i]);
            value(to, "%.4f", r->accuracy.y[i]);
            fputs("</tr>\n", to);
        }
    }
    fputs("</tbody></table></div>\n", to);
    page_more(to, more, "validations");
    fputs("</details>\n", to);
}

static int write(FILE *to, const struct page_dump *d)
{
    int left = MAX_ROWS;

    fputs("<p class=\"note\">The test is of the last weights, on data that neither training nor "
          "validation has seen. "
          "Learned at: the update of the first of the validations running that reached the "
          "target.</p>\n",
          to);
    for (int i = 0; i < d->n_groups; i++) {
        const struct page_group *g = &d->group[i];
        int any = 0;
        for (int k = 0; k < g->n; k++)
            any |= d->trial[g->trial[k]].run != NULL;
        if (!any)
            continue;
        legend(to, d, g);
        fputs("<div class=\"figures\">\n", to);
        for (int k = 0; k < (int)COUNT(figures); k++)
            draw(to, d, g, &figures[k]);
        fputs("</div>\n", to);
        table(to, d, g, &left);
        numbers(to, d, g, &left);
    }
    return 0;
}

const struct page_section page_learning = {"learning", "What was learned", has, write};
