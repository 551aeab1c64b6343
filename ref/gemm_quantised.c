/* gemm_quantised: decodes W, then y = x W^T. */
#include "common/ops/gemm_quantised.h"
#include "ref/decode.h"

/* Matrix l, decoded. */
static const real *decoded(const struct call *f, int64_t l, real **work)
{
    const struct dequantise W = gemm_quantised_W(f, l, sizeof(real));
    real *w = *work;

    *work += DIM(f, 'N') * DIM(f, 'K');
    REF(decode)(f, &W, w);
    return w;
}

static int forward(const struct call *f)
{
    const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');

    for (int64_t l = 0; l < DIM(f, 'L'); l++) {
        const struct gemm_quantised *a = ARGS(f, gemm_quantised);
        num *to = (num *)a->y + l * M * N;
        real *work = f->work;
        const real *W = decoded(f, l, &work);
        const real *x = widened((const num *)a->x + l * M * K, M * K, &work);
        real *y = to_fill(to, M * N, &work);

        product_in_panels(1, matrix(x, M, K), transposed(matrix(W, N, K)), 0, y);
        filled(to, y, M * N);
    }
    return 0;
}

static int backward(const struct call *f)
{
    const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');

    for (int64_t l = 0; l < DIM(f, 'L'); l++) {
        const struct gemm_quantised *g = GRADS(f, gemm_quantised);
        num *to = (num *)g->x + l * M * K;
        real *work = f->work;
        const real *W = decoded(f, l, &work);
        const real *dy = widened((const num *)g->y + l * M * N, M * N, &work);
        real *dx = to_fill(to, M * K, &work);

        product_in_panels(1, matrix(dy, M, N), matrix(W, N, K), 0, dx);
        filled(to, dx, M * K);
    }
    return 0;
}

static size_t work(const struct call *f, enum pass p)
{
    const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
    (void)p;
    return sizeof(real) * (N * K + COPIES * (M * K + M * N));
}

OF_CALL(const char *, declines, too_long_for_blas(DIM(f, 'M'), DIM(f, 'N')))

REF_KERNEL(gemm_quantised, "blas", "decodes W, CBLAS products", forward, backward, .work = work,
           .declines = declines);
