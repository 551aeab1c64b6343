/* relu: y = max(x, 0). */
#include "common/ops/elementwise.h"
#include "ref/ref.h"

/* y is x where x is above 0 or NaN. */
static int forward(const struct call *f)
{
    const struct unary *a = ARGS(f, unary);
    const num *x = a->x;
    num *y = a->y;
    int64_t n = DIM(f, 'M') * DIM(f, 'D');

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        real xi = load(x[i]);
        y[i] = store(xi <= 0 ? 0 : xi);
    }
    return 0;
}

static int backward(const struct call *f)
{
    const struct unary *a = ARGS(f, unary), *g = GRADS(f, unary);
    const num *x = a->x, *dy = g->y;
    num *dx = g->x;
    int64_t n = DIM(f, 'M') * DIM(f, 'D');

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        dx[i] = store(load(x[i]) <= 0 ? 0 : load(dy[i]));
    return 0;
}

REF_KERNEL(relu, "plain", "the formula, element by element", forward, backward);
