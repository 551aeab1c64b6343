/* May a file be read, and if not, why; what it holds; who has it locked (file.h). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/fnv.h"

const char *file_unreadable(const char *name)
{
    struct stat is;

    if (stat(name, &is))
        return strcmp(name, "-") == 0 ? "standard input cannot be read; name a regular file"
                                      : strerror(errno);
    if (S_ISDIR(is.st_mode))
        return strerror(EISDIR);
    if (S_ISFIFO(is.st_mode))
        return "is a pipe; only a regular file can be read";
    if (S_ISCHR(is.st_mode) || S_ISBLK(is.st_mode))
        return "is a device; only a regular file can be read";
    if (!S_ISREG(is.st_mode))
        return "is no regular file";
    return access(name, R_OK) ? strerror(errno) : NULL;
}

const char *file_folder(const char *name, char *text, size_t size)
{
    const char *slash = strrchr(name, '/');

    snprintf(text, size, "%.*s", slash ? (int)(slash + 1 - name) : 1, slash ? name : ".");
    return text;
}

/* The process of the system's list of locks that has one on this file; 0: none, or it is not shown. */
static int locking_process(const struct stat *is)
{
    FILE *list = fopen("/proc/locks", "re");
    char line[200], wanted[80];
    int process = 0, pid;

    if (!list)
        return 0;
    snprintf(wanted, sizeof wanted, " %02x:%02x:%llu ", major(is->st_dev), minor(is->st_dev),
             (unsigned long long)is->st_ino);
    while (!process && fgets(line, sizeof line, list))
        if (strstr(line, wanted) && sscanf(line, "%*s FLOCK %*s %*s %d", &pid) == 1 && pid > 0)
            process = pid;
    fclose(list);
    return process;
}

const char *file_holder(const char *name, char text[FILE_HOLDER])
{
    struct stat is;
    const int process = stat(name, &is) ? 0 : locking_process(&is);
    char path[40], command[32] = "";
    FILE *of = NULL;

    snprintf(path, sizeof path, "/proc/%d/comm", process);
    if (process && (of = fopen(path, "re")) && fgets(command, sizeof command, of))
        command[strcspn(command, "\n")] = 0;
    if (of)
        fclose(of);
    if (process == getpid())
        snprintf(text, FILE_HOLDER, "this program itself");
    else
        snprintf(text, FILE_HOLDER, *command ? "%s (process %d)" : "another program", command,
                 process);
    return text;
}

int file_is_locked(const char *name, int to_write, double seconds)
{
    const double until = seconds_now() + seconds;
    const int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int locked;

    if (fd < 0)
        return 0;
    while ((locked = flock(fd, (to_write ? LOCK_EX : LOCK_SH) | LOCK_NB) && errno == EWOULDBLOCK) &&
           seconds_now() < until)
        nanosleep(&(const struct timespec){0, 20000000}, NULL);
    close(fd);
    return locked;
}

unsigned char *file_read(const char *name, size_t *n)
{
    size_t capacity = 1 << 16;
    unsigned char *text = malloc(capacity), *more = text;
    const char *why = file_unreadable(name);
    FILE *in = why ? NULL : fopen(name, "rb");
    int e = !text || !in;

    for (*n = 0; !e;) {
        size_t got = fread(text + *n, 1, capacity - *n, in);
        *n += got;
        if (!got)
            break;
        if (*n == capacity) {
            more = realloc(text, capacity *= 2);
            e = !more;
            text = more ? more : text;
        }
    }
    if (!in || (!e && ferror(in)))
        e = err_set("%s: %s", name, why ? why : strerror(errno));
    else if (e)
        err_set("%s: no memory to read it", name);
    if (in)
        fclose(in);
    if (e) {
        free(text);
        return NULL;
    }
    return text;
}

/* Goes on with all that is left of it. */
static int hash_bytes(int fd, uint64_t *hash, uint64_t *bytes)
{
    enum { BUFFER = 1 << 16 };
    unsigned char *some = malloc(BUFFER);
    ssize_t n = 0;

    if (!some)
        return err_set("no memory to read it");
    while ((n = read(fd, some, BUFFER)) > 0) {
        *bytes += n;
        *hash = fnv1a64(*hash, some, (size_t)n);
    }
    free(some);
    return n < 0 ? err_set("%s", strerror(errno)) : 0;
}

int file_hash(const char *name, uint64_t *hash, uint64_t *bytes)
{
    struct stat st;
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int e = fd < 0 || fstat(fd, &st) ? err_set("%s", strerror(errno)) : 0;

    if (!e && !S_ISREG(st.st_mode))
        e = err_set("is no regular file");
    e = e || hash_bytes(fd, hash, bytes);
    if (fd >= 0)
        close(fd);
    return e ? err_at("%s", name) : 0;
}

void file_contents_text(uint64_t hash, uint64_t bytes, char text[MAX_CONTENTS])
{
    snprintf(text, MAX_CONTENTS, "fnv1a64 %016" PRIx64 ", %" PRIu64 " bytes", hash, bytes);
}
