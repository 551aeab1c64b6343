#include "ref/ref.h"
#include "common/ops/cross_entropy.h"

/* The loss of a row x of V logits whose lse is known; t is not ignored. */
static real row_loss(const num *x, int64_t V, int64_t t, real smoothing, real lse)
{
    real sum = 0;

    if (t < 0 || t >= V)
        return NAN;
    for (int64_t j = 0; smoothing > 0 && j < V; j++)
        sum += load(x[j]);
    return lse - (1 - smoothing) * load(x[t]) - (smoothing > 0 ? smoothing * sum / V : 0);
}

static int forward(const struct frame *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy);
    const int64_t *target = a->target;
    int64_t R = DIM(f, 'R'), V = DIM(f, 'V'), ignored = DIM(f, 'I'), *count = a->count;
    real *losses = a->row_loss, *lse = a->lse, *loss = a->loss, sum = 0;

    #pragma omp parallel for
    for (int64_t r = 0; r < R; r++) {
        const num *x = (const num *)a->logits + r * V;
        real most = load(x[0]), powers = 0;
        for (int64_t j = 1; j < V; j++)
            most = load(x[j]) > most ? load(x[j]) : most;
        for (int64_t j = 0; j < V; j++)
            powers += exp(load(x[j]) - most);
        lse[r] = most + log(powers);
        losses[r] =
            target[r] == ignored ? 0 : row_loss(x, V, target[r], f->real[CROSS_SMOOTHING], lse[r]);
    }
    *count = 0;
    for (int64_t r = 0; r < R; r++) {
        sum += losses[r];
        *count += target[r] != ignored;
    }
    *loss = *count ? sum / *count : 0;
    return 0;
}

static int backward(const struct frame *f)
{
    const struct cross_entropy *a = ARGS(f, cross_entropy), *g = GRADS(f, cross_entropy);
    const int64_t *target = a->target, *count = a->count;
    int64_t R = DIM(f, 'R'), V = DIM(f, 'V');
    real smoothing = f->real[CROSS_SMOOTHING];
    const real *lse = a->lse, *dloss = g->loss, *dlosses = g->row_loss, *dlse = g->lse;

    #pragma omp parallel for
    for (int64_t r = 0; r < R; r++) {
        const num *x = (const num *)a->logits + r * V;
        num *dx = (num *)g->logits + r * V;
        real d = target[r] == DIM(f, 'I') ? 0 : *dloss / *count + dlosses[r];
        for (int64_t j = 0; j < V; j++) {
            real wanted = (j == target[r] ? 1 - smoothing : 0) + smoothing / V;
            dx[j] = store((d + dlse[r]) * exp(load(x[j]) - lse[r]) - d * wanted);
        }
    }
    return 0;
}

static const struct impl plain = {
    .name = "plain",
    .idea = "one row after the other",
    .pass = {forward, backward},
};
const struct impl *const REF(cross_entropy)[] = {&plain, NULL};
