/* Reads a run of training for a page (run.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/h5.h"
#include "common/page/run.h"

enum { MAX_READ = 100000000, MAX_POINTS = 500 };

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

/* At most MAX_POINTS of them: of each span its mean, at its last update. */
static void thin(struct page_curve *c)
{
    const int span = (c->n + MAX_POINTS - 1) / MAX_POINTS;
    int n = 0;

    if (span < 2)
        return;
    for (int i = 0; i < c->n; i += span) {
        const int some = c->n - i < span ? c->n - i : span;
        double sum = 0;
        for (int k = 0; k < some; k++)
            sum += c->y[i + k];
        c->x[n] = c->x[i + some - 1];
        c->y[n++] = sum / some;
    }
    c->n = n;
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
         read_curve(trial, "lengths", "accuracy", "length", &r->lengths)))
        return -1;
    thin(&r->loss);
    thin(&r->validation_loss);
    thin(&r->accuracy);
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
    curve_free(&r->validation_loss);
    curve_free(&r->accuracy);
    curve_free(&r->accuracy_at);
    curve_free(&r->lengths);
    free(r->backend);
    free(r->ended);
    free(r);
}
