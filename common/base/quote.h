/* quote.h - text of a user's as a terminal or a shell should get it. */
#ifndef QUOTE_H
#define QUOTE_H

#include <stddef.h>

/* Each control character as \xHH.  To be freed; NULL: no memory. */
char *quote_controls(const char *text);
/* One word of a shell's command: 'it'\''s', or the text as it is where every
 * shell reads that alike.  With `always` the quotes stand in any case.  To be
 * freed; NULL: no memory. */
char *quote_shell(const char *text, int always);

#endif
