/* A worker's side (worker.h). */
#include "config.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <omp.h>

#include "common/base/err.h"
#include "common/base/fnv.h"
#include "common/run/beside.h"
#include "common/store/alone.h"
#include "common/train/cell.h"
#include "experiments/worker.h"

enum { QUEUE = 256 };

struct worker {
    struct experiment *x;
    struct leader *leader;
    struct report *report;
    const volatile int *stop;
    int member, side_by_side, over;
    struct command queue[QUEUE]; /* trials that it is to run */
    int n;
    double *reported; /* of each trial: the part that the leader knows */
};

uint64_t plan_lines(const struct experiment *x)
{
    uint64_t hash = FNV_BEGIN;

    for (int i = 0; i < x->n; i++)
        hash = fnv1a64(hash, x->trial[i].text, strlen(x->trial[i].text) + 1);
    return x->text ? fnv1a64(hash, x->text, strlen(x->text)) : hash;
}

void worker_file(const struct experiment *x, int member, pid_t process, int trial, char *to,
                 size_t size)
{
    snprintf(to, size, "%s.part.w%d-%ld-%04d", x->output, member, (long)process, trial + 1);
}

void worker_files_remove(const struct experiment *x)
{
    char pattern[2 * sizeof x->output + 64], *to = pattern;
    glob_t found;

    for (const char *c = x->output; *c; c++) {
        if (strchr("*?[]\\", *c))
            *to++ = '\\';
        *to++ = *c;
    }
    strcpy(to, ".part.w[0-9]*-[0-9]*-[0-9][0-9][0-9][0-9]*");
    if (glob(pattern, 0, NULL, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        unlink(found.gl_pathv[i]);
    globfree(&found);
}

/* a and the text behind it. */
static int say(struct worker *w, const struct answer *a, const char *text)
{
    const size_t n = strlen(text) + 1;
    struct answer *whole = malloc(sizeof *a + n);
    int e;

    if (!whole)
        return err_set("no memory for what a worker says");
    *whole = *a;
    whole->process = getpid();
    memcpy(whole->text, text, n);
    e = leader_send(w->leader, whole, sizeof *a + n);
    free(whole);
    w->over |= e != 0;
    return e;
}

/* Takes a command that came, or waits for one. */
static void listen(struct worker *w, int milliseconds)
{
    void *message;
    const long n = leader_receive(w->leader, milliseconds, &message);

    if (n < 0)
        w->over = 1;
    if (n <= 0)
        return;
    const struct command *o = message;
    if (n == sizeof *o && o->kind == COMMAND_TRIAL && w->n < QUEUE)
        w->queue[w->n++] = *o;
    else
        w->over = 1;
    free(message);
}

static int next(struct trial *to, void *data)
{
    struct worker *w = data;

    listen(w, 0);
    if (!w->n || w->over)
        return -1;
    const struct command o = w->queue[0];
    memmove(w->queue, w->queue + 1, --w->n * sizeof o);
    *to = w->x->trial[o.trial];
    if (o.rate > 0 && cell_waits(&to->call)) { /* one that confirms: the leader found its rate */
        cell_set_rate(&to->call, o.rate);
        plan_text(to);
    }
    return o.trial;
}

static int write_ended(struct worker *w, int trial, const struct result *r)
{
    char file[sizeof w->x->output + 64];

    worker_file(w->x, w->member, getpid(), trial, file, sizeof file);
    return store_write_alone(file, w->x, trial, r);
}

/* The lines of its report; of a run that confirms with its rate. */
static char *lines_of(struct worker *w, int trial, const struct result *r, struct report_sums *sums)
{
    struct trial *t = &w->x->trial[trial];
    const struct call planned = t->call;

    t->call = r->trial->call;
    char *lines = report_lines(w->report, trial, r, sums);
    t->call = planned;
    return lines;
}

static int ended(int trial, int e, const struct result *r, void *data)
{
    struct worker *w = data;
    struct answer a = {.kind = ANSWER_ENDED, .trial = trial, .e = e, .stopped = e && *w->stop};
    char *lines = NULL;

    if (!e)
        a.e = a.unwritten = write_ended(w, trial, r) != 0;
    if (!a.e && !(lines = lines_of(w, trial, r, &a.sums)))
        a.e = -1;
    const int lost = say(w, &a, lines ? lines : err_text());
    free(lines);
    return lost;
}

static void running(const int *trial, const double *part, int n, void *data)
{
    struct worker *w = data;

    for (int i = 0; i < n; i++)
        if (part[i] >= w->reported[trial[i]] + 0.01) {
            const struct answer a = {.kind = ANSWER_PART, .trial = trial[i], .part = part[i]};
            w->reported[trial[i]] = part[i];
            say(w, &a, "");
        }
}

/* The processors of a node are divided among its workers, unless the launcher has bound each to its own. */
static void divide_processors(int of)
{
    const int each = (int)sysconf(_SC_NPROCESSORS_ONLN) / of, may = omp_get_max_threads();

    omp_set_num_threads(each < 1 ? 1 : each < may ? each : may);
}

static int own_device(int number)
{
    const struct backend *gpu = judged_backend(0);
    const int n = gpu && gpu->machine->device.count ? gpu->machine->device.count() : 0;

    return n ? number % n : -1;
}

/* The first command, and what comes of it. */
static int meet(struct worker *w, int (*begin)(struct experiment *, void *), void *data)
{
    struct answer a = {.kind = ANSWER_READY};
    void *message = NULL;
    long n;

    while ((n = leader_receive(w->leader, -1, &message)) == 0) {
    }
    if (n < 0)
        return -1;
    const struct command o =
        n == sizeof o ? *(struct command *)message : (struct command){.kind = COMMAND_END};
    free(message);
    if (o.kind != COMMAND_BEGIN)
        return -1;
    if (o.plan != plan_lines(w->x))
        a.e = err_set("%s has changed since the run began", w->x->file ? w->x->file : "a file");
    w->x->device = o.device == ITS_OWN ? own_device(o.number) : o.device;
    w->member = o.member;
    w->x->workers_here = o.of;
    divide_processors(o.of);
    w->report = report_new(w->x, stdout, o.report);
    w->reported = calloc(w->x->n + 1, sizeof *w->reported);
    if (!w->report || !w->reported)
        a.e = err_set("no memory for a worker");
    a.e = a.e || begin(w->x, data);
    const struct backend *gpu = judged_backend(0);
    a.side_by_side = w->side_by_side = a.e ? 1 : beside_count(w->x);
    if (!a.e)
        snprintf(a.device, sizeof a.device, "%s",
                 gpu && !backend_unavailable(w->x->contexts, gpu)
                     ? backend_device(w->x->contexts, gpu)
                     : "");
    return say(w, &a, a.e ? err_text() : "") || a.e;
}

int worker_run(struct experiment *x, struct leader *l,
               int (*begin)(struct experiment *x, void *data), void *data, const volatile int *stop)
{
    struct worker *w = calloc(1, sizeof *w);
    int e;

    if (!w)
        return 1;
    *w = (struct worker){.x = x, .leader = l, .stop = stop};
    e = meet(w, begin, data);
    const struct beside b = {x, w->side_by_side, stop, next, ended, running, w};
    while (!e && !w->over && !*stop) {
        if (!w->n)
            listen(w, 100);
        if (w->n && !w->over)
            e = beside_run(&b);
    }
    report_free(w->report);
    free(w->reported);
    free(w);
    return e ? 1 : 0;
}
