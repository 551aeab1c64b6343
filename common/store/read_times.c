/* Reads the times in a dump, of the schemas ablate-2 and ablate-1 (read_times.h). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/h5.h"
#include "common/base/quote.h"
#include "common/call/contract.h"
#include "common/call/machine.h"
#include "common/run/result.h"
#include "common/store/header.h"
#include "common/store/read_times.h"

/* The columns of a time that are read; text is HDF5's to free. */
#define READ_COLUMNS(COLUMN)                                                                       \
    COLUMN(s, backend, NO_UNIT, IN_DUMP, NULL, 0)                                                  \
    COLUMN(s, kernel, NO_UNIT, IN_DUMP, NULL, 0)                                                   \
    COLUMN(s, pass, NO_UNIT, IN_DUMP, NULL, 0)                                                     \
    COLUMN(d, median, IN_SECONDS, IN_DUMP, NULL, 0)                                                \
    COLUMN(d, spread, IN_SECONDS, IN_DUMP, NULL, 0)                                                \
    COLUMN(i, runs, NO_UNIT, IN_DUMP, NULL, 0)                                                     \
    COLUMN(s, method, NO_UNIT, IN_DUMP, NULL, 0)
#define READ_COLUMN(...) COLUMN_OF(read_row, __VA_ARGS__)

struct read_row {
    READ_COLUMNS(COLUMN_MEMBER)
};
static const struct column read_columns[] = {READ_COLUMNS(READ_COLUMN){NULL}};

/* Printable, as reports and records show it; "" where there is none. */
static void keep_text(char *to, size_t size, const char *text)
{
    quote_bytes(text ? text : "", text ? strlen(text) : 0, to, size);
}

static void keep_timings(struct timing *to, const struct read_row *from, int n, int schema)
{
    for (int i = 0; i < n; i++) {
        const struct read_row *r = &from[i];
        to[i] = (struct timing){.median = r->median, .spread = r->spread, .runs = r->runs};
        const struct backend *b = r->backend ? backend_find(r->backend) : NULL;
        keep_text(to[i].backend, sizeof to[i].backend, b ? b->name : r->backend);
        keep_text(to[i].kernel, sizeof to[i].kernel, r->kernel);
        keep_text(to[i].pass, sizeof to[i].pass, r->pass);
        const char *method = r->method ? r->method : "";
        snprintf(to[i].method, sizeof to[i].method, "%s%s",
                 schema == 1 && strcmp(method, "warm") == 0 ? "caches " : "", method);
    }
}

static int read_table(hid_t trial, struct timings *to)
{
    struct read_row rows[MAX_RAN * N_PASSES] = {{.backend = NULL}};
    int schema = header_schema(trial), n = 0;
    struct column column[COUNT(read_columns)];
    hid_t row = !schema || header_columns(read_columns, schema, column, COUNT(column))
                    ? -1
                    : h5_row_type(column, sizeof(struct read_row));
    const struct h5_table as = {row, 1, COUNT(rows)};
    hid_t table = row < 0 ? -1 : h5_table(trial, "time", &as, &n);
    int e = table < 0 ? -1 : 0;

    if (!e && !(to->timing = calloc(n + 1, sizeof *to->timing)))
        e = err_set("no memory for %d times", n);
    if (!e && H5Dread(table, row, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows) < 0)
        e = h5_cannot("read the table time");
    if (!e) {
        to->n = n;
        keep_timings(to->timing, rows, n, schema);
    }
    if (table >= 0) {
        hid_t space = H5Dget_space(table);
        H5Dvlen_reclaim(row, space, H5P_DEFAULT, rows);
        h5_drop(space);
    }
    h5_drop(table);
    h5_drop(row);
    return e;
}

int dump_timings(hid_t trial, struct timings *to)
{
    char *line = h5_get_text(trial, "line");
    int e = !line;

    *to = (struct timings){.n = 0};
    if (line)
        snprintf(to->line, sizeof to->line, "%s", line);
    free(line);
    if (e || H5Lexists(trial, "time", H5P_DEFAULT) <= 0)
        return e ? -1 : 0;
    return read_table(trial, to);
}

/* Of the complete trials, which are counted in d->n. */
static int read_trials(hid_t file, struct dump_times *d)
{
    int n = header_trials(file), e = 0;
    if (n < 0)
        return -1;
    d->trial = calloc(n + 1, sizeof *d->trial);
    if (!d->trial)
        return err_set("no memory for the times of %d trials", n);
    for (int i = 0; !e && i < n; i++) {
        hid_t g = header_trial(file, i);
        int complete = g < 0 ? -1 : header_complete(g);
        e = complete < 0;
        if (complete > 0)
            e = dump_timings(g, &d->trial[d->n++]) ? err_at("trial %d", i + 1) : 0;
        h5_drop(g);
    }
    return e;
}

static int read_dump(const char *name, struct dump_times *d)
{
    hid_t file = header_open(name), root = -1;
    if (file < 0)
        return -1;
    int e = header_same(file, NULL) == NOT_OURS || (root = H5Gopen2(file, "/", H5P_DEFAULT)) < 0 ||
            !(d->device = h5_get_text(root, "device")) || read_trials(file, d);
    h5_drop(root);
    H5Fclose(file);
    return e ? -1 : 0;
}

struct dump_times *dump_times_read(const char *file)
{
    struct dump_times *d = calloc(1, sizeof *d);
    int e;

    if (!d)
        return err_null("no memory for the times of %s", file);
    QUIETLY(e = read_dump(file, d))
    if (!e)
        return d;
    err_at("%s", file);
    dump_times_free(d);
    return NULL;
}

void dump_times_free(struct dump_times *d)
{
    for (int i = 0; d && i < d->n; i++)
        free(d->trial[i].timing);
    if (d) {
        free(d->trial);
        free(d->device);
    }
    free(d);
}
