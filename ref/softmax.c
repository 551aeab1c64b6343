/* softmax: y = exp(scale (x - max)) / sum, for each row. */
#include "common/ops/softmax.h"
#include "ref/ref.h"

/* scale (x - max).  A composition of operators stores scale x, and softmax takes it from there. */
static real from_maximum(real scale, real x, real maximum)
{
    if (!at_site(SOFTMAX_AT_S))
        return scale * (x - maximum) - above_maximum();
    return site(SOFTMAX_AT_S, scale * x) - site(SOFTMAX_AT_S, scale * maximum) - above_maximum();
}

static int forward(const struct call *f)
{
    const struct softmax *a = ARGS(f, softmax);
    int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    real scale = constant(f->real[SOFTMAX_SCALE]);

    #pragma omp parallel for
    for (int64_t r = 0; r < R; r++) {
        const num *x = (const num *)a->x + r * N;
        num *y = (num *)a->y + r * N;
        real maximum = load_alike(x[0]), sum = 0;
        for (int64_t j = 1; j < N; j++)
            maximum = max_or_nan(load_alike(x[j]), maximum);
        FOR_SUM (j, N)
            add_to(sum, exp(from_maximum(scale, load_alike(x[j]), maximum)));
        const real lse = at_site(SOFTMAX_AT_LSE) ? scale * maximum + log(sum) : 0;
        const real off = site(SOFTMAX_AT_LSE, lse) - lse;
        for (int64_t j = 0; j < N; j++) {
            const real s = from_maximum(scale, load_alike(x[j]), maximum);
            y[j] = store(exp(s - off) / sum);
        }
    }
    return 0;
}

static int backward(const struct call *f)
{
    const struct softmax *a = ARGS(f, softmax), *g = GRADS(f, softmax);
    int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    real scale = constant(f->real[SOFTMAX_SCALE]);

    #pragma omp parallel for
    for (int64_t r = 0; r < R; r++) {
        const num *y = (const num *)a->y + r * N, *dy = (const num *)g->y + r * N;
        num *dx = (num *)g->x + r * N;
        real dot_ydy = 0;
        FOR_SUM (j, N)
            add_to(dot_ydy, load(y[j]) * load(dy[j]));
        for (int64_t j = 0; j < N; j++)
            dx[j] = store(scale * load(y[j]) * (load(dy[j]) - dot_ydy));
    }
    return 0;
}

REF_KERNEL(softmax, "plain", "one row after the other", forward, backward);
