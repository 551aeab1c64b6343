/* What a run is given, put there ahead of it: the bits of a run that puts it there itself, and no memory kept; and
 * values that go there and back in many chunks. */
#include "config.h"

#include <stdint.h>
#include <string.h>

#include "common/call/ahead.h"
#include "common/call/transfer.h"
#include "tests/suite.h"

/* ---- there and back ---- */

/* n values of a type, where they are exact, with others behind them that must stay. */
static int there_and_back(const struct call *f, enum dtype type, int64_t n)
{
    const struct memory *m = &f->backend->machine->memory;
    const size_t each = type == U8 ? 1 : sizeof(double);
    char *x = malloc(n * each), *y = calloc(n + 1, each);
    void *there = m->aside(f->context, (n + 1) * types[type].bytes);
    int e = !x || !y || !there;

    for (int64_t i = 0; !e && i < n; i++)
        if (type == U8)
            x[i] = (char)(i * 31 % 251);
        else
            ((double *)x)[i] = (double)(i * 31 % 251);
    memset(y + n * each, 77, each);
    e = e || m->fill(f->context, there, 0x5a, (n + 1) * types[type].bytes) ||
        transfer_put(f, type, there, x, n) || transfer_get(f, type, y, there, n) ||
        memcmp(x, y, n * each) != 0;
    for (size_t i = 0; !e && i < each; i++)
        e = y[n * each + i] != 77;
    unsigned char behind[8];
    e = e || m->get(f->context, behind, (char *)there + n * types[type].bytes, types[type].bytes);
    for (size_t i = 0; !e && i < types[type].bytes; i++)
        e = behind[i] != 0x5a;
    if (there)
        m->free(f->context, there);
    free(x);
    free(y);
    return e;
}

static void chunks(const struct call *f)
{
    static const enum dtype type[] = {F32, BF16, I64, I32, U8};
    static const int64_t chunk = RING_BYTES / 8;
    const int64_t n[] = {1, chunk, chunk + 1, RING * chunk, RING * chunk + 1, 2 * RING * chunk + 3};

    for (size_t t = 0; t < sizeof type / sizeof *type; t++)
        for (size_t i = 0; i < sizeof n / sizeof *n; i++)
            if (!ok(!there_and_back(f, type[t], n[i]), "%s: %lld of %s, there and back",
                    f->backend->name, (long long)n[i], types[type[t]].name))
                printf("# %s\n", err_text());
}

/* ---- runs ---- */

/* Backward adds to the gradients, or forward writes over the input, or none of both. */
enum how { PLAIN, ADDS, IN_PLACE };

static int drawn_case(struct drawn *k, const struct backend *b, const char *op, const char *words,
                      enum how how)
{
    struct call given = {.op = op_find(op)};

    *k = (struct drawn){.inputs = NULL};
    if (!given.op || cases_one(given.op, words, &given))
        return -1;
    if (how == ADDS)
        given.accumulate = op_gradients(given.op);
    k->run.call = call_here(&given, b, NULL);
    k->run.call.kernel = impl_choose(&k->run.call, NULL).kernel;
    k->run.call.in_place = how == IN_PLACE;
    return k->run.call.kernel ? drawn_run(k) : err_set("%s has no kernel for it", b->name);
}

/* Equal bits of all values and gradients. */
static int same(const struct call *f, const struct tensors *a, const struct tensors *b)
{
    int same = a && b;

    for (int i = 0; same && i < f->op->n_args; i++)
        for (int grad = 0; same && grad < 2; grad++) {
            const void *x = tensors_values(a, i, grad), *y = tensors_values(b, i, grad);
            const size_t each = grad ? sizeof(double) : tensors_each(f, i);
            same = !x == !y && (!x || memcmp(x, y, op_count(f, i) * each) == 0);
        }
    return same;
}

/* All that it is given is there. */
static int all_found(struct ahead *a, const struct call *f, const struct tensors *t)
{
    int found = 1;

    for (int i = 0; i < f->op->n_args; i++) {
        const int64_t n = op_count(f, i);
        const unsigned flags = f->op->arg[i].flags;
        if (n && flags & IN)
            found &= !!ahead_find(a, tensors_values(t, i, 0), (enum dtype)f->type[i], n);
        if (n && flags & OUT && flags & DIFF)
            found &= !!ahead_find(a, t->g[i], (enum dtype)f->grad_type[i], n);
        if (n && call_accumulates(f, i))
            found &= !!ahead_find(a, t->g0[i], (enum dtype)f->grad_type[i], n);
    }
    return found;
}

static void a_case(const struct backend *b, const char *op, const char *words, enum how how)
{
    struct drawn k;

    if (drawn_case(&k, b, op, words, how)) {
        ok(0, "%s on %s: %s", op, b->name, err_text());
        drawn_free(&k);
        return;
    }
    struct run ahead = k.run;
    ahead.ahead = ahead_begin(&k.run.call, k.inputs);
    const int began = !!ahead.ahead, reserved = !run_reserve(&ahead);
    struct tensors *twice[2] = {run_copy(&ahead, k.inputs, NULL), run_copy(&ahead, k.inputs, NULL)};
    const int found = all_found(ahead.ahead, &k.run.call, k.inputs);
    ok(began && reserved && found && same(&k.run.call, k.want, twice[0]) &&
           same(&k.run.call, k.want, twice[1]),
       "%s on %s: two runs with all that they are given there", op, b->name);
    ahead_drop(ahead.ahead);
    struct tensors *after = run_copy(&ahead, k.inputs, NULL);
    ok(!all_found(ahead.ahead, &k.run.call, k.inputs) && same(&k.run.call, k.want, after),
       "%s on %s: and one after it was given back", op, b->name);
    const struct ahead_times times = ahead_end(ahead.ahead);
    ok(times.worked > 0 && times.hidden >= 0 && times.hidden <= times.worked,
       "%s on %s: the times of its copies", op, b->name);
    tensors_free(twice[0]);
    tensors_free(twice[1]);
    tensors_free(after);
    drawn_free(&k);
}

/* ---- little memory ---- */

static int64_t claimed; /* to be free */

static int64_t left(struct context *x)
{
    (void)x;
    return claimed;
}

/* On a machine that says how much it has left. */
static void little_left(const struct backend *b)
{
    struct machine small = *b->machine;
    struct backend on_small = *b;
    struct drawn k;

    small.memory.left = left;
    on_small.machine = &small;
    if (drawn_case(&k, b, "silu", "rows=400 dim=1000", PLAIN)) {
        ok(0, "silu: %s", err_text());
        drawn_free(&k);
        return;
    }
    k.run.call.backend = &on_small;
    const int64_t needs = op_memory(&k.run.call);
    claimed = needs + (1 << 20);
    ok(!ahead_begin(&k.run.call, k.inputs), "%s: without room beside the run, none", b->name);
    claimed = 4 * needs;
    struct run ahead = k.run;
    ahead.ahead = ahead_begin(&k.run.call, k.inputs);
    claimed = needs;
    ok(ahead.ahead && !run_reserve(&ahead) && all_found(ahead.ahead, &k.run.call, k.inputs),
       "%s: as much as the run needs is left: it stays", b->name);
    claimed = needs - 1;
    ok(run_reserve(&ahead) && !all_found(ahead.ahead, &k.run.call, k.inputs),
       "%s: less is left: it is given back, and the run refused if that is not enough", b->name);
    ahead_end(ahead.ahead);
    drawn_free(&k);
}

/* None of what is small; and one that is ended before it is done. */
static void ends(const struct backend *b)
{
    struct drawn small, large;
    int ended = 0;

    if (drawn_case(&small, b, "silu", "rows=10 dim=100", PLAIN) ||
        drawn_case(&large, b, "silu", "rows=3 dim=1000003", PLAIN)) {
        ok(0, "silu: %s", err_text());
        return;
    }
    ok(!ahead_begin(&small.run.call, small.inputs), "%s: nothing of what is small", b->name);
    for (int i = 0; i < 20; i++) {
        struct ahead *a = ahead_begin(&large.run.call, large.inputs);
        ended += a && ahead_end(a).worked >= 0;
    }
    ok(ended == 20, "%s: ended before it is done, 20 times", b->name);
    ahead_wait(NULL);
    ahead_drop(NULL);
    ok(!ahead_find(NULL, &small, F32, 1) && ahead_end(NULL).worked == 0, "%s: none at all",
       b->name);
    drawn_free(&small);
    drawn_free(&large);
}

/* Of the operations that are named, or of all. */
static void cases(const struct backend *b, int n, char **names)
{
    static const struct {
        const char *op, *words;
        enum how how;
    } all[] = {
        {"silu", "rows=3 dim=1000003", PLAIN},
        {"silu", "rows=3 dim=1000003", IN_PLACE},
        {"rmsnorm", "rows=700 columns=900", ADDS},
        {"dequantise", "dim_out=512 dim_in=8192 format=q8_0", PLAIN},
        {"embedding", "rows=3000 vocabulary=700 width=300", PLAIN},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (named(op_find(all[i].op), n, names))
            a_case(b, all[i].op, all[i].words, all[i].how);
    }
}

int main(int argc, char **argv)
{
    const struct backend *b;

    if (!all_known(argc, argv))
        return EXIT_FAILURE;
    for (int i = 0; (b = judged_backend(i)); i++) {
        const char *no = backend_unavailable(here(), b);
        if (no) {
            skip(no, "%s", b->name);
            continue;
        }
        const struct call f = {.backend = b, .context = context_of(here(), b)};
        chunks(&f);
        cases(b, argc - 1, argv + 1);
        little_left(b);
        ends(b);
    }
    return done();
}
