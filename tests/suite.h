/* suite.h - the TAP programs' loops over the table: one line of TAP for one
 * case of one operation, the failed verdicts on comment lines after it. */
#ifndef SUITE_H
#define SUITE_H

#include "common/cases.h"
#include "common/check.h"
#include "common/err.h"
#include "tests/tap.h"

static inline void print_verdict(const struct verdict *v)
{
    printf("# %s %s: %s off by %.3g (norm %.3g) at %s, bound %.3g", v->backend, v->check, v->tensor,
           v->error, v->norm, v->worst[0] ? v->worst : "-", v->bound);
    if (v->first_bad >= 0)
        printf(", first at step %lld", (long long)v->first_bad);
    puts("");
}

/* One line: passed if nothing failed, and if there was anything to fail. */
static inline void report(const struct op *o, const struct frame *f, const struct verdicts *list,
                          int error, const char *what)
{
    char text[MAX_TEXT];
    op_text(o, f, text);
    if (!ok(!error && list->n > 0 && !verdicts_failed(list, 0), "%s: %s %s", what, o->name, text)) {
        if (error)
            printf("# %s\n", err_text());
        for (int i = 0; i < list->n; i++)
            if (!list->v[i].pass)
                print_verdict(&list->v[i]);
    }
}

static inline void for_cases(const struct op *o, const char *cases,
                             int (*each)(const struct op *, const struct frame *, void *),
                             void *data)
{
    if (cases_each(o, cases, each, data))
        ok(0, "%s: %s", o->name, err_text());
}

static inline void identities(const struct op *o, const struct backend *b, const struct impl *k)
{
    for (int i = 0; i < o->n_identities; i++) {
        struct verdicts list = {0};
        int e = check_identity(o, &o->identity[i], b, k, 1, &list);
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

struct on {
    const struct backend *backend;
    const struct impl *kernel;
};

/* On one kernel: parity with the oracle, and the properties. */
static inline int judge_case(const struct op *o, const struct frame *f, void *data)
{
    const struct on *on = data;
    const struct impl *k = on->kernel;
    const char *why = k->declines ? k->declines(f) : NULL;
    char text[MAX_TEXT];
    struct tensors *t = NULL, *oracle = NULL, *got = NULL;
    struct bounds bounds;
    struct verdicts list = {0};
    struct call c = {.op = o, .backend = &ref64, .kernel = op_kernels(o, &ref64)[0], .sizes = f};
    int e;

    op_text(o, f, text);
    if (why) {
        printf("# %s %s declines %s: %s\n", on->backend->name, k->name, text, why);
        return 0;
    }
    e = !(t = tensors_new(o, f));
    if (!e) {
        tensors_draw(t, o, f, 1, 1);
        tensors_round(t, o, f, on->backend);
        oracle = tensors_copy(o, f, t);
        got = tensors_copy(o, f, t);
        e = !oracle || !got || run_op(&c, oracle, NULL) ||
            bounds_measure(&bounds, o, f, on->backend, k, t);
    }
    c.backend = on->backend;
    c.kernel = k;
    e = e || run_op(&c, got, NULL) ||
        check_parity(o, f, on->backend, k, oracle, got, &bounds, &list) ||
        check_properties(&c, t, &bounds, &list);
    report(o, f, &list, e, on->backend->name);
    verdicts_free(&list);
    tensors_free(t);
    tensors_free(oracle);
    tensors_free(got);
    return 0;
}

static inline int neutral_case(const struct op *o, const struct frame *f, void *data)
{
    const struct on *on = data;
    struct verdicts list = {0};
    int e = check_neutral(o, f, on->backend, on->kernel, 1, &list);
    report(o, f, &list, e, o->neutral->name);
    verdicts_free(&list);
    return 0;
}

/* Everything that can be asked of a backend's kernels for all operations. */
static inline void judge_backend(const struct backend *b)
{
    for (int i = 0; i < N_OPS; i++) {
        const struct impl *const *k = op_kernels(ops[i], b);
        if (!*k)
            printf("# %s has no kernel on %s\n", ops[i]->name, b->name);
        for (; *k; k++) {
            struct on on = {b, *k};
            for_cases(ops[i], ops[i]->cases, judge_case, &on);
            if (b != &ref64)
                identities(ops[i], b, *k);
            if (ops[i]->neutral)
                for_cases(ops[i], ops[i]->neutral->cases, neutral_case, &on);
        }
    }
}

#endif
