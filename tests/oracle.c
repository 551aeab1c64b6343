/* Every gradient of every reference, in all cases of its contract, against
 * central differences of the forward pass, in double; the same gradients added
 * to initial ones; and the identities of every contract.
 *
 * oracle [OPERATION...]: of these; default: of all. */
#include "config.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/suite.h"

enum { EXHAUSTIVE = 96, DIRECTIONS = 2 };

/* A gradient that is 0 throughout agrees with differences when the input is
 * not read at all. */
static int influence(const struct op *o, const struct call *f, const struct tensors *t,
                     const struct run *c, struct verdicts *list)
{
    for (int i = 0; i < o->n_args; i++) {
        int64_t n = op_count(f, i), zeros = 0;
        if (!op_results(f, i, 1))
            continue;
        for (int64_t j = 0; j < n; j++)
            zeros += t->g[i][j] == 0;
        struct verdict *v = verdict_add(list, "influence", o->arg[i].name, &ref64, c->call.kernel);
        if (!v)
            return -1;
        v->pass = zeros < n;
        v->error = v->norm = v->pass ? 0 : INFINITY;
    }
    return 0;
}

static int differences(const struct call *f, void *data)
{
    const struct op *o = f->op;
    struct tensors *t = tensors_new(f);
    struct run c = {.call = call_on(f, &ref64, op_kernel(o, &ref64, 0), NULL)};
    struct verdicts list = {0};
    int e = !t;

    (void)data;
    if (!e) {
        tensors_draw(t, f, 1, 1);
        e = run_op(&c, t, NULL) || influence(o, f, t, &c, &list) ||
            check_differences(f, t, EXHAUSTIVE, DIRECTIONS, NULL, &list);
    }
    report(f, &list, e, "differences");
    verdicts_free(&list);
    tensors_free(t);
    return 0;
}

/* Every gradient is the sum of the initial one and that of a run which overwrites it, to the bit,
 * also where many runs were timed. */
static int compare_sums(const struct run *c, const struct tensors *t, const struct tensors *alone,
                        struct verdicts *list)
{
    int e = 0;

    for (int i = 0; !e && i < c->call.op->n_args; i++) {
        const int64_t n = op_results(&c->call, i, 1) ? op_count(&c->call, i) : 0;
        double *sum = n ? malloc(n * sizeof *sum) : NULL;
        if (!n)
            continue;
        for (int64_t j = 0; sum && j < n; j++)
            sum[j] = t->g0[i][j] + alone->g[i][j];
        const struct tensor_pair pair = {&c->call, i, 1, t->g[i], sum};
        e = sum ? check_tensor("accumulate", &pair, 0, list) : err_set("no memory for sums");
        free(sum);
    }
    return e;
}

static int sums(const struct call *f, void *data)
{
    struct run c = {.call = call_on(f, &ref64, op_kernel(f->op, &ref64, 0), NULL)}, adds = c;
    struct verdicts list = {0};

    (void)data;
    adds.call.accumulate = op_gradients(f->op);
    adds.repeats = 2;
    struct tensors *t = tensors_new(&adds.call), *alone = NULL;
    int e = !t;
    if (!e) {
        tensors_draw(t, &adds.call, 1, 1);
        e = !(alone = run_copy(&c, t, NULL)) || run_op(&adds, t, NULL) ||
            compare_sums(&adds, t, alone, &list);
    }
    report(f, &list, e, "accumulate");
    verdicts_free(&list);
    tensors_free(t);
    tensors_free(alone);
    return 0;
}

int main(int argc, char **argv)
{
    if (!all_known(argc, argv))
        return 2;
    omp_set_num_threads(1); /* thousands of runs, each too small to be shared */
    for (int i = 0; i < N_OPS; i++)
        if (named(ops[i], argc - 1, argv + 1) && op_passes(ops[i]) == N_PASSES) {
            for_cases(ops[i], ops[i]->cases, differences, NULL);
            for_cases(ops[i], ops[i]->cases, sums, NULL);
        }
    for (int i = 0; i < N_OPS; i++)
        if (named(ops[i], argc - 1, argv + 1))
            identities(ops[i], &ref64, op_kernel(ops[i], &ref64, 0));
    return done();
}
