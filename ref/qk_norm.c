/* qk_norm: rmsnorm of the query and of the key of each head. */
#include "ref/rmsnorm.h"

/* Heads are rows. */
static int64_t rows_q(const struct call *f)
{
    return DIM(f, 'B') * DIM(f, 'T') * DIM(f, 'H');
}

static int64_t rows_k(const struct call *f)
{
    return DIM(f, 'B') * DIM(f, 'T') * DIM(f, 'G');
}

/* The tensors, or gradients, of the norm of q, ... */
static struct rmsnorm norm_q(const struct qk_norm *a)
{
    return (struct rmsnorm){.x = a->q, .w = a->w_q, .y = a->y_q, .rstd = a->rstd_q};
}

/* ... and of the norm of k. */
static struct rmsnorm norm_k(const struct qk_norm *a)
{
    return (struct rmsnorm){.x = a->k, .w = a->w_k, .y = a->y_k, .rstd = a->rstd_k};
}

static int forward(const struct call *f)
{
    const struct qk_norm *a = ARGS(f, qk_norm);
    struct rmsnorm q = norm_q(a), k = norm_k(a);
    real eps = f->real[QK_NORM_EPS];

    rmsnorm_forward(&q, eps, rows_q(f), DIM(f, 'D'));
    rmsnorm_forward(&k, eps, rows_k(f), DIM(f, 'D'));
    return 0;
}

static int backward(const struct call *f)
{
    const struct qk_norm *a = ARGS(f, qk_norm), *d = GRADS(f, qk_norm);
    struct rmsnorm q = norm_q(a), k = norm_k(a), dq = norm_q(d), dk = norm_k(d);

    rmsnorm_backward(&q, &dq, rows_q(f), DIM(f, 'D'));
    rmsnorm_backward(&k, &dk, rows_k(f), DIM(f, 'D'));
    return 0;
}

REF_KERNEL(qk_norm, "plain", "rmsnorm of q's heads, then of k's", forward, backward);
