/* sum_squares: the sum of the squares of all N elements of x, as for the norm of a gradient:
 *
 *     y  = sum_i x[i]^2
 *     dx = 2 x dy
 *
 * y and dy are wide.  NaN and inf in x have the effect that the formula gives them. */
struct sum_squares {
    void *x; /* [N] */
    void *y; /* [1] */
};

enum { SUM_SQUARES_LENGTH, SUM_SQUARES_FILL };
