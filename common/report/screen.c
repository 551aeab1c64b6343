/* Lines of text for a person (screen.h). */
#include "config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/colour.h"
#include "common/base/number.h"
#include "common/base/quote.h"
#include "common/report/screen.h"

enum { NO_TERMINAL = 120, NARROWEST = 40, WIDEST = 1000 };

/* COLUMNS is the user's preferred width, by POSIX. */
static int width_of(FILE *to)
{
    const char *columns = getenv("COLUMNS");
    struct winsize w = {0};
    int64_t n;

    if (columns && !number_whole(columns, NARROWEST, WIDEST, &n))
        return (int)n;
    if (ioctl(fileno(to), TIOCGWINSZ, &w) || w.ws_col < NARROWEST)
        return NO_TERMINAL;
    return w.ws_col;
}

struct screen screen_of(FILE *to, int tsv)
{
    return (struct screen){to, width_of(to), !tsv && colour_wanted(to), tsv};
}

/* The bytes of the character at c, of the byte that is written as \xHH, or of the sequence of colour,
 * and the columns it takes. */
static int character(const char *c, int *columns)
{
    int n = 1;

    *columns = 0;
    if (*c == '\033') {
        n = (int)strcspn(c, "m");
        return n + (c[n] == 'm');
    }
    if (quote_escaped(c))
        return *columns = 4;
    while ((c[n] & 0xc0) == 0x80)
        n++;
    *columns = 1;
    return n;
}

int text_columns(const char *text)
{
    int columns = 0, one;
    for (; *text; columns += one)
        text += character(text, &one);
    return columns;
}

/* The place behind the characters that fit into n columns. */
static const char *behind(const char *text, int n)
{
    int one;

    while (*text && n > 0) {
        const int bytes = character(text, &one);
        if (one > n)
            break;
        n -= one;
        text += bytes;
    }
    return text;
}

/* The place before the last characters that fit into n columns. */
static const char *before_last(const char *text, int n)
{
    int one;

    for (int left = text_columns(text); left > n; left -= one)
        text += character(text, &one);
    return text;
}

void text_cut(const char *text, int columns, char *to, size_t size)
{
    const int all = text_columns(text), kept = columns - 1;

    if (all <= columns)
        snprintf(to, size, "%s", text);
    else
        snprintf(to, size, "%.*s\xe2\x80\xa6%s", (int)(behind(text, kept - kept / 2) - text), text,
                 before_last(text, kept / 2));
}

/* Where a line of text that is too long continues: behind its label, or two columns further right. */
static int hanging(const char *text)
{
    const char *word = text + strspn(text, " "), *gap = word + strcspn(word, " ");
    const size_t spaces = strspn(gap, " ");
    return spaces > 1 ? (int)(gap + spaces - text) : 2;
}

/* The bytes of text that go onto a line of so many columns: up to a space, or the whole word. */
static size_t one_line(const char *text, int columns)
{
    const char *end = behind(text, columns), *at = end;

    if (!*end)
        return strlen(text);
    while (at > text && *at != ' ')
        at--;
    while (at > text && at[-1] == ' ')
        at--;
    return at > text ? (size_t)(at - text) : strcspn(text, " ") ? strcspn(text, " ") : 1;
}

void say_printable(const struct screen *s, int indent, const char *text)
{
    const char *at = text;

    if (s->tsv) {
        fprintf(s->to, "# %s\n", text);
        return;
    }
    const int more = hanging(at);
    do {
        const int left = indent + (at == text ? 0 : more);
        const size_t n = one_line(at, s->width - left);
        fprintf(s->to, "%*s%.*s\n", left, "", (int)n, at);
        at += n;
        at += strspn(at, " ");
    } while (*at);
}

void say(const struct screen *s, int indent, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    char *printable = text ? quote_controls(text) : NULL;
    say_printable(s, indent, printable ? printable : "");
    free(printable);
    free(text);
}
