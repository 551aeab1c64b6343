/* The plan on a page: a table per operation, a row per trial (page.h). */
#include "config.h"

#include <string.h>

#include "common/page/html.h"
#include "common/page/page.h"

enum { MAX_SHOWN = 2500, MAX_COLUMNS = 12, MAX_OPEN = 30 };

static int has(const struct page_dump *d)
{
    return d->n > 0;
}

/* "steps=128 batch=4": what all trials have. */
static void constants(FILE *to, const struct page_dump *d, const struct page_group *g)
{
    if (!g->n_constant)
        return;
    fputs("<p class=\"settings\">", to);
    for (int k = 0; k < g->n_constant; k++) {
        fputs(k ? " <code>" : "<code>", to);
        html_text(to, g->constant[k]);
        fputc('=', to);
        html_text(to, page_group_setting(d, g, g->constant[k]));
        fputs("</code>", to);
    }
    fputs("</p>\n", to);
}

static const char *state(const struct page_trial *t)
{
    return !t->complete  ? "not finished"
           : t->failed   ? "fail"
           : t->unjudged ? "cannot be judged"
           : t->missed   ? "missed"
           : t->checks   ? "pass"
                         : "nothing checked";
}

static void row(FILE *to, const struct page_group *g, const struct page_trial *t, int sections)
{
    const int columns = g->n_varying < MAX_COLUMNS ? g->n_varying : MAX_COLUMNS;

    fputs("<tr>", to);
    html_count(to, t->number);
    if (sections)
        html_cell(to, t->section);
    for (int k = 0; k < columns; k++)
        html_cell(to, page_setting(t, g->varying[k]));
    html_count(to, t->checks);
    html_count(to, t->failed);
    html_count(to, t->skipped);
    html_verdict(to, state(t));
    fputs("</tr>\n", to);
}

/* The table's head has the keys, which come from the file. */
static void head(FILE *to, const struct page_group *g, int sections)
{
    fputs("<div class=\"wide\" tabindex=\"0\"><table><thead><tr><th scope=\"col\" "
          "class=\"n\">Trial</th>",
          to);
    if (sections)
        fputs("<th scope=\"col\">Section</th>", to);
    for (int k = 0; k < g->n_varying && k < MAX_COLUMNS; k++) {
        fputs("<th scope=\"col\">", to);
        html_text(to, g->varying[k]);
        fputs("</th>", to);
    }
    fputs("<th scope=\"col\" class=\"n\">Checks</th><th scope=\"col\" class=\"n\">Failed</th>"
          "<th scope=\"col\" class=\"n\">Skipped</th><th scope=\"col\">Verdict</th></tr></thead>\n"
          "<tbody>\n",
          to);
}

static void group(FILE *to, const struct page_dump *d, const struct page_group *g, int *left)
{
    int sections = 0, shown = 0;
    char note[NUMBER_TEXT];

    for (int i = 0; i < g->n; i++)
        sections |= *d->trial[g->trial[i]].section != 0;
    snprintf(note, sizeof note, "%d trial%s", g->n, g->n == 1 ? "" : "s");
    html_heading(to, g->op, note);
    constants(to, d, g);
    fprintf(to, "<details%s><summary>Trials</summary>\n", g->n <= MAX_OPEN ? " open" : "");
    head(to, g, sections);
    for (; shown < g->n && page_take(to, left); shown++)
        row(to, g, &d->trial[g->trial[shown]], sections);
    html_table_end(to);
    page_more(to, g->n - shown, "trials");
    fputs("</details>\n", to);
}

static int write(FILE *to, const struct page_dump *d)
{
    int left = MAX_SHOWN;

    for (int i = 0; i < d->n_groups; i++)
        group(to, d, &d->group[i], &left);
    return 0;
}

const struct page_section page_plan = {"plan", "Plan", has, write};
