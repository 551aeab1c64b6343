/* The contract of attention: sizes, tensors, costs, cases, identities. */
#include <math.h>

#include "common/base/err.h"
#include "common/call/contract.h"
#include "common/ops/attention.h"

static const char *const masks[] = {"full", "causal", "window", NULL};
static const char *const biases[] = {"none", "alibi", "full", NULL};
static const char *const kept[] = {"as_stored", "fp32", NULL};

/* The first four are those of fill_names, of the bias where it is full, and else of k. */
enum {
    FILL_NORMAL,
    FILL_MASKED,
    FILL_SHIFTED,
    FILL_OUTLIERS,
    EQUAL,
    GROWING,
    FALLING,
    TIES,
    COMMON
};
static const char *const d_lses[] = {"drawn", "zero", NULL};
static const char *const fills[] = {"normal",  "masked",  "shifted", "outliers", "equal",
                                    "growing", "falling", "ties",    "common",   NULL};

static const char *no_window(const struct call *f)
{
    return f->choice[ATTENTION_MASK] == MASK_WINDOW ? NULL : "it is a part of mask = window";
}

static const char *no_dropout(const struct call *f)
{
    return f->real[ATTENTION_DROPOUT] > 0 ? NULL : "nothing is dropped";
}

static const struct param params[] = {
    [ATTENTION_B] = SIZE_PARAM("batch", 'B', 2, "sequences"),
    [ATTENTION_T] = SIZE_PARAM("steps", 'T', 512, "queries of a sequence"),
    [ATTENTION_H] = SIZE_PARAM("heads", 'H', 4, "heads of q"),
    [ATTENTION_KEYS] = WHOLE_PARAM("keys", 'K', 0, 0, 1 << 30, "keys of a sequence; 0: as steps"),
    [ATTENTION_KV_HEADS] = WHOLE_PARAM("kv_heads", 'J', 0, 0, 1 << 30,
                                       "heads of k and v, a divisor of heads; 0: heads"),
    [ATTENTION_D] = SIZE_PARAM("dim", 'D', 64, "width of a head of q and k, at most 256"),
    [ATTENTION_DIM_V] =
        WHOLE_PARAM("dim_v", 'F', 0, 0, 1 << 30, "width of a head of v and o; 0: dim"),
    [ATTENTION_MASK] = CHOICE_PARAM("mask", masks, MASK_CAUSAL, "which keys a query sees"),
    [ATTENTION_LEFT] = {.name = "left",
                        .letter = 'L',
                        .initial = 255,
                        .min = -1,
                        .max = 1 << 30,
                        .help = "keys that a query sees before its own; -1: all",
                        .unless = no_window},
    [ATTENTION_RIGHT] = {.name = "right",
                         .letter = 'R',
                         .min = -1,
                         .max = 1 << 30,
                         .help = "keys that a query sees after its own; -1: all",
                         .unless = no_window},
    [ATTENTION_SCALE] = REAL_PARAM("scale", 0, 0, 1e6, "factor of q k^T; 0: 1 / sqrt(dim)"),
    [ATTENTION_SOFTCAP] = REAL_PARAM("softcap", 0, 0, 1e12, "c of c tanh(u / c); 0: none"),
    [ATTENTION_BIAS] = CHOICE_PARAM("bias", biases, BIAS_NONE, "what is added to the scores"),
    [ATTENTION_SINK] = CHOICE_PARAM("sink", no_yes, 0, "one more score in a head, of no value"),
    [ATTENTION_DROPOUT] =
        REAL_PARAM("dropout", 0, 0, DROPOUT_MOST, "share of the probabilities dropped"),
    [ATTENTION_SEED] = DROPOUT_SEED_PARAM('X', no_dropout),
    [ATTENTION_STEP] = DROPOUT_STEP_PARAM('U', no_dropout),
    [ATTENTION_KEEP_O] = ASIDE_PARAM("keep_o", kept, 0, "the type of the o that backward reads"),
    [ATTENTION_FILL] = DRAW_PARAM("fill", fills, 0, "how q, k, v or bias are drawn: hard"),
    [ATTENTION_D_LSE] =
        DRAW_PARAM("d_lse", d_lses, 0, "gradient of lse; zero: as where only o is used"),
};

double attention_scale(const struct call *f)
{
    const double scale = f->real[ATTENTION_SCALE];
    return scale == 0 ? 1 / sqrt((double)DIM(f, 'D')) : scale;
}

static const struct axis axes[] = {
    {'S', "key"}, {'G', "kv_head"}, {'E', "width_v"}, {'O', "one"}, {0}};

OF_CALL(int, keys_are_steps, DIM(f, 'K') == 0)
OF_CALL(const char *, shape_k, keys_are_steps(f) ? "BTGD" : "BSGD")
OF_CALL(const char *, shape_v, keys_are_steps(f) ? "BTGE" : "BSGE")
OF_CALL(int, has_slopes, f->choice[ATTENTION_BIAS] == BIAS_ALIBI)
OF_CALL(int, has_bias, f->choice[ATTENTION_BIAS] == BIAS_FULL)
OF_CALL(int, has_sinks, f->choice[ATTENTION_SINK])
OF_CALL(int, drops, f->real[ATTENTION_DROPOUT] > 0)
OF_CALL(int, keeps_o, f->choice[ATTENTION_KEEP_O])

/* With dropout a row of the batch depends on its index. */
OF_CALL(int, rows_alike, f->real[ATTENTION_DROPOUT] == 0)

static int is_causal(const struct call *f)
{
    const int64_t right = attention_window(f).right;
    return keys_are_steps(f) && right == 0;
}

/* ---- how inputs are drawn ---- */

static int hard_of(const struct call *f, int of_bias)
{
    const int fill = f->choice[ATTENTION_FILL];
    return fill <= FILL_OUTLIERS && has_bias(f) != of_bias ? FILL_NORMAL : fill;
}

/* One of the fills that operations share.  Outliers are at most 1e4: two equal scores of 1e30 would have
 * a P of 1/2 each forward, and of 1 each backward, since lse = 1e30 has no room for log 2. */
static void draw_shared(const struct call *f, int arg, int fill, uint64_t key, double *x)
{
    static const enum fill shared[] = {NORMAL, MASKED, SHIFTED, OUTLIERS};

    op_draw(f, arg, shared[fill], key, x);
    for (int64_t i = 0; fill == FILL_OUTLIERS && i < op_count(f, arg); i++)
        x[i] = fmin(fmax(x[i], -1e4), 1e4);
}

/* masked, growing, falling: q is positive, so that scores follow k. */
static void draw_q(const struct call *f, int arg, uint64_t key, double *x)
{
    const int fill = hard_of(f, 0);
    const int positive = fill == FILL_MASKED || fill == GROWING || fill == FALLING;

    op_draw(f, arg, NORMAL, key, x);
    for (int64_t i = 0; positive && i < op_count(f, arg); i++)
        x[i] = fabs(x[i]);
}

/* masked: every third key is -inf, and so are its scores; equal: one key for all; ties: three different
 * ones; growing: from 0 to 16 along the keys. */
static void draw_k(const struct call *f, int arg, uint64_t key, double *x)
{
    const int64_t S = DIM(f, 'S'), row = DIM(f, 'G') * DIM(f, 'D'), n = op_count(f, arg);
    const int fill = hard_of(f, 0);

    draw_shared(f, arg, fill == FILL_SHIFTED || fill == FILL_OUTLIERS ? fill : FILL_NORMAL, key, x);
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = i / row % S, first = i - j * row;
        if (fill == FILL_MASKED && j % 3 == 1)
            x[i] = -INFINITY;
        else if (fill == EQUAL)
            x[i] = x[first];
        else if (fill == TIES && j >= 3)
            x[i] = x[first + (int64_t)(3 * draw_uniform(key, ~(uint64_t)j)) * row];
        else if (fill == GROWING || fill == FALLING)
            x[i] = 16 * (double)(fill == GROWING ? j + 1 : S - j) / (double)S;
    }
}

/* common: rows have a large part in common, which cancels in the backward pass. */
static void draw_v(const struct call *f, int arg, uint64_t key, double *x)
{
    op_draw(f, arg, NORMAL, key, x);
    for (int64_t i = 0; f->choice[ATTENTION_FILL] == COMMON && i < op_count(f, arg); i++)
        x[i] += 1000;
}

/* Press, Smith, Lewis, "Train short, test long" (ICLR 2022): 2^(-8 (h + 1) / H) for a power of two;
 * else those of the power of two below, then every other one of the next. */
static void draw_slopes(const struct call *f, int arg, uint64_t key, double *x)
{
    const int64_t H = DIM(f, 'H');
    int64_t n = 1;

    (void)arg;
    (void)key;
    while (2 * n <= H)
        n *= 2;
    for (int64_t h = 0; h < H; h++)
        x[h] = exp2(h < n ? -8 * (double)(h + 1) / (double)n
                          : -8 * (double)(2 * (h - n) + 1) / (double)(2 * n));
}

static void draw_bias(const struct call *f, int arg, uint64_t key, double *x)
{
    const int fill = hard_of(f, 1);
    draw_shared(f, arg, fill <= FILL_OUTLIERS ? fill : FILL_NORMAL, key, x);
}

/* Near the scores that a bias shifts. */
static void draw_sinks(const struct call *f, int arg, uint64_t key, double *x)
{
    op_draw(f, arg, has_bias(f) && hard_of(f, 1) == FILL_SHIFTED ? SHIFTED : NORMAL, key, x);
}

DRAW_ONE(draw_counter, (double)DIM(f, 'U'))

OF_CALL(enum fill, fill_d_lse, f->choice[ATTENTION_D_LSE] ? ZERO : NORMAL)

static const struct arg args[] = {
    ARG(attention, q, "BTHD", IN | DIFF, .draw = draw_q),
    ARG(attention, k, "BTGD", IN | DIFF, .shape_of = shape_k, .draw = draw_k),
    ARG(attention, v, "BTGE", IN | DIFF, .shape_of = shape_v, .draw = draw_v),
    ARG(attention, slopes, "H", IN | WIDE, .when = has_slopes, .draw = draw_slopes),
    ARG(attention, bias, "HTS", IN | DIFF | WIDE_GRAD, .when = has_bias, .draw = draw_bias),
    ARG(attention, sinks, "H", IN | DIFF | WIDE | PARAMETER, .when = has_sinks, .draw = draw_sinks),
    ARG(attention, counter, "O", IN | WHOLE, .when = drops, .draw = draw_counter, .settled = 1),
    ARG(attention, o, "BTHE", OUT | SAVED | DIFF),
    ARG(attention, lse, "BHT", OUT | SAVED | DIFF | WIDE, .fill_of = fill_d_lse),
    ARG(attention, o32, "BTHE", SAVED | WIDE, .when = keeps_o),
};

static int derive(struct call *f)
{
    const int64_t H = DIM(f, 'H'), J = DIM(f, 'J');

    DIM(f, 'O') = 1;
    DIM(f, 'S') = DIM(f, 'K') ? DIM(f, 'K') : DIM(f, 'T');
    DIM(f, 'G') = J ? J : H;
    DIM(f, 'E') = DIM(f, 'F') ? DIM(f, 'F') : DIM(f, 'D');
    if (H % DIM(f, 'G'))
        return err_set("kv_heads = %lld does not divide heads = %lld", (long long)J, (long long)H);
    if (DIM(f, 'D') > ATTENTION_MAX_WIDTH)
        return err_set("dim = %lld: heads wider than %d are not supported", (long long)DIM(f, 'D'),
                       ATTENTION_MAX_WIDTH);
    if (DIM(f, 'E') > ATTENTION_MAX_WIDTH)
        return err_set("dim_v = %lld: heads wider than %d are not supported",
                       (long long)DIM(f, 'E'), ATTENTION_MAX_WIDTH);
    return 0;
}

/* ---- costs ---- */

/* Pairs of a query and a key that it sees, in one head. */
static double pairs(const struct call *f)
{
    const struct attention_window w = attention_window(f);
    double sum = 0;

    for (int64_t i = 0; i < DIM(f, 'T'); i++) {
        const int64_t n = attention_last(&w, i) - attention_first(&w, i);
        sum += n > 0 ? (double)n : 0;
    }
    return sum;
}

/* Products alone are counted, and none twice that a kernel computes twice. */
static double flops(const struct call *f, enum pass p)
{
    const double D = (double)DIM(f, 'D'), E = (double)DIM(f, 'E');
    return pairs(f) * op_product(f, "BH") * 2 * (p == FORWARD ? D + E : 3 * D + 2 * E);
}

static double specials(const struct call *f, enum pass p)
{
    (void)p;
    return pairs(f) * op_product(f, "BH") * (f->real[ATTENTION_SOFTCAP] > 0 ? 2 : 1);
}

static const struct cost costs[] = {
    {"batch=2 steps=5 heads=3 dim=4 dim_v=6",
     FORWARD,
     2 * 10 * 15 * 6,
     2 * 10 * 15 * 6,
     15 * 6,
     {0, 0, 0}},
    {"batch=2 steps=5 heads=3 dim=4 dim_v=6",
     BACKWARD,
     2 * 24 * 15 * 6,
     2 * 24 * 15 * 6,
     15 * 6,
     {0, 0, 0}},
    {"batch=1 steps=5 keys=2 heads=1 dim=1", FORWARD, 2 * 2 * 3, 2 * 2 * 3, 3, {0, 0, 0}},
    {"batch=1 steps=4 heads=1 dim=1 mask=window left=1 right=1 softcap=2",
     FORWARD,
     2 * 2 * 10,
     2 * 2 * 10,
     20,
     {0, 0, 0}},
    {.settings = NULL},
};

/* ---- what is refused ---- */

static const struct refusal refused[] = {
    {"heads=6 kv_heads=4", "kv_heads = 4 does not divide heads = 6"},
    {"dim=300", "dim = 300: heads wider than 256"},
    {"dim=8 dim_v=257", "dim_v = 257: heads wider than 256"},
    {.settings = NULL},
};

#define SIZES "batch=2 steps=9 heads=4 dim=5 dim_v=3 "
#define ALL "o lse q k v"

static const struct identity identities[] = {
    {"window_causal", SIZES "mask=window left=8 right=0", SIZES "mask=causal", .same = ALL},
    {"window_full", SIZES "mask=window left=-1 right=8", SIZES "mask=full", .same = ALL},
    {"keys_steps", SIZES "keys=9", SIZES "keys=0", .same = ALL},
    {"bias_zero", SIZES "bias=full", SIZES "bias=none", "bias=zeros", .same = ALL},
    {"softcap_far", SIZES "softcap=1e9", SIZES "softcap=0", .same = ALL},
    {"sink_far", SIZES "sink=yes", SIZES "sink=no", "sinks=-1e30", .same = ALL},
    {"keep_o", SIZES "keep_o=fp32", SIZES "keep_o=as_stored", .same = "o lse k v"},
};

/* q, k, v and o; then the scores of kernel naive. */
static const char *const large[] = {"batch=560000 steps=4 heads=16 dim=64",
                                    "batch=70000 steps=64 heads=8 dim=4", NULL};

const struct op op_attention = {
    .name = "attention",
    .formula = "o = softmax(scale q k^T + bias) v over the keys that a query sees",
    .source = "common/ops/attention.h",
    SIGNATURE(attention, params, args),
    .sites = "P dS",
    .declared = "S",
    .axis = axes,
    .cases =
        "batch=1 steps=1 heads=1 dim=1; batch=2 steps=3 heads=1 keys=1 dim=4 mask=full; "
        "batch=2 steps=7 heads=4 kv_heads=1,2,4 dim=5 dim_v=3 mask=full,causal; "
        "batch=1 steps=2 keys=5 heads=1 dim=3; batch=2 steps=5 keys=2 heads=2 dim=3 sink=no,yes; "
        "batch=1 steps=9 heads=2 dim=8 mask=window left=-1,0,1,3 right=-1,0,2; "
        "batch=2 steps=6 keys=11 heads=3 dim=8 mask=window left=2 right=1 bias=none,alibi,full; "
        "batch=2 steps=9 heads=6 kv_heads=2 dim=7 softcap=0.5,3 bias=none,alibi,full sink=no,yes; "
        "batch=2 steps=8 heads=2 dim=4 dropout=0.3 dropout_seed=1,18446744073709551615 sink=yes "
        "bias=full dropout_step=0,3; "
        "batch=2 steps=10 heads=4 kv_heads=2 dim=4 mask=full dropout=0.9 softcap=1 "
        "dropout_step=4294967297; "
        "batch=1 steps=33 heads=2 dim=16 scale=0.01,2 keep_o=fp32,as_stored; "
        "batch=2 steps=11 heads=2 dim=6 d_lse=zero sink=yes bias=full; "
        "batch=1 steps=40 heads=2 kv_heads=1 dim=6 fill=equal,growing,falling,ties,common; "
        "batch=1 steps=40 heads=2 dim=16 scale=4 keep_o=fp32; "
        "batch=2 steps=14 heads=3 dim=5 mask=full,causal "
        "fill=masked,shifted,outliers bias=none,full; "
        "batch=2 steps=14 heads=3 dim=5 mask=full,causal "
        "fill=masked,shifted,outliers bias=full sink=yes; "
        "batch=1 steps=130 heads=1 dim=64; batch=9 steps=5 heads=2 kv_heads=1 dim=3",
    .shapes =
        "batch=1 steps=31,127,128,129,130 heads=2 kv_heads=1 dim=64; "
        "batch=1 steps=1,257 keys=131 heads=3 dim=40 dim_v=72 mask=full,causal; "
        "batch=2 steps=65 heads=2 dim=72,80,96,112,160,255,256; "
        "batch=1 steps=67 heads=8 kv_heads=1,2,8 dim=128; "
        "batch=1 steps=70 heads=7 kv_heads=1 dim=192 dim_v=128 keep_o=fp32; "
        "batch=1 steps=200 heads=2 dim=32 mask=window left=0,1,63,64,65 right=0,64; "
        "batch=3 steps=97 heads=4 kv_heads=2 dim=33 bias=alibi,full sink=yes softcap=20; "
        "batch=1 steps=1000 heads=1 dim=8; batch=1 steps=3 keys=1031 heads=2 dim=16; "
        "batch=2 steps=131 keys=67 heads=2 dim=48 dropout=0.1 bias=full dropout_step=2; "
        "batch=1 steps=300 heads=2 dim=64 fill=equal,growing,falling,ties,common; "
        "batch=1 steps=140 heads=2 dim=24 fill=masked,shifted,outliers bias=none,full sink=no,yes",
    .memory = "batch=256 steps=128 heads=16 dim=64; "
              "batch=256 steps=128 heads=16 dim=64 bias=full keep_o=fp32",
    .large = large,
    .refused = refused,
    .cost = costs,
    IDENTITIES(identities),
    .derive = derive,
    .flops = flops,
    .products = flops,
    .specials = specials,
    .batch = 'B',
    .time = 'T',
    .batch_when = rows_alike,
    .time_when = is_causal,
};
