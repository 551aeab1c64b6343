/* How far a right result may be from the oracle: its samples, and the bounds (check.h). */
#include "config.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
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

/* The same for equal values. */
static uint64_t bits_of(double x)
{
    uint64_t bits;
    x = fabs(x);
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* How a tensor is moved: by so much up or down, or by up to so much; by place or by value. */
struct move {
    double unit;
    int up_or_down, by_value;
    uint64_t key;
    int64_t row; /* the elements of a row of a tensor that is BELOW; 0: of no such one */
};

/* The part of the unit, -1 to 1, by which element k is moved, which is so large. */
static double part_of(const struct move *m, int64_t k, double size)
{
    const double u = draw_uniform(m->key, m->by_value ? bits_of(size) : (uint64_t)k);
    return m->up_or_down ? (u < 0.5 ? 1 : -1) : 2 * u - 1;
}

static void move(double *x, int64_t n, const struct move *m)
{
    const int64_t step = m->row ? m->row : 1;

    #pragma omp parallel for
    for (int64_t j = 0; j < n; j += step) {
        double top = m->row ? largest_finite(x + j, m->row) : 0;
        for (int64_t k = j; k < j + step; k++) {
            const double of = m->row ? 2 + top - x[k] : x[k];
            if (isfinite(x[k]))
                x[k] += part_of(m, k, of) * m->unit * of;
        }
    }
}

static void move_all(struct tensors *t, const struct call *f, struct move m, int which)
{
    const struct op *o = f->op;
    for (int i = 0; i < o->n_args; i++) {
        double *x = o->arg[i].flags & IN ? t->x[i] : o->arg[i].flags & OUT ? t->g[i] : NULL;
        const char *shape = op_shape(f, i);
        if (o->arg[i].flags & (WHOLE | BYTES))
            continue;
        m.row = o->arg[i].flags & BELOW ? DIM(f, shape[strlen(shape) - 1]) : 0;
        m.key = draw_key(1 + which, o->arg[i].name);
        if (x)
            move(x, op_count(f, i), &m);
        m.row = 0;
        m.key = draw_key(m.key, "gradient");
        if (t->g0[i])
            move(t->g0[i], op_count(f, i), &m);
    }
}

void tensors_perturb(struct tensors *t, const struct call *f, double unit, int which)
{
    move_all(t, f, (struct move){.unit = unit, .up_or_down = 1}, which);
}

/* By up to the unit: in even samples equal values alike, in odd ones each by its place. */
static void tensors_move(struct tensors *t, const struct call *f, double unit, int which)
{
    move_all(t, f, (struct move){.unit = unit, .by_value = which % 2 == 0}, which);
}

/* The case on b's reference. */
static struct run reference_on(const struct truth *t, const struct backend *b)
{
    return (struct run){.call = call_on(&t->call, b, op_kernel(t->call.op, b, 0), NULL)};
}

static struct tensors *reference_run(const struct truth *t, const struct backend *b,
                                     const struct tensors *inputs)
{
    const struct run c = reference_on(t, b);
    return run_copy(&c, inputs, NULL);
}

static int has_bound(const struct call *f, int arg)
{
    return !(f->op->arg[arg].flags & (WHOLE | BYTES | BIT_EXACT));
}

/* What a gain or an offset is of n errors of that size that are up or down at random.  In one sample it
 * is far less where they happen to cancel. */
static double by_chance(double off, int64_t n)
{
    return n > 0 ? off / sqrt((double)n) : 0;
}

/* The median of x as parts of the size, of so many slices that are not 0: to a sixteenth of an octave,
 * and down to 2^-60. */
static double median_of(const double *x, const double *size, int64_t n)
{
    enum { OCTAVES = 80, PARTS = 16, LEAST = -60 };
    int64_t count[OCTAVES * PARTS] = {0}, all = 0, below = 0;
    int at = 0;

    for (int64_t i = 0; i < n; i++) {
        const double part = size[i] > 0 ? (log2(x[i] / size[i]) - LEAST) * PARTS : NAN;
        if (isnan(part))
            continue;
        all++;
        count[part < 0 ? 0 : part >= OCTAVES * PARTS ? OCTAVES * PARTS - 1 : (int)part]++;
    }
    while (at < OCTAVES * PARTS - 1 && 2 * (below + count[at]) < all)
        below += count[at++];
    return at ? exp2((double)at / PARTS + LEAST) : 0;
}

enum { LEAST_OF_KIND = 8 }; /* slices that have a median */

static void medians_find(struct reached *to, const struct slices *s)
{
    to->n_kinds = slices_kinds(s, to->end);
    for (int k = 0; k < to->n_kinds; k++) {
        const int64_t from = k ? to->end[k - 1] : 0, n = to->end[k] - from;
        if (n < LEAST_OF_KIND)
            continue;
        to->median[k].off = median_of(to->off + from, to->size + from, n);
        to->median[k].gain = median_of(to->gain + from, to->size + from, n);
    }
}

/* Keep what a distance is, times `factor`, where it is the largest so far. */
static int seen_add(struct reached *to, const struct distances *d, double factor)
{
    const int64_t n = d->slices.n;
    const double random = by_chance(d->whole.of[BY_RMS], d->slices.rows * d->slices.columns);

    for (int k = 0; k < OF_ALL; k++) {
        const double least = k == BY_GAIN || k == BY_OFFSET ? random : 0;
        to->whole.of[k] = fmax(to->whole.of[k], factor * fmax(least, d->whole.of[k]));
    }
    if (n && !to->off)
        to->off = calloc(3 * n, sizeof *to->off);
    if (n && !to->off)
        return err_set("no memory for the bounds of %lld slices", (long long)n);
    to->gain = to->off + n;
    to->size = to->gain + n;
    for (int64_t i = 0; i < n; i++) {
        const struct slice *one = &d->slice[i];
        to->off[i] = fmax(to->off[i], factor * one->off);
        to->gain[i] = fmax(to->gain[i], factor * fmax(one->gain, by_chance(one->off, one->n)));
        to->size[i] = one->size;
    }
    if (n)
        medians_find(to, &d->slices);
    return 0;
}

static void reach_free(struct reach *r)
{
    for (int i = 0; i < MAX_ARGS; i++) {
        free(r->x[i].off);
        free(r->g[i].off);
    }
    memset(r, 0, sizeof *r);
}

/* Is the result of a finer type than what the case stores? */
static int is_finer(const struct call *f, int arg, int grad)
{
    return types[call_type(f, arg, grad)].unit < types[f->backend->type].unit;
}

/* What is seen of a run. */
struct sight {
    double factor; /* of its distances */
    int but_finer; /* not those of results of a finer type */
    const struct bounds
        *given; /* or NULL; results that are given in a coarser type are moved by its unit */
    int alone;  /* and others are not seen */
};

static int is_seen(const struct sight *s, const struct call *f, int arg, int grad)
{
    return has_bound(f, arg) && !(s->but_finer && is_finer(f, arg, grad)) &&
           !(s->alone && !(X_OR_G(s->given->given, arg, grad) > 0));
}

/* The distances of each result of `got` from `want`. */
static int see(const struct truth *t, struct reach *reach, const struct tensors *got,
               const struct tensors *want, const struct sight *s)
{
    FOR_RESULTS (&t->call, i, grad) {
        struct distances d;
        if (!is_seen(s, &t->call, i, grad))
            continue;
        int e = distances_find(&d, &t->call, i, tensors_result(got, i, grad),
                               tensors_result(want, i, grad)) ||
                seen_add(&X_OR_G(*reach, i, grad), &d, s->factor);
        distances_free(&d);
        if (e)
            return -1;
    }
    return 0;
}

static enum dtype type_of_unit(double unit)
{
    return unit == types[BF16].unit ? BF16 : unit == types[F16].unit ? F16 : F32;
}

/* Round the results that are given in a coarser type to it, in the first sample; in others move them by
 * its unit.  (Equal values are rounded one way, which noise by place does not show, and values that
 * the type has but with fewer bits by more than its unit.) */
static void move_given(const struct bounds *b, struct tensors *t, int which)
{
    FOR_RESULTS (&b->call, i, grad) {
        char name[32];
        tensor_name(b->call.op, i, grad, name);
        const struct move m = {.unit = X_OR_G(b->given, i, grad), .key = draw_key(1 + which, name)};
        double *x = tensors_result(t, i, grad);
        if (m.unit > 0 && which == 0)
            values_round(type_of_unit(m.unit), x, op_count(&b->call, i));
        else if (m.unit > 0)
            move(x, op_count(&b->call, i), &m);
    }
}

/* Run the oracle on these inputs, with errors as the run says. */
static int see_oracle(const struct truth *t, struct reach *reach, const struct run *c,
                      const struct tensors *inputs, const struct sight *s)
{
    struct tensors *oracle = run_copy(c, inputs, NULL);

    if (oracle && s->given)
        move_given(s->given, oracle, (int)c->noise.key);
    const int e = !oracle || see(t, reach, oracle, t->oracle, s);
    tensors_free(oracle);
    return e ? -1 : 0;
}

/* The first sample has special functions that are all too large, the second all too small. */
static int lean_of(int which)
{
    static const int LEAN[] = {1, -1};
    return which < 2 ? LEAN[which] : 0;
}

/* The unit of arithmetic: float's, or a finer one of the storage type. */
static double unit_of_arithmetic(const struct truth *t)
{
    return fmin(types[F32].unit, types[t->call.backend->type].unit);
}

/* Run the oracle with errors in all that a right kernel rounds: inputs and intermediate values are off by
 * float's rounding, what is stored, in results or on the way, by that of its type.  In even samples
 * equal values are off alike; in odd ones those that forward leaves to backward are so by their
 * place, too.  The first two have special functions that are all too large, and all too small.  Even
 * ones of a type coarser than float store the contract's sites in it, every other of them to the bit,
 * which shows nothing of results in float. */
static int sample_oracle(struct truth *t, int which)
{
    const double fine = unit_of_arithmetic(t), stored = types[t->call.backend->type].unit;
    const int at_sites = t->call.op->sites && stored > fine && which % 2 == 0;
    struct run noisy = reference_on(t, &ref64);
    struct tensors *moved = tensors_given(&t->call, t->inputs);

    if (!moved)
        return -1;
    tensors_move(moved, &t->call, fine, which);
    noisy.noise = (struct noise){.stored = (float)stored,
                                 .loaded = (float)fine,
                                 .special = (float)fine,
                                 .key = (unsigned)which,
                                 .lean = lean_of(which),
                                 .order = which == 0  ? AS_BUILT
                                          : which % 2 ? BACKWARDS
                                                      : FORWARDS};
    if (which % 2) {
        noisy.between_as = &t->call;
        noisy.between_key = which;
    }
    if (at_sites) {
        noisy.noise.at_sites = (float)stored;
        noisy.noise.sites = op_stored_sites(t->call.op);
        noisy.noise.exact = which % 4 == 2;
    }
    const int e = see_oracle(t, &t->reach, &noisy, moved,
                             &(const struct sight){.factor = 1, .but_finer = at_sites});
    tensors_free(moved);
    return e;
}

/* Round the results to the types of the case. */
static void results_round(struct tensors *t, const struct call *f)
{
    FOR_RESULTS (f, i, grad)
        if (!op_is_bytes(f, i))
            values_round(call_type(f, i, grad), tensors_result(t, i, grad), op_count(f, i));
}

/* Compare the yardstick with the oracle at inputs near the case's, where its roundings differ, its sums
 * in one order or the other.  Of a type coarser than float, every other sample is on inputs that
 * float holds and the type does not, by the yardstick of float: on those that it holds sums are
 * exact by luck. */
static int sample_yardstick(struct truth *t, int which)
{
    static const double BESIDE[] = {0x1p-10, 0x1p-7, 0x1p-4};
    const struct backend *own = yardstick(t->call.backend);
    const struct backend *yard = which % 2 ? own : &ref32;
    const double unit = coarsest_unit(&t->call);
    const struct call there = call_on(&t->call, yard, NULL, NULL);
    const struct call kept = call_on(&t->call, own, NULL, NULL);
    struct run run = reference_on(t, yard);
    struct tensors *moved = tensors_given(&t->call, t->inputs);

    if (!moved)
        return -1;
    tensors_move(moved, &t->call, which % 2 ? unit : fmax(unit, BESIDE[which / 2 % COUNT(BESIDE)]),
                 which);
    tensors_round(moved, &there);
    run.noise.order = which / 2 % 2 ? BACKWARDS : FORWARDS;
    struct tensors *oracle = reference_run(t, &ref64, moved);
    struct tensors *other = oracle ? run_copy(&run, moved, NULL) : NULL;
    if (other)
        results_round(other, &kept);
    const int e = !other || see(t, &t->reach, other, oracle, &(const struct sight){.factor = 1});
    tensors_free(moved);
    tensors_free(oracle);
    tensors_free(other);
    return e ? -1 : 0;
}

/* Take one more sample, of the two kinds by turns.  The first is of the oracle, since the yardstick's
 * results at the case's own inputs are known. */
static int sample(struct truth *t)
{
    const int both = yardstick(t->call.backend)->type == t->call.backend->type;
    const int which = t->samples++, n = both ? (which + 1) / 2 : which;

    return both && which && which % 2 == 0 ? sample_yardstick(t, n) : sample_oracle(t, n);
}

int truth_begin(struct truth *t)
{
    double finer = types[t->call.backend->type].unit / types[yardstick(t->call.backend)->type].unit;

    memset(&t->reach, 0, sizeof t->reach);
    t->declared = NULL;
    t->samples = 0;
    return see(t, &t->reach, t->yard, t->oracle, &(const struct sight){.factor = finer}) ||
                   sample(t)
               ? -1
               : 0;
}

int truth_find(struct truth *t, const struct call *f, const struct tensors *inputs)
{
    *t = (struct truth){.call = *f, .inputs = inputs};
    t->oracle = reference_run(t, &ref64, inputs);
    t->yard = t->oracle ? reference_run(t, yardstick(f->backend), inputs) : NULL;
    return t->yard ? truth_begin(t) : -1;
}

void truth_end(struct truth *t)
{
    reach_free(&t->reach);
    while (t->declared) {
        struct declared *next = t->declared->next;
        reach_free(&t->declared->approximate);
        reach_free(&t->declared->rounded);
        free(t->declared);
        t->declared = next;
    }
}

void truth_free(struct truth *t)
{
    tensors_free(t->oracle);
    tensors_free(t->yard);
    truth_end(t);
}

/* ---- bounds ---- */

/* At least so many units of the result's type, by measure. */
static const double FLOOR[] = {2, 1, 0.25, 0.25, 1, 0.25};

static double unit_of(const struct bounds *b, int arg, int grad)
{
    return fmax(types[call_type(&b->call, arg, grad)].unit, X_OR_G(b->given, arg, grad));
}

/* Samples: of both kinds 8, 32. */
enum { FIRST = 1, SECOND = 15, MOST = 63 };

/* The next number of samples after n: of most that are over their bounds by chance one more tells. */
static int more_than(int n)
{
    static const int NUMBER[] = {2, 3, 4, 5, 7, 9, 12, SECOND, 23, 39, MOST};

    for (unsigned i = 0; i < COUNT(NUMBER); i++)
        if (NUMBER[i] > n)
            return NUMBER[i];
    return INT_MAX;
}

/* By how much the largest of a measure grows at most from few samples to all, nearly always: of a
 * result that is over its bound more are taken. */
static const double GROWTH[] = {2, 1.5, 5, 5, 3, 4};

/* The work above which no more than SECOND samples are taken, unless what is off are few slices. */
static const double MUCH = 1e9;

static int most_samples(const struct bounds *b, int few)
{
    return op_reference_work(&b->truth->call) > MUCH && !few ? SECOND : MOST;
}

struct growth bounds_growth(const struct bounds *b)
{
    const int all = more_than(b->samples) > most_samples(b, 0), few = b->samples < SECOND;
    struct growth g;

    for (size_t m = 0; m < COUNT(g.of); m++)
        g.of[m] = all ? 1 : few ? GROWTH[m] : sqrt(GROWTH[m]);
    return g;
}

static const struct growth no_growth = {{1, 1, 1, 1, 1, 1}};

/* The bound of a measure, of which the samples' largest is so many times what is known. */
static double bound_of(const struct bounds *b, int arg, int grad, int m, double growth)
{
    const struct declared *k = b->declared;
    const double known = X_OR_G(b->truth->reach, arg, grad).whole.of[m];
    const double approximate = k ? X_OR_G(k->approximate, arg, grad).whole.of[m] : 0;
    const double rounded = k ? X_OR_G(k->rounded, arg, grad).whole.of[m] : 0;
    const double own =
        fmax(growth * SLACK * fmax(known, approximate), FLOOR[m] * unit_of(b, arg, grad));

    return rounded + own * (1 + rounded); /* own: of the rounded one */
}

static void bounds_set(struct bounds *b)
{
    const struct call *f = &b->truth->call;

    FOR_RESULTS (f, i, grad)
        for (int m = 0; m < OF_ALL && has_bound(f, i); m++)
            X_OR_G(*b, i, grad).of[m] = bound_of(b, i, grad, m, 1);
}

struct whole bounds_grown(const struct bounds *b, int arg, int grad, const struct growth *g)
{
    struct whole w;

    for (int m = 0; m < OF_ALL; m++)
        w.of[m] = bound_of(b, arg, grad, m, g->of[m]);
    return w;
}

void bounds_from(struct bounds *to, const struct call *f, struct truth *t)
{
    *to = (struct bounds){.truth = t, .call = *f, .samples = FIRST};
    bounds_set(to);
}

void bounds_given_in(struct bounds *b, int arg, int grad, double unit)
{
    X_OR_G(b->given, arg, grad) = unit;
    b->any_given = 1;
    bounds_set(b);
}

/* Slice i's largest, by either measure, but for what is less by chance; 0 where nothing was seen. */
static struct slice seen_of(const struct reached *s, int64_t i, double size)
{
    int k = 0;

    if (!s->off)
        return (struct slice){0, 0, 0, 0};
    while (k < s->n_kinds - 1 && i >= s->end[k])
        k++;
    return (struct slice){fmax(s->off[i], s->median[k].off * size),
                          fmax(s->gain[i], s->median[k].gain * size), 0, 0};
}

struct slice slice_grown(const struct bounds *b, int arg, int grad, int64_t i,
                         const struct slice *want, const struct growth *g)
{
    static const struct reached none = {.off = NULL};
    const struct declared *k = b->declared;
    const struct slice known = seen_of(&X_OR_G(b->truth->reach, arg, grad), i, want->size);
    const struct slice about =
        seen_of(k ? &X_OR_G(k->approximate, arg, grad) : &none, i, want->size);
    const struct slice rounded = seen_of(k ? &X_OR_G(k->rounded, arg, grad) : &none, i, 0);
    const double unit = unit_of(b, arg, grad) * want->size;

    return (struct slice){
        rounded.off +
            fmax(g->of[BY_SLICE] * SLACK * fmax(known.off, about.off), FLOOR[BY_SLICE] * unit),
        rounded.gain + fmax(g->of[BY_SLICE_GAIN] * SLACK * fmax(known.gain, about.gain),
                            FLOOR[BY_SLICE_GAIN] * unit),
        0, 0};
}

struct slice bounds_of_slice(const struct bounds *b, int arg, int grad, int64_t i,
                             const struct slice *want)
{
    return slice_grown(b, arg, grad, i, want, &no_growth);
}

struct whole bound_of_max(double bound)
{
    return (struct whole){{bound, INFINITY, INFINITY, INFINITY}};
}

struct whole bound_of_both(const struct whole *one, const struct whole *other)
{
    return (struct whole){{one->of[BY_MAX] + other->of[BY_MAX], one->of[BY_RMS] + other->of[BY_RMS],
                           INFINITY, INFINITY}};
}

/* ---- declarations ---- */

/* What the kernel's declarations do in this case, kept in the truth; NULL after err_set(). */
static struct declared *declared_by(struct truth *t, const struct impl *k)
{
    struct declared *d = t->declared;

    while (d && d->kernel != k)
        d = d->next;
    if (d)
        return d;
    if (!(d = calloc(1, sizeof *d)))
        return err_null("no memory for what a kernel declares");
    d->kernel = k;
    d->next = t->declared;
    return t->declared = d;
}

static double stored_unit(const struct truth *t, const struct impl *k)
{
    return k->stored_unit > 0 ? k->stored_unit : types[t->call.backend->type].unit;
}

/* Do kernels of these types have sums on tensor cores, which cut off what they add? */
static int sums_are_cut(const struct truth *t)
{
    return types[t->call.backend->type].unit > types[F32].unit;
}

/* Run the oracle with special functions that are off by as much as the kernel's, all too large, all
 * too small, and then at random, and with the sites that it stores. */
static int sample_approximate(const struct bounds *b, struct declared *d)
{
    const struct truth *t = b->truth;
    const int which = d->samples;
    struct run c = reference_on(t, &ref64);

    c.noise = (struct noise){.special = (float)d->kernel->unit,
                             .key = (unsigned)which,
                             .at_sites = (float)stored_unit(t, d->kernel),
                             .sites = op_sites(t->call.op, d->kernel->stores),
                             .cut = sums_are_cut(t) ? (float)d->kernel->cut : 0,
                             .lean = lean_of(which),
                             .exact = which % 4 == 1};
    if (!(c.noise.special > 0) && !c.noise.sites && !(c.noise.cut > 0) && !b->any_given)
        return 0;
    if (see_oracle(t, &d->approximate, &c, t->inputs,
                   &(const struct sight){.factor = 1, .given = b}))
        return -1;
    if (!b->any_given || !t->call.op->sites)
        return 0;
    /* Where it stores a result it may store what the contract says of such results. */
    const struct sight given_alone = {.factor = 1, .given = b, .alone = 1};
    c.noise.sites |= op_stored_sites(t->call.op);
    return see_oracle(t, &d->approximate, &c, t->inputs, &given_alone);
}

/* Run the oracle on the inputs as the kernel rounds them. */
static int see_rounded(const struct truth *t, struct declared *d)
{
    const struct op *o = t->call.op;
    const struct run exact = reference_on(t, &ref64);

    if (!d->kernel->rounds)
        return 0;
    struct tensors *rounded = tensors_given(&t->call, t->inputs);
    for (int i = 0; rounded && i < o->n_args; i++)
        if (o->arg[i].flags & IN && !(o->arg[i].flags & (WHOLE | BYTES)) && rounded->x[i])
            d->kernel->rounds(&t->call, i, rounded->x[i]);
    const int e =
        !rounded || see_oracle(t, &d->rounded, &exact, rounded, &(const struct sight){.factor = 1});
    tensors_free(rounded);
    return e;
}

int bounds_know_kernel(const struct bounds *b)
{
    const struct impl *k = impl_declares(&b->call);
    return b->declared ||
           (!(k->unit > 0) && !k->rounds && !k->stores && !(k->cut > 0) && !b->any_given);
}

/* So many samples of what the kernel declares. */
static int sample_declared(struct bounds *b, int n)
{
    struct truth *t = b->truth;
    struct declared *d = b->declared = declared_by(t, impl_declares(&b->call));

    if (!d)
        return -1;
    for (; 2 * d->samples < n; d->samples++)
        if (sample_approximate(b, d) || (d->samples == 0 && see_rounded(t, d)))
            return -1;
    bounds_set(b);
    return 0;
}

int bounds_sample_more(struct bounds *b, int few)
{
    struct truth *t = b->truth;
    const int most = most_samples(b, few), more = more_than(b->samples);

    if (!bounds_know_kernel(b))
        return !sample_declared(b, b->samples);
    if (more > most)
        return 0;
    while (t->samples < more)
        if (sample(t))
            return 0;
    b->samples = more;
    bounds_set(b);
    return !b->declared || !sample_declared(b, more);
}
