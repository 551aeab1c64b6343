/* The contracts of silu, relu and swiglu: sizes, tensors, costs, cases with known results. */
#include "common/call/contract.h"
#include "common/ops/elementwise.h"

static const char *const fills[] = {"normal", "wide", NULL};
static const char *const relu_fills[] = {"normal", "masked", NULL};

#define SIZES SIZE_PARAM("rows", 'M', 4096, "rows"), SIZE_PARAM("dim", 'D', 256, "columns")

static const struct param params[] = {
    SIZES,
    DRAW_PARAM("fill", fills, 0,
               "how the sigmoid's argument is drawn: N(0, 1), or half of it 100 |N(0, 1)|"),
};
static const struct param relu_params[] = {SIZES, FILL_PARAM(relu_fills, "x")};

static const struct arg unary_args[] = {
    ARG(unary, x, "MD", IN | DIFF, NORMAL, .fill_choice = "fill"),
    ARG(unary, y, "MD", OUT | DIFF),
};

static const struct arg swiglu_args[] = {
    ARG(swiglu, a, "MD", IN | DIFF, NORMAL, .fill_choice = "fill"),
    ARG(swiglu, b, "MD", IN | DIFF, NORMAL),
    ARG(swiglu, y, "MD", OUT | DIFF),
};

COST(silu_flops, "MD", 4, 8)
COST(relu_flops, "MD", 1, 1)
COST(swiglu_flops, "MD", 5, 10)

/* A sigmoid is an exponential and a reciprocal. */
COST(sigmoids, "MD", 2, 2)

/* SHAPES: rows of eight elements, which are sixteen bytes in bf16, and of fewer; the last two take
 * several blocks, and end within one. */
#define CASES "rows=1 dim=1; rows=10 dim=33; rows=3 dim=64; fill=wide rows=6 dim=40"
#define SHAPES                                                                                     \
    "rows=1 dim=2,3,7,8,9,31,257; rows=257 dim=1; rows=31 dim=33; rows=13 dim=1021; "              \
    "rows=64 dim=256; rows=101 dim=127"

/* The members that all three share. */
#define ELEMENTWISE .batch = 'M'

const struct op op_silu = {
    .name = "silu",
    .formula = "y = x sigmoid(x)",
    .source = "common/ops/elementwise.h",
    ELEMENTWISE,
    SIGNATURE(unary, params, unary_args),
    .cases = CASES,
    .shapes = SHAPES "; fill=wide rows=13 dim=257",
    .flops = silu_flops,
    .specials = sigmoids,
};

const struct op op_relu = {
    .name = "relu",
    .formula = "y = max(x, 0)",
    .source = "common/ops/elementwise.h",
    ELEMENTWISE,
    SIGNATURE(unary, relu_params, unary_args),
    .cases = "rows=2 dim=2; rows=10 dim=33; rows=3 dim=64; fill=masked rows=15 dim=33",
    .shapes = SHAPES "; fill=masked rows=14 dim=257,1024",
    .flops = relu_flops,
};

static const struct cost costs[] = {
    {"rows=3 dim=4", BACKWARD, 0, 0, 24, {0, 0, 0}},
    {.settings = NULL},
};

const struct op op_swiglu = {
    .name = "swiglu",
    .formula = "y = a sigmoid(a) b",
    .source = "common/ops/elementwise.h",
    ELEMENTWISE,
    SIGNATURE(swiglu, params, swiglu_args),
    .sites = "silu",
    .cases = CASES,
    .shapes = SHAPES "; fill=wide rows=13 dim=257",
    .cost = costs,
    .flops = swiglu_flops,
    .specials = sigmoids,
};
