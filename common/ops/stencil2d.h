/* stencil2d: the mean of the (2R+1) x (2R+1) numbers around each of an image, with zero outside:
 *
 *     y[b][i][j] = 1 / (2R+1)^2 sum over |k|, |l| <= R of x[b][i+k][j+l]
 *
 * for B images of H rows and W columns; x, y [B,H,W].  It is always (2R+1)^2 that the sum is
 * divided by.  The matrix of it is symmetric, so backward is the same mean over dy. */
struct stencil2d {
    void *x;
    void *y;
};
