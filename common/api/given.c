/* The library's interface: parity of the results that another program gave (ablate.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "common/api/api.h"
#include "common/base/err.h"
#include "common/base/types.h"

void bounds_as_given(struct bounds *bounds, const abl_result *r)
{
    FOR_RESULTS (&r->call, i, grad)
        if (X_OR_G(r->unit, i, grad) > 0)
            bounds_given_in(bounds, i, grad, X_OR_G(r->unit, i, grad));
}

/* x as the type stores it. */
static double stored_as(enum dtype type, double x)
{
    char bits[sizeof(double)];
    types[type].narrow(bits, &x, 1);
    types[type].widen(&x, bits, 1);
    return x;
}

/* May `got`, which that type does not hold, have come before the rounding to `want`?  A float has been
 * rounded before. */
static int rounds_to(enum dtype type, double got, double want)
{
    const double off = types[type].unit > types[F32].unit ? types[F32].unit * fabs(got) : 0;
    return stored_as(type, got) == want || stored_as(type, got - off) == want ||
           stored_as(type, got + off) == want;
}

/* A result that has one right value in its type can be given as it was before that rounding: then it is
 * what it is rounded to.  NULL after err_set(). */
static double *as_stored(const struct tensor_pair *pair)
{
    const enum dtype type = call_type(pair->call, pair->arg, pair->grad);
    const int64_t n = op_count(pair->call, pair->arg);
    const double *got = pair->got, *want = pair->want;
    double *x = malloc((size_t)n * sizeof *x);

    for (int64_t i = 0; x && i < n; i++)
        x[i] = stored_as(type, got[i]) != got[i] && rounds_to(type, got[i], want[i]) ? want[i]
                                                                                     : got[i];
    return x ? x : err_null("no memory for a result");
}

static int judge_pair(const struct tensor_pair *pair, struct bounds *bounds, struct verdicts *list)
{
    if (!(pair->call->op->arg[pair->arg].flags & BIT_EXACT))
        return check_within("parity", pair, bounds, list);
    struct tensor_pair stored = *pair;
    double *x = as_stored(pair);
    stored.got = x;
    const int e = !x || check_within("parity", &stored, bounds, list);
    free(x);
    return e ? -1 : 0;
}

int result_judge(const abl_result *r, struct bounds *bounds, const char *name,
                 struct verdicts *list)
{
    bounds_as_given(bounds, r);
    FOR_RESULTS (&r->call, i, grad) {
        if (!X_OR_G(r->has, i, grad))
            continue;
        const struct tensor_pair pair = {&r->call, i, grad, tensors_values(r->t, i, grad),
                                         truth_wants(bounds->truth, i, grad)};
        if (judge_pair(&pair, bounds, list))
            return -1;
        list->v[list->n - 1].backend = name;
    }
    return list->n ? 0 : err_set("of this result, nothing was set");
}
