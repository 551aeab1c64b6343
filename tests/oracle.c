/* Every gradient of every reference, in all cases of its contract, against
 * central differences of the forward pass, in double; and the identities of
 * every contract. */
#include "config.h"

#include <stdio.h>

#include "tests/suite.h"

enum { EXHAUSTIVE = 100, DIRECTIONS = 2 };

static int differences(const struct op *o, const struct frame *f, void *data)
{
    struct tensors *t = tensors_new(o, f);
    struct call c = {.op = o, .backend = &ref64, .kernel = op_kernels(o, &ref64)[0], .sizes = f};
    struct verdicts list = {0};
    int e = !t;

    (void)data;
    if (!e) {
        tensors_draw(t, o, f, 1, 1);
        e = run_op(&c, t, NULL) ||
            check_differences(o, f, t, EXHAUSTIVE, DIRECTIONS, NULL, &list);
    }
    report(o, f, &list, e, "differences");
    verdicts_free(&list);
    tensors_free(t);
    return 0;
}

int main(void)
{
    for (int i = 0; i < N_OPS; i++)
        for_cases(ops[i], ops[i]->cases, differences, NULL);
    for (int i = 0; i < N_OPS; i++)
        identities(ops[i], &ref64, op_kernels(ops[i], &ref64)[0]);
    return done();
}
