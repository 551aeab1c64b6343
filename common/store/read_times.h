/* read_times.h - the times in a dump, read back: of this schema and of the one before. */
#ifndef READ_TIMES_H
#define READ_TIMES_H

#include <hdf5.h>

#include "common/plan/plan.h"

/* A row of the table `time`. */
struct timing {
    char backend[16], kernel[32], pass[16];
    double median, spread; /* seconds; spread is the median distance from the median */
    int64_t runs;
    char method[64]; /* of timing: the caches before, and a replay */
};
/* Those of a trial. */
struct timings {
    char line[MAX_LINE]; /* the words that make the trial again */
    struct timing *timing;
    int n;
};
/* Of a file, finished or not: the trials in it that are complete. */
struct dump_times {
    char *device; /* "gpu32: NVIDIA H200, ..." a line each backend */
    struct timings *trial;
    int n;
};

/* Those in a trial's group; n is 0 where it was not timed.  Nonzero after err_set(); free
 * to->timing in any case. */
int dump_timings(hid_t trial, struct timings *to);
/* Those of a file; NULL after err_set(). */
struct dump_times *dump_times_read(const char *file);
void dump_times_free(struct dump_times *d);

#endif
