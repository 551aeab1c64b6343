/* The settings of a trial by name (settings.h). */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/plan/keys.h"
#include "common/plan/settings.h"

void setting_value(const struct trial *t, const char *name, char value[MAX_SETTING])
{
    int place;
    char buffer[32];

    *value = 0;
    if (strcmp(name, "op") == 0)
        snprintf(value, MAX_SETTING, "%s", t->call.op->name);
    else if (strcmp(name, "section") == 0)
        snprintf(value, MAX_SETTING, "%s", t->section);
    else if (strcmp(name, "dtype") == 0)
        snprintf(value, MAX_SETTING, "%s", types[t->type].name);
    else if (strcmp(name, "seed") == 0)
        snprintf(value, MAX_SETTING, "%" PRIu64, t->seed);
    else if (strcmp(name, "input") == 0)
        snprintf(value, MAX_SETTING, "%s", input_names[t->input]);
    else if (strcmp(name, "accumulate") == 0)
        snprintf(value, MAX_SETTING, "%s", no_yes[t->accumulate]);
    else if (op_param(t->call.op, name, &place))
        snprintf(value, MAX_SETTING, "%s", op_value(&t->call, place, buffer));
}

int settings_of(const struct experiment *x, char name[MAX_SETTINGS][MAX_SETTING])
{
    int n = 0, accumulates = 0;
    snprintf(name[n++], MAX_SETTING, "section");
    snprintf(name[n++], MAX_SETTING, "op");
    for (int i = 0; i < x->n; i++) {
        const struct op *o = x->trial[i].call.op;
        accumulates |= x->trial[i].accumulate;
        for (int p = 0; p < o->n_params; p++) {
            int known = 0;
            for (int j = 0; j < n; j++)
                known |= strcmp(name[j], o->param[p].name) == 0;
            if (!known && n < MAX_SETTINGS - 4)
                snprintf(name[n++], MAX_SETTING, "%s", o->param[p].name);
        }
    }
    snprintf(name[n++], MAX_SETTING, "dtype");
    snprintf(name[n++], MAX_SETTING, "seed");
    snprintf(name[n++], MAX_SETTING, "input");
    if (accumulates)
        snprintf(name[n++], MAX_SETTING, "accumulate");
    return n;
}

int setting_varies(const struct experiment *x, const char *name, int *width)
{
    char first[MAX_SETTING], value[MAX_SETTING];
    int differ = 0;

    *width = (int)strlen(name);
    setting_value(&x->trial[0], name, first);
    for (int i = 0; i < x->n; i++) {
        setting_value(&x->trial[i], name, value);
        differ |= strcmp(value, first) != 0;
        if ((int)strlen(value) > *width)
            *width = (int)strlen(value);
    }
    return differ;
}
