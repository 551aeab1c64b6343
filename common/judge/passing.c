/* Changes of a case, and whether they would pass (passing.h). */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/judge/passing.h"

/* What is asked of a case. */
struct asking {
    struct bounds *b;
    const struct results *by;
    const struct tensors *inputs; /* of the case */
    const volatile int *stop;
    struct passing *to;
};

static const struct call *call_of(const struct asking *a)
{
    return &a->b->truth->call;
}

static int is_stopped(const struct asking *a)
{
    return a->stop && *a->stop;
}

/* ---- the answers ---- */

static int add_line(struct lines *to, const char *text)
{
    char **line = grow(to->line, to->n, sizeof *line);

    if (line)
        to->line = line;
    if (!line || !(line[to->n] = strdup(text)))
        return err_set("no memory for what would pass");
    to->n++;
    return 0;
}

/* How a change is seen: it is refused, it passes, or it changes no bit. */
enum seen { REFUSED, PASSES, HIDDEN };

static int add_answer(struct passing *p, enum seen seen, const char *format, ...)
{
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return add_line(seen == REFUSED ? &p->refused : &p->pass, text) ||
                   (seen == HIDDEN && add_line(&p->hidden, text))
               ? -1
               : 0;
}

struct results results_of(const struct call *f)
{
    struct results all = {0};

    FOR_RESULTS (f, i, grad)
        if (grad || f->op->arg[i].flags & OUT)
            results_add(&all, i, grad);
    return all;
}

/* Have all these results the bits of the right ones? */
static int all_same(const struct asking *a, const struct tensors *got, const struct tensors *right)
{
    const struct call *f = call_of(a);

    FOR_RESULTS (f, i, grad) {
        const struct tensor_pair pair = tensor_pair(f, i, grad, got, right);
        if (results_have(a->by, i, grad) && !pair_same(&pair))
            return 0;
    }
    return 1;
}

/* How results are seen, where `right` are those of the same arithmetic: enum seen, or -1 after err_set(). */
static int seen_as(const struct asking *a, const struct tensors *got, const struct tensors *right)
{
    const struct call *f = call_of(a);
    int within = 1;

    FOR_RESULTS (f, i, grad) {
        const struct tensor_pair pair = {f, i, grad, tensors_values(got, i, grad),
                                         truth_wants(a->b->truth, i, grad)};
        if (within == 1 && results_have(a->by, i, grad))
            within = is_within(&pair, a->b);
    }
    return within == 1 && all_same(a, got, right) ? HIDDEN : within;
}

/* How is what this call makes of these inputs seen?  -1 after err_set(). */
static int passes(const struct asking *a, const struct call *f, const struct tensors *inputs)
{
    const struct run run = {.call = *f};
    struct tensors *got = run_copy(&run, inputs, NULL);
    const int seen = got ? seen_as(a, got, a->b->truth->oracle) : -1;

    tensors_free(got);
    return seen;
}

static struct call on_oracle(const struct call *f)
{
    return call_on(f, &ref64, op_kernel(f->op, &ref64, 0), NULL);
}

/* ---- parameters ---- */

/* Has it the tensors of the other, of the same shapes? */
static int same_tensors(const struct call *a, const struct call *b)
{
    for (int i = 0; i < a->op->n_args; i++)
        if (op_has(a, i) != op_has(b, i) ||
            (op_has(a, i) &&
             (strcmp(op_shape(a, i), op_shape(b, i)) != 0 || op_count(a, i) != op_count(b, i))))
            return 0;
    return 1;
}

/* Is the changed call one of the operation, on the case's tensors? */
static int is_call(const struct asking *a, struct call *changed)
{
    return !op_complete(changed) && same_tensors(changed, call_of(a));
}

static int ask_setting(const struct asking *a, const struct call *changed, int param)
{
    char buffer[32];
    const struct call f = on_oracle(changed);
    const struct param *p = &f.op->param[param];
    const int pass = passes(a, &f, a->inputs);

    if (pass < 0 ||
        (p->real ? add_answer(a->to, pass, "%s = %.4g", p->name, f.real[param])
                 : add_answer(a->to, pass, "%s = %s", p->name, op_value(&f, param, buffer))))
        return -1;
    return pass;
}

static int ask_real(const struct asking *a, int param)
{
    const struct call *f = call_of(a);
    const struct real_range *range = f->op->param[param].real;
    const double x = f->real[param], instead[] = {x == 0 ? 0.1 : 0, 2 * x, 1.01 * x};
    int pass = 0;

    for (size_t k = 0; !pass && k < (x == 0 ? 1 : COUNT(instead)); k++) {
        struct call changed = *f;
        changed.real[param] = instead[k];
        if (instead[k] >= range->min && instead[k] <= range->max && is_call(a, &changed))
            pass = ask_setting(a, &changed, param);
    }
    return pass < 0 ? -1 : 0;
}

static int ask_choice(const struct asking *a, int param)
{
    const struct call *f = call_of(a);
    const struct param *p = &f->op->param[param];
    int pass = 0;

    for (int step = -1; pass >= 0 && step <= 1; step += 2) {
        const int choice = f->choice[param] + step;
        struct call changed = *f;
        if (choice < 0 || !p->choices[choice])
            continue;
        changed.choice[param] = choice;
        if (is_call(a, &changed))
            pass = ask_setting(a, &changed, param);
    }
    return pass < 0 ? -1 : 0;
}

static int ask_settings(const struct asking *a)
{
    const struct call *f = call_of(a);

    for (int i = 0; i < f->op->n_params && !is_stopped(a); i++) {
        const struct param *p = &f->op->param[i];
        char value[32];
        if (p->aside || !*op_value(f, i, value))
            continue;
        if ((p->real && ask_real(a, i)) || (p->choices && ask_choice(a, i)))
            return -1;
    }
    return 0;
}

/* ---- inputs ---- */

/* What a call is given besides its initial gradients: an input, or the gradient of an output. */
static double **given_at(struct tensors *t, const struct op *o, int arg)
{
    return o->arg[arg].flags & IN ? &t->x[arg] : &t->g[arg];
}

static int ask_inputs(const struct asking *a, const struct tensors *inputs, const char *what)
{
    const struct call f = on_oracle(call_of(a));
    const int pass = passes(a, &f, inputs);
    return pass < 0 || add_answer(a->to, pass, "%s", what) ? -1 : 0;
}

static void given_name(const struct op *o, int arg, char name[32])
{
    tensor_name(o, arg, !(o->arg[arg].flags & IN), name);
}

static int ask_redrawn(const struct asking *a, int arg, const struct tensors *other)
{
    struct tensors changed = *a->inputs, drawn = *other;
    const struct op *o = call_of(a)->op;
    char name[32], what[64];

    if (o->arg[arg].flags & BYTES)
        changed.b[arg] = drawn.b[arg];
    else
        *given_at(&changed, o, arg) = *given_at(&drawn, o, arg);
    given_name(o, arg, name);
    snprintf(what, sizeof what, "%s drawn anew", name);
    return ask_inputs(a, &changed, what);
}

/* The elements of the last index on axis k of a tensor become 0; 0: they were. */
static int clear_last(const struct call *f, int arg, int k, double *x)
{
    const char *shape = op_shape(f, arg);
    const int64_t n = op_count(f, arg), length = DIM(f, shape[k]);
    int64_t inner = 1;
    int cleared = 0;

    for (const char *c = shape + k + 1; *c; c++)
        inner *= DIM(f, *c);
    for (int64_t i = 0; i < n; i++)
        if (i / inner % length == length - 1 && x[i] != 0) {
            x[i] = 0;
            cleared = 1;
        }
    return cleared;
}

static int ask_cleared(const struct asking *a, int arg, int k)
{
    const struct call *f = call_of(a);
    struct tensors changed = *a->inputs;
    double **x = given_at(&changed, f->op, arg);
    const int64_t n = op_count(f, arg);
    double *cleared = malloc((size_t)n * sizeof *cleared);
    char name[32], what[160];
    int e = 0;

    if (!cleared)
        return err_set("no memory for %s", f->op->arg[arg].name);
    memcpy(cleared, *x, (size_t)n * sizeof *cleared);
    given_name(f->op, arg, name);
    snprintf(what, sizeof what, "%s = 0 at the last of %s", name,
             op_axis(f->op, op_shape(f, arg)[k]));
    if (clear_last(f, arg, k, cleared)) {
        *x = cleared;
        e = ask_inputs(a, &changed, what);
    }
    free(cleared);
    return e;
}

static int ask_tensor(const struct asking *a, int arg, const struct tensors *other)
{
    const struct call *f = call_of(a);
    struct tensors given = *a->inputs;
    const char *shape = op_shape(f, arg);
    const int numbers = !(f->op->arg[arg].flags & (BYTES | WHOLE));
    int e = ask_redrawn(a, arg, other);

    for (int k = 0; !e && numbers && *given_at(&given, f->op, arg) && shape[k] && !is_stopped(a);
         k++)
        if (DIM(f, shape[k]) > 1)
            e = ask_cleared(a, arg, k);
    return e;
}

/* The gradient of an output is, where a gradient is among the results. */
static int is_given(const struct asking *a, int arg)
{
    const unsigned flags = call_of(a)->op->arg[arg].flags;
    return op_has(call_of(a), arg) &&
           (flags & IN || (set_any(&a->by->g) && flags & OUT && flags & DIFF));
}

static int ask_tensors(const struct asking *a, uint64_t seed)
{
    const struct call *f = call_of(a);
    struct tensors *other = tensors_new(f);
    int e = !other;

    if (!e) {
        tensors_draw(other, f, seed, 1);
        tensors_round(other, f);
    }
    for (int i = 0; !e && i < f->op->n_args && !is_stopped(a); i++)
        if (is_given(a, i))
            e = ask_tensor(a, i, other);
    tensors_free(other);
    return e ? -1 : 0;
}

/* ---- wrong kernels ---- */

/* Is it only in other results that it has not the bits of the right kernel? */
static int differs_elsewhere(const struct asking *a, const struct tensors *got)
{
    const struct tensors *right = a->b->truth->yard;
    return all_same(a, got, right) && !tensors_same(call_of(a), got, right);
}

static int ask_kernel(const struct asking *a, const struct call *f)
{
    const struct run run = {.call = *f};
    struct tensors *got = run_copy(&run, a->inputs, NULL);
    int e = !got;

    if (!e && !differs_elsewhere(a, got)) {
        const int pass = seen_as(a, got, a->b->truth->yard);
        e = pass < 0 || add_answer(a->to, pass, "%s", f->kernel->idea);
    }
    tensors_free(got);
    return e ? -1 : 0;
}

static int ask_kernels(const struct asking *a)
{
    const struct impl *k;
    const struct backend *yard = yardstick(call_of(a)->backend);

    for (int i = 0; !is_stopped(a) && (k = op_wrong(call_of(a)->op, yard, i)); i++) {
        const struct call f = call_on(call_of(a), yard, k, NULL);
        if (!impl_declines(&f) && ask_kernel(a, &f))
            return -1;
    }
    return 0;
}

/* ---- all ---- */

int passing_find(struct bounds *b, const struct results *by, uint64_t seed,
                 const volatile int *stop, struct passing *to)
{
    static const uint64_t OTHER = 0x9e3779b97f4a7c15;
    const struct asking a = {b, by, b->truth->inputs, stop, to};

    *to = (struct passing){.pass = {.n = 0}};
    while (!is_stopped(&a) && bounds_sample_more(b, 0))
        ;
    return ask_settings(&a) || ask_tensors(&a, seed ^ OTHER) || ask_kernels(&a) ? -1 : 0;
}

static void lines_free(struct lines *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->line[i]);
    free(l->line);
}

void passing_free(struct passing *p)
{
    lines_free(&p->pass);
    lines_free(&p->refused);
    lines_free(&p->hidden);
    *p = (struct passing){.pass = {.n = 0}};
}

char *lines_text(const struct lines *l)
{
    size_t bytes = 1;

    for (int i = 0; i < l->n; i++)
        bytes += strlen(l->line[i]) + 1;
    char *text = calloc(bytes, 1);
    if (!text)
        return err_null("no memory for what would pass");
    for (int i = 0; i < l->n; i++)
        append(text, bytes, "%s\n", l->line[i]);
    return text;
}
