/* The checks of tensors: bounds, parity, and the verdicts on them (check.h). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/judge/check.h"
#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/call/values.h"

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

const char *verdict_word(const struct verdict *v)
{
    return v->unjudged ? "cannot be judged" : v->pass ? "pass" : "fail";
}

struct verdict *verdict_add(struct verdicts *list, const char *check, const char *tensor,
                            const struct backend *b, const struct impl *k)
{
    struct verdict *v = grow(list->v, list->n, sizeof *v);
    if (!v)
        return err_null("no memory for %d verdicts", list->n + 1);
    list->v = v;
    v += list->n++;
    *v = (struct verdict){.check = check, .backend = b->name, .kernel = k->name, .first_bad = -1};
    snprintf(v->tensor, sizeof v->tensor, "%s", tensor);
    return v;
}

/* ---- distances ---- */

/* The sums and maxima of distance(), of one chunk or of all elements. */
struct partial {
    double worst, size, sum, all;
    int64_t at;
    int infinitely;
};

/* Are both the same value, or both NaN? */
static int alike(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static struct partial partial_distance(const double *a, const double *b, int64_t from, int64_t to)
{
    struct partial p = {.at = from};

    for (int64_t i = from; i < to; i++) {
        if (!isfinite(b[i]) && alike(a[i], b[i]))
            continue;
        double off = fabs(a[i] - b[i]);
        if (!isfinite(off))
            return (struct partial){.at = i, .infinitely = 1};
        if (off > p.worst) {
            p.worst = off;
            p.at = i;
        }
        p.size = fmax(p.size, fabs(b[i]));
        p.sum += off * off;
        p.all += b[i] * b[i];
    }
    return p;
}

/* All chunks have one size, so that the sums do not depend on the number of threads. */
struct distance distance(const double *a, const double *b, int64_t n)
{
    enum { CHUNK = 1 << 16, MANY = 1 << 8 }; /* part[] is on the stack */
    struct partial whole = {.at = 0}, part[MANY];

    for (int64_t from = 0; from < n; from += (int64_t)CHUNK * MANY) {
        int64_t left = (n - from + CHUNK - 1) / CHUNK, chunks = left < MANY ? left : MANY;
        #pragma omp parallel for if (chunks > 1)
        for (int64_t p = 0; p < chunks; p++) {
            int64_t begin = from + p * CHUNK, end = begin + CHUNK;
            part[p] = partial_distance(a, b, begin, end < n ? end : n);
        }
        for (int64_t p = 0; p < chunks; p++) {
            if (part[p].infinitely)
                return (struct distance){INFINITY, INFINITY, part[p].at};
            if (part[p].worst > whole.worst) {
                whole.worst = part[p].worst;
                whole.at = part[p].at;
            }
            whole.size = fmax(whole.size, part[p].size);
            whole.sum += part[p].sum;
            whole.all += part[p].all;
        }
    }
    double size = whole.size > 0 ? whole.size : 1, all = whole.all > 0 ? whole.all : 1;
    return (struct distance){whole.worst == 0 ? 0 : whole.worst / size,
                             whole.sum == 0 ? 0 : sqrt(whole.sum / all), whole.at};
}

int same_bits(const double *a, const double *b, int64_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

/* ---- results ---- */

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
        same &= same_bits(tensors_result(a, i, grad), tensors_result(b, i, grad), op_count(f, i));
    return same;
}

/* The place of an element along the time axis, or -1. */
static int64_t time_of(const struct op *o, const struct call *f, int arg, int64_t flat)
{
    const char *axis = o->time ? strchr(op_shape(f, arg), o->time) : NULL;

    if (!axis)
        return -1;
    for (const char *inner = axis + 1; *inner; inner++)
        flat /= DIM(f, *inner);
    return flat % DIM(f, *axis);
}

static int64_t first_bad_step(const struct tensor_pair *pair, double bound)
{
    const struct op *o = pair->call->op;
    const struct call *f = pair->call;
    const double *got = pair->got, *want = pair->want;
    int64_t n = op_count(f, pair->arg), first = -1;
    double size = 0;

    for (int64_t i = 0; i < n; i++)
        size = isfinite(want[i]) ? fmax(size, fabs(want[i])) : size;
    for (int64_t i = 0; i < n; i++) {
        if (alike(got[i], want[i]) || fabs(got[i] - want[i]) <= bound * size)
            continue;
        int64_t t = time_of(o, f, pair->arg, i);
        if (first < 0 || t < first)
            first = t;
    }
    return first;
}

struct tensor_pair tensor_pair(const struct call *c, int arg, int grad, const struct tensors *got,
                               const struct tensors *want)
{
    return (struct tensor_pair){c, arg, grad, tensors_result(got, arg, grad),
                                tensors_result(want, arg, grad)};
}

int check_tensor(const char *check, const struct tensor_pair *pair, double bound,
                 struct verdicts *list)
{
    const struct call *c = pair->call;
    int64_t n = op_count(c, pair->arg);
    struct distance d = distance(pair->got, pair->want, n);
    char name[32];

    tensor_name(c->op, pair->arg, pair->grad, name);
    struct verdict *v = verdict_add(list, check, name, c->backend, c->kernel);
    if (!v)
        return -1;
    v->error = d.max;
    v->norm = d.norm;
    v->bound = bound;
    v->pass = bound > 0 ? isfinite(d.max) && d.max <= bound : same_bits(pair->got, pair->want, n);
    values_index(c, pair->arg, d.worst, v->worst, sizeof v->worst);
    if (!v->pass)
        v->first_bad = first_bad_step(pair, bound);
    return 0;
}

/* ---- truth and bounds ---- */

const struct backend *yardstick(const struct backend *b)
{
    return reference_of(b->type);
}

double coarsest_unit(const struct call *f)
{
    double unit = 0;
    for (int i = 0; i < f->op->n_args; i++)
        if (op_has(f, i))
            unit = fmax(unit, types[f->type[i]].unit);
    return unit;
}

/* 0 if no element is finite. */
static double largest_finite(const double *x, int64_t n)
{
    double largest = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        largest = isfinite(x[i]) ? fmax(largest, x[i]) : largest;
    return isfinite(largest) ? largest : 0;
}

/* Perturb n elements in rows, each of which is of a tensor that is BELOW; row 0: of no such one. */
static void perturb(double *x, int64_t n, int64_t row, double unit, uint64_t key)
{
    int64_t step = row ? row : 1;

    #pragma omp parallel for
    for (int64_t j = 0; j < n; j += step) {
        double top = row ? largest_finite(x + j, row) : 0;
        for (int64_t k = j; k < j + step; k++) {
            double of = row ? 2 + top - x[k] : x[k];
            if (isfinite(x[k]))
                x[k] += draw_uniform(key, k) < 0.5 ? unit * of : -unit * of;
        }
    }
}

void tensors_perturb(struct tensors *t, const struct call *f, double unit, int which)
{
    const struct op *o = f->op;
    for (int i = 0; i < o->n_args; i++) {
        double *x = o->arg[i].flags & IN ? t->x[i] : o->arg[i].flags & OUT ? t->g[i] : NULL;
        uint64_t key = draw_key(1 + which, o->arg[i].name);
        const char *shape = op_shape(f, i);
        int64_t row = o->arg[i].flags & BELOW ? DIM(f, shape[strlen(shape) - 1]) : 0;
        if (o->arg[i].flags & WHOLE)
            continue;
        if (x)
            perturb(x, op_count(f, i), row, unit, key);
        if (t->g0[i])
            perturb(t->g0[i], op_count(f, i), 0, unit, draw_key(key, "gradient"));
    }
}

/* The case on b's reference. */
static struct run reference_on(const struct truth *t, const struct backend *b)
{
    return (struct run){.call = call_on(&t->call, b, op_kernels(t->call.op, b)[0])};
}

static struct tensors *reference_run(const struct truth *t, const struct backend *b,
                                     const struct tensors *inputs)
{
    const struct run c = reference_on(t, b);
    return run_copy(&c, inputs, NULL);
}

/* Keep the distance of each result of `got` from `want`, times `factor`, where it is the largest so
 * far. */
static void see(const struct truth *t, struct reach *reach, const struct tensors *got,
                const struct tensors *want, double factor)
{
    FOR_RESULTS (&t->call, i, grad) {
        double *seen = &X_OR_G(*reach, i, grad);
        if (t->call.op->arg[i].flags & WHOLE)
            continue;
        struct distance d = distance(tensors_result(got, i, grad), tensors_result(want, i, grad),
                                     op_count(&t->call, i));
        *seen = fmax(*seen, factor * d.max);
    }
}

/* Run the oracle on these inputs, with errors as the run says. */
static int see_oracle(const struct truth *t, struct reach *reach, const struct run *c,
                      const struct tensors *inputs)
{
    struct tensors *oracle = run_copy(c, inputs, NULL);

    if (oracle)
        see(t, reach, oracle, t->oracle, 1);
    tensors_free(oracle);
    return oracle ? 0 : -1;
}

/* Run the oracle on inputs that are off by a rounding; and on the exact inputs, with the tensors
 * that forward leaves to backward off by a rounding, and then, but for the first sample, with all
 * intermediate values so: those that are stored by the type's, those in registers by float's. */
static int sample_oracle(struct truth *t, const struct tensors *moved, double unit, int which)
{
    const struct run exact = reference_on(t, &ref64);
    struct run between = exact, noisy = exact;

    between.between = unit;
    noisy.noise = (struct noise){(float)types[t->call.backend->type].unit, (float)types[F32].unit,
                                 (float)types[F32].unit, (unsigned)which};
    return see_oracle(t, &t->reach, &exact, moved) ||
                   see_oracle(t, &t->reach, &between, t->inputs) ||
                   (which && see_oracle(t, &t->reach, &noisy, t->inputs))
               ? -1
               : 0;
}

/* Compare the yardstick with the oracle at inputs near the case's, where its roundings differ. */
static int sample_yardstick(struct truth *t, struct tensors *moved)
{
    const struct backend *yard = yardstick(t->call.backend);

    const struct call rounded = call_on(&t->call, yard, NULL);

    tensors_round(moved, &rounded);
    struct tensors *oracle = reference_run(t, &ref64, moved);
    struct tensors *other = oracle ? reference_run(t, yard, moved) : NULL;
    if (other)
        see(t, &t->reach, other, oracle, 1);
    tensors_free(oracle);
    tensors_free(other);
    return other ? 0 : -1;
}

/* Take one more sample of both.  The first is of the oracle alone, since the yardstick's results at
 * the case's own inputs are known. */
static int sample(struct truth *t, int which)
{
    static const double BESIDE[] = {0x1p-10, 0x1p-7, 0x1p-4};
    const double unit = coarsest_unit(&t->call);
    const int both = which && yardstick(t->call.backend)->type == t->call.backend->type;
    struct tensors *moved = tensors_copy(&t->call, t->inputs);
    struct tensors *beside = moved && both ? tensors_copy(&t->call, t->inputs) : NULL;
    int e = !moved || (both && !beside);

    if (!e) {
        tensors_perturb(moved, &t->call, unit, which);
        e = sample_oracle(t, moved, unit, which);
    }
    if (!e && both) {
        tensors_perturb(beside, &t->call,
                        which % 2 ? unit : fmax(unit, BESIDE[which / 2 % COUNT(BESIDE)]), which);
        e = sample_yardstick(t, beside);
    }
    tensors_free(moved);
    tensors_free(beside);
    return e ? -1 : 0;
}

int truth_begin(struct truth *t)
{
    double finer = types[t->call.backend->type].unit / types[yardstick(t->call.backend)->type].unit;

    memset(&t->reach, 0, sizeof t->reach);
    t->samples = 1;
    see(t, &t->reach, t->yard, t->oracle, finer);
    return sample(t, 0);
}

int truth_find(struct truth *t, const struct call *f, const struct tensors *inputs)
{
    *t = (struct truth){.call = *f, .inputs = inputs};
    t->oracle = reference_run(t, &ref64, inputs);
    t->yard = t->oracle ? reference_run(t, yardstick(f->backend), inputs) : NULL;
    return t->yard ? truth_begin(t) : -1;
}

void truth_free(struct truth *t)
{
    tensors_free(t->oracle);
    tensors_free(t->yard);
}

static void bounds_set(struct bounds *b)
{
    const struct truth *t = b->truth;

    FOR_RESULTS (&t->call, i, grad) {
        const enum dtype type = call_type(&b->call, i, grad);
        double unit = fmax(types[type].unit, impl_declares(&b->call)->unit);
        double seen = fmax(X_OR_G(t->reach, i, grad), X_OR_G(b->approximate, i, grad));
        if (!(t->call.op->arg[i].flags & WHOLE))
            X_OR_G(*b, i, grad) = fmax(SLACK * seen, 4 * unit);
    }
}

void bounds_from(struct bounds *to, const struct call *f, struct truth *t)
{
    *to = (struct bounds){.truth = t, .call = *f, .samples = 1};
    bounds_set(to);
}

/* Run the oracle with special functions that are off by as much as the kernel's. */
static int sample_approximate(struct bounds *b, int which)
{
    const struct truth *t = b->truth;
    struct run c = reference_on(t, &ref64);

    c.noise =
        (struct noise){.special = (float)impl_declares(&b->call)->unit, .key = (unsigned)which};
    return c.noise.special > 0 ? see_oracle(t, &b->approximate, &c, t->inputs) : 0;
}

/* Take samples until there are four times as many, and update the bounds; 0: there are enough,
 * which for a case of much work is sooner. */
static int take_more(struct bounds *b)
{
    enum { MAX_SAMPLES = 64, MAX_OF_MUCH = 16 };
    static const double MUCH = 1e9; /* operations */
    struct truth *t = b->truth;
    double work = t->call.op->flops(&t->call, FORWARD) + t->call.op->flops(&t->call, BACKWARD);
    int most = work > MUCH ? MAX_OF_MUCH : MAX_SAMPLES, more = 4 * b->samples;

    if (more > most)
        return 0;
    for (; b->samples < more; b->samples++) {
        int e = 0;
        if (b->samples == t->samples && !(e = sample(t, t->samples)))
            t->samples++;
        if (e || sample_approximate(b, b->samples))
            return 0;
    }
    bounds_set(b);
    return 1;
}

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

/* Values of the oracle that are not finite, from inputs that are, have overflowed in double: the
 * order of operations says whether one is infinite or NaN.  Is the result right but for that? */
static int right_but_overflow(const struct tensor_pair *pair, const struct truth *t, double bound)
{
    int64_t n = op_count(pair->call, pair->arg);
    double *got = finite_inputs(t) && !all_finite(pair->want, n) ? malloc(n * sizeof *got) : NULL;
    int right = got != NULL;

    for (int64_t i = 0; got && i < n; i++)
        got[i] = isfinite(pair->want[i]) || isfinite(pair->got[i]) ? pair->got[i] : pair->want[i];
    right = right && distance(got, pair->want, n).max <= bound;
    free(got);
    return right;
}

/* With a bound of 1 or more even a result that is far off passes, so that nothing is shown.  A
 * bound is infinite where values in the yardstick overflow its type. */
int check_within(const char *check, const struct tensor_pair *pair, struct bounds *bounds,
                 struct verdicts *list)
{
    static const double FAR = 0x1p-6;
    int at = list->n;
    const double *bound = &X_OR_G(*bounds, pair->arg, pair->grad);

    do {
        list->n = at;
        if (check_tensor(check, pair, *bound, list))
            return -1;
    } while (!list->v[at].pass && *bound > 0 && take_more(bounds));
    struct verdict *v = &list->v[at];
    int overflow = !v->pass && right_but_overflow(pair, bounds->truth, *bound);
    v->pass |= *bound == INFINITY || overflow;
    v->unjudged = overflow || (*bound >= 1 && v->pass && !(v->error <= FAR));
    return 0;
}

int check_parity(const struct tensors *got, struct bounds *bounds, struct verdicts *list)
{
    const struct truth *t = bounds->truth;

    FOR_RESULTS (&t->call, i, grad) {
        const struct tensor_pair pair = tensor_pair(&bounds->call, i, grad, got, t->oracle);
        if (check_within("parity", &pair, bounds, list))
            return -1;
    }
    return 0;
}
