/* Contracts: the inputs that they draw; one that is made at run time, with kernels of its own; and
 * one whose parameters are too long a text.  TAP on stdout. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "common/call/run.h"
#include "common/ops/elementwise.h"
#include "tests/suite.h"

/* ---- inputs ---- */

enum { FEW = 1, MANY = 8 };

/* The inputs and upstream gradients of a case, drawn by that many threads; NULL after err_set(). */
static struct tensors *drawn(const struct call *f, int threads)
{
    struct tensors *t = tensors_new(f);

#ifdef _OPENMP
    omp_set_num_threads(threads);
#endif
    if (t)
        tensors_draw(t, f, 7, 0);
    return t;
}

static int equal(const void *a, const void *b, size_t bytes)
{
    return !a || memcmp(a, b, bytes) == 0;
}

/* Counts the cases where they differ. */
static int compare(const struct call *f, void *data)
{
    int *bad = data;
    struct tensors *few = drawn(f, FEW), *many = drawn(f, MANY);
    int same = few && many;

    for (int i = 0; same && i < f->op->n_args; i++)
        same = equal(tensors_values(few, i, 0), tensors_values(many, i, 0),
                     op_count(f, i) * tensors_each(f, i)) &&
               equal(few->g[i], many->g[i], op_count(f, i) * sizeof(double));
    *bad += !same;
    tensors_free(few);
    tensors_free(many);
    return 0;
}

static void threads(void)
{
    for (int i = 0; i < N_OPS; i++) {
        int bad = 0;
        for_cases(ops[i], ops[i]->cases, compare, &bad);
        ok(!bad, "%s: %d threads draw as %d does: %d cases differ", ops[i]->name, MANY, FEW, bad);
    }
}

/* FNV-1a of the bits. */
static uint64_t hash(const double *x, int64_t n)
{
    uint64_t h = 0xcbf29ce484222325;

    for (int64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        h = (h ^ bits) * 0x100000001b3;
    }
    return h;
}

/* ---- streams ---- */

/* The first values of a tensor; those that are all the same say nothing. */
enum { FIRST = 4 };
struct begun {
    const double *x;
    int64_t n;
};

static int alike(struct begun a, struct begun b)
{
    return a.x && b.x && a.n >= FIRST && b.n >= FIRST && (a.x[0] != a.x[1] || a.x[0] != a.x[2]) &&
           memcmp(a.x, b.x, FIRST * sizeof *a.x) == 0;
}

/* Counts the pairs of inputs, upstream and initial gradients that begin alike. */
static int compare_streams(const struct call *f, void *data)
{
    int *pairs = data;
    struct call with = *f;

    with.accumulate = op_gradients(f->op);
    struct tensors *t = tensors_new(&with);
    for (uint64_t seed = 0; t && seed < 8; seed++) {
        struct begun all[3 * MAX_ARGS];
        int n = 0;
        tensors_draw(t, &with, seed, 1);
        for (int i = 0; i < f->op->n_args; i++) {
            const double *const of[] = {f->op->arg[i].flags & IN ? t->x[i] : NULL,
                                        f->op->arg[i].flags & OUT ? t->g[i] : NULL, t->g0[i]};
            for (int k = 0; k < 3; k++) {
                all[n] = (struct begun){of[k], of[k] ? op_count(f, i) : 0};
                for (int j = 0; j < n; j++)
                    *pairs += alike(all[n], all[j]);
                n++;
            }
        }
    }
    tensors_free(t);
    return 0;
}

static void streams(void)
{
    for (int i = 0; i < N_OPS; i++) {
        int pairs = 0;
        for_cases(ops[i], ops[i]->cases, compare_streams, &pairs);
        ok(!pairs, "%s: %d pairs of tensors are drawn alike", ops[i]->name, pairs);
    }
}

/* An input whose contract draws it is the same in every version: dumps name a seed. */
static void own_draws(void)
{
    static const struct {
        const char *op, *settings, *tensor;
        uint64_t hash;
    } known[] = {
        {"histogram", "size=1000 data=uniform", "x", 0xee1758c20e746494},
        {"histogram", "size=1000 data=level", "x", 0x9ab3f2676038fb45},
        {"histogram", "size=1000 data=wild", "x", 0x9329818b4f839498},
    };

    for (size_t k = 0; k < COUNT(known); k++) {
        const struct op *o = op_find(known[k].op);
        struct call f;
        struct tensors *t = cases_one(o, known[k].settings, &f) ? NULL : tensors_new(&f);
        int arg = op_arg(o, known[k].tensor);
        if (t)
            tensors_draw(t, &f, 1, 0);
        ok(t && hash(t->x[arg], op_count(&f, arg)) == known[k].hash, "%s %s: %s has the known bits",
           o->name, known[k].settings, known[k].tensor);
        tensors_free(t);
    }
}

/* The C library's log and cos have a part in it, so that no bits are known. */
static void squares(void)
{
    const struct op *o = op_find("adamw");
    struct call f;
    struct tensors *t = cases_one(o, "parameters=1000", &f) ? NULL : tensors_new(&f);
    int arg = op_arg(o, "v"), same = t != NULL;
    uint64_t key = draw_key(1, "v");

    if (t)
        tensors_draw(t, &f, 1, 1);
    for (int64_t i = 0; same && i < op_count(&f, arg); i++)
        same = t->x[arg][i] == pow(draw_normal(key, i), 2);
    ok(same, "adamw: v is the square of N(0, 1)");
    tensors_free(t);
}

/* ---- operations that are not in the table ---- */

/* Twice the results of relu, which the same backend runs. */
static int twice_relu(const struct call *f, enum pass p)
{
    struct call part = *f;
    const struct unary *a = ARGS(f, unary), *g = GRADS(f, unary);

    call_as(&part, op_find("relu"), a, g, NULL);
    part.kernel = impl_choose(&part, NULL).kernel;
    int e = part.kernel ? call_pass(&part, p) : -1;
    double *result = p == FORWARD ? a->y : g->x;
    for (int64_t i = 0; !e && i < op_count(f, 0); i++)
        result[i] *= 2;
    return e;
}

static int twice_forward(const struct call *f)
{
    return twice_relu(f, FORWARD);
}

static int twice_backward(const struct call *f)
{
    return twice_relu(f, BACKWARD);
}

/* Is y = 2 max(x, 0), and d_x its gradient? */
static int is_twice(const struct call *f, const struct tensors *t)
{
    const int x = op_arg(f->op, "x"), y = op_arg(f->op, "y");
    int right = 1;

    for (int64_t i = 0; i < op_count(f, x); i++) {
        const int up = t->x[x][i] > 0;
        right &= t->x[y][i] == (up ? 2 * t->x[x][i] : 0);
        right &= t->g[x][i] == (up ? 2 * t->g[y][i] : 0);
    }
    return right;
}

static void made_operation(void)
{
    static const struct impl twice = {
        .name = "twice", .type = F64, .pass = {twice_forward, twice_backward}};
    static const struct impl *const list[] = {&twice, NULL};
    const struct op *relu = op_find("relu");
    const struct impl *const relus[] = {op_kernel(relu, &ref64, 0), NULL};
    struct op made = *relu;
    const struct kernels kernels[] = {{&made, list, NULL}, {relu, relus, NULL}, {NULL, NULL, NULL}};
    struct machine m = cpu;
    const struct backend b = {"made", NULL, &m, F64, F64};
    struct call f;

    made.name = "twice_relu";
    m.kernels = kernels;
    ok(op_kernel(&made, &b, 0) == &twice && !op_kernel(&made, &b, 1) &&
           !op_kernel(&made, &ref64, 0) && !op_kernel(op_find("silu"), &b, 0),
       "an operation that is made has the kernels that a backend lists for it");
    struct tensors *t = cases_one(&made, "", &f) ? NULL : tensors_new(&f);
    struct run c = {.call = call_here(&f, &b, NULL)};
    c.call.kernel = impl_choose(&c.call, NULL).kernel;
    if (t)
        tensors_draw(t, &f, 1, 0);
    ok(t && c.call.kernel == &twice && !run_op(&c, t, NULL) && is_twice(&f, t), "it runs");
    c.call = call_on(&f, &ref64, NULL, NULL);
    ok(t && run_op(&c, t, NULL) && strcmp(err_text(), "twice_relu has no kernel on ref64") == 0,
       "without a kernel it is refused: %s", err_text());
    tensors_free(t);
}

/* ---- limits ---- */

/* As many parameters as a call can have, with names of that length. */
static int complete(int length, struct call *f)
{
    static char name[MAX_PARAMS][MAX_TEXT];
    static struct param params[MAX_PARAMS];
    static struct op made;

    made = *op_find("relu");
    made.param = params;
    made.n_params = MAX_PARAMS;
    for (int i = 0; i < MAX_PARAMS; i++) {
        snprintf(name[i], sizeof name[i], "%0*d", length, i);
        params[i] = (struct param)CHOICE_PARAM(name[i], no_yes, i % 2, "");
    }
    op_defaults(&made, f);
    DIM(f, 'M') = DIM(f, 'D') = 1;
    return op_complete(f);
}

/* " NAME=yes" and " NAME=no", but for the first blank: MAX_TEXT bytes hold MAX_LENGTH, not more. */
enum { MAX_LENGTH = (2 * MAX_TEXT / MAX_PARAMS - 9) / 2 };

static void texts(void)
{
    struct call f;
    char text[MAX_TEXT];
    int e = complete(MAX_LENGTH, &f);

    op_text(&f, text);
    ok(!e && strlen(text) == (MAX_LENGTH + 4.5) * MAX_PARAMS - 1 && strstr(text, "63=yes"),
       "a text of %zu characters has all parameters", strlen(text));
    ok(complete(MAX_LENGTH + 1, &f) && strstr(err_text(), "longer than 2047 characters"),
       "a longer one is refused: %s", err_text());
}

/* The parameters of a model among the inputs of a call. */
static void parameters(void)
{
    static const struct {
        const char *op, *settings;
        double n;
        int64_t bytes; /* in bf16 */
    } of[] = {
        {"linear", "rows=3 dim_in=5 dim_out=7 bias=yes", 42, 84},
        {"linear", "rows=300 dim_in=5 dim_out=7", 35, 70},
        {"lora", "rows=3 dim_in=5 dim_out=7 rank=2", 59, 118},
        {"layernorm", "rows=9 columns=8", 16, 32},
        {"e74", "steps=3 batch=2 dim=5 heads=1 n_state=4 proj=full z_mod=column", 84, 168},
        {"softmax", "rows=9 columns=8", 0, 0},
        {"gemm_quantised", "rows=3 dim_in=256 dim_out=5 format=q4_k", 1280, 720},
        {"gemm_quantised", "rows=3 dim_in=256 dim_out=5 weights=2 format=q8_0", 2560, 2720},
        {"gemm_quantised", "rows=3 dim_in=64 dim_out=4 format=nf4 double_quant=no block=64", 256,
         144},
    };

    for (int i = 0; i < (int)COUNT(of); i++) {
        struct call f;
        int64_t bytes;
        if (cases_one(op_find(of[i].op), of[i].settings, &f)) {
            ok(0, "%s %s: %s", of[i].op, of[i].settings, err_text());
            continue;
        }
        f = call_on(&f, &ref_bf16, NULL, NULL);
        const double n = op_parameters(&f, &bytes);
        if (!ok(n == of[i].n && bytes == of[i].bytes, "%s %s has %.0f parameters", of[i].op,
                of[i].settings, of[i].n))
            printf("# %.0f, %d bytes\n", n, (int)bytes);
    }
}

/* An output takes the memory of an input of its shape, placed before it, that backward does not read. */
static void overwritten(void)
{
    struct call f;
    if (!cases_one(op_find("adamw"), "parameters=3", &f)) {
        f = call_on(&f, &ref32, NULL, NULL);
        f.in_place = 1;
        const struct call oracle = call_on(&f, &ref64, NULL, NULL);
        ok(call_overwrites(&f, op_arg(f.op, "p_next")) == op_arg(f.op, "p") && !oracle.in_place,
           "the oracle of a call in place has memory of its own for each tensor");
    }
    for (int o = 0; o < N_OPS; o++)
        for (int i = 0; i < ops[o]->n_args; i++) {
            const struct arg *a = &ops[o]->arg[i];
            const int in = a->overwrites ? op_arg(ops[o], a->overwrites) : -1;
            if (!a->overwrites)
                continue;
            const struct arg *b = in < 0 ? NULL : &ops[o]->arg[in];
            ok(b && in < i && a->flags & OUT && b->flags & IN && strcmp(a->shape, b->shape) == 0 &&
                   (b->flags & NOT_BACK || op_passes(ops[o]) == BACKWARD),
               "%s: %s in the memory of %s", ops[o]->name, a->name, a->overwrites);
        }
}

int main(void)
{
    overwritten();
    parameters();
    threads();
    streams();
    own_draws();
    squares();
    made_operation();
    texts();
    return done();
}
