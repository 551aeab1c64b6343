/* transpose.cuh - common to the files of transpose: what a pass transposes. */
#ifndef PATTERN_TRANSPOSE_CUH
#define PATTERN_TRANSPOSE_CUH

#include "common/ops/transpose.h"
#include "gpu/gpu.cuh"

enum { MAX_BLOCKS = 0x7fffffff /* blocks of a grid */ };

/* B matrices of M x N entries, each of D elements. */
struct matrices {
    int64_t B, M, N, D;
};

static inline matrices matrices_of(const struct call *f, enum pass p)
{
    const int64_t M = DIM(f, 'M'), N = DIM(f, 'N');
    return {DIM(f, 'B'), p == FORWARD ? M : N, p == FORWARD ? N : M, DIM(f, 'D')};
}

/* Launches a transposition of `from` [B,M,N,D] to `to` [B,N,M,D]. */
typedef int transposition(struct context *on, void *to, const void *from, const matrices &s);

/* The passes: backward is forward with the axes exchanged. */
template <transposition *TRANSPOSE>
static int forward(const struct call *f)
{
    const struct transpose *a = ARGS(f, transpose);
    return TRANSPOSE(f->context, a->out, a->x, matrices_of(f, FORWARD));
}

template <transposition *TRANSPOSE>
static int backward(const struct call *f)
{
    const struct transpose *g = GRADS(f, transpose);
    return TRANSPOSE(f->context, g->x, g->out, matrices_of(f, BACKWARD));
}

/* Of entries of several elements: each copied by itself, or by tiles of them in shared memory. */
GPU_KERNEL_IN(entries_alone);
GPU_KERNEL_IN(entries_in_tiles);

#endif
