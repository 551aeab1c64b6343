/* measure = time and measure = crossover (time_trial.h). */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/judge/calls.h"
#include "common/run/goals.h"
#include "common/run/time_trial.h"

/* ---- the memory that a run takes, by the device's own count ---- */

/* run_op(), into ran.  The backend allocates what it needs for timing when it is
 * first started, so an empty interval is timed first: that is not counted as the run's. */
static int run_watched(const struct run *c, struct ran *ran)
{
    const struct backend *b = c->call.backend;
    struct run watch = *c;
    double seconds;

    int failed = b->machine->timing.start ? b->machine->timing.start(c->call.context) : 0;
    if (!failed && b->machine->timing.stop)
        failed = b->machine->timing.stop(c->call.context, &seconds);
    if (failed)
        return err_set("%s: %s", b->name, b->machine->strerror(failed));
    watch.watch = 1;
    return run_op(&watch, ran->t, &ran->outcome);
}

/* ---- one kernel ---- */

/* Run it, timed, and judge what the last run left; if that is wrong, the
 * times are forgotten. */
static int time_kernel(const struct run *c, const struct tensors *inputs, const struct judge *judge,
                       struct tensors *reused, struct ran *ran, struct verdicts *list)
{
    int judged = list->n;

    if (ran_new(ran, c, inputs, reused) || run_watched(c, ran) ||
        check_ran(judge, &c->call, ran->t, list))
        return -1;
    if (verdicts_failed(list, judged))
        ran->outcome = (struct outcome){.peak = ran->outcome.peak, .used = ran->outcome.used};
    return 0;
}

/* A reference's only kernel, timed unless repeats is 0. */
static int run_reference(const struct trial *t, const struct backend *b, int repeats,
                         const struct tensors *inputs, struct ran *ran)
{
    const struct run c = {.call = call_on(&t->call, b, op_kernel(t->call.op, b, 0), NULL),
                          .repeats = repeats};
    return ran_run(ran, &c, inputs);
}

/* May the trial's kernel be this one, and does it take the case, here and now? */
static int takes_part(const struct trial *t, const struct run *c, struct result *r)
{
    if (*t->kernel && strcmp(t->kernel, c->call.kernel->name) != 0)
        return 0;
    const char *no = impl_declines(&c->call);
    if (!no && run_reserve(c))
        no = err_text();
    if (no)
        result_decline(r, c->call.backend, c->call.kernel, no);
    return !no;
}

/* ---- measure = time ---- */

/* The trial's GPU backends that can run here. */
static int present(const struct task *task, const struct backend *list[16])
{
    const struct backend *meant[16];
    int n = plan_backends(task->x, task->t, meant), m = 0;

    for (int i = 2; i < n; i++) {
        const char *no = backend_unavailable(task->x->contexts, meant[i]);
        if (no)
            result_skip(task->r, meant[i]->name, no);
        else if (!op_kernel(task->t->call.op, meant[i], 0))
            result_skip(task->r, meant[i]->name, "it has no kernel for this operation");
        else
            list[m++] = meant[i];
    }
    return m;
}

/* The first kernel that is right keeps its results; the others' are reused for the next one's. */
static int time_backend(const struct task *task, const struct backend *b, const struct judge *judge)
{
    const struct trial *t = task->t;
    struct result *r = task->r;
    struct tensors *reused = NULL;
    const struct call on = trial_on(task->x, t, b, NULL);
    const struct impl *ordered[MAX_KERNELS + 1];
    int kept = 0, e = 0;

    impl_order(&on, ordered);
    for (const struct impl *const *k = ordered; !e && *k && !*task->stop; k++) {
        const struct run c = {
            .call = trial_on(task->x, t, b, *k), .repeats = task->x->repeats, .ahead = task->ahead};
        if (!takes_part(t, &c, r))
            continue;
        if (r->n_ran == MAX_RAN) {
            e = err_set("more than %d kernels", MAX_RAN);
            break;
        }
        task->step((*k)->name, task->data);
        struct ran *ran = &r->ran[r->n_ran++];
        e = time_kernel(&c, r->inputs, judge, reused, ran, &r->verdicts);
        reused = NULL;
        if (!e && !kept && ran->outcome.runs[FORWARD]) {
            kept = 1;
        } else {
            reused = ran->t;
            ran->t = NULL;
        }
    }
    tensors_free(reused);
    return e;
}

static int time_all(const struct task *task, const struct backend *const *list, int n,
                    const struct judge *judge)
{
    int e = 0;

    for (int i = 0; !e && i < n && !*task->stop; i++)
        e = time_backend(task, list[i], judge);
    return e;
}

/* Judged by a sample: the references have nothing else to compute. */
static int time_sampled(const struct task *task, const struct backend *const *list, int n)
{
    struct result *r = task->r;

    result_no_references(r);
    task->step("references, on a sample", task->data);
    int e = result_sample(r);
    return e ? e : time_all(task, list, n, &(const struct judge){.sampled = r->sampled});
}

static int time_full(const struct task *task, const struct backend *const *list, int n)
{
    const struct trial *t = task->t;
    const struct backend *yard = reference_of(t->type);
    struct result *r = task->r;

    r->n_ran = YARDSTICK + 1;
    task->step(ref64.name, task->data);
    if (run_reference(t, &ref64, 0, r->inputs, &r->ran[ORACLE]))
        return -1;
    task->step(yard->name, task->data);
    if (run_reference(t, yard, n ? 0 : task->x->repeats, r->inputs, &r->ran[YARDSTICK]))
        return -1;
    if (!n || *task->stop)
        return 0;
    struct truth truth = result_truth(r);
    const int e =
        truth_begin(&truth) || time_all(task, list, n, &(const struct judge){.truth = &truth});

    truth_end(&truth);
    return e ? -1 : 0;
}

int timing_run(const struct task *task)
{
    const struct backend *list[16];
    int n = present(task, list);

    int e = task->t->sampled && n ? time_sampled(task, list, n) : time_full(task, list, n);
    if (!e && *task->stop)
        return err_set("interrupted");
    return e ? e : goals_judge(task->x, task->r);
}

/* ---- measure = crossover ---- */

/* One batch of a trial, and its reference values. */
struct point {
    struct trial t;
    struct tensors *inputs;
    struct truth truth;     /* of all elements, */
    struct sampled sampled; /* or a sample */
};

/* The trial with another batch; nonzero after err_set(), or TRIAL_BAD_INPUT;
 * to be freed in any case. */
static int point_new(struct point *p, const struct task *task, int64_t batch)
{
    const struct trial *t = task->t;

    *p = (struct point){.t = *t};
    DIM(&p->t.call, t->call.op->batch) = batch;
    if (op_complete(&p->t.call))
        return -1;
    p->t.sampled = plan_sampled(task->x, &p->t.call);
    p->inputs = tensors_new(&p->t.call);
    if (!p->inputs)
        return -1;
    if (input_fill(&p->t, p->inputs, NULL))
        return TRIAL_BAD_INPUT;
    const struct call rounded = call_on(&p->t.call, reference_of(t->type), NULL, NULL);
    tensors_round(p->inputs, &rounded);
    return 0;
}

static void point_free(struct point *p)
{
    tensors_free(p->inputs);
    truth_free(&p->truth);
    sampled_free(&p->sampled);
}

/* The crossover of k, with the batches so far; NULL where there are MAX_RAN already. */
static struct crossover *crossover_of(struct result *r, const struct backend *b,
                                      const struct impl *k)
{
    for (int i = 0; i < r->n_crossovers; i++)
        if (r->crossover[i].backend == b && r->crossover[i].kernel == k)
            return &r->crossover[i];
    if (r->n_crossovers == MAX_RAN)
        return NULL;
    struct crossover *g = &r->crossover[r->n_crossovers++];
    *g = (struct crossover){.backend = b, .kernel = k};
    return g;
}

static void add_point(struct crossover *g, const struct point *p, const struct outcome *out)
{
    g->batch[g->n] = DIM(&p->t.call, p->t.call.op->batch);
    g->rows[g->n] = case_rows(&p->t.call);
    g->outcome[g->n++] = *out;
}

/* Time a kernel at one batch, if it takes it, unless it was wrong before. */
static int grow_kernel(const struct run *c, struct point *p, struct result *r)
{
    struct ran ran = {0};

    if (!takes_part(&p->t, c, r))
        return 0;
    struct crossover *g = crossover_of(r, c->call.backend, c->call.kernel);
    if (!g)
        return err_set("more than %d kernels", MAX_RAN);
    if (*g->stopped || g->n == MAX_POINTS)
        return 0;
    const struct judge judge = {.truth = &p->truth, .sampled = p->t.sampled ? &p->sampled : NULL};
    int e = time_kernel(c, p->inputs, &judge, NULL, &ran, &r->verdicts);
    tensors_free(ran.t);
    if (!e && ran.outcome.runs[FORWARD])
        add_point(g, p, &ran.outcome);
    else if (!e)
        snprintf(g->stopped, sizeof g->stopped, "it failed parity at batch %" PRId64,
                 DIM(&p->t.call, c->call.op->batch));
    return e;
}

static int grow_all(const struct task *task, struct point *p, const struct backend *const *list,
                    int n)
{
    const struct impl *k;
    for (int i = 0; i < n; i++)
        for (int j = 0; (k = op_kernel(p->t.call.op, list[i], j)); j++) {
            const struct run c = {.call = trial_on(task->x, &p->t, list[i], k),
                                  .repeats = task->x->repeats};
            task->step(k->name, task->data);
            if (grow_kernel(&c, p, task->r))
                return -1;
        }
    return 0;
}

/* Without a GPU: the yardstick, which is not judged. */
static int grow_yardstick(const struct task *task, const struct point *p)
{
    const struct backend *b = reference_of(p->t.type);
    struct crossover *g = crossover_of(task->r, b, op_kernel(p->t.call.op, b, 0));
    struct ran ran = {0};

    int e = run_reference(&p->t, b, task->x->repeats, p->inputs, &ran);
    if (!e && g->n < MAX_POINTS)
        add_point(g, p, &ran.outcome);
    tensors_free(ran.t);
    return e;
}

/* Seconds that the oracle may take for a batch; a larger one is not judged. */
static const double AFFORDED = 1;

static void stop_all(struct result *r, int64_t batch)
{
    for (int i = 0; i < r->n_crossovers; i++)
        if (!*r->crossover[i].stopped)
            snprintf(r->crossover[i].stopped, sizeof r->crossover[i].stopped,
                     "not judged from batch %" PRId64
                     " on: the reference would take more than %g s",
                     batch, AFFORDED);
}

/* One batch on all kernels; *seconds becomes the time that the reference took. */
static int grow(const struct task *task, int64_t batch, const struct backend *const *list, int n,
                double *seconds)
{
    struct point p;
    char what[64];
    int e = point_new(&p, task, batch);
    double began = seconds_now();

    snprintf(what, sizeof what, "batch %" PRId64, batch);
    task->step(what, task->data);
    if (!e && !n) {
        e = grow_yardstick(task, &p);
        *seconds = (seconds_now() - began) / (1 + task->x->repeats);
    } else if (!e) {
        const struct call on = trial_on(task->x, &p.t, list[0], NULL);
        e = p.t.sampled ? sampled_find(&p.sampled, &on, p.inputs, p.t.seed)
                        : truth_find(&p.truth, &on, p.inputs);
        *seconds = (seconds_now() - began) / 3;
        e = e ? e : grow_all(task, &p, list, n);
    }
    point_free(&p);
    return e;
}

int crossover_run(const struct task *task)
{
    const struct trial *t = task->t;
    struct result *r = task->r;
    const struct backend *list[16];
    double seconds = 0;
    int e = 0;

    if (!t->call.op->batch)
        return err_set("%s has no batch that could grow", t->call.op->name);
    r->crossover = calloc(MAX_RAN, sizeof *r->crossover);
    if (!r->crossover)
        return err_set("no memory for the times of growing batches");
    const int64_t last = DIM(&t->call, t->call.op->batch);
    int n = present(task, list);
    for (int64_t batch = 1, before = 0; !e && !*task->stop && before < last;
         before = batch, batch = 2 * batch < last ? 2 * batch : last) {
        if (before && seconds * (double)batch / (double)before > AFFORDED) {
            stop_all(r, batch);
            break;
        }
        e = grow(task, batch, list, n, &seconds);
    }
    r->failed = verdicts_failed(&r->verdicts, 0);
    return !e && *task->stop ? err_set("interrupted") : e;
}
