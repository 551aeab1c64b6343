/* parts.h - a suite in parts, so that `make -j check` runs them at the same time.
 *
 *     SUITE [--part N/ALL] [OPERATION...]
 *
 * These operations; default: all.  --part 2/6 takes the second of six parts of
 * the operations, or of their cases; the parts take about the same time. */
#ifndef PARTS_H
#define PARTS_H

#include <stdio.h>
#include <string.h>

#include "tests/suite.h"

/* The time of a case besides its arithmetic, in operations: kernels are started, threads wait. */
static const double CASE_WORK = 1e5;

static inline int add_case(const struct call *f, void *data)
{
    *(double *)data += CASE_WORK + work_of(f);
    return 0;
}

/* The operations with the most work first, each goes to the part that has the least work so far. */
static inline void assign_parts(int parts, int part_of[N_OPS])
{
    double work[N_OPS] = {0}, load[parts];

    memset(load, 0, sizeof load);
    for (int i = 0; i < N_OPS; i++) {
        part_of[i] = -1;
        for_cases(ops[i], ops[i]->cases, add_case, &work[i]);
    }
    for (int n = 0; n < N_OPS; n++) {
        int next = -1, min = 0;
        for (int i = 0; i < N_OPS; i++)
            if (part_of[i] < 0 && (next < 0 || work[i] > work[next]))
                next = i;
        for (int p = 1; p < parts; p++)
            if (load[p] < load[min])
                min = p;
        part_of[next] = min;
        load[min] += work[next];
    }
}

/* The part that a suite's arguments name, and the names of operations after it. */
struct part {
    int part, parts; /* part from 0 */
    int64_t seen;    /* cases so far, of all parts */
    int n;           /* names of operations, none for all */
    char *const *name;
};

/* Nonzero after a message where an argument is wrong. */
static inline int part_read(int argc, char *const *argv, struct part *to)
{
    int part = 1, parts = 1, taken = 0;
    char end;

    if (argc > 2 && strcmp(argv[1], "--part") == 0) {
        if (sscanf(argv[2], "%d/%d%c", &part, &parts, &end) != 2 || part < 1 || part > parts) {
            fprintf(stderr, "%s: --part %s: expected N/ALL, 1 <= N <= ALL\n", argv[0], argv[2]);
            return -1;
        }
        taken = 2;
    }
    *to = (struct part){part - 1, parts, 0, argc - taken - 1, argv + taken + 1};
    return all_known(argc - taken, argv + taken) ? 0 : -1;
}

/* Is the next case this part's?  Part N/ALL has every ALL-th. */
static inline int part_takes(struct part *p)
{
    return p->seen++ % p->parts == p->part;
}

#endif
