/* linear: y = act(x W^T + b);  x [M,C], W [D,C], b [D], y [M,D]; act: nothing, silu, relu.
 *
 *     dz = dy act'(z + b);  dx = dz W, dW = dz^T x, db = the sum of dz's rows
 *
 * where z = x W^T.  Backward finds the slope of silu at z, which forward keeps, without the bias,
 * and that of relu by y: it is 0 where y is. */
struct linear {
    void *x, *W;
    void *b; /* bias = yes */
    void *y;
    void *z; /* act = silu */
};

/* The places of the parameters. */
enum { LINEAR_M, LINEAR_C, LINEAR_D, LINEAR_BIAS, LINEAR_ACT };
enum { ACT_NONE, ACT_SILU, ACT_RELU };
