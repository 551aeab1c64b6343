/* linear: y = act(x W^T + b). */
#include "common/ops/linear.h"
#include "ref/ref.h"

static int forward(const struct call *f)
{
    const struct linear *a = ARGS(f, linear);
    int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D');
    int act = f->choice[LINEAR_ACT];
    real *work = f->work;
    const real *x = widened(a->x, M * C, &work), *W = widened(a->W, D * C, &work);
    const num *b = a->b;
    real *y = to_fill(a->y, M * D, &work);
    num *z = a->z;

    product_in_panels(1, matrix(x, M, C), transposed(matrix(W, D, C)), 0, y);
    #pragma omp parallel for
    for (int64_t i = 0; i < M * D; i++) {
        if (z)
            z[i] = store(y[i]);
        y[i] = site(LINEAR_AT_Z, y[i]);
        if (b)
            y[i] = site(LINEAR_AT_Z, y[i] + load(b[i % D]));
        if (act == ACT_SILU)
            y[i] *= sigmoid(y[i]);
        else if (act == ACT_RELU)
            y[i] = y[i] <= 0 ? 0 : y[i];
    }
    filled(a->y, y, M * D);
    return 0;
}

/* The derivative of act at the argument of y[i]. */
static real slope(const struct call *f, int64_t i)
{
    const struct linear *a = ARGS(f, linear);
    const num *b = a->b, *y = a->y, *z = a->z;

    if (f->choice[LINEAR_ACT] == ACT_NONE)
        return 1;
    if (f->choice[LINEAR_ACT] == ACT_RELU)
        return load(y[i]) <= 0 ? 0 : 1;
    real at = load(z[i]) + (b ? load(b[i % DIM(f, 'D')]) : 0), gate = sigmoid(at);
    return gate * (1 + at * (1 - gate));
}

static int backward(const struct call *f)
{
    const struct linear *a = ARGS(f, linear), *g = GRADS(f, linear);
    int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D');
    real *work = f->work, *dz = work;
    work += M * D;
    const real *x = widened(a->x, M * C, &work), *W = widened(a->W, D * C, &work);
    const num *dy = g->y;
    real *dx = to_fill(g->x, M * C, &work), *dW = g->W, *db = g->b;

    #pragma omp parallel for
    for (int64_t i = 0; i < M * D; i++)
        dz[i] = site(LINEAR_AT_DZ, load(dy[i]) * slope(f, i));
    /* dx = dz W, dW = dz^T x */
    product_in_panels(1, matrix(dz, M, D), matrix(W, D, C), 0, dx);
    product_in_panels(1, transposed(matrix(dz, M, D)), matrix(x, M, C), 0, dW);
    filled(g->x, dx, M * C);
    #pragma omp parallel for
    for (int64_t j = 0; j < (db ? D : 0); j++) {
        db[j] = 0;
        FOR_SUM (m, M)
            add_to(db[j], dz[m * D + j]);
    }
    return 0;
}

static size_t work(const struct call *f, enum pass p)
{
    int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D');
    return sizeof(real) * (p == FORWARD ? COPIES * (M * C + D * C + M * D)
                                        : COPIES * (M * C + D * C + M * C) + M * D);
}

REF_KERNEL(linear, "blas", "CBLAS products", forward, backward, .work = work);
