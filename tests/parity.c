/* Every kernel of every GPU backend against the oracle, with the same
 * properties and identities as the references; and each has passed at least
 * one case of its contract.  Its arguments are those of tests/parts.h. */
#include "config.h"

#include <stdio.h>

#include "tests/parts.h"

static const char *cases_of(const struct op *o)
{
    return o->cases;
}

int main(int argc, char **argv)
{
    int chosen[N_OPS];
    const char *why = NULL;

    if (choose(argc, argv, cases_of, chosen))
        return 2;
    if (!any_gpu(&why)) {
        printf("1..0 # SKIP 0 GPU checks ran: %s\n", why);
        return 0;
    }
    for (int i = 0; gpu_backends[i]; i++)
        if (!gpu_backends[i]->unavailable())
            for (int o = 0; o < N_OPS; o++)
                if (chosen[o])
                    judge_op(ops[o], gpu_backends[i]);
    return done();
}
