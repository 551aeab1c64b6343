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
};

static int step(const struct call *f, const struct way *way)
{
    const struct adamw *a = ARGS(f, adamw);
    const num *p = a->p, *grad = a->g;
    const real *m = a->m, *v = a->v, *master = a->master;
    const int64_t N = DIM(f, 'N'), K = DIM(f, 'K'), t = DIM(f, 'S');
    const double b1 = f->real[ADAMW_BETA1], b2 = f->real[ADAMW_BETA2];
    const real unbias1 = 1 / (1 - pow(b1, t)), unbias2 = 1 / (1 - pow(b2, t));
    const real lr = f->real[ADAMW_LR], eps = f->real[ADAMW_EPS];

    for (int64_t k = 0; k < K; k++) {
        const int decays = f->choice[ADAMW_DECAY] == DECAY_ALL || k % 2 == 0;
        const real decay = decays ? f->real[ADAMW_WEIGHT_DECAY] : 0;
        for (int64_t i = adamw_begin(N, K, k); i < adamw_begin(N, K, k + 1); i++) {
            real x = master ? master[i] : load(p[i]);
            const real g = load(grad[i]) + (way->coupled ? decay * x : 0);
            const real mi = (real)b1 * m[i] + (real)(1 - b1) * g;
            const real vi =
                (real)b2 * v[i] + (real)(1 - b2) * (way->first_moment ? fabs(g) : g * g);
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
    }
    return 0;
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
WRONG_CALL(adamw_biased, "the bias is not corrected", DIM(&g, 'S') = 1 << 30);
WRONG_CALL(adamw_step_from_0, "the step counts one too many", DIM(&g, 'S')++);
WRONG_CALL(adamw_no_decay, "the decay is left out", g.real[ADAMW_WEIGHT_DECAY] = 0);
WRONG_CALL(adamw_all_decay, "all tensors decay", g.choice[ADAMW_DECAY] = DECAY_ALL);
WRONG_CALL(adamw_no_eps, "eps is left out", g.real[ADAMW_EPS] = 0);

WRONG_KERNELS(adamw, &adamw_eps_inside, &adamw_eps_before, &adamw_coupled, &adamw_late,
              &adamw_decay_without_lr, &adamw_first_moment, &adamw_one_unbias, &adamw_biased,
              &adamw_step_from_0, &adamw_no_decay, &adamw_all_decay, &adamw_no_eps);
