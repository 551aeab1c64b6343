/* input.c - a trial's inputs: drawn, from the bytes of a text, or from an
 * HDF5 file.  Inputs that a text or a file does not hold are drawn, so that a
 * tensor's values never depend on the source of the others. */
#include "config.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/h5.h"
#include "common/base/half.h"
#include "common/base/quote.h"
#include "common/call/values.h"
#include "common/plan/model.h"
#include "common/run/input.h"

/* ---- text ---- */

enum { ALPHABET = 256 };

/* x[t,b] = E[text[start_b + t]] */
static int embed(const struct trial *trial, int arg, const unsigned char *text, size_t n, double *x)
{
    const char *shape = op_shape(&trial->call, arg);
    int64_t T = DIM(&trial->call, shape[0]), B = DIM(&trial->call, shape[1]);
    int64_t D = DIM(&trial->call, shape[2]);
    uint64_t embedding = draw_key(trial->seed, "embedding");
    uint64_t window = draw_key(trial->seed, "window");
    double *E = malloc(ALPHABET * D * sizeof *E);

    if (!E)
        return err_set("no memory for an embedding of width %lld", (long long)D);
    for (int64_t i = 0; i < ALPHABET * D; i++)
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

static int fill_text(const struct trial *trial, struct tensors *t, struct origin *from)
{
    const struct op *o = trial->call.op;
    int arg = 0;
    size_t n;

    while (arg < o->n_args && !(o->arg[arg].flags & TEXT && t->x[arg]))
        arg++;
    if (arg == o->n_args)
        return err_set("%s has no input that a text could be", o->name);
    int64_t T = DIM(&trial->call, op_shape(&trial->call, arg)[0]);
    unsigned char *text = file_read(trial->file, &n);
    if (!text)
        return -1;
    int e = n < (size_t)T ? err_set("%s has %zu bytes, fewer than the %lld steps of %s",
                                    trial->file, n, (long long)T, o->name)
                          : embed(trial, arg, text, n, t->x[arg]);
    set_add(&from->given, arg);
    free(text);
    return e;
}

/* ---- hdf5 ---- */

enum { MAX_PLACE = 768 };
static const char LETTERS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/* "int32", "float64": the name of a type. */
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
    else if (c == H5T_FLOAT)
        snprintf(text, 32, "float%zu", 8 * H5Tget_size(type));
    else
        snprintf(text, 32, "%s",
                 c >= 0 && c < (int)COUNT(class) && class[c] ? class[c] : "of an unknown type");
    return text;
}

static void warn(struct origin *from, const char *line)
{
    const size_t used = strlen(from->warnings), left = sizeof from->warnings - used;

    if (left <= 2)
        return;
    quote_bytes(line, strlen(line), from->warnings + used, left - 1);
    strcat(from->warnings, "\n");
}

/* Values that the input cannot take are an error; NaN and infinity in other inputs are a warning. */
static int check_values(const struct trial *trial, int arg, const char *place,
                        const struct tensors *t, struct origin *from)
{
    const struct call f = call_on(&trial->call, reference_of(trial->type), NULL, NULL);
    const double *x = t->x[arg];
    int64_t n = op_count(&f, arg), first = -1, others = 0;
    char where[128], line[MAX_PLACE + 256];

    if (t->b[arg])
        return values_check_bytes(&f, arg, place, t->b[arg]);
    if (values_check(&f, arg, 0, place, x))
        return -1;
    for (int64_t i = 0; i < n; i++) {
        int odd = !isfinite(x[i]);
        others += odd && first >= 0;
        if (odd && first < 0)
            first = i;
    }
    if (first < 0)
        return 0;
    values_index(&trial->call, arg, first, where, sizeof where);
    int used = snprintf(line, sizeof line, "%s has %s at %s", place,
                        isnan(x[first]) ? "a NaN" : "an infinity", where);
    if (others && used < (int)sizeof line)
        snprintf(line + used, sizeof line - used, ", and %lld more such values", (long long)others);
    warn(from, line);
    return 0;
}

/* Can an input with these flags be read from a dataset of that type? */
static int takes_type(unsigned flags, hid_t type)
{
    const H5T_class_t c = H5Tget_class(type);
    return flags & BYTES ? h5_is_bytes(type)
                         : c == H5T_FLOAT || (flags & WHOLE && c == H5T_INTEGER);
}

/* An input at `place` is of another shape than `wanted`. */
static int other_shape(const struct trial *trial, int arg, const char *place, const char *is,
                       const hsize_t *wanted)
{
    const struct op *o = trial->call.op;
    char has[128];

    h5_shape_text(has, sizeof has, (int)strlen(op_shape(&trial->call, arg)), wanted);
    return err_set("%s is %s, %s's %s is %s", place, is, o->name, o->arg[arg].name, has);
}

/* Dataset d, at `place` in words, is to become input `arg`: doubles, or bytes. */
static int read_dataset(const struct trial *trial, int arg, hid_t d, const char *place,
                        void *values)
{
    const struct op *o = trial->call.op;
    const char *shape = op_shape(&trial->call, arg), *name = o->arg[arg].name;
    hid_t type = H5Dget_type(d), space = H5Dget_space(d);
    int rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space), want = (int)strlen(shape), e = 0;
    const unsigned flags = o->arg[arg].flags;
    hsize_t dim[H5S_MAX_RANK], wanted[MAX_RANK];
    char is[128];

    int same = rank == want && H5Sget_simple_extent_dims(space, dim, NULL) == rank;
    for (int i = 0; i < want; i++) {
        wanted[i] = DIM(&trial->call, shape[i]);
        same = same && dim[i] == wanted[i];
    }
    if (type < 0 || rank < 0) {
        e = err_set("%s: %s", place, h5_reason());
    } else if (!takes_type(flags, type)) {
        e = err_set("%s is %s, %s's %s takes %s", place, type_text(type, is), o->name, name,
                    flags & BYTES   ? "bytes: uint8"
                    : flags & WHOLE ? "whole numbers"
                                    : "floating point numbers");
    } else if (!same) {
        if (rank != want)
            H5Sget_simple_extent_dims(space, dim, NULL);
        h5_shape_text(is, sizeof is, rank, dim);
        e = other_shape(trial, arg, place, is, wanted);
    } else if (H5Dread(d, flags & BYTES ? H5T_NATIVE_UCHAR : H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL,
                       H5P_DEFAULT, values) < 0) {
        e = err_set("%s: %s", place, h5_reason());
    }
    if (type >= 0)
        H5Tclose(type);
    if (space >= 0)
        H5Sclose(space);
    return e;
}

/* "model.h5:/layer3/W_k" */
static void path_of(const char *where, const char *name, char *place, size_t size)
{
    snprintf(place, size, "%s%s%s", where, where[strlen(where) - 1] == '/' ? "" : "/", name);
}

/* Is it the same name but for case and for what stands between its parts? */
static int nearly(const char *a, const char *b)
{
    for (;; a++, b++) {
        a += strcspn(a, LETTERS);
        b += strcspn(b, LETTERS);
        if (!*a || tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return *a == *b;
    }
}

/* An input without a dataset must not have one with nearly its name. */
static int refuse_nearly(const struct trial *trial, hid_t group, const char *where,
                         const struct tensors *t, const struct origin *from)
{
    const struct op *o = trial->call.op;
    H5G_info_t info;
    char name[128], place[MAX_PLACE + sizeof name];

    if (H5Gget_info(group, &info) < 0)
        return err_set("%s: %s", where, h5_reason());
    for (hsize_t k = 0; k < info.nlinks; k++) {
        ssize_t n = H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_NATIVE, k, name,
                                       sizeof name, H5P_DEFAULT);
        if (n <= 0 || n >= (ssize_t)sizeof name || op_arg(o, name) >= 0)
            continue;
        for (int i = 0; i < o->n_args; i++)
            if (o->arg[i].flags & IN && tensors_values(t, i, 0) && !set_has(&from->given, i) &&
                nearly(name, o->arg[i].name)) {
                path_of(where, name, place, sizeof place);
                return err_set("%s is no input of %s, but nearly its %s: rename one of them, or "
                               "take it out of the group",
                               place, o->name, o->arg[i].name);
            }
    }
    return 0;
}

static int read_group(const struct trial *trial, hid_t group, const char *where, struct tensors *t,
                      struct origin *from)
{
    const struct op *o = trial->call.op;
    char inputs[256] = "";
    int e = 0;

    for (int i = 0; !e && i < o->n_args; i++) {
        const char *name = o->arg[i].name;
        char place[MAX_PLACE + 40];
        if (!(o->arg[i].flags & IN) || !tensors_values(t, i, 0))
            continue;
        size_t at = strlen(inputs);
        snprintf(inputs + at, sizeof inputs - at, " %s", name);
        if (H5Lexists(group, name, H5P_DEFAULT) <= 0)
            continue;
        set_add(&from->given, i);
        path_of(where, name, place, sizeof place);
        hid_t d = H5Dopen2(group, name, H5P_DEFAULT);
        if (d < 0) {
            e = err_set("%s is no dataset", place);
        } else {
            e = read_dataset(trial, i, d, place, tensors_values(t, i, 0)) ||
                check_values(trial, i, place, t, from);
            H5Dclose(d);
        }
    }
    if (!e)
        e = refuse_nearly(trial, group, where, t, from);
    if (!e && !set_any(&from->given))
        e = err_set("%s has none of the inputs of %s:%s", where, o->name, inputs);
    return e;
}

/* "model.h5:/layer3" */
static void group_text(const struct trial *trial, char *where, size_t size)
{
    const char *path = trial->group[0] ? trial->group : "/";
    snprintf(where, size, "%s:%s%s", trial->file, *path == '/' ? "" : "/", path);
}

static int fill_hdf5(const struct trial *trial, struct tensors *t, struct origin *from)
{
    const char *why = file_unreadable(trial->file); /* plainer than HDF5's words */
    char where[MAX_PLACE];

    if (why)
        return err_set("%s: %s", trial->file, why);
    hid_t file = h5_open(trial->file, H5F_ACC_RDONLY);
    if (file < 0)
        return err_set("%s cannot be read as HDF5: %s", trial->file, h5_reason());
    group_text(trial, where, sizeof where);
    hid_t group = H5Gopen2(file, trial->group[0] ? trial->group : "/", H5P_DEFAULT);
    int e = group < 0 ? err_set("%s has no group %s", trial->file, where + strlen(trial->file) + 1)
                      : read_group(trial, group, where, t, from);
    if (group >= 0)
        H5Gclose(group);
    H5Fclose(file);
    return e;
}

/* fill_hdf5(), with HDF5 printing nothing. */
static int fill_hdf5_quietly(const struct trial *trial, struct tensors *t, struct origin *from)
{
    int e;

    QUIETLY(e = fill_hdf5(trial, t, from))
    return e;
}

/* ---- gguf ---- */

/* The tensor has the shape that the input has. */
static int check_shape(const struct trial *trial, const struct taken *taken, const char *place)
{
    const struct call *f = &trial->call;
    const char *shape = op_shape(f, taken->arg);
    const struct gguf_tensor *g = taken->tensor;
    hsize_t wanted[MAX_RANK];
    char is[128];
    int same = g->rank == strlen(shape);

    for (int i = 0; shape[i]; i++) {
        wanted[i] = DIM(f, shape[i]);
        same = same && (hsize_t)g->dim[i] == wanted[i];
    }
    if (op_is_bytes(f, taken->arg) ? g->bytes == op_count(f, taken->arg) : same)
        return 0;
    gguf_shape_text(g, is, sizeof is);
    return other_shape(trial, taken->arg, place, is, wanted);
}

/* n elements of a 16-bit or 32-bit type; the file's are little-endian. */
static void widen_tensor(const struct gguf_tensor *g, double *x, int64_t n)
{
    const int single = strcmp(g->type->name, "f32") == 0;
    const int half = strcmp(g->type->name, "f16") == 0;

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        const unsigned char *at = g->data + i * g->type->bytes;
        const uint16_t low = (uint16_t)(at[0] | at[1] << 8);
        x[i] = single ? float_of(low | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24)
               : half ? from_f16((f16){low})
                      : from_bf16((bf16){low});
    }
}

static int read_taken(const struct trial *trial, const struct taken *taken, struct tensors *t,
                      struct origin *from)
{
    const int64_t n = op_count(&trial->call, taken->arg);
    const int i = taken->arg;
    char place[MAX_PLACE];

    snprintf(place, sizeof place, "%s:%s", taken->tensor->file, taken->tensor->name);
    if (!op_has(&trial->call, i))
        return err_set("%s: %s has no %s here", place, trial->call.op->name,
                       trial->call.op->arg[i].name);
    if (check_shape(trial, taken, place))
        return -1;
    set_add(&from->given, i);
    if (op_is_bytes(&trial->call, i))
        memcpy(t->b[i], taken->tensor->data, n);
    else
        widen_tensor(taken->tensor, t->x[i], n);
    return check_values(trial, i, place, t, from);
}

static int fill_gguf(const struct trial *trial, struct tensors *t, struct origin *from)
{
    struct model m;
    int e = model_open(&m, trial);

    for (int i = 0; !e && i < m.n; i++)
        e = read_taken(trial, &m.taken[i], t, from);
    model_close(&m);
    return e;
}

/* Tensors that are in a file as such. */
static int is_of_tensors(const struct trial *trial)
{
    return trial->input == INPUT_HDF5 || trial->input == INPUT_GGUF;
}

static int fill_tensors(const struct trial *trial, struct tensors *t, struct origin *from)
{
    return trial->input == INPUT_GGUF ? fill_gguf(trial, t, from)
                                      : fill_hdf5_quietly(trial, t, from);
}

int input_check(const struct trial *trial)
{
    struct origin from = {.given = set_none()};
    struct tensors *t = is_of_tensors(trial) ? tensors_new(&trial->call) : NULL;
    int e = t ? fill_tensors(trial, t, &from) : 0;

    tensors_free(t);
    return e;
}

int input_fill(const struct trial *trial, struct tensors *t, struct origin *from)
{
    struct origin unasked;
    int e = 0;

    from = from ? from : &unasked;
    *from = (struct origin){.given = set_none()};
    tensors_draw(t, &trial->call, trial->seed, trial->input == INPUT_NONZERO);
    if (trial->input == INPUT_TEXT)
        e = fill_text(trial, t, from);
    if (is_of_tensors(trial))
        e = fill_tensors(trial, t, from);
    return e;
}

void input_origin(const struct trial *trial, const struct origin *from, int arg, char *text,
                  size_t size)
{
    char where[MAX_PLACE];

    if (!set_has(&from->given, arg)) {
        snprintf(text, size, "drawn");
    } else if (trial->input == INPUT_TEXT) {
        snprintf(text, size, "text");
    } else if (trial->input == INPUT_GGUF) {
        char name[GGUF_NAME];
        model_name(trial, arg, name);
        snprintf(text, size, "%s:%s", trial->file, name);
    } else {
        group_text(trial, where, sizeof where);
        path_of(where, trial->call.op->arg[arg].name, text, size);
    }
}
