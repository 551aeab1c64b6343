/* The growth of errors with time (growth_text.h). */
#include "config.h"

#include <math.h>
#include <string.h>

#include "common/report/growth_text.h"

/* The steps of a tensor, each of `inner` elements at a time, again and again until all n have come. */
struct steps {
    int64_t steps, inner, n;
};

static int steps_of(const struct call *f, int arg, struct steps *to)
{
    const char *shape = op_shape(f, arg), *at = f->op->time ? strchr(shape, f->op->time) : NULL;

    if (!at || op_is_bytes(f, arg) || DIM(f, f->op->time) < QUARTERS)
        return 0;
    *to = (struct steps){DIM(f, f->op->time), 1, op_count(f, arg)};
    for (const char *c = at + 1; *c; c++)
        to->inner *= DIM(f, *c);
    return to->n > 0;
}

int growth_of(const struct call *f, int arg, const double *got, const double *want,
              struct quarters *to)
{
    double errors[QUARTERS] = {0}, all = 0;
    int64_t count[QUARTERS] = {0}, finite = 0;
    struct steps s;

    if (!steps_of(f, arg, &s))
        return 0;
    for (int64_t first = 0, step = 0; first < s.n; first += s.inner, step++) {
        const int quarter = (int)(step % s.steps * QUARTERS / s.steps);
        for (int64_t i = first; i < first + s.inner; i++) {
            if (!isfinite(want[i]) || !isfinite(got[i]))
                continue;
            errors[quarter] += (got[i] - want[i]) * (got[i] - want[i]);
            all += want[i] * want[i];
            count[quarter]++;
            finite++;
        }
    }
    for (int q = 0; q < QUARTERS; q++)
        to->error[q] =
            count[q] && all > 0 ? sqrt(errors[q] / (double)count[q] / (all / (double)finite)) : 0;
    return all > 0;
}

double growth_spread(const struct quarters *q)
{
    double least = INFINITY, most = 0;

    for (int i = 0; i < QUARTERS; i++) {
        least = fmin(least, q->error[i]);
        most = fmax(most, q->error[i]);
    }
    return least > 0 ? most / least : most > 0 ? INFINITY : 1;
}

/* The result of a run, or with `grad` its gradient. */
struct named {
    int arg, grad;
    struct quarters growth;
};

static void print(const struct screen *s, const struct ran *ran, const struct named *n)
{
    char tensor[TENSOR_TEXT];
    const double *e = n->growth.error;

    tensor_name(ran->call.op, n->arg, n->grad, tensor);
    say(s, 6, "by steps  %s %s, %s: %.1e %.1e %.1e %.1e, quarter by quarter", ran_name(ran),
        ran->call.kernel->name, tensor, e[0], e[1], e[2], e[3]);
}

static int find(const struct result *r, const struct ran *ran, struct named *n)
{
    const void *got = tensors_values(ran->t, n->arg, n->grad),
               *want = tensors_values(r->ran[ORACLE].t, n->arg, n->grad);

    return got && want && growth_of(&ran->call, n->arg, got, want, &n->growth);
}

static void of_run(const struct screen *s, const struct result *r, const struct ran *ran, int all)
{
    struct named most = {-1, 0, {{0}}};

    FOR_RESULTS (&ran->call, i, grad) {
        struct named n = {i, grad, {{0}}};
        if (ran->call.op->arg[i].flags & SAVED || !find(r, ran, &n))
            continue;
        if (all)
            print(s, ran, &n);
        else if (most.arg < 0 || growth_spread(&n.growth) > growth_spread(&most.growth))
            most = n;
    }
    if (most.arg >= 0)
        print(s, ran, &most);
}

void growth_lines(const struct screen *s, const struct result *r, int all)
{
    const struct call *f = &r->trial->call;

    if (r->sampled || !f->op->time || (!all && DIM(f, f->op->time) < LONG) ||
        r->n_ran <= YARDSTICK || !r->ran[ORACLE].t)
        return;
    for (int j = YARDSTICK; j < r->n_ran; j++)
        if (r->ran[j].t && !r->ran[j].name)
            of_run(s, r, &r->ran[j], all);
}
