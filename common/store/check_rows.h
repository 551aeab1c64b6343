/* check_rows.h - the table `check` of a trial in a dump: a row for each verdict. */
#ifndef CHECK_ROWS_H
#define CHECK_ROWS_H

#include <hdf5.h>

#include "common/base/column.h"
#include "common/judge/check.h"

/* Strings are of variable length: netCDF's library corrupts memory over fixed ones in a table. */
#define CHECK_COLUMNS(COLUMN)                                                                      \
    COLUMN(s, tensor, NO_UNIT, IN_DUMP, NULL, 0)                                                   \
    COLUMN(s, check, NO_UNIT, IN_DUMP, NULL, 0)                                                    \
    COLUMN(s, backend, NO_UNIT, IN_DUMP, NULL, 0)                                                  \
    COLUMN(s, kernel, NO_UNIT, IN_DUMP, NULL, 0)                                                   \
    COLUMN(d, error, FRACTION, IN_DUMP, NULL, 0)                                                   \
    COLUMN(d, norm, FRACTION, IN_DUMP, NULL, 0)                                                    \
    COLUMN(d, bound, FRACTION, IN_DUMP, NULL, 0)                                                   \
    COLUMN(d, margin, FRACTION, IN_DUMP, NULL, 0)                                                  \
    COLUMN(s, worst, NO_UNIT, IN_DUMP, NULL, 0)                                                    \
    COLUMN(i, first_bad, NO_UNIT, IN_DUMP, NULL, 0)                                                \
    COLUMN(s, verdict, NO_UNIT, IN_DUMP, NULL, 0)                                                  \
    COLUMN(i, judged, NO_UNIT, IN_DUMP, NULL, 0)                                                   \
    COLUMN(i, elements, NO_UNIT, IN_DUMP, NULL, 0)                                                 \
    COLUMN(s, distance, NO_UNIT, IN_DUMP, NULL, 0)                                                 \
    COLUMN(i, slices, NO_UNIT, IN_DUMP, NULL, 0)                                                   \
    COLUMN(i, coarse, NO_UNIT, IN_DUMP, NULL, 0)                                                   \
    COLUMN(d, sees, FRACTION, IN_DUMP, NULL, 0)                                                    \
    COLUMN(d, sees_row, FRACTION, IN_DUMP, NULL, 0)                                                \
    COLUMN(d, sees_element, FRACTION, IN_DUMP, NULL, 0)                                            \
    COLUMN(i, samples, NO_UNIT, IN_DUMP, NULL, 0)

/* Of a row that has no samples, as those of older dumps, what it sees is not known. */
struct check_row {
    CHECK_COLUMNS(COLUMN_MEMBER)
};
extern const struct column check_columns[];
struct check_row check_row(const struct verdict *v);

/* In a dump that is there, trial i, from 0, gets the verdicts on the results of these other programs,
 * whose earlier rows go, whoever wrote them; the trial's counts follow.  The new table is on disk before it takes the old one's place.
 * Nothing is written where there is neither a verdict nor an earlier row.  Nonzero after err_set(): the
 * file cannot be written, or is none of ours. */
struct programs {
    const char *const *name;
    int n;
};
int checks_add(const char *file, int i, const struct verdicts *list,
               const struct programs *programs);

#endif
