/* The memory that ulimit and the machine leave (limits.h). */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/limits.h"

/* The limits by their name in a shell, and the field of /proc/self/statm that counts for each. */
static const struct limit {
    const char *name;
    int resource, counted;
} limits[] = {{"ulimit -v", RLIMIT_AS, 0}, {"ulimit -d", RLIMIT_DATA, 5}, {NULL, 0, 0}};

/* In bytes; INT64_MAX where it is not set. */
static int64_t bytes_of(const struct limit *l)
{
    struct rlimit r;
    return getrlimit(l->resource, &r) || r.rlim_cur > INT64_MAX ? INT64_MAX : (int64_t)r.rlim_cur;
}

/* The fields of /proc/self/statm, in bytes; 0 where there is none. */
static void read_used(long long used[6])
{
    FILE *in = fopen("/proc/self/statm", "r");

    for (int i = 0; i < 6; i++)
        if (!in || fscanf(in, "%lld", &used[i]) != 1)
            used[i] = 0;
        else
            used[i] *= sysconf(_SC_PAGESIZE);
    if (in)
        fclose(in);
}

int64_t limits_available(const char **name)
{
    int64_t min = INT64_MAX;
    long long used[6];

    read_used(used);
    for (const struct limit *l = limits; l->name; l++) {
        int64_t bytes = bytes_of(l);
        if (bytes == INT64_MAX)
            continue;
        int64_t available = bytes > used[l->counted] ? bytes - used[l->counted] : 0;
        if (available < min) {
            min = available;
            if (name)
                *name = l->name;
        }
    }
    return min;
}

int64_t limits_overhead(int threads)
{
    return (int64_t)threads * (192 << 20) + (64 << 20);
}
