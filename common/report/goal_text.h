/* goal_text.h - goals that were missed, and defaults that are not the fastest kernel, in words. */
#ifndef GOAL_TEXT_H
#define GOAL_TEXT_H

#include "common/report/screen.h"
#include "common/run/result.h"

/* Print a line for each verdict on a time of trial i, from 0, that is over its bound. */
void goals_lines(const struct screen *s, int i, const struct result *r);

#endif
