/* Names the dump and decides whether it may be replaced (output.h). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>

#include "common/base/err.h"
#include "common/base/h5.h"
#include "common/store/header.h"
#include "common/store/output.h"

/* ---- names ---- */

/* The file that `name` leads to, over symbolic links; it need not be there. */
static int follow(const char *name, char file[MAX_OUTPUT])
{
    enum { MAX_LINKS = 40 };
    char to[MAX_OUTPUT];

    snprintf(file, MAX_OUTPUT, "%s", name);
    for (int i = 0; i < MAX_LINKS; i++) {
        ssize_t n = readlink(file, to, sizeof to - 1);
        const char *slash = strrchr(file, '/');
        if (n < 0)
            return 0;
        to[n] = 0;
        int folder = to[0] != '/' && slash ? (int)(slash + 1 - file) : 0;
        if (n + folder >= MAX_OUTPUT - 1)
            return err_set("%s: leads to a name that is too long", name);
        memmove(file + folder, to, n + 1);
    }
    return err_set("%s: %s", name, strerror(ELOOP));
}

/* Look at the file that is there, if any; it must be a regular one. */
static int look(const char *file, struct stat *st, int *there)
{
    *there = lstat(file, st) == 0;
    if (*there && S_ISDIR(st->st_mode))
        return err_set("%s: is a folder; the output must be a file", file);
    if (*there && !S_ISREG(st->st_mode))
        return err_set("%s: is no regular file; the output must be one", file);
    return 0;
}

/* ---- what the experiment reads ---- */

static int is(const struct stat *st, const char *file)
{
    struct stat other;
    return stat(file, &other) == 0 && other.st_dev == st->st_dev && other.st_ino == st->st_ino;
}

static int not_read(const struct experiment *x, const char *file, const struct stat *st)
{
    if (x->file && is(st, x->file)) {
        err_set("%s: is the experiment's own ini", file);
        return err_advise(ADVICE_ELSEWHERE);
    }
    for (int i = 0; i < x->n; i++) {
        const char *input = x->trial[i].file;
        if (*input && (!i || strcmp(input, x->trial[i - 1].file) != 0) && is(st, input)) {
            err_set("%s: is the input of trial %d", file, i + 1);
            return err_advise(ADVICE_ELSEWHERE);
        }
    }
    for (int i = 0; i < x->n_sources; i++)
        if (x->source[i].dev == st->st_dev && x->source[i].ino == st->st_ino)
            return err_set("%s: is a file that the case was read from; write to another", file);
    return 0;
}

int output_find(const struct experiment *x, struct output *o)
{
    const char *names[] = {o->file, o->part};

    *o = (struct output){.there = 0};
    if (!*x->output)
        return err_set("the name of the output is empty");
    if (strcmp(x->output, "-") == 0)
        return err_set("-: a dump cannot be written to standard output; give a file, ./- for one "
                       "of that name");
    if (follow(x->output, o->file))
        return -1;
    snprintf(o->part, sizeof o->part, "%s.part", o->file);
    for (int i = 0; i < 2; i++) {
        struct stat st;
        int there;
        if (look(names[i], &st, &there) || (there && not_read(x, names[i], &st)))
            return -1;
    }
    if (o->file[strlen(o->file) - 1] == '/')
        return err_set("%s: is the name of a folder; the output must be a file", o->file);
    return 0;
}

/* ---- a dump that is there ---- */

/* Made from words, for no name that anyone chose? */
static int is_scratch(hid_t file, const struct experiment *x)
{
    hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
    char there[8];
    int same = x->scratch && h5_same_text(root, "source", "-t", there, sizeof there);
    h5_drop(root);
    return same;
}

static void read_date(hid_t file, char date[16])
{
    enum { DAY = 10 }; /* characters of 2026-01-31, without the time */
    hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
    char *text = h5_get_text(root, "date");
    snprintf(date, 16, "%.*s", text ? DAY : -1, text ? text : "unknown date");
    for (char *c = date; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    free(text);
    h5_drop(root);
}

/* The first name NAME.h5.~1~, ~2~, ... that nothing has: those that mv --backup=numbered gives. */
static int find_backup(struct output *o)
{
    enum { MAX_BACKUPS = 999 };
    struct stat st;

    for (int i = 1; i <= MAX_BACKUPS; i++) {
        snprintf(o->backup, sizeof o->backup, "%s.~%d~", o->file, i);
        if (lstat(o->backup, &st) && errno == ENOENT)
            return 0;
    }
    err_set("%s of %s: holds another plan, and all names up to %s for keeping it are taken",
            o->file, o->date, o->backup);
    return err_advise(ADVICE_REPLACE | ADVICE_ELSEWHERE);
}

static int judge(hid_t file, const struct experiment *x, int force, struct output *o)
{
    read_date(file, o->date);
    switch (header_same(file, x)) {
    case SAME_PLAN: return 0;
    case NOT_OURS:
        err_at("%s", o->file);
        err_more("; it is not replaced");
        return err_advise(ADVICE_MOVE | ADVICE_ELSEWHERE);
    case OTHER_PLAN: break;
    }
    return force || is_scratch(file, x) ? 0 : find_backup(o);
}

int output_may_replace(const struct experiment *x, int force, struct output *o)
{
    struct stat st;
    int e;

    *o->date = *o->backup = 0;
    if (look(o->file, &st, &o->there))
        return -1;
    if (!o->there)
        return 0;
    o->dev = st.st_dev;
    o->ino = st.st_ino;
    if (!st.st_size)
        return 0;
    H5E_BEGIN_TRY
    {
        hid_t file = h5_open(o->file, H5F_ACC_RDONLY);
        if (file >= 0) {
            e = judge(file, x, force, o);
        } else {
            err_set("%s: is no dump (%s); it is not replaced", o->file, h5_reason());
            e = err_advise(ADVICE_MOVE | ADVICE_ELSEWHERE);
        }
        if (file >= 0)
            H5Fclose(file);
    }
    H5E_END_TRY
    return e;
}

/* ---- replacing it ---- */

/* Is the existing file still the same one? */
static int unchanged(const struct output *o)
{
    struct stat st;
    if (lstat(o->file, &st) || (o->there && st.st_dev == o->dev && st.st_ino == o->ino))
        return 0;
    return err_set("another %s has been made meanwhile; it is not replaced", o->file);
}

/* Give the existing file the name of the backup.  An empty file takes that name first, so that
 * the rename replaces nobody's. */
static int keep(const struct output *o)
{
    int fd = open(o->backup, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    if (fd < 0)
        return err_set("%s cannot be kept as %s: %s", o->file, o->backup, strerror(errno));
    close(fd);
    if (!rename(o->file, o->backup))
        return 0;
    err_set("%s cannot be kept as %s: %s", o->file, o->backup, strerror(errno));
    unlink(o->backup);
    return -1;
}

int output_replace(const struct output *o)
{
    if (unchanged(o) || (*o->backup && keep(o)))
        return -1;
    if (!rename(o->part, o->file))
        return 0;
    err_set("cannot become %s: %s", o->file, strerror(errno));
    if (*o->backup)
        rename(o->backup, o->file);
    return -1;
}
