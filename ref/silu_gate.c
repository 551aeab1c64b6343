#include "ref/ref.h"
#include "common/ops/silu_gate.h"

static int forward(const struct frame *f)
{
    const struct silu_gate *a = ARGS(f, silu_gate);
    const num *x = a->x, *z = a->z;
    num *y = a->y;
    int64_t n = DIM(f, 'M') * DIM(f, 'D');

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        real zi = load(z[i]);
        y[i] = store(load(x[i]) * zi * sigmoid(zi));
    }
    return 0;
}

static int backward(const struct frame *f)
{
    const struct silu_gate *a = ARGS(f, silu_gate), *g = GRADS(f, silu_gate);
    const num *x = a->x, *z = a->z, *dy = g->y;
    num *dx = g->x, *dz = g->z;
    int64_t n = DIM(f, 'M') * DIM(f, 'D');

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        real zi = load(z[i]), dyi = load(dy[i]), gate = sigmoid(zi);
        dx[i] = store(dyi * zi * gate);
        dz[i] = store(dyi * load(x[i]) * gate * (1 + zi * (1 - gate)));
    }
    return 0;
}

static const struct impl plain = {
    .name = "plain",
    .idea = "the formula, element by element",
    .pass = {forward, backward},
};
const struct impl *const REF(silu_gate)[] = {&plain, NULL};
