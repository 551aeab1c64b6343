/* counted.h - a suite's own pwrite() and ftruncate(), which count every write of its process to a file, so that it can be
 * killed at any; and a disk that is full.  Included by one file of a program. */
#ifndef COUNTED_H
#define COUNTED_H

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/tap.h"

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

/* Everything is compiled with -fvisibility=hidden, and HDF5's library is to find these. */
#define VISIBLE __attribute__((visibility("default")))

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

VISIBLE ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    return counted_pwrite(fd, data, n, at);
}

VISIBLE ssize_t pwrite64(int fd, const void *data, size_t n, off_t at)
{
    return counted_pwrite(fd, data, n, at);
}

VISIBLE int ftruncate(int fd, off_t n)
{
    return counted_ftruncate(fd, n);
}

VISIBLE int ftruncate64(int fd, off_t n)
{
    return counted_ftruncate(fd, n);
}
#else
enum { COUNTED = 0 };
static long writes_left;
static int torn;
#endif

/* Files can no longer be written beyond `size`, as on a full disk. */
static inline int full_at(off_t size)
{
    struct rlimit limit = {size, size};
    signal(SIGXFSZ, SIG_IGN);
    return setrlimit(RLIMIT_FSIZE, &limit);
}

/* What k runs, killed at a write each, say: were all of them right, and how many of them left 0, 1, 2, 3 complete trials? */
static inline void killed_at_every_write(int k, int right, const int found[4], int cut)
{
    if (!COUNTED || (k < 5 && right))
        skip("writes cannot be counted here", "killed at every write");
    else if (ok(right && found[0] && found[1], "killed at every write%s",
                cut ? ", torn at a page" : ""))
        printf("# %d writes; 0, 1, 2, 3 trials were complete %d, %d, %d, %d times\n", k, found[0],
               found[1], found[2], found[3]);
}

#endif
