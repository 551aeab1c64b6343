/* trip_rows.h - the table `round_trip` of a trial: what is lost where tensors are packed (round_trip.h). */
#ifndef TRIP_ROWS_H
#define TRIP_ROWS_H

#include "common/base/column.h"
#include "common/run/result.h"

#define TRIP_COLUMNS(COLUMN)                                                                       \
    COLUMN(s, backend, NO_UNIT, IN_DUMP, NULL, 0)                                                  \
    COLUMN(s, kernel, NO_UNIT, IN_DUMP, NULL, 0)                                                   \
    COLUMN(d, bits, NO_UNIT, IN_BOTH, "bits", 6)                                                   \
    COLUMN(i, bytes, IN_BYTES, IN_BOTH, "bytes", 9)                                                \
    COLUMN(d, rmse, FRACTION, IN_BOTH, "RMSE", 9)                                                  \
    COLUMN(d, worst, FRACTION, IN_BOTH, "worst", 9)

struct trip_row {
    TRIP_COLUMNS(COLUMN_MEMBER)
};
extern const struct column trip_columns[]; /* ends with a NULL name */

/* Is anything known of its round trip? */
static inline int trip_has(const struct ran *ran)
{
    return ran->trip.bytes > 0;
}
struct trip_row trip_row(const struct ran *ran);

#endif
