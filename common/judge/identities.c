/* Settings of an operation that must agree, as its contract lists them. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/judge/check.h"

/* The next word of a list, or 0 at its end. */
static int next_word(const char **at, char word[64])
{
    *at += strspn(*at, " ");
    size_t n = strcspn(*at, " ");
    if (!n)
        return 0;
    snprintf(word, 64, "%.*s", (int)n, *at);
    *at += n;
    return 1;
}

static void fill_eye(const struct call *f, int arg, double *x)
{
    const char *shape = op_shape(f, arg);
    int64_t columns = DIM(f, shape[strlen(shape) - 1]), rows = DIM(f, shape[strlen(shape) - 2]);
    for (int64_t i = 0; i < op_count(f, arg); i++)
        x[i] = i % columns == i / columns % rows;
}

/* Do as "V0=eye b_z=ones sinks=-1e30 W_q=W_k" says, copies taken from `from`; NULL: nothing.  Bytes
 * can only be copied, from bytes. */
static int give(const struct op *o, const struct call *f, struct tensors *t, const char *words,
                const struct tensors *from)
{
    char word[64];
    while (words && next_word(&words, word)) {
        char *what = strchr(word, '=');
        *what++ = 0;
        int arg = op_arg(o, word), source = op_arg(o, what);
        const void *copied = source < 0 ? NULL : tensors_values(from, source, 0);
        double *x = arg < 0 ? NULL : t->x[arg];
        if (arg < 0 || !tensors_values(t, arg, 0))
            return err_set("identity of %s: no tensor %s", o->name, word);
        const int64_t n = op_count(f, arg);
        if (source >= 0 && (!copied || op_is_bytes(f, source) != op_is_bytes(f, arg)))
            return err_set("identity of %s: no tensor %s%s", o->name, what,
                           copied ? " of the same type" : "");
        if (!x && !copied)
            return err_set("identity of %s: %s is of bytes, and can only be copied", o->name, word);
        if (copied)
            memcpy(tensors_values(t, arg, 0), copied, n * tensors_each(f, arg));
        else if (strcmp(what, "eye") == 0)
            fill_eye(f, arg, x);
        else
            for (int64_t i = 0; i < n; i++)
                x[i] = strcmp(what, "ones") == 0 ? 1 : strtod(what, NULL); /* zeros: 0 */
    }
    return 0;
}

/* An identity of an operation, on a kernel of a backend. */
struct instance {
    const struct identity *identity;
    const struct call *on;
    uint64_t seed;
};

/* Sides of an identity, each with its own sizes and results. */
struct side {
    struct call f;
    struct tensors *t;
    struct truth truth;
    struct bounds bounds;
};

static int side_run(struct side *s)
{
    const struct run c = {.call = s->f};

    tensors_round(s->t, &s->f);
    if (truth_find(&s->truth, &s->f, s->t))
        return -1;
    bounds_from(&s->bounds, &s->f, &s->truth);
    return run_op(&c, s->t, NULL);
}

static int prepare(const struct instance *inst, double shrink, struct side *l, struct side *r)
{
    const struct op *o = inst->on->op;
    const struct identity *id = inst->identity;
    char word[64];

    if (cases_one(o, id->left, &l->f) || cases_one(o, id->right, &r->f) ||
        !(l->t = tensors_new(&l->f)) || !(r->t = tensors_new(&r->f)))
        return -1;
    l->f = call_on(&l->f, inst->on->backend, inst->on->kernel, inst->on->context);
    r->f = call_on(&r->f, inst->on->backend, inst->on->kernel, inst->on->context);
    tensors_draw(l->t, &l->f, inst->seed, 1);
    if (give(o, &l->f, l->t, id->left_given, l->t))
        return -1;
    for (const char *at = id->shrink ? id->shrink : ""; next_word(&at, word);) {
        int arg = op_arg(o, word);
        for (int64_t i = 0; l->t->x[arg] && i < op_count(&l->f, arg); i++) /* not bytes */
            l->t->x[arg][i] *= shrink;
    }
    /* The same tensors, under the same names, and output gradients likewise. */
    for (int i = 0; i < o->n_args; i++) {
        size_t bytes = op_count(&r->f, i) * tensors_each(&r->f, i);
        if (!bytes || !op_has(&l->f, i))
            continue;
        if (o->arg[i].flags & IN)
            memcpy(tensors_values(r->t, i, 0), tensors_values(l->t, i, 0), bytes);
        if (o->arg[i].flags & OUT && r->t->g[i])
            memcpy(r->t->g[i], l->t->g[i], bytes);
    }
    return give(o, &r->f, r->t, id->right_given, l->t);
}

/* The output gradients of a pair LEFT:RIGHT that have different names. */
static void share_gradients(const struct op *o, const struct identity *id, struct side *l,
                            struct side *r)
{
    char word[64];
    for (const char *at = id->same; next_word(&at, word);) {
        char *other = strchr(word, ':');
        if (!other)
            continue;
        *other++ = 0;
        int left = op_arg(o, word), right = op_arg(o, other);
        if (right >= 0 && o->arg[left].flags & OUT && l->t->g[left] && r->t->g[right])
            memcpy(r->t->g[right], l->t->g[left], op_count(&l->f, left) * sizeof(double));
    }
}

/* One word of `same`: into want the right side's sum, and to the bound theirs. */
static int right_sum(const struct op *o, const struct side *r, char *names, int64_t n, double *want,
                     struct whole *bound)
{
    memset(want, 0, n * sizeof *want);
    for (char *name = strtok(names, "+"); name; name = strtok(NULL, "+")) {
        int arg = op_arg(o, name), grad = arg >= 0 && o->arg[arg].flags & IN;
        if (arg < 0 || op_count(&r->f, arg) != n || op_is_bytes(&r->f, arg))
            return err_set("identity of %s: %s has another size or type", o->name, name);
        for (int64_t i = 0; i < n; i++)
            want[i] += tensors_result(r->t, arg, grad)[i];
        *bound = bound_of_both(bound, &X_OR_G(r->bounds, arg, grad));
    }
    return 0;
}

/* One word of `same` of a result of bytes: that of the same size on the right, of which there is no
 * sum. */
static int compare_bytes(const struct instance *inst, const struct side *l, const struct side *r,
                         int arg, const char *name, struct verdicts *list)
{
    const int other = op_arg(inst->on->op, name);

    if (other < 0 || !r->t->b[other] || op_count(&r->f, other) != op_count(&l->f, arg))
        return err_set("identity of %s: %s is not as many bytes", inst->on->op->name, name);
    const struct tensor_pair pair = {&l->f, arg, 0, l->t->b[arg], r->t->b[other]};
    return list ? check_tensor(inst->identity->name, &pair, 0, list) : 0;
}

/* The largest distance over the words of `same`, each against `bounds`, or
 * alone (list NULL), and then but for bytes, into *worst. */
static int compare_sides(const struct instance *inst, struct side *l, struct side *r, double *worst,
                         struct verdicts *list)
{
    const struct op *o = inst->on->op;
    char word[64], names[64];
    int e = 0;

    for (const char *at = inst->identity->same; !e && next_word(&at, word);) {
        char *other = strchr(word, ':');
        snprintf(names, sizeof names, "%s", other ? other + 1 : word);
        if (other)
            *other = 0;
        int arg = op_arg(o, word), grad = arg >= 0 && o->arg[arg].flags & IN;
        int64_t n = arg < 0 ? 0 : op_count(&l->f, arg);
        if (!n)
            return err_set("identity of %s: no tensor %s", o->name, word);
        if (op_is_bytes(&l->f, arg)) {
            e = compare_bytes(inst, l, r, arg, names, list);
            continue;
        }
        struct whole bound = X_OR_G(l->bounds, arg, grad);
        double *want = malloc(n * sizeof *want);
        const struct tensor_pair pair = {&l->f, arg, grad, tensors_result(l->t, arg, grad), want};
        if (!want)
            return err_set("no memory for an identity");
        e = right_sum(o, r, names, n, want, &bound);
        if (!e && worst)
            *worst = fmax(*worst, distance(pair.got, want, n).max);
        if (!e && list)
            e = check_whole(inst->identity->name, &pair, &bound, list);
        free(want);
    }
    return e;
}

static int compare_at(const struct instance *inst, double shrink, double *worst,
                      struct verdicts *list)
{
    struct side l = {.t = NULL}, r = {.t = NULL};
    int e = prepare(inst, shrink, &l, &r);

    if (!e)
        share_gradients(inst->on->op, inst->identity, &l, &r);
    e = e || side_run(&l) || side_run(&r) || compare_sides(inst, &l, &r, worst, list);
    truth_free(&l.truth);
    truth_free(&r.truth);
    tensors_free(l.t);
    tensors_free(r.t);
    return e ? -1 : 0;
}

const char *identity_declined(const struct identity *id, const struct call *on)
{
    const char *const sides[] = {id->left, id->right}, *why = NULL;
    struct call f;

    for (size_t i = 0; i < COUNT(sides) && !why; i++)
        if (!cases_one(on->op, sides[i], &f)) {
            f = call_on(&f, on->backend, on->kernel, on->context);
            why = impl_declines(&f);
        }
    return why;
}

int check_identity(const struct identity *id, const struct call *on, uint64_t seed,
                   struct verdicts *list)
{
    const struct instance inst = {id, on, seed};
    const enum dtype type = on->backend->type;

    if (!id->shrink)
        return compare_at(&inst, 1, NULL, list);

    /* A limit: with inputs a quarter as large the difference is a sixteenth. */
    double near = 0, nearer = 0;
    double first = type == F64 ? 0x1p-6 : 0x1p-4;
    if (types[type].unit > types[F32].unit) /* what would vanish is less than its rounding */
        return 0;
    if (compare_at(&inst, first, &near, NULL) || compare_at(&inst, first / 4, &nearer, NULL))
        return -1;
    struct verdict *v = verdict_add(list, id->name, "all", on->backend, on->kernel);
    if (!v)
        return -1;
    v->error = v->norm = near > 0 && nearer > 0 ? fabs(16 * nearer / near - 1) : INFINITY;
    v->bound = 0.25;
    v->pass = near < 1 && v->error <= v->bound;
    return 0;
}
