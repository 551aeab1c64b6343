/* entmax15: the exact 1.5-entmax (Peters, Niculae and Martins 2019) of each of R rows of N <= 64
 * elements: p_j = [x_j/2 - tau]_+^2, with tau such that the row's sum is 1.
 *
 *     dx = g (dp - <g,dp> / sum of g), g = sqrt(p): 0 where p is
 *
 * An x of -inf gets 0.  A row with a NaN or inf in it, or of -inf all over, is NaN all over in p
 * and dx, as softmax's is; other rows do not notice. */
struct entmax15 {
    void *x; /* [R,N] */
    void *p; /* [R,N] */
};

enum { ENTMAX15_ROWS, ENTMAX15_COLUMNS, ENTMAX15_FILL };
enum { ENTMAX15_MOST = 64 }; /* columns */
