/* output.h - which file an experiment is written to, and what may be replaced.
 *
 * Symbolic links are followed, and stay.  An output is refused if it is no
 * regular file; if it is one that the experiment reads, by whatever name: its
 * ini or an input; if something stands there that is no dump of ours; or,
 * unless forced, if it is a dump of another plan.  An empty file counts as
 * none.  What holds for NAME.h5 holds for NAME.h5.part, too, while whether
 * that may be thrown away is asked under its lock (store.c). */
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

/* Where x is to be written.  Nonzero after err_set(). */
int output_find(const struct experiment *x, struct output *o);
/* May what is there now be replaced?  Nonzero after err_set(). */
int output_may_replace(const struct experiment *x, int force, struct output *o);
/* Is that what is there still?  Nonzero after err_set(). */
int output_unchanged(const struct output *o);

#endif
