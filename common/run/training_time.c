/* The time of an experiment's runs (training_time.h). */
#include "config.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/grow.h"
#include "common/ops/examples.h"
#include "common/plan/training.h"
#include "common/run/beside.h"
#include "common/run/train_trial.h"
#include "common/run/training_time.h"
#include "common/statistics/statistics.h"
#include "common/train/free.h"
#include "common/train/judge.h"

enum { FEWEST = 3, SOME = 10, MOST = 400 }; /* updates */
static const double ENOUGH = 0.3;           /* seconds in which SOME will do */
/* Seconds for the updates of one cell, and of all. */
static const double OF_CELL = 0.5, OF_PLAN = 30;

/* ---- what is timed ---- */

struct timing {
    const struct experiment *x;
    const struct trial *t;
    struct cell *cell;
    struct training training;
    struct update u;
    double budget;
    struct run_parts s;
};

/* The next update, in *seconds. */
static int one_update(struct timing *w, struct update_values *now, double *seconds)
{
    const double began = seconds_now();
    const int e = update_run(&w->u) || update_read(&w->u, now);

    *seconds = seconds_now() - began;
    return e;
}

/* The median, without the first, which loads and records. */
static int time_updates(struct timing *w, struct update_values *now)
{
    const double began = seconds_now();
    double s[MOST], first;
    int n = 0, e = one_update(w, now, &first);

    while (!e && n < MOST && n + 1 < w->cell->updates &&
           (n < FEWEST || seconds_now() - began < (n < SOME ? w->budget : ENOUGH)))
        e = one_update(w, now, &s[n++]);
    w->s.update = n ? median_of(s, n) : first;
    w->s.open += fmax(first - w->s.update, 0);
    return e;
}

/* One update that is judged. */
static int time_judged(struct timing *w)
{
    struct verdicts list = {.n = 0};
    struct judged_update how;
    const double began = seconds_now();
    const int e = update_judged(&w->u, w->t->seed, &list, &how);

    w->s.judged = seconds_now() - began;
    verdicts_free(&list);
    return e;
}

/* The oracle beside the first update. */
static int time_free(struct timing *w)
{
    const double began = seconds_now();
    struct free_run *f = free_run_begin(&w->training, &w->u);
    const double there = seconds_now();
    struct update_values now;
    int e = !f || update_run(&w->u) || update_read(&w->u, &now);

    w->s.free_begin = there - began;
    const double step = seconds_now();
    e = e || free_run_step(f, &now);
    w->s.free_step = seconds_now() - step;
    free_run_end(f);
    return e;
}

/* ---- tests ---- */

static int64_t batches_of(const struct cell *c)
{
    const int64_t B = DIM(&c->batch, 'B');
    return (c->eval_rows + B - 1) / B;
}

/* So many batches of the test at a length. */
static int one_test(struct timing *w, int64_t length, int64_t batches, double *seconds)
{
    const int64_t rows = batches * DIM(&w->cell->batch, 'B');
    const double began = seconds_now();
    struct evaluated ignored;
    const int e = update_evaluate_at(&w->u, SPLIT_VALIDATION, w->x->seed, rows, length, &ignored);

    *seconds = seconds_now() - began;
    return e;
}

/* The part of FLOPs that forward has at a length, of those at the training length. */
static double flops_at(const struct timing *w, int64_t length)
{
    struct call f = w->t->call;
    struct cell *c = malloc(sizeof *c);
    const struct call *of = &w->cell->model;
    char text[32];
    double part = 0;

    snprintf(text, sizeof text, "%lld", (long long)length);
    if (c && !op_set(&f, "length", text) && !cell_read(&f, 0, c))
        part = c->model.op->flops(&c->model, FORWARD) / of->op->flops(of, FORWARD);
    free(c);
    return part;
}

/* All batches at a length: the first makes room for it. */
static int time_length(struct timing *w, int64_t length)
{
    const double expected = w->s.batch * flops_at(w, length);
    const int64_t batches = batches_of(w->cell);
    double one, two = 0;

    if (2 * expected > w->budget) {
        w->s.lengths += (double)batches * expected;
        return 0;
    }
    const int e = one_test(w, length, 1, &one) || (batches > 1 && one_test(w, length, 2, &two));
    w->s.lengths += one + (double)(batches - 1) * fmax(two - one, 0);
    return e;
}

static int time_tests(struct timing *w)
{
    const int64_t T = DIM(&w->cell->batch, 'T');
    double first, second;
    int e = one_test(w, T, 1, &first) || one_test(w, T, 1, &second);

    w->s.batch = e ? 0 : fmin(first, second);
    for (int i = 0; !e && i < w->training.n_lengths; i++)
        e = time_length(w, w->training.length[i]);
    return e;
}

/* ---- a cell ---- */

static int open_run(struct timing *w)
{
    const struct training *r = &w->training;
    const double began = seconds_now();
    const int e = update_open(&w->u, w->cell, r->backend, r->context, r->seed, r->corpus);

    w->s.open = seconds_now() - began;
    return e;
}

/* With the run's memory, which is given back; `warm` loads and sets up what a process does once. */
static int time_run(struct timing *w, int warm)
{
    struct update_values now;
    double seconds;
    int e = open_run(w);

    if (warm)
        e = e || one_update(w, &now, &seconds);
    else if (w->training.judged && w->cell->parity_every)
        e = e || time_free(w) || time_updates(w, &now) || time_tests(w) || time_judged(w);
    else
        e = e || time_updates(w, &now) || time_tests(w);
    update_close(&w->u);
    return e;
}

static int begin_run(struct timing *w, unsigned char *corpus)
{
    const struct backend *b = training_place(w->x, w->t);
    const char *no = w->x->device >= 0 && is_judged(b)
                         ? context_use(w->x->contexts, b, w->x->device)
                         : backend_unavailable(w->x->contexts, b);

    if (no)
        return err_set("%s: %s", b->name, no);
    w->training = (struct training){.cell = w->cell,
                                    .backend = b,
                                    .context = context_of(w->x->contexts, b),
                                    .seed = w->t->seed,
                                    .data_seed = w->x->seed,
                                    .corpus = corpus,
                                    .judged = is_judged(b) && w->x->checks & CHECK_PARITY};
    w->training.n_lengths = training_lengths(w->t, w->training.length);
    return w->training.n_lengths < 0 ? -1 : 0;
}

/* Times the parts of a trial's run; nonzero after err_set(). */
static int time_parts(const struct experiment *x, const struct trial *t, int warm, double budget,
                      struct run_parts *to)
{
    struct timing *w = calloc(1, sizeof *w);
    struct cell *cell = malloc(sizeof *cell);
    size_t bytes = 0;
    unsigned char *corpus = *t->file ? file_read(t->file, &bytes) : NULL;
    int e = !w || !cell ? err_set("no memory to time updates") : *t->file && !corpus ? -1 : 0;

    if (!e) {
        w->x = x;
        w->t = t;
        w->cell = cell;
        w->budget = budget;
        e = cell_read(&t->call, t->seed, cell) || begin_run(w, corpus);
    }
    if (!e && warm)
        e = time_run(w, 1);
    e = e || time_run(w, 0);
    if (!e)
        *to = w->s;
    free(corpus);
    free(cell);
    free(w);
    return e;
}

/* ---- a run ---- */

double training_run_seconds(const struct run_parts *s, const struct cell *c)
{
    const double free_updates = (double)(c->until < FREE_UPDATES ? c->until : FREE_UPDATES),
                 judged = s->judged > 0 ? (double)cell_judged(c) : 0,
                 beside =
                     s->free_begin + fmin(free_updates * s->free_step, FREE_SECONDS + s->free_step);

    return s->open + beside + ((double)c->until - judged) * s->update + judged * s->judged +
           (double)((cell_validations(c) + 1) * batches_of(c)) * s->batch + s->lengths;
}

/* The last that was timed. */
struct last {
    struct run_parts s;
    int64_t batch; /* its sequences; 0: none was */
    int failed;
};

/* Adds a run's time, from the parts' of the last one, or of its own where it has another batch. */
static void add_run(const struct experiment *x, const struct trial *t, double budget, int warm,
                    struct last *last, struct cell_cost *to)
{
    struct cell *c = malloc(sizeof *c);
    const int e = c ? cell_read(&t->call, t->seed, c) : err_set("no memory for a run");

    if (!e && DIM(&c->batch, 'B') != last->batch) {
        last->batch = DIM(&c->batch, 'B');
        last->failed = time_parts(x, t, warm, budget, &last->s) != 0;
        if (last->failed)
            snprintf(to->unknown, sizeof to->unknown, "%s", err_text());
    }
    if (!e && !last->failed) {
        to->seconds += training_run_seconds(&last->s, c);
        to->at_most |= c->stop;
    }
    free(c);
}

/* ---- all ---- */

/* Which cell a trial is of; a new one behind the n that there are. */
static int find_cell(const struct experiment *x, const struct cell_cost *costs, int n, int trial)
{
    for (int i = n - 1; i >= 0; i--)
        if (training_alike(&x->trial[costs[i].first], &x->trial[trial]))
            return i;
    return n;
}

/* The cells, and in of[] that of each trial; NULL: no memory. */
static struct cell_cost *find_cells(const struct experiment *x, int *of, int *n)
{
    struct cell_cost *costs = NULL;

    *n = 0;
    for (int i = 0; i < x->n; i++) {
        of[i] = find_cell(x, costs, *n, i);
        if (of[i] == *n) {
            struct cell_cost *more = grow(costs, *n, sizeof *more);
            if (!more) {
                free(costs);
                return NULL;
            }
            costs = more;
            memset(&costs[*n], 0, sizeof *costs);
            costs[(*n)++].first = i;
        }
        costs[of[i]].n++;
    }
    return costs;
}

static void find_cost(const struct experiment *x, const int *of, int i, double budget,
                      struct cell_cost *to)
{
    const struct trial *first = &x->trial[to->first];
    struct last last = {.batch = 0};

    if (cell_size(&first->call, first->type, &to->size))
        snprintf(to->unknown, sizeof to->unknown, "%s", err_text());
    for (int k = to->first; k < x->n && !*to->unknown; k++) {
        if (of[k] != i)
            continue;
        const double memory = training_memory(&x->trial[k]);
        to->memory = memory > to->memory ? memory : to->memory;
        add_run(x, &x->trial[k], budget, i == 0 && k == to->first, &last, to);
    }
}

struct cell_cost *training_costs(const struct experiment *x, int *n)
{
    int *of = malloc((x->n + 1) * sizeof *of);
    struct cell_cost *costs = of ? find_cells(x, of, n) : NULL;

    if (!costs) {
        free(of);
        return err_null("no memory for the time of %d runs", x->n);
    }
    const double budget = *n * OF_CELL > OF_PLAN ? OF_PLAN / *n : OF_CELL;
    const int threads = omp_get_max_threads(), beside = beside_count(x);
    if (beside > 1)
        omp_set_num_threads(threads / beside > 1 ? threads / beside : 1);
    for (int i = 0; i < *n; i++)
        find_cost(x, of, i, budget, &costs[i]);
    omp_set_num_threads(threads);
    free(of);
    return costs;
}

double training_seconds(const struct cell_cost *costs, int n, int side_by_side)
{
    double sum = 0;
    int runs = 0;

    for (int i = 0; i < n; i++) {
        sum += costs[i].seconds;
        runs += costs[i].n;
    }
    const int beside = side_by_side < runs ? side_by_side : runs;
    return beside > 1 ? sum / beside : sum;
}
