/* match.h - models of measure = train that are made equal.
 *
 *     [experiment]
 *     match = parameters        ; without embedding and head; or state, flops (size.h); none: nothing is made equal
 *     reference = z_tanh        ; a variant, or a [model] of one; default: `baseline`
 *     [model diagonal]
 *     adjust = n_state          ; a whole-number key of the mixer or of the model
 *
 * A variant is compared with the reference on the same task in the same dtype.  One that is more than 1 % off gets the
 * value of its `adjust` for which it comes nearest, as if it had been written there; where none comes within 1 %, or it
 * has no `adjust`, the plan is refused.  The reference itself stays as it is, and so do names of variants. */
#ifndef PLAN_MATCH_H
#define PLAN_MATCH_H

#include "common/call/cases.h"
#include "common/plan/section.h"

enum match { MATCH_NONE, MATCH_PARAMETERS, MATCH_STATE, MATCH_FLOPS };
extern const char *const match_names[];

/* Faults of the key `adjust` of a section, whose lists are l, and of which t is. */
void match_refuse(struct plan *p, const struct ini_section *s, const struct lists *l,
                  const struct trial *t);
/* Makes the variants of a plan equal, all of whose trials are there, or adds faults. */
void match_models(struct plan *p, const struct ini *ini);

#endif
