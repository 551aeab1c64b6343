#include "common/op.h"
#include "common/ops/silu_gate.h"

static const struct param params[] = {
    SIZE_PARAM("rows", 'M', 4096, "rows"),
    SIZE_PARAM("dim", 'D', 256, "columns"),
};

static const struct arg args[] = {
    ARG(silu_gate, x, "MD", IN | DIFF, NORMAL),
    ARG(silu_gate, z, "MD", IN | DIFF, NORMAL),
    ARG(silu_gate, y, "MD", OUT | DIFF),
};

static double flops(const struct frame *f, enum pass p)
{
    return (p == FORWARD ? 5.0 : 10.0) * DIM(f, 'M') * DIM(f, 'D');
}

/* A sigmoid is an exponential and a reciprocal. */
static double specials(const struct frame *f, enum pass p)
{
    (void)p;
    return 2.0 * DIM(f, 'M') * DIM(f, 'D');
}

const struct op op_silu_gate = {
    .name = "silu_gate",
    .formula = "y = x z sigmoid(z)",
    .source = "common/ops/silu_gate.h",
    .param = params,
    .n_params = COUNT(params),
    .arg = args,
    .n_args = N_ARGS(silu_gate),
    .cases = "rows=1 dim=1; rows=10 dim=33",
    .flops = flops,
    .specials = specials,
    .batch = 'M',
};
