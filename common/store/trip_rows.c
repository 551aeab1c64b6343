/* Fills the rows of the table of round trips (trip_rows.h). */
#include "config.h"

#include "common/store/trip_rows.h"

#define TRIP_COLUMN(...) COLUMN_OF(trip_row, __VA_ARGS__)
const struct column trip_columns[] = {TRIP_COLUMNS(TRIP_COLUMN){NULL}};

struct trip_row trip_row(const struct ran *ran)
{
    const struct round_trip *t = &ran->trip;
    return (struct trip_row){.backend = ran_name(ran),
                             .kernel = ran->call.kernel->name,
                             .bits = t->bits,
                             .bytes = t->bytes,
                             .rmse = t->rmse,
                             .worst = t->worst};
}
