/* Collects what a trial produced: runs, verdicts, declined and skipped kernels (result.h). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/quote.h"
#include "common/run/result.h"
#include "common/run/train_trial.h"

struct truth result_truth(const struct result *r)
{
    return (struct truth){.oracle = r->ran[ORACLE].t,
                          .yard = r->ran[YARDSTICK].t,
                          .call = r->ran[YARDSTICK].call,
                          .inputs = r->inputs};
}

void result_no_references(struct result *r)
{
    const struct trial *t = r->trial;
    const struct backend *const reference[] = {&ref64, reference_of(t->type)};

    for (int i = 0; i <= YARDSTICK; i++) {
        const struct impl *kernel = op_kernel(t->call.op, reference[i], 0);
        r->ran[i] = (struct ran){.call = call_on(&t->call, reference[i], kernel, NULL)};
    }
    r->n_ran = YARDSTICK + 1;
}

int result_sample(struct result *r)
{
    r->sampled = calloc(1, sizeof *r->sampled);
    return r->sampled ? sampled_find(r->sampled, &r->ran[YARDSTICK].call, r->inputs, r->trial->seed)
                      : err_set("no memory for a sample");
}

int experiment_device(const struct experiment *x)
{
    const char *no = x->device >= 0 ? context_use(x->contexts, judged_backend(0), x->device) : NULL;

    return no ? err_set("device = %d cannot be used: %s", x->device, no) : 0;
}

/* A judged backend that ran; NULL: none did. */
static const struct backend *judged_of(const struct result *r)
{
    const struct backend *b = NULL;

    if (r->training && is_judged(r->training->backend))
        b = r->training->backend;
    for (int i = 0; i < r->n_ran; i++)
        if (is_judged(r->ran[i].call.backend))
            b = r->ran[i].call.backend;
    for (int i = 0; i < r->n_crossovers; i++)
        if (is_judged(r->crossover[i].backend))
            b = r->crossover[i].backend;
    return b;
}

void result_find_device(struct result *r, const struct experiment *x)
{
    const struct backend *b = judged_of(r);

    for (int i = 0; b && x->contexts && i < x->contexts->n; i++)
        if (x->contexts->of[i].machine == b->machine && x->contexts->of[i].chosen) {
            r->on_device = 1;
            r->device_number = x->contexts->of[i].device;
        }
}

struct call trial_on(const struct experiment *x, const struct trial *t, const struct backend *b,
                     const struct impl *k)
{
    struct call f = call_on(&t->call, b, k, context_of(x->contexts, b));
    f.in_place = t->in_place && is_judged(b);
    return f;
}

const char *ran_name(const struct ran *ran)
{
    return ran->name ? ran->name : ran->call.backend->name;
}

int ran_new(struct ran *ran, const struct run *c, const struct tensors *inputs,
            struct tensors *reused)
{
    *ran = (struct ran){.call = c->call, .predicted = op_memory(&c->call)};
    ran->t = reused ? reused : tensors_results(&c->call, inputs);
    return ran->t ? 0 : -1;
}

int ran_run(struct ran *ran, const struct run *c, const struct tensors *inputs)
{
    if (run_reserve(c) || ran_new(ran, c, inputs, NULL))
        return -1;
    return run_op(c, ran->t, &ran->outcome);
}

double result_worst(const struct result *r, const struct ran *ran, char tensor[TENSOR_TEXT])
{
    const struct trial *t = r->trial;
    double error = -1;

    *tensor = 0;
    for (int i = 0; i < r->verdicts.n; i++) {
        const struct verdict *v = &r->verdicts.v[i];
        const int shown = r->sampled ? !v->why : strcmp(v->check, "differences") == 0;
        if (!shown || strcmp(v->backend, ran_name(ran)) != 0 ||
            strcmp(v->kernel, ran->call.kernel->name) != 0)
            continue;
        if (!(v->error <= error)) {
            error = v->error;
            snprintf(tensor, TENSOR_TEXT, "%s", v->tensor);
        }
    }
    if (ran->call.backend == &ref64 || r->sampled)
        return error;
    FOR_RESULTS (&t->call, a, grad) {
        const unsigned flags = t->call.op->arg[a].flags;
        if ((flags & SAVED && !(ran->name && flags & OUT)) || !tensors_values(ran->t, a, grad))
            continue;
        const struct tensor_pair pair = tensor_pair(&t->call, a, grad, ran->t, r->ran[0].t);
        const double d = pair_distance(&pair).max;
        if (!(d <= error)) {
            error = d;
            tensor_name(t->call.op, a, grad, tensor);
        }
    }
    return error;
}

static void note(struct result *r, const char *what, const char *why)
{
    char line[sizeof r->skips + 8];
    const size_t used = strlen(r->skips), left = sizeof r->skips - used;

    if (left <= 2)
        return;
    snprintf(line, sizeof line, "%s: %s", what, why);
    quote_bytes(line, strlen(line), r->skips + used, left - 1); /* names of another's dump */
    strcat(r->skips, "\n");
}

void result_skip(struct result *r, const char *what, const char *why)
{
    r->skipped++;
    note(r, what, why);
}

void result_miss(struct result *r, const char *what, const char *why)
{
    r->missing++;
    note(r, what, why);
}

void result_uncheck(struct result *r, const char *what, const char *why)
{
    r->unchecked++;
    note(r, what, why);
}

void result_decline(struct result *r, const struct backend *b, const struct impl *k,
                    const char *why)
{
    for (int i = 0; i < r->n_declined; i++)
        if (r->declined[i].backend == b && r->declined[i].kernel == k &&
            strncmp(r->declined[i].why, why, sizeof r->declined[i].why - 1) == 0)
            return;
    if (r->n_declined == MAX_RAN)
        return;
    struct declined *d = &r->declined[r->n_declined++];
    *d = (struct declined){.backend = b, .kernel = k};
    snprintf(d->why, sizeof d->why, "%s", why);
}

int result_round_trips(struct result *r, const struct tensors *inputs, const volatile int *stop)
{
    const int n = r->trial->call.op->inverse ? r->n_ran : 0;
    int e = 0;

    for (int i = 0; !e && i < n && !*stop; i++)
        if (r->ran[i].t)
            e = round_trip(&r->ran[i].call, inputs, r->ran[i].t, &r->ran[i].trip);
    return e;
}

void result_free(struct result *r)
{
    tensors_free(r->inputs);
    free(r->crossover);
    for (int i = 0; i < r->n_ran; i++)
        tensors_free(r->ran[i].t);
    verdicts_free(&r->verdicts);
    verdicts_free(&r->seen);
    free(r->passing);
    if (r->sampled)
        sampled_free(r->sampled);
    free(r->sampled);
    training_free(r);
}
