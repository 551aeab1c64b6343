/* Estimates the time of a plan from a few measured products (duration.h). */
#include "config.h"

#include <math.h>

#include "common/call/run.h"
#include "common/judge/passing.h"
#include "common/judge/sampled.h"
#include "common/plan/training.h"
#include "common/run/duration.h"

/* Work of the small case; and work per second below that of any reference. */
static const double SMALL = 3e7, SLOWEST = 1e8;
/* Work of a special function, in FLOPs and in bytes moved. */
enum { SPECIAL = 20 };

/* The call is the oracle's. */
static double work(const struct call *f, enum pass p)
{
    const struct op *o = f->op;
    return o->flops(f, p) + op_bytes(f, p) + (o->specials ? SPECIAL * o->specials(f, p) : 0);
}

static double work_of_passes(const struct call *f)
{
    double sum = 0;
    for (enum pass p = FORWARD; p < op_passes(f->op); p++)
        sum += work(f, p);
    return sum;
}

/* The number of times that a trial runs a pass on the references, in trial.c, differences.c and
 * properties.c. */
static double runs(const struct experiment *x, const struct trial *t, enum pass p)
{
    double n = 2; /* oracle and yardstick; their timed runs take up to a second */
    int tensors = 0;

    for (int i = 0; i < t->call.op->n_args; i++)
        tensors +=
            t->call.op->arg[i].flags & IN && t->call.op->arg[i].flags & DIFF && op_has(&t->call, i);
    if (x->repeats)
        n += 2;
    if (x->checks & (CHECK_PARITY | CHECK_PROPERTIES))
        n += 1; /* the oracle of inputs that are off by a rounding */
    if (x->checks & CHECK_PROPERTIES)
        n += 2 + (t->call.op->batch ? 1 : 0) + (t->call.op->time ? 2.5 : 0);
    if (x->checks & CHECK_POWER && op_reference_work(&t->call) <= PASSING_WORK)
        n += 64 + 4. * t->call.op->n_args + 3. * t->call.op->n_params; /* samples, and changes */
    if (x->checks & CHECK_DIFFERENCES && p == FORWARD)
        n += 12. * tensors * x->directions; /* six per step size, two step sizes as a rule */
    return n;
}

/* Halve a size, if the contract allows it. */
static int halve(struct call *f, char letter)
{
    struct call g = *f;

    if (!letter || DIM(f, letter) < 2)
        return 0;
    DIM(&g, letter) = DIM(f, letter) / 2;
    if (op_complete(&g))
        return 0;
    *f = g;
    return 1;
}

/* Steps first, then sequences, then the largest size. */
static void shrink(struct call *f)
{
    const struct op *o = f->op;
    int smaller = 1;

    while (smaller && work_of_passes(f) > SMALL) {
        smaller = (o->time && DIM(f, o->time) > 4 && halve(f, o->time)) ||
                  (o->batch && halve(f, o->batch));
        for (double below = INFINITY; !smaller;) {
            int largest = -1;
            for (int i = 0; i < o->n_params; i++)
                if (o->param[i].letter && !o->param[i].seed && DIM(f, o->param[i].letter) < below &&
                    (largest < 0 || DIM(f, o->param[i].letter) > DIM(f, o->param[largest].letter)))
                    largest = i;
            if (largest < 0)
                return;
            below = (double)DIM(f, o->param[largest].letter);
            smaller = halve(f, o->param[largest].letter);
        }
    }
}

/* Seconds that a unit of work takes in each pass, as measured; 0 where the case cannot be run. */
static void pace(const struct trial *t, double seconds[N_PASSES])
{
    const struct op *o = t->call.op;
    struct run c = {.call = call_on(&t->call, &ref64, op_kernel(o, &ref64, 0), NULL), .repeats = 1};
    struct outcome out = {.median = {0}};

    shrink(&c.call);
    struct tensors *in = tensors_new(&c.call);
    if (in) {
        tensors_draw(in, &c.call, t->seed, 0);
        if (run_op(&c, in, &out))
            out = (struct outcome){.median = {0}};
    }
    tensors_free(in);
    for (enum pass p = FORWARD; p < N_PASSES; p++)
        seconds[p] =
            p < op_passes(o) && work(&c.call, p) > 0 ? out.median[p] / work(&c.call, p) : 0;
}

/* By a sample: each of its cuts runs on the references as a trial that is timed does, and of products
 * each segment is one more sum. */
static double sampled_work(const struct experiment *x, const struct trial *t, enum pass p)
{
    const struct call f = call_on(&t->call, &ref64, NULL, NULL);
    struct sampled s;
    double sum = f.op->product ? f.op->flops(&f, p) / SEGMENT : 0;

    if (!sampled_cuts(&s, &f, SAMPLE_ROWS, t->seed))
        for (int i = 0; i < s.n_cuts; i++)
            sum += runs(x, t, p) * work(&s.cut[i].call, p);
    sampled_free(&s);
    return sum;
}

static double trial_work(const struct experiment *x, const struct trial *t, enum pass p)
{
    const struct call f = call_on(&t->call, &ref64, NULL, NULL);
    if (t->sampled && p < op_passes(f.op))
        return sampled_work(x, t, p);
    return p < op_passes(f.op) ? runs(x, t, p) * work(&f, p) : 0;
}

double expected_work(const struct experiment *x, const struct trial *t)
{
    if (x->measure == MEASURE_TRAIN)
        return training_work(t);
    return trial_work(x, t, FORWARD) + trial_work(x, t, BACKWARD);
}

double reference_work(const struct call *f, enum pass p)
{
    const struct call on = call_on(f, &ref64, NULL, NULL);
    return work(&on, p);
}

double estimate_seconds(const struct experiment *x)
{
    double all = 0, sum = 0, seconds[N_PASSES];

    if (x->measure == MEASURE_CROSSOVER)
        return 0; /* it grows until a batch takes a second */
    for (int i = 0; i < x->n; i++)
        all += expected_work(x, &x->trial[i]);
    if (all / SLOWEST < 60)
        return 0;
    for (int k = 0; k < N_OPS; k++) {
        double of_op[N_PASSES] = {0}, max = 0;
        const struct trial *largest = NULL;
        for (int i = 0; i < x->n; i++)
            if (x->trial[i].call.op == ops[k]) {
                const struct call f = call_on(&x->trial[i].call, &ref64, NULL, NULL);
                double w = work_of_passes(&f);
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
