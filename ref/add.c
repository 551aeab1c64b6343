/* add: y = a + b. */
#include "common/ops/elementwise.h"
#include "ref/ref.h"

static int forward(const struct call *f)
{
    const struct add *p = ARGS(f, add);
    const num *a = p->a, *b = p->b;
    num *y = p->y;
    int64_t n = DIM(f, 'M') * DIM(f, 'D');

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        y[i] = store(load(a[i]) + load(b[i]));
    return 0;
}

static int backward(const struct call *f)
{
    const struct add *g = GRADS(f, add);
    const num *dy = g->y;
    num *da = g->a, *db = g->b;
    int64_t n = DIM(f, 'M') * DIM(f, 'D');

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        da[i] = db[i] = store(load(dy[i]));
    return 0;
}

REF_KERNEL(add, "plain", "the sum, element by element", forward, backward);
