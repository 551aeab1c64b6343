/* store.c - the HDF5 file of an experiment, written so that being killed at
 * any moment costs no finished trial.
 *
 * Opening makes a group for every trial of the plan, with all that is known
 * beforehand, under a name of its own, and moves the file into place when it
 * is whole.  From then on nothing that trials share is changed.  Writing a
 * trial then goes
 *
 *     reserve the room on disk
 *     write all its objects, linked nowhere     flush: nothing refers to them yet
 *     link them into the trial's group          flush: all they refer to is there
 *     set the group's `complete`                flush
 *
 * so that what is on disk is consistent after any number of writes, and an
 * object that could not be finished is gone as soon as it is closed. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hdf5.h>
#include <hdf5_hl.h>

#include "common/columns.h"
#include "common/err.h"
#include "common/h5.h"
#include "common/header.h"
#include "common/keys.h"
#include "common/output.h"
#include "common/store.h"

enum { MIB = 1 << 20 };

struct store {
    const struct experiment *x;
    hid_t file;
    int fd;       /* HDF5's own, once more: to reserve room, cut it off, sync it */
    int finished; /* it has its final name already: there is nothing to write */
    struct output out;
    const char *name; /* now: the part's, or the finished file's */
};

/* ---- room on the disk ---- */

/* The file ends where HDF5 says, not where room was reserved. */
static int trim(struct store *s)
{
    hsize_t end;
    if (H5Fget_filesize(s->file, &end) < 0)
        return h5_cannot("see its size");
    return ftruncate(s->fd, end) ? err_set("cannot cut it off: %s", strerror(errno)) : 0;
}

static int reserve(struct store *s, int64_t bytes)
{
    hsize_t end;
    int e;

    if (H5Fget_filesize(s->file, &end) < 0)
        return h5_cannot("see its size");
    do
        e = posix_fallocate(s->fd, end, bytes);
    while (e == EINTR);
    /* Not every file system can; there, HDF5's writes will tell. */
    if (!e || e == EOPNOTSUPP || e == EINVAL || e == ENOSYS)
        return 0;
    trim(s);
    return err_set("needs %.1f MiB more: %s", (double)bytes / MIB, strerror(e));
}

static int flush(struct store *s)
{
    return H5Fflush(s->file, H5F_SCOPE_LOCAL) < 0 ? h5_cannot("write") : 0;
}

/* ---- objects ---- */

/* How groups are made: members and attributes listed in the order in which
 * they were made, no times.  With `whole`, the group's header gets nearly 4096
 * bytes of room, so that all of a trial's links and attributes are in one
 * page of the file, which file_how() aligns: HDF5 writes it at once. */
static hid_t group_how(int whole)
{
    const unsigned order = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    hid_t how = H5Pcreate(H5P_GROUP_CREATE);

    if (how >= 0 &&
        (H5Pset_link_creation_order(how, order) < 0 || H5Pset_attr_creation_order(how, order) < 0 ||
         H5Pset_obj_track_times(how, 0) < 0 ||
         (whole &&
          (H5Pset_attr_phase_change(how, 128, 0) < 0 || H5Pset_link_phase_change(how, 128, 0) < 0 ||
           H5Pset_est_link_info(how, 44, 64) < 0)))) {
        h5_drop(how);
        return -1;
    }
    return how;
}

/* Where `name` is NULL, linked nowhere. */
static hid_t group_new(hid_t at, const char *name, int whole)
{
    hid_t how = group_how(whole);
    hid_t g = how < 0 ? -1
              : name  ? H5Gcreate2(at, name, H5P_DEFAULT, how, H5P_DEFAULT)
                      : H5Gcreate_anon(at, how, H5P_DEFAULT);
    if (g < 0)
        h5_cannot(name ? "make group %s" : "make a group%s", name ? name : "");
    h5_drop(how);
    return g;
}

/* About half a MiB, of whole trailing axes. */
static void chunk_size(int rank, const hsize_t *dim, size_t element, hsize_t *chunk)
{
    hsize_t room = MIB / 2 / element;
    for (int i = rank - 1; i >= 0; i--) {
        chunk[i] = dim[i] < room ? dim[i] : room;
        room /= chunk[i] ? chunk[i] : 1;
        room = chunk[i] < dim[i] || room < 1 ? 1 : room;
    }
}

/* Small ones would only grow by being compressed. */
enum { COMPRESS_FROM = 16384 };

/* How datasets are made.  Contiguous ones are written as a whole, so nothing
 * fills them first, except for strings, where HDF5 insists; chunks that reach
 * over the end are, or their padding would differ from run to run; and what
 * is never written reads as 0. */
static hid_t dataset_how(hid_t stored, int rank, const hsize_t *dim, int compress, int written)
{
    size_t element = H5Tget_size(stored);
    hid_t how = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk[MAX_RANK], bytes = element;
    int e = how < 0 || H5Pset_obj_track_times(how, 0) < 0;

    for (int i = 0; i < rank; i++)
        bytes *= dim[i];
    if (!e && compress && bytes >= COMPRESS_FROM) {
        chunk_size(rank, dim, element, chunk);
        e = H5Pset_chunk(how, rank, chunk) < 0 || H5Pset_shuffle(how) < 0 ||
            H5Pset_deflate(how, compress) < 0;
    } else if (!e && written && H5Tget_class(stored) == H5T_FLOAT) {
        e = H5Pset_fill_time(how, H5D_FILL_TIME_NEVER) < 0;
    }
    if (e) {
        h5_drop(how);
        return -1;
    }
    return how;
}

/* Where `name` is NULL, linked nowhere; without `data` there is nothing to write. */
static hid_t dataset_new(hid_t at, const char *name, hid_t stored, hid_t given, int rank,
                         const hsize_t *dim, int compress, const void *data)
{
    hid_t space = H5Screate_simple(rank, dim, NULL);
    hid_t how = dataset_how(stored, rank, dim, compress, data != NULL);
    hid_t d = name ? H5Dcreate2(at, name, stored, space, H5P_DEFAULT, how, H5P_DEFAULT)
                   : H5Dcreate_anon(at, stored, space, how, H5P_DEFAULT);

    if (d < 0 || (data && H5Dwrite(d, given, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)) {
        h5_cannot(name ? "write dataset %s" : "write%s", name ? name : "");
        h5_drop(d);
        d = -1;
    }
    h5_drop(how);
    h5_drop(space);
    return d;
}

/* ---- one trial being written ---- */

/* A member of the trial's group, linked nowhere as yet. */
struct part {
    char name[64];
    hid_t id;
};

/* A tensor to be stored. */
struct item {
    int ran; /* its backend's place in the result; -1: an input, or dout */
    int arg, grad;
    enum dtype type; /* what it was stored as where it was made */
    const double *x;
};

struct writing {
    struct store *s;
    const struct result *r;
    const struct op *op;
    const struct frame *f;
    struct item item[2 * MAX_ARGS * (MAX_RAN + 1)];
    int n_items;
    struct part scale[64], group[MAX_RAN + 2], table[4];
    int n_scales, n_groups, n_tables;
};

static void add_item(struct writing *w, int ran, int arg, int grad, enum dtype type,
                     const double *x)
{
    if (x)
        w->item[w->n_items++] = (struct item){ran, arg, grad, type, x};
}

/* All that is stored of a trial's tensors, in the file's order. */
static void list_items(struct writing *w)
{
    const struct result *r = w->r;
    const struct arg *arg = w->op->arg;
    const struct backend *like = reference_of(r->trial->type);
    enum save save = w->s->x->save;

    if (!r->inputs)
        return;
    for (int i = 0; save == SAVE_ALL && i < w->op->n_args; i++)
        if (arg[i].flags & IN)
            add_item(w, -1, i, 0, op_type(w->op, w->f, i, like), r->inputs->x[i]);
    for (int i = 0; save == SAVE_ALL && i < w->op->n_args; i++)
        if (arg[i].flags & OUT && arg[i].flags & DIFF)
            add_item(w, -1, i, 1, op_grad_type(w->op, i, like), r->inputs->g[i]);
    for (int k = 0; save != SAVE_NONE && k < r->n_ran; k++) {
        const struct backend *b = r->ran[k].backend;
        for (int i = 0; r->ran[k].t && i < w->op->n_args; i++)
            if (arg[i].flags & OUT)
                add_item(w, k, i, 0, op_type(w->op, w->f, i, b), r->ran[k].t->x[i]);
        for (int i = 0; r->ran[k].t && save == SAVE_ALL && i < w->op->n_args; i++)
            if (arg[i].flags & IN && arg[i].flags & DIFF)
                add_item(w, k, i, 1, op_grad_type(w->op, i, b), r->ran[k].t->g[i]);
    }
}

static int64_t room(const struct writing *w)
{
    int64_t bytes = MIB + (int64_t)w->r->verdicts.n * 512;
    for (int i = 0; i < w->n_items; i++)
        bytes += op_count(w->op, w->f, w->item[i].arg) * (w->item[i].type == F64 ? 8 : 4);
    return bytes;
}

/* A dimension scale without values: what netCDF makes for a dimension that
 * has no coordinates, and xarray shows as a name. */
static hid_t scale(struct writing *w, const char *name, hsize_t n)
{
    char note[80];

    for (int i = 0; i < w->n_scales; i++)
        if (strcmp(w->scale[i].name, name) == 0)
            return w->scale[i].id;
    if (w->n_scales == (int)COUNT(w->scale))
        return err_set("a trial has more than %zu axes", COUNT(w->scale));
    struct part *p = &w->scale[w->n_scales];
    snprintf(p->name, sizeof p->name, "%s", name);
    snprintf(note, sizeof note, "This is a netCDF dimension but not a netCDF variable.%10llu",
             (unsigned long long)n);
    p->id = dataset_new(w->s->file, NULL, H5T_IEEE_F32BE, -1, 1, &n, 0, NULL);
    if (p->id < 0)
        return err_at("axis %s", name);
    w->n_scales++;
    return H5DSset_scale(p->id, note) < 0 ? h5_cannot("make axis %s", name) : p->id;
}

static int name_axis(struct writing *w, hid_t dataset, int i, const char *name, hsize_t n)
{
    hid_t axis = scale(w, name, n);
    if (axis < 0)
        return -1;
    if (H5DSattach_scale(dataset, axis, i) < 0 || H5DSset_label(dataset, i, name) < 0)
        return h5_cannot("name axis %s", name);
    return 0;
}

/* The axes of a tensor have different names, as xarray wants: the second
 * n_state is n_state_2. */
static int name_axes(struct writing *w, hid_t dataset, const char *shape)
{
    for (int i = 0; shape[i]; i++) {
        char name[64];
        int before = 1;
        for (int j = 0; j < i; j++)
            before += shape[j] == shape[i];
        snprintf(name, sizeof name, before > 1 ? "%s_%d" : "%s", op_axis(w->op, shape[i]), before);
        if (name_axis(w, dataset, i, name, DIM(w->f, shape[i])))
            return -1;
    }
    return 0;
}

/* The group that an item belongs into, made when the first one comes. */
static hid_t item_group(struct writing *w, const struct item *it)
{
    const struct ran *ran = it->ran < 0 ? NULL : &w->r->ran[it->ran];
    const char *name = ran ? ran->backend->name : it->grad ? "dout" : "in";

    for (int i = 0; i < w->n_groups; i++)
        if (strcmp(w->group[i].name, name) == 0)
            return w->group[i].id;
    struct part *p = &w->group[w->n_groups];
    snprintf(p->name, sizeof p->name, "%s", name);
    p->id = group_new(w->s->file, NULL, 0);
    if (p->id < 0)
        return err_at("%s", name);
    w->n_groups++;
    if (ran && (h5_put_text(p->id, "kernel", ran->kernel->name) ||
                h5_put_text(p->id, "device", ran->backend->device())))
        return err_at("%s", name);
    return p->id;
}

static int put_origin(struct writing *w, hid_t dataset, int arg)
{
    char text[MAX_LINE];
    input_origin(w->r->trial, &w->r->from, arg, text, sizeof text);
    return h5_put_text(dataset, "origin", text);
}

static int write_item(struct writing *w, const struct item *it)
{
    const struct arg *a = &w->op->arg[it->arg];
    const char *shape = op_shape(w->op, w->f, it->arg);
    hid_t type = it->type == F64   ? H5T_IEEE_F64LE
                 : it->type == I64 ? H5T_STD_I64LE
                                   : H5T_IEEE_F32LE;
    hid_t group = item_group(w, it), sub = -1, d = -1;
    hsize_t dim[MAX_RANK];
    int rank = (int)strlen(shape), e = group < 0;

    for (int i = 0; i < rank; i++)
        dim[i] = DIM(w->f, shape[i]);
    if (!e && it->ran >= 0 && it->grad) {
        sub = H5Lexists(group, "d", H5P_DEFAULT) > 0 ? H5Gopen2(group, "d", H5P_DEFAULT)
                                                     : group_new(group, "d", 0);
        e = sub < 0;
    }
    if (!e)
        e = (d = dataset_new(sub < 0 ? group : sub, a->name, type, H5T_NATIVE_DOUBLE, rank, dim,
                             w->s->x->compress, it->x)) < 0;
    if (!e)
        e = name_axes(w, d, shape);
    if (!e && (it->type == BF16 || it->type == F16))
        e = h5_put_text(d, "storage", dtype_names[it->type]);
    if (!e && it->ran < 0 && !it->grad)
        e = put_origin(w, d, it->arg);
    if (d >= 0 && H5Dclose(d) < 0 && !e) /* it may write the last chunks */
        e = h5_cannot("write");
    h5_drop(sub);
    return e ? err_at("%s%s", it->grad ? "d_" : "", a->name) : 0;
}

/* ---- tables ---- */

/* Verdicts.  Strings are of variable length: netCDF's library corrupts memory over fixed ones in a
 * table. */
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
    COLUMN(s, verdict, NO_UNIT, IN_DUMP, NULL, 0)
#define CHECK_COLUMN(...) COLUMN_OF(check_row, __VA_ARGS__)

struct check_row {
    CHECK_COLUMNS(COLUMN_MEMBER)
};
static const struct column check_columns[] = {CHECK_COLUMNS(CHECK_COLUMN){NULL}};

/* The type of a row, in memory. */
static hid_t row_type(const struct column *column, size_t size)
{
    hid_t row = H5Tcreate(H5T_COMPOUND, size), text = h5_text_type();
    int e = row < 0 || text < 0;

    for (; !e && column->name; column++)
        if (column->shown & IN_DUMP)
            e = H5Tinsert(row, column->name, column->offset,
                          column->kind == 's'   ? text
                          : column->kind == 'd' ? H5T_NATIVE_DOUBLE
                                                : H5T_NATIVE_INT64) < 0;
    h5_drop(text);
    if (e) {
        h5_drop(row);
        return -1;
    }
    return row;
}

/* A table as it becomes a dataset. */
struct table {
    const char *name, *axis;
    const struct column *column;
    size_t row_size;
};
static const struct table checks = {"check", "verdict", check_columns, sizeof(struct check_row)},
                          times = {"time", "timing", time_columns, sizeof(struct time_row)},
                          sweeps = {"batch_sweep", "measurement", sweep_columns,
                                    sizeof(struct sweep_row)},
                          crossovers = {"crossover", "kernel_and_pass", crossover_columns,
                                        sizeof(struct crossover_row)};

/* Nothing where there are no rows. */
static int put_table(struct writing *w, const struct table *t, const void *rows, hsize_t n)
{
    struct part *p = &w->table[w->n_tables];
    if (!n)
        return 0;
    hid_t row = row_type(t->column, t->row_size), packed = row < 0 ? -1 : H5Tcopy(row);

    snprintf(p->name, sizeof p->name, "%s", t->name);
    p->id = -1;
    if (packed < 0 || H5Tpack(packed) < 0) /* on disk, no padding between members */
        h5_cannot("make the type of table %s", t->name);
    else
        p->id = dataset_new(w->s->file, NULL, packed, row, 1, &n, 0, rows);
    h5_drop(row);
    h5_drop(packed);
    if (p->id < 0)
        return err_at("table %s", t->name);
    w->n_tables++;
    return name_axis(w, p->id, 0, t->axis, n);
}

static int write_checks(struct writing *w)
{
    const struct verdicts *list = &w->r->verdicts;
    struct check_row *rows = calloc(list->n + 1, sizeof *rows);

    if (!rows)
        return err_set("no memory for %d verdicts", list->n);
    for (int i = 0; i < list->n; i++) {
        const struct verdict *v = &list->v[i];
        rows[i] = (struct check_row){.tensor = v->tensor,
                                     .check = v->check,
                                     .backend = v->backend,
                                     .kernel = v->kernel,
                                     .error = v->error,
                                     .norm = v->norm,
                                     .bound = v->bound,
                                     .margin = v->bound > 0 ? v->error / v->bound : 0,
                                     .worst = v->worst,
                                     .first_bad = v->first_bad,
                                     .verdict = verdict_word(v)};
    }
    int e = put_table(w, &checks, rows, list->n);
    free(rows);
    return e;
}

static int write_times(struct writing *w)
{
    struct time_row rows[MAX_RAN * N_PASSES];
    int n = 0;

    for (int k = 0; w->s->x->repeats > 0 && k < w->r->n_ran; k++)
        for (enum pass p = FORWARD; p < N_PASSES; p++)
            if (w->r->ran[k].outcome.runs[p])
                rows[n++] = time_row(w->s->x->ceilings, w->r, &w->r->ran[k], p);
    return put_table(w, &times, rows, n);
}

static int write_sweeps(struct writing *w)
{
    struct sweep_row *rows = calloc(MAX_RAN * N_PASSES * MAX_POINTS, sizeof *rows);
    struct crossover_row ends[MAX_RAN * N_PASSES];
    int n = 0, m = 0;

    if (!rows)
        return err_set("no memory for a table");
    for (int k = 0; k < w->r->n_growths; k++)
        for (enum pass p = FORWARD; p < op_passes(w->op); p++) {
            const struct growth *g = &w->r->growth[k];
            for (int i = 0; i < g->n; i++)
                rows[n++] = sweep_row(w->r, g, i, p);
            ends[m++] = crossover_row(g, p);
        }
    int e = put_table(w, &sweeps, rows, n) || put_table(w, &crossovers, ends, m);
    free(rows);
    return e;
}

/* ---- a trial ---- */

/* The group of trial i, with all that is known before it has run. */
static int trial_new(hid_t trials, const struct trial *t, const char *contents, int i)
{
    char name[16];
    snprintf(name, sizeof name, "%04d", i + 1);
    hid_t g = group_new(trials, name, 1);
    int e = g < 0 || h5_put_text(g, "op", t->op->name);

    for (int p = 0; !e && p < t->op->n_params; p++) {
        char buffer[32];
        const char *value = op_value(t->op, &t->sizes, p, buffer), *key = t->op->param[p].name;
        if (*value)
            e = t->op->param[p].choices ? h5_put_text(g, key, value)
                : t->op->param[p].real  ? h5_put_double(g, key, t->sizes.real[p])
                                       : h5_put_int(g, key, DIM(&t->sizes, t->op->param[p].letter));
    }
    e = e || h5_put_text(g, "dtype", dtype_names[t->type]) || h5_put_seed(g, t->seed) ||
        h5_put_text(g, "input", input_names[t->input]);
    const char *const optional[][2] = {{"file", t->file},
                                       {"contents", contents},
                                       {"group", t->group},
                                       {"kernel", t->kernel},
                                       {"section", t->section}};
    for (size_t k = 0; !e && k < COUNT(optional); k++)
        if (*optional[k][1])
            e = h5_put_text(g, optional[k][0], optional[k][1]);
    e = e || h5_put_text(g, "line", t->text) || h5_put_int(g, "n_checks", 0) ||
        h5_put_int(g, "failed", 0) || h5_put_int(g, "unjudged", 0) || h5_put_int(g, "skipped", 0) ||
        h5_put_text(g, "skips", "") || h5_put_int(g, "complete", 0);
    h5_drop(g);
    return e ? err_at("trial %d", i + 1) : 0;
}

/* What an interrupted run left in an unfinished one. */
static int trial_empty(hid_t g)
{
    H5G_info_t info;
    if (H5Gget_info(g, &info) < 0)
        return -1;
    for (hsize_t n = info.nlinks; n > 0; n--)
        if (H5Ldelete_by_idx(g, ".", H5_INDEX_NAME, H5_ITER_INC, 0, H5P_DEFAULT) < 0)
            return -1;
    return 0;
}

static int link_parts(hid_t trial, const struct part *p, int n)
{
    for (int i = 0; i < n; i++)
        if (H5Olink(p[i].id, trial, p[i].name, H5P_DEFAULT, H5P_DEFAULT) < 0)
            return h5_cannot("link %s", p[i].name);
    return 0;
}

static void close_parts(const struct part *p, int n)
{
    for (int i = 0; i < n; i++)
        h5_drop(p[i].id);
}

/* A line each, "gpu16 plain: why". */
static int put_declined(hid_t trial, const struct result *r)
{
    char text[MAX_RAN * (sizeof r->declined[0].why + 64)];
    size_t n = 0;

    for (int i = 0; i < r->n_declined; i++) {
        const struct declined *d = &r->declined[i];
        n += snprintf(text + n, sizeof text - n, "%s %s: %s\n", d->backend->name, d->kernel->name,
                      d->why);
    }
    return n ? h5_put_text(trial, "declined", text) : 0;
}

/* The order of these steps is what the head of this file is about. */
static int write_trial(struct writing *w, hid_t trial)
{
    const struct result *r = w->r;
    const char *warning = w->op->warning ? w->op->warning(w->f) : NULL;
    int e = h5_put_text(trial, "skips", r->skips) || put_declined(trial, r) ||
            (warning && h5_put_text(trial, "warning", warning));

    for (int i = 0; !e && i < w->n_items; i++)
        e = write_item(w, &w->item[i]);
    e = e || write_checks(w) || write_times(w) || write_sweeps(w) || flush(w->s);
    e = e || link_parts(trial, w->scale, w->n_scales) || link_parts(trial, w->group, w->n_groups) ||
        link_parts(trial, w->table, w->n_tables) || h5_put_int(trial, "n_checks", r->verdicts.n) ||
        h5_put_int(trial, "failed", r->failed) ||
        h5_put_int(trial, "unjudged", verdicts_unjudged(&r->verdicts, 0)) ||
        h5_put_int(trial, "skipped", r->skipped) || flush(w->s);
    return e || h5_put_int(trial, "complete", 1) || flush(w->s) ? -1 : 0;
}

static int write_result(struct store *s, int i, const struct result *r)
{
    struct writing *w = calloc(1, sizeof *w);
    if (!w)
        return err_set("no memory to store a trial");
    *w = (struct writing){.s = s, .r = r, .op = r->trial->op, .f = &r->trial->sizes};
    list_items(w);
    int e = reserve(s, room(w));
    if (!e) {
        hid_t trial = header_trial(s->file, i);
        e = trial < 0 || (write_trial(w, trial) && err_at("trial %d", i + 1));
        close_parts(w->table, w->n_tables);
        close_parts(w->group, w->n_groups);
        close_parts(w->scale, w->n_scales);
        h5_drop(trial);
        if (!e)
            e = trim(s);
        else
            trim(s); /* keeping the message that is there */
    }
    free(w);
    return e ? -1 : 0;
}

/* ---- the file ---- */

/* The formats of HDF5 1.8, which are new enough and whose files carry no mark
 * of being open that a killed process would leave behind.  And pages: a trial's
 * header, and HDF5's heaps of 4096 bytes, which several trials share, each in
 * one, which even a killed process writes whole. */
static hid_t file_how(void)
{
    hid_t how = H5Pcreate(H5P_FILE_ACCESS);
    if (how >= 0 && (H5Pset_libver_bounds(how, H5F_LIBVER_V18, H5F_LIBVER_V18) < 0 ||
                     H5Pset_fclose_degree(how, H5F_CLOSE_STRONG) < 0 ||
                     H5Pset_alignment(how, 3072, 4096) < 0)) {
        h5_drop(how);
        return -1;
    }
    return how;
}

/* What times are compared with, in bytes, FLOP or evaluations a second, and seconds. */
static int write_ceilings(const struct store *s)
{
    const struct ceilings *c = s->x->ceilings;
    if (!c)
        return 0;
    hid_t g = group_new(s->file, "ceilings", 0);
    int e = g < 0 || h5_put_double(g, "memory", c->memory) ||
            h5_put_double(g, "tensor", c->tensor) || h5_put_double(g, "fp32", c->fp32) ||
            h5_put_double(g, "special", c->special) ||
            h5_put_double(g, "flop_time", c->flop_time) ||
            h5_put_double(g, "special_time", c->special_time) ||
            h5_put_double(g, "launch", c->launch) || h5_put_double(g, "clock", c->clock);
    h5_drop(g);
    return e;
}

/* Everything but the trials' contents, into the empty file. */
static int fill(struct store *s)
{
    const struct experiment *x = s->x;
    hid_t root = H5Gopen2(s->file, "/", H5P_DEFAULT), trials = -1;
    int e = root < 0 ? h5_cannot("open /") : header_write(root, x) || write_ceilings(s);
    char contents[MAX_CONTENTS] = "";

    e = e || (trials = group_new(s->file, "trial", 0)) < 0;
    for (int i = 0; !e && i < x->n; i++) {
        const struct trial *t = &x->trial[i];
        if (!*t->file)
            *contents = 0;
        else if (!i || strcmp(t->file, t[-1].file) != 0)
            e = header_contents(t, contents);
        e = e || trial_new(trials, t, contents, i);
    }
    h5_drop(trials);
    h5_drop(root);
    return e || flush(s) || trim(s) ? -1 : 0;
}

static hid_t create(const char *name)
{
    hid_t root = H5Pcreate(H5P_FILE_CREATE), how = file_how(), file = -1;
    const unsigned order = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;

    if (root >= 0 && how >= 0 && H5Pset_link_creation_order(root, order) >= 0 &&
        H5Pset_attr_creation_order(root, order) >= 0 && H5Pset_obj_track_times(root, 0) >= 0)
        file = H5Fcreate(name, H5F_ACC_EXCL, root, how);
    if (file < 0)
        err_set("cannot be written: %s", h5_reason());
    h5_drop(root);
    h5_drop(how);
    return file;
}

/* ---- whose it is ---- */

static const char IN_USE[] = "another program has it open";

/* Whoever writes an HDF5 file holds a flock on it, and HDF5's readers one
 * that is shared.  If it is not in use this takes it. */
static int in_use(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
}

static int is_named(int fd, const char *name)
{
    struct stat here, there;
    return fstat(fd, &here) == 0 && lstat(name, &there) == 0 && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino;
}

/* The part, locked, made where there is none; -1 after err_set().  Between
 * being opened and being locked it may have become another's, finished. */
static int claim(const char *part)
{
    for (;;) {
        int fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (fd < 0)
            return err_set("cannot be written: %s", strerror(errno));
        if (in_use(fd)) {
            close(fd);
            return err_set("%s", IN_USE);
        }
        if (is_named(fd, part))
            return fd;
        close(fd);
    }
}

/* HDF5's own descriptor, once more, with the lock, whether or not HDF5 locks
 * files itself: that hangs on how it was built and on its environment.  -1
 * after err_set(). */
static int own(hid_t file, const char *name)
{
    int *its = NULL, fd = -1;

    if (H5Fget_vfd_handle(file, H5P_DEFAULT, (void **)&its) < 0)
        return h5_cannot("see its descriptor");
    if ((fd = fcntl(*its, F_DUPFD_CLOEXEC, 0)) < 0)
        return err_set("%s", strerror(errno));
    if (!in_use(fd) && is_named(fd, name))
        return fd;
    close(fd);
    return err_set("%s", IN_USE);
}

/* Open the part that fd has locked; the lock goes over to HDF5.  -1 after err_set(). */
static hid_t open_part(const char *part, int fd)
{
    hid_t how = file_how(), file;

    flock(fd, LOCK_UN);
    file = H5Fopen(part, H5F_ACC_RDWR, how);
    if (file < 0) {
        char why[200];
        snprintf(why, sizeof why, "%s", h5_reason());
        if (in_use(fd))
            err_set("%s", IN_USE);
        else
            err_set("cannot be read: %s", why);
    }
    h5_drop(how);
    return file;
}

/* ---- a new file ---- */

/* May that part be thrown away? */
static int may_discard(hid_t part, const struct experiment *x, int force)
{
    enum same same = header_same(part, x);
    int n = header_finished(part);

    if (same == NOT_OURS)
        return err_set("was not written by this program: move it away");
    if (n <= 0 || force)
        return 0;
    if (same == SAME_PLAN && header_schema(part) != HEADER_SCHEMA)
        return err_set("holds %d finished trial%s that an earlier version wrote: begin again "
                       "with --force",
                       n, n == 1 ? "" : "s");
    return err_set(same == SAME_PLAN ? "holds %d finished trial%s: go on with --resume, or begin "
                                       "again with --force"
                                     : "holds %d finished trial%s of another plan: begin anew "
                                       "with --force, or write elsewhere with -o",
                   n, n == 1 ? "" : "s");
}

/* The old part, which *fd has locked, is opened for that, and stays so with
 * its lock until the new one is in its place. */
static int look_into_old(struct store *s, int force, int *fd, hid_t *old)
{
    char magic[4] = "";

    if (pread(*fd, magic, sizeof magic, 0) < (ssize_t)sizeof magic ||
        memcmp(magic, "\211HDF", sizeof magic) != 0)
        return err_set("was not written by this program: move it away");
    *old = open_part(s->name, *fd);
    if (*old < 0) /* damaged, or another's by now */
        return in_use(*fd) ? -1 : force ? 0 : err_more("; begin again with --force");
    int its = own(*old, s->name);
    if (its < 0)
        return -1;
    close(*fd);
    *fd = its;
    return may_discard(*old, s->x, force);
}

/* The name that a new part is filled under, which whoever has the lock of the
 * part is alone with.  What one who was killed left there is removed. */
static void fresh_name(const struct store *s, char fresh[MAX_OUTPUT + 16])
{
    snprintf(fresh, MAX_OUTPUT + 16, "%s.new", s->name);
    unlink(fresh);
}

/* A new part, filled, which replaces what has its name. */
static int new_part(struct store *s)
{
    char fresh[MAX_OUTPUT + 16];

    fresh_name(s, fresh);
    if ((s->file = create(fresh)) < 0)
        return -1;
    int e =
        (s->fd = own(s->file, fresh)) < 0 || reserve(s, MIB + (int64_t)s->x->n * 8192) || fill(s);
    if (!e && rename(fresh, s->name))
        e = err_set("%s", strerror(errno));
    if (e)
        unlink(fresh);
    return e ? -1 : 0;
}

/* The new part takes the place of the one that was locked, empty or old. */
static int begin(struct store *s, int how)
{
    struct stat st = {.st_size = 0};
    hid_t old = -1;
    int fd = claim(s->name);

    if (fd < 0)
        return err_at("%s", s->name);
    int e = fstat(fd, &st) ? err_set("%s", strerror(errno)) : 0;
    if (!e && st.st_size)
        e = look_into_old(s, how & STORE_DISCARD, &fd, &old);
    if (e)
        err_at("%s", s->name);
    e = e || output_may_replace(s->x, how & STORE_REPLACE, &s->out) ||
        (new_part(s) && err_at("%s", s->name));
    if (e && !st.st_size)
        unlink(s->name);
    if (old >= 0)
        H5Fclose(old);
    close(fd);
    return e ? -1 : 0;
}

/* ---- going on ---- */

/* A complete trial has its counts. */
static int has(struct store *s, int i, struct store_counts *c)
{
    static const char *const name[] = {"n_checks", "failed", "unjudged", "skipped"};
    enum { MOST = 1000000000 };
    int64_t n[COUNT(name)] = {0};
    hid_t g = header_trial(s->file, i);
    int there = g >= 0 && header_complete(g) > 0;

    for (size_t k = 0; there && k < COUNT(name); k++)
        there = !h5_get_int(g, name[k], &n[k]) && n[k] >= 0 && n[k] <= MOST;
    h5_drop(g);
    if (there)
        *c = (struct store_counts){(int)n[0], (int)n[1], (int)n[2], (int)n[3]};
    return there;
}

static int has_all(struct store *s)
{
    struct store_counts ignored;
    for (int i = 0; i < s->x->n; i++)
        if (!has(s, i, &ignored))
            return err_set("trial %d is missing", i + 1);
    return 0;
}

static int empty_unfinished(struct store *s)
{
    struct store_counts ignored;
    for (int i = 0; i < s->x->n; i++) {
        hid_t g = header_trial(s->file, i);
        int complete = g < 0 ? -1 : header_complete(g);
        int e = complete < 0 || (complete && !has(s, i, &ignored)) ||
                (!complete && !s->finished && trial_empty(g));
        h5_drop(g);
        if (e)
            return err_set("trial %d is damaged; it can only be begun anew", i + 1);
    }
    return s->finished ? 0 : flush(s) || trim(s) ? -1 : 0;
}

static int same_experiment(struct store *s)
{
    if (header_same(s->file, s->x) != SAME_PLAN)
        return -1;
    if (!s->finished && header_schema(s->file) != HEADER_SCHEMA)
        return err_set("was begun by an earlier version; begin again with --force");
    return header_same_inputs(s->file, s->x) ? err_more("; begin again with --force") : 0;
}

static int has_contents(const char *name)
{
    struct stat st;
    return stat(name, &st) == 0 && st.st_size > 0;
}

/* Open the part, or the finished file, that is there. */
static int open_old(struct store *s)
{
    if (s->finished) {
        s->file = H5Fopen(s->name, H5F_ACC_RDONLY, H5P_DEFAULT);
        return s->file < 0 ? err_set("cannot be read: %s", h5_reason()) : 0;
    }
    int fd = claim(s->name);
    if (fd < 0)
        return -1;
    s->file = open_part(s->name, fd);
    close(fd);
    if (s->file < 0 || (s->fd = own(s->file, s->name)) < 0)
        return -1;
    char fresh[MAX_OUTPUT + 16];
    fresh_name(s, fresh);
    return 0;
}

static int go_on(struct store *s, int how)
{
    if (!has_contents(s->name)) {
        if (!has_contents(s->out.file))
            return begin(s, how);
        s->finished = 1;
        s->name = s->out.file;
    }
    if (open_old(s) || same_experiment(s) || empty_unfinished(s))
        return err_at("%s", s->name);
    return s->finished ? 0 : output_may_replace(s->x, how & STORE_REPLACE, &s->out);
}

/* ---- times, read back ---- */

/* The columns of a time that are read, by schema; text is HDF5's to free. */
struct read_row {
    char *backend, *kernel, *pass;
    double median, spread;
    int64_t runs;
    char *method;
};
#define READ_COLUMN(kind, name, member)                                                            \
    {                                                                                              \
        name, offsetof(struct read_row, member), kind, NO_UNIT, IN_DUMP, NULL, 0                   \
    }
#define READ_COLUMNS(runs_name, method_name)                                                       \
    {                                                                                              \
        READ_COLUMN('s', "backend", backend), READ_COLUMN('s', "kernel", kernel),                  \
            READ_COLUMN('s', "pass", pass), READ_COLUMN('d', "median", median),                    \
            READ_COLUMN('d', "spread", spread), READ_COLUMN('i', runs_name, runs),                 \
            READ_COLUMN('s', method_name, method),                                                 \
        {                                                                                          \
            NULL                                                                                   \
        }                                                                                          \
    }
static const struct column read_columns[][8] = {
    [1] = READ_COLUMNS("repeats", "caches"),
    [2] = READ_COLUMNS("runs", "method"),
};

/* HDF5 would leave out what is not there, and say nothing. */
static int is_column(hid_t type, const struct column *c)
{
    static const H5T_class_t class[] = {['s'] = H5T_STRING, ['d'] = H5T_FLOAT, ['i'] = H5T_INTEGER};
    int i = H5Tget_member_index(type, c->name);

    if (i < 0)
        return err_set("the table time has no column %s", c->name);
    hid_t member = H5Tget_member_type(type, i);
    int same = member >= 0 && H5Tget_class(member) == class[(int)c->kind] &&
               (c->kind != 's' || H5Tis_variable_str(member) > 0);
    h5_drop(member);
    return same ? 0 : err_set("column %s of the table time is of another type", c->name);
}

static int has_columns(hid_t table, const struct column *column)
{
    hid_t type = H5Dget_type(table);
    int e = type < 0 || H5Tget_class(type) != H5T_COMPOUND ? err_set("the table time is none") : 0;

    for (; !e && column->name; column++)
        e = is_column(type, column);
    h5_drop(type);
    return e;
}

static void keep_timings(struct timing *to, const struct read_row *from, int n, int schema)
{
    for (int i = 0; i < n; i++) {
        const struct read_row *r = &from[i];
        to[i] = (struct timing){.median = r->median, .spread = r->spread, .runs = r->runs};
        snprintf(to[i].backend, sizeof to[i].backend, "%s", r->backend ? r->backend : "");
        snprintf(to[i].kernel, sizeof to[i].kernel, "%s", r->kernel ? r->kernel : "");
        snprintf(to[i].pass, sizeof to[i].pass, "%s", r->pass ? r->pass : "");
        const char *method = r->method ? r->method : "";
        snprintf(to[i].method, sizeof to[i].method, "%s%s",
                 schema == 1 && strcmp(method, "warm") == 0 ? "caches " : "", method);
    }
}

static int read_table(hid_t table, struct timings *to)
{
    struct read_row rows[MAX_RAN * N_PASSES] = {{.backend = NULL}};
    int schema = header_schema(table);
    const struct column *column = read_columns[schema];
    int n = !schema || has_columns(table, column) ? -1 : h5_table_rows(table, "time", COUNT(rows));
    hid_t row, space;

    if (n < 0)
        return -1;
    to->timing = calloc(n + 1, sizeof *to->timing);
    if (!to->timing)
        return err_set("no memory for %d times", n);
    row = row_type(column, sizeof(struct read_row));
    space = H5Dget_space(table);
    int e = 0;
    if (H5Dread(table, row, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows) < 0) {
        e = h5_cannot("read the table time");
    } else {
        to->n = n;
        keep_timings(to->timing, rows, n, schema);
    }
    H5Dvlen_reclaim(row, space, H5P_DEFAULT, rows);
    h5_drop(space);
    h5_drop(row);
    return e;
}

static int read_timings(hid_t trial, struct timings *to)
{
    char *line = h5_get_text(trial, "line");
    hid_t table = -1;
    int e = !line;

    *to = (struct timings){.n = 0};
    if (line)
        snprintf(to->line, sizeof to->line, "%s", line);
    free(line);
    if (e || H5Lexists(trial, "time", H5P_DEFAULT) <= 0)
        return e ? -1 : 0;
    table = H5Dopen2(trial, "time", H5P_DEFAULT);
    e = table < 0 ? h5_cannot("open the table time") : read_table(table, to);
    h5_drop(table);
    return e;
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
            e = read_timings(g, &d->trial[d->n++]) ? err_at("trial %d", i + 1) : 0;
        h5_drop(g);
    }
    return e;
}

static int read_dump(const char *name, struct dump_times *d)
{
    if (access(name, R_OK))
        return err_set("%s", strerror(errno));
    if (H5Fis_hdf5(name) == 0)
        return err_set("is no HDF5 file");
    hid_t file = H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT), root = -1;
    if (file < 0)
        return err_set("cannot be read: %s", h5_reason());
    int e = header_same(file, NULL) == NOT_OURS || (root = H5Gopen2(file, "/", H5P_DEFAULT)) < 0 ||
            !(d->device = h5_get_text(root, "device")) || read_trials(file, d);
    h5_drop(root);
    H5Fclose(file);
    return e ? -1 : 0;
}

/* ---- what store.h promises; HDF5 prints nothing meanwhile ---- */

int store_may_write(const struct experiment *x, int how)
{
    struct output o;
    return output_find(x, &o) ||
                   (!(how & STORE_RESUME) && output_may_replace(x, how & STORE_REPLACE, &o))
               ? -1
               : 0;
}

/* Its HDF5 file. */
static int open_file(struct store *s, int how)
{
    int e = -1;
    H5E_BEGIN_TRY
    {
        if (s->x->compress && H5Zfilter_avail(H5Z_FILTER_DEFLATE) <= 0)
            err_set("this HDF5 library cannot compress; set compress = 0");
        else
            e = how & STORE_RESUME ? go_on(s, how) : begin(s, how);
        if (e && s->file >= 0)
            H5Fclose(s->file);
    }
    H5E_END_TRY
    return e;
}

struct store *store_open(const struct experiment *x, int how)
{
    struct store *s = calloc(1, sizeof *s);

    if (!s) {
        err_set("no memory for a store");
        return NULL;
    }
    *s = (struct store){.x = x, .file = -1, .fd = -1, .name = s->out.part};
    if (!output_find(x, &s->out) && !open_file(s, how))
        return s;
    if (s->fd >= 0)
        close(s->fd);
    free(s);
    return NULL;
}

int store_has(struct store *s, int i, struct store_counts *c)
{
    int there;
    H5E_BEGIN_TRY
    {
        there = has(s, i, c);
    }
    H5E_END_TRY
    return there;
}

int store_write(struct store *s, int i, const struct result *r)
{
    struct store_counts ignored;
    int e;
    H5E_BEGIN_TRY
    {
        if (s->finished || has(s, i, &ignored))
            e = err_set("trial %d is there already", i + 1);
        else
            e = write_result(s, i, r);
    }
    H5E_END_TRY
    return e ? err_at("%s", s->name) : 0;
}

/* Give the part its final name, if both are what they were. */
static int become_final(struct store *s)
{
    if (!is_named(s->fd, s->name))
        return err_set(
            "another program has moved or replaced it: what this run wrote is not there");
    if (output_unchanged(&s->out))
        return -1;
    return rename(s->name, s->out.file)
               ? err_set("cannot become %s: %s", s->out.file, strerror(errno))
               : 0;
}

int store_close(struct store *s, int complete)
{
    int e = 0;
    H5E_BEGIN_TRY
    {
        if (!s->finished)
            e = (complete && has_all(s)) || flush(s) || trim(s);
        if (H5Fclose(s->file) < 0 && !e)
            e = h5_cannot("close");
    }
    H5E_END_TRY
    if (!e && !s->finished && fsync(s->fd))
        e = err_set("%s", strerror(errno));
    if (!e && complete && !s->finished)
        e = become_final(s);
    if (e)
        err_at("%s", s->name);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
    return e ? -1 : 0;
}

int store_timings(struct store *s, int i, struct timings *to)
{
    int e;
    *to = (struct timings){.n = 0};
    H5E_BEGIN_TRY
    {
        hid_t g = header_trial(s->file, i);
        e = g < 0 || read_timings(g, to);
        h5_drop(g);
    }
    H5E_END_TRY
    return e ? err_at("%s: trial %d", s->name, i + 1) : 0;
}

char *store_device(struct store *s)
{
    char *text;
    H5E_BEGIN_TRY
    {
        text = h5_get_text(s->file, "device");
    }
    H5E_END_TRY
    if (!text)
        err_at("%s", s->name);
    return text;
}

struct dump_times *dump_times_read(const char *file)
{
    struct dump_times *d = calloc(1, sizeof *d);
    int e;

    if (!d) {
        err_set("no memory for the times of %s", file);
        return NULL;
    }
    H5E_BEGIN_TRY
    {
        e = read_dump(file, d);
    }
    H5E_END_TRY
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

const char *store_name(const struct store *s)
{
    return s->name;
}

const char *store_replaces(const struct store *s)
{
    return s->finished ? "" : s->out.date;
}
