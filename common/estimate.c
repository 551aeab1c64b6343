/* Estimates the time of a plan from a few measured products (estimate.h). */
#include "config.h"

#include <math.h>

#include "common/estimate.h"
#include "common/run.h"

/* Work of the small case; and work per second below that of any reference. */
static const double SMALL = 3e7, SLOWEST = 1e8;
/* Work of a special function, in FLOPs and in bytes moved. */
enum { SPECIAL = 20 };

static double work(const struct op *o, const struct frame *f, enum pass p)
{
    return o->flops(f, p) + op_bytes(o, &ref64, f, p) +
           (o->specials ? SPECIAL * o->specials(f, p) : 0);
}

static double work_of_passes(const struct op *o, const struct frame *f)
{
    double sum = 0;
    for (enum pass p = FORWARD; p < op_passes(o); p++)
        sum += work(o, f, p);
    return sum;
}

/* The number of times that a trial runs a pass on the references, in trial.c, differences.c and
 * properties.c. */
static double runs(const struct experiment *x, const struct trial *t, enum pass p)
{
    double n = 2; /* oracle and yardstick; their timed runs take up to a second */
    int tensors = 0;

    for (int i = 0; i < t->op->n_args; i++)
        tensors +=
            t->op->arg[i].flags & IN && t->op->arg[i].flags & DIFF && op_has(t->op, &t->sizes, i);
    if (x->repeats)
        n += 2;
    if (x->checks & (CHECK_PARITY | CHECK_PROPERTIES))
        n += 1; /* the oracle of inputs that are off by a rounding */
    if (x->checks & CHECK_PROPERTIES)
        n += 2 + (t->op->batch ? 1 : 0) + (t->op->time ? 2.5 : 0);
    if (x->checks & CHECK_DIFFERENCES && p == FORWARD)
        n += 12. * tensors * x->directions; /* six per step size, two step sizes as a rule */
    return n;
}

/* Halve a size, if the contract allows it. */
static int halve(const struct op *o, struct frame *f, char letter)
{
    struct frame g = *f;

    if (!letter || DIM(f, letter) < 2)
        return 0;
    DIM(&g, letter) = DIM(f, letter) / 2;
    if (op_complete(o, &g))
        return 0;
    *f = g;
    return 1;
}

/* Steps first, then sequences, then the largest size. */
static void shrink(const struct op *o, struct frame *f)
{
    int smaller = 1;

    while (smaller && work_of_passes(o, f) > SMALL) {
        smaller = (o->time && DIM(f, o->time) > 4 && halve(o, f, o->time)) ||
                  (o->batch && halve(o, f, o->batch));
        for (double below = INFINITY; !smaller;) {
            int largest = -1;
            for (int i = 0; i < o->n_params; i++)
                if (o->param[i].letter && DIM(f, o->param[i].letter) < below &&
                    (largest < 0 || DIM(f, o->param[i].letter) > DIM(f, o->param[largest].letter)))
                    largest = i;
            if (largest < 0)
                return;
            below = (double)DIM(f, o->param[largest].letter);
            smaller = halve(o, f, o->param[largest].letter);
        }
    }
}

/* Seconds that a unit of work takes in each pass, as measured; 0 where the case cannot be run. */
static void pace(const struct trial *t, double seconds[N_PASSES])
{
    const struct op *o = t->op;
    struct frame f = t->sizes;
    struct outcome out = {.median = {0}};

    shrink(o, &f);
    struct call c = {
        .op = o, .backend = &ref64, .kernel = op_kernels(o, &ref64)[0], .sizes = &f, .repeats = 1};
    struct tensors *in = tensors_new(o, &f);
    if (in) {
        tensors_draw(in, o, &f, t->seed, 0);
        if (run_op(&c, in, &out))
            out = (struct outcome){.median = {0}};
    }
    tensors_free(in);
    for (enum pass p = FORWARD; p < N_PASSES; p++)
        seconds[p] = p < op_passes(o) && work(o, &f, p) > 0 ? out.median[p] / work(o, &f, p) : 0;
}

static double trial_work(const struct experiment *x, const struct trial *t, enum pass p)
{
    return p < op_passes(t->op) ? runs(x, t, p) * work(t->op, &t->sizes, p) : 0;
}

double estimate_seconds(const struct experiment *x)
{
    double all = 0, sum = 0, seconds[N_PASSES];

    if (x->measure == MEASURE_REGIME)
        return 0; /* it grows until a batch takes a second */
    for (int i = 0; i < x->n; i++)
        all += trial_work(x, &x->trial[i], FORWARD) + trial_work(x, &x->trial[i], BACKWARD);
    if (all / SLOWEST < 60)
        return 0;
    for (int k = 0; k < N_OPS; k++) {
        double of_op[N_PASSES] = {0}, max = 0;
        const struct trial *largest = NULL;
        for (int i = 0; i < x->n; i++)
            if (x->trial[i].op == ops[k]) {
                double w = work_of_passes(ops[k], &x->trial[i].sizes);
                of_op[FORWARD] += trial_work(x, &x->trial[i], FORWARD);
                of_op[BACKWARD] += trial_work(x, &x->trial[i], BACKWARD);
                largest = w > max ? &x->trial[i] : largest;
                max = w > max ? w : max;
            }
        if (largest)
            pace(largest, seconds);
        for (enum pass p = FORWARD; largest && p < N_PASSES; p++)
            sum += of_op[p] * seconds[p];
    }
    return sum;
}
