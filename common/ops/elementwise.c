/* The contracts of silu, relu, swiglu and add: sizes, tensors, costs, cases with known results. */
#include <math.h>

#include "common/call/contract.h"
#include "common/ops/elementwise.h"

static const char *const fills[] = {"normal", "wide", NULL};
static const char *const masked_fills[] = {"normal", "masked", NULL};

#define SIZES SIZE_PARAM("rows", 'M', 4096, "rows"), SIZE_PARAM("dim", 'D', 256, "columns")

static const struct param params[] = {
    SIZES,
    DRAW_PARAM("fill", fills, 0,
               "how the sigmoid's argument is drawn: N(0, 1), or half of it 100 |N(0, 1)|"),
};
static const struct param relu_params[] = {SIZES, FILL_PARAM(masked_fills, "x")};
static const struct param add_params[] = {SIZES, FILL_PARAM(masked_fills, "a and b")};

static const struct arg unary_args[] = {
    ARG(unary, x, "MD", IN | DIFF, NORMAL, .fill_choice = "fill"),
    ARG(unary, y, "MD", OUT | DIFF),
};

static const struct arg swiglu_args[] = {
    ARG(swiglu, a, "MD", IN | DIFF, NORMAL, .fill_choice = "fill"),
    ARG(swiglu, b, "MD", IN | DIFF, NORMAL),
    ARG(swiglu, y, "MD", OUT | DIFF),
};

static const struct arg add_args[] = {
    ARG(add, a, "MD", IN | DIFF | NOT_BACK, NORMAL, .fill_choice = "fill"),
    ARG(add, b, "MD", IN | DIFF | NOT_BACK, NORMAL, .fill_choice = "fill"),
    ARG(add, y, "MD", OUT | DIFF, .overwrites = "a"),
};

COST(silu_flops, "MD", 4, 8)
COST(relu_flops, "MD", 1, 1)
COST(swiglu_flops, "MD", 5, 10)
COST(add_flops, "MD", 1, 0)

/* A sigmoid is an exponential and a reciprocal. */
COST(sigmoids, "MD", 2, 2)

/* SHAPES: rows of eight elements, which are sixteen bytes in bf16, and of fewer; the last two take
 * several blocks, and end within one. */
#define CASES "rows=1 dim=1; rows=10 dim=33; rows=3 dim=64; fill=wide rows=6 dim=40"
#define SHAPES                                                                                     \
    "rows=1 dim=2,3,7,8,9,31,257; rows=257 dim=1; rows=31 dim=33; rows=13 dim=1021; "              \
    "rows=64 dim=256; rows=101 dim=127"

/* The members that all of them share. */
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

static const struct cost add_costs[] = {
    {"rows=3 dim=4", FORWARD, 12, 0, 0, {0, 0, 0}},
    {.settings = NULL},
};

/* Of a row that is a and b. */
static const struct known add_known[] = {
    {"dim=4", {INFINITY, -INFINITY, NAN, -0.0}, 0, "y", {INFINITY, -INFINITY, NAN, -0.0}},
    {"dim=4", {INFINITY, -INFINITY, NAN, -0.0}, 0, "d_a", {1, 2, 3, 4}},
    {"dim=4", {INFINITY, -INFINITY, NAN, -0.0}, 0, "d_b", {1, 2, 3, 4}},
    {"dim=4", {1, 0.5, -3, 0x1p-126}, 0, "y", {2, 1, -6, 0x1p-125}},
    {.settings = NULL},
};

static const struct identity add_identities[] = {
    {"a + b is b + a", "rows=5 dim=9", "rows=5 dim=9", "", "a=b b=a", "y a:b b:a", NULL},
    {"a + 0 is 0 + a", "rows=5 dim=9", "rows=5 dim=9", "b=zeros", "a=zeros b=a", "y a:b b:a", NULL},
};

const struct op op_add = {
    .name = "add",
    .formula = "y = a + b",
    .source = "common/ops/elementwise.h",
    ELEMENTWISE,
    SIGNATURE(add, add_params, add_args),
    .cases = "rows=1 dim=1; rows=10 dim=33; rows=3 dim=64; fill=masked rows=15 dim=33",
    .shapes = SHAPES "; fill=masked rows=14 dim=257,1024",
    .known = add_known,
    .cost = add_costs,
    IDENTITIES(add_identities),
    .flops = add_flops,
};
