/* ini.h - an ini file as a list of its sections and entries, each with its line.
 *
 *     [section]
 *     key = value         ; a comment; so is a line that begins with ; or #
 *     key = a, b,
 *           c, d          ; an indented line goes on with the list
 *
 * An indented line that reads "key = value" or "[section]" is that, however,
 * so that a section may be indented.  Lines end in LF or CRLF and may be of any
 * length. */
#ifndef COMMON_INI_H /* INI_H is inih's */
#define COMMON_INI_H

struct ini_entry {
    char *key, *value;
    int line;
};

struct ini_section {
    char *name; /* "" and line 0: what stands before any header; NULL: a header
                                * that could not be read, its entries belong nowhere */
    int line;
    struct ini_entry *entry;
    int n;
};

struct ini {
    char *text; /* the whole file */
    struct ini_section *section;
    int n;
};

/* Called for each error, with one sentence; line 0 means the file as a whole. */
typedef void ini_error(void *data, int line, const char *message);

/* Read a file.  ini gets all that could be read, whether or not error() was called; ini_free()
 * frees it. */
void ini_read(struct ini *ini, const char *file, ini_error *error, void *data);
void ini_free(struct ini *ini);
/* The same of the text of a file. */
void ini_read_text(struct ini *ini, const char *text, ini_error *error, void *data);
/* Has what begins in that line of the text, and indented lines go on with, a '#' that begins no
 * comment, outside of quotes? */
int ini_has_hash(const char *text, int line);

/* Nonzero: no memory. */
int ini_add_section(struct ini *ini, const char *name, int line);
int ini_add_entry(struct ini_section *s, const char *key, const char *value, int line);

#endif
