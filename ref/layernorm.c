/* layernorm: y = w (x - mean) / sqrt(var + eps) + b, for each row. */
#include "common/ops/norm.h"
#include "ref/ref.h"

enum { PANEL = 64 }; /* columns that a thread sums at once */

static int forward(const struct call *f)
{
    const struct layernorm *a = ARGS(f, layernorm);
    const num *x = a->x, *w = a->w, *b = a->b;
    num *y = a->y;
    real *mean = a->mean, *rstd = a->rstd, eps = f->real[NORM_EPS];
    int64_t R = DIM(f, 'R'), N = DIM(f, 'N');

    #pragma omp parallel for
    for (int64_t i = 0; i < R; i++) {
        const num *xi = x + i * N;
        real sum = 0, squares = 0;

        FOR_SUM (n, N)
            add_to(sum, load(xi[n]));
        mean[i] = sum / constant((real)N);
        FOR_SUM (n, N)
            add_to(squares, (load(xi[n]) - mean[i]) * (load(xi[n]) - mean[i]));
        rstd[i] = 1 / sqrt(squares / constant((real)N) + eps);
        for (int64_t n = 0; n < N; n++)
            y[i * N + n] = store(
                load(w[n]) * site(NORM_AT_XHAT, rstd[i] * (load(xi[n]) - mean[i])) + load(b[n]));
    }
    return 0;
}

static void backward_rows(const struct call *f)
{
    const struct layernorm *a = ARGS(f, layernorm), *d = GRADS(f, layernorm);
    const num *x = a->x, *w = a->w, *dy = d->y;
    const real *mean = a->mean, *rstd = a->rstd;
    num *dx = d->x;
    int64_t R = DIM(f, 'R'), N = DIM(f, 'N');

    #pragma omp parallel for
    for (int64_t i = 0; i < R; i++) {
        const num *xi = x + i * N, *dyi = dy + i * N;
        real mean_g = 0, mean_gx = 0; /* of g, and of g xhat */

        FOR_SUM (n, N) {
            real xhat = site(NORM_AT_XHAT, rstd[i] * (load(xi[n]) - mean[i])),
                 g = site(NORM_AT_DXHAT, load(w[n]) * load(dyi[n]));
            add_to(mean_g, g);
            add_to(mean_gx, g * xhat);
        }
        mean_g /= N;
        mean_gx /= N;
        for (int64_t n = 0; n < N; n++) {
            real xhat = site(NORM_AT_XHAT, rstd[i] * (load(xi[n]) - mean[i])),
                 g = site(NORM_AT_DXHAT, load(w[n]) * load(dyi[n]));
            dx[i * N + n] = store(rstd[i] * (g - mean_g - xhat * mean_gx));
        }
    }
}

/* Each thread goes through a panel of columns row by row. */
static void backward_columns(const struct call *f)
{
    const struct layernorm *a = ARGS(f, layernorm), *d = GRADS(f, layernorm);
    const num *x = a->x, *dy = d->y;
    const real *mean = a->mean, *rstd = a->rstd;
    real *dw = d->w, *db = d->b;
    int64_t R = DIM(f, 'R'), N = DIM(f, 'N');

    #pragma omp parallel for
    for (int64_t from = 0; from < N; from += PANEL) {
        int64_t end = from + PANEL < N ? from + PANEL : N;

        for (int64_t n = from; n < end; n++)
            dw[n] = db[n] = 0;
        FOR_SUM (i, R)
            for (int64_t n = from; n < end; n++) {
                add_to(dw[n], load(dy[i * N + n]) *
                                  site(NORM_AT_XHAT, rstd[i] * (load(x[i * N + n]) - mean[i])));
                add_to(db[n], load(dy[i * N + n]));
            }
    }
}

static int backward(const struct call *f)
{
    backward_rows(f);
    backward_columns(f);
    return 0;
}

REF_KERNEL(layernorm, "plain", "row by row, dw and db column by column", forward, backward);
