/* The verdicts of a trial as rows of its table, and more of them in a dump that is there
 * (check_rows.h). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5_hl.h>

#include "common/base/err.h"
#include "common/base/h5.h"
#include "common/store/check_rows.h"
#include "common/store/disk.h"
#include "common/store/header.h"

#define CHECK_COLUMN(...) COLUMN_OF(check_row, __VA_ARGS__)
const struct column check_columns[] = {CHECK_COLUMNS(CHECK_COLUMN){NULL}};

struct check_row check_row(const struct verdict *v)
{
    return (struct check_row){.tensor = v->tensor,
                              .check = v->check,
                              .backend = v->backend,
                              .kernel = v->kernel,
                              .error = v->error,
                              .norm = v->norm,
                              .bound = v->bound,
                              .margin = v->bound > 0 ? v->error / v->bound : 0,
                              .worst = v->worst,
                              .first_bad = v->first_bad,
                              .verdict = verdict_word(v),
                              .judged = v->judged,
                              .elements = v->elements,
                              .distance = v->distance,
                              .slices = v->slices,
                              .coarse = v->coarse,
                              .sees = v->power.all,
                              .sees_row = v->power.slice,
                              .sees_element = v->power.element,
                              .samples = v->power.samples};
}

/* A table in memory: the rows that were there, whose strings are HDF5's, and new ones. */
struct rows {
    hid_t type;
    struct check_row *row;
    int there, n;
};

/* The rows that are there; nonzero after err_set(). */
static int read_there(hid_t trial, struct rows *t, int more)
{
    const struct h5_table as = {t->type, 0, 1000000};
    const int any = H5Lexists(trial, "check", H5P_DEFAULT) > 0;
    hid_t table = any ? h5_table(trial, "check", &as, &t->there) : -1;
    int e = any && table < 0 ? -1 : 0;

    if (!e && !(t->row = calloc((size_t)t->there + (size_t)more + 1, sizeof *t->row)))
        e = err_set("no memory for %d verdicts", more);
    if (!e && t->there && H5Dread(table, t->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, t->row) < 0) {
        t->there = 0;
        e = h5_cannot("read the table check");
    }
    t->n = t->there;
    h5_drop(table);
    return e ? -1 : 0;
}

/* Is the row on the results of one of these? */
static int is_again(const struct check_row *row, const struct programs *programs)
{
    for (int i = 0; i < programs->n; i++)
        if (row->backend && strcmp(row->backend, programs->name[i]) == 0)
            return 1;
    return 0;
}

/* The rows that stay and the new ones, as `to`, which has room for all. */
static int joined(const struct rows *t, const struct verdicts *list,
                  const struct programs *programs, struct check_row *to)
{
    int n = 0;

    for (int i = 0; i < t->there; i++)
        if (!is_again(&t->row[i], programs))
            to[n++] = t->row[i];
    for (int i = 0; i < list->n; i++)
        to[n++] = check_row(&list->v[i]);
    return n;
}

/* The table and its axis, linked nowhere as yet; nonzero after err_set(). */
static int make(hid_t trial, hid_t type, const struct check_row *row, int rows, hid_t made[2])
{
    const hsize_t n = (hsize_t)rows;
    char note[80];
    hid_t packed = H5Tcopy(type);

    snprintf(note, sizeof note, "This is a netCDF dimension but not a netCDF variable.%10d", rows);
    made[0] = packed < 0 || H5Tpack(packed) < 0
                  ? -1
                  : h5_dataset_new(trial, NULL, &(struct h5_data){packed, type, 1, &n, 0, row});
    made[1] = h5_dataset_new(trial, NULL,
                             &(struct h5_data){.stored = H5T_IEEE_F32BE, .rank = 1, .dim = &n});
    h5_drop(packed);
    if (made[0] < 0 || made[1] < 0)
        return err_at("table check");
    return H5DSset_scale(made[1], note) < 0 || H5DSattach_scale(made[0], made[1], 0) < 0 ||
                   H5DSset_label(made[0], 0, "verdict") < 0
               ? h5_cannot("name the axis of table check")
               : 0;
}

static int put_counts(hid_t trial, const struct check_row *row, int n)
{
    int failed = 0, unjudged = 0;

    for (int i = 0; i < n; i++) {
        failed += strcmp(row[i].verdict ? row[i].verdict : "", "fail") == 0;
        unjudged += strcmp(row[i].verdict ? row[i].verdict : "", "cannot be judged") == 0;
    }
    return h5_put_int(trial, "n_checks", n) || h5_put_int(trial, "failed", failed) ||
           h5_put_int(trial, "unjudged", unjudged);
}

/* A trial of a file that is written, and HDF5's descriptor, once more. */
struct open_trial {
    hid_t file, trial;
    int fd;
};

enum { SLACK_BYTES = 1 << 16 }; /* what HDF5 may take for groups and attributes */

/* Space for a table of n rows, with its texts. */
static int reserve_rows(const struct open_trial *at, const struct check_row *row, int n)
{
    int64_t bytes = SLACK_BYTES;

    for (int i = 0; i < n; i++) {
        const char *const text[] = {row[i].tensor, row[i].check,   row[i].backend, row[i].kernel,
                                    row[i].worst,  row[i].verdict, row[i].distance};
        bytes += 2 * (int64_t)sizeof *row;
        for (size_t k = 0; k < COUNT(text); k++)
            bytes += 2 * (text[k] ? (int64_t)strlen(text[k]) + 32 : 0);
    }
    return disk_reserve(at->file, at->fd, bytes);
}

/* The new table takes the old one's place once it is on disk. */
static int replace(const struct open_trial *at, const hid_t made[2])
{
    static const char *const name[2] = {"check", "verdict"};
    const hid_t trial = at->trial;

    if (H5Fflush(trial, H5F_SCOPE_LOCAL) < 0)
        return h5_cannot("write");
    if (disk_reserve(at->file, at->fd, SLACK_BYTES))
        return -1;
    for (int i = 0; i < 2; i++)
        if ((H5Lexists(trial, name[i], H5P_DEFAULT) > 0 &&
             H5Ldelete(trial, name[i], H5P_DEFAULT) < 0) ||
            H5Olink(made[i], trial, name[i], H5P_DEFAULT, H5P_DEFAULT) < 0)
            return h5_cannot("link %s", name[i]);
    return 0;
}

static int put(const struct open_trial *at, hid_t type, const struct check_row *row, int n)
{
    hid_t made[2] = {-1, -1};
    int e = reserve_rows(at, row, n) || make(at->trial, type, row, n, made) || replace(at, made) ||
            put_counts(at->trial, row, n);

    if (!e && H5Fflush(at->file, H5F_SCOPE_LOCAL) < 0)
        e = h5_cannot("write");
    h5_drop(made[0]);
    h5_drop(made[1]);
    if (e) {
        char why[512];
        snprintf(why, sizeof why, "%s", err_text());
        disk_trim(at->file, at->fd);
        return err_set("%s", why);
    }
    return disk_trim(at->file, at->fd);
}

static int add(const struct open_trial *at, const struct verdicts *list,
               const struct programs *programs)
{
    struct rows t = {.type = h5_row_type(check_columns, sizeof(struct check_row))};
    struct check_row *all = NULL;
    int e = t.type < 0 || read_there(at->trial, &t, list->n);

    if (!e && !(all = calloc((size_t)t.there + (size_t)list->n + 1, sizeof *all)))
        e = err_set("no memory for %d verdicts", list->n);
    const int n = e ? 0 : joined(&t, list, programs, all);
    if (!e && (list->n || n != t.there))
        e = put(at, t.type, all, n);
    if (t.there) {
        const hsize_t there = (hsize_t)t.there;
        hid_t space = H5Screate_simple(1, &there, NULL);
        H5Dvlen_reclaim(t.type, space, H5P_DEFAULT, t.row);
        h5_drop(space);
    }
    h5_drop(t.type);
    free(t.row);
    free(all);
    return e ? -1 : 0;
}

int checks_add(const char *file, int i, const struct verdicts *list,
               const struct programs *programs)
{
    int e;

    H5E_BEGIN_TRY
    {
        struct open_trial at = {h5_open(file, H5F_ACC_RDWR), -1, -1};
        if (at.file < 0)
            err_set("cannot be written: %s", h5_reason());
        e = at.file < 0 || (at.fd = disk_own(at.file, file)) < 0 || !header_schema(at.file) ||
            (at.trial = header_trial(at.file, i)) < 0 || add(&at, list, programs);
        h5_drop(at.trial);
        if (at.fd >= 0)
            close(at.fd);
        if (at.file >= 0 && H5Fclose(at.file) < 0 && !e)
            e = h5_cannot("close");
    }
    H5E_END_TRY
    return e ? err_at("%s: trial %d", file, i + 1) : 0;
}
