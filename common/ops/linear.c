#include "common/op.h"
#include "common/ops/linear.h"

static const struct param params[] = {
    SIZE_PARAM("rows", 'M', 4096, "rows of x"),
    SIZE_PARAM("dim_in", 'C', 256, "columns of x"),
    SIZE_PARAM("dim_out", 'D', 256, "columns of y"),
};

static const struct arg args[] = {
    ARG(linear, x, "MC", IN | DIFF, NORMAL),
    ARG(linear, W, "DC", IN | DIFF | WIDE_GRAD, FAN),
    ARG(linear, y, "MD", OUT | DIFF),
};

static double flops(const struct frame *f, enum pass p)
{
    return 2.0 * DIM(f, 'M') * DIM(f, 'C') * DIM(f, 'D') * (p == FORWARD ? 1 : 2);
}

const struct op op_linear = {
    .name = "linear",
    .formula = "y = x W^T",
    .source = "common/ops/linear.h",
    .param = params,
    .n_params = COUNT(params),
    .arg = args,
    .n_args = N_ARGS(linear),
    .cases = "rows=1 dim_in=1 dim_out=1; rows=10 dim_in=33 dim_out=17; "
             "rows=64 dim_in=64 dim_out=96",
    .flops = flops,
    .products = flops,
    .batch = 'M',
    .blas = 1,
};
