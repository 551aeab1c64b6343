/* sizes.h - models of training before they run: their size, and the time of their runs. */
#ifndef REPORT_SIZES_H
#define REPORT_SIZES_H

#include <stdio.h>

#include "common/plan/plan.h"

/* A row for each variant and task of measure = train, and the time of all; some updates of each are made for it. */
void sizes_table(const struct experiment *x, FILE *to);

#endif
