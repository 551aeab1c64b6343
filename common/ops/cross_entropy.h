/* cross_entropy: how unlikely R rows of V logits find their targets, with label smoothing:
 *
 *     lse[r]      = log sum_j e^(logits[r,j])
 *     row_loss[r] = lse[r] - (1 - s) logits[r,target[r]] - s mean_j logits[r,j]
 *     loss        = sum of row_loss / count: the mean over the rows that are not ignored
 *
 * with s = label_smoothing.  A row whose target is ignore_index is ignored: its row_loss is 0,
 * and count, the number of the others, leaves it out; where all are ignored, loss is 0.  Its lse
 * is there all the same.  Any other target outside 0 ... V - 1 is a mistake, and makes its
 * row_loss NaN.
 *
 *     a[r]  = d_loss / count + d_row_loss[r], or 0 of a row ignored
 *     dlogits[r,j] = (a + d_lse) e^(logits - lse) - a ((1 - s) [j = target] + s / V)
 *
 * so that backward reads logits once, writes dlogits once, and no probabilities are kept. */
struct cross_entropy {
    void *logits;   /* [R,V] */
    void *target;   /* [R] */
    void *loss;     /* [1] */
    void *row_loss; /* [R] */
    void *lse;      /* [R] */
    void *count;    /* [1] */
};

enum { CROSS_ROWS, CROSS_VOCABULARY, CROSS_IGNORE, CROSS_SMOOTHING };
