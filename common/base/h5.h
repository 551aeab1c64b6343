/* h5.h - HDF5's attributes, groups, datasets and tables, made and read.
 *
 * A file that is read may come from anybody: extent, class and size are checked first, so that no
 * file decides how much memory is written or allocated.  These functions leave HDF5's own printing
 * to the caller (QUIETLY). */
#ifndef H5_H
#define H5_H

#include <stddef.h>
#include <stdint.h>

#include <hdf5.h>

#include "common/base/column.h"
#include "common/base/types.h"

/* Runs a statement in which HDF5 does not print. */
#define QUIETLY(...)                                                                               \
    H5E_BEGIN_TRY                                                                                  \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }                                                                                              \
    H5E_END_TRY

/* Why the last HDF5 call failed, in HDF5's or the system's words; to be asked
 * before the next one. */
const char *h5_reason(void);
/* err_set("cannot ...: " and the reason). */
int h5_cannot(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A file opened to be read, or to be written (H5F_ACC_RDWR).  Where another program has it locked this waits for
 * H5_PATIENCE seconds, and then h5_reason() names that program.  -1: it is not open. */
enum { H5_PATIENCE = 5 };
hid_t h5_open(const char *file, unsigned how);
/* Close what cannot fail by being closed; nothing where id is negative. */
void h5_drop(hid_t id);

/* ---- attributes of one value ---- */

int h5_put_int(hid_t at, const char *name, int64_t value);
int h5_put_double(hid_t at, const char *name, double value);
int h5_put_seed(hid_t at, const char *name, uint64_t seed);
/* A type for strings of variable length in UTF-8, which h5py gives as str; -1:
 * none. */
hid_t h5_text_type(void);
int h5_put_text(hid_t at, const char *name, const char *value);

/* Nonzero after err_set(): there is none, or it is not one whole number. */
int h5_get_int(hid_t at, const char *name, int64_t *value);
int h5_get_seed(hid_t at, const char *name, uint64_t *seed);
/* Likewise: one number of floating point. */
int h5_get_double(hid_t at, const char *name, double *value);
/* A text of fixed or variable length, a copy to be freed; NULL after
 * err_set(): there is none, it is not one text, or no memory. */
char *h5_get_text(hid_t at, const char *name);
/* Does the attribute have that text?  If not, its own text is copied to `there`, as much of it as
 * fits; "" where there is no such attribute. */
int h5_same_text(hid_t at, const char *name, const char *value, char *there, size_t size);

/* ---- groups, datasets and tables, made; -1 after err_set() ---- */

/* The type of a dataset whose elements are stored so; -1: a dump has none of that type. */
hid_t h5_type(enum dtype t);

/* A group; linked nowhere where `name` is NULL.  With `whole`, its header gets nearly 4096
 * bytes, so that all of a trial's links and attributes are in one page of the file: HDF5 writes
 * it at once. */
hid_t h5_group_new(hid_t at, const char *name, int whole);
/* A dataset to be made: types on disk and in memory, extent, level of compression where it is
 * large, and the data; NULL: there is nothing to write. */
struct h5_data {
    hid_t stored, given;
    int rank;
    const hsize_t *dim;
    int compress;
    const void *data;
};
/* Linked nowhere where `name` is NULL. */
hid_t h5_dataset_new(hid_t at, const char *name, const struct h5_data *from);
/* The type of a row of `size` bytes in memory: of those columns that are in the dump. */
hid_t h5_row_type(const struct column *column, size_t size);

/* ---- datasets, read ---- */

/* "[64,128]" */
void h5_shape_text(char *text, size_t size, int rank, const hsize_t *dim);

/* Dataset `name`, which must have that shape and be of floating point or of
 * whole numbers, into x.  Nonzero after err_set(). */
int h5_read_tensor(hid_t group, const char *name, int rank, const int64_t *size, double *x);
/* The same of bytes: a dataset of uint8 alone. */
int h5_read_bytes(hid_t group, const char *name, int rank, const int64_t *size, unsigned char *b);
/* Is it uint8? */
int h5_is_bytes(hid_t type);
/* The type of a table's row; -1 after err_set(): the object is no table. */
hid_t h5_table_type(hid_t table);
/* How many rows a table has, `max` at most; -1 after err_set(). */
int h5_table_rows(hid_t table, int max);
/* How a table is read: its row in memory, whose columns must be of its types and `all` there, or
 * not; and at most so many rows. */
struct h5_table {
    hid_t row;
    int all, max;
};
/* Table `name`, open, and how many rows it has; -1 after err_set(), "check: not a table ...". */
hid_t h5_table(hid_t group, const char *name, const struct h5_table *of, int *rows);

#endif
