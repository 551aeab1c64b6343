/* The tensors of a call: which it has, their shapes and types, their places (call.h). */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "common/call/contract.h"
#include "common/call/machine.h"

int op_has(const struct call *f, int arg)
{
    const struct op *o = f->op;
    return !o->arg[arg].when || o->arg[arg].when(f);
}

int call_accumulates(const struct call *f, int arg)
{
    return set_has(&f->accumulate, arg) && op_has(f, arg);
}

int op_overwrites(const struct call *f, int arg)
{
    const char *name = f->op->arg[arg].overwrites;
    const int input = name && op_has(f, arg) ? op_arg(f->op, name) : -1;

    return input >= 0 && op_has(f, input) && f->type[input] == f->type[arg] ? input : -1;
}

int call_overwrites(const struct call *f, int arg)
{
    return f->in_place ? op_overwrites(f, arg) : -1;
}

int call_overwritten(const struct call *f, int arg)
{
    int is = 0;
    for (int i = 0; i < f->op->n_args; i++)
        is |= call_overwrites(f, i) == arg;
    return is;
}

const char *op_shape(const struct call *f, int arg)
{
    const struct op *o = f->op;
    return o->arg[arg].shape_of ? o->arg[arg].shape_of(f) : o->arg[arg].shape;
}

int64_t op_count(const struct call *f, int arg)
{
    int64_t n = 1;
    if (!op_has(f, arg))
        return 0;
    for (const char *c = op_shape(f, arg); *c; c++)
        n *= DIM(f, *c);
    return n;
}

void tensor_name(const struct op *o, int arg, int grad, char name[32])
{
    snprintf(name, 32, "%s%s", grad ? "d_" : "", o->arg[arg].name);
}

int tensor_find(const struct op *o, const char *name, int *grad)
{
    const int arg = op_arg(o, name);

    *grad = arg < 0 && strncmp(name, "d_", 2) == 0;
    return *grad ? op_arg(o, name + 2) : arg;
}

/* Whole numbers and bytes are those on every backend; the oracle stores all others as double. */
static enum dtype tensor_type(const struct call *f, int arg)
{
    const struct arg *a = &f->op->arg[arg];
    int place;
    if (a->flags & WHOLE)
        return I64;
    if (a->flags & BYTES)
        return U8;
    if (f->backend->wide == F64)
        return F64;
    if (a->type_choice && op_param(f->op, a->type_choice, &place))
        return (enum dtype)(F32 + f->choice[place]);
    return a->flags & WIDE || (a->wide_when && a->wide_when(f)) ? f->backend->wide
                                                                : f->backend->type;
}

int grad_is_wide(const struct op *o, int arg)
{
    return (o->arg[arg].flags & (WIDE | WIDE_GRAD)) != 0;
}

void call_types(struct call *f)
{
    for (int i = 0; i < f->op->n_args; i++) {
        f->type[i] = tensor_type(f, i);
        f->grad_type[i] = grad_is_wide(f->op, i) ? f->backend->wide : f->backend->type;
    }
}

struct call call_on(const struct call *f, const struct backend *b, const struct impl *k,
                    struct context *x)
{
    struct call c = *f;
    c.backend = b;
    c.kernel = k;
    c.context = x;
    c.in_place = 0;
    call_types(&c);
    return c;
}

void call_as(struct call *f, const struct op *o, const void *args, const void *grads, void *work)
{
    memset(f->arg, 0, sizeof f->arg);
    memset(f->grad, 0, sizeof f->grad);
    memcpy(f->arg, args, o->n_args * sizeof *f->arg);
    memcpy(f->grad, grads, o->n_args * sizeof *f->grad);
    f->op = o;
    f->work = work;
    f->accumulate = set_none();
    f->in_place = 0;
    f->kernel = NULL;
    call_types(f);
}
