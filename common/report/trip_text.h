/* trip_text.h - round trips as text: columns, and tab-separated records. */
#ifndef TRIP_TEXT_H
#define TRIP_TEXT_H

#include <stdio.h>

#include "common/report/table.h"
#include "common/run/result.h"

/* Has a trial of x an operation with an inverse, so that there are columns? */
int trips_shown(const struct experiment *x);
void trips_columns(struct table *t);
void trips_cells(struct row *to, const struct ran *ran);
/* A record for each number, of the check `round_trip`; the fields of the report (report.c). */
void trips_tsv(FILE *to, int trial, const struct result *r);

#endif
