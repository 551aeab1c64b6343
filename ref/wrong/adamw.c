/* Kernels of adamw that are wrong (wrong.h). */
#include "common/ops/adamw.h"
#include "ref/wrong/wrong.h"

/* What a step is made of; the right one has none of these. */
struct way {
    int eps_inside;   /* the root */
    int eps_before;   /* the root's correction of the bias */
    int coupled;      /* the decay is added to the gradient, as Adam's */
    int late;         /* the decay is of the parameter after the step */
    int without_lr;   /* the decay is not times lr */
    int first_moment; /* v is the mean of |g| */
    int one_unbias;   /* v has the correction of m */
    int no_factor;
    int v_before_factor; /* v is multiplied by the factor once */
    int no_skip;
};

static real gradient(const struct call *f, const struct way *way, int64_t i)
{
    const struct adamw *a = ARGS(f, adamw);
    const real g =
        f->choice[ADAMW_GRAD] == GRAD_FP32 ? ((const real *)a->g)[i] : load(((const num *)a->g)[i]);
    return way->no_factor ? g : *(const real *)a->factor * g;
}

static int step(const struct call *f, const struct way *way)
{
    const struct adamw *a = ARGS(f, adamw);
    const num *p = a->p;
    const real *m = a->m, *v = a->v, *master = a->master;
    const int64_t N = DIM(f, 'N'), decayed = adamw_decayed(DIM(f, 'Y'), N);
    const double b1 = f->real[ADAMW_BETA1], b2 = f->real[ADAMW_BETA2];
    const real unbias1 = *(real *)a->unbias1, unbias2 = *(real *)a->unbias2;
    const real lr = *(real *)a->rate, eps = f->real[ADAMW_EPS];

    if (*(const int64_t *)a->skip && !way->no_skip)
        return right_forward(f);
    for (int64_t i = 0; i < N; i++) {
        const real decay = i < decayed ? f->real[ADAMW_WEIGHT_DECAY] : 0;
        real x = master ? master[i] : load(p[i]);
        const real g = gradient(f, way, i) + (way->coupled ? decay * x : 0);
        const real mi = (real)b1 * m[i] + (real)(1 - b1) * g;
        const real vi = (real)b2 * v[i] + (real)(1 - b2) * (way->first_moment ? fabs(g)
                                                            : way->v_before_factor
                                                                ? g * g / *(const real *)a->factor
                                                                : g * g);
        const real unbiased = vi * (way->one_unbias ? unbias1 : unbias2);
        const real root = way->eps_inside   ? sqrt(unbiased + eps)
                          : way->eps_before ? (sqrt(vi) + eps) * sqrt(unbias2)
                                            : sqrt(unbiased) + eps;
        const real move = lr * mi * unbias1 / root;
        const real part = way->coupled ? 0 : way->without_lr ? decay : lr * decay;
        x = way->late ? (x - move) * (1 - part) : x - move - part * x;
        ((real *)a->m_next)[i] = mi;
        ((real *)a->v_next)[i] = vi;
        ((num *)a->p_next)[i] = store(x);
        if (master)
            ((real *)a->master_next)[i] = x;
    }
    return 0;
}

static int biased(const struct call *f)
{
    struct call g = *f;
    real one = 1;

    g.arg[PLACE(adamw, unbias1)] = g.arg[PLACE(adamw, unbias2)] = &one;
    return right_forward(&g);
}

static int default_rate(const struct call *f)
{
    const real rate = 1e-3;
    return right_pass_with(f, FORWARD, PLACE(adamw, rate), &rate);
}

#define WRONG_STEP(id, what, ...)                                                                  \
    static int id##_step(const struct call *f)                                                     \
    {                                                                                              \
        return step(f, &(const struct way){__VA_ARGS__});                                          \
    }                                                                                              \
    WRONG_PASSES(id, what, id##_step, NULL)

WRONG_STEP(adamw_eps_inside, "eps is inside the root", .eps_inside = 1);
WRONG_STEP(adamw_eps_before, "eps is added before v's bias is corrected", .eps_before = 1);
WRONG_STEP(adamw_coupled, "the decay is added to the gradient, as in Adam with L2", .coupled = 1);
WRONG_STEP(adamw_late, "the decay is of the parameter after the step", .late = 1);
WRONG_STEP(adamw_decay_without_lr, "the decay is not times lr", .without_lr = 1);
WRONG_STEP(adamw_first_moment, "v is the mean of |g|", .first_moment = 1);
WRONG_STEP(adamw_one_unbias, "v's bias is corrected by beta1", .one_unbias = 1);
WRONG_STEP(adamw_no_factor, "the factor of clipping is left out", .no_factor = 1);
WRONG_STEP(adamw_v_before_factor, "v has the factor of clipping, not its square",
           .v_before_factor = 1);
WRONG_STEP(adamw_no_skip, "a step that is to be skipped is taken", .no_skip = 1);
WRONG_PASSES(adamw_biased, "the bias is not corrected", biased, NULL);
WRONG_PASSES(adamw_default_rate, "the rate is that of a step before, 1e-3", default_rate, NULL);
WRONG_CALL(adamw_no_decay, "the decay is left out", g.real[ADAMW_WEIGHT_DECAY] = 0);
WRONG_CALL(adamw_all_decay, "all parameters decay", DIM(&g, 'Y') = -1);
WRONG_CALL(adamw_decayed_short, "the last that decays does not",
           DIM(&g, 'Y') = adamw_decayed(DIM(f, 'Y'), DIM(f, 'N')) - 1);
WRONG_CALL(adamw_no_eps, "eps is left out", g.real[ADAMW_EPS] = 0);

/* m of what is between the parts. */
static int gap_written(const struct call *f)
{
    const int64_t N = DIM(f, 'N'), K = DIM(f, 'K');
    real *m = ARGS(f, adamw)->m_next;

    for (int64_t k = 0; k < K; k++)
        for (int64_t i = adamw_end(N, K, k); i < adamw_begin(N, K, k + 1); i++)
            m[i] = (real)1e-20;
    return 0;
}

WRONG_AFTER(adamw_gap, "what is between the parts does not stay 0", FORWARD, gap_written);

WRONG_KERNELS(adamw, &adamw_gap, &adamw_eps_inside, &adamw_eps_before, &adamw_coupled, &adamw_late,
              &adamw_decay_without_lr, &adamw_first_moment, &adamw_one_unbias, &adamw_no_factor,
              &adamw_v_before_factor, &adamw_no_skip, &adamw_biased, &adamw_default_rate,
              &adamw_no_decay, &adamw_all_decay, &adamw_decayed_short, &adamw_no_eps);
