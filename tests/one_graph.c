/* A model's two passes as one recording: the bits of the passes one after the other, and the time beside the sum of
 * its calls' own, each recorded by itself on the same tensors.  Where the machine records nothing: the bits alone. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/call/transfer.h"
#include "common/program/program.h"
#include "tests/models.h"
#include "tests/recorded.h"
#include "tests/suite.h"

/* examples/language_model.py */
#define MODEL                                                                                      \
    MODEL_HEAD(256, 256, 1024, 16)                                                                 \
    "  m = e74 n heads=4 n_state=64 state=full nonlin=%s\n" MODEL_TAIL

/* A call with memory on its backend. */
struct placed {
    struct call call;
    const struct tensors *inputs;
};

static const struct memory *memory_of(const struct placed *p)
{
    return &p->call.backend->machine->memory;
}

/* A tensor, or its gradient, with the inputs' values where they have some. */
static int place(struct placed *p, int arg, int grad)
{
    struct call *f = &p->call;
    const enum dtype type = call_type(f, arg, grad);
    const int64_t n = op_count(f, arg);
    const unsigned given = grad ? OUT : IN;
    void **to = &(grad ? f->grad : f->arg)[arg];

    if (!n || (grad && !(f->op->arg[arg].flags & DIFF)))
        return 0;
    *to = memory_of(p)->alloc(f->context, n * types[type].bytes);
    if (!*to)
        return err_set("no memory for %s", f->op->arg[arg].name);
    return f->op->arg[arg].flags & given
               ? transfer_put(f, type, *to, tensors_values(p->inputs, arg, grad), n)
               : 0;
}

static int place_all(struct placed *p)
{
    size_t work = 0;
    int e = 0;

    for (int i = 0; !e && i < p->call.op->n_args; i++)
        e = place(p, i, 0) || place(p, i, 1);
    for (enum pass q = FORWARD; q < N_PASSES; q++)
        work = fmax(work, op_work(&p->call, q));
    p->call.work = e ? NULL : memory_of(p)->alloc(p->call.context, work + 1);
    return e || p->call.work ? e : err_set("no memory for a workspace");
}

static void release(struct placed *p)
{
    for (int i = 0; i < p->call.op->n_args; i++) {
        memory_of(p)->free(p->call.context, p->call.arg[i]);
        memory_of(p)->free(p->call.context, p->call.grad[i]);
    }
    memory_of(p)->free(p->call.context, p->call.work);
}

/* ---- times ---- */

static void times(struct placed *p, const char *nonlin)
{
    const struct pass_of both[] = {{&p->call, FORWARD}, {&p->call, BACKWARD}};
    const double one = time_of(both, 2);
    const struct sum_of_times sum = sum_of_calls(&p->call);
    const double all = sum.seconds[FORWARD] + sum.seconds[BACKWARD];

    const int failed = one <= 0 || sum.failed;

    if (!failed && one > 1.05 * all && others_may_use(p->call.backend)) {
        skip("others may use the device meanwhile", "%s: %s: the time of one graph",
             p->call.backend->name, nonlin);
        return;
    }
    ok(!failed && one <= 1.05 * all,
       "%s: %s: one graph %.3f ms, %.3f of the sum of its %d calls' %.3f ms (%.3f + %.3f)",
       p->call.backend->name, nonlin, one * 1e3, one / all, sum.n, all * 1e3,
       sum.seconds[FORWARD] * 1e3, sum.seconds[BACKWARD] * 1e3);
}

/* ---- bits ---- */

/* The results of p with those of `want`. */
static int same_results(const struct placed *p, const struct tensors *want)
{
    int same = 1;

    FOR_RESULTS (&p->call, i, grad) {
        const int64_t n = op_count(&p->call, i);
        const void *there = (grad ? p->call.grad : p->call.arg)[i];
        double *got = malloc(n * sizeof *got + 1);
        same &= got && !transfer_get(&p->call, call_type(&p->call, i, grad), got, there, n) &&
                same_bits(got, tensors_result(want, i, grad), n);
        free(got);
    }
    return same;
}

static int run_both(const struct placed *p)
{
    const struct pass_of both[] = {{&p->call, FORWARD}, {&p->call, BACKWARD}};
    const struct timekeeping *t = &p->call.backend->machine->timing;
    void *recorded = NULL;
    int e = t->record ? t->record(both, 2, &recorded) : 0;

    for (int i = 0; !e && i < 2; i++) {
        if (t->record)
            e = t->replay(p->call.context, recorded);
        else
            e = call_pass(&p->call, FORWARD) || call_pass(&p->call, BACKWARD);
    }
    if (recorded)
        t->forget(recorded);
    return e;
}

/* The bytes of a run: as predicted by the run's own count; and by the device's, which has its pages. */
static void bytes(const struct run *r, const char *what, const struct outcome *out)
{
    enum { PAGE = 2 << 20 };
    const int64_t predicted = op_memory(&r->call);
    const int64_t most = predicted + (2 * r->call.op->n_args + 1) * (int64_t)PAGE;
    const int near = !out->used || (out->used <= most && out->used >= predicted / 2);

    if (out->peak == predicted && !near && others_may_use(r->call.backend)) {
        skip("others may use the device meanwhile", "%s: %s: bytes by the device's count",
             r->call.backend->name, what);
        return;
    }
    ok(out->peak == predicted && near,
       "%s: %s: %lld bytes predicted and in use, %lld by the device's count, %lld saved",
       r->call.backend->name, what, (long long)predicted, (long long)out->used,
       (long long)op_saved(&r->call));
}

/* Have the results of two cases whose saved tensors differ the same bits? */
static int same_but_saved(const struct call *f, const struct tensors *a, const struct call *g,
                          const struct tensors *b)
{
    int same = 1, n = 0;

    FOR_RESULTS (f, i, grad) {
        const int other = op_arg(g->op, f->op->arg[i].name);
        if (!grad && !(f->op->arg[i].flags & OUT))
            continue;
        same &= other >= 0 && same_bits(tensors_result(a, i, grad), tensors_result(b, other, grad),
                                        op_count(f, i));
        n++;
    }
    return same && n > 5;
}

/* Both passes of a case whose results are `want`. */
static int both_passes(const struct run *r, const struct tensors *inputs,
                       const struct tensors *want, const char *what)
{
    const struct backend *b = r->call.backend;
    struct placed p = {.call = r->call, .inputs = inputs};
    const int e = place_all(&p) || call_pass(&p.call, FORWARD) || call_pass(&p.call, BACKWARD) ||
                  run_both(&p);

    ok(!e && same_results(&p, want), "%s: %s: both passes %s: the bits of one after the other",
       b->name, what, b->machine->timing.record ? "as one recording" : "again");
    if (!e && b->machine->timing.record)
        times(&p, what);
    release(&p);
    return e;
}

/* A model with recompute = 0, 1, 2; the bits of the first are those of all. */
struct first {
    struct call call;
    struct tensors *inputs, *want;
};

static int test_case(const struct backend *b, const struct call *f, const char *what,
                     struct first *first)
{
    const struct run r = {.call = call_here(f, b, op_kernel(f->op, b, 0)),
                          .watch = b->machine->timing.record != NULL};
    struct tensors *inputs = tensors_new(&r.call), *want = NULL;
    struct outcome out;
    int e = !inputs;

    if (!e) {
        tensors_draw(inputs, &r.call, 1, 1);
        tensors_round(inputs, &r.call);
        want = run_copy(&r, inputs, &out);
    }
    e = e || !want || both_passes(&r, inputs, want, what);
    /* Once more: cuBLAS allocates at its first product what it keeps. */
    if (!e && !first->want) {
        tensors_free(want);
        want = run_copy(&r, inputs, &out);
        e = !want;
    }
    if (!e)
        bytes(&r, what, &out);
    if (!e && first->want)
        ok(same_but_saved(&first->call, first->want, &r.call, want), "%s: %s: no bit is other",
           b->name, what);
    if (first->want || e) {
        tensors_free(want);
        tensors_free(inputs);
    } else {
        *first = (struct first){r.call, inputs, want};
    }
    return e;
}

static void test(const struct backend *b, const char *nonlin)
{
    const char *sizes =
        b->machine->timing.record ? "batch=16" : "batch=2 steps=7 width=8 vocabulary=5";
    struct first first = {.want = NULL};
    char text[2000], words[100], what[60];
    int e = 0;

    snprintf(text, sizeof text, MODEL, nonlin);
    struct program *model = program_read("model", text, stdout);
    for (int k = 0; !e && k < 3; k++) {
        struct call f;
        snprintf(words, sizeof words, "%s recompute=%d", sizes, k);
        snprintf(what, sizeof what, "%s recompute=%d", nonlin, k);
        e = !model || cases_one(program_op(model), words, &f) || test_case(b, &f, what, &first);
    }
    if (e) {
        ok(0, "%s: %s", b->name, what);
        printf("# %s\n", err_text());
    }
    tensors_free(first.want);
    tensors_free(first.inputs);
    program_free(model);
}

/* ---- what backward does not read ---- */

/* It runs without the tensors that the contract says it does not read, also where it makes others again. */
static void unread(const struct backend *b)
{
    struct program *model = program_read(
        "unread",
        "rows = 5\nwidth = 6\ntoken [rows]\nx = embedding token vocabulary=7 width=width\n"
        "repeat 2\n  n = layernorm x\n  s = silu n\n  o = linear s dim_out=width bias=yes\n"
        "  x = silu o\n",
        stdout);
    struct placed p = {.inputs = NULL};
    struct call f;
    int n = 0;

    if (!model || cases_one(program_op(model), "recompute=1", &f)) {
        ok(0, "%s: %s", b->name, model ? err_text() : "no program");
        return;
    }
    const struct run r = {.call = call_here(&f, b, op_kernel(f.op, b, 0))};
    struct tensors *inputs = tensors_new(&r.call);
    tensors_draw(inputs, &r.call, 1, 1);
    tensors_round(inputs, &r.call);
    struct tensors *want = run_copy(&r, inputs, NULL);
    p.call = r.call, p.inputs = inputs;
    int e = !want || place_all(&p) || call_pass(&p.call, FORWARD);
    struct call without = p.call;
    for (int i = 0; i < f.op->n_args; i++)
        if (!op_read_back(&p.call, i) && p.call.arg[i]) {
            without.arg[i] = NULL;
            n++;
        }
    e = e || call_pass(&without, BACKWARD);
    ok(!e && n && same_results(&p, want),
       "%s: backward without the %d tensors that it does not read", b->name, n);
    release(&p);
    tensors_free(want);
    tensors_free(inputs);
    program_free(model);
}

int main(void)
{
    static const char *const nonlins[] = {"linear", "tanh"};

    for (const struct backend *const *b = backends(); *b; b++) {
        const char *why = backend_unavailable(here(), *b);
        for (size_t i = 0; i < COUNT(nonlins); i++)
            if (why)
                skip(why, "%s: %s: both passes", (*b)->name, nonlins[i]);
            else
                test(*b, nonlins[i]);
        if (!why)
            unread(*b);
    }
    return done();
}
