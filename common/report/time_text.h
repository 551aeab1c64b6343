/* time_text.h - measured times as text: in words and columns, and as
 * tab-separated fields. */
#ifndef TIME_TEXT_H
#define TIME_TEXT_H

#include <stdio.h>

#include "common/base/number.h"
#include "common/report/table.h"
#include "common/run/result.h"
#include "common/store/time_rows.h"

/* "4.25": bytes in MiB. */
const char *mebibytes_text(int64_t bytes, char text[NUMBER_TEXT]);

/* The lines of the ceilings; c NULL: not known, and why. */
void times_ceilings(const struct screen *s, const struct ceilings *c, const char *why);

/* A number of that column as a person reads it: within the column's width, if it is of this world. */
const char *column_text(const struct column *c, const void *value, char text[NUMBER_TEXT]);

/* The columns of the table for measure = time, and the cells of a row in them, behind those of the
 * trial. */
void times_columns(struct table *t);
void times_cells(struct row *to, const struct ceilings *c, const struct result *r,
                 const struct ran *ran, enum pass p);
/* What a timed pass may try, where it is far from the roofline; and all that is known of how it ran. */
void times_advice(const struct screen *s, const struct ceilings *c, const struct ran *ran,
                  enum pass p);
void times_profile_line(const struct screen *s, const struct ceilings *c, const struct result *r,
                        const struct ran *ran, enum pass p);
/* Is it here to be timed? */
int times_wanted(const struct ran *ran);

/* The same for measure = crossover: a row for each batch, a line for the crossover. */
void crossover_columns_of(struct table *t);
void crossover_cells(struct row *to, const struct crossover *g, int i);
void crossover_line(const struct screen *s, const struct crossover *g);

/* As records, with the fields of the head. */
void times_tsv_head(FILE *to);
void times_tsv(FILE *to, int trial, const struct ceilings *c, const struct result *r);
void crossover_tsv_head(FILE *to);
void crossover_tsv(FILE *to, int trial, const struct result *r);

#endif
