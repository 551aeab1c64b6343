/* stencil2d: the mean of the (2R+1) x (2R+1) elements around each of an image, with zero outside:
 *
 *     y[b][i][j] = 1 / (2R+1)^2 sum over |k|, |l| <= R of x[b][i+k][j+l]
 *
 * for B images of H rows and W columns; x, y [B,H,W].  The divisor is (2R+1)^2 at the
 * edges, too.  The matrix of this map is symmetric, so backward is the same mean over dy. */
struct stencil2d {
    void *x;
    void *y;
};
