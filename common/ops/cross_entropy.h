/* cross_entropy: the cross entropy of R rows of V logits and their targets, with label smoothing:
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
 * ignore_index is ignored: its row_loss is 0, and count does not include it.  If all rows are
 * ignored, loss is 0.  lse is computed for ignored rows, too.  Any other target outside
 * 0 ... V - 1 is a mistake, and makes its row_loss NaN.
 *
 *     a[r]  = d_loss / count + d_row_loss[r], or 0 where row r is ignored
 *     dlogits[r,j] = (a + d_lse) / sum e^(logits - top) - a ((1 - s) [j = target] + s / V)
 *
 * Backward reads logits once and writes dlogits once; no probabilities are saved.
 *
 * A logit of -inf has the probability 0; if it is the target, the row's loss is inf.  (With s = 1
 * its factor is 0, and the loss is NaN.)  In a row that has a NaN or an inf, or only -inf, the loss,
 * the gradients and sum are NaN, as in PyTorch; lse is the same as torch.logsumexp: NaN if there is
 * a NaN, else inf or -inf.  Other rows are not affected. */
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

enum { CROSS_ROWS, CROSS_VOCABULARY, CROSS_IGNORE, CROSS_SMOOTHING, CROSS_FILL, CROSS_D_ROWS };
