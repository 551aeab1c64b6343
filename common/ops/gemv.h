/* gemv: y = alpha op(A) x + beta y0; op(A) [M,K], x [K], y [M]; op is nothing or the transpose: A
 * is stored, row-major, as [M,K] or [K,M].
 *
 *     dA = alpha dy x^T (transposed as A is), dx = alpha op(A)^T dy, dy0 = beta dy */
struct gemv {
    void *A, *x;
    void *y0; /* only where beta is not 0 */
    void *y;
};

/* The places of the parameters. */
enum { GEMV_M, GEMV_K, GEMV_TRANSPOSE_A, GEMV_ALPHA, GEMV_BETA };
enum { GEMV_AT_TERM, GEMV_AT_DTERM }; /* sites */
