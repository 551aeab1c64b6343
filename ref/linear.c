#include "ref/ref.h"
#include "common/ops/linear.h"

static int forward(const struct frame *f)
{
    const struct linear *a = ARGS(f, linear);
    int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D');
    real *work = f->work;
    const real *x = widened(a->x, M * C, &work), *W = widened(a->W, D * C, &work);
    real *y = to_fill(a->y, M * D, &work);

    product(CblasNoTrans, CblasTrans, M, D, C, x, C, W, C, 0, y, D);
    filled(a->y, y, M * D);
    return 0;
}

static int backward(const struct frame *f)
{
    const struct linear *a = ARGS(f, linear), *g = GRADS(f, linear);
    int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D');
    real *work = f->work;
    const real *x = widened(a->x, M * C, &work), *W = widened(a->W, D * C, &work);
    const real *dy = widened(g->y, M * D, &work);
    real *dx = to_fill(g->x, M * C, &work), *dW = g->W;

    /* dx = dy W, dW = dy^T x */
    product(CblasNoTrans, CblasNoTrans, M, C, D, dy, D, W, C, 0, dx, C);
    product(CblasTrans, CblasNoTrans, D, C, M, dy, D, x, C, 0, dW, C);
    filled(g->x, dx, M * C);
    return 0;
}

static size_t work(const struct frame *f, enum pass p)
{
    int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D');
    return COPIES * sizeof(real) * (M * C + D * C + M * D + (p == BACKWARD ? M * C : 0));
}

static const struct impl blas = {
    .name = "blas",
    .idea = "CBLAS products",
    .pass = {forward, backward},
    .work = work,
};
const struct impl *const REF(linear)[] = {&blas, NULL};
