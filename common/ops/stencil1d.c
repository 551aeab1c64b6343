/* The contract of stencil1d: sizes, tensors, costs, cases with known results. */
#include "common/call/contract.h"
#include "common/ops/stencil1d.h"

static const struct param params[] = {
    SIZE_PARAM("rows", 'B', 64, "rows"),
    SIZE_PARAM("length", 'N', 65536, "elements of a row"),
    WHOLE_PARAM("radius", 'R', 4, 0, 1 << 28, "neighbours on each side"),
};

static const struct arg args[] = {
    ARG(stencil1d, x, "BN", IN | DIFF | NOT_BACK, NORMAL),
    ARG(stencil1d, y, "BN", OUT | DIFF),
};

/* 2R additions, no more than reach over the row, and a division for each element. */
static double flops(const struct call *f, enum pass p)
{
    double reach = (double)(DIM(f, 'R') < DIM(f, 'N') ? DIM(f, 'R') : DIM(f, 'N') - 1);
    (void)p;
    return (2 * reach + 1) * DIM(f, 'B') * DIM(f, 'N');
}

const struct op op_stencil1d = {
    .name = "stencil1d",
    .formula = "y[i] = mean of x[i-R ... i+R], zero outside",
    .source = "common/ops/stencil1d.h",
    SIGNATURE(stencil1d, params, args),
    .cases =
        "rows=1 length=1 radius=0,1; rows=3 length=7 radius=2; rows=2 length=33 radius=0,4,40; "
        "rows=2 length=300 radius=1,7,17; rows=1 length=4099,4104 radius=2,9",
    .shapes = "rows=2 length=4096 radius=1,3; rows=1 length=8200 radius=2,5; "
              "rows=1 length=4096 radius=8; rows=3 length=4099 radius=1,4; "
              "rows=1 length=4097 radius=7,8,14; rows=1 length=5000 radius=12; "
              "rows=300 length=1 radius=0; rows=31 length=257 radius=5; "
              "rows=1 length=513 radius=100; rows=1 length=31 radius=1000; "
              "rows=2 length=32 radius=100000000",
    .flops = flops,
    .batch = 'B',
};
