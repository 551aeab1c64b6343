/* The contract of gemm_quantised: sizes, tensors, costs. */
#include "common/ops/gemm_quantised.h"
#include "common/ops/quantised_op.h"

static const char *const fills[] = {"normal", "spikes", NULL};

static const struct param params[] = {
    QUANTISED_PARAMS(quantised_data, "N(0, 1 / dim_in) about, random bytes, or hard blocks"),
    [GEMM_QUANTISED_M] = SIZE_PARAM("rows", 'M', 1, "rows of x"),
    [GEMM_QUANTISED_L] = SIZE_PARAM("weights", 'L', 1, "matrices W, each with an x and a y"),
    DRAW_PARAM("fill", fills, 0, "how x is drawn: N(0, 1), or one of 32 is 30 times as large"),
};

/* One matrix needs no axis of them. */
#define SHAPE(name, one, many) OF_CALL(const char *, name, DIM(f, 'L') == 1 ? (one) : (many))
SHAPE(shape_of_rows, "NR", "LNR")
SHAPE(shape_of_bytes, "P", "LP")
SHAPE(of_blocks, "B", "LB")
SHAPE(of_groups, "C", "LC")
SHAPE(of_one, "A", "LA")
SHAPE(of_x, "MK", "LMK")
SHAPE(of_y, "MN", "LMN")

OF_CALL(const char *, of_W, quantised_is_nf4(f) ? shape_of_bytes(f) : shape_of_rows(f))

/* nf4 knows no rows. */
OF_CALL(const char *, sample_of_y, quantised_is_nf4(f) ? "M" : "MN")
OF_CALL(const char *, sample_of_x, ((void)f, "M"))

/* With the largest no sum is infinite. */
static void draw_scales(const struct call *f, int arg, uint64_t key, double *x)
{
    quantised_draw_scales(f, arg, key, x, (struct scale_range){12, 0x1p60});
}

static const struct arg args[] = {
    ARG(gemm_quantised, W, "P", IN | BYTES | PARAMETER, .shape_of = of_W, .stands_for = "NK",
        .draw_bytes = quantised_draw, .bytes_check = quantised_check),
    ARG(gemm_quantised, absmax, "B", IN | WIDE | SCALES, .shape_of = of_blocks,
        .when = quantised_is_single, .draw = draw_scales),
    ARG(gemm_quantised, absmax8, "B", IN | BYTES | SCALES, .shape_of = of_blocks,
        .when = quantised_is_double),
    ARG(gemm_quantised, absmax2, "C", IN | WIDE | SCALES, .shape_of = of_groups,
        .when = quantised_is_double, .draw = draw_scales),
    ARG(gemm_quantised, offset, "A", IN | WIDE | SCALES, .shape_of = of_one,
        .when = quantised_is_double, .draw = draw_scales),
    ARG(gemm_quantised, x, "MK", IN | DIFF | NOT_BACK, NORMAL, .shape_of = of_x,
        .fill_choice = "fill", .sample = sample_of_x),
    ARG(gemm_quantised, y, "MN", OUT | DIFF, .shape_of = of_y, .sample = sample_of_y),
};

COST(flops, "LMNK", 2, 2)

static const struct refusal refused[] = {
    {"format=q4_k dim_in=4544", "rows of q4_k are blocks of 256, 192 are left over; q8_0 and nf4"},
    {"format=q8_0 dim_in=33", "rows of q8_0 are blocks of 32, 1 are left over; nf4 takes it"},
    {"format=nf4 block=96", "block = 96: 32, 64, 128 or 256"},
    {NULL, NULL}};

static const struct cost costs[] = {
    {"format=q8_0 rows=3 dim_in=32 dim_out=5 weights=2", FORWARD, 1920, 1920, 0, {0, 0, 0}},
    {.settings = NULL},
};

#define EACH_DATA " data=weights,random,hard; "
#define K_QUANTS "format=q4_k,q5_k,q6_k"
#define EITHER_NF4 "format=nf4 double_quant=yes,no"

const struct op op_gemm_quantised = {
    .name = "gemm_quantised",
    .formula = "y = x W^T, W quantised",
    .source = "common/ops/gemm_quantised.h",
    SIGNATURE(gemm_quantised, params, args),
    .axis = quantised_axes,
    .cases = K_QUANTS
    ",q8_0 rows=1,3 dim_out=5 dim_in=256" EACH_DATA K_QUANTS " rows=17 dim_out=33 dim_in=768; "
    "format=q4_k,q8_0,nf4 rows=2,9 dim_out=3 dim_in=4352; format=q4_k,q6_k,nf4 rows=40 dim_out=33 "
    "dim_in=256; "
    "format=q8_0 rows=2 dim_out=1 dim_in=32,96; format=q8_0 rows=2 dim_out=9 dim_in=32" EACH_DATA
        EITHER_NF4 " rows=1,3 dim_out=1,3 dim_in=1,63,65,100" EACH_DATA EITHER_NF4
    " rows=2 dim_out=7 dim_in=700 block=32,128,256; " K_QUANTS
    ",q8_0 weights=3 rows=1,5 dim_out=6 dim_in=512; " EITHER_NF4
    " weights=2,3 rows=2 dim_out=5 dim_in=65,96; "
    "fill=spikes format=q4_k,q6_k,q8_0 rows=3 dim_out=33 dim_in=256",
    .shapes = K_QUANTS ",q8_0 rows=1,2,7,8,9,16,31,64,65 dim_out=131 dim_in=1024; " K_QUANTS
                       ",q8_0 rows=129 dim_out=65 dim_in=768; "
                       "format=nf4 rows=1,16,33,65 dim_out=129 dim_in=1024; "
                       "format=nf4 rows=1,4,17 dim_out=67 dim_in=1031 double_quant=yes,no; "
                       "format=q4_k rows=1 dim_out=4097 dim_in=256; "
                       "format=q4_k,q8_0 rows=4 dim_out=3 dim_in=14336 weights=5",
    .refused = refused,
    .cost = costs,
    .derive = quantised_derive,
    .flops = flops,
    .products = flops,
    .batch = 'M',
    .blas = 1,
    .sites = "W",
};
