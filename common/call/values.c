/* Which values are refused: whole numbers, indices, what a type cannot hold, and bytes that a contract
 * refuses (values.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/locale.h"
#include "common/call/contract.h"
#include "common/call/values.h"

/* The values that a tensor may have. */
struct allowed {
    enum dtype type; /* that stores it */
    int whole;
    int64_t range;            /* of indices: from 0 to below it; 0: no indices */
    const struct param *none; /* the parameter whose value stands for no index, or NULL */
    int64_t no_index;         /* that value */
};

static struct allowed allowed_in(const struct call *f, int arg, int grad)
{
    const struct op *o = f->op;
    const struct arg *a = &o->arg[arg];
    struct allowed may = {.type = call_type(f, arg, grad),
                          .whole = !grad && a->flags & WHOLE && a->flags & IN};

    if (may.whole && a->fill == INDEX) {
        const struct call *own = a->own ? a->own(f, &arg) : f;
        const char *none = own->op->no_index;
        may.range = own->op->index_range(own);
        may.none = none ? op_param(own->op, none, NULL) : NULL;
        may.no_index = may.none ? DIM(own, may.none->letter) : 0;
    }
    return may;
}

/* A value slightly above the largest is rounded down to it. */
static int fits(enum dtype type, double x)
{
    char bits[sizeof(double)];
    double rounded;

    if (!isfinite(x) || fabs(x) <= types[type].largest)
        return 1;
    narrow(type, bits, &x, 1);
    widen(type, &rounded, bits, 1);
    return isfinite(rounded);
}

static int is_whole(double x)
{
    return fabs(x) <= types[I64].largest && floor(x) == x;
}

static int is_allowed(const struct allowed *may, double x)
{
    if (may->whole ? !is_whole(x) : !fits(may->type, x))
        return 0;
    return !may->range || (x >= 0 && x < may->range) || (may->none && x == may->no_index);
}

/* All digits of a whole number; of others the fewest, from 15 on, that give x again. */
static void number_text(double x, char text[32])
{
    const locale_t was = locale_begin(); /* abl_set() comes here without lock_library() */
    int digits = 15;

    if (is_whole(x))
        snprintf(text, 32, "%.0f", x);
    else
        do
            snprintf(text, 32, "%.*g", digits, x);
        while (++digits <= 17 && strtod(text, NULL) != x);
    locale_end(was);
}

void values_slice(const struct call *f, int arg, int64_t i, unsigned fixed, char *text, size_t size)
{
    const char *shape = op_shape(f, arg);
    int rank = (int)strlen(shape);
    int64_t at[MAX_RANK];
    size_t used = 1;

    for (int k = rank - 1; k >= 0; k--) {
        at[k] = i % DIM(f, shape[k]);
        i /= DIM(f, shape[k]);
    }
    snprintf(text, size, "[");
    for (int k = 0; k < rank && used < size; k++)
        used += fixed >> k & 1
                    ? snprintf(text + used, size - used, "%s%" PRId64, k ? "," : "", at[k])
                    : snprintf(text + used, size - used, "%s:", k ? "," : "");
    if (used < size)
        snprintf(text + used, size - used, "]");
}

void values_index(const struct call *f, int arg, int64_t i, char *text, size_t size)
{
    values_slice(f, arg, i, ~0u, text, size);
}

int values_check(const struct call *f, int arg, int grad, const char *place, const double *x)
{
    const struct op *o = f->op;
    struct allowed may = allowed_in(f, arg, grad);
    int64_t n = op_count(f, arg), i = 0;
    char where[128], number[32];

    while (i < n && is_allowed(&may, x[i]))
        i++;
    if (i == n)
        return !grad && o->arg[arg].values_check ? o->arg[arg].values_check(f, arg, place, x) : 0;
    values_index(f, arg, i, where, sizeof where);
    number_text(x[i], number);
    if (!may.whole)
        return err_set("%s has %s at %s: the largest %s is %.6g", place, number, where,
                       types[may.type].name, types[may.type].largest);
    if (!is_whole(x[i]))
        return err_set("%s has %s at %s, %s's %s takes whole numbers up to 2^53", place, number,
                       where, o->name, o->arg[arg].name);
    err_set("%s has %s at %s: 0 to %" PRId64, place, number, where, may.range - 1);
    if (may.none)
        err_more(", or %s (%" PRId64 ")", may.none->name, may.no_index);
    return -1;
}

int values_check_bytes(const struct call *f, int arg, const char *place, const unsigned char *b)
{
    const struct arg *a = &f->op->arg[arg];
    return a->bytes_check ? a->bytes_check(f, arg, place, b) : 0;
}
