/* adamw: one step of Adam with decoupled weight decay; formulas in common/ops/adamw.h. */
#include "common/ops/adamw.h"
#include "ref/ref.h"

/* How far 1 - lr decay may be off, where a kernel multiplies all parameters by the float nearest to that:
 * below 1 this is off by half a unit. */
static real rest_off_by(real decay)
{
    return sums_in_float() && decay > 0 ? rounding_of(1 - decay) / 2 : 0;
}

/* 1 - beta, and corrections of the bias, are made in double: beta2 is so near to 1 that float
 * would have few digits of them. */
static int forward(const struct call *f)
{
    const struct adamw *a = ARGS(f, adamw);
    const num *p = a->p, *g = a->g;
    const real *m = a->m, *v = a->v, *master = a->master;
    num *p_next = a->p_next;
    real *m_next = a->m_next, *v_next = a->v_next, *master_next = a->master_next;
    int64_t N = DIM(f, 'N'), K = DIM(f, 'K'), step = DIM(f, 'S');
    double b1 = f->real[ADAMW_BETA1], b2 = f->real[ADAMW_BETA2];
    real beta1 = constant(b1), rest1 = constant(1 - b1);
    real beta2 = constant(b2), rest2 = constant(1 - b2);
    real unbias1 = constant(1 / (1 - pow(b1, step))), unbias2 = constant(1 / (1 - pow(b2, step)));
    real lr = constant(f->real[ADAMW_LR]), eps = constant(f->real[ADAMW_EPS]);

    for (int64_t k = 0; k < K; k++) {
        int decays = f->choice[ADAMW_DECAY] == DECAY_ALL || k % 2 == 0;
        real decay = decays ? f->real[ADAMW_WEIGHT_DECAY] : 0;
        const real off = rest_off_by(f->real[ADAMW_LR] * decay);
        #pragma omp parallel for
        for (int64_t i = adamw_begin(N, K, k); i < adamw_begin(N, K, k + 1); i++) {
            real gi = load(g[i]), pi = master ? master[i] : load(p[i]);
            m_next[i] = beta1 * m[i] + rest1 * gi;
            v_next[i] = beta2 * v[i] + rest2 * gi * gi;
            pi -= lr * (m_next[i] * unbias1 / (sqrt(v_next[i] * unbias2) + eps) + decay * pi);
            if (off != 0)
                pi += off * (master ? master[i] : load(p[i]));
            p_next[i] = store(pi);
            if (master)
                master_next[i] = pi;
        }
    }
    return 0;
}

REF_KERNEL(adamw, "plain", "the formula, tensor by tensor", forward, NULL);
