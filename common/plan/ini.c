/* libinih parses; our reader finds what it does not report.  The reader hands over the
 * file line by line, and so knows at each call of the handler which line that
 * was, where a section begins even if it is empty, and, by a line with no
 * call, what was rejected.  inih cuts off silently what does not fit its
 * buffers, so a longer line is handed over in parts, as a line and others that
 * continue it. */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/grow.h"
#include "common/base/quote.h"
#include "common/plan/ini.h"

enum {
    MAX_FILE = 1 << 20,
    MAX_KEY = 49 /* inih's MAX_NAME and MAX_SECTION, less the final 0 */
};

struct reading {
    struct ini *ini;
    ini_error *error;
    void *data;
    const char *at, *end; /* what inih has not been given yet */
    int line;             /* of the file, that inih has */
    const char *expects;  /* that line, while it still owes a call of the handler */
    int indented;
    int keyed;  /* inih has a key that an indented line would go on with */
    char *rest; /* of a long line: what inih has not been given yet; or NULL */
    int part;   /* inih has such a rest */
    int lost;   /* but that was not the last one: the last one was an error */
};

__attribute__((format(printf, 3, 4))) static void complain(struct reading *r, int line,
                                                           const char *fmt, ...)
{
    char message[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    r->error(r->data, line, message);
}

/* ---- the list ---- */

int ini_add_section(struct ini *ini, const char *name, int line)
{
    struct ini_section *s = grow(ini->section, ini->n, sizeof *s);
    if (!s)
        return -1;
    ini->section = s;
    s += ini->n;
    *s = (struct ini_section){.name = name ? strdup(name) : NULL, .line = line};
    if (name && !s->name)
        return -1;
    ini->n++;
    return 0;
}

int ini_add_entry(struct ini_section *s, const char *key, const char *value, int line)
{
    struct ini_entry *e = grow(s->entry, s->n, sizeof *e);
    if (!e)
        return -1;
    s->entry = e;
    e += s->n;
    *e = (struct ini_entry){strdup(key), strdup(value), line};
    if (!e->key || !e->value) {
        free(e->key);
        free(e->value);
        return -1;
    }
    s->n++;
    return 0;
}

void ini_free(struct ini *ini)
{
    for (int i = 0; i < ini->n; i++) {
        struct ini_section *s = &ini->section[i];
        for (int j = 0; j < s->n; j++) {
            free(s->entry[j].key);
            free(s->entry[j].value);
        }
        free(s->entry);
        free(s->name);
    }
    free(ini->section);
    free(ini->text);
    memset(ini, 0, sizeof *ini);
}

/* Put what an indented line says behind the last value, as more of its list; a
 * part of a long line, as it is. */
static int go_on(struct ini *ini, const char *more, int part)
{
    struct ini_section *s = &ini->section[ini->n - 1];
    struct ini_entry *e = &s->entry[s->n - 1];
    size_t n = strlen(e->value), size = n + strlen(more) + 3;
    int comma = (n && e->value[n - 1] == ',') || *more == ',';
    char *value = realloc(e->value, size);

    if (!value)
        return -1;
    e->value = value;
    snprintf(value + n, size - n, "%s%s", n == 0 || part ? "" : comma ? " " : ", ", more);
    return 0;
}

/* ---- what inih calls ---- */

static int handle(void *user, const char *section, const char *key, const char *value)
{
    struct reading *r = user;
    struct ini *ini = r->ini;
    int e = 0;

    (void)section;
    if (!key || !value)
        return 1; /* what only other builds of inih do */
    r->expects = NULL;
    if ((r->indented || r->part) && r->keyed) {
        e = r->lost ? 0 : go_on(ini, value, r->part);
    } else if (!*key) {
        complain(r, r->line, "a key is missing before '= %.*s'", quote_fit(value, 60), value);
        r->keyed = 0;
    } else {
        r->keyed = 1;
        r->lost = strlen(key) > MAX_KEY;
        if (r->lost)
            complain(r, r->line, "key '%.*s...' is longer than %d characters", quote_fit(key, 20),
                     key, MAX_KEY);
        else
            e = (ini->n == 0 && ini_add_section(ini, "", 0)) ||
                ini_add_entry(&ini->section[ini->n - 1], key, value, r->line);
    }
    if (e) {
        complain(r, r->line, "no memory for this file");
        r->lost = 1;
    }
    return 1;
}

static int blank(char c)
{
    return isspace((unsigned char)c);
}

/* "[name]", and nothing behind it but a comment; 0 if it is not. */
static int read_header(struct reading *r, const char *line, size_t n)
{
    char name[MAX_KEY + 1];
    const char *close = memchr(line, ']', n), *rest = close + 1;
    size_t length;

    if (!close) {
        complain(r, r->line, "a section has no ]: %.*s", quote_fit(line, 60), line);
        return 0;
    }
    while (rest < line + n && blank(*rest))
        rest++;
    if (rest < line + n && *rest != ';' && *rest != '#') {
        complain(r, r->line, "something stands behind the section's ]: %.*s", quote_fit(rest, 60),
                 rest);
        return 0;
    }
    for (line++; line < close && blank(*line); line++)
        ;
    while (close > line && blank(close[-1]))
        close--;
    length = close - line;
    if (length > MAX_KEY) {
        complain(r, r->line, "section [%.*s...] is longer than %d characters", quote_fit(line, 20),
                 line, MAX_KEY);
        return 0;
    }
    memcpy(name, line, length);
    name[length] = 0;
    if (ini_add_section(r->ini, name, r->line))
        complain(r, r->line, "no memory for this file");
    return 1;
}

/* Does it read "key = ..." or "key: ..."?  "64:256 x2" goes on with a list. */
static int is_entry(const char *line)
{
    const char *c = line;
    while (isalnum((unsigned char)*c) || (*c && strchr("_-.", *c)))
        c++;
    if (c == line)
        return 0;
    c += strspn(c, " \t");
    return *c == '=' || (*c == ':' && !isdigit((unsigned char)*line));
}

/* Did inih do something with the line that it was given last? */
static void expect(struct reading *r)
{
    if (r->expects) {
        complain(r, r->line, "expected key = value at: %.*s", quote_fit(r->expects, 60),
                 r->expects);
        r->lost = 1;
    }
    r->expects = NULL;
}

/* Cut off the comment that a line ends with: ';' behind a blank. */
static size_t without_comment(char *text, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (text[i] == ';' && blank(text[i - 1])) {
            for (n = i; n && blank(text[n - 1]); n--)
                ;
            text[n] = 0;
        }
    return n;
}

/* Where a line can be cut so that inih gives back both parts whole: neither
 * ends or begins with a blank, nor the second like a comment; behind `begin`
 * and at most at `end`.  0 if nowhere. */
static size_t cut(const char *text, size_t begin, size_t end)
{
    while (end > begin && (blank(text[end]) || blank(text[end - 1]) || strchr(";#", text[end])))
        end--;
    return end > begin ? end : 0;
}

/* The next part of a line that does not fit into `size` bytes. */
static void hand_over_part(struct reading *r, char *text, size_t n, char *out, size_t size)
{
    size_t key = r->indented || r->part ? 0 : strcspn(text, "=:"), length = n;

    if (n + 3 > size)
        length = cut(text, key < n ? key + 1 : 0, size - 3);
    snprintf(out, size, "\n");
    r->rest = NULL;
    if (!length) {
        complain(r, r->line, "too long a key, or too many blanks or ';' in a row");
        r->lost = 1;
        return;
    }
    r->expects = text;
    snprintf(out, size, "%s%.*s\n", r->indented || r->part ? " " : "", (int)length, text);
    if (length < n)
        r->rest = text + length;
}

/* Write to `out`, up to `size` bytes, the text that inih gets for a line of n characters. */
static void hand_over(struct reading *r, char *line, size_t n, char *out, size_t size)
{
    char *text = line;

    while (n && blank(text[n - 1]))
        n--;
    while (n && blank(*text)) {
        text++;
        n--;
    }
    text[n] = 0;
    snprintf(out, size, "\n");
    if (!n || *text == ';' || *text == '#')
        return;
    if (*text == '[') {
        if (!read_header(r, text, n) && ini_add_section(r->ini, NULL, r->line))
            complain(r, r->line, "no memory for this file");
        snprintf(out, size, "[x]\n");
        r->keyed = r->lost = 0;
        return;
    }
    r->indented = text > line && !is_entry(text);
    r->part = 0;
    hand_over_part(r, text, without_comment(text, n), out, size);
}

static char *next_line(char *out, int size, void *stream)
{
    struct reading *r = stream;
    const char *line = r->at, *newline;

    expect(r);
    if (r->rest && r->keyed && !r->lost) {
        r->part = 1;
        hand_over_part(r, r->rest, strlen(r->rest), out, size);
        return out;
    }
    r->rest = NULL;
    if (line == r->end)
        return NULL;
    r->line++;
    newline = memchr(line, '\n', r->end - line);
    r->at = newline ? newline + 1 : r->end;
    if (memchr(line, 0, r->at - line)) {
        complain(r, r->line, "a byte of value 0: this is not a text file");
        r->at = r->end;
        return NULL;
    }
    hand_over(r, (char *)line, (newline ? newline : r->end) - line, out, size);
    return out;
}

/* Is there a '#' among the characters up to `end`, outside of quotes and of a comment? */
static int has_hash(const char *c, const char *end)
{
    int quoted = 0;
    for (const char *begin = c; c < end; c++) {
        if (*c == ';' && c > begin && blank(c[-1]))
            return 0;
        if (*c == '#' && !quoted)
            return 1;
        quoted ^= *c == '"';
    }
    return 0;
}

int ini_has_hash(const char *text, int line)
{
    int more = 0; /* the lines that may go on with it */

    for (; line > 1 && (text = strchr(text, '\n')); line--)
        text++;
    for (; text && *text; text += *text == '\n', more = 1) {
        const char *end = text + strcspn(text, "\n"), *c = text;
        while (c < end && blank(*c))
            c++;
        if (more && c < end && (c == text || *c == '[' || is_entry(c)))
            return 0;
        const char *close = *c == '[' ? memchr(c, ']', end - c) : NULL;
        if (c < end && *c != ';' && *c != '#' && has_hash(c, close ? close : end))
            return 1;
        if (*c == '[')
            return 0;
        text = end;
    }
    return 0;
}

/* ---- the file ---- */

/* All of it, and a 0 behind it; NULL after a complaint. */
static char *slurp(struct reading *r, const char *file, size_t *n)
{
    const char *why = file_unreadable(file);
    char *text = malloc(MAX_FILE + 1);
    FILE *in = why ? NULL : fopen(file, "rb");
    int error = errno;

    *n = 0;
    if (text && in) {
        *n = fread(text, 1, MAX_FILE + 1, in);
        error = errno;
    }
    if (!text)
        complain(r, 0, "no memory for this file");
    else if (!in || ferror(in))
        complain(r, 0, "cannot be read: %s", why ? why : strerror(error));
    else if (*n > MAX_FILE)
        complain(r, 0, "is longer than %d bytes", MAX_FILE);
    else
        text[*n] = 0;
    if (text && (!in || ferror(in) || *n > MAX_FILE)) {
        free(text);
        text = NULL;
    }
    if (in)
        fclose(in);
    return text;
}

/* The n bytes of its text. */
static void read_text(struct reading *r, size_t n)
{
    char *copy = malloc(n + 1); /* lines are cut out of it */

    if (!copy) {
        complain(r, 0, "no memory for this file");
        return;
    }
    memcpy(copy, r->ini->text, n + 1);
    r->at = copy;
    r->end = copy + n;
    if (n >= 3 && memcmp(copy, "\xef\xbb\xbf", 3) == 0)
        r->at += 3;
    ini_parse_stream(next_line, r, handle, r);
    expect(r);
    free(copy);
}

void ini_read(struct ini *ini, const char *file, ini_error *error, void *data)
{
    struct reading r = {.ini = ini, .error = error, .data = data};
    size_t n;

    memset(ini, 0, sizeof *ini);
    ini->text = slurp(&r, file, &n);
    if (ini->text)
        read_text(&r, n);
}

void ini_read_text(struct ini *ini, const char *text, ini_error *error, void *data)
{
    struct reading r = {.ini = ini, .error = error, .data = data};
    const size_t n = strlen(text);

    memset(ini, 0, sizeof *ini);
    if (n > MAX_FILE)
        complain(&r, 0, "is longer than %d bytes", MAX_FILE);
    else if (!(ini->text = strdup(text)))
        complain(&r, 0, "no memory for this file");
    else
        read_text(&r, n);
}
