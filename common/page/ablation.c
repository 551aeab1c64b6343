/* The section of runs of training that are compared: for each task the table that the program prints, how its words
 * came about, and figures (page.h, ablation.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/page/ablation.h"
#include "common/page/html.h"
#include "common/page/page.h"
#include "common/page/plot.h"

enum { MAX_FIGURES = 12, MAX_DRAWN = 32, MAX_CELLS = 200, MAX_ROWS = 1000, MAX_NUMBERS = 3000 };

static int has(const struct page_dump *d)
{
    return d->ablation != NULL;
}

/* ---- a task ---- */

struct ablation_task ablation_task_of(const struct page_dump *d, int from)
{
    const struct ablation *a = &d->ablation->ablation;
    const struct ablated_cell *first = &a->cell[from];
    const struct ablated_task of = ablated_task_of(a, from);
    const struct ablation_task t = {.d = d,
                                    .a = a,
                                    .name = first->task,
                                    .from = of.from,
                                    .to = of.to,
                                    .length = of.length,
                                    .longest = of.longest,
                                    .in_bits = first->in_bits,
                                    .chance = first->in_bits ? -log2(first->chance) : first->chance,
                                    .figures = 1};

    return t;
}

const struct page_run *ablation_run(const struct ablation_task *t, const struct ablated_cell *c,
                                    int k)
{
    const int trial = t->a->runs->run[c->run[k]].trial;
    return trial < t->d->n ? t->d->trial[trial].run : NULL;
}

double ablation_value(const struct ablation_task *t, const struct ablated_cell *c, int k,
                      int64_t length)
{
    const struct stored_run *r = &t->a->runs->run[c->run[k]];

    for (int i = 0; i < r->n_tests; i++)
        if (r->test[i].length == length)
            return run_value(r, &r->test[i]);
    return NAN;
}

struct plot_axis ablation_metric(const struct ablation_task *t, const struct plot_span *seen)
{
    struct plot_span s = *seen;

    if (t->in_bits) {
        struct plot_axis a = plot_axis(&s, 0, NULL);
        const double range = s.least < s.greatest ? s.greatest - s.least : 0;
        if (s.least <= s.greatest && s.least > 0) {
            a.from = fmax(0, s.least - fmax(0.3 * range, 0.02));
            a.to = s.greatest + fmax(0.1 * range, 0.02);
        }
        return a;
    }
    plot_see(&s, t->chance);
    return (struct plot_axis){.from = fmax(0, floor(10 * s.least - 0.5) / 10), .to = 1};
}

/* ---- numbers ---- */

void ablation_numbers(FILE *to, const char *heads)
{
    fputs("<details><summary>In numbers</summary>\n", to);
    html_table(to, heads);
}

void ablation_numbers_end(FILE *to)
{
    html_table_end(to);
    fputs("</details>\n", to);
}

void ablation_row(FILE *to, const struct ablated_cell *c)
{
    fputs("<tr>", to);
    html_cell(to, c->variant);
}

void ablation_cell(FILE *to, double x, int decimals)
{
    char text[NUMBER_TEXT];

    if (isfinite(x) && fabs(x) < 1e9)
        snprintf(text, sizeof text, "%.*f", decimals, x);
    else
        html_number(x, text);
    html_value(to, text);
}

void ablation_number(FILE *to, double x)
{
    char text[NUMBER_TEXT];
    html_value(to, html_number(x, text));
}

/* ---- the table ---- */

/* The columns that a task has. */
struct columns {
    int parameters, state, rates, longer, diverged, against;
};

static struct columns columns_of(const struct ablation_task *t)
{
    const char *baseline = t->d->ablation->baseline;
    struct columns has = {.longer = t->longest > t->length, .against = baseline && *baseline};

    for (int i = t->from; i < t->to; i++) {
        const struct ablated_cell *c = &t->a->cell[i];
        has.parameters |= isfinite(c->parameters);
        has.state |= isfinite(c->state_bytes);
        has.rates |= c->n_rates > 1;
        has.diverged |= c->diverged > 0;
    }
    return has;
}

static void head_cell(FILE *to, int there, const char *text)
{
    if (!there)
        return;
    fputs("<th scope=\"col\" class=\"n\">", to);
    html_text(to, text);
    fputs("</th>", to);
}

static void heads(FILE *to, const struct ablation_task *t, const struct columns *has)
{
    char text[RUN_NAME + 32];

    fputs("<div class=\"wide\" tabindex=\"0\"><table><thead><tr><th scope=\"col\">variant</th>",
          to);
    head_cell(to, has->parameters, "parameters");
    head_cell(to, has->state, "state, bytes");
    head_cell(to, has->rates, "learning rate");
    snprintf(text, sizeof text, "at %" PRId64, t->length);
    head_cell(to, 1, text);
    snprintf(text, sizeof text, "at %" PRId64, t->longest);
    head_cell(to, has->longer, text);
    head_cell(to, !t->in_bits, "solved");
    head_cell(to, !t->in_bits && has->longer, "holds");
    head_cell(to, 1, "updates");
    head_cell(to, has->diverged, "diverged");
    if (has->against) {
        fputs("<th scope=\"col\">against ", to);
        html_text(to, t->d->ablation->baseline);
        fputs("</th>", to);
    }
    fputs("</tr></thead>\n<tbody>\n", to);
}

static void test_cell(FILE *to, const struct test_of *test)
{
    char text[80] = "–";

    if (test && isnan(test->interval.bca.low))
        snprintf(text, sizeof text, "%.3f", test->value);
    else if (test)
        snprintf(text, sizeof text, "%.3f [%.3f %.3f]", test->value, test->interval.bca.low,
                 test->interval.bca.high);
    html_value(to, text);
}

static void share_cell(FILE *to, int k, int n)
{
    char text[40] = "–";

    if (k >= 0 && n)
        snprintf(text, sizeof text, "%d/%d", k, n);
    html_value(to, text);
}

/* Of a cell against the baseline, which its pairs are of before those that are declared. */
static void verdict_cell(FILE *to, const struct ablation_task *t, int cell)
{
    char text[COMPARISON_TEXT] = "–";

    for (int i = 0; i < t->a->n_pairs; i++) {
        const struct compared_pair *p = &t->a->pair[i];
        if (p->a == cell && p->word != NOT_CLAIMED &&
            strcmp(t->a->cell[p->b].variant, t->d->ablation->baseline) == 0)
            comparison_text(p, text);
    }
    html_cell(to, text);
}

static void rate_cell(FILE *to, const struct ablated_cell *c)
{
    char text[40] = "–";

    if (c->best >= 0)
        snprintf(text, sizeof text, "%.3g%s", c->rate[c->best].rate, c->at_end ? " !" : "");
    html_value(to, text);
}

static void row(FILE *to, const struct ablation_task *t, const struct columns *has, int i)
{
    const struct ablated_cell *c = &t->a->cell[i];

    fputs("<tr><td>", to);
    plot_key(to, t->d->look[i]);
    html_text(to, c->variant);
    fputs("</td>", to);
    if (has->parameters)
        ablation_cell(to, c->parameters, 0);
    if (has->state)
        ablation_cell(to, c->state_bytes, 0);
    if (has->rates)
        rate_cell(to, c);
    test_cell(to, ablated_test_at(c, t->length));
    if (has->longer)
        test_cell(to, ablated_test_at(c, t->longest));
    if (!t->in_bits)
        share_cell(to, c->solved, c->n);
    if (!t->in_bits && has->longer)
        share_cell(to, c->holds, c->n);
    ablation_cell(to, c->n && isfinite(c->updates) ? c->updates : NAN, 0);
    if (has->diverged)
        html_count(to, c->diverged);
    if (has->against)
        verdict_cell(to, t, i);
    fputs("</tr>\n", to);
}

static void notes(FILE *to, const struct ablation_task *t)
{
    for (int i = t->from; i < t->to; i++) {
        const struct ablated_cell *c = &t->a->cell[i];
        if (!c->at_end && !c->diverged)
            continue;
        fputs("<p class=\"note\">", to);
        html_text(to, c->variant);
        if (c->at_end)
            fprintf(to,
                    " !: the best rate is the %s of those that were tried; one beyond it may be "
                    "better.",
                    c->at_end < 0 ? "smallest" : "largest");
        if (c->diverged)
            fprintf(to, "%s %d of %d runs diverged, and count as chance.", c->at_end ? "" : ":",
                    c->diverged, c->n);
        fputs("</p>\n", to);
    }
}

static void table(FILE *to, const struct ablation_task *t, int *left)
{
    const struct columns has = columns_of(t);
    int64_t more = 0;

    heads(to, t, &has);
    for (int i = t->from; i < t->to; i++)
        if (page_take(to, left))
            row(to, t, &has, i);
        else
            more++;
    html_table_end(to);
    page_more(to, more, "variants");
    notes(to, t);
}

/* ---- pairs ---- */

static void pair_row(FILE *to, const struct ablation_task *t, const struct compared_pair *p)
{
    char text[COMPARISON_TEXT];

    ablation_row(to, &t->a->cell[p->a]);
    html_cell(to, t->a->cell[p->b].variant);
    html_count(to, p->length);
    html_count(to, p->n);
    ablation_cell(to, p->difference, 4);
    ablation_cell(to, p->n ? p->interval.bca.low : NAN, 4);
    ablation_cell(to, p->n ? p->interval.bca.high : NAN, 4);
    ablation_number(to, p->p);
    ablation_number(to, p->adjusted);
    comparison_text(p, text);
    html_cell(to, *text ? text : "–");
    fputs("</tr>\n", to);
}

/* Pairs that an experiment declares are what it asks, and open; those of a baseline stand in the table above. */
static void pairs(FILE *to, const struct ablation_task *t, int *left)
{
    int64_t more = 0, n = 0;

    for (int i = 0; i < t->a->n_pairs; i++)
        n += t->a->pair[i].a >= t->from && t->a->pair[i].a < t->to;
    if (!n)
        return;
    fprintf(to, "<details%s><summary>Pairs: differences of %s, paired by seed</summary>\n",
            t->d->ablation->pair ? " open" : "", t->in_bits ? "bits" : "accuracy");
    html_table(to,
               "<variant|<against|length|seeds|mean difference|95 %, from|to|p|p, Holm|<verdict");
    for (int i = 0; i < t->a->n_pairs; i++) {
        const struct compared_pair *p = &t->a->pair[i];
        if (p->a < t->from || p->a >= t->to)
            continue;
        if (page_take(to, left))
            pair_row(to, t, p);
        else
            more++;
    }
    html_table_end(to);
    page_more(to, more, "pairs");
    fputs("</details>\n", to);
}

/* ---- words ---- */

/* Of which p are; text has space for 200. */
static const char *signs(const struct ablation *a, char text[200])
{
    snprintf(text, 200, "exact sign-flip test, two-sided");
    if (ablation_drawn(a, 0, a->n_cells))
        snprintf(
            text, 200,
            "sign-flip test, two-sided, exact up to %d seeds, and beyond, as here, of %d drawn "
            "ways to give signs",
            SIGNS_EXACT, SIGN_DRAWS);
    return text;
}

static void how(FILE *to, const struct page_dump *d)
{
    char test[200];

    fprintf(to,
            "<p class=\"note\">Results are tests of the last weights, on data that neither "
            "training nor validation has seen: the interquartile mean over seeds, and in brackets "
            "its 95 %% interval (BCa bootstrap over seeds, %d resamples). Solved: an accuracy of "
            "at least %g at the training length; holds: a mean of at least %g over longer ones. "
            "Updates: the median over seeds until a run reached its target; –: it did not. Runs "
            "that diverged count as chance.</p>\n",
            RESAMPLES, SOLVED, HOLDS);
    if (d->ablation->ablation.n_pairs)
        fprintf(to,
                "<p class=\"note\">How the verdicts came about: two variants are compared at the "
                "longest length by their differences, paired by seed, since runs of one seed have "
                "equal data and equal starts. p is of the %s, adjusted "
                "by Holm over the task's pairs. <i>better</i>, <i>worse</i>: p &lt; 0.05, and the "
                "BCa interval of the mean difference does not contain 0. <i>equal</i>: that "
                "interval lies within ±%g, of %d seeds or more. <i>too few seeds</i>: no result of "
                "so many seeds and pairs could have p &lt; 0.05. All else is <i>no difference "
                "shown</i>, which does not say that there is none. At shorter lengths nothing is "
                "claimed.</p>\n",
                signs(&d->ablation->ablation, test), d->ablation->margin, EQUAL_SEEDS);
    if (d->ablation->runs.unfinished)
        fprintf(to, "<p class=\"note\">%d trials are not finished, and are in none of it.</p>\n",
                d->ablation->runs.unfinished);
}

/* "parity  length 32, chance 0.500, 10 seeds" */
static void heading(FILE *to, const struct ablation_task *t)
{
    int least = t->a->cell[t->from].n, most = least, searched = 0;
    char seeds[64], note[240];

    for (int i = t->from; i < t->to; i++) {
        const struct ablated_cell *c = &t->a->cell[i];
        least = c->n < least ? c->n : least;
        most = c->n > most ? c->n : most;
        searched |= c->searched;
    }
    if (least == most)
        snprintf(seeds, sizeof seeds, "%d seed%s", most, most == 1 ? "" : "s");
    else
        snprintf(seeds, sizeof seeds, "%d to %d seeds", least, most);
    snprintf(note, sizeof note, "%s at length %" PRId64 ", chance %.3f, %s%s",
             t->in_bits ? "bits a token" : "accuracy", t->length, t->chance, seeds,
             searched ? ", the same that chose the rate" : "");
    html_heading(to, t->name, note);
}

static void legend(FILE *to, const struct ablation_task *t)
{
    fputs("<p class=\"legend\">", to);
    for (int i = t->from; i < t->to; i++) {
        fputs("<span>", to);
        plot_key(to, t->d->look[i]);
        html_text(to, t->a->cell[i].variant);
        fputs("</span> ", to);
    }
    fputs("</p>\n", to);
}

static int figures(FILE *to, const struct ablation_task *of, int *left)
{
    struct ablation_task t = *of;

    t.to = t.to - t.from > MAX_DRAWN ? t.from + MAX_DRAWN : t.to;
    legend(to, &t);
    if (t.to < of->to)
        fprintf(to, "<p class=\"note\">The first %d of %d variants are in the figures.</p>\n",
                MAX_DRAWN, of->to - of->from);
    fputs("<div class=\"figures\">\n", to);
    const int e = ablation_curves(to, &t, left);
    if (!e)
        ablation_results(to, &t, left);
    fputs("</div>\n", to);
    return e;
}

/* How many tasks have figures: fewer where there are many variants. */
static int tasks_drawn(const struct page_dump *d)
{
    const int variants = d->n_looks < MAX_DRAWN ? d->n_looks : MAX_DRAWN;
    const int most = MAX_CELLS / variants < MAX_FIGURES ? MAX_CELLS / variants : MAX_FIGURES;
    return d->ablation->ablation.n_tasks < most ? d->ablation->ablation.n_tasks : most;
}

static int write(FILE *to, const struct page_dump *d)
{
    const struct ablation *a = &d->ablation->ablation;
    const int drawn = tasks_drawn(d);
    int rows = MAX_ROWS, pair_rows = MAX_ROWS, shown = 0, e = 0;

    how(to, d);
    if (a->n_tasks > 1)
        ablation_heat(to, d, &rows);
    for (int i = 0; !e && i < a->n_cells;) {
        struct ablation_task t = ablation_task_of(d, i);
        int numbers = MAX_NUMBERS / drawn;
        t.figures = drawn;
        heading(to, &t);
        table(to, &t, &rows);
        pairs(to, &t, &pair_rows);
        if (shown++ < drawn && page_has_space(to))
            e = figures(to, &t, &numbers);
        i = t.to;
    }
    if (shown > drawn)
        fprintf(to, "<p class=\"note\">The first %d of %d tasks have figures.</p>\n", drawn, shown);
    if (!page_has_space(to))
        fputs("<p class=\"note\">The page has its length: it may lack figures.</p>\n", to);
    return e;
}

const struct page_section page_ablation = {"ablation", "Ablation", has, write};
