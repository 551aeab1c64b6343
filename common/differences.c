/* Central differences of the oracle's forward pass.
 *
 * With L = sum over outputs of <output, its gradient>, the derivative of L
 * along a direction is <gradient, direction>.  It is estimated from central
 * differences of steps h, h/2 and h/4 by Romberg's extrapolation, which
 * leaves an error of order h^6 and says itself how large that is: how far it
 * went from its two neighbours in the tableau (Ridders 1982), one of which
 * alone may agree by chance.  The bound is SLACK times that and the
 * rounding of L; where this is too coarse to tell anything, h shrinks. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/err.h"

enum { LEVELS = 3, TRIES = 4 };
/* Of one element, and of all at once, where a step goes much further. */
static const double FIRST_STEP = 0x1p-6, FIRST_STRIDE = 0x1p-9, TRY_SHRINKS = 0x1p-3;
/* An estimate this sure, against the gradient's size, is good enough ... */
static const double SURE = 0x1p-36;
/* ... and one less sure than this shows nothing: that check fails. */
static const double VACUOUS = 0x1p-17;

struct probe {
    const struct op *op;
    struct call call;
    struct tensors *up, *down; /* moved inputs; outputs of both runs */
    const struct tensors *t;   /* the case and the gradients to be checked */
    const volatile int *stop;
    int arg;
    int64_t n;          /* elements of arg */
    int64_t element;    /* the one to move, or -1: all, ... */
    uint64_t direction; /* ... each by +h or -h as this key says */
};

static double sign(const struct probe *p, int64_t i)
{
    return draw_uniform(p->direction, i) < 0.5 ? -1 : 1;
}

static void move(const struct probe *p, struct tensors *moved, double h)
{
    const double *x = p->t->x[p->arg];
    double *to = moved->x[p->arg];
    if (p->element >= 0)
        to[p->element] = x[p->element] + h;
    else
        for (int64_t i = 0; i < p->n; i++)
            to[i] = x[i] + h * sign(p, i);
}

/* (L(x + h) - L(x - h)) / 2h, and its rounding, from the terms that moved. */
static int central(const struct probe *p, double h, double *slope, double *rounding)
{
    const struct op *o = p->op;
    long double sum = 0, mass = 0;

    move(p, p->up, h);
    move(p, p->down, -h);
    if (run_op(&p->call, p->up, NULL) || run_op(&p->call, p->down, NULL))
        return -1;
    for (int i = 0; i < o->n_args; i++) {
        if (!(o->arg[i].flags & OUT) || !p->t->g[i])
            continue;
        int64_t n = op_count(o, p->call.sizes, i);
        for (int64_t j = 0; j < n; j++) {
            double up = p->up->x[i][j], down = p->down->x[i][j], g = p->t->g[i][j];
            sum += ((long double)up - down) * g;
            if (up != down)
                mass += fabs(up * g);
        }
    }
    *slope = (double)(sum / (2 * h));
    *rounding = (double)(mass * 0x1p-53 / h);
    return 0;
}

static int romberg(const struct probe *p, double h, double *slope, double *unsure)
{
    double row[LEVELS][LEVELS], rounding = 0;

    for (int i = 0; i < LEVELS; i++, h /= 2) {
        double scale = 1;
        if (central(p, h, &row[i][0], &rounding))
            return -1;
        for (int j = 1; j <= i; j++) {
            scale *= 4;
            row[i][j] = (scale * row[i][j - 1] - row[i - 1][j - 1]) / (scale - 1);
        }
    }
    *slope = row[LEVELS - 1][LEVELS - 1];
    *unsure = fmax(fabs(*slope - row[LEVELS - 1][LEVELS - 2]),
                   fabs(*slope - row[LEVELS - 2][LEVELS - 2])) +
              2 * rounding;
    return 0;
}

/* The slope along the probe's direction; `size` is what it is small against. */
static int estimate(const struct probe *p, double size, double *slope, double *unsure)
{
    double h = p->element >= 0 ? FIRST_STEP : FIRST_STRIDE;

    *slope = NAN;
    *unsure = INFINITY;
    for (int i = 0; i < TRIES && !(*unsure <= SURE * size); i++, h *= TRY_SHRINKS) {
        double s, u;
        if (p->stop && *p->stop)
            return err_set("interrupted");
        if (romberg(p, h, &s, &u))
            return -1;
        if (u < *unsure) {
            *slope = s;
            *unsure = u;
        }
    }
    memcpy(p->up->x[p->arg], p->t->x[p->arg], p->n * sizeof(double));
    memcpy(p->down->x[p->arg], p->t->x[p->arg], p->n * sizeof(double));
    return 0;
}

/* A gradient too imprecisely estimated to be judged is not passed. */
static void settle(struct verdict *v)
{
    v->pass = v->error <= v->bound && v->bound <= VACUOUS;
}

static int check_elements(struct probe *p, struct verdicts *list)
{
    const double *g = p->t->g[p->arg];
    double *numeric = calloc(p->n, sizeof *numeric), size = 0, bound = 0;
    int e = numeric ? 0 : err_set("no memory for differences");

    for (int64_t i = 0; i < p->n; i++)
        size = fmax(size, fabs(g[i]));
    for (int64_t i = 0; !e && i < p->n; i++) {
        double unsure;
        p->element = i;
        e = estimate(p, size, &numeric[i], &unsure);
        bound = fmax(bound, unsure);
    }
    if (!e) {
        bound = SLACK * bound / (size > 0 ? size : 1);
        if (size == 0) /* no scale of its own: the numbers themselves must be as good as 0 */
            for (int64_t i = 0; i < p->n; i++)
                numeric[i] = fabs(numeric[i]) <= bound ? 0 : numeric[i];
        e = check_tensor("differences", p->op, p->call.sizes, &ref64, p->call.kernel, p->arg, 1,
                         numeric, g, fmax(bound, 0x1p-52), list);
    }
    if (!e)
        settle(&list->v[list->n - 1]);
    free(numeric);
    return e;
}

static int check_directions(struct probe *p, int directions, struct verdicts *list)
{
    const double *g = p->t->g[p->arg];
    long double squares = 0;

    for (int64_t i = 0; i < p->n; i++)
        squares += (long double)g[i] * g[i];
    double size = squares > 0 ? sqrt((double)squares) : 1, error = 0, bound = 0;
    p->element = -1;
    for (int d = 0; d < directions; d++) {
        double slope, unsure;
        long double along = 0;
        p->direction = draw_key(d, p->op->arg[p->arg].name);
        if (estimate(p, size, &slope, &unsure))
            return -1;
        for (int64_t i = 0; i < p->n; i++)
            along += g[i] * sign(p, i);
        double off = fabs(slope - (double)along) / size;
        if (!(off <= error)) /* a NaN stays */
            error = off;
        bound = fmax(bound, SLACK * unsure / size);
    }
    char name[32];
    snprintf(name, sizeof name, "d_%s", p->op->arg[p->arg].name);
    struct verdict *v = verdict_add(list, "differences", name, &ref64, p->call.kernel);
    if (!v)
        return -1;
    v->error = v->norm = isnan(error) ? INFINITY : error;
    v->bound = fmax(bound, 0x1p-52);
    snprintf(v->worst, sizeof v->worst, "%d directions", directions);
    settle(v);
    return 0;
}

int check_differences(const struct op *o, const struct frame *f, const struct tensors *t,
                      int64_t exhaustive, int directions, const volatile int *stop,
                      struct verdicts *list)
{
    struct probe p = {
        .op = o,
        .t = t,
        .stop = stop,
        .call = {.op = o,
                 .backend = &ref64,
                 .kernel = op_kernels(o, &ref64)[0],
                 .sizes = f,
                 .forward_only = 1},
        .up = tensors_copy(o, f, t),
        .down = tensors_copy(o, f, t),
    };
    int e = p.up && p.down ? 0 : -1;

    for (int i = 0; !e && i < o->n_args; i++) {
        p.n = op_count(o, f, i);
        p.arg = i;
        if (!op_results(o, f, i, 1))
            continue;
        e = p.n <= exhaustive ? check_elements(&p, list) : check_directions(&p, directions, list);
    }
    tensors_free(p.up);
    tensors_free(p.down);
    return e;
}
