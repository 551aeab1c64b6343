/* run-ablation --summary (summary.h): tables for a person, and CSV. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/quote.h"
#include "common/page/summary.h"
#include "common/report/screen.h"
#include "common/report/table.h"
#include "experiments/learned.h"
#include "experiments/summary.h"

enum { GOOD = 0, BAD_INPUT = 2 };

/* ---- text ---- */

static void value_cell(struct row *to, const struct summary_row *r, int v)
{
    char text[SUMMARY_TEXT];
    row_add(to, "%s", r->stat[v].n ? summary_text(r, v, text) : "-");
}

static const struct {
    const char *head;
    int drop;
} value_columns[N_SUMMARY_VALUES] = {
    {"forward", 0}, {"backward", 0}, {"total", 1}, {"error / bound", 4}, {"worst error", 3}};

/* Does any row have the value? */
static int has_value(const struct summary *s, int v)
{
    for (int i = 0; i < s->n_rows; i++)
        if (s->row[i].stat[v].n)
            return 1;
    return 0;
}

static int has_unjudged(const struct summary *s)
{
    for (int i = 0; i < s->n_rows; i++)
        if (s->row[i].unjudged)
            return 1;
    return 0;
}

/* Is its kernel another one than that of the backend's first row? */
static int has_another_kernel(const struct summary *s, int i)
{
    int first = 0;

    while (strcmp(s->row[first].backend, s->row[i].backend) != 0)
        first++;
    return strcmp(s->row[first].kernel, s->row[i].kernel) != 0;
}

static int max(int a, int b)
{
    return a > b ? a : b;
}

static void columns(struct table *t, const struct summary *s)
{
    *t = (struct table){.n_settings = s->n_keys};
    table_add(t, "#", 4, NUMBER, 0);
    for (int k = 0; k < s->n_keys; k++) {
        int width = 1;
        for (int i = 0; i < s->n; i++)
            width = max(width, text_columns(summary_setting(s->group[i].first, s->key[k])));
        table_add(t, s->key[k], width, WORDS, 0);
    }
    int backend = 1, kernel = 1, several = 0, wide[N_SUMMARY_VALUES] = {0};
    for (int i = 0; i < s->n_rows; i++) {
        struct row row = {.n = 0};
        for (int v = 0; v < N_SUMMARY_VALUES; v++) {
            value_cell(&row, &s->row[i], v);
            wide[v] = max(wide[v], text_columns(row.cell[v]));
        }
        backend = max(backend, text_columns(s->row[i].backend));
        kernel = max(kernel, text_columns(s->row[i].kernel));
        several |= has_another_kernel(s, i);
    }
    table_add(t, "backend", backend, WORDS, 0);
    table_add(t, "kernel", kernel, WORDS, several ? 0 : 5);
    table_add(t, "trials", 6, NUMBER, 0);
    for (int v = 0; v < N_SUMMARY_VALUES; v++)
        if (has_value(s, v))
            table_add(t, value_columns[v].head, wide[v], NUMBER, value_columns[v].drop);
    table_add(t, "of", 8, WORDS, 2);
    table_add(t, "failed", 6, NUMBER, 0);
    if (has_unjudged(s))
        table_add(t, "cannot be judged", 16, NUMBER, 0);
}

static void group_rows(const struct summary *s, const struct table *t, const struct screen *to,
                       int i)
{
    const struct summary_group *g = &s->group[i];

    for (int k = 0; k < g->n; k++) {
        const struct summary_row *r = &g->row[k];
        struct row row = {.n = 0};
        row_add(&row, "%d", i + 1);
        for (int j = 0; j < s->n_keys; j++) {
            const char *value = summary_setting(g->first, s->key[j]);
            row_add(&row, "%s", *value ? value : "-");
        }
        row_add(&row, "%s", r->backend);
        row_add(&row, "%s", r->kernel);
        row_add(&row, "%d", r->n);
        for (int v = 0; v < N_SUMMARY_VALUES; v++)
            if (has_value(s, v))
                value_cell(&row, r, v);
        row_add(&row, "%s", *r->worst->tensor ? r->worst->tensor : "-");
        row_add(&row, "%" PRId64, r->failed);
        if (has_unjudged(s))
            row_add(&row, "%" PRId64, r->unjudged);
        table_row(t, to, &row, !k);
    }
}

static void list_keys(char *text, size_t size, const char *const *key, int n)
{
    for (int k = 0; k < n; k++)
        append(text, size, "%s%s", k ? ", " : "", key[k]);
}

/* What is averaged, and in what order the rows are. */
static void heading(const struct summary *s, const struct screen *to)
{
    char over[2048] = "", keys[2048] = "";
    static const char *const order[] = {
        "the largest error / bound of a backend",
        "the shortest forward + backward of a backend that is right"};

    list_keys(over, sizeof over, s->over, s->n_over);
    list_keys(keys, sizeof keys, s->key, s->n_keys);
    say(to, 0, "%s  %d trial%s in %d group%s%s%s", s->op, s->trials, s->trials == 1 ? "" : "s",
        s->n, s->n == 1 ? "" : "s", s->n_keys ? " by " : "", keys);
    if (s->n_over)
        say(to, 2, "mean ± standard deviation over %s", over);
    if (s->n > 1)
        say(to, 2, "best first, by %s", order[s->by_time]);
    if (s->empty)
        say(to, 2, "%d trial%s neither checks nor times", s->empty,
            s->empty == 1 ? " has" : "s have");
}

static void print_text(const struct page_dump *d, const struct summary *all)
{
    const struct screen to = screen_of(stdout, 0);

    for (int i = 0; i < d->n_groups; i++) {
        const struct summary *s = &all[i];
        struct table t;
        if (!s->trials)
            continue;
        if (i)
            putchar('\n');
        heading(s, &to);
        if (!s->n_rows)
            continue;
        columns(&t, s);
        table_fit(&t, to.width);
        table_head(&t, &to);
        for (int k = 0; k < s->n; k++)
            group_rows(s, &t, &to, k);
    }
}

/* ---- CSV ---- */

static const char *const csv_first = "op";
static const char *const csv_value[N_SUMMARY_VALUES] = {"forward_s", "backward_s", "total_s",
                                                        "ratio", "error"};
static const char *const csv_count[] = {"checks", "failed", "unjudged"};

static int field(const char *text, int first)
{
    if (!first)
        putchar(',');
    return quote_csv(text, stdout);
}

/* Empty where it is not known. */
static void number(double x)
{
    if (isnan(x))
        putchar(',');
    else
        printf(",%.17g", x);
}

/* Is it the name of a column of results? */
static int is_taken(const char *key)
{
    static const char *const others[] = {"backend", "kernel", "trials", "tensor"};

    for (size_t i = 0; i < COUNT(others); i++)
        if (strcmp(key, others[i]) == 0)
            return 1;
    for (size_t i = 0; i < COUNT(csv_count); i++)
        if (strcmp(key, csv_count[i]) == 0)
            return 1;
    return strcmp(key, csv_first) == 0;
}

/* The keys of all operations, each once. */
static int all_keys(const struct page_dump *d, const struct summary *all, const char **key)
{
    int n = 0;

    for (int i = 0; i < d->n_groups; i++)
        for (int k = 0; k < all[i].n_keys; k++) {
            int j = 0;
            while (j < n && strcmp(key[j], all[i].key[k]) != 0)
                j++;
            if (j == n)
                key[n++] = all[i].key[k];
        }
    return n;
}

static int csv_head(const char *const *key, int n)
{
    int e = field(csv_first, 1);

    for (int k = 0; !e && k < n; k++) {
        char name[256];
        snprintf(name, sizeof name, "%s%s", is_taken(key[k]) ? "setting_" : "", key[k]);
        e = field(name, 0);
    }
    fputs(",backend,kernel,trials", stdout);
    for (int v = 0; v < N_SUMMARY_VALUES; v++) {
        printf(",%s_n,%s_mean,%s_sd", csv_value[v], csv_value[v], csv_value[v]);
        if (v > SUMMARY_TOTAL)
            printf(",%s_max", csv_value[v]);
    }
    fputs(",tensor", stdout);
    for (size_t i = 0; i < COUNT(csv_count); i++)
        printf(",%s", csv_count[i]);
    fputs("\r\n", stdout);
    return e;
}

static int has_key(const struct summary *s, const char *key)
{
    for (int k = 0; k < s->n_keys; k++)
        if (strcmp(s->key[k], key) == 0)
            return 1;
    return 0;
}

static int csv_row(const struct summary *s, const struct summary_group *g,
                   const struct summary_row *r, const char *const *key, int n)
{
    int e = field(s->op, 1);

    for (int k = 0; !e && k < n; k++)
        e = field(has_key(s, key[k]) ? summary_setting(g->first, key[k]) : "", 0);
    if (e || field(r->backend, 0) || field(r->kernel, 0))
        return -1;
    printf(",%d", r->n);
    for (int v = 0; v < N_SUMMARY_VALUES; v++) {
        printf(",%d", r->stat[v].n);
        number(r->stat[v].mean);
        number(r->stat[v].deviation);
        if (v > SUMMARY_TOTAL)
            number(r->stat[v].max);
    }
    e = field(r->worst->tensor, 0);
    printf(",%" PRId64 ",%" PRId64 ",%" PRId64 "\r\n", r->checks, r->failed, r->unjudged);
    return e;
}

static int print_csv(const struct page_dump *d, const struct summary *all)
{
    const char **key = calloc((size_t)d->n_groups * MAX_WORDS + 1, sizeof *key);
    int e = key ? 0 : err_set("no memory for settings");

    if (!e) {
        const int n = all_keys(d, all, key);
        e = csv_head(key, n);
        for (int i = 0; !e && i < d->n_groups; i++)
            for (int j = 0; !e && j < all[i].n; j++)
                for (int k = 0; !e && k < all[i].group[j].n; k++)
                    e = csv_row(&all[i], &all[i].group[j], &all[i].group[j].row[k], key, n);
    }
    free(key);
    return e;
}

/* ---- the command ---- */

/* Trials that are not in the summary; nonzero after err_set() where none is. */
static int count(const struct summary_words *w, const struct page_dump *d,
                 const struct summary *all)
{
    int trials = 0, unfinished = 0, rows = 0;

    for (int i = 0; i < d->n_groups; i++) {
        trials += all[i].trials;
        unfinished += all[i].unfinished;
        rows += all[i].n_rows;
    }
    if (!trials)
        return err_set("%s: no trial of %d is finished", w->file, d->n);
    if (!rows)
        return err_set("%s: no trial has checks or times", w->file);
    if (unfinished)
        fprintf(w->csv ? stderr : stdout, "%s%d of %d trials are not finished, and not counted\n%s",
                w->csv ? "run-ablation: " : "", unfinished, d->n, w->csv ? "" : "\n");
    return 0;
}

static int print_all(const struct summary_words *w, const struct page_dump *d, struct summary *all)
{
    struct summary_by by;
    int e = w->by ? summary_keys(d, w->by, &by) : 0;

    for (int i = 0; !e && i < d->n_groups; i++)
        e = summary_of(d, &d->group[i], w->by ? &by : NULL, &all[i]);
    e = e || count(w, d, all);
    if (!e && w->csv)
        e = print_csv(d, all);
    else if (!e)
        print_text(d, all);
    return e;
}

int summary_command(const struct summary_words *w)
{
    const int learned = learned_command(w);
    if (learned >= 0)
        return learned;
    struct page_dump *d = page_dump_read(w->file);
    struct summary *all = d ? calloc((size_t)d->n_groups + 1, sizeof *all) : NULL;
    int e = !d    ? -1
            : all ? print_all(w, d, all)
                  : err_set("no memory for %d operations", d->n_groups);

    for (int i = 0; all && i < d->n_groups; i++)
        summary_free(&all[i]);
    free(all);
    page_dump_free(d);
    return e ? BAD_INPUT : GOOD;
}
