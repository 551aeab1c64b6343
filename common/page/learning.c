/* What models learn, on a page: loss and accuracy over updates, accuracy by the place in a sequence (page.h). */
#include "config.h"

#include <math.h>
#include <string.h>

#include "common/page/html.h"
#include "common/page/page.h"
#include "common/page/plot.h"
#include "common/page/run.h"

enum { MAX_CURVES = 64, MAX_ROWS = 1000, FEW_RUNS = 16 };

static int has(const struct page_dump *d)
{
    for (int i = 0; i < d->n; i++)
        if (d->trial[i].run)
            return 1;
    return 0;
}

/* ---- a figure ---- */

/* Where variants are compared a run has its variant's colour, and a dash by its place among the variant's runs; else
 * the look of its place among all. */
static int look_of(const struct page_dump *d, const struct page_group *g, int k, int shown)
{
    enum { COLOURS = 8 };
    const int look = d->trial[g->trial[k]].look;
    int place = 0;

    if (d->n_looks < 2)
        return shown;
    for (int i = 0; i < k; i++)
        place += d->trial[g->trial[i]].run && d->trial[g->trial[i]].look == look;
    return look % COLOURS + COLOURS * place;
}

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
    {"Loss (nats): line, training; dots, validation; × diverged", "update", loss_of,
     validation_loss_of, 0, 0},
    {"Accuracy of validations", "update", accuracy_of, accuracy_of, 0, 1},
    {"Accuracy of the test, by the place in the sequence", "tenth of the sequence", place_of,
     place_of, 0, 1},
    {"Accuracy of the test, by its length", "tokens of the sequence", lengths_of, lengths_of, 0,
     1}};

/* Points that a curve of a figure may have, where there are so many. */
static int points_of(int curves)
{
    enum { ALL_POINTS = 4000, LEAST = 12 };
    const int each = ALL_POINTS / (curves > 0 ? curves : 1);
    return each < LEAST ? LEAST : each > PLOT_POINTS ? PLOT_POINTS : each;
}

static void draw_run(const struct plot *p, const struct figure *f, const struct page_run *r,
                     int look, int points)
{
    const struct page_curve *dots = f->dots(r);

    plot_curve(p, f->of(r), look, PLOT_CURVE, points);
    for (int i = 0; i < dots->n; i += (dots->n + points - 1) / points)
        if (isfinite(dots->y[i]))
            plot_dot(p, plot_x(p, dots->x[i]), plot_y(p, dots->y[i]), look);
    if (r->diverged && f->of == loss_of)
        plot_diverged(p, f->of(r), look);
}

static void draw(FILE *to, const struct page_dump *d, const struct page_group *g,
                 const struct figure *f)
{
    struct plot_span x = PLOT_NONE, y = PLOT_NONE;
    int shown = 0, points = 0, curves = 0;

    for (int k = 0; k < g->n; k++) {
        const struct page_run *r = d->trial[g->trial[k]].run;
        if (!r)
            continue;
        points += f->of(r)->n;
        plot_see_curve(&x, &y, f->of(r));
        plot_see_curve(&x, &y, f->dots(r));
        curves++;
    }
    if (!points)
        return;
    struct plot p = {to, plot_axis(&x, 0, f->across), plot_axis(&y, 0, NULL), PLOT_HEIGHT, 0};
    p.x.from = 0;
    if (f->y1 > 0)
        p.y = (struct plot_axis){.from = f->y0, .to = f->y1};
    curves = curves < MAX_CURVES ? curves : MAX_CURVES;
    plot_begin(&p, f->title);
    for (int k = 0; k < g->n && shown < MAX_CURVES; k++) {
        const struct page_run *r = d->trial[g->trial[k]].run;
        if (r)
            draw_run(&p, f, r, look_of(d, g, k, shown++), points_of(curves));
    }
    plot_caption(&p, f->title);
    plot_end(&p);
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
        fputs("<span>", to);
        plot_key(to, look_of(d, g, k, shown++));
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

static void group(FILE *to, const struct page_dump *d, const struct page_group *g, int *left)
{
    legend(to, d, g);
    fputs("<div class=\"figures\">\n", to);
    for (int k = 0; k < (int)COUNT(figures); k++)
        draw(to, d, g, &figures[k]);
    fputs("</div>\n", to);
    table(to, d, g, left);
    numbers(to, d, g, left);
}

static int write(FILE *to, const struct page_dump *d)
{
    int left = MAX_ROWS, all = 0;

    for (int i = 0; i < d->n; i++)
        all += d->trial[i].run != NULL;
    fputs("<p class=\"note\">The test is of the last weights, on data that neither training nor "
          "validation has seen. "
          "Learned at: the update of the first of the validations running that reached the "
          "target.</p>\n",
          to);
    if (all > FEW_RUNS)
        fprintf(to, "<details><summary>Each of %d runs by itself</summary>\n", all);
    for (int i = 0; i < d->n_groups; i++) {
        const struct page_group *g = &d->group[i];
        int any = 0;
        for (int k = 0; k < g->n; k++)
            any += d->trial[g->trial[k]].run != NULL;
        if (!any)
            continue;
        group(to, d, g, &left);
        page_more(to, any - MAX_CURVES, "curves");
    }
    if (all > FEW_RUNS)
        fputs("</details>\n", to);
    return 0;
}

const struct page_section page_learning = {"learning", "What was learned", has, write};
