/* column.h - a column of a table: its name, its type, its unit and where it is shown.  A list of
 * columns is written once; the struct of a row, the table in the dump, the records of --tsv and
 * the columns that a person reads all follow from it. */
#ifndef COLUMN_H
#define COLUMN_H

#include <stddef.h>
#include <stdint.h>

/* The unit that a value is written in; names and words have none. */
enum unit { NO_UNIT, PLAIN, IN_SECONDS, PER_SECOND, GIGA_PER_SECOND, FRACTION, IN_BYTES, IN_ROWS };
enum { IN_DUMP = 1, IN_TSV = 2, IN_BOTH = IN_DUMP | IN_TSV };

/* A column of a table: where it is in a row.  Its kind is 's' a string, 'd' a double, or 'i' an
 * int64_t.  A NaN, or a whole number below 0, is not known: --tsv leaves it out. */
struct column {
    const char *name; /* in the dump and in --tsv */
    size_t offset;
    char kind;
    enum unit unit;
    int shown;
    const char *head; /* where a person reads it, in so many characters; NULL: it is not there */
    int width;
};

/* A list has COLUMN(kind, name, unit, shown, head, width) for each column.  These make of it
 * the members of a row, the columns, and a row of which nothing is known. */
#define COLUMN_TYPE_s const char *
#define COLUMN_TYPE_d double
#define COLUMN_TYPE_i int64_t
#define COLUMN_NONE_s ""
#define COLUMN_NONE_d NAN
#define COLUMN_NONE_i -1
#define COLUMN_MEMBER(kind, name, unit, shown, head, width) COLUMN_TYPE_##kind name;
#define COLUMN_NONE(kind, name, unit, shown, head, width) .name = COLUMN_NONE_##kind,
#define COLUMN_OF(row, kind, name, unit, shown, head, width)                                       \
    {#name, offsetof(struct row, name), #kind[0], unit, shown, head, width},

#endif
