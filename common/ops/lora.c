/* The contract of lora: sizes, tensors, costs, cases with known results. */
#include "common/call/contract.h"
#include "common/ops/lora.h"

static const struct param params[] = {
    [LORA_M] = SIZE_PARAM("rows", 'M', 4096, "rows of x"),
    [LORA_C] = SIZE_PARAM("dim_in", 'C', 256, "columns of x"),
    [LORA_D] = SIZE_PARAM("dim_out", 'D', 256, "columns of y"),
    [LORA_R] = SIZE_PARAM("rank", 'R', 16, "dimensions between A and B"),
    [LORA_ALPHA] = REAL_PARAM("alpha", 16, -1e6, 1e6, "their scale, times rank"),
};

OF_CALL(const char *, of_x, ((void)f, "M"))
OF_CALL(const char *, of_A, ((void)f, "C"))
OF_CALL(const char *, of_B, ((void)f, "D"))
OF_CALL(const char *, of_y, ((void)f, "MD"))

static const struct arg args[] = {
    ARG(lora, x, "MC", IN | DIFF, NORMAL, .sample = of_x),
    ARG(lora, W, "DC", IN | PARAMETER, FAN),
    ARG(lora, A, "RC", IN | DIFF | WIDE_GRAD | PARAMETER, FAN, .sample = of_A),
    ARG(lora, B, "DR", IN | DIFF | WIDE_GRAD | PARAMETER, FAN, .sample = of_B),
    ARG(lora, y, "MD", OUT | DIFF, .sample = of_y),
    ARG(lora, h, "MR", SAVED, .sample = of_x),
};

OF_CALL(double, scale, f->real[LORA_ALPHA] / DIM(f, 'R'))

/* The others are sums of two. */
static const struct product of_products[] = {
    {"h", "x", "A", .scale = scale},
    {"d_B", "d_y", "h", .scale = NULL},
    {.result = NULL},
};

/* Backward has one product for dx, and of those with A and B two each. */
static double products(const struct call *f, enum pass p)
{
    double C = DIM(f, 'C'), D = DIM(f, 'D'), low = DIM(f, 'R') * (C + D);
    return 2.0 * DIM(f, 'M') * (C * D + (p == FORWARD ? 1 : 2) * low);
}

static double flops(const struct call *f, enum pass p)
{
    return products(f, p) + (double)DIM(f, 'M') * DIM(f, 'R');
}

#define SIZES "rows=5 dim_in=7 dim_out=6 "

static const struct identity identities[] = {
    {"alpha = 0 is B = 0", SIZES "rank=3 alpha=0", SIZES "rank=3", "", "B=zeros", "y x", NULL},
    {"alpha is shared by the ranks", SIZES "rank=4 alpha=3", SIZES "rank=2 alpha=3",
     "A=ones B=ones", "A=ones B=ones", "y x", NULL},
};

static const struct cost costs[] = {
    {"rows=3 dim_in=4 dim_out=5 rank=2", FORWARD, 120 + 108 + 6, 120 + 108, 0, {0, 0, 0}},
    {.settings = NULL},
};

const struct op op_lora = {
    .name = "lora",
    .formula = "y = x W^T + (alpha / rank) (x A^T) B^T",
    .source = "common/ops/lora.h",
    SIGNATURE(lora, params, args),
    .cases = "rows=1 dim_in=1 dim_out=1 rank=1; rows=10 dim_in=33 dim_out=17 rank=5 alpha=8; "
             "rows=64 dim_in=64 dim_out=96 rank=8",
    .shapes = "rows=257 dim_in=5 dim_out=1 rank=2; rows=1 dim_in=31 dim_out=257 rank=1,3; "
              "rows=31 dim_in=1 dim_out=33 rank=17 alpha=-3; rows=7 dim_in=5 dim_out=3 rank=131",
    .cost = costs,
    IDENTITIES(identities),
    .flops = flops,
    .products = products,
    .product = of_products,
    .batch = 'M',
    .blas = 1,
    .sites = "h term dterm dh",
};
