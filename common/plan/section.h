/* section.h - a plan while it is read, and the sections that it is made of: what plan.c and
 * expand.c share. */
#ifndef SECTION_H
#define SECTION_H

#include <stddef.h>
#include <stdio.h>

#include "common/plan/ini.h"
#include "common/plan/plan.h"

struct plan {
    const char *file;   /* NULL: it is from words, whose numbers then stand for lines */
    const char *option; /* which these are of, for the faults; NULL: -t */
    struct experiment *x;
    struct fault {
        int line, number;
        char *text;
    } * fault;
    int n_faults;
    int no_memory;    /* for one more of them */
    double available; /* bytes for tensors on this machine */
    char corpus[MAX_FILE],
        contents[MAX_CONTENTS]; /* of training: the last corpus, and what it holds */
    uint64_t corpus_bytes;
    int elsewhere; /* its tensors are the caller's, and not on this machine's account */
};

/* Something is wrong in that line; 0: in the whole. */
void plan_fault(struct plan *p, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Print all faults in the order of the lines and free them; returns how many there are. */
int plan_faults_print(struct plan *p, FILE *errors);

/* Is a section's name of that kind, "trial" or "trial NAME"?  And its NAME, "" where it has none. */
int section_is(const char *name, const char *kind);
const char *section_name(const struct ini_section *s);
/* The first entry of that key, or NULL. */
const struct ini_entry *section_entry(const struct ini_section *s, const char *key);
/* Has any operation a parameter of that name? */
int section_parameter(const char *key);
/* A fault: no such key there; o may be NULL: not known. */
void section_unknown(struct plan *p, const struct ini_section *s, const struct ini_entry *e,
                     const struct op *o);
/* The entry's value, without quotes, to be freed; NULL after a fault. */
char *section_value(struct plan *p, const struct ini_section *s, const struct ini_entry *e,
                    int many);

/* The trials of a section [trial], added to the plan's experiment (expand.c). */
void section_trials(struct plan *p, const struct ini_section *s);

#endif
