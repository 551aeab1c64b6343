/* Shapes that kernels stumble over: one step, one sequence, one more than a
 * warp or a block holds, odd widths, blocks and ranks, segments longer than
 * the sequence, more sequences than a grid is wide.  Every kernel of every
 * GPU backend: parity with the oracle, then some more runs (many, where
 * CHECK_LONG is set), each in fresh memory full of NaN between guard bands, that
 * must all give the same bits.  And sizes that must be refused, in words that
 * name them.
 *
 * Its arguments are those of tests/parts.h; a part has every so many-th case. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/parts.h"

/* ---- the shapes ---- */

/* A line is one set of sizes in all four states; each value meets many others:
 *
 *     T 1 2 31 33 513 3072    B 1 3 33    H 1 3    n 1 7 33 63 65 100 128 200 256
 *     K 1 7 T and beyond T    rank 1 5 16    block 1 3 16 and other divisors of n
 *
 * and each nonlinearity, projection and modulation is in every state.  Kept
 * out: states over 64 MB a segment (each run moves them all to and fro), results
 * of so few elements that the yardstick can be right by chance, linear states that
 * grow beyond all numbers, and the layer
 * at 30000 rows of x: how far a float sum of so many is off depends on its
 * order by more than SLACK, and the order is the BLAS's. */
// clang-format off
#define SIZES(T, B, H, n, K, r, b)                                                               \
    "steps=" #T " batch=" #B " heads=" #H " n_state=" #n " checkpoint_interval=" #K              \
    " rank=" #r " block_size=" #b " "
#define STATES " state=full,diagonal,lowrank,blockdiag; "

static const char cell_cases[] =
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
    /* Long enough for kernels that split it. */
    SIZES(3072, 1, 3, 128, 64, 1, 16) "nonlin=linear proj=full z_mod=column state=full; "
    SIZES(3072, 3, 2, 64, 7, 1, 16) "nonlin=linear proj=tied_kq state=full; "
    /* 70000 sequences and heads: more than 65535, what two of a grid's sides hold. */
    SIZES(3, 10000, 7, 4, 2, 5, 2) "nonlin=tanh proj=full z_mod=full" STATES;

static const char layer_cases[] =
    SIZES(1, 33, 3, 33, 7, 5, 3) "dim=17 nonlin=rmsnorm proj=full z_mod=row" STATES
    SIZES(2, 3, 1, 63, 2, 16, 9) "dim=65 nonlin=linear proj=tied_kq" STATES
    SIZES(31, 33, 1, 7, 1, 1, 7) "dim=1 nonlin=frobnorm proj=full z_mod=full" STATES
    SIZES(33, 3, 3, 65, 33, 5, 13) "dim=100 nonlin=tanh proj=full z_mod=column" STATES
    SIZES(33, 3, 3, 100, 1000, 16, 20) "dim=7 nonlin=rmsnorm proj=tied_kvq" STATES
    SIZES(33, 1, 1, 256, 7, 1, 16) "dim=129 nonlin=tanh proj=no_z" STATES
    SIZES(513, 3, 1, 33, 1, 16, 1) "dim=33 nonlin=linear proj=full z_mod=full "
    "state=full,diagonal,lowrank; "
    SIZES(513, 3, 1, 33, 1, 16, 1) "dim=33 nonlin=tanh proj=full z_mod=full state=blockdiag; ";

#undef SIZES
#define SIZES(T, B, N, D, I, K)                                                                  \
    "steps=" #T " batch=" #B " slots=" #N " dim=" #D " dim_in=" #I " checkpoint_interval=" #K " "
#define ALL "preset=e23,e25,e26,e29a,e29b,e29c "
#define PRESETS ALL "; "

/* The dual memory: a line is one set of sizes in all presets.
 *
 *     T 1 2 5 31 65 513   B 1 3 33   N 1 7 8 9 16 17 24 32 33 63 64
 *     D 1 3 5 33 64 100 256 520   I 1 3 and other odd widths   K 1 7 T and beyond T
 *
 * Kept out: long ones at D 1, whose W_write has a gradient of one element. */
static const char dual_cases[] =
    SIZES(1, 33, 7, 1, 1, 1) PRESETS
    SIZES(1, 1, 64, 100, 7, 1000) "tape=each " PRESETS
    SIZES(1, 3, 17, 520, 33, 7) PRESETS
    SIZES(1, 33, 8, 256, 65, 1) PRESETS
    SIZES(2, 33, 1, 3, 3, 1) PRESETS
    SIZES(2, 3, 16, 1, 1, 7) "tape=each " PRESETS
    SIZES(2, 3, 9, 33, 1, 2) "tape=each " PRESETS
    SIZES(2, 33, 33, 64, 129, 7) PRESETS
    SIZES(2, 1, 24, 520, 3, 1) PRESETS
    SIZES(5, 1, 16, 33, 5, 1) PRESETS
    SIZES(5, 3, 63, 3, 1, 7) PRESETS
    SIZES(5, 33, 16, 100, 33, 5) "tape=each " PRESETS
    SIZES(5, 3, 64, 256, 1, 1000) PRESETS
    SIZES(31, 1, 1, 64, 17, 7) PRESETS
    SIZES(31, 33, 9, 5, 3, 31) PRESETS
    SIZES(31, 3, 32, 520, 65, 7) "tape=each " PRESETS
    SIZES(31, 1, 33, 100, 129, 1) "checkpoint_dtype=fp16 " PRESETS
    SIZES(65, 3, 8, 33, 7, 7) "checkpoint_dtype=bf16 " PRESETS
    SIZES(65, 33, 17, 64, 33, 65) PRESETS
    SIZES(65, 1, 7, 256, 3, 1000) "tape=each " PRESETS
    SIZES(65, 3, 24, 100, 1, 1) PRESETS
    SIZES(513, 1, 64, 33, 9, 7) "tape=each " PRESETS
    SIZES(513, 3, 32, 64, 17, 513) PRESETS
    SIZES(513, 1, 63, 3, 5, 1) PRESETS
    /* What no preset is: entmax with a gate, or looking for v. */
    SIZES(5, 3, 24, 64, 33, 2) "preset=parts attention=entmax15 write_query=h,v "
    "gate=none,sum,matrix,scaled; "
    SIZES(31, 3, 63, 33, 7, 7) "tape_init=zero " PRESETS;
// clang-format on

static const struct odd {
    const char *op, *cases;
} odd[] = {{"e74_cell", cell_cases}, {"e74", layer_cases}, {"dual_memory", dual_cases}};

/* ---- judging ---- */

/* The emulator takes minutes for what a GPU does in seconds: it gets the cases
 * below a limit, and fewer runs of each. */
#if defined __SANITIZE_ADDRESS__ || defined EMU_RACE
enum { RUNS = 4, MANY_RUNS = 20, EMULATED_RUNS = 1 };
#else
enum { RUNS = 4, MANY_RUNS = 20, EMULATED_RUNS = 3 };
#endif
static const double EMULATED_WORK = 2.5e5;

struct session {
    double limit; /* operations of a case that is run */
    int runs;
    struct part part;
    int left; /* cases beyond the limit */
};

/* Damaged guards of run number `run`, as a verdict of its own. */
static int note_guards(const struct call *c, int run, const struct outcome *out,
                       struct verdicts *list)
{
    struct verdict *v;

    if (!out->overrun[0])
        return 0;
    if (!(v = verdict_add(list, "guards", out->overrun, c->backend, c->kernel)))
        return -1;
    v->error = v->norm = INFINITY;
    snprintf(v->worst, sizeof v->worst, "run %d", run);
    return 0;
}

/* A verdict for each result whose bits differ. */
static int note_differences(const struct call *c, const struct tensors *got,
                            const struct tensors *want, struct verdicts *list)
{
    for (int i = 0; i < c->op->n_args; i++)
        for (int grad = 0; grad < 2; grad++) {
            const double *x = tensors_result(got, i, grad), *y = tensors_result(want, i, grad);
            if (op_results(c->op, c->sizes, i, grad) &&
                !same_bits(x, y, op_count(c->op, c->sizes, i)) &&
                check_tensor("repeat", c->op, c->sizes, c->backend, c->kernel, i, grad, x, y, 0,
                             list))
                return -1;
        }
    return 0;
}

/* Further runs, up to the first that is not as `want`. */
static int judge_repeats(const struct call *c, const struct tensors *want, int runs,
                         struct verdicts *list)
{
    struct tensors *again = tensors_copy(c->op, c->sizes, want);
    int e = !again, before = list->n;

    for (int run = 2; !e && run <= runs && list->n == before; run++) {
        struct outcome out;
        e = run_op(c, again, &out) || note_guards(c, run, &out, list) ||
            note_differences(c, again, want, list);
    }
    tensors_free(again);
    return e;
}

/* What a kernel has not written is still NaN, whose distance from the
 * oracle's result is infinite: parity sees that too. */
static int judge_shape(const struct call *c, struct question *q, void *data, struct verdicts *list)
{
    const struct session *s = data;
    struct call guarded = *c;
    struct tensors *got = NULL;
    struct bounds bounds;
    struct outcome out;

    guarded.guards = 1;
    int e = judge_parity(&guarded, q, &got, &bounds, &out, list) ||
            note_guards(&guarded, 1, &out, list) || judge_repeats(&guarded, got, s->runs, list);
    tensors_free(got);
    return e;
}

static int shape_case(const struct op *o, const struct frame *f, void *data)
{
    struct asked *each = data;
    struct session *s = each->data;

    if (!part_takes(&s->part))
        return 0;
    if (work_of(o, f) <= s->limit)
        return ask_kernels(o, f, each);
    s->left++;
    return 0;
}

static void judge_shapes(const struct backend *b, const struct part *p)
{
    struct session s = {
        .limit = INFINITY, .runs = getenv("CHECK_LONG") ? MANY_RUNS : RUNS, .part = *p};
    struct asked each = {.backend = b, .judge = judge_shape, .data = &s};
    char how[32];

    printf("# %s: %s\n", b->name, b->device());
    if (emulated(b)) {
        s.limit = EMULATED_WORK;
        s.runs = EMULATED_RUNS;
    }
    snprintf(how, sizeof how, ", %d runs", s.runs);
    each.how = how;
    for (size_t i = 0; i < COUNT(odd); i++)
        if (named(op_find(odd[i].op), p->n, p->name))
            for_cases(op_find(odd[i].op), odd[i].cases, shape_case, &each);
    for (int i = 0; i < N_OPS; i++)
        if (ops[i]->shapes && named(ops[i], p->n, p->name))
            for_cases(ops[i], ops[i]->shapes, shape_case, &each);
    if (s.left)
        printf("# %s: %d cases beyond %.0e operations are left for a GPU\n", b->name, s.left,
               s.limit);
}

/* ---- refused sizes ---- */

/* A rank beyond n is no mistake, and in the list above. */
static const struct refusal {
    const char *op, *text;
    const char *names; /* what the message must name */
} refusals[] = {
    {"e74_cell", "steps=0", "steps = 0"},
    {"e74_cell", "batch=0", "batch = 0"},
    {"e74_cell", "heads=0", "heads = 0"},
    {"e74_cell", "n_state=0", "n_state = 0"},
    {"e74_cell", "n_state=-3", "n_state = -3"},
    {"e74_cell", "n_state=1e3", "n_state = 1e3"},
    {"e74_cell", "n_state=9999999999999999999", "n_state = 9999999999999999999"},
    {"e74_cell", "checkpoint_interval=0", "checkpoint_interval = 0"},
    {"e74_cell", "state=lowrank rank=0", "rank = 0"},
    {"e74_cell", "state=blockdiag block_size=0", "block_size = 0"},
    {"e74_cell", "state=blockdiag n_state=100 block_size=16", "block_size = 16"},
    {"e74_cell", "state=blockdiag n_state=3 block_size=4", "n_state = 3"},
    {"e74_cell", "steps=1073741824 batch=1073741824 heads=1073741824", "64-bit"},
    {"e74_cell", "state=diag", "state = diag"},
    {"e74", "dim=0", "dim = 0"},
    {"e74", "n_state=0", "n_state = 0"},
    {"e74", "state=blockdiag n_state=100 block_size=16", "n_state = 100"},
    {"dual_memory", "steps=0", "steps = 0"},
    {"dual_memory", "batch=0", "batch = 0"},
    {"dual_memory", "dim=0", "dim = 0"},
    {"dual_memory", "dim_in=-1", "dim_in = -1"},
    {"dual_memory", "slots=0", "slots = 0"},
    {"dual_memory", "checkpoint_interval=0", "checkpoint_interval = 0"},
    {"dual_memory", "preset=e29c clamp=0", "clamp = 0"},
    {"dual_memory", "preset=e24", "preset = e24"},
    {"dual_memory", "steps=1073741824 batch=1073741824 dim=1073741824", "64-bit"},
};

static void refuse(const struct refusal *r)
{
    const struct op *o = op_find(r->op);
    struct frame f;
    int refused = cases_one(o, r->text, &f) != 0;

    ok(refused && strstr(err_text(), r->names), "%s refuses %s", r->op, r->text);
    printf("# %s\n", refused ? err_text() : "it does not");
}

/* Sizes that no contract forbids, but beyond what any block can hold. */
static const struct refusal limits[] = {
    {"e74_cell", "state=full,diagonal,lowrank,blockdiag n_state=1048576 steps=1 batch=1",
     "n_state"},
    {"e74_cell", "state=lowrank rank=1048576 n_state=4 steps=1 batch=1", "rank"},
    {"e74", "state=full,diagonal,lowrank,blockdiag n_state=1048576 steps=1 batch=1", "n_state"},
    {"e74", "state=lowrank rank=1048576 n_state=4 steps=1 batch=1", "rank"},
    {"e74", "state=diagonal steps=1048576 batch=4096 n_state=1", "rows"},
    {"dual_memory", ALL "slots=65,1000 steps=1 batch=1 dim=8", "slots beyond 64"},
};

struct limit {
    const struct backend *backend;
    const char *names;
};

static int decline(const struct op *o, const struct frame *f, void *data)
{
    const struct limit *l = data;
    char text[MAX_TEXT];

    op_text(o, f, text);
    for (const struct impl *const *k = op_kernels(o, l->backend); *k; k++) {
        const char *why = (*k)->declines ? (*k)->declines(f) : NULL;
        ok(why && strstr(why, l->names), "%s %s declines %s %s", l->backend->name, (*k)->name,
           o->name, text);
        printf("# %s\n", why ? why : "it does not");
    }
    return 0;
}

/* What is refused takes no time: it is the first part's. */
static void judge_refusals(const struct part *p)
{
    for (size_t i = 0; i < COUNT(refusals); i++)
        if (named(op_find(refusals[i].op), p->n, p->name))
            refuse(&refusals[i]);
    for (int b = 0; gpu_backends[b]; b++)
        for (size_t i = 0; !gpu_backends[b]->unavailable() && i < COUNT(limits); i++) {
            struct limit l = {gpu_backends[b], limits[i].names};
            const struct op *o = op_find(limits[i].op);
            if (named(o, p->n, p->name))
                for_cases(o, limits[i].text, decline, &l);
        }
}

int main(int argc, char **argv)
{
    struct part p;
    const char *why = NULL;

    if (part_read(argc, argv, &p))
        return 2;
    if (p.part == 0)
        judge_refusals(&p);
    if (!any_gpu(&why))
        skip(why, "shapes on a GPU");
    for (int b = 0; gpu_backends[b]; b++)
        if (!gpu_backends[b]->unavailable())
            judge_shapes(gpu_backends[b], &p);
    return done();
}
