/* Quotes a user's text for a terminal or a shell (quote.h). */
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/quote.h"

/* ASCII's, and those that UTF-8 writes as C2 80 to C2 9F. */
static int is_control(const unsigned char *c)
{
    return *c < 0x20 || *c == 0x7f || (c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f);
}

char *quote_controls(const char *text)
{
    size_t size = 4 * strlen(text) + 1;
    char *quoted = malloc(size), *to = quoted;

    for (const unsigned char *c = (const void *)text; quoted && *c; c++)
        if (is_control(c))
            to += snprintf(to, quoted + size - to, "\\x%02x", *c);
        else
            *to++ = (char)*c;
    if (quoted)
        *to = 0;
    return quoted;
}

static int is_plain(char c)
{
    return isascii((unsigned char)c) && (isalnum((unsigned char)c) || strchr("_-./:=,+@%", c));
}

char *quote_shell(const char *text, int always)
{
    char *quoted = malloc(4 * strlen(text) + 3), *to = quoted;
    size_t plain = 0;

    while (text[plain] && is_plain(text[plain]))
        plain++;
    if (!quoted)
        return NULL;
    if (!always && plain && !text[plain])
        return strcpy(quoted, text);
    *to++ = '\'';
    for (const char *c = text; *c; c++)
        if (*c == '\'')
            to = stpcpy(to, "'\\''");
        else
            *to++ = *c;
    *to++ = '\'';
    *to = 0;
    return quoted;
}
