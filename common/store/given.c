/* The tensors that every program is given (given.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/fnv.h"
#include "common/call/values.h"
#include "common/store/given.h"

const char *const given_groups[N_GIVEN] = {"in", "dout", "dinit"};

const void *given_values(const struct call *f, const struct tensors *t, int arg, enum given which)
{
    const unsigned flags = f->op->arg[arg].flags;

    switch (which) {
    case GIVEN_INPUT: return flags & IN ? tensors_values(t, arg, 0) : NULL;
    case GIVEN_UPSTREAM: return flags & OUT && flags & DIFF ? t->g[arg] : NULL;
    default: return t->g0[arg];
    }
}

/* As bits: all NaN are one, and a whole number has no sign of 0. */
static uint64_t bits_of(double x, int whole)
{
    const double y = isnan(x) ? (double)NAN : whole ? x + 0.0 : x;
    uint64_t bits;

    memcpy(&bits, &y, sizeof bits);
    return bits;
}

static int is_whole(const struct call *f, int arg, enum given which)
{
    return which == GIVEN_INPUT && f->op->arg[arg].flags & WHOLE;
}

/* Goes on with a tensor's values. */
static uint64_t hash_values(const struct call *f, int arg, enum given which, const void *values,
                            uint64_t hash)
{
    const int64_t n = op_count(f, arg);
    const double *x = values;

    if (op_is_bytes(f, arg))
        return fnv1a64(hash, values, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t bits = bits_of(x[i], is_whole(f, arg, which));
        hash = fnv1a64(hash, &bits, sizeof bits);
    }
    return hash;
}

void given_hash(const struct call *f, const struct tensors *t, uint64_t absent,
                char text[GIVEN_TEXT])
{
    uint64_t hash = FNV_BEGIN;

    for (enum given g = 0; g < N_GIVEN; g++)
        for (int i = 0; i < f->op->n_args; i++) {
            const void *values = given_values(f, t, i, g);
            if (!values || (g == GIVEN_INPUT && absent >> i & 1))
                continue;
            hash = fnv1a64(hash, given_groups[g], strlen(given_groups[g]) + 1);
            hash = fnv1a64(hash, f->op->arg[i].name, strlen(f->op->arg[i].name) + 1);
            hash = hash_values(f, i, g, values, hash);
        }
    snprintf(text, GIVEN_TEXT, "fnv1a64 %016" PRIx64, hash);
}

/* The first element that differs, of real numbers by more than `unit` times their size; -1: none does. */
static int64_t first_other(const struct call *f, int arg, enum given which, const void *a,
                           const void *b, double unit)
{
    const int64_t n = op_count(f, arg);
    const int whole = is_whole(f, arg, which), bytes = op_is_bytes(f, arg);
    const unsigned char *c = a, *d = b;
    const double *x = a, *y = b;

    for (int64_t i = 0; i < n; i++)
        if (bytes ? c[i] != d[i]
                  : bits_of(x[i], whole) != bits_of(y[i], whole) &&
                        (whole || !(fabs(x[i] - y[i]) <= unit * fabs(y[i]))))
            return i;
    return -1;
}

static double element(const struct call *f, int arg, const void *values, int64_t i)
{
    return op_is_bytes(f, arg) ? ((const unsigned char *)values)[i] : ((const double *)values)[i];
}

int given_differ(const struct call *f, const struct tensors *t, const struct tensors *drawn,
                 const char *what, int nearly)
{
    char where[128];

    for (enum given g = 0; g < N_GIVEN; g++)
        for (int i = 0; i < f->op->n_args; i++) {
            const void *is = given_values(f, t, i, g), *was = given_values(f, drawn, i, g);
            const double unit = nearly ? 2 * types[call_type(f, i, g != GIVEN_INPUT)].unit : 0;
            const int64_t at = is && was ? first_other(f, i, g, is, was, unit) : -1;
            if (at < 0)
                continue;
            values_index(f, i, at, where, sizeof where);
            return err_set("%s/%s is not %s: it has %.9g at %s, not %.9g", given_groups[g],
                           f->op->arg[i].name, what, element(f, i, is, at), where,
                           element(f, i, was, at));
        }
    return 0;
}
