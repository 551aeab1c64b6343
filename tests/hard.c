/* Rows with -inf, NaN, inf and ties, of which the answers are known, on every kernel of every
 * backend: what the contracts say of them.  A reference that is wrong in all precisions alike
 * shows here.
 *
 * hard [OPERATION...]: of these; default: all. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "tests/suite.h"

enum { N = 4 };
#define INF INFINITY
#define HALF_ROOT 0.70710678118654752440
#define LOG_2 0.69314718055994530942
#define ALL(x)                                                                                     \
    {                                                                                              \
        x, x, x, x                                                                                 \
    }

/* One row x, with the target, if it has one; a result of it, and what that must be.  The gradient
 * of the first output is 1, 2, 3, 4, that of others 0. */
static const struct known {
    const char *op, *params;
    double x[N];
    int target;
    const char *result;
    double want[N];
} known[] = {
    {"softmax", "columns=4", {0, -INF, 0, -INF}, 0, "y", {0.5, 0, 0.5, 0}},
    {"softmax", "columns=4", {0, -INF, 0, -INF}, 0, "d_x", {-0.5, 0, 0.5, 0}},
    {"softmax", "columns=4", {1e30, -1e30, 1e30, 0}, 0, "y", {0.5, 0, 0.5, 0}},
    {"softmax", "columns=4", {-0.0, 0, 0, 0}, 0, "y", ALL(0.25)},
    {"softmax", "columns=4", {0, NAN, 1, -INF}, 0, "y", ALL(NAN)},
    {"softmax", "columns=4", {0, NAN, 1, -INF}, 0, "d_x", ALL(NAN)},
    {"softmax", "columns=4", {0, INF, 1, -INF}, 0, "y", ALL(NAN)},
    {"softmax", "columns=4", ALL(-INF), 0, "y", ALL(NAN)},
    {"softmax", "columns=4", ALL(-INF), 0, "d_x", ALL(NAN)},
    {"entmax15", "columns=4", {1, 2, -INF, 4}, 0, "p", {0, 0, 0, 1}},
    {"entmax15", "columns=4", {1, 2, -INF, 4}, 0, "d_x", ALL(0)},
    {"entmax15", "columns=4", {0, -INF, 0, -INF}, 0, "p", {0.5, 0, 0.5, 0}},
    {"entmax15", "columns=4", {0, -INF, 0, -INF}, 0, "d_x", {-HALF_ROOT, 0, HALF_ROOT, 0}},
    {"entmax15", "columns=4", {1e30, -1e30, 1e30, 0}, 0, "p", {0.5, 0, 0.5, 0}},
    {"entmax15", "columns=4", {0, NAN, 1, -INF}, 0, "p", ALL(NAN)},
    {"entmax15", "columns=4", {0, NAN, 1, -INF}, 0, "d_x", ALL(NAN)},
    {"entmax15", "columns=4", {0, INF, 1, -INF}, 0, "p", ALL(NAN)},
    {"entmax15", "columns=4", ALL(-INF), 0, "p", ALL(NAN)},
    {"entmax15", "columns=4", ALL(-INF), 0, "d_x", ALL(NAN)},
    {"cross_entropy", "vocabulary=4", {0, -INF, 0, -INF}, 0, "row_loss", {LOG_2}},
    {"cross_entropy", "vocabulary=4", {0, -INF, 0, -INF}, 0, "d_logits", {-0.5, 0, 0.5, 0}},
    {"cross_entropy", "vocabulary=4", {0, -INF, 0, -INF}, 1, "row_loss", {INF}},
    {"cross_entropy", "vocabulary=4", {0, -INF, 0, -INF}, 1, "loss", {INF}},
    {"cross_entropy", "vocabulary=4", {0, -INF, 0, -INF}, 1, "lse", {LOG_2}},
    {"cross_entropy", "vocabulary=4", {0, -INF, 0, -INF}, 1, "d_logits", {0.5, -1, 0.5, 0}},
    {"cross_entropy", "vocabulary=4", ALL(1e4), 3, "row_loss", {2 * LOG_2}},
    {"cross_entropy", "vocabulary=4 label_smoothing=0.5", ALL(1e4), 3, "row_loss", {2 * LOG_2}},
    {"cross_entropy", "vocabulary=4", ALL(1e4), 3, "d_logits", {0.25, 0.25, 0.25, -0.75}},
    {"cross_entropy", "vocabulary=4", {0, NAN, INF, 0}, 0, "row_loss", {NAN}},
    {"cross_entropy", "vocabulary=4", {0, NAN, INF, 0}, 0, "lse", {NAN}},
    {"cross_entropy", "vocabulary=4", {0, NAN, INF, 0}, 0, "d_logits", ALL(NAN)},
    {"cross_entropy", "vocabulary=4", {0, INF, 0, 0}, 0, "row_loss", {NAN}},
    {"cross_entropy", "vocabulary=4", {0, INF, 0, 0}, 0, "lse", {INF}},
    {"cross_entropy", "vocabulary=4", ALL(-INF), 0, "row_loss", {NAN}},
    {"cross_entropy", "vocabulary=4", ALL(-INF), 0, "lse", {-INF}},
    {"cross_entropy", "vocabulary=4", ALL(-INF), 0, "d_logits", ALL(NAN)},
    {"cross_entropy", "vocabulary=4 ignore_index=2", {0, NAN, 1, 2}, 2, "loss", {0}},
    {"cross_entropy", "vocabulary=1", {3.75}, 0, "loss", {0}},
    {"cross_entropy", "vocabulary=1 label_smoothing=0.17", {-1e4}, 0, "row_loss", {0}},
    {"reduce", "length=4 kind=max", {1, 3, 3, 2}, 0, "d_x", {0, 1, 0, 0}},
    {"reduce", "length=4 kind=max", {1, NAN, 3, NAN}, 0, "y", {NAN}},
    {"reduce", "length=4 kind=max", {1, NAN, INF, NAN}, 0, "d_x", {0, 1, 0, 0}},
    {"reduce", "length=4 kind=max", ALL(-INF), 0, "y", {-INF}},
    {"reduce", "length=4 kind=max", ALL(-INF), 0, "d_x", {1, 0, 0, 0}},
    {"reduce", "length=4 kind=norm2", {0, -0.0, 0, 0}, 0, "d_x", ALL(0)},
    {"reduce", "length=4 kind=norm2", {0, NAN, 0, 0}, 0, "d_x", ALL(NAN)},
    {"scan", "length=4", {1, INF, -INF, 2}, 0, "y", {1, INF, NAN, NAN}},
    {"scan", "length=4 kind=exclusive", {1, INF, -INF, 2}, 0, "y", {0, 1, INF, NAN}},
};

static void give(const struct op *o, const struct frame *f, const struct known *k,
                 struct tensors *t)
{
    double slope = 1;
    for (int i = 0; i < o->n_args; i++) {
        int64_t n = op_count(o, f, i);
        for (int64_t j = 0; o->arg[i].flags & IN && j < n; j++)
            t->x[i][j] = o->arg[i].flags & WHOLE ? k->target : k->x[j];
        if (!(o->arg[i].flags & OUT) || !t->g[i])
            continue;
        for (int64_t j = 0; j < n; j++)
            t->g[i][j] = slope * (double)(j + 1);
        slope = 0;
    }
}

/* How far the result is from what it must be. */
static double off(const struct call *c, const struct known *k)
{
    const struct op *o = c->op;
    int grad = strncmp(k->result, "d_", 2) == 0, arg = op_arg(o, k->result + 2 * grad);
    struct tensors *t = tensors_new(o, c->sizes);
    double far = INFINITY;

    if (t) {
        give(o, c->sizes, k, t);
        tensors_round(t, o, c->sizes, c->backend);
        if (!run_op(c, t, NULL))
            far = distance(tensors_result(t, arg, grad), k->want, op_count(o, c->sizes, arg)).max;
    }
    tensors_free(t);
    return far;
}

static void on_backend(const struct backend *b, const struct known *k)
{
    const struct op *o = op_find(k->op);
    char text[MAX_TEXT];

    snprintf(text, sizeof text, "rows=1 %s", k->params);
    for (const struct impl *const *kernel = op_kernels(o, b); *kernel; kernel++) {
        struct frame f;
        struct call c = {.op = o, .backend = b, .kernel = *kernel, .sizes = &f};
        double bound = 16 * fmax(dtype_unit(b->type), (*kernel)->unit);
        int e = cases_one(o, text, &f);
        if (!e && (*kernel)->declines && (*kernel)->declines(&f))
            continue;
        double far = e ? INFINITY : off(&c, k);
        if (!ok(far <= bound, "%s %s: %s %s, x %g %g %g %g: %s", b->name, (*kernel)->name, o->name,
                k->params, k->x[0], k->x[1], k->x[2], k->x[3], k->result))
            printf("# %s: %s off by %.3g%s%s\n", b->name, k->result, far, e ? ": " : "",
                   e ? err_text() : "");
    }
}

int main(int argc, char **argv)
{
    if (!all_known(argc, argv))
        return 2;
    for (const struct backend *const *b = backends(); *b; b++)
        for (size_t i = 0; !(*b)->unavailable() && i < COUNT(known); i++)
            if (named(op_find(known[i].op), argc - 1, argv + 1))
                on_backend(*b, &known[i]);
    return done();
}
