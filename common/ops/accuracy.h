/* accuracy: whether the largest of V logits is the target's, in each of R rows, and in how many:
 *
 *     at[r]   = the first j whose logits[r,j] is the largest; the first NaN, if there is one
 *     hits[r] = 1 if at[r] = target[r], else 0
 *     count   = sum of hits
 *
 * as torch.argmax has it: a NaN is larger than all numbers, and 0 is no larger than -0.  A row whose
 * target is ignore_index is no hit, and neither is one whose target is outside 0 ... V - 1.  All
 * results are whole numbers, the same in each precision; there is no backward pass. */
struct accuracy {
    void *logits; /* [R,V] */
    void *target; /* [R] */
    void *hits;   /* [R] */
    void *count;  /* [1] */
};

enum { ACCURACY_ROWS, ACCURACY_VOCABULARY, ACCURACY_IGNORE, ACCURACY_FILL };
