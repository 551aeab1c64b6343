/* The distance of two tensors of which one has NaN or infinities, and the difference between an
 * element that a kernel has not written and a NaN that it has written. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/call/values.h"
#include "common/ops/softmax.h"
#include "common/report/growth_text.h"
#include "tests/suite.h"

enum { N = 4 };

static void distances(void)
{
    static const struct {
        double a[N], b[N], max;
        int worst;
        const char *what;
    } of[] = {
        {{NAN, 1, INFINITY, 2}, {NAN, 1, INFINITY, 2}, 0, 0, "NaN and infinities agree"},
        {{-NAN, 1, -INFINITY, 2}, {NAN, 1, -INFINITY, 2}, 0, 0, "a NaN is like any other"},
        {{NAN, 3, -INFINITY, 8}, {NAN, 4, -INFINITY, 8}, 0.125, 1, "sizes are of finite ones"},
        {{1, NAN, 1, 2}, {1, 1, 1, 2}, INFINITY, 1, "a NaN for a number"},
        {{1, 1, INFINITY, 2}, {1, 1, 1, 2}, INFINITY, 2, "an infinity for a number"},
        {{1, 1, 1, 0}, {1, 1, 1, NAN}, INFINITY, 3, "a number for a NaN"},
        {{1e300, 1, 1, 2}, {INFINITY, 1, 1, 2}, INFINITY, 0, "a number for an infinity"},
        {{1, 1, NAN, 2}, {1, 1, INFINITY, 2}, INFINITY, 2, "a NaN for an infinity"},
        {{1, -INFINITY, 1, 2}, {1, INFINITY, 1, 2}, INFINITY, 1, "the other infinity"},
        {{NAN, NAN, NAN, NAN}, {NAN, NAN, NAN, NAN}, 0, 0, "nothing finite"},
        {{-0.0, 0, 0, 0}, {0, 0, 0, 0}, 0, 0, "zeros of either sign"},
    };

    for (size_t i = 0; i < COUNT(of); i++) {
        struct distance d = distance(of[i].a, of[i].b, N);
        ok(d.max == of[i].max && d.worst == of[i].worst && isinf(d.norm) == isinf(d.max),
           "%s: %g at %d", of[i].what, d.max, (int)d.worst);
    }
    ok(same_bits(of[0].a, of[0].b, N) && !same_bits((double[]){-0.0}, (double[]){0}, 1),
       "bits: a NaN is itself, and -0 is not 0");
}

/* A tensor [2,4] or [2,2,4] of ones, and another that is off in places: the four measures of all
 * elements, and the slices. */
static void measures(void)
{
    enum { N_ALL = 16 };
    struct call f;
    struct distances d;
    double a[N_ALL], b[N_ALL];
    int e = cases_one(&op_softmax, "rows=2 columns=8", &f);

    for (int i = 0; i < N_ALL; i++) {
        b[i] = i < 8 ? 1 : 1e-3;
        a[i] = i < 8 ? 1.25 : 1e-3;
    }
    e = e || distances_find(&d, &f, 0, a, b);
    ok(!e && d.whole.of[BY_MAX] == 0.25 && fabs(d.whole.of[BY_RMS] - 0.25) < 1e-6 &&
           fabs(d.whole.of[BY_GAIN] - 0.25) < 1e-6 &&
           fabs(d.whole.of[BY_OFFSET] - 0.125 * sqrt(2)) < 1e-6,
       "the first half a quarter too large: max, rms, gain, offset");
    ok(!e && d.slices.n == 2 + 8 && fabs(d.slice[0].off - 0.25) < 1e-15 && d.slice[1].off == 0 &&
           fabs(d.slice[0].gain - 0.25) < 1e-15 && d.slice[0].n == 8 && d.slice[9].n == 2 &&
           fabs(d.slice[1].size - 1e-3) < 1e-15,
       "its rows are slices, in the tensor's own unit");
    distances_free(&d);
    for (int i = 0; i < N_ALL; i++)
        a[i] = b[i] + (i % 2 ? 0.5 : -0.5);
    e = e || distances_find(&d, &f, 0, a, b);
    ok(!e && d.whole.of[BY_OFFSET] < 1e-12 && d.whole.of[BY_GAIN] < 1e-12 &&
           d.slice[0].gain < 1e-12 && fabs(d.slice[2].off - 0.5) < 1e-12,
       "errors that cancel have neither gain nor offset");
    distances_free(&d);
    a[3] = NAN;
    e = e || distances_find(&d, &f, 0, a, b);
    ok(!e && isinf(d.whole.of[BY_RMS]) && d.worst == 3 && isinf(d.slice[0].off) &&
           isfinite(d.slice[1].off) && isinf(d.slice[2 + 3].off) && isfinite(d.slice[2 + 4].gain),
       "a NaN is infinitely off in its slices, and others are as they were");
    distances_free(&d);
    for (int i = 0; i < N_ALL; i++) {
        a[i] = 0x1p-127;
        b[i] = 0;
    }
    e = e || distances_find(&d, &f, 0, a, b);
    ok(!e && d.whole.of[BY_MAX] == 0 && d.slice[0].off == 0, "what a float may lose is 0");
    distances_free(&d);
}

/* Slices of three axes, and where they are. */
static void slices(void)
{
    struct call f;
    char text[64], all[400] = "";
    unsigned fixed;
    int e = cases_one(op_find("rope"), "steps=2 batch=1 heads=3 dim=4", &f);
    const int arg = op_arg(f.op, "y");
    const struct slices s = e ? (struct slices){0} : slices_of(&f, arg);

    for (int64_t i = 0; i < s.n; i++) {
        const int64_t at = slice_at(&s, i, &fixed);
        values_slice(&f, arg, at, fixed, text, sizeof text);
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s", text);
    }
    ok(!e && s.n == 6 + 2 + 3 + 4, "%lld slices: %s", (long long)s.n, all);
}

/* Of one row of 200 000, and of many of 3, the same sums, whatever the shape; and 1e300 and 1e-300
 * neither overflow nor vanish. */
static void sizes(void)
{
    enum { MANY = 200000 };
    double *a = malloc(MANY * sizeof *a), *b = malloc(MANY * sizeof *b);

    for (int way = 0; a && b && way < 2; way++) {
        const double size = way ? 1e-290 : 1e300;
        for (int i = 0; i < MANY; i++) {
            b[i] = size * (1 + i % 7);
            a[i] = b[i] * (i == 150001 ? 1.5 : 1.001);
        }
        const struct distance d = distance(a, b, MANY);
        ok(way ? d.max == 0 : d.worst == 150001 && fabs(d.norm / 1.7e-3 - 1) < 0.5,
           "sizes of %g: max %g at %d, norm %g", size, d.max, (int)d.worst, d.norm);
    }
    free(a);
    free(b);
}

/* The first row of N elements becomes NaN, the others 1. */
static int writes_all(const struct call *f)
{
    double *y = ARGS(f, softmax)->y;
    for (int i = 0; i < DIM(f, 'R') * N; i++)
        y[i] = i < N ? NAN : 1;
    return 0;
}

static int leaves_one(const struct call *f)
{
    double *y = ARGS(f, softmax)->y, kept = y[N - 1];
    writes_all(f);
    y[N - 1] = kept;
    return 0;
}

static int clears(const struct call *f)
{
    double *dx = GRADS(f, softmax)->x;
    for (int i = 0; i < DIM(f, 'R') * N; i++)
        dx[i] = 0;
    return 0;
}

/* Does check_properties() accept such a forward pass, and does its check "written"? */
static void unwritten(int (*forward)(const struct call *f), int written, const char *what)
{
    const struct impl kernel = {.name = "planted", .type = F64, .pass = {forward, clears}};
    struct call f;
    struct bounds bounds = {.samples = 0};
    struct verdicts list = {0};
    int e = cases_one(&op_softmax, "rows=2 columns=4", &f), passed = -1;
    struct run c = {.call = call_on(&f, &ref64, &kernel, NULL)};
    struct tensors *t = e ? NULL : tensors_new(&f);

    e = !t || check_properties(&c, t, &bounds, &list);
    for (int i = 0; i < list.n; i++)
        if (strcmp(list.v[i].check, "written") == 0)
            passed = list.v[i].pass;
    ok(!e && passed == written, "%s: 'written' %s", what, passed ? "passes" : "fails");
    if (e)
        printf("# %s\n", err_text());
    verdicts_free(&list);
    tensors_free(t);
}

/* By quarters of the steps: 10 steps are 3, 2, 3 and 2 of them; 2 rows of 3 elements each. */
static void quarters(void)
{
    static const int first[] = {0, 3, 5, 8, 10};
    double want[10 * 2 * 3], got[10 * 2 * 3];
    struct quarters g;
    struct call f;

    if (cases_one(op_find("e74_cell"), "steps=10 batch=2 n_state=3 state=diagonal", &f)) {
        ok(0, "e74_cell: %s", err_text());
        return;
    }
    f = call_on(&f, &ref64, op_kernel(f.op, &ref64, 0), NULL);
    const int k = op_arg(f.op, "k"), state = op_arg(f.op, "S0");
    for (int q = 0; q < QUARTERS; q++)
        for (int i = first[q] * 6; i < first[q + 1] * 6; i++) {
            want[i] = i % 2 ? 2 : -2;
            got[i] = want[i] + ldexp(i % 3 ? 1 : -1, -10 - 3 * q);
        }
    int right = growth_of(&f, k, got, want, &g);
    for (int q = 0; right && q < QUARTERS; q++)
        right = g.error[q] == ldexp(1, -11 - 3 * q);
    ok(right, "errors by quarters of the steps");
    want[0] = got[0] = INFINITY, got[1] = NAN;
    ok(growth_of(&f, k, got, want, &g) && g.error[0] == ldexp(1, -11),
       "what is not finite is left out");
    ok(!growth_of(&f, state, got, want, &g), "a state has no steps");
    memset(want, 0, sizeof want);
    ok(!growth_of(&f, k, got, want, &g), "nothing to compare an error with");
    ok(!cases_one(op_find("e74_cell"), "steps=3 batch=2 n_state=3 state=diagonal", &f) &&
           !growth_of(&f, k, got, want, &g),
       "three steps have no quarters");
}

int main(void)
{
    distances();
    quarters();
    measures();
    slices();
    sizes();
    unwritten(writes_all, 1, "a NaN that is written");
    unwritten(leaves_one, 0, "an element that is left as it was");
    return done();
}
