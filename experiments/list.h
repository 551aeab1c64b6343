/* list.h - the table, for a person to read. */
#ifndef LIST_H
#define LIST_H

#include <stdio.h>

/* All operations, or the one of that name (nonzero after err_set() if there
 * is none), and the keys of an ini file. */
int list(FILE *to, const char *name);
void list_version(FILE *to);

#endif
