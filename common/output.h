/* output.h - the output file of an experiment, and which files may be replaced.
 *
 * Symbolic links are followed, and stay.  An output is refused if it exists
 * and is not a regular file; if the experiment reads it, under any name, as
 * its ini or an input; if it is no dump of ablate; or, unless that is
 * forced, if it is a dump of another plan.  An empty file counts as none.  The same rules
 * hold for NAME.h5.part; whether that may be discarded is tested under its
 * lock (store.c). */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <sys/stat.h>

#include "common/plan.h"

enum { MAX_OUTPUT = 600 };
struct output {
    char file[MAX_OUTPUT], part[MAX_OUTPUT + 8]; /* no symbolic links */
    int there;                                   /* something was, which is */
    dev_t dev;
    ino_t ino;
    char date[16]; /* of the dump that is replaced; "": none is */
};

/* Finds the output file of x.  Nonzero after err_set(). */
int output_find(const struct experiment *x, struct output *o);
/* May the existing file be replaced?  Nonzero after err_set(): it may not. */
int output_may_replace(const struct experiment *x, int force, struct output *o);
/* Is the existing file still the same one?  Nonzero after err_set(): it is not. */
int output_unchanged(const struct output *o);

#endif
