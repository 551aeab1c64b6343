/* transpose: out[b,j,i,d] = x[b,i,j,d]. */
#include "common/ops/transpose.h"
#include "ref/ref.h"

/* to [B,N,M,D] from [B,M,N,D] */
static void transpose(num *to, const num *from, int64_t B, int64_t M, int64_t N, int64_t D)
{
    #pragma omp parallel for collapse(2)
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < N; j++)
            for (int64_t i = 0; i < M; i++)
                for (int64_t d = 0; d < D; d++)
                    to[((b * N + j) * M + i) * D + d] = from[((b * M + i) * N + j) * D + d];
}

static int forward(const struct call *f)
{
    const struct transpose *a = ARGS(f, transpose);
    transpose(a->out, a->x, DIM(f, 'B'), DIM(f, 'M'), DIM(f, 'N'), DIM(f, 'D'));
    return 0;
}

static int backward(const struct call *f)
{
    const struct transpose *g = GRADS(f, transpose);
    transpose(g->x, g->out, DIM(f, 'B'), DIM(f, 'N'), DIM(f, 'M'), DIM(f, 'D'));
    return 0;
}

REF_KERNEL(transpose, "plain", "one element after the other", forward, backward);
