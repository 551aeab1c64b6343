/* time_rows.h - the tables of measured times: their columns, and what a row of each holds. */
#ifndef TIME_ROWS_H
#define TIME_ROWS_H

#include "common/base/column.h"
#include "common/run/result.h"
#include "common/run/roofline.h"

/* Times in seconds.  memory to latency are the fractions of the ceilings that were reached, and
 * bound_by names the largest.  intensity to efficiency are its place under the roofline (roofline.h);
 * registers to waves those of the launch with the most threads, where they are known. */
#define TIME_COLUMNS(COLUMN)                                                                       \
    COLUMN(i, trial, NO_UNIT, IN_TSV, NULL, 0)                                                     \
    COLUMN(s, backend, NO_UNIT, IN_BOTH, "backend", 8)                                             \
    COLUMN(s, kernel, NO_UNIT, IN_BOTH, "kernel", 12)                                              \
    COLUMN(s, pass, NO_UNIT, IN_BOTH, "pass", 8)                                                   \
    COLUMN(d, median, IN_SECONDS, IN_BOTH, "median", 8)                                            \
    COLUMN(d, min, IN_SECONDS, IN_BOTH, "min", 8)                                                  \
    COLUMN(d, max, IN_SECONDS, IN_BOTH, "max", 8)                                                  \
    COLUMN(d, spread, IN_SECONDS, IN_DUMP, NULL, 0)                                                \
    COLUMN(d, median_no_graph, IN_SECONDS, IN_DUMP, NULL, 0)                                       \
    COLUMN(i, runs, NO_UNIT, IN_BOTH, "runs", 4)                                                   \
    COLUMN(s, method, NO_UNIT, IN_DUMP, NULL, 0)                                                   \
    COLUMN(d, tokens, NO_UNIT, IN_DUMP, NULL, 0)                                                   \
    COLUMN(d, flops, NO_UNIT, IN_DUMP, NULL, 0)                                                    \
    COLUMN(d, bytes, IN_BYTES, IN_DUMP, NULL, 0)                                                   \
    COLUMN(d, specials, NO_UNIT, IN_DUMP, NULL, 0)                                                 \
    COLUMN(d, tokens_per_s, PER_SECOND, IN_TSV, "tokens/s", 8)                                     \
    COLUMN(d, flops_per_s, GIGA_PER_SECOND, IN_TSV, "GFLOP/s", 8)                                  \
    COLUMN(d, bytes_per_s, GIGA_PER_SECOND, IN_TSV, "GB/s", 8)                                     \
    CEILINGS(FRACTION_COLUMN, COLUMN)                                                              \
    COLUMN(s, bound_by, NO_UNIT, IN_BOTH, "bound by", 8)                                           \
    COLUMN(d, intensity, PLAIN, IN_BOTH, "FLOP/B", 6)                                              \
    COLUMN(d, ridge, PLAIN, IN_BOTH, NULL, 0)                                                      \
    COLUMN(d, attainable, PER_SECOND, IN_BOTH, NULL, 0)                                            \
    COLUMN(d, efficiency, FRACTION, IN_BOTH, "roofline", 8)                                        \
    COLUMN(i, launches, NO_UNIT, IN_BOTH, "launches", 8)                                           \
    COLUMN(i, registers, NO_UNIT, IN_BOTH, "regs", 4)                                              \
    COLUMN(i, spills, IN_BYTES, IN_BOTH, NULL, 0)                                                  \
    COLUMN(i, smem, IN_BYTES, IN_BOTH, "smem", 6)                                                  \
    COLUMN(i, blocks_per_sm, NO_UNIT, IN_BOTH, NULL, 0)                                            \
    COLUMN(d, occupancy, FRACTION, IN_BOTH, "occup.", 7)                                           \
    COLUMN(d, waves, PLAIN, IN_BOTH, "waves", 6)                                                   \
    COLUMN(s, worst, NO_UNIT, IN_TSV, NULL, 0)                                                     \
    COLUMN(d, error, FRACTION, IN_TSV, NULL, 0)                                                    \
    COLUMN(i, peak_bytes, IN_BYTES, IN_DUMP, NULL, 0)                                              \
    COLUMN(i, saved_bytes, IN_BYTES, IN_BOTH, NULL, 0)                                             \
    COLUMN(i, predicted_bytes, IN_BYTES, IN_BOTH, NULL, 0)                                         \
    COLUMN(i, used_bytes, IN_BYTES, IN_BOTH, NULL, 0)                                              \
    COLUMN(s, judged, NO_UNIT, IN_TSV, NULL, 0)                                                    \
    COLUMN(s, verdict, NO_UNIT, IN_TSV, NULL, 0)                                                   \
    COLUMN(s, line, NO_UNIT, IN_TSV, NULL, 0)
#define FRACTION_COLUMN(COLUMN, ID, name) COLUMN(d, name, FRACTION, IN_BOTH, #name, 7)

/* A time of one kernel and pass at one batch, on the way to their crossover; in --tsv also the
 * crossover itself, as `what` says. */
#define CROSSOVER_TIME_COLUMNS(COLUMN)                                                             \
    COLUMN(i, trial, NO_UNIT, IN_TSV, NULL, 0)                                                     \
    COLUMN(s, backend, NO_UNIT, IN_BOTH, NULL, 0)                                                  \
    COLUMN(s, kernel, NO_UNIT, IN_BOTH, NULL, 0)                                                   \
    COLUMN(s, pass, NO_UNIT, IN_BOTH, NULL, 0)                                                     \
    COLUMN(s, what, NO_UNIT, IN_TSV, NULL, 0)                                                      \
    COLUMN(i, batch, NO_UNIT, IN_BOTH, NULL, 0)                                                    \
    COLUMN(d, rows, IN_ROWS, IN_BOTH, NULL, 0)                                                     \
    COLUMN(d, median, IN_SECONDS, IN_BOTH, NULL, 0)                                                \
    COLUMN(d, min, IN_SECONDS, IN_BOTH, NULL, 0)                                                   \
    COLUMN(d, max, IN_SECONDS, IN_BOTH, NULL, 0)                                                   \
    COLUMN(i, runs, NO_UNIT, IN_BOTH, NULL, 0)                                                     \
    COLUMN(s, line, NO_UNIT, IN_TSV, NULL, 0)

/* The rows from which on they are bound by throughput; 0: none of these.  And why no larger batch was
 * timed, up to the trial's, or "". */
#define CROSSOVER_COLUMNS(COLUMN)                                                                  \
    COLUMN(s, backend, NO_UNIT, IN_DUMP, NULL, 0)                                                  \
    COLUMN(s, kernel, NO_UNIT, IN_DUMP, NULL, 0)                                                   \
    COLUMN(s, pass, NO_UNIT, IN_DUMP, NULL, 0)                                                     \
    COLUMN(d, rows, IN_ROWS, IN_DUMP, NULL, 0)                                                     \
    COLUMN(s, stopped, NO_UNIT, IN_DUMP, NULL, 0)

struct time_row {
    TIME_COLUMNS(COLUMN_MEMBER)
};
struct crossover_time {
    CROSSOVER_TIME_COLUMNS(COLUMN_MEMBER)
};
struct crossover_row {
    CROSSOVER_COLUMNS(COLUMN_MEMBER)
};
/* They end with a NULL name. */
extern const struct column time_columns[], crossover_time_columns[], crossover_columns[];

/* Did it get a time?  References may be there without one. */
int times_has(const struct ran *ran);
/* A pass of a kernel that ran; its values are not known where it got no time. */
struct time_row time_row(const struct ceilings *c, const struct result *r, const struct ran *ran,
                         enum pass p);
/* What a pass that got a time does, and how. */
struct profile time_profile(const struct ceilings *c, const struct ran *ran, enum pass p);
/* A kernel that declined; `verdict` says why, and must outlive the row. */
struct time_row declined_row(const struct result *r, const struct declined *d, const char *verdict);
/* Batch i of a kernel. */
struct crossover_time crossover_time(const struct result *r, const struct crossover *g, int i,
                                     enum pass p);
/* A kernel's crossover, in its own table and among the rows of its times. */
struct crossover_row crossover_row(const struct crossover *g, enum pass p);
struct crossover_time crossover_as_time(const struct result *r, const struct crossover *g,
                                        enum pass p);

#endif
