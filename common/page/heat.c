/* A heat map of all variants on all tasks (ablation.h): a table whose cells have a colour by how far the result is from
 * chance, 0, to the best there is, 1: (a - chance)/(1 - chance) of an accuracy a, 1 - b/b of chance of bits b. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "common/page/ablation.h"
#include "common/page/html.h"
#include "common/page/page.h"
#include "common/page/plot.h"

enum { STEPS = 10, MAX_TASKS = 24 };

static double scaled(const struct ablation_task *t, double value)
{
    const double part = t->in_bits ? 1 - value / t->chance : (value - t->chance) / (1 - t->chance);
    return isnan(part) ? 0 : fmin(fmax(part, 0), 1);
}

/* The cell of a look on a task; NULL: there is none, or it has no results. */
static const struct ablated_cell *cell_of(const struct ablation_task *t, int look)
{
    for (int i = t->from; i < t->to; i++)
        if (t->d->look[i] == look && t->a->cell[i].n)
            return &t->a->cell[i];
    return NULL;
}

static void value(FILE *to, const struct ablation_task *t, int look, int longest)
{
    const struct ablated_cell *c = cell_of(t, look);
    const struct test_of *test = c ? ablated_test_at(c, longest ? t->longest : t->length) : NULL;

    if (!test) {
        fputs("<td class=\"n\">–</td>", to);
        return;
    }
    const int step = (int)(scaled(t, test->value) * (STEPS - 1) + 0.5);
    fprintf(to, "<td class=\"n h%d\">%.3f</td>", step, test->value);
}

static const char *name_of(const struct page_dump *d, int look)
{
    for (int i = 0; i < d->ablation->ablation.n_cells; i++)
        if (d->look[i] == look)
            return d->ablation->ablation.cell[i].variant;
    return "";
}

static void map(FILE *to, const struct page_dump *d, const struct ablation_task *t, int n,
                int longest, int *left)
{
    int64_t more = 0;

    fputs("<figure class=\"heat\"><div class=\"wide\" tabindex=\"0\"><table><thead><tr><th "
          "scope=\"col\">variant</th>",
          to);
    for (int k = 0; k < n; k++) {
        fputs("<th scope=\"col\" class=\"n\">", to);
        html_text(to, t[k].name);
        fprintf(to, " at %lld</th>", (long long)(longest ? t[k].longest : t[k].length));
    }
    fputs("</tr></thead>\n<tbody>\n", to);
    for (int look = 0; look < d->n_looks; look++) {
        if (!page_take(to, left)) {
            more++;
            continue;
        }
        fputs("<tr><td>", to);
        plot_key(to, look);
        html_text(to, name_of(d, look));
        fputs("</td>", to);
        for (int k = 0; k < n; k++)
            value(to, &t[k], look, longest);
        fputs("</tr>\n", to);
    }
    fputs("</tbody></table></div>", to);
    page_more(to, more, "variants");
    fprintf(to,
            "<figcaption>Variants on tasks at the %s length: the interquartile mean, of "
            "accuracy (bits, where a task is judged by them); the colour goes from chance to "
            "the best there is</figcaption></figure>\n",
            longest ? "longest" : "training");
}

void ablation_heat(FILE *to, const struct page_dump *d, int *left)
{
    const struct ablation *a = &d->ablation->ablation;
    struct ablation_task task[MAX_TASKS] = {{.d = d}};
    int n = 0, longer = 0;

    for (int i = 0; i < a->n_cells && n < MAX_TASKS; i = task[n++].to) {
        task[n] = ablation_task_of(d, i);
        longer |= task[n].longest > task[n].length;
    }
    fputs("<div class=\"figures\">\n", to);
    map(to, d, task, n, 0, left);
    if (longer)
        map(to, d, task, n, 1, left);
    fputs("</div>\n", to);
    page_more(to, a->n_tasks - n, "tasks");
}
