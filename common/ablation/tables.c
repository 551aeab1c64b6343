/* An ablation as tables (tables.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/ablation/tables.h"
#include "common/base/err.h"
#include "common/base/quote.h"

/* ---- columns ---- */

#define IN_FILE(COLUMN, kind, name) COLUMN(kind, name, NO_UNIT, IN_DUMP, NULL, 0)
#define RUN_COLUMNS(COLUMN)                                                                        \
    IN_FILE(COLUMN, i, trial)                                                                      \
    IN_FILE(COLUMN, s, task)                                                                       \
    IN_FILE(COLUMN, s, variant)                                                                    \
    IN_FILE(COLUMN, d, lr)                                                                         \
    IN_FILE(COLUMN, i, seed)                                                                       \
    IN_FILE(COLUMN, i, confirms)                                                                   \
    IN_FILE(COLUMN, s, ended)                                                                      \
    IN_FILE(COLUMN, i, updates)                                                                    \
    IN_FILE(COLUMN, i, learned_at)                                                                 \
    IN_FILE(COLUMN, i, length)                                                                     \
    IN_FILE(COLUMN, d, accuracy)                                                                   \
    IN_FILE(COLUMN, d, loss)                                                                       \
    IN_FILE(COLUMN, d, validated)                                                                  \
    IN_FILE(COLUMN, d, seconds)                                                                    \
    IN_FILE(COLUMN, d, seconds_to_target)                                                          \
    IN_FILE(COLUMN, d, tokens_per_s)
#define CELL_COLUMNS(COLUMN)                                                                       \
    IN_FILE(COLUMN, s, task)                                                                       \
    IN_FILE(COLUMN, s, variant)                                                                    \
    IN_FILE(COLUMN, s, metric)                                                                     \
    IN_FILE(COLUMN, d, chance)                                                                     \
    IN_FILE(COLUMN, d, lr)                                                                         \
    IN_FILE(COLUMN, i, rates)                                                                      \
    IN_FILE(COLUMN, i, at_end)                                                                     \
    IN_FILE(COLUMN, i, confirmed)                                                                  \
    IN_FILE(COLUMN, i, seeds)                                                                      \
    IN_FILE(COLUMN, i, solved)                                                                     \
    IN_FILE(COLUMN, d, solved_low)                                                                 \
    IN_FILE(COLUMN, d, solved_high)                                                                \
    IN_FILE(COLUMN, i, holds)                                                                      \
    IN_FILE(COLUMN, d, holds_low)                                                                  \
    IN_FILE(COLUMN, d, holds_high)                                                                 \
    IN_FILE(COLUMN, d, updates_to_target)                                                          \
    IN_FILE(COLUMN, d, tokens_to_target)                                                           \
    IN_FILE(COLUMN, d, seconds_to_target)                                                          \
    IN_FILE(COLUMN, i, diverged)                                                                   \
    IN_FILE(COLUMN, i, stopped)
#define TEST_COLUMNS(COLUMN)                                                                       \
    IN_FILE(COLUMN, s, task)                                                                       \
    IN_FILE(COLUMN, s, variant)                                                                    \
    IN_FILE(COLUMN, i, length)                                                                     \
    IN_FILE(COLUMN, s, metric)                                                                     \
    IN_FILE(COLUMN, i, seeds)                                                                      \
    IN_FILE(COLUMN, d, iqm)                                                                        \
    IN_FILE(COLUMN, d, low)                                                                        \
    IN_FILE(COLUMN, d, high)                                                                       \
    IN_FILE(COLUMN, d, percentile_low)                                                             \
    IN_FILE(COLUMN, d, percentile_high)
#define RATE_COLUMNS(COLUMN)                                                                       \
    IN_FILE(COLUMN, s, task)                                                                       \
    IN_FILE(COLUMN, s, variant)                                                                    \
    IN_FILE(COLUMN, d, lr)                                                                         \
    IN_FILE(COLUMN, i, seeds)                                                                      \
    IN_FILE(COLUMN, d, validated)                                                                  \
    IN_FILE(COLUMN, d, updates_to_target)                                                          \
    IN_FILE(COLUMN, i, chosen)
#define PAIR_COLUMNS(COLUMN)                                                                       \
    IN_FILE(COLUMN, s, task)                                                                       \
    IN_FILE(COLUMN, s, variant)                                                                    \
    IN_FILE(COLUMN, s, against)                                                                    \
    IN_FILE(COLUMN, i, length)                                                                     \
    IN_FILE(COLUMN, s, metric)                                                                     \
    IN_FILE(COLUMN, i, seeds)                                                                      \
    IN_FILE(COLUMN, d, difference)                                                                 \
    IN_FILE(COLUMN, d, low)                                                                        \
    IN_FILE(COLUMN, d, high)                                                                       \
    IN_FILE(COLUMN, d, percentile_low)                                                             \
    IN_FILE(COLUMN, d, percentile_high)                                                            \
    IN_FILE(COLUMN, d, p)                                                                          \
    IN_FILE(COLUMN, d, p_holm)                                                                     \
    IN_FILE(COLUMN, s, verdict)
#define SIZE_COLUMNS(COLUMN)                                                                       \
    IN_FILE(COLUMN, s, task)                                                                       \
    IN_FILE(COLUMN, s, variant)                                                                    \
    IN_FILE(COLUMN, d, parameters)                                                                 \
    IN_FILE(COLUMN, d, parameters_inner)                                                           \
    IN_FILE(COLUMN, d, state_bytes)                                                                \
    IN_FILE(COLUMN, d, flops_per_token)
#define ROW(name, LIST)                                                                            \
    struct name##_row {                                                                            \
        LIST(COLUMN_MEMBER)                                                                        \
    };
ROW(run, RUN_COLUMNS)
ROW(cell, CELL_COLUMNS)
ROW(test, TEST_COLUMNS)
ROW(rate, RATE_COLUMNS)
ROW(pair, PAIR_COLUMNS)
ROW(size, SIZE_COLUMNS)
#define RUN_COLUMN(...) COLUMN_OF(run_row, __VA_ARGS__)
#define CELL_COLUMN(...) COLUMN_OF(cell_row, __VA_ARGS__)
#define TEST_COLUMN(...) COLUMN_OF(test_row, __VA_ARGS__)
#define RATE_COLUMN(...) COLUMN_OF(rate_row, __VA_ARGS__)
#define PAIR_COLUMN(...) COLUMN_OF(pair_row, __VA_ARGS__)
#define SIZE_COLUMN(...) COLUMN_OF(size_row, __VA_ARGS__)
static const struct column run_columns[] = {RUN_COLUMNS(RUN_COLUMN){NULL}},
                           cell_columns[] = {CELL_COLUMNS(CELL_COLUMN){NULL}},
                           test_columns[] = {TEST_COLUMNS(TEST_COLUMN){NULL}},
                           rate_columns[] = {RATE_COLUMNS(RATE_COLUMN){NULL}},
                           pair_columns[] = {PAIR_COLUMNS(PAIR_COLUMN){NULL}},
                           size_columns[] = {SIZE_COLUMNS(SIZE_COLUMN){NULL}};

const char *const ablation_table_names[] = {"runs",  "cells", "tests", "rates",
                                            "pairs", "sizes", NULL};

/* ---- rows ---- */

/* What is infinite was not reached: not known. */
static double known(double x)
{
    return isfinite(x) ? x : NAN;
}

static const char *metric_of(int in_bits)
{
    return in_bits ? "bits" : "accuracy";
}

static void run_row(const struct ablation *a, int i, struct run_row *to)
{
    const struct stored_run *r = &a->runs->run[i];

    *to = (struct run_row){.trial = r->trial + 1,
                           .task = r->task,
                           .variant = r->variant,
                           .lr = r->rate,
                           .seed = (int64_t)r->seed,
                           .confirms = r->confirms,
                           .ended = run_ends[r->end],
                           .updates = r->updates,
                           .learned_at = r->learned ? r->learned : -1,
                           .length = r->test[0].length,
                           .accuracy = r->test[0].accuracy,
                           .loss = r->test[0].loss,
                           .validated = r->validated,
                           .seconds = r->seconds,
                           .seconds_to_target = known(r->to_target),
                           .tokens_per_s = r->tokens_per_s};
}

static void cell_row(const struct ablation *a, int i, struct cell_row *to)
{
    const struct ablated_cell *c = &a->cell[i];

    *to = (struct cell_row){.task = c->task,
                            .variant = c->variant,
                            .metric = metric_of(c->in_bits),
                            .chance = c->chance,
                            .lr = c->best < 0 ? NAN : c->rate[c->best].rate,
                            .rates = c->n_rates,
                            .at_end = c->at_end,
                            .confirmed = c->n && a->runs->run[c->run[0]].confirms,
                            .seeds = c->n,
                            .solved = c->solved,
                            .solved_low = c->solved < 0 ? NAN : c->solved_in.low,
                            .solved_high = c->solved < 0 ? NAN : c->solved_in.high,
                            .holds = c->holds,
                            .holds_low = c->holds < 0 ? NAN : c->holds_in.low,
                            .holds_high = c->holds < 0 ? NAN : c->holds_in.high,
                            .updates_to_target = known(c->updates),
                            .tokens_to_target = known(c->tokens),
                            .seconds_to_target = known(c->seconds),
                            .diverged = c->diverged,
                            .stopped = c->stopped};
}

static void test_row(const struct ablated_cell *c, const struct test_of *t, struct test_row *to)
{
    *to = (struct test_row){.task = c->task,
                            .variant = c->variant,
                            .length = t->length,
                            .metric = metric_of(c->in_bits),
                            .seeds = c->n,
                            .iqm = t->value,
                            .low = t->interval.bca.low,
                            .high = t->interval.bca.high,
                            .percentile_low = t->interval.percentile.low,
                            .percentile_high = t->interval.percentile.high};
}

static void rate_row(const struct ablated_cell *c, int k, struct rate_row *to)
{
    *to = (struct rate_row){.task = c->task,
                            .variant = c->variant,
                            .lr = c->rate[k].rate,
                            .seeds = c->rate[k].n,
                            .validated = c->rate[k].validated,
                            .updates_to_target = known(c->rate[k].updates),
                            .chosen = k == c->best};
}

static void pair_row(const struct ablation *a, int i, struct pair_row *to)
{
    const struct compared_pair *p = &a->pair[i];
    const struct ablated_cell *x = &a->cell[p->a];

    *to = (struct pair_row){.task = x->task,
                            .variant = x->variant,
                            .against = a->cell[p->b].variant,
                            .length = p->length,
                            .metric = metric_of(x->in_bits),
                            .seeds = p->n,
                            .difference = p->difference,
                            .low = p->n ? p->interval.bca.low : NAN,
                            .high = p->n ? p->interval.bca.high : NAN,
                            .percentile_low = p->n ? p->interval.percentile.low : NAN,
                            .percentile_high = p->n ? p->interval.percentile.high : NAN,
                            .p = p->p,
                            .p_holm = p->adjusted,
                            .verdict = comparison_words[p->word]};
}

static void size_row(const struct ablation *a, int i, struct size_row *to)
{
    const struct ablated_cell *c = &a->cell[i];

    *to = (struct size_row){.task = c->task,
                            .variant = c->variant,
                            .parameters = c->parameters,
                            .parameters_inner = c->inner,
                            .state_bytes = c->state_bytes,
                            .flops_per_token = c->flops};
}

/* ---- tables ---- */

static int count(const struct ablation *a, int which)
{
    int n = 0;

    if (which == TABLE_RUNS)
        return a->runs->n;
    if (which == TABLE_PAIRS)
        return a->n_pairs;
    if (which == TABLE_CELLS || which == TABLE_SIZES)
        return a->n_cells;
    for (int i = 0; i < a->n_cells; i++)
        n += which == TABLE_TESTS ? a->cell[i].n_tests : a->cell[i].n_rates;
    return n;
}

static void fill(const struct ablation *a, struct ablation_table *to, int which)
{
    int n = 0;

    for (int i = 0; i < to->n && which == TABLE_RUNS; i++)
        run_row(a, i, (struct run_row *)to->row + i);
    for (int i = 0; i < to->n && which == TABLE_PAIRS; i++)
        pair_row(a, i, (struct pair_row *)to->row + i);
    for (int i = 0; i < a->n_cells; i++) {
        if (which == TABLE_CELLS)
            cell_row(a, i, (struct cell_row *)to->row + i);
        if (which == TABLE_SIZES)
            size_row(a, i, (struct size_row *)to->row + i);
        for (int k = 0; which == TABLE_TESTS && k < a->cell[i].n_tests; k++)
            test_row(&a->cell[i], &a->cell[i].test[k], (struct test_row *)to->row + n++);
        for (int k = 0; which == TABLE_RATES && k < a->cell[i].n_rates; k++)
            rate_row(&a->cell[i], k, (struct rate_row *)to->row + n++);
    }
}

int ablation_table(const struct ablation *a, int which, struct ablation_table *to)
{
    static const struct {
        const struct column *column;
        size_t size;
    } of[ABLATION_TABLES] = {
        {run_columns, sizeof(struct run_row)},   {cell_columns, sizeof(struct cell_row)},
        {test_columns, sizeof(struct test_row)}, {rate_columns, sizeof(struct rate_row)},
        {pair_columns, sizeof(struct pair_row)}, {size_columns, sizeof(struct size_row)}};

    *to = (struct ablation_table){ablation_table_names[which], of[which].column, of[which].size,
                                  count(a, which), NULL};
    to->row = calloc((size_t)to->n + 1, to->size);
    if (!to->row)
        return err_set("no memory for the table %s", to->name);
    fill(a, to, which);
    return 0;
}

/* A seed has no sign; any other whole number below 0, but a side, is not known. */
static int csv_value(const struct column *c, const void *at, FILE *to)
{
    if (c->kind == 's')
        return quote_csv(*(const char *const *)at, to);
    if (c->kind == 'd') {
        if (!isnan(*(const double *)at))
            fprintf(to, "%.17g", *(const double *)at);
    } else if (strcmp(c->name, "seed") == 0)
        fprintf(to, "%" PRIu64, *(const uint64_t *)at);
    else if (*(const int64_t *)at >= 0 || strcmp(c->name, "at_end") == 0)
        fprintf(to, "%" PRId64, *(const int64_t *)at);
    return 0;
}

int ablation_csv(const struct ablation_table *t, FILE *to)
{
    int e = 0;

    for (const struct column *c = t->column; c->name; c++)
        fprintf(to, "%s%s", c == t->column ? "" : ",", c->name);
    fputc('\n', to);
    for (int i = 0; !e && i < t->n; i++) {
        const char *row = (const char *)t->row + (size_t)i * t->size;
        for (const struct column *c = t->column; !e && c->name; c++) {
            if (c != t->column)
                fputc(',', to);
            e = csv_value(c, row + c->offset, to);
        }
        fputc('\n', to);
    }
    return e;
}
