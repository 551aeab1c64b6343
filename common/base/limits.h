/* limits.h - the memory that the user's limits (ulimit) leave: those on address space (-v) and on
 * data (-d), which counts threads' buffers, too. */
#ifndef LIMITS_H
#define LIMITS_H

#include <stdint.h>

/* The bytes that are left under the tighter limit; INT64_MAX if neither is set.  *name becomes its
 * name ("ulimit -v"), if name is not NULL. */
int64_t limits_available(const char **name);

/* The bytes that a program's threads and libraries use when they run: for each thread the buffer of
 * OpenBLAS, 128 MiB, without which OpenBLAS would wait for ever, and the arena of the C library, 64
 * MiB; and a fixed amount for the rest. */
int64_t limits_overhead(int threads);

#endif
