/* The settings compared on a page: a table per operation, the best group of trials first, with
 * figures on one axis for all of them (page.h, summary.h). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/page/html.h"
#include "common/page/page.h"
#include "common/page/summary.h"
#include "common/page/svg.h"

enum { MAX_SHOWN = 300, MAX_KEYS = 10 };

static int has(const struct page_dump *d)
{
    int n = 0;

    for (int i = 0; i < d->n; i++)
        n += d->trial[i].complete && (d->trial[i].n_checks || d->trial[i].n_times);
    return n > 1;
}

/* ---- figures ---- */

/* The axis of all mean totals and those of their trials; 0 where there are none. */
static int find_axis(const struct summary *all, int n, struct dots_axis *axis)
{
    double least = INFINITY, greatest = 0;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < all[i].n_cells; k++) {
            const double x = all[i].cell[k].value[SUMMARY_TOTAL];
            least = x < least ? x : least;
            greatest = x > greatest ? x : greatest;
        }
    if (!(greatest > 0))
        return 0;
    *axis = dots_axis(least, greatest);
    return 1;
}

static int time_figure(FILE *to, const struct summary_row *r, struct dots_axis axis)
{
    const struct summary_stat *t = &r->stat[SUMMARY_TOTAL];
    char label[100], text[NUMBER_TEXT];
    double *x = calloc((size_t)r->n, sizeof *x);

    if (!x)
        return err_set("no memory for %d times", r->n);
    for (int i = 0; i < r->n; i++)
        x[i] = r->cell[i].value[SUMMARY_TOTAL];
    snprintf(label, sizeof label, "mean time %s", html_seconds(t->mean, text));
    fputs("<td>", to);
    if (t->n)
        dots_write(to, axis, x, r->n, t->mean, label);
    fputs("</td>", to);
    free(x);
    return 0;
}

static void ratio_figure(FILE *to, const struct summary_row *r)
{
    const struct summary_stat *t = &r->stat[SUMMARY_RATIO];
    char label[100], text[NUMBER_TEXT];
    struct strip s = {0};

    for (int i = 0; i < r->n; i++)
        if (!isnan(r->cell[i].value[SUMMARY_RATIO]))
            strip_add(&s, r->cell[i].value[SUMMARY_RATIO],
                      r->cell[i].wrong ? STRIP_BAD : STRIP_GOOD);
    snprintf(label, sizeof label, "worst error / bound %s", html_number(t->max, text));
    fputs("<td>", to);
    if (t->n)
        strip_write(to, &s, label);
    fputs("</td>", to);
}

/* ---- tables ---- */

/* "12.3 ± 0.41 µs" */
static void value(FILE *to, const struct summary_row *r, enum summary_value v)
{
    char text[SUMMARY_TEXT + 1];
    char *micro = strstr(summary_text(r, v, text), " us");

    if (micro)
        strcpy(micro, " µs");
    html_value(to, *text ? text : "–");
}

static void head(FILE *to, const struct summary *s, int timed)
{
    fputs("<div class=\"wide\" tabindex=\"0\"><table><thead><tr><th scope=\"col\" "
          "class=\"n\">Place</th>",
          to);
    for (int k = 0; k < s->n_keys && k < MAX_KEYS; k++) {
        fputs("<th scope=\"col\">", to);
        html_text(to, s->key[k]);
        fputs("</th>", to);
    }
    fputs("<th scope=\"col\">Kernel</th><th scope=\"col\" class=\"n\">Trials</th>", to);
    if (timed)
        fputs("<th scope=\"col\">Time of both passes</th><th scope=\"col\" "
              "class=\"n\">Forward</th><th scope=\"col\" class=\"n\">Backward</th>",
              to);
    fputs("<th scope=\"col\">Worst error / bound</th><th scope=\"col\" class=\"n\">Error / "
          "bound</th><th scope=\"col\" class=\"n\">Error</th><th scope=\"col\" "
          "class=\"n\">Failed</th></tr></thead>\n<tbody>\n",
          to);
}

static int row(FILE *to, const struct summary *s, int place, const struct summary_row *r,
               const struct dots_axis *axis)
{
    const struct page_trial *t = s->group[place].first;
    char name[400];
    int e = 0;

    fputs("<tr>", to);
    html_count(to, place + 1);
    for (int k = 0; k < s->n_keys && k < MAX_KEYS; k++)
        html_cell(to, summary_setting(t, s->key[k]));
    html_cell(to, summary_name(r, name, sizeof name));
    html_count(to, r->n);
    if (axis) {
        e = time_figure(to, r, *axis);
        value(to, r, SUMMARY_FORWARD);
        value(to, r, SUMMARY_BACKWARD);
    }
    ratio_figure(to, r);
    value(to, r, SUMMARY_RATIO);
    value(to, r, SUMMARY_ERROR);
    fprintf(to, "<td class=\"n%s\">%lld</td></tr>\n", r->failed ? " bad" : "",
            (long long)r->failed);
    return e;
}

/* How the operation's trials are grouped and ordered. */
static void note(FILE *to, const struct summary *s)
{
    fprintf(to, "<p class=\"note\">%d trials in %d groups", s->trials, s->n);
    if (s->n_over)
        fputs("; mean ± standard deviation over ", to);
    for (int k = 0; k < s->n_over; k++) {
        fputs(k ? ", <code>" : "<code>", to);
        html_text(to, s->over[k]);
        fputs("</code>", to);
    }
    fprintf(to, ". The best comes first, by %s.</p>\n",
            s->by_time ? "the shortest forward + backward of a kernel that is right"
                       : "the largest error / bound of a kernel");
}

static int table(FILE *to, const struct summary *s, const struct dots_axis *axis, int *left)
{
    int shown = 0, e = 0;

    if (!s->n_rows)
        return 0;
    html_heading(to, s->op, NULL);
    note(to, s);
    head(to, s, axis != NULL);
    for (int i = 0; !e && i < s->n; i++)
        for (int k = 0; !e && k < s->group[i].n && page_take(to, left); k++, shown++)
            e = row(to, s, i, &s->group[i].row[k], axis);
    html_table_end(to);
    page_more(to, s->n_rows - shown, "rows");
    return e;
}

static void explain(FILE *to, const struct dots_axis *axis)
{
    char from[NUMBER_TEXT], until[NUMBER_TEXT];

    fputs("<p class=\"note\">All figures of a column have one axis, for all trials.", to);
    if (axis)
        fprintf(to,
                " Time: a mark for each trial, and a long one for the mean, on a logarithmic axis "
                "from %s to %s, a tick per decade.",
                html_seconds(axis->first, from),
                html_seconds(axis->first * pow(10, axis->decades), until));
    fputs(" Error / bound: the worst of each trial, as above.</p>\n", to);
}

static int write(FILE *to, const struct page_dump *d)
{
    int left = MAX_SHOWN, e = 0;
    struct dots_axis axis;
    struct summary *all = calloc((size_t)d->n_groups + 1, sizeof *all);

    if (!all)
        return err_set("no memory for %d operations", d->n_groups);
    for (int i = 0; !e && i < d->n_groups; i++)
        e = summary_of(d, &d->group[i], NULL, &all[i]);
    if (!e) {
        const int timed = find_axis(all, d->n_groups, &axis);
        explain(to, timed ? &axis : NULL);
        for (int i = 0; !e && i < d->n_groups; i++)
            e = table(to, &all[i], timed ? &axis : NULL, &left);
    }
    for (int i = 0; i < d->n_groups; i++)
        summary_free(&all[i]);
    free(all);
    return e;
}

const struct page_section page_compared = {"compared", "Settings compared", has, write};
