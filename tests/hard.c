/* Rows with -inf, NaN, inf and ties, whose results the contracts state, on every kernel of every
 * backend.  A reference that is wrong in the same way in all precisions fails here.
 *
 * hard [OPERATION...]: of these; default: all. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "tests/suite.h"

static void give(const struct op *o, const struct call *f, const struct known *k, struct tensors *t)
{
    double slope = 1;
    for (int i = 0; i < o->n_args; i++) {
        int64_t n = op_count(f, i);
        for (int64_t j = 0; o->arg[i].flags & IN && j < n; j++)
            t->x[i][j] = o->arg[i].flags & WHOLE ? k->target : k->x[j];
        if (!(o->arg[i].flags & OUT) || !t->g[i])
            continue;
        for (int64_t j = 0; j < n; j++)
            t->g[i][j] = slope * (double)(j + 1);
        slope = 0;
    }
}

/* The distance of the result from the one that the contract states. */
static double off(const struct run *c, const struct known *k)
{
    const struct op *o = c->call.op;
    int grad = strncmp(k->result, "d_", 2) == 0, arg = op_arg(o, k->result + 2 * grad);
    struct tensors *t = tensors_new(&c->call);
    double far = INFINITY;

    if (t) {
        give(o, &c->call, k, t);
        tensors_round(t, &c->call);
        if (!run_op(c, t, NULL))
            far = distance(tensors_result(t, arg, grad), k->want, op_count(&c->call, arg)).max;
    }
    tensors_free(t);
    return far;
}

static void on_backend(const struct op *o, const struct backend *b, const struct known *k)
{
    const struct impl *kernel;
    char text[MAX_TEXT];

    snprintf(text, sizeof text, "%s %s", op_param(o, "rows", NULL) ? "rows=1" : "", k->settings);
    for (int i = 0; (kernel = op_kernel(o, b, i)); i++) {
        struct call f;
        int e = cases_one(o, text, &f);
        struct run c = {.call = call_here(&f, b, kernel)};
        if (!e && impl_declines(&c.call))
            continue;
        double bound = 16 * fmax(types[b->type].unit, e ? 0 : impl_declares(&c.call)->unit);
        double far = e ? INFINITY : off(&c, k);
        if (!ok(far <= bound, "%s %s: %s %s, x %g %g %g %g: %s", b->name, kernel->name, o->name,
                k->settings, k->x[0], k->x[1], k->x[2], k->x[3], k->result))
            printf("# %s: %s off by %.3g%s%s\n", b->name, k->result, far, e ? ": " : "",
                   e ? err_text() : "");
    }
}

int main(int argc, char **argv)
{
    if (!all_known(argc, argv))
        return 2;
    for (const struct backend *const *b = backends(); *b; b++)
        for (int i = 0; !backend_unavailable(here(), *b) && i < N_OPS; i++)
            for (const struct known *k = ops[i]->known; k && k->settings; k++)
                if (named(ops[i], argc - 1, argv + 1))
                    on_backend(ops[i], *b, k);
    return done();
}
