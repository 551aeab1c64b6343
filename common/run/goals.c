/* Goals, and the choice of the default kernel, as verdicts on times (goals.h). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/run/goals.h"
#include "common/run/noise.h"

/* The default may be slower than the best by this. */
static const double SLOWER_BY = .05;

/* ---- the kernels of a backend ---- */

static int is_timed(const struct ran *ran, enum pass p)
{
    return ran->outcome.runs[p] > 0;
}

/* The one that the trial names, or the default, which runs first; NULL: none ran. */
static const struct ran *first_of(const struct result *r, const struct backend *b)
{
    for (int i = 0; i < r->n_ran; i++)
        if (r->ran[i].call.backend == b)
            return &r->ran[i];
    return NULL;
}

static const struct ran *ran_of(const struct result *r, const char *backend, const char *kernel)
{
    for (int i = 0; i < r->n_ran; i++)
        if (strcmp(r->ran[i].call.backend->name, backend) == 0 &&
            strcmp(r->ran[i].call.kernel->name, kernel) == 0)
            return &r->ran[i];
    return NULL;
}

/* The fastest of them; *n becomes how many were timed. */
static const struct ran *best_of(const struct result *r, const struct backend *b, enum pass p,
                                 int *n)
{
    const struct ran *best = NULL;

    *n = 0;
    for (int i = 0; i < r->n_ran; i++) {
        const struct ran *ran = &r->ran[i];
        if (ran->call.backend != b || !is_timed(ran, p))
            continue;
        if (!best || ran->outcome.median[p] < best->outcome.median[p])
            best = ran;
        ++*n;
    }
    return best;
}

/* ---- a goal ---- */

/* Why it is not judged. */
struct reason {
    char text[400];
};

/* Why kernel `name` of b has no time. */
static void why_untimed(const struct result *r, const struct backend *b, const char *name,
                        struct reason *why)
{
    for (int i = 0; i < r->n_declined; i++)
        if (r->declined[i].backend == b && strcmp(r->declined[i].kernel->name, name) == 0) {
            snprintf(why->text, sizeof why->text, "%s %s declines: %s", b->name, name,
                     r->declined[i].why);
            return;
        }
    snprintf(why->text, sizeof why->text, "%s %s %s", b->name, name,
             ran_of(r, b->name, name) ? "failed parity and has no time" : "was not timed");
}

/* The longest time that reaches a fraction of a ceiling; 0 and why, where it is not known. */
static double bound_of_ceiling(const struct experiment *x, const struct ran *ran, enum pass p,
                               const struct goal *g, struct reason *why)
{
    double min_time[N_CEILINGS];

    if (!x->ceilings) {
        snprintf(why->text, sizeof why->text, "no ceilings measured (%s)",
                 x->no_ceilings ? x->no_ceilings : "not asked for");
        return 0;
    }
    min_times(x->ceilings, &ran->call, p, min_time);
    if (!(min_time[g->ceiling] > 0))
        snprintf(why->text, sizeof why->text, "the ceiling %s does not apply to %s of %s",
                 ceiling_names[g->ceiling], pass_names[p], ran->call.op->name);
    return min_time[g->ceiling] / g->value;
}

/* The kernel whose speed a goal is a fraction of; NULL and why, where it was not timed. */
static const struct ran *rival_of(const struct result *r, const struct ran *ran, enum pass p,
                                  const struct goal *g, struct reason *why)
{
    const struct backend *b = ran->call.backend;
    int n;

    if (g->kind == GOAL_BEST && *r->trial->kernel) {
        snprintf(why->text, sizeof why->text, "kernel = %s: no other was timed", r->trial->kernel);
        return NULL;
    }
    if (g->kind == GOAL_BEST)
        return best_of(r, b, p, &n);
    const struct ran *other = ran_of(r, b->name, g->kernel);
    if (other && is_timed(other, p))
        return other;
    why_untimed(r, b, g->kernel, why);
    return NULL;
}

/* The longest time that reaches the goal; not positive where it cannot be judged, and why. */
static double bound_of(const struct experiment *x, const struct result *r, const struct ran *ran,
                       enum pass p, struct reason *why)
{
    const struct goal *g = &r->trial->goal[p];

    if (!is_timed(ran, p)) {
        why_untimed(r, ran->call.backend, ran->call.kernel->name, why);
        return 0;
    }
    if (g->kind == GOAL_TIME)
        return g->value;
    if (g->kind == GOAL_CEILING)
        return bound_of_ceiling(x, ran, p, g, why);
    const struct ran *rival = rival_of(r, ran, p, g, why);
    return rival ? rival->outcome.median[p] / g->value : 0;
}

/* A median over its bound is missed, and fails unless it is only reported. */
static int add_verdict(const struct experiment *x, struct result *r, const char *check,
                       const struct ran *ran, enum pass p, double bound)
{
    struct verdict *v =
        verdict_add(&r->verdicts, check, pass_names[p], ran->call.backend, ran->call.kernel);

    if (!v)
        return -1;
    v->error = ran->outcome.median[p];
    v->bound = bound;
    const int reached = v->error <= v->bound;
    v->missed = !reached && x->goals_reported;
    v->pass = reached || v->missed;
    return 0;
}

/* Why no kernel of b ran. */
static void why_none(const struct result *r, const struct backend *b, struct reason *why)
{
    if (*r->trial->kernel)
        why_untimed(r, b, r->trial->kernel, why);
    else
        snprintf(why->text, sizeof why->text, "%s: all kernels decline", b->name);
}

static int judge_goal(const struct experiment *x, struct result *r, const struct backend *b,
                      enum pass p)
{
    const struct ran *ran = first_of(r, b);
    struct reason why = {""};
    double bound = 0;

    if (ran)
        bound = bound_of(x, r, ran, p, &why);
    else
        why_none(r, b, &why);
    if (bound > 0)
        return add_verdict(x, r, "goal", ran, p, bound);
    result_skip(r, goal_keys[p], why.text);
    return 0;
}

/* ---- the default ---- */

static int judge_default(const struct experiment *x, struct result *r, const struct backend *b,
                         enum pass p)
{
    const struct ran *first = first_of(r, b);
    int n;
    const struct ran *best = best_of(r, b, p, &n);

    if (*r->trial->kernel || n < 2 || !is_timed(first, p))
        return 0;
    const struct outcome *is = &first->outcome, *fastest = &best->outcome;
    if (is->runs[p] < ENOUGH_RUNS || fastest->runs[p] < ENOUGH_RUNS) {
        result_skip(r, "default", "fewer than 3 runs do not tell the noise");
        return 0;
    }
    const double noise = times_noise(is->spread[p], fastest->spread[p]);
    const double bound = fmax((1 + SLOWER_BY) * fastest->median[p], fastest->median[p] + noise);
    return add_verdict(x, r, "default", first, p, bound);
}

/* ---- all ---- */

/* Did a kernel of b run, or decline? */
static int takes_part(const struct result *r, const struct backend *b)
{
    int any = first_of(r, b) != NULL;
    for (int i = 0; i < r->n_declined; i++)
        any |= r->declined[i].backend == b;
    return any;
}

int goals_judge(const struct experiment *x, struct result *r)
{
    const struct trial *t = r->trial;
    int backends = 0, e = 0;

    for (int i = 0; !e && judged_backend(i); i++) {
        const struct backend *b = judged_backend(i);
        if (!takes_part(r, b))
            continue;
        backends++;
        for (enum pass p = FORWARD; !e && p < op_passes(t->call.op); p++) {
            if (t->goal[p].kind != GOAL_NONE)
                e = judge_goal(x, r, b, p);
            e = e || judge_default(x, r, b, p);
        }
    }
    for (enum pass p = FORWARD; !backends && p < op_passes(t->call.op); p++)
        if (t->goal[p].kind != GOAL_NONE)
            result_skip(r, goal_keys[p], "no kernel ran on a GPU");
    return e ? -1 : 0;
}

enum pass goals_pass(const struct verdict *v)
{
    return strcmp(v->tensor, pass_names[BACKWARD]) == 0 ? BACKWARD : FORWARD;
}

const struct ran *goals_other(const struct result *r, const struct verdict *v)
{
    const struct ran *ran = ran_of(r, v->backend, v->kernel);
    const enum pass p = goals_pass(v);
    const struct goal *g = &r->trial->goal[p];
    struct reason why;
    int n;

    if (strcmp(v->check, "default") == 0)
        return best_of(r, ran->call.backend, p, &n);
    return g->kind == GOAL_BEST || g->kind == GOAL_KERNEL ? rival_of(r, ran, p, g, &why) : NULL;
}
