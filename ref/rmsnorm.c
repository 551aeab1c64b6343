/* rmsnorm: y = w x / sqrt(mean(x^2) + eps), for each row. */
#include "ref/rmsnorm.h"

enum { PANEL = 64 }; /* columns that a thread sums at once */

void rmsnorm_forward(const struct rmsnorm *a, real eps, int64_t R, int64_t N)
{
    const num *x = a->x, *w = a->w;
    num *y = a->y;
    real *rstd = a->rstd;

    #pragma omp parallel for
    for (int64_t i = 0; i < R; i++) {
        const num *xi = x + i * N;
        real squares = 0;

        FOR_SUM (n, N)
            add_to(squares, load(xi[n]) * load(xi[n]));
        rstd[i] = 1 / sqrt(squares / constant((real)N) + eps);
        for (int64_t n = 0; n < N; n++)
            y[i * N + n] = store(load(w[n]) * site(NORM_AT_XHAT, rstd[i] * load(xi[n])));
    }
}

static void backward_rows(const struct rmsnorm *a, const struct rmsnorm *d, int64_t R, int64_t N)
{
    const num *x = a->x, *w = a->w, *dy = d->y;
    const real *rstd = a->rstd;
    num *dx = d->x;

    #pragma omp parallel for
    for (int64_t i = 0; i < R; i++) {
        const num *xi = x + i * N, *dyi = dy + i * N;
        real mean_gx = 0; /* of g xhat */

        FOR_SUM (n, N)
            add_to(mean_gx, site(NORM_AT_DXHAT, load(w[n]) * load(dyi[n])) *
                                site(NORM_AT_XHAT, rstd[i] * load(xi[n])));
        mean_gx /= N;
        for (int64_t n = 0; n < N; n++) {
            real xhat = site(NORM_AT_XHAT, rstd[i] * load(xi[n])),
                 g = site(NORM_AT_DXHAT, load(w[n]) * load(dyi[n]));
            dx[i * N + n] = store(rstd[i] * (g - xhat * mean_gx));
        }
    }
}

/* Each thread goes through a panel of columns row by row. */
static void backward_columns(const struct rmsnorm *a, const struct rmsnorm *d, int64_t R, int64_t N)
{
    const num *x = a->x, *dy = d->y;
    const real *rstd = a->rstd;
    real *dw = d->w;

    #pragma omp parallel for
    for (int64_t from = 0; from < N; from += PANEL) {
        int64_t end = from + PANEL < N ? from + PANEL : N;

        for (int64_t n = from; n < end; n++)
            dw[n] = 0;
        FOR_SUM (i, R)
            for (int64_t n = from; n < end; n++)
                add_to(dw[n],
                       load(dy[i * N + n]) * site(NORM_AT_XHAT, rstd[i] * load(x[i * N + n])));
    }
}

void rmsnorm_backward(const struct rmsnorm *a, const struct rmsnorm *d, int64_t R, int64_t N)
{
    backward_rows(a, d, R, N);
    backward_columns(a, d, R, N);
}

static int forward(const struct call *f)
{
    rmsnorm_forward(ARGS(f, rmsnorm), f->real[NORM_EPS], DIM(f, 'R'), DIM(f, 'N'));
    return 0;
}

static int backward(const struct call *f)
{
    rmsnorm_backward(ARGS(f, rmsnorm), GRADS(f, rmsnorm), DIM(f, 'R'), DIM(f, 'N'));
    return 0;
}

REF_KERNEL(rmsnorm, "plain", "row by row, dw column by column", forward, backward);
