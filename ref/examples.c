/* examples: a batch of a task, row after row (common/ops/examples.h). */
#include "common/ops/examples.h"
#include "ref/ref.h"

static int forward(const struct call *f)
{
    const struct examples *a = ARGS(f, examples);
    const struct example_task t = example_task_of(f);

    #pragma omp parallel for
    for (int64_t r = 0; r < t.B; r++)
        example_row_make(&t, a->counter, a->token, a->target, r);
    return 0;
}

REF_KERNEL(examples, "plain", "one row after the other", forward, NULL);
