/* suite.h - the TAP programs' loops over the table: one line of TAP for one
 * case of one operation, the failed verdicts on comment lines after it. */
#ifndef SUITE_H
#define SUITE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/judge/check.h"
#include "tests/here.h"
#include "tests/tap.h"

static inline void print_verdict(const struct verdict *v)
{
    printf("# %s %s: %s off by %.3g (%s; norm %.3g) at %s, bound %.3g%s", v->backend, v->check,
           v->tensor, v->error, v->distance ? v->distance : "", v->norm,
           v->worst[0] ? v->worst : "-", v->bound, v->unjudged ? ": too coarse to judge" : "");
    if (v->first_bad >= 0)
        printf(", first at step %lld", (long long)v->first_bad);
    puts("");
}

/* Of a suite's cases, the gradients of all can be judged by differences. */
static inline int coarse(const struct verdict *v)
{
    return v->unjudged && strcmp(v->check, "differences") == 0;
}

/* Why something failed, on comment lines. */
static inline void print_failures(const struct verdicts *list, int error)
{
    if (error)
        printf("# %s\n", err_text());
    for (int i = 0; i < list->n; i++)
        if (!list->v[i].pass || coarse(&list->v[i]))
            print_verdict(&list->v[i]);
}

/* One line: passed if nothing failed, and if there was anything to fail. */
static inline void report(const struct call *f, const struct verdicts *list, int error,
                          const char *what)
{
    char text[MAX_TEXT];
    op_text(f, text);
    int bad = 0;
    for (int i = 0; i < list->n; i++)
        bad |= !list->v[i].pass || coarse(&list->v[i]);
    if (!ok(!error && list->n > 0 && !bad, "%s: %s %s", what, f->op->name, text))
        print_failures(list, error);
}

static inline void for_cases(const struct op *o, const char *cases,
                             int (*each)(const struct call *, void *), void *data)
{
    if (cases_each(o, cases, each, data))
        ok(0, "%s: %s", o->name, err_text());
}

static inline void identities(const struct op *o, const struct backend *b, const struct impl *k)
{
    const struct call none = {.op = o}, on = call_here(&none, b, k);

    for (int i = 0; i < o->n_identities; i++) {
        struct verdicts list = {0};
        const char *why = identity_declined(&o->identity[i], &on);
        if (why) {
            printf("# %s %s declines a side of '%s': %s\n", b->name, k->name, o->identity[i].name,
                   why);
            continue;
        }
        int e = check_identity(&o->identity[i], &on, 1, &list);
        if (e || list.n) {
            ok(!e && !verdicts_failed(&list, 0), "identity on %s %s: %s, %s", b->name, k->name,
               o->name, o->identity[i].name);
            if (e)
                printf("# %s\n", err_text());
        }
        for (int v = 0; v < list.n; v++)
            if (!list.v[v].pass)
                print_verdict(&list.v[v]);
        verdicts_free(&list);
    }
}

/* A kernel of a backend. */
struct on {
    const struct backend *backend;
    const struct impl *kernel;
};

/* Why the kernel declines the call, which is printed on a comment line; or NULL. */
static inline const char *declined(const struct call *f)
{
    const char *why = impl_declines(f);
    char text[MAX_TEXT];

    if (why) {
        op_text(f, text);
        printf("# %s %s declines %s: %s\n", f->backend->name, f->kernel->name, text, why);
    }
    return why;
}

/* A case for all kernels of a backend: inputs that its storage holds
 * exactly, and the truth about them. */
struct question {
    struct tensors *inputs;
    struct truth truth;
};

/* Nonzero after err_set(); it must be freed in any case. */
static inline int question_new(struct question *q, const struct call *f)
{
    *q = (struct question){.inputs = tensors_new(f)};
    if (!q->inputs)
        return -1;
    tensors_draw(q->inputs, f, 1, 1);
    tensors_round(q->inputs, f);
    return truth_find(&q->truth, f, q->inputs);
}

static inline void question_free(struct question *q)
{
    tensors_free(q->inputs);
    truth_free(&q->truth);
}

/* A run, drawn inputs, and its results. */
struct drawn {
    struct run run;
    struct tensors *inputs, *want;
};

/* d->run is there.  Nonzero after err_set(); it must be freed in any case. */
static inline int drawn_run(struct drawn *d)
{
    d->inputs = tensors_new(&d->run.call);
    if (!d->inputs)
        return -1;
    tensors_draw(d->inputs, &d->run.call, 1, 1);
    tensors_round(d->inputs, &d->run.call);
    d->want = run_copy(&d->run, d->inputs, NULL);
    return d->want ? 0 : -1;
}

static inline void drawn_free(struct drawn *d)
{
    tensors_free(d->inputs);
    tensors_free(d->want);
}

/* Arithmetic operations of both passes. */
static inline double work_of(const struct call *f)
{
    return f->op->flops(f, FORWARD) + f->op->flops(f, BACKWARD);
}

/* Is the operation among the n names, or are there none?  For programs that take names of
 * operations, which all must be known. */
static inline int named(const struct op *o, int n, char *const *names)
{
    for (int i = 0; i < n; i++)
        if (op_find(names[i]) == o)
            return 1;
    return n == 0;
}

/* Are all of a program's arguments names of operations?  Else an error is printed. */
static inline int all_known(int argc, char *const *argv)
{
    for (int i = 1; i < argc; i++)
        if (!op_find(argv[i])) {
            fprintf(stderr, "%s: there is no operation %s\n", argv[0], argv[i]);
            return 0;
        }
    return 1;
}

/* Run it once: every result must be within its bound of the oracle's.  `got` becomes
 * the run's tensors and `bounds` the bounds, for further checks. */
static inline int judge_parity(const struct run *c, struct question *q, struct tensors **got,
                               struct bounds *bounds, struct outcome *out, struct verdicts *list)
{
    bounds_from(bounds, &c->call, &q->truth);
    *got = run_copy(c, q->inputs, out);
    return *got ? check_parity(*got, bounds, list) : -1;
}

/* Is a result refused?  *found, where it is given, becomes its verdict; -1 after err_set(). */
static inline int refuses(const struct tensor_pair *pair, struct truth *t, int thorough,
                          struct verdict *found)
{
    struct verdicts list = {0};
    struct bounds bounds;

    bounds_from(&bounds, pair->call, t);
    bounds.thorough = thorough;
    const int e = check_within("parity", pair, &bounds, &list);
    const int refused = e ? -1 : !list.v[0].pass;
    if (!e && found)
        *found = list.v[0];
    verdicts_free(&list);
    return refused;
}

/* The test of each kernel of a backend in a case. */
struct kernel_test {
    const struct backend *backend;
    /* Run it, and add verdicts; nonzero after err_set(). */
    int (*judge)(const struct run *c, struct question *q, void *data, struct verdicts *list);
    int (*left_out)(const struct impl *k, void *data); /* or NULL: none is */
    void *data;
    const char *how;        /* printed behind the kernel's name, ", once" */
    int (*taken)[N_PASSES]; /* cases passed, by kernel; or NULL */
};

/* A pass of a case is passed where at least one of its results was compared with the oracle's, and
 * nothing failed. */
static inline void count_taken(const struct verdicts *list, int passes[N_PASSES])
{
    int seen[N_PASSES] = {0};

    for (int i = 0; i < list->n; i++)
        if (strcmp(list->v[i].check, "parity") == 0)
            seen[strncmp(list->v[i].tensor, "d_", 2) == 0 ? BACKWARD : FORWARD] = 1;
    for (int p = 0; p < N_PASSES; p++)
        passes[p] += seen[p] && !verdicts_failed(list, 0);
}

/* Does ONLY_KERNEL, which check-faults.sh sets, name another? */
static inline int other_kernel(const struct impl *k)
{
    const char *only = getenv("ONLY_KERNEL");
    return only && strcmp(only, k->name) != 0;
}

/* One case, on all kernels that take it: oracle and yardstick are run once for them. */
static inline int test_kernels(const struct call *f, void *data)
{
    const struct kernel_test *a = data;
    const struct impl *kernel;
    struct question q = {.inputs = NULL};
    int no_question = 0;

    for (int k = 0; (kernel = op_kernel(f->op, a->backend, k)); k++) {
        const struct run c = {.call = call_here(f, a->backend, kernel)};
        struct verdicts list = {0};
        char what[100];

        if ((a->left_out && a->left_out(kernel, a->data)) || other_kernel(kernel) ||
            declined(&c.call))
            continue;
        if (!q.inputs)
            no_question = question_new(&q, &c.call);
        int e = no_question || a->judge(&c, &q, a->data, &list);
        snprintf(what, sizeof what, "%s %s%s", a->backend->name, kernel->name, a->how);
        report(f, &list, e, what);
        if (a->taken && !e)
            count_taken(&list, a->taken[k]);
        verdicts_free(&list);
    }
    question_free(&q);
    return 0;
}

/* Parity with the oracle, and the properties. */
static inline int judge_case(const struct run *c, struct question *q, void *data,
                             struct verdicts *list)
{
    struct tensors *got = NULL;
    struct bounds bounds;
    int e = judge_parity(c, q, &got, &bounds, NULL, list) ||
            check_properties(c, q->inputs, &bounds, list);
    (void)data;
    tensors_free(got);
    return e;
}

/* ---- backward adds to gradients ---- */

/* The gradients that are there in this case, and those that each kernel of the operation has been
 * judged in, as in call.accumulate. */
struct accumulated {
    const struct op *op;
    const struct backend *backend;
    struct arg_set there, *judged;
};

static inline struct arg_set *judged_of(const struct accumulated *a, const struct impl *k)
{
    int i = 0;
    while (op_kernel(a->op, a->backend, i) != k)
        i++;
    return &a->judged[i];
}

static inline int has_accumulated(const struct impl *k, void *data)
{
    const struct accumulated *a = data;
    const struct arg_set *judged = judged_of(a, k);
    int all = 1;
    for (int i = 0; i < a->op->n_args; i++)
        all &= !set_has(&a->there, i) || set_has(judged, i);
    return all;
}

static inline int judge_accumulate(const struct run *c, struct question *q, void *data,
                                   struct verdicts *list)
{
    const struct accumulated *a = data;
    for (int i = 0; i < a->op->n_args; i++)
        if (set_has(&a->there, i))
            set_add(judged_of(a, c->call.kernel), i);
    return judge_case(c, q, NULL, list);
}

static inline int accumulate_case(const struct call *f, void *data)
{
    struct accumulated *a = ((struct kernel_test *)data)->data;
    struct call c = *f;
    c.accumulate = op_gradients(f->op);
    a->there = set_none();
    for (int i = 0; i < f->op->n_args; i++)
        if (call_accumulates(&c, i))
            set_add(&a->there, i);
    return test_kernels(&c, data);
}

/* Every kernel with initial gradients: in the first of the contract's cases that it takes, and in
 * each one that has a gradient which was in none before. */
static inline void accumulate(const struct op *o, const struct backend *b, int n)
{
    struct arg_set judged[n + 1];
    struct accumulated a = {o, b, set_none(), judged};
    struct kernel_test each = {.backend = b,
                               .judge = judge_accumulate,
                               .left_out = has_accumulated,
                               .data = &a,
                               .how = ", accumulate"};

    memset(judged, 0, sizeof judged);
    if (op_has_gradients(o))
        for_cases(o, o->cases, accumulate_case, &each);
}

/* No test would judge a kernel that takes none of the contract's cases. */
static inline void report_taken(const struct op *o, const struct backend *b, int (*taken)[N_PASSES])
{
    const struct impl *kernel;
    const int both = op_passes(o) == N_PASSES;

    for (int k = 0; (kernel = op_kernel(o, b, k)); k++)
        ok(taken[k][FORWARD] && (taken[k][BACKWARD] || !both), "%s: %s %s passed %d cases %s",
           o->name, b->name, kernel->name, taken[k][both ? BACKWARD : FORWARD],
           both ? "forward and backward" : "forward");
}

static inline int neutral_case(const struct call *f, void *data)
{
    const struct on *on = data;
    const struct call c = call_here(f, on->backend, on->kernel);
    struct verdicts list = {0};
    if (declined(&c))
        return 0;
    int e = check_neutral(&c, 1, &list);
    report(f, &list, e, f->op->neutral->name);
    verdicts_free(&list);
    return 0;
}

/* Can a GPU backend run here?  If not: why none can. */
static inline int any_gpu(const char **why)
{
    int usable = 0;
    for (int i = 0; judged_backend(i); i++) {
        const char *missing = backend_unavailable(here(), judged_backend(i));
        usable += !missing;
        *why = missing ? missing : *why;
    }
    return usable > 0;
}

/* The same for a program of which nothing runs without one: it prints the plan that says so. */
static inline int any_gpu_or_skip_all(void)
{
    const char *why = NULL;
    const int usable = any_gpu(&why);

    if (!usable)
        printf("1..0 # SKIP 0 GPU checks ran: %s\n", why);
    return usable;
}

/* Is it the emulator, which uses the CPU? */
static inline int emulated(const struct backend *b)
{
    return strncmp(backend_device(here(), b), "emulated", strlen("emulated")) == 0;
}

/* Others may use the device of this backend meanwhile: they take time and memory.  `make check-gpu` runs the suites that
 * look at these one at a time. */
static inline int others_may_use(const struct backend *b)
{
    return b->machine->timing.record && !getenv("CHECK_GPU") && !emulated(b);
}

/* All tests of a backend's kernels for an operation. */
static inline void judge_op(const struct op *o, const struct backend *b)
{
    int n = 0;

    while (op_kernel(o, b, n))
        n++;
    if (!n)
        printf("# %s has no kernel on %s\n", o->name, b->name);
    int taken[n + 1][N_PASSES];
    memset(taken, 0, sizeof taken);
    struct kernel_test each = {.backend = b, .judge = judge_case, .how = "", .taken = taken};
    for_cases(o, o->cases, test_kernels, &each);
    if (!getenv("ONLY_KERNEL"))
        report_taken(o, b, taken);
    accumulate(o, b, n);
    for (int k = 0; k < n; k++) {
        struct on on = {b, op_kernel(o, b, k)};
        if (other_kernel(on.kernel))
            continue;
        if (b != &ref64)
            identities(o, b, on.kernel);
        if (o->neutral)
            for_cases(o, o->neutral->cases, neutral_case, &on);
    }
}

#endif
