/* Free running (free.h). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/train/free.h"

enum { TIMES = 8 };
static const double MOST_PART = 0.01;

/* The oracle, the yardstick, and the oracle from a start that is a rounding off. */
enum { OWN, YARD, OFF, RUNS };

struct free_run {
    const struct training *t;
    struct update u[RUNS];
    int over; /* no further updates are compared */
    int64_t updates;
    double seconds, largest; /* that the references took; of their distances */
    double error, bound;     /* where error / bound was the largest */
    int64_t worst;
    const struct impl *kernel; /* of the run's model */
};

/* Each weight up or down by a rounding of the run's storage type. */
static int move_start(struct update *u, enum dtype type)
{
    double *w = malloc(u->elements * sizeof *w);
    int e =
        w ? update_weights(u, w) : err_set("no memory for %lld weights", (long long)u->elements);

    for (int64_t i = 0; !e && i < u->elements; i++)
        w[i] *=
            1 + (draw_uniform(draw_key(1, "off"), (uint64_t)i) < 0.5 ? -1 : 1) * types[type].unit;
    e = e || update_set_weights(u, w);
    free(w);
    return e;
}

struct free_run *free_run_begin(const struct training *t, const struct update *of)
{
    struct free_run *f = calloc(1, sizeof *f);
    const struct backend *const b[RUNS] = {&ref64, yardstick(t->backend), &ref64};
    int e = 0;

    if (!f)
        return err_null("no memory for free running");
    f->t = t;
    f->kernel = of->call[UPDATE_MODEL].kernel;
    f->error = -1;
    for (int i = 0; !e && i < RUNS; i++)
        e = update_open(&f->u[i], t->cell, b[i], NULL, t->seed, t->corpus);
    e = e || move_start(&f->u[OFF], t->backend->type);
    if (!e)
        return f;
    free_run_end(f);
    return NULL;
}

static double larger(double x, double y)
{
    return isnan(y) || y > x ? y : x;
}

/* The largest distance of the references until now, or NaN; one rounding of the loss at the least, which they may not
 * have met as yet. */
static double reach(const struct free_run *f, const double loss[RUNS])
{
    const double own = loss[OWN], rounding = types[f->t->backend->wide].unit * fabs(own);
    return larger(larger(larger(f->largest, rounding), fabs(loss[YARD] - own)),
                  fabs(loss[OFF] - own));
}

static void compare(struct free_run *f, const struct update_values *now, double own)
{
    const double error = fabs(now->loss - own), bound = TIMES * f->largest;

    f->updates = now->u;
    if (f->error < 0 || error * f->bound > f->error * bound || !isfinite(error)) {
        f->error = error;
        f->bound = bound;
        f->worst = now->u;
    }
}

int free_run_step(struct free_run *f, const struct update_values *now)
{
    struct update_values v;
    double loss[RUNS];

    if (f->over)
        return 0;
    const double began = seconds_now();
    for (int i = 0; i < RUNS; i++) {
        if (update_run(&f->u[i]) || update_read(&f->u[i], &v))
            return -1;
        loss[i] = v.loss;
    }
    f->seconds += seconds_now() - began;
    const double largest = reach(f, loss);
    if (!(TIMES * largest <= MOST_PART * fabs(loss[OWN]))) {
        f->over = 1;
        return 0;
    }
    f->largest = largest;
    compare(f, now, loss[OWN]);
    f->over = f->seconds > FREE_SECONDS || now->u == FREE_UPDATES;
    return 0;
}

int free_run_verdict(struct free_run *f, struct verdicts *list, struct trained *to)
{
    to->free_updates = f->updates;
    to->free_error = f->error;
    to->free_bound = f->bound;
    if (!f->updates)
        return 0;
    struct verdict *v = verdict_add(list, "free", "loss", f->t->backend, f->kernel);
    if (!v)
        return -1;
    v->error = f->error;
    v->bound = f->bound;
    v->pass = f->error <= f->bound && isfinite(f->error);
    v->first_bad = -1;
    v->distance = "";
    v->judged = v->elements = f->updates;
    v->update = f->worst;
    return 0;
}

void free_run_pass(struct free_run *f, struct record *k,
                   void (*state)(struct record *k, struct update *u))
{
    int64_t over = f->over;
    double *const reals[] = {&f->seconds, &f->largest, &f->error, &f->bound};

    record_int(k, &over);
    record_int(k, &f->updates);
    record_int(k, &f->worst);
    for (int i = 0; i < (int)COUNT(reals); i++)
        record_real(k, reals[i]);
    f->over = over != 0;
    for (int i = 0; !f->over && i < RUNS; i++)
        state(k, &f->u[i]);
}

void free_run_end(struct free_run *f)
{
    for (int i = 0; f && i < RUNS; i++)
        update_close(&f->u[i]);
    free(f);
}
