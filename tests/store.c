/* The HDF5 file: all of it reads back, or what less of it is to be written; a trial that was judged by
 * a sample; equal runs. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>
#include <hdf5_hl.h>

#include "common/base/h5.h"
#include "tests/dumps.h"

/* ---- a whole file, and less ---- */

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
    int good = h5_table_rows(table, 1000) == n + s->n['N' - 'A'] &&
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

/* ---- two runs ---- */

/* They differ in the date, at max. */
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

int main(void)
{
    trials_new();
    whole();
    less();
    by_sample();
    equal_runs();
    trials_free();
    return done();
}
