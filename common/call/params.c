/* The parameters of a call: set, completed, and as text (contract.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/number.h"
#include "common/call/contract.h"
#include "common/call/machine.h"

int choice_set(const char *key, const char *value, const char *const *names, int *choice)
{
    char known[200] = "";
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], value) == 0) {
            *choice = i;
            return 0;
        }
        append(known, sizeof known, " %s", names[i]);
    }
    return err_set("%s = %s: not one of%s", key, value, known);
}

static int set_real(const struct real_range *range, const char *value, double *x)
{
    if (!range->word || strcmp(value, range->word) != 0)
        return number_real(value, range->min, range->max, x);
    *x = INFINITY;
    return 0;
}

int op_set(struct call *f, const char *key, const char *value)
{
    int place;
    const struct param *p = op_param(f->op, key, &place);

    if (!p)
        return err_set("%s has no parameter %s", f->op->name, key);
    if (p->choices)
        return choice_set(p->name, value, p->choices, &f->choice[place]);
    if (p->real   ? set_real(p->real, value, &f->real[place])
        : p->seed ? number_seed(value, UINT64_MAX, (uint64_t *)&DIM(f, p->letter))
                  : number_whole(value, p->min, p->max, &DIM(f, p->letter)))
        return err_at("%s = %s", key, value);
    return 0;
}

void op_defaults(const struct op *o, struct call *f)
{
    memset(f, 0, sizeof *f);
    f->op = o;
    for (int i = 0; i < o->n_params; i++) {
        if (o->param[i].choices)
            f->choice[i] = (int)o->param[i].initial;
        else if (o->param[i].real)
            f->real[i] = o->param[i].real->initial;
        else
            DIM(f, o->param[i].letter) = o->param[i].initial;
    }
}

static void put_text(const struct call *f, char *text, size_t size)
{
    *text = 0;
    for (int i = 0; i < f->op->n_params; i++) {
        char buffer[32];
        const char *value = op_value(f, i, buffer);
        if (*value)
            append(text, size, "%s%s=%s", *text ? " " : "", f->op->param[i].name, value);
    }
}

int op_complete(struct call *f)
{
    const struct op *o = f->op;
    int64_t bytes = 0;
    char text[MAX_TEXT + 1];

    put_text(f, text, sizeof text);
    if (strlen(text) >= MAX_TEXT)
        return err_set("the parameters are longer than %d characters", MAX_TEXT - 1);
    if (o->derive && o->derive(f))
        return -1;
    o = f->op; /* a program's has its tensors only now */
    for (int i = 0; i < o->n_args; i++) {
        int64_t n = 16; /* value and gradient, in double */
        int over = 0;
        if (!op_has(f, i))
            continue;
        for (const char *c = op_shape(f, i); *c; c++)
            over |= __builtin_mul_overflow(n, DIM(f, *c), &n);
        if (over || __builtin_add_overflow(bytes, n, &bytes) || bytes > INT64_MAX / 64)
            return err_set("%s has more elements than a 64-bit size can count", o->arg[i].name);
    }
    if (f->backend)
        call_types(f);
    return 0;
}

const char *op_value(const struct call *f, int i, char buffer[32])
{
    const struct op *o = f->op;
    const struct param *p = &o->param[i];
    if (p->unless && p->unless(f))
        return "";
    if (p->choices)
        return p->choices[f->choice[i]];
    if (p->real && isinf(f->real[i]))
        return p->real->word;
    if (p->real) {
        snprintf(buffer, 32, "%.15g", f->real[i]);
        if (strtod(buffer, NULL) != f->real[i])
            snprintf(buffer, 32, "%.17g", f->real[i]);
    } else
        snprintf(buffer, 32, p->seed ? "%" PRIu64 : "%" PRId64, DIM(f, p->letter));
    return buffer;
}

void op_text(const struct call *f, char *text)
{
    put_text(f, text, MAX_TEXT);
}
