/* The leader's side (dealt.h). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <limits.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/train/cell.h"
#include "experiments/dealt.h"
#include "experiments/shown.h"
#include "experiments/worker.h"

enum { LOOK_EACH = 100, MOST_GIVEN = 2 * 64 }; /* milliseconds; trials that a worker has */
enum { OF_WORKER = 40 };                       /* characters behind the output's name */
enum { MOST_WAIT = 20 };                       /* seconds, for workers that are to end early */

struct hand {
    int device, ready, lost;
    int refused; /* it could not begin, which was said */
    int slots;   /* trials that it is given at a time */
    int n, given[MOST_GIVEN];
    char name[256]; /* of its device */
};

struct table {
    struct dealing d;
    struct processes *processes;
    int n, stopped;
    double stopped_at;
    struct hand hand[MAX_WORKERS];
    double *part; /* of each trial */
    char *lost;   /* whose worker was lost */
};

/* ---- trials ---- */

/* The longest of those that can begin; -1: none. */
static int longest(struct table *t)
{
    int best = -1;

    for (int i = 0; i < t->d.r->x->n; i++)
        if ((best < 0 || t->d.work[i] > t->d.work[best]) && dealing_ready(&t->d, i))
            best = i;
    return best;
}

static void deal_to(struct table *t, int k)
{
    struct hand *h = &t->hand[k];
    int i;

    while (h->ready && !h->lost && h->n < h->slots && (i = longest(t)) >= 0) {
        const struct trial *trial = &t->d.r->x->trial[i];
        const struct command o = {
            .kind = COMMAND_TRIAL,
            .trial = i,
            .rate = t->d.r->x->measure == MEASURE_TRAIN ? cell_rate(&trial->call) : 0};
        dealing_start(&t->d, i);
        t->part[i] = 0;
        h->given[h->n++] = i;
        if (process_send(t->processes, k, &o, sizeof o))
            return; /* it is lost, which the next messages say */
    }
}

static void deal(struct table *t)
{
    if (!t->stopped && !t->d.lost)
        for (int k = 0; k < t->n; k++)
            deal_to(t, k);
}

static int take_back(struct hand *h, int trial)
{
    for (int j = 0; j < h->n; j++)
        if (h->given[j] == trial) {
            memmove(&h->given[j], &h->given[j + 1], (--h->n - j) * sizeof *h->given);
            return 1;
        }
    return 0;
}

/* A trial that did not come to its end, for no reason of its own: another worker makes it, once. */
static void again(struct table *t, int trial, const char *why)
{
    if (t->stopped)
        return;
    if (t->lost[trial]) {
        err_set("two workers were lost with it; the last %s", why);
        dealing_keep(&t->d, trial, -1, NULL);
        return;
    }
    t->lost[trial] = 1;
    t->d.begun[trial] = 0;
}

/* ---- what workers say ---- */

static const char *name_of(const struct table *t, int k, char text[32])
{
    if (t->hand[k].device >= 0 && dealt_each(t->d.r->x) > 1)
        snprintf(text, 32, "worker %d on device %d", k, t->hand[k].device);
    else if (t->hand[k].device >= 0)
        snprintf(text, 32, "device %d", t->hand[k].device);
    else
        snprintf(text, 32, "worker %d", k);
    return text;
}

/* Times of two kinds of GPU are not comparable, and neither are runs' bits. */
static int check_devices(struct table *t, int k)
{
    const struct experiment *x = t->d.r->x;
    char one[32], other[32];

    for (int j = 0; j < t->n && x->measure != MEASURE_CHECK; j++)
        if (t->hand[j].ready && strcmp(t->hand[j].name, t->hand[k].name) != 0)
            return t->d.lost = err_set("%s is %s, %s is %s: their results would not be comparable; "
                                       "name those that are alike",
                                       name_of(t, j, one), t->hand[j].name, name_of(t, k, other),
                                       t->hand[k].name);
    return 0;
}

static void take_ready(struct table *t, int k, const struct answer *a)
{
    struct hand *h = &t->hand[k];
    char name[32];

    if (a->e) {
        report_note(t->d.r->report, "%s cannot be used: %s", name_of(t, k, name), a->text);
        h->refused = 1;
        return; /* it ends */
    }
    snprintf(h->name, sizeof h->name, "%s", a->device);
    h->ready = 1;
    h->slots = a->side_by_side + (a->side_by_side > 1);
    check_devices(t, k);
}

static void take_ended(struct table *t, int k, const struct answer *a)
{
    char file[sizeof t->d.r->x->output + 64];

    if (!take_back(&t->hand[k], a->trial))
        return;
    shown_ended(a->trial);
    if (a->stopped) { /* by a signal of its own: it ends, and the trial is another's */
        t->hand[k].ready = 0;
        t->d.begun[a->trial] = t->stopped;
        return;
    }
    if (a->unwritten) {
        t->d.lost = err_set("%s", a->text);
        return;
    }
    if (a->e) {
        err_set("%s", a->text);
        dealing_keep(&t->d, a->trial, a->e, NULL);
        return;
    }
    worker_file(t->d.r->x, k, a->process, a->trial, file, sizeof file);
    dealing_take(&t->d, a->trial, file, a->text, &a->sums);
}

static void take_lost(struct table *t, int k, const char *why)
{
    struct hand *h = &t->hand[k];
    char name[32];

    if (!t->stopped && !t->d.lost && !h->refused)
        report_note(t->d.r->report, "%s is lost: %s%s", name_of(t, k, name), why,
                    h->n ? "; what it ran goes to another" : "");
    h->lost = 1;
    while (h->n)
        again(t, h->given[--h->n], why);
}

/* A signal comes to the workers, too: that they end then is no loss. */
static void heed_stop(struct table *t)
{
    if (t->stopped || !(*t->d.r->stop || t->d.lost))
        return;
    t->stopped = 1;
    t->stopped_at = seconds_now();
    processes_stop(t->processes);
}

static int receive_one(struct table *t)
{
    struct received got;

    if (processes_receive(t->processes, LOOK_EACH, &got))
        return t->d.lost = -1;
    heed_stop(t);
    if (got.what == RECEIVED_LOST)
        take_lost(t, got.member, got.why);
    const struct answer *a = got.message;
    if (got.what == RECEIVED_MESSAGE && got.bytes > sizeof *a && a->trial >= 0 &&
        a->trial < t->d.r->x->n) {
        if (a->kind == ANSWER_READY)
            take_ready(t, got.member, a);
        else if (a->kind == ANSWER_PART)
            t->part[a->trial] = a->part;
        else
            take_ended(t, got.member, a);
    }
    free(got.message);
    return 0;
}

/* ---- the whole ---- */

static void show(const struct table *t)
{
    int trial[MAX_WORKERS * MOST_GIVEN], n = 0;
    double part[MAX_WORKERS * MOST_GIVEN];

    for (int k = 0; k < t->n; k++)
        for (int j = 0; j < t->hand[k].n; j++) {
            trial[n] = t->hand[k].given[j];
            part[n] = t->part[trial[n]];
            n++;
        }
    shown_several(trial, part, n);
}

/* Does anything run, or can it? */
static int goes_on(struct table *t)
{
    int there = 0, busy = 0;

    for (int k = 0; k < t->n; k++) {
        there += !t->hand[k].lost;
        busy += t->hand[k].n;
    }
    if (t->stopped && seconds_now() - t->stopped_at > MOST_WAIT)
        return 0; /* processes_end() kills what does not end */
    return busy || (there && !t->stopped && !t->d.lost && longest(t) >= 0);
}

static void begin(struct table *t)
{
    const struct experiment *x = t->d.r->x;
    struct command o = {.kind = COMMAND_BEGIN, .plan = plan_lines(x), .report = t->d.r->report_how};

    report_note(t->d.r->report, "  dealt out to %d workers", t->n);
    for (int k = 0; k < t->n; k++) {
        process_place(t->processes, k, &o.number, &o.of);
        o.member = k;
        o.device = t->hand[k].device;
        process_send(t->processes, k, &o, sizeof o);
    }
}

static void end(struct table *t)
{
    const struct command o = {.kind = COMMAND_END};

    for (int k = 0; k < t->n; k++)
        process_send(t->processes, k, &o, sizeof o);
}

static int lead(struct table *t)
{
    begin(t);
    do {
        deal(t);
        show(t);
        receive_one(t);
        heed_stop(t);
    } while (goes_on(t));
    end(t);
    worker_files_remove(t->d.r->x);
    return t->d.lost ? -1 : 0;
}

/* Trials for which there was no worker any more. */
static void no_worker(struct table *t)
{
    for (int i = 0; i < t->d.r->x->n && !t->stopped && !t->d.lost; i++)
        if (dealing_ready(&t->d, i)) {
            dealing_start(&t->d, i);
            err_set("no worker is left");
            dealing_keep(&t->d, i, -1, NULL);
        }
}

/* The device of a worker: that of its number on its node, of those that are named. */
static int device_of(const struct trials *r, int k)
{
    const struct experiment *x = r->x;
    int number, of;

    process_place(r->processes, k, &number, &of);
    return x->n_devices > 0                     ? x->device_of[number % x->n_devices]
           : x->device >= 0                     ? x->device
           : !x->n_devices && dealt_each(x) > 1 ? 0
                                                : ITS_OWN;
}

static int run_table(struct table *t, struct trials *r)
{
    t->processes = r->processes;
    t->n = processes_count(r->processes);
    if (t->n > MAX_WORKERS)
        return err_set("%d workers are more than %d", t->n, MAX_WORKERS);
    for (int k = 0; k < t->n; k++)
        t->hand[k].device = device_of(r, k);
    t->part = calloc((size_t)r->x->n + 1, sizeof *t->part);
    t->lost = calloc((size_t)r->x->n + 1, 1);
    if (!t->part || !t->lost)
        return err_set("no memory for %d trials", r->x->n);
    return lead(t);
}

int dealt_run(struct trials *r)
{
    struct table *t = calloc(1, sizeof *t);
    int e = t ? dealing_begin(&t->d, r) : err_set("no memory for the workers");

    e = e || run_table(t, r);
    if (!e) {
        no_worker(t);
        dealing_end(&t->d);
    } else if (t)
        dealing_free(&t->d);
    if (t) {
        free(t->part);
        free(t->lost);
    }
    free(t);
    return e ? -1 : 0;
}

/* ---- devices ---- */

static int device_count(void)
{
    const struct backend *gpu = judged_backend(0);

    return gpu && gpu->machine->device.count ? gpu->machine->device.count() : 0;
}

/* Where references alone are named, no device takes part. */
static int asks_device(const struct experiment *x)
{
    int asks = !x->n_backends || x->n_devices;

    for (int i = 0; i < x->n_backends; i++)
        asks |= is_judged(x->backend[i]);
    return asks;
}

int dealt_each(const struct experiment *x)
{
    return x->measure == MEASURE_CHECK && x->per_device > 1 && asks_device(x) ? x->per_device : 1;
}

/* How many workers there are for n devices, or for the one that is there: no more than trials, but one each. */
static int workers_of(const struct experiment *x, int n)
{
    int each = dealt_each(x);

    while (each > 1 && n * (each - 1) >= x->n)
        each--;
    n *= each;
    return n < MAX_WORKERS ? n : MAX_WORKERS;
}

int dealt_workers(const struct experiment *x)
{
    const int there = x->n_devices || dealt_each(x) > 1 ? device_count() : 0,
              n = x->n_devices > 0 ? x->n_devices
                  : x->n_devices   ? there
                                   : there > 0,
              workers = workers_of(x, n);
    const char *slash = strrchr(x->output, '/');

    if (x->n_devices == ALL_DEVICES && n < 1)
        return err_set("device = all: there is none");
    for (int i = 0; i < x->n_devices; i++)
        if (x->device_of[i] >= there)
            return err_set("device = %d cannot be used: there are %d, the first is 0",
                           x->device_of[i], there);
    if (workers > 1 && strlen(slash ? slash + 1 : x->output) + OF_WORKER > NAME_MAX)
        return err_set("%s: the name is too long for those of its workers' files", x->output);
    return workers;
}

int dealt_planned(const struct experiment *x)
{
    const int asks = x->n_devices == ALL_DEVICES || (!x->n_devices && dealt_each(x) > 1),
              there = asks ? device_count() : 0;

    return workers_of(x, x->n_devices > 0 ? x->n_devices : x->n_devices ? there : there > 0);
}
