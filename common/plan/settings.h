/* settings.h - a trial's settings by name: section, op, its parameters, dtype, seed, input; and
 * params, which follows from them: the number of a model's parameters and their bytes. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "common/plan/plan.h"

enum { MAX_SETTINGS = 80, MAX_SETTING = 64 };

/* The value of setting `name`, "" where the trial has none. */
void setting_value(const struct trial *t, const char *name, char value[MAX_SETTING]);
/* The parameters of a model among its inputs, in its storage type. */
double trial_parameters(const struct trial *t, int64_t *bytes);
/* Every name that any of n trials has a setting of, in order; returns how many there are.  Those of
 * the parameters of operations stand between "op" and "dtype". */
int settings_of(const struct trial *t, int n, char name[MAX_SETTINGS][MAX_SETTING]);
/* Is it another in some of n trials?  A trial that lacks a parameter of an operation, as one without a
 * gate lacks the gate's, is no other.  *width becomes that of the longest, or of its name. */
int setting_varies(const struct trial *t, int n, const char *name, int *width);
/* The value in the first of n trials; of a parameter, in the first that has it. */
void setting_first(const struct trial *t, int n, const char *name, char value[MAX_SETTING]);
/* Is it the name of a parameter of an operation, and not of every trial? */
int setting_is_parameter(const char *name);

#endif
