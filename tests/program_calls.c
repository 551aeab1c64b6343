/* Programs, call by call: models of every operation that has weights are right on every kernel that can run here; and a
 * weight's gradient that is off by 1e-3, planted in each kind of call, is refused, by the bounds of whole models too coarse
 * to see.  Large models are judged so by samples and random sums. */
#include "config.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/grow.h"
#include "common/call/transfer.h"
#include "common/judge/calls.h"
#include "tests/models.h"
#include "tests/suite.h"

/* ---- models ---- */

#define HEAD MODEL_HEAD(11, 12, 9, 3)
#define TAIL MODEL_TAIL "output logits\n"

static const struct {
    const char *name, *lines, *given, *words;
} models[] = {
    {"e74, all of its weights",
     "  m = e74 n heads=2 n_state=4 proj=full z_mod=full state=full checkpoint_interval=4\n", "",
     "batch=3"},
    {"e74 with a gate",
     "  m = e74 n heads=2 n_state=4 proj=full z_mod=row z_act=twice_sigmoid "
     "checkpoint_interval=4\n",
     "", "batch=3"},
    {"e74, low rank, a V of its own",
     "  m = e74 n heads=2 n_state=6 rank=2 state=lowrank V=shared nonlin=linear\n", "", "batch=3"},
    {"e74, low rank", "  m = e74 n heads=2 n_state=6 rank=2 state=lowrank V0=V nonlin=rmsnorm\n",
     "V [batch, 2, 6, 2]\n", "batch=3"},
    {"e74, tied", "  m = e74 n heads=2 n_state=4 proj=tied_kvq state=diagonal nonlin=linear\n", "",
     "batch=3"},
    {"e74_cell, low rank",
     "  k = linear n dim_out=8\n  v = linear n dim_out=8\n  q = linear n dim_out=8\n"
     "  m = e74_cell k v q heads=2 n_state=4 rank=2 state=lowrank V0=V\n",
     "V [batch, 2, 4, 2]\n", "batch=3"},
    {"e74_block", "  m = e74_block n heads=2 n_state=4 proj=full\n", "", "batch=3"},
    {"e74_block, low rank", "  m = e74_block n n_state=6 rank=2 state=lowrank V0=V\n",
     "V [batch, 1, 6, 2]\n", "batch=3"},
    {"dual memory e23",
     "  m = dual_memory n preset=e23 tape=shared dim=8 slots=3 checkpoint_interval=4\n", "",
     "batch=3"},
    {"dual memory e29b", "  m = dual_memory n preset=e29b dim=8 slots=3\n", "", "batch=3"},
    {"dual memory e29c", "  m = dual_memory n preset=e29c dim=8 slots=3\n", "", "batch=3"},
    {"attention",
     "  b = transpose n batch=1 width=width\n"
     "  q = linear b dim_out=12 bias=yes\n"
     "  k = linear b dim_out=6\n"
     "  v = linear b dim_out=10\n"
     "  p, r = qk_norm q k heads=2 kv_heads=1\n"
     "  s = rope p heads=2\n"
     "  t = rope r heads=1\n"
     "  a = attention s t v heads=2 kv_heads=1 dim_v=10 mask=causal sink=yes\n"
     "  m = transpose a batch=1 width=20\n",
     "", "batch=3"},
    {"an adapter, made again", "  l = layernorm n\n  m = lora l rank=3 dim_out=8\n", "",
     "recompute=1"},
};

/* A program with sizes, on a backend, and a run of it. */
struct model {
    struct program *p;
    struct call call;
    struct tensors *inputs, *got;
};

static void model_free(struct model *m)
{
    tensors_free(m->inputs);
    tensors_free(m->got);
    program_free(m->p);
}

/* Nonzero after err_set(); to be freed in any case. */
static int model_new(struct model *m, const struct backend *b, const char *given, const char *lines,
                     const char *words)
{
    char text[3000];
    struct call f;

    *m = (struct model){.p = NULL};
    snprintf(text, sizeof text, "%s%s%s%s", given, HEAD, lines, TAIL);
    m->p = program_read("model", text, stdout);
    if (!m->p || cases_one(program_op(m->p), words, &f))
        return -1;
    m->call = call_here(&f, b, op_kernel(f.op, b, 0));
    m->inputs = tensors_new(&m->call);
    if (!m->inputs)
        return -1;
    tensors_draw(m->inputs, &m->call, 1, 1);
    tensors_round(m->inputs, &m->call);
    const struct run r = {.call = m->call};
    m->got = run_copy(&r, m->inputs, NULL);
    return m->got ? 0 : -1;
}

static void right(const struct backend *b, int i)
{
    struct verdicts list = {0};
    struct model m;
    const int e = model_new(&m, b, models[i].given, models[i].lines, models[i].words) ||
                  check_calls(&m.call, m.got, 1, &list);

    ok(!e && list.n > 20 && !verdicts_failed(&list, 0),
       "%s: %s, call by call: %d results of %d calls", b->name, models[i].name, list.n,
       e ? 0 : program_calls(m.call.op));
    print_failures(&list, e);
    verdicts_free(&list);
    model_free(&m);
}

/* ---- large ones ---- */

/* Width 512, 1024 steps: products by samples and random sums of all elements. */
static const struct {
    const char *name, *lines;
} large[] = {
    {"e74 full tanh", "  m = e74 n heads=8 n_state=64 state=full proj=full nonlin=tanh\n"},
    {"e74 diagonal rmsnorm", "  m = e74 n heads=8 n_state=64 state=diagonal nonlin=rmsnorm\n"},
    {"attention and an MLP", "  b = transpose n batch=1 width=width\n"
                             "  q = linear b dim_out=width\n"
                             "  k = linear b dim_out=width\n"
                             "  v = linear b dim_out=width\n"
                             "  a = attention q k v heads=4 mask=causal\n"
                             "  c = transpose a batch=1 width=width\n"
                             "  y = linear c dim_out=width\n"
                             "  z = add n y\n"
                             "  g = linear z dim_out=1024\n"
                             "  u = linear z dim_out=1024\n"
                             "  m = swiglu g u\n"},
};

static int count_of(const struct verdicts *list, const char *check)
{
    int n = 0;
    for (int i = 0; i < list->n; i++)
        n += strcmp(list->v[i].check, check) == 0;
    return n;
}

static void by_sample(const struct backend *b, int i)
{
    struct verdicts list = {0};
    struct model m;
    const double began = omp_get_wtime();
    int e = model_new(&m, b, "", large[i].lines,
                      "width=512 steps=1024 batch=1 vocabulary=256 blocks=1");
    struct calls c = {.failed = 0};

    e = e || calls_begin(&c, &m.call, 1, &list);
    c.much = 1e9;
    e = e || calls_run(&c, &c.watch, m.got);
    const int sums = count_of(&list, "products");
    ok(!e && sums >= 4 && !verdicts_failed(&list, 0),
       "%s: %s, width 512, 1024 steps, call by call: %d results, of %d all elements by random sums",
       b->name, large[i].name, list.n - sums, sums);
    printf("# %.1f s\n", omp_get_wtime() - began);
    print_failures(&list, e);
    if (!e)
        calls_end(&c);
    verdicts_free(&list);
    model_free(&m);
}

/* ---- a gradient that is off ---- */

/* The kinds of weights, of all operations, and what became of a mistake in each. */
enum { KINDS = 200 };
struct kind {
    const struct op *op;
    int arg, planted, caught, coarse;
    double sees;
};
static struct kind kinds[KINDS];
static int n_kinds;

static struct kind *kind_of(const struct op *o, int arg)
{
    int i = 0;
    while (i < n_kinds && (kinds[i].op != o || kinds[i].arg != arg))
        i++;
    if (i == n_kinds && n_kinds < KINDS)
        kinds[n_kinds++] = (struct kind){.op = o, .arg = arg, .sees = 0};
    return &kinds[i];
}

/* Spoils one gradient of one call, then lets the calls be looked at. */
struct spoil {
    struct program_watch watch; /* the first member */
    struct calls *calls;
    int call, arg, done;
};

static int scale(const struct call *f, int arg)
{
    const int64_t n = op_count(f, arg);
    const enum dtype type = call_type(f, arg, 1);
    double *x = malloc(n * sizeof *x);
    int e = !x || transfer_get(f, type, x, f->grad[arg], n);

    for (int64_t i = 0; !e && i < n; i++)
        x[i] *= 1 + 1e-3;
    e = e || transfer_put(f, type, f->grad[arg], x, n);
    free(x);
    return e;
}

static int spoil(const struct program_watch *w, int i, enum pass p, int after, const struct call *f)
{
    struct spoil *s = (struct spoil *)(void *)(uintptr_t)w;
    int e = 0;

    if (i == s->call && p == BACKWARD && after) {
        e = scale(f, s->arg);
        s->done = 1;
    }
    return e || s->calls->watch.look(&s->calls->watch, i, p, after, f);
}

static const struct verdict *verdict_named(const struct verdicts *list, const char *name)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->v[i].tensor, name) == 0)
            return &list->v[i];
    return NULL;
}

/* The gradient of a weight of one call, off by 1e-3. */
static void plant(const struct model *m, int call, int arg)
{
    char line[2 * MAX_NAME], name[3 * MAX_NAME];
    const struct call *f = program_call(m->call.op, call, line);
    struct kind *k = kind_of(f->op, arg);
    struct verdicts list = {0};
    struct calls c;
    int e = calls_begin(&c, &m->call, 1, &list);
    struct spoil s = {{spoil}, &c, call, arg, 0};

    snprintf(name, sizeof name, "%s.d_%s", line, f->op->arg[arg].name);
    name[sizeof list.v->tensor - 1] = 0;
    e = e || calls_run(&c, &s.watch, m->got);
    const struct verdict *v = e ? NULL : verdict_named(&list, name);
    const int caught = v && !v->pass;
    /* Only a bound that is wider than the mistake may let it pass. */
    const int coarse = v && v->pass && (v->unjudged || v->power.all > 1e-3);
    if (!s.done || !v || (!caught && !coarse)) {
        ok(0, "%s: %s's %s off by 1e-3", m->call.backend->name, f->op->name, name);
        printf("# %s\n", e ? err_text() : v ? "passes" : "has no verdict");
        if (v)
            print_verdict(v);
    }
    if (coarse)
        print_verdict(v);
    k->planted++;
    k->caught += caught;
    k->coarse += coarse;
    k->sees = v ? fmax(k->sees, v->power.all) : k->sees;
    calls_end(&c);
    verdicts_free(&list);
}

static void plants(const struct backend *b, int i)
{
    struct model m;
    char line[2 * MAX_NAME];

    if (model_new(&m, b, models[i].given, models[i].lines, models[i].words)) {
        ok(0, "%s: %s: %s", b->name, models[i].name, err_text());
        model_free(&m);
        return;
    }
    for (int s = 0; s < program_calls(m.call.op); s++) {
        const struct call *f = program_call(m.call.op, s, line);
        for (int a = 0; a < f->op->n_args; a++)
            if (op_is_parameter(f, a) && f->op->arg[a].flags & DIFF && op_has(f, a) &&
                (!kind_of(f->op, a)->planted || line[0] != '1'))
                plant(&m, s, a);
    }
    model_free(&m);
}

/* Every weight with a gradient, of every operation, is of a kind in which it was planted. */
static void all_kinds(const struct backend *b)
{
    int missing = 0, planted = 0, caught = 0, coarse = 0;
    char list[2000] = "";

    for (int o = 0; o < N_OPS; o++)
        for (int a = 0; a < ops[o]->n_args; a++) {
            const unsigned flags = ops[o]->arg[a].flags;
            const struct kind *k = kind_of(ops[o], a);
            if (!(flags & PARAMETER) || !(flags & DIFF))
                continue;
            if (!k->planted) {
                printf("# %s's %s in no model\n", ops[o]->name, ops[o]->arg[a].name);
                missing++;
            }
        }
    for (int i = 0; i < n_kinds; i++) {
        planted += kinds[i].planted;
        caught += kinds[i].caught;
        coarse += kinds[i].coarse;
        if (kinds[i].coarse)
            append(list, sizeof list, " %s.%s (%.1e)", kinds[i].op->name,
                   kinds[i].op->arg[kinds[i].arg].name, kinds[i].sees);
    }
    ok(!missing && planted && caught + coarse == planted,
       "%s: off by 1e-3 in one call: %d of %d caught; %d within bounds that see less%s", b->name,
       caught, planted, coarse, list);
    memset(kinds, 0, sizeof kinds);
    n_kinds = 0;
}

/* ---- a run that ends early ---- */

static int fails(const struct program_watch *w, int i, enum pass p, int after, const struct call *f)
{
    (void)w, (void)after, (void)f;
    return p == BACKWARD && i == 3;
}

/* It is an error with a sentence, and nothing is judged by what was not made. */
static void ends_early(const struct backend *b)
{
    const struct program_watch watch = {fails};
    struct verdicts list = {0};
    struct model m;
    struct calls c;
    int e = model_new(&m, b, models[0].given, models[0].lines, models[0].words) ||
            calls_begin(&c, &m.call, 1, &list);

    ok(!e && calls_run(&c, &watch, m.got) && !list.n && strstr(err_text(), b->name),
       "%s: a pass that ends early is no verdict: %s", b->name, err_text());
    if (!e)
        calls_end(&c);
    verdicts_free(&list);
    model_free(&m);
}

int main(int argc, char **argv)
{
    const int is_large = argc > 1 && strcmp(argv[1], "--large") == 0;
    const int threads = omp_get_max_threads();

    omp_set_num_threads(1);
    for (const struct backend *const *b = backends(); *b; b++) {
        const char *why = backend_unavailable(here(), *b);
        for (size_t i = 0; i < COUNT(models); i++) {
            if (why) {
                skip(why, "%s: %s, call by call", (*b)->name, models[i].name);
                continue;
            }
            right(*b, (int)i);
            if (*b != &ref64)
                plants(*b, (int)i);
        }
        if (!why && *b != &ref64)
            all_kinds(*b);
        if (!why)
            ends_early(*b);
        omp_set_num_threads(threads);
        for (size_t i = 0; i < COUNT(large); i++)
            if (why)
                skip(why, "%s: %s, width 512", (*b)->name, large[i].name);
            else if (is_large || (is_judged(*b) && !emulated(*b)))
                by_sample(*b, (int)i);
        omp_set_num_threads(1);
    }
    return done();
}
