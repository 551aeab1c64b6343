/* The contract of transpose: sizes, tensors, costs, cases with known results. */
#include "common/call/contract.h"
#include "common/ops/transpose.h"

static const struct param params[] = {
    SIZE_PARAM("batch", 'B', 1, "matrices"),
    SIZE_PARAM("rows", 'M', 1024, "rows of x"),
    SIZE_PARAM("columns", 'N', 1024, "columns of x"),
};

OF_CALL(const char *, each, ((void)f, "BMN"))

static const struct arg args[] = {
    ARG(transpose, x, "BMN", IN | DIFF | NOT_BACK, NORMAL, .sample = each),
    ARG(transpose, out, "BNM", OUT | DIFF, .sample = each),
};

/* A vector is its own transpose. */
static const struct identity identities[] = {
    {"a row is a column", "batch=2 rows=1 columns=75", "batch=2 rows=75 columns=1", "", "", "out x",
     NULL},
};

/* Nothing is computed. */
COST(flops, "", 0, 0)

static const char *const large[] = {"rows=46349 columns=46351", NULL};

const struct op op_transpose = {
    .name = "transpose",
    .formula = "out[b,j,i] = x[b,i,j]",
    .source = "common/ops/transpose.h",
    SIGNATURE(transpose, params, args),
    .cases = "batch=1 rows=1 columns=1; batch=3 rows=5 columns=7; batch=2 rows=33 columns=16; "
             "batch=1 rows=72 columns=40",
    .shapes = "batch=1 rows=1 columns=257; batch=1 rows=257 columns=1; "
              "batch=2 rows=31,32,33 columns=31,32,33; batch=1 rows=127,128,132 columns=136,137; "
              "batch=5 rows=3 columns=260; batch=300 rows=2 columns=3; batch=1 rows=64 columns=256",
    .large = large,
    IDENTITIES(identities),
    .flops = flops,
    .batch = 'B',
};
