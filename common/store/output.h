/* output.h - the output file of an experiment, and which files may be replaced.
 *
 * Symbolic links are followed, and stay.  An output is refused if it exists
 * and is not a regular file; if the experiment reads it, under any name, as
 * its ini or an input; or if it is no dump of ablate.  A dump of another plan
 * keeps its contents under the name NAME.h5.~1~ (or 2, 3, up to 999) unless it
 * is forced to be replaced, or is scratch.  An empty file counts as none.  The
 * same rules decide what NAME.h5.part may be; whether that may be discarded is
 * tested under its lock (store.c). */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <sys/stat.h>

#include "common/plan/plan.h"

enum { MAX_OUTPUT = 600 };
struct output {
    char file[MAX_OUTPUT], part[MAX_OUTPUT + 8]; /* no symbolic links */
    int there;                                   /* the file existed, with this device and inode */
    dev_t dev;
    ino_t ino;
    char date[16];                /* of the dump that is replaced; "": none is */
    char backup[MAX_OUTPUT + 16]; /* the name that this dump gets; "": it is not kept */
};

/* Finds the output file of x.  Nonzero after err_set(). */
int output_find(const struct experiment *x, struct output *o);
/* May the existing file be replaced, and under what name is it kept?  Nonzero after err_set(): it
 * may not. */
int output_may_replace(const struct experiment *x, int force, struct output *o);
/* Give the part the output's name, and the existing file the backup's.  Nonzero after err_set(),
 * where the existing file is no longer the one that was looked at, or where a name cannot be
 * given; the existing file then stays. */
int output_replace(const struct output *o);

#endif
