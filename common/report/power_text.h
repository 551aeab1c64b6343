/* power_text.h - what verdicts see and what would pass, as text: lines, and tab-separated records. */
#ifndef POWER_TEXT_H
#define POWER_TEXT_H

#include <stdio.h>

#include "common/report/screen.h"
#include "common/run/result.h"

/* A line for what each verdict of parity would have seen, or where there is none for what those on the
 * yardstick would; and one for each change that would pass. */
void power_lines(const struct screen *s, const struct result *r);
/* A record for a verdict of that trial, with what it sees; the fields of the report (report.c). */
void verdict_tsv(FILE *to, int trial, const struct verdict *v, const char *line);
/* Records for what is seen on the yardstick, of the check `sees`; and for what would pass, in the column
 * `tensor`. */
void power_tsv(FILE *to, int trial, const struct result *r);

#endif
