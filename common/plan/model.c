/* Tensors of a model's file as inputs of an operation (model.h). */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/plan/model.h"

/* ---- which tensor is which input ---- */

/* May an input be a tensor of a file, and is it a quantised one? */
static int is_real(const struct arg *a)
{
    return a->flags & IN && !(a->flags & (WHOLE | BYTES));
}

static int is_quantised(const struct arg *a)
{
    return a->flags & IN && a->flags & BYTES && a->stands_for;
}

/* The only input of that kind, or -1. */
static int only(const struct op *o, int (*is)(const struct arg *))
{
    int found = -1, n = 0;
    for (int i = 0; i < o->n_args; i++)
        if (is(&o->arg[i])) {
            found = i;
            n++;
        }
    return n == 1 ? found : -1;
}

static int no_input(const struct op *o, const char *word)
{
    char known[512] = "";

    for (int i = 0; i < o->n_args; i++)
        if (is_real(&o->arg[i]) || is_quantised(&o->arg[i]))
            append(known, sizeof known, " %s", o->arg[i].name);
    return err_set("tensor = %s: which input of %s is it to be? Write INPUT:%s, INPUT one of%s",
                   word, o->name, word, known);
}

/* The input that a word names before a colon, and the rest of it, or else the operation's quantised
 * input or its only one, and all of the word; -1: none. */
static int input_of(const struct op *o, const char *word, const char **rest)
{
    const char *colon = strchr(word, ':');
    char name[GGUF_NAME];

    snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - word) : 0, word);
    int arg = op_arg(o, name);
    *rest = arg < 0 ? word : colon + 1;
    if (arg < 0)
        arg = only(o, is_quantised);
    if (arg < 0)
        arg = only(o, is_real);
    return arg < 0 || is_real(&o->arg[arg]) || is_quantised(&o->arg[arg]) ? arg : -1;
}

/* The next word of `at`: the input and the name of the tensor; moves on.  1: there is none; -1 after
 * err_set(). */
static int next_word(const struct op *o, const char **at, int *arg, char name[GGUF_NAME])
{
    char word[2 * GGUF_NAME];
    const char *rest;

    *at += strspn(*at, " \t");
    const size_t n = strcspn(*at, " \t");
    if (!n)
        return 1;
    snprintf(word, sizeof word, "%.*s", (int)n, *at);
    *at += n;
    *arg = input_of(o, word, &rest);
    if (n >= sizeof word || strlen(rest) >= GGUF_NAME)
        return err_set("tensor = %s: longer than a name may be", rest);
    if (*arg < 0)
        return no_input(o, rest);
    snprintf(name, GGUF_NAME, "%s", rest);
    return 0;
}

void model_name(const struct trial *t, int arg, char name[GGUF_NAME])
{
    const char *at = t->tensor;
    int is;

    while (next_word(t->call.op, &at, &is, name) == 0)
        if (is == arg)
            return;
    *name = 0;
}

/* ---- types ---- */

static const char *const real_types[] = {"f32", "f16", "bf16", NULL};

static int is_among(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0)
            return 1;
    return 0;
}

/* The formats that quantised inputs of an operation have; NULL: none. */
static const char *const *formats_of(const struct op *o)
{
    const struct param *p = op_param(o, "format", NULL);
    return p ? p->choices : NULL;
}

static int check_type(const struct op *o, const struct taken *t)
{
    const char *type = t->tensor->type->name, *input = o->arg[t->arg].name;
    const char *const *good = is_real(&o->arg[t->arg]) ? real_types : formats_of(o);
    char known[256] = "";

    if (is_among(good, type))
        return 0;
    for (; good && *good; good++)
        append(known, sizeof known, " %s", *good);
    return err_set("%s: %s is not supported: %s's %s takes%s", t->tensor->name, type, o->name,
                   input, known);
}

/* ---- open ---- */

int model_open(struct model *m, const struct trial *t)
{
    const struct op *o = t->call.op;
    const char *at = t->tensor;
    char name[GGUF_NAME];
    int arg, e;

    *m = (struct model){.file = gguf_open(t->file)};
    if (!m->file)
        return -1;
    while ((e = next_word(o, &at, &arg, name)) == 0) {
        struct taken *new = &m->taken[m->n];
        if (m->n == MAX_TAKEN)
            return err_set("tensor: more than %d tensors", MAX_TAKEN);
        for (int i = 0; i < m->n; i++)
            if (m->taken[i].arg == arg)
                return err_set("tensor: %s and %s are both to be %s", m->taken[i].tensor->name,
                               name, o->arg[arg].name);
        *new = (struct taken){arg, gguf_find(m->file, name)};
        if (!new->tensor || gguf_check(new->tensor))
            return -1;
        if (check_type(o, new))
            return err_at("%s", new->tensor->file);
        m->n++;
    }
    return e < 0 ? -1 : m->n ? 0 : err_set("tensor: a name is missing");
}

void model_close(struct model *m)
{
    gguf_close(m->file);
    m->file = NULL;
}

/* ---- sizes ---- */

const char *model_shape(const struct call *f, int arg)
{
    const struct arg *a = &f->op->arg[arg];
    return a->flags & BYTES ? a->stands_for : op_shape(f, arg);
}

static int other_shape(const struct taken *t, const char *than)
{
    char shape[128];

    gguf_shape_text(t->tensor, shape, sizeof shape);
    return err_set("%s: %s is %s, %s", t->tensor->file, t->tensor->name, shape, than);
}

/* The parameter that is this axis, or NULL. */
static const struct param *size_of(const struct op *o, char letter)
{
    for (int i = 0; i < o->n_params; i++)
        if (o->param[i].letter == letter)
            return &o->param[i];
    return NULL;
}

static int set_size(const struct taken *t, struct call *f, char letter, int64_t n, int is_given)
{
    const struct param *p = size_of(f->op, letter);
    char than[128];

    if (!p)
        return 0; /* it follows from others, and is compared when it is read */
    if (is_given && DIM(f, letter) != n) {
        snprintf(than, sizeof than, "%s = %" PRId64, p->name, DIM(f, letter));
        return other_shape(t, than);
    }
    if (n < p->min || n > p->max) {
        snprintf(than, sizeof than, "%s is %" PRId64 " to %" PRId64, p->name, p->min, p->max);
        return other_shape(t, than);
    }
    DIM(f, letter) = n;
    return 0;
}

/* Axes before the last two are more rows; a vector is one row. */
static int set_sizes(const struct taken *t, struct call *f, model_given *given, const void *data)
{
    const char *shape = model_shape(f, t->arg);
    const struct gguf_tensor *g = t->tensor;
    const int rank = (int)strlen(shape), matrix = f->op->arg[t->arg].flags & BYTES;
    int64_t dim[GGUF_RANK] = {1, 1, 1, 1};
    char than[128];
    int e = 0;

    if (!matrix && rank != (int)g->rank) {
        snprintf(than, sizeof than, "%s's %s has %d axes", f->op->name, f->op->arg[t->arg].name,
                 rank);
        return other_shape(t, than);
    }
    for (int i = 0; i < (int)g->rank; i++)
        dim[!matrix ? i : i == (int)g->rank - 1] *= g->dim[i];
    for (int i = 0; !e && i < rank; i++) {
        const struct param *p = size_of(f->op, shape[i]);
        e = set_size(t, f, shape[i], dim[i], p && given(p->name, data));
    }
    return e;
}

static int set_format(const struct taken *t, struct call *f, model_given *given, const void *data)
{
    const char *type = t->tensor->type->name;
    int place;

    if (is_real(&f->op->arg[t->arg]))
        return 0;
    const struct param *p = op_param(f->op, "format", &place);
    const char *now = p->choices[f->choice[place]];
    if (given(p->name, data) && strcmp(now, type) != 0)
        return err_set("%s: %s is %s, format = %s", t->tensor->file, t->tensor->name, type, now);
    return choice_set("format", type, p->choices, &f->choice[place]);
}

int model_sizes(const struct model *m, struct call *f, model_given *given, const void *data)
{
    int e = 0;
    for (int i = 0; !e && i < m->n; i++)
        e = set_format(&m->taken[i], f, given, data) || set_sizes(&m->taken[i], f, given, data);
    return e ? -1 : 0;
}

static int none_given(const char *parameter, const void *data)
{
    (void)parameter;
    (void)data;
    return 0;
}

int model_format(const struct model *m, struct call *f)
{
    int e = 0;
    for (int i = 0; !e && i < m->n; i++)
        e = set_format(&m->taken[i], f, none_given, NULL);
    return e;
}
