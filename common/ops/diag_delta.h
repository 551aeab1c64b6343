/* diag_delta: the delta rule on a diagonal state, the smallest recurrence,
 *
 *     s[t] = tanh((1 - k[t]^2) s[t-1] + k[t] v[t])
 *     y[t] = q[t] s[t]
 *
 * for each of B sequences and N state cells independently; k, v, q, y
 * [B,T,N], s0 [B,N].
 */
struct diag_delta {
    void *k, *v, *q; /* inputs at each step */
    void *s0;        /* state before the first step */
    void *y;
    void *s; /* state after each step, for the backward pass */
};
