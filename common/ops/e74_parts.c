/* The calls that e74 is made of (e74_parts.h). */
#include "common/call/machine.h"
#include "common/ops/e74.h"
#include "common/ops/e74_parts.h"
#include "common/ops/linear.h"

static void is(struct layer_part *to, int arg, int layer_arg)
{
    struct within *w = &to->of[arg];
    w->arg[w->n++] = layer_arg;
}

/* Its tensors have the layer's names; all of its results are its own. */
static void cell(const struct call *f, struct layer_part *to)
{
    struct call *c = &to->call;

    *c = f->kernel && f->kernel->link ? f->kernel->link(f) : e74_cell_call(f, NULL, NULL);
    *c = call_on(c, f->backend, c->kernel, f->context);
    if (!c->kernel)
        c->kernel = impl_choose(c, NULL).kernel;
    to->makes = 1;
    for (int i = 0; i < c->op->n_args; i++) {
        const unsigned flags = c->op->arg[i].flags;
        if (!op_has(c, i))
            continue;
        is(to, i,
           i == PLACE(e74_cell, z) && e74_has_gate(f) ? (int)PLACE(e74, gate)
                                                      : op_arg(f->op, c->op->arg[i].name));
        if (!(flags & IN))
            results_add(&to->own, i, 0);
        else if (flags & DIFF)
            results_add(&to->own, i, 1);
    }
}

/* y = x W^T for `n` projections. */
static struct call product(const struct call *f, int n, int bias)
{
    struct call c;

    op_defaults(&op_linear, &c);
    DIM(&c, 'M') = DIM(f, 'T') * DIM(f, 'B');
    DIM(&c, 'C') = DIM(f, 'D');
    DIM(&c, 'D') = n * DIM(f, 'P');
    c.choice[LINEAR_BIAS] = bias;
    c = call_on(&c, f->backend, NULL, f->context);
    c.kernel = impl_choose(&c, NULL).kernel;
    return c;
}

/* The places of W and of what it makes, and how many there are in this call. */
static int projections(const struct call *f, int W[4], int p[4])
{
    const int all[4][2] = {{PLACE(e74, W_k), PLACE(e74, k)},
                           {PLACE(e74, W_v), PLACE(e74, v)},
                           {PLACE(e74, W_q), PLACE(e74, q)},
                           {PLACE(e74, W_z), PLACE(e74, z)}};
    int n = 0;

    for (int i = 0; i < 4; i++)
        if (op_has(f, all[i][0])) {
            W[n] = all[i][0];
            p[n++] = all[i][1];
        }
    return n;
}

/* The product of one projection: of z before its gate, whose gradient the layer keeps to itself, forward alone. */
static void one(const struct call *f, struct layer_part *to, int W, int p)
{
    const int is_z = W == PLACE(e74, W_z), backs = !(is_z && e74_has_gate(f));

    to->call = product(f, 1, is_z);
    is(to, PLACE(linear, x), PLACE(e74, x));
    is(to, PLACE(linear, W), W);
    is(to, PLACE(linear, y), p);
    results_add(&to->own, PLACE(linear, y), 0);
    if (backs)
        results_add(&to->own, PLACE(linear, W), 1);
    if (is_z)
        is(to, PLACE(linear, b), PLACE(e74, b_z));
    if (is_z && backs)
        results_add(&to->own, PLACE(linear, b), 1);
}

/* That of all. */
static void all(const struct call *f, struct layer_part *to, const int *W, const int *p, int n)
{
    to->call = product(f, n, 0);
    is(to, PLACE(linear, x), PLACE(e74, x));
    for (int k = 0; k < n; k++) {
        is(to, PLACE(linear, W), W[k]);
        is(to, PLACE(linear, y), p[k]);
    }
    set_add(&to->beside, PLACE(linear, y));
    results_add(&to->own, PLACE(linear, x), 1);
}

int e74_part(const struct call *f, int i, struct layer_part *to)
{
    int W[4], p[4];
    const int n = projections(f, W, p), last = e74_has_gate(f) ? n : n + 1;

    *to = (struct layer_part){.makes = 0};
    if (i > last)
        return 0;
    if (!i)
        cell(f, to);
    else if (i <= n)
        one(f, to, W[i - 1], p[i - 1]);
    else
        all(f, to, W, p, n);
    return 1;
}
