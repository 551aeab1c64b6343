/* transpose: out[b,j,i] = x[b,i,j] of each of B matrices; x [B,M,N], out [B,N,M].
 *
 *     dx[b,i,j] = dout[b,j,i] */
struct transpose {
    void *x;
    void *out;
};
