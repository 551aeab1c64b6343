/* The contracts of e74_cell and e74: one set of parameters, one set of
 * tensors, once with k, v, q, z as inputs and once with x and the weights. */
#include <math.h>

#include "common/base/err.h"
#include "common/call/contract.h"
#include "common/ops/e74.h"
#include "common/ops/e74_parts.h"

/* ---- parameters ---- */

static const char *const states[] = {"full", "diagonal", "lowrank", "blockdiag", NULL};
static const char *const projs[] = {"full", "no_z", "tied_kq", "tied_kvq", NULL};
static const char *const nonlins[] = {"tanh", "linear", "rmsnorm", "frobnorm", NULL};
static const char *const z_mods[] = {"column", "row", "full", NULL};
static const char *const whose_V[] = {"each", "shared", NULL};
static const char *const z_acts[] = {"linear", "sigmoid", "twice_sigmoid", NULL};
static const char *const trajectories[] = {"checkpoint", "store", NULL};

static int state_is(const struct call *f, int state)
{
    return f->choice[E74_STATE] == state;
}

OF_CALL(int, has_z, f->choice[E74_PROJ] == E74_WITH_Z)
OF_CALL(const char *, without_z, has_z(f) ? NULL : "only proj = full has a z")
OF_CALL(const char *, without_gate,
        e74_has_gate(f) ? NULL : "only z_act = sigmoid and twice_sigmoid saturate")
OF_CALL(int, stored, f->choice[E74_TRAJECTORY] == E74_STORE)
OF_CALL(const char *, without_interval,
        stored(f) ? "trajectory = store keeps the state before every step" : NULL)
OF_CALL(const char *, not_lowrank,
        state_is(f, E74_LOWRANK) ? NULL : "only state = lowrank has a rank")
OF_CALL(const char *, without_V, state_is(f, E74_LOWRANK) ? NULL : "only state = lowrank has a V")
OF_CALL(const char *, not_blockdiag,
        state_is(f, E74_BLOCKDIAG) ? NULL : "only state = blockdiag has blocks")

enum { MAX_SIZE = 1 << 30 };

/* Those that all three have. */
// clang-format off
#define SHARED_PARAMS                                                                            \
    [E74_STATE] = {"state", 0, states, E74_FULL, 0, 0, "structure of the state S", NULL},        \
    [E74_PROJ] = {"proj", 0, projs, E74_NO_Z, 0, 0, "which of k v q z are projected, which tied",\
                  NULL},                                                                         \
    [E74_NONLIN] = {"nonlin", 0, nonlins, E74_TANH, 0, 0, "f, applied to the state at each step",\
                    NULL},                                                                       \
    [E74_Z_MOD] = {"z_mod", 0, z_mods, E74_COLUMN, 0, 0, "the side of S that z modulates",       \
                   without_z},                                                                   \
    [E74_TRAJECTORY] = {"trajectory", 0, trajectories, E74_CHECKPOINT, 0, 0,                     \
                        "which states backward finds: some, and replays the others, or all", NULL, \
                        .aside = 1},                                                             \
    [E74_CHECKPOINT_DTYPE] = {"checkpoint_dtype", 0, storage_types, 0, 0, 0,                     \
                              "their storage; bf16 and fp16 cost gradient accuracy", NULL,       \
                              .aside = 1},                                                       \
    [E74_V] = {"V", 0, whose_V, E74_V_EACH, 0, 0,                                                \
               "V0: each sequence's, or one for all, a parameter", without_V},                   \
    {"steps", 'T', NULL, 512, 1, MAX_SIZE, "sequence length T", NULL},                           \
    {"batch", 'B', NULL, 32, 1, MAX_SIZE, "sequences B", NULL},                                  \
    {"heads", 'H', NULL, 1, 1, MAX_SIZE, "heads H", NULL},                                       \
    {"n_state", 'N', NULL, 64, 1, MAX_SIZE, "state width n of a head", NULL},                    \
    {"rank", 'R', NULL, 8, 1, MAX_SIZE, "columns r of U and V", not_lowrank},                    \
    {"block_size", 'L', NULL, 8, 1, MAX_SIZE, "block width b, divides n", not_blockdiag},        \
    {"checkpoint_interval", 'K', NULL, 32, 1, MAX_SIZE, "steps between stored states",           \
     without_interval},

static const char *const b_z_fills[] = {"normal", "saturated", NULL};

/* The layer has all of these but eps. */
static const struct param params[] = {
    SHARED_PARAMS
    {"dim", 'D', NULL, 256, 1, MAX_SIZE, "input width d", NULL},
    [E74_Z_ACT] = {"z_act", 0, z_acts, E74_IDENTITY, 0, 0, "z is p = W_z x + b_z, sigma(p) or 2 sigma(p)",
                   without_z},
    [E74_B_Z_FILL] = {"fill", 0, b_z_fills, 0, 0, 0,
                      "how b_z is drawn: within 0 ... 1, or so that sigma(p) is near 0 or 1",
                      without_gate, .aside = 1, .draw = 1},
    [E74_EPS] = REAL_PARAM("eps", 1e-6, 0, 1e6, "of the norm: added to the mean square"),
};
static const char *const fills[] = {"normal", "tiny", NULL};
static const struct param cell_params[] = {
    SHARED_PARAMS
    [E74_FILL] = FILL_PARAM(fills, "k"),
};
// clang-format on
enum { BLOCK_PARAMS = COUNT(params), LAYER_PARAMS = BLOCK_PARAMS - 1 };

static const struct axis axes[] = {
    {'P', "heads_n_state"},
    {'M', "blocks"},
    {'C', "checkpoint"},
    {0, NULL},
};

static int derive(struct call *f)
{
    int64_t N = DIM(f, 'N'), L = DIM(f, 'L'), T = DIM(f, 'T');

    if (state_is(f, E74_BLOCKDIAG) && N % L)
        return err_set("block_size = %lld does not divide n_state = %lld", (long long)L,
                       (long long)N);
    DIM(f, 'P') = DIM(f, 'H') * N;
    DIM(f, 'M') = N / L;
    if (stored(f))
        DIM(f, 'K') = 1;
    DIM(f, 'C') = (T + DIM(f, 'K') - 1) / DIM(f, 'K');
    return 0;
}

/* ---- tensors ---- */

OF_CALL(int, has_v, f->choice[E74_PROJ] != E74_TIED_KVQ)
OF_CALL(int, has_q, f->choice[E74_PROJ] <= E74_NO_Z)
OF_CALL(int, lowrank, state_is(f, E74_LOWRANK))
OF_CALL(int, not_factored, !lowrank(f))
OF_CALL(int, V_shared, lowrank(f) && f->choice[E74_V] == E74_V_SHARED)
OF_CALL(const char *, V_shape, V_shared(f) ? "HNR" : "BHNR")
OF_CALL(const char *, state_shape,
        ((const char *[]){"BHNN", "BHN", "BHNR", "BHMLL"})[f->choice[E74_STATE]])
OF_CALL(const char *, checkpoint_shape,
        ((const char *[]){"CBHNN", "CBHN", "CBHNR", "CBHMLL"})[f->choice[E74_STATE]])

// clang-format off
#define STATE_ARGS(op, out_shape)                                                                \
    ARG(op, S0, "BHNN", IN | DIFF | WIDE, ZERO, not_factored, state_shape),                      \
    ARG(op, U0, "BHNR", IN | DIFF | WIDE, ZERO, lowrank),                                        \
    ARG(op, V0, "BHNR", IN | DIFF | WIDE, FAN, lowrank, V_shape, .parameter_when = V_shared),    \
    ARG(op, W_r, "HRN", IN | DIFF | WIDE_GRAD | PARAMETER, FAN, lowrank),                                    \
    ARG(op, out, out_shape, OUT | DIFF),                                                         \
    ARG(op, S_T, "BHNN", OUT | DIFF | WIDE, .when = not_factored, .shape_of = state_shape,       \
        .continues = "S0"),                                                                      \
    ARG(op, U_T, "BHNR", OUT | DIFF | WIDE, .when = lowrank, .continues = "U0"),                 \
    ARG(op, y, "TBHN", SAVED),                                                                   \
    ARG(op, checkpoints, "CBHNN", SAVED | WIDE, .shape_of = checkpoint_shape,                    \
        .type_choice = "checkpoint_dtype")
// clang-format on

/* tiny: of every other step, sequence or head N(0, 1) times eps, which then is as large as their norms. */
static void draw_k(const struct call *f, int arg, uint64_t key, double *x)
{
    for (int64_t i = 0; i < op_count(f, arg); i++)
        x[i] = draw_normal(key, i) * (f->choice[E74_FILL] && i / DIM(f, 'N') % 2 ? E74_EPSILON : 1);
}

/* saturated: of both signs, one half where sigma is near 0 or 1, the other where it is 0 or 1 in most
 * types. */
static void draw_b_z(const struct call *f, int arg, uint64_t key, double *x)
{
    for (int64_t i = 0; i < op_count(f, arg); i++) {
        const double size = fabs(draw_normal(key, i));
        const double large = i / 2 % 2 ? 100 + size : 6 + size;
        x[i] = f->choice[E74_B_Z_FILL] ? i % 2 ? -large : large : draw_uniform(key, i);
    }
}

static const struct arg cell_args[] = {
    ARG(e74_cell, k, "TBHN", IN | DIFF, .draw = draw_k),
    ARG(e74_cell, v, "TBHN", IN | DIFF, NORMAL, has_v),
    ARG(e74_cell, q, "TBHN", IN | DIFF, NORMAL, has_q),
    ARG(e74_cell, z, "TBHN", IN | DIFF, GATE, has_z),
    STATE_ARGS(e74_cell, "TBP"),
};

// clang-format off
#define PROJECTION_ARGS(op)                                                                      \
    ARG(op, W_k, "PD", IN | DIFF | WIDE_GRAD | PARAMETER, FAN),                                              \
    ARG(op, W_v, "PD", IN | DIFF | WIDE_GRAD | PARAMETER, FAN, has_v),                                       \
    ARG(op, W_q, "PD", IN | DIFF | WIDE_GRAD | PARAMETER, FAN, has_q),                                       \
    ARG(op, W_z, "PD", IN | DIFF | WIDE_GRAD | PARAMETER, FAN, has_z),                                       \
    ARG(op, b_z, "P", IN | DIFF | WIDE_GRAD | PARAMETER, .when = has_z, .draw = draw_b_z),                                     \
    ARG(op, k, "TBHN", SAVED),                                                                   \
    ARG(op, v, "TBHN", SAVED, .when = has_v),                                                    \
    ARG(op, q, "TBHN", SAVED, .when = has_q),                                                    \
    ARG(op, z, "TBHN", SAVED, .when = has_z),                                                    \
    ARG(op, gate, "TBHN", SAVED, .when = e74_has_gate)
// clang-format on

static const struct arg layer_args[] = {
    ARG(e74, x, "TBD", IN | DIFF | TEXT, NORMAL),
    PROJECTION_ARGS(e74),
    STATE_ARGS(e74, "TBP"),
};

static const struct arg block_args[] = {
    ARG(e74_block, x, "TBD", IN | DIFF | TEXT, NORMAL),
    ARG(e74_block, w_norm, "D", IN | DIFF | WIDE_GRAD | PARAMETER, NORMAL),
    PROJECTION_ARGS(e74_block),
    ARG(e74_block, W_o, "DP", IN | DIFF | WIDE_GRAD | PARAMETER, FAN),
    ARG(e74_block, normed, "TBD", SAVED),
    ARG(e74_block, rstd, "TB", SAVED | WIDE),
    ARG(e74_block, read, "TBP", SAVED),
    STATE_ARGS(e74_block, "TBD"),
};

/* ---- cost ---- */

/* Of a state's row. */
OF_CALL(int64_t, columns,
        ((int64_t[]){DIM(f, 'N'), 1, DIM(f, 'R'), DIM(f, 'L')})[f->choice[E74_STATE]])

/* Rows of a state, over all steps, sequences and heads. */
OF_CALL(double, all_rows, (double)DIM(f, 'T') * DIM(f, 'B') * DIM(f, 'P'))

/* Of low rank: V^T u, V^T q and W_r k^. */
OF_CALL(double, keys_flops, lowrank(f) ? 2 * 3 * all_rows(f) * DIM(f, 'R') : 0)

/* Multiplications and additions, f's own evaluations left out.  A state is
 * read twice and updated once per step; backward replays one of these reads
 * and the update, and then makes seven more passes over the state. */
static double cell_flops(const struct call *f, enum pass p)
{
    double state = 2 * all_rows(f) * columns(f), keys = keys_flops(f);
    return p == FORWARD ? 3 * state + keys : 9 * state + 4 * keys;
}

/* Forward S u and S q; backward the replayed S u, then S^T dy, dP k^, dP^T
 * delta and S^T a.  A linear recurrence is made of products altogether, over
 * chunks of steps; a diagonal state has none. */
static double cell_products(const struct call *f, enum pass p)
{
    double state = 2 * all_rows(f) * columns(f), keys = keys_flops(f);

    if (state_is(f, E74_DIAGONAL))
        return 0;
    if (f->choice[E74_NONLIN] == E74_LINEAR)
        return cell_flops(f, p);
    return p == FORWARD ? 2 * state + keys : 5 * state + 4 * keys;
}

OF_CALL(int, has_norm, f->choice[E74_NONLIN] >= E74_RMSNORM)

/* A step's norms, of k (of each block of it) and of the state, are a square
 * root and a reciprocal each; out's sigmoid an exponential and a reciprocal.
 * Backward has them once more, and then one reciprocal more, of |k| and |P|.
 * tanh is evaluated again for the states that are no checkpoints. */
static double cell_specials(const struct call *f, enum pass p)
{
    double steps = (double)DIM(f, 'T') * DIM(f, 'B') * DIM(f, 'H');
    double keys = state_is(f, E74_BLOCKDIAG) ? (double)DIM(f, 'M') : 1;
    double bent = all_rows(f) * columns(f);
    double sum = steps * (keys + has_norm(f)) * (p == FORWARD ? 2 : 3) + 2 * all_rows(f);

    if (p == BACKWARD)
        bent *= 1 - (double)DIM(f, 'C') / DIM(f, 'T');
    return f->choice[E74_NONLIN] == E74_TANH ? sum + bent : sum;
}

/* A step's chain, sums taken as trees and everything that does not wait for
 * the state made beforehand; a dot product of w columns is D = 1 + log2 w:
 *
 *     tanh       delta = v - S u          D, v being its first addend
 *                S = tanh(S + delta k^T)  1 and the tanh
 *     norms      delta = v - S u          D; then |P|^2 from |S|^2, S k^ and |delta|:
 *                2 S k^ + |k^|^2 delta    1
 *                its product with delta   1 + log2 n
 *                S = P / (sqrt + eps)     sqrt, 1, reciprocal, 1
 *     diagonal   P = (1 - u k^) S + v k^  1; the norm is a sum over n: 1 + log2 n
 *
 *     backward   dP = G d + e             1, with d = 1 - S^2; e from dy and q
 *                a = dP k^                D
 *                G = dP - a u^T           1
 *     norms      G k^ and <G,P>           D and 1 + log2 n, side by side: the sum goes
 *                                         over rows, as <G,P> follows from a and the last
 *                a                        1, from both
 *                G = dP - a u^T           1
 *     diagonal   tanh: G = G d' + e', 1;  norms: <G,P>, then 1
 *
 * A linear recurrence has none: its steps can be taken in chunks, or as a scan. */
static struct chain cell_chain(const struct call *f, enum pass p)
{
    struct chain c = {(double)DIM(f, 'T'), 0, 0};
    int diagonal = state_is(f, E74_DIAGONAL), dot = 1 + additions(columns(f));
    int over_rows = 1 + additions(DIM(f, 'N'));

    if (f->choice[E74_NONLIN] == E74_LINEAR)
        return (struct chain){0, 0, 0};
    if (p == FORWARD) {
        c.flops = diagonal ? 1 : dot + 1;
        c.specials = 1;
        if (has_norm(f)) {
            c.flops = (diagonal ? 1 : dot + 1) + over_rows + 2;
            c.specials = 2;
        }
    } else if (has_norm(f)) {
        c.flops = diagonal ? over_rows + 1 : (dot > over_rows ? dot : over_rows) + 2;
    } else {
        c.flops = diagonal ? 1 : dot + 2;
    }
    return c;
}

/* Of k, v, q, z; backward the gradients of x and of the weights. */
static double projections(const struct call *f, enum pass p)
{
    double product = 2.0 * DIM(f, 'T') * DIM(f, 'B') * DIM(f, 'P') * DIM(f, 'D');
    int products = 1 + has_v(f) + has_q(f) + has_z(f);
    return products * product * (p == FORWARD ? 1 : 2);
}

/* And of act, an exponential and a reciprocal each. */
static double layer_specials(const struct call *f, enum pass p)
{
    return cell_specials(f, p) + (e74_has_gate(f) ? 2 * all_rows(f) : 0);
}

static double layer_flops(const struct call *f, enum pass p)
{
    return cell_flops(f, p) + projections(f, p);
}

static double layer_products(const struct call *f, enum pass p)
{
    return cell_products(f, p) + projections(f, p);
}

/* The layer's, the projection back to dim, the norm and the sum. */
static double block_flops(const struct call *f, enum pass p)
{
    double rows = (double)DIM(f, 'T') * DIM(f, 'B'), back = 2 * rows * DIM(f, 'P') * DIM(f, 'D');
    return layer_flops(f, p) + (p == FORWARD ? back : 2 * back) +
           rows * DIM(f, 'D') * (p == FORWARD ? 5 : 10);
}

static double block_products(const struct call *f, enum pass p)
{
    double back = 2.0 * DIM(f, 'T') * DIM(f, 'B') * DIM(f, 'P') * DIM(f, 'D');
    return layer_products(f, p) + (p == FORWARD ? back : 2 * back);
}

/* ---- what must hold ---- */

// clang-format off
#define STATE_LISTS "nonlin=tanh,linear,rmsnorm,frobnorm "
#define PROJ_LISTS(sizes)                                                                        \
    sizes " " STATE_LISTS "proj=no_z,tied_kq,tied_kvq; "                                         \
    sizes " " STATE_LISTS "proj=full z_mod=column,row,full; "
#define SMALL "steps=5 batch=2 heads=2 checkpoint_interval=2 "

/* All combinations small, then edges and odd sizes.  (Blocks of 1 stay small: their k^ is the
 * sign of k, whose jumps spoil differences over many elements at once; and the float
 * arithmetic of a bf16 trial has one digit of the gradient of a single key of one element.) */
#define CELL_CASES(d)                                                                            \
    PROJ_LISTS(SMALL "n_state=4" d " state=full,diagonal")                                       \
    PROJ_LISTS(SMALL "n_state=6 block_size=3" d " state=blockdiag")                              \
    PROJ_LISTS(SMALL "n_state=4 rank=3" d " state=lowrank")                                      \
    SMALL "n_state=4 rank=3" d " state=lowrank V=shared " STATE_LISTS "proj=full z_mod=full; "   \
    "steps=1 batch=1 heads=3 n_state=1 state=full,diagonal" d "; "                               \
    "steps=3 batch=2 n_state=4 state=blockdiag block_size=1,4 proj=full" d "; "                  \
    "steps=3 batch=5 n_state=7 heads=3 state=full checkpoint_interval=1,2,9" d "; "              \
    "steps=33 batch=2 n_state=33 state=full proj=full" d "; "                                    \
    "steps=37 batch=3 n_state=24 block_size=8 state=blockdiag proj=full z_mod=full" d "; "       \
    "steps=9 batch=3 n_state=40 state=full nonlin=rmsnorm proj=full checkpoint_interval=4" d "; "\
    "steps=20 batch=30 n_state=2 state=full nonlin=frobnorm checkpoint_interval=4" d "; "        \
    "steps=100 batch=4 heads=2 n_state=17 state=full nonlin=frobnorm checkpoint_interval=16"     \
    d "; "                                                                                       \
    "steps=9 batch=2 heads=3 n_state=7 rank=1,16 state=lowrank" d "; "                           \
    "steps=9 batch=3 heads=3 n_state=7 rank=1,16 state=lowrank V=shared nonlin=tanh,frobnorm" d  \
    "; "                                                                                         \
    "steps=6 batch=19 n_state=5 rank=2 state=lowrank V=shared nonlin=linear proj=tied_kq" d "; " \
    "steps=140 batch=3 heads=2 n_state=24 rank=9 state=lowrank V=shared proj=tied_kvq "          \
    "checkpoint_interval=9 checkpoint_dtype=bf16" d "; "                                         \
    "steps=40 batch=2 n_state=16 state=full checkpoint_dtype=bf16,fp16" d "; "                   \
    "steps=9 batch=2 n_state=16 state=full,diagonal trajectory=store "                           \
    "checkpoint_dtype=fp32,fp16" d "; "                                                          \
    "steps=140 batch=1 n_state=24 rank=9 state=lowrank proj=tied_kvq checkpoint_interval=64"     \
    d "; "                                                                                       \
    "steps=140 batch=1 n_state=24 rank=9 state=lowrank proj=tied_kvq checkpoint_interval=9 "     \
    "checkpoint_dtype=bf16" d "; "                                                               \
    "steps=140 batch=1 n_state=24 block_size=3 state=blockdiag proj=tied_kvq "                   \
    "checkpoint_interval=64" d "; "                                                              \
    "steps=140 batch=1 n_state=24 block_size=3 state=blockdiag proj=tied_kvq "                   \
    "checkpoint_interval=9 checkpoint_dtype=bf16" d "; "                                         \
    "steps=33 batch=1 heads=1 n_state=14 block_size=2 state=blockdiag proj=full z_mod=column" d  \
    "; "                                                                                         \
    "steps=70 batch=2 n_state=65 state=diagonal proj=full" d

/* For kernels that take many steps at once: more than 64, at widths that they may divide their
 * work by. */
#define LONG_CASES                                                                               \
    "; steps=70 batch=2 n_state=16 nonlin=linear proj=full,tied_kvq"                             \
    "; steps=130 batch=1 n_state=16 nonlin=linear checkpoint_interval=20"                        \
    "; steps=66 batch=2 n_state=48 nonlin=linear proj=tied_kq checkpoint_dtype=bf16,fp16"        \
    "; steps=65 batch=3 n_state=32 nonlin=linear"                                                \
    "; steps=65 batch=1 n_state=80 nonlin=linear proj=full"                                      \
    "; steps=65 batch=2 n_state=80 nonlin=linear"                                                \
    "; steps=130 batch=1 n_state=80 nonlin=linear"                                               \
    "; steps=200 batch=1 n_state=48 nonlin=linear proj=tied_kvq"                                 \
    "; steps=300 batch=2 n_state=16 nonlin=linear proj=full"                                     \
    "; steps=1100 batch=2 n_state=16 nonlin=linear proj=full"                                    \
    "; steps=3072 batch=1 n_state=16 nonlin=linear checkpoint_interval=20"

/* And for kernels that go about it otherwise where there are many rows or many states. */
#define MANY_CASES                                                                               \
    "; steps=10 batch=128 n_state=16 nonlin=linear"                                              \
    "; steps=3 batch=128 n_state=40 nonlin=tanh"                                                 \
    "; steps=5 batch=140 n_state=4 nonlin=rmsnorm"

/* Keys that show what is added to their norm. */
#define TINY_CASES                                                                               \
    "; steps=6 batch=3 heads=2 n_state=8 block_size=4 rank=3 checkpoint_interval=4 "             \
    "state=full,diagonal,lowrank,blockdiag fill=tiny"

/* The layers', with a gate: on each side of each state, where it saturates, and in many steps. */
#define GATE_CASES(d)                                                                            \
    "; " SMALL "n_state=4 rank=3 state=full,lowrank z_act=sigmoid,twice_sigmoid proj=full "      \
    "z_mod=column,row,full " d                                                                   \
    "; " SMALL "n_state=6 block_size=3 state=diagonal,blockdiag nonlin=linear "                  \
    "z_act=sigmoid,twice_sigmoid proj=full z_mod=column,row,full " d                             \
    "; " SMALL "n_state=4 fill=saturated z_act=sigmoid,twice_sigmoid proj=full z_mod=full " d    \
    "; steps=1 batch=3 heads=3 n_state=1 fill=saturated z_act=sigmoid proj=full " d              \
    "; steps=9 batch=3 n_state=33 z_act=twice_sigmoid proj=full nonlin=rmsnorm " d               \
    "; steps=70,300 batch=2 n_state=16 nonlin=linear z_act=twice_sigmoid proj=full " d

#define BLOCK "state=blockdiag block_size=6 n_state=6 " SMALL
#define FULL "state=full n_state=6 " SMALL
#define FACTORED "state=lowrank rank=6 n_state=6 " SMALL
#define ALONE "state=lowrank rank=6 n_state=6 steps=5 batch=1 heads=2 checkpoint_interval=2 "
#define Z " proj=full z_mod=full"
#define LIMIT "steps=8 batch=2 n_state=6 state=full proj=full "

static const struct identity cell_identities[] = {
    {"one block is full", BLOCK Z, FULL Z, "", "", "out S_T k v q z S0", NULL},
    {"one block is full, rmsnorm", BLOCK "nonlin=rmsnorm", FULL "nonlin=rmsnorm", "", "",
     "out S_T k v q S0", NULL},
    {"V = W_r = 1 is full", FACTORED Z, FULL Z, "V0=eye W_r=eye", "S0=U0",
     "out U_T:S_T k v q z U0:S0", NULL},
    {"V = W_r = 1 is full, frobnorm", FACTORED "nonlin=frobnorm", FULL "nonlin=frobnorm",
     "V0=eye W_r=eye", "S0=U0", "out U_T:S_T k v q U0:S0", NULL},
    {"z = 1 is no_z, column", FULL "proj=full z_mod=column", FULL, "z=ones", "",
     "out S_T k v q S0", NULL},
    {"z = 1 is no_z, row", FULL "proj=full z_mod=row", FULL, "z=ones", "", "out S_T k v q S0",
     NULL},
    {"z = 1 is no_z, diagonal", "state=diagonal n_state=6 " SMALL Z, "state=diagonal n_state=6 "
     SMALL, "z=ones", "", "out S_T k v q S0", NULL},
    {"tied_kq is q = k", FULL "proj=tied_kq", FULL, "", "q=k", "out S_T k:k+q v S0", NULL},
    {"tied_kvq is v = q = k", FULL "proj=tied_kvq", FULL, "", "v=k q=k", "out S_T k:k+v+q S0",
     NULL},
    {"tied_kvq is v = q = k, lowrank", FACTORED "proj=tied_kvq", FACTORED, "", "v=k q=k",
     "out U_T k:k+v+q U0 V0 W_r", NULL},
    {"a shared V of one sequence is its own", ALONE Z, ALONE "V=shared" Z, "", "",
     "out U_T k v q z U0 V0 W_r", NULL},
    {"a shared V is that of equal ones", FACTORED Z, FACTORED "V=shared" Z, "V0=eye", "",
     "out U_T k v q z U0 W_r", NULL},
    {"a shared V is that of equal ones, rmsnorm", FACTORED "nonlin=rmsnorm",
     FACTORED "V=shared nonlin=rmsnorm", "V0=eye", "", "out U_T k v q U0 W_r", NULL},
    {"stored is an interval of 1", LIMIT "trajectory=store", LIMIT "checkpoint_interval=1", "", "",
     "out S_T k v q z S0", NULL},
    {"tanh tends to linear", LIMIT "nonlin=tanh", LIMIT "nonlin=linear", "", "", "out S_T v S0",
     "v S0"},
};

static const struct identity layer_identities[] = {
    {"one block is full", BLOCK "dim=5" Z, FULL "dim=5" Z, "", "",
     "out S_T x W_k W_v W_q W_z b_z S0", NULL},
    {"V = W_r = 1 is full", FACTORED "dim=5" Z, FULL "dim=5" Z, "V0=eye W_r=eye", "S0=U0",
     "out U_T:S_T x W_k W_v W_q W_z b_z U0:S0", NULL},
    {"a shared V of one sequence is its own", ALONE "dim=5" Z, ALONE "V=shared dim=5" Z, "", "",
     "out U_T x W_k W_v W_q W_z b_z U0 V0 W_r", NULL},
    {"W_z = 0, b_z = 1 is no_z", FULL "dim=5" Z, FULL "dim=5", "W_z=zeros b_z=ones", "",
     "out S_T W_k W_v W_q S0", NULL},
    {"2 sigma(0) = 1 is no_z", FULL "dim=5 z_act=twice_sigmoid" Z, FULL "dim=5", "W_z=zeros b_z=zeros",
     "", "out S_T x W_k W_v W_q S0", NULL},
    {"sigma(0) = 1/2 is b_z = 1/2", FULL "dim=5 z_act=sigmoid" Z, FULL "dim=5" Z, "W_z=zeros b_z=zeros",
     "b_z=0.5", "out S_T x W_k W_v W_q S0", NULL},
    {"tied_kq is W_q = W_k", FULL "dim=5 proj=tied_kq", FULL "dim=5", "", "W_q=W_k",
     "out S_T x W_k:W_k+W_q W_v S0", NULL},
    {"tied_kvq is W_v = W_q = W_k", FULL "dim=5 proj=tied_kvq", FULL "dim=5", "",
     "W_v=W_k W_q=W_k", "out S_T x W_k:W_k+W_v+W_q S0", NULL},
};
// clang-format on

static const struct neutral cell_interval = {
    "checkpoint_interval",
    "1,7,32,40,100",
    "steps=40 batch=2 heads=2 n_state=4 state=full,diagonal " STATE_LISTS "; "
    "steps=70,1030 batch=1 n_state=16 state=full nonlin=linear; "
    "steps=40 batch=2 heads=2 n_state=4 state=full nonlin=tanh,frobnorm proj=full z_mod=full; "
    "steps=40 batch=2 heads=2 n_state=6 block_size=3 state=blockdiag " STATE_LISTS "; "
    "steps=40 batch=2 heads=2 n_state=4 rank=3 state=lowrank V=each,shared " STATE_LISTS,
};

static const struct neutral layer_interval = {
    "checkpoint_interval",
    "1,7,32,40,100",
    "steps=40 batch=2 heads=2 n_state=4 dim=3 state=full,diagonal proj=full; "
    "steps=40 batch=2 heads=2 n_state=4 rank=3 dim=3 state=lowrank V=each,shared nonlin=rmsnorm",
};

/* ---- shapes ---- */

/* A line is one set of sizes in all four states; each value meets many others:
 *
 *     T 1 2 31 33 513 3072    B 1 3 33    H 1 3    n 1 7 33 63 65 100 128 200 256
 *     K 1 7 T and beyond T    rank 1 5 16    block 1 3 16 and other divisors of n
 *
 * and each nonlinearity, projection and modulation is in every state.  Kept
 * out: states over 64 MB per segment (each run moves them all to and fro), results
 * of so few elements that the yardstick can be right by chance, linear states that
 * overflow, and the layer at 30000 rows of x: how far a float sum of so many is off depends on its
 * order by more than SLACK, and the order is the BLAS's. */
// clang-format off
#define SIZES(T, B, H, n, K, r, b)                                                               \
    "steps=" #T " batch=" #B " heads=" #H " n_state=" #n " checkpoint_interval=" #K              \
    " rank=" #r " block_size=" #b " "
#define STATES " state=full,diagonal,lowrank,blockdiag; "
#define SHARED_V " state=lowrank V=shared; "

static const char cell_shapes[] =
    SIZES(1, 33, 1, 7, 1, 5, 7) "nonlin=tanh proj=full z_mod=column" STATES
    SIZES(1, 3, 3, 33, 1000, 16, 3) "nonlin=frobnorm proj=full z_mod=row" STATES
    SIZES(1, 1, 3, 65, 1, 1, 13) "nonlin=rmsnorm proj=tied_kq" STATES
    SIZES(1, 1, 3, 128, 1, 5, 16) "nonlin=tanh proj=tied_kq checkpoint_dtype=bf16" STATES
    SIZES(1, 33, 1, 256, 1000, 5, 16) "nonlin=linear proj=tied_kvq" STATES
    SIZES(2, 33, 3, 1, 7, 5, 1) "nonlin=rmsnorm proj=no_z" STATES
    SIZES(2, 33, 3, 7, 1, 5, 1) "nonlin=rmsnorm proj=tied_kvq checkpoint_dtype=fp16" STATES
    SIZES(2, 1, 1, 63, 1000, 1, 9) "nonlin=linear proj=full z_mod=column" STATES
    SIZES(2, 33, 1, 100, 1, 1, 20) "nonlin=frobnorm proj=tied_kq" STATES
    SIZES(2, 3, 3, 200, 1, 16, 40) "nonlin=rmsnorm proj=full z_mod=full" STATES
    SIZES(2, 3, 1, 256, 2, 16, 16) "nonlin=tanh proj=full z_mod=row" STATES
    SIZES(31, 3, 1, 1, 1, 1, 1) "nonlin=tanh proj=full z_mod=full" STATES
    SIZES(31, 3, 3, 7, 7, 1, 7) "nonlin=rmsnorm proj=full z_mod=row" STATES
    SIZES(31, 3, 1, 33, 31, 1, 11) "nonlin=rmsnorm proj=full z_mod=full" STATES
    SIZES(31, 33, 3, 63, 31, 5, 9) "nonlin=frobnorm proj=tied_kvq" STATES
    SIZES(31, 33, 1, 65, 1000, 16, 13) "nonlin=linear proj=full z_mod=full" STATES
    SIZES(31, 1, 3, 100, 31, 5, 20) "nonlin=tanh proj=no_z checkpoint_dtype=fp16" STATES
    SIZES(31, 33, 1, 128, 7, 16, 16) "nonlin=frobnorm proj=tied_kvq" STATES
    SIZES(31, 33, 1, 200, 7, 5, 40) "nonlin=frobnorm proj=no_z" STATES
    SIZES(31, 3, 1, 256, 7, 5, 1) "nonlin=tanh proj=tied_kq" STATES
    SIZES(33, 33, 1, 1, 7, 16, 1) "nonlin=frobnorm proj=tied_kvq" STATES
    SIZES(33, 33, 1, 7, 1, 5, 7) "nonlin=linear proj=full z_mod=row" STATES
    SIZES(33, 33, 3, 33, 1, 16, 11) "nonlin=tanh proj=full z_mod=column" STATES
    SIZES(33, 1, 1, 63, 7, 16, 3) "nonlin=rmsnorm proj=no_z checkpoint_dtype=bf16" STATES
    SIZES(33, 3, 3, 65, 1, 1, 1) "nonlin=frobnorm proj=full z_mod=column" STATES
    SIZES(33, 3, 1, 100, 1000, 16, 20) "nonlin=rmsnorm proj=full z_mod=column" STATES
    SIZES(33, 1, 3, 128, 33, 5, 1) "nonlin=rmsnorm proj=full z_mod=row" STATES
    SIZES(33, 1, 1, 200, 1000, 1, 40) "nonlin=tanh proj=tied_kvq" STATES
    SIZES(33, 1, 3, 256, 1, 5, 16) "nonlin=frobnorm proj=full z_mod=full" STATES
    SIZES(513, 1, 3, 1, 513, 16, 1) "nonlin=linear proj=tied_kq state=full,diagonal,blockdiag; "
    SIZES(513, 1, 3, 1, 513, 16, 1) "nonlin=tanh proj=tied_kq state=lowrank; "
    SIZES(513, 1, 3, 7, 1000, 16, 7) "nonlin=frobnorm proj=tied_kvq" STATES
    SIZES(513, 33, 1, 33, 7, 5, 33) "nonlin=linear proj=full z_mod=full" STATES
    SIZES(513, 1, 3, 63, 1, 16, 9) "nonlin=tanh proj=full z_mod=row" STATES
    SIZES(513, 3, 1, 65, 7, 5, 13) "nonlin=tanh proj=tied_kvq" STATES
    SIZES(513, 3, 3, 128, 7, 1, 16) "nonlin=linear proj=no_z" STATES
    SIZES(513, 1, 1, 256, 7, 1, 16) "nonlin=rmsnorm proj=full z_mod=column" STATES
    SIZES(1, 33, 3, 33, 1, 5, 11) "nonlin=linear proj=no_z" SHARED_V
    SIZES(2, 33, 3, 7, 1, 5, 1) "nonlin=rmsnorm proj=full z_mod=full" SHARED_V
    SIZES(31, 3, 1, 200, 7, 1, 40) "nonlin=tanh proj=tied_kvq" SHARED_V
    SIZES(33, 33, 1, 100, 1000, 16, 20) "nonlin=frobnorm proj=tied_kq checkpoint_dtype=bf16" SHARED_V
    SIZES(513, 3, 3, 63, 7, 16, 9) "nonlin=tanh proj=full z_mod=full" SHARED_V
    SIZES(513, 1, 3, 128, 7, 1, 16) "nonlin=linear proj=no_z" SHARED_V
    /* Long enough for kernels that split it. */
    SIZES(3072, 1, 3, 128, 64, 1, 16) "nonlin=linear proj=full z_mod=column state=full; "
    SIZES(3072, 3, 2, 64, 7, 1, 16) "nonlin=linear proj=tied_kq state=full; "
    /* 70000 sequences and heads: more than 65535, what two of a grid's sides hold. */
    SIZES(3, 10000, 7, 4, 2, 5, 2) "nonlin=tanh proj=full z_mod=full" STATES
    SIZES(3, 3000, 7, 4, 2, 5, 2) "nonlin=tanh proj=full z_mod=full" SHARED_V;

static const char layer_shapes[] =
    SIZES(1, 33, 3, 33, 7, 5, 3) "dim=17 nonlin=rmsnorm proj=full z_mod=row" STATES
    SIZES(2, 3, 1, 63, 2, 16, 9) "dim=65 nonlin=linear proj=tied_kq" STATES
    SIZES(31, 33, 1, 7, 1, 1, 7) "dim=1 nonlin=frobnorm proj=full z_mod=full" STATES
    SIZES(33, 3, 3, 65, 33, 5, 13) "dim=100 nonlin=tanh proj=full z_mod=column" STATES
    SIZES(33, 3, 3, 100, 1000, 16, 20) "dim=7 nonlin=rmsnorm proj=tied_kvq" STATES
    SIZES(33, 1, 1, 256, 7, 1, 16) "dim=129 nonlin=tanh proj=no_z" STATES
    SIZES(33, 3, 3, 65, 33, 5, 13) "dim=100 nonlin=frobnorm proj=full z_mod=row" SHARED_V
    SIZES(65, 5, 1, 33, 7, 16, 3) "dim=17 nonlin=tanh proj=tied_kq" SHARED_V
    SIZES(513, 3, 1, 33, 1, 16, 1) "dim=33 nonlin=linear proj=full z_mod=full "
    "state=full,diagonal,lowrank; "
    SIZES(513, 3, 1, 33, 1, 16, 1) "dim=33 nonlin=tanh proj=full z_mod=full state=blockdiag; "
    SIZES(33, 3, 3, 65, 33, 5, 13) "dim=100 proj=full z_mod=full z_act=twice_sigmoid" STATES
    SIZES(31, 33, 1, 7, 1, 1, 7) "dim=9 nonlin=linear proj=full z_act=sigmoid fill=saturated" STATES;

// clang-format on

/* ---- costs ---- */

/* At T 3, B 2, n 4 there are 6 steps of a sequence, 24 rows, 96 elements of a
 * full state; a pass over it is 192 FLOPs; two specials for a norm, two for a
 * sigmoid.  Its first state is the only checkpoint: 2 of 3 are computed again. */
// clang-format off
#define COUNTED "steps=3 batch=2 n_state=4 "
static const struct cost cell_costs[] = {
    {COUNTED "nonlin=tanh", FORWARD, 576, 384, 96 + 12 + 48, {3, 1 + 2 + 1, 1}},
    {COUNTED "nonlin=tanh", BACKWARD, 1728, 960, 64 + 18 + 48, {3, 1 + 1 + 2 + 1, 0}},
    {COUNTED "nonlin=tanh checkpoint_interval=1", BACKWARD, 1728, 960, 18 + 48, {3, 5, 0}},
    {COUNTED "nonlin=linear", FORWARD, 576, 576, 12 + 48, {0, 0, 0}},
    {COUNTED "nonlin=linear", BACKWARD, 1728, 1728, 18 + 48, {0, 0, 0}},
    {COUNTED "nonlin=rmsnorm", FORWARD, 576, 384, 12 + 12 + 48, {3, 3 + 1 + 3 + 2, 2}},
    {COUNTED "nonlin=frobnorm", BACKWARD, 1728, 960, 18 + 18 + 48, {3, 3 + 2, 0}},
    {COUNTED "state=diagonal", FORWARD, 144, 0, 24 + 12 + 48, {3, 1, 1}},
    {COUNTED "state=diagonal nonlin=rmsnorm", FORWARD, 144, 0, 12 + 12 + 48, {3, 1 + 3 + 2, 2}},
    {COUNTED "state=diagonal nonlin=rmsnorm", BACKWARD, 432, 0, 18 + 18 + 48, {3, 3 + 1, 0}},
    {COUNTED "state=blockdiag block_size=2", FORWARD, 288, 192, 48 + 24 + 48, {3, 1 + 1 + 1, 1}},
    {COUNTED "state=lowrank rank=3", FORWARD, 432 + 432, 288 + 432, 72 + 12 + 48,
     {3, 1 + 2 + 1, 1}},
    {.settings = NULL},
};

#define GATED COUNTED "dim=5 proj=full z_act=sigmoid"
static const struct cost layer_costs[] = {
    {COUNTED "dim=5", FORWARD, 576 + 3 * 240, 384 + 3 * 240, 96 + 12 + 48, {3, 4, 1}},
    {COUNTED "dim=5", BACKWARD, 1728 + 6 * 240, 960 + 6 * 240, 64 + 18 + 48, {3, 5, 0}},
    {GATED, FORWARD, 576 + 4 * 240, 384 + 4 * 240, 96 + 12 + 48 + 48, {3, 4, 1}},
    {GATED, BACKWARD, 1728 + 8 * 240, 960 + 8 * 240, 64 + 18 + 48 + 48, {3, 5, 0}},
    {.settings = NULL},
};
// clang-format on

/* ---- sizes that cannot be ---- */

/* A rank beyond n is no mistake. */
static const struct refusal refused[] = {
    {"state=blockdiag n_state=100 block_size=16", "block_size = 16"},
    {"state=blockdiag n_state=3 block_size=4", "n_state = 3"},
    {"steps=1073741824 batch=1073741824 heads=1073741824", "64-bit"},
    {.settings = NULL},
};

/* No contract forbids these, but they are beyond what any block can hold. */
#define BEYOND                                                                                     \
    {"state=full,diagonal,lowrank,blockdiag n_state=1048576 steps=1 batch=1", "n_state"},          \
    {                                                                                              \
        "state=lowrank rank=1048576 n_state=4 steps=1 batch=1", "rank"                             \
    }

static const struct refusal cell_declined[] = {BEYOND, {.settings = NULL}};
static const struct refusal layer_declined[] = {
    BEYOND, {"state=diagonal steps=1048576 batch=4096 n_state=1", "rows"}, {.settings = NULL}};

/* The members that all three share. */
#define E74                                                                                        \
    .axis = axes, .refused = refused, .derive = derive, .chain = cell_chain, .rows = "BH",         \
    .batch = 'B', .time = 'T', .sites = "GS", .declared = "delta"
#define SMALL_BLOCK SMALL "n_state=4 dim=6 "

const struct op op_e74_cell = {
    .name = "e74_cell",
    .formula = "S <- f(S + (v - S k^) k^T); y = S q; out = y silu(y)",
    .source = "E74 matrix-state delta rule; common/ops/e74.h",
    E74,
    SIGNATURE(e74_cell, cell_params, cell_args),
    .cases = CELL_CASES("") LONG_CASES MANY_CASES TINY_CASES,
    .shapes = cell_shapes,
    .declined = cell_declined,
    .cost = cell_costs,
    IDENTITIES(cell_identities),
    .neutral = &cell_interval,
    .flops = cell_flops,
    .products = cell_products,
    .specials = cell_specials,
};

const struct op op_e74 = {
    .name = "e74",
    .formula = "k v q z = W x; then e74_cell",
    .source = "E74 matrix-state delta rule; common/ops/e74.h",
    E74,
    .param = params,
    .n_params = LAYER_PARAMS,
    .arg = layer_args,
    .n_args = N_ARGS(e74),
    .cases = CELL_CASES(
        " dim=3") "; steps=66,1100 batch=1 n_state=16 nonlin=linear dim=3" GATE_CASES("dim=3"),
    .shapes = layer_shapes,
    .memory = "state=diagonal,full steps=512 batch=32 n_state=64 dim=256",
    .declined = layer_declined,
    .cost = layer_costs,
    IDENTITIES(layer_identities),
    .neutral = &layer_interval,
    .flops = layer_flops,
    .products = layer_products,
    .specials = layer_specials,
    .part = e74_part,
    .blas = 1,
};

const struct op op_e74_block = {
    .name = "e74_block",
    .formula = "out = x + e74(rmsnorm(x)) W_o^T",
    .source = "common/ops/e74.h",
    E74,
    .param = params,
    .n_params = BLOCK_PARAMS,
    .arg = block_args,
    .n_args = N_ARGS(e74_block),
    .cases = SMALL_BLOCK
    "state=full,diagonal nonlin=tanh,linear; " SMALL_BLOCK
    "rank=3 state=lowrank V=each,shared proj=full; " SMALL_BLOCK
    "rank=3 state=lowrank V=shared nonlin=rmsnorm proj=tied_kvq; " SMALL_BLOCK
    "state=blockdiag block_size=2 nonlin=rmsnorm proj=tied_kvq eps=0.5; " SMALL_BLOCK
    "state=blockdiag block_size=4 nonlin=frobnorm; " SMALL_BLOCK
    "state=blockdiag block_size=2,4 nonlin=frobnorm proj=tied_kvq eps=0.5; "
    "steps=5 batch=2 heads=2 n_state=4 dim=6 proj=full z_mod=row trajectory=store "
    "checkpoint_dtype=bf16; " SMALL_BLOCK "proj=full z_mod=full "
    "checkpoint_dtype=fp16; "
    "steps=33 batch=1 n_state=16 checkpoint_interval=8 dim=24 proj=tied_kq; "
    "steps=66,1100 batch=1 n_state=16 nonlin=linear dim=3; "
    "steps=31 batch=2 heads=8 n_state=2 checkpoint_interval=20 dim=1 state=diagonal nonlin=linear "
    "proj=tied_kvq; "
    "steps=2 batch=131 heads=10 n_state=2 checkpoint_interval=1 dim=1 nonlin=rmsnorm "
    "eps=0.875" GATE_CASES("dim=6"),
    .flops = block_flops,
    .products = block_products,
    .specials = layer_specials,
    .blas = 1,
};
