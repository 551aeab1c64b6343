/* keys.h - the keys of an ini file's sections, for plan.c. */
#ifndef KEYS_H
#define KEYS_H

#include "common/plan/plan.h"

/* Beside CHECK_...: what `checks` is while it is being read as "none". */
enum { CHECK_NONE = 8 };

/* Give x the values, "differences, parity", of a key of [experiment] that takes a list. */
int key_list(const char *key, const char *values, struct experiment *x);
/* The place of a name among keys, or -1. */
int key_find(const struct plan_key *keys, const char *name);
/* May it stand in the name of an experiment? */
int key_is_name(char c);

extern const char *const case_names[],
    *const input_names[], *const measure_names[], *const judge_names[], *const save_names[];
/* Those of checks, each with its flag. */
extern const char *const check_names[];
extern const int check_flags[];

#endif
