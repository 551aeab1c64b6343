/* The contract of softmax: sizes, tensors, costs, cases with known results. */
#include <math.h>

#include "common/call/contract.h"
#include "common/ops/softmax.h"

static const struct param params[] = {
    SIZE_PARAM("rows", 'R', 1024, "rows of x"),
    SIZE_PARAM("columns", 'N', 1024, "elements of a row"),
    REAL_PARAM("scale", 1, 1e-6, 1e6, "factor of x"),
    FILL_PARAM(fill_names, "x"),
};

static const struct arg args[] = {
    ARG(softmax, x, "RN", IN | DIFF | NOT_BACK | BELOW, NORMAL, .fill_choice = "fill"),
    ARG(softmax, y, "RN", OUT | SAVED | DIFF),
};

COST(flops, "RN", 5, 4)

/* Backward finds the exponentials in y. */
COST(specials, "RN", 1, 0)

static const struct known known[] = {
    {"columns=4", {0, -INFINITY, 0, -INFINITY}, 0, "y", {0.5, 0, 0.5, 0}},
    {"columns=4", {0, -INFINITY, 0, -INFINITY}, 0, "d_x", {-0.5, 0, 0.5, 0}},
    {"columns=4", {1e30, -1e30, 1e30, 0}, 0, "y", {0.5, 0, 0.5, 0}},
    {"columns=4", {-0.0, 0, 0, 0}, 0, "y", KNOWN_ALL(0.25)},
    {"columns=4", {0, NAN, 1, -INFINITY}, 0, "y", KNOWN_ALL(NAN)},
    {"columns=4", {0, NAN, 1, -INFINITY}, 0, "d_x", KNOWN_ALL(NAN)},
    {"columns=4", {0, INFINITY, 1, -INFINITY}, 0, "y", KNOWN_ALL(NAN)},
    {"columns=4", KNOWN_ALL(-INFINITY), 0, "y", KNOWN_ALL(NAN)},
    {"columns=4", KNOWN_ALL(-INFINITY), 0, "d_x", KNOWN_ALL(NAN)},
    {.settings = NULL},
};

static const char *const large[] = {"rows=65600 columns=32749", NULL};

const struct op op_softmax = {
    .name = "softmax",
    .formula = "y = softmax(scale x) over the last axis",
    .sites = "s",
    .declared = "lse",
    .source = "common/ops/softmax.h",
    SIGNATURE(softmax, params, args),
    .cases = "rows=1 columns=2; rows=3 columns=3; rows=5 columns=7 scale=0.125; "
             "rows=9 columns=33 scale=2.5; rows=2 columns=64; rows=3 columns=257 scale=40; "
             "rows=2 columns=1024; rows=2 columns=2500 scale=0.5; "
             "fill=masked,shifted,outliers rows=15 columns=2,5,32; "
             "fill=masked,shifted,outliers rows=8 columns=264,2500",
    .shapes = "rows=1 columns=1,31,257,10007; rows=331 columns=1,3,4,8,9,31,33,64; "
              "rows=37 columns=128,129,255,256,257,512; rows=7 columns=513,1024,1031,2048,2053; "
              "rows=301 columns=2,5,11,13,26,50; rows=19 columns=70,100,197,300,390,638,770,1001; "
              "rows=2 columns=4096,8209 scale=3; rows=1 columns=20000,20001 scale=0.5; "
              "fill=masked,shifted,outliers rows=17 columns=1,3,130; "
              "fill=masked,shifted,outliers rows=14 columns=1031,8216,20001",
    .known = known,
    .large = large,
    .flops = flops,
    .specials = specials,
    .batch = 'R',
};
