/* Central differences of the oracle's forward pass.
 *
 * With L = sum over outputs of <output, its gradient>, the derivative of L
 * in a direction is <gradient, direction>.  It is estimated from central
 * differences d0, d1, d2 of steps h, h/2, h/4 by Romberg's extrapolation, whose
 * error is of order h^6 where L is smooth.
 *
 * The error of an estimate is computed for each output j by itself, since errors of
 * many outputs can cancel in L by chance:
 *
 *     e_j = 16 (4 d2 - 5 d1 + d0) / 45       last step of the extrapolation (Ridders 1982)
 *     k_j = (16 u2 - 10 u1 + u0) / 7         limit of u(h) = (up - 2 out + down) / 2h as h
 *                                            goes to 0: 0 where the output is smooth, half of
 *                                            the jump where its slope jumps at the point
 *     r_j = (its change by roundings) / h    measured: inputs off by a rounding
 *
 * The uncertainty of an estimate is the largest of |sum e|, |e| and |k| (Euclidean, over the
 * outputs), plus 2 |r|.  Where that is too much, other steps are tried: shorter ones while
 * something is not smooth within the step, longer ones while roundings dominate.  Where none is
 * sure enough (a tie, an input exactly where a slope jumps), the gradient is compared at a point
 * near this one, where the oracle runs again.  The bound is FACTOR times the uncertainty of the
 * best estimate. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/judge/check.h"

enum { FACTOR = 8 };

enum { LEVELS = 3, SHORTER = 6, LONGER = 2, PERTURBATIONS = 3, MORE = 16, POINTS = 3 };
/* The first steps: of one element, and of all at once, where a step goes much further. */
static const double FIRST_STEP = 0x1p-6, FIRST_STRIDE = 0x1p-9, RATIO = 0x1p-3;
/* An estimate this sure, against the gradient's size, is good enough ... */
static const double SURE = 0x1p-36;
/* ... one less sure than VACUOUS does not show that the gradient is right, so that the check cannot
 * be judged; one less sure than HOPELESS does not show that it is wrong, either. */
static const double VACUOUS = 0x1p-17, HOPELESS = 0x1p-6;
/* What is less counts as 0: the smallest normal float. */
static const double LEAST = 0x1p-126;
/* The relative distance by which each element is moved to get to a point near the case's. */
static const double BESIDE = 0x1p-8;

/* The inputs, outputs and gradients at a point. */
struct point {
    const struct tensors *t;  /* NULL: not there yet */
    struct tensors *own;      /* the same, to be freed; NULL where t is the case's */
    double roundings;         /* change of L by roundings: Euclidean, over the outputs */
    double mass;              /* <output, its gradient>, likewise */
    double noise[MAX_ARGS];   /* change of the gradients: Euclidean, over the elements */
    double between[MAX_ARGS]; /* the same, where what forward leaves is off by a rounding, too */
    int seen_more;            /* are MORE perturbations in the noise? */
    int64_t left_out; /* outputs that are not finite, or so large that no step can be seen */
};

struct probe {
    const struct op *op;
    struct run run;
    struct tensors *up, *down; /* moved inputs; outputs of both runs */
    struct point point[POINTS];
    const struct point *at;
    const volatile int *stop;
    int arg;
    int64_t n;          /* elements of arg */
    int64_t element;    /* the one to move, or -1: all, ... */
    uint64_t direction; /* ... each by +h or -h as this key says */
    double *e, *k;      /* of each output, as above */
};

/* An estimate, its uncertainty, and the part of that by roundings. */
struct slope {
    double value, unsure, rounding;
};

/* ---- points ---- */

static int is_moved(const struct arg *a)
{
    return a->flags & IN && !(a->flags & (WHOLE | BYTES));
}

/* Is it a part of L?  Bytes are not: they have no gradient. */
static int is_summed(const struct arg *a)
{
    return a->flags & OUT && !(a->flags & BYTES);
}

/* Move t to a point near it.  An element that is exactly 0 stays 0, since 0 may be its minimum,
 * unless its input is drawn around 0 or is an initial state. */
static void move_aside(const struct op *o, const struct call *f, struct tensors *t, int which)
{
    for (int i = 0; i < o->n_args; i++) {
        const struct arg *a = &o->arg[i];
        enum fill fill = op_fill(f, i);
        int centred = !a->draw && (fill == ZERO || fill == NORMAL || fill == FAN || fill == UNIT ||
                                   fill == MASKED);
        uint64_t key = draw_key(which, a->name);
        int64_t n = is_moved(a) ? op_count(f, i) : 0;
        for (int64_t j = 0; j < n; j++) {
            double by = BESIDE * (2 * draw_uniform(key, j) - 1), *x = &t->x[i][j];
            *x = *x != 0 ? *x * (1 + by) : centred ? by : 0;
        }
    }
}

static int64_t outputs(const struct op *o, const struct call *f)
{
    int64_t m = 0;
    for (int i = 0; i < o->n_args; i++)
        if (is_summed(&o->arg[i]))
            m += op_count(f, i);
    return m;
}

static int usable(double output)
{
    return fabs(output) <= 0x1p40;
}

/* Compare results at inputs that are off by a rounding: outputs with the point's, unless outputs_moved is
 * NULL, and gradients with those at other such inputs (the point's own are under test); keep the largest
 * distances. */
static void see_roundings(const struct op *o, const struct call *f, const struct tensors *moved,
                          const struct tensors *other, struct point *at, double *outputs_moved)
{
    int64_t m = 0;

    for (int i = 0; i < o->n_args; i++) {
        int64_t n = op_count(f, i);
        double sum = 0;
        for (int64_t j = 0; outputs_moved && is_summed(&o->arg[i]) && j < n; j++, m++)
            outputs_moved[m] = fmax(outputs_moved[m], fabs(moved->x[i][j] - at->t->x[i][j]));
        for (int64_t j = 0; op_results(f, i, 1) && j < n; j++) {
            double off = moved->g[i][j] - other->g[i][j];
            sum += isfinite(off) ? off * off : 0;
        }
        double *noise = outputs_moved ? at->noise : at->between;
        noise[i] = fmax(noise[i], sqrt(sum));
    }
}

/* Run perturbation s of the point, with what forward leaves to backward off by a rounding, too, in the
 * way `between` (0: not); NULL after err_set(). */
static struct tensors *run_moved(const struct probe *p, const struct point *at, int s, int between)
{
    struct tensors *t = tensors_copy(&p->run.call, at->t);
    struct run both = p->run;

    both.forward_only = 0;
    both.between = between ? 0x1p-52 : 0;
    both.between_key = between;
    if (t)
        tensors_perturb(t, &both.call, 0x1p-52, s);
    if (t && run_op(&both, t, NULL)) {
        tensors_free(t);
        t = NULL;
    }
    return t;
}

/* The mass of a point and the roundings of L, from how far roundings moved each output. */
static void weigh(const struct probe *p, struct point *at, const double *moved)
{
    const struct op *o = p->op;
    const struct call *f = &p->run.call;
    double mass = 0, sum = 0;

    for (int64_t i = 0, m = 0; i < o->n_args; i++)
        for (int64_t j = 0; is_summed(&o->arg[i]) && j < op_count(f, i); j++, m++) {
            double x = at->t->x[i][j], g = at->t->g[i] ? at->t->g[i][j] : 0;
            if (!usable(x))
                continue;
            mass += x * g * x * g;
            sum += pow(g * fmax(moved[m], 0x1p-53 * fabs(x)), 2);
        }
    at->mass = sqrt(mass);
    at->roundings = sqrt(sum);
}

/* The mass and the roundings of a point: the largest change of each output when all inputs are off
 * by a rounding, and at least its own rounding. */
static int measure(const struct probe *p, struct point *at)
{
    const struct op *o = p->op;
    const struct call *f = &p->run.call;
    struct tensors *first = NULL;
    double *moved = calloc(outputs(o, f) + 1, sizeof *moved);
    int e = moved ? 0 : err_set("no memory for differences");

    for (int s = 0; !e && s < 2 * PERTURBATIONS; s++) {
        const int between = s < PERTURBATIONS ? 0 : s;
        struct tensors *t = run_moved(p, at, between ? 0 : s, between);
        e = !t;
        first = first ? first : t;
        if (!e)
            see_roundings(o, f, t, first, at, between ? NULL : moved);
        if (t != first)
            tensors_free(t);
    }
    if (!e)
        weigh(p, at, moved);
    tensors_free(first);
    free(moved);
    return e ? -1 : 0;
}

/* The roundings by more perturbations, of intermediate values as well: the largest of a few may
 * be small by chance, and what a step divides by its own size hides what its inputs are off by. */
static int measure_more(const struct probe *p, struct point *at)
{
    const struct op *o = p->op;
    const struct call *f = &p->run.call;
    double *moved = calloc(outputs(o, f) + 1, sizeof *moved);
    struct tensors *first = moved ? run_moved(p, at, 0, 0) : NULL;
    int e = !moved ? err_set("no memory for differences") : first ? 0 : -1;

    for (int s = PERTURBATIONS; !e && s < MORE; s++) {
        struct probe noisy = *p;
        noisy.run.noise = (struct noise){.loaded = 0x1p-53f, .special = 0x1p-53f, .key = s};
        struct tensors *t = run_moved(&noisy, at, s, 0);
        e = t ? 0 : -1;
        if (!e)
            see_roundings(o, f, t, first, at, moved);
        tensors_free(t);
    }
    if (!e)
        weigh(p, at, moved);
    at->seen_more = 1;
    tensors_free(first);
    free(moved);
    return e;
}

/* L is the sum over usable outputs alone: set the gradients of the others in `to` to 0, and return
 * their number. */
static int64_t leave_out(const struct op *o, const struct call *f, const struct tensors *t,
                         struct tensors *to)
{
    int64_t n = 0;
    for (int i = 0; i < o->n_args; i++)
        for (int64_t j = 0; o->arg[i].flags & OUT && t->g[i] && j < op_count(f, i); j++)
            if (!usable(t->x[i][j])) {
                n++;
                if (to)
                    to->g[i][j] = 0;
            }
    return n;
}

/* Make point `which` of the case t: the oracle runs there, unless t is all that is needed. */
static int point_new(struct probe *p, int which, const struct tensors *t)
{
    const struct op *o = p->op;
    const struct call *f = &p->run.call;
    struct point *to = &p->point[which];
    struct run both = p->run;

    both.forward_only = 0;
    to->t = t;
    if (which || leave_out(o, f, t, NULL)) {
        to->t = to->own = tensors_copy(f, t);
        if (!to->own)
            return -1;
        if (which)
            move_aside(o, f, to->own, which);
        if (which && run_op(&both, to->own, NULL))
            return -1;
        to->left_out = leave_out(o, f, to->own, to->own);
        if (to->left_out && run_op(&both, to->own, NULL))
            return -1;
    }
    return measure(p, to);
}

/* Have the probe look at point `which`; t is the case's own. */
static int go_to(struct probe *p, int which, const struct tensors *t)
{
    struct point *to = &p->point[which];
    const struct call *f = &p->run.call;

    if (!to->t && point_new(p, which, t))
        return -1;
    p->at = to;
    for (int i = 0; i < p->op->n_args; i++) {
        size_t bytes = op_count(f, i) * tensors_each(f, i);
        if (!(p->op->arg[i].flags & IN) || !bytes)
            continue;
        memcpy(tensors_values(p->up, i, 0), tensors_values(to->t, i, 0), bytes);
        memcpy(tensors_values(p->down, i, 0), tensors_values(to->t, i, 0), bytes);
    }
    return 0;
}

/* ---- one estimate ---- */

/* The direction in which an element is moved; 0 if it is not finite, or too large for a step to
 * change it. */
static double sign(const struct probe *p, int64_t i)
{
    static const double LARGE = 0x1p20;
    if (!(fabs(p->at->t->x[p->arg][i]) <= LARGE) || isnan(p->at->t->g[p->arg][i]))
        return 0;
    return draw_uniform(p->direction, i) < 0.5 ? -1 : 1;
}

static void move(const struct probe *p, struct tensors *moved, double h)
{
    const double *x = p->at->t->x[p->arg];
    double *to = moved->x[p->arg];
    if (p->element >= 0)
        to[p->element] = x[p->element] + h;
    else
        for (int64_t i = 0; i < p->n; i++)
            to[i] = x[i] + h * sign(p, i);
}

/* (L(x + h) - L(x - h)) / 2h; and each output's share of e and k, of which this is level i. */
static int central(const struct probe *p, double h, int level, double *slope)
{
    static const double of_e[LEVELS] = {16 / 45., -80 / 45., 64 / 45.};
    static const double of_k[LEVELS] = {1 / 7., -10 / 7., 16 / 7.};
    const struct op *o = p->op;
    const struct tensors *t = p->at->t;
    long double sum = 0;
    int64_t m = 0;

    move(p, p->up, h);
    move(p, p->down, -h);
    if (run_op(&p->run, p->up, NULL) || run_op(&p->run, p->down, NULL))
        return -1;
    for (int i = 0; i < o->n_args; i++) {
        int64_t n = is_summed(&o->arg[i]) ? op_count(&p->run.call, i) : 0;
        for (int64_t j = 0; j < n; j++, m++) {
            double up = p->up->x[i][j], down = p->down->x[i][j], x = t->x[i][j];
            double g = t->g[i] ? t->g[i][j] : 0;
            if (level == 0)
                p->e[m] = p->k[m] = 0;
            if (!usable(x))
                continue;
            sum += ((long double)up - down) * g;
            p->e[m] += of_e[level] * g * (up - down) / (2 * h);
            p->k[m] += of_k[level] * g * ((up - x) + (down - x)) / (2 * h);
        }
    }
    *slope = (double)(sum / (2 * h));
    return 0;
}

static int romberg(const struct probe *p, double h, struct slope *to)
{
    double d[LEVELS], total = 0, e = 0, k = 0;
    int64_t m = outputs(p->op, &p->run.call);

    for (int i = 0; i < LEVELS; i++)
        if (central(p, ldexp(h, -i), i, &d[i]))
            return -1;
    for (int64_t j = 0; j < m; j++) {
        total += p->e[j];
        e += p->e[j] * p->e[j];
        k += p->k[j] * p->k[j];
    }
    to->value = (64 * d[2] - 20 * d[1] + d[0]) / 45;
    to->rounding = 2 * p->at->roundings / ldexp(h, 1 - LEVELS);
    to->unsure = fmax(fabs(total), sqrt(fmax(e, k))) + to->rounding;
    return 0;
}

/* The best of n estimates, from long steps to short ones.  An estimate that agrees with itself by
 * chance does not agree with either neighbour; one whose steps are too long for a bend is
 * contradicted by those with shorter ones; and where these only get worse, and not by roundings,
 * none is good: L is steeper than the shortest step can resolve. */
static struct slope best_of(const struct slope *s, int n)
{
    const struct slope *last = &s[n - 1];
    struct slope best = {last->value, INFINITY, 0};

    for (int i = 0; i < n - 1; i++)
        if (4 * s[i].unsure < last->unsure && 16 * last->rounding < last->unsure)
            return best;
    for (int i = 0; i < n; i++) {
        double before = i > 0 ? fabs(s[i].value - s[i - 1].value) : INFINITY;
        double after = i + 1 < n ? fabs(s[i].value - s[i + 1].value) : INFINITY;
        double unsure = fmax(s[i].unsure, fmin(before, after));
        for (int j = i + 1; j < n; j++)
            unsure = fmax(unsure, fabs(s[i].value - s[j].value) - s[j].unsure);
        if (unsure < best.unsure)
            best = (struct slope){s[i].value, unsure, s[i].rounding};
    }
    return best;
}

/* The slope in the probe's direction.  `size` is the scale that errors are relative to, `expected`
 * the slope by the gradient.  A sure estimate that differs from it may have missed how steep L is
 * within the step, so other steps are tried, too. */
static int estimate(const struct probe *p, double size, double expected, struct slope *to)
{
    double first = p->element >= 0 ? FIRST_STEP : FIRST_STRIDE;
    struct slope s[LONGER + 1 + SHORTER];
    int from = LONGER, n = LONGER, e = 0, sure = 0;

    /* Until roundings dominate, and one more to confirm that. */
    for (double h = first; !e && !sure && n < (int)COUNT(s); h *= RATIO) {
        e = p->stop && *p->stop ? err_set("interrupted") : romberg(p, h, &s[n++]);
        const struct slope *is = &s[n - 1], *was = n - 2 >= LONGER ? &s[n - 2] : NULL;
        sure = !e && is->unsure <= SURE * size &&
               fabs(is->value - expected) <= FACTOR * is->unsure + 0x1p-52 * size;
        *to = *is;
        if (was && 2 * was->rounding > was->unsure)
            break;
    }
    for (double h = first / RATIO; !e && !sure && from && 2 * s[from].rounding > s[from].unsure;
         h /= RATIO)
        e = romberg(p, h, &s[--from]);
    memcpy(p->up->x[p->arg], p->at->t->x[p->arg], p->n * sizeof(double));
    memcpy(p->down->x[p->arg], p->at->t->x[p->arg], p->n * sizeof(double));
    if (!e && !sure)
        *to = best_of(s + from, n - from);
    return e ? -1 : 0;
}

/* ---- a gradient ---- */

/* The natural size of its slopes.  Gradients that are much smaller (of a saturated softmax, say)
 * are judged relative to that. */
static double natural(const struct probe *p)
{
    const double *x = p->at->t->x[p->arg];
    double sum = 0;

    for (int64_t i = 0; i < p->n; i++)
        sum += isfinite(x[i]) ? x[i] * x[i] : 0;
    return sum > 0 ? p->at->mass / sqrt(sum / p->n) : p->at->mass;
}

/* A gradient too imprecisely estimated to be judged is neither passed nor failed. */
static void settle(struct verdict *v, double size, double natural)
{
    double unsure = v->bound * size / fmax(size, natural);
    int agrees = v->error <= v->bound;
    v->pass = agrees || !(unsure <= HOPELESS);
    v->unjudged = v->pass && !(agrees && unsure <= VACUOUS);
}

/* A bound that the error exceeds, with the roundings of what forward leaves to backward.  Where the inputs
 * move that on a coarse grid, as they do a large log-sum of exponentials, its rounding is the same in all
 * runs and shows in no other measure.  Elsewhere that measure may be much too large: where it says nothing,
 * the bound stays, so that a wrong gradient fails. */
static double with_between(const struct probe *p, double error, double bound, double size)
{
    const double wider = bound + FACTOR * p->at->between[p->arg] / size;

    return error > bound && wider <= VACUOUS ? wider : bound;
}

static int check_elements(struct probe *p, struct verdicts *list)
{
    const double *g = p->at->t->g[p->arg];
    double *numeric = calloc(p->n, sizeof *numeric), size = 0, bound = 0, off = 0;
    int e = numeric ? 0 : err_set("no memory for differences");

    for (int64_t i = 0; i < p->n; i++)
        size = isfinite(g[i]) && fabs(g[i]) >= LEAST ? fmax(size, fabs(g[i])) : size;
    for (int64_t i = 0; !e && i < p->n; i++) {
        struct slope s = {g[i], 0, 0};
        p->element = i;
        p->direction = 0;
        if (sign(p, i) != 0)
            e = estimate(p, size, g[i], &s);
        numeric[i] = s.value;
        off = fmax(off, fabs(s.value - g[i]));
        bound = fmax(bound, s.unsure + p->at->noise[p->arg]);
    }
    if (!e) {
        const double of = size > 0 ? size : 1;
        bound = with_between(p, off / of, FACTOR * bound / of, of);
        if (size == 0) /* no scale of its own: the elements must be 0 within the bound */
            for (int64_t i = 0; i < p->n; i++)
                numeric[i] = fabs(numeric[i]) <= bound ? 0 : numeric[i];
        const struct tensor_pair pair = {&p->run.call, p->arg, 1, numeric, g};
        e = check_tensor("differences", &pair, fmax(bound, 0x1p-52), list);
    }
    if (!e)
        settle(&list->v[list->n - 1], size > 0 ? size : 1, natural(p) / sqrt(p->n));
    free(numeric);
    return e;
}

static int check_directions(struct probe *p, int directions, struct verdicts *list)
{
    const double *g = p->at->t->g[p->arg];
    long double squares = 0;

    for (int64_t i = 0; i < p->n; i++)
        squares += isfinite(g[i]) ? (long double)g[i] * g[i] : 0;
    const double of = (double)sqrtl(squares), size = of >= LEAST ? of : 1;
    double error = 0, bound = 0;
    p->element = -1;
    for (int d = 0; d < directions; d++) {
        struct slope s;
        long double dot = 0;
        p->direction = draw_key(d, p->op->arg[p->arg].name);
        for (int64_t i = 0; i < p->n; i++)
            dot += sign(p, i) != 0 ? g[i] * sign(p, i) : 0;
        if (estimate(p, size, (double)dot, &s))
            return -1;
        double off = fabs(s.value - (double)dot) / size;
        if (!(off <= error)) /* a NaN stays */
            error = off;
        bound = fmax(bound, FACTOR * (s.unsure + p->at->noise[p->arg]) / size);
    }
    char name[32];
    snprintf(name, sizeof name, "d_%s", p->op->arg[p->arg].name);
    struct verdict *v = verdict_add(list, "differences", name, &ref64, p->run.call.kernel);
    if (!v)
        return -1;
    v->error = v->norm = isnan(error) ? INFINITY : error;
    v->bound = fmax(with_between(p, error, bound, size), 0x1p-52);
    snprintf(v->worst, sizeof v->worst, "%d directions", directions);
    settle(v, size, natural(p));
    return 0;
}

static int check_here(struct probe *p, int64_t exhaustive, int directions, struct verdicts *list)
{
    return p->n <= exhaustive ? check_elements(p, list) : check_directions(p, directions, list);
}

/* Check at the case's own point; where this does not show whether the gradient is right, check at
 * points near it.  Where no output is usable there is no derivative, and no verdict. */
static int check_gradient(struct probe *p, const struct tensors *t, int64_t exhaustive,
                          int directions, struct verdicts *list)
{
    for (int which = 0; which < POINTS; which++) {
        int before = list->n;
        if (go_to(p, which, t))
            return -1;
        if (p->at->left_out && p->at->left_out == outputs(p->op, &p->run.call))
            return 0;
        if (check_here(p, exhaustive, directions, list))
            return -1;
        if (!list->v[before].pass && !p->at->seen_more) {
            list->n = before;
            if (measure_more(p, &p->point[which]) || check_here(p, exhaustive, directions, list))
                return -1;
        }
        const struct verdict *v = &list->v[before];
        if (!v->unjudged && (v->pass || v->bound <= VACUOUS))
            return 0;
        if (which < POINTS - 1)
            list->n = before;
    }
    return 0;
}

static int check_gradients(const struct call *f, const struct tensors *t, int64_t exhaustive,
                           int directions, const volatile int *stop, struct verdicts *list)
{
    const struct op *o = f->op;
    int64_t m = outputs(o, f) + 1;
    struct probe p = {
        .op = o,
        .stop = stop,
        .run = {.call = call_on(f, &ref64, op_kernel(o, &ref64, 0), NULL), .forward_only = 1},
        .up = tensors_copy(f, t),
        .down = tensors_copy(f, t),
        .e = calloc(m, sizeof(double)),
        .k = calloc(m, sizeof(double)),
    };
    int e = !p.up || !p.down ? -1 : !p.e || !p.k ? err_set("no memory for differences") : 0;

    for (int i = 0; !e && i < o->n_args; i++) {
        p.n = op_count(f, i);
        p.arg = i;
        if (op_results(f, i, 1))
            e = check_gradient(&p, t, exhaustive, directions, list);
    }
    tensors_free(p.up);
    tensors_free(p.down);
    for (int i = 0; i < POINTS; i++)
        tensors_free(p.point[i].own);
    free(p.e);
    free(p.k);
    return e;
}

int check_differences(const struct call *f, const struct tensors *t, int64_t exhaustive,
                      int directions, const volatile int *stop, struct verdicts *list)
{
    struct run c = {.call = call_on(f, &ref64, op_kernel(f->op, &ref64, 0), NULL)};

    c.call.accumulate = set_none();
    struct tensors *alone = set_any(&f->accumulate) ? run_copy(&c, t, NULL) : NULL;
    if (set_any(&f->accumulate) && !alone)
        return -1;
    int e = check_gradients(&c.call, alone ? alone : t, exhaustive, directions, stop, list);
    tensors_free(alone);
    return e;
}
