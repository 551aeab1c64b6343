/* variants.h - the variants of a plan of measure = train, by their names.
 *
 * A cell is a variant on a task; its runs differ in rate and seed alone, and each of them is there once.  A name in `baseline`
 * or `compare` is that of a variant, or that of a [model] that has only one. */
#ifndef PLAN_VARIANTS_H
#define PLAN_VARIANTS_H

#include "common/plan/section.h"

/* Faults of a whole plan: cells whose runs differ in more, a run that is there twice, a seed that confirms and searches, and
 * names that are none; x->baseline becomes a variant's, and x->compare "A : B, C : D" of variants. */
void variants_check(struct plan *p, const struct ini *ini);

/* The variant of that name in x, or of that [model]; "" where there is none, or more than one.  It points into x. */
const char *variant_named(const struct experiment *x, const char *name);

#endif
