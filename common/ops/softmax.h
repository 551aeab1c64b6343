/* softmax: y[r,:] = softmax(scale x[r,:]) for each of R rows of N elements.  The row's maximum is
 * subtracted first, so that no exponential overflows:
 *
 *     y_j = e^(scale (x_j - max x)) / sum_i e^(scale (x_i - max x))
 *
 *     dx = scale y (dy - <y,dy>)          x is not needed
 *
 * y is 0 where x is -inf.  If a row of x has a NaN or an inf, or only -inf, all elements of its y
 * and dx are NaN, as in PyTorch.  Other rows are not affected. */
struct softmax {
    void *x; /* [R,N] */
    void *y; /* [R,N] */
};

enum { SOFTMAX_ROWS, SOFTMAX_COLUMNS, SOFTMAX_SCALE, SOFTMAX_FILL };
enum { SOFTMAX_AT_S, SOFTMAX_AT_LSE }; /* sites; if declared: lse */
