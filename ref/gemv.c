/* gemv: y = alpha op(A) x + beta y0. */
#include "common/ops/gemv.h"
#include "ref/ref.h"

/* sums [rows] = A x for A [rows,columns] */
static void multiply(const num *A, const num *x, real *sums, int64_t rows, int64_t columns)
{
    #pragma omp parallel for
    for (int64_t i = 0; i < rows; i++) {
        real sum = 0;
        FOR_SUM (j, columns)
            add_to(sum, load(A[i * columns + j]) * load(x[j]));
        sums[i] = sum;
    }
}

/* sums [columns] = A^T x for A [rows,columns], a strip of columns per thread. */
static void multiply_transposed(const num *A, const num *x, real *sums, int64_t rows,
                                int64_t columns)
{
    enum { STRIP = 64 };

    #pragma omp parallel for
    for (int64_t first = 0; first < columns; first += STRIP) {
        int64_t end = columns - first < STRIP ? columns : first + STRIP;
        for (int64_t j = first; j < end; j++)
            sums[j] = 0;
        FOR_SUM (i, rows)
            for (int64_t j = first; j < end; j++)
                add_to(sums[j], load(A[i * columns + j]) * load(x[i]));
    }
}

static int forward(const struct call *f)
{
    const struct gemv *a = ARGS(f, gemv);
    int64_t M = DIM(f, 'M'), K = DIM(f, 'K');
    real alpha = f->real[GEMV_ALPHA], beta = f->real[GEMV_BETA], *sums = f->work;
    const num *y0 = a->y0;
    num *y = a->y;

    if (f->choice[GEMV_TRANSPOSE_A])
        multiply_transposed(a->A, a->x, sums, K, M);
    else
        multiply(a->A, a->x, sums, M, K);
    for (int64_t m = 0; m < M; m++) {
        const int composed = at_site(GEMV_AT_TERM) && (alpha != 1 || y0);
        const real term =
            composed ? site(GEMV_AT_TERM, alpha * site(GEMV_AT_TERM, sums[m])) : alpha * sums[m];
        y[m] = store(term + (y0 ? site(GEMV_AT_TERM, beta * load(y0[m])) : 0));
    }
    return 0;
}

static int backward(const struct call *f)
{
    const struct gemv *a = ARGS(f, gemv), *g = GRADS(f, gemv);
    int64_t M = DIM(f, 'M'), K = DIM(f, 'K');
    int flip = f->choice[GEMV_TRANSPOSE_A];
    real alpha = f->real[GEMV_ALPHA], beta = f->real[GEMV_BETA], *sums = f->work;
    const int composed = at_site(GEMV_AT_DTERM) && alpha != 0 && (alpha != 1 || g->y0);
    num *dterm = composed ? scaled_at_site(GEMV_AT_DTERM, alpha, g->y, M) : NULL;
    const num *x = a->x, *dy = dterm ? dterm : g->y, *left = flip ? x : dy, *right = flip ? dy : x;
    num *dA = g->A, *dx = g->x, *dy0 = g->y0;
    int64_t rows = flip ? K : M, columns = flip ? M : K;
    const num *given = g->y;

    if (composed && !dterm)
        return -1;
    if (flip)
        multiply(a->A, dy, sums, K, M);
    else
        multiply_transposed(a->A, dy, sums, M, K);
    for (int64_t k = 0; k < K; k++)
        dx[k] = store(alpha * sums[k]);
    #pragma omp parallel for
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            dA[i * columns + j] = store(alpha * load(left[i]) * load(right[j]));
    for (int64_t m = 0; dy0 && m < M; m++)
        dy0[m] = store(beta * load(given[m]));
    free(dterm);
    return 0;
}

static size_t work(const struct call *f, enum pass p)
{
    return sizeof(real) * (p == FORWARD ? DIM(f, 'M') : DIM(f, 'K'));
}

REF_KERNEL(gemv, "plain", "one row, or a strip of columns, after the other", forward, backward,
           .work = work);
