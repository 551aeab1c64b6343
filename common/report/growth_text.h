/* growth_text.h - how errors grow from step to step of a recurrence, as text. */
#ifndef GROWTH_TEXT_H
#define GROWTH_TEXT_H

#include "common/report/screen.h"
#include "common/run/result.h"

/* The error of a result in each quarter of its steps, the first first: its root mean square over that of all
 * correct values. */
enum { QUARTERS = 4 };
struct quarters {
    double error[QUARTERS];
};
/* Of `got` from `want`, tensors of argument `arg` of the call, or their gradients.  0: the tensor has no time axis of a step or
 * more a quarter. */
int growth_of(const struct call *f, int arg, const double *got, const double *want,
              struct quarters *to);

/* The largest error of a quarter over the smallest; 1 where there is none. */
double growth_spread(const struct quarters *q);

/* A line for each kernel that was compared with the oracle over LONG steps or more: the result whose error differs most
 * from quarter to quarter.  With `all` a line for each result, whatever the number of steps. */
enum { LONG = 1024 };
void growth_lines(const struct screen *s, const struct result *r, int all);

#endif
