/* counts.h - the checks of a backend or a kernel in numbers, as the report shows them. */
#ifndef COUNTS_H
#define COUNTS_H

#include "common/judge/check.h"
#include "common/report/screen.h"

/* All verdicts; of these, those that failed and those that cannot be judged. */
struct counts {
    int n, failed, unjudged;
};
struct counts counts_of(const struct verdicts *list, const char *backend);
/* In words, in colour if that is not 0. */
const char *counts_text(struct counts c, int colour, char text[160]);
/* Print a line for each kernel, with the names of its checks and how many there were of each. */
void counts_by_name(const struct screen *s, const struct verdicts *list);

#endif
