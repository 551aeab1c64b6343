/* Figures of results (ablation.h): the metric over length, rate, parameters, state and time, and what share of seeds
 * learned. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "common/page/ablation.h"
#include "common/page/html.h"
#include "common/page/page.h"

enum {
    MAX_TICKS = 32,
    LOW_HEIGHT = 230,
    ROW_HEIGHT = 38,
    ALL_DOTS = 6000,
    MAX_NAME = 54,
    MAX_LISTED = 100
};

static const char *metric_of(const struct ablation_task *t)
{
    return t->in_bits ? "Bits a token (the fewer the better)" : "Accuracy";
}

/* Adds a value to a list in ascending order, once. */
static int add_tick(double tick[MAX_TICKS], int n, double value)
{
    int at = n;

    for (int i = 0; i < n; i++)
        if (tick[i] == value)
            return n;
    if (n == MAX_TICKS || !isfinite(value))
        return n;
    for (; at && tick[at - 1] > value; at--)
        tick[at] = tick[at - 1];
    tick[at] = value;
    return n + 1;
}

/* Places beside each other, of what lies at one x: the i-th of n variants, over at most `width`. */
static double beside(int i, int n, double width)
{
    const double step = fmin(n > 1 ? width / (n - 1) : 0, 10);
    return (i - (n - 1) / 2.0) * step;
}

/* ---- over length ---- */

/* The seeds of each cell that are points. */
static int seeds_drawn(const struct ablation_task *t)
{
    int tests = 0;

    for (int i = t->from; i < t->to; i++)
        tests += t->a->cell[i].n_tests;
    const int each = ALL_DOTS / t->figures / (tests > 0 ? tests : 1);
    return each > 0 ? each : 1;
}

static void length_points(struct plot *p, const struct ablation_task *t, int i, double width)
{
    const struct ablated_cell *c = &t->a->cell[i];
    const int look = t->d->look[i];
    const int dots = seeds_drawn(t);
    double x[MAX_TESTS], y[MAX_TESTS];

    p->shift = beside(i - t->from, t->to - t->from, width);
    for (int k = 0; k < c->n_tests; k++) {
        x[k] = (double)c->test[k].length;
        y[k] = c->test[k].value;
    }
    plot_curve(p, &(struct page_curve){x, y, c->n_tests}, look, PLOT_CURVE, PLOT_POINTS);
    for (int k = 0; k < c->n_tests; k++) {
        const double at = plot_x(p, x[k]);
        const struct interval *in = &c->test[k].interval.bca;
        for (int s = 0; s < c->n && s < dots; s++) {
            const struct page_run *r = ablation_run(t, c, s);
            const double value = ablation_value(t, c, s, c->test[k].length);
            if (isfinite(value))
                (r && r->diverged ? plot_cross : plot_dot)(p, at, plot_y(p, value), look);
        }
        plot_whisker(p, at, (double[]){in->low, in->high}, look);
        plot_mark(p, at, plot_y(p, y[k]), look, 0);
    }
    p->shift = 0;
}

static void length_numbers(FILE *to, const struct ablation_task *t, int *left)
{
    char text[NUMBER_TEXT];

    ablation_numbers(to, "<variant|length|interquartile mean|95 %, from|to|<each seed");
    for (int i = t->from; i < t->to; i++) {
        const struct ablated_cell *c = &t->a->cell[i];
        for (int k = 0; k < c->n_tests && page_take(to, left); k++) {
            ablation_row(to, c);
            html_count(to, c->test[k].length);
            ablation_cell(to, c->test[k].value, 4);
            ablation_cell(to, c->test[k].interval.bca.low, 4);
            ablation_cell(to, c->test[k].interval.bca.high, 4);
            fputs("<td>", to);
            for (int s = 0; s < c->n && s < MAX_LISTED; s++) {
                const struct page_run *r = ablation_run(t, c, s);
                const double value = ablation_value(t, c, s, c->test[k].length);
                snprintf(text, sizeof text, isfinite(value) ? "%.4f" : "–", value);
                fprintf(to, "%s%s%s", s ? " " : "", text, r && r->diverged ? " ×" : "");
            }
            fputs(c->n > MAX_LISTED ? " …</td></tr>\n" : "</td></tr>\n", to);
        }
    }
    ablation_numbers_end(to);
}

/* The least distance of two ticks on the figure. */
static double gap_of(const struct plot *p, const double *tick, int n)
{
    double least = PLOT_WIDTH - PLOT_LEFT - PLOT_RIGHT;
    for (int i = 1; i < n; i++)
        least = fmin(least, plot_x(p, tick[i]) - plot_x(p, tick[i - 1]));
    return least;
}

static void length_caption(const struct plot *p, const struct ablation_task *t)
{
    char text[320], some[40] = "all";
    int most = 0;

    for (int i = t->from; i < t->to; i++)
        most = t->a->cell[i].n > most ? t->a->cell[i].n : most;
    if (most > seeds_drawn(t))
        snprintf(some, sizeof some, "the first %d", seeds_drawn(t));
    snprintf(text, sizeof text,
             "%s of the test by its length: interquartile means with 95 %% intervals, and %s seeds "
             "as points, × diverged. Variants stand beside each other.",
             metric_of(t), some);
    plot_caption(p, text);
}

static void over_length(FILE *to, const struct ablation_task *t, int *left)
{
    struct plot_span x = PLOT_NONE, y = PLOT_NONE;
    double tick[MAX_TICKS];
    int n = 0;

    for (int i = t->from; i < t->to; i++) {
        const struct ablated_cell *c = &t->a->cell[i];
        for (int k = 0; k < c->n_tests; k++) {
            n = add_tick(tick, n, (double)c->test[k].length);
            plot_see(&x, (double)c->test[k].length);
            for (int s = 0; s < c->n; s++)
                plot_see(&y, ablation_value(t, c, s, c->test[k].length));
        }
    }
    if (!n)
        return;
    struct plot p = {to, plot_axis(&x, 1, "tokens of the sequence"), ablation_metric(t, &y),
                     PLOT_HEIGHT, 0};
    const double space = pow(x.greatest / x.least, 0.15); /* for what stands beside a length */
    p.x.from /= space;
    p.x.to *= space;
    p.x.tick = tick;
    p.x.n_ticks = n;
    plot_begin(&p, "The test by its length");
    plot_level(&p, t->chance, "chance");
    const double width = 0.7 * gap_of(&p, tick, n);
    for (int i = t->from; i < t->to; i++)
        length_points(&p, t, i, width);
    length_caption(&p, t);
    length_numbers(to, t, left);
    plot_end(&p);
}

/* ---- over rate ---- */

static void rate_curve(const struct plot *p, const struct ablated_cell *c, int look)
{
    double x[PLOT_POINTS], y[PLOT_POINTS];
    const int n = c->n_rates < PLOT_POINTS ? c->n_rates : PLOT_POINTS;

    for (int k = 0; k < n; k++) {
        x[k] = c->rate[k].rate;
        y[k] = c->rate[k].validated;
    }
    plot_curve(p, &(struct page_curve){x, y, n}, look, PLOT_CURVE, PLOT_POINTS);
    for (int k = 0; k < n; k++)
        if (isfinite(y[k]))
            plot_mark(p, plot_x(p, x[k]), plot_y(p, y[k]), look, k != c->best);
}

static void rate_numbers(FILE *to, const struct ablation_task *t, int *left)
{
    ablation_numbers(to, "<variant|learning rate|seeds|validated|updates to the target|<chosen");
    for (int i = t->from; i < t->to; i++)
        for (int k = 0; k < t->a->cell[i].n_rates && page_take(to, left); k++) {
            const struct ablated_cell *c = &t->a->cell[i];
            ablation_row(to, c);
            ablation_number(to, c->rate[k].rate);
            html_count(to, c->rate[k].n);
            ablation_cell(to, c->rate[k].validated, 4);
            ablation_cell(to, isfinite(c->rate[k].updates) ? c->rate[k].updates : NAN, 0);
            html_cell(to, k == c->best ? "yes" : "");
            fputs("</tr>\n", to);
        }
    ablation_numbers_end(to);
}

static void over_rate(FILE *to, const struct ablation_task *t, int *left)
{
    struct plot_span x = PLOT_NONE, y = PLOT_NONE;
    double tick[MAX_TICKS];
    int n = 0, several = 0;

    for (int i = t->from; i < t->to; i++) {
        const struct ablated_cell *c = &t->a->cell[i];
        several |= c->n_rates > 1;
        for (int k = 0; k < c->n_rates; k++) {
            n = add_tick(tick, n, c->rate[k].rate);
            plot_see(&x, c->rate[k].rate);
            plot_see(&y, c->rate[k].validated);
        }
    }
    if (!several)
        return;
    struct plot p = {to, plot_axis(&x, 1, "learning rate"), ablation_metric(t, &y), PLOT_HEIGHT, 0};
    p.x.tick = tick;
    p.x.n_ticks = n;
    plot_begin(&p, "Validation by learning rate");
    plot_level(&p, t->chance, "chance");
    for (int i = t->from; i < t->to; i++)
        rate_curve(&p, &t->a->cell[i], t->d->look[i]);
    char text[320];
    snprintf(text, sizeof text,
             "%s of the last validation by learning rate: interquartile means of the runs that "
             "search. A filled mark is the rate that was chosen.",
             metric_of(t));
    plot_caption(&p, text);
    rate_numbers(to, t, left);
    plot_end(&p);
}

/* ---- shares ---- */

/* A share k/n and Wilson's interval around it, at a height of its own. */
static void share(const struct plot *p, double y, double value, const struct interval *in, int look,
                  int hollow)
{
    const double from = plot_x(p, in->low), to = plot_x(p, in->high);

    fprintf(p->to, "<path class=\"whisker s%d\" d=\"M%.1f %.1fH%.1fM%.1f %.1fv6M%.1f %.1fv6\"/>",
            look % 8, from, y, to, from, y - 3, to, y - 3);
    plot_mark(p, plot_x(p, value), y, look, hollow);
}

/* As many of a name's characters as a row has space for. */
static void row_name(FILE *to, const char *name)
{
    char text[RUN_NAME + 8];
    size_t n = 0, shown = 0;

    while (name[n] && shown < MAX_NAME) {
        n++;
        while ((name[n] & 0xc0) == 0x80)
            n++;
        shown++;
    }
    snprintf(text, sizeof text, "%.*s%s", (int)n, name, name[n] ? "…" : "");
    html_text(to, text);
}

static void share_row(const struct plot *p, const struct ablation_task *t, int i)
{
    const struct ablated_cell *c = &t->a->cell[i];
    const double top = PLOT_TOP + ROW_HEIGHT * (i - t->from);

    fprintf(p->to, "<text x=\"2\" y=\"%.1f\">", top + 10);
    row_name(p->to, c->variant);
    fputs("</text>", p->to);
    if (c->holds >= 0)
        share(p, top + 30, (double)c->holds / c->n, &c->holds_in, t->d->look[i], 1);
    if (c->solved >= 0)
        share(p, top + (c->holds >= 0 ? 22 : 26), (double)c->solved / c->n, &c->solved_in,
              t->d->look[i], 0);
}

static void share_numbers(FILE *to, const struct ablation_task *t, int *left)
{
    ablation_numbers(to, "<variant|seeds|solved|95 %, from|to|hold|95 %, from|to");
    for (int i = t->from; i < t->to && page_take(to, left); i++) {
        const struct ablated_cell *c = &t->a->cell[i];
        const int solved = c->n && c->solved >= 0, holds = c->n && c->holds >= 0;
        ablation_row(to, c);
        html_count(to, c->n);
        ablation_cell(to, solved ? c->solved : NAN, 0);
        ablation_cell(to, solved ? c->solved_in.low : NAN, 3);
        ablation_cell(to, solved ? c->solved_in.high : NAN, 3);
        ablation_cell(to, holds ? c->holds : NAN, 0);
        ablation_cell(to, holds ? c->holds_in.low : NAN, 3);
        ablation_cell(to, holds ? c->holds_in.high : NAN, 3);
        fputs("</tr>\n", to);
    }
    ablation_numbers_end(to);
}

static void shares(FILE *to, const struct ablation_task *t, int *left)
{
    const struct plot p = {to,
                           {.to = 1, .name = "share of seeds"},
                           {.to = 1, .n_ticks = -1},
                           PLOT_TOP + PLOT_BOTTOM + 6 + ROW_HEIGHT * (t->to - t->from),
                           0};

    if (t->in_bits)
        return;
    plot_begin(&p, "Share of seeds that solved the task, and that hold");
    for (int i = t->from; i < t->to; i++)
        if (t->a->cell[i].n)
            share_row(&p, t, i);
    plot_caption(&p, "Share of seeds that solved the task at the training length (filled) and hold "
                     "at longer ones (hollow), with Wilson’s 95 % intervals");
    share_numbers(to, t, left);
    plot_end(&p);
}

/* ---- over sizes ---- */

struct size {
    const char *name, *label;
    double (*of)(const struct ablated_cell *c);
};

static double parameters_of(const struct ablated_cell *c)
{
    return c->parameters;
}
static double state_of(const struct ablated_cell *c)
{
    return c->state_bytes;
}
static double seconds_of(const struct ablated_cell *c)
{
    return c->seconds;
}

static const struct size sizes[] = {
    {"parameters", "Metric by parameters", parameters_of},
    {"bytes of state", "Metric by bytes of state", state_of},
    {"seconds to the target", "Metric by seconds to the target", seconds_of}};

/* The result of a cell at the longest length that it was tested at; NULL: there is none. */
static const struct test_of *longest_test(const struct ablation_task *t, int i)
{
    return t->a->cell[i].n ? ablated_test_at(&t->a->cell[i], t->longest) : NULL;
}

/* How far a point is moved, so that it does not lie on one before it. */
static double moved(const struct plot *p, const struct ablation_task *t, const struct size *s,
                    int i)
{
    enum { NEAR = 6, STEP = 10 };
    const double at = plot_x(p, s->of(&t->a->cell[i]));
    int before = 0;

    for (int k = t->from; k < i; k++)
        before += longest_test(t, k) && isfinite(s->of(&t->a->cell[k])) &&
                  fabs(plot_x(p, s->of(&t->a->cell[k])) - at) < NEAR;
    return STEP * before < 80 ? STEP * before : 0;
}

static void size_point(struct plot *p, const struct ablation_task *t, const struct size *s, int i)
{
    const struct test_of *test = longest_test(t, i);
    const int look = t->d->look[i];
    const double at = plot_x(p, s->of(&t->a->cell[i])) + moved(p, t, s, i);

    plot_whisker(p, at, (double[]){test->interval.bca.low, test->interval.bca.high}, look);
    plot_mark(p, at, plot_y(p, test->value), look, 0);
}

static void size_numbers(FILE *to, const struct ablation_task *t, const struct size *s, int *left)
{
    char heads[120];

    snprintf(heads, sizeof heads, "<variant|%s|%s|95 %%, from|to", s->name,
             t->in_bits ? "bits" : "accuracy");
    ablation_numbers(to, heads);
    for (int i = t->from; i < t->to && page_take(to, left); i++) {
        const struct test_of *test = longest_test(t, i);
        const double x = s->of(&t->a->cell[i]);
        ablation_row(to, &t->a->cell[i]);
        ablation_number(to, isfinite(x) && t->a->cell[i].n ? x : NAN);
        ablation_cell(to, test ? test->value : NAN, 4);
        ablation_cell(to, test ? test->interval.bca.low : NAN, 4);
        ablation_cell(to, test ? test->interval.bca.high : NAN, 4);
        fputs("</tr>\n", to);
    }
    ablation_numbers_end(to);
}

static void over_size(FILE *to, const struct ablation_task *t, const struct size *s, int *left)
{
    struct plot_span x = PLOT_NONE, y = PLOT_NONE;
    int n = 0, without = 0;

    for (int i = t->from; i < t->to; i++) {
        const struct test_of *test = longest_test(t, i);
        const int known = test && isfinite(s->of(&t->a->cell[i]));
        n += known;
        without += !known;
        if (!known)
            continue;
        plot_see(&x, s->of(&t->a->cell[i]));
        plot_see(&y, test->interval.bca.low);
        plot_see(&y, test->interval.bca.high);
        plot_see(&y, test->value);
    }
    if (n < 2)
        return;
    struct plot p = {to, plot_axis(&x, 2, s->name), ablation_metric(t, &y), LOW_HEIGHT, 0};
    char text[320], rest[80] = "";
    p.x.to *= p.x.log ? 1 : 1.06;
    plot_begin(&p, s->label);
    plot_level(&p, t->chance, "chance");
    for (int i = t->from; i < t->to; i++)
        if (longest_test(t, i) && isfinite(s->of(&t->a->cell[i])))
            size_point(&p, t, s, i);
    if (without)
        snprintf(rest, sizeof rest, "; without the %d variants that have none", without);
    snprintf(text, sizeof text,
             "%s at length %lld by %s, with 95 %% intervals; variants of one size stand beside "
             "each other%s",
             metric_of(t), (long long)t->longest, s->name, rest);
    plot_caption(&p, text);
    size_numbers(to, t, s, left);
    plot_end(&p);
}

/* ---- all ---- */

void ablation_results(FILE *to, const struct ablation_task *t, int *left)
{
    if (page_has_space(to))
        over_length(to, t, left);
    if (page_has_space(to))
        over_rate(to, t, left);
    if (page_has_space(to))
        shares(to, t, left);
    for (int i = 0; i < (int)COUNT(sizes) && page_has_space(to); i++)
        over_size(to, t, &sizes[i], left);
}
