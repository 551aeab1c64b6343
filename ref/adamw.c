/* adamw: one step of Adam with decoupled weight decay; formulas in common/ops/adamw.h. */
#include "common/ops/adamw.h"
#include "ref/ref.h"

/* How far 1 - lr decay may be off, where a kernel multiplies all parameters by the float nearest to that:
 * below 1 this is off by half a unit. */
static real rest_off_by(real decay)
{
    return sums_in_float() && decay > 0 ? rounding_of(1 - decay) / 2 : 0;
}

static real gradient(const struct call *f, int64_t i)
{
    const void *g = ARGS(f, adamw)->g;
    return f->choice[ADAMW_GRAD] == GRAD_FP32 ? ((const real *)g)[i] : load(((const num *)g)[i]);
}

/* As it was, but for the rounding of a master copy. */
static int skip(const struct call *f)
{
    const struct adamw *a = ARGS(f, adamw);
    const real *master = a->master;
    const int64_t N = DIM(f, 'N');
    num *p_next = a->p_next;

    memmove(a->m_next, a->m, N * sizeof(real));
    memmove(a->v_next, a->v, N * sizeof(real));
    if (!master) {
        memmove(p_next, a->p, N * sizeof *p_next);
        return 0;
    }
    memmove(a->master_next, master, N * sizeof *master);
    for (int64_t i = 0; i < N; i++)
        p_next[i] = store(master[i]);
    return 0;
}

/* 1 - beta is made in double: beta2 is so near to 1 that float would have few digits of it. */
static int forward(const struct call *f)
{
    const struct adamw *a = ARGS(f, adamw);
    const num *p = a->p;
    const real *m = a->m, *v = a->v, *master = a->master;
    num *p_next = a->p_next;
    real *m_next = a->m_next, *v_next = a->v_next, *master_next = a->master_next;
    const int64_t N = DIM(f, 'N'), decayed = adamw_decayed(DIM(f, 'Y'), N);
    const double b1 = f->real[ADAMW_BETA1], b2 = f->real[ADAMW_BETA2];
    const real beta1 = constant(b1), rest1 = constant(1 - b1);
    const real beta2 = constant(b2), rest2 = constant(1 - b2);
    const real unbias1 = constant(*(real *)a->unbias1), unbias2 = constant(*(real *)a->unbias2);
    const real rate = constant(*(real *)a->rate), eps = constant(f->real[ADAMW_EPS]);
    const real factor = *(real *)a->factor, off = rest_off_by(rate * f->real[ADAMW_WEIGHT_DECAY]);

    if (*(const int64_t *)a->skip)
        return skip(f);
    #pragma omp parallel for
    for (int64_t i = 0; i < N; i++) {
        const real decay = i < decayed ? f->real[ADAMW_WEIGHT_DECAY] : 0;
        const real gi = factor * gradient(f, i), was = master ? master[i] : load(p[i]);
        m_next[i] = beta1 * m[i] + rest1 * gi;
        v_next[i] = beta2 * v[i] + rest2 * gi * gi;
        const real root = sqrt(v_next[i] * unbias2) + eps;
        const real pi = was - rate * (m_next[i] * unbias1 / root + decay * was) +
                        (i < decayed && off != 0 ? off * was : 0);
        p_next[i] = store(pi);
        if (master)
            master_next[i] = pi;
    }
    return 0;
}

REF_KERNEL(adamw, "plain", "the formula, element by element", forward, NULL);
