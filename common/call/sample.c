/* Draws the rows that are judged, and cuts a case to them (sample.h). */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/call/run.h"
#include "common/call/sample.h"

/* ---- which axes ---- */

void sample_axes(const struct call *f, int arg, char axes[SAMPLE_AXES])
{
    const struct arg *a = &f->op->arg[arg];
    const char batch[] = {op_batch(f), 0};
    const char *may = a->sample ? a->sample(f) : batch;
    int n = 0;

    for (char c = 'A'; c <= LAST_AXIS; c++)
        if (strchr(may, c) && strchr(op_shape(f, arg), c))
            axes[n++] = c;
    axes[n] = 0;
}

void sample_cut_axes(const struct call *f, const struct sample *s, int arg, char axes[SAMPLE_AXES])
{
    char *to = axes;

    sample_axes(f, arg, axes);
    for (const char *c = axes; *c; c++)
        if (s->n[*c - 'A'])
            *to++ = *c;
    *to = 0;
}

static int has_result(const struct call *f, int arg)
{
    const unsigned flags = f->op->arg[arg].flags;
    return op_has(f, arg) && (!(flags & IN) || flags & DIFF);
}

void sample_all_axes(const struct call *f, const struct sample *s, char axes[ALL_AXES])
{
    char cut[SAMPLE_AXES];

    *axes = 0;
    for (int i = 0; i < f->op->n_args; i++) {
        sample_cut_axes(f, s, i, cut);
        for (const char *c = cut; has_result(f, i) && *c; c++)
            if (!strchr(axes, *c))
                append(axes, ALL_AXES, "%c", *c);
    }
}

/* How many results there are, and how many can be sampled. */
static void count(const struct call *f, int *all, int *sampled)
{
    char axes[SAMPLE_AXES];

    *all = *sampled = 0;
    for (int i = 0; i < f->op->n_args; i++) {
        if (!has_result(f, i))
            continue;
        ++*all;
        sample_axes(f, i, axes);
        *sampled += *axes != 0;
    }
}

int sample_some(const struct call *f)
{
    int all, sampled;
    count(f, &all, &sampled);
    return sampled > 0;
}

int sample_all(const struct call *f)
{
    int all, sampled;
    count(f, &all, &sampled);
    return sampled == all;
}

double sample_work(const struct call *f)
{
    static const double OF_BYTE = 8, OF_SPECIAL = 20; /* FLOPs */
    const struct call oracle = call_on(f, &ref64, NULL, NULL);
    double work = 0;

    for (enum pass p = FORWARD; p < op_passes(f->op); p++)
        work += f->op->flops(f, p) + OF_BYTE * op_bytes(&oracle, p) +
                (f->op->specials ? OF_SPECIAL * f->op->specials(f, p) : 0);
    return work;
}

int sample_worthwhile(const struct call *f)
{
    return sample_work(f) > SAMPLE_MUCH && (sample_all(f) || f->op->kernels);
}

/* ---- which rows ---- */

static void draw_rows(int64_t *row, int most, int64_t n, uint64_t key)
{
    const int parts = most - 2;

    row[0] = 0;
    for (int i = 0; i < parts; i++) { /* of the rows 1 to n - 2 */
        int64_t from = 1 + (n - 2) * i / parts, to = 1 + (n - 2) * (i + 1) / parts;
        row[1 + i] = from + (int64_t)(draw_uniform(key, i) * (double)(to - from));
    }
    row[most - 1] = n - 1;
}

/* Is it an axis along which a result of the call may be sampled? */
static int is_axis(const struct call *f, char letter)
{
    char axes[SAMPLE_AXES];
    int found = 0;

    for (int i = 0; i < f->op->n_args; i++) {
        sample_axes(f, i, axes);
        found |= has_result(f, i) && strchr(axes, letter);
    }
    return found;
}

void sample_draw(struct sample *s, const struct call *f, int most, uint64_t seed)
{
    int n = most;

    memset(s, 0, sizeof *s);
    for (char c = 'A'; c <= LAST_AXIS; c++) {
        const char name[] = {c, 0};
        if (!is_axis(f, c) || DIM(f, c) <= most)
            continue;
        s->n[c - 'A'] = n;
        draw_rows(s->row[c - 'A'], n, DIM(f, c), draw_key(draw_key(seed, "sample"), name));
        n -= n > 2;
    }
}

const char *sample_text(const struct call *f, const struct sample *s, const char *axes, char *text,
                        size_t size)
{
    *text = 0;
    for (; *axes; axes++)
        append(text, size, "%s%d of %" PRId64 " %s", *text ? ", " : "", s->n[*axes - 'A'],
               DIM(f, *axes), op_axis(f->op, *axes));
    return text;
}

/* ---- the case cut to them ---- */

int sample_cut(struct call *few, const struct call *whole, const struct sample *s, const char *axes)
{
    *few = *whole;
    for (; *axes; axes++)
        DIM(few, *axes) = s->n[*axes - 'A'];
    return op_complete(few) ? err_at("a sample of %s", whole->op->name) : 0;
}

struct cut_map sample_map(const struct call *whole, const struct sample *s, const char *axes,
                          int arg)
{
    const char *shape = op_shape(whole, arg);
    struct cut_map at = {.rank = (int)strlen(shape)};
    int64_t stride = 1;

    for (int k = at.rank - 1; k >= 0; k--) {
        const char c = shape[k];
        const int cut = strchr(axes, c) != NULL;
        at.length[k] = cut ? s->n[c - 'A'] : DIM(whole, c);
        at.row[k] = cut ? s->row[c - 'A'] : NULL;
        at.stride[k] = stride;
        stride *= DIM(whole, c);
    }
    return at;
}

/* n elements of the last axis, at `row` of these, or, NULL, one after the other. */
static void gather_row(const double *x, double *few, const int64_t *row, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        few[j] = x[row ? row[j] - row[0] : j];
}

static void gather_bytes(const unsigned char *b, unsigned char *few, const int64_t *row, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        few[j] = b[row ? row[j] - row[0] : j];
}

void sample_gather(const struct call *whole, const struct sample *s, const char *axes, int arg,
                   const void *all, void *few)
{
    const int bytes = op_is_bytes(whole, arg);
    const struct cut_map at = sample_map(whole, s, axes, arg);
    int64_t n = 1, last = at.rank ? at.length[at.rank - 1] : 1;

    for (int k = 0; k < at.rank; k++)
        n *= at.length[k];
    #pragma omp parallel for
    for (int64_t i = 0; i < n; i += last) {
        const int64_t from = map_index(&at, i);
        const int64_t *row = at.rank ? at.row[at.rank - 1] : NULL;
        if (bytes)
            gather_bytes((const unsigned char *)all + from, (unsigned char *)few + i, row, last);
        else
            gather_row((const double *)all + from, (double *)few + i, row, last);
    }
}

struct tensors *sample_inputs(const struct call *few, const struct call *whole,
                              const struct sample *s, const char *axes, const struct tensors *x)
{
    struct tensors *t = tensors_new(few);

    for (int i = 0; t && i < whole->op->n_args; i++) {
        const unsigned flags = whole->op->arg[i].flags;
        if (flags & IN && tensors_values(t, i, 0))
            sample_gather(whole, s, axes, i, tensors_values(x, i, 0), tensors_values(t, i, 0));
        if (flags & OUT && t->g[i])
            sample_gather(whole, s, axes, i, x->g[i], t->g[i]);
        if (t->g0[i])
            sample_gather(whole, s, axes, i, x->g0[i], t->g0[i]);
    }
    return t;
}
