/* The programs of a plan (programs.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/grow.h"
#include "common/plan/programs.h"
#include "common/program/program.h"

const char PROGRAM_OP[] = "program";

enum { MAX_BYTES = 1 << 20 }; /* of a text */

/* A whole file as text; NULL after a fault. */
static char *text_of(struct plan *p, const char *file, int line)
{
    FILE *from = fopen(file, "rb");
    char *text = malloc(MAX_BYTES + 1);
    const size_t n = from && text ? fread(text, 1, MAX_BYTES + 1, from) : 0;
    const int failed = !from || !text || ferror(from);

    if (from)
        fclose(from);
    if (!failed && n <= MAX_BYTES && !memchr(text, 0, n)) {
        text[n] = 0;
        return text;
    }
    plan_fault(p, line, "program = %s: %s", file,
               failed          ? "cannot be read"
               : n > MAX_BYTES ? "is longer than 1 MiB"
                               : "is no text");
    free(text);
    return NULL;
}

/* Each line of a text of errors is a fault. */
static void fault_lines(struct plan *p, int line, char *errors)
{
    for (char *at = errors, *one; (one = strsep(&at, "\n"));)
        if (*one)
            plan_fault(p, line, "%s", one);
}

static struct program *read_text(struct plan *p, const char *file, const char *text, int line)
{
    char *said = NULL;
    size_t n;
    FILE *errors = open_memstream(&said, &n);
    struct program *made = errors ? program_read(file, text, errors) : NULL;

    if (errors)
        fclose(errors);
    else
        plan_fault(p, line, "program = %s: no memory", file);
    if (said)
        fault_lines(p, line, said);
    free(said);
    return made;
}

const struct op *plan_program(struct plan *p, const char *file, int line)
{
    struct experiment *x = p->x;

    for (int i = 0; i < x->n_programs; i++)
        if (strcmp(program_name(x->program[i]), file) == 0)
            return program_op(x->program[i]);
    char *text = text_of(p, file, line);
    struct program *made = text ? read_text(p, file, text, line) : NULL;
    struct program **more = made ? grow(x->program, x->n_programs, sizeof *more) : NULL;
    free(text);
    if (!more) {
        if (made)
            plan_fault(p, line, "program = %s: no memory", file);
        program_free(made);
        return NULL;
    }
    x->program = more;
    more[x->n_programs++] = made;
    return program_op(made);
}

void programs_free(struct experiment *x)
{
    for (int i = 0; i < x->n_programs; i++)
        program_free(x->program[i]);
    free(x->program);
    x->program = NULL;
    x->n_programs = 0;
}
