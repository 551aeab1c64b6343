/* The contract of entmax15: sizes, tensors, costs, cases with known results. */
#include <math.h>

#include "common/base/err.h"
#include "common/call/contract.h"
#include "common/ops/entmax15.h"

static const struct param params[] = {
    SIZE_PARAM("rows", 'R', 65536, "rows of x"),
    SIZE_PARAM("columns", 'N', 64, "elements of a row, at most 64"),
    FILL_PARAM(fill_names, "x"),
};

static const struct arg args[] = {
    ARG(entmax15, x, "RN", IN | DIFF | NOT_BACK | BELOW, NORMAL, .fill_choice = "fill"),
    ARG(entmax15, p, "RN", OUT | SAVED | DIFF),
};

static int derive(struct call *f)
{
    if (DIM(f, 'N') > ENTMAX15_MAX_COLUMNS)
        return err_set("columns = %d: entmax15 takes rows of at most %d, which one warp sorts",
                       (int)DIM(f, 'N'), ENTMAX15_MAX_COLUMNS);
    return 0;
}

/* Without the sort. */
COST(flops, "RN", 8, 5)

/* The root of each tau, or of each p. */
COST(specials, "RN", 1, 1)

#define HALF_ROOT 0.70710678118654752440

static const struct known known[] = {
    {"columns=4", {1, 2, -INFINITY, 4}, 0, "p", {0, 0, 0, 1}},
    {"columns=4", {1, 2, -INFINITY, 4}, 0, "d_x", KNOWN_ALL(0)},
    {"columns=4", {0, -INFINITY, 0, -INFINITY}, 0, "p", {0.5, 0, 0.5, 0}},
    {"columns=4", {0, -INFINITY, 0, -INFINITY}, 0, "d_x", {-HALF_ROOT, 0, HALF_ROOT, 0}},
    {"columns=4", {1e30, -1e30, 1e30, 0}, 0, "p", {0.5, 0, 0.5, 0}},
    {"columns=4", {0, NAN, 1, -INFINITY}, 0, "p", KNOWN_ALL(NAN)},
    {"columns=4", {0, NAN, 1, -INFINITY}, 0, "d_x", KNOWN_ALL(NAN)},
    {"columns=4", {0, INFINITY, 1, -INFINITY}, 0, "p", KNOWN_ALL(NAN)},
    {"columns=4", KNOWN_ALL(-INFINITY), 0, "p", KNOWN_ALL(NAN)},
    {"columns=4", KNOWN_ALL(-INFINITY), 0, "d_x", KNOWN_ALL(NAN)},
    {.settings = NULL},
};

const struct op op_entmax15 = {
    .name = "entmax15",
    .formula = "p = [x/2 - tau]_+^2, sum of p = 1, over the last axis",
    .source = "common/ops/entmax15.h",
    SIGNATURE(entmax15, params, args),
    .cases = "rows=1 columns=2; rows=3 columns=3; rows=5 columns=7; rows=9 columns=16; "
             "rows=4 columns=33; rows=3 columns=64; "
             "fill=masked,shifted,outliers rows=15 columns=2,5,16,31,64",
    .shapes = "rows=1 columns=1,31,33,64; rows=257 columns=1,2,3,5,8,9,15,16,17; "
              "rows=67 columns=31,32,33,47,63,64; "
              "fill=masked,shifted,outliers rows=131 columns=1,3,17,33",
    .known = known,
    .derive = derive,
    .flops = flops,
    .specials = specials,
    .batch = 'R',
};
