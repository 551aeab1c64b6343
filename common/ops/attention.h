/* attention: softmax attention of T queries over S keys, in H query heads and G heads of keys.
 *
 * For batch row b, query head h, kv head g = floor(h G / H), with queries and keys aligned at the
 * end, so that the last query meets the last key: o = S - T, query i is at key i + o.
 *
 *     visible(i,j): full: all; causal: j <= i + o;
 *                   window: (left < 0 or j >= i + o - left) and (right < 0 or j <= i + o + right)
 *     u_ij = scale q_i . k_j,  a = u, or c tanh(u / c) with softcap c
 *     s_ij = a + bias[h,i,j] - slopes[h] |i + o - j|, what there is of it; not visible: left out
 *     m_i = max_j s_ij (and sinks[h]),  l_i = sum_j exp(s_ij - m_i) (+ exp(sinks[h] - m_i))
 *     lse_i = m_i + log l_i,  P_ij = exp(s_ij - lse_i),  o_i = sum_j P_ij Z_ij / (1 - p) v_j
 *
 * The sink is neither scaled nor capped and has no value.  Dropout: Z_ij = 1 where a word is at least
 * floor(p 2^32): word j mod 4 of Philox-4x32-10 with the counter (floor(j / 4), i, b H + h, u mod 2^32), u the
 * element of `counter`, and the key (dropout_seed + 0x9e3779b9 floor(dropout_seed / 2^32)) mod 2^32, the same
 * in both passes and on all backends.
 *
 * Backward, given do and dlse, P again from lse:
 *
 *     delta_i = do_i . o_i - dlse_i
 *     dp_ij = Z_ij / (1 - p) do_i . v_j,  ds_ij = P_ij (dp_ij - delta_i),
 *     du = ds (1 - (a / c)^2) with softcap, else ds
 *     dq_i = scale sum_j du_ij k_j,  dk_j = scale sum_{i,h} du_ij q_i,
 *     dv_j = sum_{i,h} P_ij Z_ij / (1 - p) do_i        over the query heads of the group
 *     dbias[h,i,j] = sum_b ds_ij,  dsinks[h] = -sum_{b,i} exp(sinks[h] - lse_i) delta_i
 *
 * A row that sees nothing (no key is visible, or all s are -inf) has o = 0, lse = -inf, or lse =
 * sinks[h] with a sink; it has no gradient.  s = -inf counts as not visible, and a du of 0 leaves out
 * what it multiplies (with softcap a key may be infinite and its score -c).  A NaN among the s of a
 * row, or s = inf, makes its o, lse and gradients NaN; other rows are not affected. */
#ifndef COMMON_OPS_ATTENTION_H
#define COMMON_OPS_ATTENTION_H

#include "common/base/dropout.h"
#include "common/call/call.h"

struct attention {
    void *q, *k, *v; /* [B,T,H,D], [B,S,G,D], [B,S,G,E]; keys = 0: T for S */
    void *slopes;    /* [H], bias = alibi */
    void *bias;      /* [H,T,S], bias = full */
    void *sinks;     /* [H], sink = yes */
    void *counter;   /* [1], dropout > 0 */
    void *o;         /* [B,T,H,E] */
    void *lse;       /* [B,H,T] */
    void *o32;       /* [B,T,H,E], keep_o = fp32: o before it is rounded to its type */
};

enum {
    ATTENTION_B,
    ATTENTION_T,
    ATTENTION_H,
    ATTENTION_KEYS,
    ATTENTION_KV_HEADS,
    ATTENTION_D,
    ATTENTION_DIM_V,
    ATTENTION_MASK,
    ATTENTION_LEFT,
    ATTENTION_RIGHT,
    ATTENTION_SCALE,
    ATTENTION_SOFTCAP,
    ATTENTION_BIAS,
    ATTENTION_SINK,
    ATTENTION_DROPOUT,
    ATTENTION_SEED,
    ATTENTION_STEP,
    ATTENTION_KEEP_O,
    ATTENTION_FILL,
    ATTENTION_D_LSE
};
enum { ATTENTION_AT_P, ATTENTION_AT_DS, ATTENTION_AT_S }; /* sites; if declared: S */
enum { MASK_FULL, MASK_CAUSAL, MASK_WINDOW };
enum { BIAS_NONE, BIAS_ALIBI, BIAS_FULL };
enum { ATTENTION_MAX_WIDTH = 256 };

/* Which keys a query sees: those from i + offset - left to i + offset + right, where a side below 0
 * has no end. */
struct attention_window {
    int64_t offset, left, right, keys;
};

static inline struct attention_window attention_window(const struct call *f)
{
    const int64_t S = DIM(f, 'S'), o = S - DIM(f, 'T');
    const int mask = f->choice[ATTENTION_MASK];
    const struct attention_window w = {o, mask == MASK_WINDOW ? DIM(f, 'L') : -1,
                                       mask == MASK_WINDOW   ? DIM(f, 'R')
                                       : mask == MASK_CAUSAL ? 0
                                                             : -1,
                                       S};
    return w;
}

/* The first key that query i may see, and the one after the last; a row that sees none has the second
 * not above the first. */
static inline ON_HOST_AND_DEVICE int64_t attention_first(const struct attention_window *w,
                                                         int64_t i)
{
    const int64_t first = i + w->offset - w->left;
    return w->left < 0 || first < 0 ? 0 : first;
}

static inline ON_HOST_AND_DEVICE int64_t attention_last(const struct attention_window *w, int64_t i)
{
    const int64_t last = i + w->offset + w->right + 1;
    return w->right < 0 || last > w->keys ? w->keys : last;
}

#ifdef __cplusplus
extern "C" {
#endif
/* What q k^T is multiplied by. */
double attention_scale(const struct call *f);
#ifdef __cplusplus
}
#endif

static inline struct dropout_mask attention_dropout(const struct call *f)
{
    return dropout_mask(f->real[ATTENTION_DROPOUT], DIM(f, 'X'));
}

/* Is P_ij of row (b H + h) kept in step u? */
static inline ON_HOST_AND_DEVICE int attention_kept(const struct dropout_mask *d, uint32_t u,
                                                    int64_t row, int64_t i, int64_t j)
{
    if (!d->threshold)
        return 1;
    const struct philox counter = {{(uint32_t)(j / 4), (uint32_t)i, (uint32_t)row, u}};
    return dropout_keeps(d, philox4x32(counter, d->key, 0).word[j % 4]);
}

#endif
