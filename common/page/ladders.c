/* The ladders on a page: the kernels of an operation from the simplest to the fastest, with the
 * speed of each relative to the first (page.h).  The table of kernels has the best first, so a
 * ladder is the rows of `time` from their end. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "common/page/html.h"
#include "common/page/page.h"
#include "common/page/svg.h"

enum { MAX_RUNGS = 64, MAX_SHOWN = 500, MAX_OPEN = 12 };

/* Of one trial and backend: both passes of each kernel; backward NULL: it has none. */
struct ladder {
    const struct time_row *forward[MAX_RUNGS], *backward[MAX_RUNGS];
    int n;
};

static int is_pass(const struct time_row *r, const char *pass)
{
    return strcmp(r->pass, pass) == 0 && r->median > 0 && isfinite(r->median);
}

/* The ladder of the backend of row `from`, unless an earlier row is the backend's. */
static void find(const struct page_trial *t, int from, struct ladder *l)
{
    const char *backend = t->time[from].backend;

    l->n = 0;
    for (int i = 0; i < from; i++)
        if (strcmp(t->time[i].backend, backend) == 0)
            return;
    for (int i = t->n_times - 1; i >= from && l->n < MAX_RUNGS; i--) {
        const struct time_row *r = &t->time[i];
        if (strcmp(r->backend, backend) != 0 || !is_pass(r, "forward"))
            continue;
        l->forward[l->n] = r;
        l->backward[l->n] = NULL;
        /* the passes of a kernel are in neighbouring rows */
        for (int k = i + 1; k < t->n_times && k <= i + 2; k++)
            if (strcmp(t->time[k].backend, backend) == 0 &&
                strcmp(t->time[k].kernel, r->kernel) == 0 && is_pass(&t->time[k], "backward"))
                l->backward[l->n] = &t->time[k];
        l->n++;
    }
}

/* How many ladders a trial has; those of more kernels than one count. */
static int count(const struct page_trial *t)
{
    struct ladder l;
    int n = 0;

    for (int i = 0; i < t->n_times && i < MAX_RUNGS; i++) {
        find(t, i, &l);
        n += l.n > 1;
    }
    return n;
}

static int has(const struct page_dump *d)
{
    for (int i = 0; i < d->n; i++)
        if (count(&d->trial[i]))
            return 1;
    return 0;
}

/* How much faster than the first; 0: not known. */
static double gain(const struct time_row *first, const struct time_row *r)
{
    return first && r ? first->median / r->median : 0;
}

static void cells(FILE *to, const struct time_row *first, const struct time_row *r, double full,
                  int second)
{
    const double x = gain(first, r);
    char text[NUMBER_TEXT], label[64];

    if (!(x > 0)) {
        fputs("<td></td><td class=\"n\">–</td><td class=\"n\">", to);
        fprintf(to, "%s</td>", r ? html_seconds(r->median, text) : "–");
        return;
    }
    snprintf(label, sizeof label, "%s times as fast as the first", html_number(x, text));
    fputs("<td>", to);
    bar_write(to, &(struct bar){full, x, 0, 0, 0, second}, label);
    fputs("</td>", to);
    snprintf(label, sizeof label, "%s ×", html_number(x, text));
    html_value(to, label);
    html_value(to, html_seconds(r->median, text));
}

static void ladder(FILE *to, const struct ladder *l, int *left)
{
    double full = 1;
    int backward = 0;

    for (int i = 0; i < l->n; i++) {
        full = fmax(full, gain(l->forward[0], l->forward[i]));
        full = fmax(full, gain(l->backward[0], l->backward[i]));
        backward |= l->backward[i] != NULL;
    }
    html_table(to, backward ? "<Backend|<Kernel|<Forward|Speed|Median|<Backward|Speed|Median"
                            : "<Backend|<Kernel|<Forward|Speed|Median");
    for (int i = 0; i < l->n && page_take(to, left); i++) {
        fputs("<tr>", to);
        html_cell(to, l->forward[i]->backend);
        html_cell(to, l->forward[i]->kernel);
        cells(to, l->forward[0], l->forward[i], full, 0);
        if (backward)
            cells(to, l->backward[0], l->backward[i], full, 1);
        fputs("</tr>\n", to);
    }
    html_table_end(to);
}

static void trial(FILE *to, const struct page_group *g, const struct page_trial *t, int open,
                  int *left)
{
    struct ladder l;

    page_trial_begin(to, g, t, open, NULL);
    for (int i = 0; i < t->n_times && i < MAX_RUNGS; i++) {
        find(t, i, &l);
        if (l.n > 1)
            ladder(to, &l, left);
    }
    fputs("</details>\n", to);
}

static int write(FILE *to, const struct page_dump *d)
{
    int left = MAX_SHOWN, n = 0, shown = 0;

    for (int i = 0; i < d->n; i++)
        n += count(&d->trial[i]) > 0;
    fputs(
        "<p class=\"note\">From the simplest kernel to the one that is preferred: the first one's "
        "median / the kernel's median. Bars of a ladder have one scale.</p>\n",
        to);
    for (int i = 0; i < d->n_groups && left > 0; i++) {
        const struct page_group *g = &d->group[i];
        int any = 0;
        for (int k = 0; k < g->n && left > 0; k++) {
            if (!count(&d->trial[g->trial[k]]))
                continue;
            if (!any++)
                html_heading(to, g->op, NULL);
            trial(to, g, &d->trial[g->trial[k]], n <= MAX_OPEN, &left);
            shown++;
        }
    }
    page_more(to, n - shown, "trials");
    return 0;
}

const struct page_section page_ladders = {"ladders", "Ladders", has, write};
