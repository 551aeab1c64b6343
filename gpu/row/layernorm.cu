/* layernorm: y = w (x - mean(x)) rstd + b.  The kernels of rmsnorm with CENTRED = true. */
#include "gpu/row/norm_ladder.cuh"

static const bool CENTRED = true;

static norm_call call_of(const struct call *f)
{
    const struct layernorm *a = ARGS(f, layernorm), *d = GRADS(f, layernorm);
    norm_call p = one_matrix(f, a, d);
    norm_rows &m = p.matrix[0];
    m.b = a->b, m.mean = (float *)a->mean, m.db = (float *)d->b;
    return p;
}

NORM_OPERATION(layernorm);
