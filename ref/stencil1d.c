/* stencil1d: the mean of 2R+1 neighbours in a row, with zeros outside. */
#include "common/ops/stencil1d.h"
#include "ref/ref.h"

static void means(const struct call *f, const num *x, num *y)
{
    int64_t B = DIM(f, 'B'), N = DIM(f, 'N'), R = DIM(f, 'R');

    #pragma omp parallel for collapse(2)
    for (int64_t b = 0; b < B; b++) {
        for (int64_t i = 0; i < N; i++) {
            int64_t first = i > R ? i - R : 0, last = i + R < N ? i + R : N - 1;
            real sum = 0;
            for (int64_t k = first; k <= last; k++)
                add_to(sum, load(x[b * N + k]));
            y[b * N + i] = store(sum / constant((real)(2 * R + 1)));
        }
    }
}

static int forward(const struct call *f)
{
    const struct stencil1d *a = ARGS(f, stencil1d);
    means(f, a->x, a->y);
    return 0;
}

static int backward(const struct call *f)
{
    const struct stencil1d *g = GRADS(f, stencil1d);
    means(f, g->y, g->x);
    return 0;
}

REF_KERNEL(stencil1d, "plain", "the sum, element by element", forward, backward);
