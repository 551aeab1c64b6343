/* entmax15: the exact 1.5-entmax (Peters, Niculae and Martins 2019) of each of R rows of N <= 64
 * elements: p_j = [x_j/2 - tau]_+^2, with tau such that the row's sum is 1.
 *
 *     dx = g (dp - <g,dp> / sum of g),   g = sqrt(p)
 *
 * p is 0 where x is -inf.  If a row of x has a NaN or an inf, or only -inf, all elements of its p
 * and dx are NaN, as in softmax.  Other rows are not affected. */
struct entmax15 {
    void *x; /* [R,N] */
    void *p; /* [R,N] */
};

enum { ENTMAX15_ROWS, ENTMAX15_COLUMNS, ENTMAX15_FILL };
enum { ENTMAX15_MAX_COLUMNS = 64 }; /* columns */
