/* The references themselves: each precision against the oracle, and every
 * property that holds whatever an operation computes.
 *
 * properties [OPERATION...]: the references of these; default: all. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "tests/suite.h"

/* ---- the yardsticks ---- */

/* The bound of parity is SLACK times the yardstick's own error, so parity cannot
 * judge a yardstick.  This can: the error of a result by rounding is as large as the change of
 * the oracle's result where every input is perturbed by one unit of the coarsest
 * type in use (the largest change of several perturbations), or as a unit of the largest result.
 * Where half of a float's digits cancel, as in the gradient of a key of one element, nothing is
 * judged.  In an operation that uses only the distance of its input from the maximum,
 * nothing may cancel: each result is compared with its own size. */

static const double CANCELLED = 0x1p-12;
enum { MOVES = 4 };

static double size_of(const double *x, int64_t n)
{
    double size = 0;
    for (int64_t i = 0; i < n; i++)
        size = isfinite(x[i]) ? fmax(size, fabs(x[i])) : size;
    return size;
}

/* Has it an input that is BELOW? */
static int has_below(const struct op *o)
{
    int below = 0;
    for (int i = 0; i < o->n_args; i++)
        below |= o->arg[i].flags & BELOW;
    return below;
}

/* Of a key of one element, whose k^ is its sign, the gradient has no digit of float's: 1 - |k^| is lost. */
static int is_key_of_one(const struct call *f, int arg, int grad)
{
    const char *name = f->op->arg[arg].name;
    char size[32] = "";
    int place;

    if (!grad || !(strcmp(name, "k") == 0 || strncmp(name, "W_k", 3) == 0) ||
        !op_param(f->op, "block_size", &place))
        return 0;
    return strcmp(op_value(f, place, size), "1") == 0;
}

static int compare_yardstick(const struct call *f, const struct tensors *yard,
                             const struct tensors *oracle, struct tensors *const perturbed[MOVES],
                             struct verdicts *list)
{
    const struct op *o = f->op;

    for (int grad = 0; grad < 2; grad++) {
        double largest = 0;
        for (int i = 0; i < o->n_args; i++)
            if (op_results(f, i, grad) && !op_is_bytes(f, i))
                largest = fmax(largest, size_of(tensors_result(oracle, i, grad), op_count(f, i)));
        for (int i = 0; i < o->n_args; i++) {
            if (!op_results(f, i, grad))
                continue;
            const struct tensor_pair pair = tensor_pair(f, i, grad, yard, oracle);
            int64_t n = op_count(f, i);
            if (op_is_bytes(f, i)) {
                if (check_tensor("yardstick", &pair, 0, list))
                    return -1;
                continue;
            }
            const double *want = tensors_result(oracle, i, grad);
            double own = size_of(want, n), size = has_below(o) ? own : largest;
            if (own < CANCELLED * size || is_key_of_one(f, i, grad))
                continue;
            double moved = 0;
            for (int m = 0; m < MOVES; m++)
                moved = fmax(moved, distance(tensors_result(perturbed[m], i, grad), want, n).max);
            const enum dtype type = call_type(f, i, grad);
            double unit = own > 0 ? types[type].unit * size / own : 0;
            if (check_tensor("yardstick", &pair, 2 * SLACK * (moved + unit), list))
                return -1;
        }
    }
    return 0;
}

/* Results of inputs that are perturbed in the way `which`; in every second way what forward leaves to
 * backward is, too. */
static struct tensors *run_perturbed(const struct run *c, const struct tensors *inputs, double unit,
                                     int which)
{
    struct tensors *moved = tensors_copy(&c->call, inputs);
    struct run run = *c;

    run.between = which % 2 ? unit : 0;
    run.between_key = which;
    if (moved)
        tensors_perturb(moved, &c->call, unit, which);
    struct tensors *t = moved ? run_copy(&run, moved, NULL) : NULL;
    tensors_free(moved);
    return t;
}

static int yardstick_case(const struct call *f, void *data)
{
    const struct op *o = f->op;
    const struct on *on = data;
    const struct run c = {.call = call_on(f, &ref64, op_kernel(o, &ref64, 0), NULL)};
    const struct run y = {.call = call_here(f, on->backend, on->kernel)};
    struct tensors *inputs = tensors_new(f), *oracle = NULL, *perturbed[MOVES] = {NULL};
    struct tensors *yard = NULL;
    struct verdicts list = {0};
    int e = !inputs;

    if (!e) {
        tensors_draw(inputs, f, 1, 1);
        tensors_round(inputs, &y.call);
        e = !(oracle = run_copy(&c, inputs, NULL));
    }
    for (int m = 0; !e && m < MOVES; m++)
        e = !(perturbed[m] = run_perturbed(&c, inputs, 2 * coarsest_unit(&y.call), m));
    e = e || !(yard = run_copy(&y, inputs, NULL));
    e = e || compare_yardstick(&y.call, yard, oracle, perturbed, &list);
    report(f, &list, e, "yardstick");
    verdicts_free(&list);
    tensors_free(inputs);
    tensors_free(oracle);
    for (int m = 0; m < MOVES; m++)
        tensors_free(perturbed[m]);
    tensors_free(yard);
    return 0;
}

static void judge_yardstick(const struct op *o, const struct backend *b)
{
    struct on on = {b, op_kernel(o, b, 0)};
    for_cases(o, o->cases, yardstick_case, &on);
}

int main(int argc, char **argv)
{
    static const struct backend *const each[] = {&ref64, &ref32, &ref_bf16};

    if (!all_known(argc, argv))
        return 2;
    for (size_t i = 0; i < COUNT(each); i++)
        for (int o = 0; o < N_OPS; o++)
            if (named(ops[o], argc - 1, argv + 1)) {
                judge_op(ops[o], each[i]);
                if (each[i] != &ref64)
                    judge_yardstick(ops[o], each[i]);
            }
    return done();
}
