/* reduce: the sum, maximum, mean or norm of each row, or of all of x. */
#include "common/ops/reduce.h"
#include "ref/ref.h"

/* y has R elements, each computed from N of x. */
static void shape(const struct call *f, int64_t *R, int64_t *N)
{
    int all = f->choice[REDUCE_OVER] == REDUCE_ALL;
    *R = all ? 1 : DIM(f, 'R');
    *N = all ? DIM(f, 'R') * DIM(f, 'N') : DIM(f, 'N');
}

/* By halves: no sum is the result of a long chain of additions. */
static real sum(const num *x, int64_t n, int squared)
{
    enum { CHAIN = 1024 };
    real s = 0;

    if (n > CHAIN && REF(noise).order == AS_BUILT)
        return sum(x, n / 2, squared) + sum(x + n / 2, n - n / 2, squared);
    FOR_SUM (i, n)
        add_to(s, squared ? load(x[i]) * load(x[i]) : load(x[i]));
    return s;
}

static int64_t first_largest(const num *x, int64_t n)
{
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        if (!isnan(load(x[at])) && !(load(x[i]) <= load(x[at])))
            at = i;
    return at;
}

static int forward(const struct call *f)
{
    const struct reduce *a = ARGS(f, reduce);
    const num *x = a->x;
    num *y = a->y;
    int64_t *at = a->at, R, N;

    shape(f, &R, &N);
    #pragma omp parallel for
    for (int64_t r = 0; r < R; r++) {
        const num *row = x + r * N;
        switch (f->choice[REDUCE_KIND]) {
        case REDUCE_SUM: y[r] = store(sum(row, N, 0)); break;
        case REDUCE_MEAN: y[r] = store(sum(row, N, 0) / constant((real)N)); break;
        case REDUCE_NORM2: y[r] = store(sqrt(sum(row, N, 1))); break;
        case REDUCE_MAX:
            at[r] = first_largest(row, N);
            y[r] = row[at[r]];
            break;
        }
    }
    return 0;
}

static int backward(const struct call *f)
{
    const struct reduce *a = ARGS(f, reduce), *g = GRADS(f, reduce);
    const num *x = a->x, *y = a->y, *dy = g->y;
    num *dx = g->x;
    const int64_t *at = a->at;
    int64_t R, N;

    shape(f, &R, &N);
    #pragma omp parallel for
    for (int64_t r = 0; r < R; r++) {
        const int norm2 = f->choice[REDUCE_KIND] == REDUCE_NORM2; /* else y is not there */
        const real d = load(dy[r]), length = norm2 ? load(y[r]) : 0;
        for (int64_t i = r * N; i < (r + 1) * N; i++) {
            switch (f->choice[REDUCE_KIND]) {
            case REDUCE_SUM: dx[i] = store(d); break;
            case REDUCE_MEAN: dx[i] = store(d / N); break;
            case REDUCE_NORM2: dx[i] = store(length == 0 ? 0 : d * load(x[i]) / length); break;
            case REDUCE_MAX: dx[i] = store(i == r * N + at[r] ? d : 0); break;
            }
        }
    }
    return 0;
}

REF_KERNEL(reduce, "pairwise", "row by row, sums by halves", forward, backward);
