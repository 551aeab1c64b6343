/* reduce: one value y of each row of x [R,N], or of all of x.  Of n elements, N or R N,
 *
 *     sum    y = sum of x          dx = dy
 *     max    y = max of x          dx = dy at the first that is y, elsewhere 0
 *     mean   y = sum of x / n      dx = dy / n
 *     norm2  y = sqrt(sum of x^2)  dx = dy x / y, and 0 where y is 0
 *
 * If several elements are the maximum, the first of them gets all of dy, as in PyTorch's max(dim) on
 * a CPU.  If x has a NaN, the first NaN is the maximum and gets dy.  For the other kinds NaN and inf
 * in x have the effect that the formula gives them. */
struct reduce {
    void *x;
    void *y;  /* [R], or one element */
    void *at; /* of a max: which it was, from 0; in all of x, row after row */
};

/* The places of the parameters, and the choices. */
enum { REDUCE_ROWS, REDUCE_LENGTH, REDUCE_KIND, REDUCE_OVER, REDUCE_FILL };
enum { REDUCE_SUM, REDUCE_MAX, REDUCE_MEAN, REDUCE_NORM2 };
enum { REDUCE_EACH_ROW, REDUCE_ALL };
