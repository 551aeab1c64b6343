/* ablate.h's functions for what is in a dump: its groups, attributes, tensors and tables, by h5.h.
 * A file may come from anybody: no number in it decides how much memory is allocated. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>
#include <hdf5_hl.h>

#include "common/api/api.h"
#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/grow.h"
#include "common/base/h5.h"
#include "common/base/quote.h"
#include "common/store/header.h"

/* The names of a group's links, in the order in which they were made where the group knows it; and where
 * member i was found, so that the next one is looked for behind it. */
struct listing {
    char *group, **name;
    int n, i, at;
};

struct abl_dump {
    hid_t file;
    char name[512];
    struct listing last; /* of the group that was asked for last */
};

static void forget(struct listing *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->name[i]);
    free(l->name);
    free(l->group);
    *l = (struct listing){.n = 0};
}

abl_dump *abl_dump_open(const char *file)
{
    if (IS_NULL(file, "name of the file"))
        return NULL;
    const char *why = file_unreadable(file);
    abl_dump *d = why ? NULL : calloc(1, sizeof *d);

    if (!d)
        return err_null("%s: %s", file, why ? why : "no memory to read it");
    snprintf(d->name, sizeof d->name, "%s", file);
    d->file = -1;
    if (lock_library()) {
        free(d);
        return NULL;
    }
    H5E_BEGIN_TRY
    {
        d->file = h5_open(file, H5F_ACC_RDONLY);
        if (d->file < 0)
            err_set("%s cannot be read as HDF5: %s", file, h5_reason());
        else if (!header_schema(d->file)) {
            err_at("%s", file);
            H5Fclose(d->file);
            d->file = -1;
        }
    }
    H5E_END_TRY
    unlock_library();
    if (d->file >= 0)
        return d;
    free(d);
    return NULL;
}

void abl_dump_free(abl_dump *d)
{
    if (d && !lock_library_to_free()) {
        H5Fclose(d->file);
        forget(&d->last);
        unlock_library();
    }
    free(d);
}

/* Do `read` with an object of the file, open; HDF5 itself prints nothing. */
static int64_t with_object(const abl_dump *d, const char *path,
                           int64_t (*read)(hid_t object, void *data), void *data)
{
    int64_t e = -1;

    if (lock_library())
        return -1;
    H5E_BEGIN_TRY
    {
        hid_t object = H5Oopen(d->file, path, H5P_DEFAULT);
        if (object < 0)
            err_set("%s has no %s", d->name, path);
        else if ((e = read(object, data)) == -1)
            err_at("%s:%s", d->name, path);
        if (object >= 0)
            H5Oclose(object);
    }
    H5E_END_TRY
    unlock_library();
    return e;
}

/* ---- members of a group ---- */

struct member_of {
    struct listing *list;
    const char *group;
    int i;
    struct abl_member *to;
};

/* Are there names of its axes, as H5DSget_label() expects them?  It looks at neither their type nor their
 * number. */
static int has_labels(hid_t dataset, int rank)
{
    hid_t at = H5Aexists(dataset, "DIMENSION_LABELS") > 0
                   ? H5Aopen(dataset, "DIMENSION_LABELS", H5P_DEFAULT)
                   : -1;
    hid_t type = at < 0 ? -1 : H5Aget_type(at), space = at < 0 ? -1 : H5Aget_space(at);
    const int are = type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING &&
                    H5Tis_variable_str(type) > 0 && H5Sget_simple_extent_npoints(space) == rank;

    h5_drop(space);
    h5_drop(type);
    if (at >= 0)
        H5Aclose(at);
    return are;
}

/* Its shape, which axes have names, and whether it is a table. */
static int describe_dataset(hid_t dataset, struct abl_member *to)
{
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    hsize_t size[H5S_MAX_RANK];
    const int rank = type < 0 || space < 0 ? -1 : H5Sget_simple_extent_dims(space, size, NULL);
    int e = rank < 0 ? h5_cannot("see its shape") : 0;

    if (!e && rank > ABL_MAX_RANK)
        e = err_set("has %d axes, at most %d can be read", rank, ABL_MAX_RANK);
    if (!e) {
        const int table = H5Tget_class(type) == H5T_COMPOUND && rank == 1;
        to->kind = table ? ABL_TABLE : ABL_DATASET;
        to->rank = table ? 0 : rank;
        to->columns = table ? H5Tget_nmembers(type) : 0;
        to->count = H5Sget_simple_extent_npoints(space);
    }
    const int labelled = !e && has_labels(dataset, rank);
    for (int i = 0; !e && i < to->rank; i++) {
        to->size[i] = (int64_t)size[i];
        if (!labelled || H5DSget_label(dataset, i, to->axis[i], sizeof to->axis[i]) < 0)
            to->axis[i][0] = 0;
    }
    h5_drop(space);
    h5_drop(type);
    return e ? -1 : 0;
}

static herr_t add_name(hid_t group, const char *name, const H5L_info_t *info, void *data)
{
    struct listing *l = data;
    char **more = grow(l->name, l->n, sizeof *more);

    (void)group, (void)info;
    if (!more || !((l->name = more)[l->n] = strdup(name)))
        return err_set("no memory for the names of its members");
    l->n++;
    return 0;
}

/* All links of a group, unless they are known. */
static int list_links(hid_t group, const char *path, struct listing *l)
{
    if (l->group && strcmp(l->group, path) == 0)
        return 0;
    forget(l);
    l->i = l->at = -1;
    int e = H5Literate(group, H5_INDEX_CRT_ORDER, H5_ITER_INC, NULL, add_name, l) < 0;
    if (e && !l->n)
        e = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, add_name, l) < 0;
    if (e || !(l->group = strdup(path))) {
        forget(l);
        return h5_cannot("see its members");
    }
    return 0;
}

/* Returns 1 if it is none to be shown: a scale, a type, or a link that leads nowhere. */
static int describe_link(hid_t group, const char *name, struct abl_member *to)
{
    hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    const H5I_type_t type = object < 0 ? H5I_BADID : H5Iget_type(object);
    int e = 1;

    to->kind = ABL_GROUP;
    if (type == H5I_GROUP)
        e = 0;
    else if (type == H5I_DATASET && H5DSis_scale(object) <= 0)
        e = describe_dataset(object, to) ? err_at("%s", name) : 0;
    if (object >= 0)
        H5Oclose(object);
    return e;
}

static int64_t find_member(hid_t group, void *data)
{
    struct member_of *m = data;
    struct listing *l = m->list;

    if (H5Iget_type(group) != H5I_GROUP)
        return err_set("is no group");
    if (list_links(group, m->group, l))
        return -1;
    if (m->i <= l->i)
        l->i = l->at = -1;
    while (++l->at < l->n) {
        *m->to = (struct abl_member){.rank = 0};
        if (strlen(l->name[l->at]) >= sizeof m->to->name)
            continue;
        strcpy(m->to->name, l->name[l->at]);
        const int e = describe_link(group, m->to->name, m->to);
        if (e < 0) {
            l->i = l->at = -1;
            return -1;
        }
        if (!e && ++l->i == m->i)
            return 0;
    }
    l->i = l->at = -1;
    return 1;
}

int abl_dump_member(const abl_dump *d, const char *group, int i, struct abl_member *to)
{
    if (IS_NULL(d, "dump") || IS_NULL(group, "group") || IS_NULL(to, "destination"))
        return -1;
    struct member_of m = {&((abl_dump *)d)->last, group, i, to};
    return i < 0 ? 1 : (int)with_object(d, group, find_member, &m);
}

/* A member that abl_dump_member() cannot show: its name is too long, or its link leads nowhere. */
static int64_t find_unseen(hid_t group, void *data)
{
    struct member_of *m = data;
    struct listing *l = m->list;

    if (list_links(group, m->group, l))
        return -1;
    for (int i = 0; i < l->n; i++) {
        if (strlen(l->name[i]) >= sizeof m->to->name)
            return err_set("the name %.*s... has %zu bytes, at most %zu are read",
                           quote_fit(l->name[i], 40), l->name[i], strlen(l->name[i]),
                           sizeof m->to->name - 1);
        hid_t object = H5Oopen(group, l->name[i], H5P_DEFAULT);
        if (object < 0)
            return err_set("%s cannot be opened", l->name[i]);
        H5Oclose(object);
    }
    return 0;
}

int dump_unseen(const abl_dump *d, const char *group)
{
    struct abl_member to;
    struct member_of m = {&((abl_dump *)d)->last, group, 0, &to};
    return (int)with_object(d, group, find_unseen, &m);
}

/* ---- attributes ---- */

struct attribute_of {
    int i;
    struct abl_attribute *to;
    char *text;
    int64_t size;
};

static int64_t put_text(const char *from, char *to, int64_t size)
{
    if (size > 0)
        snprintf(to, (size_t)size, "%s", from);
    return (int64_t)strlen(from);
}

/* An attribute of one number; nonzero where it is none. */
static int read_number(hid_t attribute, hid_t type, struct abl_attribute *to)
{
    const H5T_class_t class = H5Tget_class(type);

    to->type = class == H5T_FLOAT ? ABL_REAL : ABL_WHOLE;
    if ((class != H5T_INTEGER && class != H5T_FLOAT) ||
        H5Aread(attribute, H5T_NATIVE_DOUBLE, &to->real) < 0)
        return -1;
    if (class != H5T_INTEGER)
        return 0;
    const int unsign = H5Tget_sign(type) == H5T_SGN_NONE;
    if (H5Aread(attribute, unsign ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64, &to->whole) < 0)
        return -1;
    to->type = unsign && to->whole < 0 ? ABL_LARGE : ABL_WHOLE;
    return 0;
}

static int64_t read_attribute(hid_t object, void *data)
{
    struct attribute_of *a = data;
    H5O_info_t info;

    if (H5Oget_info(object, &info) < 0)
        return h5_cannot("see its attributes");
    if (a->i >= (int)info.num_attrs)
        return -2;
    hid_t at =
        H5Aopen_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_INC, a->i, H5P_DEFAULT, H5P_DEFAULT);
    hid_t type = at < 0 ? -1 : H5Aget_type(at), space = at < 0 ? -1 : H5Aget_space(at);
    int64_t n = 0;

    *a->to = (struct abl_attribute){.type = ABL_TEXT};
    if (a->size > 0)
        *a->text = 0;
    if (type < 0 || space < 0 || H5Aget_name(at, sizeof a->to->name, a->to->name) < 0) {
        n = h5_cannot("read attribute %d", a->i);
    } else if (H5Tget_class(type) == H5T_STRING) {
        char *text = h5_get_text(object, a->to->name);
        n = text ? put_text(text, a->text, a->size) : 0;
        free(text);
    } else if (H5Sget_simple_extent_npoints(space) == 1) {
        (void)read_number(at, type, a->to);
    }
    h5_drop(space);
    h5_drop(type);
    if (at >= 0)
        H5Aclose(at);
    return n;
}

int64_t abl_dump_attribute(const abl_dump *d, const char *path, int i, struct abl_attribute *to,
                           char *text, int64_t size)
{
    if (IS_NULL(d, "dump") || IS_NULL(path, "path") || IS_NULL(to, "destination"))
        return -1;
    if (size > 0 && IS_NULL(text, "text"))
        return -1;
    struct attribute_of a = {i, to, text, size};
    return i < 0 ? -2 : with_object(d, path, read_attribute, &a);
}

/* ---- datasets ---- */

struct values_of {
    double *to;
    int64_t n;
};

/* How many elements; -1 after err_set(). */
static int64_t count_of(hid_t dataset)
{
    hid_t space = H5Iget_type(dataset) == H5I_DATASET ? H5Dget_space(dataset) : -1;
    const int64_t n = space < 0 ? err_set("is no dataset") : H5Sget_simple_extent_npoints(space);

    h5_drop(space);
    return n;
}

static int64_t read_values(hid_t dataset, void *data)
{
    const struct values_of *v = data;
    const int64_t n = count_of(dataset);

    if (n < 0)
        return -1;
    hid_t type = H5Dget_type(dataset);
    const H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    h5_drop(type);
    if (class != H5T_FLOAT && class != H5T_INTEGER)
        return err_set("is neither floating point nor whole numbers");
    if (n != v->n)
        return err_set("has %lld elements, not %lld", (long long)n, (long long)v->n);
    return H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v->to) < 0
               ? err_set("cannot be read: %s", h5_reason())
               : 0;
}

int abl_dump_read(const abl_dump *d, const char *dataset, double *values, int64_t n)
{
    if (IS_NULL(d, "dump") || IS_NULL(dataset, "dataset") || IS_NULL(values, "array"))
        return -1;
    struct values_of v = {values, n};
    return (int)with_object(d, dataset, read_values, &v);
}

/* ---- tables ---- */

/* A column of a table; in memory each of its cells has CELL bytes. */
struct cells {
    char *name;
    enum abl_type type;
};
enum { CELL = 8, MAX_CELLS = 1 << 24 };

struct table_of {
    struct cells *column;
    int n_columns, n_rows;
    hid_t row; /* in memory */
    hid_t text;
    char *cell; /* n_rows x n_columns x CELL bytes: int64_t, uint64_t, double or char * */
};

/* The type of column c in memory, by its type in the file; -1 after err_set(): it has neither texts
 * nor numbers. */
static hid_t cell_type(hid_t member, const struct table_of *t, struct cells *c)
{
    const int unsign = H5Tget_sign(member) == H5T_SGN_NONE;

    switch (H5Tget_class(member)) {
    case H5T_STRING:
        c->type = ABL_TEXT;
        return H5Tis_variable_str(member) > 0
                   ? t->text
                   : err_set("column %s has texts of a fixed length", c->name);
    case H5T_FLOAT: c->type = ABL_REAL; return H5T_NATIVE_DOUBLE;
    case H5T_INTEGER:
        c->type = unsign ? ABL_LARGE : ABL_WHOLE;
        return unsign ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64;
    default: return err_set("column %s has neither texts nor numbers", c->name);
    }
}

/* All columns, as a row in memory; nonzero after err_set(). */
static int table_columns(hid_t type, struct table_of *t)
{
    const int n = H5Tget_nmembers(type);

    t->text = h5_text_type();
    t->row = H5Tcreate(H5T_COMPOUND, (size_t)n * CELL);
    t->column = calloc((size_t)n, sizeof *t->column);
    if (!t->column)
        return err_set("no memory for %d columns", n);
    for (int i = 0; i < n; i++) {
        struct cells *c = &t->column[t->n_columns++];
        if (!(c->name = H5Tget_member_name(type, (unsigned)i)))
            return h5_cannot("read the name of column %d", i);
        hid_t member = H5Tget_member_type(type, (unsigned)i);
        const hid_t cell = cell_type(member, t, c);
        h5_drop(member);
        if (cell < 0)
            return -1;
        if (H5Tinsert(t->row, c->name, (size_t)i * CELL, cell) < 0)
            return h5_cannot("read column %s", c->name);
    }
    return 0;
}

static void put_cell(FILE *to, enum abl_type type, const char *cell)
{
    union {
        char *text;
        int64_t whole;
        uint64_t large;
        double real;
    } c;

    memcpy(&c, cell, CELL);
    if (type == ABL_TEXT)
        fputs(c.text ? c.text : "", to);
    else if (type == ABL_REAL)
        fprintf(to, "%.17g", c.real);
    else if (type == ABL_LARGE)
        fprintf(to, "%" PRIu64, c.large);
    else
        fprintf(to, "%" PRId64, c.whole);
    fputc(0, to);
}

/* What abl_dump_table() gives. */
static void put_table(FILE *to, const struct table_of *t)
{
    static const char letter[] = {
        [ABL_TEXT] = 's', [ABL_REAL] = 'd', [ABL_WHOLE] = 'i', [ABL_LARGE] = 'i'};
    const char *cell = t->cell;

    fprintf(to, "%d%c", t->n_columns, 0);
    for (int i = 0; i < t->n_columns; i++)
        fprintf(to, "%c%s%c", letter[t->column[i].type], t->column[i].name, 0);
    for (int row = 0; row < t->n_rows; row++)
        for (int i = 0; i < t->n_columns; i++, cell += CELL)
            put_cell(to, t->column[i].type, cell);
}

/* The cells as text, of which *bytes get the number; NULL after err_set(). */
static char *table_text(hid_t table, struct table_of *t, size_t *bytes)
{
    const hsize_t n = (hsize_t)t->n_rows;
    char *text = NULL;

    if (!(t->cell = calloc((size_t)t->n_rows * (size_t)t->n_columns + 1, CELL)))
        return err_null("no memory for %d rows", t->n_rows);
    if (t->n_rows && H5Dread(table, t->row, H5S_ALL, H5S_ALL, H5P_DEFAULT, t->cell) < 0)
        return err_null("cannot be read: %s", h5_reason());
    FILE *to = open_memstream(&text, bytes);
    if (to)
        put_table(to, t);
    hid_t space = H5Screate_simple(1, &n, NULL);
    if (t->n_rows)
        H5Dvlen_reclaim(t->row, space, H5P_DEFAULT, t->cell);
    h5_drop(space);
    if (to && !fclose(to))
        return text;
    free(text);
    return err_null("no memory for the text of %d rows", t->n_rows);
}

static void drop_table(struct table_of *t)
{
    for (int i = 0; i < t->n_columns; i++)
        H5free_memory(t->column[i].name);
    free(t->column);
    free(t->cell);
    h5_drop(t->row);
    h5_drop(t->text);
}

/* Where a text goes, and how many bytes there are. */
struct text_of {
    char *text;
    int64_t size;
};

static int64_t read_table(hid_t table, void *data)
{
    const struct text_of *to = data;
    struct table_of t = {.row = -1, .text = -1};
    hid_t type = h5_table_type(table);
    char *text = NULL;
    size_t bytes = 0;

    if (type >= 0 && !table_columns(type, &t) &&
        (t.n_rows = h5_table_rows(table, MAX_CELLS / t.n_columns)) >= 0)
        text = table_text(table, &t, &bytes);
    if (text && to->size)
        memcpy(to->text, text, bytes < (size_t)to->size ? bytes : (size_t)to->size);
    const int64_t e = text ? (int64_t)bytes : -1;
    free(text);
    drop_table(&t);
    h5_drop(type);
    return e;
}

int64_t abl_dump_table(const abl_dump *d, const char *table, char *text, int64_t size)
{
    if (IS_NULL(d, "dump") || IS_NULL(table, "table"))
        return -1;
    if (size > 0 && IS_NULL(text, "text"))
        return -1;
    struct text_of to = {text, size > 0 ? size : 0};
    return with_object(d, table, read_table, &to);
}
