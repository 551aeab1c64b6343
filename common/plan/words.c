/* The words that make a trial again (plan.h). */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/plan/keys.h"
#include "common/plan/plan.h"
#include "common/train/cell.h"

/* The value in quotes where it needs them among words. */
static void quoted(const char *value, char *to, size_t size)
{
    size_t n = 0;
    if (!strpbrk(value, " ,\"")) {
        snprintf(to, size, "%s", value);
        return;
    }
    to[n++] = '"';
    for (; *value && n + 4 < size; value++) {
        if (*value == '"')
            to[n++] = '"';
        to[n++] = *value;
    }
    to[n++] = '"';
    to[n] = 0;
}

int plan_text(struct trial *t)
{
    char sizes[MAX_TEXT], more[2 * sizeof t->file + 8], goals[3 * sizeof t->goal[0].text];
    char *at = t->text, *end = at + sizeof t->text;

    op_text(&t->call, sizes);
    quoted(t->program, more, sizeof more);
    at += snprintf(
        at, end - at, "%s%s%s%s%s dtype=%s seed=%" PRIu64 "%s%s%s%s", t->call.op->name,
        *t->program ? " program=" : "", more, *sizes ? " " : "", sizes, types[t->type].name,
        t->seed, t->accumulate ? " accumulate=yes" : "", t->in_place ? " in_place=yes" : "",
        is_cell(t->call.op) ? "" : " input=", is_cell(t->call.op) ? "" : input_names[t->input]);
    const char *const keys[] = {" file", " group", " tensor", " eval", " kernel"};
    const char *const values[] = {t->file, t->group, t->tensor, t->eval, t->kernel};
    for (int i = 0; i < (int)COUNT(keys) && at < end; i++) {
        quoted(values[i], more, sizeof more);
        if (*values[i])
            at += snprintf(at, end - at, "%s=%s", keys[i], more);
    }
    goals_words(t->goal, goals, sizeof goals);
    if (at < end)
        at += snprintf(at, end - at, "%s", goals);
    if (at >= end)
        return err_set("as a line of words it is longer than %d characters", MAX_LINE - 1);
    return 0;
}
