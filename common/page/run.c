/* Reads a run of training for a page (run.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/column.h"
#include "common/base/err.h"
#include "common/base/h5.h"
#include "common/page/run.h"

enum { MAX_READ = 100000000, MAX_POINTS = 500, MAX_SPANS = 120, MAX_VERDICTS = 1000000 };

/* A dataset of one axis, to be freed; NULL after err_set(). */
static double *read_values(hid_t g, const char *name, int64_t *n)
{
    const hid_t d = H5Dopen2(g, name, H5P_DEFAULT), space = d < 0 ? -1 : H5Dget_space(d);
    hsize_t dim = 0;
    const int good = space >= 0 && H5Sget_simple_extent_ndims(space) == 1 &&
                     H5Sget_simple_extent_dims(space, &dim, NULL) == 1 && dim <= MAX_READ;
    double *x = good ? malloc((dim + 1) * sizeof *x) : NULL;

    h5_drop(space);
    h5_drop(d);
    *n = (int64_t)dim;
    if (!good)
        return err_null("%s is no list of numbers", name);
    if (!x)
        return err_null("no memory for %s", name);
    if (!h5_read_tensor(g, name, 1, n, x))
        return x;
    free(x);
    return NULL;
}

/* The least and the greatest of points first..last - 1, in their order, as points n and n + 1; both are one where all
 * are equal.  Returns how many. */
static int keep_extremes(struct page_curve *c, int first, int last, int n)
{
    int low = first, high = first;

    for (int i = first + 1; i < last; i++) {
        low = c->y[i] < c->y[low] || isnan(c->y[low]) ? i : low;
        high = c->y[i] > c->y[high] || isnan(c->y[high]) ? i : high;
    }
    const int one = low < high ? low : high, other = low < high ? high : low;
    const double x[] = {c->x[one], c->x[other]}, y[] = {c->y[one], c->y[other]};
    for (int k = 0; k <= (one != other); k++)
        c->x[n + k] = x[k], c->y[n + k] = y[k];
    return 1 + (one != other);
}

void page_curve_thin(struct page_curve *c, int points)
{
    const int spans = (points - 2) / 2, inner = c->n - 2;
    int n = 1;

    if (c->n <= points)
        return;
    for (int k = 0; k < spans; k++)
        n += keep_extremes(c, 1 + (int)((int64_t)inner * k / spans),
                           1 + (int)((int64_t)inner * (k + 1) / spans), n);
    c->x[n] = c->x[c->n - 1];
    c->y[n++] = c->y[c->n - 1];
    c->n = n;
}

/* As many as a page needs; the memory of the others is given back. */
static void keep_some(struct page_curve *c)
{
    page_curve_thin(c, MAX_POINTS);
    double *x = c->n ? realloc(c->x, c->n * sizeof *x) : NULL;
    c->x = x ? x : c->x;
    double *y = c->n ? realloc(c->y, c->n * sizeof *y) : NULL;
    c->y = y ? y : c->y;
}

/* Of each of at most MAX_SPANS spans the mean, at its last update. */
static int mean_of_spans(const struct page_curve *c, struct page_curve *to)
{
    const int span = c->n > MAX_SPANS ? (c->n + MAX_SPANS - 1) / MAX_SPANS : 1;

    to->x = malloc((MAX_SPANS + 1) * sizeof *to->x);
    to->y = malloc((MAX_SPANS + 1) * sizeof *to->y);
    if (!to->x || !to->y)
        return err_set("no memory for a curve");
    for (int i = 0; i < c->n; i += span) {
        const int some = c->n - i < span ? c->n - i : span;
        double sum = 0;
        for (int k = 0; k < some; k++)
            sum += c->y[i + k];
        to->x[to->n] = c->x[i + some - 1];
        to->y[to->n++] = sum / some;
    }
    return 0;
}

static int read_curve(hid_t trial, const char *group, const char *of, const char *over,
                      struct page_curve *to)
{
    const hid_t g = H5Gopen2(trial, group, H5P_DEFAULT);
    int64_t n = 0, m = 0;

    if (g < 0)
        return err_set("has no group %s", group);
    int e = !(to->x = read_values(g, over, &n)) || !(to->y = read_values(g, of, &m));
    h5_drop(g);
    if (!e && n != m)
        e = err_set("%s has %lld points, and %s %lld", over, (long long)n, of, (long long)m);
    to->n = e ? 0 : (int)n;
    return e ? -1 : 0;
}

/* ---- verdicts of updates ---- */

struct margin_row {
    int64_t update;
    double error, bound;
};
static const struct column margin_columns[] = {
    {"update", offsetof(struct margin_row, update), 'i', NO_UNIT, IN_DUMP, NULL, 0},
    {"error", offsetof(struct margin_row, error), 'd', FRACTION, IN_DUMP, NULL, 0},
    {"bound", offsetof(struct margin_row, bound), 'd', FRACTION, IN_DUMP, NULL, 0},
    {NULL, 0, 0, NO_UNIT, 0, NULL, 0}};

static int by_update(const void *a, const void *b)
{
    const struct margin_row *x = a, *y = b;
    return (x->update > y->update) - (x->update < y->update);
}

/* The largest error / bound of each update, of n rows, which get an order. */
static int largest_margins(struct margin_row *row, int n, struct page_curve *to)
{
    to->x = malloc(((size_t)n + 1) * sizeof *to->x);
    to->y = malloc(((size_t)n + 1) * sizeof *to->y);
    if (!to->x || !to->y)
        return err_set("no memory for %d verdicts", n);
    qsort(row, n, sizeof *row, by_update);
    for (int i = 0; i < n; i++) {
        const double margin = row[i].error / row[i].bound;
        if (!(row[i].bound > 0) || isnan(margin))
            continue;
        if (to->n && to->x[to->n - 1] == (double)row[i].update) {
            to->y[to->n - 1] = fmax(to->y[to->n - 1], margin);
        } else {
            to->x[to->n] = (double)row[i].update;
            to->y[to->n++] = margin;
        }
    }
    return 0;
}

static int read_margins(hid_t trial, struct page_curve *to)
{
    if (H5Lexists(trial, "parity", H5P_DEFAULT) <= 0)
        return 0;
    const hid_t type = h5_row_type(margin_columns, sizeof(struct margin_row));
    const struct h5_table as = {type, 0, MAX_VERDICTS};
    int n = 0;
    const hid_t table = type < 0 ? -1 : h5_table(trial, "parity", &as, &n);
    struct margin_row *row = table < 0 ? NULL : calloc((size_t)n + 1, sizeof *row);
    int e = table < 0 ? -1 : !row ? err_set("no memory for %d verdicts", n) : 0;

    if (!e && n && H5Dread(table, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, row) < 0)
        e = h5_cannot("read the table parity");
    e = e || largest_margins(row, n, to);
    free(row);
    h5_drop(table);
    h5_drop(type);
    return e ? -1 : 0;
}

/* ---- a run ---- */

static double number_of(hid_t trial, const char *group, const char *name)
{
    const hid_t g = H5Gopen2(trial, group, H5P_DEFAULT);
    double x = NAN;

    if (g < 0 || h5_get_double(g, name, &x))
        x = NAN;
    h5_drop(g);
    return x;
}

static char *text_of(hid_t at, const char *name)
{
    char *text = h5_get_text(at, name);
    return text ? text : strdup("");
}

int page_run_read(hid_t trial, struct page_run **to)
{
    struct page_run *r;
    int64_t n;

    if (H5Lexists(trial, "curve", H5P_DEFAULT) <= 0)
        return 0;
    if (!(r = *to = calloc(1, sizeof *r)))
        return err_set("no memory for a run");
    r->backend = text_of(trial, "backend");
    r->ended = text_of(trial, "ended");
    if (!r->backend || !r->ended)
        return err_set("no memory for a text");
    r->diverged = strcmp(r->ended, "diverged") == 0;
    r->updates = h5_get_int(trial, "updates_done", &n) ? 0 : (long long)n;
    r->learned_at = h5_get_int(trial, "learned_at", &n) ? 0 : (long long)n;
    r->test_loss = number_of(trial, "test", "loss");
    r->test_accuracy = number_of(trial, "test", "accuracy");
    r->test_sequence = number_of(trial, "test", "sequence_accuracy");
    r->tokens_per_s = number_of(trial, "speed", "tokens_per_s");
    r->seconds = number_of(trial, "speed", "seconds");
    if (read_curve(trial, "curve", "loss", "update", &r->loss) ||
        read_curve(trial, "eval", "loss", "update", &r->validation_loss) ||
        read_curve(trial, "eval", "accuracy", "update", &r->accuracy) ||
        read_curve(trial, "test", "accuracy_at", "decile", &r->accuracy_at) ||
        (H5Lexists(trial, "lengths", H5P_DEFAULT) > 0 &&
         read_curve(trial, "lengths", "accuracy", "length", &r->lengths)) ||
        mean_of_spans(&r->loss, &r->mean_loss) || read_margins(trial, &r->margins))
        return -1;
    keep_some(&r->loss);
    keep_some(&r->validation_loss);
    keep_some(&r->accuracy);
    keep_some(&r->margins);
    return 0;
}

static void curve_free(struct page_curve *c)
{
    free(c->x);
    free(c->y);
}

void page_run_free(struct page_run *r)
{
    if (!r)
        return;
    curve_free(&r->loss);
    curve_free(&r->mean_loss);
    curve_free(&r->margins);
    curve_free(&r->validation_loss);
    curve_free(&r->accuracy);
    curve_free(&r->accuracy_at);
    curve_free(&r->lengths);
    free(r->backend);
    free(r->ended);
    free(r);
}
