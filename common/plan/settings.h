/* settings.h - a trial's settings by name: section, op, its parameters, dtype, seed, input. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "common/plan/plan.h"

enum { MAX_SETTINGS = 40, MAX_SETTING = 64 };

/* The value of setting `name`, "" where the trial has none. */
void setting_value(const struct trial *t, const char *name, char value[MAX_SETTING]);
/* Every name that any trial has a setting of, in order; returns how many there are. */
int settings_of(const struct experiment *x, char name[MAX_SETTINGS][MAX_SETTING]);
/* Is it another in some trials?  *width becomes that of the longest, or of its name. */
int setting_varies(const struct experiment *x, const char *name, int *width);

#endif
