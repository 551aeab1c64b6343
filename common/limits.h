/* limits.h - the memory that the user's limits (ulimit) leave: those on address space (-v) and on
 * data (-d), which counts threads' buffers, too. */
#ifndef LIMITS_H
#define LIMITS_H

#include <stdint.h>

/* The lower of them, in bytes; INT64_MAX where neither is set. */
int64_t limits_min(void);

/* Bytes that are left under the one that leaves less, which *name becomes ("ulimit -v"), unless
 * that is NULL; INT64_MAX where neither is set. */
int64_t limits_available(const char **name);

/* Bytes that a program's threads and libraries take once they run: for each thread OpenBLAS's
 * buffer of 128 MiB, for which it would wait for ever, and the C library's arena of 64; and
 * something for the rest. */
int64_t limits_overhead(int threads);

#endif
