/* The verdicts on a page: what failed, then per operation a row for each check, kernel and
 * tensor, which stands for this verdict in all trials (page.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/quote.h"
#include "common/page/html.h"
#include "common/page/page.h"
#include "common/page/svg.h"

enum { MAX_FAILED = 200, MAX_LINES_SHOWN = 800, MAX_SINGLE = 2000 };

/* A verdict, and where it is in the operation's order. */
struct seen {
    const struct check_row *row;
    const struct page_trial *trial;
    int at;
};

/* Verdicts of one check, kernel and tensor: a run of the sorted list. */
struct line {
    const struct seen *seen, *worst;
    int n, failed, unjudged, missed;
};

/* Whole numbers and bytes have a bound of 0. */
static double margin_of(const struct check_row *r)
{
    const double m = r->bound > 0 ? r->error / r->bound : r->error == 0 ? 0 : INFINITY;
    return isnan(m) ? INFINITY : m;
}

static enum strip_kind kind_of(const struct check_row *r)
{
    return strcmp(r->verdict, "fail") == 0   ? STRIP_BAD
           : strcmp(r->verdict, "pass") == 0 ? STRIP_GOOD
                                             : STRIP_UNSURE;
}

static int has(const struct page_dump *d)
{
    for (int i = 0; i < d->n; i++)
        if (d->trial[i].n_checks)
            return 1;
    return 0;
}

/* ---- verdicts in lines ---- */

static int compare_keys(const struct check_row *a, const struct check_row *b)
{
    int c = strcmp(a->check, b->check);

    c = c ? c : strcmp(a->backend, b->backend);
    c = c ? c : strcmp(a->kernel, b->kernel);
    return c ? c : strcmp(a->tensor, b->tensor);
}

static int by_key(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    const int c = compare_keys(x->row, y->row);
    return c ? c : (x->at > y->at) - (x->at < y->at);
}

static int by_order(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    return (x->seen->at > y->seen->at) - (x->seen->at < y->seen->at);
}

/* A failed one is worse than others; among equals, what has the larger margin; then the first. */
static int is_worse(const struct seen *a, const struct seen *b)
{
    const double x = margin_of(a->row), y = margin_of(b->row);
    const int bad = kind_of(a->row) == STRIP_BAD, other = kind_of(b->row) == STRIP_BAD;
    return bad != other ? bad : x > y;
}

static struct line line_of(const struct seen *seen, int n)
{
    struct line l = {.seen = seen, .worst = seen, .n = n};

    for (int i = 0; i < n; i++) {
        l.failed += kind_of(seen[i].row) == STRIP_BAD;
        l.missed += strcmp(seen[i].row->verdict, "missed") == 0;
        l.unjudged += kind_of(seen[i].row) == STRIP_UNSURE;
        if (is_worse(&seen[i], l.worst))
            l.worst = &seen[i];
    }
    return l;
}

/* All lines of sorted verdicts, in the order of the dump; returns how many. */
static int find_lines(const struct seen *seen, int n, struct line *to)
{
    int lines = 0;

    for (int from = 0, i = 1; i <= n; i++)
        if (i == n || compare_keys(seen[i].row, seen[from].row) != 0) {
            to[lines++] = line_of(seen + from, i - from);
            from = i;
        }
    qsort(to, (size_t)lines, sizeof *to, by_order);
    return lines;
}

/* ---- written ---- */

static void number(FILE *to, double x)
{
    char text[NUMBER_TEXT];
    html_value(to, html_number(x, text));
}

/* The name of the check and of what was checked. */
static void names(FILE *to, const struct check_row *r)
{
    html_cell(to, r->check);
    fputs("<td>", to);
    html_text(to, r->backend);
    if (*r->kernel) {
        fputc(' ', to);
        html_text(to, r->kernel);
    }
    fputs("</td>", to);
    html_cell(to, r->tensor);
}

static void line_verdict(FILE *to, const struct line *l)
{
    if (l->failed)
        fprintf(to, "<td class=\"bad\">%d failed</td>", l->failed);
    else if (l->missed)
        fprintf(to, "<td class=\"unsure\">%d missed</td>", l->missed);
    else if (l->unjudged)
        fprintf(to, "<td class=\"unsure\">%d cannot be judged</td>", l->unjudged);
    else
        fputs("<td class=\"good\">pass</td>", to);
}

/* The smallest uniform error that would have failed. */
static void sees(FILE *to, const struct check_row *r)
{
    char text[NUMBER_TEXT];
    html_value(to, r->samples <= 0  ? "–"
                   : isnan(r->sees) ? "–"
                   : r->sees > 0    ? html_number(r->sees, text)
                                    : "any bit");
}

/* Of a line that of the verdict that sees least. */
static const struct check_row *blindest(const struct line *l)
{
    const struct check_row *least = l->worst->row;

    for (int i = 0; i < l->n; i++) {
        const struct check_row *r = l->seen[i].row;
        if (r->samples > 0 && (least->samples <= 0 || r->sees > least->sees))
            least = r;
    }
    return least;
}

static void line_write(FILE *to, const struct line *l)
{
    struct strip s = {0};
    char text[64], margin[NUMBER_TEXT];
    const struct check_row *r = l->worst->row;

    for (int i = 0; i < l->n; i++)
        strip_add(&s, margin_of(l->seen[i].row), kind_of(l->seen[i].row));
    fputs("<tr>", to);
    names(to, r);
    line_verdict(to, l);
    fputs("<td>", to);
    snprintf(text, sizeof text, "worst error / bound %s", html_number(margin_of(r), margin));
    strip_write(to, &s, text);
    fputs("</td>", to);
    html_value(to, margin);
    number(to, r->error);
    number(to, r->bound);
    html_cell(to, r->distance);
    sees(to, blindest(l));
    html_cell(to, r->worst);
    html_count(to, l->worst->trial->number);
    html_count(to, l->n);
    fputs("</tr>\n", to);
}

static void single(FILE *to, const struct check_row *r)
{
    fputs("<tr>", to);
    names(to, r);
    number(to, margin_of(r));
    number(to, r->error);
    number(to, r->bound);
    html_cell(to, r->distance);
    sees(to, r);
    html_cell(to, r->worst);
    html_verdict(to, r->verdict);
    fputs("</tr>\n", to);
}

/* What would pass, where that was asked. */
static void passing(FILE *to, const struct page_trial *t)
{
    for (const char *at = t->would_pass; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        char line[400];
        snprintf(line, sizeof line, "%.*s", quote_fit(at, (int)strcspn(at, "\n")), at);
        fputs(at == t->would_pass ? "<p class=\"note\">Would pass: " : "; ", to);
        html_text(to, line);
    }
    if (*t->would_pass)
        fputs(".</p>\n", to);
}

/* Every verdict of a trial. */
static void trial(FILE *to, const struct page_group *g, const struct page_trial *t)
{
    char note[NUMBER_TEXT];

    if (!t->n_checks)
        return;
    snprintf(note, sizeof note, "%d verdicts", t->n_checks);
    page_trial_begin(to, g, t, 0, note);
    html_table(to,
               "<Check|<Kernel|<Tensor|Error / bound|Error|Bound|<Distance|Sees|<Where|<Verdict");
    for (int i = 0; i < t->n_checks; i++)
        single(to, &t->check[i]);
    html_table_end(to);
    passing(to, t);
    fputs("</details>\n", to);
}

static int group(FILE *to, const struct page_dump *d, const struct page_group *g, int each,
                 int *left)
{
    int n = 0, lines, shown = 0;
    char note[NUMBER_TEXT];

    for (int i = 0; i < g->n; i++)
        n += d->trial[g->trial[i]].n_checks;
    if (!n)
        return 0;
    struct seen *seen = calloc((size_t)n, sizeof *seen);
    struct line *line = calloc((size_t)n, sizeof *line);
    if (!seen || !line) {
        free(seen);
        free(line);
        return err_set("no memory for %d verdicts", n);
    }
    for (int i = 0, at = 0; i < g->n; i++)
        for (int k = 0; k < d->trial[g->trial[i]].n_checks; k++, at++)
            seen[at] = (struct seen){&d->trial[g->trial[i]].check[k], &d->trial[g->trial[i]], at};
    qsort(seen, (size_t)n, sizeof *seen, by_key);
    lines = find_lines(seen, n, line);
    snprintf(note, sizeof note, "%d verdicts", n);
    html_heading(to, g->op, note);
    html_table(to,
               "<Check|<Kernel|<Tensor|<Verdict|<Error / bound|Worst|Error|Bound|<Distance|Sees|"
               "<Where|Trial|Verdicts");
    for (; shown < lines && page_take(to, left); shown++)
        line_write(to, &line[shown]);
    html_table_end(to);
    page_more(to, lines - shown, "rows");
    for (int i = 0; each && i < g->n; i++)
        trial(to, g, &d->trial[g->trial[i]]);
    free(seen);
    free(line);
    return 0;
}

/* The failed ones, each with the words that run its trial again. */
static void failures(FILE *to, const struct page_dump *d)
{
    int n = 0;

    for (int i = 0; i < d->n; i++)
        for (int k = 0; k < d->trial[i].n_checks; k++) {
            const struct page_trial *t = &d->trial[i];
            if (kind_of(&t->check[k]) != STRIP_BAD || n++ >= MAX_FAILED)
                continue;
            if (n == 1) {
                fputs("<h3>Failed</h3>\n", to);
                html_table(
                    to, "Trial|<Check|<Kernel|<Tensor|Error / bound|Error|Bound|<Distance|<Where|"
                        "<Verdict|<Words of the trial");
            }
            fputs("<tr>", to);
            html_count(to, t->number);
            names(to, &t->check[k]);
            number(to, margin_of(&t->check[k]));
            number(to, t->check[k].error);
            number(to, t->check[k].bound);
            html_cell(to, t->check[k].distance);
            html_cell(to, t->check[k].worst);
            html_verdict(to, t->check[k].verdict);
            fputs("<td><code>", to);
            html_lines(to, t->line); /* all of it */
            fputs("</code></td></tr>\n", to);
        }
    if (n)
        html_table_end(to);
    page_more(to, n > MAX_FAILED ? n - MAX_FAILED : 0, "failed verdicts");
}

static int write(FILE *to, const struct page_dump *d)
{
    int64_t n = 0;
    int left = MAX_LINES_SHOWN, e = 0;

    for (int i = 0; i < d->n; i++)
        n += d->trial[i].n_checks;
    failures(to, d);
    strip_axis(to);
    for (int i = 0; !e && i < d->n_groups; i++)
        e = group(to, d, &d->group[i], n <= MAX_SINGLE, &left);
    return e;
}

const struct page_section page_verdicts = {"verdicts", "Verdicts", has, write};
