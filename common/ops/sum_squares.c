/* The contract of sum_squares: sizes, tensors, costs, cases with known results. */
#include <math.h>

#include "common/call/contract.h"
#include "common/ops/sum_squares.h"

static const char *const fills[] = {"normal", "masked", "spikes", NULL};

static const struct param params[] = {
    WHOLE_PARAM("length", 'N', 1048576, 1, INT64_C(1) << 38, "elements of x"),
    FILL_PARAM(fills, "x"),
};

static const struct axis axes[] = {{'O', "one"}, {0, NULL}};

OF_CALL(const char *, each, ((void)f, "N"))

static const struct arg args[] = {
    ARG(sum_squares, x, "N", IN | DIFF, NORMAL, .fill_choice = "fill", .sample = each),
    ARG(sum_squares, y, "O", OUT | DIFF | WIDE),
};

static int derive(struct call *f)
{
    DIM(f, 'O') = 1;
    return 0;
}

/* A product and a sum; backward a product, beside the one 2 dy. */
COST(flops, "N", 2, 1)

static const struct cost costs[] = {
    {"length=7", FORWARD, 14, 0, 0, {0, 0, 0}},
    {"length=7", BACKWARD, 7, 0, 0, {0, 0, 0}},
    {.settings = NULL},
};

static const struct known known[] = {
    {"length=4", {1, -2, 3, 0.5}, 0, "y", {14.25}},
    {"length=4", {1, -2, 3, 0.5}, 0, "d_x", {2, -4, 6, 1}},
    {"length=4", {0, -0.0, 0, 0}, 0, "y", {0}},
    {"length=4", {0, -INFINITY, 1, 2}, 0, "y", {INFINITY}},
    {"length=4", {0, -INFINITY, 1, INFINITY}, 0, "d_x", {0, -INFINITY, 2, INFINITY}},
    {"length=4", {0, NAN, INFINITY, 2}, 0, "y", {NAN}},
    {"length=4", {0, NAN, -INFINITY, 2}, 0, "d_x", {0, NAN, -INFINITY, 4}},
    {.settings = NULL},
};

static const char *const large[] = {"length=2147483659", NULL};

const struct op op_sum_squares = {
    .name = "sum_squares",
    .formula = "y = sum of x^2",
    .source = "common/ops/sum_squares.h",
    SIGNATURE(sum_squares, params, args),
    .axis = axes,
    .cases = "length=1,2,7,8,9,33,257; length=1000,8192,16385; "
             "fill=masked length=1,9,100,1003; fill=spikes length=5,64,4099; length=40009",
    .shapes = "length=3,4,5,15,16,17,31,63,255,256,1023; length=4095,4096,4097,8191,8193; "
              "length=16383,16384,32767,32768,32769,65535,65544; length=131073,1048583; "
              "fill=masked length=8200,16400,70001; fill=spikes length=12345,65536",
    .known = known,
    .cost = costs,
    .large = large,
    .derive = derive,
    .flops = flops,
};
