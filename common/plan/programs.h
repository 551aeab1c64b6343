/* programs.h - the programs of a plan: op = program, program = FILE (common/program/program.h). */
#ifndef PLAN_PROGRAMS_H
#define PLAN_PROGRAMS_H

#include "common/plan/section.h"

/* The operation's name in a plan. */
extern const char PROGRAM_OP[];

/* The operation of the program in that file; NULL after faults of that line, one for each error in the text. */
const struct op *plan_program(struct plan *p, const char *file, int line);

/* The same; NULL after err_set() with the first of the errors. */
const struct op *program_load(const char *file);
/* The file of "program=lm.model", which stands in place of an operation's name; NULL: it is none. */
const char *program_file(const char *name);

/* Texts that stand for files of these names: those that a dump keeps. */
struct program_texts {
    int n;
    struct program_text {
        char file[MAX_FILE], *text;
    } * of;
};
/* Adds a copy; nonzero after err_set(). */
int program_texts_add(struct program_texts *all, const char *file, const char *text);
void program_texts_free(struct program_texts *all);
/* Plans that this thread makes from now on take these, where they have one, and no file; NULL: none.  Returns those
 * that it took before. */
const struct program_texts *program_texts_use(const struct program_texts *texts);
/* Is there one for that file? */
int program_texts_have(const char *file);

#endif
