/* Groups the trials of an operation by settings, with the statistics of each backend and kernel
 * (summary.h). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/page/summary.h"

enum { MAX_OF_TRIAL = 256 }; /* backends and kernels */

/* ---- keys ---- */

const char *summary_setting(const struct page_trial *t, const char *key)
{
    return strcmp(key, "section") == 0 ? t->section : page_setting(t, key);
}

static int group_has_key(const struct page_group *g, const char *key)
{
    return page_has_key(g->varying, g->n_varying, key) ||
           page_has_key(g->constant, g->n_constant, key);
}

/* Has a trial of the operation a section? */
static int has_section(const struct page_dump *d, const struct page_group *g)
{
    for (int i = 0; i < g->n; i++)
        if (*d->trial[g->trial[i]].section)
            return 1;
    return 0;
}

static int knows(const struct page_dump *d, const struct page_group *g, const char *key)
{
    return strcmp(key, "section") == 0 ? has_section(d, g) : group_has_key(g, key);
}

/* "no trial has ...; the settings are state, nonlin, ..." */
static int unknown_key(const struct page_dump *d, const char *key)
{
    const char *list[4 * MAX_WORDS];
    char text[900] = "";
    int n = 0;

    for (int i = 0; i < d->n_groups; i++) {
        const struct page_group *g = &d->group[i];
        const char *const *const from[] = {g->varying, g->constant};
        const int of[] = {g->n_varying, g->n_constant};
        for (int k = 0; k < 2; k++)
            for (int j = 0; j < of[k]; j++)
                if (n < (int)COUNT(list) && !page_has_key(list, n, from[k][j]))
                    list[n++] = from[k][j];
    }
    for (int i = 0; i < n; i++)
        append(text, sizeof text, "%s%s", i ? ", " : "", list[i]);
    for (int i = 0; i < d->n_groups; i++)
        if (has_section(d, &d->group[i])) {
            append(text, sizeof text, "%ssection", n ? ", " : "");
            break;
        }
    return err_set("--by %s: no trial has this setting; the settings are %s", key, text);
}

int summary_keys(const struct page_dump *d, char *text, struct summary_by *by)
{
    by->n = 0;
    for (char *at = text; at;) {
        char *key = at, *end = strchr(at, ',');
        int there = 0;
        at = end ? end + 1 : NULL;
        if (end)
            *end = 0;
        if (!*key)
            return err_set("--by has an empty name; it takes settings with commas between them");
        for (int i = 0; i < d->n_groups; i++)
            there |= knows(d, &d->group[i], key);
        if (!there)
            return unknown_key(d, key);
        if (page_has_key(by->key, by->n, key))
            continue;
        if (by->n == MAX_WORDS)
            return err_set("--by has more than %d settings", MAX_WORDS);
        by->key[by->n++] = key;
    }
    return 0;
}

static void choose_keys(const struct page_dump *d, const struct page_group *g,
                        const struct summary_by *by, struct summary *s)
{
    for (int i = 0; by && i < by->n; i++)
        if (knows(d, g, by->key[i]))
            s->key[s->n_keys++] = by->key[i];
    for (int i = 0; i < g->n_varying; i++) {
        const char *key = g->varying[i];
        if (!by && strcmp(key, "seed") != 0)
            s->key[s->n_keys++] = key;
        else if (!page_has_key(s->key, s->n_keys, key))
            s->over[s->n_over++] = key;
    }
}

/* ---- groups of trials ---- */

/* A finished trial, to be sorted by its values of the keys. */
struct placed {
    const struct summary *s;
    const struct page_trial *trial;
    int group;
};

static int compare_settings(const struct placed *a, const struct placed *b)
{
    int c = 0;

    for (int k = 0; !c && k < a->s->n_keys; k++)
        c = strcmp(summary_setting(a->trial, a->s->key[k]),
                   summary_setting(b->trial, a->s->key[k]));
    return c;
}

static int by_settings(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    const int c = compare_settings(x, y);
    return c ? c : x->trial->number - y->trial->number;
}

/* The finished trials, sorted into groups; NULL after err_set(). */
static struct placed *place_trials(const struct page_dump *d, const struct page_group *g,
                                   struct summary *s)
{
    struct placed *p = calloc((size_t)g->n + 1, sizeof *p);

    if (!p || !(s->group = calloc((size_t)g->n + 1, sizeof *s->group))) {
        free(p);
        return err_null("no memory for %d trials", g->n);
    }
    for (int i = 0; i < g->n; i++) {
        const struct page_trial *t = &d->trial[g->trial[i]];
        if (t->complete)
            p[s->trials++] = (struct placed){.s = s, .trial = t};
        else
            s->unfinished++;
    }
    qsort(p, (size_t)s->trials, sizeof *p, by_settings);
    for (int i = 0; i < s->trials; i++) {
        if (!i || compare_settings(&p[i], &p[i - 1]) != 0)
            s->group[s->n++].first = p[i].trial;
        p[i].group = s->n - 1;
        s->group[s->n - 1].trials++;
    }
    return p;
}

/* ---- what a trial has of each backend and kernel ---- */

/* Its cell, behind the first `from`; NULL after err_set(). */
static struct summary_cell *cell_of(struct summary *s, int from, const struct placed *p,
                                    const char *backend, const char *kernel)
{
    for (int i = s->n_cells - 1; i >= from; i--)
        if (strcmp(s->cell[i].backend, backend) == 0 && strcmp(s->cell[i].kernel, kernel) == 0)
            return &s->cell[i];
    if (s->n_cells - from == MAX_OF_TRIAL)
        return err_null("trial %d: more than %d backends and kernels", p->trial->number,
                        MAX_OF_TRIAL);
    struct summary_cell *list = grow(s->cell, s->n_cells, sizeof *list);
    if (!list)
        return err_null("no memory for %d backends and kernels", s->n_cells + 1);
    s->cell = list;
    struct summary_cell *c = &list[s->n_cells];
    *c = (struct summary_cell){.trial = p->trial,
                               .backend = backend,
                               .kernel = kernel,
                               .tensor = "",
                               .distance = "",
                               .group = p->group,
                               .place = s->n_cells++};
    for (int v = 0; v < N_SUMMARY_VALUES; v++)
        c->value[v] = NAN;
    return c;
}

static int is_of_time(const struct check_row *r)
{
    static const char *const checks[] = {"goal", "default", "baseline"};
    return page_has_key(checks, COUNT(checks), r->check);
}

/* Infinite for NaN, and for bits that differ; NaN, not known, for bits that are the same. */
static double ratio_of(const struct check_row *r)
{
    if (r->bound == 0)
        return r->error == 0 ? NAN : INFINITY;
    const double x = r->error / r->bound;
    return isnan(x) || x < 0 ? INFINITY : x;
}

static int is_larger(double x, double than)
{
    return !isnan(x) && (isnan(than) || x > than);
}

static void add_check(struct summary_cell *c, const struct check_row *r)
{
    const int of_time = is_of_time(r), bad = strcmp(r->verdict, "fail") == 0;
    const int unjudged = strcmp(r->verdict, "cannot be judged") == 0;
    const double ratio = of_time || unjudged ? NAN : ratio_of(r);
    const double error = isnan(r->error) ? INFINITY : r->error;

    c->checks++;
    c->failed += bad;
    c->wrong += bad && !of_time;
    c->unjudged += unjudged;
    if (is_larger(ratio, c->value[SUMMARY_RATIO])) {
        c->value[SUMMARY_RATIO] = ratio;
        c->tensor = r->tensor;
        c->distance = r->distance;
    }
    if (!unjudged && (strcmp(r->check, "parity") == 0 || strcmp(r->check, "differences") == 0) &&
        is_larger(error, c->value[SUMMARY_ERROR]))
        c->value[SUMMARY_ERROR] = error;
}

/* The place of a time's pass; -1: it is none, or not known. */
static int pass_of(const struct time_row *r)
{
    if (!(r->median > 0) || !isfinite(r->median))
        return -1;
    return strcmp(r->pass, "forward") == 0    ? SUMMARY_FORWARD
           : strcmp(r->pass, "backward") == 0 ? SUMMARY_BACKWARD
                                              : -1;
}

/* The yardstick differs from the oracle, which is no verdict. */
static void add_yardstick(struct summary_cell *c)
{
    char name[400];
    const double found = c->trial->yardstick_error, error = isnan(found) ? INFINITY : found;

    snprintf(name, sizeof name, "%s %s", c->backend, c->kernel);
    if (strcmp(name, c->trial->yardstick) == 0 && is_larger(error, c->value[SUMMARY_ERROR]))
        c->value[SUMMARY_ERROR] = error;
}

static int find_cells(struct summary *s, const struct placed *p)
{
    const int from = s->n_cells;
    const struct page_trial *t = p->trial;
    struct summary_cell *c;

    for (int i = 0; i < t->n_checks; i++) {
        if (!(c = cell_of(s, from, p, t->check[i].backend, t->check[i].kernel)))
            return -1;
        add_check(c, &t->check[i]);
    }
    for (int i = 0; i < t->n_times; i++) {
        const int pass = pass_of(&t->time[i]);
        if (pass < 0)
            continue;
        if (!(c = cell_of(s, from, p, t->time[i].backend, t->time[i].kernel)))
            return -1;
        c->value[pass] = t->time[i].median;
        s->by_time = 1;
    }
    for (int i = from; i < s->n_cells; i++)
        add_yardstick(&s->cell[i]);
    s->empty += s->n_cells == from;
    return 0;
}

/* A total has the passes that any trial was timed in. */
static void add_totals(struct summary *s)
{
    int timed[2] = {0, 0};

    for (int i = 0; i < s->n_cells; i++)
        for (int v = SUMMARY_FORWARD; v <= SUMMARY_BACKWARD; v++)
            timed[v] |= !isnan(s->cell[i].value[v]);
    for (int i = 0; i < s->n_cells; i++) {
        double *value = s->cell[i].value;
        if (s->by_time)
            value[SUMMARY_TOTAL] = (timed[SUMMARY_FORWARD] ? value[SUMMARY_FORWARD] : 0) +
                                   (timed[SUMMARY_BACKWARD] ? value[SUMMARY_BACKWARD] : 0);
    }
}

/* ---- rows ---- */

static struct summary_stat stat_of(const struct summary_cell *c, int n, int value)
{
    struct summary_stat t = {0, NAN, NAN, NAN};
    double sum = 0, squares = 0;

    for (int i = 0; i < n; i++) {
        const double x = c[i].value[value];
        if (isnan(x))
            continue;
        t.n++;
        sum += x;
        t.max = is_larger(x, t.max) ? x : t.max;
    }
    if (!t.n)
        return t;
    t.mean = sum / t.n;
    for (int i = 0; i < n; i++)
        if (!isnan(c[i].value[value]))
            squares += (c[i].value[value] - t.mean) * (c[i].value[value] - t.mean);
    if (t.n > 1)
        t.deviation = sqrt(squares / (t.n - 1));
    return t;
}

static int compare_names(const struct summary_cell *a, const struct summary_cell *b)
{
    const int c = strcmp(a->backend, b->backend);
    return a->group != b->group ? a->group - b->group : c ? c : strcmp(a->kernel, b->kernel);
}

static int by_name(const void *a, const void *b)
{
    const struct summary_cell *x = a, *y = b;
    const int c = compare_names(x, y);
    return c ? c : x->place - y->place;
}

static struct summary_row row_of(const struct summary_cell *c, int n)
{
    struct summary_row r = {
        .cell = c, .n = n, .backend = c->backend, .kernel = c->kernel, .worst = c};

    for (int v = 0; v < N_SUMMARY_VALUES; v++)
        r.stat[v] = stat_of(c, n, v);
    for (int i = 0; i < n; i++) {
        r.checks += c[i].checks;
        r.failed += c[i].failed;
        r.wrong += c[i].wrong;
        r.unjudged += c[i].unjudged;
        if (is_larger(c[i].value[SUMMARY_RATIO], r.worst->value[SUMMARY_RATIO]))
            r.worst = &c[i];
    }
    return r;
}

/* Within a group: the right ones, the fastest first; then those without a time; then wrong ones. */
static int by_speed(const void *a, const void *b)
{
    const struct summary_row *x = a, *y = b;
    const double s = x->stat[SUMMARY_TOTAL].mean, t = y->stat[SUMMARY_TOTAL].mean;

    if (x->cell->group != y->cell->group)
        return x->cell->group - y->cell->group;
    if (!x->wrong != !y->wrong)
        return x->wrong ? 1 : -1;
    if (isnan(s) != isnan(t))
        return isnan(s) ? 1 : -1;
    return s < t ? -1 : s > t ? 1 : x->cell->place - y->cell->place;
}

static int find_rows(struct summary *s)
{
    if (!(s->row = calloc((size_t)s->n_cells + 1, sizeof *s->row)))
        return err_set("no memory for %d backends and kernels", s->n_cells);
    if (s->n_cells)
        qsort(s->cell, (size_t)s->n_cells, sizeof *s->cell, by_name);
    for (int from = 0, i = 1; i <= s->n_cells; i++)
        if (i == s->n_cells || compare_names(&s->cell[i], &s->cell[from]) != 0) {
            s->row[s->n_rows++] = row_of(&s->cell[from], i - from);
            from = i;
        }
    qsort(s->row, (size_t)s->n_rows, sizeof *s->row, by_speed);
    return 0;
}

/* ---- the order of groups ---- */

/* The shortest time of a right row, or the largest ratio; infinite where there is none. */
static double key_of(const struct summary *s, const struct summary_group *g)
{
    double key = NAN;

    for (int i = 0; i < g->n; i++) {
        const struct summary_row *r = &g->row[i];
        const double x = r->stat[s->by_time ? SUMMARY_TOTAL : SUMMARY_RATIO].mean;
        if (s->by_time ? !r->wrong && !isnan(x) && !(x >= key) : is_larger(x, key))
            key = x;
    }
    return isnan(key) ? INFINITY : key;
}

static int by_key(const void *a, const void *b)
{
    const struct summary_group *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key ? 1 : x->first->number - y->first->number;
}

static void order_groups(struct summary *s)
{
    for (int i = 0; i < s->n_rows; i++) {
        struct summary_group *g = &s->group[s->row[i].cell->group];
        if (!g->n++)
            g->row = &s->row[i];
    }
    for (int i = 0; i < s->n; i++)
        s->group[i].key = key_of(s, &s->group[i]);
    qsort(s->group, (size_t)s->n, sizeof *s->group, by_key);
}

int summary_of(const struct page_dump *d, const struct page_group *g, const struct summary_by *by,
               struct summary *s)
{
    *s = (struct summary){.op = g->op};
    choose_keys(d, g, by, s);
    struct placed *p = place_trials(d, g, s);
    int e = !p;

    for (int i = 0; !e && i < s->trials; i++)
        e = find_cells(s, &p[i]);
    free(p);
    if (e)
        return -1;
    add_totals(s);
    if (find_rows(s))
        return -1;
    order_groups(s);
    return 0;
}

void summary_free(struct summary *s)
{
    free(s->cell);
    free(s->row);
    free(s->group);
    *s = (struct summary){0};
}

const char *summary_name(const struct summary_row *r, char *text, size_t size)
{
    snprintf(text, size, "%s%s%s", r->backend, *r->kernel ? " " : "", r->kernel);
    return text;
}

static void seconds_text(const struct summary_stat *t, char text[SUMMARY_TEXT])
{
    static const struct {
        double size;
        const char *name;
    } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
    size_t u = 0;

    while (u + 1 < COUNT(units) && t->mean < 0.9995 * units[u].size)
        u++;
    const double x = t->mean / units[u].size;
    const int digits = x < 9.995 ? 2 : x < 99.95 ? 1 : 0;
    if (isnan(t->deviation))
        snprintf(text, SUMMARY_TEXT, "%.*f %s", digits, x, units[u].name);
    else
        snprintf(text, SUMMARY_TEXT,
                 t->deviation / units[u].size < 99.5 ? "%.*f ± %.2g %s" : "%.*f ± %.0f %s", digits,
                 x, t->deviation / units[u].size, units[u].name);
}

const char *summary_text(const struct summary_row *r, enum summary_value v, char text[SUMMARY_TEXT])
{
    const struct summary_stat *t = &r->stat[v];

    *text = 0;
    if (t->n && v <= SUMMARY_TOTAL)
        seconds_text(t, text);
    else if (t->n && isnan(t->deviation))
        snprintf(text, SUMMARY_TEXT, "%.3g", t->mean);
    else if (t->n)
        snprintf(text, SUMMARY_TEXT, "%.3g ± %.2g", t->mean, t->deviation);
    return text;
}
