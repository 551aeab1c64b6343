#include "ref/rmsnorm.h"
#include "common/ops/norm.h"

/* Heads are rows: of q so many, ... */
static int64_t rows_q(const struct frame *f)
{
    return DIM(f, 'B') * DIM(f, 'T') * DIM(f, 'H');
}

/* ... and of k. */
static int64_t rows_k(const struct frame *f)
{
    return DIM(f, 'B') * DIM(f, 'T') * DIM(f, 'G');
}

static int forward(const struct frame *f)
{
    const struct qk_norm *a = ARGS(f, qk_norm);
    real eps = f->real[QK_NORM_EPS];
    rmsnorm_forward(a->q, a->w_q, eps, a->y_q, a->rstd_q, rows_q(f), DIM(f, 'D'));
    rmsnorm_forward(a->k, a->w_k, eps, a->y_k, a->rstd_k, rows_k(f), DIM(f, 'D'));
    return 0;
}

static int backward(const struct frame *f)
{
    const struct qk_norm *a = ARGS(f, qk_norm), *d = GRADS(f, qk_norm);
    rmsnorm_backward(a->q, a->w_q, a->rstd_q, d->y_q, d->q, d->w_q, rows_q(f), DIM(f, 'D'));
    rmsnorm_backward(a->k, a->w_k, a->rstd_k, d->y_k, d->k, d->w_k, rows_k(f), DIM(f, 'D'));
    return 0;
}

static const struct impl plain = {
    .name = "plain",
    .idea = "rmsnorm of q's heads, then of k's",
    .pass = {forward, backward},
};
const struct impl *const REF(qk_norm)[] = {&plain, NULL};
