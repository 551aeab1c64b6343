/* gemm_quantised: products with quantised weights, of L matrices W (parameter `weights`); for each
 *
 *     y = x W^T,  x [M,K], W [N,K], y [M,N];  dx = dy W
 *
 * The decoded weights are floats (quantised.h), not rounded to the type of x: the product is that of
 * dequantise and gemm, in real numbers.  W has no gradient. */
#ifndef GEMM_QUANTISED_H
#define GEMM_QUANTISED_H

#include "common/call/call.h"
#include "common/ops/quantised.h"

/* Of each matrix the first five are what dequantise has, one matrix after the other. */
struct gemm_quantised {
    void *W, *absmax, *absmax8, *absmax2, *offset;
    void *x; /* [L,M,K]; without the axis L where L is 1, as all of them */
    void *y; /* [L,M,N] */
};

/* The places of the parameters that follow quantised.h's. */
enum { GEMM_QUANTISED_AT_W }; /* sites */
enum { GEMM_QUANTISED_M = QUANTISED_DATA + 1, GEMM_QUANTISED_L };

/* Matrix l of a call, as dequantise has it; `wide` is the size of a scale of nf4. */
static inline struct dequantise gemm_quantised_W(const struct call *f, int64_t l, size_t wide)
{
    const struct gemm_quantised *a = ARGS(f, gemm_quantised);
    const int nf4 = f->choice[QUANTISED_FORMAT] == NF4, twice = f->choice[QUANTISED_DOUBLE];
    struct dequantise W = {0, 0, 0, 0, 0, 0};

    W.W = (char *)a->W + l * (nf4 ? DIM(f, 'P') : DIM(f, 'N') * DIM(f, 'R'));
    if (nf4 && !twice) {
        W.absmax = (char *)a->absmax + l * DIM(f, 'B') * (int64_t)wide;
    } else if (nf4) {
        W.absmax8 = (char *)a->absmax8 + l * DIM(f, 'B');
        W.absmax2 = (char *)a->absmax2 + l * DIM(f, 'C') * (int64_t)wide;
        W.offset = (char *)a->offset + l * (int64_t)wide;
    }
    return W;
}

#endif
