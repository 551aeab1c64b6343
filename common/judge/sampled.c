/* Judges the results of a case by a sample (sampled.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/call/values.h"
#include "common/judge/sampled.h"

/* ---- what it is judged by ---- */

static struct cut *find_cut(const struct sampled *s, const char *axes)
{
    for (int i = 0; i < s->n_cuts; i++)
        if (strcmp(s->cut[i].axes, axes) == 0)
            return &s->cut[i];
    return NULL;
}

struct cut *sampled_cut(const struct sampled *s, int arg)
{
    char axes[SAMPLE_AXES];

    sample_axes(&s->call, arg, axes);
    if (!*axes)
        return NULL;
    sample_cut_axes(&s->call, &s->sample, arg, axes);
    return find_cut(s, axes);
}

static int add_cut(struct sampled *s, const char *axes)
{
    struct cut *more = grow(s->cut, s->n_cuts, sizeof *more);
    if (!more)
        return err_set("no memory for a sample");
    s->cut = more;
    struct cut *c = &more[s->n_cuts++];
    *c = (struct cut){.inputs = NULL};
    strcpy(c->axes, axes);
    return sample_cut(&c->call, &s->call, &s->sample, axes);
}

int sampled_cuts(struct sampled *s, const struct call *f, int most, uint64_t seed)
{
    char axes[SAMPLE_AXES];

    *s = (struct sampled){.call = *f, .seed = seed};
    sample_draw(&s->sample, f, most, seed);
    FOR_RESULTS (f, i, grad) {
        sample_axes(f, i, axes);
        if (!*axes)
            continue;
        sample_cut_axes(f, &s->sample, i, axes);
        if (!find_cut(s, axes) && add_cut(s, axes))
            return -1;
    }
    return 0;
}

int cut_find(struct cut *c, struct tensors *inputs)
{
    c->inputs = inputs;
    return inputs ? truth_find(&c->truth, &c->call, inputs) : -1;
}

int sampled_find(struct sampled *s, const struct call *f, const struct tensors *inputs,
                 uint64_t seed)
{
    return sampled_find_rows(s, f, inputs, SAMPLE_ROWS, seed);
}

int sampled_find_rows(struct sampled *s, const struct call *f, const struct tensors *inputs,
                      int most, uint64_t seed)
{
    int e = sampled_cuts(s, f, most, seed);

    s->inputs = inputs;
    for (int i = 0; !e && i < s->n_cuts; i++) {
        struct cut *c = &s->cut[i];
        e = cut_find(c, sample_inputs(&c->call, &s->call, &s->sample, c->axes, inputs));
    }
    return e;
}

void sampled_free(struct sampled *s)
{
    for (int i = 0; i < s->n_cuts; i++) {
        tensors_free(s->cut[i].inputs);
        truth_free(&s->cut[i].truth);
    }
    for (int i = 0; i < s->n_sums; i++)
        free(s->sums[i].U);
    free(s->cut);
    free(s->sums);
    *s = (struct sampled){.n_cuts = 0};
}

/* ---- judged ---- */

/* A result of the cut: a copy of these elements of the whole. */
static void *gathered(const struct tensors *got, const struct sampled *s, const struct cut *c,
                      int arg, int grad)
{
    void *few = malloc(op_count(&c->call, arg) * tensors_each(&c->call, arg));

    if (!few)
        return err_null("no memory for a sample of %s", s->call.op->arg[arg].name);
    sample_gather(&s->call, &s->sample, c->axes, arg, tensors_values(got, arg, grad), few);
    return few;
}

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = isfinite(x[i]) ? fmax(most, fabs(x[i])) : most;
    return most;
}

/* The place in the whole of the worst element, or slice, which the verdict has as one of the cut. */
static void locate_worst(const struct sampled *s, const struct cut *c,
                         const struct tensor_pair *pair, struct verdict *v)
{
    const struct cut_map at = sample_map(&s->call, &s->sample, c->axes, pair->arg);

    values_slice(&s->call, pair->arg, map_index(&at, v->at), v->fixed, v->worst, sizeof v->worst);
    v->judged = op_count(&c->call, pair->arg);
    v->elements = op_count(&s->call, pair->arg);
    if (op_time(&s->call) && strchr(c->axes, op_time(&s->call)))
        v->first_bad = -1; /* it counts sampled steps */
}

/* What a result's sample x says of all its elements. */
static struct expected expected_of(const struct cut *c, int arg, int grad, const double *x,
                                   struct bounds *bounds)
{
    const double *want = tensors_result(c->truth.oracle, arg, grad);
    const int64_t n = op_count(&c->call, arg);
    const double error =
        fmax(X_OR_G(*bounds, arg, grad).of[BY_MAX] / SLACK, distance(x, want, n).max);

    return (struct expected){error, largest(want, n), bounds};
}

static int not_judged(const struct call *f, int arg, int grad, struct verdicts *list)
{
    char name[32];

    tensor_name(f->op, arg, grad, name);
    struct verdict *v = verdict_add(list, "parity", name, f->backend, f->kernel);
    if (!v)
        return -1;
    v->pass = v->unjudged = 1;
    v->why = "its elements are sums over all rows";
    v->elements = op_count(f, arg);
    return 0;
}

int check_cut(const void *x, const struct sampled *s, int arg, int grad, struct bounds *bounds,
              struct verdicts *list)
{
    struct cut *c = sampled_cut(s, arg);

    if (!c)
        return not_judged(&bounds->call, arg, grad, list);
    const struct call few =
        call_on(&c->call, bounds->call.backend, bounds->call.kernel, bounds->call.context);
    const struct tensor_pair pair = {&few, arg, grad, x, truth_wants(&c->truth, arg, grad)};
    if (check_within("parity", &pair, bounds, list))
        return -1;
    locate_worst(s, c, &pair, &list->v[list->n - 1]);
    return 0;
}

/* One result: its sample, then all its elements where they are those of a product. */
static int check_result(const struct tensors *got, const struct call *f, struct sampled *s, int arg,
                        int grad, struct verdicts *list)
{
    struct cut *c = sampled_cut(s, arg);
    const struct product *p = product_of(f, arg, grad);
    void *x = c ? gathered(got, s, c, arg, grad) : NULL;
    struct bounds bounds = {.call = *f};

    if (c)
        bounds_from(&bounds, f, &c->truth);
    int failed = (c && !x) || check_cut(x, s, arg, grad, &bounds, list);
    if (!failed && c && p && *c->axes && list->v[list->n - 1].pass &&
        isfinite(X_OR_G(bounds, arg, grad).of[BY_MAX])) {
        const struct expected e = expected_of(c, arg, grad, x, &bounds);
        failed = check_product(got, f, s, p, &e, list);
    }
    free(x);
    return failed ? -1 : 0;
}

/* Those of `only`, or all. */
static int check_some(const struct tensors *got, const struct call *f, struct sampled *s,
                      const struct results *only, struct verdicts *list)
{
    FOR_RESULTS (&s->call, i, grad)
        if (results_have(only, i, grad) && check_result(got, f, s, i, grad, list))
            return -1;
    return 0;
}

int check_sampled(const struct tensors *got, const struct call *f, struct sampled *s,
                  struct verdicts *list)
{
    return check_some(got, f, s, NULL, list);
}

int check_case(const struct judge *j, const struct call *f, const struct tensors *got,
               struct verdicts *list)
{
    struct bounds bounds;

    if (j->sampled)
        return check_some(got, f, j->sampled, j->only, list);
    bounds_from(&bounds, f, j->truth);
    return check_these(got, &bounds, j->only, list);
}
