/* colour.h - the words of verdicts in colour, on a terminal. */
#ifndef COLOUR_H
#define COLOUR_H

#include <stdio.h>

enum colour { GREEN, YELLOW, RED };
/* May what is printed there be in colour?  Not where it is no terminal, where NO_COLOR is set and
 * not empty (https://no-color.org), or where TERM is unset, empty or "dumb". */
int colour_wanted(FILE *to);
/* The sequences that begin and end a colour; "" where it is not wanted. */
const char *colour_begin(int wanted, enum colour c);
const char *colour_end(int wanted);

#endif
