/* Kernels of softmax and entmax15 that are wrong (wrong.h). */
#include "common/ops/entmax15.h"
#include "common/ops/softmax.h"
#include "ref/entmax15.h"
#include "ref/wrong/wrong.h"

/* ---- softmax ---- */

/* How the rows of a softmax are made. */
struct way {
    int without_maximum;
    int64_t columns; /* in the sum; more than there are: they count as 0 */
    real least;      /* y below it becomes 0 */
};

static int softmax_rows(const struct call *f, const struct way *way)
{
    const struct softmax *a = ARGS(f, softmax);
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N'), M = way->columns;
    const real scale = f->real[SOFTMAX_SCALE];

    for (int64_t r = 0; r < R; r++) {
        const num *x = (const num *)a->x + r * N;
        num *y = (num *)a->y + r * N;
        real top = load(x[0]), sum = 0;
        for (int64_t j = 1; j < N; j++)
            top = max_or_nan(load(x[j]), top);
        top = way->without_maximum ? 0 : top;
        for (int64_t j = 0; j < M; j++)
            sum += exp(scale * ((j < N ? load(x[j]) : 0) - top));
        for (int64_t j = 0; j < N; j++) {
            const real p = exp(scale * (load(x[j]) - top)) / sum;
            y[j] = store(p < way->least ? 0 : p);
        }
    }
    return 0;
}

static int without_maximum(const struct call *f)
{
    return softmax_rows(f, &(const struct way){1, DIM(f, 'N'), 0});
}
WRONG_PASSES(softmax_without_maximum, "the maximum is not subtracted", without_maximum,
             right_backward);

static int with_padding(const struct call *f)
{
    return softmax_rows(f, &(const struct way){0, (DIM(f, 'N') + 7) / 8 * 8, 0});
}
WRONG_PASSES(softmax_padding_counts, "zeros that fill the row up to a multiple of 8 are in the sum",
             with_padding, right_backward);

static int without_tail(const struct call *f)
{
    return softmax_rows(f, &(const struct way){0, whole(DIM(f, 'N'), 8), 0});
}
WRONG_PASSES(softmax_tail_lost, "columns behind the last multiple of 8 are not in the sum",
             without_tail, right_backward);

static int without_small(const struct call *f)
{
    return softmax_rows(f, &(const struct way){0, DIM(f, 'N'), (real)1e-3});
}
WRONG_PASSES(softmax_small_lost, "probabilities below 1e-3 are 0", without_small, right_backward);

static void softmax_masked_in(const struct call *f)
{
    num *y = ARGS(f, softmax)->y;
    for (int64_t i = 0; i < DIM(f, 'R') * DIM(f, 'N'); i++)
        y[i] = isnan(load(y[i])) ? store(0) : y[i];
}
WRONG_AFTER(softmax_masked_row, "a row that is all masked is 0, and so is NaN", FORWARD,
            softmax_masked_in);

WRONG_CALL(softmax_scale_lost_back, "dx has no scale",
           g.real[SOFTMAX_SCALE] = p == BACKWARD ? 1 : f->real[SOFTMAX_SCALE]);

static void softmax_no_dot_in(const struct call *f)
{
    const num *y = ARGS(f, softmax)->y, *dy = GRADS(f, softmax)->y;
    num *dx = GRADS(f, softmax)->x;
    for (int64_t i = 0; i < DIM(f, 'R') * DIM(f, 'N'); i++)
        dx[i] = store((real)f->real[SOFTMAX_SCALE] * load(y[i]) * load(dy[i]));
}
WRONG_AFTER(softmax_sum_is_constant, "dx takes the sum for a constant", BACKWARD,
            softmax_no_dot_in);

WRONG_KERNELS(softmax, &softmax_without_maximum, &softmax_padding_counts, &softmax_tail_lost,
              &softmax_small_lost, &softmax_masked_row, &softmax_scale_lost_back,
              &softmax_sum_is_constant);

/* ---- entmax15 ---- */

/* A row that is changed, the right entmax of it, and the changes to that. */
static int entmax_rows(const struct call *f, void (*rows)(real *p, const real *a, int64_t N))
{
    const struct entmax15 *a = ARGS(f, entmax15);
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');

    for (int64_t r = 0; r < R; r++) {
        real row[ENTMAX15_MAX_COLUMNS], p[ENTMAX15_MAX_COLUMNS];
        for (int64_t j = 0; j < N; j++)
            row[j] = load(((const num *)a->x)[r * N + j]);
        rows(p, row, N);
        for (int64_t j = 0; j < N; j++)
            ((num *)a->p)[r * N + j] = store(p[j]);
    }
    return 0;
}

/* tau by halving an interval so many times. */
static void bisected(real *p, const real *a, int64_t N)
{
    enum { HALVINGS = 8 };
    real top = a[0], sum;

    for (int64_t j = 1; j < N; j++)
        top = max_or_nan(a[j], top);
    real low = top / 2 - 1, width = 1;
    for (int k = 0; k < HALVINGS; k++) {
        width /= 2;
        sum = 0;
        for (int64_t j = 0; j < N; j++) {
            const real over = max_or_nan(a[j] / 2 - (low + width), 0);
            sum += over * over;
        }
        low += sum >= 1 ? width : 0;
    }
    for (int64_t j = 0; j < N; j++) {
        const real over = max_or_nan(a[j] / 2 - low, 0);
        p[j] = over * over;
    }
}

static int entmax_bisected(const struct call *f)
{
    return entmax_rows(f, bisected);
}
WRONG_PASSES(entmax_few_halvings, "tau is found by 8 halvings", entmax_bisected, right_backward);

static void not_halved(real *p, const real *a, int64_t N)
{
    real twice[ENTMAX15_MAX_COLUMNS];
    for (int64_t j = 0; j < N; j++)
        twice[j] = 2 * a[j];
    REF(entmax15_row)(p, twice, N);
}

static int entmax_not_halved(const struct call *f)
{
    return entmax_rows(f, not_halved);
}
WRONG_PASSES(entmax_x_not_halved, "p = (x - tau)^2, x not halved", entmax_not_halved,
             right_backward);

/* dx_j = p_j (d_j - sum p d / sum p), as softmax has it. */
static void entmax_back_in(const struct call *f)
{
    const struct entmax15 *a = ARGS(f, entmax15), *g = GRADS(f, entmax15);
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');

    for (int64_t r = 0; r < R; r++) {
        const num *p = (const num *)a->p + r * N, *d = (const num *)g->p + r * N;
        num *dx = (num *)g->x + r * N;
        real dot_pd = 0;
        for (int64_t j = 0; j < N; j++)
            dot_pd += load(p[j]) * load(d[j]);
        for (int64_t j = 0; j < N; j++)
            dx[j] = store(load(p[j]) * (load(d[j]) - dot_pd));
    }
}
WRONG_AFTER(entmax_gradient_of_softmax, "dx is that of a softmax with these p", BACKWARD,
            entmax_back_in);

WRONG_KERNELS(entmax15, &entmax_few_halvings, &entmax_x_not_halved, &entmax_gradient_of_softmax);
