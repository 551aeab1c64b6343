/* store.c - the HDF5 file of an experiment, written so that being killed at
 * any moment costs no finished trial.
 *
 * Opening makes, in memory, a file with a group for every trial of the plan and
 * all that is known beforehand, and puts it in its place when it is whole on
 * disk; HDF5 cannot close a file that it finds no space for.  From then on nothing that trials share is changed.  Writing a
 * trial then goes
 *
 *     reserve the space on disk
 *     write all its objects, linked nowhere     flush: nothing refers to them yet
 *     link them into the trial's group          flush: all they refer to is there
 *     set the group's `complete`                flush
 *
 * so that what is on disk is consistent after any number of writes, and an
 * object that could not be finished is gone as soon as it is closed.  But for texts: until a trial is complete, the
 * values of attributes that its run has written may not be there, so they are removed unread (dump_trial_empty()). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hdf5.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/h5.h"
#include "common/store/alone.h"
#include "common/store/copy_trial.h"
#include "common/store/disk.h"
#include "common/store/header.h"
#include "common/store/output.h"
#include "common/store/store.h"
#include "common/store/write_ablation.h"
#include "common/store/write_trial.h"

enum { MIB = 1 << 20, MAX_FRESH = MAX_OUTPUT + 16, FRESH_NAMES = 99 };

struct store {
    const struct experiment *x;
    hid_t file;
    int fd;       /* HDF5's own, once more: to reserve space, cut it off, sync it */
    int finished; /* it has its final name already: there is nothing to write */
    int lost;     /* a trial could not be written */
    int whole;    /* see STORE_WHOLE */
    struct output out;
    const char *name; /* now: the part's, or the finished file's */
};

static int flush(struct store *s)
{
    return H5Fflush(s->file, H5F_SCOPE_LOCAL) < 0 ? h5_cannot("write") : 0;
}

/* ---- a trial ---- */

static int write_result(struct store *s, int i, const struct result *r)
{
    int64_t bytes = dump_bytes(s->x, r);
    if (bytes < 0 || disk_reserve(s->file, s->fd, bytes))
        return -1;
    hid_t trial = header_trial(s->file, i);
    int e = trial < 0 || (dump_write(trial, s->x, r) && err_at("trial %d", i + 1));
    h5_drop(trial);
    if (!e)
        return disk_trim(s->file, s->fd);
    disk_trim(s->file, s->fd); /* keeping the message that is there */
    return -1;
}

static int copy_result(struct store *s, int i, hid_t from, hid_t to, int64_t bytes)
{
    int e = disk_reserve(s->file, s->fd, bytes + DUMP_SPARE) ||
            (trial_copy(from, to) && err_at("trial %d", i + 1));

    if (!e)
        return disk_trim(s->file, s->fd);
    disk_trim(s->file, s->fd); /* keeping the message that is there */
    return -1;
}

/* A file that cannot be used is no loss of the part. */
static int take_result(struct store *s, int i, const char *file)
{
    hid_t to = header_trial(s->file, i);
    if (to < 0)
        return err_at("%s", s->name);
    hid_t from = alone_open(file, s->x, i, to);
    struct stat st;
    int e = from < 0;

    if (!e) {
        e = s->lost = stat(file, &st) ? err_set("%s", strerror(errno))
                                      : copy_result(s, i, from, to, st.st_size);
        if (e)
            err_at("%s: taking %s", s->name, file);
    }
    h5_drop(from);
    h5_drop(to);
    return e ? -1 : 0;
}

/* ---- the file ---- */

/* The ceilings that times are compared with, in bytes, FLOP or evaluations per second, and
 * seconds. */
static int write_ceilings(hid_t file, const struct ceilings *c)
{
    if (!c)
        return 0;
    hid_t g = h5_group_new(file, "ceilings", 0);
    int e = g < 0 || h5_put_double(g, "memory", c->memory) ||
            h5_put_double(g, "tensor", c->tensor) || h5_put_double(g, "fp32", c->fp32) ||
            h5_put_double(g, "special", c->special) ||
            h5_put_double(g, "flop_time", c->flop_time) ||
            h5_put_double(g, "special_time", c->special_time) ||
            h5_put_double(g, "launch", c->launch) || h5_put_double(g, "clock", c->clock);
    h5_drop(g);
    return e;
}

/* Everything but the trials' contents, into the empty file. */
static int fill(hid_t file, const struct experiment *x)
{
    hid_t root = H5Gopen2(file, "/", H5P_DEFAULT), trials = -1;
    int e =
        root < 0 ? h5_cannot("open /") : header_write(root, x) || write_ceilings(file, x->ceilings);
    char contents[MAX_CONTENTS] = "";

    e = e || (trials = h5_group_new(file, "trial", 0)) < 0;
    for (int i = 0; !e && i < x->n; i++) {
        const struct trial *t = &x->trial[i];
        if (!*t->file)
            *contents = 0;
        else if (!i || strcmp(t->file, t[-1].file) != 0)
            e = header_contents(t, contents);
        e = e || dump_trial_new(trials, t, contents, i);
    }
    h5_drop(trials);
    h5_drop(root);
    return e ? -1 : 0;
}

/* An empty file in memory, under a name that no file on disk can have; -1 after err_set(). */
static hid_t create(void)
{
    hid_t root = H5Pcreate(H5P_FILE_CREATE), how = disk_access(), file = -1;
    const unsigned order = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;

    if (root >= 0 && how >= 0 && H5Pset_link_creation_order(root, order) >= 0 &&
        H5Pset_attr_creation_order(root, order) >= 0 && H5Pset_obj_track_times(root, 0) >= 0 &&
        H5Pset_fapl_core(how, MIB, 0) >= 0)
        file = H5Fcreate("/dev/null/memory", H5F_ACC_TRUNC, root, how);
    if (file < 0)
        h5_cannot("make it in memory");
    h5_drop(root);
    h5_drop(how);
    return file;
}

/* A file in memory, and its bytes there. */
struct image {
    hid_t file;
    const unsigned char *bytes;
    size_t n;
};

static void drop_image(struct image *m)
{
    if (m->file >= 0)
        H5Fclose(m->file);
}

/* The new file of x; to be dropped in any case.  Its bytes are taken from where they are, because
 * H5Fget_file_image() of HDF5 1.10 gives a superblock whose checksum is wrong. */
static int make_image(const struct experiment *x, struct image *m)
{
    unsigned char **bytes;
    ssize_t n;

    *m = (struct image){create(), NULL, 0};
    if (m->file < 0 || fill(m->file, x))
        return -1;
    if (H5Fflush(m->file, H5F_SCOPE_LOCAL) < 0 || (n = H5Fget_file_image(m->file, NULL, 0)) < 0 ||
        H5Fget_vfd_handle(m->file, H5P_DEFAULT, (void **)&bytes) < 0)
        return h5_cannot("make it in memory");
    m->bytes = *bytes;
    m->n = n;
    return 0;
}

static int put_image(int fd, const struct image *m)
{
    if (disk_allocate(fd, 0, (int64_t)m->n))
        return -1;
    for (size_t at = 0; at < m->n;) {
        ssize_t n = pwrite(fd, m->bytes + at, m->n - at, (off_t)at);
        if (n < 0 && errno != EINTR)
            return err_set("cannot be written: %s", strerror(errno));
        at += n > 0 ? n : 0;
    }
    return 0;
}

/* ---- whose it is ---- */

/* The part, locked, made where there is none; -1 after err_set().  Between
 * being opened and being locked it may have become another's, finished. */
static int claim(const char *part)
{
    for (;;) {
        int fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (fd < 0)
            return err_set("cannot be written: %s", strerror(errno));
        if (disk_in_use(fd)) {
            close(fd);
            return disk_taken(part);
        }
        if (disk_is_named(fd, part))
            return fd;
        close(fd);
    }
}

/* Open the part that fd has locked; the lock goes over to HDF5.  -1 after err_set(). */
static hid_t open_part(const char *part, int fd)
{
    hid_t how = disk_access(), file;

    flock(fd, LOCK_UN);
    file = H5Fopen(part, H5F_ACC_RDWR, how);
    if (file < 0) {
        char why[200];
        snprintf(why, sizeof why, "%s", h5_reason());
        if (disk_in_use(fd))
            disk_taken(part);
        else
            err_set("cannot be read: %s", why);
    }
    h5_drop(how);
    return file;
}

/* ---- a new file ---- */

/* May that part be thrown away? */
static int may_discard(hid_t part, const struct experiment *x, int force)
{
    enum same same = header_same(part, x);
    int n = header_finished(part);

    if (same == NOT_OURS)
        return err_set("was not written by this program: move it away");
    if (!n || force)
        return 0;
    if (n < 0) /* damaged: they cannot be counted */
        return err_advise(ADVICE_AGAIN);
    int earlier = same == SAME_PLAN && header_schema(part) != HEADER_SCHEMA;
    err_set("holds %d finished trial%s%s, which would be lost", n, n == 1 ? "" : "s",
            same != SAME_PLAN ? " of another plan"
            : earlier         ? " that an earlier version wrote"
                              : "");
    return err_advise(ADVICE_AGAIN | (same != SAME_PLAN ? ADVICE_ELSEWHERE
                                      : earlier         ? 0
                                                        : ADVICE_RESUME));
}

/* The old part, which *fd has locked, is opened for that, and stays so with
 * its lock until the new one is in its place. */
static int look_into_old(struct store *s, int force, int *fd, hid_t *old)
{
    char magic[4] = "";

    if (pread(*fd, magic, sizeof magic, 0) < (ssize_t)sizeof magic ||
        memcmp(magic, "\211HDF", sizeof magic) != 0)
        return err_set("was not written by this program: move it away");
    *old = open_part(s->name, *fd);
    if (*old < 0) /* damaged, or another's by now */
        return disk_in_use(*fd) ? -1 : force ? 0 : err_advise(ADVICE_AGAIN);
    int its = disk_own(*old, s->name);
    if (its < 0)
        return -1;
    close(*fd);
    *fd = its;
    return may_discard(*old, s->x, force);
}

/* An empty file in the part's folder that has no name, so that nothing of it is left when the
 * process is killed; -1 where the file system has no such files. */
static int open_unnamed(const char *part)
{
#ifdef O_TMPFILE
    char folder[MAX_OUTPUT + 8];
    return open(file_folder(part, folder, sizeof folder), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
#else
    (void)part;
    return -1;
#endif
}

/* Give that file, or a new one if fd is -1, a name beside the part that nothing else has.  Returns
 * its descriptor; -1 with errno: EEXIST where all these names are taken. */
static int give_name(int fd, const char *part, char fresh[MAX_FRESH])
{
    char magic[40];

    snprintf(magic, sizeof magic, "/proc/self/fd/%d", fd);
    for (int i = 1; i <= FRESH_NAMES; i++) {
        snprintf(fresh, MAX_FRESH, "%s.%d", part, i);
        int named = fd < 0 ? open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)
                    : linkat(AT_FDCWD, magic, AT_FDCWD, fresh, AT_SYMLINK_FOLLOW) ? -1
                                                                                  : fd;
        if (named >= 0 || errno != EEXIST)
            return named;
    }
    return -1;
}

/* A file with that image, under a name of its own; -1 after err_set(). */
static int put_fresh(const char *part, const struct image *m, char fresh[MAX_FRESH])
{
    int fd = open_unnamed(part);

    if (fd >= 0) {
        int e = put_image(fd, m);
        if (!e && give_name(fd, part, fresh) >= 0)
            return fd;
        close(fd);
        if (e)
            return -1;
    }
    if ((fd = give_name(-1, part, fresh)) < 0)
        return errno == EEXIST ? err_set("files from %s.1 to %s.%d are in the way, which runs that "
                                         "were killed may have left: remove them",
                                         part, part, FRESH_NAMES)
                               : err_set("cannot be written: %s", strerror(errno));
    if (!put_image(fd, m))
        return fd;
    unlink(fresh);
    close(fd);
    return -1;
}

/* A new part, which is locked before it replaces what has its name; nonzero after err_set(). */
static int new_part(struct store *s)
{
    char fresh[MAX_FRESH];
    struct image m;
    int fd = make_image(s->x, &m) ? -1 : put_fresh(s->name, &m, fresh);

    drop_image(&m);
    if (fd < 0)
        return -1;
    int e = (s->file = open_part(fresh, fd)) < 0 || (s->fd = disk_own(s->file, fresh)) < 0;
    if (!e && rename(fresh, s->name))
        e = err_set("%s", strerror(errno));
    if (e && disk_is_named(fd, fresh))
        unlink(fresh);
    close(fd);
    return e ? -1 : 0;
}

/* The new part takes the place of the one that was locked, empty or old. */
static int begin(struct store *s, int how)
{
    struct stat st = {.st_size = 0};
    hid_t old = -1;
    int fd = claim(s->name);

    if (fd < 0)
        return err_at("%s", s->name);
    int e = fstat(fd, &st) ? err_set("%s", strerror(errno)) : 0;
    if (!e && st.st_size)
        e = look_into_old(s, how & STORE_DISCARD, &fd, &old);
    if (e)
        err_at("%s", s->name);
    e = e || output_may_replace(s->x, how & STORE_REPLACE, &s->out) ||
        (new_part(s) && err_at("%s", s->name));
    if (e && !st.st_size && disk_is_named(fd, s->name))
        unlink(s->name);
    if (old >= 0)
        H5Fclose(old);
    close(fd);
    return e ? -1 : 0;
}

/* ---- going on ---- */

/* A complete trial has its counts. */
static int has(struct store *s, int i, struct store_counts *c)
{
    static const char *const name[] = {"n_checks", "failed", "unjudged", "skipped", "missed"};
    enum { MAX_COUNT = 1000000000 };
    int64_t n[COUNT(name)] = {0};
    hid_t g = header_trial(s->file, i);
    int there = g >= 0 && header_complete(g) > 0;

    for (size_t k = 0; there && k < COUNT(name) - (H5Aexists(g, "missed") <= 0); k++)
        there = !h5_get_int(g, name[k], &n[k]) && n[k] >= 0 && n[k] <= MAX_COUNT;
    h5_drop(g);
    if (there)
        *c = (struct store_counts){(int)n[0], (int)n[1], (int)n[2], (int)n[3], (int)n[4]};
    return there;
}

static int has_all(struct store *s)
{
    struct store_counts ignored;
    for (int i = 0; i < s->x->n; i++)
        if (!has(s, i, &ignored))
            return err_set("trial %d is missing", i + 1);
    return 0;
}

static int empty_unfinished(struct store *s)
{
    struct store_counts ignored;
    for (int i = 0; i < s->x->n; i++) {
        hid_t g = header_trial(s->file, i);
        int complete = g < 0 ? -1 : header_complete(g);
        int e = complete < 0 || (complete && !has(s, i, &ignored)) ||
                (!complete && !s->finished && dump_trial_empty(g));
        h5_drop(g);
        if (e)
            return err_set("trial %d is damaged; it can only be begun again", i + 1);
    }
    return s->finished ? 0 : flush(s) || disk_trim(s->file, s->fd) ? -1 : 0;
}

static int same_experiment(struct store *s)
{
    if (header_same(s->file, s->x) != SAME_PLAN)
        return -1;
    int e = !s->finished && header_schema(s->file) != HEADER_SCHEMA
                ? err_set("was begun by an earlier version")
                : header_same_inputs(s->file, s->x);
    return e ? err_advise(ADVICE_AGAIN) : 0;
}

static int has_contents(const char *name)
{
    struct stat st;
    return stat(name, &st) == 0 && st.st_size > 0;
}

/* Open the part, or the finished file, that is there. */
static int open_old(struct store *s)
{
    if (s->finished) {
        s->file = h5_open(s->name, H5F_ACC_RDONLY);
        return s->file < 0 ? err_set("cannot be read: %s", h5_reason()) : 0;
    }
    int fd = claim(s->name);
    if (fd < 0)
        return -1;
    s->file = open_part(s->name, fd);
    close(fd);
    if (s->file < 0 || (s->fd = disk_own(s->file, s->name)) < 0)
        return -1;
    return 0;
}

static int go_on(struct store *s, int how)
{
    if (!has_contents(s->name)) {
        if (!has_contents(s->out.file))
            return begin(s, how);
        s->finished = 1;
        s->name = s->out.file;
    }
    int e = open_old(s), other = !e && same_experiment(s);
    if (other && how & STORE_ANYWAY && !s->finished && header_finished(s->file) == 0) {
        H5Fclose(s->file);
        close(s->fd);
        s->file = s->fd = -1;
        return begin(s, how);
    }
    if (e || other || empty_unfinished(s))
        return err_at("%s", s->name);
    return s->finished ? 0 : output_may_replace(s->x, how & STORE_REPLACE, &s->out);
}

/* ---- what store.h promises; HDF5 prints nothing meanwhile ---- */

int store_may_write(const struct experiment *x, int how)
{
    struct output o;
    return output_find(x, &o) ||
                   (!(how & STORE_RESUME) && output_may_replace(x, how & STORE_REPLACE, &o))
               ? -1
               : 0;
}

/* Its HDF5 file. */
static int open_file(struct store *s, int how)
{
    int e = -1;
    H5E_BEGIN_TRY
    {
        if (s->x->compress && H5Zfilter_avail(H5Z_FILTER_DEFLATE) <= 0)
            err_set("this HDF5 library cannot compress; set compress = 0");
        else
            e = how & STORE_RESUME ? go_on(s, how) : begin(s, how);
        if (e && s->file >= 0)
            H5Fclose(s->file);
    }
    H5E_END_TRY
    return e;
}

struct store *store_open(const struct experiment *x, int how)
{
    struct store *s = calloc(1, sizeof *s);

    if (!s)
        return err_null("no memory for a store");
    *s = (struct store){
        .x = x, .file = -1, .fd = -1, .whole = how & STORE_WHOLE, .name = s->out.part};
    if (!output_find(x, &s->out) && !open_file(s, how))
        return s;
    if (s->fd >= 0)
        close(s->fd);
    free(s);
    return NULL;
}

int store_has(struct store *s, int i, struct store_counts *c)
{
    int there;
    QUIETLY(there = has(s, i, c))
    return there;
}

int store_write(struct store *s, int i, const struct result *r)
{
    struct store_counts ignored;
    int e;
    H5E_BEGIN_TRY
    {
        if (s->finished || has(s, i, &ignored))
            e = err_set("trial %d is there already", i + 1);
        else
            e = s->lost = write_result(s, i, r);
    }
    H5E_END_TRY
    return e ? err_at("%s", s->name) : 0;
}

int store_take(struct store *s, int i, const char *file)
{
    struct store_counts ignored;
    int e;
    H5E_BEGIN_TRY
    {
        if (s->finished || has(s, i, &ignored)) {
            err_set("trial %d is there already", i + 1);
            e = err_at("%s", s->name);
        } else
            e = take_result(s, i, file);
    }
    H5E_END_TRY
    if (!e)
        unlink(file);
    return e;
}

/* Nothing in a finished file changes: it has them. */
int store_write_ablation(struct store *s, const struct ablation *a)
{
    int e = 0;

    if (s->finished)
        return 0;
    QUIETLY(e = disk_reserve(s->file, s->fd, ablation_bytes(a)) || ablation_write(s->file, a) ||
                flush(s);
            if (disk_trim(s->file, s->fd)) e = -1)
    return e ? err_at("%s", s->name) : 0;
}

hid_t store_file(const struct store *s)
{
    return s->file;
}

/* Give the part its final name, if both are what they were. */
static int become_final(struct store *s)
{
    if (!disk_is_named(s->fd, s->name))
        return err_set(
            "another program has moved or replaced it: what this run wrote is not there");
    return output_replace(&s->out);
}

/* A part that a full disk left without a finished trial is worth nothing. */
static int is_worthless(struct store *s)
{
    struct store_counts ignored;
    int any = s->finished || !s->lost;
    for (int i = 0; !any && i < s->x->n; i++)
        any = has(s, i, &ignored);
    return !any;
}

int store_close(struct store *s, int complete)
{
    int e = 0, worthless;
    H5E_BEGIN_TRY
    {
        worthless = is_worthless(s);
        if (!s->finished)
            e = (complete && has_all(s)) || flush(s) || disk_trim(s->file, s->fd);
        if (H5Fclose(s->file) < 0 && !e)
            e = h5_cannot("close");
    }
    H5E_END_TRY
    if (!e && !s->finished && fsync(s->fd))
        e = err_set("%s", strerror(errno));
    if (!e && complete && !s->finished)
        e = become_final(s);
    if (e)
        err_at("%s", s->name);
    if (!s->finished && (worthless || (s->whole && (e || !complete))) &&
        disk_is_named(s->fd, s->name))
        unlink(s->name);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
    return e ? -1 : 0;
}

void store_abandon(struct store *s)
{
    s->lost = 1;
    store_close(s, 0);
}

int store_timings(struct store *s, int i, struct timings *to)
{
    int e;
    *to = (struct timings){.n = 0};
    H5E_BEGIN_TRY
    {
        hid_t g = header_trial(s->file, i);
        e = g < 0 || dump_timings(g, to);
        h5_drop(g);
    }
    H5E_END_TRY
    return e ? err_at("%s: trial %d", s->name, i + 1) : 0;
}

char *store_device(struct store *s)
{
    char *text;
    QUIETLY(text = h5_get_text(s->file, "device"))
    if (!text)
        err_at("%s", s->name);
    return text;
}

const char *store_name(const struct store *s)
{
    return s->name;
}

const char *store_replaces(const struct store *s)
{
    return s->finished ? "" : s->out.date;
}

const char *store_keeps(const struct store *s)
{
    return s->finished ? "" : s->out.backup;
}
