/* What is lost on a round trip (round_trip.h). */
#include "config.h"

#include <math.h>
#include <string.h>

#include "common/run/round_trip.h"

/* The inverse of f on the reference, with f's sizes and choices. */
static struct call inverse_of(const struct call *f)
{
    struct call g = *f;
    g.op = f->op->inverse;
    return call_on(&g, &ref32, op_kernel(g.op, &ref32, 0), NULL);
}

/* Each input of the inverse is the result of that name.  Are all of them there? */
static int hand_over(const struct call *f, const struct tensors *results, const struct call *g,
                     struct tensors *to)
{
    for (int i = 0; i < g->op->n_args; i++) {
        if (!(g->op->arg[i].flags & IN) || !op_has(g, i))
            continue;
        const void *from = tensors_values(results, op_arg(f->op, g->op->arg[i].name), 0);
        if (!from)
            return 0;
        memcpy(tensors_values(to, i, 0), from, (size_t)op_count(g, i) * tensors_each(g, i));
    }
    return 1;
}

/* Of all inputs, in the types of the inverse's backend. */
static int64_t input_bytes(const struct call *g)
{
    int64_t bytes = 0;
    for (int i = 0; i < g->op->n_args; i++)
        if (g->op->arg[i].flags & IN && op_has(g, i))
            bytes += op_count(g, i) * types[call_type(g, i, 0)].bytes;
    return bytes;
}

static void compare(const double *x, const double *again, int64_t n, struct round_trip *to)
{
    double squares = 0, off_squares = 0, largest = 0, off_largest = 0;

    for (int64_t i = 0; i < n; i++) {
        const double off = again[i] - x[i];
        squares += x[i] * x[i];
        off_squares += off * off;
        largest = fmax(largest, fabs(x[i]));
        off_largest = fmax(off_largest, fabs(off));
    }
    to->rmse = sqrt(off_squares / squares);
    to->worst = off_largest / largest;
}

int round_trip(const struct call *f, const struct tensors *given, const struct tensors *results,
               struct round_trip *to)
{
    const struct run run = {.call = inverse_of(f), .forward_only = 1};
    const struct call *g = &run.call;
    const int64_t n = op_count(f, 0);
    struct outcome outcome;
    struct tensors *t = tensors_new(g);
    const int all = t && hand_over(f, results, g, t);
    const int e = !t || (all && run_op(&run, t, &outcome));

    *to = (struct round_trip){0};
    if (!e && all) {
        compare(given->x[0], t->x[op_arg(g->op, f->op->arg[0].name)], n, to);
        to->bytes = input_bytes(g);
        to->bits = 8.0 * (double)to->bytes / (double)n;
    }
    tensors_free(t);
    return e ? -1 : 0;
}
