#include "ref/ref.h"
#include "common/ops/gemm.h"

/* A product of at most so many rows, columns and terms takes less time than a call of BLAS and
 * the threads that it has to wake: such a batch is shared out among threads product by product. */
enum { TINY = 16 };

static int tiny(const struct frame *f)
{
    return DIM(f, 'M') <= TINY && DIM(f, 'N') <= TINY && DIM(f, 'K') <= TINY;
}

static CBLAS_TRANSPOSE flipped(int yes)
{
    return yes ? CblasTrans : CblasNoTrans;
}

/* c [m,n] = alpha op(a) op(b) + beta c, op(a) [m,k], op(b) [k,n], each dense as it is stored. */
static void multiply(int flip_a, int flip_b, int64_t m, int64_t n, int64_t k, real alpha,
                     const real *a, const real *b, real beta, real *c)
{
    if (m > TINY || n > TINY || k > TINY) {
        product_in_panels(flipped(flip_a), flipped(flip_b), m, n, k, alpha, a, flip_a ? m : k, b,
                          flip_b ? k : n, beta, c, n);
        return;
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            real sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += a[flip_a ? l * m + i : i * k + l] * b[flip_b ? j * k + l : l * n + j];
            c[i * n + j] = alpha * sum + (beta != 0 ? beta * c[i * n + j] : 0);
        }
}

static int forward(const struct frame *f)
{
    const struct gemm *a = ARGS(f, gemm);
    int64_t G = DIM(f, 'G'), M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
    int ta = f->choice[GEMM_TRANSPOSE_A], tb = f->choice[GEMM_TRANSPOSE_B];
    real alpha = f->real[GEMM_ALPHA], beta = f->real[GEMM_BETA], *work = f->work;
    const real *A = widened(a->A, G * M * K, &work), *B = widened(a->B, G * K * N, &work);
    real *C = to_fill(a->C, G * M * N, &work);
    const num *C0 = a->C0;

    #pragma omp parallel for
    for (int64_t i = 0; i < G * M * N; i++)
        C[i] = C0 ? load(C0[i]) : 0;
    #pragma omp parallel for if (tiny(f))
    for (int64_t g = 0; g < G; g++)
        multiply(ta, tb, M, N, K, alpha, A + g * M * K, B + g * K * N, beta, C + g * M * N);
    filled(a->C, C, G * M * N);
    return 0;
}

static int backward(const struct frame *f)
{
    const struct gemm *a = ARGS(f, gemm), *d = GRADS(f, gemm);
    int64_t G = DIM(f, 'G'), M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
    int ta = f->choice[GEMM_TRANSPOSE_A], tb = f->choice[GEMM_TRANSPOSE_B];
    real alpha = f->real[GEMM_ALPHA], beta = f->real[GEMM_BETA], *work = f->work;
    const real *A = widened(a->A, G * M * K, &work), *B = widened(a->B, G * K * N, &work);
    const real *dC = widened(d->C, G * M * N, &work);
    real *dA = to_fill(d->A, G * M * K, &work), *dB = to_fill(d->B, G * K * N, &work);
    const num *given = d->C;
    num *dC0 = d->C0;
    int64_t n_C0 = dC0 ? G * M * N : 0;

    #pragma omp parallel for if (tiny(f))
    for (int64_t g = 0; g < G; g++) {
        const real *Ag = A + g * M * K, *Bg = B + g * K * N, *dCg = dC + g * M * N;
        if (ta) /* dA^T [K,M] = op(B) dC^T */
            multiply(tb, 1, K, M, N, alpha, Bg, dCg, 0, dA + g * M * K);
        else /* dA [M,K] = dC op(B)^T */
            multiply(0, !tb, M, K, N, alpha, dCg, Bg, 0, dA + g * M * K);
        if (tb) /* dB^T [N,K] = dC^T op(A) */
            multiply(1, ta, N, K, M, alpha, dCg, Ag, 0, dB + g * K * N);
        else /* dB [K,N] = op(A)^T dC */
            multiply(!ta, 0, K, N, M, alpha, Ag, dCg, 0, dB + g * K * N);
    }
    filled(d->A, dA, G * M * K);
    filled(d->B, dB, G * K * N);
    #pragma omp parallel for
    for (int64_t i = 0; i < n_C0; i++)
        dC0[i] = store(beta * load(given[i]));
    return 0;
}

static size_t work(const struct frame *f, enum pass p)
{
    int64_t G = DIM(f, 'G'), M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
    return COPIES * sizeof(real) * G *
           (p == FORWARD ? M * K + K * N + M * N : 2 * M * K + 2 * K * N + M * N);
}

static const char *declines(const struct frame *f)
{
    const char *why = too_long_for_blas(DIM(f, 'M'), DIM(f, 'N'));
    return why ? why : too_long_for_blas(DIM(f, 'K'), 1);
}

static const struct impl blas = {
    .name = "blas",
    .idea = "CBLAS products; plain loops where they are tiny",
    .pass = {forward, backward},
    .work = work,
    .declines = declines,
};
const struct impl *const REF(gemm)[] = {&blas, NULL};
const struct impl *const REF(gemm_splitk)[] = {&blas, NULL};
const struct impl *const REF(gemm_batched)[] = {&blas, NULL};
