/* quote.h - text of a user's or a file's as a terminal, a record or a shell should get it.
 *
 * A file may have any bytes in its names.  What is printed of them has no control character (ASCII's,
 * DEL, U+0080 to U+009F), none that changes the direction of writing, and no byte that is not UTF-8:
 * each byte of these is written as \xHH. */
#ifndef QUOTE_H
#define QUOTE_H

#include <stddef.h>
#include <stdio.h>

/* The bytes of the character at `text`, which has n bytes and one at least; 0: it is none, or is not
 * to be printed. */
int quote_printable(const char *text, size_t n);
/* Does a byte that was made \xHH stand at `text`? */
int quote_escaped(const char *text);
/* The bytes of `text` that fit into `most`, for "%.*s": the last of them is a whole character, or the end
 * of an \xHH that is whole. */
int quote_fit(const char *text, int most);
/* The n bytes of `text`, printable, in `size` bytes of `to`: how many of them fit, cut as quote_fit()
 * does. */
size_t quote_bytes(const char *text, size_t n, char *to, size_t size);
/* The same of all of a text.  To be freed; NULL: no memory. */
char *quote_controls(const char *text);
/* A field of CSV, printable, in quotes where RFC 4180 wants them.  Nonzero after err_set(): no memory. */
int quote_csv(const char *text, FILE *to);
/* One word of a shell's command: 'it'\''s', or the text as it is where every
 * shell reads that alike.  With `always` the quotes stand in any case.  To be
 * freed; NULL: no memory. */
char *quote_shell(const char *text, int always);

#endif
