/* clock.h - the time of a monotonic clock. */
#ifndef CLOCK_H
#define CLOCK_H

/* In seconds, from an arbitrary moment on. */
double seconds_now(void);

#endif
