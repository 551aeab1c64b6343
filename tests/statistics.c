/* The statistics of seeds: known answers; and with --values lines of samples and of what is said of them, which
 * tests/statistics.py compares with NumPy's and SciPy's. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/call/call.h"
#include "common/statistics/statistics.h"
#include "tests/tap.h"

enum { MAX = 40 };

static int near(double x, double y)
{
    return fabs(x - y) <= 1e-12 * fmax(1, fabs(y));
}

/* ---- known answers ---- */

static void means(void)
{
    static const double x[] = {9, 1, 2, 3, 4, 5, 6, -100}, y[] = {7, 7, 7, 7, -1e9};

    ok(near(interquartile_mean(x, 8), 3.5), "IQM of 8: without two at each end");
    ok(near(interquartile_mean(y, 5), 7), "IQM of 5: without one at each end");
    ok(near(interquartile_mean(x, 3), 4), "IQM of 3: their mean");
    ok(near(interquartile_mean(x, 1), 9) && near(median_of(x, 1), 9), "of 1: itself");
    ok(near(median_of(x, 8), 3.5) && near(median_of(x, 3), 2),
       "median of an even and an odd number");
    ok(near(plain_mean(x, 8), -70.0 / 8), "mean");
}

static void signs(void)
{
    static const double same[] = {1, 1, 1, 1, 1}, one[] = {2}, none[] = {0, 0, 0},
                        few[] = {1, 2, 4}, back[] = {3, -1}, roundings[] = {0.1, 0.2, -0.3};
    double many[30];

    for (int i = 0; i < 30; i++)
        many[i] = 1;
    ok(near(sign_flip(same, 5, 1), 2.0 / 32), "5 of one sign: 2/32, no less");
    ok(near(sign_flip_least(5), 2.0 / 32) && near(sign_flip_least(16), 0x1p-15), "the least p");
    ok(near(sign_flip(one, 1, 1), 1) && near(sign_flip(none, 3, 1), 1), "one difference; none");
    ok(near(sign_flip(few, 3, 1), 0.25) && near(sign_flip(back, 2, 1), 1), "by hand");
    ok(near(sign_flip(roundings, 3, 1), 1), "sums that a rounding parts are alike");
    ok(near(sign_flip(many, 30, 1), 1.0 / SIGN_DRAWS) &&
           near(sign_flip_least(30), 1.0 / SIGN_DRAWS),
       "30 are drawn");
}

static void several(void)
{
    static const double p[] = {0.01, 0.04, 0.03, 0.005}, q[] = {0.5, 0.9, 0.01};
    double a[4];

    holm(p, a, 4);
    ok(near(a[0], 0.03) && near(a[1], 0.06) && near(a[2], 0.06) && near(a[3], 0.02),
       "Holm by hand");
    holm(q, a, 3);
    ok(near(a[0], 1) && near(a[1], 1) && near(a[2], 0.03), "no p above 1, none below an earlier");
}

static void intervals(void)
{
    static const double same[] = {2, 2, 2, 2}, one[] = {3};
    struct interval w = wilson(0, 10);
    struct bootstrap b;

    ok(w.low == 0 && near(w.high, 0.27753279986288), "Wilson: 0 of 10");
    w = wilson(10, 10);
    ok(w.high == 1 && near(w.low, 1 - 0.27753279986288), "Wilson: 10 of 10");
    ok(!bootstrap(same, 4, interquartile_mean, 1, &b) && b.bca.low == 2 && b.bca.high == 2 &&
           b.percentile.low == 2 && b.percentile.high == 2,
       "values that are equal have no width");
    ok(!bootstrap(one, 1, interquartile_mean, 1, &b) && b.bca.low == 3 && b.bca.high == 3,
       "nor has one");
}

/* ---- samples for others ---- */

static uint64_t state = 1;

static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53;
}

/* The kinds: uniform; skew; few values; learned or not, near 1 or near 0.5; all but one equal. */
static double value(int kind, int i)
{
    const double u = uniform();

    switch (kind) {
    case 0: return u;
    case 1: return exp(4 * u) - 9;
    case 2: return floor(4 * u) / 8;
    case 3: return uniform() < 0.6 ? 1 - 0.01 * u : 0.5 + 0.05 * u;
    default: return i ? 1 : u;
    }
}

static void print(const char *name, const double *x, int n, const double *result, int n_results)
{
    printf("%s", name);
    for (int i = 0; i < n; i++)
        printf(" %.17g", x[i]);
    printf(" =");
    for (int i = 0; i < n_results; i++)
        printf(" %.17g", result[i]);
    puts("");
}

static void print_one(const char *name, const double *x, int n, double result)
{
    print(name, x, n, &result, 1);
}

static void print_sample(const double *x, int n)
{
    double y[MAX], a[MAX];
    struct bootstrap b;

    print_one("iqm", x, n, interquartile_mean(x, n));
    print_one("median", x, n, median_of(x, n));
    for (int i = 0; i < n; i++) {
        y[i] = x[i] - 0.4;
        a[i] = x[i] * x[i] / (1 + fabs(x[i])) / 20;
    }
    if (n <= 12)
        print_one("signs", y, n, sign_flip(y, n, 1));
    double p[MAX];
    holm(a, p, n);
    print("holm", a, n, p, n);
    for (int mean = 0; mean < 2; mean++)
        if (!bootstrap(x, n, mean ? plain_mean : interquartile_mean, 5, &b)) {
            const double all[] = {b.bca.low, b.bca.high, b.percentile.low, b.percentile.high};
            print(mean ? "bootstrap_mean" : "bootstrap_iqm", x, n, all, 4);
        }
}

static void print_values(void)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 10, 12, 16, 33};
    double x[MAX];

    for (int kind = 0; kind < 5; kind++)
        for (int s = 0; s < (int)COUNT(sizes); s++) {
            for (int i = 0; i < sizes[s]; i++)
                x[i] = value(kind, i);
            print_sample(x, sizes[s]);
        }
    for (int n = 1; n < 20; n += 3)
        for (int k = 0; k <= n; k++) {
            const struct interval w = wilson(k, n);
            print("wilson", (const double[]){k, n}, 2, (const double[]){w.low, w.high}, 2);
        }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--values") == 0) {
        print_values();
        return 0;
    }
    means();
    signs();
    several();
    intervals();
    printf("1..%d\n", tap_run);
    return 0;
}
