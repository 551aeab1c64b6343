/* The contract of dual_memory. */
#include "common/call/contract.h"
#include "common/ops/dual_memory.h"

/* ---- parameters ---- */

static const char *const presets[] = {"e23", "e25", "e26", "e29a", "e29b", "e29c", "parts", NULL};
static const char *const attentions[] = {"softmax", "entmax15", NULL};
static const char *const queries[] = {"h", "v", NULL};
static const char *const gates[] = {"none", "sum", "matrix", "scaled", NULL};
static const char *const tapes[] = {"shared", "each", NULL};
static const char *const tape_inits[] = {"normal", "zero", NULL};

OF_CALL(const char *, preset_says,
        f->choice[DUAL_PRESET] == DUAL_PARTS ? NULL : "only preset = parts leaves it open")
OF_CALL(int, gated, dual_parts(f).gate != DUAL_NO_GATE)
OF_CALL(int, ungated, !gated(f))
OF_CALL(int, by_matrix, dual_parts(f).gate == DUAL_MATRIX)
OF_CALL(int, scaled, dual_parts(f).gate == DUAL_SCALED)
OF_CALL(const char *, not_scaled, scaled(f) ? NULL : "only a scaled gate (e29c) is clamped")

enum { MAX_SIZE = 1 << 30 };

// clang-format off
static const struct param params[] = {
    [DUAL_PRESET] = {"preset", 0, presets, DUAL_E23, 0, 0,
                     "the cell by its name, or parts: by the next three", NULL},
    [DUAL_ATTENTION] = {"attention", 0, attentions, DUAL_SOFTMAX, 0, 0,
                        "the function that turns the slots' scores into weights", preset_says},
    [DUAL_QUERY] = {"write_query", 0, queries, DUAL_QUERY_H, 0, 0,
                    "the query for the slots to write to", preset_says},
    [DUAL_GATE] = {"gate", 0, gates, DUAL_NO_GATE, 0, 0, "the factor of the output",
                   preset_says},
    [DUAL_TAPE] = {"tape", 0, tapes, DUAL_SHARED, 0, 0,
                   "the initial tape: one for all sequences, or one for each", NULL},
    [DUAL_TAPE_INIT] = {"tape_init", 0, tape_inits, DUAL_NORMAL, 0, 0,
                        "how it is drawn: N(0, 1/dim), or zero, where all slots stay equal", NULL,
                        .aside = 1},
    [DUAL_CHECKPOINT_DTYPE] = {"checkpoint_dtype", 0, storage_types, 0, 0, 0,
                               "storage of the kept tapes; bf16 and fp16 cost gradient accuracy",
                               NULL, .aside = 1},
    {"steps", 'T', NULL, 512, 1, MAX_SIZE, "sequence length T", NULL},
    {"batch", 'B', NULL, 32, 1, MAX_SIZE, "sequences B", NULL},
    {"dim", 'D', NULL, 512, 1, MAX_SIZE, "inner width D", NULL},
    {"dim_in", 'I', NULL, 0, 0, MAX_SIZE, "input width; 0: dim", NULL},
    {"slots", 'N', NULL, 16, 1, MAX_SIZE, "slots N of the tape", NULL},
    {"checkpoint_interval", 'K', NULL, 32, 1, MAX_SIZE, "steps between stored tapes", NULL},
    {"clamp", 'L', NULL, 20, 1, MAX_SIZE, "bound of a scaled gate's argument", not_scaled},
};
// clang-format on

static const struct axis axes[] = {
    {'E', "two_dim"},
    {'F', "three_dim"},
    {'C', "checkpoint"},
    {0, NULL},
};

static int derive(struct call *f)
{
    if (!DIM(f, 'I'))
        DIM(f, 'I') = DIM(f, 'D');
    DIM(f, 'E') = 2 * DIM(f, 'D');
    DIM(f, 'F') = 3 * DIM(f, 'D');
    DIM(f, 'C') = (DIM(f, 'T') + DIM(f, 'K') - 1) / DIM(f, 'K');
    return 0;
}

OF_CALL(const char *, warning,
        f->choice[DUAL_TAPE_INIT] == DUAL_ZERO && DIM(f, 'N') > 1
            ? "tape_init = zero: all slots stay equal for ever, attention is 1/slots, and training "
              "cannot leave that"
            : NULL)

/* ---- tensors ---- */

OF_CALL(const char *, tape_shape, f->choice[DUAL_TAPE] == DUAL_EACH ? "BND" : "ND")
OF_CALL(int, is_shared, f->choice[DUAL_TAPE] != DUAL_EACH)
OF_CALL(enum fill, tape_fill, f->choice[DUAL_TAPE_INIT] == DUAL_ZERO ? ZERO : FAN)

// clang-format off
static const struct arg args[] = {
    ARG(dual_memory, x, "TBI", IN | DIFF | TEXT, NORMAL),
    ARG(dual_memory, W_h, "DD", IN | DIFF | WIDE_GRAD | PARAMETER, FAN),
    ARG(dual_memory, b_h, "D", IN | DIFF | WIDE_GRAD | PARAMETER, UNIT),
    ARG(dual_memory, W_write, "DD", IN | DIFF | WIDE_GRAD | PARAMETER, FAN),
    ARG(dual_memory, W_x, "DI", IN | DIFF | WIDE_GRAD | PARAMETER, FAN, ungated),
    ARG(dual_memory, W_xz, "EI", IN | DIFF | WIDE_GRAD | PARAMETER, FAN, gated),
    ARG(dual_memory, W_gate, "DF", IN | DIFF | WIDE_GRAD | PARAMETER, FAN, by_matrix),
    ARG(dual_memory, g_z, "D", IN | DIFF | WIDE_GRAD | PARAMETER, UNIT, scaled),
    ARG(dual_memory, g_r, "D", IN | DIFF | WIDE_GRAD | PARAMETER, UNIT, scaled),
    ARG(dual_memory, g_h, "D", IN | DIFF | WIDE_GRAD | PARAMETER, UNIT, scaled),
    ARG(dual_memory, b_g, "D", IN | DIFF | WIDE_GRAD | PARAMETER, UNIT, scaled),
    ARG(dual_memory, h0, "BD", IN | DIFF | WIDE, ZERO),
    ARG(dual_memory, M0, "ND", IN | DIFF | WIDE, FAN, .shape_of = tape_shape,
        .fill_of = tape_fill, .parameter_when = is_shared),
    ARG(dual_memory, out, "TBD", OUT | DIFF),
    ARG(dual_memory, h_T, "BD", OUT | DIFF | WIDE, .continues = "h0"),
    ARG(dual_memory, M_T, "BND", OUT | DIFF | WIDE, .continues = "M0"),
    ARG(dual_memory, h, "TBD", SAVED | WIDE),
    ARG(dual_memory, v, "TBD", SAVED),
    ARG(dual_memory, rho, "TBN", SAVED | WIDE),
    ARG(dual_memory, omega, "TBN", SAVED | WIDE),
    ARG(dual_memory, z, "TBD", SAVED, .when = gated),
    ARG(dual_memory, read, "TBD", SAVED, .when = gated),
    ARG(dual_memory, g, "TBD", SAVED, .when = by_matrix),
    ARG(dual_memory, checkpoints, "CBND", SAVED | WIDE, .type_choice = "checkpoint_dtype"),
};
// clang-format on

/* ---- cost ---- */

/* Elements of one [T,B,D]. */
OF_CALL(double, elements, (double)DIM(f, 'T') * DIM(f, 'B') * DIM(f, 'D'))

/* W_h h and W_write h, W_x x, W_z x and the gate's; backward each twice, by the
 * matrix and by what it multiplied. */
static double products(const struct call *f, enum pass p)
{
    double columns = 2 * DIM(f, 'D') + (1 + gated(f)) * DIM(f, 'I') + by_matrix(f) * DIM(f, 'F');
    return 2 * elements(f) * columns * (p == FORWARD ? 1 : 2);
}

/* An element of the tape is multiplied and added to in the scores of reading (2),
 * in the read (2), in the scores of writing (2) and written (3); backward it is
 * replayed (3), and then has domega (3), dv (4, or 2 and dh 2), dM (3), drho (2), dM
 * again (4) and dh (2).  The sums of a gate are 2 per element, scaled 6. */
static double flops(const struct call *f, enum pass p)
{
    int gate = dual_parts(f).gate;
    double sums = gate == DUAL_SCALED ? 6 : gate == DUAL_SUM ? 2 : 0;
    double tape = p == FORWARD ? 9 : 21;
    return products(f, p) + elements(f) * (tape * DIM(f, 'N') + sums * (p == FORWARD ? 1 : 2));
}

/* tanh; a softmax's exponentials and the reciprocal of their sum, or a root for
 * each slot; a gate's exponential and reciprocal.  Backward finds h, rho and
 * omega; entmax's slopes are the roots of its weights. */
static double specials(const struct call *f, enum pass p)
{
    struct dual_parts of = dual_parts(f);
    double attends = 2.0 * DIM(f, 'T') * DIM(f, 'B');
    double gate = (of.gate != DUAL_NO_GATE) * 2 * elements(f);
    double entmax = attends * DIM(f, 'N'), softmax = attends * (DIM(f, 'N') + 1);

    if (p == BACKWARD)
        return gate + (of.attention == DUAL_ENTMAX15 ? entmax + attends : 0);
    return elements(f) + gate + (of.attention == DUAL_ENTMAX15 ? entmax : softmax);
}

/* A step's chain, sums taken as trees, from one score of reading to the next; a
 * dot product over D is d = 1 + log2 D, over the slots n = 1 + log2 N:
 *
 *     rho          attend
 *     h            read: n; its sum with W_h h: 1; tanh
 *     v            d; with query h beside <M,h> and omega
 *     <M,query>    d
 *     omega        attend
 *     <M',h>       (1 - omega) <M,h> + omega <v,h>: 2
 *
 *     softmax      maximum and difference: n;  exponential;  sum: n - 1;  reciprocal;  1
 *     entmax       maximum and difference: n;  sums of those not below: n - 1, and 3;  root;  2
 *
 *     backward     dM to domega: d;  attend': n + 2;  dv, or dh: n;  with query v
 *                  W_write^T dv: d;  dp: 2;  drho: 1 + d;  attend': n + 2;  dM: 2 */
static struct chain chain(const struct call *f, enum pass p)
{
    struct dual_parts of = dual_parts(f);
    int d = 1 + additions(DIM(f, 'D')), n = 1 + additions(DIM(f, 'N'));
    int entmax = of.attention == DUAL_ENTMAX15;
    int attend = entmax ? 2 * n - 1 + 5 : 2 * n, attend_specials = entmax ? 1 : 2;
    int wait = of.query == DUAL_QUERY_V ? d : 0; /* for v; backward for W_write^T dv */
    struct chain c = {(double)DIM(f, 'T'), 0, 0};

    if (p == BACKWARD) {
        c.flops = 2 * d + 3 * n + 9 + wait;
        return c;
    }
    c.flops = 2 * attend + n + 1 + d + wait + 2;
    c.specials = 2 * attend_specials + 1;
    return c;
}

/* ---- what must hold ---- */

// clang-format off
#define PARTS "preset=parts attention=softmax,entmax15 write_query=h,v gate=none,sum,matrix,scaled "
#define SMALL "steps=5 batch=2 slots=3 dim=4 checkpoint_interval=2 "

/* All combinations small, then edges and odd sizes.  A clamp of 1 binds now and then. */
#define CASES                                                                                    \
    SMALL PARTS "; "                                                                             \
    SMALL "dim_in=3 preset=e23,e25,e26,e29a,e29b,e29c tape=each; "                               \
    "steps=6 batch=2 slots=4 dim=5 preset=e29c clamp=1; "                                        \
    "steps=1 batch=1 slots=1 dim=1 preset=e23,e29b; "                                            \
    "steps=4 batch=1 slots=2 dim=3 preset=e25 tape_init=zero; "                                  \
    "steps=2 batch=4 slots=34 dim=1 dim_in=1 preset=e23 tape_init=zero; "                        \
    "steps=1 batch=3 slots=5 dim=7 preset=e26,e29a tape=each; "                                  \
    "steps=3 batch=7 slots=8 dim=4 preset=e23,e25 checkpoint_interval=1,9; "                     \
    "steps=20 batch=2 slots=8 dim=6 preset=parts attention=entmax15 write_query=h,v tape=each "  \
    "checkpoint_interval=7; "                                                                    \
    "steps=9 batch=3 slots=16,17,32 dim=33 preset=e26,e29c checkpoint_interval=4; "              \
    "steps=9 batch=9 slots=12,24 dim=40 preset=e25,e29b dim_in=16; "                              \
    "steps=7 batch=2 slots=33,64 dim=40 preset=e25,e29a tape=each; "                             \
    "steps=40 batch=2 slots=8 dim=16 preset=e23 checkpoint_dtype=bf16,fp16; "                    \
    "steps=2 batch=1 slots=16 dim=512 dim_in=8 preset=e23"

#define ID "steps=6 batch=2 slots=3 dim=4 checkpoint_interval=4 "
#define AS(name, parts, tensors)                                                                 \
    {name " is its parts", ID "preset=" name, ID "preset=parts " parts, "", "",                  \
     "out h_T M_T x W_h b_h W_write h0 M0 " tensors, NULL}
#define GATED "out h_T M_T x W_h b_h W_write W_xz h0 M0"

static const struct identity identities[] = {
    AS("e23", "attention=softmax write_query=h gate=none", "W_x"),
    AS("e25", "attention=entmax15 write_query=h gate=none", "W_x"),
    AS("e26", "attention=softmax write_query=v gate=none", "W_x"),
    AS("e29a", "attention=softmax write_query=v gate=sum", "W_xz"),
    AS("e29b", "attention=softmax write_query=v gate=matrix", "W_xz W_gate"),
    AS("e29c", "attention=softmax write_query=v gate=scaled", "W_xz g_z g_r g_h b_g"),
    {"scaled by 1 is the sum", ID "preset=e29c", ID "preset=e29a",
     "g_z=ones g_r=ones g_h=ones b_g=zeros", "", GATED, NULL},
    {"W_gate = [1 0 0] is z", ID "preset=e29b", ID "preset=e29c", "W_gate=eye",
     "g_z=ones g_r=zeros g_h=zeros b_g=zeros", GATED, NULL},
    {"one slot is weighted 1", ID "slots=1 preset=e23", ID "slots=1 preset=e25", "", "",
     "out h_T M_T x W_h b_h W_write W_x h0 M0", NULL},
    {"one slot forgets its query", ID "slots=1 preset=e23", ID "slots=1 preset=e26", "", "",
     "out h_T M_T x W_h b_h W_write W_x h0 M0", NULL},
    {"a shared tape of one sequence is its own", ID "batch=1 preset=e23",
     ID "batch=1 preset=e23 tape=each", "", "", "out h_T M_T x W_h b_h W_write W_x h0 M0", NULL},
};
// clang-format on

static const struct neutral interval = {
    "checkpoint_interval",
    "1,7,32,40,100",
    "steps=40 batch=2 slots=4 dim=8 preset=e23,e25,e26,e29a,e29b,e29c; "
    "steps=40 batch=3 slots=17 dim=24 preset=e25,e29a tape=each",
};

// clang-format off
#define SIZES(T, B, N, D, I, K)                                                                  \
    "steps=" #T " batch=" #B " slots=" #N " dim=" #D " dim_in=" #I " checkpoint_interval=" #K " "
#define PRESETS "preset=e23,e25,e26,e29a,e29b,e29c "

/* A line is one set of sizes in all presets.
 *
 *     T 1 2 5 31 65 513   B 1 3 33   N 1 7 8 9 16 17 24 32 33 63 64
 *     D 1 3 5 33 64 100 256 520   I 1 3 and other odd widths   K 1 7 T and beyond T
 *
 * Kept out: long ones at D 1, whose W_write has a gradient of one element. */
static const char shapes[] =
    SIZES(1, 33, 7, 1, 1, 1) PRESETS "; "
    SIZES(1, 1, 64, 100, 7, 1000) "tape=each " PRESETS "; "
    SIZES(1, 3, 17, 520, 33, 7) PRESETS "; "
    SIZES(1, 33, 8, 256, 65, 1) PRESETS "; "
    SIZES(2, 33, 1, 3, 3, 1) PRESETS "; "
    SIZES(2, 3, 16, 1, 1, 7) "tape=each " PRESETS "; "
    SIZES(2, 3, 9, 33, 1, 2) "tape=each " PRESETS "; "
    SIZES(2, 33, 33, 64, 129, 7) PRESETS "; "
    SIZES(2, 1, 24, 520, 3, 1) PRESETS "; "
    SIZES(5, 1, 16, 33, 5, 1) PRESETS "; "
    SIZES(5, 3, 63, 3, 1, 7) PRESETS "; "
    SIZES(5, 33, 16, 100, 33, 5) "tape=each " PRESETS "; "
    SIZES(5, 3, 64, 256, 1, 1000) PRESETS "; "
    SIZES(31, 1, 1, 64, 17, 7) PRESETS "; "
    SIZES(31, 33, 9, 5, 3, 31) PRESETS "; "
    SIZES(31, 3, 32, 520, 65, 7) "tape=each " PRESETS "; "
    SIZES(31, 1, 33, 100, 129, 1) "checkpoint_dtype=fp16 " PRESETS "; "
    SIZES(65, 3, 8, 33, 7, 7) "checkpoint_dtype=bf16 " PRESETS "; "
    SIZES(65, 33, 17, 64, 33, 65) PRESETS "; "
    SIZES(65, 1, 7, 256, 3, 1000) "tape=each " PRESETS "; "
    SIZES(65, 3, 24, 100, 1, 1) PRESETS "; "
    SIZES(513, 1, 64, 33, 9, 7) "tape=each " PRESETS "; "
    SIZES(513, 3, 32, 64, 17, 513) PRESETS "; "
    SIZES(513, 1, 63, 3, 5, 1) PRESETS "; "
    /* Combinations that no preset has: entmax with a gate, or with query v. */
    SIZES(5, 3, 24, 64, 33, 2) "preset=parts attention=entmax15 write_query=h,v "
    "gate=none,sum,matrix,scaled; "
    SIZES(31, 3, 63, 33, 7, 7) "tape_init=zero " PRESETS "; ";

/* At T 3, B 2, N 4, D 8 and width 5 of x: 6 steps of a sequence, 48
 * elements of h, 192 of a tape.  W_h and W_write take 768 FLOPs each, W_x
 * 480, W_gate 2304.  An element of the tape takes 9 forward; backward 21: replayed 3,
 * domega 3, dv 2, the query's gradient 2, dM 3, drho 2, dM 4, dh 2.  Two attentions
 * per step are 5 specials by softmax, 4 by entmax (backward 5).  In the chain a dot
 * product over D is 1 + 3 deep, over the slots 1 + 2. */
#define COUNTED "steps=3 batch=2 slots=4 dim=8 dim_in=5 "
static const struct cost costs[] = {
    {COUNTED "preset=e23", FORWARD, 2016 + 1728, 2 * 768 + 480, 48 + 60,
     {3, 6 + 3 + 1 + 4 + 6 + 2, 2 + 1 + 2}},
    {COUNTED "preset=e23", BACKWARD, 4032 + 4032, 4032, 0, {3, 4 + 5 + 3 + 2 + 5 + 5 + 2, 0}},
    {COUNTED "preset=e25", FORWARD, 2016 + 1728, 2016, 48 + 48,
     {3, 10 + 3 + 1 + 4 + 10 + 2, 1 + 1 + 1}},
    {COUNTED "preset=e25", BACKWARD, 4032 + 4032, 4032, 60, {3, 26, 0}},
    {COUNTED "preset=e26", FORWARD, 2016 + 1728, 2016, 48 + 60,
     {3, 6 + 3 + 1 + 4 + 4 + 6 + 2, 5}},
    {COUNTED "preset=e26", BACKWARD, 4032 + 4032, 4032, 0, {3, 4 + 5 + 3 + 4 + 2 + 5 + 5 + 2, 0}},
    {COUNTED "preset=e29a", FORWARD, 2496 + 1728 + 2 * 48, 2016 + 480, 48 + 60 + 96, {3, 26, 5}},
    {COUNTED "preset=e29b", FORWARD, 4800 + 1728, 2496 + 2304, 48 + 60 + 96, {3, 26, 5}},
    {COUNTED "preset=e29b", BACKWARD, 9600 + 4032, 9600, 96, {3, 30, 0}},
    {COUNTED "preset=e29c", FORWARD, 2496 + 1728 + 6 * 48, 2496, 48 + 60 + 96, {3, 26, 5}},
    {.settings = NULL},
};
// clang-format on

static const struct refusal refused[] = {
    {"preset=e29c clamp=0", "clamp = 0"},
    {"steps=1073741824 batch=1073741824 dim=1073741824", "64-bit"},
    {.settings = NULL},
};
static const struct refusal declined[] = {
    {PRESETS "slots=65,1000 steps=1 batch=1 dim=8", "slots beyond 64"},
    {.settings = NULL},
};

const struct op op_dual_memory = {
    .name = "dual_memory",
    .formula = "h <- tanh(W_h h + W_x x + attend(M h) M + b); M <- M + attend(M q) (W h - M)",
    .source = "E23 dual-memory Elman cell and E25, E26, E29a-c; common/ops/dual_memory.h",
    SIGNATURE(dual_memory, params, args),
    .axis = axes,
    .cases = CASES,
    .shapes = shapes,
    .memory = "preset=e23,e29b steps=512 batch=32 slots=16 dim=512",
    .refused = refused,
    .declined = declined,
    .cost = costs,
    IDENTITIES(identities),
    .neutral = &interval,
    .derive = derive,
    .warning = warning,
    .flops = flops,
    .products = products,
    .specials = specials,
    .chain = chain,
    .batch = 'B',
    .time = 'T',
    .blas = 1,
    .sites = "d h",
};
