/* May a file be read, and if not, why (file.h). */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"

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
