/* Programs: e74_block's four lines have its bits; models of two blocks by differences, against the oracle,
 * and by the properties, on every kernel that can run here; what is wrong with a text is said with its line. */
#include "config.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/grow.h"
#include "common/program/layout.h"
#include "common/program/program.h"
#include "tests/models.h"
#include "tests/suite.h"

/* ---- e74_block ---- */

#define BLOCK                                                                                      \
    "steps = 9\n"                                                                                  \
    "batch = 2\n"                                                                                  \
    "dim = 10\n"                                                                                   \
    "x [steps, batch, dim]\n"                                                                      \
    "n   = rmsnorm x\n"                                                                            \
    "m   = e74 n heads=2 n_state=4 checkpoint_interval=4 %s nonlin=%s\n"                           \
    "o   = linear m dim_out=dim\n"                                                                 \
    "out = add x o\n"

/* The names of a program's tensor, or of its gradient, and of e74_block's; ends with NULL. */
static const char *const pairs[][2] = {
    {"x", "x"},       {"n.w", "w_norm"}, {"m.W_k", "W_k"}, {"m.W_v", "W_v"}, {"m.W_q", "W_q"},
    {"m.W_z", "W_z"}, {"m.b_z", "b_z"},  {"o.W", "W_o"},   {"out", "out"},   {NULL, NULL}};

/* A case of an operation with its tensors, run on a backend by the inputs that `from` has, or drawn ones. */
static struct tensors *answer(struct call *f, const struct backend *b, const struct tensors *inputs)
{
    const struct run c = {.call = call_here(f, b, op_kernel(f->op, b, 0))};

    *f = c.call;
    return run_copy(&c, inputs, NULL);
}

static int equal_bits(const struct call *f, int i, const double *a, const double *b)
{
    return a && b && memcmp(a, b, op_count(f, i) * sizeof *a) == 0;
}

static void compare_block(const struct backend *b, const char *state, const char *nonlin)
{
    char text[1000], words[300];
    struct call f, g;
    int same = 1, n = 0;

    snprintf(text, sizeof text, BLOCK, state, nonlin);
    snprintf(words, sizeof words,
             "steps=9 batch=2 dim=10 heads=2 n_state=4 checkpoint_interval=4 %s nonlin=%s", state,
             nonlin);
    struct program *p = program_read("block.model", text, stdout);
    if (!p || cases_one(program_op(p), "steps=9", &f) ||
        cases_one(op_find("e74_block"), words, &g)) {
        ok(0, "%s %s: %s", state, nonlin, p ? err_text() : "no program");
        return;
    }
    struct tensors *x = tensors_new(&f), *y = tensors_new(&g);
    tensors_draw(y, &g, 3, 0);
    const struct call rounded = call_here(&g, b, NULL);
    tensors_round(y, &rounded);
    for (int i = 0; pairs[i][0]; i++) {
        const int to = op_arg(f.op, pairs[i][0]), from = op_arg(g.op, pairs[i][1]);
        double *out = to >= 0 && f.op->arg[to].flags & OUT ? x->g[to] : to >= 0 ? x->x[to] : NULL;
        const double *in = g.op->arg[from].flags & OUT ? y->g[from] : y->x[from];
        if (out && in)
            memcpy(out, in, op_count(&g, from) * sizeof *in);
    }
    for (int i = 0; i < g.op->n_args; i++) /* the program's final states are no results */
        if (g.op->arg[i].flags & OUT && y->g[i] && strcmp(g.op->arg[i].name, "out"))
            memset(y->g[i], 0, op_count(&g, i) * sizeof(double));
    struct tensors *got = answer(&f, b, x), *want = answer(&g, b, y);
    for (int i = 0; got && want && pairs[i][0]; i++) {
        const int a = op_arg(f.op, pairs[i][0]), c = op_arg(g.op, pairs[i][1]);
        if (!op_has(&g, c))
            continue;
        const int alike = a >= 0 && equal_bits(&g, c, got->g[a], want->g[c]) &&
                          (!(g.op->arg[c].flags & OUT) || equal_bits(&g, c, got->x[a], want->x[c]));
        if (!alike)
            printf("# %s is other\n", pairs[i][0]);
        same &= alike;
        n++;
    }
    ok(got && want && same && n >= 6,
       "%s: four lines have the bits of e74_block %s nonlin=%s, %d tensors", b->name, state, nonlin,
       n);
    if (!got || !want)
        printf("# %s\n", err_text());
    tensors_free(got);
    tensors_free(want);
    tensors_free(x);
    tensors_free(y);
    program_free(p);
}

static void block(void)
{
    static const char *const states[] = {"state=full", "state=diagonal",
                                         "state=blockdiag block_size=2"};
    static const char *const nonlins[] = {"tanh", "linear"};

    for (const struct backend *const *b = backends(); *b; b++) {
        const char *why = backend_unavailable(here(), *b);
        for (int s = 0; s < 3; s++)
            for (int n = 0; n < 2; n++)
                if (why)
                    skip(why, "%s: e74_block %s %s", (*b)->name, states[s], nonlins[n]);
                else
                    compare_block(*b, states[s], nonlins[n]);
    }
}

/* ---- models ---- */

#define HEAD MODEL_HEAD(7, 6, 5, 2)
#define TAIL MODEL_TAIL "output logits\n"

static const struct {
    const char *name, *lines;
} models[] = {
    {"full tanh", "  m = e74 n heads=2 n_state=3 checkpoint_interval=2 state=full nonlin=tanh\n"},
    {"diagonal linear",
     "  m = e74 n heads=1 n_state=4 checkpoint_interval=3 state=diagonal nonlin=linear\n"},
    {"blockdiag rmsnorm",
     "  m = e74 n n_state=4 block_size=2 checkpoint_interval=3 state=blockdiag nonlin=rmsnorm\n"},
    {"a gate", "  m = e74 n heads=2 n_state=3 checkpoint_interval=2 proj=full z_mod=row "
               "z_act=twice_sigmoid nonlin=linear\n"},
    {"dual memory",
     "  m = dual_memory n preset=e23 tape=shared dim=4 slots=2 checkpoint_interval=2\n"},
    {"attention", "  b = transpose n batch=1 width=width\n"
                  "  q = linear b dim_out=12\n"
                  "  k = linear b dim_out=6\n"
                  "  v = linear b dim_out=10\n"
                  "  p, r = qk_norm q k heads=2 kv_heads=1\n"
                  "  s = rope p heads=2\n"
                  "  t = rope r heads=1\n"
                  "  a = attention s t v heads=2 kv_heads=1 dim_v=10 mask=causal\n"
                  "  m = transpose a batch=1 width=20\n"},
    {"an MLP", "  g = linear n dim_out=9\n  u = linear n dim_out=9\n  m = swiglu g u\n"},
    {"a tensor that nothing differentiates",
     "  s = linear n dim_out=vocabulary\n  hits = accuracy s target\n  m = relu n\n"},
    {"one tensor read twice", "  u = swiglu n n\n  m = add u n\n"},
};

/* The bytes of a run are those that its calls' contracts predict. */
static void check_bytes(const struct call *f, const struct backend *b, const char *name)
{
    const struct run c = {.call = call_here(f, b, op_kernel(f->op, b, 0))};
    struct tensors *in = tensors_new(&c.call), *t = NULL;
    struct outcome out;
    char text[MAX_TEXT];

    op_text(f, text);
    if (in) {
        tensors_draw(in, &c.call, 5, 1);
        tensors_round(in, &c.call);
        t = run_copy(&c, in, &out);
    }
    ok(t && out.peak == op_memory(&c.call), "%s: %s %s: %lld bytes predicted", b->name, name, text,
       (long long)op_memory(&c.call));
    tensors_free(t);
    tensors_free(in);
}

static void check_model(const char *name, const char *given, const char *lines)
{
    char text[2000];
    struct call f;

    snprintf(text, sizeof text, "%s%s%s%s", given, HEAD, lines, TAIL);
    struct program *p = program_read("model", text, stdout);
    const int made = p && cases_one(program_op(p), "batch=2", &f) == 0;
    if (!ok(made, "%s: a program of %d tensors", name, made ? f.op->n_args : 0))
        return;
    for (int batch = 1; batch <= 2; batch++) {
        char words[40];
        snprintf(words, sizeof words, "batch=%d", batch);
        if (cases_one(program_op(p), words, &f)) {
            ok(0, "%s: %s", name, err_text());
            continue;
        }
        struct verdicts list = {0};
        struct run c = {.call = call_on(&f, &ref64, op_kernel(f.op, &ref64, 0), NULL)};
        struct tensors *t = tensors_new(&f);
        int e = !t;
        if (!e) {
            tensors_draw(t, &f, 1, 1);
            e = run_op(&c, t, NULL) || check_differences(&f, t, 20, 2, NULL, &list);
        }
        report(&f, &list, e, name);
        verdicts_free(&list);
        tensors_free(t);
        for (int i = 0; judged_backend(i); i++) {
            const struct backend *b = judged_backend(i);
            const char *why = backend_unavailable(here(), b);
            struct kernel_test each = {.backend = b, .judge = judge_case, .how = ""};
            if (why)
                skip(why, "%s: %s", b->name, name);
            else
                test_kernels(&f, &each);
        }
        for (const struct backend *const *b = backends(); *b; b++)
            if (!backend_unavailable(here(), *b))
                check_bytes(&f, *b, name);
    }
    program_free(p);
}

/* Two blocks of every structure and nonlinearity of e74, and of every preset of the dual memory. */
static void mixers(void)
{
    static const char *const states[][2] = {{"full", ""},
                                            {"diagonal", ""},
                                            {"blockdiag", "block_size=2"},
                                            {"lowrank", "rank=2 V0=V"},
                                            {"lowrank", "rank=2 V=shared"}};
    static const char *const nonlins[] = {"tanh", "linear", "rmsnorm", "frobnorm"};
    static const char *const presets[] = {"e23", "e25", "e26", "e29a", "e29b", "e29c"};
    char name[100], lines[300];

    for (size_t i = 0; i < COUNT(states) * COUNT(nonlins); i++) {
        const char *const *state = states[i / COUNT(nonlins)],
                          *nonlin = nonlins[i % COUNT(nonlins)];
        snprintf(name, sizeof name, "e74 %s %s", state[0], nonlin);
        snprintf(lines, sizeof lines,
                 "  m = e74 n heads=2 n_state=4 checkpoint_interval=2 state=%s %s nonlin=%s\n",
                 state[0], state[1], nonlin);
        check_model(name, strstr(state[1], "V0=") ? "V [batch, 2, 4, 2]\n" : "", lines);
    }
    for (size_t i = 0; i < COUNT(presets); i++) {
        snprintf(name, sizeof name, "dual_memory %s", presets[i]);
        snprintf(lines, sizeof lines,
                 "  m = dual_memory n preset=%s dim=4 slots=3 checkpoint_interval=2\n", presets[i]);
        check_model(name, "", lines);
    }
}

/* ---- what is wrong with a text ---- */

#define SIZES "steps = 4\nbatch = 2\nwidth = 6\nx [steps, batch, width]\n"
static const struct {
    const char *text, *says; /* the lines of errors, in order */
} wrong[] = {
    {SIZES "y = rmsnrm x\n", "bad:5: there is no operation rmsnrm; rmsnorm is one\n"},
    {SIZES "y = rmsnorm z\n", "bad:5: there is no tensor z\n"},
    {SIZES "y = rmsnorm x columns=7\n", "bad:5: x is [4,2,6], rmsnorm's x [rows,columns]\n"},
    {SIZES "z [3, 6]\ny = add x z\n", "bad:6: z is [3,6], add's b [rows,dim]\n"},
    {SIZES "y = linear x dim_out=0\n", "bad:5: dim_out = 0: must be 1 to 1073741824\n"},
    {SIZES "y = linear x dim_ot=3\n", "bad:5: linear has no dim_ot; dim_out is one of its words\n"},
    {SIZES "y = e74 x state=diagonal block_size=2\n", NULL},
    {SIZES "a, b = add x x\n", "bad:5: add has 1 result, b is one more\n"},
    {SIZES "y = add x x x\n", "bad:5: add has no input left for x\n"},
    {SIZES "y = add x\n", "bad:5: add needs its b, which the line does not give\n"},
    {SIZES "z [4]\ny = rmsnorm x\n", "bad:5: no call reads z\n"},
    {SIZES "y = rmsnorm q\nz = add y x\nw = rmsnorm r\n",
     "bad:5: there is no tensor q\nbad:7: there is no tensor r\n"},
    {SIZES "y = rmsnorm x\nx = rmsnorm y\ny = rmsnorm x\n",
     "bad:7: y.w is there already: give the result another name\n"},
    {SIZES "repeat n\n  x = rmsnorm x\n",
     "bad:5: repeat n: no size of that name, and no number from 1 on\n"},
    {SIZES "y = rmsnorm x\noutput z\n", "bad:6: there is no tensor z\n"},
    {SIZES "y = rmsnorm x\nwidth = 7\n", "bad:6: width is set twice\n"},
    {SIZES "z = rmsnorm x\ny = embedding x vocabulary=3 width=2\n",
     "bad:6: x is bf16, embedding's token int64\n"},
    {"x [3, rows]\ny = rmsnorm x\n",
     "bad:1: x: rows is no size of the program, and no number from 1 to 1073741824\n"},
    {SIZES "y = cross_entropy x x\n", NULL},
    {SIZES "repeat 2000000\n  x = add x x\n", NULL},
    {"n = 2000\nx [4, 2]\nrepeat n\n  x = add x x\n", "bad:4: more than 1024 calls\n"},
    {SIZES "repeat 900\n  x = relu x\n",
     "bad: more than 256 tensors: inputs, parameters, outputs, and what backward reads\n"},
    {SIZES "y\n", "bad:5: y: neither NAME [axes] nor results = operation ...\n"},
    {SIZES "= rmsnorm x\n", NULL},
    {SIZES "y = \n", "bad:5: no operation behind =\n"},
    {SIZES "w = 4 banana\n", "bad:5: w = 4 banana: not a whole number in decimal digits\n"},
    {SIZES "w = 2*width\n", "bad:5: w = 2*width: not a whole number in decimal digits\n"},
    {SIZES "w = 4.5\n", "bad:5: w = 4.5: not a whole number in decimal digits\n"},
    {SIZES "w = 1e3\n", NULL},
    {"width = 4\rx [2, width]\ry = silu x\n", NULL},
    {"width = 4\n", "bad:1: no line is results = operation ...\n"},
    {"", "bad:1: no line is results = operation ...\n"},
    {SIZES "y = rmsnorm x\nrepeat 2\ny = rmsnorm y\n",
     "bad:6: nothing is repeated: lines of a block stand further in than its repeat\n"},
    {SIZES "y = linear x dim_out=4 dim_out=5\n", "bad:5: dim_out is set twice\n"},
    {SIZES "y, $z ? = rmsnorm x\n", "bad:5: what is \"$z ? \", before the =?\n"},
    {SIZES "x [4, 2, 6]\ny = rmsnorm x\n", "bad:5: x is there already\n"},
    {SIZES "x = silu x\n",
     "bad:5: x cannot be the name of an output, too: give the result another\n"},
    {SIZES "d = silu x\n",
     "bad:5: d cannot be the name of an output, too: give the result another\n"},
    {SIZES "y = silu x\nz = silu x\ny = relu x\n",
     "bad:7: y cannot be the name of an output, too: give the result another\n"},
    {"x [99999999999, 4]\ny = silu x\n", NULL},
    {"x [1000000000, 1000000000, 1000000000]\ny = silu x\n", "bad:1: x has too many elements\n"},
    {SIZES "a23456789012345678901234567890123456789012345678901234567890123456 = silu x\n",
     "bad:5: a2345678901234567890... is longer than 63 characters\n"},
};

static void refusals(void)
{
    for (size_t i = 0; i < COUNT(wrong); i++) {
        char *said = NULL;
        size_t n;
        FILE *errors = open_memstream(&said, &n);
        struct program *p = program_read("bad", wrong[i].text, errors);
        fclose(errors);
        const int good = !p && *said && (!wrong[i].says || strcmp(said, wrong[i].says) == 0);
        said[strcspn(said, "\n")] = 0;
        if (!ok(good, "refused: %s", said))
            printf("# wanted: %s", wrong[i].says ? wrong[i].says : "something\n");
        free(said);
        program_free(p);
    }
}

static int count_cases(const struct call *f, void *data)
{
    (void)f;
    ++*(int *)data;
    return 0;
}

/* Sizes that do not fit are refused when a case is completed, and others still do. */
static void sizes(void)
{
    struct program *p = program_read("odd",
                                     "n = 6\nm = 3\nx [4, n]\ny = softmax x columns=n\n"
                                     "z [4, 6]\nw = add y z\n",
                                     stdout);
    struct call f;

    ok(p && !cases_one(program_op(p), "n=6", &f) && f.op->n_args == 4, "n 6 fits");
    ok(p && cases_one(program_op(p), "n=7", &f) && strstr(err_text(), "odd:6: z is [4,6]"),
       "n 7 does not: %s", err_text());
    ok(p && !cases_one(program_op(p), "n=6 m=5", &f), "and n 6 still does");
    int cases = 0;
    ok(p && !cases_each(program_op(p), program_op(p)->cases, count_cases, &cases) && cases == 1,
       "the contract has one case: its sizes");
    program_free(p);
}

/* ---- what is made again ---- */

/* Results and gradients with recompute=K: the bits of those without, and fewer bytes saved. */
static void remake(const char *name, const char *lines, const struct backend *b)
{
    char text[2000];
    struct tensors *first = NULL, *inputs = NULL;
    struct call none;
    int64_t saved[4] = {0};
    int same = 1;

    snprintf(text, sizeof text, "%s%s%s", HEAD, lines, TAIL);
    struct program *p = program_read("model", text, stdout);
    for (int k = 0; p && k < 4; k++) {
        char words[60];
        struct call f;
        struct outcome out;
        snprintf(words, sizeof words, "blocks=3 recompute=%d", k);
        if (cases_one(program_op(p), words, &f)) {
            printf("# %s\n", err_text());
            same = 0;
            break;
        }
        const struct run c = {.call = call_here(&f, b, op_kernel(f.op, b, 0)), .guards = 1};
        struct tensors *in = tensors_new(&c.call);
        tensors_draw(in, &c.call, 5, 1);
        tensors_round(in, &c.call);
        struct tensors *t = run_copy(&c, in, &out);
        saved[k] = op_saved(&c.call);
        if (t && (out.peak != op_memory(&c.call) || out.overrun[0]))
            printf("# recompute=%d: %lld bytes, %lld predicted, %s\n", k, (long long)out.peak,
                   (long long)op_memory(&c.call), out.overrun);
        same &=
            t && out.peak == op_memory(&c.call) && !out.overrun[0] && (!k || saved[k] < saved[0]);
        for (int i = 0; k && same && i < none.op->n_args; i++) {
            const struct arg *a = &none.op->arg[i];
            const int other = op_arg(f.op, a->name);
            if (a->flags & OUT)
                same &= other >= 0 && equal_bits(&none, i, first->x[i], t->x[other]);
            if (a->flags & IN && a->flags & DIFF)
                same &= other >= 0 && equal_bits(&none, i, first->g[i], t->g[other]);
            if (!same)
                printf("# recompute=%d: %s is other\n", k, a->name);
        }
        if (!k) {
            first = t;
            inputs = in;
            none = c.call;
        } else {
            tensors_free(t);
            tensors_free(in);
        }
    }
    ok(p && same,
       "%s: %s: made again in blocks of 1, 2, 3: the same bits; %lld, %lld, %lld, %lld bytes saved",
       b->name, name, (long long)saved[0], (long long)saved[1], (long long)saved[2],
       (long long)saved[3]);
    tensors_free(first);
    tensors_free(inputs);
    program_free(p);
}

static void remakes(void)
{
    for (const struct backend *const *b = backends(); *b; b++)
        for (size_t i = 0; i < COUNT(models); i++) {
            const char *why = backend_unavailable(here(), *b);
            if (why)
                skip(why, "%s: %s: made again", (*b)->name, models[i].name);
            else
                remake(models[i].name, models[i].lines, *b);
        }
}

/* The names of the tensors, and their order: inputs, parameters by block, outputs, what is saved. */
static void names(void)
{
    struct program *p =
        program_read("names", "n = 2\nx [3, 4]\ny = add x x\nrepeat n\n  y = rmsnorm y\n", stdout);
    char got[300] = "";
    struct call f;

    if (p && !cases_one(program_op(p), "n=2", &f))
        for (int i = 0; i < f.op->n_args; i++)
            append(got, sizeof got, " %s", f.op->arg[i].name);
    printf("#%s\n", got);
    ok(strstr(got, " x 1.y.w 2.y.w 2.y") == got, "tensors have names by block, in order");
    program_free(p);
    p = program_read("twice", "x [3, 4]\nrepeat 2\n  x = silu x\n  x = silu x\nz = silu x\n",
                     stdout);
    *got = 0;
    if (p && !cases_one(program_op(p), "recompute=0", &f))
        for (int i = 0; i < f.op->n_args; i++)
            append(got, sizeof got, " %s", f.op->arg[i].name);
    ok(strcmp(got, " x z 1.x 1.x.2 2.x 2.x.2") == 0, "of saved tensors of one name:%s", got);
    program_free(p);
    p = program_read("lse", "q [2, 5, 8]\no, l = attention q q q heads=2\n", stdout);
    ok(p && !cases_one(program_op(p), "recompute=0", &f) &&
           strlen(f.op->arg[op_arg(f.op, "l")].shape) == 3 &&
           strlen(f.op->arg[op_arg(f.op, "o")].shape) == 3,
       "attention's lse is [batch,heads,steps], its o is joined");
    program_free(p);
}

/* ---- one buffer ---- */

/* Are all parts of a buffer at their multiples, one behind the other, those that decay first? */
static int in_order(const struct layout_buffer *b)
{
    int64_t end = 0;
    int good = b->decayed <= b->elements && b->elements % LAYOUT_ALIGN == 0;

    for (int i = 0; i < b->n; i++) {
        const struct layout_part *p = &b->part[i];
        good &= p->at % LAYOUT_ALIGN == 0 && p->at >= end && p->at < end + LAYOUT_ALIGN &&
                p->decays == (p->at < b->decayed);
        end = p->at + p->n;
    }
    return good && end <= b->elements && b->elements < end + LAYOUT_ALIGN;
}

static int has_part(const struct layout_buffer *b, const struct op *o, const char *name, int decays)
{
    for (int i = 0; i < b->n; i++)
        if (strcmp(o->arg[b->part[i].arg].name, name) == 0)
            return b->part[i].decays == decays;
    return 0;
}

static void layouts(void)
{
    struct program *p = program_read(
        "layout",
        HEAD "  c = e74 n n_state=4 rank=2 state=lowrank V=shared proj=full\n"
             "  r = dual_memory c preset=e23 tape=shared dim=4 slots=2\n"
             "  a = lora r dim_out=width rank=2\n  g = linear a dim_out=width bias=yes\n"
             "  m = silu g\n" TAIL,
        stdout);
    static struct layout l;
    struct call f;
    int trained = 0;

    if (!ok(p && !cases_one(program_op(p), "batch=2", &f), "a model with weights of all kinds")) {
        program_free(p);
        return;
    }
    layout_find(&l, &f);
    for (int i = 0; i < f.op->n_args; i++)
        trained += op_is_parameter(&f, i) && f.op->arg[i].flags & DIFF;
    ok(in_order(&l.storage) && in_order(&l.wide) && l.storage.n + l.wide.n == trained,
       "%d weights in two buffers of %lld and %lld elements", trained,
       (long long)l.storage.elements, (long long)l.wide.elements);
    ok(has_part(&l.storage, f.op, "1.c.W_k", 1) && has_part(&l.storage, f.op, "2.o.W", 1) &&
           has_part(&l.storage, f.op, "1.a.A", 1) && has_part(&l.storage, f.op, "1.r.W_write", 1) &&
           has_part(&l.storage, f.op, "1.c.W_r", 1),
       "matrices decay");
    ok(has_part(&l.storage, f.op, "x.E", 0) && has_part(&l.storage, f.op, "1.n.w", 0) &&
           has_part(&l.storage, f.op, "1.g.b", 0) && has_part(&l.storage, f.op, "1.c.b_z", 0) &&
           has_part(&l.storage, f.op, "1.r.b_h", 0) && has_part(&l.wide, f.op, "1.c.V0", 0) &&
           has_part(&l.wide, f.op, "1.r.M0", 0),
       "embeddings, norms, biases and learned states do not");
    ok(!has_part(&l.storage, f.op, "1.a.W", 1) && !has_part(&l.storage, f.op, "1.a.W", 0),
       "an adapter's W is in none");
    program_free(p);
}

int main(void)
{
    omp_set_num_threads(1);
    block();
    for (size_t i = 0; i < COUNT(models); i++)
        check_model(models[i].name, "", models[i].lines);
    mixers();
    remakes();
    refusals();
    sizes();
    names();
    layouts();
    return done();
}
