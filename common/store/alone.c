/* A trial in a file of its own (alone.h). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/h5.h"
#include "common/store/alone.h"
#include "common/store/disk.h"
#include "common/store/header.h"
#include "common/store/links.h"
#include "common/store/write_trial.h"

static const char schema[] = "ablate-2, one trial";

/* ---- written ---- */

/* Is what has that name empty, or HDF5, and not in use? */
static int may_replace(int fd, const char *file)
{
    char magic[4] = "";
    struct stat st;

    if (fstat(fd, &st))
        return err_set("%s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set("is no regular file");
    if (st.st_size && (pread(fd, magic, sizeof magic, 0) < (ssize_t)sizeof magic ||
                       memcmp(magic, "\211HDF", sizeof magic) != 0))
        return err_set("was not written by this program: move it away");
    return disk_in_use(fd) ? disk_taken(file) : 0;
}

static int make_way(const char *file)
{
    const int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return errno == ENOENT ? 0 : err_set("cannot be replaced: %s", strerror(errno));
    int e = may_replace(fd, file);
    if (!e && unlink(file))
        e = err_set("cannot be replaced: %s", strerror(errno));
    close(fd);
    return e;
}

/* All but the result. */
static int fill(hid_t f, const struct experiment *x, int i)
{
    const struct trial *t = &x->trial[i];
    char contents[MAX_CONTENTS] = "";
    hid_t root = H5Gopen2(f, "/", H5P_DEFAULT), trials = -1;
    int e = root < 0 ? h5_cannot("open /")
                     : h5_put_text(root, "schema", schema) ||
                           h5_put_text(root, "version", PACKAGE_VERSION) ||
                           header_put_plan(root, x) || h5_put_int(root, "trial", i + 1);

    e = e || (*t->file && header_contents(t, contents)) ||
        (trials = h5_group_new(f, "trial", 0)) < 0 || dump_trial_new(trials, t, contents, i);
    h5_drop(trials);
    h5_drop(root);
    return e ? -1 : 0;
}

/* As store.c does: HDF5 cannot close a file that it finds no space for. */
static int write_into(hid_t f, int fd, const struct experiment *x, int i, const struct result *r)
{
    const int64_t bytes = dump_bytes(x, r);
    hid_t trial = -1;
    int e = bytes < 0 || disk_reserve(f, fd, bytes + DUMP_SPARE) || fill(f, x, i) ||
            (trial = header_trial(f, i)) < 0 ||
            (dump_write(trial, x, r) && err_at("trial %d", i + 1));

    h5_drop(trial);
    if (e) {
        disk_trim(f, fd); /* keeping the message that is there */
        return -1;
    }
    return disk_trim(f, fd);
}

static int write_alone(const char *file, const struct experiment *x, int i, const struct result *r)
{
    if (x->compress && H5Zfilter_avail(H5Z_FILTER_DEFLATE) <= 0)
        return err_set("this HDF5 library cannot compress; set compress = 0");
    if (make_way(file))
        return -1;
    hid_t how = disk_access(), f = how < 0 ? -1 : H5Fcreate(file, H5F_ACC_EXCL, H5P_DEFAULT, how);
    int e = f < 0 ? h5_cannot("be written") : 0, fd = e ? -1 : disk_own(f, file);

    h5_drop(how);
    e = e || fd < 0 || write_into(f, fd, x, i, r);
    if (f >= 0 && H5Fclose(f) < 0 && !e)
        e = h5_cannot("close");
    if (e && fd >= 0 && disk_is_named(fd, file))
        unlink(file);
    if (fd >= 0)
        close(fd);
    return e ? -1 : 0;
}

int store_write_alone(const char *file, const struct experiment *x, int i, const struct result *r)
{
    int e;
    QUIETLY(e = write_alone(file, x, i, r))
    return e ? err_at("%s", file) : 0;
}

/* ---- read ---- */

static int same_root(hid_t f, const struct experiment *x, int i)
{
    hid_t root = H5Gopen2(f, "/", H5P_DEFAULT);
    char there[64];
    int64_t trial;
    int e;

    if (root < 0 || !h5_same_text(root, "schema", schema, there, sizeof there))
        e = err_set("holds no trial of this program alone");
    else if (!h5_same_text(root, "version", PACKAGE_VERSION, there, sizeof there))
        e = err_set("was written by version '%s', not %s", there, PACKAGE_VERSION);
    else if (header_same_plan(root, x) || h5_get_int(root, "trial", &trial))
        e = -1;
    else
        e = trial != i + 1 ? err_set("holds trial %" PRId64 ", not %d", trial, i + 1) : 0;
    h5_drop(root);
    return e;
}

/* Did it read what it should, and is it whole? */
static int is_whole(hid_t trial, const struct trial *t, hid_t there)
{
    char now[MAX_CONTENTS], then[MAX_CONTENTS];

    if (*t->file && (h5_same_text(trial, "contents", "", now, sizeof now) ||
                     !h5_same_text(there, "contents", now, then, sizeof then)))
        return err_set("read another %s: %s, not %s", t->file, *now ? now : "unknown",
                       *then ? then : "unknown");
    const int complete = header_complete(trial);
    return complete < 0 ? -1 : complete ? 0 : err_set("is not complete");
}

hid_t alone_open(const char *file, const struct experiment *x, int i, hid_t there)
{
    char path[32];
    hid_t f = header_open(file), trial = -1;
    int e = f < 0 || same_root(f, x, i) || (trial = header_trial(f, i)) < 0 ||
            header_same_trial(trial, &x->trial[i], i) ||
            (is_whole(trial, &x->trial[i], there) && err_at("trial %d", i + 1));

    snprintf(path, sizeof path, "/trial/%04d", i + 1);
    e = e || links_check(f, path);
    h5_drop(f); /* an open group keeps the file open */
    if (!e)
        return trial;
    h5_drop(trial);
    return err_at("%s", file);
}
