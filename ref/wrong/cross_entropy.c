/* Kernels of cross_entropy that are wrong (wrong.h). */
#include "common/call/contract.h"
#include "common/ops/cross_entropy.h"
#include "ref/wrong/wrong.h"

static int is_ignored(const struct call *f, int64_t r)
{
    return ((const int64_t *)ARGS(f, cross_entropy)->target)[r] == DIM(f, 'I');
}

static int64_t rows(const struct call *f)
{
    return DIM(f, 'R');
}

WRONG_UNLESS(smoothed, f->real[CROSS_SMOOTHING] > 0, "no label smoothing")

/* ---- forward ---- */

static void mean_of_all_in(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    const real *losses = a->row_loss;
    real sum = 0;

    for (int64_t r = 0; r < rows(f); r++)
        sum += losses[r];
    *(real *)a->loss = sum / rows(f);
    *(int64_t *)a->count = rows(f);
}
WRONG_AFTER(cross_mean_of_all, "the mean is over all rows, ignored ones too", FORWARD,
            mean_of_all_in);

static void sum_of_all_in(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    *(real *)a->loss *= *(const int64_t *)a->count;
}
WRONG_AFTER(cross_sum, "the loss is the sum over the rows", FORWARD, sum_of_all_in);

/* The share of the other targets: smoothing / (V - 1) for each, and none for the target. */
static void smoothed_others_in(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    const int64_t V = DIM(f, 'V'), *target = a->target, count = *(const int64_t *)a->count;
    const real smoothing = f->real[CROSS_SMOOTHING], *lse = a->lse;
    real *losses = a->row_loss, sum = 0;

    for (int64_t r = 0; r < rows(f); r++) {
        const num *x = (const num *)a->logits + r * V;
        real others = 0;
        if (is_ignored(f, r) || target[r] < 0 || target[r] >= V)
            continue;
        for (int64_t j = 0; j < V; j++)
            others += j == target[r] ? 0 : lse[r] - load(x[j]);
        losses[r] = (1 - smoothing) * (lse[r] - load(x[target[r]])) +
                    (V > 1 ? smoothing * others / (V - 1) : 0);
    }
    for (int64_t r = 0; r < rows(f); r++)
        sum += losses[r];
    *(real *)a->loss = count ? sum / count : 0;
}
WRONG_AFTER(cross_smoothed_others, "label smoothing is shared by the other V - 1 targets", FORWARD,
            smoothed_others_in, .declines = smoothed);

WRONG_CALL(cross_smoothing_lost, "the loss has no label smoothing",
           g.real[CROSS_SMOOTHING] = p == FORWARD ? 0 : f->real[CROSS_SMOOTHING],
           .declines = smoothed);

static void without_maximum_in(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    const int64_t V = DIM(f, 'V');
    real *lse = a->lse;

    for (int64_t r = 0; r < rows(f); r++) {
        const num *x = (const num *)a->logits + r * V;
        real sum = 0;
        for (int64_t j = 0; j < V; j++)
            sum += exp(load(x[j]));
        lse[r] = log(sum);
    }
}
WRONG_AFTER(cross_without_maximum, "the maximum is not subtracted for lse", FORWARD,
            without_maximum_in);

/* ---- backward ---- */

static real probability(const struct call *f, int64_t r, int64_t j)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    const num *x = (const num *)a->logits + r * DIM(f, 'V');
    return exp(load(x[j]) - ((const real *)a->top)[r]) / ((const real *)a->sum)[r];
}

/* The gradient's factor that comes from the loss and row_loss. */
static real factor(const struct call *f, int64_t r, int64_t count)
{
    const struct cross_entropy *g = GRADS(f, cross_entropy);
    return *(const real *)g->loss / count + ((const real *)g->row_loss)[r];
}

/* dx += by p for each row that `which` says. */
static void add_softmax(const struct call *f, int (*which)(const struct call *f, int64_t r),
                        real (*by)(const struct call *f, int64_t r))
{
    const int64_t V = DIM(f, 'V');

    for (int64_t r = 0; r < rows(f); r++)
        for (int64_t j = 0; which(f, r) && j < V; j++) {
            num *dx = (num *)GRADS(f, cross_entropy)->logits + r * V + j;
            *dx = store(load(*dx) + by(f, r) * probability(f, r, j));
        }
}

static int is_counted(const struct call *f, int64_t r)
{
    return !is_ignored(f, r);
}

static real less_the_softmax(const struct call *f, int64_t r)
{
    const int64_t count = *(const int64_t *)ARGS(f, cross_entropy)->count;
    return -factor(f, r, count) - ((const real *)GRADS(f, cross_entropy)->lse)[r];
}

static void no_softmax_in(const struct call *f)
{
    add_softmax(f, is_counted, less_the_softmax);
}
WRONG_AFTER(cross_no_softmax_back, "d_logits has no softmax, the targets alone", BACKWARD,
            no_softmax_in);

static int any(const struct call *f, int64_t r)
{
    (void)f;
    (void)r;
    return 1;
}

static real less_dlse(const struct call *f, int64_t r)
{
    return -((const real *)GRADS(f, cross_entropy)->lse)[r];
}

static void no_dlse_in(const struct call *f)
{
    add_softmax(f, any, less_dlse);
}
WRONG_AFTER(cross_dlse_lost, "the gradient of lse is left out", BACKWARD, no_dlse_in);

static real as_if_counted(const struct call *f, int64_t r)
{
    const int64_t count = *(const int64_t *)ARGS(f, cross_entropy)->count;
    return factor(f, r, count ? count : 1);
}

static void ignored_in(const struct call *f)
{
    add_softmax(f, is_ignored, as_if_counted);
}
WRONG_AFTER(cross_ignored_rows_back, "ignored rows have a gradient", BACKWARD, ignored_in);

static int divided_by_rows(const struct call *f)
{
    int64_t count = rows(f);
    struct call g = *f;

    g.arg[PLACE(cross_entropy, count)] = &count;
    return right_backward(&g);
}
WRONG_PASSES(cross_rows_back, "d_logits is divided by the number of all rows", right_forward,
             divided_by_rows);

WRONG_KERNELS(cross_entropy, &cross_mean_of_all, &cross_sum, &cross_smoothed_others,
              &cross_smoothing_lost, &cross_without_maximum, &cross_no_softmax_back,
              &cross_dlse_lost, &cross_ignored_rows_back, &cross_rows_back);
