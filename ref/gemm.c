/* gemm, gemm_batched, gemm_splitk: C = alpha op(A) op(B) + beta C0. */
#include "common/ops/gemm.h"
#include "ref/ref.h"

/* A product of at most so many rows, columns and terms takes less time than a call of BLAS and
 * waking its threads: the products of such a batch are divided among threads. */
enum { TINY = 16 };

static int tiny(const struct call *f)
{
    return DIM(f, 'M') <= TINY && DIM(f, 'N') <= TINY && DIM(f, 'K') <= TINY;
}

static real element(struct matrix X, int64_t i, int64_t j)
{
    return X.at[X.op == CblasTrans ? j * X.ld + i : i * X.ld + j];
}

/* C = alpha A B + beta C, C dense. */
static void multiply(real alpha, struct matrix A, struct matrix B, real beta, real *C)
{
    int64_t M = A.rows, N = B.columns, K = A.columns;

    if (M > TINY || N > TINY || K > TINY) {
        product_in_panels(alpha, A, B, beta, C);
        return;
    }
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            real sum = 0;
            FOR_SUM (l, K)
                add_to(sum, element(A, i, l) * element(B, l, j));
            C[i * N + j] = alpha * sum + (beta != 0 ? beta * C[i * N + j] : 0);
        }
}

/* op(X) [rows,columns] of the X that is stored at `at`, dense. */
static struct matrix operand(const real *at, int64_t rows, int64_t columns, int transpose)
{
    return transpose ? transposed(matrix(at, columns, rows)) : matrix(at, rows, columns);
}

/* C = alpha C + beta C0 of a product in C, as composed operators have it, which store each term. */
static void add_terms(const struct call *f, real *C, const num *C0, int64_t n)
{
    const real alpha = f->real[GEMM_ALPHA], beta = f->real[GEMM_BETA];

    for (int64_t i = 0; i < n; i++)
        C[i] = site(GEMM_AT_TERM, alpha * site(GEMM_AT_TERM, C[i])) +
               (C0 ? site(GEMM_AT_TERM, beta * load(C0[i])) : 0);
}

/* Is it a composition, which stores more than the results? */
static int is_composed(const struct call *f)
{
    const real alpha = f->real[GEMM_ALPHA];
    return alpha != 0 && (alpha != 1 || f->real[GEMM_BETA] != 0);
}

static int forward(const struct call *f)
{
    const struct gemm *a = ARGS(f, gemm);
    int64_t G = DIM(f, 'G'), M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
    int ta = f->choice[GEMM_TRANSPOSE_A], tb = f->choice[GEMM_TRANSPOSE_B];
    real alpha = f->real[GEMM_ALPHA], beta = f->real[GEMM_BETA], *work = f->work;
    const real *A = widened(a->A, G * M * K, &work), *B = widened(a->B, G * K * N, &work);
    real *C = to_fill(a->C, G * M * N, &work);
    const num *C0 = a->C0;
    const int composed = at_site(GEMM_AT_TERM) && is_composed(f);

    #pragma omp parallel for
    for (int64_t i = 0; i < G * M * N; i++)
        C[i] = C0 ? load(C0[i]) : 0;
    #pragma omp parallel for if (tiny(f))
    for (int64_t g = 0; g < G; g++)
        multiply(composed ? 1 : alpha, operand(A + g * M * K, M, K, ta),
                 operand(B + g * K * N, K, N, tb), composed ? 0 : beta, C + g * M * N);
    if (composed)
        add_terms(f, C, C0, G * M * N);
    filled(a->C, C, G * M * N);
    return 0;
}

static int backward(const struct call *f)
{
    const struct gemm *a = ARGS(f, gemm), *d = GRADS(f, gemm);
    int64_t G = DIM(f, 'G'), M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
    int ta = f->choice[GEMM_TRANSPOSE_A], tb = f->choice[GEMM_TRANSPOSE_B];
    real alpha = f->real[GEMM_ALPHA], beta = f->real[GEMM_BETA], *work = f->work;
    const real *A = widened(a->A, G * M * K, &work), *B = widened(a->B, G * K * N, &work);
    const real *dC = widened(d->C, G * M * N, &work);
    const int composed = at_site(GEMM_AT_DTERM) && is_composed(f);
    real *dterm = composed ? scaled_at_site(GEMM_AT_DTERM, alpha, d->C, G * M * N) : NULL;
    real *dA = to_fill(d->A, G * M * K, &work), *dB = to_fill(d->B, G * K * N, &work);
    const num *given = d->C;
    num *dC0 = d->C0;
    int64_t n_C0 = dC0 ? G * M * N : 0;

    if (composed && !dterm)
        return -1;
    #pragma omp parallel for if (tiny(f))
    for (int64_t g = 0; g < G; g++) {
        struct matrix op_A = operand(A + g * M * K, M, K, ta);
        struct matrix op_B = operand(B + g * K * N, K, N, tb);
        struct matrix dC_g = matrix((dterm ? dterm : dC) + g * M * N, M, N);
        if (ta) /* dA [K,M] = op(B) dC^T */
            multiply(alpha, op_B, transposed(dC_g), 0, dA + g * M * K);
        else /* dA [M,K] = dC op(B)^T */
            multiply(alpha, dC_g, transposed(op_B), 0, dA + g * M * K);
        if (tb) /* dB [N,K] = dC^T op(A) */
            multiply(alpha, transposed(dC_g), op_A, 0, dB + g * K * N);
        else /* dB [K,N] = op(A)^T dC */
            multiply(alpha, transposed(op_A), dC_g, 0, dB + g * K * N);
    }
    free(dterm);
    filled(d->A, dA, G * M * K);
    filled(d->B, dB, G * K * N);
    #pragma omp parallel for
    for (int64_t i = 0; i < n_C0; i++)
        dC0[i] = store(beta * load(given[i]));
    return 0;
}

static size_t work(const struct call *f, enum pass p)
{
    int64_t G = DIM(f, 'G'), M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
    return COPIES * sizeof(real) * G *
           (p == FORWARD ? M * K + K * N + M * N : 2 * M * K + 2 * K * N + M * N);
}

static const char *declines(const struct call *f)
{
    const char *why = too_long_for_blas(DIM(f, 'M'), DIM(f, 'N'));
    return why ? why : too_long_for_blas(DIM(f, 'K'), 1);
}

REF_KERNEL(gemm, "blas", "CBLAS products; plain loops where they are tiny", forward, backward,
           .work = work, .declines = declines);
REF_KERNEL(gemm_splitk, "blas", "CBLAS products; plain loops where they are tiny", forward,
           backward, .work = work, .declines = declines);
REF_KERNEL(gemm_batched, "blas", "CBLAS products; plain loops where they are tiny", forward,
           backward, .work = work, .declines = declines);
