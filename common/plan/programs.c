/* The programs of a plan (programs.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/grow.h"
#include "common/plan/keys.h"
#include "common/plan/programs.h"
#include "common/program/program.h"

const char PROGRAM_OP[] = "program";

enum { MAX_BYTES = 1 << 20 }; /* of a text */

/* ---- texts in place of files ---- */

static _Thread_local const struct program_texts *used;

int program_texts_add(struct program_texts *all, const char *file, const char *text)
{
    struct program_text *more = grow(all->of, all->n, sizeof *more);
    char *copy = strdup(text);

    if (more)
        all->of = more;
    if (!more || !copy) {
        free(copy);
        return err_set("no memory for the text of %s", file);
    }
    snprintf(more[all->n].file, sizeof more->file, "%s", file);
    more[all->n++].text = copy;
    return 0;
}

void program_texts_free(struct program_texts *all)
{
    for (int i = 0; i < all->n; i++)
        free(all->of[i].text);
    free(all->of);
    *all = (struct program_texts){0, NULL};
}

const struct program_texts *program_texts_use(const struct program_texts *texts)
{
    const struct program_texts *before = used;
    used = texts;
    return before;
}

static const char *text_in_place(const char *file)
{
    for (int i = 0; used && i < used->n; i++)
        if (strcmp(used->of[i].file, file) == 0)
            return used->of[i].text;
    return NULL;
}

int program_texts_have(const char *file)
{
    return text_in_place(file) != NULL;
}

/* ---- the program of a file ---- */

/* A whole file as text; NULL after err_set(). */
static char *text_of(const char *file)
{
    const char *given = text_in_place(file), *why = given ? NULL : file_unreadable(file);
    size_t n = given ? strlen(given) : 0;
    char *text = given ? strdup(given) : NULL, *more;

    if (given)
        return text ? text : err_null("program = %s: no memory", file);
    if (why)
        return err_null("program = %s: %s", file, why);
    if (!(text = (char *)file_read(file, &n)))
        return NULL;
    const char *bad = n > MAX_BYTES        ? "is longer than 1 MiB"
                      : memchr(text, 0, n) ? "is no text"
                                           : NULL;
    if (bad || !(more = realloc(text, n + 1))) {
        free(text);
        return err_null("program = %s: %s", file, bad ? bad : "no memory");
    }
    more[n] = 0;
    return more;
}

/* No size may be a key that every trial has. */
static int has_own_keys(const struct op *o, FILE *errors)
{
    int good = 1;

    for (int i = 0; i < o->n_params; i++) {
        const char *name = o->param[i].name;
        if (key_find(trial_keys, name) < 0 && strcmp(name, "op") && strcmp(name, PROGRAM_OP))
            continue;
        fprintf(errors, "%s:%d: %s is a key of every trial: give the size another name\n",
                program_name_of(o), program_size_line(o, name), name);
        good = 0;
    }
    return good;
}

/* The errors of its text go to `said`, a line each, which is to be freed; where it is NULL err_set() has one. */
static const struct op *program_of(const char *file, char **said)
{
    char *text = text_of(file);
    size_t n;
    FILE *errors;

    *said = NULL;
    if (!text)
        return NULL;
    errors = open_memstream(said, &n);
    const struct program *known = errors ? program_known(file, text, errors) : NULL;
    const int good = known && has_own_keys(program_op(known), errors);
    if (errors)
        fclose(errors);
    else
        err_set("program = %s: no memory", file);
    free(text);
    return good ? program_op(known) : NULL;
}

const struct op *plan_program(struct plan *p, const char *file, int line)
{
    char *said, *at;
    const struct op *o = program_of(file, &said);

    if (!o && !said)
        plan_fault(p, line, "%s", err_text());
    at = said;
    for (char *one; at && (one = strsep(&at, "\n"));)
        if (*one)
            plan_fault(p, line, "%s", one);
    free(said);
    return o;
}

const char *program_file(const char *name)
{
    static const char prefix[] = "program=";
    return strncmp(name, prefix, sizeof prefix - 1) == 0 ? name + sizeof prefix - 1 : NULL;
}

const struct op *program_load(const char *file)
{
    char *said;
    const struct op *o = program_of(file, &said);

    if (!o && said) {
        said[strcspn(said, "\n")] = 0;
        err_set("%s", said);
    }
    free(said);
    return o;
}
