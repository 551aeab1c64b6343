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
    for (int64_t i = 0; i < DIM(f, 'N') * DIM(f, 'K'); i++)
        w[i] = site(GEMM_QUANTISED_AT_W, w[i]);
    return w;
}

/* to [M,C] = from [M,D] B of each matrix; B is W^T, or W. */
static void multiply(const struct call *f, const num *from, num *to, enum pass p)
{
    const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
    const int64_t D = p == FORWARD ? K : N, C = p == FORWARD ? N : K;

    for (int64_t l = 0; l < DIM(f, 'L'); l++, from += M * D, to += M * C) {
        real *work = f->work;
        const struct matrix W = matrix(decoded(f, l, &work), N, K);
        const real *a = widened(from, M * D, &work);
        real *c = to_fill(to, M * C, &work);

        product_in_panels(1, matrix(a, M, D), p == FORWARD ? transposed(W) : W, 0, c);
        filled(to, c, M * C);
    }
}

static int forward(const struct call *f)
{
    const struct gemm_quantised *a = ARGS(f, gemm_quantised);
    multiply(f, a->x, a->y, FORWARD);
    return 0;
}

static int backward(const struct call *f)
{
    const struct gemm_quantised *g = GRADS(f, gemm_quantised);
    multiply(f, g->y, g->x, BACKWARD);
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
