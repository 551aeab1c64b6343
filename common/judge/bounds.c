/* How far a right result may be from the oracle: its samples, and the bounds (check.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/judge/check.h"

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
        if (o->arg[i].flags & (WHOLE | BYTES))
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
        if (t->call.op->arg[i].flags & (WHOLE | BYTES | BIT_EXACT))
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
    between.between_key = which;
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
    struct tensors *moved = tensors_given(&t->call, t->inputs);
    struct tensors *beside = moved && both ? tensors_given(&t->call, t->inputs) : NULL;
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
        double own = fmax(SLACK * seen, 4 * unit), rounded = X_OR_G(b->rounded, i, grad);
        if (!(t->call.op->arg[i].flags & (WHOLE | BYTES | BIT_EXACT)))
            X_OR_G(*b, i, grad) = rounded + own * (1 + rounded); /* own: of the rounded result */
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

/* Run the oracle on the inputs as the kernel rounds them. */
static int see_rounded(struct bounds *b)
{
    const struct truth *t = b->truth;
    const struct op *o = t->call.op;
    const struct impl *k = impl_declares(&b->call);
    const struct run exact = reference_on(t, &ref64);

    if (!k->rounds)
        return 0;
    struct tensors *rounded = tensors_given(&t->call, t->inputs);
    for (int i = 0; rounded && i < o->n_args; i++)
        if (o->arg[i].flags & IN && !(o->arg[i].flags & (WHOLE | BYTES)) && rounded->x[i])
            k->rounds(&t->call, i, rounded->x[i]);
    const int e = !rounded || see_oracle(t, &b->rounded, &exact, rounded);
    tensors_free(rounded);
    return e;
}

int bounds_sample_more(struct bounds *b)
{
    enum { MAX_SAMPLES = 64, MAX_OF_MUCH = 16 };
    static const double MUCH = 1e9;
    struct truth *t = b->truth;
    int most = op_reference_work(&t->call) > MUCH ? MAX_OF_MUCH : MAX_SAMPLES,
        more = 4 * b->samples;

    if (more > most)
        return 0;
    for (; b->samples < more; b->samples++) {
        int e = 0;
        if (b->samples == t->samples && !(e = sample(t, t->samples)))
            t->samples++;
        if (e || sample_approximate(b, b->samples) || (b->samples == 1 && see_rounded(b)))
            return 0;
    }
    bounds_set(b);
    return 1;
}
