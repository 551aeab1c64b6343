/* stencil1d: the mean of the 2R+1 numbers around each, along rows, with zero outside:
 *
 *     y[b][i] = 1 / (2R+1) sum over |k| <= R of x[b][i+k]
 *
 * for B rows of N numbers; x, y [B,N].  It is always 2R+1 that the sum is divided by.  The
 * matrix of it is symmetric, so backward is the same mean over dy. */
struct stencil1d {
    void *x;
    void *y;
};
