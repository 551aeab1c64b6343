/* Dumps that this version did not write: attributes and tables of other types and sizes, and a dump of
 * the schema before. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include <hdf5.h>

#include "common/ablate.h"
#include "tests/dumps.h"

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
    times_refused("time: column backend is of another type", "a column of fixed text");
    forge_table(H5T_NATIVE_DOUBLE, 4);
    times_refused("time: column backend is of another type", "a column of numbers");
    forge_table(text, 4);
    times_refused("time: there is no column kernel", "a column that is missing");
    clean();
    ok(!write_some(&x, 0, 0, 2), "a dump");
    forge_table(-1, (hsize_t)1 << 50);
    times_refused("time: 1125899906842624 rows, more than 64", "2^50 rows");
    forge("/", "date", H5T_NATIVE_INT, 0);
    x.repeats = 3;
    s = store_open(&x, 0);
    ok(s && strcmp(store_replaces(s), "unknown date") == 0 && !store_close(s, 0),
       "a date that is no text");
    H5Tclose(text);
    H5Tclose(fixed);
    clean();
}

/* ---- the schema before ---- */

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

int main(void)
{
    trials_new();
    forged();
    earlier_schema();
    trials_free();
    return done();
}
