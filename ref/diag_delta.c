/* diag_delta: s[t] = tanh((1 - k^2) s[t-1] + k v), y = q s; backward from the last step on. */
#include "common/ops/diag_delta.h"
#include "ref/ref.h"

static int forward(const struct call *f)
{
    const struct diag_delta *a = ARGS(f, diag_delta);
    const num *k = a->k, *v = a->v, *q = a->q;
    const real *s0 = a->s0;
    real *s = a->s;
    num *y = a->y;
    int64_t B = DIM(f, 'B'), T = DIM(f, 'T'), N = DIM(f, 'N');

    #pragma omp parallel for collapse(2)
    for (int64_t b = 0; b < B; b++) {
        for (int64_t n = 0; n < N; n++) {
            real state = s0[b * N + n];
            for (int64_t t = 0; t < T; t++) {
                int64_t i = (b * T + t) * N + n;
                real kt = load(k[i]);
                state = tanh((1 - kt * kt) * state + kt * load(v[i]));
                s[i] = state;
                y[i] = store(load(q[i]) * state);
            }
        }
    }
    return 0;
}

static int backward(const struct call *f)
{
    const struct diag_delta *a = ARGS(f, diag_delta), *g = GRADS(f, diag_delta);
    const num *k = a->k, *v = a->v, *q = a->q, *dy = g->y;
    const real *s0 = a->s0, *s = a->s;
    num *dk = g->k, *dv = g->v, *dq = g->q;
    real *ds0 = g->s0;
    int64_t B = DIM(f, 'B'), T = DIM(f, 'T'), N = DIM(f, 'N');

    #pragma omp parallel for collapse(2)
    for (int64_t b = 0; b < B; b++) {
        for (int64_t n = 0; n < N; n++) {
            real ds = 0; /* gradient of the state after step t */
            for (int64_t t = T - 1; t >= 0; t--) {
                int64_t i = (b * T + t) * N + n;
                real before = t > 0 ? s[i - N] : s0[b * N + n];
                real kt = load(k[i]), dyt = load(dy[i]);

                dq[i] = store(dyt * s[i]);
                add_to(ds, dyt * load(q[i]));
                real da = ds * (1 - s[i] * s[i]); /* through the tanh */
                dv[i] = store(da * kt);
                dk[i] = store(da * (load(v[i]) - 2 * kt * before));
                ds = da * (1 - kt * kt);
            }
            ds0[b * N + n] = ds;
        }
    }
    return 0;
}

REF_KERNEL(diag_delta, "plain", "one cell after the other", forward, backward);
