/* The contract of linear: sizes, tensors, costs, cases with known results. */
#include <math.h>

#include "common/call/contract.h"
#include "common/ops/linear.h"

static const char *const acts[] = {"none", "silu", "relu", NULL};

static const struct param params[] = {
    [LINEAR_M] = SIZE_PARAM("rows", 'M', 4096, "rows of x"),
    [LINEAR_C] = SIZE_PARAM("dim_in", 'C', 256, "columns of x"),
    [LINEAR_D] = SIZE_PARAM("dim_out", 'D', 256, "columns of y"),
    [LINEAR_BIAS] = CHOICE_PARAM("bias", no_yes, 0, "b is added"),
    [LINEAR_ACT] = CHOICE_PARAM("act", acts, ACT_NONE, "the activation of y"),
};

OF_CALL(int, has_bias, f->choice[LINEAR_BIAS])
OF_CALL(int, keeps_z, f->choice[LINEAR_ACT] == ACT_SILU)
OF_CALL(int, is_relu, f->choice[LINEAR_ACT] == ACT_RELU)

/* Backward needs z, whole sums over C. */
OF_CALL(const char *, each, ((void)f, "MD"))

static const struct arg args[] = {
    ARG(linear, x, "MC", IN | DIFF, NORMAL, .sample = each),
    ARG(linear, W, "DC", IN | DIFF | WIDE_GRAD | PARAMETER, FAN, .sample = each),
    ARG(linear, b, "D", IN | DIFF | WIDE_GRAD | PARAMETER, UNIT, .when = has_bias, .sample = each),
    ARG(linear, y, "MD", OUT | SAVED | DIFF, .back = is_relu, .sample = each),
    ARG(linear, z, "MD", SAVED, .when = keeps_z, .sample = each),
};

/* dz of dy: the derivative of act at z + b. */
static double slope(const struct call *f, double *const *x, int64_t i)
{
    const double *b = x[PLACE(linear, b)];

    if (f->choice[LINEAR_ACT] == ACT_NONE)
        return 1;
    if (f->choice[LINEAR_ACT] == ACT_RELU)
        return x[PLACE(linear, y)][i] <= 0 ? 0 : 1;
    const double at = x[PLACE(linear, z)][i] + (b ? b[i % DIM(f, 'D')] : 0);
    const double gate = 1 / (1 + exp(-at));
    return gate * (1 + at * (1 - gate));
}

OF_CALL(int, is_product, f->choice[LINEAR_ACT] == ACT_NONE)

static const struct product of_products[] = {
    {"y", "x", "W", .added = "b", .when = is_product},
    {"z", "x", "W", .when = keeps_z},
    {"d_x", "d_y", "W", .slope = slope},
    {"d_W", "d_y", "x", .slope = slope},
    {.result = NULL},
};

COST(products, "MCD", 2, 4)

static double flops(const struct call *f, enum pass p)
{
    int act = f->choice[LINEAR_ACT];
    double each = has_bias(f) + (act == ACT_SILU ? (p == FORWARD ? 4 : 8) : act == ACT_RELU);
    return products(f, p) + each * DIM(f, 'M') * DIM(f, 'D');
}

/* A sigmoid is an exponential and a reciprocal. */
COST(specials, "MD", 2 * keeps_z(f), 2 * keeps_z(f))

#define EACH "bias=no,yes act=none,silu,relu; "

static const struct identity identities[] = {
    {"b = 0 is no bias", "rows=5 dim_in=7 dim_out=9 act=silu bias=yes",
     "rows=5 dim_in=7 dim_out=9 act=silu", "b=zeros", "", "y x W", NULL},
};

static const struct cost costs[] = {
    {"rows=3 dim_in=4 dim_out=5", FORWARD, 120, 120, 0, {0, 0, 0}},
    {"rows=3 dim_in=4 dim_out=5 bias=yes act=silu", BACKWARD, 240 + 9 * 15, 240, 30, {0, 0, 0}},
    {.settings = NULL},
};

const struct op op_linear = {
    .name = "linear",
    .formula = "y = act(x W^T + b)",
    .source = "common/ops/linear.h",
    SIGNATURE(linear, params, args),
    .cases = "rows=1 dim_in=1 dim_out=1; rows=10 dim_in=33 dim_out=17 " EACH
             "rows=64 dim_in=64 dim_out=96; rows=64 dim_in=64 dim_out=96 bias=yes act=silu,relu; "
             "rows=3 dim_in=2 dim_out=264 bias=yes act=silu,relu; "
             "rows=130 dim_in=1 dim_out=8 bias=yes act=silu,relu",
    .shapes = "rows=257 dim_in=5 dim_out=1 " EACH "rows=1 dim_in=3 dim_out=257 " EACH
              "rows=31 dim_in=1 dim_out=31 " EACH "rows=263 dim_in=2 dim_out=33 " EACH
              "rows=9 dim_in=1 dim_out=264,528 " EACH "rows=270 dim_in=1 dim_out=32 " EACH,
    .cost = costs,
    IDENTITIES(identities),
    .flops = flops,
    .products = products,
    .product = of_products,
    .specials = specials,
    .batch = 'M',
    .blas = 1,
    .sites = "z dz",
};
