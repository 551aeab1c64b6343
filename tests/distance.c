/* The distance of two tensors of which one has NaN or infinities, and the difference between an
 * element that a kernel has not written and a NaN that it has written. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "common/base/err.h"
#include "common/ops/softmax.h"
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
    const struct impl kernel = {.name = "planted", .pass = {forward, clears}};
    struct call f;
    struct bounds bounds = {.x = {0}};
    struct verdicts list = {0};
    int e = cases_one(&op_softmax, "rows=2 columns=4", &f), passed = -1;
    struct run c = {.call = call_on(&f, &ref64, &kernel)};
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

int main(void)
{
    distances();
    unwritten(writes_all, 1, "a NaN that is written");
    unwritten(leaves_one, 0, "an element that is left as it was");
    return done();
}
