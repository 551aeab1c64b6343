/* The keys of the oracle's noise: they tell a reference's lines apart, and do not depend on the folder
 * from which it was compiled, so that equal runs have equal bounds. */
#define REF64
#include "ref/ref.h"

#include "tests/tap.h"

// clang-format off
#line 7 "/home/of/somebody/ablate/ref/name.c"
static unsigned here(void) { return HERE; }
#line 7 "ref/name.c"
static unsigned elsewhere(void) { return HERE; }
#line 7 "name.c"
static unsigned without(void) { return HERE; }
#line 8 "ref/name.c"
static unsigned below(void) { return HERE; }
#line 7 "ref/other_name.c"
static unsigned another(void) { return HERE; }

// clang-format on
/* A sum of n ones, and of as many more of -1, and 0.5: cut, it has lost 2^-30 of each sum on the way. */
static void cut_sums(void)
{
    enum { N = 500, K = 2 * N + 1 };
    double a[K], b[K], way = 0, sum = 0, y[2], all[2];
    const double part = 0x1p-30;

    for (int k = 0; k < K; k++) {
        a[k] = k < N ? 1 : k < 2 * N ? -1 : 0.5;
        b[k] = 1;
        sum += a[k];
        way += sum;
    }
    for (int key = 0; key < 2; key++) {
        ref64_noise = (struct noise){.cut = part, .key = (unsigned)key};
        product(matrix(a, 1, K), matrix(b, K, 1), 0, &y[key], 1);
        product(matrix(b, 1, N), matrix(b, N, 1), 0, &all[key], 1);
    }
    ref64_noise = (struct noise){.cut = 0};
    ok(fabs((0.5 - y[0]) / (part * way) - 1) < 1e-5,
       "a sum that falls back loses parts of larger ones");
    ok(y[1] > 0.5, "and the other way round as much below 0");
    ok(all[0] == all[1] && fabs((N - all[0]) / (part * N * (N + 1) / 2) - 1) < 1e-5, "equal terms");
}

int main(void)
{
    cut_sums();
    ok(here() == elsewhere() && here() == without(), "the same line, of a file in another folder");
    ok(here() != below() && here() != another() && below() != another(), "other lines and files");
    return done();
}
