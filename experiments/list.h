/* list.h - the table, for a person to read. */
#ifndef LIST_H
#define LIST_H

#include <stdio.h>

/* A line for each operation, and the keys of an ini file; or all about the
 * operation of that name; or the tensors of a GGUF file, whose name has a '.' or '/'.  Nonzero after
 * err_set() if there is none. */
int list(FILE *to, const char *name);
void list_version(FILE *to);

#endif
