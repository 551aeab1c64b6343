/* screen.h - lines of text for a person: none is wider than where it is printed, but those with a
 * word that is. */
#ifndef SCREEN_H
#define SCREEN_H

#include <stdio.h>

/* What is printed to, and how. */
struct screen {
    FILE *to;
    int width;  /* in columns */
    int colour; /* are verdicts in colour? */
    int tsv;    /* are records wanted in place of tables?  Lines of text are comments then. */
};
/* The width is the value of COLUMNS, or the terminal's, or 120. */
struct screen screen_of(FILE *to, int tsv);

/* Print a line behind `indent` spaces; what does not fit continues further right, at the column
 * behind the first run of spaces after a word ("skipped     ..."), if there is one.  The text is made
 * printable (quote.h): it may hold names from a file. */
void say(const struct screen *s, int indent, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same of text that is printable already, and may have colours. */
void say_printable(const struct screen *s, int indent, const char *text);

/* The columns that UTF-8 text takes; sequences of colour take none. */
int text_columns(const char *text);
/* Text of `columns` at most, cut in the middle where it is longer: "lowr...orm", with an ellipsis. */
void text_cut(const char *text, int columns, char *to, size_t size);

#endif
