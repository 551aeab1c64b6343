/* cases.h - a text of settings, expanded into cases.
 *
 *     "steps=5 state=full,diagonal nonlin=tanh,linear; steps=9"
 *
 * is two sections; each stands for the product of its lists, the last key
 * fastest. */
#ifndef CASES_H
#define CASES_H

#include "common/call/contract.h"
#include "common/call/machine.h"

/* Lists of values by key, and an odometer over their product.  A list may be
 * of any length.  The keys may be those of several operations. */
enum { MAX_LISTS = 2 * MAX_PARAMS };
struct lists {
    int n;
    struct list {
        char key[64];
        char **value;
        int n_values, at;
        int line; /* where it was set, for messages */
    } list[MAX_LISTS];
};

/* Add "key = a, b, c"; nonzero after err_set(), also where a value stands
 * there twice, as 5 and +5 do. */
int lists_add(struct lists *l, const char *key, const char *values, int line);
/* Step to the next combination; 0 after the last. */
int lists_next(struct lists *l);
void lists_free(struct lists *l);

/* Call each() for every case; stops at the first nonzero, which it returns,
 * and returns -1 after err_set() where the text is wrong. */
int cases_each(const struct op *o, const char *text, int (*each)(const struct call *f, void *data),
               void *data);
/* The one case that the text describes, into f. */
int cases_one(const struct op *o, const char *text, struct call *f);

#endif
