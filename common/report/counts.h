/* counts.h - the checks of a backend or a kernel in numbers, as the report shows them. */
#ifndef COUNTS_H
#define COUNTS_H

#include <stdio.h>

#include "common/judge/check.h"

/* All verdicts; of these, those that failed and those that cannot be judged. */
struct counts {
    int n, failed, unjudged;
};
struct counts counts_of(const struct verdicts *list, const char *backend);
/* Print them, in `colour` if that is not 0, and end the line. */
void counts_print(FILE *to, struct counts c, int colour);
/* Print a line for each kernel, with the names of its checks and how many there were of each. */
void counts_by_name(FILE *to, const struct verdicts *list);

#endif
