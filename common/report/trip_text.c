/* Prints round trips (trip_text.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>

#include "common/report/trip_text.h"
#include "common/store/trip_rows.h"

void trips_columns(struct table *t)
{
    for (const struct column *c = trip_columns; c->name; c++)
        if (c->head)
            table_add(t, c->head, c->width, NUMBER, c->kind == 'i');
}

/* A number of a row. */
static double value_of(const struct column *c, const struct trip_row *row)
{
    const void *at = (const char *)row + c->offset;
    return c->kind == 'i' ? (double)*(const int64_t *)at : *(const double *)at;
}

void trips_cells(struct row *to, const struct ran *ran)
{
    const struct trip_row row = trip_row(ran);

    for (const struct column *c = trip_columns; c->name; c++) {
        if (!c->head)
            continue;
        const double x = value_of(c, &row);
        if (!trip_has(ran) || isnan(x))
            row_add(to, "-");
        else
            row_add(to, c->kind == 'i' ? "%.0f" : "%.4g", x);
    }
}

void trips_tsv(FILE *to, int trial, const struct result *r)
{
    for (int i = 0; i < r->n_ran; i++) {
        const struct trip_row row = trip_row(&r->ran[i]);
        for (const struct column *c = trip_columns; c->name && trip_has(&r->ran[i]); c++)
            if (c->shown & IN_TSV)
                fprintf(to, "%d\t%s\t%s\tround_trip\t%s\t%.9g\t\t\t\t\t\t\t\t\t%s\n", trial,
                        row.backend, row.kernel, c->name, value_of(c, &row), r->trial->text);
    }
}
