/* The contracts of quantised weights: formats, sizes, tensors, how valid blocks are drawn. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/half.h"
#include "common/ops/quantised_op.h"

/* ---- parameters and sizes ---- */

const char *const quantised_formats[] = {"q4_k", "q5_k", "q6_k", "q8_0", "nf4", NULL};
const char *const quantised_data[] = {"weights", "random", "hard", NULL};

static int is_k_quant(const struct call *f)
{
    return quantised_format(f) <= Q6_K;
}

int quantised_is_single(const struct call *f)
{
    return quantised_is_nf4(f) && !f->choice[QUANTISED_DOUBLE];
}

int quantised_is_double(const struct call *f)
{
    return quantised_is_nf4(f) && f->choice[QUANTISED_DOUBLE];
}

const char *quantised_only_nf4(const struct call *f)
{
    return quantised_is_nf4(f) ? NULL : "only nf4 has it";
}

int quantised_whole_blocks(const struct call *f)
{
    return quantised_is_nf4(f) ? 1 : quantised_block(quantised_format(f)).weights;
}

OF_CALL(int, has_rows, !quantised_is_nf4(f))
OF_CALL(const char *, shape_of_W, quantised_is_nf4(f) ? "P" : "NR")

static const struct param params[] = {
    QUANTISED_PARAMS(quantised_data, "N(0, 1 / dim_in) about, random bytes, or hard blocks")};

const struct axis quantised_axes[] = {{'R', "row_bytes"}, {'P', "bytes"}, {'B', "blocks"},
                                      {'C', "groups"},    {'A', "one"},   {0, NULL}};

static int64_t round_up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

static int no_whole_blocks(const struct call *f, int block)
{
    const int64_t K = DIM(f, 'K');
    return err_set("dim_in = %" PRId64 ": rows of %s are blocks of %d, %d are left over; %s", K,
                   quantised_formats[quantised_format(f)], block, (int)(K % block),
                   K % 32 ? "nf4 takes it" : "q8_0 and nf4 take it");
}

int quantised_derive(struct call *f)
{
    const struct quantised_block b = quantised_block(quantised_format(f));
    const int64_t K = DIM(f, 'K'), n = DIM(f, 'N') * K, block = DIM(f, 'G');

    DIM(f, 'A') = 1;
    DIM(f, 'R') = DIM(f, 'P') = DIM(f, 'B') = DIM(f, 'C') = 1;
    if (quantised_is_nf4(f) && block & (block - 1))
        return err_set("block = %" PRId64 ": 32, 64, 128 or 256", block);
    if (!quantised_is_nf4(f)) {
        DIM(f, 'R') = K / b.weights * b.bytes;
        return K % b.weights ? no_whole_blocks(f, b.weights) : 0;
    }
    DIM(f, 'P') = round_up(n, 2);
    DIM(f, 'B') = round_up(n, block);
    DIM(f, 'C') = round_up(DIM(f, 'B'), NF4_GROUP);
    return 0;
}

/* ---- blocks ---- */

/* Where a block has its fp16 scales: d, and dmin, or -1. */
struct scales {
    int d, dmin;
};

static struct scales scales_of(enum quantised format)
{
    switch (format) {
    case Q4_K:
    case Q5_K: return (struct scales){0, 2};
    case Q6_K: return (struct scales){208, -1};
    case Q8_0: return (struct scales){0, -1};
    default: return (struct scales){-1, -1};
    }
}

static void put_f16(unsigned char *to, unsigned bits)
{
    to[0] = (unsigned char)bits;
    to[1] = (unsigned char)(bits >> 8);
}

static unsigned get_f16(const unsigned char *at)
{
    return at[0] | (unsigned)at[1] << 8;
}

/* The 6 bits each of 8 scales and 8 minima in a q4_k's or q5_k's a[12]. */
static void put_a(unsigned char *a, const unsigned char *s, const unsigned char *m)
{
    for (int j = 0; j < 4; j++) {
        a[j] = (unsigned char)(s[j] | (s[4 + j] >> 4) << 6);
        a[4 + j] = (unsigned char)(m[j] | (m[4 + j] >> 4) << 6);
        a[8 + j] = (unsigned char)((s[4 + j] & 15) | (m[4 + j] & 15) << 4);
    }
}

/* Scales for a block of random bytes, so that its weights have mean 0, about, and this deviation. */
static void scale_weights(enum quantised format, unsigned char *block, double deviation)
{
    /* The mean of a scale, and the deviation of a random q, whose mean is off from dmin's. */
    static const double scale[] = {47.5, 47.5, 95.5, 1}, q[] = {4.61, 9.23, 18.5, 74};
    const struct scales at = scales_of(format);
    const double d = deviation / scale[format] / q[format];
    unsigned char s[8];

    put_f16(block + at.d, to_f16((float)d).bits);
    if (format == Q6_K)
        for (int j = 0; j < 16; j++) /* from 64 on, of both signs */
            block[192 + j] =
                block[192 + j] & 1 ? 64 + block[192 + j] % 64 : 192 - block[192 + j] % 64;
    if (at.dmin < 0)
        return;
    put_f16(block + at.dmin, to_f16((float)(d * (format == Q4_K ? 7.5 : 15.5))).bits);
    for (int j = 0; j < 8; j++)
        s[j] = 32 + block[4 + j] % 32;
    put_a(block + 4, s, s);
}

/* A finite fp16: of the others the highest bit of the exponent is taken away. */
static void make_finite(unsigned char *at)
{
    const unsigned bits = get_f16(at);
    put_f16(at, (bits & 0x7c00) == 0x7c00 ? bits & ~0x4000u : bits);
}

/* Kinds of blocks that are hard, one after the other. */
enum { ZEROS, SUBNORMAL, LARGEST, ONES, NEGATIVE, NO_SCALE, ONE_HOT, MINUS_ZERO, N_KINDS };

static void make_hard(enum quantised format, unsigned char *block, int kind)
{
    const int bytes = quantised_block(format).bytes;
    const struct scales at = scales_of(format);
    const unsigned random = get_f16(block + at.d) & 1023;
    static const unsigned d[N_KINDS] = {0, 0, 0x7bff, 0x3c00, 0xbc00, 0x0000, 0x3c00, 0x8000};
    unsigned char last = block[bytes - 3];

    if (kind == ZEROS || kind == ONES || kind == ONE_HOT)
        memset(block, kind == ONES ? 0xff : 0, (size_t)bytes);
    if (kind == ONE_HOT)
        block[bytes - 3] = last;
    put_f16(block + at.d, kind == SUBNORMAL ? 1 + random / 2 : d[kind]);
    if (at.dmin >= 0)
        put_f16(block + at.dmin, kind == NO_SCALE    ? 0x3c00
                                 : kind == SUBNORMAL ? 1023 - random / 2
                                                     : d[kind]);
}

/* ---- how tensors are drawn ---- */

/* Blocks of random bytes, and the scales that `data` says. */
void quantised_draw(const struct call *f, int arg, uint64_t key, unsigned char *b)
{
    const enum quantised format = quantised_format(f);
    const int bytes = quantised_block(format).bytes;
    const int64_t n = op_count(f, arg) / bytes;
    const double deviation = 1 / sqrt((double)DIM(f, 'K'));
    const int first = (int)(N_KINDS * draw_uniform(key, UINT64_MAX));

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        unsigned char *block = b + i * bytes;
        const struct scales at = scales_of(format);
        for (int k = 0; k < bytes; k++)
            block[k] = (unsigned char)(256 * draw_uniform(key, i * bytes + k));
        if (format == NF4)
            continue;
        if (f->choice[QUANTISED_DATA] == DATA_WEIGHTS)
            scale_weights(format, block, deviation);
        else if (f->choice[QUANTISED_DATA] == DATA_HARD)
            make_hard(format, block, (int)((i + first) % N_KINDS));
        make_finite(block + at.d);
        if (at.dmin >= 0)
            make_finite(block + at.dmin);
    }
}

void quantised_draw_scales(const struct call *f, int arg, uint64_t key, double *x,
                           struct scale_range range)
{
    const double hard[] = {1, 0x1p-149, 0, -0.0, 0x1p-127, range.largest, -1};
    const int64_t n = op_count(f, arg);

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        const double u = draw_uniform(key, 2 * i), v = draw_uniform(key, 2 * i + 1);
        switch (f->choice[QUANTISED_DATA]) {
        case DATA_WEIGHTS: x[i] = (2 + u) / sqrt((double)DIM(f, 'K')); break;
        case DATA_RANDOM:
            x[i] = (v < 0.5 ? -1 : 1) * (1 + v) *
                   exp2(floor(2 * range.exponents * u) - range.exponents);
            break;
        default: x[i] = hard[i % (int64_t)COUNT(hard)];
        }
    }
}

/* With the largest no weight is infinite. */
static void draw_absmax(const struct call *f, int arg, uint64_t key, double *x)
{
    quantised_draw_scales(f, arg, key, x, (struct scale_range){125, 0x1p120});
}

/* ---- what is refused ---- */

int quantised_check(const struct call *f, int arg, const char *place, const unsigned char *b)
{
    const enum quantised format = quantised_format(f);
    const int bytes = quantised_block(format).bytes;
    const struct scales at = scales_of(format);
    const int64_t n = op_count(f, arg) / bytes;

    for (int64_t i = 0; format != NF4 && i < n; i++)
        for (int k = 0; k < 2; k++) {
            const int from = k ? at.dmin : at.d;
            const unsigned bits = from < 0 ? 0 : get_f16(b + i * bytes + from);
            if ((bits & 0x7c00) == 0x7c00)
                return err_set("%s: block %" PRId64 " has scale %s", place, i,
                               bits & 1023     ? "nan"
                               : bits & 0x8000 ? "-inf"
                                               : "inf");
        }
    return 0;
}

/* ---- dequantise ---- */

static const struct arg args[] = {
    ARG(dequantise, W, "P", IN | BYTES | PARAMETER, .shape_of = shape_of_W, .stands_for = "NK",
        .draw_bytes = quantised_draw, .bytes_check = quantised_check),
    ARG(dequantise, absmax, "B", IN | WIDE | SCALES, .when = quantised_is_single,
        .draw = draw_absmax),
    ARG(dequantise, absmax8, "B", IN | BYTES | SCALES, .when = quantised_is_double),
    ARG(dequantise, absmax2, "C", IN | WIDE | SCALES, .when = quantised_is_double,
        .draw = draw_absmax),
    ARG(dequantise, offset, "A", IN | WIDE | SCALES, .when = quantised_is_double,
        .draw = draw_absmax),
    ARG(dequantise, w, "NK", OUT | BIT_EXACT),
};

/* A product and a sum. */
COST(flops, "NK", 2, 0)

static const struct refusal refused[] = {
    {"format=q4_k dim_in=4544", "rows of q4_k are blocks of 256, 192 are left over; q8_0 and nf4"},
    {"format=q6_k dim_in=300", "44 are left over; nf4 takes it"},
    {"format=q8_0 dim_in=33", "rows of q8_0 are blocks of 32, 1 are left over; nf4 takes it"},
    {"format=nf4 block=96", "block = 96: 32, 64, 128 or 256"},
    {NULL, NULL}};

#define EACH_DATA " data=weights,random,hard; "
#define K_QUANTS "format=q4_k,q5_k,q6_k"

const struct op op_dequantise = {
    .name = "dequantise",
    .formula = "w = the weights that the bytes W stand for, exactly",
    .source = "common/ops/quantised.h",
    SIGNATURE(dequantise, params, args),
    .axis = quantised_axes,
    .cases = K_QUANTS
    " dim_out=1,3 dim_in=256,768" EACH_DATA "format=q8_0 dim_out=1,5 dim_in=32,96" EACH_DATA
    "format=nf4 double_quant=yes,no dim_out=1,3 dim_in=1,63,65,100" EACH_DATA
    "format=nf4 double_quant=yes,no dim_out=33 dim_in=700 block=32,128,256" EACH_DATA,
    .shapes = K_QUANTS ",q8_0 dim_out=33 dim_in=11008 data=weights; " K_QUANTS
                       ",q8_0 dim_out=257 dim_in=512 data=random; "
                       "format=nf4 double_quant=yes,no dim_out=4097 dim_in=31 data=weights; "
                       "format=nf4 dim_out=31 dim_in=14336 block=32,64 data=random",
    .refused = refused,
    .derive = quantised_derive,
    .flops = flops,
    .batch = 'N',
    .batch_when = has_rows,
};

/* ---- quantise ---- */

enum { HEAVY = DATA_WEIGHTS + 1 };
static const char *const drawn[] = {"weights", "heavy", "hard", NULL};
static const char *const searches[] = {"plain", "published", "wide", NULL};

OF_CALL(const char *, only_k_quants,
        is_k_quant(f) ? NULL : "only q4_k, q5_k and q6_k have scales to search for")
OF_CALL(int, has_importance, is_k_quant(f) && f->choice[QUANTISE_IMPORTANCE])

static const struct param quantise_params[] = {
    QUANTISED_PARAMS(drawn, "N(0, 1 / dim_in), heavy tails, or hard blocks"),
    [QUANTISE_SEARCH] = {.name = "search",
                         .choices = searches,
                         .initial = WIDE_SEARCH,
                         .help = "how the scales are found",
                         .unless = only_k_quants},
    [QUANTISE_IMPORTANCE] = {.name = "importance",
                             .choices = no_yes,
                             .help = "is an error weighted, by its place in the row?",
                             .unless = only_k_quants}};

/* Student's t of 4 degrees, about: normal by the root of a sum of squares. */
static double heavy(uint64_t key, uint64_t i)
{
    double squares = 0;
    for (int k = 0; k < 4; k++)
        squares += pow(draw_normal(key ^ 1, 4 * i + k), 2);
    return draw_normal(key, i) / sqrt(squares / 4);
}

/* Blocks of 32: zeros; one weight alone; all equal; all negative; halves between codes of q8_0;
 * subnormal; large; of both zeros; with scales below fp16; all
 * positive. */
static double hard_weight(uint64_t key, uint64_t i)
{
    const uint64_t block = i / 32, k = i % 32;
    const double x = draw_normal(key, i);

    switch ((block + (uint64_t)(10 * draw_uniform(key, UINT64_MAX))) % 10) {
    case 0: return 0;
    case 1: return k == (uint64_t)(32 * draw_uniform(key ^ 1, block)) ? x : 0;
    case 2: return draw_normal(key, block);
    case 3: return -fabs(x);
    case 4: return k ? (double)k - 15.5 : 127;
    case 5: return x * 0x1p-130;
    case 6: return x * 4e5;
    case 7: return k % 2 ? 0.0 : -0.0;
    case 8: return x * 0x1p-20;
    default: return 3 + fabs(x);
    }
}

static void draw_w(const struct call *f, int arg, uint64_t key, double *x)
{
    const int64_t n = op_count(f, arg);
    const double fan = 1 / sqrt((double)DIM(f, 'K'));

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        x[i] = f->choice[QUANTISED_DATA] == DATA_WEIGHTS ? fan * draw_normal(key, (uint64_t)i)
               : f->choice[QUANTISED_DATA] == HEAVY      ? fan * heavy(key, (uint64_t)i)
                                                         : hard_weight(key, (uint64_t)i);
}

/* Hard: zeros throughout a block, and any exponent. */
static void draw_importance(const struct call *f, int arg, uint64_t key, double *x)
{
    const int64_t n = op_count(f, arg);
    const int hard = f->choice[QUANTISED_DATA] == DATA_HARD;

    for (int64_t i = 0; i < n; i++) {
        const double z = draw_normal(key, (uint64_t)i);
        x[i] = !hard ? z * z : i / 32 % 3 ? exp2(floor(20 * z)) : 0;
    }
}

static int check_importance(const struct call *f, int arg, const char *place, const double *x)
{
    const int64_t n = op_count(f, arg);

    for (int64_t i = 0; i < n; i++)
        if (!(x[i] >= 0 && x[i] <= FLT_MAX))
            return err_set("%s has %g at [%" PRId64 "]: 0 or more", place, x[i], i);
    return 0;
}

/* A scale must be finite, in fp16 but for nf4's. */
static int check_w(const struct call *f, int arg, const char *place, const double *x)
{
    static const double largest[] = {63 * 65504.0, 63 * 65504.0, 32 * 128 * 65504.0, 127 * 65519.0,
                                     INFINITY};
    const int64_t n = op_count(f, arg), K = DIM(f, 'K');
    const double bound = largest[quantised_format(f)];

    for (int64_t i = 0; i < n; i++) {
        if (isfinite(x[i]) && fabs(x[i]) < bound)
            continue;
        err_set("%s has %g at [%" PRId64 ",%" PRId64 "]", place, x[i], i / K, i % K);
        return isfinite(x[i]) ? err_more(": %s's fp16 scale ends at 65504",
                                         quantised_formats[quantised_format(f)])
                              : err_more(": only finite weights are quantised");
    }
    return 0;
}

/* A candidate of a search is some 20 a weight. */
static double quantise_flops(const struct call *f, enum pass p)
{
    const enum quantise_search search = f->choice[QUANTISE_SEARCH];
    const int importance = f->choice[QUANTISE_IMPORTANCE];
    const int last = search != WIDE_SEARCH ? 1 : quantised_format(f) == Q6_K ? 7 : 49;
    double each = 2;

    if (is_k_quant(f))
        each = 20 * quantise_steps(quantised_format(f), search, importance).count + 10 * last;
    return p == FORWARD ? op_product(f, "NK") * each : 0;
}

static const struct arg quantise_args[] = {
    ARG(quantise, w, "NK", IN, .draw = draw_w, .values_check = check_w),
    ARG(quantise, importance, "K", IN, .when = has_importance, .draw = draw_importance,
        .values_check = check_importance),
    ARG(quantise, W, "P", OUT | BYTES, .shape_of = shape_of_W, .stands_for = "NK"),
    ARG(quantise, absmax, "B", OUT | WIDE | BIT_EXACT, .when = quantised_is_single),
    ARG(quantise, absmax8, "B", OUT | BYTES, .when = quantised_is_double),
    ARG(quantise, absmax2, "C", OUT | WIDE | BIT_EXACT, .when = quantised_is_double),
    ARG(quantise, offset, "A", OUT | WIDE | BIT_EXACT, .when = quantised_is_double),
};

static const struct refusal quantise_refused[] = {
    {"format=q8_0 dim_in=33", "rows of q8_0 are blocks of 32, 1 are left over; nf4 takes it"},
    {"format=nf4 block=48", "block = 48: 32, 64, 128 or 256"},
    {"format=q4_k dim_in=4544", "rows of q4_k are blocks of 256, 192 are left over"},
    {NULL, NULL}};

#define EACH_DRAWN " data=weights,heavy,hard; "

const struct op op_quantise = {
    .name = "quantise",
    .formula = "W = w in 8 or 4 bits a weight, with a scale for each block",
    .source = "common/ops/quantised.h",
    SIGNATURE(quantise, quantise_params, quantise_args),
    .axis = quantised_axes,
    .cases =
        K_QUANTS " dim_out=1,3 dim_in=256 search=plain,published,wide" EACH_DRAWN K_QUANTS
                 " dim_out=3 dim_in=512 importance=yes search=plain,published,wide" EACH_DRAWN
                 "format=q8_0 dim_out=1,5 dim_in=32,96,512" EACH_DRAWN
                 "format=nf4 double_quant=yes,no dim_out=1,3 dim_in=1,63,65,100" EACH_DRAWN
                 "format=nf4 double_quant=yes,no dim_out=33 dim_in=700 block=32,128,256" EACH_DRAWN,
    .shapes = K_QUANTS " dim_out=33 dim_in=768 search=published; "
                       "format=q4_k dim_out=5 dim_in=11008 search=plain; "
                       "format=q8_0 dim_out=33 dim_in=11008 data=weights; "
                       "format=q8_0 dim_out=257 dim_in=512 data=heavy; "
                       "format=nf4 double_quant=yes,no dim_out=4097 dim_in=31 data=weights; "
                       "format=nf4 dim_out=31 dim_in=14336 block=32,64 data=heavy",
    .refused = quantise_refused,
    .inverse = &op_dequantise,
    .derive = quantised_derive,
    .flops = quantise_flops,
    .batch = 'N',
    .batch_when = has_rows,
};
