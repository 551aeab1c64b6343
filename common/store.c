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
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <hdf5.h>
#include <hdf5_hl.h>

#include "common/err.h"
#include "common/keys.h"
#include "common/store.h"

enum { MAX_NAME = 600, MIB = 1 << 20 };

struct store {
    const struct experiment *x;
    hid_t file;
    int fd;       /* the same file: to reserve room, cut it off, sync it */
    int finished; /* it has its final name already: there is nothing to write */
    char name[MAX_NAME], final[MAX_NAME];
};

/* ---- errors ---- */

/* HDF5 tells of a failed system call at length; the system's own words are
 * in there between quotes. */
static herr_t innermost(unsigned n, const H5E_error2_t *e, void *reason)
{
    static const char head[] = "error message = '";
    const char *words = e->desc ? strstr(e->desc, head) : NULL;

    if (n == 0 && words) {
        words += sizeof head - 1;
        snprintf(reason, 200, "%.*s", (int)strcspn(words, "'"), words);
    } else if (n == 0 && e->desc) {
        snprintf(reason, 200, "%s", e->desc);
    }
    return 0;
}

const char *h5_reason(void)
{
    static _Thread_local char reason[200];
    snprintf(reason, sizeof reason, "HDF5 gives no reason");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, reason);
    return reason;
}

/* To be called before any other HDF5 function, which would clear the reason. */
__attribute__((format(printf, 1, 2))) static int cannot(const char *fmt, ...)
{
    char what[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set("cannot %s: %s", what, h5_reason());
}

/* Close what cannot fail by being closed. */
static void drop(hid_t id)
{
    if (id >= 0)
        H5Idec_ref(id);
}

/* ---- attributes ---- */

static int put(hid_t at, const char *name, hid_t stored, hid_t given, const void *value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t a = H5Aexists(at, name) > 0
                  ? H5Aopen(at, name, H5P_DEFAULT)
                  : H5Acreate2(at, name, stored, space, H5P_DEFAULT, H5P_DEFAULT);
    int e = a < 0 || H5Awrite(a, given, value) < 0 ? cannot("write attribute %s", name) : 0;
    drop(a);
    drop(space);
    return e;
}

static int put_int(hid_t at, const char *name, int64_t value)
{
    return put(at, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}

static int put_double(hid_t at, const char *name, double value)
{
    return put(at, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
}

static int put_seed(hid_t at, uint64_t seed)
{
    return put(at, "seed", H5T_STD_U64LE, H5T_NATIVE_UINT64, &seed);
}

/* Variable length, so that h5py gives a str and the ini text may be long. */
static hid_t text_type(void)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 &&
        (H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        drop(type);
        return -1;
    }
    return type;
}

static int put_text(hid_t at, const char *name, const char *value)
{
    hid_t type = text_type();
    int e = type < 0 ? cannot("make a type for strings") : put(at, name, type, type, &value);
    drop(type);
    return e;
}

static int get_int(hid_t at, const char *name, int64_t *value)
{
    hid_t a = H5Aopen(at, name, H5P_DEFAULT);
    int e = 0;
    if (a < 0 || H5Aread(a, H5T_NATIVE_INT64, value) < 0)
        e = cannot("read attribute %s", name);
    drop(a);
    return e;
}

/* Is the attribute of that text?  Else a copy of its own goes to `there`. */
static int same_text(hid_t at, const char *name, const char *value, char there[MAX_LINE])
{
    hid_t type = text_type(), a = H5Aopen(at, name, H5P_DEFAULT);
    char *text = NULL;
    int same =
        a >= 0 && type >= 0 && H5Aread(a, type, &text) >= 0 && text && strcmp(text, value) == 0;
    snprintf(there, MAX_LINE, "%s", text ? text : "");
    H5free_memory(text);
    drop(a);
    drop(type);
    return same;
}

/* A copy of the attribute, to be freed; NULL after err_set(). */
static char *get_text(hid_t at, const char *name)
{
    hid_t type = text_type(), a = H5Aopen(at, name, H5P_DEFAULT);
    char *text = NULL, *copy = NULL;

    if (a < 0 || type < 0 || H5Aread(a, type, &text) < 0 || !text)
        cannot("read attribute %s", name);
    else if (!(copy = strdup(text)))
        err_set("no memory for attribute %s", name);
    H5free_memory(text);
    drop(a);
    drop(type);
    return copy;
}

/* ---- room on the disk ---- */

/* The file ends where HDF5 says, not where room was reserved. */
static int trim(struct store *s)
{
    hsize_t end;
    if (H5Fget_filesize(s->file, &end) < 0)
        return cannot("see its size");
    return ftruncate(s->fd, end) ? err_set("cannot cut it off: %s", strerror(errno)) : 0;
}

static int reserve(struct store *s, int64_t bytes)
{
    hsize_t end;
    int e;

    if (H5Fget_filesize(s->file, &end) < 0)
        return cannot("see its size");
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
    return H5Fflush(s->file, H5F_SCOPE_LOCAL) < 0 ? cannot("write") : 0;
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
        drop(how);
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
        cannot(name ? "make group %s" : "make a group%s", name ? name : "");
    drop(how);
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
        drop(how);
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
        cannot(name ? "write dataset %s" : "write%s", name ? name : "");
        drop(d);
        d = -1;
    }
    drop(how);
    drop(space);
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
    return H5DSset_scale(p->id, note) < 0 ? cannot("make axis %s", name) : p->id;
}

static int name_axis(struct writing *w, hid_t dataset, int i, const char *name, hsize_t n)
{
    hid_t axis = scale(w, name, n);
    if (axis < 0)
        return -1;
    if (H5DSattach_scale(dataset, axis, i) < 0 || H5DSset_label(dataset, i, name) < 0)
        return cannot("name axis %s", name);
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
    if (ran && (put_text(p->id, "kernel", ran->kernel->name) ||
                put_text(p->id, "device", ran->backend->device())))
        return err_at("%s", name);
    return p->id;
}

static int put_origin(struct writing *w, hid_t dataset, int arg)
{
    char text[MAX_LINE];
    input_origin(w->r->trial, &w->r->from, arg, text, sizeof text);
    return put_text(dataset, "origin", text);
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
        e = put_text(d, "storage", it->type == BF16 ? "bf16" : "fp16");
    if (!e && it->ran < 0 && !it->grad)
        e = put_origin(w, d, it->arg);
    if (d >= 0 && H5Dclose(d) < 0 && !e) /* it may write the last chunks */
        e = cannot("write");
    drop(sub);
    return e ? err_at("%s%s", it->grad ? "d_" : "", a->name) : 0;
}

/* ---- tables ---- */

/* A column: 's' a string, 'd' a double, 'i' an int64_t.  Strings are of
 * variable length: netCDF's library corrupts memory over fixed ones in a table. */
struct column {
    const char *name;
    size_t offset;
    char kind;
};
#define COLUMN(row, member, kind)                                                                  \
    {                                                                                              \
#member, offsetof(struct row, member), kind                                                \
    }

struct check_row {
    const char *tensor, *check, *backend, *kernel;
    double error, norm, bound, margin;
    const char *worst;
    int64_t first_bad;
    const char *verdict;
};
static const struct column check_columns[] = {
    COLUMN(check_row, tensor, 's'),  COLUMN(check_row, check, 's'),
    COLUMN(check_row, backend, 's'), COLUMN(check_row, kernel, 's'),
    COLUMN(check_row, error, 'd'),   COLUMN(check_row, norm, 'd'),
    COLUMN(check_row, bound, 'd'),   COLUMN(check_row, margin, 'd'),
    COLUMN(check_row, worst, 's'),   COLUMN(check_row, first_bad, 'i'),
    COLUMN(check_row, verdict, 's'),
};

/* Times in seconds.  memory to latency are the fractions of the ceilings, NaN
 * where these were not measured; bound_by names the largest. */
struct time_row {
    const char *backend, *kernel, *pass;
    double median, min, max, spread, plain, flops, bytes;
    int64_t peak_bytes, repeats;
    const char *caches;
    double tokens, specials, memory, tensor, fp32, special, latency;
    const char *bound_by;
    int64_t saved_bytes, predicted_bytes, used_bytes;
};
static const struct column time_columns[] = {
    COLUMN(time_row, backend, 's'),
    COLUMN(time_row, kernel, 's'),
    COLUMN(time_row, pass, 's'),
    COLUMN(time_row, median, 'd'),
    COLUMN(time_row, min, 'd'),
    COLUMN(time_row, max, 'd'),
    COLUMN(time_row, spread, 'd'),
    COLUMN(time_row, plain, 'd'),
    COLUMN(time_row, flops, 'd'),
    COLUMN(time_row, bytes, 'd'),
    COLUMN(time_row, peak_bytes, 'i'),
    COLUMN(time_row, repeats, 'i'),
    COLUMN(time_row, caches, 's'),
    COLUMN(time_row, tokens, 'd'),
    COLUMN(time_row, specials, 'd'),
    COLUMN(time_row, memory, 'd'),
    COLUMN(time_row, tensor, 'd'),
    COLUMN(time_row, fp32, 'd'),
    COLUMN(time_row, special, 'd'),
    COLUMN(time_row, latency, 'd'),
    COLUMN(time_row, bound_by, 's'),
    COLUMN(time_row, saved_bytes, 'i'),
    COLUMN(time_row, predicted_bytes, 'i'),
    COLUMN(time_row, used_bytes, 'i'),
};

/* One kernel and pass at one batch. */
struct regime_row {
    const char *backend, *kernel, *pass;
    int64_t batch;
    double rows, median, min, max;
    int64_t repeats;
};
static const struct column regime_columns[] = {
    COLUMN(regime_row, backend, 's'), COLUMN(regime_row, kernel, 's'),
    COLUMN(regime_row, pass, 's'),    COLUMN(regime_row, batch, 'i'),
    COLUMN(regime_row, rows, 'd'),    COLUMN(regime_row, median, 'd'),
    COLUMN(regime_row, min, 'd'),     COLUMN(regime_row, max, 'd'),
    COLUMN(regime_row, repeats, 'i'),
};

/* Where they turn from bound by latency to bound by throughput; 0: not yet. */
struct turn_row {
    const char *backend, *kernel, *pass;
    double rows;
    const char *stopped;
};
static const struct column turn_columns[] = {
    COLUMN(turn_row, backend, 's'), COLUMN(turn_row, kernel, 's'),  COLUMN(turn_row, pass, 's'),
    COLUMN(turn_row, rows, 'd'),    COLUMN(turn_row, stopped, 's'),
};

/* The type of a row, in memory. */
static hid_t row_type(const struct column *column, int n_columns, size_t size)
{
    hid_t row = H5Tcreate(H5T_COMPOUND, size), text = text_type();
    int e = row < 0 || text < 0;

    for (int i = 0; !e && i < n_columns; i++) {
        char kind = column[i].kind;
        e = H5Tinsert(row, column[i].name, column[i].offset,
                      kind == 's'   ? text
                      : kind == 'd' ? H5T_NATIVE_DOUBLE
                                    : H5T_NATIVE_INT64) < 0;
    }
    drop(text);
    if (e) {
        drop(row);
        return -1;
    }
    return row;
}

static int put_table(struct writing *w, const char *name, const char *axis,
                     const struct column *column, int n_columns, const void *rows, size_t row_size,
                     hsize_t n)
{
    struct part *p = &w->table[w->n_tables];
    hid_t row = row_type(column, n_columns, row_size), packed = row < 0 ? -1 : H5Tcopy(row);

    snprintf(p->name, sizeof p->name, "%s", name);
    p->id = -1;
    if (packed < 0 || H5Tpack(packed) < 0) /* on disk, no padding between members */
        cannot("make the type of table %s", name);
    else
        p->id = dataset_new(w->s->file, NULL, packed, row, 1, &n, 0, rows);
    drop(row);
    drop(packed);
    if (p->id < 0)
        return err_at("table %s", name);
    w->n_tables++;
    return name_axis(w, p->id, 0, axis, n);
}

#define PUT_TABLE(w, name, axis, columns, rows, n)                                                 \
    put_table(w, name, axis, columns, COUNT(columns), rows, sizeof *(rows), n)

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
    int e = list->n ? PUT_TABLE(w, "check", "verdict", check_columns, rows, list->n) : 0;
    free(rows);
    return e;
}

static struct time_row time_row(const struct writing *w, const struct ran *ran, enum pass p)
{
    const struct ceilings *c = ceilings_of(w->s->x->ceilings, ran->backend);
    double least[N_CEILINGS] = {NAN, NAN, NAN, NAN, NAN}, median = ran->outcome.median[p];

    if (c)
        least_times(c, w->op, ran->backend, w->f, p, least);
    return (struct time_row){.backend = ran->backend->name,
                             .kernel = ran->kernel->name,
                             .pass = pass_names[p],
                             .median = median,
                             .min = ran->outcome.min[p],
                             .max = ran->outcome.max[p],
                             .spread = ran->outcome.spread[p],
                             .plain = ran->outcome.plain[p],
                             .flops = w->op->flops(w->f, p),
                             .bytes = op_bytes(w->op, ran->backend, w->f, p),
                             .peak_bytes = ran->outcome.peak,
                             .repeats = ran->outcome.runs[p],
                             .caches = ran->backend->caches,
                             .tokens = case_tokens(w->op, w->f),
                             .specials = w->op->specials ? w->op->specials(w->f, p) : 0,
                             .memory = least[AT_MEMORY] / median,
                             .tensor = least[AT_TENSOR] / median,
                             .fp32 = least[AT_FP32] / median,
                             .special = least[AT_SPECIAL] / median,
                             .latency = least[AT_LATENCY] / median,
                             .bound_by = c ? ceiling_names[binding(least)] : "",
                             .saved_bytes = op_saved(w->op, ran->backend, w->f),
                             .predicted_bytes = ran->predicted,
                             .used_bytes = ran->used};
}

static int write_times(struct writing *w)
{
    struct time_row rows[MAX_RAN * N_PASSES];
    int n = 0;

    for (int k = 0; w->s->x->repeats > 0 && k < w->r->n_ran; k++)
        for (enum pass p = FORWARD; p < N_PASSES; p++)
            if (w->r->ran[k].outcome.runs[p])
                rows[n++] = time_row(w, &w->r->ran[k], p);
    return n ? PUT_TABLE(w, "time", "timing", time_columns, rows, n) : 0;
}

static struct regime_row regime_row(const struct growth *g, int i, enum pass p)
{
    return (struct regime_row){.backend = g->backend->name,
                               .kernel = g->kernel->name,
                               .pass = pass_names[p],
                               .batch = g->batch[i],
                               .rows = g->rows[i],
                               .median = g->outcome[i].median[p],
                               .min = g->outcome[i].min[p],
                               .max = g->outcome[i].max[p],
                               .repeats = g->outcome[i].runs[p]};
}

static int write_regime(struct writing *w)
{
    struct regime_row *rows = calloc(MAX_RAN * N_PASSES * MAX_POINTS, sizeof *rows);
    struct turn_row turns[MAX_RAN * N_PASSES];
    int n = 0, m = 0;

    if (!rows)
        return err_set("no memory for a table");
    for (int k = 0; k < w->r->n_growths; k++)
        for (enum pass p = FORWARD; p < op_passes(w->op); p++) {
            const struct growth *g = &w->r->growth[k];
            for (int i = 0; i < g->n; i++)
                rows[n++] = regime_row(g, i, p);
            turns[m++] = (struct turn_row){.backend = g->backend->name,
                                           .kernel = g->kernel->name,
                                           .pass = pass_names[p],
                                           .rows = turning_point(g, p),
                                           .stopped = g->stopped};
        }
    int e = n ? PUT_TABLE(w, "regime", "measurement", regime_columns, rows, n) : 0;
    free(rows);
    return e || !m ? e : PUT_TABLE(w, "turn", "kernel_and_pass", turn_columns, turns, m);
}

/* ---- a trial ---- */

static hid_t trial_open(struct store *s, int i)
{
    char path[32];
    snprintf(path, sizeof path, "/trial/%04d", i + 1);
    hid_t g = H5Gopen2(s->file, path, H5P_DEFAULT);
    return g < 0 ? cannot("open %s", path) : g;
}

/* The group of trial i, with all that is known before it has run. */
static int trial_new(hid_t trials, const struct trial *t, int i)
{
    static const char *const types[] = {[F32] = "fp32", [BF16] = "bf16"};
    static const char *const inputs[] = {
        [INPUT_NORMAL] = "normal", [INPUT_TEXT] = "text", [INPUT_HDF5] = "hdf5"};
    char name[16];
    snprintf(name, sizeof name, "%04d", i + 1);
    hid_t g = group_new(trials, name, 1);
    int e = g < 0 || put_text(g, "op", t->op->name);

    for (int p = 0; !e && p < t->op->n_params; p++) {
        char buffer[32];
        const char *value = op_value(t->op, &t->sizes, p, buffer), *key = t->op->param[p].name;
        if (*value)
            e = t->op->param[p].choices ? put_text(g, key, value)
                : t->op->param[p].real  ? put_double(g, key, t->sizes.real[p])
                                        : put_int(g, key, DIM(&t->sizes, t->op->param[p].letter));
    }
    e = e || put_text(g, "dtype", types[t->type]) || put_seed(g, t->seed) ||
        put_text(g, "input", inputs[t->input]);
    const char *const optional[][2] = {
        {"file", t->file}, {"group", t->group}, {"kernel", t->kernel}, {"section", t->section}};
    for (size_t k = 0; !e && k < COUNT(optional); k++)
        if (*optional[k][1])
            e = put_text(g, optional[k][0], optional[k][1]);
    e = e || put_text(g, "line", t->text) || put_int(g, "n_checks", 0) || put_int(g, "failed", 0) ||
        put_int(g, "skipped", 0) || put_text(g, "skips", "") || put_int(g, "complete", 0);
    drop(g);
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
            return cannot("link %s", p[i].name);
    return 0;
}

static void close_parts(const struct part *p, int n)
{
    for (int i = 0; i < n; i++)
        drop(p[i].id);
}

/* The order of these steps is what the head of this file is about. */
static int write_trial(struct writing *w, hid_t trial)
{
    const struct result *r = w->r;
    const char *caution = w->op->caution ? w->op->caution(w->f) : NULL;
    int e = put_text(trial, "skips", r->skips) ||
            (*r->declined && put_text(trial, "declined", r->declined)) ||
            (caution && put_text(trial, "caution", caution));

    for (int i = 0; !e && i < w->n_items; i++)
        e = write_item(w, &w->item[i]);
    e = e || write_checks(w) || write_times(w) || write_regime(w) || flush(w->s);
    e = e || link_parts(trial, w->scale, w->n_scales) || link_parts(trial, w->group, w->n_groups) ||
        link_parts(trial, w->table, w->n_tables) || put_int(trial, "n_checks", r->verdicts.n) ||
        put_int(trial, "failed", r->failed) || put_int(trial, "skipped", r->skipped) || flush(w->s);
    return e || put_int(trial, "complete", 1) || flush(w->s) ? -1 : 0;
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
        hid_t trial = trial_open(s, i);
        e = trial < 0 || (write_trial(w, trial) && err_at("trial %d", i + 1));
        close_parts(w->table, w->n_tables);
        close_parts(w->group, w->n_groups);
        close_parts(w->scale, w->n_scales);
        drop(trial);
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
        drop(how);
        return -1;
    }
    return how;
}

/* May it run?  The references in any case. */
static int takes_part(const struct experiment *x, const struct backend *b)
{
    int named = !x->n_backends || b == &ref64 || b == &ref32 || b == &ref16;
    for (int i = 0; i < x->n_backends; i++)
        named |= x->backend[i] == b;
    return named && !b->unavailable();
}

void store_device_now(const struct experiment *x, char *text, size_t size)
{
    size_t at = 0;
    *text = 0;
    for (const struct backend *const *b = backends(); *b; b++)
        if (takes_part(x, *b) && at < size)
            at += snprintf(text + at, size - at, "%s%s: %s", at ? "\n" : "", (*b)->name,
                           (*b)->device());
}

static int describe(hid_t root, const struct experiment *x)
{
#if defined __GNUC__ && !defined __clang__
    static const char compiler[] = "GCC " __VERSION__;
#else
    static const char compiler[] = __VERSION__;
#endif
    char host[256] = "", date[32], device[2048];
    time_t now = time(NULL);
    struct tm utc;

    gethostname(host, sizeof host - 1);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    store_device_now(x, device, sizeof device);
    return put_text(root, "schema", "ablate-1") || put_text(root, "version", PACKAGE_VERSION) ||
           put_text(root, "measure", measure_names[x->measure]) ||
           put_text(root, "name", x->name) || put_text(root, "ini", x->text ? x->text : "") ||
           put_seed(root, x->seed) || put_text(root, "host", host) ||
           put_text(root, "device", device) || put_text(root, "compiler", compiler) ||
           put_text(root, "date", date) || put_int(root, "n_trials", x->n);
}

/* What times are compared with, in bytes, FLOP or evaluations a second, and seconds. */
static int write_ceilings(const struct store *s)
{
    const struct ceilings *c = s->x->ceilings;
    if (!c)
        return 0;
    hid_t g = group_new(s->file, "ceilings", 0);
    int e = g < 0 || put_double(g, "memory", c->memory) || put_double(g, "tensor", c->tensor) ||
            put_double(g, "fp32", c->fp32) || put_double(g, "special", c->special) ||
            put_double(g, "flop_time", c->flop_time) ||
            put_double(g, "special_time", c->special_time) || put_double(g, "launch", c->launch) ||
            put_double(g, "clock", c->clock);
    drop(g);
    return e;
}

/* Everything but the trials' contents, into the empty file. */
static int fill(struct store *s)
{
    const struct experiment *x = s->x;
    hid_t root = H5Gopen2(s->file, "/", H5P_DEFAULT), trials = -1;
    int e = root < 0 ? cannot("open /") : describe(root, x) || write_ceilings(s);

    e = e || (trials = group_new(s->file, "trial", 0)) < 0;
    for (int i = 0; !e && i < x->n; i++)
        e = trial_new(trials, &x->trial[i], i);
    drop(trials);
    drop(root);
    return e || flush(s) || trim(s) ? -1 : 0;
}

static hid_t create(const char *name)
{
    hid_t root = H5Pcreate(H5P_FILE_CREATE), how = file_how(), file = -1;
    const unsigned order = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;

    if (root >= 0 && how >= 0 && H5Pset_link_creation_order(root, order) >= 0 &&
        H5Pset_attr_creation_order(root, order) >= 0 && H5Pset_obj_track_times(root, 0) >= 0)
        file = H5Fcreate(name, H5F_ACC_TRUNC, root, how);
    if (file < 0)
        cannot("be written");
    drop(root);
    drop(how);
    return file;
}

/* Whoever writes an HDF5 file holds a flock on it, and HDF5's readers one
 * that is shared. */
static int in_use(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
}

/* A new part, in the place of one that may be there.  The old one stays
 * locked until then, so that no other process can begin to write it. */
static int begin(struct store *s)
{
    char temporary[MAX_NAME + 32];
    int old = open(s->name, O_RDWR | O_CLOEXEC), e = 0;

    if (old < 0 && errno != ENOENT)
        return err_set("%s", strerror(errno));
    if (old >= 0 && in_use(old)) {
        close(old);
        return err_set("another program has it open");
    }
    snprintf(temporary, sizeof temporary, "%s.%ld", s->name, (long)getpid());
    e = (s->file = create(temporary)) < 0;
    if (!e && (s->fd = open(temporary, O_RDWR | O_CLOEXEC)) < 0)
        e = err_set("%s", strerror(errno));
    e = e || reserve(s, MIB + (int64_t)s->x->n * 8192) || fill(s);
    if (!e && rename(temporary, s->name))
        e = err_set("%s", strerror(errno));
    if (e && s->file >= 0)
        unlink(temporary);
    if (old >= 0)
        close(old);
    return e ? -1 : 0;
}

/* Does the file hold this plan? */
static int same_plan(struct store *s)
{
    const struct experiment *x = s->x;
    hid_t root = H5Gopen2(s->file, "/", H5P_DEFAULT);
    char there[MAX_LINE];
    int64_t n = 0;
    int e = 0;

    if (!same_text(root, "schema", "ablate-1", there))
        e = err_set("was not written by this program");
    else if (!same_text(root, "name", x->name, there))
        e = err_set("holds another plan: '%s', not '%s'", there, x->name);
    else if (H5Aexists(root, "measure") > 0 &&
             !same_text(root, "measure", measure_names[x->measure], there))
        e = err_set("holds another plan: measure = %s, not %s", there, measure_names[x->measure]);
    else if (get_int(root, "n_trials", &n) || n != x->n)
        e = err_set("holds another plan: of %" PRId64 " trials, not %d", n, x->n);
    drop(root);
    for (int i = 0; !e && i < x->n; i++) {
        hid_t g = trial_open(s, i);
        if (g < 0)
            e = err_set("trial %d is damaged; it can only be begun anew", i + 1);
        else if (!same_text(g, "line", x->trial[i].text, there))
            e = err_set("holds another plan: trial %d is '%s' there", i + 1, there);
        drop(g);
    }
    return e;
}

static int empty_unfinished(struct store *s)
{
    for (int i = 0; i < s->x->n; i++) {
        hid_t g = trial_open(s, i);
        int64_t complete = 0;
        int e = get_int(g, "complete", &complete) || (!complete && trial_empty(g));
        drop(g);
        if (e)
            return err_set("trial %d is damaged; it can only be begun anew", i + 1);
    }
    return flush(s) || trim(s) ? -1 : 0;
}

/* The part, or the finished file, that is there. */
static int go_on(struct store *s)
{
    hid_t how;
    int e;

    s->fd = open(s->name, O_RDWR | O_CLOEXEC);
    if (s->fd < 0 && errno == ENOENT && access(s->final, F_OK) == 0) {
        s->finished = 1;
        strcpy(s->name, s->final);
        s->fd = open(s->name, O_RDONLY | O_CLOEXEC);
    }
    if (s->fd < 0)
        return errno == ENOENT ? begin(s) : err_set("%s", strerror(errno));
    if (!s->finished && in_use(s->fd))
        return err_set("another program has it open");
    flock(s->fd, LOCK_UN); /* for HDF5 to take */
    how = file_how();
    s->file = H5Fopen(s->name, s->finished ? H5F_ACC_RDONLY : H5F_ACC_RDWR, how);
    e = s->file < 0 ? cannot("be read") : 0;
    drop(how);
    e = e || same_plan(s);
    if (!e && !s->finished)
        e = empty_unfinished(s);
    return e ? -1 : 0;
}

static int has(struct store *s, int i, int *n_checks, int *failed, int *skipped)
{
    hid_t g = trial_open(s, i);
    int64_t complete = 0, c = 0, f = 0, k = 0;
    int e = g < 0 || get_int(g, "complete", &complete) || get_int(g, "n_checks", &c) ||
            get_int(g, "failed", &f) || get_int(g, "skipped", &k);
    drop(g);
    if (e || !complete)
        return 0;
    *n_checks = (int)c;
    *failed = (int)f;
    *skipped = (int)k;
    return 1;
}

static int has_all(struct store *s)
{
    int ignored;
    for (int i = 0; i < s->x->n; i++)
        if (!has(s, i, &ignored, &ignored, &ignored))
            return err_set("trial %d is missing", i + 1);
    return 0;
}

/* ---- times, read back ---- */

/* The columns of a time that are read; text is HDF5's to free. */
struct read_row {
    char *backend, *kernel, *pass;
    double median, spread;
    int64_t repeats;
    char *caches;
};
static const struct column read_columns[] = {
    COLUMN(read_row, backend, 's'), COLUMN(read_row, kernel, 's'), COLUMN(read_row, pass, 's'),
    COLUMN(read_row, median, 'd'),  COLUMN(read_row, spread, 'd'), COLUMN(read_row, repeats, 'i'),
    COLUMN(read_row, caches, 's'),
};

/* HDF5 would leave out what is not there, and say nothing. */
static int has_columns(hid_t table)
{
    hid_t type = H5Dget_type(table);
    int e = type < 0 || H5Tget_class(type) != H5T_COMPOUND ? err_set("the table time is none") : 0;

    for (size_t i = 0; !e && i < COUNT(read_columns); i++)
        if (H5Tget_member_index(type, read_columns[i].name) < 0)
            e = err_set("the table time has no column %s", read_columns[i].name);
    drop(type);
    return e;
}

static void keep_timings(struct timing *to, const struct read_row *from, int n)
{
    for (int i = 0; i < n; i++) {
        const struct read_row *r = &from[i];
        to[i] = (struct timing){.median = r->median, .spread = r->spread, .runs = r->repeats};
        snprintf(to[i].backend, sizeof to[i].backend, "%s", r->backend ? r->backend : "");
        snprintf(to[i].kernel, sizeof to[i].kernel, "%s", r->kernel ? r->kernel : "");
        snprintf(to[i].pass, sizeof to[i].pass, "%s", r->pass ? r->pass : "");
        snprintf(to[i].how, sizeof to[i].how, "%s", r->caches ? r->caches : "");
    }
}

static int read_table(hid_t table, struct timings *to)
{
    hid_t row = row_type(read_columns, COUNT(read_columns), sizeof(struct read_row));
    hid_t space = H5Dget_space(table);
    hssize_t n = H5Sget_simple_extent_npoints(space);
    struct read_row *rows = calloc(n > 0 ? n : 1, sizeof *rows);
    int e = has_columns(table);

    to->timing = calloc(n > 0 ? n : 1, sizeof *to->timing);
    if (!e && (!rows || !to->timing))
        e = err_set("no memory for %lld times", (long long)n);
    if (!e && (n < 0 || H5Dread(table, row, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows) < 0))
        e = cannot("read the table time");
    if (!e) {
        to->n = (int)n;
        keep_timings(to->timing, rows, to->n);
        H5Dvlen_reclaim(row, space, H5P_DEFAULT, rows);
    }
    free(rows);
    drop(space);
    drop(row);
    return e;
}

static int read_timings(hid_t trial, struct timings *to)
{
    char *line = get_text(trial, "line");
    hid_t table = -1;
    int e = !line;

    *to = (struct timings){.n = 0};
    if (line)
        snprintf(to->line, sizeof to->line, "%s", line);
    free(line);
    if (e || H5Lexists(trial, "time", H5P_DEFAULT) <= 0)
        return e ? -1 : 0;
    table = H5Dopen2(trial, "time", H5P_DEFAULT);
    e = table < 0 ? cannot("open the table time") : read_table(table, to);
    drop(table);
    return e;
}

/* Of the complete trials, which are counted in d->n. */
static int read_trials(struct store *s, struct dump_times *d, int64_t n)
{
    int e = 0;
    d->trial = calloc(n > 0 ? n : 1, sizeof *d->trial);
    if (!d->trial)
        return err_set("no memory for the times of %" PRId64 " trials", n);
    for (int i = 0; !e && i < n; i++) {
        hid_t g = trial_open(s, i);
        int64_t complete = 0;
        e = g < 0 || get_int(g, "complete", &complete);
        if (!e && complete)
            e = read_timings(g, &d->trial[d->n++]) ? err_at("trial %d", i + 1) : 0;
        drop(g);
    }
    return e;
}

static int read_dump(const char *file, struct dump_times *d)
{
    struct store s = {.file = -1};
    char there[MAX_LINE];
    int64_t n = 0;

    if (access(file, R_OK))
        return err_set("%s", strerror(errno));
    if (H5Fis_hdf5(file) == 0)
        return err_set("is no HDF5 file");
    s.file = H5Fopen(file, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (s.file < 0)
        return cannot("be read");
    hid_t root = H5Gopen2(s.file, "/", H5P_DEFAULT);
    int e = 0;
    if (!same_text(root, "schema", "ablate-1", there))
        e = *there ? err_set("has the schema '%s', not 'ablate-1'", there)
                   : err_set("was not written by this program");
    e = e || !(d->device = get_text(root, "device")) || get_int(root, "n_trials", &n) ||
        read_trials(&s, d, n);
    drop(root);
    H5Fclose(s.file);
    return e ? -1 : 0;
}

/* ---- what store.h promises; HDF5 prints nothing meanwhile ---- */

struct store *store_open(const struct experiment *x, int resume)
{
    struct store *s = calloc(1, sizeof *s);
    int e = -1;

    if (!s) {
        err_set("no memory for a store");
        return NULL;
    }
    *s = (struct store){.x = x, .file = -1, .fd = -1};
    snprintf(s->final, sizeof s->final, "%s", x->output);
    snprintf(s->name, sizeof s->name, "%s.part", x->output);
    H5E_BEGIN_TRY
    {
        if (x->compress && H5Zfilter_avail(H5Z_FILTER_DEFLATE) <= 0)
            err_set("this HDF5 library cannot compress; set compress = 0");
        else
            e = resume ? go_on(s) : begin(s);
        if (e && s->file >= 0)
            H5Fclose(s->file);
    }
    H5E_END_TRY
    if (!e)
        return s;
    err_at("%s", s->name);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
    return NULL;
}

int store_has(struct store *s, int i, int *n_checks, int *failed, int *skipped)
{
    int there;
    H5E_BEGIN_TRY
    {
        there = has(s, i, n_checks, failed, skipped);
    }
    H5E_END_TRY
    return there;
}

int store_write(struct store *s, int i, const struct result *r)
{
    int e, ignored;
    H5E_BEGIN_TRY
    {
        if (s->finished || has(s, i, &ignored, &ignored, &ignored))
            e = err_set("trial %d is there already", i + 1);
        else
            e = write_result(s, i, r);
    }
    H5E_END_TRY
    return e ? err_at("%s", s->name) : 0;
}

int store_close(struct store *s, int complete)
{
    int e = 0;
    H5E_BEGIN_TRY
    {
        if (!s->finished)
            e = (complete && has_all(s)) || flush(s) || trim(s);
        if (H5Fclose(s->file) < 0 && !e)
            e = cannot("close");
    }
    H5E_END_TRY
    if (!e && !s->finished && fsync(s->fd))
        e = err_set("%s", strerror(errno));
    close(s->fd);
    if (!e && complete && !s->finished && rename(s->name, s->final))
        e = err_set("cannot become %s: %s", s->final, strerror(errno));
    if (e)
        err_at("%s", s->name);
    free(s);
    return e ? -1 : 0;
}

int store_timings(struct store *s, int i, struct timings *to)
{
    int e;
    *to = (struct timings){.n = 0};
    H5E_BEGIN_TRY
    {
        hid_t g = trial_open(s, i);
        e = g < 0 || read_timings(g, to);
        drop(g);
    }
    H5E_END_TRY
    return e ? err_at("%s: trial %d", s->name, i + 1) : 0;
}

char *store_device(struct store *s)
{
    char *text;
    H5E_BEGIN_TRY
    {
        text = get_text(s->file, "device");
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
