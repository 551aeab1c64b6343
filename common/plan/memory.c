/* What trials take of this machine's memory (memory.h). */
#include "config.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/largest.h"
#include "common/base/limits.h"
#include "common/call/run.h"
#include "common/plan/memory.h"
#include "common/plan/training.h"
#include "common/train/cell.h"

double memory_available(void)
{
    int64_t there = ref64.machine->memory.left(NULL), left = limits_available(NULL);

    if (left == INT64_MAX)
        return (double)there;
    left -= limits_overhead(omp_get_max_threads());
    left = left > 0 ? left : 0;
    return (double)(left < there ? left : there);
}

/* On the host one set of tensors for each of oracle, yardstick and judged backend, four more that
 * differences perturb, one more where backward adds to gradients, which differences do not see, or two that
 * bounds need; then the tensors of the references.  Workspace is computed only when the rest fits,
 * for its own sizes are not bounded.  By sample: the inputs, a judged backend's results, and as much
 * again for what is stored on the way to it; what is cut is small beside them. */
double memory_of_trial(const struct experiment *x, const struct trial *t, double available)
{
    const struct backend *yardstick = reference_of(t->type);
    struct call oracle = call_on(&t->call, &ref64, NULL, NULL),
                yard = call_on(&t->call, yardstick, NULL, NULL);
    int timed = x->measure != MEASURE_CHECK;

    if (is_cell(t->call.op))
        return training_memory(t);
    if (t->sampled)
        return 3 * (double)tensors_bytes(&t->call);
    int sets = x->checks & CHECK_DIFFERENCES ? 7 + t->accumulate : timed ? 5 : 3;
    const double host = sets * (double)tensors_bytes(&t->call);
    const double least = host + (double)op_memory(&oracle) + (double)op_memory(&yard);
    if (least > available)
        return least;
    oracle.kernel = op_kernel(t->call.op, &ref64, 0);
    yard.kernel = op_kernel(t->call.op, yardstick, 0);
    return host + (double)op_memory(&oracle) + (double)op_memory(&yard);
}

double memory_of_largest(const struct experiment *x, int n)
{
    double *bytes = malloc((x->n + 1) * sizeof *bytes);

    if (!bytes)
        return err_set("no memory for %d trials", x->n);
    for (int i = 0; i < x->n; i++) /* runs that differ in rate and seed take the same */
        bytes[i] = i && is_cell(x->trial[i].call.op) &&
                           !training_difference(&x->trial[i - 1], &x->trial[i])
                       ? bytes[i - 1]
                       : memory_of_trial(x, &x->trial[i], INFINITY);
    const double sum = largest_sum(bytes, x->n, n);
    free(bytes);
    return sum;
}
