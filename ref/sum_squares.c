/* sum_squares: y = sum of x^2, dx = 2 x dy. */
#include "common/ops/sum_squares.h"
#include "ref/ref.h"

/* By halves: no sum is the result of a long chain of additions. */
static real sum(const num *x, int64_t n)
{
    enum { CHAIN = 1024 };
    real s = 0;

    if (n > CHAIN && REF(noise).order == AS_BUILT)
        return sum(x, n / 2) + sum(x + n / 2, n - n / 2);
    FOR_SUM (i, n)
        add_to(s, load(x[i]) * load(x[i]));
    return s;
}

/* Parts of x in parallel, as many for any number of threads. */
static int forward(const struct call *f)
{
    enum { PARTS = 64 };
    const struct sum_squares *a = ARGS(f, sum_squares);
    const num *x = a->x;
    const int64_t N = DIM(f, 'N'), P = REF(noise).order == AS_BUILT ? PARTS : 1;
    real parts[PARTS] = {0}, y = 0;

    #pragma omp parallel for
    for (int64_t p = 0; p < P; p++)
        parts[p] = sum(x + N * p / P, N * (p + 1) / P - N * p / P);
    for (int64_t p = 0; p < P; p++)
        y += parts[p];
    *(real *)a->y = y;
    return 0;
}

static int backward(const struct call *f)
{
    const struct sum_squares *a = ARGS(f, sum_squares), *g = GRADS(f, sum_squares);
    const num *x = a->x;
    const real dy = *(const real *)g->y;
    num *dx = g->x;

    #pragma omp parallel for
    for (int64_t i = 0; i < DIM(f, 'N'); i++)
        dx[i] = store(2 * load(x[i]) * dy);
    return 0;
}

REF_KERNEL(sum_squares, "pairwise", "parts of x in parallel, sums by halves", forward, backward);
