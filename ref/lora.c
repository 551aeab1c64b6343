/* lora: y = x W^T + (alpha / R) (x A^T) B^T. */
#include "common/ops/lora.h"
#include "ref/ref.h"

/* What is added to later. */
static void term(real *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = site(LORA_AT_TERM, x[i]);
}

static int forward(const struct call *f)
{
    const struct lora *a = ARGS(f, lora);
    int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D'), R = DIM(f, 'R');
    real *work = f->work;
    const real *x = widened(a->x, M * C, &work), *W = widened(a->W, D * C, &work);
    const real *A = widened(a->A, R * C, &work), *B = widened(a->B, D * R, &work);
    const real scale = constant(f->real[LORA_ALPHA] / R);
    real *y = to_fill(a->y, M * D, &work), *h = to_fill(a->h, M * R, &work);

    product_in_panels(1, matrix(x, M, C), transposed(matrix(A, R, C)), 0, h);
    for (int64_t i = 0; i < M * R; i++)
        h[i] = site(LORA_AT_H, scale * h[i]);
    product_in_panels(1, matrix(x, M, C), transposed(matrix(W, D, C)), 0, y);
    term(y, M * D);
    product_in_panels(1, matrix(h, M, R), transposed(matrix(B, D, R)), 1, y);
    filled(a->h, h, M * R);
    filled(a->y, y, M * D);
    return 0;
}

static int backward(const struct call *f)
{
    const struct lora *a = ARGS(f, lora), *g = GRADS(f, lora);
    int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D'), R = DIM(f, 'R');
    real *work = f->work, *dh = work;
    work += M * R;
    const real *x = widened(a->x, M * C, &work), *W = widened(a->W, D * C, &work);
    const real *A = widened(a->A, R * C, &work), *B = widened(a->B, D * R, &work);
    const real *h = widened(a->h, M * R, &work), *dy = widened(g->y, M * D, &work);
    real *dx = to_fill(g->x, M * C, &work), *dA = g->A, *dB = g->B;
    const real scale = constant(f->real[LORA_ALPHA] / R);
    real *dterm = at_site(LORA_AT_DTERM) ? scaled_at_site(LORA_AT_DTERM, scale, g->y, M * D) : NULL;

    if (at_site(LORA_AT_DTERM) && !dterm)
        return -1;
    product_in_panels(1, matrix(dterm ? dterm : dy, M, D), matrix(B, D, R), 0, dh);
    for (int64_t i = 0; i < M * R; i++)
        dh[i] = site(LORA_AT_DH, scale * dh[i]);
    product_in_panels(1, matrix(dy, M, D), matrix(W, D, C), 0, dx);
    term(dx, M * C);
    product_in_panels(1, matrix(dh, M, R), matrix(A, R, C), 1, dx);
    product_in_panels(1, transposed(matrix(dh, M, R)), matrix(x, M, C), 0, dA);
    product_in_panels(1, transposed(matrix(dterm ? dterm : dy, M, D)), matrix(h, M, R), 0, dB);
    free(dterm);
    filled(g->x, dx, M * C);
    return 0;
}

static size_t work(const struct call *f, enum pass p)
{
    int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D'), R = DIM(f, 'R');
    int64_t copies = COPIES * (M * C + D * C + R * C + D * R + M * D + M * R);
    return sizeof(real) * (copies + (p == BACKWARD ? M * R + COPIES * M * C : 0));
}

REF_KERNEL(lora, "blas", "CBLAS products", forward, backward, .work = work);
