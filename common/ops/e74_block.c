/* The chain of e74_block (e74_block.h). */
#include "config.h"

#include <string.h>

#include "common/call/contract.h"
#include "common/call/machine.h"
#include "common/ops/e74_block.h"
#include "common/ops/linear.h"
#include "common/ops/norm.h"

/* The workspace: forward holds the second projection in it, backward the gradients of `read`, of
 * `normed` and of x by the norm; a link's own workspace follows. */
struct workspace {
    void *projected, *dread, *dnormed, *dx, *work;
    size_t bytes; /* before `work` */
};

static struct workspace workspace(const struct call *f, enum pass p)
{
    const size_t rows = DIM(f, 'T') * DIM(f, 'B') * types[f->backend->type].bytes;
    const size_t x = rows * DIM(f, 'D'), read = rows * DIM(f, 'P');
    struct work_arena a = {f->work, 0};
    struct workspace w = {NULL};

    if (p == FORWARD) {
        w.projected = work_take(&a, x);
    } else {
        w.dread = work_take(&a, read);
        w.dnormed = work_take(&a, x);
        w.dx = work_take(&a, x);
    }
    w.work = work_rest(&a);
    w.bytes = a.bytes;
    return w;
}

/* ---- the calls of the links ---- */

static void no_sizes(struct call *c)
{
    memset(c->dim, 0, sizeof c->dim);
    memset(c->choice, 0, sizeof c->choice);
    memset(c->real, 0, sizeof c->real);
}

static struct call norm_of(const struct call *f, const struct workspace *w)
{
    const struct e74_block *a = ARGS(f, e74_block), *g = GRADS(f, e74_block);
    const struct rmsnorm args = {a->x, a->w_norm, a->normed, a->rstd};
    const struct rmsnorm grads = {w->dx, g->w_norm, w->dnormed, NULL};
    struct call c = *f;

    no_sizes(&c);
    DIM(&c, 'R') = DIM(f, 'T') * DIM(f, 'B');
    DIM(&c, 'N') = DIM(f, 'D');
    c.real[NORM_EPS] = f->real[E74_EPS];
    call_as(&c, &op_rmsnorm, &args, &grads, w->work);
    return c;
}

static struct call layer_of(const struct call *f, const struct workspace *w)
{
    const struct e74_block *a = ARGS(f, e74_block), *g = GRADS(f, e74_block);
    // clang-format off
    const struct e74 args = {
        a->normed, a->W_k, a->W_v, a->W_q, a->W_z, a->b_z, a->S0, a->U0, a->V0, a->W_r,
        a->read, a->S_T, a->U_T, a->k, a->v, a->q, a->z, a->gate, a->y, a->checkpoints};
    const struct e74 grads = {
        w->dnormed, g->W_k, g->W_v, g->W_q, g->W_z, g->b_z, g->S0, g->U0, g->V0, g->W_r,
        w->dread, g->S_T, g->U_T, NULL, NULL, NULL, NULL, NULL, NULL, NULL};
    // clang-format on
    struct call c = *f;

    call_as(&c, &op_e74, &args, &grads, w->work);
    return c;
}

static struct call linear_of(const struct call *f, const struct workspace *w)
{
    const struct e74_block *a = ARGS(f, e74_block), *g = GRADS(f, e74_block);
    const struct linear args = {.x = a->read, .W = a->W_o, .y = w->projected};
    const struct linear grads = {.x = w->dread, .W = g->W_o, .y = g->out};
    struct call c = *f;

    no_sizes(&c);
    DIM(&c, 'M') = DIM(f, 'T') * DIM(f, 'B');
    DIM(&c, 'C') = DIM(f, 'P');
    DIM(&c, 'D') = DIM(f, 'D');
    call_as(&c, &op_linear, &args, &grads, w->work);
    return c;
}

/* All of them, in the order of forward, each of the first kernel that accepts it, or none. */
enum { LINKS = 3 };
static void links_of(const struct call *f, const struct workspace *w, struct call c[LINKS])
{
    c[0] = norm_of(f, w);
    c[1] = layer_of(f, w);
    c[2] = linear_of(f, w);
    for (int i = 0; i < LINKS; i++)
        c[i].kernel = impl_choose(&c[i], NULL).kernel;
}

/* ---- the chain ---- */

/* Elements of x. */
OF_CALL(int64_t, count, DIM(f, 'T') * DIM(f, 'B') * DIM(f, 'D'))

int e74_block_forward(const struct call *f)
{
    const struct e74_block *a = ARGS(f, e74_block);
    const struct workspace w = workspace(f, FORWARD);
    struct call c[LINKS];
    int e = 0;

    links_of(f, &w, c);
    for (int i = 0; !e && i < LINKS; i++)
        e = call_pass(&c[i], FORWARD);
    return e ? e : f->backend->machine->memory.add(f, 0, a->out, a->x, w.projected, count(f));
}

int e74_block_backward(const struct call *f)
{
    const struct e74_block *g = GRADS(f, e74_block);
    const struct workspace w = workspace(f, BACKWARD);
    struct call c[LINKS];
    int e = 0;

    links_of(f, &w, c);
    for (int i = LINKS - 1; !e && i >= 0; i--)
        e = call_pass(&c[i], BACKWARD);
    return e ? e : f->backend->machine->memory.add(f, 0, g->x, g->out, w.dx, count(f));
}

size_t e74_block_work(const struct call *f, enum pass p)
{
    struct call unplaced = *f, c[LINKS];
    unplaced.work = NULL;
    const struct workspace w = workspace(&unplaced, p);
    size_t max = 0;

    links_of(&unplaced, &w, c);
    for (int i = 0; i < LINKS; i++) {
        const size_t bytes = op_work(&c[i], p);
        max = bytes > max ? bytes : max;
    }
    return w.bytes + max;
}

const char *e74_block_declines(const struct call *f)
{
    const struct workspace w = {.work = NULL};
    struct call c[LINKS];
    const char *why = NULL;

    links_of(f, &w, c);
    for (int i = 0; !why && i < LINKS; i++)
        why = c[i].kernel ? NULL : impl_choose(&c[i], NULL).why;
    return why;
}

struct call e74_block_link(const struct call *f)
{
    const struct workspace w = {.work = NULL};
    struct call c = layer_of(f, &w);

    c.kernel = impl_choose(&c, NULL).kernel;
    return c;
}
