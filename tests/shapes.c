/* Shapes that are hard for kernels: one step, one sequence, one more than a
 * warp or a block holds, odd widths, blocks and ranks, segments longer than
 * the sequence, more sequences than a grid is wide.  Every kernel of every
 * GPU backend: parity with the oracle, then some more runs (many, where
 * CHECK_LONG is set), each in fresh memory full of NaN between guard bands, that
 * must all give the same bits.  And sizes that must be refused, with a message
 * that names them.
 *
 * Its arguments are those of tests/parts.h; part N/ALL has every ALL-th case. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/here.h"
#include "tests/parts.h"

/* ---- judging ---- */

/* The emulator takes minutes where a GPU takes seconds: it runs the cases
 * below a limit, and each of them less often. */
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
static int note_guards(const struct run *c, int run, const struct outcome *out,
                       struct verdicts *list)
{
    struct verdict *v;

    if (!out->overrun[0])
        return 0;
    if (!(v = verdict_add(list, "guards", out->overrun, c->call.backend, c->call.kernel)))
        return -1;
    v->error = v->norm = INFINITY;
    snprintf(v->worst, sizeof v->worst, "run %d", run);
    return 0;
}

/* A verdict for each result whose bits differ. */
static int note_differences(const struct run *c, const struct tensors *got,
                            const struct tensors *want, struct verdicts *list)
{
    FOR_RESULTS (&c->call, i, grad) {
        const struct tensor_pair pair = tensor_pair(&c->call, i, grad, got, want);
        if (!pair_same(&pair) && check_tensor("repeat", &pair, 0, list))
            return -1;
    }
    return 0;
}

/* Further runs, up to the first whose results are not those of `want`. */
static int judge_repeats(const struct run *c, const struct tensors *want, int runs,
                         struct verdicts *list)
{
    struct tensors *again = tensors_copy(&c->call, want);
    int e = !again, before = list->n;

    for (int run = 2; !e && run <= runs && list->n == before; run++) {
        struct outcome out;
        e = run_op(c, again, &out) || note_guards(c, run, &out, list) ||
            note_differences(c, again, want, list);
    }
    tensors_free(again);
    return e;
}

/* An element that no kernel has written is still NaN, whose distance from the
 * oracle's result is infinite: parity notices that too. */
static int judge_shape(const struct run *c, struct question *q, void *data, struct verdicts *list)
{
    const struct session *s = data;
    struct run guarded = *c;
    struct tensors *got = NULL;
    struct bounds bounds;
    struct outcome out;

    guarded.guards = 1;
    int e = judge_parity(&guarded, q, &got, &bounds, &out, list) ||
            note_guards(&guarded, 1, &out, list) || judge_repeats(&guarded, got, s->runs, list);
    tensors_free(got);
    return e;
}

static int shape_case(const struct call *f, void *data)
{
    struct kernel_test *each = data;
    struct session *s = each->data;

    if (!part_takes(&s->part))
        return 0;
    if (work_of(f) <= s->limit)
        return test_kernels(f, each);
    s->left++;
    return 0;
}

static void judge_shapes(const struct backend *b, const struct part *p)
{
    struct session s = {
        .limit = INFINITY, .runs = getenv("CHECK_LONG") ? MANY_RUNS : RUNS, .part = *p};
    struct kernel_test each = {.backend = b, .judge = judge_shape, .data = &s};
    char how[32];

    printf("# %s: %s\n", b->name, backend_device(here(), b));
    if (emulated(b)) {
        s.limit = EMULATED_WORK;
        s.runs = EMULATED_RUNS;
    }
    snprintf(how, sizeof how, ", %d runs", s.runs);
    each.how = how;
    for (int i = 0; i < N_OPS; i++)
        if (ops[i]->shapes && named(ops[i], p->n, p->name))
            for_cases(ops[i], ops[i]->shapes, shape_case, &each);
    if (s.left)
        printf("# %s: %d cases beyond %.0e operations are left for a GPU\n", b->name, s.left,
               s.limit);
}

/* ---- refused sizes ---- */

static void refuse(const struct op *o, const char *text, const char *names)
{
    struct call f;
    int refused = cases_one(o, text, &f) != 0;

    ok(refused && strstr(err_text(), names), "%s refuses %s", o->name, text);
    printf("# %s\n", refused ? err_text() : "it does not");
}

/* This value of a parameter must be refused, with a message that names both. */
static void refuse_value(const struct op *o, const struct param *p, const char *value)
{
    char text[128], names[128];

    snprintf(text, sizeof text, "%s=%s", p->name, value);
    snprintf(names, sizeof names, "%s = %s", p->name, value);
    refuse(o, text, names);
}

/* Values that no parameter can have, or that are outside this one's range. */
static void refuse_values(const struct op *o, const struct param *p)
{
    char below[32];

    if (p->choices) {
        refuse_value(o, p, "nonesuch");
        return;
    }
    if (p->real)
        snprintf(below, sizeof below, "%.17g", p->real->min - 1);
    else
        snprintf(below, sizeof below, "%" PRId64, p->min - 1);
    refuse_value(o, p, below);
    refuse_value(o, p, p->real ? "nan" : "1e3");
    refuse_value(o, p, p->real ? "1e999" : "99999999999999999999");
}

struct limit {
    const struct backend *backend;
    const char *names;
};

static int decline(const struct call *f, void *data)
{
    const struct impl *k;
    const struct op *o = f->op;
    const struct limit *l = data;
    char text[MAX_TEXT];

    op_text(f, text);
    for (int n = 0; (k = op_kernel(o, l->backend, n)); n++) {
        const struct call c = call_here(f, l->backend, k);
        const char *why = impl_declines(&c);
        ok(why && strstr(why, l->names), "%s %s declines %s %s", l->backend->name, k->name, o->name,
           text);
        printf("# %s\n", why ? why : "it does not");
    }
    return 0;
}

/* A refusal takes no time: the first part tests them all. */
static void judge_refusals(const struct op *o)
{
    for (int i = 0; i < o->n_params; i++)
        refuse_values(o, &o->param[i]);
    for (const struct refusal *r = o->refused; r && r->settings; r++)
        refuse(o, r->settings, r->names);
    for (int b = 0; judged_backend(b); b++)
        for (const struct refusal *r = o->declined; r && r->settings; r++) {
            struct limit l = {judged_backend(b), r->names};
            if (!judged_backend(b)->machine->device.unavailable())
                for_cases(o, r->settings, decline, &l);
        }
}

int main(int argc, char **argv)
{
    struct part p;
    const char *why = NULL;

    if (part_read(argc, argv, &p))
        return 2;
    for (int i = 0; p.part == 0 && i < N_OPS; i++)
        if (named(ops[i], p.n, p.name))
            judge_refusals(ops[i]);
    if (!any_gpu(&why))
        skip(why, "shapes on a GPU");
    for (int b = 0; judged_backend(b); b++)
        if (!judged_backend(b)->machine->device.unavailable())
            judge_shapes(judged_backend(b), &p);
    return done();
}
