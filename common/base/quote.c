/* Quotes text for a terminal or a shell (quote.h). */
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/quote.h"

int quote_printable(const char *text, size_t n)
{
    const unsigned char *c = (const void *)text;
    const int more = *c < 0x80 ? 0 : *c < 0xc2 ? -1 : *c < 0xe0 ? 1 : *c < 0xf0 ? 2 : 3;
    unsigned code = more < 1 ? *c : *c & (0x3fu >> more);

    if (more < 0 || *c > 0xf4 || (size_t)more >= n)
        return 0;
    for (int i = 1; i <= more; i++) {
        if ((c[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (c[i] & 0x3fu);
    }
    const int too_long = (more == 2 && code < 0x800) || (more == 3 && code < 0x10000);
    const int bidi = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    return too_long || bidi || code < 0x20 || (code >= 0x7f && code < 0xa0) || code > 0x10ffff ||
                   (code >= 0xd800 && code < 0xe000) || (code & 0xfffe) == 0xfffe
               ? 0
               : more + 1;
}

int quote_escaped(const char *text)
{
    return text[0] == '\\' && text[1] == 'x' && isxdigit((unsigned char)text[2]) &&
           isxdigit((unsigned char)text[3]);
}

/* What is never cut: the bytes of an escape, of a character, or one that is no character's; n is how
 * many there are. */
static size_t unit(const char *text, size_t n)
{
    if (n >= 4 && quote_escaped(text))
        return 4;
    const int good = quote_printable(text, n);
    return good ? (size_t)good : 1;
}

int quote_fit(const char *text, int most)
{
    const size_t n = strnlen(text, (size_t)most + 4);
    size_t at = 0, next = 0;

    while (at < n && (next = at + unit(text + at, n - at)) <= (size_t)most)
        at = next;
    return (int)at;
}

size_t quote_bytes(const char *text, size_t n, char *to, size_t size)
{
    size_t at = 0, used = 0;

    while (at < n) {
        const size_t one = unit(text + at, n - at);
        const int good = one > 1 || quote_printable(text + at, n - at);
        const size_t takes = good ? one : 4;
        if (used + takes >= size)
            break;
        if (good)
            memcpy(to + used, text + at, takes);
        else
            snprintf(to + used, size - used, "\\x%02x", (unsigned char)text[at]);
        at += one;
        used += takes;
    }
    to[used] = 0;
    return at;
}

char *quote_controls(const char *text)
{
    const size_t n = strlen(text), size = 4 * n + 1;
    char *quoted = malloc(size);

    if (quoted)
        quote_bytes(text, n, quoted, size);
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

int quote_csv(const char *text, FILE *to)
{
    char *plain = quote_controls(text);

    if (!plain)
        return err_set("no memory for a field");
    const int quoted = plain[strcspn(plain, ",\"")] || *plain == ' ';
    if (quoted)
        fputc('"', to);
    for (const char *c = plain; *c; c++) {
        if (*c == '"')
            fputc('"', to);
        fputc(*c, to);
    }
    if (quoted)
        fputc('"', to);
    free(plain);
    return 0;
}
