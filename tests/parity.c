/* Every kernel of every GPU backend against the oracle, with the same
 * properties and identities as the references.
 *
 * parity [OPERATION...]: the kernels of these; default: all. */
#include "config.h"

#include <stdio.h>

#include "tests/suite.h"

int main(int argc, char **argv)
{
    const char *why = NULL;

    if (!all_known(argc, argv))
        return 2;
    if (!any_gpu(&why)) {
        printf("1..0 # SKIP 0 GPU checks ran: %s\n", why);
        return 0;
    }
    for (int i = 0; gpu_backends[i]; i++)
        if (!gpu_backends[i]->unavailable())
            for (int o = 0; o < N_OPS; o++)
                if (named(ops[o], argc - 1, argv + 1))
                    judge_op(ops[o], gpu_backends[i]);
    return done();
}
