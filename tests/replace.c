/* What has the output's name already, whole or damaged: which of it is replaced, kept by another name,
 * or left; so, too, a damaged part. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hdf5.h>

#include "common/base/h5.h"
#include "tests/dumps.h"

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

int main(void)
{
    trials_new();
    damaged();
    keeping();
    replacing();
    trials_free();
    return done();
}
