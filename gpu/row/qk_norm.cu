/* qk_norm: the kernels of rmsnorm, applied to the heads of q and of k in one launch. */
#include "gpu/row/norm_ladder.cuh"

static const bool CENTRED = false;

static norm_call call_of(const struct call *f)
{
    const struct qk_norm *a = ARGS(f, qk_norm), *d = GRADS(f, qk_norm);
    const int64_t steps = DIM(f, 'B') * DIM(f, 'T');
    norm_call p = make_norm_call(f, 2, DIM(f, 'D'), f->real[QK_NORM_EPS]);
    norm_rows &q = p.matrix[0], &k = p.matrix[1];
    q.R = steps * DIM(f, 'H');
    q.x = a->q, q.w = a->w_q, q.y = a->y_q, q.rstd = (float *)a->rstd_q;
    q.dy = d->y_q, q.dx = d->q, q.dw = (float *)d->w_q;
    k.R = steps * DIM(f, 'G');
    k.x = a->k, k.w = a->w_k, k.y = a->y_k, k.rstd = (float *)a->rstd_k;
    k.dy = d->y_k, k.dx = d->k, k.dw = (float *)d->w_k;
    return p;
}

NORM_OPERATION(qk_norm);
