/* scan: prefix sums of each row of x [R,N], with what is there or only what is before it:
 *
 *     inclusive  y[r,i] = sum of x[r,k], k <= i    dx[r,i] = sum of dy[r,k], k >= i
 *     exclusive  y[r,i] = sum of x[r,k], k < i     dx[r,i] = sum of dy[r,k], k > i */
struct scan {
    void *x;
    void *y;
};

/* The places of the parameters, and the choices. */
enum { SCAN_ROWS, SCAN_LENGTH, SCAN_KIND };
enum { SCAN_INCLUSIVE, SCAN_EXCLUSIVE };
