/* The contract of gemv: sizes, tensors, costs, cases with known results. */
#include "common/call/contract.h"
#include "common/ops/gemv.h"

static const struct param params[] = {
    SIZE_PARAM("M", 'M', 4096, "elements of y"),
    SIZE_PARAM("K", 'K', 4096, "elements of x, the length of the sums"),
    CHOICE_PARAM("transpose_a", no_yes, 0, "A is stored as [K,M]"),
    REAL_PARAM("alpha", 1, -1e6, 1e6, "factor of the product"),
    REAL_PARAM("beta", 0, -1e6, 1e6, "factor of y0, which is added"),
};

OF_CALL(int, adds, f->real[GEMV_BETA] != 0)
OF_CALL(const char *, a_shape, f->choice[GEMV_TRANSPOSE_A] ? "KM" : "MK")

OF_CALL(const char *, each, ((void)f, "MK"))

static const struct arg args[] = {
    ARG(gemv, A, "MK", IN | DIFF, NORMAL, .shape_of = a_shape, .sample = each),
    ARG(gemv, x, "K", IN | DIFF, NORMAL, .sample = each),
    ARG(gemv, y0, "M", IN | DIFF | NOT_BACK, NORMAL, .when = adds, .sample = each),
    ARG(gemv, y, "M", OUT | DIFF, .sample = each, .overwrites = "y0"),
};

/* dx is a product like y; dA takes a multiplication for each of its elements. */
COST(flops, "MK", 2, 3)

#define SCALED "alpha=0.5 beta=-1.5 "
#define EITHER "transpose_a=no,yes; "

const struct op op_gemv = {
    .name = "gemv",
    .formula = "y = alpha op(A) x + beta y0",
    .source = "common/ops/gemv.h",
    SIGNATURE(gemv, params, args),
    .cases = "M=1 K=1; M=1 K=37; M=37 K=1 " SCALED EITHER "M=33 K=65 " SCALED EITHER
             "M=40 K=136 " EITHER "M=129 K=64 alpha=-2 beta=1 " EITHER,
    .shapes = "M=1 K=60001 " EITHER "M=60001 K=1 " EITHER "M=3 K=20000 " SCALED EITHER
              "M=20000 K=3 " EITHER "M=257 K=263 " SCALED EITHER "M=256 K=264 " EITHER
              "M=24 K=2048 " EITHER "M=2048 K=24 beta=1 " EITHER,
    .flops = flops,
    .sites = "term dterm",
};
