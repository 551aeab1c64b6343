/* Inputs: drawn, from a text, from HDF5 files of all types that are read;
 * and every refusal, by its message. */
#include "config.h"

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hdf5.h>
#include <hdf5_hl.h>

#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/report/unused.h"
#include "common/store/store.h"
#include "tests/tap.h"

static const char *sizes = "steps=6 batch=3 dim=5 n_state=4 state=full proj=no_z";
static char text_file[64], h5_file[64];

static struct trial trial(const char *op, const char *text, enum input_kind input, const char *file)
{
    struct trial t = {.call.op = op_find(op), .seed = 7, .type = F32, .input = input};
    if (cases_one(t.call.op, text, &t.call))
        ok(0, "%s", err_text());
    snprintf(t.file, sizeof t.file, "%s", file);
    return t;
}

static double *input(const struct trial *t, struct tensors *in, const char *name)
{
    return in->x[op_arg(t->call.op, name)];
}

static int equal(const double *a, const double *b, int64_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

/* ---- refusals ---- */

static void refused(const struct trial *t, const char *sentence, const char *what)
{
    struct tensors *in = tensors_new(&t->call);
    char want[1024];
    const char *hash = strchr(sentence, '#'); /* stands for the file's name */

    if (hash)
        snprintf(want, sizeof want, "%.*s%s%s", (int)(hash - sentence), sentence, t->file,
                 hash + 1);
    else
        snprintf(want, sizeof want, "%s", sentence);
    int e = input_fill(t, in, NULL);
    if (!ok(e && strcmp(err_text(), want) == 0, "refused: %s", what))
        printf("# %s\n# instead of %s\n", e ? err_text() : "accepted", want);
    tensors_free(in);
}

/* ---- text ---- */

static void write_text(const char *text)
{
    FILE *out = fopen(text_file, "wb");
    if (!out || fputs(text, out) < 0 || fclose(out))
        ok(0, "cannot write %s", text_file);
}

static void text(void)
{
    struct trial t = trial("e74", sizes, INPUT_TEXT, text_file), drawn = t, longer = t;
    struct tensors *in = tensors_new(&t.call), *normal = tensors_new(&t.call);
    const char *words = "the matrix remembers";
    int64_t T = 6, B = 3, D = 5;

    write_text(words);
    drawn.input = INPUT_NORMAL;
    int e = input_fill(&t, in, NULL) || input_fill(&drawn, normal, NULL);
    ok(!e, "a text is read");

    int good = 1;
    double *x = input(&t, in, "x");
    for (int64_t b = 0; b < B; b++) {
        int64_t start = (int64_t)(draw_uniform(draw_key(7, "window"), b) * (20 - 6 + 1));
        for (int64_t s = 0; s < T; s++)
            for (int64_t d = 0; d < D; d++)
                good &= x[(s * B + b) * D + d] ==
                        draw_normal(draw_key(7, "embedding"), words[start + s] * D + d);
    }
    ok(good, "x is the embedding of its bytes");
    ok(equal(input(&t, in, "W_k"), input(&t, normal, "W_k"), 4 * 5) &&
           !equal(x, input(&t, normal, "x"), T * B * D),
       "only x comes from the text");

    write_text("matrix");
    ok(!input_fill(&t, in, NULL) && equal(x, x + D, D) && equal(x, x + 2 * D, D),
       "a text of just T bytes: all windows are the same");
    write_text("short");
    refused(&t, "# has 5 bytes, fewer than the 6 steps of e74", "a short text");
    write_text("");
    refused(&t, "# has 0 bytes, fewer than the 6 steps of e74", "an empty text");
    t = trial("e74_cell", "steps=6 batch=3 n_state=4", INPUT_TEXT, text_file);
    refused(&t, "e74_cell has no input that a text could be", "an operation without such a tensor");
    t = trial("e74", sizes, INPUT_TEXT, "/nonexistent.txt");
    refused(&t, "#: No such file or directory", "a text that is not there");
    t = trial("e74", sizes, INPUT_TEXT, "/tmp");
    refused(&t, "#: Is a directory", "a folder");
    tensors_free(in);
    tensors_free(normal);

    /* more than one read's worth, every byte value */
    FILE *out = fopen(text_file, "wb");
    for (int i = 0; out && i < 200000; i++)
        putc(i * 7 % 256, out);
    if (out)
        fclose(out);
    cases_one(longer.call.op, "steps=199999 batch=2 dim=1 n_state=1 state=diagonal", &longer.call);
    in = tensors_new(&longer.call);
    ok(!input_fill(&longer, in, NULL), "a long text");
    x = input(&longer, in, "x");
    good = 1;
    for (int64_t i = 0; i + 256 < 199999; i++)
        good &= x[2 * i] == x[2 * (i + 256)];
    ok(good && x[0] != x[2], "all bytes of it");
    tensors_free(in);
}

static void no_regular_files(void)
{
    struct trial t = trial("e74", sizes, INPUT_TEXT, text_file);

    unlink(text_file);
    if (mkfifo(text_file, 0600))
        ok(0, "no pipe could be made");
    refused(&t, "#: is a pipe; only a regular file can be read", "a pipe for a text");
    t.input = INPUT_HDF5;
    refused(&t, "#: is a pipe; only a regular file can be read", "a pipe for an HDF5 file");
    unlink(text_file);
    t = trial("e74", sizes, INPUT_TEXT, "/dev/zero");
    refused(&t, "#: is a device; only a regular file can be read", "a device");
}

/* ---- hdf5 ---- */

static hid_t half(void)
{
    hid_t t = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(t, 15, 10, 5, 0, 10);
    H5Tset_size(t, 2);
    H5Tset_ebias(t, 15);
    return t;
}

/* x[i] = i / 8, exact in every type, as dataset `name` of the file's group /a/b. */
static void put(hid_t file, const char *name, hid_t type, int rank, const hsize_t *dim)
{
    hid_t plan = H5Pcreate(H5P_LINK_CREATE), space = H5Screate_simple(rank, dim, NULL);
    char path[64];
    double x[1024];

    for (int i = 0; i < 1024; i++)
        x[i] = i / 8.;
    snprintf(path, sizeof path, "/a/b/%s", name);
    H5Pset_create_intermediate_group(plan, 1);
    hid_t d = H5Dcreate2(file, path, type, space, plan, H5P_DEFAULT, H5P_DEFAULT);
    if (d < 0 || (H5Tget_class(type) != H5T_STRING &&
                  H5Dwrite(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) < 0))
        ok(0, "cannot write %s", path);
    H5Dclose(d);
    H5Sclose(space);
    H5Pclose(plan);
}

#define DIMS(...)                                                                                  \
    (hsize_t[])                                                                                    \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define SHAPE(...) (int)COUNT((DIMS(__VA_ARGS__))), DIMS(__VA_ARGS__)

static hid_t h5_new(void)
{
    return H5Fcreate(h5_file, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
}

static void hdf5_types(void)
{
    struct trial t = trial("e74", sizes, INPUT_HDF5, h5_file), drawn = t;
    struct tensors *normal = tensors_new(&t.call);
    hid_t big = half(), f16 = half();
    H5Tset_order(big, H5T_ORDER_BE);
    const struct {
        const char *name;
        hid_t type;
    } types[] = {
        {"float64", H5T_IEEE_F64LE},
        {"float32", H5T_IEEE_F32LE},
        {"float16", f16},
        {"big-endian float64", H5T_IEEE_F64BE},
        {"big-endian float32", H5T_IEEE_F32BE},
        {"big-endian float16", big},
    };

    snprintf(t.group, sizeof t.group, "/a/b");
    drawn.input = INPUT_NORMAL;
    input_fill(&drawn, normal, NULL);
    for (size_t k = 0; k < COUNT(types); k++) {
        struct tensors *in = tensors_new(&t.call);
        hid_t file = h5_new();
        put(file, "W_k", types[k].type, SHAPE(4, 5));
        put(file, "S0", types[k].type, SHAPE(3, 1, 4, 4));
        put(file, "unrelated", H5T_STD_I32LE, SHAPE(2));
        H5Fclose(file);
        int e = input_fill(&t, in, NULL), good = !e;
        for (int i = 0; i < 20; i++)
            good &= input(&t, in, "W_k")[i] == i / 8.;
        for (int i = 0; i < 48; i++)
            good &= input(&t, in, "S0")[i] == i / 8.;
        good &= equal(input(&t, in, "x"), input(&t, normal, "x"), 6 * 3 * 5);
        if (!ok(good, "inputs of %s", types[k].name) && e)
            printf("# %s\n", err_text());
        int out = op_arg(t.call.op, "out");
        ok(equal(in->g[out], normal->g[out], 6 * 3 * 4), "gradients of outputs are drawn");
        tensors_free(in);
    }
    snprintf(t.group, sizeof t.group, "a/b");
    struct tensors *in = tensors_new(&t.call);
    ok(!input_fill(&t, in, NULL) && input(&t, in, "W_k")[3] == 3 / 8.,
       "a group without its first /");
    tensors_free(in);
    tensors_free(normal);
    H5Tclose(big);
    H5Tclose(f16);
}

/* ---- our own dumps ---- */

/* The attribute origin of a dataset of trial 1. */
static void origin_of(const char *name, char *text, size_t size)
{
    char path[64];
    char *value = NULL;
    hid_t file = H5Fopen(h5_file, H5F_ACC_RDONLY, H5P_DEFAULT), type = H5Tcopy(H5T_C_S1);

    snprintf(path, sizeof path, "/trial/0001/in/%s", name);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    hid_t d = H5Dopen2(file, path, H5P_DEFAULT), a = H5Aopen(d, "origin", H5P_DEFAULT);
    snprintf(text, size, "%s", a >= 0 && H5Aread(a, type, &value) >= 0 ? value : "");
    H5free_memory(value);
    H5Aclose(a);
    H5Dclose(d);
    H5Tclose(type);
    H5Fclose(file);
}

/* Write a dump of this trial's inputs; `from` becomes their source. */
static struct tensors *dump(const struct trial *t, const char *file, struct origin *from)
{
    struct experiment x = {
        .seed = 1, .save = SAVE_ALL, .compress = 1, .n = 1, .trial = (struct trial *)t};
    struct result r = {.trial = t, .inputs = tensors_new(&t->call)};
    char ini[] = "";

    x.text = ini;
    snprintf(x.name, sizeof x.name, "input");
    snprintf(x.output, sizeof x.output, "%s", file);
    unlink(file);
    int e = input_fill(t, r.inputs, &r.from);
    const struct call rounded = call_on(&t->call, reference_of(t->type), NULL, NULL);
    tensors_round(r.inputs, &rounded);
    struct store *s = e ? NULL : store_open(&x, 0);
    e = !s || store_write(s, 0, &r);
    if ((s && store_close(s, !e)) || e)
        ok(0, "%s: no dump: %s", t->call.op->name, err_text());
    *from = r.from;
    return r.inputs;
}

/* The first case of an operation: written, read as input, and the same. */
static int first_case(const struct call *f, void *data)
{
    const struct op *o = f->op;
    struct trial t = {.call = *f, .seed = 5, .type = *(enum dtype *)data}, back = t;
    struct tensors *in = tensors_new(f);
    struct origin from;

    snprintf(t.text, sizeof t.text, "%s", o->name);
    struct tensors *drawn = dump(&t, h5_file, &from);
    back.input = INPUT_HDF5;
    snprintf(back.file, sizeof back.file, "%s", h5_file);
    snprintf(back.group, sizeof back.group, "/trial/0001/in");
    int e = input_fill(&back, in, &from), same = !e, warned = *from.warnings != 0, odd = 0;
    for (int i = 0; i < o->n_args; i++)
        if (o->arg[i].flags & IN && op_has(f, i)) {
            same &= memcmp(tensors_values(in, i, 0), tensors_values(drawn, i, 0),
                           op_count(f, i) * tensors_each(f, i)) == 0 &&
                    set_has(&from.given, i);
            for (int64_t k = 0; in->x[i] && k < op_count(f, i); k++)
                odd |= !isfinite(in->x[i][k]);
        }
    if (!ok(same && warned == odd, "%s, %s: its own dump is input", o->name,
            t.type == BF16 ? "bf16" : "fp32"))
        printf("# %s%s\n", e ? err_text() : "other numbers", from.warnings);
    tensors_free(in);
    tensors_free(drawn);
    return 1; /* no further case */
}

static void round_trips(void)
{
    enum dtype types[] = {F32, BF16};

    for (int i = 0; i < N_OPS; i++)
        for (size_t k = 0; k < COUNT(types); k++)
            if (cases_each(ops[i], ops[i]->cases, first_case, &types[k]) != 1)
                ok(0, "%s: %s", ops[i]->name, err_text());
}

/* A dump states the source of each input. */
static void origins(void)
{
    struct trial t = trial("e74", sizes, INPUT_TEXT, text_file);
    struct origin from;
    char text[1024], want[128], file[80];

    write_text("the matrix remembers");
    tensors_free(dump(&t, h5_file, &from));
    origin_of("x", text, sizeof text);
    ok(strcmp(text, "text") == 0, "x came from the text");
    origin_of("W_k", text, sizeof text);
    ok(strcmp(text, "drawn") == 0, "W_k was drawn");
    snprintf(file, sizeof file, "%s.in", h5_file);
    rename(h5_file, file);
    t = trial("e74", sizes, INPUT_HDF5, file);
    snprintf(t.group, sizeof t.group, "/trial/0001/in");
    tensors_free(dump(&t, h5_file, &from));
    origin_of("x", text, sizeof text);
    snprintf(want, sizeof want, "%s:/trial/0001/in/x", file);
    ok(strcmp(text, want) == 0, "x came from a file: %s", text);
    unlink(file);
}

/* ---- integers ---- */

/* x as dataset `name` of the file's root. */
static void put_values(const char *name, hid_t type, hid_t given, int rank, const hsize_t *dim,
                       const void *x)
{
    hid_t file = h5_new(), space = H5Screate_simple(rank, dim, NULL);
    hid_t d = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);

    if (d < 0 || H5Dwrite(d, given, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) < 0)
        ok(0, "cannot write %s", name);
    H5Dclose(d);
    H5Sclose(space);
    H5Fclose(file);
}

static void whole_numbers(void)
{
    struct trial t = trial("cross_entropy", "rows=4 vocabulary=9", INPUT_HDF5, h5_file);
    struct tensors *in = tensors_new(&t.call);
    static const double good[] = {8, 0, 3, 1}, half[] = {8, 0.5, 3, 1}, nan[] = {8, 0, 3, NAN};
    static const uint64_t large[] = {8, 0, UINT64_MAX, 1};
    const hid_t types[] = {H5T_STD_I8LE,  H5T_STD_U8LE,  H5T_STD_I16BE,  H5T_STD_I32LE,
                           H5T_STD_I64LE, H5T_STD_U64BE, H5T_IEEE_F32LE, H5T_IEEE_F64BE};

    for (size_t k = 0; k < COUNT(types); k++) {
        put_values("target", types[k], H5T_NATIVE_DOUBLE, SHAPE(4), good);
        int e = input_fill(&t, in, NULL);
        if (!ok(!e && equal(input(&t, in, "target"), good, 4), "a target of integer type %zu", k))
            printf("# %s\n", e ? err_text() : "other numbers");
    }
    put_values("target", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, SHAPE(4), half);
    refused(&t, "#:/target has 0.5 at [1], cross_entropy's target takes whole numbers up to 2^53",
            "a half");
    put_values("target", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, SHAPE(4), nan);
    refused(&t, "#:/target has nan at [3], cross_entropy's target takes whole numbers up to 2^53",
            "a NaN in an input of integers");
    put_values("target", H5T_STD_U64LE, H5T_NATIVE_UINT64, SHAPE(4), large);
    refused(&t,
            "#:/target has 1.8446744073709552e+19 at [2], cross_entropy's target takes whole "
            "numbers up to 2^53",
            "a number that is too large");
    tensors_free(in);
}

/* An index is below its range, or the value that stands for none. */
static void indices(void)
{
    struct trial t = trial("cross_entropy", "rows=4 vocabulary=7", INPUT_HDF5, h5_file);
    struct tensors *in = tensors_new(&t.call);
    static const int above[] = {6, 7, 0, -1}, below[] = {6, 0, -1, 0}, none[] = {0, -100, 6, -100};
    static const double far[] = {6, 0, 1e15, 0};

    put_values("target", H5T_STD_I32LE, H5T_NATIVE_INT, SHAPE(4), above);
    refused(&t, "#:/target has 7 at [1]: 0 to 6, or ignore_index (-100)",
            "an index above its range");
    put_values("target", H5T_STD_I8LE, H5T_NATIVE_INT, SHAPE(4), below);
    refused(&t, "#:/target has -1 at [2]: 0 to 6, or ignore_index (-100)", "a negative index");
    put_values("target", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, SHAPE(4), far);
    refused(&t, "#:/target has 1000000000000000 at [2]: 0 to 6, or ignore_index (-100)",
            "an index of floating point");
    put_values("target", H5T_STD_I32LE, H5T_NATIVE_INT, SHAPE(4), none);
    ok(!input_fill(&t, in, NULL) && input(&t, in, "target")[1] == -100, "targets to be ignored");
    tensors_free(in);
    t = trial("cross_entropy", "rows=4 vocabulary=7 ignore_index=-1", INPUT_HDF5, h5_file);
    refused(&t, "#:/target has -100 at [1]: 0 to 6, or ignore_index (-1)",
            "the ignore_index of another case");
}

/* ---- warnings ---- */

static void odd_values(void)
{
    struct trial t = trial("e74", sizes, INPUT_HDF5, h5_file);
    struct tensors *in = tensors_new(&t.call);
    struct origin from;
    double x[20] = {0};
    char want[256];

    x[13] = NAN;
    put_values("W_k", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, SHAPE(4, 5), x);
    snprintf(want, sizeof want, "%s:/W_k has a NaN at [2,3]\n", h5_file);
    ok(!input_fill(&t, in, &from) && strcmp(from.warnings, want) == 0, "a NaN is warned of");
    x[7] = -INFINITY;
    put_values("W_k", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, SHAPE(4, 5), x);
    snprintf(want, sizeof want, "%s:/W_k has an infinity at [1,2], and 1 more such values\n",
             h5_file);
    ok(!input_fill(&t, in, &from) && strcmp(from.warnings, want) == 0, "an infinity is warned of");
    x[7] = x[13] = 0;
    put_values("W_k", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, SHAPE(4, 5), x);
    ok(!input_fill(&t, in, &from) && !*from.warnings &&
           set_has(&from.given, op_arg(t.call.op, "W_k")),
       "no warning of other values");
    tensors_free(in);
}

/* A finite value that the storage type cannot hold is refused; one that is rounded down to the
 * largest, and an infinity, are not. */
static void too_large(void)
{
    struct trial t = trial("e74", sizes, INPUT_HDF5, h5_file);
    struct tensors *in = tensors_new(&t.call);
    double x[20] = {0};
    struct origin from;

    x[3] = 0x1.fffffefp127;
    x[13] = -INFINITY;
    put_values("W_k", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, SHAPE(4, 5), x);
    int e = input_fill(&t, in, &from);
    const struct call rounded = call_on(&t.call, &ref32, NULL, NULL);
    tensors_round(in, &rounded);
    const double *W_k = input(&t, in, "W_k");
    ok(!e && W_k[3] == 0x1.fffffep127 && W_k[13] == -INFINITY && *from.warnings,
       "the largest fp32, and infinity");
    t.type = BF16;
    refused(&t, "#:/W_k has 3.4028235614590836e+38 at [0,3]: the largest bf16 is 3.38953e+38",
            "more than bf16 holds");
    t.type = F32;
    x[15] = 1e39;
    put_values("W_k", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, SHAPE(4, 5), x);
    refused(&t, "#:/W_k has 1e+39 at [3,0]: the largest fp32 is 3.40282e+38",
            "more than fp32 holds");
    x[8] = -0x1.ffffffp127;
    put_values("W_k", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, SHAPE(4, 5), x);
    refused(&t, "#:/W_k has -3.4028235677973366e+38 at [1,3]: the largest fp32 is 3.40282e+38",
            "the least that is rounded to infinity");
    tensors_free(in);
}

static void nearly_named(void)
{
    static const char *const names[] = {"W_K", "w-k", "Wk", "W.k"};
    struct trial t = trial("e74", sizes, INPUT_HDF5, h5_file);
    struct tensors *in = tensors_new(&t.call);
    char sentence[160];

    snprintf(t.group, sizeof t.group, "/a/b");
    for (size_t k = 0; k < COUNT(names); k++) {
        hid_t file = h5_new();
        put(file, "x", H5T_IEEE_F64LE, SHAPE(6, 3, 5));
        put(file, names[k], H5T_IEEE_F64LE, SHAPE(4, 5));
        H5Fclose(file);
        snprintf(sentence, sizeof sentence,
                 "#:/a/b/%s is no input of e74, but nearly its W_k: rename one of them, or take it "
                 "out of the group",
                 names[k]);
        refused(&t, sentence, names[k]);
    }
    hid_t file = h5_new();
    put(file, "W_k", H5T_IEEE_F64LE, SHAPE(4, 5));
    put(file, "W_K", H5T_IEEE_F64LE, SHAPE(4, 5));
    put(file, "W_kk", H5T_IEEE_F64LE, SHAPE(4, 5));
    H5Fclose(file);
    ok(!input_fill(&t, in, NULL), "but not beside an input of the right name");
    tensors_free(in);
}

/* Of an experiment with these trials, trial i's line must be this; '#' stands for the file. */
static void unused_is(const struct trial *t, int n, int i, const char *line, const char *what)
{
    struct experiment x = {.n = n, .trial = (struct trial *)t};
    char text[2048], want[512];

    unused_datasets(&x, i, text, sizeof text);
    snprintf(want, sizeof want, "%s%s", *line == '#' ? h5_file : "", line + (*line == '#'));
    if (!ok(strcmp(text, want) == 0, "not used: %s", what))
        printf("# %s\n# instead of %s\n", text, want);
}

static void unused_beside_inputs(void)
{
    struct trial t[3] = {trial("e74", sizes, INPUT_HDF5, h5_file),
                         trial("silu", "rows=4 dim=2", INPUT_HDF5, h5_file),
                         trial("cross_entropy", "rows=4 vocabulary=7", INPUT_HDF5, h5_file)};
    hid_t file = h5_new();

    put(file, "W_k", H5T_IEEE_F64LE, SHAPE(4, 5));
    put(file, "W_z", H5T_IEEE_F64LE, SHAPE(4, 5)); /* no input with proj=no_z */
    put(file, "logits", H5T_IEEE_F64LE, SHAPE(4, 7));
    put(file, "steps", H5T_IEEE_F64LE, SHAPE(6));
    put(file, "inner/bias", H5T_IEEE_F64LE, SHAPE(4));
    hid_t steps = H5Dopen2(file, "/a/b/steps", H5P_DEFAULT);
    if (H5DSset_scale(steps, "steps") < 0)
        ok(0, "no dimension scale");
    H5Dclose(steps);
    H5Fclose(file);
    snprintf(t[0].group, sizeof t[0].group, "/a/b");
    snprintf(t[1].group, sizeof t[1].group, "a/b/");
    snprintf(t[2].group, sizeof t[2].group, "a/b");
    unused_is(t, 1, 0, "#:/a/b: not used: W_z, logits",
              "beside e74's W_k, without scale and group");
    unused_is(t, 3, 0, "#:/a/b: not used: W_z", "by none of three trials");
    unused_is(t, 3, 2, "", "which the first one lists");
    t[1].input = INPUT_NORMAL;
    unused_is(t, 2, 1, "", "where inputs are drawn");
    t[0].group[0] = 0;
    unused_is(t, 1, 0, "", "where there are only groups");

    file = h5_new();
    for (int i = 0; i < 11; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%02d", i);
        put(file, name, H5T_IEEE_F64LE, SHAPE(1));
    }
    H5Lmove(file, "/a/b/n10", file, "/n10", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    unused_is(t, 1, 0, "#: not used: n10", "in the root");
    snprintf(t[0].group, sizeof t[0].group, "/a/b");
    unused_is(t, 1, 0, "#:/a/b: not used: n00, n01, n02, n03, n04, n05, n06, n07 and 2 more",
              "many");
}

/* A dump's inputs are listed, its results are not. */
static void unused_in_dumps(void)
{
    struct trial t = trial("silu", "rows=4 dim=2", INPUT_NORMAL, "");
    struct origin from;

    snprintf(t.text, sizeof t.text, "silu");
    tensors_free(dump(&t, h5_file, &from));
    t = trial("silu", "rows=4 dim=2", INPUT_HDF5, h5_file);
    snprintf(t.group, sizeof t.group, "/trial/0001/in");
    unused_is(&t, 1, 0, "", "a dump that is read again");
    hid_t file = H5Fopen(h5_file, H5F_ACC_RDWR, H5P_DEFAULT);
    ok(H5Lmove(file, "/trial/0001/in/x", file, "/trial/0001/in/W_k", H5P_DEFAULT, H5P_DEFAULT) >= 0,
       "another name for it");
    H5Fclose(file);
    unused_is(&t, 1, 0, "#:/trial/0001/in: not used: W_k", "an input of a dump, by another name");
    t.call.op = op_find("swiglu");
    op_defaults(t.call.op, &t.call);
    snprintf(t.group, sizeof t.group, "/trial/0001/dout");
    unused_is(&t, 1, 0, "", "but no gradients");
}

static void hdf5_refusals(void)
{
    struct trial t = trial("e74", sizes, INPUT_HDF5, h5_file);
    static const struct {
        const char *what, *sentence;
    } wrong[] = {
        {"another length", "#:/a/b/W_k is [4,9], e74's W_k is [4,5]"},
        {"fewer axes", "#:/a/b/W_k is [20], e74's W_k is [4,5]"},
        {"more axes", "#:/a/b/W_k is [4,5,1], e74's W_k is [4,5]"},
        {"no axes", "#:/a/b/W_k is [], e74's W_k is [4,5]"},
        {"int32", "#:/a/b/W_k is int32, e74's W_k takes floating point numbers"},
        {"uint8", "#:/a/b/W_k is uint8, e74's W_k takes floating point numbers"},
        {"big-endian int64", "#:/a/b/W_k is int64, e74's W_k takes floating point numbers"},
        {"strings", "#:/a/b/W_k is strings, e74's W_k takes floating point numbers"},
    };

    snprintf(t.group, sizeof t.group, "/a/b");
    for (size_t k = 0; k < COUNT(wrong); k++) {
        hid_t file = h5_new();
        switch (k) {
        case 0: put(file, "W_k", H5T_IEEE_F64LE, SHAPE(4, 9)); break;
        case 1: put(file, "W_k", H5T_IEEE_F64LE, SHAPE(20)); break;
        case 2: put(file, "W_k", H5T_IEEE_F64LE, SHAPE(4, 5, 1)); break;
        case 3: put(file, "W_k", H5T_IEEE_F64LE, 0, NULL); break;
        case 4: put(file, "W_k", H5T_STD_I32LE, SHAPE(4, 5)); break;
        case 5: put(file, "W_k", H5T_STD_U8BE, SHAPE(4, 5)); break;
        case 6: put(file, "W_k", H5T_STD_I64BE, SHAPE(4, 5)); break;
        case 7: put(file, "W_k", H5T_C_S1, SHAPE(4, 5)); break;
        }
        H5Fclose(file);
        refused(&t, wrong[k].sentence, wrong[k].what);
    }
    hid_t file = h5_new();
    put(file, "S0/x", H5T_IEEE_F64LE, SHAPE(3));
    H5Fclose(file);
    refused(&t, "#:/a/b/S0 is no dataset", "a group where a dataset should be");
    snprintf(t.group, sizeof t.group, "/a");
    refused(&t, "#:/a has none of the inputs of e74: x W_k W_v W_q S0", "none of the inputs");
    t.group[0] = 0;
    refused(&t, "#:/ has none of the inputs of e74: x W_k W_v W_q S0", "none, in the root");
    snprintf(t.group, sizeof t.group, "/layer3");
    refused(&t, "# has no group /layer3", "a group that is not there");
    snprintf(t.group, sizeof t.group, "a/c/d");
    refused(&t, "# has no group /a/c/d", "a group in a group that is not there");
    snprintf(t.file, sizeof t.file, "%s", text_file);
    refused(&t, "# cannot be read as HDF5: file signature not found", "a file of another kind");
    snprintf(t.file, sizeof t.file, "/nonexistent.h5");
    refused(&t, "#: No such file or directory", "a file that is not there");
}

int main(void)
{
    snprintf(text_file, sizeof text_file, "input-%ld.txt", (long)getpid());
    snprintf(h5_file, sizeof h5_file, "input-%ld.h5", (long)getpid());
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    no_regular_files();
    text();
    hdf5_types();
    hdf5_refusals();
    whole_numbers();
    indices();
    odd_values();
    too_large();
    nearly_named();
    unused_beside_inputs();
    unused_in_dumps();
    round_trips();
    origins();
    unlink(text_file);
    unlink(h5_file);
    return done();
}
