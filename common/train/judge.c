/* An update judged by the oracle (judge.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/call/transfer.h"
#include "common/train/judge.h"

/* In FLOPs of products (op_reference_work()): what the oracle may do for a step, with its samples, some 5 s. */
static const double MOST_WORK = 5e9;
/* An update may overflow, and is then skipped; where that begins a kernel's products or sums may leave the range before the
 * reference's do. */
static const double MOST_VALUE = 0x1p60;
/* Oracle, yardstick, and the samples that a case of much work takes. */
enum { RUNS = 10 };

struct judging {
    struct update *u;
    uint64_t seed;
    struct verdicts *list;
    struct calls calls;
    int overflows; /* and what is not judged by that */
};

static const char *const names[UPDATE_CALLS] = {
    [UPDATE_BATCH] = "batch",       [UPDATE_MODEL] = "model", [UPDATE_NORM] = "norm",
    [UPDATE_SCHEDULE] = "schedule", [UPDATE_ADAMW] = "adamw", [UPDATE_ADAMW_WIDE] = "adamw.wide"};

/* ---- tensors of a placed call ---- */

/* Its inputs, and the gradients of its outputs; NULL after err_set(). */
static struct tensors *get_inputs(const struct call *f)
{
    struct tensors *t = tensors_new(f);
    int e = 0;

    for (int i = 0; t && !e && i < f->op->n_args; i++)
        e = f->op->arg[i].flags & IN ? tensors_get(t, f, i, 0) : tensors_get(t, f, i, 1);
    if (!e)
        return t;
    tensors_free(t);
    return NULL;
}

static int get_results(const struct call *f, const struct results *only, struct tensors *t)
{
    int e = 0;

    FOR_RESULTS (f, i, grad)
        if (!e && results_have(only, i, grad))
            e = tensors_get(t, f, i, grad);
    return e;
}

/* ---- the calls of an update ---- */

static int run_failed(const struct update *u, const struct call *f, int e)
{
    return e ? err_set("%s on %s: %s", f->op->name, u->b->name, u->b->machine->strerror(e)) : 0;
}

/* What forward makes: there is no other pass, and no gradient. */
static struct results of_forward(const struct call *f)
{
    struct results to = {set_none(), set_none()};

    FOR_RESULTS (f, i, grad)
        if (!grad)
            results_add(&to, i, grad);
    return to;
}

/* A call with one pass, run and judged. */
static int judge_call(struct judging *j, int i)
{
    const struct call *f = &j->u->call[i];
    const struct call unplaced = call_on(f, f->backend, f->kernel, f->context);
    const struct results only = of_forward(f);
    struct tensors *t = get_inputs(f);

    j->calls.most = i == UPDATE_NORM ? MOST_VALUE : 0;
    int e = t ? run_failed(j->u, f, call_pass(f, FORWARD)) || get_results(f, &only, t) ||
                    check_one_call(&j->calls, names[i], &unplaced, t, &only)
              : -1;

    j->overflows |= j->calls.beyond > 0;
    tensors_free(t);
    return e;
}

/* Both passes of the model, looked at. */
static int judge_model(struct judging *j)
{
    const struct call *f = &j->u->call[UPDATE_MODEL];
    const struct call unplaced = call_on(f, f->backend, f->kernel, f->context);
    struct calls *c = &j->calls;
    struct impl watched = *f->kernel;
    struct call looked = *f;
    int e = calls_begin(c, &unplaced, j->seed, j->list);

    c->most = MOST_VALUE;
    watched.data = &c->watch;
    looked.kernel = &watched;
    for (enum pass p = FORWARD; !e && p < N_PASSES; p++) {
        e = call_pass(&looked, p);
        if (e)
            e = c->failed ? err_set("%s", c->why) : run_failed(j->u, f, e);
    }
    j->overflows |= c->beyond > 0;
    calls_end(c);
    return e;
}

/* ---- the whole model ---- */

/* The loss and the gradients: what follows from logits that are rounded otherwise may be another whole number. */
static struct results of_step(const struct call *f)
{
    struct results to = {set_none(), set_none()};

    FOR_RESULTS (f, i, grad)
        if (grad || (f->op->arg[i].flags & OUT && !(f->op->arg[i].flags & WHOLE)))
            results_add(&to, i, grad);
    return to;
}

static int is_beyond(const struct call *f, const struct results *only, const struct tensors *t)
{
    int beyond = 0;

    FOR_RESULTS (f, i, grad) {
        const double *x = results_have(only, i, grad) ? X_OR_G(*t, i, grad) : NULL;
        for (int64_t k = 0; x && !beyond && k < op_count(f, i); k++)
            beyond = !(fabs(x[k]) <= MOST_VALUE);
    }
    return beyond;
}

static int judge_whole(struct judging *j, const struct call *f)
{
    const struct call unplaced = call_on(f, f->backend, f->kernel, f->context);
    const struct results only = of_step(f);
    const int from = j->list->n;
    struct tensors *t = get_inputs(f);
    /* A model of much work is here as a few rows. */
    struct calls c = {.list = j->list, .seed = j->seed, .much = MOST_WORK};
    int e = t ? get_results(f, &only, t) : -1;

    if (!e && is_beyond(f, &only, t))
        j->overflows = 1;
    else
        e = e || check_one_call(&c, "", &unplaced, t, &only);
    for (int i = from; i < j->list->n; i++) {
        struct verdict *v = &j->list->v[i];
        v->check = "step";
        memmove(v->tensor, v->tensor + 1, strlen(v->tensor)); /* the dot behind no name */
    }
    tensors_free(t);
    return e;
}

/* How many rows of the batch the oracle has the time for. */
static int64_t rows_in_time(const struct call *model, int64_t B)
{
    const double rows = MOST_WORK / RUNS / op_reference_work(model) * (double)B;
    return rows >= (double)B ? B : (int64_t)rows;
}

/* The first rows of tokens or targets. */
static int put_rows(struct update *u, const char *name)
{
    const struct call *model = &u->call[UPDATE_MODEL], *few = &u->rows;
    const int from = op_arg(model->op, name), to = op_arg(few->op, name);
    const char *shape = op_shape(model, from);
    const int64_t T = DIM(model, shape[0]), B = DIM(model, shape[1]), R = op_count(few, to) / T;
    double *x = malloc(T * B * sizeof *x);
    int e = x ? transfer_get(model, call_type(model, from, 0), x, model->arg[from], T * B)
              : err_set("no memory for %s", name);

    for (int64_t t = 0; !e && t < T; t++)
        memmove(x + t * R, x + t * B, R * sizeof *x);
    e = e || transfer_put(few, call_type(few, to, 0), few->arg[to], x, T * R);
    free(x);
    return e;
}

static int judge_rows(struct judging *j, int64_t rows)
{
    struct update *u = j->u;
    int e = update_rows(u, rows) || put_rows(u, "token") || put_rows(u, "target");

    for (enum pass p = FORWARD; !e && p < N_PASSES; p++)
        e = run_failed(u, &u->rows, call_pass(&u->rows, p));
    return e || judge_whole(j, &u->rows);
}

static int judge_step(struct judging *j, struct judged_update *how)
{
    const struct call *model = &j->u->call[UPDATE_MODEL];
    const char *shape = op_shape(model, op_arg(model->op, "token"));
    const int64_t B = DIM(model, shape[1]);

    how->rows = rows_in_time(model, B);
    return !how->rows ? 0 : how->rows == B ? judge_whole(j, model) : judge_rows(j, how->rows);
}

/* ---- an update ---- */

/* A verdict on whether the two states have the same bits. */
static int judge_states(struct judging *j, const void *own, const void *looked)
{
    const struct update *u = j->u;
    const char *other = update_states_differ(u, own, looked);
    struct verdict *v = verdict_add(j->list, "call", "state", u->b, u->call[UPDATE_MODEL].kernel);

    if (!v)
        return -1;
    v->pass = !other;
    v->error = other ? 1 : 0;
    v->distance = "";
    v->first_bad = -1;
    v->judged = v->elements = u->elements;
    snprintf(v->worst, sizeof v->worst, "%s", other ? other : "");
    return 0;
}

/* What is said of an update that overflows. */
static int judge_overflow(struct judging *j)
{
    const struct update *u = j->u;
    struct verdict *v =
        j->overflows ? verdict_add(j->list, "step", "overflow", u->b, u->call[UPDATE_MODEL].kernel)
                     : NULL;

    if (!j->overflows)
        return 0;
    if (!v)
        return -1;
    v->pass = v->unjudged = 1;
    v->why =
        "the update overflows: calls that are given values beyond 2^60, or none, are not judged";
    return 0;
}

/* From the state before, call by call. */
static int judge_calls(struct judging *j, struct judged_update *how)
{
    int e = 0;

    for (int i = 0; !e && i < UPDATE_CALLS; i++) {
        if (!j->u->call[i].op)
            continue;
        e = i == UPDATE_MODEL ? judge_model(j) || judge_step(j, how) : judge_call(j, i);
    }
    return e;
}

int update_judged(struct update *u, uint64_t seed, struct verdicts *list, struct judged_update *how)
{
    struct judging j = {u, seed, list, {.list = list, .seed = seed, .much = MOST_WORK}, 0};
    const double began = seconds_now();
    const int from = list->n;
    struct update_values values;
    void *before = update_state(u), *own = NULL, *looked = NULL;

    *how = (struct judged_update){0, 0};
    int e = !before || update_run(u) || !(own = update_state(u)) || update_restore(u, before) ||
            judge_calls(&j, how) || judge_overflow(&j) || !(looked = update_state(u)) ||
            judge_states(&j, own, looked) || update_restore(u, own) || update_read(u, &values);
    for (int i = from; !e && i < list->n; i++)
        list->v[i].update = values.u;
    free(before);
    free(own);
    free(looked);
    how->seconds = seconds_now() - began;
    return e ? -1 : 0;
}

/* ---- how many verdicts ---- */

static int count_results(const struct call *f, const struct results *only)
{
    int n = 0;

    FOR_RESULTS (f, i, grad)
        n += !only || results_have(only, i, grad);
    return n;
}

/* Of a call of the model: a layer is judged by the calls that it makes, also on gradients that only it has. */
static int count_of_call(const struct call *f)
{
    struct layer_part *part = malloc(sizeof *part);
    int n = count_results(f, NULL);

    for (int k = 0; part && f->op->part && f->op->part(f, k, part); k++)
        FOR_RESULTS (&part->call, i, grad)
            n += results_have(&part->own, i, grad) &&
                 !(part->of[i].n == 1 && op_results(f, part->of[i].arg[0], grad));
    free(part);
    return n;
}

double update_verdicts(const struct cell *c)
{
    enum {
        OTHERS = 24
    }; /* the batch 3, the norm 2, the schedule 9, two of AdamW 4 each, state and overflow */
    const struct call model = call_on(&c->model, &ref64, NULL, NULL);
    const struct results step = of_step(&model);
    char name[2 * MAX_NAME];
    double n = OTHERS + count_results(&model, &step);

    for (int i = 0; i < program_calls(model.op); i++) {
        const struct call f = call_on(program_call(model.op, i, name), &ref64, NULL, NULL);
        n += count_of_call(&f);
    }
    return n;
}
