/* train_text.h - runs of training as text: columns, lines, and tab-separated records. */
#ifndef TRAIN_TEXT_H
#define TRAIN_TEXT_H

#include <stdio.h>

#include "common/report/table.h"
#include "common/run/result.h"

void training_columns(struct table *t);
/* The cells of a run; those of its checks are counts_text()'s. */
void training_cells(struct row *to, const struct trained *r, const char *checks);
/* How the oracle went along, and why a run ended early. */
void training_lines(const struct screen *s, const struct trained *r);
void training_tsv_head(FILE *to);
/* A record for each validation, and for the test. */
void training_tsv(FILE *to, int trial, const struct result *r);

#endif
