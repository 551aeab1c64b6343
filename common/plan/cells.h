/* cells.h - the sections of which a [trial] of measure = train is composed.
 *
 *     [model z]                       ; what is compared: the mixer's keys and the model's
 *     mixer = e74
 *     proj = full
 *     nonlin = tanh, linear           ; a list: two variants, z_tanh and z_linear
 *     [task parity]                   ; what is learned
 *     task = parity
 *     length = 32
 *     [train]                         ; how; a section without a name is taken unasked
 *     updates = 400
 *     lr = 1e-3, 1e-2
 *     seed = 1 .. 3
 *     confirm = 11 .. 20              ; seeds of further runs, at the best of these rates
 *     [trial]
 *     model = z, no_z                 ; names of such sections
 *     task = parity
 *
 * is the product of all lists: seeds fastest, then rates, the other keys of [train], tasks, models; each model's runs that
 * confirm behind those that search.  A [trial] may set any key
 * itself, in place of what a section says.  Where no [task] has a name, `task` is the task's own key.  Each key belongs
 * into one kind of section (cell.h); each section must be named by a [trial]. */
#ifndef PLAN_CELLS_H
#define PLAN_CELLS_H

#include "common/plan/section.h"

/* Is a section of that name one of these? */
int is_cell_section(const char *name);
/* Faults of those of a plan, whichever trials name them. */
void cells_refuse(struct plan *p, const struct ini *ini);
/* section_trials() of a [trial] together with the sections that it names. */
void cells_trials(struct plan *p, const struct ini *ini, const struct ini_section *trial);

#endif
