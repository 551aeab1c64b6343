/* linear: y = act(x W^T + b);  x [M,C], W [D,C], b [D], y [M,D]; act: nothing, silu, relu.
 *
 *     dz = dy act'(z + b);  dx = dz W, dW = dz^T x, db = the sum of dz's rows
 *
 * where z = x W^T, without the bias.  Backward computes silu's slope from z, which forward saves, and
 * relu's slope from y: it is 0 where y is 0. */
struct linear {
    void *x, *W;
    void *b; /* bias = yes */
    void *y;
    void *z; /* act = silu */
};

/* The places of the parameters. */
enum { LINEAR_M, LINEAR_C, LINEAR_D, LINEAR_BIAS, LINEAR_ACT };
enum { LINEAR_AT_Z, LINEAR_AT_DZ }; /* sites */
enum { ACT_NONE, ACT_SILU, ACT_RELU };
