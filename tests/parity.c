/* Every kernel of every GPU backend against the oracle, with the same
 * properties and identities as the references; and each has passed at least
 * one case of its contract.
 *
 *     parity [--part N/ALL] [OPERATION...]
 *
 * The kernels of these operations; default: all.  --part 2/6 takes the second
 * of six shares of them, which take about as long as each other. */
#include "config.h"

#include <stdio.h>

#include "tests/suite.h"

/* ---- parts ---- */

/* What a case takes besides its arithmetic, in operations: kernels are started, threads wait. */
static const double CASE_WORK = 1e5;

static int add_case(const struct op *o, const struct frame *f, void *data)
{
    *(double *)data += CASE_WORK + work_of(o, f);
    return 0;
}

/* Each operation goes to the part that has the least to do yet, those with the most work first. */
static void share_out(int parts, int part_of[N_OPS])
{
    double work[N_OPS] = {0}, load[N_OPS] = {0};

    for (int i = 0; i < N_OPS; i++) {
        part_of[i] = -1;
        for_cases(ops[i], ops[i]->cases, add_case, &work[i]);
    }
    for (int n = 0; n < N_OPS; n++) {
        int next = -1, least = 0;
        for (int i = 0; i < N_OPS; i++)
            if (part_of[i] < 0 && (next < 0 || work[i] > work[next]))
                next = i;
        for (int p = 1; p < parts; p++)
            if (load[p] < load[least])
                least = p;
        part_of[next] = least;
        load[least] += work[next];
    }
}

/* "2/6": nonzero if that is no part. */
static int read_part(const char *text, int *part, int *parts)
{
    char end;
    return sscanf(text, "%d/%d%c", part, parts, &end) != 2 || *part < 1 || *part > *parts ||
           *parts > N_OPS;
}

int main(int argc, char **argv)
{
    int part = 1, parts = 1, part_of[N_OPS];
    const char *why = NULL;

    if (argc > 2 && strcmp(argv[1], "--part") == 0) {
        if (read_part(argv[2], &part, &parts)) {
            fprintf(stderr, "%s: --part %s: expected N/ALL, 1 <= N <= ALL <= %d\n", argv[0],
                    argv[2], N_OPS);
            return 2;
        }
        argc -= 2, argv += 2;
    }
    if (!all_known(argc, argv))
        return 2;
    if (!any_gpu(&why)) {
        printf("1..0 # SKIP 0 GPU checks ran: %s\n", why);
        return 0;
    }
    share_out(parts, part_of);
    for (int i = 0; gpu_backends[i]; i++)
        if (!gpu_backends[i]->unavailable())
            for (int o = 0; o < N_OPS; o++)
                if (part_of[o] == part - 1 && named(ops[o], argc - 1, argv + 1))
                    judge_op(ops[o], gpu_backends[i]);
    return done();
}
