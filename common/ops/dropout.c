/* The contract of dropout: sizes, tensors, costs, cases with known results. */
#include <math.h>

#include "common/call/contract.h"
#include "common/ops/dropout.h"

static const char *const fills[] = {"normal", "masked", NULL};

static const char *no_dropout(const struct call *f)
{
    return f->real[DROPOUT_P] > 0 ? NULL : "nothing is dropped";
}

static const struct param params[] = {
    [DROPOUT_ROWS] = SIZE_PARAM("rows", 'M', 4096, "rows"),
    [DROPOUT_DIM] = SIZE_PARAM("dim", 'D', 256, "columns"),
    [DROPOUT_P] = REAL_PARAM("dropout", 0.1, 0, DROPOUT_MOST, "share of the elements dropped"),
    [DROPOUT_SEED] = DROPOUT_SEED_PARAM('X', no_dropout),
    [DROPOUT_STEP] = DROPOUT_STEP_PARAM('U', no_dropout),
    [DROPOUT_FILL] = FILL_PARAM(fills, "x"),
};

static const struct axis axes[] = {{'O', "one"}, {0, NULL}};

DRAW_ONE(draw_counter, (double)DIM(f, 'U'))

static const struct arg args[] = {
    ARG(dropout, x, "MD", IN | DIFF | NOT_BACK, NORMAL, .fill_choice = "fill"),
    ARG(dropout, counter, "O", IN | WHOLE, .draw = draw_counter, .settled = 1),
    ARG(dropout, y, "MD", OUT | DIFF, .overwrites = "x"),
};

static int derive(struct call *f)
{
    DIM(f, 'O') = 1;
    return 0;
}

COST(flops, "MD", 1, 1)

static const struct cost costs[] = {
    {"rows=3 dim=4", FORWARD, 12, 0, 0, {0, 0, 0}},
    {"rows=3 dim=4", BACKWARD, 12, 0, 0, {0, 0, 0}},
    {.settings = NULL},
};

static const struct identity identities[] = {
    {"u is taken modulo 2^32", "rows=5 dim=9 dropout=0.5 dropout_step=3",
     "rows=5 dim=9 dropout=0.5", "", "counter=4294967299", "y x", NULL},
    {"and so are those below 0", "rows=5 dim=9 dropout=0.5 dropout_step=4294967295",
     "rows=5 dim=9 dropout=0.5", "", "counter=-1", "y x", NULL},
};

/* x may be anything where it is dropped; the target is u. */
#define HALF "dim=4 dropout=0.5 dropout_seed=7"
static const struct known known[] = {
    {HALF, {INFINITY, -INFINITY, NAN, NAN}, 0, "y", {INFINITY, -INFINITY, 0, 0}},
    {HALF, {NAN, INFINITY, -INFINITY, -0.0}, 6, "y", {0, 0, 0, -0.0}},
    {HALF, {NAN, INFINITY, 0x1p-100, 3}, 3, "y", {NAN, 0, 0, 6}},
    {HALF, {NAN, INFINITY, -INFINITY, 3}, 3, "d_x", {2, 0, 0, 8}},
    {HALF, {NAN, INFINITY, -INFINITY, 3}, 5, "d_x", {2, 4, 6, 8}},
    {"dim=4 dropout=0", {NAN, INFINITY, -0.0, 0x1p-126}, 3, "y", {NAN, INFINITY, -0.0, 0x1p-126}},
    {.settings = NULL},
};

const struct op op_dropout = {
    .name = "dropout",
    .formula = "y = Z x / (1 - p), Z by Philox from a seed and a counter",
    .source = "common/ops/dropout.h",
    SIGNATURE(dropout, params, args),
    .axis = axes,
    .cases = "rows=1 dim=1 dropout=0.1,0.5; rows=10 dim=33 dropout=0,0.1,0.5; "
             "rows=3 dim=64 dropout=0.3 dropout_seed=0,4294967296,18446744073709551615 "
             "dropout_step=0,1,4294967295,4294967298; "
             "rows=7 dim=5 dropout=0.95 dropout_step=9007199254740991; "
             "rows=5 dim=1 dropout=0.5 dropout_step=3; "
             "fill=masked rows=15 dim=33 dropout=0,0.1,0.5 dropout_step=5",
    .shapes = "rows=1 dim=2,3,4,5,7,8,9,15,16,17,31,255,256,257,1023,1024,1025 dropout=0.5 "
              "dropout_step=1; rows=257 dim=1; rows=31 dim=33 dropout=0.95; rows=13 dim=1021; "
              "rows=64 dim=256; rows=101 dim=127 dropout=0,0.3; "
              "fill=masked rows=14 dim=257,1024 dropout=0.5 dropout_step=4294967303",
    .known = known,
    .cost = costs,
    IDENTITIES(identities),
    .derive = derive,
    .flops = flops,
};
