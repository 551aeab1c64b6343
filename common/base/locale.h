/* Numbers and letters are read and written as C has them.  A program that uses the library may have another
 * locale, whose numbers have a comma, whose capital of i is another letter, and whose messages are in
 * another language: the thread uses C's between locale_begin() and locale_end(), and then its own again. */
#ifndef LOCALE_H
#define LOCALE_H

#include <locale.h>

/* What locale_end() is given.  They may be nested. */
locale_t locale_begin(void);
void locale_end(locale_t was);

#endif
