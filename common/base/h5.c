/* Attributes, groups, datasets and tables in HDF5 (h5.h). */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/h5.h"

enum { MAX_STRING = 1 << 24 }; /* bytes of a text of fixed length: more is no text of ours */

/* ---- errors ---- */

struct reason {
    char text[200];
    int filter; /* it names a filter that is missing: nothing says more */
};

/* HDF5 reports a failed system call at length; the system's own message stands
 * there between quotes.  Of a filter that this library lacks it reports
 * first that no plugin was found, and its name further out. */
static herr_t innermost(unsigned n, const H5E_error2_t *e, void *data)
{
    static const char head[] = "error message = '", filter[] = "required filter";
    struct reason *r = data;
    const char *words = e->desc ? strstr(e->desc, head) : NULL;

    if (e->desc && !r->filter && strncmp(e->desc, filter, strlen(filter)) == 0) {
        const char *name = strchr(e->desc, '\'');
        r->filter = 1;
        snprintf(r->text, sizeof r->text, "it needs the filter %.*s, which this HDF5 library lacks",
                 name ? (int)strcspn(name, " ") : 7, name ? name : "unnamed");
    } else if (n == 0 && words) {
        words += sizeof head - 1;
        snprintf(r->text, sizeof r->text, "%.*s", (int)strcspn(words, "'"), words);
    } else if (n == 0 && e->desc) {
        snprintf(r->text, sizeof r->text, "%s", e->desc);
    }
    return 0;
}

static _Thread_local char taken[FILE_HOLDER + 16]; /* why h5_open() failed; "": as HDF5 says */

const char *h5_reason(void)
{
    static _Thread_local struct reason reason;

    if (*taken) {
        snprintf(reason.text, sizeof reason.text, "%s", taken);
        *taken = 0;
        return reason.text;
    }
    reason = (struct reason){.text = "HDF5 gives no reason"};
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, &reason);
    return reason.text;
}

/* To be called before any other HDF5 function, which would clear the reason. */
int h5_cannot(const char *fmt, ...)
{
    char what[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set("cannot %s: %s", what, h5_reason());
}

hid_t h5_open(const char *file, unsigned how)
{
    const double until = seconds_now() + H5_PATIENCE;
    char holder[FILE_HOLDER];
    hid_t f;

    *taken = 0;
    while ((f = H5Fopen(file, how, H5P_DEFAULT)) < 0 &&
           strcmp(h5_reason(), strerror(EAGAIN)) == 0) { /* it is locked */
        const double left = until - seconds_now();
        if (left <= 0 || file_is_locked(file, how == H5F_ACC_RDWR, left)) {
            snprintf(taken, sizeof taken, "%s has it open", file_holder(file, holder));
            break;
        }
    }
    return f;
}

void h5_drop(hid_t id)
{
    if (id >= 0)
        H5Idec_ref(id);
}

/* ---- attributes written ---- */

static int put(hid_t at, const char *name, hid_t stored, hid_t given, const void *value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t a = H5Aexists(at, name) > 0
                  ? H5Aopen(at, name, H5P_DEFAULT)
                  : H5Acreate2(at, name, stored, space, H5P_DEFAULT, H5P_DEFAULT);
    int e = a < 0 || H5Awrite(a, given, value) < 0 ? h5_cannot("write attribute %s", name) : 0;
    h5_drop(a);
    h5_drop(space);
    return e;
}

int h5_put_int(hid_t at, const char *name, int64_t value)
{
    return put(at, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}

int h5_put_double(hid_t at, const char *name, double value)
{
    return put(at, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
}

int h5_put_seed(hid_t at, const char *name, uint64_t seed)
{
    return put(at, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, &seed);
}

static hid_t text_of(size_t size, H5T_cset_t set)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, size) < 0 || H5Tset_cset(type, set) < 0)) {
        h5_drop(type);
        return -1;
    }
    return type;
}

hid_t h5_text_type(void)
{
    return text_of(H5T_VARIABLE, H5T_CSET_UTF8);
}

int h5_put_text(hid_t at, const char *name, const char *value)
{
    hid_t type = h5_text_type();
    int e = type < 0 ? h5_cannot("make a type for strings") : put(at, name, type, type, &value);
    h5_drop(type);
    return e;
}

/* ---- attributes read ---- */

/* An attribute that was opened, and what it holds. */
struct one {
    hid_t a, type;
};

static void close_one(struct one *o)
{
    h5_drop(o->type);
    h5_drop(o->a);
}

/* The attribute, if it is one value of that class, which is `what` in words. */
static int open_one(hid_t at, const char *name, H5T_class_t class, const char *what, struct one *o)
{
    hid_t space = -1;
    int e = 0;

    *o = (struct one){-1, -1};
    if (H5Aexists(at, name) <= 0)
        return err_set("there is no attribute %s", name);
    if ((o->a = H5Aopen(at, name, H5P_DEFAULT)) < 0 || (o->type = H5Aget_type(o->a)) < 0 ||
        (space = H5Aget_space(o->a)) < 0)
        e = h5_cannot("read attribute %s", name);
    else if (H5Sget_simple_extent_npoints(space) != 1 || H5Tget_class(o->type) != class)
        e = err_set("attribute %s is not one %s", name, what);
    h5_drop(space);
    if (e)
        close_one(o);
    return e;
}

/* One number of a class, which errors call `what`, as the type in memory. */
static int get_number(hid_t at, const char *name, H5T_class_t class, const char *what, hid_t type,
                      void *value)
{
    struct one o;
    if (open_one(at, name, class, what, &o))
        return -1;
    int e = H5Aread(o.a, type, value) < 0 ? h5_cannot("read attribute %s", name) : 0;
    close_one(&o);
    return e;
}

int h5_get_int(hid_t at, const char *name, int64_t *value)
{
    return get_number(at, name, H5T_INTEGER, "whole number", H5T_NATIVE_INT64, value);
}

int h5_get_seed(hid_t at, const char *name, uint64_t *seed)
{
    return get_number(at, name, H5T_INTEGER, "whole number", H5T_NATIVE_UINT64, seed);
}

int h5_get_double(hid_t at, const char *name, double *value)
{
    return get_number(at, name, H5T_FLOAT, "number", H5T_NATIVE_DOUBLE, value);
}

static char *variable_text(const struct one *o, const char *name)
{
    hid_t type = text_of(H5T_VARIABLE, H5Tget_cset(o->type));
    char *text = NULL, *copy = NULL;

    if (type < 0 || H5Aread(o->a, type, &text) < 0)
        h5_cannot("read attribute %s", name);
    else if (!(copy = strdup(text ? text : "")))
        err_set("no memory for attribute %s", name);
    H5free_memory(text);
    h5_drop(type);
    return copy;
}

static char *fixed_text(const struct one *o, const char *name)
{
    size_t size = H5Tget_size(o->type);
    hid_t type = -1;
    char *text = NULL;

    if (!size || size > MAX_STRING)
        err_set("attribute %s has %zu bytes, which is no text", name, size);
    else if (!(text = calloc(1, size + 1)))
        err_set("no memory for attribute %s", name);
    else if ((type = text_of(size + 1, H5Tget_cset(o->type))) < 0 ||
             H5Aread(o->a, type, text) < 0) {
        h5_cannot("read attribute %s", name);
        free(text);
        text = NULL;
    }
    h5_drop(type);
    return text;
}

char *h5_get_text(hid_t at, const char *name)
{
    struct one o;
    if (open_one(at, name, H5T_STRING, "text", &o))
        return NULL;
    char *text = H5Tis_variable_str(o.type) > 0 ? variable_text(&o, name) : fixed_text(&o, name);
    close_one(&o);
    return text;
}

int h5_same_text(hid_t at, const char *name, const char *value, char *there, size_t size)
{
    char *text = h5_get_text(at, name);
    int same = text && strcmp(text, value) == 0;
    snprintf(there, size, "%s", text ? text : "");
    free(text);
    return same;
}

/* ---- datasets read ---- */

static int has_shape(hid_t space, int rank, const int64_t *size)
{
    hsize_t there[H5S_MAX_RANK];
    int same = H5Sget_simple_extent_type(space) != H5S_NULL &&
               H5Sget_simple_extent_ndims(space) == rank &&
               H5Sget_simple_extent_dims(space, there, NULL) == rank;
    for (int i = 0; same && i < rank; i++)
        same = there[i] == (hsize_t)size[i];
    return same;
}

void h5_shape_text(char *text, size_t size, int rank, const hsize_t *dim)
{
    size_t at = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < rank && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%llu", i ? "," : "",
                               (unsigned long long)dim[i]);
    if (at < size)
        snprintf(text + at, size - at, "]");
}

static int wrong_shape(hid_t space, const char *name, int rank, const int64_t *size)
{
    hsize_t there[H5S_MAX_RANK], wanted[H5S_MAX_RANK];
    const int n = H5Sget_simple_extent_dims(space, there, NULL);
    char is[160], want[160];

    for (int i = 0; i < rank; i++)
        wanted[i] = (hsize_t)size[i];
    h5_shape_text(is, sizeof is, n > 0 ? n : 0, there);
    h5_shape_text(want, sizeof want, rank, wanted);
    return err_set("%s has another shape: it is %s, not %s", name, is, want);
}

int h5_is_bytes(hid_t type)
{
    return H5Tget_class(type) == H5T_INTEGER && H5Tget_size(type) == 1 &&
           H5Tget_sign(type) == H5T_SGN_NONE;
}

/* As doubles, or bytes where there are no doubles. */
static int read_tensor(hid_t group, const char *name, int rank, const int64_t *size, double *x,
                       unsigned char *b)
{
    hid_t d = H5Dopen2(group, name, H5P_DEFAULT), type = -1, space = -1;
    int e = 0;

    if (d < 0 || (type = H5Dget_type(d)) < 0 || (space = H5Dget_space(d)) < 0)
        e = err_set("%s cannot be read: %s", name, h5_reason());
    else if (!x && !h5_is_bytes(type))
        e = err_set("%s is not of bytes: uint8", name);
    else if (H5Tget_class(type) != H5T_FLOAT && H5Tget_class(type) != H5T_INTEGER)
        e = err_set("%s is neither floating point nor whole numbers", name);
    else if (!has_shape(space, rank, size))
        e = wrong_shape(space, name, rank, size);
    else if (H5Dread(d, x ? H5T_NATIVE_DOUBLE : H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                     x ? (void *)x : b) < 0)
        e = err_set("%s cannot be read: %s", name, h5_reason());
    h5_drop(space);
    h5_drop(type);
    h5_drop(d);
    return e;
}

int h5_read_tensor(hid_t group, const char *name, int rank, const int64_t *size, double *x)
{
    return read_tensor(group, name, rank, size, x, NULL);
}

int h5_read_bytes(hid_t group, const char *name, int rank, const int64_t *size, unsigned char *b)
{
    return read_tensor(group, name, rank, size, NULL, b);
}

hid_t h5_table_type(hid_t table)
{
    const int set = H5Iget_type(table) == H5I_DATASET;
    hid_t type = set ? H5Dget_type(table) : -1, space = set ? H5Dget_space(table) : -1;
    const int is = type >= 0 && H5Tget_class(type) == H5T_COMPOUND && space >= 0 &&
                   H5Sget_simple_extent_ndims(space) == 1;

    h5_drop(space);
    if (is)
        return type;
    h5_drop(type);
    return err_set("not a table of rows with named columns");
}

int h5_table_rows(hid_t table, int max)
{
    hid_t space = H5Dget_space(table);
    const hssize_t n = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);

    h5_drop(space);
    if (n < 0)
        return h5_cannot("see how many rows there are");
    return n > max ? err_set("%lld rows, more than %d", (long long)n, max) : (int)n;
}

/* Can column i of a row be read from a table of that type?  HDF5 leaves out one that is not there,
 * and says nothing. */
static int check_column(hid_t type, hid_t row, int i, int all)
{
    char *name = H5Tget_member_name(row, (unsigned)i);
    const int there = name ? H5Tget_member_index(type, name) : -1;
    int e = there < 0 && all ? err_set("there is no column %s", name ? name : "") : 0;

    if (there >= 0) {
        const H5T_class_t class = H5Tget_member_class(type, (unsigned)there);
        hid_t member = H5Tget_member_type(type, (unsigned)there);
        const int good = H5Tget_member_class(row, (unsigned)i) == H5T_STRING
                             ? class == H5T_STRING && H5Tis_variable_str(member) > 0
                             : class == H5T_FLOAT || class == H5T_INTEGER;
        h5_drop(member);
        e = good ? 0 : err_set("column %s is of another type", name);
    }
    H5free_memory(name);
    return e;
}

hid_t h5_table(hid_t group, const char *name, const struct h5_table *as, int *rows)
{
    hid_t table = H5Oopen(group, name, H5P_DEFAULT);
    hid_t type = table < 0 ? h5_cannot("be opened") : h5_table_type(table);
    int e = type < 0 || (*rows = h5_table_rows(table, as->max)) < 0;

    for (int i = 0; !e && i < H5Tget_nmembers(as->row); i++)
        e = check_column(type, as->row, i, as->all);
    h5_drop(type);
    if (!e)
        return table;
    *rows = 0;
    h5_drop(table);
    return err_at("%s", name);
}

/* ---- groups, datasets and tables made ---- */

/* How groups are made: members and attributes listed in the order in which
 * they were made, no times. */
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

hid_t h5_group_new(hid_t at, const char *name, int whole)
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

enum { MIB = 1 << 20 };

hid_t h5_type(enum dtype t)
{
    switch (t) {
    case F64: return H5T_IEEE_F64LE;
    case F32: return H5T_IEEE_F32LE;
    case I64: return H5T_STD_I64LE;
    case I32: return H5T_STD_I32LE;
    case U8: return H5T_STD_U8LE;
    default: return -1;
    }
}

/* About half a MiB, of whole trailing axes. */
static void chunk_size(int rank, const hsize_t *dim, size_t element, hsize_t *chunk)
{
    hsize_t left = MIB / 2 / element;
    for (int i = rank - 1; i >= 0; i--) {
        chunk[i] = dim[i] < left ? dim[i] : left;
        left /= chunk[i] ? chunk[i] : 1;
        left = chunk[i] < dim[i] || left < 1 ? 1 : left;
    }
}

/* Small ones would only grow by being compressed. */
enum { COMPRESS_FROM = 16384 };

/* How datasets are made.  Contiguous ones are written as a whole, so nothing
 * fills them first, except for strings, where HDF5 insists; chunks that reach
 * over the end are, or their padding would differ from run to run; and what
 * is never written reads as 0. */
static hid_t dataset_how(const struct h5_data *from)
{
    size_t element = H5Tget_size(from->stored);
    hid_t how = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk[H5S_MAX_RANK], bytes = element;
    int e = how < 0 || H5Pset_obj_track_times(how, 0) < 0;

    for (int i = 0; i < from->rank; i++)
        bytes *= from->dim[i];
    if (!e && from->compress && bytes >= COMPRESS_FROM) {
        chunk_size(from->rank, from->dim, element, chunk);
        e = H5Pset_chunk(how, from->rank, chunk) < 0 || H5Pset_shuffle(how) < 0 ||
            H5Pset_deflate(how, from->compress) < 0;
    } else if (!e && from->data && H5Tget_class(from->stored) == H5T_FLOAT) {
        e = H5Pset_fill_time(how, H5D_FILL_TIME_NEVER) < 0;
    }
    if (e) {
        h5_drop(how);
        return -1;
    }
    return how;
}

hid_t h5_dataset_new(hid_t at, const char *name, const struct h5_data *from)
{
    hid_t space = H5Screate_simple(from->rank, from->dim, NULL);
    hid_t how = dataset_how(from);
    hid_t d = name ? H5Dcreate2(at, name, from->stored, space, H5P_DEFAULT, how, H5P_DEFAULT)
                   : H5Dcreate_anon(at, from->stored, space, how, H5P_DEFAULT);

    if (d < 0 ||
        (from->data && H5Dwrite(d, from->given, H5S_ALL, H5S_ALL, H5P_DEFAULT, from->data) < 0)) {
        h5_cannot(name ? "write dataset %s" : "write%s", name ? name : "");
        h5_drop(d);
        d = -1;
    }
    h5_drop(how);
    h5_drop(space);
    return d;
}

hid_t h5_row_type(const struct column *column, size_t size)
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
