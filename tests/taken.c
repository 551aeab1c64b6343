/* Trials in files of their own, taken into the file of the experiment: it holds what it would if they had been written
 * into it; no other file is taken; a kill or a full disk costs no finished trial. */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/h5.h"
#include "common/run/trial.h"
#include "common/store/alone.h"
#include "common/store/write_trial.h"
#include "tests/counted.h"
#include "tests/dumps.h"

static char whole[80], alone[96];

/* ---- the same content ---- */

/* Two files, and how many of each kind were compared. */
struct two {
    hid_t a, b;
    int attributes, datasets, scales, filtered, differ;
};

static int differ(struct two *t, const char *name, const char *what)
{
    if (t->differ++ < 10)
        printf("# %s: %s\n", name, what);
    return 0;
}

/* Values of one type in memory, references by what they refer to. */
static int equal_value(const struct two *t, hid_t type, const char *a, const char *b)
{
    const H5T_class_t class = H5Tget_class(type);
    int same = 1;

    if (class == H5T_STRING && H5Tis_variable_str(type) > 0) {
        const char *x = *(char *const *)a, *y = *(char *const *)b;
        return x && y ? strcmp(x, y) == 0 : x == y;
    }
    if (class == H5T_REFERENCE) {
        char to[2][200] = {"a", "b"};
        return H5Rget_name(t->a, H5R_OBJECT, a, to[0], sizeof to[0]) > 0 &&
               H5Rget_name(t->b, H5R_OBJECT, b, to[1], sizeof to[1]) > 0 &&
               strcmp(to[0], to[1]) == 0;
    }
    if (class == H5T_VLEN) {
        const hvl_t *x = (const hvl_t *)a, *y = (const hvl_t *)b;
        hid_t of = H5Tget_super(type);
        same = x->len == y->len;
        for (size_t i = 0; same && i < x->len; i++)
            same = equal_value(t, of, (char *)x->p + i * H5Tget_size(of),
                               (char *)y->p + i * H5Tget_size(of));
        H5Tclose(of);
        return same;
    }
    for (int i = 0; class == H5T_COMPOUND && same && i < H5Tget_nmembers(type); i++) {
        hid_t of = H5Tget_member_type(type, i);
        const size_t at = H5Tget_member_offset(type, i);
        same = equal_value(t, of, a + at, b + at);
        H5Tclose(of);
    }
    return class == H5T_COMPOUND ? same : memcmp(a, b, H5Tget_size(type)) == 0;
}

static int same_extent(hid_t a, hid_t b)
{
    return H5Sextent_equal(a, b) > 0;
}

/* All values of a pair, datasets or attributes. */
static int same_values(const struct two *t, const hid_t of[2], int is_attribute)
{
    hid_t type[2], space[2];
    char *value[2] = {NULL, NULL};

    for (int k = 0; k < 2; k++) {
        type[k] = is_attribute ? H5Aget_type(of[k]) : H5Dget_type(of[k]);
        space[k] = is_attribute ? H5Aget_space(of[k]) : H5Dget_space(of[k]);
    }
    int same = H5Tequal(type[0], type[1]) > 0 && H5Tcommitted(type[1]) == 0 &&
               same_extent(space[0], space[1]);
    hid_t mem = H5Tget_native_type(type[0], H5T_DIR_DEFAULT);
    const size_t n = (size_t)H5Sget_simple_extent_npoints(space[0]), size = H5Tget_size(mem);
    for (int k = 0; same && k < 2; k++) {
        value[k] = calloc(n + 1, size);
        same = (is_attribute ? H5Aread(of[k], mem, value[k])
                             : H5Dread(of[k], mem, H5S_ALL, H5S_ALL, H5P_DEFAULT, value[k])) >= 0;
    }
    for (size_t i = 0; same && i < n; i++)
        same = equal_value(t, mem, value[0] + i * size, value[1] + i * size);
    for (int k = 0; k < 2; k++) {
        if (value[k])
            H5Dvlen_reclaim(mem, space[k], H5P_DEFAULT, value[k]);
        free(value[k]);
        H5Sclose(space[k]);
        H5Tclose(type[k]);
    }
    H5Tclose(mem);
    return same;
}

/* Of groups, in the order in which they were made; datasets do not keep that. */
static void same_attributes(struct two *t, const char *name, const hid_t of[2])
{
    const int group = H5Iget_type(of[0]) == H5I_GROUP, n = H5Aget_num_attrs(of[0]);
    const H5_index_t by = group ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;

    if (n != H5Aget_num_attrs(of[1]))
        differ(t, name, "another number of attributes");
    for (int i = 0; i < n; i++) {
        char text[2][100] = {"", "-"};
        hid_t a[2];
        for (int k = 0; k < 2; k++) {
            a[k] = H5Aopen_by_idx(of[k], ".", by, H5_ITER_INC, i, H5P_DEFAULT, H5P_DEFAULT);
            H5Aget_name(a[k], sizeof text[k], text[k]);
        }
        if (strcmp(text[0], text[1]) != 0 || !same_values(t, a, 1))
            differ(t, name, text[0]);
        t->attributes++;
        for (int k = 0; k < 2; k++)
            H5Aclose(a[k]);
    }
}

/* The scale of an axis of a dataset of the first file, and the dataset of the other. */
struct on_axis {
    struct two *t;
    hid_t b;
};

static herr_t same_scale(hid_t set, unsigned i, hid_t scale, void *data)
{
    const struct on_axis *x = data;
    char name[200] = "", note[2][100] = {"", "-"};

    (void)set;
    H5Iget_name(scale, name, sizeof name);
    hid_t other = H5Dopen2(x->t->b, name, H5P_DEFAULT);
    H5DSget_scale_name(scale, note[0], sizeof note[0]);
    H5DSget_scale_name(other, note[1], sizeof note[1]);
    if (H5DSis_scale(other) <= 0 || H5DSis_attached(x->b, other, i) <= 0 ||
        strcmp(note[0], note[1]) != 0)
        differ(x->t, name, "is not attached");
    x->t->scales++;
    H5Dclose(other);
    return 0;
}

static void same_dataset(struct two *t, const char *name, const hid_t of[2])
{
    hid_t how[2] = {H5Dget_create_plist(of[0]), H5Dget_create_plist(of[1])},
          space = H5Dget_space(of[0]);
    const int rank = H5Sget_simple_extent_ndims(space);
    struct on_axis axis = {t, of[1]};

    if (H5Pequal(how[0], how[1]) <= 0 || H5Dget_storage_size(of[0]) != H5Dget_storage_size(of[1]))
        differ(t, name, "stored in another way");
    t->filtered += H5Pget_nfilters(how[0]) > 0;
    if (!same_values(t, of, 0))
        differ(t, name, "other values, or another type or extent");
    for (int i = 0; i < rank; i++) {
        char label[2][100] = {"", ""};
        if (H5DSget_num_scales(of[0], i) != H5DSget_num_scales(of[1], i))
            differ(t, name, "another number of scales");
        for (int k = 0; k < 2; k++)
            H5DSget_label(of[k], i, label[k], sizeof label[k]);
        if (strcmp(label[0], label[1]) != 0)
            differ(t, name, "another label");
        H5DSiterate_scales(of[0], i, NULL, same_scale, &axis);
    }
    t->datasets++;
    H5Sclose(space);
    H5Pclose(how[0]);
    H5Pclose(how[1]);
}

/* H5Pequal() says of the roots of equal files that they differ. */
static int same_how(hid_t a, hid_t b)
{
    const hid_t how[2] = {H5Gget_create_plist(a), H5Gget_create_plist(b)};
    unsigned x[2][8];
    hbool_t times[2];

    memset(x, 0, sizeof x);
    for (int k = 0; k < 2; k++) {
        H5Pget_link_creation_order(how[k], &x[k][0]);
        H5Pget_link_phase_change(how[k], &x[k][1], &x[k][2]);
        H5Pget_est_link_info(how[k], &x[k][3], &x[k][4]);
        H5Pget_attr_creation_order(how[k], &x[k][5]);
        H5Pget_attr_phase_change(how[k], &x[k][6], &x[k][7]);
        H5Pget_obj_track_times(how[k], &times[k]);
        H5Pclose(how[k]);
    }
    return memcmp(x[0], x[1], sizeof x[0]) == 0 && times[0] == times[1];
}

/* Names, in the order in which they were linked. */
static void same_members(struct two *t, const char *name, const hid_t of[2])
{
    H5G_info_t info[2];

    if (!same_how(of[0], of[1]))
        differ(t, name, "made in another way");
    H5Gget_info(of[0], &info[0]);
    H5Gget_info(of[1], &info[1]);
    if (info[0].nlinks != info[1].nlinks)
        differ(t, name, "another number of members");
    for (hsize_t i = 0; i < info[0].nlinks; i++) {
        char text[2][100] = {"", "-"};
        for (int k = 0; k < 2; k++)
            H5Lget_name_by_idx(of[k], ".", H5_INDEX_CRT_ORDER, H5_ITER_INC, i, text[k],
                               sizeof text[k], H5P_DEFAULT);
        if (strcmp(text[0], text[1]) != 0)
            differ(t, name, text[0]);
    }
}

static herr_t same_object(hid_t a, const char *name, const H5O_info_t *info, void *data)
{
    struct two *t = data;
    const hid_t of[2] = {H5Oopen(a, name, H5P_DEFAULT), H5Oopen(t->b, name, H5P_DEFAULT)};
    H5O_info_t other;

    if (of[1] < 0 || H5Iget_type(of[0]) != H5Iget_type(of[1])) {
        H5Oclose(of[0]);
        return differ(t, name, "is not there");
    }
    H5Oget_info(of[1], &other);
    if (info->rc != other.rc || info->ctime != other.ctime ||
        info->hdr.version != other.hdr.version)
        differ(t, name, "another head");
    if (strcmp(name, ".") != 0) /* the root has the date */
        same_attributes(t, name, of);
    if (H5Iget_type(of[0]) == H5I_GROUP)
        same_members(t, name, of);
    else
        same_dataset(t, name, of);
    H5Oclose(of[0]);
    H5Oclose(of[1]);
    return 0;
}

static int same_files(const char *one, const char *other, struct two *t)
{
    *t = (struct two){H5Fopen(one, H5F_ACC_RDONLY, H5P_DEFAULT),
                      H5Fopen(other, H5F_ACC_RDONLY, H5P_DEFAULT),
                      0,
                      0,
                      0,
                      0,
                      0};
    if (t->a < 0 || t->b < 0 || H5Ovisit(t->a, H5_INDEX_CRT_ORDER, H5_ITER_INC, same_object, t) < 0)
        differ(t, one, "cannot be compared");
    if (t->a >= 0)
        H5Fclose(t->a);
    if (t->b >= 0)
        H5Fclose(t->b);
    printf("# %d datasets, %d attributes, %d scales on axes, %d compressed\n", t->datasets,
           t->attributes, t->scales, t->filtered);
    return !t->differ;
}

/* ---- both ways ---- */

/* Written, each alone, taken. */
static int take_all(const struct experiment *x, const struct result *r)
{
    struct store *s = store_open(x, 0);
    int e = !s;

    for (int i = 0; !e && i < x->n; i++)
        e = store_write_alone(alone, x, i, &r[i]) || store_take(s, i, alone) || there(alone);
    return s && store_close(s, !e) ? -1 : e;
}

static int write_all(const struct experiment *x, const struct result *r)
{
    struct store *s = store_open(x, 0);
    int e = !s;

    for (int i = 0; !e && i < x->n; i++)
        e = store_write(s, i, &r[i]);
    return s && store_close(s, !e) ? -1 : e;
}

/* Is there such a dataset? */
static int has(const char *file, const char *path)
{
    hid_t f = H5Fopen(file, H5F_ACC_RDONLY, H5P_DEFAULT), d = H5Dopen2(f, path, H5P_DEFAULT);

    if (d >= 0)
        H5Dclose(d);
    if (f >= 0)
        H5Fclose(f);
    return d >= 0;
}

/* `path` is there, and some are compressed, or none is: or nothing was shown. */
static void both_ways(const struct experiment *x, const struct result *r, const char *path,
                      int filtered, const char *what)
{
    struct two t;
    int e = write_all(x, r) || rename(output, whole) || take_all(x, r);

    if (!ok(!e && same_files(whole, output, &t) && t.datasets && t.attributes > 20 && t.scales &&
                (t.filtered > 0) == filtered && has(output, path),
            "taken as written: %s", what))
        printf("# %s\n", e ? err_text() : "");
    unlink(whole);
    unlink(alone);
    clean();
}

/* C = A B of 100 x 9 and 9 x 70, judged by rows of A and columns of B. */
static int by_sample(struct trial *t, struct result *r)
{
    *t = (struct trial){.call.op = op_find("gemm"), .type = F32, .seed = 5, .sampled = 1};
    *r = (struct result){.trial = t};
    if (cases_one(t->call.op, "M=100 N=70 K=9", &t->call))
        return -1;
    snprintf(t->text, sizeof t->text, "gemm M=100 N=70 K=9 seed=5");
    r->inputs = tensors_new(&t->call);
    tensors_draw(r->inputs, &t->call, t->seed, 1);
    result_no_references(r);
    struct verdict *v = verdict_add(&r->verdicts, "parity", "C", r->ran[YARDSTICK].call.backend,
                                    r->ran[YARDSTICK].call.kernel);
    v->judged = 4096;
    v->elements = 7000;
    v->pass = 1;
    return result_sample(r);
}

static void sampled(void)
{
    static struct trial t;
    static struct result r;
    struct experiment x = experiment(1, SAVE_ALL, 0, 0);

    x.trial = &t;
    ok(!by_sample(&t, &r), "a product judged by a sample");
    both_ways(&x, &r, "/trial/0001/sample/ref64/d/A", 0, "a trial judged by a sample");
    result_free(&r);
}

#define RUN "train mixer=none task=parity batch=4 length=6 updates=4 eval_rows=8 eval_every=2 "

/* Is as much space as a result needs known before it is written? */
static void foreseen(const struct experiment *x, const struct result *r, const char *what)
{
    struct stat st = {.st_size = 0};
    const int e = store_write_alone(alone, x, 0, r) || stat(alone, &st);
    const int64_t bytes = dump_bytes(x, r);

    if (!ok(!e && st.st_size > 0 && st.st_size <= bytes, "the space is foreseen: %s", what))
        printf("# %lld bytes, not %lld\n", (long long)st.st_size, (long long)bytes);
    unlink(alone);
}

/* Its plan is read, and carried out. */
static void planned(const char *words, const char *path, int filtered, const char *what)
{
    static const volatile int go_on = 0;
    static struct result r[8];
    struct experiment x;
    int e = plan_words(words, &x, stdout);

    if (!e) {
        x.contexts = here();
        snprintf(x.output, sizeof x.output, "%s", output);
    }
    for (int i = 0; !e && i < x.n; i++)
        e = trial_run(&x, &x.trial[i], &go_on, no_step, NULL, &r[i]);
    if (!ok(!e, "runs: %s", what)) {
        printf("# %s\n", err_text());
        return;
    }
    both_ways(&x, r, path, filtered, what);
    foreseen(&x, r, what);
    for (int i = 0; i < x.n; i++)
        result_free(&r[i]);
    plan_free(&x);
}

static void equal(void)
{
    struct experiment x = experiment(6, SAVE_ALL, 1, 2);

    both_ways(&x, results, "/trial/0001/time", 1, "tensors, verdicts and times, compressed");
    x = experiment(6, SAVE_OUTPUTS, 0, 0);
    both_ways(&x, results, "/trial/0006/ref64/y", 0, "outputs alone");
    x = experiment(6, SAVE_NONE, 0, 0);
    both_ways(&x, results, "/trial/0002/check", 0, "verdicts alone");
    sampled();
    planned("softmax rows=300 columns=40 save=all", "/trial/0001/check", 1, "checks of softmax");
    planned("e74_cell batch=3 heads=2 n_state=4 save=all accumulate=yes", "/trial/0001/dinit/S0", 1,
            "checks of e74_cell");
    planned("softmax rows=5 columns=40 repeats=2", "/trial/0001/time", 0, "a trial that was timed");
    planned(RUN "width=256 blocks=3 compress=0 save=final", "/trial/0001/final/x.E", 0,
            "training, save = final");
    planned(RUN "width=32 save=none", "/trial/0001/curve/loss", 0, "training, save = none");
}

/* ---- files that are not taken ---- */

/* The file is not taken, for that reason, in one sentence; nothing of it is in the store, and it stays. */
static void refuses(struct store *s, int i, const char *want, const char *what)
{
    struct store_counts c;
    const int was = there(alone);
    const int e = store_take(s, i, alone);
    hid_t g = H5Gopen2(store_file(s), i ? "/trial/0002" : "/trial/0001", H5P_DEFAULT);
    H5G_info_t info = {.nlinks = 99};

    H5Gget_info(g, &info);
    says(e && !strchr(err_text(), '\n') && !store_has(s, i, &c) && !info.nlinks &&
             H5Aexists(g, "given") == 0 && there(alone) == was,
         want, what);
    H5Gclose(g);
}

/* An attribute at that path of the file, changed. */
static int set_int(const char *path, const char *name, int64_t value)
{
    hid_t f = H5Fopen(alone, H5F_ACC_RDWR, H5P_DEFAULT), at = H5Oopen(f, path, H5P_DEFAULT);
    int e = at < 0 || h5_put_int(at, name, value);
    H5Oclose(at);
    return H5Fclose(f) < 0 || e;
}

static int set_text(const char *path, const char *name, const char *value)
{
    hid_t f = H5Fopen(alone, H5F_ACC_RDWR, H5P_DEFAULT), at = H5Oopen(f, path, H5P_DEFAULT);
    int e = at < 0 || h5_put_text(at, name, value);
    H5Oclose(at);
    return H5Fclose(f) < 0 || e;
}

static void other_plans(struct store *s, const struct experiment *x)
{
    struct experiment y = *x;
    struct trial other[2];

    snprintf(y.name, sizeof y.name, "other");
    ok(!store_write_alone(alone, &y, 0, &results[0]), "a file of another experiment");
    refuses(s, 0, ".w1: holds another plan: 'other', not 'store'", "another name");
    y = *x;
    y.save = SAVE_NONE;
    ok(!store_write_alone(alone, &y, 0, &results[0]), "which is made anew");
    refuses(s, 0, ".w1: holds another plan: save = none, not all", "another key");
    y = *x;
    memcpy(other, trials, sizeof other);
    y.trial = other;
    snprintf(other[1].text, sizeof other[1].text, "something else");
    ok(!store_write_alone(alone, &y, 0, &results[0]), "and again");
    refuses(s, 0, ".w1: holds another plan: the lines of its trials are fnv1a64 ", "other lines");
    ok(!store_write_alone(alone, x, 1, &results[1]), "of another trial");
    refuses(s, 0, ".w1: holds trial 2, not 1", "which is named");
    ok(!set_int("/", "trial", 1), "called the first");
    refuses(s, 0, ".w1: cannot open /trial/0001: ", "it is not there");
    ok(!store_write_alone(alone, x, 0, &results[0]) && !set_text("/", "version", "0"),
       "of another version");
    refuses(s, 0, ".w1: was written by version '0', not " PACKAGE_VERSION, "which is named");
    ok(!store_write_alone(alone, x, 0, &results[0]) && !set_text("/trial/0001", "line", "e74"),
       "another line");
    refuses(s, 0, ".w1: holds another plan: trial 1 is 'e74' there", "is shown");
    ok(!store_write_alone(alone, x, 0, &results[0]) &&
           !set_text("/trial/0001", "judged", "sampled"),
       "judged in another way");
    refuses(s, 0, ".w1: holds another plan: trial 1 is judged by a sample there", "is refused");
}

/* At each of some sizes, the last of which lacks a byte. */
static void cut_off(struct store *s, const struct experiment *x)
{
    enum { SIZES = 60 };
    struct store_counts c;
    struct stat st = {.st_size = 0};
    int refused = 0, shown = 0;

    for (int k = 0; k < SIZES; k++) {
        if (store_write_alone(alone, x, 0, &results[0]) || stat(alone, &st) ||
            truncate(alone, (st.st_size - 1) * k / (SIZES - 1)))
            continue;
        const int e = store_take(s, 0, alone);
        const int said = strstr(err_text(), ".w1: ") && !strchr(err_text(), '\n');
        refused += e && said && there(alone) && !store_has(s, 0, &c);
        if (!(e && said) && shown++ < 3)
            printf("# cut off at %lld: %s\n", (long long)st.st_size, err_text());
    }
    ok(refused == SIZES, "cut off at any size");
}

/* What is no such file at all. */
static void others(struct store *s, const struct experiment *x)
{
    unlink(alone);
    refuses(s, 0, ".w1: No such file or directory", "a file that is missing");
    write_text(alone, "this is a text");
    refuses(s, 0, ".w1: is no HDF5 file", "a text");
    says(store_write_alone(alone, x, 0, &results[0]), ".w1: was not written by this program",
         "which is not written over");
    ok(holds_text(alone, "this is a text") && !unlink(alone) && !symlink("nowhere", alone),
       "it stays");
    says(store_write_alone(alone, x, 0, &results[0]), ".w1: cannot be replaced: ", "nor a link");
    ok(!unlink(alone) && !there("nowhere") && !mkfifo(alone, 0600), "which stays, too");
    says(store_write_alone(alone, x, 0, &results[0]), ".w1: is no regular file", "nor a pipe");
    ok(!unlink(alone) && !write_text(alone, "") && !store_write_alone(alone, x, 0, &results[0]),
       "an empty file is as good as none");
    unlink(alone);
    hid_t f = H5Fcreate(alone, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(f);
    refuses(s, 0, ".w1: holds no trial of this program alone", "somebody else's HDF5 file");
    ok(!rename(whole, alone), "a dump of the same plan");
    refuses(s, 0, ".w1: holds no trial of this program alone", "is no such file");
}

/* Its members are to be its own. */
static void links(struct store *s, const struct experiment *x)
{
    int e = store_write_alone(alone, x, 0, &results[0]);
    hid_t f = H5Fopen(alone, H5F_ACC_RDWR, H5P_DEFAULT);

    e = e ||
        H5Lcreate_hard(f, "/trial/0001/in", f, "/trial/0001/also", H5P_DEFAULT, H5P_DEFAULT) < 0;
    ok(H5Fclose(f) >= 0 && !e, "one with a hard link");
    refuses(s, 0, " is an object that has another name, too (a hard link)", "is refused");
    e = store_write_alone(alone, x, 0, &results[0]);
    f = H5Fopen(alone, H5F_ACC_RDWR, H5P_DEFAULT);
    e = e || H5Lcreate_soft("/trial/0001/in", f, "/trial/0001/also", H5P_DEFAULT, H5P_DEFAULT) < 0;
    ok(H5Fclose(f) >= 0 && !e, "one with a soft link");
    refuses(s, 0, ".w1: /trial/0001/also is a soft link", "is refused");
}

/* Being written: not complete, and open with its writer. */
static void unfinished(struct store *s, const struct experiment *x)
{
    ok(!store_write_alone(alone, x, 0, &results[0]) && !set_int("/trial/0001", "complete", 0),
       "one that is not complete");
    refuses(s, 0, ".w1: trial 1: is not complete", "is refused");
    ok(!store_write_alone(alone, x, 0, &results[0]), "one that is complete");
    const int fd = open(alone, O_RDWR);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB)) {
        skip("files cannot be locked here", "one that is open");
    } else {
        refuses(s, 0, "has it open", "not while it is open to be written");
        says(store_write_alone(alone, x, 0, &results[0]), "has it open", "nor is it made anew");
    }
    close(fd);
}

static void refusals(void)
{
    struct experiment x = experiment(2, SAVE_ALL, 0, 2);
    struct two t;
    int e = write_all(&x, results) || rename(output, whole);
    struct store *s = e ? NULL : store_open(&x, 0);

    if (!ok(!e && s, "a dump, and a part for what is taken")) {
        printf("# %s\n", err_text());
        return;
    }
    other_plans(s, &x);
    cut_off(s, &x);
    links(s, &x);
    unfinished(s, &x);
    others(s, &x);
    ok(!store_write_alone(alone, &x, 0, &results[0]) && !store_take(s, 0, alone) && !there(alone),
       "after all that the right one is taken, and gone");
    ok(!store_write_alone(alone, &x, 0, &results[0]), "it comes once more");
    says(store_take(s, 0, alone), ".part: trial 1 is there already", "nothing is taken twice");
    ok(there(alone) && !store_write(s, 1, &results[1]) && !store_close(s, 1),
       "the file stays; another trial is written, the dump is whole");
    ok(!rename(output, whole) && !write_all(&x, results) && same_files(whole, output, &t),
       "and has what it would have");
    unlink(whole);
    unlink(alone);
    clean();
}

/* A trial that reads a file, of which the other process had another. */
static void inputs(void)
{
    struct experiment x = experiment(2, SAVE_ALL, 0, 0);
    struct trial reading[2];
    char input[80];

    memcpy(reading, trials, sizeof reading);
    snprintf(input, sizeof input, "%s.txt", output);
    snprintf(reading[0].file, sizeof reading[0].file, "%s", input);
    x.trial = reading;
    write_text(input, "foobar");
    struct store *s = store_open(&x, 0);
    write_text(input, "foobaz");
    ok(s && !store_write_alone(alone, &x, 0, &results[0]), "a trial of another input");
    refuses(s, 0, ".txt: fnv1a64 ", "is refused");
    says(store_take(s, 0, alone), ", not fnv1a64 85944171f73967e8, 6 bytes", "with both hashes");
    write_text(input, "foobar");
    ok(!store_write_alone(alone, &x, 0, &results[0]) && !store_take(s, 0, alone),
       "the same is not");
    store_close(s, 0);
    unlink(input);
    says(store_write_alone(alone, &x, 0, &results[0]) && !there(alone), ".txt: No such file",
         "without its input it is not written");
    clean();
}

/* ---- a full disk ---- */

/* A file each, beside the part. */
static const char *alone_of(int i)
{
    static char name[sizeof alone];
    snprintf(name, sizeof name, "%s.w%d", part, i + 1);
    return name;
}

static int full_while_taking(void)
{
    struct experiment x = experiment(6, SAVE_ALL, 0, 0);
    struct stat at;
    struct store *s = store_open(&x, STORE_RESUME);
    int good =
        s && !store_take(s, 0, alone_of(0)) && !stat(part, &at) && !full_at(at.st_size + (3 << 20));
    good = good && store_take(s, 5, alone_of(5)) && strstr(err_text(), ".h5.part: taking ") &&
           strstr(err_text(), " needs ") && strstr(err_text(), " MiB more: File too large");
    /* A smaller trial is still taken. */
    good = good && !store_take(s, 1, alone_of(1));
    return !(good && !store_close(s, 0));
}

static int full_while_writing(void)
{
    struct experiment x = experiment(6, SAVE_ALL, 0, 0);
    return full_at(3 << 20) || !store_write_alone(alone_of(6), &x, 5, &results[5]) ||
           !strstr(err_text(), " MiB more: File too large");
}

static int write_files(const struct experiment *x)
{
    int e = 0;
    for (int i = 0; !e && i < x->n; i++)
        e = store_write_alone(alone_of(i), x, i, &results[i]);
    return e;
}

static void remove_files(void)
{
    for (int i = 0; i < TRIALS; i++)
        unlink(alone_of(i));
}

/* What is missing is taken; all of it is there then. */
static int take_rest(const struct experiment *x)
{
    struct store *s = store_open(x, STORE_RESUME);
    struct store_counts c;
    int e = !s;

    for (int i = 0; !e && i < x->n; i++)
        e = !store_has(s, i, &c) && store_take(s, i, alone_of(i));
    return s && store_close(s, !e) ? -1 : e;
}

static void full_disk(void)
{
    struct experiment x = experiment(6, SAVE_ALL, 0, 0);

    ok(!write_files(&x) && !write_some(&x, 0, 0, 0), "files of six trials");
    ok(in_child(full_while_taking) == 0, "a full disk: a refusal, then closed");
    ok(complete(part, 6, SAVE_ALL) == 2 && there(alone_of(5)), "what was taken before is there");
    ok(!take_rest(&x) && complete(output, 6, SAVE_ALL) == 6, "with space again, all are taken");
    ok(in_child(full_while_writing) == 0 && !there(alone_of(6)),
       "full where it is written: no file");
    remove_files();
    clean();
}

/* ---- kill -9 ---- */

enum { KILL_TRIALS = 3 };
static struct experiment killed;

static int all_of_it(void)
{
    return take_rest(&killed) != 0;
}

/* Killed at each write: a complete trial reads back, the file of any other is there. */
static void kill_at_each(int cut)
{
    int finished = 0, found[KILL_TRIALS + 1] = {0}, bad = 0, k;

    killed = experiment(KILL_TRIALS, SAVE_ALL, 1, 0);
    for (k = 0; COUNTED && !finished && bad < 3; k++) {
        clean();
        if (write_files(&killed) || write_some(&killed, 0, 0, 0)) {
            bad++;
            continue;
        }
        writes_left = k;
        torn = cut;
        finished = in_child(all_of_it) == 0;
        writes_left = -1;
        const int n = complete(finished ? output : part, KILL_TRIALS, SAVE_ALL);
        if (n >= 0)
            found[n]++;
        if (n < 0 || (!finished && all_of_it()) ||
            complete(output, KILL_TRIALS, SAVE_ALL) != KILL_TRIALS) {
            printf("# write %d: %d complete; %s\n", k, n, err_text());
            bad++;
        }
    }
    remove_files();
    clean();
    killed_at_every_write(k, !bad && finished, found, cut);
}

int main(void)
{
    trials_new();
    snprintf(whole, sizeof whole, "%s.whole", output);
    snprintf(alone, sizeof alone, "%s.w1", part);
    equal();
    refusals();
    inputs();
    full_disk();
    ok(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) == 0, "nothing is left open");
    kill_at_each(0);
    kill_at_each(1);
    trials_free();
    return done();
}
