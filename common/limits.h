/* limits.h - what the user's limits on memory (ulimit) leave of the machine: on address space (-v)
 * and on data (-d), which threads' buffers count as, too. */
#ifndef LIMITS_H
#define LIMITS_H

#include <stdint.h>

/* The lower of them, in bytes; INT64_MAX where neither is set. */
int64_t limits_least(void);

/* Bytes that are left under the one that leaves less, which *name becomes ("ulimit -v"), unless that
 * is NULL; INT64_MAX where neither is set. */
int64_t limits_room(const char **name);

/* What of that a program's threads and libraries take once they run: for each
 * thread OpenBLAS's buffer of 128 MiB, for which it would wait for ever, and the C
 * library's arena of 64; and something for the rest. */
int64_t limits_overhead(int threads);

#endif
