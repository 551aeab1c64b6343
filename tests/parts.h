/* parts.h - which operations a suite's arguments choose, so that `make -j check`
 * has its parts side by side.
 *
 *     SUITE [--part N/ALL] [OPERATION...]
 *
 * These operations; default: all.  --part 2/6 takes the second of six shares of
 * them, which take about as long as each other. */
#ifndef PARTS_H
#define PARTS_H

#include <stdio.h>
#include <string.h>

#include "tests/suite.h"

/* What a case takes besides its arithmetic, in operations: kernels are started, threads wait. */
static const double CASE_WORK = 1e5;

static inline int add_case(const struct op *o, const struct frame *f, void *data)
{
    *(double *)data += CASE_WORK + work_of(o, f);
    return 0;
}

/* Each operation goes to the part that has the least to do yet, those with the most work first;
 * `cases` says what a suite asks of one, or NULL. */
static inline void share_out(int parts, const char *(*cases)(const struct op *o),
                             int part_of[N_OPS])
{
    double work[N_OPS] = {0}, load[N_OPS] = {0};

    for (int i = 0; i < N_OPS; i++) {
        part_of[i] = -1;
        if (cases(ops[i]))
            for_cases(ops[i], cases(ops[i]), add_case, &work[i]);
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

/* chosen[i] becomes 1 where operation i is.  Nonzero where an argument is wrong, which is said. */
static inline int choose(int argc, char *const *argv, const char *(*cases)(const struct op *o),
                         int chosen[N_OPS])
{
    int part = 1, parts = 1, part_of[N_OPS], taken = 0;
    char end;

    if (argc > 2 && strcmp(argv[1], "--part") == 0) {
        if (sscanf(argv[2], "%d/%d%c", &part, &parts, &end) != 2 || part < 1 || part > parts ||
            parts > N_OPS) {
            fprintf(stderr, "%s: --part %s: expected N/ALL, 1 <= N <= ALL <= %d\n", argv[0],
                    argv[2], N_OPS);
            return -1;
        }
        taken = 2;
    }
    if (!all_known(argc - taken, argv + taken))
        return -1;
    share_out(parts, cases, part_of);
    for (int i = 0; i < N_OPS; i++)
        chosen[i] = part_of[i] == part - 1 && named(ops[i], argc - taken - 1, argv + taken + 1);
    return 0;
}

#endif
