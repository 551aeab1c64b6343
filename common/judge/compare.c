/* A result against the oracle: distances, and the verdicts on them (check.h). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/call/values.h"
#include "common/judge/check.h"

/* ---- lists of verdicts ---- */

void verdicts_free(struct verdicts *list)
{
    free(list->v);
    *list = (struct verdicts){0};
}

int verdicts_failed(const struct verdicts *list, int from)
{
    int failed = 0;
    for (int i = from; i < list->n; i++)
        failed += !list->v[i].pass;
    return failed;
}

int verdicts_unjudged(const struct verdicts *list, int from)
{
    int unjudged = 0;
    for (int i = from; i < list->n; i++)
        unjudged += list->v[i].unjudged;
    return unjudged;
}

int verdicts_missed(const struct verdicts *list)
{
    int missed = 0;
    for (int i = 0; i < list->n; i++)
        missed += list->v[i].missed;
    return missed;
}

int verdict_of_time(const struct verdict *v)
{
    return strcmp(v->check, "goal") == 0 || strcmp(v->check, "default") == 0;
}

const char *verdict_word(const struct verdict *v)
{
    return v->why        ? "not judged"
           : v->unjudged ? "cannot be judged"
           : v->missed   ? "missed"
           : v->pass     ? "pass"
                         : "fail";
}

struct verdict *verdict_add(struct verdicts *list, const char *check, const char *tensor,
                            const struct backend *b, const struct impl *k)
{
    struct verdict *v = grow(list->v, list->n, sizeof *v);
    if (!v)
        return err_null("no memory for %d verdicts", list->n + 1);
    list->v = v;
    v += list->n++;
    *v = (struct verdict){.check = check,
                          .backend = b->name,
                          .kernel = k->name,
                          .first_bad = -1,
                          .distance = "",
                          .power = power_unknown};
    snprintf(v->tensor, sizeof v->tensor, "%s", tensor);
    return v;
}

/* ---- results ---- */

struct distance pair_distance(const struct tensor_pair *pair)
{
    const int64_t n = op_count(pair->call, pair->arg);
    return op_is_bytes(pair->call, pair->arg) ? bytes_distance(pair->got, pair->want, n)
                                              : distance(pair->got, pair->want, n);
}

int pair_same(const struct tensor_pair *pair)
{
    const struct call *f = pair->call;
    return memcmp(pair->got, pair->want, op_count(f, pair->arg) * tensors_each(f, pair->arg)) == 0;
}

int same_bits(const double *a, const double *b, int64_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

int op_results(const struct call *f, int arg, int grad)
{
    const struct op *o = f->op;
    unsigned flags = o->arg[arg].flags;
    if (!op_has(f, arg))
        return 0;
    return grad ? flags & IN && flags & DIFF : !(flags & IN);
}

double *tensors_result(const struct tensors *t, int arg, int grad)
{
    return X_OR_G(*t, arg, grad);
}

int tensors_same(const struct call *f, const struct tensors *a, const struct tensors *b)
{
    int same = 1;
    FOR_RESULTS (f, i, grad)
        same &= pair_same(&(const struct tensor_pair){f, i, grad, tensors_values(a, i, grad),
                                                      tensors_values(b, i, grad)});
    return same;
}

/* The place of an element along the time axis, or -1. */
static int64_t time_of(const struct call *f, int arg, int64_t flat)
{
    const char *axis = op_time(f) ? strchr(op_shape(f, arg), op_time(f)) : NULL;

    if (!axis)
        return -1;
    for (const char *inner = axis + 1; *inner; inner++)
        flat /= DIM(f, *inner);
    return flat % DIM(f, *axis);
}

/* The size of the correct values, to which the bound of a distance is relative; 0 of bytes. */
static double size_of(const struct tensor_pair *pair)
{
    const double *want = pair->want;
    int64_t n = op_is_bytes(pair->call, pair->arg) ? 0 : op_count(pair->call, pair->arg);
    double size = 0;

    for (int64_t i = 0; i < n; i++)
        size = isfinite(want[i]) ? fmax(size, fabs(want[i])) : size;
    return size;
}

static int is_good(const struct tensor_pair *pair, int64_t i, double most)
{
    const double *got = pair->got, *want = pair->want;

    if (op_is_bytes(pair->call, pair->arg))
        return ((const unsigned char *)got)[i] == ((const unsigned char *)want)[i];
    return same_value(got[i], want[i]) || fabs(got[i] - want[i]) <= most;
}

/* The time step that all of a slice is of, or -1. */
static int64_t step_of(const struct call *f, int arg, int64_t flat, unsigned fixed)
{
    const char *shape = op_shape(f, arg), *axis = op_time(f) ? strchr(shape, op_time(f)) : NULL;
    return axis && fixed >> (axis - shape) & 1 ? time_of(f, arg, flat) : -1;
}

static int64_t first_bad_step(const struct tensor_pair *pair, double bound)
{
    const struct call *f = pair->call;
    const double most = bound * size_of(pair);
    int64_t n = op_count(f, pair->arg), first = -1;

    for (int64_t i = 0; i < n; i++) {
        if (is_good(pair, i, most))
            continue;
        int64_t t = time_of(f, pair->arg, i);
        if (first < 0 || t < first)
            first = t;
    }
    return first;
}

struct tensor_pair tensor_pair(const struct call *c, int arg, int grad, const struct tensors *got,
                               const struct tensors *want)
{
    return (struct tensor_pair){c, arg, grad, tensors_values(got, arg, grad),
                                tensors_values(want, arg, grad)};
}

/* ---- by its measures ---- */

/* The measure of a result that is the largest part of its bound. */
struct worst {
    enum distance_by by;
    double error, bound;
    int64_t at; /* flat index */
    unsigned fixed;
    int64_t coarse;       /* slices that cannot be judged */
    int64_t off, far_off; /* those that are over their bound, and over 100 times it */
};

static double part_of(double error, double bound)
{
    return error <= 0 || bound == INFINITY ? 0 : bound > 0 ? error / bound : INFINITY;
}

static int is_worse(const struct worst *w, double error, double bound)
{
    return part_of(error, bound) > part_of(w->error, w->bound);
}

static const unsigned ALL_FIXED = (1u << MAX_RANK) - 1;

static struct worst worst_of_all(const struct distances *d, const struct whole *bound)
{
    struct worst w = {BY_MAX, d->whole.of[BY_MAX], bound->of[BY_MAX], d->worst, ALL_FIXED, 0, 0, 0};

    for (enum distance_by m = BY_RMS; m < OF_ALL; m++)
        if (is_worse(&w, d->whole.of[m], bound->of[m])) {
            w.by = m;
            w.error = d->whole.of[m];
            w.bound = bound->of[m];
        }
    return w;
}

static const double FAR_OFF = 100;

/* One measure of a slice, which is so large. */
static void look_at_slice(struct worst *w, enum distance_by by, const double found[2], double size,
                          const struct slices *s, int64_t i)
{
    if (!is_worse(w, found[0], found[1]))
        return;
    size = size > 0 ? size : 1;
    w->by = by;
    w->error = found[0] / size;
    w->bound = found[1] / size;
    w->at = slice_at(s, i, &w->fixed);
}

static void worst_of_slices(struct worst *w, const struct distances *d, const struct bounds *b,
                            int arg, int grad)
{
    for (int64_t i = 0; i < d->slices.n; i++) {
        const struct slice *e = &d->slice[i];
        const struct slice most = bounds_of_slice(b, arg, grad, i, e);
        const int gains = e->n >= LEAST_FOR_GAIN;
        if (isinf(e->off) && isinf(X_OR_G(*b, arg, grad).of[BY_MAX])) {
            w->coarse++; /* what overflows in a sample may do so elsewhere in a kernel */
            continue;
        }
        look_at_slice(w, BY_SLICE, (double[]){e->off, most.off}, e->size, &d->slices, i);
        if (gains)
            look_at_slice(w, BY_SLICE_GAIN, (double[]){e->gain, most.gain}, e->size, &d->slices, i);
        w->off += part_of(e->off, most.off) > 1 || (gains && part_of(e->gain, most.gain) > 1);
        w->far_off += part_of(e->off, most.off) > FAR_OFF;
        w->coarse += most.off >= e->size && (!gains || most.gain >= e->size) && most.off > 0;
    }
}

/* Of bytes, and of what must have equal bits. */
static int check_bits(struct verdict *v, const struct tensor_pair *pair)
{
    const struct distance d = pair_distance(pair);

    v->error = d.max;
    v->norm = d.norm;
    v->pass = pair_same(pair);
    v->at = d.worst;
    v->fixed = ALL_FIXED;
    return 0;
}

static void verdict_set(struct verdict *v, const struct distances *d, const struct worst *w)
{
    v->error = w->error;
    v->norm = d->whole.of[BY_RMS];
    v->bound = w->bound;
    v->distance = distance_names[w->by];
    v->at = w->at;
    v->fixed = w->fixed;
    v->slices = d->slices.n;
    v->coarse = w->coarse;
    v->pass = part_of(w->error, w->bound) <= 1;
}

/* Where it is worst, and where it goes wrong. */
static void locate_verdict(struct verdict *v, const struct tensor_pair *pair, double most)
{
    values_slice(pair->call, pair->arg, v->at, v->fixed, v->worst, sizeof v->worst);
    v->first_bad = v->pass ? -1 : first_bad_step(pair, most);
    if (!v->pass && v->first_bad < 0 && v->fixed != ALL_FIXED)
        v->first_bad = step_of(pair->call, pair->arg, v->at, v->fixed);
}

static struct verdict *verdict_on(const char *check, const struct tensor_pair *pair,
                                  struct verdicts *list)
{
    const struct call *c = pair->call;
    char name[32];

    tensor_name(c->op, pair->arg, pair->grad, name);
    struct verdict *v = verdict_add(list, check, name, c->backend, c->kernel);
    if (v)
        v->judged = v->elements = op_count(c, pair->arg);
    return v;
}

int check_whole(const char *check, const struct tensor_pair *pair, const struct whole *bound,
                struct verdicts *list)
{
    const int bits = op_is_bytes(pair->call, pair->arg) || !(bound->of[BY_MAX] > 0);
    struct verdict *v = verdict_on(check, pair, list);
    struct distances d = {.slice = NULL};
    int e = !v;

    if (!e && bits)
        check_bits(v, pair);
    else if (!e && !(e = distances_find(&d, pair->call, pair->arg, pair->got, pair->want))) {
        const struct worst w = worst_of_all(&d, bound);
        verdict_set(v, &d, &w);
        v->slices = 0;
    }
    if (!e)
        locate_verdict(v, pair, bits ? 0 : bound->of[BY_MAX]);
    distances_free(&d);
    return e ? -1 : 0;
}

int check_tensor(const char *check, const struct tensor_pair *pair, double bound,
                 struct verdicts *list)
{
    const struct whole most = bound_of_max(bound);
    return check_whole(check, pair, &most, list);
}

/* ---- within its bound ---- */

static int all_finite(const double *x, int64_t n)
{
    for (int64_t i = 0; x && i < n; i++)
        if (!isfinite(x[i]))
            return 0;
    return 1;
}

static int finite_inputs(const struct truth *t)
{
    for (int i = 0; i < t->call.op->n_args; i++) {
        unsigned flags = t->call.op->arg[i].flags;
        const double *x = flags & IN ? t->inputs->x[i] : flags & OUT ? t->inputs->g[i] : NULL;
        if (!all_finite(x, op_count(&t->call, i)) ||
            !all_finite(t->inputs->g0[i], op_count(&t->call, i)))
            return 0;
    }
    return 1;
}

static struct worst worst_of(const struct distances *d, const struct bounds *b, int arg, int grad)
{
    struct worst w = worst_of_all(d, &X_OR_G(*b, arg, grad));
    worst_of_slices(&w, d, b, arg, grad);
    return w;
}

/* Values of the oracle that are not finite, from inputs that are, have overflowed in double: the
 * order of operations says whether one is infinite or NaN.  Is the result right but for that? */
static int right_but_overflow(const struct tensor_pair *pair, const struct bounds *b)
{
    const double *got = pair->got, *want = pair->want;
    int64_t n = op_count(pair->call, pair->arg);
    struct distances d = {.slice = NULL};

    if (!finite_inputs(b->truth) || all_finite(want, n))
        return 0;
    double *but = malloc(n * sizeof *but);
    for (int64_t i = 0; but && i < n; i++)
        but[i] = isfinite(want[i]) || isfinite(got[i]) ? got[i] : want[i];
    int right = but && !distances_find(&d, pair->call, pair->arg, but, want);
    if (right) {
        const struct worst w = worst_of(&d, b, pair->arg, pair->grad);
        right = part_of(w.error, w.bound) <= 1;
    }
    distances_free(&d);
    free(but);
    return right;
}

const void *truth_wants(const struct truth *t, int arg, int grad)
{
    const int exact = t->call.op->arg[arg].flags & BIT_EXACT;
    return tensors_values(exact ? t->yard : t->oracle, arg, grad);
}

/* Are most slices further off than any right result was by the first bounds?  Where a slope jumps at
 * a tie, a few are. */
static int is_far_off(const struct worst *w, const struct distances *d)
{
    return 2 * w->far_off > d->slices.n;
}

/* The measures within the bounds, after as many samples as it takes. */
static struct worst sampled_worst(const struct distances *d, const struct tensor_pair *pair,
                                  struct bounds *b)
{
    struct worst w;

    while (b->thorough && bounds_sample_more(b, 0))
        ;
    do
        w = worst_of(d, b, pair->arg, pair->grad);
    while (part_of(w.error, w.bound) > 1 && !(is_far_off(&w, d) && bounds_know_kernel(b)) &&
           bounds_sample_more(b, 16 * w.off < d->slices.n));
    return w;
}

/* With bounds of 1 or more even a result that is far off passes, so that nothing is shown.  A bound
 * is infinite where values in the yardstick overflow its type. */
static void note_unjudged(struct verdict *v, const struct whole *bound, double max)
{
    static const double FAR = 0x1p-6;
    const int coarse = bound->of[BY_MAX] >= 1 && bound->of[BY_RMS] >= 1 && bound->of[BY_GAIN] >= 1;

    v->unjudged |= coarse && v->pass && !(max <= FAR);
}

/* A result that has the bits which it should have, but for the signs of zeros. */
static int check_exact(const char *check, const struct tensor_pair *pair, struct verdicts *list)
{
    if (check_tensor(check, pair, 0, list))
        return -1;
    struct verdict *v = &list->v[list->n - 1];
    v->power = (struct power){0, NAN, 0, 1};
    if (v->error == 0 && pair->call->op->arg[pair->arg].flags & BIT_EXACT) {
        v->pass = 1;
        v->first_bad = -1;
    }
    return 0;
}

/* The first element between the parts of a buffer that is to be 0 and is not; -1: none. */
static int64_t first_in_gap(const struct tensor_pair *pair)
{
    const struct arg *a = &pair->call->op->arg[pair->arg];
    const double *got = pair->got, *want = pair->want;

    for (int64_t i = 0; a->gap && !pair->grad && i < op_count(pair->call, pair->arg); i++)
        if (want[i] == 0 && got[i] != 0 && a->gap(pair->call, pair->arg, i))
            return i;
    return -1;
}

/* However small it is. */
static void refuse_gap(struct verdict *v, const struct tensor_pair *pair)
{
    const int64_t at = first_in_gap(pair);

    if (at < 0 || !v->pass)
        return;
    v->pass = v->unjudged = 0;
    v->error = fabs(((const double *)pair->got)[at]);
    v->bound = 0;
    v->distance = "gap";
    v->at = at;
    v->fixed = ALL_FIXED;
}

int check_within(const char *check, const struct tensor_pair *pair, struct bounds *bounds,
                 struct verdicts *list)
{
    const struct whole *bound = &X_OR_G(*bounds, pair->arg, pair->grad);
    struct distances d;

    if (!(bound->of[BY_MAX] > 0))
        return check_exact(check, pair, list);
    struct verdict *v = verdict_on(check, pair, list);
    int e = !v || distances_find(&d, pair->call, pair->arg, pair->got, pair->want);
    if (!v)
        return -1;
    if (!e) {
        const struct worst w = sampled_worst(&d, pair, bounds);
        verdict_set(v, &d, &w);
        if (!v->pass && right_but_overflow(pair, bounds))
            v->pass = v->unjudged = 1;
        note_unjudged(v, bound, d.whole.of[BY_MAX]);
        refuse_gap(v, pair);
        locate_verdict(v, pair, bound->of[BY_MAX]);
        e = power_find(&v->power, &d, bounds, pair->arg, pair->grad);
    }
    distances_free(&d);
    return e ? -1 : 0;
}

int is_within(const struct tensor_pair *pair, const struct bounds *bounds)
{
    struct distances d;

    if (!(X_OR_G(*bounds, pair->arg, pair->grad).of[BY_MAX] > 0))
        return pair_same(pair);
    if (first_in_gap(pair) >= 0)
        return 0;
    if (distances_find(&d, pair->call, pair->arg, pair->got, pair->want))
        return -1;
    const struct worst w = worst_of(&d, bounds, pair->arg, pair->grad);
    distances_free(&d);
    return part_of(w.error, w.bound) <= 1;
}

int check_both(const char *check, const struct tensor_pair *pair, struct bounds *bounds,
               struct verdicts *list)
{
    const struct whole *bound = &X_OR_G(*bounds, pair->arg, pair->grad);
    const int at = list->n;

    do {
        const struct whole both = bound_of_both(bound, bound);
        list->n = at;
        if (check_whole(check, pair, &both, list))
            return -1;
    } while (!list->v[at].pass && bound->of[BY_MAX] > 0 && bounds_sample_more(bounds, 0));
    struct verdict *v = &list->v[at];
    v->unjudged = v->pass && bound->of[BY_MAX] >= 1 && bound->of[BY_RMS] >= 1 && v->error > 0;
    return 0;
}

int check_these(const struct tensors *got, struct bounds *bounds, const struct results *only,
                struct verdicts *list)
{
    const struct truth *t = bounds->truth;

    FOR_RESULTS (&t->call, i, grad) {
        const struct tensor_pair pair = {&bounds->call, i, grad, tensors_values(got, i, grad),
                                         truth_wants(t, i, grad)};
        if (results_have(only, i, grad) && check_within("parity", &pair, bounds, list))
            return -1;
    }
    return 0;
}

int check_parity(const struct tensors *got, struct bounds *bounds, struct verdicts *list)
{
    return check_these(got, bounds, NULL, list);
}
