/* time_text.h - measured times as text: in words and columns, and as
 * tab-separated fields. */
#ifndef TIME_TEXT_H
#define TIME_TEXT_H

#include <stdio.h>

#include "common/run/result.h"

/* "12.3 us" */
const char *seconds_text(double s, char text[16]);
/* "4.25": bytes in MiB. */
const char *mebibytes_text(int64_t bytes, char text[16]);

/* The line of the ceilings; c NULL: not known, and why. */
void times_ceilings(FILE *to, const struct ceilings *c, const char *why);

/* Head and row of the table for measure = time, behind the columns of the trial. */
void times_head(FILE *to);
void times_row(FILE *to, const struct ceilings *c, const struct result *r, const struct ran *ran,
               enum pass p);
/* Is it here to be timed? */
int times_wanted(const struct ran *ran);

/* The same for measure = crossover: a row for each batch, a line for the crossover. */
void crossover_head(FILE *to);
void crossover_batch(FILE *to, const struct crossover *g, int i);
void crossover_line(FILE *to, const struct crossover *g);

/* As records, with the fields of the head. */
void times_tsv_head(FILE *to);
void times_tsv(FILE *to, int trial, const struct ceilings *c, const struct result *r);
void crossover_tsv_head(FILE *to);
void crossover_tsv(FILE *to, int trial, const struct result *r);

#endif
