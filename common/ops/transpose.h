/* transpose: out[b,j,i,d] = x[b,i,j,d] of each of B matrices, whose entries are D elements that stay
 * together; x [B,M,N,D], out [B,N,M,D], or where D = 1 [B,M,N] and [B,N,M].
 *
 *     dx[b,i,j,d] = dout[b,j,i,d] */
struct transpose {
    void *x;
    void *out;
};
