/* The time of an experiment's runs (training_time.h). */
#include "config.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
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
    unsigned char *corpus = NULL;
    int e = !w || !cell ? err_set("no memory to time updates") : training_corpus(t, &corpus);

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

/* ---- several at once ---- */

/* One of some runs of the same trial, on a thread of its own, with contexts of its own. */
struct side {
    struct together *all;
    pthread_t thread;
    struct experiment x;
    struct contexts contexts;
    struct timing w;
    struct cell cell;
    double rate; /* updates a second */
    int e;
    char why[300];
};

struct together {
    const struct experiment *x;
    const struct trial *t;
    unsigned char *corpus;
    int n, threads; /* OpenMP's, of each */
    double budget, opened;
    pthread_mutex_t begin;  /* the caller's, until n is known */
    pthread_barrier_t gate; /* of the n and the caller */
    struct side *side;
};

static int open_side(struct side *s)
{
    struct update_values now;
    double seconds;

    s->x = *s->all->x;
    s->x.contexts = &s->contexts;
    s->w = (struct timing){.x = &s->x, .t = s->all->t, .cell = &s->cell, .budget = s->all->budget};
    return experiment_device(&s->x) || cell_read(&s->all->t->call, s->all->t->seed, &s->cell) ||
           begin_run(&s->w, s->all->corpus) || open_run(&s->w) || one_update(&s->w, &now, &seconds);
}

static void *time_side(void *data)
{
    struct side *s = data;
    struct update_values now;
    double seconds;
    int n = 0;

    pthread_mutex_lock(&s->all->begin);
    pthread_mutex_unlock(&s->all->begin);
    omp_set_num_threads(s->all->threads);
    s->e = open_side(s);
    pthread_barrier_wait(&s->all->gate);
    const double began = seconds_now();
    while (!s->e && n + 2 < s->cell.updates && (!n || seconds_now() - began < s->all->budget)) {
        s->e = one_update(&s->w, &now, &seconds);
        n++;
    }
    s->rate = n / (seconds_now() - began);
    if (s->e)
        snprintf(s->why, sizeof s->why, "%s", err_text());
    pthread_barrier_wait(&s->all->gate);
    update_close(&s->w.u);
    contexts_close(&s->contexts);
    return NULL;
}

/* Those for which there is a thread open their runs at once, and then make updates at once. */
static int run_sides(struct together *all, int n)
{
    int no = 0;

    pthread_mutex_lock(&all->begin);
    for (all->n = 0; all->n < n && !no; all->n += !no) {
        all->side[all->n].all = all;
        no = pthread_create(&all->side[all->n].thread, NULL, time_side, &all->side[all->n]);
    }
    pthread_barrier_init(&all->gate, NULL, (unsigned)all->n + 1);
    const double began = seconds_now();
    pthread_mutex_unlock(&all->begin);
    pthread_barrier_wait(&all->gate);
    all->opened = seconds_now() - began;
    pthread_barrier_wait(&all->gate);
    for (int i = 0; i < all->n; i++)
        pthread_join(all->side[i].thread, NULL);
    pthread_barrier_destroy(&all->gate);
    return no ? err_set("no thread for a run: %s", strerror(no)) : 0;
}

/* The parts of a run that is alone as its share of what n take together. */
static int share(const struct together *all, const struct run_parts *alone, struct run_parts *to)
{
    double rate = 0;

    for (int i = 0; i < all->n; i++) {
        if (all->side[i].e)
            return err_set("%s", all->side[i].why);
        rate += all->side[i].rate;
    }
    *to = *alone;
    to->open = all->opened / all->n;
    if (rate > 0) {
        const double gain = rate * alone->update;
        to->update = 1 / rate;
        to->batch = alone->batch / gain;
        to->lengths = alone->lengths / gain;
    }
    to->judged = alone->judged / all->n; /* the references', with processors of their own */
    to->free_begin = alone->free_begin / all->n;
    to->free_step = alone->free_step / all->n;
    return 0;
}

/* Times a trial's run in n threads at once. */
static int time_together(const struct experiment *x, const struct trial *t, int n, double budget,
                         const struct run_parts *alone, struct run_parts *to)
{
    struct together all = {.x = x, .t = t, .threads = omp_get_max_threads(), .budget = budget};
    int e;

    *to = *alone;
    if (n < 2)
        return 0;
    e = training_corpus(t, &all.corpus);
    all.side = calloc(n, sizeof *all.side);
    pthread_mutex_init(&all.begin, NULL);
    if (!e)
        e = !all.side ? err_set("no memory to time %d runs", n)
                      : run_sides(&all, n) || share(&all, alone, to);
    pthread_mutex_destroy(&all.begin);
    free(all.side);
    free(all.corpus);
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
    struct run_parts alone, beside;
    int n;         /* side by side */
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
        last->failed = time_parts(x, t, warm, budget, &last->alone) ||
                       time_together(x, t, last->n, budget / 2, &last->alone, &last->beside);
        if (last->failed)
            snprintf(to->unknown, sizeof to->unknown, "%s", err_text());
    }
    if (!e && !last->failed) {
        to->seconds += training_run_seconds(&last->alone, c);
        to->together += training_run_seconds(&last->beside, c);
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

static void find_cost(const struct experiment *x, const int *of, int i, int beside, double budget,
                      struct cell_cost *to)
{
    const struct trial *first = &x->trial[to->first];
    struct last last = {.n = beside};

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
        find_cost(x, of, i, beside, budget, &costs[i]);
    omp_set_num_threads(threads);
    free(of);
    return costs;
}

double training_seconds(const struct cell_cost *costs, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += costs[i].together;
    return sum;
}
