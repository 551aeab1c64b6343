/* The space and the lock of an HDF5 file that is written (disk.h). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/h5.h"
#include "common/base/number.h"
#include "common/store/disk.h"

/* ---- how it is written ---- */

hid_t disk_access(void)
{
    hid_t how = H5Pcreate(H5P_FILE_ACCESS);
    if (how >= 0 && (H5Pset_libver_bounds(how, H5F_LIBVER_V18, H5F_LIBVER_V18) < 0 ||
                     H5Pset_fclose_degree(how, H5F_CLOSE_STRONG) < 0 ||
                     H5Pset_alignment(how, 3072, 4096) < 0)) {
        h5_drop(how);
        return -1;
    }
    return how;
}

/* ---- space ---- */

int disk_trim(hid_t file, int fd)
{
    hsize_t end;
    if (H5Fget_filesize(file, &end) < 0)
        return h5_cannot("see its size");
    return ftruncate(fd, (off_t)end) ? err_set("cannot cut it off: %s", strerror(errno)) : 0;
}

int disk_allocate(int fd, hsize_t at, int64_t bytes)
{
    char text[NUMBER_TEXT];
    int e;

    do
        e = posix_fallocate(fd, (off_t)at, bytes);
    while (e == EINTR);
    return !e || e == EOPNOTSUPP || e == EINVAL || e == ENOSYS
               ? 0
               : err_set("needs %s more: %s", number_bytes((double)bytes, text), strerror(e));
}

int disk_reserve(hid_t file, int fd, int64_t bytes)
{
    hsize_t end;

    if (H5Fget_filesize(file, &end) < 0)
        return h5_cannot("see its size");
    if (!disk_allocate(fd, end, bytes))
        return 0;
    const int ignored = ftruncate(fd, (off_t)end);
    (void)ignored;
    return -1;
}

/* ---- whose it is ---- */

int disk_in_use(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
}

int disk_taken(const char *name)
{
    char holder[FILE_HOLDER];
    return err_set("%s has it open", file_holder(name, holder));
}

int disk_is_named(int fd, const char *name)
{
    struct stat here, there;
    return fstat(fd, &here) == 0 && lstat(name, &there) == 0 && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino;
}

int disk_own(hid_t file, const char *name)
{
    int *its = NULL, fd = -1;

    if (H5Fget_vfd_handle(file, H5P_DEFAULT, (void **)&its) < 0)
        return h5_cannot("see its descriptor");
    if ((fd = fcntl(*its, F_DUPFD_CLOEXEC, 0)) < 0)
        return err_set("%s", strerror(errno));
    if (!disk_in_use(fd) && disk_is_named(fd, name))
        return fd;
    close(fd);
    return disk_taken(name);
}
