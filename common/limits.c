#include "config.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/limits.h"

int64_t limits_room(void)
{
    struct rlimit limit;
    long long pages = 0;

    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur > INT64_MAX)
        return INT64_MAX;
    FILE *in = fopen("/proc/self/statm", "r");
    if (in) {
        if (fscanf(in, "%lld", &pages) != 1)
            pages = 0;
        fclose(in);
    }
    int64_t room = (int64_t)limit.rlim_cur - pages * sysconf(_SC_PAGESIZE);
    return room > 0 ? room : 0;
}

int64_t limits_overhead(int threads)
{
    return (int64_t)threads * (192 << 20) + (64 << 20);
}
