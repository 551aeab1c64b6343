/* The settings of a trial by name (settings.h). */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/number.h"
#include "common/plan/keys.h"
#include "common/plan/settings.h"
#include "common/train/cell.h"

double trial_parameters(const struct trial *t, int64_t *bytes)
{
    if (is_cell(t->call.op))
        return cell_parameters(&t->call, t->type, bytes);
    const struct call f = call_on(&t->call, reference_of(t->type), NULL, NULL);
    return op_parameters(&f, bytes);
}

/* "16.6 k, 64.8 KiB" */
static void parameters_text(const struct trial *t, char value[MAX_SETTING])
{
    char count[NUMBER_TEXT], memory[NUMBER_TEXT];
    int64_t bytes;
    const double n = trial_parameters(t, &bytes);

    if (n > 0)
        snprintf(value, MAX_SETTING, "%s, %s", number_count(n, count),
                 number_bytes((double)bytes, memory));
}

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
        snprintf(value, MAX_SETTING, "%s", is_cell(t->call.op) ? "" : input_names[t->input]);
    else if (strcmp(name, "accumulate") == 0)
        snprintf(value, MAX_SETTING, "%s", no_yes[t->accumulate]);
    else if (strcmp(name, "in_place") == 0)
        snprintf(value, MAX_SETTING, "%s", no_yes[t->in_place]);
    else if (strcmp(name, "params") == 0)
        parameters_text(t, value);
    else if (op_param(t->call.op, name, &place))
        snprintf(value, MAX_SETTING, "%s", op_value(&t->call, place, buffer));
}

/* The settings that stand before and behind the parameters. */
static const char *const before[] = {"section", "op"};
static const char *const after[] = {"dtype", "params", "seed", "input", "accumulate", "in_place"};

int setting_is_parameter(const char *name)
{
    int others = 0;
    for (int i = 0; i < (int)COUNT(before); i++)
        others |= strcmp(before[i], name) == 0;
    for (int i = 0; i < (int)COUNT(after); i++)
        others |= strcmp(after[i], name) == 0;
    return !others;
}

int settings_of(const struct trial *t, int n, char name[MAX_SETTINGS][MAX_SETTING])
{
    int names = 0, accumulates = 0, in_place = 0;

    for (int i = 0; i < (int)COUNT(before); i++)
        snprintf(name[names++], MAX_SETTING, "%s", before[i]);
    for (int i = 0; i < n; i++) {
        const struct op *o = t[i].call.op;
        accumulates |= t[i].accumulate;
        in_place |= t[i].in_place;
        for (int p = 0; p < o->n_params && (!i || o != t[i - 1].call.op); p++) {
            int known = 0;
            for (int j = 0; j < names; j++)
                known |= strcmp(name[j], o->param[p].name) == 0;
            if (!known && names < MAX_SETTINGS - (int)COUNT(after))
                snprintf(name[names++], MAX_SETTING, "%s", o->param[p].name);
        }
    }
    for (int i = 0; i < (int)COUNT(after); i++)
        if ((accumulates || strcmp(after[i], "accumulate") != 0) &&
            (in_place || strcmp(after[i], "in_place") != 0))
            snprintf(name[names++], MAX_SETTING, "%s", after[i]);
    return names;
}

int setting_varies(const struct trial *t, int n, const char *name, int *width)
{
    char first[MAX_SETTING], value[MAX_SETTING];
    const int may_lack = setting_is_parameter(name);
    int differ = 0;

    *width = (int)strlen(name);
    setting_first(t, n, name, first);
    for (int i = 0; i < n; i++) {
        setting_value(&t[i], name, value);
        differ |= strcmp(value, first) != 0 && (*value || !may_lack);
        if ((int)strlen(value) > *width)
            *width = (int)strlen(value);
    }
    return differ;
}

void setting_first(const struct trial *t, int n, const char *name, char value[MAX_SETTING])
{
    const int may_lack = setting_is_parameter(name);

    setting_value(&t[0], name, value);
    for (int i = 1; may_lack && !*value && i < n; i++)
        setting_value(&t[i], name, value);
}
