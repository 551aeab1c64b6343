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

struct distance bytes_distance(const unsigned char *a, const unsigned char *b, int64_t n)
{
    int64_t differ = 0, first = n;

    #pragma omp parallel for reduction(+ : differ) reduction(min : first)
    for (int64_t i = 0; i < n; i++)
        if (a[i] != b[i]) {
            differ++;
            first = i < first ? i : first;
        }
    const double share = differ ? (double)differ / (double)n : 0;
    return (struct distance){share, share, differ ? first : 0};
}

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
    return alike(got[i], want[i]) || fabs(got[i] - want[i]) <= most;
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

int check_tensor(const char *check, const struct tensor_pair *pair, double bound,
                 struct verdicts *list)
{
    const struct call *c = pair->call;
    const int64_t n = op_count(c, pair->arg);
    const struct distance d = pair_distance(pair);
    char name[32];

    bound = op_is_bytes(c, pair->arg) ? 0 : bound;
    tensor_name(c->op, pair->arg, pair->grad, name);
    struct verdict *v = verdict_add(list, check, name, c->backend, c->kernel);
    if (!v)
        return -1;
    v->error = d.max;
    v->norm = d.norm;
    v->bound = bound;
    v->judged = v->elements = n;
    v->pass = bound > 0 ? isfinite(d.max) && d.max <= bound : pair_same(pair);
    values_index(c, pair->arg, d.worst, v->worst, sizeof v->worst);
    if (!v->pass)
        v->first_bad = first_bad_step(pair, bound);
    return 0;
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

/* Values of the oracle that are not finite, from inputs that are, have overflowed in double: the
 * order of operations says whether one is infinite or NaN.  Is the result right but for that? */
static int right_but_overflow(const struct tensor_pair *pair, const struct truth *t, double bound)
{
    const double *got = pair->got, *want = pair->want;
    int64_t n = op_count(pair->call, pair->arg);

    if (op_is_bytes(pair->call, pair->arg) || !finite_inputs(t) || all_finite(want, n))
        return 0;
    double *but = malloc(n * sizeof *but);
    for (int64_t i = 0; but && i < n; i++)
        but[i] = isfinite(want[i]) || isfinite(got[i]) ? got[i] : want[i];
    const int right = but && distance(but, want, n).max <= bound;
    free(but);
    return right;
}

const void *truth_wants(const struct truth *t, int arg, int grad)
{
    const int exact = t->call.op->arg[arg].flags & BIT_EXACT;
    return tensors_values(exact ? t->yard : t->oracle, arg, grad);
}

/* With a bound of 1 or more even a result that is far off passes, so that nothing is shown.  A
 * bound is infinite where values in the yardstick overflow its type. */
int check_within(const char *check, const struct tensor_pair *pair, struct bounds *bounds,
                 struct verdicts *list)
{
    static const double FAR = 0x1p-6;
    int at = list->n;
    const double *bound = &X_OR_G(*bounds, pair->arg, pair->grad);
    const int exact = pair->call->op->arg[pair->arg].flags & BIT_EXACT;

    do {
        list->n = at;
        if (check_tensor(check, pair, *bound, list))
            return -1;
    } while (!list->v[at].pass && *bound > 0 && bounds_sample_more(bounds));
    struct verdict *v = &list->v[at];
    if (exact && v->error == 0) { /* but for the signs of zeros */
        v->pass = 1;
        v->first_bad = -1;
    }
    int overflow = !v->pass && !exact && right_but_overflow(pair, bounds->truth, *bound);
    v->pass |= *bound == INFINITY || overflow;
    v->unjudged = overflow || (*bound >= 1 && v->pass && !(v->error <= FAR));
    return 0;
}

int check_parity(const struct tensors *got, struct bounds *bounds, struct verdicts *list)
{
    const struct truth *t = bounds->truth;

    FOR_RESULTS (&t->call, i, grad) {
        const struct tensor_pair pair = {&bounds->call, i, grad, tensors_values(got, i, grad),
                                         truth_wants(t, i, grad)};
        if (check_within("parity", &pair, bounds, list))
            return -1;
    }
    return 0;
}
