/* A file of values (record.h). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/fnv.h"
#include "common/base/record.h"

static const char magic[8] = {'A', 'B', 'L', 'R', 'E', 'C', 'D', '\n'};
static const int64_t order = 0x0102030405060708;
enum {
    HEAD = sizeof magic + sizeof order,
    MOST_REASON = 300,
    SENTENCE = MOST_REASON + RECORD_NAME + 32
};

struct record {
    char name[RECORD_NAME]; /* without .new */
    FILE *f;
    int reads, failed;
    uint64_t hash;
    int64_t left; /* bytes of values that are not read */
    char why[MOST_REASON];
};

/* "FILE.new" */
static const char *with(const struct record *r, const char *end, char text[RECORD_NAME + 8])
{
    snprintf(text, RECORD_NAME + 8, "%s%s", r->name, end);
    return text;
}

static struct record *new_record(const char *file, int reads)
{
    struct record *r = calloc(1, sizeof *r);

    if (!r)
        return err_null("no memory for a record");
    if (strlen(file) >= sizeof r->name) {
        free(r);
        return err_null("%s: the name is too long", file);
    }
    r->reads = reads;
    r->hash = FNV_BEGIN;
    strcpy(r->name, file);
    return r;
}

void record_drop(struct record *r)
{
    char name[RECORD_NAME + 8];

    if (r->f)
        fclose(r->f);
    if (!r->reads)
        unlink(with(r, ".new", name));
    free(r);
}

static void *drop_null(struct record *r)
{
    record_drop(r);
    return NULL;
}

/* The message that is there. */
void record_refuse(struct record *r)
{
    if (!r->failed)
        snprintf(r->why, sizeof r->why, "%s", err_text());
    r->failed = 1;
}

int record_failed(const struct record *r)
{
    return r->failed;
}

int record_is_read(const struct record *r)
{
    return r->reads;
}

/* ---- values ---- */

static void put(struct record *r, const void *x, size_t n)
{
    r->hash = fnv1a64(r->hash, x, n);
    errno = 0;
    if (fwrite(x, 1, n, r->f) != n) {
        err_set("cannot be written: %s", strerror(errno ? errno : EIO));
        record_refuse(r);
    }
}

static void get(struct record *r, void *x, size_t n)
{
    if ((uint64_t)r->left < n || fread(x, 1, n, r->f) != n) {
        err_set("has fewer values than it should");
        record_refuse(r);
        memset(x, 0, n);
    }
    r->left -= (int64_t)n;
}

void record_bytes(struct record *r, void *x, size_t n)
{
    if (r->failed && r->reads)
        memset(x, 0, n);
    if (r->failed || !n)
        return;
    if (r->reads)
        get(r, x, n);
    else
        put(r, x, n);
}

void record_int(struct record *r, int64_t *x)
{
    record_bytes(r, x, sizeof *x);
}

void record_real(struct record *r, double *x)
{
    record_bytes(r, x, sizeof *x);
}

void record_count(struct record *r, int64_t *n, size_t each)
{
    record_int(r, n);
    if (r->reads && (*n < 0 || (uint64_t)*n > (uint64_t)r->left / (each ? each : 1))) {
        err_set("has fewer values than it should");
        record_refuse(r);
        *n = 0;
    }
}

void record_text(struct record *r, char *x, size_t size)
{
    int64_t n = r->reads ? 0 : (int64_t)strlen(x);

    record_count(r, &n, 1);
    if ((uint64_t)n >= size) {
        err_set("has a text of %lld characters", (long long)n);
        record_refuse(r);
        n = 0;
    }
    record_bytes(r, x, n);
    if (r->reads)
        x[n] = 0;
}

/* ---- reading ---- */

static int is_none(const char *what)
{
    return err_set("%s", what);
}

/* Are all bytes those that were written? */
static int check_sum(FILE *f, int64_t bytes)
{
    unsigned char block[1 << 16];
    uint64_t hash = FNV_BEGIN, wanted;
    int64_t at = 0;

    rewind(f);
    while (at < bytes) {
        const int64_t left = bytes - at;
        const size_t n = left < (int64_t)sizeof block ? (size_t)left : sizeof block;
        if (fread(block, 1, n, f) != n)
            return is_none("cannot be read to its end");
        hash = fnv1a64(hash, block, n);
        at += (int64_t)n;
    }
    if (fread(&wanted, 1, sizeof wanted, f) != sizeof wanted || wanted != hash)
        return is_none("is damaged or cut off: its checksum is another");
    return fseek(f, HEAD, SEEK_SET) ? is_none(strerror(errno)) : 0;
}

static int check_file(struct record *r)
{
    struct {
        char magic[sizeof magic];
        int64_t order;
    } head;
    struct stat is;

    if (fstat(fileno(r->f), &is))
        return is_none(strerror(errno));
    r->left = (int64_t)is.st_size - HEAD - (int64_t)sizeof r->hash;
    if (r->left < 0 || fread(&head, 1, sizeof head, r->f) != sizeof head)
        return is_none("is damaged or cut off: it is too short");
    if (memcmp(head.magic, magic, sizeof magic) != 0)
        return is_none("was not written by this program");
    if (head.order == (int64_t)__builtin_bswap64((uint64_t)order))
        return is_none("was written by a machine of the other byte order");
    return check_sum(r->f, HEAD + r->left);
}

struct record *record_open(const char *file, int *missing)
{
    struct record *r = new_record(file, 1);
    const char *why = file_unreadable(file);

    *missing = why && access(file, F_OK) && errno == ENOENT;
    if (!r)
        return NULL;
    if (why || !(r->f = fopen(file, "rbe"))) {
        err_set("%s: cannot be read: %s", file, why ? why : strerror(errno));
        return drop_null(r);
    }
    if (!check_file(r))
        return r;
    err_at("%s", file);
    return drop_null(r);
}

static int end_of_reading(struct record *r)
{
    char why[SENTENCE] = "";

    if (!r->failed && r->left)
        snprintf(why, sizeof why, "%s: has more values than it should", r->name);
    if (r->failed)
        snprintf(why, sizeof why, "%s: %s", r->name, r->why);
    record_drop(r);
    return *why ? err_set("%s", why) : 0;
}

/* ---- writing ---- */

static FILE *open_new(const struct record *r)
{
    char name[RECORD_NAME + 8], folder[RECORD_NAME];
    FILE *f = fopen(with(r, ".new", name), "wbe");

    /* Another thread may make the folder, or remove it because it is empty, between these. */
    for (int tries = 0; !f && errno == ENOENT && tries < 100; tries++)
        if (!mkdir(file_folder(r->name, folder, sizeof folder), 0777) || errno == EEXIST)
            f = fopen(name, "wbe");
        else
            break;
    return f;
}

struct record *record_create(const char *file)
{
    struct record *r = new_record(file, 0);
    int64_t mark = order;

    if (!r)
        return NULL;
    if (!(r->f = open_new(r))) {
        err_set("%s: cannot be written: %s", file, strerror(errno));
        return drop_null(r);
    }
    put(r, magic, sizeof magic);
    record_int(r, &mark);
    return r;
}

/* A folder's names, on disk. */
static int sync_folder(const char *file)
{
    char folder[RECORD_NAME];
    const int fd = open(file_folder(file, folder, sizeof folder), O_RDONLY | O_CLOEXEC);
    const int e = fd < 0 || (fsync(fd) && errno != EINVAL) ? errno : 0;

    if (fd >= 0)
        close(fd);
    return e;
}

/* It and the one before get their names. */
static int take_place(const struct record *r, int whole)
{
    char fresh[RECORD_NAME + 8], before[RECORD_NAME + 8];

    with(r, ".new", fresh);
    if (whole && rename(r->name, with(r, ".before", before)) && errno != ENOENT)
        return errno;
    return rename(fresh, r->name) ? errno : sync_folder(r->name);
}

static int end_of_writing(struct record *r, int whole)
{
    char why[SENTENCE];
    uint64_t hash = r->hash;

    if (!r->failed)
        put(r, &hash, sizeof hash);
    errno = 0;
    if (!r->failed && (fflush(r->f) || fsync(fileno(r->f)))) {
        err_set("cannot be written: %s", strerror(errno));
        record_refuse(r);
    }
    const int e = fclose(r->f) ? errno : r->failed ? 0 : take_place(r, whole);
    r->f = NULL;
    if (!r->failed && !e) {
        free(r);
        return 0;
    }
    snprintf(why, sizeof why, "%s: %s%s", r->name,
             r->failed ? r->why : "cannot be written: ", r->failed ? "" : strerror(e));
    record_drop(r);
    return err_set("%s", why);
}

int record_close(struct record *r, int whole)
{
    return r->reads ? end_of_reading(r) : end_of_writing(r, whole);
}
