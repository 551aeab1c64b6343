/* rope: rotary embedding.  The D elements of a head are D/2 pairs; at step t pair i is turned by
 * the angle
 *
 *     a = (offset + t) theta^(-2i/D)
 *     y[first]  = x[first] cos a - x[second] sin a
 *     y[second] = x[first] sin a + x[second] cos a
 *
 * for x, y [B,T,H,D], D even.  In the form `half` a pair is (i, i + D/2), in the form
 * `interleaved` (2i, 2i + 1).  Backward rotates dy by -a.
 *
 * Angles are computed in double in all precisions, and only their sines and cosines are rounded:
 * in float an angle of 10^6 has an error of up to 0.03.
 *
 * Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021. */
struct rope {
    void *x;
    void *y;
};

/* The places of the parameters. */
enum { ROPE_B, ROPE_T, ROPE_H, ROPE_D, ROPE_OFFSET, ROPE_FORM, ROPE_THETA };
enum { ROPE_HALF, ROPE_INTERLEAVED };
