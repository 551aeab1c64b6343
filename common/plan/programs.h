/* programs.h - the programs of a plan: op = program, program = FILE (common/program/program.h). */
#ifndef PLAN_PROGRAMS_H
#define PLAN_PROGRAMS_H

#include "common/plan/section.h"

/* The operation's name in a plan. */
extern const char PROGRAM_OP[];

/* Adds the program of that file to the plan's experiment, or finds it there; NULL after faults of that line, one for
 * each error in the text. */
const struct op *plan_program(struct plan *p, const char *file, int line);
void programs_free(struct experiment *x);

#endif
