/* e74_block as a chain: the calls of rmsnorm, e74 and linear within the block's own, the same for
 * every backend, which passes its lists of their kernels and its addition. */
#ifndef E74_BLOCK_H
#define E74_BLOCK_H

#include "common/ops/e74.h"
#include "common/ops/linear.h"
#include "common/ops/norm.h"

struct e74_block_with {
    const struct impl *const *norm, *const *layer, *const *linear; /* best first */
    /* to = a + b, of n elements in the storage type, `size` bytes each */
    int (*add)(void *to, const void *a, const void *b, int64_t n);
    size_t size;
};

/* The workspace: forward holds the second projection in it, backward the gradients of `read`, of
 * `normed` and of x by the norm; a link's own workspace follows. */
struct e74_block_workspace {
    char *projected, *dread, *dnormed, *dx, *work;
};

static inline size_t e74_block_aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static inline struct e74_block_workspace e74_block_workspace(const struct frame *f, enum pass p,
                                                             const struct e74_block_with *with)
{
    int64_t rows = DIM(f, 'T') * DIM(f, 'B');
    size_t x = e74_block_aligned(rows * DIM(f, 'D') * with->size);
    size_t read = e74_block_aligned(rows * DIM(f, 'P') * with->size);
    struct e74_block_workspace w = {(char *)f->work, NULL, NULL, NULL, NULL};

    if (p == FORWARD) {
        w.work = w.projected + x;
        return w;
    }
    w.dread = w.projected;
    w.dnormed = w.dread + read;
    w.dx = w.dnormed + x;
    w.work = w.dx + x;
    return w;
}

/* ---- the calls of the links ---- */

static inline struct frame e74_block_norm(const struct frame *f,
                                          const struct e74_block_workspace *w)
{
    const struct e74_block *a = ARGS(f, e74_block), *g = GRADS(f, e74_block);
    struct rmsnorm na = {a->x, a->w_norm, a->normed, a->rstd};
    struct rmsnorm ng = {w->dx, g->w_norm, w->dnormed, NULL};
    struct frame c;

    memset(&c, 0, sizeof c);
    DIM(&c, 'R') = DIM(f, 'T') * DIM(f, 'B');
    DIM(&c, 'N') = DIM(f, 'D');
    c.real[NORM_EPS] = f->real[E74_EPS];
    e74_give(&c, &na, &ng, sizeof na, w->work);
    return c;
}

static inline struct frame e74_block_layer(const struct frame *f,
                                           const struct e74_block_workspace *w)
{
    const struct e74_block *a = ARGS(f, e74_block), *g = GRADS(f, e74_block);
    struct frame c = *f;
    // clang-format off
    struct e74 la = {a->normed, a->W_k, a->W_v, a->W_q, a->W_z, a->b_z, a->S0, a->U0, a->V0, a->W_r,
                     a->read, a->S_T, a->U_T, a->k, a->v, a->q, a->z, a->y, a->checkpoints};
    struct e74 lg = {w->dnormed, g->W_k, g->W_v, g->W_q, g->W_z, g->b_z, g->S0, g->U0, g->V0,
                     g->W_r, w->dread, g->S_T, g->U_T, NULL, NULL, NULL, NULL, NULL, NULL};
    // clang-format on
    e74_give(&c, &la, &lg, sizeof la, w->work);
    return c;
}

static inline struct frame e74_block_linear(const struct frame *f,
                                            const struct e74_block_workspace *w)
{
    const struct e74_block *a = ARGS(f, e74_block), *g = GRADS(f, e74_block);
    struct linear la, lg;
    struct frame c;

    memset(&la, 0, sizeof la);
    memset(&lg, 0, sizeof lg);
    la.x = a->read;
    la.W = a->W_o;
    la.y = w->projected;
    lg.x = w->dread;
    lg.W = g->W_o;
    lg.y = g->out;
    memset(&c, 0, sizeof c);
    DIM(&c, 'M') = DIM(f, 'T') * DIM(f, 'B');
    DIM(&c, 'C') = DIM(f, 'P');
    DIM(&c, 'D') = DIM(f, 'D');
    e74_give(&c, &la, &lg, sizeof la, w->work);
    return c;
}

struct e74_block_links {
    struct frame norm, layer, linear;
};

static inline struct e74_block_links e74_block_links(const struct frame *f,
                                                     const struct e74_block_workspace *w)
{
    struct e74_block_links c = {e74_block_norm(f, w), e74_block_layer(f, w),
                                e74_block_linear(f, w)};
    return c;
}

/* ---- the chain ---- */

static inline int e74_block_link(const struct impl *const *list, const struct frame *f, enum pass p)
{
    return impl_choose(list, NULL, f).kernel->pass[p](f);
}

/* Elements of x. */
static inline int64_t e74_block_count(const struct frame *f)
{
    return DIM(f, 'T') * DIM(f, 'B') * DIM(f, 'D');
}

static inline int e74_block_forward(const struct frame *f, const struct e74_block_with *with)
{
    const struct e74_block *a = ARGS(f, e74_block);
    const struct e74_block_workspace w = e74_block_workspace(f, FORWARD, with);
    const struct e74_block_links c = e74_block_links(f, &w);
    int e = e74_block_link(with->norm, &c.norm, FORWARD);

    if (!e)
        e = e74_block_link(with->layer, &c.layer, FORWARD);
    if (!e)
        e = e74_block_link(with->linear, &c.linear, FORWARD);
    return e ? e : with->add(a->out, a->x, w.projected, e74_block_count(f));
}

static inline int e74_block_backward(const struct frame *f, const struct e74_block_with *with)
{
    const struct e74_block *g = GRADS(f, e74_block);
    const struct e74_block_workspace w = e74_block_workspace(f, BACKWARD, with);
    const struct e74_block_links c = e74_block_links(f, &w);
    int e = e74_block_link(with->linear, &c.linear, BACKWARD);

    if (!e)
        e = e74_block_link(with->layer, &c.layer, BACKWARD);
    if (!e)
        e = e74_block_link(with->norm, &c.norm, BACKWARD);
    return e ? e : with->add(g->x, g->out, w.dx, e74_block_count(f));
}

/* The largest workspace so far, or that of this link. */
static inline size_t e74_block_max_work(size_t max, const struct impl *const *list,
                                        const struct frame *f, enum pass p)
{
    const struct impl *k = impl_choose(list, NULL, f).kernel;
    size_t bytes = k && k->work ? k->work(f, p) : 0;
    return bytes > max ? bytes : max;
}

static inline size_t e74_block_work(const struct frame *f, enum pass p,
                                    const struct e74_block_with *with)
{
    struct frame unplaced = *f;
    unplaced.work = NULL;
    const struct e74_block_workspace w = e74_block_workspace(&unplaced, p, with);
    const struct e74_block_links c = e74_block_links(&unplaced, &w);
    size_t max = e74_block_max_work(0, with->norm, &c.norm, p);

    max = e74_block_max_work(max, with->layer, &c.layer, p);
    max = e74_block_max_work(max, with->linear, &c.linear, p);
    return (size_t)(w.work - w.projected) + max;
}

static inline const char *e74_block_declines(const struct frame *f,
                                             const struct e74_block_with *with)
{
    const struct e74_block_workspace w = {NULL, NULL, NULL, NULL, NULL};
    const struct e74_block_links c = e74_block_links(f, &w);
    const char *why = impl_choose(with->norm, NULL, &c.norm).why;

    why = why ? why : impl_choose(with->layer, NULL, &c.layer).why;
    return why ? why : impl_choose(with->linear, NULL, &c.linear).why;
}

#endif
