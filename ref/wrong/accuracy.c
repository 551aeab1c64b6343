/* Kernels of accuracy that are wrong (wrong.h). */
#include "common/call/contract.h"
#include "common/ops/accuracy.h"
#include "ref/wrong/wrong.h"

/* Where the largest of n logits is, as a kernel has it. */
typedef int64_t argmax(const num *x, int64_t n);

static int64_t right(const num *x, int64_t n)
{
    int64_t at = 0;
    for (int64_t j = 1; j < n; j++)
        if (!isnan(load(x[at])) && !(load(x[j]) <= load(x[at])))
            at = j;
    return at;
}

static int64_t last(const num *x, int64_t n)
{
    int64_t at = 0;
    for (int64_t j = 1; j < n; j++)
        if (!isnan(load(x[at])) && !(load(x[j]) < load(x[at])))
            at = j;
    return at;
}

/* A comparison with NaN is false. */
static int64_t of_numbers(const num *x, int64_t n)
{
    real largest = -INFINITY;
    int64_t at = 0;
    for (int64_t j = 0; j < n; j++)
        if (load(x[j]) > largest) {
            largest = load(x[j]);
            at = j;
        }
    return at;
}

static int64_t of_vectors(const num *x, int64_t n)
{
    return right(x, whole(n, 8));
}

/* Lanes without an element have 0. */
static int64_t with_zeros(const num *x, int64_t n)
{
    const int64_t at = right(x, n);
    return n % 32 && load(x[at]) < 0 ? n : at;
}

static int hits_of(const struct call *f, argmax *at, int ignores)
{
    const struct accuracy *a = ARGS(f, accuracy);
    const int64_t *target = a->target, V = DIM(f, 'V');
    int64_t *hits = a->hits, *count = a->count;

    *count = 0;
    for (int64_t r = 0; r < DIM(f, 'R'); r++) {
        hits[r] = !(ignores && target[r] == DIM(f, 'I')) &&
                  target[r] == at((const num *)a->logits + r * V, V);
        *count += hits[r];
    }
    return 0;
}

#define ARGMAX(name, what, at, ...)                                                                \
    static int name##_forward(const struct call *f)                                                \
    {                                                                                              \
        return hits_of(f, at, 1);                                                                  \
    }                                                                                              \
    WRONG_PASSES(name, what, name##_forward, NULL, ##__VA_ARGS__)

ARGMAX(accuracy_last_tie, "of equal logits the last is the largest", last);
ARGMAX(accuracy_drops_nan, "a NaN is never the largest", of_numbers);
ARGMAX(accuracy_tail_lost, "logits behind the last multiple of 8 are not compared", of_vectors);
ARGMAX(accuracy_with_zeros, "where a row is no multiple of 32, 0 is one of its logits", with_zeros);

/* !(x > target's): NaN is no larger, and no smaller; each of equal ones is the largest. */
static int none_above(const struct call *f)
{
    const struct accuracy *a = ARGS(f, accuracy);
    const int64_t *target = a->target, V = DIM(f, 'V');
    int64_t *hits = a->hits, *count = a->count;

    *count = 0;
    for (int64_t r = 0; r < DIM(f, 'R'); r++) {
        const num *x = (const num *)a->logits + r * V;
        hits[r] = target[r] != DIM(f, 'I') && target[r] >= 0 && target[r] < V;
        for (int64_t j = 0; hits[r] && j < V; j++)
            hits[r] = !(load(x[j]) > load(x[target[r]]));
        *count += hits[r];
    }
    return 0;
}
WRONG_PASSES(accuracy_nan_hits,
             "a hit is where no logit is above the target's, as none is above NaN", none_above,
             NULL);

static int ignored_compared(const struct call *f)
{
    return hits_of(f, right, 0);
}
WRONG_PASSES(accuracy_not_ignored, "rows of ignore_index are compared like others",
             ignored_compared, NULL);

static void ignored_are_hits(const struct call *f)
{
    const struct accuracy *a = ARGS(f, accuracy);
    int64_t *hits = a->hits, *count = a->count;

    for (int64_t r = 0; r < DIM(f, 'R'); r++)
        if (((const int64_t *)a->target)[r] == DIM(f, 'I')) {
            hits[r] = 1;
            ++*count;
        }
}
WRONG_AFTER(accuracy_ignored_hits, "ignored rows are hits", FORWARD, ignored_are_hits);

static void count_in_bf16(const struct call *f)
{
    int64_t *count = ARGS(f, accuracy)->count;
    *count = (int64_t)from_bf16(to_bf16((float)*count));
}
WRONG_AFTER(accuracy_bf16_count, "the count is a bf16", FORWARD, count_in_bf16);

WRONG_KERNELS(accuracy, &accuracy_last_tie, &accuracy_drops_nan, &accuracy_tail_lost,
              &accuracy_with_zeros, &accuracy_nan_hits, &accuracy_not_ignored,
              &accuracy_ignored_hits, &accuracy_bf16_count);
