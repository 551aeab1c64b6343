#include "ref/rmsnorm.h"
#include "common/ops/norm.h"

enum { PANEL = 64 }; /* columns that a thread sums at once */

void rmsnorm_forward(const num *x, const num *w, real eps, num *y, real *rstd, int64_t R, int64_t N)
{
    #pragma omp parallel for
    for (int64_t i = 0; i < R; i++) {
        const num *xi = x + i * N;
        real squares = 0;

        for (int64_t n = 0; n < N; n++)
            squares += load(xi[n]) * load(xi[n]);
        rstd[i] = 1 / sqrt(squares / N + eps);
        for (int64_t n = 0; n < N; n++)
            y[i * N + n] = store(load(w[n]) * (rstd[i] * load(xi[n])));
    }
}

static void backward_rows(const num *x, const num *w, const real *rstd, const num *dy, num *dx,
                          int64_t R, int64_t N)
{
    #pragma omp parallel for
    for (int64_t i = 0; i < R; i++) {
        const num *xi = x + i * N, *dyi = dy + i * N;
        real along = 0; /* mean of g xhat */

        for (int64_t n = 0; n < N; n++)
            along += load(w[n]) * load(dyi[n]) * (rstd[i] * load(xi[n]));
        along /= N;
        for (int64_t n = 0; n < N; n++) {
            real xhat = rstd[i] * load(xi[n]), g = load(w[n]) * load(dyi[n]);
            dx[i * N + n] = store(rstd[i] * (g - xhat * along));
        }
    }
}

/* A panel of columns a thread, which it goes through row by row. */
static void backward_columns(const num *x, const real *rstd, const num *dy, real *dw, int64_t R,
                             int64_t N)
{
    #pragma omp parallel for
    for (int64_t from = 0; from < N; from += PANEL) {
        int64_t end = from + PANEL < N ? from + PANEL : N;

        for (int64_t n = from; n < end; n++)
            dw[n] = 0;
        for (int64_t i = 0; i < R; i++)
            for (int64_t n = from; n < end; n++)
                dw[n] += load(dy[i * N + n]) * (rstd[i] * load(x[i * N + n]));
    }
}

void rmsnorm_backward(const num *x, const num *w, const real *rstd, const num *dy, num *dx,
                      real *dw, int64_t R, int64_t N)
{
    backward_rows(x, w, rstd, dy, dx, R, N);
    backward_columns(x, rstd, dy, dw, R, N);
}

static int forward(const struct frame *f)
{
    const struct rmsnorm *a = ARGS(f, rmsnorm);
    rmsnorm_forward(a->x, a->w, f->real[NORM_EPS], a->y, a->rstd, DIM(f, 'R'), DIM(f, 'N'));
    return 0;
}

static int backward(const struct frame *f)
{
    const struct rmsnorm *a = ARGS(f, rmsnorm), *d = GRADS(f, rmsnorm);
    rmsnorm_backward(a->x, a->w, a->rstd, d->y, d->x, d->w, DIM(f, 'R'), DIM(f, 'N'));
    return 0;
}

static const struct impl plain = {
    .name = "plain",
    .idea = "row by row, dw column by column",
    .pass = {forward, backward},
};
const struct impl *const REF(rmsnorm)[] = {&plain, NULL};
