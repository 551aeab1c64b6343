/* entmax15: p_j = [x_j/2 - tau]_+^2; tau from the sorted row. */
#include "common/ops/entmax15.h"
#include "ref/entmax15.h"

static int descending(const void *a, const void *b)
{
    real x = *(const real *)a, y = *(const real *)b;
    return (x < y) - (x > y);
}

/* The k largest of u = a/2 are in the support, for the largest k whose tau they all reach.  The tau
 * of the largest alone is 1 below it, and that of more is higher, so the sums stop at the first
 * element that is further below, or -inf.  tau is NaN where the largest is. */
void REF(entmax15_row)(real *p, const real *a, int64_t n)
{
    real sum = 0, squares = 0, threshold = NAN, maximum = a[0];

    memcpy(p, a, n * sizeof *p);
    qsort(p, n, sizeof *p, descending);
    for (int64_t i = 1; i < n; i++)
        maximum = max_or_nan(a[i], maximum);
    for (int64_t k = 1; k <= n; k++) {
        real u = (p[k - 1] - maximum) / 2; /* from the largest on, which changes no p */
        if (!(u > -1))
            break;
        add_to(sum, u);
        add_to(squares, u * u);
        real mean = sum / k, spread = squares - sum * mean;
        real under = (1 - spread) / k, tau = mean - sqrt(under > 0 ? under : 0);
        if (tau <= u)
            threshold = tau;
    }
    for (int64_t i = 0; i < n; i++) {
        real over = max_or_nan((a[i] - maximum) / 2 - threshold, 0);
        p[i] = over * over;
    }
}

void REF(entmax15_row_back)(const real *p, real *d, int64_t n)
{
    real dot_gd = 0, sum = 0; /* g = sqrt(p) */

    for (int64_t i = 0; i < n; i++) {
        add_to(dot_gd, sqrt(p[i]) * d[i]);
        add_to(sum, sqrt(p[i]));
    }
    for (int64_t i = 0; i < n; i++)
        d[i] = sqrt(p[i]) * (d[i] - dot_gd / sum);
}

static int forward(const struct call *f)
{
    const struct entmax15 *a = ARGS(f, entmax15);
    int64_t R = DIM(f, 'R'), N = DIM(f, 'N');

    #pragma omp parallel for
    for (int64_t r = 0; r < R; r++) {
        const num *x = (const num *)a->x + r * N;
        num *to = (num *)a->p + r * N;
        real row[ENTMAX15_MAX_COLUMNS], p[ENTMAX15_MAX_COLUMNS];
        for (int64_t j = 0; j < N; j++)
            row[j] = load(x[j]);
        REF(entmax15_row)(p, row, N);
        for (int64_t j = 0; j < N; j++)
            to[j] = store(p[j]);
    }
    return 0;
}

static int backward(const struct call *f)
{
    const struct entmax15 *a = ARGS(f, entmax15), *g = GRADS(f, entmax15);
    int64_t R = DIM(f, 'R'), N = DIM(f, 'N');

    #pragma omp parallel for
    for (int64_t r = 0; r < R; r++) {
        const num *from = (const num *)a->p + r * N, *dp = (const num *)g->p + r * N;
        num *dx = (num *)g->x + r * N;
        real p[ENTMAX15_MAX_COLUMNS], d[ENTMAX15_MAX_COLUMNS];
        for (int64_t j = 0; j < N; j++) {
            p[j] = load(from[j]);
            d[j] = load(dp[j]);
        }
        REF(entmax15_row_back)(p, d, N);
        for (int64_t j = 0; j < N; j++)
            dx[j] = store(d[j]);
    }
    return 0;
}

REF_KERNEL(entmax15, "sort", "each row sorted, one after the other", forward, backward);
