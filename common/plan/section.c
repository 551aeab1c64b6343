/* A plan while it is read, and its list of faults (section.h). */
#include "config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/guess.h"
#include "common/base/quote.h"
#include "common/plan/keys.h"
#include "common/plan/section.h"
#include "common/train/cell.h"

enum { MAX_FAULTS = 50 }; /* reported of one file */

/* ---- faults ---- */

void plan_fault(struct plan *p, int line, const char *fmt, ...)
{
    struct fault *more = grow(p->fault, p->n_faults, sizeof *more);
    va_list ap;

    if (!more) {
        p->no_memory = 1;
        return;
    }
    p->fault = more;
    more += p->n_faults;
    *more = (struct fault){line, p->n_faults, NULL};
    char *text = NULL;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) >= 0) {
        more->text = quote_controls(text);
        free(text);
    }
    va_end(ap);
    p->n_faults++;
}

static int by_line(const void *a, const void *b)
{
    const struct fault *x = a, *y = b;
    return x->line != y->line ? (x->line > y->line) - (x->line < y->line)
                              : (x->number > y->number) - (x->number < y->number);
}

/* Is it one of those before it?  Several trials are composed of one section. */
static int is_known(const struct plan *p, const struct fault *f)
{
    for (const struct fault *g = f; f->line && f->text && g-- > p->fault && g->line == f->line;)
        if (g->text && strcmp(g->text, f->text) == 0)
            return 1;
    return 0;
}

int plan_faults_print(struct plan *p, FILE *errors)
{
    char *quoted = quote_controls(p->file ? p->file : p->option ? p->option : "-t");
    const char *from = quoted ? quoted : "?";

    if (p->no_memory)
        fprintf(errors, "%s: no memory\n", from);
    if (p->fault)
        qsort(p->fault, p->n_faults, sizeof *p->fault, by_line);
    int n = 0;
    for (int i = 0; i < p->n_faults; i++) {
        const struct fault *f = &p->fault[i];
        if (is_known(p, f))
            continue;
        if (n < MAX_FAULTS && p->file && f->line)
            fprintf(errors, "%s:%d: %s%s\n", from, f->line, f->text ? f->text : "no memory",
                    p->x->text && ini_has_hash(p->x->text, f->line)
                        ? "; a comment at the end of a line begins with ';', not with '#'"
                        : "");
        else if (n < MAX_FAULTS)
            fprintf(errors, "%s: %s\n", from, f->text ? f->text : "no memory");
        n++;
    }
    for (int i = 0; i < p->n_faults; i++)
        free(p->fault[i].text);
    if (n > MAX_FAULTS)
        fprintf(errors, "%s: and %d more\n", from, n - MAX_FAULTS);
    free(p->fault);
    free(quoted);
    return n + p->no_memory;
}

/* ---- entries ---- */

int section_is(const char *name, const char *kind)
{
    const size_t n = strlen(kind);
    return name && strncmp(name, kind, n) == 0 && (!name[n] || name[n] == ' ' || name[n] == '\t');
}

const char *section_name(const struct ini_section *s)
{
    const char *name = s->name + strcspn(s->name, " \t");
    return name + strspn(name, " \t");
}

const struct ini_entry *section_entry(const struct ini_section *s, const char *key)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->entry[i].key, key) == 0)
            return &s->entry[i];
    return NULL;
}

int section_parameter(const char *key)
{
    int has = 0;
    for (int i = 0; i < N_OPS; i++)
        has |= op_param(ops[i], key, NULL) != NULL;
    return has;
}

static void append_names(const struct plan_key *keys, char *to, size_t size)
{
    for (; keys->name; keys++)
        append(to, size, " %s", keys->name);
}

/* All keys that may stand there; o may be NULL: not known. */
static void known_keys(const struct op *o, int trial, char *to, size_t size)
{
    *to = 0;
    if (trial && o) {
        append(to, size, " (keys of %s:", o->name);
        for (int i = 0; i < o->n_params; i++)
            if (!is_cell(o) || cell_has_key(o, i))
                append(to, size, " %s", o->param[i].name);
        append(to, size, "; of every trial:");
        append_names(trial_keys, to, size);
    } else if (!trial) {
        append(to, size, " (keys:");
        append_names(experiment_keys, to, size);
    }
    if (*to)
        append(to, size, ")");
}

/* Words have but one kind of keys; o may be NULL: not known. */
void section_unknown(struct plan *p, const struct ini_section *s, const struct ini_entry *e,
                     const struct op *o)
{
    int trial = strcmp(s->name, "experiment") != 0, words = !p->file;
    const struct plan_key *own = trial ? trial_keys : experiment_keys;
    const struct plan_key *other = trial ? experiment_keys : trial_keys;
    struct guess g = {e->key, NULL, 0};
    char where[64] = "", more[128] = "", known[1024];

    for (int i = 0; own[i].name; i++)
        guess_among(&g, own[i].name);
    for (int i = 0; words && other[i].name; i++)
        guess_among(&g, other[i].name);
    for (int i = 0; trial && i < N_OPS; i++)
        for (int j = 0; (!o || o == ops[i]) && j < ops[i]->n_params; j++)
            guess_among(&g, ops[i]->param[j].name);
    for (int j = 0; trial && is_cell(o) && j < o->n_params; j++)
        if (cell_has_key(o, j))
            guess_among(&g, o->param[j].name);
    if (!words)
        snprintf(where, sizeof where, " in [%s]", s->name);
    known_keys(o, trial, known, sizeof known);
    if (!words && (key_find(other, e->key) >= 0 || (!trial && section_parameter(e->key)))) {
        snprintf(more, sizeof more, "; it belongs in [%s]", trial ? "experiment" : "trial");
        *known = 0;
    } else if (trial && o && section_parameter(e->key))
        snprintf(more, sizeof more, "; it is no parameter of %s", o->name);
    else if (g.best)
        snprintf(more, sizeof more, "; did you mean '%s'?", g.best);
    plan_fault(p, e->line, "unknown key '%s'%s%s%s", e->key, where, more, known);
}

/* The text in quotes, where "" stands for one; NULL after err_set(). */
static char *unquoted(const char *key, const char *value)
{
    char *text = strdup(value), *to = text;
    const char *from = value + 1;

    while (text && *from && (*from != '"' || from[1] == '"')) {
        from += *from == '"';
        *to++ = *from++;
    }
    if (text && *from && !from[1]) {
        *to = 0;
        return text;
    }
    free(text);
    err_set("%s = %s: it must end where its quotes do", key, value);
    return NULL;
}

char *section_value(struct plan *p, const struct ini_section *s, const struct ini_entry *e,
                    int many)
{
    const struct ini_entry *first = section_entry(s, e->key);
    int quoted = e->value[0] == '"';
    char *value = NULL;

    if (first != e && p->file)
        plan_fault(p, e->line, "%s is listed twice in this section, first in line %d", e->key,
                   first->line);
    else if (first != e)
        plan_fault(p, e->line, "%s is listed twice, as words %d and %d", e->key, first->line,
                   e->line);
    else if (!many && !quoted && strchr(e->value, ','))
        plan_fault(p, e->line, "%s takes one value, not a list", e->key);
    else if (!(value = quoted ? unquoted(e->key, e->value) : strdup(e->value)))
        plan_fault(p, e->line, "%s", quoted ? err_text() : "no memory");
    else if (!*value)
        plan_fault(p, e->line, "%s: a value is missing", e->key);
    if (value && !*value) {
        free(value);
        value = NULL;
    }
    return value;
}
