/* accuracy: hits[r] = is the largest logit of row r at target[r]? */
#include "common/ops/accuracy.h"
#include "ref/ref.h"

static int64_t first_largest(const num *x, int64_t V)
{
    int64_t at = 0;
    for (int64_t j = 1; j < V; j++)
        if (!isnan(load_alike(x[at])) && !(load_alike(x[j]) <= load_alike(x[at])))
            at = j;
    return at;
}

/* An index is never outside 0 ... V - 1. */
static int forward(const struct call *f)
{
    const struct accuracy *a = ARGS(f, accuracy);
    const num *logits = a->logits;
    const int64_t *target = a->target;
    int64_t R = DIM(f, 'R'), V = DIM(f, 'V'), ignored = DIM(f, 'I'), *hits = a->hits, sum = 0;

    #pragma omp parallel for reduction(+ : sum)
    for (int64_t r = 0; r < R; r++) {
        hits[r] = target[r] != ignored && target[r] == first_largest(logits + r * V, V);
        sum += hits[r];
    }
    *(int64_t *)a->count = sum;
    return 0;
}

REF_KERNEL(accuracy, "plain", "one row after the other", forward, NULL);
