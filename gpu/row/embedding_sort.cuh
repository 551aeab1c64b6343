/* embedding_sort.cuh - the rows of a call in the order of their tokens: a stable radix sort of (token, row), 8 bits
 * a pass.  The only atomics count integers, so the order is the same in each run. */
#ifndef EMBEDDING_SORT_CUH
#define EMBEDDING_SORT_CUH

#include "gpu/gpu.cuh"

static __device__ __forceinline__ bool is_token(int64_t v, int64_t V)
{
    return v >= 0 && v < V;
}

/* Rows and their tokens; a token outside is V, and so behind all others. */
struct pairs {
    unsigned *key, *row;
};

struct sort_work {
    pairs by[2];
    unsigned *counts, *totals;
};

/* For R < 2^31 rows. */
sort_work sort_work_of(work_arena *a, int64_t R);

/* By all digits that V < 2^31 has; *to becomes where they lie, of w.  A CUDA error. */
int sort_by_token(cudaStream_t stream, const int64_t *token, int64_t R, int64_t V,
                  const sort_work &w, pairs *to);

#endif
