/* Every kernel of every GPU backend against the oracle, with the same
 * properties and identities as the references; and each has passed at least
 * one case of its contract.  Its arguments are those of tests/parts.h. */
#include "config.h"

#include <stdio.h>

#include "tests/here.h"
#include "tests/parts.h"

int main(int argc, char **argv)
{
    int part_of[N_OPS];
    struct part p;
    if (part_read(argc, argv, &p))
        return 2;
    if (!any_gpu_or_skip_all())
        return 0;
    assign_parts(p.parts, part_of);
    for (int i = 0; judged_backend(i); i++)
        if (!backend_unavailable(here(), judged_backend(i)))
            for (int o = 0; o < N_OPS; o++)
                if (part_of[o] == p.part && named(ops[o], p.n, p.name))
                    judge_op(ops[o], judged_backend(i));
    return done();
}
