/* The table of an operation's trials (group.h). */
#include "config.h"

#include <string.h>

#include "common/base/grow.h"
#include "common/report/group.h"
#include "common/report/time_text.h"
#include "common/report/train_text.h"
#include "common/report/trip_text.h"

/* Settings that others say as well leave after what memory takes. */
static int goes(const char *setting)
{
    return strcmp(setting, "section") == 0 || strcmp(setting, "params") == 0 ? 3 : 0;
}

static void check_columns(struct table *t, const struct group *g, const struct experiment *x)
{
    table_add(t, "backend", 8, WORDS, 0);
    if (x->repeats) {
        table_add(t, "forward", 8, NUMBER, 3);
        table_add(t, "backward", 8, NUMBER, 2);
    }
    table_add(t, "MiB saved", 9, NUMBER, 1);
    table_add(t, "worst error", 0, NUMBER, 0);
    table_add(t, "of", 10, WORDS, 0);
    if (g->trips)
        trips_columns(t);
    table_add(t, "checks", 8, WORDS, 0);
}

/* Is its value a number, which is never cut? */
static int is_number(const struct op *o, const char *setting)
{
    const struct param *p = op_param(o, setting, NULL);
    return p ? !p->choices : strcmp(setting, "seed") == 0 || strcmp(setting, "params") == 0;
}

/* The columns of the settings that vary. */
static void add_settings(struct group *g, const struct experiment *x)
{
    char name[MAX_SETTINGS][MAX_SETTING];
    const struct trial *t = &x->trial[g->first];
    const int n = settings_of(t, g->n, name);

    table_add(&g->table, "#", 4, NUMBER, 0);
    for (int i = 0, width; i < n; i++) {
        if (!setting_varies(t, g->n, name[i], &width))
            continue;
        memcpy(g->varying[g->n_varying++], name[i], MAX_SETTING);
        table_add(&g->table, name[i], width, is_number(t->call.op, name[i]) ? NUMBER : WORDS,
                  goes(name[i]));
    }
    g->table.n_settings = g->n_varying;
}

void group_begin(struct group *g, const struct experiment *x, int i, int width)
{
    const struct op *o = x->trial[i].call.op;

    memset(g, 0, sizeof *g);
    for (g->first = i; g->first > 0 && op_same(x->trial[g->first - 1].call.op, o);)
        g->first--;
    while (g->first + g->n < x->n && op_same(x->trial[g->first + g->n].call.op, o))
        g->n++;
    g->trips = x->measure == MEASURE_CHECK && o->inverse;
    add_settings(g, x);
    if (x->measure == MEASURE_TIME)
        times_columns(&g->table);
    else if (x->measure == MEASURE_CROSSOVER)
        crossover_columns_of(&g->table);
    else if (x->measure == MEASURE_TRAIN)
        training_columns(&g->table);
    else
        check_columns(&g->table, g, x);
    table_fit(&g->table, width);
}

void group_head(const struct group *g, const struct experiment *x, const struct screen *s)
{
    char name[MAX_SETTINGS][MAX_SETTING], value[MAX_SETTING], text[MAX_LINE] = "";
    const struct trial *t = &x->trial[g->first];
    const int n = settings_of(t, g->n, name);
    int width;

    if (*t->program)
        append(text, sizeof text, " %s", t->program);
    for (int i = 0; i < n; i++) {
        setting_first(t, g->n, name[i], value);
        if (*value && strcmp(name[i], "op") != 0 && !setting_varies(t, g->n, name[i], &width) &&
            (setting_is_parameter(name[i]) || setting_varies(x->trial, x->n, name[i], &width)))
            append(text, sizeof text, " %s=%s", name[i], value);
    }
    fputc('\n', s->to);
    say(s, 0, "%s%s%s", t->call.op->name, *text ? " " : "", text);
    table_head(&g->table, s);
}

void group_trial(const struct group *g, const struct experiment *x, int i, struct row *row)
{
    char value[MAX_SETTING];

    row->n = 0;
    row_add(row, "%d", i + 1);
    for (int c = 0; c < g->n_varying; c++) {
        setting_value(&x->trial[i], g->varying[c], value);
        row_add(row, "%s", *value ? value : "-");
    }
}
