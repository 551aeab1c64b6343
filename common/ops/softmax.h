/* softmax: y[r,:] = softmax(scale x[r,:]) for each of R rows of N numbers, from the largest
 * on, which changes no y and lets no exponential overflow:
 *
 *     y_j = e^(scale (x_j - max x)) / sum_i e^(scale (x_i - max x))
 *
 *     dx = scale y (dy - <y,dy>), from y alone */
struct softmax {
    void *x; /* [R,N] */
    void *y; /* [R,N] */
};

enum { SOFTMAX_ROWS, SOFTMAX_COLUMNS, SOFTMAX_SCALE };
