/* The contract of adamw: sizes, tensors, costs, cases with known results. */
#include <math.h>

#include "common/base/err.h"
#include "common/call/contract.h"
#include "common/ops/adamw.h"

static const char *const fills[] = {"normal", "tiny", "broken", NULL};
enum { NORMAL_FILL, TINY, BROKEN };

static const char *const grads[] = {"storage", "fp32", NULL};

static const struct param params[] = {
    [ADAMW_N] = SIZE_PARAM("parameters", 'N', 1 << 20, "parameters in all"),
    [ADAMW_TENSORS] = DRAWN_WHOLE_PARAM("tensors", 'K', 1, 1, ADAMW_MAX_TENSORS,
                                        "parts that they form, with zeros between them"),
    [ADAMW_STEP] = DRAWN_WHOLE_PARAM("step", 'S', 1, 1, 1 << 30,
                                     "number of this step, from 1: for the bias correction"),
    [ADAMW_DECAYED] =
        WHOLE_PARAM("decayed", 'Y', -1, -1, 1 << 30, "the first so many decay; -1: all"),
    [ADAMW_MASTER] = CHOICE_PARAM("master", no_yes, 0, "a copy of the parameters in full"),
    [ADAMW_GRAD] = ASIDE_PARAM("grad", grads, GRAD_STORAGE, "the type of g"),
    [ADAMW_LR] = DRAWN_REAL_PARAM("lr", 1e-3, 0, 1e3, "learning rate"),
    [ADAMW_BETA1] = REAL_PARAM("beta1", 0.9, 0, 0.999999, "decay rate of m"),
    [ADAMW_BETA2] = REAL_PARAM("beta2", 0.999, 0, 0.999999, "decay rate of v"),
    [ADAMW_EPS] = REAL_PARAM("eps", 1e-8, 1e-30, 1e3, "added to the root of v"),
    [ADAMW_WEIGHT_DECAY] = REAL_PARAM("weight_decay", 0.01, 0, 1e3, "decay of p, times lr"),
    [ADAMW_FILL] =
        DRAW_PARAM("fill", fills, 0,
                   "how g, m and v are drawn: N(0, 1), mostly small, or with NaN and inf in g"),
    [ADAMW_CLIP_FACTOR] = DRAWN_REAL_PARAM("clip_factor", 1, 0, 1e3, "what g is multiplied by"),
    [ADAMW_OVERFLOW] =
        DRAW_PARAM("overflow", no_yes, 0, "the gradient is bad: the step is skipped"),
};

static const struct axis axes[] = {{'O', "one"}, {0, NULL}};

OF_CALL(int, has_master, f->choice[ADAMW_MASTER])
OF_CALL(int, no_master, !has_master(f))
OF_CALL(int, grad_wide, f->choice[ADAMW_GRAD] == GRAD_FP32)

/* Tiny ones show eps: elements are N(0, 1) times 1e-8, 1, 1e-3 and 1e-12. */
static double draw(const struct call *f, uint64_t key, int64_t i)
{
    static const double size[] = {1e-8, 1, 1e-3, 1e-12};
    return draw_normal(key, i) * (f->choice[ADAMW_FILL] == TINY ? size[i % COUNT(size)] : 1);
}

/* Zeros between the parts. */
static void clear_gaps(const struct call *f, double *x)
{
    const int64_t N = DIM(f, 'N'), K = DIM(f, 'K');

    for (int64_t k = 0; k < K; k++)
        for (int64_t i = adamw_end(N, K, k); i < adamw_begin(N, K, k + 1); i++)
            x[i] = 0;
}

static void draw_p(const struct call *f, int arg, uint64_t key, double *x)
{
    const int64_t N = op_count(f, arg);

    #pragma omp parallel for
    for (int64_t i = 0; i < N; i++)
        x[i] = draw_normal(key, i);
    clear_gaps(f, x);
}

static void draw_m(const struct call *f, int arg, uint64_t key, double *x)
{
    const int64_t N = op_count(f, arg);

    #pragma omp parallel for
    for (int64_t i = 0; i < N; i++)
        x[i] = draw(f, key, i);
    clear_gaps(f, x);
}

static void draw_g(const struct call *f, int arg, uint64_t key, double *x)
{
    enum { EACH = 5 };
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    const int64_t N = op_count(f, arg);

    draw_m(f, arg, key, x);
    for (int64_t i = 1; f->choice[ADAMW_FILL] == BROKEN && i < N; i += EACH)
        x[i] = bad[i / EACH % COUNT(bad)];
    clear_gaps(f, x);
}

/* A mean of squares is not negative. */
static void draw_v(const struct call *f, int arg, uint64_t key, double *v)
{
    const int64_t N = op_count(f, arg);

    #pragma omp parallel for
    for (int64_t i = 0; i < N; i++)
        v[i] = pow(draw(f, key, i), 2);
    clear_gaps(f, v);
}

static double correction(const struct call *f, int beta)
{
    return 1 / (1 - pow(f->real[beta], (double)DIM(f, 'S')));
}

DRAW_ONE(draw_rate, f->real[ADAMW_LR])
DRAW_ONE(draw_unbias1, correction(f, ADAMW_BETA1))
DRAW_ONE(draw_unbias2, correction(f, ADAMW_BETA2))
DRAW_ONE(draw_factor, f->real[ADAMW_CLIP_FACTOR])
DRAW_ONE(draw_skip, f->choice[ADAMW_OVERFLOW])

static int is_gap(const struct call *f, int arg, int64_t i)
{
    const int64_t N = op_count(f, arg), K = DIM(f, 'K');
    int64_t k = 0, beyond = K; /* adamw_begin(k) <= i < adamw_begin(beyond) */

    while (beyond - k > 1) {
        const int64_t middle = (k + beyond) / 2;
        if (adamw_begin(N, K, middle) <= i)
            k = middle;
        else
            beyond = middle;
    }
    return i >= adamw_end(N, K, k);
}

static const struct arg args[] = {
    ARG(adamw, p, "N", IN | PARAMETER, .draw = draw_p, .when = no_master),
    ARG(adamw, g, "N", IN, .draw = draw_g, .wide_when = grad_wide),
    ARG(adamw, m, "N", IN | WIDE, .draw = draw_m),
    ARG(adamw, v, "N", IN | WIDE, .draw = draw_v),
    ARG(adamw, master, "N", IN | WIDE | PARAMETER, .draw = draw_p, .when = has_master),
    ARG(adamw, rate, "O", IN | WIDE, .draw = draw_rate, .settled = 1),
    ARG(adamw, unbias1, "O", IN | WIDE, .draw = draw_unbias1, .settled = 1),
    ARG(adamw, unbias2, "O", IN | WIDE, .draw = draw_unbias2, .settled = 1),
    ARG(adamw, factor, "O", IN | WIDE, .draw = draw_factor, .settled = 1),
    ARG(adamw, skip, "O", IN | WHOLE, .draw = draw_skip, .settled = 1),
    ARG(adamw, p_next, "N", OUT, .overwrites = "p", .gap = is_gap),
    ARG(adamw, m_next, "N", OUT | WIDE, .overwrites = "m", .gap = is_gap),
    ARG(adamw, v_next, "N", OUT | WIDE, .overwrites = "v", .gap = is_gap),
    ARG(adamw, master_next, "N", OUT | WIDE, .when = has_master, .overwrites = "master",
        .gap = is_gap),
};

static int derive(struct call *f)
{
    DIM(f, 'O') = 1;
    if (DIM(f, 'Y') > DIM(f, 'N'))
        return err_set("decayed = %lld: there are %lld parameters", (long long)DIM(f, 'Y'),
                       (long long)DIM(f, 'N'));
    return 0;
}

COST(flops, "N", 15, 0)

/* A root and a reciprocal. */
COST(specials, "N", 2, 0)

/* All of the parameters show in the results. */
#define STRONG "lr=0.3 beta1=0.8 beta2=0.7 eps=0.2 weight_decay=0.5 "

static const struct identity identities[] = {
    {"a master that is p", STRONG "parameters=77", STRONG "parameters=77 master=yes", "",
     "master=p", "p_next p_next:master_next m_next v_next", NULL},
    {"no decay is a decay of none", STRONG "parameters=77 decayed=0",
     "lr=0.3 beta1=0.8 beta2=0.7 eps=0.2 weight_decay=0 parameters=77", "", "",
     "p_next m_next v_next", NULL},
    {"a factor of 1/4 is a fourth of g and of eps, but for v and m",
     "lr=0.3 beta1=0 beta2=0 eps=0.25 weight_decay=0.5 parameters=77 clip_factor=0.25",
     "lr=0.3 beta1=0 beta2=0 eps=1 weight_decay=0.5 parameters=77", "", "factor=ones", "p_next",
     NULL},
    {"a step that is skipped has no rate", STRONG "parameters=77", STRONG "parameters=77",
     "skip=ones", "skip=zeros rate=zeros", "p_next", NULL},
};

static const struct neutral decayed = {
    "decayed", "-1,0,1,5", "lr=0.3 weight_decay=0 parameters=5,300,10000 master=no,yes"};

static const struct cost costs[] = {
    {"parameters=5", FORWARD, 75, 0, 10, {0, 0, 0}},
    {.settings = NULL},
};

static const struct retired retired[] = {
    {"decay", "all", "decayed", "decayed = N lets the first N parameters decay"},
    {.key = NULL},
};

const struct op op_adamw = {
    .name = "adamw",
    .formula = "g~ = factor g; m <- beta1 m + (1-beta1) g~; v <- beta2 v + (1-beta2) g~^2; "
               "p <- p - rate (unbias1 m / (sqrt(unbias2 v) + eps) + weight_decay p); or skipped",
    .source = "common/ops/adamw.h",
    SIGNATURE(adamw, params, args),
    .axis = axes,
    .cases = "parameters=1 master=no,yes; parameters=33 step=1,2,1000; "
             "fill=tiny parameters=75 step=1,5; " STRONG
             "parameters=500 tensors=1,7 step=3 decayed=-1,0,256,301 master=no,yes; " STRONG
             "parameters=300 tensors=3 step=3 decayed=1 grad=storage,fp32 master=no,yes "
             "clip_factor=1,0.013 overflow=no,yes; " STRONG
             "parameters=90 fill=broken grad=storage,fp32 master=no,yes clip_factor=0.5 "
             "overflow=no,yes",
    .shapes = STRONG
    "decayed=31 master=no,yes parameters=31,257,1031 tensors=1,2,33,319,320; " STRONG
    "decayed=0,1,2,3,4,5,8191,8192,8193,12288 parameters=12289; " STRONG
    "parameters=12289 tensors=1,3 grad=fp32 decayed=8190 master=no,yes; " STRONG
    "parameters=2,3,4,5,2047,2048,2049,8191,8192,8193,16389 decayed=2 grad=storage,fp32; "
    "parameters=3 tensors=65535; parameters=8192 step=1000000; " STRONG
    "parameters=4099 overflow=yes master=no,yes grad=storage,fp32 decayed=7",
    .memory = "parameters=33554432 tensors=200",
    .cost = costs,
    IDENTITIES(identities),
    .neutral = &decayed,
    .retired = retired,
    .derive = derive,
    .flops = flops,
    .specials = specials,
};
