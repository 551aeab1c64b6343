/* The HDF5 file: all of it reads back; resuming; other plans; files that must not
 * be replaced; two writers; a full disk; and a kill at any of its writes. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <hdf5.h>
#include <hdf5_hl.h>

#include "common/ablate.h"
#include "common/base/err.h"
#include "common/base/h5.h"
#include "common/call/cases.h"
#include "common/store/store.h"
#include "tests/tap.h"

/* ---- a count of every write of this process to a file ---- */

#if defined __linux__ && defined __LP64__
enum { COUNTED = 1, PAGE = 4096 };

/* The process is killed at the write after this many; negative: never.  `torn`: only writes
 * beyond the end of a page count, and the last is written up to there, as in a killed process. */
static long writes_left = -1;
static int torn;

static int last_write(void)
{
    return writes_left >= 0 && writes_left-- == 0;
}

static ssize_t counted_pwrite(int fd, const void *data, size_t n, off_t at)
{
    off_t page = (at + (off_t)n - 1) / PAGE * PAGE;
    if ((!torn || page > at) && last_write()) {
        if (torn)
            syscall(SYS_pwrite64, fd, data, (size_t)(page - at), at);
        kill(getpid(), SIGKILL);
    }
    return syscall(SYS_pwrite64, fd, data, n, at);
}

static int counted_ftruncate(int fd, off_t n)
{
    if (!torn && last_write())
        kill(getpid(), SIGKILL);
    return (int)syscall(SYS_ftruncate, fd, n);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    return counted_pwrite(fd, data, n, at);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off_t at)
{
    return counted_pwrite(fd, data, n, at);
}

int ftruncate(int fd, off_t n)
{
    return counted_ftruncate(fd, n);
}

int ftruncate64(int fd, off_t n)
{
    return counted_ftruncate(fd, n);
}
#else
enum { COUNTED = 0 };
static long writes_left;
static int torn;
#endif

/* ---- an experiment by hand ---- */

enum { TRIALS = 12 };

static char output[64], part[80];
static struct trial trials[TRIALS];
static struct result results[TRIALS];

static void trial(int i, const char *op, const char *text, enum dtype type)
{
    struct trial *t = &trials[i];
    char words[MAX_TEXT];

    *t = (struct trial){.call.op = op_find(op), .type = type, .seed = 100 + i};
    if (cases_one(t->call.op, text, &t->call))
        ok(0, "%s", err_text());
    t->accumulate = i % 4 == 3;
    t->call.accumulate = t->accumulate ? op_gradients(t->call.op) : 0;
    op_text(&t->call, words);
    snprintf(t->text, sizeof t->text, "%s %s seed=%d%s", op, words, 100 + i,
             t->accumulate ? " accumulate=yes" : "");
}

/* Run it on the oracle and its yardstick, with some verdicts. */
static void result(struct result *r, const struct trial *t, int repeats)
{
    const struct backend *b[] = {&ref64, reference_of(t->type)};
    *r = (struct result){.trial = t, .inputs = tensors_new(&t->call), .n_ran = 2};

    tensors_draw(r->inputs, &t->call, t->seed, 1);
    const struct call rounded = call_on(&t->call, b[1], NULL);
    tensors_round(r->inputs, &rounded);
    for (int k = 0; k < 2; k++) {
        struct ran *ran = &r->ran[k];
        struct run c = {.call = call_on(&t->call, b[k], op_kernels(t->call.op, b[k])[0]),
                        .repeats = repeats};
        *ran = (struct ran){.call = c.call, .t = tensors_copy(&t->call, r->inputs)};
        if (run_op(&c, ran->t, &ran->outcome))
            ok(0, "%s", err_text());
    }
    struct verdict *v = verdict_add(&r->verdicts, "parity", "out", b[1], r->ran[1].call.kernel);
    *v = (struct verdict){v->check, v->backend, v->kernel, "out", 1, 2, 4, "[3,0,17]", -1, 1, 0};
    v->missed = 1;
    v = verdict_add(&r->verdicts, "repeat", "d_x", b[1], r->ran[1].call.kernel);
    *v = (struct verdict){v->check, v->backend, v->kernel, "d_x", 1, 2, 0, "", 5, 0, 0};
    v = verdict_add(&r->verdicts, "differences", "d_x", b[0], r->ran[0].call.kernel);
    *v = (struct verdict){v->check, v->backend, v->kernel, "d_x", 0, 0, 4, "", -1, 1, 1};
    r->failed = 1;
    r->skipped = 3;
    snprintf(r->skips, sizeof r->skips, "gpu32: no device\nnothing more\n");
}

static struct experiment experiment(int n, enum save save, int compress, int repeats)
{
    struct experiment x = {.seed = 11,
                           .save = save,
                           .compress = compress,
                           .repeats = repeats,
                           .n = n,
                           .trial = trials};
    static char ini[] = "[experiment]\nname = \xc3\xa4hnlich\n[trial]\nop = e74\n";
    snprintf(x.name, sizeof x.name, "store");
    snprintf(x.output, sizeof x.output, "%s", output);
    x.text = ini;
    return x;
}

static int there(const char *file)
{
    return access(file, F_OK) == 0;
}

/* A run that is killed early leaves an empty part, which is as good as none. */
static int has_contents(const char *file)
{
    struct stat st;
    return stat(file, &st) == 0 && st.st_size > 0;
}

static int write_text(const char *file, const char *text)
{
    FILE *out = fopen(file, "wb");
    return !out || fputs(text, out) < 0 || fclose(out) ? -1 : 0;
}

static int holds_text(const char *file, const char *text)
{
    char there[64] = "";
    FILE *in = fopen(file, "rb");
    if (in) {
        there[fread(there, 1, sizeof there - 1, in)] = 0;
        fclose(in);
    }
    return strcmp(there, text) == 0;
}

static void clean(void)
{
    unlink(output);
    unlink(part);
}

/* Remove what new parts were called before they had their name; how many there were. */
static int clean_fresh(void)
{
    char pattern[96];
    glob_t found;
    int n = 0;

    snprintf(pattern, sizeof pattern, "%s.*", part);
    if (!glob(pattern, 0, NULL, &found)) {
        n = (int)found.gl_pathc;
        for (int i = 0; i < n; i++)
            unlink(found.gl_pathv[i]);
        globfree(&found);
    }
    return n;
}

/* Can a file have no name here? */
static int has_unnamed(void)
{
#ifdef O_TMPFILE
    int fd = open(".", O_TMPFILE | O_RDWR, 0666);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
#else
    return 0;
#endif
}

/* Open, write trials `from` to `to`, close. */
static int write_some(const struct experiment *x, int how, int from, int to)
{
    struct store *s = store_open(x, how);
    int e = !s;
    struct store_counts c;
    for (int i = from; !e && i < to; i++)
        if (!store_has(s, i, &c))
            e = store_write(s, i, &results[i]);
    return s && store_close(s, !e && to == x->n) ? -1 : e;
}

/* ---- reading it back, with HDF5 alone ---- */

static double number(hid_t at, const char *name)
{
    double x = -1;
    hid_t a = H5Aopen(at, name, H5P_DEFAULT);
    if (a >= 0) {
        H5Aread(a, H5T_NATIVE_DOUBLE, &x);
        H5Aclose(a);
    }
    return x;
}

static int is_text(hid_t at, const char *name, const char *want)
{
    hid_t a = H5Aopen(at, name, H5P_DEFAULT), type = a < 0 ? -1 : H5Aget_type(a);
    char *text = NULL;
    int same = type >= 0 && H5Tis_variable_str(type) > 0 && H5Aread(a, type, &text) >= 0 && text &&
               strcmp(text, want) == 0;
    H5free_memory(text);
    if (type >= 0)
        H5Tclose(type);
    if (a >= 0)
        H5Aclose(a);
    return same;
}

/* Has that dataset these values, the type `bits`, and the names of its axes?  Bytes have 8. */
static int is_dataset(hid_t trial, const struct trial *t, const char *folder, int arg,
                      const void *want, int bits)
{
    const int bytes = op_is_bytes(&t->call, arg);
    char path[64];
    const char *shape = op_shape(&t->call, arg);
    int64_t n = op_count(&t->call, arg);
    void *got = malloc(n * tensors_each(&t->call, arg));

    snprintf(path, sizeof path, "%s/%s", folder, t->call.op->arg[arg].name);
    hid_t d = H5Dopen2(trial, path, H5P_DEFAULT), type = d < 0 ? -1 : H5Dget_type(d);
    int good = d >= 0 && H5Tget_size(type) == (bytes ? 1 : (size_t)bits / 8) &&
               H5Dread(d, bytes ? H5T_NATIVE_UCHAR : H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL,
                       H5P_DEFAULT, got) >= 0 &&
               memcmp(got, want, n * tensors_each(&t->call, arg)) == 0;
    for (int i = 0; good && shape[i]; i++) {
        char label[64] = "", name[64];
        hsize_t length = 0;
        snprintf(name, sizeof name, "%s", op_axis(t->call.op, shape[i]));
        if (strchr(shape, shape[i]) < shape + i)
            strcat(name, "_2");
        hid_t scale = H5Dopen2(trial, name, H5P_DEFAULT);
        hid_t space = scale < 0 ? -1 : H5Dget_space(scale);
        good = scale >= 0 && H5DSis_attached(d, scale, i) > 0 &&
               H5DSget_label(d, i, label, sizeof label) >= 0 && strcmp(label, name) == 0 &&
               H5Sget_simple_extent_dims(space, &length, NULL) == 1 &&
               length == (hsize_t)DIM(&t->call, shape[i]);
        H5Sclose(space);
        H5Dclose(scale);
    }
    if (d >= 0) {
        H5Tclose(type);
        H5Dclose(d);
    }
    free(got);
    return good;
}

static int is_trial(hid_t trial, const struct result *r, enum save save)
{
    const struct trial *t = r->trial;
    int good = is_text(trial, "op", t->call.op->name) && is_text(trial, "line", t->text) &&
               is_text(trial, "skips", r->skips) && number(trial, "n_checks") == r->verdicts.n &&
               number(trial, "failed") == r->failed && number(trial, "unjudged") == 1 &&
               number(trial, "skipped") == r->skipped;

    good = good && (t->accumulate ? is_text(trial, "accumulate", "yes")
                                  : H5Aexists(trial, "accumulate") == 0);
    good = good && H5Lexists(trial, "dinit", H5P_DEFAULT) == (t->accumulate && save == SAVE_ALL);
    for (int i = 0; i < t->call.op->n_args; i++) {
        unsigned flags = t->call.op->arg[i].flags;
        if (!op_has(&t->call, i))
            continue;
        if (save == SAVE_ALL && flags & IN)
            good = good && is_dataset(trial, t, "in", i, tensors_values(r->inputs, i, 0), 32);
        if (save == SAVE_ALL && flags & OUT && flags & DIFF)
            good = good && is_dataset(trial, t, "dout", i, r->inputs->g[i], 32);
        if (save == SAVE_ALL && t->accumulate && flags & IN && flags & DIFF)
            good = good && is_dataset(trial, t, "dinit", i, r->inputs->g0[i], 32);
        for (int k = 0; save != SAVE_NONE && k < r->n_ran; k++) {
            int bits = k == 0 ? 64 : 32;
            char d[32];
            snprintf(d, sizeof d, "%s/d", r->ran[k].call.backend->name);
            if (flags & OUT)
                good = good && is_dataset(trial, t, r->ran[k].call.backend->name, i,
                                          tensors_values(r->ran[k].t, i, 0), bits);
            if (save == SAVE_ALL && flags & IN && flags & DIFF)
                good = good && is_dataset(trial, t, d, i, r->ran[k].t->g[i], bits);
        }
    }
    return good;
}

/* How many trials of the file are complete; -1 if one of them does not read
 * back, -2 if there is no such file, or none that can be opened. */
static int complete(const char *file, int n, enum save save)
{
    hid_t f = there(file) ? H5Fopen(file, H5F_ACC_RDONLY, H5P_DEFAULT) : -1;
    int found = f < 0 ? -2 : 0;

    for (int i = 0; found >= 0 && i < n; i++) {
        char path[32];
        snprintf(path, sizeof path, "/trial/%04d", i + 1);
        hid_t g = H5Gopen2(f, path, H5P_DEFAULT);
        if (g >= 0 && number(g, "complete") == 1)
            found = is_trial(g, &results[i], save) ? found + 1 : -1;
        if (g >= 0)
            H5Gclose(g);
    }
    if (f >= 0)
        H5Fclose(f);
    return found;
}

/* ---- tests ---- */

static void says(int failed, const char *want, const char *what)
{
    if (!ok(failed && strstr(err_text(), want), "%s", what))
        printf("# %s\n# instead of %s\n", failed ? err_text() : "no failure", want);
}

/* The attributes of the file and of its second trial. */
static void attributes(hid_t f, const struct experiment *x)
{
    ok(is_text(f, "schema", "ablate-2") && is_text(f, "ini", x->text) &&
           is_text(f, "name", "store") && is_text(f, "version", PACKAGE_VERSION) &&
           number(f, "seed") == 11 && number(f, "n_trials") == 6 && H5Aexists(f, "host") > 0 &&
           H5Aexists(f, "date") > 0 && H5Aexists(f, "device") > 0 && H5Aexists(f, "compiler") > 0,
       "attributes of the file");
    hid_t g = H5Gopen2(f, "/trial/0002", H5P_DEFAULT);
    ok(is_text(g, "state", "lowrank") && number(g, "rank") == 3 && number(g, "steps") == 5 &&
           H5Aexists(g, "z_mod") == 0 && is_text(g, "dtype", "bf16") && number(g, "seed") == 101 &&
           is_text(g, "input", "normal") && H5Aexists(g, "file") == 0,
       "attributes of a trial, those that apply");
    hid_t wide = H5Dopen2(g, "in/U0", H5P_DEFAULT), stored = H5Dopen2(g, "in/x", H5P_DEFAULT);
    ok(is_text(stored, "storage", "bf16") && H5Aexists(wide, "storage") == 0,
       "a tensor in bf16 has the attribute");
    H5Dclose(wide);
    H5Dclose(stored);
    H5Gclose(g);
}

static void table_of_verdicts(hid_t f)
{
    struct row {
        double error, margin;
        char *verdict, *tensor;
        int64_t first_bad;
    } rows[3] = {{0, 0, NULL, NULL, 0}};
    hid_t row = H5Tcreate(H5T_COMPOUND, sizeof *rows), text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, H5T_VARIABLE);
    H5Tset_cset(text, H5T_CSET_UTF8);
    H5Tinsert(row, "error", HOFFSET(struct row, error), H5T_NATIVE_DOUBLE);
    H5Tinsert(row, "margin", HOFFSET(struct row, margin), H5T_NATIVE_DOUBLE);
    H5Tinsert(row, "verdict", HOFFSET(struct row, verdict), text);
    H5Tinsert(row, "tensor", HOFFSET(struct row, tensor), text);
    H5Tinsert(row, "first_bad", HOFFSET(struct row, first_bad), H5T_NATIVE_INT64);
    hid_t table = H5Dopen2(f, "/trial/0001/check", H5P_DEFAULT);
    ok(table >= 0 && H5Dread(table, row, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows) >= 0 &&
           rows[0].error == 1 && rows[0].margin == .25 && strcmp(rows[0].verdict, "missed") == 0 &&
           strcmp(rows[0].tensor, "out") == 0 && rows[0].first_bad == -1 && rows[1].margin == 0 &&
           strcmp(rows[1].verdict, "fail") == 0 && rows[1].first_bad == 5 &&
           strcmp(rows[2].verdict, "cannot be judged") == 0,
       "table of verdicts");
    for (int i = 0; i < 3; i++) {
        H5free_memory(rows[i].verdict);
        H5free_memory(rows[i].tensor);
    }
    H5Dclose(table);
    H5Tclose(row);
    H5Tclose(text);
}

static void table_of_times(hid_t f)
{
    double median[4] = {-1, -1, -1, -1};
    hid_t times = H5Tcreate(H5T_COMPOUND, sizeof *median);
    H5Tinsert(times, "median", 0, H5T_NATIVE_DOUBLE);
    hid_t table = H5Dopen2(f, "/trial/0001/time", H5P_DEFAULT);
    ok(table >= 0 && H5Dread(table, times, H5S_ALL, H5S_ALL, H5P_DEFAULT, median) >= 0 &&
           median[0] == results[0].ran[0].outcome.median[FORWARD] &&
           median[3] == results[0].ran[1].outcome.median[BACKWARD],
       "table of times");
    H5Dclose(table);
    H5Tclose(times);
}

static void compression(hid_t f)
{
    hid_t big = H5Dopen2(f, "/trial/0006/ref64/y", H5P_DEFAULT), how = H5Dget_create_plist(big);
    ok(H5Pget_layout(how) == H5D_CHUNKED && H5Pget_nfilters(how) == 2 &&
           H5Dget_storage_size(big) < 1100 * 130 * 8,
       "a large tensor is compressed");
    H5Pclose(how);
    H5Dclose(big);
}

static void whole(void)
{
    struct experiment x = experiment(6, SAVE_ALL, 1, 2);
    int e = write_some(&x, 0, 0, 6);
    if (!ok(!e && there(output) && !there(part), "written and renamed") && e)
        printf("# %s\n", err_text());
    ok(complete(output, 6, SAVE_ALL) == 6, "everything reads back, with its axes' names");

    hid_t f = H5Fopen(output, H5F_ACC_RDONLY, H5P_DEFAULT);
    attributes(f, &x);
    table_of_verdicts(f);
    table_of_times(f);
    compression(f);
    H5Fclose(f);
    clean();
}

static void less(void)
{
    struct experiment x = experiment(2, SAVE_OUTPUTS, 0, 0);
    int e = write_some(&x, 0, 0, 2);
    hid_t f = H5Fopen(output, H5F_ACC_RDONLY, H5P_DEFAULT);
    ok(!e && complete(output, 2, SAVE_OUTPUTS) == 2 &&
           H5Lexists(f, "/trial/0001/in", H5P_DEFAULT) == 0 &&
           H5Lexists(f, "/trial/0001/dout", H5P_DEFAULT) == 0 &&
           H5Lexists(f, "/trial/0001/ref64/d", H5P_DEFAULT) == 0,
       "save = outputs: outputs alone");
    ok(H5Lexists(f, "/trial/0001/time", H5P_DEFAULT) == 0, "no times without repeats");
    H5Fclose(f);
    x = experiment(2, SAVE_NONE, 0, 0);
    e = write_some(&x, STORE_REPLACE, 0, 2);
    f = H5Fopen(output, H5F_ACC_RDONLY, H5P_DEFAULT);
    ok(!e && complete(output, 2, SAVE_NONE) == 2 &&
           H5Lexists(f, "/trial/0001/ref64", H5P_DEFAULT) == 0 &&
           H5Lexists(f, "/trial/0001/check", H5P_DEFAULT) > 0,
       "save = none: verdicts alone");
    H5Fclose(f);
    clean();
}

/* Two runs differ in the date, at max. */
/* ---- a trial judged by a sample ---- */

/* C = A B of 100 x 9 and 9 x 70: rows of A and columns of B are sampled. */
static int sampled_result(struct trial *t, struct result *r)
{
    static const char *const words = "gemm M=100 N=70 K=9 seed=5";

    *t = (struct trial){.call.op = op_find("gemm"), .type = F32, .seed = 5, .sampled = 1};
    *r = (struct result){.trial = t};
    if (cases_one(t->call.op, "M=100 N=70 K=9", &t->call))
        return -1;
    snprintf(t->text, sizeof t->text, "%s", words);
    r->inputs = tensors_new(&t->call);
    tensors_draw(r->inputs, &t->call, t->seed, 1);
    result_no_references(r);
    const struct backend *b = r->ran[YARDSTICK].call.backend;
    struct verdict *v = verdict_add(&r->verdicts, "parity", "C", b, r->ran[YARDSTICK].call.kernel);
    v->judged = 4096;
    v->elements = 7000;
    v->pass = 1;
    return result_sample(r);
}

/* Are the values of a reference on the sample there, with these axes cut? */
static int is_sampled(hid_t trial, const struct result *r, int ran, const char *name, int grad,
                      const char *axes)
{
    const int arg = op_arg(r->trial->call.op, name);
    const struct cut *c = sampled_cut(r->sampled, arg);
    const double *want = tensors_result(ran == ORACLE ? c->truth.oracle : c->truth.yard, arg, grad);
    const int64_t n = op_count(&c->call, arg);
    double *got = calloc(n, sizeof *got);
    char path[64];

    snprintf(path, sizeof path, "sample/%s/%s%s", r->ran[ran].call.backend->name, grad ? "d/" : "",
             name);
    hid_t d = H5Dopen2(trial, path, H5P_DEFAULT), space = d < 0 ? -1 : H5Dget_space(d);
    int good = d >= 0 && H5Sget_simple_extent_npoints(space) == n &&
               H5Dread(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0 &&
               memcmp(got, want, n * sizeof *got) == 0 && is_text(d, "axes", axes);
    for (const char *shape = op_shape(&c->call, arg); good && *shape; shape++) {
        char label[64] = "";
        good =
            H5DSget_label(d, (unsigned)(shape - op_shape(&c->call, arg)), label, sizeof label) >= 0;
        good = good && *label == *shape &&
               strcmp(label + 1, strchr(axes, *shape) ? "_sampled" : "") == 0;
    }
    if (d >= 0) {
        H5Sclose(space);
        H5Dclose(d);
    }
    free(got);
    return good;
}

/* The rows of both axes, in order. */
static int has_rows(hid_t trial, const struct sample *s)
{
    struct row {
        char *axis;
        int64_t row;
    } rows[2 * SAMPLE_ROWS + 1] = {{NULL, 0}};
    const int n = s->n['M' - 'A'];
    hid_t row = H5Tcreate(H5T_COMPOUND, sizeof *rows), text = h5_text_type();
    H5Tinsert(row, "axis", HOFFSET(struct row, axis), text);
    H5Tinsert(row, "row", HOFFSET(struct row, row), H5T_NATIVE_INT64);
    hid_t table = H5Dopen2(trial, "sample_rows", H5P_DEFAULT);
    int good = h5_table_rows(table, "sample_rows", 1000) == n + s->n['N' - 'A'] &&
               H5Dread(table, row, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows) >= 0;
    for (int i = 0; i < n + s->n['N' - 'A']; i++) {
        const char *axis = i < n ? "M" : "N";
        good = good && strcmp(rows[i].axis, axis) == 0 &&
               rows[i].row == s->row[*axis - 'A'][i < n ? i : i - n];
        H5free_memory(rows[i].axis);
    }
    H5Dclose(table);
    H5Tclose(row);
    H5Tclose(text);
    return good;
}

/* Of the first verdict. */
static int has_counts(hid_t trial)
{
    int64_t counts[2] = {0, 0};
    hid_t row = H5Tcreate(H5T_COMPOUND, sizeof counts);
    H5Tinsert(row, "judged", 0, H5T_NATIVE_INT64);
    H5Tinsert(row, "elements", sizeof *counts, H5T_NATIVE_INT64);
    hid_t table = H5Dopen2(trial, "check", H5P_DEFAULT);
    int good = H5Dread(table, row, H5S_ALL, H5S_ALL, H5P_DEFAULT, counts) >= 0 &&
               counts[0] == 4096 && counts[1] == 7000;
    H5Dclose(table);
    H5Tclose(row);
    return good;
}

/* It is written, and read back. */
static void sampled_trial(struct trial *t, const struct result *r, enum save save)
{
    struct experiment x = experiment(1, save, 1, 0);
    const int outputs = save != SAVE_NONE, all = save == SAVE_ALL;

    x.trial = t;
    struct store *s = store_open(&x, STORE_REPLACE);
    int e = !s || store_write(s, 0, r);
    e = (s && store_close(s, !e)) || e;
    hid_t f = e ? -1 : H5Fopen(output, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t g = f < 0 ? -1 : H5Gopen2(f, "/trial/0001", H5P_DEFAULT);
    ok(g >= 0 && is_text(g, "judged", "sampled") && has_counts(g) &&
           has_rows(g, &r->sampled->sample) && H5Lexists(g, "ref64", H5P_DEFAULT) == 0 &&
           H5Lexists(g, "sample", H5P_DEFAULT) == outputs,
       "a sampled trial, save = %s: its rows, and how many elements were judged",
       all       ? "all"
       : outputs ? "outputs"
                 : "none");
    for (int k = ORACLE; k <= YARDSTICK; k++) {
        const char *name = r->ran[k].call.backend->name;
        char d[32];
        snprintf(d, sizeof d, "sample/%s/d", name);
        if (outputs)
            ok(is_sampled(g, r, k, "C", 0, "M, N") && H5Lexists(g, d, H5P_DEFAULT) == all,
               "%s has C on the sample", name);
        if (all)
            ok(is_sampled(g, r, k, "A", 1, "M") && is_sampled(g, r, k, "B", 1, "N"),
               "and d_A and d_B");
    }
    H5Gclose(g);
    H5Fclose(f);
    clean();
}

static void by_sample(void)
{
    static struct trial t;
    static struct result r;

    ok(!sampled_result(&t, &r), "a product judged by a sample");
    sampled_trial(&t, &r, SAVE_ALL);
    sampled_trial(&t, &r, SAVE_OUTPUTS);
    sampled_trial(&t, &r, SAVE_NONE);
    result_free(&r);
}

static void equal_runs(void)
{
    struct experiment x = experiment(6, SAVE_ALL, 1, 2);
    char other[80];
    int64_t differ = 0, n = 0;

    snprintf(other, sizeof other, "%s.other", output);
    int e = write_some(&x, 0, 0, 6) || rename(output, other) || write_some(&x, 0, 0, 6);
    FILE *a = fopen(output, "rb"), *b = fopen(other, "rb");
    while (!e && a && b) {
        int ca = getc(a), cb = getc(b);
        differ += ca != cb;
        if (ca == EOF || cb == EOF)
            break;
        n++;
    }
    if (!ok(n > 0 && differ <= 8, "equal runs, equal files but for the date"))
        printf("# %lld of %lld bytes\n", (long long)differ, (long long)n);
    if (a)
        fclose(a);
    if (b)
        fclose(b);
    unlink(other);
    clean();
}

static void resuming(void)
{
    struct experiment x = experiment(4, SAVE_ALL, 0, 0), y = x;
    struct store_counts c = {-1, -1, -1, -1, -1};

    ok(!write_some(&x, 0, 0, 2) && there(part) && !there(output) &&
           complete(part, 4, SAVE_ALL) == 2,
       "an unfinished run leaves its part");
    struct store *s = store_open(&x, 1);
    if (!ok(s != NULL, "it can be resumed")) {
        printf("# %s\n", err_text());
        return;
    }
    ok(store_has(s, 1, &c) && c.checks == 3 && c.failed == 1 && c.unjudged == 1 && c.skipped == 3 &&
           c.missed == 1 && !store_has(s, 2, &c),
       "finished trials are known, with their counts");
    ok(strcmp(store_name(s), part) == 0, "store_name");
    says(store_write(s, 1, &results[1]), "trial 2 is there already", "no trial is written twice");
    ok(!store_close(s, 0), "closed");
    s = store_open(&x, 1);
    says(!s || store_close(s, 1), "trial 3 is missing", "not finished before all are there");
    ok(there(part) && !there(output), "the part stays");

    y.n = 3;
    says(!store_open(&y, 1), ".part: holds another plan: of 4 trials, not 3", "fewer trials");
    struct trial other[4];
    memcpy(other, trials, sizeof other);
    y = x;
    y.trial = other;
    snprintf(other[3].text, sizeof other[3].text, "something else");
    says(!store_open(&y, 1), ".part: holds another plan: trial 4 is 'e74 state=", "another trial");
    y = x;
    snprintf(y.name, sizeof y.name, "loss");
    says(!store_open(&y, 1), ".part: holds another plan: 'store', not 'loss'", "another name");
    y = x;
    y.measure = MEASURE_TIME;
    says(!store_open(&y, 1), ".part: holds another plan: measure = check, not time",
         "another measure");
    ok(complete(part, 4, SAVE_ALL) == 2, "refusing leaves the part alone");

    ok(!write_some(&x, 1, 0, 4) && there(output) && !there(part) &&
           complete(output, 4, SAVE_ALL) == 4,
       "resumed to the end");
    s = store_open(&x, 1);
    ok(s && store_has(s, 3, &c) && strcmp(store_name(s), output) == 0,
       "a finished file has everything");
    says(!s || store_write(s, 3, &results[3]), "trial 4 is there already", "and takes no more");
    ok(s && !store_close(s, 1) && complete(output, 4, SAVE_ALL) == 4, "and stays");
    y.n = 2;
    says(!store_open(&y, 1), "holds another plan", "a finished file of another plan");
    clean();
}

/* A part that is there is not thrown away with finished trials in it. */
static void discarding(void)
{
    struct experiment x = experiment(4, SAVE_ALL, 0, 0), y = x;

    ok(!write_some(&x, 0, 0, 4), "a finished file");
    ok(!write_some(&x, 0, 0, 1) && there(output) && complete(part, 4, SAVE_ALL) == 1,
       "without resuming a new part begins beside the finished file");
    says(!store_open(&x, 0), ".part: holds 1 finished trial, which would be lost",
         "but not in the place of a part with finished trials");
    y = x;
    y.repeats = 3;
    says(!store_open(&y, 0), ".part: holds 1 finished trial of another plan, which would be lost",
         "also of another plan");
    ok(complete(part, 4, SAVE_ALL) == 1, "which stays");
    ok(!write_some(&x, STORE_DISCARD, 0, 0) && complete(part, 4, SAVE_ALL) == 0,
       "unless an option says so");
    ok(!write_some(&x, 0, 0, 2) && complete(part, 4, SAVE_ALL) == 2,
       "a part without finished trials is begun again");
    ok(!truncate(part, 5000), "a part is damaged");
    says(!store_open(&x, 0) && err_advice() == ADVICE_AGAIN, ".part: cannot be read",
         "a damaged part is not thrown away");
    ok(!write_some(&x, STORE_DISCARD, 0, 1) && complete(part, 4, SAVE_ALL) == 1,
       "unless an option says so, too");
    write_text(part, "this is a text");
    says(!store_open(&x, 1), ".part: cannot be read: file signature not found", "no HDF5 file");
    says(!store_open(&x, STORE_DISCARD), ".part: was not written by this program: move it away",
         "a part that is none is not thrown away in any case");
    ok(holds_text(part, "this is a text"), "and stays as it is");
    clean();
    ok(!write_text(part, "") && !write_some(&x, 1, 0, 4), "an empty part is as good as none");
    clean();
    ok(!write_some(&x, 1, 0, 4) && complete(output, 4, SAVE_ALL) == 4, "nothing to resume: begun");
    clean();
    snprintf(y.output, sizeof y.output, "no/such/folder.h5");
    says(!store_open(&y, 0), "no/such/folder.h5.part: cannot be written: No such file or directory",
         "no such folder");
}

/* Take trial 2 or the number of trials out of a file that HDF5 can still open. */
static void damage(const char *file, int attribute)
{
    hid_t f = H5Fopen(file, H5F_ACC_RDWR, H5P_DEFAULT);
    if ((attribute ? H5Adelete(f, "n_trials") : H5Ldelete(f, "/trial/0002", H5P_DEFAULT)) < 0)
        ok(0, "cannot damage %s", file);
    H5Fclose(f);
}

/* The name that a dump of another plan gets. */
static const char *backup(int i)
{
    static char name[96];
    snprintf(name, sizeof name, "%s.~%d~", output, i);
    return name;
}

/* Old outputs that are damaged: which of them an option replaces, as the man page says. */
static void damaged(void)
{
    static const char *const what[] = {"a trial", "the number of trials"};
    static const char *const sentence[] = {".part: trial 2 is damaged",
                                           ".part: there is no attribute n_trials"};
    struct experiment x = experiment(4, SAVE_ALL, 0, 0);

    for (int k = 0; k < 2; k++) {
        ok(!write_some(&x, 0, 0, 3), "a part loses %s", what[k]);
        damage(part, k);
        says(!store_open(&x, 0) && err_advice() == ADVICE_AGAIN, sentence[k],
             "its finished trials are not thrown away");
        ok(there(part) && !write_some(&x, STORE_DISCARD, 0, 1) && complete(part, 4, SAVE_ALL) == 1,
           "unless an option says so");
        clean();
        ok(!write_some(&x, 0, 0, 4), "a finished file loses %s", what[k]);
        damage(output, k);
        ok(!write_some(&x, 0, 0, 4) && complete(output, 4, SAVE_ALL) == 4 && there(backup(1)),
           "it is kept by another name");
        damage(output, k);
        ok(!write_some(&x, STORE_REPLACE, 0, 4) && complete(output, 4, SAVE_ALL) == 4 &&
               !there(backup(2)),
           "unless an option says so");
        unlink(backup(1));
        clean();
    }
    ok(!write_some(&x, 0, 0, 4) && !truncate(output, 5000), "a finished file is cut off");
    says(!store_open(&x, STORE_REPLACE | STORE_DISCARD) &&
             err_advice() == (ADVICE_MOVE | ADVICE_ELSEWHERE),
         "is no dump (truncated file", "one that cannot be opened is never replaced");
    ok(there(output) && !there(part), "and stays, without a part");
    clean();
    ok(!write_some(&x, 0, 0, 1), "a part loses its schema");
    hid_t f = H5Fopen(part, H5F_ACC_RDWR, H5P_DEFAULT);
    ok(H5Adelete(f, "schema") >= 0, "which says whose it is");
    H5Fclose(f);
    says(!store_open(&x, STORE_REPLACE | STORE_DISCARD), "was not written by this program",
         "it is never thrown away");
    clean();
}

/* Every key on which the contents of the file depend. */
static void other_keys(void)
{
    struct experiment x = experiment(4, SAVE_ALL, 1, 2), y = x;
    x.checks = CHECK_DIFFERENCES | CHECK_PARITY;
    x.directions = 2;
    const struct {
        struct experiment y;
        const char *says;
    } other[] = {
        {x, "checks = differences, parity, not none"},
        {x, "directions = 2, not 3"},
        {x, "repeats = 2, not 3"},
        {x, "save = all, not outputs"},
        {x, "compress = 1, not 2"},
        {x, "backends = all, not ref32"},
    };

    ok(!write_some(&x, 0, 0, 2), "a part, of some keys");
    for (size_t i = 0; i < COUNT(other); i++) {
        y = x;
        y.checks = i == 0 ? 0 : x.checks;
        y.directions += i == 1;
        y.repeats += i == 2;
        y.save = i == 3 ? SAVE_OUTPUTS : x.save;
        y.compress += i == 4;
        y.n_backends = i == 5;
        y.backend[0] = &ref32;
        says(!store_open(&y, 1), other[i].says, other[i].says);
    }
    y = x;
    y.text = "; a comment";
    ok(!write_some(&y, 1, 0, 3), "another comment is no other plan");
    clean();
}

/* Trials that read a file. */
static void inputs(void)
{
    struct experiment x = experiment(2, SAVE_ALL, 0, 0);
    struct trial reading[2];
    char input[80];

    memcpy(reading, trials, sizeof reading);
    snprintf(input, sizeof input, "%s.txt", output);
    snprintf(reading[1].file, sizeof reading[1].file, "%s", input);
    x.trial = reading;
    ok(!write_text(input, "foobar") && !write_some(&x, 0, 0, 1), "a part, of a trial with a file");
    hid_t f = H5Fopen(part, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t g = H5Gopen2(f, "/trial/0002", H5P_DEFAULT);
    ok(is_text(g, "contents", "fnv1a64 85944171f73967e8, 6 bytes"), "the file's hash is in it");
    H5Gclose(g);
    H5Fclose(f);
    write_text(input, "foobaz");
    says(!store_open(&x, 1) && err_advice() == ADVICE_AGAIN, ".part: trial 2 read another store-",
         "another content is refused");
    write_text(input, "foobar");
    ok(!write_some(&x, 1, 0, 2) && there(output), "the same content is not");
    write_text(input, "foobaz");
    says(!store_open(&x, 1), "trial 2 read another", "nor is a finished file's");

    snprintf(x.output, sizeof x.output, "./%s", input);
    says(!store_open(&x, STORE_REPLACE), "is the input of trial 2", "an output that is an input");
    snprintf(part, sizeof part, "%s.part", output);
    snprintf(reading[1].file, sizeof reading[1].file, "%s", part);
    snprintf(x.output, sizeof x.output, "%s", output);
    ok(!rename(input, part), "an input is named like the part");
    says(!store_open(&x, STORE_REPLACE), ".part: is the input of trial 2", "a part that is one");
    x.trial = trials;
    x.file = part;
    says(!store_open(&x, STORE_REPLACE), ".part: is the experiment's own ini", "or the ini");
    ok(holds_text(part, "foobaz"), "they stay as they are");
    clean();
}

/* Does that file hold two trials that were planned with that many repeats? */
static int is_dump_of(const char *file, const struct experiment *x)
{
    hid_t f = H5Fopen(file, H5F_ACC_RDONLY, H5P_DEFAULT);
    char *text = f < 0 ? NULL : h5_get_text(f, "repeats");
    int same = text && atoi(text) == x->repeats;

    free(text);
    if (f >= 0)
        H5Fclose(f);
    return same && complete(file, 2, SAVE_NONE) == 2;
}

/* A dump of another plan is kept under a name that nothing has. */
static void keeping(void)
{
    struct experiment x = experiment(2, SAVE_NONE, 0, 0), y = x, z = x;

    y.repeats = 3;
    z.repeats = 4;
    write_text(backup(1), "mine");
    ok(!write_some(&x, 0, 0, 2), "a dump");
    struct store *s = store_open(&y, 0);
    ok(s && strcmp(store_keeps(s), backup(2)) == 0 && strlen(store_replaces(s)) == 10,
       "one of another plan gets a name that nothing has");
    ok(s && !store_close(s, 0) && is_dump_of(output, &x) && !there(backup(2)),
       "but not where the new one is not complete");
    unlink(part);
    ok(!write_some(&y, 0, 0, 2) && is_dump_of(output, &y) && is_dump_of(backup(2), &x),
       "both are there when it is");
    ok(!write_some(&y, 0, 0, 2) && !there(backup(3)), "one of the same plan is not kept");
    ok(!write_some(&x, STORE_REPLACE, 0, 2) && !there(backup(3)), "nor one that is to be replaced");

    s = store_open(&z, 0);
    for (int i = 0; s && i < 2; i++)
        store_write(s, i, &results[i]);
    write_text(backup(3), "made meanwhile");
    says(s && store_close(s, 1), "cannot be kept as", "its name is another's meanwhile");
    ok(is_dump_of(output, &x) && holds_text(backup(3), "made meanwhile") && there(part),
       "then all files stay");
    ok(!write_some(&z, STORE_RESUME, 0, 2) && is_dump_of(output, &z) && is_dump_of(backup(4), &x),
       "and --resume gives it the next name");
    ok(holds_text(backup(1), "mine"), "nobody's file is replaced");
    for (int i = 5; i <= 999; i++)
        write_text(backup(i), "");
    says(!store_open(&x, 0), "holds another plan, and all names up to", "names that are all taken");
    ok(err_advice() == (ADVICE_REPLACE | ADVICE_ELSEWHERE), "which an option helps against");
    for (int i = 1; i <= 999; i++)
        unlink(backup(i));
    clean();
}

/* Other things that have the output's name. */
static void replacing(void)
{
    struct experiment x = experiment(2, SAVE_NONE, 0, 0), y = x;
    char other[80], link[80];
    struct stat st;

    snprintf(other, sizeof other, "%s.other", output);
    snprintf(link, sizeof link, "%s.link", output);
    write_text(output, "a text");
    says(!store_open(&x, STORE_REPLACE | STORE_DISCARD), ": is no dump (file signature not found)",
         "a text is not replaced");
    ok(holds_text(output, "a text") && !there(part), "and stays");
    clean();
    hid_t f = H5Fcreate(output, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(f);
    says(!store_open(&x, STORE_REPLACE), ": was not written by this program; it is not replaced",
         "nor is another program's HDF5 file");
    clean();
    ok(!write_text(output, "") && !write_some(&x, 0, 0, 2), "an empty file is");
    struct store *s = store_open(&x, 0);
    ok(s && strlen(store_replaces(s)) == 10 && store_replaces(s)[4] == '-' && !store_close(s, 0),
       "a dump of the same plan is, and its date known");
    clean();

    ok(!symlink(other, link), "a link that leads nowhere");
    snprintf(x.output, sizeof x.output, "%s", link);
    ok(!write_some(&x, 0, 0, 2) && !lstat(link, &st) && S_ISLNK(st.st_mode) &&
           complete(other, 2, SAVE_NONE) == 2,
       "is written through, and stays");
    ok(!write_some(&x, 0, 0, 2) && !lstat(link, &st) && S_ISLNK(st.st_mode) &&
           complete(other, 2, SAVE_NONE) == 2,
       "so is one that leads to a dump");
    unlink(other);
    unlink(link);
    ok(!symlink(link, link), "a link to itself");
    says(!store_open(&x, 0), ": Too many levels of symbolic links", "is refused");
    unlink(link);
    x = y;
    snprintf(x.output, sizeof x.output, "/dev/null");
    says(!store_open(&x, 0), "/dev/null: is no regular file", "a device");
    snprintf(x.output, sizeof x.output, ".");
    says(!store_open(&x, 0), ".: is a folder", "a folder");
    snprintf(x.output, sizeof x.output, "%s/", output);
    says(!store_open(&x, 0), "/: is the name of a folder", "the name of one");
    *x.output = 0;
    says(!store_open(&x, 0), "the name of the output is empty", "no name");
}

/* ---- wrong attributes and tables ---- */

enum { MANY = 4000 };

/* Put n values of that type in the place of an attribute. */
static void forge(const char *path, const char *name, hid_t type, hsize_t n)
{
    hid_t f = H5Fopen(output, H5F_ACC_RDWR, H5P_DEFAULT), g = H5Gopen2(f, path, H5P_DEFAULT);
    hid_t space = n ? H5Screate_simple(1, &n, NULL) : H5Screate(H5S_SCALAR);
    char *value = calloc(n + 1, H5Tget_size(type));

    H5Adelete(g, name);
    hid_t a = H5Acreate2(g, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) <= 0)
        strcpy(value, "ablate-2");
    if (a < 0 || H5Awrite(a, type, value) < 0)
        ok(0, "attribute %s of %s can be forged", name, path);
    free(value);
    H5Aclose(a);
    H5Sclose(space);
    H5Gclose(g);
    H5Fclose(f);
}

/* A table `time` with one column of that type, and n rows. */
static void forge_table(hid_t type, hsize_t n)
{
    hid_t f = H5Fopen(output, H5F_ACC_RDWR, H5P_DEFAULT), space = H5Screate_simple(1, &n, NULL);
    hid_t old = H5Dopen2(f, "/trial/0001/time", H5P_DEFAULT);
    hid_t row = type < 0 ? H5Dget_type(old) : H5Tcreate(H5T_COMPOUND, H5Tget_size(type));

    if (type >= 0)
        H5Tinsert(row, "backend", 0, type);
    H5Dclose(old);
    H5Ldelete(f, "/trial/0001/time", H5P_DEFAULT);
    hid_t how = H5Pcreate(H5P_DATASET_CREATE), d;
    const hsize_t chunk = 2;
    H5Pset_chunk(how, 1, &chunk);
    d = H5Dcreate2(f, "/trial/0001/time", row, space, H5P_DEFAULT, how, H5P_DEFAULT);
    H5Dclose(d);
    H5Pclose(how);
    H5Tclose(row);
    H5Sclose(space);
    H5Fclose(f);
}

static void times_refused(const char *want, const char *what)
{
    struct dump_times *d = dump_times_read(output);
    says(!d, want, what);
    dump_times_free(d);
}

static void forged(void)
{
    struct experiment x = experiment(2, SAVE_ALL, 0, 2);
    hid_t text = H5Tcopy(H5T_C_S1), fixed = H5Tcopy(H5T_C_S1);
    static const struct {
        const char *path, *name;
        int text;
    } of[] = {{"/", "n_trials", 0},       {"/", "device", 1},  {"/trial/0001", "complete", 0},
              {"/trial/0001", "line", 1}, {"/", "repeats", 1}, {"/trial/0002", "skipped", 0}};

    H5Tset_size(text, H5T_VARIABLE);
    H5Tset_size(fixed, 100);
    for (size_t i = 0; i < COUNT(of); i++) {
        char want[80];
        int e = write_some(&x, STORE_REPLACE, 0, 2);
        forge(of[i].path, of[i].name, of[i].text ? text : H5T_NATIVE_INT64, MANY);
        snprintf(want, sizeof want, "attribute %s is not one %s", of[i].name,
                 of[i].text ? "text" : "whole number");
        if (i < 4)
            times_refused(want, want);
        if (strcmp(of[i].name, "line") == 0)
            says(!abl_case_read(output, "/trial/0001"), want, "abl_case_read says so, too");
        struct store *s = store_open(&x, STORE_RESUME);
        char *device = s ? store_device(s) : NULL; /* which --resume alone does not read */
        ok(!e && (i == 1 ? s && !device : !s), "--resume of many values of %s: %s", of[i].name,
           err_text());
        free(device);
        if (s)
            store_close(s, 0);
        clean();
    }
    ok(!write_some(&x, 0, 0, 2), "a dump");
    forge("/", "schema", fixed, 0);
    struct store *s = store_open(&x, STORE_RESUME);
    ok(s && !store_close(s, 1), "a text of fixed length is one");
    forge_table(fixed, 4);
    times_refused("column backend of the table time is of another type", "a column of fixed text");
    forge_table(H5T_NATIVE_DOUBLE, 4);
    times_refused("column backend of the table time is of another type", "a column of numbers");
    forge_table(text, 4);
    times_refused("the table time has no column kernel", "a column that is missing");
    clean();
    ok(!write_some(&x, 0, 0, 2), "a dump");
    forge_table(-1, (hsize_t)1 << 50);
    times_refused("the table time has 1125899906842624 rows, more than 64", "2^50 rows");
    forge("/", "date", H5T_NATIVE_INT, 0);
    x.repeats = 3;
    s = store_open(&x, 0);
    ok(s && strcmp(store_replaces(s), "unknown date") == 0 && !store_close(s, 0),
       "a date that is no text");
    H5Tclose(text);
    H5Tclose(fixed);
    clean();
}

/* A copy of tests/ablate-1.h5, a dump of the schema before this one. */
static int copy_earlier(const char *to)
{
    const char *source = getenv("srcdir");
    char from[600], some[4096];
    size_t n;

    snprintf(from, sizeof from, "%s/tests/ablate-1.h5", source ? source : ".");
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    while (in && out && (n = fread(some, 1, sizeof some, in)) > 0)
        fwrite(some, 1, n, out);
    if (in)
        fclose(in);
    return out && !fclose(out) && in ? 0 : -1;
}

static void earlier_schema(void)
{
    static const char words[] = "linear rows=2 dim_in=3 dim_out=2 checks=parity";
    struct experiment x;
    struct timings t = {.n = 0};
    double W[6] = {0};

    if (plan_words(words, &x, stdout) || copy_earlier(output)) {
        ok(0, "a dump of ablate-1 can be copied");
        return;
    }
    snprintf(x.output, sizeof x.output, "%s", output);
    abl_case *c = abl_case_read(output, "/trial/0001");
    ok(c && strcmp(abl_text(c), x.trial[0].text) == 0 && !abl_get(c, "W", W, 6) && W[5] != 0,
       "a case is read from ablate-1");
    abl_case_free(c);
    struct store *s = store_open(&x, STORE_RESUME);
    ok(s && !store_timings(s, 0, &t) && t.n == 4 && t.timing[3].runs == 5,
       "--resume finds that it is complete, and its times");
    free(t.timing);
    if (s)
        store_close(s, 1);
    ok(!rename(output, part), "as a part");
    says(!store_open(&x, STORE_RESUME), "was begun by an earlier version",
         "it is not gone on with");
    says(!store_open(&x, 0), "that an earlier version wrote, which would be lost",
         "nor thrown away unasked");
    s = store_open(&x, STORE_DISCARD);
    ok(s && !store_close(s, 0), "it is replaced with --force");
    clean();
    plan_free(&x);
}

/* Files that are called nearly like the part, one of them an input, stay as they are. */
static void neighbours(void)
{
    static const char *const ends[] = {"new", "1", "2", "tmp"};
    enum { N = sizeof ends / sizeof *ends };
    struct experiment x = experiment(2, SAVE_ALL, 0, 0);
    struct trial reading[2];
    char name[N][100], text[100];
    int there = 0, e = 0;

    memcpy(reading, trials, sizeof reading);
    for (int i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "%s.%s", part, ends[i]);
        e |= write_text(name[i], name[i]);
    }
    snprintf(reading[0].file, sizeof reading[0].file, "%s", name[0]);
    x.trial = reading;
    ok(!e && !write_some(&x, 0, 0, 1) && !write_some(&x, STORE_RESUME, 1, 2),
       "a run beside files of others, begun and resumed");
    for (int i = 0; i < N; i++)
        there += holds_text(name[i], name[i]);
    ok(there == N && clean_fresh() == N, "which stay, and there is no other");
    clean();

    x.trial = trials;
    for (int i = 1; i < 100; i++) {
        snprintf(text, sizeof text, "%s.%d", part, i);
        e |= write_text(text, text);
    }
    says(e || !store_open(&x, 0), ".part.99 are in the way", "where all names are taken");
    ok(clean_fresh() == 99 && access(part, F_OK) != 0, "it is an error, and no part is left");
}

/* Changes by other programs while the files are written. */
static void changes_by_others(void)
{
    struct experiment x = experiment(1, SAVE_NONE, 0, 0);
    char away[80];

    snprintf(away, sizeof away, "%s.away", output);
    struct store *s = store_open(&x, 0);
    int e = !s || store_write(s, 0, &results[0]) || write_text(output, "mine");
    says(e || store_close(s, 1), "has been made meanwhile", "an output that appears meanwhile");
    ok(holds_text(output, "mine") && complete(part, 1, SAVE_NONE) == 1, "both are there");
    unlink(output);
    ok(!write_some(&x, 1, 0, 1) && there(output), "and --resume ends it");
    clean();
    s = store_open(&x, STORE_WHOLE);
    e = !s || store_write(s, 0, &results[0]) || write_text(output, "mine");
    says(e || store_close(s, 1), "has been made meanwhile", "an output that appears, again");
    ok(holds_text(output, "mine") && !there(part), "where no part is to be left, none is");
    clean();
    s = store_open(&x, 0);
    e = !s || store_write(s, 0, &results[0]) || rename(part, away) || write_text(part, "mine");
    says(e || store_close(s, 1), "has moved or replaced it", "a part that was moved");
    ok(holds_text(part, "mine") && !there(output), "the file in its place is not the output");
    unlink(away);
    clean();
}

/* The work of a child process; its exit status. */
static int in_child(int (*what)(void))
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(what());
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : 255;
}

static int second_writer(void)
{
    struct experiment x = experiment(4, SAVE_ALL, 0, 0);
    int refused = 0;
    for (int resume = 0; resume < 2; resume++)
        refused += !store_open(&x, resume) &&
                   strstr(err_text(), ".part: another program has it open") != NULL;
    return refused;
}

static void two_writers(void)
{
    struct experiment x = experiment(4, SAVE_ALL, 0, 0);
    struct store *s = store_open(&x, 0);
    int e = !s || store_write(s, 0, &results[0]);
    ok(!e && in_child(second_writer) == 2, "a second writer is refused");
    e = e || store_write(s, 1, &results[1]);
    ok(s && !store_close(s, 0) && !e && complete(part, 4, SAVE_ALL) == 2, "and the first goes on");
    clean();
}

/* One of a pair of processes: wait for the start, then write a plan of that name. */
static int one_of_pair(const char *name, int start)
{
    static const char *const clear[] = {"another program has it open", "holds another plan"};
    struct experiment x = experiment(4, SAVE_ALL, 0, 0);
    char byte;

    snprintf(x.name, sizeof x.name, "%s", name);
    if (read(start, &byte, 1) < 0)
        return 3;
    if (!write_some(&x, 0, 0, 4))
        return 0;
    for (size_t i = 0; i < COUNT(clear); i++)
        if (strstr(err_text(), clear[i]))
            return 1;
    printf("# %s: %s\n", name, err_text());
    fflush(stdout);
    return 2;
}

/* Two plans with one output: 0 where the file is that of one plan, and the other was refused. */
static int pair(void)
{
    static const char *const names[] = {"one", "other"};
    int start[2], status[2] = {-1, -1};
    pid_t child[2];

    if (pipe(start))
        return -1;
    fflush(stdout);
    for (int k = 0; k < 2; k++)
        if ((child[k] = fork()) == 0) {
            close(start[1]);
            _exit(one_of_pair(names[k], start[0]));
        }
    close(start[0]);
    close(start[1]); /* both read its end */
    for (int k = 0; k < 2; k++)
        if (waitpid(child[k], &status[k], 0) != child[k])
            return -1;
    int winner = status[0] != 0;
    hid_t f = H5Fopen(output, H5F_ACC_RDONLY, H5P_DEFAULT);
    int own = f >= 0 && is_text(f, "name", names[winner]);
    if (f >= 0)
        H5Fclose(f);
    return own && complete(output, 4, SAVE_ALL) == 4 && WEXITSTATUS(status[winner]) == 0 &&
                   WEXITSTATUS(status[!winner]) == 1
               ? 0
               : -1;
}

static void pairs(void)
{
    enum { PAIRS = 20 };
    struct experiment x = experiment(4, SAVE_ALL, 0, 0);
    int bad = 0;

    for (int r = 0; r < PAIRS; r++) {
        clean();
        if (r % 2)
            bad += write_some(&x, 0, 0, 0); /* a part that both would discard */
        bad += pair() != 0;
    }
    if (!ok(!bad, "of %d pairs started together one writes its file, the other is refused", PAIRS))
        printf("# %d went wrong\n", bad);
    clean();
}

/* ---- a full disk ---- */

/* Files can no longer be written beyond `size`, as on a full disk. */
static int full_at(off_t size)
{
    struct rlimit limit = {size, size};
    signal(SIGXFSZ, SIG_IGN);
    return setrlimit(RLIMIT_FSIZE, &limit);
}

static int full_while_writing(void)
{
    struct experiment x = experiment(6, SAVE_ALL, 0, 0);
    struct stat at;
    struct store *s = store_open(&x, 0);
    int good = s && !store_write(s, 0, &results[0]) && !store_write(s, 1, &results[1]) &&
               !stat(part, &at) && !full_at(at.st_size + (3 << 20));
    good = good && store_write(s, 5, &results[5]) && strstr(err_text(), ".h5.part: needs ") &&
           strstr(err_text(), " MiB more: File too large");
    /* A smaller trial is still written. */
    good = good && !store_write(s, 2, &results[2]);
    return !(good && !store_close(s, 0));
}

/* There is space for the part, but for no trial. */
static int full_at_first_trial(void)
{
    struct experiment x = experiment(6, SAVE_ALL, 0, 0);
    struct stat at;
    struct store *s = store_open(&x, 0);
    int good = s && !stat(part, &at) && !full_at(at.st_size + 1000);
    good = good && store_write(s, 0, &results[0]) && strstr(err_text(), ".h5.part: needs ");
    return !(good && !store_close(s, 0));
}

static int full_from_the_start(void)
{
    struct experiment x = experiment(6, SAVE_ALL, 0, 0);
    return full_at(1000) || store_open(&x, 0) || !strstr(err_text(), ".h5.part: needs ");
}

static void full_disk(void)
{
    struct experiment x = experiment(6, SAVE_ALL, 0, 0);
    ok(in_child(full_while_writing) == 0, "a full disk: a refusal, then closed");
    ok(complete(part, 6, SAVE_ALL) == 3, "the finished trials are there");
    ok(!write_some(&x, 1, 0, 6) && complete(output, 6, SAVE_ALL) == 6, "with space again, resumed");
    clean();
    ok(in_child(full_at_first_trial) == 0 && !there(part), "full at the first trial: no part");
    ok(in_child(full_from_the_start) == 0 && !there(part), "full from the start: nothing is left");
}

/* ---- kill -9 ---- */

enum { KILL_TRIALS = 3 };

static struct experiment killed;
static int resume_killed;

static int all_of_it(void)
{
    return write_some(&killed, resume_killed, 0, killed.n) != 0;
}

/* The part after a kill: every complete trial reads back, and a new run can
 * go on to the end.  How many were complete, or -1. */
static int survives(int n)
{
    long left = writes_left;
    writes_left = -1;
    int found = complete(part, n, SAVE_ALL), done_before = there(output);
    if (found == -2 && !has_contents(part))
        found = done_before ? n : 0;
    if (found < 0)
        printf("# the part does not read back\n");
    resume_killed = 1;
    if (found >= 0 && (in_child(all_of_it) || complete(output, n, SAVE_ALL) != n)) {
        printf("# cannot be resumed\n");
        all_of_it();
        printf("# %s\n", err_text());
        found = -1;
    }
    resume_killed = 0;
    writes_left = left;
    return found;
}

/* Killed at its first write, its second, and so on to its last. */
static void kill_at_each(int cut)
{
    int finished = 0, found[KILL_TRIALS + 1] = {0}, bad = 0, left = 0, k;

    killed = experiment(KILL_TRIALS, SAVE_ALL, 0, 0);
    for (k = 0; COUNTED && !finished && bad < 3; k++) {
        writes_left = k;
        torn = cut;
        clean();
        finished = in_child(all_of_it) == 0;
        int n = finished ? KILL_TRIALS : survives(KILL_TRIALS);
        if (n < 0)
            printf("# write %d\n", k);
        bad += n < 0;
        if (n >= 0)
            found[n]++;
        left += clean_fresh();
    }
    /* HDF5 writes once when it opens the new part, which has its first name then. */
    if (left > 1 && has_unnamed()) {
        printf("# %d files beside the part were left\n", left);
        bad++;
    }
    writes_left = -1;
    clean();
    if (!COUNTED || k < 5)
        skip("writes cannot be counted here", "killed at every write");
    else if (ok(!bad && finished && found[0] && found[1], "killed at every write%s",
                cut ? ", torn at a page" : ""))
        printf("# %d writes; 0, 1, 2, 3 trials were complete %d, %d, %d, %d times\n", k, found[0],
               found[1], found[2], found[3]);
}

static unsigned long long random_number(void)
{
    static uint64_t i;
    return (unsigned long long)(1e9 * draw_uniform(2024, i++));
}

static void kill_at_random(int rounds)
{
    int bad = 0, max = 0, during = 0;

    killed = experiment(12, SAVE_ALL, 1, 0);
    for (int r = 0; r < rounds; r++) {
        int status;
        if (r % 3 == 0)
            clean();
        resume_killed = r % 3 != 0; /* now and then with the part of the last one */
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            _exit(all_of_it());
        struct timespec wait = {0, (long)(random_number() % 40000000)};
        nanosleep(&wait, NULL);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        during += WIFSIGNALED(status);
        int n = complete(there(output) ? output : part, 12, SAVE_ALL);
        bad += n == -1 || (n == -2 && has_contents(part));
        max = n > max ? n : max;
        if (there(output))
            clean();
    }
    resume_killed = 1;
    bad += in_child(all_of_it) != 0 || complete(output, 12, SAVE_ALL) != 12;
    ok(!bad && during > 0, "killed at random moments, %d times", during);
    printf("# %d left a file beside the part\n", clean_fresh());
    printf("# up to %d of 12 trials were complete\n", max);
    clean();
}

int main(void)
{
    static const char *const small[] = {
        "steps=5 batch=2 heads=2 n_state=4 dim=3 state=full proj=full z_mod=row",
        "steps=5 batch=2 heads=2 n_state=4 dim=3 state=lowrank rank=3",
        "steps=4 batch=2 heads=1 n_state=6 block_size=3 dim=3 state=blockdiag",
        "steps=3 batch=3 heads=1 n_state=5 dim=3 state=diagonal proj=tied_kvq",
        "steps=20 batch=8 heads=2 n_state=16 dim=20 state=full nonlin=rmsnorm",
    };

    snprintf(output, sizeof output, "store-%ld.h5", (long)getpid());
    snprintf(part, sizeof part, "%s.part", output);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    for (int i = 0; i < TRIALS; i++)
        if (i == 5)
            trial(i, "linear", "rows=1100 dim_in=64 dim_out=130", F32);
        else
            trial(i, "e74", small[i % 6 % 5], i % 2 ? BF16 : F32);
    for (int i = 0; i < TRIALS; i++)
        result(&results[i], &trials[i], 2);
    whole();
    less();
    by_sample();
    equal_runs();
    resuming();
    discarding();
    damaged();
    other_keys();
    inputs();
    keeping();
    replacing();
    forged();
    earlier_schema();
    neighbours();
    changes_by_others();
    two_writers();
    pairs();
    full_disk();
    kill_at_each(0);
    kill_at_each(1);
    kill_at_random(30);
    for (int i = 0; i < TRIALS; i++) {
        tensors_free(results[i].inputs);
        for (int k = 0; k < results[i].n_ran; k++)
            tensors_free(results[i].ran[k].t);
        verdicts_free(&results[i].verdicts);
    }
    return done();
}
