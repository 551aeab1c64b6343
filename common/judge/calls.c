/* A program, call by call (calls.h). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/call/transfer.h"
#include "common/judge/calls.h"

/* A call of a program as it ran. */
struct seen {
    char name[2 * MAX_NAME];
    struct call call;  /* on the backend, of its kernel; nothing is placed */
    struct tensors *t; /* NULL: not yet, or judged */
    struct results there;
};

/* ---- one call ---- */

/* Is a value that the call is given larger than c->most, or none? */
static int is_beyond(const struct calls *c, const struct call *f, const struct tensors *t)
{
    int beyond = 0;

    for (int i = 0; i < f->op->n_args; i++) {
        const double *x = f->op->arg[i].flags & IN ? t->x[i] : t->g[i];
        for (int64_t k = 0; c->most > 0 && x && !beyond && k < op_count(f, i); k++)
            beyond = !(fabs(x[k]) <= c->most);
    }
    return beyond;
}

/* Its results in t, beside its inputs, gradients of outputs and initial gradients; `only` of these results. */
static int check_call(struct calls *c, const struct call *f, const struct tensors *t,
                      const struct results *only)
{
    struct sampled s = {.n_cuts = 0};
    struct truth truth = {.oracle = NULL};
    const int few = sample_work(f) > c->much && sample_all(f);

    if (is_beyond(c, f, t)) {
        c->beyond++;
        return 0;
    }
    int e = few ? sampled_find(&s, f, t, c->seed) : truth_find(&truth, f, t);
    const struct judge j = {&truth, few ? &s : NULL, only};

    e = e || check_case(&j, f, t, c->list);
    sampled_free(&s);
    truth_free(&truth);
    return e ? -1 : 0;
}

/* Verdicts from index `from` on have the line's name before the tensor's. */
static void name_verdicts(struct verdicts *list, int from, const char *name)
{
    for (int i = from; i < list->n; i++) {
        char tensor[sizeof list->v[i].tensor] = "";
        append(tensor, sizeof tensor, "%s.%s", name, list->v[i].tensor);
        memcpy(list->v[i].tensor, tensor, sizeof tensor);
        if (strcmp(list->v[i].check, "parity") == 0)
            list->v[i].check = "call";
    }
}

int check_one_call(struct calls *c, const char *name, const struct call *f, const struct tensors *t,
                   const struct results *only)
{
    const int from = c->list->n, e = check_call(c, f, t, only);

    name_verdicts(c->list, from, name);
    return e;
}

/* A verdict where a tensor is not what it was. */
static int check_same(const char *name, const struct tensor_pair *pair, struct verdicts *list)
{
    const int from = list->n;

    if (pair_same(pair))
        return 0;
    const int e = check_tensor("call", pair, 0, list);
    name_verdicts(list, from, name);
    return e;
}

/* ---- the calls of a layer ---- */

/* A layer's call, its tensors, and a part of it with tensors of its own. */
struct inside {
    const struct call *layer;
    struct tensors *t; /* with the gradients that parts make of what the layer saves */
    struct layer_part part;
    struct tensors *own;
};

/* The layer's tensors that argument `arg` of the part is, `rows` rows of each, one below the other or side by side. */
static void put_together(const struct inside *w, int arg, double *const *from, double *to)
{
    const struct within *of = &w->part.of[arg];
    const struct call *c = &w->part.call;
    const char *shape = op_shape(c, arg);
    const int64_t all = op_count(c, arg), last = DIM(c, shape[strlen(shape) - 1]);
    const int64_t rows = set_has(&w->part.beside, arg) ? all / last : 1;
    int64_t at = 0;

    for (int k = 0; k < of->n; k++) {
        const int64_t n = op_count(w->layer, of->arg[k]) / rows;
        for (int64_t r = 0; r < rows; r++)
            memcpy(to + r * (all / rows) + at, from[of->arg[k]] + r * n, n * sizeof *to);
        at += n;
    }
}

static int all_there(const struct within *of, double *const *from)
{
    for (int k = 0; k < of->n; k++)
        if (!from[of->arg[k]])
            return 0;
    return of->n > 0;
}

/* Does the layer's backward pass add to the gradient that argument `arg` is? */
static int adds_to(const struct inside *w, int arg)
{
    const struct within *of = &w->part.of[arg];
    return of->n == 1 && call_accumulates(w->layer, of->arg[0]);
}

/* The part's tensors, as far as the layer has them; NULL after err_set(). */
static struct tensors *part_tensors(struct inside *w)
{
    struct call *c = &w->part.call;

    for (int i = 0; i < c->op->n_args; i++)
        if (adds_to(w, i))
            set_add(&c->accumulate, i);
    struct tensors *u = tensors_new(c);
    for (int i = 0; u && i < c->op->n_args; i++) {
        const struct within *of = &w->part.of[i];
        if (u->x[i] && all_there(of, w->t->x))
            put_together(w, i, w->t->x, u->x[i]);
        if (u->g[i] && all_there(of, w->t->g))
            put_together(w, i, w->t->g, u->g[i]);
        if (u->g0[i] && all_there(of, w->t->g0))
            put_together(w, i, w->t->g0, u->g0[i]);
    }
    return u;
}

/* A result that the part has made: the layer's, which has the same bits, or one that the layer has made within. */
static int take_result(struct inside *w, const char *name, const struct tensors *made, int arg,
                       int grad, struct verdicts *list)
{
    const struct call *c = &w->part.call;
    const struct within *of = &w->part.of[arg];
    const int64_t n = op_count(c, arg);
    double **layer = of->n == 1 ? &X_OR_G(*w->t, of->arg[0], grad) : NULL;

    if (!layer)
        return 0;
    if (*layer) {
        const struct tensor_pair pair = tensor_pair(c, arg, grad, w->own, made);
        return check_same(name, &pair, list);
    }
    *layer = malloc(n * sizeof **layer);
    if (!*layer)
        return err_set("no memory for the gradients within %s", name);
    memcpy(*layer, X_OR_G(*made, arg, grad), n * sizeof **layer);
    memcpy(X_OR_G(*w->own, arg, grad), *layer, n * sizeof **layer);
    return 0;
}

/* Runs the part, which the layer has run within. */
static int make_within(struct inside *w, const char *name, struct verdicts *list)
{
    const struct run c = {.call = w->part.call};
    struct tensors *made = run_copy(&c, w->own, NULL);
    int e = !made;

    FOR_RESULTS (&c.call, i, grad)
        e = e || take_result(w, name, made, i, grad, list);
    tensors_free(made);
    return e ? -1 : 0;
}

/* The results that the parts so far do not have. */
static void leave_own(const struct inside *w, struct results *left)
{
    FOR_RESULTS (&w->part.call, i, grad)
        if (w->part.of[i].n == 1 && results_have(&w->part.own, i, grad))
            results_remove(left, w->part.of[i].arg[0], grad);
}

/* The part's verdicts, from index `from` on, name the layer's tensors. */
static void name_as_layer(const struct inside *w, struct verdicts *list, int from)
{
    for (int i = from; i < list->n; i++) {
        int grad;
        const int arg = tensor_find(w->part.call.op, list->v[i].tensor, &grad);
        if (arg >= 0 && w->part.of[arg].n == 1)
            tensor_name(w->layer->op, w->part.of[arg].arg[0], grad, list->v[i].tensor);
    }
}

static int check_part(struct calls *c, struct inside *w, const char *name)
{
    struct verdicts *list = c->list;
    w->own = part_tensors(w);
    int e = !w->own || (w->part.makes && make_within(w, name, list));
    const int from = list->n;
    e = e || check_call(c, &w->part.call, w->own, &w->part.own);
    name_as_layer(w, list, from);
    name_verdicts(list, from, name);
    tensors_free(w->own);
    return e ? -1 : 0;
}

/* Part for part, and what is no part's as a whole. */
static int check_layer(struct calls *c, struct seen *s)
{
    const struct call *f = &s->call;
    struct inside w = {.layer = f, .t = s->t};
    struct results left = s->there;
    int e = 0;

    for (int i = 0; !e && f->op->part(f, i, &w.part); i++) {
        leave_own(&w, &left);
        e = check_part(c, &w, s->name);
    }
    if (!e && (set_any(&left.x) || set_any(&left.g)))
        e = check_one_call(c, s->name, f, s->t, &left);
    return e;
}

/* ---- a call of the program ---- */

static int check_seen(struct calls *c, struct seen *s)
{
    return s->call.op->part && set_any(&s->there.g)
               ? check_layer(c, s)
               : check_one_call(c, s->name, &s->call, s->t, &s->there);
}

static int finish(struct calls *c, struct seen *s)
{
    const int e = check_seen(c, s);

    tensors_free(s->t);
    s->t = NULL;
    return e;
}

/* What a pass has made. */
static int see_results(struct seen *s, const struct call *f, int grads)
{
    int e = 0;

    FOR_RESULTS (f, i, grad)
        if (!e && grad == grads && (grad ? f->grad : f->arg)[i]) {
            e = tensors_get(s->t, f, i, grad);
            results_add(&s->there, i, grad);
        }
    return e;
}

static int first_forward(struct calls *c, struct seen *s, int i, const struct call *f)
{
    int e = 0;

    s->call = call_on(f, f->backend, f->kernel, f->context);
    s->call.accumulate = op_gradients(f->op);
    s->t = tensors_new(&s->call);
    if (!s->t)
        return -1;
    for (int k = 0; !e && k < f->op->n_args; k++)
        if (f->op->arg[k].flags & IN)
            e = tensors_get(s->t, f, k, 0);
    e = e || see_results(s, f, 0);
    return e || program_call_backs(c->f->op, i) ? e : finish(c, s);
}

/* Has argument `arg` the bits that forward gave it? */
static int still(struct calls *c, const struct seen *s, const struct call *f, int arg)
{
    const int64_t n = op_count(f, arg);
    struct tensors now = {.x = {NULL}};
    double *values = malloc(n * sizeof *values + 1);
    int e = !values ? err_set("no memory for %s", f->op->arg[arg].name) : 0;

    *(s->t->b[arg] ? (void **)&now.b[arg] : (void **)&now.x[arg]) = values;
    e = e || tensors_get(&now, f, arg, 0);
    const struct tensor_pair pair = tensor_pair(&s->call, arg, 0, &now, s->t);
    e = e || check_same(s->name, &pair, c->list);
    free(values);
    return e;
}

/* Made again, by the bits it had. */
static int again(struct calls *c, const struct seen *s, const struct call *f)
{
    int e = 0;

    for (int i = 0; !e && s->t && i < f->op->n_args; i++)
        if (f->arg[i] && tensors_values(s->t, i, 0) && !(f->op->arg[i].flags & IN))
            e = still(c, s, f, i);
    return e;
}

/* What backward reads. */
static int before_backward(struct calls *c, struct seen *s, const struct call *f)
{
    int e = 0;

    s->call.accumulate = f->accumulate;
    for (int i = 0; !e && i < f->op->n_args; i++) {
        if (f->arg[i] && tensors_values(s->t, i, 0) && op_read_back(f, i))
            e = still(c, s, f, i);
        if (!e && f->op->arg[i].flags & OUT && f->op->arg[i].flags & DIFF)
            e = tensors_get(s->t, f, i, 1);
        if (!e && call_accumulates(f, i))
            e = transfer_get(f, call_type(f, i, 1), s->t->g0[i], f->grad[i], op_count(f, i));
    }
    return e;
}

static int look(const struct program_watch *w, int i, enum pass p, int after, const struct call *f)
{
    struct calls *c = (struct calls *)(void *)(uintptr_t)w;
    struct seen *s = &c->seen[i];
    int e = c->failed;

    if (!e && p == FORWARD && after)
        e = !set_any(&s->there.x) && !s->t ? first_forward(c, s, i, f) : again(c, s, f);
    else if (!e && p == BACKWARD && !after)
        e = before_backward(c, s, f);
    else if (!e && p == BACKWARD)
        e = see_results(s, f, 1) || finish(c, s);
    if (e && !c->failed) {
        c->failed = 1;
        snprintf(c->why, sizeof c->why, "%s: %s", s->name, err_text());
    }
    return e ? 1 : 0;
}

/* ---- a program ---- */

int calls_begin(struct calls *c, const struct call *f, uint64_t seed, struct verdicts *list)
{
    const int n = program_calls(f->op);

    *c = (struct calls){
        .watch = {look}, .f = f, .seed = seed, .much = SAMPLE_MUCH / (n + 1), .list = list};
    c->seen = calloc(n + 1, sizeof *c->seen);
    if (!c->seen)
        return err_set("no memory for %d calls", n);
    for (int i = 0; i < n; i++)
        program_call(f->op, i, c->seen[i].name);
    return 0;
}

void calls_end(struct calls *c)
{
    for (int i = 0; c->seen && i < program_calls(c->f->op); i++)
        tensors_free(c->seen[i].t);
    free(c->seen);
    c->seen = NULL;
}

/* Has a result of the run that was looked at the bits of the one that was not? */
static int check_whole_result(struct calls *c, const struct tensors *t, const struct tensors *got,
                              int arg, int grad)
{
    const struct tensor_pair pair = tensor_pair(c->f, arg, grad, t, got);
    return check_same("whole", &pair, c->list);
}

int calls_run(struct calls *c, const struct program_watch *watch, const struct tensors *got)
{
    struct impl watched = *c->f->kernel;
    struct run r = {.call = *c->f};

    watched.data = watch;
    r.call.kernel = &watched;
    struct tensors *t = run_copy(&r, got, NULL);
    int e = t ? 0 : -1;
    if (c->failed)
        err_set("%s", c->why);
    FOR_RESULTS (&r.call, i, grad)
        e = e || check_whole_result(c, t, got, i, grad);
    tensors_free(t);
    return e ? -1 : 0;
}

int check_ran(const struct judge *j, const struct call *f, const struct tensors *got,
              struct verdicts *list)
{
    return j->sampled && is_program(f->op) ? check_calls(f, got, j->sampled->seed, list)
                                           : check_case(j, f, got, list);
}

int check_calls(const struct call *f, const struct tensors *got, uint64_t seed,
                struct verdicts *list)
{
    struct calls c;
    const int e = calls_begin(&c, f, seed, list) || calls_run(&c, &c.watch, got);

    calls_end(&c);
    return e ? -1 : 0;
}
