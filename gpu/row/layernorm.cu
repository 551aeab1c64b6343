/* layernorm: y = w (x - mean(x)) rstd + b.  The ladder of rmsnorm with CENTRED. */
#include "common/ops/norm.h"
#include "gpu/row/norm.cuh"

static const bool CENTRED = true;

static norm_call call_of(const struct frame *f)
{
    const struct layernorm *a = ARGS(f, layernorm), *d = GRADS(f, layernorm);
    norm_call p = {};

    p.n = 1;
    p.N = (int)DIM(f, 'N');
    p.inv_N = 1.0f / p.N;
    p.eps = (float)f->real[NORM_EPS];
    p.work = (float *)f->work;
    norm_rows &m = p.matrix[0];
    m.R = DIM(f, 'R');
    m.x = a->x, m.w = a->w, m.b = a->b, m.y = a->y;
    m.mean = (float *)a->mean, m.rstd = (float *)a->rstd;
    m.dy = d->y, m.dx = d->x, m.dw = (float *)d->w, m.db = (float *)d->b;
    return p;
}

NORM_OPERATION(layernorm);
