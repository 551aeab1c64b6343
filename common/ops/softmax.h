/* softmax: y[r,:] = softmax(scale x[r,:]) for each of R rows of N elements, less their maximum,
 * which changes no y and lets no exponential overflow:
 *
 *     y_j = e^(scale (x_j - max x)) / sum_i e^(scale (x_i - max x))
 *
 *     dx = scale y (dy - <y,dy>), from y alone
 *
 * An x of -inf gets 0.  A row with a NaN or inf in it, or of -inf all over, is NaN all over in y
 * and dx, as in PyTorch; other rows do not notice. */
struct softmax {
    void *x; /* [R,N] */
    void *y; /* [R,N] */
};

enum { SOFTMAX_ROWS, SOFTMAX_COLUMNS, SOFTMAX_SCALE, SOFTMAX_FILL };
