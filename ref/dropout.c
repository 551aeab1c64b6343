/* dropout: y = Z x / (1 - p), and dx of dy by the same mask (common/ops/dropout.h). */
#include "common/ops/dropout.h"
#include "ref/ref.h"

static int drop(const struct call *f, const num *from, num *to)
{
    const struct dropout_mask mask = dropout_mask_of(f);
    const uint32_t u = dropout_step(ARGS(f, dropout)->counter);
    const int64_t n = DIM(f, 'M') * DIM(f, 'D');
    const real keep = constant(1 / (1 - f->real[DROPOUT_P]));

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        to[i] = store(dropout_kept(&mask, u, i) ? keep * load(from[i]) : 0);
    return 0;
}

static int forward(const struct call *f)
{
    const struct dropout *a = ARGS(f, dropout);
    return drop(f, a->x, a->y);
}

static int backward(const struct call *f)
{
    const struct dropout *g = GRADS(f, dropout);
    return drop(f, g->y, g->x);
}

REF_KERNEL(dropout, "plain", "element by element, each with a word of its own", forward, backward);
