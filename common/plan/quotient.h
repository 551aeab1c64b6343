/* quotient.h - an item of a list that depends on another size: the same work at each length.
 *
 *     columns = 1:200000 random 20
 *     rows = 50331648 / columns       ; rounded down
 *
 * N / KEY is a whole number divided by the value that KEY, another whole-number parameter of the
 * operation, has in the same trial, rounded down.  KEY may be a list, but has no quotient itself. */
#ifndef QUOTIENT_H
#define QUOTIENT_H

#include "common/call/contract.h"
#include "common/call/machine.h"

/* The KEY of a value that is written as N / KEY, or NULL. */
const char *quotient_key(const char *value);
/* Nonzero after err_set() if the key cannot have that value, which is N / KEY. */
int quotient_check(const struct op *o, const char *key, const char *value);
/* Set the key, where f has the other sizes; nonzero after err_set() if the key cannot be that. */
int quotient_set(struct call *f, const char *key, const char *value);

#endif
