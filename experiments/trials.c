/* The trials of a plan (trials.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/store/read_ablation.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/plan/training.h"
#include "common/run/duration.h"
#include "common/run/states.h"
#include "common/run/beside.h"
#include "common/run/trial.h"
#include "common/store/alone.h"
#include "experiments/dealt.h"
#include "experiments/shown.h"
#include "experiments/trials.h"
#include "experiments/worker.h"

/* Compare the times of trial i, which is in the store, with the baseline's. */
static int compare(const struct trials *r, int i)
{
    struct timings now;
    struct comparison *list = NULL;
    int n = store_timings(r->store, i, &now) ? -1 : baseline_compare(r->b, &now, &list);

    if (n >= 0)
        report_baseline(r->report, i, r->b, list, n);
    free(now.timing);
    free(list);
    return n < 0 ? -1 : 0;
}

/* One that is there already. */
static int resume(const struct trials *r, int i, const struct store_counts *counts)
{
    states_done(r->x, i);
    report_resumed(r->report, counts);
    shown_ready(i);
    return r->b && compare(r, i) ? -1 : 0;
}

/* One that has ended. */
static int keep(struct trials *r, int i, int e, const struct result *result)
{
    if (e) {
        if (!*r->stop) {
            report_error(r->report, i, err_text());
            r->errors++;
            r->bad += e == TRIAL_BAD_INPUT;
        }
        return 0;
    }
    if (store_write(r->store, i, result))
        return -1;
    states_done(r->x, i);
    report_trial(r->report, i, result);
    return r->b && compare(r, i) ? -1 : 0;
}

static int run_in_order(struct trials *r)
{
    for (int i = 0; i < r->x->n && !*r->stop; i++) {
        static struct result result; /* large for the stack */
        struct store_counts counts;
        if (store_has(r->store, i, &counts)) {
            if (resume(r, i, &counts))
                return -1;
            continue;
        }
        const double work = expected_work(r->x, &r->x->trial[i]), began = seconds_now();
        if (!until_fits(&r->until, work))
            continue;
        shown_trial(i);
        const int e = trial_run(r->x, &r->x->trial[i], r->stop, shown_step, NULL, &result);
        if (!e)
            shown_step("writing", NULL);
        const int lost = keep(r, i, e, &result);
        result_free(&result);
        if (lost)
            return -1;
        until_ended(&r->until, work, seconds_now() - began);
    }
    return 0;
}

/* ---- side by side ---- */

/* Of a run that confirms: its rate, once its search is over.  0: that is not yet so. */
static int find_rate(struct dealing *d, int i)
{
    struct trial *t = &d->r->x->trial[i];
    double rate;

    if (!cell_waits(&t->call))
        return 1;
    if (!stored_search_is_over(store_file(d->r->store), d->r->x, i))
        return 0;
    if (stored_best_rate(store_file(d->r->store), d->r->x, i, &rate))
        return -1;
    cell_set_rate(&t->call, rate);
    return 1;
}

int dealing_ready(struct dealing *d, int i)
{
    const int known = d->begun[i] ? 0 : find_rate(d, i);

    if (known >= 0)
        return known && until_fits(&d->r->until, d->work[i]);
    d->begun[i] = 1;
    d->lost |= keep(d->r, i, -1, NULL);
    return 0;
}

void dealing_start(struct dealing *d, int i)
{
    d->begun[i] = 1;
    d->began[i] = seconds_now();
}

static void has_ended(struct dealing *d, int i)
{
    until_ended(&d->r->until, d->work[i], seconds_now() - d->began[i]);
}

int dealing_keep(struct dealing *d, int i, int e, const struct result *r)
{
    if (!e)
        has_ended(d, i);
    return d->lost |= keep(d->r, i, e, r);
}

int dealing_take(struct dealing *d, int i, const char *file, const char *lines,
                 const struct report_sums *sums)
{
    const struct trials *r = d->r;

    has_ended(d, i);
    if (store_take(r->store, i, file))
        return d->lost = -1;
    states_done(r->x, i);
    report_elsewhere(r->report, i, lines, sums);
    return r->b && compare(r, i) ? (d->lost = -1) : 0;
}

static int next(struct trial *to, void *data)
{
    struct dealing *d = data;

    for (int i = 0; i < d->r->x->n; i++)
        if (dealing_ready(d, i)) {
            dealing_start(d, i);
            *to = d->r->x->trial[i];
            plan_text(to); /* with its rate */
            return i;
        }
    return -1;
}

static int ended(int trial, int e, const struct result *result, void *data)
{
    struct dealing *d = data;

    shown_ended(trial);
    return dealing_keep(d, trial, e, result);
}

void dealing_free(struct dealing *d)
{
    free(d->begun);
    free(d->began);
    free(d->work);
}

/* What is left waits for a search of which a run could not be made. */
void dealing_end(struct dealing *d)
{
    for (int i = 0; i < d->r->x->n && !*d->r->stop && !d->r->until.left; i++)
        if (!d->begun[i]) {
            err_set("lr = " BEST_RATE ": its search is not complete");
            keep(d->r, i, -1, NULL);
        }
    dealing_free(d);
}

int dealing_begin(struct dealing *d, struct trials *r)
{
    struct store_counts counts;
    int e;

    *d = (struct dealing){.r = r,
                          .begun = calloc((size_t)r->x->n + 1, 1),
                          .began = calloc((size_t)r->x->n + 1, sizeof *d->began),
                          .work = calloc((size_t)r->x->n + 1, sizeof *d->work)};
    e = d->begun && d->began && d->work ? 0 : err_set("no memory for %d trials", r->x->n);
    for (int i = 0; !e && i < r->x->n; i++) {
        d->work[i] = expected_work(r->x, &r->x->trial[i]);
        if (store_has(r->store, i, &counts)) {
            d->begun[i] = 1;
            e = resume(r, i, &counts);
        }
    }
    return e;
}

static void show_running(const int *trial, const double *part, int n, void *data)
{
    (void)data;
    shown_several(trial, part, n);
}

static int run_beside(struct trials *r)
{
    struct dealing d;
    const struct beside b = {r->x, beside_count(r->x), r->stop, next, ended, show_running, &d};
    const int e = dealing_begin(&d, r) || beside_run(&b) || d.lost;

    if (!e)
        dealing_end(&d);
    else
        dealing_free(&d);
    return e ? -1 : 0;
}

int trials_run(struct trials *r)
{
    worker_files_remove(r->x);
    return r->processes                     ? dealt_run(r)
           : r->x->measure == MEASURE_TRAIN ? run_beside(r)
                                            : run_in_order(r);
}
