/* The oracle's results against the definition of each operation in NumPy
 * (tests/definitions.py): all outputs, final states and saved tensors of all
 * cases of the contracts, and of all shapes but a recurrence's, whose roundings
 * may grow with each step; and the gradients, where a definition has them.  Differences of a forward pass agree with the
 * backward pass even if both are consistently wrong; this does not.
 *
 * definitions [OPERATION...]: of these; default: of all.
 *
 * The cases go through a pipe to tests/definitions_judge.py, which prints the
 * TAP.  A line of JSON first, the names of all operations; then for each
 * operation a line with its parameters, and for each case one with their
 * values and its tensors, after which come the doubles of these, in that
 * order; and an empty object at the end.
 *
 * $PYTHON and $srcdir come from the Makefile. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/suite.h"

/* Before an element of a list or an object: a comma, but nothing before the first. */
static const char *comma(int *n)
{
    return (*n)++ ? ", " : "";
}

/* Its parameters: the choices of each, or null for a number; and which show in no result in double. */
static void print_operation(FILE *to, const struct op *o)
{
    int n = 0;

    fprintf(to, "{\"operation\": \"%s\", \"parameters\": {", o->name);
    for (int i = 0; i < o->n_params; i++) {
        const struct param *p = &o->param[i];
        int c = 0;
        fprintf(to, "%s\"%s\": %s", comma(&n), p->name, p->choices ? "[" : "null");
        for (const char *const *name = p->choices; name && *name; name++)
            fprintf(to, "%s\"%s\"", comma(&c), *name);
        fputs(p->choices ? "]" : "", to);
    }
    fputs("}, \"aside\": [", to);
    n = 0;
    for (int i = 0; i < o->n_params; i++)
        if (o->param[i].aside)
            fprintf(to, "%s\"%s\"", comma(&n), o->param[i].name);
    fputs("]}\n", to);
}

/* The parameters that apply, with their values. */
static void print_parameters(FILE *to, const struct op *o, const struct call *f)
{
    int n = 0;

    fputs("\"parameters\": {", to);
    for (int i = 0; i < o->n_params; i++) {
        char buffer[32];
        const char *value = op_value(f, i, buffer), *quote = o->param[i].choices ? "\"" : "";
        if (*value)
            fprintf(to, "%s\"%s\": %s%s%s", comma(&n), o->param[i].name, quote, value, quote);
    }
    fputs("}", to);
}

/* What a tensor is to the judge. */
static const char *kind_of(const struct arg *a, int grad)
{
    if (grad)
        return a->flags & OUT ? "upstream" : "gradient";
    return a->flags & IN ? "input" : "result";
}

static int has(const struct call *f, int arg, int grad)
{
    const struct op *o = f->op;
    return op_has(f, arg) && (!grad || (op_passes(o) == N_PASSES && o->arg[arg].flags & DIFF));
}

/* The tensors of this case and their gradients: name, what it is, and the names and lengths of its
 * axes. */
static void print_tensors(FILE *to, const struct op *o, const struct call *f)
{
    int n = 0;

    fputs("\"tensors\": [", to);
    for (int i = 0; i < o->n_args; i++)
        for (int grad = 0; grad < 2; grad++) {
            int axes = 0;
            if (!has(f, i, grad))
                continue;
            fprintf(to, "%s[\"%s\", \"%s\", [", comma(&n), o->arg[i].name,
                    kind_of(&o->arg[i], grad));
            for (const char *c = op_shape(f, i); *c; c++)
                fprintf(to, "%s[\"%s\", %" PRId64 "]", comma(&axes), op_axis(o, *c), DIM(f, *c));
            fputs("]]", to);
        }
    fputs("]", to);
}

/* All as doubles. */
static void print_values(FILE *to, const void *values, int bytes, int64_t n)
{
    for (int64_t i = 0; bytes && i < n; i++) {
        const double x = ((const unsigned char *)values)[i];
        fwrite(&x, sizeof x, 1, to);
    }
    if (!bytes)
        fwrite(values, sizeof(double), n, to);
}

static void print_case(FILE *to, const struct op *o, const struct call *f, const struct tensors *t)
{
    char text[MAX_TEXT];

    op_text(f, text);
    fprintf(to, "{\"case\": \"%s\", ", text);
    print_parameters(to, o, f);
    fputs(", ", to);
    print_tensors(to, o, f);
    fputs("}\n", to);
    for (int i = 0; i < o->n_args; i++)
        for (int grad = 0; grad < 2; grad++)
            if (has(f, i, grad))
                print_values(to, tensors_values(t, i, grad), op_is_bytes(f, i), op_count(f, i));
}

static int run_case(const struct call *f, void *data)
{
    const struct op *o = f->op;
    struct tensors *t = tensors_new(f);
    struct run c = {.call = call_on(f, &ref64, op_kernel(o, &ref64, 0), NULL)};
    int e = !t;

    if (!e) {
        tensors_draw(t, f, 1, 1);
        e = run_op(&c, t, NULL);
    }
    if (!e)
        print_case(data, o, f, t);
    tensors_free(t);
    return e;
}

/* The operations that are named; nonzero after err_set(). */
static int run_all(FILE *to, int argc, char *const *argv)
{
    int e = 0, n = 0;

    fputs("{\"operations\": [", to);
    for (int i = 0; i < N_OPS; i++)
        fprintf(to, "%s\"%s\"", comma(&n), ops[i]->name);
    fputs("]}\n", to);
    for (int i = 0; !e && i < N_OPS; i++) {
        if (!named(ops[i], argc - 1, argv + 1))
            continue;
        print_operation(to, ops[i]);
        e = cases_each(ops[i], ops[i]->cases, run_case, to);
        if (!e && ops[i]->shapes && !ops[i]->chain)
            e = cases_each(ops[i], ops[i]->shapes, run_case, to);
    }
    return e;
}

int main(int argc, char **argv)
{
    const char *python = getenv("PYTHON");

    if (!all_known(argc, argv))
        return 2;
    if (python && !*python) {
        puts("1..0 # SKIP no Python with numpy and h5py");
        return 0;
    }
    FILE *judge =
        popen("exec \"${PYTHON:-python3}\" -B \"${srcdir:-.}/tests/definitions_judge.py\"", "w");
    int e = !judge || run_all(judge, argc, argv);
    if (e)
        fprintf(stderr, "%s: %s\n", argv[0], judge ? err_text() : "cannot start the judge");
    else
        fputs("{}\n", judge);
    /* The judge prints its plan last: without it the suite has failed. */
    return judge && pclose(judge) == 0 && !e ? EXIT_SUCCESS : EXIT_FAILURE;
}
