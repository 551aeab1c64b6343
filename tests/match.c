/* The size of a model, by formulas of its own; and models that are made equal (match). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/train/size.h"
#include "tests/plans.h"

/* ---- sizes ---- */

/* Outside the blocks, of parity: 2 tokens and 2 classes; and what a mixer's block has around it, of a width of d and of m
 * behind the mixer. */
#define OUTER(d) (2 * (d) + 2 * (d))
#define LAST(d) (d)
#define AROUND(d, m) ((d) + (d) * (m))
/* FLOPs of a token: a norm 4 an element, a sum 1, a product 2; the loss 4 a class, and which is largest 1. */
#define LAST_FLOPS(d) (4 * (d) + 2 * 2 * (d) + (4 + 1) * 2)
#define AROUND_FLOPS(d, m) (4 * (d) + 2 * (d) * (m) + (d))

static const struct {
    const char *mixer, *words;
    enum dtype type;
    struct cell_size is;
} sizes[] = {
    /* The first four are a published table's. */
    {"e74", "proj=full z_mod=row n_state=16 width=32", F32, {2768, 2640, 1024, 0}},
    {"e74", "proj=no_z n_state=16 width=32", F32, {2240, 2112, 1024, 0}},
    {"e74", "state=diagonal proj=no_z n_state=32 width=32", F32, {4288, 4160, 128, 0}},
    {"dual_memory", "dim=32 slots=8 width=32", F32, {4576, 4448, 1152, 0}},
    /* k, v, q, z and b_z, of 2 heads; 3 products of n x n. */
    {"e74",
     "proj=full z_mod=row n_state=4 heads=2 width=6 length=7 batch=3",
     F32,
     {OUTER(6) + LAST(6) + 4 * 8 * 6 + 8 + AROUND(6, 8), LAST(6) + 4 * 8 * 6 + 8 + AROUND(6, 8),
      2 * 4 * 4 * 4, LAST_FLOPS(6) + AROUND_FLOPS(6, 8) + 4 * 2 * 8 * 6 + 3 * 2 * 8 * 4}},
    /* The state is kept in fp32. */
    {"e74",
     "proj=no_z state=blockdiag block_size=4 n_state=8 width=6 blocks=3",
     BF16,
     {OUTER(6) + LAST(6) + 3 * (3 * 8 * 6 + AROUND(6, 8)), LAST(6) + 3 * (3 * 8 * 6 + AROUND(6, 8)),
      3 * 8 * 4 * 4, LAST_FLOPS(6) + 3 * (AROUND_FLOPS(6, 8) + 3 * 2 * 8 * 6 + 3 * 2 * 8 * 4)}},
    /* V, which all sequences share, is a weight and no state; so is W_r. */
    {"e74",
     "proj=no_z state=lowrank rank=3 n_state=8 heads=2 width=6",
     F32,
     {OUTER(6) + LAST(6) + 3 * 16 * 6 + 2 * 2 * 8 * 3 + AROUND(6, 16),
      LAST(6) + 3 * 16 * 6 + 2 * 2 * 8 * 3 + AROUND(6, 16), 2 * 8 * 3 * 4,
      LAST_FLOPS(6) + AROUND_FLOPS(6, 16) + 3 * 2 * 16 * 6 + 3 * 2 * 16 * 3 + 3 * 2 * 16 * 3}},
    /* Its own norm, W_o and sum are within; the norm and the sum are counted 5 an element. */
    {"e74_block",
     "proj=no_z n_state=4 width=6 mlp=5",
     F32,
     {OUTER(6) + LAST(6) + 3 * 4 * 6 + AROUND(6, 4) + 6 + 3 * 5 * 6,
      LAST(6) + 3 * 4 * 6 + AROUND(6, 4) + 6 + 3 * 5 * 6, 4 * 4 * 4,
      LAST_FLOPS(6) + AROUND_FLOPS(6, 4) + 3 * 2 * 4 * 6 + 3 * 2 * 4 * 4 +
          (4 * 6 + 3 * 2 * 5 * 6 + 5 * 5 + 6)}},
    /* The last h and the tape. */
    {"dual_memory",
     "dim=8 slots=3 width=6 blocks=2",
     BF16,
     {OUTER(6) + LAST(6) + 2 * (2 * 8 * 8 + 8 + 8 * 6 + 3 * 8 + AROUND(6, 8)),
      LAST(6) + 2 * (2 * 8 * 8 + 8 + 8 * 6 + 3 * 8 + AROUND(6, 8)), 2 * (8 + 3 * 8) * 4,
      LAST_FLOPS(6) + 2 * (AROUND_FLOPS(6, 8) + 2 * 8 * (2 * 8 + 6) + 9 * 8 * 3)}},
    /* 4 heads of q, 2 of k and v; norms of q and k, whose rotations are 3 an element; of 7 queries the
     * first sees one key, the last 7: 28 / 7 = 4 each. */
    {"attention",
     "heads=4 kv_heads=2 dim=2 width=6 length=7 batch=3",
     BF16,
     {OUTER(6) + LAST(6) + 16 * 6 + 4 + AROUND(6, 8), LAST(6) + 16 * 6 + 4 + AROUND(6, 8),
      7 * 2 * (2 + 2) * 2,
      LAST_FLOPS(6) + AROUND_FLOPS(6, 8) + 2 * 16 * 6 + (4 + 3) * (4 + 2) * 2 +
          4 * 4 * 2 * (2 + 2)}},
    {"attention",
     "heads=1 dim=2 width=6 length=70 mask=window left=4 right=0",
     F32,
     {OUTER(6) + LAST(6) + 6 * 6 + 4 + AROUND(6, 2), LAST(6) + 6 * 6 + 4 + AROUND(6, 2),
      5 * (2 + 2) * 4, 0}},
    {"none",
     "width=6 head=tied blocks=2",
     F32,
     {2 * 6 + LAST(6) + 2 * AROUND(6, 6), LAST(6) + 2 * AROUND(6, 6), 0,
      LAST_FLOPS(6) + 2 * AROUND_FLOPS(6, 6)}},
    {"none",
     "width=6 task=counter modulus=5 moves=yes",
     F32,
     {3 * 6 + 5 * 6 + LAST(6) + AROUND(6, 6), LAST(6) + AROUND(6, 6), 0, 0}},
};

static void size_of(int i)
{
    struct call f;
    struct cell_size got, is = sizes[i].is;
    const int e = cases_one(cell_op(sizes[i].mixer), sizes[i].words, &f) ||
                  cell_size(&f, sizes[i].type, &got);

    if (!e && is.flops == 0)
        is.flops = got.flops;
    if (!ok(!e && memcmp(&got, &is, sizeof is) == 0, "%s %s: parameters, state, FLOPs",
            sizes[i].mixer, sizes[i].words) &&
        !e)
        printf("# %g, %g inner, state %g, FLOPs %g; by formula %g, %g, %g, %g\n", got.parameters,
               got.inner, got.state, got.flops, is.parameters, is.inner, is.state, is.flops);
    else if (e)
        printf("# %s\n", err_text());
}

int main(void)
{
    for (int i = 0; i < (int)COUNT(sizes); i++)
        size_of(i);
    return done();
}
