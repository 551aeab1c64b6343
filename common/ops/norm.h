/* rmsnorm, layernorm and qk_norm: rows are divided by their size.  x, y [R,N]; weight w and bias b
 * [N] are the same for all rows.
 *
 * rmsnorm divides each row by its root mean square:
 *
 *     rstd = 1 / sqrt(mean(x^2) + eps)
 *     y    = w xhat,   xhat = rstd x
 *
 * layernorm subtracts the row's mean first, and adds a bias:
 *
 *     rstd = 1 / sqrt(mean((x - mean)^2) + eps)
 *     y    = w xhat + b,   xhat = rstd (x - mean)
 *
 * qk_norm: rmsnorm of every head's query and key of D elements: q, y_q [B,T,H,D], k, y_k
 * [B,T,G,D] with G kv heads, weights w_q, w_k [D] shared by all heads.
 *
 * Backward, with g = w dy and means over a row; mean(g) is only in layernorm:
 *
 *     dx = rstd (g - mean(g) - xhat mean(g xhat))
 *     dw = sum over rows of dy xhat
 *     db = sum over rows of dy */
struct rmsnorm {
    void *x, *w;
    void *y;
    void *rstd; /* [R] */
};
struct layernorm {
    void *x, *w, *b;
    void *y;
    void *mean, *rstd; /* [R] */
};
struct qk_norm {
    void *q, *k;
    void *w_q, *w_k;
    void *y_q, *y_k;
    void *rstd_q, *rstd_k; /* [B,T,H], [B,T,G] */
};

enum { NORM_AT_XHAT, NORM_AT_DXHAT }; /* sites */
/* The places of eps among the parameters. */
enum { NORM_EPS = 2, QK_NORM_EPS = 5 };
