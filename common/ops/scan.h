/* scan: prefix sums of each row of x [R,N], with or without the element itself:
 *
 *     inclusive  y[r,i] = sum of x[r,k], k <= i    dx[r,i] = sum of dy[r,k], k >= i
 *     exclusive  y[r,i] = sum of x[r,k], k < i     dx[r,i] = sum of dy[r,k], k > i
 *
 * The sums that include a NaN, or both inf and -inf, are NaN.  Other sums are not affected. */
struct scan {
    void *x;
    void *y;
};

/* The places of the parameters, and the choices. */
enum { SCAN_ROWS, SCAN_LENGTH, SCAN_KIND, SCAN_FILL };
enum { SCAN_INCLUSIVE, SCAN_EXCLUSIVE };
