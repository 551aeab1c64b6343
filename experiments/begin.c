/* Checks threads and memory before the first use of either (begin.h). */
#include "config.h"

#include <omp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "common/limits.h"
#include "experiments/begin.h"

/* ---- before the libraries begin ---- */

/* Below this many bytes per core OpenBLAS, whose threads start when it is
 * loaded, hangs under `ulimit -v` (measured: 100 MiB on 2 cores) and under
 * `ulimit -d` (200 MiB on 2 cores, 600 on 16). */
enum { MEMORY_PER_CORE = 256 << 20 };

static int is_set(char **environment, const char *name)
{
    size_t n = strlen(name);

    for (; *environment; environment++)
        if (strncmp(*environment, name, n) == 0 && (*environment)[n] == '=')
            return 1;
    return 0;
}

static int little_memory(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    return limits_min() / MEMORY_PER_CORE < (cores > 0 ? cores : 1) + 1;
}

/* OpenMP's threads spin while they wait, which on a machine with other work
 * costs several times the run itself (measured: 104 s for 22 s); and OpenBLAS
 * starts as many threads as there are cores.  Both are read when the libraries
 * are loaded, so the program begins again with what they should read.  Where
 * that fails it runs on as it is. */
__attribute__((no_sanitize("address", "undefined"))) static void begin_again(int argc, char **argv,
                                                                             char **environment)
{
    static char wait[] = "OMP_WAIT_POLICY=passive", single[] = "OPENBLAS_NUM_THREADS=1";
    int n = 0, more = 0;

    (void)argc;
    while (environment[n])
        n++;
    char *changed[n + 3];
    for (int i = 0; i < n; i++)
        changed[i] = environment[i];
    if (!is_set(environment, "OMP_WAIT_POLICY"))
        changed[n + more++] = wait;
    if (!is_set(environment, "OPENBLAS_NUM_THREADS") && little_memory())
        changed[n + more++] = single;
    changed[n + more] = NULL;
    if (more)
        execve("/proc/self/exe", argv, changed);
}

/* Functions in this section run before any library's initialisation. */
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **,
                                                                            char **) = begin_again;

/* ---- threads ---- */

enum { THREADS_PER_CORE = 16 };

/* Threads of a trial start wait for the lock, so that all are there at once. */
static void *wait_for(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* How many of n threads, this one among them, can be there together. */
static int startable(int n)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *thread = calloc(n, sizeof *thread);
    int started = 1;

    if (!thread)
        return 1;
    pthread_mutex_lock(&lock);
    while (started < n && pthread_create(&thread[started], NULL, wait_for, &lock) == 0)
        started++;
    pthread_mutex_unlock(&lock);
    for (int i = 1; i < started; i++)
        pthread_join(thread[i], NULL);
    free(thread);
    return started;
}

/* Say why fewer are used. */
__attribute__((format(printf, 2, 3))) static int fewer(int n, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fputs("run-ablation: ", stderr);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "; using %d\n", n);
    va_end(ap);
    return n;
}

static void limit_threads(int64_t available, const char *limit)
{
    int cores = omp_get_num_procs(), wanted = omp_get_max_threads(), n = wanted, can;

    if (n / THREADS_PER_CORE > cores)
        n = fewer(cores, "%d threads are too many for %d cores", wanted, cores);
    can = startable(n);
    if (can < n) /* half of the memory is for tensors */
        n = fewer(can > 3 ? can / 2 : 1, "only %d of %d threads could be started (see ulimit)", can,
                  n);
    for (can = n; can > 1 && limits_overhead(can) > available / 2; can--)
        ;
    if (can < n)
        n = fewer(can, "%s leaves too little room for %d threads", limit, n);
    if (n < wanted)
        omp_set_num_threads(n);
}

int begin(void)
{
    const char *limit = "ulimit";
    int64_t available = limits_available(&limit), needed = limits_overhead(1);

    if (available < needed)
        return err_set("%s leaves %lld MiB of memory, a run needs more than %lld: raise it", limit,
                       (long long)(available >> 20), (long long)(needed >> 20));
    limit_threads(available, limit);
    return 0;
}
