/* e74_block as a chain: the calls of rmsnorm, e74 and linear within the block's own, the same for
 * every backend, which gives its lists of their kernels and says how it adds. */
#ifndef E74_BLOCK_H
#define E74_BLOCK_H

#include "common/ops/e74.h"
#include "common/ops/linear.h"
#include "common/ops/norm.h"

struct e74_block_with {
    const struct impl *const *norm, *const *layer, *const *linear; /* best first */
    /* to = a + b, of n numbers in the storage type, `size` bytes each */
    int (*add)(void *to, const void *a, const void *b, int64_t n);
    size_t size;
};

/* What lies between the links: of forward the second projection, of backward the gradients of
 * what was read, of what was normed, and the norm's of x; then a link's own workspace. */
struct e74_block_room {
    char *projected, *dread, *dnormed, *dx, *work;
};

static inline size_t e74_block_aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static inline struct e74_block_room e74_block_room(const struct frame *f, enum pass p,
                                                   const struct e74_block_with *with)
{
    int64_t rows = DIM(f, 'T') * DIM(f, 'B');
    size_t x = e74_block_aligned(rows * DIM(f, 'D') * with->size);
    size_t read = e74_block_aligned(rows * DIM(f, 'P') * with->size);
    struct e74_block_room r = {(char *)f->work, NULL, NULL, NULL, NULL};

    if (p == FORWARD) {
        r.work = r.projected + x;
        return r;
    }
    r.dread = r.projected;
    r.dnormed = r.dread + read;
    r.dx = r.dnormed + x;
    r.work = r.dx + x;
    return r;
}

/* ---- the links' calls ---- */

static inline struct frame e74_block_norm(const struct frame *f, const struct e74_block_room *r)
{
    const struct e74_block *a = ARGS(f, e74_block), *g = GRADS(f, e74_block);
    struct rmsnorm na = {a->x, a->w_norm, a->normed, a->rstd};
    struct rmsnorm ng = {r->dx, g->w_norm, r->dnormed, NULL};
    struct frame c;

    memset(&c, 0, sizeof c);
    DIM(&c, 'R') = DIM(f, 'T') * DIM(f, 'B');
    DIM(&c, 'N') = DIM(f, 'D');
    c.real[NORM_EPS] = f->real[E74_EPS];
    memcpy(c.arg, &na, sizeof na);
    memcpy(c.grad, &ng, sizeof ng);
    c.work = r->work;
    return c;
}

static inline struct frame e74_block_layer(const struct frame *f, const struct e74_block_room *r)
{
    const struct e74_block *a = ARGS(f, e74_block), *g = GRADS(f, e74_block);
    struct frame c = *f;
    // clang-format off
    struct e74 la = {a->normed, a->W_k, a->W_v, a->W_q, a->W_z, a->b_z, a->S0, a->U0, a->V0, a->W_r,
                     a->read, a->S_T, a->U_T, a->k, a->v, a->q, a->z, a->y, a->checkpoints};
    struct e74 lg = {r->dnormed, g->W_k, g->W_v, g->W_q, g->W_z, g->b_z, g->S0, g->U0, g->V0, g->W_r,
                     r->dread, g->S_T, g->U_T, NULL, NULL, NULL, NULL, NULL, NULL};
    // clang-format on
    memset(c.arg, 0, sizeof c.arg);
    memset(c.grad, 0, sizeof c.grad);
    memcpy(c.arg, &la, sizeof la);
    memcpy(c.grad, &lg, sizeof lg);
    c.work = r->work;
    return c;
}

static inline struct frame e74_block_linear(const struct frame *f, const struct e74_block_room *r)
{
    const struct e74_block *a = ARGS(f, e74_block), *g = GRADS(f, e74_block);
    struct linear la, lg;
    struct frame c;

    memset(&la, 0, sizeof la);
    memset(&lg, 0, sizeof lg);
    la.x = a->read;
    la.W = a->W_o;
    la.y = r->projected;
    lg.x = r->dread;
    lg.W = g->W_o;
    lg.y = g->out;
    memset(&c, 0, sizeof c);
    DIM(&c, 'M') = DIM(f, 'T') * DIM(f, 'B');
    DIM(&c, 'C') = DIM(f, 'P');
    DIM(&c, 'D') = DIM(f, 'D');
    memcpy(c.arg, &la, sizeof la);
    memcpy(c.grad, &lg, sizeof lg);
    c.work = r->work;
    return c;
}

/* ---- the chain ---- */

/* The first kernel of a list that takes the case; NULL: none does. */
static inline const struct impl *e74_block_kernel(const struct impl *const *list,
                                                  const struct frame *f)
{
    while (*list && (*list)->declines && (*list)->declines(f))
        list++;
    return *list;
}

static inline int e74_block_link(const struct impl *const *list, const struct frame *f, enum pass p)
{
    return e74_block_kernel(list, f)->pass[p](f);
}

static inline int e74_block_forward(const struct frame *f, const struct e74_block_with *with)
{
    const struct e74_block *a = ARGS(f, e74_block);
    const struct e74_block_room r = e74_block_room(f, FORWARD, with);
    const struct frame norm = e74_block_norm(f, &r), layer = e74_block_layer(f, &r);
    const struct frame linear = e74_block_linear(f, &r);
    int e = e74_block_link(with->norm, &norm, FORWARD);

    if (!e)
        e = e74_block_link(with->layer, &layer, FORWARD);
    if (!e)
        e = e74_block_link(with->linear, &linear, FORWARD);
    return e ? e : with->add(a->out, a->x, r.projected, DIM(&norm, 'R') * DIM(&norm, 'N'));
}

static inline int e74_block_backward(const struct frame *f, const struct e74_block_with *with)
{
    const struct e74_block *g = GRADS(f, e74_block);
    const struct e74_block_room r = e74_block_room(f, BACKWARD, with);
    const struct frame norm = e74_block_norm(f, &r), layer = e74_block_layer(f, &r);
    const struct frame linear = e74_block_linear(f, &r);
    int e = e74_block_link(with->linear, &linear, BACKWARD);

    if (!e)
        e = e74_block_link(with->layer, &layer, BACKWARD);
    if (!e)
        e = e74_block_link(with->norm, &norm, BACKWARD);
    return e ? e : with->add(g->x, g->out, r.dx, DIM(&norm, 'R') * DIM(&norm, 'N'));
}

static inline size_t e74_block_link_work(const struct impl *const *list, const struct frame *f,
                                         enum pass p)
{
    const struct impl *k = e74_block_kernel(list, f);
    return k && k->work ? k->work(f, p) : 0;
}

static inline size_t e74_block_work(const struct frame *f, enum pass p,
                                    const struct e74_block_with *with)
{
    struct frame c = *f;
    c.work = NULL;
    const struct e74_block_room r = e74_block_room(&c, p, with);
    const struct frame norm = e74_block_norm(&c, &r), layer = e74_block_layer(&c, &r);
    const struct frame linear = e74_block_linear(&c, &r);
    size_t most = e74_block_link_work(with->norm, &norm, p);
    size_t of_layer = e74_block_link_work(with->layer, &layer, p);
    size_t of_linear = e74_block_link_work(with->linear, &linear, p);

    most = of_layer > most ? of_layer : most;
    most = of_linear > most ? of_linear : most;
    return (size_t)(r.work - r.projected) + most;
}

/* Why a link has no kernel for it: what its last one says. */
static inline const char *e74_block_link_declines(const struct impl *const *list,
                                                  const struct frame *f)
{
    const char *why = NULL;
    for (; *list; list++)
        if (!(*list)->declines || !(why = (*list)->declines(f)))
            return NULL;
    return why;
}

static inline const char *e74_block_declines(const struct frame *f,
                                             const struct e74_block_with *with)
{
    const struct e74_block_room r = {NULL, NULL, NULL, NULL, NULL};
    const struct frame norm = e74_block_norm(f, &r), layer = e74_block_layer(f, &r);
    const struct frame linear = e74_block_linear(f, &r);
    const char *why = e74_block_link_declines(with->norm, &norm);

    why = why ? why : e74_block_link_declines(with->layer, &layer);
    return why ? why : e74_block_link_declines(with->linear, &linear);
}

#endif
