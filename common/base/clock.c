/* The time that passes (clock.h). */
#include "config.h"

#include <time.h>

#include "common/base/clock.h"

double seconds_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + 1e-9 * ts.tv_nsec;
}
