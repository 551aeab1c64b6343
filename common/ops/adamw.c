/* The contract of adamw: sizes, tensors, costs, cases with known results. */
#include <math.h>

#include "common/call/contract.h"
#include "common/ops/adamw.h"

static const char *const decays[] = {"all", "alternate", NULL};

static const char *const fills[] = {"normal", "tiny", NULL};

static const struct param params[] = {
    [ADAMW_N] = SIZE_PARAM("parameters", 'N', 1 << 20, "parameters in all"),
    [ADAMW_TENSORS] =
        WHOLE_PARAM("tensors", 'K', 1, 1, ADAMW_MAX_TENSORS, "tensors that they form"),
    [ADAMW_STEP] =
        SIZE_PARAM("step", 'S', 1, "number of this step, from 1: for the bias correction"),
    [ADAMW_DECAY] = CHOICE_PARAM("decay", decays, DECAY_ALL, "which tensors decay"),
    [ADAMW_MASTER] = CHOICE_PARAM("master", no_yes, 0, "a copy of the parameters in full"),
    [ADAMW_LR] = REAL_PARAM("lr", 1e-3, 0, 1e3, "learning rate"),
    [ADAMW_BETA1] = REAL_PARAM("beta1", 0.9, 0, 0.999999, "decay rate of m"),
    [ADAMW_BETA2] = REAL_PARAM("beta2", 0.999, 0, 0.999999, "decay rate of v"),
    [ADAMW_EPS] = REAL_PARAM("eps", 1e-8, 1e-30, 1e3, "added to the root of v"),
    [ADAMW_WEIGHT_DECAY] = REAL_PARAM("weight_decay", 0.01, 0, 1e3, "decay of p, times lr"),
    [ADAMW_FILL] =
        DRAW_PARAM("fill", fills, 0, "how g, m and v are drawn: N(0, 1), or mostly small"),
};

OF_CALL(int, has_master, f->choice[ADAMW_MASTER])
OF_CALL(int, no_master, !has_master(f))

/* Tiny ones show eps: elements are N(0, 1) times 1e-8, 1, 1e-3 and 1e-12. */
static double draw(const struct call *f, uint64_t key, int64_t i)
{
    static const double size[] = {1e-8, 1, 1e-3, 1e-12};
    return draw_normal(key, i) * (f->choice[ADAMW_FILL] ? size[i % COUNT(size)] : 1);
}

static void draw_g(const struct call *f, int arg, uint64_t key, double *x)
{
    const int64_t N = op_count(f, arg);

    #pragma omp parallel for
    for (int64_t i = 0; i < N; i++)
        x[i] = draw(f, key, i);
}

/* A mean of squares is not negative. */
static void draw_v(const struct call *f, int arg, uint64_t key, double *v)
{
    const int64_t N = op_count(f, arg);

    #pragma omp parallel for
    for (int64_t i = 0; i < N; i++)
        v[i] = pow(draw(f, key, i), 2);
}

static const struct arg args[] = {
    ARG(adamw, p, "N", IN | PARAMETER, NORMAL, .when = no_master),
    ARG(adamw, g, "N", IN, .draw = draw_g),
    ARG(adamw, m, "N", IN | WIDE, .draw = draw_g),
    ARG(adamw, v, "N", IN | WIDE, .draw = draw_v),
    ARG(adamw, master, "N", IN | WIDE | PARAMETER, NORMAL, .when = has_master),
    ARG(adamw, p_next, "N", OUT, .overwrites = "p"),
    ARG(adamw, m_next, "N", OUT | WIDE, .overwrites = "m"),
    ARG(adamw, v_next, "N", OUT | WIDE, .overwrites = "v"),
    ARG(adamw, master_next, "N", OUT | WIDE, .when = has_master, .overwrites = "master"),
};

COST(flops, "N", 14, 0)

/* A root and a reciprocal. */
COST(specials, "N", 2, 0)

/* All of the parameters show in the results. */
#define STRONG "lr=0.3 beta1=0.8 beta2=0.7 eps=0.2 weight_decay=0.5 "

static const struct identity identities[] = {
    {"a master that is p", STRONG "parameters=77", STRONG "parameters=77 master=yes", "",
     "master=p", "p_next p_next:master_next m_next v_next", NULL},
};

static const struct neutral cut = {"tensors", "1,2,3,30,301",
                                   STRONG "parameters=5,300,10000 master=no,yes"};

static const struct cost costs[] = {
    {"parameters=5", FORWARD, 0, 0, 10, {0, 0, 0}},
    {.settings = NULL},
};

const struct op op_adamw = {
    .name = "adamw",
    .formula = "m <- beta1 m + (1-beta1) g; v <- beta2 v + (1-beta2) g^2; "
               "p <- p - lr (m^ / (sqrt(v^) + eps) + weight_decay p)",
    .source = "common/ops/adamw.h",
    SIGNATURE(adamw, params, args),
    .cases = "parameters=1 master=no,yes; parameters=33 step=1,2,1000; "
             "fill=tiny parameters=75 step=1,5; " STRONG
             "parameters=500 tensors=1,7 step=3 decay=all,alternate master=no,yes",
    .shapes = STRONG
    "decay=alternate master=no,yes parameters=2,31,257,1031 tensors=1,2,33,319,320; " STRONG
    "parameters=12289 tensors=1,3 decay=alternate master=no,yes; "
    "parameters=3 tensors=65535; parameters=8192 step=1000000",
    .cost = costs,
    IDENTITIES(identities),
    .neutral = &cut,
    .flops = flops,
    .specials = specials,
};
