/* limits.h - what the user's limits (ulimit) leave of the machine. */
#ifndef LIMITS_H
#define LIMITS_H

#include <stdint.h>

/* Bytes of address space that `ulimit -v` leaves; INT64_MAX where it sets none. */
int64_t limits_room(void);

/* What of that a program's threads and libraries take once they run: for each
 * thread OpenBLAS's buffer of 128 MiB, for which it would wait for ever, and the C
 * library's arena of 64; and something for the rest. */
int64_t limits_overhead(int threads);

#endif
