/* scan: prefix sums of each row of x [R,N], with what is there or only what is before it:
 *
 *     inclusive  y[r,i] = sum of x[r,k], k <= i    dx[r,i] = sum of dy[r,k], k >= i
 *     exclusive  y[r,i] = sum of x[r,k], k < i     dx[r,i] = sum of dy[r,k], k > i
 *
 * From a NaN on, or from where both inf and -inf have come, the rest of a row is NaN; what is
 * before it and other rows do not notice. */
struct scan {
    void *x;
    void *y;
};

/* The places of the parameters, and the choices. */
enum { SCAN_ROWS, SCAN_LENGTH, SCAN_KIND, SCAN_FILL };
enum { SCAN_INCLUSIVE, SCAN_EXCLUSIVE };
