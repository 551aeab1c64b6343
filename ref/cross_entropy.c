/* cross_entropy: loss = mean over rows of lse(logits) - logits[target], with label smoothing. */
#include "common/ops/cross_entropy.h"
#include "ref/ref.h"

/* The loss of a row x of V logits, from their maximum `top` and log_sum = log of the sum of
 * e^(x - top); t is not ignored. */
static real row_loss(const num *x, int64_t V, int64_t t, real smoothing, real top, real log_sum)
{
    real below = 0;

    if (t < 0 || t >= V)
        return NAN;
    for (int64_t j = 0; smoothing > 0 && j < V; j++)
        add_to(below, top - load_alike(x[j]));
    return log_sum + (1 - smoothing) * (top - load_alike(x[t])) +
           (smoothing > 0 ? smoothing * below / V : 0);
}

static int forward(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    const int64_t *target = a->target;
    int64_t R = DIM(f, 'R'), V = DIM(f, 'V'), ignored = DIM(f, 'I'), *count = a->count;
    real *losses = a->row_loss, *lse = a->lse, *loss = a->loss, total = 0;
    real *top = a->top, *sums = a->sum, smoothing = f->real[CROSS_SMOOTHING];

    #pragma omp parallel for
    for (int64_t r = 0; r < R; r++) {
        const num *x = (const num *)a->logits + r * V;
        real maximum = load_alike(x[0]), sum = 0;
        for (int64_t j = 1; j < V; j++)
            maximum = max_or_nan(load_alike(x[j]), maximum);
        FOR_SUM (j, V)
            add_to(sum, exp(load_alike(x[j]) - maximum));
        top[r] = maximum;
        sums[r] = sum;
        lse[r] = isinf(maximum) ? maximum : maximum + log(sum);
        losses[r] =
            target[r] == ignored ? 0 : row_loss(x, V, target[r], smoothing, maximum, log(sum));
    }
    *count = 0;
    FOR_SUM (r, R) {
        add_to(total, losses[r]);
        *count += target[r] != ignored;
    }
    *loss = *count ? total / *count : 0;
    return 0;
}

/* How far dL/dx may be off in float: `share` of the row's d is the mean's part, the three upstream gradients
 * may come back by ways of their own, and p may be e^(log p) where log p is stored. */
static real off_by(real share, real d, real dlse, real p, real q)
{
    return sums_in_float()
               ? rounding_of(share) * (p - q) + rounding_of(d * p) + rounding_of(dlse * p) +
                     (p > 0 ? (d + dlse) * p * rounding_of(log(p)) : 0)
               : 0;
}

/* The share of element j in the smoothed target. */
static real share_of(int64_t j, int64_t target, real smoothing, int64_t V)
{
    return (j == target ? 1 - smoothing : 0) + smoothing / V;
}

/* How far d, the factor of p, may be off in float: autograd has it as the sum of all d q, whose many equal
 * terms beside a large one drift. */
static real sum_off_by(real d, int64_t target, real smoothing, int64_t V)
{
    real sum = 0;

    if (!sums_in_float() || !(smoothing > 0))
        return 0;
    FOR_SUM (j, V)
        add_to(sum, (float)(d * share_of(j, target, smoothing, V)));
    return sum - d;
}

static int backward(const struct call *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy), *g = GRADS(f, cross_entropy);
    const int64_t *target = a->target, *count = a->count;
    int64_t R = DIM(f, 'R'), V = DIM(f, 'V');
    real smoothing = f->real[CROSS_SMOOTHING];
    const real *top = a->top, *sum = a->sum;
    const real *dloss = g->loss, *dlosses = g->row_loss, *dlse = g->lse;

    /* From p = softmax(x) and the smoothed target q. */
    #pragma omp parallel for
    for (int64_t r = 0; r < R; r++) {
        const num *x = (const num *)a->logits + r * V;
        num *dx = (num *)g->logits + r * V;
        const real share = target[r] == DIM(f, 'I') ? 0 : *dloss / *count;
        const real d = target[r] == DIM(f, 'I') ? 0 : share + dlosses[r];
        const real d_off = sum_off_by(d, target[r], smoothing, V);
        for (int64_t j = 0; j < V; j++) {
            real q = share_of(j, target[r], smoothing, V);
            real p = exp(load_alike(x[j]) - top[r]) / sum[r];
            const real slope = (d + dlse[r]) * p - d * q;
            dx[j] = store(sums_in_float() ? slope + d_off * p + off_by(share, d, dlse[r], p, q)
                                          : slope);
        }
    }
    return 0;
}

REF_KERNEL(cross_entropy, "plain", "one row after the other", forward, backward);
