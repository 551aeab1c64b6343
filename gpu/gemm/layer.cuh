/* layer.cuh - the parts of a layer other than its products: concatenation of matrices, sums of
 * columns. */
#ifndef LAYER_CUH
#define LAYER_CUH

#include "gpu/gpu.cuh"

enum { BLOCK = 256, MAX_MATRICES = 4 };

/* The shape of a block of `all` threads for [rows,width]; threadIdx.x runs along a row. */
static inline dim3 block_of(int64_t width, unsigned all)
{
    unsigned x = 1;
    while (x < all && x < width)
        x *= 2;
    return dim3(x, all / x);
}

static inline unsigned blocks_of(int64_t rows, dim3 block)
{
    return (unsigned)ceil_div(rows, block.y);
}

/* Matrices of one size. */
struct matrices {
    int n;
    const void *p[MAX_MATRICES];
};

/* Concatenates the matrices, [M,P] each, to `all` [M,n,P]. */
template <typename T>
int concatenate(struct context *on, T *all, const matrices &from, int64_t M, int64_t P);

/* Sets each of the M rows of z to b.  A product is then added to z, so that the sum of both is
 * rounded once. */
template <typename T>
int spread_bias(struct context *on, T *z, const T *b, int64_t M, int64_t P);

/* M rows are summed in parts: enough for many blocks, but few enough for one block to add up their
 * sums. */
static inline int64_t part_of(int64_t M)
{
    return max((int64_t)128, ceil_div(M, 4096));
}

static inline int64_t parts_of(int64_t M)
{
    return ceil_div(M, part_of(M));
}

/* db[j] = sum over the M rows of x[.][j] by[.][j], or of x[.][j] if `by` is NULL, in a fixed
 * order.  `sums` holds parts_of(M) rows of P. */
template <typename T, typename U>
int column_sums(struct context *on, float *db, float *sums, const T *x, const U *by, int64_t M,
                int64_t P);

#endif
