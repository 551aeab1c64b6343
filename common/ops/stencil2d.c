/* The contract of stencil2d: sizes, tensors, costs, cases with known results. */
#include "common/call/contract.h"
#include "common/ops/stencil2d.h"

static const struct param params[] = {
    SIZE_PARAM("batch", 'B', 1, "images"),
    SIZE_PARAM("height", 'H', 1024, "rows of an image"),
    SIZE_PARAM("width", 'W', 1024, "columns of an image"),
    WHOLE_PARAM("radius", 'R', 1, 0, 1 << 28, "neighbours on each side"),
};

static const struct arg args[] = {
    ARG(stencil2d, x, "BHW", IN | DIFF | NOT_BACK, NORMAL),
    ARG(stencil2d, y, "BHW", OUT | DIFF),
};

static double reach(const struct call *f, char axis)
{
    return (double)(DIM(f, 'R') < DIM(f, axis) ? DIM(f, 'R') : DIM(f, axis) - 1);
}

/* The sum over a square is one over rows of sums over columns: 2R additions for each, no more than
 * reach over the image, and a division. */
static double flops(const struct call *f, enum pass p)
{
    (void)p;
    return (2 * reach(f, 'H') + 2 * reach(f, 'W') + 1) * DIM(f, 'B') * DIM(f, 'H') * DIM(f, 'W');
}

const struct op op_stencil2d = {
    .name = "stencil2d",
    .formula = "y[i][j] = mean of x[i-R ... i+R][j-R ... j+R], zero outside",
    .source = "common/ops/stencil2d.h",
    SIGNATURE(stencil2d, params, args),
    .cases = "batch=1 height=1 width=1 radius=0,1; batch=2 height=3 width=5 radius=1,4; "
             "batch=2 height=9 width=16 radius=0,1,2,3,4,5; batch=1 height=33 width=12 radius=2; "
             "batch=1 height=5 width=40 radius=3,20; batch=1 height=35 width=41 radius=3",
    .shapes = "batch=1 height=31 width=33 radius=1,4,9; batch=1 height=1 width=2000 radius=1,4; "
              "batch=1 height=2000 width=1 radius=1,4,6; batch=3 height=17 width=257 radius=2,5; "
              "batch=1 height=20 width=520 radius=1,4; batch=1 height=8 width=1032 radius=0,3,5; "
              "batch=1 height=130 width=64 radius=1,2; batch=2 height=67 width=48 radius=3,4; "
              "batch=300 height=1 width=1 radius=1; batch=1 height=7 width=300 radius=11; "
              "batch=1 height=13 width=24 radius=60; batch=1 height=3 width=8 radius=5000",
    .flops = flops,
    .batch = 'B',
};
