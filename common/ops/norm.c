/* The contracts of rmsnorm, layernorm and qk_norm: sizes, tensors, costs, identities. */
#include "common/call/contract.h"
#include "common/ops/norm.h"

#define EPS_PARAM REAL_PARAM("eps", 1e-6, 0, 1e6, "added to the mean square, under the root")

static const char *const fills[] = {"normal", "offset", "tiny", NULL};

#define FILL DRAW_PARAM("fill", fills, 0, "how rows are drawn: N(0, 1), 1000 + N(0, 1), or small")

static const struct param params[] = {
    SIZE_PARAM("rows", 'R', 4096, "rows of x"),
    SIZE_PARAM("columns", 'N', 1024, "columns of x"),
    [NORM_EPS] = EPS_PARAM,
    FILL,
};

static const struct param qk_params[] = {
    SIZE_PARAM("batch", 'B', 4, "sequences"),
    SIZE_PARAM("steps", 'T', 512, "steps of a sequence"),
    SIZE_PARAM("heads", 'H', 16, "heads of q"),
    SIZE_PARAM("kv_heads", 'G', 4, "heads of k"),
    SIZE_PARAM("head_dim", 'D', 128, "columns of a head"),
    [QK_NORM_EPS] = EPS_PARAM,
    FILL,
};

static const struct arg rms_args[] = {
    ARG(rmsnorm, x, "RN", IN | DIFF, NORMAL, .fill_choice = "fill"),
    ARG(rmsnorm, w, "N", IN | DIFF | WIDE_GRAD | PARAMETER, NORMAL),
    ARG(rmsnorm, y, "RN", OUT | DIFF),
    ARG(rmsnorm, rstd, "R", SAVED | WIDE),
};

static const struct arg layer_args[] = {
    ARG(layernorm, x, "RN", IN | DIFF, NORMAL, .fill_choice = "fill"),
    ARG(layernorm, w, "N", IN | DIFF | WIDE_GRAD | PARAMETER, NORMAL),
    ARG(layernorm, b, "N", IN | DIFF | WIDE_GRAD | PARAMETER | NOT_BACK, NORMAL),
    ARG(layernorm, y, "RN", OUT | DIFF),
    ARG(layernorm, mean, "R", SAVED | WIDE),
    ARG(layernorm, rstd, "R", SAVED | WIDE),
};

OF_CALL(const char *, each, ((void)f, "BT"))

static const struct arg qk_args[] = {
    ARG(qk_norm, q, "BTHD", IN | DIFF, NORMAL, .fill_choice = "fill", .sample = each),
    ARG(qk_norm, k, "BTGD", IN | DIFF, NORMAL, .fill_choice = "fill", .sample = each),
    ARG(qk_norm, w_q, "D", IN | DIFF | WIDE_GRAD | PARAMETER, NORMAL),
    ARG(qk_norm, w_k, "D", IN | DIFF | WIDE_GRAD | PARAMETER, NORMAL),
    ARG(qk_norm, y_q, "BTHD", OUT | DIFF, .sample = each),
    ARG(qk_norm, y_k, "BTGD", OUT | DIFF, .sample = each),
    ARG(qk_norm, rstd_q, "BTH", SAVED | WIDE, .sample = each),
    ARG(qk_norm, rstd_k, "BTG", SAVED | WIDE, .sample = each),
};

COST(rms_flops, "RN", 4, 9)
COST(layer_flops, "RN", 8, 14)
OF_CALL(double, all_heads, (double)DIM(f, 'H') + DIM(f, 'G'))
COST(qk_flops, "BTD", 4 * all_heads(f), 9 * all_heads(f))

/* A root and its reciprocal, which backward finds kept. */
COST(specials, "R", 2, 0)
COST(qk_specials, "BT", 2 * all_heads(f), 0)

/* With few elements per row and a small eps, dx is little more than rounding; with one element per
 * row, layernorm's dx is 0. */
#define CASES                                                                                      \
    "rows=7 columns=3 eps=0.5; rows=5 columns=33; rows=37 columns=64; "                            \
    "rows=9 columns=520 eps=0.01; rows=3 columns=520; rows=3 columns=1111; "                       \
    "rows=1200 columns=520; rows=2 columns=20000; rows=3 columns=10001; "                          \
    "fill=offset,tiny rows=13 columns=96; fill=offset rows=6 columns=520; fill=tiny rows=6 "       \
    "columns=2600"
#define SHAPES                                                                                     \
    "rows=513 columns=1 eps=0.25; rows=257 columns=31; rows=131 columns=8 eps=0.1; "               \
    "rows=67 columns=128; rows=61 columns=130; rows=31 columns=257; rows=9 columns=768; "          \
    "rows=3 columns=1023; rows=5 columns=1032; rows=1 columns=2049; rows=3 columns=2056; "         \
    "rows=1 columns=4104; rows=1 columns=7919; rows=1 columns=8193; "                              \
    "rows=300 columns=2,5,11,13,26,50; rows=19 columns=70,100,197,300,390,638,770,1001; "          \
    "fill=offset,tiny rows=9 columns=40,300,1031,2600,8200"

/* The members that both share. */
#define ROWS .shapes = SHAPES, .specials = specials, .batch = 'R'

const struct op op_rmsnorm = {
    .name = "rmsnorm",
    .formula = "y = w x / sqrt(mean(x^2) + eps)",
    .source = "common/ops/norm.h",
    ROWS,
    SIGNATURE(rmsnorm, params, rms_args),
    .sites = "xhat dxhat",
    .cases = "rows=1 columns=1 eps=0.25; " CASES,
    .flops = rms_flops,
};

const struct op op_layernorm = {
    .name = "layernorm",
    .formula = "y = w (x - mean) / sqrt(var + eps) + b",
    .source = "common/ops/norm.h",
    ROWS,
    SIGNATURE(layernorm, params, layer_args),
    .sites = "xhat dxhat",
    .cases = CASES,
    .flops = layer_flops,
};

const struct op op_qk_norm = {
    .name = "qk_norm",
    .formula = "rmsnorm of each head of q and of k",
    .source = "common/ops/norm.h",
    SIGNATURE(qk_norm, qk_params, qk_args),
    .sites = "xhat dxhat",
    .cases = "batch=1 steps=1 heads=1 kv_heads=1 head_dim=1 eps=0.25; "
             "batch=2 steps=5 heads=4 kv_heads=2 head_dim=16; "
             "batch=3 steps=2 heads=3 kv_heads=1 head_dim=33; "
             "batch=2 steps=3 heads=4 kv_heads=1 head_dim=128; "
             "batch=1 steps=2 heads=2 kv_heads=1 head_dim=9000; "
             "fill=offset,tiny batch=2 steps=3 heads=4 kv_heads=2 head_dim=64",
    .shapes = "batch=3 steps=31 heads=5 kv_heads=1 head_dim=7 eps=0.1; "
              "batch=1 steps=33 heads=8 kv_heads=8 head_dim=32; "
              "batch=2 steps=7 heads=6 kv_heads=3 head_dim=129; "
              "batch=5 steps=3 heads=7 kv_heads=7 head_dim=72; "
              "batch=1 steps=1 heads=3 kv_heads=2 head_dim=1031",
    .flops = qk_flops,
    .specials = qk_specials,
    .batch = 'B',
};
