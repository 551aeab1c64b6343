/* silu: y = x / (1 + exp(-x)). */
#include "common/ops/elementwise.h"
#include "ref/ref.h"

static int forward(const struct call *f)
{
    const struct unary *a = ARGS(f, unary);
    const num *x = a->x;
    num *y = a->y;
    int64_t n = DIM(f, 'M') * DIM(f, 'D');

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        real xi = load(x[i]);
        y[i] = store(xi * sigmoid(xi));
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
    for (int64_t i = 0; i < n; i++) {
        real xi = load(x[i]), gate = sigmoid(xi);
        dx[i] = store(load(dy[i]) * gate * (1 + xi * (1 - gate)));
    }
    return 0;
}

REF_KERNEL(silu, "plain", "the formula, element by element", forward, backward);
