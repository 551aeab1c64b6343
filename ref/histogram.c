/* histogram: counts[k] = the number of x with floor(x M) = k, 0 <= x < 1. */
#include "common/ops/histogram.h"
#include "ref/ref.h"

/* Parts of x that are counted in parallel; all their counts are no more than x has elements. */
static int64_t parts(const struct call *f)
{
    int64_t n = DIM(f, 'N') / (DIM(f, 'M') + HISTOGRAM_KINDS);
    return n < 1 ? 1 : n < 64 ? n : 64;
}

/* floor(x M) of the exact product.  Rounding may have raised the product to an integer; then the
 * remainder by fma, which rounds once, is negative. */
static int64_t bin_of(double x, double M)
{
    double bin = floor(x * M);
    return (int64_t)bin - (fma(x, M, -bin) < 0);
}

/* Count x[from ... end) into `counts` [M + 3]: the bins, then the kinds. */
static void count(const num *x, int64_t from, int64_t end, int64_t M, int64_t *counts)
{
    for (int64_t k = 0; k < M + HISTOGRAM_KINDS; k++)
        counts[k] = 0;
    for (int64_t i = from; i < end; i++) {
        double xi = load(x[i]);
        if (xi >= 0 && xi < 1)
            counts[bin_of(xi, (double)M)]++;
        else
            counts[M + (xi < 0 ? HISTOGRAM_BELOW : xi >= 1 ? HISTOGRAM_ABOVE : HISTOGRAM_NAN)]++;
    }
}

static int forward(const struct call *f)
{
    const struct histogram *a = ARGS(f, histogram);
    int64_t N = DIM(f, 'N'), M = DIM(f, 'M'), all = M + HISTOGRAM_KINDS, P = parts(f);
    int64_t *counts = a->counts, *outside = a->outside, *work = f->work; /* [P,all] */

    #pragma omp parallel for
    for (int64_t p = 0; p < P; p++)
        count(a->x, N * p / P, N * (p + 1) / P, M, work + p * all);
    for (int64_t k = 0; k < all; k++) {
        int64_t sum = 0;
        for (int64_t p = 0; p < P; p++)
            sum += work[p * all + k];
        *(k < M ? &counts[k] : &outside[k - M]) = sum;
    }
    return 0;
}

static size_t work(const struct call *f, enum pass p)
{
    (void)p;
    return sizeof(int64_t) * parts(f) * (DIM(f, 'M') + HISTOGRAM_KINDS);
}

REF_KERNEL(histogram, "plain", "one element after the other, parts of x in parallel", forward, NULL,
           .work = work);
