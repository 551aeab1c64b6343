/* head.h - what stands above the tables: the experiment, the machine, and what the run will do. */
#ifndef HEAD_H
#define HEAD_H

#include "common/report/baseline.h"
#include "common/report/screen.h"
#include "common/store/store.h"

/* A run that writes `file`. */
struct run_head {
    const char *file;
    struct store *store;      /* which says what existing file it replaces */
    int resumed;              /* trials that are complete already */
    const struct baseline *b; /* what times are compared with; or NULL */
};
/* How large the dump will be, in words, "up to 1.2 GiB"; with a store, what is still to come.  "" where
 * that cannot be said.  Returns text. */
enum { DUMP_SIZE = 100 };
const char *dump_size(const struct experiment *x, struct store *s, char text[DUMP_SIZE]);
/* How long the references will take, in words; "" where that is under a minute. */
enum { RUN_TIME = 100 };
const char *run_time(const struct experiment *x, int resumed, char text[RUN_TIME]);
void head_of_run(const struct screen *s, const struct experiment *x, const struct run_head *h);
/* Of the judgement of results in `file`: those of program `as`, or of all (NULL). */
void head_of_judged(const struct screen *s, const struct experiment *x, const char *file,
                    const char *as);

#endif
