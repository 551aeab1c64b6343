/* lora: a linear layer with a frozen W [D,C] and a trained product of rank R (Hu and others
 * 2021);  x [M,C], A [R,C], B [D,R], y [M,D]:
 *
 *     h = (alpha / R) x A^T,  y = x W^T + h B^T
 *     dh = (alpha / R) dy B,  dx = dy W + dh A,  dA = dh^T x,  dB = dy^T h
 */
struct lora {
    void *x, *W, *A, *B;
    void *y;
    void *h; /* [M,R], for dB */
};

/* The places of the parameters. */
enum { LORA_AT_H, LORA_AT_TERM, LORA_AT_DTERM, LORA_AT_DH }; /* sites */
enum { LORA_M, LORA_C, LORA_D, LORA_R, LORA_ALPHA };
