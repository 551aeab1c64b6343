/* trip_text.h - round trips as text: columns, and tab-separated records. */
#ifndef TRIP_TEXT_H
#define TRIP_TEXT_H

#include <stdio.h>

#include "common/report/table.h"
#include "common/run/result.h"

/* The columns of a table of an operation that has an inverse, and the cells of a row in them. */
void trips_columns(struct table *t);
void trips_cells(struct row *to, const struct ran *ran);
/* A record for each number, of the check `round_trip`; the fields of the report (report.c). */
void trips_tsv(FILE *to, int trial, const struct result *r);

#endif
