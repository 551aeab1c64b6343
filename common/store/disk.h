/* disk.h - the space and the lock of an HDF5 file that is written.  These functions leave HDF5's own printing
 * to the caller (H5E_BEGIN_TRY). */
#ifndef DISK_H
#define DISK_H

#include <stdint.h>

#include <hdf5.h>

/* ---- how it is written ---- */

/* The formats of HDF5 1.8, which are new enough and whose files carry no mark
 * of being open that a killed process would leave behind.  And pages: a trial's
 * header, and HDF5's heaps of 4096 bytes, which several trials share, each in
 * one, which even a killed process writes whole. -1: HDF5
 * cannot. */
hid_t disk_access(void);

/* ---- space; nonzero after err_set() ---- */

/* So many bytes from `at` on.  Not every file system can reserve them; there, writes will fail. */
int disk_allocate(int fd, hsize_t at, int64_t bytes);
/* So many bytes behind the file's end; fd is HDF5's descriptor, once more. */
int disk_reserve(hid_t file, int fd, int64_t bytes);
/* The file ends where HDF5 says, not where the reserved space does. */
int disk_trim(hid_t file, int fd);

/* ---- whose it is ---- */

/* Whoever writes an HDF5 file holds a flock on it, and HDF5's readers one that is shared.  If it is
 * not in use this takes it. */
int disk_in_use(int fd);
/* err_set(): who has it open. */
int disk_taken(const char *name);
int disk_is_named(int fd, const char *name);
/* HDF5's own descriptor, once more, with the lock, whether or not HDF5 locks files itself: that hangs
 * on how it was built and on its environment.  -1 after err_set(). */
int disk_own(hid_t file, const char *name);

#endif
