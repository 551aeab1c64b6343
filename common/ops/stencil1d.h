/* stencil1d: the mean of the 2R+1 elements of a row around each, with zero outside:
 *
 *     y[b][i] = 1 / (2R+1) sum over |k| <= R of x[b][i+k]
 *
 * for B rows of N elements; x, y [B,N].  The divisor is 2R+1 at the edges, too.  The matrix of this
 * map is symmetric, so backward is the same mean of dy. */
struct stencil1d {
    void *x;
    void *y;
};
