/* text.h - the lines of a program, as they stand (program.h). */
#ifndef PROGRAM_TEXT_H
#define PROGRAM_TEXT_H

#include <pthread.h>
#include <stdio.h>

#include "common/program/program.h"

enum { MAX_WORDS = 40 };

/* The parameter that every program has besides its sizes. */
#define RECOMPUTE "recompute"

/* key=value, an input by its place (no key), or a result. */
struct word {
    char key[MAX_NAME], value[MAX_NAME];
};

enum line_kind { LINE_SIZE, LINE_INPUT, LINE_CALL, LINE_REPEAT, LINE_OUTPUT };

struct line {
    enum line_kind kind;
    int number;          /* in the file, from 1 */
    int inside;          /* the index of the repeat line that it is below, or -1 */
    char name[MAX_NAME]; /* of a size, an input, or what a repeat is counted by */
    const struct op *op; /* of a call */
    struct word
        word[MAX_WORDS]; /* a size's default; an input's axes; a call's inputs and keys; outputs */
    int n_words;
    struct word result[MAX_WORDS];
    int n_results;
};

struct instance;

/* An operation, and the program whose it is. */
struct program_op {
    struct op op;
    struct program *program;
};

struct program {
    struct program_op all; /* it has the sizes as parameters, and no tensors */
    char name[512];        /* of the file, in messages */
    char *text;
    struct program *next; /* of those that are kept */
    struct line *line;
    int n;
    struct param *param; /* the sizes */
    int n_params;
    /* Those that were made, by their sizes, newest first. */
    pthread_mutex_t lock;
    struct instance *made;
};

/* Does the line set that key, or name that input? */
int line_has_key(const struct line *l, const char *key);
/* The line of a size of that name; NULL: none. */
const struct line *program_size(const struct program *p, const char *name);

#endif
