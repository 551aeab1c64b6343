#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/timing.h"
#include "common/trial.h"
#include "data/input.h"

int trial_backends(const struct experiment *x, const struct trial *t,
                   const struct backend *list[16])
{
    int n = 0;

    list[n++] = &ref64;
    list[n++] = reference_of(t->type);
    for (int g = 0; gpu_backends[g]; g++) {
        int wanted = !x->n_backends;
        for (int i = 0; i < x->n_backends; i++)
            wanted |= x->backend[i] == gpu_backends[g];
        if (wanted && gpu_backends[g]->type == t->type)
            list[n++] = gpu_backends[g];
    }
    return n;
}

void result_skip(struct result *r, const char *what, const char *why)
{
    size_t used = strlen(r->skips);
    snprintf(r->skips + used, sizeof r->skips - used, "%s: %s\n", what, why);
    r->skipped++;
}

static int is_reference(const struct backend *b)
{
    return b == &ref64 || b == &ref32 || b == &ref16;
}

/* The kernel that the trial names, or the first that accepts the case; NULL
 * and the reason where there is none. */
static const struct impl *choose(const struct trial *t, const struct backend *b, char *why,
                                 size_t room)
{
    const struct impl *const *k = op_kernels(t->op, b);
    int any = is_reference(b) || !*t->kernel;

    snprintf(why, room, "%s has no kernel%s%s", t->op->name, any ? "" : " ", any ? "" : t->kernel);
    for (; *k; k++) {
        if (!any && strcmp((*k)->name, t->kernel) != 0)
            continue;
        const char *no = (*k)->declines ? (*k)->declines(&t->sizes) : NULL;
        if (!no)
            return *k;
        snprintf(why, room, "kernel %s declines: %s", (*k)->name, no);
    }
    return NULL;
}

static int run_on(const struct experiment *x, const struct trial *t, const struct backend *b,
                  const struct impl *k, struct result *r)
{
    struct ran *ran = &r->ran[r->n_ran];
    struct call c = {
        .op = t->op, .backend = b, .kernel = k, .sizes = &t->sizes, .repeats = x->repeats};

    if (run_reserve(&c))
        return -1;
    ran->backend = b;
    ran->kernel = k;
    ran->predicted = op_memory(t->op, b, k, &t->sizes);
    ran->t = tensors_copy(t->op, &t->sizes, r->inputs);
    if (!ran->t)
        return -1;
    r->n_ran++;
    return run_op(&c, ran->t, &ran->outcome);
}

enum { ORACLE, YARDSTICK }; /* their places in a result */

/* Parity, for a backend that is judged; properties for it and the yardstick. */
static int judge(const struct experiment *x, const struct trial *t, const struct ran *ran,
                 struct truth *truth, trial_step *step, void *data, struct result *r)
{
    struct bounds bounds;
    struct call c = {
        .op = t->op, .backend = ran->backend, .kernel = ran->kernel, .sizes = &t->sizes};

    bounds_from(&bounds, ran->backend, ran->kernel, truth);
    if (x->checks & CHECK_PARITY && ran != &r->ran[YARDSTICK] &&
        check_parity(ran->t, &bounds, &r->verdicts))
        return -1;
    if (!(x->checks & CHECK_PROPERTIES))
        return 0;
    step("properties", data);
    return check_properties(&c, r->inputs, &bounds, &r->verdicts);
}

static int judge_all(const struct experiment *x, const struct trial *t, const volatile int *stop,
                     trial_step *step, void *data, struct result *r)
{
    struct truth truth = {.oracle = r->ran[ORACLE].t,
                          .yard = r->ran[YARDSTICK].t,
                          .op = t->op,
                          .sizes = &t->sizes,
                          .backend = r->ran[YARDSTICK].backend,
                          .inputs = r->inputs};
    int e = 0;

    if (!(x->checks & (CHECK_PARITY | CHECK_PROPERTIES)))
        return 0;
    e = truth_begin(&truth);
    for (int i = YARDSTICK; !e && i < r->n_ran && !*stop; i++)
        e = judge(x, t, &r->ran[i], &truth, step, data, r);
    return e;
}

/* Every kernel of b that accepts the case; *n becomes how many do. */
static int run_each(const struct experiment *x, const struct trial *t, const struct backend *b,
                    const volatile int *stop, struct result *r, int *n)
{
    for (const struct impl *const *k = op_kernels(t->op, b); *k && !*stop; k++) {
        if ((*k)->declines && (*k)->declines(&t->sizes))
            continue;
        if (r->n_ran == MAX_RAN)
            return err_set("more than %d kernels", MAX_RAN);
        if (run_on(x, t, b, *k, r))
            return -1;
        ++*n;
    }
    return 0;
}

static int run_all(const struct experiment *x, const struct trial *t, const volatile int *stop,
                   trial_step *step, void *data, struct result *r)
{
    const struct backend *list[16];
    int n = trial_backends(x, t, list), judged = 0;

    for (int i = 0; i < n; i++) {
        char why[200];
        const char *no = list[i]->unavailable();
        const struct impl *k = no ? NULL : choose(t, list[i], why, sizeof why);
        if (*stop)
            return err_set("interrupted");
        if (!k && is_reference(list[i]))
            return err_set("%s: %s", list[i]->name, no ? no : why);
        if (!k) {
            result_skip(r, list[i]->name, no ? no : why);
            continue;
        }
        step(list[i]->name, data);
        if (x->every_kernel && i > YARDSTICK && !*t->kernel) {
            if (run_each(x, t, list[i], stop, r, &judged))
                return -1;
            continue;
        }
        if (run_on(x, t, list[i], k, r))
            return -1;
        judged += i > YARDSTICK;
    }
    if (x->checks & CHECK_PARITY && !judged && !r->skipped)
        result_skip(r, "parity", "no GPU backend was asked for");
    if (x->checks & CHECK_DIFFERENCES) {
        step("differences", data);
        if (check_differences(t->op, &t->sizes, r->ran[ORACLE].t, 0, x->directions, stop,
                              &r->verdicts))
            return -1;
    }
    if (judge_all(x, t, stop, step, data, r))
        return -1;
    return *stop ? err_set("interrupted") : 0;
}

int trial_run(const struct experiment *x, const struct trial *t, const volatile int *stop,
              trial_step *step, void *data, struct result *r)
{
    *r = (struct result){.trial = t};
    if (x->measure == MEASURE_REGIME)
        return regime_run(x, t, stop, step, data, r);
    struct tensors *inputs = r->inputs = tensors_new(t->op, &t->sizes);
    if (!inputs)
        return -1;
    step("inputs", data);
    if (input_fill(t, inputs, &r->from))
        return TRIAL_BAD_INPUT;
    tensors_round(inputs, t->op, &t->sizes, reference_of(t->type));
    int e = x->measure == MEASURE_TIME ? timing_run(x, t, stop, step, data, r)
                                       : run_all(x, t, stop, step, data, r);
    r->failed = verdicts_failed(&r->verdicts, 0);
    return e;
}

void result_free(struct result *r)
{
    tensors_free(r->inputs);
    free(r->growth);
    for (int i = 0; i < r->n_ran; i++)
        tensors_free(r->ran[i].t);
    verdicts_free(&r->verdicts);
}
