/* The properties that hold of any operation, and the parameter that changes no result. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/judge/check.h"

/* ---- loops over all tensors ---- */

/* A tensor seen from one of its axes: outer x length x inner elements. */
struct extent {
    int64_t outer, length, inner;
};

static struct extent extent(const struct call *f, int arg, char letter)
{
    struct extent a = {1, 0, 1};
    if (!op_has(f, arg))
        return a;
    for (const char *c = op_shape(f, arg); *c; c++) {
        if (*c == letter)
            a.length = DIM(f, letter);
        else if (a.length)
            a.inner *= DIM(f, *c);
        else
            a.outer *= DIM(f, *c);
    }
    return a;
}

/* The bytes of a row, which all elements of one place on the axis within an outer one are. */
static size_t row_bytes(const struct call *f, int arg, struct extent a)
{
    return a.inner * tensors_each(f, arg);
}

/* Reverse the order of an axis of rows of so many bytes, in place. */
static void reverse(void *values, struct extent a, size_t row)
{
    unsigned char *x = values;

    for (int64_t o = 0; x && o < a.outer; o++)
        for (int64_t l = 0; l < a.length / 2; l++) {
            unsigned char *one = x + (o * a.length + l) * row;
            unsigned char *other = x + (o * a.length + a.length - 1 - l) * row;
            for (size_t i = 0; i < row; i++) {
                const unsigned char was = one[i];
                one[i] = other[i];
                other[i] = was;
            }
        }
}

/* Bit by bit, or within the bounds where it may be `loose`. */
static int compare_one(const char *check, struct tensor_pair pair, struct bounds *loose,
                       struct verdicts *list)
{
    return loose ? check_both(check, &pair, loose, list) : check_tensor(check, &pair, 0, list);
}

/* Compare all results of two runs: bit by bit, or within the bounds where
 * `loose` says so of the tensor. */
static int compare(const char *check, const struct run *c, const struct tensors *got,
                   const struct tensors *want, struct bounds *bounds, const int *loose,
                   struct verdicts *list)
{
    for (int i = 0; i < c->call.op->n_args; i++)
        for (int grad = 0; grad < 2; grad++)
            if (op_results(&c->call, i, grad) &&
                compare_one(check, tensor_pair(&c->call, i, grad, got, want),
                            loose && loose[i] ? bounds : NULL, list))
                return -1;
    return 0;
}

/* ---- written, guards, repeat ---- */

/* Outputs in the memory of inputs have the same bits. */
static int check_in_place(const struct run *call, const struct tensors *inputs,
                          const struct tensors *want, struct verdicts *list)
{
    struct run c = *call;
    int any = 0, e = 0;

    c.call.in_place = !c.call.in_place;
    for (int i = 0; i < c.call.op->n_args; i++)
        any |= op_overwrites(&c.call, i) >= 0;
    if (!any)
        return 0;
    struct tensors *got = tensors_copy(&c.call, inputs);
    e = !got || run_op(&c, got, NULL) || compare("in place", &c, got, want, NULL, NULL, list);
    tensors_free(got);
    return e ? -1 : 0;
}

/* A verdict that is yes or no. */
static int note(const char *check, const struct run *c, const char *tensor, int pass,
                struct verdicts *list)
{
    struct verdict *v = verdict_add(list, check, tensor, c->call.backend, c->call.kernel);
    if (!v)
        return -1;
    v->pass = pass;
    v->error = v->norm = pass ? 0 : INFINITY;
    return 0;
}

/* Elements that still hold what their memory was filled with: it was NaN before one run, and before
 * the other was not. */
static int64_t unwritten(const double *x, const double *y, int64_t n)
{
    int64_t left = 0;
    for (int64_t j = 0; j < n; j++)
        left += isnan(x[j]) && !isnan(y[j]);
    return left;
}

/* The same of bytes, which are not two values in two runs. */
static int64_t unwritten_bytes(const unsigned char *x, const unsigned char *y, int64_t n)
{
    int64_t left = 0;
    for (int64_t j = 0; j < n; j++)
        left += x[j] == POISON && y[j] == OTHER_POISON;
    return left;
}

static int check_written(const struct run *c, const struct tensors *t, const struct tensors *other,
                         struct verdicts *list)
{
    FOR_RESULTS (&c->call, i, grad) {
        char name[32];
        const void *x = tensors_values(t, i, grad), *y = tensors_values(other, i, grad);
        const int64_t n = op_count(&c->call, i);
        if (!(op_is_bytes(&c->call, i) ? unwritten_bytes(x, y, n) : unwritten(x, y, n)))
            continue;
        tensor_name(c->call.op, i, grad, name);
        return note("written", c, name, 0, list);
    }
    return note("written", c, "all", 1, list);
}

/* ---- batch, causality ---- */

/* The values of a tensor, and its gradient. */
static void reverse_all(const struct run *c, struct tensors *t, int i, struct extent a)
{
    reverse(tensors_values(t, i, 0), a, row_bytes(&c->call, i, a));
    reverse(t->g[i], a, row_bytes(&c->call, i, a));
}

/* May the bits of a row depend on its index, and on the other rows? */
static int may_differ(const struct call *f)
{
    return f->op->blas && !f->kernel->rows_alone;
}

static int check_batch(const struct run *c, const struct tensors *inputs,
                       const struct tensors *want, struct bounds *bounds, struct verdicts *list)
{
    const struct op *o = c->call.op;
    struct tensors *t = tensors_copy(&c->call, inputs);
    int loose[MAX_ARGS], e = t ? 0 : -1;

    for (int i = 0; !e && i < o->n_args; i++) {
        struct extent a = extent(&c->call, i, op_batch(&c->call));
        reverse_all(c, t, i, a);
        reverse(t->g0[i], a, row_bytes(&c->call, i, a));
        loose[i] =
            may_differ(&c->call) || !a.length; /* a sum over the batch has another order now */
    }
    if (!e)
        e = run_op(c, t, NULL);
    for (int i = 0; !e && i < o->n_args; i++) {
        reverse_all(c, t, i, extent(&c->call, i, op_batch(&c->call)));
    }
    if (!e)
        e = compare("batch", c, t, want, bounds, loose, list);
    tensors_free(t);
    return e;
}

/* Copy x to `to` for time steps from <= t < below, of rows of so many bytes; all others stay. */
static void splice(void *to, const void *x, struct extent a, size_t row, int64_t from,
                   int64_t below)
{
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t t = from; t < below; t++)
            memcpy((char *)to + (o * a.length + t) * row,
                   (const char *)x + (o * a.length + t) * row, row);
}

/* Inputs from the middle step on are other ones, and so are the gradients of
 * outputs before it: then outputs before it and gradients of inputs from it
 * on are the same.  (The gradients see the state's values, so for them only
 * the outputs' gradients change.)  Inputs of bytes stay: there is no other one
 * that any contract allows. */
static int check_causal(const struct run *c, const struct tensors *inputs,
                        const struct tensors *want, struct bounds *bounds, struct verdicts *list)
{
    const struct op *o = c->call.op;
    int64_t T = DIM(&c->call, op_time(&c->call)), middle = T / 2;
    int e = 0;

    for (int grad = 0; !e && grad < 2; grad++) {
        struct tensors *t = tensors_copy(&c->call, inputs);
        e = t ? 0 : -1;
        for (int i = 0; !e && i < o->n_args; i++) {
            struct extent a = extent(&c->call, i, op_time(&c->call));
            double *x = grad ? (o->arg[i].flags & OUT ? t->g[i] : NULL)
                             : (o->arg[i].flags & IN ? t->x[i] : NULL);
            if (!a.length || !x)
                continue;
            int64_t step = a.inner;
            for (int64_t outer = 0; outer < a.outer; outer++)
                for (int64_t j = 0; j < T * step; j++)
                    if ((j / step < middle) == grad)
                        x[outer * T * step + j] = -x[outer * T * step + j];
        }
        if (!e)
            e = run_op(c, t, NULL);
        for (int i = 0; !e && i < o->n_args; i++) {
            struct extent a = extent(&c->call, i, op_time(&c->call));
            if (!a.length || !op_results(&c->call, i, grad) || o->arg[i].flags & SAVED)
                continue;
            /* Where it may differ, take over what was there. */
            splice(tensors_values(t, i, grad), tensors_values(want, i, grad), a,
                   row_bytes(&c->call, i, a), grad ? 0 : middle, grad ? middle : T);
            e = compare_one("causal", tensor_pair(&c->call, i, grad, t, want),
                            o->blas ? bounds : NULL, list);
        }
        tensors_free(t);
    }
    return e;
}

/* ---- a part of a case as a case of its own ---- */

/* The case with one axis cut to `length`. */
static int cut(const struct run *c, char axis, int64_t length, struct call *f)
{
    *f = c->call;
    DIM(f, axis) = length;
    return op_complete(f);
}

/* Does the kernel run that? */
static int takes(const struct run *c, char axis, int64_t length)
{
    struct call f;
    return !cut(c, axis, length, &f) && !impl_declines(&f);
}

/* An interval of an axis with rows of so many bytes. */
struct interval {
    struct extent axis;
    size_t row;
    int64_t from, length;
};

static struct interval interval_of(const struct call *whole, int arg, char axis, int64_t from,
                                   int64_t length)
{
    const struct extent a = extent(whole, arg, axis);
    return (struct interval){a, row_bytes(whole, arg, a), from, length};
}

/* Copy this interval out of a whole tensor into a smaller one, or back (put). */
static void part(void *some, void *whole, const struct interval *p, int put)
{
    for (int64_t o = 0; some && whole && o < p->axis.outer; o++) {
        char *w = (char *)whole + (o * p->axis.length + p->from) * p->row;
        char *s = (char *)some + o * p->length * p->row;
        memcpy(put ? w : s, put ? s : w, p->length * p->row);
    }
}

struct share {
    struct call call;
    struct tensors *t;
    int64_t from, length;
};

static int share_new(const struct run *c, const struct tensors *inputs, char axis, int64_t from,
                     int64_t length, struct share *h)
{
    const struct op *o = c->call.op;

    h->from = from;
    h->length = length;
    if (cut(c, axis, length, &h->call) || !(h->t = tensors_new(&h->call)))
        return -1;
    for (int i = 0; i < o->n_args; i++) {
        const struct interval p = interval_of(&c->call, i, axis, from, length);
        if (!(o->arg[i].flags & (IN | OUT)))
            continue;
        if (p.axis.length) {
            part(tensors_values(h->t, i, 0), tensors_values(inputs, i, 0), &p, 0);
            part(h->t->g[i], inputs->g[i], &p, 0);
            part(h->t->g0[i], inputs->g0[i], &p, 0);
        } else {
            size_t bytes = op_count(&c->call, i) * tensors_each(&c->call, i);
            if (tensors_values(h->t, i, 0))
                memcpy(tensors_values(h->t, i, 0), tensors_values(inputs, i, 0), bytes);
            if (h->t->g[i])
                memcpy(h->t->g[i], inputs->g[i], bytes);
            if (h->t->g0[i])
                memcpy(h->t->g0[i], inputs->g0[i], bytes);
        }
    }
    return 0;
}

static int share_run(const struct run *c, struct share *h)
{
    struct run run = *c;
    run.call = h->call;
    return run_op(&run, h->t, NULL);
}

/* The last row of the batch gives the same bits without the others. */
static int check_alone(const struct run *c, const struct tensors *inputs,
                       const struct tensors *want, struct verdicts *list)
{
    const struct op *o = c->call.op;
    struct share last = {.t = NULL};
    struct tensor_pair pair;
    int e =
        share_new(c, inputs, op_batch(&c->call), DIM(&c->call, op_batch(&c->call)) - 1, 1, &last) ||
        share_run(c, &last);

    FOR_RESULTS (&c->call, i, grad) {
        const struct interval p = interval_of(&c->call, i, op_batch(&c->call), last.from, 1);
        if (e || !p.axis.length)
            continue;
        void *of_all = malloc(op_count(&last.call, i) * tensors_each(&c->call, i));
        if (!of_all) {
            e = err_set("no memory for a copy of %s", o->arg[i].name);
            break;
        }
        part(of_all, tensors_values(want, i, grad), &p, 0);
        pair = (struct tensor_pair){&last.call, i, grad, tensors_values(last.t, i, grad), of_all};
        e = compare_one("alone", pair, NULL, list);
        free(of_all);
    }
    tensors_free(last.t);
    return e;
}

/* ---- one run is two that hand the state over ---- */

/* For every final state: its place and that of the initial state it becomes. */
static int handover(const struct run *c, int *final, int *initial)
{
    for (int i = *final; i < c->call.op->n_args; i++)
        if (c->call.op->arg[i].continues && op_has(&c->call, i)) {
            *final = i;
            *initial = op_arg(c->call.op, c->call.op->arg[i].continues);
            return 1;
        }
    return 0;
}

/* Is there a state to hand over, and is each initial one as large as its final one?  (A
 * tape that all sequences share at first is one for each at the end.) */
static int continues(const struct run *c)
{
    int final = 0, initial, pairs = 0;
    for (; handover(c, &final, &initial); final++, pairs++)
        if (op_count(&c->call, final) != op_count(&c->call, initial))
            return 0;
    return pairs > 0;
}

/* Put the two halves' results together as one run's would be. */
static void join(const struct run *c, struct share *one, struct share *two, struct tensors *got,
                 int *loose)
{
    const struct op *o = c->call.op;

    for (int i = 0; i < o->n_args; i++) {
        const char axis = op_time(&c->call);
        const struct interval first = interval_of(&c->call, i, axis, one->from, one->length);
        const struct interval second = interval_of(&c->call, i, axis, two->from, two->length);
        int64_t n = op_count(&c->call, i);
        loose[i] = o->blas;
        if (o->arg[i].flags & SAVED || !n)
            continue;
        if (first.axis.length) {
            part(tensors_values(one->t, i, 0), tensors_values(got, i, 0), &first, 1);
            part(tensors_values(two->t, i, 0), tensors_values(got, i, 0), &second, 1);
            part(one->t->g[i], got->g[i], &first, 1);
            part(two->t->g[i], got->g[i], &second, 1);
            continue;
        }
        int carried = 0, final = 0, initial;
        for (; handover(c, &final, &initial); final++)
            carried |= i == final || i == initial;
        loose[i] |= !carried;
        if (!(o->arg[i].flags & IN))
            memcpy(tensors_values(got, i, 0), tensors_values(two->t, i, 0),
                   n * tensors_each(&c->call, i));
        for (int64_t j = 0; got->g[i] && j < n; j++)
            got->g[i][j] = one->t->g[i][j] + (carried ? 0 : two->t->g[i][j]);
    }
}

/* What both halves have the gradient of is the initial gradient once: the first half adds to it.
 * The second adds to -0, which leaves any number as it is. */
static void add_once(const struct run *c, struct share *two)
{
    for (int i = 0; i < c->call.op->n_args; i++)
        for (int64_t j = 0; two->t->g0[i] && j < op_count(&two->call, i); j++)
            if (!extent(&c->call, i, op_time(&c->call)).length)
                two->t->g0[i][j] = -0.0;
}

static int check_handover(const struct run *c, const struct tensors *inputs,
                          const struct tensors *want, struct bounds *bounds, struct verdicts *list)
{
    const struct op *o = c->call.op;
    int64_t T = DIM(&c->call, op_time(&c->call));
    struct share one = {.t = NULL}, two = {.t = NULL};
    struct tensors *got = tensors_copy(&c->call, want);
    int64_t chunk = impl_chunk(&c->call);
    int loose[MAX_ARGS], final, initial, n;
    int e = !got || share_new(c, inputs, op_time(&c->call), 0, T / 2, &one) ||
            share_new(c, inputs, op_time(&c->call), T / 2, T - T / 2, &two) || share_run(c, &one);
    if (!e)
        add_once(c, &two);

    /* The first half's forward, the second whole, the first again for its backward. */
    for (final = 0; !e && handover(c, &final, &initial); final++) {
        n = op_count(&c->call, final);
        memcpy(tensors_values(two.t, initial, 0), tensors_values(one.t, final, 0),
               n * tensors_each(&c->call, final));
    }
    e = e || share_run(c, &two);
    for (final = 0; !e && handover(c, &final, &initial); final++) {
        n = op_count(&c->call, final);
        if (one.t->g[final])
            memcpy(one.t->g[final], two.t->g[initial], n * sizeof(double));
    }
    e = e || share_run(c, &one);
    if (!e) {
        join(c, &one, &two, got, loose);
        for (int i = 0; chunk && T / 2 % chunk && i < o->n_args; i++)
            loose[i] = 1;
        FOR_RESULTS (&c->call, i, grad)
            if (!e && !(o->arg[i].flags & SAVED))
                e = compare_one("handover", tensor_pair(&c->call, i, grad, got, want),
                                loose[i] ? bounds : NULL, list);
    }
    tensors_free(one.t);
    tensors_free(two.t);
    tensors_free(got);
    return e;
}

/* Is any tensor saved in less than the full type?  Then where the segments
 * begin shows in the gradients. */
static int saved_in_full(const struct run *c)
{
    for (int i = 0; i < c->call.op->n_args; i++)
        if (c->call.op->arg[i].type_choice && c->call.type[i] != c->call.backend->wide)
            return 0;
    return 1;
}

/* Is element j of result `arg` between the parts of a buffer, where all inputs of its shape are 0? */
static int in_gap(const struct call *f, const struct tensors *inputs, int arg, int64_t j)
{
    const struct op *o = f->op;

    if (!o->arg[arg].gap(f, arg, j))
        return 0;
    for (int i = 0; i < o->n_args; i++)
        if (o->arg[i].flags & IN && inputs->x[i] && strcmp(op_shape(f, i), op_shape(f, arg)) == 0 &&
            inputs->x[i][j] != 0)
            return 0;
    return 1;
}

/* Between the parts of a buffer all stays 0. */
static int check_gaps(const struct run *c, const struct tensors *inputs, const struct tensors *t,
                      struct verdicts *list)
{
    const char *not_zero = NULL;
    int has = 0;

    for (int i = 0; i < c->call.op->n_args; i++) {
        const struct arg *a = &c->call.op->arg[i];
        const double *x = a->gap && a->flags & OUT ? t->x[i] : NULL;
        const int over = op_overwrites(&c->call, i);
        const double *was = over < 0 ? NULL : inputs->x[over];
        for (int64_t j = 0; x && j < op_count(&c->call, i); j++) {
            if ((was && was[j] != 0) || !in_gap(&c->call, inputs, i, j))
                continue;
            has = 1;
            not_zero = x[j] != 0 ? a->name : not_zero;
        }
    }
    return has ? note("gaps", c, not_zero ? not_zero : "all", !not_zero, list) : 0;
}

int check_properties(const struct run *call, const struct tensors *inputs, struct bounds *bounds,
                     struct verdicts *list)
{
    const char batch = op_batch(&call->call), time = op_time(&call->call);
    struct run c = *call;
    struct tensors *want = tensors_copy(&c.call, inputs);
    struct tensors *again = tensors_copy(&c.call, inputs);
    struct outcome out;
    int e = !want || !again;

    c.repeats = 0;
    c.guards = 1;
    e = e || run_op(&c, want, &out) ||
        note("guards", &c, out.overrun[0] ? out.overrun : "all", !out.overrun[0], list);
    c.guards = 0;
    c.other_poison = 1;
    e = e || run_op(&c, again, NULL) || check_written(&c, want, again, list) ||
        compare("repeat", &c, again, want, NULL, NULL, list);
    c.other_poison = 0;
    e = e || check_in_place(&c, inputs, want, list) || check_gaps(&c, inputs, want, list);
    if (batch && DIM(&c.call, batch) > 1)
        e = e || check_batch(&c, inputs, want, bounds, list);
    if (batch && !may_differ(&c.call) && DIM(&c.call, batch) > 1 && takes(&c, batch, 1))
        e = e || check_alone(&c, inputs, want, list);
    if (time && DIM(&c.call, time) > 1) {
        int64_t T = DIM(&c.call, time);
        e = e || check_causal(&c, inputs, want, bounds, list);
        if (continues(&c) && saved_in_full(&c) && takes(&c, time, T / 2) &&
            takes(&c, time, T - T / 2))
            e = e || check_handover(&c, inputs, want, bounds, list);
    }
    tensors_free(want);
    tensors_free(again);
    return e ? -1 : 0;
}

/* ---- a parameter that changes nothing ---- */

int check_neutral(const struct call *f, uint64_t seed, struct verdicts *list)
{
    const struct op *o = f->op;
    struct tensors *first = NULL;
    struct lists *values = calloc(1, sizeof *values);
    int e = values ? lists_add(values, o->neutral->name, o->neutral->values, 0) : -1;

    for (int more = 1; !e && more; more = lists_next(values)) {
        struct run c = {.call = *f};
        struct tensors *t = NULL;
        e = op_set(&c.call, o->neutral->name, values->list[0].value[values->list[0].at]) ||
            op_complete(&c.call) || !(t = tensors_new(&c.call));
        if (!e) {
            tensors_draw(t, &c.call, seed, 1);
            tensors_round(t, &c.call);
            e = run_op(&c, t, NULL);
        }
        FOR_RESULTS (f, i, grad)
            if (!e && first && !(o->arg[i].flags & SAVED))
                e = compare_one(o->neutral->name, tensor_pair(&c.call, i, grad, t, first), NULL,
                                list);
        if (!first)
            first = t;
        else
            tensors_free(t);
    }
    tensors_free(first);
    if (values)
        lists_free(values);
    free(values);
    return e ? -1 : 0;
}
