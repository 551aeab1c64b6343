/* input.c - a trial's inputs: drawn, from the bytes of a text, or from an
 * HDF5 file.  Whatever a text or a file does not give is drawn, so that a
 * tensor's values never depend on where the others came from. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>

#include "common/err.h"
#include "common/h5.h"
#include "data/input.h"

/* ---- text ---- */

/* The whole file, to be freed; its length in `n`. */
static unsigned char *read_file(const char *name, size_t *n)
{
    size_t room = 1 << 16;
    unsigned char *text = malloc(room), *more = text;
    FILE *in = fopen(name, "rb");
    int e = !text || !in;

    for (*n = 0; !e;) {
        size_t got = fread(text + *n, 1, room - *n, in);
        *n += got;
        if (!got)
            break;
        if (*n == room) {
            more = realloc(text, room *= 2);
            e = !more;
            text = more ? more : text;
        }
    }
    if (!in || (!e && ferror(in))) /* a folder opens, but cannot be read */
        e = err_set("%s: %s", name, strerror(errno));
    else if (e)
        err_set("%s: no memory to read it", name);
    if (in)
        fclose(in);
    if (e) {
        free(text);
        return NULL;
    }
    return text;
}

enum { BYTES = 256 };

/* x[t,b] = E[text[start_b + t]] */
static int embed(const struct trial *trial, int arg, const unsigned char *text, size_t n, double *x)
{
    const char *shape = op_shape(trial->op, &trial->sizes, arg);
    int64_t T = DIM(&trial->sizes, shape[0]), B = DIM(&trial->sizes, shape[1]);
    int64_t D = DIM(&trial->sizes, shape[2]);
    uint64_t embedding = draw_key(trial->seed, "embedding");
    uint64_t window = draw_key(trial->seed, "window");
    double *E = malloc(BYTES * D * sizeof *E);

    if (!E)
        return err_set("no memory for an embedding of width %lld", (long long)D);
    for (int64_t i = 0; i < BYTES * D; i++)
        E[i] = draw_normal(embedding, i);
    #pragma omp parallel for
    for (int64_t b = 0; b < B; b++) {
        int64_t start = (int64_t)(draw_uniform(window, b) * (double)(n - T + 1));
        for (int64_t t = 0; t < T; t++)
            memcpy(x + (t * B + b) * D, E + text[start + t] * D, D * sizeof *x);
    }
    free(E);
    return 0;
}

static int fill_text(const struct trial *trial, struct tensors *t)
{
    const struct op *o = trial->op;
    int arg = 0;
    size_t n;

    while (arg < o->n_args && !(o->arg[arg].flags & TEXT && t->x[arg]))
        arg++;
    if (arg == o->n_args)
        return err_set("%s has no input that a text could be", o->name);
    int64_t T = DIM(&trial->sizes, op_shape(o, &trial->sizes, arg)[0]);
    unsigned char *text = read_file(trial->file, &n);
    if (!text)
        return -1;
    int e = n < (size_t)T ? err_set("%s has %zu bytes, fewer than the %lld steps of %s",
                                    trial->file, n, (long long)T, o->name)
                          : embed(trial, arg, text, n, t->x[arg]);
    free(text);
    return e;
}

/* ---- hdf5 ---- */

enum { MAX_PLACE = 768 };

/* "[64,128]" */
static void shape_text(char *text, size_t size, int rank, const hsize_t *dim)
{
    size_t at = snprintf(text, size, "[");
    for (int i = 0; i < rank && at < size; i++)
        at += snprintf(text + at, size - at, "%s%llu", i ? "," : "", (unsigned long long)dim[i]);
    if (at < size)
        snprintf(text + at, size - at, "]");
}

/* "int32": what a type that is not floating point is, in words. */
static const char *type_text(hid_t type, char text[32])
{
    static const char *const class[] = {
        [H5T_TIME] = "a time",         [H5T_STRING] = "strings",   [H5T_BITFIELD] = "bits",
        [H5T_OPAQUE] = "opaque",       [H5T_COMPOUND] = "a table", [H5T_REFERENCE] = "references",
        [H5T_ENUM] = "an enumeration", [H5T_VLEN] = "sequences",   [H5T_ARRAY] = "arrays"};
    H5T_class_t c = H5Tget_class(type);

    if (c == H5T_INTEGER)
        snprintf(text, 32, "%sint%zu", H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "",
                 8 * H5Tget_size(type));
    else
        snprintf(text, 32, "%s",
                 c >= 0 && c < (int)COUNT(class) && class[c] ? class[c] : "of an unknown type");
    return text;
}

/* Dataset d, at `place` in words, is to become input `arg`. */
static int read_dataset(const struct trial *trial, int arg, hid_t d, const char *place, double *x)
{
    const struct op *o = trial->op;
    const char *shape = op_shape(o, &trial->sizes, arg), *name = o->arg[arg].name;
    hid_t type = H5Dget_type(d), space = H5Dget_space(d);
    int rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space), want = (int)strlen(shape), e = 0;
    hsize_t dim[H5S_MAX_RANK], wanted[MAX_RANK];
    char is[128], has[128];

    int same = rank == want && H5Sget_simple_extent_dims(space, dim, NULL) == rank;
    for (int i = 0; i < want; i++) {
        wanted[i] = DIM(&trial->sizes, shape[i]);
        same = same && dim[i] == wanted[i];
    }
    if (type < 0 || rank < 0) {
        e = err_set("%s: %s", place, h5_reason());
    } else if (H5Tget_class(type) != H5T_FLOAT) {
        e = err_set("%s is %s, %s's %s takes floating point numbers", place, type_text(type, is),
                    o->name, name);
    } else if (!same) {
        if (rank != want)
            H5Sget_simple_extent_dims(space, dim, NULL);
        shape_text(is, sizeof is, rank, dim);
        shape_text(has, sizeof has, want, wanted);
        e = err_set("%s is %s, %s's %s is %s", place, is, o->name, name, has);
    } else if (H5Dread(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) < 0) {
        e = err_set("%s: %s", place, h5_reason());
    }
    if (type >= 0)
        H5Tclose(type);
    if (space >= 0)
        H5Sclose(space);
    return e;
}

static int read_group(const struct trial *trial, hid_t group, const char *where, struct tensors *t)
{
    const struct op *o = trial->op;
    char inputs[256] = "";
    int found = 0, e = 0;

    for (int i = 0; !e && i < o->n_args; i++) {
        const char *name = o->arg[i].name;
        char place[MAX_PLACE + 40];
        if (!(o->arg[i].flags & IN) || !t->x[i])
            continue;
        size_t at = strlen(inputs);
        snprintf(inputs + at, sizeof inputs - at, " %s", name);
        if (H5Lexists(group, name, H5P_DEFAULT) <= 0)
            continue;
        found++;
        snprintf(place, sizeof place, "%s%s%s", where, where[strlen(where) - 1] == '/' ? "" : "/",
                 name);
        hid_t d = H5Dopen2(group, name, H5P_DEFAULT);
        if (d < 0) {
            e = err_set("%s is no dataset", place);
        } else {
            e = read_dataset(trial, i, d, place, t->x[i]);
            H5Dclose(d);
        }
    }
    if (!e && !found)
        e = err_set("%s has none of the inputs of %s:%s", where, o->name, inputs);
    return e;
}

static int fill_hdf5(const struct trial *trial, struct tensors *t)
{
    const char *path = trial->group[0] ? trial->group : "/";
    char where[MAX_PLACE];
    FILE *there = fopen(trial->file, "rb"); /* the system's words are plainer than HDF5's */

    if (!there)
        return err_set("%s: %s", trial->file, strerror(errno));
    fclose(there);
    hid_t file = H5Fopen(trial->file, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0)
        return err_set("%s cannot be read as HDF5: %s", trial->file, h5_reason());
    hid_t group = H5Gopen2(file, path, H5P_DEFAULT);
    snprintf(where, sizeof where, "%s:%s%s", trial->file, *path == '/' ? "" : "/", path);
    int e = group < 0 ? err_set("%s has no group %s", trial->file, where + strlen(trial->file) + 1)
                      : read_group(trial, group, where, t);
    if (group >= 0)
        H5Gclose(group);
    H5Fclose(file);
    return e;
}

int input_fill(const struct trial *trial, struct tensors *t)
{
    int e = 0;

    tensors_draw(t, trial->op, &trial->sizes, trial->seed, 0);
    if (trial->input == INPUT_TEXT)
        e = fill_text(trial, t);
    if (trial->input == INPUT_HDF5) {
        H5E_BEGIN_TRY
        { /* HDF5 prints nothing */
            e = fill_hdf5(trial, t);
        }
        H5E_END_TRY
    }
    return e;
}
