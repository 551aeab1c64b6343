/* Prints what runs of training say of each other (ablation_text.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/grow.h"
#include "common/report/ablation_text.h"
#include "common/report/table.h"

/* ---- numbers ---- */

/* "4 576" */
static void count_cell(struct row *to, double x)
{
    char digits[32], text[48] = "";

    if (!isfinite(x)) {
        row_add(to, "-");
        return;
    }
    snprintf(digits, sizeof digits, "%.0f", x);
    for (int left = (int)strlen(digits), i = 0; left; left--, i++)
        append(text, sizeof text, "%s%c", i && left % 3 == 0 ? " " : "", digits[i]);
    row_add(to, "%s", text);
}

static void value_cell(struct row *to, const struct test_of *t)
{
    if (t && isnan(t->interval.bca.low))
        row_add(to, "%.3f", t->value);
    else if (t)
        row_add(to, "%.3f [%.3f %.3f]", t->value, t->interval.bca.low, t->interval.bca.high);
    else
        row_add(to, "-");
}

static void share_cell(struct row *to, int k, int n)
{
    if (k < 0)
        row_add(to, "-");
    else
        row_add(to, "%d/%d", k, n);
}

/* ---- a task ---- */

/* A column. */
static int has_baseline(const struct stored_ablation *s)
{
    return s->baseline && *s->baseline;
}

static int any_known(const struct ablation *a, const struct ablated_task *f,
                     double (*of)(const struct ablated_cell *c))
{
    int known = 0;
    for (int i = f->from; i < f->to; i++)
        known |= isfinite(of(&a->cell[i]));
    return known;
}

static double parameters_of(const struct ablated_cell *c)
{
    return c->parameters;
}

static double state_of(const struct ablated_cell *c)
{
    return c->state_bytes;
}

/* Does the rate differ, or was one chosen? */
static int rates_matter(const struct ablation *a, const struct ablated_task *f)
{
    int matter = 0;
    for (int i = f->from; i < f->to; i++)
        matter |= a->cell[i].n_rates > 1;
    return matter;
}

static void columns(const struct stored_ablation *s, const struct ablated_task *f, struct table *t)
{
    const struct ablation *a = &s->ablation;
    char at[64];
    int widest = 7;

    for (int i = f->from; i < f->to; i++)
        widest =
            (int)strlen(a->cell[i].variant) > widest ? (int)strlen(a->cell[i].variant) : widest;
    table_add(t, "variant", widest, WORDS, 0);
    if (any_known(a, f, parameters_of))
        table_add(t, "params", 7, NUMBER, 2);
    if (any_known(a, f, state_of))
        table_add(t, "state", 7, NUMBER, 3);
    if (rates_matter(a, f))
        table_add(t, "lr", 8, NUMBER, 4);
    snprintf(at, sizeof at, "at %lld", (long long)f->length);
    table_add(t, at, 19, NUMBER, 0);
    snprintf(at, sizeof at, "at %lld", (long long)f->longest);
    if (f->longest > f->length)
        table_add(t, at, 19, NUMBER, 0);
    table_add(t, "solved", 7, NUMBER, 5);
    if (f->longest > f->length)
        table_add(t, "holds", 7, NUMBER, 6);
    table_add(t, "updates", 7, NUMBER, 1);
    if (has_baseline(s)) {
        snprintf(at, sizeof at, "against %.40s", s->baseline);
        table_add(t, at, 28, WORDS, 0);
    }
}

static void verdict_cell(struct row *to, const struct ablation *a, int cell)
{
    char text[COMPARISON_TEXT] = "-";

    for (int i = 0; i < a->n_pairs; i++)
        if (a->pair[i].a == cell && a->pair[i].word != NOT_CLAIMED)
            comparison_text(&a->pair[i], text);
    row_add(to, "%s", text);
}

static void cells(const struct stored_ablation *s, const struct ablated_task *f, int i,
                  struct row *to)
{
    const struct ablation *a = &s->ablation;
    const struct ablated_cell *c = &a->cell[i];

    row_add(to, "%s", c->variant);
    if (any_known(a, f, parameters_of))
        count_cell(to, c->parameters);
    if (any_known(a, f, state_of))
        count_cell(to, c->state_bytes);
    if (rates_matter(a, f))
        row_add(to, c->best < 0 ? "-" : "%.3g%s", c->best < 0 ? 0 : c->rate[c->best].rate,
                c->at_end ? "!" : "");
    value_cell(to, ablated_test_at(c, f->length));
    if (f->longest > f->length)
        value_cell(to, ablated_test_at(c, f->longest));
    share_cell(to, c->n ? c->solved : -1, c->n);
    if (f->longest > f->length)
        share_cell(to, c->n ? c->holds : -1, c->n);
    if (isfinite(c->updates) && c->n)
        row_add(to, "%.0f", c->updates);
    else
        row_add(to, "-");
    if (has_baseline(s))
        verdict_cell(to, a, i);
}

/* Seeds of the results: "10 seeds", or how many at least and at most. */
static void seeds_text(const struct ablation *a, const struct ablated_task *f, char text[64])
{
    int least = a->cell[f->from].n, most = least;

    for (int i = f->from; i < f->to; i++) {
        least = a->cell[i].n < least ? a->cell[i].n : least;
        most = a->cell[i].n > most ? a->cell[i].n : most;
    }
    if (least == most)
        snprintf(text, 64, "%d seed%s", most, most == 1 ? "" : "s");
    else
        snprintf(text, 64, "%d to %d seeds", least, most);
}

static void head(const struct screen *s, const struct ablation *a, const struct ablated_task *f)
{
    const struct ablated_cell *c = &a->cell[f->from];
    char seeds[64];
    int searched = 0;

    for (int i = f->from; i < f->to; i++)
        searched |= a->cell[i].searched;
    seeds_text(a, f, seeds);
    if (c->in_bits)
        say(s, 0, "%s  length %lld, bits a token, IQM [95 %%] of %s%s", c->task,
            (long long)f->length, seeds, searched ? ", the same that chose the rate" : "");
    else
        say(s, 0, "%s  length %lld, chance %.3f, IQM [95 %%] of %s%s", c->task,
            (long long)f->length, c->chance, seeds,
            searched ? ", the same that chose the rate" : "");
}

/* What is to be known of some of the rows. */
static void notes(const struct screen *s, const struct ablation *a, const struct ablated_task *f)
{
    for (int i = f->from; i < f->to; i++) {
        const struct ablated_cell *c = &a->cell[i];
        if (c->at_end)
            say(s, 2,
                "! %s: the best rate is the %s of those that were tried; one beyond it may be "
                "better",
                c->variant, c->at_end < 0 ? "smallest" : "largest");
        if (c->diverged)
            say(s, 2, "%s: %d of %d runs diverged, and count as chance", c->variant, c->diverged,
                c->n);
    }
    if (ablation_drawn(a, f->from, f->to))
        say(s, 2, "p of %d seeds is of %d drawn ways to give signs, and not exact",
            ablation_drawn(a, f->from, f->to), SIGN_DRAWS);
}

static void task(const struct screen *s, const struct stored_ablation *a,
                 const struct ablated_task *f)
{
    struct table *t = calloc(1, sizeof *t);
    struct row *row = malloc(sizeof *row);

    fputc('\n', s->to);
    head(s, &a->ablation, f);
    if (t && row) {
        columns(a, f, t);
        table_fit(t, s->width);
        table_head(t, s);
        for (int i = f->from; i < f->to; i++) {
            row->n = 0;
            cells(a, f, i, row);
            table_row(t, s, row, 1);
        }
    }
    notes(s, &a->ablation, f);
    free(t);
    free(row);
}

/* ---- declared pairs ---- */

static void pairs(const struct screen *s, const struct ablation *a)
{
    fputc('\n', s->to);
    for (int i = 0; i < a->n_pairs; i++) {
        const struct compared_pair *p = &a->pair[i];
        char text[COMPARISON_TEXT];
        if (p->word == NOT_CLAIMED)
            continue;
        comparison_text(p, text);
        if (!p->n)
            say(s, 0, "%s  %s against %s: no seed is common to both", a->cell[p->a].task,
                a->cell[p->a].variant, a->cell[p->b].variant);
        else if (isnan(p->interval.bca.low))
            say(s, 0, "%s  %s against %s at %lld: %+.3f of 1 seed: %s", a->cell[p->a].task,
                a->cell[p->a].variant, a->cell[p->b].variant, (long long)p->length, p->difference,
                text);
        else
            say(s, 0, "%s  %s against %s at %lld: %+.3f [%.3f %.3f] of %d seeds: %s",
                a->cell[p->a].task, a->cell[p->a].variant, a->cell[p->b].variant,
                (long long)p->length, p->difference, p->interval.bca.low, p->interval.bca.high,
                p->n, text);
    }
}

void ablation_text(const struct screen *s, const struct stored_ablation *a)
{
    for (int i = 0; i < a->ablation.n_cells;) {
        const struct ablated_task f = ablated_task_of(&a->ablation, i);
        task(s, a, &f);
        i = f.to;
    }
    if (a->pair && a->ablation.n_pairs)
        pairs(s, &a->ablation);
}
