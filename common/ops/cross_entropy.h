/* cross_entropy: how unlikely R rows of V logits find their targets, with label smoothing:
 *
 *     top[r]      = max_j logits[r,j]
 *     sum[r]      = sum_j e^(logits[r,j] - top[r])
 *     lse[r]      = log sum_j e^(logits[r,j]) = top[r] + log sum[r]
 *     row_loss[r] = lse[r] - (1 - s) logits[r,target[r]] - s mean_j logits[r,j]
 *                 = log sum[r] + (1 - s) (top[r] - logits[r,target[r]])
 *                              + s mean_j (top[r] - logits[r,j])
 *     loss        = sum of row_loss / count: the mean over the rows that are not ignored
 *
 * with s = label_smoothing.  row_loss and dlogits are computed from top and sum: the rounding of
 * lse, which is large where all logits are large, would be their error.  A row whose target is
 * ignore_index is ignored: its row_loss is 0, and count, the number of the others, leaves it out;
 * where all are ignored, loss is 0.  Its lse is there all the same.  Any other target outside 0
 * ... V - 1 is a mistake, and makes its row_loss NaN.
 *
 *     a[r]  = d_loss / count + d_row_loss[r], or 0 of a row ignored
 *     dlogits[r,j] = (a + d_lse) / sum e^(logits - top) - a ((1 - s) [j = target] + s / V)
 *
 * so that backward reads logits once, writes dlogits once, and no probabilities are kept.
 *
 * A logit of -inf has the probability 0, so that a row whose target it is has the loss inf.  (With
 * s = 1 its factor is 0, and the loss NaN.)  A row with a NaN or inf in it, or of -inf all over,
 * has a loss and gradients that are NaN, as in PyTorch, and lse is as torch.logsumexp's: NaN if
 * there is a NaN, else inf or -inf; sum is NaN, and other rows do not notice. */
struct cross_entropy {
    void *logits;   /* [R,V] */
    void *target;   /* [R] */
    void *loss;     /* [1] */
    void *row_loss; /* [R] */
    void *lse;      /* [R] */
    void *top;      /* [R] */
    void *sum;      /* [R] */
    void *count;    /* [1] */
};

enum { CROSS_ROWS, CROSS_VOCABULARY, CROSS_IGNORE, CROSS_SMOOTHING, CROSS_FILL };
