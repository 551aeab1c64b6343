/* Figures over updates (ablation.h): of each variant all seeds thin, and their median and quartiles, which are those of
 * the seeds' values at an update, interpolated linearly between points of a curve.  A run that stopped counts with its
 * last value from then on; one that diverged as worse than any loss, or at chance. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/page/ablation.h"
#include "common/page/html.h"
#include "common/page/page.h"

enum { ALL_POINTS = 16000, LEAST_POINTS = 8, MOST_POINTS = 160, MAX_CURVES = 1024, MANY = 100 };
enum { MAX_GRID = 128, LEAST_GRID = 12, ALL_GRID = 6000, NUMBERS = 20 };

typedef const struct page_curve *curve_of(const struct page_run *r);

static const struct page_curve *loss_of(const struct page_run *r)
{
    return &r->loss;
}
static const struct page_curve *mean_loss_of(const struct page_run *r)
{
    return &r->mean_loss;
}
static const struct page_curve *validation_loss_of(const struct page_run *r)
{
    return &r->validation_loss;
}
static const struct page_curve *accuracy_of(const struct page_run *r)
{
    return &r->accuracy;
}

/* A figure of curves: what is drawn of a run, of what the median is, and what a run that diverged counts as. */
struct over {
    const struct ablation_task *t;
    const char *what;
    curve_of *thin, *smooth;
    double unit, diverged; /* values are divided by `unit` */
    int is_loss;
    int many; /* curves, which are drawn faint */
};

/* ---- medians ---- */

/* Of seeds at each update of a grid. */
struct middle {
    double x[MAX_GRID], low[MAX_GRID], median[MAX_GRID], high[MAX_GRID];
    int n, seeds;
};

static double value_at(const struct over *f, const struct page_run *r, double x)
{
    const struct page_curve *c = f->smooth(r);
    int k = 0;

    while (k < c->n && c->x[k] < x)
        k++;
    if (!c->n || (k == c->n && r->diverged))
        return f->diverged;
    if (k == c->n || !k || c->x[k] == x)
        return isnan(c->y[k == c->n ? k - 1 : k]) ? f->diverged
                                                  : c->y[k == c->n ? k - 1 : k] / f->unit;
    const double part = (x - c->x[k - 1]) / (c->x[k] - c->x[k - 1]);
    const double y = (c->y[k - 1] + part * (c->y[k] - c->y[k - 1])) / f->unit;
    return isnan(y) ? f->diverged : y;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of n values in ascending order, which may be infinite. */
static double quantile(const double *x, int n, double share)
{
    const double place = share * (n - 1);
    const int k = (int)place;
    const double part = place - k;
    return part > 0 ? x[k] + (x[k + 1] > x[k] ? part * (x[k + 1] - x[k]) : 0) : x[k];
}

/* The grid: the updates of the run that has the most of them. */
static void find_grid(const struct over *f, const struct ablated_cell *c, struct middle *m)
{
    const int some = ALL_GRID / f->t->figures / (f->t->to - f->t->from);
    const int most = some < LEAST_GRID ? LEAST_GRID : some < MAX_GRID ? some : MAX_GRID;
    const struct page_curve *longest = NULL;

    for (int k = 0; k < c->n; k++) {
        const struct page_run *r = ablation_run(f->t, c, k);
        const struct page_curve *s = r ? f->smooth(r) : NULL;
        if (s && s->n && (!longest || s->x[s->n - 1] > longest->x[longest->n - 1]))
            longest = s;
    }
    m->n = !longest ? 0 : longest->n < most ? longest->n : most;
    for (int i = 0; i < m->n; i++)
        m->x[i] = longest->x[m->n < 2 ? 0 : (int)((int64_t)i * (longest->n - 1) / (m->n - 1))];
}

/* y is memory for a value of each run. */
static void find_middle(const struct over *f, const struct ablated_cell *c, double *y,
                        struct middle *m)
{
    find_grid(f, c, m);
    m->seeds = 0;
    for (int i = 0; i < m->n; i++) {
        int n = 0;
        for (int k = 0; k < c->n; k++) {
            const struct page_run *r = ablation_run(f->t, c, k);
            if (r)
                y[n++] = value_at(f, r, m->x[i]);
        }
        qsort(y, n, sizeof *y, by_value);
        m->low[i] = quantile(y, n, 0.25);
        m->median[i] = quantile(y, n, 0.5);
        m->high[i] = quantile(y, n, 0.75);
        m->seeds = n;
    }
}

/* ---- drawing ---- */

static void draw_run(const struct plot *p, const struct over *f, const struct page_run *r, int look,
                     int points)
{
    const struct page_curve *c = f->thin(r);
    double y[PLOT_POINTS];
    const struct page_curve scaled = {c->x, y, c->n < PLOT_POINTS ? c->n : PLOT_POINTS};

    for (int i = 0; i < scaled.n; i++)
        y[i] = c->y[i] / f->unit;
    plot_curve(p, &scaled, look, f->many ? PLOT_FAINT : PLOT_THIN, points);
    if (r->diverged)
        plot_diverged(p, &scaled, look);
}

static int curves_of(const struct ablation_task *t, int each)
{
    int n = 0;
    for (int i = t->from; i < t->to; i++)
        n += t->a->cell[i].n < each ? t->a->cell[i].n : each;
    return n;
}

/* The seeds of each variant that are drawn, and the points of each. */
static int seeds_drawn(const struct ablation_task *t)
{
    int each = MAX_CURVES;
    while (each > 1 && curves_of(t, each) > MAX_CURVES / t->figures)
        each /= 2;
    return each;
}

static int points_of(const struct ablation_task *t, int each)
{
    const int curves = curves_of(t, each);
    const int points = ALL_POINTS / t->figures / (curves > 0 ? curves : 1);
    return points < LEAST_POINTS ? LEAST_POINTS : points > MOST_POINTS ? MOST_POINTS : points;
}

static void draw_middle(const struct plot *p, struct middle *m, int look)
{
    const struct page_curve median = {m->x, m->median, m->n}, low = {m->x, m->low, m->n},
                            high = {m->x, m->high, m->n};

    if (m->seeds > 1)
        plot_band(p, &low, &high, look);
    plot_curve(p, &median, look, PLOT_THICK, PLOT_POINTS);
}

static void caption(const struct plot *p, const struct over *f, int each)
{
    char text[400], some[80] = "all seeds";
    int most = 0;

    for (int i = f->t->from; i < f->t->to; i++)
        most = f->t->a->cell[i].n > most ? f->t->a->cell[i].n : most;
    if (most > each)
        snprintf(some, sizeof some, "the first %d seeds of each variant", each);
    snprintf(
        text, sizeof text,
        "%s over updates: %s thin, the median of all thick, their quartiles shaded. A run that "
        "stopped keeps its last value; × one that diverged.",
        f->what, some);
    plot_caption(p, text);
}

static void numbers(FILE *to, const struct ablated_cell *c, const struct middle *m, int *left)
{
    const int step = (m->n + NUMBERS - 1) / NUMBERS;

    /* counted from the last, which is always there */
    for (int i = m->n ? (m->n - 1) % step : 0; i < m->n; i += step) {
        if (!page_take(to, left))
            return;
        ablation_row(to, c);
        ablation_cell(to, m->x[i], 0);
        html_count(to, m->seeds);
        ablation_cell(to, m->low[i], 4);
        ablation_cell(to, m->median[i], 4);
        ablation_cell(to, m->high[i], 4);
        fputs("</tr>\n", to);
    }
}

static struct plot axes_of(FILE *to, const struct over *f, const struct middle *m)
{
    struct plot_span x = PLOT_NONE, y = PLOT_NONE;

    for (int i = f->t->from; i < f->t->to; i++, m++) {
        const struct ablated_cell *c = &f->t->a->cell[i];
        for (int k = 0; k < m->n; k++) {
            plot_see(&x, m->x[k]);
            plot_see(&y, m->median[k]);
            plot_see(&y, m->high[k]);
        }
        for (int k = 0; !f->is_loss && k < c->n; k++) {
            const struct page_run *r = ablation_run(f->t, c, k);
            for (int j = 0; r && j < f->thin(r)->n; j++)
                plot_see(&y, f->thin(r)->y[j] / f->unit);
        }
    }
    struct plot p = {to, plot_axis(&x, 0, "update"), plot_axis(&y, 0, NULL), PLOT_HEIGHT, 0};
    if (!f->is_loss)
        p.y = ablation_metric(f->t, &y);
    return p;
}

/* m has the medians of each of the task's cells. */
static void draw(FILE *to, const struct over *f, struct middle *m, int *left)
{
    const struct plot p = axes_of(to, f, m);
    const int each = seeds_drawn(f->t), points = points_of(f->t, each), *look = f->t->d->look;

    plot_begin(&p, f->what);
    if (!f->is_loss)
        plot_level(&p, f->t->chance, "chance");
    for (int i = f->t->from; i < f->t->to; i++) {
        const struct ablated_cell *c = &f->t->a->cell[i];
        for (int k = 0; k < c->n && k < each; k++) {
            const struct page_run *r = ablation_run(f->t, c, k);
            if (r)
                draw_run(&p, f, r, look[i], points);
        }
    }
    for (int i = f->t->from; i < f->t->to; i++)
        draw_middle(&p, &m[i - f->t->from], look[i]);
    caption(&p, f, each);
    ablation_numbers(to, "<variant|update|seeds|lower quartile|median|upper quartile");
    for (int i = f->t->from; i < f->t->to; i++)
        numbers(to, &f->t->a->cell[i], &m[i - f->t->from], left);
    ablation_numbers_end(to);
    plot_end(&p);
}

static int figure(FILE *to, const struct over *f, int *left)
{
    const int n = f->t->to - f->t->from;
    int most = 0, points = 0;

    for (int i = f->t->from; i < f->t->to; i++)
        most = f->t->a->cell[i].n > most ? f->t->a->cell[i].n : most;
    if (!page_has_space(to))
        return 0;
    struct middle *m = calloc((size_t)n, sizeof *m);
    double *y = malloc(((size_t)most + 1) * sizeof *y);
    const int e = m && y ? 0 : err_set("no memory for the medians of %d variants", n);
    for (int i = 0; !e && i < n; i++) {
        find_middle(f, &f->t->a->cell[f->t->from + i], y, &m[i]);
        points += m[i].n;
    }
    if (!e && points)
        draw(to, f, m, left);
    free(m);
    free(y);
    return e;
}

/* ---- margins ---- */

static void see_margins(const struct page_run *r, struct plot_span *x, struct plot_span *y)
{
    for (int i = 0; i < r->margins.n; i++) {
        plot_see(x, r->margins.x[i]);
        if (r->margins.y[i] > 0)
            plot_see(y, r->margins.y[i]);
    }
}

/* Of each update the largest of all runs of the cell. */
static void margin_numbers(FILE *to, const struct ablation_task *t, const struct ablated_cell *c,
                           int *left)
{
    const struct page_curve *longest = NULL;

    for (int k = 0; k < c->n; k++) {
        const struct page_run *r = ablation_run(t, c, k);
        longest = r && (!longest || r->margins.n > longest->n) ? &r->margins : longest;
    }
    for (int i = 0; longest && i < longest->n && page_take(to, left); i++) {
        double most = 0;
        int runs = 0;
        for (int k = 0; k < c->n; k++) {
            const struct page_run *r = ablation_run(t, c, k);
            for (int j = 0; r && j < r->margins.n; j++)
                if (r->margins.x[j] == longest->x[i]) {
                    most = fmax(most, r->margins.y[j]);
                    runs++;
                }
        }
        ablation_row(to, c);
        ablation_cell(to, longest->x[i], 0);
        html_count(to, runs);
        ablation_number(to, most);
        fputs("</tr>\n", to);
    }
}

static void draw_margins(const struct plot *p, const struct page_run *r, int look, int points)
{
    const struct page_curve *c = &r->margins;

    plot_curve(p, c, look, PLOT_THIN, points);
    for (int i = 0; i < c->n && c->n <= points; i++)
        if (isfinite(c->y[i]))
            plot_dot(p, plot_x(p, c->x[i]), plot_y(p, c->y[i]), look);
}

static void margins(FILE *to, const struct ablation_task *t, int *left)
{
    struct plot_span x = PLOT_NONE, y = {1, 1};
    const int each = seeds_drawn(t), points = points_of(t, each);

    for (int i = t->from; i < t->to; i++)
        for (int k = 0; k < t->a->cell[i].n; k++) {
            const struct page_run *r = ablation_run(t, &t->a->cell[i], k);
            if (r)
                see_margins(r, &x, &y);
        }
    if (x.least > x.greatest || !page_has_space(to))
        return;
    const struct plot p = {to, plot_axis(&x, 2, "update"), plot_axis(&y, 1, NULL), PLOT_HEIGHT, 0};
    plot_begin(&p, "Margins of parity over updates");
    plot_level(&p, 1, "bound");
    for (int i = t->from; i < t->to; i++)
        for (int k = 0; k < t->a->cell[i].n && k < each; k++) {
            const struct page_run *r = ablation_run(t, &t->a->cell[i], k);
            if (r && r->margins.n)
                draw_margins(&p, r, t->d->look[i], points);
        }
    plot_caption(&p, "Margins of parity over updates: of each run the largest error / bound of all "
                     "calls and tensors that were judged at an update; above 1 a verdict failed");
    ablation_numbers(to, "<variant|update|runs|largest error / bound");
    for (int i = t->from; i < t->to; i++)
        margin_numbers(to, t, &t->a->cell[i], left);
    ablation_numbers_end(to);
    plot_end(&p);
}

/* ---- all ---- */

int ablation_curves(FILE *to, const struct ablation_task *t, int *left)
{
    const int many = curves_of(t, seeds_drawn(t)) > MANY;
    const struct over loss = {.t = t,
                              .what = "Training loss (nats)",
                              .thin = loss_of,
                              .smooth = mean_loss_of,
                              .unit = 1,
                              .diverged = INFINITY,
                              .is_loss = 1,
                              .many = many};
    const struct over metric = {.t = t,
                                .what = t->in_bits ? "Validation bits" : "Validation accuracy",
                                .thin = t->in_bits ? validation_loss_of : accuracy_of,
                                .smooth = t->in_bits ? validation_loss_of : accuracy_of,
                                .unit = t->in_bits ? log(2) : 1,
                                .diverged = t->chance,
                                .many = many};

    if (figure(to, &loss, left) || figure(to, &metric, left))
        return -1;
    margins(to, t, left);
    return 0;
}
