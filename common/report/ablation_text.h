/* ablation_text.h - what runs of training say of each other, printed: a table for each task. */
#ifndef ABLATION_TEXT_H
#define ABLATION_TEXT_H

#include "common/store/read_ablation.h"
#include "common/report/screen.h"

void ablation_text(const struct screen *s, const struct stored_ablation *a);

#endif
