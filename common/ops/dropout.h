/* dropout: elements of x [M,D] become 0 with probability p, the others are scaled, so that the mean stays.
 *
 *     y_i = Z_i x_i / (1 - p),  i = m D + d
 *
 * Z_i = 1 where a word is at least floor(p 2^32), else y_i is 0, whatever x_i is, NaN and infinities too:
 * word i mod 4 of Philox-4x32-10 with the counter (j mod 2^32, floor(j / 2^32), 0, u mod 2^32), where
 * j = floor(i / 4) and u is the element of `counter`, and with the key
 * (dropout_seed + 0x9e3779b9 floor(dropout_seed / 2^32)) mod 2^32, the same on all backends.
 *
 * Backward, with the same counter: dx_i = Z_i dy_i / (1 - p).  The mask is made again and not saved, so
 * that the counter moves on only behind the backward pass.
 *
 * An element's mask depends on its place among all, so rows are not independent. */
#ifndef COMMON_OPS_DROPOUT_H
#define COMMON_OPS_DROPOUT_H

#include "common/base/dropout.h"
#include "common/call/call.h"

struct dropout {
    void *x;       /* [M,D] */
    void *counter; /* [1] */
    void *y;       /* [M,D] */
};

enum { DROPOUT_ROWS, DROPOUT_DIM, DROPOUT_P, DROPOUT_SEED, DROPOUT_STEP, DROPOUT_FILL };

static inline struct dropout_mask dropout_mask_of(const struct call *f)
{
    return dropout_mask(f->real[DROPOUT_P], DIM(f, 'X'));
}

/* The words of elements 4 j to 4 j + 3. */
static inline ON_HOST_AND_DEVICE struct philox dropout_four(const struct dropout_mask *m,
                                                            uint32_t u, int64_t j)
{
    const struct philox counter = {{(uint32_t)j, (uint32_t)(j >> 32), 0, u}};
    return philox4x32(counter, m->key, 0);
}

/* Z_i */
static inline ON_HOST_AND_DEVICE int dropout_kept(const struct dropout_mask *m, uint32_t u,
                                                  int64_t i)
{
    return dropout_keeps(m, dropout_four(m, u, i / 4).word[i % 4]);
}

#endif
