/* gemm: C = alpha op(A) op(B) + beta C0, row-major; op(A) [M,K], op(B) [K,N], C [M,N]; op is
 * nothing or the transpose: A is stored as [M,K] or [K,M], B as [K,N] or [N,K].
 *
 * gemm_splitk is the same with sizes of its own kind, K far beyond M and N; gemm_batched is
 * `batch` of them, A [G,M,K], B [G,K,N], C [G,M,N], in one launch.
 *
 *     dA = alpha dC op(B)^T, dB = alpha op(A)^T dC (both transposed as A, B are), dC0 = beta dC */
struct gemm {
    void *A, *B;
    void *C0; /* only where beta is not 0 */
    void *C;
};

/* The places of the parameters, in all three. */
enum { GEMM_M, GEMM_N, GEMM_K, GEMM_TRANSPOSE_A, GEMM_TRANSPOSE_B, GEMM_ALPHA, GEMM_BETA };
enum { GEMM_AT_TERM, GEMM_AT_DTERM }; /* sites */
