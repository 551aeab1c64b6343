/* What a verdict would have seen: the smallest errors that are over its bounds (check.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "common/judge/check.h"

const struct power power_unknown = {NAN, NAN, NAN, 0};

/* The part that an error is of a size, where it is as large as its bound. */
static double part_of(double bound, double size)
{
    return size > 0 ? bound / size : INFINITY;
}

/* The error of all elements alike, e = x b, that is as large as the bound of a measure. */
static double whole_seen(const struct distances *d, const struct whole *bound)
{
    const double by[] = {bound->of[BY_MAX], bound->of[BY_RMS], bound->of[BY_GAIN],
                         part_of(bound->of[BY_OFFSET] * d->want.rms, fabs(d->want.mean))};
    double least = by[0];

    for (size_t i = 1; i < COUNT(by); i++)
        least = fmin(least, by[i]);
    return least;
}

/* The same of a slice alone: by its own measures. */
static double slice_seen(const struct slice *s, const struct slice *most)
{
    const double off = part_of(most->off, s->size), gain = part_of(most->gain, s->size);
    return s->n >= LEAST_FOR_GAIN ? fmin(off, gain) : off;
}

/* And by those of all elements, of which it is a part. */
static double part_seen(const struct distances *d, const struct slice *s, const struct whole *bound)
{
    const double size = s->size / d->want.rms, share = (double)s->n / (double)d->want.n;
    const double max = part_of(bound->of[BY_MAX] * d->want.most, s->size);
    const double rms = part_of(bound->of[BY_RMS], size * sqrt(share));

    return fmin(max, fmin(rms, part_of(bound->of[BY_GAIN], size * size * share)));
}

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static double median(double *x, int64_t n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    return n ? x[n / 2] : NAN;
}

/* What is seen of slices: of all alike, in *all; of one row, and of one element in it, in the median. */
static int slices_seen(struct power *to, const struct distances *d, const struct bounds *b, int arg,
                       int grad, const struct growth *g)
{
    const struct whole bound = bounds_grown(b, arg, grad, g);
    double *row = calloc((size_t)d->slices.rows * 2 + 1, sizeof *row), *element = row;
    int64_t n = 0;

    if (!row)
        return err_set("no memory for what is seen of %lld slices", (long long)d->slices.rows);
    element += d->slices.rows;
    for (int64_t i = 0; i < d->slices.n; i++) {
        const struct slice *s = &d->slice[i];
        if (!(s->size > 0))
            continue;
        const struct slice most = slice_grown(b, arg, grad, i, s, g);
        const double own = slice_seen(s, &most);
        to->all = fmin(to->all, own);
        if (i >= d->slices.rows)
            continue;
        row[n] = fmin(own, part_seen(d, s, &bound));
        element[n++] = part_of(most.off * sqrt((double)s->n), d->want.most);
    }
    to->slice = median(row, n);
    to->element = n ? fmin(to->element, median(element, n)) : to->element;
    free(row);
    return 0;
}

int power_find(struct power *to, const struct distances *d, const struct bounds *b, int arg,
               int grad)
{
    const struct growth g = bounds_growth(b);
    const struct whole bound = bounds_grown(b, arg, grad, &g);
    const double n = (double)d->want.n;

    *to = power_unknown;
    to->samples = b->samples;
    if (!(d->want.most > 0))
        return 0;
    to->all = whole_seen(d, &bound);
    to->element =
        fmin(bound.of[BY_MAX], part_of(bound.of[BY_RMS] * d->want.rms * sqrt(n), d->want.most));
    return d->slices.n ? slices_seen(to, d, b, arg, grad, &g) : 0;
}
