/* The contract of transpose: sizes, tensors, costs, cases with known results. */
#include "common/call/contract.h"
#include "common/ops/transpose.h"

static const struct param params[] = {
    SIZE_PARAM("batch", 'B', 1, "matrices"),
    SIZE_PARAM("rows", 'M', 1024, "rows of x"),
    SIZE_PARAM("columns", 'N', 1024, "columns of x"),
    SIZE_PARAM("width", 'D', 1, "elements that stay together"),
};

/* Elements that stay alone have no axis: a matrix is one of two axes. */
OF_CALL(const char *, shape_of_x, DIM(f, 'D') == 1 ? "BMN" : "BMND")
OF_CALL(const char *, shape_of_out, DIM(f, 'D') == 1 ? "BNM" : "BNMD")
OF_CALL(const char *, each, ((void)f, "BMND"))

static const struct arg args[] = {
    ARG(transpose, x, "BMN", IN | DIFF | NOT_BACK, NORMAL, .shape_of = shape_of_x, .sample = each),
    ARG(transpose, out, "BNM", OUT | DIFF, .shape_of = shape_of_out, .sample = each),
};

/* A vector is its own transpose, of whatever entries; and a row of M N entries has the elements of one
 * entry, in their order. */
static const struct identity identities[] = {
    {"a row is a column", "batch=2 rows=1 columns=75", "batch=2 rows=75 columns=1", "", "", "out x",
     NULL},
    {"a row of entries is a column", "batch=2 rows=1 columns=25 width=3",
     "batch=2 rows=25 columns=1 width=3", "", "", "out x", NULL},
    {"width is an axis more", "batch=2 rows=1 columns=25 width=3",
     "batch=2 rows=1 columns=1 width=75", "", "", "out x", NULL},
};

/* Nothing is computed. */
COST(flops, "", 0, 0)

static const char *const large[] = {"rows=46349 columns=46351", NULL};

const struct op op_transpose = {
    .name = "transpose",
    .formula = "out[b,j,i,d] = x[b,i,j,d]",
    .source = "common/ops/transpose.h",
    SIGNATURE(transpose, params, args),
    .cases = "batch=1 rows=1 columns=1; batch=3 rows=5 columns=7; batch=2 rows=33 columns=16; "
             "batch=1 rows=72 columns=40; batch=2 rows=5 columns=7 width=2,3,8; "
             "batch=1 rows=40 columns=33 width=3; batch=2 rows=3 columns=5 width=33,64,257",
    .shapes =
        "batch=1 rows=1 columns=257; batch=1 rows=257 columns=1; "
        "batch=2 rows=31,32,33 columns=31,32,33; batch=1 rows=127,128,132 columns=136,137; "
        "batch=5 rows=3 columns=260; batch=300 rows=2 columns=3; batch=1 rows=64 columns=256; "
        "batch=2 rows=33,67 columns=35,66 width=2,3,4,5; batch=1 rows=64 columns=72 width=2,3,5; "
        "batch=1 rows=17,32 columns=19,32 width=8,12,33,64; batch=3 rows=2 columns=300 width=2,3; "
        "batch=3 rows=301 columns=2 width=3,4; batch=1 rows=1,70 columns=1,90 width=6,7; "
        "batch=2 rows=9 columns=11 width=63,65,72,100,127,257; batch=1 rows=2 columns=3 "
        "width=2500,2501,5000; batch=300 rows=3 columns=5 width=3,7",
    .large = large,
    IDENTITIES(identities),
    .flops = flops,
    .batch = 'B',
};
