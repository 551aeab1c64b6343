/* The contract of scan: sizes, tensors, costs, cases with known results. */
#include <math.h>

#include "common/call/contract.h"
#include "common/ops/scan.h"

static const char *const kinds[] = {"inclusive", "exclusive", NULL};
static const char *const fills[] = {"normal", "masked", NULL};

static const struct param params[] = {
    SIZE_PARAM("rows", 'R', 4096, "rows of x"),
    SIZE_PARAM("length", 'N', 4096, "elements of a row"),
    CHOICE_PARAM("kind", kinds, SCAN_INCLUSIVE,
                 "a sum includes its own element, or only those before it"),
    FILL_PARAM(fills, "x"),
};

static const struct arg args[] = {
    ARG(scan, x, "RN", IN | DIFF | NOT_BACK, NORMAL, .fill_choice = "fill"),
    ARG(scan, y, "RN", OUT | DIFF),
};

COST(flops, "RN", 1, 1)

#define EACH_KIND "kind=inclusive,exclusive "

static const struct known known[] = {
    {"length=4", {1, INFINITY, -INFINITY, 2}, 0, "y", {1, INFINITY, NAN, NAN}},
    {"length=4 kind=exclusive", {1, INFINITY, -INFINITY, 2}, 0, "y", {0, 1, INFINITY, NAN}},
    {.settings = NULL},
};

const struct op op_scan = {
    .name = "scan",
    .formula = "y[i] = sum of x[k] up to i",
    .source = "common/ops/scan.h",
    SIGNATURE(scan, params, args),
    .cases = "rows=1 length=1; rows=5 length=33 " EACH_KIND "; rows=3 length=1096 " EACH_KIND
             "; rows=2 length=2049; rows=2 length=20008; rows=1 length=69001; "
             "fill=masked rows=15 length=2,33,1096 " EACH_KIND "; fill=masked rows=8 length=20008",
    .shapes =
        "rows=257 length=1,2,31 " EACH_KIND "; rows=3 length=1023,1024,1025 " EACH_KIND
        "; rows=2 length=4096,8191,16385 " EACH_KIND "; rows=3 length=32800; "
        "rows=1 length=278528,135001; fill=masked rows=14 length=31,1024,16385 " EACH_KIND
        "; rows=300 length=260 " EACH_KIND "; rows=67 length=3,6,8,12,16,22,28,40,44 " EACH_KIND
        "; rows=19 length=64,90,120,184,250,300,384,500,768,770 " EACH_KIND,
    .known = known,
    .flops = flops,
    .batch = 'R',
    .time = 'N',
};
