/* A run of training (run.h). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/call/transfer.h"
#include "common/ops/examples.h"
#include "common/train/checkpoint.h"
#include "common/train/judge.h"
#include "common/train/running.h"

const char *const run_ends[] = {"done", "stopped", "diverged"};

/* Of updates that were skipped, running, and the part of all, that end a run as diverged. */
enum { MOST_RUNNING = 20, MOST_OF = 100 };
static const double REPORT_EACH = 0.2; /* seconds between two calls of report() */

/* ---- memory ---- */

static int take_curves(struct trained *to, int64_t U)
{
    double **const of[] = {&to->loss, &to->norm, &to->factor, &to->rate, &to->scale};
    int full = 1;

    for (int i = 0; i < (int)COUNT(of); i++)
        full &= (*of[i] = calloc(U, sizeof **of[i])) != NULL;
    full &= (to->skipped = calloc(U, 1)) != NULL;
    return full ? 0 : err_set("no memory for the curves of %lld updates", (long long)U);
}

void trained_free(struct trained *r)
{
    double *const of[] = {r->loss, r->norm, r->factor, r->rate, r->scale, r->start, r->final};

    for (int i = 0; i < (int)COUNT(of); i++)
        free(of[i]);
    for (int i = 0; i < KEPT_BATCHES; i++) {
        free(r->token[i]);
        free(r->target[i]);
    }
    free(r->skipped);
    free(r->validation);
    free(r->judged);
    free(r->test_at);
    for (int i = 0; i < r->n_texts; i++)
        free(r->text[i]);
    free(r->text);
    *r = (struct trained){.of = NULL};
}

/* ---- what is kept ---- */

static double *kept_weights(const struct update *u)
{
    double *w = malloc(u->elements * sizeof *w);

    if (!w)
        return err_null("no memory for %lld weights", (long long)u->elements);
    if (!update_weights(u, w))
        return w;
    free(w);
    return NULL;
}

static double *kept_whole(const struct call *f, int arg)
{
    const int64_t n = op_count(f, arg);
    double *x = malloc(n * sizeof *x);

    if (!x)
        return err_null("no memory for a batch");
    if (!transfer_get(f, call_type(f, arg, 0), x, f->arg[arg], n))
        return x;
    free(x);
    return NULL;
}

static int keep_batch(struct running *r)
{
    const struct call *f = &r->u.call[UPDATE_BATCH];
    const int64_t i = r->now.u - 1;

    if (!r->t->keep || i >= KEPT_BATCHES)
        return 0;
    r->to->token[i] = kept_whole(f, PLACE(examples, token));
    r->to->target[i] = kept_whole(f, PLACE(examples, target));
    return !r->to->token[i] || !r->to->target[i] ? -1 : 0;
}

/* ---- validation ---- */

static void note_reached(struct running *r, const struct validation *v)
{
    const struct cell *c = r->t->cell;

    r->reached = isfinite(v->loss) && v->accuracy >= c->target ? r->reached + 1 : 0;
    if (r->reached == c->patience && !r->to->learned)
        r->to->learned = r->to->validation[r->to->n_validations - c->patience].update;
}

static int validate(struct running *r)
{
    struct evaluated e;
    struct validation *more = grow(r->to->validation, r->to->n_validations, sizeof *more);

    if (!more)
        return err_set("no memory for a validation");
    r->to->validation = more;
    if (update_evaluate(&r->u, SPLIT_VALIDATION, r->t->data_seed, r->t->cell->eval_rows, &e))
        return -1;
    struct validation *v = &more[r->to->n_validations++];
    *v = (struct validation){r->now.u, e.loss, e.targets ? (double)e.hits / (double)e.targets : 0,
                             r->to->seconds};
    note_reached(r, v);
    return 0;
}

static int is_due(int64_t u, int64_t every, int64_t last)
{
    return u == last || (every && u % every == 0);
}

/* ---- updates ---- */

/* The first ones, and then every so many. */
static int is_judged_at(const struct cell *c, int64_t u)
{
    const int64_t every = c->parity_every;
    return every && (u == 1 || u == 2 || u == 5 || u % every == 0);
}

int64_t cell_judged(const struct cell *c)
{
    int64_t n = 0;
    for (int64_t u = 1; u <= c->until; u++)
        n += is_judged_at(c, u);
    return n;
}

int64_t cell_validations(const struct cell *c)
{
    int64_t n = 0;
    for (int64_t u = 1; u <= c->until; u++)
        n += is_due(u, c->eval_every, c->until);
    return n;
}

static int make_judged(struct running *r)
{
    struct trained *to = r->to;
    struct judged_at *more = grow(to->judged, to->n_judged, sizeof *more);
    struct judged_update how;

    if (!more)
        return err_set("no memory for the judgement of an update");
    to->judged = more;
    if (update_judged(&r->u, r->t->seed, r->list, &how))
        return -1;
    more[to->n_judged++] = (struct judged_at){r->now.u + 1, how.rows};
    return 0;
}

static void note(struct running *r)
{
    struct trained *to = r->to;
    const struct update_values *v = &r->now;
    const int64_t i = v->u - 1;

    to->loss[i] = v->loss;
    to->norm[i] = v->norm;
    to->factor[i] = v->factor;
    to->rate[i] = v->rate;
    to->scale[i] = v->scale;
    to->skipped[i] = (unsigned char)v->skipped;
    to->n_skipped += v->skipped;
    to->done = v->u;
    r->skipped_running = v->skipped ? r->skipped_running + 1 : 0;
}

/* Has all been loaded and, where the machine records, recorded? */
static int is_warm(const struct update *u)
{
    return u->b->machine->timing.record ? u->recorded != NULL : u->ran;
}

static int make_update(struct running *r)
{
    const double began = seconds_now();
    const int judged = r->t->judged && is_judged_at(r->t->cell, r->now.u + 1),
              timed = !judged && is_warm(&r->u);

    if (judged ? make_judged(r) : update_run(&r->u))
        return -1;
    if (update_read(&r->u, &r->now))
        return -1;
    const double seconds = seconds_now() - began;
    r->to->seconds += judged ? 0 : seconds;
    r->to->timed_seconds += timed ? seconds : 0;
    r->to->timed += timed;
    note(r);
    return keep_batch(r);
}

static int has_diverged(const struct running *r)
{
    return r->skipped_running >= MOST_RUNNING || r->to->n_skipped * MOST_OF > r->t->cell->updates ||
           r->now.scale < 1;
}

static void report(struct running *r)
{
    const double now = seconds_now();

    if (!r->t->report || now - r->reported < REPORT_EACH)
        return;
    r->t->report(r->t, r->to);
    r->reported = now;
}

/* What is due behind an update. */
static int settle(struct running *r)
{
    const struct cell *c = r->t->cell;

    if (has_diverged(r))
        r->to->end = RUN_DIVERGED;
    if ((is_due(r->now.u, c->eval_every, c->until) || r->to->end == RUN_DIVERGED) && validate(r))
        return -1;
    if (c->stop && r->to->learned && r->to->end == RUN_DONE)
        r->to->end = RUN_STOPPED;
    r->settled = r->now.u;
    return 0;
}

/* ---- checkpoints ---- */

/* One that is due.  Where it cannot be written, the run goes on. */
static void keep_checkpoint(struct running *r)
{
    const struct checkpoints *c = r->t->checkpoints;
    const double every = r->t->cell->checkpoint_every;
    char line[1200];

    if (!c || every <= 0 || !r->whole || seconds_now() - r->saved < every)
        return;
    const int e = checkpoint_write(r);
    r->saved = seconds_now();
    if (e && !r->warned && c->say) {
        snprintf(line, sizeof line, "%.1000s; the run goes on without that checkpoint", err_text());
        c->say(line, c->data);
    }
    r->warned = e != 0;
}

/* The last one of a run that is asked to end early; the message is of that, or why it cannot be written. */
static void keep_last(struct running *r)
{
    const struct checkpoints *c = r->t->checkpoints;

    if (c && r->whole && r->kept != r->now.u && checkpoint_write(r)) {
        if (c->say)
            c->say(err_text(), c->data);
        return;
    }
    err_set("interrupted");
}

/* ---- all updates ---- */

/* Until the last, or what ends it before. */
static int make_updates(struct running *r)
{
    int e = r->settled < r->now.u ? settle(r) : 0;

    while (!e && r->now.u < r->t->cell->until && r->to->end == RUN_DONE) {
        if (r->t->stop && *r->t->stop)
            return err_set("interrupted");
        keep_checkpoint(r);
        r->whole = 0;
        e = make_update(r) || (r->free && free_run_step(r->free, &r->now));
        r->whole = !e;
        e = e || settle(r);
        report(r);
    }
    return e;
}

/* Of the last weights. */
static int test(struct running *r)
{
    const struct training *t = r->t;
    const int64_t rows = t->cell->eval_rows;
    int e = update_evaluate(&r->u, SPLIT_TEST, t->data_seed, rows, &r->to->test);

    if (!e && t->n_lengths && !(r->to->test_at = calloc(t->n_lengths, sizeof *r->to->test_at)))
        e = err_set("no memory for %d tests", t->n_lengths);
    for (int i = 0; !e && i < t->n_lengths; i++)
        e = update_evaluate_at(&r->u, SPLIT_TEST, t->data_seed, rows, t->length[i],
                               &r->to->test_at[i]);
    return e;
}

static int run(struct running *r)
{
    struct trained *to = r->to;
    const struct training *t = r->t;

    to->elements = r->u.elements;
    to->layout = r->u.layout;
    if (t->keep && !(to->start = kept_weights(&r->u)))
        return -1;
    if (t->judged && t->cell->parity_every && !(r->free = free_run_begin(t, &r->u)))
        return -1;
    if (t->checkpoints && t->checkpoints->use != CHECKPOINT_IGNORED && checkpoint_take(r))
        return -1;
    int e = make_updates(r) || test(r);
    if (!e && r->free)
        e = free_run_verdict(r->free, r->list, to);
    if (!e && t->keep)
        e = !(to->final = kept_weights(&r->u));
    to->bytes = r->u.most;
    return e;
}

int train(const struct training *t, struct verdicts *list, struct trained *to)
{
    struct running *r = calloc(1, sizeof *r);

    *to = (struct trained){.of = t};
    if (!r)
        return err_set("no memory for a run");
    *r = (struct running){.t = t, .to = to, .list = list, .saved = seconds_now()};
    int e = take_curves(to, t->cell->until) ||
            update_open(&r->u, t->cell, t->backend, t->context, t->seed, t->corpus);
    r->u.stop = t->stop;
    e = e || run(r);
    if (e && t->stop && *t->stop)
        keep_last(r);
    free_run_end(r->free);
    update_close(&r->u);
    free(r);
    return e ? -1 : 0;
}

double trained_rate(const struct trained *r)
{
    const struct call *f = &r->of->cell->batch;

    return r->timed_seconds > 0
               ? (double)r->timed * (double)DIM(f, 'T') * (double)DIM(f, 'B') / r->timed_seconds
               : 0;
}
