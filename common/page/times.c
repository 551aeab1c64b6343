/* The times on a page: a bar for every kernel and pass, with the time that the ceiling allows
 * (page.h). */
#include "config.h"

#include <math.h>
#include <string.h>

#include "common/page/html.h"
#include "common/page/page.h"
#include "common/page/svg.h"

enum { MAX_SHOWN = 800, MAX_OPEN = 12 };
static const double longest = 12; /* a bar in units of the shortest; longer ones are cut */

static int has(const struct page_dump *d)
{
    for (int i = 0; i < d->n; i++)
        if (d->trial[i].n_times)
            return 1;
    return 0;
}

double page_reached(const struct time_row *r)
{
    double most = 0;
#define LARGER(with, ID, name)                                                                     \
    if (r->name > most)                                                                            \
        most = r->name;
    CEILINGS(LARGER, )
    return *r->bound_by && isfinite(most) ? most : 0;
}

/* The bars' scale: the longest time, but at most 12 times the shortest. */
static double scale_of(const struct page_trial *t)
{
    double max = 0, min = INFINITY;

    for (int i = 0; i < t->n_times; i++) {
        const struct time_row *r = &t->time[i];
        const double end = r->max > r->median ? r->max : r->median;
        if (!(r->median > 0) || !isfinite(end))
            continue;
        max = end > max ? end : max;
        min = r->median < min ? r->median : min;
    }
    return max > longest * min ? longest * min : max > 0 ? max : 1;
}

static void rate(FILE *to, double amount, double seconds)
{
    char text[NUMBER_TEXT];
    html_value(to, html_number(seconds > 0 && amount > 0 ? amount / seconds * 1e-9 : NAN, text));
}

static void row(FILE *to, const struct time_row *r, double full, int ceilings)
{
    char text[NUMBER_TEXT], label[100];
    const double reached = page_reached(r);

    fputs("<tr>", to);
    html_cell(to, r->backend);
    html_cell(to, r->kernel);
    html_cell(to, r->pass);
    fputs("<td>", to);
    snprintf(label, sizeof label, "median %s", html_seconds(r->median, text));
    bar_write(to,
              &(struct bar){full, r->median, r->min, r->max, reached * r->median,
                            strcmp(r->pass, "forward") != 0},
              label);
    fputs("</td>", to);
    html_value(to, html_seconds(r->median, text));
    html_value(to, html_seconds(r->min, text));
    html_value(to, html_seconds(r->max, text));
    if (ceilings) {
        html_value(to, reached > 0 ? html_seconds(reached * r->median, text) : "–");
        html_percent(to, reached, reached > 0);
        html_cell(to, r->bound_by);
    }
    rate(to, r->flops, r->median);
    rate(to, r->bytes, r->median);
    fputs("</tr>\n", to);
}

static void trial(FILE *to, const struct page_dump *d, const struct page_group *g,
                  const struct page_trial *t, int open, int *left)
{
    const double full = scale_of(t);
    int shown = 0;

    if (!t->n_times || *left <= 0)
        return;
    page_trial_begin(to, g, t, open, NULL);
    html_table(to, d->has_ceilings
                       ? "<Backend|<Kernel|<Pass|<Median, min to max, attainable|Median|"
                         "Min|Max|Attainable|Reached|<Bound by|GFLOP/s|GB/s"
                       : "<Backend|<Kernel|<Pass|<Median, min to max|Median|Min|Max|"
                         "GFLOP/s|GB/s");
    for (; shown < t->n_times && page_take(to, left); shown++)
        row(to, &t->time[shown], full, d->has_ceilings);
    html_table_end(to);
    page_more(to, t->n_times - shown, "rows");
    fputs("</details>\n", to);
}

static int timed(const struct page_dump *d, const struct page_group *g)
{
    int n = 0;
    for (int i = 0; i < g->n; i++)
        n += d->trial[g->trial[i]].n_times > 0;
    return n;
}

static void ceilings(FILE *to, const struct ceilings *c)
{
    const struct {
        const char *name, *unit;
        double value;
    } all[] = {{"memory, read and written", "GB/s", c->memory * 1e-9},
               {"tensor cores, bf16", "TFLOP/s", c->tensor * 1e-12},
               {"FP32", "TFLOP/s", c->fp32 * 1e-12},
               {"special functions", "G/s", c->special * 1e-9}};
    char text[NUMBER_TEXT];

    html_table(to, "<Ceiling, measured on this device|Rate|<Unit");
    for (size_t i = 0; i < COUNT(all); i++) {
        fputs("<tr>", to);
        html_cell(to, all[i].name);
        html_value(to, html_number(all[i].value, text));
        html_cell(to, all[i].unit);
        fputs("</tr>\n", to);
    }
    html_table_end(to);
}

static int write(FILE *to, const struct page_dump *d)
{
    int left = MAX_SHOWN, n = 0, shown = 0;

    for (int i = 0; i < d->n_groups; i++)
        n += timed(d, &d->group[i]);
    if (d->has_ceilings)
        ceilings(to, &d->ceilings);
    fprintf(to,
            "<p class=\"note\">Bar: the median; thin line: from min to max%s Bars of a trial have "
            "one scale; a bar longer than %.0f times the shortest is cut, with an oblique "
            "edge.</p>\n",
            d->has_ceilings
                ? "; vertical mark: attainable, the minimum time under the ceiling that "
                  "binds. Reached: attainable / median."
                : ".",
            longest);
    for (int i = 0; i < d->n_groups; i++) {
        const struct page_group *g = &d->group[i];
        if (!timed(d, g) || left <= 0)
            continue;
        html_heading(to, g->op, NULL);
        for (int k = 0; k < g->n; k++) {
            shown += left > 0 && d->trial[g->trial[k]].n_times > 0;
            trial(to, d, g, &d->trial[g->trial[k]], n <= MAX_OPEN, &left);
        }
    }
    page_more(to, n - shown, "timed trials");
    return 0;
}

const struct page_section page_times = {"times", "Times", has, write};
